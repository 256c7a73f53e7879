"""Least squares from its moments, which take the place of the samples."""

from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxht._checks import (
    check_array,
    check_count,
    check_scalars,
    known_values,
    none_negative,
    warn_of_rounding,
)
from jaxht._dataclass import as_dtype, cast_numbers, pytree, replace, static
from jaxht._typing import Array, ArrayDType, Leaf, Numeric
from jaxht.linalg.full_precision import machine_eps, matmul
from jaxht.linalg.inner_products import check_real_array
from jaxht.linalg.operators import SymmetricOperator
from jaxht.linalg.selection import gather
from jaxht.objectives.objective import Objective, float_dtype

__all__ = ["MomentLeastSquares", "Moments"]

# f is a difference of terms of the size of its value at 0: below so many ulps of that it is
# rounding.
EXACT_MOMENT_FIT_ULPS = 100.0


@pytree
class MomentLeastSquares(Objective):
    r"""Least squares that holds ``A'A``, ``A'y`` and ``y'y`` in place of the samples.

    .. math::
        f(x) = \frac c2 (x' G x - 2 b' x + s) + \tfrac12 \sum_j l2_j x_j^2, \qquad
        G = A' S A, \; b = A' S y, \; s = y' S y

    It is the function of :class:`jaxht.LeastSquares`, with ``c = 1 / total_weight`` where ``mean``
    is set (the default), else 1, and works with all deterministic solvers: their time and memory
    do not depend on the number of samples. :class:`Moments` adds the moments up over batches.
    Under a vmap over b, s and x the lanes share one G, whose products are matrix-matrix products.

    Moments have the square of the condition number of A: columns that are nearly dependent need
    float64 where ``LeastSquares`` does with float32. The value is known to some roundings of
    ``c s / 2``, so that f near an exact fit has few digits; gradients and minimisers do not depend
    on s. Solvers that draw samples (SGHT, HT-SVRG, HT-SAGA, DIHT) need the samples.

    Args:
        gram: G, (d, d), float32 or float64, traced; symmetric, without negative eigenvalues.
        products: b, (d,) traced; or (d, c) for a variable (d, c), the coefficients of c outputs.
        square: s, a scalar, traced; the sum over the outputs. 0 leaves a constant out of f.
        total_weight: the number of samples, or the sum of their weights, a scalar, traced.
        l2: ridge parameter >= 0, on the scale of the Hessian, traced: a scalar, or shaped like x.
        mean: bool, static; whether f is divided by ``total_weight``.

    Raises:
        ValueError: from :meth:`prepare`, which every solver calls, for shapes, dtypes and numbers
        that are not valid.

    Cost: a prediction G x d^2, or d^2 c; a value or a gradient from it d; a refit on k of d
    coordinates k^3 / 3 + k d.

    Source: the normal equations, as in Björck 1996, §2.2.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> A, y = jnp.eye(3), jnp.array([3.0, 1.0, 2.0])
        >>> f = jaxht.MomentLeastSquares(A.T @ A, A.T @ y, jnp.vdot(y, y), 3)
        >>> jaxht.solve(f, jaxht.Sparse(1), jaxht.HTP()).x.tolist()
        [3.0, 0.0, 0.0]
    """

    gram: Array
    products: Array
    square: Numeric = 0.0
    total_weight: Numeric = 1.0
    l2: Numeric | None = 0.0
    mean: bool = static(default=True, kw_only=True)

    @property
    def shape(self) -> tuple[int, ...]:
        """(d,), or (d, c)."""
        return np.shape(self.products)

    @property
    def pred_shape(self) -> tuple[int, ...]:
        """The shape of the prediction, which is x itself."""
        return self.shape

    @property
    def dtype(self) -> ArrayDType:
        """The dtype of G, or the default float for integers."""
        return float_dtype(jnp.result_type(self.gram))

    def prepare(self) -> Self:
        """This objective, all of its numbers of one dtype.

        Raises:
            ValueError: naming the argument, where shapes, dtypes or numbers are not valid.
        """
        check_array("gram", self.gram, "a square matrix, A'A")
        check_array("products", self.products, "an array of shape (d,) or (d, c), A'y")
        warn_of_rounding((self.gram, self.products))
        shape = np.shape(self.gram)
        if len(shape) != 2 or shape[0] != shape[1] or 0 in shape:
            raise ValueError(f"gram must have shape (d, d), d >= 1; got {shape}")
        if len(self.shape) not in (1, 2) or self.shape[0] != shape[0] or 0 in self.shape:
            raise ValueError(
                f"products must have shape ({shape[0]},) or ({shape[0]}, c), one row for each of "
                f"gram; got {self.shape}"
            )
        if self.dtype not in (jnp.float32, jnp.float64):
            raise ValueError(f"gram must be float32 or float64; got {self.dtype}")
        if np.iscomplexobj(self.products):
            raise ValueError(f"products must be real; got dtype {self.products.dtype}")
        check_scalars(self, skip=("gram", "products"), shapes={"l2": self.shape})
        _check_moments(self)
        has_no_ridge = isinstance(self.l2, int | float) and self.l2 == 0
        model = replace(self, l2=None) if has_no_ridge else self
        return cast_numbers(model, self.dtype)

    def has_valid_numbers(self) -> Array:
        """Whether no ridge is negative."""
        return none_negative(self.l2)

    # ---- value, gradient, Hessian ----

    def predict(self, x: Array) -> Array:
        """``G x``. Cost: d^2, or d^2 c."""
        return matmul(self.gram, x)

    def value(self, x: Array, pred: Array) -> Array:
        """f(x) from pred = G x. Cost: d."""
        squares = jnp.vdot(x, pred - 2 * self.products) + self.square
        value = self.normalise(squares) / 2
        return value if self.l2 is None else value + jnp.vdot(x, self.l2 * x) / 2

    def gradient(self, x: Array, pred: Array) -> Array:
        """``c (G x - b) + l2 * x`` from pred = G x. Cost: d."""
        return self._add_ridge(self.normalise(pred - self.products), x)

    def hessian(self, x: Array, pred: Array, tau: Numeric = 0.0) -> SymmetricOperator:
        """``(1 + tau) c G + diag(l2)``."""
        return ScaledGram(self, 1 + tau)

    def majorant(self) -> SymmetricOperator:
        """``c G + diag(l2)``, the Hessian itself."""
        return ScaledGram(self, 1.0)

    def exact_fits(self, values: Array) -> Array:
        """Which values of f are rounding errors of that at 0; none where ``square`` is 0."""
        total = self.normalise(as_dtype(self.square, values.dtype)) / 2
        # Without ||y||^2 f does not tell.
        return (total > 0) & (values <= EXACT_MOMENT_FIT_ULPS * machine_eps(values) * total)

    # ---- what subproblems ask for ----

    @property
    def penalty(self) -> Array:
        """``l2`` as an array: 0 where there is no ridge."""
        dtype = jax.dtypes.canonicalize_dtype(self.dtype)
        return jnp.asarray(0.0 if self.l2 is None else self.l2, dtype)

    def normalise(self, v: Array) -> Array:
        """``c v``."""
        return v / self.total_weight if self.mean else v

    def restrict(self, indices: Array) -> "MomentLeastSquares":
        """This objective of a vector on the coordinates at ``indices`` (m,) alone, which differ; an
        index d gives a coordinate without any curvature."""
        block = gather(self.gram, indices).at[:, indices].get(mode="fill", fill_value=0)
        l2 = self.l2
        if jnp.ndim(self.penalty):
            l2 = gather(self.penalty, indices)
        return replace(self, gram=block, products=gather(self.products, indices), l2=l2)

    def forms_hessian(self, num_rows: int, max_formed: int) -> bool:
        """True: the Hessian is at hand."""
        return True

    def _add_ridge(self, v: Array, x: Array) -> Array:
        return v if self.l2 is None else v + self.l2 * x


