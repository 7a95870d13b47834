"""Calls of all that is public, on small tasks: the same numbers before a change and after it.

`python tests/calls.py HEAD~1 HEAD` makes each call at both commits, with two seeds, alone and on
two processes, and compares every array bit by bit; "." is the working tree as it stands.
`--only mcem --seeds 1` picks. `--write` puts six digits of the values into `values.json`, which
`test_values.py` compares on any machine. Only names that are promised are used here, so that one
list runs before modules move and after.
"""

import argparse
import dataclasses
import dis
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import typing
import warnings
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from functools import cache
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from scipy import stats
from tqdm import tqdm

import dpsbi
from dpsbi import (
    BinomialResponse,
    Budgets,
    Codebook,
    Cost,
    DiscreteGaussian,
    DiscreteLaplace,
    Effort,
    Gaussian,
    Independent,
    Laplace,
    LaplaceDifference,
    Ledger,
    Model,
    NoisySmallest,
    Pooled,
    Posterior,
    Prior,
    Published,
    Query,
    Questions,
    RandomisedResponse,
    Release,
    SmoothGaussian,
    SmoothLaplace,
    SparseVector,
    StateSpace,
    distances,
    mechanisms,
)
from dpsbi.checks.testing import agrees, follows, follows_pmf
from dpsbi.simulators import birth_death as birth_death
from dpsbi.simulators import counts as counts
from dpsbi.simulators import cubic_curve as cubic_curve
from dpsbi.simulators import linear_regression as linear_regression
from dpsbi.simulators import naive_bayes as naive_bayes
from dpsbi.simulators import regression_population as regression_population
from dpsbi.simulators import seir as seir
from dpsbi.simulators import sir as sir
from dpsbi.simulators import tuberculosis as tuberculosis
from dpsbi.simulators import uniform_mixture as uniform_mixture

HERE = Path(__file__).resolve()
ROOT, VALUES = HERE.parents[1], HERE.with_name("values.json")
SEEDS, EXECUTORS = (1, 2), ("alone", "processes")

# ---- what is not promised: classes by the signatures that take them, the rest by its name


def default(function, parameter):
    "The class of a keyword's default."
    return type(inspect.signature(getattr(dpsbi, function)).parameters[parameter].default)


def hinted(function, parameter, name):
    "The class of this name among those that a keyword takes."
    kinds = typing.get_args(typing.get_type_hints(getattr(dpsbi, function))[parameter])
    return next(kind for kind in kinds if kind.__name__ == name)


def defined(name):
    "A class of this name, wherever in the package it stands."
    for path in sorted(Path(dpsbi.__file__).parent.rglob("*.py")):
        if re.search(rf"^class {name}\b", path.read_text(), re.M):
            module = path.relative_to(Path(dpsbi.__file__).parents[1]).with_suffix("")
            return getattr(import_module(".".join(module.parts)), name)
    raise LookupError(f"no class {name} in {dpsbi.__file__}")


Seeded = defined("Seeded")
Trials, Walk = default("abcdp", "trials"), default("pseudo_marginal", "walk")
Populations = default("smc_abc", "populations")
Stages = hinted("mcem", "schedule", "Stages")


@cache
def tiny(**changes):
    "A training of a few steps; with it comes torch."
    settings = dict(steps=4, final_steps=6, members=2, flow=defined("Shape")(layers=1, hidden=8))
    return default("sppe", "training")(**settings | changes)


# ---- the list

CALLS, LOOSE = {}, set()


def call(function=None, *, loose=False):
    "Puts a function (seed, executor) -> values into the list; loose: rounding grows in it."
    if function is None:
        return lambda f: call(f, loose=loose)
    CALLS[function.__name__] = function
    LOOSE.update({function.__name__} if loose else ())
    return function


QUIET = dict(progress=False)


def rng(seed):
    return np.random.default_rng(seed)


def how(seed, executor):
    "What every method takes."
    return dict(rng=rng(seed), executor=executor) | QUIET


NOT_KEPT = re.compile(r"seconds|path|python|version|workers|fingerprint")
CODE = re.compile(r"[0-9a-f]{16,}")  # of what a release or a simulator is, addresses among it


def members(value):
    "What a value consists of, by name; None where it is one by itself."
    if isinstance(value, Posterior):
        told = {name: getattr(value, name) for name in ("theta", "log_weights", "names", "info")}
        told |= dict(mean=value.mean(), std=value.std(), ess=value.ess)
        return told | {"values": value.values if hasattr(value, "values") else None}
    if isinstance(value, dict):
        return value
    if hasattr(value, "_asdict"):
        return value._asdict()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (field.name for field in dataclasses.fields(value) if field.name[0] != "_")
        return {name: getattr(value, name) for name in fields}
    if type(value).__name__ == "DataFrame":
        return {"index": list(map(str, value.index))} | {str(c): value[c].values for c in value}
    if isinstance(value, list | tuple):
        plain = all(isinstance(v, int | float | np.number) for v in value)
        return None if plain and value else dict(enumerate(value))
    return None


def flat(value, name=""):
    "(name, array) of all numbers and words in a value, in order; other things are left out."
    inside = members(value)
    if inside is not None:
        for key, part in inside.items():
            if not NOT_KEPT.search(str(key)):
                yield from flat(part, f"{name}.{key}" if name else str(key))
    elif value is None or isinstance(value, str | bool | int | float | np.generic | list | tuple):
        if not (isinstance(value, str) and CODE.fullmatch(value)):
            yield name, np.array("None" if value is None else value)
    elif isinstance(value, np.ndarray):
        yield name, value.astype(str) if value.dtype == object else value


def made(name, seed, executor=None):
    "The values of a call: name -> array."
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short chains and short trainings warn
        return {key or "value": array for key, array in flat(CALLS[name](seed, executor))}


# ---- tasks


def same(x):
    "A query whose value the model simulates itself."
    return x


def poisson_pair(theta, rng):
    return rng.poisson(theta, (len(theta), 2)).astype(float)


def poisson_many(theta, rng):
    return rng.poisson(theta, (len(theta), 25)).astype(float)


def poisson_ahead(theta, rng):
    return rng.poisson(theta, (len(theta), 3)).astype(float)


def one_pair(rate, rng):
    return rng.poisson(rate, 2).astype(float)


def wide_values(theta, rng):
    return theta * rng.gamma(2.0, 0.5, (len(theta), 8))


def a_count_each(theta, rng):
    return rng.poisson(theta).astype(float)


def curves(theta, rng):
    return theta[:, :1] + theta[:, 1:] * np.array([0.0, 1.0, 3.0, 9.0])


def many_laws(theta, rng):
    n, level = len(theta), np.exp(0.3 * theta[:, 0])
    drawn = [rng.gamma(2.0, level), rng.exponential(level), rng.uniform(0, 1, n) * level]
    drawn += [
        rng.negative_binomial(4, 0.5, n) + level,
        rng.binomial(9, 0.3, n),
        rng.geometric(0.4, n),
    ]
    drawn += [
        rng.integers(0, 5, n),
        rng.beta(2, 3, n),
        rng.lognormal(0, 0.5, n),
        rng.laplace(level, 1),
    ]
    return np.column_stack(drawn) + theta[:, 1:]


def of_inputs(theta, u):
    return theta + 0.5 * u


def two_normals(theta, rng):
    return theta + 0.5 * rng.normal(size=theta.shape)


COUNT = Release([37.4], counts.counting_query(), Laplace(5.0))
GAMMA = counts.gamma_poisson(25, 1)
RATE = Prior(rate=stats.gamma(4, scale=2))
TWO = Query(same, 1, step=1, dim=2)
PAIR, PAIRS = Release([6.0, 12.0], TWO, DiscreteLaplace(2.0)), Model(RATE, poisson_pair)
SUPPRESSED = Release([np.nan, 9.0], TWO, Published(DiscreteLaplace(2.0), (0, 40), 3, 6))
MANY = Release(5.0 + np.arange(25) % 9, Query(same, 1, step=1, dim=25), DiscreteLaplace(2.0))
MANIES = Model(RATE, poisson_many)
PLANE = Prior(a=stats.norm(0, 1), b=stats.norm(0, 2))
POINT = Release([0.4, -1.1], Query(same, 1.0, norm="l2", dim=2), Gaussian(0.6))


class Records:
    "Twelve records of two counts each: their sums are Poisson of the rate."

    names, n = ("rate",), 12

    def start(self, chains, rng):
        return rng.gamma(4, 2, (chains, 1))

    def records(self, theta, rng):
        return rng.poisson(theta[:, None] / 12, (len(theta), 12, 2)).astype(float)

    def contributions(self, x):
        return x

    def update(self, theta, x, rng):
        return rng.gamma(4 + x.sum(axis=(1, 2)), 1 / 2.5)[:, None]


