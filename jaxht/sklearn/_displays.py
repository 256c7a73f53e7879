"""Plots of paths and of selections, as the displays of scikit-learn are used: ``from_estimator``,
``plot``."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted, validate_data

from jaxht.sklearn._data import NumpyArray
from jaxht.sklearn._linear import L0Model


@dataclass(eq=False, repr=False)
class PathDisplay:
    """The coefficients of all k of a path, or the criterion that chose one.

    Args:
        path: ``path_`` of a fitted estimator whose k was chosen.
        k: the chosen one, which is marked; None for none.
        feature_names: (d,) texts; None: x0, x1 ...

    Attributes:
        ax_: the axes, after :meth:`plot`.
        figure_: their figure.
        lines_: the lines: of each feature that is ever selected (and each output), or of the
            criterion.

    Example:
        >>> import numpy as np
        >>> from jaxht.sklearn import L0Regressor, PathDisplay
        >>> X = np.random.default_rng(0).normal(size=(60, 4))
        >>> display = PathDisplay.from_estimator(L0Regressor(k_max=3).fit(X, X[:, 2] - X[:, 0]))
        >>> len(display.plot(kind="criteria").lines_)
        1
    """

    path: Any
    _: KW_ONLY
    k: int | None = None
    feature_names: Any = None

    @classmethod
    def from_estimator(cls, estimator: Any, *, kind: str = "coefficients", ax: Any = None) -> Self:
        """Plot the path of a fitted estimator.

        Args:
            estimator: one whose k was chosen, by "cv" or a criterion.
            kind: as of :meth:`plot`.
            ax: axes of matplotlib; None: new ones.

        Returns:
            The display.

        Raises:
            ValueError: for an estimator that has no path.
        """
        check_is_fitted(estimator)
        if getattr(estimator, "path_", None) is None:
            raise ValueError(
                'estimator must have chosen k along a path: k="cv" or a criterion such as k="ebic"'
            )
        names = getattr(estimator, "feature_names_in_", None)
        return cls.from_path(estimator.path_, k=estimator.k_, feature_names=names, kind=kind, ax=ax)

    @classmethod
    def from_path(
        cls,
        path: Any,
        *,
        k: int | None = None,
        feature_names: Any = None,
        kind: str = "coefficients",
        ax: Any = None,
    ) -> Self:
        """Plot a path.

        Args:
            path: ``path_`` of a fitted estimator.
            k: the chosen one, which is marked; None for none.
            feature_names: (d,) texts; None: x0, x1 ...
            kind: as of :meth:`plot`.
            ax: axes of matplotlib; None: new ones.

        Returns:
            The display.
        """
        return cls(path, k=k, feature_names=feature_names).plot(kind=kind, ax=ax)

    def plot(self, *, kind: str = "coefficients", ax: Any = None) -> Self:
        """Draw.

        Args:
            kind: "coefficients", a line for each feature that is ever selected; or "criteria", of
                "cv" with the standard errors of the mean loss over folds.
            ax: axes of matplotlib; None: new ones.

        Returns:
            The display.

        Raises:
            ValueError: for another kind, and for the coefficients of a graphical model, which are a
            matrix for each k.
        """
        path = self.path
        kinds = [known for known in ("coefficients", "criteria") if known in path]
        if kind not in kinds:
            raise ValueError(f"kind must be {' or '.join(map(repr, kinds))}; got {kind!r}")
        self.ax_ = _axes(ax)
        self.figure_ = self.ax_.figure
        self.lines_: list[Any] = []
        if kind == "coefficients":
            m, *_, d = path.coefficients.shape
            coefficients = path.coefficients.reshape(m, -1, d)
            names = _names(self.feature_names, d)
            is_selected = np.any(coefficients != 0, axis=(0, 1))
            for j in np.flatnonzero(is_selected):
                lines = self.ax_.plot(path.k, coefficients[:, :, j], marker=".", color=f"C{j % 10}")
                lines[0].set_label(names[j])
                self.lines_ += lines
            if self.lines_:
                self.ax_.legend(fontsize="small")
        elif path.fold_losses is None:
            self.lines_ += self.ax_.plot(path.k, path.criteria, marker=".")
        else:
            errors = None
            num_folds = len(path.fold_losses)
            if num_folds > 1:
                errors = np.std(path.fold_losses, axis=0, ddof=1) / np.sqrt(num_folds)
            self.lines_.append(self.ax_.errorbar(path.k, path.criteria, errors, marker=".")[0])
        if self.k is not None:
            self.ax_.axvline(self.k, color="0.7", linestyle="--", zorder=0)
        self.ax_.set(xlabel="k", ylabel="coefficient" if kind == "coefficients" else "criterion")
        return self


@dataclass(eq=False, repr=False)
class SelectionDisplay:
    """How often each feature is selected from random halves of the samples, see
    :mod:`jaxht.inference`.

    Args:
        frequencies: (m,), from 0 to 1, of features or groups.
        feature_names: (m,) texts; None: x0, x1 ...
        expected_false: of those at the threshold or above, a bound on the expected number that are
            false; None.
        threshold: a line is drawn there.

    Attributes:
        ax_: the axes, after :meth:`plot`.
        figure_: their figure.
        bars_: the bars.
        lines_: the line of the threshold.

    Example:
        >>> import jaxht, numpy as np
        >>> from jaxht.sklearn import L0Regressor, SelectionDisplay
        >>> X = np.random.default_rng(0).normal(size=(80, 6))
        >>> model = L0Regressor(k=2, solver=jaxht.OMP())
        >>> display = SelectionDisplay.from_estimator(model, X, X[:, 1] - X[:, 4], num_pairs=20, random_state=0)
        >>> np.flatnonzero(display.frequencies > 0.9).tolist()
        [1, 4]
    """

    frequencies: NumpyArray
    _: KW_ONLY
    feature_names: Any = None
    expected_false: float | None = None
    threshold: float = 0.9

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        sample_weight: Any = None,
        offset: Any = None,
        k: int | None = None,
        num_pairs: int = 50,
        threshold: float = 0.9,
        random_state: Any = None,
        ax: Any = None,
    ) -> Self:
        """Select from random halves of the samples, and plot how often each feature was selected.

        Args:
            estimator: of a linear model, fitted or not. Where it has no solver, forward selection
                is used.
            X: (n, d), as of its ``fit``.
            y: (n,) or (n, c).
            sample_weight: (n,); None for ones.
            offset: as of its ``fit``; None for zeros.
            k: how many items are selected from each half, an int; None: ``k_`` of a fitted
                estimator, else its k.
            num_pairs: in how many ways the samples are divided.
            threshold: of the frequencies that are trusted, above 1/2.
            random_state: an int or a RandomState, for the halves.
            ax: axes of matplotlib; None: new ones.

        Returns:
            The display.

        Raises:
            ValueError: for an estimator that selects no features, and where k is not known.
        """
        if not isinstance(estimator, L0Model):
            raise ValueError(
                f"estimator must be one of jaxht.sklearn that selects features; got {estimator!r}"
            )
        k = getattr(estimator, "k_", estimator.k) if k is None else k
        model = clone(estimator).set_params(k=k)
        found = model.stability_selection(
            X, y, sample_weight, offset, num_pairs=num_pairs, random_state=random_state
        )
        validate_data(model, X, skip_check_array=True)  # the names
        has_features = model.groups is None or model.per_group is not None
        own = has_features and len(found.frequencies) == model.n_features_in_
        names = getattr(model, "feature_names_in_", None) if own else None
        expected_false = float(found.expected_false(threshold))
        return cls(
            found.frequencies,
            feature_names=names,
            expected_false=expected_false,
            threshold=threshold,
        ).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> Self:
        """Draw.

        Args:
            ax: axes of matplotlib; None: new ones.

        Returns:
            The display.
        """
        self.ax_ = _axes(ax)
        self.figure_ = self.ax_.figure
        names = _names(self.feature_names, len(self.frequencies))
        self.bars_ = self.ax_.bar(range(len(names)), self.frequencies)
        bound = ""
        if self.expected_false is not None:
            bound = f"at most {self.expected_false:.2g} false on average"
        self.lines_ = [self.ax_.axhline(self.threshold, color="0.5", linestyle="--", label=bound)]
        if bound:
            self.ax_.legend(fontsize="small")
        if len(names) <= 40:
            self.ax_.set_xticks(range(len(names)), names, rotation=90)
        self.ax_.set(ylabel="selection frequency", ylim=(0, 1.05))
        return self


def _axes(ax: Any) -> Any:
    """These axes, or new ones."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        needed = f"displays need {error.name}, which the extra jax-hard-thresholding[experiments] installs"
        raise ImportError(needed) from error

    return plt.subplots()[1]


def _names(names: Any, size: int) -> list[str]:
    """Names of features, as scikit-learn gives them where there are none."""
    return [f"x{j}" for j in range(size)] if names is None else list(names)
