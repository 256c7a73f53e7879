"""The experiments, one module each: ``shen2018.stages`` in a configuration is
``experiments/shen2018/stages.py``."""

import importlib
from typing import Any, Protocol, cast

from matplotlib.figure import Figure
from xarray import Dataset

from experiments.common.config import BaseConfig
from experiments.common.session import Session


class Experiment(Protocol):
    """The module of an experiment; the first line of its docstring is its summary."""

    Config: type[BaseConfig]  # the model of its configuration

    def run(self, config: Any, session: Session) -> Dataset:
        """Compute the results."""

    # An experiment whose results are many trials also has ``summarise(results, config)``: what its
    # figure shows. One whose numbers are compared with known ones has ``table(results, config)``,
    # a text that ``plot`` prints.

    def plot(self, results: Dataset, config: Any) -> Figure:
        """Draw the figure from the results, or from what they are summarised to."""


PAPERS = {
    "shen2018": ("phase_transition", "success_curves", "measurements_needed", "stages", "digits"),
    "zhou2018": ("gap_against_cost",),
    "yuan2018": (
        *("contraction", "support_recovery", "against_sparsity", "against_penalty"),
        *("precision_matrices", "tumour_classification"),
    ),
    "axiotis2020": ("loss_against_sparsity", "stuck", "tradeoff", "planted_pair"),
    "yuan2020": ("gap", "conditioning", "against_primal", "time_to_accuracy"),
    "phase": ("delta_rho", "completion", "atlas"),
}
EXPERIMENTS = {
    f"{paper}.{name}": cast(Experiment, importlib.import_module(f"experiments.{paper}.{name}"))
    for paper, names in PAPERS.items()
    for name in names
}


def summarise(experiment: Experiment, results: Dataset, config: Any) -> Dataset:
    """Return what the figure of an experiment shows of its results: rates in place of trials."""
    return experiment.summarise(results, config) if hasattr(experiment, "summarise") else results
