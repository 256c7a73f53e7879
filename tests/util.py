"""What several test files share."""

import contextlib

import jax
import numpy as np


def x64(enabled: bool = True) -> contextlib.AbstractContextManager:
    """Inside, JAX's default precision is 64 bits (32 if not ``enabled``), whatever it was outside."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(enabled)
    from jax.experimental import enable_x64  # JAX before 0.8

    return enable_x64(enabled)


@contextlib.contextmanager
def precision(dtype):
    """``with precision("float64") as dtype:`` makes arrays of dtype (a name, or a type) what JAX computes with."""
    dtype = np.dtype(dtype)
    with x64(dtype == np.float64):
        yield dtype


@contextlib.contextmanager
def compiled_quickly():
    """Inside, XLA optimises nothing for speed: for what is much to compile and little to run."""
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", False)


def host(tree):
    """The arrays of a pytree as NumPy's, read while the precision that made them holds."""
    return jax.tree.map(np.asarray, tree)
