"""Axiotis & Sviridenko 2020: the figures and tables of the paper, in its order."""

from experiments.axiotis2020 import loss_against_sparsity, planted_pair, stuck, tradeoff
from experiments.common.claims import Claim, Paper, not_run

PAPER = Paper(
    "Axiotis & Sviridenko, Sparse Convex Optimization via Adaptively Regularized Hard Thresholding (2020)",
    [
        tradeoff.TABLE_1,
        planted_pair.SECTION_5_1,
        stuck.LEMMA_5_2,
        loss_against_sparsity.FIGURE_1,
        loss_against_sparsity.FIGURE_2,
        loss_against_sparsity.FIGURE_3,
        loss_against_sparsity.FIGURE_4,
        not_run(
            "Table 2",
            Claim(
                "lists the sizes of the data sets",
                "no claim: what differs is said at Figures 1 to 4",
            ),
        ),
    ],
)
