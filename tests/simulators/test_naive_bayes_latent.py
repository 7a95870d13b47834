"Naive Bayes as data augmentation and the Gibbs sampler of sufficient statistics take it."

import pickle
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from dpsbi.analyst.mcmc.da_mcmc import da_mcmc
from dpsbi.checks.testing import agrees, follows
from dpsbi.mechanisms import DiscreteLaplace, Gaussian, Laplace, Release
from dpsbi.simulators.naive_bayes import (
    NaiveBayesMoments,
    NaiveBayesRecords,
    exact_posterior,
    naive_bayes,
    published,
)

SIZES = dict(
    n=st.integers(1, 30),
    classes=st.integers(2, 4),
    levels=st.lists(st.integers(2, 4), min_size=1, max_size=3),
    seed=st.integers(0, 2**32 - 1),
)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(**SIZES)
def test_records_are_the_models_and_contributions_the_querys(n, classes, levels, seed):
    latent, (model, query) = (
        NaiveBayesRecords(n, classes, len(levels), tuple(levels)),
        naive_bayes(n, classes, len(levels), levels),
    )
    theta = latent.start(3, np.random.default_rng(seed))
    x = latent.records(theta, np.random.default_rng(seed))
    assert latent.names == model.prior.names and np.array_equal(
        x, model.simulate(theta, np.random.default_rng(seed))
    )
    t = latent.contributions(x.astype(float))  # as da_mcmc holds them
    assert (
        t.shape == (3, n, query.dim)
        and np.isin(t, [0, 1 / n]).all()
        and (np.count_nonzero(t, axis=2) == len(levels)).all()
    )
    assert np.allclose(t.sum(axis=1), query(x), rtol=0, atol=n * 2.0**-53)
    updated = latent.update(theta, x.astype(float), np.random.default_rng(seed))
    assert updated.shape == theta.shape and (updated > 0).all()
    assert np.allclose(model.prior.log_prob(updated) > -np.inf, True)  # every part adds up to one


@settings(max_examples=30, deadline=None, derandomize=True)
@given(**SIZES)
def test_moments_are_those_of_one_record(n, classes, levels, seed):
    "By enumeration of all kinds of record."
    moments = NaiveBayesMoments(n, classes, len(levels), tuple(levels))
    latent = NaiveBayesRecords(n, classes, len(levels), tuple(levels))
    theta = moments.start(2, np.random.default_rng(seed))
    mean, cov = moments.moments(theta)
    kinds = np.array(list(product(range(classes), *map(range, levels))))
    t = n * latent.contributions(kinds[None])[0]
    starts = np.cumsum([0, *levels])
    for row, m, c in zip(theta, mean, cov):
        tables = row[classes:].reshape(classes, -1)
        p = row[kinds[:, 0]] * np.prod(
            [tables[kinds[:, 0], starts[k] + kinds[:, 1 + k]] for k in range(len(levels))], axis=0
        )
        assert np.allclose(m, p @ t, rtol=0, atol=len(kinds) * 2.0**-50)
        assert np.allclose(
            n * c,
            (p[:, None] * t).T @ t - np.outer(p @ t, p @ t),
            rtol=0,
            atol=len(kinds) * 2.0**-50,
        )


def test_updates_from_records_and_from_their_table_are_one():
    args = (25, 3, 2, (2, 4), 0.7)
    latent, moments, rng = (
        NaiveBayesRecords(*args),
        NaiveBayesMoments(*args),
        np.random.default_rng(1),
    )
    x = latent.records(latent.start(6, rng), rng)
    table = latent.contributions(x).sum(axis=1)
    draws = [
        latent.update(None, x, np.random.default_rng(2)),
        moments.update(table, np.random.default_rng(2)),
    ]
    assert np.abs(draws[0] - draws[1]).max() < 1e-10  # counts apart by rounding


def test_update_is_the_conjugate_posterior():
    """Class and cell marginals are Beta; negative counts are zeros, and features that disagree on
    the class counts are averaged.
    """
    moments, rng = NaiveBayesMoments(10), np.random.default_rng(3)
    s = np.array([0.3, 0.4, 0.1, 0.4, -0.2, 0.3, 0.2, 0.3])  # class totals: 7 and 5; 3 and 5
    theta = moments.update(np.repeat(s[None], 4000, axis=0), rng)
    for j, (a, b) in {0: (8, 6), 2: (5, 6), 4: (3, 6), 6: (2, 5), 8: (4, 5)}.items():
        follows(theta[:, j], stats.beta(a, b).cdf)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "n, classes, levels, alpha, mechanism",
    [
        (3, 3, (2, 3), 1.5, Laplace(0.15)),
        (4, 2, (2, 2), 0.5, Gaussian(0.1)),
        (5, 2, (3,), 2.0, DiscreteLaplace(0.2, step=0.2)),
    ],
)
def test_data_augmentation_against_the_direct_sum(n, classes, levels, alpha, mechanism):
    model, query = naive_bayes(n, classes, len(levels), levels, alpha)
    rng = np.random.default_rng(n)
    s = query(model.simulate(model.prior.sample(1, rng), rng))[0]
    release = Release(mechanism.sample(s, rng), query, mechanism)
    found = da_mcmc(
        release,
        NaiveBayesRecords(n, classes, len(levels), levels, alpha),
        draws=12_800,
        rng=rng,
        warmup=50,
        progress=False,
    )
    kinds = np.array(list(product(range(classes), *map(range, levels))))
    x = kinds[np.array(list(product(range(len(kinds)), repeat=n)))]
    s, starts = query(x), np.cumsum([0, *levels])
    table = np.rint(n * s).reshape(len(x), classes, -1)
    counts = [
        table[..., : levels[0]].sum(axis=2),
        *(table[:, i, a : a + J] for i in range(classes) for a, J in zip(starts, levels)),
    ]
    log_w = mechanism.log_prob(release.s_dp, s)
    for c in counts:
        log_w = (
            log_w
            + np.log(special.poch(alpha, c)).sum(axis=1)
            - np.log(special.poch(alpha * c.shape[1], c.sum(axis=1)))
        )
    means = [
        special.softmax(log_w) @ ((alpha + c) / (alpha * c.shape[1] + c.sum(axis=1, keepdims=True)))
        for c in counts
    ]
    agrees(found.mean(), np.concatenate(means), found.mcse(), verbose=False)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:R-hat")
def test_data_augmentation_on_the_published_release():
    exact = exact_posterior(published(), 100)
    found = da_mcmc(
        published(),
        NaiveBayesRecords(100),
        draws=9600,
        rng=np.random.default_rng(4),
        warmup=100,
        progress=False,
    )
    agrees(found.mean()[::2], exact.mean()[::2], found.mcse()[::2], verbose=False)
    agrees(
        found.std()[::2],
        exact.std()[::2],
        exact.std()[::2] / np.sqrt(0.5 * found.ess),
        verbose=False,
    )


@pytest.mark.parametrize("kind", [NaiveBayesRecords, NaiveBayesMoments])
def test_views_travel_and_refuse(kind):
    view = kind(12, 3, 2, (2, 3))
    again = pickle.loads(pickle.dumps(view))
    assert again == view and again.names == view.names
    for change in (
        dict(n=0),
        dict(classes=1),
        dict(levels=1),
        dict(levels=(2, 3, 2)),
        dict(concentration=0.0),
    ):
        with pytest.raises(ValueError):
            kind(**(dict(n=10) | change))
    with pytest.raises(ValueError, match="tables"):
        NaiveBayesMoments(10).update(np.zeros((2, 5)), np.random.default_rng(5))
