"""Every noise, with everything that may be done to it, in every engine: exact.

One rate, two counts. The truth is a sum over rates and counts. `check(noise, done, engine)` is one
cell of the matrix; all cells of the quick engines are tests, and for each of the others a covering
row: every noise and everything done to it. `python tests/analyst/test_matrix.py` runs what is
missing in the record of the whole matrix, `nbs/references/matrix.jsonl`; delete that file to make
it anew.
"""

import json
import math
import sys
import warnings
from datetime import date
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import dpsbi
from dpsbi import (
    BinomialResponse,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Independent,
    Laplace,
    Model,
    Posterior,
    Prior,
    Published,
    Query,
    Release,
    join,
)
from dpsbi.analyst.neural.likelihood import Dequantiser
from dpsbi.analyst.neural.training import Shape, Training
from dpsbi.checks.testing import agrees
from dpsbi.mechanisms import RandomisedResponse, SmoothLaplace, coded, observed
from dpsbi.mechanisms.composite import parts_of
from dpsbi.mechanisms.discrete import TruncatedGeometric
from dpsbi.mechanisms.staircase import Staircase
from dpsbi.planning.candidates import Effort
from dpsbi.privacy import identity
from dpsbi.simulators import counts as counts

NOISES = {
    "discrete Laplace": DiscreteLaplace(2.0),
    "discrete Laplace, halves": DiscreteLaplace(1.5, step=0.5),
    "discrete Gaussian": DiscreteGaussian(2.0),
    "staircase": Staircase(0.8, 2, 1),
    "truncated geometric": TruncatedGeometric(2.0, 0, 40),
    "binomial response": BinomialResponse(30, 2.0, 30),
    "Laplace": Laplace(2.0),
    "normal": Gaussian(2.0),
}
DONE = {
    "as drawn": lambda m: m,
    "clamped": lambda m: Published(m, clamp=(0, 12)),
    "rounded": lambda m: Published(m, round_to=5),
    "rounded, uneven": lambda m: Published(m, round_to=2.5),
    "suppressed": lambda m: Published(m, suppress_below=6),
    "all three": lambda m: Published(m, clamp=(0, 20), round_to=4, suppress_below=6),
    "one of two suppressed": lambda m: Independent((Published(m, suppress_below=6), m)),
    "one missing": lambda m: m,
    "all suppressed": lambda m: Independent((Published(m, suppress_below=40),) * 2),
    "suppressed, missing": lambda m: Independent((Published(m, suppress_below=9), m)),
    "joined": lambda m: Independent((Published(m, suppress_below=3), Published(m, round_to=3))),
}
PRIOR, K, RATE = stats.gamma(4, scale=2), np.arange(31.0), np.linspace(0.02, 40, 2000)
PMF = stats.poisson.pmf(K, RATE[:, None])
PMF[:, -1] = stats.poisson.sf(K[-2], RATE)


def simulate(theta, rng):
    return np.minimum(rng.poisson(theta, (len(theta), 2)), 30).astype(float)


MODEL = Model(Prior(rate=PRIOR), simulate)


def published(noise, done):
    "What was published of the counts 7 and 11, or None where this noise cannot be that."
    mechanism = DONE[done](NOISES[noise])
    v = mechanism.sample(np.array([[7.0, 11.0]]), np.random.default_rng(3))[0]
    if done in ("one missing", "suppressed, missing"):
        v[1] = np.nan
    if done == "suppressed, missing":
        v[0] = np.nan
    query = Query(identity, 1, step=1, dim=2)
    if done != "joined":
        return Release(v, query, mechanism)
    own = Query(Half(), 1, step=1, dim=1)
    parts = [Release(v[:1], own, mechanism.mechanisms[0])]
    parts += [Release(v[1:], Query(Half(1), 1, step=1, dim=1), mechanism.mechanisms[1])]
    return join(*parts)


class Half:
    "One of two values."

    def __init__(self, j=0):
        self.j = j

    def __call__(self, x):
        return x[:, self.j : self.j + 1]


