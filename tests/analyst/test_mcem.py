"""Monte Carlo EM: properties over many releases, closed forms, the latent protocol's defaults, and
bad input.
"""

import importlib
import warnings
from dataclasses import FrozenInstanceError, dataclass
from unittest.mock import MagicMock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from dpsbi.analyst.em import latent as latent
from dpsbi.analyst.em.latent import EStep, mean_and_error
from dpsbi.analyst.em.mcem import CONVERGED, NORMAL_QUARTILE, Ascent, Stages, Step, mcem, settled
from dpsbi.mechanisms import BinomialResponse, DiscreteLaplace, Gaussian, Laplace, Release
from dpsbi.privacy import Query, identity
from dpsbi.simulators.counts import Likelihood, Poisson, counting_query

T15 = stats.t.isf(
    0.5e-6, 15
)  # sixteen nets: the error has 15 degrees of freedom; one false alarm in a million


def count(value, mechanism):
    return Release(np.array([float(value)]), counting_query(), mechanism)


@dataclass(frozen=True)
class Normal:
    """r means of normal records with standard error `se`; only the required methods, theta in units
    of `unit`.
    """

    se: float = 1.0
    r: int = 1
    unit: float = 1.0

    def sample(self, theta, n, rng):
        return rng.normal(theta / self.unit, self.se, (n, self.r))

    def log_prob(self, s, theta):
        return -0.5 * ((s - theta / self.unit) ** 2).sum(axis=1) / self.se**2


@dataclass(frozen=True)
class Spread:
    """Sample mean and variance of m normal records; theta = (mean, log sd); two uniforms make one
    value.
    """

    m: int = 40
    dim = 2

    def sample(self, theta, n, rng):
        return self.transform(rng.random((n, 2)), theta)

    def transform(self, u, theta):
        variance = np.exp(2 * theta[1])
        return np.stack(
            [
                theta[0] + np.sqrt(variance / self.m) * special.ndtri(u[:, 0]),
                variance * 2 * special.gammaincinv((self.m - 1) / 2, u[:, 1]) / (self.m - 1),
            ],
            axis=1,
        )

    def log_prob(self, s, theta):
        variance = np.exp(2 * theta[1])
        return (
            -theta[1]
            - self.m * (s[:, 0] - theta[0]) ** 2 / 2 / variance
            - (self.m - 1) * (theta[1] + s[:, 1] / 2 / variance)
        )


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    epsilon=st.floats(0.1, 2.0),
    value=st.floats(2.0, 200.0),
    discrete=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_finds_the_exact_maximum_of_any_count(epsilon, value, discrete, seed):
    release = (
        count(round(value), DiscreteLaplace(1 / epsilon))
        if discrete
        else count(value, Laplace(1 / epsilon))
    )
    exact = Likelihood(release)
    fit = mcem(
        release,
        Poisson(),
        value,
        rng=np.random.default_rng(seed),
        final_simulations=2**13,
        progress=False,
    )
    assert fit.converged and fit.interior
    assert abs(fit.theta[0] - exact.maximum()) < T15 * fit.monte_carlo_errors[0]
    assert (
        abs(fit.information[0, 0] - exact.information(fit.theta[0]))
        < T15 * fit.information_error[0, 0]
    )
    assert abs(fit.log_likelihood - exact.log(fit.theta[0])) < T15 * fit.log_likelihood_error


def test_gaussian_noise_on_a_normal_mean_has_a_closed_form():
    "s ~ N(θ, 1), noise N(0, 2²): the release is the maximum, with information 1/5."
    fit = mcem(
        Release(np.array([3.0]), Query(identity, 1, norm="l2"), Gaussian(2.0)),
        Normal(),
        0.0,
        rng=np.random.default_rng(1),
        progress=False,
    )
    limit = stats.norm.isf(0.5e-6)
    assert abs(fit.theta[0] - 3) < limit * fit.monte_carlo_errors[0]
    assert abs(fit.information[0, 0] - 0.2) < limit * fit.information_error[0, 0]
    assert (
        abs(fit.log_likelihood - stats.norm.logpdf(0, 0, np.sqrt(5)))
        < limit * fit.log_likelihood_error + fit.monte_carlo_errors[0] ** 2
    )


