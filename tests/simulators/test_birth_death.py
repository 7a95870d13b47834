"""The outbreak simulator where methods meet it: process pools, the analyst's and the owner's
interfaces, wrong data.
"""

import pickle
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

import dpsbi
from dpsbi.simulators import birth_death as bd


@pytest.mark.thorough
def test_a_patients_release_goes_through_importance_sampling_on_any_executor():
    query = bd.patient_query()
    noise = dpsbi.DiscreteLaplace.calibrate(query, 1.0, step=query.step)
    released = dpsbi.release(bd.san_francisco.statistics, query, noise, dpsbi.Ledger(1.0))
    run = dict(rounds=2, simulations=300, progress=False)
    alone = dpsbi.importance(released, bd.birth_death(), rng=np.random.default_rng(1), **run)
    with ProcessPoolExecutor(2) as pool:
        pooled = dpsbi.importance(
            released, bd.birth_death(), rng=np.random.default_rng(1), executor=pool, **run
        )
    assert np.array_equal(alone.theta, pooled.theta) and np.array_equal(
        alone.log_weights, pooled.log_weights
    )
    assert alone.names == ("R1", "t1", "R2", "burden") and alone.ess > 1


def test_the_release_on_the_grid_of_thirds_costs_what_it_says():
    query = bd.patient_query()
    noise = dpsbi.DiscreteLaplace.calibrate(query, 1.0, step=query.step)
    assert noise.cost(query).epsilon <= 1.0 and noise.scale == pytest.approx(13 / 3)


def test_models_pickle_and_repeat():
    model = pickle.loads(pickle.dumps(bd.birth_death(outbreaks=3, threads=2)))
    theta = model.prior.sample(4, np.random.default_rng(2))
    x = model.simulate(theta, np.random.default_rng(3))
    assert x.shape == (4, 3, 8) and np.array_equal(
        x, bd.birth_death(outbreaks=3).simulate(theta, np.random.default_rng(3))
    )


def test_statistics_are_consistent():
    x = bd.simulate_outbreaks(
        bd.OutbreakPrior().sample(300, np.random.default_rng(4)), 2, rng=np.random.default_rng(5)
    )
    cases, clusters, largest, gap, singles, pairs, period, months = np.moveaxis(x, -1, 0)
    assert np.all(
        (cases >= clusters)
        & (cases >= singles + 2 * pairs)
        & (clusters >= singles + pairs)
        & (cases >= largest)
    )
    assert np.all(
        (gap <= largest / 3 + 1e-9)
        & (months <= period)
        & (period <= 24)
        & (months <= largest)
        & ((months > 0) == (cases > 0))
    )


def test_distance_bounds_and_refusals():
    x, y = np.zeros((5, 8)), bd.simulate_outbreaks([bd.TRUTH] * 2, 5, rng=np.random.default_rng(6))
    distance = bd.OutbreakDistance(5)
    assert (
        np.all(distance.between(x, y) == 200)
        and distance.sensitivity == 40
        and distance.unit == "outbreak"
    )
    broken = x.copy()
    broken[0, 0] = np.nan  # counts as 0, and nothing is said about it
    assert np.array_equal(distance.between(broken, y), distance.between(x, y))
    with pytest.raises(ValueError, match="5 records"):
        distance.between(x[:4], y)
