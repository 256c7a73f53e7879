"""Yuan, Li & Zhang 2018, Figure 4: logistic regression on real data against sparsity: objective,
test error, time."""

from matplotlib.figure import Figure
from xarray import Dataset

from experiments.common import Counts, Session
from experiments.yuan2018.real_data import COLUMNS, OnData, compare, draw_grid


class Config(OnData):
    """Figure 4."""

    k: Counts  # sparsities


def run(config: Config, session: Session) -> Dataset:
    """Solve for every k, and by an l1 penalty that leaves about as many nonzeros."""
    return compare(
        config,
        session,
        "k",
        config.k,
        lambda task: [task.penalised.with_nonzeros(k) for k in config.k],
    )


def plot(dataset: Dataset, config: Config) -> Figure:
    """Draw a row for each data set: objective, test error and time against k."""
    return draw_grid(dataset, config, list(COLUMNS), "number of nonzeros $k$")[0]
