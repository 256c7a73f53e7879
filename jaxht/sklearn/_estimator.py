"""The base of all estimators: k, how it is chosen where it is not given, and the solver's run."""

import contextlib
import functools
import math
import numbers
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, dataclass_transform

import jax
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Bunch

import jaxht
from jaxht._kept_programs import advise_to_keep
from jaxht.constraints import Constraint
from jaxht.objectives.objective import Objective
from jaxht.sklearn._data import NumpyArray, random_key
from jaxht.sklearn._docstrings import complete_docstring
from jaxht.solvers.solver import Solver
from jaxht.subproblems import subproblem

# What a product of a fraction and a number of items may be below an integer by rounding.
FRACTION_ROUNDING = 1e-9
CRITERIA = ("cv", "aic", "bic", "ebic", "gic", "sic")


class Candidate(NamedTuple):
    """A solution of a path, as a function that is given as ``k`` sees it; numbers.

    The estimator takes the k for which the function is least: ``k=lambda c: c.deviance + 2 *
    c.size`` is "aic". A value that is NaN is never the least.

    Attributes:
        k: how many features, groups, coefficients, ranks or edges may be selected.
        size: how many parameters are free: the coefficients that are not 0, without the intercept;
            of c classes (c - 1) / c of them; of rank r ``r (d + c - r)``.
        loss: the objective, the mean of the losses and the ridge.
        deviance: -2 log L, at the dispersion that fits best and up to a number that is the same for
            all; NaN where the loss is not the logarithm of a likelihood.
        n: the sum of the weights of the samples; of survival times of the events.
        d: of how many items k are selected.

    Example:
        >>> from jaxht.sklearn import Candidate
        >>> aic = lambda candidate: candidate.deviance + 2 * candidate.size
        >>> aic(Candidate(k=1, size=1, loss=0.5, deviance=3.0, n=10, d=4))
        5.0
    """

    k: int
    size: float
    loss: float
    deviance: float
    n: float
    d: int


@dataclass(frozen=True)
class Items:
    """What k counts: features, groups of them, coefficients, ranks or edges.

    Attributes:
        least: the smallest k.
        most: the largest k, the number of items, or of those that may be selected together.
        number: the number of items.
        of_coefficients: integers shaped like the coefficients of X: the item of each; None for
            ranks and edges.
        always: bool, of that shape: the coefficients that are always in the support.
    """

    least: int
    most: int
    number: int
    of_coefficients: Any = None
    always: Any = None


@dataclass(frozen=True, kw_only=True)
class FitProblem:
    """What an estimator minimises, for every k.

    Attributes:
        objective: the jaxht objective of all samples.
        items: what k counts.
        num_samples: the sum of the weights.
        folds: a pytree of arrays with the folds along their first axes; None unless k="cv".
    """

    objective: Any
    items: Items
    num_samples: float
    folds: Any


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
class DataclassEstimator(BaseEstimator):
    """Base of estimators whose arguments are the fields of a dataclass."""

    def __init_subclass__(cls, **options: Any) -> None:
        dataclass(eq=False, repr=False, kw_only=True)(cls)
        complete_docstring(cls)
        super().__init_subclass__(**options)


