"""Distances on data sets that no example would think of: the sensitivity holds, order does not matter, batches and executors change nothing."""
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dpsbi.mmd import ESTIMATORS, MMD, Energy, Gaussian, Laplace, Matern, clipped_mean_distance, mmd_distance, summary_distance

KERNELS = [Gaussian(0.3), Gaussian(2.0), Gaussian(0.01), Laplace(0.5), Matern(1.0, 1.5), Matern(0.2, 2.5), Energy()]
ROUNDING = 1e-12  # what the module states for its exact routes, in units of the distance

values = st.floats(-1e6, 1e6, allow_nan=False)
records = hnp.arrays(float, 5, elements=st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1), values))
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=repr)


@every_kernel
@pytest.mark.parametrize("estimator", ESTIMATORS)
@settings(max_examples=25, deadline=None, derandomize=True)
@given(x=records, moved=values, y=hnp.arrays(float, (2, 4), elements=st.one_of(st.sampled_from([0.0, 1.0]), values)))
def test_one_record_moves_it_by_at_most_the_sensitivity(kernel, estimator, x, moved, y):
    distance = mmd_distance(kernel, 5, (0, 1), estimator=estimator)
    neighbour = np.r_[moved, x[1:]]
    assert np.abs(distance.between(x, y) - distance.between(neighbour, y)).max() <= distance.sensitivity + ROUNDING


@every_kernel
@settings(max_examples=25, deadline=None, derandomize=True)
@given(x=records, y=records)
def test_it_is_a_distance(kernel, x, y):
    distance = mmd_distance(kernel, 5, (0, 1))
    there, back = distance.between(x, y[None])[0], distance.between(y, x[None])[0]
    assert abs(there - back) <= ROUNDING and there >= 0
    assert distance.between(x, x[None, ::-1])[0] <= ROUNDING
    assert abs(distance.between(x[::-1], y[None, ::-1])[0] - there) <= ROUNDING


@every_kernel
def test_chunks_executors_and_bad_rows_change_nothing(kernel, monkeypatch):
    rng = np.random.default_rng(0)
    x, y = rng.random(300), rng.random((200, 250))
    monkeypatch.setattr(MMD, "chunk", 16 * 250)                      # sixteen data sets a chunk
    distance = mmd_distance(kernel, 300, (0, 1))
    once = distance.between(x, y)
    with ThreadPoolExecutor(3) as pool:
        assert np.array_equal(once, distance.between(x, y, executor=pool))
    y[17, 3] = np.nan
    again = distance.between(x, y)
    assert again[17] == np.inf and np.array_equal(np.delete(once, 17), np.delete(again, 17))


def test_an_empty_batch_has_no_distances():
    assert mmd_distance(Gaussian(1.0), 3).between(np.zeros(3), np.zeros((0, 3))).shape == (0,)


@given(d=hnp.arrays(float, (1, 4), elements=st.floats()), new=st.floats())
@settings(max_examples=100, deadline=None, derandomize=True)
def test_the_clipped_mean_is_bounded_whatever_its_function_returns(d, new):
    distance = clipped_mean_distance(lambda x, y: d if x[0] == 0 else np.r_[new, d[0, 1:]][None], clip=3.0, n=4)
    a, b = (distance.between(x, np.zeros((1, 4)))[0] for x in (np.zeros(4), np.r_[1.0, np.zeros(3)]))
    assert 0 <= a <= 3 and abs(a - b) <= distance.sensitivity * (1 + 1e-12)


@pytest.mark.parametrize("width", [0, 4])
def test_statistics_of_another_width_are_refused_instead_of_broadcast(width):
    "Broadcast over four values, one record would move an l2 distance by twice the stated sensitivity; over none, by nothing, and all be accepted."
    distance = summary_distance(lambda x: x.reshape(len(x), -1), 1.0)
    assert distance.between(np.array([1.0]), np.array([[3.0]])) == 2
    with pytest.raises(ValueError, match="same statistics"):
        distance.between(np.array([1.0]), np.zeros((5, width)))
