"""Solvers on data sets: a data set as an objective and a constraint, and runs on it whose time
counts."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from experiments.common.config import Failure
from jaxht import trace
from jaxht.objectives.objective import Objective


def timed(
    work: Callable[..., Any], *arguments: Any, clock: Callable[[], float] = time.perf_counter
) -> tuple[Any, float]:
    """Return what it returns, and the seconds that it takes by a clock."""
    begin = clock()
    return jax.block_until_ready(work(*arguments)), clock() - begin


def check_labels(name: str, y: NDArray[np.float64]) -> None:
    """Raise Failure unless the labels of the data set are -1 and +1."""
    if not np.array_equal(np.unique(y), [-1, 1]):
        raise Failure(f"{name}: the labels must be -1 and +1; got {np.unique(y)[:5]}")


def check_sparsity(name: str, k: int, most: int) -> None:
    """Raise Failure where k is more than a data set allows."""
    if k > most:
        raise Failure(f"k: {k} is more than {most}, the most for {name}")


class Task:
    """An objective of a data set with its constraint, and runs on it. Programs are compiled before
    they are timed."""

    objective: Any  # prepared
    constraint: Any  # of every run; where its k is replaced, it has a k_max
    seed: int  # of the solvers that draw
    clock = staticmethod(time.perf_counter)  # of the runs

    def __init__(self) -> None:
        self._programs: dict[Any, Any] = {}

    def compiled(self, key: Any, run: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
        """Return the program for arguments like these, compiled for the first of each key."""
        key = key, jax.tree.structure(arguments)
        if key not in self._programs:
            self._programs[key] = jax.jit(run).lower(*arguments).compile()
        return self._programs[key]

    def traced(
        self,
        solver: Any,
        num_steps: int,
        record: Callable[..., Any],
        objective: Objective | None = None,
        key: Any = None,
    ) -> Any:
        """Run a solver from 0; return the result, the records (carry -> values) of all steps, and
        the seconds.

        The key is that of the task's seed, unless another is given.

        One program serves all step sizes, and all objectives of which only numbers differ from the
        task's own.
        """
        key = jax.random.key(self.seed) if key is None else key
        arguments = self.objective if objective is None else objective, self.constraint, solver, key
        run = partial(_trace, num_steps=num_steps, record=record)
        (result, records), seconds = timed(
            self.compiled((num_steps, record), run, *arguments), *arguments, clock=self.clock
        )
        return result, records, seconds


def _trace(
    objective: Any, constraint: Any, solver: Any, key: Any, *, num_steps: int, record: Any
) -> Any:
    return trace(objective, constraint, solver, num_steps=num_steps, record=record, key=key)
