"""The confidential values behind a release: that they belong to their draws of theta, and follow
the exact posterior, by every engine that keeps them."""

from dataclasses import dataclass, replace
from functools import wraps

import numpy as np
import pytest
from scipy import special, stats

from dpsbi import (
    DiscreteLaplace,
    Model,
    Prior,
    Query,
    Release,
    da_mcmc,
    exact_abc,
    importance,
    infer,
    input_smc,
    predict,
    refine,
    smc_abc,
)
from dpsbi.analyst.importance.multistart import consensus
from dpsbi.analyst.refine import pool
from dpsbi.checks.testing import agrees
from dpsbi.posterior.plots import curve
from dpsbi.posterior.posterior import Posterior, pack, unpack
from dpsbi.posterior.weights import Thinned
from dpsbi.privacy import identity


@pytest.fixture
def posterior():
    rng = np.random.default_rng(1)
    theta = rng.normal(size=(400, 2))
    return Posterior(theta, rng.normal(size=400), ("a", "b"), values=theta @ [[1, 2, 3], [4, 5, 6]])


def of_theta(p):
    "Whether the values still belong to the draws of theta."
    return np.array_equal(p.values, p.theta @ [[1, 2, 3], [4, 5, 6]])


def test_values_stay_with_their_draws(posterior):
    few = posterior.resample(1000, np.random.default_rng(2))
    assert of_theta(posterior) and of_theta(few)
    assert np.array_equal(posterior.derive(c=lambda a, b: a + b).values, posterior.values)
    assert of_theta(unpack(pack(posterior)))
    confidential = posterior.confidential
    assert np.array_equal(confidential.weights, posterior.weights)
    assert confidential.names == ("s[0]", "s[1]", "s[2]")


def test_without_values_nothing_changes(posterior):
    plain = Posterior(posterior.theta, posterior.log_weights, posterior.names)
    assert not hasattr(plain, "confidential") and getattr(plain, "confidential", None) is None
    assert b"values" not in pack(plain)
    one, other = (p.resample(50, np.random.default_rng(3)).theta for p in (plain, posterior))
    assert np.array_equal(one, other)


def test_what_is_said_of_the_values():
    info = dict(
        method="m", exact=True, chains=2, log_evidence=-1.0, values=["x"], values_rhat=[1.0]
    )
    found = Posterior(np.zeros(8), None, None, info, values=np.arange(8.0)).confidential
    assert found.names == ("x",) and found.exact and found.info["chains"] == 2
    assert found.log_evidence is None and found.info["rhat"] == [1.0]


def test_a_failed_simulation_has_no_values():
    values = [[np.nan], [2.0], [3.0]]
    found = Posterior(np.zeros(3), [-np.inf, 0.0, 1.0], values=values).confidential
    assert np.isfinite(found.theta).all() and found.weights[0] == 0
    assert np.isclose(found.mean()[0], found.weights[1:] @ [2.0, 3.0])


@pytest.mark.parametrize(
    "values", [np.zeros((3, 1)), np.zeros((4, 0)), np.zeros((4, 1, 1)), np.full((4, 2), np.nan)]
)
def test_values_that_cannot_be_are_refused(values):
    with pytest.raises(ValueError, match="values must"):
        Posterior(np.zeros(4), values=values)


def test_many_values_are_drawn_along_their_index():
    about = dict(of="confidential values")
    many = Posterior(np.random.default_rng(4).normal(size=(50, 365)), info=about)
    fig = many.plot(released=np.r_[np.nan, np.zeros(364)])
    assert len(fig.axes) == 1
    with pytest.raises(ValueError, match="released must hold 365 values"):
        curve(many, released=[1.0])


# Three counts with a gamma prior, and one to come: everything is a sum.

PRIOR = Prior(rate=stats.gamma(9))
RELEASED = Release([14.0, 9.0, 13.0], Query(identity, 1), DiscreteLaplace(3.0))


def poisson(theta, rng):
    return rng.poisson(theta, (len(theta), 3))


def one_more(theta, rng):
    return rng.poisson(theta, (len(theta), 4))


COUNTS = Model(PRIOR, poisson)
AHEAD = Model(PRIOR, one_more, beyond=1)


