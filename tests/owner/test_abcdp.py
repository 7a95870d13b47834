"""ABCDP end to end: the ledger's state in every outcome, what a posterior holds, what records can
show, reproducibility.
"""

import itertools
import time
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from functools import cache

import numpy as np
import pytest
from scipy import stats

import dpsbi.runs.checkpoint
from dpsbi import mmd as mmd
from dpsbi.accounting.costs import BudgetError
from dpsbi.accounting.ledger import Ledger
from dpsbi.distances import StatedDistance, clipped_mean_distance, mmd_distance, summary_distance
from dpsbi.models.model import Model
from dpsbi.models.prior import Prior
from dpsbi.owner import svt as svt
from dpsbi.owner.abcdp import NothingAccepted, Trials, abcdp, rehearse, simulate_pool, synthetic
from dpsbi.owner.abcdp_plan import largest_count, plan, replay
from dpsbi.owner.selection import NoisySmallest
from dpsbi.owner.svt import Private, Seeded, SparseVector
from dpsbi.posterior.posterior import Posterior
from dpsbi.privacy import Query

N = 400
X = np.random.default_rng(0).uniform(0, 0.6, N)
MODEL = Model(
    Prior(theta=stats.uniform(0, 1)), lambda theta, rng: rng.random((len(theta), N)) * theta
)
DISTANCE = summary_distance(Query(lambda batch: batch.mean(axis=1, keepdims=True), 1 / N))
KEYS = {
    "method",
    "selection",
    "count",
    "simulations",
    "sensitivity",
    "noise",
    "threshold",
    "budget",
    "resample",
    "epsilon",
    "delta",
    "charged_epsilon",
    "charged_delta",
    "complete",
    "private",
}
CHARGED = getattr(DISTANCE, "computed_sensitivity", DISTANCE.sensitivity)


TRIED = [field.name for field in fields(Trials)]
ALL = dict(threshold=1e3)  # all of 300 distances are below it, whatever the noise of the system


def run(ledger, **kw):
    "A run; keywords of its trials among the others."
    given = (
        dict(
            x=X,
            model=MODEL,
            distance=DISTANCE,
            threshold=0.05,
            count=5,
            epsilon=1.0,
            simulations=300,
            progress=False,
            rng=np.random.default_rng(1),
        )
        | kw
    )
    trials = Trials(**{name: given.pop(name) for name in TRIED if name in given})
    x, model, distance = (given.pop(name) for name in ("x", "model", "distance"))
    return abcdp(x, model, distance, ledger=ledger, trials=trials, **given)


@pytest.mark.parametrize(
    "kw",
    [
        dict(),
        dict(resample=True),
        dict(budget="paper"),
        dict(noise="laplace"),
        dict(noise="gaussian", delta=1e-6),
        dict(selection="top", threshold=None),
        dict(selection="top", threshold=None, delta=1e-6, count=50),
        dict(resample=True, delta=1e-6),
    ],
)
def test_costs_what_it_says_and_holds_only_what_was_paid_for(kw, tmp_path):
    ledger = Ledger(1.0, 1e-5, composition="sum")
    posterior = run(ledger, **ALL | kw)
    granted = ledger.history[0].granted
    assert (posterior.info["charged_epsilon"], posterior.info["charged_delta"]) == (
        granted.epsilon,
        granted.delta,
    )
    assert (
        len(posterior) == kw.get("count", 5)
        and posterior.info["private"]
        and posterior.info["complete"]
    )
    assert (
        ledger.spent.epsilon == posterior.info["epsilon"] <= 1
        and ledger.spent.delta == posterior.info["delta"] <= 1e-6
    )
    assert set(posterior.info) <= KEYS and all(
        isinstance(v, (str, int, float, bool)) for v in posterior.info.values()
    )
    posterior.save(tmp_path / "p.npz")
    assert np.array_equal(Posterior.load(tmp_path / "p.npz").theta, posterior.theta)
    assert ledger.history[0].neighbours == "replace" and ledger.history[0].unit == "record"


class Secret:
    "Records that cannot be read without a note of it; reading fails."

    shape = (N,)

    def __init__(self, ledger):
        self.ledger, self.spent = ledger, []

    def __array__(self, *args, **kw):
        self.spent.append(self.ledger.spent.epsilon)
        raise AssertionError("the records were read")


