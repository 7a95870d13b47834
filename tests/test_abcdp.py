"""ABCDP end to end: the ledger's state in every outcome, what a posterior holds, and the public part's reproducibility."""
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import stats

from dpsbi.mmd import clipped_mean_distance, summary_distance
from dpsbi.model import Model, Prior
from dpsbi.owner.abcdp import (NothingAccepted, abcdp, largest_count, plan, replay, simulate_pool, synthetic)
from dpsbi.owner.svt import NoisySmallest, Seeded, SparseVector
from dpsbi.posterior import Posterior
from dpsbi.accounting import BudgetError, Ledger
from dpsbi.privacy import Query

N = 400
X = np.random.default_rng(0).uniform(0, 0.6, N)
MODEL = Model(Prior(theta=stats.uniform(0, 1)), lambda theta, rng: rng.random((len(theta), N)) * theta)
DISTANCE = summary_distance(Query(lambda batch: batch.mean(axis=1, keepdims=True), 1 / N))
KEYS = {"method", "selection", "count", "simulations", "sensitivity", "noise", "threshold", "budget", "resample", "epsilon", "delta", "complete", "private"}


def run(ledger, **kw):
    given = dict(x=X, model=MODEL, distance=DISTANCE, threshold=0.05, count=5, epsilon=1.0, simulations=300, progress=False, rng=np.random.default_rng(1)) | kw
    return abcdp(given.pop("x"), given.pop("model"), given.pop("distance"), ledger=ledger, **given)


@pytest.mark.parametrize("kw", [dict(), dict(resample=True), dict(budget="paper"), dict(noise="laplace"), dict(noise="gaussian", delta=1e-6),
                                dict(selection="top", threshold=None), dict(selection="top", threshold=None, delta=1e-6, count=50), dict(resample=True, delta=1e-6)])
def test_costs_what_it_says_and_holds_only_what_was_paid_for(kw, tmp_path):
    ledger = Ledger(1.0, 1e-5)
    posterior = run(ledger, **(dict(epsilon=1.0) | kw))
    assert len(posterior) == kw.get("count", 5) and posterior.info["private"] and posterior.info["complete"]
    assert ledger.spent.epsilon == posterior.info["epsilon"] <= 1 and ledger.spent.delta == posterior.info["delta"] <= 1e-6
    assert set(posterior.info) <= KEYS and all(isinstance(v, (str, int, float, bool)) for v in posterior.info.values())
    posterior.save(tmp_path / "p.npz")
    assert np.array_equal(Posterior.load(tmp_path / "p.npz").theta, posterior.theta)
    assert ledger.history[0].neighbours == "replace" and ledger.history[0].unit == "record"


def test_nothing_is_read_or_spent_without_the_means():
    class Secret:
        shape = (N,)
        def __array__(self, *args, **kw): raise AssertionError("the records were read")
    ledger = Ledger(0.5)
    with pytest.raises(BudgetError):
        run(ledger, x=Secret())
    assert ledger.spent.epsilon == 0 and not ledger.history
    with pytest.raises(AssertionError):
        run(ledger := Ledger(1.0), x=Secret())
    assert ledger.spent.epsilon == SparseVector.calibrate(1 / N, 1.0, 5, noise="exponential").cost().epsilon      # paid before it was read


@pytest.mark.parametrize("kw", [dict(threshold=None), dict(threshold=np.inf), dict(selection="best"), dict(selection="top"), dict(count=0),
                                dict(epsilon=-1.0), dict(budget="half"), dict(noise="gaussian"), dict(selection="top", threshold=None, count=301),
                                dict(model=Model(MODEL.prior, lambda theta, rng: rng.random((3, N)))), dict(pool=(np.zeros((3, 1)), np.zeros((2, N)))),
                                dict(model=Model(MODEL.prior, lambda theta, rng: np.full((len(theta), N), np.inf)))])
def test_bad_arguments_cost_nothing(kw):
    ledger = Ledger(1.0)
    with pytest.raises(ValueError):
        run(ledger, **kw)
    assert not ledger.history


def test_outcomes_short_of_the_count():
    ledger, scales = Ledger(1.0), SparseVector.calibrate(1 / N, 1.0, 250, noise="exponential", steps=300)
    with pytest.warns(UserWarning, match="only"):
        short = run(ledger, count=250)
    assert 0 < len(short) < 250 and ledger.spent == scales.used(len(short)) and not short.info["complete"]
    ledger = Ledger(1.0)
    with pytest.raises(NothingAccepted) as caught:
        run(ledger, threshold=-10.0)
    assert ledger.spent == caught.value.cost and 0 < ledger.spent.epsilon < 0.5
    run(ledger, epsilon=ledger.remaining.epsilon * (1 - 1e-9))                        # the rest can be spent


