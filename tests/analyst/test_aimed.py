"""Draws that are aimed at a released count: their weights, and the place where they are aimed."""

import numpy as np
import pytest
from scipy import stats

from dpsbi import DiscreteLaplace, Prior
from dpsbi.analyst.filtering.optimal_proposal import AimedCounts, Target, aim_of
from dpsbi.checks.testing import agrees
from dpsbi.mechanisms.composite import parts_of
from dpsbi.models.state_space import FunctionStateSpace

LAWS = {"poisson": (9.0,), "binomial": (30, 0.3), "negative_binomial": (3.0, 0.25)}
RELEASED, N = 14.0, 20_000


def draw(rng, law, size):
    return getattr(rng, law)(*LAWS[law], size=size)


@pytest.mark.parametrize("scale", (0.5, 2.0))  # many draws fall beyond the narrow window
@pytest.mark.parametrize("law", LAWS)
def test_weighed_draws_have_the_law_of_the_count(law, scale):  # false alarms: 1e-6 each
    noise = DiscreteLaplace(scale)
    target = Target.of(lambda k: noise.log_prob(np.array([RELEASED]), k[:, None] * 1.0), RELEASED)
    noting = AimedCounts(np.random.default_rng(0), 1)
    draw(noting, law, 1)
    place = next(iter(noting.notes))
    steered = AimedCounts(np.random.default_rng(1), N, place, target)
    counts, w = draw(steered, law, N), np.exp(steered.log_weights)
    assert counts.mean() > 9.5  # drawn towards 14
    for values, exact in ((w, 1.0), (w * counts, 9.0)):
        agrees(values.mean(), exact, values.std() / N**0.5, verbose=False)


def start(rng, rate):
    return rng.poisson(rate)


def second_of_two(state, rng, rate):
    "The same call draws twice; the second is shown."
    for _ in range(2):
        state = rng.poisson(rate)
    return state, state


def first_or_second(state, rng, rate, t):
    "Which of two draws is shown changes with time."
    one, other = rng.poisson(rate), rng.poisson(2 * rate)
    return one, one if t < 1.5 else other


def model_of(step, vectorised=True):
    prior = Prior(rate=stats.gamma(20, scale=2.0))
    return FunctionStateSpace(start, step, prior, 3, vectorised=vectorised)


def test_the_draw_that_is_shown_is_found():
    parts = parts_of(DiscreteLaplace(1.0), np.array([40.0, 35.0, 50.0]))
    for vectorised in (True, False):
        aim = aim_of(model_of(second_of_two, vectorised), parts)
        assert aim.place[:2] == ("poisson", "second_of_two") and aim.place[-1] == 1
    assert aim_of(model_of(first_or_second), parts) is None
