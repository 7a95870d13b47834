"""What `exact` and `max_simulations` promise.

Statistical checks are seeded; means are compared at 4.9 standard errors (false-alarm rate 1e-6
each).
"""

import importlib
import json
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

import dpsbi
from dpsbi import (
    DiscreteLaplace,
    Gaussian,
    Laplace,
    Mechanism,
    Model,
    Posterior,
    Prior,
    Query,
    Release,
)
from dpsbi.analyst.engines import InferenceTask
from dpsbi.analyst.importance import multistart as room
from dpsbi.analyst.importance import multistart as searches
from dpsbi.analyst.importance import proposals as proposals
from dpsbi.analyst.infer import _remedy, why
from dpsbi.analyst.neural.training import Shape, Training
from dpsbi.privacy import identity
from dpsbi.simulators import counts as counts
from dpsbi.simulators import linear_regression as lr
from dpsbi.simulators import sir as sir

TINY_FLOW = Shape(layers=1, hidden=8)
BRIEF = dict(training=Training(steps=5, final_steps=5, members=1, flow=TINY_FLOW))
COUNT = Release([37.4], counts.counting_query(), Laplace(5.0))
L2 = Query(identity, 1, norm="l2")
SHARP = Release([20.0, 21.0, 25.0, 23.0], Query(identity, 1), Laplace(1e-3))


def heard(release, model, seed=1, **kw):
    "What `infer` returns, and what it says."
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = dpsbi.infer(
            release,
            model,
            rng=np.random.default_rng(seed),
            progress=False,
            **dict(neural=BRIEF) | kw,
        )
    return found, said


def four(theta, rng):
    return rng.normal(theta, 1, (len(theta), 4))


GAMMA = Prior(theta=stats.gamma(25))


class BlackBox(Mechanism):
    "Laplace noise of which nothing is known but its draws."

    def sample(self, s, rng):
        return np.asarray(s, float) + rng.laplace(0, 5, np.shape(s))


# ---- modes: half of the posterior must not be missing where exact is said


def squared(d, noise):
    "The first value is the square of the first parameter: two modes, at -3 and 3."

    def simulate(theta, rng):
        s = np.column_stack([theta[:, 0] ** 2, theta[:, 1:]])
        return s + rng.normal(0, 0.3, s.shape)

    prior = Prior(**{f"t{j}": stats.norm(0, 5) for j in range(d)})
    return Release([9.0] + [3.0] * (d - 1), L2, Gaussian(noise)), Model(prior, simulate)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "d, noise, seed, target",
    [(7, 0.6, 8, 500), pytest.param(8, 0.7, 53, 2000, marks=pytest.mark.slow)],
)
def test_no_mode_is_missing_where_exact_is_said(d, noise, seed, target):
    found, _ = heard(*squared(d, noise), seed=seed, target_ess=target)
    assert found.exact and found.ess >= target
    assert abs(found.mean()[0]) < 4.9 * found.mcse()[0]
    assert 0.3 < found.weights[found.theta[:, 0] > 0].sum() < 0.7


def estimates(lost, off=3.0):
    """Estimates of four starts, of which one may have lost half of the posterior, as
    `_disagreement` asks for them.
    """
    log_z = np.array([0.05, -0.04, 0.02, 0.0])
    mean = np.zeros(4)
    if lost:
        log_z[0], mean[0] = -np.log(2), off
    each = {k: (np.array([log_z[k], mean[k]]), np.array([0.06, 0.1]), 300.0) for k in range(4)}
    each[None] = np.zeros(2), np.array([0.03, 0.05]), 1200.0
    return SimpleNamespace(starts=[0] * 4, prior=GAMMA, estimate=lambda k=None: each[k])


def test_a_start_that_lost_half_of_the_posterior_contradicts_the_others():
    assert room._disagreement(estimates(lost=False)) == ""
    for off in (3.0, -3.0, 0.0):  # of the mean; where two modes are alike, the evidence tells
        assert "independent starts disagree" in room._disagreement(estimates(lost=True, off=off))


