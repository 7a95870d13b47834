"""Typical calls of the public functions, for a type checker; nothing here is run."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from scipy import stats

from dpsbi.analyst.baselines import gibbs_ss, naive
from dpsbi.analyst.em.mcem import Ascent, Stages, mcem
from dpsbi.analyst.exact_abc import exact_abc
from dpsbi.analyst.filtering.pseudo_marginal import Walk, pseudo_marginal
from dpsbi.analyst.importance.amis import importance
from dpsbi.analyst.infer import infer
from dpsbi.analyst.mcmc.da_mcmc import da_mcmc
from dpsbi.analyst.neural.amortise import amortise
from dpsbi.analyst.neural.rnpe import rnpe
from dpsbi.analyst.neural.sple import sple
from dpsbi.analyst.neural.sppe import sppe
from dpsbi.analyst.neural.training import Training
from dpsbi.analyst.refine import refine
from dpsbi.analyst.smc.smc_abc import Populations, smc_abc
from dpsbi.checks.audit import Audit, audit
from dpsbi.checks.calibration import sbc
from dpsbi.checks.predictive import predictive_check
from dpsbi.mechanisms import Laplace, Release
from dpsbi.models.model import Model
from dpsbi.models.prior import Prior
from dpsbi.posterior.posterior import Posterior
from dpsbi.privacy import Query
from dpsbi.simulators import counts as counts
from dpsbi.simulators import linear_regression as linear_regression


def simulate(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rng.poisson(theta)


def analyst(rng: np.random.Generator) -> list[Posterior]:
    model = Model(Prior(rate=stats.gamma(25)), simulate)
    query = Query(lambda x: x, 1.0)
    release = Release(np.array([37.4]), query, Laplace(5.0))
    records = linear_regression.RegressionRecords(100, 2)
    training = Training(final_steps=100, members=2, flow="paper")
    with ThreadPoolExecutor(2) as pool:
        found = infer(release, model, rng=rng, executor=pool, progress=False, checkpoint="run")
    posteriors = [
        found,
        exact_abc(release, model, draws=100, rng=rng, checkpoint="abc.npz"),
        importance(release, model, rng=rng, rounds=3, simulations=100, proposal=model.prior),
        smc_abc(release, model, draws=100, rng=rng, populations=Populations(500, keep=0.3)),
        da_mcmc(release, records, draws=100, rng=rng, chains=4, warmup=10),
        gibbs_ss(
            release, linear_regression.RegressionMoments(100, 2), draws=100, rng=rng, progress=False
        ),
        pseudo_marginal(release, model, draws=100, rng=rng, method="metropolis", walk=Walk(4, 50)),
        naive(release, model, draws=100, rng=rng, simulations=1000),
        sppe(release, model, rng=rng, training=training, device="cuda", checkpoint="sppe.npz"),
        sple(release, model, rng=rng, form="paper", progress=False),
        rnpe(release, model, rng=rng, error="spike_slab", checkpoint="rnpe.npz"),
        refine(found, release, model, rng=rng, simulations=1000),
        amortise(query, Laplace(5.0), model, rng=rng, training=training).posterior(
            release, rng=rng
        ),
    ]
    fit = mcem(release, counts.Poisson(), 20.0, rng=rng, schedule=Ascent(1e-3), checkpoint="em")
    fit = mcem(release, counts.Poisson(), 20.0, rng=rng, schedule=Stages([(1e-2, 500)]))
    assert fit.theta.size == 1
    predictive_check(found, release, model, rng=rng, progress=False)
    sbc(
        lambda release, model, rng: exact_abc(release, model, draws=100, rng=rng),
        model,
        query,
        Laplace(5.0),
        replications=10,
        draws=9,
        rng=rng,
    )
    return posteriors


def auditor(rng: np.random.Generator) -> Audit:
    return audit(lambda x, rng, size: x + rng.laplace(size=size), 0.0, 1.0, 1.0, rng=rng, runs=2000)
