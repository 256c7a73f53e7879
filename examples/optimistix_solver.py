"""A solver of jaxht within ``optimistix.minimise``, and a function in the form of optimistix as an
objective of jaxht.

Robust regression by Cauchy's loss, which is not convex, with eight coefficients of a hundred. Its
scale and its ridge are then chosen on held-out samples: BFGS of optimistix around the sparse
minimisation, by the derivatives of its solution.

``python -m examples.optimistix_solver``
"""

import dataclasses
from collections.abc import Callable
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jax import lax
from jax.flatten_util import ravel_pytree

import jaxht
from jaxht import Status
from jaxht.extend import Carry, Problem, advance, finish, prepare, start, subproblem

# The limits that a run has met; all other failures are of f, data or step sizes, which optimistix
# calls divergence.
LIMITS = Status.MAX_STEPS, Status.CYCLING


class SparseMinimiser(optx.AbstractMinimiser):
    """A solver of jaxht as one of optimistix: ``optimistix.minimise(fn, solver, y0, args,
    adjoint=OnSupport())``.

    A step is a step of the solver, and the run ends by the tests of jaxht, or at the ``max_steps``
    of optimistix. A constraint on a pytree y counts all of its entries. ``stats`` of the solution
    has the :class:`jaxht.Status` and the support besides.
    """

    constraint: Any
    solver: Any
    rtol: Any = None  # that of jaxht.Stop, a float or None
    atol: float = 0.0  # jaxht has no absolute tolerances
    norm: Callable[[Any], jax.Array] = optx.two_norm  # that of jaxht

    def problem(self, fn: Callable, y: Any, args: Any) -> Problem:
        """The problem of jaxht; without a limit to its steps, which optimistix has."""
        stop = jaxht.Stop(max_steps=np.iinfo(np.int32).max, rtol=self.rtol)
        return prepare(objective_of(fn, y, args), self.constraint, self.solver, stop=stop)[0]

    def init(
        self, fn: Any, y: Any, args: Any, options: Any, f_struct: Any, aux_struct: Any, tags: Any
    ) -> Carry:
        """The carry of jaxht before the first step."""
        if not options.get("on_support", False):
            raise ValueError(
                "adjoint must be OnSupport(): other adjoints assume a minimum without constraints"
            )
        return start(self.problem(fn, y, args), flat(y), None)

    def step(
        self, fn: Any, y: Any, args: Any, options: Any, state: Any, tags: Any
    ) -> tuple[Any, Carry, Any]:
        """One step; the auxiliary output is that of the new point."""
        problem = self.problem(fn, y, args)
        state = advance(problem, state, 1)
        y = cast(jaxht.Custom, problem.objective).unravel(state.iterate.x)
        return y, state, fn(y, args)[1]

    def terminate(
        self, fn: Any, y: Any, args: Any, options: Any, state: Any, tags: Any
    ) -> tuple[jax.Array, optx.RESULTS]:
        """Whether jaxht has ended the run, and what optimistix says of it."""
        results, status = optx.RESULTS, state.status
        failure = results.where(
            jnp.isin(status, jnp.array(LIMITS)),
            results.nonlinear_max_steps_reached,
            results.nonlinear_divergence,
        )
        result = results.where(
            status < Status.MAX_STEPS, results.successful, failure
        )  # failures come last
        return status != Status.RUNNING, result

    def postprocess(
        self, fn: Any, y: Any, aux: Any, args: Any, options: Any, state: Any, tags: Any, result: Any
    ) -> tuple[Any, Any, dict[str, Any]]:
        """The point that jaxht returns: where a pursuit was cut off, the best one."""
        problem = self.problem(fn, y, args)
        status = jnp.where(state.status == Status.RUNNING, Status.MAX_STEPS, state.status)
        found = finish(problem, dataclasses.replace(state, status=status))
        y = cast(jaxht.Custom, problem.objective).unravel(found.x)
        return y, fn(y, args)[1], {"status": found.status, "support": found.support}


class OnSupport(optx.AbstractAdjoint):
    """Derivatives of the minimum on its support, as those of :func:`jaxht.solve`; by y0 they are
    0."""

    def apply(self, primal_fn: Any, rewrite_fn: Any, inputs: Any, tags: Any) -> Any:
        """The run without derivatives, and those of its last point."""
        fn, solver, y0, args, options, *rest = inputs
        numbers, others = eqx.partition(
            (fn, solver, y0, args, {**options, "on_support": True}, *rest), eqx.is_array
        )
        fixed = eqx.combine(lax.stop_gradient(numbers), others)
        y, out = optx.ImplicitAdjoint().apply(primal_fn, rewrite_fn, fixed, tags)
        f = objective_of(fn, y, args).prepare()
        support = solver.constraint.prepare(f.shape).support_of(flat(y))
        return f.unravel(subproblem(f, support).differentiate(support, flat(y))), out


