"""The problems of ``python -m benchmarks support``, and the one loss by which all supports are
compared.

NumPy and SciPy alone, so that methods which run in an interpreter of their own read the same
arrays.
"""

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse.linalg

KS = (3, 5, 10, 20, 40)


class Set(NamedTuple):
    """Where a problem comes from.

    Attributes:
        file: the name of the file, without ``.npz``.
        model: "squares" or "logistic".
        ks: the sizes of supports that are tried; those of d and more are left out.
        l2: of the ridge.
        scaling: "standardised": dense, columns centred; "scaled": sparse, not centred; "raw":
            sparse, as on file. The columns of the first two have norm sqrt(n).
    """

    file: str
    model: str
    ks: tuple[int, ...] = KS
    l2: float = 1e-3
    scaling: str = "standardised"


# Labels of +1 and -1 are regressed on too: so small sets of many correlated columns serve both
# losses. The rows of rcv1 and news20 have unit norm, so that entries are small, and so is their
# ridge.
SETS = {
    "colon": Set("colon_alon", "squares"),
    "gravier": Set("gravier_breast", "squares"),
    "west": Set("west_breast_nodal", "squares"),
    "chowdary": Set("chowdary_breast_vs_colon", "squares"),
    "cal_housing": Set("cal_housing", "squares", (2, 3, 4, 5)),
    "cpu_small": Set("cpu_small", "squares", (3, 4, 5, 6, 10)),
    "cpu_act": Set("cpu_act", "squares", (3, 5, 6, 10, 20)),
    "ailerons": Set("ailerons", "squares"),
    "blogfeedback": Set("blogfeedback", "squares"),
    "colon, logistic": Set("colon_alon", "logistic"),
    "gravier, logistic": Set("gravier_breast", "logistic"),
    "west, logistic": Set("west_breast_nodal", "logistic"),
    "chowdary, logistic": Set("chowdary_breast_vs_colon", "logistic"),
    "hess": Set("hess2006_breast_26genes", "logistic"),
    "gisette": Set("gisette_sample", "logistic"),
    "arcene": Set("arcene", "logistic"),
    "ijcnn1": Set("ijcnn1", "logistic"),
    "w8a": Set("w8a", "logistic"),
    "census": Set("census_income_kdd", "logistic"),
    "mnist49": Set("mnist", "logistic"),
    "basehock": Set("basehock", "logistic", scaling="scaled"),
    "pcmac": Set("pcmac", "logistic", scaling="scaled"),
    "rcv1": Set("rcv1_subsets_binary", "logistic", (250, 565, 1200), 1e-5, "raw"),
    "news20": Set("news20_unigram_tfidf", "logistic", (500,), 1e-5, "raw"),
    "news20_bigram": Set("news20_bigram_binary", "logistic", (500,), 1e-5, "raw"),
}


class Problem(NamedTuple):
    """A problem: minimise f(x) with at most k nonzeros, no intercept.

    Attributes:
        model: "squares", f = |A x - y|^2 / (2 n) + l2/2 |x|^2, or "logistic",
            f = mean(log(1 + exp(-y A x))) + l2/2 |x|^2.
        A: float64 (n, d), an array or a SciPy CSR matrix.
        y: float64 (n,); standardised, or +1 and -1.
        l2: of the ridge.
    """

    model: str
    A: Any
    y: np.ndarray
    l2: float


