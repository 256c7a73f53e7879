"""The axes of a phase diagram as compressed sensing draws it, undersampling against sparsity.

    delta = n / d,    rho = K / n

Where l1 minimisation succeeds in it: :func:`jaxht.baselines.l1_transition`.

Source: Donoho & Tanner, Proceedings of the IEEE 98 (2010) 913-924.
"""

from jaxht.planted.phase_diagram import num_measurements, num_nonzeros

__all__ = ["num_measurements", "num_nonzeros"]
