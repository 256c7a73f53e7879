"""OMP against scikit-learn's, a step of exhaustive local search against refits of every candidate,
and bootstraps."""

import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.linear_model import orthogonal_mp, orthogonal_mp_gram

import jaxht
from benchmarks.timing import interleaved, report, temporary_bytes
from jaxht.subproblems import refit, subproblem

SKLEARN = "scikit-learn orthogonal_mp"


def problem(
    seed: int, n: int, d: int, K: int, lanes: int, shared: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian designs of unnormalised columns, and y = A x plus noise, float32."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((1 if shared else lanes, n, d), np.float32)
    A *= rng.uniform(0.5, 2, d).astype(np.float32)
    signals = np.zeros((lanes, d), np.float32)
    for signal in signals:
        signal[rng.choice(d, K, replace=False)] = rng.standard_normal(K)
    y = signals @ A[0].T if shared else np.einsum("tnd,td->tn", A, signals)
    return A, (y + 0.1 * rng.standard_normal(y.shape)).astype(np.float32)


def main() -> None:
    """Print times and ratios."""
    batched(n=200, d=256, k=16, lanes=1000)
    batched(n=500, d=1000, k=25, lanes=100)
    single(n=5000, d=10_000, k=100)
    local_search(n=500, d=1000, k=25)
    bootstraps(n=500, d=200, k=10, lanes=1000)


def batched(n: int, d: int, k: int, lanes: int) -> None:
    """Many problems at once, with a design each and with one for all."""
    for shared in (False, True):
        A, y = problem(0, n, d, k, lanes, shared)

        @jax.jit
        def ours(A: jax.Array, y: jax.Array) -> jax.Array:
            def solve(A: jax.Array, y: jax.Array) -> jax.Array:
                return jaxht.solve(
                    jaxht.LeastSquares(A, y, mean=False), jaxht.Sparse(k), jaxht.OMP()
                ).x

            if A.shape[0] == 1:
                return jax.vmap(functools.partial(solve, A[0]))(y)
            return jax.vmap(solve)(A, y)

        def loop(A: np.ndarray = A, y: np.ndarray = y) -> np.ndarray:
            return np.stack(
                [orthogonal_mp(A[i % len(A)], y[i], n_nonzero_coefs=k) for i in range(lanes)]
            )

        on_device = jnp.asarray(A), jnp.asarray(y)
        candidates: dict[str, Callable[[], Any]] = {
            f"{SKLEARN}, a loop": loop,
            "jaxht OMP, one vmap": functools.partial(ours, *on_device),
        }
        if shared:
            gram = A[0].T @ A[0]

            def together(A: np.ndarray = A, y: np.ndarray = y) -> np.ndarray:
                return orthogonal_mp(A[0], y.T, n_nonzero_coefs=k).T

            def by_gram(
                A: np.ndarray = A, y: np.ndarray = y, gram: np.ndarray = gram
            ) -> np.ndarray:
                return orthogonal_mp_gram(gram, A[0].T @ y.T, n_nonzero_coefs=k).T

            candidates[f"{SKLEARN}, all at once"] = together
            candidates["the same with a Gram matrix"] = by_gram
        same = np.mean(
            [
                np.array_equal(a != 0, b != 0)
                for a, b in zip(loop(), np.asarray(ours(*on_device)), strict=True)
            ]
        )
        print(f"\n{'one A for all' if shared else 'own A'}: the same support in {same:.1%}")
        title = f"OMP, n = {n}, d = {d}, k = {k}, {lanes} problems: per problem"
        report(title, interleaved(candidates, repeats=5), baseline=f"{SKLEARN}, a loop", per=lanes)


def single(n: int, d: int, k: int) -> None:
    """One large problem."""
    A, y = problem(1, n, d, k, 1, shared=True)
    f = jaxht.LeastSquares(jnp.asarray(A[0]), jnp.asarray(y[0]), mean=False)
    candidates = {
        SKLEARN: functools.partial(orthogonal_mp, A[0], y[0], n_nonzero_coefs=k),
        "jaxht OMP": functools.partial(jaxht.solve, f, jaxht.Sparse(k), jaxht.OMP()),
    }
    title = f"OMP, n = {n}, d = {d}, k = {k}, one problem"
    report(title, interleaved(candidates, repeats=3), baseline=SKLEARN, unit="ms")


def local_search(n: int, d: int, k: int) -> None:
    """The scores of all candidates: by the formula, and by a batched refit of each support."""
    A, y = problem(2, n, d, k, 1, shared=True)
    design = jnp.asarray(A[0])
    f = jaxht.LeastSquares(design, jnp.asarray(y[0]), mean=False)
    constraint = jaxht.Sparse(k).prepare((d,))
    start = jaxht.solve(f, constraint, jaxht.OMP())
    rest = start.support.mask.at[start.support.indices[0]].set(False)
    x = refit(f, constraint.support(rest), start.x).x

    @jax.jit
    def refits(x: jax.Array, rest: jax.Array) -> jax.Array:
        def value(i: jax.Array) -> jax.Array:
            minimum = refit(f, constraint.support(rest | (jnp.arange(d) == i)), x)
            return f.value(minimum.x, minimum.pred)

        return jax.lax.map(value, jnp.arange(d), batch_size=250)

    @jax.jit
    def formula(x: jax.Array, rest: jax.Array) -> jax.Array:
        return f.value(x, f.predict(x)) - subproblem(f, constraint).forward_scores(rest, x)

    @jax.jit
    def plain_refits(x: jax.Array, rest: jax.Array) -> jax.Array:
        """By normal equations and one batched Cholesky factorisation of slices of A'A."""
        gram, b = design.T @ design, design.T @ f.y
        S = jnp.flatnonzero(rest, size=k - 1)

        def value(i: jax.Array) -> jax.Array:
            F = jnp.append(S, i)
            w = jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(gram[jnp.ix_(F, F)]), b[F])
            return (jnp.vdot(f.y, f.y) - jnp.vdot(w, b[F])) / 2

        return jax.vmap(value)(jnp.arange(d))

    off = ~np.asarray(rest)
    error = np.max(np.abs(formula(x, rest) - refits(x, rest))[off]) / f.value(x, f.predict(x))
    print(f"\nlargest difference of the {d - k + 1} values, relative to f: {error:.1e}")
    candidates = {
        "a batched refit of every candidate": functools.partial(refits, x, rest),
        "the same from slices of one Gram matrix": functools.partial(plain_refits, x, rest),
        "the formula": functools.partial(formula, x, rest),
    }
    title = f"scores of one step of ExhaustiveLocalSearch, n = {n}, d = {d}, k = {k}"
    report(
        title,
        interleaved(candidates, repeats=7),
        baseline="a batched refit of every candidate",
        unit="ms",
    )


