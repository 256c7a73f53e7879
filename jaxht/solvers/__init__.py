"""One algorithm, or one family, a file."""

from jaxht.solvers.arht import ARHT as ARHT
from jaxht.solvers.cosamp import CoSaMP as CoSaMP
from jaxht.solvers.cosamp import GraSP as GraSP
from jaxht.solvers.cosamp import SubspacePursuit as SubspacePursuit
from jaxht.solvers.diht import DIHT as DIHT
from jaxht.solvers.diht import SDIHT as SDIHT
from jaxht.solvers.exchange import OMPR as OMPR
from jaxht.solvers.exchange import ExhaustiveLocalSearch as ExhaustiveLocalSearch
from jaxht.solvers.foba import FoBa as FoBa
from jaxht.solvers.hsght import HSGHT as HSGHT
from jaxht.solvers.htp import HTP as HTP
from jaxht.solvers.htp import PHT as PHT
from jaxht.solvers.iht import IHT as IHT
from jaxht.solvers.iterate import Counts as Counts
from jaxht.solvers.iterate import Iterate as Iterate
from jaxht.solvers.iterate import evaluate as evaluate
from jaxht.solvers.local_search import LocalSearch as LocalSearch
from jaxht.solvers.niht import NIHT as NIHT
from jaxht.solvers.omp import OLS as OLS
from jaxht.solvers.omp import OMP as OMP
from jaxht.solvers.saga import HTSAGA as HTSAGA
from jaxht.solvers.sght import SGHT as SGHT
from jaxht.solvers.solver import Solver as Solver
from jaxht.solvers.status import Status as Status
from jaxht.solvers.svrg import HTSVRG as HTSVRG
from jaxht.solvers.svrg import SVRGHT as SVRGHT