@pytest.mark.thorough
def test_two_parameters_by_quadrature():
    """Gaussian noise on the mean and variance of normal records: the mean's part is closed, the
    variance's an integral.
    """
    release = Release(np.array([1.5, 4.2]), Query(identity, 1, norm="l2", dim=2), Gaussian(0.5))
    fit = mcem(
        release,
        Spread(),
        [0.0, 0.0],
        rng=np.random.default_rng(2),
        final_simulations=2**14,
        progress=False,
    )
    u = (np.arange(20_000) + 0.5) / 20_000

    def log_likelihood(theta):
        variance = np.exp(2 * theta[1])
        v = variance * 2 * special.gammaincinv(19.5, u) / 39
        return stats.norm.logpdf(1.5, theta[0], np.sqrt(variance / 40 + 0.25)) + np.log(
            stats.norm.pdf(4.2, v, 0.5).mean()
        )

    h = 1e-3 * np.eye(2)
    at = lambda *steps: log_likelihood(fit.theta + sum(steps))
    score = np.array([(at(k) - at(-k)) / 2e-3 for k in h])
    information = -np.array(
        [[(at(i, j) - at(i, -j) - at(-i, j) + at(-i, -j)) / 4e-6 for j in h] for i in h]
    )
    assert np.all(
        np.abs(score) < T15 * np.sqrt(np.diag(fit.score_covariance)) + 1e-5
    )  # h² in the differences
    assert np.all(np.abs(information - fit.information) < T15 * fit.information_error + 1e-4)


def test_units_of_theta_do_not_matter():
    release = Release(np.array([3.0]), Query(identity, 1, norm="l2"), Gaussian(1.0))
    fits = [
        mcem(
            release,
            Normal(unit=unit),
            0.5 * unit,
            rng=np.random.default_rng(3),
            final_simulations=5000,
            progress=False,
        )
        for unit in (1.0, 2.0**40, 2.0**-40)
    ]
    for fit, unit in zip(fits[1:], (2.0**40, 2.0**-40)):
        assert fit.theta[0] == pytest.approx(
            fits[0].theta[0] * unit, rel=1e-6
        )  # differences and optimiser
        assert fit.information[0, 0] * unit**2 == pytest.approx(fits[0].information[0, 0], rel=1e-5)


@pytest.mark.parametrize("rqmc", [False, True])
def test_one_seed_one_result(rqmc):
    run = lambda seed: mcem(
        count(37.4, Laplace(5.0)),
        Poisson(),
        30.0,
        rng=np.random.default_rng(seed),
        rqmc=rqmc,
        final_simulations=2000,
        progress=False,
    ).theta[0]
    assert run(1) == run(1) != run(2)


def test_blocks_do_not_change_the_result(monkeypatch):
    run = lambda: mcem(
        count(37.4, Laplace(5.0)),
        Poisson(),
        30.0,
        rng=np.random.default_rng(4),
        rqmc=False,
        final_simulations=5000,
        progress=False,
    )
    whole = run()
    monkeypatch.setattr(latent, "BLOCK", 700)
    assert run().theta == pytest.approx(whole.theta, rel=1e-13)


def test_error_of_a_mean_reduces_to_the_textbook():
    rng = np.random.default_rng(5)
    f = rng.normal(size=(1000, 2))
    mean, cov = mean_and_error(np.full(1000, 1e-3), f, 1000)
    assert np.allclose(mean, f.mean(axis=0)) and np.allclose(cov, np.cov(f.T) / 1000)
    _, by_group = mean_and_error(np.full(1000, 1e-3), f, 10)
    assert np.allclose(by_group, np.cov(f.reshape(10, 100, 2).mean(axis=1).T) / 10)


