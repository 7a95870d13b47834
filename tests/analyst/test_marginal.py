"""Counts that are drawn last are summed out, and nothing else is taken for one."""

import numpy as np
import pytest
from scipy import special, stats

from dpsbi import (
    DiscreteGaussian,
    DiscreteLaplace,
    Independent,
    Model,
    Prior,
    Published,
    Query,
    Release,
    infer,
)
from dpsbi.analyst.engines import InferenceTask, _straight
from dpsbi.analyst.importance.amis import importance
from dpsbi.analyst.marginal.count_likelihood import Seen, log_sums
from dpsbi.analyst.marginal.rao_blackwell import Forms, NonCentredPrior, concluded, marginal
from dpsbi.mechanisms.composite import parts_of
from dpsbi.privacy import identity

PRIOR = Prior(rate=stats.gamma(4, scale=2))
EXACT = Release([9.0, 7.0, 12.0, 8.0], Query(identity, 1.0, step=1), DiscreteLaplace(2.0))


def found(function, release=EXACT, **settings):
    "Values that are seen to be drawn last; empty where none is."
    model = Model.from_function(function, PRIOR, **settings)
    result, _ = marginal(release, model, np.random.default_rng(1))
    return [] if result is None else sorted(result.remaining.lasts)


def one_by_one(rate, rng):
    return [rng.poisson(rate) for _ in range(4)]


def behind_levels(rate, rng):
    return rng.poisson(rate * rng.gamma(9, 1 / 9, 4)).tolist()


def other_laws(rate, rng):
    p = rate / (30 + rate)
    return np.array([rng.binomial(30, p), rng.negative_binomial(3, 1 - p), rng.geometric(0.1), 9.0])


def after_hidden_loop(rate, rng):
    seen = sum(rng.poisson(rate) > 5 for _ in range(rng.poisson(3)))
    return rng.poisson(rate + seen, 4)


@pytest.mark.parametrize(
    "function, values",
    [
        (one_by_one, [0, 1, 2, 3]),
        (behind_levels, [0, 1, 2, 3]),
        (other_laws, [0, 1, 2]),
        (after_hidden_loop, [0, 1, 2, 3]),
    ],
)
def test_last_draws_are_found(function, values):
    assert found(function) == values


def total_beside_parts(rate, rng):
    parts = rng.poisson(rate, 3)
    return [*parts, parts.sum()]


def steers_another(rate, rng):
    n = [rng.poisson(rate)]
    for _ in range(3):
        n.append(rng.poisson(n[-1] + 1.0))
    return n


def steers_one(rate, rng):
    n = rng.poisson(rate)
    return [n, rng.poisson(n + 1.0), rng.poisson(rate), rng.poisson(rate)]


def steers_a_loop(rate, rng):
    n = rng.poisson(rate)
    return [n, sum(rng.random() < 0.5 for _ in range(n)), 0, 0]


def published_twice(rate, rng):
    return [rng.poisson(rate)] * 4


