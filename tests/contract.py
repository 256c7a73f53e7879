"""The table of solvers that the contract suite runs on, and the problems it runs them on.

To put a solver under contract add a `Row`: the cases it solves, and for each kind of problem that
it does not the error that says so.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse

import jaxht
from jaxht.extend import advance, finish, prepare, pytree, start
from tests.reference import hard_threshold, largest, largest_subtree
from tests.util import QUICK

LANES = 4
K_MAX = 5
NUM_STEPS = 60

# Every row has a case of each kind, or says by which error it is refused.
KINDS = (
    "Sparse",
    "Groups",
    "LowRank",
    "Edges",
    "function",
    "sparse design",
    "operator",
    "complex",
)


@dataclasses.dataclass(frozen=True)
class Case:
    """Settings of a solver on a kind of problem, with a design for each lane or one shared by all,
    in some dtype."""

    solver: Any
    problem: Any
    words: str
    shared: bool
    dtype: str

    def __str__(self):
        return f"{self.words}-{'shared' if self.shared else 'own'}-{self.dtype}"

    @property
    def kinds(self):
        """Those of KINDS that it is of."""
        given = {word for word in ("function", "operator") if word in self.words}
        if "csr" in self.words:
            given.add("sparse design")
        if self.is_complex:
            given.add("complex")
        return {self.problem.kind, *given}

    @property
    def is_complex(self):
        """Whether the data are complex numbers."""
        return self.dtype.startswith("complex")

    @property
    def real_dtype(self):
        """That of values, norms and tolerances."""
        return np.finfo(self.dtype).dtype.name

    @property
    def gathers(self):
        """Whether refits take the columns of supports, so that a traced k needs a k_max."""
        return self.problem.gathers(self.words)

    def batch(self):
        return self.problem.batch(self)

    def objective(self, arrays):
        return self.problem.objective(self.words, **arrays)


@dataclasses.dataclass(frozen=True)
class Batch:
    """A problem a lane: arrays by name, of which those in `own` are stacked, with a size and a
    start."""

    arrays: dict[str, Any]
    own: tuple[str, ...]
    k: np.ndarray
    x0: np.ndarray

    @property
    def axes(self):
        return {name: 0 if name in self.own else None for name in self.arrays}

    def lane(self, i):
        """The arrays of lane i."""
        return {
            name: array[i] if name in self.own else array for name, array in self.arrays.items()
        }

    def changed(self, **arrays):
        return dataclasses.replace(self, arrays={**self.arrays, **arrays})


# ---- losses of a prediction, for NumPy and JAX ---------------------------------------------------


def squares(u, y):
    return (u - y) ** 2 / 2


def logistic(u, y):
    return jnp.logaddexp(0, -y * u)


def of_function(loss):
    """As one function of x, and as one of x and a sample; made once, so that they compile once."""

    def whole(x, A, y, l2):
        return jnp.mean(loss(A @ x, y)) + l2 / 2 * jnp.sum(x**2)

    def one(x, sample, l2):
        a, y = sample
        return loss(a @ x, y) + l2 / 2 * jnp.sum(x**2)

    return whole, one


FUNCTIONS = {"squares": of_function(squares), "logistic": of_function(logistic)}


def times(x, A):
    return A @ x


def doubled(v):
    """In double precision."""
    return np.asarray(v, np.result_type(v, np.float64))


class Vectors:
    """A sparse vector, or a matrix of few entries.

    The first word is the loss. Others: "mean" or the sum; a "ridge" or none; "csr", a sparse
    design, which lanes share; an "operator"; a "function" of x and the data, and "samples", a mean
    of functions.
    """

    kind = "Sparse"
    n, d, num_outputs = 40, 12, 1
    most = d  # that k may be

    def constraint(self, k, k_max):
        return jaxht.Sparse(k, k_max=k_max)

    def gathers(self, words):
        return {"csr", "operator", "function"}.isdisjoint(words.split())

    def batch(self, case):
        n, d, words = self.n, self.d, case.words.split()
        mean = not {"mean", "logistic", "huber", "softmax", "function"}.isdisjoint(words)
        rng = np.random.default_rng([len(case.words), case.shared])
        A = rng.normal(size=(n, d) if case.shared else (LANES, n, d)) / (1 if mean else np.sqrt(n))
        if "csr" in words:
            A *= rng.random(A.shape) < 0.5
        k, truth = np.array([4, 2, 3, 5], np.int32), np.zeros((LANES, d * self.num_outputs))
        for x, size in zip(truth, k, strict=True):
            x[rng.choice(x.size, size, replace=False)] = np.array([3, -2.5, 2, 1.5, -1])[:size]
        x0 = rng.normal(size=truth.shape)
        if case.is_complex:
            A = (A + 1j * rng.normal(size=A.shape) * A.std()) / np.sqrt(2)
            truth = truth * np.exp(2j * np.pi * rng.random(truth.shape))
            x0 = x0 + 1j * rng.normal(size=x0.shape)
        x0[:2] = 0
        truth, x0 = (x.reshape(LANES, d, -1) for x in (truth, x0))
        u = A @ truth
        u += 0.1 * np.abs(A).mean() * rng.normal(size=u.shape)
        x0 = x0 if self.num_outputs > 1 else x0[..., 0]
        l2 = 0.5 if "ridge" in words else 0.0
        if "logistic" in words or "softmax" in words:
            u += rng.normal(size=u.shape)
            l2 = 0.05
        y = {"logistic": np.sign(u[..., 0]), "softmax": np.argmax(u, axis=-1)}.get(
            words[0], u[..., 0]
        )
        arrays = {
            "A": np.asarray(A, case.dtype),
            "y": np.asarray(y, case.dtype),
            "l2": np.asarray(l2, case.real_dtype),
            "delta": np.asarray(0.5, case.real_dtype),
        }
        return Batch(arrays, ("y",) if case.shared else ("A", "y"), k, x0.astype(case.dtype))

    def held(self, words, batch):
        """The arrays as the program takes them: a sparse design is made on the host."""
        if "csr" not in words:
            return batch
        return batch.changed(A=jaxht.design(scipy.sparse.csr_array(batch.arrays["A"])))

    def objective(self, words, A, y, l2, delta):
        words = words.split()
        if "function" in words:
            whole, one = FUNCTIONS[words[0]]
            if "samples" in words:
                return jaxht.FiniteSum(one, (A, y), l2, like=np.zeros(self.d, y.dtype))
            return jaxht.Custom(whole, A, y, l2, like=np.zeros(self.d, y.dtype))
        if "operator" in words:
            A = jaxht.LinearOperator(times, (self.n, self.d), (A,), dtype=y.dtype)
        match words[0]:
            case "squares":
                return jaxht.LeastSquares(A, y, l2, mean="mean" in words)
            case "logistic":
                return jaxht.Logistic(A, y, l2)
            case "huber":
                return jaxht.Huber(A, y, l2, delta=delta)
            case "softmax":
                return jaxht.Softmax(A, y, l2, num_classes=3)
        raise ValueError(words)

    def value(self, words, x, A, y, l2, delta):
        """f in double precision, loss by loss."""
        A, y, l2 = map(doubled, (A, y, l2))
        u = A @ x
        losses = {
            "squares": lambda: np.abs(u - y) ** 2 / 2,
            "logistic": lambda: np.log1p(np.exp(-y * u)),
            "huber": lambda: np.where(
                np.abs(u - y) <= delta, (u - y) ** 2 / 2, delta * (np.abs(u - y) - delta / 2)
            ),
            "softmax": lambda: (
                np.log(np.sum(np.exp(u), axis=1)) - u[np.arange(len(y)), y.astype(int)]
            ),
        }[words.split()[0]]()
        mean = words.split()[0] != "squares" or "mean" in words or "function" in words
        return (np.mean(losses) if mean else np.sum(losses)) + l2 / 2 * np.sum(np.abs(x) ** 2)

    def size(self, x):
        """||x||_0."""
        return np.count_nonzero(x)

    def has_support(self, support, x):
        """Whether it is that of points x."""
        np.testing.assert_array_equal(support.mask, self.support(x))

    def support(self, x):
        return x != 0

    def unmoved(self, x, before):
        """Whether the support is the one before."""
        return (self.support(x) == self.support(before)).all(axis=tuple(range(2, x.ndim)))

    def projected(self, x, k):
        return hard_threshold(x.ravel(), k).reshape(x.shape)

    def poisoned(self, batch, lane):
        """NaN in the data of one lane."""
        name = "A" if self.num_outputs > 1 else "y"
        data = batch.arrays[name].copy()
        data[lane, 0] = np.nan
        return batch.changed(**{name: data})

    def overflowing(self, batch):
        """Columns of which no number holds the square."""
        return batch.changed(A=batch.arrays["A"] * np.sqrt(np.finfo(batch.x0.dtype).max) * 16)

    def scaled(self, words, batch, solver):
        """A in units of 2^-8 and y, unless it holds labels, in units of 2^12: no rounding is
        involved."""
        a, b = 2.0**8, 1.0 if words.startswith(("logistic", "softmax")) else 2.0**-12
        factors = {"A": a, "y": b, "l2": a**2, "delta": b}
        batch = batch.changed(
            **{
                name: (factors[name] * array).astype(array.dtype)
                for name, array in batch.arrays.items()
            }
        )
        if getattr(solver, "step_size", None) is not None:
            solver = dataclasses.replace(solver, step_size=solver.step_size / a**2)
        return (
            dataclasses.replace(batch, x0=(b / a * batch.x0).astype(batch.x0.dtype)),
            solver,
            b / a,
        )

    def order(self, rng):
        """Of the coordinates, another one."""
        return rng.permutation(self.d)

    def permuted(self, batch, order):
        """The same problem with its coordinates in another order."""
        batch = batch.changed(A=batch.arrays["A"][..., order])
        return dataclasses.replace(batch, x0=self.reordered(batch.x0, order))

    def reordered(self, x, order):
        return x[:, order]


class Outputs(Vectors):
    """A matrix of few entries: one column for each class."""

    d, num_outputs = 6, 3
    most = 18

    def gathers(self, words):
        return False


class Grouped(Vectors):
    """A vector of few groups, of two coordinates each."""

    kind = "Groups"
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


class FewPerGroup(Grouped):
    """A vector of few entries, at most one of each pair."""

    kind = "SparsePerGroup"

    def constraint(self, k, k_max):
        return jaxht.SparsePerGroup(k, k_max=k_max, groups=self.groups)

    def support(self, x):
        return x != 0

    def size(self, x):
        return np.count_nonzero(x)

    def projected(self, x, k):
        pairs = np.abs(x.reshape(2, 6))
        is_first = pairs[0] >= pairs[1]
        winners = np.where(np.concatenate([is_first, ~is_first]), x, 0)
        return hard_threshold(winners, k)


class Trees(Vectors):
    """A vector of few entries, with each its parent, in two trees of one shape."""

    kind = "TreeSparse"
    tree = np.array([-1, 0, 0, 1, 1, 2])
    parents = np.append(tree, np.where(tree < 0, -1, tree + 6))

    def constraint(self, k, k_max):
        return jaxht.TreeSparse(k, self.parents, k_max)

    def projected(self, x, k):
        return np.where(np.isin(np.arange(12), largest_subtree(x, self.parents, k)), x, 0)

    def order(self, rng):
        """Of which the parents are the same: with the trees, and two leaves, exchanged."""
        return np.array([6, 7, 8, 10, 9, 11, 0, 1, 2, 3, 4, 5])


class LowRank(Vectors):
    """A matrix of low rank that maps features to several responses; its rows may be permuted."""

    kind = "LowRank"
    d, p = 5, 4
    most = 4

    def gathers(self, words):
        return False

    def constraint(self, k, k_max):
        return jaxht.LowRank(k, k_max)

    def batch(self, case):
        rng, k = np.random.default_rng(3), np.array([2, 1, 1, 2], np.int32)
        A = rng.normal(size=(LANES, self.n, self.d)) / np.sqrt(self.n)
        truth = np.einsum(
            "lir,lrj->lij", rng.normal(size=(LANES, self.d, 2)), rng.normal(size=(LANES, 2, self.p))
        )
        x0 = rng.normal(size=truth.shape)
        x0[:2] = 0
        arrays = {
            "A": A,
            "y": A @ truth + 0.01 * rng.normal(size=(LANES, self.n, self.p)),
            "l2": 0.1,
        }
        arrays = {name: np.asarray(array, case.dtype) for name, array in arrays.items()}
        return Batch(arrays, ("A", "y"), k, x0.astype(case.dtype))

    def objective(self, words, A, y, l2):
        return jaxht.MultiResponse(A, y, l2, mean=False)

    def value(self, words, x, A, y, l2):
        return np.sum((np.asarray(A, np.float64) @ x - y) ** 2) / 2 + float(l2) / 2 * np.sum(x**2)

    def size(self, x):
        """The rank, above what a decomposition rounds."""
        return np.linalg.matrix_rank(
            x.astype(np.float64), tol=100 * np.finfo(x.dtype).eps * np.linalg.norm(x)
        )

    def has_support(self, support, x):
        """The two spaces hold x, and are of its rank."""
        for i, (U, V, point) in enumerate(zip(support.U, support.V, x, strict=True)):
            np.testing.assert_allclose(
                U @ (U.T @ point @ V) @ V.T, point, rtol=0, atol=1e-5 * np.abs(point).max()
            )
            assert np.count_nonzero(U.any(axis=0)) == self.size(point) == support.size[i]

    def unmoved(self, x, before):
        """Spaces turn as long as x moves."""
        return (x == before).all(axis=(2, 3))

    def projected(self, x, k):
        U, s, V = np.linalg.svd(x, full_matrices=False)
        return (U[:, :k] * s[:k]) @ V[:k]


class Graphs(Vectors):
    """Sparse precision matrices with edges for coordinates."""

    kind = "Edges"
    p, most = 5, 5

    def gathers(self, words):
        return False

    def constraint(self, k, k_max):
        return jaxht.Edges(k, k_max=k_max)

    def batch(self, case):
        p, rng = self.p, np.random.default_rng(5)
        truth = 2 * np.eye(p)
        for i, j in [(0, 1), (1, 3), (2, 4)]:
            truth[i, j] = truth[j, i] = -0.7
        samples = rng.normal(size=(LANES, 100, p)) @ np.linalg.cholesky(np.linalg.inv(truth)).T
        S = np.swapaxes(samples, -1, -2) @ samples / 100
        x0 = np.stack([0.3 * np.eye(p)] * 2 + [np.diag(1 / np.diagonal(S[0]))] * 2)
        arrays = {"S": S, "lower": 0.3, "upper": 8.0}
        arrays = {name: np.asarray(array, case.dtype) for name, array in arrays.items()}
        return Batch(arrays, ("S",), np.array([3, 1, 2, 4], np.int32), x0.astype(case.dtype))

    def objective(self, words, S, lower, upper):
        return jaxht.GaussianPrecision(S, lower, upper)

    def value(self, words, x, S, lower, upper):
        return -np.linalg.slogdet(x)[1] + np.sum(np.asarray(S, np.float64) * x)

    def size(self, x):
        assert np.array_equal(x, x.T)
        return np.count_nonzero(np.triu(x, 1))

    def projected(self, x, k):
        """x0 is diagonal, which is feasible."""
        return x

    def poisoned(self, batch, lane):
        S = batch.arrays["S"].copy()
        S[lane, 0, 1] = np.nan
        return batch.changed(S=S)

    def overflowing(self, batch):
        return batch.changed(S=batch.arrays["S"] * np.sqrt(np.finfo(batch.x0.dtype).max) * 16)

    def scaled(self, words, batch, solver):
        """Half of S: twice W."""
        S, lower, upper = (batch.arrays[name] for name in ("S", "lower", "upper"))
        batch = batch.changed(S=S / 2, lower=2 * lower, upper=2 * upper)
        if getattr(solver, "step_size", None) is not None:
            solver = dataclasses.replace(solver, step_size=4 * solver.step_size)
        return dataclasses.replace(batch, x0=2 * batch.x0), solver, 2.0

    def order(self, rng):
        return rng.permutation(self.p)

    def permuted(self, batch, order):
        batch = batch.changed(S=self.reordered(batch.arrays["S"], order))
        return dataclasses.replace(batch, x0=self.reordered(batch.x0, order))

    def reordered(self, x, order):
        return x[..., order, :][..., order]


PROBLEMS = {
    "groups": Grouped(),
    "pairs": FewPerGroup(),
    "trees": Trees(),
    "softmax": Outputs(),
    "responses": LowRank(),
    "precision": Graphs(),
}
VECTORS = Vectors()


def on(solver, *cases):
    """Cases of a solver from "words/own or shared/bits", or a dtype in place of bits."""
    found = []
    for words, design, bits in (case.split("/") for case in cases):
        first, *rest = words.split()
        problem = PROBLEMS.get(first, VECTORS)
        words = " ".join(rest) if first in ("groups", "pairs", "trees") else words
        dtype = f"float{bits}" if bits.isdigit() else bits
        found.append(Case(solver, problem, words, design == "shared", dtype))
    return tuple(found)


@dataclasses.dataclass(frozen=True)
class Row:
    """A solver under contract.

    Attributes:
        name: of the row.
        cases: what it solves, with settings as a user would write them.
        refuses: kind of problem -> a case of it, and the error that says why not.
        minimises: whether it refits on supports, so that it may need k_max where k is traced.
        lists: whether it lists the coordinates of supports, so that it always does.
    """

    name: str
    cases: tuple[Case, ...]
    refuses: dict[str, tuple[Case, str]] = dataclasses.field(default_factory=dict)
    minimises: bool = False
    lists: bool = False

    @property
    def solver(self):
        return self.cases[0].solver

    def gathers(self, case):
        """Whether it needs k_max where k is traced."""
        return self.lists or (self.minimises and case.gathers)

    def k_max(self, case):
        """The bound that its runs are given."""
        return K_MAX if self.gathers(case) else None


NO_SUM = "must be a sum over samples, such as FiniteSum"
NO_DUAL = "must be a linear model of one output to have a dual"
NO_RANK = "(?i)low.?rank"
NO_OTHER_LOSS = {
    "LowRank": NO_RANK,
    "Edges": "must be LeastSquares",
    "function": "must be LeastSquares",
}


def refusals(solver, **errors):
    """Kind -> a case of it, and the error."""
    cases = {
        "Groups": "groups squares/own/32",
        "LowRank": "responses/own/32",
        "Edges": "precision/own/32",
        "function": "squares ridge function/own/32",
    }
    return {kind: (on(solver, cases[kind])[0], message) for kind, message in errors.items()}


IHT, NIHT, OMP, OLS = jaxht.IHT(), jaxht.NIHT(), jaxht.OMP(), jaxht.OLS()
CGIHT, FIHT, ALPS = jaxht.CGIHT(), jaxht.FIHT(), jaxht.ALPS()
OMPR, FoBa = jaxht.OMPR(), jaxht.FoBa()
HTP, PHT, CoSaMP, GraSP = jaxht.HTP(), jaxht.PHT(r=2), jaxht.CoSaMP(), jaxht.GraSP()
SP, ELS, ARHT = jaxht.SubspacePursuit(), jaxht.ExhaustiveLocalSearch(), jaxht.ARHT(num_cores=2)
LocalSearch = jaxht.LocalSearch(num_starts=3, num_moves=6, patience=2)
SGHT = jaxht.SGHT(step_size=0.02, batch_size=2, inner_steps=8)
HTSVRG = jaxht.HTSVRG(step_size=0.05, inner_steps=8, radius=100.0)
HTSAGA = jaxht.HTSAGA(step_size=0.01, inner_steps=8)
HSGHT = jaxht.HSGHT(step_size=0.02, momentum=0.2, batch_growth=1.2)
DIHT, SDIHT = jaxht.DIHT(inner_steps=2), jaxht.SDIHT(batch_size=7, inner_steps=4)

# The losses are spread over the rows. The first case of a row is a dense design in float32: it is
# also run without jit, by itself, and as users run.
TABLE = {
    row.name: row
    for row in [
        Row(
            "IHT",
            on(IHT, "squares/own/32", "logistic function/own/64", "responses/own/64")
            + on(jaxht.IHT(step_size=0.4, momentum=0.2), "groups squares mean ridge csr/shared/32")
            + on(jaxht.IHT(momentum=0.3, nesterov=True), "huber ridge operator/own/64")
            + on(jaxht.IHT(step_size=0.3), "precision/own/32")
            + on(jaxht.IHT(momentum=0.3, nesterov=True), "squares/own/complex64"),
        ),
        Row(
            "NIHT",
            on(NIHT, "squares ridge/shared/32", "softmax/own/64", "squares mean csr/shared/64")
            + on(
                NIHT,
                "groups logistic operator/own/32",
                "squares ridge function/own/64",
                "responses/own/32",
            )
            + on(NIHT, "precision/own/64", "pairs squares ridge/own/64")
            + on(NIHT, "trees squares ridge/own/32")
            + on(NIHT, "pairs squares mean/own/complex128"),
        ),
        Row(
            "CGIHT",
            on(
                CGIHT,
                "squares ridge/shared/32",
                "squares mean csr/shared/64",
                "groups squares mean ridge operator/own/64",
                "squares ridge/own/complex64",
            )
            + on(jaxht.CGIHT(theta=3.0), "squares/own/64"),
            refusals(CGIHT, **NO_OTHER_LOSS),
        ),
        Row(
            "FIHT",
            on(
                FIHT,
                "squares ridge/own/32",
                "squares mean csr/shared/64",
                "groups squares mean ridge operator/own/64",
                "squares ridge/own/complex64",
            ),
            refusals(FIHT, **NO_OTHER_LOSS),
        ),
        Row(
            "ALPS",
            on(ALPS, "squares ridge/shared/32", "squares csr/shared/64", "squares/own/complex128")
            + on(jaxht.ALPS(memory=0, debias=False), "groups squares ridge operator/own/64"),
            refusals(ALPS, **NO_OTHER_LOSS),
        ),
        Row(
            "HTP",
            on(HTP, "squares/own/32", "logistic/own/64", "squares ridge csr/shared/64")
            + on(
                HTP,
                "groups logistic operator/own/32",
                "squares ridge function/own/64",
                "responses/own/64",
            )
            + on(jaxht.HTP(step_size=0.5, backtrack=True), "precision/own/32")
            + on(HTP, "pairs logistic/own/64", "trees logistic/own/64")
            + on(jaxht.HTP(backtrack=True), "squares csr/shared/complex128"),
            minimises=True,
        ),
        Row(
            "PHT",
            on(
                PHT,
                "squares mean/shared/32",
                "squares ridge csr/shared/64",
                "groups logistic operator/own/32",
            )
            + on(PHT, "squares ridge function/own/64")
            + on(jaxht.PHT(r=2, step_size=0.5), "precision/own/64")
            + on(PHT, "squares mean operator/own/complex64"),
            refusals(PHT, LowRank=NO_RANK),
            minimises=True,
        ),
        Row(
            "CoSaMP",
            on(
                CoSaMP,
                "squares ridge/own/32",
                "squares ridge csr/shared/64",
                "logistic function/own/32",
            )
            + on(GraSP, "groups logistic operator/own/64", "precision/own/64")
            + on(CoSaMP, "groups squares/own/complex128", "trees squares ridge/own/complex128"),
            refusals(CoSaMP, LowRank=NO_RANK),
            minimises=True,
        ),
        Row(
            "SubspacePursuit",
            on(
                SP,
                "squares/shared/32",
                "squares mean csr/shared/64",
                "groups logistic operator/own/32",
            )
            + on(SP, "squares ridge function/own/64", "precision/own/64")
            + on(SP, "squares ridge/shared/complex64"),
            refusals(SP, LowRank=NO_RANK),
            minimises=True,
        ),
        Row(
            "OMP",
            on(
                OMP,
                "squares mean ridge/own/32",
                "groups squares/shared/64",
                "squares ridge csr/shared/64",
            )
            + on(
                OMP, "logistic operator/own/32", "squares ridge function/own/64", "precision/own/64"
            )
            + on(
                OMP,
                "pairs squares mean/shared/32",
                "trees squares mean/shared/32",
                "groups squares ridge/own/complex128",
            ),
            refusals(OMP, LowRank=NO_RANK),
            minimises=True,
        ),
        Row(
            "OLS",
            on(
                OLS,
                "squares mean ridge/own/32",
                "groups squares/shared/64",
                "squares ridge csr/shared/64",
            )
            + on(
                OLS,
                "squares mean operator/own/64",
                "squares ridge function/own/64",
                "precision/own/64",
                "squares mean ridge/own/complex64",
            ),
            refusals(OLS, LowRank=NO_RANK),
            minimises=True,
        ),
        Row(
            "OMPR",
            on(
                OMPR,
                "logistic/own/32",
                "squares ridge csr/shared/64",
                "groups squares mean operator/own/64",
            )
            + on(OMPR, "squares ridge function/own/64", "precision/own/64")
            + on(OMPR, "groups squares mean/own/complex128"),
            refusals(OMPR, LowRank=NO_RANK),
            minimises=True,
        ),
        Row(
            "ExhaustiveSearch",
            on(
                jaxht.ExhaustiveSearch(),
                "squares/own/32",
                "logistic ridge/own/64",
                "squares ridge csr/shared/64",
                "groups squares ridge operator/own/64",
                "squares ridge function/own/64",
                "precision/own/64",
                "squares ridge/own/complex64",
            ),
            refusals(jaxht.ExhaustiveSearch(), LowRank=NO_RANK),
            minimises=True,
        ),
        Row(
            "ELS",
            on(
                ELS,
                "squares ridge/own/32",
                "squares ridge csr/shared/64",
                "groups squares ridge operator/own/64",
            )
            + on(ELS, "squares ridge function/own/64", "precision/own/64")
            + on(ELS, "squares mean ridge/own/complex128"),
            refusals(ELS, LowRank=NO_RANK),
            minimises=True,
        ),
        Row(
            "FoBa",
            on(
                FoBa,
                "squares mean/own/32",
                "squares mean csr/shared/64",
                "groups squares ridge operator/own/64",
            )
            + on(FoBa, "squares ridge function/own/64", "precision/own/64")
            + on(FoBa, "squares mean/own/complex64"),
            refusals(FoBa, LowRank=NO_RANK),
            minimises=True,
        ),
        Row(
            "ARHT",
            on(
                ARHT,
                "squares mean ridge/own/32",
                "squares ridge csr/shared/64",
                "groups squares operator/own/64",
            )
            + on(ARHT, "squares ridge function/own/64", "precision/own/64")
            + on(ARHT, "squares mean ridge/own/complex128"),
            refusals(ARHT, LowRank=NO_RANK),
            minimises=True,
        ),
        Row(
            "LocalSearch",
            on(
                LocalSearch,
                "squares ridge/own/32",
                "logistic/shared/64",
                "squares ridge csr/shared/64",
            )
            + on(
                LocalSearch,
                "groups squares mean ridge operator/own/64",
                "squares ridge function/own/64",
            )
            + on(LocalSearch, "precision/own/64", "pairs squares ridge/own/64")
            + on(LocalSearch, "squares ridge/own/complex64"),
            refusals(LocalSearch, LowRank=NO_RANK),
            minimises=True,
            lists=True,
        ),
        Row(
            "SGHT",
            on(
                SGHT,
                "huber ridge/own/32",
                "groups squares mean csr/shared/64",
                "squares mean ridge operator/own/32",
            )
            + on(SGHT, "logistic function samples/own/64", "responses/own/64")
            + on(SGHT, "squares mean/own/complex128"),
            refusals(SGHT, Edges=NO_SUM, function=NO_SUM),
        ),
        Row(
            "HTSVRG",
            on(
                HTSVRG,
                "squares mean ridge/shared/32",
                "squares mean csr/shared/64",
                "groups huber operator/own/64",
            )
            + on(jaxht.SVRGHT(0.02, 8), "squares ridge function samples/own/64", "responses/own/32")
            + on(HTSVRG, "squares mean ridge/own/complex64"),
            refusals(HTSVRG, Edges=NO_SUM, function=NO_SUM),
        ),
        Row(
            "HTSAGA",
            on(HTSAGA, "squares mean ridge/own/32", "softmax/own/64", "squares mean csr/shared/64")
            + on(
                HTSAGA,
                "groups logistic operator/own/64",
                "squares function samples/own/64",
                "responses/own/64",
                "squares mean ridge/own/complex128",
            ),
            refusals(HTSAGA, Edges=NO_SUM, function=NO_SUM),
        ),
        Row(
            "HSGHT",
            on(
                HSGHT,
                "huber ridge/shared/32",
                "groups squares mean csr/shared/64",
                "squares mean operator/own/32",
            )
            + on(HSGHT, "logistic function samples/own/64", "responses/own/64")
            + on(HSGHT, "squares mean ridge/own/complex64"),
            refusals(HSGHT, Edges=NO_SUM, function=NO_SUM),
        ),
        # No l2, no dual.
        Row(
            "DIHT",
            on(
                DIHT,
                "squares ridge/own/32",
                "squares ridge csr/shared/64",
                "groups logistic operator/own/64",
                "squares ridge/own/complex64",
            ),
            refusals(DIHT, LowRank=NO_DUAL, Edges=NO_DUAL, function=NO_DUAL),
            minimises=True,
        ),
        Row(
            "SDIHT",
            on(
                SDIHT,
                "huber ridge/own/32",
                "squares ridge csr/shared/64",
                "groups squares ridge operator/own/64",
                "squares ridge/own/complex64",
            ),
            refusals(jaxht.SDIHT(batch_size=1), LowRank=NO_DUAL, Edges=NO_DUAL, function=NO_DUAL),
            minimises=True,
        ),
    ]
}


def never(case):
    """A Stop that ends no run before NUM_STEPS, with a number for each lane in every field."""
    real, whole = (
        functools.partial(np.full, LANES, dtype=dtype) for dtype in (case.real_dtype, np.int32)
    )
    return jaxht.Stop(whole(NUM_STEPS), real(0), whole(10**6), real(-np.inf), real(0))


def keys():
    return jax.random.split(jax.random.key(7), LANES)


def watched(solver, starts, steps):
    """A solver that does the same and writes down, when it is traced, its inits, and what its steps
    take and return."""

    def init(self, *args):
        starts.append(self)
        return type(solver).init(self, *args)

    def step(self, objective, constraint, iterate, state):
        new, new_state, info = type(solver).step(self, objective, constraint, iterate, state)
        # A value that a step leaves out is filled in by the runner.
        before = iterate if new.value is not None else dataclasses.replace(iterate, value=None)
        steps.append(jax.tree.map(describe, ((before, state), (new, new_state))))
        return new, new_state, info

    kind = pytree(type("Watched", (type(solver),), {"init": init, "step": step}))
    return lambda solver: kind(
        **{f.name: getattr(solver, f.name) for f in dataclasses.fields(solver)}
    )


def describe(leaf):
    """Its shape, its dtype, and whether the dtype is weak, as one leaf."""
    return f"{jnp.shape(leaf)} {jnp.result_type(leaf)} {getattr(leaf, 'weak_type', False)}"


@functools.cache
def program(name, case):
    """The batched, traced run of a case, the one compile that its clauses share, and what its steps
    took and returned.

    It advances in pieces, of one step each for a history, of real numbers under strict promotion of
    dtypes.
    """
    row, steps = TABLE[name], []
    watch = watched(case.solver, [], steps)

    def lane(arrays, k, x0, key, stop, solver, pieces):
        constraint = case.problem.constraint(k, row.k_max(case))
        problem, x0, key = prepare(
            case.objective(arrays), constraint, watch(solver), x0=x0, key=key, stop=stop
        )
        first = start(problem, x0, key)

        def piece(carry, num_steps):
            carry = advance(problem, carry, num_steps)
            return carry, jax.tree.map(key_data, carry)

        last, rest = jax.lax.scan(piece, first, pieces)
        first = jax.tree.map(key_data, first)
        return finish(problem, last), jax.tree.map(
            lambda one, more: jnp.concatenate([one[None], more]), first, rest
        )

    axes = (case.batch().axes, 0, 0, 0, 0, None, None)
    return jax.jit(jax.vmap(lane, in_axes=axes), compiler_options=QUICK), steps


def key_data(leaf):
    return jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf


EACH_STEP = np.ones(NUM_STEPS, np.int32)


def run(name, case, batch=None, stop=None, solver=None, pieces=EACH_STEP):
    """Result and history of carries of the case's solver in every lane, as NumPy arrays."""
    batch, stop, solver = batch or case.batch(), stop or never(case), solver or case.solver
    held = case.problem.held(case.words, batch)
    # Strict promotion knows no product of a real and a complex number.
    with jax.numpy_dtype_promotion("standard" if case.is_complex else "strict"):
        out = program(name, case)[0](held.arrays, batch.k, batch.x0, keys(), stop, solver, pieces)
    return jax.tree.map(np.asarray, out)


@functools.cache
def baseline(name, case):
    """`run` of a case as it stands."""
    return run(name, case)
