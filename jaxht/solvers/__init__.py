"""One algorithm, or one family, a file."""

from jaxht.solvers.alps import ALPS, FIHT
from jaxht.solvers.arht import ARHT
from jaxht.solvers.cgiht import CGIHT
from jaxht.solvers.cosamp import CoSaMP, GraSP, SubspacePursuit
from jaxht.solvers.diht import DIHT, SDIHT
from jaxht.solvers.exchange import OMPR, ExhaustiveLocalSearch
from jaxht.solvers.exhaustive_search import ExhaustiveSearch
from jaxht.solvers.foba import FoBa
from jaxht.solvers.hsght import HSGHT
from jaxht.solvers.htp import HTP, PHT
from jaxht.solvers.iht import IHT
from jaxht.solvers.iterate import Counts, Info, Iterate, evaluate
from jaxht.solvers.local_search import LocalSearch
from jaxht.solvers.niht import NIHT
from jaxht.solvers.omp import OLS, OMP
from jaxht.solvers.saga import HTSAGA
from jaxht.solvers.sght import SGHT
from jaxht.solvers.solver import Solver
from jaxht.solvers.status import Status
from jaxht.solvers.svrg import HTSVRG, SVRGHT

__all__ = [
    "ALPS",
    "ARHT",
    "CGIHT",
    "DIHT",
    "FIHT",
    "HSGHT",
    "HTP",
    "HTSAGA",
    "HTSVRG",
    "IHT",
    "NIHT",
    "OLS",
    "OMP",
    "OMPR",
    "PHT",
    "SDIHT",
    "SGHT",
    "SVRGHT",
    "CoSaMP",
    "Counts",
    "ExhaustiveLocalSearch",
    "ExhaustiveSearch",
    "FoBa",
    "GraSP",
    "Info",
    "Iterate",
    "LocalSearch",
    "Solver",
    "Status",
    "SubspacePursuit",
    "evaluate",
]
