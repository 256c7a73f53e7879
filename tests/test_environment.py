"""Every solver runs under the settings that users check their programs with, and inside of JAX's
transformations."""

# ruff: noqa: F722 - the shapes of jaxtyping
import dataclasses
import functools
import subprocess
import sys
import textwrap

import beartype
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import pytest
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Bool, Float, Int, TypeCheckError, jaxtyped

import jaxht
from jaxht import solvers
from tests.test_docs import ROOT
from tests.test_programs import solver_names
from tests.util import quick, x64

pytestmark = pytest.mark.usefixtures("all_quickly")

N, D, K = 8, 6, 2
STOP = jaxht.Stop(max_steps=3)
checked = jaxtyped(typechecker=beartype.beartype)


def data(dtype=np.float32):
    A = np.random.default_rng(0).normal(size=(N, D)).astype(dtype)
    return jnp.asarray(A), jnp.asarray(2 * A[:, 0] - A[:, 3])


def solver_of(name):
    return getattr(solvers, name)(**({"num_starts": 2} if name == "LocalSearch" else {}))


def run(name, A, y, key):
    return jaxht.solve(
        jaxht.LeastSquares(A, y, 0.1, mean=True),
        jaxht.Sparse(K),
        solver_of(name),
        key=key,
        stop=STOP,
    )


