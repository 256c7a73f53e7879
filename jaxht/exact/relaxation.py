r"""Convex relaxations of sparse problems, where some items are fixed: bounds at the nodes of branch
and bound.

A node fixes items that are in every support below it, S1, and items that are in none, S0. With
``f(x) = R(x) + rho/2 ||x||^2``, R convex, the perspective relaxation there is

.. math::
    \min_{x,\, z}\ R(x) + \frac{\rho}{2} \sum_g \frac{\|x_g\|^2}{z_g}, \qquad
    \sum_g z_g \le k, \quad 0 \le z \le 1, \quad z_{S_1} = 1, \quad z_{S_0} = 0, \quad
    l z \le x \le u z

For S0 and S1 empty its minimum is the maximum of the dual of :mod:`jaxht.objectives.dual`: the
conjugate of the second term at q is ``1/(2 rho)`` times the sum of the k largest ``||q_g||^2``. So
any x gives dual variables, and these a bound on f over all supports below the node, which holds in
floating-point numbers.

R is what f has beside its ridge, less what can be borrowed from the loss: ``1/2 ||A x - y||^2``
stays convex without ``mu/2 ||x||^2`` for mu up to the least eigenvalue of ``A' A``. Where neither
gives a ridge, a small one is added, and its largest value within the bounds of x subtracted from
the bound.

Source: Pilanci, Wainwright & El Ghaoui 2015; Bertsimas & Van Parys 2020; Atamtürk & Gómez 2020
(fixing of items); Beck & Teboulle 2009 and O'Donoghue & Candès 2015 (the descent).
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from optax.tree_utils import tree_where

from jaxht._loops import fori_loop, while_loop
from jaxht._programs import bounded_jit
from jaxht._typing import Array, Leaf, Numeric
from jaxht.constraints import SelectionConstraint, Support
from jaxht.exact.perspective import Node, perspective_prox, spread
from jaxht.linalg.full_precision import machine_eps, matmul
from jaxht.objectives.dual import dual_point, dual_variables, primal_error
from jaxht.objectives.linear_model import LinearModel
from jaxht.solvers.pursuit import NesterovPoint
from jaxht.subproblems import refit
from jaxht.subproblems.linear_models import least_gamma, smooth_hinge

# Of f, by which about the relaxation of a smoothed hinge is below that of the hinge, or less.
SMOOTHING = 0.03


class Ridge(NamedTuple):
    """The ridge of the relaxation, ``rho = l2 + borrowed + added``."""

    rho: Leaf  # > 0, a scalar, on the scale of the Hessian
    borrowed: Leaf  # mu, a scalar: by so much the curvature of the loss exceeds 0 everywhere
    # A scalar: f has no ridge, and is bounded as f + added/2 ||x||^2 less the maximum of that.
    added: Leaf
    excess: Leaf  # that maximum, a scalar in units of f


class QuadraticForm(NamedTuple):
    """``R(x) = x' H x / 2 - b' x + c``, of squared errors, where that takes fewer operations than
    A."""

    H: Leaf  # (d, d), symmetric
    b: Leaf  # (d,)
    c: Leaf  # a scalar

    def pad(self, num_added: int) -> "QuadraticForm":
        """With further coordinates, on which it does not depend; on the host."""
        added = (0, num_added)
        return QuadraticForm(np.pad(self.H, (added, added)), np.pad(self.b, added), self.c)


class Relaxation(NamedTuple):
    """What the relaxations at all nodes of a problem share."""

    objective: LinearModel  # a linear model of one output, prepared
    constraint: SelectionConstraint  # Sparse or Groups, prepared
    ridge: Ridge
    columns: Leaf  # a bound of the norms of the columns of A
    # Of the smoothed hinge that is descended in place of a hinge; None for losses that are smooth.
    gamma: Leaf | None = None
    # R, where its gradients are to be computed from it; None.
    quadratic: QuadraticForm | None = None

    @classmethod
    def of(
        cls,
        objective: LinearModel,
        constraint: SelectionConstraint,
        ridge: Ridge,
        columns: Array,
        value: Numeric,
        quadratic: QuadraticForm | None = None,
    ) -> "Relaxation":
        """Make the relaxation, also of the hinge, which is smoothed in proportion to a ``value`` of
        f."""
        gamma = None
        if not objective.loss.is_smooth:
            mass = jnp.sum(objective.weight(jnp.ones(objective.num_samples, objective.dtype)))
            gamma = jnp.maximum(SMOOTHING * value / mass, least_gamma(objective))
        return cls(objective, constraint, ridge, columns, gamma, quadratic)

    @property
    def smooth(self) -> LinearModel:
        """The objective that is descended."""
        return self.objective if self.gamma is None else smooth_hinge(self.objective, self.gamma)

    @property
    def nearly_smooth(self) -> LinearModel:
        """The objective that a refit minimises."""
        if self.gamma is None:
            return self.objective
        return smooth_hinge(self.objective, least_gamma(self.objective))

    @property
    def step_size(self) -> Array:
        """The inverse of a bound of the curvature; 1 where that tells nothing."""
        f = self.smooth
        largest_weight = jnp.max(f.weight(jnp.ones(f.num_samples, f.dtype)))
        A = f.design
        columns = jnp.max(A.column_norms()) if A.has_column_norms else self.columns
        curvature = columns**2 * f.curvature_bound() * largest_weight
        is_known = (curvature > 0) & (curvature < jnp.inf)
        return jnp.where(is_known, 1 / curvature, 1)


class NodeStart(NamedTuple):
    """The point where the descent at a node starts."""

    node: Node  # the items that are fixed
    chosen: Leaf  # bool (m,), the items of one support below the node, on which f is minimised
    x: Leaf  # (d,)
    step_size: Leaf  # of the first step, a scalar; too large ones are halved


class Goal(NamedTuple):
    """How far relaxations are solved."""

    target: Leaf  # bounds above it need not be improved
    # Bounds that can rise by no more than this share of what they lack of the target, neither.
    rtol: Leaf
    # Of ten steps and a bound, an integer; the first round is that of chosen, without steps.
    max_rounds: Leaf


class Bound(NamedTuple):
    """What dual variables say of the supports below a node."""

    lower: Leaf  # f is nowhere below it, a scalar
    error: Leaf  # the bound of rounding errors that is subtracted in it, a scalar
    # (m,), by how much each item could lower it: those that are included, and the largest others up
    # to k, have been subtracted.
    gains: Leaf


class Relaxed(NamedTuple):
    """A node whose relaxation was solved."""

    bound: Bound  # the best one
    x: Leaf  # the minimiser of the relaxation, about; (d,)
    z: Leaf  # (m,), the share of each item in it, from 0 to 1
    fit: Leaf  # the minimiser of f on the support that was given, (d,)
    value: Leaf  # f(fit) plus a bound of its rounding error, a scalar
    step_size: Leaf  # the last one of the descent, a scalar
    num_rounds: Leaf  # int32, of at most max_rounds

    def crop(self, num_items: int, num_columns: int) -> "Relaxed":
        """Several nodes, stacked, on the first items and columns alone."""
        return self._replace(
            bound=self.bound._replace(gains=self.bound.gains[:, :num_items]),
            x=self.x[:, :num_columns],
            z=self.z[:, :num_items],
            fit=self.fit[:, :num_columns],
        )


@dataclasses.dataclass(frozen=True)
class AtNode:
    """The constraint at a node, as far as :func:`dual_point` needs it."""

    constraint: Any
    node: Node
    rounding: float = 1.0

    def project(self, z: Array) -> tuple[Array, Support]:
        """The nearest point of the supports below the node: ``keep`` ranks above all others."""
        included, excluded = (spread(self.constraint, mask) for mask in self.node)
        fixed = dataclasses.replace(self.constraint, keep=included)
        return fixed.project(jnp.where(excluded, 0, z))


def bound_above(objective: LinearModel, x: Array, pred: Array, columns: Array) -> Array:
    """f(x), from ``pred = objective.predict(x)``, plus a bound of its rounding error."""
    return objective.value(x, pred) + lax.stop_gradient(primal_error(objective, x, pred, columns))


def bound_at(relaxation: Relaxation, node: Node, x: Array, alpha: Array) -> Bound:
    """The bound that dual variables, those at x, give for all supports below a node."""
    constraint = relaxation.constraint
    ridge = relaxation.ridge
    point = dual_point(
        relaxation.objective,
        AtNode(constraint, node),
        alpha,
        relaxation.columns,
        ridge=ridge.rho,
        borrowed=ridge.borrowed,
        x=x,
    )
    bounds = constraint.bounds
    w = point.z if bounds is None else jnp.clip(point.z, *bounds)
    gains = constraint.scores(jnp.sqrt(jnp.maximum(w * (point.z - w / 2), 0))) ** 2
    return Bound(point.value - ridge.excess, point.error, ridge.rho * gains)


class Descent(NamedTuple):
    """The state of the descent: a point, where the next step goes on from, and what is known of the
    steps."""

    x: Leaf  # (d,)
    pred: Leaf  # A x; where R is quadratic H x
    momentum: NesterovPoint
    eta: Leaf  # the step size, a scalar
    value: Leaf  # that of the relaxation at x, a scalar
    z: Leaf  # (m,)


class Round(NamedTuple):
    """The state after some rounds of steps, each with a bound."""

    count: Leaf  # int32
    descent: Descent
    bound: Bound  # the best one
    is_done: Leaf  # bool


ROUND = 10  # steps of the descent between two bounds
VALUE_ULPS = 4096.0  # slack for rounding, in units of the last place of a value or a bound


def relax(relaxation: Relaxation, goal: Goal, start: NodeStart) -> Relaxed:
    """Solve the relaxation at a node until its bound reaches the target, or is about as high as it
    gets.

    Accelerated proximal gradient descent with backtracking and restarts: ten steps a round, then a
    bound. The first bound is that of the minimiser on one support, which is tight where the node
    holds no other one.

    Cost: two products a step and another one a round; a refit.
    """
    objective = relaxation.objective
    support = relaxation.constraint.support(start.chosen)
    fit = refit(objective, support, jnp.where(support.mask, start.x, 0)).x
    pred = objective.predict(fit)
    value = bound_above(objective, fit, pred, relaxation.columns)
    solver = _NodeSolver(relaxation, start.node, goal, fit, pred, value)

    def goes_on(state):
        return ~state.is_done & (state.count < goal.max_rounds)

    first = solver.start(start.x, start.step_size)
    last = while_loop(goes_on, solver.advance, first)
    return Relaxed(
        bound=last.bound,
        x=last.descent.x,
        z=last.descent.z,
        fit=fit,
        value=value,
        step_size=last.descent.eta,
        num_rounds=last.count,
    )


@dataclasses.dataclass(frozen=True)
class _NodeSolver:
    """The relaxation at a node.

    Attributes:
        relaxation: at all nodes.
        node: the items that are fixed.
        goal: how far it is solved.
        fit: (d,), the minimiser of f on one support below the node.
        fit_pred: (n,), its prediction.
        value: f there, plus a bound of its rounding error.
    """

    relaxation: Relaxation
    node: Node
    goal: Goal
    fit: Array
    fit_pred: Array
    value: Array

    def start(self, x: Array, step_size: Array) -> Round:
        """Before the first round."""
        image = self.image_of(x)
        inf = jnp.full((), jnp.inf, x.dtype)
        none = jnp.zeros(self.node.included.shape, x.dtype)
        descent = Descent(
            x=x,
            pred=image,
            momentum=NesterovPoint(x, image, jnp.ones_like(inf)),
            eta=step_size,
            value=inf,
            z=none,
        )
        return Round(
            count=jnp.zeros((), jnp.int32),
            descent=descent,
            bound=Bound(-inf, jnp.zeros_like(inf), none),
            is_done=jnp.array(False),
        )

    def advance(self, state: Round) -> Round:
        """Take a round of steps, and bound; the first round has no steps, and the bound of the
        fit."""
        relaxation = self.relaxation
        begins = state.count == 0
        num_steps = jnp.where(begins, 0, ROUND)
        descent = fori_loop(0, num_steps, lambda _, descent: self.descend(descent), state.descent)

        x = jnp.where(begins, self.fit, descent.x)
        if relaxation.quadratic is None:
            pred = jnp.where(begins, self.fit_pred, descent.pred)
        else:
            pred = relaxation.objective.predict(x)
        alpha_of_fit = dual_variables(relaxation.nearly_smooth, pred)
        alpha = jnp.where(begins, alpha_of_fit, dual_variables(relaxation.smooth, pred))
        new = bound_at(relaxation, self.node, x, alpha)
        bound = tree_where(new.lower > state.bound.lower, new, state.bound)

        lacks = jnp.maximum(self.goal.target - bound.lower, 0)
        # The relaxation's minimum is at most its value at x, and no bound above it.
        most_gained = descent.value - relaxation.ridge.excess - bound.lower
        is_done = (most_gained <= self.goal.rtol * lacks) | (lacks == 0)
        return Round(state.count + 1, descent, bound, is_done)

    def descend(self, state: Descent) -> Descent:
        """An accelerated proximal gradient step, or half of the step size."""
        rho = self.relaxation.ridge.rho
        y = state.momentum.x
        eta = state.eta
        f = self.smooth_part(y, state.momentum.pred)
        gradient = self.smooth_gradient(y, state.momentum.pred)
        new, z, square = perspective_prox(
            self.relaxation.constraint, self.node, y - eta * gradient, eta * rho
        )
        image = self.image_of(new)
        move = new - y
        f_new = self.smooth_part(new, image)
        most = f + jnp.vdot(gradient, move) + jnp.vdot(move, move) / (2 * eta)
        slack = VALUE_ULPS * machine_eps(y) * (jnp.abs(self.size) + jnp.abs(f_new))
        accepted = f_new <= most + slack

        # Too long steps are rare, so that they may grow again.
        taken = Descent(
            x=new,
            pred=image,
            momentum=state.momentum,
            eta=1.02 * eta,
            value=f_new + rho / 2 * square,
            z=z,
        )
        taken = taken._replace(momentum=state.momentum.update(taken, state))
        refused = state._replace(momentum=NesterovPoint.init(state), eta=state.eta / 2)
        return tree_where(accepted, taken, refused)

    @property
    def rest(self) -> Array:
        """What f has of the ridge, beside R."""
        return self.relaxation.ridge.rho - self.relaxation.ridge.added

    @property
    def size(self) -> Array:
        """The size of the terms of R."""
        quadratic = self.relaxation.quadratic
        return self.value if quadratic is None else quadratic.c

    def image_of(self, x: Array) -> Array:
        """What R and its gradient are computed from: A x, or H x."""
        quadratic = self.relaxation.quadratic
        if quadratic is None:
            return self.relaxation.objective.predict(x)
        return matmul(quadratic.H, x)

    def smooth_part(self, x: Array, image: Array) -> Array:
        """R at x."""
        quadratic = self.relaxation.quadratic
        if quadratic is None:
            f = self.relaxation.smooth.value(x, image)
            return f - self.rest / 2 * jnp.vdot(x, x)
        return jnp.vdot(x, image / 2 - quadratic.b) + quadratic.c

    def smooth_gradient(self, x: Array, image: Array) -> Array:
        """The gradient of R at x."""
        quadratic = self.relaxation.quadratic
        if quadratic is None:
            return self.relaxation.smooth.gradient(x, image) - self.rest * x
        return image - quadratic.b


#: :func:`relax` at several nodes: starts have a leading axis.
relax_nodes = bounded_jit(jax.vmap(relax, in_axes=(None, None, 0)))
