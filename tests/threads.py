"""Calls every solver in batches from several threads at once: `python -m tests.threads [--calls
200] [NAME...]`.

A program that waits for ever ends the process with the stacks of all threads. To be run in a
process of its own, with XLA's default number of threads.
"""

import argparse
import faulthandler
import sys
import threading
import time

import jax
import numpy as np

import jaxht
from jaxht import ensembles
from tests.contract import TABLE

THREADS = 4
LANES = 256
K_MAX = 16
TIMEOUT = 60.0  # seconds without a call that returns


def make_problem(name):
    """A function of a key that runs a solver on a problem of its own, few steps long."""
    solver = TABLE[name].solver

    def solve(key):
        A = jax.random.normal(key, (32, 40))
        objective = jaxht.LeastSquares(A, A[:, :K_MAX].sum(axis=1), 0.1, mean=True)
        constraint = jaxht.Sparse(K_MAX, k_max=K_MAX)
        return jaxht.solve(objective, constraint, solver, key=key, stop=jaxht.Stop(max_steps=2)).x

    return solve


def low_rank(key):
    """Decompositions of rows and columns, and of a small matrix."""
    A = jax.random.normal(key, (40, 32))
    objective = jaxht.MultiResponse(A, A @ jax.random.normal(key, (32, 30)))
    return jaxht.solve(objective, jaxht.LowRank(3), jaxht.HTP(), stop=jaxht.Stop(max_steps=2)).x


def graph(key):
    """Cholesky factors, and eigendecompositions in the refits."""
    X = ensembles.gaussian_rows(key, 40, np.eye(12, dtype=np.float32) + 0.2)
    objective = jaxht.GaussianPrecision(X.T @ X / 40, 0.1, 10.0)
    return jaxht.solve(objective, jaxht.Edges(8), jaxht.HTP(), stop=jaxht.Stop(max_steps=2)).x


def cosines(key):
    """Fourier transforms."""
    A = ensembles.partial_dct_operator(jax.random.key(0), 64, 256)
    y = jax.random.normal(key, (64,))
    return jaxht.solve(
        jaxht.LeastSquares(A, y, mean=False),
        jaxht.Sparse(8),
        jaxht.NIHT(),
        stop=jaxht.Stop(max_steps=2),
    ).x


PROBLEMS = {name: make_problem(name) for name in TABLE} | {
    "LowRank": low_rank,
    "Edges": graph,
    "DCT": cosines,
}


def call_from_threads(name, calls):
    """Call the program of a problem so many times, from all threads together, and compare what they
    get."""
    program = jax.jit(jax.vmap(PROBLEMS[name]))
    keys = jax.random.split(jax.random.key(0), LANES if name in TABLE else 32)
    expected = np.asarray(program(keys))
    wrong = []

    def call():
        for _ in range(calls // THREADS):
            faulthandler.dump_traceback_later(TIMEOUT, exit=True)
            if not np.array_equal(np.asarray(program(keys)), expected, equal_nan=True):
                wrong.append(name)

    threads = [threading.Thread(target=call, daemon=True) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        sys.exit(f"{name}: {len(wrong)} of {calls} calls returned something else than the first")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--calls", type=int, default=200, help="of each program, by all threads together"
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(PROBLEMS)}; default: all"
    )
    arguments = parser.parse_args()
    for name in arguments.names or PROBLEMS:
        start = time.monotonic()
        call_from_threads(name, arguments.calls)
        faulthandler.cancel_dump_traceback_later()
        seconds = time.monotonic() - start
        print(
            f"{name}: {arguments.calls} calls from {THREADS} threads in {seconds:.1f} s", flush=True
        )


if __name__ == "__main__":
    main()
