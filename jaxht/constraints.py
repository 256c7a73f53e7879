"""The sets C over which objectives are minimised, as projections with a region to minimise on."""

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from chex import Array, Numeric

from jaxht.selection import k_largest_mask
from jaxht.support import Support
from jaxht.tree import integer, pytree, static


class Constraint(Protocol):
    """What a solver may ask of a constraint."""

    def prepared(self, shape: tuple[int, ...]) -> "Constraint":
        """This constraint with its static bounds settled, for variables of ``shape``; ValueError if it cannot hold."""
        ...

    def project(self, z: Array) -> tuple[Array, Any]:
        """The nearest point of C to ``z``, and the region of C (a subspace) on which it lies."""
        ...

    def region(self, x: Array) -> Any:
        """The smallest region that holds the feasible point ``x``."""
        ...


@pytree
class Sparse:
    """At most k nonzero entries: ``C = { x in R^d : ||x||_0 <= k }``.

    Args:
        k: number of entries that may be nonzero. A Python int alone is static: one compile for each k. With ``k_max``
            it is traced, may differ by lane under vmap, and one compile serves all k <= k_max.
        k_max: static upper bound on k. Solvers that gather columns (HTP) need it wherever k is traced; the others
            then run without it, and ``result.support.indices`` is None. A traced k beyond it counts as k_max.
        keep: bool (d,), coordinates that are always in the support (an intercept) and count towards k; None for none.
            More than k of them are an error, or, where k or keep is traced, only the first k are kept.

    Source: Shen & Li 2018, (3.1); ``keep`` is the bias term of Axiotis & Sviridenko 2020, §5.
    """

    k: Numeric = integer()
    k_max: int | None = static(default=None)
    keep: Array | None = None

    def prepared(self, shape: tuple[int, ...]) -> "Sparse":
        """Settle k_max, and check what is known at trace time."""
        if len(shape) != 1:
            raise ValueError(f"Sparse constrains vectors; the objective's variable has shape {shape}")
        (d,) = shape
        k, k_max = self.k, self.k_max
        if not jnp.issubdtype(jnp.result_type(k), jnp.integer):
            raise ValueError(f"k must be an integer; got {k!r}")
        if jnp.ndim(k):
            raise ValueError(f"k must be a scalar; got shape {jnp.shape(k)}: use jax.vmap for a grid of k")
        if k_max is not None and not (isinstance(k_max, int | np.integer) and 0 <= k_max <= d):
            raise ValueError(f"k_max must be a Python int between 0 and d = {d}; got {k_max!r}")
        bound = d if k_max is None else k_max
        known = isinstance(k, int | np.integer | np.ndarray)
        if known and not 0 <= k <= bound:
            raise ValueError(f"k must lie between 0 and {'d' if k_max is None else 'k_max'} = {bound}; got {k}")
        if self.keep is not None and (jnp.shape(self.keep) != shape or jnp.result_type(self.keep) != jnp.bool_):
            raise ValueError(
                f"keep must be a boolean mask of shape {shape}; "
                f"got dtype {jnp.result_type(self.keep)} and shape {jnp.shape(self.keep)}"
            )
        if self.keep is not None and not isinstance(self.keep, jax.core.Tracer):
            num_kept, most = np.count_nonzero(np.asarray(self.keep)), k if known else bound
            if num_kept > most:
                raise ValueError(
                    f"keep must mark at most {'k' if known else 'k_max'} = {most} coordinates; got {num_kept}"
                )
        if k_max is None and isinstance(k, int | np.integer):
            k_max = int(k)
        return Sparse(k, k_max, self.keep)

    def project(self, z: Array) -> tuple[Array, Support]:
        """``H_k(z)`` and its support, which has exactly k coordinates; kept ones rank above all others."""
        ranked = z if self.keep is None else jnp.where(self.keep, jnp.inf, z)
        k = self.k if self.k_max is None else jnp.minimum(self.k, self.k_max)
        mask = k_largest_mask(ranked, k)
        return jnp.where(mask, z, 0), Support(mask, k_max=self.k_max)

    def region(self, x: Array) -> Support:
        """``supp(x)``."""
        return Support(x != 0, k_max=self.k_max)
