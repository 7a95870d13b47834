"""Linear regression and naive Bayes: sensitivities by search and brute force, simulators, and the
exact posterior of the table.
"""

import pickle
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from dpsbi.analyst.importance.amis import importance
from dpsbi.checks.testing import agrees, follows, follows_pmf
from dpsbi.mechanisms import DiscreteLaplace, Gaussian, Laplace, Mechanism, Release
from dpsbi.models.prior import Prior
from dpsbi.privacy import Query, identity
from dpsbi.simulators import linear_regression as lr
from dpsbi.simulators import naive_bayes as nb

COMMON = dict(deadline=None, derandomize=True)


def rounding(query, n):
    "Of `dim` means of n products within ±1, on two data sets, and of the sum of their differences."
    return query.dim * (n + query.dim + 4) * 2.0**-52


# ---- linear regression


def moments(x, clamp):
    z = np.clip(x, -clamp, clamp) / clamp
    X, y = np.column_stack([np.ones(len(x)), z[:, :-1]]), z[:, -1]
    return np.concatenate([X.T @ y, [y @ y], (X.T @ X)[np.triu_indices(X.shape[1])][1:]]) / len(x)


@settings(max_examples=60, **COMMON)
@given(
    n=st.integers(1, 30),
    p=st.integers(1, 6),
    clamp=st.floats(0.5, 50),
    seed=st.integers(0, 2**32 - 1),
)
def test_query_is_its_definition_and_moves_no_farther_than_stated(n, p, clamp, seed):
    rng = np.random.default_rng(seed)
    query = lr.linear_regression(n, p, clamp)[1]
    x = clamp * rng.uniform(-1.5, 1.5, (50, n, p + 1))
    x_new = x.copy()
    x_new[:, -1] = clamp * rng.choice(
        [-1, 1, 1 / (p + 2)], (50, p + 1)
    )  # where the worst cases are
    x[25:, -1] = clamp * rng.choice([-1, 1, 1 / (p + 2), -1 / (p + 2)], (25, p + 1))
    assert np.allclose(
        query(x), [moments(one, clamp) for one in x], rtol=0, atol=(n + 4) * 2.0**-52
    )
    assert np.abs(query(x) - query(x_new)).sum(axis=1).max() <= query.sensitivity + rounding(
        query, n
    )


@pytest.mark.parametrize("p", range(1, 8))
def test_regression_sensitivity_is_attained_and_below_the_papers(p):
    n, query = 3, lr.linear_regression(3, p, clamp=2.0)[1]
    x = np.zeros((1, n, p + 1))
    x_new = x.copy()
    x[0, 0], x_new[0, 0] = 2 / (p + 2), -2
    moved = np.abs(query(x) - query(x_new)).sum()
    assert abs(moved - query.sensitivity) <= rounding(query, n)
    assert (
        query.sensitivity
        == lr.l1_sensitivity(n, p)
        < (p**2 + 3 * p + 3) / n
        < (p**2 + 4 * p + 3) / n
    )


def test_regression_sensitivities_of_small_p():
    assert np.allclose(
        [lr.l1_sensitivity(1, p) for p in (1, 2, 3, 4)],
        [16 / 3, 75 / 8, 72 / 5, 245 / 12],
        rtol=2.0**-52,
        atol=0,
    )


def test_regression_published_release():
    release = lr.published()
    assert (
        release.s_dp.size == release.query.dim == len(lr.summary_names(2)) == len(lr.CONFIDENTIAL)
    )
    assert release.mechanism.cost(release.query).epsilon == pytest.approx(10 * (75 / 8) / 13)
    assert lr.published(records=False).query.fn is identity
    assert lr.summary_names(1) == ("y", "x1·y", "y²", "x1", "x1²")


def test_regression_simulator_in_distribution():
    "Standardised by theta, predictors and residuals are standard normal and uncorrelated."
    rng = np.random.default_rng(1)
    model, _ = lr.linear_regression(20, 3, noise_variance=0.25, x_mean=(1, 2, -3))
    theta = model.prior.sample(500, rng)
    x = model.simulate(theta, rng)
    x0 = x[..., :3] - np.array([1, 2, -3])
    residual = (x[..., 3] - theta[:, :1] - (x[..., :3] * theta[:, None, 1:]).sum(axis=2)) / 0.5
    z = np.concatenate([x0, residual[..., None]], axis=2).reshape(-1, 4)
    for column in z.T:
        follows(column, stats.norm.cdf)
    i, j = np.triu_indices(4, 1)
    agrees((z[:, i] * z[:, j]).mean(axis=0), 0, 1 / np.sqrt(len(z)), verbose=False)


