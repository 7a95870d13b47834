"""Models of a start and a step: states of any kind, exact likelihoods by other routes, gaps and
scales, workers, bad input.
"""

import itertools
from collections import namedtuple
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

import dpsbi
from dpsbi.analyst.filtering.particle_filter import log_likelihood
from dpsbi.checks.testing import agrees
from dpsbi.mechanisms.composite import parts_of
from dpsbi.privacy import identity

PRIOR = dpsbi.Prior(a=stats.uniform(0, 1), b=stats.gamma(4, scale=0.25))
STEPS, THETA = 4, np.array([[0.8, 1.0]])
QUERY = dpsbi.Query(identity, 1, norm="l2")
RELEASE = dpsbi.Release([0.7, -0.4, -2.1, -1.0], QUERY, dpsbi.Gaussian(0.5))


@dataclass(frozen=True)
class Uneven(dpsbi.Mechanism):
    "Normal noise with a scale for each value."

    scales: tuple

    def log_prob(self, s_dp, s):
        return stats.norm.logpdf(s_dp, s, self.scales).sum(axis=-1)

    def sample(self, s, rng):
        return rng.normal(s, self.scales)


def with_gap(release, *gaps):
    "The release without some of its values."
    s_dp = np.array(release.s_dp)
    s_dp[list(gaps)] = np.nan
    other = dpsbi.Release(release.s_dp, release.query, release.mechanism)
    object.__setattr__(other, "s_dp", s_dp)
    return other


def begin(rng, b):
    return rng.normal(0, b)


def go_on(state, rng, a, b):
    state = a * state + b * rng.normal()
    return state, state


def begin_dict(rng, b):
    return {"deep": {"x": rng.normal(0, b)}}


def go_on_dict(state, rng, a, b):
    state["deep"]["x"] = a * state["deep"]["x"] + b * rng.normal()
    return state, [state["deep"]["x"]]


class Value:
    "A state that is an object."

    def __init__(self, x):
        self.x = x


def begin_object(rng, b):
    return Value(rng.normal(0, b))


def go_on_object(state, rng, a, b):
    state.x = a * state.x + b * rng.normal()
    return state, np.array(state.x)


def begin_array(rng, b):
    return np.array([rng.normal(0, b)])


def go_on_array(state, rng, a, b):
    state *= a
    state += b * rng.normal()
    return state, state[0]


ONE_BY_ONE = [
    (begin, go_on),
    (begin_dict, go_on_dict),
    (begin_object, go_on_object),
    (begin_array, go_on_array),
]


def go_on_many(state, rng, a, b):
    state = a * state + b * rng.normal(size=a.shape)
    return state, state


Pair = namedtuple("Pair", "x y")


def packed(wrap, unwrap):
    "Vectorised functions whose state is wrapped."

    def start(rng, b):
        return wrap(rng.normal(0, b))

    def step(state, rng, a, b):
        x, value = go_on_many(unwrap(state), rng, a, b)
        return wrap(x), value[:, None]

    return start, step


MANY = [
    (begin, go_on_many),
    packed(lambda x: (x, 0 * x), lambda state: state[0]),
    packed(lambda x: Pair(0 * x, x), lambda state: state.y),
    packed(lambda x: {"x": [x]}, lambda state: state["x"][0]),
    packed(lambda x: np.stack([x, x], axis=1), lambda state: state[:, 0]),
]


def space(start=begin, step=go_on, times=STEPS, prior=PRIOR, **how):
    return dpsbi.StateSpace.from_functions(start, step, prior, times, **how)


def covariance(a, b):
    powers = a ** np.subtract.outer(np.arange(1, STEPS + 1), np.arange(STEPS + 1)).clip(0)
    root = b * np.tril(powers, 1)
    return root @ root.T


def exact(scales, gaps=()):
    kept = [j for j in range(STEPS) if j not in gaps]
    cov = covariance(*THETA[0]) + np.diag(np.square(scales))
    law = stats.multivariate_normal(np.zeros(len(kept)), cov[np.ix_(kept, kept)])
    return law.logpdf(RELEASE.s_dp[kept])


