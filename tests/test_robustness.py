"""Every method in the same bad situations: each ends in one defined way, and nothing wrong is
returned in silence.

Statistical checks, all seeded, compare
means at 5.5 standard errors (false-alarm rate 4e-8 each) and counts at six or more (2e-9).
"""

import errno
import functools
import io
import itertools
import json
import os
import pickle
import re
import resource
import signal
import sys
import tempfile
import warnings
import zipfile
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, fields, replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from scipy import stats

import dpsbi
from dpsbi import Gaussian, Laplace, Ledger, Model, Posterior, Prior, Query, Release
from dpsbi.analyst.em.mcem import Ascent
from dpsbi.analyst.filtering.pseudo_marginal import Walk
from dpsbi.analyst.neural.amortise import Estimator
from dpsbi.analyst.neural.training import ConditionalFlow, Shape, Training
from dpsbi.analyst.smc.smc_abc import Populations
from dpsbi.distances import summary_distance
from dpsbi.owner.abcdp import Trials
from dpsbi.owner.selection import NoisySmallest
from dpsbi.owner.svt import Seeded, SparseVector
from dpsbi.privacy import identity
from dpsbi.simulators import counts as counts
from dpsbi.simulators import linear_regression as lr

# ---- the methods, small


def poisson(theta, rng):
    return rng.poisson(theta).astype(float)


PRIOR = Prior(theta=stats.gamma(25))
MODEL = Model(PRIOR, poisson)
RELEASE = Release([37.4], counts.counting_query(), Laplace(5.0))
SHARP = Release([20.0, 21.0, 25.0, 23.0], Query(identity, 1), Laplace(1e-3))
REGRESSION = lr.published(records=False)
ROUGH = dpsbi.importance(
    RELEASE, MODEL, rng=np.random.default_rng(0), rounds=1, simulations=300, progress=False
)
TINY_FLOW = Shape(layers=1, hidden=8)
BRIEF = dict(training=Training(steps=5, final_steps=5, members=1, flow=TINY_FLOW))
RECORDS = np.array([37.0])
TRIED = [field.name for field in fields(Trials)]


def owner(release, model, *, distance=summary_distance(Query(identity, 1.0)), ledger=None, **kw):
    seeded = dict(simulations=160, source=Seeded(np.random.default_rng(0)))
    trials = Trials(**seeded | {name: kw.pop(name) for name in TRIED if name in kw})
    given = dict(threshold=5.0, count=5, epsilon=1.0, trials=trials) | kw
    return dpsbi.abcdp(RECORDS, model, distance, ledger=ledger or Ledger(1.0, 1e-5), **given)


def small(function, **defaults):
    return lambda release, model, **kw: function(release, model, **defaults | kw)


SIMULATED = {
    "exact_abc": small(dpsbi.exact_abc, draws=100),
    "importance": small(dpsbi.importance, rounds=2, simulations=200),
    "smc_abc": small(dpsbi.smc_abc, draws=100, populations=Populations(200), max_simulations=4000),
    "smc_distance": small(
        dpsbi.smc_abc,
        draws=50,
        populations=Populations(200),
        kernel="distance",
        max_simulations=4000,
    ),
    "pseudo_marginal": small(dpsbi.pseudo_marginal, draws=100),
    "metropolis": small(dpsbi.pseudo_marginal, draws=100, method="metropolis", walk=Walk(2, 50)),
    "naive": small(dpsbi.naive, draws=20, simulations=400),
    "sppe": small(dpsbi.sppe, rounds=2, simulations=150, draws=100, **BRIEF),
    "sple": small(
        dpsbi.sple,
        rounds=2,
        simulations=250,
        draws=20,
        training=Training(steps=0, final_steps=5, members=1, flow=TINY_FLOW),
    ),
    "amortise": lambda release, model, **kw: dpsbi.amortise(
        release.query, release.mechanism, model, **dict(simulations=200, **BRIEF) | kw
    ),
    "rnpe": small(dpsbi.rnpe, simulations=500, draws=200, warmup=5, thin=1, **BRIEF),
    "refine": lambda release, model, **kw: dpsbi.refine(
        ROUGH, release, model, **dict(simulations=300) | kw
    ),
    "infer": small(dpsbi.infer, max_simulations=2000, target_ess=100, neural=BRIEF),
    "abcdp": owner,
}
SHORT = Ascent(max_simulations=2000)
LATENT = {
    "mcem": lambda release, model, **kw: dpsbi.mcem(
        release, model, **dict(theta0=30.0, rqmc=False, final_simulations=2000, schedule=SHORT) | kw
    ),
    "da_mcmc": small(dpsbi.da_mcmc, draws=256, chains=128, warmup=5),
    "gibbs_ss": small(dpsbi.gibbs_ss, draws=256, chains=128, warmup=5),
}
METHODS = SIMULATED | LATENT
ANALYST = [name for name in METHODS if name != "abcdp"]
EXACT = ["exact_abc", "importance", "smc_abc", "pseudo_marginal", "refine", "infer"]
CHECKPOINTED = [name for name in METHODS if name != "naive"]


@dataclass
class Hook:
    """Counts calls in a file, across processes; at one of them raises, or (error None) kills its
    process.
    """

    path: object
    at: int = 0
    error: Exception | None = None
    fingerprint = "changes no result"

    def __call__(self):
        with open(self.path, "ab") as file:
            file.write(b".")
        if self.calls == self.at:
            if self.error is None:
                os.kill(os.getpid(), signal.SIGKILL)
            raise self.error

    @property
    def calls(self):
        return os.path.getsize(self.path)


@dataclass
class Hooked:
    "The simulator, or a latent model, that calls a hook first."

    hook: Hook
    inner: object
    method: str | None = None

    def __call__(self, *arguments):
        self.hook()
        return self.inner(*arguments)

    def __getattr__(self, name):
        if name in ("hook", "inner", "method") or name.startswith("__"):
            raise AttributeError(name)
        value = getattr(self.inner, name)
        return Hooked(self.hook, value) if name == self.method else value


DEFAULTS = {
    "mcem": (RELEASE, counts.Poisson(), "sample"),
    "da_mcmc": (REGRESSION, lr.RegressionRecords(100, 2), "update"),
    "gibbs_ss": (REGRESSION, lr.RegressionMoments(100, 2), "update"),
}


def hooked(name, *hook):
    release, model, method = DEFAULTS.get(name, (RELEASE, MODEL, None))
    return (
        Model(PRIOR, Hooked(Hook(*hook), poisson))
        if method is None
        else Hooked(Hook(*hook), model, method)
    )


