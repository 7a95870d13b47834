"What is compared, or predicted, belongs to one release."

import numpy as np
import pytest
from scipy import stats

import dpsbi
from dpsbi import DiscreteLaplace, Model, Posterior, Prior, Query, Release, StateSpace

QUIET = dict(progress=False)
PRIOR = Prior(rate=stats.gamma(4, scale=2))
IDENTITY = Query(lambda s: s, 1.0, step=1)
ONE, OTHER = (Release(y, IDENTITY, DiscreteLaplace(2.0)) for y in ([9.0, 7.0], [9.0, 8.0]))
ONE_WIDER = Release(ONE.s_dp, IDENTITY, DiscreteLaplace(3.0))


def counts(theta, rng):
    return rng.poisson(theta[:, :1], (len(theta), 2))


PLAIN = Model(PRIOR, counts)
APART = Model(PRIOR, counts, independent=True)


def start(rate, rng):
    return rate


def step(state, rng):
    return state, rng.poisson(state)


STEPS = StateSpace.from_functions(start, step, PRIOR, times=[1, 2])
ENGINES = {
    "importance": lambda r, g: dpsbi.importance(r, PLAIN, rng=g, rounds=2, **QUIET),
    "exact_abc": lambda r, g: dpsbi.exact_abc(r, PLAIN, draws=200, rng=g, **QUIET),
    "smc_abc": lambda r, g: dpsbi.smc_abc(r, PLAIN, draws=200, rng=g, **QUIET),
    "input_smc": lambda r, g: dpsbi.input_smc(r, PLAIN, draws=200, rng=g, **QUIET),
    "pseudo_marginal": lambda r, g: dpsbi.pseudo_marginal(r, APART, draws=100, rng=g, **QUIET),
    "a filter": lambda r, g: dpsbi.pseudo_marginal(r, STEPS, draws=50, rng=g, **QUIET),
    "infer": lambda r, g: dpsbi.infer(r, PLAIN, rng=g, target_ess=200, **QUIET),
    "infer, values apart": lambda r, g: dpsbi.infer(r, APART, rng=g, target_ess=200, **QUIET),
}
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def found():
    return {name: run(ONE, np.random.default_rng(1)) for name, run in ENGINES.items()}


@pytest.mark.thorough
@pytest.mark.parametrize("name", ENGINES)
def test_posteriors_of_different_releases_are_not_compared(name, found):
    other = dpsbi.importance(OTHER, PLAIN, rng=np.random.default_rng(2), rounds=2, **QUIET)
    wider = dpsbi.importance(ONE_WIDER, PLAIN, rng=np.random.default_rng(2), rounds=2, **QUIET)
    with pytest.raises(ValueError, match="different releases"):
        dpsbi.compare({"this": found[name], "that": other})
    assert len(dpsbi.compare({"this": found[name], "other noise": wider})) == 2


@pytest.mark.parametrize("name", [name for name in ENGINES if name != "a filter"])
def test_a_prediction_needs_the_release_of_its_posterior(name, found):
    about = dict(rng=np.random.default_rng(3), draws=50, **QUIET)
    assert len(dpsbi.predict(found[name], ONE, PLAIN, **about).replicates) == 50
    with pytest.raises(ValueError, match="of another release"):
        dpsbi.predict(found[name], OTHER, PLAIN, **about)


def test_a_saved_posterior_remembers_its_release(found, tmp_path):
    found["importance"].save(tmp_path / "draws.npz")
    again = Posterior.load(tmp_path / "draws.npz")
    with pytest.raises(ValueError, match="of another release"):
        dpsbi.predict(again, OTHER, PLAIN, rng=np.random.default_rng(3), **QUIET)


@pytest.mark.parametrize(
    "make, error, match",
    [
        (lambda one: [one, one], TypeError, "a mapping"),
        (lambda one: {"one": one, "other": one.theta}, TypeError, "a mapping"),
        (lambda one: {"one": one}, ValueError, "two models"),
    ],
)
def test_what_cannot_be_compared_is_refused(make, error, match, found):
    with pytest.raises(error, match=match):
        dpsbi.compare(make(found["importance"]))


@pytest.mark.parametrize(
    "prior",
    [{"a": 1.0}, {"a": 1.0, "c": 1.0}, {"a": 0.0, "b": 0.0}, {"a": -1.0, "b": 1.0}]
    + [{"a": np.inf, "b": 1.0}, {"a": np.nan, "b": 1.0}],
)
def test_prior_probabilities_that_are_none(prior, found):
    pair = {"a": found["importance"], "b": found["input_smc"]}
    with pytest.raises(ValueError, match="prior"):
        dpsbi.compare(pair, prior=prior)
