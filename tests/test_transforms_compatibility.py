"""The transforms in optax's wrappers, in jit and vmap, from checkpoints and on several devices."""

import functools
import operator
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxht import transforms
from jaxht.transforms import hard_threshold
from tests.pytrees import gradients, nonzeros, same, sizes, small, train, trainer, tree
from tests.util import on_devices, quick


def test_mask_leaves_arrays_alone():
    params = small()
    for mask in (
        jax.tree.map(lambda p: p.ndim >= 2, params),
        lambda p: jax.tree.map(lambda z: z.ndim >= 2, p),
    ):
        new, _ = train(
            optax.chain(optax.adam(0.1), hard_threshold(5, mask=mask, hold=True)), params, 5
        )
        free, _ = train(
            optax.chain(optax.masked(hard_threshold(5), mask), optax.identity()), params, 1
        )
        want = [min(5, p.size) if p.ndim >= 2 else p.size for p in jax.tree.leaves(params)]
        assert nonzeros(new) == want == nonzeros(free)


def test_partition_and_injected_hyperparameters():
    params = small()
    labels = jax.tree.map(lambda p: "sparse" if p.ndim >= 2 else "dense", params)
    sparse = optax.chain(optax.adam(0.1), hard_threshold(6, scope="global"))
    new, _ = train(
        optax.transforms.partition({"sparse": sparse, "dense": optax.sgd(0.1)}, labels), params, 5
    )
    dense = [p.size for p in jax.tree.leaves(params) if p.ndim < 2]
    assert sum(nonzeros(new)) == 6 + sum(dense)
    injected = optax.inject_hyperparams(hard_threshold, static_args=("every", "hold", "freeze_at"))
    tx = injected(k=0.5, scope="global")
    new, state = train(tx, params, 3)
    assert sum(nonzeros(new)) == round(0.5 * sum(sizes(params)))
    state.hyperparams["k"] = jnp.asarray(0.25)
    new, _ = train(tx, params, 3, state=state)
    assert sum(nonzeros(new)) == int(0.25 * sum(sizes(params)) + 0.5)


def test_multi_steps_and_apply_if_finite():
    params = small()
    tx = optax.MultiSteps(optax.chain(optax.adam(0.1), hard_threshold(4)), every_k_schedule=3)
    want = [min(4, size) for size in sizes(params)]
    for num_steps in (3, 4, 6):
        assert nonzeros(train(tx, params, num_steps)[0]) == want
    assert same(train(tx, params, 2)[0], params)
    guarded = optax.apply_if_finite(optax.chain(optax.adam(0.1), hard_threshold(4)), 5)
    new, state = train(guarded, params, 3)
    update, state = guarded.update(
        jax.tree.map(lambda p: jnp.full_like(p, jnp.nan), new), state, new
    )
    assert same(optax.apply_updates(new, update), new) and nonzeros(new) == want


def test_vmap_over_seeds_and_hyper_parameters_is_the_loop():
    def run(seed, k, rate, every):
        x = gradients(100 * seed, jnp.zeros((6, 7)))
        tx = optax.chain(optax.adam(rate), hard_threshold(k, every=every, hold=True, freeze_at=7))
        return trainer(tx)(0, 10, x, tx.init(x))[0]

    seeds, ks = jnp.arange(4), jnp.array([1, 5, 20, 42])
    rates, every = jnp.array([0.1, 0.2, 0.1, 0.3]), jnp.array([1, 2, 3, 4])
    batch, alone = quick(jax.vmap(run))(seeds, ks, rates, every), quick(run)
    for i in range(4):
        np.testing.assert_allclose(
            batch[i], alone(seeds[i], ks[i], rates[i], every[i]), rtol=1e-5, atol=1e-6
        )
    assert nonzeros(list(batch)) == ks.tolist()


def test_donated_buffers_and_no_second_compile():
    tx, compiles = optax.chain(optax.adam(0.1), hard_threshold(5, every=2, hold=True)), []

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(params, state, grads):
        compiles.append(None)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    params = small()
    state = jax.jit(tx.init)(params)
    for seed in range(4):
        params, state = step(params, state, gradients(seed, params))
    assert nonzeros(params) == [min(5, size) for size in sizes(params)]
    assert len(compiles) == 1


@pytest.mark.filterwarnings("ignore")  # of the checkpointing library, on import and on saving
def test_a_run_goes_on_from_a_checkpoint(tmp_path):
    checkpoint = pytest.importorskip("orbax.checkpoint")
    tx = transforms.reset_moments(
        optax.adam(0.1),
        hard_threshold(transforms.cubic(0.1, end=8), every=3, hold=True, freeze_at=9),
    )
    whole, _ = train(tx, small(), 12)
    params, state = train(tx, small(), 5)
    with checkpoint.StandardCheckpointer() as saver:
        saver.save(tmp_path / "run", {"params": params, "state": state})
        saver.wait_until_finished()
        fresh = small(7)
        restored = saver.restore(tmp_path / "run", {"params": fresh, "state": tx.init(fresh)})
    again, _ = train(tx, restored["params"], 7, first=5, state=restored["state"])
    assert same(again, whole)


