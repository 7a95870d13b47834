"""Surrogates of many parameters lead to exact posteriors, and never away from one."""

import warnings
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln

from dpsbi import DiscreteLaplace, Gaussian, Model, Prior, Query, Release, infer
from dpsbi.analyst import engines as summed
from dpsbi.analyst.importance.multistart import consensus
from dpsbi.analyst.importance.student_mixture import _MAX_ELEMENTS, StudentMixture
from dpsbi.analyst.marginal.rao_blackwell import marginal
from dpsbi.analyst.marginal.surrogate import (
    _KERNEL_LENGTHS,
    _TAIL_MASS,
    _TAIL_SHARE,
    TABLE_STEPS,
    Surrogate,
    TabulatedFunctions,
    White,
    bend,
    follow,
    surrogate_starts,
    with_tails,
)
from dpsbi.analyst.smc.coordinates import PriorInNormalCoordinates
from dpsbi.analyst.smc.moves import Profiles
from dpsbi.privacy import identity


def _rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def rates_released(rates: int, seed: int):
    "A Poisson count of each rate, with noise."
    rng = _rng(seed)
    prior = Prior(**{f"rate_{j}": stats.gamma(3, scale=5) for j in range(rates)})
    model = Model(prior, lambda theta, rng: rng.poisson(theta).astype(float))
    s = model.simulate(prior.sample(1, rng), rng)[0]
    noise, query = DiscreteLaplace(1.5), Query(identity, 1, step=1, dim=rates)
    return Release(noise.sample(s, rng), query, noise), model


def by_sums(release):
    "Exact means, sds and log evidence, on a grid."
    x, k = np.linspace(0.005, 80, 8000), np.arange(200.0)
    eta = np.exp([release.mechanism.log_prob(y[None], k[:, None]) for y in release.s_dp])
    p = eta @ stats.poisson.pmf(k[:, None], x) * stats.gamma(3, scale=5).pdf(x)
    log_z = np.log(p.sum(axis=1) * (x[1] - x[0])).sum()
    p /= p.sum(axis=1, keepdims=True)
    return p @ x, np.sqrt(p @ x**2 - (p @ x) ** 2), log_z


def in_normal(model, release, seed):
    "The model with counts summed out, in normal coordinates."
    found, _ = marginal(release, model, _rng(seed))
    prior = PriorInNormalCoordinates(found.opened.prior)
    return found.release, replace(found.opened, prior=prior)


def test_twelve_rates_are_exact_by_infer():
    "Five standard errors in thirteen numbers: a false alarm in 130,000."
    release, model = rates_released(12, 3)
    about = dict(rng=_rng(2), max_simulations=5000, progress=False)
    found = infer(release, model, target_ess=600, **about)
    mean, sd, log_z = by_sums(release)
    assert found.exact and found.ess > 600
    assert (np.abs(found.mean() - mean) < 5 * found.mcse()).all()
    assert np.abs(found.std() / sd - 1).max() < 0.15
    assert abs(found.log_evidence - log_z) < 5 * found.log_evidence_error


def regions(theta, rng):
    "Eight counts of regions whose log rates have a common law."
    size = np.array([0.2, 0.4, 0.5, 0.6, 0.8, 1.2, 1.5, 2.0])
    return rng.poisson(size * np.exp(theta[:, :1] + theta[:, 1:2] * theta[:, 2:])).astype(float)


def by_quadrature(release):
    "Exact means and sds of mu and tau: a grid of these, and a rule for each z."
    size = np.array([0.2, 0.4, 0.5, 0.6, 0.8, 1.2, 1.5, 2.0])
    mu, tau = np.linspace(1.0, 5.0, 31), np.linspace(0.01, 2.2, 30)
    z, share = np.polynomial.hermite_e.hermegauss(40)
    log_rate, k = mu[:, None, None] + tau[:, None] * z, np.arange(500.0)
    log_p = stats.norm(3, 1).logpdf(mu)[:, None] + stats.halfnorm(0, 0.7).logpdf(tau)
    for y, part in zip(release.s_dp, size):
        eta = np.exp(release.mechanism.log_prob(y[None], k[:, None]))
        log_m = np.log(part) + log_rate
        near = k[eta > 1e-6 * eta.max()]
        p = sum(eta[int(j)] * np.exp(j * log_m - np.exp(log_m) - gammaln(j + 1)) for j in near)
        log_p += np.log(p @ share)
    p = np.exp(log_p - log_p.max())
    found = []
    for x, one in ((mu, p.sum(axis=1)), (tau, p.sum(axis=0))):
        mean = x @ one / one.sum()
        found.append((mean, np.sqrt((x - mean) ** 2 @ one / one.sum())))
    return np.array(found).T