@pytest.mark.thorough
@pytest.mark.parametrize("module, arguments", [(lr, (400, 2)), (nb, (50, 3, 2, (2, 3)))])
def test_models_travel_and_repeat(module, arguments):
    make = lr.linear_regression if module is lr else nb.naive_bayes
    for records in (True, False):
        model, query = make(*arguments, records=records)
        theta = model.prior.sample(1500, np.random.default_rng(1))
        x = model.simulate(theta, np.random.default_rng(2))
        again = pickle.loads(pickle.dumps(model)).simulate(theta, np.random.default_rng(2))
        assert np.array_equal(x, again)
        assert query(x).shape == (1500, query.dim) and np.array_equal(
            query(x), pickle.loads(pickle.dumps(query))(x)
        )
        assert not np.array_equal(x, model.simulate(theta, np.random.default_rng(3)))


def test_regression_summaries_are_those_of_records():
    (model, query), (direct, _) = (
        lr.linear_regression(400, 2),
        lr.linear_regression(400, 2, records=False),
    )
    theta = model.prior.sample(1500, np.random.default_rng(1))  # in two blocks
    s = query(model.simulate(theta, np.random.default_rng(2)))
    assert np.allclose(
        s, direct.simulate(theta, np.random.default_rng(2)), rtol=0, atol=404 * 2.0**-52
    )


def test_regression_takes_any_prior_of_the_right_size():
    prior = Prior(intercept=stats.norm(), slope=stats.expon())
    assert lr.linear_regression(10, 1, prior=prior)[0].prior.names == ("intercept", "slope")


@pytest.mark.parametrize(
    "change",
    [
        dict(n=0),
        dict(n=2.5),
        dict(p=-1),
        dict(clamp=-1.0),
        dict(clamp=np.nan),
        dict(noise_variance=0.0),
        dict(x_mean=[1.0]),
        dict(x_mean=[1.0, np.inf]),
        dict(prior=Prior(a=stats.norm())),
    ],
)
def test_regression_bad_input(change):
    with pytest.raises(ValueError):
        lr.linear_regression(**(dict(n=10, p=2) | change))


@pytest.mark.thorough
def test_regression_posterior_matches_the_reference():
    "Means and sds of data augmentation, known to two decimals; the alarm is one in a million."
    model, _ = lr.linear_regression(100, 2)
    posterior = importance(
        lr.published(), model, rng=np.random.default_rng(3), simulations=2000, progress=False
    )
    mean, sd, w = posterior.mean(), posterior.std(), posterior.weights
    sd_error = np.sqrt(w**2 @ ((posterior.theta - mean) ** 2 - sd**2) ** 2) / (2 * sd)
    for estimate, stated, se in (
        (mean, [-0.64, -2.65, 0.60], posterior.mcse()),
        (sd, [0.87, 0.71, 0.92], sd_error),
    ):
        agrees(
            estimate,
            np.clip(estimate, np.array(stated) - 0.005, np.array(stated) + 0.005),
            se,
            verbose=False,
        )


# ---- naive Bayes


def every(n, classes, levels):
    kinds = np.array(list(product(range(classes), *map(range, levels))))
    return kinds[np.array(list(product(range(len(kinds)), repeat=n)))], kinds


@pytest.mark.parametrize(
    "n, classes, levels", [(1, 2, (2,)), (2, 2, (2, 2)), (2, 3, (2, 3)), (1, 4, (3, 2, 2))]
)
def test_table_sensitivity_by_brute_force(n, classes, levels):
    x, kinds = every(n, classes, levels)
    query = nb.naive_bayes(n, classes, len(levels), levels)[1]
    replaced = np.repeat(x[:, None], len(kinds), axis=1)
    replaced[:, :, 0] = kinds
    moved = np.abs(
        query(x)[:, None]
        - query(replaced.reshape(-1, *x.shape[1:])).reshape(len(x), len(kinds), -1)
    ).sum(axis=2)
    assert (
        moved.max() == pytest.approx(query.sensitivity, rel=query.dim * 2.0**-52)
        and query.sensitivity == 2 * len(levels) / n
    )


@settings(max_examples=40, **COMMON)
@given(
    n=st.integers(1, 40),
    classes=st.integers(2, 5),
    levels=st.lists(st.integers(2, 5), min_size=1, max_size=4),
    seed=st.integers(0, 2**32 - 1),
)
def test_table_counts_records(n, classes, levels, seed):
    rng = np.random.default_rng(seed)
    model, query = nb.naive_bayes(n, classes, len(levels), levels)
    x = model.simulate(model.prior.sample(3, rng), rng)
    expected = [
        [
            np.mean((d[:, 0] == i) & (d[:, 1 + k] == j))
            for i in range(classes)
            for k, J in enumerate(levels)
            for j in range(J)
        ]
        for d in x
    ]
    assert np.allclose(query(x), expected, rtol=0, atol=2.0**-52)
    assert np.array_equal(query(x), query(x.astype(float)))


