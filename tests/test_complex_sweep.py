"""Sweeps and metrics of complex numbers, whose truth is that of their magnitudes, or of pairs."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from jaxht import NIHT, LeastSquares, Sparse, ensembles, metrics, sweep

pytestmark = pytest.mark.usefixtures("all_quickly")

D = 24
METHODS = {"NIHT": lambda objective, cell: (Sparse(cell["K"]), NIHT())}


def draw(key, cell):
    design = partial(ensembles.gaussian, n=20, d=D, dtype=complex)
    signal = partial(ensembles.sign_signal, d=D, K=cell["K"], dtype=complex)
    noise = partial(ensembles.noise_at_snr, snr_db=cell["snr"])
    return ensembles.planted(key, design, signal, noise, design_key=cell.key)


def first_entry(x, x_true):
    """A result that is complex."""
    return x[jnp.argmax(x_true != 0)]


RESULTS = {
    "error": metrics.estimation_error,
    "recovered": metrics.exact_recovery,
    "f_score": metrics.f_score,
    "first": first_entry,
}
AXES = {"solver": ["NIHT"], "K": [1, 3], "snr": [-10, 60]}


def recovery(**options):
    return sweep.Recovery(
        draw, METHODS, partial(LeastSquares, mean=False), metrics=RESULTS, **options
    )


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    return folder, sweep.run(recovery(), AXES, num_trials=6, store=folder, seed=3)


def test_a_sweep_recovers_signals_of_complex_phases(stored):
    results = stored[1]
    assert results["first"].dtype == np.complex64 and results["error"].dtype == np.float32
    assert np.all(results.recovered.sel(snr=60)) and not np.all(results.recovered.sel(snr=-10))
    assert np.all(results.f_score.sel(snr=60) == 1)
    found = results["first"].sel(snr=60).values
    np.testing.assert_allclose(np.abs(found), 1, atol=0.02)
    assert np.abs(found.imag).max() > 0.5
    assert results.error.sel(snr=60).max() < 0.02 < results.error.sel(snr=-10).min()


def test_a_store_holds_complex_results(stored):
    folder, results = stored
    loaded = sweep.load(folder)
    xarray.testing.assert_identical(loaded.drop_attrs(), results.drop_attrs())


def test_runs_that_are_decided_end_early(stored):
    early = sweep.run(recovery(look_every=2, radius=0.1), AXES, num_trials=6, seed=3)
    plain, early = (results.sel(snr=60) for results in (stored[1], early))
    np.testing.assert_array_equal(early.recovered, plain.recovered)
    assert np.all(early.error < 0.1)
    assert np.all(early.num_steps <= plain.num_steps)
    assert np.any(early.num_steps < plain.num_steps)


def test_rates_are_of_recovered_trials(stored):
    rates = sweep.success_rate(stored[1], "recovered")
    assert np.all(rates.rate.sel(snr=60) == 1) and np.all(rates.rate.sel(snr=-10) < 1)


def test_exports_hold_complex_results(stored, tmp_path):
    sweep.export(stored[1], tmp_path / "x.zarr")
    with xarray.open_zarr(tmp_path / "x.zarr") as dataset:
        np.testing.assert_array_equal(dataset["first"], stored[1]["first"])
    sweep.export(stored[1], tmp_path / "x.nc")
    with xarray.open_dataset(tmp_path / "x.nc", engine="h5netcdf") as dataset:
        np.testing.assert_array_equal(dataset["first"], stored[1]["first"])


def test_metrics_of_complex_numbers():
    """Errors are those of pairs, and supports those of magnitudes."""
    rng = np.random.default_rng(0)
    num, d = 60, 7
    x, x_true = rng.integers(-2, 3, (2, num, d, 2)) * (rng.random((2, num, d, 1)) < 0.5)
    x_true[::3] = x[::3][..., ::-1]
    of_pairs = {name: getattr(metrics, name) for name in metrics.__all__ if "error" in name}
    of_sizes = [
        metrics.exact_recovery,
        metrics.relaxed_recovery,
        metrics.precision,
        metrics.recall,
        metrics.f_score,
    ]
    x, x_true = x.astype(np.float32), x_true.astype(np.float32)
    z, truth = x[..., 0] + 1j * x[..., 1], x_true[..., 0] + 1j * x_true[..., 1]

    def each(functions, x, x_true):
        return jax.jit(jax.vmap(lambda x, y: [f(x, y) for f in functions]))(x, x_true)

    expected = each(of_pairs.values(), x, x_true)
    found = each(of_pairs.values(), z, truth)
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == np.float32
        np.testing.assert_allclose(a, b, rtol=1e-6)
    expected = each(of_sizes, np.abs(z), np.abs(truth))
    found = each(of_sizes, z, truth)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    assert 5 < np.sum(found[0]) < num - 5
    for bad in (complex(np.nan, 0), complex(0, np.inf)):
        z = np.array([bad, 1], np.complex64)
        assert not metrics.relaxed_recovery(z, np.array([0, 1]))
        assert not metrics.success(z, np.zeros(2))
