"""Any differentiable function as an objective."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from chex import Array, ArrayDType, ArrayTree, Numeric
from jax import lax
from jax.flatten_util import ravel_pytree

from jaxht._pytree import mixed, pytree, static
from jaxht.constraints.support import Support
from jaxht.linalg.eigenvalues import SAFETY, largest_eigenvalue
from jaxht.objectives.objective import Objective
from jaxht.refit.newton import Refit, ratio
from jaxht.refit.products import minimise_restricted


class Template(NamedTuple):
    """Structure, shapes and dtypes of a pytree, hashable."""

    structure: Any
    leaves: tuple[jax.ShapeDtypeStruct, ...]


@pytree
class Custom(Objective):
    """A JAX function ``fun(x, *args)``, differentiable twice: a likelihood, a physical model, a network.

    Args:
        fun: static, from x and args to a scalar. Defined once, it compiles once: what changes goes into args.
        args: arrays and numbers that it depends on, traced; floats are cast to the variable's dtype, all else stays
            what it is.
        like: keyword, what x looks like: a Python int d for a vector, or an array or ``jax.ShapeDtypeStruct``, or a
            pytree of them. A pytree is handed to ``fun``, but solved for as the flat vector of all its entries, so that
            a constraint counts them all; :meth:`unravel` turns a result back.

    Automatic step sizes take the largest eigenvalue of the Hessian at 0, which need not bound it elsewhere: a run that
    blows up is DIVERGED, and NIHT adapts its step. Supports are minimised on by truncated Newton steps, which find a
    stationary point where f is not convex.

    Cost: a gradient is a few evaluations of ``fun``, a product with the Hessian a few gradients.
    """

    fun: Callable[..., Array] = static()
    args: tuple[Any, ...] = mixed(default=())
    like: Any = static(default=None)

    def __init__(self, fun: Callable[..., Array], *positional: Any, args: tuple[Any, ...] = (), like: Any) -> None:
        if not isinstance(like, Template):
            like = jax.ShapeDtypeStruct((like,), jnp.result_type(float)) if isinstance(like, int | np.integer) else like
            leaves, structure = jax.tree.flatten(like)
            like = Template(
                structure, tuple(jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
            )
        for name, value in (("fun", fun), ("args", positional or args), ("like", like)):
            object.__setattr__(self, name, value)

    @property
    def shape(self) -> tuple[int, ...]:
        """That of x: (d,) for a pytree."""
        if jax.tree_util.treedef_is_leaf(self.like.structure):
            return self.like.leaves[0].shape
        return (sum(leaf.size for leaf in self.like.leaves),)

    @property
    def dtype(self) -> ArrayDType:
        """The widest of x's, or the default float for integers."""
        dtype = jnp.result_type(*(leaf.dtype for leaf in self.like.leaves))
        return jnp.result_type(float) if jnp.issubdtype(dtype, jnp.integer) else dtype

    @property
    def num_samples(self) -> int:
        """1: nothing is known of summands."""
        return 1

    def unravel(self, x: Array) -> ArrayTree:
        """x as ``fun`` is given it."""
        if jax.tree_util.treedef_is_leaf(self.like.structure):
            return x
        zeros = [jnp.zeros(leaf.shape, x.dtype) for leaf in self.like.leaves]
        return ravel_pytree(jax.tree.unflatten(self.like.structure, zeros))[1](x)

    def prepare(self) -> "Custom":
        """Itself."""
        return self

    def check(self) -> None:
        """Raise ValueError unless ``fun`` maps such an x to a real scalar."""
        if not callable(self.fun):
            raise ValueError(f"fun must be a function of x; got {type(self.fun).__name__}")
        if not self.like.leaves or self.dtype not in (jnp.float32, jnp.float64):
            raise ValueError(f"like must describe arrays of float32 or float64; got {self.like.leaves}")
        out = self._given(jax.ShapeDtypeStruct(self.shape, self.dtype))
        if not isinstance(out, jax.ShapeDtypeStruct) or out.shape != () or not jnp.issubdtype(out.dtype, jnp.floating):
            raise ValueError(f"fun must return a real scalar; got {out}")

    def start(self, constraint: Any) -> Array:
        """Zero."""
        return jnp.zeros(self.shape, self.dtype)

    def predict(self, x: Array) -> Array:
        """x itself."""
        return x

    def value(self, x: Array, pred: Array) -> Array:
        """f(x)."""
        return self._at(x).astype(self.dtype)

    def gradient(self, x: Array, pred: Array) -> Array:
        """By automatic differentiation."""
        return jax.grad(self._at)(x)

    def curvature(self, x: Array, pred: Array, v: Array, image: Array) -> Array:
        """``v' H v``, by forward over reverse differentiation."""
        return jnp.vdot(v, jax.jvp(jax.grad(self._at), (x,), (v,))[1])

    def hessian(self, x: Array, pred: Array, tau: Numeric = 0.0) -> Callable[[Array], Array]:
        """``v -> (H + tau s) v``, s the curvature along the gradient."""
        gradient, product = jax.linearize(jax.grad(self._at), x)
        scale = ratio(jnp.abs(jnp.vdot(gradient, product(gradient))), jnp.vdot(gradient, gradient))
        return lambda v: product(v) + tau * scale * v

    def hessian_diagonal(self, x: Array, pred: Array) -> Array:
        """The diagonal of the Hessian at x. Cost: d products with it."""
        product, index = self.hessian(x, pred), lax.iota(jnp.int32, x.size)

        def entry(i: Array) -> Array:
            unit = (index == i).astype(x.dtype).reshape(x.shape)
            return jnp.vdot(unit, product(unit))

        return lax.map(entry, index, batch_size=BLOCK).reshape(x.shape)

    def majorant(self) -> Callable[[Array], Array]:
        """The Hessian at 0, which need not be one."""
        return jax.linearize(jax.grad(self._at), jnp.zeros(self.shape, self.dtype))[1]

    def preconditioner(self) -> Numeric:
        """1."""
        return 1.0

    def smoothness(self) -> Array:
        """The largest eigenvalue of the Hessian at 0, from :mod:`jaxht.spectral`."""
        product = self.majorant()
        size = math.prod(self.shape)
        return SAFETY * largest_eigenvalue(lambda v: product(v.reshape(self.shape)).ravel(), size, self.dtype)

    def coordinate_smoothness(self) -> Array:
        """:meth:`smoothness`, which bounds it: the diagonal of the Hessian would cost d products."""
        return self.smoothness()

    def minimise(self, region: Support, x: Array, ridge: Array | None = None) -> Refit:
        """:func:`jaxht.refit.products.minimise_restricted`."""
        return minimise_restricted(self, region, x, ridge)

    def _given(self, x: jax.ShapeDtypeStruct) -> Any:
        """What ``fun`` returns."""
        return jax.eval_shape(lambda x: self.fun(self.unravel(x), *self.args), x)

    def _at(self, x: Array) -> Array:
        return self.fun(self.unravel(x), *self.args)


# Products with the Hessian at a time.
BLOCK = 64