def test_nothing_is_read_or_spent_without_the_means():
    ledger = Ledger(0.5)
    secret = Secret(ledger)
    with pytest.raises(BudgetError):
        run(ledger, x=secret)
    assert ledger.spent.epsilon == 0 and not ledger.history and not secret.spent
    ledger = Ledger(1.0)
    secret = Secret(ledger)
    with pytest.raises(NothingAccepted):  # what the reading raised is not heard
        run(ledger, x=secret)
    cost = SparseVector.calibrate(CHARGED, 1.0, 5, noise="exponential").cost().epsilon
    assert secret.spent == [cost]  # paid before it was read, and read once


@pytest.mark.parametrize(
    "kw",
    [
        dict(threshold=None),
        dict(threshold=np.inf),
        dict(selection="best"),
        dict(selection="top"),
        dict(count=0),
        dict(epsilon=-1.0),
        dict(budget="half"),
        dict(noise="gaussian"),
        dict(selection="top", threshold=None, count=301),
        dict(model=Model(MODEL.prior, lambda theta, rng: rng.random((3, N)))),
        dict(pool=(np.zeros((3, 1)), np.zeros((2, N)))),
        dict(model=Model(MODEL.prior, lambda theta, rng: np.full((len(theta), N), np.inf))),
        dict(x=X[:-1]),
        dict(x=3.0),
        dict(selection="top", threshold=None, count=200, model="half fail"),
    ],
)
def test_bad_arguments_cost_nothing(kw):
    ledger = Ledger(1.0)
    if kw.get("model") == "half fail":
        fails = lambda theta, rng: np.where(theta > 0.5, np.nan, MODEL.simulate(theta, rng))
        kw = kw | dict(model=Model(MODEL.prior, fails))
    with pytest.raises(ValueError):
        run(ledger, **dict(distance=clipped_mean_distance(nearest, 1.0, N)) | kw)
    assert not ledger.history


def nearest(x, y):
    return np.abs(x - y.mean(axis=1)[:, None])


def test_outcomes_short_of_the_count():
    ledger, scales = (
        Ledger(1.0),
        SparseVector.calibrate(CHARGED, 1.0, 250, noise="exponential", steps=300),
    )
    with pytest.warns(UserWarning, match="only"):
        short = run(ledger, count=250)
    assert (
        0 < len(short) < 250
        and ledger.spent == scales.used(len(short))
        and not short.info["complete"]
    )
    assert (
        short.info["epsilon"]
        == ledger.spent.epsilon
        < short.info["charged_epsilon"]
        == scales.cost().epsilon
    )
    ledger = Ledger(1.0)
    with pytest.raises(NothingAccepted) as caught:
        run(ledger, threshold=-10.0)
    assert ledger.spent == caught.value.cost and 0 < ledger.spent.epsilon < 0.5
    run(ledger, **ALL, epsilon=ledger.remaining.epsilon * (1 - 1e-9))  # the rest can be spent


class Bare:
    """A user's distance: between and sensitivity, and what it was shown, with whether that was paid
    for.
    """

    sensitivity, unit = 1 / N, "record"

    def __init__(self, ledger=None, neighbours="replace", wrong=None):
        self.ledger, self.neighbours, self.wrong, self.seen = ledger, neighbours, wrong, []

    def between(self, x, y):
        paid = bool(self.ledger and self.ledger.history)
        self.seen.append((paid, x.shape, x.dtype, y.shape))
        if paid and self.wrong:
            warnings.warn(f"these are the records: {x}")
            np.log(-1.0 - np.arange(3))  # NumPy's own warning
            return self.wrong(x, y)
        return np.abs(np.clip(x, 0, 1).sum() / N - y.mean(axis=1))


WRONG = dict(
    raises=lambda x, y: 1 / 0,
    nan=lambda x, y: np.full(len(y), np.nan),
    number=lambda x, y: 0.0,
    short=lambda x, y: np.zeros(len(y) - 1),
    wide=lambda x, y: np.zeros((len(y), 2)),
    text=lambda x, y: np.array(["near"] * len(y)),
    none=lambda x, y: None,
    inf=lambda x, y: np.full(len(y), np.inf),
)


