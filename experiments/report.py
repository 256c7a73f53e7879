"""The report: for every figure and table of the papers what they claim, what was found here, and a
verdict.

The results behind a figure, small enough to be kept with the code, are
``docs/report/data/<paper>-<figure>.nc``. Pages and pictures are made of these, of the
configurations and of the claims that stand beside each figure, listed by
``experiments/<paper>/claims.py``.
"""

import importlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray
from pydantic import ValidationError
from xarray import Dataset

from experiments import summary
from experiments.common import config, plots
from experiments.common.claims import Finding, Paper, Section, Verdict
from experiments.common.config import BaseConfig
from experiments.common.recovery import UNFINISHED
from experiments.common.registry import EXPERIMENTS, summarise
from jaxht import Status, sweep

ROOT = Path(__file__).parents[1]
CONFIGS, REPORT = ROOT / "configs", ROOT / "docs" / "report"
SIZE = "paper"
NAMES = (
    "shen2018",
    "zhou2018",
    "yuan2018",
    "axiotis2020",
    "yuan2020",
)  # the papers, in the order of the report
MODELS = {name: experiment.Config for name, experiment in EXPERIMENTS.items()}


def paper(name: str) -> Paper:
    """Return a paper with its figures and their claims."""
    found: Paper = importlib.import_module(f"experiments.{name}.claims").PAPER
    return found


def file_of(name: str, section: Section) -> Path | None:
    """Return the configuration of a figure of a paper; None where nothing is run for it."""
    return None if section.config is None else CONFIGS / name / f"{section.config}.toml"


def configurations(names: Iterable[str]) -> list[Path]:
    """Return the configurations of the figures of some papers, those that run shortest first."""
    files = (file_of(name, section) for name in names for section in paper(name).sections)
    return sorted(filter(None, files), key=minutes)


def minutes(file: Path) -> float:
    """Return how long a configuration takes at most on two cores; infinite where that is not
    known."""
    found = load(file).minutes
    return math.inf if found is None else found


def load(file: Path) -> BaseConfig:
    """Return a configuration in the paper's size."""
    return config.load(file, SIZE, MODELS)


def name_of(file: Path) -> str:
    """Return the name of a configuration in the report, such as shen2018-figure1."""
    return f"{file.parent.name}-{file.stem}"


class Recorded(NamedTuple):
    """What is kept of a configuration.

    Attributes:
        results: what the figure shows.
        chosen: the configuration that they are of.
        changed: the keys that the configuration has otherwise today, with both values; none where
            the results are current.
    """

    results: Dataset
    chosen: BaseConfig
    changed: dict[str, tuple[Any, Any]]


def recorded(file: Path) -> Recorded | None:
    """Return what is kept of a configuration; None where nothing is, or where it was made by
    another version of the experiment."""
    data = REPORT / "data" / f"{name_of(file)}.nc"
    if not data.is_file():
        return None
    kept = xarray.load_dataset(data, engine="h5netcdf")
    now = load(file)
    try:
        then = type(now).model_validate_json(kept.attrs["config"])
    except ValidationError:
        return None
    before, after = (config.identity(one.model_dump_json()) for one in (then, now))
    changed = {key: (before[key], after[key]) for key in after if before[key] != after[key]}
    return Recorded(kept, then if changed else now, changed)


def read(file: Path) -> Dataset | None:
    """Return what is kept of a configuration; None where nothing is, or where it is of another
    configuration."""
    kept = recorded(file)
    return None if kept is None or kept.changed else kept.results


def keep(file: Path, results: Dataset) -> None:
    """Keep what the figure of a configuration shows, in single precision, and draw it."""
    chosen = load(file)
    small = summarise(EXPERIMENTS[chosen.experiment], results, chosen).assign_attrs(results.attrs)
    doubles = [name for name, variable in small.data_vars.items() if variable.dtype == "float64"]
    small = small.assign({name: small[name].astype("float32") for name in doubles})
    data = REPORT / "data" / f"{name_of(file)}.nc"
    data.parent.mkdir(parents=True, exist_ok=True)
    sweep.export(small, data)
    draw(file, small)


def draw(file: Path, kept: Dataset) -> None:
    """Draw the figure of a configuration."""
    chosen = load(file)
    picture = REPORT / "images" / f"{name_of(file)}.png"
    picture.parent.mkdir(parents=True, exist_ok=True)
    with plots.style():
        EXPERIMENTS[chosen.experiment].plot(kept, chosen).savefig(
            picture, dpi=100, metadata={"Software": None}
        )


