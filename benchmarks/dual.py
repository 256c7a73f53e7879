"""The dual solvers: updates against NumPy loops, gaps against brute force, and the gap on rcv1
after some seconds.

rcv1 is left out where JAXHT_DATA does not have it.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxht
from benchmarks.sparse import data_set
from benchmarks.timing import double_precision, interleaved, report
from jaxht.objectives import dual


def main() -> None:
    """Print times, ratios, and how many gaps close."""
    updates(n=200, d=256, k=16, lanes=(1, 100, 1000))
    gaps(n=30, d=30, k=5, draws=30)
    data = data_set("rcv1_subsets_binary")
    if data is not None:
        on_rcv1(*data, k=500, batch_size=10)


def plain(A: np.ndarray, y: np.ndarray, lam: float, k: int, eta: float, blocks: Any) -> np.ndarray:
    """Yuan et al. 2020, Algorithms 1 and 2 on squares, a block of samples an update; then the refit
    on the support."""
    n, d = A.shape
    alpha, z, best, highest = -y, A.T @ y / (lam * n), None, -np.inf
    for block in blocks:
        w = np.zeros_like(z)
        kept = np.argpartition(np.abs(z), d - k)[d - k :]
        w[kept] = z[kept]
        if block.stop - block.start == n:  # the best alpha is kept; of blocks the last
            value = -np.mean(alpha * (alpha / 2 + y)) - lam / 2 * w @ w
            best, highest = (kept, value) if value > highest else (best, highest)
        change = eta * (A[block] @ w - alpha[block] - y[block]) / n
        alpha[block] += change
        z = z - change @ A[block] / (lam * n)
    kept = kept if best is None else best
    B, x = A[:, kept], np.zeros_like(z)
    x[kept] = np.linalg.solve(B.T @ B / n + lam * np.eye(k, dtype=A.dtype), B.T @ y / n)
    return x


def updates(n: int, d: int, k: int, lanes: tuple[int, ...]) -> None:
    """Ridge regressions that share A: 200 updates of DIHT, ten epochs of SDIHT, and one refit."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((n, d)).astype(np.float32)
    truth = np.stack([rng.permutation(np.repeat([1, 0], [k, d - k])) for _ in range(max(lanes))])
    Y = (truth @ A.T + 0.1 * rng.standard_normal((max(lanes), n))).astype(np.float32)
    lam = 1.0
    eta = np.float32(n / (1 + np.linalg.norm(A, 2) ** 2 / (lam * n)))
    one = np.float32(n / (1 + np.max(np.sum(A**2, axis=1)) / (lam * n)))
    drawn = [slice(i, i + 1) for i in rng.integers(0, n, 10 * n)]
    for name, solver, step, blocks in (
        ("DIHT", jaxht.DIHT(eta, inner_steps=200), eta, [slice(0, n)] * 200),
        ("SDIHT, blocks of 1", jaxht.SDIHT(one, inner_steps=10 * n), one, drawn),
    ):

        @jax.jit
        def ours(Y: jax.Array, solver: Any = solver) -> jax.Array:
            def solve(y: jax.Array) -> jax.Array:
                f, stop = jaxht.LeastSquares(A, y, lam, mean=True), jaxht.Stop(max_steps=1)
                return jaxht.solve(f, jaxht.Sparse(k), solver, key=jax.random.key(0), stop=stop).x

            return jax.vmap(solve)(Y)

        for number in lanes:
            few = min(number, 5)

            def loop(few: int = few, step: Any = step, blocks: Any = blocks) -> np.ndarray:
                return np.stack([plain(A, y, lam, k, step, blocks) for y in Y[:few]])

            call = functools.partial(ours, jnp.asarray(Y[:number]))
            seconds = interleaved({"NumPy, a loop": loop, "jaxht, one vmap": call}, repeats=5)
            seconds["NumPy, a loop"] *= number / few
            title = f"{name}, n={n}, d={d}, k={k}: an update of a problem, of {number}"
            report(title, seconds, baseline="NumPy, a loop", per=number * len(blocks))


