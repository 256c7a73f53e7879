"""The protocols of constraints, and checks that constraints share."""

import abc
from collections.abc import Callable
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from jaxht._checks import check_array, known_values
from jaxht._dataclass import replace
from jaxht._repr import describe
from jaxht._typing import Array, ArrayDType, Numeric
from jaxht.constraints.bounds import clip, feasible_part, root_gains
from jaxht.constraints.model_subspace import ModelSubspace
from jaxht.constraints.support import Support
from jaxht.linalg.selection import k_largest_mask

__all__ = [
    "Constraint",
    "SelectionConstraint",
    "check_groups",
    "check_selection",
    "check_sparsity",
    "rank_first",
]


@runtime_checkable
class Constraint(Protocol):
    """A set C given by its projection, which also returns the linear subspace of C on which the
    nearest point lies.

    Attributes:
        k: sparsity or rank, static or traced; None where it is given later, as by
            :func:`jaxht.path`.
        k_max: static bound on k, or None where it is not known at trace time.
        stores_entries: whether points are arrays; else they are known by their products; static.
        coordinatewise: whether C is a union of coordinate subspaces, so that step sizes follow from
            the curvature of f along coordinates; else they follow from its largest curvature.
        selects_items: whether it is a :class:`SelectionConstraint`.
        selects_entries: whether each item is one entry of the variable.
        items_partition: whether each entry of the variable belongs to one item, an entry or a
            group.
        is_hereditary: whether every part of a selection that is allowed is allowed, so that items
            may leave one by one.
        is_graph: whether its items are pairs, entries of a symmetric matrix.
        rounding: by how many units in its last place an x that has converged may still change in a
            step, because its projection rounds.
    """

    k: Numeric
    k_max: int | None
    coordinatewise: ClassVar[bool] = True
    selects_items: ClassVar[bool] = False
    selects_entries: ClassVar[bool] = False
    items_partition: ClassVar[bool] = False
    is_graph: ClassVar[bool] = False
    is_hereditary: ClassVar[bool] = True
    rounding: ClassVar[float] = 1.0

    def with_k(self, k: Numeric) -> Self:
        """This constraint, prepared, with another k."""
        return replace(self, k=k)

    @property
    def stores_entries(self) -> bool:
        """True, except for some :class:`jaxht.LowRank`."""
        return True

    def zero(self, shape: tuple[int, ...], dtype: ArrayDType) -> Any:
        """The zero of the variable as points of C are stored; of a prepared constraint."""
        return jnp.zeros(shape, dtype)

    @property
    def bounds(self) -> tuple[Any, Any] | None:
        """Lower and upper bound of the variable, or None."""
        return None

    def prepare(self, shape: tuple[int, ...]) -> Self:
        """This constraint with its static bounds, for variables of ``shape``.

        Raises:
            ValueError: for fields that do not fit together or do not fit the shape, as far as known
            at trace time.
        """
        ...

    def project(self, z: Array, near: Array | None = None) -> tuple[Array, ModelSubspace]:
        """The nearest point of C to ``z``, and the subspace of C on which it lies.

        ``near`` is a point of C close to z, if one is known: an iterative projection starts there.
        """
        ...

    def support_of(self, x: Array) -> ModelSubspace:
        """The smallest subspace of C that contains the feasible point ``x``."""
        ...


