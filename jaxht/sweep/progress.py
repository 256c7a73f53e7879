"""A progress bar with rate and time left, wherever it is shown."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from jaxht.sweep.pool import Progress

# Seconds between two lines in a log file.
INTERVAL = 15.0


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[Progress], None]]:
    """Show the progress of a sweep on standard error: as a bar in a terminal or notebook, in a file as lines.

    ``with progress_bar("mine") as bar: sweep.run(..., on_progress=bar)``

    Raises:
        ImportError: without tqdm, which ``jaxht[sweep]`` brings.
    """
    from tqdm import auto

    begin = last = time.monotonic()
    bar, latest = None, Progress(0, 0)

    def line() -> str:
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
            sys.stderr.write(line())
            sys.stderr.flush()

    try:
        yield show
    finally:
        if bar is not None:
            bar.close()
        elif latest.total:
            sys.stderr.write(line())
