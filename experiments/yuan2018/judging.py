"""Yuan, Li & Zhang 2018: what the judges of several figures share."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from xarray import DataArray, Dataset

from experiments.common import claims
from experiments.common.claims import Finding, Judge, Verdict, shown
from jaxht import Status

# The paper's.
SOLVERS = ("GraHTP", "FGraHTP", "GraSP", "FBS", "FoBa")
GREEDY = ("GraSP", "FBS", "FoBa")
TIMED = "Times are of one core, with other work on the second."


def needs(column: str, names: Sequence[str], each: str = "") -> Callable[[Judge], Judge]:
    """Leave out runs that diverged, and let a judge say that it cannot, where a solver then has no
    results."""

    def decorate(judge: Judge) -> Judge:
        judged = claims.needs(*names, column=column, each=each)(judge)

        @functools.wraps(judge)
        def converged(results: Dataset, config: Any) -> Finding:
            if "status" in results:
                results = results.where(results.status != Status.DIVERGED)
            return judged(results, config)

        return converged

    return decorate


def quartiles(values: DataArray, unit: str = "", scale: float = 1.0) -> str:
    """Write a median with its quartiles."""
    low, middle, high = scale * np.nanquantile(values, (0.25, 0.5, 0.75))
    return f"{middle:.3g}{unit} [{low:.3g}, {high:.3g}]"


def plus_minus(value: float, error: float) -> str:
    return f"{value:.1f} ± {error:.1f}"


def present(values: DataArray, names: Sequence[str]) -> list[str]:
    """Return which of some solvers have results."""
    return [
        name
        for name in names
        if name in values.solver and not values.sel(solver=name).isnull().all()
    ]


def failures(along: str) -> Callable[[Dataset, Any], str]:
    """Say at every p, or on every data set, which methods had runs that failed, of those whose
    result is taken."""

    def answer(results: Dataset, config: Any) -> str:
        failed = results["chosen_failed" if "chosen_failed" in results else "failed"]
        share = 100 * failed.where(results.seconds.notnull()).mean(
            set(failed.dims) - {"solver", along}
        )
        parts = []
        for at in share[along].values:
            of = share.sel({along: at})
            some = (
                f"{name} {of.sel(solver=name):.0f} %" for name in of.solver.values[of.values > 0]
            )
            parts.append(
                f"{f'p = {at}' if along == 'p' else shown(at)}: {', '.join(some) or 'none'}"
            )
        return (
            "Of the runs whose result is taken, those that cycled, failed, or met a limit on steps: "
            f"{'; '.join(parts)}."
        )

    return answer


def wins(values: DataArray, one: str, other: str) -> tuple[int, int]:
    """Return in how many cells a measure of a solver is lower than that of another, and in how many
    higher."""
    a, b = values.sel(solver=one), values.sel(solver=other)
    return int((a < b).sum()), int((a > b).sum())


def mean_error(values: DataArray) -> tuple[float, float]:
    """Return the mean over what is there and its standard error."""
    found = values.values[np.isfinite(values.values)]
    return (
        (float(found.mean()), float(found.std(ddof=1) / found.size**0.5))
        if found.size > 1
        else (np.nan, np.nan)
    )


def fastest(one: str, others: Sequence[str], along: str) -> Judge:
    """Medians over trials or splits of the time of the whole choice, at every p or on every data
    set."""
    over = "trial" if along == "p" else "split"

    @needs("seconds", (one,), along)
    def judge(results: Dataset, config: Any) -> Finding:
        parts, conditions = [], []
        for at in results[along].values:
            rows = results.sel({along: at})
            names = present(rows.seconds, others)
            if not names:
                continue
            texts = (
                f"{name} {quartiles(rows.seconds.sel(solver=name), ' s')}" for name in (one, *names)
            )
            parts.append(f"{f'p = {at}' if along == 'p' else shown(at)}: {', '.join(texts)}")
            own, *rest = (float(rows.seconds.sel(solver=name).median()) for name in (one, *names))
            conditions.append(own < min(rest))
        if not parts:
            return Finding("there are no others", Verdict.CANNOT_BE_JUDGED)
        return Finding.of(f"median [quartiles] over {over}s: {'; '.join(parts)}", *conditions)

    return judge
