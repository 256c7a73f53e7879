"""Zhou, Yuan & Feng 2018: how the results here are judged by what the paper says of its figures."""

import functools
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
from xarray import Dataset

from experiments.common.claims import Finding, Judge, Verdict, same, shown
from experiments.zhou2018.gap_against_cost import NAMES, last, projections_needed

Curves = dict[str, list[Dataset]]  # of every data set the runs of all solvers, by seed
OURS, OTHERS = ("HSG-HT", "AHSG-HT"), ("FG-HT", "SG-HT", "SVRG-HT")
MUCH = 2.0  # much fewer, significantly lower: at most half
SIMILAR = 10.0  # comparable numbers of thresholdings: of the same order of magnitude
UNUSED = {"growth": 1.0, "momentum": 0.0}  # of solvers without them
CHECKS = (0.2, 0.5, 1.0)  # where curves are compared, in units of the budget


def runs(
    judge: Callable[[Curves, float], Finding],
    passes: Callable[[Any], float] = lambda config: max(config.passes),
) -> Judge:
    """Judge the runs of a budget seed by seed; a claim cannot be judged where all runs of a solver
    diverged."""

    @functools.wraps(judge)
    def judged(results: Dataset, config: Any) -> Finding:
        budget = passes(config)
        curves = {}
        for name in results.dataset.values:
            of = results.sel(dataset=name, passes=budget)
            of = of.assign(value=of.value.where(of.value.notnull() | of.ifo.isnull(), np.inf))
            lost = [
                s
                for s in NAMES
                if s not in of.solver or not np.isfinite(last(of).value.sel(solver=s)).any()
            ]
            if lost:
                return Finding(
                    f"{shown(name)}: no run of {', '.join(lost)}", Verdict.CANNOT_BE_JUDGED
                )
            curves[str(name)] = [of.isel(seed=seed) for seed in range(of.sizes["seed"])]
        return judge(curves, budget)

    return judged


def spread(values: Sequence[float], form: str = ".2g") -> str:
    """Write a median and, where they are not the same, the least and the most."""
    low, middle, high = (
        format(value, form) for value in (min(values), float(np.median(values)), max(values))
    )
    return middle if low == high else f"{middle} [{low}, {high}]"


def gaps(curves: Dataset, at: float = np.inf) -> dict[str, float]:
    """Return of every solver ``f - f*`` at the last point that cost no more IFO."""
    ends = last(curves.where(curves.ifo <= at)).value - curves.f_star
    return {name: float(ends.sel(solver=name)) for name in NAMES}


def listed_gaps(seeds: list[Dataset], names: Sequence[str] = NAMES) -> str:
    found = [gaps(of) for of in seeds]
    return ", ".join(f"{name} {spread([gap[name] for gap in found])}" for name in names)


Count = tuple[
    float, bool
]  # thresholdings until a run is as low as a level; if it never is, all it spent, and False


def thresholdings(curves: Dataset, name: str, level: float) -> Count:
    """Return how many a run takes until it is as low as a level."""
    count = float(projections_needed(curves, level).sel(solver=name))
    return (
        (count, True)
        if np.isfinite(count)
        else (float(last(curves).projections.sel(solver=name)), False)
    )


def listed(found: list[dict[str, Count]]) -> str:
    """Write the thresholdings of each solver; "n of m" where not all seeds came as low."""
    parts = []
    for name in found[0]:
        reached = sum(counts[name][1] for counts in found)
        sign = (
            ""
            if reached == len(found)
            else "> "
            if not reached
            else f"({reached} of {len(found)} seeds) "
        )
        parts.append(f"{name} {sign}{spread([counts[name][0] for counts in found], ',.0f')}")
    return ", ".join(parts)


def one_pass(curves: Curves, budget: float) -> Finding:
    """The gaps at the end of a pass, against the lowest of the others: at most half of it is
    significantly lower."""
    parts, conditions = [], []
    for dataset, seeds in curves.items():
        parts.append(f"{shown(dataset)}: {listed_gaps(seeds)}")
        for of in seeds:
            gap = gaps(of)
            least = min(gap[name] for name in OTHERS)
            conditions += [gap[name] * MUCH < least for name in OURS]
    return Finding.of(f"$f - f^*$ at the end of a pass: {'; '.join(parts)}", *conditions)


