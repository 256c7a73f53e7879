"""How far a sweep is, and a bar that shows it."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["Progress", "progress_bar"]

# What a sweep does before its first trials, and between them where it has several programs.
COMPILING = "compiling ..."


@dataclass(frozen=True)
class Progress:
    """How far a sweep is.

    Attributes:
        done: number of trials finished, without those that were stored before.
        total: number of trials to run.
        busy: steps of lanes with a running trial.
        executed: steps of all lanes, those without one included.
        note: what is being done, where it is not trials: ``"compiling ..."``, or the name of a
            part.

    Example:
        >>> from jaxht import sweep
        >>> sweep.Progress(done=3, total=10, busy=90, executed=100).utilisation
        0.9
    """

    done: int
    total: int
    busy: int = 0
    executed: int = 0
    note: str = ""

    def add(self, done: int, busy: int, executed: int) -> "Progress":
        """After some more work."""
        return replace(
            self,
            done=self.done + done,
            busy=self.busy + busy,
            executed=self.executed + executed,
        )

    @property
    def utilisation(self) -> float:
        """``busy / executed``, in [0, 1]; 1 where trials take no steps."""
        return self.busy / self.executed if self.executed else 1.0


# Most seconds between two lines in a log file: the first come after 0, 1, 2, 4 and 8 seconds.
INTERVAL = 15.0
# Least seconds between two updates of the one output in a notebook.
NOTEBOOK_INTERVAL = 0.1


@contextmanager
def progress_bar(
    label: str, unit: str = " runs", *, interval: float | None = None
) -> Iterator[Callable[[Any], None]]:
    """Show progress: as a bar in a terminal, as lines in a file, as one output of a cell in a
    notebook.

    Bar and lines go to standard error. The output in a notebook is text that is updated, which
    needs no widgets and stays in an executed notebook as it was last.

    Args:
        label: text in front of the bar.
        unit: what is counted, text behind the numbers: ``" rows"`` for :func:`jaxht.stream`.
        interval: seconds between two lines or two updates of the output; None: 15 between lines, of
            which the first come sooner, and 0.1 between updates.

    Returns:
        A context manager that gives what :func:`jaxht.sweep.run` and :func:`jaxht.stream` take as
        ``on_progress``.

    Raises:
        ImportError: without tqdm, which ``jax-hard-thresholding[sweep]`` brings.

    Cost: in a file a line at once, soon a few more, and then one every 15 seconds.

    Source: ``tqdm``.

    Example:
        >>> from jaxht import sweep
        >>> with sweep.progress_bar("mine") as bar:
        ...     trial = lambda key, cell: {"K": 2 * cell["k"]}
        ...     results = sweep.run(trial, {"k": [1]}, num_trials=2, on_progress=bar)
    """
    try:
        from tqdm import tqdm
    except ImportError as error:
        raise ImportError(
            f"progress_bar needs {error.name}: pip install 'jax-hard-thresholding[sweep]'"
        ) from error

    begin = begin_trials = time.monotonic()
    last = -math.inf
    bar = None
    latest = written = Progress(0, 0)
    output: Any = None  # in a notebook

    def scaled():
        # Rows are many, and have no total.
        return {"unit": unit, "unit_scale": latest.total is None}

    def describe():
        busy = f"{latest.utilisation:.0%} busy" if latest.executed else ""
        return ", ".join(filter(None, [latest.note, busy]))

    def write():
        nonlocal last, written, output
        last = now = time.monotonic()
        written = latest
        # Of the trials alone: while the first programs are compiled there are none.
        rate = latest.done / max(now - begin_trials, 1e-3) if latest.done else None
        meter = tqdm.format_meter(
            latest.done,
            latest.total,
            now - begin,
            prefix=label,
            ncols=100,
            rate=rate,
            postfix=describe(),
            **scaled(),
        )
        text = {"text/plain": meter}
        if output is not None:
            output.update(text, raw=True)
        elif _in_notebook():
            from IPython.display import display

            output = display(text, raw=True, display_id=True)
        else:
            sys.stderr.write(f"{meter}\n")
            sys.stderr.flush()

    def show(progress):
        nonlocal bar, begin_trials, latest
        before = latest
        latest = progress
        now = time.monotonic()
        if not (progress.done or progress.executed):
            begin_trials = now
        if _in_notebook():
            wait = NOTEBOOK_INTERVAL if interval is None else interval
            if now - last >= wait or progress.note != before.note:
                write()
        elif sys.stderr.isatty():
            bar = bar or tqdm(desc=label, total=progress.total, **scaled())
            bar.set_postfix_str(describe(), refresh=progress.note != before.note)
            bar.update(progress.done - bar.n)
        else:
            wait = min(INTERVAL, max(1.0, last - begin)) if interval is None else interval
            if now - last >= wait:
                write()

    try:
        yield show
    finally:
        if bar is not None:
            bar.close()
        elif latest.done and latest != written:
            write()


def _in_notebook() -> bool:
    """Whether the process is the kernel of a notebook: those that run one load ipykernel, too."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None
