"""The audit: the search for neighbours, exact δ against closed forms and a library, runs that
raise.
"""

import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpsbi import DiscreteLaplace, Gaussian, Laplace, RandomisedResponse, SmoothLaplace
from dpsbi.accounting.losses import gaussian_delta
from dpsbi.checks import audit as outputs_room
from dpsbi.checks import neighbours as room
from dpsbi.checks.audit import audit, observed
from dpsbi.checks.exact_loss import Losses, exact_delta, losses, sampled_delta
from dpsbi.checks.neighbours import Neighbours, Records, worst_neighbours
from dpsbi.mechanisms import Mechanism


def rng(*seed):
    return np.random.default_rng([514, *seed])


def mean(x):
    return x.mean(axis=1, keepdims=True)


def rounded(x):
    return np.floor(mean(x) + 0.5)


TENS = Records(0.0, 10.0)


# ---- the search
@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(2))
def test_the_float_pair_is_found(seed):
    found = worst_neighbours(rounded, TENS, rng=rng(0, seed), starts=20)
    x, other = ([Fraction(value) for value in data.tolist()] for data in found.pair)
    assert found.moved == 2 and abs(sum(x) - sum(other)) <= 10  # exact means at most 1 apart
    assert np.sum(found.x != found.x_neighbour) == 1  # and one record differs
    assert 1 < worst_neighbours(mean, TENS, rng=rng(1, seed), starts=3).moved < 1 + 1e-13


def test_the_order_of_records_is_seen():
    assert worst_neighbours(mean, TENS, "order", rng=rng(2), starts=5).moved > 0
    found = worst_neighbours(rounded, TENS, "order", rng=rng(3), starts=10)
    assert found.moved == 1 and np.array_equal(np.sort(found.x), np.sort(found.x_neighbour))
    exact = lambda x: np.array([[math.fsum(row)] for row in x])
    assert worst_neighbours(exact, TENS, "order", rng=rng(4), starts=5).moved == 0


@pytest.mark.parametrize("norm, truth", [("l1", 5), ("l2", 5**0.5), ("l0", 5), ("linf", 1)])
def test_the_corner_in_every_norm(norm, truth):
    found = worst_neighbours(
        lambda x: 4 * x.mean(axis=1), Records(shape=(5,), size=4), norm=norm, rng=rng(5), starts=5
    )
    assert found.moved == pytest.approx(truth, abs=1e-9)


def test_records_that_come_and_go():
    total = lambda x: x.sum(axis=1, keepdims=True)
    found = worst_neighbours(
        total, Records(-3.0, 2.0, size=4, least=1), "add-remove", rng=rng(6), starts=5
    )
    assert found.moved == pytest.approx(3) and len(found.x_neighbour) == len(found.x) - 1


def test_an_error_or_nan_is_infinitely_far():
    def fails(x):
        if x[0].max() > 0.99:
            raise ValueError("too large")
        return x.sum(axis=1, keepdims=True)

    odd = lambda x: np.where(x.max(axis=1) > 0.99, np.nan, 0.0)[:, None]
    assert worst_neighbours(fails, Records(size=3), rng=rng(7), starts=5).moved == math.inf
    assert worst_neighbours(odd, Records(size=3), rng=rng(8), starts=5).moved == math.inf
    assert (
        room._distance("l1", "ValueError", "ValueError") == 0
        and room._distance("l1", "ValueError", "KeyError") == math.inf
    )
    assert (
        room._distance("l2", np.array([np.nan, 3.0, np.inf]), np.array([np.nan, 0.0, np.inf])) == 3
    )


def test_whole_records_stay_whole_and_inside():
    draw = Records([0, 0], [1, 7], shape=(2,), size=5, least=2, whole=True)
    data = [draw(rng(9, k)) for k in range(60)]
    assert {len(x) for x in data} == {2, 3, 4, 5} and all(x.dtype.kind == "i" for x in data)
    assert {tuple(row) for x in data for row in x} >= {(0, 0), (1, 7), (0, 7), (1, 0)}
    found = worst_neighbours(
        lambda x: x.sum(axis=1).astype(float), draw, rng=rng(10), starts=4, steps=100
    )
    for x in found.pair:
        assert x.dtype.kind == "i" and (x >= 0).all() and (x <= [1, 7]).all()


def test_floats_stay_inside_their_domain():
    found = worst_neighbours(
        lambda x: x.mean(axis=1), Records(-1.0, 1.0, shape=(2,)), rng=rng(11), starts=4
    )
    assert max(np.abs(x).max() for x in found.pair) <= 1


def test_a_relation_and_a_norm_of_ones_own():
    flip = lambda x, rng: np.where(np.arange(len(x)) == rng.integers(len(x)), 1 - x, x)
    far = lambda a, b: abs(a - b)[0]
    draw = lambda rng: rng.integers(0, 2, 4)
    found = worst_neighbours(
        lambda x: x @ [[1.0], [2.0], [4.0], [8.0]], draw, flip, norm=far, rng=rng(12), starts=5
    )
    assert found.moved == 8 and isinstance(found, Neighbours)