def test_an_error_that_depends_on_the_records_stays_paid():
    class Broken:
        sensitivity = 1 / N
        def between(self, x, y): return np.full(len(y), np.nan if x is X else 0.5)
    ledger = Ledger(1.0)
    with pytest.raises(ValueError, match="keep it to yourself"):
        run(ledger, distance=Broken())
    assert ledger.spent.epsilon == pytest.approx(1.0, rel=1e-12)


def test_noise_does_not_come_from_rng_but_simulations_do(tmp_path):
    a, b = (run(Ledger(1), epsilon=0.02, rng=np.random.default_rng(5), threshold=0.1, count=20) for _ in range(2))
    assert not np.array_equal(a.theta, b.theta)
    public = {v.tobytes() for v in simulate_pool(MODEL, 300, rng=np.random.default_rng(5))[0]}
    assert {v.tobytes() for v in a.theta} | {v.tobytes() for v in b.theta} <= public
    with warnings.catch_warnings(), ThreadPoolExecutor(3) as threads:
        warnings.simplefilter("ignore")
        go = lambda **kw: run(Ledger(1), source=Seeded(np.random.default_rng(6)), **kw)
        reference = go()
        for kw in (dict(executor=threads), dict(checkpoint=tmp_path / "c.npz"), dict(checkpoint=tmp_path / "c.npz")):
            assert np.array_equal(go(**kw).theta, reference.theta)
        assert not reference.info["private"]


def test_a_killed_pool_resumes_to_the_same_result(tmp_path):
    calls, path = [], tmp_path / "pool.npz"
    def dies(theta, rng):
        calls.append(len(theta))
        if len(calls) == 5: raise KeyboardInterrupt
        return MODEL.simulate(theta, rng)
    import dpsbi.owner.abcdp as module
    clock, module.time = module.time, type("T", (), {"monotonic": staticmethod(lambda: 100.0 * len(calls))})     # save after every batch
    try:
        with pytest.raises(KeyboardInterrupt):
            simulate_pool(Model(MODEL.prior, dies), 300, rng=np.random.default_rng(7), progress=False, checkpoint=path)
    finally:
        module.time = clock
    theta, y = simulate_pool(Model(MODEL.prior, dies), 300, rng=np.random.default_rng(7), progress=False, checkpoint=path)
    whole = simulate_pool(MODEL, 300, rng=np.random.default_rng(7), progress=False)
    assert np.array_equal(theta, whole[0]) and np.array_equal(y, whole[1]) and len(calls) < 20


def test_replay():
    d, rng = np.random.default_rng(8).uniform(size=(3, 50)), np.random.default_rng(9)
    plain = replay(d, 0.5, 4, rng=rng)
    assert (plain.sum(1) == 4).all() and (d[plain] <= 0.5).all()
    for noise in ("laplace", "exponential", "gaussian"):
        for resample in (False, True):
            tiny = SparseVector(1e-9, 4, 1e-9, 2e-9, resample, noise, steps=50)
            assert np.array_equal(replay(d, [0.5, 0.5, 0.5], tiny, rng=rng), plain)
    chosen = replay(d, None, NoisySmallest(1e-9, 4, 1e-9), rng=rng)
    assert np.array_equal(np.sort(d[chosen].reshape(3, 4)), np.sort(d)[:, :4])
    with pytest.raises(ValueError):
        replay(np.full((1, 3), np.nan), 0.5, 4, rng=rng)


def test_distances_and_planner():
    clipped = clipped_mean_distance(lambda x, y: np.abs(x - y.mean(axis=1)[:, None]), 0.3, N)
    y = MODEL.simulate(np.full((5, 1), 0.5), np.random.default_rng(10))
    neighbour = X.copy(); neighbour[0] = 100.0
    assert np.abs(clipped.between(X, y) - clipped.between(neighbour, y)).max() <= clipped.sensitivity == 0.3 / N
    with pytest.raises(ValueError):
        summary_distance(Query(lambda b: b, 1.0, norm="l0"))
    table = plan(1 / N, [1, 10], 1.0, [0.01, 0.1])
    assert table.shape == (2, 4) and (table["gap 0.01"] > table["gap 0.1"]).all()
    assert largest_count(1e-4, 1.0, 0.05) > largest_count(1e-4, 0.5, 0.05) > largest_count(1e-4, 0.5, 0.05, budget="paper", noise="laplace", resample=True)


def test_synthetic_data_are_simulations_at_the_draws():
    posterior = Posterior(np.array([[0.001], [0.002]]))
    fake = synthetic(posterior, MODEL, 7, rng=np.random.default_rng(11))
    assert fake.shape == (7, N) and fake.max() <= 0.002
