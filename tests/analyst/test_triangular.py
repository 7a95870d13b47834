"""The first layer: a triangular map, and how much it is regressed on."""

import numpy as np
import pytest
from scipy import stats

from dpsbi.analyst.neural.triangular import (
    _MAX_BANDS,
    TERM_KINDS,
    Triangular,
    _bases,
    _groups,
    _highest,
    _of_parameters,
    _shrunk,
    bounded,
    fit_layer,
)


def test_the_layer_is_a_density():
    "Bent or straight; the bent one has longer tails."
    rng = np.random.default_rng(3)
    u = bounded(rng.normal(size=(5000, 1)))
    x = rng.normal(u**2, 1 + u**2, size=(5000, 1))
    for straight in (True, False):
        layer, t = Triangular.fit(x, u, straight=straight), np.linspace(-30, 30, 400_001)
        grid = np.sinh(t)[:, None]
        density = np.exp(layer.log_prob(grid, np.full((len(grid), 1), 0.7)))
        assert layer.bend.any() != straight
        assert np.isclose(np.trapezoid(density * np.cosh(t), t), 1, atol=1e-6)


def test_a_first_layer_has_four_simulations_for_each_coefficient():
    assert [_highest(d=5, r=20, most=n / 4) for n in (150, 200, 1000, 2000)] == [0, 1, 2, 3]


def made_of(n, values, rho=0.0, seed=1):
    "Releases (n, values) around one parameter, each partly the one before it."
    g = np.random.default_rng(seed)
    u, e = bounded(g.normal(size=(n, 1))), g.normal(size=(n, values))
    for j in range(1, values):
        e[:, j] += rho * e[:, j - 1]
    return 0.3 * u + e, u


def test_unseen_pairs_choose_how_much_a_first_layer_is_regressed_on():
    "Independent values on the parameter alone, a chain on the values before."
    for rho, degree in ((0.0, 0), (1.0, 1)):
        pairs, unseen = (made_of(2000, 8, rho, seed) for seed in (1, 2))
        layer = fit_layer(pairs, unseen, 2000)
        assert layer.degree == degree
        found = [Triangular.fit(*pairs, degree=k).log_prob(*unseen).mean() for k in (0, 1, 2)]
        assert np.isclose(layer.log_prob(*unseen).mean(), max(found), atol=0.02)


@pytest.mark.parametrize("product", [0.0, 0.3])
def test_products_of_coordinates_are_looked_for_where_they_tell(product, monkeypatch):
    "A chain whose last value is also around a product of two before; and fits are counted."
    degrees, fit = [], Triangular.fit.__func__

    def counted(cls, *args, **more):
        degrees.append(more["degree"])
        return fit(cls, *args, **more)

    monkeypatch.setattr(Triangular, "fit", classmethod(counted))
    pairs, unseen = (made_of(3000, 4, 0.7, seed) for seed in (1, 2))
    for x, _ in (pairs, unseen):
        x[:, 3] += product * x[:, 0] * x[:, 1]
    layer = fit_layer(pairs, unseen, 3000)
    assert (layer.degree == 3) == (3 in degrees) == (product > 0)


def test_unseen_pairs_choose_whether_a_first_layer_bends():
    "A value that is normal stays so; one that is skewed becomes so."
    pairs, unseen = (made_of(2000, 2, seed=seed) for seed in (1, 2))
    straight = fit_layer(pairs, unseen, 2000).log_prob(*unseen).mean()
    pairs, other = ((np.sinh(2 * x), u) for x, u in (pairs, unseen))
    layer = fit_layer(pairs, other, 2000)
    assert (layer.bend > 1).all()
    slope = np.log(2 * np.cosh(2 * unseen[0])).sum(axis=1).mean()
    assert abs(layer.log_prob(*other).mean() + slope - straight) < 0.05


def of_twelve(n, product, seed):
    "Releases (n, 6) around as many of twelve parameters, and around a product of two."
    g = np.random.default_rng(seed)
    u = g.normal(size=(n, 12))
    return u[:, :6] + product * u[:, :1] * u[:, 1:7] + g.normal(size=(n, 6)), u


@pytest.mark.parametrize("product", [0.0, 0.5])
def test_products_of_parameters_are_taken_where_they_tell(product):
    "They have 78 coefficients beside 13, and 2,000 simulations."
    pairs, unseen = (of_twelve(2000, product, seed) for seed in (1, 2))
    layer = fit_layer(pairs, unseen, 2000)
    assert (layer.terms == "products") == (product > 0)
    found = [Triangular.fit(*pairs, degree=0, terms=t).log_prob(*unseen).mean() for t in TERM_KINDS]
    assert found[2] > max(found[:2]) if product else found[2] < max(found[:2])
    assert layer.log_prob(*unseen).mean() > max(found) - 0.02


