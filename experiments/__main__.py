"""The command line: ``python -m experiments list | run | plot | export | demo | reproduce |
report``."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError
from xarray import DataArray, Dataset

import jaxht
from experiments import report
from experiments.common import config, plots
from experiments.common.config import Failure
from experiments.common.registry import EXPERIMENTS, summarise
from experiments.common.session import Session
from jaxht import sweep

CONFIGS = report.CONFIGS
DEMO = ("shen2018/figure1", "axiotis2020/diabetes")


@click.group()
def main() -> None:
    """Run the experiments of the papers and draw their figures."""
    jaxht.keep_programs()


@main.command("list")
def list_() -> None:
    """List the experiments and their configurations."""
    known = {file: config.read(file).get("experiment") for file in sorted(CONFIGS.rglob("*.toml"))}
    for name, experiment in EXPERIMENTS.items():
        click.echo(f"{name}: {str(experiment.__doc__).splitlines()[0]}")
        for file, chosen in known.items():
            if chosen == name:
                click.echo(f"    {file.relative_to(CONFIGS.parent)}")


class Shard(click.ParamType):
    """``i/m``: the i-th of m parts, counted from 1."""

    name = "i/m"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """The part, counted from 0, and m."""
        part, _, parts = str(value).partition("/")
        if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
            self.fail(f"must be i/m with 1 <= i <= m; got {value!r}", param, ctx)
        return int(part) - 1, int(parts)


@main.command()
@click.argument("path", metavar="CONFIG.toml", type=click.Path(path_type=Path))
@click.option("--size", type=click.Choice(config.SIZES), default=config.SIZES[0], show_default=True)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help="Folder of the data sets.  [default: $JAXHT_DATA]",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Store.  [default: results/<paper>-<figure>-<size>]",
)
@click.option(
    "--shard", type=Shard(), default="1/1", help="Run one of m parts; all m share the store."
)
@click.option(
    "--workers", type=click.IntRange(1), help="Pools of lanes.  [default: one a GPU, or a core]"
)
@click.option(
    "--max-lanes", type=click.IntRange(1), help="Lanes of a pool.  [default: as suits the device]"
)
@click.option(
    "--mixed", is_flag=True, help="Go on with a store that another machine or version began."
)
def run(path: Path, size: str, data_dir: Path | None, out: Path | None, **options: Any) -> None:
    """Run an experiment and keep its results in a store.

    The same command goes on where it was interrupted, and computes what the configuration asks for
    beyond that since.
    """
    store = out or default_store(path, size)
    compute(path, size, store, data_dir, **options)
    click.echo(f"{store}\nTo draw it: python -m experiments plot {store}")


@main.command()
@click.argument("store", type=click.Path(path_type=Path))
@click.option(
    "--follow",
    is_flag=True,
    help="Draw a running sweep again as its results come, until all are there.",
)
@click.option(
    "--every",
    type=click.FloatRange(min=0.1),
    default=10.0,
    show_default=True,
    help="Seconds between looks.",
)
def plot(store: Path, follow: bool, every: float) -> None:
    """Draw the figure of a store, finished or not, as PNG and PDF, into it."""
    if follow:
        draw_as_results_come(store, lambda: time.sleep(every))
    else:
        draw(store)


def draw_as_results_come(store: Path, wait: Callable[[], None]) -> None:
    """Draw the figure of a store, and again after a wait where results have come, until all are
    there."""
    while not has_results(load_asked(store)):
        wait()
    done = draw(store)
    while not done.all():
        wait()
        if not load_asked(store).get("done", done).equals(done):
            done = draw(store)
            click.echo(f"{int(done.sum())} of {done.size} cells")


@main.command()
@click.argument("store", type=click.Path(path_type=Path))
@click.argument("target", metavar="FILE.nc|FOLDER.zarr", type=click.Path(path_type=Path))
def export(store: Path, target: Path) -> None:
    """Write the results of a store as NetCDF or Zarr."""
    try:
        sweep.export(loaded(store), target)
    except (OSError, ValueError, ImportError) as error:
        raise Failure(f"{target}: {error}") from error


@main.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default="results/demo",
    show_default=True,
    help="Folder.",
)
@click.option(
    "--configs",
    type=click.Path(path_type=Path),
    default=CONFIGS,
    help="Folder of the configurations.  [default: those of this repository]",
)
def demo(out: Path, configs: Path) -> None:
    """Run and draw two figures in a size of seconds."""
    for name in DEMO:
        store = out / name.replace("/", "-")
        compute(configs / f"{name}.toml", "demo", store)
        draw(store)


papers = click.argument("papers", nargs=-1, type=click.Choice(report.NAMES))


@main.command()
@papers
@click.option(
    "--at-most", type=float, metavar="MINUTES", help="Leave out what takes longer, on two cores."
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help="Folder of the data sets.  [default: $JAXHT_DATA]",
)
def reproduce(papers: tuple[str, ...], at_most: float | None, data_dir: Path | None) -> None:
    """Run the figures of PAPERS, or of all, in the papers' sizes, the shortest first, and write the
    report.

    What the report already has is not run again, and what was interrupted goes on.
    """
    names, failures = papers or report.NAMES, []
    for path in report.configurations(names):
        if report.read(path) is not None or (at_most and report.minutes(path) > at_most):
            continue
        store = default_store(path, report.SIZE)
        try:
            compute(path, report.SIZE, store, data_dir)
        except Failure as failure:  # such as data that are not there: the others run
            failures.append(f"{path}: {failure.message}")
            continue
        report.keep(path, load_asked(store))
        report.write([path.parent.name])
        click.echo(report.REPORT / f"{path.parent.name}.md")
    report.write(names)
    if failures:
        raise Failure("\n".join(failures))


@main.command("report")
@papers
def report_(papers: tuple[str, ...]) -> None:
    """Draw the figures of PAPERS, or of all, and write their pages, from the results in
    docs/report/data."""
    names = papers or report.NAMES
    for path in report.configurations(names):
        if (kept := report.read(path)) is not None:
            report.draw(path, kept)
    report.write(names)


def default_store(path: Path, size: str) -> Path:
    """Where the results of a configuration go unless another folder is named."""
    return Path("results") / f"{report.name_of(path.resolve())}-{size}"


def compute(
    path: Path, size: str, store: Path, data_dir: Path | None = None, **options: Any
) -> None:
    """Run an experiment, or what remains of it, with its results in a store."""
    chosen = config.load(path, size, report.MODELS)
    attrs = {"config": chosen.model_dump_json(), "size": size}
    try:
        store.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Failure(f"{store}: {error.strerror}") from error
    with sweep.progress_bar(f"{path.stem}, {size}") as bar:
        session = Session(store, data_dir, bar, {"attrs": attrs, **options})
        results = EXPERIMENTS[chosen.experiment].run(chosen, session)
    if not sweep.is_kept(store):
        try:
            sweep.save(
                results.assign_attrs({**sweep.provenance(), **results.attrs, **attrs}), store
            )
        except OSError as error:
            raise Failure(f"{store}: {error.strerror}") from error


def draw(store: Path) -> DataArray:
    """Draw the figure of a store into it, and print the paths of its files; returns which of its
    cells it shows."""
    results = load_asked(store)
    if not has_results(results):
        raise Failure(f"{store}: no cell has results yet")
    try:
        experiment = EXPERIMENTS[json.loads(results.attrs["config"])["experiment"]]
        chosen = experiment.Config.model_validate_json(results.attrs["config"])
    except ValidationError as error:
        raise Failure(f"{store}: of another version: {str(error).splitlines()[1]}") from error
    except (KeyError, ValueError) as error:
        raise Failure(f"{store}: not the results of an experiment known here: {error}") from error
    shown = summarise(experiment, results, chosen)
    with plots.style():
        for file in plots.save(experiment.plot(shown, chosen), store):
            click.echo(file)
    if hasattr(experiment, "table"):
        click.echo(experiment.table(shown, chosen))
    return results.get("done", DataArray(True))


def load_asked(store: Path) -> Dataset:
    """What a store holds of that which its last configuration asks for; Failure where it is
    none."""
    results = loaded(store)
    if not sweep.is_kept(store) or "asked" not in results.attrs:
        return results
    asked = json.loads(results.attrs["asked"])
    results = results.sel(asked["axes"]).isel(trial=slice(asked["num_trials"]))
    return results.assign(done=results.num_trials >= asked["num_trials"])


def has_results(results: Dataset) -> bool:
    """Whether a cell has some; of results without trials always."""
    return "done" not in results or bool((results.num_trials > 0).any())


def loaded(store: Path) -> Dataset:
    """What a store holds; Failure where it is none."""
    try:
        return sweep.load(store)
    except (OSError, ValueError, sweep.StoreError) as error:
        raise Failure(f"{store}: {error}") from error


if __name__ == "__main__":
    main(prog_name="python -m experiments")
