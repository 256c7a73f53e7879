"""Hard-thresholding methods in JAX: optimisation under a sparsity or rank constraint."""

from jaxht import bounds as bounds
from jaxht import ensembles as ensembles
from jaxht import metrics as metrics
from jaxht import projections as projections
from jaxht import selection as selection
from jaxht import spectral as spectral
from jaxht import sweep as sweep
from jaxht import transforms as transforms
from jaxht.constraints import Groups as Groups
from jaxht.constraints import Sparse as Sparse
from jaxht.linear import LinearOperator as LinearOperator
from jaxht.linear import design as design
from jaxht.objectives import Custom as Custom
from jaxht.objectives import Hinge as Hinge
from jaxht.objectives import Huber as Huber
from jaxht.objectives import LeastSquares as LeastSquares
from jaxht.objectives import Logistic as Logistic
from jaxht.objectives import MultiResponse as MultiResponse
from jaxht.objectives import Poisson as Poisson
from jaxht.objectives import SmoothedHinge as SmoothedHinge
from jaxht.objectives import Softmax as Softmax
from jaxht.objectives import SquaredHinge as SquaredHinge
from jaxht.optimality import Optimality as Optimality
from jaxht.optimality import optimality as optimality
from jaxht.path import path as path
from jaxht.solve import Result as Result
from jaxht.solve import Stop as Stop
from jaxht.solve import solve as solve
from jaxht.solve import trace as trace
from jaxht.solvers import ARHT as ARHT
from jaxht.solvers import HTP as HTP
from jaxht.solvers import IHT as IHT
from jaxht.solvers import NIHT as NIHT
from jaxht.solvers import OMP as OMP
from jaxht.solvers import OMPR as OMPR
from jaxht.solvers import PHT as PHT
from jaxht.solvers import CoSaMP as CoSaMP
from jaxht.solvers import ExhaustiveLocalSearch as ExhaustiveLocalSearch
from jaxht.solvers import FoBa as FoBa
from jaxht.solvers import GraSP as GraSP
from jaxht.solvers import SubspacePursuit as SubspacePursuit
from jaxht.status import Status as Status
from jaxht.support import Support as Support

__version__ = "0.1.0"
