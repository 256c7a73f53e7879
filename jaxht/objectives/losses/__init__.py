"""Scalar losses l(u; y) of a linear prediction u = a.x for a target y, with the derivatives that
solvers use.

loss                      l(u; y)                                         l'' at most    labels
SquaredLoss               (u - y)^2 / 2                                   1              real
HuberLoss(delta)          that for |u - y| <= delta, linear beyond        1              real
LogisticLoss(scale)       log(1 + exp(-s y u))                            s^2 / 4        -1, +1
SquaredHingeLoss          max(0, 1 - y u)^2 / 2                           1              -1, +1
SmoothedHingeLoss(gamma)  0, (1 - y u)^2 / (2 gamma), 1 - y u - gamma/2   1 / gamma      -1, +1
HingeLoss                 max(0, 1 - y u)                                 not smooth     -1, +1
OneSidedLoss              max(0, -y u)                                    not smooth     -1, +1
PoissonLoss               exp(u) - y u                                    not bounded    counts
GammaLoss                 y exp(-u) + u                                   not bounded    positive
SoftmaxLoss               logsumexp(u) - u_y, u in R^c                    1 / 2          0 ... c - 1
SquaredNormLoss           ||u - y||^2 / 2, u in R^c                       1              R^c
OrdinalLoss               of all samples: that of ordered classes         1 / 2          0 ... c - 1
CoxLoss                   of all samples: the partial likelihood          not useful     times,
events

Those of one output have their conjugates l*(a; y) = sup_u (a u - l(u; y)), for the dual problem:

SquaredLoss               a^2 / 2 + a y                                   all a
HuberLoss(delta)          the same                                        |a| <= delta
LogisticLoss(scale)       b log b + (1 - b) log(1 - b), b = -a y / s      0 <= b <= 1
SquaredHingeLoss          y a + a^2 / 2                                   y a <= 0
SmoothedHingeLoss(gamma)  y a + gamma a^2 / 2                             -1 <= y a <= 0
HingeLoss                 y a                                             -1 <= y a <= 0
OneSidedLoss              0                                               -1 <= y a <= 0
PoissonLoss               m log m - m, m = a + y                          m >= 0
GammaLoss                 m log(m / y) - m, m = 1 - a                     m >= 0
"""

from jaxht.objectives.losses.classification import (
    HingeLoss,
    LogisticLoss,
    OneSidedLoss,
    SmoothedHingeLoss,
    SquaredHingeLoss,
)
from jaxht.objectives.losses.loss import Loss, ScalarLoss
from jaxht.objectives.losses.ordinal import OrdinalLoss
from jaxht.objectives.losses.outputs import SoftmaxLoss, SquaredNormLoss
from jaxht.objectives.losses.regression import GammaLoss, HuberLoss, PoissonLoss, SquaredLoss
from jaxht.objectives.losses.survival import CoxLoss, RiskSets

__all__ = [
    "CoxLoss",
    "GammaLoss",
    "HingeLoss",
    "HuberLoss",
    "LogisticLoss",
    "Loss",
    "OneSidedLoss",
    "OrdinalLoss",
    "PoissonLoss",
    "RiskSets",
    "ScalarLoss",
    "SmoothedHingeLoss",
    "SoftmaxLoss",
    "SquaredHingeLoss",
    "SquaredLoss",
    "SquaredNormLoss",
]