def enumerated():
    "p(s_j | s_dp) (3, K), and the mean of rate × s_j (3,), by sums."
    rate, k = np.linspace(0.5, 30, 1500), np.arange(60)
    poisson = stats.poisson.pmf(k[:, None], rate)
    eta = stats.dlaplace(1 / 3).pmf(RELEASED.s_dp[:, None] - k)
    weight = PRIOR.log_prob(rate[:, None]) + np.log(eta @ poisson).sum(axis=0)
    weight = special.softmax(weight)
    each = eta[:, :, None] * poisson
    each /= each.sum(axis=1, keepdims=True)
    return each @ weight, np.einsum("jkt,t,t,k->j", each, weight, rate, k)


def follow(found, alarm=1e-6):
    "The values follow their exact law, and belong to their draws of the rate."
    law, product = enumerated()
    k = np.arange(law.shape[1])
    for j in range(3):
        s = found.values[:, [j]]
        likely = law[j] > 5e-3
        columns = np.hstack([s == k[likely], s, found.theta * s]).astype(float)
        exact = np.r_[law[j][likely], law[j] @ k, product[j]]
        estimate = Posterior(columns, found.log_weights, None, found.info)
        agrees(estimate.mean(), exact, estimate.mcse(True), alarm=alarm / 3, verbose=False)


QUIET = dict(progress=False)
ENGINES = {
    "importance": lambda m, rng: importance(
        RELEASED, m, rng=rng, rounds=3, simulations=6000, **QUIET
    ),
    "exact_abc": lambda m, rng: exact_abc(RELEASED, m, rng=rng, draws=6000, **QUIET),
    "control": lambda m, rng: exact_abc(RELEASED, m, rng=rng, draws=6000, control=0.1, **QUIET),
    "smc_abc": lambda m, rng: smc_abc(RELEASED, m, rng=rng, draws=3000, **QUIET),
    "input_smc": lambda m, rng: input_smc(RELEASED, m, rng=rng, draws=1000, **QUIET),
    "infer": lambda m, rng: infer(RELEASED, m, rng=rng, max_simulations=20_000, **QUIET),
}


@pytest.mark.parametrize("name", ENGINES)
def test_values_follow_their_exact_law(name):
    found = ENGINES[name](AHEAD, np.random.default_rng(5))
    follow(found)
    assert found.confidential.names == ("s[0]", "s[1]", "s[2]", "beyond[0]")
    coming = found.confidential.theta[:, 3:] - found.theta
    estimate = Posterior(coming, found.log_weights, None, found.info)
    agrees(estimate.mean(), 0.0, estimate.mcse(), alarm=1e-6, verbose=False)


@pytest.fixture(scope="module")
def weighed():
    return ENGINES["importance"](COUNTS, np.random.default_rng(6))


def test_shuffled_values_are_noticed(weighed):
    shuffled = np.random.default_rng(7).permutation(weighed.values)
    with pytest.raises(AssertionError):
        follow(replace(weighed, values=shuffled))
    plain = weighed.resample(5000, np.random.default_rng(8))  # the same law, other partners
    mixed = replace(plain, values=np.random.default_rng(9).permutation(plain.values))
    with pytest.raises(AssertionError):
        follow(mixed)


def test_refined_and_recycled_values(weighed):
    rough = weighed.resample(500, np.random.default_rng(1))
    follow(refine(rough, RELEASED, COUNTS, rng=np.random.default_rng(2), simulations=15_000))
    bare = replace(weighed, values=None)
    both = pool([bare, weighed], {})
    assert len(both) == 2 * len(weighed) and len(both.with_values()) == len(weighed)
    assert np.array_equal(both.with_values().values, weighed.values)
    follow(pool([weighed, weighed], {}).with_values(), alarm=1e-9)


def test_pooled_selections_belong_to_their_own_draws():
    theta = np.arange(10.0)[:, None]
    rows = np.array([1, 4, 8])
    parts = [
        Posterior(start + theta, None, "x", values=Thinned(start + theta[rows] + 0.5, rows))
        for start in (0.0, 100.0)
    ]
    few = pool(parts, {}).with_values()
    assert few.theta[:, 0].tolist() == [1, 4, 8, 101, 104, 108]
    assert np.array_equal(few.values, few.theta + 0.5)


@pytest.mark.parametrize("name", ["importance", "exact_abc", "smc_abc"])
def test_few_values_are_kept_of_very_many(name, monkeypatch):
    whole = ENGINES[name](COUNTS, np.random.default_rng(10))
    monkeypatch.setattr("dpsbi.posterior.weights.MAX_KEPT_NUMBERS", 12_000)
    thin = ENGINES[name](COUNTS, np.random.default_rng(10))
    assert np.array_equal(whole.theta, thin.theta) and np.array_equal(whole.weights, thin.weights)
    few = thin.with_values()
    assert isinstance(thin.values, Thinned) and len(few) <= 4000 < len(thin)
    follow(few)
    assert np.array_equal(thin.confidential.weights, few.weights)


