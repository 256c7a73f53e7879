"""The command line: ``python -m experiments list | run CONFIG.toml | plot STORE``."""

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click
from tqdm import tqdm

from experiments import config, plots
from experiments.config import Failure, Report
from experiments.registry import EXPERIMENTS
from experiments.session import Session
from jaxht import sweep

CONFIGS = Path(__file__).parents[1] / "configs"


@click.group()
def main() -> None:
    """Run the experiments of the papers and draw their figures."""


@main.command("list")
def list_() -> None:
    """List the experiments and their configurations."""
    known = {file: config.read(file).get("experiment") for file in sorted(CONFIGS.rglob("*.toml"))}
    for name, experiment in EXPERIMENTS.items():
        click.echo(f"{name}: {experiment.summary}")
        for file, chosen in known.items():
            if chosen == name:
                click.echo(f"    {file.relative_to(CONFIGS.parent)}")


@main.command()
@click.argument("path", metavar="CONFIG.toml", type=click.Path(path_type=Path))
@click.option("--size", type=click.Choice(config.SIZES), default=config.SIZES[0], show_default=True)
@click.option("--data-dir", type=click.Path(path_type=Path), help="Folder of the data sets.  [default: $JAXHT_DATA]")
@click.option("--out", type=click.Path(path_type=Path), help="Store.  [default: results/<paper>-<figure>-<size>]")
def run(path: Path, size: str, data_dir: Path | None, out: Path | None) -> None:
    """Run an experiment and keep its results in a store."""
    models = {name: experiment.config for name, experiment in EXPERIMENTS.items()}
    chosen = config.load(path, size, models)
    store = out or Path("results") / f"{path.resolve().parent.name}-{path.stem}-{size}"
    try:
        store.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Failure(f"{store}: {error.strerror}") from error
    with progress(f"{path.stem}, {size}") as report:
        results = EXPERIMENTS[chosen.experiment].run(chosen, Session(store, data_dir, report))
    results.attrs |= {"config": chosen.model_dump_json(), "size": size}
    click.echo(f"{sweep.save(results, store)}\nTo draw it: python -m experiments plot {store}")


@main.command()
@click.argument("store", type=click.Path(path_type=Path))
def plot(store: Path) -> None:
    """Draw the figure of a store, as PNG and PDF, into it."""
    try:
        results = sweep.load(store)
        experiment = EXPERIMENTS[json.loads(results.attrs["config"])["experiment"]]
    except OSError as error:
        raise Failure(f"{store}: {error}") from error
    except (KeyError, ValueError) as error:
        raise Failure(f"{store}: not the results of an experiment known here: {error}") from error
    with plots.style():
        for file in plots.save(experiment.plot(results), store):
            click.echo(file)


@contextmanager
def progress(label: str) -> Iterator[Report]:
    """A progress bar with rate and time left; in a log file, a line now and then."""
    with ExitStack() as stack:
        bar: tqdm | None = None

        def report(done: int, total: int) -> None:
            nonlocal bar
            if bar is None:
                interval = 0.1 if sys.stderr.isatty() else 15
                bar = stack.enter_context(tqdm(desc=label, total=total, unit=" runs", mininterval=interval))
            bar.update(done - bar.n)

        yield report


if __name__ == "__main__":
    main(prog_name="python -m experiments")
