"""The solvers of the experiments, one row each: how it is built, and which sparsity it uses."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import jax.numpy as jnp
from pydantic import AfterValidator, Field

import jaxht
from jaxht import ARHT, HTP, IHT, NIHT, OMP, OMPR, LeastSquares, Sparse, baselines, spectral
from jaxht.extend import Solver
from jaxht.linalg.full_precision import matmul
from jaxht.linalg.lapack import eigh
from jaxht.sweep import Cell, Method

# The penalty of the lasso where there is no noise, as a share of the least one that gives 0. Near
# the phase transition it shifts entries by some ten times this share of the largest one, and FISTA
# takes about 5000 steps.
LASSO_SHARE = 1e-5


def axis_K(cell: Cell) -> Any:
    """Return the coordinate K of a cell."""
    return cell["K"]


def twice_over_curvature(objective: LeastSquares) -> Any:
    """Return eta = 2 / sigma_max(A)^2, the step size of Shen & Li 2018, §5.1."""
    A = objective.A if objective.A.shape[0] <= objective.A.shape[1] else objective.A.T
    eigenvalues, _ = eigh(matmul(A, A.T))  # not a norm of A: batched calls of LAPACK may deadlock
    return 2 / eigenvalues[-1]


def svrg(objective: LeastSquares, k: Any) -> Solver:
    """Return HT-SVRG with eta = 2 / sigma_max(A)^2 for the mean over n samples, eta / n for their
    sum, and m = 3n."""
    return jaxht.HTSVRG(twice_over_curvature(objective) / objective.num_samples)


def lasso(objective: LeastSquares, k: Any) -> Solver:
    """Return the lasso by FISTA, with the penalty LASSO_SHARE of the least one that gives 0."""
    zero = objective.start()
    g = objective.gradient(zero, objective.predict(zero))
    return baselines.FISTA(LASSO_SHARE * jnp.max(jnp.abs(g)))


def all_columns(n: int, d: int) -> int:
    """Return d: a solver with a penalty or a threshold leaves x free."""
    return d


def _times_over_curvature(
    solver: Callable[[Any], Solver], factor: float, objective: Any, k: Any
) -> Solver:
    """Return GraHTP or FGraHTP with eta = factor / M_2k."""
    return solver(2 * factor * spectral.restricted_step_size(objective, k))


@dataclass(frozen=True)
class Row:
    """A solver in the experiments."""

    build: Callable[[Any, Any], Solver]  # (objective, k) -> solver
    label: str  # in figures
    rule: str  # its parameters, in figures
    gathers: bool = False  # whether it gathers columns and so needs a static bound on k
    after_omp: bool = False  # whether on data it starts from the solution of OMP
    passes: int = (
        1  # gradients of the whole f that a step costs; a limit on steps counts so many for one
    )
    draws: bool = False  # whether it draws rows of A
    relaxed: int = 1  # k = min(relaxed K, d); 9 in Shen & Li 2018, §5.1
    one_run: bool = False  # whether a path over k is a single run
    own_k: Callable[[int, int], int] | None = None  # (n, d) -> k, where it is not told K

    def sparsity(self, K: Any, n: int, d: int) -> Any:
        """Return k, for K a Python int or traced."""
        if self.own_k is not None:
            return self.own_k(n, d)
        return K if self.relaxed == 1 else jnp.minimum(self.relaxed * K, d)

    def method(
        self, K_max: int | Callable[[Cell], int], d: int, K: Callable[[Cell], Any] = axis_K
    ) -> Method:
        """Return the solver as a sweep takes it, for planted problems of sparsity ``K(cell)``, at
        most K_max."""

        def method(objective: Any, cell: Cell) -> tuple[Sparse, Solver]:
            n = objective.num_samples
            k = self.sparsity(K(cell), n, d)
            most = K_max(cell) if callable(K_max) else K_max
            k_max = int(self.sparsity(most, n, d)) if self.gathers else None
            return Sparse(k, k_max=k_max), self.build(objective, k)

        return method


NINE = r"$k = 9K$, $\eta = 2/\sigma_{\max}^2$"
HALF = r"$\eta = 1/(2 M_{2k})$"
COORDINATE = r"$k = K$, $\eta = 1/\mathrm{max}_i\,\Vert a_i \Vert^2$"
SOLVERS = {
    "IHT": Row(lambda f, k: IHT(), "IHT", r"$k = K$, $\eta = 1/L$"),
    "IHT-1": Row(lambda f, k: IHT(step_size=1.0), "IHT", r"$k = K$, $\eta = 1$"),
    "PGD": Row(lambda f, k: IHT(twice_over_curvature(f)), "PGD", NINE, relaxed=9),
    "HT-SVRG": Row(svrg, "HT-SVRG", f"{NINE}, $m = 3n$", passes=7, draws=True, relaxed=9),
    "NIHT": Row(lambda f, k: NIHT(), "NIHT", "$k = K$"),
    "CGIHT": Row(lambda f, k: jaxht.CGIHT(), "CGIHT", "$k = K$, restarted"),
    "FIHT": Row(lambda f, k: jaxht.FIHT(), "FIHT", "$k = K$", passes=2),
    "ALPS": Row(lambda f, k: jaxht.ALPS(), "1-ALPS(2)", "$k = K$", passes=2),
    "HTP": Row(lambda f, k: HTP(), "HTP", COORDINATE, gathers=True),
    "HTP-backtracking": Row(
        lambda f, k: HTP(backtrack=True),
        "HTP, backtracking",
        r"$k = K$, $\eta = 256/\mathrm{max}_i\,\Vert a_i \Vert^2$, halved until f decreases",
        gathers=True,
    ),
    "PHT": Row(lambda f, k: jaxht.PHT(r=1), "PHT, $r = 1$", COORDINATE, gathers=True),
    "CoSaMP": Row(lambda f, k: jaxht.CoSaMP(), "CoSaMP", "$k = K$", gathers=True),
    "CSMPSP": Row(
        lambda f, k: jaxht.CoSaMP(expand=1),
        "CSMPSP",
        "CoSaMP, $k$ entries added",
        gathers=True,
        passes=10,  # least squares on 2 k columns
    ),
    "SP": Row(lambda f, k: jaxht.SubspacePursuit(), "subspace pursuit", "$k = K$", gathers=True),
    "GraSP": Row(lambda f, k: jaxht.GraSP(), "GraSP", "debiased", gathers=True),
    "OMP": Row(lambda f, k: OMP(), "OMP", "$k = K$", gathers=True),
    "OMPR": Row(lambda f, k: OMPR(), "OMPR", "$k = K$", gathers=True, after_omp=True),
    "ELS": Row(
        lambda f, k: jaxht.ExhaustiveLocalSearch(), "exhaustive local search", "$k = K$", True, True
    ),
    "ARHT": Row(lambda f, k: ARHT(), "ARHT", "$k = K$", gathers=True, after_omp=True),
    "FBS": Row(lambda f, k: OMP(), "FBS", "forward selection", gathers=True, one_run=True),
    "FoBa": Row(lambda f, k: jaxht.FoBa(), "FoBa", r"$\nu = 1/2$", gathers=True, one_run=True),
    "GraHTP": Row(
        lambda f, k: HTP(spectral.restricted_step_size(f, k)), "GraHTP", HALF, gathers=True
    ),
    "FGraHTP": Row(lambda f, k: IHT(spectral.restricted_step_size(f, k)), "FGraHTP", HALF),
    "AMP": Row(lambda f, k: baselines.AMP(), "AMP", r"best $\tau$ for $n/d$", own_k=all_columns),
    "EMBGAMP": Row(
        lambda f, k: baselines.EMBGAMP(), "EM-BG-AMP", "learned prior", own_k=all_columns
    ),
    "BasisPursuit": Row(
        lambda f, k: baselines.BasisPursuit(), "basis pursuit", "ADMM", own_k=all_columns
    ),
    "FISTA": Row(lasso, "lasso", rf"FISTA, ${LASSO_SHARE:g} \max_j |a_j^* y|$", own_k=all_columns),
    "TunedIHT": Row(
        lambda f, k: baselines.TunedIHT(), "tuned IHT", "Maleki & Donoho 2010", own_k=all_columns
    ),
    "TST": Row(
        lambda f, k: jaxht.CoSaMP(expand=1),
        "tuned TST",
        "Maleki & Donoho 2010",
        gathers=True,
        passes=10,  # as CSMPSP
        own_k=baselines.tuned_sparsity,
    ),
    **{
        f"{name}-{factor:g}": Row(
            partial(_times_over_curvature, solver, factor),
            f"{name}, ${factor:g}/M$",
            rf"$\eta = {factor:g}/M_{{2k}}$",
            gathers=solver is HTP,
        )
        for factor in (1.0, 1.9)
        for name, solver in (("GraHTP", HTP), ("FGraHTP", IHT))
    },
}


def _known(name: str) -> str:
    if name not in SOLVERS:
        raise ValueError(f"no such solver, known are {', '.join(SOLVERS)}")
    return name


SolverNames = Annotated[list[Annotated[str, AfterValidator(_known)]], Field(min_length=1)]
