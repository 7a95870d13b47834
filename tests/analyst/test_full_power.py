"""What is said of chains at the full likelihood, and lines for more inputs than particles."""

import numpy as np

from dpsbi.analyst.smc.moves import fit_linear, ridge
from dpsbi.analyst.smc.tempering import (
    MovedParticles,
    Particles,
    Stage,
    _burn_in,
    chain_ess,
    reasons_not_exact,
)


def ended(evidence):
    "The end of a climb whose populations tell these log evidences."
    cloud = Particles(*(np.zeros((4, 1, 1)) for _ in range(4)))
    moved = MovedParticles(cloud, cloud, cloud, 1.0, 0.5, 0.5)
    return Stage(None, 1.0, moved, np.array(evidence), [])


def test_disagreeing_evidences_ask_for_chains_that_forget_means_and_widths():
    v = np.random.default_rng(1).standard_normal((4, 50, 20, 2))
    spread = ended([0.0, 3.0, 0.0, 1.0])
    assert _burn_in(spread, 20) == 7 and _burn_in(spread, 20, 4) == 8
    assert _burn_in(ended([0.0, 0.1, 0.0, 0.1]), 20) == 0
    assert reasons_not_exact(spread, v, chain_ess(v), "ab") == ""
    rings = v * np.where(np.arange(50) % 2, 3, 1)[:, None, None]
    assert "log evidences" in reasons_not_exact(spread, rings, chain_ess(rings), "ab")
    wide = v * np.array([1, 1, 1, 1.2])[:, None, None, None]
    assert "log evidences" in reasons_not_exact(spread, wide, chain_ess(wide), "ab")


def test_a_line_for_many_inputs_is_judged_by_particles_of_another_population():
    rng = np.random.default_rng(1)
    cousins = [np.repeat(rng.standard_normal((20, 401)), 10, axis=0) for _ in range(3)]
    x = [0.9 * old + 0.19**0.5 * rng.standard_normal(old.shape) for old in cousins]
    values = [np.exp(0.3 * each[:, :1]) * each[:, 1:].sum(axis=1)[:, None] / 20 for each in x]
    known = np.concatenate(x[:2]), np.concatenate(values[:2]), np.ones(400)

    def off(line):
        "Mean square of what values of a third population differ by from a line."
        return float(((values[2] - line[0] - x[2] @ line[1].T) ** 2).mean())

    through, alone = fit_linear(*known, common=1), ridge(*known)
    assert 0.25 < through[2][0, 0] / off(through) < 4
    assert off(through) < 0.5 * off(alone)
    assert alone[2][0, 0] < 0.2 * off(alone)  # what cousins make it believe
