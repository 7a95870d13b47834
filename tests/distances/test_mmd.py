"""Distances on data sets that no example would think of: the sensitivity holds as computed, the
error is never exceeded,
order does not matter, nothing speaks of a record, batches and executors change nothing."""

import itertools
import warnings
from concurrent.futures import ThreadPoolExecutor

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dpsbi.distances import (
    MMD,
    Energy,
    FourierFeatures,
    Gaussian,
    Kernel,
    Laplace,
    Matern,
    StatedDistance,
    clipped_mean_distance,
    mmd_distance,
    summary_distance,
)
from dpsbi.distances import kernels as kernels
from dpsbi.distances.kernels import _total
from dpsbi.distances.mmd import ESTIMATORS, median_heuristic
from dpsbi.privacy import Query

KERNELS = [
    Gaussian(0.3),
    Gaussian(2.0),
    Gaussian(0.01),
    Laplace(0.5),
    Matern(1.0, 1.5),
    Matern(0.2, 2.5),
    Energy(),
]
ROUNDING = 1e-12  # what the module states for its exact routes, in units of the distance

values = st.floats(-1e6, 1e6, allow_nan=False)
records = hnp.arrays(
    float, 5, elements=st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1), values)
)
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=repr)


@every_kernel
@pytest.mark.parametrize("estimator", ESTIMATORS)
@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    x=records,
    moved=values,
    y=hnp.arrays(float, (2, 4), elements=st.one_of(st.sampled_from([0.0, 1.0]), values)),
)
def test_one_record_moves_it_by_at_most_the_sensitivity(kernel, estimator, x, moved, y):
    distance = mmd_distance(kernel, 5, (0, 1), estimator=estimator)
    neighbour = np.r_[moved, x[1:]]
    assert (
        np.abs(distance.between(x, y) - distance.between(neighbour, y)).max()
        <= distance.computed_sensitivity
    )


@pytest.mark.thorough
@every_kernel
@settings(max_examples=25, deadline=None, derandomize=True)
@given(x=records, y=records)
def test_it_is_a_distance(kernel, x, y):
    distance = mmd_distance(kernel, 5, (0, 1))
    there, back = distance.between(x, y[None])[0], distance.between(y, x[None])[0]
    assert abs(there - back) <= ROUNDING and there >= 0
    assert distance.between(x, x[None, ::-1])[0] <= ROUNDING
    assert abs(distance.between(x[::-1], y[None, ::-1])[0] - there) <= ROUNDING


@pytest.mark.thorough
@every_kernel
def test_chunks_executors_and_bad_rows_change_nothing(kernel, monkeypatch):
    rng = np.random.default_rng(0)
    x, y = rng.random(300), rng.random((200, 250))
    monkeypatch.setattr(MMD, "chunk", 16 * 250)  # sixteen data sets a chunk
    distance = mmd_distance(kernel, 300, (0, 1))
    once = distance.between(x, y)
    with ThreadPoolExecutor(3) as pool:
        assert np.array_equal(once, distance.between(x, y, executor=pool))
    y[17, 3] = np.nan
    again = distance.between(x, y)
    assert again[17] == np.inf and np.array_equal(np.delete(once, 17), np.delete(again, 17))


def test_an_empty_batch_has_no_distances():
    assert mmd_distance(Gaussian(1.0), 3).between(np.zeros(3), np.zeros((0, 3))).shape == (0,)


@given(d=hnp.arrays(float, (1, 4), elements=st.floats()), new=st.floats())
@settings(max_examples=100, deadline=None, derandomize=True)
def test_the_clipped_mean_is_bounded_whatever_its_function_returns(d, new):
    distance = clipped_mean_distance(
        lambda x, y: d if x[0] == 0 else np.r_[new, d[0, 1:]][None], clip=3.0, n=4
    )
    a, b = (
        distance.between(x, np.zeros((1, 4)))[0] for x in (np.zeros(4), np.r_[1.0, np.zeros(3)])
    )
    assert 0 <= a <= 3 and abs(a - b) <= distance.computed_sensitivity


