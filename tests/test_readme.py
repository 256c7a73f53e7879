"""The examples of the README run as they are printed."""

import pathlib
import re

import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("all_quickly")
README = pathlib.Path(__file__).parents[1] / "README.md"


def test_examples(capsys):
    """The first recovers its signal, the second the signals of many problems, each with its own k."""
    first, many = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)[:2]
    scope = {}
    exec(first, scope)
    result = scope["result"]
    assert result.value < 1e-8
    assert np.sum(result.support.mask) == 12
    assert "support repeated" in capsys.readouterr().out
    scope |= {"ys": np.stack([scope["y"], 2 * scope["y"]]), "ks": np.array([12, 32])}
    exec(many, scope)
    np.testing.assert_allclose(scope["results"].x[0], result.x, atol=1e-4)
    assert (np.count_nonzero(scope["results"].x, axis=1) <= scope["ks"]).all()
