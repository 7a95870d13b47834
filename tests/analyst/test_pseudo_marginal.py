"""The pseudo-marginal method: filters without bias, exact answers by either way, executors and
checkpoints, possible resampling, bad input.
"""

import importlib
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import dpsbi
from dpsbi.analyst.filtering import particle_filter as outlook
from dpsbi.analyst.filtering import particle_filter as particle_clouds
from dpsbi.analyst.filtering import particle_filter as pf
from dpsbi.analyst.filtering import pseudo_marginal as estimated
from dpsbi.analyst.filtering import pseudo_marginal as pm
from dpsbi.checks.testing import agrees
from dpsbi.privacy import identity
from dpsbi.simulators import counts as counts
from dpsbi.simulators import sir as sir


@dataclass(frozen=True)
class Walk:
    "A random walk with steps of variance theta² per unit of time, seen at some times."

    prior: dpsbi.Prior
    times: tuple

    def start(self, theta, particles, rng):
        return np.zeros((len(theta), particles, 1))

    def step(self, state, theta, t, until, rng):
        return state + theta[:, None] * np.sqrt(until - t) * rng.normal(size=state.shape)

    def observed(self, state, j):
        return state[..., 0]

    def simulate(self, theta, rng):
        return np.cumsum(
            theta
            * np.sqrt(np.diff(self.times, prepend=0.0))
            * rng.normal(size=(len(theta), len(self.times))),
            axis=1,
        )


class Forecasting(Walk):
    def forecast(self, state, theta, t, until):
        return state[..., 0], np.broadcast_to(theta**2 * (until - t), state.shape[:2])


PRIOR, TIMES = dpsbi.Prior(sigma=stats.lognorm(0.4)), (0.5, 1.0, 3.0)
RELEASE = dpsbi.Release(
    [0.3, -0.4, 1.0], dpsbi.Query(identity, 1, norm="l2", dim=3), dpsbi.Gaussian(0.5)
)
COUNT = dpsbi.Release([37.4], counts.counting_query(), dpsbi.Laplace(5.0))
PATIENTS = counts.gamma_poisson(25, 1)
methods = pytest.mark.parametrize("method", pm._METHODS)


def exact(sigma, noise, s_dp=RELEASE.s_dp):
    cov = sigma**2 * np.minimum.outer(TIMES, TIMES) + noise**2 * np.eye(3)
    return stats.multivariate_normal(np.zeros(3), cov).logpdf(s_dp)


def run(release=RELEASE, model=Forecasting(PRIOR, TIMES), seed=1, **how):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short chains have a large R-hat
        return pm.pseudo_marginal(
            release,
            model,
            rng=np.random.default_rng(seed),
            **(dict(draws=300, walk=pm.Walk(6, 60), progress=False) | how),
        )


def same(a, b):
    return (
        np.array_equal(a.theta, b.theta)
        and np.array_equal(a.weights, b.weights)
        and a.info == b.info
    )


@pytest.mark.thorough
@pytest.mark.parametrize(
    "model, noise, look_ahead",
    [
        (Walk, 0.5, True),
        (Forecasting, 0.5, False),
        (Forecasting, 0.5, True),
        (Forecasting, 0.005, True),
    ],
)
def test_the_filter_is_unbiased(model, noise, look_ahead):
    release = dpsbi.Release(RELEASE.s_dp, RELEASE.query, dpsbi.Gaussian(noise))
    theta = np.repeat([[0.6], [1.3]], 1500, axis=0)
    logs = pf.log_likelihood(
        release,
        model(PRIOR, TIMES),
        theta,
        particles=60,
        rng=np.random.default_rng(2),
        look_ahead=look_ahead,
    )
    ratio = np.exp(logs.reshape(2, -1) - [[exact(0.6, noise)], [exact(1.3, noise)]])
    agrees(ratio.mean(1), 1.0, ratio.std(1) / np.sqrt(ratio.shape[1]), verbose=False)


def test_simulations_are_unbiased_too():
    logs = pf.log_likelihood(
        COUNT, PATIENTS, np.full((20_000, 1), 30.0), particles=3, rng=np.random.default_rng(3)
    )
    ratio = np.exp(logs - counts.Likelihood(COUNT).log(30.0))
    agrees(ratio.mean(), 1.0, ratio.std() / np.sqrt(ratio.size), verbose=False)


def test_looking_ahead_survives_noise_that_a_plain_filter_does_not():
    release = dpsbi.Release(RELEASE.s_dp, RELEASE.query, dpsbi.Gaussian(1e-5))
    sd = [
        pf.log_likelihood(
            release,
            Forecasting(PRIOR, TIMES),
            np.ones((40, 1)),
            particles=100,
            rng=np.random.default_rng(4),
            look_ahead=a,
        ).std()
        for a in (True, False)
    ]
    assert sd[0] < 3 and sd[1] > 100


