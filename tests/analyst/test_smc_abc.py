"""Population Monte Carlo ABC: exact with the mechanism's density, its own target with a distance;
it always ends.
"""

import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import wraps

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

import dpsbi
from dpsbi.analyst.smc.smc_abc import Populations, log_kernels, smc_abc
from dpsbi.privacy import identity
from dpsbi.simulators import counts as counts

MODEL = counts.gamma_poisson(alpha=25, beta=1)
RELEASE = dpsbi.Release([37.4], counts.counting_query(), dpsbi.Laplace(5.0))
kernels = pytest.mark.parametrize("kernel", ["mechanism", "distance"])


def run(release=RELEASE, model=MODEL, seed=1, **how):
    return smc_abc(
        release,
        model,
        rng=np.random.default_rng(seed),
        **(dict(draws=200, populations=Populations(300), progress=False) | how),
    )


def same(a, b):
    return (
        np.array_equal(a.theta, b.theta)
        and np.array_equal(a.weights, b.weights)
        and a.info == b.info
    )


@pytest.mark.thorough
@kernels
def test_one_seed_one_result_with_any_executor(kernel):
    alone = run(kernel=kernel)
    assert same(alone, run(kernel=kernel)) and not same(alone, run(kernel=kernel, seed=2))
    for pool in (ThreadPoolExecutor(3), ProcessPoolExecutor(2)):
        with pool:
            assert same(alone, run(kernel=kernel, executor=pool))
    with pytest.raises(TypeError, match="rng"):
        smc_abc(RELEASE, MODEL, draws=10)


@kernels
def test_a_checkpoint_gives_the_result_again_and_no_other_run_may_have_it(kernel, tmp_path):
    first = run(kernel=kernel, checkpoint=tmp_path / "c.npz")
    calls = []
    counted = dpsbi.Model(MODEL.prior, wraps(MODEL.simulate)(lambda *_: calls.append(1)))
    assert (
        same(first, run(kernel=kernel, model=counted, checkpoint=tmp_path / "c.npz")) and not calls
    )
    for other in (dict(seed=2), dict(populations=Populations(300, keep=0.5)), dict(draws=100)):
        with pytest.raises(ValueError, match="another run"):
            run(kernel=kernel, checkpoint=tmp_path / "c.npz", **other)


@settings(max_examples=15)
@given(
    s_dp=st.floats(-30, 90),
    scale=st.floats(3, 60),
    shape=st.floats(5, 60),
    seed=st.integers(0, 10**6),
)
def test_the_mechanism_kernel_agrees_with_enumeration(s_dp, scale, shape, seed):
    # 15 cases, two |z| <= 5.5 each: false-alarm rate 1.2e-6 for the set, if the weights' tail is
    # light
    release = dpsbi.Release([s_dp], counts.counting_query(), dpsbi.Laplace(scale))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # too few draws, where the release is far from the prior
        found = run(
            release, counts.gamma_poisson(shape, 1), seed, draws=500, max_simulations=20_000
        )
    exact = counts.exact_posterior(shape, 1, release)
    assume(found.pareto_k < 0.5 and found.ess > 200)
    assert abs(found.mean()[0] - exact.mean) < 5.5 * found.mcse()[0]
    assert (
        abs(found.info["log_evidence"] - exact.log_evidence) < 5.5 * found.info["log_evidence_se"]
    )


@pytest.mark.thorough
@kernels
@pytest.mark.parametrize(
    "s_dp, noise",
    [([3.0, -3.0], 1e-6), ([400.0, 400.0], 0.5), ([0.0, 0.0], 1e6)],
    ids=["sharp", "far", "flat"],
)
def test_it_always_ends_within_its_budget(kernel, s_dp, noise):
    model = dpsbi.Model(
        dpsbi.Prior(a=stats.norm(0, 5), b=stats.norm(0, 5)),
        lambda theta, rng: rng.normal(theta, 0.3),
    )
    release = dpsbi.Release(s_dp, dpsbi.Query(identity, 1, norm="l2"), dpsbi.Gaussian(noise))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = run(release, model, kernel=kernel, max_simulations=6000)
    assert found.info["simulations"] <= 6000 and np.isfinite(found.theta).all()


