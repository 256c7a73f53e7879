"""An objective and a constraint in their least correct form, which prove the frame before its API settles.

They run in the contract suite like the public ones, and go when their full versions come.
"""

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxht.objectives.newton import Minimum
from jaxht.selection import k_largest_mask
from jaxht.tree import integer, pytree, static


@pytree
class Edges:
    """Symmetric matrices with at most k edges, that is, pairs of nonzero entries off the diagonal."""

    k: Any = integer()
    k_max: int | None = static(default=None)

    rounding: ClassVar[float] = 1.0

    def prepared(self, shape):
        if len(shape) != 2 or shape[0] != shape[1]:
            raise ValueError(f"Edges constrains square matrices; the objective's variable has shape {shape}")
        return self

    def project(self, z, near=None):
        rows, columns = np.triu_indices(z.shape[0], 1)  # edges in the order of (i, j)
        upper = jnp.zeros(z.shape, bool).at[rows, columns].set(k_largest_mask(z[rows, columns], self.k))
        kept = jnp.where(upper, z, 0)
        mask = upper | upper.T | jnp.eye(z.shape[0], dtype=bool)
        return kept + kept.T + jnp.diag(jnp.diagonal(z)), EdgeSet(mask)

    def smoothness(self, objective):
        return objective.coordinate_smoothness()

    def region(self, x):
        return EdgeSet((x != 0) | jnp.eye(x.shape[0], dtype=bool))


@pytree
class EdgeSet:
    """The symmetric matrices that vanish off ``mask``."""

    mask: Any

    def equals(self, other):
        return jnp.all(self.mask == other.mask)

    def completed(self):
        return self


@pytree
class Precision:
    """``-log det W + <S, W>`` over lower I <= W <= upper I.

    Source: Yuan, Li & Zhang 2018, Algorithm 2 and Appendix D.2.
    """

    S: Any
    lower: Any
    upper: Any
    num_rounds: Any = integer(default=150)

    @property
    def shape(self):
        return self.S.shape

    @property
    def dtype(self):
        return self.S.dtype

    @property
    def num_samples(self):
        return 1

    def prepared(self):
        return self

    def check(self):
        if jnp.ndim(self.S) != 2:
            raise ValueError(f"S must be a square matrix; got shape {jnp.shape(self.S)}")

    def start(self, constraint):
        return self.lower * jnp.eye(self.shape[0], dtype=self.dtype)

    def predict(self, x):
        return x

    def value(self, x, pred):
        # NaN unless W is positive definite: ADMM's T is so only in the limit.
        return -2 * jnp.sum(jnp.log(jnp.diagonal(jnp.linalg.cholesky(x)))) + jnp.vdot(self.S, x)

    def gradient(self, x, pred):
        return self.S - jnp.linalg.inv(x)

    def smoothness(self):
        return self.lower**-2

    def coordinate_smoothness(self):
        return self.lower**-2

    def minimise(self, region, x, ridge=None):
        """ADMM: W within the bounds, T on the region; returns T. rho = the scale of W^-2 keeps it free of units."""
        rho = 1 / (self.lower * self.upper)

        def round_(_, carry):
            T, G = carry
            values, V = jnp.linalg.eigh(T - (self.S - G) / rho)
            values = jnp.clip((values + jnp.sqrt(values**2 + 4 / rho)) / 2, self.lower, self.upper)
            W = (V * values) @ V.T
            T = jnp.where(region.mask, W - G / rho, 0)
            T = (T + T.T) / 2
            return T, G - rho * (W - T)

        T, _ = lax.fori_loop(0, self.num_rounds, round_, (x, jnp.zeros_like(x)))
        return Minimum(T, T, jnp.array(True))
