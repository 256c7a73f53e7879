"""Yuan et al. 2020, Figures 1 and 2: the duality gap of sparse ridge regression against the penalty
and the noise."""

from typing import Literal, Self

from matplotlib.figure import Figure
from pydantic import Field, model_validator
from xarray import Dataset

from experiments.common import Positives, Session
from experiments.yuan2020.gaps import Gaps, plot_gaps, run_gaps
from experiments.yuan2020.ridge import LAMBDA
from jaxht.planted.ensembles import gaussian


class Config(Gaps):
    """Figures 1 and 2: rows N(0, I)."""

    ratio: Positives  # values of N/d
    # standard deviations of the noise. More than one: the gap is drawn against them, else against
    # l0.
    sigma: Positives
    # signals: kinds of w*. More than one: a curve for each.
    signals: list[Literal["signs", "gaussian", "decaying"]] = Field(["signs"])

    @model_validator(mode="after")
    def _check_axes(self) -> Self:
        if len(self.sigma) > 1 and len(self.ratio) > 1:
            raise ValueError("sigma or ratio must have one entry only")
        if len(self.signals) > 1 and len(self.sigma) > 1:
            raise ValueError("sigma or signals must have one entry only")
        return self


def run(config: Config, session: Session) -> Dataset:
    """Compute both ends of the gap in every cell."""
    return run_gaps(
        config,
        session,
        {"signal": config.signals, "ratio": config.ratio, "sigma": config.sigma},
        lambda key, rows, d, cell: gaussian(key, rows, d, variance=1.0),
        ratio=lambda cell: cell["ratio"],
        sigma=lambda cell: cell["sigma"],
        problem=("d", "ratio"),
    )


def plot(dataset: Dataset, config: Config) -> Figure:
    """Draw the gap against l0, a curve for each N/d or kind of w*; or against sigma, a curve for
    each l0."""
    if len(config.signals) > 1:
        return plot_gaps(
            dataset.isel(sigma=0, ratio=-1), config, "l0", "signal", (f"{LAMBDA}$", "")
        )
    dataset = dataset.isel(signal=0)
    if len(config.sigma) > 1:
        labels = r"standard deviation of the noise $\sigma$", LAMBDA
        return plot_gaps(dataset.isel(ratio=0), config, "sigma", "l0", labels)
    return plot_gaps(dataset.isel(sigma=0), config, "l0", "ratio", (f"{LAMBDA}$", "$N/d"))
