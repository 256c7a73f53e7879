"""Zhou, Yuan & Feng 2018: the figures and tables of the paper, in its order."""

from experiments.common.claims import Claim, Paper, Section, not_run
from experiments.zhou2018.judging import (
    MUCH,
    SIMILAR,
    accelerated,
    batches_stay_small,
    decreases,
    fewer_than_stochastic,
    fewest,
    like_full,
    one_pass,
    runs,
    sharper,
)

ENOUGH = Claim(
    "small growth rates let HSG-HT iterate enough to lower the objective", runs(decreases)
)


def several_passes(config: str, heading: str, about: str) -> Section:
    """Return one half of Figure 2."""
    claims = [
        Claim("HSG-HT and AHSG-HT converge more sharply than the others", runs(sharper)),
        Claim("HSG-HT and AHSG-HT need fewer hard thresholdings than the others", runs(fewest)),
        Claim("their mini-batches stay smaller than the data set", runs(batches_stay_small)),
        ENOUGH,
    ]
    return Section(heading, config, claims, about)


RUNS = (
    "Step sizes, growths of batches and momenta are those with which a run ends lowest; the runs with them are of "
    "other seeds: their medians, in brackets the least and the most. A claim holds where it does for every seed."
)

PAPER = Paper(
    "Zhou, Yuan & Feng, Efficient Stochastic Gradient Hard Thresholding, NeurIPS 2018",
    [
        not_run(
            "Table 1",
            Claim(
                "HSG-HT and AHSG-HT have numbers of gradients and of thresholdings that do not depend on n, and "
                "AHSG-HT needs a smaller k",
                "complexities in theory: nothing to run; `jaxht.bounds.hsght_parameters` has the k, steps and "
                "batches of Theorems 1 to 3",
            ),
        ),
        Section(
            "Figure 1",
            "figure1",
            [
                Claim(
                    "within one pass HSG-HT and AHSG-HT converge significantly faster than the others",
                    runs(one_pass, lambda config: min(config.passes)),
                ),
                Claim(
                    "HSG-HT and AHSG-HT need about as many hard thresholdings as FG-HT",
                    runs(like_full),
                ),
                Claim(
                    "HSG-HT, AHSG-HT and FG-HT need much fewer hard thresholdings than SG-HT and SVRG-HT",
                    runs(fewer_than_stochastic),
                ),
                Claim(
                    "AHSG-HT converges more sharply than HSG-HT in hard thresholdings",
                    runs(accelerated),
                ),
                ENOUGH,
            ],
            f"{RUNS} Significantly faster, much fewer: by a factor of {MUCH:g}; about as many: at most {SIMILAR:g} "
            "times as many. News20 is in place of real-sim. Thresholdings are those of the whole budget, as SVRG-HT "
            "spends the first pass on its first gradient. The paper's Appendix E shows the same in more detail.",
        ),
        several_passes("figure2", "Figure 2 (a), MNIST", f"Softmax regression. {RUNS}"),
        several_passes("figure2_news20", "Figure 2 (a), news20", f"Softmax regression. {RUNS}"),
        several_passes(
            "figure2_rank",
            "Figure 2 (b)",
            f"Rank-constrained regression, on other data sets than the paper's and with lower ranks. {RUNS}",
        ),
    ],
)
