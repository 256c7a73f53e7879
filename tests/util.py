"""What several test files share."""

import contextlib
import ctypes
import functools
import gc
import os
import resource
import signal
import subprocess
import sys
import unittest.mock
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxht
from jaxht._programs import PROGRAMS

EMITTERS = "xla_cpu_use_fusion_emitters"
HAS_EMITTERS = jax.__version_info__ < (0, 11)  # as an option
# Options of XLA for what runs once and is small: a fifth of the time that users' compiles take.
# What is compiled so is not optimised: that it is right as users compile it, the contract suite
# shows in a pass of its own.
QUICK = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_parallel_codegen_split_count": 1,
} | ({EMITTERS: False} if HAS_EMITTERS else {})
quick = functools.partial(jax.jit, compiler_options=QUICK)
# With what XLA does where nothing is set, and tests/conftest.py sets otherwise.
as_users = functools.partial(jax.jit, compiler_options={EMITTERS: True} if HAS_EMITTERS else None)

# `jaxht.solve` and `jaxht.trace`, compiled quickly. Within a jit every number is traced: a solver
# that refits needs k_max, and what is wrong is not seen. `record` is compared by identity: the same
# function, the same program.
solve = quick(jaxht.solve)
trace = quick(jaxht.trace, static_argnames=("num_steps", "record"))


def record_x(carry):
    """For `trace`: the point."""
    return carry.iterate.x


def x64(enabled: bool = True) -> contextlib.AbstractContextManager:
    """Inside, JAX's default precision is 64 bits (32 if not ``enabled``), whatever it was
    outside."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(enabled)
    from jax.experimental import enable_x64  # JAX before 0.8

    return enable_x64(enabled)


@contextlib.contextmanager
def precision(dtype):
    """``with precision("float64") as dtype:`` makes arrays of dtype (a name, or a type) what JAX
    computes with."""
    dtype = np.dtype(dtype)
    with x64(dtype == np.float64):
        yield dtype


@contextlib.contextmanager
def compiled_quickly():
    """Inside, XLA optimises nothing for speed, nor in processes that start: for much to compile and
    little to run."""
    before = jax.config.read("jax_disable_most_optimizations")
    with unittest.mock.patch.dict(os.environ, JAX_DISABLE_MOST_OPTIMIZATIONS="1"):
        jax.config.update("jax_disable_most_optimizations", True)
        try:
            yield
        finally:
            jax.config.update("jax_disable_most_optimizations", before)


@contextlib.contextmanager
def with_interrupts():
    """Inside, SIGINT interrupts, also processes that start: what a shell starts in the background
    ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def memory():
    """The bytes that the process occupies; 0 where the system does not tell."""
    with contextlib.suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    return 0


def return_memory():
    """Give back to the system what is no longer in use: the heap keeps most of what programs were
    compiled in."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # of glibc
        ctypes.CDLL(None).malloc_trim(0)


def host(tree):
    """The arrays of a pytree as NumPy's, read while the precision that made them holds."""
    return jax.tree.map(np.asarray, tree)


def linearize(function, at, along):
    """The value, its derivatives along a direction, and by reverse mode the derivative of the sum of
    its entries along it; the function is traced once."""
    value, tangents = jax.linearize(function, *at)
    gradient = jax.linear_transpose(tangents, *at)(jnp.ones_like(value))
    reverse = sum(jnp.vdot(g, direction) for g, direction in zip(gradient, along, strict=True))
    return value, tangents(*along), reverse


def slopes(function, at, along, h=1e-5):
    """Along a direction, of forward mode, of reverse mode (of the sum of outputs), and the central
    difference."""

    @quick
    def run(*at):
        return linearize(function, at, along)

    at, along = (tuple(map(jnp.asarray, arrays)) for arrays in (at, along))
    _, forward, reverse = run(*at)
    ahead, behind = (
        run(*(a + s * h * b for a, b in zip(at, along, strict=True)))[0] for s in (1, -1)
    )
    return np.asarray(forward), reverse, np.asarray((ahead - behind) / (2 * h))


def check_slopes(function, at, along, rtol=1e-6, atol=0.0):
    """Forward mode is the central difference, and reverse mode is forward mode."""
    forward, reverse, difference = slopes(function, at, along)
    np.testing.assert_allclose(forward, difference, rtol=rtol, atol=atol)
    np.testing.assert_allclose(reverse, np.sum(forward), rtol=1e-8)


def on_devices(number, *arguments):
    """Run Python on as many devices of the host.

    Each reduction holds a thread of each device until all have come: with one thread a device
    (XLA's choice where there are fewer processors) two reductions at once can wait for ever.
    """
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={number}"
    env = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "NPROC": str(4 * number)}
    command = [sys.executable, "-W", "error", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=1200)


def drop_programs():
    """Drop what the library has compiled: a test that counts compiles may not reach the limit of
    programs, at which all are dropped."""
    while PROGRAMS.number:
        PROGRAMS.add()
