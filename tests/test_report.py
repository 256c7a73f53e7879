"""The report: its pages are those of its data, and its verdicts follow from numbers."""

import json

import numpy as np
import pytest
import xarray
from click.testing import CliRunner

from experiments import report
from experiments.__main__ import main
from experiments.common import claims
from experiments.common.claims import Claim, Finding, Paper, Section, Verdict
from experiments.shen2018 import claims as shen
from tests.test_experiments import tiny

pytestmark = pytest.mark.usefixtures("all_quickly")


@pytest.mark.parametrize("name", report.NAMES)
def test_pages_are_made_of_the_data(name):
    """As they are committed: a change of data, configuration or claim needs ``python -m experiments report``."""
    assert (report.REPORT / f"{name}.md").read_text(encoding="utf-8") == report.page(name)


def test_the_overview_is_made_of_the_data():
    assert (report.REPORT / "index.md").read_text(encoding="utf-8") == report.overview()


def test_every_file_belongs_to_a_configuration():
    files = report.configurations(report.NAMES)
    kept = {report.name_of(file): file for file in files if report.read(file) is not None}
    data, pictures = (sorted((report.REPORT / folder).glob("*")) for folder in ("data", "images"))
    assert [file.stem for file in data] == [file.stem for file in pictures] == sorted(kept)
    assert sum(file.stat().st_size for file in data) < 10_000_000
    for path in kept.values():
        results, chosen = report.read(path), report.load(path)
        assert results.attrs["size"] == report.SIZE
        assert report.EXPERIMENTS[chosen.experiment].plot(results, chosen).axes


@pytest.mark.parametrize("name", report.NAMES)
def test_every_configuration_of_a_paper_is_in_the_report_once(name):
    """Those that belong to no figure have another name."""
    sections = [section.config for section in report.paper(name).sections if section.config]
    files = {file.stem for file in (report.CONFIGS / name).glob("*.toml")} - {"diabetes"}
    assert sorted(sections) == sorted(files)
    headings = [section.heading for section in report.paper(name).sections]
    assert len(set(headings)) == len(headings) and all(section.claims for section in report.paper(name).sections)


def test_verdicts():
    assert Verdict.of(True, True) is Verdict.HOLDS
    assert Verdict.of(True, False) is Verdict.IN_PART
    assert Verdict.of(False, False) is Verdict.DOES_NOT_HOLD
    assert [Verdict.between(*ends, 0.8) for ends in ((0.8, 0.9), (0.7, 0.8), (0.6, 0.7))] == [
        Verdict.HOLDS,
        Verdict.IN_PART,
        Verdict.DOES_NOT_HOLD,
    ]
    assert Claim("", "", "no data").found(None, None) == ("no data", Verdict.CANNOT_BE_JUDGED)
    assert claims.percent(0.5, 0.4, 0.61) == "50.0 % [40.0, 61.0]"


def test_fewer_measurements():
    """The curve of PGD left of that of IHT: at both sparsities, at one, at none."""
    n = np.arange(10, 101, 10)

    def rates(*shifts):
        curves = [
            [(n > at) * 100 for at in (50, 70)],
            [(n > at - shift) * 100 for at, shift in zip((50, 70), shifts, strict=True)],
        ]
        over = ("solver", "K", "n")
        counts = {"successes": (over, np.array(curves)), "trials": (over, np.full((2, 2, 10), 100))}
        return xarray.Dataset(counts, {"solver": ["IHT-1", "PGD"], "K": [2, 4], "n": n})

    judged = [shen.fewer_measurements(rates(*shifts), None) for shifts in ((20, 20), (20, -20), (-20, -20))]
    assert [found.verdict for found in judged] == [Verdict.HOLDS, Verdict.IN_PART, Verdict.DOES_NOT_HOLD]
    assert "at 1 of 2 sparsities, more at 1" in judged[1].ours


def test_a_paper_is_reproduced(tmp_path, monkeypatch):
    """Runs once, draws, judges; runs again only where a number of the configuration has changed."""
    folder = tmp_path / "configs" / "yuan2018"
    folder.mkdir(parents=True)
    path = tiny("yuan2018/figure1", folder)
    judge = Claim(
        "factors are not negative",
        "",
        lambda results, config: Finding("all", Verdict.of(bool(results.mu_1.min() >= 0))),
    )
    about = Paper(
        "A paper, 2018", [Section("Figure 1", "figure1", [judge]), Section("Table 1", None, [Claim("a", "b", "c")])]
    )
    monkeypatch.chdir(tmp_path)
    for name, value in {"CONFIGS": tmp_path / "configs", "REPORT": tmp_path / "report", "ROOT": tmp_path}.items():
        monkeypatch.setattr(report, name, value)
    monkeypatch.setattr(report, "paper", lambda name: about)
    monkeypatch.setattr(report, "NAMES", ("yuan2018",))

    def reproduce():
        result = CliRunner().invoke(main, ["reproduce"], catch_exceptions=False)
        assert not result.exit_code, result.output
        return (tmp_path / "report" / "yuan2018.md").read_text(encoding="utf-8")

    (tmp_path / "report").mkdir()
    report.write()
    assert report.NOT_RUN in (tmp_path / "report" / "yuan2018.md").read_text(encoding="utf-8")
    page = reproduce()
    assert "| factors are not negative | not printed | all | *holds* |" in page and report.NOT_RUN not in page
    data = tmp_path / "report" / "data" / "yuan2018-figure1.nc"
    kept = xarray.load_dataset(data, engine="h5netcdf")
    assert kept.mu_1.dtype == np.float32 and json.loads(kept.attrs["config"])["num_points"] == 5
    assert (tmp_path / "report" / "images" / "yuan2018-figure1.png").read_bytes().startswith(b"\x89PNG")
    assert "1 × *holds*" in (tmp_path / "report" / "index.md").read_text(encoding="utf-8")

    written = data.stat().st_mtime_ns
    table = path.read_text(encoding="utf-8")
    path.write_text(table.replace('title = "', 'title = "Other: '), encoding="utf-8")
    assert "Other: " in reproduce() and data.stat().st_mtime_ns == written
    path.write_text(table.replace("num_points = 5", "num_points = 7"), encoding="utf-8")
    report.write()
    assert report.NOT_RUN in (tmp_path / "report" / "yuan2018.md").read_text(encoding="utf-8")
    reproduce()
    assert xarray.load_dataset(data, engine="h5netcdf").sizes["kappa"] == 7
