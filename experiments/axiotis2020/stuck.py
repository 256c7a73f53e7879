"""Axiotis & Sviridenko 2020, Lemma 5.2: where replacement is stuck, and adaptive regularisation is
not."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from chex import Array
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field
from xarray import Dataset

from experiments.common import BaseConfig, Count, Positive, Session, double_precision, plots
from experiments.common.claims import EXACT, Claim, Finding, Section, Setting, Verdict, needs
from jaxht import ARHT, OMPR, ExhaustiveLocalSearch, LeastSquares, Sparse, Stop, trace
from jaxht.solvers.solver import Solver

SOLVERS = {"OMPR": "OMPR", "ARHT": "ARHT", "ELS": "exhaustive local search"}


class Config(BaseConfig):
    """The lemma's instance."""

    kappa: Annotated[
        int, Field(ge=2, multiple_of=2)
    ]  # even; the smoothness of f, and the rho of ARHT
    sparsity: Count  # s*, nonzeros of the optimum
    delta: Positive  # small
    num_steps: Count  # of each


def instance(
    kappa: int, s: int, delta: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Return the diagonal A, b, and f(x*) of the lemma."""
    sizes = [s, s * kappa, s * kappa**2]
    a = np.repeat([1, np.sqrt(kappa), 1], sizes)
    b = np.repeat([kappa * np.sqrt(1 - 4 * delta), np.sqrt(kappa * (1 - 2 * delta)), 1], sizes)
    return np.diag(a), b, s * kappa**2 * (1 - delta)


def run(config: Config, session: Session, solvers: Sequence[str] = tuple(SOLVERS)) -> Dataset:
    """Trace solvers from k indices of I3, up to the lemma's k = s* kappa^2 / 2."""
    kappa, s = config.kappa, config.sparsity
    A, b, optimum = instance(kappa, s, config.delta)
    most = s * kappa**2 // 2
    k = np.unique(np.round(np.geomspace(s, most, 12)).astype(int))
    key = jax.random.key(config.seed)

    def solver(name: str, start: Array) -> Solver:
        if name != "ARHT":
            return {"OMPR": OMPR(), "ELS": ExhaustiveLocalSearch()}[name]
        # The first guess is half way from the lower bound to the minimum on the start's support:
        # here it is f(x*).
        return ARHT(rho=float(kappa), lower=2 * optimum - jnp.sum(jnp.where(start, 0, b**2)) / 2)

    @partial(jax.jit, static_argnums=0)
    def traced(name: str, k: Array) -> Array:
        """Return f in every step from k indices of I3, until it is below f(x*)."""
        start = jnp.arange(len(b)) >= len(b) - k
        f, constraint = (
            LeastSquares(jnp.asarray(A), jnp.asarray(b), mean=False),
            Sparse(k, k_max=most),
        )
        stop = Stop(target_value=optimum)
        found = trace(
            f,
            constraint,
            solver(name, start),
            num_steps=config.num_steps,
            x0=start,
            key=key,
            stop=stop,
        )
        return found[1]

    values = []
    with double_precision():
        for name in session.progress(solvers):
            values.append([np.asarray(traced(name, jnp.int32(size))) for size in k])
    return Dataset(
        {"value": (("solver", "k", "step"), np.array(values)), "optimum": optimum},
        coords={"solver": list(solvers), "step": np.arange(config.num_steps + 1), "k": k},
    )


def plot(dataset: Dataset, config: Config) -> Figure:
    """Draw the lemma's traces on the left, the ends for all k on the right."""
    figure, (left, right) = plots.panels(2, width=2.9, height=2.6)
    for name, (color, marker) in plots.looks(dataset.solver.values.tolist()).items():
        found = dataset.value.sel(solver=name)
        moved = found[-1, 1 : int((found[-1].diff("step") != 0).sum()) + 2]
        left.plot(moved.step, moved, color=color, marker=marker, label=SOLVERS[name])
        right.plot(found.k, found[:, -1], color=color, marker=marker)
    for axes in (left, right):
        axes.axhline(
            float(dataset.optimum),
            color=plots.GREY,
            linestyle="--",
            linewidth=0.8,
            label="$f(x^*)$",
        )
    left.set_xlabel("step")
    left.set_ylabel("$f$")
    left.set_title(rf"$k = s^* \kappa^2 / 2 = {int(dataset.k[-1])}$")
    left.legend()
    plots.whole_numbers(left)
    right.set_xscale("log", base=2)
    right.set_xlabel("sparsity $k$")
    right.set_title("at the end, or once below $f(x^*)$")
    right.axvline(config.sparsity * config.kappa, color=plots.GREY, linestyle=":", linewidth=0.8)
    right.annotate(
        r"$s^* \kappa$", (config.sparsity * config.kappa, right.get_ylim()[1]), va="top", fontsize=8
    )
    plots.caption(figure, config)
    return figure


# ---- what the paper says of it, and whether it holds ----


def stays(results: Dataset, config: Any) -> Finding:
    """OMPR at k = s* kappa^2 / 2; its first steps may be those that refit the start."""
    size = config.sparsity * config.kappa**2
    start = size * (5 / 4 - 3 * config.delta)
    level = start - (config.kappa * (1 - 2 * config.delta) - 1) / 2
    found = results.value.sel(solver="OMPR").isel(k=-1).values
    at_start, at_level = (np.isclose(found, value, rtol=EXACT) for value in (start, level))
    text = f"f = {found[0]:.3f} at the start and {found[-1]:.3f} at the end; by the lemma {start:.3f} and {level:.3f}"
    return Finding.of(text, bool((at_start | at_level).all() and at_start[0]), bool(at_level[-1]))


def far_from_optimal(results: Dataset, config: Any) -> Finding:
    ends = results.value.sel(solver="OMPR").isel(step=-1)
    above = ((ends - results.optimum) / (config.sparsity * config.kappa**2)).values
    text = (
        f"$(f - f(x^*))/(s^* \\kappa^2)$ at the end: {above[-1]:.3f} at $k = {int(ends.k[-1])}$, "
    )
    text += f"f above $f(x^*)$ at {(above > EXACT).sum()} of {above.size} k up to there"
    return Finding.of(text, bool(above[-1] > 0.1), bool((above > EXACT).all()))


@needs("ARHT", column="value")
def regularised(results: Dataset, config: Any) -> Finding:
    """From which k on the end of ARHT is at most f(x*)."""
    ends = results.value.sel(solver="ARHT").isel(step=-1)
    reached = (ends <= results.optimum * (1 + EXACT)).values
    linear = config.sparsity * config.kappa
    if not reached[-1]:
        return Finding(f"not even at k = {int(ends.k[-1])}", Verdict.DOES_NOT_HOLD)
    first = int(ends.k[len(reached) - int(np.argmin(reached[::-1])) if not reached.all() else 0])
    text = f"ARHT reaches $f(x^*)$ from k = {first} on, {first / linear:.1f} times $s^* \\kappa$"
    return Finding.of(text, first < int(ends.k[-1]), first <= 4 * linear)


LEMMA_5_2 = Section(
    "Lemma 5.2",
    "lemma5_2",
    [
        Claim(
            "OMPR stays at $f(x^0) - (\\kappa(1-2\\delta) - 1)/2$, $f(x^0) = s^* \\kappa^2 (5/4 - 3\\delta)$",
            stays,
        ),
        Claim("so OMPR ends at $f(x^*) + \\Theta(s^* \\kappa^2)$", far_from_optimal),
        Claim("with regularisation (Theorem 3.1), $O(s^* \\kappa)$ is sufficient", regularised),
    ],
    "The paper has no figure of it.",
    settings=[
        Setting("κ", "any even integer (Lemma 5.2)", "{kappa}"),
        Setting("$s^*$", "any (Lemma 5.2)", "{sparsity}"),
        Setting("δ", "small, positive (Lemma 5.2)", "{delta}"),
        Setting("steps", "a fixed number (§5.2)", "{num_steps}"),
    ],
)
