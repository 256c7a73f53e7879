"""Stochastic variance-reduced gradients with hard thresholding."""

import jax
import jax.numpy as jnp

from jaxht._dataclass import integer, pytree, static
from jaxht._typing import Array, Numeric, PRNGKey
from jaxht.constraints import Constraint
from jaxht.linalg.projections import l2_ball
from jaxht.objectives.objective import SumOverSamples
from jaxht.solvers.iterate import Info, Iterate
from jaxht.solvers.sampling import (
    SamplingState,
    project_move,
    run_updates,
    start_sampling,
)
from jaxht.solvers.solver import Solver, Step


class VarianceReduction(Solver):
    """The stages of HT-SVRG and SVR-GHT; the arguments are those of :class:`HTSVRG`."""

    step_size: Numeric | None
    inner_steps: Numeric | None
    batch_size: int
    radius: Numeric | None
    snapshot: str
    replace: bool

    needs_key = True
    takes_complex = True

    def init(
        self, objective: SumOverSamples, constraint: Constraint, x0: Array, key: PRNGKey | None
    ) -> Step[SamplingState]:
        """Compute the step size; f at x0 is left to the runner."""
        if self.snapshot not in ("random", "last"):
            raise ValueError(f'snapshot must be "random" or "last"; got {self.snapshot!r}')
        return start_sampling(
            objective, self._into_ball(x0), key, self.step_size, 0.2, self.batch_size
        )

    def step(
        self,
        objective: SumOverSamples,
        constraint: Constraint,
        iterate: Iterate,
        state: SamplingState,
    ) -> Step[SamplingState]:
        """Take a stage."""
        step_size, key = state
        key, draws, choice = jax.random.split(key, 3)
        b = self.batch_size
        m = self.inner_steps
        if m is None:
            m = -(-3 * objective.num_samples // b)
        if self.snapshot == "random":
            m = jax.random.randint(choice, (), 0, m, jnp.int32)
        snapshot = iterate.x
        whole = objective.predict(snapshot)
        mu = objective.gradient(snapshot, whole)

        def project(z):
            r, _ = constraint.project(z, snapshot)
            return self._into_ball(r)

        def update(batch, indices, move):  # move leads from the snapshot to x
            pred = objective.minibatch_pred(whole, indices)
            new = batch.loss_derivatives(snapshot + move, pred + batch.predict(move))
            change = new - batch.loss_derivatives(snapshot, pred)
            step = step_size * (batch.gradient_from(change, move) + mu)
            return project_move(project, snapshot, move - step)

        start = jnp.zeros_like(snapshot)
        move = run_updates(
            update, start, m, objective, key=draws, batch_size=b, replace=self.replace
        )
        x = project(snapshot + move)  # exactly feasible, in spite of rounding
        info = Info(full_gradients=1, sample_gradients=2 * b * m, projections=m)
        return Iterate(x), SamplingState(step_size, key), info

    def _into_ball(self, x: Array) -> Array:
        """The nearest point of the ball."""
        return x if self.radius is None else l2_ball(x.ravel(), self.radius).reshape(x.shape)


@pytree
class HTSVRG(VarianceReduction):
    r"""Stages of stochastic gradients that are corrected by the full gradient at a snapshot; one
    step is one stage.

    .. math::
        x_0 = \tilde x, \quad \mu = \nabla f(\tilde x), \qquad
        x_{t+1} = \Pi_\omega\Big(H_k\Big(x_t - \eta \Big(\tfrac{1}{b} \sum_{i \in B}
            \big(\nabla f_i(x_t) - \nabla f_i(\tilde x)\big) + \mu\Big)\Big)\Big),
        \quad t = 0 \ldots m - 1

    The next snapshot is x_j for a random j in [0, m), or the last iterate x_m. The variance of the
    updates vanishes as x and the snapshot approach the same point, so that x converges at a
    constant eta. With a random snapshot only the first j of the m updates are computed and counted,
    half of them on average, since no result depends on the others.

    It selects by magnitude: standardise columns of different units first,
    :func:`jaxht.standardize`.

    Args:
        step_size: eta > 0, a scalar, traced; on the scale of ``f = (1/n) sum_i f_i``. Shen & Li
            2018 minimise the mean, ``LeastSquares(A, y, mean=True)``, for which this is their eta;
            for the sum it is their eta / n. They take ``2 / sigma_max(A)^2``, without n, for single
            samples. 0, infinity and NaN end as INVALID_STEP_SIZE. None: ``1 / (5 L_b)``, L_b the
            expected smoothness of a minibatch: with b = 1 inside the interval of their Theorem 10,
            whose end 1 / (4 L) is excluded.
        inner_steps: m, number of updates in a stage, an integer, traced. None: 3 n / b, rounded up.
        batch_size: b, an int in [1, n], static.
        radius: omega, radius of the l2 ball onto which x is projected after thresholding, in units
            of x, traced. None: no ball.
        snapshot: "random" or "last", static; which iterate of a stage is the next snapshot. Of
            stages of one update a random one is always x_0, which never moves.
        replace: bool, static; whether a minibatch may hold the same sample twice.

    Raises:
        ValueError: if the objective is not a sum over samples, batch_size is not in [1, n], or
            snapshot is neither "random" nor "last"; from :func:`jaxht.solve`, if no key is given.

    Cost: a stage takes one full gradient, 2 b m sample gradients and m projections. An update takes
    O(b d) and a projection; on a sparse design it still takes O(d), as mu is dense, while the
    gradients read b rows alone.

    Source: Shen & Li 2018, Algorithm 1.

    Example:
        >>> import jax, jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]))
        >>> result = jaxht.solve(f, jaxht.Sparse(2), jaxht.HTSVRG(), key=jax.random.key(0))
        >>> [round(float(x_i), 3) for x_i in result.x]
        [0.0, 4.0, 0.0, 3.0]
    """

    step_size: Numeric | None = None
    inner_steps: Numeric | None = integer(default=None, least=1)
    batch_size: int = static(default=1)
    radius: Numeric | None = None
    snapshot: str = static(default="random")
    replace: bool = static(default=True)

    fixed_point_test = False  # a random snapshot may be x_0 itself


@pytree
class SVRGHT(VarianceReduction):
    """Stochastic variance-reduced gradients as in :class:`HTSVRG`, whose next snapshot is the last
    iterate of a stage, without a ball; also known as SVR-GHT.

    It selects by magnitude: standardise columns of different units first,
    :func:`jaxht.standardize`.

    Args:
        step_size, inner_steps, batch_size: as of :class:`HTSVRG`.
        replace: keyword; as of :class:`HTSVRG`.

    Raises:
        ValueError: where :class:`HTSVRG` raises it.

    Cost: a stage takes one full gradient, 2 b m sample gradients and m projections.

    Source: Li et al. 2016, Algorithm 1; Zhou, Yuan & Feng 2018, §1.

    Example:
        >>> import jaxht
        >>> jaxht.SVRGHT(batch_size=10)
        SVRGHT(batch_size=10)
    """

    step_size: Numeric | None = None
    inner_steps: Numeric | None = integer(default=None, least=1)
    batch_size: int = static(default=1)
    replace: bool = static(default=True, kw_only=True)

    snapshot = "last"
    radius = None
