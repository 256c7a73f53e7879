"""How programs are compiled."""

import functools
from collections.abc import Callable
from typing import Any

import jax

from jaxht._programs import bounded_jit
from jaxht.runner._exported import ExportedProgram

__all__ = ["compile_for"]

# Entries of a design up to which a program is compiled at XLA's level 1 of optimisation. Measured
# for LocalSearch on 455 x 30, logistic: levels 0, 1 and 3 compile and run for the first time in 1.8,
# 2.3 and 8 s, and run again in 120, 25 and 25 to 40 ms.
MAX_QUICK_ENTRIES = 2**20


def compile_for(num_entries: int | None, function: Callable[..., Any], *static: str) -> Any:
    """The jitted function, for a design of so many entries; None stands for an unknown number.

    Programs of small designs, which run for milliseconds, are compiled with less optimisation.

    Args:
        num_entries: of the design.
        function: a function of pytrees, of a module.
        static: the names of static arguments.
    """
    is_small = num_entries is not None and num_entries <= MAX_QUICK_ENTRIES
    is_on_cpu = jax.default_backend() == "cpu"
    # Who asks JAX to optimise as little as possible gets no more here.
    asks_for_little = jax.config.read("jax_disable_most_optimizations")  # noqa: TID251
    return _jit(function, static, is_small and is_on_cpu and not asks_for_little)


@functools.cache
def _jit(function: Callable[..., Any], static: tuple[str, ...], is_quick: bool) -> Any:
    if not is_quick:
        return bounded_jit(function, static_argnames=static)
    options: dict[str, Any] = {"xla_backend_optimization_level": 1}
    if jax.__version_info__ < (0, 11):  # which refuses the option
        options["xla_cpu_use_fusion_emitters"] = False
    return ExportedProgram(function, static, options)