class Share:
    "Yes/no records, Beta(1, 2) prior; the number of yes, and that of records."

    names = ("share",)

    def start(self, chains, rng):
        return rng.beta(1, 2, (chains, 1))

    def records(self, theta, m, rng):
        return (rng.random((len(theta), m, 1)) < theta[:, None]).astype(float)

    def contributions(self, x):
        return np.concatenate([x, np.ones_like(x)], axis=2)

    def update(self, theta, x, present, rng):
        yes = (x[..., 0] * present).sum(axis=1)
        return rng.beta(1 + yes, 2 + present.sum(axis=1) - yes)[:, None]

    def log_prior(self, theta):
        t = theta[:, 0]
        return np.where((t > 0) & (t < 1), np.log1p(-np.clip(t, 0, 1 - 1e-16)), -np.inf)

    def carry(self, theta, x, theta_new, rng):
        theta, u = theta[:, None], rng.random(x.shape)
        u = np.where(x == 1, theta * u, theta + (1 - theta) * u)
        return (u < theta_new[:, None]).astype(float)


def walk_start(rng, sigma):
    return dict(value=0.0)


def walk_step(state, rng, sigma, t, until):
    value = state["value"] + sigma * np.sqrt(until - t) * rng.normal()
    return dict(value=value), value


WALKING = StateSpace.from_functions(
    walk_start, walk_step, Prior(sigma=stats.lognorm(0.5)), times=(0.5, 1.0, 3.0)
)
SERIES = Release([0.3, -0.4, 1.9], Query(same, 1, norm="l2", dim=3), Gaussian(0.5))
DAYS = tuple(range(1, 8))
HIDDEN = sir.sir_state_space(300, DAYS)
ILL = Release([2, 4, 9, 15, 30, 41, 60], sir.infection_counts_query(DAYS), DiscreteLaplace(7.0))

# ---- the analyst's methods


@call
def exact_abc(seed, executor):
    return dpsbi.exact_abc(COUNT, GAMMA, draws=300, **how(seed, executor))


@call
def exact_abc_with_control(seed, executor):
    proposal = Prior(theta=stats.gamma(30))
    named = dict(draws=200, proposal=proposal, control=0.5)
    return dpsbi.exact_abc(COUNT, GAMMA, **named, **how(seed, executor))


@call
def importance(seed, executor):
    found = dpsbi.importance(PAIR, PAIRS, rounds=4, simulations=300, **how(seed, executor))
    return dict(found=found, confidential=found.confidential)


@call
def importance_of_suppressed(seed, executor):
    return dpsbi.importance(SUPPRESSED, PAIRS, rounds=3, simulations=300, **how(seed, executor))


@call
def importance_in_two_dimensions(seed, executor):
    named = dict(rounds=5, simulations=200, target_ess=400, defensive=0.2)
    return dpsbi.importance(POINT, Model(PLANE, two_normals), **named, **how(seed, executor))


@call
def importance_of_independent_values(seed, executor):
    model = Model(RATE, poisson_many, independent=True)
    return dpsbi.importance(MANY, model, rounds=3, simulations=1500, **how(seed, executor))


@call
def da_unknown_n_of_regression(seed, executor):
    latent = regression_population.RegressionPopulation(1, count=True)
    query = regression_population.regression_sums(1, count=True)
    released = [1.0, 3.0, 6.0, 2.0, 9.0, 20.0][: query.dim]
    release = Release(released, query, Laplace(2.0))
    named = dict(draws=40, chains=4, warmup=10, moves=2)
    return dpsbi.da_unknown_n(release, latent, stats.poisson(20), **named, **how(seed, executor))


@call
def mcem(seed, executor):
    named = dict(final_simulations=4000, **how(seed, executor))
    fit = dpsbi.mcem(COUNT, counts.Poisson(), 20.0, **named)
    return dict(fit=fit, interval=fit.interval(), summary=fit.summary())


@call
def mcem_in_stages(seed, executor):
    stages = Stages([(1e-2, 500), (1e-3, 2000)])
    named = dict(schedule=stages, final_simulations=4000, rqmc=False, newton=False)
    return dpsbi.mcem(COUNT, counts.Poisson(), 20.0, **named, **how(seed, executor))


@call
def smc_abc(seed, executor):
    named = dict(draws=200, populations=Populations(200), **how(seed, executor))
    return dpsbi.smc_abc(PAIR, PAIRS, **named)


@call
def smc_abc_by_distance(seed, executor):
    named = dict(draws=100, kernel="distance", tolerance=1.5, populations=Populations(200))
    return dpsbi.smc_abc(PAIR, PAIRS, **named, **how(seed, executor))


@call
def da_mcmc(seed, executor):
    named = dict(draws=320, chains=8, warmup=30, thin=2)
    found = dpsbi.da_mcmc(PAIR, Records(), **named, **how(seed, executor))
    return dict(found=found, confidential=found.confidential)


@call
def da_mcmc_of_regression(seed, executor):
    latent, release = linear_regression.RegressionRecords(100, 2), linear_regression.published()
    named = dict(draws=80, chains=4, warmup=15, moves=2)
    return dpsbi.da_mcmc(release, latent, **named, **how(seed, executor))


@call
def da_unknown_n(seed, executor):
    query = Query(same, 2, neighbours="add-remove", dim=2)
    release = Release([5.0, 13.0], query, DiscreteLaplace(2.0))
    named = dict(draws=320, chains=8, warmup=40, thin=2)
    return dpsbi.da_unknown_n(release, Share(), stats.poisson(8), **named, **how(seed, executor))


@call
def input_smc(seed, executor):
    named = dict(draws=60, max_simulations=12_000)
    return dpsbi.input_smc(MANY, MANIES, **named, **how(seed, executor))


@call
def input_smc_of_inputs(seed, executor):
    named = dict(draws=60, max_simulations=8000)
    return dpsbi.input_smc(POINT, Model(PLANE, of_inputs, inputs=2), **named, **how(seed, executor))


@call
def pseudo_marginal(seed, executor):
    named = dict(draws=200, particles=10)
    return dpsbi.pseudo_marginal(PAIR, PAIRS, **named, **how(seed, executor))


@call
def pseudo_marginal_by_metropolis(seed, executor):
    named = dict(draws=160, method="metropolis", particles=10, walk=Walk(4, 60))
    return dpsbi.pseudo_marginal(PAIR, PAIRS, **named, **how(seed, executor))


@call
def pseudo_marginal_of_an_epidemic(seed, executor):
    named = dict(draws=60, max_simulations=20_000)
    found = dpsbi.pseudo_marginal(ILL, HIDDEN, particles=20, **named, **how(seed, executor))
    ahead = found.forecast(HIDDEN, 2, rng=rng(seed + 10))
    return dict(found=found, ahead=ahead, confidential=found.confidential)


@call
def pseudo_marginal_of_plain_functions(seed, executor):
    named = dict(draws=40, particles=10, method="metropolis", walk=Walk(4, 30))
    found = dpsbi.pseudo_marginal(SERIES, WALKING, **named, **how(seed, executor))
    return dict(found=found, ahead=found.forecast(WALKING, (4.0, 6.0), rng=rng(seed + 10)))


@call
def naive(seed, executor):
    return dpsbi.naive(PAIR, PAIRS, draws=100, simulations=1000, **how(seed, executor))


@call
def naive_by_moments(seed, executor):
    moments = linear_regression.RegressionMoments(100, 2)
    return dpsbi.naive(linear_regression.published(), moments, draws=100, **how(seed, executor))


@call
def confidential(seed, executor):
    named = dict(draws=100, simulations=1000)
    return dpsbi.confidential([6.0, 12.0], PAIRS, **named, **how(seed, executor))


@call(loose=True)
def gibbs_ss(seed, executor):
    moments = linear_regression.RegressionMoments(100, 2)
    named = dict(draws=80, chains=4, warmup=20)
    return dpsbi.gibbs_ss(linear_regression.published(), moments, **named, **how(seed, executor))


@call
def infer_vectorised(seed, executor):
    found = dpsbi.infer(COUNT, GAMMA, target_ess=400, neural=False, **how(seed, executor))
    return dict(found=found, confidential=found.confidential)


@call
def infer_a_plain_function(seed, executor):
    model = Model.from_function(one_pair, RATE)
    return dpsbi.infer(PAIR, model, target_ess=300, neural=False, **how(seed, executor))


@call
def infer_independent_values(seed, executor):
    model = Model(RATE, poisson_many, independent=True)
    return dpsbi.infer(MANY, model, target_ess=300, neural=False, **how(seed, executor))


@call
def infer_many_values(seed, executor):
    named = dict(target_ess=200, max_simulations=40_000, neural=False)
    return dpsbi.infer(MANY, MANIES, **named, **how(seed, executor))


@call
def infer_independent_reals(seed, executor):
    model = Model(RATE, wide_values, independent=True)
    release = Release(4.0 + np.arange(8.0), Query(same, 1, dim=8), Laplace(0.5))
    named = dict(target_ess=200, max_simulations=20_000, neural=False)
    return dpsbi.infer(release, model, **named, **how(seed, executor))


@call
def infer_many_rates(seed, executor):
    "Five counts, each of its own rate."
    prior = Prior(**{f"rate{j}": stats.gamma(3, scale=5) for j in range(5)})
    release = Release(
        [9.0, 22.0, 4.0, 14.0, 30.0], Query(same, 1, step=1, dim=5), DiscreteLaplace(1.5)
    )
    named = dict(target_ess=200, max_simulations=5000, neural=False)
    return dpsbi.infer(release, Model(prior, a_count_each), **named, **how(seed, executor))


