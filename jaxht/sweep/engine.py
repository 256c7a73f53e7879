"""The Monte-Carlo engine: cells x trials, block by block."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from numpy.typing import NDArray

from jaxht.sweep.grid import Grid, Value
from jaxht.sweep.lanes import Trial, default_max_lanes, execute
from jaxht.sweep.store import assemble, require_xarray

if TYPE_CHECKING:
    import xarray


def run(
    trial: Trial,
    axes: Mapping[str, Sequence[Value]],
    *,
    num_trials: int,
    seed: int = 0,
    static: Sequence[str] = (),
    round_up: Mapping[str, int] | None = None,
    problem: Sequence[str] | None = None,
    max_lanes: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> "xarray.Dataset":
    """Run trials in all cells of a grid.

    Trial t of a cell gets the key ``fold_in(cell.key, t)`` and the cell ``cell.key = fold_in(root, hash)``, with a
    stable hash of its coordinates on the axes ``problem``. So cells that differ on other axes only (the solver, its
    k) see the same problems, and a finer grid, more trials or another solver change nothing that has been drawn.

    Args:
        trial: pure function (key, cell) -> dict of scalars, hashable: a function, or for solvers
            :class:`jaxht.sweep.Recovery`. Numbers drawn from ``cell.key`` are shared by all trials of a cell.
        axes: name -> values: numbers, or strings for choices such as the solver.
        num_trials: of each cell.
        seed: of the root key.
        static: axes that choose shapes, such as n; strings are static anyway, all others are traced. One compile for
            each combination of static coordinates.
        round_up: name -> step. For a trial that pads: ``{"n": 64}`` makes n traced and ``cell.bounds["n"]`` the
            static n rounded up to a multiple of 64, with one compile for each bound instead of each n.
        problem: axes that tell problems apart; None: all that hold numbers.
        max_lanes: most lanes at once; None: as suits the device. All lanes of a block run until the slowest ends.
        on_progress: called as (lanes done, lanes in all) at the start and after every block.

    Returns:
        A Dataset with the results of the trials as variables over the axes and ``trial``, and the seed, the versions
        and the device as attributes.

    Raises:
        ValueError: for axes or options that cannot be right.
        ImportError: without the extra ``jaxht[sweep]``.
    """
    require_xarray()
    max_lanes = default_max_lanes() if max_lanes is None else max_lanes
    if num_trials < 1 or max_lanes < 1:
        raise ValueError(f"num_trials and max_lanes must be at least 1; got {num_trials} and {max_lanes}")
    grid = Grid(axes, static, round_up, problem)
    batches = grid.batches(num_trials, max_lanes)
    done, total = 0, sum(batch.num_lanes for batch in batches)
    report = on_progress or (lambda done, total: None)
    report(done, total)

    root = jax.random.key(seed)
    results: dict[str, NDArray[Any]] = {}
    for batch in batches:
        for name, values in execute(trial, root, batch).items():
            if name in (*grid.axes, "trial"):
                raise ValueError(f"a trial must not return {name!r}: it is the name of an axis")
            whole = results.setdefault(name, np.zeros((int(np.prod(grid.shape)), num_trials), values.dtype))
            whole[np.ix_(batch.cells, batch.trials)] = values
        done += batch.num_lanes
        report(done, total)
    return assemble(grid.axes, results, seed)
