"""Mechanisms and release: true losses in every norm and dimension, prices known beforehand, real
scales, files.
"""

import itertools
import json
import math
import warnings
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

import dpsbi
from dpsbi.accounting.costs import Cost
from dpsbi.accounting.ledger import Ledger
from dpsbi.accounting.losses import GaussianLoss, PureLoss, next_up
from dpsbi.analyst.rqmc import noise_draws
from dpsbi.checks.testing import agrees
from dpsbi.mechanisms import (
    BinomialResponse,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    Mechanism,
    RandomisedResponse,
    Release,
    SmoothGaussian,
    SmoothLaplace,
    kinds,
)
from dpsbi.mechanisms import release as release
from dpsbi.mechanisms.composite import Independent, SideBySide, join
from dpsbi.mechanisms.discrete import TruncatedGeometric, nearest_step, whole_steps
from dpsbi.mechanisms.sampler import opendp_library, vetted_noise
from dpsbi.mechanisms.smooth import smoothness
from dpsbi.mechanisms.staircase import Staircase
from dpsbi.privacy import NORMS, Query, identity

DIMS = (1, 2, 5, 100)
SMOOTH = (SmoothLaplace, SmoothGaussian)


# ---- true losses, computed without the formulas under test


def shifts(norm, size, p, rng):
    "Moves (p,) of this size in the norm: all in one value, the same in all, and three at random."
    one = np.eye(p)[0]
    moves = [one, np.ones(p), *rng.normal(size=(3, p))]
    order = dict(l1=1, l2=2)[norm]
    return [size * v / np.linalg.norm(v, order) for v in moves]


def largest_loss(mechanism, s, s_neighbour, outputs):
    "The supremum of the log ratio over outputs (k,) of each value: values are independent."
    total = 0.0
    for a, b in zip(s, s_neighbour):
        log_p, log_q = (mechanism.log_prob(outputs[:, None], [v]) for v in (a, b))
        possible = np.isfinite(log_p)
        total += np.max((log_p - log_q)[possible])
    return total


def delta_by_quadrature(mechanism, move, epsilon):
    "δ at ε of rotation-invariant noise: an integral along the move."
    length = float(np.linalg.norm(move))
    at = lambda t: (
        np.exp(mechanism.log_prob([t], [0.0])) - np.exp(epsilon + mechanism.log_prob([t], [length]))
    )
    return integrate.quad(lambda t: max(at(t), 0.0), -60, 60, points=[0, length], limit=1000)[0]


def loss_atoms(mechanism, a, b, reach=45.0, points=12_001):
    "Probabilities and losses (k,) of one value with its smooth sensitivity, a = (value, SS), or b."
    scale = mechanism.multiplier * a[1]
    y = a[0] + scale * np.linspace(-reach, reach, points)
    log_p, log_q = mechanism.log_prob(y[:, None], a), mechanism.log_prob(y[:, None], b)
    p = np.exp(log_p)
    return p / p.sum(), log_p - log_q


def delta_by_convolution(mechanism, s, s_neighbour, epsilon, reach=32.0, cells=2**16):
    "δ at ε of a smooth mechanism on several values: their losses add up, so their laws convolve."
    step, transform = 2 * reach / cells, 1.0
    pairs = np.array([np.broadcast_arrays(s[:-1], s[-1], s_neighbour[:-1], s_neighbour[-1])])[0].T
    for (a, scale_a, b, scale_b), times in zip(*np.unique(pairs, axis=0, return_counts=True)):
        p, loss = loss_atoms(mechanism, (a, scale_a), (b, scale_b))
        cell = np.clip(loss / step, -cells / 2, cells / 2 - 2)
        low = np.floor(cell).astype(int)
        law = np.bincount(low % cells, p * (low + 1 - cell), cells)  # split so that the mean stays
        law += np.bincount((low + 1) % cells, p * (cell - low), cells)
        transform = transform * np.fft.rfft(law) ** times
    law = np.fft.irfft(transform, cells)
    loss = step * np.fft.fftfreq(cells, 1 / cells)
    return float(law @ np.maximum(-np.expm1(epsilon - loss), 0))


def test_the_convolution_is_right():
    "Against quadrature for one value, and the closed form of normal noise for five."
    one = SmoothGaussian(2.0)
    found = delta_by_convolution(one, np.array([0, 1.0]), np.array([1.0, 1.0]), 0.5)
    assert found == pytest.approx(delta_by_quadrature(Gaussian(2.0), np.ones(1), 0.5), rel=1e-3)
    five = delta_by_convolution(one, np.array([0] * 5 + [1.0]), np.array([0.4] * 5 + [1.0]), 0.5)
    assert five == pytest.approx(GaussianLoss(0.4 * math.sqrt(5) / 2).delta(0.5), rel=1e-3)


# ---- every mechanism, in every norm, in several dimensions: refused with the reason, or right

REFUSED = {
    (Laplace, "l0"),
    (Gaussian, "l0"),
    (DiscreteLaplace, "l0"),
    (BinomialResponse, "l0"),
    (RandomisedResponse, "l2"),
    (SmoothLaplace, "l0"),
    (SmoothGaussian, "l0"),
}
KINDS = (Laplace, Gaussian, DiscreteLaplace, BinomialResponse, RandomisedResponse, *SMOOTH)
ALL = list(itertools.product(KINDS, NORMS, DIMS))
EXTRA = {BinomialResponse: dict(n=4, population=30), RandomisedResponse: dict(categories=3)}


def fitted(kind, norm, p, epsilon=1.0, delta=1e-6):
    "The query and the mechanism calibrated to it; ValueError where the norm is refused."
    if kind in SMOOTH:
        query = Query(identity, math.inf, norm, smoothness=smoothness(epsilon, delta, p), dim=p + 1)
    else:
        query = Query(identity, 3, norm, dim=p, step=None if kind in (Laplace, Gaussian) else 1)
    return query, kind.calibrate(query, epsilon, delta, **EXTRA.get(kind, {}))


@pytest.mark.parametrize("kind, norm, p", [case for case in ALL if case[:2] in REFUSED])
def test_a_norm_without_a_bound_is_refused_with_the_reason(kind, norm, p):
    reason = "how many values change" if norm == "l0" else "norm='l0'"
    with pytest.raises(ValueError, match=reason):
        fitted(kind, norm, p)


def whole_shifts(norm, p):
    "Whole moves (p,) of size at most 3 in this norm, the farthest in l1 among them."
    if norm == "l0":
        return [np.where(np.arange(p) < k, v, 0) for k in range(1, min(p, 3) + 1) for v in (1, 2)]
    if norm == "l1":
        return [3 * np.eye(p)[0], np.where(np.arange(p) < 3, 1, 0)]
    moves = [
        np.where(np.arange(p) < 9, 1, 0),
        3 * np.eye(p)[0],
        np.where(np.arange(p) == 0, 2, np.arange(p) < 5),
    ]
    assert all(np.linalg.norm(v) <= 3 for v in moves)
    return moves


PURE = [
    case
    for case in ALL
    if case[0] in (Laplace, DiscreteLaplace, BinomialResponse, RandomisedResponse)
]
TIGHT = {(Laplace, "l1"), (Laplace, "l2"), (DiscreteLaplace, "l1"), (RandomisedResponse, "l0")}


