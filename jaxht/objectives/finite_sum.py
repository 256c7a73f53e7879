"""A mean over samples of any differentiable function."""

from collections.abc import Callable
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxht._checks import check_array, known_values, warn_of_rounding
from jaxht._dataclass import mixed, pytree, replace
from jaxht._typing import Array, ArrayTree
from jaxht.linalg.eigenvalues import SAFETY, largest_eigenvalue
from jaxht.linalg.inner_products import check_real
from jaxht.linalg.products import apply_weights
from jaxht.objectives.custom import Custom
from jaxht.objectives.objective import SumOverSamples

__all__ = ["FiniteSum"]


SUMMANDS_AT_A_TIME = 64  # whose smoothness is estimated together


@pytree
class FiniteSum(Custom, SumOverSamples):
    """``f(x) = (1/n) sum_i fun(x, sample_i, *args)``: the mean loss of a network, or a likelihood
    of independent data.

    The derivatives of its losses are whole gradients: :class:`jaxht.HTSAGA` keeps a table of n d
    numbers.

    Args:
        fun: a function of x, one sample and args that returns a real scalar, static. Defined once,
            it compiles once.
        samples: a pytree of arrays that have the n samples along their first axes, traced.
        args: arrays and numbers that are passed to ``fun``, traced; floats are cast to the
            variable's dtype, everything else is passed as it is.
        like: keyword, the shape and dtype of x: a Python int d for a vector, or an array or
            ``jax.ShapeDtypeStruct``, or a pytree of them; see :class:`jaxht.Custom`.
        weights: (n,), weights of the summands in place of 1/n, traced; or None.

    Raises:
        ValueError: from :meth:`prepare`, which every solver calls, unless the samples are arrays of
            one length, and ``fun`` maps x and a sample to a real scalar.

    Cost: a value or gradient is n times that of ``fun``.

    Source: Shen & Li 2018, (3.6) for the sum; general functions are not in the papers.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.FiniteSum(lambda x, y: jnp.sum((x - y) ** 2), jnp.ones((4, 2)), like=2)
        >>> f.num_samples, float(f.value(jnp.zeros(2), jnp.zeros(2)))
        (4, 2.0)
    """

    samples: ArrayTree = mixed(default=None)
    weights: Array | None = None

    def __init__(
        self,
        fun: Callable[..., Array],
        samples: ArrayTree,
        *positional: Any,
        args: tuple[Any, ...] = (),
        like: Any,
        weights: Array | None = None,
    ) -> None:
        super().__init__(fun, *positional, args=args, like=like)
        object.__setattr__(self, "samples", samples)
        object.__setattr__(self, "weights", weights)

    @property
    def num_samples(self) -> int:
        """n."""
        return np.shape(jax.tree.leaves(self.samples)[0])[0]

    def prepare(self) -> Self:
        """This objective.

        Raises:
            ValueError: unless samples are arrays of one length, and ``fun`` maps each of them to a
            real scalar.
        """
        check_real(self)
        warn_of_rounding(self.samples)
        shapes = [np.shape(leaf) for leaf in jax.tree.leaves(self.samples)]
        if len({shape[:1] for shape in shapes}) != 1 or not shapes[0] or not shapes[0][0]:
            raise ValueError(
                f"samples must be arrays of the same first length n >= 1; got shapes {shapes}"
            )
        if self.weights is not None:
            shape = (self.num_samples,)
            check_array("weights", self.weights, f"an array of shape {shape}")
            if self.weights.shape != shape:
                raise ValueError(f"weights must have shape {shape}; got {self.weights.shape}")
        prepared = super().prepare()
        return replace(prepared, samples=_fill_absent(prepared.samples, prepared.weights))

    def minibatch(self, indices: Array, weights: Array) -> "FiniteSum":
        """The objective ``sum_j weights_j f_{i_j}``."""

        def take(v):
            return jnp.take(v, indices, axis=0, mode="clip")

        if self.weights is not None:
            weights = self.num_samples * take(self.weights) * weights
        return replace(self, samples=jax.tree.map(take, self.samples), weights=weights)

    def minibatch_pred(self, pred: Array, indices: Array) -> Array:
        """pred, which is x."""
        return pred

    def loss_derivatives(self, x: Array, pred: Array) -> Array:
        """The gradients of the summands, each with its weight: (n, *x.shape)."""
        gradients = jax.vmap(jax.grad(self._one), (None, 0))(x, self.samples)
        return apply_weights(self._weights().reshape(-1, *[1] * x.ndim), gradients)

    def gradient_from(self, derivatives: Array, x: Array) -> Array:
        """The sum of the derivatives."""
        return jnp.sum(derivatives, axis=0)

    def sample_smoothness(self) -> Array:
        """The largest eigenvalue of any summand's Hessian at 0. Cost: some products with each."""
        origin = jnp.zeros(self.shape, self.dtype)

        def smoothness(sample):
            product = jax.linearize(lambda x: jax.grad(self._one)(x, sample), origin)[1]
            return largest_eigenvalue(
                lambda v: product(v.reshape(self.shape)).ravel(), origin.size, self.dtype
            )

        largest = lax.map(smoothness, self.samples, batch_size=SUMMANDS_AT_A_TIME)
        return SAFETY * self.num_samples * jnp.max(apply_weights(self._weights(), largest))

    def _output(self, x: jax.ShapeDtypeStruct) -> Any:
        sample = jax.tree.map(lambda leaf: leaf[0], self.samples)
        return jax.eval_shape(lambda x: self.fun(self.unravel(x), sample, *self.args), x)

    def _one(self, x: Array, sample: ArrayTree) -> Array:
        return self.fun(self.unravel(x), sample, *self.args).astype(self.dtype)

    def _at(self, x: Array) -> Array:
        values = jax.vmap(self._one, (None, 0))(x, self.samples)
        return jnp.sum(apply_weights(self._weights(), values))

    def _weights(self) -> Array:
        n = self.num_samples
        return jnp.full(n, 1 / n, self.dtype) if self.weights is None else self.weights


def _fill_absent(samples: ArrayTree, weights: Array | None) -> ArrayTree:
    """The samples, with one of weight in place of those of weight 0, whose derivatives may be
    NaN."""
    known = known_values(weights)
    if weights is None or (known is not None and np.all(known != 0)):
        return samples
    weights = jnp.asarray(weights)
    is_present = weights != 0
    other = jnp.argmax(weights)

    def fill(leaf):
        leaf = jnp.asarray(leaf)
        mask = is_present.reshape(-1, *[1] * (leaf.ndim - 1))
        return jnp.where(mask, leaf, leaf[other])

    return jax.tree.map(fill, samples)
