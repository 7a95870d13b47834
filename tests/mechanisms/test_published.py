"""What publishers do to noisy values: exact probabilities, prices, files and engines."""

import math
import re
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import dpsbi
from dpsbi import Model, Prior, Query, Release, exact_abc, importance
from dpsbi.accounting.ledger import Ledger
from dpsbi.accounting.losses import GaussianLoss, ZCDPLoss
from dpsbi.checks.testing import agrees, follows_pmf
from dpsbi.mechanisms import (
    BinomialResponse,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Independent,
    Laplace,
    Published,
    SmoothLaplace,
    join,
    observed,
)
from dpsbi.mechanisms import release as release
from dpsbi.mechanisms.discrete import TruncatedGeometric, steps_below, steps_of
from dpsbi.mechanisms.discrete_gaussian import log_noise_cdf, log_normaliser, squared_steps
from dpsbi.mechanisms.published import grid_width, interval_behind, log_interval
from dpsbi.mechanisms.staircase import Staircase
from dpsbi.models.simulate import check_release
from dpsbi.privacy import identity

GRID = [
    DiscreteLaplace(3.0),
    DiscreteLaplace(0.4, step=0.5),
    DiscreteGaussian(4.0),
    DiscreteGaussian(0.7),
    DiscreteGaussian(2.5, step=0.25),
    BinomialResponse(30, 4.0, 30),
    Staircase(0.8, 4, 2),
    TruncatedGeometric(3.0, -8, 25),
]
LINE = [Laplace(3.0), Gaussian(4.0)]


def outputs(noise):
    "All values that the noise can reach, as far as they matter."
    if isinstance(noise, BinomialResponse):
        return np.arange(noise.n + 1.0)
    return noise.step * np.arange(-160.0, 161)


# ---- probabilities


SHARES = [0.1, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0]
orders = st.permutations(["clamp", "round_to", "suppress_below"])


@st.composite
def done_to(draw, unit):
    "Ends, width, threshold and order, as somebody writes them down; on the grid and off it."

    def number(low, high):
        value = draw(st.integers(low, high)) * draw(st.sampled_from([1.0, 1.0, 0.5, 0.3]))
        return draw(st.sampled_from([None, float(f"{unit * value:.10g}")]))

    width = draw(st.sampled_from([None, *SHARES]))
    width = width and float(f"{unit * width:.10g}")
    return (number(-9, 12), number(-2, 20)), width, number(-9, 22), draw(orders)


def published_or_none(noise, how):
    clamp, width, threshold, order = how
    try:
        return Published(noise, clamp, width, threshold, order)
    except ValueError:
        return None


def same(values, unit):
    "Published values that a person would take for one."
    return np.unique(np.round(np.nan_to_num(values, nan=-1e6), 9 - round(math.log10(unit))))


FINE = [DiscreteLaplace(0.3, step=0.1), DiscreteGaussian(20.0, step=10.0)]


@settings(max_examples=200, deadline=None)
@given(st.data(), st.sampled_from([*GRID, *FINE]), st.integers(-2, 20))
def test_what_is_published_has_the_probability_of_all_that_leads_there(data, noise, k):
    "All noises, all orders, widths and ends off the grid too, values as a file writes them."
    unit = getattr(noise, "step", 1.0)
    published = published_or_none(noise, data.draw(done_to(unit)))
    s = unit * (abs(k) if isinstance(noise, BinomialResponse) else k)
    if published is None:
        return
    y = outputs(noise)
    p = np.exp(noise.log_prob(y[:, None], [s]))
    v = published.publish(y)
    values = same(v, unit)
    near = np.abs(np.nan_to_num(v, nan=-1e6)[:, None] - values).argmin(1)
    brute = np.bincount(near, p, len(values))
    written = np.array([float(f"{one:.10g}") for one in values])
    asked = np.where(written == -1e6, np.nan, written)[:, None]
    assert np.allclose(np.exp(published.log_prob(asked, [s])), brute, atol=1e-12)
    first = asked[brute.argmax()]
    assert published.log_prob_max(first) >= published.log_prob(first, [s]) - 1e-12


def probability_between(noise, low, high, s):
    "By SciPy."
    law = stats.laplace(s, 3.0) if isinstance(noise, Laplace) else stats.norm(s, 4.0)
    return law.cdf(high) - law.cdf(low)


