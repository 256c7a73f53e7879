"""What a solver may ask of a constraint, and what constraints have in common."""

import abc
from typing import ClassVar, Protocol, Self

import jax
import jax.numpy as jnp
import numpy as np
from chex import Array, Numeric

from jaxht.constraints.model_subspace import ModelSubspace
from jaxht.constraints.support import Support


class Constraint(Protocol):
    """A set C given by its projection, which also returns the linear subspace of C on which the nearest point lies.

    Attributes:
        k: sparsity or rank, static or traced.
        k_max: static bound on k, or None where it is not known at trace time.
        factored: whether points are held as :class:`jaxht.Factored`; static.
        coordinatewise: whether C is made of coordinates, so that the curvature of f along one of them is the scale of a
            step; else it is the largest curvature of f.
        rounding: how many units in its last place an x at rest may move in a step, since its projection rounds.
    """

    k: Numeric
    k_max: int | None
    coordinatewise: ClassVar[bool] = True
    rounding: ClassVar[float] = 1.0

    @property
    def factored(self) -> bool:
        """False, but for :class:`jaxht.LowRank`."""
        return False

    def prepare(self, shape: tuple[int, ...]) -> Self:
        """This constraint with its static bounds, for variables of ``shape``; ValueError if it cannot hold."""
        ...

    def project(self, z: Array, near: Array | None = None) -> tuple[Array, ModelSubspace]:
        """The nearest point of C to ``z``, and the subspace of C on which it lies.

        ``near`` is a point of C in whose vicinity z is, if one is known: an iterative projection starts there.
        """
        ...

    def support_of(self, x: Array) -> ModelSubspace:
        """The smallest subspace of C that holds the feasible point ``x``."""
        ...


class SelectionConstraint(Constraint):
    """A constraint whose points have at most k active *items* (coordinates, groups, edges), as greedy solvers need it.

    A selection of items is a bool array with an entry for each item, shaped as the constraint likes.
    """

    @abc.abstractmethod
    def project(self, z: Array, near: Array | None = None) -> tuple[Array, Support]:
        """The nearest point of C to ``z``, and the support on which it lies: all coordinates of the selected items."""

    @abc.abstractmethod
    def support_of(self, x: Array) -> Support:
        """The coordinates of the active items of x."""

    @property
    def limit(self) -> Numeric:
        """How many items may be active: k, at most k_max."""
        return self.k if self.k_max is None else jnp.minimum(self.k, self.k_max)

    @property
    @abc.abstractmethod
    def always_active(self) -> Array:
        """The items that are always active, or a scalar False."""

    @abc.abstractmethod
    def active(self, x: Array) -> Array:
        """The items on which the feasible point x is not zero, and those that are always active."""

    @abc.abstractmethod
    def scores(self, v: Array) -> Array:
        """The l2 norm of v on each item."""

    @abc.abstractmethod
    def support(self, selected: Array) -> Support:
        """All coordinates of the selected items, of which there are at most ``limit``."""

    @abc.abstractmethod
    def top_k(self, direction: Array, size: Numeric, size_max: int | None) -> Support:
        """The support of the ``size`` items of the largest scores in a direction, size at most size_max (static)."""

    def feasible_direction(self, direction: Array) -> Array:
        """The direction without the entries that leave C where x is 0."""
        return direction


def check_selection(constraint: Constraint) -> None:
    """Raise ValueError unless the items of the constraint can be selected one by one."""
    if not isinstance(constraint, SelectionConstraint):
        name = type(constraint).__name__
        raise ValueError(f"{name} has no coordinates to select: use IHT, NIHT, HTP or a stochastic solver")


def check_sparsity(
    k: Numeric, k_max: int | None, most: int, keep: Array | None, shape: tuple[int, ...], called: str = "d"
) -> int | None:
    """The static bound on k, from what is known at trace time; ValueError for what cannot be; most is ``called`` so."""
    if not jnp.issubdtype(jnp.result_type(k), jnp.integer):
        raise ValueError(f"k must be an integer; got {k!r}")
    if jnp.ndim(k):
        raise ValueError(f"k must be a scalar; got shape {jnp.shape(k)}: use jax.vmap for a grid of k")
    if k_max is not None and not (isinstance(k_max, int | np.integer) and 0 <= k_max <= most):
        raise ValueError(f"k_max must be a Python int between 0 and {called} = {most}; got {k_max!r}")
    bound = most if k_max is None else k_max
    known = isinstance(k, int | np.integer | np.ndarray)
    if known and not 0 <= k <= bound:
        raise ValueError(f"k must lie between 0 and {called if k_max is None else 'k_max'} = {bound}; got {k}")
    if keep is not None and (jnp.shape(keep) != shape or jnp.result_type(keep) != jnp.bool_):
        raise ValueError(
            f"keep must be a boolean mask of shape {shape}; "
            f"got dtype {jnp.result_type(keep)} and shape {jnp.shape(keep)}"
        )
    if keep is not None and not isinstance(keep, jax.core.Tracer):
        num_kept, allowed = np.count_nonzero(np.asarray(keep)), k if known else bound
        if num_kept > allowed and most == int(np.prod(shape)):
            raise ValueError(
                f"keep must mark at most {'k' if known else 'k_max'} = {allowed} coordinates; got {num_kept}"
            )
    return int(k) if k_max is None and isinstance(k, int | np.integer) else k_max
