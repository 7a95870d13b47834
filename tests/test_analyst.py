"""What every analyst's method must do: seeds, executors, process pools, checkpoints, bad input. One
list for all of them.
"""

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

import dpsbi
from dpsbi.analyst.smc_abc import Populations
from dpsbi.privacy import identity
from dpsbi.simulators import counts

MODEL = counts.gamma_poisson(alpha=25, beta=1)
RELEASE = dpsbi.Release([37.4], counts.counting_query(), dpsbi.Laplace(5.0))
METHODS = {
    "exact_abc": lambda release=RELEASE, model=MODEL, **kw: dpsbi.exact_abc(
        release, model, draws=300, **kw
    ),
    "importance": lambda release=RELEASE, model=MODEL, **kw: dpsbi.importance(
        release, model, rounds=3, simulations=300, **kw
    ),
    "smc_abc": lambda release=RELEASE, model=MODEL, **kw: dpsbi.smc_abc(
        release, model, draws=300, populations=Populations(200), **kw
    ),
}
methods = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


def same(a, b):
    weights = (a.log_weights is None and b.log_weights is None) or np.array_equal(
        a.log_weights, b.log_weights
    )
    return np.array_equal(a.theta, b.theta) and weights and a.info == b.info


@methods
def test_one_seed_one_result(method):
    first = method(rng=np.random.default_rng(1))
    assert same(first, method(rng=np.random.default_rng(1))) and not same(
        first, method(rng=np.random.default_rng(2))
    )


@methods
def test_the_executor_changes_nothing(method):
    alone = method(rng=np.random.default_rng(1))
    for pool in (ThreadPoolExecutor(3), ProcessPoolExecutor(2)):
        with pool:
            assert same(alone, method(rng=np.random.default_rng(1), executor=pool))


@methods
def test_the_callers_generator_moves_on_alike_with_any_executor(method):
    after = []
    for pool in (None, ThreadPoolExecutor(3)):
        rng = np.random.default_rng(1)
        method(rng=rng, executor=pool)
        after.append((rng.random(), rng.spawn(1)[0].random()))
    assert after[0] == after[1]


@methods
def test_rng_is_required(method):
    with pytest.raises(TypeError, match="rng"):
        method()


@methods
@pytest.mark.parametrize(
    "simulate",
    [
        lambda theta, rng: theta * np.nan,
        lambda theta, rng: rng.poisson(3.0, (7, 1)),
        lambda theta, rng: rng.poisson(3.0, (len(theta), 4)),
        lambda theta, rng: 5.0,
    ],
    ids=["nan", "rows", "columns", "scalar"],
)
def test_simulators_that_fail_are_reported(method, simulate):
    with pytest.raises(ValueError):
        method(model=dpsbi.Model(MODEL.prior, simulate), rng=np.random.default_rng(1))


@methods
def test_a_simulator_that_raises_is_heard(method):
    def broken(theta, rng):
        raise RuntimeError("no licence for the simulator")

    with pytest.raises(RuntimeError, match="no licence"), ThreadPoolExecutor(2) as pool:
        method(model=dpsbi.Model(MODEL.prior, broken), rng=np.random.default_rng(1), executor=pool)


@methods
def test_a_checkpoint_gives_the_result_again(method, tmp_path, monkeypatch):
    ticks = iter(
        range(0, 10**9, 11)
    )  # exact_abc saves every ten seconds: let each look at the clock find them gone
    monkeypatch.setattr("time.monotonic", lambda: next(ticks))
    first = method(rng=np.random.default_rng(1), checkpoint=tmp_path / "c.npz", progress=False)
    assert (tmp_path / "c.npz").exists()
    assert same(
        first, method(rng=np.random.default_rng(1), checkpoint=tmp_path / "c.npz", progress=False)
    )


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    METHODS["importance"](rng=np.random.default_rng(1), checkpoint=tmp_path / "c.npz")
    with pytest.raises(ValueError, match="another run"):
        METHODS["importance"](rng=np.random.default_rng(2), checkpoint=tmp_path / "c.npz")


def test_a_checkpoint_of_another_proposal_is_refused(tmp_path):
    def run(proposal):
        return METHODS["importance"](
            rng=np.random.default_rng(1), proposal=proposal, checkpoint=tmp_path / "c.npz"
        )

    first, second, third = (
        dpsbi.Prior(rate=law)
        for law in (stats.uniform(35, 0.2), stats.uniform(36, 0.2), stats.uniform(35, 0.4))
    )
    assert same(run(first), run(first))
    for other in (second, third, None):  # alike in density where the prior has draws: none
        with pytest.raises(ValueError, match="differs in proposal"):
            run(other)


