"""Yuan, Li & Zhang 2018: the figures and tables of the paper, in its order."""

from experiments.common.claims import Claim, Paper, not_run
from experiments.yuan2018 import (
    against_penalty,
    against_sparsity,
    contraction,
    precision_matrices,
    support_recovery,
    tumour_classification,
)

THEORY = "a table of theory: nothing to run"

PAPER = Paper(
    "Yuan, Li & Zhang, Gradient Hard Thresholding Pursuit, JMLR 18 (2018)",
    [
        not_run(
            "Table 1",
            Claim(
                "only these results cover any target, need no restricted isometry for sparse ones, and recover "
                "supports",
                THEORY,
            ),
        ),
        not_run(
            "Table 2",
            Claim(
                "the condition on the least nonzero in Theorem 8 is no stronger than in Corollaries 3 and 7",
                f"{THEORY}; `jaxht.bounds` has the factors and sparsities of Theorems 2 and 5",
            ),
        ),
        contraction.FIGURE_1,
        support_recovery.FIGURE_2,
        support_recovery.FIGURE_3,
        not_run(
            "Table 3",
            Claim(
                "gives the sizes of the data sets of Figures 4 and 5",
                "no claim: sizes of data sets, of which none is to be had as it was",
                printed="gisette, breast cancer, rcv1.binary, news20.binary",
            ),
        ),
        against_sparsity.FIGURE_4,
        against_penalty.FIGURE_5,
        precision_matrices.FIGURE_6,
        tumour_classification.TABLE_4,
    ],
)
