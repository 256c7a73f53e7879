"""Yuan, Li & Zhang, Gradient Hard Thresholding Pursuit, JMLR 2018, §6.3.1: sparse precision matrices, simulated."""

import itertools
import time
import warnings
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field
from scipy.linalg import solve_triangular
from sklearn.covariance import graphical_lasso
from sklearn.exceptions import ConvergenceWarning
from xarray import Dataset, concat

from experiments import plots
from experiments.config import Config, Count, Fractions, Positive
from experiments.session import Session, double_precision
from jaxht import HTP, OMP, Edges, FoBa, GaussianPrecision, GraSP, Stop, metrics, path, solve, sweep
from jaxht.solvers.status import Status

Matrix = NDArray[np.float64]
GLASSO = "GLasso"
MAX_STEPS = 100  # of GLasso, each over all variables
LOOKS = {
    "GraHTP": (plots.BLUE, "o"),
    "GraSP": (plots.VERMILION, "s"),
    "FBS": (plots.GREEN, "D"),
    "FoBa": (plots.PURPLE, "^"),
    GLASSO: (plots.GREY, "x"),
}


class Estimation(Config):
    """The keys of both experiments.

    Attributes:
        solvers: beside GLasso.
        density: sparsities k, in units of the p (p - 1) / 2 edges that there can be.
        penalties: of GLasso, in units of the largest entry of S off the diagonal, from which on it finds no edge.
        step_size: of GraHTP, with which each step begins.
        grasp_steps: most steps of GraSP, which may cycle.
        seed: of all that is drawn.
    """

    solvers: Annotated[list[Literal["GraHTP", "GraSP", "FBS", "FoBa"]], Field(min_length=1)]
    density: Fractions
    penalties: Fractions
    step_size: Positive
    grasp_steps: Count
    seed: Annotated[int, Field(ge=0)] = 0

    def k(self, p: int) -> list[int]:
        """The sparsities for p variables."""
        return sorted({max(1, round(density * p * (p - 1) / 2)) for density in self.density})


class Estimates(NamedTuple):
    """Precision matrices over m values of what is chosen, the sparsity or the penalty.

    Attributes:
        W: (m, p, p); NaN where there is none.
        failed: (m,), whether the run ended in failure.
        valid: whether all that there are have a Cholesky factor, and at most k edges.
    """

    W: Matrix
    failed: NDArray[np.bool_]
    valid: bool


class Method(Protocol):
    """How matrices are estimated."""

    def over(self, S: Matrix) -> Estimates:
        """For every sparsity, or penalty."""

    def at(self, S: Matrix, choice: int) -> Any:
        """For one of them alone."""


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
        self.nested = getattr(solver, "nested", False)

        def run(S: Any, k: Any) -> Any:
            result = solve(GaussianPrecision(S), Edges(k, k_max=k_max), solver, stop=stop)
            return result.x, result.status

        def run_path(S: Any) -> Any:
            result = path(GaussianPrecision(S), Edges(1, k_max=k_max), solver, self.k, stop=stop)
            return result.x, result.status

        self._run, self._path = jax.jit(run), jax.jit(run_path)

    def over(self, S: Matrix) -> Estimates:
        """For every sparsity."""
        if self.nested:
            W, status = map(np.asarray, self._path(S))
        else:
            ends = [self.at(S, i) for i in range(len(self.k))]
            W, status = (np.stack([np.asarray(end[part]) for end in ends]) for part in (0, 1))
        valid = all(proper(x) and edges(x) <= k for x, k in zip(W, self.k, strict=True))
        return Estimates(W, status >= Status.MAX_STEPS, valid)

    def at(self, S: Matrix, choice: int) -> Any:
        """For one of them."""
        return jax.block_until_ready(self._run(S, np.int32(self.k[choice])))


class GLasso:
    """The graphical lasso of scikit-learn, which leaves the diagonal unpenalised."""

    def __init__(self, config: Estimation) -> None:
        self.penalties = config.penalties

    def over(self, S: Matrix) -> Estimates:
        """For every penalty; for small ones there may be no matrix, or no convergence."""
        W, ended = (np.stack(part) for part in zip(*(self.at(S, i) for i in range(len(self.penalties))), strict=True))
        return Estimates(W, ~ended, all(proper(x) for x in W if np.isfinite(x).all()))

    def at(self, S: Matrix, choice: int) -> tuple[Matrix, bool]:
        """For one of them, and whether it converged."""
        penalty = self.penalties[choice] * np.abs(S - np.diag(np.diag(S))).max()
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore", ConvergenceWarning)
            try:
                _, W, num_steps = graphical_lasso(S, penalty, max_iter=MAX_STEPS, return_n_iter=True)
            except FloatingPointError:
                return np.full(S.shape, np.nan), False
        return W, num_steps < MAX_STEPS


def method(name: str, p: int, config: Estimation) -> Method:
    """By its name."""
    return GLasso(config) if name == GLASSO else Greedy(name, p, config)


def proper(W: Matrix) -> bool:
    """Whether W is symmetric, to rounding, and has a Cholesky factor."""
    try:
        np.linalg.cholesky(W)
    except np.linalg.LinAlgError:
        return False
    return np.allclose(W, W.T, rtol=1e-8)


def edges(W: Matrix) -> int:
    """The number of edges."""
    return int(np.count_nonzero(np.triu(W, 1)))