def heard(name, *, seed=1, release=None, model=None, **kw):
    "What a method returns, and what it says."
    usual = DEFAULTS.get(name, (RELEASE, MODEL))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = METHODS[name](
            release or usual[0],
            model or usual[1],
            **dict(rng=np.random.default_rng(seed), progress=False) | kw,
        )
    return result, "; ".join(str(w.message) for w in said)


def run(name, **kw):
    return heard(name, **kw)[0]


@functools.cache
def usual(name):
    "A run, and how often it called the simulator."
    with tempfile.TemporaryDirectory() as folder:
        path, saved = Path(folder, "calls"), dict(checkpoint=Path(folder, "c"))
        how = saved if name in CHECKPOINTED else {}
        return run(name, model=hooked(name, path), **how), os.path.getsize(path)


def answer(result):
    "A result as arrays."
    if isinstance(result, Estimator):
        return (result.sample(20, RELEASE.s_dp, np.random.default_rng(0)),)
    return (result.theta, result.weights) if isinstance(result, Posterior) else (result.theta,)


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(answer(a), answer(b), strict=True))


def finite(result):
    return all(np.isfinite(part).all() for part in answer(result))


def cases(names, *axes):
    "All combinations."
    found = list(itertools.product(*axes))
    return pytest.mark.parametrize(
        names,
        found if "," in names else [case for (case,) in found],
        ids=["-".join(map(str, case)) for case in found],
    )


@pytest.fixture(autouse=True)
def deadline():
    "Nothing may go on for ever."

    def ring(*_):
        raise AssertionError("still running after five minutes")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(300)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def clock(monkeypatch):
    """Each look at the clock finds eleven seconds gone: what is saved every ten seconds is saved
    every time.
    """
    ticks = itertools.count(0, 11)
    monkeypatch.setattr("time.monotonic", lambda: next(ticks))


# ---- 1. simulations that are not finite: left out, counted in info["failed"], said beyond one in a
# hundred


def failing(share, value):
    def simulate(theta, rng):
        s = poisson(theta, rng)
        s[rng.random(len(s)) < share] = value
        return s

    return Model(PRIOR, simulate)


FAILING = [name for name in SIMULATED if name != "abcdp"]
FAILURES = itertools.cycle([(0.05, np.nan), (0.5, np.inf)])


@pytest.mark.thorough
@pytest.mark.parametrize("name, failure", list(zip(FAILING, FAILURES)), ids=FAILING)
def test_failed_simulations_are_counted_and_said(name, failure):
    share, value = failure
    result, said = heard(name, model=failing(share, value))
    assert finite(result) and re.search("not finite", said)
    if name != "amortise":  # an Estimator has no info
        n = result.info["simulations"]
        assert abs(result.info["failed"] - share * n) < 6 * np.sqrt(n * share)


@cases("name", EXACT)
def test_failures_that_know_nothing_of_theta_change_no_exact_answer(name):
    result = run(name, model=failing(0.5, np.nan))
    assert (
        abs(result.mean()[0] - counts.exact_posterior(25, 1, RELEASE).mean) < 5.5 * result.mcse()[0]
    )


FEW = dict.fromkeys(
    ["sppe", "sple", "amortise", "rnpe", "infer"], "not finite, which leaves too few"
) | {"naive": "simulations were finite", "abcdp": "NaN or inf"}
NONE = (
    FEW
    | {"exact_abc": "simulations were not finite"}
    | dict.fromkeys(
        [
            "importance",
            "smc_abc",
            "smc_distance",
            "pseudo_marginal",
            "metropolis",
            "refine",
            "infer",
        ],
        "the simulator fails",
    )
)


@pytest.mark.thorough
@cases("name, share", SIMULATED, (0.97, 1.0))
def test_simulations_that_nearly_all_fail_are_refused_or_said_to_be_few(name, share):
    if name in FEW or share == 1:
        with pytest.raises(ValueError, match=(NONE if share == 1 else FEW)[name]):
            run(name, model=failing(share, np.nan))
    else:
        result, said = heard(name, model=failing(share, np.nan))
        assert finite(result) and "not finite" in said


CHOICES = {
    "exponential": {},
    "laplace": dict(noise="laplace"),
    "gaussian": dict(noise="gaussian", delta=1e-6),
    "resample": dict(resample=True),
    "top": dict(selection="top", threshold=None),
    "gumbel": dict(selection="top", threshold=None, delta=1e-6),
}


@cases("choice, value", CHOICES, (np.nan, np.inf, -np.inf))
def test_the_owner_takes_a_failed_simulation_for_one_far_away(choice, value):
    found = []
    for far in (value, 1e12):
        simulate = lambda theta, rng: np.where(theta > 26, far, poisson(theta, rng))
        ledger = Ledger(1.0, 1e-5)
        found.append(
            (
                run(
                    "abcdp", model=Model(PRIOR, simulate), ledger=ledger, **CHOICES[choice]
                ).theta.tolist(),
                ledger.spent,
            )
        )
    assert found[0] == found[1] and max(found[0][0])[0] <= 26


@cases("choice", CHOICES)
def test_the_owner_releases_no_draw_whose_simulation_failed(choice):
    simulate = lambda theta, rng: np.where(
        np.arange(len(theta))[:, None] % 10 == 0, poisson(theta, rng), np.nan
    )  # 16 of 160
    with (
        pytest.raises(ValueError, match="finite")
        if "selection" in CHOICES[choice]
        else warnings.catch_warnings()
    ):
        assert (
            len(run("abcdp", model=Model(PRIOR, simulate), **CHOICES[choice] | dict(count=17)))
            <= 16
        )


SVT = {
    f"{noise}{'-resample' * again}": SparseVector(1.0, 3, 1.0, 2.0, again, noise, steps=50)
    for noise in ("laplace", "exponential", "gaussian")
    for again in (False, True)
}
FORMS = SVT | {
    f"smallest-{noise}": NoisySmallest(1.0, 3, 1.0, noise) for noise in ("exponential", "gumbel")
}
WRONG_DISTANCES = dict(
    shape="must have shape", number="at most 50|fewer than the 3", inf=None, nan=None
)