@pytest.mark.thorough
def test_chains_keep_every_so_many_th_draw(monkeypatch):
    whole = ENGINES["input_smc"](COUNTS, np.random.default_rng(11))
    monkeypatch.setattr("dpsbi.posterior.weights.MAX_KEPT_NUMBERS", 3_000)
    thin = ENGINES["input_smc"](COUNTS, np.random.default_rng(11))
    few = thin.with_values()
    assert np.array_equal(whole.theta, thin.theta) and few.values.size <= 3_000
    assert few.info["chains"] == thin.info["chains"]
    assert np.array_equal(few.values, whole.values[thin.values.rows])


@dataclass
class Coin:
    "Twelve coins with one unknown chance: a latent model whose posterior is a sum."

    names = ("chance",)
    n = 12

    def start(self, chains, rng):
        return rng.beta(2, 2, (chains, 1))

    def records(self, theta, rng):
        return (rng.random((len(theta), self.n, 1)) < theta[:, None]).astype(float)

    def contributions(self, x):
        return x

    def update(self, theta, x, rng):
        heads = x.sum(axis=(1, 2))
        return rng.beta(2 + heads, 2 + self.n - heads)[:, None]


def test_sums_over_records_follow_their_exact_law(monkeypatch):
    release = Release([9.0], Query(identity, 1), DiscreteLaplace(2.0))
    options = dict(draws=16_000, rng=np.random.default_rng(12), warmup=40, **QUIET)
    found = da_mcmc(release, Coin(), **options)
    k = np.arange(13)
    law = stats.betabinom(12, 2, 2).pmf(k) * stats.dlaplace(1 / 2).pmf(9 - k)
    law /= law.sum()
    s, theta = found.values[:, 0], found.theta[:, 0]
    columns = np.column_stack([s[:, None] == k, theta * s]).astype(float)
    product = law @ (k * (2 + k) / 16)
    estimate = Posterior(columns, None, None, found.info)
    agrees(estimate.mean(), np.r_[law, product], estimate.mcse(), alarm=1e-6, verbose=False)
    assert found.confidential.info["rhat"] == found.info["values_rhat"]
    monkeypatch.setattr("dpsbi.analyst.mcmc.da_mcmc.MAX_KEPT_NUMBERS", 4000)
    thin = da_mcmc(release, Coin(), **options | dict(rng=np.random.default_rng(12)))
    assert np.array_equal(thin.theta, found.theta) and thin.values.s.size <= 4000 + 64
    assert np.array_equal(thin.with_values().values, found.values[thin.values.rows])


def test_a_resumed_run_keeps_the_same_values(tmp_path, monkeypatch):
    monkeypatch.setattr("dpsbi.posterior.weights.MAX_KEPT_NUMBERS", 6000)
    options = dict(simulations=1500, **QUIET)
    whole = importance(RELEASED, COUNTS, rng=np.random.default_rng(13), rounds=4, **options)
    for rounds in (2, 4):
        options["checkpoint"] = tmp_path / "run.npz"
        rng = np.random.default_rng(13)
        part = importance(RELEASED, COUNTS, rng=rng, rounds=rounds, **options)
    assert np.array_equal(part.values.rows, whole.values.rows)
    assert np.array_equal(part.confidential.theta, whole.confidential.theta)


@pytest.mark.thorough
@pytest.mark.parametrize("engine", [consensus, smc_abc])
def test_a_killed_run_keeps_the_same_values(engine, tmp_path):
    options = dict(max_simulations=20_000, **QUIET)
    options |= dict(draws=2000) if engine is smc_abc else dict(target_ess=2000)
    whole = engine(RELEASED, COUNTS, rng=np.random.default_rng(14), **options)
    calls = []

    @wraps(poisson)
    def failing(theta, rng):
        calls.append(len(theta))
        if sum(calls) > 0.8 * whole.info["simulations"]:
            raise KeyboardInterrupt
        return poisson(theta, rng)

    options["checkpoint"] = tmp_path / "run.npz"
    with pytest.raises(KeyboardInterrupt):
        engine(RELEASED, Model(PRIOR, failing), rng=np.random.default_rng(14), **options)
    again = engine(RELEASED, COUNTS, rng=np.random.default_rng(14), **options)
    assert np.array_equal(again.theta, whole.theta)
    assert np.array_equal(again.values, whole.values)


