# %% [markdown]
# # Genes, and the stability of their selection
#
# The expression of 2000 genes in 62 tissues (Alon et al. 1999): which genes distinguish tumours from normal tissue?
# With so few samples the selection depends on the sample. Stability selection repeats it on a hundred random halves of
# the tissues, in one `vmap`.

# %%
import os
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np

import jaxht


def select(X, y, threshold=0.6):
    S = jaxht.standardize(X)
    f = jaxht.Logistic(S.design, np.where(y == y.max(), 1.0, -1.0), l2=0.1)
    found = jaxht.inference.stability_selection(f, jaxht.Sparse(20), jaxht.OMP(), key=jax.random.key(0))
    stable = (found.frequencies >= threshold).nonzero()[0]
    print(f"genes {stable}; of these {found.expected_false(threshold):.1f} are false on average, at most")

    order = np.argsort(found.frequencies)[::-1][:25]
    _, axes = plt.subplots(figsize=(6, 2.6))
    axes.bar([str(gene) for gene in order], found.frequencies[order])
    axes.axhline(threshold, color="black", linestyle=":")
    axes.set(xlabel="gene", ylabel="selected in so many halves", ylim=(0, 1))
    axes.tick_params(axis="x", rotation=90, labelsize=7)


# %% [markdown]
# The data are read from the folder in `JAXHT_DATA`.

# %%
file = Path(os.environ.get("JAXHT_DATA", "")) / "colon_alon.npz"
if file.is_file():
    with np.load(file) as data:
        select(data["X"].astype(np.float32), data["y"])
else:
    print("This page needs colon_alon.npz in the folder that JAXHT_DATA names.")
