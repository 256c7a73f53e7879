"""Hard-thresholding methods in JAX: optimisation under a sparsity or rank constraint."""

from jaxht import bounds as bounds
from jaxht import ensembles as ensembles
from jaxht import metrics as metrics
from jaxht import projections as projections
from jaxht import selection as selection
from jaxht import spectral as spectral
from jaxht import sweep as sweep
from jaxht import transforms as transforms
from jaxht.constraints import Sparse as Sparse
from jaxht.linear import design as design
from jaxht.objectives import LeastSquares as LeastSquares
from jaxht.objectives import Logistic as Logistic
from jaxht.solve import Result as Result
from jaxht.solve import Stop as Stop
from jaxht.solve import solve as solve
from jaxht.solve import trace as trace
from jaxht.solvers import HTP as HTP
from jaxht.solvers import IHT as IHT
from jaxht.solvers import NIHT as NIHT
from jaxht.status import Status as Status
from jaxht.support import Support as Support

__version__ = "0.1.0"