@pytest.mark.thorough
@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(LINE), st.floats(-5, 20))
def test_continuous_noise_too(data, noise, s):
    "Each atom is the probability of its interval, whose ends lead where they should."
    published = published_or_none(noise, data.draw(done_to(1.0)))
    if published is None:
        return
    values = np.unique(published.publish(np.linspace(-40, 60, 501)))
    low, high = interval_behind(published, values)
    atoms = np.flatnonzero(~np.isnan(low))
    for i in atoms[:: 1 + len(atoms) // 8]:
        a, b = max(low[i], -400.0), min(high[i], 400.0)
        inside = published.publish(np.linspace(a + 1e-7, b - 1e-7, 7))
        same = np.isnan(inside) if np.isnan(values[i]) else inside == values[i]
        assert same.all()
        expected = probability_between(noise, low[i], high[i], s)
        assert math.isclose(
            np.exp(published.log_prob(values[i : i + 1], [s])), expected, abs_tol=1e-13
        )


@pytest.mark.parametrize("noise", [*GRID, *LINE], ids=repr)
def test_what_cannot_be_published_is_impossible(noise):
    published = Published(noise, clamp=(0, 20), round_to=5, suppress_below=10)
    for v in (-5.0, 0.0, 5.0, 11.0, 12.5, 25.0):
        assert published.log_prob([v], [8.0]) == -np.inf
        assert published.log_prob_max([v]) == -np.inf
    for v in (np.nan, 10.0, 20.0):
        assert published.log_prob([v], [8.0]) > -np.inf


@pytest.mark.parametrize("noise", [*GRID, *LINE], ids=repr)
def test_shapes_and_bounds(noise):
    published = Published(noise, clamp=(0, None), round_to=5)
    s = np.arange(12.0).reshape(4, 3)
    v = published.sample(s, np.random.default_rng(1))
    each = [
        [published.log_prob(v[i, j : j + 1], s[i, j : j + 1]) for j in range(3)] for i in range(4)
    ]
    assert np.allclose(published.log_prob(v, s), np.sum(each, axis=1))
    assert published.log_prob(v[:, None], s).shape == (4, 4)
    many = np.arange(0, 30.5, 0.5)[:, None]
    if isinstance(noise, BinomialResponse):
        many = np.arange(0.0, 31)[:, None]
    for row in v:
        best = sum(published.log_prob(row[j : j + 1], many).max() for j in range(3))
        assert published.log_prob_max(row) >= best - 1e-12


def test_an_interval_far_out_keeps_its_digits():
    for sign in (1, -1):
        low, high = sorted((sign * 30.0, sign * 31.0))
        assert math.isclose(log_interval(Gaussian(1.0), low, high, 0.0), stats.norm.logsf(30))
    noise = DiscreteGaussian(2.0)
    k = np.arange(60.0, 200)
    direct = np.log(np.sum(np.exp(-(k**2 - 3600) / 8))) - 3600 / 8 - log_normaliser(2.0)
    assert math.isclose(log_interval(noise, 59.0, 199.0, 0.0), direct, rel_tol=1e-12)


# ---- discrete Gaussian noise


@pytest.mark.parametrize("t", [0.05, 0.4, 1.0, 3.3, 70.0, 4000.0, 5000.0])
def test_discrete_gaussian_cdf_and_inverse(t):
    noise = DiscreteGaussian(t)
    k = np.unique(np.rint(t * np.linspace(-9, 9, 400)))
    span = np.arange(k[0] - math.ceil(40 * t), k[-1] + 1)
    p = np.exp(-0.5 * (span / t) ** 2 - log_normaliser(t))
    summed = np.cumsum(p)[(k - span[0]).astype(int)]
    assert np.allclose(np.exp(log_noise_cdf(k, t)), summed, rtol=1e-5 if t > 4096 else 1e-11)
    u = np.random.default_rng(1).random((500, 1))
    found = noise.transform(u, np.zeros(1))[:, 0]
    assert (np.exp(noise.log_cdf(found, 0.0)) >= u[:, 0] * (1 - 1e-12)).all()
    assert (np.exp(noise.log_cdf(found - 1, 0.0)) < u[:, 0] * (1 + 1e-12)).all()


@settings(max_examples=60, deadline=None)
@given(st.floats(0.3, 40), st.integers(1, 5), st.floats(0, 4))
def test_the_loss_of_one_value_is_the_plain_sum(t, moved, epsilon):
    loss = DiscreteGaussian(t).loss(Query(identity, moved, norm="l2", step=1, dim=1))
    k = np.arange(-math.ceil(45 * t) - 10, math.ceil(45 * t) + 11)
    p, q = (np.exp(-0.5 * ((k - d) / t) ** 2 - log_normaliser(t)) for d in (0, moved))
    assert math.isclose(
        loss.delta(epsilon), np.maximum(p - np.exp(epsilon) * q, 0).sum(), abs_tol=1e-12
    )
    exact = moved**2 / (2 * Fraction(t) ** 2)
    assert exact <= Fraction(loss.rho) <= exact * (1 + Fraction(1, 2**50))


@pytest.mark.thorough
@settings(max_examples=60, deadline=None)
@given(st.floats(0.05, 5), st.floats(1e-9, 0.1), st.sampled_from([1, 2, 7]), st.integers(1, 4))
def test_discrete_gaussian_calibration_is_valid_and_tight(epsilon, delta, dim, moved):
    query = Query(identity, moved, norm="l2", step=1, dim=dim)
    fitted = DiscreteGaussian.calibrate(query, epsilon, delta)
    assert fitted.cost(query, delta).epsilon <= epsilon
    less = replace(fitted, scale=0.99 * fitted.scale)
    assert less.cost(query, delta).epsilon > epsilon
    rho = fitted.loss(query).rho
    by_rho = DiscreteGaussian.calibrate(query, rho=rho)
    assert by_rho.loss(query).rho <= rho and by_rho.scale <= fitted.scale * (1 + 1e-9)


@pytest.mark.parametrize("step, dim, sensitivity", [(1, 3, 2.5), (None, 3, 0.4), (None, 1, 1.0)])
def test_squared_steps_bounds_all_moves(step, dim, sensitivity):
    query = Query(identity, sensitivity, norm="l2", step=step, dim=dim)
    bound, rng = squared_steps(query, 1.0), np.random.default_rng(2)
    s = rng.uniform(-3, 3, (20_000, dim))
    move = rng.normal(size=s.shape)
    move *= sensitivity / np.linalg.norm(move, axis=1, keepdims=True)
    if step:
        s, move = np.rint(s), np.trunc(move)
    moved = np.floor(s + move + 0.5) - np.floor(s + 0.5)
    assert (moved**2).sum(1).max() <= bound


def test_a_price_that_is_too_low_would_be_seen():
    "The claim of half the ρ fails against the plain sum."
    t, k = 3.0, np.arange(-200, 201)
    p, q = (np.exp(-0.5 * ((k - d) / t) ** 2 - log_normaliser(t)) for d in (0, 1))
    cost = DiscreteGaussian(t).cost(Query(identity, 1, norm="l2", step=1, dim=1), 1e-5)
    true = np.maximum(p - np.exp(cost.epsilon) * q, 0).sum()
    assert true <= 1e-5 * (1 + 1e-9)
    half = ZCDPLoss(cost.rho / 8).epsilon(1e-5)
    assert np.maximum(p - np.exp(half) * q, 0).sum() > 1e-5


def test_two_values_that_move_by_one_each_cost_more_than_one():
    t, k = 2.0, np.arange(-60, 61)
    loss = DiscreteGaussian(t).loss(Query(identity, math.sqrt(2), norm="l2", step=1, dim=2))
    p, q = (np.exp(-0.5 * ((k - d) / t) ** 2 - log_normaliser(t)) for d in (0, 1))
    both, moved = np.outer(p, p), np.outer(q, q)
    for epsilon in (0.2, 0.7, 1.5):
        true = np.maximum(both - np.exp(epsilon) * moved, 0).sum()
        assert true <= loss.delta(epsilon)
    assert loss.rho == 2 / (2 * t**2)


# ---- prices, private draws and files


@pytest.mark.parametrize(
    "noise", [DiscreteLaplace(3.0), DiscreteGaussian(2.0), Laplace(2.0)], ids=repr
)
def test_private_draws_are_published_and_priced_as_the_noise(noise):
    query = Query(identity, 1, step=1, dim=4000, neighbours="add-remove", unit="person")
    published = Published(noise, clamp=(0, None), round_to=2, suppress_below=4)
    delta = 1e-6 if noise.needs_delta else 0.0
    assert published.cost(query, delta) == noise.cost(query, delta)
    ledger = Ledger(10.0, 1e-3)
    seen = release(np.full(4000, 5.0), query, published, ledger, delta=delta)
    assert ledger.history[-1].cost == noise.cost(query, delta)
    values = np.array([np.nan, *np.arange(4.0, 40, 2)])
    p = np.exp(published.log_prob(values[:, None], [5.0]))
    keep = p > 1e-9
    code = np.nan_to_num(values, nan=-1)
    drawn = np.nan_to_num(seen.s_dp, nan=-1)
    follows_pmf(drawn, code[keep], p[keep] / p[keep].sum(), alarm=1e-8)


@pytest.mark.parametrize(
    "mechanism",
    [
        DiscreteGaussian(2.0, step=0.5),
        Published(DiscreteGaussian(18.2), clamp=(None, 900), suppress_below=90),
        Independent((Laplace(1.0), Published(Gaussian(2.0), (0, None), 5.0, 10.0))),
    ],
    ids=repr,
)
def test_files_bring_back_the_mechanism(mechanism, tmp_path):
    s_dp = [10.0] if not isinstance(mechanism, Independent) else [10.0, np.nan]
    kept = Release(s_dp, Query(identity, 1, step=1), mechanism)
    kept.save(tmp_path / "r.json")
    again = Release.load(tmp_path / "r.json")
    assert again.mechanism == mechanism and np.array_equal(again.s_dp, s_dp, equal_nan=True)


def test_independent_charges_the_least_noise():
    query = Query(identity, 2.0, norm="l1", step=1, dim=3)
    three = Independent(tuple(DiscreteLaplace(b) for b in (4.0, 0.5, 9.0)))
    assert three.cost(query).epsilon == 4.0
    normal = Independent((Gaussian(2.0), Gaussian(5.0)))
    assert normal.loss(Query(identity, 1, norm="l2")) == GaussianLoss(0.5)
    discrete = Independent((DiscreteGaussian(2.0), DiscreteGaussian(5.0)))
    assert discrete.loss(Query(identity, 1, norm="l2", step=1)).rho == 1 / 8
    vague = Query(identity, 1.0)  # how many values, it does not say; rounding moves each
    assert Independent((DiscreteLaplace(2.0),) * 5).cost(vague).epsilon == 3.0
    kinds = Independent((Laplace(2.0), DiscreteLaplace(4.0)))
    assert kinds.cost(Query(identity, 1, step=1, dim=2)).epsilon == pytest.approx(0.75)


def test_join_composes_and_stacks():
    mean = Query(lambda x: x.mean(1, keepdims=True), 0.1, dim=1)
    total = Query(lambda x: x.sum(1, keepdims=True), 1.0, dim=1)
    both = join(Release([0.4], mean, Laplace(0.5)), Release([4.0], total, Laplace(2.0)))
    x = np.arange(20.0).reshape(2, 10)
    assert np.allclose(both.query(x), [[4.5, 45.0], [14.5, 145.0]])
    assert both.mechanism.cost(both.query).epsilon == pytest.approx(0.1 / 0.5 + 1 / 2)
    assert both.mechanism.log_prob(both.s_dp, [0.5, 5.0]) == pytest.approx(
        Laplace(0.5).log_prob([0.4], [0.5]) + Laplace(2.0).log_prob([4.0], [5.0])
    )


def test_what_is_missing_is_left_out_and_what_is_suppressed_is_not():
    query = Query(identity, 1, step=1, dim=4)
    for noise in (
        Laplace(2.0),
        DiscreteGaussian(3.0),
        Independent(tuple(map(Laplace, (1, 2, 3, 4)))),
    ):
        gappy = Release([1.0, np.nan, 3.0, np.nan], query, noise)
        kept = observed(gappy)
        s = np.array([[1.5, 9.0, 2.0, 9.0], [0.0, -9.0, 3.0, 7.0]])
        parts = noise.mechanisms if isinstance(noise, Independent) else (noise,) * 4
        expected = parts[0].log_prob([1.0], s[:, :1]) + parts[2].log_prob([3.0], s[:, 2:3])
        assert np.allclose(kept.mechanism.log_prob(kept.s_dp, kept.query(s)), expected)
    hidden = Release([np.nan, 7.0], Query(identity, 1), Published(Laplace(1.0), suppress_below=5))
    assert observed(hidden) is hidden


def test_the_exact_delta_is_asked_of_the_noise():
    with pytest.raises(ValueError, match="no noise of its own"):
        dpsbi.exact_delta(Published(DiscreteLaplace(1.0), suppress_below=2), [0.0], [1.0], 0.5)


@pytest.mark.parametrize(
    "given",
    [
        np.array([0.1, np.nan, 0.3], np.float32),
        np.array([0.1, None, 0.3], object),
        np.ma.array([0.1, 99.0, 0.3], mask=[0, 1, 0]),
        np.ma.array(np.array([0.1, 99.0, 0.3], np.float32), mask=[0, 1, 0]),
        pd.array([0.1, None, 0.3], dtype="Float64"),
        pd.Series([0.1, None, 0.3]),
        (0.1, math.nan, 0.3),
    ],
    ids=lambda v: f"{type(v).__name__} {getattr(v, 'dtype', '')}",
)
def test_values_in_whatever_array_they_come(given):
    seen = Release(given, Query(identity, 1, dim=3), DiscreteLaplace(1.0, step=0.1))
    assert np.array_equal(seen.s_dp, [0.1, np.nan, 0.3], equal_nan=True)
    assert seen.s_dp.dtype == float and type(seen.s_dp) is np.ndarray
    assert check_release(seen).s_dp.tolist() == [0.1, 0.3]


@pytest.mark.parametrize("value", [5, -3, 2**60, True])
def test_whole_values_of_any_type(value):
    for one in ([value], np.array([value])):
        assert Release(one, Query(identity, 1), DiscreteLaplace(1.0)).s_dp == [float(value)]


@pytest.mark.parametrize("scale", [1e-200, 1e-3, 0.2, 5e3, 1e200])
def test_normal_noise_of_any_size(scale):
    noise = DiscreteGaussian(scale)
    with np.errstate(over="ignore"):
        p = np.exp(noise.log_prob(np.arange(-3.0, 4)[:, None], [0.0]))
        ends = np.exp(noise.log_cdf(3.0, 0.0)), np.exp(noise.log_cdf(-4.0, 0.0))
    assert p.sum() == pytest.approx(ends[0] - ends[1], rel=1e-6, abs=1e-12)


@pytest.mark.parametrize(
    "epsilon, delta", [(1e-12, 1e-6), (1e-9, 0.5), (1e4, 1e-9), (1e-3, 1e-200)]
)
def test_normal_noise_is_calibrated_at_the_ends(epsilon, delta):
    query = Query(identity, 1, norm="l2", step=1, dim=1)
    fitted = DiscreteGaussian.calibrate(query, epsilon, delta)
    assert fitted.cost(query, delta).epsilon <= epsilon
    assert DiscreteGaussian(0.99 * fitted.scale).cost(query, delta).epsilon > epsilon


def test_whole_steps_of_large_values():
    "A hundredth of a step off the grid is off it, however large the value."
    for k in (3.0, 1e6, 7e8, 1e12):
        assert not steps_of(np.array(k + 0.3), 1.0)[1] and steps_below(k + 0.7, 1.0) == k


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Published(SmoothLaplace(2.0)),
        lambda: Published(Published(Laplace(1.0), round_to=2), suppress_below=3),
        lambda: Published(Independent((Laplace(1.0),))),
        *[
            lambda v=v: Published(Laplace(1.0), clamp=v)
            for v in (0, "0", (0,), (0, 1, 2), ("0", 1), (math.nan, 1), (math.inf, None), (True, 3))
        ],
        *[
            lambda v=v, name=name: Published(Laplace(1.0), **{name: v})
            for v in ("5", math.inf, math.nan, True, [5], 10**400)
            for name in ("round_to", "suppress_below")
        ],
        *[
            lambda v=v: Published(Laplace(1.0), round_to=5, order=v)
            for v in ("round_to", ["round"], ["clamp", "clamp"], None)
        ],
        lambda: Independent((Independent((Laplace(1.0), Laplace(2.0))),), sizes=(3,)),
        lambda: Published(Laplace(1.0), clamp=(3, 3)),
        lambda: Published(Laplace(1.0), round_to=-1),
        lambda: Independent((SmoothLaplace(2.0, floor=1.0),)),
        lambda: Independent((Laplace(1.0),), sizes=(0,)),
        lambda: DiscreteGaussian(1.0).cost(Query(identity, 1, norm="l2", step=1)),
        lambda: DiscreteGaussian.calibrate(Query(identity, 1, norm="l0", step=1), rho=1.0),
        lambda: Independent((Gaussian(1.0),)).cost(Query(identity, 1, norm="l2")),
    ],
)
def test_refusals(wrong):
    with pytest.raises((TypeError, ValueError)) as refused:
        wrong()
    internal = "iterable|unpack|ufunc|float\\(|loop|convert string|unhashable"
    assert not re.search(internal, str(refused.value))


