"""Yuan et al. 2020: what the paper says of its figures, and how the results here are judged by
it."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from xarray import DataArray, Dataset

from experiments.common.claims import (
    Claim,
    Finding,
    Judge,
    Paper,
    Question,
    Section,
    Verdict,
    needs,
)
from experiments.yuan2020.gaps import FLOOR
from experiments.yuan2020.time_to_accuracy import DUAL, final, target, time_to_target
from jaxht import Status

SAME = 3.0  # medians that differ by at most this factor, half a decade, are the same
PRIMAL = ("IHT", "HTP", "SVRG-HT")
SHARES = (0.99, 0.9999)  # of the decrease of P, which times are compared at
Times = Callable[
    [Dataset, Any], DataArray
]  # results, configuration -> seconds, (row, ..., solver); infinite: never

# ---- Figures 1 to 3: duality gaps ----


def gaps(results: Dataset) -> Dataset:
    """``gap`` as in the paper: the minimum of P where it is known, else P at the end of DIHT, minus
    D; and what is 0.

    Of several kinds of w* that of the first.

    Results are kept in single precision: a gap is 0 below FLOOR times P, as the figures draw it.
    """
    if "signal" in results.dims:
        results = results.isel(signal=0)
    upper = results.minimum.where(results.minimum.notnull(), results.value)
    zero = upper - results.dual <= FLOOR * upper
    gap = (upper - results.dual).where(~zero, 0).where(upper.notnull() & results.dual.notnull())
    return Dataset({"gap": gap, "zero": zero.where(gap.notnull()), "upper": upper})


def steps(gap: DataArray, along: str, sign: int) -> tuple[int, int, int]:
    """Count the steps along a dimension where the mean over trials moves by sign, against it by 2
    s.e., and all.

    The trials of two cells are the same draws: errors are those of the mean difference. Steps
    between zeros agree.
    """
    moves = sign * gap.diff(along)
    mean, error = moves.mean("trial"), moves.std("trial", ddof=1) / np.sqrt(moves.count("trial"))
    known = mean.notnull()
    return int((mean >= 0).sum()), int((mean < -2 * error).sum()), int(known.sum())


def monotone(along: str, direction: Literal["falls", "rises"]) -> Judge:
    """Whether every curve falls, or rises."""

    def judge(results: Dataset, config: Any) -> Finding:
        sign = 1 if direction == "rises" else -1
        agree, against, total = steps(gaps(results).gap, along, sign)
        if not total:
            return Finding("no gap is known", Verdict.CANNOT_BE_JUDGED)
        text = f"the mean gap {direction} at {agree} of {total} steps, goes the other way by more than two standard "
        text += f"errors at {against}"
        return Finding(text, Verdict.of(not against, 2 * agree > total))

    return judge


def closes(results: Dataset, config: Any) -> Finding:
    """The share of problems without a gap, by penalty: the least over the curves."""
    share = gaps(results).zero.mean("trial")
    share = share.min([dim for dim in share.dims if dim != "l0"])
    text = "share of problems without a gap (below 1e-6 of P), the least of the curves: "
    text += ", ".join(f"{100 * float(share.sel(l0=l0)):.0f} % at {l0:g}" for l0 in share.l0.values)
    last = gaps(results).zero.isel(l0=-1)
    return Finding(text, Verdict.of(bool((last == 1).all()), bool(last.any())))


def which_signals(results: Dataset, config: Any) -> str:
    """The share of problems without a gap, by the kind of w*, at N = d and over all N."""
    rows = []
    for name in results.signal.values:
        share = gaps(results.sel(signal=[name])).zero.mean("trial")
        ends = [
            f"{100 * float(share.sel(l0=l0, ratio=1).squeeze()):.0f} % at {l0:g}"
            for l0 in share.l0.values
        ]
        rows.append(f"{name}: {', '.join(ends)}")
    return (
        f"Problems without a gap (below 1e-6 of P) at N = d, by $\\lambda \\sqrt{{N}}$: {'; '.join(rows)}. The gap is "
        "zero where $\\lambda \\min_i |w_i| \\ge \\max_j |\\nabla_j|$ off the support: the correlations of the "
        "columns of a draw decide more than the values of w*."
    )


def factors(gap: Dataset, over: str) -> DataArray:
    """The largest median gap over the smallest one, of each curve; gaps count as FLOOR times P
    where they are less."""
    middle = np.maximum(gap.gap, FLOOR * gap.upper).median("trial")
    return middle.max(over) / middle.min(over)


def insensitive(over: str, symbol: str, least: float = -np.inf) -> Judge:
    """Whether the medians along a dimension, from ``least`` on, are the same."""

    def judge(results: Dataset, config: Any) -> Finding:
        some = gaps(results).sel({over: results[over][results[over] >= least]})
        factor = factors(some, over)
        if not factor.count() or some.sizes[over] < 2:
            return Finding("no gap is known", Verdict.CANNOT_BE_JUDGED)
        same = int((factor <= SAME).sum())
        text = f"medians along {symbol} differ by a factor of at most {SAME:g} in {same} of {int(factor.count())} "
        low, middle, high = (float(factor.quantile(q)) for q in (0, 0.5, 1))
        text += f"curves; median factor {middle:.2g}, from {low:.2g} to {high:.2g}"
        return Finding(
            text, Verdict.of(same == int(factor.count()), 2 * same > int(factor.count()))
        )

    return judge


def vanishes(results: Dataset, config: Any) -> Finding:
    """At every noise level, the median gap at the largest penalty over that at the smallest."""
    gap = gaps(results)
    middle = np.maximum(gap.gap, FLOOR * gap.upper).median("trial")
    over = middle.isel(l0=-1) / middle.isel(l0=0)
    low, half, high = (float(over.quantile(q)) for q in (0, 0.5, 1))
    text = f"median gap at $\\lambda_0 = {float(middle.l0[-1]):g}$ over that at {float(middle.l0[0]):g}: "
    text += f"{half:.2g}, from {low:.2g} to {high:.2g}; all gaps 0 at the former: "
    closed = gap.zero.isel(l0=-1).mean()
    text += f"{100 * float(closed):.0f} % of the problems"
    return Finding(text, Verdict.of(bool((over < 1).all()), bool((over < 0.1).all())))


# ---- Figure 4: against primal solvers ----


def better(column: str) -> Judge:
    """Whether DIHT is lower than IHT and HTP, beyond two standard errors of the mean difference, in
    most cells."""

    @needs("DIHT", "IHT", "HTP", column=column)
    def judge(results: Dataset, config: Any) -> Finding:
        values = results[column].where(results.status != Status.DIVERGED)
        parts, conditions = [], []
        for other in ("IHT", "HTP"):
            less = values.sel(solver=other) - values.sel(solver="DIHT")
            mean, error = (
                less.mean("trial"),
                less.std("trial", ddof=1) / np.sqrt(less.count("trial")),
            )
            total, lower, higher = (
                int(n.sum()) for n in (mean.notnull(), mean > 2 * error, mean < -2 * error)
            )
            share = (mean / values.sel(solver=other).mean("trial")).values
            low, middle, high = 100 * np.nanquantile(share, [0.25, 0.5, 0.75])
            parts.append(
                f"than {other}: lower at {lower}, higher at {higher} of {total} cells, by {middle:.2g} % "
                f"[{low:.2g}, {high:.2g}] in the median"
            )
            conditions += [2 * lower > total, 2 * higher < total]
        return Finding("; ".join(parts), Verdict.of(*conditions))

    return judge


# ---- Figures 5 to 10: time ----


def row_names(config: Any) -> list[str]:
    return [
        f"{name.split('_')[0]}, k = {k}" for name, k in zip(config.datasets, config.k, strict=True)
    ]


def first(at: DataArray, reached: DataArray) -> DataArray:
    """Return where along the points something is reached first; infinite where it never is."""
    return at.where(reached).min("point").fillna(np.inf)


def time_to_loss(share: float) -> Times:
    """Seconds until P has made a share of the decrease to the least of all solvers, (row, solver),
    at loss_l0."""

    def times(results: Dataset, config: Any) -> DataArray:
        some = results.sel(l0=config.loss_l0)
        lowest = some.value.min(["solver", "point"])
        level = lowest + (1 - share) * (some.value.isel(point=0).max("solver") - lowest)
        return first(some.seconds, some.value <= level).transpose("row", "solver")

    return times


def time_to_error(results: Dataset, config: Any) -> DataArray:
    """Seconds to the test error that all solvers but one end at, (row, l0, solver)."""
    rows = [results.isel(row=row) for row in range(results.sizes["row"])]
    times = [time_to_target(row, target(row)).transpose("l0", "solver").values for row in rows]
    dims = {"row": results.sizes["row"], "l0": results.l0, "solver": results.solver}
    return DataArray(
        np.array(times), coords={name: dims[name] for name in ("l0", "solver")}, dims=list(dims)
    ).fillna(np.inf)


def seconds(times: DataArray) -> str:
    """The time of every solver, the median over all else."""
    each = times.median([dim for dim in times.dims if dim != "solver"]).values
    return ", ".join(
        f"{name} {time:.2g} s" if np.isfinite(time) else f"{name} never"
        for name, time in zip(times.solver.values, each, strict=True)
    )


def dual_before_primal(times: Times) -> Judge:
    """In how many cases each dual solver is faster than all primal ones that ran."""

    @needs("IHT", *DUAL, column="value")
    def judge(results: Dataset, config: Any) -> Finding:
        found = times(results, config)
        primal = found.sel(solver=[name for name in PRIMAL if name in found.solver]).min("solver")
        wins = {name: int((found.sel(solver=name) < primal).sum()) for name in DUAL}
        text = ", ".join(
            f"{name} faster than all primal solvers in {wins[name]} of {primal.size} cases"
            for name in DUAL
        )
        rows = "; ".join(
            f"{name}: {seconds(found.isel(row=row))}" for row, name in enumerate(row_names(config))
        )
        conditions = [wins[name] == primal.size for name in DUAL] + [any(wins.values())]
        return Finding(f"{text}; {rows}", Verdict.of(*conditions))

    return judge


def stochastic_before_batch(times: Times) -> Judge:
    @needs(*DUAL, column="value")
    def judge(results: Dataset, config: Any) -> Finding:
        found = times(results, config)
        batch, stochastic = (found.sel(solver=name) for name in ("DIHT", "SDIHT"))
        wins, known = int((stochastic < batch).sum()), np.isfinite(batch) & np.isfinite(stochastic)
        if not (np.isfinite(batch) | np.isfinite(stochastic)).any():
            return Finding("neither gets there", Verdict.CANNOT_BE_JUDGED)
        text = f"SDIHT faster in {wins} of {batch.size} cases"
        if known.any():
            text += f", by a factor of {float((batch / stochastic).where(known).median()):.2g} in the median"
        return Finding(text, Verdict.of(wins == batch.size, wins > 0))

    return judge


def reached(printed: dict[str, float]) -> Judge:
    """Whether the printed test errors are reached, by data set."""

    def judge(results: Dataset, config: Any) -> Finding:
        lowest = final(results.test_error).min(["solver", "l0"]).values
        levels = [
            next(level for name, level in printed.items() if of.startswith(name))
            for of in config.datasets
        ]
        texts = [
            f"{name}: {error:.3f}" for name, error in zip(row_names(config), lowest, strict=True)
        ]
        text = f"lowest test error at the end of a run: {'; '.join(texts)}"
        return Finding(text, Verdict.of(*(lowest <= np.array(levels)).tolist()))

    return judge


@needs(*DUAL, column="gap")
def fewer_epochs(results: Dataset, config: Any) -> Finding:
    """Epochs to the gap that both reach, the larger of the two lowest, for each row and penalty of
    the figure."""
    some = results.sel(solver=DUAL, l0=config.gap_l0)
    level = some.gap.min("point").max("solver")
    epochs = first(some.passes, some.gap <= level)
    over = epochs.sel(solver="DIHT") / epochs.sel(solver="SDIHT")
    wins, (low, middle, high) = int((over > 1).sum()), over.quantile([0, 0.5, 1]).values
    text = f"SDIHT needs fewer in {wins} of {over.size} cases; DIHT needs {middle:.2g} times as many in the median, "
    text += f"{low:.2g} to {high:.2g}"
    return Finding(text, Verdict.of(wins == over.size, bool(middle > 2)))


def svm(heading: str, config: str, errors: str, printed: dict[str, float], about: str) -> Section:
    """The figures of one loss: all claims are about both."""
    return Section(
        heading,
        config,
        [
            *(
                Claim(
                    f"{text} in minimising P: {100 * share:g} % of the decrease",
                    "",
                    judge(time_to_loss(share)),
                )
                for share in SHARES
                for text, judge in (
                    ("DIHT and SDIHT are faster than the primal solvers", dual_before_primal),
                    ("SDIHT is faster than DIHT", stochastic_before_batch),
                )
            ),
            Claim("the test errors that are asked for are reached", errors, reached(printed)),
            Claim(
                "DIHT and SDIHT are significantly faster than the primal solvers to equal test error",
                "",
                dual_before_primal(time_to_error),
            ),
            Claim(
                "SDIHT is faster than DIHT to equal test error",
                "",
                stochastic_before_batch(time_to_error),
            ),
            Claim(
                "SDIHT needs much fewer epochs than DIHT to comparable duality gaps",
                "",
                fewer_epochs,
            ),
        ],
        about,
    )


ABSOLUTE = (
    "The numbers are absolute gaps, as in the paper, at most 10 times `max_steps` updates of the dual variables; P is "
    "its minimum over all supports at d = 30, and that at the end of DIHT at d = 500."
)
TIMES = (
    "Loss: until a share of the decrease to the least of all solvers is made. Test error: until it stays at that which "
    "all solvers but one end at for every $\\lambda_0$. Every run is timed once, on one core, with other work on "
    "the second: times have no intervals."
)

PAPER = Paper(
    "Yuan, Liu, Wang, Liu & Metaxas, Dual Iterative Hard Thresholding, JMLR 21 (2020)",
    [
        Section("Table 1", None, [Claim("lists the notation", "", "no claim: notation")]),
        Section(
            "Table 2",
            None,
            [
                Claim(
                    "DIHT and SDIHT need neither RIP conditions nor a relaxed sparsity, unlike the primal methods",
                    "",
                    "a comparison of theorems; Figures 3 and 4 are about its consequences",
                ),
                Claim(
                    "the IFO complexity of DIHT is superior to that of GraSP, IHT and GraHTP where the restricted "
                    "condition number is large",
                    "",
                    "a comparison of upper bounds up to constants: no run decides it",
                ),
                Claim(
                    "that of SDIHT is comparable to SVR-GHT and, for small ε, superior to HSG-HT",
                    "",
                    "a comparison of upper bounds up to constants: no run decides it",
                ),
            ],
        ),
        Section(
            "Figure 1",
            "figure1",
            [
                Claim("for each N, the gap decreases as λ increases", "", monotone("l0", "falls")),
                Claim("the gap reaches zero when $\\lambda \\sqrt{N}$ is large enough", "", closes),
                Claim(
                    "the curves are relatively insensitive to N", "", insensitive("ratio", "N/d")
                ),
            ],
            ABSOLUTE,
        ),
        Section(
            "Figure 1, other values of w*",
            "figure1_signals",
            [],
            "Not in the paper, which prints neither the values of w* nor how many draws its curves are of.",
            [
                Question(
                    "For which w* does the gap close at $\\lambda \\sqrt{N} = 20$?", which_signals
                )
            ],
        ),
        Section(
            "Figure 2",
            "figure2",
            [
                Claim("for each λ, the gap increases with σ", "", monotone("sigma", "rises")),
                Claim("for each σ, the gap approaches zero as λ increases", "", vanishes),
            ],
            ABSOLUTE,
        ),
        Section(
            "Figure 3",
            "figure3",
            [
                Claim(
                    "in most cases, the gap is not sensitive to κ", "", insensitive("kappa", "κ")
                ),
                Claim(
                    "especially not in badly conditioned cases",
                    "κ ≥ 50",
                    insensitive("kappa", "κ ≥ 50", 50),
                ),
            ],
            ABSOLUTE,
        ),
        Section(
            "Figure 4",
            "figure4",
            [
                Claim("in most cases, DIHT has a lower P(w) than IHT and HTP", "", better("value")),
                Claim(
                    "in most cases, DIHT has a smaller error $\\Vert w - w^* \\Vert$ than IHT and HTP",
                    "",
                    better("error"),
                ),
            ],
            "Over the problems of a cell, which all solvers share: mean differences beyond two standard errors; in "
            "percent of the mean of the other solver, the median [quartiles] over cells.",
        ),
        svm(
            "Figures 5 to 7",
            "figure5",
            "0.08 (RCV1), 0.24 (News20)",
            {"rcv1": 0.08, "news20": 0.24},
            TIMES,
        ),
        svm(
            "Figures 8 to 10",
            "figure8",
            "0.074 (RCV1), 0.23 (News20)",
            {"rcv1": 0.074, "news20": 0.23},
            TIMES,
        ),
    ],
)
