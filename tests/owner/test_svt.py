"""The sparse vector technique: the claimed cost against exact output probabilities, broken
variants, noise, refunds.
"""

import copy
import itertools
import math
import os
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special

from dpsbi.accounting.costs import Cost
from dpsbi.accounting.ledger import Ledger
from dpsbi.accounting.losses import PureLoss, RenyiLoss, ZCDPLoss, next_up
from dpsbi.checks.testing import follows_pmf
from dpsbi.owner import laplace_difference as laplace_difference
from dpsbi.owner.selection import NoisySmallest, noisy_smallest
from dpsbi.owner.svt import NOISES, Private, Run, Seeded, SparseVector
from dpsbi.owner.svt_loss import (
    log_pattern_probability,
    pattern_probability,
    privacy_loss,
    worst_loss,
)

PURE = ("laplace", "exponential")
quickly = settings(deadline=None, max_examples=60, derandomize=True)


@st.composite
def outputs(draw):
    "A plan, a stream of distances, a neighbour of it, and an output."
    steps, b1 = draw(st.integers(1, 6)), draw(st.floats(0.3, 30))
    plan = SparseVector(
        1.0,
        draw(st.integers(1, 4)),
        b1,
        b1 * draw(st.floats(1.01, 20)),
        draw(st.booleans()),
        draw(st.sampled_from(PURE)),
    )
    vector = lambda low, high: np.array(
        draw(st.lists(st.floats(low, high), min_size=steps, max_size=steps))
    )
    d, move = vector(-4 * b1, 4 * b1), vector(-1, 1)
    bits = np.array(draw(st.lists(st.booleans(), min_size=steps, max_size=steps)))
    stop = np.flatnonzero(bits.cumsum() == plan.count)
    return plan, d, d + move, bits[: stop[0] + 1] if stop.size else bits


@quickly
@given(outputs())
def test_no_output_costs_more_than_it_is_charged(case):
    plan, d, neighbour, bits = case
    claimed = plan.used(int(bits.sum()), pending=not bits[-1]).epsilon
    assert (
        privacy_loss(plan, d, neighbour, 0.0, bits) <= claimed * (1 + 1e-10) + 1e-11
    )  # rounding of two logarithms
    assert claimed <= plan.cost().epsilon


@pytest.mark.parametrize("noise, resample", list(itertools.product(PURE, (False, True))))
@pytest.mark.parametrize("budget", ("optimal", "paper"))
def test_the_claim_is_attained(noise, resample, budget):
    plan = SparseVector.calibrate(0.5, 2.0, 2, resample, budget, noise)
    assert 2 * (1 - 1e-6) < worst_loss(plan, 16) <= 2 * (1 + 1e-10)


def test_broken_variants_exceed_their_claim():
    lee_clifton = SparseVector(1.0, 6, 4.0, 4 / 3)  # claims 1; its query noise does not grow with c
    chen = SparseVector(1.0, 8, 2.0, 2.0)  # claims 1 for any number of accepts
    assert worst_loss(lee_clifton, 16, accepts=6) > 9 and worst_loss(chen, 20, accepts=8) > 8


@pytest.mark.parametrize("noise, resample", list(itertools.product(NOISES, (False, True))))
def test_probabilities_of_all_outputs_sum_to_one(noise, resample):
    plan, d, total = (
        SparseVector(1.0, 2, 0.7, 1.9, resample, noise, steps=4),
        [0.2, -1.0, 3.0, 0.0],
        0.0,
    )
    for bits in itertools.product((0, 1), repeat=4):
        hits = np.flatnonzero(bits)
        if len(hits) < 2:
            total += pattern_probability(plan, d, 0.1, bits)
        elif len(hits) == 2:
            total += pattern_probability(plan, d, 0.1, bits[: hits[1] + 1])
    assert abs(total - 1) < 1e-12


