"""What an experiment is given beside its configuration: where results go, where data lie, who is told."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xarray import Dataset

from experiments.config import Report
from jaxht import sweep


@dataclass(frozen=True)
class Session:
    """One call of the command line.

    Attributes:
        store: folder of the results.
        data_dir: folder of the data sets, or None.
        report: to be called with (done, in all).
    """

    store: Path
    data_dir: Path | None
    report: Report

    def sweep(
        self,
        trial: Callable[..., Any],
        axes: Mapping[str, Sequence[Any]],
        *,
        part: str = "",
        where: Callable[[Mapping[str, Any]], bool] | None = None,
        **options: Any,
    ) -> Dataset:
        """:func:`jaxht.sweep.run` with results under ``store / part``."""
        return sweep.run(trial, axes, on_progress=self.report, **options)
