"""Planted problems: a design, a signal and a response; matrices of low rank, and graphs."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import DTypeLike

from jaxht._dataclass import pytree
from jaxht._typing import Numeric
from jaxht.designs import Design
from jaxht.linalg.full_precision import matmul
from jaxht.linalg.inner_products import is_complex, squares
from jaxht.linalg.lapack import eigh, inverse_cholesky
from jaxht.planted.draws import as_real

# The folds of a problem's key. ASCII words and not 0, 1, 2: `fold_in(cell_key, trial)` must never
# meet them.
_DESIGN = int.from_bytes(b"desg", "big")
_SIGNAL = int.from_bytes(b"sgnl", "big")
_RESPONSE = int.from_bytes(b"resp", "big")


@pytree
class PlantedProblem:
    """A planted problem: what a solver is given, and the truth that the metrics compare with.

    Attributes:
        A: (n, d) design, an array or a :class:`jaxht.extend.Design`; rows are samples.
        y: (n,) response: `A x_true` plus noise, or labels -1/+1; (n, c) for c signals.
        x_true: (d,) planted signal with exactly K nonzeros; (d, c) with K nonzero rows.
    """

    A: Any
    y: Array
    x_true: Array


def planted(
    key: Array,
    design: Callable[[Array], Any],
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
        signal: key -> (d,), or (d, c).
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
    if isinstance(A, Design):
        y = A.matvec(x_true)
    else:
        y = jnp.matmul(A, x_true, precision=lax.Precision.HIGHEST)
    if response is not None:
        y = response(jax.random.fold_in(key, _RESPONSE), y)
    return PlantedProblem(A=A, y=y, x_true=x_true)


def gaussian_noise(key: Array, u: Array, sigma: Numeric) -> Array:
    """Response of a linear model, `y = u + sigma e`, e ~ N(0, I).

    Args:
        key: PRNG key.
        u: (n,) or (n, c), A x_true, real or complex; e is complex with it, with independent parts.
        sigma: root of the mean square of the noise, E |sigma e_i|^2 = sigma^2; >= 0, traced; 0
            gives u exactly.

    Returns:
        Array of the shape and dtype of u.

    Source: YLZ18 §6.1.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from jaxht import ensembles
        >>> ensembles.gaussian_noise(jax.random.key(0), jnp.ones(3), 0.0).tolist()
        [1.0, 1.0, 1.0]
    """
    noise = jax.random.normal(key, u.shape, u.dtype)
    return u + as_real(sigma, u.dtype) * noise


def sigma_for_snr(u: Array, snr: Numeric) -> Array:
    """Noise level sigma that gives u = A x_true a signal-to-noise ratio, `snr =
    mean(|u|^2)/sigma^2`.

    As a response of `planted`: `lambda key, u: gaussian_noise(key, u, sigma_for_snr(u, snr))`.

    Args:
        u: (n,) or (n, c), A x_true, real or complex.
        snr: ratio of powers, > 0, traced: 10^(dB/10) for decibels.

    Returns:
        Scalar of the real dtype of u.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import ensembles
        >>> float(ensembles.sigma_for_snr(jnp.array([2.0, -2.0]), 4.0))
        1.0
    """
    return jnp.sqrt(jnp.mean(squares(u)) / as_real(snr, u.dtype))


def noise_at_snr(key: Array, u: Array, snr_db: Numeric) -> Array:
    """Response of a linear model at a signal-to-noise ratio in decibels, by `gaussian_noise`.

        10 log10(mean(|u|^2) / sigma^2) = snr_db

    Args:
        key: PRNG key.
        u: (n,) or (n, c), A x_true, real or complex.
        snr_db: in dB, traced; infinity gives u.

    Returns:
        Array of the shape and dtype of u.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from jaxht import ensembles
        >>> u = jnp.ones(10_000)
        >>> e = ensembles.noise_at_snr(jax.random.key(0), u, 20.0) - u
        >>> round(float(jnp.std(e)), 2)
        0.1
    """
    snr = 10 ** (as_real(snr_db, u.dtype) / 10)
    return gaussian_noise(key, u, sigma_for_snr(u, snr))


def noise_target(n: Numeric, sigma: Numeric) -> Array:
    """Value of least squares at which a run has reached the noise, `target_value` of
    :class:`jaxht.Stop`: the residual is no longer than the noise then, with probability 1 - 1/n.

        sigma^2 (n + 2 sqrt(n log n)) / 2 >= ||e||^2 / 2

    For `LeastSquares(A, y, mean=False)` without a ridge; divide by n for `mean=True`. A greedy
    solver with this target needs no k but a bound: it selects as many columns as the noise asks
    for.

    Args:
        n: number of samples, at least 2, traced; n c for c columns.
        sigma: of `gaussian_noise`, traced.

    Returns:
        Scalar.

    Source: Cai & Wang 2011, §II (||e|| <= sigma sqrt(n + 2 sqrt(n log n))), for real noise; the
    squared length of complex noise varies less.

    Example:
        >>> import jax
        >>> import jaxht
        >>> from jaxht import ensembles
        >>> A = ensembles.gaussian(jax.random.key(0), 60, 100)
        >>> x_true = ensembles.sign_signal(jax.random.key(1), 100, 5)
        >>> y = ensembles.gaussian_noise(jax.random.key(2), A @ x_true, 0.01)
        >>> stop = jaxht.Stop(target_value=ensembles.noise_target(60, 0.01))
        >>> f = jaxht.LeastSquares(A, y, mean=False)
        >>> result = jaxht.solve(f, jaxht.Sparse(30), jaxht.OMP(), stop=stop)
        >>> result.reason, int(result.num_steps)
        ('TARGET_REACHED', 5)
    """
    n = jnp.asarray(n, float)
    sigma = jnp.asarray(sigma, jnp.result_type(sigma, float))
    most = n + 2 * jnp.sqrt(n * jnp.log(n))
    return sigma**2 * most.astype(sigma.dtype) / 2


def logistic_labels(key: Array, u: Array, factor: Numeric = 1.0) -> Array:
    """Labels of a logistic model, `P(y = +1) = 1/(1 + exp(-factor u))`.

    Args:
        key: PRNG key.
        u: (n,), A x_true, real.
        factor: traced: 1 is the model of the loss log(1 + exp(-y u)), 2 that of log(1 + exp(-2 y
            u)).

    Returns:
        (n,) array of -1 and +1 in the dtype of u.

    Raises:
        ValueError: for complex u.

    Source: YLZ18 §6.2.1 (factor 2).

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from jaxht import ensembles
        >>> ensembles.logistic_labels(jax.random.key(0), jnp.array([-50.0, 50.0])).tolist()
        [-1.0, 1.0]
    """
    if is_complex(u):
        raise ValueError(f"u must be real for labels; got {u.dtype}")
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

    Raises:
        ValueError: for an n, or n_max, above m^2.

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
    if size_bound > m**2:
        raise ValueError(f"n must be at most m^2 = {m**2}, the number of entries; got {size_bound}")
    left_key, right_key, order_key = jax.random.split(key, 3)
    is_factor = jnp.arange(rank_bound) < r
    L = jnp.where(is_factor, jax.random.normal(left_key, (m, rank_bound)), 0)
    R = jnp.where(is_factor, jax.random.normal(right_key, (m, rank_bound)), 0)
    X = matmul(L, R.T) / jnp.sqrt(jnp.maximum(r, 1))
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
    kappa = jnp.asarray(kappa, dtype)
    eigenvalues, _ = eigh(G)
    c = (eigenvalues[-1] - kappa * eigenvalues[0]) / (kappa - 1)
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
