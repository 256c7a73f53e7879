"""Zhou, Yuan & Feng 2018: the figures and tables of the paper, in its order."""

from experiments.common.claims import (
    NOT_PRINTED,
    Claim,
    Paper,
    Question,
    Reason,
    Section,
    Setting,
    not_run,
)
from experiments.zhou2018.judging import (
    MUCH,
    SIMILAR,
    accelerated,
    batches_stay_small,
    decreases,
    fewer_than_stochastic,
    fewest,
    like_full,
    long_run,
    one_pass,
    runs,
    settings_at_an_end,
    sharper,
)

UNPRINTED = f"{Reason.NOT_PRINTED}: step sizes, growths of batches, momenta"
ENOUGH = Claim(
    "small growth rates let HSG-HT iterate enough to lower the objective",
    runs(decreases),
    reason=UNPRINTED,
)


AT_AN_END = Question(
    "Which settings are the least or the most of their grid, so that better ones may lie beyond?",
    settings_at_an_end,
)
LONG_RUN = Question("Did the long run for $f^*$ converge?", long_run)


def settings(data: Setting, passes: str, optimum: str = "") -> list[Setting]:
    """What is set, for some data."""
    end = "FG-HT until x changes by 10⁻⁶ of itself (§5)"
    return [
        data,
        Setting("λ", "10⁻⁵ (Figures 1 and 2)", "{l2}"),
        Setting("passes over the data", passes, "{passes}"),
        Setting("step sizes", NOT_PRINTED, "1/L times one of {factors}"),
        Setting("first batch τ", "1 (§5)", "1"),
        Setting("growth of the batches", "small, exponential (§5)", "of {growth}"),
        Setting("momentum of AHSG-HT", NOT_PRINTED, "of {momentum}"),
        Setting("batches of SG-HT and SVRG-HT", NOT_PRINTED, "{batch_size}"),
        Setting("updates of a stage of SVRG-HT", NOT_PRINTED, "n times {stage}"),
        Setting("runs", NOT_PRINTED, "{num_seeds} seeds"),
        Setting("seeds by which settings are chosen", NOT_PRINTED, "{choice_seeds}, none of these"),
        Setting(
            "$f^*$",
            end,
            optimum or "least of all; FG-HT to {rtol}, {max_steps} steps, and again after a refit",
        ),
    ]


def several_passes(
    config: str, heading: str, about: str, data: Setting, optimum: str = ""
) -> Section:
    """Return one half of Figure 2."""
    claims = [
        Claim(
            "HSG-HT and AHSG-HT converge more sharply than the others",
            runs(sharper),
            reason=UNPRINTED,
        ),
        Claim(
            "HSG-HT and AHSG-HT need fewer hard thresholdings than the others",
            runs(fewest),
            reason=UNPRINTED,
        ),
        Claim(
            "their mini-batches stay smaller than the data set",
            runs(batches_stay_small),
            reason=UNPRINTED,
        ),
        ENOUGH,
    ]
    set_to = settings(data, "50 (Figure 2)", optimum)
    return Section(heading, config, claims, about, [AT_AN_END, LONG_RUN], set_to)


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
                    reason=UNPRINTED,
                ),
                Claim(
                    "HSG-HT and AHSG-HT need about as many hard thresholdings as FG-HT",
                    runs(like_full),
                    reason=UNPRINTED,
                ),
                Claim(
                    "HSG-HT, AHSG-HT and FG-HT need much fewer hard thresholdings than SG-HT and SVRG-HT",
                    runs(fewer_than_stochastic),
                    reason=UNPRINTED,
                ),
                Claim(
                    "AHSG-HT converges more sharply than HSG-HT in hard thresholdings",
                    runs(accelerated),
                    reason=UNPRINTED,
                ),
                ENOUGH,
            ],
            f"{RUNS} Significantly faster, much fewer: by a factor of {MUCH:g}; about as many: at most {SIMILAR:g} "
            "times as many. News20 is in place of real-sim. Thresholdings are those of the whole budget, as SVRG-HT "
            "spends the first pass on its first gradient. The paper's Appendix E shows the same in more detail.",
            [AT_AN_END, LONG_RUN],
            settings(
                Setting(
                    "data and k",
                    "rcv1, 200; real-sim, 500 (Figure 1)",
                    "another sample of rcv1, news20; {k}",
                ),
                "1 (Figure 1)",
            ),
        ),
        several_passes(
            "figure2",
            "Figure 2 (a), MNIST",
            f"Softmax regression. {RUNS}",
            Setting("data and k", "MNIST, 200 (Figure 2)", "MNIST, {k}"),
        ),
        several_passes(
            "figure2_news20",
            "Figure 2 (a), news20",
            f"Softmax regression. {RUNS}",
            Setting("data and k", "news20, 2000 (Figure 2)", "news20, rebuilt, {k}"),
        ),
        several_passes(
            "figure2_rank",
            "Figure 2 (b)",
            f"Rank-constrained regression, on other data sets than the paper's and with lower ranks. {RUNS}",
            Setting(
                "data and rank",
                "coil100, caltech256, 100 (Figure 2)",
                "COIL-20, 10 classes of caltech256, ORL; {k}",
            ),
            "in closed form",
        ),
    ],
)
