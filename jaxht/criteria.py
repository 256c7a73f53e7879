r"""Information criteria, by which a sparsity is chosen: the fit of a solution plus a price of its
size.

With L the likelihood at x, k the number of parameters, n of samples and d of candidates,

.. math::
    -2 \log L(x) + \mathrm{penalty}(k, n, d)

The least is the best. The likelihood is that of the loss: Gaussian of unknown variance for squared
errors, ``-2 log L = N log(RSS / N)`` for N targets; gamma of unknown shape, at the shape that fits
best; binomial, multinomial, proportional odds and Poisson for the logistic, softmax, ordinal and
Poisson losses, and the partial likelihood of :class:`jaxht.Cox`, twice their sum; each up to what
does not depend on x. A ridge is no part of it. Sample weights count how often a sample occurs. For
Cox n is the number of events (Volinsky & Raftery 2000).
"""

from jaxht.diagnostics.criteria import (
    Criterion,
    SparsityChoice,
    aic,
    bic,
    choose_k,
    deviance,
    ebic,
    gic,
)

__all__ = ["Criterion", "SparsityChoice", "aic", "bic", "choose_k", "deviance", "ebic", "gic"]
