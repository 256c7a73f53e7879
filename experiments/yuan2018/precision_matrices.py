"""Yuan, Li & Zhang 2018, Figure 6: sparse precision matrices: error, F-score of the graph and time
against p."""

from collections.abc import Sequence
from functools import cache, partial
from typing import Annotated, Any

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from pydantic import Field, model_validator
from scipy.linalg import solve_triangular
from xarray import Dataset, concat

from experiments.common import Count, Session, double_precision, plots, timed
from experiments.common.claims import (
    NOT_PRINTED,
    Claim,
    Finding,
    Judge,
    Question,
    Reason,
    Section,
    Setting,
)
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
from experiments.yuan2018.judging import (
    GREEDY,
    TIMED,
    failures,
    fastest,
    mean_error,
    needs,
    present,
)
from jaxht import metrics
from jaxht.ensembles import graph_precision

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


# ---- what the paper says of it, and whether it holds ----


def favourable(column: str, better: int, digits: int) -> Judge:
    """At every p, whether no other method is better: by a paired difference beyond two standard
    errors over trials."""

    @needs(column, ("GraHTP", GLASSO), "p")
    def judge(results: Dataset, config: Any) -> Finding:
        parts, conditions = [], []
        for p in results.p.values:
            at = results[column].sel(p=p)
            own = at.sel(solver="GraHTP")
            others = [
                name for name in present(at, (*GREEDY, GLASSO)) if at.sel(solver=name).count() > 1
            ]
            means = {name: mean_error(at.sel(solver=name)) for name in others}
            best = max(others, key=lambda name: better * means[name][0])
            texts = (
                f"{value:.{digits}f} ± {error:.{digits}f}"
                for value, error in (mean_error(own), means[best])
            )
            parts.append(f"p = {p}: {next(texts)}, best of the others {best} {next(texts)}")
            paired = (mean_error(better * (at.sel(solver=name) - own)) for name in others)
            conditions.append(not any(value > 2 * error for value, error in paired))
        return Finding.of(f"mean ± standard error: {'; '.join(parts)}", *conditions)

    return judge


def by_p(results: Dataset, columns: Sequence[tuple[str, str, str]], digits: int) -> str:
    """List at every p the means with standard errors of some columns: (solver, column, how it is
    called)."""
    rows = []
    for p in results.p.values:
        ends = [
            mean_error(results[column].sel(p=p, solver=solver)) for solver, column, _ in columns
        ]
        texts = (f"{value:.{digits}f} ± {error:.{digits}f}" for value, error in ends)
        texts = (f"{column[2]} {text}" for column, text in zip(columns, texts, strict=True))
        rows.append(f"p = {p}: {', '.join(texts)}")
    return "; ".join(rows)


def where_it_turns(results: Dataset, config: Any) -> str:
    """The F-scores with the k chosen and with the best k, and how far an edge stands out of the
    noise of S."""
    columns = [("GraHTP", "f_score", "GraHTP"), ("GraHTP", "most_f_score", "with its best k")]
    columns += [(GLASSO, "f_score", GLASSO), (GLASSO, "most_f_score", "with its best penalty")]
    size = np.sqrt(config.n) * results.partial_correlation.sel(solver="GraHTP").mean("trial")
    stands = ", ".join(f"{float(size.sel(p=p)):.1f}" for p in results.p.values)
    return (
        f"Mean ± standard error: {by_p(results, columns, 2)}. The condition number p makes the partial correlation of "
        f"an edge smaller the larger p is: in units of its standard error $n^{{-1/2}}$ it is {stands}."
    )


def shrinkage_or_k(results: Dataset, config: Any) -> str:
    """The error with the k chosen, with the best k, and where its matrices are shrunk towards the
    diagonal."""
    columns = [
        ("GraHTP", "frobenius", "GraHTP"),
        ("GraHTP", "least_frobenius", "with the k of least error"),
    ]
    columns += [("GraHTP", "relaxed_frobenius", "relaxed"), (GLASSO, "frobenius", GLASSO)]
    columns += [(GLASSO, "relaxed_frobenius", f"{GLASSO} relaxed")]
    return (
        "Relaxed: $\\theta \\hat\\Omega + (1 - \\theta)\\, diag(1 / S_{ii})$, with the k and $\\theta$ of the least "
        f"loss on the samples held out. Mean ± standard error: {by_p(results, columns, 2)}."
    )


