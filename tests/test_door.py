"""What comes in: wrong kinds of object get one line that names the argument, what came and what is
needed.

And what is right comes in everywhere: checks that read values on the host pass over those that are
traced, also within a jit around arrays that are known.
"""

import dataclasses
import inspect
import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import jaxht
from jaxht import IHT, LeastSquares, Sparse, Stop, _checks, extend, transforms
from tests.util import x64

pytestmark = pytest.mark.usefixtures("all_quickly")

N, D = 6, 4
RNG = np.random.default_rng(0)
A = RNG.normal(size=(N, D)).astype(np.float32)
Y = RNG.normal(size=N).astype(np.float32)
F, C = LeastSquares(A, Y, mean=False), Sparse(2)

# ---- checks on the host, within a jit ------------------------------------------------------------

LABELS, COUNTS, CLASSES = np.sign(Y), np.arange(N) % 3, np.arange(N, dtype=np.int32) % 3
WEIGHTS, L2, KEEP = np.ones(N, np.float32), np.full(D, 0.5, np.float32), np.arange(D) < 1
GROUPS, ONE = np.array([0, 0, 1, 1], np.int32), np.float32(1)
S = (A.T @ A / N).astype(np.float32)


def is_protocol(value):
    return value.__dict__.get("_is_protocol", False) or inspect.isabstract(value)


def run(objective=F, constraint=C, solver=None, stop=Stop(), **options):
    return extend.prepare(objective, constraint, solver or IHT(), stop=stop, **options)[0]


def linear(model, y=Y, **static):
    return lambda A, y, l2, w: run(model(A, y, l2, weights=w, **static)), (A, y, L2, WEIGHTS)