@pytest.mark.thorough
def test_searches_that_lose_a_mode_are_not_called_exact(monkeypatch):
    "Each fit follows one mode only, the side chosen by its generator."
    whole = proposals.fit_proposal

    def one_sided(z, log_weights, floor, rng, **kw):
        side = z[:, 0] * (1 if rng.spawn(1)[0].random() < 0.5 else -1) > 0
        return whole(z[side], log_weights[side], floor, rng, **kw)

    monkeypatch.setattr(proposals, "fit_proposal", one_sided)
    monkeypatch.setattr(searches, "EARLIER_SHARE", 0.0)
    monkeypatch.setattr(searches, "DEFENSIVE_SHARE", 0.01)
    found, said = heard(*squared(5, 0.7), max_simulations=60_000)
    assert found.exact is False and "independent starts disagree" in found.info["reason"]
    assert "not exact" in str(said[0].message)
    assert abs(found.mean()[0]) < 4.9 * found.mcse()[0]  # and what is returned has both modes


# ---- the budget, counted by the simulator itself


class Counted:
    "How many data sets were simulated."

    def __init__(self, simulate):
        self.simulate, self.made = simulate, 0

    def __call__(self, theta, rng):
        self.made += len(theta)
        return self.simulate(theta, rng)


CASES = {
    "importance": (COUNT, GAMMA, counts.gamma_poisson(25, 1).simulate),
    "neural": (SHARP, GAMMA, four),
    "no density": (
        Release([37.4], COUNT.query, BlackBox()),
        GAMMA,
        counts.gamma_poisson(25, 1).simulate,
    ),
}


@pytest.mark.parametrize(
    "case, limit",
    [("importance", 1000), ("importance", 9000), ("neural", 1000), ("no density", 1000)],
)
def test_the_simulator_is_not_called_more_often_than_allowed(case, limit):
    release, prior, simulate = CASES[case]
    counted = Counted(simulate)
    found, _ = heard(release, Model(prior, counted), max_simulations=limit, target_ess=10**6)
    assert counted.made <= limit and counted.made == found.info["simulations"]
    assert counted.made > 0.8 * limit  # and what is allowed is used, where the target is far


@pytest.mark.thorough
@pytest.mark.parametrize("limit", [1000, 5000])
def test_chains_make_no_more_data_sets_than_allowed(limit):
    class Records(lr.RegressionRecords):
        made = 0

        def records(self, theta, rng):
            Records.made += len(theta)
            return super().records(theta, rng)

        def nearby(self, theta, x, size, rng):
            Records.made += len(theta)
            return super().nearby(theta, x, size, rng)

    found, _ = heard(lr.published(records=False), Records(100, 2), max_simulations=limit)
    assert Records.made <= limit and found.info["simulations"] == Records.made
    assert limit < 2000 or Records.made > 0.8 * limit  # the second run has what the first left


@pytest.mark.parametrize("scale", [1000.0, 1e-4])
def test_a_filter_follows_no_more_paths_than_allowed(scale):
    space = sir.sir_state_space(10**4, (0, 5, 10))
    made = []

    class Space:
        prior, times, step, observed = (
            space.prior,
            space.times,
            staticmethod(space.step),
            staticmethod(space.observed),
        )

        @staticmethod
        def start(theta, particles, rng):
            made.append(len(theta) * particles)
            return space.start(theta, particles, rng)

    release = Release([3.0, 40.0, 400.0], Query(identity, 1), Laplace(scale))
    found, _ = heard(release, Space(), max_simulations=15_000, target_ess=300)
    assert sum(made) <= 15_000 and found.info["simulations"] == sum(made)
    assert found.exact is False or (found.ess >= room.MIN_ESS and found.pareto_k <= 0.7)


def test_a_filter_needs_a_budget_that_a_pilot_run_does_not_use_up():
    space = sir.sir_state_space(10**4, (0, 5, 10))
    with pytest.raises(ValueError, match="max_simulations must be .* at least 12000"):
        heard(
            Release([3.0, 40.0, 400.0], Query(identity, 1), Laplace(1.0)),
            space,
            max_simulations=2000,
        )


# ---- what is not exact says so, and why


