"""Paths and forecasts of state-space models against exact smoothing and forecast distributions,
with any executor and checkpoint; states of any kind; true values of plain models.
"""

import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

import dpsbi
from dpsbi.analyst.filtering import forecast as paths
from dpsbi.analyst.filtering.pseudo_marginal import Walk as Steps
from dpsbi.checks.testing import agrees
from dpsbi.privacy import identity
from dpsbi.simulators import counts as counts

NOISE, TIMES, AHEAD = 0.5, (0.5, 1.0, 3.0), (4.0, 6.0)
PRIOR = dpsbi.Prior(sigma=stats.lognorm(0.5))
Y = np.array([0.3, -0.4, 1.9])
RELEASE = dpsbi.Release(Y, dpsbi.Query(identity, 1, norm="l2", dim=3), dpsbi.Gaussian(NOISE))


@dataclass(frozen=True)
class Walk:
    "A random walk with steps of variance theta² per unit of time, seen at some times."

    prior: dpsbi.Prior = PRIOR
    times: tuple = TIMES

    def start(self, theta, particles, rng):
        return np.zeros((len(theta), particles, 1))

    def step(self, state, theta, t, until, rng):
        return state + theta[:, None] * np.sqrt(until - t) * rng.normal(size=state.shape)

    def observed(self, state, j):
        return state[..., 0]

    def forecast(self, state, theta, t, until):
        return state[..., 0], np.broadcast_to(theta**2 * (until - t), state.shape[:2])


def start(rng, sigma):
    return dict(value=0.0, steps=0)


def step(state, rng, sigma, t, until):
    value = state["value"] + sigma * np.sqrt(until - t) * rng.normal()
    assert isinstance(state["steps"], int)  # also where a forecast goes on
    return dict(value=value, steps=state["steps"] + 1), value


PLAIN = dpsbi.StateSpace.from_functions(start, step, PRIOR, times=TIMES)


def exact():
    "Means and second moments of five values, and the mean of log sigma times the last step²."
    at, z = np.array([*TIMES, *AHEAD]), np.linspace(-3, 3, 801)
    log_f, moments = [], []
    for sigma in np.exp(z):
        cov = sigma**2 * np.minimum.outer(at, at)
        seen = cov[:3, :3] + NOISE**2 * np.eye(3)
        gain = np.linalg.solve(seen, cov[:3]).T
        mean, cov = gain @ Y, cov - gain @ cov[:3]
        step = cov[2, 2] + cov[1, 1] - 2 * cov[1, 2] + (mean[2] - mean[1]) ** 2
        log_f.append(stats.multivariate_normal(np.zeros(3), seen).logpdf(Y))
        moments.append([*mean, *(np.diag(cov) + mean**2), np.log(sigma) * step])
    w = np.exp(np.array(log_f) + stats.norm(0, 0.5).logpdf(z))
    return w @ np.array(moments) / w.sum()


EXACT = exact()


def run(model=Walk(), release=RELEASE, seed=1, **how):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short chains have a large R-hat
        how = dict(draws=1200, walk=Steps(8, 150), progress=False) | how
        return dpsbi.pseudo_marginal(release, model, rng=np.random.default_rng(seed), **how)


def moments(posterior, model, seed=2):
    "The same moments, as a posterior of them, so that its errors are known."
    ahead = posterior.forecast(model, AHEAD, rng=np.random.default_rng(seed))
    alive = posterior.weights > 0
    both = np.concatenate([posterior.values[alive], ahead.theta], axis=1)
    tied = np.log(posterior.theta[alive, 0]) * (both[:, 2] - both[:, 1]) ** 2
    columns = np.column_stack([both, both**2, tied])
    return dpsbi.Posterior(columns, ahead.log_weights, info=ahead.info)


CHAINS = dict(method="metropolis")


@pytest.mark.parametrize(
    "model, how",
    [
        (Walk(), dict()),
        (Walk(), dict(particles=8, draws=800)),
        (PLAIN, dict(particles=20, draws=200)),
        (Walk(), CHAINS | dict(draws=800, walk=Steps(8, 60))),
        pytest.param(Walk(), CHAINS | dict(draws=4000), marks=pytest.mark.slow),
    ],
    ids=["importance", "few particles", "plain functions", "metropolis", "longer metropolis"],
)
def test_paths_and_forecasts_are_exact(model, how):
    "Eleven moments; false-alarm rate one in a million."
    found = moments(run(model, **how), model)
    agrees(found.mean(), EXACT, found.mcse(), verbose=False)