def unbiased(model, release, truth, n, particles=60, seed=1):
    "Mean of estimate / truth is one; one false alarm in a million. Returns the ratios."
    rng = np.random.default_rng(seed)
    found = log_likelihood(release, model, np.tile(THETA, (n, 1)), particles=particles, rng=rng)
    ratio = np.exp(found - truth)
    agrees(ratio.mean(), 1.0, ratio.std() / np.sqrt(n), verbose=False)
    assert ratio.std() < 2


@pytest.mark.parametrize("functions", MANY[:2])
def test_unbiased_against_the_exact_likelihood(functions):
    unbiased(space(*functions, vectorised=True), RELEASE, exact([0.5] * 4), 1500)


def test_unbiased_one_by_one():
    unbiased(space(begin_dict, go_on_dict), RELEASE, exact([0.5] * 4), 150)


@pytest.mark.parametrize("functions", ONE_BY_ONE[1:])
def test_states_of_any_kind_give_the_same_bits(functions):
    "Also where step changes its state in place and survivors of resampling were one object."

    def run(start, step):
        rng, theta = np.random.default_rng(2), np.tile(THETA, (5, 1))
        return log_likelihood(RELEASE, space(start, step), theta, particles=30, rng=rng)

    assert np.array_equal(run(*ONE_BY_ONE[0]), run(*functions))


@pytest.mark.parametrize("functions", MANY[1:])
def test_states_of_many_particles_give_the_same_bits(functions):
    def run(start, step):
        model, rng = space(start, step, vectorised=True), np.random.default_rng(2)
        return log_likelihood(RELEASE, model, np.tile(THETA, (5, 1)), particles=30, rng=rng)

    assert np.array_equal(run(*MANY[0]), run(*functions))


@pytest.mark.parametrize("gaps", [(), (1,), (0, 3)])
@pytest.mark.parametrize("scales", [(0.5,) * 4, (0.3, 3.0, 0.5, 1.0)])
def test_scales_of_their_own_and_values_not_published(scales, gaps):
    even = len(set(scales)) == 1
    mechanism = dpsbi.Gaussian(0.5) if even else Uneven(scales)
    release = with_gap(dpsbi.Release(RELEASE.s_dp, QUERY, mechanism), *gaps)
    model = space(*MANY[0], vectorised=True)
    if even or not gaps:
        unbiased(model, release, exact(scales, gaps), 1500)
        return
    # up to a factor: that of the values that were not published cannot be told from the rest
    theta = np.array([[0.8, 1.0], [0.3, 0.6]])
    rng = np.random.default_rng(3)
    logs = log_likelihood(release, model, np.repeat(theta, 2000, axis=0), particles=60, rng=rng)
    f = np.exp(logs.reshape(2, -1))
    kept = [j for j in range(STEPS) if j not in gaps]
    laws = [covariance(*row) + np.diag(np.square(scales)) for row in theta]
    laws = [stats.multivariate_normal(cov=cov[np.ix_(kept, kept)]) for cov in laws]
    truth = np.exp(np.diff([law.logpdf(RELEASE.s_dp[kept]) for law in laws]))[0]
    ratio = f[1].mean() / f[0].mean()
    error = ratio * np.linalg.norm(f.std(axis=1) / f.mean(axis=1)) / np.sqrt(f.shape[1])
    agrees(ratio, truth, error, verbose=False)


class Ahead:
    "The same process with a forecast, for the filter that looks ahead."

    prior, times = PRIOR, (1, 2, 3, 4)

    def start(self, theta, particles, rng):
        return rng.normal(size=(len(theta), particles, 1)) * theta[:, 1:, None]

    def step(self, state, theta, t, until, rng):
        mean, variance = self.forecast(state, theta, t, until)
        return rng.normal(mean, np.sqrt(variance))[..., None]

    def forecast(self, state, theta, t, until):
        a, b = theta[:, :1], theta[:, 1:]
        decay = a ** (until - t)
        variance = b**2 * (1 - decay**2) / (1 - a**2)
        return state[..., 0] * decay, np.broadcast_to(variance, state.shape[:2])

    def observed(self, state, j):
        return state[..., 0]