def test_heavy_tails_are_not_called_exact_and_the_table_says_which_column():
    model = Model(
        Prior(a=stats.t(3), b=stats.norm()),
        lambda theta, rng: np.tanh(theta) + rng.normal(scale=0.1, size=theta.shape),
    )
    found, _ = heard(Release([0.8, 0.0], L2, Gaussian(0.5)), model, max_simulations=15_000)
    assert not found.exact and "of a" in found.info["reason"]
    shown = Posterior(found.theta, found.log_weights, found.names)
    assert shown.summary().trust["a"] != "yes" and shown.summary().trust["b"] == "yes"


def test_a_simulator_that_ignores_rng_is_not_called_exact():
    frozen = Model(GAMMA, lambda theta, rng: np.random.default_rng(0).poisson(theta).astype(float))
    found, _ = heard(COUNT, frozen, max_simulations=20_000)
    assert found.exact is False and "does not take its randomness from rng" in found.info["reason"]


def test_a_deterministic_model_that_says_so_is_exact():
    curve = dict(prior=GAMMA, simulate=lambda theta, rng: 2 * theta)
    said_so, _ = heard(COUNT, Model(**curve, deterministic=True))
    silent, _ = heard(COUNT, Model(**curve))
    assert (
        said_so.exact is True
        and silent.exact is False
        and "deterministic=True" in silent.info["reason"]
    )


def test_values_certain_near_the_release_are_not_taken_for_a_forgotten_rng():
    "Above 3 the value is certain, below it is drawn: the prior's draws tell."

    def simulate(theta, rng):
        return np.where(theta < 3, rng.integers(0, 2, theta.shape), np.floor(theta))

    level = Model(Prior(level=stats.uniform(0, 10)), simulate)
    found, _ = heard(Release([8.0], COUNT.query, Laplace(0.5)), level)
    assert found.exact


def test_rare_events_are_not_taken_for_a_forgotten_rng():
    "Zeros at every parameter tell nothing of the generator."
    rare = Model(
        Prior(rate=stats.gamma(2, scale=1e-6)), lambda theta, rng: rng.poisson(theta).astype(float)
    )
    found, _ = heard(Release([0.3], COUNT.query, Laplace(1.0)), rare)
    assert found.exact


@pytest.fixture(scope="module")
def approximation():
    "What is found and said of a release that weights cannot solve, and how much was simulated."
    counted = Counted(four)
    return *heard(SHARP, Model(GAMMA, counted), max_simulations=1500), counted.made


@pytest.mark.thorough
def test_an_approximation_looks_like_one(approximation, tmp_path):
    found, said, made = approximation
    assert 0.8 * 1500 < made <= 1500 and made == found.info["simulations"]
    assert (
        found.exact is False
        and found.approximate
        and "neural approximation" in str(said[0].message)
    )
    assert (
        "ESS" not in repr(found)
        and "approximation" in repr(found)
        and "ESS" not in found._repr_html_().split("<div")[0]
    )
    assert (
        "mcse" not in found.summary()
        and set(found.summary().trust) == {"approximate"}
        and np.isnan(found.mcse()).all()
    )
    assert "approximation" in found.plot().axes[0].get_title(loc="left")
    network = next(line for line in found.info["history"] if line["engine"] == "neural posterior")
    assert np.isnan(network["ess"])
    found.save(tmp_path / "p.npz")
    assert Posterior.load(tmp_path / "p.npz").approximate


def test_the_evidence_survives_pooling():
    parts = [
        dpsbi.importance(
            COUNT,
            counts.gamma_poisson(25, 1),
            rng=np.random.default_rng(k),
            rounds=2,
            progress=False,
        )
        for k in (1, 2)
    ]
    from dpsbi.analyst.refine import pool

    whole = pool(parts, {})
    s = np.arange(400)
    truth = np.log(stats.nbinom(25, 0.5).pmf(s) @ np.exp(-np.abs(37.4 - s) / 5) / 10)
    assert abs(whole.log_evidence - truth) < 4.9 * whole.log_evidence_error < 0.2
    found, _ = heard(COUNT, counts.gamma_poisson(25, 1))
    assert abs(found.log_evidence - truth) < 4.9 * found.log_evidence_error < 0.2


