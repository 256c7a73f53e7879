"""The choice of k: by an information criterion, or by cross-validation, along a path of
solutions."""

import dataclasses
import math
import numbers
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Bunch

import jaxht
from jaxht.constraints import Constraint
from jaxht.objectives.objective import Objective
from jaxht.solvers.solver import Solver
from jaxht.subproblems import subproblem

CRITERIA = ("cv", "aic", "bic", "ebic", "gic", "sic")


class Choice(NamedTuple):
    """The chosen one of m sparsities.

    Attributes:
        place: of the chosen one, among the m.
        criteria: (m,), of which it has the least.
        fold_losses: (folds, m), of cross-validation; else None.
        path: a :class:`jaxht.Result` with an axis of length m.
        result: the :class:`jaxht.Result` for the chosen one.
    """

    place: int
    criteria: NDArray[Any]
    fold_losses: NDArray[Any] | None
    path: Any
    result: Any

    def report(self, ks: Sequence[int], **solutions: Any) -> Bunch:
        """What users see of a path: the attribute ``path_``."""
        return Bunch(
            k=np.array(ks),
            losses=np.asarray(self.path.value),
            criteria=self.criteria,
            fold_losses=self.fold_losses,
            **solutions,
        )


def choose(
    objective: Objective,
    constraint: Constraint,
    solver: Solver | None,
    ks: Sequence[int],
    *,
    criterion: Callable[[Any, Any], Any] | None,
    split: Callable[[Any], tuple[Any, Any]],
    folds: Any,
    key: Any,
) -> Choice:
    """The sparsity of the least criterion, or where that is None of the least mean loss on the
    folds held out.

    Without a solver the path is that of :func:`path_solver`, where its runs are nested one both
    ways, and the default solver begins at its solution.
    """
    own = path_solver(objective, constraint) if solver is None else solver
    options: Any = {"key": key, "both_ways": solver is None and own.nested}
    if criterion is not None:
        found = jaxht.criteria.choose_k(
            objective, constraint, own, ks=ks, criterion=criterion, **options
        )
        criteria, fold_losses, k, results = (
            np.asarray(found.criteria),
            None,
            int(found.k),
            found.results,
        )
    else:
        held = jaxht.cross_validate(split, folds, constraint, own, ks=ks, key=key)
        fold_losses, k = np.asarray(held.losses), int(held.k)
        criteria = np.mean(fold_losses, axis=0)
        results = jaxht.path(objective, constraint, own, ks=ks, **options)
    place = list(ks).index(k)
    result = jax.tree.map(lambda leaf: np.asarray(leaf)[place], results)
    if solver is None and own.nested:
        best: Any = dataclasses.replace(constraint, k=k)  # type: ignore[type-var]
        result = jaxht.solve(objective, best, x0=result.x, key=key)
    return Choice(place, criteria, fold_losses, results, result)


def path_solver(objective: Objective, constraint: Constraint) -> Solver:
    """The solver of a path in k where none is given: forward selection, for least squares
    orthogonal."""
    if not constraint.selects_items or constraint.is_graph:
        return jaxht.default_solver(objective, constraint)
    problem = subproblem(objective, constraint.prepare(objective.shape))
    return jaxht.OLS() if problem.has_gains else jaxht.OMP()


def range_of_k(k_max: Any, least: int, most: int, num_samples: float) -> range:
    """The sparsities of a path, from the least to k_max.

    Args:
        k_max: the largest, an int; None: ``min(most, n / log n, 50)``, and at least 1.
        least: the smallest k that there may be.
        most: the largest.
        num_samples: n, the sum of the weights.
    """
    if k_max is None:
        several = num_samples / math.log(num_samples) if num_samples > math.e else 1.0
        k_max = max(least, min(most, 50, max(1, int(several))))
    elif not isinstance(k_max, int | np.integer) or not least <= k_max <= most:
        raise ValueError(f"k_max must be an int from {least} to {most}; got {k_max!r}")
    return range(least, int(k_max) + 1)


def count_of(
    k: Any, least: int, most: int, called: str, criteria: tuple[str, ...] = CRITERIA
) -> int | None:
    """The number that an argument k asks for; None where it names a criterion.

    Args:
        k: an int, a fraction in (0, 1], or the name of a criterion.
        least: the smallest k that there may be.
        most: the largest, of which k may be a fraction.
        called: what an error message calls it.
        criteria: those that may be named.
    """
    known = " or ".join(["a fraction in (0, 1]", *map(repr, criteria)])
    if isinstance(k, str) and k in criteria:
        return None
    is_number = isinstance(k, numbers.Real) and not isinstance(k, bool | np.bool_)
    if is_number and isinstance(k, numbers.Integral):
        count = int(k)
    elif is_number and 0 < k <= 1:
        count = max(1, least, int(k * most))
    else:
        raise ValueError(f"k must be an int, or {known}; got {k!r}")
    if not least <= count <= most:
        raise ValueError(f"k must lie between {least} and {called} = {most}; got {k}")
    return count


def warn_of_failure(estimator: Any, result: Any) -> None:
    """Warn as scikit-learn does where a run has not ended well."""
    status = jaxht.Status(int(result.status))
    if status.failed:
        warnings.warn(
            f"{type(estimator).__name__}: {status.name}. {status.sentence}",
            ConvergenceWarning,
            stacklevel=4,
        )
