"""The protocol of model subspaces: the linear subspace on which a point lies, over which an
objective is refitted."""

from typing import Any, ClassVar, Protocol, Self, runtime_checkable

from jaxht._typing import Array

__all__ = ["ModelSubspace"]


@runtime_checkable
class ModelSubspace(Protocol):
    """A linear subspace inside a constraint set, with coordinates w: what a projection returns
    beside x.

    :class:`jaxht.Support` is that of sparse vectors, matrices and graphs: the variables that are
    zero off a mask, with their own entries as coordinates. :class:`jaxht.Subspace` is that of
    matrices of low rank: ``U w V'``.

    Attributes:
        coordinatewise: whether its coordinates are entries of the variable.
    """

    coordinatewise: ClassVar[bool] = True

    @property
    def bounds(self) -> tuple[Any, Any] | None:
        """Lower and upper bound of the coordinates, broadcastable to them, or None."""
        ...

    @property
    def k_max(self) -> int | None:
        """Static bound on ``size``, or None where it is not known at trace time."""
        ...

    @property
    def size(self) -> Array:
        """The size of the support, or the rank; int32."""
        ...

    @property
    def inside(self) -> Array:
        """bool, like the coordinates: False where a coordinate is 0 for all points of the
        subspace."""
        ...

    def point(self, w: Array) -> Array:
        """The variable with coordinates w."""
        ...

    def coordinates(self, v: Array) -> Array:
        """The adjoint of :meth:`point`; the coordinates of v if v lies in the subspace."""
        ...

    def diagonal(self, diagonal: Array) -> Array:
        """The diagonal in coordinates of a quadratic form with this diagonal in the entries of the
        variable."""
        ...

    def restrict(self, v: Array) -> Array:
        """The nearest point of the subspace to v."""
        ...

    def equals(self, other: Self) -> Array:
        """Whether both are the same subspace, as a bool scalar."""
        ...