def test_the_search_repeats():
    one, two = (worst_neighbours(mean, TENS, rng=rng(13), starts=2) for _ in range(2))
    assert one.moved == two.moved and np.array_equal(one.x, two.x)


# ---- exact δ
def by_atoms(epsilon):
    "Discrete Laplace noise of scale 2 on halves, the values 1 apart."
    z = np.arange(-200, 200, 0.5)
    p, q = (np.exp(-np.abs(z - s) / 2) * math.tanh(0.125) for s in (0.0, 1.0))
    return np.maximum(p - math.exp(epsilon) * q, 0).sum()


CLOSED = [
    (Laplace(1.0), lambda e: max(-math.expm1((e - 1) / 2), 0)),
    (Gaussian(0.7), lambda e: gaussian_delta(e, 1 / 0.7)),
    (Gaussian(20.0), lambda e: gaussian_delta(e, 0.05)),
    (DiscreteLaplace(2.0, 0.5), by_atoms),
    (RandomisedResponse(0.8), lambda e: max(0.8 - math.exp(e) * 0.2, 0)),
]


@pytest.mark.parametrize("mechanism, truth", CLOSED, ids=lambda c: type(c).__name__)
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.45, 1.0, 3.0])
def test_closed_forms(mechanism, truth, epsilon):
    value, error = exact_delta(mechanism, [0.0], [1.0], epsilon)
    expected = truth(epsilon)
    assert abs(value - expected) <= error + 1e-14
    assert error <= 1e-3 * expected + 1e-14


@pytest.mark.thorough
@pytest.mark.parametrize("dim", [2, 5])
def test_gaussian_noise_knows_no_direction(dim):
    s = np.zeros(dim)
    for move in (np.full(dim, dim**-0.5), np.eye(dim)[0]):
        for epsilon in (0.5, 3.0):
            value, error = exact_delta(Gaussian(1.0), s, move, epsilon)
            truth = gaussian_delta(epsilon, 1.0)
            assert abs(value - truth) <= error <= 2e-3 * truth


def test_composition_against_dp_accounting():
    from dp_accounting.pld import privacy_loss_distribution as pld

    parts = [
        (Laplace(2.0), pld.from_laplace_mechanism(2.0, value_discretization_interval=1e-4)),
        (Gaussian(1.5), pld.from_gaussian_mechanism(1.5, value_discretization_interval=1e-4)),
        (
            DiscreteLaplace(3.0),
            pld.from_discrete_laplace_mechanism(1 / 3, value_discretization_interval=1e-4),
        ),
    ]
    ours = [losses(mechanism, [0.0], [1.0]) for mechanism, _ in parts]
    ours, theirs = (
        ours[0] + ours[1] + ours[2],
        parts[0][1].compose(parts[1][1]).compose(parts[2][1]),
    )
    for epsilon in (0.2, 1.0, 2.0):
        value, error = ours.delta(epsilon)
        assert (
            abs(value - theirs.get_delta_for_epsilon(epsilon)) < error + 2e-4
        )  # both round losses
        assert error < 2e-4


def test_the_proved_epsilon():
    assert losses(Laplace(0.5), [0.0], [1.0]).epsilon() == pytest.approx(2, abs=1e-9)
    assert losses(Laplace(0.5), [0.0], [1.0]).epsilon() <= 2
    found = losses(Gaussian(1.0), [0.0], [1.0])
    epsilon = found.epsilon(1e-5)
    assert (
        gaussian_delta(epsilon, 1.0) == pytest.approx(1e-5, rel=1e-3)
        and gaussian_delta(epsilon, 1.0) >= 1e-5
    )
    sure = Losses.of(
        [math.log(0.25), math.log(0.75), -math.inf], [math.log(0.5), -math.inf, math.log(0.5)]
    )
    assert sure.epsilon(0.7) > 30 and sure.delta(9.0).value == pytest.approx(0.75)


def test_both_ways_count():
    lopsided = Losses.of(np.log([0.5, 0.5]), np.log([0.9, 0.1]))
    assert lopsided.delta(0.5).value == pytest.approx(
        max(0.5 - math.exp(0.5) * 0.1, 0.9 - math.exp(0.5) * 0.5)
    )
    swapped = Losses.of(np.log([0.9, 0.1]), np.log([0.5, 0.5]))
    assert swapped.delta(0.5).value == pytest.approx(lopsided.delta(0.5).value)


def test_outputs_that_betray_the_input_are_joined():
    leaky = Losses.of(
        [math.log(0.1), math.log(0.9), -math.inf], [-math.inf, math.log(0.9), math.log(0.1)]
    )
    value, error = (leaky + leaky).delta(2.0)
    assert abs(value - 0.19) <= error < 1e-6