@call
def infer_what_is_deterministic(seed, executor):
    query = Query(same, 1.0, norm="l2", dim=4)
    release = Release([0.4, 2.0, 7.0, 20.0], query, Gaussian(1.0))
    model = Model(PLANE, curves, deterministic=True)
    named = dict(target_ess=200, max_simulations=20_000, neural=False)
    return dpsbi.infer(release, model, **named, **how(seed, executor))


@call
def infer_an_epidemic(seed, executor):
    query = seir.new_cases_query(6)
    release = Release([3.0, 5, 9, 20, 38, 60], query, DiscreteLaplace(4.0))
    named = dict(target_ess=50, max_simulations=4000, neural=False)
    return dpsbi.infer(release, seir.seir(500, 6), **named, **how(seed, executor))


@call
def input_smc_of_many_laws(seed, executor):
    "A simulator that draws from many laws: each is replayed."
    release = Release(2.0 + np.arange(10.0) / 5, Query(same, 1, dim=10), Laplace(1.0))
    named = dict(draws=40, max_simulations=4000)
    return dpsbi.input_smc(release, Model(PLANE, many_laws), **named, **how(seed, executor))


@call
def infer_a_state_space(seed, executor):
    named = dict(target_ess=50, max_simulations=20_000)
    return dpsbi.infer(SERIES, WALKING, **named, **how(seed, executor))


@call
def infer_records(seed, executor):
    return dpsbi.infer(PAIR, Records(), target_ess=200, **how(seed, executor))


@call(loose=True)
def infer_by_a_network(seed, executor):
    model, query = naive_bayes.naive_bayes(100, records=False)
    release = naive_bayes.published(records=False)
    neural = dict(training=tiny(steps=1, final_steps=2, members=1), draws=200)
    named = dict(target_ess=1000, max_simulations=1000, neural=neural)
    return dpsbi.infer(release, model, **named, **how(seed, executor))


class Own(dpsbi.Mechanism):
    "Noise of which nothing is known but how to draw it."

    def sample(self, s, rng):
        return s + rng.normal(size=np.shape(s))


@call(loose=True)
def infer_without_a_density(seed, executor):
    release = Release([6.0, 12.0], Query(same, 1, dim=2), Own())
    named = dict(target_ess=200, max_simulations=1000, neural=dict(training=tiny()))
    return dpsbi.infer(release, PAIRS, **named, **how(seed, executor))


# ---- networks: so few steps that they know little, and every step counts


@call(loose=True)
def sppe(seed, executor):
    named = dict(rounds=2, simulations=200, training=tiny(), draws=200)
    found = dpsbi.sppe(COUNT, GAMMA, **named, **how(seed, executor))
    return dict(found=found, density=found.log_prob([[30.0], [38.0]]))


@call(loose=True)
def sppe_of_the_paper(seed, executor):
    training = tiny(correction="atomic", members=1)
    named = dict(rounds=2, simulations=200, training=training, draws=200)
    return dpsbi.sppe(POINT, Model(PLANE, two_normals), **named, **how(seed, executor))


@call(loose=True)
def sple(seed, executor):
    named = dict(rounds=2, simulations=200, training=tiny(steps=0), draws=200)
    found = dpsbi.sple(COUNT, GAMMA, **named, **how(seed, executor))
    return dict(found=found, best=found.maximum_likelihood(1))


@call(loose=True)
def sppe_of_many_values(seed, executor):
    named = dict(rounds=2, simulations=200, training=tiny(correction="truncated"), draws=200)
    return dpsbi.sppe(MANY, MANIES, **named, **how(seed, executor))


@call(loose=True)
def amortise(seed, executor):
    about = COUNT.query, COUNT.mechanism, GAMMA
    named = dict(simulations=400, training=tiny(), **how(seed, executor))
    estimator = dpsbi.amortise(*about, **named)
    with tempfile.TemporaryDirectory() as folder:
        estimator.save(path := Path(folder) / "networks.npz")
        again = type(estimator).load(path, GAMMA.prior)
    posteriors = [e.posterior(COUNT, draws=200, rng=rng(seed + 10)) for e in (estimator, again)]
    return dict(zip(("found", "again"), posteriors))


@call(loose=True)
def amortise_over_budgets(seed, executor):
    range_of = Budgets(Laplace, 0.1, 1.0)
    named = dict(simulations=400, training=tiny(members=1), **how(seed, executor))
    estimator = dpsbi.amortise(COUNT.query, range_of, GAMMA, **named)
    found = estimator.posterior(COUNT, draws=200, rng=rng(seed + 10))
    return dict(found=found)


@call(loose=True)
def rnpe(seed, executor):
    named = dict(simulations=500, draws=200, training=tiny(), warmup=20, thin=2)
    return dpsbi.rnpe(COUNT, GAMMA, **named, **how(seed, executor))


@call(loose=True)
def rnpe_with_spike_and_slab(seed, executor):
    named = dict(error="spike_slab", simulations=500, draws=200, training=tiny(members=1))
    return dpsbi.rnpe(COUNT, GAMMA, warmup=20, thin=2, **named, **how(seed, executor))


@call
def budgets(seed, executor):
    scales = Budgets.of_scales(Laplace, 1.0, 10.0, COUNT.query)
    noise = Budgets(Gaussian, 0.1, 1.0, 1e-6).mechanism(POINT.query, 0.5)
    return dict(grid=Budgets(Laplace, 0.1, 1.0).grid(), of_scales=scales.grid(), scale=noise.scale)


# ---- what comes after a method


def rough(seed):
    "A posterior that knows nothing of the release."
    return Posterior(rng(seed).gamma(4, 2.0, (500, 1)), names=("rate",))


@call
def refine(seed, executor):
    named = dict(simulations=1000, **how(seed, executor))
    return dpsbi.refine(rough(seed + 10), PAIR, PAIRS, **named)


@call
def refine_to_a_target(seed, executor):
    named = dict(simulations=6000, target_ess=300, recycling=False)
    return dpsbi.refine(rough(seed + 10), PAIR, PAIRS, **named, **how(seed, executor))


@call
def predict(seed, executor):
    found = dpsbi.importance(PAIR, PAIRS, rounds=2, simulations=400, rng=rng(seed), **QUIET)
    named = dict(draws=100, from_prior=50, **how(seed + 10, executor))
    told = dpsbi.predict(found, PAIR, PAIRS, **named)
    kept = {name: getattr(told, name) for name in ("again", "replicates", "released", "prior")}
    return kept | dict(confidential=told.confidential)


@call
def predict_what_lies_beyond(seed, executor):
    model = Model(RATE, poisson_ahead, beyond=1)
    found = dpsbi.importance(PAIR, model, rounds=2, simulations=400, rng=rng(seed), **QUIET)
    told = dpsbi.predict(found, PAIR, model, draws=100, **how(seed + 10, executor))
    return dict(beyond=told.beyond)


@call
def predict_without_values(seed, executor):
    named = dict(draws=50, simulations=40, **how(seed, executor))
    return dict(found=dpsbi.predict(rough(seed + 10), PAIR, PAIRS, **named).confidential)


@call
def checkpointed(seed, executor):
    "A finished run's file gives the run again."
    told = {}
    with tempfile.TemporaryDirectory() as folder:
        for k in range(2):
            kept = dict(checkpoint=Path(folder) / "importance", **how(seed, executor))
            told[f"importance {k}"] = dpsbi.importance(
                PAIR, PAIRS, rounds=2, simulations=200, **kept
            )
            kept = dict(checkpoint=Path(folder) / "chains", **how(seed, executor))
            told[f"chains {k}"] = dpsbi.da_mcmc(
                PAIR, Records(), draws=80, chains=4, warmup=20, **kept
            )
            kept = dict(checkpoint=Path(folder) / "abc", **how(seed, executor))
            told[f"abc {k}"] = dpsbi.exact_abc(COUNT, GAMMA, draws=100, **kept)
    return told


@call
def compare(seed, executor):
    other = Model(Prior(rate=stats.gamma(2, scale=5)), poisson_pair)
    named = dict(rounds=2, simulations=600, **how(seed, executor))
    found = {"one": dpsbi.importance(PAIR, PAIRS, **named)}
    found["other"] = dpsbi.importance(PAIR, other, **named)
    prior = dict(one=0.3, other=0.7)
    return dict(alike=dpsbi.compare(found), told=dpsbi.compare(found, prior=prior))


@call
def posterior(seed, executor):
    draws = rng(seed)
    theta, log_w = draws.gamma(3, 2, (400, 2)), draws.normal(size=400)
    values = theta + draws.normal(size=(400, 2))
    p = Posterior(theta, log_w, ("a", "b"), dict(values=["s", "t"]), values=values)
    few = p.resample(50, draws)
    with tempfile.TemporaryDirectory() as folder:
        p.save(Path(folder) / "p.npz")
        again = Posterior.load(Path(folder) / "p.npz")
    told = dict(few=few, cov=p.cov(), quantile=p.quantile([0.1, 0.5]), interval=p.interval(0.9))
    told |= dict(pareto_k=p.pareto_k, mcse=p.mcse(), one=p["a"], doubtful=p.doubtful())
    told |= dict(derived=p.derive(c=ratio), summary=p.summary(), frame=p.to_frame())
    told |= dict(trust=p.trust(), confidential=p.confidential, exact=p.exact)
    return told | dict(p=p, again=again, text=str(p))


def ratio(a, b):
    return a / b


