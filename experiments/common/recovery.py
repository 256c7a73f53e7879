"""The recovery of planted signals over a grid of cells, by many solvers."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, Self

import jax
from chex import Array, PRNGKey
from pydantic import Field, model_validator
from xarray import DataArray, Dataset, concat

from experiments.common.config import BaseConfig, Count
from experiments.common.session import Session
from experiments.common.solvers import SOLVERS, SolverNames, axis_K
from jaxht import LeastSquares, Status, Stop, sweep
from jaxht.ensembles import PlantedProblem, gaussian, gaussian_signal, mask_rows, planted


class Planted(BaseConfig):
    """The keys of every experiment that recovers planted signals."""

    d: Count  # dimension
    solvers: SolverNames  # which ones
    # max_steps: of every solver, or fewer where one costs several gradients; absent: as many as
    # each takes by itself.
    max_steps: Count | None = None
    # rtol: change at which a run counts as converged; absent: machine epsilon. 0: only where it
    # repeats exactly.
    rtol: Annotated[float, Field(ge=0)] | None = None
    # target: value of the objective at which a run ends; absent: none does. Without noise, a run
    # that comes near 0 has found the signal or another solution, and more steps do not change
    # which.
    target: Annotated[float, Field(gt=0)] | None = None
    # look_every: steps between looks at whether a run can still reach the truth within max_steps;
    # absent: none.
    look_every: Annotated[int, Field(ge=2, multiple_of=2)] | None = None
    # designs: "cell": the trials of a cell (n, K) share one A; "trial": each has its own.
    designs: Literal["cell", "trial"] = "cell"
    # round_n: one compile serves all n that agree when rounded up to a multiple of it; on an
    # accelerator one serves all, unless a solver draws rows.
    round_n: Count = 64

    @model_validator(mode="after")
    def _check_round_n(self) -> Self:
        if self.round_n > 1 and any(SOLVERS[name].draws for name in self.solvers):
            raise ValueError(
                "round_n must be 1 with solvers that draw rows, which would draw those beyond n"
            )
        return self


# What intervals are conditional on, in captions.
GIVEN = {"cell": ", given the designs", "trial": ""}
Sparsity = Callable[[sweep.Cell], Any]


def draw(
    key: PRNGKey,
    cell: sweep.Cell,
    d: int,
    K: Sparsity = axis_K,
    designs: str = "cell",
    *,
    variance: float | None = None,
    design: Callable[..., Array] = gaussian,
    signal: Callable[..., Array] = gaussian_signal,
    response: Callable[[PRNGKey, Array], Array] | None = None,
) -> PlantedProblem:
    """Draw a problem: by default with a Gaussian A of variance 1/n, noise-free, with N(0, 1)
    values.

    It has ``cell.bounds["n"]`` rows, those beyond n zero: one compile serves all n up to the bound.
    """
    n = cell["n"]
    variance = 1 / n if variance is None else variance
    drawn = partial(design, n=cell.bounds["n"], d=d, variance=variance)
    design_key = cell.key if designs == "cell" else None
    return mask_rows(
        planted(key, drawn, partial(signal, d=d, K=K(cell)), response, design_key=design_key), n
    )


def recovered(
    config: Planted,
    session: Session,
    axes: Mapping[str, Sequence[float]],
    num_trials: int,
    K_max: int | Callable[[sweep.Cell], int],
    K: Sparsity = axis_K,
    recovery: Callable[..., sweep.Recovery] | None = None,
    **options: Any,
) -> Dataset:
    """Solve every problem by every solver.

    Args:
        axes: n, what determines K, and the like.
        num_trials: of each cell.
        K_max: the largest K, or (cell) -> the largest of the cells that are compiled with it.
        K: that of a cell, from which each solver takes its k.
        recovery: (methods, stop=, look_every=) -> trial; None: of the noise-free problems, with
            their K.
        options: of the sweep.
    """
    methods = {name: SOLVERS[name].method(K_max, config.d, K) for name in config.solvers}

    def stop(cell: sweep.Cell) -> Stop:
        steps = config.max_steps and max(1, config.max_steps // SOLVERS[cell["solver"]].passes)
        return Stop(max_steps=steps, rtol=config.rtol, target_value=config.target)

    if recovery is None:
        recovery = partial(
            sweep.Recovery,
            partial(draw, d=config.d, K=K, designs=config.designs),
            objective=partial(LeastSquares, mean=False),
        )
    if config.designs == "trial":
        options["shared"] = ()  # nothing
    return session.sweep(
        recovery(methods, stop=stop, look_every=config.look_every),
        {"solver": config.solvers, **axes},
        num_trials=num_trials,
        seed=config.seed,
        **{"problem": tuple(axes), "round_up": {"n": choose_step(config, axes["n"])}, **options},
    )


# Codes of runs that did not end by the rule of their solver; RUNNING are those that were left.
UNFINISHED = [code for code in Status if code == Status.RUNNING or code >= Status.MAX_STEPS]


def ended(dataset: Dataset) -> DataArray:
    """Count in every cell the runs that did not end by the rule of their solver, over ``how``: the
    codes of their status."""

    def count(code: Status) -> DataArray:
        """Of the trials that count in a success rate."""
        named = dataset.assign(ended=dataset.status == code)
        return sweep.success_rate(named, "ended").successes

    counts = concat([count(code) for code in UNFINISHED], "how")
    return counts.assign_coords(how=[int(code) for code in UNFINISHED])


def choose_step(config: Planted, n: Sequence[float]) -> int:
    """The multiple up to which n is rounded: on an accelerator one compile serves all n, since it
    takes seconds, and a step takes hardly longer with more rows."""
    draws_rows = any(SOLVERS[name].draws for name in config.solvers)
    if jax.default_backend() == "cpu" or draws_rows:
        return config.round_n
    return max(config.round_n, *map(int, n))
