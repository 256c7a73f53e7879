"""The estimator of times to an event."""

from dataclasses import field
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from sklearn.utils.validation import validate_data

import jaxht
from jaxht.inference import Stability
from jaxht.sklearn._data import (
    DTYPES,
    FORMATS,
    NumpyArray,
    Samples,
    check_weights,
    multiply,
    read_labels,
)
from jaxht.sklearn._estimator import keep_attributes
from jaxht.sklearn._linear import L0Model, LinearFit


class L0CoxRegressor(RegressorMixin, L0Model):
    """Proportional hazards regression of times to an event (Cox 1972), on the best k features.

    The hazard of a sample is ``h_0(t) exp(a.x)``: a feature with a positive coefficient shortens
    lives. The partial likelihood needs no model of h_0, and there is no intercept. With ``strata``
    in :meth:`fit`, each stratum has an h_0 of its own. Folds of k="cv" that are held out have risk
    sets among themselves.

    y is one of: a structured array of scikit-survival, of one field of bools, whether the event was
    seen, and one of times, in either order; an array (n, 2) of columns time and event, the latter 1
    or 0; (n,) times, all of events. Only the order of the times matters to the fit.

    Args:
        {arguments}

    Attributes:
        coef_: (d,), coefficients of X: the logarithms of hazard ratios.
        intercept_: a number, minus the linear predictor at the mean features, so that
            :meth:`predict` compares with the mean features.
        unique_times_: (m,), the times of the data in order, of events and of censoring.
        cum_baseline_hazard_: (m,), the cumulative hazard at the mean features until each of these,
            by the estimator of Breslow, or of Efron where ties are his; (c, m) of c strata.
        strata_: (c,), the labels of the strata in order; None without strata.
        {attributes}

    {cost}

    Example:
        >>> import jaxht, numpy as np
        >>> from jaxht.sklearn import L0CoxRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(150, 6))
        >>> time, end = rng.exponential(np.exp(-X[:, 4])), rng.exponential(2.0, size=150)
        >>> y = np.stack([np.minimum(time, end), time <= end], axis=1)
        >>> model = L0CoxRegressor(k=1, solver=jaxht.OMP()).fit(X, y)
        >>> np.flatnonzero(model.support_).tolist(), model.predict_survival_function(X[:2], times=[0.5, 1.0]).shape
        ([4], (2, 2))
    """

    ties: str = "breslow"
    fit_intercept: bool = field(default=True, init=False)
    certify: bool = field(default=False, init=False)

    @property
    def _num_ones(self) -> int:
        """h_0 is the intercept."""
        return 0

    def _validate(self, X: Any, y: Any) -> tuple[Any, Any]:
        """X, and times and events."""
        options = {"y": None} if y is None else {}  # which is an error
        X = validate_data(self, X, accept_sparse=FORMATS, dtype=DTYPES, **options)
        return X, read_times(y, X)

    def _encode(self, y: Any, weights: NumpyArray) -> tuple[NumpyArray, NumpyArray]:
        """The ranks of the times beside the events: they are exact in every precision, in which
        times may tie."""
        time, event = y
        if not np.any(event & (weights > 0)):
            raise ValueError(
                "y must have an event, of a sample of weight above 0; all times are censored"
            )
        self.unique_times_, ranks = np.unique(time, return_inverse=True)
        return np.stack([ranks, event], axis=1).astype(weights.dtype), weights

    def _objective(self, design: Any, target: Any, **options: Any) -> Any:
        strata = target[:, 2].astype(np.int32) if target.shape[1] > 2 else None
        return jaxht.Cox(design, target[:, :2], ties=self.ties, strata=strata, **options)

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None, strata: Any = None
    ) -> Self:
        """Fit the model, and choose k where it names a criterion.

        Args:
            X: (n, d), an array, a data frame, or a scipy.sparse matrix of any format, which is not
                made dense.
            y: times and events, as above.
            sample_weight: (n,) weights of at least 0, which count how often a sample occurs; with
                ``ties="efron"`` repeated events tie, and weighted ones do not (see
                :class:`jaxht.Cox`). None for ones.
            offset: (n,), a known part of the logarithms of hazard ratios; None for zeros.
            strata: (n,) labels of any kind: the stratum of each sample; None for one of all.

        Returns:
            The estimator.

        Raises:
            ValueError: for arguments and data that cannot be right.
        """
        return self._fit(self._read_strata(X, y, sample_weight, offset, strata), y)

    def stability_selection(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        offset: Any = None,
        strata: Any = None,
        *,
        num_pairs: int = 50,
        sample_groups: Any = None,
        random_state: Any = None,
    ) -> Stability:
        """:meth:`L0Model.stability_selection`, with the strata of :meth:`fit`."""
        with keep_attributes(self):
            samples = self._read_strata(X, y, sample_weight, offset, strata)
            return self._select_stably(samples, num_pairs, sample_groups, random_state)

    def _read_strata(self, X: Any, y: Any, sample_weight: Any, offset: Any, strata: Any) -> Samples:
        """The samples, with the number of the stratum as a third column of the targets."""
        samples = self._read(X, y, sample_weight, offset)
        self.strata_: Any = None
        if strata is None:
            return samples
        labels = read_labels("strata", strata, samples.X)
        self.strata_, numbers = np.unique(labels, return_inverse=True)
        return samples._replace(target=np.column_stack([samples.target, numbers]))

    def _set_solution(self, problem: LinearFit, x: NumpyArray) -> None:
        super()._set_solution(problem, x)
        model = problem.objective
        log_ratios = multiply(model.design, x).astype(float)
        if model.offset is not None:
            log_ratios += model.offset
        rank, event = np.asarray(model.y).T
        rank = rank.astype(int)
        num_times = len(self.unique_times_)
        if model.strata is None:
            strata = np.zeros_like(rank)
            shape = (1, num_times)
        else:
            strata = np.asarray(model.strata)
            shape = (len(self.strata_), num_times)
        weights = np.asarray(model.weights, float)
        place = strata * num_times + rank
        log_steps = hazard_steps(log_ratios, place, event == 1, weights, shape, self.ties)
        self._log_baseline_hazard = np.logaddexp.accumulate(log_steps, axis=1)
        with np.errstate(over="ignore"):
            hazard = np.exp(self._log_baseline_hazard).astype(x.dtype)
        self.cum_baseline_hazard_ = hazard[0] if model.strata is None else hazard

    # ---- predictions ----

    def predict(self, X: Any, offset: Any = None) -> NumpyArray:
        """Predict the logarithms of hazard ratios.

        Args:
            X: (n, d), as of ``fit``.
            offset: as of ``fit``, for these samples; None for zeros.

        Returns:
            (n,), ``X coef_ + intercept_ + offset``: above 0 where the hazard is above that of the
            mean features. scikit-survival leaves the intercept out, which changes neither their
            order nor their differences.
        """
        return self._predict_linear(X, offset)

    def predict_cumulative_hazard_function(
        self, X: Any, times: Any = None, offset: Any = None, strata: Any = None
    ) -> NumpyArray:
        """Predict cumulative hazards.

        The result is one array of the values of scikit-survival's step functions: the value at a
        time is that at the last of ``unique_times_`` that is not later. Beyond the last of these
        times the value stays constant, where the functions of scikit-survival raise an error.

        Args:
            X: (n, d), as of ``fit``.
            times: (m,) times; None: ``unique_times_``.
            offset: as of ``fit``, for these samples; None for zeros.
            strata: (n,) labels that ``fit`` has seen, where it was given strata.

        Returns:
            (n, m), increasing along the times; 0 before the first event.

        Raises:
            ValueError: for strata that ``fit`` has not seen, or are missing.
        """
        log_ratios = self.predict(X, offset)
        numbers = self._number_strata(strata, log_ratios)
        if times is None:
            times = self.unique_times_
        times = check_array(times, ensure_2d=False, input_name="times")
        log_hazards = np.insert(self._log_baseline_hazard, 0, -np.inf, axis=1)
        until = np.searchsorted(self.unique_times_, times, side="right")
        with np.errstate(over="ignore"):
            hazards = np.exp(log_ratios[:, None] + log_hazards[:, until][numbers])
        return hazards.astype(log_ratios.dtype)

    def predict_survival_function(
        self, X: Any, times: Any = None, offset: Any = None, strata: Any = None
    ) -> NumpyArray:
        """Predict probabilities to survive.

        Args:
            X: (n, d), as of ``fit``.
            times: (m,) times; None: ``unique_times_``.
            offset: as of ``fit``, for these samples; None for zeros.
            strata: as of :meth:`predict_cumulative_hazard_function`.

        Returns:
            (n, m), ``exp(-H)``, H as of :meth:`predict_cumulative_hazard_function`, an array as
            well.
        """
        return np.exp(-self.predict_cumulative_hazard_function(X, times, offset, strata))

    def _number_strata(self, strata: Any, risk: NumpyArray) -> NumpyArray:
        """The numbers in ``strata_`` of labels (n,)."""
        if self.strata_ is None:
            if strata is not None:
                raise ValueError("strata must be None, as the model was fitted without strata")
            return np.zeros(len(risk), int)
        if strata is None:
            raise ValueError("strata must be given, as the model was fitted with strata")
        labels = read_labels("strata", strata, risk)
        is_unknown = ~np.isin(labels, self.strata_)
        if np.any(is_unknown):
            raise ValueError(
                f"strata must be labels that fit has seen; got {labels[is_unknown].tolist()[0]!r}"
            )
        return np.searchsorted(self.strata_, labels)

    def score(
        self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None, strata: Any = None
    ) -> float:
        """The concordance index (Harrell, Lee & Mark 1996).

        Args:
            X: (n, d), as of ``fit``.
            y: times and events, as of ``fit``.
            sample_weight: (n,); None for ones. A pair counts as often as the product of its
                weights.
            offset: as of ``fit``, for these samples; None for zeros.
            strata: (n,) labels of any kind: only pairs of the same stratum count; None: all.

        Returns:
            Among the pairs in which it is known which sample had the event first, the share in
            which that sample has the larger prediction; equal predictions count half. A sample that
            is censored at the time of another's event is known to have its event later.

        Raises:
            ValueError: where there is no such pair.
        """
        risk = self.predict(X, offset)
        time, event = read_times(y, risk)
        weights = check_weights(sample_weight, risk)
        labels = np.zeros(len(risk)) if strata is None else read_labels("strata", strata, risk)
        return concordance(time, event, risk, weights, labels)


