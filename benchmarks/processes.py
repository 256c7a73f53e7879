"""Weak scaling: a step of IHT on the rows of two processes together, and on those of each by
itself.

``python -m benchmarks processes [--rows n] [--columns d]`` starts two processes of one core each
(gloo), with n rows each. Together they take steps for all 2 n rows, and exchange d numbers a step;
by itself each takes as many for its own n, at the same time as the other. Without communication
both would take as long.
"""

import argparse
import functools
import os
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxht
from benchmarks.timing import interleaved, report
from examples.distributed import free_port, run_all

NUM_PROCESSES, NUM_STEPS, k = 2, 100, 50


def own_rows(process: int, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """A Gaussian design of n rows, and the targets of one signal that all processes share."""
    signal = np.random.default_rng(0).standard_normal(d, np.float32) * (np.arange(d) < k)
    A = np.random.default_rng(1 + process).standard_normal((n, d), np.float32)
    return A, A @ signal


@functools.partial(jax.jit, static_argnames="n")
def take_steps(A: Any, y: jax.Array, n: int) -> jax.Array:
    """The value after the steps, which have no other end; n: all rows of A."""
    stop = jaxht.Stop(max_steps=NUM_STEPS, rtol=0.0)
    step_size = 1 / (2.0 * (n**0.5 + A.shape[1] ** 0.5) ** 2)
    return jaxht.solve(
        jaxht.LeastSquares(A, y, mean=False),
        jaxht.Sparse(k, k_max=k),
        jaxht.IHT(step_size),
        stop=stop,
    ).value


def measure(n: int, d: int) -> None:
    """Print milliseconds a step and the ratio, in one process of several."""
    A, y = own_rows(jax.process_index(), n, d)
    rows = NamedSharding(Mesh(np.array(jax.devices()), ("rows",)), P("rows"))
    together = jaxht.design(A, rows), jax.make_array_from_process_local_data(rows, y)
    alone = jnp.asarray(A), jnp.asarray(y)
    meet = jax.jit(jnp.sum)  # of the targets of all: no process goes on before the others

    def solve(A: Any, y: jax.Array, n: int) -> jax.Array:
        jax.block_until_ready(meet(together[1]))
        return take_steps(A, y, n)

    candidates = {
        "each by itself": functools.partial(solve, *alone, n),
        "together": functools.partial(solve, *together, n * jax.process_count()),
    }
    seconds = interleaved(candidates, repeats=9)
    if jax.process_index() == 0:
        title = f"a step of IHT, {jax.process_count()} processes of one core, {n} x {d} each"
        report(title, seconds, baseline="each by itself", per=NUM_STEPS, unit="ms")


def main(arguments: list[str]) -> None:
    """Start the processes, or be one of them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks processes")
    parser.add_argument("--rows", type=int, default=4096, help="of each process")
    parser.add_argument("--columns", type=int, default=4096)
    parser.add_argument("--process", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--address", default=f"localhost:{free_port()}", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.process is None:
        each = [
            sys.executable,
            "-m",
            "benchmarks",
            "processes",
            *arguments,
            "--address",
            options.address,
            "--process",
        ]
        sys.exit(run_all(each, NUM_PROCESSES))
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[options.process]})
    jax.distributed.initialize(options.address, NUM_PROCESSES, options.process)
    measure(options.rows, options.columns)