@pytest.mark.parametrize("name", solver_names())
def test_settings(name):
    """NaN, leaked tracers, implicit broadcasts and transfers raise; the precision changes between
    calls."""
    key, (A, y) = jax.random.key(0), data()
    jax.clear_caches()  # so that the program is traced under the settings
    with (
        jax.debug_nans(True),
        jax.checking_leaks(),
        jax.numpy_rank_promotion("raise"),
        jax.transfer_guard("disallow"),
    ):
        result = run(name, A, y, key)
    x = np.asarray(result.x)
    assert x.dtype == np.float32 and np.count_nonzero(x) <= K
    with x64():
        wide = run(name, *data(np.float64), key).x
        assert wide.dtype == np.float64
        np.testing.assert_allclose(np.asarray(wide), x, rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(run(name, A, y, key).x, x)


@jax.jit
def split_weights(held_out):
    return 1.0 - held_out, 1.0 * held_out


def cross_validate(f, ks, key, solver):
    def split(held_out):
        return [dataclasses.replace(f, weights=weights) for weights in split_weights(held_out)]

    return jaxht.cross_validate(split, jaxht.folds(key, N, 2), SPARSE, solver, ks=ks)


SPARSE, HTP, DIHT = jaxht.Sparse(K), jaxht.HTP(), jaxht.DIHT()
CALLS = {
    "path": lambda f, ks, key, x: jaxht.path(f, SPARSE, HTP, ks=[1, 2]),
    "path, both ways": lambda f, ks, key, x: jaxht.path(f, SPARSE, HTP, ks=ks, both_ways=True),
    "path, nested": lambda f, ks, key, x: jaxht.path(f, SPARSE, jaxht.OMP(), ks=[1, 2]),
    "path, stochastic": lambda f, ks, key, x: jaxht.path(
        f, SPARSE, jaxht.SGHT(), ks=ks, key=key, stop=STOP
    ),
    "trace": lambda f, ks, key, x: jaxht.trace(f, SPARSE, HTP, num_steps=2, x0=x),
    "validate": lambda f, ks, key, x: jaxht.validate(f, f, SPARSE, HTP, ks=[1, 2]),
    "validate, nested": lambda f, ks, key, x: jaxht.validate(f, f, SPARSE, jaxht.OMP(), ks=ks),
    "validate, stochastic": lambda f, ks, key, x: jaxht.validate(
        f, f, SPARSE, jaxht.SGHT(), ks=ks, key=key, stop=STOP
    ),
    "cross_validate": lambda f, ks, key, x: cross_validate(f, [1, 2], key, HTP),
    "cross_validate, nested": lambda f, ks, key, x: cross_validate(f, ks, key, jaxht.OMP()),
    "certify": lambda f, ks, key, x: jaxht.certify(f, SPARSE, x),
    "certify, by a solver": lambda f, ks, key, x: jaxht.certify(
        f, SPARSE, x, solver=DIHT, stop=STOP
    ),
    "optimality": lambda f, ks, key, x: jaxht.optimality(f, SPARSE, x),
    "differentiability": lambda f, ks, key, x: jaxht.differentiability(f, SPARSE, x),
    "steps": lambda f, ks, key, x: jaxht.solve(
        f, SPARSE, jaxht.IHT(), stop=STOP, adjoint="checkpointed"
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_transfers(name):
    """Whatever is called on arrays of JAX moves its own numbers to the device explicitly."""
    f = jaxht.LeastSquares(*data(), 0.1, mean=True)
    ks, key, x = jnp.array([1, 2]), jax.random.key(0), jaxht.solve(f, SPARSE, HTP).x
    jax.clear_caches()  # so that also the tracing is seen
    with jax.transfer_guard("disallow"):
        found = CALLS[name](f, ks, key, x)
    jax.tree.map(np.testing.assert_array_equal, found, CALLS[name](f, ks, key, x))


@pytest.mark.parametrize("name", ["IHT", "HTP", "SGHT", "DIHT"])
def test_without_jit(name):
    """A run of two steps, of one solver of each kind; of every solver the contract compares the
    start and a step."""
    A, y = data()
    f = jaxht.LeastSquares(A[:, :4], y, 0.1, mean=True)

    def found():
        stop = jaxht.Stop(max_steps=2)
        return jaxht.solve(
            f, jaxht.Sparse(1), getattr(solvers, name)(), key=jax.random.key(0), stop=stop
        ).x

    with jax.disable_jit():
        without = found()
    np.testing.assert_allclose(without, found(), rtol=1e-4, atol=1e-5)


# ---- transformations -----------------------------------------------------------------------------


def loss(l2, A, y):
    """Of a solution, by the ridge."""
    x = jaxht.solve(jaxht.LeastSquares(A, y, l2, mean=False), jaxht.Sparse(K), jaxht.HTP()).x
    return jnp.sum((x - 1.0) ** 2)


def test_transformations_compose():
    """vmap, scan, checkpoint, shard_map and a root finder around a solution and its derivative."""
    with x64():
        A, y = data(np.float64)
        slope = quick(jax.grad(loss))
        l2s = jnp.array([0.1, 0.2, 0.3, 0.4])
        expected = np.array([slope(l2, A, y) for l2 in l2s])
        for_all = {
            "vmap": jax.vmap(jax.grad(loss), in_axes=(0, None, None)),
            "grad of vmap": jax.grad(
                lambda l2s, A, y: jnp.sum(jax.vmap(loss, in_axes=(0, None, None))(l2s, A, y))
            ),
            "scan": jax.grad(
                lambda l2s, A, y: jax.lax.scan(lambda s, l2: (s + loss(l2, A, y), None), 0.0, l2s)[
                    0
                ]
            ),
            "checkpoint": jax.vmap(jax.grad(jax.checkpoint(loss)), in_axes=(0, None, None)),
            "map": lambda l2s, A, y: jax.lax.map(lambda l2: jax.grad(loss)(l2, A, y), l2s),
        }
        for name, function in for_all.items():
            np.testing.assert_allclose(
                quick(function)(l2s, A, y), expected, rtol=1e-9, err_msg=name
            )
        mesh, lanes = Mesh(jax.devices()[:1], "lanes"), PartitionSpec("lanes")
        sharded = jax.shard_map(
            for_all["vmap"], mesh=mesh, in_specs=(lanes, PartitionSpec(), PartitionSpec()), out_specs=lanes,
            check_vma=False,
        )  # fmt: skip
        np.testing.assert_allclose(quick(sharded)(l2s, A, y), expected, rtol=1e-9)

        def ridge_for(level):
            """The ridge at which the loss reaches a level, by Newton's method on it; a root has a
            derivative."""

            def root(f, start):
                return jax.lax.fori_loop(0, 20, lambda _, l2: l2 - f(l2) / jax.grad(f)(l2), start)

            return jax.lax.custom_root(
                lambda l2: loss(l2, A, y) - level, 0.2, root, lambda g, b: b / g(1.0)
            )

        level = loss(0.3, A, y)
        np.testing.assert_allclose(quick(ridge_for)(level), 0.3, rtol=1e-9)
        np.testing.assert_allclose(
            quick(jax.grad(ridge_for))(level), 1 / slope(0.3, A, y), rtol=1e-8
        )


def test_donation():
    """The solution may take the memory of the start."""
    A, y = data()

    @functools.partial(jax.jit, donate_argnums=0)
    def go_on(x):
        return jaxht.solve(
            jaxht.LeastSquares(A, y, mean=False), jaxht.Sparse(K), jaxht.IHT(), x0=x, stop=STOP
        ).x

    start = jnp.zeros(D)
    once = np.asarray(go_on(start))
    assert start.is_deleted()
    np.testing.assert_array_equal(go_on(jnp.zeros(D)), once)


def test_export(tmp_path):
    """A solution and its gradient, serialised, give the same numbers in another process."""
    pytest.importorskip("flatbuffers", reason="JAX serialises by it")
    A, y = data()
    exported = jax.export.export(jax.jit(jax.value_and_grad(loss)))(jnp.float32(0.1), A, y)
    (tmp_path / "program").write_bytes(exported.serialize(vjp_order=0))
    np.savez(tmp_path / "data.npz", A=A, y=y)
    script = f"""
        import jax, numpy as np
        from jax import export
        data = np.load({str(tmp_path / "data.npz")!r})
        run = export.deserialize(bytearray(open({str(tmp_path / "program")!r}, "rb").read()))
        value, slope = run.call(np.float32(0.1), data["A"], data["y"])
        np.save({str(tmp_path / "out.npy")!r}, np.array([value, slope]))
    """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], check=True, cwd=ROOT, timeout=120
    )
    here = jax.jit(jax.value_and_grad(loss))(jnp.float32(0.1), A, y)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), np.array(here), rtol=1e-5)


