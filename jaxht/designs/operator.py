"""A design that is known by its products alone."""

import functools
import math
from collections.abc import Callable
from typing import Any, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxht._checks import check_array
from jaxht._dataclass import HOST_NUMBERS, cast_numbers, mixed, pytree, static
from jaxht._programs import bounded_jit
from jaxht._repr import describe
from jaxht._snapshot import Snapshot
from jaxht._typing import Array, ArrayDType, Numeric
from jaxht.designs import algebra
from jaxht.designs.protocol import Design
from jaxht.linalg.inner_products import is_complex, real_dtype, squares
from jaxht.linalg.operators import UNITS_AT_A_TIME

# What multiplies an operator.
NUMBERS = (*HOST_NUMBERS, complex, jax.Array)


@pytree
class LinearOperator(Design):
    """A matrix-free design: ``A x = product(x, *args)``, for example a subsampled transform or a
    convolution.

    Refits on its supports use products alone (conjugate gradients).

    Operators are put together by ``A @ B``, ``A + B``, ``A - B``, ``c * A``, ``A.H`` (the adjoint)
    and ``A.T``, and by :func:`jaxht.operators.vstack` and :func:`jaxht.operators.hstack`; B may be
    any design, such as ``jaxht.design(M)`` of a matrix. ``A @ x`` of an array is ``A.matvec(x)``.
    The norms of the columns are kept where they follow: of multiples, of ``A @ B`` where A has
    orthonormal columns or B is diagonal, and of those stacked.

    Args:
        product: static, linear in x, from (d,) to (n,). A function defined once compiles
            once: arrays that change belong in ``args``. An operator that is made after a number or a
            small array has changed to which product refers compiles anew, as
            :class:`jaxht.Custom` does.
        shape: static, (n, d).
        args: arrays of the operator, traced: sampled rows, a filter, weights ... Floats are cast to
            ``dtype``, integers and booleans stay what they are.
        adjoint: static, ``A^H r = adjoint(r, *args)``, the conjugate transpose, from (n,) to (d,);
            None: that of product, which JAX derives.
        norms: (d,) Euclidean norms of the columns where they are known; None: computed where needed
            by d products.
        dtype: static, of vectors x and r; float32, float64, complex64 or complex128. Default: JAX's
            default float.
        check: bool, static; whether ``r'A x = (A'r)'x`` is tested once, at construction, for a
            random x and r: a product that is not linear, or an adjoint that is not that of product,
            would silently give wrong results. Nothing is tested where arguments are traced, or
            within a jit. Use False for a product that is computed inexactly or is too expensive to
            test.

    Raises:
        ValueError: for a shape that is not a pair of ints, a product or adjoint that does not map
            (d,) to (n,) or back in numbers of dtype, and for a product that is not linear or an adjoint
            that is not its own.

    Cost: that of product and adjoint; of each once where the operator is made.

    Source: the interface of ``scipy.sparse.linalg.LinearOperator``, with the arrays as an argument
    of their own so that they are traced.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxht
        >>> def differences(x, scale):
        ...     return scale * (x[1:] - x[:-1])
        >>> A = jaxht.LinearOperator(differences, (2, 3), (2.0,))
        >>> A.matvec(jnp.array([1.0, 2.0, 4.0])).tolist(), A.rmatvec(jnp.array([1.0, 0.0])).tolist()
        ([2.0, 4.0], [-2.0, 2.0, 0.0])
    """

    product: Callable[..., Array] = static()
    shape: tuple[int, int] = static()
    args: tuple[Any, ...] = mixed(default=())
    adjoint: Callable[..., Array] | None = static(default=None)
    norms: Array | None = None
    dtype: ArrayDType = static(default=float)
    check: bool = static(default=True, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", jnp.result_type(self.dtype))
        object.__setattr__(self, "product", Snapshot.take(self.product))
        if self.adjoint is not None:
            object.__setattr__(self, "adjoint", Snapshot.take(self.adjoint))
        if self.check:
            object.__setattr__(
                self, "check", False
            )  # once: copies are made wherever numbers are cast
            _check(self)

    takes_complex = True
    __array_ufunc__ = None  # NumPy's numbers and arrays leave the operations below to this class

    @overload
    def __matmul__(self, other: Design) -> "LinearOperator": ...
    @overload
    def __matmul__(self, other: Array) -> Array: ...
    def __matmul__(self, other: Any) -> Any:
        """``A @ B`` of a design, an operator; ``A @ x`` of an array (d,) or (d, c), an array."""
        if isinstance(other, Design):
            return _compose(self, other)
        check_array("x", other, "an array, or a design")
        if other.ndim not in (1, 2) or other.shape[0] != self.shape[1]:
            d = self.shape[1]
            raise ValueError(f"x must have shape ({d},) or ({d}, c); got {other.shape}")
        return _multiply(self, other)

    def __rmatmul__(self, other: Any) -> "LinearOperator":
        """``B @ A``, of a design B."""
        return _compose(other, self) if isinstance(other, Design) else NotImplemented

    def __add__(self, other: Any) -> "LinearOperator":
        """``A + B``, of a design B."""
        return _add(self, other) if isinstance(other, Design) else NotImplemented

    def __radd__(self, other: Any) -> "LinearOperator":
        """``B + A``, of a design B."""
        return _add(other, self) if isinstance(other, Design) else NotImplemented

    def __sub__(self, other: Any) -> "LinearOperator":
        """``A - B``, of a design B."""
        return _add(self, _scale(other, -1)) if isinstance(other, Design) else NotImplemented

    def __rsub__(self, other: Any) -> "LinearOperator":
        """``B - A``, of a design B."""
        return _add(other, -self) if isinstance(other, Design) else NotImplemented

    def __mul__(self, c: Any) -> "LinearOperator":
        """``c A``, of a scalar, real or complex, traced."""
        return _scale(self, c) if isinstance(c, NUMBERS) else NotImplemented

    __rmul__ = __mul__

    def __truediv__(self, c: Any) -> "LinearOperator":
        """``A / c``, of a scalar."""
        return _scale(self, 1 / c) if isinstance(c, NUMBERS) else NotImplemented

    def __neg__(self) -> "LinearOperator":
        """``-A``."""
        return _scale(self, -1)

    @property
    def H(self) -> "LinearOperator":
        """The adjoint, the conjugate transpose."""
        n, d = self.shape
        is_unitary = n == d and algebra.is_isometry(self)
        norms = self.norms if is_unitary else None
        return _combine(algebra.swap, algebra.swap_adjoint, (d, n), (self,), norms)

    @property
    def T(self) -> "LinearOperator":
        """The transpose, without conjugates: that of a real operator is its adjoint."""
        if not is_complex(self):
            return self.H
        n, d = self.shape
        return _combine(algebra.transpose, algebra.transpose_adjoint, (d, n), (self,))

    @property
    def has_column_norms(self) -> bool:
        """Whether ``norms`` are given."""
        return self.norms is not None

    @property
    def has_cheap_columns(self) -> bool:
        """False: columns cost a product each."""
        return False

    def gathers(self, k_max: int | None) -> bool:
        """False: columns cost a product each."""
        return False

    def _as_vector(self, v: Array) -> Array:
        """v as numbers that derivatives take, complex where the operator is."""
        if not jnp.issubdtype(v.dtype, jnp.inexact):
            return v.astype(self.dtype)
        return v.astype(self.dtype) if is_complex(self) and not is_complex(v) else v

    def matvec(self, x: Array) -> Array:
        """``A x``: x is (d,), or (d, c), which takes the product of each column. Cost: a product,
        or c."""
        if x.ndim == 2:
            return jax.vmap(self.matvec, in_axes=1, out_axes=1)(x)
        return self.product(self._as_vector(x), *self.args)

    def rmatvec(self, r: Array) -> Array:
        """``A^H r``: r is (n,), or (n, c), which takes the product of each column. Cost: a product,
        or c."""
        if r.ndim == 2:
            return jax.vmap(self.rmatvec, in_axes=1, out_axes=1)(r)
        r = self._as_vector(r)
        if self.adjoint is not None:
            return self.adjoint(r, *self.args)
        if is_complex(self):
            r = r.astype(jnp.promote_types(r.dtype, self.dtype))
        # Not jax.linear_transpose, which a product with rules of its own for vmap would refuse.
        (image,) = jax.vjp(
            lambda x: self.product(x, *self.args), jnp.zeros(self.shape[1:], r.dtype)
        )[1](r.conj())
        return image.conj()

    def rows(self, indices: Array) -> "LinearOperator":
        """The rows at ``indices`` (b,), as a design (b, d); 0 where one is n. Its products cost
        those of all rows."""
        shape = (indices.shape[0], self.shape[1])
        return LinearOperator(
            product=_select_rows,
            shape=shape,
            args=(self, indices),
            adjoint=_scatter_rows,
            dtype=self.dtype,
            check=False,
        )

    def row_norms(self) -> Array:
        """Euclidean norms of the rows, (n,). Cost: n products."""
        n = self.shape[0]

        def norm(i: Array) -> Array:
            return jnp.linalg.norm(self.rmatvec((jnp.arange(n) == i).astype(self.dtype)))

        return lax.map(norm, jnp.arange(n), batch_size=UNITS_AT_A_TIME)

    def columns(self, indices: Array) -> Array:
        """``A_F^T``: the columns at ``indices`` (k_max,) as rows (k_max, n), 0 where one is d.
        Cost: k_max products."""
        every = lax.iota(indices.dtype, self.shape[1])
        return lax.map(
            lambda j: self.matvec((every == j).astype(self.dtype)),
            indices,
            batch_size=UNITS_AT_A_TIME,
        )

    def squared(self, weights: Array) -> Array:
        """``sum_i weights_i |A_ij|^2`` for all j, (d,): the diagonal of ``A^H diag(weights) A``.
        Cost: d products."""
        d = self.shape[1]

        def entry(j: Array) -> Array:
            unit = (jnp.arange(d) == j).astype(self.dtype)
            return jnp.vdot(weights, squares(self.matvec(unit)))

        return lax.map(entry, jnp.arange(d), batch_size=UNITS_AT_A_TIME)

    def column_norms(self) -> Array:
        """Euclidean norms of the columns, (d,): as given, else at the cost of d products."""
        return super().column_norms() if self.norms is None else self.norms

    def rounding_norms(self) -> Array:
        """Those of the columns, times what cancels in the designs of which this is made."""
        return self.column_norms() * self.cancellation()

    def cancellation(self) -> Numeric:
        """That of the designs of which this is made, one after the other."""
        parts = [arg for arg in self.args if isinstance(arg, Design)]
        return math.prod(part.cancellation() for part in parts)

    divides_columns = True

    def divide_columns(self, divisors: Array, norms: Array | None) -> "LinearOperator":
        """The operator of ``x -> A (x / divisors)``."""
        return LinearOperator(
            product=_multiply_divided,
            shape=self.shape,
            args=(self, divisors),
            adjoint=_divide_adjoint,
            norms=norms,
            dtype=self.dtype,
            check=False,
        )


def _combine(
    product: Callable[..., Array],
    adjoint: Callable[..., Array],
    shape: tuple[int, int],
    args: tuple[Any, ...],
    norms: Array | None = None,
) -> LinearOperator:
    """An operator made of others by a function of :mod:`jaxht.designs.algebra`."""
    dtype = algebra.common_dtype(*(arg.dtype for arg in args))
    return LinearOperator(product, shape, args, adjoint, norms, dtype, check=False)


@bounded_jit
def _multiply(A: LinearOperator, x: Array) -> Array:
    """``A x`` as one program, also where it is not called within another."""
    return A.matvec(x)


def _compose(A: Any, B: Any) -> LinearOperator:
    if A.shape[1] != B.shape[0]:
        raise ValueError(
            f"the second operator must have {A.shape[1]} rows, as many as the first has columns; "
            f"got shapes {A.shape} and {B.shape}"
        )
    shape = (A.shape[0], B.shape[1])
    norms = algebra.norms_of_composition(A, B)
    return _combine(algebra.compose, algebra.compose_adjoint, shape, (A, B), norms)


def _add(A: Any, B: Any) -> LinearOperator:
    if A.shape != B.shape:
        raise ValueError(f"operators of a sum must have one shape; got {A.shape} and {B.shape}")
    return _combine(algebra.add, algebra.add_adjoint, A.shape, (A, B))


def _scale(A: Any, c: Numeric) -> LinearOperator:
    if jnp.ndim(c) != 0:
        raise ValueError(
            f"c must be a scalar; got shape {jnp.shape(c)}: use operators.diagonal for a vector"
        )
    dtype = algebra.common_dtype(A.dtype, c)
    is_real = not jnp.issubdtype(jnp.result_type(c), jnp.complexfloating)
    c = jnp.asarray(c, jnp.finfo(dtype).dtype if is_real else dtype)
    norms = algebra.known_norms(A)
    norms = None if norms is None else jnp.abs(c) * norms
    return _combine(algebra.scale, algebra.scale_adjoint, A.shape, (A, c), norms)


def _check(A: LinearOperator) -> None:
    """Raise ValueError where A is not a linear map of its shape, or its adjoint another's, as
    far as known."""
    if not (
        isinstance(A.shape, tuple)
        and len(A.shape) == 2
        and all(isinstance(s, int | np.integer) for s in A.shape)
    ):
        raise ValueError(f"shape must be a pair of ints (n, d); got {A.shape!r}")
    if real_dtype(A) not in (jnp.float32, jnp.float64):
        raise ValueError(f"dtype must be float32, float64, complex64 or complex128; got {A.dtype}")
    A = cast_numbers(A, real_dtype(A))
    kind = jnp.complexfloating if is_complex(A) else jnp.floating
    for name, function, size, image in (("product", A.product, 1, 0), ("adjoint", A.adjoint, 0, 1)):
        if function is None:
            continue
        if not callable(function):
            raise ValueError(f"{name} must be a function of a vector; got {describe(function)}")
        vector = jax.ShapeDtypeStruct((A.shape[size],), A.dtype)
        out = jax.eval_shape(lambda v, args, function=function: function(v, *args), vector, A.args)
        if not isinstance(out, jax.ShapeDtypeStruct) or out.shape != (A.shape[image],):
            raise ValueError(
                f"{name} must map shape {vector.shape} to ({A.shape[image]},); got {describe(out)}"
            )
        if not jnp.issubdtype(out.dtype, kind):
            raise ValueError(f"{name} must return numbers of its dtype {A.dtype}; got {out.dtype}")
    unknown = (jax.core.Tracer, jax.ShapeDtypeStruct)
    if not any(
        isinstance(leaf, unknown) for leaf in (*jax.tree.leaves(A.args), jnp.zeros(()))
    ):  # nor within a jit
        _check_adjoint(A)


# Of a random test, relative: far above rounding, also of products in half of single precision, far
# below a mistake.
LINEARITY_RTOL = 1e-2
ROUNDING_RELATIVE_TO_NORMS = 1e-5


def _check_adjoint(A: LinearOperator) -> None:
    def apply(function: Callable[[Array], Array], v: np.ndarray) -> Any:
        image = function(jnp.asarray(v, A.dtype))
        wide = np.complex128 if is_complex(A) else np.float64
        return image if isinstance(image, jax.core.Tracer) else np.asarray(image, wide)

    matvec = functools.partial(apply, A.matvec)
    rmatvec = functools.partial(apply, A.rmatvec)
    check_adjoint(matvec, rmatvec, A.shape, takes_complex=is_complex(A))


def check_adjoint(
    matvec: Callable[[np.ndarray], Any],
    rmatvec: Callable[[np.ndarray], Any],
    shape: tuple[int, int],
    hint: str = "",
    takes_complex: bool = False,
) -> None:
    """Raise ValueError where products of vectors of NumPy are not linear, or the second is not the
    adjoint of the first; not where they are traced."""
    rng = np.random.default_rng(0)
    n, d = shape

    def draw(size: int) -> np.ndarray:
        numbers = rng.normal(size=size)
        return numbers + 1j * rng.normal(size=size) if takes_complex else numbers

    x = draw(d)
    z = draw(d)
    noise = draw(n)
    image = matvec(x)
    if isinstance(image, jax.core.Tracer) or not np.all(np.isfinite(image)):
        return
    # Near the image, so that r'A x is far from 0 in any dimension.
    size = np.linalg.norm(image)
    r = image + size / np.sqrt(n) * noise
    back = rmatvec(r)
    rounding = ROUNDING_RELATIVE_TO_NORMS * np.linalg.norm(x) * np.linalg.norm(back)
    if abs(np.vdot(r, image) - np.vdot(back, x)) <= LINEARITY_RTOL * size**2 + rounding:
        return
    other = matvec(z)
    factor = 2j if takes_complex else 2
    both = matvec(x + factor * z)
    gap = np.linalg.norm(both - image - factor * other)
    if not gap <= LINEARITY_RTOL * (size + np.linalg.norm(other)):
        raise ValueError(
            f"product must be linear in x; got A(x + 2 z) other than A x + 2 A z{hint}"
        )
    raise ValueError(f"adjoint must be that of product; got r'A x other than (A'r)'x{hint}")


def _select_rows(x: Array, A: LinearOperator, indices: Array) -> Array:
    return jnp.take(A.matvec(x), indices, axis=0, mode="fill", fill_value=0)


def _scatter_rows(r: Array, A: LinearOperator, indices: Array) -> Array:
    return A.rmatvec(jnp.zeros(A.shape[0], r.dtype).at[indices].add(r, mode="drop"))


def _multiply_divided(x: Array, A: LinearOperator, divisors: Array) -> Array:
    return A.matvec(x / divisors)


def _divide_adjoint(r: Array, A: LinearOperator, divisors: Array) -> Array:
    return A.rmatvec(r) / divisors
