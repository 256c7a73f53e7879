"""Derivatives of the solutions of every solver on every objective: `python -m tests.derivatives
[--solver NAME]`.

The implicit function theorem sees nothing of a solver but its x. So a pair of solver and problem
takes one program, which solves at the data and a step to either side; a problem takes one more, the
derivatives of a run of no steps that starts at this x. Compared are the central difference of x and
f, forward mode and reverse mode, along a random direction of all the data, in double precision.
Where the derivatives are NaN, x must be away from the minimiser on its support.

A pair is printed with the relative errors of forward mode (by the difference) and reverse mode (by
forward mode), how far x is from the refit on its support, and the status of the run.
"""

import argparse
import functools
import sys
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxht
from jaxht import solvers
from tests.test_programs import solver_names
from tests.util import compiled_quickly, linearize, quick, x64

N, D, K = 40, 12, 3
STEP, RTOL = 1e-5, 1e-6  # of the central difference, and its relative error
EXACT, SHORT = (
    1e-12,
    1e-7,
)  # distances of x from the minimiser that are none, and that leave no derivative


def data(seed=0):
    """A, y, l2 and weights; a direction of each; and weights of the entries of x."""
    rng = np.random.default_rng(seed)
    A, w = rng.normal(size=(N, D)), rng.uniform(0.5, 1.5, N)
    y = A[:, :K] @ [2.0, -1.5, 1.0] + 0.1 * rng.normal(size=N)
    along = rng.normal(size=(N, D)), rng.normal(size=N), 0.1, rng.normal(size=N)
    return (A, y, 0.05, w), along, rng.normal(size=D)


# ---- problems ------------------------------------------------------------------------------------


def by_sign(objective):
    """Of a loss of signs."""
    return lambda A, y, l2, w: objective(A, jnp.sign(y), l2, weights=w)


def logistic(x, sample, l2):
    a, y = sample
    return jnp.logaddexp(0, -y * (a @ x)) + l2 / 2 * jnp.sum(x**2)


def mean_logistic(x, A, y, l2, w):
    return jnp.mean(w * jax.vmap(logistic, in_axes=(None, 0, None))(x, (A, y), l2))


def precision_matrix(A, y, l2, w):
    return jaxht.GaussianPrecision(A.T @ (w[:, None] * A) / N + (0.1 + l2) * jnp.eye(D))


def completion(A, y, l2, w):
    rows, columns = np.nonzero(np.arange(63).reshape(9, 7) % 8)
    low_rank = jnp.outer(y[:9], y[9:16]) + jnp.outer(A[:9, 0], A[:7, 1])
    return jaxht.matrix_completion(
        rows, columns, (low_rank + 0.1 * A[:9, :7])[rows, columns], (9, 7), l2=l2, mean=False
    )


def outputs(y):
    return jnp.stack([y, jnp.sin(y), y**2, jnp.cos(y)], 1)


class Problem(NamedTuple):
    """An objective of the data, its constraint, and whether it has derivatives by y."""

    objective: Any
    constraint: Any = jaxht.Sparse(K)
    has_targets: bool = True