@cases("form, wrong", FORMS, WRONG_DISTANCES)
def test_wrong_numbers_of_distances_are_refused_and_infinite_ones_or_nan_never_accepted(
    form, wrong
):
    d = np.array(
        dict(
            shape=np.ones((4, 4)),
            number=np.ones(51 if form in SVT else 2),
            inf=[np.inf, 0, np.inf, 0, 0],
            nan=[np.nan, 0, np.nan, 0, 0],
        )[wrong]
    )
    choose = lambda: FORMS[form].run(
        d,
        *([0.0] if form in SVT else []),
        Seeded(np.random.default_rng(0)),
        *([1e-6] if form in SVT else []),
    )
    if WRONG_DISTANCES[wrong] is None:
        chosen = choose()
        assert np.isfinite(d[chosen.accepted if form in SVT else chosen]).all()
    else:
        with pytest.raises(ValueError, match=WRONG_DISTANCES[wrong]):
            choose()


MECHANISMS = [
    Laplace(1.0),
    Gaussian(1.0),
    dpsbi.DiscreteLaplace(1.0),
    dpsbi.RandomisedResponse(0.9),
    dpsbi.SmoothLaplace(3.0),
]


@cases("mechanism, value", MECHANISMS, (np.nan, np.inf))
def test_records_that_are_not_finite_count_as_zeros_without_a_word(mechanism, value):
    smooth = dict(smoothness=0.01, dim=2) if isinstance(mechanism, dpsbi.SmoothLaplace) else {}
    query = Query(
        lambda x: np.repeat(x[:, :1], 1 + bool(smooth), axis=1), 1.0, step=1.0, norm="l1", **smooth
    )
    ledger, delta = Ledger(100.0, 1e-6), 1e-7 if smooth else None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        released = dpsbi.release([value, 1.0], query, mechanism, ledger, delta=delta)
    assert len(ledger.history) == 1 and np.isfinite(released.s_dp).all()


# ---- 2. and 6. a simulator raises, or kills a worker of the pool: the exception arrives as it was,
# and once mended the run resumes to the same result


class NoLicence(Exception):
    pass


NEURAL = ["sppe", "sple", "amortise", "rnpe"]  # their simulator is called as by importance
ENDS = [
    pytest.param(name, end, marks=[pytest.mark.slow] * (end == "kills" and name in NEURAL))
    for name in METHODS
    for end in ("raises", "kills")
]


@pytest.mark.thorough
@pytest.mark.parametrize("name, end", ENDS)
def test_a_run_that_a_simulator_ends_is_heard_and_resumes(name, end, tmp_path, clock):
    saves = name in CHECKPOINTED
    checkpoint = dict(checkpoint=tmp_path / "c") if saves else {}
    whole, calls = usual(name)
    error, last = NoLicence("no licence for the simulator"), max(1, int(0.9 * calls))
    if end == "raises":
        with pytest.raises(NoLicence) as caught:
            run(name, model=hooked(name, tmp_path / "broken", last, error), **checkpoint)
        assert caught.value is error
    else:
        with (
            ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool,
            pytest.raises(BrokenProcessPool),
        ):
            run(name, model=hooked(name, tmp_path / "broken", last), executor=pool, **checkpoint)
    assert same(whole, run(name, model=hooked(name, tmp_path / "again"), **checkpoint))
    if saves and name != "refine" and end == "raises":  # refine has one round, and saves after it
        assert os.path.getsize(tmp_path / "again") < calls


@cases("stage", ["importance", "neural"])
def test_infer_swallows_no_error_of_the_simulator(stage, monkeypatch):
    monkeypatch.setattr(
        "dpsbi.analyst.engines._NEURAL_SIMULATIONS", 100
    )  # some 860 simulations by importance, 100 neural
    done, start, error = (
        [0],
        dict(importance=0, neural=870)[stage],
        ValueError("the reactor is cold"),
    )

    def simulate(theta, rng):
        done[0] += len(theta)
        if done[0] > start:
            raise error
        return rng.normal(theta, 1, (len(theta), 4))

    with pytest.raises(ValueError) as caught:
        run("infer", release=SHARP, model=Model(PRIOR, simulate), max_simulations=2300)
    assert caught.value is error


# ---- 3. a simulator that returns something else than one row of numbers for each row of theta


def changing(theta, rng):
    "Another width at each call."
    return np.repeat(poisson(theta, rng), 1 + next(CALLS) % 2, axis=1)


CALLS = itertools.count()
ROWS, WIDTH = (
    "one data set per row of theta",
    "values to compare|to shape|states dim|of shape|statistics",
)
WRONG = {
    "too few": (lambda theta, rng: poisson(theta, rng)[:-1], ROWS),
    "too many": (lambda theta, rng: np.repeat(poisson(theta, rng), 2, axis=0), ROWS),
    "scalar": (lambda theta, rng: 5.0, ROWS),
    "nothing": (lambda theta, rng: None, ROWS),
    "a dict": (lambda theta, rng: {"s": poisson(theta, rng)}, ROWS),
    "3-d": (lambda theta, rng: poisson(theta, rng)[:, None], WIDTH),
    "no values": (lambda theta, rng: np.empty((len(theta), 0)), WIDTH),
    "wide": (lambda theta, rng: np.repeat(poisson(theta, rng), 4, axis=1), WIDTH),
    "changing": (changing, WIDTH),
    "ragged": (lambda theta, rng: [[1.0]] * (len(theta) - 1) + [[1.0, 2.0]], "simulate"),
    "objects": (lambda theta, rng: np.full((len(theta), 1), object()), "must be numbers"),
    "words": (lambda theta, rng: np.full((len(theta), 1), "many"), "must be numbers"),
    "digits": (lambda theta, rng: poisson(theta, rng).astype(str), "must be numbers"),
    "complex": (lambda theta, rng: poisson(theta, rng) * 1j, "must be numbers"),
}


@pytest.mark.thorough
@cases("name, kind", SIMULATED, WRONG)
def test_what_a_simulator_must_not_return(name, kind):
    simulate, match = WRONG[kind]
    with pytest.raises((ValueError, TypeError), match=match):
        run(name, model=Model(PRIOR, simulate))


@pytest.mark.thorough
@cases("name", SIMULATED)
def test_a_simulator_may_change_theta_in_place(name):
    def simulate(theta, rng):
        s = poisson(theta, rng)
        theta *= 0
        return s

    assert same(run(name, model=Model(PRIOR, simulate)), usual(name)[0])


# ---- 4. a release that the model, or the mechanism, can hardly or cannot have produced


