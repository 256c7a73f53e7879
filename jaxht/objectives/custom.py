"""Any differentiable function as an objective."""

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from jaxht._checks import warn_of_rounding
from jaxht._dataclass import mixed, pytree, replace, static
from jaxht._snapshot import Snapshot
from jaxht._typing import Array, ArrayDType, ArrayTree, Numeric
from jaxht.linalg.inner_products import real_dtype, real_vdot
from jaxht.linalg.normal_equations import ratio
from jaxht.linalg.operators import SymmetricOperator
from jaxht.objectives.objective import Objective, float_dtype

__all__ = ["Custom"]


class Template(NamedTuple):
    """The structure, shapes and dtypes of a pytree, hashable."""

    structure: Any
    leaves: tuple[jax.ShapeDtypeStruct, ...]


def _template(like: Any) -> Template:
    if isinstance(like, Template):
        return like
    if isinstance(like, int | np.integer):
        like = jax.ShapeDtypeStruct((like,), jnp.result_type(float))
    warn_of_rounding(like)
    leaves, structure = jax.tree.flatten(like)
    shapes = [jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves]
    return Template(structure, tuple(shapes))


@pytree
class Custom(Objective):
    """A JAX function ``fun(x, *args)``, twice differentiable: a likelihood, a physical model, a
    network.

    Automatic step sizes use the largest eigenvalue of the Hessian at 0, which need not bound it
    elsewhere: a run may end as DIVERGED, while :class:`jaxht.NIHT` adapts its step. Refits on
    supports take truncated Newton steps, which find a stationary point where f is not convex.

    Args:
        fun: a function of x and args that returns a real scalar, static. Every new function object
            is compiled anew: define it once, and pass what changes as args. It is also compiled
            anew where it has other code, or something else stands among the globals and the
            variables around it, its default values, or the arguments of a ``functools.partial``,
            also in tuples, lists and dictionaries of up to 1000 items, and around functions of its
            module that it calls, in loops and jitted ones (of JAX 0.9 on) as well. Numbers,
            texts and arrays of up to 1 MB are compared by value. Of larger arrays and of other
            objects it is seen that another took their place, not that one was changed where it is;
            in a jit of the caller nothing is seen.
        args: arrays and numbers that are passed to ``fun``, traced; floats are cast to the
            variable's dtype, everything else is passed as it is.
        like: keyword, the shape and dtype of x: a Python int d for a vector, or an array or
            ``jax.ShapeDtypeStruct``, or a pytree of them. A pytree is passed to ``fun``, but the
            variable of the problem is the flat vector of all its entries, so that a constraint
            counts all of them; :meth:`unravel` converts a solution back. x may be complex, with
            the gradient of :class:`jaxht.LeastSquares`: JAX's, conjugated.

    Raises:
        ValueError: from :meth:`prepare`, which every solver calls, unless ``fun`` maps such an x to
        a real scalar.

    Cost: a gradient is a few evaluations of ``fun``, a product with the Hessian a few gradients.

    Source: not in the papers; its refits are those of :mod:`jaxht.subproblems.by_products`.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.Custom(lambda x, y: jnp.sum((x - y) ** 2), jnp.array([1.0, 3.0, 2.0]), like=3)
        >>> [round(float(x_i), 3) for x_i in jaxht.solve(f, jaxht.Sparse(1), jaxht.HTP()).x]
        [0.0, 3.0, 0.0]
    """

    fun: Callable[..., Array] = static()
    args: tuple[Any, ...] = mixed(default=())
    like: Any = static(default=None)

    def __init__(
        self, fun: Callable[..., Array], *positional: Any, args: tuple[Any, ...] = (), like: Any
    ) -> None:
        object.__setattr__(self, "fun", fun)
        object.__setattr__(self, "args", positional or args)
        object.__setattr__(self, "like", _template(like))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of x: (d,) for a pytree."""
        if jax.tree_util.treedef_is_leaf(self.like.structure):
            return self.like.leaves[0].shape
        return (sum(leaf.size for leaf in self.like.leaves),)

    @property
    def dtype(self) -> ArrayDType:
        """The widest dtype of x, or the default float for integers."""
        return float_dtype(jnp.result_type(*(leaf.dtype for leaf in self.like.leaves)))

    @property
    def real_dtype(self) -> ArrayDType:
        """The dtype of values."""
        return real_dtype(self)

    def unravel(self, x: Array) -> ArrayTree:
        """x in the structure that ``fun`` takes."""
        if jax.tree_util.treedef_is_leaf(self.like.structure):
            return x
        zeros = [jnp.zeros(leaf.shape, x.dtype) for leaf in self.like.leaves]
        return ravel_pytree(jax.tree.unflatten(self.like.structure, zeros))[1](x)

    def prepare(self) -> Self:
        """This objective, with what ``fun`` refers to as it is now.

        Raises:
            ValueError: unless ``fun`` maps such an x to a real scalar.
        """
        warn_of_rounding(self.args)
        if not callable(self.fun):
            raise ValueError(f"fun must be a function of x; got {type(self.fun).__name__}")
        if not self.like.leaves or self.real_dtype not in (jnp.float32, jnp.float64):
            raise ValueError(
                "like must describe arrays of float32, float64 or their complex numbers; got "
                f"{self.like.leaves}"
            )
        out = self._output(jax.ShapeDtypeStruct(self.shape, self.dtype))
        is_scalar = isinstance(out, jax.ShapeDtypeStruct) and out.shape == ()
        if not is_scalar or not jnp.issubdtype(out.dtype, jnp.floating):
            raise ValueError(f"fun must return a real scalar; got {out}")
        return replace(self, fun=Snapshot.take(self.fun))

    def value(self, x: Array, pred: Array) -> Array:
        """f(x)."""
        return self._at(x).astype(self.real_dtype)

    def gradient(self, x: Array, pred: Array) -> Array:
        """The gradient by automatic differentiation."""
        gradient = jax.grad(self._at)(x)
        return gradient.conj()

    def hessian(self, x: Array, pred: Array, tau: Numeric = 0.0) -> SymmetricOperator:
        """``H + tau s``, s the curvature along the gradient, in place of an upper bound."""
        gradient, product = jax.linearize(lambda x: self.gradient(x, x), x)
        if isinstance(tau, float) and tau == 0:
            return SymmetricOperator(product, self.shape, self.dtype)
        curvature = jnp.abs(real_vdot(gradient, product(gradient)))
        scale = ratio(curvature, real_vdot(gradient, gradient))
        return SymmetricOperator(lambda v: product(v) + tau * scale * v, self.shape, self.dtype)

    def majorant(self) -> SymmetricOperator:
        """The Hessian at 0, which need not bound that at other points."""
        zeros = jnp.zeros(self.shape, self.dtype)
        return self.hessian(zeros, zeros)

    def _output(self, x: jax.ShapeDtypeStruct) -> Any:
        """The shape and dtype of what ``fun`` returns."""
        return jax.eval_shape(lambda x: self.fun(self.unravel(x), *self.args), x)

    def _at(self, x: Array) -> Array:
        return self.fun(self.unravel(x), *self.args)
