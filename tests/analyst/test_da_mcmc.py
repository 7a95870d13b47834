"""Data augmentation: its walk, its moves and visits against enumeration and closed forms, and the
regression that it is used on.
"""

import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from scipy import special, stats

from dpsbi.analyst.infer import infer
from dpsbi.analyst.mcmc import da_mcmc as da
from dpsbi.analyst.mcmc.da_mcmc import visit_records
from dpsbi.checks.testing import agrees, follows
from dpsbi.mechanisms import BinomialResponse, DiscreteLaplace, Gaussian, Laplace, Release
from dpsbi.models.prior import Prior
from dpsbi.posterior.posterior import Posterior
from dpsbi.privacy import Query, identity
from dpsbi.simulators import linear_regression as lr
from dpsbi.simulators.linear_regression import _pairs as entries

COUNT = Query(identity, sensitivity=1, step=1, dim=1)


class Share:
    "n yes/no records, Beta(2, 3) prior, the number of yes."

    names, a, b = ("share",), 2.0, 3.0

    def __init__(self, n):
        self.n = n

    def start(self, chains, rng):
        return rng.beta(self.a, self.b, (chains, 1))

    def records(self, theta, rng):
        return (rng.random((len(theta), self.n, 1)) < theta[:, None]).astype(float)

    def contributions(self, x):
        return x

    def update(self, theta, x, rng):
        return rng.beta(self.a + x.sum(1), self.b + self.n - x.sum(1))


class Moving(Share):
    def log_prior(self, theta):
        t = theta[:, 0]
        return np.where(
            (t > 0) & (t < 1),
            special.xlogy(self.a - 1, t) + special.xlog1py(self.b - 1, -t),
            -np.inf,
        )

    def carry(self, theta, x, theta_new, rng):
        assert ((theta_new > 0) & (theta_new < 1)).all()  # never asked for the impossible
        theta, u = theta[:, None], rng.random(x.shape)
        return (np.where(x == 1, theta * u, theta + (1 - theta) * u) < theta_new[:, None]).astype(
            float
        )


class OnlyMoves(Moving):
    "Its own update does nothing, so that only moves change theta."

    def update(self, theta, x, rng):
        return theta


def exact_cdf(latent, release):
    k = np.arange(latent.n + 1.0)
    log_w = stats.betabinom(latent.n, latent.a, latent.b).logpmf(k) + release.mechanism.log_prob(
        release.s_dp, k[:, None]
    )
    w = special.softmax(log_w)
    return lambda t: (
        special.betainc(latent.a + k, latent.b + latent.n - k, np.asarray(t)[..., None]) @ w
    )


MECHANISMS = [
    (Laplace(0.3), 9.2),
    (Laplace(3.0), 14.0),
    (Gaussian(0.7), 3.1),
    (DiscreteLaplace(0.5), 10.0),
    (BinomialResponse(20, 3.0, 12), 11.0),
]


STILL = [(Share, 8, 25), (Moving, 0, 25)]  # latent model, moves, thin
MOVED = [(Moving, 4, 8), (OnlyMoves, 6, 12)]


@pytest.mark.thorough
@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("k", range(len(MECHANISMS)), ids=[str(m) for m, _ in MECHANISMS])
def test_follows_the_enumerated_posterior(k, moved):
    "Every mechanism with moves and without, each in one of two ways."
    mechanism, s_dp = MECHANISMS[k]
    latent, moves, thin = (MOVED if moved else STILL)[k % 2]
    release = Release([s_dp], COUNT, mechanism)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # chains of 15 draws
        p = da.da_mcmc(
            release,
            latent(12),
            draws=960,
            thin=thin,
            moves=moves,
            warmup=100,
            rng=np.random.default_rng(1),
            progress=False,
        )
    follows(p.theta[:, 0], exact_cdf(latent(12), release))
    assert (p.info["moves"], p.info["moved"] > 0) == ((moves, True) if moved else (0, False))


