"""The global optimum under a sparsity constraint, by branch and bound with certified lower
bounds."""

import dataclasses
import itertools
import math
import operator
import os
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from jaxht._checks import check_count, check_kind, check_scalar
from jaxht._meshes import shard_automatically
from jaxht._programs import bounded_jit
from jaxht._storage import FingerprintError, read_record, write_record
from jaxht._typing import Array
from jaxht.constraints import SelectionConstraint
from jaxht.exact import storage
from jaxht.exact.pairs import join_pairs, split_pairs
from jaxht.exact.problem import (
    FeasiblePoint,
    ReducedProblem,
    in_double,
    project_and_evaluate,
)
from jaxht.exact.relaxation import Relaxed
from jaxht.exact.result import BranchAndBoundProgress, BranchAndBoundResult, BranchStatus, Solution
from jaxht.exact.tree import (
    CANDIDATES,
    Mask,
    Numbers,
    OpenNode,
    Tree,
    choose_division,
    divide,
    fix_items,
)
from jaxht.linalg.full_precision import default_precision
from jaxht.linalg.inner_products import is_complex
from jaxht.objectives.objective import Objective, check_point
from jaxht.runner import Result, solve
from jaxht.subproblems import refit

__all__ = ["branch_and_bound"]

SAVE_EVERY = 60.0  # seconds


@shard_automatically
def branch_and_bound(
    objective: Objective,
    constraint: SelectionConstraint,
    *,
    gap_rtol: float = 1e-4,
    time_limit: float | None = None,
    node_limit: int | None = None,
    num_solutions: int = 1,
    within: float | None = None,
    x0: Array | Result | None = None,
    batch: int = 64,
    big_m: float | None = None,
    progress: bool | Callable[[BranchAndBoundProgress], None] = False,
    checkpoint: str | os.PathLike[str] | None = None,
    memory: int = 2**30,
) -> BranchAndBoundResult:
    r"""Find the global minimum of f under a sparsity constraint, and prove it.

    .. math::
        f^* = \min \{ f(x) : \|x\|_0 \le k \}, \qquad lower \le f^* \le value

    The supports are divided into nodes, in each of which some items are fixed in or out. A node's
    relaxation, see :mod:`jaxht.exact.relaxation`, gives a lower bound; it is not divided further
    where that reaches the best value. Many nodes are bounded at a time, in one compiled program,
    and each relaxation is rounded to a point on a support.

    The larger the ridge, the tighter the bound. With l2 = 0, least squares with more samples than
    columns borrows a ridge from the curvature of the loss; all other problems assume ``|x_j| <=
    big_m``.

    It runs on the host and in double precision, whatever the dtype of the objective and of JAX; not
    under jit or vmap.

    Args:
        objective: a linear model of one output with a single l2 >= 0, on a dense or sparse design;
            of complex numbers least squares.
        constraint: :class:`jaxht.Sparse`, with ``keep`` and bounds, or :class:`jaxht.Groups`; k a
            Python int.
        gap_rtol: it ends when ``value - lower <= gap_rtol |value|``; a float.
        time_limit: seconds, looked at between batches; None for none.
        node_limit: number of nodes, looked at between batches; None for none.
        num_solutions: how many best supports to find, an int; each is proven to be among the best
            up to ``gap_rtol``.
        within: a float; with num_solutions above 1 only supports whose f is at most ``(1 +
            within)`` times the best value; None for no limit.
        x0: the first incumbent: a point, which is projected, or a Result, as in
            :func:`jaxht.solve`. None: 0, or where l2 is 0 the solution found by solve. The search
            also finds good points by itself.
        batch: nodes in a compiled call at most, an int.
        big_m: a bound of ``|x_j|`` that is assumed to hold; None: where one is needed, 1.5 times the
            largest entry of the better of x0 and the solution found by solve.
        progress: whether to print a line to stderr every few seconds; or a function of
            :class:`BranchAndBoundProgress`.
        checkpoint: a file that the search is written to, once a minute and in the end, and
            continued from where it exists, with the same num_solutions, within and big_m; with a
            smaller gap_rtol it begins anew at the best point, since the larger one has ruled out
            what it looks for. No other file is overwritten. None for none.
        memory: bytes of open nodes, an int, above which only the deepest are divided.

    Returns:
        :class:`BranchAndBoundResult`. Ctrl-C also returns, with what was found.

    Raises:
        ValueError: for objectives and constraints that are not of these kinds, and for a checkpoint
        that is damaged, no such file, or of another problem or other settings.
        OSError: for a checkpoint that cannot be written when the search begins.

    Warns:
        UserWarning: once, where 2000 nodes have closed less than a fifth of the gap at the root; and
        where the checkpoint cannot be written later, which does not end the search.

    Cost: a node takes about 20 to 500 products with the columns that are not fixed yet, and their
    transpose.

    Source: Bertsimas & Van Parys 2020; Hazimeh, Mazumder & Saab 2022; Liu et al. 2023 (OKRidge).

    Example:
        >>> import numpy as np, jaxht
        >>> A = np.random.default_rng(0).normal(size=(30, 8))
        >>> f = jaxht.LeastSquares(A, A[:, 1] - A[:, 4], 0.1)
        >>> best = jaxht.branch_and_bound(f, jaxht.Sparse(2))
        >>> best.status.name, best.solutions[0].items.tolist(), bool(best.gap <= 1e-4 * best.value)
        ('OPTIMAL', [1, 4], True)
    """
    check_kind(objective=objective, constraint=constraint)
    check_count("num_solutions", num_solutions)
    check_count("batch", batch)
    limits = {"gap_rtol": gap_rtol, "time_limit": time_limit, "within": within, "big_m": big_m}
    for name, limit in limits.items():
        if limit is not None:
            check_scalar(name, limit)
    report = _reporter(progress)
    status = None
    has_pairs = is_complex(objective)
    if x0 is not None:
        point = check_point(x0.x if isinstance(x0, Result) else x0, objective, "x0")
        if not np.all(np.isfinite(point)):
            raise ValueError("x0 must be finite; got NaN or infinity")
        x0 = split_pairs(point) if has_pairs else point
    file = None if checkpoint is None else Path(checkpoint).absolute()
    if file is not None and file.is_dir():
        raise ValueError(f"checkpoint must be a file; {str(file)!r} is a folder")
    with default_precision(float64=True):
        doubles = in_double(objective, constraint)
        search = _Search(*doubles, gap_rtol, num_solutions, within, big_m, batch, memory)

        def save() -> None:
            if file is None:
                return
            try:
                search.save(file)
            except OSError as error:
                warnings.warn(f"checkpoint {str(file)!r} cannot be written: {error}", stacklevel=3)

        try:
            if file is None or not search.load(file):
                search.start(x0)
                if file is not None:
                    search.save(file)
            saved = time.monotonic()
            while status is None:
                report(search.record())
                status = search.find_status(time_limit, node_limit)
                if status is None:
                    search.advance()
                    search.warn_of_slow_progress()
                is_due = status is not None or time.monotonic() - saved > SAVE_EVERY
                if is_due:
                    save()
                    saved = time.monotonic()
        except KeyboardInterrupt:
            if not search.history:  # nothing is known yet
                raise
            status = BranchStatus.INTERRUPTED
            save()
        result = search.result(status)
        return _join(result) if has_pairs else result


