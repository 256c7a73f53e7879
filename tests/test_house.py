"""The rules of the house, read off the source files alone: nothing is imported, nothing runs.

A rule is a function of a `File` that yields (line, what is wrong). To allow something new, change a table below.
"""

import ast
import os
import re
import textwrap
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SEARCHED = ("jaxht", "experiments", "benchmarks", "tests", "docs")  # for .py files
TEXT = {".py", ".toml", ".md", ".txt", ".yml", ".yaml", ".cfg", ".ini", ".sh", ".ipynb", ""}
SKIPPED = {"results", "build", "dist", "site", "__pycache__"}  # and hidden folders, but for two
MAX_LINES = 300

# A module of jaxht imports only from those before it.
ORDER = [
    "tree",
    "selection",
    "support",
    "factored",
    "svd",
    "subspace",
    "projections",
    "bounds",
    "losses",
    "linear",
    "spectral",
    "objectives",
    "constraints",
    "duality",
    "status",
    "solver",
    "solvers",
    "solve",
    "path",
    "validation",
    "optimality",
    "certificate",
    "transforms",
    "ensembles",
    "metrics",
    "sweep",
]

# Inside a folder the same holds for the files named here, base first; the others may import these, not each other.
SIBLINGS = {
    "losses": ["loss"],
    "linear": ["dense", "chunks", "rows", "sparse", "operator"],
    "constraints": ["constraint"],
    "objectives": [
        "newton",
        "basis",
        "objective",
        "restricted",
        "covariance_selection",
        "linear_model",
        "least_squares",
        "custom",
    ],
    "solvers": ["base", "sampling", "omp"],
    "transforms": ["base", "scope"],
    "sweep": ["grid", "trials", "lanes", "pool", "provenance", "store", "plan"],
}

# (a dotted name in full, with "()" where it is called; where it is looked for; where it may stand)
HOMES = [
    (r"(?!numpy\.|jaxht\.).+\.(top_k|sort|argsort|bitcast_convert_type)", "jaxht/", ["jaxht/selection.py"]),
    (r".+\.step\(\)", "jaxht/", ["jaxht/solve.py"]),
    (
        r"jax\.jit",
        "jaxht/",
        [f"jaxht/{name}.py" for name in ("selection", "solve", "path", "optimality", "sweep/lanes")],
    ),
    (r"jax\.config", "jaxht/", []),
    (r".+\.register_dataclass", "jaxht/", []),  # see jaxht/tree.py
    (r"jax(lib)?\.(\w+\.)*_(?!_)\w+(\..+)?", "", []),
]

# Imported inside functions, and only by the sweep.
HEAVY = {"xarray", "matplotlib", "sklearn", "tqdm"}

# (a piece of text, where it may stand)
WORDS = [("shared" + "/data", [".ci/run"])]


class File:
    """One file of the repository, by its path from the root and its text."""

    def __init__(self, path: str, text: str) -> None:
        self.path, self.text = path, text
        self.is_library = path.startswith("jaxht/")
        self.parts = path.removesuffix(".py").split("/")

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(ast.parse(self.text))) if self.path.endswith(".py") else []

    @cached_property
    def imports(self) -> list[tuple[ast.stmt, str, str]]:
        """(statement, absolute dotted name, the name it gets here)"""
        found = []
        for node in self.nodes:
            if isinstance(node, ast.Import):
                found += [(node, a.name, a.asname or a.name.split(".")[0]) for a in node.names]
            elif isinstance(node, ast.ImportFrom):
                home = [*self.parts[: len(self.parts) - node.level]] if node.level else []
                home += [node.module] if node.module else []
                found += [(node, ".".join([*home, a.name]), a.asname or a.name) for a in node.names]
        return found

    @cached_property
    def uses(self) -> list[tuple[int, str]]:
        """(line, dotted name) of all that is imported, read or called; `x.sort()` of a local x is `x.sort`."""
        short = {name: full for _, full, name in self.imports if not full.startswith(f"{name}.")}

        def dotted(node: ast.AST) -> str:
            if isinstance(node, ast.Attribute):
                return f"{dotted(node.value)}.{node.attr}"
            return short.get(node.id, node.id) if isinstance(node, ast.Name) else "?"

        found = [(node.lineno, full) for node, full, _ in self.imports]
        found += [(n.lineno, dotted(n)) for n in self.nodes if isinstance(n, ast.Attribute | ast.Name)]
        return found + [(n.lineno, dotted(n.func) + "()") for n in self.nodes if isinstance(n, ast.Call)]