def test_state_keeps_its_types_and_tree_map_params_finds_it():
    params = tree(0, "bfloat16")
    tx = hard_threshold(0.5, hold=True)
    state = tx.init(params)
    _, after = jax.eval_shape(tx.update, params, state, params)
    assert jax.tree.map(operator.attrgetter("dtype", "shape"), state) == jax.tree.map(
        operator.attrgetter("dtype", "shape"), after
    )
    marked = optax.tree_map_params(tx, lambda leaf: "like the parameters", state)
    assert jax.tree.leaves(marked.support) == ["like the parameters"] * len(sizes(params))


SHARDED = """
    import re
    import jax, jax.numpy as jnp, numpy as np, optax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    from jaxht import transforms

    mesh = Mesh(jax.devices(), ("x",))
    assert len(jax.devices()) == 8
    shapes = {"a": (64, 96), "b": (40, 128), "c": (512,), "d": (24, 10)}
    places = {"a": P("x", None), "b": P(None, "x"), "c": P("x"), "d": P()}
    rng = np.random.default_rng(0)
    values = {name: np.round(rng.standard_normal(shape), 1).astype("float32") for name, shape in shapes.items()}
    placed = {name: jax.device_put(values[name], NamedSharding(mesh, places[name])) for name in shapes}

    def chain(threshold):
        tx = optax.chain(optax.adam(1e-3), threshold)

        def step(params):
            updates, state = tx.update(params, tx.init(params), params)
            return optax.apply_updates(params, updates), state

        return step

    for threshold in (
        transforms.hard_threshold(0.05, scope="global"),
        transforms.hard_threshold(777, every=2, hold=True, freeze_at=5),
        transforms.l2_ball(1.0, scope="global"),
    ):
        step = jax.jit(chain(threshold), compiler_options={"xla_backend_optimization_level": 0})
        compiled = step.lower(placed).compile()
        movement = r"= \\(?(\\w+)\\[([0-9,]*)\\].* (all-\\w+|collective-permute|reduce-scatter)"
        moved = re.findall(movement, compiled.as_text())
        assert moved, "the devices must exchange counts"
        for dtype, shape, name in moved:
            # At most the counts of the rows from each device: never the entries.
            size = int(np.prod([int(n) for n in shape.split(",") if n]))
            assert dtype in ("s32", "pred", "f32") and size <= 8 * 64, (name, dtype, shape)
        new, _ = compiled(placed)
        alone, _ = step(values)
        for name in shapes:
            assert new[name].sharding.is_equivalent_to(placed[name].sharding, len(shapes[name]))
            np.testing.assert_allclose(new[name], alone[name], atol=1e-6)
            np.testing.assert_array_equal(np.asarray(new[name]) != 0, np.asarray(alone[name]) != 0)

    # Of many entries a sample moves as well, and where shards are no multiple of its steps a few
    # rows.
    for shape, place in (((4096, 1024), P("x")), ((4096, 1024), P(None, "x")), ((4000, 1056), P("x"))):
        z = jax.device_put(rng.standard_normal(shape).astype("float32"), NamedSharding(mesh, place))
        prune = jax.jit(lambda z: transforms.prune(z, 0.05), out_shardings=z.sharding)
        compiled = prune.lower(z).compile()
        moved = re.findall(movement, compiled.as_text())
        for dtype, size, name in moved:
            size = int(np.prod([int(n) for n in size.split(",") if n]))
            assert size <= 64 * 1056, (name, dtype, size)
        kept = np.asarray(compiled(z)) != 0
        np.testing.assert_array_equal(kept, np.asarray(transforms.prune(np.asarray(z), 0.05)) != 0)
        assert kept.sum() == round(0.05 * z.size)
    print("done")
"""


def test_sharded_parameters_stay_where_they_are():
    """On eight devices: what the compiled program moves between them, and that the result is that
    of one."""
    result = on_devices(8, "-c", textwrap.dedent(SHARDED))
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.strip() == "done"


def test_moments_are_reset_within_a_mask():
    params = {"a": jnp.array([1.0, 2.0]), "b": jnp.array([1.0, 2.0])}
    inner = transforms.reset_moments(optax.adam(0.1), transforms.hard_threshold(1))
    optimizer = optax.masked(inner, {"a": True, "b": False})
    state = optimizer.init(params)
    gradients = jax.tree.map(jnp.ones_like, params)
    _, state = optimizer.update(gradients, state, params)
    np.testing.assert_allclose(state.inner_state.inner[0].mu["a"], [0, 0.1])


def test_moments_of_arrays_without_zeros_are_kept():
    """A bias that begins at 0 enters no support."""
    params = {"w": jnp.array([1.0, 2.0]), "b": jnp.zeros(2)}
    threshold = transforms.hard_threshold(1, mask={"w": True, "b": False})
    optimizer = transforms.reset_moments(optax.adam(0.1), threshold)
    gradients = jax.tree.map(jnp.ones_like, params)
    _, state = optimizer.update(gradients, optimizer.init(params), params)
    np.testing.assert_allclose(state.inner[0].mu["b"], 0.1, rtol=1e-6)
    np.testing.assert_allclose(state.inner[0].mu["w"], [0, 0.1], rtol=1e-6)


def test_keys_that_are_masked_out_stay():
    params = {"w": jnp.array([1.0, 3.0, 2.0]), "rng": jax.random.key(0)}
    mask = {"w": True, "rng": False}
    for prune in (transforms.prune, transforms.straight_through):
        found = prune(params, 1, mask=mask)
        assert found["w"].tolist() == [0, 3, 0]
        assert jnp.array_equal(
            jax.random.key_data(found["rng"]), jax.random.key_data(params["rng"])
        )
