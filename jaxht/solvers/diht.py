"""Dual iterative hard thresholding, by all samples or by blocks of them."""

from dataclasses import replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from chex import Array, Numeric, PRNGKey
from jax import lax
from optax.tree_utils import tree_where

from jaxht._pytree import integer, pytree, static
from jaxht.constraints import Constraint
from jaxht.objectives.dual import DualPoint, check_dual, conjugate_loss, dual_point, dual_variables, supergradient
from jaxht.objectives.linear_model import LinearModel
from jaxht.refit import refit
from jaxht.solvers.iterate import Iterate, check_step_size, evaluate, evaluate_refit
from jaxht.solvers.solver import Solver
from jaxht.solvers.status import Status


@pytree
class DIHT(Solver[LinearModel, Constraint]):
    r"""Projected supergradient ascent on the dual D of a linear model with a ridge; x comes with a certificate.

    .. math::
        w = H_k\Big(-\tfrac{c}{l_2} \sum_i \alpha_i a_i\Big), \qquad
        \alpha^+ = P_F\big(\alpha + \eta_t \, c \, (A w - l^{*\prime}(\alpha; y))\big)

    from ``alpha_i = l'(a_i.x0; y_i)``, F the domain of the conjugate l*. x minimises f on the support of w at the best
    alpha so far, unless an x before was lower, and ``gap = f(x) - max D`` is at least its distance to the optimum.

    Args:
        step_size: eta > 0, traced. None: adaptive, ``tau / (c l*'' + c sigma^2 / l2)`` by coordinate, c sigma^2 the
            largest eigenvalue of ``c A'A``: D's own smoothness while the support stays. tau = 1 is halved, and the
            ascent goes on from the best alpha, whenever D has not risen for PATIENCE updates: at ties w jumps between
            supports, and no constant step ascends.
        diminishing: static; whether eta_t = eta / (t + 2). For a loss that is 1/mu-smooth the theory takes
            ``eta = n / mu`` for the mean over n samples (Theorem 15); for the hinge a constant from a search.
        inner_steps: updates in a step of the runner, after which x and the gap are renewed, traced.

    Ends with GAP_CLOSED where ``Stop(gap_rtol=...)`` is given and met, else by its limit: the best gap may stay open.

    Raises:
        ValueError: unless the objective is a linear model of one output with a single l2 > 0.

    Cost: an update takes one full gradient and one projection; a step ends with a refit.

    Source: Yuan et al. 2020, Algorithm 1; they start from alpha = 0.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([0.0, 4.0, 1.0, 3.0]), 1.0)
        >>> result = jaxht.solve(f, jaxht.Sparse(2), jaxht.DIHT(), stop=jaxht.Stop(gap_rtol=1e-4))
        >>> jaxht.Status(int(result.status)).name
        'GAP_CLOSED'
    """

    step_size: Numeric | None = None
    diminishing: bool = static(default=False)
    inner_steps: Numeric = integer(default=10)

    def max_steps(self, constraint: Constraint) -> int:
        """1 000."""
        return 1_000

    def init(
        self, objective: LinearModel, constraint: Constraint, x0: Array, key: PRNGKey | None
    ) -> tuple[Iterate, Any]:
        """alpha from x0."""
        iterate, point, floor = init_dual(objective, constraint, x0)
        if self.step_size is None:
            scale, coupling = jnp.ones((), objective.dtype), objective.gram_norm() / objective.l2
        else:
            scale, coupling = jnp.asarray(self.step_size), jnp.zeros((), objective.dtype)
        iterate = replace(iterate, status=check_step_size(iterate.status, scale))
        none = jnp.zeros((), jnp.int32)
        return iterate, (floor, (point, point, scale, coupling, none, none))

    def step(self, objective: LinearModel, constraint: Constraint, iterate: Iterate, state: Any) -> tuple[Iterate, Any]:
        """Some updates of alpha, then x from the best."""
        floor, ascent = state

        def update(_: Array, state: Any) -> Any:
            point, best, scale, coupling, t, waited = state
            alpha, loss, y = point.alpha, conjugate_loss(objective), objective.y
            g = supergradient(objective, alpha, objective.predict(point.w))
            if self.step_size is None:
                # Of D / c: with c = 1 / n, g is as small as the curvature that divides it.
                eta = adaptive_step(scale, objective.weight(loss.conjugate_curvature(alpha, y) + coupling))
            else:
                eta = scale / (t + 2) if self.diminishing else scale
            point = dual_point(objective, constraint, loss.within(alpha + eta * g, y))
            patience = PATIENCE if self.step_size is None else None
            point, best, scale, waited = keep_best(point, best, scale, waited, patience)
            return point, best, scale, coupling, t + 1, waited

        ascent = lax.fori_loop(0, self.inner_steps, update, ascent)
        work = {"full_gradients": self.inner_steps, "projections": self.inner_steps}
        return primal_from_dual(objective, constraint, iterate, ascent[1], floor, work), (floor, ascent)


