"""Random small problems that are hard on arithmetic: `python -m tests.fuzz --minutes 10 [--seed
0]`.

Every round draws a loss, a constraint, a solver and a precision, and solves a batch of problems
with duplicated, zero and badly scaled columns, k from 0 to d, fewer samples than columns, bounds
that hold nothing but 0, and starts far off. Of each result it checks, in higher precision than the
library has:

* x is finite and feasible exactly: at most k coordinates or groups, within its bounds;
* ``value`` is f(x), and ``support`` the support of x;
* the status is true: success only with a finite value that is no worse than that of x = 0; limits
  that were met; where the solver refits, no better point on the support; for ``LocalSearch`` no
  worse than the start, and of least squares no better point after a swap;
* ``certify`` bounds f from below on every support, for which it is minimised one by one;
* so do the relaxations of branch and bound, on every support below a random node.

What fails is printed with the round that repeats it: `python -m tests.fuzz --seed 0 --first ROUND
--rounds 1`.
"""

import argparse
import collections
import dataclasses
import functools
import itertools
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

import jaxht
from jaxht import Status
from jaxht.exact import relaxation
from jaxht.exact.perspective import Node, spread
from jaxht.objectives import dual
from tests.util import precision, quick

LANES = 512
FEW = 32  # lanes of solvers that refit many supports in a step
SHAPES = [(8, 6), (4, 6), (1, 6), (12, 5), (6, 1)]  # samples and columns
ROUNDING = 16.0  # in bounds on rounding errors

# ---- losses, in higher precision -----------------------------------------------------------------


def softplus(v):
    return np.maximum(v, 0) + np.log1p(np.exp(-np.abs(v)))


@dataclasses.dataclass(frozen=True)
class Loss:
    """A loss of a prediction u and a target y, and how jaxht calls it."""

    objective: type
    of: object
    classes: bool = False

    def value(self, A, y, l2, x, u=None):
        """f, for x (..., d), without the rounding of the product where u is given."""
        u = np.einsum("nd,...d->...n", A, x) if u is None else u
        return self.of(u, y).mean(axis=-1) + l2 / 2 * np.sum(x * x, axis=-1)

    def value_between(self, A, y, l2, x, eps):
        """Bounds on what a computation of f(x) in precision eps may give."""
        u = A @ x
        error = ROUNDING * eps * len(x) * (np.abs(A) @ np.abs(x) + np.abs(y))
        f, ends = (
            self.value(A, y, l2, x),
            [self.value(A, y, l2, x, u=v) for v in (u - error, u + error)],
        )
        each = [self.of(v, y) for v in (u - error, u + error)]
        spread = np.mean(
            np.maximum(np.abs(each[0] - self.of(u, y)), np.abs(each[1] - self.of(u, y)))
        )
        size = np.mean(np.abs(self.of(u, y))) + abs(l2) * np.sum(x * x)
        slack = (
            spread
            + ROUNDING * eps * (len(y) + len(x)) * (size + np.max(np.abs(ends), initial=0))
            + TINY
        )
        return f - slack, f + slack


TINY = 1e-36  # what single precision may lose to zero
LOSSES = {
    "squares": Loss(
        functools.partial(jaxht.LeastSquares, mean=True), lambda u, y: (u - y) ** 2 / 2
    ),
    "logistic": Loss(jaxht.Logistic, lambda u, y: softplus(-y * u), classes=True),
    "huber": Loss(
        jaxht.Huber,
        lambda u, y: np.where(np.abs(u - y) <= 1, (u - y) ** 2 / 2, np.abs(u - y) - 0.5),
    ),
    "squared hinge": Loss(
        jaxht.SquaredHinge, lambda u, y: np.maximum(1 - y * u, 0) ** 2 / 2, classes=True
    ),
    "smoothed hinge": Loss(
        jaxht.SmoothedHinge,
        lambda u, y: np.where(
            y * u >= 1, 0, np.where(y * u < 0, 0.5 - y * u, (1 - y * u) ** 2 / 2)
        ),
        classes=True,
    ),
    "hinge": Loss(
        jaxht.Hinge, lambda u, y: np.maximum(1 - y * u, 0), classes=True
    ),  # of relaxations alone
}

# ---- constraints ---------------------------------------------------------------------------------

GROUPS = (np.arange(6) % 3).astype(np.int32)


@dataclasses.dataclass(frozen=True)
class Kind:
    """A constraint by its arrays, and what it asks of a point."""

    make: object
    groups: np.ndarray | None = None

    def sizes(self, masks):
        if self.groups is None:
            return masks.sum(axis=-1)
        return np.stack(
            [masks[..., self.groups == g].any(axis=-1) for g in np.unique(self.groups)]
        ).sum(axis=0)


