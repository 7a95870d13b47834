"""The SEIR epidemic: the law of its counts, as a model and by steps; its query; bad input."""

import itertools

import numpy as np
import pytest
from scipy import stats

import dpsbi
from dpsbi.checks.testing import agrees
from dpsbi.simulators import seir as seir

TRUTH = np.array([2.5, 0.8, 1.2, 6.0])


def person_by_person(theta, population, times, length, rng):
    "New cases between times, by a loop over persons and steps."
    r0, latent, infectious, initial = theta
    ill = min(rng.poisson(initial), population)
    stage, seen, t = [2] * ill + [0] * (population - ill), [], 0.0
    for until in times:
        new = 0
        for _ in range(round((until - t) / length)):
            force = r0 * stage.count(2) / infectious / population
            hazard = np.array([force, 1 / latent, 1 / infectious, 0.0])
            goes = rng.random(population) < (1 - np.exp(-length * hazard))[stage]
            new += sum(go and at == 1 for go, at in zip(goes, stage))
            stage = [at + bool(go) for go, at in zip(goes, stage)]
        seen.append(new)
        t = until
    return seen


@pytest.mark.parametrize("times, length", [([2, 3, 5], 1.0), ([1, 1.5, 3], 0.5)], ids=str)
def test_counts_follow_a_loop_over_persons(times, length):
    "Means of three counts and of their products; false-alarm rate one in a million."

    def moments(counts):
        pairs = itertools.combinations_with_replacement(range(3), 2)
        columns = np.column_stack([counts, *(counts[:, i] * counts[:, j] for i, j in pairs)])
        return columns.mean(axis=0), columns.std(axis=0) / np.sqrt(len(columns))

    rng = np.random.default_rng(1)
    loop = [person_by_person(TRUTH, 30, times, length, rng) for _ in range(2000)]
    model = seir.seir(30, times, length=length)
    arrays = model.simulate(np.tile(TRUTH, (40_000, 1)), rng)
    (slow, slow_error), (fast, fast_error) = moments(np.array(loop)), moments(arrays)
    agrees(fast, slow, np.hypot(slow_error, fast_error), verbose=False)


def test_the_model_is_the_state_space_and_nobody_is_lost():
    theta = np.tile(TRUTH, (50, 1))
    space, model = seir.seir_state_space(200, 6), seir.seir(200, 6)
    one, other = (m.simulate(theta, np.random.default_rng(2)) for m in (space, model))
    assert np.array_equal(one, other) and (one.sum(axis=1) <= 200).all() and (one >= 0).all()
    crowd = np.tile([2.5, 0.8, 1.2, 1e6], (9, 1))
    assert (space.simulate(crowd, np.random.default_rng(3)) == 0).all()  # all are infectious


@pytest.mark.parametrize("norm, order", [("l1", 1), ("l2", 2)])
@pytest.mark.parametrize("neighbours", ["replace", "add-remove"])
def test_one_person_moves_the_counts_no_farther_than_claimed_and_so_far(norm, order, neighbours):
    def counted(records):
        return np.bincount(records, minlength=4)[:3]

    apart = []
    for records in itertools.product(range(4), repeat=3):
        replaced = [(k, *records[1:]) for k in range(4)]
        others = replaced if neighbours == "replace" else [records[1:]]
        apart += [np.linalg.norm(counted(records) - counted(o), order) for o in others]
    query = seir.new_cases_query(3, norm, neighbours)
    assert query.sensitivity == pytest.approx(max(apart)) and query.step == 1 and query.dim == 3


@pytest.mark.thorough
def test_paths_stay_within_the_population():
    village, rng = seir.seir_state_space(100, 5), np.random.default_rng(4)
    query, noise = seir.new_cases_query(5), dpsbi.DiscreteLaplace(2.0)
    released = dpsbi.Release(np.array([0.0, 4.0, 7.0, 9.0, 6.0]), query, noise)
    found = dpsbi.pseudo_marginal(released, village, draws=100, rng=rng, progress=False)
    ahead = found.forecast(village, 4, rng=rng)
    assert found.states.shape == (len(found), 3)
    alive = found.weights > 0
    assert np.array_equal(found.states[alive], np.rint(found.states[alive]))
    total = found.confidential.theta[alive].sum(axis=1) + ahead.theta.sum(axis=1)
    assert (total <= 100).all() and (ahead.theta >= 0).all()


PARTIAL = dpsbi.Prior(r0=stats.lognorm(0.4))


@pytest.mark.parametrize(
    "arguments, match",
    [
        ((0, 5), "population"),
        ((500, 0), "times"),
        ((500, [1.0, 2.5]), "whole numbers of steps"),
        ((500, [0.0, 1.0]), "after 0"),
        ((500, [2.0, 1.0]), "increasing"),
        ((500, 5, PARTIAL), "the prior must have"),
        ((500, 5, None, 0.0), "length"),
    ],
    ids=str,
)
def test_bad_input(arguments, match):
    for make in (seir.seir, seir.seir_state_space):
        with pytest.raises(ValueError, match=match):
            make(*arguments)


@pytest.mark.parametrize("wrong", [dict(norm="l0"), dict(neighbours="none"), dict(count=0)])
def test_bad_queries(wrong):
    with pytest.raises(ValueError):
        seir.new_cases_query(**dict(count=3) | wrong)
