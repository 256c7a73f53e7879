"""Guarantees of the papers as functions: how much thresholding expands an error, when a method must
converge, how fast, and how near to its target it comes.

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
Axiotis & Sviridenko 2020; YLW20 Yuan, Liu, Wang, Liu & Metaxas 2020.
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
from jaxht.planted.floors import (
    ARHTCounts,
    DIHTRate,
    GraHTPSupport,
    MinimizerSupport,
    StepInterval,
    arht_counts,
    arht_error,
    arht_tolerance,
    diht_linear_rate,
    diht_rate,
    grahtp_floors,
    grahtp_relaxed_floors,
    grahtp_steps,
    grahtp_support,
    hsght_floor,
    htsvrg_error,
    htsvrg_floor,
    htsvrg_updates,
    minimizer_support,
    ompr_steps,
    sparse_duality_gap,
)

__all__ = [
    "CLASSICAL_EXPANSION",
    "ARHTCounts",
    "DIHTRate",
    "GraHTPPair",
    "GraHTPSupport",
    "HSGHTParameters",
    "HTSVRGParameters",
    "MinimizerSupport",
    "StepInterval",
    "arht_counts",
    "arht_error",
    "arht_sparsity",
    "arht_tolerance",
    "cosamp_rip",
    "diht_linear_rate",
    "diht_rate",
    "expansion",
    "expansion_jain",
    "grahtp_factors",
    "grahtp_floors",
    "grahtp_relaxed_factors",
    "grahtp_relaxed_floors",
    "grahtp_relaxed_sparsity",
    "grahtp_steps",
    "grahtp_support",
    "hsght_floor",
    "hsght_parameters",
    "htsvrg_error",
    "htsvrg_floor",
    "htsvrg_parameters",
    "htsvrg_rate",
    "htsvrg_updates",
    "iht_rip",
    "minimizer_support",
    "num_steps",
    "ompr_excess",
    "ompr_rip",
    "ompr_steps",
    "relaxed_sparsity",
    "sparse_duality_gap",
]
