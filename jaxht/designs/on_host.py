"""Products that are computed on the host, and designs of them: the linear operators of SciPy."""

import contextlib
import threading
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxht._typing import Array
from jaxht.designs.operator import LinearOperator, check_adjoint
from jaxht.linalg.inner_products import is_complex

__all__ = ["call_on_host", "has_products", "linear", "wrap_operator"]


def has_products(A: Any) -> bool:
    """Whether A is a linear operator of SciPy, or has its methods."""
    has_methods = all(callable(getattr(A, name, None)) for name in ("matvec", "rmatvec"))
    return has_methods and hasattr(A, "shape")


#: Operators that are linear and have the adjoint that they say.
_tested: Any = weakref.WeakSet()


def _is_tested(A: Any) -> bool:
    with contextlib.suppress(TypeError):
        return A in _tested
    return False


def wrap_operator(A: Any) -> LinearOperator:
    """A linear operator of SciPy as a design, whose products are callbacks; tested once.

    Raises:
        ValueError: for an operator that is not linear, or has no adjoint of its own.
    """
    if len(A.shape) != 2:
        raise ValueError(f"A must have shape (n, d); got {A.shape}")
    dtype = np.dtype(A.dtype or np.float64)
    if dtype.kind not in "fciub":
        raise ValueError(f"A must have real or complex numbers; got an operator of dtype {dtype}")
    shape = (int(A.shape[0]), int(A.shape[1]))
    product = HostProduct(A, shape)
    if not _is_tested(A):
        _test(product)
        with contextlib.suppress(TypeError):  # of what has no weak references
            _tested.add(A)
    default = complex if product.is_complex else float
    own = dtype if dtype in (np.float32, np.complex64) else default
    return LinearOperator(product, shape, adjoint=product.adjoint, dtype=own, check=False)


class HostProduct:
    """``v -> A v`` by a callback, or ``v -> A^T v``; that of the same operator is the same, so that
    a program is compiled once."""

    def __init__(self, operator: Any, shape: tuple[int, int], is_adjoint: bool = False) -> None:
        self.operator = operator
        self.shape = shape
        self.is_adjoint = is_adjoint

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HostProduct):
            return False
        return self.operator is other.operator and self.is_adjoint == other.is_adjoint

    def __hash__(self) -> int:
        return hash((id(self.operator), self.is_adjoint))

    def __repr__(self) -> str:
        return "A.rmatvec" if self.is_adjoint else "A.matvec"

    @property
    def adjoint(self) -> "HostProduct":
        """The product with the transpose."""
        return HostProduct(self.operator, self.shape, not self.is_adjoint)

    @property
    def size(self) -> int:
        """The length of the product."""
        return self.shape[1] if self.is_adjoint else self.shape[0]

    @property
    def is_complex(self) -> bool:
        """Whether the operator has complex numbers."""
        return np.dtype(self.operator.dtype or np.float64).kind == "c"

    def __call__(self, v: Array) -> Array:
        if not self.is_complex:
            if is_complex(v):
                return lax.complex(self(v.real), self(v.imag))
            return linear(self.call, self.adjoint.call, v, self.size)
        # As a real operator, whose transpose is the real operator of the adjoint.
        parts = jnp.concatenate([v.real, v.imag])
        image = linear(self.call, self.adjoint.call, parts, 2 * self.size)
        return lax.complex(image[: self.size], image[self.size :])

    def multiply(self, v: np.ndarray) -> np.ndarray:
        """The product of a vector, or of each of many (..., m), by the operator itself."""
        A = self.operator
        one, many = (A.rmatvec, "rmatmat") if self.is_adjoint else (A.matvec, "matmat")
        own = np.result_type(A.dtype or v.dtype, v.dtype)
        rows = v.reshape(-1, v.shape[-1]).astype(own)
        if len(rows) > 1 and hasattr(A, many):
            images = np.asarray(getattr(A, many)(rows.T)).T
        else:
            images = np.stack([np.asarray(one(row)) for row in rows])
        if np.iscomplexobj(images) and not self.is_complex:
            raise ValueError("complex numbers")
        return np.ascontiguousarray(images.reshape(*v.shape[:-1], self.size), v.dtype)

    def multiply_parts(self, parts: np.ndarray) -> np.ndarray:
        """The same of complex vectors, with the real parts of all entries before the imaginary
        ones."""
        real, imaginary = np.split(parts, 2, axis=-1)
        image = self.multiply(real + 1j * imaginary)
        return np.concatenate([image.real, image.imag], axis=-1)

    def call(self, v: Array) -> Array:
        """The callback, which has no derivative; of complex numbers it takes and gives parts."""
        if not self.is_complex:
            return call_on_host(self.multiply, jax.ShapeDtypeStruct((self.size,), v.dtype), v)
        parts = jax.ShapeDtypeStruct((2 * self.size,), v.dtype)
        return call_on_host(self.multiply_parts, parts, v)


