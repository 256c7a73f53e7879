"""Pruning of layers: the published methods as their sources describe them, exchanges against
refits of all pairs."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax

import jaxht
from jaxht import pruning, transforms
from jaxht.transforms import NM, Axis, Blocks
from tests import pruning_reference as reference
from tests.util import x64

pytestmark = pytest.mark.usefixtures("all_quickly")

D, C = 12, 5
RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, D)) @ (np.eye(D) + 0.4 * RNG.normal(size=(D, D)))
G = X.T @ X
W = RNG.normal(size=(D, C))
SCOPES = {"leaf": (0.5, "leaf"), "column": (6, Axis(0)), "2:4": (2, NM(4, 0))}
SHARED = {"row": (2, Axis(-1)), "block": (7, Blocks((4, 1)))}


@pytest.fixture(autouse=True)
def double():
    with x64():
        yield


def keep(scores, k, scope):
    """The mask of the largest scores, in loops."""
    mask = np.zeros(scores.shape, bool)
    if scope == "leaf":
        count = round(k * scores.size) if isinstance(k, float) else k
        mask.ravel()[np.argsort(-np.abs(scores).ravel())[:count]] = True
        return mask
    if scope == Axis(-1):
        return keep(scores.T, k, Axis(0)).T
    if isinstance(scope, Blocks):
        norms = np.sum(scores.reshape(D // 4, 4, C) ** 2, axis=1)
        return np.repeat(keep(norms, k, "leaf"), 4, axis=0)
    size = scope.m if isinstance(scope, NM) else len(scores)
    for first in range(0, len(scores), size):
        for j in range(scores.shape[1]):
            best = np.argsort(-np.abs(scores[first : first + size, j]))[:k]
            mask[first + best, j] = True
    return mask


def error(found, gram=G):
    change = found - W
    return np.trace(change.T @ gram @ change) / np.trace(W.T @ gram @ W)


def is_allowed(mask, name):
    counts = {
        "leaf": [mask.sum(), D * C // 2],
        "column": [mask.sum(axis=0), D // 2],
        "2:4": [mask.reshape(D // 4, 4, C).sum(axis=1), 2],
        "row": [mask.sum(axis=1), 2],
        "block": [mask.reshape(D // 4, 4, C).all(axis=1).sum(), 7],
    }
    return np.all(np.equal(*counts[name]))


@pytest.mark.parametrize("name", SCOPES | SHARED)
def test_methods_are_those_of_their_sources(name):
    k, scope = (SCOPES | SHARED)[name]
    scores = {"Magnitude": np.abs(W), "Wanda": np.abs(W) * np.linalg.norm(X, axis=0)[:, None]}
    expected = {}
    for method, score in scores.items():
        mask = keep(score, k, scope)
        expected[method] = (np.where(mask, W, 0), mask)
    block_size = 8

    def keep_block(scores, first):
        if name in ("2:4", "row"):
            return keep(scores, k, scope)
        kept = D * C // 2 if name == "leaf" else k
        count = kept * (first + len(scores)) // D - kept * first // D
        return keep(scores, count, scope)

    group = 4 if name == "2:4" else None
    if name != "block":
        expected["SparseGPT"] = reference.sparsegpt(
            W, G, keep_block, block_size=block_size, group=group
        )
    expected["ALPS"] = reference.alps(W, G, lambda scores: keep(scores, k, scope))
    for method, (weights, mask) in expected.items():
        options = {"block_size": block_size} if method == "SparseGPT" else {}
        made = getattr(pruning, method)(**options)
        found = pruning.prune_layer(W, G, k, scope=scope, method=made)
        np.testing.assert_array_equal(found.mask, mask, err_msg=method)
        np.testing.assert_allclose(found.weights, weights, rtol=1e-7, atol=1e-10, err_msg=method)
        assert float(found.error) == pytest.approx(error(weights), rel=1e-9)
        assert is_allowed(np.asarray(found.mask), name)


@pytest.mark.parametrize("name", SCOPES)
def test_exchanges_are_the_best_of_all_pairs(name):
    k, scope = SCOPES[name]
    start = pruning.Magnitude()
    first = np.asarray(pruning.prune_layer(W, G, k, scope=scope, method=start).mask)
    method = pruning.Exchanges(start, damping=0.0, num_rounds=0)
    found = pruning.prune_layer(W, G, k, scope=scope, method=method)
    assert is_allowed(np.asarray(found.mask), name)
    total = 0.0
    for j in range(C):
        support, least = reference.exchange(
            W[:, j],
            G,
            np.flatnonzero(first[:, j]),
            lambda i, j: name != "2:4" or i // 4 == j // 4,
            rtol=1e-4,
        )
        assert set(np.flatnonzero(found.mask[:, j])) == support
        total += least
    assert float(found.error) == pytest.approx(total / np.trace(W.T @ G @ W), rel=1e-6)


class InAllOutputs:
    """As many weights of each output, the first ones."""

    def prune(self, layer):
        mask = np.arange(D)[:, None] < np.full(C, layer.k // C)
        return np.where(mask, layer.weights, 0), mask


def test_weights_move_to_outputs_where_they_gain_more():
    """Of two outputs, of which one needs all and the other none; the error falls further."""
    ends = [
        float(
            pruning.prune_layer(
                W * np.array([9.0, 0.1, 1, 1, 1]),
                G,
                0.5,
                method=pruning.Exchanges(InAllOutputs(), damping=0.0, num_rounds=rounds),
            ).error
        )
        for rounds in (0, 30)
    ]
    assert ends[1] < 0.5 * ends[0]


def test_exchanges_end_below_the_other_methods():
    """In the error that they minimise, with the damping that ALPS has as well."""
    damped = G + 0.01 * np.mean(np.diag(G)) * np.eye(D)
    for k, scope in SCOPES.values():
        errors = {}
        for name, method in {
            "magnitude": pruning.Magnitude(),
            "wanda": pruning.Wanda(),
            "sparsegpt": pruning.SparseGPT(block_size=4),
            "alps": pruning.ALPS(),
            "exchanges": pruning.Exchanges(),
        }.items():
            found = pruning.prune_layer(W, G, k, scope=scope, method=method)
            change = np.asarray(found.weights) - W
            errors[name] = np.trace(change.T @ damped @ change)
        assert errors["exchanges"] <= min(errors.values()) * (1 + 1e-12)


def test_dead_inputs_and_empty_masks():
    """Weights of inputs that are 0 are of no use; nothing is NaN."""
    dead = G.copy()
    dead[[0, 5]] = 0
    dead[:, [0, 5]] = 0
    methods = [pruning.SparseGPT(), pruning.ALPS(), pruning.Exchanges(), pruning.Wanda()]
    for method in methods:
        found = pruning.prune_layer(W, dead, 0.5, method=method)
        assert np.all(np.isfinite(found.weights)) and 0 <= float(found.error) < 1
        nothing = pruning.prune_layer(W, dead, 0, method=method)
        assert not np.any(nothing.weights) and float(nothing.error) == pytest.approx(1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": W[:, 0]}, "weights must have shape"),
        ({"gram": G[1:]}, "gram must have shape"),
        ({"gram": np.triu(G)}, "symmetric"),
        ({"gram": G * np.nan}, "gram must be finite"),
        ({"k": 1.5}, "k must be"),
        ({"scope": "global"}, "scope must be"),
        ({"scope": Axis(2)}, "along an axis of"),
        ({"scope": NM(5, 1)}, "along the inputs"),
        ({"scope": Blocks((5, 1))}, "must tile the weights"),
        ({"scope": Axis(1), "method": pruning.Exchanges()}, "Exchanges does not take the scope"),
        ({"scope": Blocks((4,)), "method": pruning.SparseGPT()}, "must tile the weights"),
        ({"scope": Blocks((4, 1)), "method": pruning.SparseGPT()}, "SparseGPT does not take"),
        ({"scope": NM(5, 0)}, "multiple of 5"),
    ],
)
def test_what_is_no_layer_is_refused(change, message):
    arguments = {"weights": W, "gram": G, "k": 0.5, "scope": "leaf"} | change
    with pytest.raises(ValueError, match=message):
        pruning.prune_layer(**arguments)


def test_moments_give_the_gram_matrix():
    moments = jaxht.Moments.zero(D, C).add(X[:30], X[:30] @ W).add(X[30:], X[30:] @ W)
    gram = moments.least_squares().gram
    found = pruning.prune_layer(W, gram, 0.5, method=pruning.Wanda())
    assert float(found.error) == pytest.approx(error(np.asarray(found.weights)), rel=1e-9)


# ---- models --------------------------------------------------------------------------------------


def mlp(params, x):
    return jnp.tanh(x @ params["hidden"] + params["bias"]) @ params["out"]


def nnx_model(params):
    from flax import nnx

    options = {"param_dtype": np.float64, "rngs": nnx.Rngs(0)}
    model = nnx.Sequential(nnx.Linear(D, 7, **options), jnp.tanh, nnx.Linear(7, C, **options))
    first, _, last = model.layers
    first.kernel[...], first.bias[...] = params["hidden"], params["bias"]
    last.kernel[...] = params["out"]
    graphdef, state = nnx.split(model)
    return lambda state, x: nnx.merge(graphdef, state)(x), state


def equinox_model(params):
    import equinox as eqx

    model = eqx.nn.MLP(D, C, 7, 1, activation=jnp.tanh, key=jax.random.key(0))
    values = (params["hidden"].T, params["bias"], params["out"].T, jnp.zeros(C))
    model = eqx.tree_at(
        lambda m: (m.layers[0].weight, m.layers[0].bias, m.layers[1].weight, m.layers[1].bias),
        model,
        values,
    )
    arrays, static = eqx.partition(model, eqx.is_array)
    return lambda arrays, x: jax.vmap(eqx.combine(arrays, static))(x), arrays


@pytest.fixture
def params():
    rng = np.random.default_rng(1)
    shapes = {"hidden": (D, 7), "bias": (7,), "out": (7, C)}
    return {name: jnp.asarray(rng.normal(size=shape)) for name, shape in shapes.items()}


@pytest.mark.parametrize("make", [lambda params: (mlp, params), nnx_model, equinox_model])
def test_inputs_of_dense_layers_are_found(params, make):
    """In plain functions, Flax NNX and Equinox, over batches."""
    apply, own = make(params)
    grams = pruning.gram_matrices(apply, own, [X[:40], X[40:]])
    hidden = np.tanh(X @ params["hidden"] + params["bias"])
    for found, inputs in zip(grams.values(), (X, hidden), strict=True):
        np.testing.assert_allclose(found, inputs.T @ inputs, rtol=1e-6)


@pytest.mark.parametrize(
    "reduced",
    [
        lambda h: h - lax.reduce(h, -jnp.inf, jnp.logaddexp, (1,))[:, None],
        lambda h: lax.reduce_window(h, -jnp.inf, jnp.logaddexp, (1, 3), (1, 1), "SAME"),
        jax.checkpoint(jnp.tanh),
        jax.jit(jax.nn.relu),
    ],
    ids=["reduce", "reduce_window", "checkpoint", "relu"],
)
def test_programs_within_a_model_are_evaluated_as_they_are(params, reduced):
    def apply(params, x):
        return reduced(x @ params["hidden"]) @ params["out"]

    found = pruning.capture(apply, params, X)
    np.testing.assert_allclose(
        found["['out']"].inputs, reduced(X @ params["hidden"]), rtol=1e-6, atol=1e-12
    )


def test_a_weight_that_is_multiplied_from_both_sides_is_no_layer():
    found = pruning.capture(lambda W, x: jnp.tanh(x @ W) @ W.T, jnp.asarray(W), X)
    assert found == {}
    twice = pruning.capture(lambda W, x: x @ W + (2 * x) @ W, jnp.asarray(W), X)
    np.testing.assert_allclose(twice[""].inputs, np.concatenate([X, 2 * X]))


def test_layers_are_pruned_one_after_the_other(params):
    seen = []
    method = pruning.SparseGPT()
    pruned = pruning.prune_model(mlp, params, [X], 0.5, method=method, report=seen.append)
    assert [layer.name for layer in pruned.layers] == ["['hidden']", "['out']"]
    assert [len(so_far.layers) for so_far in seen] == [1, 2]
    first = pruning.prune_layer(params["hidden"], X.T @ X, 0.5, method=method)
    np.testing.assert_allclose(pruned.params["hidden"], first.weights, rtol=1e-6)
    hidden = np.tanh(X @ first.weights + params["bias"])
    second = pruning.prune_layer(params["out"], hidden.T @ hidden, 0.5, method=method)
    np.testing.assert_allclose(pruned.params["out"], second.weights, rtol=1e-5, atol=1e-8)
    assert pruned.layers[1].error == pytest.approx(float(second.error), rel=1e-6)
    assert all(np.all(mask) == (name == "bias") for name, mask in pruned.masks.items())

    # Training goes on with the zeros as they are.
    chain = optax.chain(optax.sgd(0.1), transforms.hard_threshold(1.0, freeze_at=0))
    gradient = jax.tree.map(jnp.ones_like, params)
    updates, _ = chain.update(gradient, chain.init(pruned.params), pruned.params)
    after = optax.apply_updates(pruned.params, updates)
    for name in ("hidden", "out"):
        np.testing.assert_array_equal(after[name] != 0, pruned.masks[name])


def test_a_run_resumes_after_the_layers_that_it_has(params):
    seen = []
    method = pruning.SparseGPT()
    whole = pruning.prune_model(mlp, params, [X], 0.5, method=method, report=seen.append)
    again = []
    resumed = pruning.prune_model(
        mlp, params, [X], 0.5, method=method, start=seen[0], report=again.append
    )
    assert len(again) == 1 and resumed.layers == whole.layers
    for found, expected in ((resumed.params, whole.params), (resumed.masks, whole.masks)):
        jax.tree.map(np.testing.assert_array_equal, found, expected)
    other = seen[0]._replace(params={**params, "bias": jnp.zeros(3)})
    with pytest.raises(ValueError, match=r"start\.params must be like params"):
        pruning.prune_model(mlp, params, [X], 0.5, method=method, start=other)


def test_some_layers_stored_with_outputs_first(params):
    apply, arrays = equinox_model(params)
    name = ".layers[1].weight"
    pruned = pruning.prune_model(
        apply, arrays, [X], {name: 2}, scope=Axis(0), method=pruning.Wanda(), is_sequential=False
    )
    assert [layer.shape for layer in pruned.layers] == [(7, C)]
    assert np.all(np.count_nonzero(pruned.params.layers[1].weight, axis=1) == 2)
    assert np.all(pruned.params.layers[0].weight == arrays.layers[0].weight)
    with pytest.raises(ValueError, match="no weights of dense layers"):
        pruning.prune_model(apply, arrays, [X], {"nothing": 0.5})
    with pytest.raises(ValueError, match="at least one batch"):
        pruning.prune_model(apply, arrays, [], 0.5)


@pytest.mark.parametrize("loss", ["layers", "outputs"])
def test_budgets_have_the_least_loss_of_all(params, loss):
    """Among all pairs of numbers, on the curves that loops measure."""
    fractions = (0.2, 0.4, 0.6, 0.8)
    names = ("hidden", "out")
    inputs = {"hidden": X, "out": np.tanh(X @ params["hidden"] + params["bias"])}
    dense = mlp(params, X)
    curves = {}
    for name in names:
        size = params[name].size
        gram = inputs[name].T @ inputs[name]
        losses = []
        for fraction in fractions:
            found = pruning.prune_layer(params[name], gram, fraction, method=pruning.Wanda())
            after = mlp({**params, name: found.weights}, X)
            of_model = np.sum((after - dense) ** 2) / np.sum(dense**2)
            losses.append(float(found.error) if loss == "layers" else float(of_model))
        points = [(round(f * size), e) for f, e in zip((*fractions, 1), (*losses, 0), strict=True)]
        curves[name] = reference.largest_convex(points)
    total = round(0.5 * sum(params[name].size for name in names))
    least = min(
        curves["hidden"][count] + curves["out"][total - count]
        for count in curves["hidden"]
        if total - count in curves["out"]
    )
    found = pruning.budgets(mlp, params, [X], 0.5, loss=loss, fractions=fractions)
    counts = {name: found[f"['{name}']"] for name in names}
    assert sum(counts.values()) == total
    assert sum(curves[name][counts[name]] for name in names) == pytest.approx(least, rel=1e-6)
    pruned = pruning.prune_model(mlp, params, [X], found, method=pruning.Wanda())
    assert [int(np.sum(pruned.params[name] != 0)) for name in names] == list(counts.values())


@pytest.mark.filterwarnings("error")
def test_budgets_of_few_weights():
    """Of four weights several fractions keep as many."""
    few = {"a": jnp.ones((2, 2)), "b": jnp.asarray(RNG.normal(size=(2, 5)))}
    batches = [RNG.normal(size=(9, 2))]
    found = pruning.budgets(lambda p, x: x @ p["a"] @ p["b"], few, batches, 0.5)
    assert sum(found.values()) == 7
    everything = pruning.budgets(lambda p, x: x @ p["a"] @ p["b"], few, batches, 1)
    assert everything == {"['a']": 4, "['b']": 10}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 0.05}, "k must be between 0.1"),
        ({"loss": "all"}, "loss must be one of"),
        ({"fractions": (0.5, 0.4)}, "fractions must increase"),
        ({"batches": []}, "at least one batch"),
    ],
)
def test_budgets_refuse(params, change, message):
    arguments = {"apply": mlp, "params": params, "batches": [X], "k": 0.5} | change
    with pytest.raises(ValueError, match=message):
        pruning.budgets(**arguments)


# ---- convolutions and products along several axes ------------------------------------------------

IMAGES = RNG.normal(size=(6, 5, 6, 2))
KERNEL = RNG.normal(size=(2, 3, 2, 4))


def convolve(params, x):
    """Batches, rows, columns, features; of the kernel rows, columns, inputs, outputs."""
    return jax.lax.conv_general_dilated(
        x, params["kernel"], (1, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def convolve_nnx(params, x):
    from flax import nnx

    options = {"strides": (1, 2), "use_bias": False, "param_dtype": np.float64}
    layer = nnx.Conv(2, 4, (2, 3), rngs=nnx.Rngs(0), **options)
    graphdef, state = nnx.split(layer)
    state.kernel.set_value(params["kernel"])
    return nnx.merge(graphdef, state)(x)


def convolve_features_first(params, x):
    """As Equinox does, of one image at a time."""

    def apply(x):
        kernel = jnp.transpose(params["kernel"], (3, 2, 0, 1))
        found = jax.lax.conv_general_dilated(x[None], kernel, (1, 2), "SAME")[0]
        return jnp.moveaxis(found, 0, -1)

    return jax.vmap(apply)(jnp.moveaxis(x, -1, 1))


def patches_in_loops(images):
    """SAME: a row below, and a column on the right, are 0."""
    padded = np.pad(images, ((0, 0), (0, 1), (0, 1), (0, 0)))
    return np.array(
        [
            [image[i + a, j + b, c] for c in range(2) for a in range(2) for b in range(3)]
            for image in padded
            for i in range(5)
            for j in range(0, 6, 2)
        ]
    )


@pytest.mark.parametrize("apply", [convolve, convolve_nnx, convolve_features_first])
def test_convolutions_are_pruned_as_products_of_patches(apply):
    params = {"kernel": jnp.asarray(KERNEL)}
    patches = patches_in_loops(IMAGES)
    matrix = np.transpose(KERNEL, (2, 0, 1, 3)).reshape(12, 4)
    dense = apply(params, jnp.asarray(IMAGES))
    np.testing.assert_allclose(np.reshape(dense, (-1, 4)), patches @ matrix, rtol=1e-9, atol=1e-9)
    method = pruning.SparseGPT()
    pruned = pruning.prune_model(apply, params, [IMAGES], 0.5, method=method)
    expected = pruning.prune_layer(matrix, patches.T @ patches, 0.5, method=method)
    found = np.transpose(pruned.params["kernel"], (2, 0, 1, 3)).reshape(12, 4)
    np.testing.assert_allclose(found, expected.weights, rtol=1e-7, atol=1e-10)
    np.testing.assert_array_equal(pruned.masks["kernel"], pruned.params["kernel"] != 0)
    change = np.sum((apply(pruned.params, IMAGES) - dense) ** 2) / np.sum(dense**2)
    assert pruned.layers[0].shape == (12, 4)
    assert pruned.layers[0].error == pytest.approx(float(change), rel=1e-9)


def test_products_along_several_axes():
    """The projections of attention, of one input to heads, and of heads to one output."""
    rng = np.random.default_rng(2)
    params = {"query": rng.normal(size=(D, 2, 3)), "out": rng.normal(size=(2, 3, C))}
    params = jax.tree.map(jnp.asarray, params)

    def apply(params, x):
        heads = jnp.einsum("td,dhs->ths", x, params["query"])
        return jnp.einsum("ths,hsc->tc", heads, params["out"])

    pruned = pruning.prune_model(apply, params, [X], 0.5, method=pruning.Wanda())
    assert [layer.shape for layer in pruned.layers] == [(D, 6), (6, C)]
    middle = np.einsum("td,dhs->ths", X, pruned.params["query"])
    error = np.sum((apply(pruned.params, X) - np.tensordot(middle, params["out"], 2)) ** 2)
    size = np.sum(np.tensordot(middle, params["out"], 2) ** 2)
    assert pruned.layers[1].error == pytest.approx(float(error / size), rel=1e-9)


def test_singular_gram_matrices_without_damping():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4, 8)).astype("float32")
    X[:, 5] = X[:, 1]
    W = rng.normal(size=(8, 3)).astype("float32")
    pruned = pruning.prune_layer(W, X.T @ X, 12, method=pruning.SparseGPT(damping=0.0))
    assert np.all(np.isfinite(pruned.weights)) and np.isfinite(pruned.error)


SCALE = 1.0


def scaled_model(params, x):
    return (SCALE * x) @ params


def test_a_model_is_run_with_what_it_refers_to_now(monkeypatch):
    x = jnp.eye(2)
    np.testing.assert_array_equal(pruning.gram_matrices(scaled_model, x, [x])[""], np.eye(2))
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    np.testing.assert_array_equal(pruning.gram_matrices(scaled_model, x, [x])[""], 9 * np.eye(2))


def test_budgets_keep_the_least_fraction_of_every_layer():
    """Also where the numbers of weights, rounded up, are more than k of all."""
    names = "abcdefghijkl"
    rng = np.random.default_rng(0)
    params = {name: jnp.asarray(rng.normal(size=(5, 5)), jnp.float32) for name in names}
    x = jnp.asarray(rng.normal(size=(20, 5)), jnp.float32)

    def model(params, x):
        for name in names:
            x = x @ params[name]
        return x

    found = pruning.budgets(
        model, params, [x], 0.1, fractions=(0.1, 0.5), method=pruning.Magnitude()
    )
    assert set(found.values()) == {3}
    pruned = pruning.prune_model(model, params, [x], found, method=pruning.Magnitude())
    assert all(np.count_nonzero(weights) == 3 for weights in pruned.params.values())


def test_outputs_of_halves_are_compared_in_single_precision():
    """Whose sums of squares overflow in halves."""
    rng = np.random.default_rng(0)
    layers = {"a": rng.normal(size=(16, 32)), "b": rng.normal(size=(32, 8))}
    x = rng.normal(size=(64, 16))

    def apply(params, x):
        return jax.nn.relu(x @ params["a"]) @ params["b"]

    found = [
        pruning.budgets(
            apply,
            {name: jnp.asarray(layer, dtype) for name, layer in layers.items()},
            [jnp.asarray(x, dtype)],
            0.5,
            loss="outputs",
            fractions=(0.1, 0.3, 0.5, 0.7, 0.9),
        )
        for dtype in ("float32", "float16")
    ]
    assert found[0] == found[1]


EYE = np.eye(3, dtype=np.float32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": np.ones((3, 2), int)}, "weights must be floating-point"),
        ({"method": pruning.ALPS(penalty=0.0)}, r"ALPS\.penalty must be above 0"),
        ({"method": pruning.SparseGPT(damping=-2.0)}, r"SparseGPT\.damping must be"),
        ({"method": pruning.SparseGPT(damping=np.nan)}, r"SparseGPT\.damping must be"),
        (
            {"gram": EYE - 0.6, "method": pruning.SparseGPT(damping=0.0)},
            "gram must be X'X, positive semidefinite",
        ),
    ],
)
def test_what_gives_no_finite_weights_is_refused(change, message):
    arguments = {"weights": np.ones((3, 2), np.float32), "gram": EYE, "k": 3} | change
    with pytest.raises(ValueError, match=message):
        pruning.prune_layer(**arguments)


@pytest.mark.parametrize("method", [pruning.ALPS(), pruning.Exchanges(start=pruning.Wanda())])
def test_methods_on_the_host_are_not_traced(method):
    with pytest.raises(ValueError, match=f"{type(method).__name__} computes on the host"):
        jax.jit(lambda G: pruning.prune_layer(EYE, G, 3, method=method).mask)(EYE)
    traced = jax.jit(lambda G: pruning.prune_layer(EYE, G, 3, method=pruning.SparseGPT()).mask)
    np.testing.assert_array_equal(traced(EYE), EYE != 0)


def test_errors_are_not_negative():
    """Where the Gram matrix is rounded to few digits, and so indefinite."""
    rng = np.random.default_rng(0)
    for seed in range(5):
        X = rng.normal(size=(32, 128))
        gram = jnp.asarray(X.T @ X, jnp.bfloat16)
        W = rng.normal(size=(128, 4)).astype(np.float32)
        pruned = pruning.prune_layer(W, gram, 0.5, method=pruning.ALPS(damping=0.1))
        assert pruned.error >= 0, seed


METHODS = [
    pruning.ALPS(),
    pruning.Exchanges(),
    pruning.SparseGPT(block_size=4),
    pruning.Wanda(),
    pruning.Magnitude(),
]


def correlated_layer():
    """Weights, and the Gram matrix of inputs of which one is always 0."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 12)) @ (np.eye(12) + rng.normal(size=(12, 12)) / 6)
    X[:, 3] = 0
    return rng.normal(size=(12, 6)).astype(np.float32), (X.T @ X).astype(np.float32)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_units_of_weights_and_inputs_change_nothing(method):
    W, G = correlated_layer()
    plain = pruning.prune_layer(W, G, 0.5, method=method)
    assert 0.01 < float(plain.error) < 0.5
    for of_weights, of_gram in ((1, 1e-6), (1e-20, 1), (1e-12, 1e-24), (1e18, 1), (1, 1e30)):
        unit = np.float32(of_weights)
        found = pruning.prune_layer(unit * W, np.float32(of_gram) * G, 0.5, method=method)
        np.testing.assert_allclose(found.error, plain.error, rtol=1e-4)
        np.testing.assert_array_equal(found.mask, plain.mask)
        np.testing.assert_allclose(found.weights / unit, plain.weights, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("method", METHODS[:3], ids=lambda method: type(method).__name__)
def test_damping_of_double_precision_beside_single(method):
    W, G = correlated_layer()
    with x64():
        damped = dataclasses.replace(method, damping=np.float64(0.01))
        found = pruning.prune_layer(W, G, 0.5, method=damped)
    assert found.error.dtype == found.weights.dtype == np.float32


def test_weights_that_are_kept_as_they_are_keep_their_digits():
    W, G = correlated_layer()
    with x64():
        weights = W + np.random.default_rng(1).normal(size=W.shape)
        found = pruning.prune_layer(weights, G, 0.5, method=pruning.Magnitude())
        np.testing.assert_array_equal(found.weights, np.where(found.mask, weights, 0))


def test_the_error_is_that_of_the_weights_in_their_dtype():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 6))
    X = np.hstack([X, X + 1e-2 * rng.normal(size=X.shape)])
    W = jnp.asarray(rng.normal(size=(12, 4)), jnp.bfloat16)
    found = pruning.prune_layer(W, (X.T @ X).astype(np.float32), 0.9)
    weights, before = (np.asarray(array, float) for array in (found.weights, W))
    error = np.sum((X @ (weights - before)) ** 2) / np.sum((X @ before) ** 2)
    np.testing.assert_allclose(found.error, error, rtol=0.02)


def test_budgets_do_not_depend_on_the_unit_of_the_outputs():
    rng = np.random.default_rng(0)
    params = {"a": rng.normal(size=(6, 8)), "b": rng.normal(size=(8, 3))}
    params = {name: part.astype(np.float32) for name, part in params.items()}
    x = rng.normal(size=(40, 6)).astype(np.float32)

    def divide(unit):
        def apply(params, x):
            return unit * (jax.nn.relu(x @ params["a"]) @ params["b"])

        return pruning.budgets(apply, params, [x], 0.5, loss="outputs")

    assert divide(1e20) == divide(1e-25) == divide(1.0)
    assert sum(divide(0.0).values()) == 36
    with pytest.raises(ValueError, match="apply must return finite numbers"):
        divide(np.inf)
