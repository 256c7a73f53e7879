"""The five papers in ten lines: what holds, what does not, and what follows for those who build on
them.

Every line names what it rests on: a section of a page, and words of that section. A test looks them
up, so that a result that changes them asks for another line.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Support(NamedTuple):
    """What a line rests on.

    Attributes:
        paper: such as "shen2018".
        heading: of a section.
        words: that stand in it on the page: a verdict with its claim, or numbers.
    """

    paper: str
    heading: str
    words: Sequence[str]


class Line(NamedTuple):
    """A line, and what it rests on."""

    text: str
    rests: Sequence[Support]


SHEN, ZHOU, YUAN, AXIOTIS, DUAL = "shen2018", "zhou2018", "yuan2018", "axiotis2020", "yuan2020"
LINES = [
    Line(
        "**Shen & Li, measurements.** HT-SVRG recovers 95 % of the signals on the printed line, but of 16-sparse ones 39 % at "
        "n = 175, not 80 %. PGD needs as few measurements as IHT or fewer: take its k = 9K and $2/\\sigma_{\\max}^2$ for η.",
        [
            Support(
                SHEN, "Figure 3", ["$n=1.72_{1.59}^{1.79}\\,K\\,\\ln{256}+34_{31}^{48}$ | *holds*"]
            ),
            Support(SHEN, "Figure 2", ["80 % | 38.9 % [20.3, 61.4] | *does not hold*"]),
            Support(
                SHEN, "Figure 1", ["fewer at 6 of 11 sparsities, more at 0", "*holds*, 6 of 6"]
            ),
        ],
    ),
    Line(
        "**Shen & Li, step sizes.** η, m and k act on HT-SVRG as is said. On the digits with 10 pixels its rule for η gives "
        "67.6 % of accuracy, the longer step printed for it, on pixels in [0, 1], 94.5 %: choose η by the objective.",
        [
            Support(SHEN, "Figure 4", ["| signals are not recovered", "*holds*, 2 of 2"]),
            Support(SHEN, "Figures 7 and 8", ["94.5 % with k = 10", "about 10⁻³"]),
            Support(SHEN, "Figures 7 and 8, the step size of the rule", ["67.6 % with k = 10"]),
        ],
    ),
    Line(
        "**Zhou, Yuan & Feng.** HSG-HT and AHSG-HT take much fewer thresholdings than SG-HT, many more than FG-HT. "
        "Within a pass they are never much faster; after 10 to 50 both are often lowest on text, HSG-HT on MNIST, both seldom by rank.",
        [
            Support(
                ZHOU,
                "Figure 1",
                [
                    "SG-HT and SVRG-HT | not printed | note 3 | *holds*, 60 of 60",
                    "*does not hold*, 0 of 20",
                    "FG-HT 5, HSG-HT 602",
                ],
            ),
            Support(ZHOU, "Figure 2 (a), MNIST", ["HSG-HT 10 of 15, AHSG-HT 0 of 15"]),
            Support(ZHOU, "Figure 2 (a), news20", ["HSG-HT 6 of 9, AHSG-HT 6 of 9"]),
            Support(ZHOU, "Figure 2 (b)", ["*does not hold*, 16 of 90"]),
        ],
    ),
    Line(
        "**Yuan, Li & Zhang, theory.** The contraction factors are as described, but for a constant: that of FGraHTP "
        "is below 1 up to a condition number of 1.271, not 1.26.",
        [
            Support(
                YUAN,
                "Figure 1",
                [
                    "$\\mu_1 > \\mu_2$ from there on | *holds*",
                    "up to M/m = 1.271",
                    "*holds in part*, 1 of 2",
                ],
            )
        ],
    ),
    Line(
        "**Yuan, Li & Zhang, supports.** With the step of the theory GraHTP recovers fewer than FoBa (48 and 64 % in "
        "linear regression); with a long step that is halved until f falls it recovers more (69 %): use backtracking.",
        [
            Support(
                YUAN,
                "Figure 2",
                [
                    "mean over n and k: 47.8 ± 0.3 %, best of the others FoBa 64.3",
                    "GraHTP 68.7 ± 0.3 % with η of $256/M_1$",
                ],
            )
        ],
    ),
    Line(
        "**Yuan, Li & Zhang, graphs.** With 100 samples GraHTP finds edges better than GLasso at p = 30 and 60, worse at 120 "
        "and 200, where its matrices are farther off as well: take GLasso there. Table 4 has 26 of its genes only.",
        [
            Support(
                YUAN,
                "Figure 6",
                [
                    "p = 60: 0.663 ± 0.006, best of the others FoBa 0.643",
                    "p = 120: 0.366 ± 0.011, best of the others GLasso 0.433",
                    "p = 120: GraHTP 41.47 ± 0.24, with the k of least error 41.07 ± 0.25, relaxed 37.41 ± 0.24, GLasso 34.46",
                    "p = 60: GraHTP 0.66 ± 0.01, with its best k 0.69 ± 0.00, GLasso 0.45",
                    "p = 200: 0.178 ± 0.018, best of the others GLasso 0.383",
                ],
            ),
            Support(YUAN, "Table 4", ["with 26 genes, not 113 of 22,283: not comparable"]),
        ],
    ),
    Line(
        "**Axiotis & Sviridenko, losses.** ARHT is below OMP and OMPR where they are more than 1 % apart, but for one k. ELS is "
        "nearly as good in 6 % of the time or less, and with 50 more starts nowhere above it: begin with ELS.",
        [
            Support(
                AXIOTIS,
                "Figure 1",
                [
                    "*holds*, 40 of 40",
                    "*holds in part*, 33 of 38",
                    "cal housing: 0.061",
                    "at 0 from all",
                ],
            ),
            Support(AXIOTIS, "Figure 3", ["*holds in part*, 25 of 26"]),
            Support(
                AXIOTIS,
                "Figure 4",
                ["*holds*, 28 of 28", "*holds*, 35 of 35", "letter: 0.01 "],
            ),
        ],
    ),
    Line(
        "**Axiotis & Sviridenko, bounds.** The lower bounds come out as proved: OMPR stays far above the optimum where "
        "ARHT reaches it, and none of the greedy methods, ARHT included, finds the planted pair.",
        [
            Support(
                AXIOTIS, "Lemma 5.2", ["0.233 at $k = 256$", "ARHT reaches $f(x^*)$ from k = 44 on"]
            ),
            Support(
                AXIOTIS,
                "Section 5.1",
                ["selected in 0 | *holds*, 3 of 3", "in 0 of 560 runs", "in 0 of 280 runs"],
            ),
        ],
    ),
    Line(
        "**Yuan et al. 2020, duality.** At the largest printed penalty the gap is zero for about a fifth of our problems, for nearly "
        "all at 50 times that. On ill-conditioned ridge DIHT ends below IHT in all cells, and about as low as HTP.",
        [
            Support(
                DUAL, "Figure 1, other values of w*", ["22 % at 20", "16 % at 20", "98 % at 1000"]
            ),
            Support(
                DUAL,
                "Figure 4",
                [
                    "than IHT: lower at 18, higher at 0 of 18 cells",
                    "than HTP: lower at 6, higher at 2",
                ],
            ),
        ],
    ),
    Line(
        "**Yuan et al. 2020, speed.** On smaller data DIHT and SDIHT are first to 99.99 % of the decrease in all cases, to equal "
        "test error in 16 of 72. SDIHT mostly takes fewer epochs than DIHT to equal gaps, but more time to equal loss.",
        [
            Support(
                DUAL,
                "Figures 5 to 7",
                [
                    "*does not hold*, 10 of 48",
                    "| 500,000 and 197,641 (§5.2.2) | 20,242 and 3507 |",
                    "DIHT faster than all primal solvers in 4 of 4 cases",
                    "SDIHT needs fewer in 10 of 12 cases",
                    "SDIHT faster in 0 of 4 cases, by a factor of 0.15",
                ],
            ),
            Support(
                DUAL,
                "Figures 8 to 10",
                [
                    "*does not hold*, 6 of 24",
                    "DIHT faster than all primal solvers in 2 of 2 cases",
                    "SDIHT needs fewer in 6 of 6 cases",
                ],
            ),
        ],
    ),
]


def write(link: Callable[[str, str], str]) -> str:
    """Return the lines in Markdown; link: (paper, heading) -> the link to a section."""
    rows = (
        f"{number}. {line.text} ({', '.join(link(of.paper, of.heading) for of in line.rests)})"
        for number, line in enumerate(LINES, 1)
    )
    return "\n".join(rows) + "\n"
