"""True counts behind released ones: every answer against a list of all combinations."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpsbi import Query, Release, noisy_counts
from dpsbi.analyst.count_laws import CountLaw, Group, disjoint
from dpsbi.analyst.noisy_counts import Pooled
from dpsbi.analyst.sorted_laws import ValueLaw
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
)
from dpsbi.mechanisms.joint import coded
from dpsbi.privacy import identity

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
    ids=repr,
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
@pytest.mark.parametrize("prior", [None, stats.poisson(3), Pooled((1, 6), points=(3, 2))], ids=repr)
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
