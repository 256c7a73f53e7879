"""Approximate message passing with soft thresholding."""

from typing import NamedTuple

import jax.numpy as jnp

from jaxht._dataclass import pytree
from jaxht._typing import Array, Leaf, Numeric, PRNGKey
from jaxht.baselines.soft_threshold import check_unweighted, soft_threshold
from jaxht.baselines.state_evolution import l1_transition
from jaxht.constraints import Constraint
from jaxht.linalg.inner_products import is_complex, scaled_norm
from jaxht.objectives.linear_model import LeastSquares
from jaxht.solvers.iterate import Info, Iterate, evaluate
from jaxht.solvers.solver import Solver, Step

# The factor of the damping beta after a step that made the residual longer than of late; the least
# beta.
DAMPING_AFTER_GROWTH = 0.9
LEAST_DAMPING = 0.5
# How fast a peak of the norm of the residual is forgotten, per step. Recovered of 64 signals,
# without damping and with it: Gaussian A, d = 500, n/d = .9, K/n = .25 and .55: 57 and 60, 64 and 64;
# partial DCT, d = 256, n/d = .5 and .8, near the transition: 54 and 59 both times. With 0, where each
# growth counts, 31 and 11 of the latter.
PEAK_DECAY = 0.995


class AMPState(NamedTuple):
    """The state of :class:`AMP`.

    Attributes:
        residual: z, (n,).
        damping: beta, a scalar.
        peak: p, a scalar.
    """

    residual: Leaf
    damping: Leaf
    peak: Leaf


@pytree
class AMP(Solver):
    r"""Approximate message passing: iterative soft thresholding whose residual has a further term,
    which makes its error Gaussian.

    .. math::
        x^+ = (1 - \beta) x + \beta S_{\tau \sigma}(x + A^* z), \qquad
        \sigma = \|z\| / \sqrt n, \qquad z^+ = y - A x^+ + \frac{b}{n} z

    S is soft thresholding, and b the sum of its derivatives: the number of nonzeros of x+, for
    complex numbers with ``1 - tau sigma / (2 |v_i|)`` in place of 1, v the argument of S. It is
    meant for Gaussian A of columns of about norm 1, and similar ones, and may diverge for others.
    :func:`predict_amp` predicts its error, and :func:`l1_transition` how sparse signals must be.

    The damping beta is 1 as long as z becomes shorter, as it does for large d. Where n/d and b/n are
    near 1 the largest singular values of a smaller A make steps unstable: beta is multiplied by 0.9,
    down to 0.5, after each step that made ``||z||^2`` larger than ``p = max(0.99 p, ||z||^2)``, about
    its largest value of the last hundred steps. Where rows of A are orthogonal ``||z||`` rises and
    falls, and a rise alone is no sign of instability.

    Args:
        tau: the threshold in units of sigma, a scalar > 0, traced. None: the one that is best for
            the ratio n / d, see :func:`l1_transition`.

    Raises:
        ValueError: for objectives other than least squares of a vector without weights and ridge,
            and constraints other than ``Sparse(d)``, which leaves x free.

    Cost: a step takes two products.

    Source: Donoho, Maleki & Montanari 2009; complex numbers: Maleki, Anitori, Yang & Baraniuk 2013;
    damping by what a step did: Vila, Schniter, Rangan, Krzakala & Zdeborova 2015.

    Example:
        >>> import jax, jax.numpy as jnp, jaxht
        >>> A = jaxht.ensembles.gaussian(jax.random.key(0), 100, 200)
        >>> x = jnp.zeros(200).at[:10].set(1.0)
        >>> result = jaxht.solve(jaxht.LeastSquares(A, A @ x), jaxht.Sparse(200), jaxht.baselines.AMP())
        >>> bool(jnp.max(jnp.abs(result.x - x)) < 1e-3)
        True
    """

    tau: Numeric | None = None

    fixed_point_test = True
    takes_complex = True
    is_penalised = True
    step_limit = 1_000

    def init(
        self, objective: LeastSquares, constraint: Constraint, x0: Array, key: PRNGKey | None
    ) -> Step[AMPState]:
        """The residual at x0, without a further term."""
        check_unweighted("AMP", objective, constraint)
        iterate = evaluate(objective, x0)
        residual = objective.target - iterate.pred
        damping = jnp.ones_like(iterate.value)
        return iterate, AMPState(residual, damping, scaled_norm(residual)), Info()

    def step(
        self, objective: LeastSquares, constraint: Constraint, iterate: Iterate, state: AMPState
    ) -> Step[AMPState]:
        """Threshold, then the residual with its further term."""
        z = state.residual
        n, d = objective.design.shape
        tau = self.tau
        if tau is None:
            tau = float(l1_transition(n / d, is_complex=is_complex(objective)).tau)
        norm = scaled_norm(z)
        threshold = tau * norm / n**0.5
        v = iterate.x + objective.design.rmatvec(z)
        target = soft_threshold(v, threshold)
        damped = iterate.x + state.damping * (target - iterate.x)
        new = evaluate(objective, jnp.where(state.damping < 1, damped, target))

        size = jnp.abs(v)
        derivatives = jnp.ones_like(size)
        if is_complex(objective):
            derivatives = 1 - threshold / (2 * jnp.where(size > 0, size, 1))
        b = jnp.sum(jnp.where(size > threshold, derivatives, 0))
        z_next = objective.target - new.pred + b / n * z
        peak = jnp.maximum(PEAK_DECAY * state.peak, norm)
        has_grown = scaled_norm(z_next) > peak
        less = jnp.maximum(DAMPING_AFTER_GROWTH * state.damping, LEAST_DAMPING)
        damping = jnp.where(has_grown, less, state.damping)
        return new, AMPState(z_next, damping, peak), Info(full_gradients=1)
