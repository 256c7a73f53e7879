"""A design whose rows lie on a disk: products read it chunk by chunk."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxht._dataclass import pytree, static
from jaxht._loops import scan
from jaxht._repr import short_repr
from jaxht._typing import Array, ArrayDType
from jaxht.designs import passes
from jaxht.designs.dense import Dense
from jaxht.designs.on_host import call_on_host, linear
from jaxht.designs.protocol import Design
from jaxht.designs.reading import PieceRows, Reader, Reading, make_reader
from jaxht.linalg.full_precision import matmul


@pytree
class Streamed(Design):
    """A design A (n, d) that is not in memory: made by :func:`jaxht.stream`.

    A product is a loop over chunks of rows, while a thread reads the next ones. On CPUs NumPy
    multiplies each chunk in the memory into which it was read; elsewhere each moves to the device.
    Lanes of a vmap share the chunks.

    Args:
        reader: static; what reads the chunks. Compared by identity: a stream compiles once.

    Cost: a product reads all of A, one pass; :meth:`rows` reads these rows alone. Memory: three
    chunks, four on other devices than CPUs, what is n or d long, and n k_max numbers where columns
    are gathered.

    Example:
        >>> import jax.numpy as jnp, numpy as np, jaxht
        >>> A = jaxht.stream(np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], np.float32), chunk_bytes=16)
        >>> A.shape, A.matvec(jnp.array([1.0, -1.0])).tolist(), A.rmatvec(jnp.array([1.0, 0.0, 1.0])).tolist()
        ((3, 2), [-1.0, -1.0, -1.0], [6.0, 8.0])
    """

    reader: Reader = static()

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return self.reader.source.shape

    @property
    def dtype(self) -> ArrayDType:
        """float32 or float64."""
        return self.reader.dtype

    def __repr__(self) -> str:
        return short_repr(
            self, shape=f"{self.shape}", dtype=f"{self.dtype}", chunk_rows=self.reader.chunk_rows
        )

    def __enter__(self) -> "Streamed":
        self.reader.watch()
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self.close()
        if self.reader.interrupted and kind is not KeyboardInterrupt:
            raise KeyboardInterrupt from error  # which came in the midst of a callback

    def close(self) -> None:
        """End the thread that reads ahead. A program that still runs fails at its next chunk; so
        does a later one."""
        self.reader.close()

    @property
    def has_cheap_columns(self) -> bool:
        """False: columns take a pass."""
        return False

    @property
    def in_memory(self) -> bool:
        """False."""
        return False

    def gathers(self, k_max: int | None) -> bool:
        """Whether k_max is known: columns take one pass, refits by products many."""
        return k_max is not None

    def matvec(self, x: Array) -> Array:
        """``A x``, from (d,) to (n,), or from (d, c) to (n, c). Cost: a pass."""
        return linear(self._matvec, self._rmatvec, self._promote(x), self.shape[0])

    def rmatvec(self, r: Array) -> Array:
        """``A^T r``, from (n,) to (d,), or from (n, c) to (d, c). Cost: a pass."""
        return linear(self._rmatvec, self._matvec, self._promote(r), self.shape[1])

    def columns(self, indices: Array) -> Array:
        """The columns at ``indices`` (k_max,) as rows (k_max, n); 0 where an index is d. Cost: a
        pass."""

        def on_device(indices: Array) -> Array:
            parts = self._map(
                lambda chunk: jnp.take(chunk, indices, axis=1, mode="fill", fill_value=0).T
            )
            chunks, k_max, b = parts.shape
            columns = jnp.moveaxis(parts, 0, 1).reshape(k_max, chunks * b)
            return columns[:, : self.shape[0]]

        return self._pass(passes.columns, on_device, indices)

    def rows(self, indices: Array) -> Dense:
        """The rows at ``indices`` (b,), as a design b x d; 0 where an index is n. Cost: the reading
        of these rows.

        Raises:
            ValueError: where A comes in chunks one after the other.
        """
        if isinstance(self.reader.source, PieceRows):
            raise PieceRows.no_random_access()
        shape = jax.ShapeDtypeStruct((indices.shape[0], self.shape[1]), self.dtype)
        return Dense(self._call(Reader.take, shape, indices))

    def gram_product(self, v: Array, weights: Array) -> Array:
        """``A^T (weights * (A v))``, for v (d,). Cost: one pass for both products."""

        def on_device(v: Array, weights: Array) -> Array:
            return self._sum(
                lambda chunk, weights: matmul(weights * matmul(chunk, v), chunk), weights
            )

        return self._pass(passes.gram_product, on_device, self._promote(v), self._promote(weights))

    def squared(self, weights: Array) -> Array:
        """``sum_i weights_i A_ij^2`` for all j, (d,). Cost: a pass."""

        def on_device(weights: Array) -> Array:
            return self._sum(lambda chunk, weights: matmul(weights, chunk**2), weights)

        return self._pass(passes.squared, on_device, self._promote(weights))

    def row_norms(self) -> Array:
        """Euclidean norms of the rows, (n,). Cost: a pass."""
        return self._map(lambda chunk: jnp.linalg.norm(chunk, axis=1)).reshape(-1)[: self.shape[0]]

    def _promote(self, v: Array) -> Array:
        """v, in the dtype of the products."""
        return v.astype(jnp.result_type(v, self.dtype))

    def _matvec(self, x: Array) -> Array:
        def on_device(rows: Array) -> Array:
            parts = self._map(lambda chunk: matmul(rows, chunk.T))  # (chunks, ..., b)
            return jnp.moveaxis(parts, 0, -2).reshape(*rows.shape[:-1], -1)[..., : self.shape[0]]

        return self._pass(passes.matvec, on_device, x.T).T

    def _rmatvec(self, r: Array) -> Array:
        def on_device(r: Array) -> Array:
            return self._sum(lambda chunk, r: matmul(r.T, chunk).T, r.T).T

        return self._pass(passes.rmatvec, on_device, r.T).T

    def _pass(
        self, on_host: Callable[..., np.ndarray], on_device: Callable[..., Array], *arguments: Array
    ) -> Array:
        """``on_host(reader, *arguments)`` on CPUs, else ``on_device(*arguments)``, from which
        derivatives come."""

        def by_callback(*arguments: Array) -> Array:
            return self._call(on_host, jax.eval_shape(on_device, *arguments), *arguments)

        @jax.custom_jvp
        def product(*arguments: Array) -> Array:
            return lax.platform_dependent(*arguments, cpu=by_callback, default=on_device)

        @product.defjvp
        def _(primals: tuple, tangents: tuple) -> tuple:
            return product(*primals), jax.jvp(on_device, primals, tangents)[1]

        return product(*arguments)

    def _map(self, function: Callable[[Array], Array]) -> Array:
        """``function(chunk)`` of each chunk, along a new first axis."""
        return lax.map(lambda i: function(self._chunk(i)), self._numbers())

    def _sum(self, function: Callable[[Array, Array], Array], along: Array) -> Array:
        """The sum of ``function(chunk, part)`` over the chunks, with the part of ``along`` (n, ...)
        at its rows."""
        m = self.reader.num_chunks
        b = self.reader.chunk_rows
        padded = jnp.pad(along, [(0, m * b - along.shape[0]), *[(0, 0)] * (along.ndim - 1)])
        parts = padded.reshape(m, b, *along.shape[1:])

        def add(total: Array, item: tuple[Array, Array]) -> tuple[Array, None]:
            return total + function(self._chunk(item[0]), item[1]), None

        start = jnp.zeros((self.shape[1], *along.shape[1:]), along.dtype)
        return scan(add, start, (self._numbers(), parts))[0]

    def _numbers(self) -> Array:
        return lax.iota(jnp.int32, self.reader.num_chunks)

    def _chunk(self, number: Array) -> Array:
        shape = jax.ShapeDtypeStruct((self.reader.chunk_rows, self.shape[1]), self.dtype)
        return self._call(Reader.chunk, shape, number, vmap_method="sequential")

    def _call(
        self,
        function: Callable[..., np.ndarray],
        out: jax.ShapeDtypeStruct,
        *arguments: Array,
        vmap_method: str = "expand_dims",
    ) -> Array:
        """``function(reader, *arguments)`` on the host, an array like ``out``."""
        on_host = functools.partial(function, self.reader)
        return call_on_host(on_host, out, *arguments, vmap_method=vmap_method)


def stream(
    source: Any,
    *,
    shape: tuple[int, int] | None = None,
    dtype: ArrayDType | None = None,
    chunk_bytes: int | None = None,
    on_progress: Callable[[Reading], None] | None = None,
    idle_seconds: float = 30.0,
) -> Streamed:
    """A design that is read from a disk, chunk by chunk, in every product: for an A that memory
    does not hold.

    Solvers run on it as on an array in memory: the same steps up to rounding, under jit and vmap.
    What counts is the number of passes: a step of :class:`jaxht.IHT`, :class:`jaxht.HTP` or
    :class:`jaxht.OMP` takes two, one of :class:`jaxht.NIHT` and :class:`jaxht.GraSP` three.

    Args:
        source: A, (n, d) of real numbers, cast chunk by chunk: an array of NumPy, a memory map
            among them, or one of Zarr or h5py; a path of a .npy or a .parquet file; or a function
            without arguments that returns a new iterator over chunks of rows, of any lengths,
            arrays or matrices of scipy.sparse.
        shape: (n, d) of a source that is a function; None: found by a pass over its chunks.
        dtype: float32 or float64; None: that of the data, the default float for
            integers; of a function whose shape is given, that of the first chunk.
        chunk_bytes: an int, the maximum size of the chunks that are read; chunks of Zarr and h5py
            arrays consist of whole chunks of the array, where at least one fits. None: 1 MB on
            CPUs, which fits in caches, and 16 MB elsewhere; increased, up to 64 MB, to hold 16 rows
            and a whole chunk of the array.
        on_progress: called with a :class:`jaxht.designs.Reading` after each chunk, from a thread of
            the program: for example what :func:`jaxht.sweep.progress_bar` gives, with ``unit="
            rows"``.
        idle_seconds: a float, after which the reading thread ends where no chunk is requested; the
            next request starts another one.

    Returns:
        A :class:`jaxht.designs.Streamed` for objectives. Inside a ``with`` block an interrupt
        (Ctrl-C) ends a run at its next chunk, where JAX would otherwise wait for the end of the
        program, and the reading thread ends with the block. Without a ``with`` block the thread
        ends ``idle_seconds`` after the last chunk that was requested.

    Raises:
        ValueError: naming the argument, for what is none of these.
        ImportError: for a .parquet file without pyarrow.

    A chunk that cannot be read ends the program that asked for it, with an error of JAX
    (``JaxRuntimeError`` or ``ValueError``) that names the rows and the cause. The next run reads
    anew.

    Cost: none, but for a pass where the shape of a function's chunks is not given. Memory: three or
    four chunks, and y and the predictions, which are n long; refits hold the n k_max numbers of
    their columns.

    Example:
        >>> import numpy as np, jaxht
        >>> rows = [np.eye(4, dtype=np.float32)[:3], np.eye(4, dtype=np.float32)[3:]]
        >>> A = jaxht.stream(lambda: iter(rows))
        >>> y = np.array([1.0, 4.0, 2.0, 3.0], np.float32)
        >>> jaxht.solve(jaxht.LeastSquares(A, y), jaxht.Sparse(2), jaxht.HTP()).x.tolist()
        [0.0, 4.0, 0.0, 3.0]
    """
    return Streamed(make_reader(source, shape, dtype, chunk_bytes, on_progress, idle_seconds))
