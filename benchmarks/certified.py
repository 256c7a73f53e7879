"""Global optima with a certificate: branch and bound next to OKRidge, l0bnb and SCIP, on the
instances of their papers.

Each run is a process of its own. ``python -m benchmarks certified --rivals-python PYTHON`` takes
the interpreter of an environment with ``pip install okridge l0bnb pyscipopt requests 'numpy<2'``;
without it jaxht runs alone. All stop at a gap of 1e-4 of f: of OKRidge, whose f leaves out the
squares of y, of that; l0bnb has a price l0 for each coefficient in place of k, which is taken
between the decreases of f from the ninth and to the eleventh; SCIP solves the perspective
formulation, with cones. Data sets are those of JAXHT_DATA.

``first`` is the first call, with what is compiled, ``again`` a second one of the same process.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

# Neither jax nor jaxht: the rivals' environment has none.

TIME_LIMIT, SCIP_LIMIT = 300.0, 120.0
# Name: kind, n, d, correlation, l2 on the scale of 1/2 sum of squares, or of the mean for the
# logistic loss.
INSTANCES = {
    "OKRidge, equicorrelated": ("equicorrelated", 6000, 3000, 0.5, 1e-3),
    "OKRidge, Toeplitz": ("toeplitz", 6000, 3000, 0.5, 1e-3),
    "l0bnb, d = 1000": ("toeplitz", 1000, 1000, 0.1, 50.0),
    "l0bnb, d = 5000": ("toeplitz", 1000, 5000, 0.1, 50.0),
    "l0bnb, d = 10 000": ("toeplitz", 1000, 10_000, 0.1, 50.0),
    "logistic, l2 = 0.01": ("logistic", 1000, 1000, 0.1, 0.01),
    "logistic, l2 = 0.005": ("logistic", 1000, 1000, 0.1, 0.005),
}
K, SNR = 10, 5.0
# Data set of JAXHT_DATA, or diabetes of scikit-learn with all products: sizes, l2 on the scale of
# the mean; time limit.
DATA = {
    "cal_housing": ((3, 4), (0.0,)),
    "cpu_small": ((3, 5), (0.0,)),
    "diabetes, with products": ((5, 10), (0.0, 0.01)),
    "colon": ((5,), (0.1, 1.0)),
    "colon, logistic": ((5,), (0.01, 0.1)),
}
DATA_LIMIT = 60.0


def make_data(kind: str, n: int, d: int, correlation: float) -> tuple[np.ndarray, np.ndarray]:
    """A with standardised columns, and y: ten coefficients of 1 at equal distances, and noise."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((n, d))
    if kind == "equicorrelated":
        A = np.sqrt(1 - correlation) * A + np.sqrt(correlation) * rng.standard_normal((n, 1))
    else:
        for j in range(1, d):
            A[:, j] = correlation * A[:, j - 1] + np.sqrt(1 - correlation**2) * A[:, j]
    A = (A - A.mean(axis=0)) / A.std(axis=0)
    u = A[:, d // (2 * K) :: d // K][:, :K].sum(axis=1)
    y = u + rng.standard_normal(n) * np.sqrt(np.var(u) / SNR)
    return A, np.where(y > 0, 1.0, -1.0) if kind == "logistic" else y - y.mean()


# ---- in a process of its own ---------------------------------------------------------------------


def run_jaxht(name: str) -> dict[str, Any]:
    """Branch and bound, twice, and the price at which l0bnb finds the same support."""
    import jax

    import jaxht

    kind, n, d, correlation, l2 = INSTANCES[name]
    A, y = make_data(kind, n, d, correlation)
    f: Any = (
        jaxht.Logistic(A, y, l2) if kind == "logistic" else jaxht.LeastSquares(A, y, l2, mean=False)
    )
    seconds = []
    for _ in range(2):
        begin = time.perf_counter()
        best = jaxht.branch_and_bound(f, jaxht.Sparse(K), time_limit=TIME_LIMIT)
        seconds.append(time.perf_counter() - begin)
    found = {
        "first": seconds[0],
        "again": seconds[1],
        "value": best.value,
        "gap": best.gap / abs(best.value),
    }
    found |= {"root": (best.value - best.root_lower) / abs(best.value), "nodes": best.num_nodes}
    if name.startswith("l0bnb"):
        with jax.enable_x64(True):
            fewer, more = (float(jaxht.solve(f, jaxht.Sparse(K + step)).value) for step in (-1, 1))
        found["price"] = float(np.sqrt((fewer - best.value) * (best.value - more)))
        found["most"] = 1.5 * float(np.abs(best.x).max())
    return found


def run_okridge(name: str) -> dict[str, Any]:
    """OKRidge; its f is ``||A x - y||^2 + l2 ||x||^2 - ||y||^2``."""
    from okridge.tree import BNBTree

    kind, n, d, correlation, l2 = INSTANCES[name]
    A, y = make_data(kind, n, d, correlation)
    begin = time.perf_counter()
    value, _, gap, _, _ = BNBTree(A, y, lambda2=l2, max_memory_GB=8).solve(
        K, gap_tol=1e-4, time_limit=TIME_LIMIT
    )
    return {"first": time.perf_counter() - begin, "value": (value + y @ y) / 2, "gap": float(gap)}


def run_l0bnb(name: str, price: float, most: float) -> dict[str, Any]:
    """l0bnb; its f is ``1/2 ||A x - y||^2 + l2 ||x||^2 + price ||x||_0``."""
    from l0bnb import BNBTree

    kind, n, d, correlation, l2 = INSTANCES[name]
    A, y = make_data(kind, n, d, correlation)
    begin = time.perf_counter()
    found = BNBTree(A, y).solve(price, l2 / 2, most, gap_tol=1e-4, time_limit=TIME_LIMIT)
    size = int(np.sum(found.beta != 0))
    return {
        "first": time.perf_counter() - begin,
        "value": found.cost - price * size,
        "gap": float(found.gap),
        "size": size,
    }


def run_scip(name: str) -> dict[str, Any]:
    """SCIP: ``min t/2 + l2/2 sum_j s_j``, ``||A x - y||^2 <= t``, ``x_j^2 <= s_j z_j``, at most k
    of the binary z_j."""
    import pyscipopt

    if name == "bootstraps":
        A, y, l2 = bootstrap(0)
        limit = 5
    else:
        kind, n, d, correlation, l2 = INSTANCES[name]
        (A, y), limit = make_data(kind, n, d, correlation), K
    n, d = A.shape
    begin = time.perf_counter()
    model = pyscipopt.Model()
    model.hideOutput()
    x = [model.addVar(lb=None) for _ in range(d)]
    z = [model.addVar(vtype="B") for _ in range(d)]
    s = [model.addVar(lb=0) for _ in range(d)]
    residual, t = [model.addVar(lb=None) for _ in range(n)], model.addVar(lb=0)
    for i in range(n):
        model.addCons(
            pyscipopt.quicksum(float(A[i, j]) * x[j] for j in range(d)) - residual[i] == float(y[i])
        )
    model.addCons(pyscipopt.quicksum(r * r for r in residual) <= t)
    for j in range(d):
        model.addCons(x[j] * x[j] <= s[j] * z[j])
    model.addCons(pyscipopt.quicksum(z) <= limit)
    model.setObjective(t / 2 + l2 / 2 * pyscipopt.quicksum(s))
    model.setParam("limits/gap", 1e-4)
    model.setParam("limits/time", SCIP_LIMIT)
    model.optimize()
    found = {"first": time.perf_counter() - begin, "nodes": int(model.getNNodes())}
    if model.getNSols():
        found |= {"value": model.getObjVal(), "gap": 1 - model.getDualbound() / model.getObjVal()}
    return found


def bootstrap(seed: int) -> tuple[np.ndarray, np.ndarray, float]:
    """A bootstrap sample of 200 x 40, with its ridge."""
    rng = np.random.default_rng(0)
    A = np.sqrt(0.7) * rng.standard_normal((200, 40)) + np.sqrt(0.3) * rng.standard_normal((200, 1))
    y = A[:, :5] @ np.array([1.0, -0.8, 0.6, -0.4, 0.3]) + rng.standard_normal(200)
    rows = np.random.default_rng(seed).integers(200, size=200)
    return A[rows], y[rows], 5.0


def run_bootstraps(name: str) -> dict[str, Any]:
    """1000 bootstrap samples of 200 x 40, k = 5, one after another."""
    import jaxht

    def certify(seed: int) -> Any:
        return jaxht.branch_and_bound(
            jaxht.LeastSquares(*bootstrap(seed), mean=False), jaxht.Sparse(5)
        )

    begin = time.perf_counter()
    certify(0)
    first = time.perf_counter() - begin
    begin = time.perf_counter()
    results = [certify(seed) for seed in range(1000)]
    again, certified = (
        time.perf_counter() - begin,
        sum(result.status.name == "OPTIMAL" for result in results),
    )
    return {
        "first": first,
        "again": again,
        "certified": certified,
        "nodes": sum(r.num_nodes for r in results),
    }


def run_batches(name: str) -> dict[str, Any]:
    """Nodes a second against the batch, and which share of the rate of matrix products their
    products reach.

    Of a problem whose gap stays open: 1000 x 1000, k = 10, with a small ridge.
    """
    import jax
    import jax.numpy as jnp

    import jaxht
    from jaxht.exact import problem, relaxation

    n, d = 1000, 1000
    A, y = make_data("toeplitz", n, d, 0.5)
    y = np.where(y + 8 * np.random.default_rng(1).standard_normal(n) > 0, 1.0, -1.0)
    f = jaxht.Logistic(A, y, 1e-3)
    relax_nodes = relaxation.relax_nodes
    found: dict[str, list[float]] = {}
    calls: list[tuple[float, float]] = []

    def timed(shared: Any, goal: Any, starts: Any) -> Any:
        begin = time.perf_counter()
        relaxed = jax.block_until_ready(relax_nodes(shared, goal, starts))
        rounds = int(relaxed.num_rounds.max())  # the first one takes no steps
        products = len(starts.x) * (2 * relaxation.ROUND * (rounds - 1) + rounds + 2)
        calls.append((2.0 * n * starts.x.shape[1] * products, time.perf_counter() - begin))
        return relaxed

    problem.relax_nodes = timed  # type: ignore[attr-defined]
    for batch in (16, 64, 256):
        for limit in (2 * batch, 6 * batch):  # the first one compiles
            calls.clear()
            begin = time.perf_counter()
            best = jaxht.branch_and_bound(f, jaxht.Sparse(10), batch=batch, node_limit=limit)
        seconds = time.perf_counter() - begin
        operations, inside = np.sum(calls, axis=0)
        with jax.enable_x64(True):
            product, V, W = jax.jit(jnp.matmul), jnp.ones((batch, d)), jnp.asarray(A.T)
            times = []
            for _ in range(4):
                begin = time.perf_counter()
                product(V, W).block_until_ready()
                times.append(time.perf_counter() - begin)
        rate = 2.0 * n * d * batch / min(times)
        found[str(batch)] = [best.num_nodes / seconds, operations / inside / rate, inside / seconds]
    return found


def run_data(name: str) -> list[dict[str, Any]]:
    """Real data, standardised."""
    import jaxht
    from benchmarks import support_sets

    logistic = name.endswith("logistic")
    if name.startswith("diabetes"):
        from sklearn.datasets import load_diabetes
        from sklearn.preprocessing import PolynomialFeatures

        A, y = load_diabetes(return_X_y=True)
        A = support_sets.standardise(PolynomialFeatures(2, include_bias=False).fit_transform(A))
    else:
        problem = support_sets.load(name, Path(os.environ["JAXHT_DATA"]))
        A, y = problem.A, problem.y
    y = y if logistic else (y - y.mean()) / y.std()
    found = []
    for l2 in DATA[name][1]:
        f: Any = jaxht.Logistic(A, y, l2) if logistic else jaxht.LeastSquares(A, y, l2, mean=True)
        for k in DATA[name][0]:
            best = jaxht.branch_and_bound(f, jaxht.Sparse(k), time_limit=DATA_LIMIT)
            row: dict[str, Any] = {
                "first": best.seconds,
                "value": best.value,
                "gap": best.gap / abs(best.value),
                "nodes": best.num_nodes,
            }
            row |= {
                "root": (best.value - best.root_lower) / abs(best.value),
                "status": best.status.name,
            }
            found.append(
                row | {"label": f"{name}, {A.shape[0]} x {A.shape[1]}, k = {k}, l2 = {l2:g}"}
            )
    return found


TASKS: dict[str, Callable[..., Any]] = {
    "data": run_data,
    "jaxht": run_jaxht,
    "okridge": run_okridge,
    "l0bnb": run_l0bnb,
    "scip": run_scip,
    "bootstraps": run_bootstraps,
    "batches": run_batches,
}


# ---- in this process -----------------------------------------------------------------------------


def fresh(python: str, task: str, name: str, *numbers: float) -> Any:
    """What a task returns in a process of its own."""
    command = [python, __file__, "--task", task, name, *map(repr, numbers)]
    env = (
        os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
        if python == sys.executable
        else dict(os.environ)
    )
    output = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout
    return json.loads(output.splitlines()[-1])


def report(label: str, found: dict[str, Any]) -> None:
    """A line for a run."""
    keys = [
        ("first", "{:9.2f} s"),
        ("again", "{:9.2f} s"),
        ("value", "{:14.7g}"),
        ("gap", "{:9.1e}"),
    ]
    keys += [("root", "{:9.1e}"), ("nodes", "{:7d}")]
    cells = (
        form.format(found[key]) if key in found else "-".rjust(len(form.format(0)))
        for key, form in keys
    )
    print(f"  {label:50s}" + " ".join(cells), flush=True)


def main(arguments: list[str]) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks certified", description=__doc__)
    parser.add_argument("--rivals-python", help="the interpreter of an environment with the others")
    parser.add_argument(
        "instances",
        nargs="*",
        help=f"of {', '.join([*INSTANCES, *DATA])}, bootstraps, batches; all",
    )
    options = parser.parse_args(arguments)
    chosen = options.instances or [*INSTANCES, *DATA, "bootstraps", "batches"]
    print(
        f"  {'k = 10':50s}{'first':>11s} {'again':>11s} {'f':>14s} {'gap':>9s} {'at root':>9s} {'nodes':>7s}"
    )
    for name in (name for name in INSTANCES if name in chosen):
        found = fresh(sys.executable, "jaxht", name)
        report(f"{name}: jaxht", found)
        if options.rivals_python and name.startswith("OKRidge"):
            report("  okridge", fresh(options.rivals_python, "okridge", name))
        if options.rivals_python and name.startswith("l0bnb"):
            rival = fresh(options.rivals_python, "l0bnb", name, found["price"], found["most"])
            report(f"  l0bnb, of size {rival['size']}", rival)
        if options.rivals_python and name == "l0bnb, d = 1000":
            report("  SCIP", fresh(options.rivals_python, "scip", name))
    for name in (name for name in DATA if name in chosen):
        if not name.startswith("diabetes") and "JAXHT_DATA" not in os.environ:
            print(f"  {name}: JAXHT_DATA is not set, left out")
            continue
        for row in fresh(sys.executable, "data", name):
            report(row["label"], row)
    if "bootstraps" in chosen:
        found = fresh(sys.executable, "bootstraps", "")
        print(
            f"  1000 bootstraps of 200 x 40, k = 5: the first {found['first']:.1f} s, all {found['again']:.1f} s, ",
            end="",
        )
        print(f"{found['certified']} certified, {found['nodes']} nodes")
        if options.rivals_python:
            report("  SCIP, one of them", fresh(options.rivals_python, "scip", "bootstraps"))
    if "batches" in chosen:
        print(
            "  logistic, 1000 x 1000: nodes a second; of the rate of matrix products; time in relaxations"
        )
        for batch, (speed, share, inside) in fresh(sys.executable, "batches", "").items():
            print(
                f"    batches of {batch:>3s}: {speed:6.0f}, {100 * share:3.0f} %, {100 * inside:3.0f} %"
            )


if __name__ == "__main__":
    task, instance, *rest = sys.argv[2:]
    print(json.dumps(TASKS[task](instance, *map(float, rest))))
