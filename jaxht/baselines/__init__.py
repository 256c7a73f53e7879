"""What hard thresholding is compared with: l1 minimisation and approximate message passing, as
solvers of the same frame.

Their penalty or threshold takes the place of a constraint: pass ``Sparse(d)``, which leaves x free.
"""

from jaxht.baselines.amp import AMP
from jaxht.baselines.fista import FISTA
from jaxht.baselines.state_evolution import Transition, l1_transition, predict_amp

__all__ = ["AMP", "FISTA", "Transition", "l1_transition", "predict_amp"]