def read_times(y: Any, X: Any) -> tuple[NumpyArray, NumpyArray]:
    """Times (n,) and events (n,) of what users pass as y."""
    names = getattr(getattr(y, "dtype", None), "names", None)
    if names:
        bools = [name for name in names if y.dtype[name].kind == "b"]
        rest = [name for name in names if y.dtype[name].kind in "iuf"]
        if (len(bools), len(rest)) != (1, 1) or y.ndim != 1:
            raise ValueError(
                f"y must have one field of bools, the events, and one of times; got {y.dtype}"
            )
        time, event = y[rest[0]], y[bools[0]]
        if np.any(time < 0):
            raise ValueError(f"y must have times of at least 0; got {np.min(time)}")
    else:
        y = check_array(y, ensure_2d=False, dtype=None, input_name="y")
        if y.dtype.kind not in "iuf":
            y = y.astype(np.float64)
        if y.ndim == 2 and y.shape[1] == 2:
            time, event = y.T
            if not np.all(np.isin(event, (0, 1))):
                raise ValueError(
                    f"y[:, 1] must be 1 where the time is that of an event, 0 where it is censored; got {event[:5]}"
                )
        else:
            time = column_or_1d(y, warn=True)
            event = np.ones(len(time))
    time = check_array(time, ensure_2d=False, input_name="y")
    check_consistent_length(X, time)
    return time, event.astype(bool)