@pytest.mark.parametrize("kind, norm, p", [case for case in PURE if case[:2] not in REFUSED])
def test_a_pure_price_covers_the_largest_loss(kind, norm, p):
    query, mechanism = fitted(kind, norm, p)
    moves = (
        shifts(norm, 3, p, np.random.default_rng(0)) if kind is Laplace else whole_shifts(norm, p)
    )
    if kind is RandomisedResponse:
        moves = [np.minimum(v, 2) for v in moves]  # codes are 0, 1, 2
    outputs = {BinomialResponse: np.arange(5.0), RandomisedResponse: np.arange(3.0)}
    outputs = outputs.get(kind, np.arange(-99.0, 100))
    losses = [
        largest_loss(mechanism, a, b, outputs) for v in moves for a, b in ((0 * v, v), (v, 0 * v))
    ]
    epsilon = mechanism.cost(query).epsilon
    assert epsilon <= 1 and max(losses) <= epsilon * (1 + 1e-9)
    if (kind, norm) in TIGHT and (norm != "l0" or p >= 3):
        assert max(losses) >= 0.999 * epsilon


@pytest.mark.parametrize("norm, p", list(itertools.product(("l1", "l2"), DIMS)))
def test_a_gaussian_price_is_the_true_delta(norm, p):
    query, mechanism = fitted(Gaussian, norm, p, delta=1e-3)
    cost = mechanism.cost(query, 1e-3)
    moves = shifts(norm, 3, p, np.random.default_rng(1))
    found = max(delta_by_quadrature(mechanism, v, cost.epsilon) for v in moves)
    assert found <= 1e-3 * (1 + 1e-6) and found >= 1e-3 * (1 - 1e-3)


@pytest.mark.parametrize("kind, norm, p", list(itertools.product(SMOOTH, ("l1", "l2"), DIMS)))
def test_a_smooth_price_covers_the_true_delta(kind, norm, p):
    query, mechanism = fitted(kind, norm, p)
    assert mechanism.cost(query, 1e-6).epsilon <= 1
    grown = math.exp(query.smoothness)
    for v in shifts(norm, 1, p, np.random.default_rng(2))[: 3 if p < 100 else 2]:
        for other in (1.0, grown, 1 / grown):
            here, there = np.append(0 * v, 1.0), np.append(min(1, other) * v, other)
            for pair in ((here, there), (there, here)):
                assert delta_by_convolution(mechanism, *pair, 1.0) <= 1e-6


@pytest.mark.parametrize("kind", SMOOTH)
def test_in_one_dimension_the_norm_does_not_matter(kind):
    (one, mechanism), (two, other) = fitted(kind, "l1", 1), fitted(kind, "l2", 1)
    assert mechanism == other and mechanism.cost(one, 1e-6) == mechanism.cost(two, 1e-6)


def test_a_hundred_values_stated_in_l2_are_not_read_as_l1():
    "0 against 1/sqrt(100) each; calibrated to (1, 1e-6) as if in l1, the true δ is 0.055."
    here, there = np.append(np.zeros(100), 1.0), np.append(np.full(100, 0.1), 1.0)
    query, mechanism = fitted(SmoothLaplace, "l2", 100)
    naive = fitted(SmoothLaplace, "l1", 100)[1]
    assert delta_by_convolution(naive, here, there, 1.0) == pytest.approx(0.055, abs=0.001)
    assert delta_by_convolution(mechanism, here, there, 1.0) <= 1e-6
    assert naive.cost(query, 1e-6).epsilon > 7 and mechanism.multiplier > 9 * naive.multiplier


# ---- the loss that a ledger composes, on a grid of ε, by summing over atoms


def true_delta(mechanism, s, s_neighbour, epsilon, outputs):
    "δ at ε of whole outputs (k,) of each of one or two values, by the sum over all atoms."
    p, loss = np.ones(1), np.zeros(1)
    for a, b in zip(s, s_neighbour):
        log_p, log_q = (mechanism.log_prob(outputs[:, None], [v]) for v in (a, b))
        seen = np.isfinite(log_p)
        p = np.outer(p, np.exp(log_p[seen])).ravel()
        loss = np.add.outer(loss, (log_p - log_q)[seen]).ravel()
    return float(p @ np.maximum(-np.expm1(epsilon - loss), 0))


def check_loss(mechanism, query, s, s_neighbour, outputs):
    loss = mechanism.loss(query)
    assert mechanism.cost(query).loss == loss
    for epsilon in mechanism.cost(query).epsilon * np.array([0, 0.3, 0.6, 0.9, 1]):
        for pair in ((s, s_neighbour), (s_neighbour, s)):
            found = true_delta(mechanism, *pair, epsilon, outputs)
            assert found <= loss.delta(epsilon) + 1e-9, (epsilon, found, loss.delta(epsilon))


ATOMS = np.arange(-150.0, 151)
DISCRETE = [
    (DiscreteLaplace(3.0), Query(identity, 2, step=1, dim=1), [4], [6], ATOMS),
    (DiscreteLaplace(3.0), Query(identity, 2, step=1, dim=2), [4, 4], [5, 5], ATOMS),
    (DiscreteLaplace(2.0), Query(identity, 0.2, dim=2), [0.45, 0.45], [0.55, 0.55], ATOMS),
    (BinomialResponse(9, 2.0, 20), Query(identity, 2, step=1), [0, 0], [1, 1], np.arange(10.0)),
    (RandomisedResponse(0.7, 4), Query(identity, 2, "l0", step=1), [0, 3], [1, 0], np.arange(4.0)),
]


@pytest.mark.parametrize("case", DISCRETE, ids=lambda case: repr(case[0]))
def test_no_atom_loses_more_than_is_claimed(case):
    check_loss(*case)


@dataclass(frozen=True)
class Liar(DiscreteLaplace):
    "Discrete normal noise that claims to lose nothing."

    def log_prob(self, s_dp, s):
        weight = lambda k: np.exp(-0.5 * (k / self.scale) ** 2)
        moved = np.subtract(s_dp, s)
        with np.errstate(divide="ignore"):
            return np.log(weight(moved) / weight(ATOMS).sum()).sum(-1)

    def loss(self, query):
        return PureLoss(0.0)

    def cost(self, query, delta=0.0):
        return Cost(0.0, 0.0, self.loss(query))


def test_the_check_of_atoms_sees_a_lie():
    query = Query(identity, 1, step=1, dim=1)
    outputs = np.arange(-30.0, 31)
    assert true_delta(Liar(1.54), [0], [1], 0.0, outputs) == pytest.approx(0.259, abs=5e-4)
    with pytest.raises(AssertionError):
        check_loss(Liar(1.54), query, [0], [1], outputs)


def test_one_value_has_the_exact_loss_and_several_the_bound():
    one, two = Query(identity, 2, dim=1, step=1), Query(identity, 2, dim=2, step=1)
    at = np.linspace(-80, 80, 400_001)
    p = np.exp(Laplace(3.0).log_prob(at[:, None], [0])) * (at[1] - at[0])
    ratio = Laplace(3.0).log_prob(at[:, None], [0]) - Laplace(3.0).log_prob(at[:, None], [2])
    for epsilon in (0.0, 0.2, 0.5):
        found = p @ np.maximum(-np.expm1(epsilon - ratio), 0)
        assert Laplace(3.0).loss(one).delta(epsilon) == pytest.approx(found, rel=1e-6)
        atoms = true_delta(DiscreteLaplace(3.0), [0], [2], epsilon, ATOMS)
        assert DiscreteLaplace(3.0).loss(one).delta(epsilon) == pytest.approx(atoms, rel=1e-9)
    third = next_up(Fraction(2, 3))
    assert Laplace(3.0).loss(two) == DiscreteLaplace(3.0).loss(two) == PureLoss(third)
    assert Gaussian(3.0).loss(replace(two, norm="l2")) == GaussianLoss(third)
    assert SmoothLaplace(1.0).loss(two) is None


