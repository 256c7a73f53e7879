"""Yuan, Li & Zhang 2018, Table 4: linear discriminant analysis of tumours by sparse precision
matrices."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

import jax
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field, model_validator
from scipy.stats import ttest_ind
from sklearn.covariance import empirical_covariance
from sklearn.metrics import matthews_corrcoef, recall_score
from sklearn.preprocessing import StandardScaler
from xarray import Dataset, concat

from experiments.common import Count, Failure, Names, Session, data, double_precision, plots, timed
from experiments.common.claims import (
    NOT_PRINTED,
    Claim,
    Finding,
    Question,
    Reason,
    Section,
    Setting,
    Verdict,
    shown,
)
from experiments.common.session import Piece
from experiments.yuan2018.estimation import (
    GLASSO,
    Estimation,
    GLasso,
    Greedy,
    Matrix,
    Method,
    losses,
    num_edges,
)
from experiments.yuan2018.judging import (
    GREEDY,
    failures,
    fastest,
    mean_error,
    needs,
    present,
)
from jaxht import folds

Mask = NDArray[np.bool_]


class Config(Estimation):
    """Table 4."""

    datasets: Names  # names of data sets with labels -1/+1
    # test_positive, test_negative: for each of them, how many samples of a class are the test part
    # of a split.
    test_positive: list[Count]
    test_negative: list[Count]
    # num_genes: that are kept, by a t test on the training part; all where there are fewer.
    num_genes: Annotated[int, Field(ge=3)]
    num_folds: Annotated[int, Field(ge=2)]  # of the cross-validation
    num_splits: Annotated[int, Field(ge=2)]  # of each data set

    @model_validator(mode="after")
    def _check_lengths(self) -> "Config":
        if not len(self.datasets) == len(self.test_positive) == len(self.test_negative):
            raise ValueError(
                "test_positive and test_negative must have one entry for each data set"
            )
        return self

    @property
    def num_test(self) -> list[tuple[int, int]]:
        """The positive and negative test samples of each data set."""
        return list(zip(self.test_positive, self.test_negative, strict=True))


def covariance(X: Matrix, y: Mask, kept: Mask, used: Mask) -> Matrix:
    """Return the covariance within classes, pooled: of the rows used, around the class means of the
    rows kept."""
    means = np.where(y[:, None], X[kept & y].mean(axis=0), X[kept & ~y].mean(axis=0))
    return empirical_covariance((X - means)[used], assume_centered=True)


def predicted(W: Matrix, X: Matrix, y: Mask, X_test: Matrix) -> Mask:
    """Say by linear discriminant analysis which test samples are positive.

    That of scikit-learn estimates a covariance by itself; here the precision matrix W is given.
    """

    def scores(own: Mask) -> Any:
        mean = X[own].mean(axis=0)
        return X_test @ W @ mean - mean @ W @ mean / 2 + np.log(own.mean())

    return scores(y) > scores(~y)


class Split:
    """A random training and test part: the genes of the lowest p values on the training part,
    standardised by it."""

    def __init__(
        self, table: data.Table, num_test: tuple[int, int], config: Config, number: int
    ) -> None:
        rng, y = np.random.default_rng([config.seed, number]), table.y > 0
        test = np.zeros(len(y), bool)
        for own, size in zip((y, ~y), num_test, strict=True):
            test[rng.permutation(np.flatnonzero(own))[:size]] = True
        X, self.y, self.y_test = table.dense(), y[~test], y[test]
        X = X[:, X[~test].std(axis=0) > 0]
        p_values = ttest_ind(X[~test][self.y], X[~test][~self.y]).pvalue
        X = X[:, np.sort(np.argsort(p_values, kind="stable")[: config.num_genes])]
        X = StandardScaler().fit(X[~test]).transform(X)
        self.X, self.X_test = X[~test], X[test]
        key = jax.random.fold_in(jax.random.key(config.seed), number)
        self.folds = np.asarray(folds(key, len(self.y), config.num_folds))

    def estimate(self, by: Method) -> tuple[Matrix, int, bool]:
        """Return W with the least mean loss of the samples held out, which choice it is, and
        whether it failed.

        Where there is no such matrix on all samples, it is that of the next choice that has one.
        """
        every = np.ones(len(self.y), bool)
        total: Any = 0
        for out in self.folds:
            W, _ = by.over(covariance(self.X, self.y, ~out, ~out))
            total += losses(W, covariance(self.X, self.y, ~out, out))
        W, failed = by.over(covariance(self.X, self.y, every, every))
        best = int(np.argmin(np.where(np.isfinite(W).all(axis=(1, 2)), total, np.inf)))
        return W[best], best, bool(failed[best])

    def judged(self, by: Method) -> dict[str, Any]:
        """Measure how well W tells the test samples apart."""
        (W, choice, failed), seconds = timed(self.estimate, by)
        found = predicted(W, self.X, self.y, self.X_test)
        return {
            "specificity": recall_score(self.y_test, found, pos_label=False),
            "sensitivity": recall_score(self.y_test, found),
            "mcc": matthews_corrcoef(self.y_test, found),
            "seconds": seconds,
            "edges": num_edges(W),
            "choice": choice,
            "failed": failed,
            "num_genes": self.X.shape[1],
            "num_train": len(self.y),
        }


def run(config: Config, session: Session) -> Dataset:
    """Estimate by every method on the same splits; a part of the store for each method and data
    set."""
    names = [GLASSO, *config.solvers]

    def on(dataset: str, num_test: tuple[int, int], part: Callable[..., Dataset]) -> Dataset:
        table = data.load(dataset, session.data_dir)
        classes = np.sum(table.y > 0), np.sum(table.y <= 0)
        if any(
            size + config.num_folds > most for size, most in zip(num_test, classes, strict=True)
        ):
            raise Failure(
                f"{dataset}: {classes[0]} positive and {classes[1]} negative samples are too few for the test part"
            )
        parts = [
            part(f"{dataset}-{name}", partial(splits, config, table, num_test, name), True)
            for name in names
        ]
        return concat(parts, "solver")

    with (
        double_precision(),
        session.parts(len(names) * len(config.datasets), ("num_splits",)) as part,
    ):
        results = [
            on(dataset, size, part)
            for dataset, size in zip(config.datasets, config.num_test, strict=True)
        ]
    return concat(results, "dataset").assign_coords(dataset=config.datasets, solver=names)


def splits(
    config: Config, table: data.Table, num_test: tuple[int, int], name: str, piece: Piece
) -> Dataset:
    """Estimate by a method on all splits of a data set; a split is a piece."""
    p = Split(table, num_test, config, 0).X.shape[1]
    by = GLasso(config) if name == GLASSO else Greedy(name, p, config)
    by.over(np.eye(p))  # what is only done once, such as compilation

    def split(number: int) -> Dataset:
        return Dataset(Split(table, num_test, config, number).judged(by))

    return concat(
        [piece(str(number), partial(split, number)) for number in range(config.num_splits)], "split"
    )


COLUMNS = {"specificity": "Specificity", "sensitivity": "Sensitivity", "mcc": "MCC"}
COLUMNS |= {"seconds": "Time (s)", "edges": "Edges"}


def plot(dataset: Dataset, config: Config) -> Figure:
    """Write a table for each data set: means, and standard deviations in brackets."""
    names = [*config.solvers, GLASSO]
    figure = plots.figure(6.4, len(config.datasets) * (0.5 + 0.24 * len(names)))
    grid = figure.subplots(len(config.datasets), 1, squeeze=False)[:, 0]
    for axes, dataset_name, num_test in zip(grid, config.datasets, config.num_test, strict=True):
        results = dataset.sel(dataset=dataset_name)
        mean, spread = results.mean("split"), results.std("split", ddof=1)

        def cell(name: str, column: str, mean: Dataset = mean, spread: Dataset = spread) -> str:
            value, around = (float(of[column].sel(solver=name)) for of in (mean, spread))
            digits = 0 if column == "edges" else 2
            return (
                f"{value:.{digits}f} ({around:.{digits}f})"
                if column != "seconds"
                else f"{value:.2f}"
            )

        size = f"{int(mean.num_genes[0])} genes, {int(mean.num_train[0])} training and {sum(num_test)} test samples"
        axes.set_title(f"{dataset_name.replace('_', ' ')}: {size}", loc="left")
        cells = [[cell(name, column) for column in COLUMNS] for name in names]
        labels: dict[str, Any] = {
            "rowLabels": names,
            "colLabels": list(COLUMNS.values()),
            "cellLoc": "center",
        }
        table = plots.table(axes, cells, 9, edges="horizontal", bbox=[0.1, 0, 0.9, 1], **labels)
        for place in table.get_celld().values():
            place.set_linewidth(0.5)
    about = f"Means over {config.num_splits} splits, standard deviations in brackets. Time: with the choice of k."
    plots.caption(figure, config, about)
    return figure


# ---- what the paper says of it, and whether it holds ----


HESS = "hess2006_breast_26genes"
MEASURES = ("specificity", "sensitivity", "mcc")
# To the best of the methods of Table 4: 0.04 is the most that the paper's GraHTP lies below it.
CLOSE = 0.05
PRINTED = {
    "GraHTP": ("0.77 (0.11)", "0.77 (0.19)", "0.49 (0.19)", "1.92"),
    "GraSP": ("0.73 (0.10)", "0.78 (0.18)", "0.45 (0.17)", "4.06"),
    "FBS": ("0.78 (0.11)", "0.74 (0.18)", "0.48 (0.19)", "8.73"),
    "FoBa": ("0.72 (0.11)", "0.78 (0.18)", "0.44 (0.18)", "6.73"),
    GLASSO: ("0.81 (0.11)", "0.64 (0.21)", "0.45 (0.19)", "1.19"),
}


def in_words(cells: Sequence[str]) -> str:
    specificity, sensitivity, mcc, seconds = cells
    return f"specificity {specificity}, sensitivity {sensitivity}, MCC {mcc}, {seconds} s"


def row_of(name: str) -> Claim:
    """Our row beside the paper's: not judged, as the genes are others."""

    @needs("mcc", (name,), "dataset")
    def judge(results: Dataset, config: Any) -> Finding:
        of = results.sel(solver=name, dataset=HESS)
        cells = [
            f"{float(of[column].mean()):.2f} ({float(of[column].std(ddof=1)):.2f})"
            for column in MEASURES
        ]
        text = in_words([*cells, f"{float(of.seconds.mean()):.2g}"])
        return Finding(
            f"{text}; with 26 genes, not 113 of 22,283: not comparable", Verdict.CANNOT_BE_JUDGED
        )

    return Claim(
        f"{name}: mean (standard deviation) over 100 splits", judge, printed=in_words(PRINTED[name])
    )


