"""True counts behind released ones: every answer against a list of all combinations."""

import math
import re
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpsbi import Query, Release, noisy_counts
from dpsbi.analyst.true_counts.count_law import CountLaw, Group, ValueLaw, disjoint, likelihoods
from dpsbi.analyst.true_counts.noisy_counts import Pooled
from dpsbi.mechanisms import (
    BinomialResponse,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Independent,
    Laplace,
    Published,
    SmoothLaplace,
    Staircase,
    join,
)
from dpsbi.mechanisms.composite import coded
from dpsbi.privacy import identity
from dpsbi.simulators.counts import exact_posterior


def told(value) -> str:
    "A test's name without addresses in memory: each worker has to find the same tests."
    return re.sub(r" object at 0x\w+", "", repr(value))


MOST = 9
EVERY = np.array(list(product(range(MOST + 1), repeat=3)))
NAMES = ("a", "b", "c")
NOISES = [
    DiscreteLaplace(1.5),
    DiscreteGaussian(2.0),
    Laplace(2.0),
    Gaussian(1.5),
    BinomialResponse(12, 2.0, MOST),
    Published(DiscreteLaplace(1.0), clamp=(0, None), round_to=2),
]
PRIORS = [None, stats.poisson(3), stats.nbinom(2, 0.4), stats.binom(8, 0.3)]
TOTALS = [
    ({}, lambda k: True),
    (dict(totals={"all": 8}), lambda k: k.sum(1) == 8),
    (dict(totals={("a", "c"): 5}), lambda k: k[:, 0] + k[:, 2] == 5),
    (dict(totals={"all": 9, ("a", "b"): 4}), lambda k: (k.sum(1) == 9) & (k[:, 2] == 5)),
    (dict(at_most={("b", "c"): 4}), lambda k: k[:, 1] + k[:, 2] <= 4),
]


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from(NOISES),
    st.lists(st.sampled_from(PRIORS), min_size=3, max_size=3),
    st.sampled_from(TOTALS),
    st.lists(st.integers(0, 8).map(lambda v: 2.0 * (v // 2)), min_size=3, max_size=3),
)
def test_cells_sums_and_comparisons_are_those_of_the_list(noise, priors, totals, s_dp):
    seen = Release(s_dp, Query(identity, 1, step=1, dim=3), noise)
    how, holds = totals
    found = noisy_counts(seen, names=NAMES, prior=priors, most=MOST, **how)
    log_p = noise.log_prob(seen.s_dp, EVERY.astype(float))
    for j, own in enumerate(priors):
        log_p = log_p + (0.0 if own is None else own.logpmf(EVERY[:, j]))
    p = np.exp(log_p) * holds(EVERY)
    p /= p.sum()
    for names in (["a"], ["b"], ["a", "c"], ["b", "c"], list(NAMES)):
        at = [NAMES.index(name) for name in names]
        brute = np.bincount(EVERY[:, at].sum(1), p, 40)
        assert np.allclose(found.sum(names).at(np.arange(40)), brute, atol=1e-12)
    for x, y in (("a", "b"), ("b", "c"), ("a", "c")):
        i, j = NAMES.index(x), NAMES.index(y)
        more = p[EVERY[:, i] > EVERY[:, j]].sum()
        assert found.probability(lambda u, v: u > v, x, y) == pytest.approx(more, abs=1e-12)
    values, share = found.law(lambda u, v: u / (v + 1.0), "a", "b")
    assert share @ values == pytest.approx(p @ (EVERY[:, 0] / (EVERY[:, 1] + 1.0)), abs=1e-12)
    for x, y in ((["b"], ["a", "c"]), (["a", "b"], ["c"])):
        i, j = [[NAMES.index(name) for name in names] for names in (x, y)]
        one, other = EVERY[:, i].sum(1), EVERY[:, j].sum(1)
        brute = np.bincount(one - other + 40, p, 81)
        assert np.allclose(found.difference(x, y).at(np.arange(-40, 41)), brute, atol=1e-12)
        law = found.law(lambda u, v: u / (v + 1.0), x, y)
        assert law.mean() == pytest.approx(p @ (one / (other + 1.0)), abs=1e-12)
        low, high = law.interval(0.9)
        held = p[(one / (other + 1.0) >= low) & (one / (other + 1.0) <= high)].sum()
        assert held == pytest.approx(law.probability(low, high), abs=1e-12) and held >= 0.9 - 1e-12
    for j, name in enumerate(NAMES[:2]):
        for ties, ahead in (("best", EVERY > EVERY[:, [j]]), ("worst", EVERY >= EVERY[:, [j]])):
            brute = np.bincount((ties == "best") + ahead.sum(1), p, 5)[1:]
            assert np.allclose(found.rank(name, ties=ties).at(np.arange(1, 5)), brute, atol=1e-12)
    among = np.bincount(1 + (EVERY[:, 2] > EVERY[:, 0]), p, 4)[1:]
    assert np.allclose(found.rank("a", among=["c"]).at(np.arange(1, 4)), among, atol=1e-12)


@pytest.mark.parametrize("how, holds", TOTALS, ids=lambda v: str(v) if isinstance(v, dict) else "")
def test_draws_keep_every_total(how, holds):
    seen = Release([3.0, 2.0, 4.0], Query(identity, 1, step=1, dim=3), DiscreteLaplace(1.5))
    prior = Pooled(means=(1, 6), points=(3, 2))
    found = noisy_counts(seen, names=NAMES, prior=prior, most=MOST, **how)
    draws = found.sample(3000, np.random.default_rng(1))
    assert np.all(holds(draws.theta)) and draws.names == NAMES
    mean = found["b"].mean()
    assert abs(draws.mean()[1] - mean) < 5 * found["b"].std() / np.sqrt(3000) + 1e-12


@pytest.mark.thorough
def test_pooling_lends_strength():
    "A suppressed cell among large ones is thought larger than among small ones."
    noise = Published(DiscreteLaplace(2.0), suppress_below=6)
    about = []
    for others in (40.0, 7.0):
        seen = Release([np.nan] + [others] * 30, Query(identity, 1, step=1, dim=31), noise)
        found = noisy_counts(seen, prior=Pooled((0.5, 200), points=(30, 8)), most=400)
        about.append(found["c0"].mean())
    assert about[0] > about[1] + 0.5


def test_a_pooled_prior_under_totals_is_the_sum_over_its_grid():
    seen = Release([3.0, 2.0, 6.0], Query(identity, 1, step=1, dim=3), DiscreteLaplace(1.5))
    prior = Pooled(means=(0.5, 12), shapes=(0.5, 50), points=(6, 4))
    found = noisy_counts(seen, names=NAMES, prior=prior, most=MOST, totals={("a", "b"): 3})
    eta = np.exp(seen.mechanism.log_prob(seen.s_dp, EVERY.astype(float)))
    eta = eta * (EVERY[:, 0] + EVERY[:, 1] == 3)
    brute = sum(
        np.bincount(EVERY[:, 2], eta * law.pmf(EVERY).prod(axis=1), MOST + 1)
        for law in prior.grid()
    )
    assert np.allclose(found["c"].at(np.arange(MOST + 1)), brute / brute.sum(), atol=1e-12)


def test_wide_noise_and_large_counts():
    seen = Release([3e6], Query(identity, 1, step=1, dim=1), DiscreteLaplace(2e4))
    law = noisy_counts(seen)["c0"]
    assert law.mean() == pytest.approx(3e6, abs=1) and law.std() == pytest.approx(
        np.sqrt(2) * 2e4, rel=1e-4
    )


def test_laws_add_and_turn():
    a, b = CountLaw(2, [0.2, 0.8]), CountLaw(-1, [0.5, 0.0, 0.5])
    assert (a - b).mean() == pytest.approx(a.mean() - b.mean())
    assert (a + b).std() ** 2 == pytest.approx(a.std() ** 2 + b.std() ** 2)
    assert (-b).values.tolist() == [-1, 0, 1]
    with pytest.raises(ValueError, match="contradicts"):
        CountLaw(0, [0.0, 0.0])


def test_totals_that_overlap_or_contradict_are_refused():
    with pytest.raises(ValueError, match="overlap"):
        disjoint([Group((0, 1), 3), Group((1, 2), 3)])
    with pytest.raises(ValueError, match="contradict"):
        disjoint([Group((0, 1), 5), Group((0, 1, 2), 3)])
    smooth = Release([1.0], Query(identity, 1, smoothness=0.1, dim=2), SmoothLaplace(1.0))
    with pytest.raises(ValueError, match="noise that each count"):
        noisy_counts(smooth)
    mixed = Independent((DiscreteLaplace(1.0), Published(DiscreteLaplace(1.0), suppress_below=4)))
    two = Query(identity, 1, step=1, dim=2)
    with pytest.raises(ValueError, match="says nothing"):
        noisy_counts(Release([np.nan, 5.0], two, mixed))
    assert noisy_counts(Release([5.0, np.nan], two, mixed))["c1"].mean() < 4


# ---- what an outsider might hand over


def plain(values, noise=DiscreteLaplace(1.0)):
    return Release(values, Query(identity, 1, step=1, dim=len(values)), noise)


@pytest.mark.parametrize(
    "how",
    [
        dict(totals={"all": 400}),
        dict(totals={"all": 60}),
        dict(at_most={"all": 100}),
        dict(prior=stats.poisson(1000)),
        dict(prior=Pooled(means=(1000, 2000), shapes=(500, 1000), points=(3, 2))),
        dict(most=20),
        dict(least=200),
    ],
    ids=lambda how: ", ".join(how),
)
def test_what_is_out_of_reach_of_the_noise_is_refused_and_not_cut_off(how):
    "Counts of 100 under noise of scale 1; a law cut off at its ends would answer all the same."
    with pytest.raises(ValueError, match="reach"):
        noisy_counts(plain([100.0, 100.0]), **how)


@pytest.mark.parametrize(
    "value, noise",
    [
        (10.5, DiscreteLaplace(1.0)),
        (7.0, Published(DiscreteLaplace(1.0), round_to=5)),
        (3.0, Published(DiscreteLaplace(1.0), suppress_below=5)),
        (np.nan, Published(DiscreteLaplace(1.0), clamp=(10, None), suppress_below=5)),
        (31.0, BinomialResponse(30, 4.0, 30)),
    ],
    ids=told,
)
def test_a_value_that_is_never_published_is_named_at_once(value, noise):
    with pytest.raises(ValueError, match="value 1 .*never publishes"):
        noisy_counts(plain([value], noise))


def test_a_count_that_nothing_bounds_is_refused_at_once():
    with pytest.raises(ValueError, match="most="):
        noisy_counts(plain([100.0], Published(DiscreteLaplace(1.0), clamp=(None, 100))))


@pytest.mark.parametrize("value", [2e9, 3e12, 4e15])
def test_counts_of_any_size(value):
    assert noisy_counts(plain([value]))["c0"].mean() == pytest.approx(value, rel=1e-15)


@given(st.integers(-40, 5), st.sampled_from([0, 3, 10**12]))
@settings(max_examples=30, deadline=None)
def test_bounds_on_sums_of_either_sign_and_any_size(value, bound):
    seen = plain([float(value), -3.0])
    found = noisy_counts(seen, least=-60, most=30, at_most={"all": bound})
    k = np.stack(np.meshgrid(np.arange(-60, 31), np.arange(-60, 31), indexing="ij"), -1)
    p = np.exp(seen.mechanism.log_prob(seen.s_dp, k.astype(float))) * (k.sum(-1) <= bound)
    p /= p.sum()
    assert np.allclose(found["c0"].at(np.arange(-60, 31)), p.sum(1), atol=1e-10)
    assert found.sum(["c0", "c1"]).mean() == pytest.approx((p * k.sum(-1)).sum(), abs=1e-8)


def test_long_sums_are_those_of_the_plain_convolution():
    "By Fourier transforms, with probabilities of 1e-12 still right; beside a normal law."
    laws = [noisy_counts(plain([1e6], DiscreteGaussian(s)))["c0"] for s in (500.0, 700.0)]
    both = laws[0] + laws[1]
    k = np.arange(-6000, 6001, 50)
    law = stats.norm(2e6, np.hypot(500.0, 700.0))
    assert np.allclose(both.at(2_000_000 + k) / law.pdf(2e6 + k), 1, rtol=1e-3)


SQUARE = np.array(list(product(range(6), repeat=4)))
ROW, COLUMN = SQUARE[:, 0] + SQUARE[:, 1], SQUARE[:, 0] + SQUARE[:, 2]


@pytest.mark.parametrize("noise", NOISES[:3])
@pytest.mark.parametrize("prior", [None, stats.poisson(3), Pooled((1, 6), points=(3, 2))], ids=told)
@pytest.mark.parametrize("also", [{}, {"all": 9}, {("c", "d"): 4}, {("c", "d"): 4, ("b", "d"): 3}])
def test_totals_of_rows_and_columns(noise, prior, also):
    "A table of two rows and two columns, listed."
    totals = {("a", "b"): 5, ("a", "c"): 6, **also}
    seen = Release([2.0, 3.0, 3.0, 1.0], Query(identity, 1, step=1, dim=4), noise)
    found = noisy_counts(seen, names=tuple("abcd"), prior=prior, most=5, totals=totals)
    eta = np.exp(noise.log_prob(seen.s_dp, SQUARE.astype(float))) * (ROW == 5) * (COLUMN == 6)
    if also:
        eta = eta * (SQUARE.sum(1) == 9)
    laws = prior.grid() if isinstance(prior, Pooled) else [prior]
    p = sum(eta * (1 if law is None else law.pmf(SQUARE).prod(axis=1)) for law in laws)
    p = p / p.sum()
    for j in range(4):
        brute = np.bincount(SQUARE[:, j], p, 6)
        assert np.allclose(found["abcd"[j]].at(np.arange(6)), brute, atol=1e-12)
    less = np.bincount(SQUARE[:, 1] + SQUARE[:, 2] - SQUARE[:, 3] + 5, p, 20)
    assert np.allclose(found.difference(["b", "c"], "d").at(np.arange(-5, 15)), less, atol=1e-12)
    more = found.probability(np.greater, "b", "c")
    assert more == pytest.approx(p[SQUARE[:, 1] > SQUARE[:, 2]].sum(), abs=1e-12)
    places = np.bincount(1 + (SQUARE > SQUARE[:, [3]]).sum(1), p, 5)[1:]
    assert np.allclose(found.rank("d").at(np.arange(1, 5)), places, atol=1e-12)
    draws = found.sample(500, np.random.default_rng(2)).theta
    assert (draws[:, 0] + draws[:, 1] == 5).all() and (draws[:, 0] + draws[:, 2] == 6).all()


@pytest.mark.parametrize(
    "totals, says",
    [
        ({("a", "b"): 5, ("a", "c"): 6, ("c", "d"): 4, ("b", "d"): 4}, "contradict"),
        ({("a", "b"): 5, ("a", "c"): 60}, "within reach"),
        ({("a", "b", "c"): 5, ("a", "d"): 3, ("b", "d"): 3}, "noisy_table"),
        ({("a", "b", "c"): 5, ("b", "c", "d"): 3}, "table with two rows"),
    ],
)
def test_crossing_totals_that_are_refused(totals, says):
    with pytest.raises(ValueError, match=says):
        noisy_counts(plain([2.0, 3.0, 3.0, 1.0]), names=tuple("abcd"), totals=totals)


def test_differences_wider_than_any_table():
    noise, sd = DiscreteGaussian(9000.0), 9000.0 * 2**0.5
    found = noisy_counts(plain([1e6, 9e5], noise))
    with pytest.raises(ValueError, match="`difference`"):
        found.law(np.subtract, "c0", "c1")
    gap = found.difference("c0", "c1")
    assert gap.mean() == pytest.approx(1e5, abs=1) and gap.std() == pytest.approx(sd, rel=1e-4)


@pytest.mark.parametrize("level", [0.3, 0.8, 0.95])
def test_the_shortest_interval_is_the_shortest(level):
    "Every pair of ends is tried."
    rng = np.random.default_rng(5)
    for size in (1, 2, 7, 12):
        values, p = np.sort(rng.normal(size=size)), rng.dirichlet(np.ones(size))
        law = ValueLaw(values, p)
        ends = [(a, b) for a in values for b in values if law.probability(a, b) >= level]
        low, high = law.interval(level, "shortest")
        assert (low, high) in ends and high - low == min(b - a for a, b in ends)
    even = CountLaw(3, np.exp(-((np.arange(8) - 3.5) ** 2) / 4))
    assert even.interval(0.9, "shortest") == (4, 8)  # of two mirrored ones the lower


@pytest.mark.parametrize(
    "asked",
    [
        lambda c: c.probability(np.greater, "c0", "c0"),
        lambda c: c.law(np.subtract, "c1", "c1"),
        lambda c: c.sum(["c0", "c1", "c0"]),
        lambda c: c["c9"],
        lambda c: c["c0"].interval(1.5),
        lambda c: c["c0"].interval(kind="widest"),
        lambda c: c.difference(["c0", "c1"], "c1"),
        lambda c: c.law(np.divide, "c0", "c1").mean(),
        lambda c: c.rank("c0", ties="average"),
        lambda c: c.rank("c0", among=["c7"]),
        lambda c: c["c0"].quantile(np.nan),
    ],
)
def test_questions_that_make_no_sense(asked):
    with pytest.raises(ValueError):
        asked(noisy_counts(plain([3.0, 4.0])))


def test_a_prior_that_is_no_law_on_whole_numbers():
    for prior in (stats.norm(3), 5, [stats.poisson(3), None, None]):
        with pytest.raises(ValueError, match="prior"):
            noisy_counts(plain([3.0, 4.0]), prior=prior)


def test_releases_joined_twice():
    hidden = plain([np.nan, 5.0], Published(DiscreteLaplace(1.0), suppress_below=-3))
    one, other = plain([7.0], DiscreteGaussian(2.0)), plain([9.0], DiscreteLaplace(3.0))
    twice = join(join(hidden, one), other)
    flat = Independent((hidden.mechanism, one.mechanism, other.mechanism), (2, 1, 1))
    seen = Release(twice.s_dp, twice.query, flat)
    for name in ("c0", "c1", "c2", "c3"):
        laws = [noisy_counts(r, least=-30)[name] for r in (twice, seen)]
        assert laws[0].first == laws[1].first and np.allclose(laws[0].p, laws[1].p)
    s = np.array([-5.0, 5.0, 7.0, 9.0])
    as_numbers = coded(twice)
    assert as_numbers.s_dp[0] < -3
    found = as_numbers.mechanism.log_prob(as_numbers.s_dp, s)
    assert found == pytest.approx(twice.mechanism.log_prob(twice.s_dp, s))


def test_printed_are_the_first_cells_and_how_many_more():
    found = noisy_counts(plain(np.arange(23.0)))
    lines = repr(found).split("\n")
    assert lines[0] == "TrueCounts of 23, exact" and lines[-1] == "… 3 more"
    assert lines[-2].split()[0] == "c19" and len(lines) == 2 + 20 + 1
    assert found.summary().equals(found.to_frame()) and len(found.summary()) == 23


@pytest.mark.parametrize("ranges", [((0, 30),), ((5, 1),), ((1, np.nan),), ((1, 30), (-1, 5))])
def test_a_pooled_prior_has_ranges_above_0(ranges):
    with pytest.raises(ValueError, match="of Pooled must be .least, largest., both above 0"):
        Pooled(*ranges)


# ---- what the query states: its step


def listed(y, step, noise, most=4000, prior=None, least=0):
    "Possible numbers (k,) and their probabilities, by the plain list."
    lowest = int(np.ceil(least / step - 1e-9))
    x = np.arange(lowest, int(most / step + 1e-9) + 1) * step
    log_p = noise.log_prob(np.array([y]), x[:, None])
    log_p = log_p + (0.0 if prior is None else prior.logpmf(np.round(x, 9)))
    p = np.exp(log_p - log_p.max())
    return x, p / p.sum()


def stepped(values, step, noise):
    return Release(values, Query(identity, 1, step=step, dim=len(values)), noise)


STEPPED = [
    (250.0, 100, Laplace(20.0), {}),
    (30.0, 100, Laplace(20.0), {}),
    (1.6, 0.5, Laplace(0.3), {}),
    (-5.0, 8, Laplace(8 / 0.3), {}),
    (112.0, 8, Gaussian(20.0), {}),
    (16.0, 8, DiscreteLaplace(3.0), {}),
    (10.0, 8, DiscreteLaplace(9.0, 5.0), {}),
    (0.3, 0.1, DiscreteGaussian(0.2, 0.1), {}),
    (3.0, 10, BinomialResponse(12, 2.0, 60), dict(most=60)),
    (16.0, 8, Published(Laplace(10.0), clamp=(0, None), round_to=8), {}),
    (np.nan, 8, Published(DiscreteLaplace(9.0), suppress_below=20), {}),
    (2.5, 2.5, Laplace(4.0), dict(least=-20, most=30)),
    (0.004, 0.001, Laplace(0.01), dict(most=5)),
    (300.0, 100, Laplace(0.5), {}),
    (37.0, 8, Laplace(25.0), dict(prior=stats.poisson(40))),
    (7.5, 0.5, Laplace(2.0), dict(prior=stats.poisson(4))),
    (20.0, 7, Laplace(20.0), dict(least=3, most=40)),
]


@pytest.mark.parametrize("y, step, noise, how", STEPPED, ids=told)
def test_only_multiples_of_the_querys_step_are_possible(y, step, noise, how):
    x, p = listed(y, step, noise, **how)
    law = noisy_counts(stepped([y], step, noise), **how)["c0"]
    assert law.mean() == pytest.approx(p @ x, rel=1e-9, abs=1e-9)
    assert law.std() == pytest.approx(np.sqrt(p @ (x - p @ x) ** 2), rel=1e-7, abs=1e-12)
    assert np.allclose(law.at(x), p, atol=1e-12)
    assert np.allclose(np.asarray(law.interval()) / step % 1 % 0.999999999, 0, atol=1e-6)
    assert not law.at(np.array([x[0] + step / 2]))[0] > 0
    assert law.probability(x[1], x[3]) == pytest.approx(p[1:4].sum(), abs=1e-12)


@pytest.mark.parametrize("step", [8, 0.5, 100, 0.1])
@pytest.mark.parametrize("totals", [{}, {"all": 5}, {("a", "c"): 3}])
def test_sums_totals_places_and_draws_in_steps_are_those_in_whole_numbers_times_the_step(
    step, totals
):
    "Laplace noise does not know its unit: everything scales."
    values, names = np.array([2.3, 1.0, 3.8]), ("a", "b", "c")
    plainly = dict(names=names, totals=totals, most=30)
    known = {name: step * total for name, total in totals.items()}
    scaled = dict(names=names, totals=known, most=30 * step)
    one = noisy_counts(stepped(values, 1, Laplace(1.5)), **plainly)
    other = noisy_counts(stepped(values * step, step, Laplace(1.5 * step)), **scaled)
    for cells in ("a", ["a", "b"], ["b", "c"], ["a", "b", "c"]):
        assert np.allclose(other.sum(cells).values, one.sum(cells).values * step, rtol=1e-12)
        assert np.allclose(other.sum(cells).p, one.sum(cells).p, atol=1e-12)
    gap, wider = one.difference("a", ["b", "c"]), other.difference("a", ["b", "c"])
    assert np.allclose(wider.values, gap.values * step) and np.allclose(wider.p, gap.p)
    assert np.allclose(one.rank("b").p, other.rank("b").p)
    ratios = [c.law(lambda a, b: a / (b + h), "a", "b") for c, h in ((one, 1), (other, step))]
    assert ratios[0].mean() == pytest.approx(ratios[1].mean())
    assert other.probability(np.greater, "a", "b") == pytest.approx(
        one.probability(np.greater, "a", "b")
    )
    draws = [c.sample(200, np.random.default_rng(3)).theta for c in (one, other)]
    assert np.allclose(draws[1], draws[0] * step, rtol=1e-12)
    assert other.to_frame().loc["a", "mean"] == pytest.approx(step * one["a"].mean())


def test_joined_queries_keep_their_own_steps():
    parts = [stepped([250.0, 30.0], 100, Laplace(20.0)), stepped([7.0], 0.5, Laplace(1.0))]
    parts.append(stepped([3.0], 1, DiscreteLaplace(2.0)))
    found = noisy_counts(join(*parts))
    for name, (y, step, noise) in zip(
        found.names,
        [(250.0, 100, Laplace(20.0)), (30.0, 100, Laplace(20.0)), (7.0, 0.5, Laplace(1.0))],
    ):
        x, p = listed(y, step, noise, most=2000)
        assert np.allclose(found[name].at(x), p, atol=1e-12)
    both = found.sum(["c1", "c2"])
    assert both.mean() == pytest.approx(found["c1"].mean() + found["c2"].mean())
    tied = noisy_counts(join(*parts), totals={("c1", "c2"): 107.5})
    x, p = listed(30.0, 100, Laplace(20.0), most=2000)
    q = np.exp(-np.abs(7.0 - (107.5 - x))) * (x <= 107.5) * p
    assert np.allclose(tied["c1"].at(x), q / q.sum(), atol=1e-12)
    larger = found.rank("c1", among=["c0"]).p
    assert larger[-1] == pytest.approx(found.probability(np.less, "c1", "c0"))


@pytest.mark.parametrize(
    "how, says",
    [
        (dict(totals={"all": 350}), "multiple of 100"),
        (dict(totals={"all": "many"}), "must be a number"),
        (dict(least=10, most=90), "no multiple of 100"),
        (dict(least=500, most=400), "most one above it"),
        (dict(values=[1e20, 0.0]), "more digits"),
        (dict(scale=0.5), "multiples of 100, which the query states"),
    ],
)
def test_what_the_step_makes_impossible_is_refused(how, says):
    values, scale = how.pop("values", [250.0, 30.0]), how.pop("scale", 20.0)
    with pytest.raises(ValueError, match=says):
        noisy_counts(stepped(values, 100, Laplace(scale)), **how)


def test_bounds_between_multiples_go_inwards():
    values = [250.0, 30.0]
    one = noisy_counts(stepped(values, 100, Laplace(20.0)), at_most={"all": 350}, most=280)
    other = noisy_counts(stepped(values, 100, Laplace(20.0)), at_most={"all": 300}, most=200)
    assert np.allclose(one["c0"].p, other["c0"].p) and one["c0"].values[-1] == 200


# ---- far out: laws on coarse grids


def laplace_from_0(y, b):
    "Mean, median and 95 % of a count, flat on x >= 0, under Laplace noise: the continuous limit."
    below = math.exp(-y / b)

    def quantile(q):
        inside = q * (2 - below)
        if inside < 1 - below:
            return y + b * math.log(inside + below)
        return y - b * math.log((1 - q) * (2 - below))

    mean = (2 * y + b * below) / (2 - below)
    return mean, *(quantile(q) for q in (0.5, 0.025, 0.975))


@pytest.mark.thorough
@pytest.mark.parametrize("noise", [Laplace, DiscreteLaplace])
@pytest.mark.parametrize("b", [1e5, 1e6, 1e9, 1e12])
@pytest.mark.parametrize("share", [0.0, 0.5, 3.0, 100.0])
def test_a_count_far_out_is_the_closed_form(noise, b, share):
    "To a hundred-thousandth of the scale; the mean of whole numbers lies half a count below."
    law = noisy_counts(plain([share * b], noise(b)))["c0"]
    found = law.mean(), law.quantile(0.5), *law.interval()
    assert np.allclose(found, laplace_from_0(share * b, b), rtol=0, atol=1e-5 * b + 1)
    assert len(law.p) <= 2**14 and law.grain == 1


def test_the_case_of_a_thousand_million():
    law = noisy_counts(plain([5e8], Laplace(1e9)))["c0"]
    assert law.mean() == pytest.approx(1.1529e9, rel=1e-5)
    assert law.interval() == pytest.approx((5.585e7, 3.857e9), rel=1e-4)
    assert noisy_counts(plain([5e8], Laplace(1e9)), most=2**40)["c0"].mean() == pytest.approx(
        law.mean(), rel=1e-6
    )
    assert "on a coarse grid" in repr(noisy_counts(plain([5e8], Laplace(1e9))))


@pytest.mark.parametrize("value", [0.0, 7.0, 123456.0, 1e15])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3, 1e4, 1e6, 1e12])
def test_any_scale_and_any_count(value, scale):
    law = noisy_counts(plain([value], Laplace(scale)))["c0"]
    if scale < 1e4:
        k = np.arange(max(-value, -60 * scale - 2) // 1, 60 * scale + 2)
        p = np.exp(-np.abs(k) / scale)
        off = p @ k / p.sum()
    else:
        off = laplace_from_0(value, scale)[0] - value
    assert law.mean() - value == pytest.approx(off, abs=1e-6 * scale + 0.6 * (scale > 1e3))


WIDE = [
    Laplace(5e4),
    DiscreteLaplace(5e4),
    Gaussian(1e5),
    DiscreteGaussian(1e5),
    Staircase(0.5, 40_000, 9_000),
    Staircase(3.0, 200_000, 1),
    DiscreteLaplace(4e4, 1e4),
    BinomialResponse(30, 2.0, 2_000_000),
    Published(Laplace(5e4), clamp=(0, None), round_to=1e5),
    Published(DiscreteLaplace(5e4), suppress_below=2e5),
]


@pytest.mark.thorough
@pytest.mark.parametrize("noise", WIDE, ids=told)
@pytest.mark.parametrize("least", [0, 90_001])
def test_a_coarse_grid_says_what_the_list_says(noise, least):
    "A list of two million numbers; an error of a hundred-thousandth of the sd is allowed."
    y = 3.0 if isinstance(noise, BinomialResponse) else 1e5
    y = np.nan if getattr(noise, "suppress_below", None) else y
    k = np.arange(least, 2_000_001)
    log_p = noise.log_prob(np.array([y]), k[:, None].astype(float))
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean = p @ k
    sd, until = np.sqrt(p @ (k - mean) ** 2), np.cumsum(p)
    (law,) = likelihoods(plain([y], noise), least, 2_000_000, longest=2**12)
    assert law.grain == 1 and law.mean() == pytest.approx(mean, abs=1e-5 * sd)
    assert law.std() == pytest.approx(sd, rel=1e-5)
    for q in (0.025, 0.5, 0.975):
        assert law.quantile(q) == pytest.approx(k[np.searchsorted(until, q)], abs=1e-5 * sd + 1)
    inside = p[(k >= 120_000) & (k <= 300_000)].sum()
    assert law.probability(120_000, 300_000) == pytest.approx(inside, abs=1e-4)


def far(values=(5e8, 2e9, 1e9), b=1e9, **how):
    return noisy_counts(plain(list(values), Laplace(b)), **how)


def on_a_fine_grid(values=(5e8, 2e9, 1e9), b=1e9, step=0.02, widest=40.0):
    "The same counts in steps of b / 50, where everything is a plain sum; a second route."
    values = [round(v / b / step) * step for v in values]
    return noisy_counts(stepped(values, step, Laplace(1.0)), most=widest)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "asked",
    [
        lambda c, u: c["c0"].mean() / u,
        lambda c, u: c["c1"].std() / u,
        lambda c, u: c.sum(["c0", "c1"]).mean() / u,
        lambda c, u: c.sum(["c0", "c1", "c2"]).quantile(0.9) / u,
        lambda c, u: c.difference("c0", "c1").mean() / u,
        lambda c, u: c.difference(["c0", "c1"], "c2").quantile(0.3) / u,
        lambda c, u: c.difference("c0", "c1").probability(most=-u),
        lambda c, u: c.probability(lambda a, b: a > b + u, "c0", "c1"),
        lambda c, u: c.law(lambda a, b: a / (a + b + u), "c0", "c1").mean(),
        lambda c, u: c.law(lambda a, b: a / (a + b + u), "c0", "c1").interval()[1],
        lambda c, u: c.rank("c0").mean() + c.rank("c0", ties="worst").mean(),
        lambda c, u: c.rank("c1", among=["c2"]).p[0] + c.rank("c1", ["c2"], "worst").p[0],
    ],
)
def test_sums_differences_and_places_far_out(asked):
    "The fine grid is to the hundredth of b, whose half counts twice at 0."
    assert asked(far(), 1e9) == pytest.approx(asked(on_a_fine_grid(), 1.0), abs=0.025)


