"""Planning against closed forms, and what it refuses."""

import numpy as np
import pytest
from scipy import stats

from dpsbi import Budgets, Gaussian, Laplace, Model, Plan, Prior, Query, Release, plan
from dpsbi.analyst.budgets import Contexts
from dpsbi.checks.testing import agrees
from dpsbi.planning.candidates import Effort
from dpsbi.planning.yields import Questions, spreads, weights_of
from dpsbi.privacy import identity

QUERY = Query(identity, sensitivity=1 / 25, norm="l2", dim=1)
MODEL = Model(Prior(mean=stats.norm(0, 1)), lambda theta, rng: rng.normal(theta, 0.2))
EPSILONS, DELTA = (0.1, 1.0), 1e-6


@pytest.fixture(scope="module")
def found():
    return plan(
        MODEL,
        {"mean": (QUERY, Gaussian)},
        epsilons=EPSILONS,
        rng=np.random.default_rng(5),
        delta=DELTA,
        questions=Questions(excludes={"mean": 0.0}),
        effort=Effort(4000, releases=100),
        progress=False,
    )


def exact_sd():
    scales = np.array([Gaussian.calibrate(QUERY, e, DELTA).scale for e in EPSILONS])
    return (1 + 1 / (0.04 + scales**2)) ** -0.5


def test_a_normal_mean_has_its_closed_forms(found):
    sd = exact_sd()
    for what, exact in (("sd", sd), ("width", 2 * stats.norm.ppf(0.975) * sd)):
        _, value, error = found.curve("mean", "mean", what)
        agrees(value, exact, error)
    _, value, error = found.curve("mean", "mean", "information")
    agrees(value, -np.log(sd), error)
    _, value, error = found.curve("mean", "mean", "excludes")
    told = 2 * stats.norm.sf(stats.norm.ppf(0.975) * sd / np.sqrt(1 - sd**2))
    agrees(value, told, np.maximum(error, 0.01))


def test_what_made_a_release_does_not_weigh_it():
    s, own = np.arange(5.0)[:, None], np.array([0, 3])
    w = weights_of(Gaussian(1.0), s[own], s, own)
    assert (w[[0, 1], own] == 0).all() and np.allclose(w.sum(axis=1), 1)


def test_few_draws_do_not_understate_a_spread():
    values = np.random.default_rng(1).normal(size=(5, 20_000))
    sds = [spreads(np.full((1, 5), 0.2), column[:, None])[0, 0] ** 2 for column in values.T[:4000]]
    agrees(np.mean(sds), 1.0, np.std(sds) / len(sds) ** 0.5)  # false alarms: as `agrees` states


def test_the_least_epsilon_lies_between_those_that_do_and_do_not(found):
    sd = exact_sd()
    least = found.epsilon_for(sd=float(np.sqrt(sd[0] * sd[1]))).epsilon["mean"]
    assert 0.2 < least < 0.5  # the middle of log ε is 0.316, where log sd is a straight line
    assert np.isnan(found.epsilon_for(sd=0.01).epsilon["mean"])


def test_a_plan_survives_its_file(found, tmp_path):
    found.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json").rows == found.rows


def test_contexts_are_on_one_scale_at_every_budget():
    rng, query = np.random.default_rng(2), Query(identity, sensitivity=1, dim=1)
    s = rng.normal(50, 7, (4000, 1))
    contexts = Contexts.of(Budgets(Laplace, 0.01, 100), s)
    for epsilon in (0.01, 0.1, 100.0):
        noise = Laplace.calibrate(query, epsilon)
        log_epsilon = np.full(len(s), np.log(epsilon))
        shown = contexts.show(noise.sample(s, rng), contexts.noise(noise), log_epsilon)
        assert 0.9 < shown[:, 0].std() < 1.1  # 4,000 draws: 4 standard errors of 0.018, and grid
    with pytest.raises(ValueError, match="trained for ε"):
        contexts.at(Release([50.0], query, Laplace.calibrate(query, 200.0)))