@pytest.mark.parametrize("code, cut", [(-1, 0), (2, 1), (0.5, 0), (np.inf, 1), (-np.inf, 0)])
def test_an_impossible_code_is_cut_in_its_own_record(code, cut):
    query = nb.naive_bayes(5)[1]
    x = np.zeros((2, 5, 3))
    x[:, 3, 2] = cut, code
    assert np.array_equal(*query(x)) and np.isfinite(query(x)).all()


def test_a_simulated_nan_makes_its_own_table_nan():
    x = np.zeros((2, 5, 3))
    x[1, 3, 2] = np.nan
    table = nb.naive_bayes(5)[1](x)
    assert np.isfinite(table[0]).all() and np.isnan(table[1]).all()


def test_records_and_table_have_the_same_distribution():
    rng = np.random.default_rng(2)
    (model, query), (direct, _) = (
        nb.naive_bayes(6, 3, 2, (2, 3), records=r) for r in (True, False)
    )
    theta = np.tile(model.prior.sample(1, rng), (20_000, 1))
    shares, tables = theta[0, :3], theta[0, 3:].reshape(3, 5)
    for s in (query(model.simulate(theta, rng)), direct.simulate(theta, rng)):
        for cell, p in enumerate((shares[:, None] * tables).ravel()):
            follows_pmf(
                np.rint(6 * s[:, cell]),
                np.arange(7),
                stats.binom(6, p).pmf(np.arange(7)),
                alarm=1e-7,
            )


def direct(release, n, classes, levels, alpha):
    "Evidence and means by summing over all ordered data sets: nothing is factorised."
    x, _ = every(n, classes, levels)
    s = nb.naive_bayes(n, classes, len(levels), levels, alpha)[1](x)
    table = np.rint(n * s).reshape(len(x), classes, -1)
    starts = np.cumsum([0, *levels])
    counts = [
        table[..., : levels[0]].sum(axis=2),
        *(table[:, i, a : a + J] for i in range(classes) for a, J in zip(starts, levels)),
    ]
    log_w = release.mechanism.log_prob(release.s_dp, s)
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
    return special.logsumexp(log_w), np.concatenate(means)


@pytest.mark.parametrize(
    "n, classes, levels, alpha, mechanism",
    [
        (3, 3, (2, 3), 2.0, Laplace(0.2)),
        (5, 2, (2, 2), 0.5, Laplace(0.05)),
        (2, 2, (2, 3, 4), 1.0, Gaussian(0.3)),
        (4, 3, (3,), 2.5, DiscreteLaplace(0.2, step=0.25)),
        (3, 4, (2, 2), 1.0, Laplace(3.0)),
        (1, 2, (5,), 2.0, Laplace(0.5)),
    ],
)
def test_exact_posterior_is_the_direct_sum(n, classes, levels, alpha, mechanism):
    rng = np.random.default_rng(n)
    model, query = nb.naive_bayes(n, classes, len(levels), levels, alpha, records=False)
    for theta in model.prior.sample(3, rng):
        release = Release(
            mechanism.sample(model.simulate(theta[None], rng)[0], rng), query, mechanism
        )
        exact = nb.exact_posterior(release, n, classes, len(levels), levels, alpha)
        log_evidence, means = direct(release, n, classes, levels, alpha)
        assert abs(exact.log_evidence - log_evidence) < 300 * 2.0**-52 * max(1, abs(log_evidence))
        assert np.abs(exact.mean() - means).max() < 300 * 2.0**-52 * max(1, abs(log_evidence))


def test_exact_posterior_of_the_published_release():
    exact = nb.exact_posterior(nb.published(), 100)
    assert np.array_equal(
        exact.mean()[[2, 4, 6, 8, 0]].round(4), [0.4256, 0.7466, 0.5781, 0.5691, 0.7679]
    )
    assert np.allclose(exact.mean().reshape(-1, 2).sum(axis=1), 1, rtol=0, atol=1e-13)
    assert np.allclose(exact.class_counts.sum(axis=1), 1, rtol=0, atol=1e-13)
    assert np.allclose(
        exact.cdf(exact.interval(0.9).T), [[0.05], [0.95]], rtol=0, atol=1e-9
    )  # root finder: 1e-12 times a density below 20
    assert exact.names == nb.naive_bayes(100)[0].prior.names


