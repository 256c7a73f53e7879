"""Complex least squares as a real problem of twice the size, in which the real and the imaginary part
of an entry are a group."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxht._dataclass import replace
from jaxht._typing import Array
from jaxht.constraints import Groups
from jaxht.designs import Design, LinearOperator
from jaxht.exact.perspective import has_perspective
from jaxht.linalg.inner_products import real_dtype
from jaxht.objectives.linear_model import LeastSquares

__all__ = ["as_pairs", "join_pairs", "split_pairs"]


def as_pairs(objective: LeastSquares, constraint: Any) -> tuple[LeastSquares, Groups]:
    """The real problem, prepared, of a complex one that is prepared: f is the same number at
    ``split_pairs(x)``.

    Raises:
        ValueError: for other constraints than :class:`jaxht.Sparse` and :class:`jaxht.Groups`.

    Cost: 4 n d numbers, of a dense design.
    """
    if not has_perspective(constraint) or constraint.bounds is not None:
        raise ValueError(
            "constraint must be Sparse or Groups without bounds for complex numbers; got "
            f"{type(constraint).__name__}"
        )

    design = objective.design
    array = design.dense_array
    n, d = design.shape
    l2 = objective.l2
    weights = objective.weights
    if objective.mean:
        weights = objective.weight(jnp.ones(n, objective.real_dtype))
    model = LeastSquares(
        A=_operator(design) if array is None else _matrix(array),
        y=split_pairs(objective.y),
        l2=l2 if l2 is None or jnp.ndim(l2) == 0 else _repeat(l2),
        mean=False,
        weights=_repeat(weights),
        offset=None if objective.offset is None else split_pairs(objective.offset),
    )
    if constraint.selects_entries:
        groups = Groups(constraint.k, np.arange(2 * d) // 2, constraint.k_max)
    else:
        size_max = None if constraint.size_max is None else 2 * constraint.size_max
        groups = replace(constraint, groups=_repeat(constraint.groups), size_max=size_max)
    pairs = replace(groups, keep=_repeat(constraint.keep)).prepare((2 * d,))
    return model.prepare(), pairs


def split_pairs(x: Any) -> Array:
    """(2 d,): the parts of the entries of x (d,), each imaginary part after its real part."""
    x = jnp.asarray(x)
    return jnp.stack([x.real, x.imag], axis=-1).ravel()


def join_pairs(x: Any) -> Any:
    """The complex vector (d,) of parts (2 d,)."""
    return x[0::2] + 1j * x[1::2]


def _repeat(v: Any) -> Any:
    """Repeat each entry; an array of NumPy, which is known in a trace, gives another one."""
    if v is None:
        return None
    return jnp.repeat(v, 2) if isinstance(v, jax.Array) else np.repeat(v, 2)


def _operator(A: Design) -> LinearOperator:
    norms = _repeat(A.column_norms()) if A.has_column_norms else None
    shape = (2 * A.shape[0], 2 * A.shape[1])
    return LinearOperator(
        product=_multiply,
        shape=shape,
        args=(A,),
        adjoint=_multiply_adjoint,
        norms=norms,
        dtype=real_dtype(A),
        check=False,
    )


def _multiply(x: Array, A: Design) -> Array:
    return split_pairs(A.matvec(join_pairs(x)))


def _multiply_adjoint(r: Array, A: Design) -> Array:
    return split_pairs(A.rmatvec(join_pairs(r)))


def _matrix(A: Array) -> Array:
    """(2 n, 2 d), of blocks (a, -b; b, a) for entries a + ib."""
    n, d = A.shape
    above = jnp.stack([A.real, -A.imag], axis=-1)
    below = jnp.stack([A.imag, A.real], axis=-1)
    return jnp.stack([above, below], axis=1).reshape(2 * n, 2 * d)