@call
def posterior_for_arviz(seed, executor):
    p = Posterior(rng(seed).normal(size=(60, 2)), None, ("a", "b"), dict(chains=2))
    return {name: np.asarray(p.to_arviz().posterior[name].values) for name in p.names}


@call
def posterior_of_chains(seed, executor):
    steps = rng(seed).normal(size=(4, 150, 2)).cumsum(axis=1)
    theta = steps - 0.7 * np.roll(steps, 1, axis=1)
    p = Posterior(theta.reshape(-1, 2), None, ("a", "b"), dict(chains=4))
    ess = {kind: p.chain_ess(kind) for kind in ("bulk",)}
    return dict(p=p, mcse=p.mcse(), chain_ess=ess, summary=p.summary(), text=str(p))


@call
def prior(seed, executor):
    mixed = Prior(
        a=stats.norm(1, 2), b=stats.gamma(3), c=stats.beta(2, 5), d=stats.dirichlet([1, 2, 3])
    )
    theta = mixed.sample(20, rng(seed))
    z = mixed.to_unconstrained(theta)
    back = mixed.from_unconstrained(z)
    log_p = mixed.log_prob(theta), mixed.log_abs_det(z)
    return dict(theta=theta, z=z, back=back, log_p=log_p, names=mixed.names)


@call
def model_of_torch(seed, executor):
    model = Model.from_torch(of_tensors, PLANE)
    return model.simulate(PLANE.sample(20, rng(seed)), rng(seed + 10))


def of_tensors(a, b):
    return (2 * a + b)[:, None]


# ---- counts


CELLS = ("a", "b", "c", "d")


def cells(values, mechanism=DiscreteLaplace(2.0), step=1):
    return Release(values, Query(same, 1, step=step, dim=len(values)), mechanism)


def laws(found, *sums):
    "Of some of the true counts, and what is known of all."
    named = {name: found[name] for name in (*found.names, *sums)}
    each = {str(n): [law.mean(), law.std(), *law.interval(0.9)] for n, law in named.items()}
    each["quantiles"] = [law.quantile(0.3) for law in named.values()]
    each["shortest"] = [law.interval(0.8, "shortest") for law in named.values()]
    return dict(frame=found.to_frame(), laws=each, text=str(found))


@call
def noisy_counts(seed, executor):
    found = dpsbi.noisy_counts(cells([3.0, -1.0, 8.0, 5.0]), names=CELLS)
    more = [found.probability(np.greater, "c", "d"), found.difference("c", "a").mean()]
    more += [found.rank("d").mean(), found.law(np.maximum, "a", "b").mean()]
    return laws(found, ("a", "b")) | dict(more=more, draws=found.sample(50, rng(seed)))


@call
def noisy_counts_with_totals(seed, executor):
    totals, most = {("a", "b"): 4}, {("c", "d"): 12}
    prior = stats.nbinom(2, 0.2)
    named = dict(names=CELLS, prior=prior, totals=totals, at_most=most)
    found = dpsbi.noisy_counts(cells([3.0, -1.0, 8.0, 5.0]), **named)
    return laws(found, ("b", "c")) | dict(draws=found.sample(50, rng(seed)))


@call
def noisy_counts_of_two_rows(seed, executor):
    totals = {("a", "c"): 10, ("b", "d"): 6, ("a", "b"): 5}
    found = dpsbi.noisy_counts(cells([3.0, 1.0, 8.0, 5.0]), names=CELLS, totals=totals)
    return laws(found, ("c", "d")) | dict(draws=found.sample(50, rng(seed)))


@call
def noisy_counts_pooled(seed, executor):
    published = Published(DiscreteLaplace(2.0), suppress_below=3)
    prior = Pooled((1.0, 30.0), points=(8, 5))
    found = dpsbi.noisy_counts(cells([6.0, np.nan, 8.0, 5.0], published), prior=prior)
    return laws(found) | dict(draws=found.sample(50, rng(seed)))


@call
def noisy_tree(seed, executor):
    sums = {"left": ("a", "b"), "whole": CELLS}
    named = dict(names=(*CELLS, "left", "whole"), sums=sums, totals={("c", "d"): 12})
    found = dpsbi.noisy_tree(cells([3.0, -1.0, 8.0, 5.0, 4.0, 15.0]), **named)
    return laws(found, ("a", "b")) | dict(draws=found.sample(50, rng(seed)))


@call
def noisy_table(seed, executor):
    names = [f"{row}{column}" for row in "xy" for column in "123"]
    sums = {"x": names[:3], "first": names[::3], "y": names[3:]}
    totals = {"x": 12, tuple(names[1::3]): 9}
    released = cells([3.0, 5.0, 2.0, 4.0, 6.0, 0.0, 13.0, 8.0, 9.0])
    named = dict(names=[*names, *sums], sums=sums, totals=totals, draws=256)
    return dpsbi.noisy_table(released, **named, **how(seed, executor))


# ---- mechanisms

TWO_REAL = Query(same, 2, dim=2)
SMOOTH = Query(same, 1, smoothness=0.01, dim=2)
CASES = {  # mechanism, query, s, neighbour, what calibrate needs besides, δ
    "laplace": (Laplace(3.0), TWO_REAL, [0.3, 5.0], [1.3, 6.0], {}, 0),
    "gaussian": (Gaussian(3.0), Query(same, 2, "l2", dim=2), [0.3, 5.0], [0.3, 7.0], {}, 1e-3),
    "discrete_laplace": (DiscreteLaplace(3.0), TWO, [3, 5], [4, 5], {}, 0),
    "discrete_laplace_off_grid": (
        DiscreteLaplace(0.7, 0.5),
        Query(same, 0.02, dim=2),
        [0.24, 0.24],
        [0.25, 0.25],
        dict(step=0.5),
        0,
    ),
    "discrete_gaussian": (
        DiscreteGaussian(3.0),
        Query(same, 2, "l2", step=1, dim=1),
        [3.0],
        [5.0],
        {},
        1e-3,
    ),
    "staircase": (mechanisms.Staircase(0.8, 3, 2), Query(same, 3, step=1, dim=1), [3], [6], {}, 0),
    "truncated_geometric": (
        mechanisms.TruncatedGeometric(3.0, 0, 20),
        Query(same, 2, step=1, dim=1),
        [0],
        [2],
        dict(low=0, high=20),
        0,
    ),
    "binomial_response": (
        BinomialResponse(20, 5, 30),
        Query(same, 2, step=1, dim=2),
        [0, 0],
        [1, 1],
        dict(n=20, population=30),
        0,
    ),
    "randomised_response": (
        RandomisedResponse(0.6, 4),
        Query(same, 2, "l0", step=1, dim=2),
        [0, 3],
        [2, 1],
        dict(categories=4),
        0,
    ),
    "smooth_laplace": (SmoothLaplace(2.0, 0.5), SMOOTH, [0.0, 1.0], [0.99, 0.99], {}, 1e-3),
    "smooth_gaussian": (SmoothGaussian(3.0, 0.5), SMOOTH, [0.0, 1.0], [0.99, 0.99], {}, 1e-3),
}


def of_mechanism(mechanism, query, s, s_neighbour, delta, seed):
    "Draws, densities, price and loss."
    near = np.array([s, s_neighbour], float)
    y = mechanism.sample(np.repeat(near, 20, axis=0), rng(seed))
    at = np.array([[mechanism.log_prob(v, near[j]) for j in (0, 1)] for v in y])
    told = dict(sample=y, log_prob=at, log_prob_max=[mechanism.log_prob_max(v) for v in y[:5]])
    u = rng(seed + 10).random((10, y.shape[1]))
    told["transform"] = mechanism.transform(u, near[:1])
    for name in ("log_cdf", "log_sf"):
        if hasattr(mechanism, name):
            told[name] = getattr(mechanism, name)(y, near[0][: y.shape[1]])
    cost, loss = mechanism.cost(query, delta), mechanism.loss(query)
    told["cost"] = [cost.epsilon, cost.delta, cost.group(2).epsilon]
    if loss is not None:
        told["loss"] = [loss.epsilon(d) for d in (1e-9, 1e-5, 0.01)] + [loss.rho]
        told |= dict(renyi=loss.renyi(np.array([1.5, 2.0, 8.0])), delta=loss.delta(0.3))
        told["profile"] = loss.profile(np.array([0.0, 0.2, 1.0]))
    return told


def mechanism_call(name):
    mechanism, query, s, other, settings, delta = CASES[name]

    def tried(seed, executor):
        told = of_mechanism(mechanism, query, s, other, delta, seed)
        for epsilon in (0.3, 1.7):
            noise = type(mechanism).calibrate(query, epsilon, delta, **settings)
            told[f"at {epsilon}"] = dataclasses.asdict(noise)
        return told

    tried.__name__ = name
    return tried


for each in CASES:
    call(mechanism_call(each))


@call
def discrete_gaussian_by_rho(seed, executor):
    noise = DiscreteGaussian.calibrate(Query(same, 3, "l2", step=1, dim=4), rho=0.05)
    return of_mechanism(
        noise, Query(same, 3, "l2", step=1, dim=4), [0] * 4, [2, 2, 1, 0], 1e-6, seed
    )


