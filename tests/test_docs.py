"""The examples of the documentation run as they are printed; its links and names lead somewhere."""

import functools
import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

import jaxht
import jaxht.extend
from benchmarks.first_hour import TASKS
from tests import built_docs, test_docstrings

pytestmark = pytest.mark.usefixtures("all_quickly")
ROOT = pathlib.Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(DOCS.glob("*.md")),
    *sorted(DOCS.glob("guides/*.md")),
]
# Pages whose tests say what comes out of their blocks (of the first hour, tests/test_first_hour.py:
# its blocks are the scripts); those of all other pages run.
TESTED = {
    "compiling.md",
    "derivatives.md",
    "estimators.md",
    "first_hour.md",
    "gallery.md",
    "optimum.md",
    "problems.md",
}
TESTED |= {"recipe.md"}
ALONE = [name for page in PAGES[2:] if (name := str(page.relative_to(DOCS))) not in TESTED]
GALLERY = sorted(DOCS.glob("gallery/*.py"))
FIRST_HOUR = {pathlib.Path(path).stem for path in TASKS.values()}


def examples(name):
    """The blocks of Python on a page."""
    return re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(encoding="utf-8"), re.DOTALL)


def example(name):
    """The first of them."""
    return examples(name)[0]


def alone(code):
    """The variables that a block leaves, run by itself as it is printed."""
    scope = {"__name__": "block"}
    exec(code, scope)
    return scope


