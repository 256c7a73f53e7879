"""Trials that raise errors, take too long, or never come back."""

import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxht import sweep
from tests.sweeps import Countdown, Endless, bits, raise_while_traced, same_bits
from tests.util import with_interrupts

pytestmark = pytest.mark.usefixtures("all_quickly")
ROOT = Path(__file__).parents[1]


# ---- errors --------------------------------------------------------------------------------------


def test_an_error_in_a_worker_ends_the_sweep(tmp_path):
    class Full(Exception):
        pass

    def on_progress(progress):
        if progress.done >= 10:
            raise Full

    axes = {"K": list(range(12))}
    with pytest.raises(Full):
        sweep.run(
            bits,
            axes,
            num_trials=4,
            max_lanes=4,
            store=tmp_path,
            on_progress=on_progress,
            workers=2,
        )
    kept = sweep.load(tmp_path)
    assert 0 < int(kept.done.sum()) < 12
    same_bits(
        sweep.run(bits, axes, num_trials=4, max_lanes=4, store=tmp_path),
        sweep.run(bits, axes, num_trials=4, max_lanes=4),
    )


def raise_for_three(number):
    if number == 3:
        raise KeyError("three")
    return number


def raise_on_the_host(key, cell):
    shape = jax.ShapeDtypeStruct((), jnp.int32)
    return {"x": jax.pure_callback(raise_for_three, shape, cell["K"])}


class RaiseInSteps(Countdown):
    def advance(self, case, carry):
        raise KeyError("three")


@pytest.mark.parametrize(
    ("trial", "axes", "options", "words"),
    [
        (raise_while_traced, {"n": [1, 3], "K": [1]}, {"static": ["n"]}, 'the cells with {"n": 3}'),
        (raise_while_traced, {"n": [3], "K": [1]}, {"static": ["n", "K"]}, '{"K": 1, "n": 3}'),
        (raise_on_the_host, {"K": [1, 3]}, {"max_lanes": 1}, "of {'K': 3};"),
        (raise_on_the_host, {"K": [1, 3]}, {}, "{'K': 3}"),
        (RaiseInSteps(), {"length": [1, 2]}, {}, "for all cells"),
    ],
)
def test_an_error_of_a_trial_names_its_cell(trial, axes, options, words):
    with pytest.raises(Exception, match="three") as caught:
        sweep.run(trial, axes, num_trials=2, workers=1, **options)
    [note] = caught.value.__notes__[-1:]
    assert words in note


def test_an_error_in_a_task_names_its_cell():
    with ThreadPoolExecutor(1) as executor, pytest.raises(Exception, match="three") as caught:
        sweep.run(raise_on_the_host, {"K": [3]}, num_trials=2, executor=executor, num_tasks=1)
    # As it comes from another process.
    error = pickle.loads(pickle.dumps(caught.value))
    assert "{'K': 3}" in error.__notes__[-1]


# ---- trials that do not come back ----------------------------------------------------------------


def test_a_trial_that_takes_too_long_is_ended(tmp_path):
    """The others, of its cell too, run to their end; it counts in no rate."""
    axes, options = (
        {"length": [0, 1, 2]},
        {"num_trials": 20, "max_lanes": 8, "workers": 2, "trial_timeout": 0.3},
    )
    found = sweep.run(Endless(), axes, store=tmp_path, **options)
    assert found.done.all()
    late = found.timed_out_after == 0.3
    assert 0 < int(late.sum()) < 20 and not late.sel(length=[1, 2]).any()
    assert found.timed_out_after.where(~late).isnull().all()
    np.testing.assert_array_equal(late, ~found.success)
    assert (found.steps.where(~late, found.asked) == found.asked).all()
    assert (found.steps.where(late, 0) == 0).all() and found.root.where(late).isnull().all()
    rates = sweep.success_rate(found)
    np.testing.assert_array_equal(rates.trials, 20 - late.sum("trial"))
    np.testing.assert_array_equal(rates.rate, 1.0)
    # The same limit leaves it at that, and so does a shorter one; a longer one tries again.
    totals = []
    for limit in 0.3, 0.2, 0.4:
        options["trial_timeout"] = limit
        again = sweep.run(
            Endless(),
            axes,
            store=tmp_path,
            **options,
            on_progress=lambda progress: totals.append(progress.total),
        )
    assert set(totals[:2]) == {0} and totals[-1] == late.sum()
    assert again.timed_out_after.max() == 0.4


HUNG = """
import sys
import jax
import jax.numpy as jnp
from jaxht import sweep

def trial(key, cell):
    stuck = (cell["K"] == 1) & (jax.random.uniform(key) < 0.2)
    return {"K2": jax.lax.while_loop(lambda x: stuck | (x < 2), lambda x: jnp.minimum(x + 1, 2), 0) * cell["K"]}

def run(**options):
    return sweep.run(trial, {"K": [0, 1, 2, 3]}, num_trials=20, max_lanes=10, store=sys.argv[1], **options)

try:
    run(trial_timeout=1.0)
except sweep.TrialTimeout as error:
    print(error)
    sys.exit(3)
print(int(run(trial_timeout=1.0).timed_out_after.notnull().sum()))
"""


def test_a_call_that_hangs_is_given_up(tmp_path):
    """The process ends; the next one finds all that was stored, leaves out the cell that hung, and
    goes on."""
    command = [sys.executable, "-c", HUNG, str(tmp_path)]
    first, second = (
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
        for _ in range(2)
    )
    assert first.returncode == 3, first.stderr
    assert "{'K': 1}" in first.stdout and "trial_timeout=1" in first.stdout
    assert second.returncode == 0, second.stderr
    found = sweep.load(tmp_path)
    assert found.done.all()
    late = found.timed_out_after.notnull()
    assert late.sel(K=1).any() and not late.sel(K=[0, 2, 3]).any()
    assert (found.K2.where(~late, 2 * found.K) == 2 * found.K).all()


STUCK = """
import jax
from jaxht import sweep

def trial(key, cell):
    return {"x": jax.lax.while_loop(lambda x: x >= 0, lambda x: x * 0, cell["K"])}

sweep.run(trial, {"K": [1]}, num_trials=2, on_progress=lambda progress: print(progress.note or "began", flush=True))
"""


def test_ctrl_c_twice_ends_a_process_that_hangs():
    with with_interrupts():
        process = subprocess.Popen(
            [sys.executable, "-c", STUCK], cwd=ROOT, stdout=-1, stderr=-1, text=True
        )
    with process:
        while process.stdout.readline() != "began\n":
            pass
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1.0)  # for the chunk that runs, which usually ends
        process.send_signal(signal.SIGINT)
        try:
            process.wait(20.0)
        finally:
            process.kill()
        assert "KeyboardInterrupt" in process.stderr.read()
