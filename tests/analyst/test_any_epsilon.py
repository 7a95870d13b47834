"""One fit for a range of ε: what starts from it, and what refuses it."""

import numpy as np
import pytest
from scipy import stats

from dpsbi import (
    Budgets,
    Gaussian,
    Laplace,
    Model,
    Prior,
    Published,
    Query,
    Release,
    amortise,
    refine,
    sple,
    sppe,
)
from dpsbi.analyst.neural.amortise import Contexts, ranged
from dpsbi.analyst.neural.training import Training
from dpsbi.checks.testing import agrees
from dpsbi.privacy import identity
from dpsbi.simulators import counts as counts

MODEL, QUERY = counts.gamma_poisson(25, 1), counts.counting_query()
BUDGETS = Budgets(Laplace, 0.1, 10)


@pytest.fixture(scope="module")
def every():
    return amortise(
        QUERY,
        BUDGETS,
        MODEL,
        rng=np.random.default_rng(7),
        simulations=1000,
        training=Training(final_steps=100, members=1),
        progress=False,
    )


def release_at(epsilon, value=30.0):
    return Release([value], QUERY, Laplace.calibrate(QUERY, epsilon))


@pytest.mark.thorough
@pytest.mark.parametrize("epsilon", (0.2, 1.0))
def test_refine_starts_from_the_one_fit(every, epsilon):
    release, rng = release_at(epsilon), np.random.default_rng(1)
    rough = every.posterior(release, draws=1000, rng=rng)
    found = refine(rough, release, MODEL, rng=rng, simulations=4000, progress=False)
    truth = counts.exact_posterior(25, 1, release)
    agrees(found.mean(), [truth.mean], found.mcse())
    plain = stats.norm.isf(0.5e-6) * truth.std / found.ess**0.5
    assert abs(found.std()[0] - truth.std) < plain
    assert found.ess > 400  # of 4000; the counts themselves scatter


def test_refine_asks_the_network_at_the_releases_own_epsilon(every):
    answers = []
    for epsilon in (0.2, 5.0):
        release = release_at(epsilon)
        rough = every.posterior(release, draws=2000, rng=np.random.default_rng(1))
        answers.append(rough.std()[0])
    assert answers[1] < 0.9 * answers[0]


@pytest.mark.parametrize("method", (sppe, sple))
def test_a_range_is_no_mechanism_of_a_release(method):
    with pytest.raises(TypeError, match="amortise"):
        method(Release([30.0], QUERY, BUDGETS), MODEL, rng=np.random.default_rng(1))


@pytest.mark.thorough
def test_refine_starts_from_the_one_fit_where_values_are_missing():
    model = Model(
        Prior(mu=stats.norm(0, 1)), lambda theta, rng: rng.normal(theta, 0.5, (len(theta), 3))
    )
    query = Query(identity, sensitivity=1, norm="l2", dim=3)
    budgets, rng = Budgets(Gaussian, 0.5, 50, 1e-6, missing=0.5), np.random.default_rng(3)
    quick = dict(simulations=1000, training=Training(final_steps=20, members=1), progress=False)
    one = amortise(query, budgets, model, rng=rng, **quick)
    noise = budgets.mechanism(query, 20.0)
    release = Release([1.0, np.nan, 0.7], query, noise)
    rough = one.posterior(release, draws=1000, rng=rng)
    found = refine(rough, release, model, rng=rng, simulations=4000, progress=False)
    precision = 2 / (0.25 + noise.scale**2)  # of the two values that there are
    mean, sd = 0.85 * precision / (1 + precision), (1 + precision) ** -0.5
    agrees(found.mean(), [mean], found.mcse())
    assert abs(found.std()[0] - sd) < stats.norm.isf(0.5e-6) * sd / found.ess**0.5


def test_a_range_of_scales_is_a_range_of_epsilon():
    query, s = Query(identity, sensitivity=3, dim=1), np.random.default_rng(1).normal(size=(50, 1))
    budgets = Budgets.of_scales(Laplace, 0.5, 50.0, query, missing=0.2)
    assert np.isclose(budgets.low, 3 / 50) and np.isclose(budgets.high, 3 / 0.5)
    scale = budgets.mechanism(query, 3 / 40).scale  # above 40 by a unit: 3 / 40 is rounded down
    assert budgets.missing == 0.2 and 40.0 <= scale <= np.nextafter(40.0, 41)
    shown = Contexts.of(budgets, s)
    for scale in (0.5, 40.0, 50.0):
        assert np.isfinite(shown.at(Release([1.0], query, Laplace(scale)))).all()
    with pytest.raises(ValueError, match="trained for ε"):
        shown.at(Release([1.0], query, Laplace(0.4)))


def test_rounds_that_move_to_a_release_serve_a_range_of_epsilon():
    training = Training(steps=20, final_steps=60, members=1)
    about = dict(rounds=2, simulations=500, training=training, draws=500, progress=False)
    one = release_at(0.3, 45.0)
    found = sppe(
        one, MODEL, rng=np.random.default_rng(1), budgets=Budgets(Laplace, 0.1, 2), **about
    )
    vague, sharp = (
        found.estimator.posterior(release_at(e, 45.0), draws=2000, rng=np.random.default_rng(2))
        for e in (0.1, 2.0)
    )
    exact = [counts.exact_posterior(25, 1, release_at(e, 45.0)) for e in (0.1, 2.0)]
    assert exact[1].mean - exact[0].mean > 5  # a small network; its seed is fixed
    assert sharp.mean()[0] - vague.mean()[0] > 3
    with pytest.raises(ValueError, match="the release was made at 0.3"):
        sppe(one, MODEL, rng=np.random.default_rng(1), budgets=Budgets(Laplace, 1, 2), **about)
    with pytest.raises(TypeError, match="a range of ε"):
        sppe(one, MODEL, rng=np.random.default_rng(1), budgets=(0.1, 2), **about)


def test_what_is_suppressed_has_a_code_in_a_range_of_epsilon():
    def hidden(epsilon):
        return Published(Laplace(1 / epsilon), suppress_below=30)

    contexts = Contexts.of(Budgets(hidden, 0.1, 10), np.arange(50.0)[:, None])
    shown = contexts.at(Release([np.nan], QUERY, hidden(1.0)))
    assert np.isfinite(shown).all()
    assert ranged(Budgets(hidden, 0.1, 10), QUERY, contexts).parts[0][2] < np.log(0.11)
