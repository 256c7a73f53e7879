"""Stochastic average gradients with hard thresholding."""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxht._dataclass import integer, pytree, static
from jaxht._typing import Array, Leaf, Numeric, PRNGKey
from jaxht.constraints import Constraint
from jaxht.objectives.objective import SumOverSamples
from jaxht.solvers.iterate import Info, Iterate, inverse_smoothness
from jaxht.solvers.sampling import batch_smoothness, init_stochastic, project_move, run_updates
from jaxht.solvers.solver import Solver, Step


class HTSAGAState(NamedTuple):
    """The state of :class:`HTSAGA`.

    Attributes:
        step_size: eta.
        key: of the next draws.
        table: the derivatives of the losses that give g_i, scaled as those of f_i / n.
    """

    step_size: Leaf
    key: Leaf
    table: Leaf


@pytree
class HTSAGA(Solver):
    r"""Stochastic gradients corrected by a table of each sample's last gradient; one step of the
    runner is an epoch.

    .. math::
        x^+ = H_k\Big(x - \eta \Big(\tfrac{1}{b} \sum_{i \in B} (\nabla f_i(x) - g_i)
            + \tfrac{1}{n} \sum_i g_i\Big)\Big),
        \qquad\text{and then}\quad g_i = \nabla f_i(x), \; i \in B

    The table starts with the gradients at x_0. For linear models it holds one number per sample (c
    numbers for c outputs), since ``grad f_i(x) = l'(a_i.x) a_i``, and its mean is updated with it;
    the gradient of the ridge is not in the table but computed at x.

    It selects by magnitude: standardise columns of different units first,
    :func:`jaxht.standardize`.

    Args:
        step_size: eta > 0, a scalar, traced; on the scale of ``f = (1/n) sum_i f_i``, see
            :class:`jaxht.HTSVRG`. 0, infinity and NaN end as INVALID_STEP_SIZE. None: ``1 / (3
            L_b)``, L_b the expected smoothness of a minibatch (Defazio et al. 2014). The theory of
            Shen & Li 2018 takes ``1 / (2 (alpha n + L))``.
        batch_size: b, an int in [1, n], static.
        inner_steps: number of updates in one step of the runner, which evaluates f and the stopping
            tests once a step; an integer, traced. None: n / b, rounded up.
        replace: bool, static; whether a minibatch may hold the same sample twice.

    Raises:
        ValueError: if the objective is not a sum over samples, or batch_size is not in [1, n]; from
            :func:`jaxht.solve`, if no key is given.

    Cost: one full gradient at the start; an update takes b sample gradients, O(b d + b^2), and one
    projection. Each step of the runner recomputes the mean of the table, so that rounding errors do
    not accumulate.

    Source: Shen & Li 2018, Algorithm 2.

    Example:
        >>> import jax, jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]))
        >>> result = jaxht.solve(f, jaxht.Sparse(2), jaxht.HTSAGA(), key=jax.random.key(0))
        >>> [round(float(x_i), 3) for x_i in result.x]
        [0.0, 4.0, 0.0, 3.0]
    """

    step_size: Numeric | None = None
    batch_size: int = static(default=1)
    inner_steps: Numeric | None = integer(default=None, least=1)
    replace: bool = static(default=True)

    needs_key = True
    takes_complex = True

    def init(
        self, objective: SumOverSamples, constraint: Constraint, x0: Array, key: PRNGKey | None
    ) -> Step[HTSAGAState]:
        """Compute the step size, and the table at x0."""
        step_size = self.step_size
        if step_size is None:
            step_size = inverse_smoothness(3 * batch_smoothness(objective, self.batch_size))
        info = replace(init_stochastic(objective, x0, step_size), full_gradients=1)
        table = objective.loss_derivatives(x0, objective.predict(x0))
        return Iterate(x0), HTSAGAState(step_size, key, table), info

    def step(
        self,
        objective: SumOverSamples,
        constraint: Constraint,
        iterate: Iterate,
        state: HTSAGAState,
    ) -> Step[HTSAGAState]:
        """Take an epoch: as many updates as are needed to draw n samples."""
        step_size, key, table = state
        key, draws = jax.random.split(key)
        n = objective.num_samples
        b = self.batch_size
        base = iterate.x
        origin = jnp.zeros_like(base)

        def project(z):
            return constraint.project(z, base)[0]

        def update(batch, indices, carry):
            move, table, mean = carry  # move leads from base to x
            x = base + move
            # Derivatives are scaled as those of f_i / b, the table as those of f_i / n.
            new = batch.loss_derivatives(x, batch.predict(x))
            change = new - n / b * table[indices]
            step = step_size * (batch.gradient_from(change, x) + mean)
            move = project_move(project, base, move - step)
            if self.replace and b > 1:
                # A repeated sample changes the table, and so its mean, only once.
                repeated = jnp.any(jnp.tril(indices[:, None] == indices, -1), axis=1)
                change = jnp.where(repeated.reshape(-1, *[1] * (change.ndim - 1)), 0, change)
            table = table.at[indices].set(b / n * new)
            return move, table, mean + b / n * batch.gradient_from(change, origin)

        m = self.inner_steps
        if m is None:
            m = -(-n // b)
        carry = origin, table, objective.gradient_from(table, origin)
        move, table, _ = run_updates(
            update, carry, m, objective, key=draws, batch_size=b, replace=self.replace
        )
        x = project(base + move)  # exactly feasible, in spite of rounding
        info = Info(sample_gradients=m * b, projections=m)
        return Iterate(x), HTSAGAState(step_size, key, table), info
