r"""The fraction of entries kept, over the steps and over the arrays: density schedules and
layer-wise budgets.

A schedule gives the density, 1 less the sparsity, for a step counted from 0; a budget divides a
fraction of all entries among the arrays. Both are what :func:`jaxht.transforms.hard_threshold`
takes for k, and they compose::

    density = cubic(0.05, end=10_000)
    hard_threshold(lambda step: erdos_renyi_kernel(params, density(step)))

Numbers may be traced, the numbers of steps too. Any ``optax`` schedule of the density will do as
well.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxht._typing import Array, ArrayTree, Numeric
from jaxht.transforms.base import Schedule


def constant(density: Numeric) -> Schedule:
    """The same density in every step.

    Args:
        density: fraction kept, in [0, 1].

    Returns:
        Schedule: step -> density.

    Source: ``optax.constant_schedule``.

    Example:
        >>> from jaxht import transforms
        >>> transforms.constant(0.1)(7)
        0.1
    """
    return optax.constant_schedule(density)


def one_shot(density: Numeric, at: Numeric) -> Schedule:
    """Everything before step ``at``, then the given density.

    Args:
        density: fraction kept, in [0, 1].
        at: number of the first step with it.

    Returns:
        Schedule: step -> density, a scalar.

    Source: ``optax.join_schedules`` of two constants.

    Example:
        >>> from jaxht import transforms
        >>> schedule = transforms.one_shot(0.25, at=2)
        >>> [float(schedule(step)) for step in range(4)]
        [1.0, 1.0, 0.25, 0.25]
    """
    schedules = [constant(1.0), constant(density)]
    return optax.join_schedules(schedules, [at])


def cubic(
    density: Numeric, *, end: Numeric, begin: Numeric = 0, initial: Numeric = 1.0
) -> Schedule:
    r"""Fall from ``initial`` at step ``begin`` to ``density`` at step ``end``, quickly at first and
    slowly in the end.

    .. math:: \rho_t = \rho_f + (\rho_i - \rho_f) \left(1 - \frac{t - t_0}{t_1 - t_0}\right)^3

    Args:
        density: rho_f, the last fraction kept, in [0, 1].
        end: t_1, the step from which on it is constant.
        begin: t_0, the step up to which it is constant.
        initial: rho_i, the first fraction kept.

    Returns:
        Schedule: step -> density, a scalar; if ``end <= begin``, ``initial`` before
        ``end`` and ``density`` from then on.

    Source: Zhu & Gupta 2017, (1), where it is written for the sparsity, 1 less this;
    ``optax.polynomial_schedule``.

    Example:
        >>> from jaxht import transforms
        >>> schedule = transforms.cubic(0.1, end=10)
        >>> [round(float(schedule(step)), 4) for step in (0, 5, 10, 20)]
        [1.0, 0.2125, 0.1, 0.1]
    """
    # optax wants the number of steps on the host; over the fraction of the way, it may be traced.
    schedule = optax.polynomial_schedule(initial, density, power=3, transition_steps=1)
    return lambda step: schedule(_progress(step, begin, end))


def exponential(
    density: Numeric, *, end: Numeric, begin: Numeric = 0, initial: Numeric = 1.0
) -> Schedule:
    r"""Fall from ``initial`` at step ``begin`` to ``density`` at step ``end``, by the same factor
    in each step.

    .. math:: \rho_t = \rho_i^{1 - s} \rho_f^s, \qquad s = \frac{t - t_0}{t_1 - t_0}

    Args:
        density: rho_f, the last fraction kept, in (0, 1].
        end: t_1, the step from which on it is constant.
        begin: t_0, the step up to which it is constant.
        initial: rho_i, the first fraction kept.

    Returns:
        Schedule: step -> density, a scalar.

    Source: ``optax.exponential_decay``, whose decay rate cannot be traced.

    Example:
        >>> from jaxht import transforms
        >>> schedule = transforms.exponential(0.01, end=10)
        >>> [round(float(schedule(step)), 4) for step in (0, 5, 10, 20)]
        [1.0, 0.1, 0.01, 0.01]
    """

    def schedule(step: Numeric) -> Array:
        progress = _progress(step, begin, end)
        # A product of powers, which is exact at both ends; a power of the quotient is not.
        of_first = jnp.power(initial, 1 - progress)
        return of_first * jnp.power(density, progress)

    return schedule


def _progress(step: Numeric, begin: Numeric, end: Numeric) -> Array:
    """0 before ``begin``, 1 from ``end`` on, linear between."""
    since = jnp.asarray(step) - begin
    whole = jnp.asarray(end) - begin
    is_over = since >= whole
    share = since / jnp.maximum(whole, 1)
    return jnp.where(is_over, 1.0, jnp.clip(share, 0, 1))


def uniform(params: ArrayTree, density: Numeric) -> ArrayTree:
    """The same fraction of every array.

    Args:
        params: pytree of arrays.
        density: fraction kept, in [0, 1].

    Returns:
        Pytree like ``params`` of ``density``.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import transforms
        >>> transforms.uniform({"w": jnp.ones((2, 3)), "b": jnp.ones(3)}, 0.5)
        {'b': 0.5, 'w': 0.5}
    """
    return jax.tree.map(lambda p: density, params)


def erdos_renyi_kernel(params: ArrayTree, density: Numeric) -> ArrayTree:
    r"""Fractions by the Erdős-Rényi-kernel rule: small layers are kept denser than large ones.

    .. math:: \rho_l = \min\Bigl(1, \varepsilon\, \frac{\sum_i n^l_i}{\prod_i n^l_i}\Bigr), \qquad
              \sum_l \rho_l \prod_i n^l_i = \rho \sum_l \prod_i n^l_i

    over the lengths n of all axes of an array; epsilon is what makes the total right.

    Args:
        params: pytree of arrays (or shapes: anything with ``shape``); arrays with fewer than two
            axes are kept whole and not counted.
        density: rho, the fraction of the entries of all counted arrays together, in [0, 1], traced
            or not.

    Returns:
        Pytree like ``params`` of fractions; the numbers of entries they make add up to the total's
        within half an entry an array; of a traced density within its rounding errors as well.

    Cost: for L arrays, O(L log L) on the host.

    Source: Evci et al. 2020 (RigL), §3 (1), after Mocanu et al. 2018.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import transforms
        >>> params = {"hidden": jnp.ones((100, 50)), "out": jnp.ones((50, 10)), "bias": jnp.ones(10)}
        >>> {name: round(density, 3) for name, density in transforms.erdos_renyi_kernel(params, 0.1).items()}
        {'bias': 1.0, 'hidden': 0.079, 'out': 0.314}
    """
    leaves, structure = jax.tree.flatten(params)
    counted = [i for i, p in enumerate(leaves) if len(p.shape) >= 2 and math.prod(p.shape)]
    sizes = np.array([math.prod(leaves[i].shape) for i in counted], np.float64)
    scores = np.array([sum(leaves[i].shape) for i in counted]) / sizes
    fractions: list[Any] = [1.0] * len(leaves)
    if counted:
        # With the m arrays of highest score kept whole, the others share the rest, which gives
        # epsilon; the right m is the first at which no fraction exceeds 1.
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
