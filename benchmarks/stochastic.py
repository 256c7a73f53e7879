"""The stochastic solvers: inner steps in a batch of lanes, and what a growing batch costs on a
large sparse design."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse

import jaxht
from benchmarks.timing import interleaved, report


def main() -> None:
    """Print times and ratios."""
    inner_steps(n=100, d=256, k=36, lanes=1000)
    growing_batches(n=20_242, d=47_236, per_row=75, k=200)


def inner_steps(n: int, d: int, k: int, lanes: int) -> None:
    """Stages of HT-SVRG, of which every inner step is made, against the same in NumPy, one signal
    after another."""
    rng = np.random.default_rng(0)
    A = (rng.standard_normal((n, d)) / np.sqrt(n)).astype(np.float32)
    signals = np.zeros((lanes, d), np.float32)
    for signal in signals:
        signal[rng.choice(d, 4, replace=False)] = rng.standard_normal(4)
    Y, m = signals @ A.T, 3 * n
    eta = np.float32(2 / np.linalg.norm(A, 2) ** 2)
    keys = jax.random.split(jax.random.key(0), lanes)

    @jax.jit
    def ours(Y: jax.Array) -> jax.Array:
        def solve(y: jax.Array, key: jax.Array) -> jax.Array:
            f, stop = jaxht.LeastSquares(A, y, mean=True), jaxht.Stop(max_steps=1)
            return jaxht.solve(f, jaxht.Sparse(k), jaxht.SVRGHT(eta, m), key=key, stop=stop).x

        return jax.vmap(solve)(Y, keys)

    def loop(signals: int = 10) -> np.ndarray:
        found = []
        for y in Y[:signals]:
            snapshot = np.zeros(d, np.float32)
            mu, x = A.T @ (A @ snapshot - y) / np.float32(n), snapshot
            for i in rng.integers(0, n, m):
                a = A[i]
                b = x - eta * ((a @ x - a @ snapshot) * a + mu)
                kept = np.argpartition(np.abs(b), d - k)[d - k :]
                x = np.zeros(d, np.float32)
                x[kept] = b[kept]
            found.append(x)
        return np.stack(found)

    seconds = interleaved(
        {"NumPy, a loop": loop, "jaxht, one vmap": functools.partial(ours, jnp.asarray(Y))},
        repeats=5,
    )
    seconds["NumPy, a loop"] *= lanes / 10
    title = f"SVRG-HT, n={n}, d={d}, k={k}: an inner step of a signal, of {lanes}"
    report(title, seconds, baseline="NumPy, a loop", per=lanes * m)


def growing_batches(n: int, d: int, per_row: int, k: int) -> None:
    """Logistic regression of the size of rcv1: updates of HSG-HT, and its first epoch, in units of
    FG-HT steps."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(per_row, n)
    rows = np.repeat(np.arange(n), counts)
    columns = np.floor(d * rng.random(len(rows)) ** 3).astype(
        int
    )  # a few of them frequent, as words are
    A = scipy.sparse.csr_array((rng.random(len(rows)).astype(np.float32), (rows, columns)), (n, d))
    A = scipy.sparse.diags_array(1 / np.maximum(scipy.sparse.linalg.norm(A, axis=1), 1e-9)) @ A
    y = np.sign(A @ rng.standard_normal(d) + 1e-9)
    f = jaxht.Logistic(jaxht.design(A.astype(np.float32)), y.astype(np.float32), 1e-5).prepare()

    @jax.jit
    def solved(f: jaxht.Logistic, solver: object, steps: int) -> jax.Array:
        stop = jaxht.Stop(max_steps=steps, rtol=0.0)
        return jaxht.solve(f, jaxht.Sparse(k), solver, key=jax.random.key(0), stop=stop).x  # type: ignore[arg-type]

    def run(solver: object, steps: int) -> functools.partial:
        return functools.partial(solved, f, solver, steps)

    def updates(size: int, number: int) -> jaxht.HSGHT:
        return jaxht.HSGHT(1.0, batch_size=size, batch_growth=1.0, inner_steps=number)

    # What a run costs before its first step is left out: each is timed with few and with many
    # steps.
    sizes, number = (1, 256, 1024, 4096, 16_384), 40
    candidates = {"FG-HT": (run(jaxht.IHT(4.0), 1), run(jaxht.IHT(4.0), 1 + number))}
    for size in sizes:
        candidates[f"HSG-HT, batch of {size}"] = (
            run(updates(size, 1), 1),
            run(updates(size, 1 + number), 1),
        )
    first, last = ({name: pair[i] for name, pair in candidates.items()} for i in (0, 1))
    begun, done = interleaved(first, repeats=5), interleaved(last, repeats=5)
    seconds = {
        name: (np.median(done[name]) - np.median(begun[name])) / number * np.ones(5)
        for name in candidates
    }
    report(
        f"Logistic regression, {n} x {d}, {A.nnz} entries, k={k}: an update",
        seconds,
        baseline="FG-HT",
        unit="ms",
    )
    none = np.median(interleaved({"none": run(jaxht.IHT(4.0), 0)}, repeats=5)["none"])
    for growth in (1.05, 1.1, 1.2):
        epoch = (
            interleaved({"epoch": run(jaxht.HSGHT(1.0, batch_growth=growth), 1)}, repeats=5)[
                "epoch"
            ]
            - none
        )
        steps = np.median(epoch) / seconds["FG-HT"][0]
        print(
            f"  the first epoch of HSG-HT, g = {growth}: {1e3 * np.median(epoch):.1f} ms, {steps:.1f} steps of FG-HT"
        )


if __name__ == "__main__":
    main()
