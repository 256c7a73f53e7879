"""Honest timing: candidates take turns, and what counts is the median and the median of the
ratios."""

import contextlib
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax.experimental.compilation_cache import compilation_cache


def interleaved(
    candidates: Mapping[str, Callable[..., Any]], *, repeats: int = 15
) -> dict[str, np.ndarray]:
    """Seconds of each call, shape (repeats,) by name.

    At its turn a candidate is called twice and timed the second time: what the others left in the
    caches and in the thread pools is nobody's cost.
    """
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(repeats):
        for name, call in candidates.items():
            jax.block_until_ready(call())
            begin = time.perf_counter()
            jax.block_until_ready(call())
            seconds[name].append(time.perf_counter() - begin)
    return {name: np.array(values) for name, values in seconds.items()}


def report(
    title: str, seconds: dict[str, np.ndarray], *, baseline: str, per: int = 1, unit: str = "us"
) -> None:
    """Print each candidate's median and how many times faster than the baseline it is, turn by
    turn."""
    scale = {"us": 1e6, "ms": 1e3, "s": 1.0}[unit] / per
    print(f"\n{title}")
    for name, values in seconds.items():
        low, ratio, high = np.percentile(seconds[baseline] / values, [10, 50, 90])
        speed = "" if name == baseline else f"  {ratio:6.2f}x  ({low:.2f} to {high:.2f})"
        print(f"  {name:42s} {np.median(values) * scale:10.2f} {unit}{speed}", flush=True)


def warm_seconds(call: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of the first and of the second call."""
    times = []
    for _ in range(2):
        begin = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - begin)
    return times[0], times[1]


@contextlib.contextmanager
def compiling_anew() -> Iterator[None]:
    """Inside, first calls compile: nothing is read from JAX's persistent compilation cache, nor
    written to it."""
    before = jax.config.jax_enable_compilation_cache  # type: ignore[attr-defined]
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()  # else JAX does not read the setting again
    try:
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", before)
        compilation_cache.reset_cache()


def double_precision() -> contextlib.AbstractContextManager[None]:
    """Return a context in which JAX computes in 64 bits."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64  # type: ignore[attr-defined]  # JAX before 0.8

    return enable_x64()


def peak_memory() -> int:
    """The largest resident memory of this process so far, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def temporary_bytes(program: Any) -> int:
    """What a compiled program needs beside its arguments and results."""
    return program.memory_analysis().temp_size_in_bytes
