"""The problem of a branch and bound on the columns that are left: its relaxation, and the batches
that solve it."""

import dataclasses
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxht._dataclass import cast_numbers
from jaxht._typing import Array, Leaf
from jaxht.constraints import Constraint, Groups, Sparse
from jaxht.exact.perspective import Node
from jaxht.exact.relaxation import (
    Goal,
    Quadratic,
    Relaxation,
    Relaxed,
    Ridge,
    Start,
    bound_above,
    relax_nodes,
)
from jaxht.exact.result import Solution
from jaxht.exact.tree import Mask, Numbers, OpenNode, round_to_support, settle
from jaxht.objectives.dual import column_bound
from jaxht.objectives.linear_model import LinearModel
from jaxht.objectives.losses import ScalarLoss, SquaredLoss
from jaxht.objectives.objective import Objective
from jaxht.subproblems.columns import restrict_columns

MAX_GRAM = 4096  # columns of which all products are computed
MAX_EIGEN = 1000  # columns of which the least eigenvalue is computed, not only bounded
INVERSE_STEPS = 50  # of inverse iteration, to bound it
FEW, FEW_COLUMNS = (
    16,
    1000,
)  # lanes of a small batch; above so many columns a single node has a program of its own
MAX_ROUNDS, RTOL = 50, 0.05  # of a relaxation


def in_double(objective: Objective, constraint: Constraint) -> tuple[Any, Any]:
    """Both prepared, and the objective in double precision; the numbers of its data are not
    rounded.

    Raises:
        ValueError: for what has no relaxation.
    """
    if not isinstance(objective, LinearModel) or not isinstance(objective.loss, ScalarLoss):
        raise ValueError(
            f"objective must be a linear model of one output; got {type(objective).__name__}"
        )
    objective = cast_numbers(objective.prepare(), np.dtype(np.float64))
    if objective.dtype != np.float64 or not objective.design.gathers(1):
        raise ValueError(
            f"A must be dense or sparse, with columns at hand; got {type(objective.design).__name__}"
        )
    if len(objective.shape) != 1 or jnp.ndim(objective.penalty):
        raise ValueError(
            f"x must be a vector with a single l2; got shape {objective.shape} and l2 {objective.l2!r}"
        )
    if not isinstance(constraint, Sparse | Groups):
        raise ValueError(f"constraint must be Sparse or Groups; got {type(constraint).__name__}")
    constraint = constraint.prepare(objective.shape)
    if isinstance(constraint.k, jax.core.Tracer) or constraint.k_max is None:
        raise ValueError("k must be a Python int: the search runs on the host")
    return objective, constraint


@dataclasses.dataclass(frozen=True)
class Problem:
    """A sparse problem on some of its columns, with the ridge of its relaxation.

    Attributes:
        relaxation: of the objective and the constraint on these columns, with the bounds that are
            assumed.
        limit: k.
        columns: int64, their numbers in the whole problem.
        big_m: the bound of ``|x_j|`` that is assumed; None.
    """

    relaxation: Relaxation
    limit: int
    columns: np.ndarray
    big_m: float | None

    @classmethod
    def on(
        cls,
        objective: Any,
        constraint: Any,
        columns: np.ndarray,
        big_m: float | None,
        best: Solution,
        gap_rtol: float,
    ) -> "Problem":
        """The problem on some columns.

        Args:
            objective: whole, prepared.
            constraint: whole, prepared.
            columns: int64.
            big_m: a bound of ``|x_j|`` that is assumed, or None: assumed only where there is no
                ridge.
            best: the best point, from which that bound is taken.
            gap_rtol: a tenth of it is what bounds may lose where there is no ridge.
        """
        n, d, l2 = objective.num_samples, len(columns), float(objective.penalty)
        limit, slack = int(constraint.limit), 0.1 * gap_rtol * abs(best.value)
        if d < objective.shape[0]:
            indices = jnp.asarray(columns)
            objective, constraint = (
                restrict_columns(objective, indices),
                constraint.restrict(indices),
            )
        gram, borrowed, added = None, 0.0, 0.0
        if isinstance(objective.loss, SquaredLoss) and d <= min(2 * n, MAX_GRAM):
            gram = _gram(objective)
            borrowed = curvature_bound(gram.H, n) if n >= d else 0.0
        if l2 + borrowed == 0 or big_m is not None:
            big_m = 1.5 * float(np.max(np.abs(best.x), initial=0.0)) if big_m is None else big_m
            constraint = _bounded(constraint, objective.shape, big_m)
        if l2 + borrowed == 0:
            squares = np.maximum(*(np.asarray(bound) ** 2 for bound in constraint.bounds))
            added = 2 * slack / max(float(np.sort(squares)[::-1][:limit].sum()), 1e-300)
        rest = (l2 + borrowed + added, borrowed, added, slack * (1 + 1e-12) if added else 0.0)
        ridge = Ridge(*(np.float64(number) for number in rest))
        if gram is not None and borrowed > 0:
            gram = gram._replace(H=gram.H - borrowed * np.eye(d))
        relaxation = Relaxation.of(
            objective, constraint, ridge, _column_bound(objective), best.value, gram
        )
        return cls(relaxation, limit, columns, big_m)

    @property
    def constraint(self) -> Sparse | Groups:
        """On these columns."""
        return self.relaxation.constraint

    @property
    def names(self) -> np.ndarray:
        """The items' numbers in the whole problem."""
        return (
            self.columns
            if isinstance(self.constraint, Sparse)
            else np.arange(cast(int, self.constraint.num_groups))
        )

    def root(self, x: Numbers) -> OpenNode:
        """All supports; x is where the descent starts."""
        included = np.broadcast_to(
            np.asarray(self.constraint.always_active), self.names.shape
        ).copy()
        included, excluded = settle(included, np.zeros_like(included), self.limit)
        return OpenNode(
            included, excluded, -np.inf, x, float(self.relaxation.step_size), np.array([], np.int64)
        )

    def sizes(self, x: Numbers) -> Numbers:
        """The norm of x on each item."""
        if isinstance(self.constraint, Groups):
            return np.sqrt(np.bincount(np.asarray(self.constraint.groups), x**2, len(self.names)))
        return np.abs(x)

    def expand(self, x: Numbers, d: int) -> Numbers:
        """x on all columns."""
        whole = np.zeros(d)
        whole[self.columns] = x
        return whole

    def relax(self, nodes: list[OpenNode], target: float, batch: int) -> tuple[Relaxed, Mask]:
        """Solve the relaxations of nodes, and find the best points on supports that they are
        rounded to.

        Returns:
            :class:`jaxht.exact.relaxation.Relaxed` with a leading axis of nodes, and the supports'
            items.
        """
        size = (
            1
            if len(nodes) == 1 and len(self.columns) > FEW_COLUMNS
            else FEW
            if len(nodes) <= FEW
            else batch
        )
        chosen = np.stack(
            [round_to_support(node, self.sizes(node.x), self.limit) for node in nodes]
        )
        found = []
        for first in range(0, len(nodes), size):
            lanes = np.minimum(np.arange(first, first + size), len(nodes) - 1)
            starts = [
                Start(
                    Node(nodes[lane].included, nodes[lane].excluded),
                    chosen[lane],
                    nodes[lane].x,
                    nodes[lane].step_size,
                )
                for lane in lanes
            ]
            stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *starts)
            results = relax_nodes(self.relaxation, Goal(target, RTOL, MAX_ROUNDS), stacked)
            found.append(jax.tree.map(np.asarray, results))
        return jax.tree.map(lambda *leaves: np.concatenate(leaves)[: len(nodes)], *found), chosen