@pytest.mark.parametrize("width", [0, 4])
def test_statistics_of_another_width_are_refused_instead_of_broadcast(width):
    """Broadcast over four values, one record would move an l2 distance by twice the stated
    sensitivity; over none, by nothing, and all be accepted.
    """
    distance = summary_distance(lambda x: x.reshape(len(x), -1), 1.0)
    assert distance.between(np.array([1.0]), np.array([[3.0]])) == 2
    with pytest.raises(ValueError, match="same statistics"):
        distance.between(np.array([1.0]), np.zeros((5, width)))


# ---- the error of a distance


def box(d, origin=0.0):
    return ([origin] * d, [origin + 1.0] * d) if d > 1 else (origin, origin + 1.0)


def exactly(kernel, u, v):
    "k(0) - k(u, v) of two records, in high precision."
    difference = [mpmath.mpf(a) - mpmath.mpf(b) for a, b in zip(u.tolist(), v.tolist())]
    r = mpmath.sqrt(mpmath.fsum(t * t for t in difference))
    if isinstance(kernel, FourierFeatures):
        waves = [mpmath.cos(mpmath.fdot(w, difference)) for w in kernel.frequencies]
        return 1 - mpmath.fsum(waves) / len(waves)
    if isinstance(kernel, Energy):
        return r
    if isinstance(kernel, Gaussian):
        return -mpmath.expm1(-((r / mpmath.mpf(kernel.bandwidth)) ** 2) / 2)
    s = mpmath.sqrt(2 * kernel.nu) * r / mpmath.mpf(kernel.bandwidth)
    return 1 - {0.5: 1, 1.5: 1 + s, 2.5: 1 + s + s * s / 3}[kernel.nu] * mpmath.exp(-s)


ERROR_KERNELS = [*KERNELS, Gaussian(100.0), Matern(50.0, 2.5)]


@pytest.mark.thorough
@pytest.mark.parametrize("features", [None, 30], ids=["kernel", "random features"])
@pytest.mark.parametrize("origin", [0.0, 1e6])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_error_is_not_exceeded_by_one_moved_record(d, origin, features):
    """y is x in another order, with one record moved from u to v: then ρ = √(2 k(0) - 2 k(u, v)) /
    N, whatever N.

    Moves from 1e-12 to 1: near zero the square root makes most of an error.
    """
    rng = np.random.default_rng([d, int(origin)])
    for kernel, n in itertools.product(
        ERROR_KERNELS, (1, 50) if features else (1, 2, 50, 400, 2000)[: 5 if d == 1 else 4]
    ):
        large = n > (400 if d == 1 else 50)
        if features and isinstance(kernel, Energy) or large and kernel not in KERNELS[:3]:
            continue
        x = origin + rng.random((n, d))
        y = np.repeat(rng.permutation(x)[None], 6, axis=0)
        y[:, 0] = np.clip(
            y[:, 0] + np.array([0, 1e-12, 1e-9, 1e-6, 1e-3, 0.3])[:, None], origin, origin + 1
        )
        u = y[0, 0].copy()  # where the moved record was: move 0 is 0
        for estimator in ("v", "v2"):
            distance = mmd_distance(
                kernel, n, box(d, origin), estimator=estimator, features=features, rng=rng
            )
            with mpmath.workdps(50):
                drops = [exactly(distance.kernel, u, one[0]) for one in y]
                truth = [
                    mpmath.sqrt(2 * drop) / n if estimator == "v" else 2 * drop / n**2
                    for drop in drops
                ]
                found = distance.between(
                    x.squeeze(1) if d == 1 else x, y.squeeze(2) if d == 1 else y
                )
                errors = [abs(mpmath.mpf(float(a)) - b) for a, b in zip(found, truth)]
            assert max(errors) <= distance.error, (kernel, n, estimator)


