"""What the experiments share: configurations, sessions, data, tasks, solvers, plots."""

from experiments.common import data as data
from experiments.common import plots as plots
from experiments.common import tasks as tasks
from experiments.common.config import BaseConfig as BaseConfig
from experiments.common.config import Count as Count
from experiments.common.config import Counts as Counts
from experiments.common.config import Failure as Failure
from experiments.common.config import Fractions as Fractions
from experiments.common.config import Names as Names
from experiments.common.config import Positive as Positive
from experiments.common.config import Positives as Positives
from experiments.common.session import Session as Session
from experiments.common.session import double_precision as double_precision
from experiments.common.solvers import SOLVERS as SOLVERS
from experiments.common.solvers import SolverNames as SolverNames
from experiments.common.tasks import timed as timed
