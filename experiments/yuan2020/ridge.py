"""Yuan et al. 2020: ridge regression on sparse vectors, planted problems, and what their figures
share."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
from chex import Array, Numeric, PRNGKey
from jax import lax
from matplotlib.axes import Axes
from xarray import DataArray

from experiments.common import BaseConfig, Count, Positive, Positives
from jaxht import DIHT, LeastSquares, Result, Sparse, Status, Stop, certify, solve, sweep
from jaxht.ensembles import (
    PlantedProblem,
    decaying_signal,
    gaussian_noise,
    gaussian_signal,
    mask_rows,
    planted,
    sign_signal,
)
from jaxht.extend import Carry, advance, finish, prepare, refit, start

# The gap over P at which DIHT ends.
CLOSED = 1e-8
# Gaps below it are drawn at it, and those below so much of P count as zero.
FLOOR = 1e-6
ROUND = 100  # steps of DIHT, of ten updates each, after which D is looked at
RELAXED_STEPS = 2000  # at most, by which the maximum of D is sought
QUARTILES = "Lines: medians; bands: from quartile to quartile."
# The values of w*, which the paper does not print.
SIGNALS: dict[str, Callable[..., Array]] = {
    "signs": sign_signal,
    "gaussian": gaussian_signal,
    "decaying": partial(decaying_signal, ratio=2.0),  # 1, 2, 4, ...
}
LAMBDA = r"$\lambda \sqrt{N}"


class Ridge(BaseConfig):
    """The keys that all have: ridge regression on planted problems, one w* of k entries for each
    dimension."""

    l0: Positives  # values of lambda sqrt(N), lambda the penalty and N the number of samples
    num_problems: Count  # in each cell
    max_steps: Count  # of DIHT, each of ten updates of the dual variables
    # stationary: DIHT ends where D is below its maximum by no more than so much of the gap that is
    # left. Absent: at max_steps only.
    stationary: Positive | None = None


def draw(
    key: PRNGKey,
    cell: sweep.Cell,
    N: Numeric,
    k: int,
    sigma: Numeric,
    design: Callable[[PRNGKey, Array], Any],
    d: int,
    signal: str = "signs",
) -> PlantedProblem:
    """Draw a problem with the w* of its dimension, which depends on ``cell.key`` only; N is traced.

    Args:
        design: (key, w*) -> (at least N, d); rows beyond N are set to zero.
        signal: a name in SIGNALS.
    """
    truth = SIGNALS[signal](cell.key, d, k)
    noise = partial(gaussian_noise, sigma=sigma)
    return mask_rows(planted(key, lambda key: design(key, truth), lambda key: truth, noise), N)


def ridge(problem: PlantedProblem, N: Numeric, l0: Numeric) -> LeastSquares:
    """Return ``N P``, at lambda = l0 / sqrt(N): rows of zeros do not change the sum, and no solver
    depends on N."""
    return LeastSquares(problem.A, problem.y, l0 * jnp.sqrt(N), mean=False)


def planted_value(objective: LeastSquares, truth: Array, k: int) -> Array:
    """Return the least P on the support of w*."""
    f = objective.prepare()
    support = Sparse(k, k_max=k).prepare(f.shape).support_of(truth)
    found = refit(f, support, truth)
    return jnp.asarray(f.value(found.x, found.pred))


class Ascent(NamedTuple):
    """DIHT at its end.

    Attributes:
        found: what it found.
        dual: its best D.
        maximum: the largest D known.
        converged: whether the gap is closed, or ``dual`` is near ``maximum``.
    """

    found: Result
    dual: Array
    maximum: Array
    converged: Array


def ascend(
    objective: LeastSquares, k: int, max_steps: int, stationary: float | None, planted: Numeric
) -> Ascent:
    """Run DIHT until the gap is closed, or D is below its maximum by no more than ``stationary`` of
    the gap between it and the least P known.

    The maximum of D is the minimum of the perspective relaxation, which accelerated descent finds
    in far fewer steps (:func:`jaxht.certify`). planted: P on the support of w*.
    """
    constraint, stop = Sparse(k, k_max=k), Stop(max_steps=max_steps, gap_rtol=CLOSED)

    def end(found: Result, top: Numeric, near: Numeric) -> Ascent:
        dual = jnp.asarray(found.value - found.gap)
        closed = found.status == Status.GAP_CLOSED
        return Ascent(found, dual, jnp.maximum(dual, top), (closed | near) & (dual > 0))

    if stationary is None:
        return end(solve(objective, constraint, DIHT(), stop=stop), -jnp.inf, False)
    problem, x0, key = prepare(objective, constraint, DIHT(), stop=stop)
    first = advance(problem, start(problem, x0, key), 1)
    limits = Stop(max_steps=RELAXED_STEPS, gap_rtol=CLOSED)
    top = certify(objective, constraint, first.iterate.x, stop=limits).lower

    def near(carry: Carry) -> Array:
        value = jnp.asarray(carry.iterate.value)
        dual = value - jnp.asarray(carry.info.gap)
        least = jnp.minimum(value, planted)
        left = jnp.maximum(least - jnp.maximum(dual, top), FLOOR * least)
        return (top - dual <= stationary * left) & (dual > 0)

    carry = lax.while_loop(
        lambda carry: (carry.status == Status.RUNNING) & ~near(carry),
        lambda carry: advance(problem, carry, ROUND),
        first,
    )
    return end(finish(problem, carry), top, near(carry))


def draw_quartiles(axes: Axes, values: DataArray, color: str, **line: Any) -> None:
    """Draw the median over the trials against the other dimension, and a band from quartile to
    quartile."""
    low, middle, high = (values.quantile(q, "trial") for q in (0.25, 0.5, 0.75))
    (at,) = middle.dims
    axes.fill_between(values[at], low, high, color=color, alpha=0.12, linewidth=0)
    axes.plot(values[at], middle, color=color, **line)
