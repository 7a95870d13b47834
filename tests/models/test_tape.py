"""Simulators replayed from given inputs: each law against SciPy's, tails, rows, and refusals."""

import pickle

import numpy as np
import pytest
from scipy import special, stats

from dpsbi import Model, Prior, Query
from dpsbi.checks.testing import follows, follows_pmf
from dpsbi.models import inverse_cdf as inverses
from dpsbi.models.replay import (
    NotByRow,
    Replay,
    Unreplayable,
    probe_simulations,
    replayed,
    runs_by_row,
)
from dpsbi.privacy import identity

CONTINUOUS = {
    "random": ((), stats.uniform()),
    "uniform": ((-1.0, 3.0), stats.uniform(-1, 4)),
    "standard_normal": ((), stats.norm()),
    "normal": ((1.0, 2.0), stats.norm(1, 2)),
    "lognormal": ((0.5, 0.3), stats.lognorm(0.3, scale=np.exp(0.5))),
    "standard_exponential": ((), stats.expon()),
    "exponential": ((2.0,), stats.expon(scale=2)),
    "standard_gamma": ((0.05,), stats.gamma(0.05)),
    "gamma": ((300.0, 2.0), stats.gamma(300, scale=2)),
    "chisquare": ((3.0,), stats.chi2(3)),
    "beta": ((0.5, 20.0), stats.beta(0.5, 20)),
    "f": ((3.0, 7.0), stats.f(3, 7)),
    "standard_t": ((2.5,), stats.t(2.5)),
    "standard_cauchy": ((), stats.cauchy()),
    "laplace": ((1.0, 2.0), stats.laplace(1, 2)),
    "logistic": ((1.0, 2.0), stats.logistic(1, 2)),
    "gumbel": ((1.0, 2.0), stats.gumbel_r(1, 2)),
    "rayleigh": ((2.0,), stats.rayleigh(scale=2)),
    "weibull": ((0.7,), stats.weibull_min(0.7)),
    "pareto": ((2.5,), stats.lomax(2.5)),
    "power": ((2.5,), stats.powerlaw(2.5)),
}
COUNTS = {
    "poisson": ((4.0,), stats.poisson(4)),
    "binomial": ((20, 0.3), stats.binom(20, 0.3)),
    "negative_binomial": ((2.5, 0.3), stats.nbinom(2.5, 0.3)),
    "geometric": ((0.3,), stats.geom(0.3)),
    "integers": ((-2, 5), stats.randint(-2, 5)),
    "hypergeometric": ((7, 9, 6), stats.hypergeom(16, 7, 6)),
}
HARD_COUNTS = {
    "Poisson, tiny": (lambda x: inverses.poisson(x, 1e-6), stats.poisson(1e-6)),
    "Poisson": (lambda x: inverses.poisson(x, 8.75), stats.poisson(8.75)),
    "Poisson, huge": (lambda x: inverses.poisson(x, 1e9), stats.poisson(1e9)),
    "binomial, one": (lambda x: inverses.binomial(x, 1, 1e-3), stats.binom(1, 1e-3)),
    "binomial, nearly sure": (lambda x: inverses.binomial(x, 50, 0.999), stats.binom(50, 0.999)),
    "binomial, huge": (lambda x: inverses.binomial(x, 1e6, 0.4), stats.binom(10**6, 0.4)),
    "negative binomial, wide": (
        lambda x: inverses.negative_binomial(x, 0.05, 1e-3),
        stats.nbinom(0.05, 1e-3),
    ),
}
FAR = np.linspace(-9, 9, 1501)
ASKED = Query(identity, sensitivity=1.0)
RATES = Prior(rate=stats.gamma(4))


def draws(name, arguments, shape, seed):
    rng = Replay(np.zeros((shape[0], 0)), np.random.default_rng(seed))
    return getattr(rng, name)(*arguments, size=shape)


@pytest.mark.thorough
@pytest.mark.parametrize("shape", [(20_000,), (4000, 5)], ids=str)
@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_draws_follow_their_law(name, shape):  # false alarms: 1e-6 each
    arguments, law = CONTINUOUS[name]
    drawn = draws(name, arguments, shape, 1)
    assert drawn.shape == shape
    follows(drawn.ravel(), law.cdf)


@pytest.mark.thorough
@pytest.mark.parametrize("shape", [(20_000,), (4000, 5)], ids=str)
@pytest.mark.parametrize("name", COUNTS)
def test_counts_follow_their_law(name, shape):  # false alarms: 1e-6 each
    arguments, law = COUNTS[name]
    drawn = draws(name, arguments, shape, 2)
    assert drawn.shape == shape and drawn.dtype == np.int64
    values = np.arange(-5, 80)
    follows_pmf(drawn.ravel(), values, law.pmf(values))


