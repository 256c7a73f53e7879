"""Shen & Li 2018, Figures 4 and 5: the objective of HT-SVRG from stage to stage, for several k, m and step sizes."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from chex import Array, Numeric
from matplotlib.figure import Figure
from pydantic import Field
from xarray import Dataset

from experiments.common import plots
from experiments.common.config import BaseConfig, Count, Positive
from experiments.common.session import Session
from jaxht import HTSVRG, LeastSquares, Sparse, trace
from jaxht.planted.ensembles import gaussian, gaussian_signal
from jaxht.solvers.status import Status

SYMBOLS = {"k": "k", "m": "m", "eta": r"\eta"}
LOST = 0.95


class Config(BaseConfig):
    """One parameter at a time is varied.

    Attributes:
        d, n, K: of the planted problems, which share one A.
        num_signals: over which the objective is averaged.
        k, m, eta: the parameters where they are not varied.
        varied_k, varied_m, varied_eta: the values of those that are; none for a panel that is left out.
        num_stages: of every run.
    """

    d: Count
    n: Count
    K: Count
    num_signals: Count
    k: Count
    m: Count
    eta: Positive
    varied_k: list[Count] = Field(default=[])
    varied_m: list[Count] = Field(default=[])
    varied_eta: list[Positive] = Field(default=[])
    num_stages: Count


class Setting(NamedTuple):
    """The values of all parameters, and which one is varied."""

    varied: str
    k: int
    m: int
    eta: float

    @property
    def value(self) -> Numeric:
        """The value of the parameter that is varied."""
        return getattr(self, self.varied)


def settings(config: Config) -> list[Setting]:
    """Return all settings that are run."""
    base = {name: getattr(config, name) for name in SYMBOLS}
    varied = {name: getattr(config, f"varied_{name}") for name in SYMBOLS}
    return [Setting(name, **{**base, name: value}) for name, values in varied.items() for value in values]


def run(config: Config, session: Session) -> Dataset:
    """Compute the mean objective of the signals after every stage.

    As in the paper it is that of the signals that are recovered, if these are more than 95 %, and else of the others; a
    run that diverges has none from there on.
    """
    design_key, signal_key, solver_key = jax.random.split(jax.random.key(config.seed), 3)
    A = gaussian(design_key, config.n, config.d, variance=1 / config.n)
    signal = partial(gaussian_signal, d=config.d, K=config.K)
    x_true = jax.vmap(signal)(jax.random.split(signal_key, config.num_signals))
    keys = jax.random.split(solver_key, config.num_signals)
    all_settings = settings(config)
    k_max = max(setting.k for setting in all_settings)

    @jax.jit
    def trace_all(k: Numeric, m: Numeric, eta: Numeric) -> tuple[Array, Array, Array]:
        def one(x: Array, key: Array) -> tuple[Array, Array, Array]:
            f = LeastSquares(A, jnp.matmul(A, x, precision="highest"), mean=True)
            found = trace(f, Sparse(k, k_max=k_max), HTSVRG(eta, m), num_steps=config.num_stages, key=key)
            return found[1], found[0].status, jnp.linalg.norm(found[0].x - x) < 1e-3

        return jax.vmap(one)(x_true, keys)

    rows: dict[str, list[Any]] = {"objective": [], "success": [], "diverged": []}
    for setting in session.progress(all_settings):
        values, status, success = map(np.asarray, trace_all(setting.k, setting.m, setting.eta))
        some = success == (success.mean() > LOST)
        # A run that diverges repeats its last finite value.
        ended = np.repeat((status == Status.DIVERGED)[:, None], values.shape[1], axis=1)
        ended[:, 1:] &= values[:, 1:] == values[:, :-1]
        ended[:, 0] = False
        rows["objective"].append(np.where(ended, np.nan, values)[some].mean(axis=0))
        rows["success"].append(success.mean())
        rows["diverged"].append((status == Status.DIVERGED).mean())
    columns = {name: np.array([getattr(setting, name) for setting in all_settings]) for name in Setting._fields}
    return Dataset(
        {
            "objective": (("setting", "stage"), np.array(rows["objective"])),
            **{name: ("setting", np.array(rows[name])) for name in ("success", "diverged")},
            **{name: ("setting", column) for name, column in columns.items()},
        }
    )


def plot(dataset: Dataset, config: Config) -> Figure:
    """Draw a panel for each parameter that is varied."""
    shown = [name for name in SYMBOLS if getattr(config, f"varied_{name}")]
    figure, panels = plots.panels(len(shown), width=3.1, height=2.7)
    for axes, name in zip(panels, shown, strict=True):
        rows = dataset.isel(setting=np.flatnonzero(dataset.varied == name))
        for i in range(rows.sizes["setting"]):
            row = rows.isel(setting=i)
            label = f"${SYMBOLS[name]} = {float(row[name]):g}$, {float(row.success):.0%}"
            label += " (diverges)" if row.diverged > LOST else ""
            color, dashes = plots.CYCLE[i % len(plots.CYCLE)], "--" if i >= len(plots.CYCLE) else "-"
            marker = "x" if row.diverged > LOST else ""
            axes.plot(row.stage, row.objective, marker=marker, label=label, color=color, linestyle=dashes)
        axes.set_yscale("log")
        others = ", ".join(f"${SYMBOLS[other]} = {getattr(config, other):g}$" for other in SYMBOLS if other != name)
        axes.set_title(f"${SYMBOLS[name]}$ varied")
        plots.subtitle(axes, others)
        axes.set_xlabel("stage")
        plots.whole_numbers(axes)
        axes.legend(fontsize=7, title="signals recovered", title_fontsize=7)
    panels[0].set_ylabel("mean objective")
    plots.caption(figure, config)
    return figure
