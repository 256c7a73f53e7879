"""Experiments in a tiny size, and calls of their command line, for the tests."""

import json
import os
import tomllib
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import sparse

from experiments.__main__ import main
from experiments.common import Session, config, plots
from experiments.common.registry import EXPERIMENTS, summarise
from jaxht import sweep

pytestmark = pytest.mark.usefixtures("all_quickly")
ROOT = Path(__file__).parents[1]
CONFIGS = sorted((ROOT / "configs").rglob("*.toml"))
MODELS = {name: experiment.Config for name, experiment in EXPERIMENTS.items()}
SETS = Path(os.environ["JAXHT_DATA"]) if os.environ.get("JAXHT_DATA") else None


def write(path, table):
    """A flat TOML file, perhaps with tables of sizes; the values that occur here look alike in
    JSON."""
    lines = [
        f"{key} = {json.dumps(value)}"
        for key, value in table.items()
        if not isinstance(value, dict)
    ]
    for size, own in table.items():
        if isinstance(own, dict):
            lines += [f"[{size}]", *(f"{key} = {json.dumps(value)}" for key, value in own.items())]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


# A configuration, and what makes it small enough for a test.
PLANTED = {"d": 32, "num_signals": 3, "max_steps": 50, "round_n": 32}
TINY = {
    "shen2018/figure1": {**PLANTED, "solvers": ["PGD"], "n": [16, 32], "K": [2, 4]},
    "shen2018/figure2": {
        "solvers": ["HT-SVRG"], "d": 32, "num_signals": 4, "max_steps": 70,
        "n": [16], "K": [2, 4], "shown_n": [16], "shown_K": [2],
    },
    "shen2018/figure3": {
        **PLANTED, "K": [1, 2], "coarse_n": [4, 16, 32], "coarse_signals": 3, "num_signals": 4, "step": 8,
        "solvers": ["IHT-1"],
    },
    "shen2018/figure4": {
        "d": 32, "n": 16, "K": 2, "k": 4, "num_signals": 3, "num_stages": 2, "varied_k": [3], "varied_m": [5],
        "varied_eta": [1e3], "varied_saga": [0.1],
    },
    "shen2018/figure7": {
        "dataset": "digits", "pairs": ["0v9"], "k": [2, 4],
        "shown_k": [2], "num_stages": 2, "max_rows": 40,
    },
    "phase/delta_rho": {**PLANTED, "solvers": ["IHT"], "n": [16, 32], "rho": [0.1, 0.3]},
    "phase/completion": {"m": 6, "r": [1, 2], "n": [18, 36], "solvers": ["IHT-1"], "num_matrices": 3, "max_steps": 50},
    "phase/atlas_gaussian": {
        "d": 32, "designs": ["gaussian"], "solvers": ["NIHT"], "n": [16, 24], "spacing": 0.1, "num_k": 3,
        "num_signals": 4, "rho": [0.1, 0.6], "max_steps": 50, "round_n": 32, "timed_n": [16],
    },
    "yuan2018/figure1": {"num_points": 5},
    "yuan2018/figure2": {
        "d": 32, "K": 2, "solvers": ["IHT"], "k": [2, 3], "n": [16, 32], "num_trials": 3, "max_steps": 50, "round_n": 32
    },
    "yuan2018/figure4": {"datasets": ["tiny"], "k": [3], "solvers": ["GraHTP"]},
    "yuan2018/figure5": {"datasets": ["tiny"], "penalties": [0.5], "solvers": ["IHT"]},
    "yuan2018/figure6": {
        "p": [6], "num_trials": [2],
        "solvers": ["GraHTP"], "density": [0.1, 0.4], "penalties": [0.2, 0.5],
    },
    "yuan2018/table4": {
        "datasets": ["tiny"], "test_positive": [5], "test_negative": [5], "num_genes": 6, "num_folds": 2,
        "num_splits": 2, "solvers": ["FBS"], "density": [0.1, 0.4], "penalties": [0.2, 0.5],
    },
    "yuan2020/figure1": {"d": [6], "k": [1], "l0": [0.1, 10.0], "ratio": [0.5, 1.0], "num_problems": 2, "max_steps": 5},
    "yuan2020/figure3": {"d": [6], "k": [1], "l0": [1.0], "kappa": [1.0, 9.0], "num_problems": 2, "max_steps": 5},
    "yuan2020/figure4": {"d": 8, "k": 2, "n": [4, 8], "num_problems": 2, "max_steps": 5, "solvers": ["DIHT"]},
    "yuan2020/figure5": {
        "datasets": ["tiny"], "k": [3], "l0": [0.4, 1.0], "gap_l0": [1.0], "factors": [0.25, 1.0],
        "num_steps": {"IHT": 3, "SDIHT": 2, "SDIHT-refit": 2}, "dual_factors": [1.0], "records": 2,
    },
    "yuan2020/figure8": {
        "datasets": ["tiny"], "k": [3], "l0": [1.0], "gap_l0": [1.0], "factors": [1.0], "dual_factors": [1.0],
        "num_steps": {"SVRG-HT": 2, "DIHT": 2},
    },
    "zhou2018/figure2": {
        "datasets": ["tiny"], "target": {}, "k": [3], "factors": [1.0, 4.0], "passes": [1.0, 3.0],
        "growth": [1.2, 1.3], "momentum": [0.5], "num_seeds": 2, "batch_size": 4, "points": 5, "max_steps": 50,
    },
    "axiotis2020/figure1": {"datasets": ["tiny"], "k": [1, 2, 5], "solvers": ["OMPR"]},
    "axiotis2020/figure4": {"datasets": ["tiny", "other"], "split": {}, "k": [2], "solvers": ["IHT"]},
    "axiotis2020/diabetes": {"k": [1, 2, 5], "solvers": ["OMPR"]},
    "axiotis2020/lemma5_2": {"kappa": 4, "num_steps": 4},
    "axiotis2020/table1": {},
    "axiotis2020/section5_1": {"N": [3, 4]},
}  # fmt: skip