@pytest.mark.parametrize("name", [*CONTINUOUS, *COUNTS])
def test_draws_never_fall_as_the_input_rises(name):
    arguments, _ = (CONTINUOUS | COUNTS)[name]
    rng = Replay(FAR[:, None], np.random.default_rng(0))
    assert np.all(np.diff(getattr(rng, name)(*arguments, size=len(FAR))) >= 0)


@pytest.mark.parametrize("name", HARD_COUNTS)
def test_counts_are_the_smallest_that_will_do(name):
    draw, law = HARD_COUNTS[name]
    k = draw(FAR)
    tail, left = special.ndtr(-np.abs(FAR)), FAR <= 0
    lacking = np.where(left, tail - law.cdf(k), law.sf(k) - tail) / tail
    enough_before = np.where(left, law.cdf(k - 1) - tail, tail - law.sf(k - 1)) / tail
    assert lacking.max() < 1e-9 and enough_before[k > 0].max(initial=-1) < 1e-9


@pytest.mark.parametrize("shape", [1e-3, 0.5, 3.0, 1e4])
def test_gamma_keeps_twelve_digits_in_both_tails(shape):
    x = np.linspace(-8, 8, 161)
    value = inverses.gamma(x, shape)
    left = (x <= 0) & (value > 1e-290)
    below, above = special.gammainc(shape, value), special.gammaincc(shape, value)
    np.testing.assert_allclose(below[left], special.ndtr(x[left]), rtol=1e-11)
    np.testing.assert_allclose(above[x > 0], special.ndtr(-x[x > 0]), rtol=1e-11)


def test_exponential_and_uniform_are_finite_everywhere():
    x = np.array([-38.0, -9.0, 9.0, 38.0])
    np.testing.assert_allclose(stats.expon.logsf(inverses.exponential(x)), special.log_ndtr(-x))
    assert np.all((inverses.uniform(x) >= 0) & (inverses.uniform(x) < 1))


def test_choices_and_orders_have_numpys_law():  # false alarms: 1e-6 each
    fresh, weights = np.random.default_rng(3), [0.1, 0.2, 0.3, 0.4]
    one = Replay(np.zeros((1, 0)), fresh)
    mine, theirs = (
        np.array([rng.choice(4, 2, replace=False, p=weights) for _ in range(4000)])
        for rng in (one, fresh)
    )
    table = [np.bincount(4 * pairs[:, 0] + pairs[:, 1], minlength=16) for pairs in (mine, theirs)]
    table = np.array(table)
    assert stats.chi2_contingency(table[:, table.sum(axis=0) > 0]).pvalue > 1e-6
    orders = np.array([one.permutation(3) for _ in range(6000)]) @ [9, 3, 1]
    follows_pmf(orders, np.unique(orders), np.full(6, 1 / 6))
    chosen = Replay(np.zeros((6000, 0)), fresh).choice([5, 7, 9], 6000, p=[0.2, 0.3, 0.5])
    follows_pmf(chosen, [5, 7, 9], [0.2, 0.3, 0.5])


def test_multinomial_dirichlet_and_multivariate_normal():  # false alarms: 1e-6 each
    fresh, n = np.random.default_rng(4), 8000
    counts = Replay(np.zeros((n, 0)), fresh).multinomial(10, [0.2, 0.5, 0.3], size=n)
    assert np.all(counts.sum(axis=1) == 10)
    for j, p in enumerate((0.2, 0.5, 0.3)):
        follows_pmf(counts[:, j], np.arange(11), stats.binom(10, p).pmf(np.arange(11)))
    shares = Replay(np.zeros((n, 0)), fresh).dirichlet([2.0, 3.0], size=n)
    follows(shares[:, 0], stats.beta(2, 3).cdf)
    cov = [[1.0, 0.5], [0.5, 2.0]]
    pairs = Replay(np.zeros((n, 0)), fresh).multivariate_normal([1.0, 2.0], cov, size=n)
    follows(pairs.sum(axis=1), stats.norm(3, 2).cdf)


def test_rows_have_tapes_of_their_own():
    tapes = np.random.default_rng(5).standard_normal((6, 5))

    def simulate(theta, rng):
        first = rng.poisson(theta)
        return np.column_stack(
            [first, rng.gamma(2.0, size=(len(theta), 3)), rng.random(len(theta))]
        )

    theta = np.linspace(1, 6, 6)[:, None]
    together, used = replayed(Model(RATES, simulate), ASKED, theta, tapes, np.random.default_rng(0))
    alone = [
        replayed(Model(RATES, simulate), ASKED, theta[k : k + 1], tapes[k : k + 1], None)[0][0]
        for k in range(6)
    ]
    np.testing.assert_array_equal(together, alone)
    np.testing.assert_array_equal(used, tapes)