@kernels
def test_draws_stay_inside_borders_and_on_the_simplex(kernel):
    prior = dpsbi.Prior(mix=stats.dirichlet([1.0, 1.0, 1.0]), rate=stats.uniform(0, 50))
    model = dpsbi.Model(prior, lambda theta, rng: rng.poisson(theta[:, 3:] * theta[:, :3]))
    found = run(
        dpsbi.Release(
            [40.0, 3.0, 0.0], dpsbi.Query(identity, 1, step=1), dpsbi.DiscreteLaplace(2.0)
        ),
        model,
        kernel=kernel,
        max_simulations=20_000,
    )
    assert (
        np.allclose(found.theta[:, :3].sum(1), 1)
        and (found.theta > 0).all()
        and (found.theta[:, 3] < 50).all()
    )


def test_the_distance_kernel_needs_no_density():
    class Secret:  # Laplace noise, sampled only
        def sample(self, s, rng):
            return s + rng.laplace(scale=5.0, size=np.shape(s))

    release = dpsbi.Release([37.4], counts.counting_query(), Secret())
    found = run(
        release,
        kernel="distance",
        tolerance=2.0,
        scale=1.0,
        draws=500,
        populations=Populations(1000),
    )
    assert found.info["tolerance"] == 2.0 and "log_evidence" not in found.info
    assert found.approximate and set(found.trust()) == {"approximate"}
    # uniform noise of half-width 2 on top of Laplace's: the exact posterior given that, by
    # enumeration
    s = np.arange(200)
    share = stats.nbinom(25, 0.5).pmf(s) * (
        stats.laplace(s, 5).cdf(39.4) - stats.laplace(s, 5).cdf(35.4)
    )
    mean = share @ (25 + s) / 2 / share.sum()
    assert abs(found.mean()[0] - mean) < 5 * found.mcse(own=True)[0]
    with pytest.raises(ValueError, match="distance"):
        run(release)


@kernels
@pytest.mark.parametrize(
    "simulate",
    [
        lambda theta, rng: theta * np.nan,
        lambda theta, rng: rng.poisson(3.0, (7, 1)),
        lambda theta, rng: rng.poisson(3.0, (len(theta), 4)),
        lambda theta, rng: 5.0,
    ],
    ids=["nan", "rows", "columns", "scalar"],
)
def test_simulators_that_fail_are_reported(kernel, simulate):
    with pytest.raises(ValueError):
        run(model=dpsbi.Model(MODEL.prior, simulate), kernel=kernel)


@kernels
def test_simulations_that_fail_now_and_then_have_no_weight(kernel):
    def patchy(theta, rng):
        s = rng.poisson(theta).astype(float)
        s[rng.random(len(s)) < 0.3] = np.inf
        return s

    with pytest.warns(UserWarning, match="not finite"):
        found = run(model=dpsbi.Model(MODEL.prior, patchy), kernel=kernel)
    assert (
        0.25 < found.info["failed"] / found.info["simulations"] < 0.35
    )  # 900 simulations at least: sd below 0.016


def test_a_few_draws_are_not_called_exact():
    release = dpsbi.Release([150.0], dpsbi.Query(identity, 1), dpsbi.Laplace(2.0))
    model = dpsbi.Model(dpsbi.Prior(rate=stats.gamma(25)), lambda theta, rng: rng.poisson(theta))
    how = dict(draws=1000, rng=np.random.default_rng(1), progress=False)
    with pytest.warns(UserWarning, match="effective draws"):
        found = dpsbi.smc_abc(release, model, max_simulations=20_000, **how)
    assert found.exact is False and found.info["reason"] == f"the draws are worth {found.ess:.0f}"
    assert "log_evidence" in found.info


def test_kernels_about_the_particles_are_a_mixture_of_normal_laws():
    rng = np.random.default_rng(1)
    z, centres, weights = (
        rng.normal(size=(5, 2)),
        rng.normal(size=(4, 2)),
        rng.dirichlet(np.ones(4)),
    )
    factor = np.array([[0.5, 0.0], [0.3, 0.8]])
    of_each = [stats.multivariate_normal(c, factor @ factor.T).pdf(z) for c in centres]
    found = log_kernels(z, centres, weights, factor)
    assert np.allclose(found, np.log(weights @ of_each), rtol=0, atol=1e-10)
