"""Logistic regression, and its minimiser on a support."""

from typing import Any

import jax.numpy as jnp
from chex import Array, Numeric
from jax import lax

from jaxht.linear import PRECISION, design
from jaxht.losses import LogisticLoss
from jaxht.objectives.linear_model import LinearModel, preconditioner
from jaxht.support import Support
from jaxht.tree import check_scalar, pytree, static


@pytree
class Logistic(LinearModel):
    """Logistic loss of a linear classifier: ``f(x) = c sum_i log(1 + exp(-s y_i a_i.x)) + l2/2 ||x||^2``.

    Args:
        A: (n, d) array, samples in rows, float32 or float64; integers are taken as the default float.
        y: (n,) labels, -1 or +1.
        l2: ridge parameter lambda >= 0, traced. Without it, data that a k-sparse classifier separates have no
            minimiser, and iterates grow without end.
        scale: s, traced; 2 is the scaling of Yuan, Li & Zhang 2018, §6.1.2.
        mean: static; c = 1/n (the default, as in the papers) or 1.

    Source: Axiotis & Sviridenko 2020, §5; Yuan, Li & Zhang 2018, §6.1.2; Yuan et al. 2020, §6.
    """

    scale: Numeric = 1.0
    mean: bool = static(default=True, kw_only=True)

    @property
    def loss(self) -> LogisticLoss:
        """The scalar loss."""
        return LogisticLoss(self.scale)

    @property
    def curvature_bound(self) -> Numeric:
        """``s^2 / 4``."""
        return self.loss.smoothness

    def check(self) -> None:
        """Raise ValueError naming A, y, l2 or scale where they cannot be right."""
        super().check()
        check_scalar("scale", self.scale)
        self.loss.check(self.y)

    def value(self, x: Array, pred: Array) -> Array:
        """f(x) from pred = A x. Cost: n + d."""
        return self._scaled(jnp.sum(self.loss.value(pred, self.y))) + self.l2 / 2 * jnp.vdot(x, x)

    def gradient(self, x: Array, pred: Array) -> Array:
        """``c A^T l'(A x) + l2 x``. Cost: n d."""
        return design(self.A).rmatvec(self._scaled(self.loss.derivative(pred, self.y))) + self.l2 * x

    def curvature(self, x: Array, pred: Array, v: Array, image: Array) -> Array:
        """``c sum_i l''_i (a_i.v)^2 + l2 ||v||^2``; image = A v."""
        return self._scaled(jnp.vdot(image, self.loss.curvature(pred, self.y) * image)) + self.l2 * jnp.vdot(v, v)

    def minimise(self, region: Support, x: Array, ridge: Array | None = None) -> tuple[Array, Array]:
        """Minimiser on a support by damped Newton steps on the k x k Hessian, started from x.

        Args:
            region: support F, |F| <= k_max.
            x: (d,) start; entries off F count as 0.
            ridge: (d,) or None, added to ``l2`` by coordinate.

        Returns:
            (d,) minimiser, exactly zero off F, and its pred. Where there is none (separable data without ridge), the
            point that MAX_NEWTON steps reach.

        Cost: n k_max^2 + k_max^3 / 3 a step; typically 5 to 10 steps.
        """
        region = region.indexed()
        columns = design(self.A).columns(region.indices)  # (k_max, n)
        penalty = self.l2 if ridge is None else self.l2 + region.gather(ridge)
        penalty = jnp.broadcast_to(jnp.asarray(penalty, self.dtype), columns.shape[:1])
        y, eps = self.y.astype(self.dtype), float(jnp.finfo(self.dtype).eps)

        def product(a: Array, b: Array) -> Array:
            return jnp.matmul(a, b, precision=PRECISION)

        def at(w: Array) -> tuple[Array, Array]:
            pred = product(w, columns)
            return pred, self._scaled(jnp.sum(self.loss.value(pred, y))) + jnp.vdot(w, penalty * w) / 2

        def direction(w: Array, pred: Array) -> tuple[Array, Array]:
            """The Newton direction, and how much the quadratic model says a whole step along it gains."""
            gradient = product(columns, self._scaled(self.loss.derivative(pred, y))) + penalty * w
            weighted = columns * self._scaled(self.loss.curvature(pred, y))
            step = -preconditioner(product(weighted, columns.T), penalty)(gradient)
            return step, -jnp.vdot(gradient, step) / 2

        # One flat loop: a step that does not gain enough is tried again at half its length, so lanes do not wait.
        def attempt(carry: Any) -> Any:
            count, _, w, pred, value, step, gain, length = carry
            next_w = w + length * step
            next_pred, next_value = at(next_w)
            noise = 8 * eps * jnp.abs(value)
            enough = next_value <= value - ARMIJO * length * gain + noise
            w, pred = jnp.where(enough, next_w, w), jnp.where(enough, next_pred, pred)
            value = jnp.where(enough, next_value, value)
            next_step, next_gain = direction(w, pred)
            step, gain = jnp.where(enough, next_step, step), jnp.where(enough, next_gain, gain)
            length = jnp.where(enough, 1.0, length / 2)
            # Newton's gain falls quadratically: below an ulp of f one more step has made w exact, half the digits
            # later in w than in f.
            going_on = (gain > (eps * GAIN_RTOL) ** 2 * jnp.abs(value)) & (length > eps)
            return count + 1, going_on, w, pred, value, step, gain, length

        w = region.gather(x)
        pred, value = at(w)
        step, gain = direction(w, pred)
        start = (0, gain > 0, w, pred, value, step, gain, jnp.ones((), self.dtype))
        _, _, w, pred, *_ = lax.while_loop(lambda carry: (carry[0] < MAX_NEWTON) & carry[1], attempt, start)
        return region.scatter(w), pred


ARMIJO = 0.1
GAIN_RTOL = 100.0
MAX_NEWTON = 60
