"""Robust neural posterior estimation: what holds whatever the data, in a few seconds."""

import numpy as np
import pytest
from scipy import stats

from dpsbi.analyst.neural import rnpe as module
from dpsbi.analyst.neural.rnpe import SpikeSlab, denoise, fit_support, noise_free, rnpe
from dpsbi.analyst.neural.training import Shape, Training
from dpsbi.mechanisms import BinomialResponse, Laplace, Release
from dpsbi.models.model import Model
from dpsbi.privacy import Query, identity
from dpsbi.simulators import counts as counts
from dpsbi.simulators import linear_regression as linear_regression
from dpsbi.simulators import naive_bayes as naive_bayes

SMALL = Shape(layers=1, hidden=8)
TINY = dict(
    simulations=500, training=Training(final_steps=5, members=1, flow=SMALL), progress=False
)
TRAINED = TINY | dict(training=Training(final_steps=5, members=2, flow=SMALL))
SHORT = dict(draws=400, warmup=10, thin=2)
MODEL = counts.gamma_poisson(alpha=25, beta=1)
RELEASE = Release([37.4], counts.counting_query(), Laplace(5.0))


class Standard:
    "A standard normal in place of a flow."

    def log_prob(self, x, context):
        return stats.norm.logpdf(x).sum(axis=1)


@pytest.fixture(scope="module")
def clean():
    return noise_free(RELEASE.query, MODEL, rng=np.random.default_rng(1), **TINY)


def test_denoising_a_normal_is_conjugate():
    "s ~ N(0, I), y = s + N(0, 1/4 I): the posterior is N(0.8 y, 0.2 I)."

    class Error:
        def log_prob(self, y, s):
            return stats.norm.logpdf(y - s, scale=0.5).sum(axis=1)

    rng, y = np.random.default_rng(2), np.array([1.0, -2.0])
    s = rng.uniform(-6, 6, size=(2000, 2))  # where to begin matters not
    v, rhat, ess = denoise(y, Error(), fit_support(s), Standard(), s, 8000, rng, warmup=100, thin=5)
    assert max(rhat) < 1.1 and min(ess) > 500
    se = np.sqrt(
        0.2 / np.array(ess)
    )  # 5 standard errors, four means: a false alarm in a million runs
    assert np.all(np.abs(v.mean(0) - 0.8 * y) < 5 * se) and np.all(
        np.abs(v.var(0) - 0.2) < 5 * 0.2 * np.sqrt(2 / min(ess))
    )


@pytest.mark.parametrize(
    "model, step, free",
    [
        (naive_bayes.naive_bayes(100, records=False)[0], 0.01, 5),
        (linear_regression.linear_regression(100, 2, records=False)[0], 0.0, 9),
        (MODEL, 1.0, 1),
    ],
)
def test_support_drops_what_follows_from_the_rest(model, step, free):
    rng = np.random.default_rng(3)
    s = model.simulate(model.prior.sample(400, rng), rng)
    s = np.hstack([np.full((len(s), 1), 7.0), s])  # and what is constant
    support = fit_support(s, step)
    v = support.jitter(s, rng)
    assert (
        v.shape == (400, free)
        and np.allclose(support.values(v), s, atol=1e-9)
        and support.inside(v).all()
    )
    assert not support.inside(support.high[None] + step + 1).any()


@pytest.mark.thorough
def test_spike_slab():
    error, y = SpikeSlab(np.array([2.0, 1.0])), np.array([3.0, 0.0])
    s = np.array([[3.0, 0.0, 99.0], [3.0, 5.0, 99.0]])  # a third column, which is not compared
    direct = 0.5 * stats.norm.pdf([0, 0], scale=0.01) + 0.5 * stats.cauchy.pdf([0, 0], scale=0.25)
    assert np.isclose(error.log_prob(y, s)[0], np.log(direct / [2, 1]).sum())
    doubt = error.doubt(y, s)
    assert np.all(doubt[0] < 0.05) and doubt[1, 1] > 0.999
    whole = np.linspace(-1e4, 1e4, 2_000_001)
    one = SpikeSlab(np.array([1.0]))
    assert np.isclose(
        np.trapezoid(np.exp(one.log_prob(np.zeros(1), whole[:, None])), whole), 1, atol=1e-3
    )


def test_what_a_run_returns():  # the same for the same seed: in 48_rnpe
    a = rnpe(RELEASE, MODEL, rng=np.random.default_rng(4), **TINY, **SHORT)
    assert (
        len(a) == 400
        and a.names == ("theta",)
        and (a.theta > 0).all()
        and np.array_equal(a.summaries, np.rint(a.summaries))
    )


def test_density_is_the_mixture_of_what_was_drawn_from(clean):
    posterior = clean.posterior(RELEASE, rng=np.random.default_rng(5), draws=50, warmup=10, thin=1)
    grid = np.linspace(0.5, 90, 300)[:, None]
    assert np.isclose(np.trapezoid(np.exp(posterior.log_prob(grid)), grid[:, 0]), 1, atol=0.02)
    assert posterior.log_prob([[-1.0]])[0] == -np.inf


def test_the_naive_scale_of_a_binomial_response():
    "30 of 100 answers from 1,000 people are 300 people, for one who guesses the error."
    release = Release([30.0], Query(identity, 1.0, step=1), BinomialResponse(100, 5.0, 1000))
    model = Model(MODEL.prior, lambda theta, rng: rng.binomial(1000, np.minimum(theta / 80, 1)))
    clean = noise_free(release.query, model, rng=np.random.default_rng(6), **TINY)
    guess = clean.posterior(
        release, rng=np.random.default_rng(7), error="spike_slab", draws=400, warmup=100, thin=2
    )
    assert abs(np.median(guess.summaries) - 300) < 60 and 0 <= guess.info["doubt"][0] <= 1


@pytest.mark.parametrize("wrong", [dict(error="hope"), dict(simulations=20), dict(draws=0)])
def test_errors(wrong):
    with pytest.raises(ValueError):
        rnpe(RELEASE, MODEL, rng=np.random.default_rng(1), **(TINY | wrong))


def test_a_release_that_nothing_explains(clean):
    class Impossible:
        def log_prob(self, y, s):
            return np.full(len(s), -np.inf)

    with pytest.raises(ValueError, match="walkers must begin"):
        clean.posterior(RELEASE, rng=np.random.default_rng(1), error=Impossible(), **SHORT)
    with pytest.raises(ValueError, match="log_prob"):

        class Blind:
            def sample(self, s, rng):
                return s

        rnpe(Release([37.0], RELEASE.query, Blind()), MODEL, rng=np.random.default_rng(1), **TINY)


def test_a_killed_run_resumes_with_the_networks_that_it_has(tmp_path, monkeypatch):
    def run(path=None):
        return rnpe(
            RELEASE, MODEL, rng=np.random.default_rng(4), checkpoint=path, **(TRAINED | SHORT)
        )

    calls, fit, path = [], module.fit, tmp_path / "run.npz"
    whole = run()

    def counted(*args, **kw):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return fit(*args, **kw)

    monkeypatch.setattr(module, "fit", counted)
    with pytest.raises(KeyboardInterrupt):
        run(path)
    resumed = run(path)
    assert len(calls) == 5  # of four networks three were kept
    for found in (resumed, run(path)):
        assert np.array_equal(found.theta, whole.theta)
    assert len(calls) == 5
    with pytest.raises(ValueError, match="another run"):
        rnpe(RELEASE, MODEL, rng=np.random.default_rng(5), checkpoint=path, **(TRAINED | SHORT))