def test_values_without_weight_are_left_out():
    "A mechanism of bounded support and a model that says -inf at other theta must not make NaN."
    fit = mcem(
        count(9, BinomialResponse(n=30, m=5.0, population=60)),
        Poisson(),
        40.0,
        rng=np.random.default_rng(6),
        progress=False,
    )
    exact = Likelihood(count(9, BinomialResponse(n=30, m=5.0, population=60)))
    assert abs(fit.theta[0] - exact.maximum()) < T15 * fit.monte_carlo_errors[0]


def test_an_m_step_into_the_impossible_is_refused():
    zero = type("Zero", (Poisson,), {"maximise": lambda self, s, weights: np.zeros(1)})()
    with pytest.raises(ValueError, match="M-step"):
        mcem(count(37.4, Laplace(5.0)), zero, 30.0, rng=np.random.default_rng(13), progress=False)


@pytest.mark.parametrize("theta", [0.0, 1e-9, 1.0])
def test_differences_stay_inside_the_bounds(theta):
    class Rate:
        bounds = ((0, 1),)

        def log_prob(self, s, theta):
            return s[:, 0] * np.where(0 <= theta[0] <= 1, theta[0], np.nan) - 2 * theta[0] ** 2

    s = np.random.default_rng(14).normal(size=(100, 1))
    derivatives = latent.derivatives_at(Rate(), s, np.array([theta]), np.array([[0.0, 1.0]]))
    assert np.allclose(
        derivatives.score(s, np.array([theta]))[:, 0], s[:, 0] - 4 * theta, atol=1e-3
    )  # the stencil moved inwards
    assert np.allclose(derivatives.hessian(s, np.array([theta])), -4, atol=1e-4)


def test_ascent_asks_for_enough_draws():
    """Each step starts with the draws that would show the last increase; the first too small an
    increase ends it.
    """
    step = EStep(count(37.4, Laplace(5.0)), Poisson(), np.random.default_rng(15), False)
    steps = []
    ascent, bounds = Ascent(1e-4, 100, 2**16), np.array([[0, np.inf]])
    for one, end, _ in ascent.iterate(step, np.array([30.0]), bounds, ascent.begin):
        steps.append(one)
        if end is not None:
            break
    assert end == CONVERGED and len(steps) > 2
    for before, after in zip(steps, steps[1:]):
        needed = (
            before.simulations
            * (2 * NORMAL_QUARTILE * before.increase_error / before.increase) ** 2
        )
        assert after.simulations >= min(int(needed), 2**16)
    assert steps[-1].increase + NORMAL_QUARTILE * steps[-1].increase_error < 1e-4
    assert all(s.increase > NORMAL_QUARTILE * s.increase_error for s in steps[:-1])


def test_few_effective_draws_prove_nothing():
    assert not settled(Step(np.zeros(1), 1000, 3.0, 0.0, 0.0), 1e-4)
    assert settled(Step(np.zeros(1), 1000, 300.0, 0.0, 0.0), 1e-4)
    assert not settled(Step(np.zeros(1), 1000, 300.0, 0.0, 1.0), 1e-4)  # it may yet be 0.67
    release = Release(np.full(6, 3.0), Query(identity, 1, dim=6), Laplace(0.01))
    with pytest.warns(RuntimeWarning, match="effective size"):
        fit = mcem(
            release,
            Normal(se=3.0, r=6),
            3.0,
            rng=np.random.default_rng(16),
            max_iterations=3,
            final_simulations=1000,
            progress=False,
        )
    assert not fit.converged and fit.ess < 100
    with pytest.warns(RuntimeWarning, match="effective size"):  # at the very end
        last = dict(final_simulations=50, newton=False, progress=False)
        fit = mcem(
            count(37.4, Laplace(5.0)), Poisson(), 30.0, rng=np.random.default_rng(16), **last
        )
    assert not fit.converged and CONVERGED in fit.message


