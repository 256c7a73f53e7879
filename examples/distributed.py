"""One problem on several processes, each with its own rows; a run that is killed goes on from its
last checkpoint.

``python -m examples.distributed --processes 2`` starts the processes on this machine. On a cluster
every process runs ``python -m examples.distributed --address HOST:PORT --processes 8 --process I``
with one folder that all of them see.

Sparse least squares by IHT: A (n, d) is sharded over rows, x is on all processes. A step moves d
numbers.
"""

import argparse
import functools
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
import scipy.sparse
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxht
from jaxht import IHT, LeastSquares, Sparse, Stop
from jaxht.extend import Carry, Problem, advance, finish, prepare, start

N, D, K = 4096, 2000, 20
SILENT = 30  # seconds after which a process that says nothing counts as dead


def own_rows(process: int, num_processes: int) -> tuple[scipy.sparse.csr_array, np.ndarray]:
    """The rows of one process; in practice they are read from its files. Together they are the same
    for any number."""
    rng = np.random.default_rng(0)
    A = scipy.sparse.random(N, D, 0.02, "csr", np.float32, rng, data_rvs=rng.standard_normal)
    x = np.zeros(D, np.float32)
    x[rng.choice(D, K, replace=False)] = rng.choice([-1, 1], K) * rng.uniform(1, 2, K)
    y = A @ x + 0.1 * rng.standard_normal(N).astype(np.float32)
    rows = slice(process * N // num_processes, (process + 1) * N // num_processes)
    return scipy.sparse.csr_array(A[rows]), y[rows]


def problem(A: Any, y: Any) -> tuple[Problem, Any, Any]:
    """The problem, its start and its key; within jit, since no process has the whole of A and y."""
    return prepare(
        LeastSquares(A, y, mean=False), Sparse(K), IHT(), stop=Stop(max_steps=2000, rtol=1e-7)
    )


def solve(folder: Path, every: int, most: int | None) -> dict[str, Any]:
    """Advance from the last checkpoint, and write one after every so many steps; ``most``: steps of
    this call."""
    mesh = Mesh(np.array(jax.devices()), ("rows",))
    rows, everywhere = NamedSharding(mesh, P("rows")), NamedSharding(mesh, P())
    A_own, y_own = own_rows(jax.process_index(), jax.process_count())
    data = jaxht.design(A_own, rows), jax.make_array_from_process_local_data(rows, y_own)

    jit = functools.partial(
        jax.jit, out_shardings=everywhere
    )  # of x and the like: the whole on every process
    carry: Carry = jit(lambda A, y: start(*problem(A, y)))(*data)
    move = jit(lambda A, y, carry: advance(problem(A, y)[0], carry, every))
    leaves, structure = jax.tree.flatten(carry)
    with ocp.CheckpointManager(
        folder, options=ocp.CheckpointManagerOptions(max_to_keep=2)
    ) as checkpoints:
        if (last := checkpoints.latest_step()) is not None:
            like = [
                jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=everywhere) for leaf in leaves
            ]
            restored = checkpoints.restore(last, args=ocp.args.StandardRestore(like))
            carry = jax.tree.unflatten(structure, restored)
            say(f"goes on at step {int(carry.num_steps)}")
        begin = int(carry.num_steps)
        while int(carry.status) == jaxht.Status.RUNNING and (
            most is None or int(carry.num_steps) < begin + most
        ):
            carry = move(*data, carry)
            checkpoints.save(
                int(carry.num_steps), args=ocp.args.StandardSave(jax.tree.leaves(carry))
            )
            say(f"step {int(carry.num_steps)}, f = {float(carry.iterate.value):.6g}")
    result = jit(lambda A, y, carry: finish(problem(A, y)[0], carry))(*data, carry)
    support = np.flatnonzero(result.x).tolist()
    return {
        "support": support,
        "value": float(result.value),
        "status": int(result.status),
        "steps": int(carry.num_steps),
    }


def say(text: str) -> None:
    """Print it once."""
    if jax.process_index() == 0:
        print(text, flush=True)


def main(arguments: list[str]) -> None:
    """One process, or as many as are asked for."""
    parser = argparse.ArgumentParser(prog="python -m examples.distributed")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--process", type=int, help="which one this is; by default all are started here"
    )
    parser.add_argument(
        "--address",
        default="",
        help="host and port of process 0; by default a free port of this host",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("results/distributed"),
        help="of checkpoints and results",
    )
    parser.add_argument(
        "--every", type=int, default=20, help="steps between checkpoints: so many are lost at most"
    )
    parser.add_argument("--steps", type=int, help="end after so many, to go on later")
    options = parser.parse_args(arguments)
    address = options.address or f"localhost:{free_port()}"
    if options.process is None:
        each = [
            sys.executable,
            "-m",
            "examples.distributed",
            *arguments,
            "--address",
            address,
            "--process",
        ]
        sys.exit(run_all(each, options.processes))
    jax.distributed.initialize(
        address, options.processes, options.process, heartbeat_timeout_seconds=SILENT
    )
    found = solve(options.folder.resolve() / "checkpoints", options.every, options.steps)
    if jax.process_index() == 0:
        (options.folder / "result.json").write_text(json.dumps(found))
        print(found, flush=True)


def run_all(command: list[str], number: int) -> int:
    """Run a command in so many processes, each with its number for a last argument; the largest
    exit status."""
    children = [subprocess.Popen([*command, str(i)]) for i in range(number)]
    return max(abs(child.wait()) for child in children)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as some:
        some.bind(("localhost", 0))
        return int(some.getsockname()[1])


if __name__ == "__main__":
    main(sys.argv[1:])
