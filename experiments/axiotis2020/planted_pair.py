"""Axiotis & Sviridenko 2020, §5.1: a pair of columns that fits exactly, and that no greedy method
finds."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from chex import Array
from matplotlib.figure import Figure
from numpy.typing import NDArray
from xarray import Dataset, concat

from experiments.common import BaseConfig, Counts, Session, double_precision, plots
from experiments.common.claims import (
    EXACT,
    NOT_PRINTED,
    Claim,
    Finding,
    Reason,
    Section,
    Setting,
    needs,
)
from jaxht import ARHT, IHT, OMP, OMPR, PHT, ExhaustiveLocalSearch, LeastSquares, Sparse, solve

SOLVERS = {
    "OMP": OMP(),
    "OMPR": OMPR(),
    "IHT": IHT(),
    "PHT": PHT(r=1),
    "ARHT": ARHT(),
    "ELS": ExhaustiveLocalSearch(),
}
STARTS = "zero", "off the pair"


class Config(BaseConfig):
    """Instances."""

    N: Counts  # columns beside the pair, at least 3


def instance(N: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return A, (N + 1, N + 2), and b. The pair are the last two columns; the first N fit b too,
    but no fewer."""
    t = 1 / (2 * N)
    A = np.zeros((N + 1, N + 2))
    A[:N, :N] = np.eye(N)
    A[:N, N:], A[N, N:] = t, np.sqrt(1 - t**2 * N) * np.array([1, -1])
    return A, np.append(np.ones(N), 0)


def condition(N: int, s: int) -> float:
    """Return the restricted condition number at level s: supports differ only in how many of the
    pair they have."""
    A, _ = instance(N)
    of_pair = [pair for pair in range(3) if 0 <= s - pair <= N]
    values = [
        np.linalg.eigvalsh(B.T @ B) for B in (A[:, N + pair - s : N + pair] for pair in of_pair)
    ]
    smallest = min(value[0] for value in values)
    return float(max(value[-1] for value in values) / smallest) if smallest > 1e-12 else np.inf


def run(config: Config, session: Session, solvers: Sequence[str] = tuple(SOLVERS)) -> Dataset:
    """Solve from zero and from a support off the pair, for all sparsities up to N; at once what the
    instance is."""
    instances = [_on(N, solvers) for N in session.progress(config.N)]
    return concat(instances, "N", join="outer").assign_coords(N=config.N)


