"""Rank constraints: projections in full and by subspace iteration, factored iterates, and planted
recovery."""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxht
from benchmarks.timing import interleaved, report, warm_seconds
from jaxht import IHT, NIHT, LowRank, Stop
from jaxht.linalg.svd import truncated_svd


def main() -> None:
    """Print times, ratios, objectives and recoveries."""
    for m, k in ((32, 3), (64, 3), (128, 3), (256, 5), (512, 10), (1024, 20), (2048, 20)):
        projections(m, k)
    lanes(m=60, n=50, k=3, number=100)
    for name, k in (("coil20", 10), ("office_caltech10_surf", 5), ("orl_faces", 20)):
        regression(name, k)
    factors()
    recovery(m=60, n=50, k=3, oversampling=6, trials=100)


def completion(m: int, k: int, share: float, rng: np.random.Generator) -> Any:
    """Noisy entries of an m x m matrix of rank k."""
    number = int(share * m * m)
    rows, columns = np.divmod(rng.choice(m * m, number, replace=False), m)
    L, R = rng.standard_normal((2, m, k))
    y = np.sum(L[rows] * R[columns], axis=1) + 0.3 * rng.standard_normal(number)
    return jaxht.matrix_completion(
        rows, columns, y.astype(np.float32), (m, m), mean=False
    ).prepare()


@functools.partial(jax.jit, static_argnames=("solver", "k", "exact", "factored"))
def run(
    f: Any,
    step: Any,
    steps: Any,
    solver: Any,
    k: int,
    exact: bool | None = None,
    factored: bool = False,
) -> Any:
    """Some steps, and none of the stopping tests."""
    stop = Stop(max_steps=steps, rtol=0.0)
    return jaxht.solve(f, LowRank(k, exact=exact, factored=factored), solver(step), stop=stop)


def projections(m: int, k: int) -> None:
    """The projection that the fifth step of a run takes, and what 300 steps come to."""
    f, step = completion(m, k, 0.4 if m < 512 else 0.2, np.random.default_rng(0)), 1.8  # L = 1
    x = run(f, step, 4, IHT, k, True).x
    z = x - step * f.gradient(x, f.predict(x))
    project = {
        exact: functools.partial(
            jax.jit(truncated_svd, static_argnames=("k_max", "exact")), z, k, k, exact=exact
        )
        for exact in (True, False)
    }
    candidates: dict[str, Callable[[], Any]] = {
        "full": project[True],
        "by iteration, from x": functools.partial(project[False], near=x),
        "by iteration, from nowhere": project[False],
    }
    default = "by iteration" if 2 * m >= 5 * (k + 8) else "full"
    seconds = interleaved(candidates, repeats=3 if m > 1000 else 7)
    report(
        f"a projection in a run, {m} x {m}, rank {k} (by default {default})",
        seconds,
        baseline="full",
        unit="ms",
    )
    if m <= 256:
        full, iterated = (float(run(f, step, 300, IHT, k, exact).value) for exact in (True, False))
        print(
            f"  f after 300 steps: {full:.7g} and {iterated:.7g}, apart by {abs(iterated / full - 1):.1e}"
        )


def lanes(m: int, n: int, k: int, number: int) -> None:
    """The same for many matrices under vmap."""
    rng = np.random.default_rng(0)
    drawn = rng.standard_normal((number, m, k)) @ rng.standard_normal((number, k, n))
    z = jnp.asarray(drawn + 0.1 * rng.standard_normal(drawn.shape), jnp.float32)
    x = jnp.asarray(drawn, jnp.float32)

    @functools.partial(jax.jit, static_argnames="exact")
    def project(z: jax.Array, x: jax.Array, exact: bool) -> Any:
        return jax.vmap(lambda z, x: truncated_svd(z, k, k, near=x, exact=exact))(z, x)

    names = {"full": True, "by iteration, from x": False}
    calls = {name: functools.partial(project, z, x, exact) for name, exact in names.items()}
    title = f"a projection, {m} x {n}, rank {k}, {number} of them under one vmap"
    report(title, interleaved(calls, repeats=9), baseline="full", per=number)


