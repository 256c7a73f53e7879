"""Shen & Li 2018: what the paper says of its figures, and how the results here are judged by it."""

from typing import Any

import numpy as np
from xarray import Dataset

from experiments.common.claims import Claim, Finding, Paper, Section, Verdict, percent, rate_at
from experiments.shen2018.lines import INTERCEPTS, SLOPE, line_of, with_intervals
from jaxht import sweep

HALF = 0.5


def fewer_measurements(rates: Dataset, config: Any) -> Finding:
    """PGD against IHT: where half of the signals are recovered, for each K where both cross."""
    crossings = sweep.transition(rates.sel(solver=["IHT-1", "PGD"]), (HALF,)).sel(level=HALF)
    iht, pgd = (crossings.sel(solver=name) for name in ("IHT-1", "PGD"))
    both = np.isfinite(iht.estimate) & np.isfinite(pgd.estimate)
    fewer, more = (both & (pgd.upper < iht.lower)).values, (both & (pgd.lower > iht.upper)).values
    saved = (1 - pgd.estimate / iht.estimate).where(both)
    text = f"fewer at {fewer.sum()} of {int(both.sum())} sparsities, more at {more.sum()}, the others within intervals"
    if fewer.any():
        text += f"; saved: {100 * float(saved.min()):.0f} to {100 * float(saved.max()):.0f} %"
    return Finding(text, Verdict.of(fewer.any(), not more.any()))


def eighty_percent(rates: Dataset, config: Any) -> Finding:
    rate = rate_at(rates, {"solver": "HT-SVRG", "K": 16, "n": 175})
    return Finding(percent(*rate), Verdict.between(*rate[1:], 0.8))


def reliable(rates: Dataset, config: Any) -> Finding:
    some = rates.sel(solver="HT-SVRG", n=232).where(rates.K <= 22, drop=True)
    least = some.isel(K=int(some.rate.argmin("K")))
    text = f"least at K = {int(least.K)}: {percent(float(least.rate), float(least.lower), float(least.upper))}"
    return Finding(text, Verdict.between(float(some.lower.min()), float(some.upper.min()), 0.95))


def line(level: float) -> Claim:
    """The printed line of a level, for HT-SVRG."""

    def judge(rates: Dataset, config: Any) -> Finding:
        lines = sweep.fit_line(rates.sel(solver="HT-SVRG"), (0.9, level))
        line, lower = lines.sel(level=level), lines.sel(level=0.9)
        if line.num_points < 2:
            text = "too few signals to bound the n of two sparsities from above"
            text += (
                f"; at 90 %: ${with_intervals(lower, config.d)}$" if lower.num_points > 1 else ""
            )
            return Finding(text, Verdict.CANNOT_BE_JUDGED)
        slope = [float(line[f"slope{end}"]) / np.log(config.d) for end in ("_lower", "_upper")]
        start = [float(line[f"intercept{end}"]) for end in ("_lower", "_upper")]
        within = slope[0] <= SLOPE <= slope[1], start[0] <= INTERCEPTS[level] <= start[1]
        return Finding(f"${with_intervals(line, config.d)}$", Verdict.of(*within))

    printed = f"${line_of(SLOPE, INTERCEPTS[level], 256)}$"
    return Claim(
        f"the n at which HT-SVRG recovers {level:.0%} of the signals is nearly linear in K",
        printed,
        judge,
    )


def reached_by(solver: str) -> Claim:
    """Whether a solver reaches the line of 95 % at some K."""

    def judge(rates: Dataset, config: Any) -> Finding:
        crossing = sweep.transition(rates.sel(solver=solver), (0.95,)).sel(level=0.95)
        line = SLOPE * crossing.K * np.log(config.d) + INTERCEPTS[0.95]
        closed = np.isfinite(crossing.estimate)
        reached, missed = (closed & (crossing.lower <= line)), (closed & (crossing.lower > line))
        names = ", ".join(str(int(K)) for K in crossing.K.values[reached.values])
        excess = (crossing.estimate - line).where(closed)
        text = f"at K = {names}" if names else "at no K"
        text += f"; its n minus the line's: {float(excess.min()):.0f} to {float(excess.max()):.0f}"
        own = sweep.fit_line(rates.sel(solver=solver), (0.95,)).sel(level=0.95)
        text += f"; its own line: ${with_intervals(own, config.d)}$" if own.num_points > 1 else ""
        return Finding(text, Verdict.of(bool(reached.any()), not missed.any()))

    return Claim(
        f"{solver} recovers 95 % of the signals on the printed line", "on top of HT-SVRG's", judge
    )


def settings(results: Dataset, name: str) -> list[tuple[float, float, float, float]]:
    """Of the settings in which a parameter is varied: its value, the share recovered, that
    diverged, and the end."""
    rows = results.isel(setting=np.flatnonzero(results.varied == name))
    last = (rows.objective.notnull() * np.arange(rows.sizes["stage"])).argmax("stage")
    ends = rows.objective.isel(stage=last)
    columns = (rows[name], rows.success, rows.diverged, ends)
    return sorted(zip(*(np.asarray(column, float).tolist() for column in columns), strict=True))


def shares(settings: list[tuple[float, float, float, float]], symbol: str) -> str:
    return ", ".join(f"{symbol} = {value:g}: {success:.0%}" for value, success, *_ in settings)


def sparsity(results: Dataset, config: Any) -> Finding:
    rows = settings(results, "k")
    too_small, enough = rows[0], rows[-1]
    text = f"signals recovered: {shares(rows, 'k')}"
    return Finding(text, Verdict.of(too_small[1] <= 0.95, enough[1] > 0.95))