def box(k, d, lower, upper, keep):
    return jaxht.Sparse(k, k_max=d, bounds=(lower, upper))


KINDS = {
    "Sparse": Kind(lambda k, d, lower, upper, keep: jaxht.Sparse(k, k_max=d)),
    "nonnegative": Kind(
        lambda k, d, lower, upper, keep: jaxht.Sparse(k, k_max=d, nonnegative=True)
    ),
    "bounds": Kind(box),
    "keep": Kind(lambda k, d, lower, upper, keep: jaxht.Sparse(k, k_max=d, keep=keep)),
    "Groups": Kind(lambda k, d, lower, upper, keep: jaxht.Groups(k, GROUPS, k_max=3), GROUPS),
}

# Solvers at their defaults, as far as these are cheap. Those that refit end where f cannot decrease
# on the support.
REFITS = (
    "HTP",
    "PHT",
    "SubspacePursuit",
    "OMP",
    "OLS",
    "OMPR",
    "ExhaustiveLocalSearch",
    "FoBa",
    "LocalSearch",
)
SOLVERS = {
    **{
        name: getattr(jaxht, name)()
        for name in (*REFITS, "IHT", "NIHT", "CoSaMP", "GraSP", "DIHT", "SDIHT")
    },
    "ARHT": jaxht.ARHT(num_cores=2),
    "LocalSearch": jaxht.LocalSearch(num_starts=2, num_moves=2, patience=1, num_candidates=2),
    "LocalSearch, one candidate": jaxht.LocalSearch(
        num_starts=2, num_moves=20, patience=1, num_candidates=1
    ),
    "accelerated IHT": jaxht.IHT(nesterov=True),
    **{name: getattr(jaxht, name)(inner_steps=8) for name in ("SGHT", "HTSVRG", "HTSAGA", "HSGHT")},
}
RELAXATION = "relaxation"  # at a node of branch and bound, in place of a solver
DESCENDS = ("IHT", "NIHT", *REFITS)
DUAL = ("DIHT", "SDIHT")

# ---- problems ------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Form:
    """What a program is compiled for."""

    loss: str
    kind: str
    solver: str
    dtype: str
    shape: tuple[int, int]

    @property
    def l2_min(self):
        return 1e-3 if self.solver in (*DUAL, RELAXATION) else 0.0


def draw_form(rng, solver=None):
    while True:
        names = [str(rng.choice(list(table))) for table in (LOSSES, KINDS, [*SOLVERS, RELAXATION])]
        names[2] = solver or names[2]
        form = Form(
            *names, str(rng.choice(["float32", "float64"])), SHAPES[rng.integers(len(SHAPES))]
        )
        if form.kind == "Groups" and form.shape[1] != len(GROUPS):
            continue
        if form.loss == "hinge" and form.solver != RELAXATION:
            continue
        return form


def draw_problem(form, rng):
    """The arrays of one problem."""
    n, d = form.shape
    A = rng.normal(size=(n, d)) if rng.random() < 0.7 else rng.integers(-2, 3, (n, d)).astype(float)
    for _ in range(rng.integers(0, 3)):  # copies, exact, of another sign or but for the last digits
        i, j = rng.integers(d, size=2)
        A[:, i] = A[:, j] * rng.choice([1, -1, 1 + 1e-7, 2])
    A[:, rng.random(d) < rng.choice([0, 0, 0.2, 1], p=[0.5, 0.2, 0.25, 0.05])] = 0
    widest = rng.choice([0, 2, 6, 20], p=[0.4, 0.3, 0.2, 0.1])
    A *= 10.0 ** rng.uniform(-widest, widest, d if rng.random() < 0.5 else 1)
    x = rng.normal(size=d) * (rng.random(d) < 0.5)
    y = A @ x + rng.choice([0, 0.1, 1]) * rng.normal(size=n)
    if LOSSES[form.loss].classes:
        y = np.where(y > 0, 1.0, -1.0)
    elif rng.random() < 0.2:
        y *= 10.0 ** rng.uniform(-widest, widest)
    l2 = max(form.l2_min, rng.choice([0, 1e-8, 1e-3, 1, 1e4], p=[0.3, 0.1, 0.3, 0.2, 0.1]))
    x0 = rng.choice([0, 1, 1e3], p=[0.6, 0.3, 0.1]) * rng.normal(size=d)
    low, high = -np.abs(rng.normal(size=(2, d))) * rng.choice([0, 0.1, 1, np.inf], size=(2, d))
    k = rng.integers(0, (3 if form.kind == "Groups" else d) + 1)
    keep = np.zeros(d, bool)
    keep[rng.permutation(d)[: rng.integers(0, k + 1)]] = True
    low, high = np.nan_to_num([low, -high], nan=0.0, posinf=np.inf, neginf=-np.inf)
    arrays = {"A": A, "y": y, "l2": l2, "x0": x0, "lower": low, "upper": high}
    with np.errstate(over="ignore"):
        arrays = {name: np.asarray(array, form.dtype) for name, array in arrays.items()}
    # A node: each item is in all supports, in none, or free.
    m = 3 if form.kind == "Groups" else d
    fate = np.where(np.arange(m) < rng.integers(0, k + 1), 1, rng.choice([0, -1], size=m))[
        rng.permutation(m)
    ]
    if form.kind == "keep":
        fate[keep] = 0
        fate[fate == 1] = 0
    return arrays | {"k": np.int32(k), "keep": keep, "fate": fate}