def long_means(kernel, a, b):
    "Mean of k(0) - k over the rows of a and b in extended precision."
    a, b = a.astype(np.longdouble), b.astype(np.longdouble)
    r2 = ((a[:, None] - b[None]) ** 2).sum(axis=-1)
    if isinstance(kernel, Energy):
        return np.sqrt(r2).mean()
    if isinstance(kernel, Gaussian):
        return -np.expm1(-r2 / 2 / np.longdouble(kernel.bandwidth) ** 2).mean()
    s = np.sqrt(np.longdouble(2 * kernel.nu) * r2) / np.longdouble(kernel.bandwidth)
    return (1 - {0.5: 1, 1.5: 1 + s, 2.5: 1 + s + s * s / 3}[kernel.nu] * np.exp(-s)).mean()


@pytest.mark.thorough
@pytest.mark.skipif(
    np.finfo(np.longdouble).nmant < 63, reason="long doubles are no longer than doubles here"
)
@pytest.mark.parametrize("d", [1, 2, 3])
@every_kernel
def test_the_error_is_not_exceeded_by_data_sets_that_lie_apart(kernel, d):
    """All estimators, in extended precision, which is exact beside the bounds as long as ρ is far
    from 0.
    """
    rng = np.random.default_rng(d)
    for (n, m), origin in itertools.product(((2, 3), (150, 200)), (0.0, 1e6)):
        x, y = origin + rng.random((n, d)), origin + rng.random((1, m, d)) ** 2
        xx, yy, xy = (
            long_means(kernel, x, x),
            long_means(kernel, y[0], y[0]),
            long_means(kernel, x, y[0]),
        )
        square = 2 * xy - xx - yy
        for estimator, truth in (
            ("v", np.sqrt(square)),
            ("v2", square),
            ("u2", square - xx / (n - 1) - yy / (m - 1)),
        ):
            distance = mmd_distance(
                kernel, n, ([origin] * d, [origin + 1] * d), estimator=estimator
            )
            assert abs(distance.between(x, y)[0] - truth) <= distance.error, (n, estimator)


@pytest.mark.thorough
def test_two_thousand_records_in_another_order_are_the_same_data_set():
    """In three dimensions, where a plain sum of floats moves by dozens of steps of 2^-20 of the
    sensitivity.
    """
    rng = np.random.default_rng(0)
    x = rng.random((2000, 3))
    orders = np.array([x, x[::-1], rng.permutation(x)])
    for kernel in (Gaussian(0.5), Energy()):
        distance = mmd_distance(kernel, 2000, ([0] * 3, [1] * 3))
        assert not distance.between(x, orders).any()
        other = rng.random((1, 2000, 3))
        assert (
            distance.between(x, other)
            == distance.between(orders[2], other)
            == distance.between(x, other[:, ::-1])
        )


class Above(Kernel):
    "A kernel that its rounding lifts above its peak."

    def __call__(self, r2):
        return np.exp(-r2 / 2) * (1 + 2.0**-52)


def test_a_kernel_rounded_above_its_peak_counts_as_a_little_less_than_nothing():
    """At a small scale that is many steps below 0 (where they are twice as wide); read as unsigned,
    it would be 2^64.
    """
    assert _total(Above(), 2.0**-30, np.zeros((1, 2)), np.zeros((1, 2))) == -(2**26)
    assert _total(Above(), 2.0**-30, np.zeros((3, 2))) == -9 * 2**26


# ---- every distance of the module


def mean_of(x):
    return np.clip(x, 0, 1).mean(axis=1, keepdims=True)


def gap(x, y):
    return np.abs(np.clip(x, 0, 1).mean() - np.clip(y, 0, 1).mean(axis=1))


def sums_gap(x, y):
    return np.abs(np.clip(x, 0, 1).sum() - np.clip(y, 0, 1).sum(axis=1))


def far_from_all(x, y):
    return np.abs(x - np.median(y, axis=1)[:, None]) / np.where(x > 0.5, x, 1)