def updates(results: Dataset, config: Any) -> Finding:
    rows = settings(results, "m")
    ends = [end for *_, end in rows]
    text = "objective at the last stage: " + ", ".join(
        f"m = {row[0]:g}: {row[-1]:.1e}" for row in rows
    )
    slow = bool(ends[0] >= max(ends[1:]))
    return Finding(text, Verdict.of(slow, rows[0][1] > 0.95))


def large_steps(results: Dataset, config: Any) -> Finding:
    rows = settings(results, "eta")
    diverged = [value for value, _, share, _ in rows if share > HALF]
    converged = [value for value, success, *_ in rows if success > 0.95]
    text = f"diverge (float32 overflows): η = {', '.join(f'{v:g}' for v in diverged) or 'none'}; more than 95 % "
    text += f"recovered: η = {', '.join(f'{v:g}' for v in converged) or 'none'}"
    return Finding(
        text, Verdict.of(all(v in diverged for v, *_ in rows if v > 3), 0.3 in converged)
    )


def tiny_steps(results: Dataset, config: Any) -> Finding:
    """Runs that have recovered nothing yet may still descend."""

    def large(results: Dataset) -> list[tuple[float, float, float, float]]:
        return [row for row in settings(results, "m") if row[0] >= 600]

    rows, half = large(results), large(results.isel(stage=slice(results.sizes["stage"] // 2 + 1)))
    parts = [last[-1] / middle[-1] for last, middle in zip(rows, half, strict=True)]
    text = f"signals recovered: {shares(rows, 'm')}; the second half of the stages divides the objective by "
    text += ", ".join(f"{1 / part:.1f}" for part in parts)
    return Finding(text, Verdict.of(all(success > 0.95 for _, success, *_ in rows), max(parts) < 1))


def few_stages(results: Dataset, config: Any) -> Finding:
    """The share of the whole decrease that 20 stages make, the least over pairs and sparsities."""
    f = results.objective
    share = (f.isel(stage=0) - f.sel(stage=20)) / (f.isel(stage=0) - f.min("stage"))
    low, middle = float(share.min()), float(share.median())
    text = f"20 stages make {100 * low:.1f} % of the decrease at least, in the median {100 * middle:.1f} %"
    return Finding(text, Verdict.of(middle >= 0.99, low >= 0.99))


def lower_with_k(results: Dataset, config: Any) -> Finding:
    ends = results.objective.isel(stage=-1)
    falls = (ends.diff("k") <= 0).values
    return Finding(
        f"lower at {falls.sum()} of {falls.size} steps to a larger k",
        Verdict.of(falls.all(), falls.any()),
    )


def moderate_k(results: Dataset, config: Any) -> Finding:
    accuracy = results.accuracy
    lost = 100 * (accuracy.max("k") - accuracy.sel(k=70))
    parts = ", ".join(
        f"{pair}: {100 * float(accuracy.sel(pair=pair, k=70)):.1f} %"
        for pair in accuracy.pair.values
    )
    text = f"test accuracy at k = 70: {parts}; at most {float(lost.max()):.1f} points below that of the best k"
    return Finding(text, Verdict.of(bool((lost <= 1).all()), bool((lost <= 1).any())))


PAPER = Paper(
    "Shen & Li, A Tight Bound of Hard Thresholding, JMLR 18 (2018)",
    [
        Section(
            "Figure 1",
            "figure1",
            [
                Claim(
                    "PGD requires fewer measurements than IHT for an accurate recovery",
                    "",
                    fewer_measurements,
                )
            ],
            "The third panel of the paper, HT-SVRG, is in Figures 2 and 3.",
        ),
        Section(
            "Figure 2",
            "figure2",
            [
                Claim(
                    "HT-SVRG recovers 80 % of the 16-sparse signals at n = 175",
                    "80 %",
                    eighty_percent,
                ),
                Claim(
                    "from n = 232, signals of sparsity 22 or less are reliably recovered",
                    "",
                    reliable,
                ),
            ],
        ),
        Section("Figure 3", "figure3_svrg", [line(0.95), line(0.99), reached_by("HT-SVRG")]),
        Section("Figure 3, IHT and PGD", "figure3", [reached_by("PGD")]),
        Section(
            "Figure 4",
            "figure4",
            [
                Claim(
                    "signals are not recovered unless k is larger than K", "K = 4, k = 36", sparsity
                ),
                Claim("a small m is enough, at the price of slow convergence", "", updates),
                Claim(
                    "η = 0.3 works well; with η > 3 the objective exceeds 10^120 within 3 stages",
                    "η = 0.3 and 3",
                    large_steps,
                ),
            ],
        ),
        Section(
            "Figure 5",
            "figure5",
            [
                Claim(
                    "with η = 3e-5, HT-SVRG converges as long as m is large enough",
                    "m = 600, 2000",
                    tiny_steps,
                )
            ],
        ),
        Section(
            "Figure 6",
            None,
            [Claim("shows sample images of MNIST", "", "no claim: sample images of the data set")],
        ),
        Section(
            "Figures 7 and 8",
            "figure7",
            [
                Claim(
                    "HT-SVRG usually attains the minimum within 20 stages", "20 stages", few_stages
                ),
                Claim("a larger k leads to a lower objective", "", lower_with_k),
                Claim("a moderate k already gives an accurate prediction", "k = 70", moderate_k),
                Claim(
                    "the learnt models are discriminative: weights outline the digits",
                    "",
                    "the weights are drawn above; whether they look discriminative is left to the reader",
                ),
            ],
        ),
    ],
)