def test_terms_of_parameters_are_those_that_are_said():
    u = np.random.default_rng(1).normal(size=(5, 3))
    line, square = np.c_[np.ones(5), u], np.c_[np.ones(5), u, u**2]
    assert np.array_equal(_of_parameters(u, "lines"), line)
    assert np.array_equal(_of_parameters(u, "squares"), square)
    assert _of_parameters(u, "products").shape == (5, 10)


def test_precisions_are_those_that_make_the_data_most_probable():
    "Of ten coefficients of variance ¼ and ten that are zero, in a regression of variance one."
    rng, alpha = np.random.default_rng(1), np.geomspace(0.1, 1e5, 400)
    basis, groups = rng.normal(size=(300, 20)), np.repeat([0, 1], 10)
    y = basis @ (0.5 * rng.normal(size=20) * (groups == 0)) + rng.normal(size=300)
    b, precision, determined = _shrunk(basis.T @ basis, y @ basis, groups, np.ones(20), rounds=40)

    def evidence(first):
        covariance = np.eye(300) + (basis / np.where(groups == 0, first, precision)) @ basis.T
        return stats.multivariate_normal(cov=covariance).logpdf(y)

    best = alpha[np.argmax([evidence(each) for each in alpha])]
    assert np.isclose(precision[0], best, rtol=0.05) and precision[10] > 100 * precision[0]
    assert np.isclose(determined, 10, atol=1) and np.abs(b[10:]).max() < 0.05


@pytest.mark.parametrize("degree", range(4))
def test_coefficients_belong_together_by_how_far_before_they_reach(degree):
    "Of what changes with a coordinate, and with none before it."
    rng, d = np.random.default_rng(2), 3
    u, t = rng.normal(size=(5, d)), rng.normal(size=(5, 9))
    powers = _of_parameters(u, "products")

    def mean(t):
        return _bases(u, powers, t, 8, degree)[0]

    groups = _groups(d, "products", 8, degree)
    assert groups.shape == (mean(t).shape[1],) and (groups[0], groups[1 + d]) == (-1, 0)
    for k, band in zip(range(8), (3, 2, 2, 2, 2, 1, 1, 0)):
        farthest = (mean(t) != mean(t + (np.arange(9) == k))).any(axis=0)
        farthest &= (mean(t) == mean(t + (np.arange(9) < k))).all(axis=0)
        assert farthest.any() == (degree > 0)
        assert (groups[farthest] % _MAX_BANDS == d + 1 + band).all()


@pytest.mark.parametrize("terms", TERM_KINDS)
def test_a_parameter_shrinks_by_itself(terms):
    "With its line goes its square, and products are one group."
    groups = _groups(3, terms, 0, 0)
    own = dict(lines=[], squares=[0, 1, 2], products=[0, 3, 3, 1, 3, 2])[terms]
    assert groups.tolist() == [-1, 0, 1, 2, *own]


def test_pairs_of_one_simulation_are_worth_one():
    "Many draws of little noise tell no more than one of them."
    rng = np.random.default_rng(3)
    u = rng.normal(size=(150, 8))
    x = u[:, :2] + rng.normal(size=(150, 2))
    once = Triangular.fit(x, u, degree=0)
    many = np.repeat(x, 20, axis=0), np.repeat(u, 20, axis=0)
    again = Triangular.fit(*many, degree=0, simulations=150)
    taken = Triangular.fit(*many, degree=0)
    for a, b, c in zip(once.mean, again.mean, taken.mean):
        assert np.allclose(a, b, atol=1e-6) and np.abs(c).sum() > 1.2 * np.abs(a).sum()


def test_widths_are_not_those_of_the_simulations_that_were_fitted():
    "Eight lines of forty parameters, and noise of sd one, by 200 simulations."
    rng = np.random.default_rng(4)
    u = rng.normal(size=(200, 40))
    x = u @ rng.normal(size=(40, 8)) + rng.normal(size=(200, 8))
    layer = Triangular.fit(x, u, degree=0, terms="lines")
    mean_log_sd = -layer.forward(x, u)[1].mean() / 8
    assert 0.87 < np.exp(mean_log_sd) < 1.0  # six seeds: 0.92 ± 0.01, and uncorrected 0.83


@pytest.mark.thorough
@pytest.mark.parametrize("straight", [True, False])
@pytest.mark.parametrize("degree", range(4))
def test_what_is_constant_or_known_is_fitted(degree, straight):
    "Values that never change, that come twice, or that parameters say; few simulations, and one."
    rng = np.random.default_rng(5)
    u = rng.normal(size=(300, 2))
    a = u[:, :1] + rng.normal(size=(300, 1))
    cases = [np.c_[np.full(300, 3.0), a], np.c_[a, a, 2 * a, a + 1e-9 * u], np.c_[u, u**2, a]]
    cases += [x[:8] for x in cases] + [x[:1] for x in cases]
    for x in cases:
        of = u[: len(x)]
        layer = Triangular.fit(x, of, degree=degree, straight=straight)
        assert np.isfinite(layer.log_prob(x, of)).all()
