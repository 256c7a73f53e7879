"""Stochastic gradient hard thresholding."""

from typing import Any, ClassVar

import jax
from chex import Array, Numeric, PRNGKey

from jaxht._pytree import integer, pytree, static
from jaxht.constraints import Constraint
from jaxht.objectives.objective import SumOverSamples
from jaxht.solvers.iterate import Iterate
from jaxht.solvers.sampling import batch_smoothness, init_stochastic, run_updates
from jaxht.solvers.solver import Solver


@pytree
class SGHT(Solver[SumOverSamples, Constraint]):
    r"""Stochastic gradient steps with hard thresholding, also known as StoIHT; a step of the runner is an epoch.

    .. math::
        x^+ = H_k\Big(x - \eta \tfrac{1}{b} \sum_{i \in B} \nabla f_i(x)\Big), \qquad f = \tfrac{1}{n} \sum_i f_i

    Args:
        step_size: eta > 0, traced; on the scale of f and so of every f_i: of a sum, such as ``LeastSquares(A, y)``, it
            is 1/n of that of the mean. None: ``1 / (2 L_b)``, L_b the expected smoothness of a batch. With a constant
            step x does not come to rest, unless all f_i have the same minimiser.
        batch_size: b, static.
        inner_steps: updates in a step of the runner, which looks at f after each, traced; None: n / b.
        replace: static; whether a batch may hold a sample twice.

    Cost an update: b sample gradients and one projection. On a sparse design the gradient reads the entries of its
    rows alone, and the projection, some passes over d numbers, takes most of the time.

    Source: Nguyen, Needell & Woolf 2017, Algorithm 1 (StoIHT); Zhou, Yuan & Feng 2018, §1.
    """

    step_size: Numeric | None = None
    batch_size: int = static(default=1)
    inner_steps: Numeric | None = integer(default=None)
    replace: bool = static(default=True)

    takes_factors: ClassVar[bool] = True
    needs_key: ClassVar[bool] = True

    def max_steps(self, constraint: Constraint) -> int:
        """100 epochs."""
        return 100

    def init(
        self, objective: SumOverSamples, constraint: Constraint, x0: Array, key: PRNGKey | None
    ) -> tuple[Iterate, Any]:
        """The step size."""
        step_size = self.step_size
        if step_size is None:
            step_size = 0.5 / batch_smoothness(objective, self.batch_size)
        return init_stochastic(objective, x0, step_size), (step_size, key)

    def step(
        self, objective: SumOverSamples, constraint: Constraint, iterate: Iterate, state: Any
    ) -> tuple[Iterate, Any]:
        """As many updates as go over the samples once."""
        step_size, key = state
        key, draws = jax.random.split(key)
        n, b = objective.num_samples, self.batch_size

        def update(batch: SumOverSamples, indices: Array, x: Array) -> Array:
            return constraint.project(x - step_size * batch.gradient(x, batch.predict(x)), x)[0]

        m = -(-n // b) if self.inner_steps is None else self.inner_steps
        x = run_updates(update, iterate.x, m, objective, key=draws, batch_size=b, replace=self.replace)
        return iterate.move(x, sample_gradients=m * b, projections=m), (step_size, key)
