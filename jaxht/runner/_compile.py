"""How programs are compiled."""

import functools
from collections.abc import Callable
from typing import Any

import jax

__all__ = ["compile_for"]

# Entries of a design up to which a program is compiled at these levels of optimisation. Measured
# for LocalSearch on 512 x 64, logistic: levels 0, 1 and 3 compile in 1.5, 3.2 and 7 s, and run in
# 29, 10 and 10 ms.
MAX_ENTRIES_OF_LEVEL = {0: 2**16, 1: 2**20}


def compile_for(num_entries: int | None, function: Callable[..., Any], *static: str) -> Any:
    """The jitted function, for a design of so many entries; None stands for an unknown number.

    Programs of small designs, which run for milliseconds, are compiled with less optimisation.

    Args:
        num_entries: of the design.
        function: a function of pytrees, of a module.
        static: the names of static arguments.
    """
    level = None
    if num_entries is not None and jax.default_backend() == "cpu":
        levels = (each for each, most in MAX_ENTRIES_OF_LEVEL.items() if num_entries <= most)
        level = next(levels, None)
    return _jit(function, static, level)


@functools.cache
def _jit(function: Callable[..., Any], static: tuple[str, ...], level: int | None) -> Any:
    if level is None:
        return jax.jit(function, static_argnames=static)
    options: dict[str, Any] = {"xla_backend_optimization_level": level}
    if jax.__version_info__ < (0, 11):  # which refuses the option
        options["xla_cpu_use_fusion_emitters"] = False
    return jax.jit(function, static_argnames=static, compiler_options=options)