@settings(max_examples=25)
@given(
    s_dp=st.floats(-30, 90),
    scale=st.floats(2, 60),
    shape=st.floats(5, 60),
    seed=st.integers(0, 10**6),
)
def test_importance_agrees_with_enumeration(s_dp, scale, shape, seed):
    # 25 cases, |z| <= 5.5 each: false-alarm rate 1e-6 for the set, if the weights' tail is light
    # (Pareto k below 0.5)
    release = dpsbi.Release([s_dp], counts.counting_query(), dpsbi.Laplace(scale))
    found = dpsbi.importance(
        release,
        counts.gamma_poisson(shape, 1),
        rng=np.random.default_rng(seed),
        rounds=5,
        simulations=500,
    )
    exact = counts.exact_posterior(shape, 1, release)
    assume(found.pareto_k < 0.5 and found.ess > 200)
    assert abs(found.mean()[0] - exact.mean) < 5.5 * found.mcse()[0]


def test_parameters_with_borders_and_a_simplex():
    prior = dpsbi.Prior(mix=stats.dirichlet([1.0, 1.0, 1.0]), rate=stats.uniform(0, 50))
    model = dpsbi.Model(
        prior,
        lambda theta, rng: np.stack(
            [rng.poisson(theta[:, 3] * theta[:, j]) for j in range(3)], axis=1
        ),
    )
    release = dpsbi.Release([20.0, 10.0, 5.0], dpsbi.Query(identity, 1, step=1), dpsbi.Laplace(3.0))
    a = dpsbi.importance(release, model, rng=np.random.default_rng(1), rounds=8)
    b = dpsbi.exact_abc(release, model, draws=3000, rng=np.random.default_rng(2))
    z = (a.mean() - b.mean()) / np.sqrt(a.mcse() ** 2 + b.mcse() ** 2)
    assert np.abs(z).max() < stats.norm.isf(1e-6 / 8)
    assert (
        np.allclose(a.theta[:, :3].sum(1), 1) and (a.theta > 0).all() and (a.theta[:, 3] < 50).all()
    )


def test_memory_is_bounded_by_the_draws_kept():
    import tracemalloc

    rare = dpsbi.Release(
        [90.0], counts.counting_query(), dpsbi.Laplace(5.0)
    )  # accepts about one in 10^5
    tracemalloc.start()
    with pytest.warns(UserWarning, match="only .* accepted"):
        dpsbi.exact_abc(rare, MODEL, draws=5, rng=np.random.default_rng(1), max_simulations=400_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (
        peak < 5e6
    )  # 400,000 simulations in one array would be 3.2 MB a column, and several are needed


@pytest.mark.parametrize("seed", range(10))
def test_rounds_of_one_simulation_adapt_to_nothing_and_do_no_harm(seed):
    model, release = (
        counts.gamma_poisson(25, 1),
        dpsbi.Release([37.4], counts.counting_query(), dpsbi.Laplace(5.0)),
    )
    assert (
        dpsbi.importance(
            release,
            model,
            rng=np.random.default_rng(seed),
            rounds=10,
            simulations=1,
            progress=False,
        ).ess
        >= 1
    )


@pytest.mark.parametrize(
    "how",
    [
        dict(),
        dict(proposal=dpsbi.Prior(theta=stats.gamma(40, scale=0.8))),
        dict(control=0.05),
        dict(proposal=dpsbi.Prior(theta=stats.gamma(40, scale=0.8)), control=0.05),
    ],
    ids=str,
)
def test_weights_of_another_proposal_and_of_rejection_control(how):
    """The count of 37.4 at ε = 0.2: mean 28.57633 and sd 4.73388 by summation; false-alarm rate
    1e-6 each.
    """
    release = dpsbi.Release([37.4], counts.counting_query(), dpsbi.Laplace(5.0))
    posterior = dpsbi.exact_abc(
        release,
        counts.gamma_poisson(25, 1),
        draws=20_000,
        rng=np.random.default_rng(3),
        progress=False,
        **how,
    )
    z = (posterior.theta[:, 0] - 28.5763275949) / 4.7338826534
    error = 1 / np.sqrt(posterior.ess)
    assert abs(posterior.weights @ z) < 4.9 * error
    assert abs(posterior.weights @ z**2 - 1) < 4.9 * np.sqrt(2.5) * error