@pytest.mark.thorough
@methods
def test_agrees_with_the_exact_posterior(method):
    z = np.linspace(-2.5, 2.5, 2001)
    log_p = np.array([exact(s, 0.5) for s in np.exp(z)]) + stats.norm(0, 0.4).logpdf(z)
    w = np.exp(log_p - log_p.max())
    found = run(model=Walk(PRIOR, TIMES), method=method, draws=1000, walk=pm.Walk(6, 60))
    logs = dpsbi.Posterior(np.log(found.theta), found.log_weights, info=found.info)
    agrees(logs.mean()[0], w @ z / w.sum(), logs.mcse()[0], verbose=False)
    if method == "importance":
        evidence = np.log(w.sum() * (z[1] - z[0])) + log_p.max()
        agrees(found.info["log_evidence"], evidence, found.info["log_evidence_se"], verbose=False)


def test_each_round_makes_draws_of_its_own(monkeypatch):
    room = importlib.import_module("dpsbi.analyst.filtering.pseudo_marginal")
    whole = room._sharpened
    monkeypatch.setattr(room, "_sharpened", lambda *given: (whole(*given)[0], 60))
    found = run(model=Walk(PRIOR, TIMES))
    assert len(found.info["ess_by_round"]) > 1
    assert len(np.unique(found.theta)) == len(found.theta)


def fragile():
    "A model that is interrupted at its 150th step."

    class Fragile(Forecasting):
        calls = 0

        @property
        def __wrapped__(self):
            return Forecasting(self.prior, self.times)

        def step(self, *args):
            Fragile.calls += 1
            if Fragile.calls == 150:
                raise KeyboardInterrupt
            return super().step(*args)

    return Fragile


def roughly(centre, sd=0.1):
    "A posterior of sigma known by draws around a centre."
    return dpsbi.Posterior(
        np.exp(np.random.default_rng(5).normal(np.log(centre), sd, (500, 1))), names=PRIOR.names
    )


def refined(start=roughly(0.9), release=RELEASE, model=Forecasting(PRIOR, TIMES), seed=1, **how):
    return dpsbi.refine(
        start,
        release,
        model,
        rng=np.random.default_rng(seed),
        **(dict(target_ess=300, progress=False) | how),
    )


# far out on either side, and right
@pytest.mark.thorough
@pytest.mark.parametrize("centre", [0.2, 6.0, pytest.param(0.9, marks=pytest.mark.slow)])
def test_refined_by_a_filter_it_is_exact_wherever_it_began(centre):
    z = np.linspace(-2.5, 2.5, 2001)
    log_p = np.array([exact(s, 0.05) for s in np.exp(z)]) + stats.norm(0, 0.4).logpdf(z)
    w = np.exp(log_p - log_p.max())
    found = refined(
        roughly(centre),
        dpsbi.Release(RELEASE.s_dp, RELEASE.query, dpsbi.Gaussian(0.05)),
        target_ess=600,
    )
    assert found.ess >= 600 and found.info["method"] == "refined" and found.info["pareto_k"] < 0.7
    logs = dpsbi.Posterior(np.log(found.theta), found.log_weights)
    agrees(logs.mean()[0], w @ z / w.sum(), logs.mcse()[0], verbose=False)
    spread = w @ (z - w @ z / w.sum()) ** 2 / w.sum()
    agrees(logs.std()[0] ** 2, spread, 2 * spread / np.sqrt(found.ess), verbose=False)


@pytest.mark.thorough
def test_refined_by_a_filter_one_seed_one_result_also_when_killed(tmp_path):
    alone, path = refined(), tmp_path / "run.npz"
    with ThreadPoolExecutor(3) as pool:
        assert same(alone, refined(executor=pool))
    with pytest.raises(KeyboardInterrupt):
        refined(model=fragile()(PRIOR, TIMES), checkpoint=path)
    assert same(alone, refined(checkpoint=path))
    with pytest.raises(ValueError, match="another run"):  # a run that began elsewhere
        run(model=Forecasting(PRIOR, TIMES), draws=300, checkpoint=path)
    with pytest.raises(ValueError, match="differs in proposal"):  # and one of the same kind
        refined(roughly(0.95), checkpoint=path)


@pytest.mark.parametrize(
    "how, match",
    [
        (dict(simulations=100), "target_ess"),
        (dict(target_ess=0), "above 0"),
        (dict(target_ess=np.nan), "above 0"),
        (dict(target_ess=np.inf), "finite"),
        (dict(start=dpsbi.Posterior(np.ones((9, 2)), names=("a", "b"))), "parameters"),
    ],
)
def test_refine_by_a_filter_refuses(how, match):
    with pytest.raises(ValueError, match=match):
        refined(**how)