_column_bound = jax.jit(column_bound)


class Point(NamedTuple):
    """A feasible x, the items on which it is not 0, f(x) plus a bound of its rounding error, and
    the gradient there."""

    x: Leaf
    active: Leaf
    value: Leaf
    gradient: Leaf


@jax.jit
def project_and_evaluate(objective: LinearModel, constraint: Sparse | Groups, x: Array) -> Point:
    """The projection of x: feasible, or its value would be no upper bound."""
    x, _ = constraint.project(jnp.asarray(x, objective.dtype))
    pred = objective.predict(x)
    value = bound_above(objective, x, pred, column_bound(objective))
    return Point(x, constraint.active(x), value, objective.gradient(x, pred))


def _gram(objective: Any) -> Quadratic:
    """Squared errors without a ridge, ``H = c A' S A``; on the host, where that takes half the
    time."""
    A, y = (
        np.asarray(objective.design.columns(lax.iota(jnp.int32, objective.shape[0]))),
        np.asarray(objective.target),
    )
    weights = np.asarray(objective.weight(jnp.ones(objective.num_samples)))
    scaled = A * np.sqrt(weights)
    return Quadratic(scaled @ scaled.T, A @ (weights * y), np.float64(y @ (weights * y) / 2))


def curvature_bound(G: Numbers, n: int) -> float:
    """A number below the least eigenvalue of ``G = c A' S A`` of n samples before it was rounded; 0
    if none is."""
    error = 4 * (n + len(G)) * np.finfo(float).eps * np.trace(G)
    return max(0.0, (1 - 1e-6) * (_least_eigenvalue(G) - error))


def _least_eigenvalue(G: Numbers) -> float:
    """The least eigenvalue of a symmetric matrix; of a large one a number below it, and seldom by
    more than 2 %."""
    if len(G) <= MAX_EIGEN:
        return float(np.linalg.eigvalsh(G)[0])
    from scipy import linalg  # here, since its import takes as long as that of jaxht

    try:
        factor = linalg.cho_factor(G, check_finite=False)
    except np.linalg.LinAlgError:
        return 0.0
    v = np.random.default_rng(0).standard_normal(len(G))
    for _ in range(INVERSE_STEPS):
        v = linalg.cho_solve(factor, v / np.linalg.norm(v), check_finite=False)
    estimate = float(v @ G @ v / (v @ v))  # from above: a factor proves what is below
    for share in (0.98, 0.9, 0.7, 0.3):
        try:
            np.linalg.cholesky(G - share * estimate * np.eye(len(G)))
        except np.linalg.LinAlgError:
            continue
        return share * estimate
    return 0.0


def _bounded(constraint: Any, shape: tuple[int, ...], big_m: float) -> Sparse:
    """A constraint with ``|x_j| <= big_m``."""
    if not isinstance(constraint, Sparse):
        raise ValueError(
            "objective must have a ridge, l2 > 0, under Groups: no bounds can be assumed there"
        )
    lower, upper = (-np.inf, np.inf) if constraint.bounds is None else constraint.bounds
    bounds = np.maximum(np.asarray(lower), -big_m), np.minimum(np.asarray(upper), big_m)
    whole = [jnp.asarray(np.broadcast_to(bound, shape)) for bound in bounds]
    return dataclasses.replace(constraint, bounds=(whole[0], whole[1]))
