"""Groups of features that overlap, as groups of copies that do not."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxht._checks import host_array
from jaxht._dataclass import integer, pytree, static
from jaxht._typing import Array
from jaxht.designs import RepeatedColumns, design

__all__ = ["LatentGroups"]


@pytree
class LatentGroups:
    r"""Groups of features that overlap: x is a sum of parts, one for each group, of which at most k
    are not 0.

    .. math::
        x = \sum_g v_g, \quad supp(v_g) \subseteq g, \quad |\{ g : v_g \ne 0 \}| \le k

    The support of x is thus a union of at most k groups. The parts are a vector of copies of the
    features, one for each group that a feature is in, whose groups do not meet: on a design with
    these copies as columns, :class:`jaxht.Groups` is the same constraint, with its exact
    projection, and every solver takes it. In terms of x alone the projection would be NP-hard
    (weighted maximum coverage). A ridge is one of the parts, ``sum_g ||v_g||^2``. Without one the
    parts of a feature that is in several selected groups are not unique, but x is.

    Attributes:
        features: int32 (p,), the feature of each copy.
        groups: int32 (p,), the group of each copy: the ``groups`` of :class:`jaxht.Groups`.
        num_features: d, static.
        num_groups: m, static.

    Source: Jacob, Obozinski & Vert 2009, §3, for the latent parts; Baldassarre, Bhan, Cevher,
    Kyrillidis & Satpathi 2016 for the projection in terms of x.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> overlap = jaxht.LatentGroups.build([[0, 1], [1, 2], [3]], 4)
        >>> f = jaxht.LeastSquares(overlap.design(jnp.eye(4)), jnp.array([0.0, 3.0, 2.0, 1.0]))
        >>> result = jaxht.solve(f, jaxht.Groups(1, overlap.groups))
        >>> overlap.combine(result.x).tolist()
        [0.0, 3.0, 2.0, 0.0]
    """

    features: Array = integer()
    groups: Array = integer()
    num_features: int = static()
    num_groups: int = static()

    @classmethod
    def build(cls, groups: Sequence[Any] | np.ndarray, num_features: int) -> "LatentGroups":
        """Number the copies of the features, on the host.

        Args:
            groups: m sequences of features, or a bool array (m, d). A feature in none of them is a
                group of its own, after these.
            num_features: d.

        Returns:
            :class:`LatentGroups`.

        Raises:
            ValueError: for an empty group, and for features that are out of range or repeat.
        """
        members = [_read_group(group, number, num_features) for number, group in enumerate(groups)]
        covered = np.concatenate([np.zeros(0, int), *members])
        alone = np.setdiff1d(np.arange(num_features), covered)
        members += [np.array([feature]) for feature in alone]
        sizes = [len(group) for group in members]
        return cls(
            features=np.concatenate(members).astype(np.int32),
            groups=np.repeat(np.arange(len(members), dtype=np.int32), sizes),
            num_features=num_features,
            num_groups=len(members),
        )

    def design(self, A: Any) -> RepeatedColumns:
        """The copies of the columns of a design, or of what :func:`jaxht.design` takes.

        Args:
            A: (n, d).

        Returns:
            :class:`jaxht.designs.RepeatedColumns`, n x p.

        Raises:
            ValueError: unless A has d columns.
        """
        base = design(A)
        if len(base.shape) != 2 or base.shape[1] != self.num_features:
            raise ValueError(
                f"A must have {self.num_features} columns, the features of the groups; got shape "
                f"{base.shape}"
            )
        return RepeatedColumns(base, jnp.asarray(self.features))

    def combine(self, parts: Array) -> Array:
        """x, (d,) or (d, c), the sum of the parts.

        Args:
            parts: (p,) or (p, c), as a solver finds them.

        Returns:
            Shaped like parts, but for the first axis.
        """
        return jax.ops.segment_sum(parts, self.features, self.num_features)


def _read_group(group: Any, number: int, num_features: int) -> np.ndarray:
    """The features of a group."""
    members = np.atleast_1d(host_array("groups", group))
    if members.dtype == np.bool_ and members.shape == (num_features,):
        members = np.flatnonzero(members)
    name = f"groups[{number}]"
    if members.ndim != 1 or not members.size or members.dtype.kind not in "iu":
        raise ValueError(
            f"{name} must be numbers of features, at least one, or a mask ({num_features},); got "
            f"{group!r}"
        )
    if np.any((members < 0) | (members >= num_features)):
        raise ValueError(f"{name} must be features from 0 to {num_features - 1}; got {group!r}")
    if len(np.unique(members)) < len(members):
        raise ValueError(f"{name} must not repeat features; got {group!r}")
    return members