class ScaledGram(SymmetricOperator):
    """``scale c G + diag(l2)``."""

    def __init__(self, objective: MomentLeastSquares, scale: Numeric) -> None:
        def product(v):
            return self.combine(objective.predict(v), v)

        super().__init__(product, objective.shape, objective.dtype)
        self.objective = objective
        self.scale = scale

    def combine(self, image: Array, v: Array) -> Array:
        """``scale c image + l2 * v``."""
        f = self.objective
        scaled = self.scale * f.normalise(image)
        return scaled if f.l2 is None else scaled + f.l2 * v

    def quadratic_form(self, v: Array, pred: Array) -> Array:
        """The form from pred = G v. Cost: d."""
        return jnp.vdot(v, self.combine(pred, v))

    def diagonal(self) -> Array:
        """Cost: d."""
        f = self.objective
        diagonal = jnp.diagonal(f.gram).reshape(-1, *[1] * (len(self.shape) - 1))
        ones = jnp.ones(self.shape, f.dtype)
        return self.combine(diagonal * ones, ones)

    def preconditioner(self) -> Array:
        """The diagonal."""
        return self.diagonal()

    def coordinate_norm(self) -> Array:
        """The largest entry of the diagonal."""
        return jnp.max(self.diagonal())

    def rows(self, indices: Array) -> Array:
        """The rows of the matrix, which are at hand where x is a vector. Cost: k d."""
        f = self.objective
        if len(self.shape) > 1:
            return super().rows(indices)
        is_diagonal = indices[:, None] == lax.iota(jnp.int32, self.shape[0])[None]
        return self.combine(gather(f.gram, indices), is_diagonal.astype(f.dtype))