def test_refine_goes_on_until_the_target_and_no_further():
    rough = dpsbi.Posterior(
        np.random.default_rng(5).gamma(25, 1, (500, 1)), names=PATIENTS.prior.names
    )
    some, more = (
        dpsbi.refine(
            rough,
            COUNT,
            PATIENTS,
            rng=np.random.default_rng(1),
            target_ess=n,
            simulations=20_000,
            progress=False,
        )
        for n in (500, 4000)
    )
    assert (
        some.ess >= 500
        and more.ess >= 4000
        and some.info["simulations"] < more.info["simulations"] <= 20_000
    )
    with pytest.warns(UserWarning, match="worth .* not 15000"):
        dpsbi.refine(
            rough,
            COUNT,
            PATIENTS,
            rng=np.random.default_rng(1),
            target_ess=15_000,
            simulations=1000,
            progress=False,
        )


@pytest.mark.parametrize(
    "how", [dict(), dict(method="metropolis", draws=1500, walk=pm.Walk(6, 60))], ids=str
)
def test_a_plain_model_agrees_with_enumeration(how):
    found, truth = (
        run(COUNT, PATIENTS, **(dict(draws=2000) | how)),
        counts.exact_posterior(25, 1, COUNT),
    )
    agrees(found.mean()[0], truth.mean, found.mcse()[0], verbose=False)


def test_a_chain_of_one_simulation_an_estimate_has_the_exact_moments():
    "Against sums over all counts; a false alarm has the probability 2e-6."
    likelihood, rng = pf.FilteredLikelihood(COUNT, PATIENTS, 1), np.random.default_rng(5)
    truth = counts.exact_posterior(25, 1, COUNT)
    begun = np.log(rng.gamma(30.0, size=(400, 1)))
    state = np.column_stack([begun, np.full(400, -10.0), np.zeros(400)])
    walked = np.exp(pm._steps(likelihood, state, np.array([[0.4]]), 400, rng)[:, 100:, 0])
    for found, true in ((walked, truth.mean), (walked**2, truth.std**2 + truth.mean**2)):
        chains = found.mean(axis=1)
        error = chains.std(ddof=1) / np.sqrt(400)
        agrees(chains.mean(), true, error, alarm=1e-6, verbose=False)


@pytest.mark.thorough
@methods
def test_one_seed_one_result_with_any_executor(method):
    few = dict(method=method, draws=100, walk=pm.Walk(4, 20), particles=20)
    alone = run(**few)
    assert not same(alone, run(**few | dict(seed=2)))
    for pool in (ThreadPoolExecutor(3), ProcessPoolExecutor(2)):
        with pool:
            assert same(alone, run(**few, executor=pool))


@pytest.mark.thorough
@methods
def test_a_killed_run_resumes_to_the_same_result(method, tmp_path):
    alone, path, Fragile = run(method=method, particles=20), tmp_path / "run.npz", fragile()
    with pytest.raises(KeyboardInterrupt):
        run(model=Fragile(PRIOR, TIMES), method=method, particles=20, checkpoint=path)
    assert same(alone, run(method=method, particles=20, checkpoint=path))
    Fragile.calls = 200
    finished = run(model=Fragile(PRIOR, TIMES), method=method, particles=20, checkpoint=path)
    assert (
        same(alone, finished) and Fragile.calls < 210
    )  # nothing is computed again; bad input is still looked for
    with pytest.raises(ValueError, match="another run"):
        run(method=method, particles=20, seed=2, checkpoint=path)


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.floats(0, 1e6), min_size=2, max_size=40).filter(lambda w: max(w) > 1e-3),
    st.integers(0, 2**32),
)
def test_systematic_resampling_copies_the_floor_or_the_ceiling(weights, seed):
    weights = np.array([weights, weights[::-1]])
    survivors = particle_clouds.ancestors(weights, np.random.default_rng(seed))
    expected = weights.shape[1] * weights / weights.sum(1, keepdims=True)
    copies = np.array([np.bincount(row, minlength=weights.shape[1]) for row in survivors])
    assert survivors.shape == weights.shape and np.all(np.abs(copies - expected) < 1 + 1e-9)


@settings(deadline=None, max_examples=50)
@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.integers(0, 2))
def test_readings_of_additive_noise(y, scale, kind):
    mechanism = (dpsbi.Laplace, dpsbi.Gaussian, lambda b: dpsbi.DiscreteLaplace(b))[kind](scale)
    y = np.rint(y) if kind == 2 else y
    likeliest, width = outlook.reading(mechanism, y)
    assert abs(likeliest - y) <= 0.51 * (kind == 2) + 0.02 * scale + 1e-9 * abs(y)
    assert 0.85 * scale <= width <= 1.01 * scale + 0.6 * (kind == 2)