# ---- a computed query moves further than the real one

MEAN = Query(lambda x: x.mean(1, keepdims=True), 1.0)
TEN = np.array([0, 2.9, 6.6, 9.4, 6.7, 9.5, 7.8, 2.8, 5.9, 3.4])
OTHER = np.append(10.0, TEN[1:])


def test_the_mean_of_ten_records_moves_two_steps_and_pays_for_two():
    "Charged as one step, an audit proves ε >= 1.9 for a charge of 1."
    mechanism = DiscreteLaplace.calibrate(replace(MEAN, dim=1), 1.0)
    a, b = (MEAN(x[None])[0] for x in (TEN, OTHER))
    assert b - a > MEAN.sensitivity
    assert largest_loss(mechanism, a, b, ATOMS) == pytest.approx(1.0) and mechanism.scale == 2.0
    with pytest.raises(
        ValueError, match="step=1 in the Query if they are .1 for counts., else its dim"
    ):
        mechanism.cost(MEAN)


@given(
    st.lists(st.tuples(st.floats(-50, 50), st.floats(-3, 3)), min_size=1, max_size=5),
    st.floats(0.05, 3),
)
def test_rounded_values_move_by_no_more_steps_than_are_charged(values, step):
    s, moved = np.array(values).T
    near = s + moved
    sensitivity = float(np.abs(near - s).sum()) + 1e-3
    mechanism, query = DiscreteLaplace(1.0, step), Query(identity, sensitivity, dim=len(s))
    steps = np.abs(nearest_step(near, mechanism.step) - nearest_step(s, mechanism.step)).sum()
    assert steps * step <= mechanism.cost(query).epsilon * (1 + 1e-12)


def test_a_grid_that_is_coarser_than_the_query_s_own_rounds():
    query, mechanism = Query(identity, 3, step=1, dim=1), DiscreteLaplace(1.0, 2.0)
    loss = max(largest_loss(mechanism, [k], [k + 3], 2 * ATOMS) for k in range(4))
    assert loss == pytest.approx(4.0) and mechanism.cost(query).epsilon == 4.0
    with pytest.raises(ValueError, match="multiples of 2"):
        mechanism.cost(replace(query, dim=None))


@given(st.integers(-(2**53), 2**53))
def test_whole_numbers_are_rounded_to_themselves(k):
    assert nearest_step(float(k), 1.0) == k


def test_a_stated_grid_pays_for_whole_steps_even_if_the_sensitivity_is_rounded_down():
    third = Query(identity, 2 * (1 / 3), step=1 / 3, dim=2)
    assert DiscreteLaplace(1.0, 1 / 3).cost(third).epsilon == pytest.approx(2 / 3)
    diagonal = Query(identity, math.sqrt(3) * (1 - 1e-15), "l2", step=1, dim=3)
    assert DiscreteLaplace(1.0).cost(diagonal).epsilon == 3.0  # (1, 1, 1) moves three steps
    assert DiscreteLaplace(1.0).cost(Query(identity, 2.5, step=1)).epsilon == 2.0
    assert DiscreteLaplace(1.0, 0.5).cost(Query(identity, 2, step=1)).epsilon == 2.0


# ---- release: the price is public, paid first, and can be read off the release


def columns(r):
    "A query of the first r columns of one record."
    return lambda x: np.asarray(x, float)[:, 0, :r]


SMOOTH_QUERY = Query(columns(3), math.inf, smoothness=1e-3, dim=3)
CASES = [
    (Laplace(3.0), Query(columns(2), 1), None),
    (Laplace(3.0), Query(columns(1), 1, dim=1), None),
    (Gaussian(30.0), Query(columns(2), 1, "l2"), 1e-3),
    (DiscreteLaplace(3.0), Query(columns(2), 1, step=1), None),
    (DiscreteLaplace(3.0, 0.25), Query(columns(1), 1, dim=1), None),  # 1e308 / 0.25 overflows
    (BinomialResponse(5, 2.0, 9), Query(columns(2), 1, step=1), None),
    (RandomisedResponse(0.7, 4), Query(columns(2), 1, "l0", step=1), None),
    (SmoothLaplace(30.0, 0.1), SMOOTH_QUERY, 1e-3),
    (SmoothGaussian(30.0), SMOOTH_QUERY, 1e-3),
]
LISTED = {type(mechanism) for mechanism, _, _ in CASES}
for kind in kinds().values():  # what only stands in its module, by its own examples
    for example in kind.examples().values() if kind not in LISTED else ():
        query = replace(example.query, fn=columns(example.query.dim))
        CASES.append((example.mechanism, query, example.delta or None))
RELEASED = [case for case in CASES if hasattr(case[0], "_prepare")]  # the others: for analysts
each_case = pytest.mark.parametrize(
    "mechanism, query, delta", RELEASED, ids=lambda v: repr(v) if isinstance(v, Mechanism) else ""
)
RECORD = [[1, 2, 1]]


LEDGERS = {
    "sum": lambda: Ledger(100.0, 0.01, composition="sum"),
    "rho": lambda: Ledger(rho=100.0),
    "renyi": lambda: Ledger(100.0, 0.01, composition="renyi"),
    "gaussian": lambda: Ledger(100.0, 0.01, composition="gaussian"),
    "planned": lambda: Ledger(100.0, 0.01, composition="planned"),
    "open": lambda: Ledger(100.0, 0.01),
}


@pytest.mark.parametrize("ledger", LEDGERS)
@each_case
def test_what_was_charged_is_read_off_the_release_to_the_bit(mechanism, query, delta, ledger):
    ledger, smooth = LEDGERS[ledger](), isinstance(mechanism, SMOOTH)
    loss = mechanism.loss(query)
    no_mu = loss is not None and math.isinf(loss.mu)
    if (
        smooth
        and ledger.composition in ("zcdp", "gaussian", "renyi")
        or (no_mu and ledger.composition == "gaussian")
    ):
        with pytest.raises(dpsbi.BudgetError):
            release(RECORD, query, mechanism, ledger, delta=delta)
        return
    given = release(RECORD, query, mechanism, ledger, delta=delta)
    (entry,) = ledger.history
    assert given.mechanism is mechanism and given.query is query
    assert entry.cost == given.mechanism.cost(given.query, delta or 0.0)
    assert smooth or entry.cost.loss == given.mechanism.loss(given.query)


@pytest.mark.parametrize("ledger", LEDGERS)
def test_without_a_delta_normal_noise_is_charged_by_its_loss(ledger):
    mechanism, query, _ = CASES[2]
    book = LEDGERS[ledger]()
    if ledger == "sum":
        with pytest.raises(ValueError, match="pass delta"):
            release(RECORD, query, mechanism, book)
        assert book.history == ()
        return
    for _ in range(2):
        given = release(RECORD, query, mechanism, book)
    for entry in book.history:
        assert entry.cost.loss == GaussianLoss(next_up(Fraction(1, 30)))
        assert entry.cost.delta == (0 if ledger == "rho" else 0.01)
        if ledger != "rho":
            assert entry.cost == given.mechanism.cost(given.query, entry.cost.delta)
    assert (
        book.spent.rho == pytest.approx(2 / 1800) if ledger == "rho" else book.spent.epsilon < 100
    )


