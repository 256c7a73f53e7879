"""The annotations of the library hold at run time: it runs under beartype, which checks every call.

``python -m tests.annotations``

Most programs are traced only (`jax.eval_shape`), which makes all of their calls; a few run, since
what they return is made on the host, or by JAX around the constructors of named tuples.
"""

import functools

import beartype
from beartype.claw import beartype_package

OPTIONS = {"is_pep484_tower": True}  # an int is a float
# Functions are checked below jax.jit and jax.custom_jvp, whose attributes a function around them
# would hide.
if hasattr(beartype, "BeartypeDecorPlace"):
    OPTIONS["claw_decor_place_func"] = beartype.BeartypeDecorPlace.FIRST
else:  # beartype before 0.22
    OPTIONS["claw_decoration_position_funcs"] = beartype.BeartypeDecorationPosition.FIRST
beartype_package("jaxht", conf=beartype.BeartypeConf(**OPTIONS))

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
import scipy.sparse  # noqa: E402

import jaxht  # noqa: E402
from jaxht import solvers, transforms  # noqa: E402
from tests.test_programs import solver_names  # noqa: E402

N, D, K = 8, 6, 2
KEY, STOP = jax.random.key(0), jaxht.Stop(max_steps=3, rtol=1e-6, support_patience=5)
rng = np.random.default_rng(0)
A = rng.normal(size=(N, D)).astype("float32")
y, labels = 2 * A[:, 0] - A[:, 3], np.sign(A[:, 1])
weights = np.linspace(1, 2, N).astype("float32")

OBJECTIVES = {
    "LeastSquares": lambda A, y, l2: jaxht.LeastSquares(A, y, l2, weights=weights, mean=False),
    "Logistic": lambda A, y, l2: jaxht.Logistic(A, jnp.sign(y), l2),
    "Hinge": lambda A, y, l2: jaxht.Hinge(A, jnp.sign(y), l2),
    "SquaredHinge": lambda A, y, l2: jaxht.SquaredHinge(A, jnp.sign(y), l2),
    "SmoothedHinge": lambda A, y, l2: jaxht.SmoothedHinge(A, jnp.sign(y), l2, gamma=0.5),
    "Huber": lambda A, y, l2: jaxht.Huber(A, y, l2, delta=1, offset=weights),
    "Poisson": lambda A, y, l2: jaxht.Poisson(A, jnp.abs(y), l2),
    "Gamma": lambda A, y, l2: jaxht.Gamma(A, jnp.exp(y), l2),
    "Ordinal": lambda A, y, l2: jaxht.Ordinal(A, (y > 0).astype(int), l2, num_classes=2),
    "Cox": lambda A, y, l2: jaxht.Cox(A, jnp.stack([jnp.exp(y), y > 0], 1), l2),
    "Custom": lambda A, y, l2: jaxht.Custom(
        lambda x, A, y: jnp.sum((A @ x - y) ** 2), A, y, like=D
    ),
    "FiniteSum": lambda A, y, l2: jaxht.FiniteSum(
        lambda x, row: jnp.sum((row @ x) ** 2), A, like=D
    ),
    "Operator": lambda A, y, l2: jaxht.LeastSquares(
        jaxht.LinearOperator(lambda v, A: A @ v, A.shape, (A,), check=False), y, l2, mean=False
    ),
}
CONSTRAINTS = {
    "Sparse": jaxht.Sparse(K),
    "bounds": jaxht.Sparse(K, keep=np.arange(D) == 5, bounds=(-1, np.ones(D)), nonnegative=False),
    "Groups": jaxht.Groups(1, np.repeat(np.arange(3), 2)),
}
IHT = jaxht.IHT(step_size=0.1)


def x_of(make, constraint, solver, A, y, l2):
    """The solution."""
    return jaxht.solve(make(A, y, l2), constraint, solver, key=KEY, stop=STOP).x


def trace_solves():
    """Every solver under vmap; every objective and constraint; gradients, of vectors, matrices and
    graphs."""
    lanes = np.stack([y, 2 * y]), np.array([0.1, 0.2], "float32")
    for name in solver_names():
        solver = getattr(solvers, name)(**({"num_starts": 2} if name == "LocalSearch" else {}))
        losses = (
            ("LeastSquares",) if name in ("ALPS", "CGIHT", "FIHT") else ("LeastSquares", "Logistic")
        )
        for loss in losses:
            run = functools.partial(x_of, OBJECTIVES[loss], CONSTRAINTS["Sparse"], solver)
            jax.eval_shape(jax.vmap(run, in_axes=(None, 0, 0)), A, *lanes)
    for make in OBJECTIVES.values():
        pairs = [(constraint, jaxht.HTP(step_size=0.1)) for constraint in CONSTRAINTS.values()]
        for constraint, solver in [*pairs, (CONSTRAINTS["Sparse"], IHT)]:
            jax.eval_shape(functools.partial(x_of, make, constraint, solver), A, y, 0.1)
        jax.eval_shape(
            jax.grad(
                lambda l2, make=make: jnp.sum(x_of(make, CONSTRAINTS["Sparse"], IHT, A, y, l2))
            ),
            0.1,
        )
    for solver in (jaxht.HTP(), jaxht.IHT(), jaxht.NIHT()):
        f = jaxht.MultiResponse(A, np.stack([y, labels, y], 1), 0.1)
        jax.eval_shape(
            jax.grad(
                lambda f, solver=solver: jaxht.solve(f, jaxht.LowRank(1), solver, stop=STOP).value
            ),
            f,
        )
        f = jaxht.GaussianPrecision(
            np.cov(A.T).astype("float32") + np.eye(D, dtype="float32"), lower=0.1
        )
        jax.eval_shape(
            jax.grad(
                lambda f, solver=solver: jaxht.solve(f, jaxht.Edges(3), solver, stop=STOP).value
            ),
            f,
        )