@pytree
class SDIHT(Solver[LinearModel, Constraint]):
    r"""Stochastic dual iterative hard thresholding: :class:`DIHT` on a random block of samples at a time.

    The samples are divided into blocks of batch_size, in their order. An update draws one, takes its part of the
    supergradient and keeps z, of which w is the projection, up to date; each step of the runner makes z anew.

    Args:
        step_size: eta > 0, traced. None: adaptive, ``tau / (c l*'' + c^2 s b max ||a_i||^2 / l2)`` by coordinate. While
            the support stays, blocks of one sample of a loss with quadratic l* then come to their maximum at once
            (Shalev-Shwartz & Zhang 2013). tau = 1 is halved, and the ascent goes on from the best alpha, whenever D has
            not risen for EPOCHS steps of the runner.
        diminishing: static; whether eta_t = eta / (t + 2). With m blocks and a 1/mu-smooth loss the theory takes
            ``eta = m n / mu`` for the mean over n samples (Theorem 19).
        batch_size: b, static.
        inner_steps: updates in a step of the runner, after which x and the gap are renewed, traced; None: n / b.

    Ends as :class:`DIHT` does.

    Raises:
        ValueError: as :class:`DIHT`, and for a batch_size beyond n.

    Cost: an update takes b sample gradients, O(b d), and a projection; a step ends with a full product, a projection
    and a refit.

    Source: Yuan et al. 2020, Algorithm 2.

    Example:
        >>> import jax, jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]), 1.0)
        >>> result = jaxht.solve(f, jaxht.Sparse(2), jaxht.SDIHT(), key=jax.random.key(0))
        >>> [round(float(x_i), 3) for x_i in result.x]
        [0.0, 2.0, 0.0, 1.5]
    """

    step_size: Numeric | None = None
    diminishing: bool = static(default=False)
    batch_size: int = static(default=1)
    inner_steps: Numeric | None = integer(default=None)

    needs_key: ClassVar[bool] = True

    def max_steps(self, constraint: Constraint) -> int:
        """100 epochs."""
        return 100

    def init(
        self, objective: LinearModel, constraint: Constraint, x0: Array, key: PRNGKey | None
    ) -> tuple[Iterate, Any]:
        """alpha from x0."""
        n = objective.num_samples
        if not (isinstance(self.batch_size, int) and 1 <= self.batch_size <= n):
            raise ValueError(f"batch_size must be an int in [1, {n}], the number of samples; got {self.batch_size!r}")
        iterate, point, floor = init_dual(objective, constraint, x0)
        scale = jnp.ones((), objective.dtype) if self.step_size is None else jnp.asarray(self.step_size)
        iterate = replace(iterate, status=check_step_size(iterate.status, scale))
        squares = jnp.pad(objective.A.row_norms() ** 2, (0, -n % self.batch_size))
        couplings = self.batch_size * jnp.max(squares.reshape(-1, self.batch_size), axis=1) / objective.l2
        none = jnp.zeros((), jnp.int32)
        return iterate, (floor, point, point, scale, couplings, key, none, none)

    def step(self, objective: LinearModel, constraint: Constraint, iterate: Iterate, state: Any) -> tuple[Iterate, Any]:
        """An epoch, then x from the best alpha."""
        floor, point, best, scale, couplings, key, first, waited = state
        key, draws = jax.random.split(key)
        n, b, loss, A, l2 = objective.num_samples, self.batch_size, conjugate_loss(objective), objective.A, objective.l2
        num_blocks = len(couplings)
        shares = objective.weight(jnp.ones(n, objective.dtype))

        def update(t: Array, carry: Any) -> Any:
            alpha, z = carry
            number = jax.random.bits(jax.random.fold_in(draws, t), (), jnp.uint32) % num_blocks
            indices = number.astype(jnp.int32) * b + lax.iota(jnp.int32, b)
            a, y, share = (jnp.take(v, indices, mode="clip") for v in (alpha, objective.y, shares))
            rows = A.rows(indices)
            g = share * (rows.matvec(constraint.project(z)[0]) - loss.conjugate_derivative(a, y))
            if self.step_size is None:
                eta = adaptive_step(scale, share * (loss.conjugate_curvature(a, y) + share * couplings[number]))
            else:
                eta = scale / (first + t + 2) if self.diminishing else scale
            change = jnp.where(indices < n, loss.within(a + eta * g, y) - a, 0)
            return alpha.at[indices].add(change, mode="drop"), z - rows.rmatvec(share * change) / l2

        m = num_blocks if self.inner_steps is None else self.inner_steps
        alpha, _ = lax.fori_loop(0, m, update, (point.alpha, point.z))
        point = dual_point(objective, constraint, loss.within(alpha, objective.y))
        patience = EPOCHS if self.step_size is None else None
        point, best, scale, waited = keep_best(point, best, scale, waited, patience)
        work = {"sample_gradients": m * b, "projections": m}
        state = (floor, point, best, scale, couplings, key, first + m, waited)
        return primal_from_dual(objective, constraint, iterate, best, floor, work), state