@pytest.mark.thorough
def test_a_hidden_state_of_two_kinds_by_forward_and_backward_sums():
    "Calm or wild, in turn, seen only through its sum of scores; false-alarm rate one in a million."
    turn, level = np.array([[0.9, 0.1], [0.3, 0.7]]), np.array([1.0, 4.0])
    y = np.array([1.4, 3.0, 3.8, 2.6])
    model = dpsbi.StateSpace.from_functions(
        lambda rng, shift: 0,
        lambda state, rng, shift: (new := int(rng.random() < turn[state, 1]), level[new] + shift),
        dpsbi.Prior(shift=stats.norm(0, 1e-9)),
        times=4,
    )
    eta = stats.norm(0, 1.5).pdf(y[:, None] - level)
    forward = [np.array([1.0, 0.0])]
    for weights in eta:
        forward.append(forward[-1] @ turn * weights)
    back = [np.ones(2)]
    for weights in eta[::-1]:
        back.insert(0, turn @ (weights * back[0]))
    smooth = np.array([f * b / (f @ b) for f, b in zip(forward[1:], back[1:])]) @ level
    following = forward[-1] / forward[-1].sum() @ turn @ level
    release = dpsbi.Release(y, dpsbi.Query(identity, 1, norm="l2", dim=4), dpsbi.Gaussian(1.5))
    found = run(model, release, draws=200, particles=30)
    ahead = found.forecast(model, 1, rng=np.random.default_rng(3))
    agrees(found.confidential.mean(), smooth, found.confidential.mcse(), verbose=False)
    agrees(ahead.mean()[0], following, ahead.mcse()[0], verbose=False)


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["importance", "metropolis"])
def test_one_seed_one_path_with_any_executor_and_when_resumed(method, tmp_path):
    how = dict(method=method, draws=100, particles=20, walk=Steps(4, 60))
    alone = run(**how)
    for pool in (ThreadPoolExecutor(3), ProcessPoolExecutor(2)):
        with pool:
            other = run(executor=pool, **how)
            assert np.array_equal(alone.values, other.values)
            assert np.array_equal(alone.states, other.states)
    for _ in range(2):
        kept = run(checkpoint=tmp_path / "run.npz", **how)
        assert np.array_equal(alone.values, kept.values)
        assert np.array_equal(alone.states, kept.states)


def test_the_last_state_is_where_the_path_ended_and_rows_stay_together():
    found = run(draws=300)
    assert np.array_equal(found.states[:, 0], found.values[:, -1])
    few = found.resample(500, np.random.default_rng(4))
    assert isinstance(few, paths.PathPosterior) and few.log_weights is None
    assert np.array_equal(few.states[:, 0], few.values[:, -1])
    row = {value: theta for value, theta in zip(found.values[:, 0], found.theta[:, 0])}
    assert all(row[value] == theta for value, theta in zip(few.values[:, 0], few.theta[:, 0]))
    plain = dpsbi.Posterior(found.theta, found.log_weights)
    same = plain.resample(500, np.random.default_rng(4))
    assert np.array_equal(same.theta, few.theta)


def test_a_chain_that_stays_keeps_its_path_and_one_that_moves_does_not():
    found = run(method="metropolis", draws=800, walk=Steps(8, 60))
    theta, values = (rows.reshape(8, 100, -1) for rows in (found.theta, found.values))
    stays = (np.diff(theta, axis=1) == 0).all(axis=2)
    assert 0.2 < stays.mean() < 0.9
    assert np.array_equal(stays, (np.diff(values, axis=1) == 0).all(axis=2))


@pytest.mark.thorough
def test_infer_and_refine_keep_paths_and_states():
    rng = np.random.default_rng(5)
    found = dpsbi.infer(RELEASE, Walk(), rng=rng, target_ess=400, progress=False)
    agrees(found.confidential.mean(), EXACT[:3], found.confidential.mcse(), verbose=False)
    ahead = found.forecast(Walk(), AHEAD, rng=rng)
    agrees(ahead.mean(), EXACT[3:5], ahead.mcse(), verbose=False)
    rough = dpsbi.Posterior(stats.lognorm(0.4).rvs((500, 1), random_state=rng), names=("sigma",))
    found = dpsbi.refine(rough, RELEASE, Walk(), rng=rng, target_ess=300, progress=False)
    assert found.forecast(Walk(), 1, rng=rng).names == ("t = 5",)


