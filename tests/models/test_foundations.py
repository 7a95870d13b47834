"""Property tests of the foundations: shapes, bad input, exact arithmetic of budgets, calibration,
round trips.
"""

import dataclasses
import json
import math
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

import dpsbi
from dpsbi.accounting.losses import gaussian_delta
from dpsbi.checks.testing import agrees
from dpsbi.mechanisms.base import kinds
from dpsbi.mechanisms.discrete import nearest_step
from dpsbi.models.simulate import simulated
from dpsbi.privacy import identity
from dpsbi.runs.running import Checkpoint, batch_sizes, seed_state

positive = st.floats(1e-6, 1e6)
MECHANISMS = [
    dpsbi.Laplace(2.0),
    dpsbi.Gaussian(0.5),
    dpsbi.DiscreteLaplace(3.0),
    dpsbi.DiscreteLaplace(0.7, 0.25),
    dpsbi.BinomialResponse(20, 5, 40),
    dpsbi.RandomisedResponse(0.7, 5),
    dpsbi.SmoothLaplace(2.0, 0.1),
    dpsbi.SmoothGaussian(3.0, 0.1),
]


def values(mechanism, shape, rng):
    """Confidential values that the mechanism can release: whole numbers in its range; for smooth
    ones a sensitivity comes last.
    """
    s = rng.integers(0, 5, shape).astype(float)
    return (
        np.concatenate([s, rng.uniform(0.1, 1, (*shape[:-1], 1))], -1)
        if isinstance(mechanism, (dpsbi.SmoothLaplace, dpsbi.SmoothGaussian))
        else s
    )


# ---- ledgers and costs


@given(st.lists(st.integers(1, 400), min_size=1, max_size=30))
def test_a_ledger_spends_to_the_last_thousandth_and_no_further(thousandths):
    ledger = dpsbi.Ledger(sum(thousandths) / 1000)
    for k in thousandths:
        ledger.spend(dpsbi.Cost(k / 1000), "part")
    assert ledger.remaining == dpsbi.Cost(0.0)
    with pytest.raises(dpsbi.BudgetError):
        ledger.spend(dpsbi.Cost(5e-324), "more")
    assert len(ledger.history) == len(thousandths)


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, -math.inf])
def test_budgets_and_scales_must_be_positive_and_finite(bad):
    for make in (
        dpsbi.Ledger,
        dpsbi.Laplace,
        dpsbi.Gaussian,
        dpsbi.DiscreteLaplace,
        dpsbi.SmoothLaplace,
        lambda v: dpsbi.Query(identity, v),
        lambda v: dpsbi.BinomialResponse(10, v, 100),
        lambda v: dpsbi.DiscreteLaplace(1.0, v),
    ):
        with pytest.raises(ValueError):
            make(bad)


def test_a_refused_release_reads_no_record():
    class Tripwire:
        def __array__(self, *args, **kwargs):
            raise AssertionError("a record was read")

    query = dpsbi.Query(lambda x: x.sum(1, keepdims=True), 1)
    for mechanism in (
        dpsbi.Laplace(0.5),
        dpsbi.Gaussian(1.0),
        dpsbi.DiscreteLaplace(0.5),
        dpsbi.BinomialResponse(10, 1, 100),
    ):
        with pytest.raises(ValueError):
            dpsbi.release(Tripwire(), query, mechanism, dpsbi.Ledger(1.0))
    with pytest.raises(AssertionError, match="a record was read"):  # the tripwire works
        dpsbi.release(Tripwire(), query, dpsbi.Laplace(2.0), dpsbi.Ledger(1.0))


# ---- mechanisms


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
@settings(max_examples=15)
@given(batch=hnp.array_shapes(max_dims=2, max_side=4), r=st.integers(1, 3), seed=st.integers(0, 99))
def test_shapes(mechanism, batch, r, seed):
    rng = np.random.default_rng(seed)
    s = values(mechanism, (*batch, r), rng)
    s_dp = mechanism.sample(s, rng)
    assert s_dp.shape == (*batch, r)
    assert mechanism.transform(rng.uniform(0.01, 0.99, (*batch, r)), s).shape == (*batch, r)
    log_p = mechanism.log_prob(s_dp, s)
    assert log_p.shape == batch and np.isfinite(log_p).all()
    one = s_dp.reshape(-1, r)[0]
    assert mechanism.log_prob(one, s).shape == batch
    assert (mechanism.log_prob(one, s) <= mechanism.log_prob_max(one) + 1e-9).all()


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_the_same_seed_gives_the_same_noise(mechanism):
    s = values(mechanism, (50, 2), np.random.default_rng(0))
    draws = [mechanism.sample(s, np.random.default_rng(1)) for _ in range(2)]
    assert np.array_equal(*draws) and not np.array_equal(
        draws[0], mechanism.sample(s, np.random.default_rng(2))
    )


