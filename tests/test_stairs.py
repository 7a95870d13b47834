"""Staircase noise for a continuum: density, price by brute force, what is drawn, calibration."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsbi.checks.testing import follows
from dpsbi.mechanisms import stairs
from dpsbi.mechanisms.mechanism import ALLOWANCE
from dpsbi.mechanisms.stairs import ContinuousStaircase, stairs_climbed
from dpsbi.privacy import Query, identity

drops = st.floats(0.01, 6)
widths = st.floats(0.01, 50)
shares = st.floats(0.01, 1)


@given(drops, widths, shares, st.floats(1e-12, 1 - 1e-12))
def test_tails_and_inverse_agree(drop, width, share, u):
    noise = ContinuousStaircase(drop, width, share * width)
    y = noise.transform(np.array([u]), np.zeros(1))[0]
    assert math.isclose(math.exp(noise.log_cdf(y, 0.0)), u, rel_tol=1e-9, abs_tol=1e-15)
    assert math.isclose(math.exp(noise.log_sf(y, 0.0)), 1 - u, rel_tol=1e-9, abs_tol=1e-15)


@given(drops, widths, shares)
def test_the_density_integrates_to_its_distribution(drop, width, share):
    noise = ContinuousStaircase(drop, width, share * width)
    ends = np.concatenate([[0.0], noise.inner + width * np.arange(8)])
    middles = (ends[1:] + ends[:-1]) / 2
    pieces = np.exp(noise.log_prob(middles[:, None], [0.0])) * np.diff(ends)
    cdf = np.exp(noise.log_cdf(ends, 0.0))
    assert np.allclose(np.diff(cdf), pieces, rtol=1e-7, atol=1e-13)


@pytest.mark.parametrize("values, farthest, width", [(1, 2.0, 1.0), (2, 1.0, 1.0), (3, 2.5, 0.7)])
def test_the_price_is_what_the_worst_moves_lose(values, farthest, width):
    "Moves by a hair in all values but one, each at the edge of a stair."
    noise = ContinuousStaircase(0.6, width, 0.4 * width)
    y = noise.inner + width * np.arange(-3, 4) + np.array([[1e-9], [-1e-9]])
    y = np.append(y, 0.0)[:, None]
    loss = lambda move: (noise.log_prob(y, [0.0]) - noise.log_prob(y, [-move])).max()
    hair = 1e-6
    worst = (values - 1) * loss(hair) + loss(farthest - (values - 1) * hair)
    price = noise.cost(Query(identity, farthest, dim=values)).epsilon
    assert worst == pytest.approx(price)


@given(drops, widths, shares, st.integers(1, 9))
def test_what_is_drawn_crosses_no_more_stairs_than_are_paid(drop, width, share, stairs_paid):
    noise = ContinuousStaircase(drop, width, share * width)
    drawn = stairs._on_a_grid(noise)
    farthest = width * stairs_paid * (1 + ALLOWANCE / 2)  # the query's own rounding
    steps = math.floor(farthest / drawn.step) + 1  # and that to the grid
    assert math.ceil(steps / drawn.width) <= stairs_climbed(
        Query(identity, width * stairs_paid, dim=1), width
    )


def test_private_draws_follow_the_density():  # false alarm: 1e-6
    noise = ContinuousStaircase(0.8, 3.0, 1.2)
    draws = noise._prepare(Query(identity, 3.0, dim=1))(np.zeros(4000))
    follows(draws, lambda v: np.exp(noise.log_cdf(v, 0.0)))


@given(st.floats(0.05, 10), st.integers(1, 4))
def test_calibration_is_valid_and_tight(epsilon, values):
    query = Query(identity, 2.0, dim=values)
    noise = ContinuousStaircase.calibrate(query, epsilon)
    assert noise.cost(query).epsilon <= epsilon
    louder = ContinuousStaircase(1.001 * noise.drop, noise.width, noise.inner)
    assert louder.cost(query).epsilon > epsilon


def test_how_many_values_must_be_known():
    with pytest.raises(ValueError, match="dim"):
        ContinuousStaircase(1.0, 1.0, 0.5).cost(Query(identity, 1.0))