# ---- warnings and errors that name what is wrong, and where


def test_warnings_point_at_the_callers_line():
    model = counts.gamma_poisson(25, 1)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        rough = dpsbi.importance(
            COUNT,
            model,
            rng=np.random.default_rng(1),
            rounds=1,
            simulations=100,
            target_ess=1e6,
            progress=False,
        )
        dpsbi.refine(
            rough,
            COUNT,
            model,
            rng=np.random.default_rng(2),
            simulations=100,
            target_ess=1e6,
            progress=False,
        )
        dpsbi.pseudo_marginal(
            COUNT,
            model,
            draws=10**4,
            particles=1,
            max_simulations=7000,
            rng=np.random.default_rng(3),
            progress=False,
        )
        dpsbi.infer(
            COUNT,
            model,
            rng=np.random.default_rng(4),
            max_simulations=1000,
            target_ess=1e6,
            progress=False,
        )
    assert len(said) >= 4 and {w.filename for w in said} == {__file__}


@pytest.mark.parametrize("method", [dpsbi.importance, dpsbi.infer])
def test_a_release_off_the_grid_is_blamed_on_the_grid(method):
    release = Release([0.5], Query(identity, 1), DiscreteLaplace(2.0))
    with pytest.raises(ValueError, match=r"value 1 is 0.5.*DiscreteLaplace\(.*never publishes"):
        method(release, counts.gamma_poisson(25, 1), rng=np.random.default_rng(1), progress=False)


@pytest.mark.thorough
def test_walkers_that_have_not_mixed_are_named_at_the_limit_of_the_other_methods(monkeypatch):
    disagreement = np.full(1, 1.05)
    monkeypatch.setattr(
        importlib.import_module("dpsbi.analyst.neural.sple"), "lasting_rhat", lambda _: disagreement
    )
    with pytest.warns(UserWarning, match="R-hat is 1.050, above 1.01"):
        dpsbi.sple(
            COUNT,
            counts.gamma_poisson(25, 1),
            rng=np.random.default_rng(1),
            rounds=1,
            simulations=250,
            draws=1000,
            training=Training(steps=0, final_steps=5, members=1, flow=TINY_FLOW),
            progress=False,
        )


# ---- same seed, same result; resumed, same result


def test_a_resumed_run_makes_the_same_draws_and_fewer_simulations(tmp_path):
    whole, _ = heard(COUNT, counts.gamma_poisson(25, 1))
    counted = Counted(counts.gamma_poisson(25, 1).simulate)
    heard(COUNT, Model(GAMMA, counted), checkpoint=tmp_path / "c")
    first, counted.made = counted.made, 0
    again, _ = heard(COUNT, Model(GAMMA, counted), checkpoint=tmp_path / "c")
    assert np.array_equal(whole.theta, again.theta) and np.array_equal(whole.weights, again.weights)
    assert counted.made <= 2 * 16 < first
    json.dumps(whole.info)


# ---- what is left for another engine


@pytest.mark.parametrize(
    "patient, spent",
    [(False, range(15_000)), pytest.param(True, range(30_000, 10**7), marks=pytest.mark.slow)],
)
def test_a_search_that_stalls_is_given_up_without_patience(patient, spent):
    model = Model(GAMMA, lambda theta, rng: rng.poisson(theta, (len(theta), 30)).astype(float))
    s_dp = np.random.default_rng(3).poisson(25.0, 30) + np.random.default_rng(4).integers(-2, 3, 30)
    release = Release(s_dp, Query(identity, 1, step=1, dim=30), DiscreteLaplace(2.0))
    found = room.consensus(
        release, model, rng=np.random.default_rng(1), patient=patient, progress=False
    )
    assert not found.exact and found.info["simulations"] in spent


def test_without_patience_good_weights_are_the_same():
    one, other = (
        room.consensus(
            COUNT,
            counts.gamma_poisson(25, 1),
            rng=np.random.default_rng(1),
            patient=patient,
            progress=False,
        )
        for patient in (True, False)
    )
    assert one.exact and np.array_equal(one.theta, other.theta)