@call
def published(seed, executor):
    told = {}
    for k, mechanism in enumerate((Laplace(3.0), DiscreteLaplace(3.0), Gaussian(2.0))):
        for done in (dict(clamp=(0, 8)), dict(round_to=2), dict(clamp=(0, None), suppress_below=3)):
            noise = Published(mechanism, **done)
            query = Query(same, 1, "l2" if k == 2 else "l1", step=1, dim=2)
            case = noise, query, [3, 5], [4, 5], 1e-3 if k == 2 else 0, seed
            told[f"{k} {' '.join(done)}"] = of_mechanism(*case)
    return told


@call
def independent(seed, executor):
    noise = Independent((Laplace(3.0), DiscreteLaplace(2.0), Laplace(1.0)), sizes=(1, 1, 2))
    query = Query(same, 1, dim=4)
    told = of_mechanism(noise, query, [3.0, 5, 1, 1], [4.0, 5, 1, 1], 0, seed)
    normal = Independent((Gaussian(3.0), Gaussian(2.0)))
    case = normal, Query(same, 1, "l2", dim=2), [3.0, 5.0], [4.0, 5.0], 1e-5, seed
    return dict(mixed=told, normal=of_mechanism(*case))


@call
def join(seed, executor):
    first = Release([3.0, 4.0], Query(firsts, 1, step=1, dim=2), DiscreteLaplace(2.0))
    second = Release([7.5], Query(sums, 1, dim=1), Laplace(4.0))
    both = dpsbi.join(first, second)
    s = both.query(np.array([[3.0, 5.0], [2.0, 2.0]]))
    log_p = both.mechanism.log_prob(both.s_dp, s)
    cost = both.mechanism.cost(both.query)
    return dict(s_dp=both.s_dp, s=s, log_prob=log_p, epsilon=cost.epsilon)


def firsts(x):
    return x[:, :2]


def sums(x):
    return x.sum(axis=1, keepdims=True)


@call
def release_saved(seed, executor):
    told = {}
    with tempfile.TemporaryDirectory() as folder:
        for k, given in enumerate((COUNT, SUPPRESSED, POINT)):
            given.save(path := Path(folder) / f"{k}.json")
            again = Release.load(path, fn=same)
            s = np.full((1, given.s_dp.size), 5.0)
            told[k] = dict(
                s_dp=again.s_dp,
                log_prob=again.mechanism.log_prob(again.s_dp, s),
                sensitivity=again.query.sensitivity,
                unit=again.query.unit,
                words=sorted(json.loads(path.read_text())),
            )
    return told


@call
def codes(seed, executor):
    "What was suppressed or not published, as mechanisms and releases know of it."
    told = {}
    gap = Release([np.nan, 9.0], TWO, DiscreteLaplace(2.0))
    for name, given in dict(suppressed=SUPPRESSED, gap=gap).items():
        seen = mechanisms.observed(given)
        as_numbers, s = mechanisms.coded(seen), np.array([[5.0, 8.0], [1.0, 9.0]])
        s = seen.query(s)
        told[name] = dict(s_dp=seen.s_dp, coded=as_numbers.s_dp)
        told[name]["log_prob"] = as_numbers.mechanism.log_prob(as_numbers.s_dp, s)
        told[name]["sample"] = as_numbers.mechanism.sample(s, rng(seed))
    return told


@call
def codebook_of_tables(seed, executor):
    north, south = (
        Codebook(
            Release(v, Query(same, 1, step=1, dim=2, unit="person"), DiscreteLaplace(b)),
            "an office",
            names,
        )
        for v, b, names in (([3.0, 9.0], 2.0, ("a", "b")), ([5.0, np.nan], 1.0, ("c", "d")))
    )
    both = Codebook.of_tables(dict(north=north, south=south), "an office")
    told = dict(
        names=both.names, s_dp=both.release.s_dp, sensitivity=both.release.query.sensitivity
    )
    return told | dict(cost=both.release.mechanism.cost(both.release.query).epsilon)


