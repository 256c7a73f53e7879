"""Draws the pictures of pages: ``python docs/pictures.py gallery.md`` runs its blocks and saves
their figures."""

import re
import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

DOCS = Path(__file__).parent
PARTS = re.compile(r"```python\n(.*?)```|!\[[^\]]*\]\(images/([\w-]+\.png)\)", re.DOTALL)


def draw(page: Path, folder: Path) -> dict[str, Any]:
    """Run each block of a page by itself, and save the figure that is open where an image stands.

    Returns:
        The variables that the blocks leave, those of later blocks in the place of earlier ones of
        the same name.
    """
    left: dict[str, Any] = {}
    for block, image in PARTS.findall(page.read_text(encoding="utf-8")):
        if block:
            scope: dict[str, Any] = {"__name__": "block"}
            exec(block, scope)
            left |= scope
        else:
            plt.gcf().set_size_inches(5, 3)
            plt.savefig(folder / image, dpi=100, bbox_inches="tight")
            plt.close("all")
    return left


if __name__ == "__main__":
    for name in sys.argv[1:]:
        draw(DOCS / name, DOCS / "images")