@given(positive, st.floats(1e-3, 50))
def test_pure_calibration_is_valid_and_tight(sensitivity, epsilon):
    query = dpsbi.Query(identity, sensitivity, step=sensitivity)
    for fitted in (
        dpsbi.Laplace.calibrate(query, epsilon),
        dpsbi.DiscreteLaplace.calibrate(query, epsilon, step=sensitivity),
    ):
        assert 0.999999 * epsilon < fitted.cost(query).epsilon <= epsilon
    assert dpsbi.Ledger(epsilon).spend(fitted.cost(query), "all of it") is not None


@pytest.mark.thorough
@given(positive, st.floats(1e-3, 50), st.floats(1e-12, 0.5))
def test_gaussian_calibration_is_valid_and_tight(sensitivity, epsilon, delta):
    query = dpsbi.Query(identity, sensitivity, norm="l2")
    sigma = dpsbi.Gaussian.calibrate(query, epsilon, delta).scale
    assert dpsbi.Gaussian(sigma).cost(query, delta).epsilon <= epsilon
    assert gaussian_delta(epsilon, sensitivity / (0.999 * sigma)) > delta


@given(st.floats(-1e3, 1e3), st.floats(0.01, 10), st.floats(0.05, 5))
def test_rounding_moves_one_value_by_no_more_than_it_is_charged(s, move, step):
    mechanism, query = dpsbi.DiscreteLaplace(1.0, step), dpsbi.Query(identity, move, dim=1)
    moved = abs(nearest_step(s + move, step) - nearest_step(s, step)) * step
    assume(abs(s + move - s - move) < 1e-9)
    assert moved <= mechanism.cost(query).epsilon * (1 + 1e-12)


def test_undeclared_real_values_need_their_number_and_counts_are_cheaper():
    real, counts = dpsbi.Query(identity, 3.0, dim=2), dpsbi.Query(identity, 3.0, step=1)
    with pytest.raises(ValueError, match="else its dim"):
        dpsbi.DiscreteLaplace.calibrate(dpsbi.Query(identity, 3.0), 1.0)
    assert dpsbi.DiscreteLaplace.calibrate(real, 1.0).scale == pytest.approx(3 + 2)
    assert dpsbi.DiscreteLaplace.calibrate(counts, 1.0).scale == pytest.approx(3)


