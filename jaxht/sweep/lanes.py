"""Running one block of cells x trials as one compiled program."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from chex import Array, Numeric, PRNGKey
from numpy.typing import NDArray

from jaxht.sweep.grid import Batch, Value


@dataclass(frozen=True)
class Cell:
    """Where in the grid a trial stands: ``cell["K"]``.

    Attributes:
        coordinates: by axis; Python values on static axes, traced scalars on the others.
        bounds: static upper bounds on the traced coordinates that are rounded up.
        key: PRNG key for what the trials of a cell share. What is computed from the cell alone stays unbatched over
            the trials: it is done once a cell, and products with a shared matrix are matrix-matrix products.
    """

    coordinates: Mapping[str, Any]
    bounds: Mapping[str, int]
    key: PRNGKey

    def __getitem__(self, axis: str) -> Any:
        return self.coordinates[axis]


# Lanes run until the slowest of a block ends. On a CPU a step costs as much per lane in blocks of 8 as of 1000, and 32
# are the fastest in all (measured, d = 256); an accelerator needs many.
MAX_LANES = {"cpu": 32}
MAX_LANES_ELSEWHERE = 8192

Trial = Callable[[PRNGKey, Cell], Mapping[str, Numeric]]


def default_max_lanes() -> int:
    """How many lanes to run at once on JAX's default device."""
    return MAX_LANES.get(jax.default_backend(), MAX_LANES_ELSEWHERE)


def execute(trial: Trial, root: PRNGKey, batch: Batch) -> dict[str, NDArray[Any]]:
    """The results of ``trial`` on all lanes of a batch, each an array (cells, trials)."""
    results = jax.device_get(_batch(trial, batch.static, batch.bounds, root, batch.hashes, batch.numbers, batch.trials))
    for name, values in results.items():
        if values.ndim != 2:
            raise ValueError(f"a trial must return scalars; {name!r} has shape {values.shape[2:]}")
    return {name: np.asarray(values) for name, values in results.items()}


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _batch(
    trial: Trial,
    static: tuple[tuple[str, Value], ...],
    bounds: tuple[tuple[str, int], ...],
    root: PRNGKey,
    hashes: Array,
    numbers: dict[str, Array],
    trials: Array,
) -> dict[str, Array]:
    def one_cell(problem: Array, numbers: dict[str, Array]) -> dict[str, Array]:
        cell = Cell({**dict(static), **numbers}, dict(bounds), jax.random.fold_in(root, problem))
        return jax.vmap(lambda t: dict(trial(jax.random.fold_in(cell.key, t), cell)))(trials)

    return jax.vmap(one_cell)(hashes, numbers)
