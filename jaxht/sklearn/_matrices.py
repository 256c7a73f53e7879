"""Gaussian graphical models with few edges."""

import math
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from sklearn.covariance import EmpiricalCovariance
from sklearn.utils.validation import validate_data

import jaxht
from jaxht.linalg.precision import default_precision, matmul
from jaxht.sklearn._choice import choose, count_of, range_of_k, warn_of_failure
from jaxht.sklearn._data import DTYPES, random_key, split_samples


class SparseGraphicalModel(EmpiricalCovariance):
    """The Gaussian graphical model of k edges: a precision matrix with k pairs of nonzeros off its
    diagonal.

    .. math::
        \\min_W\\; -\\log\\det W + \\langle S, W \\rangle, \\qquad |\\{ i < j : W_{ij} \\ne 0 \\}| \\le k

    Args:
        k: number of edges: an int; a fraction in (0, 1] of the p (p - 1) / 2 pairs; or how it is
            chosen: "cv", by the mean likelihood of held-out samples; "aic", "bic", or "ebic", which
            adds ``2 k log p`` to the latter (Foygel & Drton 2010, gamma = 1/2).
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

    def __init__(
        self,
        k: Any = "ebic",
        *,
        k_max: int | None = None,
        assume_centered: bool = False,
        standardize: bool = True,
        solver: Any = None,
        cv: Any = None,
        store_precision: bool = True,
        random_state: Any = None,
    ) -> None:
        super().__init__(store_precision=store_precision, assume_centered=assume_centered)
        self.k = k
        self.k_max = k_max
        self.standardize = standardize
        self.solver = solver
        self.cv = cv
        self.random_state = random_state

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
        self.location_ = np.zeros(p, X.dtype) if self.assume_centered else X.mean(axis=0)
        centred = X - self.location_
        scale = np.sqrt(np.mean(centred**2, axis=0)) if self.standardize else np.ones(p, X.dtype)
        scale = np.where(scale > 0, scale, 1).astype(X.dtype)
        is_cv = isinstance(self.k, str) and self.k == "cv"
        folds = (
            split_samples(self.cv, X, None, np.ones(n, X.dtype), classifier=False)
            if is_cv
            else None
        )
        with default_precision(X.dtype == np.float64):
            self._solve(centred / scale, scale, folds)
        return self

    def _solve(self, Z: NDArray[Any], scale: NDArray[Any], folds: Any) -> None:
        """Find k and the precision matrix of the scaled samples, and set the attributes."""
        (n, p), key = (
            Z.shape,
            random_key(self.random_state, self.solver is not None and self.solver.needs_key),
        )
        most = p * (p - 1) // 2
        objective = jaxht.GaussianPrecision(covariance(Z, np.ones(n, Z.dtype), 0 * scale)).prepare()
        k = count_of(self.k, 0, most, "n_features (n_features - 1) / 2", CRITERIA)
        self.path_: Any = None
        if k is not None:
            result = jaxht.solve(objective, jaxht.Edges(k), self.solver, key=key)
        else:
            ks = range_of_k(min(most, 2 * p) if self.k_max is None else self.k_max, 0, most, n)

            def criterion(objective: Any, W: Any) -> Any:
                edges = jnp.sum(jnp.triu(W, 1) != 0, dtype=W.dtype)
                prices = {"aic": 2.0, "bic": math.log(n), "ebic": math.log(n) + 2 * math.log(p)}
                return n * objective.value(W, objective.predict(W)) + prices[self.k] * edges

            def split(fold: Any) -> tuple[Any, Any]:
                train, held_out = fold
                mean = 0 * scale if self.assume_centered else matmul(train, Z) / jnp.sum(train)
                S, T = (covariance(Z, part, mean) for part in (train, held_out))
                return jaxht.GaussianPrecision(S), jaxht.GaussianPrecision(T)

            chosen = choose(
                *(objective, jaxht.Edges(ks[0]), self.solver, ks),
                criterion=None if folds is not None else criterion,
                split=split,
                folds=folds,
                key=key,
            )
            k, result = ks[chosen.place], chosen.result
            self.path_ = chosen.report(
                ks, precisions=np.asarray(chosen.path.x) / np.outer(scale, scale)
            )
        warn_of_failure(self, result)
        self.k_, self.n_iter_ = k, int(result.num_steps)
        precision = np.asarray(result.x) / np.outer(scale, scale)
        self.support_ = (precision != 0) & ~np.eye(p, dtype=bool)
        self.covariance_ = np.linalg.inv(precision)
        self.precision_ = precision if self.store_precision else None


def covariance(Z: Any, weights: Any, mean: Any) -> Any:
    """``sum_i s_i (z_i - mean)(z_i - mean)' / sum_i s_i``, exactly symmetric."""
    centred = Z - mean
    S = matmul(centred.T, weights[:, None] * centred) / jnp.sum(weights)
    return (S + S.T) / 2


CRITERIA = ("cv", "aic", "bic", "ebic")
