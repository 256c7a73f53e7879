"""Selection against its definition: sort by falling magnitude, then by rising index, in Python."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxht.linalg import counts, selection, threshold_search
from jaxht.linalg.projections import hard_threshold
from jaxht.linalg.selection import (
    count_nonzero,
    k_largest_indices,
    k_largest_mask,
    k_largest_masks,
    mask_to_indices,
)
from tests.util import as_users, precision, quick

FLOATS = ["float16", "bfloat16", "float32", "float64"]
INTEGERS = ["int8", "int16", "int32", "int64"]
D = 33


def reference_mask(z, k):
    """The mask for one vector; Python's floats and integers hold every dtype exactly."""
    with np.errstate(invalid="ignore"):  # signalling NaN
        values = np.asarray(z, z.dtype if z.dtype.kind == "i" else np.float64).tolist()

    def precedence(i):
        return (0, 0, i) if math.isnan(values[i]) else (1, -abs(values[i]), i)

    mask = np.zeros(len(values), bool)
    mask[sorted(range(len(values)), key=precedence)[: max(k, 0)]] = True
    return mask


def reference_masks(z, k):
    """One mask for each entry of k, which has the leading shape of z."""
    flat = [
        reference_mask(row, int(k))
        for row, k in zip(z.reshape(-1, z.shape[-1]), np.ravel(k), strict=True)
    ]
    return np.reshape(flat, z.shape)


def reference_list(mask, k_max):
    found = np.flatnonzero(mask)[:k_max]
    return np.concatenate([found, np.full(k_max - len(found), len(mask))])


