"""The planted problems of :mod:`jaxht.ensembles`."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.fft import dct, idct
from jax.typing import DTypeLike

from jaxht._dataclass import pytree
from jaxht._loops import scan
from jaxht._typing import Numeric
from jaxht.designs import LinearOperator
from jaxht.designs.combined import diagonal
from jaxht.designs.transforms import check_lengths, circulant, partial_dft
from jaxht.linalg.full_precision import matmul
from jaxht.linalg.inner_products import real_dtype
from jaxht.linalg.lapack import eigh, inverse_cholesky

# The folds of a problem's key. ASCII words and not 0, 1, 2: `fold_in(cell_key, trial)` must never
# meet them.
_DESIGN = int.from_bytes(b"desg", "big")
_SIGNAL = int.from_bytes(b"sgnl", "big")
_RESPONSE = int.from_bytes(b"resp", "big")


@pytree
class PlantedProblem:
    """A planted problem: what a solver is given, and the truth that the metrics compare with.

    Attributes:
        A: (n, d) design, rows are samples.
        y: (n,) response: `A x_true` plus noise, or labels -1/+1.
        x_true: (d,) planted signal with exactly K nonzeros.
    """

    A: Array
    y: Array
    x_true: Array


def planted(
    key: Array,
    design: Callable[[Array], Array],
    signal: Callable[[Array], Array],
    response: Callable[[Array, Array], Array] | None = None,
    *,
    design_key: Array | None = None,
) -> PlantedProblem:
    """Draw one planted problem; design, signal and response use independent folds of the key.

        A = design(.)    x_true = signal(.)    y = response(., A x_true)

    A change in one of the three leaves the draws of the others as they were: problems are paired
    across noise levels, sparsities and kinds of design. Trials share one design when `design_key`
    is their cell's key; `vmap` over the keys of the trials with `out_axes=PlantedProblem(A=None,
    y=0, x_true=0)` then keeps A unbatched, and its products are matrix-matrix products.

    Args:
        key: PRNG key of the trial.
        design: key -> (n, d) array or design. A fixed A: `lambda _: A`.
        signal: key -> (d,).
        response: key, u -> y, u = A x_true at full precision, e.g. `partial(gaussian_noise,
            sigma=0.1)`. None: y = u.
        design_key: key that the design is drawn from; None: `key`.

    Returns:
        `PlantedProblem`.

    Source: SL18 §5.1 (one A a cell, 1000 signals), YLZ18 §6.1 (one A a trial).

    Example:
        >>> import functools, jax
        >>> from jaxht import ensembles
        >>> design = functools.partial(ensembles.gaussian, n=4, d=8)
        >>> signal = functools.partial(ensembles.gaussian_signal, d=8, K=3)
        >>> problem = ensembles.planted(jax.random.key(0), design, signal)
        >>> problem.A.shape, problem.y.shape, int((problem.x_true != 0).sum())
        ((4, 8), (4,), 3)
    """
    design_key = key if design_key is None else design_key
    A = design(jax.random.fold_in(design_key, _DESIGN))
    x_true = signal(jax.random.fold_in(key, _SIGNAL))
    y = jnp.matmul(A, x_true, precision=lax.Precision.HIGHEST)
    if response is not None:
        y = response(jax.random.fold_in(key, _RESPONSE), y)
    return PlantedProblem(A=A, y=y, x_true=x_true)


def gaussian(
    key: Array, n: int, d: int, *, variance: Numeric | None = None, dtype: DTypeLike = float
) -> Array:
    """Gaussian design with independent entries, `A_ij ~ N(0, variance)`.

    Args:
        key: PRNG key.
        n, d: numbers of rows and columns, static.
        variance: of an entry, traced. None: 1/n (SL18 §5.1: E ||Ax||^2 = ||x||^2). 1.0: rows N(0,
            I) (YLZ18 §6.1).
        dtype: of the result, float32 or float64. Default: JAX's default float.

    Returns:
        (n, d) array.

    Source: SL18 §5.1; YLZ18 §6.1.

    Example:
        >>> import jax
        >>> from jaxht import ensembles
        >>> ensembles.gaussian(jax.random.key(0), 4, 8).shape
        (4, 8)
    """
    std = _compute_std(variance, n, dtype)
    return std * jax.random.normal(key, (n, d), dtype)


def rademacher(
    key: Array, n: int, d: int, *, variance: Numeric | None = None, dtype: DTypeLike = float
) -> Array:
    """Bernoulli design, `A_ij = +-sqrt(variance)` with equal probability.

    Args:
        key: PRNG key.
        n, d: numbers of rows and columns, static.
        variance: of an entry, traced. None: 1/n.
        dtype: of the result, float32 or float64. Default: JAX's default float.

    Returns:
        (n, d) array.

    Source: SL18 §3.

    Example:
        >>> import jax
        >>> from jaxht import ensembles
        >>> sorted(set(ensembles.rademacher(jax.random.key(0), 4, 8).ravel().tolist()))
        [-0.5, 0.5]
    """
    std = _compute_std(variance, n, dtype)
    return std * _draw_signs(key, (n, d), dtype)


def partial_dct(
    key: Array, n: int, d: int, *, variance: Numeric | None = None, dtype: DTypeLike = float
) -> Array:
    """n distinct random rows of the orthonormal d x d DCT-II matrix, times `sqrt(d variance)`: `A
    A^T = d variance I`.

    Args:
        key: PRNG key.
        n, d: numbers of rows and columns, static, n <= d.
        variance: mean square of the entries of a row, traced. None: 1/n, which gives the usual
            factor sqrt(d/n).
        dtype: of the result, float32 or float64. Default: JAX's default float.

    Returns:
        (n, d) array.

    Raises:
        ValueError: for n > d.

    Cost: n transforms of length d.

    Source: SL18 §3, the "partial Fourier" ensemble; the real transform is our choice.

    Example:
        >>> import jax
        >>> from jaxht import ensembles
        >>> A = ensembles.partial_dct(jax.random.key(0), 4, 8)
        >>> round(float(A[0] @ A[0]), 4)
        2.0
    """
    rows, scale = _draw_dct_rows(key, n, d, variance, dtype)
    units = jax.nn.one_hot(rows, d, dtype=dtype)
    return scale * idct(units, norm="ortho")  # row i of an orthogonal C is C^T e_i


def partial_dct_operator(
    key: Array, n: int, d: int, *, variance: Numeric | None = None, dtype: DTypeLike = float
) -> LinearOperator:
    """`partial_dct` of the same arguments, matrix-free.

    Args:
        key: PRNG key.
        n, d, variance: as in `partial_dct`.
        dtype: of the result, float32 or float64. Default: JAX's default float.

    Returns:
        `jaxht.LinearOperator` of shape (n, d), with the norms of its columns.

    Raises:
        ValueError: for n > d.

    Cost: a product costs `d log d`; nothing of size n d is held.

    Source: SL18 §3.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from jaxht import ensembles
        >>> A = ensembles.partial_dct_operator(jax.random.key(0), 4, 8)
        >>> A.shape, A.matvec(jnp.ones(8)).shape
        ((4, 8), (4,))
    """
    rows, scale = _draw_dct_rows(key, n, d, variance, dtype)
    # C_ij^2 = (1 + cos(pi (2j + 1) i / d)) / d for i > 0, and the cosine is that of row 2i, which
    # beyond d folds back to minus row 2d - 2i: so the norms of all columns are one transform of the
    # indicator of the rows.
    doubled = 2 * rows
    is_folded = doubled > d
    position = jnp.where(is_folded, 2 * d - doubled, doubled) % d
    has_no_cosine = (rows == 0) | (doubled == d)
    size = jnp.sqrt(jnp.asarray(d / 2, dtype))
    weight = jnp.where(has_no_cosine, 0, jnp.where(is_folded, -size, size))
    indicator = jnp.zeros(d, dtype).at[position].add(weight)
    cosines = idct(indicator, norm="ortho")
    norms = scale * jnp.sqrt(jnp.maximum(n + cosines, 0) / d)
    return LinearOperator(_apply_dct_rows, (n, d), (rows, scale), norms=norms, dtype=dtype)


def random_convolution(key: Array, n: int, d: int, *, dtype: DTypeLike = float) -> LinearOperator:
    r"""A circular convolution with a random orthonormal kernel, sampled at n random places.

    .. math::
        A = \sqrt{d / n} \; P_R F^H \operatorname{diag}(\sigma) F, \qquad |\sigma_j| = 1

    The phases of sigma are uniform with ``sigma_{-j} = conj(sigma_j)``, so that A is real; sigma_0,
    and ``sigma_{d / 2}``, are +-1. Rows have norm ``sqrt(d / n)``, and are orthogonal.

    Args:
        key: PRNG key.
        n: the number of samples, static, at most d.
        d: static.
        dtype: of the result, float32 or float64. Default: JAX's default float.

    Returns:
        `jaxht.LinearOperator` of shape (n, d), with the norms of its columns, which are about 1.

    Raises:
        ValueError: for n > d.

    Cost: a product takes two FFTs, d log d.

    Source: Romberg 2009, §1.1.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from jaxht import ensembles
        >>> A = ensembles.random_convolution(jax.random.key(0), 4, 8)
        >>> round(float(jnp.linalg.norm(A.H @ jnp.array([1.0, 0.0, 0.0, 0.0]))), 4)
        1.4142
    """
    row_key, phase_key = jax.random.split(key)
    rows = _draw_rows("random_convolution", row_key, n, d)
    angles = 2 * jnp.pi * jax.random.uniform(phase_key, (d // 2 + 1,), dtype)
    j = jnp.arange(d // 2 + 1)
    is_real = (j == 0) | (2 * j == d)
    phases = jnp.where(is_real, jnp.sign(jnp.cos(angles)), jnp.exp(1j * angles))
    kernel = jnp.fft.irfft(phases, d)
    return circulant(math.sqrt(d / n) * kernel, rows)


def spread_spectrum(
    key: Array, n: int, shape: int | tuple[int, ...], *, dtype: DTypeLike = complex
) -> LinearOperator:
    r"""n random coefficients of the Fourier transform of a signal, an image or a volume that is
    multiplied by random signs, so that they measure signals equally well in every sparse basis.

    .. math::
        A = \sqrt{d / n} \; P_R F \operatorname{diag}(\epsilon), \qquad \epsilon_j = \pm 1

    Of signals ``W c`` it is ``A @ W``, with W by :func:`jaxht.operators.wavelet`, for example.

    Args:
        key: PRNG key.
        n: the number of coefficients, static, at most d.
        shape: of the signal, static: a length d, or the lengths of several axes, whose product is
            d. x is flat, (d,).
        dtype: of the result, complex64 or complex128. Default: JAX's default complex dtype.

    Returns:
        `jaxht.LinearOperator` of shape (n, d), with the norms of its columns, which are 1.

    Raises:
        ValueError: for n > d.

    Cost: a product takes an FFT, d log d.

    Source: Puy, Vandergheynst, Gribonval & Wiaux 2012, with signs for the phases.

    Example:
        >>> import jax
        >>> from jaxht import ensembles
        >>> A = ensembles.spread_spectrum(jax.random.key(0), 5, (4, 4))
        >>> A.shape, bool(abs(A.norms - 1).max() < 1e-6)
        ((5, 16), True)
    """
    d = math.prod(check_lengths(shape))
    row_key, sign_key = jax.random.split(key)
    F = partial_dft(shape, _draw_rows("spread_spectrum", row_key, n, d), dtype=dtype)
    return F @ diagonal(jax.random.rademacher(sign_key, (d,), real_dtype(F)))


def _draw_dct_rows(
    key: Array, n: int, d: int, variance: Numeric | None, dtype: DTypeLike
) -> tuple[Array, Array]:
    """Draw n distinct rows; return them and the factor of the orthonormal transform."""
    rows = _draw_rows("partial_dct", key, n, d)
    std = _compute_std(variance, n, dtype)
    return rows, std * jnp.sqrt(jnp.asarray(d, dtype))


def _draw_rows(name: str, key: Array, n: int, d: int) -> Array:
    """n of d rows, each once."""
    if n > d:
        raise ValueError(
            f"{name} draws rows without replacement and needs n <= d, got n = {n}, d = {d}"
        )
    return jax.random.permutation(key, d)[:n]


def _apply_dct_rows(x: Array, rows: Array, scale: Array) -> Array:
    return scale * dct(x, norm="ortho")[rows]


def toeplitz(
    key: Array,
    n: int,
    d: int,
    rho: Numeric,
    *,
    variance: Numeric = 1.0,
    dtype: DTypeLike = float,
) -> Array:
    """Correlated Gaussian design: rows N(0, variance Sigma) with `Sigma_ij = rho^|i-j|`.

    Exact by the stationary autoregression `a_j = rho a_{j-1} + sqrt(1 - rho^2) z_j`, a_0 and z_j ~
    N(0, 1).

    Args:
        key: PRNG key.
        n, d: numbers of rows and columns, static.
        rho: correlation of neighbouring columns, in [-1, 1], traced.
        variance: of an entry, traced.
        dtype: of the result, float32 or float64. Default: JAX's default float.

    Returns:
        (n, d) array.

    Cost: n d random numbers, and a scan over the columns; no Cholesky factor.

    Example:
        >>> import jax
        >>> from jaxht import ensembles
        >>> ensembles.toeplitz(jax.random.key(0), 4, 8, 0.5).shape
        (4, 8)
    """
    rho = jnp.asarray(rho, dtype)
    innovation = jnp.sqrt((1 - rho) * (1 + rho))

    def next_column(prev: Array, z: Array) -> tuple[Array, Array]:
        new = rho * prev + innovation * z
        return new, new

    z = jax.random.normal(key, (d + 1, n), dtype)
    _, columns = scan(next_column, z[0], z[1:])
    return _compute_std(variance, n, dtype) * columns.T


def with_spectrum(
    key: Array, n: int, d: int, eigenvalues: Numeric, *, dtype: DTypeLike = float
) -> Array:
    """Gaussian design whose covariance has the given eigenvalues: rows N(0, Q diag(eigenvalues)
    Q^T), Q Haar.

    Args:
        key: PRNG key.
        n, d: numbers of rows and columns, static.
        eigenvalues: (d,) of the population covariance, non-negative, traced.
        dtype: of the result, float32 or float64. Default: JAX's default float.

    Returns:
        (n, d) array.

    Cost: a QR factorisation of a d x d matrix and an (n, d, d) product.

    Source: YLW20 §5.2.1 asks for such a Sigma and leaves its eigenvectors open; Haar Q is our
    choice.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from jaxht import ensembles
        >>> A = ensembles.with_spectrum(jax.random.key(0), 5, 3, jnp.array([1.0, 1.0, 0.0]))
        >>> int(jnp.linalg.matrix_rank(A))
        2
    """
    basis_key, row_key = jax.random.split(key)
    Q = jax.random.orthogonal(basis_key, d, dtype=jnp.result_type(dtype))
    stds = jnp.sqrt(jnp.asarray(eigenvalues, dtype))
    Z = jax.random.normal(row_key, (n, d), dtype) * stds
    return matmul(Z, Q.T)


def conditioned(
    key: Array,
    n: int,
    d: int,
    kappa: Numeric,
    *,
    variance: Numeric = 1.0,
    dtype: DTypeLike = float,
) -> Array:
    """Ill-conditioned Gaussian design: rows N(0, Sigma), where Sigma has condition number exactly
    kappa.

    `Sigma = Q diag(l) Q^T`, Q Haar, l evenly spaced with l_d/l_1 = kappa and mean `variance`, so
    that the average variance of an entry, and with it the SNR, does not change with kappa. A^T A/n
    is less well conditioned than Sigma, and singular for n < d.

    Args:
        key: PRNG key.
        n, d: numbers of rows and columns, static.
        kappa: condition number of the population covariance, at least 1, traced.
        variance: mean over the entries, traced.
        dtype: of the result, float32 or float64. Default: JAX's default float.

    Returns:
        (n, d) array.

    Cost: that of `with_spectrum`.

    Source: the spacing and the mean are our choices. YLW20 Fig. 3, where cond(Sigma + lam I) =
    kappa, is `with_spectrum` with eigenvalues `linspace(0, (2 kappa - 1) lam, d) + lam kappa/(kappa
    - 1)`.

    Example:
        >>> import jax
        >>> from jaxht import ensembles
        >>> ensembles.conditioned(jax.random.key(0), 5, 3, 10.0).shape
        (5, 3)
    """
    spaced = jnp.linspace(1.0, jnp.asarray(kappa, dtype), d)
    eigenvalues = jnp.asarray(variance, dtype) * spaced / spaced.mean()
    return with_spectrum(key, n, d, eigenvalues, dtype=dtype)


def _compute_std(variance: Numeric | None, n: int, dtype: DTypeLike) -> Array:
    variance = 1 / n if variance is None else variance
    return jnp.sqrt(jnp.asarray(variance, dtype))


def _draw_signs(key: Array, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    return jax.random.rademacher(key, shape, jnp.result_type(dtype))


def gaussian_signal(key: Array, d: int, K: Numeric, *, dtype: DTypeLike = float) -> Array:
    """K-sparse signal with independent N(0, 1) values.

    Args:
        key: PRNG key; support and values use independent splits, so all kinds of signals share
            their support.
        d: length, static.
        K: number of nonzeros, traced; clipped to [0, d].
        dtype: of the result, float32 or float64. Default: JAX's default float.

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
    """K-sparse signal with values +-1 of equal probability, hard for greedy methods.

    Args:
        key: PRNG key; support and values use independent splits, so all kinds of signals share
            their support.
        d: length, static.
        K: number of nonzeros, traced; clipped to [0, d].
        dtype: of the result, float32 or float64. Default: JAX's default float.

    Returns:
        (d,) array with exactly K nonzeros.

    Example:
        >>> import jax
        >>> from jaxht import ensembles
        >>> float(abs(ensembles.sign_signal(jax.random.key(0), 8, 5)).sum())
        5.0
    """
    rank, value_key = _draw_ranks(key, d)
    return _plant(rank, K, _draw_signs(value_key, (d,), dtype))


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
        dtype: of the result, float32 or float64. Default: JAX's default float.

    Returns:
        (d,) array with exactly K nonzeros.

    Example:
        >>> import jax
        >>> from jaxht import ensembles
        >>> sorted(abs(ensembles.decaying_signal(jax.random.key(0), 8, 3, 0.5)).tolist())[-4:]
        [0.0, 0.25, 0.5, 1.0]
    """
    rank, value_key = _draw_ranks(key, d)
    signs = _draw_signs(value_key, (d,), dtype)
    powers = jnp.asarray(ratio, dtype) ** rank
    magnitudes = jnp.maximum(powers, jnp.finfo(signs.dtype).tiny)
    return _plant(rank, K, signs * magnitudes)


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
        random_signs: flip each value with probability 1/2; static.
        dtype: of the result, float32 or float64. Default: JAX's default float.

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
    values = jnp.asarray(mean, dtype) + jnp.asarray(std, dtype) * noise
    if random_signs:
        values = values * _draw_signs(sign_key, (d,), dtype)
    return _plant(rank, K, values)


def _draw_ranks(key: Array, d: int) -> tuple[Array, Array]:
    """A permutation of 0..d-1, whose entries below K mark the support, and a key for the values."""
    support_key, value_key = jax.random.split(key)
    return jax.random.permutation(support_key, d), value_key


def _plant(rank: Array, K: Numeric, values: Array) -> Array:
    values = jnp.where(values == 0, jnp.finfo(values.dtype).eps, values)
    return jnp.where(rank < K, values, 0)


def gaussian_noise(key: Array, u: Array, sigma: Numeric) -> Array:
    """Response of a linear model, `y = u + sigma e`, e ~ N(0, I).

    Args:
        key: PRNG key.
        u: (n,), A x_true.
        sigma: standard deviation of the noise, >= 0, traced; 0 gives u exactly.

    Returns:
        (n,) array of the dtype of u.

    Source: YLZ18 §6.1.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from jaxht import ensembles
        >>> ensembles.gaussian_noise(jax.random.key(0), jnp.ones(3), 0.0).tolist()
        [1.0, 1.0, 1.0]
    """
    noise = jax.random.normal(key, u.shape, u.dtype)
    return u + jnp.asarray(sigma, u.dtype) * noise


def sigma_for_snr(u: Array, snr: Numeric) -> Array:
    """Noise level sigma that gives u = A x_true a signal-to-noise ratio, `snr = mean(u^2)/sigma^2`.

    As a response of `planted`: `lambda key, u: gaussian_noise(key, u, sigma_for_snr(u, snr))`.

    Args:
        u: (n,), A x_true.
        snr: ratio of powers, > 0, traced: 10^(dB/10) for decibels.

    Returns:
        Scalar of the dtype of u.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import ensembles
        >>> float(ensembles.sigma_for_snr(jnp.array([2.0, -2.0]), 4.0))
        1.0
    """
    return jnp.sqrt(jnp.mean(u**2) / jnp.asarray(snr, u.dtype))


def logistic_labels(key: Array, u: Array, factor: Numeric = 1.0) -> Array:
    """Labels of a logistic model, `P(y = +1) = 1/(1 + exp(-factor u))`.

    Args:
        key: PRNG key.
        u: (n,), A x_true.
        factor: traced: 1 is the model of the loss log(1 + exp(-y u)), 2 that of log(1 + exp(-2 y
            u)).

    Returns:
        (n,) array of -1 and +1 in the dtype of u.

    Source: YLZ18 §6.2.1 (factor 2).

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from jaxht import ensembles
        >>> ensembles.logistic_labels(jax.random.key(0), jnp.array([-50.0, 50.0])).tolist()
        [-1.0, 1.0]
    """
    probability = jax.nn.sigmoid(jnp.asarray(factor, u.dtype) * u)
    is_positive = jax.random.uniform(key, u.shape, u.dtype) < probability
    return jnp.where(is_positive, 1, -1).astype(u.dtype)


def mask_rows(problem: PlantedProblem, n: Numeric) -> PlantedProblem:
    """Set all rows of A and y but the first n to zero: problems of every size n in one shape.

    Rows of zeros change neither a sum of squares nor its minimisers: of problems that are drawn
    with as many rows as the largest n, one compile serves all n. Means, and losses of labels, need
    weights: ``weights=jnp.abs(y)``.

    Args:
        problem: with A (rows, d) and y (rows,).
        n: number of rows that stay, at most rows; static or traced.

    Returns:
        A problem of the same shapes; x_true stays.

    Example:
        >>> import jax
        >>> from functools import partial
        >>> from jaxht import ensembles
        >>> design, signal = partial(ensembles.gaussian, n=8, d=5), partial(ensembles.gaussian_signal, d=5, K=2)
        >>> problem = ensembles.mask_rows(ensembles.planted(jax.random.key(0), design, signal), 3)
        >>> (problem.y != 0).tolist()
        [True, True, True, False, False, False, False, False]
    """
    inside = jnp.arange(problem.y.shape[0]) < n
    return PlantedProblem(
        A=jnp.where(inside[:, None], problem.A, 0),
        y=jnp.where(inside, problem.y, 0),
        x_true=problem.x_true,
    )


def low_rank_entries(
    key: Array,
    m: int,
    r: Numeric,
    n: Numeric,
    *,
    r_max: int | None = None,
    n_max: int | None = None,
) -> PlantedProblem:
    """Draw a matrix of low rank and some of its entries: ``X = L R' / sqrt(r)``, L and R (m, r)
    with N(0, 1) entries.

    Args:
        key: PRNG key.
        m: X is m x m; static.
        r: rank, traced if r_max is given.
        n: number of entries observed, traced if n_max is given; at most m^2.
        r_max, n_max: static upper bounds; None: r and n, which are then Python ints.

    Returns:
        A problem whose A are the positions observed, i m + j for entry (i, j): (n_max,) integers, n
        of them distinct and uniformly random, then m^2 where nothing is observed; y (n_max,) their
        values, then 0; x_true (m, m). The entries of X have mean 0 and variance 1.
        ``matrix_completion(A // m, A % m, y, (m, m))`` is the objective.

    Source: Tanner & Wei 2013, §4 (Gaussian factors, entries uniformly at random); the scale is
    ours.

    Example:
        >>> import jax
        >>> from jaxht import ensembles
        >>> problem = ensembles.low_rank_entries(jax.random.key(0), 6, 2, 18)
        >>> problem.A.shape, problem.x_true.shape
        ((18,), (6, 6))
    """
    rank_bound = int(r) if r_max is None else r_max
    size_bound = int(n) if n_max is None else n_max
    left_key, right_key, order_key = jax.random.split(key, 3)
    is_factor = jnp.arange(rank_bound) < r
    L = jnp.where(is_factor, jax.random.normal(left_key, (m, rank_bound)), 0)
    R = jnp.where(is_factor, jax.random.normal(right_key, (m, rank_bound)), 0)
    X = matmul(L, R.T) / jnp.sqrt(r)
    order = jax.random.permutation(order_key, m**2)
    is_observed = jnp.arange(size_bound) < n
    positions = jnp.where(is_observed, order[:size_bound], m**2)
    y = X.ravel().at[positions].get(mode="fill", fill_value=0)
    return PlantedProblem(positions, y, X)


def random_graph(key: Array, p: int, probability: Numeric) -> Array:
    """Draw the graph of Erdős & Rényi, in which each of the p (p - 1) / 2 edges is present with the
    same probability.

    Args:
        key: PRNG key.
        p: number of nodes, static.
        probability: from 0 to 1, traced.

    Returns:
        bool (p, p), symmetric, False on the diagonal.

    Example:
        >>> import jax
        >>> from jaxht import ensembles
        >>> ensembles.random_graph(jax.random.key(0), 3, 1.0).astype(int).tolist()
        [[0, 1, 1], [1, 0, 1], [1, 1, 0]]
    """
    upper = jnp.triu(jax.random.bernoulli(key, probability, (p, p)), 1)
    return upper | upper.T


def graph_precision(adjacency: Numeric, kappa: Numeric, *, dtype: DTypeLike = float) -> Array:
    """Make the precision matrix of a graph: ``W = G + c I``, G the adjacency matrix, with condition
    number kappa.

    Args:
        adjacency: (p, p), symmetric, 1 (or True) at edges and 0 elsewhere; at least one edge.
        kappa: > 1, traced: ``c = (lambda_max(G) - kappa lambda_min(G)) / (kappa - 1)``.
        dtype: of the result.

    Returns:
        (p, p), positive definite.

    Source: Yuan, Li & Zhang 2018, §6.3.1 (edges with probability 0.1, kappa = p).

    Example:
        >>> import numpy as np
        >>> from jaxht import ensembles
        >>> W = ensembles.graph_precision(np.array([[0, 1], [1, 0]]), 3.0)
        >>> W.tolist()
        [[2.0, 1.0], [1.0, 2.0]]
    """
    G = jnp.asarray(adjacency, dtype)
    eigenvalues, _ = eigh(G)
    numerator = eigenvalues[-1] - kappa * eigenvalues[0]
    c = numerator / (jnp.asarray(kappa, dtype) - 1)
    return G + c * jnp.eye(len(G), dtype=dtype)


def gaussian_rows(key: Array, n: int, precision: Array) -> Array:
    """Draw n samples from N(0, W^-1), W the precision matrix.

    Args:
        key: PRNG key.
        n: static.
        precision: W (p, p), positive definite.

    Returns:
        X (n, p); ``X.T @ X / n`` is the sample covariance that :class:`jaxht.GaussianPrecision`
        takes.

    Cost: a Cholesky factor of W, its inverse, and n p^2.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from jaxht import ensembles
        >>> ensembles.gaussian_rows(jax.random.key(0), 5, jnp.eye(3)).shape
        (5, 3)
    """
    Z = jax.random.normal(key, (precision.shape[0], n), precision.dtype)
    return matmul(Z.T, inverse_cholesky(precision))