def drawn_last(theta, rng):
    return rng.poisson(theta, (len(theta), 10)).astype(float)


def ten_counts():
    "A release of ten counts, and the posterior mean of their rate by quadrature."
    noise, s = DiscreteLaplace(2.0), np.arange(150.0)
    s_dp = noise.sample(
        np.random.default_rng(5).poisson(25.0, 10).astype(float), np.random.default_rng(6)
    )
    release = Release(s_dp, Query(identity, 1, step=1, dim=10), noise)
    rate = np.linspace(5, 60, 2001)
    eta = np.exp(np.stack([noise.log_prob(np.array([y]), s[:, None]) for y in s_dp]))
    log_like = np.log(eta @ stats.poisson.pmf(s[:, None], rate)).sum(axis=0)
    log_p = log_like + stats.gamma(25).logpdf(rate)
    w = np.exp(log_p - log_p.max())
    return release, w @ rate / w.sum()


def sums_of_two(theta, rng):
    "The same law; no value is a draw."
    return rng.poisson(theta / 2, (2, len(theta), 10)).sum(axis=0).astype(float)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "simulate, engine",
    [(drawn_last, "importance, counts summed out"), (sums_of_two, "moves of random inputs")],
)
def test_infer_solves_ten_counts_where_weights_cost_five_hundred_simulations_a_draw(
    simulate, engine
):
    release, mean = ten_counts()
    found, _ = heard(release, Model(GAMMA, simulate), target_ess=400, max_simulations=60_000)
    assert found.exact and found.info["engine"] == engine
    told = " ".join(str(found).split("\n")[1:])
    assert told == found.info["why"] and f"Found by {engine}" in told and "Exact: " in told
    assert ("left: adaptive importance (" in told) == (simulate is sums_of_two)
    assert ("draws counts last" in told) == (simulate is drawn_last)
    assert "\n" not in repr(found)
    assert abs(found.mean()[0] - mean) < 4.9 * found.mcse()[0]


def test_weights_that_are_only_too_few_are_drawn_again(monkeypatch):
    module = sys.modules["dpsbi.analyst.engines"]
    asked = []

    def few(*given, target_ess, **more):
        found = room.consensus(*given, target_ess=target_ess, **more)
        asked.append(target_ess)
        if len(asked) == 1:
            found.info.update(exact=False, reason="the mean of theta rests on a few draws")
        return found

    monkeypatch.setattr(module, "consensus", few)
    found, _ = heard(COUNT, counts.gamma_poisson(25, 1), target_ess=500)
    assert asked == [500, 2000] and found.exact


# ---- dear simulators, and what the analyst could say


def test_two_thousand_calls_are_all_kept():  # false alarms: 1e-6 each
    "The regression at ε = 10: too few for four searches, enough for one whose calls all count."
    made = []
    whole = lr.linear_regression(100, 2, records=False)[0]

    def counted(theta, rng):
        made.append(len(theta))
        return whole.simulate(theta, rng)

    release, model = lr.published(records=False), Model(whole.prior, counted)
    found, said = heard(release, model, max_simulations=2000)
    assert sum(made) == found.info["simulations"] <= 2000 and not found.exact
    assert found.info["engine"] == "importance, every call kept" and found.ess > 60
    assert max(line["simulations"] for line in found.info["history"]) > 1850
    exact = Posterior.load(Path(__file__).parents[2] / "nbs/references/regression.npz")
    z = (found.mean() - exact.mean()) / np.hypot(found.mcse(), exact.mcse())
    assert np.abs(z).max() < 4.9


def test_importance_without_patience_ends_where_it_gets_nowhere():
    how = dict(rounds=15, simulations=50, progress=False)
    rounds = []
    for patient in (True, False):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rng = np.random.default_rng(1)
            found = dpsbi.importance(SHARP, Model(GAMMA, four), rng=rng, patient=patient, **how)
        rounds.append(found.info["rounds"])
    assert rounds == [15, 11]


