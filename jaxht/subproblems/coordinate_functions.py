"""Functions of the coordinates of a subspace, and where the coordinates may lie."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp

from jaxht._typing import Array, Leaf, Numeric

# Relative error of Newton steps whose systems are solved iteratively.
INEXACT = 1e-3
# Changes of so many ulps are rounding.
FINE_ULPS = 100.0
# Products of a preconditioned system with the Hessian.
MAX_SYSTEM_PRODUCTS = 200


class SmoothFunction(Protocol):
    """A function of coordinates w of which stationary points are known; a pytree, since derivatives
    pass through it."""

    def predict(self, w: Array) -> Array:
        """An image of w that value and gradient are computed from."""
        ...

    def gradient(self, w: Array, pred: Array) -> Array:
        """grad f at w."""
        ...

    def solver(
        self, w: Array, pred: Array, free: Array, tau: Numeric, rtol: float | None
    ) -> Callable[[Array], Array]:
        """``g -> (H + tau B)^-1 g`` for g that are 0 off ``free``, exactly or to a relative error
        of about rtol; None: of the gradient at w, as exactly as a Newton step asks for."""
        ...

    def curvatures(self) -> Array:
        """The diagonal of H, or near it but for a factor that all have in common; >= 0,
        broadcastable to w."""
        ...


class CoordinateFunction(SmoothFunction, Protocol):
    """A function that is to be minimised, whose predictions are linear in w."""

    def is_coercive(self, inside: Array) -> Any:
        """Whether f has a minimiser for certain, w being 0 where not ``inside``; a bool, or traced.
        None is looked for far away then."""
        ...

    @property
    def is_positive(self) -> bool:
        """Whether f > 0 everywhere, so that an f of 0 is rounding."""
        ...

    @property
    def has_cheap_values(self) -> bool:
        """Whether a system with the Hessian takes much longer than a few values."""
        ...

    def value(self, w: Array, pred: Array) -> Array:
        """f at w."""
        ...


class Region(NamedTuple):
    """The set in which the coordinates w may lie.

    Attributes:
        inside: bool, shaped like w; False where w must be 0.
        bounds: lower and upper, broadcastable to w, or None.
    """

    inside: Leaf
    bounds: tuple[Any, Any] | None = None

    def clip(self, w: Array) -> Array:
        """The nearest point."""
        if self.bounds is not None:
            w = jnp.clip(w, *self.bounds)
        return jnp.where(self.inside, w, 0)

    def free(self, w: Array, gradient: Array) -> Array:
        """The coordinates that are not held at a bound by the gradient."""
        if self.bounds is None:
            return self.inside
        lower, upper = self.bounds
        is_held = (w <= lower) & (gradient > 0) | (w >= upper) & (gradient < 0)
        return self.inside & ~is_held
