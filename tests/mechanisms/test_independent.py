"""Values independent given the parameters: unbiased products, exact posteriors, and declarations
that are false.
"""

import warnings
from functools import wraps

import numpy as np
import pytest
from scipy import stats

import dpsbi
from dpsbi.analyst.filtering.particle_filter import log_likelihood
from dpsbi.analyst.importance.amis import dependence_test, log_product_of_means
from dpsbi.checks.testing import agrees
from dpsbi.mechanisms.composite import parts_of
from dpsbi.privacy import identity

PRIOR = dpsbi.Prior(rate=stats.gamma(4, scale=2))
NOISE = dpsbi.DiscreteLaplace(2.0)
COUNTS = dpsbi.Release([8, 12, 5, 9, 14, 7], dpsbi.Query(identity, 6, step=1, dim=6), NOISE)


def poisson(theta, rng):
    return rng.poisson(theta, (len(theta), 6)).astype(float)


def fragile(theta, rng):
    "A fifth of the simulations fails."
    s = poisson(theta, rng)
    s[rng.random(len(theta)) < 0.2] = np.nan
    return s


def shared(theta, rng):
    "Counts of a rate that differs from simulation to simulation."
    return poisson(theta * rng.gamma(50, 1 / 50, (len(theta), 1)), rng)


def halves(theta, rng):
    "Such counts as sums of two, so that no draw is a value and none can be summed out."
    return poisson(theta / 2, rng) + poisson(theta / 2, rng)


def shared_halves(theta, rng):
    return halves(theta * rng.gamma(50, 1 / 50, (len(theta), 1)), rng)


def forgetful(theta, rng):
    return poisson(theta, np.random.default_rng(0))


INDEPENDENT = dpsbi.Model(PRIOR, poisson, independent=True)


def exact(rates, s_dp=COUNTS.s_dp):
    "log p(s_dp | rate) (n,), each count summed out."
    s = np.arange(150.0)
    log_eta = np.stack([NOISE.log_prob(np.array([y]), s[:, None]) for y in s_dp])
    return np.log(stats.poisson(np.asarray(rates)[:, None]).pmf(s) @ np.exp(log_eta.T)).sum(1)


def quadrature(s_dp=COUNTS.s_dp):
    "The posterior's mean and log evidence."
    rates = np.linspace(1e-3, 40, 4001)
    log_p = exact(rates, s_dp) + PRIOR.log_prob(rates[:, None])
    w = np.exp(log_p - log_p.max())
    return w @ rates / w.sum(), log_p.max() + np.log(w.sum() * (rates[1] - rates[0]))


def ratios(model, truth, n=20_000, particles=4, release=COUNTS):
    theta, rng = np.full((n, 1), 9.0), np.random.default_rng(1)
    return np.exp(log_likelihood(release, model, theta, particles=particles, rng=rng) - truth)


@pytest.mark.parametrize("particles", [1, 4])
def test_the_product_is_unbiased(particles):
    ratio = ratios(INDEPENDENT, exact([9.0]), particles=particles)
    agrees(ratio.mean(), 1.0, ratio.std() / np.sqrt(ratio.size), verbose=False)


@pytest.mark.parametrize("particles", [1, 4])
def test_failed_simulations_are_counted_once_and_not_for_each_value(particles):
    model = dpsbi.Model(PRIOR, fragile, independent=True)
    ratio = ratios(model, exact([9.0]) + np.log(0.8), particles=particles)
    agrees(ratio.mean(), 1.0, ratio.std() / np.sqrt(ratio.size), verbose=False)


def test_its_variance_is_that_of_the_formula():
    s = np.random.default_rng(2).poisson(9.0, (50_000, 6))
    eta = np.exp(parts_of(NOISE, COUNTS.s_dp).each(s))
    v = eta.var(axis=0) / eta.mean(axis=0) ** 2
    found = ratios(INDEPENDENT, exact([9.0]), particles=10).var()
    assert abs(found / (np.prod(1 + v / 10) - 1) - 1) < 0.1
    joint = ratios(dpsbi.Model(PRIOR, poisson), exact([9.0]), particles=10).var()
    assert joint > 4 * found


def test_one_simulation_is_the_joint_density():
    s = np.random.default_rng(3).poisson(9.0, (50, 1, 6)).astype(float)
    product = log_product_of_means(parts_of(NOISE, COUNTS.s_dp), s)
    assert np.allclose(product, NOISE.log_prob(COUNTS.s_dp, s[:, 0]))


def test_nothing_that_worked_is_no_likelihood():
    s = np.full((2, 3, 6), np.nan)
    s[1, 0] = 9.0
    product = log_product_of_means(parts_of(NOISE, COUNTS.s_dp), s)
    assert np.isneginf(product[0]) and np.isfinite(product[1])


