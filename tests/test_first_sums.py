"""Sums that a network begins at: what they find, and where they do not begin."""

import numpy as np
import pytest
from scipy import stats

from dpsbi.analyst import first_sums as room
from dpsbi.analyst import training
from dpsbi.analyst.additive import Additive
from dpsbi.analyst.first_sums import Ridge, first_sums, foreseen
from dpsbi.analyst.scaling import fit_scaling, pieces
from dpsbi.mechanisms import Gaussian
from dpsbi.prior import Prior


def scaled(x, c, **more):
    "The regression that a network for every release begins at."
    return fit_scaling(x, c, noise=np.full(c.shape[1], 0.1), plain=True, **more)


def nats(first, scaling, x, c):
    "Mean log density that these sums give pairs; None: that of the regression alone."
    u = scaling.features(c)
    r = np.linalg.solve(scaling.factor, (scaling.units(x) - scaling.expected(u)).T).T
    shift, stretch = (0.0, np.zeros(r.shape)) if first is None else first.at(u)
    score = stats.norm.logpdf(r, shift, np.exp(stretch)).sum(axis=1).mean()
    return score - np.log(scaling.spread * np.diag(scaling.factor)).sum()


def each_by_one(c):
    "Means and sds of two parameters: a feature each gives the mean, and another the sd."
    return np.abs(2 * c[:, :2]), np.exp(0.6 * c[:, 2:4])


def one_by_all(c):
    "Mean and sd of a parameter of which every feature's hinge tells a little."
    return np.maximum(c, 0).sum(axis=1, keepdims=True), np.ones((len(c), 1))


def made(law, n, features, rng):
    "Parameters and features of such a law, and its own mean log density of them."
    c = rng.normal(size=(n, features))
    mean, sd = law(c)
    x = rng.normal(mean, sd)
    return x, c, stats.norm.logpdf(x, mean, sd).sum(axis=1).mean()


@pytest.mark.parametrize("law, features", [(each_by_one, 12), (one_by_all, 60)])
def test_few_functions_that_tell_much_are_found_and_many_that_tell_little(law, features):
    rng = np.random.default_rng(1)
    x, c, _ = made(law, 6000, features, rng)
    scaling = scaled(x, c)
    *fresh, exact = made(law, 10_000, features, rng)
    short = exact - nats(first_sums(scaling, x, c), scaling, *fresh)
    assert short < 0.1 < 0.8 < exact - nats(None, scaling, *fresh)


def test_functions_of_features_that_tell_nothing_are_next_to_zero():
    x, c, _ = made(each_by_one, 6000, 30, np.random.default_rng(2))
    scaling = scaled(x, c)
    first, p = first_sums(scaling, x, c), pieces(scaling.features(c))
    sds = [(p[:, j::30] @ first.weights[j::30]).std(axis=0).max() for j in range(30)]
    assert min(sds[:4]) > 0.5 and max(sds[4:]) < 0.05


def test_pairs_of_one_simulation_count_once(monkeypatch):
    monkeypatch.setattr(room, "FEWEST", 100)
    z, s, _ = made(each_by_one, 200, 20, np.random.default_rng(3))
    rng = np.random.default_rng(4)
    x, c = np.repeat(z, 40, axis=0), np.repeat(s, 40, axis=0)
    c = c + 0.2 * rng.normal(size=c.shape)
    scaling = scaled(x, c, simulations=200)
    fresh, seen, _ = made(each_by_one, 10_000, 20, rng)
    pairs = fresh, seen + 0.2 * rng.normal(size=seen.shape)
    gain = nats(first_sums(scaling, x, c, 200), scaling, *pairs) - nats(None, scaling, *pairs)
    assert gain > 0.3
    assert first_sums(scaling, x, c, len(x)) is None  # chance looks like what sums cannot tell