def test_an_unpublished_value_has_a_path_too():
    gap = dpsbi.Release([Y[0], np.nan, Y[2]], RELEASE.query, RELEASE.mechanism)
    found = run(release=gap, draws=400)
    assert found.values.shape == (len(found), 3) and np.isfinite(found.confidential.mean()).all()


class Odd:
    "A state that is no tree of numbers."

    value = 0.0


def odd_step(state, rng, sigma):
    state.value += sigma * rng.normal()
    return state, state.value


@pytest.mark.thorough
def test_states_that_are_no_numbers_leave_the_paths_and_refuse_a_forecast():
    model = dpsbi.StateSpace.from_functions(lambda rng, sigma: Odd(), odd_step, PRIOR, times=3)
    found = run(model, draws=50, particles=10)
    assert found.values.shape == (len(found), 3) and not hasattr(found, "states")
    with pytest.raises(ValueError, match="no hidden states"):
        paths.forecast(found, model, 1, rng=np.random.default_rng(6))


@pytest.fixture(scope="module")
def few():
    return run(draws=50, particles=10)


@pytest.mark.parametrize("ahead", [0, 1.5, [2.0], [4.0, 4.0], [], "soon"], ids=repr)
def test_what_is_not_ahead_is_refused(few, ahead):
    with pytest.raises((ValueError, TypeError)):
        few.forecast(Walk(), ahead, rng=np.random.default_rng(7))


def test_so_many_steps_ahead_are_as_long_as_the_last():
    assert np.array_equal(paths._times_ahead(Walk(), 3), [5.0, 7.0, 9.0])  # after 0.5, 1 and 3


def test_replicates_begin_anew():
    found = run(draws=300)
    series = paths.replicate(found, Walk(), rng=np.random.default_rng(8), ahead=2)
    assert series.names == tuple(f"t = {t}" for t in ("0.5", "1", "3", "5", "7"))
    agrees(series.mean(), 0.0, series.mcse(), verbose=False)  # whatever was released


@pytest.mark.thorough
@pytest.mark.parametrize("method, draws", [("importance", 2000), ("metropolis", 3000)])
def test_the_true_count_behind_a_noisy_one(method, draws):
    release = dpsbi.Release([37.4], counts.counting_query(), dpsbi.Laplace(5.0))
    how = dict(draws=draws, method=method, particles=4, walk=Steps(8, 100))
    found = run(counts.gamma_poisson(25, 1), release, **how)
    s = np.arange(200)
    p = stats.nbinom(25, 0.5).pmf(s) * np.exp(-np.abs(37.4 - s) / 5)
    behind = found.confidential
    agrees(behind.mean()[0], s @ p / p.sum(), behind.mcse()[0], verbose=False)


def test_values_of_a_plain_model_are_there_also_where_they_were_not_published():
    "A count that was not published has the rate's mean; a false alarm of 1e-6."
    prior = dpsbi.Prior(rate=stats.gamma(4, scale=2))
    model = dpsbi.Model(prior, lambda theta, rng: rng.poisson(theta, (len(theta), 3)))
    query = dpsbi.Query(identity, 1, dim=3, step=1)
    released = dpsbi.Release([9.0, np.nan, 14.0], query, dpsbi.DiscreteLaplace(2.0))
    found = run(model, released, draws=200, particles=20)
    values = found.confidential
    assert values.names == ("s[0]", "s[1]", "s[2]")
    gap = dpsbi.Posterior(values["s[1]"] - found["rate"], found.log_weights, None, found.info)
    agrees(gap.mean(), 0.0, gap.mcse(), alarm=1e-6, verbose=False)


def test_independent_values_behind_their_noise():
    prior = dpsbi.Prior(rate=stats.gamma(4, scale=2))
    model = dpsbi.Model(
        prior, lambda theta, rng: rng.poisson(theta, (len(theta), 3)), independent=True
    )
    y = np.array([9.0, 3.0, 14.0])
    release = dpsbi.Release(y, dpsbi.Query(identity, 1, dim=3, step=1), dpsbi.DiscreteLaplace(2.0))
    found = run(model, release, draws=2000, particles=20).confidential
    s, rate = np.arange(60), np.linspace(0.02, 40, 2000)
    joint = stats.poisson(rate[:, None]).pmf(s)[:, None] * np.exp(-np.abs(y[:, None] - s) / 2)
    each = joint.sum(axis=2)
    w = stats.gamma(4, scale=2).pdf(rate) * each.prod(axis=1)
    mean = (joint @ s) / each
    agrees(found.mean(), w @ mean / w.sum(), found.mcse(), verbose=False)