class SparseEstimator(DataclassEstimator):
    """Base of all estimators.

    A subclass has :meth:`_constraint`, :meth:`_compute_criteria`, :meth:`_measure`,
    :meth:`_split` and :meth:`_describe_path`.
    """

    k: Any = field(default="ebic", kw_only=False)
    k_max: int | None = None
    standardize: bool = True
    solver: Any = None
    cv: Any = None
    random_state: Any = None

    _criteria: ClassVar[tuple[str, ...]] = CRITERIA
    _most_name = "n_features"  # the largest k, in error messages

    def _constraint(self, problem: Any, k: int) -> Any:
        """The constraint of k items."""
        raise NotImplementedError

    def _compute_criteria(self, problem: Any, path: Any) -> NumpyArray:
        """The information criterion that k names, (m,), of a path of m results."""
        raise NotImplementedError

    def _measure(self, problem: Any, path: Any) -> tuple[NumpyArray, NumpyArray, float]:
        """The deviances (m,) and numbers of free parameters (m,) of a path of m results, and the
        sample size."""
        raise NotImplementedError

    def _split(self, problem: Any, fold: Any) -> tuple[Any, Any]:
        """The objectives of the training samples of a fold, and of those held out."""
        raise NotImplementedError

    def _describe_path(self, problem: Any, x: NumpyArray) -> dict[str, Any]:
        """What ``path_`` has of the solutions (m, ...), in the units of X."""
        raise NotImplementedError

    def _default_k_max(self, problem: Any) -> int:
        """The largest k of a path where ``k_max`` is None: ``min(n / log n, 50)``."""
        n = problem.num_samples
        if n <= math.e:
            return 1
        return min(50, int(n / math.log(n)))

    @advise_to_keep()
    def _solve(self, problem: Any) -> NumpyArray:
        """Find k and the solution, set ``k_``, ``path_`` and ``n_iter_``, and warn of a failure."""
        needs_key = self.solver is not None and self.solver.needs_key
        key = random_key(self.random_state, needs_key)
        k = self._read_k(problem.items)
        self.path_: Any = None
        if k is None:
            k, result = self._choose(problem, key)
        else:
            constraint = self._constraint(problem, k)
            result = jaxht.solve(problem.objective, constraint, self.solver, key=key)
        status = jaxht.Status(int(result.status))
        if status.failed:
            message = f"{type(self).__name__}: {status.name}. {status.sentence}"
            warnings.warn(message, ConvergenceWarning, stacklevel=3)
        self.k_ = k
        self.n_iter_ = int(result.num_steps)
        return np.asarray(result.x)

    def _choose(self, problem: Any, key: Any) -> tuple[int, Any]:
        """The k of the least criterion along a path, and its result.

        Without a solver the path is that of :func:`path_solver`, where its runs are nested one both
        ways, and the default solver begins at its solution.
        """
        objective = problem.objective
        ks = self._read_k_max(problem)
        constraint = self._constraint(problem, ks[0])
        sizes = [constraint.k + k - ks[0] for k in ks]  # which count the intercept
        solver = self.solver
        if solver is None:
            solver = path_solver(objective, constraint)
        is_refined = self.solver is None and solver.nested
        path = jaxht.path(objective, constraint, solver, ks=sizes, key=key, both_ways=is_refined)
        path = jax.tree.map(np.asarray, path)
        fold_losses = None
        if callable(self.k):
            criteria = self._ask_function(problem, ks, path)
        elif problem.folds is None:
            criteria = self._compute_criteria(problem, path)
        else:
            split = functools.partial(self._split, problem)
            held_out = jaxht.cross_validate(
                split, problem.folds, constraint, solver, ks=sizes, key=key
            )
            fold_losses = np.asarray(held_out.losses)
            criteria = np.mean(fold_losses, axis=0)
        criteria = np.where(np.isnan(criteria), np.inf, criteria)
        criteria[self._count_comparable(problem, path) :] = np.inf
        if np.all(criteria == np.inf):
            raise ValueError(
                f"k = {self.k!r} chooses none: no criterion of k from {ks[0]} to {ks[-1]} is a number"
            )
        best = int(np.argmin(criteria))
        self.path_ = Bunch(
            k=np.array(ks),
            losses=path.value,
            criteria=criteria,
            fold_losses=fold_losses,
            **self._describe_path(problem, path.x),
        )
        result = jax.tree.map(lambda leaf: leaf[best], path)
        if is_refined:
            constraint = self._constraint(problem, ks[best])
            result = jaxht.solve(objective, constraint, x0=result.x, key=key)
        return ks[best], result

    def _ask_function(self, problem: Any, ks: range, path: Any) -> NumpyArray:
        """The values of the function k, (m,), of a path of m results."""
        deviances, sizes, n = self._measure(problem, path)
        values = []
        for k, size, loss, deviance in zip(ks, sizes, path.value, deviances, strict=True):
            candidate = Candidate(
                k=k,
                size=float(size),
                loss=float(loss),
                deviance=float(deviance),
                n=n,
                d=problem.items.number,
            )
            value = self.k(candidate)
            if value is None or np.ndim(value) or not np.isreal(value):
                raise ValueError(
                    f"k must return a number, the least for the k to choose; got {value!r} for "
                    f"{candidate}"
                )
            values.append(float(value))
        return np.array(values)

    def _count_comparable(self, problem: Any, path: Any) -> int:
        """How many results of a path may be compared: beyond there are only rounding errors."""
        return len(path.value)

    def _read_k(self, items: Items, criteria: tuple[str, ...] | None = None) -> int | None:
        """The number of items that k asks for; None where it names one of the criteria, or is a
        function."""
        k = self.k
        criteria = self._criteria if criteria is None else criteria
        is_criterion = callable(k) or (isinstance(k, str) and k in criteria)
        if criteria and is_criterion:
            return None
        is_number = isinstance(k, numbers.Real) and not isinstance(k, bool | np.bool_)
        if is_number and isinstance(k, numbers.Integral):
            number = int(k)
        elif is_number and 0 < k <= 1:
            # 0.29 * 100 is below 29.
            number = max(1, items.least, math.floor(k * items.most + FRACTION_ROUNDING))
        else:
            functions = ["a function"] if criteria else []
            known = " or ".join(["a fraction in (0, 1]", *map(repr, criteria), *functions])
            raise ValueError(f"k must be an int, or {known}; got {k!r}")
        if not items.least <= number <= items.most:
            name = self._most_name if items.most == items.number else "what per_group allows"
            raise ValueError(f"k must lie between {items.least} and {name} = {items.most}; got {k}")
        return number

    def _read_k_max(self, problem: Any) -> range:
        """The sparsities of a path, from the least to k_max."""
        least, most = problem.items.least, problem.items.most
        k_max = self.k_max
        if k_max is None:
            k_max = max(least, min(most, self._default_k_max(problem)))
        elif not isinstance(k_max, int | np.integer) or not least <= k_max <= most:
            raise ValueError(f"k_max must be an int from {least} to {most}; got {k_max!r}")
        return range(least, int(k_max) + 1)

    def _is_cross_validated(self) -> bool:
        return isinstance(self.k, str) and self.k == "cv"


@contextlib.contextmanager
def keep_attributes(model: BaseEstimator) -> Iterator[None]:
    """Leave the attributes of a model as they are, after data have been read that it is not fitted
    to."""
    fitted = dict(vars(model))
    try:
        yield
    finally:
        vars(model).clear()
        vars(model).update(fitted)


def path_solver(objective: Objective, constraint: Constraint) -> Solver:
    """The solver of a path where none is given: forward selection, of least squares orthogonal."""
    if not constraint.selects_items or constraint.is_graph:
        return jaxht.default_solver(objective, constraint)
    problem = subproblem(objective, constraint.prepare(objective.shape))
    return jaxht.OLS() if problem.has_gains else jaxht.OMP()