def bootstraps(n: int, d: int, k: int, lanes: int) -> None:
    """Weights that count how often each sample is drawn: forward selection, and local search in
    light settings."""
    rng = np.random.default_rng(3)
    drawn = rng.standard_normal((n, d)) + rng.standard_normal((n, 1))  # correlated by a half
    noisy = drawn[:, : 2 * k] @ rng.standard_normal(2 * k) + 2 * rng.standard_normal(n)
    A, y = (jnp.asarray(v, jnp.float32) for v in (drawn, noisy))
    weights = jnp.asarray(rng.multinomial(n, np.full(n, 1 / n), size=lanes), jnp.float32)

    def compile_for(solver: jaxht.Solver) -> jax.stages.Compiled:
        def value(weights: jax.Array) -> jax.Array:
            return jaxht.solve(
                jaxht.LeastSquares(A, y, mean=True, weights=weights), jaxht.Sparse(k), solver
            ).value

        return jax.jit(jax.vmap(value)).lower(weights).compile()

    settings = [(1, 1, 1), (1, 5, 1), (2, 5, 1), (4, 10, 1)]  # starts, moves, patience
    solvers: dict[str, Any] = {"OMP": jaxht.OMP(), "OLS": jaxht.OLS()}
    solvers |= {f"LocalSearch{setting}": jaxht.LocalSearch(*setting) for setting in settings}
    programs = {name: compile_for(solver) for name, solver in solvers.items()}
    title = f"{lanes} bootstraps of n = {n}, d = {d}, k = {k}, one A: per problem"
    candidates = {name: functools.partial(program, weights) for name, program in programs.items()}
    report(title, interleaved(candidates, repeats=5), baseline="OMP", per=lanes)

    default = compile_for(jaxht.LocalSearch())
    begin = time.perf_counter()
    least = np.asarray(default(weights))
    print(f"  {'LocalSearch()':42s} {(time.perf_counter() - begin) / lanes * 1e6:10.2f} us")
    for name, program in programs.items():
        excess = np.asarray(program(weights)) / least - 1
        memory = temporary_bytes(program) / 1e6
        same, mean = np.mean(excess <= 1e-5), np.mean(excess)
        print(
            f"  {name:42s} {memory:6.0f} MB; f of the defaults in {same:.1%}, above it by {mean:.3%} on average"
        )


if __name__ == "__main__":
    main()
