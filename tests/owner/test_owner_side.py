"""Everything that touches records, on records of every kind: nothing but what was paid for may
differ.

What is public about a call: whether it raised, and what; what it warned of; the type of what it
returned, and everything
in it but the noisy numbers; how often the simulator was called; what the ledger was charged.
"""

import io
import itertools
import secrets
import time
import warnings
from contextlib import redirect_stderr, redirect_stdout

import numpy as np
import pytest
from scipy import stats

import dpsbi
from dpsbi import mmd as mmd
from dpsbi.accounting.costs import Cost
from dpsbi.accounting.ledger import Ledger
from dpsbi.distances import StatedDistance, clipped_mean_distance, mmd_distance, summary_distance
from dpsbi.owner.abcdp import Trials
from dpsbi.owner.selection import NoisySmallest
from dpsbi.owner.svt import Private, SparseVector
from dpsbi.privacy import Query

N = 3
RECORDS = {
    "plain": np.array([1.0, 2.0, 4.0]),
    "shuffled": np.array([4.0, 1.0, 2.0]),
    "ints": np.array([1, 2, 4]),
    "small ints": np.array([1, 2, 4], np.int8),
    "a list": [1, 2, 4],
    "NaN": np.array([1.0, np.nan, 4.0]),
    "infinite": np.array([1.0, np.inf, -np.inf]),
    "objects": np.array([1, None, 4.0], object),
    "strings": ["1", "2", "x"],
    "huge": np.array([1e308, -1e308, 1e308]),
    "bools": [True, False, True],
    "zeros": np.zeros(3),
    "complex": np.array([1j, 2, 3]),
}
OTHER_NUMBERS = {
    "empty": np.zeros(0),
    "one": np.array([1.0]),
    "one NaN": np.array([np.nan]),
    "an empty list": [],
    "many": np.arange(50.0),
}


def watched(call):
    "What a call lets anybody see, but for the numbers that are paid for."
    out = io.StringIO()
    with warnings.catch_warnings(record=True) as caught, redirect_stdout(out), redirect_stderr(out):
        warnings.simplefilter("always")
        try:
            result, raised = call(), None
        except Exception as error:
            result, raised = None, (type(error), str(error))
    return result, (raised, [(w.category, str(w.message)) for w in caught], out.getvalue())


def records_for(neighbours):
    return RECORDS | (OTHER_NUMBERS if neighbours == "add-remove" else {})


# ---- release

QUERIES = {
    "clipped sum": (
        lambda x: np.clip(x, 0, 5).sum(axis=1, keepdims=True),
        dict(sensitivity=5.0, dim=1),
    ),
    "count": (lambda x: (x > 1).sum(axis=1, keepdims=True), dict(sensitivity=1.0, step=1, dim=1)),
    "raises on some": (
        lambda x: [][1] if (x > 3).any() else x[:, :1] * 0 if x.shape[1] else np.zeros((1, 1)),
        dict(sensitivity=1.0, step=1, dim=1),
    ),
    "no number on some": (
        lambda x: np.log(np.clip(x, 0, 5).sum(axis=1, keepdims=True)),
        dict(sensitivity=1.0, dim=1),
    ),
    "another type on some": (
        lambda x: (
            x.sum(axis=1, keepdims=True) if (x > 1).any() else (x > 1).sum(axis=1, keepdims=True)
        ),
        dict(sensitivity=1.0, dim=1),
    ),
    "several on some": (
        lambda x: np.ones((1, 1 + int((x > 3).any()))),
        dict(sensitivity=1.0, dim=1),
    ),
}
SMOOTH = dict(sensitivity=1.0, smoothness=0.01, dim=2)
MECHANISMS = {
    "Laplace": (dpsbi.Laplace(5.0), 0.0),
    "Gaussian": (dpsbi.Gaussian(5.0), 1e-6),
    "DiscreteLaplace": (dpsbi.DiscreteLaplace(5.0), 0.0),
    "BinomialResponse": (dpsbi.BinomialResponse(20, 10.0, 2), 0.0),
    "RandomisedResponse": (dpsbi.RandomisedResponse(0.6, 3), 0.0),
}


