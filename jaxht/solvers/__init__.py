"""One algorithm a file."""

from jaxht.solvers.htp import HTP as HTP
from jaxht.solvers.iht import IHT as IHT
from jaxht.solvers.niht import NIHT as NIHT