def sharper(curves: Curves, budget: float) -> Finding:
    """At three points of the budget, whether HSG-HT and AHSG-HT are below all others."""
    parts, conditions = [], []
    for dataset, seeds in curves.items():
        lower: dict[str, list[bool]] = {name: [] for name in OURS}
        for of, check, name in product(seeds, CHECKS, OURS):
            gap = gaps(of, check * budget * float(of.n))
            lower[name].append(gap[name] < min(gap[other] for other in OTHERS))
        conditions += lower["HSG-HT"] + lower["AHSG-HT"]
        counts = ", ".join(f"{name} {sum(below)} of {len(below)}" for name, below in lower.items())
        parts.append(f"{shown(dataset)}: {counts} (at the end {listed_gaps(seeds)})")
    at = ", ".join(f"{check * budget:g}" for check in CHECKS)
    return Finding.of(
        f"below all others after {at} passes, over seeds: {'; '.join(parts)}",
        *conditions,
    )


def against_stochastic(of: Dataset) -> dict[str, Count]:
    """Thresholdings of the stochastic solvers until they are as low as HSG-HT and AHSG-HT both
    end."""
    level = max(float(last(of).value.sel(solver=name)) for name in OURS)
    return {name: thresholdings(of, name, level) for name in (*OURS, *OTHERS[1:])}


def against_full(of: Dataset) -> dict[str, Count]:
    """Thresholdings until a run is as low as FG-HT ends."""
    level = float(last(of).value.sel(solver="FG-HT"))
    return {name: thresholdings(of, name, level) for name in NAMES}


def only(found: list[dict[str, Count]], *names: str) -> list[dict[str, Count]]:
    return [{name: counts[name] for name in names} for counts in found]


def fewer_than_stochastic(curves: Curves, budget: float) -> Finding:
    """HSG-HT, AHSG-HT and FG-HT against SG-HT and SVRG-HT, each at the accuracy at which it
    ends."""
    parts, conditions = [], []
    for dataset, seeds in curves.items():
        found, full = [against_stochastic(of) for of in seeds], [against_full(of) for of in seeds]
        for one, other in product((*OURS, "FG-HT"), OTHERS[1:]):
            conditions += [
                MUCH * of[one][0] <= of[other][0] for of in (full if one == "FG-HT" else found)
            ]
        parts.append(
            f"{shown(dataset)}: {listed(found)}; as low as FG-HT ends: {listed(only(full, *OTHERS))}"
        )
    return Finding.of(
        f"until as low as HSG-HT and AHSG-HT both end: {'. '.join(parts)}", *conditions
    )


def like_full(curves: Curves, budget: float) -> Finding:
    """HSG-HT and AHSG-HT against FG-HT, at the accuracy at which that ends."""
    parts, conditions = [], []
    for dataset, seeds in curves.items():
        found = only([against_full(of) for of in seeds], "FG-HT", *OURS)
        parts.append(f"{shown(dataset)}: {listed(found)}")
        conditions += [
            of[name][1] and of[name][0] <= SIMILAR * of["FG-HT"][0] for of in found for name in OURS
        ]
    return Finding.of(f"until as low as FG-HT ends: {'; '.join(parts)}", *conditions)


def fewest(curves: Curves, budget: float) -> Finding:
    """HSG-HT and AHSG-HT against all others: FG-HT at the accuracy at which that ends."""
    parts, conditions = [], []
    for dataset, seeds in curves.items():
        found = [against_stochastic(of) for of in seeds]
        full = only([against_full(of) for of in seeds], "FG-HT", *OURS)
        conditions += [
            of[one][0] <= of[other][0] for of in found for one in OURS for other in OTHERS[1:]
        ]
        conditions += [of[name][1] and of[name][0] < of["FG-HT"][0] for of in full for name in OURS]
        parts.append(f"{shown(dataset)}: {listed(found)}; as low as FG-HT ends: {listed(full)}")
    return Finding.of(
        f"until as low as HSG-HT and AHSG-HT both end: {'. '.join(parts)}", *conditions
    )


