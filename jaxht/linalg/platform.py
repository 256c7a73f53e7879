"""Functions of arrays that are computed in different ways on different platforms."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import mlir

from jaxht._loops import vary_alike
from jaxht._typing import Array

__all__ = ["by_platform", "has_gpu", "has_kernels"]

Function = Callable[..., Sequence[Array]]


def by_platform(
    name: str, out_shape: Callable[..., Sequence[Any]], default: Function, **platforms: Function
) -> Function:
    """A function of arrays that is lowered as ``cpu``, ``cuda`` or ``tpu`` for these platforms,
    where they are given, and as ``default`` for all others.

    Only the one for the platform is traced, when a program is lowered for it: what a kernel needs
    is imported, and costs, where it runs. (``lax.platform_dependent`` traces them all.) The
    function has neither a derivative nor a rule for vmap.

    Args:
        name: of the primitive, as jaxprs show it.
        out_shape: the function's shapes and dtypes, from its arguments.
        default: pure, of arrays, to a list of arrays.
        **platforms: the same function for a platform; that for ``cuda`` may call kernels, and is
            left aside where this version of JAX has none.

    Returns:
        A function of the same arguments.

    Cost: nothing.
    """
    primitive = Primitive(name)
    primitive.multiple_results = True
    # Outside of a jit, operation by operation.
    primitive.def_impl(lambda *args: platforms.get(jax.default_backend(), default)(*args))

    @primitive.def_abstract_eval
    def _(*args):
        return [jax.core.ShapedArray(one.shape, one.dtype) for one in out_shape(*args)]

    lower = functools.partial(mlir.lower_fun, multiple_results=True)
    mlir.register_lowering(primitive, lower(default))
    for platform, function in platforms.items():
        if platform == "cuda":
            function = _where_there_are_kernels(function, default)
        mlir.register_lowering(primitive, lower(function), platform=platform)

    def call(*args):
        return vary_alike(primitive.bind(*args), args)

    return call


def _where_there_are_kernels(function: Function, default: Function) -> Function:
    """Asked when a program is lowered: Pallas is imported then at the earliest."""
    return lambda *args: (function if has_kernels() else default)(*args)


def has_gpu() -> bool:
    """Whether programs of this process run on a GPU unless it asks for another device."""
    return jax.default_backend() == "gpu"


@functools.cache
def has_kernels() -> bool:
    """Whether this version of JAX has what the kernels are written in."""
    try:
        from jax.experimental.pallas import triton
    except ImportError:
        return False
    return hasattr(triton, "load")  # JAX before 0.8 has it elsewhere