# ---- engines


def rounded_counts():
    "Three counts of one rate, rounded to 5, suppressed under 10; the exact mean and sd."
    noise = Published(DiscreteLaplace(2.0), round_to=5, suppress_below=10)
    prior = stats.gamma(9)
    seen = Release([np.nan, 10, 15], Query(identity, 1, step=1, dim=3), noise)
    model = Model(
        Prior(rate=prior), lambda theta, rng: rng.poisson(theta, (len(theta), 3)).astype(float)
    )
    rate, k = np.linspace(0.1, 40, 4000), np.arange(100.0)
    each = [np.exp(noise.log_prob([v], k[:, None])) for v in seen.s_dp]
    p = prior.pdf(rate) * np.prod(stats.poisson.pmf(k, rate[:, None]) @ np.transpose(each), axis=1)
    p /= p.sum()
    mean = p @ rate
    return seen, model, mean, math.sqrt(p @ (rate - mean) ** 2)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "method",
    [
        lambda *a, **k: importance(*a, target_ess=3000, simulations=2000, **k),
        lambda *a, **k: exact_abc(*a, draws=2000, **k),
        lambda *a, **k: dpsbi.infer(*a, target_ess=1000, **k),
        lambda *a, **k: dpsbi.pseudo_marginal(*a, draws=2000, **k),
        lambda *a, **k: dpsbi.smc_abc(*a, draws=1000, **k),
    ],
    ids=["importance", "exact_abc", "infer", "pseudo_marginal", "smc_abc"],
)
def test_every_exact_engine_takes_what_was_published(method):
    seen, model, mean, sd = rounded_counts()
    found = method(seen, model, rng=np.random.default_rng(5), progress=False)
    agrees(found.mean()[0], mean, 1.2 * sd / math.sqrt(min(found.ess, 3000)))


