"""What is compiled for a sweep and kept for the next one, which computes with what its trial refers
to then."""

from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxht import sweep
from jaxht.sweep.compilation import ProgramCache, Sweep
from jaxht.sweep.grid import Grid
from jaxht.sweep.protocol import FunctionRun
from tests.sweeps import count_pools

pytestmark = pytest.mark.usefixtures("all_quickly")


def test_compiles_once_for_what_is_static():
    seen = set()

    def trial(key, cell):
        seen.add((cell["n"], cell.bounds["m"]))
        return {"sum": jnp.zeros(cell["n"]).sum() + cell["K"] + cell["m"]}

    axes = {"n": [3, 4], "K": [1, 2, 5], "m": [1, 7, 9]}
    dataset = sweep.run(trial, axes, num_trials=4, static=["n"], round_up={"m": 8}, max_lanes=5)
    assert seen == {(3, 8), (3, 16), (4, 8), (4, 16)}
    expected = (dataset.n * 0 + dataset.K + dataset.m).broadcast_like(dataset["sum"])
    np.testing.assert_array_equal(dataset["sum"], expected)


def test_what_a_process_keeps_is_bounded():
    """Of more shapes than are kept those that were used last stay; the others are made anew."""

    def trial(key, cell):
        return {"size": jnp.zeros(cell["n"]).sum() + cell["n"]}

    sweep.clear_cache()
    before = count_pools()
    plan = Sweep(FunctionRun(trial), Grid({"n": list(range(1, 7))}, ["n"]), 1, 0, 1, None)
    programs = ProgramCache(plan, max_pools=3, max_programs=4)
    device = jax.local_devices()[0]
    if len(jax.local_devices()) > 1:
        pytest.skip("as many pools are kept for each device")
    numbers = []
    for cell in [*plan.grid.cells, plan.grid.cells[0]]:
        programs.get_pool(plan, cell, device)
        numbers.append(count_pools() - before)
    assert numbers == [1, 2, 3, 3, 3, 3, 3]
    assert len(programs.programs) == 4


def test_no_program_that_calls_python_has_the_key_of_another():
    """Not of one that is gone either, in whose memory the next one may be made."""

    def trial(key, cell):
        K = cell["K"]
        return {"x": jax.pure_callback(np.negative, jax.ShapeDtypeStruct((), K.dtype), K)}

    keys = set()
    for _ in range(30):
        plan = Sweep(FunctionRun(trial), Grid({"K": [0.5]}), 1, 0, 1, None)
        programs = ProgramCache(plan)
        keys.add(programs.get_program(plan, plan.grid.cells[0]).reuse_key)
    assert len(keys) == 30


def test_clear_cache_forgets_the_last_sweep():
    def trial(key, cell):
        return {"size": jnp.zeros(cell["n"]).sum() + cell["n"]}

    sweep.clear_cache()
    before = count_pools()
    for ns in ([1], [2], [2, 3]):  # the cache serves all sweeps of a trial
        found = sweep.run(trial, {"n": ns}, num_trials=1, static=["n"], workers=2)
        np.testing.assert_array_equal(found["size"].squeeze(), ns)
    assert count_pools() == before + 3
    sweep.clear_cache()
    assert count_pools() == before


# What trials refer to, and tests change.
SCALE = 1


SETTINGS = SimpleNamespace(scale=1)
FACTORS = {"scale": 1}
ENTRIES = np.ones(1)
REFERENCES = {
    "global": lambda x: SCALE * x,
    "attribute": lambda x: SETTINGS.scale * x,
    "entry of a dict": lambda x: FACTORS["scale"] * x,
    "entry of an array": lambda x: jnp.asarray(ENTRIES)[0] * x,
    "default": lambda x, settings=SETTINGS: settings.scale * x,
    "partial": partial(lambda settings, x: settings.scale * x, SETTINGS),
    "function": lambda x: scale_it(x),
    "jit": jax.jit(lambda x: scale_it(x)),
    "cond": lambda x: jax.lax.cond(x > 0, scale_it, scale_it, x),
    "scan": lambda x: jax.lax.scan(scale_carry, x, None, length=1)[0],
    "host": lambda x: jax.pure_callback(scale_on_host, jax.ShapeDtypeStruct((), x.dtype), x),
}


def scale_it(x):
    return jnp.asarray(SCALE * x, x.dtype)


def scale_on_host(x):
    raise NotImplementedError("set by a test")


def scale_carry(carry, _):
    return scale_it(carry), None


class Scaling:
    """Trials with settings of their own: the object itself, its method, and a trial in steps."""

    def __init__(self):
        self.scale = 1

    def trial(self, key, cell):
        return {"x": self.scale * cell["K"]}

    __call__ = trial


