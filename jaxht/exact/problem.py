"""The problem of a branch and bound on the columns that are left: its relaxation, and the batches
that solve it."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxht._dataclass import cast_numbers, replace
from jaxht._programs import bounded_jit
from jaxht._typing import Array, Leaf
from jaxht.constraints import Constraint
from jaxht.exact.pairs import as_pairs
from jaxht.exact.perspective import Node, has_perspective
from jaxht.exact.relaxation import (
    Goal,
    NodeStart,
    QuadraticForm,
    Relaxation,
    Relaxed,
    Ridge,
    bound_above,
    relax_nodes,
)
from jaxht.exact.result import Solution
from jaxht.exact.tree import Mask, Numbers, OpenNode, round_to_support, settle
from jaxht.linalg.inner_products import is_complex
from jaxht.objectives.dual import column_bound
from jaxht.objectives.linear_model import LinearModel
from jaxht.runner._padding import is_padding_enabled, pad_objective
from jaxht.runner._sizes import round_k_max


def in_double(objective: Any, constraint: Constraint) -> tuple[Any, Any]:
    """Both prepared, and the objective in double precision; ValueError for what has no relaxation.

    The numbers of its data are not rounded.
    """
    if not (objective.is_linear_model and objective.loss.has_conjugate):
        raise ValueError(
            f"objective must be a linear model of one output; got {type(objective).__name__}"
        )
    objective = cast_numbers(objective.prepare(), np.dtype(np.float64))
    if is_complex(objective) and objective.design.gathers(1):
        if objective.design.dense_array is None:
            objective = objective.restrict(jnp.arange(objective.shape[0]))
        objective, constraint = as_pairs(objective, constraint.prepare(objective.shape))
        objective = cast_numbers(objective, np.dtype(np.float64))
    if objective.dtype != np.float64 or not objective.design.gathers(1):
        raise ValueError(
            "A must be dense or sparse, with columns at hand; got "
            f"{type(objective.design).__name__}"
        )
    if len(objective.shape) != 1 or jnp.ndim(objective.penalty):
        raise ValueError(
            f"x must be a vector with a single l2; got shape {objective.shape} and l2 "
            f"{objective.l2!r}"
        )
    if not has_perspective(constraint):
        raise ValueError(f"constraint must be Sparse or Groups; got {type(constraint).__name__}")
    _check_finite(objective)
    constraint = constraint.prepare(objective.shape)
    if isinstance(constraint.k, jax.core.Tracer) or constraint.k_max is None:
        raise ValueError("k must be a Python int: the search runs on the host")
    return objective, constraint


def _check_finite(objective: Any) -> None:
    """Raise ValueError where numbers of the objective are not finite: no bound would hold."""
    if not all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(objective.design)):
        raise ValueError("A must be finite; got NaN or infinity among its entries")
    x = jnp.zeros(objective.shape, objective.dtype)
    value = float(objective.value(x, objective.predict(x)))
    if not np.isfinite(value):
        raise ValueError(
            f"f(0) must be finite; got {value}: look for NaN and infinity in y, the offset and the "
            "weights, or weights that are all 0"
        )


MAX_GRAM = 4096  # columns of which all products are computed
FEW_NODES = 16  # lanes of a small batch
FEW_COLUMNS = 1000  # above so many a single node has a program of its own
MAX_NODE_ROUNDS = 50  # of a relaxation
NODE_RTOL = 0.05  # of a relaxation


@dataclasses.dataclass(frozen=True)
class ReducedProblem:
    """A sparse problem on some of its columns, with the ridge of its relaxation."""

    # Of the objective and the constraint on these columns, with further samples and columns.
    relaxation: Relaxation
    constraint: Any  # on these columns, with the bounds that are assumed
    limit: int  # k
    columns: np.ndarray  # int64, their numbers in the whole problem
    big_m: float | None  # the bound of |x_j| that is assumed; None

    @classmethod
    def on(
        cls,
        objective: Any,
        constraint: Any,
        columns: np.ndarray,
        big_m: float | None,
        best: Solution,
        gap_rtol: float,
    ) -> "ReducedProblem":
        """The problem on some columns of a prepared one.

        A ``big_m`` of None is assumed only where there is no ridge, from the ``best`` point. There
        bounds may lose a tenth of ``gap_rtol``.
        """
        n = objective.num_samples
        d = len(columns)
        l2 = float(objective.penalty)
        limit = int(constraint.limit)
        slack = 0.1 * gap_rtol * abs(best.value)
        if d < objective.shape[0]:
            indices = jnp.asarray(columns)
            objective = objective.restrict(indices)
            constraint = constraint.restrict(indices)
        gram = None
        borrowed = added = excess = 0.0
        if objective.is_least_squares and d <= min(2 * n, MAX_GRAM):
            gram = _gram(objective)
            borrowed = curvature_bound(gram.H, n) if n >= d else 0.0
        has_ridge = l2 + borrowed > 0
        if big_m is None and not has_ridge:
            big_m = 1.5 * float(np.max(np.abs(best.x), initial=0.0))
        if big_m is not None and has_ridge and not constraint.selects_entries:
            raise ValueError(
                "big_m must be None under Groups, and for complex numbers, whose parts are groups: "
                f"no bounds are kept there; got {big_m}"
            )
        if big_m is not None:
            constraint = _bounded(constraint, objective.shape, big_m)
        if not has_ridge:
            squares = np.maximum(*(np.asarray(bound) ** 2 for bound in constraint.bounds))
            added = 2 * slack / max(float(np.sort(squares)[::-1][:limit].sum()), 1e-300)
            excess = slack * (1 + 1e-12) if added else 0.0
        numbers = (l2 + borrowed + added, borrowed, added, excess)
        ridge = Ridge(*map(np.float64, numbers))
        if gram is not None and borrowed > 0:
            gram = gram._replace(H=gram.H - borrowed * np.eye(d))
        padded, padded_constraint = _pad(objective, constraint)
        if gram is not None:
            gram = gram.pad(padded.shape[0] - d)
        relaxation = Relaxation.of(
            padded, padded_constraint, ridge, _column_bound(padded), best.value, gram
        )
        return cls(relaxation, constraint, limit, columns, big_m)

    @property
    def names(self) -> np.ndarray:
        """The items' numbers in the whole problem."""
        if self.constraint.selects_entries:
            return self.columns
        return np.arange(self.constraint.num_groups)

    def root(self, x: Numbers) -> OpenNode:
        """The node of all supports; x is where the descent starts."""
        always = np.asarray(self.constraint.always_active)
        included = np.broadcast_to(always, self.names.shape).copy()
        included, excluded = settle(included, np.zeros_like(included), self.limit)
        step_size = float(self.relaxation.step_size)
        return OpenNode(
            included=included,
            excluded=excluded,
            lower=-np.inf,
            x=x,
            step_size=step_size,
            items=np.array([], np.int64),
        )

    def sizes(self, x: Numbers) -> Numbers:
        """The norm of x on each item."""
        if self.constraint.selects_entries:
            return np.abs(x)
        groups = np.asarray(self.constraint.groups)
        return np.sqrt(np.bincount(groups, x**2, len(self.names)))

    def expand(self, x: Numbers, d: int) -> Numbers:
        """x on all columns."""
        whole = np.zeros(d)
        whole[self.columns] = x
        return whole

    def relax(self, nodes: list[OpenNode], target: float, batch: int) -> tuple[Relaxed, Mask]:
        """Solve the relaxations of nodes, stacked, and return the items of the supports that they
        are rounded to."""
        num_nodes = len(nodes)
        size = FEW_NODES if num_nodes <= FEW_NODES else batch
        if num_nodes == 1 and len(self.columns) > FEW_COLUMNS:
            size = 1
        starts = [self._start(node) for node in nodes]
        goal = Goal(target, NODE_RTOL, MAX_NODE_ROUNDS)
        found = []
        for first in range(0, num_nodes, size):
            lanes = np.minimum(np.arange(first, first + size), num_nodes - 1)
            stacked = jax.tree.map(
                lambda *leaves: np.stack(leaves), *(starts[lane] for lane in lanes)
            )
            results = relax_nodes(self.relaxation, goal, stacked)
            results = jax.tree.map(np.asarray, results)
            found.append(results.crop(len(self.names), len(self.columns)))
        relaxed = jax.tree.map(lambda *leaves: np.concatenate(leaves)[:num_nodes], *found)
        return relaxed, np.stack([start.chosen[: len(self.names)] for start in starts])

    def _start(self, node: OpenNode) -> NodeStart:
        """The point where the descent at a node starts; items and columns that were added are in no
        support."""
        chosen = round_to_support(node, self.sizes(node.x), self.limit)
        constraint = self.relaxation.constraint
        (num_columns,) = self.relaxation.objective.shape
        num_items: Any = constraint.num_items((num_columns,))
        items = (0, num_items - len(chosen))
        columns = (0, num_columns - len(node.x))
        return NodeStart(
            node=Node(
                np.pad(node.included, items), np.pad(node.excluded, items, constant_values=True)
            ),
            chosen=np.pad(chosen, items),
            x=np.pad(node.x, columns),
            step_size=node.step_size,
        )