@pytest.mark.thorough
def test_the_epidemic_through_either_mechanism():
    times = (2.0, 4.0, 8.0)
    model, query = sir.sir_state_space(500, times, initial=5), sir.infection_counts_query(times)
    s = model.simulate(np.array([[0.9, 0.3]]), np.random.default_rng(1))
    for mechanism in (dpsbi.DiscreteLaplace(2.0), dpsbi.BinomialResponse(50, 10, 500)):
        s_dp = mechanism.sample(s, np.random.default_rng(2))[0]
        found = run(dpsbi.Release(s_dp, query, mechanism), model, draws=100)
        assert found.ess >= 100 and found.names == ("beta", "gamma")


class OneShift(dpsbi.Mechanism):
    def log_prob(self, s_dp, s):
        return stats.norm.logpdf(np.mean(np.subtract(s_dp, s), axis=-1))


class Flat(Walk):
    def start(self, theta, particles, rng):
        return np.zeros((len(theta), particles))


class Growing(Walk):
    def step(self, state, *args):
        return np.concatenate([state, state], axis=-1)


class Wide(Walk):
    def observed(self, state, j):
        return np.concatenate([state, state], axis=-1)


class Lost(Walk):
    def step(self, state, *args):
        return state * np.nan


class Half:
    prior, step = PRIOR, None


@pytest.mark.parametrize("wrong", [dict(chains=0), dict(warmup=-1), dict(thin=0), dict(blocks=3)])
def test_a_walk_of_no_such_numbers_is_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        pm.Walk(**wrong)


@pytest.mark.parametrize(
    "release, model, how, error, match",
    [
        (RELEASE, Walk(PRIOR, TIMES), dict(method="gibbs"), ValueError, "method"),
        (RELEASE, Walk(PRIOR, TIMES), dict(draws=0), ValueError, "draws"),
        (RELEASE, Walk(PRIOR, TIMES), dict(particles=0), ValueError, "particles"),
        (
            dpsbi.Release(RELEASE.s_dp, RELEASE.query, dpsbi.Mechanism()),
            Walk(PRIOR, TIMES),
            {},
            ValueError,
            "no density",
        ),
        (
            dpsbi.Release(RELEASE.s_dp, RELEASE.query, OneShift()),
            Walk(PRIOR, TIMES),
            {},
            ValueError,
            "independent parts",
        ),
        (RELEASE, Walk(PRIOR, (1.0, 1.0, 2.0)), {}, ValueError, "increasing"),
        (RELEASE, Walk(PRIOR, (1.0, 2.0)), {}, ValueError, "shared among"),
        (RELEASE, Flat(PRIOR, TIMES), {}, ValueError, "start"),
        (RELEASE, Growing(PRIOR, TIMES), {}, ValueError, "step"),
        (RELEASE, Wide(PRIOR, TIMES), {}, ValueError, "observed"),
        (RELEASE, Lost(PRIOR, TIMES), {}, ValueError, "could have led"),
        (RELEASE, Half(), {}, TypeError, "lacks times"),
        (
            COUNT,
            dpsbi.Model(PATIENTS.prior, lambda theta, rng: theta * np.nan),
            {},
            ValueError,
            "could have led",
        ),
        (RELEASE, PATIENTS, {}, ValueError, "values to compare"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_bad_input(release, model, how, error, match):
    with pytest.raises(error, match=match):
        run(release, model, **how)


def test_particles_do_not_go_back_and_forth_where_a_few_too_few_are_far_too_few():
    @dataclass(frozen=True)
    class Cloud:
        particles: int
        filtered = True

    sizes = []

    def estimate(cloud, z, rng):
        sizes.append(cloud.particles)
        return rng.normal(0, 0.5 if cloud.particles >= 60 else 3.5, len(z))

    run = SimpleNamespace(
        likelihood=Cloud(64),
        guided=lambda z, rng: Cloud(64),
        estimate=estimate,
        tally=dict(fixed=False),
        affords=lambda likelihood, n, share=1.0: n,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cloud, sd = estimated._tune(
            run,
            SimpleNamespace(z=np.zeros((3, 1)), log_weights=np.zeros(3)),
            1.0,
            np.random.default_rng(1),
        )
    assert cloud.particles >= 60 and sd < 1 and len(sizes) == 3


def test_a_cloud_from_which_nothing_could_have_come_stays_impossible():
    log_w = np.array([[-1.6, -0.2], [-np.inf, -np.inf]])
    total = np.array([-3.0, -3.0])
    pf.select(np.zeros((2, 2, 1)), log_w, np.zeros((2, 2)), total, np.random.default_rng(1))
    assert np.isfinite(total[0]) and np.isneginf(total[1])
