"""Signals recovered, at fixed keys, against what is claimed; the full counts are a benchmark."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxht
from jaxht import Sparse, Status, Stop, ensembles
from tests.reference import plausible
from tests.util import host

D, TRIALS = 256, 80


def iht(A):
    return jaxht.IHT(step_size=1.0)


def pgd(A):
    return jaxht.IHT(step_size=2 / jnp.linalg.norm(A, 2) ** 2)


def htp(A):
    return jaxht.HTP()


def svrg(A):
    """eta = 2 / sigma_max^2 and m = 3 n for the mean over n samples: eta / n for their sum."""
    return jaxht.SVRGHT(2 / jnp.linalg.norm(A, 2) ** 2 / len(A), 3 * len(A))


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3, 5))
def recover(solver, n, K, k, key, trials=TRIALS, stop=Stop(max_steps=3000)):
    """Signals seen through one Gaussian design (SL18 §5.1): the Result, and the distance to the
    signal."""
    design = functools.partial(ensembles.gaussian, n=n, d=D)
    signal = functools.partial(ensembles.gaussian_signal, d=D, K=K)
    keys = jax.random.split(jax.random.fold_in(key, 0), trials)
    shared = ensembles.PlantedProblem(A=None, y=0, x_true=0)
    problem = jax.vmap(
        lambda trial: ensembles.planted(trial, design, signal, design_key=key), out_axes=shared
    )(keys)

    def trial(y, x_true, key):
        objective, constraint = jaxht.LeastSquares(problem.A, y, mean=False), Sparse(k)
        result = jaxht.solve(objective, constraint, solver(problem.A), key=key, stop=stop)
        return result, jnp.linalg.norm(result.x - x_true)

    return jax.vmap(trial)(problem.y, problem.x_true, keys)


@pytest.mark.parametrize(
    ("solver", "n", "K", "k", "rate"),
    [(pgd, 100, 4, 36, 0.99), (pgd, 150, 8, 72, 0.99), (htp, 200, 16, 16, 0.99)],
)
def test_recovers(solver, n, K, k, rate):
    result, distance = host(recover(solver, n, K, k, jax.random.key(1)))
    successes = int(np.sum(distance < 1e-3))
    assert plausible(successes, TRIALS, rate), f"{successes} of {TRIALS}"
    assert set(result.status) <= {Status.CONVERGED, Status.SUPPORT_STABLE, Status.MAX_STEPS}


def test_stochastic_gradients_recover():
    """With the last snapshot, in half of the stages that random ones take; those are a
    benchmark."""
    result, distance = host(
        recover(svrg, 64, 2, 18, jax.random.key(1), 24, Stop(max_steps=200, target_value=1e-9))
    )
    assert plausible(int(np.sum(distance < 1e-3)), 24, 0.99)
    assert set(result.status) <= {Status.TARGET_REACHED, Status.MAX_STEPS}


def test_iht_at_step_one_diverges_and_says_so():
    """SL18 §5.1 chooses eta = 1, which is beyond 2/sigma_max(A)^2 here."""
    result, distance = host(recover(iht, 175, 16, 16, jax.random.key(1)))
    diverged = result.status == Status.DIVERGED
    assert TRIALS / 2 < np.sum(diverged) < TRIALS
    assert np.all(np.isfinite(result.x)) and np.all(np.isfinite(result.value))
    assert np.all(np.count_nonzero(result.x, axis=1) <= 16)
    assert not np.any(diverged & (distance < 1e-3))