def on_a_line(n, neighbours):
    "Every kind of distance between data sets of numbers, each record one number."
    draws = np.random.default_rng(3)
    for kernel, bounds in itertools.product(KERNELS, ((0.0, 1.0), None)):
        if isinstance(kernel, Energy) and (bounds is None or neighbours == "add-remove"):
            continue
        yield f"{kernel} {bounds}", mmd_distance(kernel, n, bounds, neighbours=neighbours)
        if neighbours == "replace" and n > 1:
            yield f"{kernel} {bounds} v2", mmd_distance(kernel, n, bounds, estimator="v2")
            yield f"{kernel} {bounds} u2", mmd_distance(kernel, n, bounds, estimator="u2")
    yield (
        "random features",
        mmd_distance(Gaussian(0.3), n, neighbours=neighbours, features=20, rng=draws),
    )
    yield (
        "bounded features",
        mmd_distance(Gaussian(0.3), n, (0, 1), neighbours=neighbours, features=20, rng=draws),
    )
    yield "clipped mean", clipped_mean_distance(far_from_all, 0.3, n, neighbours=neighbours)
    if neighbours == "replace":
        yield "summary", summary_distance(Query(mean_of, 1 / n))
        yield "stated", StatedDistance(gap, 1 / n, n)
    else:
        total = Query(
            lambda x: np.clip(x, 0, 1).sum(axis=1, keepdims=True), 1.0, neighbours=neighbours
        )
        yield "summary", summary_distance(total)
        yield "stated", StatedDistance(sums_gap, 1.0, neighbours=neighbours)


def neighbours_of(x, relation, rng):
    """Data sets that differ from x by one record: at a corner, far outside, a hair away, anywhere;
    or one more, one less.
    """
    for v in (0.0, 1.0, -1e9, rng.random(), *(x[:1] + 1e-9)):
        yield np.r_[v, x[1:]] if relation == "replace" and len(x) else np.r_[x, v]
    if relation == "add-remove":
        yield x[1:]


@pytest.mark.parametrize("relation", ["replace", "add-remove"])
def test_neighbours_are_no_farther_apart_than_the_computed_sensitivity(relation):
    "Random data sets, and those where one record moves the distance by all of the sensitivity."
    rng = np.random.default_rng(4)
    attained = set()
    for n in (1, 2, 7, 30):
        for (name, distance), kind in itertools.product(
            on_a_line(n, relation), ("random", "one place", "its own", "crowd")
        ):
            size = n if relation == "replace" else int(rng.integers(0, 3 * n + 1))
            if kind == "crowd":
                if relation == "replace":
                    continue
                size = int(rng.choice([2, 3, 4, 5, 16])) * n  # where the distance stops growing
            x = np.zeros(size) if kind == "one place" else rng.random(size)
            y = np.array(
                [
                    np.resize(x if size else [0.0], max(n, 2)),
                    np.ones(max(n, 2)),
                    rng.random(max(n, 2)),
                ]
            )
            here = distance.between(x, y)
            for other in neighbours_of(x, relation, rng):
                move = np.abs(distance.between(other, y) - here).max()
                assert move <= distance.computed_sensitivity, (name, n, kind)
                if move > distance.sensitivity:
                    attained.add(name)  # so the error is not charged for nothing
    assert attained


# ---- nothing speaks of a record


def said(distance, x, y):
    "The distances; whatever is raised or warned fails the test."
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        return distance.between(x, y)


def broken(n, rng):
    "Records as they may come, and the numbers that they count as."
    x = rng.random(n)
    for bad in (np.nan, np.inf, -np.inf, 1e308, -1e308):
        wrong = np.where(np.arange(n) == 1, bad, x)
        yield wrong, np.where(np.isfinite(wrong), wrong, 0.0)
    yield np.full(n, np.nan), np.zeros(n)
    yield [None, "?", *x[2:].tolist()], np.r_[0.0, 0.0, x[2:]]
    yield np.array(["?"] * n), np.zeros(n)
    yield x.astype(object), x
    yield np.arange(n) % 2, (np.arange(n) % 2).astype(float)
    yield np.arange(n) % 2 == 1, (np.arange(n) % 2).astype(float)
    yield (np.arange(n) % 2).astype(np.float32), (np.arange(n) % 2).astype(float)


