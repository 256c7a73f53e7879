"""Functions of arrays on a mesh whose axes are explicit, as ``jax.make_mesh`` makes them.

There the sharding of an array is part of its type, and every operation asks for that of its result.
Functions here leave it to XLA, as for axes of the type ``AxisType.Auto``.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax.sharding import NamedSharding, PartitionSpec

__all__ = ["shard_automatically", "shard_like_first"]

F = TypeVar("F", bound=Callable[..., Any])


def shard_automatically(function: F, shardings: Callable[..., Any] | None = None) -> F:
    """A function of pytrees that also takes arrays on a mesh with explicit axes.

    Args:
        function: of pytrees.
        shardings: gives the shardings of the results from a mesh and the function's arguments; None:
            every device has all of them.

    Returns:
        The function.

    Cost: nothing, but for a look at the arguments.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = jax.tree.flatten((args, kwargs))
        mesh = _explicit_mesh(leaves)
        if mesh is None:
            return function(*args, **kwargs)
        rest: list[Any] = []
        structure: Any = None

        def run(arrays):
            nonlocal rest, structure
            args, kwargs = jax.tree.unflatten(tree, _merge(arrays, leaves))
            rest, structure = jax.tree.flatten(function(*args, **kwargs))
            return _arrays_of(rest)

        out: Any = NamedSharding(mesh, PartitionSpec())
        if shardings is not None:
            out = jax.tree.leaves(shardings(mesh, *args, **kwargs))
        automatic = jax.sharding.auto_axes(run, axes=mesh.explicit_axes, out_sharding=out)
        found = automatic(_arrays_of(leaves))
        return jax.tree.unflatten(structure, _merge(found, rest))

    return call  # type: ignore[return-value]


def shard_like_first(function: F) -> F:
    """:func:`shard_automatically` of a function to arrays that lie where those of its first
    argument lie."""

    def place_like_first(mesh: Any, first: Any, *_: Any, **__: Any) -> Any:
        def place(leaf):
            sharding = jax.typeof(leaf).sharding
            spec = sharding.spec if sharding.mesh.explicit_axes else PartitionSpec()
            return NamedSharding(mesh, spec)

        return jax.tree.map(place, first)

    return shard_automatically(function, place_like_first)


def _arrays_of(leaves: list[Any]) -> list[Any]:
    """The arrays of JAX, and None in the place of all else."""
    return [leaf if isinstance(leaf, jax.Array) else None for leaf in leaves]


def _merge(arrays: list[Any], leaves: list[Any]) -> list[Any]:
    pairs = zip(arrays, leaves, strict=True)
    return [leaf if array is None else array for array, leaf in pairs]


def _explicit_mesh(leaves: list[Any]) -> Any:
    """The mesh with explicit axes of the context, or of an array; None where there is none."""
    context = jax.sharding.get_abstract_mesh()
    if context.explicit_axes:
        return context
    for leaf in leaves:
        if isinstance(leaf, jax.Array):
            mesh: Any = jax.typeof(leaf).sharding.mesh
            if mesh.explicit_axes:
                is_traced = isinstance(leaf, jax.core.Tracer)
                sharding: Any = None if is_traced else leaf.sharding
                return mesh if is_traced else sharding.mesh
    return None
