"""The table of solvers that the contract suite runs on, and the problems it runs them on.

To put a solver under contract add a `Row`. What it cannot do goes into the row, with the reason.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

import jaxht
from tests import skeletons
from tests.reference import hard_threshold

LANES = 4
K_MAX = 5
NUM_STEPS = 80

# Of XLA, for what runs once and is small: half the time to compile. Lanes that run alone are compiled as for users.
QUICK = {"xla_backend_optimization_level": 0}


@dataclasses.dataclass(frozen=True)
class Case:
    """A kind of objective, on a design of its own for each lane or one shared by all, in float32 or float64."""

    kind: str
    shared: bool
    dtype: str

    def __str__(self):
        return f"{self.kind}-{'shared' if self.shared else 'own'}-{self.dtype}"


def pairwise(kinds):
    """Every pair of kind and design, kind and precision and, from two kinds on, design and precision."""
    dtypes = ("float32", "float64")
    return [Case(kind, shared, dtypes[(i + shared) % 2]) for i, kind in enumerate(kinds) for shared in (False, True)]


@dataclasses.dataclass(frozen=True)
class Batch:
    """A problem a lane: an objective whose arrays are stacked where `axes` is 0, with a size and a start."""

    objective: Any
    axes: Any
    k: np.ndarray
    x0: np.ndarray

    def lane(self, i):
        """The objective of lane i."""
        axes = iter(jax.tree.leaves(self.axes, is_leaf=lambda axis: axis is None))
        return jax.tree.map(lambda leaf: leaf if next(axes) is None else leaf[i], self.objective)


class Vectors:
    """Sparse least squares: the sum, the mean, and either with a ridge."""

    def __init__(self, *kinds):
        self.cases = pairwise(kinds)

    def constraint(self, k, k_max):
        return jaxht.Sparse(k, k_max=k_max)

    def batch(self, case):
        n, d, mean = 60, 12, "mean" in case.kind
        rng = np.random.default_rng([len(case.kind), case.shared])
        A = rng.normal(size=(n, d) if case.shared else (LANES, n, d)) / (1 if mean else np.sqrt(n))
        k, truth = np.array([4, 2, 3, 5], np.int32), np.zeros((LANES, d))
        for x, size in zip(truth, k, strict=True):
            x[rng.choice(d, size, replace=False)] = np.array([3, -2.5, 2, 1.5, -1])[:size]
        y = np.einsum("...nd,...d->...n", A, truth) + 0.1 * np.abs(A).mean() * rng.normal(size=(LANES, n))
        l2 = 0.5 if "ridge" in case.kind else 0.0
        x0 = rng.normal(size=(LANES, d))
        x0[:2] = 0
        A, y, l2, x0 = (np.asarray(v, case.dtype) for v in (A, y, l2, x0))
        make = functools.partial(jaxht.LeastSquares, mean=mean)
        return Batch(make(A, y, l2), make(None if case.shared else 0, 0, None), k, x0)

    def value(self, objective, x):
        A, y, l2 = (np.asarray(v, np.float64) for v in (objective.A, objective.y, objective.l2))
        squares = (A @ x - y) ** 2
        return (np.mean(squares) if objective.mean else np.sum(squares)) / 2 + l2 / 2 * np.sum(x**2)

    def size(self, x):
        """||x||_0."""
        return np.count_nonzero(x)

    def projected(self, x, k):
        return hard_threshold(x, k)

    def poisoned(self, batch, lane):
        """NaN in the data of one lane."""
        y = batch.objective.y.copy()
        y[lane, 0] = np.nan
        return dataclasses.replace(batch, objective=dataclasses.replace(batch.objective, y=y))

    def scaled(self, batch, solver):
        """A in units of 2^-8 and y in units of 2^12: no rounding is involved."""
        a, b, f = 2.0**8, 2.0**-12, batch.objective
        f = dataclasses.replace(f, A=a * f.A, y=b * f.y, l2=a**2 * f.l2)
        if getattr(solver, "step_size", None) is not None:
            solver = dataclasses.replace(solver, step_size=solver.step_size / a**2)
        return dataclasses.replace(batch, objective=f, x0=b / a * batch.x0), solver, b / a

    def permuted(self, batch, order):
        """The same problem with its coordinates in another order."""
        f = dataclasses.replace(batch.objective, A=batch.objective.A[..., order])
        return dataclasses.replace(batch, objective=f, x0=self.reordered(batch.x0, order))

    def reordered(self, x, order):
        return x[..., order]


class Matrices:
    """Sparse precision matrices with edges for coordinates."""

    cases = (Case("precision", False, "float32"), Case("precision", False, "float64"))

    def constraint(self, k, k_max):
        return skeletons.Edges(k, k_max=k_max)

    def batch(self, case):
        p, rng = 5, np.random.default_rng(5)
        truth = 2 * np.eye(p)
        for i, j in [(0, 1), (1, 3), (2, 4)]:
            truth[i, j] = truth[j, i] = -0.7
        samples = rng.normal(size=(LANES, 100, p)) @ np.linalg.cholesky(np.linalg.inv(truth)).T
        S = np.swapaxes(samples, -1, -2) @ samples / 100
        x0 = np.stack([0.3 * np.eye(p)] * 2 + [np.diag(1 / np.diagonal(S[0]))] * 2)
        S, lower, upper, x0 = (np.asarray(v, case.dtype) for v in (S, 0.3, 8.0, x0))
        objective = skeletons.Precision(S, lower, upper, np.int32(60))
        return Batch(objective, skeletons.Precision(0, None, None, None), np.array([3, 1, 2, 4], np.int32), x0)

    def value(self, objective, x):
        return -np.linalg.slogdet(x)[1] + np.sum(np.asarray(objective.S, np.float64) * x)

    def size(self, x):
        assert np.array_equal(x, x.T)
        return np.count_nonzero(np.triu(x, 1))

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
        problem: what it solves, in which cases; a problem has the methods of `Vectors`.
        gathers: whether it needs k_max where k is traced.
        fails: name of a test -> why this solver fails it; then it must.
    """

    name: str
    solver: Any
    problem: Any
    gathers: bool = False
    fails: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def k_max(self):
        """The bound that its runs are given."""
        return K_MAX if self.gathers else None