def hazard_steps(
    log_ratios: NumpyArray,
    place: NumpyArray,
    event: NumpyArray,
    weights: NumpyArray,
    shape: tuple[int, int],
    ties: str,
) -> NumpyArray:
    """The logarithms of the steps of the cumulative hazard at times of strata (c, m); ``place``
    (n,) are numbers of these.

    Of logarithms no sum over- or underflows: where times are ordered perfectly, ratios differ by
    any factor.
    """
    size = shape[0] * shape[1]
    is_event = event & (weights > 0)
    with np.errstate(divide="ignore", invalid="ignore"):  # of what has no weight
        log_terms = np.log(weights) + log_ratios
        log_leaving = np.full(size, -np.inf)
        np.logaddexp.at(log_leaving, place, log_terms)
        log_leaving = log_leaving.reshape(shape)[:, ::-1]
        log_at_risk = np.logaddexp.accumulate(log_leaving, axis=1)[:, ::-1].ravel()
        events = np.bincount(place, weights * is_event, size)
        log_steps = np.where(events > 0, np.log(events) - log_at_risk, -np.inf)
        if ties == "efron":
            num_tied = np.bincount(place[is_event], minlength=size)
            log_tied = np.full(size, -np.inf)
            np.logaddexp.at(log_tied, place[is_event], log_terms[is_event])
            share = np.where(num_tied > 0, np.exp(log_tied - log_at_risk), 0)
            tied = np.sort(place[is_event])
            before = np.arange(tied.size) - np.searchsorted(tied, tied)
            at_risk = 1 - before / num_tied[tied] * np.minimum(share[tied], 1)
            factors = np.bincount(tied, 1 / at_risk, size) / np.maximum(num_tied, 1)
            log_steps = log_steps + np.where(num_tied > 0, np.log(factors), 0)
    return log_steps.reshape(shape)


def concordance(
    time: NumpyArray,
    event: NumpyArray,
    risk: NumpyArray,
    weights: NumpyArray,
    strata: NumpyArray,
) -> float:
    """The weighted share of comparable pairs in which the sample of the earlier event has the
    larger risk."""
    concordant = comparable = 0.0
    for i in np.flatnonzero(event & (weights > 0)):
        later = (time > time[i]) | ((time == time[i]) & ~event)
        later &= strata == strata[i]
        own = weights[i] * weights[later]
        comparable += np.sum(own)
        is_lower = risk[later] < risk[i]
        is_equal = risk[later] == risk[i]
        concordant += np.sum(own * (is_lower + 0.5 * is_equal))
    if comparable == 0:
        raise ValueError("y must have two samples of which it is known who had the event first")
    return float(concordant / comparable)