def test_a_column_with_words_in_it_is_refused_with_its_remedy():
    query = Query(identity, sensitivity=1, dim=3)
    with pytest.raises(ValueError, match=r"'<10'.*to_numeric"):
        Release([12, "<10", 25], query, DiscreteLaplace(1.0))


def test_a_release_prints_its_values_its_mechanism_and_its_query():
    short = Release([1.0, np.nan], Query(identity, 1), Laplace(2.0))
    lines = repr(short).split("\n")
    assert lines[0] == "Release of 2 values [ 1. nan]"
    assert lines[1:] == [
        "  mechanism: Laplace(scale=2.0)",
        "  query: Query(identity, sensitivity=1.0)",
    ]
    long = repr(Release(np.arange(500.0), short.query, short.mechanism)).split("\n")
    assert "500 values" in long[0] and "..." in long[0] and len(long[0]) < 100


def asked(sensitivity):
    how = dict(step=1, dim=1, neighbours="add-remove", unit="patient")
    return Query(lambda x: x.sum(axis=1), sensitivity=sensitivity, **how)


@pytest.mark.parametrize("nested", [False, True])
def test_a_joined_release_costs_the_same_from_its_file(nested, tmp_path):
    "The sensitivity of each part is in it; that of all together would charge each part for all."
    parts = [
        Release([3], asked(1), dpsbi.DiscreteLaplace(2.0)),
        Release([5], asked(30), dpsbi.DiscreteLaplace(60.0)),
        Release([7], asked(2), dpsbi.DiscreteGaussian(8.0)),
    ]
    joined = dpsbi.join(dpsbi.join(*parts[:2]), parts[2]) if nested else dpsbi.join(*parts)
    joined.save(tmp_path / "joined.json")
    price = joined.mechanism.cost(joined.query, 1e-6)
    for fn in (None, joined.query.fn, lambda x: x):
        loaded = Release.load(tmp_path / "joined.json", fn)
        assert loaded.mechanism.cost(loaded.query, 1e-6) == price
        loaded.save(tmp_path / "again.json")
        again = Release.load(tmp_path / "again.json")
        assert again.mechanism.cost(again.query, 1e-6) == price
    values = np.arange(6.0).reshape(2, 3)
    assert np.array_equal(Release.load(tmp_path / "joined.json").query(values), values)