def rounded(rate, rng):
    return 3 * (rng.poisson(rate, 4) // 3)


def at_least_one(rate, rng):
    return np.maximum(rng.poisson(rate / 4, 4), 1)


def until_positive(rate, rng):
    n = [0] * 4
    for j in range(4):
        while n[j] == 0:
            n[j] = rng.poisson(rate / 4)
    return n


def zero_inflated(rate, rng):
    return [0 if rng.random() < 0.3 else rng.poisson(rate) for _ in range(4)]


def support_of_another(rate, rng):
    n = rng.poisson(3 * rate)
    return [n, rng.binomial(n, 0.5), 0, 0]


def own_generator(rate, rng):
    return np.random.default_rng().poisson(rate, 4)


def multinomial(rate, rng):
    return rng.multinomial(40, [rate / 100, 0.2, 0.3, 0.5 - rate / 100])


@pytest.mark.parametrize(
    "function, values",
    [
        (total_beside_parts, []),
        (steers_another, []),
        (steers_one, [1, 2, 3]),
        (steers_a_loop, []),
        (published_twice, []),
        (rounded, []),
        (at_least_one, []),
        (until_positive, []),
        (zero_inflated, []),
        (support_of_another, []),
        (own_generator, []),
        (multinomial, []),
    ],
)
def test_nothing_else_is_taken_for_a_last_draw(function, values):
    assert found(function, failures="nan") == values


def test_a_draw_that_matters_only_in_the_posterior_is_noticed():
    "A large count changes another value: no look at the prior sees it, and no value is off."

    def sly(rate, rng):
        n = rng.poisson(rate, 3)
        return [*n, 7 if n[0] < 55 else 8]

    release = Release([60.0, 7, 7, 7], EXACT.query, DiscreteLaplace(0.5))
    model = Model.from_function(sly, PRIOR)
    result, _ = marginal(release, model, np.random.default_rng(1))
    assert result is not None
    posterior = importance(
        result.release, result.opened, rng=np.random.default_rng(2), rounds=4, simulations=200
    )
    _, why, made = concluded(result, result.closed(posterior), np.random.default_rng(3))
    assert "depends on a count" in why and made > 0


def by_hand(release, rates, pmf):
    "Log likelihood of four independent counts, by adding up."
    k = np.arange(200.0)
    parts = parts_of(release.mechanism, release.s_dp)
    each = [pmf(k, rates[:, None]) @ np.exp(parts.log_prob(j, k[:, None])) for j in range(4)]
    return np.log(each).sum(axis=0)


def noisy(kind):
    "Four values, published in several ways."
    rough = Published(DiscreteGaussian(3.0), clamp=(0, None), round_to=5, suppress_below=5)
    mixed = Independent((DiscreteLaplace(1.0), rough, rough, DiscreteGaussian(4.0)))
    s_dp = {"rough": [np.nan, 10.0, 5.0, 15.0], "mixed": [8.0, np.nan, 10.0, 3.0]}[kind]
    return Release(s_dp, Query(identity, 1.0, step=1), rough if kind == "rough" else mixed)


@pytest.mark.parametrize("kind", ["rough", "mixed"])
def test_the_likelihood_is_the_sum(kind):
    release, model = noisy(kind), Model.from_function(one_by_one, PRIOR)
    result, _ = marginal(release, model, np.random.default_rng(1))
    theta = np.array([[0.5], [3.0], [9.0], [40.0]])
    s = result.model.simulate(theta, np.random.default_rng(2))
    log_p = result.release.mechanism.log_prob(None, s[:, :4])
    assert np.allclose(log_p, by_hand(release, theta[:, 0], stats.poisson.pmf), rtol=1e-9)


@pytest.mark.parametrize("noise", [DiscreteLaplace(2.0), DiscreteGaussian(3.0)])
def test_absurd_means_have_a_sum_too(noise):
    "As a wide prior has them: the sum falls on, and no rounding makes it larger than it can be."
    mean = 10.0 ** np.arange(2, 90, 4)
    laws = dict(poisson=(mean,), binomial=(2 * mean, np.full(22, 0.5)), geometric=(1 / mean,))
    seen = Seen(parts_of(noise, np.array([20.0])), [0])
    for law, given in laws.items():
        found = log_sums(law, given, seen, np.zeros(22, int))
        assert (found < 0).all() and (np.diff(found) < 0).all(), law


@pytest.mark.thorough
def test_infer_sums_out_and_agrees_with_quadrature():
    "Four standard errors in the mean and in the evidence: a false alarm in 8,000."
    release, rates = noisy("rough"), np.linspace(0.05, 40, 4000)
    model = Model.from_function(one_by_one, PRIOR)
    found = infer(release, model, rng=np.random.default_rng(4), target_ess=500, progress=False)
    log_p = by_hand(release, rates, stats.poisson.pmf) + stats.gamma(4, scale=2).logpdf(rates)
    p = np.exp(log_p - special.logsumexp(log_p))
    log_z = special.logsumexp(log_p) + np.log(rates[1] - rates[0])
    assert found.exact and found.info["summed"] == 4 and "summed out" in repr(found)
    assert abs(found.mean()[0] - p @ rates) < 4 * found.mcse()[0]
    assert abs(found.log_evidence - log_z) < 4 * found.log_evidence_error
    behind = found.confidential
    assert behind.dim == 4 and behind.mean()[0] < behind.mean()[3]


def test_vectorised_and_by_row_are_one():
    def together(theta, rng):
        return rng.poisson(theta[:, :1] * rng.gamma(9, 1 / 9, (len(theta), 4)))

    def sideways(theta, rng):  # rows are the last axis
        return rng.poisson(theta[:, 0] * np.ones((4, 1))).T

    for simulate, by_row in ((together, False), (sideways, True)):
        result, _ = marginal(EXACT, Model(PRIOR, simulate), np.random.default_rng(1))
        assert len(result.remaining.lasts) == 4 and result.remaining.by_row is by_row


class Dying:
    "Counts behind levels of their own; a simulator that dies at a call, and counts."

    fingerprint = "counts behind levels"

    def __init__(self, last=10**9):
        self.last, self.calls, self.rows = last, 0, 0

    def __call__(self, theta, rng):
        self.calls, self.rows = self.calls + 1, self.rows + len(theta)
        if self.calls > self.last:
            raise KeyboardInterrupt
        return rng.poisson(theta[:, :1] * rng.gamma(9, 1 / 9, (len(theta), 4)))


@pytest.mark.thorough
def test_a_checkpoint_changes_no_draw_and_a_killed_run_resumes_to_the_same(tmp_path):
    def run(simulate, **kw):
        options = dict(rng=np.random.default_rng(1), max_simulations=1000, progress=False)
        return infer(EXACT, Model(PRIOR, simulate), **options | kw)

    def same(a, b):
        parts = ((a.theta, b.theta), (a.confidential.theta, b.confidential.theta))
        return all(np.array_equal(one, other) for one, other in parts)

    alone = Dying()
    whole = run(alone)
    look, *_, probe = (line["simulations"] for line in whole.info["history"])
    assert whole.info["summed"] == 4
    # killed in the engine, or at the very end; the look is made again
    for last, most in ((alone.calls - 40, alone.rows - 1), (alone.calls - 1, look + probe)):
        path = tmp_path / str(last)
        with pytest.raises(KeyboardInterrupt):
            run(Dying(last), checkpoint=path)
        resumed = Dying()
        assert same(run(resumed, checkpoint=path), whole)
        assert resumed.rows <= most


def in_regions(theta, rng):
    "Counts (B, 12) of three regions, whose levels differ by an unknown spread."
    level, spread = theta.T[:, :, None]
    effect = rng.normal(size=(len(theta), 3))
    return rng.poisson(np.repeat(np.exp(level + spread * effect), 4, axis=1))


def by_quadrature(release, prior):
    "Posterior mean (2,) and log evidence of `in_regions`."
    logs, k = np.arange(-1.0, 7.0, 0.02), np.arange(300.0)
    pmf, at = stats.poisson.pmf(k, np.exp(logs)[:, None]), np.arange(12) // 4
    each = [release.mechanism.log_prob(np.array([y]), k[:, None]) for y in release.s_dp]
    log_p = np.log(np.stack([pmf @ np.exp(e) for e in each]))
    likelihood = [np.exp(log_p[at == g].sum(axis=0)) for g in range(3)]
    level, spread = np.meshgrid(np.linspace(0.5, 5.5, 81), np.linspace(0.02, 3, 81))
    near = stats.norm.pdf(logs, level[..., None], spread[..., None]) * 0.02
    p = np.prod([near @ one for one in likelihood], axis=0)
    p *= np.exp(prior.log_prob(np.column_stack([level.ravel(), spread.ravel()]))).reshape(p.shape)
    mean = [(p * a).sum() / p.sum() for a in (level, spread)]
    return np.array(mean), np.log(p.sum() * (5 / 80) * (2.98 / 80))


FUNNEL = Prior(level=stats.norm(3, 1), spread=stats.halfnorm(0, 0.7))
COUNTS = [21.0, 26, 19, 30, 41, 35, 44, 38, 9, 14, 12, 10]
REGIONS = Release(COUNTS, Query(identity, 1.0, step=1), DiscreteLaplace(2.0))


def test_a_pilot_straightens_the_inputs_that_are_left():
    model, rng = Model(FUNNEL, in_regions), np.random.default_rng(2)  # every second pilot does
    result, _ = marginal(REGIONS, model, rng)
    task = InferenceTask(REGIONS, model, 500, 4000, None, dict(progress=False), {}, [])
    searched = _straight(task, result, 4000, rng)
    assert isinstance(searched.prior, NonCentredPrior) and searched.prior.inputs == 3
    assert [0 < line["simulations"] <= 500 for line in task.history] == [True]
    few = InferenceTask(REGIONS, model, 500, 2000, None, dict(progress=False), {}, [])
    assert _straight(few, result, 2000, rng) is result.opened and not few.history


def test_straight_coordinates_are_a_way_there_and_back_with_its_jacobian():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(4, 2)), rng.normal(size=(4, 2, 2))
    forms = Forms.of(a, b, rng.normal(size=4), rng.random(4), np.zeros(1), np.ones(1))
    both = Prior(spread=stats.gamma(3), u=stats.norm(0, 1), w=stats.norm(0, 1))
    straight = NonCentredPrior(both, 2, forms)
    theta = both.sample(20, rng)
    z = straight.to_unconstrained(theta)
    np.testing.assert_allclose(straight.from_unconstrained(z), theta, rtol=1e-9)
    for row in z:
        ends = [straight.from_unconstrained(row + s * 1e-6 * np.eye(3)) for s in (1, -1)]
        slope = np.linalg.slogdet((ends[0] - ends[1]) / 2e-6)[1]
        assert abs(slope - straight.log_abs_det(row[None])[0]) < 1e-5