def test_stages_and_their_trace():
    fit = mcem(
        count(37.4, Laplace(5.0)),
        Poisson(),
        30.0,
        rng=np.random.default_rng(7),
        schedule=Stages([(1e-2, 500), (1e-3, 5000)]),
        rqmc=False,
        progress=False,
    )
    trace = fit.trace
    assert set(trace["simulations"]) == {500, 5000} and np.all(np.diff(trace["simulations"]) >= 0)
    assert len(trace["theta"]) == len(trace["ess"]) + 1 and trace["theta"][0] == 30.0
    assert np.all((trace["ess"] > 0) & (trace["ess"] <= trace["simulations"])) and np.all(
        trace["increase"] >= 0
    )
    assert abs(trace["theta"][-1] - trace["theta"][-2]) <= 1e-3 * (1 + trace["theta"][-2])


def test_a_stage_goes_on_until_every_parameter_is_at_rest(monkeypatch):
    ends = iter([1.0, 2.0] for _ in range(3))
    step = lambda *_: Step(np.array(next(ends)), 9, 9.0, 0.0, 0.0)
    monkeypatch.setattr(importlib.import_module("dpsbi.analyst.em.mcem"), "em_step", step)
    steps = list(Stages([(1e-2, 9)]).iterate(MagicMock(), np.ones(2), None, 0))
    assert [end for _, end, _ in steps] == [None, CONVERGED]


def test_without_newton_the_distance_left_counts_as_error():
    fit = mcem(
        count(37.4, Laplace(5.0)),
        Poisson(),
        30.0,
        rng=np.random.default_rng(8),
        newton=False,
        schedule=Ascent(tolerance=1e-2),
        progress=False,
    )
    assert (
        abs(fit.theta[0] - Likelihood(count(37.4, Laplace(5.0))).maximum())
        < 2 * fit.monte_carlo_errors[0]
    )
    assert fit.theta[0] == fit.trace["theta"][-1, 0]


@pytest.mark.thorough
@pytest.mark.parametrize("value", [-3.0, 0.0, 0.5])
def test_a_maximum_on_the_bound_has_no_standard_error(value):
    with pytest.warns(RuntimeWarning, match="no interior maximum"):
        fit = mcem(
            count(value, Laplace(5.0)), Poisson(), 1.0, rng=np.random.default_rng(9), progress=False
        )
    assert not fit.interior
    for ask in ("covariance", "standard_errors", "monte_carlo_errors"):
        with pytest.raises(ValueError, match="interior"):
            getattr(fit, ask)


def test_fit_is_a_value():
    fit = mcem(
        count(37.4, Laplace(5.0)),
        Poisson(),
        30.0,
        rng=np.random.default_rng(10),
        final_simulations=2000,
        progress=False,
    )
    with pytest.raises(FrozenInstanceError):
        fit.theta = 1
    with pytest.raises(ValueError, match="level"):
        fit.interval(95)
    assert list(fit.summary(0.9).index) == ["theta"] and "90% from" in fit.summary(0.9)
    assert np.diff(fit.interval(0.99)) > np.diff(fit.interval(0.9)) > 0
    for level, z in ((0.9, 1.644854), (0.95, 1.959964)):
        assert np.allclose(np.diff(fit.interval(level)), 2 * z * fit.standard_errors, rtol=1e-6)


