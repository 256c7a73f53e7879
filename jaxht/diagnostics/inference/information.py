"""Standard errors of refitted coefficients, from the observed information."""

import jax.numpy as jnp

from jaxht._checks import check_kind
from jaxht._meshes import shard_automatically
from jaxht._repr import describe
from jaxht._typing import Array
from jaxht.constraints import Support
from jaxht.diagnostics._models import likelihood, linear_model, refuse
from jaxht.linalg.full_precision import machine_eps, matmul
from jaxht.linalg.normal_equations import ratio
from jaxht.linalg.positive_definite import inverse
from jaxht.linalg.products import apply_weights
from jaxht.objectives.linear_model import LinearModel
from jaxht.objectives.objective import Objective, cast_point

__all__ = ["standard_errors"]

#: Of an entry of the inverse, relative, up to which it is one.
LARGEST_ERROR = 0.01


@shard_automatically
def standard_errors(
    objective: Objective, support: Support, x: Array, *, sandwich: bool = False
) -> Array:
    r"""Standard errors of the coefficients on a support, as if the support had been known before
    the data.

    They take **no account of the selection**. A support that was chosen with the same data is
    chosen because its coefficients are large there: intervals from these errors cover the truth
    less often than they say, and tests reject too often. They hold where the support was fixed
    beforehand, or chosen with other samples.

    .. math::
        \mathrm{Cov} = (J + P)^{-1} M (J + P)^{-1}, \qquad J = \textstyle\sum_i s_i l''_i a_i a_i', \qquad
        M = \phi J \ \text{or} \ \textstyle\sum_i s_i l_i'^2 a_i a_i' \ \text{(sandwich)}

    on the support, where P is the ridge on this scale; the bias that the ridge causes is not
    included. phi is the error variance ``RSS / (n - k)`` for squared errors, the dispersion ``sum_i
    s_i (y_i / exp(u_i) - 1)^2 / (n - k)`` for :class:`jaxht.Gamma`, and 1 for the other
    likelihoods. For :class:`jaxht.Cox` and :class:`jaxht.Ordinal`, J is the information that
    remains once the baseline hazard and the thresholds, respectively, are profiled out.

    Args:
        objective: as of :func:`jaxht.criteria.deviance`; with ``sandwich``, any
            :class:`jaxht.objectives.LinearModel` of one output with a smooth loss that is a sum
            over samples, :class:`jaxht.Huber` for example.
        support: F, of known k_max: ``result.support``.
        x: the minimiser on F, shaped like the variable: that of a solver that refits, or of
            ``refit(objective, support, x)``.
        sandwich: bool, static; whether the variance of the scores is estimated from the scores
            themselves, which remains valid for many samples if the likelihood is misspecified.

    Returns:
        Shaped like x, 0 off F; NaN where J + P is singular on F, as far as rounding can tell:
            for columns that depend on each other.

    Raises:
        ValueError: for objectives that are none of these, and where k_max is not known.

    Cost: k_max products with the Hessian, and k_max^3.

    Source: Fisher's information; the sandwich is that of Huber 1967 and White 1982 (HC0).

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> A, y = jnp.array([[1.0, 0.0], [1.0, 0.0], [1.0, 1.0]]), jnp.array([1.0, 2.0, 3.0])
        >>> f = jaxht.LeastSquares(A, y)
        >>> result = jaxht.solve(f, jaxht.Sparse(1), jaxht.HTP())
        >>> [round(float(e), 4) for e in jaxht.inference.standard_errors(f, result.support, result.x)]  # 1 / sqrt(3)
        [0.5774, 0.0]
    """
    check_kind(objective=objective)
    if not isinstance(support, Support):
        raise ValueError(f"support must be a Support, result.support; got {describe(support)}")
    model = _sum_over_samples(objective) if sandwich else likelihood(objective)
    x = cast_point(x, model)
    indices = support.require_indices()
    pred = model.predict(x)
    u = model.linear_predictor(pred)
    rows = model.hessian(x, pred).rows(indices)
    H = rows.at[:, indices].get(mode="fill", fill_value=0)
    scale = model.normalise(jnp.ones((), H.dtype))
    padding = (indices == x.size).astype(H.dtype)
    information = H / scale + jnp.diag(padding)
    # In units in which its diagonal is 1, so that no product of such matrices over- or underflows.
    unit = ratio(1.0, jnp.sqrt(jnp.diagonal(information)))

    def in_units(matrix: Array) -> Array:
        return matrix * unit * unit[:, None]

    information = in_units(information)
    bread = inverse(information)
    # By what the other coefficients inflate each variance: its inverse is known up to rounding.
    inflation = jnp.diagonal(information) * jnp.diagonal(bread)
    is_determined = inflation * machine_eps(inflation) < LARGEST_ERROR
    if sandwich:
        scores = model.loss.derivative(u, model.y)
        squared_scores = apply_weights(model.sample_weights, scores**2)
        columns = model.design.columns(indices) * unit[:, None]
        meat = matmul(columns * squared_scores, columns.T)
    else:
        ridge = support.gather(jnp.broadcast_to(model.penalty, model.shape), indices)
        J = (H - jnp.diag(ridge)) / scale
        meat = _dispersion(model, u, support) * in_units(J)
    variances = jnp.diagonal(matmul(bread, matmul(meat, bread)))
    variances = jnp.where(is_determined, variances, jnp.nan)
    return support.scatter(unit * jnp.sqrt(variances), indices)


def _sum_over_samples(objective: Objective) -> LinearModel:
    """The objective, prepared, which is a sum over samples of one output."""
    requirement = (
        "a linear model of one output, a sum over samples of a smooth loss, for a sandwich"
    )
    model = linear_model(objective, requirement)
    has_one_output = len(model.pred_shape) == 1
    if not (has_one_output and model.loss.is_separable and model.loss.is_smooth):
        refuse(objective, requirement)
    return model


def _dispersion(model: LinearModel, u: Array, support: Support) -> Array:
    """phi: the squared residuals over the degrees of freedom, or 1."""
    squares = model.loss.squared_residuals(u, model.y)
    if squares is None:
        return jnp.ones((), u.dtype)
    squares = squares.reshape(model.num_samples, -1)
    weights = model.sample_weights.reshape(model.num_samples, -1)
    weights = jnp.broadcast_to(weights, squares.shape)
    degrees_of_freedom = jnp.sum(weights) - support.size.astype(u.dtype)
    return jnp.sum(apply_weights(weights, squares)) / degrees_of_freedom
