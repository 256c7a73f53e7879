"""Thresholding with the settings that Maleki and Donoho found best: recovery without a sparsity to
choose."""

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax.scipy.special import ndtri

from jaxht._dataclass import pytree
from jaxht._typing import Array, Leaf, Numeric, PRNGKey
from jaxht.baselines.soft_threshold import check_unweighted
from jaxht.constraints import Constraint
from jaxht.linalg.inner_products import is_complex, real_dtype
from jaxht.objectives.linear_model import LeastSquares
from jaxht.solvers.iterate import Info, Iterate, check_step_size, evaluate
from jaxht.solvers.solver import Solver, Step

__all__ = ["TunedIHT", "tuned_sparsity"]

# The median of |z|, in standard deviations of a normal z, as the source rounds it.
NORMAL_MEDIAN = 0.6745
# From this n / d on the source has one false-alarm rate, found apart.
LARGE_DELTA = 0.85


class TunedIHTState(NamedTuple):
    """The state of :class:`TunedIHT`.

    Attributes:
        step_size: kappa over the square of the mean norm of the columns.
    """

    step_size: Leaf


@pytree
class TunedIHT(Solver):
    r"""Iterative hard thresholding at a multiple of the noise, by the settings that are best for
    the ratio n / d: there is no sparsity to choose.

    .. math::
        c = A^* (y - A x), \qquad v = x + \kappa c, \qquad
        \sigma = \kappa \frac{\mathrm{median} |c_j|}{0.6745}, \qquad
        x^+_j = v_j \text{ where } |v_j| \ge \lambda \sigma, \text{ else } 0

    Off the support of the signal c is about normal, and a share FAR of normal variables exceeds the
    threshold: ``lambda = Phi^{-1}(1 - FAR / 2)``. Of complex numbers ``|c_j|`` has the median
    ``sigma sqrt(ln 2)`` and exceeds ``sigma sqrt(ln(1 / FAR))`` with chance FAR; these take the
    place of 0.6745 sigma and lambda sigma. A is meant to have columns of about equal norms: A and y
    are divided by their mean.

    A share FAR of the entries of x is noise, rounding errors where y has none. Where their support
    does not settle, a run ends at its limit: give ``Stop(target_value=...)``.

    Args:
        false_alarm_rate: FAR in (0, 1), a scalar, traced; 1 keeps all entries. None: ``.0465
            delta^2 + .0041 delta + .0012`` with ``delta = n / d``, and .04 from delta = .85 on.
        relaxation: kappa > 0, a scalar, traced.

    Raises:
        ValueError: for objectives other than least squares of a vector without weights and ridge,
            and constraints other than ``Sparse(d)``, which leaves x free.

    Cost: a step takes two products and a median; once the norms of the columns, which are d products
    for an operator that does not have them.

    Source: Maleki & Donoho 2010, "recommended IHT", with FAR as in the authors' program; complex
    numbers are not in the source.

    Example:
        >>> import jax, jax.numpy as jnp, jaxht
        >>> A = jaxht.ensembles.gaussian(jax.random.key(0), 100, 200)
        >>> x = jnp.zeros(200).at[:8].set(1.0)
        >>> f, solver = jaxht.LeastSquares(A, A @ x), jaxht.baselines.TunedIHT()
        >>> result = jaxht.solve(f, jaxht.Sparse(200), solver)
        >>> bool(jnp.max(jnp.abs(result.x - x)) < 1e-4)
        True
    """

    false_alarm_rate: Numeric | None = None
    relaxation: Numeric = 0.65

    fixed_point_test = True
    takes_complex = True
    is_penalised = True
    step_limit = 300

    def init(
        self, objective: LeastSquares, constraint: Constraint, x0: Array, key: PRNGKey | None
    ) -> Step[TunedIHTState]:
        """The step size."""
        check_unweighted("TunedIHT", objective, constraint)
        step_size = self.relaxation / jnp.mean(objective.design.column_norms()) ** 2
        info = Info(status=check_step_size(step_size))
        return evaluate(objective, x0), TunedIHTState(step_size), info

    def step(
        self,
        objective: LeastSquares,
        constraint: Constraint,
        iterate: Iterate,
        state: TunedIHTState,
    ) -> Step[TunedIHTState]:
        """A step along c, then threshold."""
        c = objective.design.rmatvec(objective.target - iterate.pred)
        v = iterate.x + state.step_size * c
        noise = state.step_size * jnp.median(jnp.abs(c))
        threshold = noise * self._threshold_in_medians(objective)
        x_next = jnp.where(jnp.abs(v) >= threshold, v, 0)
        return evaluate(objective, x_next), state, Info(full_gradients=1)

    def _threshold_in_medians(self, objective: LeastSquares) -> Array:
        """What a share FAR of magnitudes exceeds, in units of their median."""
        rate = self.false_alarm_rate
        if rate is None:
            n, d = objective.design.shape
            rate = _tuned_rate(n / d)
        rate = jnp.minimum(jnp.asarray(rate, real_dtype(objective)), 1)
        if is_complex(objective):
            return jnp.sqrt(-jnp.log(rate) / math.log(2))
        return -ndtri(rate / 2) / NORMAL_MEDIAN  # 1 - rate / 2 may round to 1


def _tuned_rate(delta: float) -> float:
    """FAR, from n / d."""
    if delta >= LARGE_DELTA:
        return 0.04
    return 0.0465 * delta**2 + 0.0041 * delta + 0.0012


def tuned_sparsity(n: int, d: int) -> int:
    r"""The k to give to two-stage thresholding where the sparsity is not known: as many nonzeros as
    it recovers at this n / d.

    .. math::
        k = \lfloor (0.044417 \delta^2 + 0.34142 \delta + 0.14844) \, n \rfloor, \qquad
        \delta = n / d

    "Recommended TST", the best of the family of CoSaMP and subspace pursuit, is
    ``solve(f, Sparse(tuned_sparsity(n, d)), CoSaMP(expand=1))``: least squares on the support of x
    and the k largest entries of ``A^* (y - A x)``, pruned to k. Of a signal of fewer nonzeros the
    others are 0 up to rounding, and their support need not settle: give ``Stop(target_value=...)``.

    Args:
        n: number of samples, an int.
        d: number of columns, an int.

    Returns:
        k, an int, at least 1.

    Raises:
        ValueError: for n or d below 1.

    Cost: none.

    Source: Maleki & Donoho 2010, "recommended TST", with the formula of the authors' program.

    Example:
        >>> from jaxht.baselines import tuned_sparsity
        >>> tuned_sparsity(400, 800)
        132
    """
    if n < 1 or d < 1:
        raise ValueError(f"n and d must be at least 1; got {n} and {d}")
    delta = n / d
    rho = 0.044417 * delta**2 + 0.34142 * delta + 0.14844
    return min(max(math.floor(rho * n), 1), d)