@cache
def exact(noise, done):
    "Mean and sd of the rate, by sums over counts and rates: the same for all engines."
    log_p, release = PRIOR.logpdf(RATE), published(noise, done)
    each = getattr(release.mechanism, "mechanisms", (release.mechanism,) * 2)
    for value, mechanism in zip(release.s_dp, each):
        if np.isnan(value) and getattr(mechanism, "suppress_below", None) is None:
            continue
        log_p = log_p + np.log(PMF @ np.exp(mechanism.log_prob([value], K[:, None])))
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    return p @ RATE, math.sqrt(p @ (RATE - p @ RATE) ** 2)


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


QUICK = {
    "importance": lambda r, **k: dpsbi.importance(r, MODEL, rounds=2, simulations=2000, **k),
    "exact_abc": lambda r, **k: dpsbi.exact_abc(r, MODEL, draws=500, **k),
}
OTHERS = {
    "input_smc": lambda r, **k: dpsbi.input_smc(r, MODEL, draws=200, **k),
    "smc_abc": lambda r, **k: dpsbi.smc_abc(r, MODEL, draws=200, **k),
    "pseudo_marginal": lambda r, **k: dpsbi.pseudo_marginal(r, MODEL, draws=300, **k),
    "infer": lambda r, **k: dpsbi.infer(r, MODEL, target_ess=300, **k),
    "da_mcmc": lambda r, **k: dpsbi.da_mcmc(r, Records(), draws=640, warmup=30, **k),
    "refine": lambda r, **k: dpsbi.refine(rough(), r, MODEL, simulations=2000, **k),
}


def rough():
    "A posterior that knows nothing of the release."
    theta = np.random.default_rng(1).gamma(4, 2.0, (2000, 1))
    return Posterior(theta, None, ("rate",))


def check(noise, done, engine):
    "z of the mean; AssertionError unless it is exact."
    release = published(noise, done)
    mean, sd = exact(noise, done)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        p = (QUICK | OTHERS)[engine](release, rng=np.random.default_rng(5), progress=False)
    worth = 0.7 * min(float(np.min(p.ess)), 4000)  # ESS is itself an estimate
    agrees(p.mean()[0], mean, sd / math.sqrt(worth), verbose=False)
    return float((p.mean()[0] - mean) / sd * math.sqrt(worth))


@pytest.mark.thorough
@pytest.mark.parametrize("done", DONE)
@pytest.mark.parametrize("noise", NOISES)
def test_quick_engines_in_every_cell(noise, done):  # false alarms: as `agrees` states
    for engine in QUICK:
        check(noise, done, engine)


# for each of the other engines: every noise, and everything done, at least once
COVER = [
    (list(NOISES)[(i + j) % len(NOISES)], done, engine)
    for j, engine in enumerate(OTHERS)
    for i, done in enumerate(DONE)
]


@pytest.mark.thorough
@pytest.mark.parametrize("noise, done, engine", COVER)
def test_other_engines_with_every_noise_and_everything_done(noise, done, engine):
    check(noise, done, engine)


ROTATED = [(list(NOISES)[i % len(NOISES)], done) for i, done in enumerate(DONE)]


@pytest.mark.thorough
@pytest.mark.parametrize("noise, done", ROTATED)
def test_what_is_predicted_of_the_counts_is_exact(noise, done):
    "Sums over rates and both counts; false alarms: as `agrees` states."
    release = published(noise, done)
    each = getattr(release.mechanism, "mechanisms", (release.mechanism,) * 2)
    chance = np.ones((2, K.size))
    for j, (value, noisy) in enumerate(zip(release.s_dp, each)):
        if not np.isnan(value) or getattr(noisy, "suppress_below", None) is not None:
            chance[j] = np.exp(noisy.log_prob([value], K[:, None]))
    both = np.einsum("r,ra,rb->ab", PRIOR.pdf(RATE), PMF * chance[0], PMF * chance[1])
    truth = np.array([both.sum(axis=1) @ K, both.sum(axis=0) @ K]) / both.sum()
    p = QUICK["importance"](release, rng=np.random.default_rng(5), progress=False)
    how = dict(rng=np.random.default_rng(6), draws=1000, progress=False)
    found = dpsbi.predict(p, release, MODEL, **how).confidential
    error = found.std() / math.sqrt(0.7 * min(float(np.min(p.ess)), 1000))
    agrees(found.mean(), truth, error, verbose=False)