def release_of(x, query, mechanism, delta):
    ledger = Ledger(1e6, 0.1)
    before = ledger.history
    released, public = watched(
        lambda: dpsbi.release(x, query, mechanism, ledger, delta=delta or None)
    )
    assert before == ()
    charged = [(e.cost, e.granted, e.label, e.neighbours, e.unit) for e in ledger.history]
    if released is not None:
        about = (
            type(released),
            released.s_dp.shape,
            released.s_dp.dtype,
            released.mechanism,
            released.query,
        )
        assert (
            np.isfinite(released.s_dp).all()
            and released.mechanism.cost(released.query, delta) == charged[0][0]
        )
        public += about
    return public, charged


@pytest.mark.thorough
@pytest.mark.parametrize("neighbours", ["replace", "add-remove"])
@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("kind", MECHANISMS)
def test_a_release_says_the_same_of_all_records(kind, name, neighbours):
    fn, about = QUERIES[name]
    query, (mechanism, delta) = Query(fn, neighbours=neighbours, **about), MECHANISMS[kind]
    seen = {
        label: release_of(x, query, mechanism, delta)
        for label, x in records_for(neighbours).items()
    }
    first = seen["plain"]
    for label, found in seen.items():
        assert found == first, label
    refused_in_public = first[0][0] is not None
    assert refused_in_public == (not first[1]), (
        "a refusal, and nothing spent; or an answer, and paid for"
    )
    assert not refused_in_public or first[0][0][0] in (ValueError, TypeError)
    needs_whole = kind in ("BinomialResponse", "RandomisedResponse") and about.get("step") is None
    assert (
        refused_in_public == needs_whole
        or name in ("no number on some", "several on some", "another type on some")
        or neighbours == "add-remove"
    )


@pytest.mark.parametrize(
    "mechanism",
    [
        dpsbi.SmoothLaplace(200.0),
        dpsbi.SmoothGaussian(500.0),
        dpsbi.SmoothLaplace(200.0, floor=0.5),
    ],
    ids=repr,
)
def test_smooth_noise_says_the_same_of_all_records(mechanism):
    median = lambda x: np.stack(
        [np.clip(np.sort(x, axis=1)[:, 1], 0, 5), np.clip(x.max(axis=1) - x.min(axis=1), 0, 5)],
        axis=1,
    )
    query = Query(median, **SMOOTH)
    seen = {label: release_of(x, query, mechanism, 1e-3) for label, x in RECORDS.items()}
    assert all(found == seen["plain"] for found in seen.values()) and seen["plain"][1]


# ---- distances, and draws


def mean_gap(x, y):
    return np.abs(np.clip(x, 0, 5)[None] - y.mean(axis=1, keepdims=True))


def raises_on_some(x, y):
    if np.size(x) and np.max(x) > 3:
        raise RuntimeError(f"a record is {np.max(x)}")
    return np.zeros(len(y))


STATISTIC = lambda x: np.clip(x, 0, 5).sum(axis=1, keepdims=True) / N
DISTANCES = {
    "MMD, a bounded line": lambda how: mmd_distance(
        mmd.Gaussian(1.0), N, bounds=(0, 5), neighbours=how
    ),
    "MMD, Laplace": lambda how: mmd_distance(mmd.Laplace(1.0), N, neighbours=how),
    "MMD, unbounded": lambda how: mmd_distance(mmd.Gaussian(1.0), N, neighbours=how),
    "MMD, features": lambda how: mmd_distance(
        mmd.Gaussian(1.0), N, neighbours=how, features=8, rng=np.random.default_rng(0)
    ),
    "clipped mean": lambda how: clipped_mean_distance(mean_gap, 5.0, N, neighbours=how),
    "summary": lambda how: summary_distance(STATISTIC, 5.0 / N, neighbours=how),
    "raises on some": lambda how: StatedDistance(
        raises_on_some, 1.0, N if how == "replace" else None, neighbours=how
    ),
}