def regression(name: str, k: int) -> None:
    """Regression of the classes of a data set: what full decompositions and iteration come to."""
    file = Path(os.environ.get("JAXHT_DATA", "")) / f"{name}.npz"
    if not file.is_file():
        print(f"\n{name}: not in JAXHT_DATA, left out")
        return
    with np.load(file) as arrays:
        X, classes = arrays["X"].astype(np.float32), np.unique(arrays["y"], return_inverse=True)[1]
    A = X / np.linalg.norm(X, axis=1, keepdims=True)
    f = jaxht.MultiResponse(A, np.eye(classes.max() + 1, dtype=np.float32)[classes], 1e-5).prepare()
    print(
        f"\n{name}, {A.shape[0]} x {A.shape[1]}, {classes.max() + 1} classes, rank {k}: f, full and by iteration"
    )
    growing = jaxht.HSGHT(1.0, batch_growth=1.02, inner_steps=300)
    for label, solver, steps in (
        ("FG-HT, 2000 steps", IHT(), 2000),
        ("HSG-HT, 300 updates", growing, 1),
    ):
        stop, key = Stop(max_steps=steps, rtol=0.0), jax.random.key(0)
        full, iterated = (
            float(jaxht.solve(f, LowRank(k, exact=exact), solver, stop=stop, key=key).value)
            for exact in (True, False)
        )
        print(
            f"  {label:20s} {full:.8f} and {iterated:.8f}, apart by {abs(iterated / full - 1):.1e}",
            flush=True,
        )


def factors() -> None:
    """Steps of IHT with x as an array and in factors: it depends on the shapes which is faster."""
    rng = np.random.default_rng(1)
    problems: list[tuple[str, Any, Any, int]] = []
    for d, c in ((1024, 64), (1024, 1024), (1024, 4096)):
        A = rng.standard_normal((1000, d)).astype(np.float32) / np.float32(np.sqrt(1000))
        Y = A @ rng.standard_normal((d, 10)) @ rng.standard_normal(
            (10, c)
        ) + 0.1 * rng.standard_normal((1000, c))
        f = jaxht.MultiResponse(A, Y.astype(np.float32), 1e-3, mean=False).prepare()
        problems.append((f"MultiResponse, 1000 samples, x {d} x {c}", f, 0.2, 10))
    for m, share in ((2048, 0.1), (6000, 0.02)):
        f, step = completion(m, 10, share, rng), 1.8
        problems.append((f"matrix_completion, {f.num_samples} entries of {m} x {m}", f, step, 10))
    for title, f, step, k in problems:
        names = {"array": False, "factors": True}

        def call(steps: int, factored: bool, f: Any = f, step: Any = step, k: int = k) -> Any:
            return run(f, step, steps, IHT, k, False, factored)

        few, many = (
            interleaved(
                {name: functools.partial(call, steps, kind) for name, kind in names.items()},
                repeats=5,
            )
            for steps in (1, 11)
        )
        seconds = {name: (many[name] - few[name]) / 10 for name in names}
        report(f"a step of IHT, {title}, rank {k}", seconds, baseline="array", unit="ms")


def recovery(m: int, n: int, k: int, oversampling: int, trials: int) -> None:
    """Planted matrices from Gaussian measurements, each with its own, under one vmap."""
    number = oversampling * k * (m + n - k)

    def trial(key: jax.Array, solver: Any) -> Any:
        keys = jax.random.split(key, 3)
        left, right = jax.random.normal(keys[0], (m, k)), jax.random.normal(keys[1], (k, n))
        X = jnp.matmul(left, right, precision="highest")
        A = jax.random.normal(keys[2], (number, m, n)) / np.sqrt(number)
        y = jnp.matmul(A.reshape(number, -1), X.ravel(), precision="highest")
        stop = Stop(max_steps=1000, target_value=1e-9 * jnp.vdot(y, y))
        result = jaxht.solve(jaxht.matrix_sensing(A, y, mean=False), LowRank(k), solver, stop=stop)
        return jnp.linalg.norm(result.x - X) / jnp.linalg.norm(X), result.num_steps

    print(
        f"\nrank {k}, {m} x {n}, {number} Gaussian measurements ({oversampling} times the degrees of freedom)"
    )
    for solver in (IHT(), NIHT()):
        batch = jax.jit(jax.vmap(functools.partial(trial, solver=solver)))
        errors, steps = batch(jax.random.split(jax.random.key(0), trials))
        _, seconds = warm_seconds(
            functools.partial(batch, jax.random.split(jax.random.key(0), trials))
        )
        good = int(np.sum(np.asarray(errors) < 1e-3))
        print(
            f"  {type(solver).__name__:5s} {good} of {trials} within 1e-3 (largest error {np.max(errors):.1e}), "
            f"{np.median(steps):.0f} steps (up to {np.max(steps)}), {seconds:.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
