"""What a new user does first finds what it should: the scripts and pages of
benchmarks/first_hour.py."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import nbclient
import nbformat
import numpy as np
import pytest

from benchmarks.first_hour import TASKS, count_lines

pytestmark = pytest.mark.usefixtures("all_quickly")
ROOT = Path(__file__).parents[1]


@pytest.fixture
def scope(request, monkeypatch):
    """The names of the script that a test is called after, once it has run; a page of the gallery
    leaves a picture."""
    monkeypatch.setenv("MPLBACKEND", "agg")
    (path,) = (
        path
        for path in TASKS.values()
        if Path(path).stem == request.node.name.removeprefix("test_")
    )
    plt.close("all")
    names = runpy.run_path(str(ROOT / path))
    assert plt.get_fignums() or not path.startswith("docs/gallery")
    plt.close("all")
    return names


def test_genes(scope):
    np.testing.assert_array_equal(scope["genes"], scope["truth"])
    assert scope["k"] == 10 and scope["choice"].k_ >= 10 and scope["score"] > 0.95
    # Refitted: least squares on the ten genes and an intercept.
    X, y, train = scope["X"], scope["y"], scope["train"]
    A = np.column_stack([np.ones(150), X[train][:, scope["genes"]]])
    known = np.linalg.lstsq(A, y[train], rcond=None)[0]
    model = scope["model"]
    np.testing.assert_allclose(
        [model.intercept_, *model.coef_[scope["genes"]]], known, rtol=1e-4, atol=1e-4
    )


def test_documents(scope):
    assert np.isin(scope["found"], scope["truth"]).all() and len(scope["found"]) == 8
    share = scope["spam"][scope["test"]].mean()
    means = {name: p.mean() for name, p in scope["probabilities"].items()}
    assert abs(means["plain"] - share) < 0.02 and abs(means["balanced, with offset"] - share) < 0.03
    assert means["balanced"] > 2 * share
    # On classes of equal size the probabilities of the balanced fit have the mean 1/2.
    spam, p = scope["spam"][scope["test"]], scope["probabilities"]["balanced"]
    assert abs((p[spam].mean() + p[~spam].mean()) / 2 - 0.5) < 0.03


def test_pipeline(scope):
    best = scope["search"].best_params_
    assert set(best) == set(scope["grid"]) and len(scope["selected"]) == best["select__k"]
    assert set(scope["selected"]) <= set(scope["X"].columns) and scope["score"] > 0.92


def test_image(scope):
    """Not far from the best that as many coefficients can be."""
    psnr, best = scope["psnr"]
    np.testing.assert_allclose(
        psnr, -10 * np.log10(np.mean((scope["recovered"] - scope["image"]) ** 2)), rtol=1e-4
    )
    assert psnr > 20.5 and psnr > best - 4, (psnr, best)


def test_phase_diagram(capsys, scope):
    """The rate falls with the sparsity, and what was there when the second call began is not
    computed again."""
    assert capsys.readouterr().err.count(" 1200/1200 ") == 2
    rates = scope["rates"].rate
    assert (rates.sel(n=64, K=2) > 0.8).all() and (rates.sel(n=16, K=24) < 0.1).all()
    assert (scope["results"].num_trials == 50).all() and scope["results"].done.all()


def test_a_notebook_shows_one_bar(monkeypatch):
    """The page as it is executed in a notebook: each sweep is one output of its cell, which ends at
    100 %."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("MPLBACKEND", raising=False)  # as a notebook starts its own
    page = (ROOT / "docs/gallery/phase_diagram.py").read_text(encoding="utf-8")
    page = page.replace("[16, 32, 48, 64]", "[16, 64]")  # each n is compiled
    blocks = re.findall(r"^# %%\n(.*?)(?=^# %%|\Z)", page, re.DOTALL | re.MULTILINE)
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(block) for block in blocks]
    )
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    for cell in notebook.cells[:2]:
        (output,) = cell.outputs  # no warning, and no second bar
        assert re.match(r"recovery: 100%\|█+\| 600/600 ", output.data["text/plain"])
    assert any("image/png" in output.get("data", {}) for output in notebook.cells[2].outputs)