class Claiming:
    "The sum of all, which claims to be of queries that cost less."

    def __init__(self, *queries):
        self.queries = queries

    def __call__(self, x):
        return np.repeat(x.sum(axis=1, keepdims=True), 2, axis=1)


def test_a_function_that_claims_to_be_of_cheaper_queries_is_not_believed():
    "Its values need not be those queries': the stated sensitivity counts, for each of them."
    noise = dpsbi.Independent((dpsbi.DiscreteLaplace(10.0), dpsbi.DiscreteLaplace(20.0)))
    how = dict(sensitivity=30, step=1, dim=2, norm="l1")
    plain, claiming = (Query(fn, **how) for fn in (lambda x: x, Claiming(asked(1), asked(1))))
    assert noise.cost(claiming) == noise.cost(plain) and noise.cost(plain).epsilon >= 3.0


# ---- a grid whose mechanism knows the probability of each place, and no more


class Places:
    "What a mechanism of one's own may have: draws, the probability of each place, the width."

    def __init__(self, known):
        self.known, self.step = known, grid_width(known)

    def sample(self, s, rng):
        return self.known.sample(s, rng)

    def log_prob(self, s_dp, s):
        return self.known.log_prob(s_dp, s)


RULES = [
    dict(round_to=5),
    dict(round_to=10, suppress_below=10),
    dict(clamp=(0, None)),
    dict(clamp=(None, 20), round_to=2),
    dict(clamp=(2, 12), suppress_below=4),
    dict(suppress_below=3),
]