@functools.lru_cache(maxsize=64)
def program(form, optimised):
    """Results and certificates of a batch of problems."""
    d = form.shape[1]

    def run(A, y, l2, x0, lower, upper, k, keep, fate, key):
        objective = LOSSES[form.loss].objective(A, y, l2)
        constraint = KINDS[form.kind].make(k, d, lower, upper, keep)
        if form.solver == RELAXATION:
            return relax_node(objective, constraint, fate, x0)
        stop = jaxht.Stop(max_steps=jnp.where(k % 2 == 0, 30, 3))
        result = jaxht.solve(objective, constraint, SOLVERS[form.solver], x0=x0, key=key, stop=stop)
        proof = None
        if form.l2_min:
            proof = jaxht.certify(objective, constraint, result.x, stop=jaxht.Stop(max_steps=20))
        start = None
        if form.solver == "LocalSearch":
            start = jaxht.solve(
                objective, constraint, jaxht.NIHT(), x0=x0, stop=jaxht.Stop(max_steps=0)
            ).value
        return result, stop.max_steps, proof, start

    return (jax.jit if optimised else quick)(jax.vmap(run))


def relax_node(objective, constraint, fate, x0):
    """The relaxation at a node, a few steps long."""
    objective, constraint = objective.prepare(), constraint.prepare(x0.shape)
    excluded = fate < 0
    included = ~excluded & ((fate > 0) | constraint.always_active)
    chosen = jaxht.selection.k_largest_mask(
        jnp.where(included, 3, jnp.where(excluded, 0, 1)), constraint.limit
    )
    ridge = relaxation.Ridge(objective.penalty, *jnp.zeros((3,), x0.dtype))
    norm = dual.column_bound(objective)
    x, _ = constraint.project(jnp.where(spread(constraint, excluded), 0, x0))
    shared = relaxation.Relaxation.of(objective, constraint, ridge, norm, 1.0)
    start = relaxation.NodeStart(Node(included, excluded), chosen & ~excluded, x, shared.step_size)
    found = relaxation.relax(shared, relaxation.Goal(jnp.inf, 0.05, 3), start)
    return found.bound.lower, included, excluded


# ---- checks --------------------------------------------------------------------------------------


def best_on_supports(loss, A, y, l2, masks, num_steps=30):
    """The minimiser of f on each of the supports (m, d), by damped Newton steps in double
    precision.

    Points that have not converged are feasible all the same: an upper bound of the minimum.
    """
    d = A.shape[1]
    norms = np.linalg.norm(A, axis=0) / np.sqrt(len(A))
    scale = np.where(norms > 0, 1 / np.where(norms > 0, norms, 1), 1.0)
    B, penalty = A * scale, l2 * scale**2
    w = np.zeros((len(masks), d))

    def f(w):
        return loss.of(w @ B.T, y).mean(axis=-1) + w * w @ penalty / 2

    value = f(w)
    for _ in range(num_steps):
        u, h = w @ B.T, 1e-4 * (1 + np.abs(w @ B.T))
        slope = (loss.of(u + h, y) - loss.of(u - h, y)) / (2 * h)
        bend = np.maximum((loss.of(u + h, y) - 2 * loss.of(u, y) + loss.of(u - h, y)) / h**2, 1e-6)
        gradient = np.where(masks, slope @ B / len(y) + penalty * w, 0)
        H = np.einsum("mn,ni,nj->mij", bend / len(y), B, B) + np.diag(penalty)
        H = H + 1e-12 * (1 + np.max(np.abs(H), axis=(1, 2), keepdims=True)) * np.eye(d)
        H = np.where(masks[:, :, None] & masks[:, None, :], H, 0) + np.eye(d) * ~masks[:, None, :]
        step = np.linalg.solve(H, gradient[..., None])[..., 0]
        for t in (1, 0.3, 0.05, 0.001):
            trial = np.where(masks, w - t * step, 0)
            trial_value = f(trial)
            better = trial_value < value
            w, value = np.where(better[:, None], trial, w), np.where(better, trial_value, value)
    return w * scale


