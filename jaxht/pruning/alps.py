"""ALPS: the alternating direction method of multipliers, then conjugate gradients on the support."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxht._checks import known_values
from jaxht._dataclass import integer, pytree
from jaxht._loops import cond, while_loop
from jaxht._programs import bounded_jit
from jaxht._typing import Array, Leaf, Numeric
from jaxht.linalg.full_precision import matmul
from jaxht.linalg.linear_solvers import conjugate_gradients
from jaxht.pruning.layer import Layer

# The penalty and the support are looked at every so many steps.
UPDATE_EVERY = 3
# By how much the penalty grows where at least this share of the support has changed.
GROWTH = ((0.1, 1.3), (0.005, 1.2))
LEAST_GROWTH = 1.1
# After so many steps the run ends where less than this share of the support has changed.
SETTLED_AFTER = 30
SETTLED_SHARE = 3e-4
# A penalty at which nothing changes from the start is divided by this.
REDUCTION = 5.0
MAX_PENALTY = 1e6
REFINEMENTS_A_STEP = 10


class _ALPSState(NamedTuple):
    """Steps of the method of multipliers.

    Attributes:
        count: int32, steps taken.
        running: bool.
        has_moved: bool, whether the support has changed at any penalty.
        B: weights that fit, (inputs, outputs).
        D: weights that are sparse.
        V: multipliers.
        penalty: rho.
        inverse: ``(G + rho I)^-1``.
        last: the mask of D when it was looked at last.
    """

    count: Leaf
    running: Leaf
    has_moved: Leaf
    B: Leaf
    D: Leaf
    V: Leaf
    penalty: Leaf
    inverse: Leaf
    last: Leaf


@pytree
class ALPS:
    r"""The alternating direction method of multipliers on the support, then conjugate gradients.

    With inputs of unit norm, and the penalty rho, a step is

    .. math::
        B \leftarrow (G + \rho I)^{-1} (G W_0 - V + \rho D), \quad
        D \leftarrow H_k(B + V / \rho), \quad V \leftarrow V + \rho (B - D).

    Every third step rho is multiplied by 1.3, 1.2 or 1.1, where at least 10 %, at least 0.5 % or
    less of the support has changed. One eigendecomposition in double precision serves every rho.
    Then ten steps of conjugate gradients minimise the error on the support of B.

    Args:
        damping: what is added to the diagonal of G, relative to its mean, traced.
        penalty: the first rho, traced.
        max_steps: an integer, traced.

    Cost: ``2 d^2 c`` a step, for d inputs and c outputs, of some 50 to 100 steps; an
    eigendecomposition on the host.

    Source: Meng, Behdin, Wang & Mazumder 2024, Algorithms 1 and 2; the constants, and the rules
    where the support does not change, are those of the authors' program.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import pruning
        >>> W, G = jnp.array([[1.0], [3.0]]), jnp.array([[1.0, 0.5], [0.5, 1.0]])
        >>> pruned = pruning.prune_layer(W, G, 1, method=pruning.ALPS(damping=0.0))
        >>> [round(float(w), 3) for w in pruned.weights.ravel()]
        [0.0, 3.5]
    """

    damping: Numeric = 0.01
    penalty: Numeric = 0.1
    max_steps: Numeric = integer(default=300)

    def prune(self, layer: Layer) -> tuple[Array, Array]:
        """The weights after conjugate gradients, and their mask."""
        layer.check_on_host("ALPS")
        known = known_values(self.penalty)
        if known is not None and not np.all(known > 0):
            raise ValueError(f"ALPS.penalty must be above 0; got {self.penalty}")
        scaled, norms = layer.damped(self.damping).scaled()
        values, vectors = _eigh_in_double(scaled.gram)
        mask, start = _find_support(scaled, self, values, vectors)
        found = refine(scaled, mask, start, REFINEMENTS_A_STEP)
        return found / norms, mask


@bounded_jit
def _find_support(layer: Layer, method: ALPS, values: Array, vectors: Array) -> tuple[Array, Array]:
    """The mask of the largest entries of B, and B there."""
    steps = _ALPSSteps.of(layer, values, vectors)

    def goes_on(state):
        return state.running & (state.count < method.max_steps)

    penalty = jnp.asarray(method.penalty, layer.gram.dtype)
    end = while_loop(goes_on, steps.step, steps.start(penalty))
    mask = layer.select(end.B)
    return mask, jnp.where(mask, end.B, 0)


class _ALPSSteps(NamedTuple):
    """The steps for a layer.

    Attributes:
        layer: damped and scaled.
        values: the eigenvalues of its Gram matrix.
        vectors: their eigenvectors.
        products: G W.
        first: the mask of the largest weights.
        total: how many they are.
    """

    layer: Layer
    values: Array
    vectors: Array
    products: Array
    first: Array
    total: Array

    @classmethod
    def of(cls, layer: Layer, values: Array, vectors: Array) -> "_ALPSSteps":
        """The steps from the dense weights."""
        products = matmul(layer.gram, layer.weights)
        first = layer.select(layer.weights)
        return cls(layer, values, vectors, products, first, jnp.sum(first))

    def start(self, penalty: Array) -> _ALPSState:
        """Before the first step."""
        dense = self.layer.weights
        return _ALPSState(
            count=jnp.zeros((), jnp.int32),
            running=jnp.array(True),
            has_moved=jnp.array(False),
            B=dense,
            D=jnp.where(self.first, dense, 0),
            V=jnp.zeros_like(dense),
            penalty=penalty,
            inverse=self.invert(penalty),
            last=self.first,
        )

    def step(self, state: _ALPSState) -> _ALPSState:
        """Minimise over B, select D, and update the multipliers."""
        rho = state.penalty
        B = matmul(state.inverse, self.products - state.V + rho * state.D)
        target = B + state.V / rho
        mask = self.layer.select(target)
        D = jnp.where(mask, target, 0)
        V = state.V + rho * (B - D)
        count = state.count + 1
        state = state._replace(count=count, B=B, D=D, V=V)
        return cond(count % UPDATE_EVERY == 0, self.update, lambda state: state, state)

    def update(self, state: _ALPSState) -> _ALPSState:
        """Raise the penalty by how much of the support has changed, and end where little has."""
        mask = state.D != 0
        change = jnp.sum(mask != state.last) / self.total
        stays = change == 0
        growth: Any = LEAST_GROWTH
        for share, factor in reversed(GROWTH):
            growth = jnp.where(change > share, factor, growth)
        is_large = change > GROWTH[-1][0]
        has_moved = state.has_moved | is_large
        growth = jnp.where(has_moved, growth, 1 / REDUCTION)
        # At the first penalty that moves nothing much, it is smaller from the start again.
        restarts = ~has_moved & ~stays
        is_settled = (state.count > SETTLED_AFTER) & (change < SETTLED_SHARE)
        penalty = jnp.minimum(state.penalty * growth, MAX_PENALTY)
        again = self.start(penalty)
        return state._replace(
            running=~(stays & has_moved) & ~is_settled,
            has_moved=has_moved,
            B=jnp.where(restarts, again.B, state.B),
            D=jnp.where(restarts, again.D, state.D),
            V=jnp.where(restarts, again.V, state.V),
            penalty=penalty,
            inverse=again.inverse,
            last=mask,
        )

    def invert(self, penalty: Array) -> Array:
        """``(G + penalty I)^-1``."""
        return matmul(self.vectors / (self.values + penalty), self.vectors.T)


@bounded_jit
def refine(layer: Layer, mask: Array, start: Array, num_steps: Numeric) -> Array:
    """Conjugate gradients on the entries of a mask, for all outputs side by side.

    Cost: ``d^2 c`` a step.
    """
    gram = layer.gram

    def correct(mask: Array, residual: Array) -> Array:
        def product(v):
            return jnp.where(mask, matmul(gram, v), 0)

        return conjugate_gradients(product, residual, rtol=0.0, max_steps=num_steps)

    residual = jnp.where(mask, matmul(gram, layer.weights - start), 0)
    return start + jax.vmap(correct, in_axes=1, out_axes=1)(mask, residual)


def _eigh_in_double(gram: Array) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors, computed in double precision on the host."""
    values, vectors = np.linalg.eigh(np.asarray(gram, np.float64))
    values = np.maximum(values, 0)
    return jnp.asarray(values, gram.dtype), jnp.asarray(vectors, gram.dtype)
