"""Standard errors of refitted coefficients, from the observed information."""

import jax.numpy as jnp

from jaxht._checks import check_kind
from jaxht._dataclass import as_dtype
from jaxht._typing import Array
from jaxht.constraints import Support
from jaxht.diagnostics.criteria import _likelihood, _num_samples
from jaxht.linalg.positive_definite import inverse
from jaxht.linalg.precision import matmul
from jaxht.objectives.linear_model import LinearModel
from jaxht.objectives.losses import GammaLoss, SquaredLoss, SquaredNormLoss
from jaxht.objectives.objective import Objective


def standard_errors(
    objective: Objective, support: Support, x: Array, *, sandwich: bool = False
) -> Array:
    r"""Standard errors of the coefficients on a support, as if the support had been known before
    the data.

    They take **no account of the selection**. A support that was chosen with the same data is
    chosen because its
    coefficients are large there: intervals from these errors cover the truth less often than they
    say, and tests reject too often. They hold where the support was fixed beforehand, or chosen
    with other samples.

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
        Shaped like x, 0 off F; NaN where J + P is singular on F.

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
    model = _weighted_scores(objective) if sandwich else _likelihood(objective)
    x = as_dtype(x, model.dtype)
    indices = support.require_indices()
    pred = model.predict(x)
    rows = model.hessian(x, pred).rows(indices)
    H = rows.at[:, indices].get(mode="fill", fill_value=0)
    scale = model.normalise(jnp.ones((), H.dtype))
    ridge = support.gather(jnp.broadcast_to(model.penalty, model.shape), indices)
    padding = (indices == x.size).astype(H.dtype)
    bread = inverse(H / scale + jnp.diag(padding))
    u = model.linear_predictor(pred)
    if sandwich:
        scores = model.loss.derivative(u, model.y) ** 2
        scores = scores if model.weights is None else model.weights * scores
        columns = model.design.columns(indices)
        meat = matmul(columns * scores, columns.T)
    else:
        meat = _dispersion(model, u, support) * (H - jnp.diag(ridge)) / scale
    variances = jnp.diagonal(matmul(bread, matmul(meat, bread)))
    return support.scatter(jnp.sqrt(variances), indices)


def _weighted_scores(objective: Objective) -> LinearModel:
    """The objective, prepared, which is a sum over samples of one output."""
    if isinstance(objective, LinearModel):
        model = objective.prepare()
        if len(model.pred_shape) == 1 and model.loss.is_separable and model.loss.is_smooth:
            return model
    raise ValueError(
        "objective must be a linear model of one output, a sum over samples of a smooth loss, for a sandwich; got "
        f"{type(objective).__name__}"
    )


def _dispersion(model: LinearModel, u: Array, support: Support) -> Array:
    """phi."""
    free = _num_samples(model) * (u.size // model.num_samples) - support.size.astype(u.dtype)
    if isinstance(model.loss, SquaredLoss | SquaredNormLoss):
        squares = (u - model.y) ** 2
    elif isinstance(model.loss, GammaLoss):
        squares = jnp.expm1(jnp.log(model.y) - u) ** 2
    else:
        return jnp.ones((), u.dtype)
    squares = squares.reshape(model.num_samples, -1)
    return jnp.sum(squares if model.weights is None else model.weights[:, None] * squares) / free
