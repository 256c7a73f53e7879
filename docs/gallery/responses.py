# %% [markdown]
# # Many responses, few factors
#
# Regression of 30 responses on 40 features through three hidden factors: the matrix of coefficients has rank 3.
# Separate least squares fits forty coefficients to few samples for every response; reduced-rank regression estimates
# the factors from all responses together.

# %%
import matplotlib.pyplot as plt
import numpy as np

import jaxht

rng = np.random.default_rng(0)
A = rng.standard_normal((200, 40)).astype(np.float32)
truth = (rng.standard_normal((40, 3)) @ rng.standard_normal((3, 30)) / 3).astype(np.float32)
Y = A @ truth + 2 * rng.standard_normal((200, 30)).astype(np.float32)
train, test = slice(0, 100), slice(100, 200)

# %%
f, held_out = (jaxht.MultiResponse(A[part], Y[part]) for part in (train, test))
ranks = list(range(1, 13))
choice = jaxht.validate(f, held_out, jaxht.LowRank(), jaxht.NIHT(), ks=ranks)
alone = np.linalg.lstsq(A[train], Y[train], rcond=None)[0]
print(choice.k)

# %%
errors = [np.linalg.norm(x - truth) / np.linalg.norm(truth) for x in choice.results.x]
figure, axes = plt.subplots(figsize=(5, 3))
axes.plot(ranks, errors, "o-", label="rank k")
axes.axhline(np.linalg.norm(alone - truth) / np.linalg.norm(truth), color="0.5", label="each response alone")
axes.axvline(choice.k, linestyle=":", color="black", label="chosen by held-out samples")
axes.set(xlabel="rank", ylabel="error of the coefficients")
axes.legend()
