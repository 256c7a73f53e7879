"""Yuan, Li & Zhang 2018, §6.3: sparse precision matrices, by solvers and by the graphical lasso."""

import warnings
from typing import Annotated, Any, Literal, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from sklearn.covariance import graphical_lasso
from sklearn.exceptions import ConvergenceWarning

from experiments.common import BaseConfig, Count, Fractions, Positive
from jaxht import HTP, OMP, Edges, FoBa, GaussianPrecision, GraSP, Status, Stop, path, solve

Matrix = NDArray[np.float64]
GLASSO = "GLasso"
MAX_STEPS = 100  # of GLasso, each over all variables


class Estimation(BaseConfig):
    """The keys of both experiments."""

    solvers: Annotated[list[Literal["GraHTP", "GraSP", "FBS", "FoBa"]], Field(min_length=1)]  # beside GLasso
    density: Fractions  # sparsities k, in units of the p (p - 1) / 2 edges that there can be
    # penalties: of GLasso, in units of the largest entry of S off the diagonal, from which on it finds no edge.
    penalties: Fractions
    step_size: Positive  # of GraHTP, with which each step begins
    grasp_steps: Count  # most steps of GraSP, which may cycle

    def k(self, p: int) -> list[int]:
        """Return the sparsities for p variables."""
        return sorted({max(1, round(density * p * (p - 1) / 2)) for density in self.density})


class Estimates(NamedTuple):
    """Precision matrices over m values of what is chosen, the sparsity or the penalty."""

    W: Matrix  # (m, p, p); NaN where there is none
    failed: NDArray[np.bool_]  # (m,), whether the run ended in failure
    valid: bool  # whether all that there are have a Cholesky factor, and at most k edges


class Greedy:
    """A solver, for its sparsities: each from the best diagonal matrix. The first call compiles it.

    Args:
        name: of the solver.
        p: number of variables.
        config: of the experiment.

    Every sparsity is a run of its own, one after the other: side by side each would wait for the slowest. Those of FBS
    are one path.
    """

    def __init__(self, name: str, p: int, config: Estimation) -> None:
        self.k, k_max = config.k(p), config.k(p)[-1]
        solver: Any = {"GraHTP": HTP(config.step_size, True), "GraSP": GraSP(True), "FBS": OMP(), "FoBa": FoBa()}[name]
        stop = Stop(max_steps=config.grasp_steps if name == "GraSP" else None)
        self.one_path = name == "FBS"

        def run(S: Any, k: Any) -> Any:
            result = solve(GaussianPrecision(S), Edges(k, k_max=k_max), solver, stop=stop)
            return result.x, result.status

        def run_path(S: Any) -> Any:
            result = path(GaussianPrecision(S), Edges(1, k_max=k_max), solver, self.k, stop=stop)
            return result.x, result.status

        self._run, self._path = jax.jit(run), jax.jit(run_path)

    def over(self, S: Matrix) -> Estimates:
        """Solve for every sparsity."""
        if self.one_path:
            W, status = map(np.asarray, self._path(S))
        else:
            W, status = map(np.stack, zip(*(self.at(S, i) for i in range(len(self.k))), strict=True))
        valid = all(proper(x) and num_edges(x) <= k for x, k in zip(W, self.k, strict=True))
        return Estimates(W, status >= Status.MAX_STEPS, valid)

    def at(self, S: Matrix, choice: int) -> Any:
        """Solve for one of them."""
        return self._run(S, np.int32(self.k[choice]))


class GLasso:
    """The graphical lasso of scikit-learn, which leaves the diagonal unpenalised."""

    def __init__(self, config: Estimation) -> None:
        self.penalties = config.penalties

    def over(self, S: Matrix) -> Estimates:
        """Solve for every penalty; for small ones there may be no matrix, or no convergence."""
        W, ended = map(np.stack, zip(*(self.at(S, i) for i in range(len(self.penalties))), strict=True))
        return Estimates(W, ~ended, all(proper(x) for x in W if np.isfinite(x).all()))

    def at(self, S: Matrix, choice: int) -> tuple[Matrix, bool]:
        """Solve for one of them, and tell whether it converged."""
        penalty = self.penalties[choice] * np.abs(S - np.diag(np.diag(S))).max()
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore", ConvergenceWarning)
            try:
                _, W, num_steps = graphical_lasso(S, penalty, max_iter=MAX_STEPS, return_n_iter=True)
            except FloatingPointError:
                return np.full(S.shape, np.nan), False
        return W, num_steps < MAX_STEPS


def method(name: str, p: int, config: Estimation) -> Greedy | GLasso:
    """Return an estimator by its name."""
    return GLasso(config) if name == GLASSO else Greedy(name, p, config)


def proper(W: Matrix) -> bool:
    """Tell whether W is symmetric, to rounding, and has a Cholesky factor."""
    try:
        np.linalg.cholesky(W)
    except np.linalg.LinAlgError:
        return False
    return np.allclose(W, W.T, rtol=1e-8)


def num_edges(W: Matrix) -> int:
    """Count the edges."""
    return int(np.count_nonzero(np.triu(W, 1)))


def losses(W: Matrix, S: Matrix) -> NDArray[np.float64]:
    """Return ``-log det W + <S, W>`` of each, infinite where there is none."""
    with np.errstate(invalid="ignore"):
        sign, logdet = np.linalg.slogdet(W)
    values = np.sum(S * W, axis=(1, 2)) - logdet
    return np.where((sign > 0) & np.isfinite(values), values, np.inf)
