"""The experiments, one module each: ``shen2018.stages`` in a configuration is ``experiments/shen2018/stages.py``."""

import importlib
from typing import Any, Protocol, cast

from matplotlib.figure import Figure
from xarray import Dataset

from experiments.common.config import BaseConfig
from experiments.common.session import Session


class Experiment(Protocol):
    """The module of an experiment; the first line of its docstring is its summary.

    Attributes:
        Config: the model of its configuration.
    """

    Config: type[BaseConfig]

    def run(self, config: Any, session: Session) -> Dataset:
        """Compute the results."""

    def plot(self, results: Dataset, config: Any) -> Figure:
        """Draw the figure from the results as they were stored."""


NAMES = (
    "shen2018.phase_transition",
    "shen2018.success_curves",
    "shen2018.measurements_needed",
    "shen2018.stages",
    "shen2018.digits",
    "zhou2018.gap_against_cost",
    "yuan2018.contraction",
    "yuan2018.support_recovery",
    "yuan2018.against_sparsity",
    "yuan2018.against_penalty",
    "yuan2018.precision_matrices",
    "yuan2018.tumour_classification",
    "axiotis2020.loss_against_sparsity",
    "axiotis2020.stuck",
    "yuan2020.gap",
    "yuan2020.conditioning",
    "yuan2020.against_primal",
    "yuan2020.time_to_accuracy",
    "phase.delta_rho",
    "phase.completion",
)
EXPERIMENTS = {name: cast(Experiment, importlib.import_module(f"experiments.{name}")) for name in NAMES}


def summary(experiment: Experiment) -> str:
    """Return the first line of its docstring."""
    return str(experiment.__doc__).partition("\n")[0]