@needs("mcc", ("GraHTP", GLASSO), "dataset")
def competitive(results: Dataset, config: Any) -> Finding:
    parts, conditions = [], []
    for dataset in results.dataset.values:
        rows, texts = results.sel(dataset=dataset), []
        names = present(rows.mcc, (*GREEDY, GLASSO))
        for column in MEASURES:
            means = {
                name: float(rows[column].sel(solver=name).mean()) for name in ("GraHTP", *names)
            }
            best = max(names, key=lambda name, means=means: means[name])  # type: ignore[misc]
            apart = mean_error(rows[column].sel(solver="GraHTP") - rows[column].sel(solver=best))
            texts.append(
                f"{column} {means['GraHTP']:.2f}, {best} {means[best]:.2f} ({apart[0]:+.3f} ± {apart[1]:.3f})"
            )
            conditions.append(means["GraHTP"] >= means[best] - CLOSE)
        parts.append(f"{shown(dataset)}: {', '.join(texts)}")
    text = f"GraHTP, best of the others (paired difference ± standard error over splits): {'; '.join(parts)}"
    return Finding.of(text, *conditions)


@needs("mcc", ("GraHTP", GLASSO), "dataset")
def highest_mcc(results: Dataset, config: Any) -> Finding:
    parts, conditions = [], []
    for dataset in results.dataset.values:
        mcc = results.mcc.sel(dataset=dataset)
        names = present(mcc, (*GREEDY, GLASSO))
        means = {name: mean_error(mcc.sel(solver=name)) for name in ("GraHTP", *names)}
        parts.append(
            f"{shown(dataset)}: {', '.join(f'{n} {v:.3f} ± {error:.3f}' for n, (v, error) in means.items())}"
        )
        conditions.append(all(means["GraHTP"][0] > means[name][0] for name in names))
    return Finding.of(f"mean ± standard error over splits: {'; '.join(parts)}", *conditions)


