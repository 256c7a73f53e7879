import pathlib
import re

import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("all_quickly")
README = pathlib.Path(__file__).parents[1] / "README.md"


def test_the_first_example_recovers_its_signal(capsys):
    """The README's first block, as printed there."""
    example = re.search(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL).group(1)
    scope = {}
    exec(example, scope)
    result = scope["result"]
    assert result.value < 1e-8
    assert np.sum(result.support.mask) == 12
    assert "support repeated" in capsys.readouterr().out