def init_dual(objective: LinearModel, constraint: Constraint, x0: Array) -> tuple[Iterate, DualPoint, Array]:
    """The start, its dual variables, and D at 0: a bound, if no good place to start from where l* is steep there."""
    check_dual(objective)
    iterate = evaluate(objective, x0, refit_converged=jnp.array(True))
    point = dual_point(objective, constraint, dual_variables(objective, iterate.pred))
    origin = conjugate_loss(objective).within(jnp.zeros_like(point.alpha), objective.y)
    floor = dual_point(objective, constraint, origin).value
    gap = iterate.value - jnp.maximum(point.value, floor)
    # Without a ridge there is no dual.
    return replace(iterate, gap=gap, status=check_step_size(Status.RUNNING, objective.l2)), point, floor


def adaptive_step(scale: Array, curvature: Array) -> Array:
    """The step by coordinate; where a sample has no weight, nothing moves."""
    return scale / jnp.where(curvature > 0, curvature, 1)


def keep_best(
    point: DualPoint, best: DualPoint, scale: Array, waited: Array, patience: int | None
) -> tuple[DualPoint, DualPoint, Array, Array]:
    """The better of two, and how long it has been so; after ``patience``, if any, on from it with half the step."""
    risen = point.value > best.value
    best, waited = tree_where(risen, point, best), jnp.where(risen, 0, waited + 1)
    if patience is not None:
        again = waited >= patience
        scale, point = jnp.where(again, scale / 2, scale), tree_where(again, best, point)
        waited = jnp.where(again, 0, waited)
    return point, best, scale, waited


def primal_from_dual(
    objective: LinearModel, constraint: Constraint, iterate: Iterate, best: DualPoint, floor: Array, work: Any
) -> Iterate:
    """The minimiser of f on the support of w at the best alpha, unless f is lower at the iterate before."""
    counts = iterate.counts.plus(**work)
    new = evaluate_refit(objective, refit(objective, constraint.support_of(best.w), best.w), counts)
    new = tree_where(iterate.value <= new.value, replace(iterate, gap=None, counts=counts), new)  # a NaN gets through
    return replace(new, gap=new.value - jnp.maximum(best.value, floor))


PATIENCE, EPOCHS = 10, 5
