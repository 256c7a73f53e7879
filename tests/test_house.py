"""The rules of the repository that ruff and import-linter cannot express (theirs are in
pyproject.toml).

A rule is a function of a `File` that yields (line, what is wrong). Nothing of the repository is
imported.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = {".py", ".toml", ".md", ".txt", ".yml", ".yaml", ".cfg", ".ini", ".sh", ".ipynb", ""}
SKIPPED = {"results", "build", "dist", "site", "__pycache__"}  # and hidden folders, but for two

# (a pattern of text, in parts so that this file does not match; the only files where it may stand)
WORDS = [
    (r"shared" + "/data", [".ci/run"]),
    (
        r"jax" + r"(lib)?\._src",
        [],
    ),  # `from jax import ...` of private names; ruff's SLF001 sees their use
    (r"pip" + r" install ['\"]?jaxht", []),  # another package
    (r"jaxht" + r"\[\w+\]['\"`]", []),  # extras have the distribution's name
]

RANKING = tuple(
    f"jaxht/linalg/{name}.py" for name in ("selection", "counting_search", "threshold_search")
)
# Loops of JAX that need not work inside jax.shard_map; all others are those of _loops.
LOOPS = ("jaxht/_loops.py", "jaxht/linalg/kernels/", "jaxht/sweep/")
# (the name of a method, where in the library it may be called): the loop over steps, and ranking.
# Exchanges start from a whole run of OMP.
METHODS = [
    ("while_loop", LOOPS),
    ("fori_loop", LOOPS),
    ("scan", LOOPS),
    ("cond", LOOPS),
    ("step", ("jaxht/runner/", "jaxht/solvers/omp.py")),
    ("sort", RANKING),
    ("argsort", RANKING),
]


class File:
    """One file of the repository, by its path from the root and its text."""

    def __init__(self, path: str, text: str) -> None:
        self.path, self.text = path, text
        self.is_library = path.startswith("jaxht/") and path.endswith(".py")

    @cached_property
    def module(self) -> ast.Module:
        return ast.parse(self.text)


def words_stand_where_they_may(file: File) -> Iterator[tuple[int, str]]:
    for pattern, places in WORDS:
        if file.path not in places:
            for match in re.finditer(pattern, file.text):
                yield (
                    file.text[: match.start()].count("\n") + 1,
                    f"{match[0]} may stand only in {places or 'no file'}",
                )


def methods_are_called_where_they_may(file: File) -> Iterator[tuple[int, str]]:
    for node in ast.walk(file.module) if file.is_library else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            for name, places in METHODS:
                # NumPy ranks on the host; the sorts of jax.numpy are ruff's to find.
                on_host = ast.unparse(node.func.value) == "np"
                if node.func.attr == name and not on_host and not file.path.startswith(places):
                    yield node.lineno, f".{name}() may be called only in {places}"


def public_names_are_explained(file: File) -> Iterator[tuple[int, str]]:
    # ruff's D1 passes over modules with an underscore; what they define is public elsewhere.
    def missing(node: ast.AST) -> Iterator[tuple[int, str]]:
        for child in ast.iter_child_nodes(node):
            if (
                isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
                and child.name[0] != "_"
            ):
                if not ast.get_docstring(child):
                    yield child.lineno, f"{child.name} has no docstring"
                if isinstance(child, ast.ClassDef):
                    yield from missing(child)

    if file.is_library:
        if not ast.get_docstring(file.module):
            yield 1, "the module has no docstring"
        yield from missing(file.module)


def exports_are_no_modules(file: File) -> Iterator[tuple[int, str]]:
    # A function exported as `jaxht.path` would hide a module `jaxht/path.py`.
    if file.is_library and file.path.endswith("/__init__.py"):
        folder = Path(file.path).parent
        for node in file.module.body:
            if isinstance(node, ast.ImportFrom) and node.module != ".".join(folder.parts):
                for name in (alias.asname or alias.name for alias in node.names):
                    if (ROOT / folder / name).is_dir() or (ROOT / folder / f"{name}.py").exists():
                        yield node.lineno, f"{name} is also the name of a module"


RULES = [
    words_stand_where_they_may,
    methods_are_called_where_they_may,
    public_names_are_explained,
    exports_are_no_modules,
]


@pytest.fixture(scope="module")
def files() -> list[File]:
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [
            f for f in folders if f in {".ci", ".github"} or (f[0] != "." and f not in SKIPPED)
        ]
        paths = [Path(folder, name) for name in names if Path(name).suffix in TEXT]
        found += [
            File(p.relative_to(ROOT).as_posix(), p.read_text(encoding="utf-8"))
            for p in paths
            if p.is_file()
        ]
    return found


@pytest.mark.parametrize("rule", RULES)
def test_house(rule, files):
    assert {"jaxht/__init__.py", ".ci/run"} <= {file.path for file in files}
    broken = [f"{file.path}:{line}: {what}" for file in files for line, what in rule(file)]
    assert not broken, "\n".join(broken)


PLANTED = [
    (words_stand_where_they_may, "docs/data.md", "It lies in ../shared" + "/data."),
    (words_stand_where_they_may, "experiments/data.py", "HERE = '../shared" + "/data'"),
    (words_stand_where_they_may, "tests/test_x.py", "from jax" + "._src import core"),
    (words_stand_where_they_may, "README.md", "pip" + " install jaxht"),
    (words_stand_where_they_may, "docs/index.md", "pip" + " install 'jaxht" + "[sweep]'"),
    (words_stand_where_they_may, "jaxht/sweep/store.py", "without zarr, ``jaxht" + "[zarr]``."),
    (methods_are_called_where_they_may, "jaxht/solvers/htp.py", "self.inner.step(objective, constraint, iterate)"),
    (methods_are_called_where_they_may, "jaxht/constraints/support.py", "x.at[0].set(1).sort()"),
    (public_names_are_explained, "jaxht/runner/_path.py", "def f(): ..."),
    (public_names_are_explained, "jaxht/bounds.py", "'''A module.'''\nclass A:\n    '''A.'''\n    def f(self): ..."),
    (exports_are_no_modules, "jaxht/__init__.py", "from jaxht.runner import sweep as sweep"),
    (exports_are_no_modules, "jaxht/solvers/__init__.py", "from jaxht.solvers.htp import HTP as htp"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "path", "text"), PLANTED)
def test_planted_violation_is_seen(rule, path, text):
    assert list(rule(File(path, text)))


def test_what_is_allowed_passes():
    text = '''\
        """A module."""
        import numpy as np
        from jaxht.linalg import projections as projections
        from jaxht.sweep import grid as grid

        def f(x):
            """A function."""
            def g(): ...
            return np.argsort(x), sorted(x), x.step

        class _A:
            def f(self): ...
    '''
    file = File("jaxht/sweep/__init__.py", textwrap.dedent(text))
    assert [broken for rule in RULES for broken in rule(file)] == []


# ---- the rules in pyproject.toml -----------------------------------------------------------------


def run(command: str, *arguments: str, **options) -> str:
    """What a program of this environment prints."""
    program = Path(sys.executable).with_name(command)
    return subprocess.run([program, *arguments], capture_output=True, text=True, **options).stdout


PLANTED_FOR_RUFF = """
import jax
import jax.numpy as jnp
import tqdm
from jax import lax

