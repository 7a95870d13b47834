"""A release that the model does not reach: `infer` says so, and not of one that it reaches."""

import warnings

import numpy as np
import pytest
from scipy import stats

from dpsbi import (
    DiscreteLaplace,
    Gaussian,
    Laplace,
    Model,
    Posterior,
    Prior,
    Query,
    Release,
    StateSpace,
    infer,
)
from dpsbi.analyst.prior_data_conflict import noise_p_value
from dpsbi.mechanisms import Published
from dpsbi.privacy import identity

COUNTS = Query(identity, 1, step=1)
NOISE = DiscreteLaplace(2.0)
HIDING = Published(NOISE, round_to=5, suppress_below=5)
LOW, HIGH = Prior(rate=stats.uniform(0, 10)), Prior(rate=stats.uniform(0, 100))
BUDGET = dict(target_ess=200, max_simulations=12_000)


def four(theta, rng):
    return rng.poisson(theta, size=(len(theta), 4)).astype(float)


def heard(release, model, **options):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        rng = np.random.default_rng(1)
        found = infer(release, model, rng=rng, progress=False, **BUDGET | options)
    return found, " ".join(str(one.message) for one in said)


def step(state, rng, rate):
    return state, rng.poisson(rate)


def stepped(prior):
    return StateSpace.from_functions(lambda rng, rate: 0.0, step, prior, times=4)


RELEASES = {
    "all there": Release([90.0, 84, 93, 88], COUNTS, NOISE),
    "one missing": Release([90.0, np.nan, 93, 88], COUNTS, NOISE),
    "published": Release([90.0, 85, 95, 90], COUNTS, HIDING),
}


@pytest.mark.parametrize("release", RELEASES.values(), ids=RELEASES)
@pytest.mark.parametrize("prior", (LOW, HIGH), ids=("low", "high"))
def test_a_prior_that_ends_too_low_is_told_even_where_the_result_is_exact(release, prior):
    found, said = heard(release, Model(prior, four))
    told = "the model does not reach the release" in said
    assert found.exact and told == (prior is LOW) == bool(found.info["unreached"])
    assert found.info["why"].endswith(found.info["unreached"] + "." if told else "error.")


@pytest.mark.thorough
def test_it_is_told_of_a_state_space_too():
    found, said = heard(RELEASES["one missing"], stepped(HIGH))
    assert "does not reach" not in said and noise_p_value(RELEASES["one missing"], found) > 0.001
    low = found.anew(found.theta, found.log_weights, found.names, values=found.values / 10)
    assert noise_p_value(RELEASES["one missing"], low) < 0.001


def test_a_result_that_is_not_exact_is_asked_by_range():
    release = Release([90.0, np.nan, 80, 100], Query(identity, 1, norm="l2"), Gaussian(4.0))
    model = Model(LOW, lambda theta, rng: rng.normal(theta, 1, (len(theta), 4)))
    found, said = heard(release, model, neural=False)
    assert not found.exact and "where the model, at draws of this result, makes" in said


def test_no_false_alarm_in_a_hundred_releases_of_the_model_itself():  # by chance: 0.1 at most
    rng, noise = np.random.default_rng(5), Laplace(2.0)
    rates = stats.gamma(5).rvs(100, random_state=6)
    counts = np.arange(60.0)
    for rate, s in zip(rates, rng.poisson(rates)):
        release = Release(noise.sample(np.array([[float(s)]]), rng)[0], COUNTS, noise)
        law = stats.nbinom.pmf(counts, 5, 0.5) * np.exp(-np.abs(release.s_dp - counts) / 2)
        behind = rng.choice(counts, 200, p=law / law.sum())[:, None]
        draws = Posterior(behind, names=["s"], values=behind)
        assert noise_p_value(release, draws) > 0.001
