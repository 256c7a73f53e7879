"""Rows of a matrix that lie on a disk, read ahead by a thread while the device works on those
before."""

import atexit
import contextlib
import os
import queue
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxht._checks import check_count, warn_of_rounding
from jaxht._repr import describe
from jaxht._typing import ArrayDType

#: Writes the next ``len(out)`` rows into ``out`` (rows, d).
Fill = Callable[[np.ndarray], None]

# Bytes of a chunk by default: on CPUs, where those of a cursor stay in the caches and OpenBLAS
# multiplies one on one core, as the other reads; on other devices; and at most, for as many rows as
# a product should have to be efficient.
CHUNK_BYTES_ON_CPU = 2**20
CHUNK_BYTES_ON_DEVICE = 2**24
MAX_CHUNK_BYTES = 2**26
MIN_CHUNK_ROWS = 16
# Of a cursor: one chunk that is multiplied, or copied to the device, one that is ready, one that is
# being read.
BUFFERS = 3


@dataclass(frozen=True)
class Reading:
    """How far the reading of a stream is: what ``on_progress`` of :func:`jaxht.stream` is called
    with.

    Attributes:
        done: rows read so far, in all passes.
        total: None, since the number of passes is not known.
        note: the pass, and how much of it is done.
        executed: 0; what :func:`jaxht.sweep.progress_bar` shows of lanes.
    """

    done: int
    note: str
    total: None = None
    executed: int = 0


class Source(Protocol):
    """What rows are read from."""

    shape: tuple[int, int]
    dtype: np.dtype
    band: int  # rows that are stored, and so read, together

    def begin(self, row: int) -> Fill:
        """A function that reads on from a row."""
        ...

    def take(self, rows: np.ndarray) -> np.ndarray:
        """The rows at rising indices.

        Raises:
            ValueError: where rows can be read one after the other only.
        """
        ...


class ArrayRows:
    """Rows of what can be sliced: an array of NumPy, Zarr or h5py."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.shape = tuple(array.shape)
        self.dtype = np.dtype(array.dtype)
        first, *_ = getattr(array, "chunks", None) or (1,)
        self.band = first if isinstance(first, int) else 1  # those of Dask may differ in length

    def begin(self, row: int) -> Fill:
        """Slices."""

        def fill(out: np.ndarray) -> None:
            nonlocal row
            out[...] = self.array[row : row + len(out)]
            row += len(out)

        return fill

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Read rows by one index of them: ``oindex`` of Zarr."""
        return np.asarray(getattr(self.array, "oindex", self.array)[rows])