def test_a_ridge_spends_numbers_by_simulations():
    rng = np.random.default_rng(5)
    few, y = rng.normal(size=(100, 20)), rng.normal(size=(100, 1))
    a, y = (np.repeat(part - part.mean(axis=0), 30, axis=0) for part in (few, y))
    assert Ridge(a).fit(y)[1][0] < 0.95
    weights, share = Ridge(a, shared=30.0).fit(y)
    assert not weights.any() and share[0] == 1


def test_sums_do_not_begin_where_features_work_together():
    rng = np.random.default_rng(6)
    c = rng.normal(size=(6000, 5))
    x = c[:, :1] * c[:, 1:2] + 0.5 * rng.normal(size=(6000, 1))
    assert first_sums(scaled(x, c), x, c) is None
    assert (foreseen(c, rng.normal(size=(6000, 3))) < 0.01).all()


def test_sums_do_not_begin_where_parameters_are_told_together():
    "Size and place of a wave of sixty noisy values: all features are too dim a look for it."
    rng = np.random.default_rng(10)
    size, place = rng.normal(size=(2, 4000, 1))
    wave = 30 * np.exp(0.3 * size - 8 * (np.linspace(-1, 1, 60) - 0.3 * place) ** 2)
    x, c = np.hstack([size, place]), rng.normal(wave, 3)
    assert first_sums(scaled(x, c), x, c) is None


def test_sums_do_not_begin_by_few_simulations_nor_by_very_many_features(monkeypatch):
    x, c, _ = made(each_by_one, 6000, 12, np.random.default_rng(11))
    assert first_sums(scaled(x, c), x, c, 2000) is None
    assert first_sums(scaled(x, c), x, c, 3000) is not None
    monkeypatch.setattr(room, "WIDEST", 11)
    assert first_sums(scaled(x, c), x, c, 3000) is None


def test_a_constant_context_and_a_parameter_that_the_context_tells():
    rng = np.random.default_rng(7)
    c = rng.normal(size=(3000, 3)) * [1, 1, 0]
    noisy = c[:, 1:2] + rng.normal(size=(3000, 1))
    first = first_sums(scaled(noisy, c), noisy, c)
    assert np.isfinite(first.weights).all() and np.isfinite(first.constant).all()
    both = np.column_stack([c[:, 0], noisy])
    assert first_sums(scaled(both, c), both, c) is None  # what is left of one is no noise


class Seen(Exception):
    "What the fit was given is known."


@pytest.fixture
def handed(monkeypatch):
    """What `train` hands to the fit of a network for every release of three counts.

    A function of the number of simulations; the first pairs have the name "first".
    """
    given = {}

    def spy(draw, *_, **more):
        given.update(more, first=draw(None))
        raise Seen

    def of(n):
        rng = np.random.default_rng(8)
        z = rng.normal(2, 0.5, size=(n, 3))
        s = rng.poisson(np.exp(z)).astype(float)
        log_p = stats.norm(2, 0.5).logpdf(z).sum(axis=1)
        sims = training.Simulations(z, s, log_p, log_p, np.zeros(n))
        prior = Prior(**{name: stats.norm(2, 0.5) for name in "abc"})
        about = dict(how=training.Learning(training.Training()), steps=1, progress=False)
        with pytest.raises(Seen):
            training.train(Gaussian(1.0), None, sims, prior, 0, rng=rng, **about)
        return given

    monkeypatch.setattr(training, "fit", spy)
    return of


def test_a_layer_begins_at_these_sums(handed):
    given, rng = handed(3000), np.random.default_rng(9)
    first, features = given["sums"], given["scaling"].whiten.shape[1]
    layer, u = Additive(3, features).double(), rng.normal(size=(20, features))
    layer.begin(first)
    for begun, wanted in zip(layer.sums(training.torch.as_tensor(u)), first.at(u)):
        np.testing.assert_allclose(begun.detach(), wanted, atol=1e-12)


def test_a_start_is_made_of_so_many_simulations_at_most(handed, monkeypatch):
    monkeypatch.setattr(training, "INNER", 1000)
    z, c = handed(3000)["first"]
    assert len(z) == len(c) == 1000