SHOWN = [(n, d) for n, d in ROTATED if d.split()[0] in ("as", "clamped", "rounded,", "joined")]
SHOWN += [("binomial response", "rounded"), ("staircase", "clamped")]


@pytest.mark.thorough
@pytest.mark.parametrize("noise, done", SHOWN)
def test_the_most_likely_rate_behind_one_count_is_that_of_a_grid(noise, done):
    release = published(noise, done)
    first = getattr(release.mechanism, "mechanisms", (release.mechanism,))[0]
    one = Release(release.s_dp[:1], Query(identity, 1, step=1, dim=1), first)
    how = dict(rng=np.random.default_rng(1), final_simulations=20_000, progress=False)
    fit = dpsbi.mcem(one, counts.Poisson(), 5.0, **how)
    k = np.arange(31.0)
    rate = np.linspace(0.01, 20, 4000)
    likelihood = stats.poisson.pmf(k, rate[:, None]) @ np.exp(first.log_prob(one.s_dp, k[:, None]))
    assert abs(fit.theta[0] - rate[np.argmax(likelihood)]) < 0.05  # seeded


@pytest.mark.slow
@pytest.mark.parametrize("noise, done", ROTATED)
def test_a_fitted_likelihood_is_near_with_everything_done(noise, done):
    "Within 0.3 sds; seeded, and 0.08 was the largest."
    release, (mean, sd) = published(noise, done), exact(noise, done)
    little = Training(steps=0, final_steps=5, members=1, flow=Shape(layers=1, hidden=8))
    how = dict(rounds=2, simulations=1000, training=little, draws=1000, progress=False)
    p = dpsbi.sple(release, MODEL, rng=np.random.default_rng(5), **how)
    assert abs(p.mean()[0] - mean) < 0.3 * sd


def test_infer_hands_a_model_of_records_the_whole_release():
    release, how = published("discrete Laplace", "one missing"), dict(progress=False)
    mean, sd = exact("discrete Laplace", "one missing")
    found = dpsbi.infer(release, Records(), target_ess=300, rng=np.random.default_rng(5), **how)
    agrees(found.mean()[0], mean, found.mcse()[0], verbose=False)
    assert found.confidential.theta.shape[1] == 2  # the missing count too


@pytest.mark.thorough
@pytest.mark.parametrize("done", DONE)
@pytest.mark.parametrize("noise", NOISES)
def test_files_codes_and_prices_in_every_cell(noise, done, tmp_path):
    release = published(noise, done)
    release.save(tmp_path / "r.json")
    again = Release.load(tmp_path / "r.json", fn=release.query.fn)
    assert again.mechanism == release.mechanism and again.query == release.query
    assert np.array_equal(again.s_dp, release.s_dp, equal_nan=True)
    seen, s = observed(release), np.array([[3.0, 9.0], [8.0, 4.0]])
    as_numbers = coded(seen)
    s = seen.query(s)
    assert np.isfinite(as_numbers.s_dp).all()
    assert np.isfinite(as_numbers.mechanism.sample(s, np.random.default_rng(1))).all()
    ours = seen.mechanism.log_prob(seen.s_dp, s)
    assert np.allclose(as_numbers.mechanism.log_prob(as_numbers.s_dp, s), ours)
    delta = 1e-6 if release.mechanism.needs_delta else 0.0
    cost = release.mechanism.cost(release.query, delta)
    plain = Independent((NOISES[noise],) * 2) if done == "joined" else NOISES[noise]
    assert cost.epsilon == pytest.approx(plain.cost(release.query, delta).epsilon)


@pytest.mark.thorough
@pytest.mark.parametrize("done", DONE)
@pytest.mark.parametrize("noise", NOISES)
def test_what_comes_again_has_a_cell(noise, done):
    "False alarms: as `agrees` states."
    seen, rng = coded(observed(published(noise, done))), np.random.default_rng(2)
    s = np.repeat(seen.query(np.array([[7.0, 11.0]])), 500, axis=0)
    line = Dequantiser.of(seen, s, rng)
    v, x = seen.mechanism.sample(s, rng), line.noise(s, 8, rng, "mc").reshape(-1, seen.s_dp.size)
    parts = parts_of(seen.mechanism, seen.s_dp)
    (middles, widths), (middle, width) = line.cells(v), line.cells(seen.s_dp)
    low, high = middles - widths / 2, middles + widths / 2
    for j in range(seen.s_dp.size):
        _, which, often = np.unique(v[:, j], return_inverse=True, return_counts=True)
        assert (widths[often[which] > 1, j] > 0).all() and np.isfinite(widths).all()
        assert len(np.unique(x[:, j])) == len(x)
        ends = np.unique(np.c_[low[:, j], high[:, j]], axis=0)
        assert (ends[1:, 0] >= ends[:-1, 1] - 1e-9).all()  # no two overlap
        if width[j]:
            p = np.exp(parts.log_prob(j, s[0, j : j + 1]))
            share = (np.abs(x[:, j] - middle[j]) < width[j] / 2).mean()
            agrees(share, p, np.sqrt(p * (1 - p) / len(x)) + 1e-12, verbose=False)


