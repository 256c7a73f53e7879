"""Where data sets come from: a folder that the user names, or scikit-learn."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn import datasets
from sklearn.preprocessing import normalize

from experiments.common.config import Failure

VARIABLE = "JAXHT_DATA"
TARGET = "y"


@dataclass(frozen=True)
class Table:
    """A data set."""

    X: Any  # (m, p) features; a CSR matrix where the file holds one
    y: NDArray[Any]  # (m,) target
    names: list[str]  # p names of features
    num_train: int | None = (
        None  # how many rows, the first ones, are the training part; None: the set has none
    )

    def dense(self) -> NDArray[np.float64]:
        """Return X as an array."""
        return self.X.toarray() if sparse.issparse(self.X) else self.X

    def rows(self, chosen: NDArray[np.bool_]) -> "Table":
        """Return the data set of the rows that are chosen, by a mask."""
        train = None if self.num_train is None else int(np.sum(chosen[: self.num_train]))
        return Table(self.X[chosen], self.y[chosen], self.names, train)

    def split(self, share: float, seed: int, *, shuffle: bool = False) -> tuple["Table", "Table"]:
        """Return a training and a test part: those of the data set where it has them, else random
        ones.

        Args:
            share: of the rows, for training, where the data set has no training part of its own.
            seed: of the random choice.
            shuffle: whether to shuffle the rows of a training part of its own.
        """
        rng, m = np.random.default_rng(seed), len(self.y)
        n, order = int(share * m), rng.permutation(m)
        if self.num_train is not None:
            n = self.num_train
            order = np.append(rng.permutation(n) if shuffle else np.arange(n), np.arange(n, m))
        train, test = (
            Table(self.X[part], self.y[part], self.names) for part in (order[:n], order[n:])
        )
        return train, test


def load(
    name: str, data_dir: Path | None, target: str = TARGET, domain: int | None = None
) -> Table:
    """Load a data set by name, and never another one in its place.

    Args:
        name: of a set that ships with scikit-learn (BUNDLED), or is made of another one (DERIVED),
            or of a file ``name.npz`` in the
            folder, with arrays X, y and perhaps feature_names and n_train (or n_main), where X may
            be stored as scipy.sparse.save_npz does; failing that, of a set that scikit-learn has
            downloaded before (FETCHED).
        data_dir: the folder; None: that of the environment variable JAXHT_DATA.
        target: the array of a file that is y; another than y is looked for in files alone.
        domain: only rows of this domain are kept, where the file's array domain has it; None: all
            rows.

    Raises:
        Failure: saying what was looked for, and where.
    """
    plain = target == TARGET and domain is None
    if name in BUNDLED and plain:
        return BUNDLED[name]()
    if name in DERIVED and plain:
        source, make = DERIVED[name]
        return make(load(source, data_dir))
    folder = data_dir or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    if folder and (folder / f"{name}.npz").is_file():
        return _read(folder / f"{name}.npz", target, domain)
    looked = (
        f"there is no {folder / name}.npz"
        if folder
        else f"neither --data-dir nor {VARIABLE} is set"
    )
    if name in FETCHED and plain:
        try:
            return FETCHED[name]()
        except OSError as error:
            looked += f", and scikit-learn has not downloaded it to {datasets.get_data_home()}"
            raise Failure(f"data set {name!r}: {looked}") from error
    raise Failure(f"data set {name!r}: {looked}")


def _read(file: Path, target: str, domain: int | None) -> Table:
    try:
        with np.load(file) as arrays:
            y = arrays[target].astype(np.float64)
            X = sparse.load_npz(file).tocsr() if "indptr" in arrays else arrays["X"]
            names = arrays["feature_names"].tolist() if "feature_names" in arrays else None
            train = [int(arrays[key]) for key in ("n_train", "n_main") if key in arrays]
            table = Table(X, y, names or [f"x{i + 1}" for i in range(X.shape[1])], *train[:1])
            if domain is not None:
                table = table.rows(arrays["domain"] == domain)
    except (OSError, KeyError, ValueError) as error:
        raise Failure(f"{file}: not an .npz file with arrays X and {target}: {error}") from error
    if not len(table.y):
        raise Failure(f"{file}: no row is of domain {domain}")
    return replace(table, X=table.X.astype(np.float64))


def _diabetes_quadratic() -> Table:
    """Make the model of Efron et al. 2004: 10 variables, 45 products, 9 squares (sex has two
    values), standardised."""

    def standardise(X: NDArray[np.float64]) -> NDArray[np.float64]:
        return normalize(X - X.mean(axis=0), axis=0)

    bunch = datasets.load_diabetes()
    main, names = standardise(bunch.data), list(bunch.feature_names)
    pairs = [(i, j) for i in range(10) for j in range(i, 10) if (i, j) != (1, 1)]
    quadratic = standardise(np.stack([main[:, i] * main[:, j] for i, j in pairs], axis=1))
    labels = [f"{names[i]}²" if i == j else f"{names[i]}·{names[j]}" for i, j in pairs]
    return Table(np.hstack([main, quadratic]), bunch.target.astype(np.float64), names + labels)


def _cal_housing() -> Table:
    """Compute the eight columns of StatLib from scikit-learn's copy, which holds averages over
    households."""
    bunch = datasets.fetch_california_housing(download_if_missing=False)
    income, age, rooms, bedrooms, population, occupants, latitude, longitude = bunch.data.T
    households = np.round(population / occupants)
    X = [longitude, latitude, age, np.round(rooms * households), np.round(bedrooms * households)]
    names = ["longitude", "latitude", "housingMedianAge", "totalRooms"]
    names += ["totalBedrooms", "population", "households", "medianIncome"]
    return Table(np.stack([*X, population, households, income], axis=1), 1e5 * bunch.target, names)


def _digits() -> Table:
    """Load the test part of the UCI optical digits: 1797 images of 8 x 8."""
    bunch = datasets.load_digits()
    return Table(bunch.data, bunch.target.astype(np.float64), list(bunch.feature_names))


BUNDLED: dict[str, Callable[[], Table]] = {
    "diabetes_quadratic": _diabetes_quadratic,
    "digits": _digits,
}
FETCHED: dict[str, Callable[[], Table]] = {"cal_housing": _cal_housing}


def _four_against_nine(mnist: Table) -> Table:
    """Make a set like gisette, which is of these digits: 6000 training and 1000 test images, their
    pixels and products of random pairs of pixels, 5000 features in all.

    The half of gisette's features that are random probes are products here, as well.
    """
    rng = np.random.default_rng(0)
    two = mnist.rows((mnist.y == 4) | (mnist.y == 9))
    train, test = two.split(0.5, 0)
    pixels = [part.dense() / 255.0 for part in (train, test)]
    X = np.concatenate([pixels[0][:6000], pixels[1][:1000]])
    y = np.concatenate([train.y[:6000], test.y[:1000]])
    used = np.flatnonzero(X[:6000].std(axis=0) > 0)
    first, second = rng.choice(used, (2, NUM_FEATURES - used.size))
    names = [mnist.names[i] for i in used]
    names += [f"{mnist.names[i]}·{mnist.names[j]}" for i, j in zip(first, second, strict=True)]
    products = X[:, first] * X[:, second]
    labels = np.where(y == 4, 1.0, -1.0)
    return Table(np.hstack([X[:, used], products]), labels, names, num_train=6000)


NUM_FEATURES = 5000  # of gisette
# Sets that are made of another one: its name, and how.
DERIVED: dict[str, tuple[str, Callable[[Table], Table]]] = {
    "mnist_4v9": ("mnist", _four_against_nine)
}
