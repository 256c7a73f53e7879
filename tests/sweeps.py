"""Trials that several tests of sweeps run, and what they look at."""

import gc
from functools import partial

import jax
import jax.numpy as jnp
import xarray

from jaxht import HTP, IHT, SGHT, LeastSquares, Sparse, Stop, sweep
from jaxht.ensembles import gaussian, gaussian_signal, planted
from jaxht.sweep.pool import Pool

D = 32


def bits(key, cell):
    """What a trial draws, and what it shares with its cell."""
    return {"own": jax.random.bits(key), "shared": jax.random.bits(cell.key)}


def problem(key, cell, shared):
    signal = partial(gaussian_signal, d=D, K=cell["K"])
    design = partial(gaussian, n=cell["n"], d=D)
    return planted(key, design, signal, design_key=cell.key if shared else None)


# Step sizes are given where it does not matter, which spares the compile of their estimate.
METHODS = {
    "IHT": lambda objective, cell: (Sparse(cell["K"]), IHT(step_size=0.2)),
    "HTP": lambda objective, cell: (Sparse(cell["K"], k_max=4), HTP()),
    "PGD": lambda objective, cell: (
        Sparse(4 * cell["K"]),
        IHT(2 / jnp.linalg.norm(objective.A, 2) ** 2),
    ),
    "SGHT": lambda objective, cell: (Sparse(cell["K"]), SGHT(step_size=0.01)),
}
SQUARES = partial(LeastSquares, mean=False)
STOP = Stop(max_steps=60)


def recovery(shared=True, stop=STOP):
    return sweep.Recovery(partial(problem, shared=shared), METHODS, SQUARES, stop)


def draw_padded(key, cell, shared):
    rows = cell.bounds["n"]

    def design(key):
        return jnp.where(
            jnp.arange(rows)[:, None] < cell["n"], gaussian(key, rows, D, variance=1 / cell["n"]), 0
        )

    return planted(
        key,
        design,
        partial(gaussian_signal, d=D, K=cell["K"]),
        design_key=cell.key if shared else None,
    )


def count_pools():
    """How many compiled pools this process holds."""
    gc.collect()
    return sum(type(found) is Pool for found in gc.get_objects())


def same_bits(a, b):
    xarray.testing.assert_identical(a.drop_attrs(), b.drop_attrs())
    for name in a.data_vars:
        assert a[name].values.tobytes() == b[name].values.tobytes(), name


class Countdown:
    """Trials that take 1 to 64 times ``length`` steps."""

    def draw(self, key, cell):
        return jax.random.randint(key, (), 1, 9) ** 2 * cell["length"]

    def start(self, case):
        return jnp.zeros((), jnp.int32)

    def running(self, carry):
        return carry >= 0

    def advance(self, case, carry):
        return jnp.where(carry < 0, carry, jnp.where(carry + 1 >= case, -case, carry + 1))

    def finish(self, case, carry):
        return {"steps": -carry, "asked": case}


class Endless(Countdown):
    """A trial in steps, of which that of ``length`` 0 takes steps for ever in every third trial."""

    def draw(self, key, cell):
        length = jax.random.randint(key, (), 1, 9)
        return jnp.where(
            (cell["length"] == 0) & (length % 3 == 0), jnp.iinfo(jnp.int32).max, length * 100
        )

    def finish(self, case, carry):
        return {
            **super().finish(case, carry),
            "success": carry < 0,
            "root": jnp.sqrt(1.0 * abs(carry)),
        }


def raise_while_traced(key, cell):
    if cell["n"] == 3:
        raise KeyError("three")
    return {"x": cell["K"]}
