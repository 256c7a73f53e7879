"""The first hour: each task of a new user, in a process of its own that has compiled nothing
before.

Seconds are those of the whole process, from the start of Python to its end. docs/first_hour.md has
the table.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]

# What is to be done -> a script, or a page of the gallery.
TASKS = {
    "ten genes of 2000, by cross-validation": "examples/first_hour/genes.py",
    "a sparse logistic regression, with class weights": "examples/first_hour/documents.py",
    "a pipeline with a grid search": "examples/first_hour/pipeline.py",
    "an image, recovered": "docs/gallery/image.py",
    "a phase diagram with noise, resumed": "docs/gallery/phase_diagram.py",
    "500 bootstrap supports": "docs/gallery/bootstrap.py",
    "gradients in y and l2": "examples/first_hour/gradients.py",
    "Poisson regression with an offset": "examples/first_hour/claims.py",
    "the Lorenz equations": "docs/gallery/lorenz.py",
    "a classifier with 5 % of its weights, saved and restored": "examples/first_hour/sparse_classifier.py",
    "several targets with the same features": "examples/first_hour/multi_output.py",
    "2.5 million samples": "docs/gallery/moments.py",
}


def main() -> None:
    """Print the table, as a table of Markdown."""
    print("\n| task | seconds, cold | lines |\n|---|---|---|", flush=True)
    for task, path in TASKS.items():
        print(f"| {task} | {time_cold(path):.0f} | {count_lines(path)} |", flush=True)


def time_cold(path: str) -> float:
    """Seconds of a process that runs a script, without the persistent cache."""
    env = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    env |= {"PYTHONPATH": str(ROOT), "JAX_ENABLE_COMPILATION_CACHE": "0", "MPLBACKEND": "agg"}
    begin = time.perf_counter()
    subprocess.run(
        [sys.executable, "-P", ROOT / path], env=env, stdout=subprocess.DEVNULL, check=True
    )
    return time.perf_counter() - begin


def count_lines(path: str) -> int:
    """Lines of a script, without those that are empty or comments."""
    lines = map(str.strip, (ROOT / path).read_text(encoding="utf-8").splitlines())
    return sum(bool(line) and not line.startswith("#") for line in lines)