def unstable(names: Sequence[str]) -> Judge:
    """At every p: whether standard errors are above those of GLasso by more than twice the error of
    their ratio."""

    @needs("frobenius", (*names, GLASSO))
    def judge(results: Dataset, config: Any) -> Finding:
        parts, conditions = [], []
        for column, label in ("frobenius", "error"), ("f_score", "F-score"):
            spread = results[column].std("trial", ddof=1)
            for name in names:
                there = results[column].sel(solver=name).count("trial")
                ratios = (spread.sel(solver=name) / spread.sel(solver=GLASSO))[there > 1]
                beyond = np.exp(2 / np.sqrt(there[there > 1].values - 1))
                listed = (
                    f"{ratio:.2f} at p = {p} (chance: up to {most:.2f})"
                    for p, ratio, most in zip(ratios.p.values, ratios.values, beyond, strict=True)
                )
                parts.append(f"{name}, {label}: {', '.join(listed)}")
                conditions += (ratios.values > beyond).tolist()
        text = f"standard errors over those of GLasso: {'; '.join(parts)}"
        return Finding.of(text, *conditions)

    return judge


FIGURE_6 = Section(
    "Figure 6",
    "figure6",
    [
        Claim(
            "GraHTP performs favourably in the Frobenius error",
            favourable("frobenius", -1, 2),
            reason=f"{Reason.UNKNOWN}: the k of least error does not mend it; shrinkage, which it lacks, more than "
            "halves the distance (last question)",
        ),
        Claim(
            "GraHTP performs favourably in the F-score of the edges",
            favourable("f_score", 1, 3),
            reason=f"{Reason.UNKNOWN}: with its best k GraHTP would be above GLasso at p = 120, but not at p = 200 "
            "(first question)",
        ),
        Claim(
            "the standard error of GraHTP is larger than that of GLasso",
            unstable(["GraHTP"]),
            reason=f"{Reason.TRIALS}: at p = 200 8 of GraHTP and 4 of GLasso, not 100",
        ),
        Claim(
            "the other greedy methods are unstable in the same way",
            unstable(GREEDY),
            reason=f"{Reason.TRIALS}: 2 or 3, not 100, in all cases in which it does not hold",
        ),
        Claim(
            "GLasso takes less time than the greedy methods",
            fastest(GLASSO, ["GraHTP", *GREEDY], "p"),
            reason=f"{Reason.METHOD}: the greedy methods are compiled, GLasso is scikit-learn's, and GraHTP is faster",
        ),
        Claim(
            "GraHTP takes less time than the other greedy methods",
            fastest("GraHTP", GREEDY, "p"),
            reason=f"{Reason.METHOD}: FBS and FoBa visit all k in one run, and GraHTP runs once for each; for the k "
            "chosen alone GraHTP is the faster",
        ),
    ],
    "Differences are paired, as all methods see the same samples. Time is that of the whole choice of k or of "
    f"the penalty. {TIMED}",
    [
        Question("How many runs failed?", failures("p")),
        Question("From which p on is the graph no longer found, and why?", where_it_turns),
        Question(
            "Is the error one of the choice of k, or is it shrinkage that is missing?",
            shrinkage_or_k,
        ),
    ],
    [
        Setting("p", "30, 60, 120, 200 (§6.3.1)", "{p}"),
        Setting("edges; condition number", "with probability 0.1; p (§6.3.1)", "the same"),
        Setting("samples", "100, and 100 to choose k (§6.3.1)", "{n}, and as many"),
        Setting("trials, by p", "100 (§6.3.1)", "{num_trials}; fewer of slower methods"),
        Setting("loss that chooses k or the penalty", NOT_PRINTED, "likelihood"),
        Setting("k tried", NOT_PRINTED, "of all edges {density}"),
        Setting("η of GraHTP", NOT_PRINTED, "from {step_size}, halved until f falls"),
        Setting("steps of GraSP", NOT_PRINTED, "{grasp_steps} or fewer"),
        Setting("GLasso", "Friedman et al. 2008 (§6.3.1)", "scikit-learn, diagonal not penalised"),
        Setting("its penalties", NOT_PRINTED, "of the least without edges {penalties}"),
    ],
)