@pytest.mark.parametrize("wrong", WRONG)
def test_a_distance_that_fails_on_the_records_is_heard_of_by_nobody(wrong):
    ledger, expected = Ledger(1.0), SparseVector.calibrate(1 / N, 1.0, 5, noise="exponential")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with pytest.raises(NothingAccepted):
            run(ledger, distance=Bare(ledger, wrong=WRONG[wrong]))
    assert (
        ledger.spent == expected.used(0)
        and ledger.history[0].granted == expected.cost()
        and not said
    )
    ledger = Ledger(1.0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert (
            len(
                run(
                    ledger,
                    distance=Bare(ledger, wrong=WRONG[wrong]),
                    selection="top",
                    threshold=None,
                )
            )
            == 5
        )
    assert not said


def test_what_did_not_simulate_is_not_released_even_if_all_are_infinitely_far():
    fails, ledger = (
        lambda theta, rng: np.where(theta > 0.5, np.nan, MODEL.simulate(theta, rng)),
        Ledger(1.0),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that fewer draws come than were asked for
        found = run(
            ledger,
            model=Model(MODEL.prior, fails),
            distance=Bare(ledger, wrong=WRONG["raises"]),
            selection="top",
            threshold=None,
            count=100,
        )
    assert 0 < len(found) < 100 and found.theta.max() <= 0.5 and not found.info["complete"]


def refuses(distance, **kw):
    ledger = distance.ledger = Ledger(1.0)
    with pytest.raises(ValueError, match="Nothing was spent"):
        run(ledger, distance=distance, **kw)
    assert not ledger.history


@pytest.mark.parametrize("wrong", [name for name in WRONG])
def test_the_same_failure_on_stand_ins_costs_nothing(wrong):
    distance = Bare()
    distance.between = WRONG[wrong]
    refuses(distance)


class Rehearsed(Bare):
    "One that rehearses itself: it notes the shape that it is given."

    def rehearse(self, shape, y):
        self.seen.append((False, tuple(shape), None, y.shape))


def test_a_distance_of_ours_is_rehearsed_without_the_confidential_number_of_records():
    shapes = []
    for x in (X, X[:0], X[:1], np.tile(X, 2)):
        distance = Rehearsed(neighbours="add-remove")
        run(Ledger(1.0), x=x, distance=distance, threshold=1e6)
        shapes.append([seen for seen in distance.seen if seen[2] is None])
    assert len(shapes[0]) == 1 and all(s == shapes[0] for s in shapes)


def test_an_empty_list_of_vectors_is_rehearsed_like_any_other():
    shapes, pairs = [], Model(MODEL.prior, lambda theta, rng: rng.random((len(theta), N, 2)))
    for x in ([], [[0.1, 0.2]], np.empty((0, 2)), np.ones((5, 2))):
        distance = Rehearsed(neighbours="add-remove")
        with pytest.raises(NothingAccepted):  # its distances have another shape
            run(Ledger(1.0), x=x, model=pairs, distance=distance)
        shapes.append([seen for seen in distance.seen if seen[2] is None])
    assert len(shapes[0]) == 1 and all(s == shapes[0] for s in shapes)


def test_a_distance_without_meaning_on_an_empty_data_set_is_refused_where_that_may_come():
    distance = Bare(neighbours="add-remove")
    distance.between = lambda x, y: np.abs(x.mean() - y.mean(axis=1))
    refuses(distance)
    distance.neighbours = "replace"
    run(Ledger(1.0), **ALL, distance=distance)


# ---- a distance is a function of its two data sets


def of_itself():
    "Distances that answer otherwise the second time, or write into their data, made afresh."
    rng, count, asked, lines = np.random.default_rng(1), itertools.count(), [], iter(range(3))
    gap = lambda x, y: np.abs(np.clip(x, 0, 1).sum() / N - y.mean(axis=1))

    def writes_x(x, y):
        x += 1
        return gap(x, y)

    def writes_y(x, y):
        y -= x.sum()
        return np.abs(y.mean(axis=1))

    return {
        "noise of its own": lambda x, y: gap(x, y) + rng.normal(),
        "the global generator": lambda x, y: gap(x, y) + np.random.random(len(y)),
        "random weights": lambda x, y: gap(x * rng.random(x.shape), y),
        "a random half of the records": lambda x, y: gap(x * (rng.random(x.shape) < 0.5), y),
        "a random half of the simulated": lambda x, y: gap(x, y * (rng.random(y.shape) < 0.5)),
        "random directions": lambda x, y: gap(x, y * rng.normal()),
        "a counter": lambda x, y: gap(x, y) + next(count),
        "the time": lambda x, y: gap(x, y) + time.perf_counter(),
        "the most it was asked": lambda x, y: asked.append(x.sum()) or max(asked) + gap(x, y),
        "an iterator, soon at its end": lambda x, y: gap(x, y) + next(lines),
        "infinite the second time": lambda x, y: gap(x, y) / (next(count) % 2 or np.nan),
        "it writes into the simulated": writes_y,
        "it writes into the records": writes_x,
    }


class Between(Bare):
    "A user's distance that computes as told."

    def __init__(self, fn, neighbours):
        super().__init__(neighbours=neighbours)
        self.between = fn


class Itself(Between):
    "One that says of itself that it is fine."

    def rehearse(self, shape, y):
        pass


DOORS = {
    "a user's": Between,
    "a user's that rehearses itself": Itself,
    "stated": lambda fn, how: StatedDistance(fn, 1 / N, neighbours=how),
    "clipped": lambda fn, how: clipped_mean_distance(
        lambda x, y: np.tile(np.abs(fn(x, y))[:, None], (1, len(x))), 1e9, N, neighbours=how
    ),
    "summary": lambda fn, how: summary_distance(
        lambda b: np.stack([fn(one, np.zeros((1, N)))[:1] for one in b]), 1 / N, neighbours=how
    ),
}


@pytest.mark.parametrize("how", ["replace", "add-remove"])
@pytest.mark.parametrize("door, name", list(itertools.product(DOORS, of_itself())))
def test_a_distance_that_is_no_function_is_refused_unpaid(door, name, how):
    if (door, name) in (
        ("stated", "it writes into the records"),  # it gets a copy at each call
        ("clipped", "it writes into the records"),
        ("summary", "it writes into the simulated"),  # the line above gives it zeros
        ("summary", "a random half of the simulated"),
        ("summary", "random directions"),
    ):
        return
    ledger = Ledger(1.0)
    with pytest.raises(ValueError):
        run(ledger, distance=DOORS[door](of_itself()[name], how))
    assert not ledger.history


@pytest.mark.parametrize("door", ["a user's", "a user's that rehearses itself", "stated"])
@pytest.mark.parametrize("share, refused", [(0.0, False), (1.9, False), (2.1, True), (50, True)])
def test_two_answers_may_differ_by_what_is_charged_for_their_error(door, share, refused):
    "Each within the stated error of the exact distance: by twice the error, and no more."
    asked, error = Counter(), 0.1 / N

    def fn(x, y):
        asked[x.tobytes()] += 1
        return np.abs(x.sum() / N - y.mean(axis=1)) + share * error * (asked[x.tobytes()] > 1)

    if door == "stated":
        distance = StatedDistance(fn, 1 / N, error=error)
    else:
        distance = DOORS[door](fn, "replace")
        distance.computed_sensitivity = 1 / N + 2 * error
    for _ in range(1 if refused else 3):
        seen = ""
        try:
            rehearse(distance, (N,), np.full((2, N), 0.5))
        except ValueError as caught:
            seen = str(caught)
        assert ("when it is asked again" in seen) == refused


def test_records_are_handed_over_in_a_copy_each_time():
    "A distance that writes into them once it was paid for compares each batch with the records."
    ledger, seen = Ledger(1.0), []

    def fn(x, y):
        if ledger.history:
            seen.append(x.copy())
            x += 1
        return np.abs(np.clip(x, 0, 1).sum() / N - y.mean(axis=1))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run(ledger, distance=Between(fn, "replace"), threshold=1e6, count=290)
    assert len(seen) > 1 and all(np.array_equal(x, X) for x in seen)


# ---- the public side, whatever the records are


def broken(value, dtype=object):
    x = X.astype(dtype)
    x[3] = value
    return x


REPLACED = dict(
    shuffled=X[::-1],
    ints=X.astype(int),
    float32=X.astype("float32"),
    nan=broken(np.nan, float),
    inf=broken(-np.inf, float),
    none=broken(None),
    text=broken("?"),
    bytes=broken(b"x"),
    list_inside=broken((1, 2)),
    all_text=np.full(N, "seven"),
    complex=X + 1j,
    dates=np.full(N, np.datetime64("2020-01-01")),
    booleans=X > 0.3,
    huge=broken(1e308, float),
    huge_int=broken(10**400),
    nested=broken(broken(1)),
    listed=list(X),
    all_nan=np.full(N, np.nan),
)
SIZES = dict(
    empty=X[:0],
    one=X[:1],
    two=X[:2],
    more=np.tile(X, 3),
    one_nan=np.array([np.nan]),
    one_object=np.array([object()]),
    one_text=np.array(["?"]),
    empty_text=np.array([], dtype=str),
    listed=[0.1, 0.2],
    empty_list=[],
)
DISTANCES = dict(
    bare=lambda ledger, how: Bare(ledger, how),
    mmd=lambda ledger, how: mmd_distance(mmd.Gaussian(0.2), N, bounds=(0, 1), neighbours=how),
    clipped=lambda ledger, how: clipped_mean_distance(nearest, 1.0, N, neighbours=how),
    summary=lambda ledger, how: summary_distance(
        Query(lambda b: np.clip(b, 0, 1).sum(axis=1, keepdims=True) / N, 1 / N, neighbours=how)
    ),
)
OUTCOMES = dict(
    all_accepted=dict(threshold=1e6),
    none_accepted=dict(threshold=-1e6),
    resampled=dict(threshold=1e6, resample=True, delta=1e-6),
    top=dict(selection="top", threshold=None, count=40),
)


def public_side(x, distance, how, **kw):
    """All that anybody hears of a run, but for the draws: what is simulated, raised, warned of,
    shown before payment, charged.
    """
    ledger, calls = Ledger(1.0, 1e-5, composition="sum"), []

    def simulate(theta, rng):
        calls.append((len(theta), bool(ledger.history)))
        return MODEL.simulate(theta, rng)

    distance = DISTANCES[distance](ledger, how)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            found = run(
                ledger,
                x=x,
                distance=distance,
                model=Model(MODEL.prior, simulate),
                **dict(simulations=40) | kw,
            )
            outcome = (len(found), found.theta.dtype, found.names, found.info)
        except Exception as error:
            outcome = (type(error), str(error), str(error.__cause__), str(error.__context__))
    shown = [seen for seen in getattr(distance, "seen", []) if not seen[0]]
    entries = [(e.cost, e.granted, e.label, e.neighbours, e.unit) for e in ledger.history]
    return dict(
        calls=calls,
        outcome=outcome,
        said=[str(w.message) for w in said],
        shown=shown,
        entries=entries,
    )


def some(records, outcome):
    "Every third, where each run takes a fifth of a second."
    return list(records.items())[:: 3 if outcome == "resampled" else 1]


ONCE = cache(svt.cheaper_cost)


@pytest.fixture
def priced_once(monkeypatch):
    "A price knows no records: one of the same loss is not worked out again."
    monkeypatch.setattr(svt, "cheaper_cost", ONCE)


@pytest.mark.thorough
@pytest.mark.usefixtures("priced_once")
@pytest.mark.parametrize("distance, outcome", list(itertools.product(DISTANCES, OUTCOMES)))
def test_the_public_side_is_the_same_whatever_the_records_are(distance, outcome):
    usual = public_side(X, distance, "replace", **OUTCOMES[outcome])
    assert usual["entries"] and usual["outcome"][0] in (NothingAccepted, 5, 40)
    for name, x in some(REPLACED, outcome):
        assert public_side(x, distance, "replace", **OUTCOMES[outcome]) == usual, name


@pytest.mark.thorough
@pytest.mark.usefixtures("priced_once")
@pytest.mark.parametrize("distance, outcome", list(itertools.product(DISTANCES, OUTCOMES)))
def test_nor_how_many_there_are_where_that_is_confidential(distance, outcome):
    usual = public_side(X, distance, "add-remove", **OUTCOMES[outcome])
    assert usual["entries"] and usual["outcome"][0] in (NothingAccepted, 5, 40)
    for name, x in some(SIZES | REPLACED, outcome):
        assert public_side(x, distance, "add-remove", **OUTCOMES[outcome]) == usual, name


# ---- what is charged


class Slipping:
    "A distance of sensitivity 1 / N whose computed values may be off by `error`."

    def __init__(self, error):
        self.sensitivity, self.error = 1 / N, error
        self.computed_sensitivity = self.sensitivity + 2 * error

    def between(self, x, y):
        return np.abs(x.mean() - y.mean(axis=1))


class Noted(Private):
    "The vetted noise, with a note of the scales asked for, in steps."

    def __init__(self):
        self.scales = []

    def draw(self, noise, scale, size):
        self.scales.append(scale)
        return super().draw(noise, scale, size)


@pytest.mark.parametrize("error", (0.0, 0.01, 1.0))
def test_the_error_of_a_distance_is_charged(error):
    """The exact loss of (reject, accept x 5), attained by exponential noise: k (1/b1 + 2·5/b2), k
    the steps that a distance moves.
    """
    distance, ledger, source = Slipping(error), Ledger(1.0), Noted()
    run(ledger, **ALL, distance=distance, source=source)
    b1, b2 = source.scales[:2]
    moves = distance.sensitivity + 2 * error  # in real numbers, and half a step for each end
    step = 2.0 ** (np.frexp(distance.computed_sensitivity)[1] - 21)
    loss = (np.floor(moves / step) + 1) * (1 / b1 + 2 * 5 / b2)
    charge = ledger.history[0].granted.epsilon
    assert charge * (1 - 1e-9) < loss <= charge


LEDGERS = {"pure sum": lambda: Ledger(2.0), "zcdp": lambda: Ledger(rho=1.0)}
LEDGERS |= {
    how: (lambda how=how: Ledger(2.0, 1e-5, composition=how))
    for how in ("sum", "gaussian", "renyi", "planned")
}
WAYS = dict(
    pure={},
    resampled=dict(resample=True, delta=1e-6, count=20),
    gaussian=dict(noise="gaussian", delta=1e-6),
    top=dict(selection="top", threshold=None),
    gumbel=dict(selection="top", threshold=None, delta=1e-6, count=50),
    pure_resampled=dict(resample=True),
)
REFUSED = {
    ("pure sum", "resampled"),
    ("pure sum", "gaussian"),
    ("pure sum", "gumbel"),
    ("zcdp", "gaussian"),
    ("gaussian", "gaussian"),
    ("gaussian", "gumbel"),
}


@pytest.mark.parametrize("how, way", list(itertools.product(LEDGERS, WAYS)))
def test_any_ledger_pays_what_has_a_loss_that_it_knows(how, way):
    ledger = LEDGERS[how]()
    if (how, way) in REFUSED:
        with pytest.raises(BudgetError):
            run(ledger, **WAYS[way])
        assert not ledger.history
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = run(ledger, **ALL | WAYS[way])
    (entry,) = ledger.history
    assert (entry.cost.epsilon, entry.cost.delta) == (found.info["epsilon"], found.info["delta"])
    assert entry.cost <= entry.granted and entry.granted.epsilon <= 1
    if how == "zcdp":
        assert ledger.spent.rho == pytest.approx(entry.granted.loss.rho)


@pytest.mark.parametrize("how", LEDGERS)
def test_a_refund_reaches_only_sums_of_pure_epsilon(how):
    ledger = LEDGERS[how]()
    with pytest.raises(NothingAccepted) as caught:
        run(ledger, threshold=-10.0)
    (entry,) = ledger.history
    assert (
        entry.cost == caught.value.cost
        and entry.cost.epsilon < 0.5
        and entry.granted.epsilon == pytest.approx(1)
    )
    if how == "zcdp":
        assert ledger.spent.rho == entry.granted.loss.rho
    else:
        assert ledger.spent.epsilon == entry.cost.epsilon


def test_noise_does_not_come_from_rng_but_simulations_do(tmp_path):
    a, b = (
        run(Ledger(1), epsilon=0.02, rng=np.random.default_rng(5), threshold=0.1, count=20)
        for _ in range(2)
    )
    assert not np.array_equal(a.theta, b.theta)
    public = {v.tobytes() for v in simulate_pool(MODEL, 300, rng=np.random.default_rng(5))[0]}
    assert {v.tobytes() for v in a.theta} | {v.tobytes() for v in b.theta} <= public
    with warnings.catch_warnings(), ThreadPoolExecutor(3) as threads:
        warnings.simplefilter("ignore")
        go = lambda **kw: run(Ledger(1), source=Seeded(np.random.default_rng(6)), **kw)
        reference = go()
        for kw in (
            dict(executor=threads),
            dict(checkpoint=tmp_path / "c.npz"),
            dict(checkpoint=tmp_path / "c.npz"),
        ):
            assert np.array_equal(go(**kw).theta, reference.theta)
        assert not reference.info["private"]


def test_a_killed_pool_resumes_to_the_same_result(tmp_path, monkeypatch):
    calls, path = [], tmp_path / "pool.npz"

    def dies(theta, rng):
        calls.append(len(theta))
        if len(calls) == 5:
            raise KeyboardInterrupt
        return MODEL.simulate(theta, rng)

    monkeypatch.setattr(
        dpsbi.runs.checkpoint, "SECONDS_BETWEEN_SAVES", -1.0
    )  # save after every batch
    with pytest.raises(KeyboardInterrupt):
        simulate_pool(
            Model(MODEL.prior, dies),
            300,
            rng=np.random.default_rng(7),
            progress=False,
            checkpoint=path,
        )
    theta, y = simulate_pool(
        Model(MODEL.prior, dies), 300, rng=np.random.default_rng(7), progress=False, checkpoint=path
    )
    whole = simulate_pool(MODEL, 300, rng=np.random.default_rng(7), progress=False)
    assert np.array_equal(theta, whole[0]) and np.array_equal(y, whole[1]) and len(calls) < 20


def test_replay():
    d, rng = np.random.default_rng(8).uniform(size=(3, 50)), np.random.default_rng(9)
    plain = replay(d, 0.5, 4, rng=rng)
    assert (plain.sum(1) == 4).all() and (d[plain] <= 0.5).all()
    for noise in ("laplace", "exponential", "gaussian"):
        for resample in (False, True):
            tiny = SparseVector(1e-9, 4, 1e-9, 2e-9, resample, noise, steps=50)
            assert np.array_equal(replay(d, [0.5, 0.5, 0.5], tiny, rng=rng), plain)
    chosen = replay(d, None, NoisySmallest(1e-9, 4, 1e-9), rng=rng)
    assert np.array_equal(np.sort(d[chosen].reshape(3, 4)), np.sort(d)[:, :4])
    with pytest.raises(ValueError):
        replay(np.full((1, 3), np.nan), 0.5, 4, rng=rng)


def test_distances_and_planner():
    clipped = clipped_mean_distance(lambda x, y: np.abs(x - y.mean(axis=1)[:, None]), 0.3, N)
    y = MODEL.simulate(np.full((5, 1), 0.5), np.random.default_rng(10))
    neighbour = X.copy()
    neighbour[0] = 100.0
    assert (
        np.abs(clipped.between(X, y) - clipped.between(neighbour, y)).max()
        <= clipped.sensitivity
        == 0.3 / N
    )
    with pytest.raises(ValueError):
        summary_distance(Query(lambda b: b, 1.0, norm="l0"))
    table = plan(1 / N, [1, 10], 1.0, [0.01, 0.1])
    assert table.shape == (2, 4) and (table["gap 0.01"] > table["gap 0.1"]).all()
    assert (
        largest_count(1e-4, 1.0, 0.05)
        > largest_count(1e-4, 0.5, 0.05)
        > largest_count(1e-4, 0.5, 0.05, budget="paper", noise="laplace", resample=True)
    )


def test_synthetic_data_are_simulations_at_the_draws():
    posterior = Posterior(np.array([[0.001], [0.002]]))
    fake = synthetic(posterior, MODEL, 7, rng=np.random.default_rng(11))
    assert fake.shape == (7, N) and fake.max() <= 0.002


@pytest.mark.parametrize("name", TRIED)
def test_a_keyword_of_the_trials_is_told_where_it_belongs(name):
    ledger = Ledger(1.0)
    usual = dict(count=5, epsilon=1.0, ledger=ledger, rng=np.random.default_rng(1))
    belongs = rf"unexpected keyword argument '{name}'.*pass trials=Trials\({name}=…\)"
    with pytest.raises(TypeError, match=belongs):
        abcdp(X, MODEL, DISTANCE, threshold=0.05, **usual, **{name: None})
    assert not ledger.history


@pytest.mark.parametrize(
    "wrong",
    [dict(simulations=0), dict(noise="uniform"), dict(delta=-0.1), dict(delta=1.0)],
    ids=str,
)
def test_trials_check_themselves(wrong):
    with pytest.raises(ValueError):
        Trials(**wrong)