def accelerated(curves: Curves, budget: float) -> Finding:
    """Thresholdings of AHSG-HT until it is as low as HSG-HT ends, and the gaps at the end."""
    parts, conditions = [], []
    for dataset, seeds in curves.items():
        levels = [float(last(of).value.sel(solver="HSG-HT")) for of in seeds]
        both = zip(seeds, levels, strict=True)
        found = [{name: thresholdings(of, name, level) for name in OURS} for of, level in both]
        parts.append(
            f"{shown(dataset)}: {listed(found)} (gaps at the end {listed_gaps(seeds, OURS)})"
        )
        conditions += [of["AHSG-HT"][1] and of["AHSG-HT"][0] < of["HSG-HT"][0] for of in found]
    return Finding.of(f"until as low as HSG-HT ends: {'; '.join(parts)}", *conditions)


def decreases(curves: Curves, budget: float) -> Finding:
    """Whether HSG-HT leaves at most a tenth of the gap that there was at the start."""
    parts, conditions = [], []
    for dataset, seeds in curves.items():
        start = [float((of.value.isel(point=0) - of.f_star).sel(solver="HSG-HT")) for of in seeds]
        left = [gaps(of)["HSG-HT"] / first for of, first in zip(seeds, start, strict=True)]
        updates = float(last(seeds[0]).projections.sel(solver="HSG-HT"))
        parts.append(
            f"{shown(dataset)}: {updates:,.0f} updates leave {spread([100 * of for of in left])} % of the gap"
        )
        conditions += [of <= 0.1 for of in left]
    return Finding.of("; ".join(parts), *conditions)


def batches_stay_small(curves: Curves, budget: float) -> Finding:
    """The last batches of each run, from its IFO and updates, which are those of all seeds."""
    parts, conditions = [], []
    for dataset, (of, *_) in curves.items():
        own = of.sel(solver=list(OURS))
        updates = own.projections.diff("point")
        batches = (own.ifo.diff("point") / updates).where(updates > 0)
        most = batches.max("point")
        parts.append(
            f"{shown(dataset)}: {', '.join(f'{n} {float(most.sel(solver=n)):,.0f}' for n in OURS)} of {int(of.n):,}"
        )
        conditions += (most < float(of.n)).values.tolist()
    return Finding.of(f"samples in the last batch: {'; '.join(parts)}", *conditions)


GRIDS = {"factor": ("η", "factors"), "growth": ("growth", "growth"), "momentum": ("ν", "momentum")}


def settings_at_an_end(results: Dataset, config: Any) -> str:
    """Which of the settings chosen for the largest budget are the least or the most of their
    grid: the best may lie beyond."""
    chosen = results.sel(passes=max(config.passes))
    parts = []
    for name, solver in product(results.dataset.values, NAMES):
        of = chosen.sel(dataset=name, solver=solver)
        for key, (sign, grid) in GRIDS.items():
            numbers = getattr(config, grid)
            value = float(of[key])
            is_chosen = key == "factor" or value != UNUSED[key]
            ends = [end for end in (min(numbers), max(numbers)) if same(value, end)]
            if is_chosen and len(numbers) > 1 and ends:
                unit = "/L" if key == "factor" else ""
                parts.append(f"{shown(str(name))}: {solver} {sign} = {ends[0]:g}{unit}")
    return f"{'; '.join(parts)}." if parts else "None."


def long_run(results: Dataset, config: Any) -> str:
    """Whether FG-HT did after the refit, on every data set; a closed form needs none."""
    if config.model == "regression":
        return "There is none: $f^*$ is known in closed form."
    ended = {True: "yes", False: "no"}
    parts = (
        f"{shown(str(name))}: {ended[bool(results.converged.sel(dataset=name))]}"
        for name in results.dataset.values
    )
    return f"{'; '.join(parts)}."