# Constructors, each as a function of the arrays and numbers that may be traced.
BUILT = {
    "LeastSquares": linear(jaxht.LeastSquares),
    "Huber": linear(jaxht.Huber),
    "Logistic": linear(jaxht.Logistic, LABELS),
    "SquaredHinge": linear(jaxht.SquaredHinge, LABELS),
    "SmoothedHinge": linear(jaxht.SmoothedHinge, LABELS),
    "Hinge": linear(jaxht.Hinge, LABELS),
    "OneBit": linear(jaxht.OneBit, LABELS),
    "Poisson": linear(jaxht.Poisson, COUNTS),
    "Gamma": linear(jaxht.Gamma, COUNTS + 1),
    "Cox": linear(jaxht.Cox, np.stack([np.arange(N), np.arange(N) % 2], axis=1)),
    "Ordinal": linear(jaxht.Ordinal, CLASSES, num_classes=3),
    "Softmax": (
        lambda A, y, l2, w: run(jaxht.Softmax(A, y, l2, num_classes=3, weights=w)),
        (A, CLASSES, ONE, WEIGHTS),
    ),
    "MultiResponse": (
        lambda A, y, l2, w: run(jaxht.MultiResponse(A, y, l2, weights=w)),
        (A, A[:, :2], ONE, WEIGHTS),
    ),
    "matrix_sensing": (
        lambda A, y: run(jaxht.matrix_sensing(A, y, mean=False), jaxht.LowRank(1)),
        (A.reshape(N, 2, 2), Y),
    ),
    "matrix_completion": (
        lambda rows, columns, y: run(
            jaxht.matrix_completion(rows, columns, y, (2, 3), mean=False), jaxht.LowRank(1)
        ),
        (CLASSES % 2, CLASSES, Y),
    ),
    "trace_regression": (
        lambda A, y, l2: run(
            jaxht.trace_regression(LeastSquares(A, y, l2, mean=False), (2, 2)), jaxht.LowRank(1)
        ),
        (A, Y, ONE),
    ),
    "GaussianPrecision": (
        lambda S, lower, upper: run(jaxht.GaussianPrecision(S, lower, upper), jaxht.Edges(1)),
        (S, np.float32(0.1), np.float32(9)),
    ),
    "MomentLeastSquares": (
        lambda G, b, s, n, l2: run(jaxht.MomentLeastSquares(G, b, s, n, l2)),
        (S, L2, ONE, np.float32(N), L2),
    ),
    "Custom": (lambda y: run(jaxht.Custom(lambda x, y: jnp.sum((x - y) ** 2), y, like=D)), (L2,)),
    "FiniteSum": (
        lambda y, w: run(jaxht.FiniteSum(lambda x, y: jnp.sum((x - y) ** 2), y, like=D, weights=w)),
        (A, WEIGHTS),
    ),
    "Sparse": (
        lambda k, keep, lower, upper: run(constraint=Sparse(k, 3, keep, True, (lower, upper))),
        (np.int32(2), KEEP, -L2, ONE),
    ),
    "Groups": (
        lambda k, groups, keep, lower, upper: run(
            constraint=jaxht.Groups(k, groups, 2, keep, num_groups=2, bounds=(lower, upper))
        ),
        (np.int32(1), GROUPS, KEEP, -L2, ONE),
    ),
    "SparsePerGroup": (
        lambda k, keep, lower, upper, groups, per_group: run(
            constraint=jaxht.SparsePerGroup(
                k, 3, keep, True, (lower, upper), groups, per_group, num_groups=2
            )
        ),
        (np.int32(2), KEEP, -L2, ONE, GROUPS, np.array([1, 2], np.int32)),
    ),
    "TreeSparse": (
        lambda k: run(constraint=jaxht.TreeSparse(k, np.arange(D) - 1, 3)),
        (np.int32(2),),
    ),
    "Edges": (
        lambda k, keep: run(jaxht.GaussianPrecision(S), jaxht.Edges(k, 3, keep)),
        (np.int32(2), np.eye(D, k=1) > 1),
    ),
    "LowRank": (
        lambda k, rtol: run(jaxht.MultiResponse(A, A[:, :3]), jaxht.LowRank(k, 2, rtol=rtol)),
        (np.int32(1), ONE),
    ),
    "LinearOperator": (
        lambda scale, norms: run(
            LeastSquares(
                jaxht.LinearOperator(lambda x, s: s * x, (D, D), (scale,), norms=norms),
                jnp.ones(D),
                mean=False,
            )
        ),
        (ONE, L2),
    ),
    "Stop": (
        lambda steps, rtol, patience, target, gap: run(
            stop=Stop(steps, rtol, patience, target, gap)
        ),
        (np.int32(9), ONE, np.int32(2), -ONE, ONE),
    ),
    "x0": (lambda x0: extend.prepare(F, C, IHT(), x0=x0)[1], (L2,)),
    "path": (
        lambda ks: jaxht.path(F, Sparse(1, k_max=3), jaxht.OMP(), ks=ks),
        (np.array([1, 2, 3]),),
    ),
    "validate": (
        lambda ks: jaxht.validate(F, F, Sparse(1, k_max=3), IHT(), ks=ks),
        (np.array([1, 3]),),
    ),
    "optimality": (
        lambda x, eta: jaxht.optimality(F, C, x, step_size=eta),
        (L2 * (np.arange(D) < 2), ONE),
    ),
    "certify": (
        lambda x, l2: jaxht.certify(LeastSquares(A, Y, l2, mean=False), C, x),
        (L2 * (np.arange(D) < 2), ONE),
    ),
    "exhaustive_search": (
        lambda A, y: jaxht.exhaustive_search(LeastSquares(A, y, mean=False), C),
        (A, Y),
    ),
    "hard_threshold": (
        lambda x, k, every: transforms.hard_threshold(k, every=every).update(
            x, transforms.hard_threshold(k, every=every).init(x), x
        )[0],
        (L2, np.int32(2), np.int32(3)),
    ),
}
PUBLIC = {
    name: value
    for name, value in vars(jaxht).items()
    if isinstance(value, type) and not is_protocol(value)
}
SOLVERS = {name: value for name, value in PUBLIC.items() if hasattr(value, "step")}


def numbers(solver):
    """The names of a solver's numbers, and which of them are integers."""
    fields = [field for field in dataclasses.fields(solver) if not field.metadata.get("static")]
    return {field.name: field.metadata.get("integer", False) for field in fields}


def built(solver):
    def build(*values):
        given = solver(**dict(zip(numbers(solver), values, strict=True)))
        return run(LeastSquares(A, Y, 1.0, mean=False), solver=given, key=jax.random.key(0))

    return build, tuple(np.int32(1) if integral else ONE for integral in numbers(solver).values())


