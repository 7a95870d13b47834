"""Counts that walk: sums over counts and paths against plain enumeration."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from dpsbi.checks.testing import follows_pmf
from dpsbi.mechanisms import DiscreteGaussian, DiscreteLaplace, Laplace, Published
from dpsbi.simulators.random_walk_counts import (
    SeenCounts,
    emissions,
    forward,
    sample_paths,
    smooth,
    walk_steps,
)

GRID = np.linspace(0.5, 2.6, 4)
AGENCY = Published(DiscreteLaplace(1.5), suppress_below=5)
VALUES, TOLD = np.array([np.nan, 9.0, np.nan, 6.0]), np.array([True, True, False, True])
AT_MOST = np.array([7, 30, 4, 6])


def plain(v, told, rates, mechanism, shape, most):
    "p(v, c <= most | rate), the counts listed."
    c = np.arange(most + 1.0)
    pmf = stats.nbinom.pmf(c, shape, (shape / (shape + rates))[:, None])
    return pmf @ (np.exp(mechanism.log_prob(np.array([v]), c[:, None])) if told else 1 + 0 * c)


@pytest.mark.parametrize("scale", [1.0, np.array([1.0, 3.0, 1.0, 0.4])], ids=["one", "each"])
@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("mechanism", [AGENCY, Published(DiscreteGaussian(2.0), suppress_below=5)])
def test_rows_against_lists_of_counts(mechanism, bounded, scale):
    seen = SeenCounts(mechanism, 8.0)
    at_most = AT_MOST if bounded else None
    found = np.exp(emissions(VALUES, seen, GRID, scale=scale, at_most=at_most, told=TOLD))
    for t, rates in enumerate(np.exp(GRID) * np.reshape(scale + np.zeros(4), (-1, 1))):
        most = AT_MOST[t] if bounded else 300
        expected = plain(VALUES[t], TOLD[t], rates, mechanism, 8.0, most)
        assert np.allclose(found[t], expected, rtol=1e-9)


def test_evidence_days_and_paths_against_all_paths():
    steps = walk_steps(GRID, 0.6, 0.1, 2.0)
    log_e = emissions(VALUES, SeenCounts(AGENCY, 8.0), GRID, at_most=AT_MOST, told=TOLD)
    start = np.array([0.4, 0.3, 0.2, 0.1])
    filtered, log_evidence = forward(log_e, steps, start)
    paths = np.array(list(product(range(4), repeat=4)))
    p = start[paths[:, 0]] * np.exp(log_e[np.arange(4), paths].sum(axis=1))
    p *= steps[paths[:, :-1], paths[:, 1:]].prod(axis=1)
    assert np.isclose(log_evidence, np.log(p.sum()), rtol=1e-12)
    laws = [np.bincount(paths[:, t], p, 4) / p.sum() for t in range(4)]
    assert np.allclose(smooth(filtered, steps), laws, atol=1e-13)
    drawn = sample_paths(filtered, steps, 50_000, np.random.default_rng(1))
    code, every, p = drawn @ [64, 16, 4, 1], paths @ [64, 16, 4, 1], p / p.sum()
    often = p > 1e-4
    follows_pmf(code[np.isin(code, every[often])], every[often], p[often] / p[often].sum())


@pytest.mark.parametrize("v, most", [(9.0, 11), (np.nan, 3), (np.nan, None)])
def test_counts_are_drawn_from_their_law(v, most):
    c = np.arange(60.0 if most is None else most + 1.0)
    pmf = stats.nbinom.pmf(c, 8.0, 8 / (8 + np.exp(1.9)))
    pmf *= np.exp(AGENCY.log_prob(np.array([v]), c[:, None]))
    seen = SeenCounts(AGENCY, 8.0)
    draws = seen.sample(v, np.full(40_000, 1.9), np.random.default_rng(2), most)
    often = pmf > 1e-5 * pmf.max()
    kept = draws[np.isin(draws, c[often])]
    follows_pmf(kept, c[often], pmf[often] / pmf[often].sum())


def test_steps_keep_probability_and_their_spread():
    grid = np.linspace(-8, 8, 801)
    steps = walk_steps(grid, 0.3, 0.2, 1.0)
    assert np.allclose(steps.sum(axis=1), 1, atol=1e-14)
    middle = steps[400]
    assert np.isclose(middle @ grid**2, 0.8 * 0.09 + 0.2 * 1.0, rtol=1e-3)


@pytest.mark.thorough
def test_what_is_refused():
    seen = SeenCounts(AGENCY, 8.0)
    for act in (
        lambda: SeenCounts(AGENCY, 0.0),
        lambda: walk_steps(np.array([0.0, 1.0, 3.0]), 1.0),
        lambda: walk_steps(np.linspace(0, 10, 6), 0.1),
        lambda: emissions([np.nan], SeenCounts(Laplace(1.0), 5.0), GRID),
        lambda: seen.log_prob(3.0, GRID),
        lambda: forward(np.full((1, 4), -np.inf), walk_steps(GRID, 0.6)),
    ):
        with pytest.raises(ValueError):
            act()
