"""How programs are compiled."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax

from jaxht._programs import bounded_jit
from jaxht.runner._exported import ExportedProgram
from jaxht.runner._sizes import is_small_shape

__all__ = ["compile_for"]

# Entries of a design up to which a program is compiled at XLA's level 1 of optimisation. Measured
# for LocalSearch on 455 x 30, logistic: levels 0, 1 and 3 compile and run for the first time in 1.8,
# 2.3 and 8 s, and run again in 120, 25 and 25 to 40 ms.
MAX_QUICK_ENTRIES = 2**20
# And beyond which, but for small problems, a program is worth XLA's fusion emitters: it compiles in
# 2.1 s in place of 1.4, and LocalSearch on 62 x 2000 runs in 22 ms in place of 36.
MIN_FUSED_ENTRIES = 2**15


def compile_for(shape: tuple[int, int] | None, function: Callable[..., Any], *static: str) -> Any:
    """The jitted function, for a design of a padded shape; None stands for an unknown one.

    Programs of small designs, which run for milliseconds, are compiled with less optimisation.

    Args:
        shape: of the design.
        function: a function of pytrees, of a module.
        static: the names of static arguments.
    """
    # Who asks JAX to optimise as little as possible gets no more here.
    asks_for_little = jax.config.read("jax_disable_most_optimizations")  # noqa: TID251
    if shape is None or asks_for_little or jax.default_backend() != "cpu":
        return _jit(function, static)
    num_entries = math.prod(shape)
    if num_entries > MAX_QUICK_ENTRIES:
        return _jit(function, static)
    fuses = num_entries >= MIN_FUSED_ENTRIES and not is_small_shape(shape)
    return _jit_quickly(function, static, fuses)


@functools.cache
def _jit(function: Callable[..., Any], static: tuple[str, ...]) -> Any:
    return bounded_jit(function, static_argnames=static)


@functools.cache
def _jit_quickly(function: Callable[..., Any], static: tuple[str, ...], fuses: bool) -> Any:
    options: dict[str, Any] = {"xla_backend_optimization_level": 1}
    if not fuses and jax.__version_info__ < (0, 11):  # which refuses the option
        options["xla_cpu_use_fusion_emitters"] = False
    return ExportedProgram(function, static, options)
