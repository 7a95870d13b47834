"""Records that come and go: against enumeration, the compiled loop, an invariant posterior."""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import special, stats

from dpsbi.analyst.importance.student_mixture import StudentMixture
from dpsbi.analyst.mcmc import unknown_n as ghosts
from dpsbi.analyst.mcmc import unknown_n as leaps
from dpsbi.analyst.mcmc import unknown_n as un
from dpsbi.analyst.mcmc.da_mcmc import AdaptiveRandomWalk
from dpsbi.checks.testing import follows, follows_pmf
from dpsbi.mechanisms import DiscreteLaplace, Independent, Laplace, Release
from dpsbi.privacy import Query, identity
from dpsbi.simulators.regression_population import RegressionPopulation, regression_sums

YES = Query(identity, 1, neighbours="add-remove", dim=1)
BOTH = Query(identity, 2, neighbours="add-remove", dim=2)
SIZE = stats.poisson(8)


class Share:
    "Yes/no records, Beta(1, 2) prior; the number of yes, and that of records."

    names = ("share",)

    def start(self, chains, rng):
        return rng.beta(1, 2, (chains, 1))

    def records(self, theta, m, rng):
        return (rng.random((len(theta), m, 1)) < theta[:, None]).astype(float)

    def contributions(self, x):
        return np.concatenate([x, np.ones_like(x)], axis=2)

    def update(self, theta, x, present, rng):
        yes = (x[..., 0] * present).sum(axis=1)
        return rng.beta(1 + yes, 2 + present.sum(axis=1) - yes)[:, None]


class YesAlone(Share):
    def contributions(self, x):
        return x


class Moving(YesAlone):
    def log_prior(self, theta):
        t = theta[:, 0]
        return np.where((t > 0) & (t < 1), np.log1p(-np.clip(t, 0, 1 - 1e-16)), -np.inf)

    def carry(self, theta, x, theta_new, rng):
        theta, u = theta[:, None], rng.random(x.shape)
        u = np.where(x == 1, theta * u, theta + (1 - theta) * u)
        return (u < theta_new[:, None]).astype(float)


def listed(release, most=50):
    n, k = (v.ravel() for v in np.indices((most + 1, most + 1)))
    n, k = n[k <= n], k[k <= n]
    s = np.column_stack([k, n])[:, : release.s_dp.size].astype(float)
    log_w = SIZE.logpmf(n) + stats.betabinom(n, 1, 2).logpmf(k)
    w = special.softmax(log_w + release.mechanism.log_prob(release.s_dp, s))
    cdf = lambda t: special.betainc(1 + k, 2 + n - k, np.asarray(t)[..., None]) @ w
    return np.bincount(n, w), cdf


@pytest.mark.parametrize(
    "latent, release",
    [
        (Share(), Release([5.0, 13.0], BOTH, DiscreteLaplace(2.0))),
        (YesAlone(), Release([6.3], YES, Laplace(1.0))),
        (Moving(), Release([6.3], YES, Laplace(1.0))),
    ],
    ids=lambda v: type(v).__name__,
)
def test_number_and_share_against_enumeration(latent, release):  # false alarm: 2e-6 each
    pmf, cdf = listed(release)
    how = dict(draws=2_560, thin=4, warmup=80, rng=np.random.default_rng(3), progress=False)
    p = un.da_unknown_n(release, latent, SIZE, **how)
    often = pmf > 1e-4
    follows_pmf(p["n"], np.flatnonzero(often), pmf[often])
    follows(p["share"], cdf)


def test_an_empty_population_is_possible():
    release = Release([-1.0, -1.0], BOTH, Laplace(0.3))
    how = dict(draws=1_280, thin=2, warmup=60, rng=np.random.default_rng(3), progress=False)
    p = un.da_unknown_n(release, Share(), stats.poisson(1), **how)
    assert (p["n"] == 0).mean() > 0.8


