"""The choice of a sparsity by held-out samples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxht
from jaxht import HTP, OMP, LeastSquares, Sparse
from tests.util import host, quick, solve, x64

pytestmark = pytest.mark.usefixtures("all_quickly")

KS = np.array([1, 2, 3, 5, 8])


@pytest.fixture(autouse=True)
def float64():
    with x64():
        yield


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(45, 20))
    return A, A[:, :3] @ [2.0, -1.5, 1.0] + 0.5 * rng.normal(size=45)


@pytest.mark.parametrize("solver", [HTP(), OMP()])
def test_folds_and_sparsities_one_after_the_other(data, solver):
    A, y = data
    held_out = jaxht.folds(jax.random.key(0), 45, 3)

    def split(held):
        return LeastSquares(A, y, weights=1.0 - held, mean=False), LeastSquares(
            A, y, weights=1.0 * held, mean=True
        )

    # k_max is the largest of the sparsities.
    found = host(
        quick(lambda held: jaxht.cross_validate(split, held, Sparse(1), solver, ks=KS))(held_out)
    )
    losses = np.empty((3, len(KS)))
    for i, held in enumerate(np.asarray(held_out)):  # of one size
        for j, k in enumerate(KS):
            x = solve(LeastSquares(A[~held], y[~held], mean=False), Sparse(k, k_max=8), solver).x
            losses[i, j] = np.mean((A[held] @ x - y[held]) ** 2) / 2
            np.testing.assert_allclose(found.results.x[i, j], x, atol=1e-9)
    np.testing.assert_allclose(found.losses, losses, rtol=1e-9)
    mean, errors = losses.mean(axis=0), losses.std(axis=0, ddof=1) / np.sqrt(3)
    np.testing.assert_allclose(found.standard_errors, errors, rtol=1e-9)
    best = np.argmin(mean)
    assert found.k == KS[best]
    assert found.k_1se == min(
        k for k, loss in zip(KS, mean, strict=True) if loss <= mean[best] + errors[best]
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_one_standard_error_of_held_out_samples(data, weighted):
    """So much noise that the least loss is that of a larger model than the rule takes."""
    A, y = data[0], data[1] + 2 * np.random.default_rng(1).normal(size=45)
    held_out = LeastSquares(A[20:], y[20:], mean=False)
    if weighted:  # samples that are left out do not count
        held_out = LeastSquares(A, y, weights=(np.arange(45) >= 20).astype(float), mean=False)
    ks = np.arange(1, 16)
    found = host(
        quick(lambda *fs: jaxht.validate(*fs, Sparse(1), OMP(), ks=ks))(
            LeastSquares(A[:20], y[:20], mean=False), held_out
        )
    )
    samples = np.array([(A[20:] @ x - y[20:]) ** 2 / 2 for x in found.results.x])
    errors = np.std(samples, axis=1, ddof=1) * np.sqrt(25)
    np.testing.assert_allclose(found.standard_errors, errors, rtol=1e-9)
    total = samples.sum(axis=1)
    best = np.argmin(total)
    assert (
        found.k == ks[best]
        and found.k_1se == ks[np.flatnonzero(total <= total[best] + errors[best])[0]]
    )
    assert found.k_1se < found.k


def test_one_standard_error_of_what_is_no_sum_of_losses(data):
    A, y = data
    fs = [
        jaxht.Custom(lambda x, i=i: jnp.sum((A[i] @ x - y[i]) ** 2), like=20)
        for i in (slice(30), slice(30, 45))
    ]
    found = jaxht.validate(*fs, Sparse(1), jaxht.NIHT(), ks=KS)
    assert np.isnan(found.standard_errors).all() and found.k_1se == found.k


@quick
def validated(train, held_out):
    return jaxht.validate(train, held_out, Sparse(1), HTP(), ks=KS)


def test_validation_is_one_fold_and_a_solution_that_failed_is_not_chosen(data):
    A, y = data
    train, held_out = (
        LeastSquares(A[:30], y[:30], 0.0, mean=False),
        LeastSquares(A[30:], y[30:], 0.0, mean=False),
    )
    found = validated(train, held_out)
    losses = [np.sum((A[30:] @ x - y[30:]) ** 2) / 2 for x in np.asarray(found.results.x)]
    np.testing.assert_allclose(found.losses, losses)
    assert found.k == KS[np.argmin(losses)]
    spoilt = LeastSquares(A[30:], y[30:], l2=np.nan, mean=False)
    assert np.isinf(validated(train, spoilt).losses).all()


def test_folds_are_a_partition():
    held_out = np.asarray(jaxht.folds(jax.random.key(1), 23, 5))
    assert held_out.shape == (5, 23) and (held_out.sum(axis=0) == 1).all()
    assert sorted(held_out.sum(axis=1)) == [4, 4, 5, 5, 5]
    assert not np.array_equal(held_out, np.asarray(jaxht.folds(jax.random.key(2), 23, 5)))


def test_wrong_arguments(data):
    A, y = data
    for num_folds in (1, 6):
        with pytest.raises(ValueError, match="num_folds must lie between 2 and num_samples = 5"):
            jaxht.folds(jax.random.key(0), 5, num_folds)
    for ks in ([], [1.0], 3, [3, 2]):
        with pytest.raises(ValueError, match="ks must"):
            jaxht.validate(
                LeastSquares(A, y, mean=False),
                LeastSquares(A, y, mean=False),
                Sparse(1),
                HTP(),
                ks=ks,
            )
    with pytest.raises(ValueError, match="key must be given"):
        jaxht.validate(
            LeastSquares(A, y, mean=False),
            LeastSquares(A, y, mean=False),
            Sparse(1),
            jaxht.SGHT(),
            ks=jnp.array([1, 2]),
        )


def test_a_weighted_mean_of_equal_losses_has_no_error():
    A = np.zeros((6, 2))
    A[:, 0] = 1
    weights = np.array([1.0, 1, 1, 1, 10, 10])
    held_out = LeastSquares(A, np.full(6, 2**0.5), weights=weights)
    train = LeastSquares(np.eye(2), np.zeros(2))
    found = jaxht.validate(train, held_out, Sparse(), OMP(), ks=[1, 2])
    np.testing.assert_allclose(found.losses, 1)
    np.testing.assert_allclose(found.standard_errors, 0, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.int64])
def test_ks_that_fall_are_refused_in_every_dtype(dtype):
    f = LeastSquares(np.eye(4), np.arange(4.0))
    with pytest.raises(ValueError, match="ks must rise strictly"):
        jaxht.path(f, Sparse(), OMP(), ks=np.array([3, 1], dtype))


def test_folds_with_keys(data):
    A, y = data[:2]
    masks = jaxht.folds(jax.random.key(0), len(y), 3)

    def split(fold):
        held = fold["held"]
        jax.random.uniform(fold["key"])
        return LeastSquares(A, y, weights=1.0 - held), LeastSquares(A, y, weights=1.0 * held)

    folds = {"held": masks, "key": jax.random.split(jax.random.key(1), 3)}
    found = jaxht.cross_validate(split, folds, Sparse(), OMP(), ks=[1, 2])
    want = jaxht.cross_validate(
        lambda held: split({"held": held, "key": jax.random.key(0)}),
        masks,
        Sparse(),
        OMP(),
        ks=[1, 2],
    )
    np.testing.assert_allclose(found.losses, want.losses)


def test_folds_of_different_lengths_are_refused():
    A = np.eye(4)

    def split(fold):
        train, held_out = fold
        return LeastSquares(A, A[0], weights=train), LeastSquares(A, A[0], weights=held_out)

    folds = np.ones((2, 4)), np.ones((3, 4))
    with pytest.raises(ValueError, match=r"of one length; got \[2, 3\]"):
        jaxht.cross_validate(split, folds, Sparse(2), OMP(), ks=range(3))