def _join(result: BranchAndBoundResult) -> BranchAndBoundResult:
    """The result of a complex problem from that of its real and imaginary parts."""
    solutions = [dataclasses.replace(each, x=join_pairs(each.x)) for each in result.solutions]
    return dataclasses.replace(result, x=join_pairs(result.x), solutions=solutions)


@bounded_jit
def _refit(objective: Any, constraint: Any, items: Array, x: Array) -> Array:
    return refit(objective, constraint.support(items), x).x


SLOW_AFTER = 2000  # nodes, after which bounds that have hardly moved are warned of
ROOT_ROUNDS = 6  # in which columns are left out and better points found, at the root
SMALL = 64  # columns, of which none are left out


class _Search:
    """The state of a search: the tree, the best points, and the problem on the columns left."""

    problem: ReducedProblem

    def __init__(
        self,
        objective: Any,
        constraint: Any,
        gap_rtol: float,
        num_solutions: int,
        within: float | None,
        big_m: float | None,
        batch: int,
        memory: int,
    ) -> None:
        self.objective = objective
        self.constraint = constraint
        self.gap_rtol = gap_rtol
        self.num_solutions = num_solutions
        self.within = within
        self.big_m = big_m
        self.batch = max(batch, 2)
        self.begin = time.monotonic()
        self.tree = Tree(memory)
        self.solutions: list[Solution] = []
        self.root_lower = -math.inf
        self.closing_ridge = math.nan
        self.num_nodes = 0
        self.warned = False
        self.history: list[tuple[float, ...]] = []

    @property
    def value(self) -> float:
        """The value of the best point, an upper bound."""
        return self.solutions[0].value

    @property
    def lower(self) -> float:
        """A lower bound of f over the constraint."""
        return min(self.tree.lower, self.value)

    @property
    def tolerance(self) -> float:
        """The gap at which f is known well enough."""
        return self.gap_rtol * abs(self.value)

    @property
    def target(self) -> float:
        """Nodes whose bound exceeds it hold nothing that is looked for."""
        if self.num_solutions == 1:
            return self.value - self.tolerance
        target = math.inf
        if len(self.solutions) == self.num_solutions:
            target = self.solutions[-1].value
        if self.within is not None:
            target = min(target, self.value + self.within * abs(self.value))
        return target

    def find_status(self, time_limit: float | None, node_limit: int | None) -> BranchStatus | None:
        """Why the search ends here; None where it goes on."""
        if self.tree.lower > self.target or not self.tree:
            is_exact = self.lower >= self.value - self.tolerance
            return BranchStatus.OPTIMAL if is_exact else BranchStatus.INEXACT
        if time_limit is not None and time.monotonic() - self.begin >= time_limit:
            return BranchStatus.TIME_LIMIT
        if node_limit is not None and self.num_nodes >= node_limit:
            return BranchStatus.NODE_LIMIT
        return None

    def record(self) -> BranchAndBoundProgress:
        """Note both bounds at this time."""
        seconds = time.monotonic() - self.begin
        state = BranchAndBoundProgress(
            seconds, self.num_nodes, len(self.tree), self.value, self.lower
        )
        self.history.append((state.seconds, state.num_nodes, state.value, state.lower))
        return state

    def start(self, x0: Array | Result | None) -> None:
        """Find the best point to begin with, and bound the root.

        Columns that no good support holds are left out. Where a file gave points, the best of them
        is that to begin with.
        """
        has_ridge = float(self.objective.penalty) > 0
        # The bound that is assumed without a ridge is that of a good point.
        searches = not (self.solutions or x0 is None or has_ridge or self.big_m is not None)
        if self.solutions:
            x0 = self.solutions[0].x
        if x0 is None and has_ridge:
            x0 = np.zeros(self.objective.shape)  # the relaxation at the root leads to better ones
        elif x0 is None:
            x0 = self._search()
        first = x0.x if isinstance(x0, Result) else x0
        found = project_and_evaluate(self.objective, self.constraint, first)
        if searches:
            other = project_and_evaluate(self.objective, self.constraint, self._search().x)
            found = other if other.value < found.value else found
        items = found.active
        if self.num_solutions > 1:
            items, found = self._fill_up(found)
        x = found.x
        self.solutions = [Solution(x, np.flatnonzero(items), float(found.value))]
        self.use(np.arange(len(x)), self.big_m)
        node = self.problem.root(x)
        for _ in range(ROOT_ROUNDS):
            value = self.value
            (node,) = self.bound([node])
            left = np.flatnonzero(~node.excluded)
            # Of few sizes, so that few programs are compiled.
            size = max(SMALL, 1 << (len(left) - 1).bit_length())
            if node.lower > self.target or node.closed:
                break
            if 2 * size > len(node.excluded) or not self.constraint.selects_entries:
                if self.value == value and np.any(node.x):
                    break
                continue  # the relaxation is rounded to another point, whose value may decide more
            kept = np.sort(np.r_[left, np.flatnonzero(node.excluded)[: size - len(left)]])
            node = node.on(kept)
            # With the same bound, or columns were ruled out wrongly.
            self.use(self.problem.columns[kept], self.problem.big_m)
        self.root_lower = min(node.lower, self.value, self.tree.closed_lower)
        best = project_and_evaluate(self.objective, self.constraint, self.solutions[0].x)
        self.closing_ridge = find_closing_ridge(best.x, np.abs(best.gradient))
        self.tree.add([node], self.target)

    def _fill_up(self, point: FeasiblePoint) -> tuple[Mask, FeasiblePoint]:
        """The items of a point and, up to as many as a support has, those along which f falls most;
        and the minimiser on them: solutions are supports of the same size."""
        constraint = self.constraint
        gains = np.asarray(constraint.scores(jnp.asarray(np.abs(point.gradient))))
        ranks = np.where(point.active, np.inf, gains)
        items = np.zeros(len(ranks), bool)
        items[np.argsort(-ranks, kind="stable")[: int(constraint.limit)]] = True
        x = _refit(self.objective, constraint, items, point.x)
        refitted = project_and_evaluate(self.objective, constraint, x)
        return items, refitted if refitted.value <= point.value else point

    def _search(self) -> Result:
        """The point of the default solver."""
        # Without its own k_max, so that problems of other sizes share a program.
        return solve(self.objective, replace(self.constraint, k_max=None))

    def use(self, columns: NDArray[Any], big_m: float | None) -> None:
        """Go on with some of the columns."""
        best = self.solutions[0]
        self.problem = ReducedProblem.on(
            self.objective, self.constraint, columns, big_m, best, self.gap_rtol
        )

    def advance(self) -> None:
        """Divide some open nodes, in one batch."""
        problem = self.problem
        target = self.target
        numbers = self.tree.select(min(len(self.tree), self.batch // 2), target)
        best = np.isin(problem.names, self.solutions[0].items)
        tries = max(1, min(CANDIDATES, self.batch // 2 // max(1, len(numbers))))
        divisions = {}
        for number in numbers:
            node = self.tree.nodes[number]
            divisions[number] = divide(node, best, problem.sizes(node.x), problem.limit, tries)
        all_ways = itertools.chain.from_iterable(divisions.values())
        bounded = iter(self.bound(list(itertools.chain.from_iterable(all_ways))))
        for number, ways in divisions.items():
            ways = [list(itertools.islice(bounded, len(way))) for way in ways]
            parts = choose_division(ways, self.tree.nodes[number].lower, target)
            # First the parts, then the node: whenever this ends, nothing is lost.
            self.tree.add(parts, self.target)
            self.tree.remove([number])

    def bound(self, nodes: list[OpenNode]) -> list[OpenNode]:
        """The nodes with the bounds of their relaxations; points found on the way are kept."""
        if not nodes:
            return []
        found, chosen = self.problem.relax(nodes, self.target, self.batch)
        self.num_nodes += len(nodes)
        for fit, value, items in zip(found.fit, found.value, chosen, strict=True):
            if np.isfinite(value):
                self.add_solution(fit, items, float(value))
        lanes = (jax.tree.map(operator.itemgetter(lane), found) for lane in range(len(nodes)))
        return [self.settle(node, lane) for node, lane in zip(nodes, lanes, strict=True)]

    def settle(self, node: OpenNode, found: Relaxed) -> OpenNode:
        """A node with its bound, the items that this decides, and what it may be divided by."""
        lower, error, gains = found.bound
        target = self.target
        included, excluded = fix_items(
            node.included, node.excluded, lower, error, gains, self.problem.limit, target
        )
        # What is ruled out has a bound above the target, and a value that may be below the best.
        if np.any(included != node.included) or np.any(excluded != node.excluded):
            ruled_out = max(math.nextafter(target, math.inf), node.lower)
            self.tree.closed_lower = min(self.tree.closed_lower, ruled_out)
        free = np.flatnonzero(~(included | excluded))
        # The least certain first; where the relaxation is integral, the items that gain most.
        ranks = np.minimum(found.z, 1 - found.z) + 1e-6 * gains / max(float(np.max(gains)), 1e-300)
        items = free[np.argsort(-ranks[free], kind="stable")[:CANDIDATES]]
        least = node.lower if math.isnan(lower) else max(node.lower, float(lower))
        step_size = float(found.step_size)
        return OpenNode(
            included=included,
            excluded=excluded,
            lower=least,
            x=found.x,
            step_size=step_size,
            items=items,
            closed=node.is_leaf,
        )

    def add_solution(self, x: Numbers, chosen: Mask, value: float) -> None:
        """Keep a point that is among the best, each support once."""
        if len(self.solutions) == self.num_solutions and value >= self.solutions[-1].value:
            return
        whole = self.problem.expand(x, self.objective.shape[0])
        new = Solution(whole, self.problem.names[chosen], value)
        same = [s for s in self.solutions if np.array_equal(s.items, new.items)]
        others = [s for s in self.solutions if not np.array_equal(s.items, new.items)]
        best = min([*same, new], key=lambda s: s.value)
        self.solutions = sorted([*others, best], key=lambda s: s.value)[: self.num_solutions]

    def warn_of_slow_progress(self) -> None:
        """Say early, and once, that branching will hardly close the gap."""
        if self.warned or self.num_nodes < SLOW_AFTER:
            return
        self.warned = True
        gap = self.value - self.root_lower
        left = self.value - self.lower
        if left > 0.8 * gap and left > 0.01 * abs(self.value):
            warnings.warn(
                f"{self.num_nodes} nodes have closed {100 * (1 - left / gap):.1f} % of the gap at "
                f"the root, which is {100 * gap / abs(self.value):.1f} % of f: the bound is too "
                f"weak for this ridge, l2 = {float(self.objective.penalty):.3g}; about "
                f"{self.closing_ridge:.3g} would close the gap",
                stacklevel=4,
            )

    def result(self, status: BranchStatus) -> BranchAndBoundResult:
        """What was found."""
        solutions = [s for s in self.solutions if self.num_solutions == 1 or s.value <= self.target]
        return BranchAndBoundResult(
            x=self.solutions[0].x,
            value=self.value,
            lower=self.lower,
            status=status,
            num_nodes=self.num_nodes,
            root_lower=self.root_lower,
            seconds=time.monotonic() - self.begin,
            history=np.array(self.history),
            solutions=solutions,
            big_m=self.problem.big_m,
            closing_ridge=self.closing_ridge,
        )

    def save(self, path: Path) -> None:
        """Write the search to a file, whole or not at all."""
        arrays = {
            **storage.nodes_to_arrays(self.tree.nodes.values()),
            **storage.solutions_to_arrays(self.solutions),
            "columns": self.problem.columns,
            "history": np.array(self.history),
        }
        numbers = {
            "assumed_big_m": None if self.problem.big_m is None else float(self.problem.big_m),
            "closed_lower": self.tree.closed_lower,
            "root_lower": self.root_lower,
            "num_nodes": self.num_nodes,
            "closing_ridge": self.closing_ridge,
            "gap_rtol": float(self.gap_rtol),
            **self.settings(),
        }
        write_record(path, self.fingerprint(), arrays, numbers)

    def load(self, path: Path) -> bool:
        """Go on from a file; False where there is none, and where the search that wrote it, with a
        larger gap_rtol, may have ruled out what this one looks for."""
        try:
            record = read_record(path, self.fingerprint())
        except FingerprintError as error:
            raise ValueError(
                f"checkpoint {str(path)!r} is of another problem: other data or constraint"
            ) from error
        if record is None:
            if path.exists():
                raise ValueError(
                    f"checkpoint {str(path)!r} is damaged, or no file of branch_and_bound: give "
                    "another name, or remove it"
                )
            return False
        arrays, numbers = record
        for name, value in self.settings().items():
            if numbers[name] != value:
                raise ValueError(
                    f"checkpoint {str(path)!r} is of a search with {name} = {numbers[name]}; got "
                    f"{value}: give the same, or another file"
                )
        self.solutions = storage.solutions_from_arrays(arrays)
        if numbers["gap_rtol"] > self.gap_rtol:
            return False
        self.use(arrays["columns"], numbers["assumed_big_m"])
        self.tree.closed_lower = numbers["closed_lower"]
        self.root_lower = numbers["root_lower"]
        self.num_nodes = numbers["num_nodes"]
        self.closing_ridge = numbers["closing_ridge"]
        self.tree.add(storage.nodes_from_arrays(arrays), math.inf)
        # The last: an interrupt before it leaves the file as it is.
        history = [tuple(row) for row in arrays["history"].tolist()]
        if history:  # of a run that ended before its first batch there is none
            self.begin -= history[-1][0]
        self.history = history
        return True

    def fingerprint(self) -> str:
        """A hash of the problem."""
        return storage.hash_problem((self.objective, self.constraint))

    def settings(self) -> dict[str, Any]:
        """The settings which a search that goes on must have in common with that before."""
        within = None
        if self.within is not None and self.num_solutions > 1:
            within = float(self.within)
        return {
            "num_solutions": int(self.num_solutions),
            "within": within,
            "big_m": None if self.big_m is None else float(self.big_m),
        }


def find_closing_ridge(x: Numbers, slopes: Numbers) -> float:
    """The l2 at which x would have no duality gap, did it not change, by the gradient's sizes."""
    on = x != 0
    if np.all(on) or not np.any(on):
        return 0.0
    return float(np.max(slopes[~on]) / np.min(np.abs(x[on])))


def _reporter(
    progress: bool | Callable[[BranchAndBoundProgress], None],
) -> Callable[[BranchAndBoundProgress], None]:
    """What to call with the progress."""
    if callable(progress):
        return progress
    shown = -math.inf

    def report(state):
        nonlocal shown
        if progress and time.monotonic() - shown > 2.0:
            shown = time.monotonic()
            print(state, file=sys.stderr, flush=True)

    return report
