"""``python -m tests.built_docs site`` checks built pages.

* No markup is left in the text, outside of code and formulas.
* On the page of the phase diagram, the progress bar of each sweep has ended at 100 %.
"""

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

# Roles and directives of Sphinx, formulas between dollars, links and code whose Markdown was not
# seen.
LEFTOVER = re.compile(
    r":(?:func|class|meth|mod|attr|data|obj|math):`|\.\. \w+::|\$[^$\n]+\$|\$[A-Za-z\\][\w{]*[\^_]|\]\([\w#./-]+\)"
)
PHASE_DIAGRAM, NUM_SWEEPS = "gallery/phase_diagram/index.html", 2
VOID = {
    "area",
    "base",
    "br",
    "col",
    "embed",
    "hr",
    "img",
    "input",
    "link",
    "meta",
    "source",
    "track",
    "wbr",
}
SKIPPED = {"code", "pre", "script", "style", "svg"}
SKIPPED_CLASSES = {
    "arithmatex",
    "clipboard-copy-txt",
}  # formulas, and what a button of the gallery copies


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
            self.open.append(
                (tag, outer or tag in SKIPPED or not SKIPPED_CLASSES.isdisjoint(classes))
            )

    def handle_endtag(self, tag: str) -> None:
        """Leave the innermost element of this name, and with it those in it that were never
        closed."""
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


def count_finished_bars(page: str) -> int:
    """Return the number of lines with a progress bar at 100 %."""
    return sum("recovery: 100%" in line for line in page.split("\n"))


def main(folder: str) -> None:
    """Print what is wrong with the pages, and fail if there is anything."""
    pages = sorted(Path(folder).rglob("*.html"))
    if not pages:
        sys.exit(f"no pages in {folder}")
    found = [
        f"{page}:{line}: {text}"
        for page in pages
        for line, text in leftovers(page.read_text(encoding="utf-8"))
    ]
    diagram = Path(folder, PHASE_DIAGRAM)
    bars = count_finished_bars(diagram.read_text(encoding="utf-8")) if diagram.exists() else 0
    if bars != NUM_SWEEPS:
        found.append(f"{diagram}: {bars} progress bars at 100 %, must be {NUM_SWEEPS}")
    if found:
        print(*found, sep="\n")
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1])