def test_the_compiled_visits_are_the_general_ones():
    rng = np.random.default_rng(1)
    scales, s_dp = rng.gamma(2, size=4), rng.normal(size=4)
    s, steps = rng.normal(size=(6, 4)), rng.normal(size=(6, 30, 4))
    n, log_u = rng.integers(0, 31, 6), np.log(rng.random((6, 30)))
    log_eta = lambda s: -(np.abs(s - s_dp) / scales).sum(-1)
    general = ghosts._visit_any(log_eta, s.copy(), steps, n, log_u)
    compiled = ghosts._compiled()(s.copy(), steps, n, log_u, s_dp, 1 / scales)
    assert np.array_equal(general, compiled)
    counted = np.arange(30) < n[:, None]
    assert 0 < general.sum() < counted.sum() and not general[~counted].any()


def test_sums_between_two_numbers_are_signed():
    t = np.random.default_rng(1).normal(size=(3, 9, 2))
    start, stop = np.array([0, 7, 4]), np.array([5, 2, 4])
    expected = [t[0, :5].sum(0), -t[1, 2:7].sum(0), np.zeros(2)]
    assert np.allclose(ghosts._compiled_difference()(t, start, stop), expected)


def test_scales_of_laplace_noise():
    both = Independent((Laplace(2.0), Laplace(5.0)), (3, 1))
    assert ghosts._laplace_scales(both, 4).tolist() == [2, 2, 2, 5]
    assert ghosts._laplace_scales(Laplace(3.0), 2).tolist() == [3, 3]
    mixed = Independent((Laplace(2.0), DiscreteLaplace(5.0)))
    assert (
        ghosts._laplace_scales(mixed, 2) is ghosts._laplace_scales(DiscreteLaplace(1.0), 2) is None
    )


class Staying(RegressionPopulation):
    def carry(self, theta, x, theta_new, rng):
        return np.array(x)


def rough_leaps(people, kind=StudentMixture):
    "Leaps by a law as wide as the prior."
    middle = np.append(people.theta.mean(axis=0), np.log(9))
    spread = np.diag([*people.theta.std(axis=0), 0.6])
    return leaps.JointIndependenceMove(kind(np.ones(1), middle[None], spread[None]), 20)


def drift(latent, break_jump=False, chains=2000, sweeps=12, kind=StudentMixture):
    "z of the mean change of parameters and number over sweeps that start from the posterior."
    rng, law = np.random.default_rng(5), stats.poisson(8)
    noise = Laplace(3.0)
    n, log_size = law.rvs(chains, random_state=rng), law.logpmf
    people = ghosts.padded_records(latent, latent.start(chains, rng), n, 10, rng)
    s_dp = noise.sample(people.s, rng)
    log_eta = lambda s: noise.log_prob(s_dp, s)
    wrong = (lambda n: np.where(n >= 0, 0.0, -np.inf)) if break_jump else log_size
    walk = AdaptiveRandomWalk(np.zeros(10), np.diag([*[0.04] * 9, 4.0]))
    rough = rough_leaps(people, kind)

    def seen():
        mean = (people.x * people.present()[..., None]).sum(axis=1) / np.maximum(people.n, 1)[
            :, None
        ]
        return np.arctan(np.column_stack([people.theta, people.n / 8, people.s, mean]))

    before = seen()
    for _ in range(sweeps):
        people.theta = latent.update(people.theta, people.x, people.present(), rng)
        ghosts._replace_records(log_eta, people, rng)
        for _ in range(2):
            leaps._joint_walk_step(log_eta, log_size, people, walk, rng)
            rough.leap(log_eta, log_size, people, rng)
            leaps._birth_death_step(log_eta, wrong, people, 5.0, rng)
        people.trim()
    change = seen() - before
    return np.abs(change.mean(0) / (change.std(0) / math.sqrt(chains))).max()


@pytest.mark.thorough
def test_a_sweep_leaves_the_regressions_posterior_alone():  # false alarm: 1e-6
    limit = stats.norm.isf(0.5e-6 / 23)
    assert drift(RegressionPopulation(2, count=True)) < limit
    assert drift(Staying(2, count=True)) > limit
    assert drift(RegressionPopulation(2, count=True), break_jump=True) > limit
    assert drift(RegressionPopulation(2, count=True), kind=NoRatio) > limit


class NoRatio(StudentMixture):
    def log_prob(self, z):
        return np.zeros(len(z))