BUILT |= {name: built(solver) for name, solver in SOLVERS.items() if numbers(solver)}


@pytest.mark.parametrize("where", ["eager", "numpy", "constant", "traced"])
@pytest.mark.parametrize("name", BUILT)
def test_what_is_right_comes_in(name, where):
    build, arguments = BUILT[name]
    if where == "eager":
        build(*map(jnp.asarray, arguments))
    elif where == "traced":
        jax.jit(build).lower(*arguments)
    else:
        constants = arguments if where == "numpy" else tuple(map(jnp.asarray, arguments))
        jax.jit(lambda: build(*constants)).lower()


def test_all_constructors_are_tried():
    names = {name for name, value in PUBLIC.items() if hasattr(value, "prepare")}
    assert {"Groups", "LeastSquares"} <= names <= set(BUILT), names - set(BUILT)
    assert {"IHT", "HTSVRG"} <= set(SOLVERS) & set(BUILT)


def test_groups_within_a_jit_are_what_they_are_outside():
    groups = jnp.array([0, 0, 1, 1])
    inside = jax.jit(
        lambda y: (
            jaxht.solve(LeastSquares(A, y, mean=False), jaxht.Groups(1, groups), jaxht.HTP()).x
        )
    )(Y)
    np.testing.assert_allclose(
        inside, jaxht.solve(F, jaxht.Groups(1, groups), jaxht.HTP()).x, rtol=1e-5
    )


# ---- wrong kinds of object -----------------------------------------------------------------------


class Frame:
    """What pandas and its like have."""

    shape, ndim = (N,), 1

    def __len__(self):
        return N

    def to_numpy(self):
        return Y

    def __array__(self, dtype=None, copy=None):
        return Y


def solved(objective=F, constraint=C, solver=None, **options):
    return lambda: jaxht.solve(
        objective, constraint, IHT() if solver is None else solver, **options
    )


def operator(product=lambda x: A @ x, shape=(N, D), **options):
    return lambda: jaxht.LinearOperator(product, shape, **options)


