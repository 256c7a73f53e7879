"""The best fit on the support of a solution that a penalty has shrunk."""

import jax.numpy as jnp

from jaxht._typing import Array, Numeric
from jaxht.constraints import Sparse, Support
from jaxht.linalg.selection import k_largest_mask
from jaxht.objectives.linear_model import LinearModel
from jaxht.objectives.objective import cast_point, check_linear_model
from jaxht.subproblems import Refit, refit

__all__ = ["debias"]


def debias(
    objective: LinearModel, x: Array, k: Numeric | None = None, *, k_max: int | None = None
) -> Refit:
    r"""Minimise the objective, without a penalty, on the support of the k largest entries of x:
    the refit of the lasso and of basis pursuit.

    .. math::
        \arg\min \{ f(z) : z_i = 0 \text{ for } i \notin S \}, \qquad
        S = \{ i : x_i \ne 0 \text{ is one of the k largest of } |x| \}

    The penalty of the lasso shrinks the entries that it selects, and ADMM leaves small entries off
    the support: with the right k, or with the support alone, the refit has neither error. On a
    support that is wrong it is the best fit there, and need not be nearer to the truth than x.

    Args:
        objective: f, a linear model of one output: least squares, logistic and so on.
        x: a solution, (d,), real or complex.
        k: at most so many entries are kept, an integer in [0, d], traced if k_max is given; more
            than n count as n. None: all that are not 0, at most n.
        k_max: static bound on k, an int; None: k.

    Returns:
        :class:`jaxht.extend.Refit`: x, exactly 0 off the support, its prediction, and whether there
        is one minimiser.

    Raises:
        ValueError: for objectives other than linear models of one output, a k that is out of range,
            and a traced k without k_max.

    Cost: a selection, and a refit on gathered columns: of least squares ``n k_max^2 + k_max^3 / 3``,
    of other losses as much for each Newton step.

    Source: Belloni & Chernozhukov 2013 (least squares after the lasso); Candès & Tao 2007, §4, for
    the Dantzig selector.

    Example:
        >>> import jax, jax.numpy as jnp, jaxht
        >>> from jaxht.baselines import FISTA, debias
        >>> A = jaxht.ensembles.gaussian(jax.random.key(0), 50, 100)
        >>> f = jaxht.LeastSquares(A, A @ jnp.zeros(100).at[:3].set(1.0), mean=False)
        >>> x = jaxht.solve(f, jaxht.Sparse(100), FISTA(0.1)).x
        >>> z = debias(f, x, 3).x
        >>> bool(jnp.max(jnp.abs(x[:3] - 1)) > 0.05), bool(jnp.max(jnp.abs(z[:3] - 1)) < 1e-5)
        (True, True)
    """
    objective = objective.prepare()
    check_linear_model("debias", objective)
    x = cast_point(x, objective)
    n, d = objective.design.shape
    if k is None:
        k = min(n, d)
    k_max = Sparse(k, k_max=k_max).prepare((d,)).k_max
    if k_max is None:
        raise ValueError("k_max must be given for debias where k is traced; got None")
    most = min(k_max, n)
    is_kept = k_largest_mask(jnp.abs(x), jnp.minimum(k, most)) & (x != 0)
    return refit(objective, Support(is_kept, k_max=most), x)
