"""What an experiment is given beside its configuration: where results go, where data lie, whom
progress is told."""

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import jax
from xarray import Dataset

from experiments.common.config import Failure, identity
from jaxht import sweep

T = TypeVar("T")
Part = Callable[..., Dataset]  # (name, compute, in_pieces=False)
Piece = Callable[[str, Callable[[], Dataset]], Dataset]


def double_precision() -> contextlib.AbstractContextManager[None]:
    """Return a context in which JAX computes in 64 bits."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64  # type: ignore[attr-defined]  # JAX before 0.8

    return enable_x64()


@dataclass(frozen=True)
class Session:
    """One call of the command line."""

    store: Path  # folder of the results
    data_dir: Path | None  # folder of the data sets, or None
    on_progress: Callable[[sweep.Progress], None]  # called with the progress made
    options: Mapping[str, Any] = field(default_factory=dict)  # of every sweep

    def progress(self, items: Iterable[T]) -> Iterator[T]:
        """Iterate over the items, and report how many of them are done."""
        items = list(items)
        for done, item in enumerate(items):
            self.on_progress(sweep.Progress(done, len(items)))
            yield item
        self.on_progress(sweep.Progress(len(items), len(items)))

    def sweep(
        self,
        trial: sweep.Trial | sweep.Run,
        axes: Mapping[str, Sequence[Any]],
        *,
        part: str = "",
        **options: Any,
    ) -> Dataset:
        """Call :func:`jaxht.sweep.run`, with results under ``store / part``.

        What it asks for is the attribute ``asked`` of the results: a store may hold more.

        Raises:
            Failure: where the store holds something else, or cannot be written.
        """
        folder = self.store / part
        asked = json.dumps(
            {"axes": {name: list(axes[name]) for name in axes}, "num_trials": options["num_trials"]}
        )
        options = {
            **self.options,
            **options,
            "attrs": {**self.options.get("attrs", {}), "asked": asked},
        }
        try:
            return sweep.run(trial, axes, store=folder, on_progress=self.on_progress, **options)
        except sweep.StoreError as error:
            raise Failure(str(error)) from error

    @contextlib.contextmanager
    def parts(self, total: int, counts: Sequence[str] = ()) -> Iterator[Part]:
        """Give a function part(name, compute, in_pieces=False), for an experiment that is no sweep
        but has parts.

        A part is computed once and read after that: its results are kept under ``store / name``,
        and computed again where the configuration has changed. A part that takes long is computed
        ``in_pieces``: then compute is given a function piece(name, compute), whose results are kept
        in the same way within the part. ``counts`` are the fields of the configuration that say how
        many pieces there are, and change none.
        """
        done = 0

        def part(name: str, compute: Callable[..., Dataset], in_pieces: bool = False) -> Dataset:
            nonlocal done
            self.on_progress(sweep.Progress(done, total, note=name))
            done += 1
            return self._kept(
                name, partial(compute, partial(piece, name)) if in_pieces else compute
            )

        def piece(whole: str, name: str, compute: Callable[[], Dataset]) -> Dataset:
            self.on_progress(sweep.Progress(done - 1, total, note=f"{whole}, {name}"))
            return self._kept(f"{whole}/{name}", compute, counts)

        yield part
        self.on_progress(sweep.Progress(done, total))

    def _kept(
        self, name: str, compute: Callable[[], Dataset], apart: Sequence[str] = ()
    ) -> Dataset:
        folder = self.store / name
        attrs = dict(self.options.get("attrs", {}))
        fingerprint = _fingerprint(attrs, apart)
        with contextlib.suppress(OSError, ValueError):
            return sweep.load(folder, fingerprint).assign_attrs(attrs)
        computed = compute().assign_attrs(attrs)
        try:
            sweep.save(computed, folder, fingerprint)
        except OSError as error:
            raise Failure(f"{folder}: {error.strerror or error}") from error
        return computed


def _fingerprint(attrs: Mapping[str, Any], apart: Sequence[str]) -> str:
    """A hash of the attributes; of a configuration, only of what identifies results."""
    identifying = dict(attrs)
    if "config" in attrs:
        identifying["config"] = identity(attrs["config"], apart)
    return hashlib.sha256(json.dumps(identifying, sort_keys=True).encode()).hexdigest()
