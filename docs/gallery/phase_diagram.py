# %% [markdown]
# # A phase diagram of your own
#
# When are sparse signals recovered? A sweep over the number of measurements and the sparsity, with the ensemble and
# the solvers that you choose. The [recipe](../recipe.md) says what each line does; with `store="results/mine"`
# nothing is ever computed twice, and a grid may grow.

# %%
from functools import partial

import matplotlib.pyplot as plt

import jaxht
from jaxht import ensembles, sweep


def ensemble(key, cell):
    design = partial(ensembles.gaussian, n=cell["n"], d=128)
    return ensembles.planted(key, design, partial(ensembles.gaussian_signal, d=128, K=cell["K"]), design_key=cell.key)


def method(solver):
    return lambda objective, cell: (jaxht.Sparse(cell["K"], k_max=24), solver)


trial = sweep.Recovery(ensemble, {"HTP": method(jaxht.HTP()), "OMP": method(jaxht.OMP())})
axes = {"solver": ["HTP", "OMP"], "n": [16, 32, 48, 64], "K": [2, 4, 8, 12, 16, 24]}
results = sweep.run(trial, axes, num_trials=50, static=["n"])

# %%
rates = sweep.success_rate(results)
figure, panels = plt.subplots(1, 2, figsize=(7, 3), sharey=True, layout="constrained")
for panel, name in zip(panels, axes["solver"]):
    mesh = panel.pcolormesh(axes["n"], axes["K"], rates.rate.sel(solver=name).transpose("K", "n"), vmin=0, vmax=1)
    panel.set(title=name, xlabel="measurements n")
panels[0].set_ylabel("nonzeros K")
figure.colorbar(mesh, ax=panels, label="signals recovered")

# %% [markdown]
# The n at which half of the signals are recovered, with its interval:

# %%
print(sweep.transition(rates, (0.5,)).sel(solver="HTP").to_dataframe()[["estimate", "lower", "upper"]])