@pytest.mark.thorough
def test_totals_far_out_against_quadrature():
    g = (np.arange(3000) + 0.5) / 600
    one, other = g[:, None], g[None]
    left = 5.0 - one - other
    w = np.exp(-np.abs(one - 0.5) - np.abs(other - 2) - np.abs(left - 1)) * (left > 0)
    w /= w.sum()
    found = far(totals={"all": 5 * 10**9})
    assert found["c0"].mean() == pytest.approx(1e9 * (w * one).sum(), rel=1e-3)
    assert found["c1"].mean() == pytest.approx(1e9 * (w * other).sum(), rel=1e-3)
    assert found.sum(["c0", "c1"]).mean() == pytest.approx(
        1e9 * (w * (one + other)).sum(), rel=1e-3
    )
    more = w[np.broadcast_to(one > other, w.shape)].sum()
    assert found.difference("c0", "c1").probability(least=1) == pytest.approx(more, abs=1e-3)
    assert found.probability(np.greater, "c0", "c1") == pytest.approx(more, abs=2e-3)
    draws = found.sample(2000, np.random.default_rng(1))
    assert (draws.theta.sum(1) == 5e9).all() and (draws.theta >= 0).all()
    mean, sd = found["c0"].mean(), found["c0"].std()
    assert abs(draws.theta[:, 0].mean() - mean) < 5 * sd / np.sqrt(2000)  # one in two million
    assert found.sum(["c0", "c1", "c2"]).interval() == (5 * 10**9, 5 * 10**9)


