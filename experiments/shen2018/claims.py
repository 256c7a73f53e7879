"""Shen & Li 2018: the figures and tables of the paper, in its order."""

from experiments.common.claims import Claim, Paper, not_run
from experiments.shen2018 import (
    digits,
    measurements_needed,
    phase_transition,
    stages,
    success_curves,
)

PAPER = Paper(
    "Shen & Li, A Tight Bound of Hard Thresholding, JMLR 18 (2018)",
    [
        phase_transition.FIGURE_1,
        success_curves.FIGURE_2,
        measurements_needed.FIGURE_3,
        measurements_needed.FIGURE_3_PGD,
        stages.FIGURE_4,
        stages.FIGURE_5,
        not_run(
            "Figure 6",
            Claim("shows sample images of MNIST", "no claim: sample images of the data set"),
        ),
        digits.FIGURES_7_AND_8,
        digits.RULE,
    ],
)