def test_large_counts_do_not_saturate():
    query = dpsbi.Query(identity, 1, step=1)  # 40 scales: a false alarm once in 10^17 runs
    for value in (3 * 10**9, -(2**52)):
        released = dpsbi.release(
            [value], query, dpsbi.DiscreteLaplace(5.0), dpsbi.Ledger(1.0)
        ).s_dp[0]
        assert abs(released - value) < 200


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_a_release_survives_its_file(mechanism, tmp_path):
    query = dpsbi.Query(
        identity, 2.5, norm="l2", neighbours="add-remove", unit="day", step=0.5, dim=2
    )
    before = dpsbi.Release([1.0, 1 / 3], query, mechanism)
    before.save(tmp_path / "r.json")
    after = dpsbi.Release.load(tmp_path / "r.json")
    assert (
        np.array_equal(before.s_dp, after.s_dp)
        and after.query == query
        and after.mechanism == mechanism
    )


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=8),
        lambda children: (
            st.lists(children, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "format",
                        "version",
                        "s_dp",
                        "query",
                        "mechanism",
                        "name",
                        "scale",
                        "sensitivity",
                    ]
                ),
                children,
                max_size=5,
            )
        ),
        max_leaves=12,
    )
)
def test_a_foreign_file_is_refused_as_such(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("hostile") / "r.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="not a release"):
        dpsbi.Release.load(path)


def test_every_mechanism_is_public_and_brings_examples():
    assert len(kinds()) >= 7
    for name, kind in kinds().items():
        assert getattr(dpsbi, name) is kind is getattr(dpsbi.mechanisms, name)
        assert kind.examples(), f"{name} brings no example for the battery"


NEWCOMER = """
from dataclasses import dataclass

from dpsbi.mechanisms.base import Mechanism


@dataclass(frozen=True)
class Newcomer(Mechanism):
    "Stands in a module, and in no list."

    scale: float
"""
ASKED = """
import dpsbi
from dpsbi import Laplace, Query, Release
from dpsbi.mechanisms import Newcomer

assert dpsbi.Newcomer is Newcomer is dpsbi.mechanisms.kinds()["Newcomer"]
saved = Release([1.0], Query(lambda x: x, 1), Newcomer(2.0))
saved.save("it.json")
assert Release.load("it.json").mechanism == Newcomer(2.0)
print(Newcomer(2.0), list(dpsbi.mechanisms.kinds())[-1])
"""


@pytest.mark.thorough
def test_a_mechanism_is_known_by_standing_there(tmp_path):
    shutil.copytree(Path(dpsbi.__file__).parent, tmp_path / "dpsbi")
    (tmp_path / "dpsbi" / "mechanisms" / "zz_newcomer.py").write_text(NEWCOMER)
    asked = [sys.executable, "-c", ASKED]
    here = os.environ | {"PYTHONPATH": str(tmp_path)}
    told = subprocess.run(asked, cwd=tmp_path, env=here, capture_output=True, text=True)
    assert told.stdout.split() == ["Newcomer(scale=2.0)", "Newcomer"], told.stderr


class Bare:
    "A mechanism whose class does not say what it is."

    def __init__(self, scale):
        self.scale = scale

    def log_prob(self, s_dp, s):
        return stats.norm(s, self.scale).logpdf(s_dp).sum(-1)


def test_a_checkpoint_tells_mechanisms_apart_by_what_they_do(tmp_path):
    path = tmp_path / "run.npz"
    Checkpoint(path, dict(mechanism=Bare(2.0))).save(x=np.ones(1))
    assert Checkpoint(path, dict(mechanism=Bare(2.0))).load()["x"] == 1  # another object, the same
    with pytest.raises(ValueError, match="belongs to another run"):
        Checkpoint(path, dict(mechanism=Bare(2.5))).load()


@dataclasses.dataclass(frozen=True)
class Laplace(dpsbi.Mechanism):
    "Of the library's name, and with a heavier tail."

    scale: float

    def log_prob(self, s_dp, s):
        return stats.t(3, s, self.scale).logpdf(s_dp).sum(-1)

    def sample(self, s, rng):
        return s + self.scale * rng.standard_t(3, np.shape(s))


@pytest.mark.parametrize(
    "around",
    [lambda m: m, lambda m: dpsbi.Independent((m, m)), lambda m: dpsbi.Independent((GAUSSIAN, m))],
)
def test_nor_does_it_take_a_name_for_a_mechanism(around, tmp_path):
    path, mine, ours = tmp_path / "run.npz", around(Laplace(2.0)), around(dpsbi.Laplace(2.0))
    assert str(mine) == str(ours)
    Checkpoint(path, dict(mechanism=ours)).save(x=np.ones(1))
    with pytest.raises(ValueError, match="belongs to another run"):
        Checkpoint(path, dict(mechanism=mine)).load()
    assert Checkpoint(path, dict(mechanism=ours)).load()["x"] == 1


GAUSSIAN = dpsbi.Gaussian(1.0)


def test_a_checkpoint_is_of_one_run_that_can_go_on(tmp_path):
    path, rng = tmp_path / "run.npz", np.random.default_rng(1)
    about = lambda rng, k=1: Checkpoint(path, dict(seed=seed_state(rng), k=k))
    about(rng).save(x=np.ones(1))
    with pytest.raises(ValueError, match="belongs to another run.*differs in k"):
        about(rng, 2).save(x=np.zeros(1))
    rng.spawn(1)
    with pytest.raises(ValueError, match="make rng anew, as it was when the run began"):
        about(rng).load()
    with pytest.raises(ValueError, match="differs in seed; give this run a checkpoint path"):
        about(np.random.default_rng(2)).load()
    with pytest.raises(ValueError, match="differs in k, seed; give this run"):
        about(rng, 2).load()
    assert about(np.random.default_rng(1)).load()["x"] == 1
    for wrong in (tmp_path, "/proc/run.npz", tmp_path / "none" / "run.npz"):
        with pytest.raises(OSError, match="checkpoint"):
            Checkpoint(wrong, {}).load()


# ---- priors and batches


@given(st.integers(1, 100_000))
def test_batches_cover_all_and_stay_small(n):
    sizes = batch_sizes(n)
    assert (
        sum(sizes) == n
        and min(sizes) > 0
        and max(sizes) <= 4096
        and (n <= 65536 or len(sizes) == math.ceil(n / 4096))
    )


MARGINALS = [
    stats.norm(2, 3),
    stats.gamma(2),
    stats.uniform(-3, 5),
    stats.beta(0.5, 0.7),
    stats.lognorm(1.5),
    stats.expon(-4),
    stats.t(2),
    stats.dirichlet([0.5, 1.0, 4.0]),
    stats.multivariate_normal([1, 2], [[2, 1], [1, 3]]),
]


@settings(max_examples=60)
@given(st.lists(st.sampled_from(range(len(MARGINALS))), min_size=1, max_size=4), st.integers(0, 50))
def test_prior_transforms_invert_and_stay_inside(which, seed):
    prior = dpsbi.Prior(**{f"p{j}": MARGINALS[k] for j, k in enumerate(which)})
    rng = np.random.default_rng(seed)
    theta = prior.sample(20, rng)
    assert (
        theta.shape == (20, prior.dim) == (20, len(prior.names))
        and np.isfinite(prior.log_prob(theta)).all()
    )
    z = rng.normal(0, 30, (50, prior.free))
    back = prior.from_unconstrained(z)
    assert (
        np.isfinite(back).all()
        and not np.isnan(prior.log_prob(back)).any()
        and np.isfinite(prior.log_abs_det(z)).all()
    )
    z = rng.normal(0, 1, (50, prior.free))
    assert np.allclose(prior.to_unconstrained(prior.from_unconstrained(z)), z, atol=1e-6)


def test_priors_refuse_what_they_cannot_do():
    for bad in (3.0, stats.gamma, stats.binom(5, 0.5), "gamma"):
        with pytest.raises(TypeError):
            dpsbi.Prior(a=bad)
    for shape in ((3,), (3, 2), (2, 2, 1)):
        with pytest.raises(ValueError):
            dpsbi.Prior(a=stats.gamma(2)).log_prob(np.ones(shape))


# ---- what a user brings: priors of their own, SciPy's new distributions, a machine without torch


class TwoLevels:
    names, dim = ("mu", "tau"), 2

    def sample(self, n, rng):
        tau = rng.gamma(3, size=n)
        return np.column_stack([rng.normal(0, tau), tau])

    def log_prob(self, theta):
        mu, tau = theta.T
        return stats.norm.logpdf(mu, 0, tau) + stats.gamma(3).logpdf(tau)


@cache
def levels_by_quadrature(y, sd):
    "Posterior means of (mu, tau) for a value y ~ N(mu, sd²)."
    mu, tau = np.linspace(-40, 40, 4001)[:, None], np.linspace(0.01, 25, 1000)
    p = stats.norm.pdf(mu, 0, tau) * stats.gamma(3).pdf(tau) * stats.norm.pdf(y, mu, sd)
    return np.array([(p * mu).sum(), (p * tau).sum()]) / p.sum()


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["importance", "infer", "smc_abc", "pseudo_marginal"])
def test_a_hierarchical_prior_of_ones_own_goes_through_every_engine(method):
    model = dpsbi.Model(TwoLevels(), lambda theta, rng: rng.normal(theta[:, :1], 1.0))
    release = dpsbi.Release([2.0], dpsbi.Query(identity, 1, norm="l2"), dpsbi.Gaussian(1.0))
    wanted = {"smc_abc": dict(draws=4000), "pseudo_marginal": dict(draws=4000)}.get(method, {})
    run = getattr(dpsbi, method)
    found = run(release, model, rng=np.random.default_rng(1), progress=False, **wanted)
    agrees(found.mean(), levels_by_quadrature(2.0, 2**0.5), found.mcse())  # 1 in 10⁶