@pytest.mark.parametrize("neighbours", ["replace", "add-remove"])
@pytest.mark.parametrize("name", DISTANCES)
def test_distances_say_the_same_of_all_records(name, neighbours):
    distance, y = DISTANCES[name](neighbours), np.random.default_rng(1).uniform(0, 5, (4, N))
    for label, x in records_for(neighbours).items():
        d, public = watched(lambda: distance.between(x, y))
        assert public == (None, [], ""), label
        assert d.shape == (4,) and not np.isnan(d).any(), label
    same = [
        distance.between(RECORDS[label], y)
        for label in ("plain", "ints", "small ints", "a list", "shuffled")
    ]
    error = getattr(distance, "error", 0.0)
    for other in same[1:]:
        assert np.array_equal(same[0], other) or np.abs(same[0] - other).max() <= 2 * error


class Simulator:
    def __init__(self):
        self.calls = 0

    def __call__(self, theta, rng):
        self.calls += len(theta)
        return np.clip(rng.normal(theta, 1.0, (len(theta), N)), 0, 5)


def accepts_everything(x, distance, **how):
    """A threshold beyond every distance, or all simulations chosen: the accepts are the same for
    all records.
    """
    simulator, ledger = Simulator(), Ledger(1e4)
    model = dpsbi.Model(dpsbi.Prior(m=stats.uniform(0, 5)), simulator)
    arguments = dict(count=5, epsilon=100.0, rng=np.random.default_rng(3), progress=True) | how
    posterior, public = watched(lambda: dpsbi.abcdp(x, model, distance, ledger=ledger, **arguments))
    about = (
        None if posterior is None else (posterior.theta.tolist(), posterior.info, posterior.names)
    )
    return (
        public,
        simulator.calls,
        about,
        [(e.cost, e.granted, e.neighbours, e.unit) for e in ledger.history],
    )


@pytest.mark.thorough
@pytest.mark.parametrize("neighbours", ["replace", "add-remove"])
@pytest.mark.parametrize(
    "how",
    [
        dict(threshold=1e9, trials=Trials(30)),
        dict(threshold=-1e9, trials=Trials(30)),
        dict(trials=Trials(5, "top")),
    ],
    ids=["accepts all", "accepts none", "top"],
)
@pytest.mark.parametrize("name", [name for name in DISTANCES if name != "raises on some"])
def test_abcdp_says_the_same_of_all_records(name, how, neighbours):
    distance = DISTANCES[name](neighbours)
    seen = {
        label: accepts_everything(x, distance, **how)
        for label, x in records_for(neighbours).items()
    }
    for label, found in seen.items():
        assert found == seen["plain"], label
    assert seen["plain"][3], "it was paid for"


def test_abcdp_and_a_distance_that_fails_on_records():
    distance = DISTANCES["raises on some"]("replace")
    seen = {
        label: accepts_everything(x, distance, threshold=-1e9, trials=Trials(30))
        for label, x in RECORDS.items()
    }
    assert all(found == seen["plain"] for found in seen.values())


@pytest.mark.parametrize("distances", [[np.nan] * 4, [np.inf] * 4, [1e308] * 4, [9.0] * 4], ids=str)
def test_private_choices_of_any_distances_say_the_same(distances):
    plan, top = SparseVector.calibrate(1.0, 1e3, 2), NoisySmallest.calibrate(1.0, 1e3, 4)
    run, public = watched(lambda: plan.run(distances, 0.0, Private()))
    assert public == (None, [], "") and run.accepted.size == 0
    chosen, public = watched(lambda: top.run(distances, Private()))
    assert public == (None, [], "") and np.array_equal(chosen, np.arange(4))


