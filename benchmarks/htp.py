"""Batched HTP against plain NumPy loops, scikit-learn's OMP and, where it is installed, skscope."""

import functools
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np

import jaxht
from benchmarks.timing import compiling_anew, interleaved, report, warm_seconds

n, d, K, trials = 200, 256, 16, 1000


def numpy_htp(
    A: np.ndarray, y: np.ndarray, k: int, step_size: float, *, normal_equations: bool = False
) -> np.ndarray:
    """HTP as one writes it from the paper, for one problem."""
    x, support = np.zeros(A.shape[1], A.dtype), None
    for _ in range(100):
        z = x + step_size * (A.T @ (y - A @ x))
        found = np.sort(np.argpartition(-np.abs(z), k)[:k])
        if support is not None and np.array_equal(found, support):
            break
        support, x = found, np.zeros_like(x)
        B = A[:, support]
        x[support] = (
            np.linalg.solve(B.T @ B, B.T @ y)
            if normal_equations
            else np.linalg.lstsq(B, y, rcond=None)[0]
        )
    return x


def planted() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One Gaussian design a trial (the first one is the shared one), and the signals."""
    rng = np.random.default_rng(0)
    designs = (rng.standard_normal((trials, n, d)) / np.sqrt(n)).astype(np.float32)
    signals = np.zeros((trials, d), np.float32)
    for signal in signals:
        signal[rng.choice(d, K, replace=False)] = rng.standard_normal(K)
    return designs, designs[0], signals


def main() -> None:
    """Print microseconds a trial and the ratios."""
    designs, shared, signals = planted()
    own_y = np.einsum("tnd,td->tn", designs, signals)
    shared_y = signals @ shared.T
    constraint, solver = jaxht.Sparse(K), jaxht.HTP(step_size=1.0)

    @jax.jit
    def ours_own(designs: jax.Array, ys: jax.Array) -> jax.Array:
        return jax.vmap(
            lambda A, y: jaxht.solve(jaxht.LeastSquares(A, y, mean=False), constraint, solver).x
        )(designs, ys)

    @jax.jit
    def ours_shared(A: jax.Array, ys: jax.Array) -> jax.Array:
        return jax.vmap(
            lambda y: jaxht.solve(jaxht.LeastSquares(A, y, mean=False), constraint, solver).x
        )(ys)

    cases = {
        "own A": (ours_own, jnp.asarray(designs), jnp.asarray(own_y), designs, own_y),
        "shared A": (
            ours_shared,
            jnp.asarray(shared),
            jnp.asarray(shared_y),
            [shared] * trials,
            shared_y,
        ),
    }
    for name, (ours, A, y, host_A, host_y) in cases.items():

        def loop(normal_equations: bool, As: object = host_A, ys: np.ndarray = host_y) -> None:
            for one, target in zip(As, ys, strict=True):  # type: ignore[call-overload]
                numpy_htp(one, target, K, 1.0, normal_equations=normal_equations)

        with compiling_anew():
            cold, _ = warm_seconds(functools.partial(ours, A, y))
        error = np.linalg.norm(np.asarray(ours(A, y)) - signals, axis=1)
        print(
            f"\n{name}: first call {cold:.2f} s; {np.mean(error < 1e-3):.1%} of the signals recovered"
        )
        seconds = interleaved(
            {
                "NumPy loop, lstsq": functools.partial(loop, False),
                "NumPy loop, normal equations": functools.partial(loop, True),
                "jaxht, one vmap": functools.partial(ours, A, y),
            },
            repeats=7,
        )
        title = f"HTP, n = {n}, d = {d}, K = {K}, {trials} trials, {name}: per trial"
        report(title, seconds, baseline="NumPy loop, lstsq", per=trials)

    one = jax.jit(
        lambda A, y: jaxht.solve(jaxht.LeastSquares(A, y, mean=False), constraint, solver).x
    )
    others(
        shared, shared_y[0], functools.partial(one, jnp.asarray(shared), jnp.asarray(shared_y[0]))
    )


def others(A: np.ndarray, y: np.ndarray, ours: functools.partial) -> None:
    """One problem: jaxht's HTP, scikit-learn's OMP and skscope's HTP, cold and warm."""
    candidates = {"jaxht HTP, one problem": ours}
    from sklearn.linear_model import orthogonal_mp

    candidates["scikit-learn orthogonal_mp"] = functools.partial(
        orthogonal_mp, A, y, n_nonzero_coefs=K
    )
    try:
        from skscope import HTPSolver

        def skscope() -> None:
            HTPSolver(d, K).solve(lambda x: jnp.sum((A @ x - y) ** 2) / 2, jit=True)

        candidates["skscope HTPSolver"] = functools.partial(skscope)
    except ImportError:
        print("\nskscope is not installed: left out")
    print()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, call in candidates.items():
            begin = time.perf_counter()
            with compiling_anew():
                jax.block_until_ready(call())
            print(f"  {name:42s} {(time.perf_counter() - begin) * 1e3:10.2f} ms cold")
        report(
            "one problem, warm",
            interleaved(candidates, repeats=15),
            baseline="scikit-learn orthogonal_mp",
        )