def test_two_cells_with_a_total_far_out():
    found = far(totals={("c1", "c2"): 10**9})
    assert found["c1"].mean() == pytest.approx(5e8, rel=1e-3)  # flat between 0 and the total
    assert found["c1"].std() == pytest.approx(1e9 / 12**0.5, rel=1e-3)
    assert found.difference("c1", "c2").probability(least=5e8) == pytest.approx(0.25, abs=1e-3)
    assert found.probability(lambda a, b: a > 3 * b, "c1", "c2") == pytest.approx(0.25, abs=2e-3)


def test_a_bound_far_out():
    x = np.random.default_rng(3).random((3, 400_000)) * 2
    w = np.exp(-np.abs(x - np.array([[0.5], [2], [1]])).sum(0)) * (x.sum(0) <= 2)
    found = far(at_most={"all": 2 * 10**9})
    for name, own in zip(("c0", "c1", "c2"), x):
        assert found[name].mean() == pytest.approx(1e9 * (w @ own) / w.sum(), rel=0.01)
    draws = found.sample(300, np.random.default_rng(1)).theta
    assert (draws.sum(1) <= 2e9 * (1 + 1e-9)).all()


def test_sharp_counts_beside_wide_ones():
    noise, two = Independent((Laplace(1e9), Laplace(2.0))), Query(identity, 1, step=1, dim=2)
    seen = Release([5e8, 40.0], two, noise)
    found = noisy_counts(seen)
    alone = noisy_counts(plain([40.0], Laplace(2.0)))["c0"]
    assert np.allclose(found["c1"].p, alone.p)
    assert found.sum(["c0", "c1"]).mean() == pytest.approx(found["c0"].mean() + 40, rel=1e-9)
    density = math.exp(-0.5) / (2 - math.exp(-0.5)) / 1e9
    assert found.difference("c0", "c1").probability(most=-1) == pytest.approx(
        40 * density, rel=0.02
    )
    assert found.rank("c1").p[0] == pytest.approx(40 * density, rel=0.05)
    tied = noisy_counts(seen, totals={"all": 10**9})
    assert tied["c0"].mean() == pytest.approx(1e9 - 40, abs=1e-3)
    assert tied["c0"].std() == pytest.approx(alone.std(), rel=1e-6)