ROWS = jaxht.Groups(K, np.repeat(np.arange(D)[:, None], 3, axis=1))
LOSSES = {
    "squares": Problem(lambda A, y, l2, w: jaxht.LeastSquares(A, y, l2, mean=True, weights=w)),
    "huber": Problem(lambda A, y, l2, w: jaxht.Huber(A, y, l2, weights=w)),
    "logistic": Problem(by_sign(jaxht.Logistic), has_targets=False),
    "squared hinge": Problem(by_sign(jaxht.SquaredHinge), has_targets=False),
    "smoothed hinge": Problem(by_sign(jaxht.SmoothedHinge), has_targets=False),
    "poisson": Problem(lambda A, y, l2, w: jaxht.Poisson(A, jnp.abs(y), l2, weights=w)),
    "gamma": Problem(lambda A, y, l2, w: jaxht.Gamma(A, jnp.exp(y), l2, weights=w)),
    "cox": Problem(
        lambda A, y, l2, w: jaxht.Cox(A, jnp.stack([y, y > 0], 1), l2, weights=w), has_targets=False
    ),
    "ordinal": Problem(
        lambda A, y, l2, w: jaxht.Ordinal(
            A, (y > -1).astype(int) + (y > 1), l2, num_classes=3, weights=w
        ),
        has_targets=False,
    ),
    "offset": Problem(
        lambda A, y, l2, w: jaxht.Logistic(A, jnp.sign(y), 0.1, offset=0.1 * y + l2 * w),
        has_targets=False,
    ),
}
PROBLEMS = {
    **LOSSES,
    "hinge": Problem(by_sign(jaxht.Hinge), has_targets=False),
    "groups": Problem(
        by_sign(jaxht.Logistic), jaxht.Groups(2, np.arange(D) // 2), has_targets=False
    ),
    "function": Problem(
        lambda A, y, l2, w: jaxht.Custom(mean_logistic, A, jnp.sign(y), l2, w, like=D),
        has_targets=False,
    ),
    "finite sum": Problem(
        lambda A, y, l2, w: jaxht.FiniteSum(logistic, (A, jnp.sign(y)), l2, like=D, weights=w / N),
        has_targets=False,
    ),
    "softmax": Problem(
        lambda A, y, l2, w: jaxht.Softmax(
            A, (y > -1).astype(int) + (y > 1), l2, num_classes=3, weights=w
        ),
        ROWS,
        has_targets=False,
    ),
    "responses": Problem(
        lambda A, y, l2, w: jaxht.MultiResponse(A, outputs(y)[:, :3], l2, weights=w), ROWS
    ),
    "precision": Problem(precision_matrix, jaxht.Edges(5), has_targets=False),
    "reduced rank": Problem(
        lambda A, y, l2, w: jaxht.MultiResponse(A, outputs(y), l2, weights=w), jaxht.LowRank(2)
    ),
    "completion": Problem(completion, jaxht.LowRank(1)),
    "sensing": Problem(
        lambda A, y, l2, w: jaxht.matrix_sensing(
            A.reshape(N, 4, 3), y, l2=l2, weights=w, mean=False
        ),
        jaxht.LowRank(1),
    ),
}


# Solvers that end at a point that is not the minimiser on its support, or near it only as far as
# their steps go.
NOT_MINIMISERS = {"CoSaMP", "SGHT", "HTSAGA", "HTSVRG", "HSGHT", "DIHT", "SDIHT"}


def make_solver(name):
    return getattr(solvers, name)(**({"num_starts": 2} if name == "LocalSearch" else {}))


# ---- a pair --------------------------------------------------------------------------------------


class Errors(NamedTuple):
    """Relative, of forward mode by the difference and of reverse mode by forward mode; and where x
    is.

    Attributes:
        forward: NaN where the derivative is.
        reverse: NaN where the derivative is.
        distance: of x from the refit on its support, relative.
        refitted: whether the difference is that of refits on the support of x: where the run at a
            step to either side ends on another one, or short of the minimiser by more than the
            difference forgives.
        status: of the run.
    """

    forward: float
    reverse: float
    distance: float
    refitted: bool
    status: str

    def __str__(self):
        numbers = ", ".join(
            f"{name} {getattr(self, name):.1e}" for name in ("forward", "reverse", "distance")
        )
        notes = [self.status, *["of refits"] * self.refitted, *["WRONG"] * (not self.right)]
        return f"{numbers}, {', '.join(notes)}"

    @property
    def right(self):
        """Whether the derivatives are those of the difference; or NaN, and x is not the minimiser
        on its support."""
        if np.isnan(self.forward) and np.isnan(self.reverse):
            return self.distance > SHORT
        return self.forward <= RTOL + 100 * self.distance and self.reverse <= 1e-8


@functools.cache
def programs(problem):
    """Of x: its weighted sum with f; its derivatives along a direction, by both modes; and that sum
    of its refit."""
    make, constraint, _ = PROBLEMS[problem]

    def weigh(x, value):
        return jnp.vdot(np.random.default_rng(1).normal(size=x.shape), x) + 0.3 * value

    @quick
    def differentiate(x, at, along):
        def function(*at):
            stop = jaxht.Stop(max_steps=0)
            result = jaxht.solve(make(*at), constraint, jaxht.IHT(step_size=1.0), x0=x, stop=stop)
            return weigh(result.x, result.value)

        return linearize(function, at, along)[1:]

    @quick
    def refit(x, at):
        f = make(*at).prepare()
        if isinstance(constraint, jaxht.LowRank):  # whose spaces move
            found = jaxht.solve(f, constraint, jaxht.HTP(), x0=x, adjoint="none").x
        else:
            found = jaxht.subproblems.refit(f, constraint.prepare(f.shape).support_of(x), x).x
        return jnp.linalg.norm(found - x) / jnp.linalg.norm(x), weigh(
            found, f.value(found, f.predict(found))
        )

    return weigh, differentiate, refit


def compare(problem, name):
    """The errors of a pair; None where the solver refuses the problem. Call within `x64`."""
    at, along, _ = data()
    make, constraint, has_targets = PROBLEMS[problem]
    if not has_targets:
        along = along[0], np.zeros(N), *along[2:]

    @quick
    def run(at):
        result = jaxht.solve(
            make(*at), constraint, make_solver(name), key=jax.random.key(0), adjoint="none"
        )
        return result.x, result.value, result.status

    at, along = (tuple(map(jnp.asarray, arrays)) for arrays in (at, along))
    try:
        run.lower(at)
    except ValueError:
        return None
    weigh, differentiate, refit = programs(problem)
    x, _, status = run(at)
    forward, reverse = differentiate(x, at, along)
    distance = float(refit(x, at)[0])
    sides = [tuple(a + s * STEP * b for a, b in zip(at, along, strict=True)) for s in (1, -1)]
    found = [run(side) for side in sides]
    refitted = distance > EXACT or any(np.any((point != 0) != (x != 0)) for point, *_ in found)
    ahead, behind = (
        (refit(x, side)[1] for side in sides) if refitted else (weigh(*side[:2]) for side in found)
    )
    difference = (ahead - behind) / (2 * STEP)
    errors = (float(abs(ratio - 1)) for ratio in (forward / difference, reverse / forward))
    return Errors(*errors, distance, refitted, jaxht.Status(int(status)).name)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--solver", choices=solver_names(), help="this one alone")
    parser.add_argument("--problem", choices=PROBLEMS, help="this one alone")
    arguments = parser.parse_args()
    found, wrong = [], 0
    with compiled_quickly(), x64():
        for problem in [arguments.problem] if arguments.problem else PROBLEMS:
            for name in [arguments.solver] if arguments.solver else solver_names():
                begin = time.monotonic()
                errors = compare(problem, name)
                found.append(errors)
                wrong += errors is not None and not errors.right
                print(
                    f"{problem}, {name}: {errors or 'refused'} ({time.monotonic() - begin:.1f} s)",
                    flush=True,
                )
            jax.clear_caches()
    checked = [errors for errors in found if errors is not None]
    numbers = [errors for errors in checked if not np.isnan(errors.forward)]
    print(
        f"{len(checked)} pairs, of which {len(checked) - len(numbers)} have NaN and {wrong} are wrong; "
        f"largest errors {max(errors.forward for errors in numbers):.1e} and "
        f"{max(errors.reverse for errors in numbers):.1e}; {len(found) - len(checked)} pairs refused"
    )
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