@call
def codebook(seed, executor):
    stated = {
        "format": "dpsbi.codebook",
        "source": "an office, table 3",
        "protects": dict(unit="patient", neighbours="add-remove", sensitivity=1, norm="l1"),
        "mechanism": dict(
            noise="two-sided geometric",
            epsilon=0.5,
            post_processing=dict(round_to=5, suppress_below=10),
        ),
        "names": ["North", "East", "South"],
        "values": [35, None, 10],
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "book.json"
        path.write_text(json.dumps(stated))
        book = Codebook.load(path)
        book.save(path)
        again = Codebook.load(path)
    told = dict(first=book, again=again)
    s = np.array([[30.0, 4.0, 12.0]])
    log_p = book.release.mechanism.log_prob(book.release.s_dp, s)
    return told | dict(s_dp=book.release.s_dp, log_prob=log_p)


@call
def shipped_data(seed, executor):
    told = {}
    for path in sorted((Path(dpsbi.__file__).parent / "data").glob("*.json")):
        if "census" in path.stem:
            continue
        given = Release.load(path)
        inner = given.mechanism
        told[path.stem] = dict(s_dp=given.s_dp, kind=type(inner).__name__, unit=given.query.unit)
        told[path.stem]["sensitivity"] = given.query.sensitivity
    return told


# ---- costs, ledgers


@call
def ledger_compositions(seed, executor):
    normal, query = Gaussian(4.0), Query(same, 1.0, "l2", dim=1)
    told = {}
    for rule in ("sum", "gaussian", "renyi", "planned", None):
        ledger = Ledger(3.0, 1e-5, composition=rule)
        for k, cost in enumerate(
            (normal.cost(query, 1e-6), Laplace(4.0).cost(TWO_REAL), Cost(0.2))
        ):
            ledger.spend(cost, f"release {k}", "replace", "person")
        spent, left = ledger.spent, ledger.remaining
        told[str(rule)] = [spent.epsilon, spent.delta, left.epsilon, left.delta]
        told[f"{rule}, affords"] = [ledger.affords(Cost(e)) for e in (0.5, 1.0, 1.5, 2.5)]
        told[f"{rule}, text"] = str(ledger)
    return told


@call
def ledger_of_rho(seed, executor):
    ledger = Ledger(rho=0.5)
    noise, query = DiscreteGaussian(3.0), Query(same, 1, "l2", step=1, dim=3)
    for k in range(3):
        ledger.spend(noise.cost(query, 1e-6), f"table {k}")
    costs = [ledger.spent, ledger.remaining, ledger.budget]
    told = [value for cost in costs for value in (cost.epsilon, cost.delta, cost.rho)]
    with tempfile.TemporaryDirectory() as folder:
        kept = Ledger(1.0, path=Path(folder) / "ledger.json")
        kept.spend(Cost(0.4), "one")
        again = Ledger(1.0, path=Path(folder) / "ledger.json")
        told += [again.spent.epsilon, len(again.history)]
    return dict(told=told, text=str(ledger))


@call
def cost(seed, executor):
    one, two = Laplace(2.0).cost(TWO_REAL), Gaussian(3.0).cost(Query(same, 2, "l2"), 1e-4)
    total = one + two + Cost(0.3, 1e-6)
    group = Cost(0.3, 1e-6).group(3)
    compared = [one <= two, two <= one]
    return dict(total=[total.epsilon, total.delta], group=[group.epsilon, group.delta], le=compared)


@call
def release(seed, executor):
    "Of the system's entropy: what is charged, and no value."
    ledger, x = Ledger(2.0, 1e-5, composition="sum"), np.arange(10.0)[:, None] / 10
    query = Query(means, 0.1, norm="l2", dim=1)
    told = {}
    for noise in (Laplace.calibrate(query, 0.5), Gaussian.calibrate(query, 0.4, 1e-6)):
        delta = 1e-6 if isinstance(noise, Gaussian) else 0.0
        given = dpsbi.release(x, query, noise, ledger, delta=delta)
        told[type(noise).__name__] = [given.s_dp.size, noise.scale, ledger.spent.epsilon]
    for name, (noise, query, s, _, _, delta) in CASES.items():
        own = Ledger(50.0, 0.1, composition="sum")
        given = dpsbi.release(
            np.array(s, float), dataclasses.replace(query, fn=whole), noise, own, delta=delta
        )
        told[name] = [given.s_dp.size, own.spent.epsilon, own.spent.delta]
    return told | dict(labels=[entry.label for entry in ledger.history])


def whole(x):
    return x.reshape(len(x), -1)


def means(x):
    return x.mean(axis=1)


# ---- the owner's runs, with seeded noise: NOT PRIVATE


N = 100
UNIFORM = Prior(theta=stats.uniform(0, 1))


def uniforms(theta, rng):
    return rng.random((len(theta), N)) * theta


def mean_of(batch):
    return batch.mean(axis=1, keepdims=True)


WIDTHS, MEAN = Model(UNIFORM, uniforms), Query(mean_of, 1 / N)
X = rng(0).uniform(0, 0.6, N)


@call
def sparse_vector(seed, executor):
    d, told = rng(seed).normal(3.0, 2.0, 60), {}
    kinds = [("laplace", False, 0), ("exponential", True, 0), ("gaussian", False, 1e-5)]
    for noise, resample, delta in kinds:
        for budget in ("optimal", "paper"):
            plan = SparseVector.calibrate(
                0.5, 2.0, 4, resample, budget, noise, delta=delta, steps=60
            )
            run = plan.run(d, 1.0, Seeded(rng(seed)), delta)
            used = [plan.cost(delta).epsilon, plan.used(2, True, delta).epsilon, run.used.epsilon]
            told[f"{noise} {budget}"] = dict(
                scales=[plan.b_threshold, plan.b_query],
                accepted=run.accepted,
                used=used,
                chance=plan.accept_probability(np.linspace(-3, 3, 7)),
            )
    return told


@call
def sparse_vector_on_a_stream(seed, executor):
    d = rng(seed).normal(3.0, 2.0, 60)
    plan, source = SparseVector.calibrate(0.5, 2.0, 60, monotone=True), Seeded(rng(seed))
    state, accepted = plan.begin(source), []
    for k in range(0, 60, 20):
        state, found = plan.extend(state, d[k : k + 20], 1.0, source)
        accepted.append(np.asarray(found) + 0)
    return dict(accepted=accepted)


@call
def noisy_smallest(seed, executor):
    d, told = rng(seed).normal(3.0, 2.0, 60), {}
    for delta in (0.0, 1e-5):
        plan = NoisySmallest.calibrate(0.5, 2.0, 4, delta=delta)
        chosen = plan.run(d, Seeded(rng(seed)))
        told[str(delta)] = dict(noise=plan.noise, scale=plan.scale, chosen=chosen)
        told[str(delta)]["cost"] = [plan.cost(delta).epsilon, plan.cost(delta).delta]
    return told


def private_run(seed, executor, trials, **named):
    ledger = Ledger(5.0, 1e-4)
    distance = dpsbi.summary_distance(MEAN)
    trials = Trials(simulations=150, source=Seeded(rng(seed + 20)), **trials)
    named = dict(count=20, epsilon=2.0, ledger=ledger, trials=trials) | named
    found = dpsbi.abcdp(X, WIDTHS, distance, **named, **how(seed, executor))
    return dict(found=found, spent=[ledger.spent.epsilon, ledger.spent.delta])


@call
def abcdp(seed, executor):
    return private_run(seed, executor, dict(noise="exponential"), threshold=0.1)


@call
def abcdp_of_the_paper(seed, executor):
    return private_run(seed, executor, {}, threshold=0.1, resample=True, budget="paper")


@call
def abcdp_with_normal_noise(seed, executor):
    return private_run(seed, executor, dict(noise="gaussian", delta=1e-5), threshold=0.1)


@call
def abcdp_of_the_nearest(seed, executor):
    return private_run(seed, executor, dict(selection="top"))


@call
def nothing_accepted(seed, executor):
    try:
        private_run(seed, executor, {}, threshold=-9.0)
    except dpsbi.NothingAccepted as none:
        return dict(text=str(none), cost=[none.cost.epsilon, none.cost.delta])


@call
def no_budget_left(seed, executor):
    ledger = Ledger(1.0)
    ledger.spend(Cost(0.7), "one")
    try:
        ledger.spend(Cost(0.4), "two")
    except dpsbi.BudgetError as refused:
        return dict(text=str(refused), spent=ledger.spent.epsilon)


@call
def pool_and_replay(seed, executor):
    theta, y = dpsbi.simulate_pool(WIDTHS, 100, **how(seed, executor))
    d = dpsbi.summary_distance(MEAN).between(X, y, executor)
    plans = dict(first=5, svt=SparseVector.calibrate(0.01, 2.0, 5))
    plans["top"] = NoisySmallest.calibrate(0.01, 2.0, 5)
    accepted = {name: dpsbi.replay(d, 0.1, plan, rng=rng(seed)) for name, plan in plans.items()}
    made = dpsbi.synthetic(Posterior(theta[:10]), WIDTHS, 4, rng=rng(seed))
    return dict(theta=theta, y=y, distances=d, accepted=accepted, synthetic=made)


@call
def laplace_difference(seed, executor):
    law, z = LaplaceDifference(1.0, 2.5), np.array([-30.0, -2.0, 0.0, 0.3, 8.0])
    told = {name: getattr(law, name)(z) for name in ("cdf", "sf", "pdf", "logsf")}
    u = np.array([1e-12, 0.2, 0.5, 0.9])
    told |= dict(ppf=law.ppf(u), isf=law.isf(u), sample=law.sample(20, rng(seed)))
    return told | dict(flip=dpsbi.flip_probability(z, 1.0, [[2.0], [0.5]]))


# ---- distances

KERNELS = {
    "gaussian": distances.Gaussian(0.5),
    "laplace": distances.Laplace(0.5),
    "matern": distances.Matern(0.5, 1.5),
    "energy": distances.Energy(),
}


@call
def mmd_distance(seed, executor):
    x, y = rng(seed).random(40), rng(seed + 10).random((6, 40))
    told = {}
    for name, kernel in KERNELS.items():
        for estimator in ("v", "v2", "u2") if name == "gaussian" else ("v",):
            distance = dpsbi.mmd_distance(kernel, 40, (0.0, 1.0), estimator=estimator)
            stated = [distance.sensitivity, distance.error, distance.computed_sensitivity]
            d = distance.between(x, y, executor)
            told[f"{name} {estimator}"] = dict(stated=stated, d=d, again=distance.at(x)(y))
    added = dpsbi.mmd_distance(KERNELS["gaussian"], 40, neighbours="add-remove", dim=1)
    return told | dict(added=[added.sensitivity, added.error, *added.between(x, y)])


@call
def mmd_of_features(seed, executor):
    x, y = rng(seed).random((30, 2)), rng(seed + 10).random((5, 30, 2))
    told = {}
    for name in ("gaussian", "laplace", "matern"):
        named = dict(features=16, dim=2, rng=rng(seed))
        distance = dpsbi.mmd_distance(KERNELS[name], 30, **named)
        told[name] = [distance.sensitivity, distance.error, *distance.between(x, y, executor)]
    return told


@call
def other_distances(seed, executor):
    x, y = rng(seed).random((30, 2)), rng(seed + 10).random((5, 30, 2))
    summary = dpsbi.summary_distance(Query(rowmeans, 2 / 30, norm="l1"), norm="l1")
    clipped = dpsbi.clipped_mean_distance(nearest, 0.3, 30)
    told = {"median": dpsbi.median_heuristic(y, rng(seed), pairs=500)}
    for name, distance in (("summary", summary), ("clipped", clipped)):
        stated = [distance.sensitivity, distance.error, distance.computed_sensitivity]
        told[name] = stated + list(distance.between(x, y, executor))
    sensitivities = [distances.mmd_sensitivity(1.5, 40), distances.mmd_sensitivity(2.0, 1)]
    return told | dict(sensitivities=sensitivities)


def rowmeans(batch):
    return batch.mean(axis=1)


def nearest(x, y):
    return np.linalg.norm(x[None, :, None] - y[:, None], axis=-1).min(axis=2)


# ---- plans


def effort(*most, **more):
    "An `Effort` without a network, of this version or of one that had them."
    old = dict(network="never") if "network" in Effort.__dataclass_fields__ else {}
    return Effort(*most, **more, **old)


def mean_and_noise(theta, rng):
    return rng.normal(theta, 0.2)


@call
def plan(seed, executor):
    model = Model(Prior(mean=stats.norm(0, 1)), mean_and_noise)
    query = Query(same, 1 / 25, norm="l2", dim=1)
    candidates = {"normal": (query, Gaussian), "laplace": (Query(same, 1 / 25, dim=1), Laplace)}
    found = dpsbi.plan(
        model,
        candidates,
        epsilons=[0.1, 0.3, 1.0],
        delta=1e-6,
        questions=Questions(excludes={"mean": 0.0}, quantities={"square": squared}),
        effort=effort(1000, releases=30, nearby=8, further=500),
        **how(seed, executor),
    )
    least, best = found.epsilon_for("mean", sd=0.5), found.best(0.3, "mean")
    with tempfile.TemporaryDirectory() as folder:
        found.save(Path(folder) / "plan.json")
        again = dpsbi.Plan.load(Path(folder) / "plan.json")
    curve = found.curve("normal", "mean", "width")
    return dict(table=found.table, least=least, best=best, curve=curve, again=again.table)


def squared(mean):
    return mean**2


@call
def plan_with_infer(seed, executor):
    "Where weights fail, and no network is asked."
    brief = effort(1000, releases=8, nearby=4, further=500, least=200.0)
    model, query = linear_regression.linear_regression(50, 2, records=False)
    named = dict(epsilons=[3.0], effort=brief, at=dict(zip(model.prior.names, (-1.8, -2.9, -0.7))))
    return dict(
        table=dpsbi.plan(model, {"sums": (query, Laplace)}, **named, **how(seed, executor)).table
    )


@call
def plan_after_a_release(seed, executor):
    brief = effort(1000, releases=20, nearby=4, further=500)
    named = dict(epsilons=[0.2, 1.0], given=COUNT, effort=brief, **how(seed, executor))
    candidates = {"again": (COUNT.query, DiscreteLaplace)}
    return dict(table=dpsbi.plan(GAMMA, candidates, **named).table)


# ---- checks


def quick(release, model, rng):
    return dpsbi.exact_abc(release, model, draws=40, rng=rng, progress=False)


def drawn(rng):
    return rng.gamma(26, 1, (300, 1))


@call
def sbc_and_coverage(seed, executor):
    named = dict(replications=24, draws=19, **how(seed, executor))
    found = dpsbi.sbc(quick, GAMMA, COUNT.query, COUNT.mechanism, **named)
    covered = dpsbi.coverage(found, (0.5, 0.9))
    return dict(found=found, p_values=found.p_values, covered=covered, table=covered.table())


@call
def tarp(seed, executor):
    named = dict(replications=16, draws=9, quantity=dpsbi.tarp(GAMMA, seed=seed))
    return dpsbi.sbc(quick, GAMMA, COUNT.query, COUNT.mechanism, **named, **how(seed, executor))


@call
def predictive_check(seed, executor):
    about = Posterior(drawn(rng(seed))), COUNT, GAMMA
    near = dpsbi.log_median_distance(*about, simulations=200, **how(seed, executor))
    found = dpsbi.predictive_check(*about, simulations=200, **how(seed, executor))
    return dict(found=found, near=near)


@call
def score(seed, executor):
    named = dict(release=COUNT, model=GAMMA, truth=[30.0], executor=executor, **QUIET)
    named |= dict(seeds=(seed, seed + 1), size=100, simulations=100)
    found = dpsbi.score(drawn, drawn(rng(9)), **named)
    keep = [j for j, column in enumerate(found.columns) if column != "seconds"]
    return dict(columns=[found.columns[j] for j in keep], values=found.values[:, keep])


@call
def two_samples(seed, executor):
    a, b = rng(seed).normal(size=(150, 2)), rng(seed + 10).normal(0.3, 1, (150, 2))
    p = Posterior(b, rng(seed).normal(size=150), ("x", "y"))
    told = dict(c2st=dpsbi.c2st(a, b, rng=rng(seed), folds=2, size=80, executor=executor))
    told |= dict(
        mmd2=[dpsbi.mmd2(a, b), dpsbi.mmd2(a, p, z_score=True), dpsbi.mmd2(a, b, bandwidth=1)]
    )
    told |= dict(ks=dpsbi.ks(a, b), ks_weighted=dpsbi.ks(p, a))
    told["ks_law"] = dpsbi.ks(a[:, :1], stats.norm.cdf)
    density = [dpsbi.negative_log_density(Posterior(v), [0.1, 0.2]) for v in (a, b)]
    return told | dict(density=density)


def noisy(x, rng, size):
    return x + rng.laplace(size=size)


@call
def audit(seed, executor):
    named = dict(runs=4000, digits=False, **how(seed, executor))
    pure = dpsbi.audit(noisy, 0.0, 1.0, 0.8, **named)
    loose = dpsbi.audit(noisy, 0.0, 1.5, 1.0, delta=0.01, **named)
    pairs = [(0.0, 0.3), (0.0, 1.0)]
    pair = dpsbi.worst_pair(noisy, pairs, 0.8, rng=rng(seed), runs=2000, digits=False, **QUIET)
    return dict(pure=pure, loose=loose, pair=list(pair))


def ten_numbers(rng):
    return rng.random((8, 2))


@call
def worst_neighbours(seed, executor):
    told = {}
    for relation in ("replace", "add-remove"):
        named = dict(rng=rng(seed), starts=3, steps=40, norm="l2")
        told[relation] = dpsbi.worst_neighbours(rowmeans, ten_numbers, relation, **named)
    return told


@call
def exact_delta(seed, executor):
    cases = [(Laplace(2.0), [0.0, 0.0], [1.0, 0.5]), (Gaussian(2.0), [0.0], [1.0])]
    cases += [(DiscreteLaplace(2.0), [0], [1]), (BinomialResponse(20, 5, 30), [0], [1])]
    return {str(k): list(dpsbi.exact_delta(*case, 0.2)) for k, case in enumerate(cases)}


@call
def testing(seed, executor):
    x = rng(seed).normal(size=200)
    count = rng(seed).poisson(3.0, 400)
    told = [
        follows(x, stats.norm.cdf),
        follows_pmf(count, np.arange(12), stats.poisson(3).pmf(np.arange(12))),
    ]
    agrees(x.mean(), 0.0, 200**-0.5, verbose=False)
    return dict(p_values=told)


# ---- simulators


def simulated(model, seed, n=5):
    "Draws of the prior, and what is simulated there."
    theta = model.prior.sample(n, rng(seed))
    log_p = model.prior.log_prob(theta)
    return dict(theta=theta, log_p=log_p, x=model.simulate(theta, rng(seed + 10)))


@call
def simulate_counts(seed, executor):
    exact, nine = counts.exact_posterior(25, 1, COUNT), counts.GammaPoissonLaplace(25, 1, 0.2, 37.4)
    told = [exact.mean, exact.std, nine.mean, nine.std, nine.log_evidence]
    at = np.array([20.0, 30.0])
    laws = [exact.pdf(at), exact.cdf(at), nine.pdf(at), nine.cdf(at)]
    return dict(
        model=simulated(GAMMA, seed), told=told, laws=laws, draws=exact.sample(10, rng(seed))
    )


@call
def simulate_sir(seed, executor):
    told = dict(clock=simulated(sir.sir(300, DAYS), seed))
    told["gillespie"] = simulated(sir.sir(100, DAYS, method="gillespie", initial=3), seed)
    given, printed = sir.synthetic_release(), {k: v.shares for k, v in sir.PRINTED.items()}
    return told | dict(s_dp=given.s_dp, school=list(sir.BOARDING_SCHOOL), printed=printed)


@call
def simulate_sir_by_steps(seed, executor):
    theta = HIDDEN.prior.sample(3, rng(seed))
    draws = rng(seed + 10)
    first = HIDDEN.start(theta, 4, draws)
    state = HIDDEN.step(first, theta, 0.0, 1.0, draws)
    mean, variance = HIDDEN.forecast(state, theta, 1.0, 2.0)
    return dict(state=state, seen=HIDDEN.observed(state, 0), mean=mean, variance=variance)


@call
def simulate_seir(seed, executor):
    space = seir.seir_state_space(500, 6)
    query = [seir.new_cases_query(6).sensitivity, seir.new_cases_query(6, "l2").sensitivity]
    return dict(model=simulated(seir.seir(500, 6), seed), space=simulated(space, seed), query=query)


@call
def simulate_birth_death(seed, executor):
    model = birth_death.birth_death(2, warm_up=(2, 20), years=1)
    told = simulated(model, seed, 2)
    distance = birth_death.OutbreakDistance(2)
    told["d"] = distance.between(told["x"][0], told["x"])
    return told | dict(patient=birth_death.patient_query()(told["x"][:, 0]))


@call
def simulate_tuberculosis(seed, executor):
    rates = tuberculosis.rates([tuberculosis.TRUTH, (3.0, 5.0, 0.2, 100.0)])
    return dict(rates=rates, data=tuberculosis.san_francisco.statistics)


@call
def simulate_cubic_curve(seed, executor):
    told = simulated(cubic_curve.cubic_curve(9), seed)
    d = cubic_curve.person_distance(distances.Gaussian(200.0))
    whole = cubic_curve.cubic_curve().simulate(told["theta"], rng(seed))
    between = d.between(cubic_curve.netherlands, whole)
    queries = [cubic_curve.daily_query(), cubic_curve.cumulative_query()]
    told["queries"] = [query.sensitivity for query in queries]
    return told | dict(between=between, sensitivity=d.sensitivity, data=cubic_curve.netherlands)


@call
def simulate_uniform_mixture(seed, executor):
    told = simulated(uniform_mixture.uniform_mixture(20), seed)
    query = uniform_mixture.histogram_query(20)
    told |= dict(s=query(told["x"]), truth=np.asarray(uniform_mixture.truth, float))
    few = uniform_mixture.histogram_query(5)
    s_dp = few(uniform_mixture.uniform_mixture(5).simulate(told["theta"][:1], rng(seed)))[0]
    exact = uniform_mixture.exact_posterior(5, Release(s_dp, few, Laplace(1.0)))
    told |= dict(exact=exact.mean, marginal=exact.marginal(0, [0.2, 0.5]))
    return told | dict(counts=simulated(uniform_mixture.histogram_model(20), seed))


@call
def simulate_linear_regression(seed, executor):
    model, query = linear_regression.linear_regression(20, 2)
    told = simulated(model, seed)
    direct = simulated(linear_regression.linear_regression(20, 2, records=False)[0], seed)
    told |= dict(s=query(told["x"]), sensitivity=query.sensitivity, direct=direct)
    return told | dict(s_dp=linear_regression.published().s_dp)


@call
def simulate_naive_bayes(seed, executor):
    model, query = naive_bayes.naive_bayes(20)
    told = simulated(model, seed)
    told |= dict(s=query(told["x"]), sensitivity=query.sensitivity)
    exact = naive_bayes.exact_posterior(naive_bayes.published(), 100)
    told |= dict(exact=exact.mean(), std=exact.std(), draws=exact.sample(10, rng(seed)))
    latent = naive_bayes.NaiveBayesRecords(20)
    theta = latent.start(3, rng(seed))
    return told | dict(start=theta, records=latent.records(theta, rng(seed)))


@call
def simulate_regression_population(seed, executor):
    latent = regression_population.RegressionPopulation(2, count=True)
    theta = latent.start(3, rng(seed))
    x = latent.records(theta, 6, rng(seed + 10))
    query = regression_population.regression_sums(2, count=True)
    told = dict(start=theta, x=x, t=latent.contributions(x), log_prior=latent.log_prior(theta))
    told["update"] = latent.update(theta, x, np.ones((3, 6), bool), rng(seed + 20))
    return told | dict(sensitivity=query.sensitivity, s=query(x))


# ---- six digits of them, for any machine

KEPT = 10  # numbers of each call


def six(number):
    return float(f"{number:.6g}")


def digest(array):
    "A number; or of several the shape, first, second, mean and largest."
    if array.dtype.kind == "U":
        return str(array)
    x = array.astype(float).ravel()
    if x.size == 1:
        return six(x[0])
    finite = x[np.isfinite(x)] if np.isfinite(x).any() else np.zeros(1)
    told = [*x[:2], finite.mean(), np.abs(finite).max()]
    return [list(array.shape), *map(six, told)]


def importance_of(key, array):
    "The less, the sooner it is kept: arrays, then real numbers, then whole ones."
    return (array.size <= 1) + (array.dtype.kind != "f") + 2 * ("info" in key)


def worth_keeping(name, values):
    """Which of a call's values are kept: of loose ones mean and sd, of others what tells most.

    R-hat is of ranks, which a rounding turns.
    """
    last = {key: key.rpartition(".")[2] for key in values}
    if name in LOOSE:
        return [key for key in values if last[key] in ("mean", "std", "engine")]
    numbers = [k for k, a in values.items() if a.dtype.kind in "bif" and "rhat" not in k]
    numbers.sort(key=lambda k: importance_of(k, values[k]))
    best = {}  # of what is there twice, once
    for key in numbers:
        best.setdefault(str(digest(values[key])), key)
    best = list(best.values())[:KEPT]
    return [key for key in values if key in best or last[key] == "engine"]


def write(names):
    "Puts the values of some calls into the file."
    told = json.loads(VALUES.read_text()) if VALUES.exists() else {}
    for name in names:
        values = made(name, SEEDS[0])
        told[name] = {key: digest(values[key]) for key in worth_keeping(name, values)}
    lines = (
        f"{json.dumps(name)}: {{\n"
        + ",\n".join(f"  {json.dumps(key)}: {json.dumps(v)}" for key, v in told[name].items())
        + "\n}"
        for name in CALLS
        if name in told
    )
    VALUES.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(told)} calls, {VALUES.stat().st_size:,} bytes in {VALUES.name}")