def test_records_left_behind_are_noticed():
    class LeftBehind(Moving):
        def carry(self, theta, x, theta_new, rng):
            return x

    release = Release([9.2], COUNT, Laplace(0.3))
    p = da.da_mcmc(
        release,
        LeftBehind(12),
        draws=960,
        thin=8,
        warmup=100,
        rng=np.random.default_rng(1),
        progress=False,
    )
    with pytest.raises(AssertionError):
        follows(p.theta[:, 0], exact_cdf(LeftBehind(12), release))


@pytest.mark.parametrize("size", [1.0, 0.4])
def test_a_visit_is_the_definition_record_by_record(size):
    """The pass in one chain at a time, from the same random numbers, with sums made afresh for each
    proposal.
    """
    latent, rng = lr.RegressionRecords(8, 1), np.random.default_rng(2)
    release = Release(np.full(5, 0.1), Query(identity, 1), Gaussian(0.05))
    theta = latent.start(5, rng)
    x = latent.records(theta, rng)
    t = latent.contributions(x)
    before = x.copy()
    log_eta = lambda s: release.mechanism.log_prob(release.s_dp, s)
    accepted = visit_records(log_eta, latent, theta, x, t, np.random.default_rng(3), size)
    again = np.random.default_rng(3)
    new = latent.records(theta, again) if size == 1 else latent.nearby(theta, before, size, again)
    log_u = np.log(again.random((8, 5)))
    for c in range(5):
        old, count = before[c : c + 1], 0
        for i in range(8):
            proposal = old.copy()
            proposal[0, i] = new[c, i]
            sums = [latent.contributions(z).sum(axis=1) for z in (old, proposal)]
            ratio = np.diff([log_eta(s)[0] for s in sums])
            if log_u[i, c] < ratio:
                old, count = proposal, count + 1
        assert np.array_equal(old[0], x[c]) and accepted[c] == count / 8
    assert np.array_equal(t, latent.contributions(x)) and 0 < accepted.mean() < 1


def test_eta_is_tempered_in_the_first_half_of_the_warmup_only():
    powers = [da.warmup_power(sweep, 100) for sweep in range(-100, 10)]
    assert (
        np.isclose(powers[0], 1e-4)
        and np.isclose(powers[25], 1e-2)
        and (np.diff(powers[:51]) > 0).all()
    )
    assert (
        powers[50:] == [1.0] * 60 and da.warmup_power(0, 0) == da.warmup_power(-1, 1) * 1e4 == 1.0
    )


@pytest.mark.thorough
def test_sharp_noise_learns_to_seek_records_nearby():
    release = Release(np.array([0.3, 0.1, 0.4, 0.05, 0.1]), Query(identity, 1), Laplace(0.001))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        about = [
            da.da_mcmc(
                replace(release, mechanism=noise),
                lr.RegressionRecords(15, 1, clamp=4.0),
                draws=1280,
                warmup=200,
                rng=np.random.default_rng(1),
                progress=False,
            ).info
            for noise in (Laplace(1.0), Laplace(0.001))
        ]
    wide, sharp = about
    assert wide["size"] == 1 and abs(wide["near"] - wide["acceptance"]) < 0.05
    assert sharp["size"] < 0.5 and sharp["near"] > 3 * sharp["acceptance"]


def test_the_walk_steps_as_it_says_and_stays_in_a_plane():
    cov = np.array([[2.0, -2.0, 0.0], [-2.0, 2.0, 0.0], [0.0, 0.0, 1.0]])  # x + y is fixed
    walk, rng = da.AdaptiveRandomWalk(np.zeros(3), cov, np.log(0.5)), np.random.default_rng(4)
    step = walk.step(np.zeros((20_000, 3)), rng)
    assert (
        np.abs(step[:, 0] + step[:, 1]).max() < 1e-7
    )  # the root of a rounding error in an eigenvalue
    products = step[:, :, None] * step[:, None, :]
    agrees(products.mean(axis=0), cov / 4, products.std(axis=0) / np.sqrt(20_000), verbose=False)
    for k in range(3000):
        walk = walk.learn(
            rng.normal([3, -1, 0], [1, 2, 0.1], (64, 3)),
            0.3 - 0.1 * (walk.log_length - 1),
            (k + 2) ** -0.6,
        )
    assert abs(walk.log_length - 1) < 0.01  # where 0.3 are accepted
    agrees(
        walk.mean, [3, -1, 0], np.array([1, 2, 0.1]) / 8, verbose=False
    )  # worth at least one group of 64
    assert np.allclose(
        np.sqrt(np.diag(walk.cov)), [1, 2, 0.1], rtol=0.5
    )  # the same, 5 of its standard errors


