"""Randomised point sets and the error of what is repeated."""

import numpy as np
import pytest

from dpsbi.analyst.rqmc import noise_draws, replicated
from dpsbi.mechanisms import Laplace


@pytest.mark.parametrize("kind", ["sobol", "lattice", "mc"])
def test_each_value_has_a_shift_of_its_own(kind):
    noise = noise_draws(Laplace(1.0), np.zeros((3, 1)), 16, np.random.default_rng(1), kind)
    assert noise.shape == (3, 16, 1) and len(np.unique(noise.round(12))) == 48


def test_the_error_of_a_mean_of_replicates_falls_with_their_root():
    values = [child.random(2) for child in np.random.default_rng(2).spawn(16)]
    mean, error = replicated(lambda rng: rng.random(2), 16, np.random.default_rng(2))
    assert np.allclose(mean, np.mean(values, axis=0))
    assert np.allclose(error, np.std(values, axis=0, ddof=1) / 4)
