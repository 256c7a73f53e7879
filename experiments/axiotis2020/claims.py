"""Axiotis & Sviridenko 2020: what the paper says of its figures, and how the results here are
judged by it."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from xarray import DataArray, Dataset

from experiments.axiotis2020.loss_against_sparsity import ORDER, SLACK, ordered
from experiments.axiotis2020.tradeoff import OTHERS, PRINTED
from experiments.common.claims import (
    Claim,
    Finding,
    Paper,
    Question,
    Section,
    Verdict,
    needs,
    shown,
)
from jaxht import Status

# below it, relative to f(0) or to a value of a lemma, a number that is kept in single precision is
# 0
EXACT = 1e-6

# ---- Table 1, §5.1, Lemma 5.2 ----


def printed_bounds(results: Dataset, config: Any) -> Finding:
    bounds = {ratio: float(results.bound.sel(ratio=ratio)) for ratio in PRINTED}
    truncated = [
        np.floor(100 * bound + 1e-4) == round(100 * PRINTED[ratio])
        for ratio, bound in bounds.items()
    ]
    text = ", ".join(f"{bound:.4f}" for bound in bounds.values())
    if all(truncated):
        text += ": all four right, truncated to two digits, as an upper bound has to be"
    return Finding(text, Verdict.of(*truncated))


def surpasses(*names: str) -> Claim:
    """The bound of OMPR against those of other methods at the same level."""

    def judge(results: Dataset, config: Any) -> Finding:
        bounds = {
            name: (float(results.bound.sel(ratio=OTHERS[name][0])), OTHERS[name][1])
            for name in names
        }
        text = ", ".join(
            f"{ours:.3f} against {theirs} of {name}" for name, (ours, theirs) in bounds.items()
        )
        return Finding(text, Verdict.of(*(ours > theirs for ours, theirs in bounds.values())))

    return Claim(
        "the bounds surpass those of subspace pursuit, CoSaMP and OMP", "0.35, 0.48, 0.33", judge
    )


def stricter(results: Dataset, config: Any) -> Finding:
    ours, theirs = float(results.bound.sel(ratio=1)), OTHERS[r"$\ell_1$"][1]
    return Finding(f"{ours:.4f} against {theirs}", Verdict.of(ours < theirs))


def both_fit(results: Dataset, config: Any) -> Finding:
    """The least f on k of the first N columns is (N - k)/2 on this instance, whichever they are:
    OMP has it."""
    omp = results.value.sel(solver="OMP", start="zero")
    at_all = omp.where(omp.k == omp.N).sum("k")
    least = float(omp.where(omp.k < omp.N).min())
    pair = float(results.value_pair.max())
    text = f"f = {pair:.0e} on the pair, {float(at_all.max()):.0e} on the first N, at least {least:g} on fewer of these"
    return Finding(text, Verdict.of(pair < EXACT, bool((at_all < EXACT).all()), least > 0.1))


def smaller_gradients(results: Dataset, config: Any) -> Finding:
    """At the minimiser on k of the first N columns, k < N."""
    share = (results.gradient_pair / results.gradient_rest).where(results.k < results.N)
    text = f"at most {float(share.max()):.2f} times the least of the others, for all k < N"
    return Finding(text, Verdict.of(bool((share.fillna(0) < 1).all())))


def never_found(*names: str) -> Claim:
    """Whether f is 0 at k = N only, and no column of the pair is selected."""

    def judge(results: Dataset, config: Any) -> Finding:
        some = results.sel(solver=list(names))
        runs = some.k <= some.N
        entered = int(((some.selected > 0) & runs).sum())
        too_early = int(((some.value < EXACT) & (some.k < some.N)).sum())
        total = int(some.value.notnull().sum())
        at_all = bool((some.value.where(some.k == some.N) < EXACT).any("k").all())
        text = f"f = 0 at k < N in {too_early} of {total} runs, a column of the pair selected in {entered}"
        return Finding(text, Verdict.of(not too_early, not entered, at_all))

    text = (
        f"{', '.join(names)}, started off the pair, never select it, and need all N other columns"
    )
    return Claim(text, "", needs(*names, column="value")(judge))


def linear_condition(results: Dataset, config: Any) -> Finding:
    over = (results.condition / results.N).values
    text = f"{over.min():.2f} to {over.max():.2f} times N at level N/2 + 2; "
    finite = bool(np.isfinite(results.condition_all).all())
    text += (
        "finite"
        if finite
        else "infinite at level n, where $\\rho^- = 0$, since two supports fit b exactly"
    )
    return Finding(
        text, Verdict.of(bool(np.isfinite(over).all() and over.max() < 2 * over.min()), finite)
    )


def stays(results: Dataset, config: Any) -> Finding:
    """OMPR at k = s* kappa^2 / 2; its first steps may be those that refit the start."""
    size = config.sparsity * config.kappa**2
    start = size * (5 / 4 - 3 * config.delta)
    level = start - (config.kappa * (1 - 2 * config.delta) - 1) / 2
    found = results.value.sel(solver="OMPR").isel(k=-1).values
    at_start, at_level = (np.isclose(found, value, rtol=EXACT) for value in (start, level))
    text = f"f = {found[0]:.3f} at the start and {found[-1]:.3f} at the end; by the lemma {start:.3f} and {level:.3f}"
    return Finding(
        text, Verdict.of(bool((at_start | at_level).all() and at_start[0]), bool(at_level[-1]))
    )


def far_from_optimal(results: Dataset, config: Any) -> Finding:
    ends = results.value.sel(solver="OMPR").isel(step=-1)
    above = ((ends - results.optimum) / (config.sparsity * config.kappa**2)).values
    text = (
        f"$(f - f(x^*))/(s^* \\kappa^2)$ at the end: {above[-1]:.3f} at $k = {int(ends.k[-1])}$, "
    )
    text += f"f above $f(x^*)$ at {(above > EXACT).sum()} of {above.size} k up to there"
    return Finding(text, Verdict.of(bool(above[-1] > 0.1), bool((above > EXACT).all())))


@needs("ARHT", column="value")
def regularised(results: Dataset, config: Any) -> Finding:
    """From which k on the end of ARHT is at most f(x*)."""
    ends = results.value.sel(solver="ARHT").isel(step=-1)
    reached = (ends <= results.optimum * (1 + EXACT)).values
    linear = config.sparsity * config.kappa
    if not reached[-1]:
        return Finding(f"not even at k = {int(ends.k[-1])}", Verdict.DOES_NOT_HOLD)
    first = int(ends.k[len(reached) - int(np.argmin(reached[::-1])) if not reached.all() else 0])
    text = f"ARHT reaches $f(x^*)$ from k = {first} on, {first / linear:.1f} times $s^* \\kappa$"
    return Finding(text, Verdict.of(first < int(ends.k[-1]), first <= 4 * linear))


# ---- Figures 1 to 4 ----


def losses(results: Dataset) -> Dataset:
    """Without the runs that diverged, which return their start."""
    return results.assign(loss=results.loss.where(results.status != Status.DIVERGED))


def each_set(results: Dataset, texts: Sequence[str]) -> str:
    names = (shown(str(name)) for name in results.dataset.values)
    return "; ".join(f"{name}: {text}" for name, text in zip(names, texts, strict=True))


def counts(low: DataArray, high: DataArray) -> tuple[int, int, int]:
    """Return at how many sparsities one loss is below another by more than one percent, above it,
    and of how many."""
    both = low.notnull() & high.notnull()
    return int((SLACK * low < high).sum()), int((low > SLACK * high).sum()), int(both.sum())


def below(one: str, *others: str) -> Any:
    """Whether one solver is below each of others somewhere and above none anywhere, on every data
    set."""

    @needs(one, *others, column="loss")
    def judge(results: Dataset, config: Any) -> Finding:
        loss, texts, conditions = losses(results).loss, [], []
        for name in results.dataset.values:
            of = loss.sel(dataset=name)
            parts = {other: counts(of.sel(solver=one), of.sel(solver=other)) for other in others}
            texts.append(
                ", ".join(
                    f"{other} {less} / {more} of {total}"
                    for other, (less, more, total) in parts.items()
                )
            )
            conditions += [bool(less and not more) for less, more, _ in parts.values()]
        text = (
            f"{one} more than 1 % below / above at so many sparsities: {each_set(results, texts)}"
        )
        return Finding(text, Verdict.of(*conditions))

    return judge


@needs("ARHT", "OMPR", "ELS", column="loss")
def oscillates(results: Dataset, config: Any) -> Finding:
    """Where ELS is more than one percent below OMPR: how often ARHT is at either, and how often it
    changes sides."""
    loss, texts, swings = losses(results).loss, [], []
    for name in results.dataset.values:
        els, arht, ompr = (
            loss.sel(dataset=name, solver=solver) for solver in ("ELS", "ARHT", "OMPR")
        )
        apart = (SLACK * els < ompr).values
        share = ((arht - els) / (ompr - els)).values[apart]
        near_els, near_ompr, outside = (
            (share < 0.5).sum(),
            ((share >= 0.5) & (share <= 1)).sum(),
            (share > 1).sum(),
        )
        changes = int((np.diff(share < 0.5)).sum())
        swings.append(changes >= 2)
        text = f"nearer ELS at {near_els}, nearer OMPR at {near_ompr}, above OMPR at {outside}"
        texts.append(f"{text} of {apart.sum()}, {changes} changes")
    if not any(apart_of(loss.sel(dataset=name)) for name in results.dataset.values):
        return Finding("ELS and OMPR are nowhere more than 1 % apart", Verdict.CANNOT_BE_JUDGED)
    return Finding(
        f"where ELS and OMPR are more than 1 % apart: {each_set(results, texts)}",
        Verdict.of(any(swings)),
    )


def apart_of(loss: DataArray) -> bool:
    return bool((SLACK * loss.sel(solver="ELS") < loss.sel(solver="OMPR")).any())


@needs("ARHT", "ELS", column="seconds")
def cheaper(results: Dataset, config: Any) -> Finding:
    """The time of ELS over that of ARHT; the median over sparsities and its quartiles."""
    over = results.seconds.sel(solver="ELS") / results.seconds.sel(solver="ARHT")
    low, middle, high = (
        over.quantile([0.25, 0.5, 0.75], "k").transpose("quantile", "dataset").values
    )
    texts = [f"{b:.2g} [{a:.2g}, {c:.2g}]" for a, b, c in zip(low, middle, high, strict=True)]
    text = f"ELS takes so many times the time of ARHT, median over k [quartiles]: {each_set(results, texts)}"
    return Finding(text, Verdict.of(*(middle > 1).tolist()))


@needs("OMP", "ELS", column="loss")
def differ(results: Dataset, config: Any) -> Finding:
    loss = losses(results).loss
    gain = 100 * (1 - loss.sel(solver="ELS") / loss.sel(solver="OMP")).max("k")
    texts = [f"{float(most):.1f} %" for most in gain.values]
    text = f"the most by which ELS is below OMP: {each_set(results, texts)}"
    return Finding(text, Verdict.of(*(gain > 100 * (SLACK - 1)).values.tolist()))


@needs(*ORDER, column="loss")
def order(results: Dataset, config: Any) -> Finding:
    """On average over sparsities; at single ones the order fails here and there in the paper
    too."""
    found = [ordered(losses(results).sel(dataset=name)) for name in results.dataset.values]
    texts = [
        f"at {holds} of {of} sparsities"
        + "".join(f", {link} at {fails}" for link, fails in links.items())
        for holds, of, links in found
    ]
    if not all(of for _, of, _ in found):
        return Finding(each_set(results, texts), Verdict.CANNOT_BE_JUDGED)
    return Finding(
        each_set(results, texts),
        Verdict.of(*itertools.chain(*((h == n, 2 * h >= n) for h, n, _ in found))),
    )


def more_starts(results: Dataset, config: Any) -> str:
    """ELS from the support of OMP, and the lowest of its runs from there and from random
    supports."""
    parts = []
    for name in results.dataset.values:
        of = losses(results).sel(dataset=name).dropna("k", subset=["restarts"], how="all")
        one, best = of.loss.sel(solver="ELS"), of.best
        many = np.fmin(one, of.restarts.min("start"))
        found = {"from one start": one, "from all": many, "ARHT": of.loss.sel(solver="ARHT")}
        above = {
            label: int((loss > SLACK * of.loss.sel(solver="ARHT")).sum())
            for label, loss in found.items()
        }
        text = f"above ARHT at {above['from one start']} of {of.sizes['k']} sparsities from one start, at "
        text += f"{above['from all']} from all"
        if best.notnull().any():
            at = ", ".join(
                f"{label} {int((loss <= SLACK * best).sum())}" for label, loss in found.items()
            )
            text += f"; at the best of all supports, of {int(best.notnull().sum())}: {at}"
        least = float((of.restarts.min("start") / one).min())
        parts.append(
            f"{shown(name)}: {text}; the most by which a random start ends lower: {100 * (1 - least):.1f} %"
        )
    return f"{config.starts} random supports beside that of OMP, within 1 %: {'. '.join(parts)}."


MORE_STARTS = Question("Do more starts mend ELS?", more_starts)


def compared(heading: str, config: str, about: str, *questions: Question) -> Section:
    """A figure of losses: all claims are about all four."""
    return Section(
        heading,
        config,
        [
            Claim("ELS outperforms the others", "", below("ELS", "ARHT", "OMPR", "OMP")),
            Claim("ARHT offers an advantage over OMP and OMPR", "", below("ARHT", "OMPR", "OMP")),
            Claim(
                "ARHT oscillates between the solutions of ELS and OMPR in some cases",
                "",
                oscillates,
            ),
            Claim("ARHT takes less time than ELS", "", cheaper),
            Claim(
                "the performance of the algorithms on the data sets shown differs significantly",
                "",
                differ,
            ),
            Claim("the curves: ELS ≤ ARHT ≤ OMPR ≤ OMP ≤ LASSO", "", order),
        ],
        about,
        questions,
    )


LOSSES = (
    "Losses are compared at every sparsity, within 1 %; LASSO is refitted on its support. A solver of this library has "
    "one deterministic run at each sparsity, so there are no intervals."
)

PAPER = Paper(
    "Axiotis & Sviridenko, Sparse Convex Optimization via Adaptively Regularized Hard Thresholding (2020)",
    [
        Section(
            "Table 1",
            "table1",
            [
                Claim(
                    "the conditions on $\\delta_{s+s^*}$ that Theorem 4.2 implies at $s/s^*$ = 1, 2, 3, 30",
                    "0.33, 0.47, 0.55, 0.83",
                    printed_bounds,
                ),
                surpasses("subspace pursuit", "CoSaMP", "OMP"),
                Claim("at $s = s^*$ it is stricter than that of LASSO", "1/3 and 0.62", stricter),
                Claim(
                    "at $s = s^*$ it matches the best bound known for a greedy algorithm",
                    "1/3",
                    "a statement about the literature of 2011 to 2020",
                ),
            ],
        ),
        Section(
            "Section 5.1",
            "section5_1",
            [
                Claim(
                    "a pair of columns fits b exactly, and so do the others, but no proper subset of these",
                    "",
                    both_fit,
                ),
                Claim(
                    "at the minimiser on some of the others, the gradient is smaller on the pair than on the rest of "
                    "them",
                    "",
                    smaller_gradients,
                ),
                never_found("OMP", "OMPR", "IHT", "PHT"),
                never_found("ARHT", "ELS"),
                Claim(
                    "the condition number is $\\kappa = \\rho_n^+/\\rho_n^- = O(n)$",
                    "O(n)",
                    linear_condition,
                ),
                Claim(
                    "Conjecture 5.1: no polynomial algorithm has $s = O(s^* \\kappa^{1-\\delta})$",
                    "",
                    "a conjecture on all algorithms",
                ),
            ],
            "The paper has no figure of it. It refers to Foster, Karloff & Thaler 2015 for the matrix; the instance "
            "here has N + 2 columns and the properties that the paper lists.",
        ),
        Section(
            "Lemma 5.2",
            "lemma5_2",
            [
                Claim(
                    "OMPR stays at $f(x^0) - (\\kappa(1-2\\delta) - 1)/2$, $f(x^0) = s^* \\kappa^2 (5/4 - 3\\delta)$",
                    "",
                    stays,
                ),
                Claim("so OMPR ends at $f(x^*) + \\Theta(s^* \\kappa^2)$", "", far_from_optimal),
                Claim(
                    "with regularisation (Theorem 3.1), $O(s^* \\kappa)$ is sufficient",
                    "",
                    regularised,
                ),
            ],
            "The paper has no figure of it.",
        ),
        compared("Figure 1", "figure1", LOSSES, MORE_STARTS),
        compared("Figure 2", "figure2", LOSSES),
        compared("Figure 3", "figure3", LOSSES),
        compared("Figure 4", "figure4", LOSSES),
        Section(
            "Table 2",
            None,
            [
                Claim(
                    "lists the sizes of the data sets",
                    "",
                    "no claim: what differs is said at Figures 1 to 4",
                )
            ],
        ),
    ],
)
