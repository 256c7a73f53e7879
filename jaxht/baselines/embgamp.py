"""Approximate message passing with a Bernoulli-Gauss prior whose parameters are learned."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxht._dataclass import pytree
from jaxht._typing import Array, Leaf, PRNGKey
from jaxht.baselines.soft_threshold import check_unweighted
from jaxht.baselines.state_evolution import l1_transition
from jaxht.constraints import Constraint
from jaxht.linalg.full_precision import machine_eps
from jaxht.linalg.inner_products import common_unit, is_complex, scaled_norm, squares
from jaxht.linalg.normal_equations import ratio
from jaxht.linalg.products import square_norm
from jaxht.objectives.linear_model import LeastSquares
from jaxht.solvers.iterate import Info, Iterate, evaluate
from jaxht.solvers.solver import Solver, Step
from jaxht.solvers.status import Status

# The signal-to-noise ratio from which the variance of the noise is learned.
START_SNR = 100.0
# The noise has at least so many rounding errors of y.
NOISE_ULPS = 16.0


class Prior(NamedTuple):
    """What is learned: x_j is 0, or with probability lambda a Gauss variable, and y has noise.

    Attributes:
        share: lambda.
        mean: theta, of the nonzeros.
        variance: phi, of the nonzeros.
        noise: psi, the variance of an entry of y - A x.
    """

    share: Leaf
    mean: Leaf
    variance: Leaf
    noise: Leaf


class Posterior(NamedTuple):
    """What is known of the entries of x, each (d,).

    Attributes:
        probability: pi, that an entry is not 0.
        mean: gamma, of an entry that is not 0.
        variance: nu, of an entry that is not 0, a scalar.
    """

    probability: Leaf
    mean: Leaf
    variance: Leaf


class EMBGAMPState(NamedTuple):
    """The state of :class:`EMBGAMP`, with y in units of its largest entry, A in units of the root of
    the mean square of its columns' norms, and x in the quotient of both.

    Attributes:
        residual: s, (n,), in units of one over those of y.
        spread: tau_x, the mean variance of the entries of x.
        prior: its parameters.
        unit: the largest entry of y.
        unit_of_A: ``||A||_F / sqrt(d)``.
    """

    residual: Leaf
    spread: Leaf
    prior: Prior
    unit: Leaf
    unit_of_A: Leaf


@pytree
class EMBGAMP(Solver):
    r"""Generalised approximate message passing (GAMP) with a Bernoulli-Gauss prior, whose parameters
    and noise are learned by expectation maximisation: EM-BG-AMP.

    The entries of x are 0 with probability ``1 - lambda``, else normal variables of mean theta and
    variance phi, and y = A x has noise of variance psi. With ``a = ||A||_F^2``:

    .. math::
        \tau_p = \frac an \tau_x, \qquad s^+ = \frac{y - A x + \tau_p s}{\tau_p + \psi}, \qquad
        \tau_r = \frac da (\tau_p + \psi), \qquad r = x + \tau_r A^* s^+

    x+ is the mean of x given ``r = x + N(0, tau_r)``, tau_x the mean of its variances. With pi_j the
    probability that x_j is not 0, and gamma_j, nu its mean and variance then:

    .. math::
        \lambda = \frac1d \sum_j \pi_j, \quad
        \theta = \frac{\sum_j \pi_j \gamma_j}{\sum_j \pi_j}, \quad
        \phi = \frac{\sum_j \pi_j (|\gamma_j - \theta|^2 + \nu)}{\sum_j \pi_j}, \quad
        \psi^+ = \frac{\psi^2 \|s\|^2}{n} + \frac{\tau_p \psi}{\tau_p + \psi}

    Where nonzeros are not all of one magnitude it recovers more of them than :class:`AMP` and l1
    minimisation, see :func:`l1_transition`. Entries off the support are small, and need not be 0. It
    is meant for A with independent entries of mean 0, of any scale, and may diverge for others. It
    ends with FINISHED where all that is left of y - A x is rounding; where there is noise, x may go
    on moving by some ulps, and ``Stop(rtol=1e-5)`` ends a run before. It has no arguments.

    Raises:
        ValueError: for objectives other than least squares of a vector without weights and ridge,
            and constraints other than ``Sparse(d)``, which leaves x free.

    Cost: a step takes two products; the first also the norms of the columns.

    Source: Vila & Schniter 2011 (EM-BG-AMP) and 2013 (EM-GM-AMP, here with one normal variable);
    GAMP, here with scalar variances: Rangan 2011. In the first two the update of phi takes theta of
    the step before.

    Example:
        >>> import jax, jax.numpy as jnp, jaxht
        >>> A = jaxht.ensembles.gaussian(jax.random.key(0), 100, 200)
        >>> x = jaxht.ensembles.gaussian_signal(jax.random.key(1), 200, 30)
        >>> result = jaxht.solve(
        ...     jaxht.LeastSquares(A, A @ x), jaxht.Sparse(200), jaxht.baselines.EMBGAMP()
        ... )
        >>> bool(jnp.max(jnp.abs(result.x - x)) < 1e-3)
        True
    """

    fixed_point_test = True
    takes_complex = True
    is_penalised = True
    step_limit = 1_000

    def init(
        self, objective: LeastSquares, constraint: Constraint, x0: Array, key: PRNGKey | None
    ) -> Step[EMBGAMPState]:
        """The prior from which it is learned: as many nonzeros as l1 minimisation recovers."""
        check_unweighted("EMBGAMP", objective, constraint)
        is_zero = jnp.all(objective.target == 0)
        unit = jnp.where(is_zero, 1, common_unit(objective.target)[0])
        y = objective.target / unit
        n, d = objective.design.shape
        size = scaled_norm(objective.design.column_norms())
        unit_of_A = jnp.where(size > 0, size / d**0.5, 1)
        rho = float(l1_transition(n / d, is_complex=is_complex(objective)).rho)
        share = jnp.full_like(size, min(rho * n / d, 0.5))
        power = square_norm(y)
        noise = power / (n * (START_SNR + 1))
        variance = (power - n * noise) / (d * share)
        prior = Prior(share, jnp.zeros((), y.dtype), variance, noise)
        state = EMBGAMPState(jnp.zeros_like(y), share * variance, prior, unit, unit_of_A)
        return evaluate(objective, x0), state, Info()

    def step(
        self, objective: LeastSquares, constraint: Constraint, iterate: Iterate, state: EMBGAMPState
    ) -> Step[EMBGAMPState]:
        """Estimate A x, estimate x, and learn the prior."""
        s, tau_x, prior, unit, unit_of_A = state
        y, psi = objective.target / unit, prior.noise
        unit_of_x = unit / unit_of_A
        n, d = objective.design.shape

        tau_p = d / n * tau_x
        p = iterate.pred / unit - tau_p * s
        tau_r = tau_p + psi
        s = ratio(y - p, tau_r)
        r = iterate.x / unit_of_x + tau_r * objective.design.rmatvec(s / unit_of_A)

        posterior = infer(prior, r, tau_r)
        pi, gamma, nu = posterior
        new = evaluate(objective, unit_of_x * (pi * gamma))
        tau_x = jnp.mean(pi * (nu + (1 - pi) * squares(gamma)))

        # No product of two variances, which may over- or underflow.
        noise = square_norm(psi * s) / n + tau_p * ratio(psi, tau_p + psi)
        least = (NOISE_ULPS * machine_eps(y)) ** 2 * square_norm(y) / n
        prior = learn(posterior, jnp.maximum(noise, least))
        status = jnp.where(noise <= least, Status.FINISHED, Status.RUNNING)
        state = EMBGAMPState(s, tau_x, prior, unit, unit_of_A)
        return new, state, Info(full_gradients=1, status=status)


def infer(prior: Prior, r: Array, tau: Array) -> Posterior:
    """What is known of x given ``r = x + N(0, tau)``."""
    share, theta, phi, _ = prior
    total = phi + tau
    gamma = r * ratio(phi, total) + theta * ratio(tau, total)
    # The logarithms of both densities of r, each plus that of pi.
    powers = ratio(squares(r), tau) - ratio(squares(r - theta), total)
    log_odds = powers + jnp.log(ratio(tau, total))
    if not is_complex(r):
        log_odds = log_odds / 2
    prior_odds = jnp.log(share) - jnp.log1p(-share)
    return Posterior(jax.nn.sigmoid(log_odds + prior_odds), gamma, tau * ratio(phi, total))


def learn(posterior: Posterior, noise: Array) -> Prior:
    """The most likely prior."""
    pi, gamma, nu = posterior
    eps = machine_eps(pi)
    share = jnp.clip(jnp.mean(pi), eps, 1 - eps)
    total = jnp.sum(pi)
    theta = ratio(jnp.sum(pi * gamma), total)
    phi = ratio(jnp.sum(pi * (squares(gamma - theta) + nu)), total)
    return Prior(share, theta, phi, noise)
