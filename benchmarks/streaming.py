"""Solvers on a file that memory need not hold, against NumPy on the same chunks of it.

The file is float32, n x d, sparse on the disk but for some blocks of rows of random numbers: the
others are zeros, which are read and multiplied like any numbers, but come from no disk. NumPy reads
each chunk into one buffer and multiplies it (``A x``, or ``A'r``); a pass of a solver is one such
product. Turns alternate. The last line is the largest resident memory of this process, in which the
pages of the file do not count, since it is read and not mapped.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

import jaxht
from benchmarks.timing import peak_memory

K, BLOCKS = 20, 40
SOLVERS = {
    "IHT": jaxht.IHT(step_size=0.5),
    "NIHT": jaxht.NIHT(),
    "HTP": jaxht.HTP(),
    "GraSP": jaxht.GraSP(),
    "OMP": jaxht.OMP(),
    "SVRGHT": jaxht.SVRGHT(batch_size=256, inner_steps=20),
    "HSGHT": jaxht.HSGHT(batch_size=256, inner_steps=20),
}


def write(path: Path, n: int, d: int) -> np.ndarray:
    """Make the file, and return the targets, (n,)."""
    rng, rows = np.random.default_rng(0), max(1, min(n // BLOCKS, 2**22 // d))
    y, x = np.zeros(n, np.float32), np.zeros(d, np.float32)
    x[rng.choice(d, K, replace=False)] = rng.choice([-1, 1], K) * rng.uniform(1, 2, K)
    with path.open("wb") as file:
        file.truncate(4 * n * d)
        for first in np.linspace(0, n - rows, BLOCKS).astype(int):
            block = rng.standard_normal((rows, d), np.float32)
            file.seek(4 * int(first) * d)
            file.write(block.tobytes())
            y[first : first + rows] = block @ x + 0.1 * rng.standard_normal(rows)
    return y


def numpy_products(
    path: Path, n: int, d: int, rows: int
) -> tuple[Callable[[], object], Callable[[], object]]:
    """``A x`` and ``A'r``, chunk by chunk."""
    buffer, x, r = np.empty((rows, d), np.float32), np.ones(d, np.float32), np.ones(n, np.float32)

    def over_chunks(product: Callable[[int, np.ndarray], object]) -> None:
        with path.open("rb", buffering=0) as file:
            for first in range(0, n, rows):
                chunk = buffer[: min(rows, n - first)]
                left = memoryview(chunk.data).cast("B")
                while left:
                    left = left[file.readinto(left) :]
                product(first, chunk)

    def forward() -> None:
        out = np.empty(n, np.float32)
        over_chunks(lambda first, chunk: np.matmul(chunk, x, out=out[first : first + len(chunk)]))

    def backward() -> None:
        out = np.zeros(d, np.float32)
        over_chunks(
            lambda first, chunk: np.add(out, r[first : first + len(chunk)] @ chunk, out=out)
        )

    return forward, backward


def main(arguments: list[str]) -> None:
    """Print GB/s of NumPy and of each solver, and the largest memory."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks streaming", description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=0.5, help="of the file; 10^9 bytes each")
    parser.add_argument("--columns", type=int, default=4096, help="d")
    parser.add_argument("--steps", type=int, default=3, help="of each solver")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument(
        "--folder", help="where the file is written; default: that of temporary files"
    )
    parser.add_argument("solvers", nargs="*", help=f"of {', '.join(SOLVERS)}; default: all")
    options = parser.parse_args(arguments)
    d = options.columns
    n = int(options.gigabytes * 1e9 / (4 * d))
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder, "A.bin")
        y = write(path, n, d)
        print(
            f"{n} x {d} float32, {4 * n * d / 1e9:.1f} GB, {jax.devices()[0].device_kind}; {options.steps} steps"
        )
        A = jaxht.stream(np.memmap(path, np.float32, "r", shape=(n, d)))
        products = numpy_products(path, n, d, A.reader.chunk_rows)
        for name in options.solvers or SOLVERS:
            compare(name, A, y, products, options.steps, options.turns)
    print(f"peak memory {peak_memory() / 1e9:.2f} GB")


def compare(
    name: str,
    A: jaxht.designs.Streamed,
    y: np.ndarray,
    products: tuple[Callable[[], object], ...],
    steps: int,
    turns: int,
) -> None:
    """Print the bytes a second of a solver, of NumPy around it, and their ratio turn by turn."""
    f = jaxht.LeastSquares(A, y, mean=True)
    size, reader = 4 * A.shape[0] * A.shape[1] / 1e9, A.reader

    def run(steps: int = steps) -> float:
        """GB/s."""
        stop = jaxht.Stop(max_steps=steps)
        before, begin = reader.num_rows, time.perf_counter()
        jax.block_until_ready(
            jaxht.solve(f, jaxht.Sparse(K), SOLVERS[name], stop=stop, key=jax.random.key(0))
        )
        return 4 * (reader.num_rows - before) * A.shape[1] / 1e9 / (time.perf_counter() - begin)

    def numpy() -> float:
        begin = time.perf_counter()
        for product in products:
            product()
        return 2 * size / (time.perf_counter() - begin)

    run(steps=0)  # compiles
    ours, theirs = [], [numpy()]
    before = reader.num_passes
    for _ in range(turns):
        ours.append(run())
        theirs.append(numpy())
    ratios = np.array(ours) / ((np.array(theirs[1:]) + np.array(theirs[:-1])) / 2)
    passes = (reader.num_passes - before) // turns
    print(
        f"  {name:8s} {passes:4d} passes  {np.median(ours):6.2f} GB/s, NumPy {np.median(theirs):6.2f} GB/s, "
        f"ratio {np.median(ratios):.2f} ({np.min(ratios):.2f} to {np.max(ratios):.2f})",
        flush=True,
    )
