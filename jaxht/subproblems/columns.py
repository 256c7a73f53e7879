"""Linear models of one output: refits on gathered columns, by Newton steps with a factorised
Hessian."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxht._dataclass import pytree
from jaxht._loops import fori_loop
from jaxht._typing import Array, Numeric
from jaxht.designs import Dense
from jaxht.linalg.linear_solvers import cholesky_solver
from jaxht.linalg.selection import gather
from jaxht.linalg.symmetric_products import symmetric_product
from jaxht.objectives.linear_model import LinearModel
from jaxht.subproblems.by_products import Subproblem
from jaxht.subproblems.coordinate_functions import Region
from jaxht.subproblems.linear_models import least_gamma, smooth_hinge
from jaxht.subproblems.quadratic_model import MAX_FORMED_ENTRIES
from jaxht.subproblems.refits import Refit, RefitStatus
from jaxht.subproblems.restricted_problem import RestrictedProblem
from jaxht.subproblems.stationary_points import Regularity

# Columns from which a system takes much longer than values of f.
MIN_SEARCHED_COLUMNS = 128


class LinearProblem(Subproblem):
    """A linear model, of several outputs."""

    @property
    def is_quadratic(self) -> bool:
        """Whether errors are squared, and coordinates without bounds."""
        shape = self.objective.shape
        is_formed = len(shape) == 1 or math.prod(shape) <= MAX_FORMED_ENTRIES
        return self.objective.is_least_squares and is_formed and self.is_free

    @property
    def empty_items(self) -> Array:
        """The columns of zeros, where items are coordinates of a vector."""
        f = self.objective
        if not self.space.selects_entries or len(f.shape) != 1:
            return super().empty_items
        return f.design.squared(jnp.ones(f.num_samples, f.real_dtype)) == 0

    @property
    def is_smooth(self) -> bool:
        """Whether the loss is smooth."""
        return self.objective.loss.is_smooth

    @property
    def is_searchable(self) -> bool:
        """Whether columns are cheap as well."""
        return super().is_searchable and self.objective.design.has_cheap_columns


class ColumnProblem(LinearProblem):
    """A linear model of one output, on gathered columns where the design has them at hand."""

    @property
    def is_expandable(self) -> bool:
        """Whether losses are smooth and separable, and columns gathered."""
        is_separable = self.objective.loss.is_separable
        return is_separable and self.is_smooth and self.is_free and self._gathers

    @property
    def has_cheap_rows(self) -> bool:
        """Whether columns are gathered, or coordinates few."""
        return super().has_cheap_rows or (self.space.selects_entries and self._gathers)

    @property
    def _gathers(self) -> bool:
        f = self.objective
        return len(f.shape) == 1 and f.design.gathers(self.space.k_max)

    def restrict(self, support: Any, x: Array, ridge: Array | None = None) -> RestrictedProblem:
        """Cost of a system: n k_max^2 + k_max^3 / 3 on gathered columns."""
        f = self.objective
        if not f.design.gathers(support.k_max):
            return super().restrict(support, x, ridge)
        indices = support.require_indices()
        penalty = jnp.broadcast_to(f.penalty, f.shape)
        penalty = support.gather(penalty if ridge is None else penalty + ridge, indices)
        gathered = dataclasses.replace(f, A=Dense(f.design.columns(indices).T), l2=penalty)
        return RestrictedProblem(
            f=GatheredModel(gathered),
            w=support.gather(x, indices),
            region=Region(indices < math.prod(f.shape), support.gather_bounds(indices)),
            point=lambda w: support.scatter(w, indices),
        )

    def _item_images(self, items: Array, x: Array, without: Callable[[Array], Array]) -> Array:
        if not self.space.selects_entries:
            return super()._item_images(items, x, without)
        coefficients = gather(x.ravel(), items)
        return coefficients[:, None] * self.objective.design.columns(items)


@dataclasses.dataclass(frozen=True)
class HingeProblem(ColumnProblem):
    """A hinge objective, minimised by smoothed hinges of gamma = 1, 1/10, ..., each started at the
    solution before.

    The smoothed hinge is below the hinge by gamma/2 at most, so the last gamma, the square root of
    machine epsilon, bounds the error of f(x): 2e-8 c n in float64, 4e-4 c n in float32.

    Attributes:
        last: the subproblem of the last smoothed hinge.
    """

    last: Subproblem

    def refit(self, support: Any, x: Array, ridge: Array | None = None) -> Refit:
        """Minimise the smoothed hinges one after the other."""
        f = self.objective
        last = least_gamma(f)
        powers = [10.0**-i for i in range(math.ceil(-math.log10(last)))]
        gammas = jnp.asarray([*powers, last], f.dtype)

        def stage(i, found):
            smoothed = dataclasses.replace(self.last, objective=smooth_hinge(f, gammas[i]))
            return smoothed.refit(support, found.x, ridge)

        start = Refit(x, f.predict(x), RefitStatus.of(False))
        return fori_loop(0, gammas.size, stage, start)

    def differentiate(self, support: Any, x: Any) -> Any:
        """Differentiate a minimiser of the last smoothed hinge."""
        return self.last.differentiate(support, x)

    def regularity(self, support: Any, x: Any) -> Regularity:
        """The regularity of the last smoothed hinge."""
        return self.last.regularity(support, x)


@pytree
class GatheredModel:
    """A linear model on gathered columns as a
    :class:`jaxht.subproblems.coordinate_functions.CoordinateFunction`, with its Hessian as a matrix."""

    model: LinearModel

    def is_coercive(self, inside: Array) -> Any:
        """Whether the loss is, or each coordinate has a ridge."""
        if self.model.loss.is_coercive:
            return True
        return jnp.all(jnp.where(inside, self.model.penalty > 0, True))

    @property
    def is_positive(self) -> bool:
        """Whether the loss is."""
        return self.model.loss.is_positive

    @property
    def has_cheap_values(self) -> bool:
        """Whether columns are many."""
        return self.model.shape[0] >= MIN_SEARCHED_COLUMNS

    def predict(self, w: Array) -> Array:
        """``B w``, B the columns."""
        return self.model.predict(w)

    def value(self, w: Array, pred: Array) -> Array:
        """The value at w."""
        return self.model.value(w, pred)

    def gradient(self, w: Array, pred: Array) -> Array:
        """The gradient; 0 in the padding, whose columns are 0."""
        return self.model.gradient(w, pred)

    def solver(
        self, w: Array, pred: Array, free: Array, tau: Numeric, rtol: float | None
    ) -> Callable[[Array], Array]:
        """Solve by a Cholesky factor. Cost: n k^2 + k^3 / 3; k products of a loss that couples the
        samples. On CPUs a large k is, in n k^2, that up to the last free coordinate."""
        model = self.model
        columns = jnp.where(free[:, None], model.design.array.T, 0)
        u = model.linear_predictor(pred)
        bound = tau * model.damping(u)

        def curve(image):
            return model.weight(model.loss.hessian_product(u, model.y, image) + bound * image)

        if model.loss.is_separable:
            curved = columns * curve(jnp.ones_like(pred))[None]
        else:
            curved = jax.vmap(curve)(columns)
        return cholesky_solver(symmetric_product(curved, columns, free), model.penalty)

    def curvatures(self) -> Array:
        """The curvatures for a loss of curvature 1."""
        return jnp.sum(self.model.design.array**2, axis=0)
