"""What all objectives on the predictions of a linear model have in common."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from chex import Array, ArrayDType, Numeric
from jax.scipy.linalg import cho_solve

from jaxht.linear import design
from jaxht.spectral import SAFETY, largest_eigenvalue
from jaxht.tree import check_scalar, pytree, static


@pytree
class LinearModel:
    """A sum over samples of a function of the prediction ``a_i.x``, and a ridge: base of the objectives on data.

    Args:
        A: (n, d) array, samples in rows, or a :func:`jaxht.design`.
        y: (n,) targets.
        l2: ridge parameter lambda >= 0, traced.
        mean: static; whether the sum is divided by n.
    """

    A: Any
    y: Array
    l2: Numeric = 0.0
    mean: bool = static(default=False, kw_only=True)

    @property
    def shape(self) -> tuple[int, ...]:
        """(d,)."""
        return (design(self.A).shape[1],)

    @property
    def dtype(self) -> ArrayDType:
        """That of A, or the default float where A holds integers."""
        dtype = design(self.A).dtype
        return jnp.result_type(float) if jnp.issubdtype(dtype, jnp.integer) else dtype

    @property
    def num_samples(self) -> int:
        """n."""
        return design(self.A).shape[0]

    def check(self) -> None:
        """Raise ValueError naming A, y or l2 where shapes or dtypes cannot be right."""
        A = design(self.A)
        if len(A.shape) != 2 or 0 in A.shape:
            raise ValueError(f"A must have shape (n, d) with n, d >= 1; got {A.shape}: use jax.vmap for a batch")
        if self.dtype not in (jnp.float32, jnp.float64):
            raise ValueError(f"A must be float32 or float64 (or integer); got {self.dtype}")
        if not isinstance(self.y, jax.Array | np.ndarray):
            raise ValueError(f"y must be an array of shape {A.shape[:1]}; got {type(self.y).__name__}")
        if self.y.shape != A.shape[:1]:
            raise ValueError(f"y must have shape {A.shape[:1]}, one entry for each row of A; got {self.y.shape}")
        if not (jnp.issubdtype(self.y.dtype, jnp.floating) or jnp.issubdtype(self.y.dtype, jnp.integer)):
            raise ValueError(f"y must be real; got dtype {self.y.dtype}")
        check_scalar("l2", self.l2)

    def start(self, constraint: Any) -> Array:
        """Zero, which every constraint on vectors admits."""
        return jnp.zeros(self.shape, self.dtype)

    def predict(self, x: Array) -> Array:
        """``A x``. Cost: n d."""
        return design(self.A).matvec(x)

    @property
    def curvature_bound(self) -> Numeric:
        """An upper bound of the second derivative of the loss by the prediction."""
        return 1.0

    def smoothness(self) -> Array:
        """``c b sigma_max(A)^2 + l2``, b the bound on the curvature of the loss, from :mod:`jaxht.spectral`."""
        A = design(self.A)
        top = largest_eigenvalue(lambda v: A.rmatvec(A.matvec(v)), self.shape[0], self.dtype)
        return SAFETY * self._scaled(self.curvature_bound * top) + self.l2

    def coordinate_smoothness(self) -> Array:
        """``c b max_i ||A e_i||^2 + l2``. Cost: n d."""
        return self._scaled(self.curvature_bound * jnp.max(design(self.A).column_norms()) ** 2) + self.l2

    def _scaled(self, v: Array) -> Array:
        return v / self.num_samples if self.mean else v


def preconditioner(gram: Array, penalty: Array) -> Callable[[Array], Array]:
    """``s -> (B'B + diag(penalty))^-1 s``, as good as one Cholesky factor in working precision makes it."""
    k, dtype = gram.shape[0], gram.dtype
    norm = jnp.sqrt(jnp.diagonal(gram) + penalty)
    # A column whose square overflows must not drop out unseen, like one of zeros.
    scale = jnp.where(norm < jnp.inf, ratio(1.0, norm), jnp.nan)
    # Columns scaled to unit norm, ones on the diagonal also in the padding; a jitter of a few ulps keeps the factor
    # finite for duplicated or too many columns, and where it does not, the scaling alone has to do.
    scaled = jnp.where(jnp.eye(k, dtype=bool), 1 + 4 * k * float(jnp.finfo(dtype).eps), gram * scale * scale[:, None])
    factor = jnp.linalg.cholesky(scaled, symmetrize_input=False)
    factor = jnp.where(jnp.all(jnp.isfinite(factor)), factor, jnp.eye(k, dtype=dtype))
    return lambda s: scale * cho_solve((factor, True), scale * s)


def ratio(a: Numeric, b: Array) -> Array:
    """a / b, and 0 where b <= 0; NaN stays NaN."""
    return jnp.where(b <= 0, 0, a / jnp.where(b <= 0, 1, b))
