"""Yuan, Li & Zhang, Gradient Hard Thresholding Pursuit, JMLR 2018, §6.3.2: tumours told apart by LDA."""

import itertools
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field, model_validator
from scipy.stats import ttest_ind
from xarray import Dataset, concat

from experiments import data, plots
from experiments.config import Count, Failure
from experiments.session import Session, double_precision
from experiments.yuan2018_precision import GLASSO, Estimation, Matrix, Method, edges, losses, method, timed
from jaxht import folds, metrics, sweep

Mask = NDArray[np.bool_]


class TumourClassification(Estimation):
    """Table 4.

    Attributes:
        datasets: names of data sets with labels -1/+1.
        test_positive, test_negative: for each of them, how many samples of a class are the test part of a split.
        num_genes: that are kept, by a t test on the training part; all where there are fewer.
        num_folds: of the cross-validation.
        num_splits: of each data set.
    """

    datasets: Annotated[list[str], Field(min_length=1)]
    test_positive: list[Count]
    test_negative: list[Count]
    num_genes: Annotated[int, Field(ge=3)]
    num_folds: Annotated[int, Field(ge=2)]
    num_splits: Annotated[int, Field(ge=2)]

    @model_validator(mode="after")
    def _consistent(self) -> "TumourClassification":
        if not len(self.datasets) == len(self.test_positive) == len(self.test_negative):
            raise ValueError("test_positive and test_negative must have one entry for each data set")
        return self

    @property
    def num_test(self) -> list[tuple[int, int]]:
        """Positive and negative test samples of each data set."""
        return list(zip(self.test_positive, self.test_negative, strict=True))


def centred(X: Matrix, y: Mask, kept: Mask) -> Matrix:
    """X minus the means of the classes, which are those of the rows kept."""
    return X - np.where(y[:, None], X[kept & y].mean(axis=0), X[kept & ~y].mean(axis=0))


def covariance(X: Matrix, y: Mask, kept: Mask, used: Mask) -> Matrix:
    """Within classes, pooled: of the rows used, around the class means of the rows kept."""
    residuals = centred(X, y, kept)[used]
    return residuals.T @ residuals / len(residuals)


def predicted(W: Matrix, X: Matrix, y: Mask, X_test: Matrix) -> Mask:
    """Linear discriminant analysis with precision matrix W: which test samples are positive."""

    def scores(own: Mask) -> Any:
        mean = X[own].mean(axis=0)
        return X_test @ W @ mean - mean @ W @ mean / 2 + np.log(own.mean())

    return scores(y) > scores(~y)


class Split:
    """A training and a test part: the genes of the lowest p values on the training part, standardised by it.

    Args:
        table: a data set.
        num_test: positive and negative test samples.
        config: of the experiment.
        number: of the split.
    """

    def __init__(self, table: data.Table, num_test: tuple[int, int], config: TumourClassification, number: int) -> None:
        rng, y = np.random.default_rng([config.seed, number]), table.y > 0
        test = np.zeros(len(y), bool)
        for own, size in zip((y, ~y), num_test, strict=True):
            test[rng.permutation(np.flatnonzero(own))[:size]] = True
        X, self.y, self.y_test = table.dense(), y[~test], y[test]
        X = X[:, X[~test].std(axis=0) > 0]
        p_values = ttest_ind(X[~test][self.y], X[~test][~self.y]).pvalue
        X = X[:, np.sort(np.argsort(p_values, kind="stable")[: config.num_genes])]
        X = (X - X[~test].mean(axis=0)) / X[~test].std(axis=0)
        self.X, self.X_test = X[~test], X[test]
        key = jax.random.fold_in(jax.random.key(config.seed), number)
        self.folds = np.asarray(folds(key, len(self.y), config.num_folds))

    def estimate(self, by: Method) -> tuple[Matrix, int, bool, bool]:
        """W with the least mean loss of the samples held out, which of the choices it is, whether it failed, is valid.

        Where there is no such matrix on all samples, it is that of the next choice that has one.
        """
        every = np.ones(len(self.y), bool)
        total: Any = 0
        for out in self.folds:
            fold = by.over(covariance(self.X, self.y, ~out, ~out))
            total += losses(fold.W, covariance(self.X, self.y, ~out, out))
        whole = by.over(covariance(self.X, self.y, every, every))
        total = np.where(np.isfinite(whole.W).all(axis=(1, 2)), total, np.inf)
        best = int(np.argmin(total))
        return whole.W[best], best, bool(whole.failed[best]), whole.valid

    def judged(self, by: Method) -> dict[str, Any]:
        """How well W tells the test samples apart."""
        (W, choice, failed, valid), seconds = timed(lambda: self.estimate(by))
        found, actual = jnp.asarray(predicted(W, self.X, self.y, self.X_test)), jnp.asarray(self.y_test)
        return {
            "specificity": float(metrics.specificity(found, actual)),
            "sensitivity": float(metrics.sensitivity(found, actual)),
            "mcc": float(metrics.matthews_correlation(found, actual)),
            "seconds": seconds,
            "edges": edges(W),
            "choice": choice,
            "failed": failed,
            "valid": valid,
            "num_genes": self.X.shape[1],
            "num_train": len(self.y),
        }