class SelectionConstraint(Constraint):
    """A constraint whose points have at most k active *items* (coordinates, groups, edges); greedy
    solvers require one.

    A selection of items is a bool array with one entry for each item, whose shape is up to the
    constraint.
    """

    selects_items = True
    #: Whether any items may be selected together, up to their number; else :meth:`joinable` and the
    #: like say which.
    is_uniform: ClassVar[bool] = True

    def project(self, z: Array, near: Array | None = None) -> tuple[Array, Support]:
        """The nearest point of C to ``z``, and the support on which it lies: all coordinates of the
        selected items. By default these are the items of the largest ranks, clipped to the
        bounds."""
        support = self.support(k_largest_mask(self.ranks(z), self.limit))
        return support.restrict(clip(z, self.bounds)), support

    def ranks(self, z: Array) -> Array:
        """The numbers of which :meth:`project` keeps the largest in magnitude, one for each item:
        the root of what each brings z closer, its score where there are no bounds."""
        return rank_first(self.always_active, self.scores(root_gains(z, self.bounds)))

    def support_of(self, x: Array) -> Support:
        """The coordinates of the active items of x."""
        return self.support(self.active(x))

    @property
    def limit(self) -> Numeric:
        """How many items may be active: the smaller of k and k_max."""
        return self.k if self.k_max is None else jnp.minimum(self.k, self.k_max)

    def num_items(self, shape: tuple[int, ...]) -> int | None:
        """The number of items in a variable of ``shape``; None where k_max must stay as it is."""
        return None

    def with_k_max(self, k_max: int) -> Self:
        """This constraint, prepared, with another static bound on k."""
        return replace(self, k_max=k_max)

    def pad(self, shape: tuple[int, ...], num_added: int) -> Self | None:
        """This constraint, prepared for a variable of ``shape``, with further rows at its end that
        are 0 in every step; on the host. None: it has no such form."""
        return None

    def support_size(self, shape: tuple[int, ...]) -> int | None:
        """The most entries that a support has, a static number; None where it is not known."""
        return self.k_max

    @property
    @abc.abstractmethod
    def always_active(self) -> Array:
        """The items that are always active, or a scalar False."""

    def first_always_active(self) -> Array:
        """The first ``limit`` of the items that are always active, bool like items."""
        always = self.always_active
        first = k_largest_mask(jnp.ravel(always).astype(jnp.int32), self.limit)
        return always & first.reshape(always.shape)

    @abc.abstractmethod
    def active(self, x: Array) -> Array:
        """The items on which the feasible point x is not zero, and those that are always active;
        bool."""

    @abc.abstractmethod
    def scores(self, v: Array) -> Array:
        """The l2 norm of v on each item."""

    @abc.abstractmethod
    def support(self, selected: Array) -> Support:
        """All coordinates of the selected items, of which there are at most ``limit``."""

    @abc.abstractmethod
    def top_k(self, direction: Array, size: Numeric, size_max: int | None) -> Support:
        """The support of the ``size`` items with the largest scores of ``direction``, size <=
        size_max (static)."""

    # ---- which items may be selected together ----

    def allows(self, selected: Array) -> Array:
        """Whether the selected items may be selected together, but for their number; a bool
        scalar."""
        return jnp.array(True)

    def capacity(self, among: Array) -> Array:
        """How many of some items, bool, may be selected together, but for k; int32."""
        return jnp.sum(among, dtype=jnp.int32)

    def joinable(self, selected: Array) -> Array:
        """The items that may join a selection of fewer than ``limit``; bool, like items."""
        return ~selected

    def leavable(self, selected: Array, entering: Array) -> Array:
        """The selected items of which one must leave so that the entering one fits in, where it
        does not without; bool, like items."""
        return selected

    def exchangeable(self, selected: Array, slots: Array) -> Array:
        """Whether item i fits in once that of slot s has left, bool (number of slots, number of
        items), for flat ``slots``, padded with the number of items."""
        return jnp.ones((slots.size, selected.size), bool)

    def select(self, scores: Array, k: Numeric) -> Array:
        """The k items of the largest scores that may be selected together; bool, like items."""
        return k_largest_mask(scores.ravel(), k).reshape(scores.shape)

    def feasible_direction(self, direction: Array) -> Array:
        """``direction``, with 0 in the entries along which x = 0 would leave the bounds."""
        return feasible_part(direction, self.bounds)


def check_selection(constraint: Constraint, exchanges: bool = False) -> None:
    """Raise ValueError unless items of the constraint can be selected one by one.

    Args:
        constraint: any constraint.
        exchanges: whether items must be able to leave one by one as well.

    Raises:
        ValueError: for :class:`jaxht.LowRank`; with exchanges for :class:`jaxht.TreeSparse`.

    Example:
        >>> import jaxht
        >>> jaxht.constraints.check_selection(jaxht.Sparse(2))
    """
    name = type(constraint).__name__
    if not constraint.selects_items:
        raise ValueError(
            f"{name} has no coordinates to select: use IHT, NIHT, HTP or a stochastic solver"
        )
    if exchanges and not constraint.is_hereditary:
        raise ValueError(
            f"{name} has entries that others depend on, which cannot leave one by one: use IHT, "
            "NIHT, CGIHT, HTP, CoSaMP, OMP or a stochastic solver"
        )


