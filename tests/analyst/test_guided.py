"""Guided values: unbiased whatever the guide is worth, exact posteriors, budgets that are kept."""

import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import wraps

import numpy as np
import pytest
from scipy import stats

import dpsbi
from dpsbi.analyst.guided import _cheapest, _found_directions, _Guide, _owners, guided_values
from dpsbi.analyst.smc.moves import Profiles
from dpsbi.checks.testing import agrees
from dpsbi.models.inverse_cdf import poisson
from dpsbi.privacy import identity

PRIOR = dpsbi.Prior(rate=stats.gamma(4, scale=2))
NOISE = dpsbi.DiscreteLaplace(2.0)
S_DP = np.array([8.0, 12.0, 5.0, 9.0, 14.0, 7.0])


def released(s_dp=S_DP):
    query = dpsbi.Query(identity, len(s_dp), step=1, dim=len(s_dp))
    return dpsbi.Release(s_dp, query, NOISE)


def counts(theta, rng, size=6):
    return rng.poisson(theta, (len(theta), size)).astype(float)


def run(model, release=None, draws=600, seed=1, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rng = np.random.default_rng(seed)
        release = released() if release is None else release
        return guided_values(release, model, draws=draws, rng=rng, progress=False, **more)


MODEL = dpsbi.Model(PRIOR, counts, independent=True)


def quadrature(s_dp=S_DP, weight=lambda rate: 0.0):
    "Mean, sd and log evidence."
    s, rates = np.arange(150.0), np.linspace(1e-3, 40, 4001)
    log_eta = np.stack([NOISE.log_prob(np.array([y]), s[:, None]) for y in s_dp])
    log_p = np.log(stats.poisson(rates[:, None]).pmf(s) @ np.exp(log_eta.T)).sum(axis=1)
    log_p = log_p + PRIOR.log_prob(rates[:, None]) + weight(rates)
    w = np.exp(log_p - log_p.max())
    log_evidence = log_p.max() + np.log(w.sum() * (rates[1] - rates[0]))
    w /= w.sum()
    mean = w @ rates
    return mean, np.sqrt(w @ (rates - mean) ** 2), log_evidence


# ---- guides: unbiased whatever they were fitted to  (false alarms: 1e-6 each)


def log_etas(s):
    return np.stack([NOISE.log_prob(S_DP[j : j + 1], s[:, j : j + 1]) for j in range(6)], axis=1)


def guide_at(rate, spread, rng, whole=True):
    z, u = np.log(rate) + spread * rng.standard_normal((400, 1)), rng.standard_normal((400, 6))
    s = poisson(u, np.exp(z)) if whole else np.exp(z) + np.sqrt(np.exp(z)) * u
    profiles, even = Profiles.of(released(), s, log_etas(s).sum(axis=1)), np.ones(400)
    return _Guide.fit(profiles, _found_directions(z, u, s, even), z, u, s, even)


@pytest.mark.thorough
@pytest.mark.parametrize("rate, spread, whole", [(9, 0.2, True), (11, 0.1, True), (9, 0.3, False)])
def test_guided_estimates_are_unbiased(rate, spread, whole):
    rng = np.random.default_rng(2)
    guide = guide_at(rate, spread, rng, whole)
    z, u = np.full((4_000, 1), np.log(9.0)), rng.standard_normal((4_000, 6))
    drawn, log_w, _ = guide.draw(z, u, rng)
    s = np.arange(150.0)
    each = np.stack([NOISE.log_prob(np.array([y]), s[:, None]) for y in S_DP])
    exact = np.log(np.exp(each) @ stats.poisson(9.0).pmf(s)).sum()
    ratio = np.exp(log_etas(poisson(drawn, np.exp(z))).sum(axis=1) + log_w.sum(axis=1) - exact)
    agrees(ratio.mean(), 1.0, ratio.std() / np.sqrt(len(z)), verbose=False)
    plain = np.exp(log_etas(poisson(u, np.exp(z))).sum(axis=1) - exact)
    assert rate != 9 or ratio.var() < plain.var() / 5


def test_what_is_orthogonal_to_the_directions_is_kept():
    rng = np.random.default_rng(3)
    guide = guide_at(9, 0.2, rng)
    u = rng.standard_normal((50, 6))
    wide = _Guide(
        np.pad(guide.direction, ((0, 0), (0, 4))), *(vars(guide)[k] for k in list(vars(guide))[1:])
    )
    u = np.hstack([u, rng.standard_normal((50, 4))])
    drawn, _, _ = wide.draw(np.full((50, 1), np.log(9.0)), u, rng)
    np.testing.assert_allclose(drawn[:, 6:], u[:, 6:])
    assert (np.abs(drawn[:, :6] - u[:, :6]) > 1e-9).mean() > 0.9


def test_inputs_of_no_value_have_no_owner():  # false alarms: 1e-3 for a whole set
    rng = np.random.default_rng(4)
    alarms = 0
    for _ in range(100):
        rest = rng.standard_cauchy((150, 10))
        alarms += (_owners(rest, rng.standard_normal((150, 30)), np.ones(150)) >= 0).any()
    assert alarms <= 3  # chance of more: 4e-6


# ---- the posterior  (false alarms: 1e-6 each)


def test_the_posterior_agrees_with_quadrature():
    found = run(MODEL)
    mean, sd, log_evidence = quadrature()
    agrees(found.mean()[0], mean, found.mcse()[0], verbose=False)
    agrees(found.log_evidence, log_evidence, found.log_evidence_error, verbose=False)
    assert abs(found.std()[0] / sd - 1) < 5 / np.sqrt(2 * found.ess) and found.ess >= 600


@pytest.mark.thorough
def test_thirty_counts_cost_a_few_simulations_a_draw():
    s_dp = NOISE.sample(
        counts(np.array([[9.0]]), np.random.default_rng(5), 30)[0], np.random.default_rng(6)
    )
    model = dpsbi.Model(PRIOR, lambda theta, rng: counts(theta, rng, 30), independent=True)
    found = run(model, released(s_dp), draws=1000)
    mean, _, log_evidence = quadrature(s_dp)
    agrees(found.mean()[0], mean, found.mcse()[0], verbose=False)
    agrees(found.log_evidence, log_evidence, found.log_evidence_error, verbose=False)
    assert found.info["simulations"] < 4 * found.ess and found.info["guided"] == 30


def test_means_of_several_are_unbiased(monkeypatch):
    "More simulations at each parameter than one, as many values would ask for."
    monkeypatch.setattr("dpsbi.analyst.guided._cheapest", lambda contribution: (3, 3.3))
    found = run(MODEL)
    assert found.info["particles"] == 3 and not found.info["doubt"]
    mean, _, log_evidence = quadrature()
    agrees(found.mean()[0], mean, found.mcse()[0], verbose=False)
    agrees(found.log_evidence, log_evidence, found.log_evidence_error, verbose=False)


def test_failed_simulations_weigh_nothing():
    def fragile(theta, rng):
        s = counts(theta, rng)
        s[rng.random(len(theta)) < 0.02 * theta[:, 0]] = np.nan
        return s

    found = run(dpsbi.Model(PRIOR, fragile, independent=True))
    survival = lambda rate: np.log(np.maximum(1 - 0.02 * rate, 1e-300))  # noqa: E731
    mean, _, log_evidence = quadrature(weight=survival)
    agrees(found.mean()[0], mean, found.mcse()[0], verbose=False)
    agrees(found.log_evidence, log_evidence, found.log_evidence_error, verbose=False)
    assert found.info["failed"] > 0 and found.info["particles"] == 1


def test_a_value_that_was_not_published():
    s_dp = np.append(S_DP, np.nan)
    model = dpsbi.Model(PRIOR, lambda theta, rng: counts(theta, rng, 7), independent=True)
    found = run(model, released(s_dp))
    agrees(found.mean()[0], quadrature()[0], found.mcse()[0], verbose=False)


def shared(theta, rng):
    return counts(theta * rng.gamma(50, 1 / 50, (len(theta), 1)), rng)


@pytest.mark.thorough
@pytest.mark.parametrize("particles", [1, 3])
def test_a_false_declaration_is_harmless_or_noticed(particles, monkeypatch):
    monkeypatch.setattr("dpsbi.analyst.guided._cheapest", lambda contribution: (particles, 3.3))
    found = run(dpsbi.Model(PRIOR, shared, independent=True))
    if particles == 3:
        assert "leave out independent=True" in found.info["doubt"]
        return
    other = dpsbi.importance(
        released(), dpsbi.Model(PRIOR, shared), rng=np.random.default_rng(2), progress=False
    )
    agrees(found.mean()[0], other.mean()[0], np.hypot(found.mcse()[0], other.mcse()[0]))


# ---- the budget, and how it is run


@pytest.mark.thorough
@pytest.mark.parametrize("limit", [1000, 3000])
def test_no_more_simulations_than_allowed(limit):
    made = []

    def counted(theta, rng):
        made.append(len(theta))
        return counts(theta, rng)

    found = run(dpsbi.Model(PRIOR, counted, independent=True), draws=10**5, max_simulations=limit)
    assert sum(made) == found.info["simulations"] <= limit and sum(made) > 0.8 * limit


def test_the_same_seed_and_any_executor():
    one = run(MODEL, draws=200)
    with ThreadPoolExecutor(2) as pool:
        other = run(MODEL, draws=200, executor=pool)
    np.testing.assert_array_equal(one.theta, other.theta)
    np.testing.assert_array_equal(one.weights, other.weights)


@pytest.mark.thorough
def test_a_killed_run_goes_on(tmp_path):
    path, made = tmp_path / "run.npz", []

    @wraps(counts)
    def counted(theta, rng):
        made.append(len(theta))
        return counts(theta, rng)

    @wraps(counts)
    def dying(theta, rng):
        if sum(made) > 500:
            raise KeyboardInterrupt
        return counted(theta, rng)

    with pytest.raises(KeyboardInterrupt):
        run(dpsbi.Model(PRIOR, dying, independent=True), draws=200, checkpoint=path)
    made.clear()
    again = run(dpsbi.Model(PRIOR, counted, independent=True), draws=200, checkpoint=path)
    whole = run(MODEL, draws=200)
    np.testing.assert_array_equal(again.theta, whole.theta)
    assert sum(made) < whole.info["simulations"]


def test_the_cheapest_number_of_simulations():
    even = np.ones((100, 30))
    assert _cheapest(even) == (1, 1.0)
    rough = np.random.default_rng(1).gamma(5.0, 0.2, (4000, 30))
    particles, cost = _cheapest(rough)  # v = 0.2 each: 6 in all
    assert 4 <= particles <= 8 and cost < 6 * np.e
    assert _cheapest(np.zeros((100, 3)))[1] == np.inf


def test_infer_uses_two_thousand_calls():
    made = []

    def counted(theta, rng):
        made.append(len(theta))
        return counts(theta, rng)

    model = dpsbi.Model(PRIOR, counted, independent=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = dpsbi.infer(
            released(), model, rng=np.random.default_rng(7), max_simulations=2100, progress=False
        )
    assert sum(made) == found.info["simulations"] <= 2100 and found.exact
    agrees(found.mean()[0], quadrature()[0], found.mcse()[0], verbose=False)


def test_infer_without_replay_follows_the_product_of_means():
    def unreplayable(theta, rng):
        return np.random.Generator(rng.bit_generator).poisson(theta, (len(theta), 6))

    model = dpsbi.Model(PRIOR, unreplayable, independent=True)
    found = dpsbi.infer(
        released(), model, rng=np.random.default_rng(8), target_ess=500, progress=False
    )
    engines = [line["engine"] for line in found.info["history"]]
    assert "pseudo-marginal" in engines
    agrees(found.mean()[0], quadrature()[0], found.mcse()[0], verbose=False)


def test_refusals():
    with pytest.raises(ValueError, match="declare it"):
        run(dpsbi.Model(PRIOR, counts))
    with pytest.raises(TypeError, match="needs a Model"):
        run(None)
    with pytest.raises(ValueError, match="max_simulations"):
        run(MODEL, max_simulations=10)
    own = np.random.default_rng(1)
    with pytest.raises(ValueError, match="generator of its own"):
        run(dpsbi.Model(PRIOR, lambda theta, rng: counts(theta, own), independent=True))


OVERDISPERSED = 4.0
PUBLISHED = np.array([9.0, np.nan, 14.0, 2.0])


def behind_levels(theta, rng):
    "Counts behind a level each: negative binomial, given the rate."
    level = rng.gamma(OVERDISPERSED, 1 / OVERDISPERSED, (len(theta), 6 * len(PUBLISHED)))
    return rng.poisson(theta * level).astype(float)


def exact_values(published, noise, prior):
    "Means and sds (r,) of the counts, by enumeration over a grid of rates."
    rate, k = np.linspace(0.01, 60, 3000), np.arange(120)
    law = stats.nbinom.pmf(k, OVERDISPERSED, OVERDISPERSED / (OVERDISPERSED + rate[:, None]))
    seen = [
        np.ones(k.size) if np.isnan(y) else np.exp(noise.log_prob(np.array([y]), k[:, None]))
        for y in published
    ]
    p = prior.pdf(rate) * np.prod([law @ each for each in seen], axis=0)
    p /= p.sum()
    given = [law * each / (law @ each)[:, None] for each in seen]
    mean = np.array([p @ (each @ k) for each in given])
    return mean, np.sqrt(np.array([p @ (each @ k**2) for each in given]) - mean**2)


@pytest.mark.parametrize("scale, times, draws", [(0.4, 1, 1000), (3.0, 1, 1000), (0.5, 4, 300)])
def test_values_behind_the_noise_are_exact_also_where_one_was_not_published(scale, times, draws):
    "4 values, or 16 with several simulations at a parameter; false alarms below 1e-4."
    noise, prior = dpsbi.DiscreteLaplace(scale), stats.gamma(4, scale=2)
    published = np.tile(PUBLISHED, times)
    first = dpsbi.Query(lambda s: s[:, : published.size], 1.0, step=1)
    model = dpsbi.Model(dpsbi.Prior(rate=prior), behind_levels, independent=True)
    found = guided_values(
        dpsbi.Release(published, first, noise),
        model,
        draws=draws,
        rng=np.random.default_rng(3),
        progress=False,
    )
    assert (found.info["particles"] > 1) == (times > 1)
    mean, sd = exact_values(published, noise, prior)
    values = found.confidential
    assert values.names == tuple(f"s[{j}]" for j in range(published.size))
    assert (np.abs(values.mean() - mean) < 5 * values.mcse()).all()
    assert (np.abs(values.std() / sd - 1) < 5 * 2 / np.sqrt(values.ess)).all()


# ---- simulators that branch: no value has inputs of its own


def zeros(theta, rng):
    "A zero takes one random number, a count two."
    each = [[rng.random() > p and rng.poisson(rate) for _ in range(6)] for rate, p in theta]
    return np.array(each, float)


def kinds(theta, rng):
    "As many random numbers for a zero as for a count, by another method."
    each = [
        [rng.poisson(rate) if rng.random() > p else 0 * rng.random() for _ in range(6)]
        for rate, p in theta
    ]
    return np.array(each)


TWO = dpsbi.Prior(rate=stats.gamma(4, scale=2), zero=stats.beta(2, 4))
RELEASED = np.array([8.0, 12.0, 1.0, 9.0, 14.0, -1.0])


@pytest.mark.parametrize("simulate, said", [(zeros, "from"), (kinds, "12 random numbers")])
def test_a_simulator_that_branches_is_refused_also_in_a_pool(simulate, said):
    model = dpsbi.Model(TWO, simulate, independent=True)
    with ThreadPoolExecutor(2) as pool:
        for executor in (None, pool):
            with pytest.raises(ValueError, match=f"different draws .*{said}") as raised:
                run(model, released(RELEASED), executor=executor)
    assert raised.value.simulations < 300
    copy = pickle.loads(pickle.dumps(raised.value))
    assert isinstance(copy, ValueError) and str(copy) == str(raised.value)


def test_infer_weighs_values_of_a_simulator_that_branches_without_guides():
    "Means within 5 stated standard errors of quadrature: false alarms below 1e-5."
    rate, zero = np.linspace(0.02, 50, 800), np.linspace(0.0025, 0.9975, 200)
    s = np.arange(150.0)
    eta = np.exp([NOISE.log_prob(np.array([y]), s[:, None]) for y in RELEASED])
    count = stats.poisson(rate[:, None]).pmf(s) @ eta.T
    log_p = np.log((1 - zero[:, None]) * count[:, None] + zero[:, None] * eta[:, 0]).sum(axis=2)
    log_p += stats.gamma(4, scale=2).logpdf(rate)[:, None] + stats.beta(2, 4).logpdf(zero)
    w = np.exp(log_p - log_p.max())
    exact = np.array([w.sum(axis=1) @ rate, w.sum(axis=0) @ zero]) / w.sum()
    found = dpsbi.infer(
        released(RELEASED),
        dpsbi.Model(TWO, zeros, independent=True),
        rng=np.random.default_rng(3),
        target_ess=1000,
        neural=False,
        progress=False,
    )
    assert found.info["exact"] and found.info["engine"] == "pseudo-marginal"
    assert (abs(found.mean() - exact) < 5 * found.mcse()).all()
    (line,) = [h for h in found.info["history"] if h["engine"] == "guided values"]
    assert "different draws" in line["error"] and line["simulations"] < 300


def test_failing_simulations_may_draw_less():
    def fails(theta, rng):
        good = [rate < 30 and rng.poisson(rate, 6) for rate in theta[:, 0]]
        return np.array([np.full(6, np.nan) if g is False else g for g in good], float)

    found = run(dpsbi.Model(PRIOR, fails, independent=True))
    agrees(found.mean()[0], quadrature()[0], found.mcse()[0], verbose=False)
