r"""How much is kept, in the course of training and layer by layer: schedules and budgets.

A schedule gives the fraction kept, 1 less the sparsity, for a step counted from 0; a budget divides a fraction of all
entries among the arrays. Both are what :func:`jaxht.transforms.hard_threshold` takes for k, and they compose::

    density = cubic(0.05, end=10_000)
    hard_threshold(lambda step: erdos_renyi_kernel(params, density(step)))

Numbers may be traced. ``optax`` schedules of the fraction kept will do as well.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from chex import Array, ArrayTree, Numeric

from jaxht.transforms.base import Schedule


def constant(density: Numeric) -> Schedule:
    """The same fraction in every step."""
    return lambda step: density


def one_shot(density: Numeric, at: Numeric) -> Schedule:
    """Everything before step ``at``, then the given fraction."""
    return lambda step: jnp.where(jnp.asarray(step) >= at, density, 1.0)


def cubic(density: Numeric, *, end: Numeric, begin: Numeric = 0, initial: Numeric = 1.0) -> Schedule:
    r"""From ``initial`` at step ``begin`` to ``density`` at step ``end``, quickly at first and slowly in the end.

    .. math:: \rho_t = \rho_f + (\rho_i - \rho_f) \left(1 - \frac{t - t_0}{t_1 - t_0}\right)^3

    Source: Zhu & Gupta 2017, (1), where it is written for the sparsity, 1 less this.
    """
    return lambda step: density + (initial - density) * (1 - _progress(step, begin, end)) ** 3


def exponential(density: Numeric, *, end: Numeric, begin: Numeric = 0, initial: Numeric = 1.0) -> Schedule:
    r"""From ``initial`` at step ``begin`` to ``density > 0`` at step ``end``, by the same factor in each step.

    .. math:: \rho_t = \rho_i^{1 - s} \rho_f^s, \qquad s = \frac{t - t_0}{t_1 - t_0}
    """

    def schedule(step: Numeric) -> Array:
        progress = _progress(step, begin, end)
        # A product of powers, which is exact at both ends; a power of the quotient is not.
        return jnp.power(initial, 1 - progress) * jnp.power(density, progress)

    return schedule


def _progress(step: Numeric, begin: Numeric, end: Numeric) -> Array:
    """0 before ``begin``, 1 from ``end`` on, linear between."""
    since, whole = jnp.asarray(step) - begin, jnp.asarray(end) - begin
    return jnp.where(since >= whole, 1.0, jnp.clip(since / jnp.maximum(whole, 1), 0, 1))


def uniform(params: ArrayTree, density: Numeric) -> ArrayTree:
    """The same fraction of every array: a pytree like ``params`` of ``density``."""
    return jax.tree.map(lambda p: density, params)


def erdos_renyi_kernel(params: ArrayTree, density: Numeric) -> ArrayTree:
    r"""Fractions by the Erdős-Rényi-kernel rule: small layers are kept denser than large ones.

    .. math:: \rho_l = \min\Bigl(1, \varepsilon\, \frac{\sum_i n^l_i}{\prod_i n^l_i}\Bigr), \qquad
              \sum_l \rho_l \prod_i n^l_i = \rho \sum_l \prod_i n^l_i

    over the lengths n of all axes of an array; epsilon is what makes the total right.

    Args:
        params: pytree of arrays (or shapes: anything with ``shape``); arrays with fewer than two axes are kept whole
            and not counted.
        density: rho, the fraction of the entries of all counted arrays together, in [0, 1], traced or not.

    Returns:
        Pytree like ``params`` of fractions; the numbers of entries they make add up to the total's within half an
        entry an array.

    Cost: for L arrays, L numbers.

    Source: Evci et al. 2020 (RigL), §3 (1), after Mocanu et al. 2018.
    """
    leaves, structure = jax.tree.flatten(params)
    counted = [i for i, p in enumerate(leaves) if len(p.shape) >= 2 and math.prod(p.shape)]
    sizes = np.array([math.prod(leaves[i].shape) for i in counted], np.float64)
    scores = np.array([sum(leaves[i].shape) for i in counted]) / sizes
    fractions: list[Any] = [1.0] * len(leaves)
    if counted:
        # With the m arrays of highest score kept whole, epsilon is what the rest shares; right is the first m at
        # which the next array is not overfull.
        order = np.argsort(-scores, kind="stable")
        whole = np.concatenate([[0], np.cumsum(sizes[order])[:-1]])
        shared = np.cumsum((scores * sizes)[order][::-1])[::-1]
        module: Any = np if isinstance(density, int | float | np.number) else jnp
        epsilons = (density * sizes.sum() - whole) / shared
        fits = epsilons * scores[order] <= 1
        epsilon = module.where(module.any(fits), epsilons[module.argmax(fits)], module.inf)
        for i, score in zip(counted, scores, strict=True):
            fractions[i] = module.clip(epsilon * score, 0, 1)
            fractions[i] = float(fractions[i]) if module is np else fractions[i]
    return jax.tree.unflatten(structure, fractions)
