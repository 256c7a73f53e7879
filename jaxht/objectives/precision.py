"""The log-likelihood of a Gaussian precision matrix."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxht._checks import check_array, known_values, warn_of_rounding
from jaxht._dataclass import as_dtype, pytree, replace
from jaxht._repr import describe
from jaxht._typing import Array, ArrayDType, Numeric
from jaxht.linalg.eigenvalues import SAFETY, largest_eigenvalue
from jaxht.linalg.full_precision import matmul
from jaxht.linalg.operators import SymmetricOperator
from jaxht.linalg.positive_definite import inverse, logdet, symmetric
from jaxht.objectives.objective import Objective, float_dtype

__all__ = ["GaussianPrecision"]


XI = 1e-2  # xi of the default bounds


@pytree
class GaussianPrecision(Objective):
    r"""The negative log-likelihood of a precision matrix W, the inverse of a covariance, with
    bounded eigenvalues.

    .. math::
        f(W) = -\log\det W + \langle S, W \rangle, \qquad
        lower \cdot I \preceq W \preceq upper \cdot I

    With :class:`jaxht.Edges` and ``HTP(backtrack=True)`` it is GraHTP for graphical models; GraSP,
    OMP (FBS) and FoBa run on it too. On a graph f is minimised by Newton steps, and where a bound
    is active by ADMM; a solution is exactly sparse and symmetric. f is infinite unless W is
    positive definite.

    A run starts at the best diagonal matrix, ``W_ii = 1 / S_ii``. The default step size of HTP is
    1/M_1, M_1 the largest ``S_ii S_jj``: the curvature along edge (i, j) at the start. Solvers that
    do not refit on graphs (IHT) may leave the positive definite matrices, and end as DIVERGED; the
    others end as REFIT_FAILED where a refit failed. Derivatives with respect to S pass through
    refits; they are NaN where a bound is active.

    Args:
        S: (p, p), float32 or float64, traced; the covariance of samples, ``X' X / n`` with centred
            rows; symmetric. Then f is 2/n times the negative log-likelihood, up to a constant.
            Edges are selected by the entries of W: scale variables to unit variance unless they
            have the same unit, and scale W back by ``W_ij / (s_i s_j)``.
        lower: lower bound on the eigenvalues of refits, a scalar, traced; 0 for none. None: ``1 /
            (||S|| + p xi)`` with xi = 0.01. A solution satisfies the bounds to about eps^0.6,
            relatively.
        upper: upper bound on the eigenvalues of refits, a scalar, traced; ``jnp.inf`` for none.
            None: ``(p - lower tr S) / xi``, so that f has a minimiser where S is singular on a
            clique.

    Raises:
        ValueError: from :meth:`prepare`, which every solver calls, for an S that is not square,
            symmetric and of float32 or float64, and for bounds that are negative or not in order.

    Cost: a value p^3 / 3, a gradient 10/3 p^3; a refit about 5 to 10 Newton steps, each of (p +
    k_max)^3 / 3 where k_max is known and below 3 p, else of some 5 to 50 products with the Hessian
    and its preconditioner, 8 p^3 together.

    Source: Yuan, Li & Zhang 2018, Appendix D.2; the bounds are from Lu 2009.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> S = jnp.array([[1.0, 0.5, 0.0], [0.5, 1.0, 0.1], [0.0, 0.1, 1.0]])
        >>> result = jaxht.solve(jaxht.GaussianPrecision(S), jaxht.Edges(1), jaxht.HTP())
        >>> (result.x != 0).tolist()
        [[True, True, False], [True, True, False], [False, False, True]]
    """

    S: Array
    lower: Any = None
    upper: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        """(p, p)."""
        return jnp.shape(self.S)

    @property
    def dtype(self) -> ArrayDType:
        """The dtype of S, or the default float for integers."""
        return float_dtype(jnp.result_type(self.S))

    def prepare(self) -> "GaussianPrecision":
        """This objective with the bounds filled in.

        Raises:
            ValueError: for an S that is no covariance, or bounds out of order, as far as known at
            trace time.
        """
        check_array("S", self.S, "a square matrix")
        warn_of_rounding(self.S)
        if len(self.shape) != 2 or self.shape[0] != self.shape[1] or not self.shape[0]:
            raise ValueError(f"S must be a square matrix; got shape {self.shape}")
        S = as_dtype(self.S, self.dtype)
        p = self.shape[0]
        lower, upper = self.lower, self.upper
        if lower is None:
            norm = SAFETY * largest_eigenvalue(lambda v: matmul(S, v), p, self.dtype)
            lower = 1 / (norm + p * XI)
        if upper is None:
            upper = (p - lower * jnp.trace(S)) / XI
        check_covariance(S, lower, upper)
        return replace(self, S=S, lower=lower, upper=upper)

    def start(self) -> Array:
        """``1 / S_ii`` on the diagonal, within the bounds."""
        return jnp.diag(jnp.clip(1 / jnp.diagonal(self.S), self.lower, self.upper))

    def value(self, x: Array, pred: Array) -> Array:
        """f(x)."""
        return jnp.vdot(self.S, x) - logdet(x)

    def gradient(self, x: Array, pred: Array) -> Array:
        """``S - x^-1``."""
        return symmetric(self.S) - inverse(x)

    def hessian(self, x: Array, pred: Array, tau: Numeric = 0.0) -> SymmetricOperator:
        """``v -> x^-1 v x^-1`` for symmetric v, its diagonal multiplied by 1 + tau: f has no
        quadratic upper bound."""
        return Fisher(inverse(x), tau)

    def majorant(self) -> SymmetricOperator:
        """``v -> v / lower^2``, an upper bound of the Hessian within the bounds."""
        return EigenvalueBound(self.S, self.lower, self.dtype)


def check_covariance(S: Array, lower: Any, upper: Any) -> None:
    """Raise ValueError for an S that is no covariance, or bounds that cannot be, as far as known at
    trace time."""
    if S.dtype not in (jnp.float32, jnp.float64):
        raise ValueError(f"S must be of float32 or float64; got {S.dtype}")
    entries = known_values(S)
    if entries is not None:
        asymmetry = np.abs(entries - entries.T)
        if np.any(asymmetry > 1e-4 * np.max(np.abs(entries), initial=0)):
            raise ValueError("S must be symmetric, such as X.T @ X / n")
        least = float(np.min(np.diagonal(entries), initial=0))
        if least < 0:
            raise ValueError(
                f"the diagonal of S, variances, must be at least 0; got {least:.3g}: S is X.T @ X / n"
            )
    for name, bound in (("lower", lower), ("upper", upper)):
        value = None if jnp.ndim(bound) else known_values(bound)
        is_negative = value is not None and value < 0
        if jnp.ndim(bound) or is_negative:
            raise ValueError(f"{name} must be a number of at least 0; got {describe(bound)}")
    lowest, highest = known_values(lower), known_values(upper)
    if entries is None or lowest is None or highest is None:
        return
    if not lowest < highest and np.all(np.isfinite(entries)):
        raise ValueError(f"lower must be below upper; got {lower} and {upper}")


class Fisher(SymmetricOperator):
    """``v -> sigma v sigma`` for symmetric v, plus tau times its diagonal."""

    def __init__(self, sigma: Array, tau: Numeric) -> None:
        self.sigma = sigma
        damping = tau * self.diagonal()
        super().__init__(
            lambda v: symmetric(matmul(matmul(sigma, v), sigma)) + damping * v,
            sigma.shape,
            sigma.dtype,
        )

    def diagonal(self) -> Array:
        """``sigma_ii sigma_jj``."""
        diagonal = jnp.diagonal(self.sigma)
        return jnp.outer(diagonal, diagonal)


class EigenvalueBound(SymmetricOperator):
    """``v -> v / lower^2``; along single edges the curvature of f at its start, ``S_ii S_jj``."""

    def __init__(self, S: Array, lower: Numeric, dtype: ArrayDType) -> None:
        self.S = S
        self.lower = jnp.asarray(lower, dtype)
        super().__init__(lambda v: v * self.norm(), S.shape, dtype)

    def norm(self) -> Array:
        """``1 / lower^2``."""
        return 1 / jnp.square(self.lower)

    def preconditioner(self) -> Array:
        """``S_ii S_jj``."""
        diagonal = jnp.diagonal(self.S)
        return jnp.outer(diagonal, diagonal)

    def coordinate_norm(self) -> Array:
        """The largest ``S_ii S_jj`` with i different from j."""
        p = self.shape[0]
        is_excluded = jnp.eye(p, dtype=bool) & (p > 1)
        return jnp.max(jnp.where(is_excluded, 0, self.preconditioner()))
