"""Yuan, Liu, Wang, Liu & Metaxas, Dual Iterative Hard Thresholding, JMLR 2020: duality gaps, Figures 1 to 3."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Annotated, Any, Self

import jax.numpy as jnp
import numpy as np
from chex import Array, Numeric, PRNGKey
from jax import lax
from matplotlib.figure import Figure
from pydantic import Field, model_validator
from xarray import Dataset

from experiments import plots
from experiments.config import Count, Counts, Positive, Positives
from experiments.session import Session, double_precision
from experiments.yuan2020 import CLOSED, LAMBDA, QUARTILES, Ridge, curve, draw, ridge
from jaxht import DIHT, LeastSquares, Sparse, Stop, solve, sweep
from jaxht.planted.ensembles import gaussian, with_spectrum


class Gaps(Ridge):
    """The keys of the figures of duality gaps, with a panel for each dimension.

    Attributes:
        d: dimensions.
        k: the sparsity of each, in w* and as constraint.
        max_supports: where there are no more, the primal minimum is sought among all supports.
        relative: whether gaps are drawn over the primal value.
    """

    d: Counts
    k: Counts
    max_supports: Count
    relative: bool

    @model_validator(mode="after")
    def _paired(self) -> Self:
        if len(self.d) != len(self.k) or any(k > d for d, k in zip(self.d, self.k, strict=True)):
            raise ValueError("k must have one entry for each of d, and none above it")
        return self

    def sparsity(self, d: int) -> int:
        """The k of a dimension."""
        return self.k[self.d.index(d)]


class Gap(Gaps):
    """Figures 1 and 2: rows N(0, I).

    Attributes:
        ratio: values of N/d.
        sigma: standard deviations of the noise. More than one: the gap is drawn against them, else against l0.
    """

    ratio: Positives
    sigma: Positives

    @model_validator(mode="after")
    def _drawn_in_a_plane(self) -> Self:
        if len(self.sigma) > 1 and len(self.ratio) > 1:
            raise ValueError("sigma or ratio must have one entry only")
        return self


class Conditioning(Gaps):
    """Figure 3: as many samples as dimensions, and a covariance of which, with lambda added, the condition is kappa.

    Attributes:
        kappa: condition numbers, from 1.
        sigma: standard deviation of the noise.
    """

    kappa: Annotated[Positives, Field(min_length=1)]
    sigma: Positive

    @model_validator(mode="after")
    def _from_one(self) -> Self:
        if min(self.kappa) < 1:
            raise ValueError("kappa must be at least 1")
        return self


# Gaps below it are drawn at it.
FLOOR = 1e-6


def spectrum(d: int, kappa: Numeric, penalty: Numeric) -> Array:
    """Eigenvalues of the covariance of Figure 3, (d,): with the penalty added, the largest is kappa times the smallest.

    The paper gives the smallest and the largest; that they are evenly spaced is ours. All are 1 where kappa = 1.
    """
    above = jnp.where(kappa > 1, kappa, 2)
    shift = penalty * above / (above - 1)
    return jnp.where(kappa > 1, penalty * jnp.linspace(0, 2 * above - 1, d) + shift, 1)


CHUNK = 4096


def brute_force(objective: LeastSquares, k: int) -> Array:
    """The least sum of squares with ridge over all supports S of size k.

    The minimum on S is ``(|y|^2 - b_S' (G_SS)^-1 b_S) / 2`` with G = A'A + l2 I and b = A'y. A chunk of supports at a
    time goes through one Cholesky decomposition by hand.
    """
    A, y, d = objective.A, objective.y, objective.A.shape[1]
    supports = np.array(list(combinations(range(d), k)), np.int32)
    chunks = np.pad(supports, ((0, -len(supports) % CHUNK), (0, 0)), "edge").reshape(-1, CHUNK, k)
    exact = lax.Precision.HIGHEST
    G, b = jnp.matmul(A.T, A, precision=exact) + objective.l2 * jnp.eye(d), jnp.matmul(y, A, precision=exact)

    def most(S: Array) -> Array:
        """max over the chunk of ``|L^-1 b_S|^2``, L the Cholesky factor."""
        L: list[list[Array]] = []
        solution: list[Array] = []
        for i in range(k):
            row: list[Array] = []
            for j in range(i):
                inner = sum((row[m] * L[j][m] for m in range(j)), jnp.zeros(()))
                row.append((G[S[:, i], S[:, j]] - inner) / L[j][j])
            row.append(jnp.sqrt(G[S[:, i], S[:, i]] - sum((v**2 for v in row), jnp.zeros(()))))
            inner = sum((row[m] * solution[m] for m in range(i)), jnp.zeros(()))
            solution.append((b[S[:, i]] - inner) / row[i])
            L.append(row)
        return jnp.max(sum((v**2 for v in solution), jnp.zeros(())))

    return (jnp.vdot(y, y) - jnp.max(lax.map(most, jnp.asarray(chunks)))) / 2


def bounds(objective: LeastSquares, N: Numeric, k: int, max_steps: int, search: bool) -> dict[str, Numeric]:
    """P at the end of DIHT, its best D, the minimum of P if it is sought (else NaN), and the steps taken."""
    found = solve(objective, Sparse(k, k_max=k), DIHT(), stop=Stop(max_steps=max_steps, gap_rtol=CLOSED))
    lower: Any = found.value - found.gap
    minimum = brute_force(objective, k) if search else jnp.full((), jnp.nan)
    return {"value": found.value / N, "dual": lower / N, "minimum": minimum / N, "num_steps": found.num_steps}


def gaps(
    config: Gaps,
    session: Session,
    axes: Mapping[str, Sequence[Any]],
    design: Callable[..., Array],
    *,
    ratio: Callable[[sweep.Cell], Any] = lambda cell: 1.0,
    sigma: Callable[[sweep.Cell], Any],
    problem: Sequence[str] = ("d",),
) -> Dataset:
    """Both ends of the gap in every cell; design: (key, rows, d, cell) -> (rows, d)."""
    largest = max(axes.get("ratio", (1.0,)))

    def trial(key: PRNGKey, cell: sweep.Cell) -> dict[str, Numeric]:
        d = cell["d"]
        k, N = config.sparsity(d), jnp.maximum(jnp.round(ratio(cell) * d), 1)
        rows = max(1, round(largest * d))
        made = draw(key, cell, N, k, sigma(cell), lambda key, truth: design(key, rows, d, cell), d)
        search = math.comb(d, k) <= config.max_supports
        return bounds(ridge(made, N, cell["l0"]), N, k, config.max_steps, search)

    with double_precision():
        return session.sweep(
            trial,
            {"d": config.d, "l0": config.l0, **axes},
            num_trials=config.num_problems,
            seed=config.seed,
            static=("d",),
            problem=problem,
            shared=("d",),
        )


def gap(config: Gap, session: Session) -> Dataset:
    """Figures 1 and 2."""
    return gaps(
        config,
        session,
        {"ratio": config.ratio, "sigma": config.sigma},
        lambda key, rows, d, cell: gaussian(key, rows, d, variance=1.0),
        ratio=lambda cell: cell["ratio"],
        sigma=lambda cell: cell["sigma"],
        problem=("d", "ratio"),
    )


def conditioning(config: Conditioning, session: Session) -> Dataset:
    """Figure 3."""

    def design(key: PRNGKey, rows: int, d: int, cell: sweep.Cell) -> Array:
        return with_spectrum(key, rows, d, spectrum(d, cell["kappa"], cell["l0"] / math.sqrt(d)))

    return gaps(config, session, {"kappa": config.kappa}, design, sigma=lambda cell: config.sigma)


def plot_gaps(dataset: Dataset, config: Gaps, along: str, lines: str, labels: tuple[str, str]) -> Figure:
    """A panel for each dimension, a colour for each entry of ``lines``; labels: of the x axis and of an entry."""
    figure, panels = plots.panels(len(config.d), 2.9, 2.7)
    for axes, d, k in zip(panels, config.d, config.k, strict=True):
        searched = math.comb(d, k) <= config.max_supports
        for entry, color, marker in zip(dataset[lines].values, plots.CYCLE, "osD^v", strict=False):
            of = dataset.sel({"d": d, lines: entry})
            for upper, shown, style in (
                ("minimum", searched, {"linestyle": "-"}),
                ("value", True, {"linestyle": "--", "marker": ""} if searched else {"linestyle": "-"}),
            ):
                size = (of[upper] - of.dual) / (of[upper] if config.relative else 1)
                if shown:
                    curve(axes, size.clip(FLOOR), color, **{"marker": marker, **style})
        axes.set_title(f"$d = {d}$, $k = {k}$")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel(labels[0])
    panels[0].set_ylabel("duality gap" + (" over $P$" if config.relative else ""))
    entries = zip(dataset[lines].values, plots.CYCLE, strict=False)
    plots.legend_right(panels[-1], [(f"{labels[1]} = {entry:g}$", color, "-") for entry, color in entries])
    remark = f"{QUARTILES} Gaps below $10^{{-6}}$ are drawn there."
    if any(math.comb(d, k) <= config.max_supports for d, k in zip(config.d, config.k, strict=True)):
        remark += " Dashed: $P$ at the end of DIHT in place of its minimum over all supports, where that is known."
    plots.caption(figure, config.title, f"{config.remark} {remark}")
    return figure


def plot_gap(dataset: Dataset) -> Figure:
    """Against l0 with a curve for each N/d, or against sigma with a curve for each l0."""
    config = plots.config(dataset, Gap)
    if len(config.sigma) > 1:
        labels = r"standard deviation of the noise $\sigma$", LAMBDA
        return plot_gaps(dataset.isel(ratio=0), config, "sigma", "l0", labels)
    return plot_gaps(dataset.isel(sigma=0), config, "l0", "ratio", (f"{LAMBDA}$", "$N/d"))


def plot_conditioning(dataset: Dataset) -> Figure:
    """Against kappa, with a curve for each l0."""
    config = plots.config(dataset, Conditioning)
    return plot_gaps(dataset, config, "kappa", "l0", (r"condition number $\kappa$ of $\Sigma + \lambda I$", LAMBDA))