def test_a_broken_call_is_refused_before_it_is_paid():
    "Everything public that can be wrong, on records of every kind: one error, and nothing spent."
    model = dpsbi.Model(dpsbi.Prior(m=stats.uniform(0, 5)), Simulator())
    distance, good = (
        DISTANCES["MMD, a bounded line"],
        Query(STATISTIC, 5.0 / N, neighbours="add-remove"),
    )
    wrong = [
        lambda x, l: dpsbi.abcdp(
            x,
            model,
            distance("add-remove"),
            threshold=np.nan,
            count=1,
            epsilon=1,
            ledger=l,
            rng=np.random.default_rng(0),
        ),
        lambda x, l: dpsbi.abcdp(
            x,
            model,
            distance("add-remove"),
            threshold=1.0,
            count=0,
            epsilon=1,
            ledger=l,
            rng=np.random.default_rng(0),
        ),
        lambda x, l: dpsbi.abcdp(
            x,
            model,
            StatedDistance(lambda x, y: 1 / 0, 1.0, neighbours="add-remove"),
            threshold=1.0,
            count=1,
            epsilon=1,
            ledger=l,
            rng=np.random.default_rng(0),
        ),
        lambda x, l: dpsbi.release(x, good, dpsbi.Laplace, l),
        lambda x, l: dpsbi.release(x, STATISTIC, dpsbi.Laplace(1.0), l),
        lambda x, l: dpsbi.release(x, good, dpsbi.Laplace(1e-9), l),
        lambda x, l: dpsbi.release(x, good, dpsbi.DiscreteLaplace(1.0), l),
        lambda x, l: dpsbi.release(
            x,
            good,
            type("Mine", (dpsbi.Mechanism,), dict(cost=lambda self, q, d=0.0: Cost(1.0)))(),
            l,
        ),
        lambda x, l: dpsbi.release(
            x,
            Query(lambda x: x.max(axis=1)[:, None], 1.0, neighbours="add-remove"),
            dpsbi.Laplace(1.0),
            l,
        ),
    ]
    for k, call in enumerate(wrong):
        seen = set()
        for x in records_for("add-remove").values():
            ledger = Ledger(10.0)
            _, (raised, warned, printed) = watched(lambda: call(x, ledger))
            assert raised is not None and not warned and not printed and not ledger.history, k
            seen.add(raised)
        assert len(seen) == 1, f"{k}: {seen}"


# ---- a query is a function of its data


def of_itself():
    """Programs that answer otherwise the second time, or write into their data, each made afresh:
    such a one remembers.
    """
    rng, count, asked, lines = np.random.default_rng(1), itertools.count(), [], iter([1.0, 2.0])
    total = lambda x: x.sum(axis=1, keepdims=True)
    generator, held, mean = (k * 1.0 for k in range(9)), {}, np.zeros((1, 1))

    def writes(x):
        x *= 2
        return total(x)

    def sorts(x):
        x.sort(axis=1)
        return x[:, :1] if x.shape[1] else np.zeros((1, 1))

    def fills(x):
        x[x == 0] = 1.5
        return total(x)

    def running(x):
        nonlocal mean
        mean = 0.9 * mean + 0.1 * total(x)
        return mean

    def one_buffer(x):  # the same array each time: what it gave before changes as well
        mean[:] += total(x) + 1
        return mean

    def last(x):
        before = held.get("x", np.zeros((1, 1)))
        held["x"] = total(x)
        return before

    def fails_later(x):
        return total(x) if next(count) < 2 else 1 / 0

    return {
        "noise of its own": lambda x: total(x) + rng.normal(),
        "a little noise": lambda x: total(x) + 1e-9 * rng.random(),
        "the global generator": lambda x: total(x) + np.random.random(),
        "the system's entropy": lambda x: total(x) + secrets.randbelow(10**9),
        "random weights": lambda x: total(x * rng.random(x.shape)),
        "a random half": lambda x: total(x * (rng.random(x.shape) < 0.5)),
        "a record at random": lambda x: (
            rng.permuted(np.c_[x, [[7.0]]], axis=1)[:, :1] + rng.random()
        ),
        "a random sign": lambda x: total(x) * rng.normal() + x.shape[1],
        "a counter": lambda x: total(x) + next(count),
        "the time": lambda x: total(x) + time.perf_counter(),
        "a list that grows": lambda x: asked.append(1) or total(x) + len(asked),
        "the most it was asked": lambda x: asked.append(x.sum()) or np.array([[max(asked)]]),
        "a running mean": running,
        "a buffer that adds up": one_buffer,
        "its last data set": last,
        "an iterator, soon at its end": lambda x: total(x) + next(lines),
        "a generator, at its end": lambda x: total(x) + sum(generator),
        "fails after a while": fails_later,
        "another number of values": lambda x: np.ones((1, 1 + next(count))),
        "NaN the second time": lambda x: total(x) * (np.nan if next(count) % 4 > 1 else 1.0),
        "it writes": writes,
        "it sorts": sorts,
        "it fills gaps": fills,
    }


