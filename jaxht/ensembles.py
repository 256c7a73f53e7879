"""Random planted problems: designs, signals and responses, and `planted`, which puts them together.

Pure functions of an explicit PRNG key. The sizes n and d are static; everything else (K,
correlation, condition number, noise level, ...) is a traced number: one compile serves a phase
diagram, and `jax.vmap` runs over any of them.

    design(key, n, d, ...)   -> A, shape (n, d)
    signal(key, d, K, ...)   -> x, shape (d,)
    response(key, u, ...)    -> y, shape of u = Ax

Designs are gaussian, rademacher, partial_dct, toeplitz, with_spectrum and conditioned, and without a
matrix partial_dct_operator, random_convolution and spread_spectrum; signals
gaussian_signal, sign_signal, decaying_signal and significant_signal; responses gaussian_noise and
logistic_labels.

`dtype` is that of the result; a key draws other bits in float32 than in float64. Signals have
exactly K nonzeros on a uniformly random support; for one key a larger K only adds nonzeros.
Sources: SL18 Shen & Li 2018; YLZ18 Yuan, Li & Zhang 2018; YLW20 Yuan et al. 2020.
"""

from jaxht.planted.ensembles import (
    PlantedProblem,
    conditioned,
    decaying_signal,
    gaussian,
    gaussian_noise,
    gaussian_rows,
    gaussian_signal,
    graph_precision,
    logistic_labels,
    low_rank_entries,
    mask_rows,
    partial_dct,
    partial_dct_operator,
    planted,
    rademacher,
    random_convolution,
    random_graph,
    sigma_for_snr,
    sign_signal,
    significant_signal,
    spread_spectrum,
    toeplitz,
    with_spectrum,
)

__all__ = [
    "PlantedProblem",
    "conditioned",
    "decaying_signal",
    "gaussian",
    "gaussian_noise",
    "gaussian_rows",
    "gaussian_signal",
    "graph_precision",
    "logistic_labels",
    "low_rank_entries",
    "mask_rows",
    "partial_dct",
    "partial_dct_operator",
    "planted",
    "rademacher",
    "random_convolution",
    "random_graph",
    "sigma_for_snr",
    "sign_signal",
    "significant_signal",
    "spread_spectrum",
    "toeplitz",
    "with_spectrum",
]
