"""The Monte-Carlo engine: many random problems over a grid of cells, as labelled arrays."""

from jaxht.sweep._provenance import provenance
from jaxht.sweep.compilation import clear_cache
from jaxht.sweep.engine import Executor, run
from jaxht.sweep.grid import stable_hash
from jaxht.sweep.progress import Progress, progress_bar
from jaxht.sweep.protocol import Cell, Run, Trial
from jaxht.sweep.recovery import Ensemble, Method, Metric, Recovery
from jaxht.sweep.scheduler import TrialTimeout
from jaxht.sweep.statistics import fit_line, success_rate, transition
from jaxht.sweep.store import StoreError, export, is_kept, load, save

__all__ = [
    "Cell",
    "Ensemble",
    "Executor",
    "Method",
    "Metric",
    "Progress",
    "Recovery",
    "Run",
    "StoreError",
    "Trial",
    "TrialTimeout",
    "clear_cache",
    "export",
    "fit_line",
    "is_kept",
    "load",
    "progress_bar",
    "provenance",
    "run",
    "save",
    "stable_hash",
    "success_rate",
    "transition",
]
