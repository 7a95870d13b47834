"""Diagnostics: known values, invariances, and edge cases, fast; false-alarm rates are measured in
the notebook.
"""

import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpsbi import DiscreteLaplace, Laplace, Posterior, Prior, Release
from dpsbi.checks import scores as classifier
from dpsbi.checks.calibration import _rank, coverage, ecdf_band, ecdf_p_value, sbc
from dpsbi.checks.scorecard import score
from dpsbi.checks.scores import (
    c2st,
    c2st_scores,
    ks,
    log_median_distance,
    mmd2,
    negative_log_density,
)
from dpsbi.models.model import Model
from dpsbi.simulators import counts as counts
from dpsbi.simulators import sir as sir

MODEL, QUERY, NOISE = counts.gamma_poisson(alpha=25, beta=1), counts.counting_query(), Laplace(5.0)


def exact(release, model, rng):
    return Posterior(
        counts.exact_posterior(25, 1, release).sample(200, rng), names=model.prior.names
    )


def weighted(release, model, rng):
    theta = model.prior.sample(2000, rng)
    return Posterior(
        theta,
        release.mechanism.log_prob(release.s_dp, model.simulate(theta, rng)),
        model.prior.names,
    )


@pytest.mark.thorough
def test_c2st_sees_what_differs_and_not_what_agrees():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(80, 2)), rng.normal(size=(80, 2))
    error = 1.4 * 0.5 / np.sqrt(160)
    assert abs(c2st(a, b, rng=rng, folds=2) - 0.5) < stats.norm.isf(1e-6 / 2) * error
    assert c2st(a, b + 2, rng=rng, folds=2) > 0.5 + stats.norm.isf(1e-6) * error


@pytest.mark.thorough
def test_c2st_is_the_same_for_one_seed_with_any_executor_and_any_units():
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(60, 1)), rng.normal(size=(60, 1))

    def scores(unit=1, executor=None):
        rng = np.random.default_rng(3)
        return c2st_scores(unit * a, unit * b, rng=rng, folds=2, executor=executor)

    alone = scores()
    for pool in (ThreadPoolExecutor(2), ProcessPoolExecutor(2)):
        with pool:
            assert np.array_equal(alone, scores(executor=pool))
    assert np.array_equal(alone, scores(unit=1024))
    with pytest.raises(TypeError, match="rng"):
        c2st(a, b)


def test_c2st_repeats_and_a_constant_parameter():
    rng = np.random.default_rng(4)
    a = np.column_stack([rng.normal(size=50), np.ones(50)])
    assert c2st_scores(a, a + [[0.3, 0]], rng=rng, repeats=2, folds=3).shape == (2, 3)


@settings(max_examples=30)
@given(n=st.integers(2, 30), m=st.integers(2, 30), d=st.integers(1, 3), seed=st.integers(0, 10**6))
def test_mmd2_is_symmetric_and_moves_with_its_units(n, m, d, seed):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(n, d)), rng.normal(1, 2, size=(m, d))
    value = mmd2(a, b, bandwidth=0.8)
    assert np.isclose(value, mmd2(b, a, bandwidth=0.8), atol=1e-12)
    assert np.isclose(value, mmd2(4 * a + 1, 4 * b + 1, bandwidth=3.2), atol=1e-9)
    assert np.isclose(mmd2(a, b), mmd2(4 * a, 4 * b), atol=1e-12)
    assert np.isclose(mmd2(a, b, z_score=True), mmd2(a / 2, b / 2, z_score=True), atol=1e-9)


def test_ks_names_the_parameter_that_is_wrong():
    rng = np.random.default_rng(5)
    found = ks(
        Posterior(rng.normal(size=(2000, 3)) + [0, 0.5, 0], names=list("abc")), [stats.norm.cdf] * 3
    )
    assert not found.agree(1e-6) and found.table()["adjusted"].idxmin() == "b"
    assert np.all(found.adjusted >= found.p_value) and found.adjusted.max() <= 1


@pytest.mark.thorough
@settings(max_examples=20)
@given(n=st.integers(5, 300), draws=st.integers(2, 60), alarm=st.sampled_from([0.01, 0.05, 0.2]))
def test_the_band_holds_the_diagonal_and_its_p_value_runs_from_0_to_1(n, draws, alarm):
    low, high = ecdf_band(n, draws, alarm)
    diagonal = np.arange(1, draws + 1) / (draws + 1)
    assert (
        np.all(low <= diagonal)
        and np.all(diagonal <= high)
        and np.all(np.diff(low) >= 0)
        and np.all(np.diff(high) >= 0)
    )
    assert ecdf_p_value(np.zeros(n, int), draws) <= (1 / (draws + 1)) ** n * 2 * draws + 1e-9
    assert 0 <= ecdf_p_value(np.random.default_rng(n).integers(0, draws + 1, n), draws) <= 1