@pytest.mark.thorough
@pytest.mark.parametrize("relation", ["replace", "add-remove"])
def test_no_record_makes_a_distance_raise_or_warn_or_change_its_kind(relation):
    rng = np.random.default_rng(5)
    y = rng.random((3, 6))
    for name, distance in on_a_line(6, relation):
        for x, counts_as in broken(6, rng):
            found = said(distance, x, y)
            assert np.isfinite(found).all() and found.shape == (3,) and found.dtype == float, (
                name,
                x,
            )
            assert np.array_equal(found, said(distance, counts_as, y)), (name, x)
        x = rng.random(6)
        moved = np.abs(said(distance, x, y) - said(distance, rng.permutation(x), y)).max()
        assert moved == 0 if name not in ("summary", "stated") else moved <= 2 * distance.error, (
            name
        )


def test_any_number_of_records_has_a_distance_where_that_number_is_confidential():
    rng = np.random.default_rng(6)
    y = rng.random((3, 6))
    for name, distance in on_a_line(6, "add-remove"):
        for size in (0, 1, 2, 5, 6, 7, 100, 10_000):
            assert np.isfinite(said(distance, rng.random(size), y)).all(), (name, size)
    for kernel in (Gaussian(1.0), Laplace(1.0)):
        nothing = mmd_distance(kernel, 6, neighbours="add-remove", dim=2).between(
            np.zeros((0, 2)), np.zeros((1, 4, 2))
        )
        assert nothing == 1.0  # μ_x = 0: the distance is the norm of μ_y


def test_what_is_public_is_refused_without_a_word_about_the_number_of_records():
    distance = mmd_distance(Gaussian(1.0), 6, ([0, 0], [1, 1]), neighbours="add-remove")
    words = set()
    for size in (0, 1, 6, 50):
        with pytest.raises(ValueError) as refusal:
            distance.at(np.zeros((size, 3)))
        words.add(str(refusal.value))
    assert len(words) == 1
    with pytest.raises(ValueError, match="n = 6"):
        mmd_distance(Gaussian(1.0), 6, (0, 1)).at(np.zeros(5))


def shout(x):
    if (x > 0.5).any():
        warnings.warn("a record above one half")
        raise RuntimeError("a record above one half")


class Loud:
    """Functions of a user that fail on some records, each as a distance, with one of the same shape
    that fails on all.
    """

    def clipped(x, y):
        shout(x)
        return np.zeros((len(y), len(x)))

    def stated(x, y):
        shout(x)
        return np.zeros(len(y))

    def nan(x, y):
        return np.full(len(y), np.where((x > 0.5).any(), np.nan, 0.0))

    def summary(x):
        if x.shape[0] == 1:
            shout(x)
        return x.mean(axis=1, keepdims=True)

    def wide(x):
        return np.zeros((len(x), 2 if (x > 0.5).any() else 1))

    def bug(*arguments):
        raise KeyError("a bug")


@pytest.mark.parametrize(
    "distance",
    [
        clipped_mean_distance(Loud.clipped, 1.0, 3),
        StatedDistance(Loud.stated, 1.0),
        StatedDistance(Loud.nan, 1.0),
        summary_distance(Loud.summary, 1.0),
        summary_distance(Loud.wide, 1.0),
    ],
    ids=["clipped", "stated", "nan", "summary", "width"],
)
def test_a_function_that_fails_on_the_records_says_nothing(distance):
    y = np.zeros((2, 3))
    distance.rehearse((3,), y)
    assert np.array_equal(said(distance, np.zeros(3), y), [0, 0])
    assert np.array_equal(said(distance, np.array([0, 0.2, 0.9]), y), [np.inf, np.inf])


