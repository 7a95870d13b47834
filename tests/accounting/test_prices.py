"""Prices are never too low: every ε and δ against many digits, from 1e-300 to 1e300."""

import itertools
import math
import random
import time
import warnings
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

import dpsbi
from dpsbi.accounting.costs import ComposedLoss, Cost, Entry, GaussianFilter, Planned, RenyiFilter
from dpsbi.accounting.ledger import Ledger
from dpsbi.accounting.losses import (
    ORDERS,
    ApproximateLoss,
    DiscreteLaplaceLoss,
    GaussianLoss,
    LaplaceLoss,
    PureLoss,
    ZCDPLoss,
    as_written,
    gaussian_delta,
    gaussian_epsilon,
    next_up,
    root_up,
    upwards,
)
from dpsbi.mechanisms import (
    BinomialResponse,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    RandomisedResponse,
    Staircase,
    TruncatedGeometric,
)
from dpsbi.mechanisms.discrete_gaussian import DiscreteGaussianLoss
from dpsbi.owner.selection import NoisySmallest
from dpsbi.owner.svt import SparseVector, log_patterns
from dpsbi.privacy import Query, identity

DELTAS = (1e-3, 1e-6, 1e-9, 1e-12, 1e-15)


@pytest.fixture(autouse=True)
def digits():
    with mp.workdps(50):
        yield


# ---- compositions, by exact convolution


def gaussian_truth(epsilon, mu):
    "δ of normal noise in so many digits that nothing cancels."
    with mp.workdps(60 + 2 * int(abs(mp.log10(mu)))):
        e, mu = mp.mpf(epsilon), mp.mpf(mu)
        tails = mp.erfc((e / mu - mu / 2) / mp.sqrt(2)), mp.erfc((e / mu + mu / 2) / mp.sqrt(2))
        return (tails[0] - mp.exp(e) * tails[1]) / 2


def pure_law(loss, unit):
    "The law of a loss in multiples of a unit: {k: probability}."
    k, e = round(Fraction(loss.epsilon_0) / unit), mp.mpf(loss.epsilon_0)
    return {k: 1 / (1 + mp.exp(-e)), -k: 1 / (1 + mp.exp(e))}


def steps_law(loss, unit):
    "Of two-sided geometric noise."
    share, k = round(1 / Fraction(loss.scale) / unit), loss.steps
    a = mp.exp(-1 / mp.mpf(loss.scale))
    top, law = (1 - a) / (1 + a), {}
    for z in range(1, k):  # between the two counts
        law[(k - 2 * z) * share] = top * a**z
    return law | {k * share: 1 / (1 + a), -k * share: a**k / (1 + a)}


def laplace_law(loss, unit, bins=8):
    "Of Laplace noise whose outputs are cut into bins: no dearer than the noise itself."
    share, r = round(Fraction(loss.ratio) / unit), mp.mpf(loss.ratio)
    law = {share: mp.mpf(1) / 2, -share: mp.exp(-r) / 2}
    for i in range(bins):
        mass = (mp.exp(-r * i / bins) - mp.exp(-r * (i + 1) / bins)) / 2
        key = share * (bins - 2 * i - 1) // bins
        law[key] = law.get(key, 0) + mass
    return law


BITS = 400


