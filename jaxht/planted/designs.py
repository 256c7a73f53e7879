"""Random designs: matrices of independent or correlated entries, and random rows of fast
transforms."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.fft import idct
from jax.typing import DTypeLike

from jaxht._checks import check_count, known_values
from jaxht._loops import scan
from jaxht._typing import Numeric
from jaxht.designs import LinearOperator, transforms
from jaxht.designs.combined import diagonal
from jaxht.linalg.full_precision import matmul
from jaxht.linalg.inner_products import real_dtype
from jaxht.planted.draws import as_real, draw_signs


def gaussian(
    key: Array, n: int, d: int, *, variance: Numeric | None = None, dtype: DTypeLike = float
) -> Array:
    """Gaussian design with independent entries, `A_ij ~ N(0, variance)`.

    Args:
        key: PRNG key.
        n, d: numbers of rows and columns, static.
        variance: of an entry, traced. None: 1/n (SL18 §5.1: E ||Ax||^2 = ||x||^2). 1.0: rows N(0,
            I) (YLZ18 §6.1).
        dtype: of the result, real or complex; a complex entry has independent parts, and ``E |A_ij|^2
            = variance``. Default: JAX's default float.

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
    """Bernoulli design, `A_ij = +-sqrt(variance)` with equal probability; of complex numbers the
    Steinhaus design, `A_ij = sqrt(variance) e^{i phi}`.

    Args:
        key: PRNG key.
        n, d: numbers of rows and columns, static.
        variance: of an entry, traced. None: 1/n.
        dtype: of the result, real or complex; complex entries have phases that are uniform on the
            circle in place of signs. Default: JAX's default float.

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
    return std * draw_signs(key, (n, d), dtype)


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
        dtype: of the result, real or complex. Default: JAX's default float.

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
    rows = _draw_rows(key, n, d)
    scale = _compute_std(variance, n, dtype) * jnp.sqrt(as_real(d, dtype))
    units = jax.nn.one_hot(rows, d, dtype=scale.dtype)
    A = scale * idct(units, norm="ortho")  # row i of an orthogonal C is C^T e_i
    return A.astype(dtype)


def partial_dct_operator(
    key: Array, n: int, d: int, *, variance: Numeric | None = None, dtype: DTypeLike = float
) -> LinearOperator:
    r"""n distinct random rows of the discrete cosine transform, as `partial_dct`, matrix-free.

    .. math::
        A = \sqrt{d \, variance} \; P_R C

    Args:
        key: PRNG key.
        n, d: numbers of rows and columns, static, n <= d.
        variance: mean square of the entries of a row, traced. None: 1/n, which gives columns of
            norm 1 in the mean.
        dtype: of the result, real, or complex for complex x. Default: JAX's default float.

    Returns:
        `jaxht.LinearOperator` of shape (n, d), with the norms of its columns. `A.columns(
        jnp.arange(d)).T` is the matrix.

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
    A = transforms.partial_dct(d, _draw_rows(key, n, d), dtype=dtype)
    return _scale(A, variance)


def partial_dft_operator(
    key: Array, n: int, d: int, *, variance: Numeric | None = None, dtype: DTypeLike = complex
) -> LinearOperator:
    r"""n distinct random rows of the discrete Fourier transform, matrix-free.

    .. math::
        A = \sqrt{d \, variance} \; P_R F

    Args:
        key: PRNG key.
        n, d: numbers of rows and columns, static, n <= d.
        variance: mean square of the entries of a row, traced. None: 1/n, which gives columns of
            norm 1.
        dtype: of the result, complex64 or complex128. Default: JAX's default complex dtype.

    Returns:
        `jaxht.LinearOperator` of shape (n, d), with the norms of its columns. `A.columns(
        jnp.arange(d)).T` is the matrix.

    Raises:
        ValueError: for n > d.

    Cost: a product costs `d log d`; nothing of size n d is held.

    Source: Candès, Romberg & Tao 2006; SL18 §3.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from jaxht import ensembles
        >>> A = ensembles.partial_dft_operator(jax.random.key(0), 4, 8)
        >>> A.shape, A.matvec(jnp.ones(8)).shape
        ((4, 8), (4,))
    """
    A = transforms.partial_dft(d, _draw_rows(key, n, d), dtype=dtype)
    return _scale(A, variance)


