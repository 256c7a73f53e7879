"""Yuan, Li & Zhang 2018, Figure 6: sparse precision matrices: error, F-score of the graph and time
against p."""

from functools import cache, partial
from typing import Annotated, Any

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from pydantic import Field, model_validator
from scipy.linalg import solve_triangular
from xarray import Dataset, concat

from experiments.common import Count, Session, double_precision, plots, timed
from experiments.common.session import Piece
from experiments.yuan2018.estimation import (
    GLASSO,
    Estimation,
    GLasso,
    Greedy,
    Matrix,
    losses,
    num_edges,
)
from jaxht import metrics
from jaxht.planted.ensembles import graph_precision

LOOKS = {
    "GraHTP": (plots.BLUE, "o"),
    "GraSP": (plots.VERMILION, "s"),
    "FBS": (plots.GREEN, "D"),
    "FoBa": (plots.PURPLE, "^"),
    GLASSO: (plots.GREY, "x"),
}
COUNTS = (
    "p",
    "solvers",
    "num_trials",
    "fewer_trials",
)  # of the configuration, on which no single trial depends


class Config(Estimation):
    """Figure 6."""

    p: Annotated[list[Annotated[int, Field(ge=3)]], Field(min_length=1)]  # numbers of variables
    n: Count  # samples for training, and as many more for the choice of k and of the penalty
    num_trials: list[Count]  # of each p
    # fewer_trials: by solver, of those that take long, in place of num_trials; 0 where one does not
    # run.
    fewer_trials: dict[str, list[Annotated[int, Field(ge=0)]]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_trials(self) -> "Config":
        for name, trials in {"num_trials": self.num_trials, **self.fewer_trials}.items():
            if len(trials) != len(self.p):
                raise ValueError(f"{name} must have one number for each p")
        if unknown := [name for name in self.fewer_trials if name not in (GLASSO, *self.solvers)]:
            raise ValueError(f"fewer_trials: no such solver here: {', '.join(unknown)}")
        return self

    def trials_of(self, solver: str) -> list[int]:
        """Return the number of trials of a solver for every p."""
        return self.fewer_trials.get(solver, self.num_trials)


def draw(p: int, n: int, rng: np.random.Generator) -> tuple[Matrix, Matrix, Matrix]:
    """Draw a precision matrix, edges of probability 0.1 and condition number p, and two covariances
    of n samples."""
    upper = np.triu(rng.random((p, p)) < 0.1, 1)
    W = np.asarray(graph_precision(upper | upper.T, p))
    root = np.linalg.cholesky(W)
    X, Y = (solve_triangular(root, rng.normal(size=(p, n)), lower=True, trans=1) for _ in range(2))
    return W, X @ X.T / n, Y @ Y.T / n


def run(config: Config, session: Session) -> Dataset:
    """Estimate by every method on the same samples; a part of the store for each method and p."""
    names = [GLASSO, *config.solvers]
    rows = []
    with double_precision(), session.parts(len(names) * len(config.p), COUNTS) as part:
        for i, p in enumerate(config.p):
            found = {
                name: part(f"{p}-{name}", partial(trials, config, p, name, number), True)
                for name in names
                if (number := config.trials_of(name)[i])
            }
            rows.append(
                concat(found.values(), "solver", join="outer").assign_coords(solver=list(found))
            )
    return concat(rows, "p", join="outer").assign_coords(p=config.p).sel(solver=names)


def trials(config: Config, p: int, name: str, number: int, piece: Piece) -> Dataset:
    """Estimate by a method for one p; a trial is a piece."""
    chosen = GLasso(config) if name == GLASSO else Greedy(name, p, config)
    warm_up = cache(
        lambda: (chosen.over(np.eye(p)), chosen.at(np.eye(p), 0))
    )  # what is only done once: compilation

    def trial(index: int) -> Dataset:
        rng = np.random.default_rng([config.seed, p, index])
        W, S, held_out = draw(p, config.n, rng)
        warm_up()
        (found, failed), seconds = timed(chosen.over, S)
        values = losses(found, held_out)
        best = int(np.argmin(values))
        _, solve_seconds = timed(chosen.at, S, best)
        x, off = found[best], ~np.eye(p, dtype=bool)
        relaxed = relax(found, S, held_out)
        errors = np.linalg.norm(found - W, axis=(1, 2))
        scores = [
            float(metrics.f_score(jnp.asarray(each * off), jnp.asarray(W * off))) for each in found
        ]
        row = {
            "frobenius": errors[best],
            "least_frobenius": np.nanmin(errors),
            "relaxed_frobenius": np.linalg.norm(relaxed - W),
            "f_score": scores[best],
            "most_f_score": np.nanmax(scores),
            "relaxed_f_score": float(
                metrics.f_score(jnp.asarray(relaxed * off), jnp.asarray(W * off))
            ),
            "partial_correlation": 1 / W[0, 0],
            "seconds": seconds,
            "solve_seconds": solve_seconds,
            "edges": num_edges(x),
            "true_edges": num_edges(W),
            "choice": best,
            "failed": failed.mean(),
            "chosen_failed": float(failed[best]),
            "loss": values[best],
        }
        return Dataset(row)

    rows = [piece(str(index), partial(trial, index)) for index in range(number)]
    return concat(rows, "trial").assign_coords(trial=range(number))


RELAXATIONS = np.linspace(0.1, 1, 19)


def relax(found: Any, S: Matrix, held_out: Matrix) -> Matrix:
    """Return the ``theta W + (1 - theta) diag(1 / S_ii)`` of least loss on held-out samples, over
    all W found."""
    diagonal = np.diag(1 / np.diag(S))
    between = [theta * W + (1 - theta) * diagonal for theta in RELAXATIONS for W in found]
    return between[int(np.argmin(losses(np.stack(between), held_out)))]


PANELS = {
    "frobenius": r"Frobenius error $\|\hat\Omega - \bar\Omega\|_F$",
    "f_score": "F-score of the edges",
}


def plot(dataset: Dataset, config: Config) -> Figure:
    """Draw Frobenius error, F-score and time against p, means with standard errors."""
    figure = plots.figure(8.6, 2.4)
    panels = figure.subplots(1, 3)
    mean, error = (
        dataset.mean("trial"),
        dataset.std("trial", ddof=1) / np.sqrt(dataset.count("trial")),
    )
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
        f"{name} {100 * float(mean.failed.sel(solver=name).mean()):.0f} %"
        for name in mean.solver.values
    )
    about = (
        "Bars: standard errors. Time: of the whole choice of k or of the penalty; dotted: of the one chosen alone. "
        f"Runs that cycled, failed or met a limit of steps: {failures}."
    )
    plots.caption(figure, config, about)
    return figure
