"""What all objectives on the predictions of a linear model have in common."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from chex import Array, ArrayDType, Numeric

from jaxht.linear import design
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

    def _scaled(self, v: Array) -> Array:
        return v / self.num_samples if self.mean else v