def test_the_recipe(tmp_path, monkeypatch, capsys):
    """A sweep of one's own: the solver works, and everything that is printed there is there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    script = example("recipe.md")
    assert (
        len(
            [
                line
                for line in script.splitlines()
                if line and not line.startswith(("import", "from"))
            ]
        )
        <= 30
    )
    scope = alone(script.replace("[24, 40, 56]", "[40, 56]"))  # each n is compiled
    results, rates = scope["results"], scope["rates"]
    assert {"success", "worst", "status", "num_steps", "done"} <= set(results)
    easy = rates.rate.sel(n=56, K=1)
    assert (easy >= 0.9).all(), easy
    np.testing.assert_array_equal(results.worst.where(results.success, 0) < 1e-3, True)
    assert "estimate" in capsys.readouterr().out
    assert (tmp_path / "results" / "mine" / "rates.png").read_bytes().startswith(b"\x89PNG")


def test_sparse_training():
    scope = alone(example("training.md"))
    kept, total = (
        sum(map(count, scope["params"].values())) for count in (np.count_nonzero, np.size)
    )
    assert kept == round(0.05 * total)
    np.testing.assert_allclose(scope["report"].total, 1 - kept / total, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "block"), [(name, i) for name in ALONE for i in range(len(examples(name)))]
)
def test_blocks_run_alone(name, block):
    """As they are printed; those that change the configuration of JAX do so in a process of their
    own."""
    code = examples(name)[block]
    for package in ("pylops", "scico"):  # which the environment of the tests need not have
        if f"import {package}" in code:
            pytest.importorskip(package)
    if "jax.config" not in code:
        alone(code)
    else:
        subprocess.run(
            [sys.executable, "-c", code.replace("/tmp/compiled", "/dev/null")], check=True
        )


@pytest.mark.parametrize(
    "page", [page for page in GALLERY if page.stem not in FIRST_HOUR], ids=lambda page: page.stem
)
def test_the_gallery_runs(page, monkeypatch):
    """Every page from top to bottom; it leaves a picture. Those of the first hour:
    tests/test_first_hour.py."""
    import matplotlib.pyplot as plt

    monkeypatch.setenv("MPLBACKEND", "agg")
    plt.close("all")
    scope = {"__name__": "page"}
    exec(compile(page.read_text(encoding="utf-8"), page, "exec"), scope)
    if page.stem in CLAIMS:
        CLAIMS[page.stem](scope)
    assert plt.get_fignums() or (page.stem == "genes" and not os.environ.get("JAXHT_DATA"))
    plt.close("all")


def check_phantom(scope):
    """What the page says comes out, of random coefficients and of radial lines."""
    assert np.sum(np.abs(scope["W"].H @ scope["image"].ravel().astype(complex)) > 1e-4) == 3718
    assert [scope["lines"].shape[0], scope["rows"].size] == [77 * 256, 19660]
    random, radial = (
        {name: scope["psnr"][kind, name] for name in ("lasso", "CGIHT")} for kind in scope["F"]
    )
    assert random["CGIHT"] > 120 and 65 < random["lasso"] < 80
    assert 55 < radial["CGIHT"] < 65 and 46 < radial["lasso"] < 54


def check_channel(scope):
    """The losses at 20 dB against least squares on the true taps, and who is first at 0 dB."""
    every, true, lasso, omp, htp = (
        np.asarray(scope["decibels"][name])
        for name in (
            "least squares, all taps",
            "least squares, true taps",
            "lasso",
            "OMP, to the noise",
            "HTP, k = 8",
        )
    )
    assert (abs(htp - true)[:, 4] < 0.5).all()
    assert ((1.5 < omp - true) & (omp - true < 4.5))[:, 4].all()
    assert ((4.5 < lasso - true) & (lasso - true < 7.5))[:, 4].all()
    assert (every > lasso).all() and (true <= np.minimum(htp, omp) + 0.1).all()
    assert (lasso < omp)[:, 0].all() and lasso[1, 0] < htp[1, 0] and htp[0, 0] < lasso[0, 0]


def check_one_bit(scope):
    """How errors fall with the number of signs, and who is first with and without wrong ones."""
    names = ("one back-projection", "least squares, HTP", "BIHT", "BIHT, 30 steps of a tenth")
    once, squares, biht, few = (np.asarray(scope["medians"][name]) for name in names)
    assert (biht[0] < few[0]).all() and (biht[0] < squares[0]).all() and (squares < once).all()
    assert biht[0, 0] / biht[0, -1] > 25 and 4 < once[0, 0] / once[0, -1] < 8
    assert biht[1].min() > 0.4 and max(few[1, -1], squares[1, -1]) < 0.1 < once[1].min()


def check_fitness(scope):
    """The number of coefficients; what is left at 200 and more, and the order at 100."""
    assert scope["interacts"].sum() == 41 and (scope["order"][scope["interacts"]] <= 3).all()
    omp, lasso, pairs = scope["medians"].values()
    assert (omp[3:] > 0.99).all() and (omp[3:] > lasso[3:]).all() and (pairs < 0.8).all()
    assert omp[1] < 0.25 and omp[1] < lasso[1] < pairs[1]


CLAIMS = {
    "phantom": check_phantom,
    "channel": check_channel,
    "one_bit": check_one_bit,
    "fitness": check_fitness,
}


@pytest.mark.parametrize("page", GALLERY, ids=lambda page: page.stem)
def test_pages_of_the_gallery_are_short(page):
    """And in the navigation."""
    code = page.read_text(encoding="utf-8")
    assert code.startswith("# %% [markdown]\n# # ") and 25 <= len(code.splitlines()) <= 65
    assert f"gallery/{page.name}" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


@pytest.mark.parametrize("block", range(11))
def test_misprints(block):
    """The evidence of each: blocks stand alone, and are numbered as the page refers to them."""
    blocks = examples("report/misprints.md")
    assert len(blocks) == 11 and blocks[block].startswith(f"# {block + 1}. ")
    exec(blocks[block], {})


def test_misprints_name_tests():
    text = (DOCS / "report" / "misprints.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/\w+\.py)::(\w+)`", text)
    assert len(named) > 8
    for file, name in named:
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), name


def test_the_best_support(monkeypatch):
    """Proved, with its bounds against time, and the supports that are nearly as good."""
    monkeypatch.setenv("MPLBACKEND", "agg")
    first, bounds, others = map(alone, examples("optimum.md"))
    best, near = first["best"], others["near"]
    assert best.status.name == "OPTIMAL"
    np.testing.assert_array_equal(near.solutions[0].items, best.solutions[0].items)
    assert all(s.value <= 1.01 * best.value for s in near.solutions)
    assert len(bounds["axes"].lines) == 2


def test_derivatives():
    """Samples that are wrong lose their weight, the layer learns, and influence is what leaving out
    does."""
    pytest.importorskip("equinox")
    trust, layer, influence = map(alone, examples("derivatives.md"))
    assert trust["losses"][-1] < 0.2 * trust["losses"][0]
    assert trust["trust"][trust["wrong"]].mean() < 0.3 < trust["trust"][~trust["wrong"]].mean()
    assert layer["layer_losses"][-1] < 0.05 * layer["layer_losses"][0]
    assert (
        len(influence["chosen"]) == 5
        and influence["same"].mean() > 0.9
        and min(influence["agreement"]) > 0.999
    )


def test_estimators(monkeypatch):
    """What is printed there comes out."""
    monkeypatch.setenv("MPLBACKEND", "agg")
    scopes = list(map(alone, examples("estimators.md")))
    (
        best,
        how_many,
        how_sure,
        certified,
        known,
        beside,
        gamma,
        ordered,
        survival,
        classes,
        pipelines,
        lasso,
    ) = scopes
    names = best["X"].columns
    assert names[best["model"].support_].tolist() == ["sex", "bmi", "bp", "s3", "s5"]
    assert round(best["model"].score(best["X"], best["y"]), 3) == 0.509
    assert how_many["chosen"].k_ == 6 and len(how_many["display"].lines_) == 1
    frequencies = dict(zip(names, how_sure["display"].frequencies, strict=True))
    assert min(frequencies[name] for name in ("bmi", "bp", "s5")) > 0.95
    assert all(0.4 < frequencies[name] < 0.6 for name in ("s1", "s3"))
    bounds = certified["ridge"].certificate_
    assert bounds.lower <= bounds.value <= 1.013 * bounds.lower
    assert names[known["model"].support_].tolist() == ["age", "sex", "bmi"]
    assert names[beside["rest"].support_].tolist() == ["bmi", "s5"]
    for model in gamma["gamma"], ordered["ordered"]:
        assert names[model.support_].tolist() == ["bmi", "bp", "s3", "s5"]
    assert round(gamma["gamma"].score(gamma["X"], gamma["y"]), 3) == 0.446
    np.testing.assert_allclose(ordered["ordered"].thresholds_, [11.28, 12.86, 14.57], atol=0.006)
    # Kleinbaum & Klein 2012, Survival Analysis, chapter 3, has these coefficients.
    np.testing.assert_allclose(survival["survival"].coef_, [1.604, -1.294], atol=6e-4)
    assert classes["classifier"].support_.sum() == 4
    assert pipelines["search"].best_score_ > 0.92
    assert np.count_nonzero(lasso["lasso"][-1].coef_) > lasso["chosen"].k_ == how_many["chosen"].k_


def test_the_gallery(tmp_path, monkeypatch):
    """Every estimator has a picture, which is drawn by what stands there, on the page or on that of
    the estimators."""
    monkeypatch.setenv("MPLBACKEND", "agg")
    source = importlib.util.spec_from_file_location("pictures", DOCS / "pictures.py")
    pictures = importlib.util.module_from_spec(source)
    source.loader.exec_module(pictures)
    scope = pictures.draw(DOCS / "gallery.md", tmp_path)
    drawn = {path.name for path in tmp_path.iterdir()}
    assert drawn | {"gallery-cox.png"} == {
        path.name for path in (DOCS / "images").glob("gallery-*.png")
    }
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in drawn)
    text = (DOCS / "gallery.md").read_text(encoding="utf-8")
    fitted = [
        name for name in vars(jaxht.sklearn) if name[0] in "LRS" and not name.endswith("Display")
    ]
    assert len(fitted) == 10 and all(f"{name}" in text for name in fitted)
    assert (
        scope["best"] == "Waist" and scope["classifier"].score(scope["cells"], scope["kind"]) > 0.92
    )
    assert np.count_nonzero(scope["graph"].support_) == 40
    assert (
        np.count_nonzero(scope["tasks"].support_) == 2
        and np.linalg.matrix_rank(scope["rank"].coef_) == 1
    )
    assert scope["sure"].frequencies[[2, 3, 8]].min() > 0.95


def test_problems():
    """What is printed there comes out."""
    scopes = list(map(alone, examples("problems.md")))
    first, scaled, matrices, samples, graphs, which, by_criterion, stable, proved = scopes
    assert set(first["result"].support.indices.tolist()) == {0, 1, 2, 3, 4}
    assert first["check"].stationarity < 1e-4 and first["check"].swap_gain < 1e-5
    f, x, y, standardized = (scaled[name] for name in ("f", "x", "y", "S"))
    residual = scaled["A"] @ standardized.coefficients(x) + standardized.intercept(x, y.mean()) - y
    np.testing.assert_allclose(np.mean(residual**2) / 2, f.value(x, f.predict(x)), rtol=1e-4)
    truth = matrices["L"] @ matrices["R"].T
    assert np.linalg.norm(matrices["result"].x - truth) < 1e-4 * np.linalg.norm(truth)
    assert samples["result"].counts.projections > 0
    assert graphs["choice"].k == 19 and ((graphs["W"] != 0) == (graphs["chain"] != 0)).all()
    assert which["choice"].k == 5 and which["choice"].losses.shape == (5, 5)
    assert by_criterion["choice"].criteria.shape == (11,) and by_criterion["choice"].k == 6
    assert np.flatnonzero(stable["found"].frequencies >= 0.9).tolist() == [0, 1, 2, 3, 4]
    assert stable["found"].expected_false(0.9) < 0.28
    assert proved["proof"].gap < 1e-4 * proved["proof"].value
    assert proved["result"].status == jaxht.Status.GAP_CLOSED


def test_compiling(tmp_path):
    """What was compiled ahead of time finds the solution, and refuses other shapes."""
    kept, ahead, exported = examples("compiling.md")
    code = kept.replace("/tmp/compiled", str(tmp_path / "kept"))
    code += "import jax\nprint(jax.config.jax_compilation_cache_dir)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.strip() == str(tmp_path / "kept") and (tmp_path / "kept").is_dir()
    for scope in map(alone, (ahead, exported)):
        np.testing.assert_allclose(scope["x"], np.arange(256) < 5, atol=1e-5)
        with pytest.raises(TypeError, match="100,256"):
            scope["run"](scope["A"][:50], scope["y"][:50], np.int32(5))


# ---- links and names -----------------------------------------------------------------------------


def prose(page):
    """The text of a page without its blocks of code."""
    return re.sub(
        r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )


def anchors(page):
    """What a link may name after #: headings, as Markdown spells them there, and the objects of the
    reference."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    found = [
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    ]
    return found + re.findall(r"^::: ([\w.]+)$", prose(page), re.MULTILINE)