def objective_of(fn: Callable, y: Any, args: Any) -> jaxht.Custom:
    """``fn(y, args)[0]`` as an objective: optimistix hands functions that hold arrays, and have a
    second output."""
    numbers, others = eqx.partition((fn, args), eqx.is_array)

    def value(y: Any, numbers: Any) -> jax.Array:
        fn, args = eqx.combine(numbers, others)
        return fn(y, args)[0]

    return jaxht.Custom(value, numbers, like=y)


def flat(y: Any) -> jax.Array:
    """The variable of jaxht: an array as it is, of a pytree the vector of all entries."""
    return y if isinstance(y, jax.Array) else ravel_pytree(y)[0]


# ---- robust regression ---------------------------------------------------------------------------


def cauchy(y: jax.Array, args: Any) -> jax.Array:
    """Cauchy's loss of the residuals, mean over samples, with a ridge: in the form of
    optimistix."""
    A, b, log_scale, log_l2 = args
    residual = (A @ y - b) / jnp.exp(log_scale)
    return jnp.mean(jnp.log1p(residual**2)) + jnp.exp(log_l2) / 2 * jnp.vdot(y, y)


def problem(
    n: int = 300, d: int = 100, k: int = 8, outliers: float = 0.2
) -> tuple[Any, Any, np.ndarray]:
    """Samples to train on and held-out ones, of which a fifth have wrong targets, and the
    coefficients."""
    rng = np.random.default_rng(0)
    x = np.zeros(d)
    x[rng.choice(d, k, replace=False)] = rng.choice([-1, 1], k) * rng.uniform(0.5, 1.5, k)

    def samples() -> tuple[jax.Array, jax.Array]:
        A = rng.standard_normal((n, d))
        b = A @ x + 0.3 * rng.standard_normal(n)
        b = np.where(rng.random(n) < outliers, 10 * rng.standard_normal(n), b)
        return jnp.asarray(A), jnp.asarray(b)

    return samples(), samples(), x


def main(k: int = 8) -> tuple[Any, Any, Any, np.ndarray]:
    """Print what both calls find, and what BFGS makes of the scale and the ridge; return the three
    solutions."""
    (A, b), (A_held_out, b_held_out), x = problem(k=k)
    start = jnp.zeros(A.shape[1])
    args = A, b, jnp.log(1.0), jnp.log(0.1)

    # The solver of jaxht, called by optimistix.
    sparse = SparseMinimiser(constraint=jaxht.Sparse(k), solver=jaxht.HTP())
    solution = optx.minimise(cauchy, sparse, start, args, adjoint=OnSupport())
    # The function of optimistix, minimised by jaxht.
    result = jaxht.solve(jaxht.Custom(cauchy, args, like=len(start)), jaxht.Sparse(k), jaxht.HTP())

    def held_out(params: tuple[jax.Array, jax.Array], _: None) -> jax.Array:
        found = optx.minimise(cauchy, sparse, start, (A, b, *params), adjoint=OnSupport())
        return jnp.mean(jnp.abs(A_held_out @ found.value - b_held_out))

    best = optx.minimise(held_out, optx.BFGS(1e-3, 1e-3), args[2:], max_steps=50, throw=False)

    status = Status(int(solution.stats["status"])).name
    print(
        f"optimistix.minimise, a solver of jaxht: {status} after {int(solution.stats['num_steps'])} steps"
    )
    print(f"jaxht.solve, a function of optimistix:  {result.reason}, "
          f"largest difference {jnp.max(jnp.abs(result.x - solution.value)):.1e}")  # fmt: skip
    found = set(solution.stats["support"].numpy().tolist())
    print(f"{len(found & set(np.flatnonzero(x).tolist()))} of {k} coefficients found")
    for name, params in (("start", args[2:]), ("BFGS", best.value)):
        scale, l2 = np.exp(params)
        print(
            f"{name:5s} scale {scale:.3f}, ridge {l2:.4f}: held-out absolute error {held_out(params, None):.4f}"
        )
    return solution, result, best, x


if __name__ == "__main__":
    main()