def imports_point_upwards(file: File) -> Iterator[tuple[int, str]]:
    if not file.is_library or file.path == "jaxht/__init__.py":
        return
    _, here, *rest = file.parts
    if here not in ORDER:
        yield 1, f"{here} has no place in ORDER"
        return
    for node, full, _ in file.imports:
        root, target, *names = [*full.split("."), "", ""]
        if root != "jaxht" or target.startswith("__"):
            continue
        if target not in ORDER:
            yield node.lineno, f"{full} is no module in ORDER"
        elif target != here:
            if ORDER.index(target) > ORDER.index(here):
                yield node.lineno, f"{here} stands before {target} in ORDER"
        elif rest != ["__init__"]:
            known = SIBLINGS.get(here, [])
            before = known[: known.index(rest[0])] if rest and rest[0] in known else known
            if names[0] not in before:
                yield node.lineno, f"{names[0] or full} does not stand before {file.path} in SIBLINGS"


def things_stay_home(file: File) -> Iterator[tuple[int, str]]:
    for pattern, searched, homes in HOMES:
        if file.path.startswith(searched) and file.path not in homes:
            for line, name in file.uses:
                if re.fullmatch(pattern, name):
                    yield line, f"{name} may stand only in {homes or 'no file'}"


def words_stay_home(file: File) -> Iterator[tuple[int, str]]:
    for word, homes in WORDS:
        if word in file.text and file.path not in homes:
            yield file.text[: file.text.index(word)].count("\n") + 1, f"{word} may stand only in {homes}"