@quickly
@given(
    st.integers(1, 3000),
    st.floats(1e-3, 50),
    st.booleans(),
    st.sampled_from(("optimal", "paper")),
    st.sampled_from(PURE),
    st.booleans(),
)
def test_calibration_spends_at_most_epsilon_and_nearly_all(
    count, epsilon, resample, budget, noise, monotone
):
    cost = SparseVector.calibrate(
        0.01, epsilon, count, resample, budget, noise, monotone=monotone
    ).cost()
    assert epsilon * (1 - 1e-12) <= cost.epsilon <= epsilon and cost.delta == 0


@pytest.mark.parametrize(
    "noise, resample",
    [("gaussian", False), ("gaussian", True), ("exponential", True), ("laplace", True)],
)
def test_calibration_with_delta(noise, resample):
    plan = SparseVector.calibrate(0.01, 1.0, 200, resample, noise=noise, delta=1e-6, steps=1000)
    cost = plan.cost(1e-6)
    assert (
        0.999 < cost.epsilon <= 1 and cost.delta == 1e-6 and plan.used(3, delta=1e-6) == cost
    )  # no refund where δ was used
    if noise != "gaussian":
        assert plan.cost().epsilon > 2  # the composition is what made it cheap


def test_used_grows_with_the_accepts_up_to_the_cost():
    for resample in (False, True):
        plan = SparseVector.calibrate(1.0, 1.0, 6, resample)
        used = [plan.used(k).epsilon for k in range(7)]
        assert used == sorted(used) and used[0] > 0 and used[-1] == plan.cost().epsilon
        assert plan.used(2, pending=False).epsilon < plan.used(2).epsilon or not resample


def test_run_stops_at_its_count_and_is_right_where_noise_is_small():
    d = np.array([5.0, 1.0, 9.0, 2.0, 0.5, 7.0, 1.5])
    for noise, resample in itertools.product(NOISES, (False, True)):
        plan = SparseVector(1e-9, 3, 1e-9, 2e-9, resample, noise, steps=7)
        for source in (Private(), Seeded(np.random.default_rng(0))):
            run = plan.run(d, 3.0, source, delta=0.1)
            assert run.accepted.tolist() == [1, 3, 4] and run.complete
    late = SparseVector(1e-9, 9, 1e-9, 2e-9).run(d, 3.0, Private())
    assert (
        late.accepted.tolist() == [1, 3, 4, 6]
        and not late.complete
        and late.cost == SparseVector(1e-9, 9, 1e-9, 2e-9).used(4)
    )


def test_resampled_stream_in_batches_tracks_pending():
    plan = SparseVector(1e-9, 3, 1e-9, 2e-9, resample=True)
    source = Seeded(np.random.default_rng(1))
    state = plan.begin(source)
    for batch, accepts, pending in (
        ([5.0], 0, True),
        ([1.0], 1, False),
        ([1.0, 5.0], 2, True),
        ([], 2, True),
        ([1.0, 1.0], 3, False),
    ):
        state, _ = plan.extend(state, batch, 3.0, source)
        assert (state.accepts, state.pending) == (accepts, pending)


def test_private_noise_is_not_cut_at_32_bits():
    for noise in NOISES:
        assert np.abs(Private().draw(noise, 1e13, 50)).max() > 2**32


@pytest.mark.parametrize("noise", NOISES)
def test_accept_probability(noise):
    plan, gap = SparseVector(1.0, 2, 0.8, 3.0, noise=noise, steps=9), np.linspace(-60, 60, 501)
    p = plan.accept_probability(gap)
    assert (
        abs(plan.accept_probability(0.0) - 0.5) < 1e-15
        and np.all(np.diff(p) <= 0)
        and p[0] > 0.999
        and p[-1] < 1e-3
    )
    single = [
        pattern_probability(SparseVector(1.0, 1, 0.8, 3.0, noise=noise, steps=1), [g], 0.0, [1])
        for g in gap[::50]
    ]
    assert np.allclose(single, p[::50], rtol=1e-11, atol=1e-300)


