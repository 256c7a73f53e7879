"""Hard thresholding pursuit, full and partial."""

from functools import partial
from typing import Any, ClassVar

import jax.numpy as jnp
from chex import Array, Numeric, PRNGKey

from jaxht._pytree import integer, pytree, static
from jaxht.constraints import Constraint, ModelSubspace, SelectionConstraint, Support, check_selection
from jaxht.objectives.objective import Objective
from jaxht.refit import refit
from jaxht.solvers.iterate import Iterate, evaluate, evaluate_refit
from jaxht.solvers.pursuit import Backtracking, FixedStep, pursuit_step_size
from jaxht.solvers.solver import Solver


@pytree
class HTP(Solver[Objective, Constraint]):
    r"""Hard thresholding pursuit: threshold a gradient step, then refit on the support that it found.

    .. math::
        z = x - \eta \nabla f(x) \quad\text{(S1)}, \qquad F^+ = supp(z, k) \quad\text{(S2)}, \qquad
        x^+ = \arg\min \{ f(x) : supp(x) \subseteq F^+ \} \quad\text{(S3)}

    until F+ = F. It ends with SUPPORT_STABLE, CYCLING, or CONVERGED where x is the same on several supports.

    For matrices of low rank the support is U w V', U and V the singular vectors of the gradient step (SVP-Newton of
    Jain, Meka & Dhillon 2010), M_1 is L, and it ends with CONVERGED.

    Args:
        step_size: eta > 0, a scalar in units of 1 over the Hessian, traced; 0, infinity and NaN end as DIVERGED.
            Termination is guaranteed below 1/M_2k, the restricted smoothness; with a much smaller step the support does
            not change any more, with a much larger one supports can cycle. None: 1/M_1, M_1 the largest curvature along
            one coordinate (``max_i ||a_i||^2`` for least squares): slightly above the guarantee, it recovers far more
            signals than 1/L does, on Gaussian and on correlated designs, and cycles are rare.
        backtrack: bool, static; whether a step that does not decrease f is rejected and retried with half of eta, until
            the support does not change; the next step starts with eta again. Then f decreases in every step, no run
            cycles, and eta may start large, at several times 1/M_1: more steps, for a lower f.

    Raises:
        ValueError: on dense designs, where k is traced without ``Sparse(k, k_max=...)``.

    Cost: a step takes one full gradient, one projection and one refit.

    Source: Foucart 2011; Yuan, Li & Zhang 2018, Algorithm 1 (GraHTP). Backtracking is not in the sources.

    Example:
        >>> import jax, jaxht
        >>> A = jaxht.ensembles.gaussian(jax.random.key(0), n=40, d=60)
        >>> y = A @ jaxht.ensembles.gaussian_signal(jax.random.key(1), d=60, K=4)
        >>> result = jaxht.solve(jaxht.LeastSquares(A, y), jaxht.Sparse(4), jaxht.HTP())
        >>> jaxht.Status(int(result.status)).name, bool(result.value < 1e-8)
        ('SUPPORT_STABLE', True)
    """

    step_size: Numeric | None = None
    backtrack: bool = static(default=False)

    fixed_point_test: ClassVar[bool] = True

    def max_steps(self, constraint: Constraint) -> int:
        """100 steps; most runs end within ten."""
        return 100

    def init(self, objective: Objective, constraint: Constraint, x0: Array, key: PRNGKey | None) -> tuple[Iterate, Any]:
        """S1 and S2 from x0, which need not minimise f on its own support."""
        eta = pursuit_step_size(objective, constraint, self.step_size)
        iterate = evaluate(objective, x0, step_size=eta, refit_converged=jnp.array(False))
        search = Backtracking if self.backtrack else FixedStep
        return search.init(objective, iterate, partial(self.next_support, constraint), eta)

    def step(self, objective: Objective, constraint: Constraint, iterate: Iterate, state: Any) -> tuple[Iterate, Any]:
        """S3 on the support at hand, then S1 and S2 for the next: where it is the same one, no refit is done twice."""
        found = refit(objective, state.support, iterate.x)  # S3
        new = evaluate_refit(objective, found, iterate.counts)
        return state.update(objective, iterate, new, partial(self.next_support, constraint))

    def next_support(
        self, constraint: Constraint, x: Array, gradient: Array, support: ModelSubspace | None, eta: Numeric
    ) -> ModelSubspace:
        """F+, which depends on x alone; ``support`` is the present one, None at the start."""
        z = x - eta * gradient  # S1
        return constraint.project(z, x)[1]  # S2


