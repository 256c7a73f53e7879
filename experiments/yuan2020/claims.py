"""Yuan et al. 2020: the figures and tables of the paper, in its order."""

from experiments.common.claims import Claim, Paper, not_run
from experiments.yuan2020 import against_primal, conditioning, gap, time_to_accuracy

PAPER = Paper(
    "Yuan, Liu, Wang, Liu & Metaxas, Dual Iterative Hard Thresholding, JMLR 21 (2020)",
    [
        not_run("Table 1", Claim("lists the notation", "no claim: notation")),
        not_run(
            "Table 2",
            Claim(
                "DIHT and SDIHT need neither RIP conditions nor a relaxed sparsity, unlike the primal methods",
                "a comparison of theorems; Figures 3 and 4 are about its consequences",
            ),
            Claim(
                "the IFO complexity of DIHT is superior to that of GraSP, IHT and GraHTP where the restricted "
                "condition number is large",
                "a comparison of upper bounds up to constants: no run decides it",
            ),
            Claim(
                "that of SDIHT is comparable to SVR-GHT and, for small ε, superior to HSG-HT",
                "a comparison of upper bounds up to constants: no run decides it",
            ),
        ),
        gap.FIGURE_1,
        gap.FIGURE_1_SIGNALS,
        gap.FIGURE_2,
        conditioning.FIGURE_3,
        against_primal.FIGURE_4,
        time_to_accuracy.FIGURES_5_TO_7,
        time_to_accuracy.FIGURES_8_TO_10,
    ],
)
