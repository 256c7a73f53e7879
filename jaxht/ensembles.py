"""Random planted problems: designs, signals and responses, and `planted`, which puts them together.

Pure functions of an explicit PRNG key. The sizes n, d and c are static; everything else (K,
correlation, condition number, noise level, ...) is a traced number: one compile serves a phase
diagram, and `jax.vmap` runs over any of them.

    design(key, n, d, ...)   -> A, shape (n, d)
    signal(key, d, K, ...)   -> x, shape (d,); row_signal(key, d, c, K) of shape (d, c)
    response(key, u, ...)    -> y, shape of u = Ax

Designs are gaussian, rademacher, sparse_columns, toeplitz, with_spectrum, conditioned and
partial_dct, and as operators random_convolution, spread_spectrum, and random rows of
:mod:`jaxht.operators`: partial_dct_operator, partial_dft_operator and partial_hadamard_operator.
Signals are gaussian_signal, sign_signal, uniform_signal, decaying_signal, power_law_signal,
significant_signal, row_signal and, on trees, tree_signal; responses gaussian_noise, noise_at_snr and logistic_labels.

`dtype` is that of the result, real or complex: `gaussian(key, n, d, dtype=complex)`. Complex normal
numbers have independent parts of variance 1/2, and what has signs has random phases. A key draws
other bits in float32 than in float64. Signals have exactly K nonzeros on a uniformly random
support; for one key a larger K only adds nonzeros. Sources: SL18 Shen & Li 2018; YLZ18 Yuan, Li &
Zhang 2018; YLW20 Yuan et al. 2020.
"""

from jaxht.planted.designs import (
    conditioned,
    gaussian,
    partial_dct,
    partial_dct_operator,
    partial_dft_operator,
    partial_hadamard_operator,
    rademacher,
    random_convolution,
    sparse_columns,
    spread_spectrum,
    toeplitz,
    with_spectrum,
)
from jaxht.planted.ensembles import (
    PlantedProblem,
    gaussian_noise,
    gaussian_rows,
    graph_precision,
    logistic_labels,
    low_rank_entries,
    mask_rows,
    noise_at_snr,
    noise_target,
    planted,
    random_graph,
    sigma_for_snr,
)
from jaxht.planted.signals import (
    decaying_signal,
    gaussian_signal,
    power_law_signal,
    row_signal,
    sign_signal,
    significant_signal,
    tree_signal,
    uniform_signal,
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
    "noise_at_snr",
    "noise_target",
    "partial_dct",
    "partial_dct_operator",
    "partial_dft_operator",
    "partial_hadamard_operator",
    "planted",
    "power_law_signal",
    "rademacher",
    "random_convolution",
    "random_graph",
    "row_signal",
    "sigma_for_snr",
    "sign_signal",
    "significant_signal",
    "sparse_columns",
    "spread_spectrum",
    "toeplitz",
    "tree_signal",
    "uniform_signal",
    "with_spectrum",
]