def tumour_classification(config: TumourClassification, session: Session) -> Dataset:
    """Every method on the same splits; a part of the store for each method and data set."""
    names, done = [GLASSO, *config.solvers], itertools.count()
    total = len(names) * len(config.datasets)

    def on(dataset: str, num_test: tuple[int, int]) -> Dataset:
        table = data.load(dataset, session.data_dir)
        classes = np.sum(table.y > 0), np.sum(table.y <= 0)
        if any(size + config.num_folds > most for size, most in zip(num_test, classes, strict=True)):
            raise Failure(
                f"{dataset}: {classes[0]} positive and {classes[1]} negative samples are too few for the test part"
            )

        def kept(name: str) -> Dataset:
            session.report(next(done), total)
            return session.kept(f"{dataset}-{name}", lambda: splits(config, table, num_test, name))

        return concat([kept(name) for name in names], "solver")

    with double_precision():
        results = concat(list(map(on, config.datasets, config.num_test)), "dataset")
    session.report(total, total)
    return results.assign_coords(dataset=config.datasets, solver=names).assign_attrs(sweep.provenance())


def splits(config: TumourClassification, table: data.Table, num_test: tuple[int, int], name: str) -> Dataset:
    """A method on all splits of a data set."""
    first = Split(table, num_test, config, 0)
    by = method(name, first.X.shape[1], config)
    by.over(np.eye(first.X.shape[1]))  # what is only done once, such as compilation
    rows = [Split(table, num_test, config, number).judged(by) for number in range(config.num_splits)]
    return Dataset({key: ("split", np.array([row[key] for row in rows])) for key in rows[0]})


COLUMNS = {
    "specificity": "Specificity",
    "sensitivity": "Sensitivity",
    "mcc": "MCC",
    "seconds": "Time (s)",
    "edges": "Edges",
}


def plot_tumour_classification(dataset: Dataset) -> Figure:
    """A table for each data set: means, and standard deviations in brackets."""
    config = plots.config(dataset, TumourClassification)
    names = [*config.solvers, GLASSO]
    figure = plots.figure(6.4, len(config.datasets) * (0.5 + 0.24 * len(names)))
    grid = figure.subplots(len(config.datasets), 1, squeeze=False)[:, 0]
    for axes, dataset_name, num_test in zip(grid, config.datasets, config.num_test, strict=True):
        results = dataset.sel(dataset=dataset_name)
        mean, spread = results.mean("split"), results.std("split", ddof=1)

        def cell(name: str, column: str, mean: Dataset = mean, spread: Dataset = spread) -> str:
            value, around = (float(of[column].sel(solver=name)) for of in (mean, spread))
            digits = 0 if column == "edges" else 2
            return f"{value:.{digits}f} ({around:.{digits}f})" if column != "seconds" else f"{value:.2f}"

        axes.axis("off")
        size = f"{int(mean.num_genes[0])} genes, {int(mean.num_train[0])} training and {sum(num_test)} test samples"
        axes.set_title(f"{dataset_name.replace('_', ' ')}: {size}", loc="left")
        table = axes.table(
            [[cell(name, column) for column in COLUMNS] for name in names],
            rowLabels=names,
            colLabels=list(COLUMNS.values()),
            cellLoc="center",
            edges="horizontal",
            bbox=[0.1, 0, 0.9, 1],
        )
        table.auto_set_font_size(False)
        table.set_fontsize(9)
        for place in table.get_celld().values():
            place.set_linewidth(0.5)
    about = f"Means over {config.num_splits} splits, standard deviations in brackets. Time: with the choice of k."
    plots.caption(figure, config.title, f"{config.remark} {about}")
    return figure