@cache
def level_and_scale():
    "Posterior means where a value of this level and scale is released, by quadrature."
    mu, tau = np.linspace(-60, 60, 4001)[:, None], np.linspace(0.01, 30, 1000)
    p = stats.norm.pdf(mu, 0, tau) * stats.gamma(3).pdf(tau)
    p = p * stats.norm.pdf(2.0, mu, np.sqrt(1 + tau**2))
    return np.array([(p * mu).sum(), (p * tau).sum()]) / p.sum()


@pytest.mark.parametrize("method", ["importance", "infer", "smc_abc", "exact_abc"])
def test_a_simulator_is_not_called_where_a_prior_of_ones_own_is_zero(method):
    "It would raise there: a normal law has no negative scale."

    def simulate(theta, rng):
        return rng.normal(theta[:, :1], theta[:, 1:])

    model = dpsbi.Model(TwoLevels(), simulate)
    release = dpsbi.Release([2.0], dpsbi.Query(identity, 1, norm="l2"), dpsbi.Gaussian(1.0))
    wanted = dict(draws=4000) if "abc" in method else {}
    found = getattr(dpsbi, method)(
        release, model, rng=np.random.default_rng(1), progress=False, **wanted
    )
    agrees(found.mean(), level_and_scale(), found.mcse())