class ScalingInSteps(Scaling):
    __call__ = None

    def draw(self, key, cell):
        return cell["K"]

    def start(self, case):
        return jnp.zeros((), jnp.int32)

    def running(self, carry):
        return carry < 2

    def advance(self, case, carry):
        return jnp.minimum(carry + 1, 2)

    def finish(self, case, carry):
        return {"x": self.scale * case}


@pytest.fixture
def change(monkeypatch):
    """A function that sets all that trials refer to."""

    def set_all(scale):
        monkeypatch.setitem(globals(), "SCALE", scale)
        on_host = lambda x: np.asarray(scale * x, x.dtype)  # noqa: E731
        monkeypatch.setitem(globals(), "scale_on_host", on_host)
        monkeypatch.setattr(SETTINGS, "scale", scale)
        monkeypatch.setitem(FACTORS, "scale", scale)
        ENTRIES[0] = scale

    yield set_all
    ENTRIES[0] = 1


NEEDS_CONTEXTS = pytest.mark.skipif(
    not hasattr(jax, "make_user_context"), reason="JAX keeps what it has traced"
)
KEPT_BY_JAX = ("jit", "cond", "scan")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=NEEDS_CONTEXTS if name in KEPT_BY_JAX else ())
        for name in REFERENCES
    ],
)
def test_what_a_trial_refers_to_is_seen_as_it_is_now(change, name, tmp_path):
    """A sweep computes with what the globals of its trial are when it begins; a store refuses
    what it can see."""
    function = REFERENCES[name]

    def trial(key, cell):
        return {"x": function(cell["K"])}

    for scale in (1, 2, 1):
        change(scale)
        found = sweep.run(trial, {"K": [0.5]}, num_trials=2)
        assert found.x.values.ravel().tolist() == [0.5 * scale] * 2
        if name == "host":
            continue
        if scale == 1:
            sweep.run(trial, {"K": [0.5]}, num_trials=2, store=tmp_path)
        else:
            with pytest.raises(sweep.StoreError, match="holds another sweep"):
                sweep.run(trial, {"K": [0.5]}, num_trials=3, store=tmp_path)


def test_attributes_of_a_trial_are_seen_as_they_are_now():
    scaling = Scaling()
    in_steps = ScalingInSteps()
    trials = (scaling, scaling.trial, partial(Scaling.trial, scaling), in_steps)
    for trial in trials:
        for scale in (1, 3):
            scaling.scale = scale
            in_steps.scale = scale
            found = sweep.run(trial, {"K": [2]}, num_trials=1)
            assert found.x.item() == 2 * scale


def test_a_sweep_of_the_same_trial_compiles_nothing():
    def trial(key, cell):
        return {"x": SCALE * cell["K"]}

    sweep.clear_cache()
    before = count_pools()
    for num_trials in (1, 2, 3):
        sweep.run(trial, {"K": [1, 2]}, num_trials=num_trials, workers=1)
        assert count_pools() == before + 1


def test_threads_have_the_settings_of_the_caller():
    """JAX's contexts hold for one thread."""
    found = set()

    def trial(key, cell):
        found.add((jax.config.jax_default_matmul_precision, jax.config.jax_default_prng_impl))
        return {"number": jax.random.uniform(key)}

    with jax.default_matmul_precision("highest"), jax.default_prng_impl("rbg"):
        of_caller = sweep.run(trial, {"p": [0, 1]}, num_trials=2)
    assert found == {("highest", "rbg")}
    plain = sweep.run(trial, {"p": [0, 1]}, num_trials=2)
    assert np.all(plain.number.values != of_caller.number.values)


def test_a_change_that_acts_from_the_second_step_on_is_seen(tmp_path):
    factor = 1.0

    class Sum:
        """``x = sum_i v_i`` of five v, each a factor times the one before."""

        def draw(self, key, cell):
            return jnp.asarray(cell["first"], float)

        def start(self, case):
            return 0 * case, case, jnp.zeros((), jnp.int32)

        def running(self, carry):
            return carry[2] < 5

        def advance(self, case, carry):
            x, v, count = carry
            goes_on = count < 5
            x = jnp.where(goes_on, x + v, x)
            v = jnp.where(goes_on, v * factor, v)
            return x, v, count + goes_on

        def finish(self, case, carry):
            return {"x": carry[0]}

    trial = Sum()
    axes = {"first": [1.0]}
    store = tmp_path / "store"
    assert sweep.run(trial, axes, num_trials=1, store=store).x.item() == 5
    factor = 0.5
    assert sweep.run(trial, axes, num_trials=1).x.item() == 1.9375
    with pytest.raises(sweep.StoreError):
        sweep.run(trial, axes, num_trials=2, store=store)
