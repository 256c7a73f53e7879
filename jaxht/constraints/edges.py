"""Symmetric matrices with few nonzero entries off the diagonal: graphs."""

import math

import jax.numpy as jnp
import numpy as np

from jaxht._checks import known_values
from jaxht._dataclass import integer, pytree, replace, static
from jaxht._typing import Array, Numeric
from jaxht.constraints.constraint import SelectionConstraint, check_sparsity
from jaxht.constraints.support import Support
from jaxht.linalg.selection import k_largest_mask

__all__ = ["Edges"]


@pytree
class Edges(SelectionConstraint):
    """Symmetric matrices of at most k edges: ``C = { W = W' : |{ i < j : W_ij != 0 }| <= k }``; the
    diagonal is free.

    The projection is exact: it takes the symmetric part and keeps its k largest entries above the
    diagonal, of equal ones those of the lowest row, then column. The items of C are the p (p - 1) /
    2 edges in that order.

    Args:
        k: number of edges, that is of pairs of nonzeros off the diagonal, an integer; static or
            traced, as in :class:`jaxht.Sparse`.
        k_max: static upper bound on k, an int; None: k, where k is a Python int; but calls of
            :func:`jaxht.solve` outside of jit then take the next multiple of 8 or so, or of
            about an eighth of k, as of :class:`jaxht.Sparse`.
        keep: bool (p, p), traced: these edges, given above the diagonal, below, or both, are always
            active and count towards k; None for none. More than k edges are an error, or, where k or
            keep is traced, only the first k are kept.

    Raises:
        ValueError: from :meth:`prepare`, which every solver calls, for variables that are no square
            matrices, and for k, k_max or keep that are out of range or of a wrong shape or dtype.

    Cost: a projection takes a selection of the k largest of p (p - 1) / 2 numbers, a few passes
    over them.

    Source: Yuan, Li & Zhang 2018, Appendix D.2.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> constraint = jaxht.Edges(1).prepare((3, 3))
        >>> W = jnp.array([[2.0, 1.0, 3.0], [1.0, 2.0, 0.5], [3.0, 0.5, 2.0]])
        >>> constraint.project(W)[0].tolist()
        [[2.0, 0.0, 3.0], [0.0, 2.0, 0.0], [3.0, 0.0, 2.0]]
    """

    k: Numeric = integer(default=None)
    k_max: int | None = static(default=None)
    keep: Array | None = None

    is_graph = True

    def prepare(self, shape: tuple[int, ...]) -> "Edges":
        """Fill in k_max, and check what is known at trace time."""
        if len(shape) != 2 or shape[0] != shape[1]:
            raise ValueError(
                f"Edges constrains square matrices; the objective's variable has shape {shape}"
            )
        num_edges = self.num_items(shape)
        if num_edges == 0:
            raise ValueError(f"Edges needs at least two nodes; the variable has shape {shape}")
        k_max = check_sparsity(
            self.k,
            self.k_max,
            num_edges,
            self.keep,
            shape,
            count="the number of edges p (p - 1) / 2",
            items="edges",
            count_kept=lambda keep: int(np.count_nonzero(_upper(keep | keep.T))),
        )
        prepared = replace(self, k_max=k_max)
        is_known = all(known_values(v) is not None for v in (self.k, self.keep))
        return prepared if is_known else prepared.with_k(self.k)

    def with_k(self, k: Numeric) -> "Edges":
        """This constraint, prepared, with another k; of more edges in ``keep`` than that, the first
        stay."""
        changed = replace(self, k=k)
        if self.keep is None:
            return changed
        first = _entries(changed.first_always_active(), self.k_max)
        return replace(changed, keep=self.keep & first.mask)

    def num_items(self, shape: tuple[int, ...]) -> int:
        """The number of edges, ``p (p - 1) / 2``."""
        return shape[0] * (shape[0] - 1) // 2

    def support_size(self, shape: tuple[int, ...]) -> int | None:
        """The diagonal, and two entries for each of k_max edges."""
        return _size_max(shape[0], self.k_max)

    def project(self, z: Array, near: Array | None = None) -> tuple[Array, Support]:
        """The nearest point of C, and its support: the diagonal, and two entries for each of the k
        selected edges."""
        return super().project(z / 2 + z.T / 2)

    def ranks(self, z: Array) -> Array:
        """The entries above the diagonal of the symmetric part of z."""
        return super().ranks(z / 2 + z.T / 2)

    def top_k(self, direction: Array, size: Numeric, size_max: int | None) -> Support:
        """The edges of the largest entries of ``direction``; ``size`` counts edges."""
        return _entries(k_largest_mask(self.scores(direction), size), size_max)

    @property
    def always_active(self) -> Array:
        """The edges of ``keep``."""
        if self.keep is None:
            return jnp.zeros((), bool)
        return _upper(self.keep | self.keep.T)

    def active(self, x: Array) -> Array:
        """The edges of x, and those of ``keep``: bool (p (p - 1) / 2,)."""
        return _upper(x != 0) | self.always_active

    def scores(self, v: Array) -> Array:
        """``|v_ij|`` above the diagonal."""
        return jnp.abs(_upper(v))

    def support(self, selected: Array) -> Support:
        """The diagonal, and the entries of the selected edges."""
        return _entries(selected, self.k_max)


def _upper(v: Array) -> Array:
    """The entries above the diagonal, by row."""
    return v[np.triu_indices(v.shape[0], 1)]


def _entries(edges: Array, k_max: int | None) -> Support:
    """The diagonal, and the entries of the edges, of which there are at most k_max."""
    p = (1 + math.isqrt(1 + 8 * edges.size)) // 2
    upper = jnp.zeros((p, p), bool).at[np.triu_indices(p, 1)].set(edges)
    mask = upper | upper.T | jnp.eye(p, dtype=bool)
    return Support(mask, k_max=_size_max(p, k_max), ndim=2)


def _size_max(p: int, k_max: int | None) -> int | None:
    """How many entries the support of k_max edges has."""
    return None if k_max is None else min(p + 2 * k_max, p * p)