def test_a_value_that_was_not_published_has_a_posterior():
    lost = Release([14.0, np.nan, 13.0], Query(identity, 1), DiscreteLaplace(3.0))
    found = importance(lost, COUNTS, rng=np.random.default_rng(15), simulations=3000, **QUIET)
    moved = input_smc(lost, COUNTS, draws=500, rng=np.random.default_rng(16), **QUIET)
    for each in (found, moved):
        gap = Posterior(each.confidential["s[1]"] - each["rate"], each.log_weights, None, each.info)
        agrees(gap.mean(), 0.0, gap.mcse(), alarm=1e-6, verbose=False)
    a, b = found.confidential, moved.confidential
    agrees(a.mean(), b.mean(), np.hypot(a.mcse(), b.mcse()), alarm=1e-6, verbose=False)


@pytest.mark.thorough
def test_batches_of_which_all_fail_have_values_too():
    def stubborn(rate, rng):
        counts = rng.poisson(rate, 4)
        if rate < 11:
            raise ArithmeticError("no convergence")
        return counts

    model = Model.from_function(stubborn, PRIOR, failures="nan", beyond=lambda x: x[:, 3:])
    three = Release(RELEASED.s_dp, Query(lambda x: x[:, :3], 1), RELEASED.mechanism)
    with pytest.warns(UserWarning):  # of the failures
        found = importance(three, model, rng=np.random.default_rng(20), rounds=2, **QUIET)
        moved = input_smc(three, model, draws=30, rng=np.random.default_rng(21), **QUIET)
    for each in (found, moved):
        assert each.confidential.names[3] == "beyond[0]" and (each.confidential.mean() > 8).all()
    bare = Posterior(found.theta, found.log_weights, found.names)
    said = predict(bare, three, model, rng=np.random.default_rng(22), simulations=20, **QUIET)
    assert said.beyond.dim == 1 and (said.posterior["rate"] >= 11).all()


@pytest.mark.thorough
def test_prediction_and_its_groups(weighed):
    said = predict(weighed, RELEASED, COUNTS, rng=np.random.default_rng(17), from_prior=50, **QUIET)
    assert said.again.shape == said.released.shape == (2000, 3)
    noise = said.again - said.posterior.values
    agrees(noise.mean(axis=0), 0.0, noise.std(axis=0) / np.sqrt(2000), verbose=False)
    data = weighed.to_arviz(said)
    assert data.prior_predictive["s_dp"].shape == (1, 50, 3)
    assert data.posterior["s"].shape == data.posterior_predictive["s_dp"].shape == (1, 2000, 3)
    total = data.log_likelihood["s_dp"].values.sum(axis=2)[0]
    exact = RELEASED.mechanism.log_prob(RELEASED.s_dp, said.posterior.values)
    np.testing.assert_allclose(total, exact)


def test_a_prediction_without_values_draws_them(weighed):
    bare = Posterior(weighed.theta, weighed.log_weights, weighed.names)
    said = predict(bare, RELEASED, COUNTS, rng=np.random.default_rng(18), simulations=200, **QUIET)
    law, product = enumerated()
    values = said.posterior.values
    agrees(values.mean(axis=0), law @ np.arange(60), values.std(axis=0) / np.sqrt(2000))
    both = said.posterior.theta * values
    agrees(both.mean(axis=0), product, both.std(axis=0) / np.sqrt(1000))


def test_a_state_space_without_a_simulator_is_stepped():
    class Walk:
        prior, times = Prior(sd=stats.uniform(1, 1)), (1.0, 2.0)

        def start(self, theta, particles, rng):
            return np.zeros((len(theta), particles, 1))

        def step(self, state, theta, t, until, rng):
            return state + theta[:, None] * rng.normal(size=state.shape)

        def observed(self, state, j):
            return state[..., 0]

    release = Release([1.0, 2.0], Query(identity, 1), DiscreteLaplace(2.0))
    posterior = Posterior(np.full(100, 1.5), names="sd")
    said = predict(posterior, release, Walk(), rng=np.random.default_rng(19), draws=400, **QUIET)
    agrees(said.replicates.std(axis=0), 1.5 * np.sqrt([1, 2]), 0.1, verbose=False)
    with pytest.raises(ValueError, match="hidden states"):
        predict(posterior, release, Walk(), rng=np.random.default_rng(19), ahead=1, **QUIET)