class Bounded(dpsbi.Mechanism):
    "Uniform noise on [-1, 1]."

    def log_prob(self, s_dp, s):
        return np.where((np.abs(np.subtract(s_dp, s)) <= 1).all(-1), -np.log(2), -np.inf)

    def log_prob_max(self, s_dp):
        return -np.log(2)

    def transform(self, u, s):
        return s + 2 * np.asarray(u) - 1


IMPOSSIBLE = {"bounded": Bounded(), "off the grid": dpsbi.DiscreteLaplace(2.0)}
REFUSED = (
    {
        "exact_abc": "none of .* was accepted|could not have released",
        "mcem": "can have led",
        "rnpe": "could have been released",
        "da_mcmc": "could have led",
        "gibbs_ss": "Laplace or Gaussian",
    }
    | dict.fromkeys(["importance", "smc_abc", "refine", "infer"], "could have been released")
    | dict.fromkeys(["pseudo_marginal", "metropolis"], "could have led to the release")
)


@pytest.mark.thorough
@cases("name, kind", [*REFUSED, "sppe", "sple"], IMPOSSIBLE)
def test_an_impossible_release_is_refused_or_said_to_be(name, kind):
    usual = DEFAULTS.get(name, (RELEASE,))[0]
    release = Release(
        np.full(usual.s_dp.size, 1e6 if kind == "bounded" else 0.5), usual.query, IMPOSSIBLE[kind]
    )
    if name in REFUSED:
        with pytest.raises(ValueError, match=f"{REFUSED[name]}|never publishes"):
            run(name, release=release)
    else:
        try:
            said = heard(name, release=release)[1]
        except ValueError as refused:
            said = str(refused)
        assert re.search("extrapolation|could have been released|never publishes", said)


FAR = Release([1e5], RELEASE.query, Laplace(1.0))


@pytest.mark.thorough
@cases(
    "name",
    [
        "exact_abc",
        "importance",
        "smc_abc",
        "smc_distance",
        "refine",
        "naive",
        "sppe",
        "sple",
        "rnpe",
        "mcem",
        "amortise",
    ],
)
def test_a_release_far_from_all_simulations_ends_with_an_error_or_a_warning(name):
    if name == "exact_abc":
        with pytest.raises(ValueError, match="none of 5,000 simulations was accepted"):
            run(name, release=FAR, max_simulations=5000)
    elif name in ("importance", "smc_abc", "refine"):
        result = run(name, release=FAR)
        assert finite(result) and result.pareto_k > 0.7 and result.ess < 10
    elif name in (
        "smc_distance",
        "naive",
    ):  # they compare at a distance, and say at which, in units of the simulations' spread
        result = run(name, release=FAR)
        assert finite(result) and result.info["tolerance"] > 1000
    elif name == "amortise":
        with pytest.warns(UserWarning, match="extrapolation"):
            run(name).posterior(FAR, draws=20, rng=np.random.default_rng(1))
    else:
        limit = dict(max_iterations=10) if name == "mcem" else {}
        result, said = heard(name, release=FAR, **limit)
        assert finite(result) and re.search("extrapolation|R-hat|max_iterations", said)


# ---- 5. one simulation has all the weight: said by a warning, or by ESS and Pareto k; the rest
# stays finite

WIDE = Model(PRIOR, lambda theta, rng: rng.normal(theta, 1, (len(theta), 4)))


@pytest.mark.thorough
@cases(
    "name", ["importance", "smc_abc", "refine", "pseudo_marginal", "metropolis", "infer", "sppe"]
)
def test_degenerate_weights_are_shown(name):
    few = dict(
        pseudo_marginal=dict(particles=4, draws=20), metropolis=dict(particles=4, draws=20)
    ).get(name, {})
    result, said = heard(name, release=SHARP, model=WIDE, **few)
    assert finite(result)
    if name in ("importance", "smc_abc", "refine"):
        assert result.pareto_k > 0.7 and result.ess < 2
    if name == "sppe":
        assert result.info["simulations_ess"] < 5
    elif name != "importance":
        assert re.search(
            "Pareto k|effective draws|sd .* at the posterior mean|neural approximation", said
        )


# ---- 7. the disk is full: OSError, the old file whole, and no litter


def saved_ledger(path):
    Ledger(1.0, path=path).spend(dpsbi.Cost(0.1), "one more")


@functools.cache
def estimator():
    return run("amortise")


SAVERS = {
    "Posterior": ROUGH.save,
    "Release": RELEASE.save,
    "Ledger": saved_ledger,
    "Estimator": lambda path: estimator().save(path),
    "ConditionalFlow": lambda path: estimator().flow.flows[0].save(path),
}
LOADERS = {
    "Posterior": Posterior.load,
    "Release": Release.load,
    "Ledger": lambda path: Ledger(1.0, path=path),
    "Estimator": lambda path: Estimator.load(path, PRIOR),
    "ConditionalFlow": ConditionalFlow.load,
}


def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@cases("name, how", SAVERS, ["EFBIG", "fsync", "replace"])
def test_a_failed_save_leaves_the_old_file(name, how, tmp_path, monkeypatch):
    path = tmp_path / "file"
    SAVERS[name](path)
    before, limit = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    with monkeypatch.context() as patch, pytest.raises(OSError) as caught:
        if how == "EFBIG":  # the system's own refusal
            resource.setrlimit(resource.RLIMIT_FSIZE, (50, limit[1]))
        else:
            patch.setattr(os, how, full)
        try:
            SAVERS[name](path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert caught.value.errno == (errno.EFBIG if how == "EFBIG" else errno.ENOSPC)
    assert path.read_bytes() == before and set(os.listdir(tmp_path)) - {"file.lock"} == {"file"}
    LOADERS[name](path)


def file_of(name, folder):
    "Where a checkpoint at folder/c is found."
    return folder / ("c.look.npz" if name == "infer" else "c")


@pytest.mark.thorough
@cases("name", CHECKPOINTED)
def test_a_full_disk_stops_a_run_which_then_resumes(name, tmp_path, monkeypatch, clock):
    whole, writes = usual(name)[0], itertools.count(1)
    last = 1 if name == "refine" else 2  # refine has one round, and writes once
    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"):
        patch.setattr(os, "fsync", lambda file: full() if next(writes) == last else None)
        run(name, checkpoint=tmp_path / "c")
    assert os.listdir(tmp_path) == ([] if name == "refine" else [file_of(name, tmp_path).name])
    assert same(whole, run(name, checkpoint=tmp_path / "c"))


# ---- 8. a damaged, foreign or hostile file: ValueError that names it (OSError for a folder), and
# nothing in it is executed


@functools.cache
def good(name):
    "The bytes of a file: one that is saved, or the checkpoint of a method."
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        ticks = itertools.count(0, 11)
        patch.setattr("time.monotonic", lambda: next(ticks))
        path = file_of(name, Path(folder))
        SAVERS[name](path) if name in SAVERS else run(name, checkpoint=Path(folder) / "c")
        return path.read_bytes()


def load(name, path, **kw):
    return LOADERS[name](path) if name in LOADERS else run(name, checkpoint=path.parent / "c", **kw)


class Canary:
    "Unpickling it creates a file."

    path = "canary"

    def __reduce__(self):
        return open, (Canary.path, "w")


def npz(save=np.savez, **arrays):
    buffer = io.BytesIO()
    save(buffer, *arrays.pop("positional", ()), **arrays)
    return buffer.getvalue()


def arrays(content):
    with np.load(io.BytesIO(content)) as file:
        return dict(file)


def huge(content):
    "Members that declare 72 TB."
    buffer, head = (
        io.BytesIO(),
        b"\x93NUMPY\x01\x00v\x00"
        + b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 9), }".ljust(117)
        + b"\n",
    )
    with zipfile.ZipFile(buffer, "w") as file:
        for name in arrays(content):
            file.writestr(f"{name}.npy", head)
    return buffer.getvalue()


