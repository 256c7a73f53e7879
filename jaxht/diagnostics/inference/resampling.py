"""Selections from random samples: stability selection, and the bootstrap."""

import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxht._checks import check_count, check_kind, known_values
from jaxht._dataclass import pytree
from jaxht._meshes import shard_automatically
from jaxht._typing import Array, Numeric, PRNGKey
from jaxht.constraints import SelectionConstraint
from jaxht.diagnostics._models import linear_model
from jaxht.linalg.selection import k_largest_mask
from jaxht.objectives.linear_model import LinearModel
from jaxht.objectives.objective import Objective
from jaxht.runner import Result, Stop
from jaxht.runner._resamples import solve_resamples
from jaxht.runner._validation import number_groups
from jaxht.solvers.solver import Solver

__all__ = ["Bootstrap", "Stability", "bootstrap", "stability_selection"]

#: What objectives must be, in an error message.
REQUIREMENT = "a linear model, whose samples have weights"


@pytree
class Stability:
    """The result of :func:`stability_selection`.

    Attributes:
        frequencies: (m,), in which share of the subsamples each item was selected, from 0 to 1.
        mean_size: q, how many items were selected on average, a scalar.
        results: a :class:`jaxht.Result` with an axis of length 2 ``num_pairs``: the solutions.
    """

    frequencies: Array
    mean_size: Array
    results: Result

    def expected_false(self, threshold: Numeric) -> Array:
        r"""A bound on how many items of low selection probability have a frequency of at least a
        threshold tau.

        With B pairs and ``theta = q / m``, consider the items that one subsample selects with a
        probability of at most theta. The expected number of these with a frequency of at least tau
        is at most ``C(tau) theta q``,

        .. math::
            C(\tau) = \frac{1}{2 (2 \tau - 1 - 1 / (2B))}\ (\tau \le 3/4), \qquad
            C(\tau) = \frac{4 (1 - \tau + 1 / (2B))}{1 + 1/B}\ (\tau > 3/4)

        if, for each of these items, the share of pairs of which both halves select it has a
        unimodal distribution.

        Args:
            threshold: tau, above ``1/2 + theta^2`` and ``1/2 + 1 / (2B) + 3/4 theta^2``, a scalar.

        Returns:
            A scalar, a number of items; infinite where tau is not above these, or theta above
            ``3^(-1/2)``.

        Source: Shah & Samworth 2013, Theorem 2.
        """
        num_pairs = self.results.status.shape[0] / 2
        half = 1 / (2 * num_pairs)
        theta = self.mean_size / self.frequencies.size
        factor = jnp.where(
            threshold <= 0.75,
            0.5 / (2 * threshold - 1 - half),
            4 * (1 - threshold + half) / (1 + 1 / num_pairs),
        )
        least = jnp.maximum(0.5 + theta**2, 0.5 + half + 0.75 * theta**2)
        holds = (threshold > least) & (theta <= 3**-0.5)
        return jnp.where(holds, factor * theta * self.mean_size, jnp.inf)