def test_a_value_that_was_not_published_is_left_out():
    s_dp = np.array([8, np.nan, 5, 9, 14, np.nan])
    s = np.random.default_rng(4).poisson(9.0, (50, 7, 6)).astype(float)
    product = log_product_of_means(parts_of(NOISE, s_dp), s)
    known = ~np.isnan(s_dp)
    assert np.allclose(product, log_product_of_means(parts_of(NOISE, s_dp[known]), s[..., known]))


def test_the_posterior_agrees_with_quadrature():
    rng = np.random.default_rng(5)
    found = dpsbi.pseudo_marginal(COUNTS, INDEPENDENT, draws=1500, rng=rng, progress=False)
    mean, log_evidence = quadrature()
    agrees(found.mean()[0], mean, found.mcse()[0], verbose=False)
    agrees(found.log_evidence, log_evidence, found.log_evidence_error, verbose=False)
    assert found.info["doubt"] == ""


@pytest.mark.thorough
@pytest.mark.parametrize("model", [INDEPENDENT, dpsbi.Model(PRIOR, shared, independent=True)])
def test_counts_drawn_last_are_summed_out_first(model):
    "Which needs no declaration, and so forgives a false one."
    rng, made = np.random.default_rng(7), []

    @wraps(model.simulate)
    def counted(theta, rng):
        made.append(len(theta))
        return model.simulate(theta, rng)

    about = dict(target_ess=800, max_simulations=20_000, progress=False)
    found = dpsbi.infer(COUNTS, dpsbi.Model(PRIOR, counted, independent=True), rng=rng, **about)
    assert found.exact and found.info["summed"] == 6 and "draws counts last" in found.info["why"]
    assert sum(made) == found.info["simulations"] <= 20_000
    again = dpsbi.infer(COUNTS, dpsbi.Model(PRIOR, model.simulate), rng=rng, **about)
    agrees(found.mean(), again.mean(), np.hypot(found.mcse(), again.mcse()), verbose=False)


@pytest.mark.thorough
def test_infer_takes_this_road_within_its_budget():
    rng = np.random.default_rng(7)
    model = dpsbi.Model(PRIOR, halves, independent=True)
    found = dpsbi.infer(
        COUNTS, model, rng=rng, target_ess=800, max_simulations=60_000, progress=False
    )
    assert found.info["exact"] and found.info["engine"] == "guided values"
    assert found.info["simulations"] <= 60_000 and "declared" in found.info["why"]
    agrees(found.mean()[0], quadrature()[0], found.mcse()[0], verbose=False)


def test_simulations_are_counted():
    made = []

    def counted(theta, rng):
        made.append(len(theta))
        return poisson(theta, rng)

    model = dpsbi.Model(PRIOR, counted, independent=True)
    found = dpsbi.pseudo_marginal(
        COUNTS, model, draws=300, rng=np.random.default_rng(8), progress=False
    )
    assert sum(made) == found.info["simulations"]


@pytest.mark.thorough
def test_a_false_declaration_is_noticed():
    model = dpsbi.Model(PRIOR, shared, independent=True)
    with pytest.warns(UserWarning, match="leave out independent=True"):
        found = dpsbi.pseudo_marginal(
            COUNTS, model, draws=200, rng=np.random.default_rng(9), progress=False
        )
    assert "correlation" in found.info["doubt"]
    model = dpsbi.Model(PRIOR, shared_halves, independent=True)
    with pytest.warns(UserWarning, match="not exact.*independent"):
        found = dpsbi.infer(
            COUNTS, model, rng=np.random.default_rng(9), target_ess=2000, progress=False
        )  # few draws take one simulation at each parameter, which needs no independence
    assert not found.info["exact"] and "independent" in found.info["reason"]