@pytest.mark.parametrize("neighbours", ["replace", "add-remove"])
@pytest.mark.parametrize("name", of_itself())
def test_a_query_that_is_no_function_of_its_data_is_refused_unpaid(name, neighbours):
    for mechanism in (dpsbi.Laplace(5.0), dpsbi.Gaussian(5.0)):
        query, ledger = (
            Query(of_itself()[name], 5.0, neighbours=neighbours, dim=None),
            Ledger(9, 0.1),
        )
        if name == "another number of values":
            query = Query(of_itself()[name], 5.0, neighbours=neighbours)
        with pytest.raises(ValueError, match="Nothing was spent") as refused:
            dpsbi.release(RECORDS["plain"], query, mechanism, ledger, delta=1e-3)
        assert ledger.history == () and "fails on" not in str(refused.value)


FUNCTIONS = {
    "NaN": lambda x: np.full((1, 1), np.nan),
    "infinite": lambda x: np.full((1, 1), np.inf),
    "NaN on some": lambda x: np.log(x[:, :1]) if x.shape[1] else np.zeros((1, 1)),
    "raises on some": lambda x: x[:, :1] * 0 if not x.any() else [][1],
    "seeded": lambda x: x.sum(1, keepdims=True) + np.random.default_rng(3).normal(size=(1, 1)),
    "its own buffer": (lambda out: lambda x: np.sum(x, axis=1, keepdims=True, out=out))(
        np.zeros((1, 1))
    ),
    "its data themselves": lambda x: np.clip(x, 0, 5)[:, :1] if x.shape[1] else np.zeros((1, 1)),
    "a list": lambda x: [[float(x.sum())]],
    "whole numbers": lambda x: (x > 1).sum(axis=1, keepdims=True),
    "a copy that is sorted": lambda x: np.sort(x, axis=1)[:, -1:] if x.size else np.zeros((1, 1)),
    "a cache of the same": (
        lambda kept: lambda x: kept.setdefault(x.tobytes(), x.sum((1,))[:, None])
    )({}),
}


@pytest.mark.parametrize("neighbours", ["replace", "add-remove"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_query_that_answers_the_same_is_released(name, neighbours):
    fn = FUNCTIONS[name]
    if name == "raises on some" and neighbours == "add-remove":
        fn = lambda x: np.zeros((1, 1)) if not x.any() else [][1]
    query, ledger = Query(fn, 5.0, neighbours=neighbours), Ledger(9.0)
    released = dpsbi.release(RECORDS["plain"], query, dpsbi.Laplace(5.0), ledger)
    assert np.isfinite(released.s_dp).all() and len(ledger.history) == 1


def test_each_question_comes_with_an_array_of_its_own_and_the_records_stay():
    "Public stand-ins, twice, in reverse, the first once more; then a copy of the records."
    seen, x = [], np.array([1.0, 2.0, 4.0])

    def fn(one):
        seen.append((id(one), one))
        return one.sum(axis=1, keepdims=True)

    dpsbi.release(x, Query(fn, 5.0), dpsbi.Laplace(5.0), Ledger(9.0))
    values = [one.tolist() for _, one in seen]
    assert len({key for key, _ in seen}) == 8 and values[:3] == values[5:2:-1]
    assert values[6] == values[0]
    assert values[7] == [x.tolist()] and not np.shares_memory(seen[7][1], x)


def test_noise_for_another_number_of_values_is_refused_unpaid():
    for width, sizes in itertools.product((1, 2, 3), ((1, 1), (2, 2), (4,), (1, 3), (5, 1))):
        if width == sum(sizes):
            continue
        noise = dpsbi.mechanisms.Independent((dpsbi.Laplace(9.0),) * len(sizes), sizes)
        for dim in (None, width):
            ledger, query = Ledger(99.0), Query(lambda x: x[:, :width], 9.0, dim=dim)
            with pytest.raises(ValueError):
                dpsbi.release(RECORDS["plain"], query, noise, ledger)
            assert ledger.history == ()
