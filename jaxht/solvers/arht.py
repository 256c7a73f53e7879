"""Adaptively regularised hard thresholding."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from optax.tree_utils import tree_where

from jaxht._checks import check_count
from jaxht._dataclass import at_least, integer, pytree, static
from jaxht._loops import cond_of_lanes
from jaxht._typing import Array, Leaf, Numeric, PRNGKey
from jaxht.constraints import SelectionConstraint, check_selection
from jaxht.linalg.full_precision import machine_eps
from jaxht.linalg.inner_products import real_dtype, real_vdot
from jaxht.objectives.objective import Objective
from jaxht.solvers.iterate import Info, Iterate, evaluate
from jaxht.solvers.omp import complete_selection
from jaxht.solvers.selection import best_swap, count
from jaxht.solvers.solver import Solver, Step
from jaxht.solvers.status import Status
from jaxht.subproblems import Refit, refit, subproblem

# A decrease of g_R below this many units in the last place of its value is none.
NO_DECREASE_ULPS = 8


class Core(NamedTuple):
    """A core: a run with a regulariser of its own.

    Attributes:
        S: bool, the support.
        R: bool, the regularised coordinates.
        x: the minimiser of g_R on S.
        pred: its prediction.
        ended: bool, whether the core has reached the guess or is stuck.
    """

    S: Leaf
    R: Leaf
    x: Leaf
    pred: Leaf
    ended: Leaf


class Bisection(NamedTuple):
    """The bisection for the optimum.

    Attributes:
        low: a lower bound.
        guess: the current guess.
        span: |f(0) - lower|.
        num_steps: int32, the steps taken for this guess.
    """

    low: Leaf
    guess: Leaf
    span: Leaf
    num_steps: Leaf


class ARHTState(NamedTuple):
    """The state of :class:`ARHT`.

    Attributes:
        key: of the next draws.
        rho: the weight of the regulariser.
        minimum: the minimiser of f on the support of the start.
        first: the cores before their first step.
        cores: the cores.
        bisection: its current guess of the optimum.
    """

    key: Leaf
    rho: Leaf
    minimum: Refit
    first: Core
    cores: Core
    bisection: Bisection


@pytree
class ARHT(Solver):
    r"""Adaptively regularised hard thresholding: swaps as in OMPR, on f plus a regulariser that is
    removed gradually.

    .. math::
        g_R(x) = f(x) + \frac{\rho}{2} ||x_R||^2, \quad
        i = \arg\max_{i \notin S} |\nabla_i g_R(x)|, \quad j = \arg\min_{j \in S} |x_j|, \quad
        x' = \arg\min \{ g_R : supp \subseteq S \cup \{i\} \setminus \{j\} \}

    A *core* starts with all coordinates in R and the start's support S, and is given a guess of the
    optimum. Where ``g_R(x) - g_R(x') >= (c/k) (g_R(x) - guess)`` it takes the swap; else it draws a
    coordinate i of R with probability proportional to ``x_i^2``, and removes it from R. A core ends
    where ``min_S f <= guess``, or where it is stuck. Several cores with their own draws run at the
    same time, and a bisection finds the least guess that one of them reaches. A step of this solver
    is one step of every core; where a core has reached the guess, or all are stuck, the next guess
    begins.

    The defaults are those of the source's experiments; :meth:`theory` gives those of its theorem.
    Unlike in the source, x is the minimiser of f (not g) on the best support of all cores, so that
    f(x) never exceeds its value at the start: the support of x0, completed by orthogonal matching
    pursuit. It ends with FINISHED.

    It selects by magnitude: standardise columns of different units first,
    :func:`jaxht.standardize`.

    Args:
        rtol: tolerance of the bisection, a scalar, traced: it ends at ``eps = rtol |f(0) -
            lower|``, f(0) the value at the objective's own start.
        num_cores: number of cores that run at the same time, an int, static.
        progress: c, a scalar, traced.
        core_steps: T, number of swaps and draws of a core, an integer, traced. None, as in the
            source's experiments: a core is stuck where no swap makes progress and half of S is not
            regularised any more.
        rho: weight of the regulariser, a scalar, traced, in units of the Hessian. None: twice the
            largest curvature along one coordinate, which bounds rho_2^+.
        lower: a lower bound of f, a scalar, traced; 0 is none for :class:`jaxht.Poisson`,
            :class:`jaxht.Gamma` and precision matrices. Where f(x) falls below it by more than eps,
            ``f(x) - |f(0) - lower|`` takes its place.

    Raises:
        ValueError: for :class:`jaxht.TreeSparse`, whose entries cannot leave one by one, and for
            :class:`jaxht.LowRank`, which has no coordinates to select; from
            :func:`jaxht.solve`, if no key is given.

    Cost: a step takes, for each core, one full gradient and two refits.

    Source: Axiotis & Sviridenko 2020, Algorithms 5 and 6; §6.3 for the experiments.

    Example:
        >>> import jax, jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]))
        >>> arht = jaxht.ARHT(num_cores=2)
        >>> jaxht.solve(f, jaxht.Sparse(2), arht, key=jax.random.key(0)).x.tolist()
        [0.0, 4.0, 0.0, 3.0]
    """

    rtol: Numeric = 1e-3
    num_cores: int = static(default=20)
    progress: Numeric = 1e-3
    core_steps: Numeric | None = integer(default=None)
    rho: Numeric | None = None
    lower: Numeric = at_least(-math.inf, default=0.0)

    needs_key = True
    takes_complex = True
    step_limit = 10_000  # the bisection ends before

    @staticmethod
    def theory(k: int, d: int, rtol: float = 1e-3) -> "ARHT":
        """The setting of Theorem 3.1: c = 1, ``T = 2 k ln(3/rtol)`` and ``5 ln(6 d ln(3/rtol))``
        cores, since Algorithm 6 passes eps/3 to the algorithms that have these numbers.

        Args:
            k: sparsity, an int.
            d: number of coordinates, an int.
            rtol: tolerance of the bisection, relative to ``|f(0) - lower|``.
        """
        num_cores = 5 * math.log(6 * d * math.log(3 / rtol))
        core_steps = 2 * k * math.log(3 / rtol)
        return ARHT(
            rtol=rtol,
            num_cores=math.ceil(num_cores),
            progress=1.0,
            core_steps=math.ceil(core_steps),
        )

    def init(
        self, objective: Objective, constraint: SelectionConstraint, x0: Array, key: PRNGKey | None
    ) -> Step[ARHTState]:
        """The cores on the support of x0, and the first guess."""
        check_selection(constraint, exchanges=True)
        check_count("num_cores", self.num_cores)
        # Where nothing is better than x0, x0 minimises f on its support.
        iterate = evaluate(objective, x0)
        rho = self.rho
        if rho is None:
            rho = 2 * objective.majorant().coordinate_norm()
        S, num_gradients = complete_selection(objective, constraint, x0)
        support = constraint.support(S)
        R = jnp.ones_like(S)
        no_ridge = jnp.zeros(x0.shape, real_dtype(x0))
        ridges = jnp.stack([no_ridge, _ridge(constraint, R, rho)])
        both = jax.vmap(lambda ridge: refit(objective, support, x0, ridge))(ridges)
        minimum = jax.tree.map(lambda leaf: leaf[0], both)
        regularised = jax.tree.map(lambda leaf: leaf[1], both)
        core = Core(S, R, regularised.x, regularised.pred, jnp.array(False))

        def repeat(leaf):
            return jnp.broadcast_to(leaf, (self.num_cores, *leaf.shape))

        cores = jax.tree.map(repeat, core)

        value = objective.value(minimum.x, minimum.pred)
        origin = evaluate(objective, objective.start())
        span = jnp.abs(origin.value - self.lower)
        low = self._lower(jnp.asarray(self.lower, real_dtype(x0)), value, span)
        bisection = Bisection(
            low=low,
            guess=(low + value) / 2,
            span=span,
            num_steps=jnp.zeros((), jnp.int32),
        )
        info = Info(full_gradients=num_gradients)
        return iterate, ARHTState(key, rho, minimum, cores, cores, bisection), info

    def step(
        self,
        objective: Objective,
        constraint: SelectionConstraint,
        iterate: Iterate,
        state: ARHTState,
    ) -> Step[ARHTState]:
        """A step of every core that has not ended; where one has reached the guess or all are
        stuck, the next guess."""
        bisection = state.bisection
        key, *keys = jax.random.split(state.key, self.num_cores + 1)

        def stay(core, key):
            return core, state.minimum

        def move(core, key):
            return self._core_step(objective, constraint, state.rho, bisection, core, key)

        def advance_core(core, key):
            return cond_of_lanes(core.ended, stay, move, core, key)

        problem = subproblem(objective, constraint)
        advance_cores = problem.map_refits(advance_core, batch_size=self.num_cores)
        cores, minima = advance_cores(state.cores, jnp.stack(keys))

        def prepend(first, others):
            return jnp.concatenate([first[None], others])

        minima = jax.tree.map(prepend, state.minimum, minima)
        values = jax.vmap(objective.value)(minima.x, minima.pred)
        least = jnp.argmin(values)
        best = jax.tree.map(lambda leaf: leaf[least], minima)
        new = evaluate(objective, best)
        accepted = ~(iterate.value <= new.value)  # NaN is accepted
        found = tree_where(accepted, new, iterate)

        eps = self.rtol * bisection.span
        reached = jnp.min(values) <= bisection.guess
        all_ended = jnp.all(cores.ended)
        failed = all_ended & ~reached & (found.value > bisection.guess + eps / 3)
        low = jnp.where(failed, bisection.guess, bisection.low)
        low = self._lower(low, found.value, bisection.span)
        is_next = reached | all_ended
        next_bisection = bisection._replace(
            low=low,
            guess=jnp.where(is_next, (low + found.value) / 2, bisection.guess),
            num_steps=jnp.where(is_next, 0, bisection.num_steps + 1),
        )
        info = Info(
            full_gradients=count(~state.cores.ended),
            status=jnp.where(found.value - low <= eps, Status.FINISHED, Status.RUNNING),
            accepted=accepted,
            refit_status=best.status,
        )
        state = state._replace(
            key=key,
            cores=tree_where(is_next, state.first, cores),
            bisection=next_bisection,
        )
        return found, state, info

    def _core_step(
        self,
        objective: Objective,
        constraint: SelectionConstraint,
        rho: Array,
        bisection: Bisection,
        core: Core,
        key: PRNGKey,
    ) -> tuple[Core, Refit]:
        """The core after a swap or a draw, and a refit: of f on the new S, or after a draw of g on
        the old one."""
        S, R, x, pred, _ = core
        ridge = _ridge(constraint, R, rho)

        def g_R(x, pred):
            return objective.value(x, pred) + real_vdot(x, ridge * x) / 2

        size = constraint.scores(x)
        descent = constraint.feasible_direction(-objective.gradient(x, pred) - ridge * x)
        S_new = best_swap(constraint, S, constraint.scores(descent), size)
        swapped = refit(objective, constraint.support(S_new), x, ridge)

        value = g_R(x, pred)
        k = jnp.asarray(constraint.limit).astype(value.dtype)
        required = self.progress / k * (value - bisection.guess)
        rounding = NO_DECREASE_ULPS * machine_eps(x) * jnp.abs(value)
        decrease = value - g_R(swapped.x, swapped.pred)
        accepted = decrease >= jnp.maximum(required, rounding)

        candidates = S & R & (size > 0)
        log_chance = jnp.where(candidates, 2 * jnp.log(size), -jnp.inf).ravel()
        drawn = jax.random.categorical(key, log_chance).astype(jnp.int32)
        is_drawn = jnp.arange(S.size, dtype=jnp.int32) == drawn
        R_new = R & ~(is_drawn.reshape(S.shape) & candidates)

        stuck = ~jnp.any(candidates)
        out_of_steps = jnp.array(False)
        if self.core_steps is None:
            stuck |= 2 * count(S & ~R) >= count(S)
        else:
            out_of_steps = bisection.num_steps + 1 >= self.core_steps
        # One refit serves both: of f on the new S, or of g with the new R on the old one.
        S = jnp.where(accepted, S_new, S)
        ridge = jnp.where(accepted, 0, _ridge(constraint, R_new, rho))
        x = jnp.where(accepted, swapped.x, x)
        other = refit(objective, constraint.support(S), x, ridge)
        new = tree_where(accepted, swapped, other)
        core = Core(
            S=S,
            R=jnp.where(accepted, R, R_new),
            x=new.x,
            pred=new.pred,
            ended=(~accepted & stuck) | out_of_steps,
        )
        return core, other

    def _lower(self, low: Array, value: Array, span: Array) -> Array:
        """The lower bound, or ``value - span`` where a value of f has shown it to be none."""
        is_refuted = value < low - self.rtol * span
        return jnp.where(is_refuted, value - span, low)


def _ridge(constraint: SelectionConstraint, R: Array, rho: Array) -> Array:
    """The weights of the regulariser, shaped like x."""
    return jnp.where(constraint.support(R).mask, rho, 0)
