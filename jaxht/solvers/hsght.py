"""Hybrid stochastic gradient hard thresholding."""

from dataclasses import replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from chex import Array, Numeric, PRNGKey
from jax import lax

from jaxht._pytree import integer, pytree
from jaxht.constraints import Constraint
from jaxht.objectives.objective import SumOverSamples, check_sum
from jaxht.solvers.iterate import Iterate
from jaxht.solvers.sampling import init_stochastic, permute
from jaxht.solvers.solver import Solver


@pytree
class HSGHT(Solver[SumOverSamples, Constraint]):
    r"""Gradients of batches that grow by a factor, from a few samples to all, with or without momentum (AHSG-HT).

    .. math::
        x_{t+1} = H_k\Big(x_t - \eta \tfrac{1}{s_t} \sum_{i \in B_t} \nabla f_i(x_t) + \nu (x_t - x_{t-1})\Big),
        \qquad |B_t| = s_t = \min(n, \lceil \tau g^t \rceil)

    B_t is drawn without replacement, so that from s_t = n on this is :class:`jaxht.IHT`: FG-HT, and with momentum its
    heavy ball.

    Args:
        step_size: eta > 0, traced; on the scale of ``f = (1/n) sum_i f_i``, see :class:`jaxht.HTSVRG`. None:
            ``1 / (2 L)``, L that of every f_i (Theorem 2).
        momentum: nu in [0, 1), traced; above 0 this is AHSG-HT. None is 0 without the cost of remembering x_{t-1}.
        batch_size: tau, the first batch, traced.
        batch_growth: g >= 1, traced, the paper's 1 / omega. It asks for omega near 1, which depends on the condition
            number; at g = 1.1, n = 20 000 samples are drawn within 80 updates.
        inner_steps: updates in a step of the runner, which looks at f after each, traced. None: as many as fit into one
            pass over n samples, and at least one.

    Cost an update: s_t sample gradients and one projection; time goes with s_t rounded up to a multiple of 256, or of
    all samples at once where s_t = n, which counts as a full gradient.

    Source: Zhou, Yuan & Feng 2018, Algorithm 1: (O1), and with momentum (O2).
    """

    step_size: Numeric | None = None
    momentum: Numeric | None = None
    batch_size: Numeric = integer(default=1)
    batch_growth: Numeric = 1.1
    inner_steps: Numeric | None = integer(default=None)

    fixed_point_test: ClassVar[bool] = True  # once the batch is all samples
    needs_key: ClassVar[bool] = True

    def max_steps(self, constraint: Constraint) -> int:
        """1 000."""
        return 1_000

    def init(
        self, objective: SumOverSamples, constraint: Constraint, x0: Array, key: PRNGKey | None
    ) -> tuple[Iterate, Any]:
        """The step size; x_{-1} = x_0."""
        check_sum(objective)
        step_size = 0.5 / objective.sample_smoothness() if self.step_size is None else self.step_size
        iterate = init_stochastic(objective, x0, step_size).move(x0, skip_fixed_point_test=jnp.array(True))
        return iterate, (step_size, key, jnp.zeros((), jnp.int32), None if self.momentum is None else x0)

    def step(
        self, objective: SumOverSamples, constraint: Constraint, iterate: Iterate, state: Any
    ) -> tuple[Iterate, Any]:
        """Some updates."""
        step_size, key, first, x_prev = state
        n = objective.num_samples

        def more(carry: Any) -> Array:
            t, drawn = carry[:2]
            if self.inner_steps is not None:
                return t < first + self.inner_steps
            return (t == first) | (drawn <= n - self._size(t, n))

        def update(carry: Any) -> Any:
            t, drawn, counts, x, x_prev = carry
            s = self._size(t, n)
            z = x - step_size * _batch_gradient(objective, x, s, jax.random.fold_in(key, t))
            if self.momentum is not None:
                z, x_prev = z + self.momentum * (x - x_prev), x
            counts = counts.plus(full_gradients=s // n, sample_gradients=jnp.where(s < n, s, 0), projections=1)
            return t + 1, drawn + s, counts, constraint.project(z, x)[0], x_prev

        carry = first, jnp.zeros((), jnp.int32), iterate.counts, iterate.x, x_prev
        t, _, counts, x, x_prev = lax.while_loop(more, update, carry)
        drawn = self._size(first, n) < n
        return replace(iterate.move(x, skip_fixed_point_test=drawn), counts=counts), (step_size, key, t, x_prev)

    def _size(self, t: Array, n: int) -> Array:
        """s_t."""
        growth = jnp.asarray(self.batch_growth)
        tau, t = (jnp.asarray(number).astype(growth.dtype) for number in (self.batch_size, t))
        size = jnp.ceil(tau * growth**t)
        return jnp.clip(jnp.minimum(size, n).astype(jnp.int32), 1, n)


def _batch_gradient(objective: SumOverSamples, x: Array, s: Array, key: PRNGKey) -> Array:
    """The mean gradient of s (traced) samples without replacement, in blocks of BLOCK; that of f where s = n."""
    n = objective.num_samples

    def block(number: Array, gradient: Array) -> Array:
        position = number * BLOCK + lax.iota(jnp.int32, BLOCK)
        indices = jnp.where(position < s, permute(key, position % n, n), n)
        batch = objective.minibatch(indices, jnp.where(position < s, 1 / s.astype(x.dtype), 0))
        return gradient + batch.gradient(x, batch.predict(x))

    def full(_: Array, gradient: Array) -> Array:
        # XLA moves out of a loop what does not change in it, but not out of a branch.
        return lax.cond(whole > 0, lambda: objective.gradient(x, objective.predict(x)), lambda: gradient)

    # Loops of no or one round, in place of a branch: of a branch, lanes of a vmap would always take both sides.
    whole = s // n
    gradient = lax.fori_loop(0, (1 - whole) * ((s + BLOCK - 1) // BLOCK), block, jnp.zeros_like(x))
    return lax.fori_loop(0, whole, full, gradient)


BLOCK = 256
