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
PARTS = re.findall(
    r"### A (\S+?)(?: solver)?: (\d+) concepts, (\d+) lines\n.*?```python\n(.*?)```",
    TEXT,
    re.DOTALL,
)
MOST = {"full-gradient": 8, "pursuit": 10, "greedy": 12, "stochastic": 11}
EXAMPLES = [part for part in PARTS if part[0] in MOST]
OTHERS = {kind: part for kind, *part in PARTS if kind not in MOST}

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
    assert set(OTHERS) == {"loss", "constraint", "design"}


def statements(code):
    """Its lines but for imports and docstrings."""
    lines = (line.strip() for line in code.splitlines())
    return [line for line in lines if line and not line.startswith(("import", "from", '"""'))]


def example(kind):
    """What the code of a loss, a constraint or a design defines, once it is counted."""
    num_concepts, num_lines, code = OTHERS[kind]
    used = concepts("\n".join(re.findall(r"^from jaxht.*", code, re.M)))
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.FunctionDef):
            used.add(node.name)
        if isinstance(node, ast.Name) and node.id in ("k", "k_max", "shape", "dtype"):
            used.add(node.id)
    assert len(used) <= int(num_concepts), sorted(used)
    assert len(statements(code)) <= int(num_lines)
    namespace = {}
    exec(code, namespace)
    return namespace


def test_a_loss_is_added_as_said():
    LogCosh = example("loss")["LogCosh"]
    rng = np.random.default_rng(0)
    A = rng.normal(size=(80, 12)).astype(np.float32)
    y = A[:, 3] - 2 * A[:, 7] + 0.1 * rng.normal(size=80).astype(np.float32)
    f = LogCosh(A, y, 0.01)
    for solver in (jaxht.NIHT(), jaxht.HTP(), jaxht.LocalSearch(num_starts=2, num_moves=4)):
        result = jaxht.solve(f, jaxht.Sparse(2), solver)
        assert result.succeeded and result.support.numpy().tolist() == [3, 7]
        residual = A @ np.asarray(result.x) - y
        value = np.mean(np.log(np.cosh(residual))) + 0.005 * np.sum(np.square(result.x))
        np.testing.assert_allclose(result.value, value, rtol=1e-5)


def test_a_constraint_is_added_as_said():
    Burst = example("constraint")["Burst"]
    x = np.zeros(30, np.float32)
    x[11:15] = 2, -1, 3, 1
    A = np.asarray(ensembles.gaussian(jax.random.key(0), n=20, d=30))
    for solver in (jaxht.IHT(), jaxht.NIHT(), jaxht.HTP()):
        result = jaxht.solve(jaxht.LeastSquares(A, A @ x), Burst(4, 4), solver)
        assert result.succeeded
        np.testing.assert_allclose(result.x, x, atol=1e-3)
    # The nearest points: of all runs of two entries that of the largest sum of squares.
    point, support = Burst(2).project(np.float32([3, 0, -2, 2.5, 1]))
    np.testing.assert_array_equal(point, [0, 0, -2, 2.5, 0])
    np.testing.assert_array_equal(support.mask, [0, 0, 1, 1, 0])


def test_a_design_is_added_as_said():
    A = example("design")["Differences"]((30, 30))
    matrix = np.eye(30) - np.eye(30, k=-1)
    np.testing.assert_allclose(A.column_norms(), np.linalg.norm(matrix, axis=0), rtol=1e-6)
    x = np.zeros(30, np.float32)
    x[[4, 20]] = 2, -3
    f = jaxht.LeastSquares(A, np.float32(matrix @ x), mean=False)
    result = jaxht.solve(f, jaxht.Sparse(2), jaxht.HTP(step_size=0.3))
    np.testing.assert_allclose(result.x, x, atol=1e-4)


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