def test_a_hierarchy_agrees_with_quadrature():
    """Its log rates have a product in them; five standard errors in two numbers.

    Sds agree, but for those that the result itself says to rest on few draws.
    """
    each = {f"z{j}": stats.norm() for j in range(8)}
    prior, rng = Prior(mu=stats.norm(3, 1), tau=stats.halfnorm(0, 0.7), **each), _rng(1)
    s = regions(np.array([[3.0, 0.6, *rng.normal(size=8)]]), rng)[0]
    noise = DiscreteLaplace(2.0)
    release = Release(noise.sample(s, rng), Query(identity, 1, step=1, dim=8), noise)
    given = in_normal(Model(prior, regions), release, 1)
    about = dict(rng=_rng(2), max_simulations=3000, progress=False, search=surrogate_starts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the sd of tau may rest on few draws
        found = consensus(*given, **about)
    mean, sd = by_quadrature(release)
    assert found.ess > 400 and found.info["agreed"]
    assert (np.abs(found.mean()[:2] - mean) < 5 * found.mcse()[:2]).all()
    known = [what == "" for what in found.doubtful()[:2]]
    assert any(known) and (np.abs(found.std()[:2] / sd - 1)[known] < 0.15).all()


def product_and_wave(v):
    "Two values that no line follows."
    return np.column_stack([v[:, 0] * v[:, 1], np.sin(v[:, 2])])


def test_what_bends_says_how_well_it_is_known():
    rng = _rng(3)
    v, new = rng.uniform(-1.5, 1.5, size=(60, 3)), rng.uniform(-1.5, 1.5, size=(3000, 3))
    found = bend(v, product_and_wave(v), 20, np.ones(2))
    assert found.length in _KERNEL_LENGTHS
    off = ((found(new) - product_and_wave(new)) ** 2).mean(axis=0)
    assert (off < 5 * found.error).all() and (found.error < 5 * off).all()


def test_older_points_do_not_say_how_well_a_bend_is_known():
    "Sixty older points are far away, and pure noise; they would make the error a hundred."
    rng = _rng(6)
    v = rng.uniform(-1.5, 1.5, size=(120, 3))
    values = product_and_wave(v)
    v[:60, 0] += 30
    values[:60] = 10 * rng.normal(size=(60, 2))
    assert (bend(v, values, 60, np.ones(2)).error < 0.5).all()
    assert (bend(v, values, 120, np.full(2, 1e3)).error > 25).all()


@pytest.mark.parametrize("finite", [1, 2, 5, 40])
def test_a_round_that_failed_leaves_what_was_known(finite):
    "The last ten rows may all be NaN: the line then goes through the others."
    rng, noise = _rng(5), Gaussian(0.5)
    release = Release(np.zeros(4), Query(identity, 1), noise)
    prior = PriorInNormalCoordinates(Prior(**{f"x{j}": stats.norm() for j in range(4)}))
    v = rng.normal(size=(50, 4))
    s = v.copy()
    s[finite:] = np.nan
    log_eta = np.where(np.arange(50) < finite, noise.log_prob(release.s_dp, v), -np.inf)
    proposal = follow(Surrogate.fit(release, prior, v, s, log_eta, newest=10), rng)
    assert np.isfinite(proposal.log_prob(v)).all()


def test_noise_is_not_taken_for_a_bend():
    "Forty values of noise: an error halved by chance would be a wonder."
    rng = _rng(4)
    found = bend(rng.normal(size=(80, 5)), rng.normal(size=(80, 40)), 40, np.ones(40))
    assert not found.weights.any() and (found.error == 1).all()


def test_normal_coordinates_have_their_jacobian():
    prior = Prior(a=stats.gamma(2, scale=3), b=stats.halfnorm(0, 2), c=stats.norm(1, 4))
    there = PriorInNormalCoordinates(prior)
    v = _rng(1).normal(size=(5, 3))
    np.testing.assert_allclose(there.to_unconstrained(there.from_unconstrained(v)), v, atol=1e-8)
    for row in v:
        ends = [there.from_unconstrained(row + s * 1e-6 * np.eye(3)) for s in (1, -1)]
        slope = np.linalg.slogdet((ends[0] - ends[1]) / 2e-6)[1]
        assert abs(slope - there.log_abs_det(row[None])[0]) < 1e-5


@pytest.mark.parametrize("error", [0.0, 0.7, 2.0])
def test_a_profile_is_smoothed_by_the_error_of_its_line(error):
    "Normal noise and a normal error make normal noise of the sum of variances."
    noise, s = Gaussian(1.5), np.linspace(-9, 9, 400)[:, None]
    release = Release(np.zeros(1), Query(identity, 1), noise)
    profiles = Profiles.of(release, s, noise.log_prob(release.s_dp, s))
    table = TabulatedFunctions.smoothed(profiles, np.array([error]), s)
    at = np.linspace(-6, 6, 50)[:, None]
    exact = stats.norm.logpdf(at, 0, np.hypot(1.5, error))
    off = table(at) - exact
    assert np.ptp(off) < 0.05 * (1 + error)


def test_a_table_goes_on_in_a_straight_line():
    k = np.arange(200.0)
    table = TabulatedFunctions(np.zeros(1), np.ones(1), -((k[None] - 90) ** 2))
    far = table(np.array([[-50.0], [-60.0], [-70.0], [400.0], [410.0], [420.0]]))[:, 0]
    first, last = np.diff(far[:3]), np.diff(far[3:])
    assert first[0] < 0 > last[0] and np.allclose(first[0], first[1])
    assert np.allclose(last[0], last[1])


@pytest.mark.parametrize("side", [1, -1])
@pytest.mark.parametrize("drop", [1.0, 30.0, 1000.0])
def test_no_table_overshoots_beside_a_cliff(drop, side):
    "A flat top, a gentle slope, and a parabola that are cut off."
    k = np.arange(TABLE_STEPS)
    for top in (0 * k, -0.01 * k, -0.002 * (k - 120.0) ** 2):
        values = np.where(k < 80, top - drop, top)[::side]
        table = TabulatedFunctions(np.zeros(1), np.ones(1), values[None])
        found = table(np.linspace(0, TABLE_STEPS - 1, 4000)[:, None])
        assert found.max() < values.max() + 0.02


def test_each_tail_of_a_mixture_has_a_component():
    "The outermost fiftieth of a normal law begins at 2.05 sds, and has its mean at 2.42."
    D, rng = 3, _rng(1)
    narrow = StudentMixture(np.ones(1), np.zeros((1, D)), np.eye(D)[None] / 1.5)
    v = narrow.sample(20_000, rng)
    log_w = stats.norm.logpdf(v).sum(axis=1) - narrow.log_prob(v)
    whole = with_tails(narrow, v, log_w)
    assert whole.weights.sum() == pytest.approx(1)
    assert whole.weights[1:].sum() == pytest.approx(_TAIL_SHARE) and len(whole.weights) == 1 + 2 * D
    mean = stats.norm.pdf(stats.norm.isf(_TAIL_MASS)) / _TAIL_MASS
    ends = whole.means[1:]
    np.testing.assert_allclose(ends, mean * np.vstack([-np.eye(D), np.eye(D)]), atol=0.4)
    few = with_tails(narrow, v[:50], log_w[:50])
    assert len(few.weights) == 1


def test_a_mixture_takes_many_points_block_by_block():
    rng = _rng(2)
    mixture = StudentMixture(np.ones(1), np.zeros((1, 8)), np.eye(8)[None])
    v = rng.normal(size=(_MAX_ELEMENTS // 8 + 1, 8))
    found = mixture.log_prob(v)
    ends = [0, len(v) // 2, len(v) - 1]
    np.testing.assert_array_equal(found[ends], mixture.log_prob(v[ends]))
    assert mixture.log_prob(v[:0]).shape == (0,)


def test_independent_tails_have_their_density():
    rng = _rng(4)
    root = np.array([[2.0, 0.0], [1.0, 0.5]])
    white = White(np.array([1.0, -2.0]), root)
    x = np.linspace(-60, 60, 1201)
    v = np.stack(np.meshgrid(1 + x, -2 + x / 2, indexing="ij"), axis=-1).reshape(-1, 2)
    p = np.exp(white.log_prob(v)) * 0.1 * 0.05
    assert abs(p.sum() - 1) < 1e-3
    centred = v - white.mean
    drawn = np.cov(white.sample(200_000, rng).T)
    np.testing.assert_allclose((p[:, None] * centred).T @ centred, drawn, rtol=0.05)


class Dying:
    "A count of each rate; a simulator that dies at a call."

    fingerprint = "a count of each rate"

    def __init__(self, last=10**9):
        self.last, self.calls = last, 0

    def __call__(self, theta, rng):
        self.calls += 1
        if self.calls > self.last:
            raise KeyboardInterrupt
        return rng.poisson(theta).astype(float)


@pytest.mark.thorough
def test_a_killed_search_goes_on_to_the_same_draws(tmp_path):
    release, model = rates_released(8, 5)

    def run(simulate, **more):
        about = dict(rng=_rng(7), max_simulations=3500, progress=False)
        return infer(release, Model(model.prior, simulate), target_ess=200, **about, **more)

    alone = Dying()
    whole = run(alone)
    for last in (alone.calls // 2, alone.calls - 3):
        path = tmp_path / f"{last}"
        with pytest.raises(KeyboardInterrupt):
            run(Dying(last), checkpoint=path)
        again = run(Dying(), checkpoint=path)
        np.testing.assert_array_equal(again.theta, whole.theta)
        np.testing.assert_array_equal(again.log_weights, whole.log_weights)


def test_a_search_may_be_a_partial_and_is_told_apart(tmp_path):
    "A run with another search is not resumed."
    release, model = in_normal(*rates_released(6, 3)[::-1], 1)
    about = dict(max_simulations=1600, progress=False, checkpoint=tmp_path / "run.npz")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        consensus(release, model, rng=_rng(1), search=partial(surrogate_starts), **about)
    with pytest.raises(ValueError, match="checkpoint|run"):
        consensus(release, model, rng=_rng(1), **about)
    with pytest.raises(TypeError, match="search must be a function"):
        consensus(release, model, rng=_rng(1), search="surrogates", **about)


def test_where_surrogates_fail_weights_are_believed(monkeypatch):
    "What is exact goes before what is not, however many draws that is worth."
    release, model = rates_released(8, 6)
    asked = []

    def failed(task, found, limit, rng):
        asked.append(limit)
        return SimpleNamespace(exact=False, ess=1e9, info=dict(agreed=True, reason="made up"))

    monkeypatch.setattr(summed, "_by_surrogates", failed)
    found = infer(release, model, rng=_rng(3), max_simulations=40_000, progress=False)
    mean, sd, _ = by_sums(release)
    assert asked and found.exact
    assert (np.abs(found.mean() - mean) < 5 * found.mcse()).all()


@pytest.mark.thorough
def test_two_modes_are_both_found():
    "A sign that no line sees; five standard errors, a false alarm in a million."

    def folded(theta, rng):
        level = 2 + 0.7 * np.abs(theta[:, :1]) + 0.3 * theta[:, 1:]
        return rng.poisson(np.exp(level)).astype(float)

    others = {f"z{j}": stats.norm() for j in range(6)}
    model, rng = Model(Prior(f=stats.norm(0, 1), **others), folded), _rng(11)
    s = folded(np.array([[1.2, *rng.normal(size=6)]]), rng)[0]
    noise = DiscreteLaplace(2.0)
    release = Release(noise.sample(s, rng), Query(identity, 1, step=1, dim=6), noise)
    given = in_normal(model, release, 1)
    about = dict(max_simulations=5000, progress=False, search=surrogate_starts)
    found = consensus(*given, rng=_rng(1), **about)
    weights = np.exp(found.log_weights)
    share = weights[found.theta[:, 0] > 0].sum() / weights.sum()
    assert found.exact and abs(share - 0.5) < 2.5 / np.sqrt(found.ess)
