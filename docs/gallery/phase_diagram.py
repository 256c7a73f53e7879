# %% [markdown]
# # A phase diagram of your own
#
# How many noisy measurements are needed to recover a sparse signal? This page runs a sweep over the number of
# measurements and the sparsity; the [recipe](../recipe.md) explains sweeps in detail.

# %%
import tempfile
from functools import partial

import jax.numpy as jnp
import matplotlib.pyplot as plt

import jaxht
from jaxht import ensembles, sweep

sigma = 0.05


def ensemble(key, cell):
    design = partial(ensembles.gaussian, n=cell["n"], d=128)
    signal = partial(ensembles.gaussian_signal, d=128, K=cell["K"])
    noise = partial(ensembles.gaussian_noise, sigma=sigma)
    return ensembles.planted(key, design, signal, noise, design_key=cell.key)


def method(solver):
    return lambda objective, cell: (jaxht.Sparse(cell["K"], k_max=24), solver)


def near(x, x_true):  # metrics.success asks for an error of 1e-3, which noise does not allow
    return jnp.linalg.norm(x - x_true) < 3 * sigma * jnp.sqrt(jnp.sum(x_true != 0))


trial = sweep.Recovery(ensemble, {"HTP": method(jaxht.HTP()), "OMP": method(jaxht.OMP())}, metrics={"success": near})
grid = {"n": [16, 32, 48, 64], "K": [2, 4, 8, 12, 16, 24]}
folder = tempfile.mkdtemp()  # for this page; "results/mine" keeps what was computed


def run(names):
    with sweep.progress_bar("recovery") as bar:
        return sweep.run(trial, {"solver": names} | grid, num_trials=50, static=["n"], store=folder, on_progress=bar)


results = run(["HTP"])

# %% [markdown]
# A call after an interruption, or a call that asks for more, runs only what is missing; here the trials of OMP.

# %%
results = run(["HTP", "OMP"])

# %%
rates = sweep.success_rate(results)
figure, panels = plt.subplots(1, 2, figsize=(7, 3), sharey=True, layout="constrained")
for panel, name in zip(panels, ["HTP", "OMP"]):
    mesh = panel.pcolormesh(grid["n"], grid["K"], rates.rate.sel(solver=name).transpose("K", "n"), vmin=0, vmax=1)
    panel.set(title=name, xlabel="measurements n", ylabel="nonzeros K")
figure.colorbar(mesh, ax=panels, label="signals recovered")

# %% [markdown]
# The n at which half of the signals are recovered, with a confidence interval:

# %%
print(sweep.transition(rates, (0.5,)).sel(solver="HTP").to_dataframe()[["estimate", "lower", "upper"]])