def broken_links(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        name, _, anchor = target.partition("#")
        if not re.match(r"\w+:", name):
            other = page.parent / name if name else page
            if not other.exists() or (anchor and anchor not in anchors(other)):
                yield target


@pytest.fixture(params=PAGES, ids=lambda page: page.name)
def page(request):
    return request.param


def test_headings_are_unique(page):
    """Two headings of one name are one anchor, which is the first."""
    assert len(set(anchors(page))) == len(anchors(page)), sorted(anchors(page))


def test_links_lead_somewhere(page):
    broken = list(broken_links(page))
    assert not broken, broken


def test_names_exist(page):
    """Names under `jaxht.` can be read from the package, and files named are there."""
    text = page.read_text(encoding="utf-8")
    missing = []
    for name in set(re.findall(r"(?<![\w/'\".-])jaxht((?:\.[A-Za-z_]\w*)+)", text)):
        try:
            functools.reduce(getattr, name[1:].split("."), jaxht)
        except AttributeError:
            missing.append(f"jaxht{name}")
    folders = "jaxht|tests|experiments|benchmarks|docs|examples|configs|requirements"
    for name in set(re.findall(rf"(?<![\w/.])(?:{folders})/[\w/-]*(?:\.\w+)?", text)):
        if not (ROOT / name).exists():
            missing.append(name)
    assert not missing, missing


def test_broken_pages_are_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A b\n# A b\n[x](#a-b) [y](#c) [z](nowhere.md) [w](https://w.org/x) [v](page.md#c)\n"
    )
    assert anchors(page) == ["a-b", "a-b"]
    assert list(broken_links(page)) == ["#c", "nowhere.md", "page.md#c"]