@pytest.mark.parametrize("kind", SMOOTH)
@pytest.mark.parametrize("ledger", LEDGERS)
def test_without_a_delta_smooth_noise_is_refused_and_nothing_spent(kind, ledger):
    book = LEDGERS[ledger]()
    with pytest.raises(ValueError, match="pass delta"):
        release(RECORD, SMOOTH_QUERY, kind(30.0), book)
    assert book.history == ()


@each_case
def test_how_the_records_are_stored_changes_nothing(mechanism, query, delta, monkeypatch):
    drawn = []
    prepare = type(mechanism)._prepare
    spy = lambda self, query: lambda s: drawn.append((self, s)) or prepare(self, query)(s)
    monkeypatch.setattr(type(mechanism), "_prepare", spy)
    stored = [
        RECORD,
        np.array(RECORD),
        np.array(RECORD, float),
        np.array(RECORD, np.float32),
        np.array(RECORD, np.uint8),
        np.array(RECORD, object),
        [["1", 2.0, "1"]],
    ]
    costs = set()
    for x in stored:
        ledger = Ledger(100.0, 0.01, composition="sum")
        given = release(x, query, mechanism, ledger, delta=delta)
        costs.add(ledger.history[0].cost.epsilon)
        assert given.s_dp.dtype == float
    assert len(costs) == 1 and all(m is mechanism for m, _ in drawn)
    assert all(s.dtype == float and np.array_equal(s, drawn[0][1]) for _, s in drawn)


class Unreadable:
    "Records of a known shape that must not be read."

    shape, ndim = (3, 2), 2

    def __array__(self, *args, **kwargs):
        raise AssertionError("a record was read")


@dataclass(frozen=True)
class Undrawn(Mechanism):
    "Knows its price, but cannot draw."

    def cost(self, query, delta=0.0):
        return Cost(0.1)


TOTAL = Query(lambda x: x.sum(1), 1)
REFUSALS = {
    "a class": (TypeError, TOTAL, Laplace),
    "no mechanism": (TypeError, TOTAL, "laplace"),
    "no query": (TypeError, np.sum, Laplace(1.0)),
    "no private draw": (TypeError, TOTAL, Undrawn()),
    "off the grid": (ValueError, TOTAL, DiscreteLaplace(1.0)),
    "fractions to a count": (ValueError, replace(TOTAL, dim=2), BinomialResponse(5, 2.0, 9)),
    "fractions to a code": (ValueError, replace(TOTAL, dim=2), RandomisedResponse(0.9)),
    "halves to a code": (ValueError, replace(TOTAL, step=0.5, dim=2), RandomisedResponse(0.9)),
    "the wrong norm": (ValueError, replace(TOTAL, norm="l0"), Laplace(1.0)),
    "no delta": (ValueError, TOTAL, Gaussian(50.0)),
    "too dear": (dpsbi.BudgetError, TOTAL, Laplace(0.01)),
    "steps beyond counting": (
        ValueError,
        replace(TOTAL, sensitivity=1e30, step=1),
        DiscreteLaplace(1e30),
    ),
    "a scale beyond floats": (ValueError, SMOOTH_QUERY, SmoothLaplace(1e290)),
    "reduces over the batch": (ValueError, Query(lambda x: x.sum(), 1), Laplace(1.0)),
    "returns another dim": (ValueError, replace(TOTAL, dim=3), Laplace(1.0)),
    "fails on no records": (
        ValueError,
        Query(lambda x: x.max(1), 1, neighbours="add-remove"),
        Laplace(1.0),
    ),
}


@pytest.mark.parametrize("wrong", REFUSALS)
def test_what_is_wrong_in_public_is_refused_before_payment_and_reading(wrong, monkeypatch):
    error, query, mechanism = REFUSALS[wrong]
    monkeypatch.setattr(Query, "confidential", lambda *args: pytest.fail("a record was read"))
    ledger = Ledger(10.0, 1e-3, composition="sum")
    delta = 1e-4 if isinstance(mechanism, SMOOTH) else None
    with pytest.raises(error):
        release(np.zeros((3, 2)), query, mechanism, ledger, delta=delta)
    assert ledger.history == ()


def test_only_what_the_ledger_can_pay_is_looked_at():
    with pytest.raises(dpsbi.BudgetError):
        release(Unreadable(), TOTAL, Laplace(0.01), Ledger(1.0))


FOREVER = Ledger(1e9, 0.9, composition="sum")
NASTY = {
    "NaN": np.full((2, 3), np.nan),
    "infinite": np.full((2, 3), -np.inf),
    "huge": np.full((2, 3), 1e308),
    "low": np.full((2, 3), -1e308),
    "fractions": np.full((2, 3), 0.5),
    "text": [["a", None, "b"]] * 2,
    "object": np.array([[1, {}, 10**400]] * 2, object),
    "out of range": np.full((2, 3), 77),
    "none": np.zeros((0, 3)),
    "one": np.zeros((1, 3)),
    "zero": np.zeros((2, 3)),
    "complex": np.full((2, 3), 1j),
    "dates": np.full((2, 3), np.datetime64("2020-01-01")),
}


def first_row(r):
    return lambda x: np.concatenate([x, np.zeros((len(x), 1, x.shape[-1]))], 1)[:, 0, :r]


@pytest.mark.parametrize("data", NASTY)
@each_case
def test_after_payment_nothing_raises_or_warns(mechanism, query, delta, data):
    r = 3 if query.smoothness else query.rehearse((1, 3))
    query = replace(query, fn=first_row(r), neighbours="add-remove")
    paid = len(FOREVER.history)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        given = release(NASTY[data], query, mechanism, FOREVER, delta=1e-9 if delta else None)
    assert given.s_dp.shape == (r - bool(query.smoothness),) and np.isfinite(given.s_dp).all()
    assert len(FOREVER.history) == paid + 1


def test_a_query_that_fails_on_records_releases_all_the_same():
    def fails(x):
        if x.any():
            raise RuntimeError("secret")
        return x[:, :1]

    assert np.isfinite(release([1.0, 2.0], Query(fails, 1), Laplace(1.0), Ledger(1.0)).s_dp).all()


def test_values_out_of_range_are_cut_to_it():
    # one of 1600 trials goes astray with probability 1.6e-9
    drawn = BinomialResponse(400, 1e-12, 1)._prepare(Query(identity, 1, step=1))
    assert np.array_equal(drawn(np.array([7.0, -3.0, 1.0, 0.0])), [400, 0, 400, 0])
    far = BinomialResponse(4000, 5.0, 10)._prepare(Query(identity, 1, step=1))(
        np.array([77.0, -3.0])
    )
    se = math.sqrt(0.1875 / 4000)
    agrees(far / 4000, [0.75, 0.25], se, alarm=1e-8, verbose=False)  # as 10 and 0 are
    told = RandomisedResponse(1 - 1e-15, 3)._prepare(Query(identity, 1, "l0", step=1))
    assert np.array_equal(told(np.array([9.0, -1.0, 1.0])), [2, 0, 1])
    far = release(
        [1e300, -1e300, 3.0], Query(identity, 1, step=1), DiscreteLaplace(5.0), Ledger(1.0)
    ).s_dp
    assert np.all(np.abs(far - [2.0**53, -(2.0**53), 3.0]) < 200)