# ---- two commits, bit by bit


def unpack(commit, folder):
    "The package as it is at a commit; '.': as it stands."
    if commit == ".":
        return ROOT
    told = subprocess.run(["git", "archive", commit, "dpsbi"], cwd=ROOT, capture_output=True)
    if told.returncode:
        raise SystemExit(f"no commit {commit!r}: {told.stderr.decode().strip()}")
    folder.mkdir()
    subprocess.run(["tar", "-x", "-C", folder], input=told.stdout, check=True)
    return folder


def pools(name, executors):
    "Each executor that a call is tried with: its name, and how to open it."
    takes_one = any(step.argval == "executor" for step in dis.get_instructions(CALLS[name]))
    opened = dict(alone=nullcontext, processes=lambda: ProcessPoolExecutor(2, get_context("fork")))
    return {k: opened[k] for k in executors if takes_one or k == executors[0]}


def record(arguments):
    "All values at one commit, into a file: in a process of its own, where that package is found."
    assert Path(dpsbi.__file__).is_relative_to(arguments.tree), dpsbi.__file__
    found, place = {}, arguments.place
    bar = tqdm(arguments.only, desc=arguments.label, position=place, mininterval=1)
    for name in bar:
        bar.set_postfix_str(name, refresh=False)
        for seed in arguments.seeds:
            for executor, opened in pools(name, arguments.executors).items():
                try:
                    with opened() as pool:
                        values = made(name, seed, pool)
                except Exception as error:
                    values = {FAILED: np.array(f"{type(error).__name__}: {error}"[:300])}
                for key, array in values.items():
                    found[SEPARATOR.join((name, str(seed), executor, key))] = array
    np.savez_compressed(arguments.into, **found)


