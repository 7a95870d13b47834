"""A network is held against the simulations nearest to a release, whose parameters are known."""

import numpy as np
import pytest
from scipy import stats

from dpsbi import Gaussian, Prior, Query, Release
from dpsbi.analyst import local_check
from dpsbi.analyst.pairs import Simulations
from dpsbi.privacy import identity

SD = 0.5  # of the noise; the parameter is standard normal and is the value
PRIOR = Prior(a=stats.norm(0, 1))


class Network:
    "The exact posterior of the parameter, moved and widened."

    def __init__(self, shift=0.0, wide=1.0):
        self.shift, self.wide = shift, wide

    def sample(self, n, context, rng):
        shrunk = 1 / (1 + SD**2)
        sd = self.wide * SD * np.sqrt(shrunk)
        return shrunk * context + self.shift + sd * rng.normal(size=(n, 1))


def simulated(n):
    z = np.random.default_rng(1).normal(size=(n, 1))
    none = np.zeros(n)
    return Simulations(z, z.copy(), none, none, none)


RELEASE = Release([0.7], Query(identity, 1, norm="l2"), Gaussian(SD))


def test_the_nearest_are_near():
    sims = simulated(5000)
    chosen, noisy = local_check.nearest(RELEASE, sims)
    assert len(set(chosen)) == local_check.NEAREST
    assert np.abs(noisy - 0.7).max() < 0.1


def test_a_right_network_is_not_doubted_and_wrong_ones_are():  # seeds are fixed
    sims = simulated(5000)
    found = {
        about: local_check.off_nearby(Network(*about), PRIOR, RELEASE, sims)
        for about in ((0.0, 1.0), (0.3, 1.0), (-0.3, 1.0), (0.0, 2.0), (0.0, 0.5))
    }
    said = [words.split()[-2:] for words in found.values()]
    assert not said[0]
    assert said[1:] == [["too", each] for each in ("high", "low", "wide", "sure")]


def test_few_simulations_are_no_check_and_failed_ones_do_not_count():
    wrong, sims = Network(3.0), simulated(3000)
    assert local_check.off_nearby(wrong, PRIOR, RELEASE, sims)
    assert not local_check.off_nearby(wrong, PRIOR, RELEASE, simulated(local_check.FEWEST - 1))
    sims.s[local_check.FEWEST - 1 :] = np.nan
    assert not local_check.off_nearby(wrong, PRIOR, RELEASE, sims)


def test_of_very_many_simulations_some_are_looked_at(monkeypatch):
    seen = []
    monkeypatch.setattr(local_check, "LOOKED_AT", local_check.FEWEST + 5)
    monkeypatch.setattr(local_check, "ranks", lambda *about: seen.append(len(about[-1])))
    monkeypatch.setattr(local_check, "off", lambda *_: "")
    local_check.off_nearby(None, PRIOR, RELEASE, simulated(local_check.FEWEST + 500))
    assert seen == [local_check.FEWEST + 5]


def test_an_exact_rank_is_the_cdf():
    sims = simulated(5000)
    u = local_check.ranks(Network(), PRIOR, RELEASE, sims)
    chosen, noisy = local_check.nearest(RELEASE, sims)
    shrunk = 1 / (1 + SD**2)
    exact = stats.norm.cdf(sims.z[chosen], shrunk * noisy, SD * np.sqrt(shrunk))
    assert u.shape == (local_check.NEAREST, 1)
    error = np.sqrt(exact * (1 - exact) / local_check.DRAWS)
    assert (np.abs(u - exact) < 6 * error + 0.02).all()


def test_names_are_those_of_the_worst():
    u = np.random.default_rng(2).random((200, 3))
    u[:, 1] *= 0.6
    assert local_check.off(u, ("a", "b", "c")).endswith("it says b too high")
    assert local_check.off(np.random.default_rng(2).random((200, 3)), ("a", "b", "c")) == ""


def test_the_estimator_warns_only_where_it_is_given_a_release():
    from dpsbi import Model, amortise
    from dpsbi.analyst.training import Training

    model = Model(PRIOR, lambda theta, rng: theta + 0 * rng.normal(size=theta.shape))
    how = dict(training=Training(final_steps=1, members=1), simulations=2500, progress=False)
    seed = np.random.default_rng(3)
    fit = amortise(RELEASE.query, RELEASE.mechanism, model, rng=seed, **how)
    assert len(fit.beside) == 2500
    moved = type(fit)(fit.prior, Moved(fit.flow), None, fit.beside)
    with pytest.warns(UserWarning, match="not right near this release"):
        warned = moved.posterior(RELEASE, draws=50, rng=np.random.default_rng(4))
    silent = type(fit)(fit.prior, Moved(fit.flow)).posterior(
        RELEASE, draws=50, rng=np.random.default_rng(4)
    )
    assert np.array_equal(warned.theta, silent.theta)  # the check changes no draw


class Moved:
    "A flow whose draws are moved by three."

    def __init__(self, flow):
        self.flow = flow

    @property
    def scaling(self):
        return self.flow.flows[0].scaling

    def sample(self, n, context, rng):
        return self.flow.sample(n, context, rng) + 3.0
