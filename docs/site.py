"""For mkdocs: a page of the reference for each public name, and its place in the navigation."""

import importlib
import inspect
import re
from typing import Any

SOURCE = (
    "reference.md"  # headings, and below them the names: classes, functions, or modules of them
)
REFERENCE = "Reference"  # its entry in the navigation


def sections(text: str) -> dict[str, list[str]]:
    """Return by heading the full names of all that is documented, modules replaced by what they
    hold."""
    found: dict[str, list[str]] = {}
    for heading, body in re.findall(r"^## (.+)\n((?:(?!^## ).*\n?)*)", text, re.MULTILINE):
        names = re.findall(r"^\* `(.+?)`", body, re.MULTILINE)
        found[heading] = [full for name in names for full in members(name)]
    return found


def members(name: str) -> list[str]:
    """Return a name, or if it is that of a module, the names of the public classes and functions in
    it."""
    found = resolve(name)
    if not inspect.ismodule(found):
        return [name]
    public = [member for member in found.__all__ if is_documented(getattr(found, member))]
    return [f"{name}.{member}" for member in public]


def is_documented(value: Any) -> bool:
    """Whether a public name has a page of its own: a class or a function."""
    return callable(value) and not inspect.ismodule(value) and bool(value.__doc__)


def resolve(name: str) -> Any:
    """Return the object of a dotted name."""
    try:
        return importlib.import_module(name)
    except ImportError:
        module, _, attribute = name.rpartition(".")
        return getattr(resolve(module), attribute)


def on_files(files: Any, config: Any) -> Any:
    """Add the pages, and put them into the navigation."""
    from mkdocs.structure.files import File

    source = files.get_file_from_path(SOURCE)
    pages = sections(source.content_string)
    for name in (name for names in pages.values() for name in names):
        title = name.removeprefix("jaxht.")
        content = f"# {title}\n\n::: {name}\n    options:\n      show_root_heading: false\n"
        if name.startswith("jaxht.extend."):  # which says what the runner calls
            content += '      filters: ["!^_"]\n'
        files.append(File.generated(config, f"reference/{title}.md", content=content))
    nested = [
        {heading: [f"reference/{n.removeprefix('jaxht.')}.md" for n in names]}
        for heading, names in pages.items()
    ]
    config.nav = [
        entry if REFERENCE not in entry else {REFERENCE: [SOURCE, *nested]} for entry in config.nav
    ]
    return files


def on_page_markdown(markdown: str, page: Any, **kwargs: Any) -> str:
    """On the overview, put links and first sentences in the place of names."""
    if page.file.src_uri != SOURCE:
        return markdown
    return re.sub(
        r"^\* `(.+?)`$",
        lambda match: "\n".join(map(entry, members(match[1]))),
        markdown,
        flags=re.MULTILINE,
    )


def entry(name: str) -> str:
    """Return the line of a name on the overview."""
    title = name.removeprefix("jaxht.")
    first = " ".join((inspect.getdoc(resolve(name)) or "").split("\n\n")[0].split())
    sentence = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", first)
    return f"* [`{title}`](reference/{title}.md): {sentence}"
