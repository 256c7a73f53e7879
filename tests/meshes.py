"""What solvers and transformations do on a mesh of eight devices whose axes are explicit, and
inside ``jax.shard_map``; run by tests/test_meshes.py, in a process of its own.

A line of JSON for each case: what came out, and what should.
"""

import functools
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxht
from jaxht import LeastSquares, Logistic, LowRank, Sparse, Stop, solve, transforms

N, D, K = 32, 8, 3
SUPPORT = [1, 4, 6]
SOLVERS = {
    "IHT": jaxht.IHT(),
    "NIHT": jaxht.NIHT(),
    "HTP": jaxht.HTP(),
    "OMP": jaxht.OMP(),
    "SVRGHT": jaxht.SVRGHT(0.1, 32, 4),
    "HTSAGA": jaxht.HTSAGA(0.02, inner_steps=32),
    "DIHT": jaxht.DIHT(),
    "LocalSearch": jaxht.LocalSearch(),
    "ARHT": jaxht.ARHT(),
    "default": None,
}
EAGER = ("HTP", "OMP", "DIHT", "default")


def draw(device=0):
    """A and y with few nonzeros, a little noise."""
    rng = np.random.default_rng(device)
    A = rng.standard_normal((N, D)).astype(np.float32)
    x = np.zeros(D, np.float32)
    x[SUPPORT] = 1, -2, 1.5
    return A, A @ x + np.float32(0.01) * rng.standard_normal(N).astype(np.float32)


def explicit(shape, names):
    return jax.make_mesh(shape, names, axis_types=(AxisType.Explicit,) * len(names))


GRID = explicit((4, 2), ("a", "b"))
ROW = explicit((8,), ("i",))


def run(name, A, y):
    """The support and the value by a solver."""
    f = LeastSquares(A, y, 1e-3)
    if name == "default":
        f = Logistic(A, jnp.sign(y), 1e-2)
    key = jax.random.key(1)
    found = solve(f, Sparse(K, k_max=K), SOLVERS[name], key=key, stop=Stop(max_steps=30))
    return found.support.mask, found.value, found.status


def low_rank(A, y):
    """Both factored steps and refits."""
    f = jaxht.matrix_sensing(A.reshape(N, 4, 2), y)
    return [solve(f, LowRank(1), solver).value for solver in (jaxht.IHT(), jaxht.HTP())]


def lanes(A, y):
    """Several problems under vmap on every device, by solvers whose steps have branches."""

    def one(k):
        f = LeastSquares(A, y)
        runs = [
            solve(f, Sparse(k, k_max=K), solver, key=jax.random.key(0), stop=Stop(max_steps=5))
            for solver in (jaxht.NIHT(), jaxht.ARHT(), jaxht.HTP(backtrack=True))
        ]
        return [run.value for run in runs]

    return jax.vmap(one)(jnp.arange(1, K + 1))


def derivatives(A, y):
    """Of a solution by the targets."""

    def total(y, adjoint):
        found = solve(
            LeastSquares(A, y, 0.1), Sparse(K), jaxht.HTP(), adjoint=adjoint, stop=Stop(max_steps=6)
        )
        return found.x.sum()

    return [jax.grad(total)(y, adjoint) for adjoint in ("implicit", "checkpointed")]


def paths(A, y):
    """The functions beside solve."""
    f = LeastSquares(A, y, 0.1)
    ks = [1, 2, 3]
    both = jaxht.path(f, Sparse(), jaxht.HTP(), ks=ks, both_ways=True)
    chosen = jaxht.validate(f, f, Sparse(), jaxht.HTP(), ks=ks)
    recorded = jaxht.trace(f, Sparse(K), jaxht.IHT(), num_steps=2)[1]
    gap = jaxht.certify(f, Sparse(K), both.x[-1]).gap
    report = jaxht.optimality(f, Sparse(K), both.x[-1])
    return both.value, chosen.losses, recorded, gap, jax.tree.leaves(report)


OTHERS = {"low rank": low_rank, "lanes": lanes, "derivatives": derivatives, "paths": paths}


@functools.cache
def on_one_device(name):
    """The program of a case, of A and y."""
    return jax.jit(OTHERS.get(name) or functools.partial(run, name))


