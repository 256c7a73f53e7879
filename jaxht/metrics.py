"""How well a solution matches the planted truth: errors, recovery, support scores, and intervals
for success rates.

Except `wilson_interval`, which is NumPy on the host, all are pure functions of two arrays of one
shape: they return a scalar, run under jit, and go through batches by `jax.vmap`. The support of x
is where it is not 0. A solution with a NaN or infinite entry has failed: its errors are NaN or
infinite, its successes False, its scores 0. All cost one pass over the entries, `exact_recovery` a
selection of the largest too. Sources: SL18 Shen & Li 2018; YLZ18 Yuan, Li & Zhang 2018.
"""

from jaxht.planted.metrics import (
    estimation_error,
    exact_recovery,
    f_score,
    matthews_correlation,
    precision,
    recall,
    relative_error,
    relaxed_recovery,
    sensitivity,
    specificity,
    success,
    wilson_interval,
)

__all__ = [
    "estimation_error",
    "exact_recovery",
    "f_score",
    "matthews_correlation",
    "precision",
    "recall",
    "relative_error",
    "relaxed_recovery",
    "sensitivity",
    "specificity",
    "success",
    "wilson_interval",
]
