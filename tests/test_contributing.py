"""A solver of each kind is added as CONTRIBUTING says, in the number of lines and of concepts that
it says."""

import ast
import re
from pathlib import Path

import jax
import numpy as np
import pytest

import jaxht
from jaxht import ensembles

pytestmark = pytest.mark.usefixtures("all_quickly")

TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(
    r"### A (\S+?)(?: solver)?: (\d+) concepts, (\d+) lines\n.*?```python\n(.*?)```",
    TEXT,
    re.DOTALL,
)
MOST = {"full-gradient": 8, "pursuit": 10, "greedy": 12, "stochastic": 12}

# What is read off these, or called on them, is a concept; the fields of an iterate are one with it.
OWNERS = {"objective", "batch", "constraint", "iterate", "cycles", "CycleDetector"}
SAME = {
    "x": "iterate",
    "pred": "iterate",
    "Iterate": "iterate",
    "init": "CycleDetector",
    "update": "CycleDetector",
}
NOT_JAXHTS = {"k"}


def concepts(code):
    """Names of jaxht that a solver uses."""
    tree, found = ast.parse(code), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("jaxht"):
            found |= {SAME.get(alias.name, alias.name) for alias in node.names}
        if isinstance(node, ast.Attribute):
            owner = (
                node.value.attr
                if isinstance(node.value, ast.Attribute)
                else getattr(node.value, "id", None)
            )
            if owner in OWNERS:
                found.add(SAME.get(node.attr, node.attr))
        if isinstance(node, ast.Name) and node.id in ("fixed_point_test", "needs_key"):
            found.add(node.id)
    return found - NOT_JAXHTS


def test_every_kind_is_there():
    assert {kind for kind, *_ in EXAMPLES} == set(MOST)


@pytest.mark.parametrize(
    ("kind", "num_concepts", "num_lines", "code"), EXAMPLES, ids=[e[0] for e in EXAMPLES]
)
def test_a_solver_is_added_as_said(kind, num_concepts, num_lines, code):
    lines = [
        line
        for line in code.splitlines()
        if line.strip() and not line.startswith(("import", "from"))
    ]
    assert len(lines) <= int(num_lines)
    used = concepts(code)
    assert len(used) <= int(num_concepts) <= MOST[kind], sorted(used)

    namespace = {}
    exec(code, namespace)
    solver = namespace[re.search(r"class (\w+)", code)[1]]
    key = jax.random.key(0)
    A = ensembles.gaussian(key, n=60, d=80)
    x = ensembles.gaussian_signal(jax.random.key(1), d=80, K=4)
    objective = jaxht.LeastSquares(A, A @ x, mean=kind == "stochastic")
    options = {"key": key} if solver.needs_key else {}
    k = 8 if kind == "stochastic" else 4
    result = jaxht.solve(objective, jaxht.Sparse(k), solver(), **options)
    assert np.count_nonzero(result.x) <= k
    assert float(result.value) < 0.1 * float(
        objective.value(np.zeros(80, np.float32), np.zeros(60, np.float32))
    )
    assert int(result.num_steps) >= 1 and int(result.counts.ifo) >= 60
    if kind != "stochastic":
        assert result.succeeded
