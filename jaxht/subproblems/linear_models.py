"""Linear models on some of their columns, their weights, and the smoothed hinge."""

import math

import jax
import jax.numpy as jnp

from jaxht._typing import Array, Numeric
from jaxht.linalg.full_precision import machine_eps
from jaxht.linalg.products import apply_weights
from jaxht.objectives.glm import SmoothedHinge
from jaxht.objectives.linear_model import LinearModel


def smooth_hinge(objective: LinearModel, gamma: Numeric) -> LinearModel:
    """A :class:`jaxht.Hinge` with its loss smoothed: below it by gamma/2 at most."""
    f = objective
    return SmoothedHinge(f.A, f.y, f.l2, gamma, mean=f.mean, weights=f.weights, offset=f.offset)


def least_gamma(objective: LinearModel) -> float:
    """The gamma of the smoothed hinge that a refit of the hinge minimises in the end."""
    return math.sqrt(machine_eps(objective))


def gather_column(objective: LinearModel, i: Array) -> Array:
    """Column i of the design, (n,); 0 for i = d."""
    A = objective.design
    if A.dense_array is not None:
        return A.columns(i[None])[0]
    # For a single column of a sparse design a product is faster.
    return A.matvec(jax.nn.one_hot(i, A.shape[1], dtype=objective.dtype))


def weight_by(objective: LinearModel, v: Array) -> Array:
    """``S v``, for v (n,)."""
    weights = objective.weights
    return v if weights is None else apply_weights(weights, v)


def ridge_per_sample(
    objective: LinearModel, shape: tuple[int, ...], ridge: Array | None = None
) -> Array:
    """``(l2 + ridge) / c``, of a given shape: the ridge for a sum of squares without the factor
    c."""
    penalty = objective.penalty if ridge is None else objective.penalty + ridge
    return jnp.broadcast_to(penalty / objective.normalise(jnp.ones((), penalty.dtype)), shape)