# ---- explicit axes ----


def place(tree, mesh, spec):
    return jax.device_put(tree, NamedSharding(mesh, spec))


def numbers(tree):
    return [np.asarray(leaf, np.float64).ravel().tolist() for leaf in jax.tree.leaves(tree)]


def on_explicit_mesh(name, how):
    """On data sharded over rows and columns."""
    A, y = draw()
    placed = place(A, GRID, P("a", "b")), place(y, GRID, P("a"))
    function = OTHERS.get(name) or (lambda A, y: run(name, A, y))
    wrap = jax.jit if how == "jit" else (lambda function: function)
    found = wrap(function)(*placed)
    leaves = jax.tree.leaves(found)
    everywhere = name == "derivatives" or all(leaf.sharding.is_fully_replicated for leaf in leaves)
    return {
        "case": [name, how],
        "found": numbers(found),
        "expected": numbers(on_one_device(name)(A, y)),
        "everywhere": everywhere,
    }


def in_context():
    """Where the mesh is set, for arrays of the host as well; the pieces of a run, a search on the
    host, and a design in blocks."""
    A, y = draw()
    with jax.set_mesh(GRID):
        f = LeastSquares(A, y, 0.1)
        problem, x0, key = jaxht.extend.prepare(f, Sparse(K, k_max=K), jaxht.HTP())
        carry = jaxht.extend.start(problem, x0, key)
        carry = jaxht.extend.advance(problem, carry, 10)
        pieces = jaxht.extend.finish(problem, carry)
        yield "pieces", np.flatnonzero(pieces.x).tolist()
    f = LeastSquares(place(A, GRID, P("a", "b")), place(y, GRID, P("a")), 0.1)
    yield "branch_and_bound", jaxht.branch_and_bound(f, Sparse(K)).solutions[0].items.tolist()
    rows = NamedSharding(ROW, P("i"))
    f = LeastSquares(jaxht.design(A, rows), jax.device_put(y, rows), 0.1)
    yield "blocks", np.flatnonzero(solve(f, Sparse(K), jaxht.HTP()).x).tolist()


# ---- shard_map ----


def in_shard_map(name, how):
    """A problem of its own on each device; results of three devices against those of one."""
    A, y = (np.stack(arrays) for arrays in zip(*map(draw, range(8)), strict=True))
    function = OTHERS.get(name) or (lambda A, y: run(name, A, y))

    def block(A, y):
        return jax.tree.map(lambda leaf: leaf[None], function(A[0], y[0]))

    mapped = jax.shard_map(block, mesh=ROW, in_specs=P("i"), out_specs=P("i"))
    mapped = jax.jit(mapped) if how == "jit" else mapped
    found = mapped(place(A, ROW, P("i")), place(y, ROW, P("i")))
    alone = on_one_device(name)
    several = (0, 3, 7)
    return {
        "case": [name, how],
        "found": [
            numbers(jax.tree.map(lambda leaf, i=i: np.asarray(leaf)[i], found)) for i in several
        ],
        "expected": [numbers(alone(A[i], y[i])) for i in several],
    }


def data_parallel():
    """Samples divided over devices: f is a sum over them, and x is the same on all."""
    A, y = (np.stack(arrays) for arrays in zip(*map(draw, range(8)), strict=True))

    def loss(x, A, y):
        return jax.lax.pmean(jnp.mean((A @ x - y) ** 2), "i")

    def block(A, y):
        f = jaxht.Custom(loss, A[0], y[0], like=jnp.zeros(D))
        found = solve(f, Sparse(K), jaxht.IHT(0.1), stop=Stop(max_steps=50))
        return found.x, found.value

    mapped = jax.jit(jax.shard_map(block, mesh=ROW, in_specs=P("i"), out_specs=P()))
    found = mapped(place(A, ROW, P("i")), place(y, ROW, P("i")))
    f = LeastSquares(2**0.5 * A.reshape(-1, D), 2**0.5 * y.ravel())
    expected = solve(f, Sparse(K), jaxht.IHT(0.1), stop=Stop(max_steps=50))
    return {
        "case": ["data parallel", "jit"],
        "found": numbers(found),
        "expected": numbers((expected.x, expected.value)),
    }