@pytest.mark.slow
def test_a_funnel_is_straightened_and_agrees_with_quadrature():
    "Mean and evidence within four standard errors: a false alarm in 5,000."
    how = dict(rng=np.random.default_rng(1), target_ess=500, progress=False)
    found = infer(REGIONS, Model(FUNNEL, in_regions), **how)
    mean, log_evidence = by_quadrature(REGIONS, FUNNEL)
    assert (np.abs(found.mean() - mean) < 4 * found.mcse()).all()
    assert abs(found.log_evidence - log_evidence) < 4 * found.log_evidence_error
    spent = [line["simulations"] for line in found.info["history"] if line["ess"] > 0]
    assert found.exact and len(spent) == 2 and spent[0] < 5001  # a pilot, and one search


# ---- what is published at the top of a clamp


@pytest.mark.parametrize("law", ["poisson", "negative_binomial"])
@pytest.mark.parametrize("noise", [DiscreteLaplace(3.0), DiscreteGaussian(3.0)])
def test_a_sum_is_never_above_its_likelihoods_top(law, noise):
    "At huge means the law's terms are rounded to more than one; the whole law lies above the top."
    release = Release([60.0], Query(identity, 1.0, step=1), Published(noise, clamp=(0, 60)))
    seen = Seen(parts_of(release.mechanism, release.s_dp), [0])
    means = 10.0 ** np.arange(2, 31)
    given = (means,) if law == "poisson" else (np.full(29, 50.0), 50 / (50 + means))
    found = log_sums(law, given, seen, np.zeros(29, int))
    top = seen.levels.highest[0]
    assert (found <= top).all() and np.allclose(found[2:10], top, atol=1e-4)


