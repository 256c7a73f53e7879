"""Guarantees of the papers as functions: how much thresholding expands an error, and when a method
must converge.

    k, K       sparsity of the iterates and of the target, k >= K (AS20: s, s*; YLZ18: k, kbar)
    L, alpha   restricted smoothness and strong convexity (YLZ18: M, m; ZYF18: l, rho),
               kappa = L / alpha
    eta        step size
    nu         expansion of hard thresholding: ||H_k(b) - x||^2 <= nu ||b - x||^2 for every
               K-sparse x

Arguments are scalars or arrays that broadcast; they may be traced, and are promoted to one floating
dtype, which is that of the results. A contraction factor of 1 or more, `inf` included, means that
its theorem promises nothing. Sparsities are the real numbers of the formulas: round up. Python
numbers out of range raise ValueError; arrays and traced values are not inspected.

Sources: SL18 Shen & Li 2018; YLZ18 Yuan, Li & Zhang 2018; ZYF18 Zhou, Yuan & Feng 2018; AS20
Axiotis & Sviridenko 2020.
"""

from jaxht.planted.bounds import (
    CLASSICAL_EXPANSION,
    GraHTPPair,
    HSGHTParameters,
    HTSVRGParameters,
    arht_sparsity,
    cosamp_rip,
    expansion,
    expansion_jain,
    grahtp_factors,
    grahtp_relaxed_factors,
    grahtp_relaxed_sparsity,
    hsght_parameters,
    htsvrg_parameters,
    htsvrg_rate,
    iht_rip,
    num_steps,
    ompr_excess,
    ompr_rip,
    relaxed_sparsity,
)

__all__ = [
    "CLASSICAL_EXPANSION",
    "GraHTPPair",
    "HSGHTParameters",
    "HTSVRGParameters",
    "arht_sparsity",
    "cosamp_rip",
    "expansion",
    "expansion_jain",
    "grahtp_factors",
    "grahtp_relaxed_factors",
    "grahtp_relaxed_sparsity",
    "hsght_parameters",
    "htsvrg_parameters",
    "htsvrg_rate",
    "iht_rip",
    "num_steps",
    "ompr_excess",
    "ompr_rip",
    "relaxed_sparsity",
]
