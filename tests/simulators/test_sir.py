"""The SIR epidemic: any parameters give possible trajectories, seeds and threads, bad input, the
query, the published release.
"""

import pickle
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import dpsbi
from dpsbi.checks.testing import agrees, follows_pmf
from dpsbi.simulators import sir as sir
from dpsbi.simulators.epidemic import METHODS

rates = st.one_of(st.just(0.0), st.floats(1e-6, 1e3), st.floats(0.01, 3.0))
methods = pytest.mark.parametrize("method", METHODS)


@methods
@settings(deadline=None, max_examples=100)
@given(
    st.data(),
    rates,
    rates,
    st.integers(1, 3000),
    st.lists(st.floats(1e-6, 500.0), min_size=1, max_size=6, unique=True),
    st.integers(0, 2**32),
)
def test_trajectories_are_possible(method, data, beta, gamma, population, times, seed):
    initial = data.draw(st.integers(1, population))
    x = sir.Epidemic(population, [0.0, *sorted(times)], initial, method).states(
        [[beta, gamma]] * 3, np.random.default_rng(seed)
    )
    S, I = x[..., 0], x[..., 1]
    assert (
        np.all(x == np.rint(x))
        and np.all(S >= 0)
        and np.all(I >= 0)
        and np.all(S + I <= population)
    )
    assert np.all(S[:, 0] == population - initial) and np.all(I[:, 0] == initial)
    assert np.all(np.diff(S) <= 0) and np.all(
        np.diff(S + I) <= 0
    )  # susceptibles only fall, and so do those not yet recovered
    assert np.all(np.diff(S)[I[:, :-1] == 0] == 0)  # nobody is infected by nobody
    if beta == 0:
        assert np.all(S == population - initial)
    if gamma == 0:
        assert np.all(S + I == population)


@settings(deadline=None, max_examples=60)
@given(
    st.floats(0.01, 5.0),
    st.floats(0.001, 2.0),
    st.integers(10**4, 10**10),
    st.floats(0.0, 1.0),
    st.floats(1e-9, 1e-3),
    st.integers(0, 2**32),
)
def test_large_populations_and_times_close_together(beta, gamma, population, share, gap, seed):
    initial = max(1, round(population * share))
    times = [0.0, 1.0, 1.0 + gap, 1.0 + 2 * gap, 30.0, 1e4]
    x = sir.Epidemic(population, times, initial).states(
        [[beta, gamma]] * 3, np.random.default_rng(seed)
    )
    S, I = x[..., 0], x[..., 1]
    assert np.isfinite(x).all() and np.all(x == np.rint(x)) and np.all(x >= 0)
    assert np.all(np.diff(S) <= 0) and np.all(np.diff(S + I) <= 0)


@methods
def test_one_trajectory_one_seed(method):
    theta = np.random.default_rng(0).uniform(0.1, 1, (50, 2))
    simulate = sir.sir(5000, [3.0, 9.0, 40.0], method=method).simulate
    whole = simulate(theta, np.random.default_rng(1))
    assert np.array_equal(whole, simulate(theta, np.random.default_rng(1))) and not np.array_equal(
        whole, simulate(theta, np.random.default_rng(2))
    )
    assert np.array_equal(whole[:20], simulate(theta[:20], np.random.default_rng(1)))


def test_executors_change_nothing():
    model, release = sir.sir(10**6, sir.SYNTHETIC_TIMES), sir.synthetic_release()
    run = lambda pool: dpsbi.importance(
        release,
        model,
        rng=np.random.default_rng(1),
        rounds=2,
        simulations=300,
        executor=pool,
        progress=False,
    )
    alone = run(None)
    for pool in (ThreadPoolExecutor(3), ProcessPoolExecutor(2)):
        with pool:
            assert np.array_equal(alone.log_weights, run(pool).log_weights)
    assert pickle.loads(pickle.dumps(model.simulate)) == model.simulate


@methods
@pytest.mark.parametrize("initial", [1, 150])
def test_pure_recovery_is_binomial(method, initial):
    "Nobody can be infected: each of the infected is still so with probability exp(-gamma t)."
    I = sir.Epidemic(initial, [2.0], initial, method)(
        np.tile([5.0, 0.4], (20_000, 1)), np.random.default_rng(3)
    )
    grid = np.arange(initial + 1)
    follows_pmf(I[:, 0], grid, stats.binom.pmf(grid, initial, np.exp(-0.8)))


