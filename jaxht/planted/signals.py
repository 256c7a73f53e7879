"""Random sparse signals, in which a larger K only adds nonzeros."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jaxht._typing import Numeric
from jaxht.linalg.selection import k_largest_mask
from jaxht.linalg.trees import Forest
from jaxht.planted.draws import as_real, draw_signs


def gaussian_signal(key: Array, d: int, K: Numeric, *, dtype: DTypeLike = float) -> Array:
    """K-sparse signal with independent N(0, 1) values.

    Args:
        key: PRNG key; support and values use independent splits, so all kinds of signals share
            their support.
        d: length, static.
        K: number of nonzeros, traced; clipped to [0, d].
        dtype: of the result, real or complex; a complex value has independent parts, and mean
            square 1. Default: JAX's default float.

    Returns:
        (d,) array with exactly K nonzeros: a value drawn as 0 becomes the machine epsilon.

    Source: SL18 §5.1 (uniform support; its distribution of the values is not printed, N(0, 1) is
    our choice).

    Example:
        >>> import jax
        >>> from jaxht import ensembles
        >>> int((ensembles.gaussian_signal(jax.random.key(0), 8, 5) != 0).sum())
        5
    """
    return significant_signal(key, d, K, mean=0.0, dtype=dtype)


def sign_signal(key: Array, d: int, K: Numeric, *, dtype: DTypeLike = float) -> Array:
    """K-sparse signal with values +-1 of equal probability, hard for greedy methods; complex values
    have modulus 1.

    Args:
        key: PRNG key; support and values use independent splits, so all kinds of signals share
            their support.
        d: length, static.
        K: number of nonzeros, traced; clipped to [0, d].
        dtype: of the result, real or complex; complex values have phases that are uniform on the
            circle in place of signs. Default: JAX's default float.

    Returns:
        (d,) array with exactly K nonzeros.

    Example:
        >>> import jax
        >>> from jaxht import ensembles
        >>> float(abs(ensembles.sign_signal(jax.random.key(0), 8, 5)).sum())
        5.0
    """
    rank, value_key = _draw_ranks(key, d)
    return _plant(rank, K, draw_signs(value_key, (d,), dtype))


def decaying_signal(
    key: Array, d: int, K: Numeric, ratio: Numeric, *, dtype: DTypeLike = float
) -> Array:
    """K-sparse signal with magnitudes `ratio^0, ..., ratio^(K-1)` in random order, with random
    signs.

    Args:
        key: PRNG key; support and values use independent splits, so all kinds of signals share
            their support.
        d: length, static.
        K: number of nonzeros, traced; clipped to [0, d].
        ratio: > 0, traced; a power that underflows becomes the smallest normal number.
        dtype: of the result, real or complex; complex values have random phases in place of signs.
            Default: JAX's default float.

    Returns:
        (d,) array with exactly K nonzeros.

    Example:
        >>> import jax
        >>> from jaxht import ensembles
        >>> sorted(abs(ensembles.decaying_signal(jax.random.key(0), 8, 3, 0.5)).tolist())[-4:]
        [0.0, 0.25, 0.5, 1.0]
    """
    rank, value_key = _draw_ranks(key, d)
    signs = draw_signs(value_key, (d,), dtype)
    powers = as_real(ratio, dtype) ** rank
    magnitudes = jnp.maximum(powers, jnp.finfo(signs.dtype).tiny)
    return _plant(rank, K, signs * magnitudes)


def power_law_signal(
    key: Array, d: int, K: Numeric, exponent: Numeric = 1.0, *, dtype: DTypeLike = float
) -> Array:
    """K-sparse signal with magnitudes `1, 2^-exponent, ..., K^-exponent` in random order, with
    random signs: compressible, as coefficients of images are.

    Args:
        key: PRNG key; support and values use independent splits, so all kinds of signals share
            their support.
        d: length, static.
        K: number of nonzeros, traced; clipped to [0, d].
        exponent: >= 0, traced.
        dtype: of the result, real or complex; complex values have random phases in place of signs.
            Default: JAX's default float.

    Returns:
        (d,) array with exactly K nonzeros.

    Source: Candès & Tao 2006 (signals in weak-lp balls, exponent 1/p).

    Example:
        >>> import jax
        >>> from jaxht import ensembles
        >>> sorted(abs(ensembles.power_law_signal(jax.random.key(0), 8, 2, 1.0)).tolist())[-3:]
        [0.0, 0.5, 1.0]
    """
    rank, value_key = _draw_ranks(key, d)
    signs = draw_signs(value_key, (d,), dtype)
    powers = as_real(rank + 1, dtype) ** -as_real(exponent, dtype)
    magnitudes = jnp.maximum(powers, jnp.finfo(signs.dtype).tiny)
    return _plant(rank, K, signs * magnitudes)


def uniform_signal(
    key: Array,
    d: int,
    K: Numeric,
    low: Numeric = 0.0,
    high: Numeric = 1.0,
    *,
    dtype: DTypeLike = float,
) -> Array:
    """K-sparse signal with magnitudes that are uniform on [low, high], with random signs.

    Args:
        key: PRNG key; support and values use independent splits, so all kinds of signals share
            their support.
        d: length, static.
        K: number of nonzeros, traced; clipped to [0, d].
        low, high: >= 0, traced. low > 0 bounds the least magnitude, by which supports are found.
        dtype: of the result, real or complex; complex values have random phases in place of signs.
            Default: JAX's default float.

    Returns:
        (d,) array with exactly K nonzeros: a value drawn as 0 becomes the machine epsilon.

    Example:
        >>> import jax
        >>> from jaxht import ensembles
        >>> x = ensembles.uniform_signal(jax.random.key(0), 8, 5, 0.5, 2.0)
        >>> int(((abs(x) >= 0.5) & (abs(x) <= 2)).sum())
        5
    """
    rank, value_key = _draw_ranks(key, d)
    size_key, sign_key = jax.random.split(value_key)
    signs = draw_signs(sign_key, (d,), dtype)
    low = as_real(low, dtype)
    share = jax.random.uniform(size_key, (d,), low.dtype)
    magnitudes = low + (as_real(high, dtype) - low) * share
    return _plant(rank, K, signs * magnitudes)


def row_signal(key: Array, d: int, c: int, K: Numeric, *, dtype: DTypeLike = float) -> Array:
    """Matrix of K nonzero rows with independent N(0, 1) entries: c signals of one support.

    Args:
        key: PRNG key; support and values use independent splits, so that the support is that of the
            other signals.
        d, c: numbers of rows and columns, static.
        K: number of nonzero rows, traced; clipped to [0, d].
        dtype: of the result, real or complex; a complex entry has independent parts, and mean
            square 1. Default: JAX's default float.

    Returns:
        (d, c) array with exactly K nonzero rows; an entry of these drawn as 0 becomes the machine
        epsilon.

    Source: Blanchard, Cermak, Hanle & Jin 2014 (multiple measurement vectors).

    Example:
        >>> import jax
        >>> from jaxht import ensembles
        >>> X = ensembles.row_signal(jax.random.key(0), 8, 3, 5)
        >>> (X != 0).sum(axis=0).tolist()
        [5, 5, 5]
    """
    rank, value_key = _draw_ranks(key, d)
    return _plant(rank[:, None], K, jax.random.normal(value_key, (d, c), dtype))


def tree_signal(key: Array, parents: ArrayLike, K: Numeric, *, dtype: DTypeLike = float) -> Array:
    """Signal of K independent N(0, 1) values on a random subtree, which with every entry has its
    parent.

    The subtree grows entry by entry: each further one is any of those that may follow, the roots
    and the entries whose parents are selected, with the same probability.

    Args:
        key: PRNG key; support and values use independent splits.
        parents: integers (d,), static: of each entry the number of its parent, and -1 for roots, as
            :func:`jaxht.operators.wavelet_parents` gives them.
        K: number of nonzeros, traced; clipped to [0, d].
        dtype: of the result, real or complex; a complex value has independent parts, and mean
            square 1. Default: JAX's default float.

    Returns:
        (d,) array with exactly K nonzeros: a value drawn as 0 becomes the machine epsilon.

    Source: Baraniuk, Cevher, Duarte & Hegde 2010, §V, for signals on subtrees; how they are drawn
    is our choice: each entry follows its parent after an exponential waiting time, which makes all
    that may be next equally likely.

    Example:
        >>> import jax
        >>> from jaxht import ensembles
        >>> x = ensembles.tree_signal(jax.random.key(0), [-1, 0, 0, 1, 1], 3)
        >>> bool(x[0] != 0), int((x != 0).sum())
        (True, 3)
    """
    forest = Forest(parents)
    support_key, value_key = jax.random.split(key)
    times = forest.accumulate(jnp.add, jax.random.exponential(support_key, (forest.size,)))
    # The first K; of equal ones those nearer to the roots.
    is_in = k_largest_mask(1 / jnp.maximum(times, jnp.finfo(times.dtype).tiny), K)[forest.place]
    values = jax.random.normal(value_key, (forest.size,), dtype)
    return _plant_on(is_in, values)


def significant_signal(
    key: Array,
    d: int,
    K: Numeric,
    mean: Numeric = 5.0,
    std: Numeric = 1.0,
    *,
    random_signs: bool = False,
    dtype: DTypeLike = float,
) -> Array:
    """K-sparse signal whose nonzeros are "Gaussian with significant mean": independent N(mean,
    std^2).

    Args:
        key: PRNG key; support and values use independent splits, so all kinds of signals share
            their support.
        d: length, static.
        K: number of nonzeros, traced; clipped to [0, d].
        mean, std: of a value, traced. N(5, 1) shifts the standard Gaussian far enough that the
            smallest of 50 values is seldom lost in unit noise (< 1 in one trial of 600): n and k
            limit success, not luck.
        random_signs: flip each value with probability 1/2, or turn a complex one by a random phase;
            static.
        dtype: of the result, real or complex; complex values have independent parts, and variance
            std^2. Default: JAX's default float.

    Returns:
        (d,) array with exactly K nonzeros: a value drawn as 0 becomes the machine epsilon.

    Source: YLZ18 §6.1 (d = 500, K = 50), which prints neither mean nor std, and mentions no signs.

    Example:
        >>> import jax
        >>> from jaxht import ensembles
        >>> x = ensembles.significant_signal(jax.random.key(0), 8, 5)
        >>> int((x > 1).sum())
        5
    """
    rank, value_key = _draw_ranks(key, d)
    value_key, sign_key = jax.random.split(value_key)
    noise = jax.random.normal(value_key, (d,), dtype)
    values = as_real(mean, dtype) + as_real(std, dtype) * noise
    if random_signs:
        values = values * draw_signs(sign_key, (d,), dtype)
    return _plant(rank, K, values)


def _draw_ranks(key: Array, d: int) -> tuple[Array, Array]:
    """A permutation of 0..d-1, whose entries below K mark the support, and a key for the values."""
    support_key, value_key = jax.random.split(key)
    return jax.random.permutation(support_key, d), value_key


def _plant(rank: Array, K: Numeric, values: Array) -> Array:
    return _plant_on(rank < K, values)


def _plant_on(mask: Array, values: Array) -> Array:
    values = jnp.where(values == 0, jnp.finfo(values.dtype).eps, values)
    return jnp.where(mask, values, 0)