# (what the message must be, from its start; the call)
WRONG = {
    "constraint and solver are swapped": (
        r"constraint must be a constraint such as Sparse\(k\); got HTP, a solver",
        solved(constraint=jaxht.HTP(), solver=C),
    ),
    "objective and constraint are swapped": (
        r"objective must be an objective such as LeastSquares\(A, y\); got Sparse, a constraint",
        solved(C, F),
    ),
    "objective is data": (
        r"objective must be an objective such as .*; got float32\[6,4\]",
        solved(A),
    ),
    "constraint is a number": (
        r"constraint must be a constraint such as Sparse\(k\); got 3",
        solved(constraint=3),
    ),
    "solver is a constraint": (
        r"solver must be a solver such as HTP\(\); got Sparse, a constraint",
        solved(solver=C),
    ),
    "solver is a class": (
        r"solver must be a solver such as HTP\(\); got the class HTP: an instance is HTP\(\.\.\.\)",
        solved(solver=jaxht.HTP),
    ),
    "constraint is a class": (
        r"constraint must be .*; got the class Sparse",
        solved(constraint=Sparse),
    ),
    "solver is text": (r"solver must be a solver such as HTP\(\); got 'HTP'", solved(solver="HTP")),
    "solver is a number": (r"solver must be a solver such as HTP\(\); got 0.5", solved(solver=0.5)),
    "solver is a function": (
        r"solver must be .*; got the function solve",
        solved(solver=jaxht.solve),
    ),
    "stop is text": (
        r"stop must be a Stop such as Stop\(max_steps=100\); got 'never'",
        solved(stop="never"),
    ),
    "stop is a number": (
        r"stop must be a Stop such as Stop\(max_steps=100\); got 100",
        solved(stop=100),
    ),
    "stop is missing": (
        r"stop must be a Stop such as Stop\(max_steps=100\); got None",
        solved(stop=None),
    ),
    "stop of trace": (
        r"stop must be a Stop",
        lambda: jaxht.trace(F, C, IHT(), num_steps=2, stop=100),
    ),
    "solver of path": (
        r"solver must be .*class OMP",
        lambda: jaxht.path(F, C, jaxht.OMP, ks=[1, 2]),
    ),
    "constraint of path": (
        r"constraint must be .*got 1",
        lambda: jaxht.path(F, 1, jaxht.OMP(), ks=[1, 2]),
    ),
    "solver of validate": (
        r"solver must be .*class OMP",
        lambda: jaxht.validate(F, F, C, jaxht.OMP, ks=[1, 2]),
    ),
    "objective of optimality": (
        r"objective must be .*Sparse",
        lambda: jaxht.optimality(C, F, Y[:D]),
    ),
    "objective of certify": (r"objective must be .*Sparse", lambda: jaxht.certify(C, F, Y[:D])),
    "objective of exhaustive_search": (
        r"objective must be .*Sparse",
        lambda: jaxht.exhaustive_search(C, F),
    ),
    "k is text": (r"k must be an integer; got '3'", solved(constraint=Sparse("3"))),
    "k is the name of a dtype": (
        r"k must be an integer; got 'i4'",
        solved(constraint=Sparse("i4")),
    ),
    "k is a list": (r"k must be an integer; got \[2\]", solved(constraint=Sparse([2]))),
    "k of groups is text": (
        r"k must be an integer; got '3'",
        solved(constraint=jaxht.Groups("3", GROUPS)),
    ),
    "keep is a list of indices": (
        r"keep must be a boolean mask of shape \(4,\); got list: that of indices is np.isin\(np.arange\(d\), indices\)",
        solved(constraint=Sparse(2, keep=[0, 1])),
    ),
    "keep is an array of indices": (
        r"keep must be a boolean mask of shape \(4,\); got dtype int\d\d and shape \(2,\): that of indices is np.isin",
        solved(constraint=Sparse(2, keep=np.array([0, 1]))),
    ),
    "keep is a frame": (
        r"keep must be .*got Frame: pass keep.to_numpy\(\)",
        solved(constraint=Sparse(2, keep=Frame())),
    ),
    "groups are a list": (
        r"groups must be an array of integers of shape \(4,\); got list: pass np.asarray\(groups\)",
        solved(constraint=jaxht.Groups(1, [0, 0, 1, 1])),
    ),
    "groups are lists of members": (
        r"groups must be an array of integers of shape \(4,\); got lists of members, which jaxht.LatentGroups",
        solved(constraint=jaxht.Groups(1, [[0], [1, 2, 3]])),
    ),
    "groups of entries are lists of members": (
        r"groups must be an array of integers of shape \(4,\); got lists of members, which jaxht.LatentGroups",
        solved(constraint=jaxht.SparsePerGroup(k=1, groups=[[0], [1, 2, 3]])),
    ),
    "y has lists of different lengths": (
        r"y must be an array; got lists of different lengths",
        lambda: jaxht.LeastSquares(np.eye(4, dtype=np.float32), [[0.0], [1.0, 2.0]]).prepare(),
    ),
    "a bound is text": (
        r"bounds: lower must be a number.*got '0'",
        solved(constraint=Sparse(2, bounds=("0", None))),
    ),
    "A is a frame": (
        r"A must be an array .*; got Frame: pass A.to_numpy\(\)",
        solved(LeastSquares(Frame(), Y, mean=False)),
    ),
    "A has a mask": (
        r"A must be an array; got a masked array: pass A.filled",
        solved(LeastSquares(np.ma.masked_invalid(A), Y, mean=False)),
    ),
    "y is a series": (
        r"y must be an array of shape \(6,\); got Frame: pass y.to_numpy\(\)",
        solved(LeastSquares(A, Frame(), mean=False)),
    ),
    "weights are a series": (
        r"LeastSquares.weights must be .*; got Frame: pass",
        solved(LeastSquares(A, Y, weights=Frame(), mean=False)),
    ),
    "weights are a list": (
        r"LeastSquares.weights must be .*got list",
        solved(LeastSquares(A, Y, weights=[1.0] * N, mean=False)),
    ),
    "S is a list": (
        r"S must be a square matrix; got list: pass np.asarray\(S\)",
        solved(jaxht.GaussianPrecision(S.tolist()), jaxht.Edges(1)),
    ),
    "A of matrix sensing is a list": (
        r"A must be .*; got list",
        lambda: jaxht.matrix_sensing(A.tolist(), Y, mean=False),
    ),
    "step_size is text": (
        r"IHT.step_size must be a number; got '0.1'",
        solved(solver=IHT(step_size="0.1")),
    ),
    "max_steps is text": (r"Stop.max_steps must be a number; got '9'", solved(stop=Stop("9"))),
    "x0 is text": (r"x0 must have shape \(4,\).* or be \"dense\"; got 'zero'", solved(x0="zero")),
    "key is a seed": (
        r"key must be a PRNG key such as jax.random.key\(seed\); got 0",
        solved(key=0),
    ),
    "key is missing": (
        r"key must be given: SVRGHT draws random numbers",
        solved(solver=jaxht.SVRGHT()),
    ),
    "every is text": (
        r"every must be an integer; got '2'",
        lambda: transforms.hard_threshold(2, every="2"),
    ),
    "k of a transform is text": (
        r"k must be an integer or a fraction; got '2'",
        lambda: transforms.hard_threshold("2").update(Y, transforms.hard_threshold(2).init(Y), Y),
    ),
    "shape is a number": (r"shape must be a pair of ints \(n, d\); got 6", operator(shape=N)),
    "shape has three axes": (
        r"shape must be a pair of ints \(n, d\); got \(6, 4, 1\)",
        operator(shape=(N, D, 1)),
    ),
    "shape is real": (
        r"shape must be a pair of ints \(n, d\); got \(6.0, 4\)",
        operator(shape=(6.0, D)),
    ),
    "product is a matrix": (
        r"product must be a function of a vector; got float32\[6,4\]",
        operator(A),
    ),
    "product has another shape": (
        r"product must map shape \(4,\) to \(6,\); got float32\[5\]",
        operator(lambda x: A[1:] @ x),
    ),
    "adjoint has another shape": (
        r"adjoint must map shape \(6,\) to \(4,\); got float32\[6\]",
        operator(adjoint=lambda r: r),
    ),
    "product is complex": (
        r"product must return numbers of its dtype float32; got complex64",
        operator(lambda x: jnp.fft.fft(x), shape=(D, D)),
    ),
    "dtype is half": (
        r"dtype must be float32, float64, complex64 or complex128; got float16",
        operator(dtype=jnp.float16),
    ),
    "product is not linear": (r"product must be linear in x", operator(lambda x: jnp.abs(A @ x))),
    "product is affine": (r"product must be linear in x", operator(lambda x: A @ x + 1)),
    "product is not linear, in spite of its adjoint": (
        r"product must be linear in x",
        operator(lambda x: A @ x**3, adjoint=lambda r: A.T @ r),
    ),
    "adjoint has another sign": (
        r"adjoint must be that of product",
        operator(adjoint=lambda r: -A.T @ r),
    ),
    "adjoint has another factor": (
        r"adjoint must be that of product",
        operator(adjoint=lambda r: 1.1 * A.T @ r),
    ),
    "adjoint is not finite": (
        r"adjoint must be that of product",
        operator(adjoint=lambda r: jnp.nan * (A.T @ r)),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_kinds_are_named(name):
    message, call = WRONG[name]
    with pytest.raises(ValueError, match=rf"^{message}") as error:
        call()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("where", ["jit", "vmap", "grad", "closure"])
def test_operators_are_not_tested_where_they_are_traced(where):
    def value(scale, shift=2.0):
        return jnp.sum(
            jaxht.LinearOperator(lambda x, s: s * jnp.abs(x) + shift, (D, D), (scale,)).matvec(
                jnp.ones(D)
            )
        )

    if where == "jit":
        jax.jit(value)(1.0)
        jax.jit(lambda: value(1.0))()
    elif where == "vmap":
        jax.vmap(value)(jnp.ones(2))
    elif where == "grad":
        jax.grad(value)(1.0)
    else:
        jax.vmap(lambda shift: value(1.0, shift))(jnp.ones(2))


@pytest.mark.parametrize("n", [1, 5, 3000])
@pytest.mark.parametrize("scale", [1e-15, 1.0, 1e15])
def test_right_operators_pass(n, scale):
    d = 2 * n
    places = np.random.default_rng(n).choice(d, n, replace=False)

    def product(x):
        return scale * jnp.fft.rfft(x).real[places % (d // 2 + 1)]

    jaxht.LinearOperator(product, (n, d))
    jaxht.LinearOperator(
        lambda x: scale * x[places],
        (n, d),
        adjoint=lambda r: scale * jnp.zeros(d).at[places].add(r),
    )
    jaxht.LinearOperator(lambda x: 0 * x, (d, d), adjoint=lambda r: 0 * r)


def test_the_test_of_an_operator_is_switched_off_and_made_once():
    calls = []

    def product(x):
        calls.append(1)
        return jnp.abs(x)

    jaxht.LinearOperator(product, (D, D), check=False)
    assert not calls
    A = jaxht.LinearOperator(lambda x, s: product(x) * s * 0 + x, (D, D), (np.ones(1),))
    made = len(calls)
    jaxht.LeastSquares(A, Y[:D], mean=False).prepare()
    run(LeastSquares(A, Y[:D], mean=False))
    assert 0 < made == len(calls)


# ---- how things print ----------------------------------------------------------------------------

SQUARES = LeastSquares(jnp.eye(D), jnp.array([1.0, 4.0, 2.0, 3.0]), mean=False)


@pytest.mark.parametrize("name", SOLVERS)
def test_a_solver_prints_as_what_was_written(name):
    assert repr(SOLVERS[name]()) == f"{name}()"


WRITTEN = [
    (lambda: IHT(step_size=jnp.float32(0.5), nesterov=True), "IHT(step_size=0.5, nesterov=True)"),
    (lambda: jaxht.GraSP(False), "GraSP(debias=False)"),
    (
        lambda: jaxht.SVRGHT(0.5, 9, 2, replace=False),
        "SVRGHT(step_size=0.5, inner_steps=9, batch_size=2, replace=False)",
    ),
    (lambda: Stop(max_steps=np.int32(9)), "Stop(max_steps=9)"),
    (
        lambda: Sparse(2, keep=KEEP, bounds=(None, L2)),
        "Sparse(k=2, keep=bool[4], bounds=(None, float32[4]))",
    ),
    (lambda: SQUARES, "LeastSquares(A=float32[4,4], y=float32[4], mean=False)"),
    (
        lambda: jaxht.LinearOperator(jnp.negative, (D, D), dtype=np.float32),
        "LinearOperator(product=negative, shape=(4, 4), dtype=float32)",
    ),
    (
        lambda: jaxht.solve(SQUARES, C, jaxht.OMP()),
        "Result(status=FINISHED, value=2.5, num_steps=2, x=float32[4], support=Support(size=2, mask=bool[4]))",
    ),
    (
        lambda: jaxht.path(SQUARES, C, jaxht.OMP(), ks=[1, 2], stop=Stop(target_value=3.0)),
        "Result(batch=(2,), status={FINISHED: 1, TARGET_REACHED: 1}, value=float32[2], num_steps=int32[2], "
        "x=float32[2,4], support=Support(mask=bool[2,4]))",
    ),
    (lambda: jaxht.Support(KEEP), "Support(size=1, mask=bool[4])"),
    (
        lambda: jaxht.Certificate(2.5, np.float32(2), jnp.float32(0.5)),
        "Certificate(value=2.5, lower=2, gap=0.5)",
    ),
    (
        lambda: jaxht.Optimality(jnp.float32(0), jnp.float32(0.25), jnp.float32(0), jnp.ones(3)),
        "Optimality(stationarity=0, restricted_gradient=0.25, fixed_point_residual=0, swap_gain=float32[3])",
    ),
]


@pytest.mark.parametrize(
    ("make", "text"), WRITTEN, ids=[text.partition("(")[0] for _, text in WRITTEN]
)
def test_what_prints_is_short(make, text):
    assert repr(make()) == text


def test_within_a_jit_shapes_are_printed():
    printed = []

    @jax.jit
    def traced(y):
        result = jaxht.solve(LeastSquares(A, y, mean=False), C, IHT())
        printed.append(repr(result))
        return result.x

    traced(Y)
    assert printed == [
        "Result(status=int32[], value=float32[], num_steps=int32[], x=float32[4], support=Support(mask=bool[4]))"
    ]


# ---- indices on the host -------------------------------------------------------------------------


@pytest.mark.parametrize("k_max", [None, 2, 4])
def test_indices_on_the_host_have_no_padding(k_max):
    support = jaxht.Support(jnp.array([False, True, False, True]), k_max=k_max)
    found = support.numpy()
    assert isinstance(found, np.ndarray) and found.tolist() == [1, 3]
    assert np.array(["a", "b", "c", "d"])[found].tolist() == ["b", "d"]
    matrix = jaxht.Support(jnp.eye(2, dtype=bool), k_max=3, ndim=2)
    assert matrix.numpy().tolist() == [0, 3]


def test_indices_of_a_batch_or_a_tracer_are_refused():
    batch = jaxht.Support(jnp.ones((3, 2), bool))
    with pytest.raises(ValueError, match=r"of one result; got a batch \(3,\): jax.tree.map"):
        batch.numpy()
    assert jax.tree.map(lambda leaf: leaf[1], batch).numpy().tolist() == [0, 1]
    with pytest.raises(ValueError, match=r"outside of jit and vmap: use support.mask or indices"):
        jax.jit(lambda mask: jaxht.Support(mask).numpy())(KEEP)


# ---- precision -----------------------------------------------------------------------------------

ROUNDED = {
    "LeastSquares": lambda dtype: solved(LeastSquares(A.astype(dtype), Y, mean=False)),
    "a sparse design": lambda dtype: lambda: jaxht.design(scipy.sparse.csr_array(A.astype(dtype))),
    "LinearOperator": lambda dtype: solved(
        LeastSquares(
            jaxht.LinearOperator(lambda x, a: a * x, (D, D), (np.ones(D, dtype),)),
            Y[:D],
            mean=False,
        )
    ),
    "matrix_sensing": lambda dtype: (
        jaxht.matrix_sensing(A.reshape(N, 2, 2).astype(dtype), Y, mean=False).prepare
    ),
    "matrix_completion": lambda dtype: (
        lambda: jaxht.matrix_completion(CLASSES, CLASSES, Y.astype(dtype), (3, 3), mean=False)
    ),
    "GaussianPrecision": lambda dtype: jaxht.GaussianPrecision(S.astype(dtype)).prepare,
    "Custom, its data": lambda dtype: (
        jaxht.Custom(lambda x, y: jnp.sum((x - y) ** 2), L2.astype(dtype), like=D).prepare
    ),
    "Custom, its variable": lambda dtype: lambda: jaxht.Custom(jnp.sum, like=L2.astype(dtype)),
    "FiniteSum": lambda dtype: (
        jaxht.FiniteSum(lambda x, y: jnp.sum(x * y), A.astype(dtype), like=D).prepare
    ),
}


@pytest.fixture
def warned_of_nothing():
    _checks._warn_of_rounding.cache_clear()  # noqa: SLF001
    yield
    _checks._warn_of_rounding.cache_clear()  # noqa: SLF001


@pytest.mark.parametrize("name", ROUNDED)
def test_rounding_of_float64_is_said_once(name, warned_of_nothing):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for dtype in (np.float32, np.int32):
            ROUNDED[name](dtype)()
        assert not caught
        with x64():
            ROUNDED[name](np.float64)()
        assert not caught
        for _ in range(2):
            ROUNDED[name](np.float64)()
    (only,) = caught
    assert only.category is UserWarning
    assert re.match(
        r'float64 data are rounded .*jax.config.update\("jax_enable_x64", True\)', str(only.message)
    )


def test_targets_and_numbers_are_rounded_in_silence(warned_of_nothing):
    """They take the precision of A."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jaxht.solve(
            LeastSquares(A, Y.astype(float), np.float64(0.1), weights=np.ones(N), mean=False),
            C,
            IHT(np.float64(0.1)),
        )


# ---- derivatives ---------------------------------------------------------------------------------


def test_derivatives_of_a_solution_are_those_of_its_steps():
    """By the implicit function theorem next to those of 500 steps."""

    def value(y, run=jaxht.solve):
        result = run(LeastSquares(A, y, mean=False), C, IHT())
        return (result[0] if isinstance(result, tuple) else result).value

    def traced(y):
        return value(y, lambda *problem: jaxht.trace(*problem, num_steps=500))

    for gradient in (jax.grad(value)(Y), jax.jacfwd(value)(Y)):
        np.testing.assert_allclose(gradient, jax.grad(traced)(Y), rtol=1e-3, atol=1e-4)
