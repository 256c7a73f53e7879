"""The images that the examples learn from, and their minibatches."""

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
from sklearn import datasets

VARIABLE = "JAXHT_DATA"

Data: TypeAlias = tuple[np.ndarray, ...]  # training images and labels, test images and labels


def load(
    data_dir: Path | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, str]:
    """Load MNIST from a folder that the user names, or the digits that scikit-learn brings along if
    none is named.

    Args:
        data_dir: the folder with ``mnist.npz``: arrays X (images as rows of 0 to 255), y (labels)
            and n_train. None: that of the environment variable JAXHT_DATA, if it is set.

    Returns:
        Training images, training labels, test images, test labels and the name of the set, which is
        also printed. Images are float32 rows in [0, 1], labels int32.

    Raises:
        FileNotFoundError: if a folder is named and MNIST is not in it: no set takes the place of
        another in silence.
    """
    folder = data_dir or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    if folder:
        with np.load(folder / "mnist.npz") as arrays:
            X, y, n_train, most = arrays["X"], arrays["y"], int(arrays["n_train"]), 255
        name, origin = "MNIST", str(folder / "mnist.npz")
    else:
        X, y = datasets.load_digits(return_X_y=True)
        # The set is sorted by writer; the order is drawn once and for all.
        order = np.random.default_rng(0).permutation(len(X))
        X, y, n_train, most = X[order], y[order], 1400, 16
        name, origin = "digits", f"scikit-learn, 8 x 8; for MNIST give --data-dir or set {VARIABLE}"
    X, y = np.asarray(X, np.float32) / most, np.asarray(y, np.int32)
    print(
        f"Data: {name} ({origin}), {n_train} images to train and {len(X) - n_train} to test.",
        flush=True,
    )
    return X[:n_train], y[:n_train], X[n_train:], y[n_train:], name


def minibatches(
    images: np.ndarray, labels: np.ndarray, *, batch_size: int, epochs: int, seed: int = 0
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Go through the images ``epochs`` times, each time in a new order and without the last batch
    if it is not full."""
    rng = np.random.default_rng(seed)
    for _ in range(epochs):
        order = rng.permutation(len(images))
        for i in range(0, len(images) - batch_size + 1, batch_size):
            batch = order[i : i + batch_size]
            yield images[batch], labels[batch]


def to_markdown(lines: Sequence[Sequence[str]]) -> str:
    """A table of cells, of which the first line holds the heads."""
    heads, *rows = lines
    every = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in every)


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The options that all examples have."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument(
        "--data-dir", type=Path, help=f"folder with mnist.npz; else that of {VARIABLE}, else digits"
    )
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=250)
    parser.add_argument("--learning-rate", type=float, default=5e-3)
    return parser
