"""The table of solvers that the contract suite runs on, and the problems it runs them on.

To put a solver under contract add a `Row`. What it cannot do goes into the row, with the reason.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import scipy.sparse

import jaxht
from tests.reference import hard_threshold, largest

LANES = 4
K_MAX = 5
NUM_STEPS = 80

# Of XLA, for what runs once and is small: half the time to compile. Lanes that run alone, on thorough rows, are
# compiled as for users.
QUICK = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}


@dataclasses.dataclass(frozen=True)
class Case:
    """A kind of problem, on a design of its own for each lane or one shared by all, in float32 or float64."""

    problem: Any
    kind: str
    shared: bool
    dtype: str

    def __str__(self):
        return f"{self.kind}-{'shared' if self.shared else 'own'}-{self.dtype}"


@dataclasses.dataclass(frozen=True)
class Batch:
    """A problem a lane: an objective whose arrays are stacked where `axes` is 0, with a size and a start."""

    objective: Any
    axes: Any
    k: np.ndarray
    x0: np.ndarray

    def lane(self, i):
        """The objective of lane i."""

        def pick(axis, part):
            return part if axis is None else jax.tree.map(lambda leaf: leaf[i], part)

        return jax.tree.map(pick, self.axes, self.objective, is_leaf=lambda axis: axis is None)


class Vectors:
    """A sparse vector, or a matrix of few entries.

    Of its kind are words: "mean" or the sum, with a "ridge" or none, on a "sparse" design (which lanes share) or a
    dense one; squares, or the loss that is named.
    """

    d, num_outputs = 12, 1
    most = d  # that k may be

    def constraint(self, k, k_max):
        return jaxht.Sparse(k, k_max=k_max)

    def gathers(self, case):
        """Whether minimising on supports takes columns, so that k_max is needed."""
        return "sparse" not in case.kind

    def batch(self, case):
        n, d, words = 60, self.d, case.kind.split()
        mean = not {"mean", "logistic", "huber", "softmax"}.isdisjoint(words)
        rng = np.random.default_rng([len(case.kind), case.shared])
        A = rng.normal(size=(n, d) if case.shared else (LANES, n, d)) / (1 if mean else np.sqrt(n))
        if "sparse" in words:
            A *= rng.random(A.shape) < 0.5
        k, truth = np.array([4, 2, 3, 5], np.int32), np.zeros((LANES, d * self.num_outputs))
        for x, size in zip(truth, k, strict=True):
            x[rng.choice(x.size, size, replace=False)] = np.array([3, -2.5, 2, 1.5, -1])[:size]
        x0 = rng.normal(size=truth.shape)
        x0[:2] = 0
        truth, x0 = (x.reshape(LANES, d, -1) for x in (truth, x0))
        u = A @ truth
        u += 0.1 * np.abs(A).mean() * rng.normal(size=u.shape)
        x0 = x0 if self.num_outputs > 1 else x0[..., 0]
        l2 = 0.5 if "ridge" in words else 0.0
        if "logistic" in words or "softmax" in words:
            u += rng.normal(size=u.shape)
            l2 = 0.05
        y = {"logistic": np.sign(u[..., 0]), "softmax": np.argmax(u, axis=-1)}.get(words[0], u[..., 0])
        A, y, l2, x0 = (np.asarray(v, case.dtype) for v in (A, y, l2, x0))
        make = functools.partial(jaxht.LeastSquares, mean=mean)
        if words[0] in ("logistic", "softmax"):
            make = {"logistic": jaxht.Logistic, "softmax": functools.partial(jaxht.Softmax, num_classes=3)}[words[0]]
        elif words[0] == "huber":
            make = functools.partial(jaxht.Huber, delta=np.asarray(0.5, case.dtype))
        axes = make(None if case.shared else 0, 0, None)
        axes = dataclasses.replace(axes, **{name: None for name in ("delta", "scale") if hasattr(axes, name)})
        if "sparse" in words:
            A = jaxht.design(scipy.sparse.csr_array(A))
        return Batch(make(A, y, l2), axes, k, x0)

    def value(self, objective, x):
        """f in float64, loss by loss."""
        A, y, l2 = (np.asarray(v, np.float64) for v in (dense(objective.A), objective.y, objective.l2))
        u = A @ x
        match objective:
            case jaxht.LeastSquares():
                losses = (u - y) ** 2 / 2
            case jaxht.Logistic():
                losses = np.log1p(np.exp(-y * u))
            case jaxht.Huber():
                losses, r = (u - y) ** 2 / 2, np.abs(u - y)
                losses = np.where(r <= objective.delta, losses, objective.delta * (r - objective.delta / 2))
            case jaxht.Softmax():
                losses = np.log(np.sum(np.exp(u), axis=1)) - u[np.arange(len(y)), y.astype(int)]
        return (np.mean(losses) if objective.mean else np.sum(losses)) + l2 / 2 * np.sum(x**2)

    def size(self, x):
        """||x||_0."""
        return np.count_nonzero(x)

    def support(self, x):
        """The mask that goes with points x."""
        return x != 0

    def projected(self, x, k):
        return hard_threshold(x.ravel(), k).reshape(x.shape)

    def poisoned(self, batch, lane):
        """NaN in the data of one lane."""
        name = "A" if isinstance(batch.objective, jaxht.Softmax) else "y"
        data = getattr(batch.objective, name).copy()
        data[lane, 0] = np.nan
        return dataclasses.replace(batch, objective=dataclasses.replace(batch.objective, **{name: data}))

    def scaled(self, batch, solver):
        """A in units of 2^-8 and y, unless it holds labels, in units of 2^12: no rounding is involved."""
        f = batch.objective
        a, b = 2.0**8, 1.0 if isinstance(f, jaxht.Logistic | jaxht.Softmax) else 2.0**-12
        A = jax.tree.map(lambda leaf: a * leaf if leaf.dtype.kind == "f" else leaf, f.A)
        f = dataclasses.replace(f, A=A, y=b * f.y, l2=a**2 * f.l2)
        if isinstance(f, jaxht.Huber):
            f = dataclasses.replace(f, delta=b * f.delta)
        if getattr(solver, "step_size", None) is not None:
            solver = dataclasses.replace(solver, step_size=solver.step_size / a**2)
        return dataclasses.replace(batch, objective=f, x0=b / a * batch.x0), solver, b / a

    def order(self, rng):
        """Of the coordinates, another one."""
        return rng.permutation(self.d)

    def permuted(self, batch, order):
        """The same problem with its coordinates in another order."""
        A = dense(batch.objective.A)[..., order]
        if not isinstance(batch.objective.A, np.ndarray):
            A = jaxht.design(scipy.sparse.csr_array(A))
        f = dataclasses.replace(batch.objective, A=A)
        return dataclasses.replace(batch, objective=f, x0=self.reordered(batch.x0, order))

    def reordered(self, x, order):
        return x[:, order]


def dense(A):
    """A design as a NumPy array."""
    if isinstance(A, np.ndarray):
        return A
    part = jax.tree.map(np.asarray, A.by_row)
    array = np.zeros((A.shape[0], A.shape[1] + 1), part.values.dtype)  # the padding is beyond the last column
    np.add.at(array, (part.rows[:, None], part.indices), part.values)
    return array[:, :-1]


class Outputs(Vectors):
    """A matrix of few entries: one column for each class."""

    d, num_outputs = 6, 3
    most = 18

    def gathers(self, case):
        return False


class Grouped(Vectors):
    """A vector of few groups, of two coordinates each."""

    most = 6
    groups = np.arange(12) % 6

    def constraint(self, k, k_max):
        return jaxht.Groups(k, self.groups, k_max=k_max)

    def support(self, x):
        pairs = (x != 0).reshape(*x.shape[:-1], 2, 6)
        return np.broadcast_to(pairs.any(axis=-2, keepdims=True), pairs.shape).reshape(x.shape)

    def size(self, x):
        return np.count_nonzero(x.reshape(2, 6).any(axis=0))

    def projected(self, x, k):
        norms = np.linalg.norm(x.reshape(2, 6), axis=0)
        return np.where(np.isin(self.groups, largest(norms, k)), x, 0)

    def order(self, rng):
        order = rng.permutation(6)
        return np.append(order + 6, order)


class Matrices:
    """Sparse precision matrices with edges for coordinates."""

    most = 5

    def gathers(self, case):
        return False

    def constraint(self, k, k_max):
        return jaxht.Edges(k, k_max=k_max)

    def batch(self, case):
        p, rng = 5, np.random.default_rng(5)
        truth = 2 * np.eye(p)
        for i, j in [(0, 1), (1, 3), (2, 4)]:
            truth[i, j] = truth[j, i] = -0.7
        samples = rng.normal(size=(LANES, 100, p)) @ np.linalg.cholesky(np.linalg.inv(truth)).T
        S = np.swapaxes(samples, -1, -2) @ samples / 100
        x0 = np.stack([0.3 * np.eye(p)] * 2 + [np.diag(1 / np.diagonal(S[0]))] * 2)
        S, lower, upper, x0 = (np.asarray(v, case.dtype) for v in (S, 0.3, 8.0, x0))
        objective = jaxht.GaussianPrecision(S, lower, upper)
        return Batch(objective, jaxht.GaussianPrecision(0, None, None), np.array([3, 1, 2, 4], np.int32), x0)

    def value(self, objective, x):
        return -np.linalg.slogdet(x)[1] + np.sum(np.asarray(objective.S, np.float64) * x)

    def size(self, x):
        assert np.array_equal(x, x.T)
        return np.count_nonzero(np.triu(x, 1))

    def support(self, x):
        return x != 0

    def projected(self, x, k):
        """x0 is diagonal, which is feasible."""
        return x

    def poisoned(self, batch, lane):
        S = batch.objective.S.copy()
        S[lane, 0, 1] = np.nan
        return dataclasses.replace(batch, objective=dataclasses.replace(batch.objective, S=S))

    def scaled(self, batch, solver):
        """Half of S: twice W."""
        f = batch.objective
        f = dataclasses.replace(f, S=f.S / 2, lower=2 * f.lower, upper=2 * f.upper)
        solver = dataclasses.replace(solver, step_size=4 * solver.step_size)
        return dataclasses.replace(batch, objective=f, x0=2 * batch.x0), solver, 2.0

    def order(self, rng):
        return rng.permutation(5)

    def permuted(self, batch, order):
        f = dataclasses.replace(batch.objective, S=self.reordered(batch.objective.S, order))
        return dataclasses.replace(batch, objective=f, x0=self.reordered(batch.x0, order))

    def reordered(self, x, order):
        return x[..., order, :][..., order]


@dataclasses.dataclass(frozen=True)
class Row:
    """A solver under contract.

    Attributes:
        name: of the row.
        solver: with numbers as a user would write them.
        cases: what it solves.
        minimises: whether it minimises on supports, so that it may need k_max where k is traced.
        thorough: whether the clauses that take long run on it too: not where another row has the same frame.
        fails: name of a test -> why this solver fails it; then it must.
    """

    name: str
    solver: Any
    cases: tuple[Case, ...]
    minimises: bool = False
    thorough: bool = True
    fails: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def gathers(self, case):
        """Whether it needs k_max where k is traced."""
        return self.minimises and case.problem.gathers(case)

    def k_max(self, case):
        """The bound that its runs are given."""
        return K_MAX if self.gathers(case) else None


PROBLEMS = {"groups": Grouped(), "softmax": Outputs(), "precision": Matrices()}
VECTORS = Vectors()


def on(*cases):
    """Cases from "kind/own or shared/bits"."""
    split = (case.split("/") for case in cases)
    return tuple(
        Case(PROBLEMS.get(kind.split()[0], VECTORS), kind, design == "shared", f"float{bits}")
        for kind, design, bits in split
    )


# The kinds of problem are spread over the rows. The first case is also run without jit, where what is compiled for one
# row serves all: it is one of squares or a cheap loss in float32.
TABLE = {
    row.name: row
    for row in [
        Row("IHT", jaxht.IHT(), on("sum/own/32", "logistic/shared/64")),
        Row("IHT-heavy-ball", jaxht.IHT(step_size=0.4, momentum=0.2), on("mean ridge/shared/32"), thorough=False),
        Row("IHT-Nesterov", jaxht.IHT(momentum=0.3, nesterov=True), on("huber ridge/own/32"), thorough=False),
        Row("NIHT", jaxht.NIHT(), on("ridge/shared/32", "softmax/own/64")),
        Row("HTP", jaxht.HTP(), on("sum/own/32", "logistic/own/64"), minimises=True),
        Row("PHT", jaxht.PHT(r=2), on("mean/shared/32", "groups/own/64"), minimises=True, thorough=False),
        Row("CoSaMP", jaxht.CoSaMP(), on("ridge/own/32"), minimises=True, thorough=False),
        Row("GraSP", jaxht.GraSP(debias=True), on("groups ridge/shared/64"), minimises=True, thorough=False),
        Row(
            "SubspacePursuit", jaxht.SubspacePursuit(), on("sum/shared/32", "logistic sparse/shared/64"), minimises=True
        ),
        Row("OMP", jaxht.OMP(), on("mean ridge/own/32", "groups/shared/64"), minimises=True),
        Row("OMPR", jaxht.OMPR(), on("logistic sparse/shared/32"), minimises=True, thorough=False),
        Row(
            "ELS",
            jaxht.ExhaustiveLocalSearch(),
            on("ridge/own/32", "huber ridge/shared/64"),
            minimises=True,
            thorough=False,
        ),
        Row("FoBa", jaxht.FoBa(), on("mean/own/32", "softmax/own/64"), minimises=True, thorough=False),
        Row("ARHT", jaxht.ARHT(num_cores=2), on("mean ridge/own/32"), minimises=True, thorough=False),
        Row("SGHT", jaxht.SGHT(step_size=0.02, batch_size=2, inner_steps=8), on("huber ridge/own/32"), thorough=False),
        Row(
            "HTSVRG",
            jaxht.HTSVRG(step_size=0.05, inner_steps=8, radius=100.0),
            on("mean ridge/shared/32"),
            thorough=False,
        ),
        Row("HTSAGA", jaxht.HTSAGA(step_size=0.01, inner_steps=8), on("softmax/own/64"), thorough=False),
        Row(
            "HSGHT",
            jaxht.HSGHT(step_size=0.1, momentum=0.2, batch_growth=1.2),
            on("groups/shared/64"),
            thorough=False,
        ),
        # No l2, no dual.
        Row("DIHT", jaxht.DIHT(inner_steps=2), on("ridge/own/32"), minimises=True, thorough=False),
        Row(
            "SDIHT",
            jaxht.SDIHT(batch_size=7, inner_steps=4),
            on("huber ridge/own/32"),
            minimises=True,
            thorough=False,
        ),
        Row(
            "HTP-edges",
            jaxht.HTP(step_size=0.5, backtrack=True),
            on("precision/own/32"),
            minimises=True,
            thorough=False,
        ),
    ]
}


def never(case):
    """A Stop that ends no run before NUM_STEPS, with a number for each lane in every field."""
    real, whole = (functools.partial(np.full, LANES, dtype=dtype) for dtype in (case.dtype, np.int32))
    return jaxht.Stop(whole(NUM_STEPS), real(0), whole(10**6), real(-np.inf), real(0))


def keys():
    return jax.random.split(jax.random.key(7), LANES)


@functools.cache
def compiled(name, case):
    """The batched, traced run of a row: one compile, which most of its tests share."""
    row = TABLE[name]

    def lane(objective, k, x0, key, stop, solver):
        settings = {"x0": x0, "key": key, "stop": stop, "num_steps": NUM_STEPS, "record": lambda iterate: iterate}
        return jaxht.trace(objective, case.problem.constraint(k, row.k_max(case)), solver, **settings)

    return jax.jit(jax.vmap(lane, in_axes=(case.problem.batch(case).axes, 0, 0, 0, 0, None)), compiler_options=QUICK)


def run(name, case, batch=None, stop=None, solver=None):
    """Result and history of iterates of the row's solver in every lane, as NumPy arrays."""
    row = TABLE[name]
    batch, stop, solver = batch or case.problem.batch(case), stop or never(case), solver or row.solver
    return jax.tree.map(np.asarray, compiled(name, case)(batch.objective, batch.k, batch.x0, keys(), stop, solver))


@functools.cache
def baseline(name, case):
    """`run` of a row as it stands."""
    return run(name, case)
