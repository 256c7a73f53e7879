# %% [markdown]
# # A sweep on a cluster
#
# `executor=` accepts any object with a method `submit`: Dask, submitit, `concurrent.futures`. Here Dask starts two
# processes on this machine; on a cluster only the line with `LocalCluster` changes. The processes share the store; if a
# worker is lost, only the results that it was computing have to be computed again.

# %%
import tempfile
from functools import partial

import matplotlib.pyplot as plt
from dask.distributed import Client, LocalCluster

import jaxht
from jaxht import ensembles, sweep


def ensemble(key, cell):
    design = partial(ensembles.gaussian, n=40, d=100)
    return ensembles.planted(key, design, partial(ensembles.gaussian_signal, d=100, K=cell["K"]))


def method(objective, cell):
    return jaxht.Sparse(cell["K"], k_max=16), jaxht.HTP()


# %%
with LocalCluster(n_workers=2, threads_per_worker=1) as cluster, Client(cluster) as client:
    trial = sweep.Recovery(ensemble, {"HTP": method})
    axes = {"solver": ["HTP"], "K": [2, 4, 6, 8, 10, 12, 14, 16]}
    with tempfile.TemporaryDirectory() as store:
        results = sweep.run(trial, axes, num_trials=200, store=store, executor=client.get_executor())

# %%
rates = sweep.success_rate(results).sel(solver="HTP")
figure, panel = plt.subplots(figsize=(5, 3))
panel.fill_between(rates.K, rates.lower, rates.upper, alpha=0.3)
panel.plot(rates.K, rates.rate, "o-")
panel.set(xlabel="nonzeros K", ylabel="signals recovered", ylim=(0, 1.02))
