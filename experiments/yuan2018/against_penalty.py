"""Yuan, Li & Zhang 2018, Figure 5: logistic regression on real data against the l1 penalty: test
error and time."""

from matplotlib.figure import Figure
from xarray import Dataset

from experiments.common import Fractions, Session
from experiments.yuan2018.real_data import OnData, compare, draw_grid


class Config(OnData):
    """Figure 5."""

    penalties: Fractions  # lambda of the l1 penalty, in units of the least that leaves no nonzeros


def run(config: Config, session: Session) -> Dataset:
    """Solve by every l1 penalty, and then with as many nonzeros as that has left."""
    shares = config.penalties
    return compare(
        config,
        session,
        "penalty",
        shares,
        lambda task: [task.penalised.at(a * task.penalised.largest) for a in shares],
    )


def plot(dataset: Dataset, config: Config) -> Figure:
    """Draw a row for each data set: test error and time against the l1 penalty."""
    label = r"$\ell_1$ penalty $\lambda / \lambda_{\max}$"
    figure, grid = draw_grid(dataset, config, ["test_error", "seconds"], label)
    for axes in grid.flat:
        axes.set_xscale("log")
        axes.set_xticks(config.penalties[::3], [f"{share:g}" for share in config.penalties[::3]])
        axes.minorticks_off()
    return figure