def test_leftovers_of_markup_are_seen(tmp_path):
    """In what is read, not in code and formulas; elements that are not closed hide nothing after
    their parent."""
    page = "<p>as <code>:class:`A`</code>, <span class='arithmatex'>$x^2$</span> and $PATH<br>\n"
    page += "<b>$\\eta$<pre>.. math::</pre></p>"
    assert list(built_docs.leftovers(page)) == [(2, r"$\eta$")]
    for text in ":func:`f`", ".. math::", "$x^t$", "$x^{t", "[a](b.md#c)":
        assert len(list(built_docs.leftovers(f"<pre>a</pre><li><p>{text}"))) == 1, text
    diagram = tmp_path / built_docs.PHASE_DIAGRAM
    diagram.parent.mkdir(parents=True)
    diagram.write_text("<pre>recovery: 100%|██| 600/600</pre>\n" * 2, encoding="utf-8")
    (tmp_path / "page.html").write_text(page)
    with pytest.raises(SystemExit, match="1"):
        built_docs.main(str(tmp_path))
    (tmp_path / "page.html").write_text("<p>$PATH</p>")
    built_docs.main(str(tmp_path))


@pytest.mark.parametrize("bars", [["100%"], ["100%", "99%"], ["100%"] * 3, None], ids=str)
def test_progress_bars_that_did_not_end_are_seen(bars, tmp_path, capsys):
    """Too few, too many, or no such page."""
    (tmp_path / "page.html").write_text("<p>text</p>")
    if bars:
        diagram = tmp_path / built_docs.PHASE_DIAGRAM
        diagram.parent.mkdir(parents=True)
        diagram.write_text("\n".join(f"<pre>recovery: {bar}</pre>" for bar in bars))
    with pytest.raises(SystemExit, match="1"):
        built_docs.main(str(tmp_path))
    assert "progress bars" in capsys.readouterr().out


def test_the_reference_has_all_public_names():
    text = (DOCS / "reference.md").read_text(encoding="utf-8")
    source = importlib.util.spec_from_file_location("site_pages", DOCS / "site.py")
    site = importlib.util.module_from_spec(source)
    source.loader.exec_module(site)
    listed = [name for names in site.sections(text).values() for name in names]
    assert len(set(listed)) == len(listed)
    modules = {
        name for name in re.findall(r"^\* `(.+?)`", text, re.MULTILINE) if name not in listed
    }
    absent = [
        n for n in test_docstrings.PUBLIC if n not in listed and n not in modules and "." in n
    ]
    assert absent == []


def test_the_home_page_opens_as_the_readme_does():
    readme = re.search(
        r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    assert example("index.md") == readme[1]
