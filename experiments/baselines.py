"""What the solvers are compared with: l1-penalised logistic regression by scikit-learn."""

import time
import warnings
from functools import cached_property
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

# What asks for the l1 penalty, before and after scikit-learn 1.8.
NEW = signature(LogisticRegression).parameters["penalty"].default == "deprecated"
L1: dict[str, Any] = {"l1_ratio": 1.0} if NEW else {"penalty": "l1"}
MAX_STEPS = 1000
# Of the search for a number of nonzeros: the least penalty, relative to the one that leaves none; fits by bisection;
# the part of the number that is enough.
LEAST, BISECTIONS, ENOUGH = 1e-5, 10, 0.98


class L1Fit(NamedTuple):
    """A solution for one penalty.

    Attributes:
        x: (d,) weights.
        seconds: that it took.
        num_steps: passes of liblinear.
    """

    x: NDArray[np.float64]
    seconds: float
    num_steps: int

    @property
    def nonzeros(self) -> int:
        """Their number."""
        return int(np.count_nonzero(self.x))


class L1Logistic:
    """``min 1/n sum_i log(1 + exp(-2 y_i a_i.x)) + penalty ||x||_1``, each penalty solved once.

    Args:
        A: (n, d), dense or CSR.
        y: (n,) labels -1/+1.
        tol: of liblinear.
    """

    def __init__(self, A: Any, y: NDArray[np.float64], tol: float) -> None:
        self.A, self.y, self.tol = A.astype(np.float64), y, tol
        self._fits: dict[float, L1Fit] = {}

    @cached_property
    def largest(self) -> float:
        """The least penalty that leaves no nonzeros: the largest slope at 0."""
        return float(np.abs(self.A.T @ self.y).max() / len(self.y))

    def at(self, penalty: float) -> L1Fit:
        """The solution for a penalty."""
        if penalty not in self._fits:
            # In 2x the loss is scikit-learn's, C sum_i log(1 + exp(-y_i a_i.x)) + ||x||_1.
            C = 2 / (len(self.y) * penalty)
            model = LogisticRegression(
                C=C, solver="liblinear", tol=self.tol, fit_intercept=False, max_iter=MAX_STEPS, random_state=0, **L1
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # the steps tell
                begin = time.perf_counter()
                model.fit(self.A, self.y)
                seconds = time.perf_counter() - begin
            self._fits[penalty] = L1Fit(model.coef_[0] / 2, seconds, int(model.n_iter_[0]))
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