def test_bootstrap(scope):
    masks = np.asarray(scope["found"].results.support.mask)
    assert (
        masks.shape == (500, 10) and (masks.sum(axis=1) == 5).all() and scope["counts"].sum() == 500
    )
    most = scope["supports"][scope["counts"].argmax()]
    assert scope["X"].columns[most].tolist() == [
        "sex",
        "bmi",
        "bp",
        "s3",
        "s5",
    ]  # that of all samples
    assert scope["counts"].max() > 150


def test_gradients(scope):
    np.testing.assert_allclose(scope["by_l2"], scope["difference_l2"], rtol=0.02)
    np.testing.assert_allclose(np.linalg.norm(scope["by_y"]), scope["difference_y"], rtol=0.02)


def test_claims(scope):
    assert scope["features"].tolist() == [2, 11, 23] and abs(scope["model"].intercept_ + 1.5) < 0.1
    np.testing.assert_allclose(scope["model"].coef_[scope["features"]], [0.5, -0.4, 0.3], atol=0.1)
    assert abs(scope["expected"].sum() / scope["claims"][scope["test"]].sum() - 1) < 0.1
    np.testing.assert_allclose(
        scope["a_year"] * scope["years"][scope["test"]], scope["expected"], rtol=1e-5
    )


def test_lorenz(capsys, scope):
    found = [line.split(" = ")[1] for line in capsys.readouterr().out.splitlines()]
    terms = [
        {term.strip(): float(c) for c, term in re.findall(r"([+-][\d.]+) ([^+-]+)", line)}
        for line in found
    ]
    true = [{"x": -10, "y": 10}, {"x": 28, "y": -1, "x z": -1}, {"z": -8 / 3, "x y": 1}]
    for equation, known in zip(terms, true, strict=True):
        assert equation.keys() == known.keys()
        for term in known:
            np.testing.assert_allclose(
                equation[term], known[term], atol=0.05 * abs(known[term]) + 0.02
            )


def test_sparse_classifier(scope):
    assert scope["same"] and scope["accuracy"] > 0.93
    np.testing.assert_allclose(scope["sparsity"], 0.95, atol=1e-3)
    for name, weights in scope["params"].items():
        np.testing.assert_array_equal(scope["restored"][name], weights)


def test_multi_output(scope):
    assert scope["selected"].tolist() == scope["features"]
    np.testing.assert_array_equal(
        scope["model"].coef_.any(axis=0), scope["model"].support_
    )  # rows, of d x targets
    assert scope["errors"][0] < 0.7 * scope["errors"][1]


def test_moments(tmp_path):
    """A fifth of the memory that is allowed, and whatever the number of samples; here a tenth of
    them."""
    page = (
        (ROOT / "docs/gallery/moments.py")
        .read_text(encoding="utf-8")
        .replace("count=250", "count=25")
    )
    peak = """
assert plt.get_fignums()
try:  # of this program; getrusage of a child counts what its parent had
    from pathlib import Path
    peak = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
except OSError:
    import resource
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(peak)
"""
    (tmp_path / "page.py").write_text(page + peak, encoding="utf-8")
    env = os.environ | {"PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"}
    command = [sys.executable, tmp_path / "page.py"]
    output = subprocess.run(
        command, env=env, stdout=subprocess.PIPE, text=True, check=True
    ).stdout.splitlines()
    assert output[0] == f"250000 samples; k = 10 by BIC: {np.arange(0, 200, 20)}"
    assert int(output[-1]) < 1e9


# ---- the table -----------------------------------------------------------------------------------


def test_the_page_has_all_tasks_with_their_lines():
    text = (ROOT / "docs/first_hour.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in text.splitlines()
        if line.startswith("| ")
    ]
    assert [(re.sub(r"\[(.*?)\]\(.*?\)", r"\1", row[0]), row[2]) for row in rows[1:]] == [
        (task, str(count_lines(path))) for task, path in TASKS.items()
    ]
    scripts = {
        f"examples/first_hour/{path.name}"
        for path in (ROOT / "examples/first_hour").glob("[a-z]*.py")
    }
    assert scripts == {path for path in TASKS.values() if path.startswith("examples")}
    assert all(f'--8<-- "{path}"' in text for path in scripts)
    assert all(15 <= count_lines(path) <= 50 for path in TASKS.values())
