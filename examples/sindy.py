"""Equations from noisy trajectories: each right-hand side is the best subset of polynomials, with a
certificate.

``python -m examples.sindy``

:class:`ExactSubset` has scikit-learn's ``fit`` and ``coef_``; in pysindy:
``SINDy(optimizer=WrappedOptimizer( ExactSubset(k_max=5)))``.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.integrate
import scipy.signal

import jaxht


class ExactSubset:
    """Least squares on the best k columns, k by the Bayesian information criterion; each optimum is
    certified.

    Args:
        k_max: sizes of subsets go from 1 to it.
        gap_rtol: of :func:`jaxht.branch_and_bound`.
        window: neighbouring samples whose errors are not independent; the criterion counts them as
            one.

    Attributes:
        coef_: (targets, columns), in units of the columns.
        gap_: the largest gap of all subsets that were chosen, relative to f.
    """

    def __init__(self, k_max: int = 5, gap_rtol: float = 1e-4, window: int = 1) -> None:
        self.k_max, self.gap_rtol, self.window = k_max, gap_rtol, window

    def fit(self, A: np.ndarray, Y: np.ndarray) -> "ExactSubset":
        """A (n, d) and Y (n,) or (n, targets)."""
        Y = Y[:, None] if Y.ndim == 1 else Y
        scale = np.linalg.norm(A, axis=0) / np.sqrt(len(A))
        fits = [self._choose(A / scale, y) for y in Y.T]
        self.coef_ = np.stack([x for x, _ in fits]) / scale
        self.gap_ = max(gap for _, gap in fits)
        return self

    def _choose(self, A: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
        """The coefficients of least BIC, and the gap of their optimum."""
        n, objective = len(y) / self.window, jaxht.LeastSquares(A, y, mean=True)
        results = []
        for k in range(1, self.k_max + 1):
            best = jaxht.branch_and_bound(
                objective, jaxht.Sparse(k, k_max=self.k_max), gap_rtol=self.gap_rtol
            )
            results.append((n * np.log(best.value) + k * np.log(n), best.x, best.gap / best.value))
        _, x, gap = min(results, key=lambda result: result[0])
        return x, gap

    def predict(self, A: np.ndarray) -> np.ndarray:
        """A times the coefficients."""
        return A @ self.coef_.T


def lorenz(t: float, x: np.ndarray) -> list[float]:
    """Lorenz 1963."""
    return [10 * (x[1] - x[0]), x[0] * (28 - x[2]) - x[1], x[0] * x[1] - 8 / 3 * x[2]]


def roessler(t: float, x: np.ndarray) -> list[float]:
    """Roessler 1976."""
    return [-x[1] - x[2], x[0] + 0.2 * x[1], 0.2 + x[2] * (x[0] - 5.7)]


def measure(
    system: Callable[..., Any], span: float, noise: float, num: int = 4000
) -> tuple[np.ndarray, np.ndarray]:
    """Positions (num, 3) with noise of this share of their standard deviations, smoothed; and
    derivatives of them."""
    times = np.linspace(0, span, num)
    path = scipy.integrate.solve_ivp(
        system, (0, span), [1.0, 1.0, 1.0], t_eval=times, rtol=1e-9, atol=1e-9
    ).y.T
    noisy = path + noise * path.std(axis=0) * np.random.default_rng(0).standard_normal(path.shape)
    smooth = {"window_length": WINDOW, "polyorder": 5, "axis": 0, "delta": times[1]}
    ends = slice(WINDOW, -WINDOW)
    x, velocity = (
        np.asarray(scipy.signal.savgol_filter(noisy, deriv=deriv, **smooth))[ends]
        for deriv in (0, 1)
    )
    return x, velocity


def polynomials(x: np.ndarray, degree: int = 3) -> tuple[np.ndarray, list[str]]:
    """All monomials of x, y, z up to a degree: (n, columns), and their names."""
    powers = [p for p in np.ndindex(*[degree + 1] * 3) if sum(p) <= degree]
    names = [
        " ".join(f"{v}^{e}" if e > 1 else v for v, e in zip("xyz", p, strict=True) if e) or "1"
        for p in powers
    ]
    return np.stack([np.prod(x ** np.array(p), axis=1) for p in powers], axis=1), names


WINDOW = 25  # samples that are smoothed together


def main() -> None:
    """Print the equations that are found."""
    for system, span in ((lorenz, 20.0), (roessler, 60.0)):
        x, velocity = measure(system, span, noise=0.002)
        A, names = polynomials(x)
        model = ExactSubset(window=WINDOW).fit(A, velocity)
        print(f"{system.__name__}: all subsets certified to a gap of {model.gap_:.0e} of f")
        for left, coefficients in zip("xyz", model.coef_, strict=True):
            terms = (f"{c:+.3f} {name}" for c, name in zip(coefficients, names, strict=True) if c)
            print(f"  d{left}/dt = {' '.join(terms)}")


if __name__ == "__main__":
    main()