@pytest.mark.thorough
@pytest.mark.parametrize("known", GRID, ids=repr)
@pytest.mark.parametrize("rules", RULES, ids=str)
def test_places_of_a_grid_are_added_up(known, rules):
    "As the distribution function has it, near the values and in tails of a millionth and less."
    ours, added = Published(known, **rules), Published(Places(known), **rules)
    s = np.array([0.0, 3.0, 7.3, 11.0, 26.0])[:, None]
    shown = ours.publish(np.arange(-5.0, 31.0))
    for v in {*shown[~np.isnan(shown)].tolist(), *([math.nan] if np.isnan(shown).any() else [])}:
        exact, found = (m.log_prob(np.array([v]), s) for m in (ours, added))
        assert np.allclose(np.exp(found), np.exp(exact), rtol=1e-8, atol=1e-9)
        assert added.log_prob_max([v]) >= max(found.max(), -math.inf)


def test_places_of_a_grid_serve_a_method():
    query = Query(identity, 1, dim=2)
    model = Model(Prior(a=stats.norm(0, 9), b=stats.norm(0, 9)), lambda theta, rng: theta)
    model = replace(model, deterministic=True)
    how = dict(rounds=2, simulations=500, rng=np.random.default_rng(0), progress=False)
    by = [
        importance(Release([5.0, 10.0], query, Published(noise, round_to=5.0)), model, **how)
        for noise in (DiscreteLaplace(3.0), Places(DiscreteLaplace(3.0)))
        if not how.update(rng=np.random.default_rng(0))
    ]
    assert np.allclose(by[0].mean(), by[1].mean(), rtol=1e-8)


@pytest.mark.parametrize("share", [0.5, 2.0])
def test_places_that_do_not_add_up_to_one_are_refused(share):
    class Off(Places):
        def log_prob(self, s_dp, s):
            return super().log_prob(s_dp, s) + math.log(share)

    with pytest.raises(ValueError, match="add up to"):
        Published(Off(DiscreteLaplace(2.0)), suppress_below=3).log_prob([np.nan], [2.0])


def test_too_many_places_are_refused():
    with pytest.raises(ValueError, match="log_cdf and log_sf"):
        Published(Places(DiscreteLaplace(2.0)), round_to=1e6).log_prob([0.0], [2.0])
