"""Branch and bound against enumeration, on random problems of 20 columns of which 5 are chosen: 15
504 supports each.

    python -m tests.enumeration --problems 1000

Least squares, the logistic loss and the smoothed hinge, each with three ridges, on correlated
columns. Every optimum has to be that of :func:`jaxht.exhaustive_search` up to the gap that was
asked for, with the status OPTIMAL and a lower bound that is not above it.
"""

import argparse
import collections
import functools
import itertools
import sys
import time

import jax
import numpy as np

import jaxht

N, D, K = 60, 20, 5
LOSSES = {
    "least squares": jaxht.LeastSquares,
    "logistic": jaxht.Logistic,
    "smoothed hinge": jaxht.SmoothedHinge,
}
RIDGES = (1e-3, 0.03, 1.0)
GAP = 1e-6


def draw(loss, l2, seed):
    """An objective, whose best support is not plain to see."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(N, D)) + rng.choice([0, 0.5, 1.5]) * rng.normal(size=(N, 1))
    u = A[:, rng.permutation(D)[:K]] @ rng.normal(size=K) + rng.choice([0.1, 1, 3]) * rng.normal(
        size=N
    )
    return LOSSES[loss](
        A, u if loss == "least squares" else np.where(u > 0, 1.0, -1.0), l2, mean=True
    )


@functools.partial(jax.jit, static_argnums=0)
def minimum(loss, A, y, l2):
    """By enumeration; compiled once for each loss."""
    return jaxht.exhaustive_search(LOSSES[loss](A, y, l2, mean=True), jaxht.Sparse(K)).value


def compare(loss, l2, seed):
    """What is wrong with the result of one problem, and its number of nodes."""
    f = draw(loss, l2, seed)
    best = jaxht.branch_and_bound(f, jaxht.Sparse(K), gap_rtol=GAP, batch=16)
    with jax.enable_x64(True):
        optimum = float(minimum(loss, f.A, f.y, f.l2))
    faults = []
    if best.status.name != "OPTIMAL":
        faults.append(f"status {best.status.name}")
    if best.lower > optimum * (1 + 1e-11):
        faults.append(f"lower {best.lower} is above the optimum {optimum}")
    if not optimum * (1 - 1e-11) <= best.value <= optimum * (1 + GAP):
        faults.append(f"value {best.value} is not the optimum {optimum}")
    return faults, best.num_nodes


def main():
    """Run until all problems are done, and print what was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=1000)
    arguments = parser.parse_args()
    cases = itertools.cycle(itertools.product(LOSSES, RIDGES))
    begin, failed, nodes = time.monotonic(), 0, collections.defaultdict(list)
    for seed, (loss, l2) in enumerate(itertools.islice(cases, arguments.problems)):
        faults, num_nodes = compare(loss, l2, seed)
        nodes[loss, l2].append(num_nodes)
        failed += bool(faults)
        for fault in faults:
            print(f"problem {seed}, {loss}, l2 = {l2}: {fault}", flush=True)
    for (loss, l2), counts in nodes.items():
        print(
            f"{loss}, l2 = {l2:g}: {len(counts)} problems, {np.median(counts):.0f} nodes, at most {max(counts)}"
        )
    print(
        f"{arguments.problems} problems in {time.monotonic() - begin:.0f} s, of which {failed} failed"
    )
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