def rank_first(always: Array | None, scores: Array) -> Array:
    """Scores in which those of the items that are always active are above all others, also above
    infinite ones and NaN."""
    if always is None:
        return scores
    largest = float(np.finfo(scores.dtype).max)
    finite = jnp.nan_to_num(scores, nan=largest, posinf=largest, neginf=-largest)
    return jnp.where(always, jnp.inf, finite)


def check_sparsity(
    k: Any,
    k_max: int | None,
    num_items: int,
    keep: Array | None,
    shape: tuple[int, ...],
    count: str = "d",
    items: str = "coordinates",
    count_kept: Callable[[Any], int | None] = np.count_nonzero,
) -> int | None:
    """The static bound on k for a variable of ``shape``, if it is known at trace time: k_max, or k
    where that is a Python int.

    Args:
        k, k_max: of the constraint.
        num_items: how many items there are.
        keep: mask of the variable, or None.
        shape: of the variable.
        count, items: the names of ``num_items`` and of items in error messages.
        count_kept: the number of items that a known mask keeps, where it is known.

    Raises:
        ValueError: for values that are out of range or of a wrong type.
    """
    _check_integer(k)
    is_integer = isinstance(k_max, int | np.integer)
    if k_max is not None and not (is_integer and 0 <= k_max <= num_items):
        raise ValueError(
            f"k_max must be a Python int between 0 and {count} = {num_items}; got {k_max!r}"
        )
    bound = num_items if k_max is None else k_max
    is_known = isinstance(k, int | np.integer | np.ndarray)
    if is_known and not 0 <= k <= bound:
        name = count if k_max is None else "k_max"
        raise ValueError(f"k must lie between 0 and {name} = {bound}; got {k}")
    if keep is not None:
        mask = _check_keep(keep, shape)
        num_kept = None if mask is None else count_kept(mask)
        allowed = k if is_known else bound
        if num_kept is not None and num_kept > allowed:
            name = "k" if is_known else "k_max"
            raise ValueError(f"keep must mark at most {name} = {allowed} {items}; got {num_kept}")
    is_static = isinstance(k, int | np.integer)
    return int(k) if is_static and k_max is None else k_max


def _check_integer(k: Any) -> None:
    if k is None:
        raise ValueError(
            "k must be given, an integer; got None: only path and the like replace it by their ks"
        )
    if type(k) is int:
        return
    is_number = isinstance(k, int | np.integer | np.ndarray | jax.Array)
    if not is_number or not jnp.issubdtype(jnp.result_type(k), jnp.integer):
        raise ValueError(f"k must be an integer; got {k!r}")
    if jnp.ndim(k):
        raise ValueError(
            f"k must be a scalar; got shape {jnp.shape(k)}: use jax.vmap for a grid of k"
        )


def _check_keep(keep: Any, shape: tuple[int, ...]) -> Any:
    """A valid mask ``keep`` on the host, or None where it is not known."""
    expected = f"a boolean mask of shape {shape}"
    mask_of_indices = ": that of indices is np.isin(np.arange(d), indices)"
    if isinstance(keep, list | tuple):
        raise ValueError(f"keep must be {expected}; got {describe(keep)}{mask_of_indices}")
    check_array("keep", keep, expected)
    if jnp.shape(keep) != shape or keep.dtype != jnp.bool_:
        hint = mask_of_indices if jnp.issubdtype(keep.dtype, jnp.integer) else ""
        raise ValueError(
            f"keep must be {expected}; got dtype {jnp.result_type(keep)} and shape "
            f"{jnp.shape(keep)}{hint}"
        )
    return known_values(keep)


def pad_rows(values: Any, shape: tuple[int, ...], num_added: int) -> Any:
    """Values for each entry of a variable of ``shape``, and zeros for further rows, on the host;
    None stays None."""
    if values is None:
        return None
    return np.pad(np.broadcast_to(values, shape), [(0, num_added)] + [(0, 0)] * (len(shape) - 1))


def check_groups(groups: Any, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless ``groups`` may be the group of each coordinate."""
    expected = f"an array of integers of shape {shape}"
    if isinstance(groups, list | tuple) and any(isinstance(g, list | tuple) for g in groups):
        raise ValueError(
            f"groups must be {expected}; got lists of members, which jaxht.LatentGroups.build takes"
        )
    check_array("groups", groups, expected)
