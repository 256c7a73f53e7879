"""Genotypes at two bits a call: memory, products, a fit of several traits, and the causal markers
that it finds.

``python -m benchmarks genotypes [--quick] [--samples n] [--markers d]`` simulates them in packed
form: haplotypes in runs of 32 markers of one frequency, 1/16 ... 1/2, which copy the allele at the
marker before with probability 1/2; one call in 64 is missing. Each trait has ten causal markers of
its own, and seven are common to all; effects of standardised genotypes are N(0, 1), as in Chu et
al. 2020 (MendelIHT), and scaled to the heritability. Powers and false positives are those of
markers, by trait.
"""

import argparse
import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxht
from benchmarks.timing import interleaved, peak_memory, report
from jaxht.designs import Genotypes
from jaxht.linalg.full_precision import matmul

RUN, OWN, COMMON, BLOCKS = 32, 10, 7, (8, 64)
BIOBANK, PUBLISHED = (
    (185_656, 470_228),
    "20 h",
)  # samples and markers of the published run of MendelIHT


def simulate(n: int, d: int) -> Genotypes:
    """Genotypes, by operations on random words, of which a byte is eight haplotypes and becomes
    four calls."""
    rng, even = np.random.default_rng(0), np.uint64(0x5555555555555555)
    width = -(-n // 32)

    def read(first: int, last: int) -> np.ndarray:
        runs = -(-(last - first) // RUN)
        sixteenths = rng.integers(1, 9, (runs, 1))  # the frequency, by its binary digits

        def draw() -> np.ndarray:
            return rng.integers(0, 2**64, (runs, width), np.uint64)

        def draw_alleles() -> np.ndarray:
            drawn = np.zeros((runs, width), np.uint64)
            for digit in range(4):
                word = draw()
                drawn = np.where(sixteenths >> digit & 1, word | drawn, word & drawn)
            return drawn

        words, alleles = np.empty((runs, RUN, width), np.uint64), draw_alleles()
        for i in range(RUN):
            kept = draw()
            alleles = alleles & kept | draw_alleles() & ~kept
            one, other = alleles & even, alleles >> np.uint64(1) & even
            missing = even & draw()
            for _ in range(5):
                missing = missing & draw()
            high, low = ~(one & other) & even & ~missing, ~(one | other) & even | missing
            words[:, i] = low | high << np.uint64(1)
        return words.view(np.uint8).reshape(runs * RUN, -1)[: last - first, : -(-n // 4)]

    return Genotypes.pack(read, (n, d), np.float32)


def plant(Z: Any, num_traits: int, heritability: float) -> tuple[np.ndarray, np.ndarray]:
    """Effects (d, c) and standardised traits (n, c)."""
    (n, d), rng = Z.shape, np.random.default_rng(1)
    effects = np.zeros((d, num_traits), np.float32)
    causal = rng.choice(d, COMMON + OWN * num_traits, replace=False)
    effects[causal[:COMMON]] = rng.standard_normal((COMMON, num_traits))
    for trait, own in enumerate(np.split(causal[COMMON:], num_traits)):
        effects[own, trait] = rng.standard_normal(OWN)
    genetic = np.asarray(jax.jit(lambda Z, x: Z.matvec(x))(Z, effects))
    noise = (
        rng.standard_normal((n, num_traits)) * genetic.std(axis=0) * np.sqrt(1 / heritability - 1)
    )
    y = genetic + noise
    return effects, ((y - y.mean(axis=0)) / y.std(axis=0)).astype(np.float32)


@functools.partial(jax.jit, static_argnames="repeats")
def floats_transposed(block: jax.Array, r: jax.Array, repeats: int) -> jax.Array:
    """``A^T r`` as if every block of markers were this one of floats."""

    def body(i: Any, image: jax.Array) -> jax.Array:
        return lax.dynamic_update_slice_in_dim(
            image, matmul(block, r + image[0, 0] * 0), i * len(block), 0
        )

    return lax.fori_loop(0, repeats, body, jnp.zeros((repeats * len(block), r.shape[1]), r.dtype))


@functools.partial(jax.jit, static_argnames="repeats")
def floats_times(block: jax.Array, x: jax.Array, repeats: int) -> jax.Array:
    """``A x`` as if every block of markers were this one of floats."""

    def body(i: Any, image: jax.Array) -> jax.Array:
        return image + matmul(lax.dynamic_slice_in_dim(x, i * len(block), len(block)).T, block)

    return lax.fori_loop(0, repeats, body, jnp.zeros((x.shape[1], block.shape[1]), x.dtype))


def products(Z: Any, num_traits: int, k: int, repeats: int) -> float:
    """Print the times of products next to those of reading the words and of floats; the seconds of
    those of a step."""
    (n, d), rng = Z.shape, np.random.default_rng(2)
    words = Z.base.words
    forward, backward = jax.jit(lambda Z, x: Z.matvec(x)), jax.jit(lambda Z, r: Z.rmatvec(r))
    step = 0.0
    for c in sorted({1, num_traits}):
        r = jnp.asarray(rng.standard_normal((n, c), np.float32))
        x = jnp.asarray(rng.standard_normal((d, c), np.float32))
        sparse = jnp.where(jnp.isin(jnp.arange(d), rng.choice(d, k, replace=False))[:, None], x, 0)
        candidates: dict[str, Callable[[], Any]] = {
            "reading the words": functools.partial(
                jax.jit(functools.partial(jnp.max, axis=0)), words
            )
        }
        for size in BLOCKS:
            block = jnp.asarray(rng.standard_normal((size, n), np.float32))
            candidates[f"A' r, floats, blocks of {size}"] = functools.partial(
                floats_transposed, block, r, d // size
            )
            candidates[f"A x, floats, blocks of {size}"] = functools.partial(
                floats_times, block, x, d // size
            )
        candidates["A' r"] = functools.partial(backward, Z, r)
        candidates["A x, dense x"] = functools.partial(forward, Z, x)
        candidates[f"A x, {k} nonzero rows"] = functools.partial(forward, Z, sparse)
        seconds = interleaved(candidates, repeats=repeats)
        report(f"products with {c} columns, {n} x {d}", seconds, baseline="A' r", unit="ms")
        reading = seconds["reading the words"]
        back, there = (
            np.minimum(*(seconds[f"{name}, floats, blocks of {size}"] for size in BLOCKS))
            for name in ("A' r", "A x")
        )
        own = seconds["A' r"] + seconds[f"A x, {k} nonzero rows"]
        print(
            "  speed of reading the words and the faster float product, as a share, medians over turns:"
        )
        for name, goal, taken in (
            ("A' r", reading + back, seconds["A' r"]),
            ("A x, dense x", reading + there, seconds["A x, dense x"]),
            ("a step: A' r and A x of its sparse x", 2 * reading + back + there, own),
        ):
            print(f"    {name:40s} {np.median(goal / taken):6.2f}", flush=True)
        step = float(np.median(own))
    return step


def fit(Z: Any, y: np.ndarray, effects: np.ndarray, k: int, solver: Any) -> tuple[int, float]:
    """Fit all traits with k coefficients, print what was found; the number of steps, and
    seconds."""
    f = jaxht.MultiResponse(Z, jnp.asarray(y), mean=True)
    times = []
    for _ in range(2):
        begin = time.perf_counter()
        result = jax.block_until_ready(jaxht.solve(f, jaxht.Sparse(k), solver))
        times.append(time.perf_counter() - begin)
    found, causal = np.asarray(result.x) != 0, effects != 0
    c, steps, status = y.shape[1], int(result.num_steps), result.reason
    print(
        f"\n{solver}, {c} traits, k = {k}: {times[0]:.1f} s, again {times[1]:.1f} s, {steps} steps, {status}"
    )
    large = np.abs(effects) >= np.quantile(np.abs(effects[causal]), 0.5)
    near = np.isin(np.arange(len(found)) // RUN, np.flatnonzero(causal.any(axis=1)) // RUN)
    for trait in range(c):
        hits, hit = found[:, trait], causal[:, trait]
        strong = hit & large[:, trait]
        print(
            f"  trait {trait + 1}: power {np.sum(hits & hit)} of {np.sum(hit)}, of the larger half of all effects "
            f"{np.sum(hits & strong)} of {np.sum(strong)}; false positives {np.sum(hits & ~hit)}, "
            f"of which {np.sum(hits & ~hit & near)} in a run of 32 markers with a causal one"
        )
    return steps, times[1]


def main(arguments: list[str]) -> None:
    """Print memory, times, ratios and recovery, and what they come to at the size of a biobank."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks genotypes", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="2000 samples, 20 000 markers")
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--markers", type=int, default=200_000)
    parser.add_argument("--traits", type=int, default=3)
    parser.add_argument("--size", type=int, default=50, help="coefficients of a fit")
    parser.add_argument("--heritability", type=float, default=0.5)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args(arguments)
    n, d = (2000, 20_000) if options.quick else (options.samples, options.markers)
    begin = time.perf_counter()
    A = simulate(n, d)
    took = time.perf_counter() - begin
    print(
        f"{n} samples x {d} markers, {A.words.nbytes / 1e9:.3f} GB packed; simulated in {took:.0f} s",
        flush=True,
    )
    begin = time.perf_counter()
    Z = jax.block_until_ready(jaxht.standardize(A)).design
    print(f"means, scales and missing calls in {time.perf_counter() - begin:.2f} s")
    effects, y = plant(Z, options.traits, options.heritability)
    print(
        f"{options.traits} traits of heritability {options.heritability}, {np.count_nonzero(effects)} effects N(0, 1)"
    )
    steps, taken = fit(Z, y, effects, options.size, jaxht.NIHT())
    print(f"peak memory of the process, data included: {peak_memory() / 1e9:.2f} GB", flush=True)
    step = products(Z, options.traits, options.size, options.repeats)
    entries, (people, markers) = float(n) * d, BIOBANK
    larger = people * markers / entries
    print(
        f"\na step's products with {options.traits} columns: {entries / step / 1e9:.2f} billion genotypes a second"
    )
    print(
        f"by arithmetic, at {markers} markers x {people} people ({people * markers / 4e9:.1f} GB):"
    )
    print(
        f"{step * larger:.0f} s "
        f"a step, {taken * larger / 3600:.2f} h a fit of {steps} steps; a published run of MendelIHT took {PUBLISHED}"
    )