def trace_the_rest():
    """Paths, validation, certificates, conditions, records of runs, projections, low rank."""
    f = jaxht.LeastSquares(A, y, 0.1, mean=False)
    sparse, htp = jaxht.Sparse(1), jaxht.HTP()
    x = np.zeros(D, "float32")

    def split(held_out):
        return tuple(
            jaxht.LeastSquares(A, y, 0.1, weights=part, mean=False)
            for part in (~held_out, held_out)
        )

    for program in (
        lambda: jaxht.path(f, sparse, htp, ks=[1, 2]),
        lambda: jaxht.path(f, sparse, jaxht.OLS(), ks=np.arange(1, 3), both_ways=True),
        lambda: jaxht.validate(f, f, sparse, htp, ks=[1, 2]),
        lambda: jaxht.cross_validate(split, jaxht.folds(KEY, N, 2), sparse, htp, ks=[1, 2]),
        lambda: jaxht.certify(f, sparse, x),
        lambda: jaxht.optimality(f, sparse, x),
        lambda: jaxht.differentiability(f, sparse, x),
        lambda: jaxht.trace(f, sparse, jaxht.IHT(), num_steps=2),
        lambda: jaxht.solve(f, sparse, htp, x0="dense", adjoint="none"),
        lambda: jaxht.solve(f, sparse, jaxht.IHT(), stop=STOP, adjoint="checkpointed"),
        lambda: jaxht.exhaustive_search(f, jaxht.Sparse(1)),
        lambda: jaxht.projections.hard_threshold(y, 3),
        lambda: jaxht.projections.l2_ball(y, 1),
        lambda: jaxht.projections.sparse_l2_ball(y, 2, 1.0),
        lambda: jaxht.projections.low_rank(A, 2),
    ):
        jax.eval_shape(program)
    rows, columns = np.nonzero(A > 0)
    completion = jaxht.matrix_completion(
        rows, columns, A[rows, columns], A.shape, l2=0.1, mean=False
    )
    for factored in (False, True):
        low_rank = jaxht.LowRank(1, factored=factored)
        jax.eval_shape(
            lambda low_rank=low_rank: jaxht.solve(completion, low_rank, jaxht.IHT(), stop=STOP)
        )
    for tx in (
        transforms.hard_threshold(0.5),
        transforms.hard_threshold(transforms.cubic(0.5, end=3), every=2, scope="global"),
        transforms.l2_ball(1.0),
        transforms.low_rank(1),
    ):
        optimiser = optax.chain(optax.adam(0.1), tx)
        params = {"kernel": jnp.asarray(A)}
        state = optimiser.init(params)
        jax.eval_shape(
            lambda state, optimiser=optimiser, params=params: optimiser.update(
                params, state, params
            ),
            state,
        )


def run_some():
    """What the host does around programs: results, named tuples from a jit, sparse designs,
    estimators."""
    f = jaxht.LeastSquares(scipy.sparse.csr_array(A), y, 0.1, mean=False)
    result = jaxht.solve(f, jaxht.Sparse(K), jaxht.HTP()).raise_for_status()
    assert "Result" in repr(result) and result.support.numpy().size == K and result.counts.ifo > 0
    dense = jaxht.LeastSquares(A, y, 0.1, mean=True)
    for ended in (jaxht.certify, jaxht.differentiability):
        jax.jit(ended)(dense, jaxht.Sparse(K, k_max=K), result.x)
    assert jaxht.branch_and_bound(dense, jaxht.Sparse(1)).gap < 1
    standardized = jaxht.standardize(A)
    standardized.coefficients(result.x)

    from jaxht.sklearn import L0Classifier, L0Regressor, L0Selector

    for model in (L0Regressor(k=2), L0Regressor(k="bic", k_max=2), L0Selector(k=2)):
        model.fit(A, y)
    L0Classifier(k=2).fit(A, labels).predict(A)

    found = jaxht.sweep.run(
        lambda key, cell: {"u": jax.random.uniform(key) * cell["c"]}, {"c": [1, 2]}, num_trials=2
    )
    assert found["u"].shape == (2, 2)


def main():
    """All of it."""
    trace_solves()
    trace_the_rest()
    run_some()
    print("every annotation holds")


if __name__ == "__main__":
    main()