def compiled(x):
    import xarray
    jax.config.update("jax_enable_x64", True)
    jnp._private
    return lax.top_k(x, 3), jnp.argsort(x), jax.jit(xarray.f)(x)
"""


def test_ruff_sees_what_is_banned():
    pytest.importorskip("ruff", reason="of make check")
    options = ["check", "--output-format", "concise", "--select", "TID,SLF", "--stdin-filename"]
    found = run(
        "ruff", *options, "jaxht/constraints/support.py", "-", input=PLANTED_FOR_RUFF, cwd=ROOT
    )
    lines = [
        (int(line.split(":")[1]), line.split()[1]) for line in found.splitlines() if ":" in line
    ]
    banned = [(4, "TID253"), (9, "TID251"), (10, "SLF001"), *[(11, "TID251")] * 3]
    assert lines == banned, found


def test_import_linter_sees_what_is_forbidden(tmp_path):
    pytest.importorskip("importlinter", reason="of make check")
    shutil.copytree(
        ROOT / "jaxht", tmp_path / "jaxht", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    planted = {
        "linalg/svd.py": "from jaxht.solvers import HTP",
        "objectives/losses/loss.py": "from jaxht.designs import design",
        "sweep/grid.py": "def f():\n    from jaxht.sweep import store",
        "solvers/niht.py": "from jaxht.solvers.iht import IHT",
        "planted/metrics.py": "def f():\n    import matplotlib.pyplot",
    }
    for name, text in planted.items():
        with (tmp_path / "jaxht" / name).open("a") as file:
            file.write(f"\n\n{text}\n")
    found = run("lint-imports", "--no-cache", cwd=tmp_path)
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    assert (
        len(planted) == len(contracts) and f"Contracts: 0 kept, {len(contracts)} broken" in found
    ), found