def test_an_easy_problem_is_exact_from_two_thousand_calls():
    found, _ = heard(COUNT, counts.gamma_poisson(25, 1), target_ess=400, max_simulations=2000)
    assert found.exact and found.info["history"][0]["engine"] == "look at the prior"


def test_what_is_not_exact_says_what_the_model_could_tell(approximation):
    found, said, _ = approximation
    text = str(said[0].message)
    names = "start and step", "StateSpace.from_functions", "independent=True"
    assert not found.exact and all(name in text for name in names)
    assert found.info["remedy"] in text
    told = str(found).replace("\n", " ")
    assert "Found by neural posterior" in told and f"Not exact: {found.info['reason']}" in told
    single = Release([37.4], counts.counting_query(), Laplace(1e-4))
    one, _ = heard(single, Model(GAMMA, lambda theta, rng: rng.normal(theta)), max_simulations=1000)
    assert not one.exact and one.info["remedy"] == ""


def test_a_number_that_rests_on_few_draws_has_a_remedy_of_its_own(approximation):
    found, _, _ = approximation
    of_tail = _remedy(None, "the sd of spread rests on a few draws")
    assert "lighter tails" in of_tail and "start and step" not in of_tail
    assert of_tail.strip() != found.info["remedy"]


def test_a_start_that_is_done_early_is_no_trouble_to_those_that_stall():
    "An impatient search in which one start is done after a few rounds, and others go on."
    quick, slow = (searches.Start(None, [0.1, *[p] * n], []) for p, n in ((1.0, 2), (0.2, 8)))
    assert searches._slow([quick, slow], 8) and not searches._slow([quick, quick], 8)


# ---- the evidence, where a few draws hold it


FEW_PERSONS = Release([5.0, 7.0, 1.0, -1.0], Query(identity, 2), DiscreteLaplace(0.5))
POLES = Model(
    Prior(p=stats.dirichlet([0.25] * 4)),
    lambda theta, rng: rng.multinomial(13, theta).astype(float),
)


@pytest.mark.parametrize("shape", [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.9, 1.2, 1.5, 2.0, 3.0])
def test_a_doubtful_tail_index_reaches_the_error_of_the_evidence(shape):
    log_w = shape * np.random.default_rng(1).exponential(size=4000)  # Pareto of this index
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        told = proposals.about_evidence((-3.0, 0.1), log_w)
        again = proposals.about_evidence((-3.0, 0.1), log_w, heard=False)
    assert told == again == dict(log_evidence=-3.0, log_evidence_se=0.1 if shape < 0.7 else np.inf)
    assert [str(each.message)[:34] for each in said] == ["log_evidence rests on a few draws "] * (
        shape > 0.7
    )


