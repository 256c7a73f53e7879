# %% [markdown]
# # Which stocks move together
#
# Monthly returns of eight stocks and two indices, for the months in which all have a price; the file comes with
# Matplotlib. A graph with k edges stands for an inverse covariance matrix with k nonzero entries above the diagonal:
# two stocks without an edge are conditionally independent given all others.

# %%
import matplotlib.cbook as cbook
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import jaxht

with cbook.get_sample_data("Stocks.csv") as file:
    table = pd.read_csv(file, comment="#", index_col="Date", parse_dates=True).dropna()
names = table.columns.str.replace("^GSPC", "S&P 500").str.replace("^IXIC", "Nasdaq")
returns = np.diff(np.log(table.to_numpy()), axis=0)
Z = ((returns - returns.mean(0)) / returns.std(0)).astype(np.float32)
print(Z.shape)

# %%
halves = Z[::2], Z[1::2]  # every second month chooses the number of edges
S, T = (half.T @ half / len(half) for half in halves)
choice = jaxht.validate(
    jaxht.GaussianPrecision(S),
    jaxht.GaussianPrecision(T),
    jaxht.Edges(),
    jaxht.HTP(4.0, backtrack=True),
    ks=range(1, 25),
)
W = np.asarray(
    jaxht.solve(jaxht.GaussianPrecision(Z.T @ Z / len(Z)), jaxht.Edges(choice.k), jaxht.HTP(4.0, backtrack=True)).x
)

# %%
angles = np.linspace(0, 2 * np.pi, len(names), endpoint=False)
x, y = np.cos(angles), np.sin(angles)
figure, axes = plt.subplots(figsize=(4, 4))
for i, j in zip(*np.nonzero(np.triu(W, 1))):
    partial = -W[i, j] / np.sqrt(W[i, i] * W[j, j])
    axes.plot(x[[i, j]], y[[i, j]], color="tab:blue" if partial > 0 else "tab:red", linewidth=8 * abs(partial))
for name, a, b in zip(names, x, y):
    axes.text(1.1 * a, 1.1 * b, name, ha="center", va="center", bbox={"fc": "white", "lw": 0})
axes.set(xlim=(-1.4, 1.4), ylim=(-1.4, 1.4), title=f"{choice.k} edges")
axes.set_axis_off()