FEW_GENES = f"{Reason.DATA}: 26 genes, not 113 of 22,283"


TABLE_4 = Section(
    "Table 4",
    "table4",
    [
        *map(row_of, PRINTED),
        Claim(
            "GraHTP is quite competitive with the leading methods in all three measures",
            competitive,
            printed="at most 0.04 below the best",
            reason=FEW_GENES,
        ),
        Claim(
            "the MCC of GraHTP is the highest",
            highest_mcc,
            printed="0.49, the others 0.44 to 0.48",
            reason=FEW_GENES,
        ),
        Claim(
            "GLasso takes the least time",
            fastest(GLASSO, ["GraHTP", *GREEDY], "dataset"),
            printed="1.19 s, GraHTP 1.92 s",
            reason=f"{FEW_GENES}; in Figure 6 GLasso is slower than GraHTP at p = 30, and faster at p = 120",
        ),
        Claim(
            "GraHTP takes the least time of the greedy methods",
            fastest("GraHTP", GREEDY, "dataset"),
            printed="1.92 s, the others 4.06 to 8.73 s",
            reason=f"{FEW_GENES}; in Figure 6 FBS and FoBa are faster than GraHTP at p = 30, and slower at p = 120",
        ),
    ],
    f"Competitive means: the mean is at most {CLOSE} below the best. The patients are the paper's, but of "
    "their genes the 26 of Hess's predictor. Splits overlap, so standard errors over them are too small.",
    [Question("How many runs failed?", failures("dataset"))],
    [
        Setting("patients", "133: 34 pCR, 99 RD (§6.3.2)", "the same"),
        Setting("genes", "113 of 22,283, by t test (§6.3.2)", "26, of Hess's predictor"),
        Setting("test part", "5 pCR, 16 RD (§6.3.2)", "{test_positive} pCR, {test_negative} RD"),
        Setting("splits", "100 (§6.3.2)", "{num_splits}"),
        Setting("folds that choose k or the penalty", "6 (§6.3.2)", "{num_folds}"),
        Setting("covariance", "one for both classes (§6.3.2)", "within classes, pooled"),
        Setting("k tried", NOT_PRINTED, "of all edges {density}"),
        Setting("η of GraHTP", NOT_PRINTED, "from {step_size}, halved until f falls"),
        Setting("steps of GraSP", NOT_PRINTED, "{grasp_steps} or fewer"),
    ],
)
