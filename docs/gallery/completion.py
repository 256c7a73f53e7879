# %% [markdown]
# # A matrix from a fraction of its entries
#
# A matrix of rank 3, of which 30 % of the entries are observed, with noise.

# %%
import matplotlib.pyplot as plt
import numpy as np

import jaxht

rng = np.random.default_rng(0)
truth = (rng.standard_normal((120, 3)) @ rng.standard_normal((3, 90))).astype(np.float32)
rows, columns = np.nonzero(rng.random(truth.shape) < 0.3)
seen = truth[rows, columns] + 0.05 * rng.standard_normal(len(rows)).astype(np.float32)
held = rng.random(len(rows)) < 0.1  # to choose the rank


def completion(rows, columns, values):
    return jaxht.matrix_completion(rows, columns, values, truth.shape)


# %%
train = completion(rows[~held], columns[~held], seen[~held])
errors = []
for rank in range(1, 7):
    x = jaxht.solve(train, jaxht.LowRank(rank), jaxht.NIHT()).x
    errors.append(float(np.sqrt(np.mean((x[rows[held], columns[held]] - seen[held]) ** 2))))
rank = int(np.argmin(errors)) + 1
x = jaxht.solve(completion(rows, columns, seen), jaxht.LowRank(rank), jaxht.NIHT()).x
print(rank, np.linalg.norm(x - truth) / np.linalg.norm(truth))

# %%
figure, panels = plt.subplots(1, 3, figsize=(8, 2.6), layout="constrained")
panels[0].plot(range(1, 7), errors, "o-")
panels[0].set(xlabel="rank", ylabel="error on held-out entries", yscale="log")
given = np.full(truth.shape, np.nan)
given[rows, columns] = seen
for axes, shown, title in zip(panels[1:], (given, x), ("seen", "completed")):
    axes.imshow(shown, cmap="RdBu", vmin=-4, vmax=4)
    axes.set_title(title)
    axes.set_axis_off()