def _pad(objective: Any, constraint: Any) -> tuple[Any, Any]:
    """Both for further samples of weight 0 and columns of zeros, so that other problems have the
    same programs."""
    if not is_padding_enabled():
        return objective, constraint
    padded = pad_objective(objective, is_cheap=False)
    if padded is None:
        return objective, constraint
    shape = objective.shape
    padded_constraint = constraint.pad(shape, padded.shape[0] - shape[0])
    return replace(padded, l2=objective.l2), round_k_max(padded_constraint, padded.shape)


_column_bound = bounded_jit(column_bound)


class FeasiblePoint(NamedTuple):
    """A feasible x and its active items, f(x) plus a bound of its rounding error, and the gradient
    there."""

    x: Leaf
    active: Leaf
    value: Leaf
    gradient: Leaf


def project_and_evaluate(objective: LinearModel, constraint: Any, x: Array) -> FeasiblePoint:
    """The projection of x, on the host: feasible, or its value would be no upper bound."""
    (d,) = objective.shape
    padded, padded_constraint = _pad(objective, constraint)
    padded_x = np.pad(np.asarray(x), (0, padded.shape[0] - d))
    found = jax.tree.map(np.asarray, _evaluate_projection(padded, padded_constraint, padded_x))
    return FeasiblePoint(
        x=found.x[:d],
        active=found.active[: constraint.num_items((d,))],
        value=found.value,
        gradient=found.gradient[:d],
    )


