"""The sparse vector technique: the claimed cost against exact output probabilities, broken variants, noise, refunds."""
import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dpsbi.owner.svt import (NOISES, NoisySmallest, Private, Seeded, SparseVector, noisy_smallest, pattern_probability, privacy_loss, worst_loss)

PURE = ("laplace", "exponential")
quickly = settings(deadline=None, max_examples=60, derandomize=True)


@st.composite
def outputs(draw):
    "A plan, a stream of distances, a neighbour of it, and an output."
    steps, b1 = draw(st.integers(1, 6)), draw(st.floats(0.3, 30))
    plan = SparseVector(1.0, draw(st.integers(1, 4)), b1, b1 * draw(st.floats(1.01, 20)), draw(st.booleans()), draw(st.sampled_from(PURE)))
    vector = lambda low, high: np.array(draw(st.lists(st.floats(low, high), min_size=steps, max_size=steps)))
    d, move = vector(-4 * b1, 4 * b1), vector(-1, 1)
    bits = np.array(draw(st.lists(st.booleans(), min_size=steps, max_size=steps)))
    stop = np.flatnonzero(bits.cumsum() == plan.count)
    return plan, d, d + move, bits[: stop[0] + 1] if stop.size else bits


@quickly
@given(outputs())
def test_no_output_costs_more_than_it_is_charged(case):
    plan, d, neighbour, bits = case
    claimed = plan.used(int(bits.sum()), pending=not bits[-1]).epsilon
    assert privacy_loss(plan, d, neighbour, 0.0, bits) <= claimed * (1 + 1e-10) + 1e-11      # rounding of two logarithms
    assert claimed <= plan.cost().epsilon


@pytest.mark.parametrize("noise, resample", list(itertools.product(PURE, (False, True))))
@pytest.mark.parametrize("budget", ("optimal", "paper"))
def test_the_claim_is_attained(noise, resample, budget):
    plan = SparseVector.calibrate(0.5, 2.0, 2, resample, budget, noise)
    assert 2 * (1 - 1e-6) < worst_loss(plan, 16) <= 2 * (1 + 1e-10)


def test_broken_variants_exceed_their_claim():
    lee_clifton = SparseVector(1.0, 6, 4.0, 4 / 3)                  # claims 1; its query noise does not grow with c
    chen = SparseVector(1.0, 8, 2.0, 2.0)                           # claims 1 for any number of accepts
    assert worst_loss(lee_clifton, 16, accepts=6) > 9 and worst_loss(chen, 20, accepts=8) > 8


@pytest.mark.parametrize("noise, resample", list(itertools.product(NOISES, (False, True))))
def test_probabilities_of_all_outputs_sum_to_one(noise, resample):
    plan, d, total = SparseVector(1.0, 2, 0.7, 1.9, resample, noise, steps=4), [0.2, -1.0, 3.0, 0.0], 0.0
    for bits in itertools.product((0, 1), repeat=4):
        hits = np.flatnonzero(bits)
        if len(hits) < 2:
            total += pattern_probability(plan, d, 0.1, bits)
        elif len(hits) == 2:
            total += pattern_probability(plan, d, 0.1, bits[: hits[1] + 1])
    assert abs(total - 1) < 1e-12


@quickly
@given(st.integers(1, 3000), st.floats(1e-3, 50), st.booleans(), st.sampled_from(("optimal", "paper")), st.sampled_from(PURE), st.booleans())
def test_calibration_spends_at_most_epsilon_and_nearly_all(count, epsilon, resample, budget, noise, monotone):
    cost = SparseVector.calibrate(0.01, epsilon, count, resample, budget, noise, monotone=monotone).cost()
    assert epsilon * (1 - 1e-12) <= cost.epsilon <= epsilon and cost.delta == 0


@pytest.mark.parametrize("noise, resample", [("gaussian", False), ("gaussian", True), ("exponential", True), ("laplace", True)])
def test_calibration_with_delta(noise, resample):
    plan = SparseVector.calibrate(0.01, 1.0, 200, resample, noise=noise, delta=1e-6, steps=1000)
    cost = plan.cost(1e-6)
    assert 0.999 < cost.epsilon <= 1 and cost.delta == 1e-6 and plan.used(3, delta=1e-6) == cost       # no refund where δ was used
    if noise != "gaussian":
        assert plan.cost().epsilon > 2                              # the composition is what made it cheap


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
    assert late.accepted.tolist() == [1, 3, 4, 6] and not late.complete and late.cost == SparseVector(1e-9, 9, 1e-9, 2e-9).used(4)


def test_resampled_stream_in_batches_tracks_pending():
    plan = SparseVector(1e-9, 3, 1e-9, 2e-9, resample=True)
    source = Seeded(np.random.default_rng(1))
    state = plan.begin(source)
    for batch, accepts, pending in (([5.0], 0, True), ([1.0], 1, False), ([1.0, 5.0], 2, True), ([], 2, True), ([1.0, 1.0], 3, False)):
        state, _ = plan.extend(state, batch, 3.0, source)
        assert (state.accepts, state.pending) == (accepts, pending)


def test_private_noise_is_not_cut_at_32_bits():
    for noise in NOISES:
        assert np.abs(Private().draw(noise, 1e13, 50)).max() > 2**32


@pytest.mark.parametrize("noise", NOISES)
def test_accept_probability(noise):
    plan, gap = SparseVector(1.0, 2, 0.8, 3.0, noise=noise, steps=9), np.linspace(-60, 60, 501)
    p = plan.accept_probability(gap)
    assert abs(plan.accept_probability(0.0) - 0.5) < 1e-15 and np.all(np.diff(p) <= 0) and p[0] > 0.999 and p[-1] < 1e-3
    single = [pattern_probability(SparseVector(1.0, 1, 0.8, 3.0, noise=noise, steps=1), [g], 0.0, [1]) for g in gap[::50]]
    assert np.allclose(single, p[::50], rtol=1e-11, atol=1e-300)


def test_smallest():
    d = np.random.default_rng(2).permutation(100) * 1.0
    assert sorted(d[noisy_smallest(d, 5, 1e-6, 1.0, source=Private())]) == [0, 1, 2, 3, 4]
    assert sorted(d[noisy_smallest(d, 50, 1e-6, 1.0, source=Private(), delta=1e-6)]) == list(range(50))
    for count, delta in ((3, 0.0), (500, 1e-6)):
        plan = NoisySmallest.calibrate(0.1, 1.0, count, delta=delta)
        assert 1 - 1e-9 < plan.cost(delta).epsilon <= 1
    assert plan.noise == "gumbel" and plan.cost().epsilon > 2


def test_refusals():
    for bad in (dict(count=0), dict(count=1.5), dict(b_query=0), dict(noise="cauchy"), dict(noise="gaussian"), dict(sensitivity=np.inf), dict(b_query=1e12)):
        with pytest.raises(ValueError):
            SparseVector(**(dict(sensitivity=1.0, count=1, b_threshold=1.0, b_query=2.0) | bad))
    plan = SparseVector(1.0, 2, 1.0, 2.0)
    for distances in ([np.nan], [[1.0]], 3.0):
        with pytest.raises(ValueError):
            plan.run(distances, 0.0, Private())
    with pytest.raises(ValueError):
        noisy_smallest([1.0], 2, 1.0, 1.0, source=Private())
    with pytest.warns(UserWarning, match="hangs"):
        SparseVector(1.0, 2, 2.0, 2.0, resample=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for monotone, noise in itertools.product((False, True), PURE):   # calibrated plans never hang
            SparseVector.calibrate(1.0, 1.0, 4, True, noise=noise, monotone=monotone)
