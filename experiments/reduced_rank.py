"""Linear regression of classes under a rank constraint: its targets, and its minimum in closed form."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg, sparse


def indicators(ids: ArrayLike) -> NDArray[np.float32]:
    """Row i is the unit vector e_b of its class b: (n, c) for ids (n,) among 0 ... c - 1, where c - 1 occurs."""
    ids = np.asarray(ids)
    return np.eye(ids.max() + 1, dtype=np.float32)[ids]


def minimum(A: Any, Y: ArrayLike, l2: float, k: int) -> float:
    """The least of ``f(X) = 1/(2n) ||A X - Y||_F^2 + l2/2 ||X||_F^2`` over X of rank at most k.

    With ``G = A'A/n + l2 I`` and ``C = A'Y/n``, f is ``1/2 ||G^(1/2) X - G^(-1/2) C||_F^2`` plus a constant, and by
    Eckart & Young

        f* = 1/(2n) ||Y||_F^2 - 1/2 sum_{i <= k} lambda_i(C' G^-1 C).

    Args:
        A: (n, d), may be sparse.
        Y: (n, c).
        l2: > 0.
        k: rank.

    Source: Izenman 1975, reduced-rank regression; here with ridge.
    """
    A = np.asarray(A.toarray() if sparse.issparse(A) else A, np.float64)
    Y = np.asarray(Y, np.float64)
    n, d = A.shape
    C = A.T @ Y / n
    shares = np.linalg.eigvalsh(C.T @ linalg.solve(A.T @ A / n + l2 * np.eye(d), C, assume_a="pos"))
    return float(np.sum(Y**2) / (2 * n) - np.sum(shares[::-1][:k]) / 2)
