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

    meter = _Meter(tqdm, label, unit, interval)
    try:
        yield meter.show
    finally:
        meter.close()


class _Meter:
    """A bar, or lines, or the output of a cell in a notebook.

    Args:
        tqdm: the class of bars.
        label, unit, interval: as in :func:`progress_bar`.
    """

    def __init__(self, tqdm: Any, label: str, unit: str, interval: float | None) -> None:
        self.tqdm = tqdm
        self.label = label
        self.unit = unit
        self.interval = interval
        self.begin = time.monotonic()
        self.begin_trials = self.begin
        self.last = -math.inf  # when something was written last
        self.latest = Progress(0, 0)
        self.written = self.latest
        self.bar: Any = None
        self.output: Any = None  # in a notebook

    def show(self, progress: Progress) -> None:
        """Show progress, where it is time for it."""
        before = self.latest
        self.latest = progress
        now = time.monotonic()
        if not (progress.done or progress.executed):
            self.begin_trials = now
        is_new = progress.note != before.note
        if _in_notebook():
            wait = NOTEBOOK_INTERVAL if self.interval is None else self.interval
            if now - self.last >= wait or is_new:
                self.write()
        elif sys.stderr.isatty():
            self.update_bar(refresh=is_new)
        else:
            wait = min(INTERVAL, max(1.0, self.last - self.begin))
            if now - self.last >= (wait if self.interval is None else self.interval):
                self.write()

    def update_bar(self, refresh: bool) -> None:
        """Move the bar to the latest progress."""
        progress = self.latest
        if self.bar is None:
            self.bar = self.tqdm(desc=self.label, total=progress.total, **self.scale())
        self.bar.set_postfix_str(self.describe(), refresh=refresh)
        self.bar.update(progress.done - self.bar.n)

    def write(self) -> None:
        """Write a line, or update the output."""
        now = time.monotonic()
        self.last = now
        self.written = self.latest
        done = self.latest.done
        meter = self.tqdm.format_meter(
            done,
            self.latest.total,
            now - self.begin,
            prefix=self.label,
            ncols=100,
            # Of the trials alone: while the first programs are compiled there are none.
            rate=done / max(now - self.begin_trials, 1e-3) if done else None,
            postfix=self.describe(),
            **self.scale(),
        )
        text = {"text/plain": meter}
        if self.output is not None:
            self.output.update(text, raw=True)
        elif _in_notebook():
            from IPython.display import display

            self.output = display(text, raw=True, display_id=True)
        else:
            sys.stderr.write(f"{meter}\n")
            sys.stderr.flush()

    def describe(self) -> str:
        """What is being done, and how busy lanes are."""
        busy = f"{self.latest.utilisation:.0%} busy" if self.latest.executed else ""
        return ", ".join(filter(None, [self.latest.note, busy]))

    def scale(self) -> dict[str, Any]:
        """The unit, and whether numbers are shortened: rows are many, and have no total."""
        return {"unit": self.unit, "unit_scale": self.latest.total is None}

    def close(self) -> None:
        """Write what has not been written."""
        if self.bar is not None:
            self.bar.close()
        elif self.latest.done and self.latest != self.written:
            self.write()


def _in_notebook() -> bool:
    """Whether the process is the kernel of a notebook: those that run one load ipykernel, too."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None
