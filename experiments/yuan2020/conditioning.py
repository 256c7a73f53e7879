"""Yuan et al. 2020, Figure 3: the duality gap of sparse ridge regression against the condition
number."""

import math
from typing import Annotated

import jax.numpy as jnp
from chex import Array, Numeric, PRNGKey
from matplotlib.figure import Figure
from pydantic import AfterValidator, Field
from xarray import Dataset

from experiments.common import Positive, Session
from experiments.common.claims import NOT_PRINTED, Claim, Reason, Section, Setting
from experiments.common.config import rising
from experiments.yuan2020.gaps import (
    ABSOLUTE,
    AT_THE_LIMIT,
    RIDGE,
    Gaps,
    insensitive,
    plot_gaps,
    run_gaps,
)
from experiments.yuan2020.ridge import LAMBDA
from jaxht import sweep
from jaxht.ensembles import with_spectrum


class Config(Gaps):
    """Figure 3: as many samples as dimensions, and a covariance of which, with lambda added, the
    condition is kappa."""

    kappa: Annotated[
        list[Annotated[float, Field(ge=1)]], AfterValidator(rising)
    ]  # condition numbers, from 1
    sigma: Positive  # standard deviation of the noise


def spectrum(d: int, kappa: Numeric, penalty: Numeric) -> Array:
    """Return the eigenvalues of the covariance, (d,): with the penalty added, the largest is kappa
    times the smallest.

    The paper gives the smallest and the largest; that they are evenly spaced is ours. All are 1
    where kappa = 1.
    """
    above = jnp.where(kappa > 1, kappa, 2)
    shift = penalty * above / (above - 1)
    return jnp.where(kappa > 1, penalty * jnp.linspace(0, 2 * above - 1, d) + shift, 1)


def run(config: Config, session: Session) -> Dataset:
    """Compute both ends of the gap in every cell."""

    def design(key: PRNGKey, rows: int, d: int, cell: sweep.Cell) -> Array:
        return with_spectrum(key, rows, d, spectrum(d, cell["kappa"], cell["l0"] / math.sqrt(d)))

    return run_gaps(
        config, session, {"kappa": config.kappa}, design, sigma=lambda cell: config.sigma
    )


def plot(dataset: Dataset, config: Config) -> Figure:
    """Draw the gap against kappa, with a curve for each l0."""
    return plot_gaps(
        dataset,
        config,
        "kappa",
        "l0",
        (r"condition number $\kappa$ of $\Sigma + \lambda I$", LAMBDA),
    )


# ---- what the paper says of it, and whether it holds ----


UNKNOWN = (
    f"{Reason.NOT_PRINTED}: N, the values of w*, the noise and the eigenvalues between the ends"
)

FIGURE_3 = Section(
    "Figure 3",
    "figure3",
    [
        Claim(
            "in most cases, the gap is not sensitive to κ",
            insensitive("kappa", "κ", in_most_cases=True),
            reason=UNKNOWN,
        ),
        Claim(
            "especially not in badly conditioned cases",
            insensitive("kappa", "κ ≥ 50", 50),
            printed="κ ≥ 50",
            reason=UNKNOWN,
        ),
    ],
    ABSOLUTE,
    [AT_THE_LIMIT],
    [
        *RIDGE,
        Setting("$\\lambda \\sqrt{N}$", "0.1, 1, 10 (§5.2.1)", "{l0}"),
        Setting("κ", "1 to 200 (§5.2.1)", "{kappa}"),
        Setting("samples N", NOT_PRINTED, "d"),
        Setting("noise σ", NOT_PRINTED, "{sigma}"),
        Setting("eigenvalues of the covariance", "the ends (§5.2.1)", "evenly spaced between them"),
    ],
)
