"""The examples of the README run as they are printed, each by itself."""

import pathlib
import re

import jax
import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("all_quickly")
README = pathlib.Path(__file__).parents[1] / "README.md"


def test_examples(capsys, tmp_path, monkeypatch):
    """Signals are recovered, one and a thousand; what else is printed or stated there comes out."""
    monkeypatch.chdir(tmp_path)
    scopes = []
    for block in re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL):
        scopes.append({"__name__": "block"})
        exec(block, scopes[-1])
    first, many, sweep, training, best, running = scopes
    result = first["result"]
    assert result.value < 1e-8
    assert np.sum(result.support.mask) == 12
    assert "SUPPORT_STABLE" in capsys.readouterr().out
    x, ks = many["results"].x, many["ks"]
    assert (np.count_nonzero(x, axis=1) <= ks).all()
    assert (abs(x - many["signals"]).max(axis=1) < 1e-3).mean() > 0.9
    assert (
        sweep["results"].success.shape == (1, 3, 5, 200)
        and (tmp_path / "results" / "mine").is_dir()
    )
    params = jax.tree.leaves(training["params"])
    assert sum(map(np.count_nonzero, params)) == round(0.05 * sum(map(np.size, params)))
    assert best["result"].support.numpy().tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(best["S"].coefficients(best["result"].x)[:5], 1, rtol=1e-3)
    assert running["result"].support.size == 5 and running["history"].shape == (101,)
