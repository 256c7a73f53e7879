"""What an experiment is given beside its configuration: where results go, where data lie, who is told."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
from xarray import Dataset

from experiments.config import Failure
from jaxht import sweep


def double_precision() -> contextlib.AbstractContextManager[None]:
    """Inside, JAX computes in 64 bits."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64  # type: ignore[attr-defined]  # JAX before 0.8

    return enable_x64()


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

    def kept(self, part: str, make: Callable[[], Dataset]) -> Dataset:
        """What ``make`` gives, for a part of an experiment that is no sweep: done once, and read after that.

        It is kept under ``store / part``, and made again where the configuration has changed.
        """
        folder, attrs = self.store / part, dict(self.options.get("attrs", {}))
        with contextlib.suppress(OSError, ValueError):
            before = sweep.load(folder)
            if all(before.attrs.get(name) == value for name, value in attrs.items()):
                return before
        made = make().assign_attrs(attrs)
        sweep.save(made, folder)
        return made
