"""Every example at a small size, on the digits that scikit-learn brings along."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optimistix
import pytest

import jaxht
from examples import convolutions, images, likelihoods, mlp, optimistix_solver, sindy
from jaxht import transforms
from tests.util import x64

pytestmark = pytest.mark.usefixtures("all_quickly")
CHANCE = 10.0  # per cent
SPARSITIES = (0.8, 0.9)
OPTIONS = {"epochs": 2, "batch_size": 50, "learning_rate": 5e-3}  # 56 steps


@pytest.fixture(scope="module")
def data():
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(images.VARIABLE, raising=False)
        *arrays, _ = images.load()
    return tuple(arrays)


@pytest.fixture(scope="module")
def rows(data):
    """What ``mlp`` trains, with one hidden layer of two: most of the time is that of the
    compiler."""
    return mlp.run(data, num_seeds=2, sparsities=SPARSITIES, every=5, hidden=(100,), **OPTIONS)


def kernels_of(params):
    return [layer["kernel"] for layer in params]


def budgets(params, sparsity):
    """The numbers of entries of each kernel that the Erdős-Rényi rule allows, in exact
    arithmetic."""
    shapes = jax.tree.map(lambda p: p[0], params)
    fractions = transforms.erdos_renyi_kernel(shapes, 1 - sparsity)
    return [
        round(fraction["kernel"] * one["kernel"].size)
        for fraction, one in zip(fractions, shapes, strict=True)
    ]


def test_without_a_folder_the_digits_are_loaded_and_named(capsys, monkeypatch):
    monkeypatch.delenv(images.VARIABLE, raising=False)
    X, y, X_test, y_test, name = images.load()
    assert name == "digits" and "Data: digits" in capsys.readouterr().out
    assert (
        X.shape == (1400, 64)
        and X_test.shape == (397, 64)
        and y.shape == (1400,)
        and y_test.shape == (397,)
    )
    assert X.dtype == np.float32 and y.dtype == np.int32 and X.min() == 0 and X.max() == 1
    assert (np.bincount(y, minlength=10) > 100).all() and (
        np.bincount(y_test, minlength=10) > 20
    ).all()
    np.testing.assert_array_equal(X, images.load()[0])


def test_mnist_is_read_from_the_folder_that_is_named(tmp_path, capsys, monkeypatch):
    X = np.arange(7 * 784).reshape(7, 784).astype(np.uint8)
    np.savez(tmp_path / "mnist.npz", X=X, y=np.arange(7), n_train=5)
    monkeypatch.setenv(images.VARIABLE, str(tmp_path))
    for folder in (None, tmp_path):
        x, y, x_test, y_test, name = images.load(folder)
        assert name == "MNIST" and "Data: MNIST" in capsys.readouterr().out
        np.testing.assert_allclose(np.concatenate([x, x_test]), X / 255, rtol=1e-6)
        assert x.dtype == np.float32 and y.tolist() == [0, 1, 2, 3, 4] and y_test.tolist() == [5, 6]
    with pytest.raises(FileNotFoundError, match=r"mnist\.npz"):
        images.load(tmp_path / "elsewhere")


def test_minibatches_go_through_the_images_in_a_new_order_each_time():
    x, y = np.arange(10.0)[:, None], np.arange(10)
    batches = list(images.minibatches(x, y, batch_size=3, epochs=2))
    assert len(batches) == 6 and all(len(b) == 3 and (a[:, 0] == b).all() for a, b in batches)
    first, second = (np.concatenate([b for _, b in part]) for part in (batches[:3], batches[3:]))
    assert len(set(first)) == len(set(second)) == 9 and (first != second).any()


def test_every_lane_has_the_promised_nonzeros(rows):
    for name, row in rows.items():
        if name == "dense":
            continue
        for lane in range(2 * len(SPARSITIES)):
            counts = [int(jnp.sum(kernel[lane] != 0)) for kernel in kernels_of(row.params)]
            assert counts == budgets(row.params, SPARSITIES[lane % 2]), name
        assert all(jnp.mean(layer["bias"] != 0) > 0.5 for layer in row.params)


def test_what_is_trained_classifies(rows):
    assert rows["dense"].accuracy.shape == (2, 1) and (rows["dense"].accuracy > 75).all()
    for name in (mlp.RETRAINED, "gradual magnitude pruning", "gradual hard thresholding"):
        assert rows[name].accuracy.shape == (2, 2)
        assert (rows[name].accuracy > 3 * CHANCE).all(), name
    assert (rows["hard thresholding"].accuracy[:, 0] > 3 * CHANCE).all()
    assert (rows[mlp.RETRAINED].accuracy > rows["one-shot pruning"].accuracy).all()


def test_retraining_keeps_the_support_and_moves_the_weights(rows):
    before, after = rows["one-shot pruning"].params, rows[mlp.RETRAINED].params
    for p, q in zip(kernels_of(before), kernels_of(after), strict=True):
        np.testing.assert_array_equal(p != 0, q != 0)
        assert not np.array_equal(p, q)


def test_pruned_weights_are_those_of_the_dense_network(rows):
    for dense, pruned in zip(
        kernels_of(rows["dense"].params), kernels_of(rows["one-shot pruning"].params), strict=True
    ):
        dense = np.repeat(dense, len(SPARSITIES), axis=0)
        np.testing.assert_array_equal(pruned, np.where(pruned != 0, dense, 0))


def test_a_lane_is_the_run_of_its_seed_and_sparsity(data, rows):
    # With the support held: otherwise a difference in rounding may decide whether an entry is in.
    def method(density, steps):
        return transforms.hard_threshold(density, freeze_at=0, mask=mlp.kernels)

    key, lane = jax.random.split(jax.random.key(0), 2)[1], 2  # the second seed, the first sparsity
    start = jax.tree.map(lambda p: p[lane], rows["one-shot pruning"].params)
    params, history = jax.jit(partial(mlp.train, method=method, **OPTIONS))(
        start, key, 1 - SPARSITIES[0], data
    )
    np.testing.assert_allclose(history[-1], rows[mlp.RETRAINED].accuracy[1, 0], atol=0.3)
    for p, q in zip(
        jax.tree.leaves(params), jax.tree.leaves(rows[mlp.RETRAINED].params), strict=True
    ):
        np.testing.assert_allclose(p, q[lane], rtol=1e-2, atol=1e-3)


def test_the_table_is_markdown_with_the_measured_sparsity(rows):
    lines = mlp.table(rows, SPARSITIES).splitlines()
    assert lines[0] == "| test accuracy, % | 80% zero | 90% zero | measured sparsity, % |"
    assert len(lines) == 2 + len(rows) and all(line.count("|") == 5 for line in lines)
    assert lines[2].startswith("| dense |") and lines[2].endswith("|  | 0.00 |")
    assert all(line.count("±") == 2 and line.endswith("| 80.00 / 90.00 |") for line in lines[3:])


def test_an_interrupted_run_goes_on_where_it_was(data):
    x, y = data[0][:500], data[1][:500]
    optimiser = optax.chain(
        optax.adam(1e-3),
        transforms.hard_threshold(
            transforms.cubic(0.1, end=8), every=2, hold=True, mask=mlp.kernels
        ),
    )

    @jax.jit
    def step(params, state, batch):
        updates, state = optimiser.update(jax.grad(mlp.loss)(params, *batch), state, params)
        return optax.apply_updates(params, updates), state

    def steps(params, state, batches):
        for batch in batches:
            params, state = step(params, state, batch)
        return params, state

    batches = list(images.minibatches(x, y, batch_size=50, epochs=1))
    params = [
        {"kernel": 0.1 * jax.random.normal(jax.random.key(0), (64, 10)), "bias": jnp.zeros(10)}
    ]  # one layer
    through = steps(params, optimiser.init(params), batches)
    # To the host and back, as a checkpoint would.
    saved = jax.tree.map(np.asarray, steps(params, optimiser.init(params), batches[:5]))
    resumed = steps(*jax.tree.map(jnp.asarray, saved), batches[5:])
    for p, q in zip(jax.tree.leaves(through), jax.tree.leaves(resumed), strict=True):
        np.testing.assert_array_equal(p, q)


def test_nnx(data):
    nnx = pytest.importorskip("flax.nnx")
    from examples import mlp_nnx

    model, optimiser = mlp_nnx.train(data, sparsity=0.9, **OPTIONS)
    measured = transforms.sparsity(nnx.state(model, nnx.Param), mask=mlp_nnx.kernels)
    size = 64 * 300 + 300 * 100 + 100 * 10
    assert sum(int(count) for count in jax.tree.leaves(measured.nonzeros)) == size // 10
    assert mlp_nnx.accuracy(model, *data[2:]) > 5 * CHANCE
    assert all(jnp.mean(model.layers[i].bias[...] != 0) > 0.5 for i in (0, 2, 4))
    assert int(optimiser.step[...]) == 56


@pytest.mark.skipif(
    jax.__version_info__ < (0, 7, 1),
    reason="on jax 0.7.0 filter_jit corrupts the heap: the process ends by an abort",
)
def test_equinox(data):
    eqx = pytest.importorskip("equinox")
    from examples import mlp_equinox

    model, state = mlp_equinox.train(data, sparsity=0.9, **OPTIONS)
    measured = transforms.sparsity(
        eqx.filter(model, eqx.is_inexact_array), mask=mlp_equinox.weights
    )
    size = 64 * 300 + 300 * 100 + 100 * 10
    assert sum(int(count) for count in jax.tree.leaves(measured.nonzeros)) == size // 10
    assert mlp_equinox.accuracy(model, *data[2:]) > 5 * CHANCE
    assert all(jnp.mean(model.layers[i].bias != 0) > 0.5 for i in (0, 2, 4))
    assert int(state[-1].inner_state.count) == 56


def test_the_command_line_names_its_options(capsys):
    with pytest.raises(SystemExit, match="0"):
        mlp.main(["--help"])
    printed = capsys.readouterr().out
    for option in "--data-dir", "--scope", "--seeds", "--sparsities", "--output":
        assert option in printed


def test_likelihoods_are_those_of_a_loop():
    rng = np.random.default_rng(0)
    theta, X = rng.standard_normal(6).astype("float32"), np.sign(rng.standard_normal((5, 4)))
    couplings = np.zeros((4, 4))
    couplings[np.triu_indices(4, 1)] = theta
    couplings += couplings.T
    pseudo = [np.log(1 + np.exp(-2 * row[i] * couplings[i] @ row)) for row in X for i in range(4)]
    np.testing.assert_allclose(likelihoods.ising(theta, X), np.sum(pseudo) / 5, rtol=1e-5)
    x, A, event = (
        rng.standard_normal(3),
        rng.standard_normal((6, 3)).astype("float32"),
        rng.random(6) < 0.6,
    )
    u = A @ x  # times fall, so at risk with i are all before it
    partial = [np.log(np.sum(np.exp(u[: i + 1]))) - u[i] for i in range(6) if event[i]]
    np.testing.assert_allclose(likelihoods.cox(x, A, event), np.sum(partial) / 6, rtol=1e-5)


def test_sparse_likelihoods_find_what_was_planted(capsys):
    assert min(likelihoods.main(p=10, num_edges=8, n=1200, d=60, K=4)) == 1.0
    assert "SUPPORT_STABLE" in capsys.readouterr().out


# ---- equations from trajectories -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("system", "span", "terms"),
    [
        (sindy.lorenz, 20.0, [{"x", "y"}, {"x", "y", "x z"}, {"z", "x y"}]),
        (sindy.roessler, 60.0, [{"y", "z"}, {"x", "y"}, {"1", "z", "x z"}]),
    ],
)
def test_equations_are_found(system, span, terms):
    x, velocity = sindy.measure(system, span, noise=0.002)
    A, names = sindy.polynomials(x, degree=2)
    model = sindy.ExactSubset(k_max=4, window=sindy.WINDOW).fit(A, velocity)
    assert [set(np.array(names)[row != 0]) for row in model.coef_] == terms
    assert model.gap_ <= 1e-4
    np.testing.assert_allclose(model.predict(A).std(axis=0), velocity.std(axis=0), rtol=0.05)


# ---- optimistix ----------------------------------------------------------------------------------


def test_optimistix_calls_a_solver(capsys):
    """Robust regression: the planted coefficients, and a scale and a ridge that BFGS has found
    through them."""
    solution, result, best, x = optimistix_solver.main()
    np.testing.assert_allclose(solution.value, result.x, atol=1e-5)
    np.testing.assert_array_equal(np.flatnonzero(result.x), np.flatnonzero(x))
    before, after = (float(line.split()[-1]) for line in capsys.readouterr().out.splitlines()[-2:])
    assert (
        after < before - 0.03 and np.exp(best.value[0]) < 1
    )  # a scale nearer to that of the noise


def of_optimistix(l2, b, *, y0=None, has_aux=False, solver=None, **options):
    """The solution of a small problem, least squares with a quartic; y is a pytree if y0 is one."""
    A = np.random.default_rng(0).normal(size=(len(b), 6))
    y0 = jnp.zeros(6) if y0 is None else y0

    def fn(y, args):
        flat = jnp.concatenate(jax.tree.leaves(y))
        value = jnp.sum((A @ flat - args[1]) ** 2) + args[0] * jnp.sum(flat**4)
        return (value, {"size": jnp.sum(flat**2)}) if has_aux else value

    sparse = optimistix_solver.SparseMinimiser(
        jaxht.Sparse(2), jaxht.HTP() if solver is None else solver
    )
    return optimistix.minimise(
        fn,
        sparse,
        y0,
        (l2, b),
        has_aux=has_aux,
        **{"adjoint": optimistix_solver.OnSupport(), **options},
    )


def test_optimistix_has_the_derivatives_of_a_sparse_solution():
    b, c = np.random.default_rng(1).normal(size=8), np.arange(6.0)

    def expected(l2, b):
        A = np.random.default_rng(0).normal(size=(len(b), 6))
        f = jaxht.Custom(
            lambda y, l2, b: jnp.sum((A @ y - b) ** 2) + l2 * jnp.sum(y**4), l2, b, like=6
        )
        return jnp.vdot(c, jaxht.solve(f, jaxht.Sparse(2), jaxht.HTP()).x)

    def total(l2, b):
        return jnp.vdot(c, of_optimistix(l2, b).value)

    with x64():
        for mode in (jax.grad, jax.jacfwd):
            found, known = (jax.jit(mode(f, (0, 1)))(0.1, b) for f in (total, expected))
            for one, other in zip(found, known, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-12)
        lanes = jax.vmap(jax.value_and_grad(total), in_axes=(0, None))(jnp.array([0.1, 0.2]), b)
        np.testing.assert_allclose(lanes[1][0], found[0], rtol=1e-8)
        # Not at the minimum on its support: no derivative, rather than a wrong one.
        for mode in (jax.grad, jax.jacfwd):
            cut_off = mode(
                lambda l2: of_optimistix(l2, b, solver=jaxht.IHT(), max_steps=2, throw=False).value[
                    3
                ]
            )
            assert np.isnan(cut_off(0.1))


def test_optimistix_is_told_how_the_run_ended():
    b, iht = np.random.default_rng(1).normal(size=8).astype("float32"), jaxht.IHT()
    results = optimistix.RESULTS
    solution = of_optimistix(0.1, b, y0=[jnp.ones(2), jnp.ones(4)], has_aux=True)
    assert solution.result == results.successful and [len(part) for part in solution.value] == [
        2,
        4,
    ]
    np.testing.assert_allclose(
        solution.aux["size"], sum(jnp.sum(part**2) for part in solution.value), rtol=1e-5
    )
    assert 0 < solution.stats["num_steps"] < 10 and int(solution.stats["support"].size) == 2
    for options, result in (
        ({"solver": iht, "max_steps": 2}, results.nonlinear_max_steps_reached),
        ({"solver": jaxht.IHT(step_size=100.0)}, results.nonlinear_divergence),
        ({"y0": jnp.full(6, jnp.nan)}, getattr(results, "nonfinite", results.nonlinear_divergence)),
    ):
        assert of_optimistix(0.1, b, throw=False, **options).result == result
    with pytest.raises(Exception, match="maximum number of steps"):
        of_optimistix(0.1, b, solver=iht, max_steps=2)
    with pytest.raises(ValueError, match="OnSupport"):
        of_optimistix(0.1, b, adjoint=optimistix.ImplicitAdjoint())


def test_convolutions_pruned_by_alps_keep_most_of_their_accuracy(data):
    x, y, x_test, y_test = data
    start = convolutions.init(jax.random.key(0), x.shape[1])
    params = convolutions.train(start, x, y, epochs=8, batch_size=50, learning_rate=4e-3)
    dense = convolutions.accuracy(params, x_test, y_test)
    assert dense > 90
    rows = {name: convolutions.prune(params, x[:400], 0.8, name) for name in ("magnitude", "ALPS")}
    for row in rows.values():
        for name in row.errors:
            share = float(jnp.mean(row.params[name] != 0))
            assert share == pytest.approx(0.2, abs=0.01)
    accuracies = {
        name: convolutions.accuracy(row.params, x_test, y_test) for name, row in rows.items()
    }
    # The first layers have the same inputs whatever the method.
    assert rows["ALPS"].errors["first"] < rows["magnitude"].errors["first"]
    assert accuracies["magnitude"] + 10 < accuracies["ALPS"] > dense - 15