@pytree
class PHT(Solver[Objective, SelectionConstraint]):
    r"""Partial hard thresholding: as HTP, but at most r coordinates enter the support in a step.

    .. math::
        z = x - \eta \nabla f(x), \quad J = S \cup \{ r \text{ largest } |z_i| \text{ off } S \}, \quad
        S^+ = supp(z_J, k), \qquad x^+ = \arg\min \{ f(x) : supp(x) \subseteq S^+ \}

    With r = k it is HTP. With r = 1 it is orthogonal matching pursuit with replacement, which swaps where ``eta |grad_i
    f(x)| > |x_j|``. At x0 = 0 the first support is that of HTP. It ends as :class:`HTP` does.

    Args:
        r: number of coordinates (or groups) that may enter, an integer, traced.
        step_size: eta > 0, a scalar, traced; None: 1/M_1. See :class:`HTP`.
        backtrack: bool, static; whether a step that does not decrease f is rejected and retried with half of eta, see
            :class:`HTP`.

    Raises:
        ValueError: for :class:`jaxht.LowRank`, which has no coordinates to select; on dense designs, where k is traced
            without ``Sparse(k, k_max=...)``.

    Cost: a step takes one full gradient, one projection, one further selection and one refit.

    Source: Jain, Tewari & Dhillon 2017; Axiotis & Sviridenko 2020, §1.2.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]))
        >>> jaxht.solve(f, jaxht.Sparse(2), jaxht.PHT(r=1), x0=jnp.array([1.0, 1.0, 0.0, 0.0])).x.tolist()
        [0.0, 4.0, 0.0, 3.0]
    """

    r: Numeric = integer(default=1)
    step_size: Numeric | None = None
    backtrack: bool = static(default=False)

    fixed_point_test: ClassVar[bool] = True

    def max_steps(self, constraint: SelectionConstraint) -> int:
        """100 steps."""
        return 100

    def init(
        self, objective: Objective, constraint: SelectionConstraint, x0: Array, key: PRNGKey | None
    ) -> tuple[Iterate, Any]:
        """S+ from x0."""
        check_selection(constraint)
        eta = pursuit_step_size(objective, constraint, self.step_size)
        iterate = evaluate(objective, x0, step_size=eta, refit_converged=jnp.array(False))
        search = Backtracking if self.backtrack else FixedStep
        return search.init(objective, iterate, partial(self.next_support, constraint), eta)

    def step(
        self, objective: Objective, constraint: SelectionConstraint, iterate: Iterate, state: Any
    ) -> tuple[Iterate, Any]:
        """x+ on the support at hand, then the next support."""
        found = refit(objective, state.support, iterate.x)  # x+
        new = evaluate_refit(objective, found, iterate.counts)
        return state.update(objective, iterate, new, partial(self.next_support, constraint))

    def next_support(
        self, constraint: SelectionConstraint, x: Array, gradient: Array, support: Support | None, eta: Numeric
    ) -> Support:
        """S+, from the present support S, None at the start."""
        z = x - eta * gradient
        S = constraint.project(x)[1].mask if support is None else support.mask
        entering = constraint.top_k(jnp.where(S, 0, z), self.r, None).mask
        if support is None:
            entering |= jnp.all(x == 0)
        J = S | entering
        return constraint.project(jnp.where(J, z, 0))[1]  # S+