def test_smooth_noise_against_monte_carlo():
    s, t = np.array([0.0, 0.0, 1.0]), np.array([0.5, -0.5, 0.7])
    value, error = exact_delta(SmoothLaplace(2.0), s, t, 0.8)
    for pair in ((s, t), (t, s)):  # δ is that of the worse way, whichever is first
        chance = sampled_delta(SmoothLaplace(2.0), *pair, 0.8, rng=rng(14))
        assert error < 1e-3 and abs(value - chance.value) < error + chance.error < 0.01


class Wrong(Laplace):
    "A density that integrates to 2."

    def log_prob(self, s_dp, s):
        return super().log_prob(s_dp, s) + math.log(2)


def test_a_density_that_is_none_says_so():
    assert exact_delta(Wrong(1.0), [0.0], [1.0], 0.5).error > 0.5


class Paired(Mechanism):
    "Two values with one noise."

    def sample(self, s, rng):
        return np.asarray(s, float) + rng.normal(size=(*np.shape(s)[:-1], 1))

    def transform(self, u, s):
        return s + stats.norm.ppf(u)

    def log_prob(self, s_dp, s):
        z = np.subtract(s_dp, s)
        return stats.norm.logpdf(z[..., 0]) + (
            0.0 if z.shape[-1] == 1 else stats.norm.logpdf(z[..., 1], scale=0.1)
        )


def test_shared_noise_is_refused():
    with pytest.raises(ValueError, match="sampled_delta"):
        losses(Paired(), [0.0, 0.0], [1.0, 0.0])
    with pytest.raises(ValueError, match="one length"):
        losses(Laplace(1.0), [0.0], [1.0, 0.0])


# ---- runs that fail
def test_failures_are_outputs():
    def run(x, rng):
        if x == 0:
            raise KeyError("nobody")
        if x == 1:
            warnings.warn("one")
        return [] if x == 2 else [x]

    rows = {x: observed(run)(x, rng(15), 3) for x in range(4)}
    assert all(
        row.shape == (3, 3) and np.array_equal(row[0], row[2], equal_nan=True)
        for row in rows.values()
    )
    seen = [row[0] for row in rows.values()]
    assert np.isnan(seen[0][0]) and seen[0][1] > 0 and seen[0][2] == 0
    assert seen[1][0] == 1 and seen[1][1] == 0 and seen[1][2] > 0
    assert (
        np.isnan(seen[2][0]) and seen[3][0] == 3 and not seen[2][1:].any() and not seen[3][1:].any()
    )
    codes = {outputs_room._code(text) for text in ("a", "b", "ValueError: a")}
    assert len(codes) == 3 and outputs_room._code("") == 0


def test_an_audit_sees_an_error():
    def run(x, rng):
        if np.isnan(x).any():
            raise ValueError("not finite")
        return rng.laplace(scale=100.0)

    pair = np.array([np.nan]), np.zeros(1)
    assert audit(observed(run), *pair, 1.0, rng=rng(16), runs=1000, progress=False).refuted
    assert not audit(
        observed(run), pair[1], pair[1] + 1, 1.0, rng=rng(17), runs=1000, progress=False
    ).refuted


def test_the_runs_that_bound_an_event_have_not_chosen_it():
    def drifts(x, rng, size):  # what tells the inputs apart is in the second half alone
        return np.where(np.arange(size) < size // 2, rng.integers(0, 2, size), 10 + x)

    found = audit(drifts, 0.0, 10.0, 1.0, rng=rng(21), runs=1000, digits=False, progress=False)
    assert found.lower == 0


def test_the_pair_goes_into_the_audit():
    found = worst_neighbours(rounded, TENS, rng=rng(18), starts=10)
    run = lambda x, rng, size: DiscreteLaplace(1.0).sample(
        np.tile(rounded(x[None]), (size, 1)), rng
    )
    assert audit(run, *found.pair, 1.0, rng=rng(19), runs=20_000, progress=False).lower > 1.5


@pytest.mark.parametrize(
    "wrong", [dict(relation="swap"), dict(norm="l3"), dict(starts=0), dict(steps=-1)]
)
def test_bad_arguments(wrong):
    with pytest.raises(ValueError):
        worst_neighbours(mean, TENS, rng=rng(20), **wrong)
    with pytest.raises(ValueError):
        Records(1.0, 0.0)


# ---- its parts
def test_a_bound_by_hand():
    low, high = stats.beta.ppf(0.025, 900, 101), stats.beta.isf(0.025, 101, 900)
    hits, other = np.array([900]), np.array([100])
    found = outputs_room.epsilon_bound(hits, 1000, other, 1000, 0.01, 0.05)
    assert found == pytest.approx(math.log((low - 0.01) / high), rel=1e-12)


def test_last_digits_are_looked_at_where_one_output_is_a_fraction():
    _, names = outputs_room.columns([[0.5], [1.0]], digits=True)
    assert names == ["output 0", "lowest bit of output 0"]


def test_an_event_that_is_likelier_under_the_second_input_counts():
    never, often = np.zeros((4000, 1)), rng(9).integers(0, 2, (4000, 1)).astype(float)
    assert outputs_room._bound(never, often, ["output 0"], 1.0, 0.0, 0.05, rng(10)).lower > 3
