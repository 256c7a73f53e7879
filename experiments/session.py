"""What an experiment is given beside its configuration: where results go, where data lie, who is told."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xarray import Dataset

from experiments.config import Failure
from jaxht import sweep


@dataclass(frozen=True)
class Session:
    """One call of the command line.

    Attributes:
        store: folder of the results.
        data_dir: folder of the data sets, or None.
        on_progress: to be told how far things are.
        options: of every sweep.
    """

    store: Path
    data_dir: Path | None
    on_progress: Callable[[sweep.Progress], None]
    options: Mapping[str, Any] = field(default_factory=dict)

    def report(self, done: int, total: int) -> None:
        """For experiments that are no sweeps."""
        self.on_progress(sweep.Progress(done, total))

    def sweep(
        self, trial: sweep.Trial | sweep.Run, axes: Mapping[str, Sequence[Any]], *, part: str = "", **options: Any
    ) -> Dataset:
        """:func:`jaxht.sweep.run` with results under ``store / part``.

        Raises:
            Failure: where the store holds something else, or cannot be written.
        """
        folder = self.store / part
        try:
            return sweep.run(trial, axes, store=folder, on_progress=self.on_progress, **self.options, **options)
        except sweep.StoreError as error:
            raise Failure(str(error)) from error