def heavy_imports_wait(file: File) -> Iterator[tuple[int, str]]:
    if not file.is_library:
        return
    functions = [n for n in file.nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    types_only = [n for n in file.nodes if isinstance(n, ast.If) and ast.unparse(n.test).endswith("TYPE_CHECKING")]
    late = {id(n) for block in functions + types_only for n in ast.walk(block)}
    for node, full, _ in file.imports:
        if full.split(".")[0] in HEAVY and not (id(node) in late and file.path.startswith("jaxht/sweep")):
            yield node.lineno, f"{full} is imported inside functions of jaxht/sweep only"


def files_are_short(file: File) -> Iterator[tuple[int, str]]:
    lines = len(file.text.splitlines())
    if file.is_library and lines > MAX_LINES:
        yield lines, f"{lines} lines, more than {MAX_LINES}"


def public_names_are_explained(file: File) -> Iterator[tuple[int, str]]:
    def missing(node: ast.AST) -> Iterator[tuple[int, str]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and child.name[0] != "_":
                if not ast.get_docstring(child):
                    yield child.lineno, f"{child.name} has no docstring"
                if isinstance(child, ast.ClassDef):
                    yield from missing(child)

    if file.is_library and file.nodes:
        if not ast.get_docstring(file.nodes[0]):
            yield 1, "the module has no docstring"
        yield from missing(file.nodes[0])


RULES = [
    imports_point_upwards,
    things_stay_home,
    words_stay_home,
    heavy_imports_wait,
    files_are_short,
    public_names_are_explained,
]


@pytest.fixture(scope="module")
def files() -> list[File]:
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [f for f in folders if f in {".ci", ".github"} or (f[0] != "." and f not in SKIPPED)]
        for name in names:
            path = Path(folder, name)
            inside = path.relative_to(ROOT)
            if path.suffix in TEXT and (path.suffix != ".py" or inside.parts[0] in SEARCHED):
                found.append(File(inside.as_posix(), path.read_text(encoding="utf-8")))
    return found


@pytest.mark.parametrize("rule", RULES)
def test_house(rule, files):
    assert {"jaxht/__init__.py", ".ci/run"} <= {file.path for file in files}
    broken = [f"{file.path}:{line}: {what}" for file in files for line, what in rule(file)]
    assert not broken, "\n".join(broken)


PLANTED = [
    (imports_point_upwards, "jaxht/support.py", "from jaxht.runner import solve"),
    (imports_point_upwards, "jaxht/support.py", "def f():\n    from jaxht import solvers"),
    (imports_point_upwards, "jaxht/support.py", "from . import metrics"),
    (imports_point_upwards, "jaxht/support.py", "import jaxht"),
    (imports_point_upwards, "jaxht/misc.py", ""),
    (imports_point_upwards, "jaxht/metrics.py", "from jaxht.misc import f"),
    (imports_point_upwards, "jaxht/solvers/htp.py", "from jaxht.solvers.iht import IHT"),
    (imports_point_upwards, "jaxht/solvers/htp.py", "from .iht import IHT"),
    (imports_point_upwards, "jaxht/solvers/htp.py", "from jaxht.solvers import IHT"),
    (imports_point_upwards, "jaxht/solvers/base.py", "from jaxht.solvers.base import x"),
    (imports_point_upwards, "jaxht/objectives/__init__.py", "from ..solve import solve"),
    (things_stay_home, "jaxht/support.py", "from jax import lax\nlax.top_k(x, 3)"),
    (things_stay_home, "jaxht/support.py", "from jax.lax import bitcast_convert_type as b"),
    (things_stay_home, "jaxht/support.py", "import jax.numpy as jnp\nf = jnp.argsort"),
    (things_stay_home, "jaxht/support.py", "x.at[0].set(1).sort()"),
    (things_stay_home, "jaxht/solvers/htp.py", "self.inner.step(objective, constraint, iterate, state)"),
    (things_stay_home, "jaxht/spectral.py", "import jax\n@jax.jit\ndef f(x): ..."),
    (things_stay_home, "jaxht/spectral.py", "import jax\npartial(jax.jit, static_argnums=0)(f)"),
    (things_stay_home, "jaxht/spectral.py", "from jax import jit as compiled"),
    (things_stay_home, "jaxht/solve.py", "import jax\njax.config.update('jax_enable_x64', True)"),
    (things_stay_home, "experiments/data.py", "from jax._src import core"),
    (things_stay_home, "tests/test_x.py", "import jax.numpy as jnp\njnp._private"),
    (words_stay_home, "docs/data.md", "It lies in ../shared" + "/data."),
    (words_stay_home, "experiments/data.py", "HERE = '../shared" + "/data'"),
    (heavy_imports_wait, "jaxht/sweep/store.py", "import xarray as xr"),
    (heavy_imports_wait, "jaxht/sweep/store.py", "class A:\n    from tqdm import tqdm"),
    (heavy_imports_wait, "jaxht/metrics.py", "def f():\n    import matplotlib.pyplot"),
    (files_are_short, "jaxht/bounds.py", "x = 1\n" * (MAX_LINES + 1)),
    (public_names_are_explained, "jaxht/bounds.py", "def f(): ..."),
    (public_names_are_explained, "jaxht/bounds.py", "'''A module.'''\nclass A:\n    '''A.'''\n    def f(self): ..."),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "path", "text"), PLANTED)
def test_planted_violation_is_seen(rule, path, text):
    assert list(rule(File(path, text)))


def test_what_is_allowed_passes():
    text = '''\
        """A module."""
        from typing import TYPE_CHECKING
        import jax
        import jax.numpy as jnp
        import numpy as np
        from jax import Array
        from jaxht.linalg.selection import top_k
        from jaxht import metrics
        from .grid import Grid
        if TYPE_CHECKING:
            import xarray

        def f(x):
            """A function."""
            from tqdm import tqdm
            def g(): ...
            return top_k(x), np.argsort(x), sorted(x), x.step, jax.__version__, jax.vmap(jnp.sum), x._private

        class _A:
            def f(self): ...
    '''
    file = File("jaxht/sweep/store.py", textwrap.dedent(text))
    assert [broken for rule in RULES for broken in rule(file)] == []