# ---- transformations ----

some = {"w": True, "b": True, "c": False}
TRANSFORMS = {
    "leaf": transforms.hard_threshold(0.25),
    "global": transforms.hard_threshold(40, scope="global"),
    "axis": transforms.hard_threshold(2, scope=transforms.Axis(0)),
    "N:M": transforms.hard_threshold(2, scope=transforms.NM(4, 0), mask=some),
    "blocks": transforms.hard_threshold(2, scope=transforms.Blocks((4,)), mask=some),
    "hold": transforms.hard_threshold(0.3, every=3, hold=True, freeze_at=5),
    "every": transforms.hard_threshold(lambda step: 0.5 - 0.1 * step, every=2),
    "low rank": transforms.low_rank(2),
    "balls": transforms.l2_ball(1.0, every=2),
    "ball": transforms.l2_ball(1.0, scope="global"),
}


def chain(name):
    if name == "reset":
        return transforms.reset_moments(optax.adam(0.1), transforms.hard_threshold(0.3, hold=True))
    if name == "momentum":
        momentum = transforms.polyak_momentum(0.9)
        return optax.chain(optax.sgd(0.1), momentum, transforms.hard_threshold(0.3))
    return optax.chain(optax.adam(0.1), TRANSFORMS[name])


def train(name, params):
    """Three steps, as a loop of JAX."""
    tx = chain(name)

    def step(carry, _):
        params, state = carry
        updates, state = tx.update(jax.tree.map(lambda p: 0.3 * p, params), state, params)
        return (optax.apply_updates(params, updates), state), None

    if name in ("every", "low rank"):
        carry = params, tx.init(params)
        for _ in range(3):
            carry, _ = step(carry, None)
        return carry[0]
    return jax.lax.scan(step, (params, tx.init(params)), length=3)[0][0]


def transformations():
    rng = np.random.default_rng(0)
    shapes = {"w": (16, 8), "b": (24,), "c": (3, 5)}
    places = {"w": P("a", "b"), "b": P("a"), "c": P()}
    values = {name: rng.standard_normal(shapes[name]).astype(np.float32) for name in shapes}
    placed = {name: place(values[name], GRID, places[name]) for name in shapes}
    many = {name: np.stack([(1 + i) * v for i in range(8)]) for name, v in values.items()}
    for name in [*TRANSFORMS, "reset", "momentum"]:
        expected = jax.jit(lambda params, name=name: train(name, params))(values)
        for how in ("jit", "eager") if name in ("leaf", "N:M", "hold") else ("jit",):
            function = lambda params, name=name: train(name, params)  # noqa: E731
            found = (jax.jit(function) if how == "jit" else function)(placed)
            stays = [
                found[leaf].sharding.is_equivalent_to(placed[leaf].sharding, len(shapes[leaf]))
                for leaf in shapes
            ]
            yield {
                "case": [name, f"explicit, {how}"],
                "found": numbers(found),
                "expected": numbers(expected),
                "everywhere": all(stays),
            }

        def block(params, name=name):
            params = jax.tree.map(lambda p: p[0], params)
            return jax.tree.map(lambda p: p[None], train(name, params))

        mapped = jax.shard_map(block, mesh=ROW, in_specs=P("i"), out_specs=P("i"))
        found = jax.jit(mapped)(place(many, ROW, P("i")))
        yield {
            "case": [name, "shard_map"],
            "found": numbers(jax.tree.map(lambda leaf: np.asarray(leaf)[0], found)),
            "expected": numbers(expected),
        }


def cases(group):
    """The lines of a group."""
    places = {"explicit": on_explicit_mesh, "shard_map": in_shard_map}
    if group in places:
        for name in (*SOLVERS, *OTHERS):
            for how in ("jit", "eager") if name in EAGER else ("jit",):
                yield places[group](name, how)
    elif group == "context":
        for name, found in in_context():
            yield {"case": [name, "context"], "found": found, "expected": SUPPORT}
        yield data_parallel()
    else:
        yield from transformations()


if __name__ == "__main__":
    for line in cases(sys.argv[1]):
        print(json.dumps(line), flush=True)