ALL, FEWER, DUAL = Vectors("sum", "mean", "ridge"), Vectors("sum", "mean ridge"), Vectors("ridge", "mean ridge")
SKELETON = Vectors("mean ridge")
TABLE = {
    row.name: row
    for row in [
        Row("IHT", jaxht.IHT(), ALL),
        Row("IHT-heavy-ball", jaxht.IHT(step_size=0.4, momentum=0.2), FEWER),
        Row("IHT-Nesterov", jaxht.IHT(momentum=0.3, nesterov=True), FEWER),
        Row("NIHT", jaxht.NIHT(), ALL),
        Row("HTP", jaxht.HTP(), ALL, gathers=True),
        Row("OMP", skeletons.OMP(), SKELETON, gathers=True),
        Row("HTSVRG", skeletons.HTSVRG(step_size=0.05, inner_steps=8), SKELETON),
        Row("DIHT", skeletons.DIHT(), DUAL),  # no l2, no dual
        Row("ARHT", skeletons.ARHT(), SKELETON, gathers=True),
        Row("HTP-edges", jaxht.HTP(step_size=0.5), Matrices()),
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
        return jaxht.trace(objective, row.problem.constraint(k, row.k_max), solver, **settings)

    return jax.jit(jax.vmap(lane, in_axes=(row.problem.batch(case).axes, 0, 0, 0, 0, None)), compiler_options=QUICK)


def run(name, case, batch=None, stop=None, solver=None):
    """Result and history of iterates of the row's solver in every lane, as NumPy arrays."""
    row = TABLE[name]
    batch, stop, solver = batch or row.problem.batch(case), stop or never(case), solver or row.solver
    return jax.tree.map(np.asarray, compiled(name, case)(batch.objective, batch.k, batch.x0, keys(), stop, solver))


@functools.cache
def baseline(name, case):
    """`run` of a row as it stands."""
    return run(name, case)