def test_noise_that_reaches_infinity_is_refused():
    "At a scale of 1e308, a sixth of all draws would be infinite; at the widest none is."
    for scale in (1e308, 1e302, 1e-302):
        with pytest.raises(ValueError, match="between 1e-301 and 1e301"):
            Laplace(scale)
    given = release(np.zeros(200), Query(identity, 1e300), Laplace(1e301), Ledger(1.0)).s_dp
    assert np.isfinite(given).all() and np.abs(given).max() > 1e301


# ---- smooth sensitivities of 0, and of infinity


def test_a_smooth_sensitivity_is_raised_to_the_floor():
    p = 4000
    query = Query(identity, math.inf, smoothness=1e-9, dim=p + 1)
    for floor, stated, used in (
        (0.5, 0.1, 0.5),
        (0.5, 0.0, 0.5),
        (0.5, -3.0, 0.5),
        (0.5, 2.0, 2.0),
    ):
        noise = SmoothLaplace(3.0, floor)._prepare(query)(np.append(np.zeros(p), stated))
        se = 3 * used / np.sqrt(p)
        agrees(np.abs(noise).mean(), 3 * used, se, alarm=1e-8, verbose=False)
        here, at = (SmoothLaplace(3.0, floor).log_prob([1.0], [0.0, v]) for v in (stated, used))
        assert here == at


def test_without_a_floor_the_scale_is_never_zero():
    "Noise of scale multiplier × 2^-900, which a value of 0 shows and any other swallows."
    query = Query(identity, math.inf, smoothness=1e-3, dim=3)
    for kind in SMOOTH:
        noise = kind(3.0)._prepare(query)(np.array([0.0, 7.0, 0.0]))
        assert 0 < abs(noise[0]) < 1e-265 and noise[1] == 7.0


@given(st.floats(0, 1e300), st.floats(1e-9, 1), st.floats(-1, 1))
def test_cut_sensitivities_stay_smooth(sensitivity, xi, part):
    other = sensitivity * math.exp(part * xi)
    a, b = (float(np.clip(v, 0.25, 2.0**901)) for v in (sensitivity, other))
    assert abs(math.log(a / b)) <= xi * (1 + 1e-9) + 1e-15 and min(a, 2.0**901) >= min(
        sensitivity, 2.0**901
    )


# ---- the scale of a real release

r = 26_000
ZEROS = np.zeros(r)
FREE = dict(sensitivity=1, dim=r)


def moments_of_discrete_laplace(scale):
    alpha = math.exp(-1 / scale)
    mean = 2 * alpha / (1 - alpha**2)
    return mean, math.sqrt(2 * alpha / (1 - alpha) ** 2 - mean**2)


ODDS = math.log(49)
# mechanism, values, its query, statistic of the draws, its mean, its sd for one draw, and the mean
# at 95 % of the noise
SCALES = {
    "Laplace": (Laplace(3.0), ZEROS, Query(identity, **FREE), np.abs, 3.0, 3.0, 2.85),
    "Gaussian": (
        Gaussian(3.0),
        ZEROS[:14_000],
        Query(identity, 1, "l2"),
        np.square,
        9.0,
        9 * math.sqrt(2),
        9 * 0.95**2,
    ),
    "DiscreteLaplace": (
        DiscreteLaplace(3.0),
        ZEROS,
        Query(identity, 1, step=1),
        np.abs,
        *moments_of_discrete_laplace(3.0),
        moments_of_discrete_laplace(2.85)[0],
    ),
    "DiscreteLaplace, off grid": (
        DiscreteLaplace(1.5, 0.5),
        ZEROS + 0.2,
        Query(identity, **FREE),
        np.abs,
        *(0.5 * v for v in moments_of_discrete_laplace(3.0)),
        0.5 * moments_of_discrete_laplace(2.85)[0],
    ),
    "SmoothLaplace": (
        SmoothLaplace(1.5),
        np.append(ZEROS, 2.0),
        Query(identity, math.inf, smoothness=1e-9, dim=r + 1),
        np.abs,
        3.0,
        3.0,
        2.85,
    ),
    "SmoothGaussian": (
        SmoothGaussian(1.5),
        np.append(ZEROS[:14_000], 2.0),
        Query(identity, math.inf, smoothness=1e-9, dim=14_001),
        np.square,
        9.0,
        9 * math.sqrt(2),
        9 * 0.95**2,
    ),
    "BinomialResponse": (
        BinomialResponse(20, 5.0, 30),
        ZEROS[:25_000],
        Query(identity, 1, step=1),
        lambda k: k / 20,
        1 / 8,
        math.sqrt(7 / 64 / 20),
        4.75 / 39.5,
    ),
    "RandomisedResponse": (
        RandomisedResponse(0.5, 50),
        ZEROS[:8000],
        Query(identity, 1, "l0", step=1),
        lambda v: v == 0,
        0.5,
        0.5,
        1 / (1 + 49 * math.exp(-ODDS / 0.95)),
    ),
}


@pytest.mark.parametrize("name", SCALES)
def test_a_real_release_draws_at_the_stated_scale(name):
    "One vectorised release; false alarms once in 10^7, and noise of 95 % of the stated is seen."
    mechanism, value, query, statistic, mean, sd, mean_at_95 = SCALES[name]
    delta = 1e-3 if mechanism.needs_delta else None
    given = release(value, query, mechanism, Ledger(1e9, 0.1, composition="sum"), delta=delta).s_dp
    se = sd / math.sqrt(len(given))
    assert abs(mean_at_95 - mean) > 8 * se  # 5.3 to alarm, 2.7 of power
    agrees(statistic(given).mean(), mean, se, alarm=1e-7, verbose=False)


VETTED = [case for case in RELEASED if not isinstance(case[0], BinomialResponse)]


@pytest.mark.parametrize(
    "mechanism, query, delta", VETTED, ids=lambda v: repr(v) if isinstance(v, Mechanism) else ""
)
def test_a_sampler_of_another_scale_cannot_draw(mechanism, query, delta, monkeypatch):
    dp = opendp_library()
    made = []

    def slip(make):
        def smaller(*args, **kwargs):
            made.append(kwargs)
            for name, change in (("scale", 0.8), ("prob", 1.1)):
                kwargs |= {name: kwargs[name] * change} if name in kwargs else {}
            return make(*args, **kwargs)

        return smaller

    for name in ("make_laplace", "make_gaussian", "make_randomized_response"):
        monkeypatch.setattr(dp.m, name, slip(getattr(dp.m, name)))
    ledger = Ledger(100.0, 0.01, composition="sum")
    with pytest.raises(RuntimeError, match="Nothing was drawn"):
        release(RECORD, query, mechanism, ledger, delta=delta)
    assert made and ledger.history == ()


def test_an_understated_price_cannot_be_released():
    class Cheap(Laplace):
        def cost(self, query, delta=0.0):
            return Cost(0.99 * super().cost(query).epsilon)

    class Cheaper(BinomialResponse):
        def cost(self, query, delta=0.0):
            return Cost(0.99 * super().cost(query).epsilon)

    for mechanism in (Cheap(3.0), Cheaper(5, 2.0, 9)):
        ledger = Ledger(100.0)
        with pytest.raises(RuntimeError):
            release(RECORD, Query(columns(2), 2, step=1), mechanism, ledger)
        assert ledger.history == ()


# ---- what a release holds, and its files


