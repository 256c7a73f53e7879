"""The axes of a phase diagram as compressed sensing draws it, undersampling against sparsity, and
where l1 succeeds.

    delta = n / d,    rho = K / n

Source: Donoho & Tanner, Proceedings of the IEEE 98 (2010) 913-924.
"""

from jaxht.planted.phase_diagram import l1_transition, num_measurements, num_nonzeros

__all__ = ["l1_transition", "num_measurements", "num_nonzeros"]