def write(names: Sequence[str] = ()) -> None:
    """Write the pages of some papers, or of all, and the overview."""
    for name in names or NAMES:
        (REPORT / f"{name}.md").write_text(page(name), encoding="utf-8")
    (REPORT / "index.md").write_text(overview(), encoding="utf-8")


NOT_RUN = "not yet run in the paper's size"
OLDER = "Of an older setting"


def findings(section: Section, kept: Recorded | None) -> list[Finding]:
    """Judge all claims about a figure by what is kept of it."""
    if kept is not None:
        return [claim.found(kept.results, kept.chosen) for claim in section.claims]
    nothing = Finding(NOT_RUN, Verdict.CANNOT_BE_JUDGED)
    return [
        claim.found(Dataset(), None) if isinstance(claim.judge, str) else nothing
        for claim in section.claims
    ]


LONGEST_CELL = 160  # characters; what is longer is a note under the table


def page(name: str) -> str:
    """Return the page of a paper, in Markdown."""
    about = paper(name)
    parts = [
        f"# {about.citation}\n",
        f"Written by `python -m experiments report {name}`, not by hand.\n",
    ]
    for section in about.sections:
        parts.append(f"## {section.heading}\n")
        file = file_of(name, section)
        kept = None if file is None else recorded(file)
        if file is not None:
            parts += _setting(file, kept)
        if kept is not None and (ended := endings(kept.results)):
            parts.append(f"{ended}\n")
        if section.about:
            parts.append(f"{section.about}\n")
        if file is not None and section.settings:
            parts.append(_settings(section, load(file) if kept is None else kept.chosen))
        if section.claims:
            parts += _claims(section, kept)
        if kept is not None:
            parts += [
                f"**{question.text}** {question.answer(kept.results, kept.chosen)}\n"
                for question in section.questions
            ]
    return "\n".join(parts)


ENDED = {
    Status.RUNNING: "stopped early, when it was clear whether they would recover the signal",
    Status.MAX_STEPS: "at the limit on steps",
    Status.CYCLING: "in a cycle",
    Status.DIVERGED: "diverged",
    Status.REFIT_FAILED: "as a refit failed",
    Status.NO_MINIMISER: "on a support on which f has no minimiser",
}


def endings(results: Dataset) -> str:
    """Say how many runs did not end by the rule of their solver, where results hold it; else
    nothing."""
    if "diverged" in results:
        share = float(results.diverged.mean())
        return f"Of all runs {100 * share:.0f} % diverged." if share else "No run diverged."
    if "status" not in results and "ended" not in results:
        return ""
    parts, total, others = [], 0, 0
    for name in results.solver.values:
        counts, runs = _ended(results.sel(solver=name))
        parts += [
            f"{name} {number:,} of {runs:,} {ENDED.get(how, how.name)}"
            for how, number in sorted(counts.items())
        ]
        total += runs
        others += sum(counts.values())
    if not parts:
        return f"All {total:,} runs ended by the rule of their solver."
    ended = f"Of {total:,} runs {total - others:,} ended by the rule of their solver"
    return f"{ended}; the others: {'; '.join(parts)}."


def _ended(of: Dataset) -> tuple[Counter[Status], int]:
    """Count the runs of a solver that did not end by its rule, by how they ended, and all runs."""
    if "ended" in of:  # counts of cells
        counts = of.ended.sum([dim for dim in of.ended.dims if dim != "how"])
        held = {Status(int(code)): int(counts.sel(how=code)) for code in counts.how}
        trials = of.trials.isel(recovery=0, missing_dims="ignore")
        return +Counter(held), int(trials.sum())
    values = of.status.values.ravel()
    known = values[np.isfinite(values)]
    held = Counter(Status(int(value)) for value in known if value in UNFINISHED)
    return held, known.size


def _settings(section: Section, chosen: BaseConfig) -> str:
    """Return the table of what is set in the paper, and in a configuration."""
    rows = ["| setting | in the paper | here |", "|---|---|---|"]
    rows += [f"| {one.what} | {one.paper} | {one.value(chosen)} |" for one in section.settings]
    return "\n".join([*rows, ""])


