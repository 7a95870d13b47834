"""The confidential values behind a release: that they belong to their draws of theta, and follow
the exact posterior, by every engine that keeps them."""

import numpy as np
import pytest

from dpsbi.draws import Draws
from dpsbi.pictures import curve
from dpsbi.posterior import Posterior, pack, unpack


@pytest.fixture
def posterior():
    rng = np.random.default_rng(1)
    theta = rng.normal(size=(400, 2))
    return Posterior(theta, rng.normal(size=400), ("a", "b"), values=theta @ [[1, 2, 3], [4, 5, 6]])


def of_theta(p):
    "Whether the values still belong to the draws of theta."
    return np.array_equal(p.values, p.theta @ [[1, 2, 3], [4, 5, 6]])


def test_values_stay_with_their_draws(posterior):
    few = posterior.resample(1000, np.random.default_rng(2))
    assert of_theta(posterior) and of_theta(few)
    assert np.array_equal(posterior.derive(c=lambda a, b: a + b).values, posterior.values)
    assert of_theta(unpack(pack(posterior)))
    confidential = posterior.confidential
    assert np.array_equal(confidential.weights, posterior.weights)
    assert confidential.names == ("s[0]", "s[1]", "s[2]")


def test_without_values_nothing_changes(posterior):
    plain = Posterior(posterior.theta, posterior.log_weights, posterior.names)
    assert not hasattr(plain, "confidential") and getattr(plain, "confidential", None) is None
    assert b"values" not in pack(plain)
    one, other = (p.resample(50, np.random.default_rng(3)).theta for p in (plain, posterior))
    assert np.array_equal(one, other)


def test_what_is_said_of_the_values():
    info = dict(
        method="m", exact=True, chains=2, log_evidence=-1.0, values=["x"], values_rhat=[1.0]
    )
    found = Posterior(np.zeros(8), None, None, info, values=np.arange(8.0)).confidential
    assert found.names == ("x",) and found.exact and found.info["chains"] == 2
    assert found.log_evidence is None and found.info["rhat"] == [1.0]


def test_a_failed_simulation_has_no_values():
    values = [[np.nan], [2.0], [3.0]]
    found = Posterior(np.zeros(3), [-np.inf, 0.0, 1.0], values=values).confidential
    assert np.isfinite(found.theta).all() and found.weights[0] == 0
    assert np.isclose(found.mean()[0], found.weights[1:] @ [2.0, 3.0])


@pytest.mark.parametrize(
    "values", [np.zeros((3, 1)), np.zeros((4, 0)), np.zeros((4, 1, 1)), np.full((4, 2), np.nan)]
)
def test_values_that_cannot_be_are_refused(values):
    with pytest.raises(ValueError, match="values must"):
        Draws(np.zeros(4), values=values)


def test_many_values_are_drawn_along_their_index():
    about = dict(of="confidential values")
    many = Posterior(np.random.default_rng(4).normal(size=(50, 365)), info=about)
    fig = many.plot(released=np.r_[np.nan, np.zeros(364)])
    assert len(fig.axes) == 1
    with pytest.raises(ValueError, match="released must hold 365 values"):
        curve(many, released=[1.0])