@pytest.mark.thorough
@pytest.mark.parametrize("gaps", [(), (2,)])
def test_looking_ahead_reads_each_value_by_its_own_scale(gaps):
    scales = (0.01, 3.0, 0.02, 1.0)
    mechanism = dpsbi.Gaussian(0.01) if gaps else Uneven(scales)
    release = with_gap(dpsbi.Release(RELEASE.s_dp, QUERY, mechanism), *gaps)
    truth = exact((0.01,) * 4 if gaps else scales, gaps)
    theta, rng = np.tile(THETA, (1500, 1)), np.random.default_rng(4)
    found = log_likelihood(release, Ahead(), theta, particles=60, rng=rng)
    ratio = np.exp(found - truth)
    agrees(ratio.mean(), 1.0, ratio.std() / np.sqrt(len(ratio)), verbose=False)
    assert ratio.std() < 2  # a bootstrap filter's would be ten times that


def coin_start(rng):
    return "fair" if rng.random() < 0.5 else "bent"


def coin_step(state, rng, p):
    if rng.random() < 0.2:
        state = "bent" if state == "fair" else "fair"
    heads = rng.binomial(10, p if state == "bent" else 0.5)
    return state, (heads, 10 - heads)


def test_two_values_a_time_against_enumeration():
    "A hidden coin: all paths of four tosses of ten are summed out."
    mechanism, p = dpsbi.DiscreteLaplace(1.0), 0.9
    y = np.array([[5, 4], [9, 2], [10, 0], [6, 6]])
    heads = np.arange(11)
    shown = np.stack([heads, 10 - heads], axis=1)
    weight = [
        [np.exp(mechanism.log_prob(v, shown)) @ stats.binom(10, q).pmf(heads) for q in (0.5, p)]
        for v in y
    ]
    truth = 0.0
    for path in itertools.product((0, 1), repeat=5):
        moves = [0.2 if path[j] != path[j + 1] else 0.8 for j in range(4)]
        truth += 0.5 * np.prod(moves) * np.prod([weight[j][path[j + 1]] for j in range(4)])
    model = space(coin_start, coin_step, prior=dpsbi.Prior(p=stats.uniform(0, 1)))
    release = dpsbi.Release(y.ravel(), dpsbi.Query(identity, 20, step=1), mechanism)
    rng = np.random.default_rng(5)
    found = log_likelihood(release, model, np.full((150, 1), p), particles=60, rng=rng)
    ratio = np.exp(found - np.log(truth))
    agrees(ratio.mean(), 1.0, ratio.std() / np.sqrt(len(ratio)), verbose=False)
    assert model.simulate(np.full((3, 1), p), rng).shape == (3, 8)
    assert np.all(model.simulate(np.full((9, 1), p), rng).reshape(9, 4, 2).sum(axis=2) == 10)


@pytest.mark.parametrize("vectorised", [False, True])
def test_simulating_comes_with_it(vectorised):
    n = 20_000 if vectorised else 3000
    model = space(begin, go_on_many if vectorised else go_on, vectorised=vectorised)
    x = model.model.simulate(np.tile(THETA, (n, 1)), np.random.default_rng(6))
    cov = covariance(*THETA[0])
    error = np.sqrt((np.outer(np.diag(cov), np.diag(cov)) + cov**2) / n)
    assert x.shape == (n, STEPS)
    agrees(np.cov(x.T), cov, error, verbose=False)