@pytest.mark.parametrize(
    "prior",
    [
        stats.poisson(1000),
        stats.poisson(1e9),
        stats.binom(10**6, 0.3),
        stats.randint(100, 10**5),
        stats.nbinom(2, 2 / (2 + 1e3)),
    ],
    ids=lambda law: law.dist.name,
)
def test_a_prior_that_is_narrow_beside_the_noise_is_the_posterior(prior):
    found = noisy_counts(plain([5e8], Laplace(1e9)), prior=prior)["c0"]
    tilt = prior.var() / 1e9  # by the noise's slope
    assert found.mean() == pytest.approx(prior.mean() + tilt, abs=2e-3 * prior.std() + tilt)
    assert found.std() == pytest.approx(prior.std(), rel=1e-3)


@pytest.mark.parametrize("shape", [0.5, 1.0, 3.0])
def test_a_prior_as_wide_as_the_noise(shape):
    "Beside a gamma law, by quadrature on a scale on which its peak at 0 is flat."
    found = noisy_counts(
        plain([5e8], Laplace(1e9)), prior=stats.nbinom(shape, shape / (shape + 1e9))
    )
    t = (np.arange(400_000) + 0.5) / 400_000 * 60.0 ** (shape / 4)
    x = t ** (4 / shape)
    w = np.exp(-shape * x - np.abs(x - 0.5)) * x ** (shape - 1) * x / t
    mean = (w @ x) / w.sum()
    assert found["c0"].mean() == pytest.approx(1e9 * mean, rel=1e-4)
    assert found["c0"].std() == pytest.approx(
        1e9 * np.sqrt((w @ (x - mean) ** 2) / w.sum()), rel=1e-4
    )