def _test(product: HostProduct) -> None:
    """Raise ValueError where a product is not linear, or has no adjoint."""
    n, d = product.shape
    adjoint = product.adjoint
    kind = "complex" if product.is_complex else "real"
    for each, size in ((product, d), (adjoint, n)):
        try:
            each.multiply(np.zeros(size, complex if product.is_complex else float))
        except NotImplementedError as error:
            raise ValueError(
                "A must have a product with its transpose: "
                "scipy.sparse.linalg.LinearOperator(shape, matvec, rmatvec)"
            ) from error
        except ValueError as error:
            raise ValueError(
                f"{each} must map ({size},) to ({each.size},) in {kind} numbers; got {error}"
            ) from error
    check_adjoint(
        product.multiply, adjoint.multiply, product.shape, takes_complex=product.is_complex
    )


def call_on_host(
    function: Callable[..., np.ndarray],
    out: jax.ShapeDtypeStruct,
    *arguments: Array,
    vmap_method: str = "expand_dims",
) -> Array:
    """``function(*arguments)`` on the host, of NumPy's arrays, an array like ``out``.

    Where a context has turned JAX's 64 bits on, numbers pass as pairs of words: 64 bits are off in
    the threads of callbacks, and there JAX would round what it gives and takes.
    """
    splits = not _has_64_bits_everywhere()

    def words(dtype: Any) -> np.dtype:
        return np.dtype(np.uint32 if splits and dtype == np.float64 else dtype)

    dtypes = [argument.dtype for argument in arguments]

    def call(*arguments: Any) -> np.ndarray:
        numbers = [np.asarray(a).view(dtype) for a, dtype in zip(arguments, dtypes, strict=True)]
        with np.errstate(all="ignore"):  # as devices do
            return function(*numbers).view(words(out.dtype))

    *axes, size = out.shape
    size = size * np.dtype(out.dtype).itemsize // words(out.dtype).itemsize
    found = jax.pure_callback(
        call,
        jax.ShapeDtypeStruct((*axes, size), words(out.dtype)),
        *(argument.view(words(argument.dtype)) for argument in arguments),
        vmap_method=vmap_method,
    )
    return found.view(out.dtype)


def _has_64_bits_everywhere() -> bool:
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(jnp.result_type(float) == np.float64))
    thread.start()
    thread.join()
    return found[0]


def linear(
    product: Callable[[Array], Array], adjoint: Callable[[Array], Array], v: Array, size: int
) -> Array:
    """``product(v)``, of first length ``size``, whose transpose is ``adjoint``.

    The transpose that JAX derives would keep all chunks of a stream, and of a callback there is
    none. What has rules for vmap and both modes of derivatives, and takes the transpose from its
    caller, is the solution of a linear system: here of one whose right-hand side is (0, v) and
    whose solution is (product(v), 0).
    """
    zero = jnp.zeros((size, *v.shape[1:]), v.dtype)

    def solve(_: Any, pair: Array) -> Array:
        return jnp.concatenate([product(pair[size:]), jnp.zeros_like(v)])

    def solve_transposed(_: Any, pair: Array) -> Array:
        return jnp.concatenate([zero, adjoint(pair[:size])])

    # In one array: JAX 0.10 cannot transpose a system of two of which one cotangent is a symbolic
    # zero.
    return lax.custom_linear_solve(
        lambda pair: pair, jnp.concatenate([zero, v]), solve, solve_transposed
    )[:size]
