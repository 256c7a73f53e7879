"""Linear models by the name of their loss: a class for each loss of one output, made from the loss
by one line."""

import dataclasses
import inspect
from typing import Any

from jaxht._dataclass import pytree
from jaxht._typing import Numeric
from jaxht.objectives.linear_model import LinearModel
from jaxht.objectives.losses import (
    GammaLoss,
    HingeLoss,
    HuberLoss,
    LogisticLoss,
    PoissonLoss,
    ScalarLoss,
    SmoothedHingeLoss,
    SquaredHingeLoss,
)


def linear_model_with(loss_class: type[ScalarLoss], remark: str = "") -> Any:
    """The class of linear models with a loss, named as the loss without "Loss"; its numbers come
    after A, y and l2.

    Args:
        loss_class: a pytree dataclass; its fields become fields of the model, with their defaults.
        remark: what a user of the model must know, in addition to the docstring of the loss.
    """
    fields = dataclasses.fields(loss_class)  # type: ignore[arg-type]
    name = loss_class.__name__.removesuffix("Loss")

    def loss(self: LinearModel) -> ScalarLoss:
        """The loss of one sample."""
        return loss_class(**{field.name: getattr(self, field.name) for field in fields})

    members = {
        field.name: dataclasses.field(default=field.default, metadata=field.metadata)
        for field in fields
    }
    types = {field.name: Numeric for field in fields}
    namespace = {
        "__annotations__": types,
        "__module__": __name__,
        "__doc__": _document(name, loss_class, remark),
    }
    return pytree(type(name, (LinearModel,), {**namespace, **members, "loss": property(loss)}))


def _document(name: str, loss_class: type[ScalarLoss], remark: str) -> str:
    """The docstring of a model: that of the loss, with the arguments of :class:`LinearModel`."""
    about, _, loss_args = inspect.cleandoc(loss_class.__doc__ or "").partition("Args:\n")
    own, _, rest = loss_args.partition("\n\n")
    source = next(
        (part for part in (rest + "\n\n" + about).split("\n\n") if part.startswith("Source:")), ""
    )
    about = "\n\n".join(
        part for part in about.split("\n\n") if not part.startswith(("Source:", "Example:"))
    )
    return _TEMPLATE.format(
        about=about.strip(), remark=remark, own=own.rstrip(), source=source.strip(), name=name
    )


_TEMPLATE = """{about}

The objective is ``f(x) = c sum_i s_i l(a_i.x; y_i) + 1/2 sum_j l2_j x_j^2``, c = ``1 / sum_i s_i`` where ``mean`` is
set, else 1. {remark}

Args:
    A: (n, d) design, samples in rows, float32 or float64, traced: an array, a sparse matrix, or a result of
        :func:`jaxht.design`. No scaling of columns is assumed.
    y: (n,) targets, traced, cast to the dtype of A.
    l2: ridge parameter lambda >= 0, on the scale of the Hessian, traced: a scalar, or (d,), one for each coordinate.
{own}
    mean: bool, static; whether the sum is divided by the sum of the weights.
    weights: (n,) sample weights s >= 0, traced; None for ones.
    offset: (n,), traced; None for zeros. It is added to the predictions: the loss of sample i is at ``a_i.x +
        offset_i``.

Raises:
    ValueError: from ``prepare``, which every solver calls, for shapes, dtypes and targets that cannot be right.

Cost: a prediction ``A x`` n d; a value, from the prediction, n + d; a gradient n d.

{source}

Example:
    >>> import jax.numpy as jnp, jaxht
    >>> f = jaxht.{name}(jnp.eye(2), jnp.ones(2), 0.1)
    >>> f.gradient(jnp.zeros(2), jnp.zeros(2)).shape
    (2,)
"""

Logistic = linear_model_with(
    LogisticLoss,
    "Without a ridge, data that a k-sparse classifier separates have no minimiser, and iterates grow without end.",
)
SquaredHinge = linear_model_with(SquaredHingeLoss)
SmoothedHinge = linear_model_with(SmoothedHingeLoss)
Hinge = linear_model_with(
    HingeLoss,
    "The hinge has no smoothness: ``gradient`` gives a subgradient, solvers with a step size need it given, and with a "
    "constant one they end within a neighbourhood of a minimum.",
)
Huber = linear_model_with(HuberLoss)
Poisson = linear_model_with(
    PoissonLoss,
    "Its curvature ``exp(u)`` has no bound; automatic step sizes take ``max(1, max y)``, which holds wherever no "
    "predicted mean exceeds it. :class:`jaxht.NIHT`, whose step adapts, needs no bound.",
)
Gamma = linear_model_with(
    GammaLoss,
    "Its curvature ``y exp(-u)`` has no bound; automatic step sizes take ``max(1, max y)``, which holds at x = 0 and "
    "wherever no target exceeds its predicted mean by a larger factor. :class:`jaxht.NIHT`, whose step adapts, needs "
    "no bound. The unit of y is a shift of the predictions: give y a geometric mean of about 1, or an intercept.",
)
