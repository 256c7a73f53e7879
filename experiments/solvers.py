"""The solvers of the experiments, one row each: how it is built, and which sparsity it uses."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import jax.numpy as jnp
from pydantic import AfterValidator

from jaxht import HTP, IHT, NIHT, LeastSquares, Sparse
from jaxht.solver import Solver
from jaxht.sweep import Cell, Method


def axis_K(cell: Cell) -> Any:
    """K, where it is an axis."""
    return cell["K"]


def as_planted(K: Any, d: int) -> Any:
    """k = K."""
    return K


def nine_times(K: Any, d: int) -> Any:
    """k = min(9 K, d), as SL18 §5.1 relaxes it."""
    return jnp.minimum(9 * K, d)


def twice_over_curvature(objective: LeastSquares) -> Any:
    """eta = 2 / sigma_max(A)^2, the step size of SL18 §5.1."""
    return 2 / jnp.linalg.norm(objective.A, 2) ** 2


@dataclass(frozen=True)
class Row:
    """A solver in the experiments.

    Attributes:
        build: objective -> solver.
        sparsity: (K, d) -> k, for K a Python int or traced.
        label: in figures.
        rule: its parameters, in figures.
        gathers: whether it gathers columns and so needs a static bound on k.
    """

    build: Callable[[Any], Solver]
    sparsity: Callable[[Any, int], Any]
    label: str
    rule: str
    gathers: bool = False

    def method(self, K_max: int, d: int, K: Callable[[Cell], Any] = axis_K) -> Method:
        """The solver on a planted problem of sparsity ``K(cell) <= K_max``, for a sweep."""
        k_max = int(self.sparsity(K_max, d)) if self.gathers else None
        return lambda objective, cell: (Sparse(self.sparsity(K(cell), d), k_max=k_max), self.build(objective))


SOLVERS = {
    "IHT": Row(lambda f: IHT(), as_planted, "IHT", r"$k = K$, $\eta = 1/L$"),
    "IHT-1": Row(lambda f: IHT(step_size=1.0), as_planted, "IHT", r"$k = K$, $\eta = 1$"),
    "PGD": Row(lambda f: IHT(twice_over_curvature(f)), nine_times, "PGD", r"$k = 9K$, $\eta = 2/\sigma_{\max}^2$"),
    "NIHT": Row(lambda f: NIHT(), as_planted, "NIHT", r"$k = K$"),
    "HTP": Row(
        lambda f: HTP(), as_planted, "HTP", r"$k = K$, $\eta = 1/\mathrm{max}_i\,\Vert a_i \Vert^2$", gathers=True
    ),
}


def _known(name: str) -> str:
    if name not in SOLVERS:
        raise ValueError(f"no such solver, known are {', '.join(SOLVERS)}")
    return name


SolverName = Annotated[str, AfterValidator(_known)]