def test_wide_noise_in_steps():
    law = noisy_counts(stepped([5e8], 1000, Laplace(1e9)))["c0"]
    assert law.mean() == pytest.approx(1.1529e9, rel=1e-5) and law.quantile(0.3) % 1000 == 0
    fine = noisy_counts(stepped([0.5], 1e-6, Laplace(1.0)))["c0"]
    assert np.allclose(
        [fine.mean(), *fine.interval()], np.delete(laplace_from_0(0.5, 1.0), 1), atol=2e-6
    )


@pytest.mark.parametrize(
    "ask, says",
    [
        (lambda: far(prior=Pooled((1, 1e9), points=(2, 2))), "too many for a pooled prior"),
        (lambda: far(totals={("c0", "c1"): 5, ("c0", "c2"): 5}), "coarser step"),
        (lambda: far(totals={"all": 10**9}).rank("c0"), "sample"),
        (lambda: far(totals={"all": 10**13}), "within reach"),
        (lambda: far(prior=stats.poisson(1e12)), "within reach"),
        (lambda: far(most=10), "farther from the counts"),
    ],
)
def test_what_is_refused_far_out_says_what_to_do(ask, says):
    if says == "farther from the counts":
        assert ask()["c0"].mean() == pytest.approx(5, abs=1e-6)  # flat on 0 to 10
        return
    with pytest.raises(ValueError, match=says):
        ask()


def test_a_count_that_nothing_bounds_is_found_once_its_largest_is_stated():
    seen = plain([100.0], Published(DiscreteLaplace(1.0), clamp=(None, 100)))
    law = noisy_counts(seen, most=10**12)["c0"]
    assert law.mean() == pytest.approx(5e11, rel=1e-6) and law.interval()[1] > 9e11


@pytest.mark.parametrize("step", [100, 8, 1.5, 2])
def test_a_poisson_count_is_no_multiple_of_a_wider_step(step):
    with pytest.raises(ValueError, match=f"multiples of {step}"):
        exact_posterior(2.0, 1.0, stepped([3.0], step, Laplace(2.0)))
    half = exact_posterior(2.0, 1.0, stepped([3.0], 0.5, Laplace(2.0)))
    assert half.mean == exact_posterior(2.0, 1.0, stepped([3.0], 1, Laplace(2.0))).mean