@bounded_jit
def _evaluate_projection(objective: LinearModel, constraint: Any, x: Array) -> FeasiblePoint:
    x, _ = constraint.project(jnp.asarray(x, objective.dtype))
    pred = objective.predict(x)
    value = bound_above(objective, x, pred, column_bound(objective))
    return FeasiblePoint(
        x=x,
        active=constraint.active(x),
        value=value,
        gradient=objective.gradient(x, pred),
    )


def _gram(objective: Any) -> QuadraticForm:
    """Squared errors without a ridge, ``H = c A' S A``; the host takes half the time for it."""
    A = np.asarray(objective.design.columns(lax.iota(jnp.int32, objective.shape[0])))
    y = np.asarray(objective.target)
    weights = np.asarray(objective.weight(jnp.ones(objective.num_samples)))
    scaled = A * np.sqrt(weights)
    return QuadraticForm(scaled @ scaled.T, A @ (weights * y), np.float64(y @ (weights * y) / 2))


def curvature_bound(G: Numbers, n: int) -> float:
    """A number below the least eigenvalue of ``G = c A' S A``, of n samples, before rounding; or
    0."""
    error = 4 * (n + len(G)) * np.finfo(float).eps * np.trace(G)
    return max(0.0, (1 - 1e-6) * (_least_eigenvalue(G) - error))


MAX_EIGEN = 1000  # columns of which the least eigenvalue is computed, not only bounded
INVERSE_STEPS = 50  # of inverse iteration, to bound it


def _least_eigenvalue(G: Numbers) -> float:
    """The least eigenvalue of a symmetric matrix; of a large one a lower bound, to about 2 %."""
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


def _bounded(constraint: Any, shape: tuple[int, ...], big_m: float) -> Any:
    """A constraint with ``|x_j| <= big_m``."""
    if not constraint.selects_entries:
        raise ValueError(
            "objective must have a ridge, l2 > 0, under Groups: no bounds can be assumed there"
        )
    lower, upper = (-np.inf, np.inf) if constraint.bounds is None else constraint.bounds
    lower = np.broadcast_to(np.maximum(lower, -big_m), shape)
    upper = np.broadcast_to(np.minimum(upper, big_m), shape)
    return dataclasses.replace(constraint, bounds=(jnp.asarray(lower), jnp.asarray(upper)))