def test_limits_of_the_noise():
    "Next to no noise: the conjugate posterior of the table. Nothing but noise: the prior."
    model, query = nb.naive_bayes(30, 3, 2, (2, 3), records=False)
    rng = np.random.default_rng(4)
    s = model.simulate(model.prior.sample(1, rng), rng)[0]
    table = np.rint(30 * s).reshape(3, 5)
    parts = [table[:, :2].sum(axis=1), *(part for row in table for part in (row[:2], row[2:]))]
    conjugate = np.concatenate([(2 + c) / (2 + c).sum() for c in parts])
    sharp = nb.exact_posterior(Release(s, query, Laplace(1e-4)), 30, 3, 2, (2, 3))
    assert np.allclose(
        sharp.mean(), conjugate, rtol=0, atol=1e-12
    )  # other tables weigh at most e^-600
    faint = nb.exact_posterior(Release(s, query, Laplace(1e9)), 30, 3, 2, (2, 3))
    prior = np.concatenate([np.full(len(c), 1 / len(c)) for c in parts])
    assert np.allclose(faint.mean(), prior, rtol=0, atol=1e-7) and faint.std()[0] == pytest.approx(
        stats.beta(2, 4).std(), abs=1e-7
    )


def test_relabelling_classes_relabels_the_posterior():
    release, query = nb.published(), nb.naive_bayes(100)[1]
    swapped = nb.exact_posterior(Release(np.roll(release.s_dp, 4), query, release.mechanism), 100)
    assert np.allclose(
        nb.exact_posterior(release, 100).mean()[[1, 0, 6, 7, 8, 9, 2, 3, 4, 5]],
        swapped.mean(),
        rtol=0,
        atol=1e-13,
    )


def test_draws_follow_the_marginals():
    model, query = nb.naive_bayes(15, 3, 1, 3, records=False)
    rng = np.random.default_rng(5)
    release = Release(
        model.simulate(model.prior.sample(1, rng), rng)[0] + 0.02, query, Laplace(0.1)
    )
    exact = nb.exact_posterior(release, 15, 3, 1, 3)
    draws = exact.sample(3000, rng)
    assert draws.names == exact.names and draws.info["log_evidence"] == exact.log_evidence
    for j, marginal in enumerate(exact.marginals):
        follows(draws.theta[:, j], marginal.cdf, alarm=1e-7)
    p, h = np.array([0.2, 0.5]), 1e-5
    slope = (exact.marginals[0].cdf(p + h) - exact.marginals[0].cdf(p - h)) / (2 * h)
    assert np.allclose(exact.marginals[0].pdf(p), slope, rtol=1e-5)  # differences: h² and 1e-16/h


def test_importance_finds_the_same_evidence():
    model, query = nb.naive_bayes(10, records=False)
    rng = np.random.default_rng(6)
    mechanism = Laplace.calibrate(query, 1)
    release = Release(
        mechanism.sample(model.simulate(np.array([nb.TRUTH]), rng)[0], rng), query, mechanism
    )
    posterior = importance(release, model, rng=rng, simulations=1000, progress=False)
    exact = nb.exact_posterior(release, 10)
    agrees(
        np.exp(posterior.info["log_evidence"] - exact.log_evidence),
        1,
        posterior.info["log_evidence_se"],
        verbose=False,
    )
    agrees(posterior.mean()[::2], exact.mean()[::2], posterior.mcse()[::2], verbose=False)


class Together(Mechanism):
    "Noise that is not independent from value to value."

    def log_prob(self, s_dp, s):
        return -((np.subtract(s_dp, s)).sum(-1) ** 2)


@pytest.mark.parametrize(
    "release, arguments",
    [
        (nb.published(), dict(n=100, classes=3)),
        (nb.published(), dict(n=0)),
        (nb.published(), dict(n=100, levels=(2, 2, 2))),
        (
            Release(nb.PUBLISHED, nb.naive_bayes(100)[1], DiscreteLaplace(0.04, step=0.01)),
            dict(n=100),
        ),
        (Release(nb.PUBLISHED, nb.naive_bayes(100)[1], Together()), dict(n=100)),
    ],
)
def test_exact_posterior_refuses(release, arguments):
    with pytest.raises(ValueError):
        nb.exact_posterior(release, **arguments)


@pytest.mark.parametrize(
    "change",
    [
        dict(n=0),
        dict(classes=1),
        dict(features=0),
        dict(levels=1),
        dict(levels=(2, 3, 2)),
        dict(concentration=0.0),
    ],
)
def test_table_bad_input(change):
    with pytest.raises(ValueError):
        nb.naive_bayes(**(dict(n=10) | change))


def test_owner_and_analyst_share_one_sensitivity():
    for records in (True, False):
        assert (
            isinstance(query := nb.naive_bayes(100, 3, 4, records=records)[1], Query)
            and query.sensitivity == 0.08
        )