PURE = [name for name, noise in NOISES.items() if not noise.needs_delta]


@pytest.mark.parametrize("done", [d for d in DONE if d not in ("joined", "as drawn")])
@pytest.mark.parametrize("noise", PURE)
def test_the_loss_of_what_is_published_is_never_more_than_its_price(noise, done):
    mechanism = DONE[done](NOISES[noise])
    first = mechanism.mechanisms[0] if isinstance(mechanism, Independent) else mechanism
    price = first.cost(Query(identity, 1, step=1, dim=1)).epsilon
    y = np.arange(-60, 90, 0.5)
    v = first.publish(y) if isinstance(first, Published) else y
    log_p = first.log_prob(v[:, None, None], K[:, None])
    possible = np.isfinite(log_p).all(axis=1)
    worst = np.abs(np.diff(log_p[possible], axis=1)).max()
    assert worst <= price * (1 + 1e-9)


@pytest.mark.thorough
def test_planning_and_audits_take_what_is_published():
    query = Query(identity, 1, step=1, dim=2)
    agency = lambda e: Published(DiscreteLaplace.calibrate(query, e), (0, None), 5, 10)
    candidates = {"as drawn": (query, DiscreteLaplace), "agency": lambda e: (query, agency(e))}
    small = Effort(1000, releases=40)
    rng = np.random.default_rng(1)
    how = dict(epsilons=[1.0], rng=rng, effort=small, progress=False)
    table = dpsbi.plan(MODEL, candidates, **how).table.set_index("design")
    assert table.sd["as drawn"] < table.sd["agency"] < PRIOR.std() * 1.05
    noise = agency(1.0)
    draw = lambda s, rng, size: np.nan_to_num(noise.sample(np.full((size, 1), s), rng), nan=-1.0)
    told = dpsbi.audit(draw, 9.0, 10.0, 1.0, rng=rng, runs=4000, progress=False)
    assert told.lower <= noise.cost(query).epsilon
    silly = dpsbi.audit(draw, 5.0, 15.0, 1.0, rng=rng, runs=4000, progress=False)
    assert silly.lower > noise.cost(query).epsilon  # not neighbours: it can fail


@pytest.mark.parametrize(
    "around",
    [
        lambda: Published(RandomisedResponse(0.8), suppress_below=1),
        lambda: Published(SmoothLaplace(2.0, floor=1.0), clamp=(0, 5)),
        lambda: Independent((Laplace(1.0), SmoothLaplace(2.0, floor=1.0))),
        lambda: Published(Published(Laplace(1.0), round_to=5), clamp=(0, 5)),
        lambda: Published(Independent((Laplace(1.0),)), clamp=(0, 5)),
    ],
)
def test_what_has_no_interval_is_refused_in_words(around):
    with pytest.raises(TypeError, match="log_cdf|density"):
        around()


RECORD = Path(__file__).parents[2] / "nbs/references/matrix.jsonl"


def recorded(engines):
    "Every cell that is not on record, run and written down."
    rows = [json.loads(line) for line in RECORD.read_text().splitlines()] if RECORD.exists() else []
    known = {(row["noise"], row["done"], row["engine"]) for row in rows}
    for cell in product(NOISES, DONE, engines):
        if cell in known:
            continue
        row = dict(zip(("noise", "done", "engine"), cell))
        row |= dict(z=round(check(*cell), 2), date=str(date.today()))
        with RECORD.open("a") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    recorded(sys.argv[1:] or QUICK | OTHERS)
