"""Gaussian graphical models with few edges."""

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.covariance import EmpiricalCovariance
from sklearn.utils.validation import validate_data

import jaxht
from jaxht._programs import bounded_jit
from jaxht.linalg.full_precision import default_precision
from jaxht.sklearn._data import DTYPES, NumpyArray, check_units, split_samples
from jaxht.sklearn._estimator import FitProblem, Items, SparseEstimator


@dataclass(frozen=True, kw_only=True)
class GraphFit(FitProblem):
    """The problem of a graphical model.

    Attributes:
        units: (p, p), by which solutions are divided.
    """

    units: NumpyArray


class SparseGraphicalModel(SparseEstimator, EmpiricalCovariance):
    """The Gaussian graphical model of k edges: a precision matrix with k pairs of nonzeros off its
    diagonal.

    .. math::
        \\min_W\\; -\\log\\det W + \\langle S, W \\rangle, \\qquad |\\{ i < j : W_{ij} \\ne 0 \\}| \\le k

    Args:
        k: number of edges: an int; a fraction in (0, 1] of the p (p - 1) / 2 pairs; or how it is
            chosen: "cv", by the mean likelihood of held-out samples; "aic", "bic", or "ebic", which
            adds ``2 k log p`` to the latter (Foygel & Drton 2010, gamma = 1/2); or a function of a
            :class:`Candidate`, which is least for the best.
        k_max: the largest k from which one is chosen, an int; None: 2 p, or all pairs.
        assume_centered: whether the mean is known to be 0.
        standardize: whether variables are scaled to variance 1 for the fit, since edges are
            selected by the size of entries; ``precision_`` is for X as it is.
        solver: a solver of jaxht, such as ``jaxht.GraSP()``; None: that of
            :func:`jaxht.default_solver`.
        cv: the folds of k="cv": an int, a splitter of scikit-learn, or an iterable of pairs of
            indices; None: 5.
        store_precision: whether ``precision_`` is kept; as of scikit-learn.
        random_state: an int or a RandomState, for solvers that draw random numbers.

    Attributes:
        location_: (p,), the mean.
        covariance_: (p, p), the inverse of the precision matrix.
        precision_: (p, p), exactly sparse.
        support_: bool (p, p), its edges, both ways.
        k_: the number of edges that was asked for or chosen.
        path_: where it was chosen, a Bunch of m sparsities: ``k`` (m,), ``criteria`` (m,),
            ``losses`` (m,), the objective, ``precisions`` (m, p, p), ``fold_losses`` (folds, m) of
            "cv"; else None.
        n_iter_: steps of the solver.
        n_features_in_: p.
        feature_names_in_: (p,), where X is a data frame.

    Cost: a run of the solver, p^3 a step. Where k is chosen, a path over all k, and of "cv" one for
    each fold.

    Example:
        >>> import numpy as np
        >>> from jaxht.sklearn import SparseGraphicalModel
        >>> chain = 2 * np.eye(5) - 0.9 * (np.eye(5, k=1) + np.eye(5, k=-1))
        >>> X = np.random.default_rng(0).multivariate_normal(np.zeros(5), np.linalg.inv(chain), size=300)
        >>> model = SparseGraphicalModel(k="bic").fit(X)
        >>> model.k_, bool(np.array_equal(model.precision_ != 0, chain != 0))
        (4, True)
    """

    assume_centered: bool = False
    store_precision: bool = True

    _criteria = ("cv", "aic", "bic", "ebic")
    _most_name = "n_features (n_features - 1) / 2"

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the model, and choose k where it names a criterion.

        Args:
            X: (n, p), an array or a data frame. float32 is computed in float32, all else in
            float64.
            y: not used.

        Returns:
            The estimator.

        Raises:
            ValueError: for arguments and data that cannot be right.
        """
        X = validate_data(self, X, dtype=DTYPES, ensure_min_samples=2, ensure_min_features=2)
        n, p = X.shape
        # NumPy adds rows up in the dtype of the array, one after the other.
        self.location_ = X.mean(axis=0, dtype=float).astype(X.dtype)
        if self.assume_centered:
            self.location_ = np.zeros(p, X.dtype)
        Z = X - self.location_
        largest = np.max(np.abs(Z), axis=0)
        unit = np.where(largest > 0, largest, 1)  # of which no square over- or underflows
        deviation = unit * np.sqrt(np.mean((Z / unit) ** 2, axis=0, dtype=float)).astype(X.dtype)
        # What is left of a constant column is rounding.
        rounding = n**0.5 * np.finfo(X.dtype).eps * np.abs(self.location_)
        constant = np.flatnonzero(deviation <= rounding)
        if constant.size:
            raise ValueError(
                "X must have no constant columns, whose precision is infinite; columns "
                f"{constant[:5].tolist()} are"
            )
        scale = deviation if self.standardize else np.ones(p, X.dtype)
        Z /= scale
        whole = np.ones(n, X.dtype)
        folds = None
        if self._is_cross_validated():
            train, held_out = split_samples(self.cv, X, None, whole, classifier=False)
            folds = self._find_folds(Z, train, held_out)
        with default_precision(X.dtype == np.float64):
            S = covariance(Z, whole, np.zeros_like(scale))
            problem = GraphFit(
                objective=prepare(S),
                items=Items(0, p * (p - 1) // 2, p * (p - 1) // 2),
                num_samples=n,
                folds=folds,
                units=np.outer(scale.astype(float), scale),
            )
            precision = self._solve(problem)
        precision = _in_units_of_X(precision, problem.units)
        self.support_ = (precision != 0) & ~np.eye(p, dtype=bool)
        self.covariance_ = np.linalg.inv(precision)
        self.precision_ = precision if self.store_precision else None
        return self

    def _find_folds(self, Z: NumpyArray, train: NumpyArray, held_out: NumpyArray) -> Any:
        """The covariances of the training samples, and of those held out."""
        means = train @ Z / np.sum(train, axis=1, keepdims=True)
        if self.assume_centered:
            means = np.zeros_like(means)
        return tuple(
            np.stack([covariance(Z, *fold) for fold in zip(weights, means, strict=True)])
            for weights in (train, held_out)
        )

    def _constraint(self, problem: GraphFit, k: int) -> Any:
        return jaxht.Edges(k)

    def _default_k_max(self, problem: GraphFit) -> int:
        return 2 * problem.objective.shape[0]

    def _compute_criteria(self, problem: GraphFit, path: Any) -> NumpyArray:
        deviances, edges, n = self._measure(problem, path)
        log_n = math.log(n)
        log_p = math.log(problem.objective.shape[0])
        prices = {"aic": 2.0, "bic": log_n, "ebic": log_n + 2 * log_p}
        criteria = deviances + prices[self.k] * edges
        return criteria.astype(path.value.dtype)

    def _measure(self, problem: GraphFit, path: Any) -> tuple[NumpyArray, NumpyArray, float]:
        """The edges are the parameters: the diagonal is free for every k."""
        n = problem.num_samples
        edges = np.count_nonzero(np.triu(path.x, 1), axis=(1, 2))
        return n * path.value, edges, n

    def _split(self, problem: GraphFit, fold: Any) -> tuple[Any, Any]:
        train, held_out = fold
        return jaxht.GaussianPrecision(train), jaxht.GaussianPrecision(held_out)

    def _describe_path(self, problem: GraphFit, x: NumpyArray) -> dict[str, Any]:
        with np.errstate(over="ignore", under="ignore"):  # what was chosen is in its range
            return {"precisions": (x / problem.units).astype(x.dtype)}


def _in_units_of_X(precision: NumpyArray, units: NumpyArray) -> NumpyArray:
    """A precision matrix of standardised columns in the units of X."""
    dtype = precision.dtype
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        found = (precision / units).astype(dtype)
    underflows = (np.abs(found) < np.finfo(dtype).tiny) & (precision != 0)
    check_units("precisions", np.isinf(found), underflows, dtype)
    return found


@bounded_jit
def prepare(S: Any) -> jaxht.GaussianPrecision:
    """The objective of a covariance matrix, prepared by one program; the run checks it."""
    return jaxht.GaussianPrecision(S).prepare()


def covariance(Z: NumpyArray, weights: NumpyArray, mean: NumpyArray) -> NumpyArray:
    """``sum_i s_i (z_i - mean)(z_i - mean)' / sum_i s_i``, exactly symmetric."""
    centred = Z - mean
    S = centred.T @ (weights[:, None] * centred) / np.sum(weights)
    return (S + S.T) / 2