def test_a_release_holds_only_numbers_a_query_and_a_mechanism():
    query = Query(identity, 1)
    for wrong in (Laplace, "laplace", 3.0, None):
        with pytest.raises(TypeError, match="mechanism"):
            Release([1.0], query, wrong)
    with pytest.raises(TypeError, match="query"):
        Release([1.0], identity, Laplace(1.0))
    for dim, smooth in ((2, None), (3, 0.1)):
        with pytest.raises(ValueError, match="dim makes 2"):
            Release([1.0], Query(identity, 1, dim=dim, smoothness=smooth), Laplace(1.0))
    for wrong in ([np.nan], [np.inf], [], [[1.0]]):
        with pytest.raises(ValueError, match="finite numbers"):
            Release(wrong, query, Laplace(1.0))


@dataclass(frozen=True)
class Pair(Mechanism):
    "Two mechanisms in one: fields that are mechanisms, numbers, and tuples."

    first: Mechanism
    others: tuple = ()
    name: str = "pair"

    def sample(self, s, rng):
        return self.first.sample(s, rng)


@dataclass(frozen=True)
class Listing(Mechanism):
    values: list

    def sample(self, s, rng):
        return s


class Plain(Mechanism):
    def __init__(self, scale):
        self.scale = scale

    def sample(self, s, rng):
        return s


def saved(mechanism, path):
    Release([1.0], Query(identity, 1), mechanism).save(path)
    return Release.load(path).mechanism


@pytest.mark.parametrize(
    "mechanism",
    [m for m, _, _ in CASES]
    + [
        Pair(Laplace(2.0)),
        Pair(Pair(Gaussian(1.0)), (Laplace(3.0), 4, "x", None, (True, 1.5))),
        Pair(DiscreteLaplace(np.float64(2.0), np.int64(3))),
    ],
    ids=repr,
)
def test_a_mechanism_comes_back_as_itself(mechanism, tmp_path):
    again = saved(mechanism, tmp_path / "r.json")
    assert again == mechanism and type(again) is type(mechanism)


def test_a_class_of_the_same_name_never_replaces_ours(tmp_path):
    Theirs = type("Laplace", (Mechanism,), dict(scale=0.0, sample=lambda self, s, rng: s))
    path = tmp_path / "r.json"
    assert type(saved(Laplace(2.0), path)) is Laplace is not Theirs
    state = json.loads(path.read_text())
    path.write_text(json.dumps(state | dict(version=1, mechanism=dict(name="Laplace", scale=2.0))))
    assert Release.load(path).mechanism == Laplace(2.0)


@pytest.mark.parametrize("mechanism", [m for m, _, _ in CASES], ids=repr)
def test_old_files_still_load(mechanism, tmp_path):
    path = tmp_path / "r.json"
    saved(mechanism, path)
    state = json.loads(path.read_text())
    bare = dict(name=type(mechanism).__name__, **state["mechanism"]["fields"])
    path.write_text(json.dumps(state | dict(version=1, mechanism=bare)))
    assert Release.load(path).mechanism == mechanism


def test_old_files_of_a_name_that_none_or_several_have_are_refused(tmp_path):
    path = tmp_path / "r.json"
    saved(Pair(Laplace(2.0)), path)
    state = json.loads(path.read_text())
    for name, hint in (("Nowhere", "none has"), ("Same", "several have")):
        same = [type("Same", (Mechanism,), {}) for _ in range(2)]
        path.write_text(json.dumps(state | dict(version=1, mechanism=dict(name=name))))
        with pytest.raises(
            ValueError, match=f"not a release.*{hint}.*import the module that defines it"
        ):
            Release.load(path)
    assert len(same) == 2


IMPORT, GONE = "import the module that defines it", "this version of dpsbi has none of that name"


@pytest.mark.parametrize(
    "module, name, said",
    [
        ("elsewhere", "Odd", IMPORT),
        ("os", "system", IMPORT),
        ("dpsbi.mechanisms", "Nowhere", GONE),
        ("dpsbi.mechanisms", "release", GONE),
        ("dpsbi.mechanisms", "Laplace.cost", GONE),
        ("dpsbi.owner.abcdp", "abcdp", GONE),
        ("dpsbi", "abcdp", IMPORT),
        ("dpsbix.noise", "Laplace", IMPORT),  # begins so, and is not ours
        ("builtins", "dict", IMPORT),
        (3, None, "not a release"),
        (None, "Laplace", "not a release"),
        ("dpsbi.mechanisms", ["Laplace"], "not a release"),
    ],
)
@pytest.mark.parametrize("version", [2, 3])
def test_a_file_of_an_unknown_mechanism_says_what_to_do(module, name, said, version, tmp_path):
    path = tmp_path / "r.json"
    saved(Laplace(2.0), path)
    state = json.loads(path.read_text()) | dict(version=version)
    named = dict(module=module, name=name, fields=dict(scale=2.0))
    path.write_text(json.dumps(state | dict(mechanism=named)))
    with pytest.raises(ValueError, match=f"not a release.*{said}" if said[0] != "n" else said):
        Release.load(path)


def test_what_would_not_come_back_as_itself_is_not_saved(tmp_path):
    @dataclass(frozen=True)
    class Local(Laplace):
        pass

    @dataclass(frozen=True)
    class Forgetful(Laplace):
        def __post_init__(self):
            object.__setattr__(self, "scale", self.scale + 1)

    Forgetful.__qualname__ = "Forgetful"
    globals()["Forgetful"] = Forgetful
    wrong = {
        "dataclass": Plain(1.0),
        "does not lead back": Local(1.0),
        "fields? can be written": Listing([1.0]),
        "equal to itself": Forgetful(1.0),
        "field can be": Pair(np.ones(2)),
        "is not a dataclass": Pair(Plain(1.0)),
        "lead back": Pair(Local(2.0)),
    }
    for match, mechanism in wrong.items():
        with pytest.raises(
            TypeError, match=match.replace("fields? can be written", "field can be")
        ):
            saved(mechanism, tmp_path / "r.json")
    assert not (tmp_path / "r.json").exists()


def test_two_classes_of_one_name_clash(tmp_path):
    first = Pair(Laplace(1.0))
    again = dataclass(frozen=True)(
        type(
            "Pair",
            (Mechanism,),
            dict(__annotations__=dict(scale=float), __module__=__name__, sample=Laplace.sample),
        )
    )
    with pytest.raises(TypeError, match="does not lead back"):
        saved(again(1.0), tmp_path / "r.json")
    assert saved(first, tmp_path / "r.json") == first


# ---- noise that 64 bits, or floats, do not hold

COUNTED = Query(identity, 1, step=1, dim=1)
TOO_WIDE = {
    "just": DiscreteLaplace(1.0001 * 2**56),
    "3e18": DiscreteLaplace(3e18),
    "1e19": DiscreteLaplace(1e19),
    "1e30": DiscreteLaplace(1e30),
    "a fine step": DiscreteLaplace(1.0, step=1e-17),
    "normal": DiscreteGaussian(1e17),
    "normal 1e30": DiscreteGaussian(1e30),
    "normal, a fine step": DiscreteGaussian(1.0, step=1e-18),
    "stairs": Staircase(1e-17, 1, 1),
    "in a range": TruncatedGeometric(1e6, 0, 20),
    "in a range, 1e30": TruncatedGeometric(1e30, 0, 20),
    "published": dpsbi.Published(DiscreteLaplace(3e18), round_to=5),
    "one of two": dpsbi.Independent((DiscreteLaplace(3e18),)),
}


@pytest.mark.parametrize("kind", TOO_WIDE)
def test_noise_that_would_be_cut_off_is_refused_before_payment(kind):
    ledger = Ledger(1e20, 0.1, composition="sum")
    with pytest.raises(ValueError, match="64 bits|drawn again|can count"):
        release([3.0], COUNTED, TOO_WIDE[kind], ledger, delta=1e-3)
    assert ledger.history == ()


