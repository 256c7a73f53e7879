"""Loops and branches of ``jax.lax`` that also work inside ``jax.shard_map``.

There the type of an array tells over which axes of the mesh it varies, and a loop asks for a carry
of one type, a branch for results of one type. Here a carry that starts with zeros, which vary over
no axis, becomes one that varies over the axes of everything that it is computed with.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

__all__ = ["cond", "cond_of_lanes", "fori_loop", "scan", "vary_alike", "while_loop"]

T = TypeVar("T")


def while_loop(goes_on: Callable[[Any], Any], body: Callable[[Any], Any], init: T) -> T:
    """Run ``lax.while_loop``."""

    def run(vary):
        return lax.while_loop(goes_on, lambda carry: vary(body(carry)), vary(init))

    return _run_with_equal_types(run, init)


def fori_loop(lower: Any, upper: Any, body: Callable[[Any, Any], Any], init: T) -> T:
    """Run ``lax.fori_loop``."""

    def run(vary):
        return lax.fori_loop(lower, upper, lambda i, carry: vary(body(i, carry)), vary(init))

    return _run_with_equal_types(run, init)


def scan(
    body: Callable[[Any, Any], tuple[Any, Any]],
    init: T,
    xs: Any = None,
    length: int | None = None,
    unroll: int = 1,
) -> tuple[T, Any]:
    """Run ``lax.scan``."""

    def run(vary):
        def step(carry, x):
            carry, y = body(carry, x)
            return vary(carry), y

        return lax.scan(step, vary(init), xs, length, unroll=unroll)

    return _run_with_equal_types(run, init)


def cond(predicate: Any, then: Callable[..., T], otherwise: Callable[..., T], *args: Any) -> T:
    """Run ``lax.cond``."""

    def run(vary):
        branches = [lambda *args, f=f: vary(f(*args)) for f in (then, otherwise)]
        return lax.cond(predicate, *branches, *args)

    return _run_with_equal_types(run, (predicate, args))


def cond_of_lanes(
    predicate: Any, then: Callable[..., T], otherwise: Callable[..., T], *args: Any
) -> T:
    """Run ``lax.cond`` for predicates that may have lanes: both branches are computed where these
    vary between devices."""
    # JAX's rule for lanes fails there, where operands vary over fewer axes than the predicate.
    if _is_in_shard_map() and _varying_axes(predicate):
        return jax.tree.map(functools.partial(jnp.where, predicate), then(*args), otherwise(*args))
    return cond(predicate, then, otherwise, *args)


def vary_alike(results: T, known: Any) -> T:
    """Results that vary over the axes of all that they were computed from."""
    if not _is_in_shard_map():
        return results
    return _vary(results, _varying_axes(known))


class _VariesMoreError(Exception):
    """What a loop computes varies over more axes than what it starts with."""

    def __init__(self, axes: frozenset[str]) -> None:
        super().__init__(axes)
        self.axes = axes


def _run_with_equal_types(run: Callable[[Callable[[T], T]], Any], known: Any) -> Any:
    """Call ``run`` with a function that makes arrays vary over the axes of all of them.

    These are guessed from what is known, so that most loops are traced once.
    """
    if not _is_in_shard_map():
        return run(lambda tree: tree)
    axes = _varying_axes(known)
    while True:

        def vary(tree, axes=axes):
            found = _varying_axes(tree)
            if not found <= axes:
                raise _VariesMoreError(axes | found)
            return _vary(tree, axes)

        try:
            return run(vary)
        except _VariesMoreError as error:
            axes = error.axes


def _is_in_shard_map() -> bool:
    return bool(jax.sharding.get_abstract_mesh().manual_axes)


def _varying_axes(tree: Any) -> frozenset[str]:
    """The axes over which any array varies."""
    axes: frozenset[str] = frozenset()
    return axes.union(*map(_axes_of, jax.tree.leaves(tree)))


def _axes_of(leaf: Any) -> frozenset[str]:
    kind: Any = jax.typeof(leaf)
    if hasattr(kind, "manual_axis_type"):
        return kind.manual_axis_type.varying
    return kind.vma  # JAX before 0.10


def _vary(tree: Any, axes: frozenset[str]) -> Any:
    """The same arrays, which also vary over these axes."""

    def add_axes(leaf):
        missing = tuple(sorted(axes - _axes_of(leaf)))
        if not missing:
            return leaf
        if hasattr(lax, "pcast"):
            return lax.pcast(jnp.asarray(leaf), missing, to="varying")
        before_0_9: Any = lax
        return before_0_9.pvary(jnp.asarray(leaf), missing)

    return jax.tree.map(add_axes, tree)
