"""A matrix in a grid of blocks of one shape, which lie on the devices of a mesh."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

from jaxht._dataclass import pytree
from jaxht._typing import Array, ArrayDType
from jaxht.designs.chunks import Chunks, num_chunks
from jaxht.designs.dense import Dense
from jaxht.designs.protocol import Design
from jaxht.designs.sparse import SparseMatrix, may_gather, read_entries
from jaxht.designs.stacked import positions_within
from jaxht.linalg.inner_products import is_complex


@pytree
class ShardedMatrix(Design):
    r"""A design A (n, d) in R x C blocks, each on a device of its own; made by ``jaxht.design(A,
    sharding)``.

    .. math::
        (A x)_r = \sum_c A_{rc} x_c, \qquad (A^T y)_c = \sum_r A_{rc}^T y_r

    Every device multiplies its own block. A product ends with a sum over the devices, of n / R or d
    / C numbers each; no entry of A moves, not even those of a minibatch.

    Args:
        blocks: a :class:`jaxht.designs.Dense` or a :class:`jaxht.designs.SparseMatrix` whose arrays
            have two leading axes (R, C), sharded over the mesh.

    Cost: a product is one pass over the entries of a device; sparse ones are padded to as many as
    the fullest has.

    Example:
        >>> import jax, jax.numpy as jnp, numpy as np, scipy.sparse, jaxht
        >>> from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
        >>> mesh = Mesh(jax.devices()[:1], ("rows",))
        >>> A = jaxht.design(scipy.sparse.csr_array(np.eye(3, dtype=np.float32)), NamedSharding(mesh, P("rows")))
        >>> A.shape, A.matvec(jnp.arange(3.0)).tolist()
        ((3, 3), [0.0, 1.0, 2.0])
    """

    blocks: Any

    @classmethod
    def build(cls, A: Any, sharding: NamedSharding) -> "ShardedMatrix":
        """Cut the part of the matrix that this process has into blocks, on the host, and place them
        on its devices.

        Args:
            A: a NumPy array, or a sparse matrix as of :meth:`SparseMatrix.build`: the rows and
                columns that lie on the devices of this process.
            sharding: of an array of the shape of the whole matrix.

        Raises:
            ValueError: if rows or columns do not divide evenly.

        Cost: a copy; for a sparse matrix two sorts of the entries of each block.
        """
        grid, spec = _grid(sharding)
        corner, counts = _own(grid, spec)
        for axis, size, count in zip(("rows", "columns"), A.shape, counts, strict=True):
            if size % count:
                raise ValueError(
                    f"A must have {axis} that divide evenly over the {count} shards of this process; got {size}. "
                    "Append empty ones; rows take weight 0 in the objective"
                )
        R, C = counts
        m = A.shape[0] // R
        p = A.shape[1] // C
        if isinstance(A, np.ndarray):
            array = A.reshape(R, m, C, p)
            own: Any = Dense(np.moveaxis(array, 2, 1))
        else:

            def to_grid(leaf: np.ndarray) -> np.ndarray:
                return leaf.reshape(R, C, *leaf.shape[1:])

            own = jax.tree.map(to_grid, _sparse(A, counts, m, p))

        def place(array: np.ndarray) -> Array:
            dtype = jax.dtypes.canonicalize_dtype(array.dtype)
            array = array.astype(dtype, copy=False)

            def at(index: Any) -> np.ndarray:
                firsts = _first_block(index, grid)
                r, c = (first - start for first, start in zip(firsts, corner, strict=True))
                return array[r : r + 1, c : c + 1]

            shape = (*grid, *array.shape[2:])
            return jax.make_array_from_callback(shape, spec, at)

        return cls(jax.tree.map(place, own))

    @property
    def grid(self) -> tuple[int, int]:
        """(R, C)."""
        return _leading(self.blocks)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        R, C = self.grid
        m, p = self.blocks.shape[-2:]
        return R * m, C * p

    @property
    def dtype(self) -> ArrayDType:
        """The dtype of the values."""
        return self.blocks.dtype

    def gathers(self, k_max: int | None) -> bool:
        """Whether the design that the blocks are gathers columns; padding counts."""
        if isinstance(self.blocks, Dense):
            return True
        return k_max is not None and may_gather(k_max * self.shape[0], self.blocks.by_row)

    def matvec(self, x: Array) -> Array:
        """``A x``, from (d,) to (n,), or from (d, c) to (n, c)."""
        parts = _cut(x, self.grid[1])
        images = _map(self.blocks, lambda block, part: block.matvec(part), columns=parts)
        return _join(images.sum(axis=1))

    def rmatvec(self, r: Array) -> Array:
        """``A^T r``, from (n,) to (d,), or from (n, c) to (d, c)."""
        parts = _cut(r, self.grid[0])
        images = _map(self.blocks, lambda block, part: block.rmatvec(part), rows=parts)
        return _join(images.sum(axis=0))

    def squared(self, weights: Array) -> Array:
        """``sum_i weights_i A_ij^2`` for all j, (d,)."""
        parts = _cut(weights, self.grid[0])
        squares = _map(self.blocks, lambda block, part: block.squared(part), rows=parts)
        return _join(squares.sum(axis=0))

    def squared_about(self, center: Array, weights: Array) -> Array:
        """``sum_i weights_i (A_ij - center_j)^2`` for all j, (d,), of a real A."""
        own_weights = _cut(weights, self.grid[0])
        own_centers = _cut(center, self.grid[1])

        def sum_blocks(blocks: Any, part: Array) -> Array:
            return jax.vmap(lambda block, own: block.squared_about(own, part))(blocks, own_centers)

        squares = jax.vmap(sum_blocks)(self.blocks, own_weights)
        return _join(squares.sum(axis=0))

    def central_moments(self, weights: Array | None) -> tuple[Array, Array] | None:
        """Mean and variance of each column, from those of the blocks of rows; None of complex
        numbers."""
        if is_complex(self):
            return None
        n = self.shape[0]
        shares = jnp.full(n, 1 / n, self.dtype) if weights is None else weights
        parts = _cut(shares, self.grid[0])
        totals = parts.sum(axis=1)
        own = parts / jnp.where(totals > 0, totals, 1)[:, None]
        means, variances = _map(
            self.blocks, lambda block, share: block.central_moments(share), rows=own
        )
        totals = totals[:, None, None]
        # Of a block without weight they are 0 / 0.
        means = jnp.where(totals > 0, means, 0)
        variances = jnp.where(totals > 0, variances, 0)
        mean = jnp.sum(totals * means, axis=0)
        mean += jnp.sum(totals * (means - mean), axis=0)  # what the sum has lost
        variance = jnp.sum(totals * (variances + (means - mean) ** 2), axis=0)
        return _join(mean), _join(variance)

    def row_norms(self) -> Array:
        """Euclidean norms of the rows, (n,)."""
        norms = _map(self.blocks, lambda block: block.row_norms())
        squares = (norms**2).sum(axis=1)
        return _join(jnp.sqrt(squares))

    divides_columns = True

    def divide_columns(self, divisors: Array, norms: Array | None) -> "ShardedMatrix":
        """The matrix with each column divided by its number."""

        def divide(block: Any, own: Array) -> Any:
            return block.divide_columns(own, None)

        parts = _cut(divisors, self.grid[1])
        return ShardedMatrix(_map(self.blocks, divide, columns=parts))

    def columns(self, indices: Array) -> Array:
        """``A_F^T``: the columns at ``indices`` (k_max,), dense, as rows (k_max, n); 0 where an
        index is d."""
        local = _local(indices, self.grid[1], self.blocks.shape[-1])
        found = _map(
            self.blocks, lambda block, indices: block.columns(indices), columns=local
        )  # (R, C, k_max, m)
        of_rows = found.sum(axis=1)
        columns = jnp.moveaxis(of_rows, 0, 1)
        return columns.reshape(len(indices), self.shape[0])

    def rows(self, indices: Array) -> "RowsOfBlocks":
        """The rows at ``indices`` (b,), as a design (b, d); 0 where one is n. Each device reads
        those that it has."""
        local = _local(indices, self.grid[0], self.blocks.shape[-2])
        return RowsOfBlocks(
            _map(self.blocks, lambda block, indices: block.rows(indices), rows=local)
        )


@pytree
class RowsOfBlocks(Design):
    """Some rows of :class:`ShardedMatrix` as a design (b, d), the sum of what the devices have of
    them.

    Args:
        blocks: a :class:`jaxht.designs.Dense` or a :class:`jaxht.designs.SparseRows` whose arrays
            have two leading axes (R, C): rows that another block has are empty.
    """

    blocks: Any

    @property
    def shape(self) -> tuple[int, int]:
        """(b, d)."""
        b, p = self.blocks.shape[-2:]
        return b, p * _leading(self.blocks)[1]

    @property
    def dtype(self) -> ArrayDType:
        """The dtype of the values."""
        return self.blocks.dtype

    def matvec(self, x: Array) -> Array:
        """``A x``, from (d,) to (b,), or from (d, c) to (b, c)."""
        _, C = _leading(self.blocks)
        parts = _cut(x, C)
        images = _map(self.blocks, lambda block, x: block.matvec(x), columns=parts)
        return images.sum(axis=(0, 1))

    def rmatvec(self, r: Array) -> Array:
        """``A^T r``, from (b,) to (d,), or from (b, c) to (d, c)."""
        images = _map(self.blocks, lambda block: block.rmatvec(r))
        return _join(images.sum(axis=0))


def _leading(blocks: Any) -> tuple[int, int]:
    first, *_ = jax.tree.leaves(blocks)
    R, C = first.shape[:2]
    return R, C


def _map(
    blocks: Any, fun: Callable[..., Any], *, rows: Array | None = None, columns: Array | None = None
) -> Any:
    """``fun(block, part)`` of every block and its part of what is cut by rows or by columns of
    blocks."""
    if rows is columns is None:
        return jax.vmap(jax.vmap(fun))(blocks)
    if rows is not None:
        return jax.vmap(jax.vmap(fun, (0, None)))(blocks, rows)
    return jax.vmap(jax.vmap(fun), (0, None))(blocks, columns)


def _local(indices: Array, parts: int, size: int) -> Array:
    """Positions in each of the parts that rows or columns are cut into, (parts, b); ``size`` for
    those of others."""
    firsts = size * jnp.arange(parts, dtype=jnp.int32)[:, None]
    return positions_within(indices, firsts, size)


def _cut(v: Array, parts: int) -> Array:
    return jnp.asarray(v).reshape(parts, -1, *v.shape[1:])


def _join(v: Array) -> Array:
    return v.reshape(-1, *v.shape[2:])


def _grid(sharding: NamedSharding) -> tuple[tuple[int, int], NamedSharding]:
    """The numbers of shards of rows and columns, and the sharding of arrays with these as their
    leading axes."""
    spec = (*sharding.spec, None, None)[:2]
    sizes = sharding.mesh.shape

    def num_shards(names: str | tuple[str, ...] | None) -> int:
        """The number of shards along an axis of the array that is cut by these axes of the mesh."""
        if isinstance(names, str):
            return sizes[names]
        return math.prod(sizes[name] for name in names or ())

    R, C = map(num_shards, spec)
    return (R, C), NamedSharding(sharding.mesh, PartitionSpec(*spec))


def _first_block(index: Any, grid: tuple[int, int]) -> list[int]:
    """Row and column of the first block of a part of the grid, given by slices."""
    return [of.indices(size)[0] for of, size in zip(index[:2], grid, strict=True)]


def _own(grid: tuple[int, int], spec: NamedSharding) -> tuple[tuple[int, int], tuple[int, int]]:
    """The first block of rows and of columns of this process, and how many it has of each; they are
    side by side."""
    parts = spec.addressable_devices_indices_map(grid).values()
    places = np.array([_first_block(index or (), grid) for index in parts])
    corner = places.min(axis=0)
    last = places.max(axis=0)
    counts = last - corner + 1
    num_places = len(np.unique(places, axis=0))
    if num_places != counts.prod():
        raise ValueError(
            "sharding must give each process blocks that are side by side: rows in the order of processes"
        )
    r, c = corner.tolist()
    R, C = counts.tolist()
    return (r, c), (R, C)


def _sparse(A: Any, counts: tuple[int, int], m: int, p: int) -> SparseMatrix:
    """The blocks m x p of this process, one after the other along a leading axis."""
    rows, columns, values, _ = read_entries(A)
    parts = []
    for r, c in np.ndindex(*counts):
        inside = (rows // m == r) & (columns // p == c)
        i = rows[inside] - r * m
        j = columns[inside] - c * p
        parts.append((i, j, values[inside]))
    turned = []
    for i, j, v in parts:
        order = np.argsort(j, kind="stable")
        turned.append((j[order], i[order], v[order]))
    sizes = [len(v) for *_, v in parts]
    nnz: Any = np.array(sizes, np.int32)
    by_row = _stack(parts, (m, p))
    by_column = _stack(turned, (p, m))
    return SparseMatrix(by_row, by_column, nnz)


def _stack(parts: Sequence[tuple[Any, Any, Any]], shape: tuple[int, int]) -> Chunks:
    """The chunks of all blocks of this process, as many in each as the fullest block of all
    processes needs."""
    counts = [np.bincount(rows, minlength=shape[0]) for rows, *_ in parts]
    sizes = np.max([num_chunks(count) for count in counts], axis=0)
    if jax.process_count() > 1:
        sizes = np.max(multihost_utils.process_allgather(sizes), axis=0)
    built = [Chunks.build(rows, indices, values, shape, sizes) for rows, indices, values in parts]
    return jax.tree.map(lambda *arrays: np.stack(arrays), *built)