def test_the_widest_noise_is_not_cut_off():
    "Largest of 4000 values: below 2^62 except with probability 4000 exp(-64), 1e-24."
    scale = 2.0**56
    drawn = DiscreteLaplace(scale)._prepare(COUNTED)(np.full(4000, 2.0**53))
    assert np.abs(drawn).max() < 2.0**62
    agrees(np.abs(drawn - 2.0**53).mean(), scale, scale / np.sqrt(4000), alarm=1e-8, verbose=False)


@pytest.mark.parametrize("scale", [1e15, 1e17, 3e18, 1e19, 1e30, 1e200])
def test_simulated_noise_of_any_width_has_its_law(scale):
    "Numpy's own geometric numbers end at 2^63; 1e-8 is the false-alarm rate of each."
    z = DiscreteLaplace(scale).sample(np.zeros(4000), np.random.default_rng(1)) / scale
    agrees(np.abs(z).mean(), 1.0, 1 / np.sqrt(4000), alarm=1e-8, verbose=False)
    agrees(np.mean(z**2), 2.0, math.sqrt(20 / 4000), alarm=1e-8, verbose=False)


@pytest.mark.parametrize("step", [1.0, 2.0, 0.5, 0.1, 0.3, 3.0, 1e-3, 0.7, 2.0**-20, 1e6, 1 / 3])
def test_confidential_values_in_whole_steps_are_exact(step):
    "Against Python's fractions: every multiple, far out too, and rounding ties upwards."
    width = Fraction(repr(step))
    for k in [0, 1, -1, 3, 10**6 + 1, 2**31 - 1, -(2**31) + 1, 2**49 + 1, -(2**49) - 1]:
        assert whole_steps([float(k * width)], step) == [k]
    for v in (0.25, -0.25, 1e10 / 3, -7.77, 2.0**52 + 1, -(2.0**52) - 3):
        exact = math.floor(Fraction(v) / width + Fraction(1, 2))
        assert whole_steps([v], step) == [min(max(exact, -(2**62)), 2**62)]
    assert whole_steps([1.7e308, -1.7e308], step) == [2**62, -(2**62)]


def test_the_parts_of_a_release_have_their_own_limits():
    "The wide limit of one query lets no value of another lose its digits."
    loud, soft = Query(identity, 1e9, dim=1), Query(identity, 1, dim=1)
    both = dpsbi.join(Release([0.0], loud, Laplace(1e9)), Release([0.0], soft, Laplace(1.0)))
    drawn = both.mechanism._prepare(both.query)(np.array([1e18, 1e18]))
    assert abs(drawn[0] - 1e18) < 1e12 and abs(drawn[1] - 2.0**31) < 100


# ---- mechanisms of one's own


def normal(z):
    return -0.5 * np.square(z) - 0.5 * math.log(2 * math.pi)


class Duck:
    "Normal noise, of the shapes that are asked for; derives from nothing."

    def sample(self, s, rng):
        return s + rng.normal(size=np.shape(s))

    def log_prob(self, s_dp, s):
        return normal(np.subtract(s_dp, s)).sum(-1)


class DrawsAlone:
    def sample(self, s, rng):
        return s + rng.normal(size=np.shape(s))


@dataclass(frozen=True)
class Derived(Mechanism):
    "The same, by dpsbi's class, and with a price that is a bare number."

    sample = Duck.sample
    log_prob = Duck.log_prob

    def cost(self, query, delta=0.0):
        return 1.0


def own(name, base=Duck, **members):
    return type(name, (base,), members)()


def rows_alone(self, s, rng):
    n, r = s.shape
    return s + rng.normal(size=(n, r))


WRONG = {
    "draws for (n, r)": own("Mine", DrawsAlone, sample=rows_alone),
    "derived, for (n, r)": own("Mine", Mechanism, sample=rows_alone, log_prob=Duck.log_prob),
    "a sum of all": own("Mine", log_prob=lambda self, y, s: normal(y - s).sum()),
    "a sum over axis 1": own("Mine", log_prob=lambda self, y, s: normal(y - s).sum(1)),
    "a sum over axis 0": own("Mine", log_prob=lambda self, y, s: normal(y - s).sum(0)),
    "a loop over values": own(
        "Mine", log_prob=lambda self, y, s: float(sum(normal(a - b) for a, b in zip(y, s)))
    ),
    "no sum": own("Mine", log_prob=lambda self, y, s: normal(np.subtract(y, s))),
    "keepdims": own("Mine", log_prob=lambda self, y, s: normal(y - s).sum(-1, keepdims=True)),
    "None": own("Mine", log_prob=lambda self, y, s: None),
    "NaN": own("Mine", log_prob=lambda self, y, s: np.full(np.shape(s)[:-1], np.nan)),
    "infinite": own("Mine", log_prob=lambda self, y, s: np.full(np.shape(s)[:-1], np.inf)),
    "complex": own("Mine", log_prob=lambda self, y, s: 1j * Duck.log_prob(self, y, s)),
    "one draw": own("Mine", sample=lambda self, s, rng: rng.normal()),
    "draws in words": own("Mine", sample=lambda self, s, rng: np.asarray(s).astype(str)),
    "masked draws": own("Mine", sample=lambda self, s, rng: np.ma.array(s, mask=True)),
    "fewer draws": own("Mine", sample=lambda self, s, rng: np.asarray(s)[..., :1]),
    "a bound each": own("Mine", log_prob_max=lambda self, y: np.zeros(np.shape(y))),
}
OWN_MODEL = dpsbi.Model(
    dpsbi.Prior(a=stats.norm(0, 3), b=stats.norm(0, 3)),
    lambda theta, rng: theta + rng.normal(scale=0.3, size=theta.shape),
)
TWO = Query(identity, 1, dim=2)


def weighed(release):
    how = dict(rounds=2, simulations=500, rng=np.random.default_rng(0), progress=False)
    return dpsbi.importance(release, OWN_MODEL, **how)