def float_rows(dtype):
    """Vectors that selection may trip over, by name."""
    rng = np.random.default_rng(0)
    dtype = jnp.dtype(dtype)
    unsigned = np.dtype(f"uint{8 * dtype.itemsize}")
    sign = unsigned.type(1 << (8 * dtype.itemsize - 1))
    infinity = int(np.asarray(np.inf, dtype).view(unsigned))

    def bits(values):
        return np.asarray(values, unsigned).view(dtype)

    def signed(z):
        return np.bitwise_xor(z.view(unsigned), rng.integers(0, 2, D).astype(unsigned) * sign).view(
            dtype
        )

    normal = rng.standard_normal(D).astype(dtype)
    subnormal = signed(bits(rng.permutation(D) + 1))  # the smallest positive numbers, one bit apart
    top = np.iinfo(unsigned).max
    payloads = rng.integers(infinity + 1, infinity + 1 + D, D)  # NaN, quiet and signalling
    return {
        "normal": normal,
        "rising": np.arange(D).astype(dtype),
        "all equal": np.full(D, -1.5).astype(dtype),
        "zeros of either sign": signed(np.zeros(D, dtype)),
        "many ties": rng.integers(-2, 3, D).astype(dtype),
        "one nonzero": np.eye(D, dtype=dtype)[D // 2],
        "subnormals": subnormal,
        "subnormals and zeros": np.where(np.arange(D) % 3, subnormal, bits(0)),
        "consecutive floats": signed(
            bits(int(np.asarray(1, dtype).view(unsigned)) + rng.permutation(D) - D // 2)
        ),
        "infinities": np.where(rng.random(D) < 0.3, signed(bits(np.full(D, infinity))), normal),
        "NaNs": signed(bits(payloads)),
        "NaNs, infinities and the rest": np.where(
            rng.random(D) < 0.3, signed(bits(payloads)), signed(bits(infinity))
        ),
        "one NaN": np.where(np.arange(D) == 20, bits(infinity + 7), normal),
        "any bits": bits(rng.integers(0, top, D, dtype=unsigned, endpoint=True)),
        "wide range": bits(rng.integers(0, infinity, D, dtype=unsigned, endpoint=True)),
    }


def integer_rows(dtype):
    rng = np.random.default_rng(1)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return {
        "any": rng.integers(low, high, D, dtype, endpoint=True),
        "ties": rng.integers(-3, 4, D, dtype),
        "extremes": rng.choice(np.array([low, low + 1, high, high - 1, 0], dtype), D),
        "most negative": np.full(D, low, dtype),
    }


@pytest.fixture(params=["of this device", "of a GPU"])
def way(request, monkeypatch):
    """What runs on this device, and here as well what runs on a GPU."""
    if request.param == "of this device":
        yield
        return
    monkeypatch.setattr(lax, "platform_dependent", lambda *args, cpu, default: default(*args))
    jax.clear_caches()
    yield
    jax.clear_caches()


@pytest.mark.parametrize("name", FLOATS + INTEGERS)
@pytest.mark.usefixtures("way")
def test_both_forms_agree_with_a_stable_sort(name):
    rows = integer_rows(name) if name in INTEGERS else float_rows(name)
    ks = [-3, *range(D + 1), D + 1, 1000]
    k_max = D - 5
    with precision("float64" if name.endswith("64") else "float32"):
        z = np.repeat(np.stack(list(rows.values()))[:, None], len(ks), axis=1)
        k = np.broadcast_to(ks, z.shape[:-1])
        compiled = (
            as_users if name in ("float32", "float64") else quick
        )  # as users run, and for the others quickly
        both = compiled(lambda z, k: (k_largest_mask(z, k), k_largest_indices(z, k_max, k)))
        mask, indices = map(np.asarray, both(z, k))
    assert mask.dtype == np.bool_ and indices.dtype == np.int32
    for row, row_name in enumerate(rows):
        for j, one_k in enumerate(ks):
            np.testing.assert_array_equal(
                mask[row, j], reference_mask(z[row, j], one_k), f"{row_name}, k={one_k}"
            )
            listed = reference_list(reference_mask(z[row, j], min(one_k, k_max)), k_max)
            np.testing.assert_array_equal(indices[row, j], listed, f"{row_name}, k={one_k}")


@pytest.mark.parametrize("d", [1, 2, 3, 31, 32, 63, 64, 65])
@pytest.mark.usefixtures("way")
def test_every_length(d):
    rng = np.random.default_rng(d)
    lanes = 3 * (d + 1)
    z = np.where(np.arange(lanes)[:, None] % 3, rng.integers(-2, 3, (lanes, d)), 1.0).astype(
        np.float32
    )
    k = np.repeat(np.arange(d + 1), 3)
    np.testing.assert_array_equal(quick(k_largest_mask)(z, k), reference_masks(z, k))


@pytest.mark.parametrize("size", [1_000_003, selection.MANY + 77])
def test_millions_of_entries(size):
    """As a vector and as several arrays, below and above the number from which thresholds are
    interpolated."""
    z = np.random.default_rng(0).standard_normal(size).astype(np.float32).round(4)
    # Rounded, so there are ties.
    kept = np.argsort(-np.abs(z), kind="stable")[:10_000]
    mask, indices = jax.jit(lambda z, k: (k_largest_mask(z, k), k_largest_indices(z, 10_007, k)))(
        z, 10_000
    )
    np.testing.assert_array_equal(np.flatnonzero(mask), np.sort(kept))
    np.testing.assert_array_equal(indices, [*np.sort(kept), *[z.size] * 7])
    several = jax.jit(k_largest_masks)([z[:6000].reshape(20, 300), z[6000:]], 10_000)
    np.testing.assert_array_equal(np.concatenate([np.ravel(part) for part in several]), mask)


def hostile_arrays(shapes, dtype):
    """Several arrays that a sample, an interpolation or the numbering of ties may trip over."""
    rng = np.random.default_rng(7)
    size = sum(map(math.prod, shapes))
    normal = rng.standard_normal(size)
    half = np.where(rng.random(size) < 0.5, 0, normal)
    flat = {
        "normal": normal,
        "half are zero": half,
        "all zero": np.zeros(size),
        "rising": np.sort(np.abs(normal)),
        "falling": -np.sort(-np.abs(normal)),
        "periodic": np.resize([1, 2, 3, 4, 5, 6, 7, 8], size),
        "few values": np.round(4 * normal),
        "two clusters": np.where(rng.random(size) < 0.5, 1, 1 + 1e-3 * normal),
        "decades": 10 ** (3 * normal),
        "the sample is not like the others": np.where(np.arange(size) % 32, normal, 100),
        "infinite and NaN": np.where(half == 0, np.nan, np.where(normal > 0, np.inf, normal)),
        "few nonzeros": np.where(np.arange(size) % 999 == 5, normal, 0),
    }
    if dtype == "float32":
        flat["subnormal"] = rng.integers(-3000, 3000, size, np.int32).view(np.float32)
        flat["any bits"] = rng.integers(0, 2**32, size, np.uint32).view(np.float32)
    ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
    with np.errstate(over="ignore", invalid="ignore"):
        cast = {name: z.astype(dtype) for name, z in flat.items()}
    return {
        name: [part.reshape(shape) for part, shape in zip(np.split(z, ends), shapes, strict=True)]
        for name, z in cast.items()
    }


def stable_sort_mask(z, k):
    """:func:`reference_mask` of many entries."""
    with np.errstate(invalid="ignore"):
        magnitudes = np.abs(z.astype(np.float64 if z.dtype.kind != "i" else object))
    ranks = (
        np.where(np.isnan(magnitudes), np.inf, magnitudes) if z.dtype.kind != "i" else magnitudes
    )
    order = np.lexsort((np.arange(z.size), -ranks, ~np.isnan(magnitudes)))
    mask = np.zeros(z.size, bool)
    mask[order[: max(k, 0)]] = True
    return mask


def interpolated_mask(z, k):
    """The mask of a vector of few entries, found as that of many is: by interpolation."""
    (mask,) = threshold_search.mark_largest_of_vector((z,), counts.clip_count(k, z.size))
    return mask


def interpolated_masks(arrays, k):
    """The same of several arrays together."""
    count = counts.clip_count(k, sum(z.size for z in arrays))
    return threshold_search.mark_largest_of_many(tuple(arrays), count)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_interpolated_thresholds_agree_with_a_stable_sort(dtype):
    """Of several arrays together, with k of each lane, and of one vector."""
    shapes = [(30, 70), (1500,), (2, 3, 5), (), (3, 41)]
    size = sum(map(math.prod, shapes))
    ks = np.array([-1, 0, 1, 2, 190, size // 2, size - 1, size, size + 9], np.int32)
    together = quick(jax.vmap(interpolated_masks, (None, 0)))
    alone = quick(jax.vmap(interpolated_mask, (None, 0)))
    one = quick(interpolated_masks)
    for name, arrays in hostile_arrays(shapes, dtype).items():
        flat = np.concatenate([z.ravel() for z in arrays])
        several = list(map(np.asarray, together(arrays, ks)))
        masks = np.concatenate([mask.reshape(len(ks), -1) for mask in several], axis=1)
        of_vector = np.asarray(alone(flat, ks))
        for mask, same, k in zip(masks, of_vector, ks, strict=True):
            want = stable_sort_mask(flat, k)
            np.testing.assert_array_equal(mask, want, f"{name}, k={k}")
            np.testing.assert_array_equal(same, want, f"{name}, k={k}")
        single = np.concatenate([np.ravel(mask) for mask in one(arrays, 190)])
        np.testing.assert_array_equal(single, masks[4], name)


@pytest.mark.parametrize("name", ["int8", "int16", "int32", "int64", "float64"])
def test_interpolated_thresholds_of_other_dtypes(name):
    rng = np.random.default_rng(0)
    with precision("float64" if name.endswith("64") else "float32"):
        if name == "float64":
            z = rng.integers(0, 2**64, 3001, np.uint64).view(np.float64)
        else:
            z = rng.integers(np.iinfo(name).min, np.iinfo(name).max, 3001, name, endpoint=True)
            z[::100] = np.iinfo(name).min
        for values in (z, z[:7].repeat(500)):
            for k in (0, 1, 35, 1500, values.size):
                mask = np.asarray(quick(interpolated_mask)(values, k))
                np.testing.assert_array_equal(
                    np.flatnonzero(mask), np.flatnonzero(reference_mask(values, k))
                )


def num_passes(z, k):
    """How many passes the search takes, and whether its mask is right."""
    turns = []

    def counted(condition, body, state):
        while condition(state):
            state = body(state)
            turns.append(None)
        return state

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lax, "while_loop", counted)
        (mask,) = threshold_search.find_masks.__wrapped__([z[None]], (jnp.full(1, k, jnp.int32),))
    assert int(jnp.sum(mask)) == k
    return len(turns)


def test_a_few_passes_are_enough():
    normal = jax.random.normal(jax.random.key(0), (1024, 1024))
    passes = [num_passes(normal, round(share * normal.size)) for share in (0.01, 0.05, 0.2, 0.5)]
    assert max(passes) <= 6
    # Of few values the k-th is found in the sample; then its last entry by number.
    assert num_passes(jnp.round(8 * normal), normal.size // 20) <= 7
    # More are asked for than are nonzero.
    assert num_passes(jnp.where(normal > 2, normal, 0), normal.size // 2) <= 5


def test_the_search_of_many_entries_holds_nothing_beside_them():
    """Where they are in memory; and a result of their size takes the place of what was not."""
    z = jax.ShapeDtypeStruct((4096, 1536), jnp.float32)
    k = jax.ShapeDtypeStruct((), jnp.int32)

    def threshold(z, u, k):
        (mask,) = k_largest_masks([z + u], k)
        return jnp.where(mask, u, -z)

    for fun, arguments in ((lambda z, k: k_largest_masks([z], k), (z, k)), (threshold, (z, z, k))):
        memory = as_users(fun).lower(*arguments).compile().memory_analysis()
        assert memory.temp_size_in_bytes < z.size / 2


def test_counts_beyond_the_integers_of_float32():
    d, k = 2**24 + 3, 2**24 + 1
    mask = np.asarray(k_largest_mask(jnp.ones(d, jnp.float16), k))
    assert mask[:k].all() and not mask[k:].any()


def test_k_is_static_or_traced_of_any_integer_type():
    z = np.array([3.0, -1.0, 3.0, 2.0], np.float32)
    traced = quick(k_largest_mask)
    for k in (2, np.int64(2), np.uint8(2), np.array(2), jnp.int32(2)):
        np.testing.assert_array_equal(traced(z, k), [True, False, True, False])
    np.testing.assert_array_equal(k_largest_mask(z, 2), [True, False, True, False])
    np.testing.assert_array_equal(
        quick(lambda z: k_largest_mask(z, 2))(z), [True, False, True, False]
    )
    np.testing.assert_array_equal(k_largest_indices(jnp.asarray(z), 3), [0, 2, 3])
    assert k_largest_indices(jnp.asarray(z), 0).shape == (0,)


# in_axes, outermost first, over the shapes of z and of k
VMAPS = {
    "z": ([(0, None)], (4, D), ()),
    "k": ([(None, 0)], (D,), (4,)),
    "both": ([(0, 0)], (4, D), (4,)),
    "last axis of z": ([(1, 0)], (D, 4), (4,)),
    "z, then k": ([(0, None), (None, 0)], (4, D), (3,)),
    "k, then z": ([(None, 0), (0, None)], (4, D), (3,)),
    "both, then z": ([(0, 0), (0, None)], (4, 3, D), (4,)),
    "both, then k, in other orders": ([(1, 1), (None, 0)], (D, 4), (3, 4)),
    "both twice, from the middle": ([(1, 1), (0, 0)], (3, 4, D), (3, 4)),
    "three axes": ([(0, None), (None, 0), (1, None)], (2, D, 3), (4,)),
    "no lanes": ([(0, 0)], (0, D), (0,)),
}


@pytest.mark.parametrize("case", VMAPS)
def test_vmapped_axes(case):
    in_axes, z_shape, k_shape = VMAPS[case]
    rng = np.random.default_rng(2)
    z = rng.integers(-9, 10, z_shape).astype(np.float32)
    k = rng.integers(0, D + 1, k_shape)

    def expected(z, k, axes):
        if not axes:
            mask = reference_mask(z, int(k))
            return mask, reference_list(mask, D)
        (z_axis, k_axis), *rest = axes
        size = z.shape[z_axis] if z_axis is not None else k.shape[k_axis]
        lanes = [
            expected(
                z if z_axis is None else np.take(z, i, z_axis),
                k if k_axis is None else np.take(k, i, k_axis),
                rest,
            )
            for i in range(size)
        ]
        return tuple(np.stack(part) for part in zip(*lanes, strict=True)) or (np.zeros((0, D)),) * 2

    def fun(z, k):
        return k_largest_mask(z, k), k_largest_indices(z, D, k)

    for axes in reversed(in_axes):
        fun = jax.vmap(fun, axes)
    for got, want in zip(quick(fun)(z, k), expected(z, k, in_axes), strict=True):
        np.testing.assert_array_equal(got, want)


def test_leading_axes_are_lanes_too():
    rng = np.random.default_rng(3)
    z, k = rng.integers(-9, 10, (2, 3, D)).astype(np.float32), rng.integers(0, D, (2, 3))
    np.testing.assert_array_equal(k_largest_mask(z, k), reference_masks(z, k))
    np.testing.assert_array_equal(
        k_largest_mask(z, k[1]), reference_masks(z, np.broadcast_to(k[1], (2, 3)))
    )


def test_inside_loops():
    rng = np.random.default_rng(4)
    z, k = rng.integers(-9, 10, (5, D)).astype(np.float32), np.array([30, 20, 4, 1, 0])
    batched = jax.vmap(hard_threshold)

    @quick
    def by_while(z, k):  # each pass keeps one entry less
        return lax.while_loop(
            lambda carry: jnp.any(carry[1] > 2),
            lambda carry: (batched(*carry), jnp.maximum(carry[1] - 1, 2)),
            (z, k),
        )[0]

    @quick
    def by_scan(z, k):
        return lax.scan(lambda z, k: (batched(z, k), z), z, k)

    def loop(z, ks):
        for k in ks:
            z = np.where(reference_masks(z, np.broadcast_to(k, len(z))), z, 0)
        return z

    np.testing.assert_array_equal(
        by_while(z, k), loop(z, [k, *(np.maximum(k - i, 2) for i in range(1, 28))])
    )
    last, history = by_scan(z, np.stack([k, k - 1, k - 2]))
    np.testing.assert_array_equal(last, loop(z, [k, k - 1, k - 2]))
    np.testing.assert_array_equal(history[2], loop(z, [k, k - 1]))
    # A loop in every lane, with lanes that end at different steps.
    lanewise = quick(
        jax.vmap(
            lambda z, k: lax.while_loop(
                lambda c: c[1] > 2, lambda c: (hard_threshold(*c), c[1] - 1), (z, k)
            )[0]
        )
    )
    want = [loop(z[i : i + 1], [np.array([j]) for j in range(k[i], 2, -1)])[0] for i in range(5)]
    np.testing.assert_array_equal(lanewise(z, k), want)


def test_derivative_is_the_mask():
    rng = np.random.default_rng(5)
    z, v = rng.integers(-9, 10, (2, 4, D)).astype(np.float32)
    k = np.array([0, 1, 10, D])
    masks = reference_masks(z, k)

    def forward(z, k, v):
        return jax.jvp(lambda z: hard_threshold(z, k), (z,), (v,))

    def reverse(z, k, v):
        return jax.grad(lambda z: jnp.vdot(v, hard_threshold(z, k)))(z)

    np.testing.assert_array_equal(forward(z[2], k[2], v[2])[1], np.where(masks[2], v[2], 0))
    np.testing.assert_array_equal(reverse(z[2], k[2], v[2]), np.where(masks[2], v[2], 0))
    for batched in (
        jax.vmap(forward),
        lambda z, k, v: jax.jvp(lambda z: jax.vmap(hard_threshold)(z, k), (z,), (v,)),
    ):
        value, tangent = quick(batched)(z, k, v)
        np.testing.assert_array_equal(value, np.where(masks, z, 0))
        np.testing.assert_array_equal(tangent, np.where(masks, v, 0))
    for batched in (
        jax.vmap(reverse),
        lambda z, k, v: jax.grad(lambda z: jnp.vdot(v, hard_threshold(z, k)))(z),
    ):
        np.testing.assert_array_equal(quick(batched)(z, k, v), np.where(masks, v, 0))
    jacobian, curvature = (
        jax.jacrev(hard_threshold),
        jax.hessian(lambda z: hard_threshold(z, 7).sum()),
    )
    first, second = quick(lambda z: (jacobian(z, 7), curvature(z)))(z[1])
    np.testing.assert_array_equal(first, np.diag(reference_mask(z[1], 7)))
    assert not np.any(second)


def test_invariances():
    rng = np.random.default_rng(6)
    z = rng.standard_normal((50, D)).astype(np.float32)  # no ties
    mask = functools.partial(jax.jit(k_largest_mask), k=np.arange(50) % D)
    base, shuffle, signs = (
        mask(z),
        rng.permutation(D),
        rng.choice([-1, 1], z.shape).astype(np.float32),
    )
    np.testing.assert_array_equal(mask(z[:, shuffle]), base[:, shuffle])
    np.testing.assert_array_equal(mask(z * signs), base)
    for scale in (2.0**-40, 2.0**40):
        np.testing.assert_array_equal(mask(z * np.float32(scale)), base)


@pytest.mark.parametrize("values", ["generic", "tied", "zero"])
def test_several_arrays_are_one_long_vector(values):
    """Of any shapes, jitted, vmapped over arrays and k, in one dtype or several."""
    rng = np.random.default_rng(0)
    shapes = [(7,), (0, 3), (3, 4, 2), (), (2, 600)]
    rounded = {"generic": 9, "tied": 0, "zero": -9}[values]
    arrays = [
        np.round(rng.standard_normal((3, *shape)), rounded).astype("float32") for shape in shapes
    ]
    arrays[2] = arrays[2].astype(jnp.bfloat16)
    ks = np.array([0, 5, 10_000], np.int32)

    def want(i, k):
        flat = np.concatenate([z[i].astype("float32").ravel() for z in arrays])
        return np.split(
            reference_mask(flat, k), np.cumsum([math.prod(shape) for shape in shapes])[:-1]
        )

    lanes = quick(jax.vmap(k_largest_masks))(arrays, ks)
    shared_k = quick(jax.vmap(k_largest_masks, (0, None)))(arrays, 20)
    for i, k in enumerate(ks):
        for mask, shared, shape, a, b in zip(
            lanes, shared_k, shapes, want(i, k), want(i, 20), strict=True
        ):
            np.testing.assert_array_equal(mask[i], a.reshape(shape))
            np.testing.assert_array_equal(shared[i], b.reshape(shape))
    one = k_largest_masks([z[0] for z in arrays], 20)
    for mask, a in zip(one, want(0, 20), strict=True):
        np.testing.assert_array_equal(np.ravel(mask), a)
    assert k_largest_masks([], 3) == []
    assert [mask.shape for mask in k_largest_masks([jnp.zeros((0, 2))], 3)] == [(0, 2)]


@pytest.mark.parametrize("values", ["generic", "tied", "zero"])
def test_counts_of_two_digits(values, monkeypatch):
    """As of 2^31 entries and more: here of more than 40, with digits to the base 4."""
    monkeypatch.setattr(counts, "MOST", 40)
    monkeypatch.setattr(counts, "BASE", 4)
    rng, shapes = np.random.default_rng(0), [(9, 5, 4), (), (7, 30), (2, 2, 9), (0, 3), (6,)]
    rounded = {"generic": 9, "tied": 0, "zero": -9}[values]
    arrays = [np.round(rng.standard_normal(shape), rounded).astype("float32") for shape in shapes]
    arrays[0][8, 2, 1] = np.nan
    flat, ends = (
        np.concatenate([z.ravel() for z in arrays]),
        np.cumsum([z.size for z in arrays])[:-1],
    )
    ks = [-1, 0, 1, 3, 4, 37, 180, 181, 200, 391, 392, 432, 433, 434, 10**6]

    def check(masks, k):
        for mask, want, shape in zip(
            masks, np.split(reference_mask(flat, k), ends), shapes, strict=True
        ):
            np.testing.assert_array_equal(mask, want.reshape(shape))

    for dtype in ("int32", "float32"):
        lanes = quick(jax.vmap(k_largest_masks, (None, 0)))(arrays, np.asarray(ks, dtype))
        for i, k in enumerate(ks):
            check([mask[i] for mask in lanes], k)
    check(k_largest_masks(arrays, 10**12), 433)
    check(quick(lambda z: k_largest_masks(z, 300))(arrays), 300)
    assert (
        int(count_nonzero(arrays[0])) == np.count_nonzero(arrays[0])
        and count_nonzero(arrays[0]).dtype == "float32"
    )
    with pytest.raises(
        ValueError, match=r"more than 40 entries needs an axis shorter than 10.* got shape \(41,\)"
    ):
        k_largest_masks([np.ones(41, "float32")], 3)


@pytest.mark.parametrize("shape", [(2**15 + 1, 2**16), (2**9, 3, 2**21), (3, 2**15, 2**15)])
def test_counts_of_two_digits_sum_adjacent_entries_first(shape):
    """Along the first axis a sum reads one entry of each cache line: 2^31 entries took a hundred
    times as long so."""
    marks = jax.ShapeDtypeStruct((1, *shape), bool)
    program = jax.make_jaxpr(lambda mark: counts.count_true([mark], True))(marks)
    first = next(eqn for eqn in program.eqns if "dimensions" in eqn.params)
    assert first.primitive.name == "reduce" and first.invars[0].aval.shape == marks.shape
    assert first.params["dimensions"] == tuple(range(2, len(marks.shape)))


@pytest.mark.parametrize("d", [2**31 - 1025, 2**31 - 1024, 2**31 - 2, 2**31, 2**32])
def test_vectors_about_the_end_of_int32(d):
    """One digit or two, with the padding to rows; only traced."""
    z = jax.ShapeDtypeStruct((d,), "float32")
    assert jax.eval_shape(functools.partial(k_largest_mask, k=d // 2), z).shape == (d,)


def test_long_vectors_are_padded_without_a_trace():
    """Of mostly zeros, so that k reaches them, with a length that is no multiple of anything."""
    z = np.zeros((2, 2**16 + 77), np.float32)
    z[:, 5::1000] = np.arange(66)
    for k in (3, 65, 70, 2**16 + 77, 10**6):
        mask = np.asarray(jax.jit(k_largest_mask)(z, k))
        np.testing.assert_array_equal(mask[0], reference_mask(z[0], k))
        np.testing.assert_array_equal(mask[0], mask[1])


def test_count_nonzero():
    cases = [
        [0.0, -0.0, 1.0, np.nan, -np.inf],
        [],
        3.0,
        0.0,
        np.zeros((4, 5)),
        np.eye(7, dtype=np.int8),
    ]
    assert [int(count_nonzero(jnp.asarray(z))) for z in cases] == [3, 0, 1, 0, 0, 7]
    assert int(quick(count_nonzero)(jnp.ones((2**12 + 1, 2**12), jnp.bfloat16))) == 2**24 + 2**12
    rows = functools.partial(lax.broadcasted_iota, "int32", (2**16 + 1, 2**16), 0)
    assert float(jax.jit(lambda row: count_nonzero((rows() != row).astype("int8")))(3)) == 2**32


def test_mask_to_indices_cuts_and_pads():
    mask = np.array([[0, 1, 0, 1, 1], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]], bool)
    for k_max in (0, 1, 3, 5, 7):
        want = [reference_list(row, k_max) for row in mask]
        fun = functools.partial(mask_to_indices, k_max=k_max)
        for got in quick(lambda mask, fun=fun: (fun(mask), jax.vmap(fun)(mask)))(mask):
            np.testing.assert_array_equal(got, want)


def test_complex_numbers_are_selected_by_magnitude():
    z = jnp.array([3 + 4j, -5.0, 1j, 4 - 3j, jnp.nan, 6j], jnp.complex64)
    assert k_largest_mask(z, 3).tolist() == [True, False, False, False, True, True]
    kept = hard_threshold(z, 2)
    assert kept[5] == 6j and jnp.isnan(kept[4]) and not kept[:4].any()


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda z: k_largest_indices(z, 6), ["k_max", "[0, 5]", "got 6"]),
        (lambda z: k_largest_indices(z, -1), ["k_max", "[0, 5]", "got -1"]),
        (lambda z: k_largest_mask(z.astype(bool), 1), ["z must be", "got dtype bool"]),
        (lambda z: k_largest_mask(z.astype("uint32"), 1), ["z must be", "got dtype uint32"]),
    ],
)
def test_errors_name_the_argument(call, words):
    with pytest.raises(ValueError) as error:
        call(jnp.arange(5.0))
    assert all(word in str(error.value) for word in words), error.value


def test_nan_is_the_last_in_decreasing_order():
    order = selection.decreasing_order(jnp.array([1, jnp.nan, 3, jnp.inf, -jnp.inf, 3]))
    np.testing.assert_array_equal(order, [3, 2, 5, 0, 4, 1])
