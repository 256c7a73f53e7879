"""The docstrings of public names: which sections they have, in which order, and that their examples
run.

A docstring has a first line of its own, then text and formulas, then the sections of `ORDER` that
apply. A class that users make has `Args:`, one line or more a field; a record that the library
makes has `Attributes:` instead, and its example stands with the function that returns it.
"""

import ast
import dataclasses
import doctest
import enum
import functools
import inspect
import itertools
import re
import textwrap
import types

import pytest

import jaxht
import jaxht.extend
import jaxht.objectives.dual
import jaxht.sklearn
from tests.util import x64

pytestmark = pytest.mark.usefixtures("all_quickly")

# Modules of which the names are public, beside those that `jaxht` exports.
MODULES = [
    "jaxht.designs",
    "jaxht.extend",
    "jaxht.objectives.dual",
    "jaxht.objectives.losses",
    "jaxht.sklearn",
]
ORDER = ["Args", "Attributes", "Returns", "Raises", "Cost", "Source", "Example"]

# What an object has, by which its kind is known, and the sections that are then obligatory beside
# Example.
KINDS = [
    ("step", {"Cost", "Source"}),  # solvers
    ("gradient", {"Cost", "Source"}),  # objectives
    ("derivative", {"Source"}),  # losses
    ("project", {"Cost"}),  # constraints
    ("matvec", {"Cost"}),  # designs
    ("fit", {"Cost"}),  # estimators
]
COMPUTES = ("jaxht.diagnostics.", "jaxht.linalg.", "jaxht.subproblems.", "jaxht.runner.")
FROM_PAPERS = ("jaxht.planted.bounds", "jaxht.planted.floors")


def resolve(name):
    """The object of a dotted name from the package on; attributes of `jaxht` count as modules."""
    return functools.reduce(getattr, name.split(".")[1:], jaxht)


def exports(module):
    """The names that a module imports for others to use: its ``__all__``, or ``import a as a``."""
    if hasattr(module, "__all__"):
        return set(module.__all__)
    imports = [
        node
        for node in ast.parse(inspect.getsource(module)).body
        if isinstance(node, ast.ImportFrom)
    ]
    return {alias.asname for node in imports for alias in node.names if alias.asname}


MODULES += [
    f"jaxht.{name}" for name in sorted(exports(jaxht)) if inspect.ismodule(getattr(jaxht, name))
]


def collect():
    """Public objects by name, each once, under the first of its names."""
    found = {}
    for name in ["jaxht", *sorted(MODULES)]:
        module = resolve(name)
        exported = exports(module)
        for attribute, value in vars(module).items():
            home = getattr(value, "__module__", None) or ""
            is_own = home == module.__name__ or (attribute in exported and home.startswith("jaxht"))
            if (
                attribute[0] != "_"
                and callable(value)
                and is_own
                and all(value is not other for other in found.values())
            ):
                found[f"{name}.{attribute}"] = value
    return found


PUBLIC = collect()


