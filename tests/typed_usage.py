"""Correct code, in which type checkers are to find nothing: every solver, constraint and objective,
and their results.

`make check` runs mypy over it; it is not run itself.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy.sparse
from chex import Array

import jaxht
from jaxht import extend, transforms

A, y = np.ones((6, 4), np.float32), np.ones(6, np.float32)
labels, groups, key = np.sign(y), np.array([0, 0, 1, 1]), jax.random.key(0)

# ---- objectives ----------------------------------------------------------------------------------

squares = jaxht.LeastSquares(A, y, l2=0.1, weights=jnp.ones(6), mean=False)
objectives: list[jaxht.Objective] = [
    squares,
    jaxht.LeastSquares(scipy.sparse.csr_array(A), y, mean=False),
    jaxht.LeastSquares(
        jaxht.LinearOperator(lambda x, scale: scale * x, (4, 4), (2.0,)), y[:4], mean=False
    ),
    jaxht.LeastSquares(jaxht.design(A), jnp.asarray(y), mean=True),
    jaxht.Logistic(A, labels, 0.1, scale=2.0),
    jaxht.SquaredHinge(A, labels),
    jaxht.OneBit(A, labels),
    jaxht.SmoothedHinge(A, labels, gamma=0.5),
    jaxht.Hinge(A, labels, 0.1),
    jaxht.Huber(A, y, delta=1.0),
    jaxht.Poisson(A, np.arange(6)),
    jaxht.Gamma(A, y),
    jaxht.Ordinal(A, np.arange(6) % 3, num_classes=3),
    jaxht.Cox(A, np.ones((6, 2)), offset=y),
    jaxht.Softmax(A, np.arange(6) % 3, num_classes=3),
    jaxht.MultiResponse(A, np.ones((6, 2))),
    jaxht.matrix_sensing(np.ones((6, 2, 2)), y, mean=False),
    jaxht.matrix_completion(np.arange(3), np.arange(3), y[:3], (3, 3), mean=False),
    jaxht.trace_regression(squares, (2, 2)),
    jaxht.GaussianPrecision(np.eye(4), lower=0.1),
    jaxht.Custom(lambda x, y: jnp.sum((x - y) ** 2), y, like=6),
    jaxht.FiniteSum(lambda x, y: jnp.sum((x - y) ** 2), A, like=4),
]
sums: list[jaxht.SumOverSamples] = [
    squares,
    jaxht.FiniteSum(lambda x, y: jnp.sum((x - y) ** 2), A, like=4),
]

# ---- constraints ---------------------------------------------------------------------------------

constraints: list[jaxht.Constraint] = [
    jaxht.Sparse(2),
    jaxht.Sparse(
        jnp.asarray(2), k_max=3, keep=np.arange(4) < 1, nonnegative=True, bounds=(None, 1.0)
    ),
    jaxht.Groups(1, groups),
    jaxht.Edges(2),
    jaxht.LowRank(2, exact=True),
]
selections: list[jaxht.SelectionConstraint] = [
    jaxht.Sparse(2),
    jaxht.Groups(1, groups),
    jaxht.Edges(2),
]

# ---- solvers -------------------------------------------------------------------------------------

solvers = [
    jaxht.IHT(step_size=0.5, nesterov=True),
    jaxht.NIHT(),
    jaxht.HTP(backtrack=True),
    jaxht.PHT(r=2),
    jaxht.CoSaMP(expand=2),
    jaxht.GraSP(),
    jaxht.SubspacePursuit(),
    jaxht.OMP(),
    jaxht.OLS(),
    jaxht.OMPR(),
    jaxht.FoBa(threshold=0.1),
    jaxht.ExhaustiveLocalSearch(),
    jaxht.LocalSearch(),
    jaxht.ARHT(num_cores=4),
    jaxht.SGHT(step_size=0.1),
    jaxht.HTSVRG(0.1, 5, radius=2.0),
    jaxht.SVRGHT(0.1, 5, 2, replace=False),
    jaxht.HTSAGA(),
    jaxht.HSGHT(batch_growth=1.2),
    jaxht.DIHT(),
    jaxht.SDIHT(),
]
declared: list[jaxht.Solver] = [jaxht.OMP(), jaxht.FoBa(), jaxht.SVRGHT(), jaxht.DIHT()]

for f in objectives:
    for C in constraints:
        for solver in solvers:
            jaxht.solve(f, C, solver, key=key, stop=jaxht.Stop(max_steps=10, rtol=1e-6))

jaxht.solve(squares, jaxht.Sparse(2), jaxht.OMP())
jaxht.solve(squares, jaxht.Groups(2, groups), jaxht.FoBa())
jaxht.solve(squares, jaxht.Edges(2), jaxht.GraSP())
jaxht.solve(squares, jaxht.LowRank(2), jaxht.HTP())
jaxht.solve(squares, jaxht.Sparse(2), jaxht.SDIHT(), key=key)

# ---- what comes back -----------------------------------------------------------------------------

names = np.array(["a", "b", "c", "d"])
result: jaxht.Result = jaxht.solve(squares, jaxht.Sparse(2), jaxht.HTP()).raise_for_status()
chosen: list[str] = names[result.support.numpy()].tolist()
status: str = result.reason
x: jax.Array = result.x
first, moved, value, steps = (
    float(result.x[0]),
    result.x.at[0].set(1.0),
    float(result.value),
    int(result.num_steps),
)
indices, size, passes = result.support.indices, result.support.size, result.counts.ifo
warm = jaxht.solve(squares, jaxht.Sparse(3), jaxht.HTP(), x0=result)
U: jax.Array = jaxht.solve(
    jaxht.MultiResponse(A, np.ones((6, 3))), jaxht.LowRank(2), jaxht.IHT()
).support.U

ended, history = jaxht.trace(
    squares, jaxht.Sparse(2), jaxht.IHT(), num_steps=10, record=lambda carry: carry.iterate.value
)
along: jaxht.Result = jaxht.path(squares, jaxht.Sparse(1), jaxht.OMP(), ks=[1, 2, 3])
k: int = int(jaxht.validate(squares, squares, jaxht.Sparse(1), jaxht.OMP(), ks=[1, 2]).k)
gap: float = float(jaxht.certify(squares, jaxht.Sparse(2), result.x).gap)
residual: float = float(jaxht.optimality(squares, jaxht.Sparse(2), result.x).fixed_point_residual)
best: float = float(jaxht.exhaustive_search(squares, jaxht.Sparse(2)).value)


@jax.jit
def many(ys: jax.Array, ks: jax.Array) -> jaxht.Result:
    """A batch."""

    def one(y: jax.Array, k: jax.Array) -> jaxht.Result:
        return jaxht.solve(
            jaxht.LeastSquares(A, y, mean=False), jaxht.Sparse(k, k_max=3), jaxht.HTP()
        )

    return jax.vmap(one)(ys, ks)


def best_of(f: jaxht.Objective, k: int, solvers: list[jaxht.Solver]) -> jaxht.Result:
    """A function of protocols."""
    return min(
        (jaxht.solve(f, jaxht.Sparse(k), solver) for solver in solvers),
        key=lambda result: float(result.value),
    )


# ---- training, and a solver of one's own ---------------------------------------------------------

optimiser: optax.GradientTransformation = optax.chain(
    optax.adam(1e-3), transforms.hard_threshold(0.05, scope="global")
)
make: Callable[[], jaxht.Solver] = jaxht.SVRGHT


@extend.pytree
class GradientDescent(jaxht.Solver):
    """The solver of CONTRIBUTING.md."""

    step_size: float = 0.5

    def max_steps(self, constraint: jaxht.Constraint) -> int:
        """The limit."""
        return 1000

    def init(
        self,
        objective: jaxht.Objective,
        constraint: jaxht.Constraint,
        x0: Array,
        key: jax.Array | None,
    ) -> tuple[extend.Iterate, None, extend.Info]:
        """The start."""
        return extend.evaluate(objective, x0), None, extend.Info()

    def step(
        self,
        objective: jaxht.Objective,
        constraint: jaxht.Constraint,
        iterate: extend.Iterate,
        state: None,
    ) -> tuple[extend.Iterate, None, extend.Info]:
        """A step."""
        z = iterate.x - self.step_size * objective.gradient(iterate.x, iterate.pred)
        x, _ = constraint.project(z, iterate.x)
        info = extend.Info(full_gradients=1, projections=1)
        return extend.evaluate(objective, x), state, info


jaxht.solve(squares, jaxht.Sparse(2), GradientDescent(step_size=0.1))