class FileRows:
    """Rows of a file, ordered by row: read, not mapped, since the pages of a map count as memory of
    the process."""

    band = 1

    def __init__(self, array: np.memmap) -> None:
        self.path = str(array.filename)
        self.offset = array.offset
        self.shape = array.shape
        self.dtype = array.dtype
        self.row_bytes = self.shape[1] * self.dtype.itemsize
        self.header = _read_header(self.path, self.offset)

    def begin(self, row: int) -> Fill:
        """Read from a place in the file on."""
        file = self._open()
        file.seek(self.offset + row * self.row_bytes)
        scratch = np.empty((0, self.shape[1]), self.dtype)

        def fill(out: np.ndarray) -> None:
            nonlocal scratch
            if out.dtype == self.dtype:
                return _read(file, out)
            if len(scratch) < len(out):
                scratch = np.empty(out.shape, self.dtype)
            _read(file, scratch[: len(out)])
            out[...] = scratch[: len(out)]

        weakref.finalize(fill, file.close)
        return fill

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Row by row."""
        out = np.empty((len(rows), self.shape[1]), self.dtype)
        with self._open() as file:
            for row, part in zip(rows.tolist(), out, strict=True):
                file.seek(self.offset + row * self.row_bytes)
                _read(file, part)
        return out

    def _open(self) -> Any:
        is_npy = self.header.startswith(np.lib.format.MAGIC_PREFIX)
        if is_npy and _read_header(self.path, self.offset) != self.header:
            raise ValueError(f"{self.path} has another shape or dtype than when it was opened")
        return open(self.path, "rb", buffering=0)


def _read_header(path: str, offset: int) -> bytes:
    """What stands before the rows: of a .npy file, their shape and dtype."""
    with open(path, "rb") as file:
        return file.read(offset)


def _read(file: Any, out: np.ndarray) -> None:
    """Fill an array from a file, which may give less than is asked for."""
    left = memoryview(out.data).cast("B")
    while left:
        count = file.readinto(left)
        if not count:
            raise ValueError(f"the file ends {len(left)} bytes too early")
        left = left[count:]


class PieceRows:
    """Rows that come in pieces of any lengths, one after the other: from a function that gives an
    iterator."""

    band = 1

    def __init__(
        self, pieces: Callable[[], Iterator[Any]], shape: tuple[int, int] | None, dtype: Any = None
    ) -> None:
        if shape is None or dtype is None:  # a pass finds what is not known
            rows = 0
            columns = 0
            dtypes: set[np.dtype] = set()
            for piece in map(_as_array, pieces()):
                if rows and piece.shape[1] != columns:
                    raise ValueError(f"pieces must have {columns} columns; got shape {piece.shape}")
                rows += len(piece)
                columns = piece.shape[1]
                dtypes.add(piece.dtype)
                if shape is not None:
                    break
            shape = shape or (rows, columns)
            dtype = np.result_type(*dtypes) if dtypes else float
        self.pieces = pieces
        self.shape = shape
        self.dtype = np.dtype(dtype)

    def begin(self, row: int) -> Fill:
        """Read from the first piece on, past the rows before."""
        n, d = self.shape
        pieces = iter(self.pieces())
        piece = np.empty((0, d))

        def advance(out: np.ndarray | None, count: int) -> None:
            nonlocal piece
            filled = 0
            while filled < count:
                while not len(piece):
                    found = next(pieces, None)
                    if found is None:
                        raise ValueError(f"the pieces end before row {n}, the number of rows")
                    piece = _as_array(found)
                    if piece.shape[1] != d:
                        raise ValueError(f"pieces must have {d} columns; got shape {piece.shape}")
                size = min(len(piece), count - filled)
                if out is not None:
                    out[filled : filled + size] = piece[:size]
                piece = piece[size:]
                filled += size

        advance(None, row)

        def fill(out: np.ndarray) -> None:
            nonlocal row
            advance(out, len(out))
            row += len(out)
            if row == n and (len(piece) or any(len(_as_array(rest)) for rest in pieces)):
                raise ValueError(f"the pieces have more than {n} rows")

        return fill

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Refused."""
        raise self.no_random_access()

    @staticmethod
    def no_random_access() -> ValueError:
        """The ValueError for solvers that draw rows."""
        return ValueError(
            "A must give any of its rows, which solvers that draw samples ask for; got chunks that come one after the "
            "other: write them to a .npy file or a Zarr array, or use a solver of full gradients, such as IHT or HTP"
        )


def _as_array(piece: Any) -> np.ndarray:
    _check_no_mask("pieces", piece)
    array = np.asarray(piece.toarray() if hasattr(piece, "toarray") else piece)  # of scipy.sparse
    if array.ndim != 2:
        raise ValueError(f"pieces must have shape (rows, d); got {array.shape}")
    return array


def _check_no_mask(name: str, value: Any) -> None:
    if isinstance(value, np.ma.MaskedArray):
        raise ValueError(
            f"{name} must be arrays without a mask, which would be lost: fill it first"
        )