@pytest.mark.thorough
@pytest.mark.parametrize("method", [exact, weighted])
def test_calibration_passes_the_exact_posterior_and_fails_a_narrow_one(method):
    how = dict(replications=150, draws=40, rng=np.random.default_rng(6), progress=False)
    right = sbc(method, MODEL, QUERY, NOISE, **how)
    assert right.uniform(1e-6) and coverage(right, alarm=1e-6).right()
    narrow = sbc(
        lambda *a: Posterior(method(*a).mean() + 0.3 * (exact(*a).theta - exact(*a).mean())),
        MODEL,
        QUERY,
        NOISE,
        **how,
    )
    assert not narrow.uniform(1e-6) and not coverage(narrow, alarm=1e-6).right()


def test_calibration_draws_truths_again_that_have_no_release():
    "Of those that fail above 25 no truth is left; one that always fails is refused."

    def failing(theta, rng):
        s = rng.poisson(theta).astype(float)
        s[theta[:, 0] > most] = np.nan
        return s

    how = dict(replications=30, draws=20, rng=np.random.default_rng(8), progress=False)
    most, model = 25.0, Model(MODEL.prior, failing)
    found = sbc(exact, model, QUERY, NOISE, **how)
    assert found.truths.max() <= 25 and found.truths.min() < 24
    most = 0.0
    with pytest.raises(ValueError, match="failed .NaN., so that nothing can be released"):
        sbc(exact, model, QUERY, NOISE, **how | dict(replications=1))


def test_calibration_over_processes():
    how = dict(replications=12, draws=20, progress=False)
    alone = sbc(exact, MODEL, QUERY, NOISE, rng=np.random.default_rng(7), **how)
    with ProcessPoolExecutor(2) as pool:
        assert np.array_equal(
            alone.positions,
            sbc(
                exact, MODEL, QUERY, NOISE, rng=np.random.default_rng(7), executor=pool, **how
            ).positions,
        )


def test_a_state_space_is_calibrated_as_a_model_is():
    village = sir.sir_state_space(100, (3.0, 6.0), initial=5)
    query, how = sir.infection_counts_query(village.times), dict(replications=3, draws=20)
    unmoved = lambda release, model, rng: Posterior(model.prior.sample(200, rng))
    rng = np.random.default_rng(9)
    found = sbc(unmoved, village, query, DiscreteLaplace(2.0), rng=rng, progress=False, **how)
    assert found.ranks.shape == (3, 2)


def test_calibration_warns_of_posteriors_worth_too_little():
    few = lambda release, model, rng: Posterior(model.prior.sample(30, rng), rng.normal(size=30))
    with pytest.warns(UserWarning, match="less than five times"):
        sbc(
            few,
            MODEL,
            QUERY,
            NOISE,
            replications=5,
            draws=20,
            rng=np.random.default_rng(8),
            progress=False,
        )


def test_scores():
    normal = Posterior(
        np.random.default_rng(9).normal(size=(4000, 1)),
        density=lambda t: stats.norm.logpdf(t[:, 0]),
    )
    assert np.isclose(negative_log_density(normal, 0.0), 0.5 * np.log(2 * np.pi))
    h2 = (
        4000**-0.4
        # Scott's rule: the estimate is a normal of variance 1 + h², up to noise; 40 draws within h
        # of 0
        # at least
    )
    assert abs(
        negative_log_density(normal, 0.0, by="kernel") - 0.5 * np.log(2 * np.pi * (1 + h2))
    ) < 4.9 / np.sqrt(4000 * np.sqrt(h2))
    failing = type(MODEL)(MODEL.prior, lambda theta, rng: theta * np.nan)
    assert (
        log_median_distance(
            normal,
            Release([1.0], QUERY, NOISE),
            failing,
            rng=np.random.default_rng(1),
            progress=False,
        )
        == np.inf
    )


@pytest.fixture
def nearest(monkeypatch):
    """Instead of networks, the label of the nearest row that is not held out.

    It knows every copy that it was shown, so it tells where copies lie at once.
    """

    def accuracy(x, labels, held_out, seed):
        distance = ((x[held_out, None] - x[~held_out]) ** 2).sum(axis=2)
        right = labels[~held_out][distance.argmin(axis=1)] == labels[held_out]
        return np.mean([right[labels[held_out] == k].mean() for k in (0, 1)])

    monkeypatch.setattr(classifier, "_accuracy", accuracy)


