"""Batches side by side: no program waits for another for ever."""

import os
import re
import subprocess
import sys

import jax
import pytest

from tests.threads import LANES, PROBLEMS

FACTORISATION = re.compile(r"custom_call @(lapack_\w+).*?: \((.*)\) ->")


def batched_factorisations(text):
    """The calls of LAPACK in a program of which an argument has more than two axes."""
    calls = [
        (name, re.findall(r"tensor<([^>]*)>", types)) for name, types in FACTORISATION.findall(text)
    ]
    return [name for name, shapes in calls if any(shape.count("x") > 2 for shape in shapes)]


@pytest.mark.parametrize("name", PROBLEMS)
def test_lanes_are_factorised_one_by_one(name):
    keys = jax.random.split(jax.random.key(0), LANES)
    text = jax.jit(jax.vmap(PROBLEMS[name])).lower(keys).as_text()
    assert not batched_factorisations(text)
    if name in ("HTP", "CoSaMP", "LowRank", "Edges"):
        assert FACTORISATION.search(text)


def test_a_batched_factorisation_is_seen():
    text = jax.jit(jax.vmap(jax.numpy.linalg.cholesky)).lower(jax.numpy.ones((5, 3, 3))).as_text()
    assert batched_factorisations(text)


def test_threads_do_not_wait_for_each_other():
    """In a process of its own, with the pool of threads that XLA makes by default."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("NPROC", "OPENBLAS_NUM_THREADS")
    }
    command = [sys.executable, "-m", "tests.threads", "--calls", "40", "HTP", "CoSaMP", "LowRank"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stdout + ended.stderr