def tiny(name, folder, **changes):
    """The configuration of that name, small enough for a test; None in changes: a key that is
    missing."""
    path = ROOT / "configs" / f"{name}.toml"
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    quick, *_ = [table.pop(size, None) for size in config.SIZES]
    changed = {**table, **quick, **TINY[name], **changes}
    inner = {
        key: value
        for key, value in changed.items()
        if isinstance(value, dict) and key not in config.SIZES
    }
    for key, value in inner.items():
        changed[key] = None if not value else changed[key]
    flat = {key: value for key, value in changed.items() if value is not None and key not in inner}
    sizes = {"quick": {}, "paper": {}} | {
        size: changed[size] for size in config.SIZES if size in changed
    }
    return write(
        folder / path.name, flat | {key: value for key, value in inner.items() if value} | sizes
    )


def write_csr(file, n=60, d=20, **others):
    """A sparse data set whose labels depend on the first two features; two thirds of it for
    training."""
    rng = np.random.default_rng(0)
    X = sparse.csr_array(rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.4))
    y = np.where(X.toarray()[:, :2] @ [3, -3] + 0.3 * rng.normal(size=n) > 0, 1, -1)
    parts = {
        "data": X.data,
        "indices": X.indices,
        "indptr": X.indptr,
        "shape": X.shape,
        "format": b"csr",
    }
    np.savez(file, **parts, **{"y": y, "n_train": 2 * n // 3, **others})


def call(*args, env=None):
    return CliRunner(env=env).invoke(main, list(map(str, args)))


def fails(*args, env=None):
    """The one line on which a call fails with exit code 2."""
    result = call(*args, env=env)
    assert result.exit_code == 2, result.output
    (line,) = result.output.splitlines()
    return line


def run(name, folder, **changes):
    """An experiment in a tiny size: its configuration and its results, as they were stored."""
    chosen = config.load(tiny(name, folder, **changes), "quick", MODELS)
    for file in "tiny", "other":
        write_csr(folder / f"{file}.npz")
    reports, store = [], folder / "store"
    # One pool of lanes: only who starts the process can give XLA the threads that several take
    # (docs/design.md).
    session = Session(store, folder, reports.append, {"workers": 1})
    results = EXPERIMENTS[chosen.experiment].run(chosen, session)
    assert reports[-1].done == reports[-1].total > 0 and not reports[-1].note
    if not sweep.is_kept(store):
        sweep.save(results, store)
    return chosen, sweep.load(store)


def draw(chosen, results):
    """The figure, laid out with all of its texts; it has the title of the configuration."""
    with plots.style():
        experiment = EXPERIMENTS[chosen.experiment]
        figure = experiment.plot(summarise(experiment, results, chosen), chosen)
        figure.draw_without_rendering()
    assert figure.get_suptitle().replace("\n", " ") == chosen.title
    return figure


def at_once(name, compute):
    """What a part is given to keep its pieces with, where nothing is kept."""
    return compute()


def lines(axes, label=""):
    """The points of the lines of a panel whose label contains the text, in order: an array (2, m)
    each."""
    return [
        np.array(line.get_data(), float) for line in axes.lines if label in str(line.get_label())
    ]


def y_of(axes, label=""):
    """The heights of the first of these lines."""
    return lines(axes, label)[0][1]