@pytest.mark.thorough
def test_a_rate_with_a_random_effect_below_the_top_of_a_clamp():
    "Which once ended in an error: compared with the sum over counts, on a grid of rates."
    values = np.array([60.0, 25, 10, 33, 41])
    noise = Published(DiscreteLaplace(3.0), clamp=(0, 60))
    release = Release(values, Query(identity, 1.0, step=1), noise)
    prior = Prior(mu=stats.lognorm(1, scale=15))

    def simulate(theta, rng):
        return rng.poisson(theta * rng.gamma(3.0, size=(len(theta), 5)) / 3)

    how = dict(rng=np.random.default_rng(1), progress=False)
    found = infer(release, Model(prior, simulate), **how)
    mu, n = np.geomspace(1, 400, 300), np.arange(3000)[:, None]
    log_pmf = stats.nbinom.logpmf(n, 3, 3 / (3 + mu))
    log_p = stats.lognorm(1, scale=15).logpdf(mu) + np.log(np.gradient(mu))
    for value in values:
        log_eta = noise.log_prob(np.array([value]), n.astype(float))
        log_p += special.logsumexp(log_pmf + log_eta[:, None], axis=0)
    p = np.exp(log_p - log_p.max())
    mean = (p * mu).sum() / p.sum()
    sd = np.sqrt((p * (mu - mean) ** 2).sum() / p.sum())
    assert found.exact
    assert abs(found.mean()[0] - mean) < 5 * found.mcse()[0]  # 1 in a million
    assert abs(found.std()[0] / sd - 1) < 0.1
