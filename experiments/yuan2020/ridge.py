"""Yuan et al. 2020: ridge regression on sparse vectors, planted problems, and what their figures
share."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
from chex import Array, Numeric, PRNGKey
from matplotlib.axes import Axes
from xarray import DataArray

from experiments.common import BaseConfig, Count, Positives
from jaxht import LeastSquares, sweep
from jaxht.ensembles import (
    PlantedProblem,
    decaying_signal,
    gaussian_noise,
    gaussian_signal,
    mask_rows,
    planted,
    sign_signal,
)

# The gap over P at which DIHT ends.
CLOSED = 1e-8
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


def draw_quartiles(axes: Axes, values: DataArray, color: str, **line: Any) -> None:
    """Draw the median over the trials against the other dimension, and a band from quartile to
    quartile."""
    low, middle, high = (values.quantile(q, "trial") for q in (0.25, 0.5, 0.75))
    (at,) = middle.dims
    axes.fill_between(values[at], low, high, color=color, alpha=0.12, linewidth=0)
    axes.plot(values[at], middle, color=color, **line)