def convolved(law, times):
    "The law of a sum, as whole numbers over 2^BITS, each no larger than the truth."
    low = min(law)
    step = math.gcd(*(k - low for k in law))
    one = [0] * ((max(law) - low) // step + 1)
    for k, p in law.items():
        one[(k - low) // step] = int(mp.floor(p * mp.mpf(2) ** BITS))
    width = 2 * BITS + 64  # bits of a coefficient in one long number

    def product(a, b):
        long = [sum(c << (width * i) for i, c in enumerate(x)) for x in (a, b)]
        long, mask = long[0] * long[1], (1 << width) - 1
        size = len(a) + len(b) - 1
        data = long.to_bytes((width * size + 7) // 8 + 8, "little")
        each = width // 8
        assert width % 8 == 0 and mask
        return [
            int.from_bytes(data[i * each : (i + 1) * each], "little") >> BITS for i in range(size)
        ]

    total, power, left = None, one, times
    while left:
        if left & 1:
            total = power if total is None else product(total, power)
        left >>= 1
        power = product(power, power) if left else power
    return {low * times + step * i: p for i, p in enumerate(total) if p}


def truth(laws, unit):
    "ε -> δ of independent losses, from below."
    totals = [convolved(law, times) for law, times in laws]
    sums = totals[0]
    for other in totals[1:]:
        mixed = {}
        for (a, p), (b, q) in itertools.product(sums.items(), other.items()):
            mixed[a + b] = mixed.get(a + b, 0) + (p * q >> BITS)
        sums = mixed
    unit = mp.mpf(unit.numerator) / unit.denominator
    points = sorted((k * unit, mp.mpf(p) / mp.mpf(2) ** BITS) for k, p in sums.items())

    def delta(epsilon):
        return mp.fsum(p * -mp.expm1(epsilon - x) for x, p in points if x > epsilon)

    return delta


def is_tight(loss, delta_of, delta, looser, higher=1e-3):
    "At the stated ε δ is no more than stated, and at a little less it is more."
    epsilon = loss.epsilon(delta)
    assert delta_of(mp.mpf(epsilon)) <= delta, (loss, delta, epsilon)
    if epsilon > 0:
        assert delta_of(mp.mpf(epsilon) * (1 - looser)) > delta, (loss, delta, epsilon)
    at = 0.9 * epsilon
    exact = delta_of(mp.mpf(at))
    assert exact <= loss.delta(at) <= exact * (1 + higher) + 1e-300, (loss, delta, at)


def of_law(parts, make, unit, laws=None):
    return truth([(make(loss, unit), times) for loss, times in parts], unit)


@pytest.mark.parametrize("mu, times", [(0.003, 1000), (0.5, 1), (0.5, 30), (2.0, 2), (2.0, 100)])
def test_normal_noises_together_are_one(mu, times):
    loss, exact = ComposedLoss(((GaussianLoss(mu), times),)), mp.sqrt(times) * mp.mpf(mu)
    for delta in DELTAS:
        is_tight(loss, lambda e: gaussian_truth(e, exact), delta, 1e-9)


@pytest.mark.parametrize("each, times", [(2.0**-10, 100), (0.1, 2), (0.1, 30), (0.7, 99), (3.0, 9)])
def test_pure_losses_together(each, times):
    loss = ComposedLoss(((PureLoss(each), times),))
    delta_of = of_law(((PureLoss(each), times),), pure_law, Fraction(each))
    for delta in DELTAS:
        is_tight(loss, delta_of, delta, 1e-4)


@pytest.mark.parametrize("steps, scale, times", [(1, 2.0, 30), (2, 8.0, 40), (3, 1.0, 20)])
def test_discrete_laplace_noises_together(steps, scale, times):
    loss = DiscreteLaplaceLoss(steps, scale)
    delta_of = of_law(((loss, times),), steps_law, 1 / Fraction(scale))
    for delta in DELTAS:
        is_tight(ComposedLoss(((loss, times),)), delta_of, delta, 1e-4)


@pytest.mark.parametrize("ratio, times", [(0.125, 20), (0.5, 10), (2.0, 4)])
def test_laplace_noises_together(ratio, times):
    loss = LaplaceLoss(ratio)
    together, unit = ComposedLoss(((loss, times),)), Fraction(ratio) / 32
    delta_of = truth([(laplace_law(loss, unit, 32), times)], unit)  # of bins: a little less
    for delta in DELTAS:
        epsilon = together.epsilon(delta)
        assert delta_of(mp.mpf(epsilon)) <= delta < delta_of(mp.mpf(epsilon) * mp.mpf("0.995"))


@pytest.mark.parametrize(
    "parts",
    [
        ((PureLoss(0.25), 12), (PureLoss(0.75), 4)),
        ((PureLoss(0.125), 40), (PureLoss(2.0), 2)),
        ((DiscreteLaplaceLoss(2, 4.0), 10), (PureLoss(0.5), 10)),
        ((DiscreteLaplaceLoss(1, 8.0), 30), (DiscreteLaplaceLoss(3, 8.0), 10)),
    ],
    ids=str,
)
def test_mixtures_together(parts):
    make = lambda loss, unit: (pure_law if isinstance(loss, PureLoss) else steps_law)(loss, unit)
    unit = Fraction(1, 8)
    delta_of = of_law(parts, make, unit)
    for delta in DELTAS:
        is_tight(ComposedLoss(parts), delta_of, delta, 1e-4)


def test_normal_noise_beside_pure_losses():
    parts, normal = ((PureLoss(0.25), 8),), GaussianLoss(0.6)
    law = convolved(pure_law(parts[0][0], Fraction(1, 4)), 8)

    def delta_of(epsilon):  # E over the pure losses of the normal noise's δ
        total = mp.mpf(0)
        for k, p in law.items():
            e = epsilon - mp.mpf(k) / 4
            d = gaussian_truth(abs(e), mp.mpf(0.6))
            total += p * (d if e >= 0 else 1 - mp.exp(e) + mp.exp(e) * d)
        return total / mp.mpf(2) ** BITS

    for delta in DELTAS:
        is_tight(ComposedLoss((*parts, (normal, 1))), delta_of, delta, 1e-4)


def test_a_loss_with_a_delta_of_its_own_beside_others():
    parts = ((ApproximateLoss(0.25, 1e-7), 10),)
    law = convolved(pure_law(PureLoss(0.25), Fraction(1, 4)), 10)
    lost = 1 - (1 - mp.mpf(1e-7)) ** 10

    def delta_of(epsilon):
        inside = (p * -mp.expm1(epsilon - mp.mpf(k) / 4) for k, p in law.items() if k > 4 * epsilon)
        return lost + (1 - lost) * mp.fsum(inside) / mp.mpf(2) ** BITS

    for delta in (1e-3, 2e-6, 1.1e-6):
        is_tight(ComposedLoss(parts), delta_of, delta, 1e-4)
    assert ComposedLoss(parts).epsilon(1e-8) == math.inf


def test_what_an_fft_could_not_tell_is_not_granted():
    "Totals that were too low by rounding, of a transform with errors of 1e-15."
    thirty = [GaussianLoss(0.5)] * 30
    assert 22.52051 < Planned(30.0, 1e-12).total(thirty) < 22.52053
    assert Planned(22.5202, 1e-12).refusal([Entry(Cost.of(x, 1e-13), "") for x in thirty])
    assert 223.895 < ComposedLoss(((PureLoss(0.7), 500),)).epsilon(1e-14) < 223.9


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 3, 30, 300, 1000])
@pytest.mark.parametrize(
    "loss", [PureLoss(0.05), PureLoss(1.0), DiscreteLaplaceLoss(2, 3.0)], ids=repr
)
def test_many_together_at_every_delta(loss, times):
    pure = isinstance(loss, PureLoss)
    unit = Fraction(loss.epsilon_0) if pure else 1 / Fraction(loss.scale)
    delta_of = of_law(((loss, times),), pure_law if pure else steps_law, unit)
    higher = 5e-3  # three pure losses: what wraps around from below; a thousand: close to a jump
    for power in range(3, 16):
        is_tight(ComposedLoss(((loss, times),)), delta_of, 10.0**-power, 1e-4, higher)


# ---- one loss, against many digits

EXTREME = [10.0**k for k in (-300, -200, -100, -30, -17, -12, -9, -7, -5, -3, -1, 0, 0.5)]


@pytest.mark.parametrize("size", EXTREME)
def test_divergences_and_rho_and_mu_are_not_too_small(size):
    with mp.workdps(700):
        e = mp.mpf(size)
        for order in ORDERS[:: len(ORDERS) // 12]:
            a = mp.mpf(float(order))
            moments = {
                PureLoss: (mp.exp(a * e) + mp.exp((1 - a) * e)) / (1 + mp.exp(e)),
                LaplaceLoss: (a * mp.exp((a - 1) * e) + (a - 1) * mp.exp(-a * e)) / (2 * a - 1),
            }
            for kind, moment in moments.items():
                exact, found = mp.log(moment) / (a - 1), mp.mpf(float(kind(size).renyi(order)))
                assert exact <= found <= exact * (1 + mp.mpf(1e-13)) + mp.mpf(5e-324), (kind, order)
        for loss, rho in (
            (PureLoss(size), e * mp.tanh(e / 2)),
            (LaplaceLoss(size), e + mp.expm1(-e)),
            (GaussianLoss(size), e * e / 2),
        ):
            assert rho <= loss.rho <= rho * (1 + mp.mpf(1e-13)) + mp.mpf(5e-324)
        reached = mp.erf(mp.mpf(PureLoss(size).mu) / 2 / mp.sqrt(2))
        assert 0 <= reached / mp.tanh(e / 2) - 1 < 1e-12


@pytest.mark.parametrize("size", EXTREME)
def test_delta_at_epsilon_and_back(size):
    rng = random.Random(3)
    with mp.workdps(700):
        for _ in range(6):
            at, delta = rng.random() * size, size * 10 ** rng.uniform(-15, -1)
            e, s = mp.mpf(size), mp.mpf(at)
            a = mp.exp(-e)
            for loss, curve in (
                (PureLoss(size), lambda x: (mp.exp(e) - mp.exp(x)) / (1 + mp.exp(e))),
                (LaplaceLoss(size), lambda x: 1 - mp.exp((x - e) / 2)),
                (DiscreteLaplaceLoss(1, 1 / size), lambda x: (1 - mp.exp(x) * a) / (1 + a)),
            ):
                slack = mp.mpf(1e-12)
                found = loss.delta(at)
                assert curve(s) <= found * (1 + (1e-15 if loss != PureLoss(size) else 0))
                assert found <= curve(s) * (1 + slack), loss
                x = mp.mpf(loss.epsilon(delta))
                if isinstance(loss, (PureLoss, LaplaceLoss)):
                    assert curve(x) <= delta
                assert x == 0 or curve(x * (1 - slack)) > delta * (1 - 1e-9)


@pytest.mark.parametrize(
    "mu", [1e-300, 1e-100, 1e-14, 1e-9, 1e-5, 1e-2, 0.49, 0.51, 1.0, 7.0, 50.0]
)
def test_normal_delta_is_rounded_up_and_to_a_part_in_a_million_million(mu):
    for a in (0.0, 1e-6, 0.1, 1.0, 3.0, 9.9, 10.1, 20.0, 36.0, -mu / 3):
        epsilon = max(mu * (a + mu / 2), 0.0)
        exact, found = gaussian_truth(epsilon, mu), gaussian_delta(epsilon, mu)
        assert exact <= found <= exact * (1 + mp.mpf(3e-12)) + mp.mpf(5e-324), a
        if 1e-300 < found < 1:
            back = gaussian_epsilon(found, mu)
            assert gaussian_delta(back, mu) <= found
            assert back <= epsilon * (1 + 1e-9) + 1e-10 * mu


@pytest.mark.parametrize(
    "epsilon, delta",
    [
        *((1e-6, 1e-9), (1e-7, 1e-6), (1e-8, 1e-6), (1e-12, 1e-30), (1e-300, 1e-300), (1.0, 1e-6)),
        *((1e-3, 0.4), (1e-15, 0.9), (700.0, 1e-5), (1e5, 1e-300), (5e-324, 1e-6), (1e-6, 5e-324)),
    ],
)
def test_normal_noise_is_calibrated_at_once(epsilon, delta):
    began = time.process_time()
    query = Query(identity, 1.0, norm="l2", dim=1)
    try:
        noise = Gaussian.calibrate(query, epsilon, delta)
    except ValueError as error:
        assert "too close to 0" in str(error) and epsilon * delta == 0
        return
    assert time.process_time() - began < 1
    shift = lambda scale: mp.mpf(1) / mp.mpf(scale)
    assert noise.cost(query, delta).epsilon <= epsilon
    assert gaussian_truth(epsilon, shift(noise.scale)) <= delta
    assert gaussian_truth(epsilon, shift(noise.scale * (1 - 1e-9))) > delta or delta < 1e-300


@pytest.mark.parametrize("steps, scale", [(1, 0.3), (1, 1.0), (2, 7.0), (1, 300.0), (5, 2000.0)])
def test_discrete_normal_delta_by_the_sum_of_its_terms(steps, scale):
    t = mp.mpf(scale)
    reach = int(min(40 * scale + 2, 4000)) if scale < 100 else 0
    for epsilon in (0.0, 0.3 * steps / scale, 2 * steps / scale, 5 * steps / scale):
        found = DiscreteGaussianLoss(steps, scale).delta(epsilon)
        if reach:
            p = {k: mp.exp(-k * k / (2 * t * t)) for k in range(-reach, reach + 1)}
            loss = {k: (steps * steps - 2 * k * steps) / (2 * t * t) for k in p}
            terms = [p[k] * -mp.expm1(epsilon - loss[k]) for k in p if loss[k] > epsilon]
            exact = mp.fsum(terms) / mp.fsum(p.values())
            assert exact <= found <= exact * (1 + 1e-6)  # one of the ε is a loss
        else:
            exact = gaussian_truth(epsilon, mp.mpf(steps) / t)
            assert exact * (1 - 1e-4) < found < exact * (1 + 1e-3)


@pytest.mark.parametrize("scale", [5000.0, 6e4])
def test_discrete_normal_noise_of_many_steps(scale):
    t = mp.mpf(scale)
    z = mp.sqrt(2 * mp.pi) * t
    for a in (0.0, 1.0, 5.0):
        epsilon = float((mp.mpf(a) + 1 / (2 * t)) / t)
        last = int(mp.floor(mp.mpf(1) / 2 - epsilon * t * t))
        k = np.arange(last, last - int(12 * scale), -1.0)
        loss = (1 - 2 * k) / (2 * scale * scale)
        exact = np.sum(np.exp(-0.5 * (k / scale) ** 2) * -np.expm1(epsilon - loss)) / float(z)
        assert 1 <= DiscreteGaussianLoss(1, scale).delta(epsilon) / exact < 1 + 1e-4


# ---- quotients, products and sums are rounded up

ONE = Query(identity, 1.0, dim=1, step=1)
NICE = (0.1, 0.3, 0.7, 0.9, 1.0, 3.0, 7.0, 10.0)


def quotients(seed=7, count=60):
    rng = random.Random(seed)
    pairs = [(rng.uniform(0.1, 10), rng.uniform(0.1, 10)) for _ in range(count)]
    return [*pairs, *itertools.product(NICE, NICE)]


def not_below(found, exact):
    "In binary, and no more than one float above it in the other reading of decimals."
    assert Fraction(found) >= exact and found <= float(exact) * (1 + 5e-16)


@pytest.mark.parametrize(
    "price, exact",
    [
        (lambda s, b: Laplace(b).cost(Query(identity, s, dim=1)).epsilon, lambda s, b: s / b),
        (lambda s, b: Laplace(b).loss(Query(identity, s, dim=1)).ratio, lambda s, b: s / b),
        (lambda s, b: Laplace(b).loss(Query(identity, s, dim=3)).epsilon_0, lambda s, b: s / b),
        (lambda s, b: Gaussian(b).loss(Query(identity, s, "l2")).mu, lambda s, b: s / b),
        (lambda s, b: DiscreteLaplace(b).cost(ONE).epsilon, lambda s, b: 1 / b),
        (lambda s, b: DiscreteLaplaceLoss(3, b).epsilon(0.0), lambda s, b: 3 / b),
        (lambda s, b: Staircase(b, 2, 1).cost(Query(identity, 6, dim=1, step=1)).epsilon,
         lambda s, b: 3 * b),
        (lambda s, b: DiscreteGaussian(b).loss(ONE).rho, lambda s, b: 1 / (2 * b * b)),
        (lambda s, b: GaussianLoss(s).rho, lambda s, b: s * s / 2),
        (lambda s, b: PureLoss(s).group(3).epsilon_0, lambda s, b: 3 * s),
        (lambda s, b: ZCDPLoss(s).group(3).rho, lambda s, b: 9 * s),
        (lambda s, b: SparseVector(s, 3, b, 2 * b).cost().epsilon,
         lambda s, b: s / b + 6 * s / (2 * b)),
        (lambda s, b: SparseVector(s, 3, b, 3 * b, True).cost().epsilon,
         lambda s, b: 3 * s / b + 6 * s / Fraction(3 * float(b))),
        (lambda s, b: SparseVector(s, 3, b, 2 * b).used(1).epsilon,
         lambda s, b: s / b + 2 * s / (2 * b)),
        (lambda s, b: NoisySmallest(s, 3, b).cost().epsilon, lambda s, b: 6 * s / b),
        (lambda s, b: NoisySmallest(s, 3, b, "gumbel").cost(1e-9).rho,
         lambda s, b: 3 * (2 * s / b) ** 2 / 8),
        (lambda s, b: ComposedLoss(((GaussianLoss(s), 3),)).rho, lambda s, b: 3 * s * s / 2),
    ],
)  # fmt: skip
def test_no_price_is_below_its_formula(price, exact):
    for s, b in quotients():
        not_below(price(s, b), exact(Fraction(s), Fraction(b)))


def test_the_root_of_a_sum_of_squares_is_rounded_up():
    for s, b in quotients():
        mu = ComposedLoss(((GaussianLoss(s), 2), (GaussianLoss(b), 5))).mu
        exact = 2 * Fraction(s) ** 2 + 5 * Fraction(b) ** 2
        assert Fraction(math.nextafter(mu, 0)) ** 2 < exact <= Fraction(mu) ** 2
        assert root_up(Fraction(s) ** 2) == s
    for size in (5e-324, 1e-300, 1e300):
        assert root_up(Fraction(size) ** 2) == size


def test_logarithms_are_rounded_up():
    rng = random.Random(4)
    for _ in range(100):
        keep, k = rng.uniform(0.51, 0.999), rng.randrange(2, 9)
        exact = mp.log(mp.mpf(keep) * (k - 1) / (1 - mp.mpf(keep)))
        found = RandomisedResponse(keep, k).cost(Query(identity, 1, norm="l0", dim=1, step=1))
        assert exact <= found.epsilon <= exact * (1 + mp.mpf(1e-14))
        n, m = rng.randrange(1, 50), 10 ** rng.uniform(-5, 12)
        exact = n * mp.log1p(1 / mp.mpf(m))
        found = BinomialResponse(n, m, 30).cost(ONE).epsilon
        assert exact <= found <= exact * (1 + mp.mpf(1e-14))
        scale, high = 10 ** rng.uniform(-1, 12), rng.randrange(2, 50)
        z = [mp.fsum(mp.exp(-abs(y - s) / mp.mpf(scale)) for y in range(high + 1)) for s in (0, 1)]
        found = TruncatedGeometric(scale, 0, high).cost(ONE).epsilon
        exact = 1 / mp.mpf(scale) + mp.log(z[1] / z[0])
        assert exact <= found <= exact * (1 + mp.mpf(2e-14))
    for steps, count in ((10, 3), (1000, 1), (10**18, 1), (10**9, 50), (60, 60)):
        exact = mp.log(mp.fsum(mp.binomial(steps, k) for k in range(count + 1)))
        assert exact <= log_patterns(steps, count) <= exact * (1 + mp.mpf(1e-12))
    assert log_patterns(10**18, 10**18) >= 10**18 * math.log(2)


def test_keeping_the_truth_just_above_chance():
    for keep in (0.5 + 2.0**-52, 0.5 + 2.0**-45, 0.5 + 1e-9):
        exact = mp.log(mp.mpf(keep) / (1 - mp.mpf(keep)))
        found = RandomisedResponse(keep).cost(Query(identity, 1, norm="l0", dim=1, step=1)).epsilon
        assert exact <= found <= exact * (1 + mp.mpf(1e-14))


@pytest.mark.parametrize("rule", [GaussianFilter, RenyiFilter, Planned])
def test_a_filter_does_not_round_its_total_down(rule):
    rng = random.Random(9)
    for _ in range(20):
        mus = [rng.uniform(0.05, 0.4) for _ in range(rng.randrange(2, 9))]
        losses = [GaussianLoss(mu) for mu in mus]
        total = rule(100.0, 1e-6).total(losses)
        if rule is RenyiFilter:
            a, squares = Fraction(2), sum(Fraction(mu) ** 2 for mu in mus)
            more = mp.log1p(-mp.mpf(1) / 2) - (mp.log(mp.mpf(1e-6) / 2) + mp.log(2))
            exact = mp.mpf((a * squares / 2).numerator) / (a * squares / 2).denominator + more
            assert exact <= total <= exact * (1 + 1e-13)
        else:
            mu = mp.sqrt(mp.fsum(mp.mpf(m) ** 2 for m in mus))
            assert gaussian_truth(total, mu) <= mp.mpf(1e-6)
            assert gaussian_truth(total * (1 - 1e-9), mu) > mp.mpf(1e-6)
        entries = [Entry(Cost.of(loss, 1e-7), "") for loss in losses]
        assert rule(total, 1e-6).refusal(entries) is None
        assert rule(math.nextafter(total, 0), 1e-6).refusal(entries)


def test_decimals_add_up_as_they_are_written():
    ledger = Ledger(1.0)
    for _ in range(10):
        ledger.spend(Laplace(10.0).cost(Query(identity, 1.0, dim=1)), "a tenth")
    assert ledger.remaining == Cost(0.0)
    for sensitivity, scale, price in ((0.3, 0.1, 3.0), (0.1, 1.0, 0.1), (0.7, 7.0, 0.1)):
        assert Laplace(scale).cost(Query(identity, sensitivity, dim=1)).epsilon == price
    for s, b in quotients():  # no smaller in either reading
        found = Laplace(b).cost(Query(identity, s, dim=1)).epsilon
        assert as_written(found) >= as_written(s) / as_written(b)
        assert found == upwards(lambda read, s=s, b=b: read(s) / read(b))


def test_a_number_that_rounds_to_infinity():
    assert next_up(Fraction(10) ** 400) == math.inf and next_up(Fraction(1, 10**400)) == 5e-324


# ---- calibration gives what was asked for, or says why it cannot

L1, L2 = Query(identity, 1.0, dim=1, step=1), Query(identity, 1.0, norm="l2", dim=1, step=1)
ANSWERS = Query(identity, 1, norm="l0", dim=1, step=1)
CALIBRATE = {
    "Laplace": (lambda e: Laplace.calibrate(L1, e), L1),
    "several values": (lambda e: Laplace.calibrate(Query(identity, 0.3, dim=4), e), None),
    "DiscreteLaplace": (lambda e: DiscreteLaplace.calibrate(L1, e), L1),
    "grid": (lambda e: DiscreteLaplace.calibrate(L1, e, step=0.1), L1),
    "Staircase": (lambda e: Staircase.calibrate(L1, e), L1),
    "TruncatedGeometric": (lambda e: TruncatedGeometric.calibrate(L1, e, high=9), L1),
    "BinomialResponse": (lambda e: BinomialResponse.calibrate(L1, e, n=5, population=9), L1),
    "RandomisedResponse": (lambda e: RandomisedResponse.calibrate(ANSWERS, e), ANSWERS),
    "Gaussian": (lambda e: Gaussian.calibrate(L2, e, 1e-6), L2),
    "DiscreteGaussian": (lambda e: DiscreteGaussian.calibrate(L2, e, 1e-6), L2),
    "SparseVector": (lambda e: SparseVector.calibrate(1.0, e, 3), None),
    "SparseVector, with δ": (lambda e: SparseVector.calibrate(1.0, e, 20, True, delta=1e-6), None),
    "NoisySmallest": (lambda e: NoisySmallest.calibrate(1.0, e, 3), None),
    "NoisySmallest, with δ": (lambda e: NoisySmallest.calibrate(1.0, e, 3, delta=1e-6), None),
}
ASKED = [5e-324, 1e-300, 1e-100, 1e-17, 1e-9, 1e-3, 0.1, 1 / 3, 1.0, 20.0, 800.0, 1e5, 1e100, 1e300]


@pytest.mark.thorough
@pytest.mark.parametrize("name", CALIBRATE)
def test_calibration_costs_what_was_asked_for_or_says_why_not(name):
    calibrate, query = CALIBRATE[name]
    query = query or Query(identity, 0.3, dim=4)
    done = 0
    for epsilon in ASKED:
        began = time.process_time()
        try:
            noise = calibrate(epsilon)
            cost = noise.cost(*(() if "Sparse" in name or "Noisy" in name else (query,)),
                              **(dict(delta=1e-6) if noise_needs_delta(name) else {}))  # fmt: skip
        except ValueError as error:
            assert len(str(error)) > 30, error
        else:
            assert cost.epsilon <= epsilon
            done += 1
        assert time.process_time() - began < 1, epsilon
    assert done >= 4


def noise_needs_delta(name):
    return "δ" in name or name in ("Gaussian", "DiscreteGaussian")


SIZES = [5e-324, 1e-300, 1e-160, 1e-30, 1e-9, 1e-3, 1.0, 50.0, 1e4, 1e30, 1e160, 1e300]
MAKE = {
    "PureLoss": PureLoss,
    "LaplaceLoss": LaplaceLoss,
    "GaussianLoss": GaussianLoss,
    "ZCDPLoss": ZCDPLoss,
    "ApproximateLoss": lambda v: ApproximateLoss(v, 1e-7),
    "DiscreteLaplaceLoss": lambda v: DiscreteLaplaceLoss(1, v),
    "DiscreteLaplaceLoss, many steps": lambda v: DiscreteLaplaceLoss(10**18, v),
    "DiscreteGaussianLoss": lambda v: DiscreteGaussianLoss(1, v),
    "DiscreteGaussianLoss, many steps": lambda v: DiscreteGaussianLoss(10**9, v),
    "ComposedLoss": lambda v: ComposedLoss(((PureLoss(v), 3), (LaplaceLoss(v / 2), 2))),
    "ComposedLoss, normal": lambda v: ComposedLoss(((GaussianLoss(v), 10**12),)),
    "ComposedLoss, mixed": lambda v: ComposedLoss(((PureLoss(v), 10), (GaussianLoss(v), 2))),
    "ComposedLoss, far apart": lambda v: ComposedLoss(((PureLoss(v), 100), (LaplaceLoss(1.0), 2))),
    "ComposedLoss, very many": lambda v: ComposedLoss(((PureLoss(v), 10**18),)),
    "ComposedLoss, a million": lambda v: ComposedLoss(((LaplaceLoss(v), 10**6),)),
}


WIDE = [
    name for name in MAKE if name.startswith("ComposedLoss") and name[-4:] not in ("rmal", "many")
]


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in WIDE)) for n in MAKE]
)
def test_a_loss_of_any_size_answers_or_says_why_not(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for size in SIZES[1 :: 2 if "Composed" in name else 1]:
            began = time.process_time()
            try:
                loss = MAKE[name](size)
                found = [loss.epsilon(d) for d in (1e-300, 1e-9, 0.3)]
                found += [-loss.delta(e) for e in (0.0, 1e-300, 1e-3, 1.0, 1e3, 1e300)]
                divergences = loss.renyi([1.01, 2.0, 1e4])
            except ValueError as error:
                assert "must be" in str(error) or "beyond any float" in str(error), error
                continue
            assert not np.isnan(found).any() and not np.isnan(divergences).any(), (size, found)
            assert (
                found[0] >= found[1] * (1 - 1e-9) >= found[2] * (1 - 2e-9) >= 0
                and (divergences >= 0).all()
            )
            assert (np.diff(found[3:]) >= -1e-12).all() and min(found[3:]) >= -1, (size, found)
            assert time.process_time() - began < 6, size  # nine answers


def test_a_sparse_vector_with_more_accepts_than_can_be_counted():
    began = time.process_time()
    cost = SparseVector(1.0, 10**18, 2.0**32, 2.0**33, True, "exponential").cost(1e-6)
    assert 0 < cost.epsilon < 10 and time.process_time() - began < 1


# ---- what a refusal shows


@pytest.mark.parametrize("spent", [1e-9, 1e-6, 1e-12, 1e-15, 0.25])
def test_a_refusal_tells_the_cost_and_the_rest_apart(spent):
    ledger = Ledger(1.0)
    ledger.spend(Cost(spent), "before")
    with pytest.raises(dpsbi.BudgetError) as refused:
        ledger.spend(Cost(1.0), "all")
    words = str(refused.value).replace(";", ",").split(",")
    told = [part.split("ε = ")[1].split()[0] for part in words[:3]]
    assert told[0] == told[1] == "1" and float(told[2]) == ledger.remaining.epsilon < 1


def test_a_refusal_of_rho_and_of_delta_tells_them_apart():
    ledger = Ledger(rho=1.0)
    ledger.spend(Cost.of(ZCDPLoss(1e-10)), "before")
    with pytest.raises(dpsbi.BudgetError, match="ρ = 0.9999999999 remains"):
        ledger.spend(Cost.of(ZCDPLoss(1.0)), "all")
    ledger = Ledger(1.0, 1e-6, composition="sum")
    ledger.spend(Cost(0.1, 1e-15), "before")
    with pytest.raises(dpsbi.BudgetError, match="δ = 9.99999999e-07 remains"):
        ledger.spend(Cost(0.1, 1e-6), "all")