ENGINES = {
    "importance": lambda rng: dpsbi.importance(
        FEW_PERSONS, POLES, rng=rng, rounds=5, simulations=100
    ),
    "one round": lambda rng: dpsbi.importance(
        FEW_PERSONS, POLES, rng=rng, rounds=1, simulations=500
    ),
    "smc_abc": lambda rng: dpsbi.smc_abc(
        FEW_PERSONS, POLES, rng=rng, draws=100, max_simulations=8000
    ),
    "consensus": lambda rng: room.consensus(FEW_PERSONS, POLES, rng=rng, max_simulations=2000),
    "thirty rounds": lambda rng: dpsbi.importance(
        FEW_PERSONS, POLES, rng=rng, rounds=30, simulations=50, patient=False
    ),
    "infer": lambda rng: dpsbi.infer(
        FEW_PERSONS, POLES, rng=rng, max_simulations=1000, neural=False
    ),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", ENGINES)
def test_no_engine_states_an_error_that_its_weights_do_not_tell(name):
    "The enumerated evidence is -9.544; a run said -9.961 with an error of 0.085."
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = ENGINES[name](np.random.default_rng(0))
    assert found.pareto_k > 0.7 and found.log_evidence_error == np.inf
    assert any("log_evidence rests on" in str(each.message) for each in said)


def test_what_is_compared_with_a_doubtful_evidence_has_no_error():
    sure = [Posterior(np.arange(9.0), info=dict(log_evidence=z, log_evidence_se=e)) for z, e in
            ((-1.0, 0.1), (-2.0, 0.2))]  # fmt: skip
    doubtful = Posterior(np.arange(9.0), info=dict(log_evidence=-1.5, log_evidence_se=np.inf))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        known = dpsbi.compare(dict(a=sure[0], b=sure[1]))
    assert np.isfinite(known.drop(columns="exact").astype(float)).all(axis=None)
    with pytest.warns(UserWarning, match="of 'c' rests on a few draws"):
        table = dpsbi.compare(dict(a=sure[0], b=sure[1], c=doubtful))
    assert np.isinf(table.probability_error).all() and np.isinf(table.factor_error["c"])
    assert table.factor_error["b"] == known.factor_error["b"]


def test_the_evidence_of_rounds_is_that_of_their_own_weights():
    "By hand: each round under the proposals that it had, as much as its power; one round: plain."
    prior, rng = Prior(a=stats.norm()), np.random.default_rng(5)
    run = proposals.Rounds(prior, prior, defensive=0.1)
    means, powers, sizes = [], [], (300, 200, 100)
    for n in sizes:
        powers.append(run.adapt(rng))
        z = run.propose(n, rng)
        log_eta = stats.norm(2.0, 0.1).logpdf(z[:, 0])
        run.add(z, log_eta)
        density = [np.exp(each.log_prob(z)) for each in run.proposals]
        own = sum(k * q for k, q in zip(run.history[-1], density)) / n
        means.append(np.exp(log_eta) * density[0] / own)
        if len(means) == 1:
            assert run.evidence() == proposals.evidence(run.log_weights)
    assert powers[0] == 0 < powers[1] < powers[2] <= 1
    share = np.array(powers) * sizes / (np.array(powers) @ sizes)
    mean = share @ [w.mean() for w in means]
    error = np.sqrt(share**2 @ [w.var() / len(w) for w in means]) / mean
    np.testing.assert_allclose(run.evidence(), (np.log(mean), error), rtol=1e-9)
    exact = stats.norm(0, np.hypot(1, 0.1)).logpdf(2.0)
    assert abs(run.evidence()[0] - exact) < 4.9 * run.evidence()[1]  # false alarm: 1e-6


def test_evidence_is_pooled_from_parts_that_know_their_error():
    rng = np.random.default_rng(1)
    about = [dict(log_evidence=-2.0, log_evidence_se=0.1), dict(log_evidence=-7.0)]
    about[1]["log_evidence_se"] = np.inf
    parts = [Posterior(rng.normal(size=500), rng.normal(size=500) / 9, info=i) for i in about]
    from dpsbi.analyst.refine import pool

    whole = pool(parts, {})
    assert np.allclose([whole.log_evidence, whole.log_evidence_error], [-2.0, 0.1])
    doubtful = [Posterior(np.arange(500.0), 2 * rng.exponential(size=500), info=about[0])] * 2
    assert pool(doubtful, {}).log_evidence_error == np.inf


def test_a_run_without_an_error_of_its_evidence_confirms_no_other():
    from dpsbi.analyst.engines import disagreement

    theta, log_w = np.random.default_rng(1).normal(size=(2, 900))
    parts = [
        Posterior(theta, log_w / 9, info=dict(log_evidence=-2.0, log_evidence_se=error))
        for error in (0.1, np.inf)
    ]
    assert "rests on a few draws" in disagreement(*parts) and disagreement(parts[0], parts[0]) == ""


def test_simulations_of_attempts_that_were_left_are_told():
    release, model = (
        SimpleNamespace(mechanism=dpsbi.Laplace(1.0)),
        SimpleNamespace(independent=False),
    )
    history = [
        dict(engine="importance", simulations=500, ess=12.0),
        dict(engine="input_smc", simulations=200, ess=900.0),
    ]
    task = InferenceTask(release, model, 800, 1000, None, {}, {}, history)
    said = why(task, SimpleNamespace(info={}), 1, "")
    assert "after 700 simulations in all; left: importance (worth 12 draws)" in said