SEPARATOR, FAILED = "|", "failed"


def recorded(trees, arguments):
    "The values of each tree, made at once: (call, seed, executor) -> key -> array."
    running = []
    for place, (label, tree) in enumerate(trees):
        into = arguments.folder / f"{place}.npz"
        more = ["--tree", tree, "--into", into, "--label", label, "--place", place]
        more += ["--only", *arguments.only, "--seeds", *arguments.seeds]
        more += ["--executors", *arguments.executors]
        same_way = dict(OMP_NUM_THREADS="1", PYTHONHASHSEED="1")  # sets are walked in one order
        environment = os.environ | same_way | dict(PYTHONPATH=str(tree))
        command = [sys.executable, HERE, *more]
        running.append((subprocess.Popen([*map(str, command)], env=environment), into))
    for process, into in running:
        if process.wait():
            raise SystemExit(f"a run ended with exit status {process.returncode}")
        found = {}
        with np.load(into) as file:
            for name in file.files:
                *which, key = name.split(SEPARATOR, 3)
                found.setdefault(tuple(which), {})[key] = file[name]
        yield found


def same_bits(a, b):
    "Whether two arrays are the same, NaN for NaN and zero for zero of its sign."
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind != "f":
        return np.array_equal(a, b)
    alike = (a == b) & (np.signbit(a) == np.signbit(b)) | np.isnan(a) & np.isnan(b)
    return bool(alike.all())


def in_words(a, b):
    "How two arrays differ, in words."
    if a.shape != b.shape or a.dtype != b.dtype and "U" not in (a.dtype.kind, b.dtype.kind):
        return f"{a.dtype} {a.shape} -> {b.dtype} {b.shape}"
    if "U" in (a.dtype.kind, b.dtype.kind):
        return f"{str(a)[:60]!r} -> {str(b)[:60]!r}"
    x, y = a.astype(float).ravel(), b.astype(float).ravel()
    off = np.where((x == y) | np.isnan(x) & np.isnan(y), 0.0, np.abs(x - y))
    k = int(np.argmax(np.where(np.isnan(off), np.inf, off)))
    how_many = f"{np.count_nonzero(off)} of {x.size}, largest difference {off[k]:.3g}"
    return f"{how_many}: {x[k]} -> {y[k]}"


def differences(one, other):
    "A line for each array that two runs of a call do not share, and for each failure."
    if FAILED in one or FAILED in other:
        words = [str(run.get(FAILED, "fine")) for run in (one, other)]
        yield "fails: " + (words[0] if words[0] == words[1] else " -> ".join(words))
        return
    for key in one | other:
        if key not in one or key not in other:
            yield f"{key}: only {'before' if key in one else 'after'}"
        elif not same_bits(one[key], other[key]):
            yield f"{key}: {in_words(one[key], other[key])}"


def compare_trees(arguments):
    "Prints what differs, and how much does; whether all is the same."
    start, count, arrays = time.perf_counter(), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        arguments.folder = Path(folder)
        trees = [
            (commit, unpack(commit, arguments.folder / f"tree {place}"))
            for place, commit in enumerate(arguments.commits)
        ]
        before, after = recorded(trees, arguments)
    lines = []
    for which in before | after:
        name, seed, executor = which
        one, other = before.get(which, {}), after.get(which, {})
        arrays += len(other)
        lines += [f"{name}, seed {seed}, {executor}: {line}" for line in differences(one, other)]
        alone = after.get((name, seed, arguments.executors[0]), {})
        if alone is not other and FAILED not in alone | other:
            pair = f"{name}, seed {seed}, {arguments.executors[0]} -> {executor}"
            lines += [f"{pair}: {line}" for line in differences(alone, other)]
    print("", *lines, sep="\n")
    count = len(lines)
    print(
        f"\n{count} differences in {arrays} arrays of {len(arguments.only)} calls, seeds "
        f"{', '.join(arguments.seeds)}, {' and '.join(arguments.executors)}, "
        f"{time.perf_counter() - start:.0f} s"
    )
    return not count


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("commits", nargs="*", metavar="COMMIT", help="two of them, '.': as it is")
    parser.add_argument("--only", nargs="+", metavar="CALL", default=list(CALLS))
    parser.add_argument("--seeds", nargs="+", default=[str(seed) for seed in SEEDS])
    parser.add_argument("--executors", nargs="+", choices=EXECUTORS, default=EXECUTORS)
    parser.add_argument("--write", action="store_true", help=f"values of seed 1 to {VALUES.name}")
    for own in ("--tree", "--into", "--label", "--place"):
        parser.add_argument(own, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if unknown := set(arguments.only) - set(CALLS):
        parser.error(f"no call {', '.join(sorted(unknown))}; there are {', '.join(CALLS)}")
    if arguments.tree:
        arguments.place, arguments.seeds = int(arguments.place), map(int, arguments.seeds)
        arguments.seeds = list(arguments.seeds)
        return record(arguments)
    if arguments.write:
        return write(arguments.only)
    if len(arguments.commits) != 2:
        parser.error("two commits, as HEAD~1 HEAD or HEAD . (the working tree), or --write")
    return 0 if compare_trees(arguments) else 1


if __name__ == "__main__":
    import calls  # by its name, so that workers and fingerprints find what it defines

    sys.exit(calls.main())
