"""What hard thresholding of k entries is compared with: l1 minimisation, approximate message passing
and thresholding at the noise, as solvers of the same frame.

Their penalty or threshold takes the place of a constraint: pass ``Sparse(d)``, which leaves x free.
"""

from jaxht.baselines.amp import AMP
from jaxht.baselines.basis_pursuit import BasisPursuit
from jaxht.baselines.debiasing import debias
from jaxht.baselines.embgamp import EMBGAMP
from jaxht.baselines.fista import FISTA
from jaxht.baselines.state_evolution import Transition, l1_transition, predict_amp
from jaxht.baselines.tuned import TunedIHT, tuned_sparsity

__all__ = [
    "AMP",
    "EMBGAMP",
    "FISTA",
    "BasisPursuit",
    "Transition",
    "TunedIHT",
    "debias",
    "l1_transition",
    "predict_amp",
    "tuned_sparsity",
]