def find_source(source: Any, shape: tuple[int, int] | None, dtype: Any) -> Source:
    """What rows are read from, by what the argument of :func:`jaxht.stream` is."""
    if isinstance(source, str | os.PathLike):
        suffix = Path(source).suffix
        if suffix == ".parquet":
            return _parquet(source)
        if suffix != ".npy":
            raise ValueError(
                f"source must be a path of a .npy or a .parquet file; got {os.fspath(source)!r}"
            )
        source = np.load(source, mmap_mode="r")
    if callable(source) and not hasattr(source, "shape"):
        return PieceRows(source, shape, dtype)
    _check_no_mask("source", source)
    if hasattr(source, "tocsr"):
        raise ValueError(
            "source must be a dense array; got a sparse one: pass it to jaxht.design, or "
            "lambda: iter([source])"
        )
    if not all(hasattr(source, name) for name in ("shape", "dtype", "__getitem__")):
        raise ValueError(
            "source must be an array (n, d), a path, or a function that returns a new iterator over chunks of rows; "
            f"got {describe(source)}"
        )
    if len(source.shape) != 2 or 0 in source.shape:
        raise ValueError(f"source must have shape (n, d) with n, d >= 1; got {tuple(source.shape)}")
    if shape is not None and tuple(source.shape) != tuple(shape):
        raise ValueError(f"shape must be that of source, {tuple(source.shape)}; got {shape}")
    # A view of a map has a base that is no map of a file: its place in the file is not known.
    whole = isinstance(source, np.memmap) and not isinstance(source.base, np.ndarray)
    if whole and source.filename and source.flags.c_contiguous and source.mode != "c":
        return FileRows(source)
    return ArrayRows(source)


def _parquet(path: Any) -> Source:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError("a .parquet file needs pyarrow: pip install pyarrow") from error

    def pieces() -> Iterator[np.ndarray]:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches():
                yield np.stack(
                    [column.to_numpy(zero_copy_only=False) for column in batch.columns], axis=1
                )

    with parquet.ParquetFile(path) as file:
        shape = file.metadata.num_rows, file.metadata.num_columns
    return PieceRows(pieces, shape)


