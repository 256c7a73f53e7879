"""The Monte-Carlo engine: many random problems over a grid of cells, as labelled arrays."""

from jaxht.sweep._provenance import provenance as provenance
from jaxht.sweep.compilation import clear_cache as clear_cache
from jaxht.sweep.engine import Executor as Executor
from jaxht.sweep.engine import run as run
from jaxht.sweep.grid import stable_hash as stable_hash
from jaxht.sweep.progress import Progress as Progress
from jaxht.sweep.progress import progress_bar as progress_bar
from jaxht.sweep.scheduler import TrialTimeout as TrialTimeout
from jaxht.sweep.statistics import fit_line as fit_line
from jaxht.sweep.statistics import success_rate as success_rate
from jaxht.sweep.statistics import transition as transition
from jaxht.sweep.store import StoreError as StoreError
from jaxht.sweep.store import export as export
from jaxht.sweep.store import is_kept as is_kept
from jaxht.sweep.store import load as load
from jaxht.sweep.store import save as save
from jaxht.sweep.trials import Cell as Cell
from jaxht.sweep.trials import Ensemble as Ensemble
from jaxht.sweep.trials import Method as Method
from jaxht.sweep.trials import Metric as Metric
from jaxht.sweep.trials import Recovery as Recovery
from jaxht.sweep.trials import Run as Run
from jaxht.sweep.trials import Trial as Trial