def check(form, arrays, result, max_steps, proof, start, enumerated):
    """What is wrong with the result of one problem, in words; all supports are tried where
    ``enumerated``."""
    loss, kind, eps = LOSSES[form.loss], KINDS[form.kind], float(jnp.finfo(form.dtype).eps)
    high = np.longdouble if form.dtype == "float64" else np.float64
    A, y, l2, x = (np.asarray(v, high) for v in (arrays["A"], arrays["y"], arrays["l2"], result.x))
    status = Status(int(result.status))
    if not np.all(np.isfinite(x)):
        yield "x is not finite"
        return
    if kind.sizes(x != 0) > arrays["k"]:
        yield f"{kind.sizes(x != 0)} nonzeros, of {arrays['k']}"
    bounds = {"nonnegative": (0, np.inf), "bounds": (arrays["lower"], arrays["upper"])}.get(
        form.kind
    )
    if bounds and not np.all((result.x >= bounds[0]) & (result.x <= bounds[1])):
        yield "x is outside of its bounds"
    kept = np.asarray(arrays["keep"] & (form.kind == "keep"))
    if kind.sizes((x != 0) | kept) > arrays["k"]:
        yield f"{arrays['k']} may not be zero, and none is left for what is kept"
    if not np.array_equal(result.support.mask, kind_mask(kind, x) | kept):
        yield "support is not that of x"
    if not (0 <= result.num_steps <= max_steps):
        yield f"{result.num_steps} steps"
    if status == Status.RUNNING or ((status == Status.MAX_STEPS) and result.num_steps < max_steps):
        yield f"{status.name} after {result.num_steps} steps of {max_steps}"
    with np.errstate(over="ignore", invalid="ignore"):
        least, most = loss.value_between(A, y, l2, x, eps)
        origin = loss.value_between(A, y, l2, np.zeros_like(x), eps)[1]
    if start is not None and np.isfinite(start) and result.value > start + (most - least):
        yield f"{status.name} with a value of {result.value}, above {start} at the start"
    if status.failed:
        return
    if form.solver == "LocalSearch" and status != Status.NO_PROGRESS:
        yield f"LocalSearch ends with {status.name}"
    if not np.isfinite(result.value):
        yield f"{status.name} with a value of {result.value}"
    elif np.isfinite(most - least) and not least <= result.value <= most:
        yield f"value {result.value} is not f(x), which is from {least} to {most}"
    if form.solver in DESCENDS and not arrays["x0"].any() and least > origin:
        yield f"{status.name} at f = {least}, above {origin} at 0"
    # Scales at which double precision resolves the subproblems on every support.
    sizes = np.linalg.norm(np.asarray(A, float), axis=0)
    plain = np.all((sizes == 0) | (sizes > 1e-3) & (sizes < 1e3)) and np.abs(y).max() < 1e6
    if not enumerated or not plain or form.kind in ("nonnegative", "bounds"):
        best = np.zeros((1, len(x)))
    else:
        masks = np.array(list(itertools.product([False, True], repeat=len(x))))
        masks = masks[kind.sizes(masks) <= arrays["k"]]
        best = best_on_supports(loss, *(np.asarray(v, float) for v in (A, y, l2)), masks)
        if form.solver in REFITS and form.kind == "Sparse":
            on_support = loss.value(A, y, l2, best[np.all(masks == (x != 0), axis=1)][0])
            slack = 10 * np.sqrt(eps) * (origin + abs(most))
            if least - on_support > slack:
                yield f"{status.name} at f = {least}, but {on_support} on the same support"
            if form.solver == "LocalSearch" and form.loss == "squares":
                swaps = (masks & (x == 0)).sum(axis=1) <= 1
                swaps &= (~masks & (x != 0)).sum(axis=1) <= 1
                after = np.min(loss.value(A, y, l2, np.asarray(best, high))[swaps])
                if least - after > slack:
                    yield f"{status.name} at f = {least}, but {after} after a swap"
    if proof is not None and np.isfinite(proof.lower):
        optimum = min(np.min(loss.value(A, y, l2, np.asarray(best, high))), loss.value(A, y, l2, x))
        if proof.lower > optimum * (1 + 1e-15):
            yield f"certify: {proof.lower} is above the optimum, at most {optimum}, by {proof.lower / optimum - 1:.1e}"
        if proof.value < loss.value(A, y, l2, x) * (1 - 1e-15):
            yield f"certify: value {proof.value} is below f(x)"


