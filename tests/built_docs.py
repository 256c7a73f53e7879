"""``python -m tests.built_docs site``: markup that is left in the text of built pages, outside of code and formulas."""

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

# Roles and directives of Sphinx, formulas between dollars, links and code whose Markdown was not seen.
LEFTOVER = re.compile(
    r":(?:func|class|meth|mod|attr|data|obj|math):`|\.\. \w+::|\$[^$\n]+\$|\$[A-Za-z\\][\w{]*[\^_]|\]\([\w#./-]+\)"
)
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
SKIPPED = {"code", "pre", "script", "style", "svg"}
SKIPPED_CLASSES = {"arithmatex", "clipboard-copy-txt"}  # formulas, and what a button of the gallery copies


class Text(HTMLParser):
    """The text of a page by line, without code and formulas."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[tuple[str, bool]] = []  # elements, and whether their text is skipped
        self.lines: list[tuple[int, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Go into an element."""
        if tag not in VOID:
            outer = bool(self.open) and self.open[-1][1]
            classes = (dict(attrs).get("class") or "").split()
            self.open.append((tag, outer or tag in SKIPPED or not SKIPPED_CLASSES.isdisjoint(classes)))

    def handle_endtag(self, tag: str) -> None:
        """Leave the innermost element of this name, and with it those in it that were never closed."""
        names = [name for name, _ in self.open]
        if tag in names:
            del self.open[len(names) - 1 - names[::-1].index(tag) :]

    def handle_data(self, data: str) -> None:
        """Keep text that is shown as such."""
        if not (self.open and self.open[-1][1]):
            self.lines.append((self.getpos()[0], data))


def leftovers(page: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each leftover of a page."""
    text = Text()
    text.feed(page)
    text.close()
    for line, data in text.lines:
        for match in LEFTOVER.finditer(data):
            yield line, match[0]


def main(folder: str) -> None:
    """Print those of all pages, and fail if there are any."""
    pages = sorted(Path(folder).rglob("*.html"))
    if not pages:
        sys.exit(f"no pages in {folder}")
    found = [f"{page}:{line}: {text}" for page in pages for line, text in leftovers(page.read_text(encoding="utf-8"))]
    if found:
        print(*found, sep="\n")
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1])