class Reader:
    """Chunks of rows of a source, in a loop from the first to the last, read ahead by a thread.

    Programs ask for chunks by number. Two products that run side by side read at two places: then
    there are two cursors, which are alike, so that a request is served by any cursor that is at
    this chunk.

    Args:
        source: the rows.
        dtype: that of the chunks, float32 or float64.
        chunk_rows: b, rows in a chunk; the last one is padded with rows of 0.
        on_progress: called with a :class:`Reading` after each chunk, or None.
        idle_seconds: after which the thread ends, where nobody asks for a chunk.
    """

    def __init__(
        self,
        source: Source,
        dtype: ArrayDType,
        chunk_rows: int,
        on_progress: Callable[[Reading], None] | None,
        idle_seconds: float,
    ) -> None:
        self.source = source
        self.dtype = np.dtype(dtype)
        self.chunk_rows = chunk_rows
        self.on_progress = on_progress
        self.idle_seconds = idle_seconds
        self.num_chunks = -(-source.shape[0] // chunk_rows)
        self.lock = threading.Lock()
        self.cursors: list[_Cursor] = []
        self.closed = False
        self.num_rows = 0
        self.num_passes = 0
        self.signals: tuple[int, int] | None = None
        self.wakeup_fd = -1
        self.interrupted = False
        READERS.add(self)

    def chunk(self, number: Any) -> np.ndarray:
        """Chunk ``number``, (b, d). Called by programs."""
        i = int(number)
        with self.lock:
            self._check_open()
            cursor = next((cursor for cursor in self.cursors if cursor.number == i), None)
            if cursor is None:
                cursor = _Cursor(self, i)
            else:
                self.cursors.remove(cursor)
        try:
            rows = cursor.get()
        except BaseException:
            cursor.end()
            raise
        with self.lock:
            cursor.number = (i + 1) % self.num_chunks
            if self.closed or any(other.number == cursor.number for other in self.cursors):
                cursor.end()
            else:
                self.cursors.append(cursor)
            self._check_open()
            self._count(i)
        return rows

    def read(self) -> Iterator[tuple[slice, np.ndarray]]:
        """A pass: the chunks in their order, without padding, and where their rows are in A. Called
        by programs."""
        n = self.source.shape[0]
        for i in range(self.num_chunks):
            first = i * self.chunk_rows
            yield slice(first, first + self.chunk_rows), self.chunk(i)[: n - first]

    def take(self, indices: Any) -> np.ndarray:
        """The rows at ``indices`` (..., b), (..., b, d); 0 where an index is n. Called by
        programs."""
        with self.lock:
            self._check_open()
        n, d = self.source.shape
        places = np.asarray(indices)
        rows, inverse = np.unique(places, return_inverse=True)
        found = np.zeros((len(rows), d), self.dtype)
        inside = rows < n
        if np.any(inside):
            found[inside] = self.source.take(rows[inside])
        return found[inverse.reshape(places.shape)]

    def close(self) -> None:
        """End the threads; programs that still run fail at their next chunk."""
        with self.lock:
            self.closed = True
            for cursor in self.cursors:
                cursor.end()
            self.cursors.clear()
            self._unwatch()

    def fill(self, number: int, fill: Fill, out: np.ndarray) -> None:
        """Read chunk ``number`` from a source that is at it."""
        rows = min(self.chunk_rows, self.source.shape[0] - number * self.chunk_rows)
        try:
            fill(out[:rows])
        except Exception as error:
            first = number * self.chunk_rows
            where = f"rows {first} to {first + rows} of the stream could not be read"
            raise RuntimeError(f"{where}: {type(error).__name__}: {error}") from error
        out[rows:] = 0

    def watch(self) -> None:
        """Let an interrupt, until :meth:`close`, end programs at their next chunk.

        The main thread, which handles signals, waits for the program, and would see none before its
        end.
        """
        if self.signals is None and threading.current_thread() is threading.main_thread():
            self.signals = os.pipe()
            for end in self.signals:
                os.set_blocking(end, False)
            self.wakeup_fd = signal.set_wakeup_fd(self.signals[1], warn_on_full_buffer=False)

    def _unwatch(self) -> None:
        if self.signals is not None and threading.current_thread() is threading.main_thread():
            self._look_for_interrupts()
            own = self.signals[1]
            current = signal.set_wakeup_fd(-1)
            before = self.wakeup_fd if current == own else current
            signal.set_wakeup_fd(before, warn_on_full_buffer=False)
            for later in list(READERS):  # they pass signals on to what was there before this one
                if later.wakeup_fd == own:
                    later.wakeup_fd = self.wakeup_fd
            for end in self.signals:
                os.close(end)
            self.signals = None
            self.wakeup_fd = -1

    def _look_for_interrupts(self) -> None:
        if self.signals is not None:
            try:
                numbers = os.read(self.signals[0], 64)
                self.interrupted |= signal.SIGINT in numbers
                if self.wakeup_fd >= 0:  # of an event loop
                    os.write(self.wakeup_fd, numbers)
            except BlockingIOError:
                pass
            except KeyboardInterrupt:  # of the main thread, just after it has read
                self.interrupted = True
                raise

    def _check_open(self) -> None:
        self._look_for_interrupts()
        if self.closed or self.interrupted:
            raise RuntimeError("the stream is closed")

    def _count(self, i: int) -> None:
        self.num_passes += i == 0
        self.num_rows += min(self.chunk_rows, self.source.shape[0] - i * self.chunk_rows)
        if self.on_progress is not None:
            self.on_progress(
                Reading(self.num_rows, f"pass {self.num_passes}, {(i + 1) / self.num_chunks:.0%}")
            )


class _Cursor:
    """A thread that reads one chunk after the other, as far ahead as it has buffers."""

    def __init__(self, reader: Reader, number: int) -> None:
        self.reader = reader
        self.number = number
        self.ready: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.free: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.passes: queue.SimpleQueue[Any] = queue.SimpleQueue()  # that are asked for
        for _ in range(BUFFERS):
            self.free.put(_NEW)
        threading.Thread(
            target=self._read, args=(number,), name="jaxht.stream", daemon=True
        ).start()

    def get(self) -> np.ndarray:
        """The next chunk. Its buffer is free for another one once nobody holds the array, nor a
        view of it."""
        if self.number == 0:
            self.passes.put(_NEW)
        found = self.ready.get()
        if isinstance(found, BaseException):
            raise found
        return np.asarray(_Lease(found, self.free))

    def end(self) -> None:
        """Let the thread end."""
        self.passes.put(_END)
        self.free.put(_END)

    def _read(self, number: int) -> None:
        reader = self.reader
        fill = None
        try:
            while True:
                # What a pass reads may have changed since the one before.
                if number == 0 and self._wait_for(self.passes) is _END:
                    return
                buffer = self._wait_for(self.free)
                if buffer is _END or reader.closed:
                    return
                if buffer is _NEW:
                    buffer = np.empty((reader.chunk_rows, reader.source.shape[1]), reader.dtype)
                if fill is None or number == 0:
                    fill = reader.source.begin(number * reader.chunk_rows)
                reader.fill(number, fill, buffer)
                self.ready.put(buffer)
                number = (number + 1) % reader.num_chunks
        except BaseException as error:
            self.ready.put(error)
        finally:
            self.ready.put(RuntimeError("the stream is closed"))

    def _wait_for(self, items: "queue.SimpleQueue[Any]") -> Any:
        """The next item; an end where nobody has asked for a chunk for long."""
        reader = self.reader
        while True:
            with contextlib.suppress(queue.Empty):
                return items.get(timeout=reader.idle_seconds)
            with reader.lock:
                if reader.closed:
                    return _END
                # Else a chunk is being asked for, after which there is an item, or an end.
                if self in reader.cursors:
                    reader.cursors.remove(self)
                    return _END


class _Lease:
    """A buffer that is given back when the last array on it is gone: of views, the base is this
    object."""

    def __init__(self, buffer: np.ndarray, free: "queue.SimpleQueue[Any]") -> None:
        self.buffer = buffer
        self.free = free
        self.__array_interface__ = buffer.__array_interface__

    def __del__(self) -> None:
        self.free.put(self.buffer)


_NEW = object()
_END = object()
READERS: weakref.WeakSet[Reader] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """A program that is still running ends, so that the process can."""
    for reader in list(READERS):
        reader.close()


def make_reader(
    source: Any,
    shape: tuple[int, int] | None,
    dtype: Any,
    chunk_bytes: int | None,
    on_progress: Callable[[Reading], None] | None,
    idle_seconds: float,
) -> Reader:
    """A reader from the arguments of :func:`jaxht.stream`, checked."""
    if shape is not None and not (
        isinstance(shape, tuple)
        and len(shape) == 2
        and all(isinstance(s, int | np.integer) and s > 0 for s in shape)
    ):
        raise ValueError(f"shape must be a pair of ints (n, d), at least 1; got {shape!r}")
    if chunk_bytes is not None:
        check_count("chunk_bytes", chunk_bytes)
    if on_progress is not None and not callable(on_progress):
        raise ValueError(f"on_progress must be a function or None; got {describe(on_progress)}")
    rows = find_source(source, shape, dtype)
    if 0 in rows.shape:
        raise ValueError(
            f"source must have at least one row and one column; got shape {rows.shape}"
        )
    if rows.dtype.kind not in "fiub":
        raise ValueError(f"source must be real; got dtype {rows.dtype}")
    if dtype is None:
        warn_of_rounding(np.zeros(1, rows.dtype))
        if rows.dtype.kind != "f":
            dtype = float
        else:
            dtype = rows.dtype.newbyteorder("=") if rows.dtype.itemsize >= 4 else np.float32
    dtype = jax.dtypes.canonicalize_dtype(dtype)
    if dtype not in (jnp.float32, jnp.float64):
        raise ValueError(f"dtype must be float32 or float64; got {dtype}")
    n, d = rows.shape
    row_bytes = d * dtype.itemsize
    if chunk_bytes is None:
        on_cpu = jax.default_backend() == "cpu"
        usual = CHUNK_BYTES_ON_CPU if on_cpu else CHUNK_BYTES_ON_DEVICE
        least = max(MIN_CHUNK_ROWS, rows.band) * row_bytes
        chunk_bytes = min(max(usual, least), MAX_CHUNK_BYTES)
    chunk_rows = max(1, chunk_bytes // row_bytes)
    whole_bands = chunk_rows // rows.band * rows.band
    return Reader(rows, dtype, min(n, whole_bands or chunk_rows), on_progress, idle_seconds)