def check_bound(form, arrays, lower, included, excluded):
    """What is wrong with the bound at a node, in words: all supports below it are tried."""
    loss, kind = LOSSES[form.loss], KINDS[form.kind]
    high = np.longdouble if form.dtype == "float64" else np.float64
    A, y, l2 = (np.asarray(arrays[name], high) for name in ("A", "y", "l2"))
    if np.isnan(lower) or lower == np.inf:
        yield f"the bound at a node is {lower}"
        return
    masks = np.array(list(itertools.product([False, True], repeat=len(included))))
    masks = masks[
        ((masks | included).sum(axis=1) <= arrays["k"]) & ~np.any(masks & excluded, axis=1)
    ]
    masks = masks if kind.groups is None else masks[:, kind.groups]
    points = np.zeros((1, A.shape[1]))
    if form.kind not in ("nonnegative", "bounds"):
        points = best_on_supports(
            loss, *(np.asarray(v, float) for v in (A, y, l2)), masks, num_steps=12
        )
    with np.errstate(over="ignore", invalid="ignore"):
        optimum = np.nanmin(loss.value(A, y, l2, np.asarray(points, high)))
    if lower > optimum + 1e-15 * abs(optimum):
        yield f"the bound {lower} at a node is above f, at most {optimum}, by {lower / optimum - 1:.1e}"


def kind_mask(kind, x):
    """The support of x: of groups all coordinates."""
    if kind.groups is None:
        return x != 0
    return np.isin(kind.groups, kind.groups[x != 0])


# ---- rounds --------------------------------------------------------------------------------------


def run_round(seed, number, optimised, solver=None):
    """Solve and check the problems of a round: its form, the statuses, and what failed, by lane."""
    # A form serves four rounds, whose problems differ.
    form = draw_form(np.random.default_rng([seed, number // 4]), solver)
    rng = np.random.default_rng([seed, number, 1])
    lanes = FEW if form.solver in ("LocalSearch", "ExhaustiveLocalSearch") else LANES
    problems = [draw_problem(form, rng) for _ in range(lanes)]
    batch = {name: np.stack([problem[name] for problem in problems]) for name in problems[0]}
    with precision(form.dtype):
        outputs = program(form, optimised)(
            **batch, key=jax.random.split(jax.random.key(number), lanes)
        )
        outputs = jax.tree.map(np.asarray, outputs)
    failures = []
    for i, problem in enumerate(problems):
        lane = jax.tree.map(lambda array, i=i: array[i], outputs)
        if form.solver == RELAXATION:
            failures += [(i, message) for message in check_bound(form, problem, *lane)]
            continue
        failures += [
            (i, message) for message in check(form, problem, *lane, enumerated=i % 32 == 0)
        ]
    return form, [] if form.solver == RELAXATION else outputs[0].status, failures


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="how long to go on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the round to begin with")
    parser.add_argument("--rounds", type=int, default=10**9, help="how many at most")
    parser.add_argument("--solver", help="this one alone, or `relaxation`")
    parser.add_argument(
        "--optimised", action="store_true", help="compile as users do, which takes longer"
    )
    arguments = parser.parse_args()
    end, total, failed = time.monotonic() + 60 * arguments.minutes, 0, 0
    statuses = collections.defaultdict(collections.Counter)
    for number in itertools.count(arguments.first):
        if number >= arguments.first + arguments.rounds or time.monotonic() > end:
            break
        form, found, failures = run_round(
            arguments.seed, number, arguments.optimised, arguments.solver
        )
        total += len(found) if form.solver != RELAXATION else LANES
        failed += len({lane for lane, _ in failures})
        names = (Status(int(status)).name for status in found)
        statuses[form.solver].update(["BOUND"] * LANES if form.solver == RELAXATION else names)
        for lane, message in failures[:4]:
            print(f"round {number}, lane {lane}, {form}: {message}", flush=True)
    for solver, counts in sorted(statuses.items()):
        print(f"{solver}: " + ", ".join(f"{name} {count}" for name, count in counts.most_common()))
    print(f"{total} problems, of which {failed} failed a check")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