@pytest.mark.parametrize("relation", ["replace", "add-remove"])
@pytest.mark.parametrize(
    "make",
    [
        lambda relation: clipped_mean_distance(Loud.bug, 1.0, 3, neighbours=relation),
        lambda relation: clipped_mean_distance(
            lambda x, y: np.zeros(len(y)), 1.0, 3, neighbours=relation
        ),
        lambda relation: StatedDistance(Loud.bug, 1.0, neighbours=relation),
        lambda relation: StatedDistance(lambda x, y: 0.0, 1.0, neighbours=relation),
        lambda relation: summary_distance(Loud.bug, 1.0, neighbours=relation),
    ],
    ids=["clipped", "clipped shape", "stated", "stated shape", "summary"],
)
def test_a_bug_shows_on_stand_ins_whatever_the_records_are(make, relation):
    y = np.zeros((2, 3))
    distance = make(relation)
    with pytest.raises(ValueError):
        distance.rehearse((3,), y)
    for x in (np.zeros(3), np.ones(3)):
        with pytest.raises(ValueError):
            distance.between(x, y)


def test_a_function_that_writes_into_the_records_does_not_change_them(monkeypatch):
    monkeypatch.setattr(StatedDistance, "chunk", 3)  # one data set a chunk

    def fn(x, y):
        x += 1
        return np.full(len(y), x.sum())

    assert np.array_equal(
        StatedDistance(fn, 1.0).between(np.zeros(3), np.zeros((4, 3))), [3, 3, 3, 3]
    )


@pytest.mark.parametrize("size, shown", [("replace", [3]), ("add-remove", [0, 1, 2])])
def test_a_rehearsal_sees_public_stand_ins_and_no_confidential_number(size, shown):
    "Zeros of these sizes, and other numbers for n records, the same however many there are."
    seen = []

    def fn(x, y):
        seen.append(x.copy())
        return np.zeros((len(y), len(x)))

    distance, rounds = clipped_mean_distance(fn, 1.0, 3, neighbours=size), []
    for n in (3, 3) if size == "replace" else (3, 0, 100):
        seen.clear()
        distance.rehearse((n,), np.ones((5, 3)))
        rounds.append([x.tolist() for x in seen])
    assert all(found == rounds[0] for found in rounds)
    assert sorted({len(x) for x in seen if not x.any()}) == shown
    assert {len(x) for x in seen if x.any()} == {3}
    for _, distance in on_a_line(3, size):
        distance.rehearse((3,), np.ones((5, 3)))


def test_a_stated_error_is_the_authors_and_distances_end_where_it_would_no_longer_hold():
    statistic = Query(lambda x: x[:, :1], 2.0)
    assert summary_distance(statistic).error == 2.0**-19
    assert summary_distance(statistic, error=0.25).computed_sensitivity == 2.5
    crowded = clipped_mean_distance(
        lambda x, y: np.full((len(y), len(x)), np.nan), 0.3, 2, neighbours="add-remove"
    )
    assert np.allclose(
        [crowded.between(np.zeros(n), np.zeros((1, 2)))[0] for n in (2, 32, 1000)], [0.3, 4.8, 4.8]
    )
    far = summary_distance(statistic).between(np.zeros(1), np.array([[1e300], [2.0**29], [3.0]]))
    assert far.tolist() == [2.0**29, 2.0**29, 3.0]
    assert StatedDistance(gap, 2.0, error=0.5).computed_sensitivity == 3.0


# ---- their parts
def test_the_median_heuristic_pairs_no_record_with_itself():
    assert median_heuristic([[[0.0], [1.0], [3.0]]], np.random.default_rng(1)) == 2.0


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_a_matern_kernel_by_its_formula(nu):
    kernel, rng = kernels.Matern(1.0, nu), np.random.default_rng(2)
    assert kernel.spread(1.3) == pytest.approx(1 - float(kernel(1.3**2)), rel=1e-12)
    features = np.cos(kernel.draw_frequencies(40_000, 1, rng)[:, 0])  # se below 0.004
    assert features.mean() == pytest.approx(float(kernel(1.0)), abs=0.02)


def test_a_sum_by_blocks_counts_each_pair_twice(monkeypatch):
    monkeypatch.setattr(kernels, "_BLOCK", 16)
    a, kernel = np.random.default_rng(3).normal(size=(9, 2)), kernels.Matern(1.0)
    assert kernels._total(kernel, 1.0, a) == kernels._total(kernel, 1.0, a, a)