def test_whole_series_and_steps_give_one_posterior():
    wide = dpsbi.Release(RELEASE.s_dp, QUERY, dpsbi.Gaussian(2.0))
    model = space(*MANY[0], vectorised=True)
    how = dict(rng=np.random.default_rng(7), progress=False)
    stepped = dpsbi.pseudo_marginal(wide, model, draws=1500, **how)
    whole = dpsbi.importance(wide, model.model, simulations=2000, **how)
    error = np.hypot(stepped.mcse(), whole.mcse())
    agrees(stepped.mean(), whole.mean(), error, verbose=False)
    error = np.hypot(stepped.log_evidence_error, whole.log_evidence_error)
    agrees(stepped.log_evidence, whole.log_evidence, error, verbose=False)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "model",
    [space(begin_dict, go_on_dict), space(*MANY[3], vectorised=True)],
    ids=["one by one", "vectorised"],
)
def test_one_result_with_any_executor(model):
    theta = PRIOR.sample(40, np.random.default_rng(8))

    def run(executor=None):
        rng = np.random.default_rng(9)
        return log_likelihood(RELEASE, model, theta, particles=20, rng=rng, executor=executor)

    alone = run()
    for pool in (ThreadPoolExecutor(3), ProcessPoolExecutor(2)):
        with pool:
            assert np.array_equal(alone, run(pool))


def test_a_step_may_ask_when_it_is():
    seen = []

    def step(state, rng, a, b, t, until):
        seen.append((t, until))
        return state, rng.normal()

    space(begin, step, times=[0.5, 2, 3]).simulate(THETA, np.random.default_rng(1))
    assert seen == [(0, 0.5), (0.5, 2), (2, 3)]


@pytest.mark.parametrize(
    "functions, match",
    [
        ((begin, lambda state, rng, c: (state, 0)), "'c'"),
        ((lambda rng: 0.0, lambda state, rng, a: (state, 0)), "neither .* takes 'b'"),
        ((lambda b: 0.0, lambda state, a: (state, 0)), "takes rng"),
        ((begin, lambda *, state, rng, a: (state, 0)), "no state first"),
        ((0.0, go_on), "not float"),
    ],
)
def test_functions_that_do_not_fit(functions, match):
    with pytest.raises(TypeError, match=match):
        space(*functions)


@pytest.mark.parametrize("times", [0, True, 2.5, [0, 1], [2, 1], [1, np.nan], []])
def test_times_that_make_no_sense(times):
    with pytest.raises(ValueError, match="times|whole number"):
        space(times=times)


def test_other_settings_that_make_no_sense():
    with pytest.raises(ValueError, match="batch"):
        space(batch=0)
    with pytest.raises(TypeError, match="prior"):
        space(prior=None)


@pytest.mark.parametrize(
    "step, error, match",
    [
        (lambda state, rng, a, b: state, TypeError, "pair"),
        (lambda state, rng, a, b: (state, "ill"), TypeError, "number"),
        (lambda state, rng, a, b: (state, 1 / 0), RuntimeError, r"a=0\.8, b=1\.0.*t = 0"),
        (lambda state, rng, a, b: (state, [0] * rng.integers(1, 3)), ValueError, "same number"),
    ],
)
def test_steps_that_go_wrong(step, error, match):
    with pytest.raises(error, match=match):
        space(begin, step).simulate(np.tile(THETA, (30, 1)), np.random.default_rng(1))


@pytest.mark.parametrize("value", [np.zeros(3), 0.0, np.zeros((2, 2, 2))])
def test_vectorised_values_of_another_shape(value):
    model = space(begin, lambda state, rng, a, b: (state, value), vectorised=True)
    with pytest.raises(ValueError, match="vectorised step"):
        model.simulate(np.tile(THETA, (2, 1)), np.random.default_rng(1))


def test_noise_that_is_no_sum_is_refused():
    class Tied(dpsbi.Gaussian):
        def log_prob(self, s_dp, s):
            return super().log_prob(s_dp, s) + 0.1 * np.subtract(s_dp, s).sum(axis=-1) ** 2

    with pytest.raises(ValueError, match="parts"):
        parts_of(Tied(1.0), RELEASE.s_dp)
    tied = dpsbi.Release(RELEASE.s_dp, QUERY, Tied(1.0))
    with pytest.raises(ValueError, match="independent parts"):
        log_likelihood(tied, space(), THETA, particles=5, rng=np.random.default_rng(1))
