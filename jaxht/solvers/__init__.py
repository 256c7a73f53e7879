"""One algorithm, or one family, a file."""

from jaxht.solvers.cosamp import CoSaMP as CoSaMP
from jaxht.solvers.cosamp import GraSP as GraSP
from jaxht.solvers.cosamp import SubspacePursuit as SubspacePursuit
from jaxht.solvers.htp import HTP as HTP
from jaxht.solvers.htp import PHT as PHT
from jaxht.solvers.iht import IHT as IHT
from jaxht.solvers.niht import NIHT as NIHT