def few_worth():
    "Exact draws of a normal, of unequal weight, worth about 70; and a thousand of equal weight."
    rng = np.random.default_rng(11)
    theta = 5 * rng.normal(size=(900, 2))
    weighted = Posterior(
        theta, stats.norm.logpdf(theta).sum(1) - stats.norm(0, 5).logpdf(theta).sum(1)
    )
    assert 40 < weighted.ess < 80
    return weighted, rng.normal(size=(1000, 2))


def test_c2st_of_more_draws_than_they_are_worth_counts_copies_and_says_so(nearest):
    few, reference = few_worth()
    error = 1.4 * 0.5 / np.sqrt(2 * 600)
    with pytest.warns(UserWarning, match="their copies tell them apart") as said:
        told = c2st(reference, few, rng=np.random.default_rng(2), size=600)
    assert told > 0.5 + stats.norm.isf(1e-6) * error and said[0].filename == __file__


def test_c2st_of_what_draws_are_worth_finds_the_exact_ones_right(nearest):
    few, reference = few_worth()
    copies = few.resample(600, np.random.default_rng(1)).theta
    error = 1.4 * 0.5 / np.sqrt(2 * few.ess)
    assert (
        abs(c2st(reference, few, rng=np.random.default_rng(3)) - 0.5)
        < stats.norm.isf(1e-6 / 2) * error
    )
    with pytest.warns(UserWarning, match="are copies, worth"):
        assert c2st_scores(reference, copies, rng=np.random.default_rng(3)).shape == (1, 5)


def test_c2st_says_nothing_of_a_resample_of_what_weights_are_worth_or_of_whole_numbers(nearest):
    few, reference = few_worth()
    rng = np.random.default_rng(4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        c2st(reference, few.resample(int(few.ess), rng).theta, rng=rng, size=int(few.ess))
        c2st(rng.poisson(3.0, 100), rng.poisson(3.0, 100), rng=rng)


def test_score_has_no_width_that_cancels_over_seeds(nearest):
    exact = np.random.default_rng(5).normal(size=(500, 1))
    found = score(
        lambda rng: rng.choice([0.5, 2.0]) * exact, exact, seeds=(1, 2, 3, 4), size=50
    ).table()
    assert np.allclose(found.sd_factor, 2.0)


# ---- their parts
def test_a_truth_among_equal_draws_has_any_rank_among_them():
    ranks = {
        int(_rank(np.zeros((9, 1)), np.zeros(1), np.random.default_rng(k))[0]) for k in range(200)
    }
    assert ranks == set(range(10))


def test_four_ranks_of_zero_among_one_draw_each():
    assert ecdf_p_value(np.zeros(4, int), 1) == pytest.approx(2 / 16)


def test_bands_of_two_parameters_share_the_false_alarms():
    positions = np.random.default_rng(3).random((100, 2))
    made = SimpleNamespace(ranks=positions, positions=positions, names=("a", "b"))
    found = coverage(made, 0.9, alarm=0.04)
    assert np.all(found.low == stats.binom.ppf(0.01, 100, 0.9) / 100)


def test_a_distribution_function_is_farthest_off_just_before_a_draw():
    assert classifier._sup_one(np.array([0.9]), np.ones(1), lambda x: x) == 0.9


def test_draws_of_unequal_weight_are_worth_their_effective_number():
    x, log_w = np.linspace(0, 1, 500)[:, None], np.where(np.arange(500) % 25, -20.0, 0.0)
    a, b = Posterior(x, log_w, names=("x",)), Posterior(x + 0.2, names=("x",))
    worth = a.ess * b.ess / (a.ess + b.ess)
    found = ks(a, b)
    assert 0.01 < found.p_value[0] < 0.9
    assert found.p_value == pytest.approx(stats.kstwo.sf(found.distance, round(worth)))


def test_a_kernel_in_unconstrained_space_has_its_jacobian():
    prior = Prior(rate=stats.gamma(100))
    theta = stats.gamma(100).rvs(4000, random_state=1)[:, None]
    found = negative_log_density(
        Posterior(theta, names=("rate",)), [100.0], by="kernel", prior=prior
    )
    assert found == pytest.approx(-stats.gamma(100).logpdf(100), abs=0.1)
