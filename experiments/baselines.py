"""What the solvers are compared with: l1 penalties, by scikit-learn."""

import time
import warnings
from functools import cached_property
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso, LogisticRegression

# What asks for the l1 penalty, before and after scikit-learn 1.8.
NEW = signature(LogisticRegression).parameters["penalty"].default == "deprecated"
L1: dict[str, Any] = {"l1_ratio": 1.0} if NEW else {"penalty": "l1"}
MAX_STEPS = 1000
# Of the search for a number of nonzeros: the least penalty, relative to the one that leaves none; fits by bisection;
# the part of the number that is enough.
LEAST, BISECTIONS, ENOUGH = 1e-5, 10, 0.98
# The intercept of liblinear is penalised like a weight, but on a column of this instead of 1.
INTERCEPT = 100.0


class L1Fit(NamedTuple):
    """A solution for one penalty.

    Attributes:
        x: (d,) weights.
        seconds: that it took.
        num_steps: passes over the data.
        intercept: beside x; 0 without one.
    """

    x: NDArray[np.float64]
    seconds: float
    num_steps: int
    intercept: float = 0.0

    @property
    def nonzeros(self) -> int:
        """Their number, in x."""
        return int(np.count_nonzero(self.x))


class Penalised:
    """``min f(x) + penalty ||x||_1``, each penalty solved once."""

    def __init__(self) -> None:
        self._fits: dict[float, L1Fit] = {}

    @property
    def largest(self) -> float:
        """The least penalty that leaves no nonzeros: the largest slope at 0."""
        raise NotImplementedError

    def solved(self, penalty: float) -> L1Fit:
        """The solution for a penalty."""
        raise NotImplementedError

    def at(self, penalty: float) -> L1Fit:
        """The solution for a penalty."""
        if penalty not in self._fits:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # the steps tell
                self._fits[penalty] = self.solved(penalty)
        return self._fits[penalty]

    def with_nonzeros(self, k: int) -> L1Fit:
        """A solution with at most k nonzeros, and as many of them as a bisection of the penalty finds."""
        few, many = self._bracket(k)
        while many is None and few / 4 > LEAST * self.largest:
            self.at(few / 4)
            few, many = self._bracket(k)
        for _ in range(BISECTIONS):
            if many is None or self.at(few).nonzeros >= ENOUGH * k:
                break
            self.at(float(np.sqrt(few * many)))
            few, many = self._bracket(k)
        return self.at(few)

    def _bracket(self, k: int) -> tuple[float, float | None]:
        """Of the penalties tried, the least above all that leave more than k nonzeros, and the next one below it."""
        penalties = sorted({*self._fits, self.largest}, reverse=True)
        few = self.largest
        for penalty in penalties:
            if self.at(penalty).nonzeros > k:
                return few, penalty
            few = penalty
        return few, None


class L1Logistic(Penalised):
    """``min 1/n sum_i log(1 + exp(-2 y_i (a_i.x + b))) + penalty ||x||_1``.

    Args:
        A: (n, d), dense or CSR.
        y: (n,) labels -1/+1.
        tol: of liblinear.
        intercept: whether there is a b, which is hardly penalised; else it is 0.
    """

    def __init__(self, A: Any, y: NDArray[np.float64], tol: float, *, intercept: bool = False) -> None:
        super().__init__()
        self.A, self.y, self.tol, self.intercept = A.astype(np.float64), y, tol, intercept

    @cached_property
    def largest(self) -> float:  # type: ignore[override]
        """That of b = 0; with the best b, of ``log(1 + exp(-2 y b))``, the labels are centred."""
        y = self.y - self.y.mean() if self.intercept else self.y
        return float(np.abs(self.A.T @ y).max() / len(self.y))

    def solved(self, penalty: float) -> L1Fit:
        """By liblinear."""
        # In 2x the loss is scikit-learn's, C sum_i log(1 + exp(-y_i a_i.x)) + ||x||_1.
        C = 2 / (len(self.y) * penalty)
        settings: dict[str, Any] = {"fit_intercept": self.intercept, "intercept_scaling": INTERCEPT, **L1}
        model = LogisticRegression(
            C=C, solver="liblinear", tol=self.tol, max_iter=MAX_STEPS, random_state=0, **settings
        )
        begin = time.perf_counter()
        model.fit(self.A, self.y)
        seconds, b = time.perf_counter() - begin, float(np.ravel(model.intercept_)[0])
        return L1Fit(model.coef_[0] / 2, seconds, int(model.n_iter_[0]), b / 2)


class L1LeastSquares(Penalised):
    """``min 1/2 ||A x - y||^2 + penalty ||x||_1``: LASSO, without an intercept.

    Args:
        A: (n, d).
        y: (n,).
        tol: of the duality gap, relative to ``||y||^2``.
    """

    def __init__(self, A: NDArray[np.float64], y: NDArray[np.float64], tol: float) -> None:
        super().__init__()
        self.A, self.y, self.tol = np.asfortranarray(A), y, tol

    @cached_property
    def largest(self) -> float:  # type: ignore[override]
        """The largest slope at 0."""
        return float(np.abs(self.A.T @ self.y).max())

    def solved(self, penalty: float) -> L1Fit:
        """By coordinate descent."""
        # scikit-learn divides the squares by the number of rows.
        model = Lasso(penalty / len(self.y), fit_intercept=False, tol=self.tol, max_iter=100 * MAX_STEPS)
        begin = time.perf_counter()
        model.fit(self.A, self.y)
        return L1Fit(model.coef_, time.perf_counter() - begin, int(np.max(model.n_iter_)))