def _claims(section: Section, kept: Recorded | None) -> list[str]:
    """Return the table of claims, and what is too long for its cells."""
    rows = ["| the paper's claim | its numbers | here | verdict | why not whole |"]
    rows.append("|---|---|---|---|---|")
    notes: list[str] = []
    for claim, found in zip(section.claims, findings(section, kept), strict=True):
        ours = found.ours
        if len(ours) > LONGEST_CELL:
            notes.append(f"{len(notes) + 1}. {ours}")
            ours = f"note {len(notes)}"
        is_whole = found.verdict is Verdict.HOLDS
        cells = (
            claim.text,
            claim.printed or "not printed",
            ours,
            found.judgement,
            "" if is_whole else claim.reason,
        )
        rows.append(f"| {' | '.join(cells)} |")
    parts = ["\n".join([*rows, ""])]
    if notes:
        parts.append("Notes:\n")
        parts.append("\n".join([*notes, ""]))
    return parts


def _setting(file: Path, kept: Recorded | None) -> list[str]:
    """Return the picture of a figure, and how it was made."""
    now = load(file)
    command = f"python -m experiments run {file.relative_to(ROOT)} --size {SIZE}"
    time = "" if now.minutes is None else f", {_duration(now.minutes)} or less on two cores"
    if kept is None:
        return [f"`{command}`{time}: {NOT_RUN}.\n"]
    attrs = kept.results.attrs
    versions = json.loads(attrs["versions"])
    revision = str(attrs.get("revision", "unknown"))
    if revision.endswith("-dirty"):
        revision = f"{revision.removesuffix('-dirty')} with changes that were not committed"
    made = f"seed {kept.chosen.seed}, jax {versions['jax']}, {attrs['device']}, revision {revision}"
    parts = [
        f"![{kept.chosen.title}](images/{name_of(file)}.png)\n",
        f"`{command}`{time}; {made}.\n",
    ]
    if kept.changed:
        changes = "; ".join(
            f"`{key}` was {_shortened(then)}, and is {_shortened(now)}"
            for key, (then, now) in kept.changed.items()
        )
        parts.append(
            f"**{OLDER}**: {changes}. The figure, the settings and the verdicts are of the recorded run; the "
            "command runs the present setting, which is still to be done.\n"
        )
    return parts


def _shortened(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 90 else f"{text[:60]} … {text[-20:]}"


def _duration(minutes: float) -> str:
    return f"{max(1, round(minutes))} min" if minutes < 100 else f"{minutes / 60:.1f} h"


def link(name: str, heading: str) -> str:
    """Return a link to a section of the page of a paper."""
    anchor = "".join(c for c in heading.lower().replace(" ", "-") if c.isalnum() or c in "-_")
    return f"[{heading}]({name}.md#{anchor})"


def marked(name: str, heading: str) -> str:
    """Return a link to a section, which says so where its results are of an older setting."""
    (section,) = (one for one in paper(name).sections if one.heading == heading)
    file = file_of(name, section)
    kept = None if file is None else recorded(file)
    older = f" *{OLDER.lower()}*" if kept is not None and kept.changed else ""
    return f"{link(name, heading)}{older}"


def overview() -> str:
    """Return the page that leads to the others: a row for each figure with its verdicts."""
    parts = [
        "# The papers at their own size\n",
        "Every figure and table of the five papers, what they claim of it, and whether it holds here: each in the size "
        "that it has in the paper unless its page says what was cut. `python -m experiments reproduce` runs what has "
        "not been run, `python -m experiments report` draws the figures and writes these pages from the results in "
        "`docs/report/data`. [Misprints and gaps](misprints.md) that were found on the way have a page of their own.\n",
        "## In ten lines\n",
        "What holds of the five papers, what does not, and what we think of it, for those who build on them. Behind "
        "each line stand the figures on which it rests; results of an older setting are marked.\n",
        summary.write(marked),
        "## All verdicts\n",
        "| paper | figure or table | verdicts |\n|---|---|---|",
    ]
    for name in NAMES:
        about = paper(name)
        for section in (section for section in about.sections if section.claims):
            file = file_of(name, section)
            kept = None if file is None else recorded(file)
            counts = Counter(found.verdict for found in findings(section, kept))
            verdicts = ", ".join(
                f"{counts[verdict]} × *{verdict}*" for verdict in Verdict if counts[verdict]
            )
            if kept is not None and kept.changed:
                verdicts += f" ({OLDER.lower()})"
            # matches anything
            authors = re.match(r"([^&]*&)?[^,]*", about.citation)[0]  # type: ignore[index]
            parts.append(f"| [{authors}]({name}.md) | {link(name, section.heading)} | {verdicts} |")
    return "\n".join(parts) + "\n"