@pytest.mark.thorough
def test_leaps_by_a_rough_law_have_the_exact_posterior():  # false alarm: 2e-6
    release, rng = Release([6.3], YES, Laplace(1.0)), np.random.default_rng(4)
    n = SIZE.rvs(4000, random_state=rng)
    people = ghosts.padded_records(Moving(), rng.beta(1, 2, (4000, 1)), n, 1, rng)
    log_eta = lambda s: release.mechanism.log_prob(release.s_dp, s)
    rough = rough_leaps(people)
    made = [rough.leap(log_eta, SIZE.logpmf, people, rng).mean() for _ in range(60)]
    assert np.mean(made) > 0.1
    pmf, cdf = listed(release)
    often = pmf > 1e-4
    follows_pmf(people.n, np.flatnonzero(often), pmf[often])
    follows(people.theta[:, 0], cdf)


def test_leaps_are_learned_and_given_up():
    rng = np.random.default_rng(1)
    people = ghosts.padded_records(Moving(), rng.beta(1, 2, (64, 1)), np.full(64, 8), 1, rng)
    learner = leaps.JointMoveLearner()
    learner.see(people, rng)
    learner.seen[0] = learner.seen[0][:30]
    learner.fit(rng)
    assert learner.leaps is None and not learner.worth()  # too few points
    learner.see(people, rng)
    learner.fit(rng)
    assert learner.leaps.reach >= 16 and not learner.worth()
    learner.made += [0.5]
    assert learner.worth() and not learner.worth(0.6)


@pytest.mark.thorough
def test_a_bent_ridge_is_crossed():
    "No number of records, and a flat prior: without leaps R-hat is 1.8 and ESS 100 of 6,400."
    how = dict(draws=1_920, chains=64, warmup=120, moves=8, progress=False)
    release = Release([26.0], YES, Laplace(1.0))
    flat = stats.randint(1, 1001)
    p = un.da_unknown_n(release, Moving(), flat, rng=np.random.default_rng(2), **how)
    assert p.info["leaped"] > 0.1 and max(p.info["rhat"]) < 1.1 and p.ess > 500


def test_the_same_draws_for_any_executor():
    release = Release([6.3], YES, Laplace(1.0))
    how = dict(draws=1_280, chains=128, warmup=5, progress=False)
    one = un.da_unknown_n(release, Moving(), SIZE, rng=np.random.default_rng(1), **how)
    with ThreadPoolExecutor(2) as executor:
        two = un.da_unknown_n(
            release, Moving(), SIZE, rng=np.random.default_rng(1), executor=executor, **how
        )
    assert np.array_equal(one.theta, two.theta)


def test_a_finished_run_is_read_and_not_run_again(tmp_path):
    release = Release([6.3], YES, Laplace(1.0))
    how = dict(draws=640, warmup=5, progress=False, checkpoint=tmp_path / "run")
    one = un.da_unknown_n(release, Moving(), SIZE, rng=np.random.default_rng(1), **how)

    class Never(Moving):
        __wrapped__ = Moving()

        def records(self, theta, m, rng):
            raise AssertionError("run again")

    two = un.da_unknown_n(release, Never(), SIZE, rng=np.random.default_rng(1), **how)
    assert np.array_equal(one.theta, two.theta)


@pytest.mark.parametrize(
    "change, error, word",
    [
        (dict(size=100), TypeError, "frozen discrete law"),
        (dict(size=stats.norm(100, 3)), TypeError, "frozen discrete law"),
        (dict(size=stats.randint(-2, 5)), ValueError, "0 and above"),
        (dict(latent_model=Share()), ValueError, "one value for each"),
        (dict(draws=0), ValueError, "draws"),
    ],
)
def test_bad_input(change, error, word):
    release = Release([6.3], YES, Laplace(1.0))
    usual = dict(latent_model=Moving(), size=SIZE, draws=64, rng=np.random.default_rng(1))
    with pytest.raises(error, match=word):
        un.da_unknown_n(release, **usual | change, progress=False)


def test_the_regressions_sensitivity_is_attained():
    for p in (1, 2, 3):
        query = regression_sums(p, count=True)
        assert np.abs(query(np.full((1, 1, p + 1), 9.0))).sum() == query.sensitivity
