"""Products of designs that are decoded block by block: loops that never hold more than a block in
float."""

import functools
from collections.abc import Callable
from typing import Any, Self

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import SymbolicZero

from jaxht._dataclass import replace
from jaxht._loops import fori_loop
from jaxht._typing import Array, ArrayDType
from jaxht.designs.protocol import Design

#: A function of a block of decoded entries, entry by entry.
Entrywise = Callable[[Array], Array]

#: A product of a design with the columns of a matrix.
Product = Callable[[Any, Array], Array]

#: What :func:`loop` does with a block.
Body = Callable[[Array, Array, Any], Any]


def unchanged(block: Array) -> Array:
    """The entries themselves."""
    return block


class Coded(Design):
    """A design A (n, d) of small integers: its products from those that it has for matrices of c
    columns, unscaled.

    ``fill`` is the only float field that ``times`` and ``transposed`` depend on.

    Args:
        fill: (d,) what missing entries count as.
        scale: (d,) what columns are divided by.
    """

    fill: Array
    scale: Array

    @property
    def dtype(self) -> ArrayDType:
        """The dtype of products."""
        return self.fill.dtype

    def gathers(self, k_max: int | None) -> bool:
        """True: columns are available."""
        return True

    def matvec(self, x: Array) -> Array:
        """``A x``, from (d,) to (n,), or from (d, c) to (n, c). Cost: n d c, or that of the
        nonzeros of x."""
        scaled = (x.T / self.scale).T
        return _by_columns(_times, self, scaled)

    def rmatvec(self, r: Array) -> Array:
        """``A^T r``, from (n,) to (d,), or from (n, c) to (d, c). Cost: n d c."""
        images = _by_columns(_transposed, self, r)
        return (images.T / self.scale).T

    def squared(self, weights: Array) -> Array:
        """``sum_i weights_i A_ij^2`` for all j, (d,). Cost: n d."""
        sums = self.transposed(weights[:, None], jnp.square)
        return sums[:, 0] / self.scale**2

    def row_norms(self) -> Array:
        """Euclidean norms of the rows, (n,). Cost: n d."""
        weights = 1 / self.scale**2
        squares = self.times(weights[:, None], jnp.square)
        return jnp.sqrt(squares[:, 0])

    divides_columns = True

    def divide_columns(self, divisors: Array, norms: Array | None) -> Self:
        """The same integers with other scales."""
        return replace(self, scale=self.scale * divisors)

    def fill_and_scale(self, indices: Array) -> tuple[Array, Array]:
        """``fill`` and ``scale`` of the columns at ``indices``; 1 where an index is d."""
        read = functools.partial(jnp.take, indices=indices, mode="fill", fill_value=1)
        return read(self.fill), read(self.scale)

    def times(self, u: Array, entrywise: Entrywise = unchanged, skip: bool = False) -> Array:
        """``entrywise(A) u``, from (d, c) to (n, c), without the division by ``scale``.

        With ``skip``, blocks of columns that meet only zeros may be left out.
        """
        raise NotImplementedError

    def transposed(self, u: Array, entrywise: Entrywise = unchanged) -> Array:
        """``entrywise(A)^T u``, from (n, c) to (d, c), without the division by ``scale``."""
        raise NotImplementedError


def _by_columns(product: Product, A: Coded, u: Array) -> Array:
    """A product with a vector, or with the columns of a matrix, in the dtype that holds the numbers
    of both."""
    dtype = jnp.result_type(A.fill, u)
    A = replace(A, fill=A.fill.astype(dtype))
    u = u.astype(dtype)
    if u.ndim > 1:
        return product(A, u)
    image = product(A, u[:, None])
    return image[:, 0]


def loop(size: int, block: int, body: Body, start: Any) -> Any:
    """``carry = body(first, new, carry)`` for blocks of ``block`` of ``size`` indices, from the
    index ``first`` on.

    The last block overlaps the one before, so that all have one length: ``new`` (block,) is False
    where it does. A reverse pass decodes anew and keeps nothing that is as large as A.
    """

    @functools.partial(jax.checkpoint, prevent_cse=False)
    def step(i, carry):
        first = jnp.minimum(i * block, size - block)
        indices = first + lax.iota(jnp.int32, block)
        new = indices >= i * block
        return body(first, new, carry)

    num_blocks = -(-size // block)
    return fori_loop(0, num_blocks, step, start)


def take(array: Array, first: Array, block: int) -> Array:
    """A block of an array along the first axis."""
    return lax.dynamic_slice_in_dim(array, first, block)


def put(array: Array, part: Array, first: Array) -> Array:
    """The array with a block replaced along the first axis."""
    return lax.dynamic_update_slice_in_dim(array, part, first, 0)


def _product(plain: Product, primal: Product) -> Any:
    """A product with ``primal`` as its value and the derivatives of ``plain``, whose lanes become
    columns of u."""
    lanes = custom_vmap(primal)

    @lanes.def_vmap
    def vmapped(axis_size, in_batched, A, u):
        A_batched, _ = in_batched
        if any(jax.tree.leaves(A_batched)):
            axes = jax.tree.map(lambda batched: 0 if batched else None, tuple(in_batched))
            return jax.vmap(plain, axes)(A, u), True
        u = jnp.moveaxis(u, 0, -1)
        columns = u.reshape(len(u), -1)
        images = lanes(A, columns)
        images = images.reshape(len(images), *u.shape[1:])
        return jnp.moveaxis(images, -1, 0), True

    product = jax.custom_jvp(lanes)

    @functools.partial(product.defjvp, symbolic_zeros=True)
    def jvp(primals, tangents):
        A, u = primals
        dA, du = tangents

        def of_u(u):
            return plain(A, u)

        def of_fill(fill):
            return plain(replace(A, fill=fill), u)

        terms = []  # of `jax.linearize`, since JAX 0.7 cannot transpose a loop of a rule as it is
        if not isinstance(du, SymbolicZero):
            _, derivative = jax.linearize(of_u, u)
            terms.append(derivative(du))
        if not isinstance(dA.fill, SymbolicZero):
            _, derivative = jax.linearize(of_fill, A.fill)
            terms.append(derivative(dA.fill))
        return product(A, u), sum(terms)

    return product


_times = _product(lambda A, u: A.times(u), lambda A, u: A.times(u, skip=True))
_transposed = _product(lambda A, u: A.transposed(u), lambda A, u: A.transposed(u))