def test_infer_notices_a_simulator_that_forgets_rng():
    model = dpsbi.Model(PRIOR, forgetful, independent=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = dpsbi.infer(
            COUNTS, model, rng=np.random.default_rng(10), target_ess=100, progress=False
        )
    assert not found.info["exact"] and "two generators" in found.info["reason"]


def test_false_alarms_are_as_rare_as_stated():
    rng = np.random.default_rng(11)
    laws = (rng.poisson(0.5, (600, 100, 5)), rng.standard_cauchy((600, 100, 5)))
    for draws in laws:
        p = np.array([dependence_test(s.astype(float))[0] for s in draws])
        for level in (0.01, 0.1):
            # one false alarm in a million
            alarms = int((p < level).sum())
            assert stats.binomtest(alarms, len(p), level, "greater").pvalue > 1e-6
        assert (p < 0.2).sum() > 20  # it can speak


@pytest.mark.parametrize("pair", [True, False])
def test_dependence_of_a_pair_and_of_all(pair):
    rng = np.random.default_rng(12)
    s = rng.normal(size=(400, 20))
    if pair:
        s[:, 7] += s[:, 3]
    else:
        s += 0.3 * rng.normal(size=(400, 1))
    p, reason = dependence_test(s)
    assert p < 1e-6 and ("values 3 and 7" if pair else "mean correlation") in reason


def test_too_little_to_judge():
    assert dependence_test(np.full((400, 3), np.nan)) == (1.0, "")
    assert dependence_test(np.ones((400, 3))) == (1.0, "")
    assert dependence_test(np.random.default_rng(1).normal(size=(400, 1))) == (1.0, "")


def test_noise_that_is_no_sum_is_refused():
    class Tied(dpsbi.DiscreteLaplace):
        def log_prob(self, s_dp, s):
            return super().log_prob(s_dp, s) - 0.1 * np.subtract(s_dp, s).sum(axis=-1) ** 2

    tied = dpsbi.Release(COUNTS.s_dp, COUNTS.query, Tied(2.0))
    with pytest.raises(ValueError, match="one for each value: leave out independent=True"):
        dpsbi.pseudo_marginal(tied, INDEPENDENT, draws=100, rng=np.random.default_rng(13))
    smooth = dpsbi.Query(identity, np.inf, smoothness=0.1, dim=7)
    released = dpsbi.Release(COUNTS.s_dp, smooth, dpsbi.SmoothLaplace(1.0))
    with pytest.raises(ValueError, match="smooth-sensitivity.*leave out independent=True"):
        dpsbi.pseudo_marginal(released, INDEPENDENT, draws=100, rng=np.random.default_rng(13))


def test_the_declaration_is_a_bool():
    with pytest.raises(TypeError, match="independent must be True or False"):
        dpsbi.Model(PRIOR, poisson, independent="yes")


# ---- importance sampling by the product


def weigh(release=COUNTS, model=INDEPENDENT, seed=21, **more):
    how = dict(rounds=6, simulations=1500, progress=False) | more
    return dpsbi.importance(release, model, rng=np.random.default_rng(seed), **how)


@pytest.mark.parametrize("simulate, worked", [(poisson, 1.0), (fragile, 0.8)])
def test_importance_by_the_product_agrees_with_quadrature(simulate, worked):  # 1e-6 each
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of failures
        found = weigh(model=dpsbi.Model(PRIOR, simulate, independent=True))
    mean, log_evidence = quadrature()
    agrees(found.mean()[0], mean, found.mcse()[0], verbose=False)
    error = found.log_evidence_error
    agrees(found.log_evidence, log_evidence + np.log(worked), error, verbose=False)
    share = found.info["failed"] / (len(found) * 6)
    assert found.info["particles"] == 6 and abs(share - (1 - worked)) < 0.02
    assert found.ess > 300 and found.info["doubt"] == ""


def test_values_that_were_not_published_are_drawn_from_all():
    s_dp = np.array([8, np.nan, 5, 9, 14, np.nan])
    found = weigh(dpsbi.Release(s_dp, COUNTS.query, NOISE))
    mean, _ = quadrature(s_dp[~np.isnan(s_dp)])
    agrees(found.mean()[0], mean, found.mcse()[0], verbose=False)
    behind = found.confidential
    assert behind.dim == 6
    agrees(behind.mean()[1], mean, behind.mcse()[1], verbose=False)  # of the rate's mean


def test_importance_counts_what_the_test_of_independence_takes():
    made = []

    def counted(theta, rng):
        made.append(len(theta))
        return poisson(theta, rng)

    found = weigh(model=dpsbi.Model(PRIOR, counted, independent=True))
    assert sum(made) == found.info["simulations"] <= 6 * 1500


def test_importance_notices_a_false_declaration():
    with pytest.warns(UserWarning, match="leave out independent=True"):
        found = weigh(model=dpsbi.Model(PRIOR, shared, independent=True), seed=22)
    assert found.exact is False and found.info["reason"] == found.info["doubt"]


def test_importance_by_the_product_goes_on_from_a_checkpoint(tmp_path):
    calls = []

    @wraps(poisson)
    def dying(theta, rng):
        calls.append(len(theta))
        if sum(calls) > 4000:
            raise KeyboardInterrupt
        return poisson(theta, rng)

    path = tmp_path / "run.npz"
    with pytest.raises(KeyboardInterrupt):
        weigh(model=dpsbi.Model(PRIOR, dying, independent=True), checkpoint=path)
    again, whole = weigh(checkpoint=path), weigh()
    assert np.array_equal(again.log_weights, whole.log_weights)
    assert np.array_equal(again.values, whole.values)
    assert again.info["failed"] == whole.info["failed"]


def test_noise_that_is_no_sum_is_weighed_as_a_whole():
    class Tied(dpsbi.DiscreteLaplace):
        def log_prob(self, s_dp, s):
            return super().log_prob(s_dp, s) - 0.1 * np.subtract(s_dp, s).sum(axis=-1) ** 2

    tied, joint = dpsbi.Release(COUNTS.s_dp, COUNTS.query, Tied(2.0)), dpsbi.Model(PRIOR, poisson)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few draws
        one, other = weigh(tied), weigh(tied, joint)
    assert one.info["particles"] == 1 and np.array_equal(one.log_weights, other.log_weights)