def squares(p, centre):
    return Posterior((p.theta - centre) ** 2, None, p.names, p.info)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "noise",
    [
        Laplace(0.05),
        pytest.param(Gaussian(0.5), marks=pytest.mark.slow),
        pytest.param(DiscreteLaplace(0.2, step=0.05), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_regression_is_the_same_with_moves_and_without(noise):
    latent, s_dp = lr.RegressionRecords(15, 1, clamp=4.0), np.array([0.3, 0.1, 0.4, 0.05, 0.1])
    found = []
    for moves, draws in ((0, 38_400), (6, 12_800)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.append(
                da.da_mcmc(
                    Release(s_dp, Query(identity, 1), noise),
                    latent,
                    draws=draws,
                    moves=moves,
                    warmup=100,
                    rng=np.random.default_rng(moves),
                    progress=False,
                )
            )
    a, b = found
    agrees(a.mean(), b.mean(), np.hypot(a.mcse(), b.mcse()), verbose=False)
    a, b = (squares(p, found[1].mean()) for p in found)
    agrees(a.mean(), b.mean(), np.hypot(a.mcse(), b.mcse()), verbose=False)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:R-hat")  # of chains as short as the fast ones
@pytest.mark.parametrize(
    "draws, warmup", [(3200, 150), pytest.param(19_200, 300, marks=pytest.mark.slow)]
)
def test_published_regression_agrees_with_an_independent_program(draws, warmup):
    """Means, sds and intervals of chains by another program, known to two decimals; one alarm in a
    million each.
    """
    p = da.da_mcmc(
        lr.published(),
        lr.RegressionRecords(100, 2),
        draws=draws,
        warmup=warmup,
        rng=np.random.default_rng(5),
        progress=False,
    )
    mean, interval = p.mean(), p.interval()
    near = lambda estimate, stated: np.clip(
        estimate, np.array(stated) - 0.005, np.array(stated) + 0.005
    )
    agrees(mean, near(mean, [-0.64, -2.65, 0.60]), p.mcse(), verbose=False)
    sd, square = p.std(), squares(p, mean)
    agrees(sd, near(sd, [0.87, 0.71, 0.92]), square.mcse() / (2 * sd), verbose=False)
    for j, (low, high) in enumerate([(-2.40, 1.00), (-3.68, -0.83), (-1.03, 2.57)]):
        for end, level in ((low, 0.025), (high, 0.975)):
            below = lambda shift: Posterior(
                (p.theta[:, [j]] <= end + shift).astype(float), None, None, p.info
            )
            agrees(
                np.clip(level, below(-0.005).mean(), below(0.005).mean()),
                level,
                below(0.0).mcse(),
                verbose=False,
            )
    assert p.ess > draws / 20 and max(p.info["rhat"]) < (1.01 if warmup == 300 else 1.1)
    assert interval.shape == (3, 2)


def test_infer_takes_records_and_resumes(tmp_path, monkeypatch):
    release, run = (
        Release([9.2], COUNT, Laplace(1.0)),
        lambda **kw: infer(
            release,
            Moving(12),
            rng=np.random.default_rng(3),
            target_ess=500,
            max_simulations=40_000,
            progress=False,
            **kw,
        ),
    )
    found = run(checkpoint=tmp_path / "run")
    assert found.info["engine"] == "data augmentation" and found.info["exact"] and found.ess >= 500
    follows(found.theta[::20, 0], exact_cdf(Moving(12), release))
    assert (tmp_path / "run.chains0.npz").exists()
    monkeypatch.setattr(
        da, "_group", lambda *args: pytest.fail("a stage that was finished is run again")
    )
    assert np.array_equal(run(checkpoint=tmp_path / "run").theta, found.theta)


def test_one_chain_short_runs_and_workers():
    release, run = (
        Release([9.2], COUNT, Laplace(1.0)),
        lambda **kw: da.da_mcmc(
            release,
            Moving(12),
            **(
                dict(draws=130, chains=130, warmup=5, rng=np.random.default_rng(6), progress=False)
                | kw
            ),
        ),
    )
    with ThreadPoolExecutor(2) as pool:
        assert np.array_equal(run().theta, run(executor=pool).theta)
    one = run(draws=20, chains=1, warmup=0)
    assert one.theta.shape == (20, 1) and np.isnan(one.info["rhat"]).all()
    assert not np.array_equal(run(rng=np.random.default_rng(7)).theta, run().theta)


@pytest.mark.parametrize(
    "change",
    [
        dict(draws=0),
        dict(chains=1.5),
        dict(thin=0),
        dict(warmup=-1),
        dict(moves=-1),
        dict(moves=0.5),
    ],
    ids=str,
)
def test_bad_numbers(change):
    with pytest.raises(ValueError, match="whole number"):
        usual = dict(draws=64, rng=np.random.default_rng(8), progress=False)
        da.da_mcmc(Release([1.0], COUNT, Laplace(1.0)), Share(3), **(usual | change))


def test_bad_models():
    class Half(Share):
        def log_prior(self, theta):
            return np.zeros(len(theta))

    class Blind(Laplace):
        log_prob = property()

    release, rng = Release([1.0], COUNT, Laplace(1.0)), np.random.default_rng(9)
    with pytest.raises(ValueError, match="together"):
        da.da_mcmc(release, Half(3), draws=64, rng=rng)
    with pytest.raises(ValueError, match="shape"):
        da.da_mcmc(
            Release([1.0, 2.0], Query(identity, 1), Laplace(1.0)), Share(3), draws=64, rng=rng
        )
    with pytest.raises(ValueError, match="density"):
        da.da_mcmc(Release([1.0], COUNT, Blind(1.0)), Share(3), draws=64, rng=rng)


# ---- the regression's two latent models


@pytest.mark.parametrize("n, p, clamp", [(1, 1, 10.0), (7, 3, 0.5), (40, 2, 2.0), (6, 0, 10.0)])
def test_contributions_add_up_to_the_query(n, p, clamp):
    latent, rng = lr.RegressionRecords(n, p, clamp), np.random.default_rng(1)
    x = rng.uniform(-2 * clamp, 2 * clamp, (6, n, p + 1))
    query = lr.linear_regression(n, p, clamp)[1]
    assert np.allclose(
        latent.contributions(x).sum(axis=1), query(x), rtol=0, atol=(n + 4) * 2.0**-52
    )
    assert latent.contributions(x).shape == (6, n, len(lr.summary_names(p)))
    assert latent.names == lr.linear_regression(n, p)[0].prior.names
    again = pickle.loads(pickle.dumps(latent))
    assert np.array_equal(again.contributions(x), latent.contributions(x)) and np.array_equal(
        again._precision, latent._precision
    )


def test_carried_records_keep_their_residuals_and_can_come_back():
    latent, rng = lr.RegressionRecords(9, 3), np.random.default_rng(2)
    theta, theta_new = latent.start(4, rng), latent.start(4, rng)
    x = latent.records(theta, rng)
    there = latent.carry(theta, x, theta_new, rng)
    assert np.allclose(latent.carry(theta_new, there, theta, rng), x, rtol=0, atol=1e-13)
    assert np.array_equal(there[..., :3], x[..., :3])
    constant = latent.log_prior(theta) - latent.prior.log_prob(theta)
    assert np.allclose(constant, constant[0], rtol=0, atol=1e-12)


def covariance_by_isserlis(mu, sigma, pairs):
    "Six terms, one entry at a time."
    S, m = sigma, mu
    entry = lambda i, j, k, q: (
        S[i, k] * S[j, q]
        + S[i, q] * S[j, k]
        + m[i] * m[k] * S[j, q]
        + m[i] * m[q] * S[j, k]
        + m[j] * m[k] * S[i, q]
        + m[j] * m[q] * S[i, k]
    )
    return np.array([[entry(*a, *b) for b in pairs] for a in pairs])


@pytest.mark.parametrize("p, clamp, variance", [(1, 10.0, 2.0), (3, 0.5, 0.1)])
def test_moments_of_a_subject(p, clamp, variance):
    rng = np.random.default_rng(3)
    m = rng.normal(size=p)
    model = lr.RegressionMoments(25, p, clamp, variance, x_mean=m)
    theta = model.start(3, rng)
    mean, cov = model.moments(theta)
    for b, found_mean, found_cov in zip(theta, mean, cov):
        mu = np.concatenate([[1], m / clamp, [(b[0] + b[1:] @ m) / clamp]])
        A = np.vstack([np.zeros(p), np.eye(p), b[1:]]) / clamp
        sigma = A @ A.T
        sigma[-1, -1] += variance / clamp**2
        pairs = list(zip(*entries(p)))
        products = [sigma[i, j] + mu[i] * mu[j] for i, j in pairs]
        assert np.allclose(found_mean, products, rtol=1e-12, atol=1e-13 / clamp**2)
        assert np.allclose(
            found_cov,
            covariance_by_isserlis(mu, sigma, pairs) / 25,
            rtol=1e-9,
            atol=1e-12 / clamp**4,
        )


def test_moments_update_is_the_records_update_and_projects():
    rng = np.random.default_rng(4)
    records, moments = (
        lr.RegressionRecords(20, 2, clamp=1e4),
        lr.RegressionMoments(20, 2, clamp=1e4),
    )
    x = records.records(records.start(3, rng), rng)
    s = records.contributions(x).sum(axis=1)
    assert np.allclose(
        records.update(None, x, np.random.default_rng(5)),
        moments.update(s, np.random.default_rng(5)),
        rtol=1e-8,
    )
    s[:, [6, 8]] *= -1  # two "sums of squares" below zero
    xx = np.zeros((3, 3, 3))
    for value, (i, j) in zip(20 * s.T, zip(*entries(2))):
        if j < 3:
            xx[:, i, j] = xx[:, j, i] = value * (1e4 if i == 0 else 1e8)
    xx[:, 0, 0] = 20
    w, v = np.linalg.eigh(xx)
    assert w.min() < -1
    precision = np.eye(3) + np.einsum("cij,cj,ckj->cik", v, np.maximum(w, 0), v) / 2
    mean = np.linalg.solve(precision, (20 * s[:, :3] * [1e4, 1e8, 1e8] / 2)[..., None])[..., 0]
    draws = np.stack([moments.update(s, rng) for _ in range(4000)])
    agrees(draws.mean(axis=0), mean, draws.std(axis=0) / np.sqrt(4000), verbose=False)


@pytest.mark.parametrize("latent", [lr.RegressionRecords, lr.RegressionMoments])
def test_regression_latent_models_refuse(latent):
    with pytest.raises(ValueError, match="normal"):
        latent(10, 1, prior=Prior(intercept=stats.norm(), slope=stats.expon()))
    with pytest.raises(ValueError, match="whole"):
        latent(0, 1)
    normal = latent(10, 1, prior=Prior(intercept=stats.norm(2, 3), slope=stats.norm(-1, 0.5)))
    assert np.array_equal(normal._mean, [2, -1]) and np.allclose(
        normal._precision, np.diag([1 / 9, 4]), rtol=1e-12
    )