def branching(theta, rng):
    totals = []
    for (share,) in theta:
        total = rng.exponential()
        while rng.random() < share:
            total += rng.exponential()
        totals.append([total])
    return np.array(totals)


def test_a_branching_simulator_is_replayed_row_by_row():  # false alarm: 1e-6
    model, theta = Model(Prior(share=stats.beta(2, 2)), branching), np.full((3000, 1), 0.5)
    s, tapes = replayed(model, ASKED, theta, np.zeros((3000, 0)), np.random.default_rng(1))
    again, _ = replayed(model, ASKED, theta, tapes, np.random.default_rng(2))
    np.testing.assert_array_equal(s, again)
    follows(s[:, 0], stats.expon(scale=2).cdf)
    assert runs_by_row(model, ASKED, np.random.default_rng(3), None)


def mixing(theta, rng):
    "Row 0 of the batch leaks into all others."
    noise = rng.normal(size=(len(theta), 2))
    return noise + noise[:1]


def three(theta, rng):
    return np.array([rng.normal(rate, 1, 3) for (rate,) in theta])


@pytest.mark.parametrize(
    "simulate, by_row", [(mixing, True), (three, True), (lambda t, rng: rng.poisson(t), False)]
)
def test_rows_that_are_mixed_are_run_alone(simulate, by_row):
    assert runs_by_row(Model(RATES, simulate), ASKED, np.random.default_rng(1), None) == by_row


def test_the_probe_costs_what_it_says():
    made = []

    def counting(theta, rng):
        made.append(len(theta))
        return rng.poisson(theta)

    runs_by_row(Model(RATES, counting), ASKED, np.random.default_rng(1), None)
    assert sum(made) == probe_simulations()


@pytest.mark.parametrize(
    "simulate, words",
    [
        (lambda t, rng: np.random.normal(t), "generator of its own"),
        (lambda t, rng: np.random.default_rng().normal(t), "generator of its own"),
        (lambda t, rng: 2 * t, "deterministic=True"),
    ],
)
def test_simulators_that_cannot_be_repeated_are_refused(simulate, words):
    with pytest.raises(ValueError, match=words):
        runs_by_row(Model(RATES, simulate), ASKED, np.random.default_rng(1), None)


def test_every_other_method_is_refused_by_name():
    rng = Replay(np.zeros((2, 0)), np.random.default_rng(0))
    for name in ("vonmises", "zipf", "logseries", "bytes", "wald", "noncentral_chisquare"):
        with pytest.raises(NotImplementedError, match=name):
            getattr(rng, name)(1.0)
    with pytest.raises(NotImplementedError, match="bit_generator"):
        _ = rng.bit_generator
    with pytest.raises(NotImplementedError, match="out="):
        rng.random(2, out=np.empty(2))
    with pytest.raises(NotByRow):
        rng.normal(size=5)
    with pytest.raises(ValueError, match="lam"):
        rng.poisson([-1.0, np.nan])


def test_no_method_of_numpys_generator_draws_off_the_tape():
    "Each public method reads the tape, or is refused: none is NumPy's own."
    for name in dir(np.random.Generator):
        if not name.startswith("_"):
            assert getattr(Replay, name) is not getattr(np.random.Generator, name), name


def test_scipy_accepts_a_replay():  # false alarm: 1e-6
    rng = Replay(np.zeros((1, 0)), np.random.default_rng(6))
    follows(stats.gamma(3).rvs(5000, random_state=rng), stats.gamma(3).cdf)


def test_a_model_of_inputs():
    model = Model(RATES, lambda theta, u: theta + u, inputs=2)
    u = np.array([[0.5, -0.5], [1.0, 2.0]])
    s, tapes = replayed(model, ASKED, np.array([[3.0], [4.0]]), u, np.random.default_rng(0))
    np.testing.assert_array_equal(s, [[3.5, 2.5], [5.0, 6.0]])
    np.testing.assert_array_equal(tapes, u)
    with pytest.raises(ValueError, match="inputs"):
        Model(RATES, lambda theta, u: theta, inputs=0)
    again = pickle.loads(pickle.dumps(Model(RATES, three, inputs=3)))
    assert again.inputs == 3


def test_a_simulator_that_draws_seeds_is_told_so():
    replay = Replay(np.zeros((2, 0)), np.random.default_rng(1))
    with pytest.raises(Unreplayable, match="seeds for another generator"):
        replay.integers(0, 2**64, 2, dtype=np.uint64)
    assert 0 <= Replay(np.zeros((2, 0)), np.random.default_rng(1)).integers(0, 2**53, 2)[0] < 2**53
