"""Hybrid stochastic gradient hard thresholding."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxht._dataclass import at_least, integer, pytree
from jaxht._loops import fori_loop, while_loop
from jaxht._typing import Array, Leaf, Numeric, PRNGKey
from jaxht.constraints import Constraint
from jaxht.linalg.inner_products import real_dtype
from jaxht.linalg.lanes import either, keep_last
from jaxht.objectives.objective import SumOverSamples, check_sum
from jaxht.solvers.iterate import Info, Iterate, inverse_smoothness
from jaxht.solvers.sampling import init_stochastic, permute
from jaxht.solvers.solver import Solver, Step

# Gradients are computed of so many samples at a time.
BLOCK_SAMPLES = 256


class HSGHTState(NamedTuple):
    """The state of :class:`HSGHT`.

    Attributes:
        step_size: eta.
        key: of all draws.
        num_updates: int32, t.
        x_prev: x_{t-1}; None without momentum.
    """

    step_size: Leaf
    key: Leaf
    num_updates: Leaf
    x_prev: Leaf | None


@pytree
class HSGHT(Solver):
    r"""Gradients of minibatches whose size grows by a factor, up to all samples, with or without
    momentum (AHSG-HT).

    .. math::
        x_{t+1} = H_k\Big(x_t - \eta \tfrac{1}{s_t} \sum_{i \in B_t} \nabla f_i(x_t)
            + \nu (x_t - x_{t-1})\Big),
        \qquad |B_t| = s_t = \min(n, \lceil \tau g^t \rceil)

    B_t is drawn without replacement. Once s_t = n, this is :class:`jaxht.IHT` (FG-HT), with
    momentum its heavy-ball form.

    It selects by magnitude: standardise columns of different units first,
    :func:`jaxht.standardize`.

    Args:
        step_size: eta > 0, a scalar, traced; on the scale of ``f = (1/n) sum_i f_i``, see
            :class:`jaxht.HTSVRG`. 0, infinity and NaN end as INVALID_STEP_SIZE. None: ``1 / (2
            L)``, L the largest smoothness of any f_i (Theorem 2).
        momentum: nu in [0, 1), a scalar, traced; above 0 this is AHSG-HT. None is 0, without the
            cost of storing x_{t-1}.
        batch_size: tau, the size of the first minibatch, an integer, traced.
        batch_growth: g >= 1, a scalar, traced; 1 / omega in the paper, which asks for omega near 1,
            depending on the condition number. At g = 1.1, 80 updates draw 20 000 samples in all.
        inner_steps: number of updates in one step of the runner, which evaluates f and the stopping
            tests once a step; an integer, traced. None: as many as draw at most n samples in all,
            and at least one.

    Raises:
        ValueError: if the objective is not a sum over samples; from :func:`jaxht.solve`, if no key
        is given.

    Cost: an update takes s_t sample gradients and one projection. Its time is that of s_t rounded
    up to a multiple of 256; where s_t = n it is one full gradient, and counted as such.

    Source: Zhou, Yuan & Feng 2018, Algorithm 1: (O1), and with momentum (O2).

    Example:
        >>> import jax, jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]))
        >>> solver = jaxht.HSGHT(batch_size=4)
        >>> result = jaxht.solve(f, jaxht.Sparse(2), solver, key=jax.random.key(0))
        >>> [round(float(x_i), 3) for x_i in result.x]
        [0.0, 4.0, 0.0, 3.0]
    """

    step_size: Numeric | None = None
    momentum: Numeric | None = None
    batch_size: Numeric = integer(default=1, least=1)
    batch_growth: Numeric = at_least(1, default=1.1)
    inner_steps: Numeric | None = integer(default=None, least=1)

    fixed_point_test = True  # once the batch is all samples
    needs_key = True
    takes_complex = True

    @property
    def fixed_point_steps(self) -> int:
        """2 with momentum, which can hold x at a bound for a step."""
        return 1 if self.momentum is None else 2

    def init(
        self, objective: SumOverSamples, constraint: Constraint, x0: Array, key: PRNGKey | None
    ) -> Step[HSGHTState]:
        """Compute the step size; x_{-1} = x_0."""
        check_sum(objective)
        step_size = self.step_size
        if step_size is None:
            step_size = 0.5 * inverse_smoothness(objective.sample_smoothness())
        info = init_stochastic(objective, x0, step_size)
        x_prev = None if self.momentum is None else x0
        return Iterate(x0), HSGHTState(step_size, key, jnp.zeros((), jnp.int32), x_prev), info

    def step(
        self, objective: SumOverSamples, constraint: Constraint, iterate: Iterate, state: HSGHTState
    ) -> Step[HSGHTState]:
        """Updates until about n samples are drawn, or ``inner_steps`` of them."""
        step_size, key, first, _ = state
        n = objective.num_samples

        def goes_on(carry):
            t, drawn, *_ = carry
            if self.inner_steps is not None:
                return t < first + self.inner_steps
            return (t == first) | (drawn <= n - self._size(t, n))

        def update(carry):
            t, drawn, num_full, x, x_prev = carry
            s = self._size(t, n)
            gradient = _batch_gradient(objective, x, s, jax.random.fold_in(key, t))
            z = x - step_size * gradient
            if self.momentum is not None:
                z = z + self.momentum * (x - x_prev)
                x_prev = x
            x, _ = constraint.project(z, x)
            return t + 1, drawn + s, num_full + s // n, x, x_prev

        zero = jnp.zeros((), jnp.int32)
        start = first, zero, zero, iterate.x, state.x_prev
        t, drawn, num_full, x, x_prev = while_loop(goes_on, update, start)
        info = Info(
            full_gradients=num_full,
            sample_gradients=drawn - num_full * n,
            projections=t - first,
            skip_fixed_point_test=self._size(first, n) < n,
        )
        return Iterate(x), HSGHTState(step_size, key, t, x_prev), info

    def _size(self, t: Array, n: int) -> Array:
        """s_t."""
        growth = jnp.asarray(self.batch_growth)
        tau = jnp.asarray(self.batch_size).astype(growth.dtype)
        size = jnp.ceil(tau * growth ** t.astype(growth.dtype))
        # A float need not hold n.
        least = jnp.minimum(size, n).astype(jnp.int32)
        return jnp.clip(jnp.where(size >= n, n, least), 1, n)


def _batch_gradient(objective: SumOverSamples, x: Array, s: Array, key: PRNGKey) -> Array:
    """The mean gradient of s (traced) samples without replacement, a block of them at a time."""
    n = objective.num_samples

    def block(number, gradient):
        position = number * BLOCK_SAMPLES + lax.iota(jnp.int32, BLOCK_SAMPLES)
        indices = jnp.where(position < s, permute(key, position % n, n), n)
        weights = jnp.where(position < s, 1 / s.astype(real_dtype(x)), 0)
        batch = objective.minibatch(indices, weights)
        return gradient + batch.gradient(x, batch.predict(x))

    def full(_, gradient):
        # XLA hoists loop-invariant code out of a loop, but not out of a branch.
        return either(is_whole > 0, _full_gradient, keep_last, objective, x, gradient)

    # Loops of zero or one iteration in place of a branch: under vmap both sides of a branch would
    # always be computed.
    is_whole = s // n
    num_blocks = (1 - is_whole) * -(-s // BLOCK_SAMPLES)
    gradient = fori_loop(0, num_blocks, block, jnp.zeros_like(x))
    return fori_loop(0, is_whole, full, gradient)


def _full_gradient(objective: SumOverSamples, x: Array, _: Array) -> Array:
    return objective.gradient(x, objective.predict(x))
