"""Yuan, Li & Zhang 2018, §6.3: sparse precision matrices, by solvers and by the graphical lasso."""

import warnings
from typing import Annotated, Any, Literal

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

    solvers: Annotated[
        list[Literal["GraHTP", "GraSP", "FBS", "FoBa"]], Field(min_length=1)
    ]  # beside GLasso
    density: Fractions  # sparsities k, in units of the p (p - 1) / 2 edges that there can be
    # penalties: of GLasso, in units of the largest entry of S off the diagonal, from which on it
    # finds no edge.
    penalties: Fractions
    step_size: Positive  # of GraHTP, with which each step begins
    grasp_steps: Count  # most steps of GraSP, which may cycle

    def k(self, p: int) -> list[int]:
        """Return the sparsities for p variables."""
        return sorted({max(1, round(density * p * (p - 1) / 2)) for density in self.density})


class Method:
    """An estimator with a number of choices, of the sparsity or of the penalty."""

    num_choices: int

    def at(self, S: Matrix, choice: int) -> tuple[Any, Any]:
        """Return W (p, p), NaN where there is none, and whether the run failed."""
        raise NotImplementedError

    def over(self, S: Matrix) -> tuple[Any, Any]:
        """Return both for all choices, one after the other: side by side each would wait for the
        slowest."""
        W, failed = map(
            np.stack, zip(*(self.at(S, choice) for choice in range(self.num_choices)), strict=True)
        )
        return W, failed


class Greedy(Method):
    """A solver, for its sparsities: each from the best diagonal matrix; those of FBS, and of FoBa,
    are one path."""

    def __init__(self, name: str, p: int, config: Estimation) -> None:
        self.k, self.num_choices = config.k(p), len(config.k(p))
        solver: Any = {
            "GraHTP": HTP(config.step_size, True),
            "GraSP": GraSP(True),
            "FBS": OMP(),
            "FoBa": FoBa(),
        }[name]
        stop, k_max = Stop(max_steps=config.grasp_steps if name == "GraSP" else None), self.k[-1]
        self.nested = solver.nested

        def run(S: Any, k: Any) -> Any:
            result = solve(GaussianPrecision(S), Edges(k, k_max=k_max), solver, stop=stop)
            return result.x, result.status >= Status.MAX_STEPS

        def run_path(S: Any) -> Any:
            result = path(GaussianPrecision(S), Edges(k_max=k_max), solver, ks=self.k, stop=stop)
            return result.x, result.status >= Status.MAX_STEPS

        self._run, self._path = jax.jit(run), jax.jit(run_path)

    def at(self, S: Matrix, choice: int) -> tuple[Any, Any]:
        """Solve for one sparsity."""
        return self._run(S, np.int32(self.k[choice]))

    def over(self, S: Matrix) -> Any:
        """Solve for every sparsity."""
        return jax.device_get(self._path(S)) if self.nested else super().over(S)


class GLasso(Method):
    """The graphical lasso of scikit-learn, which leaves the diagonal unpenalised."""

    def __init__(self, config: Estimation) -> None:
        self.penalties, self.num_choices = config.penalties, len(config.penalties)

    def at(self, S: Matrix, choice: int) -> tuple[Any, Any]:
        """Solve for one penalty; for small ones there may be no matrix, or no convergence."""
        penalty = self.penalties[choice] * np.abs(S - np.diag(np.diag(S))).max()
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore", ConvergenceWarning)
            try:
                _, W, num_steps = graphical_lasso(
                    S, penalty, max_iter=MAX_STEPS, return_n_iter=True
                )
            except FloatingPointError:
                return np.full(S.shape, np.nan), True
        return W, num_steps >= MAX_STEPS


def num_edges(W: Matrix) -> int:
    """Count the edges."""
    return int(np.count_nonzero(np.triu(W, 1)))


def losses(W: Matrix, S: Matrix) -> NDArray[np.float64]:
    """Return ``-log det W + <S, W>`` of each, infinite where there is none."""
    with np.errstate(invalid="ignore"):
        sign, logdet = np.linalg.slogdet(W)
    values = np.sum(S * W, axis=(1, 2)) - logdet
    return np.where((sign > 0) & np.isfinite(values), values, np.inf)
