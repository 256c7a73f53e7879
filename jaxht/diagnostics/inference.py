"""How far a selection can be trusted: how often items are selected again from a part of the samples."""

import dataclasses

import jax
import jax.numpy as jnp

from jaxht._pytree import Array, Numeric, PRNGKey, as_dtype, check_kind, pytree
from jaxht.constraints import SelectionConstraint
from jaxht.objectives.linear_model import LinearModel
from jaxht.objectives.objective import Objective
from jaxht.runner import Result, Stop, solve
from jaxht.solvers.solver import Solver


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
        r"""A bound on how many items of low selection probability have a frequency of at least a threshold tau.

        With B pairs and ``theta = q / m``, of the items that one subsample selects with a probability of at most theta
        there are on average at most ``C(tau) theta q``,

        .. math::
            C(\tau) = \frac{1}{2 (2 \tau - 1 - 1 / (2B))}\ (\tau \le 3/4), \qquad
            C(\tau) = \frac{4 (1 - \tau + 1 / (2B))}{1 + 1/B}\ (\tau > 3/4)

        if the distributions of the shares in which both halves of a pair select them are unimodal.

        Args:
            threshold: tau, above ``1/2 + theta^2`` and ``1/2 + 1 / (2B) + 3/4 theta^2``, a scalar.

        Returns:
            A scalar, a number of items; infinite where tau is not above these, or theta above ``3^(-1/2)``.

        Source: Shah & Samworth 2013, Theorem 2.
        """
        m = self.frequencies.size
        B, theta = self.results.status.shape[0] / 2, self.mean_size / m
        low = 0.5 / (2 * threshold - 1 - 1 / (2 * B))
        high = 4 * (1 - threshold + 1 / (2 * B)) / (1 + 1 / B)
        least = jnp.maximum(0.5 + theta**2, 0.5 + 1 / (2 * B) + 0.75 * theta**2)
        holds = (threshold > least) & (theta <= 3**-0.5)
        return jnp.where(holds, jnp.where(threshold <= 0.75, low, high) * theta * self.mean_size, jnp.inf)


def stability_selection(
    objective: Objective,
    constraint: SelectionConstraint,
    solver: Solver,
    key: PRNGKey,
    *,
    num_pairs: int = 50,
    stop: Stop = Stop(),
) -> Stability:
    """Solve on random halves of the samples, and count how often each item is selected. Works under jit and vmap.

    The samples are divided into two halves ``num_pairs`` times, and each half is solved, all of them under one vmap:
    weights of 0 leave samples out.

    Args:
        objective: a linear model; weights it has count in each half.
        constraint: for example ``Sparse(10)``: k items are selected from each half.
        solver: for example ``OMP()``.
        key: PRNG key, for the halves and for solvers that draw random numbers.
        num_pairs: B, an int, static; 50 in the papers.
        stop: limits and tolerances of each run, a :class:`jaxht.Stop`.

    Returns:
        :class:`Stability`.

    Raises:
        ValueError: for an objective that is no linear model, and where :func:`jaxht.solve` raises it.

    Cost: 2 ``num_pairs`` runs side by side; a shared A is not copied.

    Source: Meinshausen & Bühlmann 2010; complementary pairs: Shah & Samworth 2013.

    Example:
        >>> import jax, jax.numpy as jnp, jaxht
        >>> A, noise = jax.random.normal(jax.random.key(0), (80, 20)), jax.random.normal(jax.random.key(1), (80,))
        >>> f = jaxht.LeastSquares(A, A[:, 3] - A[:, 7] + 0.5 * noise)
        >>> found = jaxht.inference.stability_selection(f, jaxht.Sparse(2), jaxht.OMP(), jax.random.key(2))
        >>> (found.frequencies > 0.9).nonzero()[0].tolist(), bool(found.expected_false(0.9) < 0.1)
        ([3, 7], True)
    """
    check_kind(objective=objective, constraint=constraint, solver=solver, stop=stop)
    if not isinstance(objective, LinearModel):
        raise ValueError(
            f"objective must be a linear model, whose samples have weights; got {type(objective).__name__}"
        )
    model = objective.prepare()
    n = model.num_samples
    dtype = model.penalty.dtype
    own = jnp.ones(n, dtype) if model.weights is None else as_dtype(model.weights, dtype)

    def halves(key: PRNGKey) -> Array:
        inside = jax.random.permutation(key, n) < n // 2
        return jnp.stack([inside, ~inside])

    def run(inside: Array, key: PRNGKey) -> Result:
        return solve(dataclasses.replace(model, weights=own * inside), constraint, solver, key=key, stop=stop)

    keys = jax.random.split(key, 3 * num_pairs)
    masks = jax.vmap(halves)(keys[:num_pairs]).reshape(2 * num_pairs, n)
    results = jax.vmap(run)(masks, keys[num_pairs:])
    prepared = constraint.prepare(model.shape)
    active = jax.vmap(prepared.active)(results.x)
    frequencies = jnp.mean(active.reshape(2 * num_pairs, -1), axis=0, dtype=dtype)
    return Stability(frequencies, jnp.sum(frequencies), results)