def losses(W: Matrix, S: Matrix) -> NDArray[np.float64]:
    """``-log det W + <S, W>`` of each, infinite where there is none."""
    with np.errstate(invalid="ignore"):
        sign, logdet = np.linalg.slogdet(W)
    values = np.sum(S * W, axis=(1, 2)) - logdet
    return np.where((sign > 0) & np.isfinite(values), values, np.inf)


class PrecisionMatrices(Estimation):
    """Figure 6.

    Attributes:
        p: numbers of variables.
        n: samples for training, and as many more for the choice of k and of the penalty.
        num_trials: of each p.
    """

    p: Annotated[list[Annotated[int, Field(ge=3)]], Field(min_length=1)]
    n: Count
    num_trials: Count


def truth(p: int, rng: np.random.Generator) -> Matrix:
    """The model: edges of weight 1 with chance 0.1, and a diagonal that makes p the condition number."""
    upper = np.triu(rng.random((p, p)) < 0.1, 1).astype(float)
    theta = upper + upper.T
    least, *_, largest = np.linalg.eigvalsh(theta)
    return theta + (largest - p * least) / (p - 1) * np.eye(p)


def covariances(W: Matrix, n: int, rng: np.random.Generator) -> tuple[Matrix, Matrix]:
    """Of two samples of size n from N(0, W^-1), whose mean is known."""
    root = np.linalg.cholesky(W)
    X, Y = (solve_triangular(root, rng.normal(size=(len(W), n)), lower=True, trans=1) for _ in range(2))
    return X @ X.T / n, Y @ Y.T / n


def precision_matrices(config: PrecisionMatrices, session: Session) -> Dataset:
    """Every method on the same samples; a part of the store for each method and p."""
    names, done = [GLASSO, *config.solvers], itertools.count()
    total = len(names) * len(config.p)

    def kept(p: int, name: str) -> Dataset:
        session.report(next(done), total)
        return session.kept(f"{p}-{name}", lambda: trials(config, p, name))

    with double_precision():
        results = concat([concat([kept(p, name) for name in names], "solver") for p in config.p], "p")
    session.report(total, total)
    return results.assign_coords(p=config.p, solver=names).assign_attrs(sweep.provenance())


def trials(config: PrecisionMatrices, p: int, name: str) -> Dataset:
    """A method for one p."""
    chosen = method(name, p, config)

    def trial(number: int) -> dict[str, Any]:
        rng = np.random.default_rng([config.seed, p, number])
        W = truth(p, rng)
        S, held_out = covariances(W, config.n, rng)
        if not number:  # what is only done once, such as compilation
            chosen.over(S), chosen.at(S, 0)
        found, seconds = timed(lambda: chosen.over(S))
        values = losses(found.W, held_out)
        best = int(np.argmin(values))
        _, solve_seconds = timed(lambda: chosen.at(S, best))
        x, off = found.W[best], ~np.eye(p, dtype=bool)
        return {
            "frobenius": np.linalg.norm(x - W),
            "f_score": float(metrics.f_score(jnp.asarray(x * off), jnp.asarray(W * off))),
            "seconds": seconds,
            "solve_seconds": solve_seconds,
            "edges": edges(x),
            "true_edges": edges(W),
            "choice": best,
            "failed": found.failed.mean(),
            "chosen_failed": found.failed[best],
            "valid": found.valid,
            "loss": values[best],
        }

    rows = [trial(number) for number in range(config.num_trials)]
    return Dataset({key: ("trial", np.array([row[key] for row in rows])) for key in rows[0]})


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What it gives, and the seconds that it takes."""
    begin = time.perf_counter()
    return work(), time.perf_counter() - begin


PANELS = {"frobenius": r"Frobenius error $\|\hat\Omega - \bar\Omega\|_F$", "f_score": "F-score of the edges"}


def plot_precision_matrices(dataset: Dataset) -> Figure:
    """Frobenius error, F-score and time against p, means with standard errors."""
    config = plots.config(dataset, PrecisionMatrices)
    figure = plots.figure(8.6, 2.4)
    panels = figure.subplots(1, 3)
    mean, error = dataset.mean("trial"), dataset.std("trial", ddof=1) / np.sqrt(dataset.sizes["trial"])
    for name in [*config.solvers, GLASSO]:
        (color, marker), of, spread = LOOKS[name], mean.sel(solver=name), error.sel(solver=name)
        bars: Any = {"color": color, "marker": marker, "capsize": 2, "elinewidth": 0.8}
        for axes, column in zip(panels, [*PANELS, "seconds"], strict=True):
            axes.errorbar(config.p, of[column], spread[column], label=name, **bars)
        panels[2].plot(config.p, of.solve_seconds, color=color, linestyle=":", linewidth=0.9)
    panels[2].set_yscale("log")
    for axes, label in zip(panels, [*PANELS.values(), "time (s)"], strict=True):
        axes.set_xlabel("number of variables $p$")
        axes.set_xticks(config.p)
        axes.set_ylabel(label)
    panels[1].set_ylim(0, 1)
    plots.legend_right(panels[2])
    failures = ", ".join(
        f"{name} {100 * float(mean.failed.sel(solver=name).mean()):.0f} %" for name in mean.solver.values
    )
    about = (
        "Bars: standard errors. Time: of the whole choice of k or of the penalty; dotted: of the one chosen alone. "
        f"Runs that cycled, failed or met a limit of steps: {failures}."
    )
    plots.caption(figure, config.title, f"{config.remark} {about}")
    return figure