@methods
def test_pure_infection_is_geometric_at_first(method):
    "A Yule process in a population too large to notice: I(t) is geometric."
    I = sir.Epidemic(10**7, [3.0], 1, method)(
        np.tile([1.0, 0.0], (20_000, 1)), np.random.default_rng(4)
    )
    grid = np.arange(1, 400)
    follows_pmf(I[:, 0], grid, stats.geom.pmf(grid, np.exp(-3.0)))


@pytest.mark.thorough
def test_the_clock_agrees_with_the_exact_method():
    "Kolmogorov-Smirnov at six times and two starts, together one false alarm in a million."
    times, theta = np.array([1.0, 2.0, 4.0, 6.0, 9.0, 14.0]), np.tile([1.4, 0.3], (8000, 1))
    for initial in (1, 130):
        a, b = (
            sir.Epidemic(2000, times, initial, m)(theta, np.random.default_rng(5 + initial))
            for m in METHODS
        )
        assert all(stats.ks_2samp(x, y).pvalue > 1e-6 / 12 for x, y in zip(a.T, b.T))


def test_extinction_follows_the_branching_process():
    I = sir.Epidemic(10**6, [5.0, 20.0], 2)(
        np.tile([0.3, 0.15], (40_000, 1)), np.random.default_rng(6)
    )
    grow = np.exp(0.15 * np.array([5.0, 20.0]))
    p = (0.15 * (grow - 1) / (0.3 * grow - 0.15)) ** 2
    agrees((I == 0).mean(0), p, np.sqrt(p * (1 - p) / len(I)), verbose=False)


@pytest.mark.parametrize(
    "bad",
    [
        dict(times=[]),
        dict(times=[0, 1, 1]),
        dict(times=[2, 1]),
        dict(times=[-1, 1]),
        dict(times=[0, np.nan]),
        dict(times=[0, np.inf]),
        dict(population=0),
        dict(population=-5),
        dict(population=10.5),
        dict(population=10**11),
        dict(initial=0),
        dict(initial=1001),
        dict(initial=1.5),
        dict(method="euler"),
        dict(prior=dpsbi.Prior(a=stats.norm())),
    ],
    ids=str,
)
def test_bad_settings(bad):
    with pytest.raises(ValueError):
        sir.sir(**{**dict(population=1000, times=[0, 1, 2]), **bad})


@methods
@pytest.mark.parametrize(
    "theta",
    [[[-0.1, 0.2]], [[0.1, -0.2]], [[np.nan, 0.2]], [[0.1, np.inf]], [0.1, 0.2], [[0.1, 0.2, 0.3]]],
    ids=str,
)
def test_bad_parameters(method, theta):
    with pytest.raises(ValueError):
        sir.sir(1000, [1.0], method=method).simulate(theta, np.random.default_rng(1))


def test_no_parameters_no_trajectories():
    assert sir.sir(1000, [1.0, 2.0]).simulate(np.empty((0, 2)), np.random.default_rng(1)).shape == (
        0,
        2,
    )


@settings(max_examples=50)
@given(st.integers(0, 2**32), st.integers(1, 30))
def test_one_person_moves_each_count_by_one_at_most(seed, L):
    rng = np.random.default_rng(seed)
    times, spells = np.arange(1.0, L + 1), np.sort(rng.uniform(-5, L + 5, (20, 2)), axis=1)
    count = lambda spells: ((spells[:, :1] <= times) & (times < spells[:, 1:])).sum(0)[None]
    query = sir.infection_counts_query(times)
    other = spells.copy()
    other[0] = np.sort(rng.uniform(-5, L + 5, 2))
    moved = np.abs(query(count(spells)) - query(count(other)))
    assert moved.max() <= 1 and moved.sum() <= query.sensitivity == L
    spells[0], other[0] = (0, L + 1), (-2, -1)
    assert np.abs(query(count(spells)) - query(count(other))).sum() == L


def test_published_release_and_data():
    release = sir.synthetic_release()
    assert release.s_dp.sum() == 1114 and release.query.sensitivity == release.query.dim == 10
    assert release.mechanism.cost(release.query).epsilon == pytest.approx(1e4 * np.log1p(1e-3))
    assert all(len(p.shares) == 10 and p.shares[0] == 0.001 for p in sir.PRINTED.values())
    assert np.allclose(
        np.array(sir.BOARDING_SCHOOL[:9]) / 763, sir.PRINTED["flu"].shares[1:], atol=5.1e-5
    )


