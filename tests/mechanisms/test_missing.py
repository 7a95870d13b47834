"""Values that are missing or suppressed: every engine takes them, or says that it does not."""

import numpy as np
import pytest
from scipy import stats

import dpsbi
from dpsbi import DiscreteLaplace, Independent, Laplace, Model, Prior, Published, Query, Release
from dpsbi.analyst.neural.training import Training
from dpsbi.checks.testing import agrees
from dpsbi.privacy import identity

PRIOR = stats.gamma(4, scale=2)
K = np.arange(100.0)
RATE = np.linspace(0.05, 45, 5000)
SIMULATED = Model(
    Prior(rate=PRIOR), lambda theta, rng: rng.poisson(theta, (len(theta), 4)).astype(float)
)
NOISE = DiscreteLaplace(1.5)
RELEASES = {
    "missing": ([9.0, np.nan, 12.0, np.nan], NOISE),
    "missing, scales of their own": (
        [9.0, np.nan, 12.0, 7.0],
        Independent(tuple(map(DiscreteLaplace, (1.0, 2.0, 3.0, 1.5)))),
    ),
    "suppressed": ([9.0, np.nan, 12.0, np.nan], Published(NOISE, suppress_below=8)),
    "some suppressed, some missing": (
        [np.nan, np.nan, 12.0, 7.0],
        Independent((Published(NOISE, suppress_below=8), NOISE, NOISE, NOISE)),
    ),
}
ENGINES = {
    "importance": lambda *a, **k: dpsbi.importance(*a, simulations=2000, **k),
    "exact_abc": lambda *a, **k: dpsbi.exact_abc(*a, draws=1500, **k),
    "smc_abc": lambda *a, **k: dpsbi.smc_abc(*a, draws=1000, **k),
    "pseudo_marginal": lambda *a, **k: dpsbi.pseudo_marginal(*a, draws=1500, **k),
    "input_smc": lambda *a, **k: dpsbi.input_smc(*a, draws=400, **k),
    "infer": lambda *a, **k: dpsbi.infer(*a, target_ess=1000, **k),
}


def released(name):
    s_dp, mechanism = RELEASES[name]
    return Release(s_dp, Query(identity, 1, step=1, dim=4), mechanism)


def truth(name):
    "Mean and sd by sums: a missing value says nothing, a suppressed one that it was small."
    s_dp, mechanism = RELEASES[name]
    parts = getattr(mechanism, "mechanisms", (mechanism,) * 4)
    log_p = PRIOR.logpdf(RATE)
    pmf = stats.poisson.pmf(K, RATE[:, None])
    for value, part in zip(s_dp, parts):
        if np.isnan(value) and not isinstance(part, Published):
            continue
        log_p = log_p + np.log(pmf @ np.exp(part.log_prob([value], K[:, None])))
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean = p @ RATE
    return mean, np.sqrt(p @ (RATE - mean) ** 2)


# the others with every noise and everything that may be missing: test_matrix
CELLS = [(name, engine) for name in RELEASES for engine in ("importance", "exact_abc")]
CELLS += [("some suppressed, some missing", engine) for engine in list(ENGINES)[2:]]


@pytest.mark.parametrize("name, engine", CELLS)
def test_exact_engines_know_what_nan_says(name, engine):
    "False alarms: one in a million for each of the 12."
    mean, sd = truth(name)
    rng = np.random.default_rng(6)
    found = ENGINES[engine](released(name), SIMULATED, rng=rng, progress=False)
    worth = min(found.ess, 2000) / 1.3
    agrees(found.mean()[0], mean, sd / np.sqrt(worth))
    assert abs(found.std()[0] / sd - 1) < 5 / np.sqrt(2 * worth) + 0.02


@pytest.mark.thorough
def test_a_network_reads_them_too():
    name = "some suppressed, some missing"
    mean, sd = truth(name)
    quick = Training(steps=40, final_steps=150, members=1)
    found = dpsbi.sppe(
        released(name),
        SIMULATED,
        rng=np.random.default_rng(7),
        rounds=2,
        simulations=1000,
        training=quick,
        progress=False,
    )
    assert abs(found.mean()[0] - mean) < 0.4 * sd


def test_methods_that_need_every_value_say_so():
    hidden = Published(Laplace(1.0), suppress_below=0)
    seen, rng = Release([1.0, np.nan], Query(identity, 1, dim=2), hidden), np.random.default_rng(1)
    with pytest.raises(ValueError, match="every value"):
        dpsbi.rnpe(seen, SIMULATED, rng=rng, error="spike_slab")


@pytest.mark.slow
@pytest.mark.parametrize("name", RELEASES)
def test_denoising_knows_what_is_missing_and_what_is_suppressed(name):
    mean, sd = truth(name)
    quick = Training(final_steps=500, members=2)
    how = dict(simulations=3000, draws=2000, training=quick, progress=False)
    found = dpsbi.rnpe(released(name), SIMULATED, rng=np.random.default_rng(7), **how)
    assert abs(found.mean()[0] - mean) < 0.2 * sd


@pytest.mark.thorough
def test_one_fit_answers_suppressed_values():
    seen = released("suppressed")
    quick = Training(final_steps=150, members=1)
    fit = dpsbi.amortise(
        seen.query,
        seen.mechanism,
        SIMULATED,
        rng=np.random.default_rng(8),
        simulations=2000,
        training=quick,
        progress=False,
    )
    mean, sd = truth("suppressed")
    found = fit.posterior(seen, rng=np.random.default_rng(9))
    assert abs(found.mean()[0] - mean) < 0.5 * sd