def _check_moments(f: MomentLeastSquares) -> None:
    """Raise ValueError for numbers that are no moments, as far as they are known."""
    weight = known_values(f.total_weight)
    if weight is not None and not np.all(weight > 0):
        raise ValueError(f"total_weight must be positive; got {weight}")
    gram = known_values(f.gram)
    if gram is None:
        return
    diagonal = np.diagonal(gram)
    if np.any(diagonal < 0):
        raise ValueError(
            f"gram must be A'A, whose diagonal is not negative; got {np.min(diagonal)} there"
        )
    scale = np.max(np.abs(gram), initial=0)
    if np.max(np.abs(gram - gram.T), initial=0) > 1e-3 * scale:
        raise ValueError("gram must be A'A, which is symmetric; got a matrix that is not")


@pytree
class Moments:
    r"""Sums over batches of samples, from which least squares follows: ``A'A``, ``A'Y``, ``Y'Y``.

    .. math::
        G = \sum_i s_i a_i a_i', \qquad B = \sum_i s_i a_i y_i', \qquad q_j = \sum_i s_i y_{ij}^2

    What each addition rounds off is kept, and added in the end (compensated summation), so that
    sums over many batches have the error of one batch, in float32 as well. :meth:`zero` makes
    empty sums, :meth:`add` adds a batch, under ``jit`` and within loops too.

    Args:
        gram: G, (d, d).
        products: B, (d,) or (d, c).
        squares: q, a scalar or (c,).
        total_weight: the number of samples, or the sum of their weights, a scalar.
        lost: what the additions of the four have rounded off; None for nothing.

    Source: Knuth 1997, §4.2.2, Theorem B, for the error of an addition.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> moments = jaxht.Moments.zero(2)
        >>> for A, y in [(jnp.eye(2), jnp.array([3.0, 1.0])), (jnp.ones((1, 2)), jnp.ones(1))]:
        ...     moments = moments.add(A, y)
        >>> f = moments.least_squares()
        >>> f.gram.tolist(), f.products.tolist(), float(f.square)
        ([[2.0, 1.0], [1.0, 2.0]], [4.0, 2.0], 11.0)
    """

    gram: Leaf
    products: Leaf
    squares: Leaf
    total_weight: Leaf
    lost: Any = None

    @classmethod
    def zero(cls, num_columns: int, num_outputs: int | None = None, dtype: Any = None) -> "Moments":
        """Sums over no sample.

        Args:
            num_columns: d, static.
            num_outputs: c, static; None for y of one axis.
            dtype: float32 or float64; None for the default float.
        """
        check_count("num_columns", num_columns)
        outputs = () if num_outputs is None else (num_outputs,)
        dtype = jnp.result_type(float) if dtype is None else dtype
        sums = (
            jnp.zeros((num_columns, num_columns), dtype),
            jnp.zeros((num_columns, *outputs), dtype),
            jnp.zeros(outputs, dtype),
            jnp.zeros((), dtype),
        )
        return cls(*sums, lost=jax.tree.map(jnp.zeros_like, sums))

    def add(self, A: Array, y: Array, weights: Array | None = None) -> "Moments":
        """The sums with a further batch.

        Args:
            A: (n, d), samples in rows.
            y: (n,) or (n, c).
            weights: (n,), >= 0; None for ones. Samples of weight 0 pad a batch.

        Raises:
            ValueError: where the shapes do not fit, and for complex numbers.
        """
        check_real_array("A", A)
        check_real_array("y", y)
        outputs = self.squares.shape
        if np.ndim(A) != 2 or A.shape[1] != self.gram.shape[0]:
            raise ValueError(f"A must have shape (n, {self.gram.shape[0]}); got {np.shape(A)}")
        if np.shape(y) != (A.shape[0], *outputs):
            raise ValueError(f"y must have shape {(A.shape[0], *outputs)}; got {np.shape(y)}")
        if weights is not None and np.shape(weights) != A.shape[:1]:
            raise ValueError(f"weights must have shape {A.shape[:1]}; got {np.shape(weights)}")
        dtype = self.gram.dtype
        A = jnp.asarray(A, dtype)
        y = jnp.asarray(y, dtype)
        weighted_A = A
        weighted_y = y
        total = jnp.asarray(A.shape[0], dtype)
        if weights is not None:
            weights = jnp.asarray(weights, dtype)
            weighted_A = _times_rows(A, weights)
            weighted_y = _times_rows(y, weights)
            A = jnp.where(weighted_A == 0, 0, A)
            y = jnp.where(weighted_y == 0, 0, y)
            total = jnp.sum(weights)
        terms = (
            matmul(A.T, weighted_A),
            matmul(A.T, weighted_y),
            jnp.sum(weighted_y * y, axis=0),
            total,
        )
        return self._plus(terms)

    def merge(self, other: "Moments") -> "Moments":
        """The sums over the samples of both."""
        merged = self._plus(other.sums)
        if other.lost is None:
            return merged
        return replace(merged, lost=jax.tree.map(jnp.add, merged.lost, other.lost))

    def least_squares(self, l2: Numeric | None = 0.0, *, mean: bool = True) -> MomentLeastSquares:
        """The objective of all samples added.

        Args:
            l2, mean: as of :class:`MomentLeastSquares`.
        """
        gram, products, squares, total_weight = self.corrected
        square = jnp.sum(squares)
        return MomentLeastSquares(gram, products, square, total_weight, l2, mean=mean)

    @property
    def corrected(self) -> tuple[Array, Array, Array, Array]:
        """G, B, q and the weight, with what additions have rounded off."""
        if self.lost is None:
            return self.sums
        return jax.tree.map(jnp.add, self.sums, self.lost)

    @property
    def sums(self) -> tuple[Any, Any, Any, Any]:
        """G, B, q and the weight as they are."""
        return self.gram, self.products, self.squares, self.total_weight

    def _plus(self, terms: tuple[Array, ...]) -> "Moments":
        sums = jax.tree.map(jnp.add, self.sums, terms)
        rounded = jax.tree.map(_rounded_off, self.sums, terms, sums)
        if self.lost is not None:
            rounded = jax.tree.map(jnp.add, self.lost, rounded)
        return Moments(
            gram=sums[0],
            products=sums[1],
            squares=sums[2],
            total_weight=sums[3],
            lost=rounded,
        )


def _rounded_off(a: Array, b: Array, total: Array) -> Array:
    """What the sum of a and b has rounded off, exactly."""
    # A compiler that is allowed to reorder sums would find 0.
    second = total - a
    first = total - second
    return (a - first) + (b - second)


def _times_rows(v: Array, weights: Array) -> Array:
    """Rows times weights; 0 for a weight of 0, also where an entry is not finite."""
    weights = weights.reshape(-1, *[1] * (v.ndim - 1))
    return jnp.where(weights == 0, 0, v) * weights