def test_smallest():
    d = np.random.default_rng(2).permutation(100) * 1.0
    assert sorted(d[noisy_smallest(d, 5, 1e-6, 1.0, source=Private())]) == [0, 1, 2, 3, 4]
    assert sorted(d[noisy_smallest(d, 50, 1e-6, 1.0, source=Private(), delta=1e-6)]) == list(
        range(50)
    )
    for count, delta in ((3, 0.0), (500, 1e-6)):
        plan = NoisySmallest.calibrate(0.1, 1.0, count, delta=delta)
        assert 1 - 1e-9 < plan.cost(delta).epsilon <= 1
    assert plan.noise == "gumbel" and plan.cost().epsilon > 2


def test_refusals():
    for bad in (
        dict(count=0),
        dict(count=1.5),
        dict(b_query=0),
        dict(noise="cauchy"),
        dict(noise="gaussian"),
        dict(sensitivity=np.inf),
        dict(b_query=1e12),
    ):
        with pytest.raises(ValueError):
            SparseVector(**(dict(sensitivity=1.0, count=1, b_threshold=1.0, b_query=2.0) | bad))
    plan = SparseVector(1.0, 2, 1.0, 2.0)
    for distances in ([[1.0]], 3.0):
        with pytest.raises(ValueError):
            plan.run(distances, 0.0, Private())
        with pytest.raises(ValueError):
            NoisySmallest(1.0, 1, 1.0).run(distances, Private())
    with pytest.raises(ValueError):
        plan.run([1.0], np.nan, Private())
    with pytest.raises(ValueError):
        noisy_smallest([1.0], 2, 1.0, 1.0, source=Private())
    with pytest.warns(UserWarning, match="hangs"):
        SparseVector(1.0, 2, 2.0, 2.0, resample=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for monotone, noise in itertools.product(
            (False, True), PURE
        ):  # calibrated plans never hang
            SparseVector.calibrate(1.0, 1.0, 4, True, noise=noise, monotone=monotone)


# ---- the grid: what is paid for


class Spy:
    "Noise from nowhere: it notes the laws and scales that a run asks for, and gives zeros."

    private = True

    def __init__(self):
        self.scales, self.values = [], None

    def draw(self, noise, scale, size):
        self.scales.append(scale)
        return np.zeros(size, np.int64)

    def gumbel_smallest(self, values, count, scale):
        self.scales.append(scale)
        self.values = values
        return np.arange(count)


def drawn_scales(plan):
    "Scales of m and ν, in steps, that the run hands to the sampler."
    spy = Spy()
    plan.run([np.inf], 0.0, spy)
    return spy.scales


def on_grid(d, sensitivity):
    "Distances in steps, by way of the exponential mechanism, which is handed them."
    spy = Spy()
    NoisySmallest(sensitivity, 1, 1.0 * sensitivity, noise="gumbel").run(d, spy)
    return spy.values


@quickly
@given(st.floats(1e-300, 1e300), st.integers(-(2**40), 2**40), st.floats(0, 1))
def test_rounding_moves_no_distance_further_than_it_is_charged(sensitivity, place, share):
    step = math.ldexp(1.0, math.frexp(sensitivity)[1] - 21)
    edge = float((place + 0.5) * step) if math.isfinite(place * step) else 0.5 * step
    low = np.nextafter(edge, -np.inf)
    high = low + share * sensitivity
    while Fraction(high) - Fraction(low) > Fraction(sensitivity):
        high = np.nextafter(high, -np.inf)
    moved = int(np.ptp(on_grid([low, high], sensitivity)))
    b = 3.0 * sensitivity
    scale = drawn_scales(SparseVector(sensitivity, 1, b, 2 * b))[0]
    assert moved / scale <= sensitivity / b
    assert scale <= 3.0 * (sensitivity / step + 1) * (1 + 1e-14)  # and no more than a step is paid


def log_probability_on_grid(gaps, pattern, b1, b2):
    """log Pr(pattern), exponential noise in whole steps, one threshold: the sum over every m. By
    hand, apart from the library.
    """
    rejected = [g for g, accept in zip(gaps, pattern) if not accept]
    top = min([0, *(g - 1 for g in rejected)])
    m = np.arange(top - int(45 * b1), top + 1)
    log_p = math.log(-math.expm1(-1 / b1)) + m / b1
    for gap, accept in zip(gaps, pattern):
        below = np.minimum(m - gap, 0) / b2
        log_p += below if accept else np.log(-np.expm1(below))
    return special.logsumexp(log_p)


def apart(edge, move):
    "Two values at most `move` apart, the lower one just below an edge of rounding."
    low = np.nextafter(edge, -np.inf)
    high = low + move
    while Fraction(high) - Fraction(low) > Fraction(move):
        high = np.nextafter(high, -np.inf)
    return low, high


@pytest.mark.thorough
@pytest.mark.parametrize("error", (0.0, 1e-9, 0.1, 0.4))
def test_the_error_of_distances_and_their_rounding_are_charged(error):
    S = 1.0 + 2 * error  # what the computed distances of neighbours move
    plan = SparseVector(S, 2, S / 20, S / 10, noise="exponential")
    scales, step = drawn_scales(plan), math.ldexp(1.0, math.frexp(S)[1] - 21)
    (r, moved_r), (a, moved_a) = apart(-3 - step / 2, S), apart(step / 2, S)
    d, neighbour = on_grid([moved_r, a, a], S), on_grid([r, moved_a, moved_a], S)
    loss = log_probability_on_grid(d, (0, 1, 1), *scales) - log_probability_on_grid(
        neighbour, (0, 1, 1), *scales
    )
    charge = plan.cost().epsilon
    assert charge * (1 - 2e-9 - 1e-6 * (error == 0)) <= loss <= charge * (1 + 1e-11)


def test_what_is_no_number_is_never_accepted():
    d = np.array([np.nan, 2.0, np.inf, 1e300, -5.0, np.nan])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for noise in NOISES:
            run = SparseVector(1e-3, 5, 1.0, 2.0, noise=noise, steps=6).run(
                d, 1e305, Private(), delta=0.1
            )
            assert run.accepted.tolist() == [1, 4] or run.accepted.tolist() == [1, 3, 4]
            assert (
                not SparseVector(1.0, 1, 1.0, 2.0, noise=noise, steps=6)
                .run([np.nan, np.inf], np.inf, Private(), delta=0.1)
                .accepted.size
            )
        for noise in ("exponential", "gumbel"):
            assert NoisySmallest(1.0, 2, 1.0, noise).run(d, Private()).tolist() == [1, 4]


# ---- costs and their losses


def outputs_of(steps, count):
    "All patterns that a run can put out."
    for bits in itertools.product((0, 1), repeat=steps):
        hits = np.flatnonzero(bits)
        if len(hits) < count:
            yield bits
        elif len(hits) == count and not any(bits[hits[-1] + 1 :]):
            yield bits[: hits[-1] + 1]


ORDERS = np.array([1.05, 1.5, 3.0, 10.0, 100.0])


@pytest.mark.parametrize(
    "noise, resample",
    [
        ("exponential", False),
        ("exponential", True),
        ("laplace", True),
        ("gaussian", False),
        ("gaussian", True),
    ],
)
def test_the_loss_bounds_exact_divergences(noise, resample):
    plan = SparseVector(1.0, 2, 1.2, 2.3, resample, noise, steps=4)
    loss, patterns = plan.cost(1e-3 if noise == "gaussian" else 0.0).loss, list(outputs_of(4, 2))
    bound, rng, share = loss.renyi(ORDERS), np.random.default_rng(3), []
    for case in range(8):
        move = np.array([-1, 1, -1, 1]) * (-1) ** case
        d = plan.offset + (np.zeros(4) if case < 2 else rng.normal(0, 2, 4))
        p, q = (
            np.array([log_pattern_probability(plan, v, 0.0, b) for b in patterns])
            for v in (d, d + move)
        )
        exact = np.array([special.logsumexp(a * p + (1 - a) * q) / (a - 1) for a in ORDERS])
        assert (exact <= bound).all()
        share.append((exact / bound)[-1])
    assert max(share) > (
        0 if noise == "gaussian" else 0.4
    )  # Gaussian: its constants are pinned below


def test_costs_state_the_loss_that_they_are_of():
    threshold, accept = 1 / 4.0, 2 / 9.0
    plan = lambda noise, resample: SparseVector(1.0, 3, 4.0, 9.0, resample, noise, steps=10)
    least = lambda exact: PureLoss(next_up(exact))
    each, other = Fraction(1, 4), Fraction(2, 9)
    assert plan("laplace", False).cost().loss == least(each + 3 * other)
    assert plan("exponential", True).cost().loss.parts == ((least(each + other), 3),)
    for resample, thresholds in ((False, 1), (True, 3)):
        loss = plan("gaussian", resample).cost(1e-6).loss
        assert isinstance(loss, RenyiLoss)
        assert math.isclose(
            loss.slope, (thresholds * threshold**2 + 3 * accept**2) / 2, rel_tol=1e-14
        )
        assert math.isclose(
            loss.constant, math.log(sum(math.comb(10, k) for k in range(4))), rel_tol=1e-12
        )
    assert NoisySmallest(1.0, 3, 9.0).cost().loss == least(3 * other)
    for delta in (0.0, 1e-6):
        loss = NoisySmallest(1.0, 3, 9.0, "gumbel").cost(delta).loss
        assert isinstance(loss, ZCDPLoss) and math.isclose(
            loss.rho, 3 * accept**2 / 8, rel_tol=1e-14
        )
    for one, delta in (
        (plan("gaussian", True), 1e-6),
        (plan("exponential", True), 0.3),
        (NoisySmallest(1.0, 50, 900.0, "gumbel"), 1e-3),
    ):
        cost = one.cost(delta)
        assert cost.delta == delta and cost.epsilon == cost.loss.epsilon(delta)


# ---- settling


def test_a_run_proves_what_it_used_and_nothing_else_settles():
    plan, other = (
        SparseVector.calibrate(0.01, 1.0, 10, noise="exponential"),
        SparseVector.calibrate(0.01, 0.5, 10),
    )
    run = plan.run(np.full(30, 9.0), 0.1, Private())
    assert run.granted == plan.cost() and run.used == run.cost == plan.used(0) and not run.complete
    ledger = Ledger(1.0)
    entry = ledger.spend(plan.cost(), "run")
    for wrong in (plan.used(0), 0.1, Cost(0.1)):
        with pytest.raises(TypeError):
            ledger.settle(entry, wrong)
    with pytest.raises(ValueError):
        ledger.settle(entry, other.run(np.full(30, 9.0), 0.1, Private()))
    assert ledger.spent == plan.cost()
    ledger.settle(entry, run)
    assert ledger.spent == plan.used(0) and 0 < ledger.spent.epsilon < 0.3


def test_a_resampled_run_pays_for_a_threshold_only_if_it_was_used():
    plan = SparseVector(1e-9, 3, 1e-9, 2e-9, resample=True)
    for d, accepts, pending in (
        ([5.0, 1.0], 1, False),
        ([1.0, 5.0], 1, True),
        ([1.0, 5.0, 1.0], 2, False),
        ([5.0], 0, True),
    ):
        run = plan.run(d, 3.0, Private())
        assert run.used == plan.used(accepts, pending) and len(run.accepted) == accepts
        assert run.used.epsilon == accepts * 2.0 + pending


def test_where_losses_compose_the_whole_grant_stays():
    plan = SparseVector.calibrate(0.01, 1.0, 10, True, noise="exponential")
    ledger = Ledger(rho=1.0)
    entry = ledger.spend(plan.cost(), "run")
    before = ledger.spent.rho
    ledger.settle(entry, plan.run(np.full(30, 9.0), 0.1, Private()))
    assert ledger.spent.rho == before == plan.cost().loss.rho > 0


def test_no_refund_where_delta_was_used():
    for plan, delta in (
        (SparseVector.calibrate(0.01, 1.0, 50, True, noise="exponential", delta=1e-4), 1e-4),
        (NoisySmallest.calibrate(0.01, 1.0, 3, delta=1e-4), 1e-4),
    ):
        nothing = Run(plan, np.empty(0, int), True, delta)
        assert nothing.used == nothing.granted == plan.cost(delta)


@pytest.mark.parametrize("resample", [False, True])
def test_runs_follow_the_exact_pattern_probabilities(resample):
    """Which of four comparisons are accepted, in 4,000 runs of the noise on the grid: false-alarm
    rate 1e-6 each.
    """
    plan = SparseVector(1.0, 3, 1.0, 2.0, resample, "laplace")
    distances, source = np.array([0.0, 0.5, -0.5, 0.0]), Seeded(np.random.default_rng(7))
    patterns = [
        p for p in itertools.product((0, 1), repeat=4) if sum(p) < 3 or (sum(p) == 3 and p[-1])
    ] + [(1, 1, 1, 0)]
    exact = [
        pattern_probability(plan, distances, 0.0, p[:3] if p == (1, 1, 1, 0) else p)
        for p in patterns
    ]
    assert sum(exact) == pytest.approx(1, abs=1e-9)
    seen = []
    for _ in range(4000):
        accepted = np.zeros(4, int)
        accepted[plan.run(distances, 0.0, source).accepted] = 1
        seen.append(int("".join(map(str, accepted)), 2))
    follows_pmf(np.array(seen), [int("".join(map(str, p)), 2) for p in patterns], exact)


# ---- a run in progress


def again(plan, source):
    "A state that was extended, and the one after it."
    state = plan.begin(source)
    return state, plan.extend(state, [9.0], 0.0, source)[0]


TINY = SparseVector(1e-9, 2, 1e-9, 2e-9, steps=5)
SOURCE = Seeded(np.random.default_rng(5))
TWICE = {
    "extended twice": lambda old, new: TINY.extend(old, [9.0], 0.0, SOURCE),
    "extended twice by nothing": lambda old, new: TINY.extend(old, [], 0.0, SOURCE),
    "extended at another threshold": lambda old, new: TINY.extend(old, [9.0], 1.0, SOURCE),
    "extended, then finished": lambda old, new: TINY.finish(old, []),
    "finished twice": lambda old, new: [TINY.finish(new, []), TINY.finish(new, [])],
    "finished, then extended": lambda old, new: [
        TINY.finish(new, []),
        TINY.extend(new, [9.0], 0.0, SOURCE),
    ],
    "after its accepts": lambda old, new: TINY.extend(
        TINY.extend(new, [-9.0, -9.0], 0.0, SOURCE)[0], [9.0], 0.0, SOURCE
    ),
    "in another plan": lambda old, new: replace(TINY, count=3).extend(new, [9.0], 0.0, SOURCE),
    "in a longer plan": lambda old, new: replace(TINY, steps=9).extend(new, [9.0], 0.0, SOURCE),
    "finished by another plan": lambda old, new: replace(TINY, b_query=3e-9).finish(new, []),
    "copied": lambda old, new: copy.copy(new),
    "copied deep": lambda old, new: copy.deepcopy(new),
    "pickled": lambda old, new: pickle.loads(pickle.dumps(new)),
    "in a list that is copied": lambda old, new: copy.deepcopy([new]),
    "replaced": lambda old, new: replace(new, accepts=0),
    "beyond the steps": lambda old, new: TINY.extend(new, [9.0] * 5, 0.0, SOURCE),
}


@pytest.mark.parametrize("how", TWICE)
def test_a_state_is_used_once(how):
    with pytest.raises((ValueError, TypeError)):
        TWICE[how](*again(TINY, SOURCE))


def test_two_passes_over_one_threshold_cost_more_than_their_plan():
    "Accepts of both passes, by quadrature: those of a run of one threshold and twice the accepts."
    for noise in PURE:
        plan = SparseVector.calibrate(1.0, 1.0, 1, noise=noise)
        assert worst_loss(plan, 8) <= 1 + 1e-10
        assert worst_loss(replace(plan, count=2), 8, accepts=2) > 1.5


@pytest.mark.parametrize("noise, resample", list(itertools.product(NOISES, (False, True))))
@pytest.mark.parametrize("batches", [(10, 1), (4, 4, 4), (1,) * 11, (11,), (0, 3, 8)], ids=str)
def test_a_stream_is_held_to_its_steps_before_anything_is_drawn(noise, resample, batches):
    plan = SparseVector(1.0, 3, 1.0, 2.0, resample, noise, steps=10)
    source = Spy()
    state = plan.begin(source)
    for size in batches[:-1]:
        state, accepted = plan.extend(state, np.full(size, 9.0), 0.0, source)
        assert accepted.size == 0
    drawn = len(source.scales)
    with pytest.raises(ValueError, match="at most 10 comparisons, not"):
        plan.extend(state, np.full(batches[-1], 9.0), 0.0, source)
    assert len(source.scales) == drawn
    rest = 10 - sum(batches[:-1])  # what was refused has used nothing
    assert plan.finish(plan.extend(state, [9.0] * rest, 0.0, source)[0], []).accepted.size == 0
    with pytest.raises(ValueError, match="at most 10"):
        plan.run(np.full(11, 9.0), 0.0, source)


def test_a_state_that_was_begun_before_a_fork_goes_on_in_one_process():
    plan, source = SparseVector(1e-9, 2, 1e-9, 2e-9), SOURCE
    state = plan.begin(source)
    child = os.fork()
    if child == 0:
        try:
            plan.extend(state, [9.0], 0.0, source)
        except ValueError as error:
            os._exit(0 if "another process" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert plan.extend(state, [-9.0], 0.0, source)[1].tolist() == [0]


def test_of_many_threads_one_extends():
    plan = SparseVector(1e-9, 2, 1e-9, 2e-9)
    state = plan.begin(SOURCE)

    def extends(_):
        try:
            return bool(plan.extend(state, [9.0] * 50, 0.0, Spy()))
        except ValueError:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(extends, range(64))) == 1


def test_a_state_shows_no_noise():
    state = SparseVector(1e-9, 2, 1e-9, 2e-9).begin(SOURCE)
    assert str(state._noise[0]) not in repr(state) + str(state)


NO_RUN = [
    [0, 1, 2],
    [1, 1],
    [1, 0],
    [-1],
    [0.5],
    [0.0, 1.0],
    [[0, 1]],
    3,
    [True, False],
    ["0"],
    [None],
]


@pytest.mark.parametrize("accepted", NO_RUN, ids=str)
def test_what_no_run_accepts_is_no_proof(accepted):
    for plan in (SparseVector(1.0, 2, 4.0, 8.0), NoisySmallest(1.0, 2, 4.0)):
        with pytest.raises(ValueError, match="accepts at most 2 indices"):
            Run(plan, accepted)


@pytest.mark.parametrize("accepted", [[], [1], [1, 2], [0, 4]], ids=str)
def test_a_stream_ends_with_its_own_accepts(accepted):
    state, found = TINY.extend(TINY.begin(SOURCE), [-9.0, 9.0, 9.0, -9.0], 0.0, SOURCE)
    with pytest.raises(ValueError):
        TINY.finish(state, accepted if accepted != [1, 2] else [1])
    done = TINY.finish(state, found)  # a refusal has used nothing
    assert done.complete and done.used == TINY.cost()


@pytest.mark.parametrize("accepts", [-1, 1.5, 1.0, True, None, "1", np.nan])
def test_a_price_is_of_a_whole_number_of_accepts(accepts):
    with pytest.raises(ValueError):
        SparseVector(1.0, 2, 4.0, 8.0).used(accepts)


@pytest.mark.parametrize("scales", [(1.0, 1.0), (0.5, 2.0)])
def test_the_density_of_a_difference_has_the_integral_one(scales):
    half = integrate.quad(lambda a: float(laplace_difference._density(a, *scales)), 0, np.inf)[0]
    assert 2 * half == pytest.approx(1, rel=1e-8)
