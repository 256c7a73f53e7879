"""For mkdocstrings: what stands in docstrings for readers of the source becomes Markdown with links
and formulas."""

import ast
import inspect
import re
from typing import Any

import griffe


class Docstrings(griffe.Extension):
    """Rewrites roles (:func:`solve`), formulas (.. math::) and headings; `import a as a` makes a
    public."""

    def on_module(self, *, mod: griffe.Module, **kwargs: Any) -> None:
        tree = ast.parse(mod.source)
        names = [
            alias for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
        ]
        exports = [alias.asname for alias in names if alias.asname == alias.name]
        if exports:
            mod.exports = exports

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if (
            obj.path.startswith("jaxht.objectives.glm.") and obj.is_attribute
        ):  # classes that a function makes
            obj.value = None
            obj.docstring = griffe.Docstring(
                inspect.getdoc(griffe.dynamic_import(obj.path)), parent=obj
            )
        if obj.path.startswith("jaxht.sklearn._") and obj.is_class:
            complete_estimator(obj)
        if obj.docstring:
            obj.docstring.value = to_markdown(obj.docstring.value, obj)


def complete_estimator(obj: griffe.Class) -> None:
    """Its base class completes the docstring of an estimator, and makes its constructor."""
    cls = griffe.dynamic_import(obj.path)
    obj.docstring = griffe.Docstring(inspect.getdoc(cls), parent=obj)
    if "__init__" in obj.members or not hasattr(cls, "__dataclass_fields__"):
        return
    parameters = [
        griffe.Parameter(
            parameter.name,
            kind=getattr(griffe.ParameterKind, parameter.kind.name.lower()),
            default=None if parameter.default is parameter.empty else repr(parameter.default),
        )
        for parameter in inspect.signature(cls).parameters.values()
    ]
    function = griffe.Function("__init__", parameters=griffe.Parameters(*parameters))
    obj.set_member("__init__", function)


def to_markdown(text: str, obj: griffe.Object) -> str:
    def link(match: re.Match) -> str:
        target = match[1].removeprefix("~")
        home = obj.module
        while home.parent and target.split(".")[0] not in home.members:
            home = home.parent
        full = target if target.startswith("jaxht") else f"{home.path}.{target}"
        return f'<autoref optional identifier="{full}"><code>{target.removeprefix("jaxht.")}</code></autoref>'

    def formula(match: re.Match) -> str:
        return f"{match[1]}$${' '.join(match[2].split())}$$\n"

    text = re.sub(r":(?:func|class|meth|mod|attr|data|obj):`([^`]+)`", link, text)
    text = re.sub(r":math:`([^`]+)`", r"$\1$", text)
    text = re.sub(
        r"^( *)\.\. math::((?:.*\n)(?:\1 +.*\n|\s*\n(?=\1 ))*)", formula, text, flags=re.MULTILINE
    )
    text = re.sub(r"^(Cost|Source|Invariant)( a step)?: ", r"**\1\2:** ", text, flags=re.MULTILINE)
    return re.sub(r"^Example:$", "Examples:", text, flags=re.MULTILINE)
