"""Stochastic gradient hard thresholding."""

from typing import Any

import jax

from jaxht._dataclass import integer, pytree, static
from jaxht._typing import Numeric, PRNGKey
from jaxht.constraints import Constraint
from jaxht.objectives.objective import SumOverSamples
from jaxht.solvers.iterate import Info, Iterate
from jaxht.solvers.sampling import (
    SamplingState,
    run_updates,
    start_sampling,
)
from jaxht.solvers.solver import Solver, Step


@pytree
class SGHT(Solver):
    r"""Stochastic gradient descent with hard thresholding, also known as StoIHT; one step of the
    runner is an epoch.

    .. math::
        x^+ = H_k\Big(x - \eta \tfrac{1}{b} \sum_{i \in B} \nabla f_i(x)\Big), \qquad
        f = \tfrac{1}{n} \sum_i f_i

    With a constant step size x does not converge to a point, unless all f_i have the same
    minimiser. On a sparse design a gradient reads only the entries of its rows, and the projection,
    a few passes over d numbers, takes most of the time.

    It selects by magnitude: standardise columns of different units first,
    :func:`jaxht.standardize`.

    Args:
        step_size: eta > 0, a scalar, traced; on the scale of f and so of every f_i: for a sum, such
            as ``LeastSquares(A, y, mean=False)``, it is 1/n of that for the mean. 0, infinity and NaN
            end as INVALID_STEP_SIZE. None: ``1 / (2 L_b)``, L_b the expected smoothness of a
            minibatch.
        batch_size: b, an int in [1, n], static.
        inner_steps: number of updates in one step of the runner, which evaluates f and the stopping
            tests once a step; an integer, traced. None: n / b, rounded up.
        replace: bool, static; whether a minibatch may hold the same sample twice.

    Raises:
        ValueError: if the objective is not a sum over samples, or batch_size is not in [1, n]; from
            :func:`jaxht.solve`, if no key is given.

    Cost: an update takes b sample gradients and one projection.

    Source: Nguyen, Needell & Woolf 2017, Algorithm 1 (StoIHT); Zhou, Yuan & Feng 2018, §1.

    Example:
        >>> import jax, jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]))
        >>> solver = jaxht.SGHT(batch_size=2, replace=False)
        >>> result = jaxht.solve(f, jaxht.Sparse(2), solver, key=jax.random.key(0))
        >>> [round(float(x_i), 3) for x_i in result.x]
        [0.0, 4.0, 0.0, 3.0]
    """

    step_size: Numeric | None = None
    batch_size: int = static(default=1)
    inner_steps: Numeric | None = integer(default=None, least=1)
    replace: bool = static(default=True)

    needs_entries = False
    needs_key = True
    takes_complex = True
    step_limit = 100  # epochs

    def init(
        self, objective: SumOverSamples, constraint: Constraint, x0: Any, key: PRNGKey | None
    ) -> Step[SamplingState]:
        """Compute the step size; f at x0 is left to the runner."""
        return start_sampling(objective, x0, key, self.step_size, 0.5, self.batch_size)

    def step(
        self,
        objective: SumOverSamples,
        constraint: Constraint,
        iterate: Iterate,
        state: SamplingState,
    ) -> Step[SamplingState]:
        """Take an epoch: as many updates as are needed to draw n samples."""
        step_size, key = state
        key, draws = jax.random.split(key)
        b = self.batch_size

        def update(batch, indices, x):
            gradient = batch.gradient(x, batch.predict(x))
            return constraint.project(x - step_size * gradient, x)[0]

        m = self.inner_steps
        if m is None:
            m = -(-objective.num_samples // b)
        x = run_updates(
            update, iterate.x, m, objective, key=draws, batch_size=b, replace=self.replace
        )
        info = Info(sample_gradients=m * b, projections=m)
        return Iterate(x), SamplingState(step_size, key), info
