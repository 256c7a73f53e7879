"""What a paper says of its figures, and how the results here are judged by it."""

import enum
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from xarray import DataArray, Dataset

# A number below it, relative to one of the same kind, counts as 0: results are kept in single precision.
EXACT = 1e-6


class Verdict(enum.StrEnum):
    """Whether a claim holds for the results here."""

    HOLDS = "holds"
    IN_PART = "holds in part"
    DOES_NOT_HOLD = "does not hold"
    CANNOT_BE_JUDGED = "cannot be judged"

    @classmethod
    def of(cls, *conditions: bool) -> "Verdict":
        """HOLDS where all conditions do, IN_PART where at least half of them do, else
        DOES_NOT_HOLD."""
        held = sum(map(bool, conditions))
        if held == len(conditions):
            return cls.HOLDS
        return cls.IN_PART if 2 * held >= len(conditions) else cls.DOES_NOT_HOLD

    @classmethod
    def between(cls, low: float, high: float, at_least: float) -> "Verdict":
        """HOLDS where an interval lies at or above a level, DOES_NOT_HOLD where it lies below,
        IN_PART across it."""
        return cls.of(low >= at_least, high >= at_least)


class Reason(enum.StrEnum):
    """Why a claim does not hold as a whole."""

    DATA = "data not to be had"
    TRIALS = "cut trials"
    NOT_PRINTED = "setting not printed"
    METHOD = "other machine or method"
    SLIP = "the paper's slip"
    OURS = "ours"
    UNKNOWN = "not known"


def same(value: float, literal: float) -> bool:
    """Whether a stored number, in single precision, is a number of a paper or configuration."""
    return math.isclose(value, literal, rel_tol=EXACT)


class Finding(NamedTuple):
    """What was found here.

    Attributes:
        ours: numbers with their intervals, in Markdown.
        verdict: whether the claim holds.
        held, cases: in how many of how many cases it does; 0 where there are no cases to count.
    """

    ours: str
    verdict: Verdict
    held: int = 0
    cases: int = 0

    @classmethod
    def of(cls, ours: str, *conditions: bool) -> "Finding":
        """A claim about all of some cases, each a condition; without any it cannot be judged."""
        if not conditions:
            return cls(ours, Verdict.CANNOT_BE_JUDGED)
        held = sum(map(bool, conditions))
        return cls(ours, Verdict.of(*conditions), held, len(conditions))

    @classmethod
    def most(cls, ours: str, *conditions: bool) -> "Finding":
        """A claim about most of some cases, more than half of them."""
        if not conditions:
            return cls(ours, Verdict.CANNOT_BE_JUDGED)
        return cls.at_least(ours, len(conditions) // 2 + 1, *conditions)

    @classmethod
    def at_least(cls, ours: str, needed: int, *conditions: bool) -> "Finding":
        """A claim about a number of some cases: it holds in part where half of the number do."""
        held = sum(map(bool, conditions))
        verdict = Verdict.DOES_NOT_HOLD
        if 2 * held >= needed:
            verdict = Verdict.HOLDS if held >= needed else Verdict.IN_PART
        return cls(ours, verdict, held, len(conditions))

    @property
    def judgement(self) -> str:
        """The verdict, and in how many cases the claim holds, in Markdown."""
        if self.cases < 2:
            return f"*{self.verdict}*"
        return f"*{self.verdict}*, {self.held} of {self.cases}"


Judge = Callable[[Dataset, Any], Finding]  # results as they are plotted, configuration -> finding


@dataclass(frozen=True)
class Claim:
    """A claim of a paper about one of its figures.

    Attributes:
        text: what the paper says, in other words.
        judge: how it is judged here, or why it cannot be.
        printed: the numbers that it prints; "" where it shows a curve only.
        reason: why it does not hold as a whole, where it does not: one of :class:`Reason`, and
            what there is to add.
    """

    text: str
    judge: Judge | str
    printed: str = ""
    reason: str = ""

    def found(self, results: Dataset, config: Any) -> Finding:
        """Judge the results."""
        if isinstance(self.judge, str):
            return Finding(self.judge, Verdict.CANNOT_BE_JUDGED)
        return self.judge(results, config)


class Question(NamedTuple):
    """What a result makes one ask that the paper does not speak of."""

    text: str
    answer: Callable[
        [Dataset, Any], str
    ]  # results as they are plotted, configuration -> in Markdown


class Setting(NamedTuple):
    """What is set for a figure.

    Attributes:
        what: is set.
        paper: how, in the paper, and where it says so.
        here: how, here; a key of the configuration in braces stands for its value.
    """

    what: str
    paper: str
    here: str

    def value(self, config: Any) -> str:
        """Return how it is set in a configuration."""
        return self.here.format_map({key: written(value) for key, value in config})


NOT_PRINTED = "not printed"
LISTED = 6  # values of a list that are written out, at most


def written(value: Any) -> str:
    """Write the value of a key; of a long list its ends and how many there are, of a table its keys
    too."""
    if value is None:
        return "not set"
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, int):
        return f"{value:,}" if value >= 10_000 else str(value)
    if isinstance(value, float):
        return f"{value:g}".replace("e-0", "e-")
    if isinstance(value, dict):
        return "; ".join(f"{shown(key)}: {written(one)}" for key, one in value.items())
    if len(value) > LISTED:
        return f"{written(value[0])} to {written(value[-1])}, {len(value)} values"
    return ", ".join(map(written, value))


class Section(NamedTuple):
    """A figure or a table of a paper, or several that one configuration covers."""

    heading: str  # such as "Figures 7 and 8"
    config: (
        str | None
    )  # the name of the configuration, such as "figure7"; None: nothing is run for it
    claims: Sequence[Claim]
    about: str = ""  # what else there is to say
    questions: Sequence[Question] = ()
    settings: Sequence[Setting] = ()


def not_run(heading: str, *claims: Claim) -> Section:
    """Return a section of claims that no run decides."""
    return Section(heading, None, claims)


class Paper(NamedTuple):
    """A paper with its figures and tables."""

    citation: str
    sections: Sequence[Section]


def percent(rate: float, low: float, high: float) -> str:
    """Write a rate with its interval."""
    return f"{100 * rate:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


def rate_at(rates: Dataset, at: Mapping[str, Any]) -> tuple[float, float, float]:
    """Return the rate of a cell with its interval."""
    cell = rates.sel(at)
    return float(cell.rate), float(cell.lower), float(cell.upper)


def shown(name: str) -> str:
    """Return the name of a data set as text."""
    return name.replace("_", " ")


def needs(*solvers: str, column: str, each: str = "") -> Callable[[Judge], Judge]:
    """Let a judge say that it cannot, where one of these solvers did not run, or has no number in a
    column.

    Where a dimension ``each`` is named, it needs one at every place along it.
    """

    def is_absent(values: DataArray) -> bool:
        return bool(values.isnull().all([dim for dim in values.dims if dim != each]).any())

    def decorate(judge: Judge) -> Judge:
        @functools.wraps(judge)
        def judged(results: Dataset, config: Any) -> Finding:
            known = results.solver.values.tolist()
            absent = [
                name
                for name in solvers
                if name not in known or is_absent(results[column].sel(solver=name))
            ]
            if absent:
                return Finding(f"no results of {', '.join(absent)}", Verdict.CANNOT_BE_JUDGED)
            return judge(results, config)

        return judged

    return decorate