METHODS = {
    "importance": weighed,
    "infer": lambda r: dpsbi.infer(r, OWN_MODEL, rng=np.random.default_rng(0), progress=False),
    "smc_abc": lambda r: dpsbi.smc_abc(
        r, OWN_MODEL, draws=9, rng=np.random.default_rng(0), progress=False
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_other_shapes_are_refused_by_name_with_what_came(wrong):
    seen = Release([1.0, 2.0], TWO, WRONG[wrong])
    for method in METHODS.values():
        with pytest.raises((ValueError, TypeError), match="Mine") as caught:
            method(seen)
        assert "broadcast" not in str(caught.value).split("but it raised")[0]
    if hasattr(seen.mechanism, "log_prob"):
        joined = dpsbi.join(seen, Release([1.0], replace(TWO, dim=1), Laplace(1.0)))
        with pytest.raises((ValueError, TypeError), match="Mine"):
            weighed(joined)


@pytest.mark.parametrize("mine", [Duck(), Derived()], ids=["duck", "derived"])
def test_the_right_shapes_weigh_as_the_package_does(mine):
    theirs, ours = (weighed(Release([1.0, 2.0], TWO, m)) for m in (mine, Gaussian(1.0)))
    assert np.allclose(theirs.mean(), ours.mean(), rtol=1e-9)
    for around in (
        lambda m: Release([1.0, 2.0], TWO, dpsbi.Independent((m, Laplace(1.0)))),
        lambda m: dpsbi.join(*(Release([v], replace(TWO, dim=1), m) for v in (1.0, 2.0))),
    ):
        query = TWO
        theirs, ours = (weighed(replace(around(m), query=query)) for m in (mine, Gaussian(1.0)))
        assert np.allclose(theirs.mean(), ours.mean(), rtol=1e-9)


def test_what_a_mechanism_lacks_is_said_where_it_is_needed():
    duck, draws = Release([1.0, 2.0], TWO, Duck()), Release([1.0, 2.0], TWO, DrawsAlone())
    rng, ledger = np.random.default_rng(0), Ledger(10.0)
    pair = dpsbi.Independent((Duck(), Laplace(1.0)))
    calls = [
        (
            TypeError,
            "Duck.*log_prob_max",
            lambda: dpsbi.exact_abc(duck, OWN_MODEL, draws=9, rng=rng),
        ),
        (
            TypeError,
            "Duck.*log_prob_max",
            lambda: dpsbi.exact_abc(Release([1.0, 2.0], TWO, pair), OWN_MODEL, draws=9, rng=rng),
        ),
        (TypeError, "Duck: transform", lambda: dpsbi.exact_delta(Duck(), [0.0], [1.0], 0.5)),
        (TypeError, "log_prob", lambda: dpsbi.exact_delta(DrawsAlone(), [0.0], [1.0], 0.5)),
        (TypeError, "one of dpsbi's", lambda: release([1.0, 2.0], TWO, Duck(), ledger)),
        (TypeError, "Derived has no private draw", lambda: release([1], TWO, Derived(), ledger)),
        (TypeError, "log_cdf.*step", lambda: dpsbi.Published(Duck(), round_to=1.0)),
        (TypeError, "dataclass", lambda: duck.save("never.json")),
        (ValueError, "DrawsAlone has no density", lambda: weighed(draws)),
        (
            ValueError,
            "neural=False",
            lambda: dpsbi.infer(draws, OWN_MODEL, rng=rng, neural=False, progress=False),
        ),
        (
            TypeError,
            "Derived.cost.*dpsbi.Cost",
            lambda: dpsbi.plan(
                OWN_MODEL,
                {"mine": lambda epsilon: (TWO, Derived())},
                epsilons=[1.0],
                rng=rng,
                progress=False,
            ),
        ),
    ]
    for error, match, call in calls:
        with pytest.raises(error, match=match):
            call()
    assert ledger.history == ()


def test_a_frozen_dataclass_of_ones_own_is_saved_and_audited(tmp_path):
    seen = Release([1.0, 2.0], TWO, Derived())
    seen.save(tmp_path / "mine.json")
    assert Release.load(tmp_path / "mine.json").mechanism == Derived()
    run = lambda x, rng, size: Derived().sample(np.full((size, 1), x), rng)
    found = dpsbi.audit(run, 0.0, 1.0, 0.1, rng=np.random.default_rng(0), runs=4000, progress=False)
    assert found.lower > 0.1  # normal noise of one sd is no 0.1


def test_draws_alone_make_point_sets_for_a_network():
    s = np.arange(6.0).reshape(3, 2)
    around = dpsbi.Independent((Duck(), Laplace(1.0)))
    for mechanism in (DrawsAlone(), around):
        assert noise_draws(mechanism, s, 4, np.random.default_rng(0)).shape == (3, 4, 2)


# ---- several queries side by side, each with noise of its own

WIDTHS = [(1, 2), (2, 1), (3,), (1, 1, 1)]


@pytest.mark.parametrize("sizes", WIDTHS + [(1, 1), (2, 2), (1, 3), (4, 1), (2,)], ids=str)
@pytest.mark.parametrize("dims", [(1, 2), (2, 1)], ids=str)
def test_noise_goes_with_the_query_that_it_is_priced_for(sizes, dims):
    """A block of another width puts the noise of one query on values of another, which move a
    hundred times as far: refused with nothing spent. The price, where it stands, by hand.
    """
    move = {1: 1.0, 2: 100.0}
    queries = tuple(
        Query(lambda x, d=d: move[d] * np.clip(x[:, :d], 0, 1), move[d], dim=d) for d in dims
    )
    both = Query(SideBySide(queries), 101.0)
    scales = {1: 10.0, 2: 1000.0, 3: 1000.0, 4: 1000.0}
    noise = Independent(tuple(dpsbi.Laplace(scales[size]) for size in sizes), sizes)
    ledger, x = dpsbi.Ledger(1e6), np.array([0.0, 1.0, 1.0])
    if sizes == dims:
        released = dpsbi.release(x, both, noise, ledger)
        assert released.s_dp.size == 3
        assert ledger.spent.epsilon == pytest.approx(1 / 10 + 100 / 1000, rel=1e-9)
    elif len(sizes) != len(dims) and sum(sizes) == 3:  # all of it for each block
        dpsbi.release(x, both, noise, ledger)
        assert ledger.spent.epsilon == pytest.approx(
            sum(101.0 / scales[size] for size in sizes), rel=1e-9
        )
    else:
        with pytest.raises(ValueError):
            dpsbi.release(x, both, noise, ledger)
        assert ledger.history == ()


def test_queries_side_by_side_state_how_many_values_they_have():
    vague = tuple(Query(lambda x, d=d: x[:, :d], 1.0) for d in (1, 2))
    ledger, noise = dpsbi.Ledger(9.0), Independent((dpsbi.Laplace(9.0),) * 2, (2, 1))
    with pytest.raises(ValueError, match="dim"):
        dpsbi.release(np.ones(3), Query(SideBySide(vague), 2.0), noise, ledger)
    assert ledger.history == ()


def test_a_release_counts_once_in_a_join():
    one, other = (dpsbi.Release([1.0], Query(identity, 1.0), dpsbi.Laplace(1.0)) for _ in "ab")
    assert join(one, other).s_dp.size == 2
    for twice in ((one, one), (one, other, one)):
        with pytest.raises(ValueError, match="twice"):
            join(*twice)


class Loud(Laplace):
    "Warns of what it draws around."

    def _prepare(self, query):
        draw = super()._prepare(query)

        def loud(s):
            warnings.warn(f"the confidential value is {s}")
            return draw(s)

        return loud


def test_a_draw_that_warns_of_the_records_is_heard_by_nobody(recwarn):
    count = Query(lambda x: x.sum(axis=1, keepdims=True), 1)
    found = release(np.ones(7), count, Loud(1.0), Ledger(2.0))
    assert found.s_dp.shape == (1,) and not recwarn.list


def test_a_loss_of_discrete_laplace_noise_counts_in_its_steps():
    noise, k = DiscreteLaplace(3.0, step=2.0), 2.0 * np.arange(-200, 201)[:, None]
    loss = noise.loss(Query(identity, 4.0, step=2, dim=1))
    p, q = (np.exp(noise.log_prob(k, np.array([there]))) for there in (0.0, 4.0))
    for epsilon in (0.3, 1.0, 1.3):
        exact = np.maximum(p - math.exp(epsilon) * q, 0).sum()
        assert loss.delta(epsilon) == pytest.approx(exact, rel=1e-9)


def test_values_near_the_largest_float_are_cut_before_the_noise():
    "Beyond it there is only infinity, which would tell on which side the noise fell."
    draw = vetted_noise("laplace", 1e305, 1e300, 1e-5)
    assert (np.abs(draw(np.full(20, np.finfo(float).max))) < 1e307).all()
