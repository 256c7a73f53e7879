"""How far a sweep is, and a bar that shows it."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

# Seconds between two lines in a log file.
INTERVAL = 15.0


@dataclass(frozen=True)
class Progress:
    """How far a sweep is.

    Attributes:
        done: number of trials finished, without those that were stored before.
        total: number of trials to run.
        busy: steps of lanes with a running trial.
        executed: steps of all lanes, those without one included.

    Example:
        >>> from jaxht import sweep
        >>> sweep.Progress(done=3, total=10, busy=90, executed=100).utilisation
        0.9
    """

    done: int
    total: int
    busy: int = 0
    executed: int = 0

    def add(self, done: int, busy: int, executed: int) -> "Progress":
        """After some more work."""
        return Progress(self.done + done, self.total, self.busy + busy, self.executed + executed)

    @property
    def utilisation(self) -> float:
        """``busy / executed``, in [0, 1]; 1 where trials take no steps."""
        return self.busy / self.executed if self.executed else 1.0


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[Progress], None]]:
    """Show the progress of a sweep on standard error: as a bar in a terminal or notebook, in a file as lines.

    Args:
        label: text in front of the bar.

    Returns:
        A context manager that gives what :func:`jaxht.sweep.run` takes as ``on_progress``.

    Raises:
        ImportError: without tqdm, which ``jax-hard-thresholding[sweep]`` brings.

    Cost: a line every 15 seconds in a file.

    Source: ``tqdm.auto``.

    Example:
        >>> from jaxht import sweep
        >>> with sweep.progress_bar("mine") as bar:
        ...     results = sweep.run(lambda key, cell: {"K": 2 * cell["k"]}, {"k": [1]}, num_trials=2, on_progress=bar)
    """
    from tqdm import auto

    begin = last = time.monotonic()
    bar, latest = None, Progress(0, 0)

    def format_line() -> str:
        note = f"{latest.utilisation:.0%} busy" if latest.executed else ""
        meter = auto.tqdm.format_meter(
            latest.done, latest.total, time.monotonic() - begin, prefix=label, unit=" runs", ncols=78, postfix=note
        )
        return f"{meter}\n"

    def show(progress: Progress) -> None:
        nonlocal bar, last, latest
        latest = progress
        if sys.stderr.isatty() or "ipykernel" in sys.modules:
            bar = bar or auto.tqdm(desc=label, total=progress.total, unit=" runs")
            if progress.executed:
                bar.set_postfix_str(f"{progress.utilisation:.0%} busy", refresh=False)
            bar.update(progress.done - bar.n)
        elif time.monotonic() - last >= INTERVAL:
            last = time.monotonic()
            sys.stderr.write(format_line())
            sys.stderr.flush()

    try:
        yield show
    finally:
        if bar is not None:
            bar.close()
        elif latest.total:
            sys.stderr.write(format_line())