def _on(N: int, solvers: Sequence[str]) -> Dataset:
    A, b = instance(N)
    sizes = np.arange(1, N + 1)

    @partial(jax.jit, static_argnums=0)
    def run(name: str, k: Array, start: Array) -> tuple[Array, Array]:
        x0 = jnp.where(start & (jnp.arange(N + 2) < k), 1.0, 0.0)  # their order does not matter
        found = solve(
            LeastSquares(A, b, mean=False),
            Sparse(k, k_max=N),
            SOLVERS[name],
            x0=x0,
            key=jax.random.key(0),
        )
        return found.value, jnp.sum(found.x[N:] != 0)

    with double_precision():
        found = [
            [[run(name, jnp.int32(k), start == STARTS[1]) for k in sizes] for start in STARTS]
            for name in solvers
        ]
    values, selected = np.moveaxis(np.array(found, float), -1, 0)
    # The gradient at the minimiser on k of the first N columns: k of the residuals vanish.
    gradients = [np.abs(A.T @ (np.append(np.arange(N) < k, 0) - b)) for k in sizes]
    over = "solver", "start", "k"
    return Dataset(
        {
            "value": (over, values),
            "selected": (over, selected),
            "value_pair": np.linalg.lstsq(A[:, N:], b)[1].sum() / 2,
            "gradient_pair": ("k", [g[N:].max() for g in gradients]),
            "gradient_rest": (
                "k",
                [g[k:N].min(initial=np.inf) for k, g in zip(sizes, gradients, strict=True)],
            ),
            "condition": condition(N, N // 2 + 2),
            "condition_all": condition(N, N + 2),
        },
        {"solver": list(solvers), "start": list(STARTS), "k": sizes},
    )


def plot(dataset: Dataset, config: Config) -> Figure:
    """Draw f against the sparsity, a panel for each instance."""
    figure, panels = plots.panels(len(config.N), width=2.2, height=2.4)
    for axes, N in zip(panels, config.N, strict=True):
        results = dataset.sel(N=N, k=dataset.k[dataset.k <= N])
        looks = plots.looks(dataset.solver.values.tolist())
        for size, (name, (color, marker)) in enumerate(looks.items()):
            value = results.value.sel(solver=name).max("start")
            axes.plot(
                results.k,
                value,
                color=color,
                marker=marker,
                ms=8 - size,
                mfc="none",
                lw=0.8,
                label=name,
            )
        axes.plot(2, float(results.value_pair), "*", color=plots.BLACK, ms=8, label="the pair")
        axes.set_title(f"$N = {N}$")
        axes.set_xlabel("sparsity $k$")
    panels[0].set_ylabel("$f$, the worse of two starts")
    plots.legend_right(panels[-1])
    plots.caption(figure, config)
    return figure


# ---- what the paper says of it, and whether it holds ----


def both_fit(results: Dataset, config: Any) -> Finding:
    """The least f on k of the first N columns is (N - k)/2 on this instance, whichever they are:
    OMP has it."""
    omp = results.value.sel(solver="OMP", start="zero")
    at_all = omp.where(omp.k == omp.N).sum("k")
    least = float(omp.where(omp.k < omp.N).min())
    pair = float(results.value_pair.max())
    text = f"f = {pair:.0e} on the pair, {float(at_all.max()):.0e} on the first N, at least {least:g} on fewer of these"
    return Finding.of(text, pair < EXACT, bool((at_all < EXACT).all()), least > 0.1)


def smaller_gradients(results: Dataset, config: Any) -> Finding:
    """At the minimiser on k of the first N columns, k < N."""
    share = (results.gradient_pair / results.gradient_rest).where(results.k < results.N)
    text = f"at most {float(share.max()):.2f} times the least of the others, for all k < N"
    return Finding.of(text, bool((share.fillna(0) < 1).all()))


def never_found(*names: str) -> Claim:
    """Whether f is 0 at k = N only, and no column of the pair is selected."""

    def judge(results: Dataset, config: Any) -> Finding:
        some = results.sel(solver=list(names))
        runs = some.k <= some.N
        entered = int(((some.selected > 0) & runs).sum())
        too_early = int(((some.value < EXACT) & (some.k < some.N)).sum())
        total = int(some.value.notnull().sum())
        at_all = bool((some.value.where(some.k == some.N) < EXACT).any("k").all())
        text = f"f = 0 at k < N in {too_early} of {total} runs, a column of the pair selected in {entered}"
        return Finding.of(text, not too_early, not entered, at_all)

    text = (
        f"{', '.join(names)}, started off the pair, never select it, and need all N other columns"
    )
    return Claim(text, needs(*names, column="value")(judge))


def linear_condition(results: Dataset, config: Any) -> Finding:
    over = (results.condition / results.N).values
    text = f"{over.min():.2f} to {over.max():.2f} times N at level N/2 + 2; "
    finite = bool(np.isfinite(results.condition_all).all())
    text += (
        "finite"
        if finite
        else "infinite at level n, where $\\rho^- = 0$, since two supports fit b exactly"
    )
    return Finding.of(text, bool(np.isfinite(over).all() and over.max() < 2 * over.min()), finite)


SECTION_5_1 = Section(
    "Section 5.1",
    "section5_1",
    [
        Claim(
            "a pair of columns fits b exactly, and so do the others, but no proper subset of these",
            both_fit,
        ),
        Claim(
            "at the minimiser on some of the others, the gradient is smaller on the pair than on the rest of "
            "them",
            smaller_gradients,
        ),
        never_found("OMP", "OMPR", "IHT", "PHT"),
        never_found("ARHT", "ELS"),
        Claim(
            "the condition number is $\\kappa = \\rho_n^+/\\rho_n^- = O(n)$",
            linear_condition,
            printed="O(n)",
            reason=f"{Reason.SLIP}: at level n two supports fit b, whatever the matrix, so $\\rho^- = 0$ "
            "([misprints](misprints.md))",
        ),
        Claim(
            "Conjecture 5.1: no polynomial algorithm has $s = O(s^* \\kappa^{1-\\delta})$",
            "a conjecture on all algorithms",
        ),
    ],
    "The paper has no figure of it. It refers to Foster, Karloff & Thaler 2015 for the matrix; the instance "
    "here has N + 2 columns and the properties that the paper lists.",
    settings=[
        Setting("matrix", "Appendix B of Foster et al. 2015 (§5.1)", "with the properties listed"),
        Setting("columns, n", NOT_PRINTED, "N + 2, N = {N}"),
        Setting("start", NOT_PRINTED, "0, and k of the first N columns"),
    ],
)
