"""What solvers do with a design on eight devices; run by tests/test_sharding.py, in a process of
its own.

A line of JSON for each case: what came out on the devices and on one of them, and every transfer
between devices in the compiled program, as [operation, number of entries].
"""

import json
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxht
from jaxht import LeastSquares, Logistic, Sparse, Stop, solve

N, D, K = 256, 1024, 8
LAYOUTS = {"rows": P(("a", "b")), "columns": P(None, ("a", "b")), "both": P("a", "b")}
SOLVERS = {  # of few inner steps: in each the devices wait for one another
    "IHT": jaxht.IHT(),
    "NIHT": jaxht.NIHT(),
    "HTP": jaxht.HTP(),
    "CoSaMP": jaxht.CoSaMP(),
    "GraSP": jaxht.GraSP(),
    "OMP": jaxht.OMP(),
    "SGHT": jaxht.SGHT(0.1, 4, 16),
    "SVRGHT": jaxht.SVRGHT(0.1, 32, 4),
    "HSGHT": jaxht.HSGHT(0.1),
    "HTSAGA": jaxht.HTSAGA(0.02, inner_steps=32),
    "DIHT": jaxht.DIHT(),
    "SDIHT": jaxht.SDIHT(batch_size=16),
}


def problem(kind, seed=0):
    """A matrix as NumPy or SciPy have it, and y with K nonzeros, a little noise."""
    rng = np.random.default_rng(seed)
    if kind == "dense":
        A = rng.standard_normal((N, D)).astype(np.float32) / np.float32(N**0.5)
    else:
        A = scipy.sparse.random(N, D, 0.05, "csr", np.float32, rng, data_rvs=rng.standard_normal)
    x = np.zeros(D, np.float32)
    x[rng.choice(D, K, replace=False)] = rng.choice([-1, 1], K) * rng.uniform(1, 2, K)
    return A, A @ x + 0.01 * rng.standard_normal(N).astype(np.float32)


def transfers(compiled):
    """[operation, entries of its largest result] of every transfer between devices."""
    moved = []
    for line in compiled.as_text().splitlines():
        if found := re.search(
            r"= (.*?) (all-\w+|collective-permute|reduce-scatter|ragged-all-to-all)(?:-start)?\(",
            line,
        ):
            shapes = re.findall(r"\w+\[([\d,]*)\]", found[1])
            moved.append(
                [found[2], max(int(np.prod([int(n) for n in of.split(",") if n])) for of in shapes)]
            )
    return moved


def case(kind, layout, name, loss):
    """Solve on one device and on eight."""
    A, y = problem(kind)
    y = np.sign(y) if loss == "logistic" else y
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("a", "b"))
    places = LAYOUTS[layout]
    placed = (
        jaxht.design(A, NamedSharding(mesh, places)),
        jax.device_put(y, NamedSharding(mesh, P(*places[:1]))),
    )

    def run(A, y):
        f = LeastSquares(A, y, 1e-3, mean=True) if loss == "least squares" else Logistic(A, y, 1e-2)
        result = solve(
            f, Sparse(K, k_max=K), SOLVERS[name], key=jax.random.key(1), stop=Stop(max_steps=20)
        )
        return result.support.mask, result.value, result.status, result.x

    run = jax.jit(run, compiler_options={"xla_backend_optimization_level": 0})
    compiled = run.lower(*placed).compile()
    (mask, value, status, x), alone = compiled(*placed), run(jaxht.design(A), jnp.asarray(y))
    return {
        "case": [kind, layout, name, loss],
        "support": [np.flatnonzero(mask).tolist(), np.flatnonzero(alone[0]).tolist()],
        "value": [float(value), float(alone[1])],
        "status": [int(status), int(alone[2])],
        "error": float(jnp.abs(x - alone[3]).max()),
        "transfers": transfers(compiled),
    }


PRODUCTS = {
    "matvec": lambda A, x, r: A.matvec(x),
    "matvec of a matrix": lambda A, x, r: A.matvec(jnp.stack([x, x**2], 1)),
    "rmatvec": lambda A, x, r: A.rmatvec(r),
    "rmatvec of a matrix": lambda A, x, r: A.rmatvec(jnp.stack([r, r**2], 1)),
    "squared": lambda A, x, r: A.squared(r**2),
    "column norms": lambda A, x, r: A.column_norms(),
    "row norms": lambda A, x, r: A.row_norms(),
    "columns": lambda A, x, r: A.columns(jnp.array([5, D - 1, 0, D], jnp.int32)),
    "rows": lambda A, x, r: A.rows(ROWS).matvec(x),
    "rows transposed": lambda A, x, r: A.rows(ROWS).rmatvec(r[:5]),
    "standardised": lambda A, x, r: jaxht.standardize(A).design.matvec(x),
}
ROWS = np.array([3, 3, N - 1, N, 20], np.int32)


def product(name, A, whole):
    """A product on eight devices, against that of the matrix in one piece."""
    r, x = (jax.random.normal(jax.random.key(size), (size,)) for size in A.shape)
    compiled = jax.jit(PRODUCTS[name]).lower(A, x, r).compile()
    known = PRODUCTS[name](whole, x, r)
    error, size = (float(jnp.abs(v).max()) for v in (compiled(A, x, r) - known, known))
    return {"case": name, "error": error, "size": size, "transfers": transfers(compiled)}


def products(layout):
    """All of them, of a sparse matrix."""
    A, _ = problem("sparse")
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("a", "b"))
    blocks = jaxht.design(A, NamedSharding(mesh, LAYOUTS[layout]))
    return (product(name, blocks, jaxht.design(A)) for name in PRODUCTS)


if __name__ == "__main__":
    asked = sys.argv[1]
    for line in (
        products(asked) if asked in LAYOUTS else (case(*each) for each in json.loads(asked))
    ):
        print(json.dumps(line), flush=True)