def test_a_real_release_through_the_query():
    """Owner's side: counts, the vetted sampler and a ledger; at the price that the query and the
    mechanism say.
    """
    times = np.arange(14.0)
    query, ledger = sir.infection_counts_query(times), dpsbi.Ledger(20.0)
    for mechanism in (
        dpsbi.DiscreteLaplace.calibrate(query, 10.0),
        dpsbi.BinomialResponse.calibrate(query, 10.0, n=100, population=763),
    ):
        released = dpsbi.release(np.array(sir.BOARDING_SCHOOL), query, mechanism, ledger)
        assert released.s_dp.shape == (14,) and np.all(released.s_dp == np.rint(released.s_dp))
    assert ledger.spent.epsilon == pytest.approx(20.0) and all(
        e.unit == "person" for e in ledger.history
    )


@pytest.mark.thorough
@methods
@settings(deadline=None, max_examples=40)
@given(
    rates,
    rates,
    st.integers(10, 3000),
    st.lists(st.floats(1e-9, 100.0), min_size=1, max_size=5),
    st.integers(0, 2**32),
)
def test_steps_from_any_state_are_possible(method, beta, gamma, population, gaps, seed):
    rng, t = np.random.default_rng(seed), 0.0
    model, theta = (
        sir.sir_state_space(population, [1.0], method=method),
        np.array([[beta, gamma], [0.5, 0.2]]),
    )
    infected = rng.integers(0, population + 1, (2, 3))
    state = np.stack([rng.integers(0, population - infected + 1), infected], axis=-1).astype(float)
    for gap in gaps:
        before, state = state, model.step(state, theta, t, t + gap, rng)
        S, I = state[..., 0], state[..., 1]
        assert (
            state.shape == before.shape
            and np.all(state == np.rint(state))
            and np.all(S >= 0)
            and np.all(I >= 0)
        )
        assert (
            np.all(S <= before[..., 0])
            and np.all(S + I <= before.sum(-1))
            and np.all(state[before[..., 1] == 0] == before[before[..., 1] == 0])
        )
        mean, variance = model.forecast(state, theta, t, t + gap)
        assert mean.shape == variance.shape == (2, 3)
        t += gap


def test_a_step_follows_the_same_law_as_a_whole_trajectory():
    """In four pieces or at one go, at two starts: Kolmogorov-Smirnov for S and I, together one
    false alarm in a million.
    """
    for initial in (3, 400):
        model = sir.sir_state_space(5000, [6.0], initial=initial)
        state, theta = model.start(np.array([[1.2, 0.3]]), 6000, None), np.array([[1.2, 0.3]])
        for t, until in [(0, 3), (3, 5.9), (5.9, 5.9999), (5.9999, 6)]:
            state = model.step(state, theta, t, until, np.random.default_rng(int(1e4 * t)))
        whole = model.epidemic.states(np.repeat(theta, 6000, axis=0), np.random.default_rng(9))[
            :, 0
        ]
        assert all(stats.ks_2samp(a, b).pvalue > 1e-6 / 4 for a, b in zip(state[0].T, whole.T))


def test_the_state_space_simulates_as_the_model_does():
    hidden, model, theta = (
        sir.sir_state_space(800, [0.0, 2.0, 5.0], initial=4),
        sir.sir(800, [0.0, 2.0, 5.0], initial=4),
        np.array([[0.9, 0.2]] * 5),
    )
    assert np.array_equal(
        hidden.simulate(theta, np.random.default_rng(1)),
        model.simulate(theta, np.random.default_rng(1)),
    )
    assert np.array_equal(hidden.times, [0.0, 2.0, 5.0]) and hidden.prior.names == ("beta", "gamma")
    assert (
        np.array_equal(hidden.start(theta, 2, None), np.tile([796.0, 4.0], (5, 2, 1)))
        and pickle.loads(pickle.dumps(hidden.epidemic)) == hidden.epidemic
    )
    with pytest.raises(ValueError):
        sir.sir_state_space(800, [2.0, 1.0])
    with pytest.raises(ValueError):
        hidden.step(hidden.start(theta, 2, None), -theta, 0.0, 1.0, np.random.default_rng(1))
