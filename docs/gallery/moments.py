# %% [markdown]
# # Millions of samples from their moments
#
# Two and a half million samples of 200 features are 4 GB in double precision. Least squares needs only A'A, A'y and
# y'y: read the samples in chunks, add up these moments, and solve a problem with d + 1 rows. Its data are a Cholesky
# factor of the moments, which has the same moments as the samples. For an intercept, add a column of ones to the
# features, and keep it in the support: `Sparse(k + 1, keep=...)`.

# %%
import matplotlib.pyplot as plt
import numpy as np

import jaxht

d, truth = 200, np.zeros(200)
truth[::20] = np.linspace(0.02, 0.2, 10)


def chunks(count=250, size=10_000):  # in place of a file that is read
    rng = np.random.default_rng(0)
    for _ in range(count):
        A = rng.standard_normal((size, d), np.float32)
        yield A, A @ truth + rng.standard_normal(size)


moments, n = np.zeros((d + 1, d + 1)), 0
for A, y in chunks():
    both = np.column_stack([A, y]).astype(np.float32)
    moments += both.T @ both
    n += len(y)

# %%
R = np.linalg.cholesky(moments).T  # R'R are the moments
f = jaxht.LeastSquares((R[:, :d] / np.sqrt(n)).astype(np.float32), (R[:, d] / np.sqrt(n)).astype(np.float32))
ks = list(range(1, 21))
results = jaxht.path(f, jaxht.Sparse(), jaxht.OLS(), ks=ks)
criteria = n * np.log(2 * np.asarray(results.value)) + np.array(ks) * np.log(n)  # BIC, of all n samples
best = int(np.argmin(criteria))
print(f"{n} samples; k = {ks[best]} by BIC: {results.x[best].nonzero()[0]}")

# %%
figure, axes = plt.subplots(figsize=(5, 3))
axes.plot(ks, criteria - criteria.min(), "o-")
axes.set(xlabel="k", ylabel="BIC above its least", yscale="symlog")
