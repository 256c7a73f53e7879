# %% [markdown]
# # The best subset, with its certificate
#
# The data are ten measurements of diabetes patients, with their squares and products. Which eight of these 64 terms
# predict the progression of the disease best? Branch and bound finds them, and proves that no other eight are better.

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import PolynomialFeatures

import jaxht

X, y = load_diabetes(return_X_y=True, as_frame=True)
expand = PolynomialFeatures(degree=2, include_bias=False).fit(X)
terms = expand.transform(X).astype(np.float32)
names = expand.get_feature_names_out()
keep = names != "sex^2"  # which is sex again
S, names = jaxht.standardize(terms[:, keep]), names[keep]
f = jaxht.LeastSquares(S.design, ((y - y.mean()) / y.std()).to_numpy(np.float32), l2=4.0)

# %% [markdown]
# The search for a good support takes a fraction of a second. The proof searches a tree of supports; lower bounds
# exclude almost all of them.

# %%
found = {"OMP": jaxht.OMP(), "HTP": jaxht.HTP(), "LocalSearch": None}
values = {name: float(jaxht.solve(f, jaxht.Sparse(8), solver).value) for name, solver in found.items()}
best = jaxht.branch_and_bound(f, jaxht.Sparse(8), gap_rtol=1e-3)
print(best.status.name, "after", best.num_nodes, "nodes:", ", ".join(names[np.array(best.solutions[0].items)]))

# %%
figure, axes = plt.subplots(figsize=(6, 2.2))
axes.barh(list(values), [100 * (value / best.value - 1) for value in values.values()])
axes.axvline(-100 * best.gap / best.value, color="black", linestyle=":", label="proven lower bound")
axes.set_xlabel("f above the optimum (%)")
axes.legend()