def sections(doc):
    """The sections of a docstring by name, in their order, as text."""
    heading = rf"^({'|'.join(ORDER)}|Invariant|Note)(?: a step)?:"
    _, *parts = re.split(heading, doc, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def parameters(value):
    """What a user gives it: the parameters of a function, the fields of a class."""
    if not isinstance(value, type):
        return [name for name in inspect.signature(value).parameters if name[0] != "_"]
    if dataclasses.is_dataclass(value):
        return [
            field.name for field in dataclasses.fields(value) if field.init and field.name[0] != "_"
        ]
    own = value.__dict__.get("__init__") if not hasattr(value, "_fields") else None
    names = list(inspect.signature(own).parameters)[1:] if own else getattr(value, "_fields", ())
    return [name for name in names if name[0] != "_"]


def is_named(name, text):
    """Whether `text` has the name, alone or among others, before a colon: ``A, y: ...``."""
    return re.search(rf"(?<![\w.]){re.escape(name)}(, ?\*{{0,2}}\w+)*( \([^)]*\))?:(?!:)", text)


def is_abstract(value):
    """Protocols, base classes and exceptions: nobody makes one."""
    if not isinstance(value, type):
        return False
    methods = filter(inspect.isfunction, vars(value).values())
    is_base = any("NotImplementedError" in method.__code__.co_names for method in methods)
    return (
        value.__dict__.get("_is_protocol")
        or inspect.isabstract(value)
        or is_base
        or issubclass(value, Exception)
    )


def errors(value):
    """The exceptions that its own source raises by name; of a class, where it is made or
    checked."""
    value = inspect.unwrap(value)
    methods = (
        [getattr(value, name, None) for name in ("__post_init__", "prepare")]
        if isinstance(value, type)
        else [value]
    )
    raised = set()
    for function in filter(inspect.isfunction, methods):
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                raised.add(ast.unparse(node.exc.func))
    return raised


def required(value, found):
    """The sections that the docstring of an object must have."""
    if is_abstract(value):
        return set()
    names = {"Raises"} if errors(value) else set()
    if isinstance(value, type):
        if issubclass(value, enum.Enum):
            return names | {"Example"}
        if parameters(value):
            names |= {"Attributes"} if "Attributes" in found else {"Args"}
        names |= next((more for method, more in KINDS if hasattr(value, method)), set())
        return names | (set() if "Attributes" in found else {"Example"})
    signature = inspect.signature(value)
    names |= {"Args"} if parameters(value) else set()
    names |= set() if signature.return_annotation is None else {"Returns"}
    names |= {"Cost"} if value.__module__.startswith(COMPUTES) else set()
    names |= {"Source"} if value.__module__.startswith(FROM_PAPERS) else set()
    return names | {"Example"}


def is_known(reference, value):
    """Whether a name that a docstring refers to is one, from where the docstring stands."""
    name = reference.lstrip("~").removesuffix("()")
    if name.split(".")[0] in ("jax", "jnp", "numpy", "np", "optax", "scipy", "xarray"):
        return True
    places = [jaxht, inspect.getmodule(inspect.unwrap(value)), value, *map(resolve, MODULES)]
    for place in places:
        try:
            functools.reduce(getattr, name.removeprefix("jaxht.").split("."), place)
        except AttributeError:
            continue
        return True
    return False


def complaints(name, value):
    """What is missing in the docstring of a public object, or out of place."""
    doc = inspect.cleandoc(value.__doc__ or "")
    if not doc:
        yield "no docstring"
        return
    summary, _, _ = doc.partition("\n\n")
    if summary.count("\n") > 1:
        yield "the summary is longer than two lines"
    if not summary.rstrip().endswith((".", ":")):
        yield "the summary does not end with a full stop"
    found = sections(doc)
    if list(found) != sorted(found, key=([*ORDER[:3], "Invariant", "Note", *ORDER[3:]]).index):
        yield f"sections in the order {list(found)}"
    missing = required(value, found) - set(found)
    if missing:
        yield f"no {', '.join(sorted(missing, key=ORDER.index))}"
    text = found.get("Args", "") + found.get("Attributes", "")
    unnamed = [parameter for parameter in parameters(value) if not is_named(parameter, text)]
    if text and unnamed and not is_abstract(value):
        yield f"Args without {', '.join(unnamed)}"
    if isinstance(value, type) and issubclass(value, enum.Enum):
        members = [member.name for member in value if not re.search(rf"\b{member.name}\b", doc)]
        if members:
            yield f"without {', '.join(members)}"
    for reference in re.findall(r":(?:func|class|meth|mod|attr|data|obj):`([^`]+)`", doc):
        if not is_known(reference, value):
            yield f"refers to {reference}, which does not exist"
    for reference in re.findall(r"as (?:in|for|of) :\w+:`~?([^`]+)`", text):
        if not any(
            public == reference or public.endswith(f".{reference.removeprefix('jaxht.')}")
            for public in PUBLIC
        ):
            yield f"Args refer to {reference}, which is not public"
    if "Example" in found and ">>>" not in found["Example"]:
        yield "an example without >>>"


@pytest.mark.parametrize("name", PUBLIC)
def test_docstring(name):
    found = list(complaints(name, PUBLIC[name]))
    assert not found, f"{name}: {'; '.join(found)}"


def documented():
    """(name, docstring) of all that may have examples: public objects, their methods, and their
    modules."""
    for name in ["jaxht", *MODULES]:
        yield name, resolve(name).__doc__
    for name, value in PUBLIC.items():
        yield name, value.__doc__
        for attribute, method in vars(value).items() if isinstance(value, type) else ():
            if attribute[0] != "_" and (inspect.isroutine(method) or isinstance(method, property)):
                yield f"{name}.{attribute}", method.__doc__


EXAMPLES = {name: doc for name, doc in documented() if ">>>" in (doc or "")}


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # for sweeps that write
    options = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    test = doctest.DocTestParser().get_doctest(EXAMPLES[name], {}, name, None, None)
    printed = []
    with x64(False):
        doctest.DocTestRunner(optionflags=options).run(test, out=printed.append)
    assert not printed, "".join(printed)


# ---- that the test itself sees -------------------------------------------------------------------


def good(x, k=1):
    """Do it.

    The formula.

    Args:
        x: (d,).
        k: an int.

    Returns:
        An array.

    Raises:
        ValueError: always.

    Example:
        >>> 1 + 1
        2
    """
    raise ValueError("x")


BROKEN = [
    (("Do it.\n\n", "Do it.\n    And this.\n"), "longer than two"),
    (("Do it.", "Do it"), "full stop"),
    (("k: an int", "an int"), "Args without k"),
    (("Returns:", "Ruturns:"), "no Returns"),
    (("Raises:", "Ruises:"), "no Raises"),
    (("Example:", "Exemple:"), "no Example"),
    ((">>> 1 + 1", "1 + 1"), "without >>>"),
    (("The formula.", "See :func:`nowhere`."), "nowhere"),
    (("x: (d,).", "x: as in :class:`jaxht.objectives.custom.Template`."), "not public"),
]


def test_a_good_docstring_passes():
    assert list(complaints("good", good)) == []


@pytest.mark.parametrize(("change", "message"), BROKEN, ids=[message for _, message in BROKEN])
def test_a_broken_docstring_is_seen(change, message):
    copy = types.FunctionType(good.__code__, good.__globals__, "copy", good.__defaults__)
    copy.__doc__ = good.__doc__.replace(*change)
    assert copy.__doc__ != good.__doc__
    assert any(message in complaint for complaint in complaints("copy", copy))


def test_sections_out_of_order_are_seen():
    copy = types.FunctionType(good.__code__, good.__globals__, "copy", good.__defaults__)
    blocks = good.__doc__.split("\n\n")
    for a, b in itertools.combinations(range(2, len(blocks)), 2):
        swapped = list(blocks)
        swapped[a], swapped[b] = blocks[b], blocks[a]
        copy.__doc__ = "\n\n".join(swapped)
        assert any("order" in complaint for complaint in complaints("copy", copy))
