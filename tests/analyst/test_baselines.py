"""The baselines: plug-in and confidential answers by both routes, and the Gibbs sampler of
sufficient statistics.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from dpsbi.analyst.baselines import _scales, confidential, gibbs_ss, naive
from dpsbi.analyst.mcmc.gibbs_ss import noise_variance, statistic_given
from dpsbi.checks.testing import agrees, follows
from dpsbi.mechanisms import (
    BinomialResponse,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    Mechanism,
    Release,
    SmoothLaplace,
)
from dpsbi.models.model import Model
from dpsbi.models.prior import Prior
from dpsbi.privacy import Query, identity
from dpsbi.simulators import counts as counts
from dpsbi.simulators import naive_bayes as naive_bayes

pytestmark = pytest.mark.filterwarnings("ignore:R-hat")
QUIET = dict(progress=False)


@dataclass(frozen=True)
class PoissonMoments:
    alpha: float = 25.0
    beta: float = 1.0
    names = ("theta",)

    def start(self, chains, rng):
        return rng.gamma(self.alpha, 1 / self.beta, (chains, 1))

    def moments(self, theta):
        return theta, theta[:, :, None]

    def update(self, s, rng):
        return rng.gamma(self.alpha + np.maximum(s, 0), 1 / (self.beta + 1))


@dataclass(frozen=True)
class NormalMean:
    "theta ~ N(0, 1), s given theta ~ N(theta, variance): nothing is approximate."

    variance: float
    names = ("mean",)

    def start(self, chains, rng):
        return rng.standard_normal((chains, 1))

    def moments(self, theta):
        return theta, np.full((len(theta), 1, 1), self.variance)

    def update(self, s, rng):
        return s / (1 + self.variance) + np.sqrt(
            self.variance / (1 + self.variance)
        ) * rng.standard_normal(s.shape)


def example(s_dp=37.4, mechanism=Laplace(5.0)):
    return Release([s_dp], counts.counting_query(), mechanism)


# ---- naive and confidential


@pytest.mark.parametrize("s_dp, shape", [(37.4, 62.4), (-8.0, 25.0)])
def test_naive_by_update_is_the_conjugate_posterior(s_dp, shape):
    draws = naive(example(s_dp), PoissonMoments(), draws=5000, rng=np.random.default_rng(1))
    follows(draws.theta[:, 0], stats.gamma(shape, scale=0.5).cdf)
    assert draws.info == dict(method="naive", exact=True) and draws.names == ("theta",)


def test_naive_ignores_the_noise():
    "The mechanism is not consulted at all."
    draws = [
        naive(example(mechanism=m), PoissonMoments(), draws=20, rng=np.random.default_rng(1)).theta
        for m in (Laplace(5.0), Gaussian(0.1))
    ]
    assert np.array_equal(*draws)


def test_nearest_simulations_at_a_possible_count_are_exact():
    draws = naive(
        example(30.0),
        counts.gamma_poisson(25, 1),
        draws=1000,
        rng=np.random.default_rng(2),
        simulations=100_000,
        **QUIET,
    )
    assert draws.info["exact"] and draws.info["tolerance"] == 0
    follows(draws.theta[:, 0], stats.gamma(55, scale=0.5).cdf)


def test_nearest_simulations_of_an_impossible_count_are_zeros():
    draws = naive(
        example(-3.0), counts.gamma_poisson(1, 1), draws=1000, rng=np.random.default_rng(3), **QUIET
    )
    assert not draws.info["exact"] and draws.info["simulations"] == 100_000
    follows(
        draws.theta[:, 0], stats.expon(scale=0.5).cdf
    )  # half of all counts are 0, all at one distance


def test_confidential_takes_records_with_their_query():
    s, quiet = (
        np.array([3, 2, 2, 1]) / 8,
        dict(draws=200, rng=np.random.default_rng(4), simulations=60_000, **QUIET),
    )
    model, query = naive_bayes.naive_bayes(8, features=1)
    found = confidential(s, model, query=query, **quiet)
    assert found.info["exact"] and found.info["method"] == "confidential"
    for j, (a, b) in {0: (7, 5), 2: (5, 4), 4: (4, 3)}.items():
        follows(found.theta[:, j], stats.beta(a, b).cdf)


def test_binomial_response_is_read_as_a_share():
    release = Release([250.0], counts.counting_query(), BinomialResponse(1000, 5.0, 80))
    draws = naive(release, PoissonMoments(), draws=4000, rng=np.random.default_rng(5))
    follows(draws.theta[:, 0], stats.gamma(25 + 20, scale=0.5).cdf)


def test_a_smooth_sensitivity_takes_no_part_in_the_distance():
    model = Model(
        Prior(mean=stats.norm()),
        lambda theta, rng: np.hstack([theta, 1e9 * rng.random((len(theta), 1))]),
    )
    release = Release([0.5], Query(identity, 1.0, smoothness=0.1, dim=2), SmoothLaplace(2.0))
    draws = naive(release, model, draws=100, rng=np.random.default_rng(6), **QUIET)
    assert np.abs(draws.theta - 0.5).max() < 0.05 and draws.info["tolerance"] < 0.05


def test_failed_and_constant_simulations():
    "NaNs are left out; a column that never moves adds the same to all distances."

    def simulate(theta, rng):
        s = np.hstack([theta, np.ones_like(theta)])
        s[theta[:, 0] < 0] = np.nan
        return s

    model = Model(Prior(mean=stats.norm()), simulate)
    draws = naive(
        Release([-0.1, 3.0], Query(identity, 1.0), Laplace(1.0)),
        model,
        draws=50,
        rng=np.random.default_rng(7),
        **QUIET,
    )
    assert (draws.theta >= 0).all() and draws.theta.max() < 0.1
    agrees(draws.info["failed"], 2500, np.sqrt(5000 / 4), verbose=False)
    with pytest.raises(ValueError, match="finite"):
        naive(
            Release([0.0, 3.0], Query(identity, 1.0), Laplace(1.0)),
            model,
            draws=90,
            rng=np.random.default_rng(7),
            simulations=100,
            **QUIET,
        )


class Short(PoissonMoments):
    def update(self, s, rng):
        return super().update(s, rng)[1:]


@pytest.mark.parametrize(
    "call",
    [
        lambda rng: naive(example(), PoissonMoments(), draws=0, rng=rng),
        lambda rng: naive(example(), PoissonMoments(), draws=2.5, rng=rng),
        lambda rng: naive(example(), Short(), draws=10, rng=rng),
        lambda rng: naive(example(), counts.gamma_poisson(1, 1), draws=10, rng=rng, simulations=9),
        lambda rng: naive(
            Release([1.0, 2.0], Query(identity, 1), Laplace(1.0)),
            counts.gamma_poisson(1, 1),
            draws=10,
            rng=rng,
        ),
        lambda rng: confidential([np.inf], PoissonMoments(), draws=10, rng=rng),
        lambda rng: confidential([[1.0]], PoissonMoments(), draws=10, rng=rng),
    ],
)
def test_plug_in_bad_input(call):
    with pytest.raises(ValueError):
        call(np.random.default_rng(8))


# ---- Gibbs-SS


@pytest.mark.parametrize("z", [1e-15, 0.02, 2.0, 300.0])
def test_noise_variance_given_the_noise(z):
    """Its reciprocal is inverse Gaussian with mean 1/(b|z|) and shape 1/b²; the sign of z does not
    matter.
    """
    b, rng = 0.4, np.random.default_rng(9)
    tau = np.concatenate(
        [noise_variance(Laplace(b), np.full((1, 20_000), sign * z), rng)[0] for sign in (1, -1)]
    )
    follows(1 / tau, stats.invgauss(b / z, scale=1 / b**2).cdf)


def test_noise_variance_edges():
    rng = np.random.default_rng(10)
    at_zero = noise_variance(Laplace(2.0), np.zeros((200, 200)), rng).ravel()
    follows(at_zero / 4, stats.chi2(1).cdf)
    assert np.array_equal(
        noise_variance(Gaussian(0.5), np.ones((3, 2)), rng), np.full((3, 2), 0.25)
    )


@pytest.mark.thorough
@pytest.mark.parametrize("spread", [0.0, 2.0, 4.0])
def test_statistic_is_the_conditional_normal(spread):
    """Means and covariances for singular covariances of every rank, with noise variances that
    differ by up to 10^8.
    """
    rng, r, n = np.random.default_rng(11), 4, 50_000
    for rank in range(r + 1):
        root = rng.standard_normal((r, rank))
        mean, S, tau, s_dp = (
            rng.standard_normal(r),
            root @ root.T,
            10.0 ** rng.uniform(-spread, spread, r),
            rng.standard_normal(r),
        )
        s = statistic_given(s_dp, *(np.repeat(a[None], n, axis=0) for a in (mean, S, tau)), rng)
        gain = np.linalg.solve(S + np.diag(tau), S).T
        expected, cov = mean + gain @ (s_dp - mean), S - gain @ S
        upper = np.triu_indices(r)
        products = (s - expected)[:, upper[0]] * (s - expected)[:, upper[1]]
        noise, (values, vectors) = np.sqrt(tau), np.linalg.eigh(S / np.sqrt(np.outer(tau, tau)))
        if 0 < rank < r:  # draws leave the mean in no direction without variance
            astray = ((s - mean) / noise) @ vectors[:, : r - rank]
            assert (
                np.abs(astray).max()
                < 1000
                * 2.0**-52
                * max(values[-1] / values[r - rank], 1)
                * np.abs((s - mean) / noise).max()
            )
        floor = 1e-7 / np.sqrt(n)  # what `solve` loses at condition 10^8
        agrees(s.mean(axis=0), expected, s.std(axis=0) / np.sqrt(n) + floor, verbose=False)
        agrees(
            products.mean(axis=0),
            cov[upper],
            products.std(axis=0) / np.sqrt(n) + floor,
            verbose=False,
        )


def test_statistic_refuses_what_is_no_covariance():
    with pytest.raises(ValueError, match="negative eigenvalue"):
        statistic_given(
            np.zeros(2),
            np.zeros((1, 2)),
            np.array([[[1.0, 2.0], [2.0, 1.0]]]),
            np.ones((1, 2)),
            np.random.default_rng(12),
        )


def test_gibbs_is_exact_where_the_query_is_normal_under_gaussian_noise():
    found = gibbs_ss(
        Release([1.5], Query(identity, 1), Gaussian(0.7)),
        NormalMean(0.3),
        draws=32_000,
        rng=np.random.default_rng(13),
        warmup=50,
        thin=5,
        **QUIET,
    )
    share = 1 / (1 + 0.3 + 0.49)
    follows(
        found.theta.reshape(64, -1)[:, ::5].ravel(), stats.norm(1.5 * share, np.sqrt(1 - share)).cdf
    )
    agrees(found.mean(), [1.5 * share], found.mcse(), verbose=False)


@pytest.mark.thorough
def test_gibbs_is_exact_where_the_query_is_normal_under_laplace_noise():
    "Against quadrature, at a release so far out that the noise's variance must be learnt."
    found = gibbs_ss(
        Release([4.0], Query(identity, 1), Laplace(0.8)),
        NormalMean(0.3),
        draws=64_000,
        rng=np.random.default_rng(14),
        warmup=50,
        thin=2,
        **QUIET,
    )
    grid = np.linspace(-7, 7, 2001)
    density = stats.norm.pdf(grid) * (
        stats.norm.pdf(grid[:, None], grid, np.sqrt(0.3)) @ np.exp(-np.abs(4 - grid) / 0.8)
    )
    agrees(found.mean(), [grid @ density / density.sum()], found.mcse(), verbose=False)
    cdf = np.cumsum(density) / density.sum()
    follows(
        found.theta.reshape(64, -1)[:, ::20].ravel(), lambda t: np.interp(t, grid + 0.0035, cdf)
    )
    assert max(found.info["rhat"]) < 1.01


def test_scales_of_values_that_seldom_move():
    values = np.array([[1.0, 0, 5], [2, 0, 5], [4, 0, 5], [9, 0, 5], [100, 10, 5]])
    assert np.allclose(_scales(values), [3, 4, 1], rtol=1e-15, atol=0)


def test_gibbs_without_noise_is_the_conjugate_posterior():
    found = gibbs_ss(
        example(40.0, Laplace(1e-6)),
        PoissonMoments(),
        draws=6400,
        rng=np.random.default_rng(15),
        warmup=5,
        **QUIET,
    )
    follows(found.theta[:, 0], stats.gamma(65, scale=0.5).cdf)  # s moves by 1e-6 of 40


def test_gibbs_on_a_table_is_near_the_exact_posterior():
    """Within a fifth of a standard deviation at ε = 10; the naive Bayes counts are far from normal
    only in the tails.
    """
    release, exact = (
        naive_bayes.published(),
        naive_bayes.exact_posterior(naive_bayes.published(), 100),
    )
    found = gibbs_ss(
        release,
        naive_bayes.NaiveBayesMoments(100),
        draws=16_000,
        rng=np.random.default_rng(16),
        warmup=100,
        **QUIET,
    )
    assert (np.abs(found.mean() - exact.mean()) < 0.2 * exact.std()).all()
    assert np.allclose(found.std(), exact.std(), rtol=0.1)
    assert (
        max(found.info["rhat"]) < 1.01 and found.info["chains"] == 64 and found.names == exact.names
    )


def test_gibbs_is_the_same_for_any_workers_and_after_an_interruption(tmp_path):
    run = lambda model=PoissonMoments(), **kw: gibbs_ss(
        example(),
        model,
        draws=400,
        rng=np.random.default_rng(17),
        chains=130,
        warmup=5,
        **QUIET,
        **kw,
    )
    alone = run()
    assert alone.theta.shape == (130 * 4, 1) and alone.info["sweeps"] == 4
    with ThreadPoolExecutor(2) as pool:
        assert np.array_equal(run(executor=pool).theta, alone.theta)
        pair = [
            naive(
                example(),
                counts.gamma_poisson(2, 1),
                draws=20,
                rng=np.random.default_rng(17),
                executor=e,
                **QUIET,
            ).theta
            for e in (None, pool)
        ]
    assert np.array_equal(*pair)

    calls = []

    class Fragile(PoissonMoments):
        __wrapped__ = PoissonMoments()

        def update(self, s, rng):
            calls.append(len(s))
            if len(calls) == 14:
                raise KeyboardInterrupt
            return super().update(s, rng)

    with pytest.raises(KeyboardInterrupt):
        run(Fragile(), checkpoint=tmp_path / "run.npz")
    assert np.array_equal(run(checkpoint=tmp_path / "run.npz").theta, alone.theta)
    with pytest.raises(ValueError, match="another run"):
        gibbs_ss(
            example(),
            PoissonMoments(),
            draws=400,
            rng=np.random.default_rng(18),
            chains=130,
            warmup=5,
            checkpoint=tmp_path / "run.npz",
            **QUIET,
        )


def test_gibbs_warns_when_chains_have_not_mixed():
    with pytest.warns(UserWarning, match="R-hat"):
        gibbs_ss(
            example(mechanism=Laplace(500.0)),
            PoissonMoments(0.5, 0.01),
            draws=640,
            rng=np.random.default_rng(19),
            warmup=0,
            **QUIET,
        )


class Untidy(PoissonMoments):
    def moments(self, theta):
        return theta[:, 0], theta[:, :, None]


class Undefined(PoissonMoments):
    def moments(self, theta):
        return theta * np.nan, theta[:, :, None]


class Negative(PoissonMoments):
    def moments(self, theta):
        return theta, -theta[:, :, None]


class Odd(Mechanism):
    def sample(self, s, rng):
        return s


@pytest.mark.parametrize(
    "release, model, change",
    [
        (example(mechanism=DiscreteLaplace(5.0)), PoissonMoments(), {}),
        (example(mechanism=Odd()), PoissonMoments(), {}),
        (example(), PoissonMoments(), dict(draws=0)),
        (example(), PoissonMoments(), dict(chains=1.5)),
        (example(), PoissonMoments(), dict(thin=0)),
        (example(), PoissonMoments(), dict(warmup=-1)),
        (example(), Untidy(), {}),
        (example(), Undefined(), {}),
        (example(), Negative(), {}),
        (Release([1.0, 2.0], Query(identity, 1), Laplace(1.0)), PoissonMoments(), {}),
    ],
)
def test_gibbs_bad_input(release, model, change):
    with pytest.raises(ValueError):
        gibbs_ss(
            release, model, **(dict(draws=10, rng=np.random.default_rng(20), **QUIET) | change)
        )