def gaps(n: int, d: int, k: int, draws: int) -> None:
    """Figure 1 of the paper: is the solution that of brute force, and does the gap close where it
    can?

    It can if and only if the strong duality margin at the global minimiser is not negative.
    """
    rng = np.random.default_rng(0)
    A, truth = rng.standard_normal((draws, n, d)), np.zeros((draws, d))
    for w in truth:
        w[rng.choice(d, k, replace=False)] = rng.choice([-1, 1], k)
    Y = np.einsum("tnd,td->tn", A, truth) + 0.1 * rng.standard_normal((draws, n))

    @jax.jit
    def minimiser(A: jax.Array, y: jax.Array, lam: jax.Array) -> jax.Array:
        return jaxht.exhaustive_search(jaxht.LeastSquares(A, y, lam, mean=True), jaxht.Sparse(k)).x

    @jax.jit
    @jax.vmap
    def run(A: jax.Array, y: jax.Array, lam: jax.Array, x: jax.Array) -> Any:
        f, C, stop = (
            jaxht.LeastSquares(A, y, lam, mean=True),
            jaxht.Sparse(k),
            jaxht.Stop(max_steps=300, gap_rtol=1e-9),
        )
        result = jaxht.solve(f, C, jaxht.DIHT(), stop=stop)
        equal = jnp.all((result.x != 0) == (x != 0))
        closed = result.status == jaxht.Status.GAP_CLOSED
        return result.gap / result.value, closed, equal, dual.strong_duality_margin(f, C, x) >= 0

    print(f"\nDIHT, ridge regression, n={n}, d={d}, k={k}, {draws} draws, 3000 updates at most")
    for l0 in (0.01, 20.0, 300.0):
        lam = np.full(draws, l0 / np.sqrt(n))
        with double_precision():
            best = np.stack([minimiser(*problem) for problem in zip(A, Y, lam, strict=True)])
            gap, closed, equal, can = jax.device_get(run(A, Y, lam, best))
        print(
            f"  lambda sqrt(n) = {l0:6g}: brute force's support in {np.sum(equal)}, relative gap {np.median(gap):.1e}"
            f" ({np.min(gap):.1e} to {np.max(gap):.1e}); margin >= 0 in {np.sum(can)},"
            f" closed to 1e-9 in {np.sum(closed[can])} of those and {np.sum(closed[~can])} of the others"
        )


def on_rcv1(A: Any, y: np.ndarray, k: int, batch_size: int) -> None:
    """The smoothed hinge at lambda = 1 / sqrt(n): relative gaps against time, and the share of
    projections."""
    n, d = A.shape
    f = jaxht.SmoothedHinge(jaxht.design(A), y, 1 / np.sqrt(n), gamma=0.25, mean=True).prepare()
    C, number = jaxht.Sparse(k), 10
    print(f"\nsmoothed hinge, rcv1, {n} x {d}, k={k}: relative gap after each step of the runner")
    solvers = {
        "DIHT": jaxht.DIHT(),
        f"SDIHT, blocks of {batch_size}": jaxht.SDIHT(batch_size=batch_size),
    }
    epochs = {}
    for name, solver in solvers.items():

        @functools.partial(jax.jit, static_argnums=1)
        def run(f: Any, steps: int, solver: Any = solver) -> Any:
            return jaxht.trace(f, C, solver, num_steps=steps, record=_gap, key=jax.random.key(0))[1]

        calls = {str(steps): functools.partial(run, f, steps) for steps in (1, 1 + number)}
        seconds = {steps: np.median(each) for steps, each in interleaved(calls, repeats=3).items()}
        epochs[name] = (seconds[str(1 + number)] - seconds["1"]) / number
        shown = " ".join(f"{gap:.1e}" for gap in np.asarray(run(f, 1 + number))[1:])
        print(f"  {name:20s} {epochs[name]:.3f} s a step: {shown}", flush=True)

    @jax.jit
    def projections(z: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, -(-n // batch_size), lambda _, z: z + 1e-6 * C.project(z)[0], z)

    z = f.gradient(jnp.zeros(d), jnp.zeros(n))
    spent = np.median(interleaved({"z": functools.partial(projections, z)}, repeats=3)["z"])
    print(
        f"  the projections of an epoch of SDIHT alone: {spent:.3f} s, {100 * spent / epochs[name]:.0f} % of it"
    )


def _gap(carry: Any) -> Any:
    return carry.info.gap / carry.iterate.value


if __name__ == "__main__":
    main()
