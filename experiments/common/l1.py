"""l1 penalties, solved by scikit-learn: what the solvers are compared with."""

import time
import warnings
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, lars_path

# What asks for the l1 penalty, before and after scikit-learn 1.8.
NEW = signature(LogisticRegression).parameters["penalty"].default == "deprecated"
L1: dict[str, Any] = {"l1_ratio": 1.0} if NEW else {"penalty": "l1"}
MAX_STEPS = 1000
# Of the search for a number of nonzeros: the least penalty, relative to the one that leaves none;
# fits by bisection; the part of the number that is enough.
LEAST, BISECTIONS, ENOUGH = 1e-5, 10, 0.98
# The intercept of liblinear is penalised like a weight, but on a column of this instead of 1.
INTERCEPT = 100.0


class L1Fit(NamedTuple):
    """A solution for one penalty."""

    x: NDArray[np.float64]  # (d,) weights
    seconds: float  # that it took
    num_steps: int  # passes over the data, or steps of LARS
    intercept: float = 0.0  # beside x; 0 without one

    @property
    def nonzeros(self) -> int:
        """The number of nonzeros of x."""
        return int(np.count_nonzero(self.x))

    @property
    def converged(self) -> bool:
        """Whether it ended before MAX_STEPS."""
        return self.num_steps < MAX_STEPS


class LassoPath:
    """``min 1/2 ||A x - y||^2 + penalty ||x||_1`` for all penalties, without an intercept, by LARS.

    Args:
        A: (n, d).
        y: (n,).
    """

    def __init__(self, A: NDArray[np.float64], y: NDArray[np.float64]) -> None:
        begin = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", ConvergenceWarning
            )  # at its end, where columns depend on others
            _, _, self.knots = lars_path(A, y, method="lasso", max_iter=MAX_STEPS)
        self.seconds = time.perf_counter() - begin

    def with_nonzeros(self, k: int) -> L1Fit:
        """Return the solution at the least penalty down to which there are at most k nonzeros."""
        beyond = np.count_nonzero(self.knots, axis=0) > k
        last = int(np.argmax(beyond)) - 1 if beyond.any() else len(beyond) - 1
        return L1Fit(self.knots[:, last], self.seconds * last / max(1, len(beyond) - 1), last)


class L1Logistic:
    """``min 1/n sum_i log(1 + exp(-2 y_i (a_i.x + b))) + penalty ||x||_1``, each penalty solved
    once, by liblinear.

    Args:
        A: (n, d), dense or CSR.
        y: (n,) labels -1/+1.
        tol: of liblinear.
        intercept: whether there is a b, which is hardly penalised; else it is 0.
    """

    def __init__(
        self, A: Any, y: NDArray[np.float64], tol: float, *, intercept: bool = False
    ) -> None:
        self.A, self.y, self.tol, self.intercept = A.astype(np.float64), y, tol, intercept
        # The largest derivative at x = 0; with the best b, the labels are centred there.
        self.largest = float(np.abs(self.A.T @ (y - y.mean() if intercept else y)).max() / len(y))
        self._fits: dict[float, L1Fit] = {}

    def at(self, penalty: float) -> L1Fit:
        """Return the solution for a penalty; from ``largest`` on it has no nonzeros."""
        if penalty not in self._fits:
            # In 2x the loss is scikit-learn's, C sum_i log(1 + exp(-y_i a_i.x)) + ||x||_1.
            settings: dict[str, Any] = {
                "fit_intercept": self.intercept,
                "intercept_scaling": INTERCEPT,
                **L1,
            }
            settings |= {
                "solver": "liblinear",
                "tol": self.tol,
                "max_iter": MAX_STEPS,
                "random_state": 0,
            }
            model = LogisticRegression(C=2 / (len(self.y) * penalty), **settings)
            begin = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # num_steps says it
                model.fit(self.A, self.y)
            seconds, b = time.perf_counter() - begin, float(np.ravel(model.intercept_)[0])
            self._fits[penalty] = L1Fit(model.coef_[0] / 2, seconds, int(model.n_iter_[0]), b / 2)
        return self._fits[penalty]

    def with_nonzeros(self, k: int) -> L1Fit:
        """Return a solution with at most k nonzeros, and as many of them as a bisection of the
        penalty finds."""
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
        """Of the penalties tried, the least above all that leave more than k nonzeros, and the next
        one below it."""
        few = 2 * self.largest  # at the largest itself rounding leaves one now and then
        for penalty in sorted({*self._fits, self.largest}, reverse=True):
            if self.at(penalty).nonzeros > k:
                return few, penalty
            few = penalty
        return few, None
