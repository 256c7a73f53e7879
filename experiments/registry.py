"""The experiments, one row each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from xarray import Dataset

from experiments import (
    axiotis2020,
    axiotis2020_stuck,
    completion,
    phase,
    shen2018,
    shen2018_digits,
    shen2018_stages,
    yuan2018,
    yuan2018_lda,
    yuan2018_precision,
    yuan2018_real,
    yuan2020,
    yuan2020_gaps,
    yuan2020_real,
    zhou2018,
)
from experiments.config import Config
from experiments.session import Session


@dataclass(frozen=True)
class Experiment:
    """An experiment of a paper.

    Attributes:
        summary: one line.
        config: the model of its configuration.
        run: (config, session) -> results.
        plot: results as they were stored -> figure.
    """

    summary: str
    config: type[Config]
    run: Callable[[Any, Session], Dataset]
    plot: Callable[[Dataset], Figure]


EXPERIMENTS = {
    "shen2018.phase_transition": Experiment(
        "recovery of planted signals over (n, K)",
        shen2018.PhaseTransition,
        shen2018.phase_transition,
        shen2018.plot_phase_transition,
    ),
    "shen2018.measurements_needed": Experiment(
        "the number of measurements needed against K, with its line",
        shen2018.MeasurementsNeeded,
        shen2018.measurements_needed,
        shen2018.plot_measurements_needed,
    ),
    "shen2018.success_curves": Experiment(
        "recovery of planted signals against n and against K: sections of the phase diagram",
        shen2018.SuccessCurves,
        shen2018.phase_transition,
        shen2018.plot_success_curves,
    ),
    "shen2018.stages": Experiment(
        "the objective of HT-SVRG from stage to stage, for several k, m and step sizes",
        shen2018_stages.Stages,
        shen2018_stages.stages,
        shen2018_stages.plot_stages,
    ),
    "shen2018.digits": Experiment(
        "digits told apart by few pixels: weights, objective and accuracy",
        shen2018_digits.Digits,
        shen2018_digits.digits,
        shen2018_digits.plot_digits,
    ),
    "phase.delta_rho": Experiment(
        "recovery of planted signals over undersampling and sparsity, the solvers compared",
        phase.DeltaRho,
        phase.delta_rho,
        phase.plot_delta_rho,
    ),
    "phase.completion": Experiment(
        "matrix completion over the entries observed and the rank, the solvers compared",
        completion.Completion,
        completion.completion,
        completion.plot_completion,
    ),
    "yuan2018.contraction": Experiment(
        "contraction factors of GraHTP and FGraHTP, closed form",
        yuan2018.Contraction,
        yuan2018.contraction,
        yuan2018.plot_contraction,
    ),
    "yuan2018.support_recovery": Experiment(
        "exact and relaxed recovery of supports against the sample size, linear and logistic",
        yuan2018.SupportRecovery,
        yuan2018.support_recovery,
        yuan2018.plot_support_recovery,
    ),
    "yuan2018.against_sparsity": Experiment(
        "logistic regression on real data against sparsity: objective, test error and time",
        yuan2018_real.AgainstSparsity,
        yuan2018_real.against_sparsity,
        yuan2018_real.plot_against_sparsity,
    ),
    "yuan2018.against_penalty": Experiment(
        "logistic regression on real data against the l1 penalty: test error and time",
        yuan2018_real.AgainstPenalty,
        yuan2018_real.against_penalty,
        yuan2018_real.plot_against_penalty,
    ),
    "yuan2018.precision_matrices": Experiment(
        "sparse precision matrices: error, F-score of the graph and time against p",
        yuan2018_precision.PrecisionMatrices,
        yuan2018_precision.precision_matrices,
        yuan2018_precision.plot_precision_matrices,
    ),
    "yuan2018.tumour_classification": Experiment(
        "linear discriminant analysis by sparse precision matrices: specificity, sensitivity, correlation",
        yuan2018_lda.TumourClassification,
        yuan2018_lda.tumour_classification,
        yuan2018_lda.plot_tumour_classification,
    ),
    "yuan2020.time_to_accuracy": Experiment(
        "primal and dual solvers of support vector machines on real data: loss, time to equal test error, gap",
        yuan2020_real.TimeToAccuracy,
        yuan2020_real.time_to_accuracy,
        yuan2020_real.plot_time_to_accuracy,
    ),
    "axiotis2020.loss_against_sparsity": Experiment(
        "training loss of least squares and logistic regression against sparsity, on real data",
        axiotis2020.LossAgainstSparsity,
        axiotis2020.loss_against_sparsity,
        axiotis2020.plot_loss_against_sparsity,
    ),
    "axiotis2020.stuck": Experiment(
        "where replacement is stuck, and adaptive regularisation is not",
        axiotis2020_stuck.Stuck,
        axiotis2020_stuck.stuck,
        axiotis2020_stuck.plot_stuck,
    ),
    "yuan2020.gap": Experiment(
        "the duality gap of sparse ridge regression against the penalty and against the noise",
        yuan2020_gaps.Gap,
        yuan2020_gaps.gap,
        yuan2020_gaps.plot_gap,
    ),
    "yuan2020.conditioning": Experiment(
        "the duality gap of sparse ridge regression against the condition number",
        yuan2020_gaps.Conditioning,
        yuan2020_gaps.conditioning,
        yuan2020_gaps.plot_conditioning,
    ),
    "yuan2020.against_primal": Experiment(
        "DIHT against IHT and HTP on an ill-conditioned design: value and error against the sample size",
        yuan2020.AgainstPrimal,
        yuan2020.against_primal,
        yuan2020.plot_against_primal,
    ),
    "zhou2018.gap_against_cost": Experiment(
        "stochastic hard thresholding on real data: the gap against gradients of samples and thresholdings",
        zhou2018.GapAgainstCost,
        zhou2018.gap_against_cost,
        zhou2018.plot_gap_against_cost,
    ),
}