def partial_hadamard_operator(
    key: Array, n: int, d: int, *, variance: Numeric | None = None, dtype: DTypeLike = float
) -> LinearOperator:
    r"""n distinct random rows of the Walsh-Hadamard transform, matrix-free.

    .. math::
        A = \sqrt{d \, variance} \; P_R H

    Args:
        key: PRNG key.
        n, d: numbers of rows and columns, static, n <= d, d a power of 2.
        variance: mean square of the entries of a row, traced. None: 1/n, which gives columns of
            norm 1.
        dtype: of the result, real, or complex for complex x. Default: JAX's default float.

    Returns:
        `jaxht.LinearOperator` of shape (n, d), with the norms of its columns. `A.columns(
        jnp.arange(d)).T` is the matrix.

    Raises:
        ValueError: for n > d, and for a d that is no power of 2.

    Cost: a product costs `d log d` additions; nothing of size n d is held.

    Source: SL18 §3, a partial orthogonal ensemble.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from jaxht import ensembles
        >>> A = ensembles.partial_hadamard_operator(jax.random.key(0), 4, 8)
        >>> A.shape, A.matvec(jnp.ones(8)).shape
        ((4, 8), (4,))
    """
    A = transforms.partial_hadamard(d, _draw_rows(key, n, d), dtype=dtype)
    return _scale(A, variance)


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
    rows = _draw_rows(row_key, n, d)
    angles = 2 * jnp.pi * jax.random.uniform(phase_key, (d // 2 + 1,), dtype)
    j = jnp.arange(d // 2 + 1)
    is_real = (j == 0) | (2 * j == d)
    phases = jnp.where(is_real, jnp.sign(jnp.cos(angles)), jnp.exp(1j * angles))
    kernel = jnp.fft.irfft(phases, d)
    return transforms.circulant(math.sqrt(d / n) * kernel, rows)


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
    d = math.prod(transforms.check_lengths(shape))
    row_key, sign_key = jax.random.split(key)
    F = transforms.partial_dft(shape, _draw_rows(row_key, n, d), dtype=dtype)
    return F @ diagonal(jax.random.rademacher(sign_key, (d,), real_dtype(F)))


def _draw_rows(key: Array, n: int, d: int) -> Array:
    """n distinct numbers of 0 ... d - 1."""
    if n > d:
        raise ValueError(
            f"rows are drawn without replacement, which needs n <= d; got n = {n}, d = {d}"
        )
    return jax.random.permutation(key, d)[:n]


def _scale(A: LinearOperator, variance: Numeric | None) -> LinearOperator:
    """A, whose variance is 1/n, with another one."""
    if variance is None:
        return A
    factor = jnp.sqrt(A.shape[0] * as_real(variance, A.dtype))
    return A.divide_columns(1 / factor, factor * A.column_norms())


def sparse_columns(
    key: Array,
    n: int,
    d: int,
    degree: Numeric,
    *,
    random_signs: bool = True,
    dtype: DTypeLike = float,
) -> Array:
    """Sparse design, in which every column has the same number of nonzeros, at random places:
    `A_ij = +-degree^(-1/2)`.

    Args:
        key: PRNG key.
        n, d: numbers of rows and columns, static.
        degree: nonzeros of a column, from 1 to n, traced.
        random_signs: whether entries have random signs, static; without, A is the adjacency matrix
            of a random left-regular bipartite graph (an expander, with high probability).
        dtype: of the result, real or complex; complex entries have phases that are uniform on the
            circle in place of signs. Default: JAX's default float.

    Returns:
        (n, d) array, with columns of norm 1.

    Raises:
        ValueError: for a degree outside [1, n], as far as known.

    Cost: a sort of n numbers for each column.

    Source: Blanchard, Tanner & Wei 2015 (seven nonzeros); Gilbert & Indyk 2010 without signs.

    Example:
        >>> import jax
        >>> from jaxht import ensembles
        >>> A = ensembles.sparse_columns(jax.random.key(0), 6, 3, 4)
        >>> (A != 0).sum(axis=0).tolist(), float(abs(A).max())
        ([4, 4, 4], 0.5)
    """
    known = known_values(degree)
    if known is not None and not np.all((known >= 1) & (known <= n)):
        raise ValueError(f"degree must lie in [1, {n}]; got {known}")
    place_key, sign_key = jax.random.split(key)
    every = jnp.broadcast_to(jnp.arange(n)[:, None], (n, d))
    place = jax.random.permutation(place_key, every, axis=0, independent=True)
    size = lax.rsqrt(as_real(degree, dtype))
    entries = size * draw_signs(sign_key, (n, d), dtype) if random_signs else size
    return jnp.where(place < degree, entries, 0).astype(dtype)


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
        dtype: of the result, real or complex. Default: JAX's default float.

    Returns:
        (n, d) array.

    Cost: n d random numbers, and a scan over the columns; no Cholesky factor.

    Example:
        >>> import jax
        >>> from jaxht import ensembles
        >>> ensembles.toeplitz(jax.random.key(0), 4, 8, 0.5).shape
        (4, 8)
    """
    rho = as_real(rho, dtype)
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
    Q^H), Q Haar, orthogonal or unitary.

    Args:
        key: PRNG key.
        n, d: numbers of rows and columns, static.
        eigenvalues: (d,) of the population covariance, non-negative, traced.
        dtype: of the result, real or complex. Default: JAX's default float.

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
    stds = jnp.sqrt(as_real(eigenvalues, dtype))
    Z = jax.random.normal(row_key, (n, d), dtype) * stds
    return matmul(Z, Q.conj().T)


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
        dtype: of the result, real or complex. Default: JAX's default float.

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
    spaced = jnp.linspace(1.0, as_real(kappa, dtype), d)
    eigenvalues = as_real(variance, dtype) * spaced / spaced.mean()
    return with_spectrum(key, n, d, eigenvalues, dtype=dtype)


def _compute_std(variance: Numeric | None, n: int, dtype: DTypeLike) -> Array:
    check_count("n", n)
    variance = 1 / n if variance is None else variance
    return jnp.sqrt(as_real(variance, dtype))
