# %% [markdown]
# # The bootstrap in one vmap
#
# How much do the selected features and their coefficients vary from sample to sample? A resampled data set is a vector
# of sample weights, so that one `vmap` over 500 such vectors solves all problems.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

import jaxht

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
S = jaxht.standardize(X.to_numpy(np.float32))
f = jaxht.LeastSquares(S.design, (y - y.mean()).to_numpy(np.float32))
found = jaxht.inference.bootstrap(f, jaxht.Sparse(5), jaxht.OMP(), key=jax.random.key(0), num_resamples=500)
low, high = found.intervals(0.9)

# %% [markdown]
# The supports that are selected most often:

# %%
supports, counts = np.unique(found.results.support.mask, axis=0, return_counts=True)
for i in np.argsort(-counts)[:5]:
    print(f"{counts[i]:4d} of 500: {', '.join(X.columns[supports[i]])}")

# %%
middle = (low + high) / 2
figure, axes = plt.subplots(figsize=(6, 3))
axes.errorbar(middle, X.columns, xerr=middle - low, fmt="none", capsize=3)
axes.scatter(found.coefficients.mean(axis=0), X.columns, c=found.frequencies, cmap="viridis", vmin=0, vmax=1, zorder=3)
axes.axvline(0, color="black", linewidth=0.6)
axes.set_xlabel("coefficient of the standardised column: 90 % interval, mean, and how often it is selected (colour)")