# ---- other libraries -----------------------------------------------------------------------------

with_equinox = pytest.mark.skipif(
    jax.__version_info__ < (0, 8), reason="after equinox jax.clear_caches aborts"
)


@with_equinox
def test_equinox():
    """Objectives, solvers and results pass through filter_jit and filter_grad."""
    with x64():
        A, y = data(np.float64)
        f = jaxht.LeastSquares(A, y, jnp.asarray(0.1), mean=False)

        @eqx.filter_jit
        def solution(f, solver):
            return jaxht.solve(f, jaxht.Sparse(K), solver)

        def total(f):
            return jnp.sum((jaxht.solve(f, jaxht.Sparse(K), jaxht.HTP()).x - 1.0) ** 2)

        np.testing.assert_allclose(
            solution(f, jaxht.HTP()).x, jaxht.solve(f, jaxht.Sparse(K), jaxht.HTP()).x
        )
        found = eqx.filter_jit(eqx.filter_grad(total))(f)
        np.testing.assert_allclose(found.l2, jax.grad(loss)(0.1, A, y), rtol=1e-9)


def test_annotations_hold():
    """The library under beartype: what is annotated is what is passed."""
    command = [sys.executable, "-m", "tests.annotations"]
    run = subprocess.run(command, cwd=ROOT, timeout=500, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-2000:]


@with_equinox
def test_functions_that_check_their_types():
    """A caller's functions and modules under jaxtyping and beartype take and return results, by
    dtype and shape."""

    @checked
    class Model(eqx.Module):
        coefficients: Float[jax.Array, " d"]
        mask: Bool[jax.Array, " d"]
        loss: Float[jax.Array, ""]
        fit: jaxht.Result

    @eqx.filter_jit
    @checked
    def fit(
        objective: jaxht.Objective,
        constraint: jaxht.Constraint,
        solver: jaxht.Solver,
        stop: jaxht.Stop,
    ) -> Model:
        result = jaxht.solve(objective, constraint, solver, stop=stop)
        return Model(result.x, result.support.mask, result.value, result)

    @checked
    def refit(A: Float[Array, "n d"], y: Float[Array, " n"], model: Model) -> Float[Array, " d"]:
        f = jaxht.LeastSquares(A, y, mean=False)
        support: jaxht.ModelSubspace = model.fit.support
        return jaxht.subproblems.refit(f.prepare(), support, model.coefficients).x

    @checked
    def summary(result: jaxht.Result) -> tuple[Int[Array, ""], Float[Array, " d"], jaxht.Support]:
        return result.status, result.x, result.support

    A, y = data()
    for constraint in (jaxht.Sparse(K), jaxht.Sparse(jnp.asarray(K), k_max=K)):
        model = fit(jaxht.LeastSquares(A, y, 0.1, mean=False), constraint, jaxht.HTP(), STOP)
        assert np.count_nonzero(model.coefficients) == K and model.mask.sum() == K
        assert refit(A, y, model).shape == (D,)
        lanes = jax.vmap(lambda y, model=model: refit(A, y, model))(jnp.stack([y, 2 * y]))
        np.testing.assert_allclose(lanes[1], 2 * lanes[0], rtol=1e-4)
        assert summary(model.fit)[2].size == K
    with pytest.raises(TypeCheckError):
        refit(A, y[1:], model)
    for wrong in ((jaxht.HTP(), jaxht.Sparse(K)), (jaxht.Sparse(K), "HTP")):
        with pytest.raises(TypeCheckError):
            fit(jaxht.LeastSquares(A, y, mean=False), *wrong, STOP)


@with_equinox
def test_optimistix():
    """The ridge of the least loss, by a minimiser of optimistix through solve; and its form of a
    function for solve."""
    with x64():
        A, y = data(np.float64)

        def fn(log_l2, args):
            return loss(jnp.exp(log_l2), *args)

        best = optx.minimise(
            fn, optx.BFGS(1e-10, 1e-10), jnp.asarray(0.0), (A, y), throw=False
        ).value
        grid = jnp.linspace(best - 1, best + 1, 9)
        assert jnp.argmin(jax.vmap(lambda v: fn(v, (A, y)))(grid)) == 4

        def squares(x, args):
            A, y = args
            return jnp.sum((A @ x - y) ** 2) / 2

        f = jaxht.Custom(squares, (A, y), like=D)
        expected = jaxht.solve(jaxht.LeastSquares(A, y, mean=False), jaxht.Sparse(K), jaxht.HTP()).x
        np.testing.assert_allclose(
            jaxht.solve(f, jaxht.Sparse(K), jaxht.HTP()).x, expected, atol=1e-8
        )
