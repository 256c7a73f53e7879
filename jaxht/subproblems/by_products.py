"""Subproblems of any objective, by products alone: for sparse and matrix-free designs, matrices,
and any function."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxht._dataclass import pytree
from jaxht._typing import Array, Numeric
from jaxht.constraints.model_subspace import ModelSubspace
from jaxht.constraints.support import Support
from jaxht.linalg.inner_products import check_real, is_complex, real_dtype, real_vdot
from jaxht.linalg.linear_solvers import conjugate_gradients
from jaxht.linalg.normal_equations import ratio
from jaxht.linalg.selection import gather, mask_to_indices
from jaxht.objectives.objective import Objective
from jaxht.subproblems.coordinate_functions import INEXACT, MAX_SYSTEM_PRODUCTS, Region
from jaxht.subproblems.quadratic_model import MAX_FORMED_ENTRIES
from jaxht.subproblems.refits import Refit
from jaxht.subproblems.restricted_problem import MIN_SERIAL_ENTRIES, RestrictedProblem
from jaxht.subproblems.stationary_points import Regularity
from jaxht.subproblems.swaps import ExchangeScores, SupportMinimum

# Refits, and values of f, that are computed at a time.
REFITS_AT_A_TIME = 64
VALUES_AT_A_TIME = 16


@dataclasses.dataclass(frozen=True)
class Subproblem:
    """An objective on the supports of a constraint: refits, derivatives and scores of moves.

    :func:`jaxht.subproblems.subproblem` returns one. This class serves any objective, by products
    with the Hessian and a refit for each candidate; its subclasses know faster ways.

    Attributes:
        objective: prepared.
        space: the problem's constraint, prepared; or a support, where only it is asked for.
    """

    objective: Any
    space: Any

    @property
    def is_free(self) -> bool:
        """Whether items are coordinates without bounds."""
        return self.space.selects_entries and self.space.bounds is None

    @property
    def is_quadratic(self) -> bool:
        """Whether the least f after any exchange of items is known in closed form."""
        return False

    @property
    def is_expandable(self) -> bool:
        """Whether the second-order expansion of f at a point is least squares on few columns, and
        coordinates have no bounds."""
        return False

    @property
    def is_smooth(self) -> bool:
        """Whether f has a gradient everywhere."""
        return True

    @property
    def has_cheap_rows(self) -> bool:
        """Whether items are coordinates, and k_max rows of the Hessian and its diagonal cheap."""
        f = self.objective
        if is_complex(f) and not f.is_linear_model:  # the Hessian acts on pairs
            return False
        is_formed = math.prod(f.shape) <= MAX_FORMED_ENTRIES
        return self.space.selects_entries and is_formed

    @property
    def has_gains(self) -> bool:
        """Whether :meth:`forward_scores` are known in closed form."""
        return False

    @property
    def is_searchable(self) -> bool:
        """Whether refits are cheap enough for a search that takes one for each exchange."""
        return self.space.coordinatewise and not self.space.is_graph

    @property
    def empty_items(self) -> Array:
        """The items that no prediction depends on, as far as that is known: bool, shaped like
        items."""
        zero = jnp.zeros(self.objective.shape, self.objective.dtype)
        shape = jax.eval_shape(self.space.scores, zero).shape
        return jnp.zeros(shape, bool)

    # ---- on one support ----

    def restrict(
        self, support: ModelSubspace, x: Array, ridge: Array | None = None
    ) -> RestrictedProblem:
        """The objective in coordinates of a support, at x; with a further ridge, shaped like x."""
        dtype = real_dtype(x)
        ridge = jnp.zeros((), dtype) if ridge is None else ridge
        entries = lax.stop_gradient(self.objective.majorant().preconditioner() + ridge)
        entries = jnp.broadcast_to(entries, x.shape).astype(dtype)
        f = FunctionOfCoordinates(self.objective, support, ridge, support.diagonal(entries))
        w = support.coordinates(x)
        return RestrictedProblem(f, w, Region(support.inside, support.bounds), support.point)

    def refit(self, support: ModelSubspace, x: Array, ridge: Array | None = None) -> Refit:
        """Minimise the objective on a support: see :func:`jaxht.subproblems.refit`."""
        return self.restrict(support, x, ridge).minimise()

    @property
    def is_approached(self) -> bool:
        """Whether :meth:`approach` takes less than :meth:`refit`."""
        return False

    def approach(self, support: ModelSubspace, x: Array, enough: Numeric | None = None) -> Refit:
        """A point of a support that is near enough to the minimiser for a solver to look for the
        next support; the minimiser itself unless ``is_approached``.

        Args:
            support: the support.
            x: where refits start, shaped like the variable.
            enough: that of :meth:`jaxht.subproblems.restricted_problem.RestrictedProblem.minimise`; None: for a
                search for supports.
        """
        return self.refit(support, x)

    def differentiate(self, support: ModelSubspace, x: Any) -> Any:
        r"""x as it is, with the derivatives of the minimiser on a support, by the implicit function
        theorem.

        With S the coordinates of the support that are free, those at a bound left out,

        .. math::
            H_{SS}\, \dot x_S = -\dot{(\nabla f)}_S

        in forward and reverse mode, any number of times. On matrices of low rank S is the tangent
        space of the matrices of this rank, on which H has a term of their curvature. The
        derivatives are NaN where x is not stationary on S and where H is singular there, see
        :meth:`regularity`; those of factors are those of the singular value decomposition.

        Args:
            support: of x, with or without bounds.
            x: shaped like the variable.

        Cost: a system with the Hessian; on gathered columns n k_max^2 + k_max^3 / 3, else products.

        Source: Krantz & Parks 2013; on matrices of a fixed rank Vandereycken 2013, §2.3.
        """
        check_real(self.objective)
        return self.restrict(support, x).differentiate()

    def regularity(self, support: ModelSubspace, x: Any) -> Regularity:
        """Whether the derivatives of :meth:`differentiate` are numbers, and not those of one side.

        Args:
            support: of x, with or without bounds.
            x: shaped like the variable; of factors no two singular values may coincide.

        Cost: five systems with the Hessian.
        """
        return self.restrict(support, x).regularity()

    # ---- on selections of items of a constraint ----

    def forward_scores(self, selected: Array, x: Array) -> Array:
        """Score each item by how much the minimum of f on the selected items decreases if it is
        added, up to a constant.

        Args:
            selected: bool, the selected items.
            x: where refits start, shaped like the variable.

        Returns:
            Shaped like ``selected``, in units of f; values of selected items have no meaning.

        Cost: for least squares on vectors under :class:`jaxht.Sparse` without bounds n d k_max + 4
        n k_max^2 for all items; else a refit for each: see :meth:`map_refits`.

        Source: for least squares the gain of a column orthogonal to the others, as in Axiotis &
        Sviridenko 2020, Algorithm 4.

        Example:
            >>> import jax.numpy as jnp, jaxht
            >>> from jaxht.subproblems import subproblem
            >>> f = jaxht.LeastSquares(jnp.eye(3), jnp.array([1.0, 4.0, 2.0]), mean=False)
            >>> problem = subproblem(f, jaxht.Sparse(2).prepare((3,)))
            >>> problem.forward_scores(jnp.array([False, True, False]), jnp.zeros(3)).tolist()
            [0.5, 0.0, 2.0]
        """
        start = self.space.support(selected).restrict(x)
        index = lax.iota(jnp.int32, selected.size).reshape(selected.shape)

        def score(i):
            found = self.refit(self.space.support(selected | (index == i)), start)
            return -self.objective.value(found.x, found.pred)

        scores = self.map_refits(score, batch_size=REFITS_AT_A_TIME)(index.ravel())
        return scores.reshape(selected.shape)

    def exchange_scores(self, slots: Array, x: Array, pred: Array) -> ExchangeScores:
        """Score the exchanges of items by a quadratic model of f at x, its minimiser on the
        selection.

        The model is that of :meth:`jaxht.subproblems.swaps.SupportMinimum.at` where rows of the
        Hessian are cheap, else the separable one of :meth:`separable_scores`.

        Args:
            slots: int32 (k_max,), the selected items, padded with their number.
            x: shaped like the variable.
            pred: the prediction of x.
        """
        if not self.has_cheap_rows:
            gains = self.separable_scores(x, pred)
            losses = self.space.scores(self._root_curvatures(x, pred) * x) ** 2 / 2
            losses = gather(losses.ravel(), slots)
            return ExchangeScores(gains, losses, gains.ravel() - losses[:, None])
        minimum = SupportMinimum.at(self.objective, slots, x, pred)

        def feasible(directions):
            shaped = directions.reshape(-1, *x.shape)
            return self.space.feasible_direction(shaped).reshape(directions.shape)

        gains = minimum.insertion_gains(feasible)
        return ExchangeScores(gains, minimum.removal_losses(), minimum.swap_gains(feasible))

    def separable_scores(self, x: Array, pred: Array) -> Array:
        r"""Score the items that may join by how much a separable model of f at x decreases.

        .. math::
            \langle \nabla f(x), z - x \rangle + \tfrac12 \sum_i D_i (z_i - x_i)^2

        D is the diagonal of the Hessian of separable losses, else of an upper bound of the Hessian,
        as far as it is known, else 1. The scores are shaped like items.
        """
        descent = self.space.feasible_direction(-self.objective.gradient(x, pred))
        root = jnp.broadcast_to(self._root_curvatures(x, pred), x.shape)
        return self.space.scores(ratio(descent, root)) ** 2 / 2

    def growth(self, selected: Array, *, scored: bool = False) -> "Growth":
        """Begin refits on a selection that grows by one item at a time; a pytree.

        Args:
            selected: bool, the selected items.
            scored: static; whether :meth:`Growth.scores` will be asked for.
        """
        return Growth()

    def values_without(self, selected: Array, x: Array, pred: Array) -> Array:
        """f(x) with each selected item set to 0 and the others unchanged; infinity for items that
        are not selected.

        Cost: for linear models of one output under :class:`jaxht.Sparse` n k_max; for a precision
        matrix under :class:`jaxht.Edges` p^3; else k_max predictions.
        """
        k_max = selected.size if self.space.k_max is None else self.space.k_max
        items = mask_to_indices(selected.ravel(), k_max)
        index = lax.iota(jnp.int32, selected.size).reshape(selected.shape)

        def without(i):
            return self.space.support(selected & (index != i)).restrict(x)

        def value(pair):
            i, image = pair
            return self.objective.value(without(i), pred - image)

        images = self._item_images(items, x, without)
        values = lax.map(value, (items, images), batch_size=VALUES_AT_A_TIME)
        everywhere = jnp.full(selected.size, jnp.inf, real_dtype(x))
        return everywhere.at[items].set(values, mode="drop").reshape(selected.shape)

    def map_refits(self, f: Callable[..., Any], *, batch_size: int) -> Callable[..., Any]:
        """A function that calls f, which refits, for every place along the first axis of its
        arguments.

        On a CPU calls whose columns together exceed its caches come one after the other. Under a
        vmap only the Newton steps do; here also their columns are gathered for one call at a time
        (measured, 408 refits on 10 000 x 10: 3.5 MB instead of 110), and ``lax.cond`` leaves out
        the branch that is not taken.

        Args:
            f: a pure function of pytrees of arrays.
            batch_size: how many are computed side by side elsewhere, and where columns are short.
        """

        def in_batches(*args):
            if batch_size >= len(jax.tree.leaves(args)[0]):
                return jax.vmap(f)(*args)
            return lax.map(lambda each: f(*each), args, batch_size=batch_size)

        def in_turn(*args):
            return lax.map(lambda each: f(*each), args)

        variable = jax.ShapeDtypeStruct(self.objective.shape, self.objective.dtype)
        pred = jax.eval_shape(self.objective.predict, variable)
        k_max = math.prod(variable.shape) if self.space.k_max is None else self.space.k_max
        if pred.size * k_max < MIN_SERIAL_ENTRIES:
            return in_batches
        return functools.partial(lax.platform_dependent, cpu=in_turn, default=in_batches)

    def _root_curvatures(self, x: Array, pred: Array) -> Array:
        """The square roots of D in :meth:`separable_scores`."""
        f = self.objective
        bound = f.majorant().preconditioner()
        if not (f.is_linear_model and f.loss.is_separable):
            return jnp.sqrt(bound)
        curvature = f.hessian(x, pred).preconditioner()
        return jnp.sqrt(jnp.where(curvature > 0, curvature, bound))  # of a hinge it is 0

    def _item_images(self, items: Array, x: Array, without: Callable[[Array], Array]) -> Array:
        """The part of each item in the prediction of x."""
        return lax.map(
            lambda i: self.objective.predict(x - without(i)), items, batch_size=VALUES_AT_A_TIME
        )


@pytree
class Growth:
    """Refits on a selection that grows by one item at a time, each from scratch.

    :class:`jaxht.subproblems.growing_qr.GrowingQR` updates a factorisation instead. A solver
    carries it in its state, and asks :meth:`Subproblem.growth` for the first.
    """

    def refit(self, problem: Any, support: Support, x: Array) -> tuple[Refit, "Growth"]:
        """Refit on a support with at most one more item, starting from x."""
        return problem.refit(support, x), self

    def derivative_scores(self, problem: Any, selected: Array, x: Array, pred: Array) -> Array:
        """The sizes of the derivatives of f along the items, at the last refit."""
        gradient = problem.objective.gradient(x, pred)
        descent = problem.space.feasible_direction(-gradient)
        return problem.space.scores(descent)

    def scores(
        self, problem: Any, selected: Array, x: Array, pred: Array
    ) -> tuple[Array, "Growth"]:
        """Score the items as :meth:`Subproblem.forward_scores`, at the minimiser x on those
        selected."""
        return problem.forward_scores(selected, x), self


@pytree
class FunctionOfCoordinates:
    """An objective with a ridge as a :class:`jaxht.subproblems.coordinate_functions.CoordinateFunction` of a
    model subspace."""

    objective: Objective
    support: ModelSubspace
    ridge: Array
    diagonal: Array

    def is_coercive(self, inside: Array) -> Any:
        """Whether the loss of a linear model is, or each coordinate has a ridge."""
        f: Any = self.objective
        if not f.is_linear_model:
            return False
        if f.loss.is_coercive:
            return True
        penalty = jnp.broadcast_to(f.penalty + self.ridge, f.shape)
        unridged = self.support.diagonal(jnp.where(penalty > 0, 0, 1).astype(penalty.dtype))
        return jnp.all(jnp.where(inside, unridged == 0, True))

    @property
    def is_positive(self) -> bool:
        """Whether the loss of a linear model is."""
        f: Any = self.objective
        return f.is_linear_model and f.loss.is_positive

    has_cheap_values = False

    def predict(self, w: Array) -> Array:
        """The prediction of the objective."""
        return self.objective.predict(self.support.point(w))

    def value(self, w: Array, pred: Array) -> Array:
        """f plus the ridge."""
        x = self.support.point(w)
        return self.objective.value(x, pred) + real_vdot(x, self.ridge * x) / 2

    def gradient(self, w: Array, pred: Array) -> Array:
        """The gradient in coordinates."""
        x = self.support.point(w)
        return self.support.coordinates(self.objective.gradient(x, pred) + self.ridge * x)

    def solver(
        self, w: Array, pred: Array, free: Array, tau: Numeric, rtol: float | None
    ) -> Callable[[Array], Array]:
        """Conjugate gradients on the free coordinates; the identity on the others."""
        hessian = self.objective.hessian(self.support.point(w), pred, tau)
        diagonal = jnp.where(free & (self.diagonal > 0), self.diagonal, 1)

        def product(v):
            x = self.support.point(jnp.where(free, v, 0))
            return jnp.where(free, self.support.coordinates(hessian(x) + self.ridge * x), v)

        rtol = INEXACT if rtol is None else rtol
        return lambda g: conjugate_gradients(
            product, g, rtol, MAX_SYSTEM_PRODUCTS, lambda r: r / diagonal
        )

    def curvatures(self) -> Array:
        """The diagonal that systems are preconditioned with."""
        return self.diagonal