def number(text):
    return lambda content: re.sub(rb'("(?:epsilon|scale)": )[0-9.]+', rb"\1 " + text, content)


def flipped(content, start, length=1):
    "Bits of some bytes turned; in an archive more than the header of a part, which says little."
    end = start + length
    return content[:start] + bytes(b ^ 0x55 for b in content[start:end]) + content[end:]


DAMAGE = {
    "empty": lambda content: b"",
    "text": lambda content: b"id,age\n1,44\n",
    "cut": lambda content: content[: len(content) // 2],
    "flipped": lambda content: flipped(content, len(content) // 2, 128),
    "foreign": lambda content: npz(theta=np.zeros((2, 1))),
    "pickle": lambda content: pickle.dumps(Canary()),
}
ARRAYS = DAMAGE | {
    "npy": lambda content: npz(np.save, positional=[np.zeros(3)]),
    "objects": lambda content: npz(
        **dict.fromkeys(arrays(content), np.array([Canary()], dtype=object))
    ),
    "huge": huge,
    "swelling": lambda content: npz(np.savez_compressed, **arrays(content), swell=np.zeros(10**6)),
}
JSON = DAMAGE | {
    "flipped": lambda content: flipped(content, 20),  # in a text, a unit say, it is not seen
    "deep": lambda content: b"[" * 100_000,
    "list": lambda content: b"[]",
    "nan": number(b"NaN"),
    "infinite": number(b"Infinity"),
    "negative": number(b"-1"),
    "long": number(b"1" * 400),
    "words": number(b'"a"'),
    "version": lambda content: re.sub(rb'"version": \d', b'"version": 9', content),
    "format": lambda content: content.replace(b"dpsbi.", b"else."),
    "overspent": lambda content: content.replace(b'"epsilon": 0.1', b'"epsilon": 7'),
}
CHECKPOINT = {
    kind: ARRAYS[kind]
    for kind in ("empty", "text", "cut", "flipped", "foreign", "objects", "huge", "swelling")
} | {"list": lambda content: npz(**arrays(content) | dict(fingerprint=np.array("[]")))}
FILES = {
    name: JSON if name in ("Release", "Ledger") else ARRAYS for name in SAVERS
} | dict.fromkeys(CHECKPOINTED, CHECKPOINT)
FOUND = [
    (name, kind)
    for name in FILES
    for kind in FILES[name]
    if (name, kind) != ("Release", "overspent")
]


def refused(name, path, content, **kw):
    "ValueError that names the file, which stays as it is; and nothing in it was executed."
    path.write_bytes(content)
    Canary.path = str(path.parent / "canary")
    with pytest.raises(ValueError, match=re.escape(str(path))):
        load(name, path, **kw)
    assert path.read_bytes() == content and not (path.parent / "canary").exists()


@pytest.mark.thorough
@cases("case", FOUND)
def test_a_damaged_or_hostile_file_is_refused(case, tmp_path):
    name, kind = case
    refused(name, file_of(name, tmp_path), FILES[name][kind](good(name)))


@cases("name", SAVERS)
def test_a_folder_is_no_file(name, tmp_path):
    with pytest.raises(IsADirectoryError, match=re.escape(str(tmp_path))):
        load(name, tmp_path)


def harmless(name, path, content):
    "Read, or refused with a ValueError that names the file."
    path.write_bytes(content)
    try:
        load(name, path)
    except ValueError as error:
        assert str(path) in str(error)


quick = lambda examples: settings(
    max_examples=examples,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.mark.thorough
@cases("name", [*SAVERS, "importance"])
@quick(80)
@given(data=st.data())
def test_random_damage_is_refused_or_harmless(name, tmp_path, data):
    content = bytearray(good(name))
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    harmless(
        name,
        tmp_path / "c",
        content[: data.draw(st.sampled_from([len(content), len(content) // 2, len(content) - 1]))],
    )


def places(node, path=()):
    children = (
        node.items()
        if isinstance(node, dict)
        else enumerate(node)
        if isinstance(node, list)
        else ()
    )
    return [path] * bool(path) + [
        place for key, child in children for place in places(child, (*path, key))
    ]


@cases("name", ["Release", "Ledger"])
@quick(80)
@given(data=st.data())
def test_json_of_other_types_is_refused_or_harmless(name, tmp_path, data):
    state = json.loads(good(name))
    *outer, last = data.draw(st.sampled_from(places(state)))
    functools.reduce(lambda node, key: node[key], outer, state)[last] = data.draw(
        st.sampled_from(
            [
                None,
                [],
                {},
                "x",
                "1e999",
                -1,
                0,
                2**70,
                1e308,
                True,
                np.nan,
                np.inf,
                [[]],
                [1, "a"],
                {"name": "Laplace"},
            ]
        )
    )
    harmless(name, tmp_path / "c", json.dumps(state).encode())


# ---- 9. numbers of draws, simulations, chains that are none, or are more than memory holds

WHOLE = {
    "exact_abc": ("draws", 100),
    "importance": ("simulations", 200),
    "smc_abc": ("draws", 100),
    "smc_distance": ("draws", 50),
    "pseudo_marginal": ("draws", 100),
    "metropolis": ("draws", 100),
    "naive": ("draws", 20),
    "sppe": ("draws", 100),
    "sple": ("simulations", 250),
    "amortise": ("simulations", 200),
    "rnpe": ("draws", 200),
    "refine": ("simulations", 300),
    "infer": ("max_simulations", 2000),
    "abcdp": ("count", 5),
    "mcem": ("final_simulations", 2000),
    "da_mcmc": ("chains", 128),
    "gibbs_ss": ("chains", 128),
}


@cases("name, value", WHOLE, (-1, 1.5, "nan", "inf", "many", True, [3]))
def test_what_is_no_number_of_draws_is_refused(name, value):
    argument, value = WHOLE[name][0], float(value) if value in ("nan", "inf") else value
    with pytest.raises((ValueError, TypeError), match=argument):
        run(name, **{argument: value})


@cases("name", WHOLE)
def test_a_whole_float_counts_as_that_number_or_is_refused(name):
    argument, value = WHOLE[name]
    try:
        assert same(run(name, **{argument: float(value)}), usual(name)[0])
    except (ValueError, TypeError) as error:
        assert argument in str(error)


def confined(call, megabytes=1024, seconds=1):
    """What comes of a call in a child process with so much more memory and time: its error in
    words, '' for none, None where it was killed.
    """
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + megabytes * 2**20,) * 2)
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
            call()
            os.write(write, b'""')
        except BaseException as error:
            os.write(write, json.dumps(f"{type(error).__name__}: {error}").encode())
        finally:
            os._exit(0)
    os.close(write)
    with open(read) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return json.loads(said) if said else None


BOUNDED = ["infer"]  # by its target of effective draws


@pytest.mark.thorough
@cases("name", WHOLE)
@pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")
def test_two_thousand_million_are_refused_or_bounded_by_another_limit(name):
    assert ROUGH.pareto_k < 0.7  # which imports ArviZ here, and not on the child's time
    said = confined(lambda: run(name, **{WHOLE[name][0]: 2**31}))
    assert (
        said == ""
        if name in BOUNDED
        else said is not None and re.match(f"ValueError.*{WHOLE[name][0]}", said)
    )


# ---- 10. arguments that are not what they should be: generators, releases, priors


@cases("name, value", METHODS, ["None", "int", "RandomState", "PCG64"])
def test_what_is_no_generator_is_refused(name, value):
    rng = dict(
        None_=None, int=1, RandomState=np.random.RandomState(1), PCG64=np.random.PCG64(1)
    ).get(value)
    with pytest.raises(TypeError, match="numpy.random.Generator"):
        run(name, rng=rng)


@cases("name", [name for name in ANALYST if name != "amortise"])
def test_what_is_no_release_is_refused(name):
    with pytest.raises(TypeError, match="dpsbi.Release"):
        run(name, release=37.4)


@cases("s_dp", ["inf", "-inf", "empty", "table", "words"])
def test_a_release_is_a_vector_of_finite_numbers(s_dp):
    values = dict(empty=[], table=[[1.0]], words=["a"])
    with pytest.raises(
        ValueError, match="s_dp must be a vector of finite numbers|could not convert"
    ):
        Release(
            values.get(s_dp) if s_dp in values else [1.0, float(s_dp)], RELEASE.query, Laplace(5.0)
        )


@cases("name", ANALYST)
def test_a_release_of_another_length_is_refused(name):
    release = Release([37.4, 20.0], Query(identity, 1), Laplace(5.0))
    with pytest.raises(
        ValueError,
        match=(
            "compare with the 2 that were released|release's 2|must return values of shape|the "
            "context must have shape"
        ),
    ):
        result = run(name, release=release)
        result.posterior(
            release, rng=np.random.default_rng(1)
        )  # an Estimator learns of the release only now


@cases("kind", ["negative scale", "no width", "one point", "one name twice"])
def test_a_prior_that_is_no_density_is_refused(kind):
    marginals = {
        "negative scale": dict(a=stats.norm(30, -1)),
        "no width": dict(a=stats.uniform(30, 0)),
        "one point": dict(a=stats.norm(30, 1e-300)),
        "one name twice": {"a": stats.dirichlet([1, 1]), "a[0]": stats.norm()},
    }[kind]
    with pytest.raises(ValueError, match="prior of 'a'|a\\[0\\]"):
        Prior(**marginals)


@cases("value", (np.nan, np.inf))
def test_a_prior_of_ones_own_without_a_density_is_refused(value):
    undefined = type(
        "Undefined", (Prior,), dict(log_prob=lambda self, theta: np.full(len(theta), value))
    )
    with pytest.raises(ValueError, match="prior"):
        Model(undefined(theta=stats.gamma(25)), poisson)


@pytest.mark.thorough
@cases("name", SIMULATED)
def test_a_density_without_a_bound_is_no_trouble(name):
    result = run(name, model=Model(Prior(theta=stats.gamma(0.3, scale=60)), poisson))
    assert finite(result)
    if name in EXACT:
        assert (
            abs(result.mean()[0] - counts.exact_posterior(0.3, 1 / 60, RELEASE).mean)
            < 5.5 * result.mcse()[0]
        )


# ---- 11. a checkpoint of another run, or in a folder that is not there


def another(name):
    """Arguments of runs that differ in one thing (abcdp's simulations know of no release; a latent
    model has no prior apart).
    """
    usual = DEFAULTS.get(name, (RELEASE,))[0]
    release = (
        dict(simulations=320)
        if name == "abcdp"
        else dict(release=Release(usual.s_dp, usual.query, Laplace(usual.mechanism.scale + 1)))
    )
    return dict(
        seed=dict(seed=2),
        release=release,
        prior=dict(draws=512)
        if name in ("da_mcmc", "gibbs_ss")
        else dict(theta0=31.0)
        if name == "mcem"
        else dict(model=Model(Prior(theta=stats.gamma(50)), poisson)),
    )


@pytest.mark.thorough
@cases("name, what", CHECKPOINTED, ["seed", "release", "prior", "method"])
def test_a_checkpoint_of_another_run_is_refused(name, what, tmp_path):
    content = good("sppe" if name == "da_mcmc" else "da_mcmc") if what == "method" else good(name)
    refused(name, file_of(name, tmp_path), content, **another(name).get(what, {}))


def one_more(theta, rng):
    "Not the simulator that the run began with."
    return poisson(theta, rng) + 1


def another_query(query):
    "The same in all but its function."
    return replace(query, fn=lambda x: query.fn(x) + 1)


@cases("name", [name for name in SIMULATED if name in CHECKPOINTED])
def test_a_checkpoint_of_another_simulator_is_refused(name, tmp_path):
    "The prior, the release and the seed are the same: who edits a simulator begins anew."
    refused(name, file_of(name, tmp_path), good(name), model=Model(PRIOR, one_more))


@cases("name", [name for name in SIMULATED if name in CHECKPOINTED and name != "abcdp"])
def test_a_checkpoint_of_another_query_is_refused(name, tmp_path):
    release = Release(RELEASE.s_dp, another_query(RELEASE.query), RELEASE.mechanism)
    refused(name, file_of(name, tmp_path), good(name), release=release)


@cases("name", CHECKPOINTED)
def test_a_checkpoint_of_this_very_run_that_lacks_its_arrays_is_refused(name, tmp_path):
    buffer = io.BytesIO()
    with np.load(io.BytesIO(good(name))) as file:
        np.savez(buffer, fingerprint=file["fingerprint"], other=np.zeros(3))
    refused(name, file_of(name, tmp_path), buffer.getvalue())


@cases("name", CHECKPOINTED)
def test_a_checkpoint_without_a_folder_is_refused_before_anything_is_simulated(
    name, tmp_path, clock
):
    with pytest.raises(OSError, match=re.escape(str(tmp_path / "nowhere"))):
        run(name, model=hooked(name, tmp_path / "calls"), checkpoint=tmp_path / "nowhere" / "c")
    assert not (tmp_path / "calls").exists()


# ---- slips of those who are new here: what they hear is of what they did

SIX = np.arange(6.0).reshape(3, 2)
ONE, GAMMA_ONE = Query(identity, 1.0), Prior(mean=stats.gamma(3))
PLAIN = Model(GAMMA_ONE, poisson)
PUBLISHED = Release([3.0], ONE, Laplace(1.0))


def rng_of(seed=0):
    return np.random.default_rng(seed)


def asked(fn, x=SIX, **about):
    return lambda: Query(fn, 1.0, **about)(x)


def joined(width, dim, values=2):
    parts = [Release([1.0] * dim, Query(identity, 1.0, dim=width), Laplace(1.0)) for _ in "ab"]
    simulate = lambda theta, rng: np.repeat(poisson(theta, rng), values, axis=1)  # noqa: E731
    both = dpsbi.join(*parts)
    return lambda: dpsbi.importance(both, Model(GAMMA_ONE, simulate), rng=rng_of(), rounds=1)


SLIPS = {
    "a number for each data set": (asked(lambda x: x.sum(axis=1)), r"keepdims=True\), or \[:, N"),
    "a number of all": (asked(lambda x: x.sum()), "axis 0 counts the data sets"),
    "a sum over the batch": (asked(lambda x: x.sum(axis=0)), "axis 0 counts the data sets"),
    "two statistics": (asked(lambda x: (x.sum(1), x.max(1))), "column_stack"),
    "a table of each": (asked(lambda x: x[..., None]), r"reshape\(len\(x\), -1\)"),
    "nothing": (asked(lambda x: None), "lack a return"),
    "a dict": (asked(lambda x: {"a": x}), "must return an array, not dict"),
    "ragged": (asked(lambda x: [[1.0], [1.0, 2.0]]), "ragged"),
    "a column by name": (asked(lambda x: x["age"]), r"one NumPy array of shape \(3, 2\).*numbers"),
    "columns by name": (asked(lambda x: x[["a", "b"]]), r"shape \(3, 2\).*no names"),
    "an attribute": (asked(lambda x: x.age.sum()), r"AttributeError.*shape \(3, 2\)"),
    "a group": (asked(lambda x: x.groupby("a").size()), r"AttributeError.*shape \(3, 2\)"),
    "no such axis": (asked(lambda x: x.sum(axis=1), np.ones(4)), r"AxisError.*shape \(4,\)"),
    "no such column": (asked(lambda x: x[:, 7]), r"IndexError.*shape \(3, 2\)"),
    "dim in words": (asked(identity, dim="2"), "dim must be a whole number"),
    "joined identities": (joined(1, 1), r"identity, .*returned 2 values.*dim=1; .* pick its own"),
    "joined, no dim": (joined(None, 1), "each of the 2 queries joined in it"),
    "neighbors": (lambda: Query(identity, 1.0, neighbors="replace"), "did you mean 'neighbours'"),
    "a float for a query": (lambda: Laplace.calibrate(1.0, ONE), "query must be a dpsbi.Query"),
    "a function for a query": (lambda: Gaussian.calibrate(len, 1.0, 1e-6), "be a dpsbi.Query"),
    "a ledger's budget": (lambda: Ledger(budget=1.0), "Ledger takes epsilon.* no 'budget'"),
    "swapped": (lambda: dpsbi.infer(PLAIN, PUBLISHED, rng=rng_of()), "release must be a .*Model"),
    "no model": (lambda: dpsbi.infer(PUBLISHED, None, rng=rng_of()), "dpsbi.Model.*NoneType"),
    "a function": (lambda: dpsbi.importance(PUBLISHED, len, rng=rng_of()), "dpsbi.Model"),
    "a prior": (lambda: dpsbi.sppe(PUBLISHED, GAMMA_ONE, rng=rng_of()), "not Prior"),
    "the class": (lambda: dpsbi.infer(PUBLISHED, Model, rng=rng_of()), "dpsbi.Model.*not Model"),
    "amortise a function": (
        lambda: dpsbi.amortise(ONE, Laplace(1.0), len, rng=rng_of()),
        "model must be a dpsbi.Model",
    ),
    "a target in words": (
        lambda: dpsbi.infer(PUBLISHED, PLAIN, rng=rng_of(), target_ess="many"),
        "target_ess must be a finite number",
    ),
    "neural in words": (
        lambda: dpsbi.infer(PUBLISHED, PLAIN, rng=rng_of(), neural="no"),
        "neural must be a dict",
    ),
    "an unnamed prior": (lambda: Prior(stats.gamma(3)), r"by its name: Prior\(theta="),
    "a bare distribution": (lambda: Model(stats.gamma(3), poisson), r"Prior\(theta=.* lacks names"),
    "the class of priors": (lambda: Model(Prior, poisson), "must be a dpsbi.Prior"),
    "simulator": (lambda: Model(GAMMA_ONE, simulator=poisson), "did you mean 'simulate'"),
    "a query for values": (lambda: Release(ONE, [3.0], Laplace(1.0)), "released values, not Query"),
    "a dict of values": (lambda: Release({"a": 3.0}, ONE, Laplace(1.0)), "values, not dict"),
    "a list to join": (lambda: dpsbi.join([PUBLISHED]), r"join\(\*releases\), not list"),
    "mechanisms one by one": (
        lambda: dpsbi.Independent(Laplace(1.0), Laplace(1.0)),
        r"in a list, Independent\(\[a, b\]\)",
    ),
    "a seed": (lambda: Posterior(SIX).resample(2, 0), "numpy.random.Generator"),
    "an interval in words": (lambda: Posterior(SIX).interval("95"), "between 0 and 1"),
    "a formula": (lambda: Posterior(SIX).derive(a="b * 2"), "must be a function of the param"),
    "no such folder": (lambda: PUBLISHED.save("/no/such/folder/a.json"), "folder /no/such/folder"),
    "a folder": (lambda: PUBLISHED.save(tempfile.gettempdir()), "is a folder: give the path"),
}


@pytest.mark.parametrize("name", SLIPS)
def test_a_slip_is_answered_in_its_own_terms(name):
    call, match = SLIPS[name]
    with pytest.raises((ValueError, TypeError, OSError), match=f"(?s){match}"):
        call()


NOISES = [
    dpsbi.Laplace,
    dpsbi.Gaussian,
    dpsbi.DiscreteLaplace,
    dpsbi.DiscreteGaussian,
    dpsbi.Staircase,
    dpsbi.TruncatedGeometric,
    dpsbi.BinomialResponse,
    dpsbi.RandomisedResponse,
    dpsbi.SmoothLaplace,
    dpsbi.SmoothGaussian,
    SparseVector,
    NoisySmallest,
]


@cases("kind, word", [kind.__name__ for kind in NOISES], ["epsilon", "rho", "sigma"])
def test_a_budget_is_no_setting_of_noise(kind, word):
    kind = next(each for each in NOISES if each.__name__ == kind)
    with pytest.raises(TypeError, match=f"{kind.__name__} takes .* and no '{word}'") as caught:
        kind(**{word: 0.4})
    assert word != "epsilon" or f"{kind.__name__}.calibrate(" in str(caught.value)


def test_a_network_says_which_value_is_missing():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pair = Query(identity, 1.0, dim=2)
        twice = Model(GAMMA_ONE, lambda theta, rng: rng.poisson(np.repeat(theta, 2, 1)))
        brief = Training(steps=3, final_steps=3, members=1, flow=Shape(layers=1, hidden=4))
        network = dpsbi.amortise(
            pair, Laplace(1.0), twice, rng=rng_of(), simulations=100, training=brief, progress=False
        )
        whole = network.posterior(Release([3.0, 4.0], pair, Laplace(1.0)), rng=rng_of(), draws=20)
        for lacking, where in (([np.nan, 4.0], "1"), ([3.0, np.nan], "2")):
            release = Release(lacking, pair, Laplace(1.0))
            for given in (release, release.s_dp):
                with pytest.raises(ValueError, match=f"no value at {where} of 2.*sppe and infer"):
                    network.posterior(given, rng=rng_of())
    again = Posterior(whole.theta, names=whole.names, info=whole.info)  # as from a file
    with pytest.raises(ValueError, match="not saved with it.*estimator.save"):
        again.log_prob(whole.theta)
    with pytest.raises(ValueError, match="not saved with it.*estimator.save"):
        whole.derive(a=lambda theta: theta[:, 0]).log_prob(whole.theta)
    with pytest.raises(ValueError, match="the method that made it has no density"):
        Posterior(whole.theta).log_prob(whole.theta)


@pytest.mark.parametrize("fails", ["name", "attribute", "column"])
def test_a_simulator_that_takes_theta_for_a_table_hears_what_it_is_given(fails):
    simulate = {
        "name": lambda theta, rng: theta["mean"],
        "attribute": lambda theta, rng: theta.rate,
        "column": lambda theta, rng: theta[:, 1],
    }[fails]
    with pytest.raises((IndexError, AttributeError)) as caught:
        dpsbi.importance(PUBLISHED, Model(GAMMA_ONE, simulate), rng=rng_of(), rounds=1)
    assert "with the columns mean by number" in caught.value.__notes__[0]


AT_THE_BORDER = {
    "beta": (stats.beta(0.2, 0.2), [0.0, 1.0]),
    "uniform": (stats.uniform(2, 3), [2.0, 5.0]),
    "wide": (stats.uniform(-1e9, 2e9), [-1e9, 1e9]),
    "arcsine": (stats.arcsine(), [0.0, 1.0]),
    "truncated": (stats.truncnorm(-1, 2), [-1.0, 2.0]),
    "gamma": (stats.gamma(0.01), [0.0]),
    "half-Cauchy": (stats.halfcauchy(), [0.0]),
    "lognormal": (stats.lognorm(3), [0.0]),
    "inverse gamma": (stats.invgamma(0.5), [0.0]),
    "pareto": (stats.pareto(0.8), [1.0]),
    "below": (stats.weibull_max(0.1), [0.0]),
}


@pytest.mark.parametrize("name", AT_THE_BORDER)
def test_a_draw_that_rounds_to_the_border_keeps_finite_coordinates(name):
    marginal, border = AT_THE_BORDER[name]
    prior, theta = Prior(a=marginal), np.array(border)[:, None]
    z = prior.to_unconstrained(theta)
    assert np.isfinite(z).all()
    np.testing.assert_allclose(prior.from_unconstrained(z), theta, rtol=1e-12, atol=1e-300)


def test_a_prior_with_poles_ends_no_run():
    "Six draws in 20,000 round to 1; their coordinate was infinite, and the next fit NaN."
    ends = Model(
        Prior(p=stats.beta(0.2, 0.2)), lambda theta, rng: rng.binomial(20, theta).astype(float)
    )
    release = Release([19.0], ONE, dpsbi.DiscreteLaplace(0.7))
    found = dpsbi.importance(release, ends, rng=rng_of(0), rounds=4, simulations=5000)
    n = np.arange(21)
    prior = stats.betabinom(20, 0.2, 0.2).pmf(n)
    exact = np.log(prior @ np.exp(dpsbi.DiscreteLaplace(0.7).log_prob([19.0], n[:, None])))
    assert abs(found.log_evidence - exact) < 5.5 * found.log_evidence_error