@shard_automatically
def stability_selection(
    objective: Objective,
    constraint: SelectionConstraint,
    solver: Solver | None = None,
    *,
    key: PRNGKey,
    num_pairs: int = 50,
    groups: Array | None = None,
    stop: Stop = Stop(),
) -> Stability:
    """Solve on random halves of the samples, and count how often each item is selected. Works under
    jit and vmap.

    The samples are divided into two halves ``num_pairs`` times, and each half is solved, all of
    them under one vmap: weights of 0 leave samples out.

    Args:
        objective: a linear model; weights it has count in each half, and samples of weight 0 in
            none.
        constraint: for example ``Sparse(10)``: k items are selected from each half.
        solver: for example ``OMP()``.
        key: PRNG key, for the halves and for solvers that draw random numbers.
        num_pairs: B, an int, static; 50 in the papers.
        groups: (n,) integers, traced: samples of equal labels, such as those of one patient, are in
            the same half, and the groups are divided into halves. None: each sample is a group of
            its own. Samples of one group may depend on each other: the bound on false selections
            needs groups that are independent.
        stop: limits and tolerances of each run, a :class:`jaxht.Stop`.

    Returns:
        :class:`Stability`.

    Raises:
        ValueError: for an objective that is no linear model, and where :func:`jaxht.solve` raises
        it.

    Warns: where halves are fitted exactly, as without noise, or with few distinct samples: items that
    join after that are those of rounding errors. Not within a trace.

    Cost: 2 ``num_pairs`` runs side by side; a shared A is not copied.

    Source: Meinshausen & Bühlmann 2010; complementary pairs: Shah & Samworth 2013.

    Example:
        >>> import jax, jax.numpy as jnp, jaxht
        >>> A, noise = jax.random.normal(jax.random.key(0), (80, 20)), jax.random.normal(jax.random.key(1), (80,))
        >>> f = jaxht.LeastSquares(A, A[:, 3] - A[:, 7] + 0.5 * noise)
        >>> found = jaxht.inference.stability_selection(f, jaxht.Sparse(2), jaxht.OMP(), key=jax.random.key(2))
        >>> (found.frequencies > 0.9).nonzero()[0].tolist(), bool(found.expected_false(0.9) < 0.1)
        ([3, 7], True)
    """
    check_kind(objective=objective, constraint=constraint, solver=solver, stop=stop)
    check_count("num_pairs", num_pairs)
    model = linear_model(objective, REQUIREMENT)
    n = model.num_samples
    dtype = model.sample_weights.dtype
    units = _Units.of(n, groups)

    present = units.present(model)
    num_present = jnp.sum(present, dtype=jnp.int32)

    def divide(key):
        uniform = jax.random.uniform(key, (n,), dtype)
        in_first = k_largest_mask(jnp.where(present, uniform, 0), num_present // 2)
        return units.of_samples(jnp.stack([in_first, ~in_first]))

    keys = jax.random.split(key, 3 * num_pairs)
    halves = jax.vmap(divide)(keys[:num_pairs]).reshape(2 * num_pairs, -1).astype(dtype)
    results, _, is_exact = solve_resamples(
        model, halves, constraint, solver, keys[num_pairs:], stop
    )
    _warn_of_exact_fits(is_exact)
    frequencies = _frequencies(model, constraint, results.x)
    return Stability(frequencies, jnp.sum(frequencies), results)


@pytree
class Bootstrap:
    """The result of :func:`bootstrap` for B resamples.

    Attributes:
        frequencies: (m,), in which share of the resamples each item was selected, from 0 to 1.
        coefficients: (B, ...), the minimiser on the support that was selected from each resample; 0
            off it.
        results: a :class:`jaxht.Result` with an axis of length B: the solutions.
    """

    frequencies: Array
    coefficients: Array
    results: Result

    def intervals(self, level: Numeric = 0.95) -> tuple[Array, Array]:
        """Percentile intervals of the coefficients: those of resamples that did not select a
        coordinate count as 0.

        Args:
            level: from 0 to 1, a scalar: the share of the resamples within.

        Returns:
            Lower and upper ends, shaped like the variable.

        Source: Efron 1981, the percentile method.
        """
        tail = (1 - jnp.asarray(level, self.coefficients.dtype)) / 2
        lower = jnp.quantile(self.coefficients, tail, axis=0)
        upper = jnp.quantile(self.coefficients, 1 - tail, axis=0)
        return lower, upper


@shard_automatically
def bootstrap(
    objective: Objective,
    constraint: SelectionConstraint,
    solver: Solver | None = None,
    *,
    key: PRNGKey,
    num_resamples: int = 200,
    groups: Array | None = None,
    stop: Stop = Stop(),
) -> Bootstrap:
    """Repeat the selection on bootstrap resamples of the samples, and refit. Works under jit and
    vmap.

    Each resample draws as many samples as have a weight above 0, with replacement; how often each
    was drawn is its weight, so that all resamples are solved under one vmap.

    The selected support is a discontinuous function of the data, for which the bootstrap is not
    consistent: the intervals show how much selection and coefficients vary together, but for small
    coefficients their level is not the probability that they cover the truth.

    Args:
        objective, constraint, solver, stop: as of :func:`stability_selection`, for each resample.
            Refits on gathered columns need the k_max of the constraint.
        key: PRNG key, for the resamples and for solvers that draw random numbers.
        num_resamples: B, an int, static.
        groups: (n,) integers, traced: samples of equal labels, such as those of one patient, are
            drawn together; as many groups are drawn as there are, and the number of samples varies.
            None: each sample is a group of its own.

    Returns:
        :class:`Bootstrap`.

    Raises:
        ValueError: as :func:`stability_selection`.

    Cost: B runs side by side, and a refit of each; a shared A is not copied.

    Source: Efron 1979; of groups, the cluster bootstrap: Davison & Hinkley 1997, §3.8.

    Example:
        >>> import jax, jax.numpy as jnp, jaxht
        >>> A, noise = jax.random.normal(jax.random.key(0), (80, 20)), jax.random.normal(jax.random.key(1), (80,))
        >>> f = jaxht.LeastSquares(A, A[:, 3] - A[:, 7] + 0.5 * noise)
        >>> found = jaxht.inference.bootstrap(f, jaxht.Sparse(2), jaxht.OMP(), key=jax.random.key(2), num_resamples=50)
        >>> lower, upper = found.intervals(0.9)
        >>> (found.frequencies > 0.9).nonzero()[0].tolist(), bool((lower[3] < 1) & (1 < upper[3]))
        ([3, 7], True)
    """
    check_kind(objective=objective, constraint=constraint, solver=solver, stop=stop)
    check_count("num_resamples", num_resamples)
    model = linear_model(objective, REQUIREMENT)
    n = model.num_samples
    dtype = model.sample_weights.dtype
    units = _Units.of(n, groups)

    present = units.present(model)
    num_present = jnp.sum(present, dtype=jnp.int32)
    (of_weight,) = jnp.nonzero(present, size=n)
    is_drawn = jnp.arange(n) < num_present

    def draw(key):
        draws = of_weight[jax.random.randint(key, (n,), 0, num_present)]
        counts = jnp.zeros(n, dtype).at[draws].add(is_drawn.astype(dtype))
        return units.of_samples(counts)

    keys = jax.random.split(key, 2 * num_resamples)
    counts = jax.vmap(draw)(keys[:num_resamples])
    results, coefficients, is_exact = solve_resamples(
        model, counts, constraint, solver, keys[num_resamples:], stop, refits=True
    )
    _warn_of_exact_fits(is_exact)
    return Bootstrap(_frequencies(model, constraint, coefficients), coefficients, results)


class _Units(NamedTuple):
    """What is drawn: samples, or groups of them.

    Arrays of units have n entries, of which the first are of units.
    """

    number: Array | None

    @staticmethod
    def of(num_samples: int, groups: Array | None) -> "_Units":
        if groups is None:
            return _Units(None)
        number, _ = number_groups(groups, num_samples)
        return _Units(number)

    def present(self, model: LinearModel) -> Array:
        """Which units have a sample of weight above 0, bool (n,)."""
        n = model.num_samples
        has_weight = model.sample_weights.reshape(n, -1).max(axis=1) > 0
        if self.number is None:
            return has_weight
        return jnp.zeros(n, bool).at[self.number].max(has_weight)

    def of_samples(self, v: Array) -> Array:
        """The entries (..., n) of units for the samples in these."""
        return v if self.number is None else v[..., self.number]


def _warn_of_exact_fits(is_exact: Array) -> None:
    """Warn of items that rounding errors may have selected, as far as that is known."""
    known = known_values(is_exact)
    if known is None or not np.any(known):
        return
    warnings.warn(
        f"{np.count_nonzero(known)} of {known.size} resamples are fitted exactly by fewer than k "
        "items, but for rounding errors: these have selected the others, whose frequencies mean "
        "nothing; give a smaller k",
        stacklevel=4,
    )


def _frequencies(model: LinearModel, constraint: SelectionConstraint, xs: Array) -> Array:
    """The share of the solutions xs in which each item is active, (m,)."""
    active = jax.vmap(constraint.prepare(model.shape).active)(xs)
    return jnp.mean(active.reshape(len(xs), -1), axis=0, dtype=model.penalty.dtype)
