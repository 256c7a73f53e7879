"""The examples of the documentation run as they are printed."""

import pathlib
import re

import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("all_quickly")
DOCS = pathlib.Path(__file__).parents[1] / "docs"


def examples(name):
    """The blocks of Python on a page."""
    return re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(encoding="utf-8"), re.DOTALL)


def example(name):
    """The first of them."""
    return examples(name)[0]


def test_the_recipe(tmp_path, monkeypatch, capsys):
    """A sweep of one's own: the solver works, and everything that is printed there is there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    script = example("recipe.md")
    assert len([line for line in script.splitlines() if line and not line.startswith(("import", "from"))]) <= 30
    scope = {}
    exec(script.replace("[24, 40, 56]", "[40, 56]"), scope)  # each n is compiled
    results, rates = scope["results"], scope["rates"]
    assert {"success", "worst", "status", "num_steps", "done"} <= set(results)
    easy = rates.rate.sel(n=56, K=1)
    assert (easy >= 0.9).all(), easy
    np.testing.assert_array_equal(results.worst.where(results.success, 0) < 1e-3, True)
    assert "estimate" in capsys.readouterr().out
    assert (tmp_path / "results" / "mine" / "rates.png").read_bytes().startswith(b"\x89PNG")


def test_sparse_training():
    scope = {}
    exec(example("training.md"), scope)
    kept, total = (sum(map(count, scope["params"].values())) for count in (np.count_nonzero, np.size))
    assert kept == round(0.05 * total)
    np.testing.assert_allclose(scope["report"].total, 1 - kept / total, rtol=1e-6)


def test_problems():
    """Those of the page go on from each other."""
    scope = {}
    first, matrices, samples, graphs, which, proved = examples("problems.md")
    exec(first, scope)
    assert set(scope["result"].support.indices.tolist()) == {0, 1, 2, 3, 4}
    assert scope["check"].stationarity < 1e-4 and scope["check"].swap_gain < 1e-5
    exec(matrices, scope)
    truth = scope["L"] @ scope["R"].T
    assert np.linalg.norm(scope["result"].x - truth) < 1e-4 * np.linalg.norm(truth)
    exec(samples, scope)
    assert scope["result"].counts.projections > 0
    exec(graphs, scope)
    assert scope["choice"].k == 19 and ((scope["W"] != 0) == (scope["chain"] != 0)).all()
    exec(which, scope)
    assert scope["choice"].k == 5 and scope["choice"].losses.shape == (5, 5)
    exec(proved, scope)
    assert scope["proof"].gap < 1e-4 * scope["proof"].value
    assert scope["result"].status == scope["jaxht"].Status.GAP_CLOSED