@pytest.mark.parametrize(
    "kind, wrong, match",
    [
        (Ascent, dict(simulations=0), "simulations"),
        (Ascent, dict(max_simulations=1.5), "max_simulations"),
        (Ascent, dict(tolerance=-1.0), "tolerance"),
        (Stages, dict(stages=[]), "stages"),
        (Stages, dict(stages=[(0.1, -5)]), "draws"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(kind, wrong, match):
    with pytest.raises(ValueError, match=match):
        kind(**wrong)


@pytest.mark.parametrize("rqmc", [True, False])
@pytest.mark.parametrize("schedule", [Ascent(), Stages([(1e-2, 500), (1e-4, 5000)])], ids=str)
def test_a_killed_run_resumes_to_the_same_result(schedule, rqmc, tmp_path):
    class Dying(Poisson):
        left = 10**9

        def maximise(self, s, weights):
            Dying.left -= 1
            if Dying.left == 0:
                raise KeyboardInterrupt
            return super().maximise(s, weights)

    def run(path=None, bits=np.random.PCG64):
        rng = np.random.Generator(bits(3))
        how = dict(schedule=schedule, rqmc=rqmc, final_simulations=2000, checkpoint=path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return mcem(count(37.4, Laplace(5.0)), Dying(), 10.0, rng=rng, progress=False, **how)

    for bits in (np.random.PCG64, np.random.MT19937)[: 1 if rqmc else 2]:
        whole = run(bits=bits)
        Dying.left, path = len(whole.trace["ess"]) - 1, tmp_path / bits.__name__
        with pytest.raises(KeyboardInterrupt):
            run(path, bits)
        Dying.left = 10**9
        resumed = run(path, bits)
        assert 10**9 - Dying.left < len(whole.trace["ess"])  # it did resume
        again = run(path, bits)  # and a finished run is read, not made again
        for found in (resumed, again):
            assert np.array_equal(found.theta, whole.theta)
            assert np.array_equal(found.information, whole.information)
            for name, column in whole.trace.items():
                assert np.array_equal(found.trace[name], column), name
    with pytest.raises(ValueError, match="another run"):
        mcem(
            count(37.4, Laplace(5.0)), Dying(), 11.0, rng=np.random.default_rng(3), checkpoint=path
        )


@pytest.mark.parametrize(
    "change, error, match",
    [
        (dict(theta0=np.nan), ValueError, "finite"),
        (dict(theta0=[]), ValueError, "bounds"),
        (dict(theta0=[[1.0]]), ValueError, "vector"),
        (dict(theta0=-1.0), ValueError, "bounds"),
        (dict(schedule="fast"), ValueError, "ascent"),
        (dict(rng=None), TypeError, "Generator"),
        (dict(release=37.4), TypeError, "Release"),
        (dict(latent=None), TypeError, "sample"),
        (dict(max_iterations=0), ValueError, "max_iterations"),
    ],
)
def test_bad_input(change, error, match):
    arguments = dict(
        release=count(37.4, Laplace(5.0)),
        latent=Poisson(),
        theta0=30.0,
        rng=np.random.default_rng(11),
        progress=False,
    )
    arguments.update(change)
    with pytest.raises(error, match=match):
        mcem(
            arguments.pop("release"), arguments.pop("latent"), arguments.pop("theta0"), **arguments
        )


@pytest.mark.parametrize(
    "method, result, match",
    [
        ("sample", np.zeros(1000), "shape"),
        ("log_prob", np.zeros((1000, 1)), "log_prob must return"),
        ("sample", np.full((1000, 1), np.nan), "NaN"),
        ("maximise", np.array([np.nan]), "maximise"),
        ("maximise", np.array([1.0, 2.0]), "maximise"),
    ],
)
def test_a_latent_model_that_misbehaves_is_named(method, result, match):
    broken = type("Broken", (Poisson,), {method: lambda self, *arguments: result})()
    with pytest.raises(ValueError, match=match), warnings.catch_warnings():
        warnings.simplefilter("error")
        mcem(
            count(37.4, Laplace(5.0)),
            broken,
            30.0,
            rng=np.random.default_rng(12),
            rqmc=False,
            progress=False,
        )


def test_the_executor_changes_nothing():
    from concurrent.futures import ThreadPoolExecutor

    release = count(37.4, Laplace(5.0))
    alone = mcem(release, Poisson(), 20.0, rng=np.random.default_rng(1), rqmc=False)
    with ThreadPoolExecutor(3) as pool:
        assert np.array_equal(
            alone.theta,
            mcem(
                release, Poisson(), 20.0, rng=np.random.default_rng(1), rqmc=False, executor=pool
            ).theta,
        )


def test_draws_made_elsewhere_are_weighted_by_the_ratio_of_densities():
    s = np.array([[0.3], [1.7], [-2.0]])
    made = latent.WeightedDraws(s, np.array([0.1, -np.inf, -0.4]), 3)
    found = latent.reweighted(Normal(), made, np.array([0.0]), np.array([0.5]))
    ratio = stats.norm(0.5).logpdf(s[:, 0]) - stats.norm(0.0).logpdf(s[:, 0])
    assert np.allclose(found.log_omega, made.log_omega + ratio)