def test_where_nothing_is_possible_nothing_is_simulated():
    model = dpsbi.Model(TwoLevels(), lambda theta, rng: rng.normal(theta[:, :1], theta[:, 1:]))
    theta = np.array([[0.0, -1.0], [0.0, 1.0], [0.0, -2.0]])
    for some in ([0], [0, 1, 2]):
        x = simulated(model, theta[some], np.random.default_rng(1))
        assert np.array_equal(np.isnan(x[:, 0]), theta[some, 1] < 0)


class HalfMapped(TwoLevels):
    "Maps to unconstrained space, and does not say how many columns that has."

    def to_unconstrained(self, theta):
        return theta


def test_a_prior_that_maps_must_map_both_ways():
    with pytest.raises(TypeError, match="HalfMapped lacks free, from_unconstrained, log_abs_det"):
        dpsbi.Model(HalfMapped(), lambda theta, rng: theta)


def test_the_new_distributions_of_scipy_are_the_frozen_ones():
    theta = np.random.default_rng(2).uniform(0.01, 2.9, (50, 2))
    new = dpsbi.Prior(a=stats.Normal(mu=1.0, sigma=2.0), b=stats.Uniform(a=0.0, b=3.0))
    old = dpsbi.Prior(a=stats.norm(1, 2), b=stats.uniform(0, 3))
    assert np.allclose(new.log_prob(theta), old.log_prob(theta))
    assert np.allclose(new.to_unconstrained(theta), old.to_unconstrained(theta))
    other = dpsbi.Prior(a=stats.Normal(mu=1.0, sigma=2.5), b=stats.Uniform(a=0.0, b=3.0))
    assert new._fingerprint_parts() != other._fingerprint_parts()
    with pytest.raises(TypeError, match="must be a frozen continuous"):
        dpsbi.Prior(k=stats.Binomial(n=5, p=0.5))


WITHOUT_TORCH = """
import sys
import importlib.util
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "nflows"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
known = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "torch" else known(name, *rest)
import numpy as np
import dpsbi
from dpsbi.simulators import counts as counts
release = dpsbi.Release([37.4], counts.counting_query(), dpsbi.Laplace(5.0))
model = counts.gamma_poisson(25, 1)
found = dpsbi.infer(release, model, rng=np.random.default_rng(1), progress=False)
assert found.exact
for name in ("Budgets", "sppe", "sple", "amortise", "rnpe"):
    try:
        getattr(dpsbi, name)
    except ModuleNotFoundError as error:
        assert "dpsbi[neural]" in str(error), error
    else:
        raise AssertionError(name)
"""


@pytest.mark.thorough
def test_only_neural_methods_need_torch():
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_demonstration_counts_its_epidemics():
    from dpsbi import demo as demo
    from dpsbi import pseudo_marginal

    bar = SimpleNamespace(n=0, total=10**9)
    bar.update = lambda k: setattr(bar, "n", bar.n + k)
    release, model = demo.published(0.5), demo.day_by_day()
    plain, counted = (
        pseudo_marginal(
            release, each, draws=10, particles=10, rng=np.random.default_rng(1), progress=False
        )
        for each in (model, demo.watched(model, bar))
    )
    assert np.array_equal(plain.theta, counted.theta)
    assert bar.n == counted.info["simulations"]
    bar.total = bar.n + 7
    demo.watched(model, bar).start(np.ones((5, 2)), 3, np.random.default_rng(2))
    assert bar.n == bar.total  # never more than all of it


@pytest.mark.thorough
@pytest.mark.parametrize("exact", [True, False])
def test_the_demonstration_shows_both_releases(exact, monkeypatch, capsys, tmp_path):
    from dpsbi import demo as demo

    def solve(epsilon):
        release = demo.published(epsilon)
        naive = demo.naive_fit(release.s_dp, demo.school()[0].prior, grid=40)
        values = np.tile(release.s_dp, (len(naive), 1))
        info = dict(exact=exact, engine="a stand-in", simulations=7)
        return release, dataclasses.replace(naive, values=values, info=info), naive

    monkeypatch.setattr(demo, "solve", solve)
    monkeypatch.chdir(tmp_path)
    demo.main()
    said = capsys.readouterr().out
    for epsilon in demo.KEPT:
        assert f"ε = {epsilon} for each boy: {int(demo.published(epsilon).s_dp[0])} " in said
    assert said.count("Exact, by a stand-in") == 2 * exact
    assert said.count("NOT confirmed as exact") == 2 * (not exact)
    assert (tmp_path / "demo.png").stat().st_size > 10_000
