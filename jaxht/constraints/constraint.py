"""What a solver may ask of a constraint, and what constraints have in common."""

from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from chex import Array, ArrayDType, Numeric

from jaxht.objectives.objective import Objective


class Constraint(Protocol):
    """What a solver may ask of a constraint.

    Its points have at most k nonzero *atoms*: coordinates, or groups of them. A choice of atoms is a bool array, one
    entry an atom, shaped as the constraint likes.
    """

    #: By how many units in its last place an x at rest may move in a step, since its projection rounds.
    rounding: ClassVar[float]

    def prepare(self, shape: tuple[int, ...]) -> "Constraint":
        """This constraint with its static bounds settled, for variables of ``shape``; ValueError if it cannot hold."""
        ...

    def project(self, z: Array, near: Array | None = None) -> tuple[Array, Any]:
        """The nearest point of C to ``z``, and the region of C (a subspace) on which it lies.

        ``near`` is a point of C in whose vicinity z is, if one is known: an iterative projection starts there.
        """
        ...

    def zeros(self, shape: tuple[int, ...], dtype: ArrayDType) -> Any:
        """The point 0, held as ``project`` holds points."""
        return jnp.zeros(shape, dtype)

    def support_of(self, x: Array) -> Any:
        """The smallest region that holds the feasible point ``x``."""
        ...

    def top_k(self, direction: Array, size: Numeric, size_max: int | None) -> Any:
        """The region of the given size along which ``direction`` is longest; size_max is a static bound on it."""
        ...

    def smoothness(self, objective: Objective) -> Array:
        """An upper estimate of the curvature of f along an atom: M_1, of coordinates."""
        return objective.coordinate_smoothness()

    @property
    def limit(self) -> Numeric:
        """How many atoms may be nonzero: k, at most k_max."""
        own: Any = self  # k and k_max are fields
        return own.k if own.k_max is None else jnp.minimum(own.k, own.k_max)

    @property
    def kept(self) -> Array:
        """The atoms that are always chosen, or a scalar False."""
        ...

    def active(self, x: Array) -> Array:
        """The atoms that the feasible point x touches, and those that are always kept."""
        ...

    def scores(self, v: Array) -> Array:
        """The length of v along each atom."""
        ...

    def feasible_direction(self, direction: Array) -> Array:
        """The direction without the entries that point out of C where x is 0."""
        return direction

    def support(self, chosen: Array) -> Any:
        """The region of at most ``limit`` atoms."""
        ...


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