def load(name: str, folder: Path) -> Problem:
    """The problem of that name.

    Raises:
        FileNotFoundError: if the folder does not have it.
    """
    file, model, _, l2, scaling = SETS[name]
    path = folder / f"{file}.npz"
    with np.load(path) as arrays:
        A = scipy.sparse.load_npz(path).tocsr() if "indptr" in arrays else arrays["X"]
        y = arrays["y"].astype(np.float64)
        n = (
            int(arrays["n_main"]) if "n_main" in arrays else len(y)
        )  # as many rows as rcv1.binary has
    A, y = A[:n], y[:n]
    if file == "mnist":
        rows = (y == 4) | (y == 9)
        A, y = A[rows], np.where(y[rows] == 9, 1.0, -1.0)
    A = A.astype(np.float64)
    if scaling == "standardised":
        A = standardise(A.toarray() if scipy.sparse.issparse(A) else A)
    elif scaling == "scaled":
        norms = scipy.sparse.linalg.norm(A, axis=0)
        A = (A[:, norms > 0] @ scipy.sparse.diags_array(np.sqrt(len(y)) / norms[norms > 0])).tocsr()
    if model == "squares":
        y = (y - y.mean()) / y.std()
    return Problem(model, A, y, l2)


def standardise(A: np.ndarray) -> np.ndarray:
    """Columns of mean 0 and norm sqrt(n); constant ones are left out."""
    A = A[:, np.ptp(A, axis=0) > 0]
    A -= A.mean(axis=0)
    A /= A.std(axis=0)
    return A


def loss(problem: Problem, support: np.ndarray) -> float:
    """The minimum of f over the x that are 0 outside a support, in float64: the referee.

    Args:
        problem: the :class:`Problem`.
        support: int (k,), different indices.

    Returns:
        f, to about 1e-12 of it.

    Raises:
        RuntimeError: if Newton's method does not converge.
    """
    model, A, y, l2 = problem
    B = A[:, np.asarray(support, int)]
    n, k = B.shape
    if model == "squares":
        B = B if isinstance(B, np.ndarray) else B.toarray()
        rows = np.vstack([B / np.sqrt(n), np.sqrt(l2) * np.eye(k)])
        right = np.concatenate([y / np.sqrt(n), np.zeros(k)])
        return float(np.sum((rows @ np.linalg.lstsq(rows, right, rcond=None)[0] - right) ** 2) / 2)

    def gram(weights: np.ndarray) -> np.ndarray:
        if isinstance(B, np.ndarray):
            return B.T @ (weights[:, None] * B)
        return (B.T @ (scipy.sparse.diags_array(weights) @ B)).toarray()

    def f(x: np.ndarray) -> float:
        return float(np.mean(np.logaddexp(0, -y * (B @ x))) + l2 / 2 * x @ x)

    x = np.zeros(k)
    for _ in range(100):
        p = np.exp(-np.logaddexp(0, y * (B @ x)))
        gradient = l2 * x - B.T @ (y * p) / n
        step = np.linalg.solve(gram(p * (1 - p) / n) + l2 * np.eye(k), -gradient)
        slope, value, t = gradient @ step, f(x), 1.0
        if -slope <= 1e-13 * value:
            return f(x + step)
        while f(x + t * step) > value + 1e-4 * t * slope:
            t /= 2
        x = x + t * step
    raise RuntimeError(f"Newton's method did not converge in 100 steps: slope {slope}, f = {value}")


def enumerate_supports(problem: Problem, k: int) -> np.ndarray:
    """The best of all supports of k columns, int (k,): for least squares, from the normal
    equations.

    Raises:
        ValueError: for other problems, and for more than 300 000 supports.
    """
    model, A, y, l2 = problem
    n, d = A.shape
    if model != "squares" or math.comb(d, k) > 300_000:
        raise ValueError("enumeration needs least squares and at most 300 000 supports")
    G, b = A.T @ A / n + l2 * np.eye(d), A.T @ y / n
    most, best = -np.inf, np.arange(k)
    for supports in chunks(itertools.combinations(range(d), k), 20_000):
        x = np.linalg.solve(G[supports[:, :, None], supports[:, None, :]], b[supports][..., None])[
            ..., 0
        ]
        decreases = np.sum(x * b[supports], axis=1)
        if decreases.max() > most:
            most, best = decreases.max(), supports[decreases.argmax()]
    return best


def chunks(supports: Iterator[tuple[int, ...]], size: int) -> Iterator[np.ndarray]:
    """Arrays of up to so many supports each."""
    while piece := list(itertools.islice(supports, size)):
        yield np.array(piece)
