"""Plain functions as simulators: parameters by name, failures, workers, and what is refused."""

import itertools
import os
import pickle
import re
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from scipy import stats

import dpsbi
from dpsbi import DiscreteLaplace, Model, Prior, Query, Release, importance, infer, input_smc
from dpsbi.analyst.neural.training import Training
from dpsbi.checks.testing import agrees
from dpsbi.models.functions import Portable, RowByRow
from dpsbi.models.model import query_values, simulate
from dpsbi.models.simulate import simulate_query
from dpsbi.privacy import identity
from dpsbi.runs import running as batches
from dpsbi.runs.running import Call, batch_sizes
from dpsbi.simulators import counts as counts

PRIOR = dpsbi.Prior(rate=stats.gamma(3), p=stats.dirichlet([1.0, 2.0]))
RELEASE = dpsbi.Release([3.0, 1.0], dpsbi.Query(identity, 1, dim=2), dpsbi.Laplace(1.0))


def thinned(rate, p, rng):
    total = rng.poisson(rate)
    kept = rng.binomial(total, p[0])
    return [kept, total - kept]


def by_seed(rate, p, seed):
    return thinned(rate, p, np.random.default_rng(seed))


def sometimes(rate, p, rng):
    if rate > 3:
        raise ArithmeticError("no convergence")
    return thinned(rate, p, rng)


def in_order(rate, p, *, rng, size=2):
    return list(range(size))


def test_each_parameter_comes_by_its_name():
    def seen(rate, p, rng):
        return [rate, *p]

    theta = PRIOR.sample(9, np.random.default_rng(1))
    assert np.array_equal(RowByRow(seen, PRIOR.names)(theta, np.random.default_rng(1)), theta)
    shuffled = RowByRow(lambda *, rng, p, rate: [rate, *p], PRIOR.names)
    assert np.array_equal(shuffled(theta, np.random.default_rng(1)), theta)


@pytest.mark.parametrize("function", [thinned, by_seed])
def test_its_law_is_the_functions(function):
    model = dpsbi.Model.from_function(function, PRIOR)
    theta = np.tile([4.0, 0.25, 0.75], (20_000, 1))
    x = model.simulate(theta, np.random.default_rng(2))
    assert x.shape == (20_000, 2)  # thinned Poisson counts are independent Poisson counts
    agrees(x.mean(0), [1.0, 3.0], np.sqrt([1.0, 3.0]) / np.sqrt(len(x)), verbose=False)
    agrees(np.cov(x.T)[0, 1], 0.0, np.sqrt(3.0 / len(x)), verbose=False)


def test_a_scalar_and_a_table():
    one = dpsbi.Model.from_function(lambda rate, p, rng: rng.poisson(rate), PRIOR)
    table = dpsbi.Model.from_function(lambda rate, p, rng: rng.normal(rate, 1, (5, 2)), PRIOR)
    theta, rng = PRIOR.sample(7, np.random.default_rng(3)), np.random.default_rng(4)
    assert one.simulate(theta, rng).shape == (7,)
    single = dpsbi.Release([2.0], dpsbi.Query(identity, 1), dpsbi.Laplace(1.0))
    assert simulate(single, one, theta, rng=rng)[0].shape == (7, 1)
    assert table.simulate(theta, rng).shape == (7, 5, 2)


@pytest.mark.parametrize("number", [int, float, np.int64, np.float32, np.array, lambda x: [x]])
def test_a_number_is_a_data_set_of_one_value(number):
    for fn in (identity, lambda x: x, lambda x: x.reshape(len(x), 1)):
        query = Query(fn, sensitivity=1, step=1, dim=1)
        release = Release([30.0], query, DiscreteLaplace(5.0))
        model = Model.from_function(
            lambda rate, rng: number(rng.poisson(rate)), Prior(rate=stats.gamma(25))
        )
        few = dict(rounds=2, simulations=100, progress=False)
        found = importance(release, model, rng=np.random.default_rng(1), **few)
        assert found.values.shape == (len(found), 1)


@pytest.mark.thorough
@pytest.mark.parametrize("failures", ["raise", "nan"])
@pytest.mark.parametrize("function", [thinned, by_seed, lambda rate, p, rng: rng.random(2)])
def test_one_result_with_any_executor(function, failures):
    model = dpsbi.Model.from_function(function, PRIOR, failures=failures)
    theta = PRIOR.sample(600, np.random.default_rng(5))

    def run(executor=None):
        return simulate(RELEASE, model, theta, rng=np.random.default_rng(6), executor=executor)

    alone = run()
    assert len(np.unique(alone[1])) > 5
    for pool in (ThreadPoolExecutor(3), ProcessPoolExecutor(2)):
        with pool:
            assert all(np.array_equal(a, b) for a, b in zip(alone, run(pool)))


def test_the_engines_take_it():
    def patients(theta, rng):
        return rng.poisson(theta)

    release = dpsbi.Release([37.4], counts.counting_query(), dpsbi.Laplace(5.0))
    model = dpsbi.Model.from_function(patients, dpsbi.Prior(theta=stats.gamma(25)))
    found = dpsbi.importance(
        release, model, rng=np.random.default_rng(7), rounds=4, simulations=500, progress=False
    )
    truth = counts.exact_posterior(25, 1, release)
    agrees(found.mean()[0], truth.mean, found.mcse()[0], verbose=False)


def test_batches_are_small_however_many_there_are():
    for n in (1, 10, 256, 1000, 10_000, 10**6):
        sizes = batch_sizes(n, 16)
        assert sum(sizes) == n and max(sizes) <= 16
        assert len(sizes) >= min(n, 250)
    assert batch_sizes(10_000) == [625] * 16  # as ever
    model = dpsbi.Model.from_function(thinned, PRIOR, batch=3)
    assert model.batch == 3 and counts.gamma_poisson(25, 1).batch is None


def test_no_worker_is_given_more_than_a_batch():
    most = []

    class Watched:
        batch = 5

        def __call__(self, theta, rng):
            most.append(len(theta))
            return rng.random((len(theta), 2))

    model = dpsbi.Model(PRIOR, Watched())
    simulate(
        RELEASE, model, PRIOR.sample(5000, np.random.default_rng(8)), rng=np.random.default_rng(9)
    )
    assert max(most) == 5 and sum(most) == 5000


def test_failed_calls_are_nan_and_never_released():
    model = dpsbi.Model.from_function(sometimes, PRIOR, failures="nan")
    theta = PRIOR.sample(200, np.random.default_rng(10))
    s, log_eta = simulate(RELEASE, model, theta, rng=np.random.default_rng(11))
    failed = theta[:, 0] > 3
    assert failed.any() and not failed.all()
    assert np.array_equal(np.isnan(s).all(1), failed)
    assert np.array_equal(np.isneginf(log_eta), failed)


def test_a_query_cannot_make_a_number_of_a_failure():
    query = dpsbi.Query(lambda x: (x >= 0).sum(axis=1, keepdims=True), 1)
    model = dpsbi.Model.from_function(sometimes, PRIOR, failures="nan")
    theta = np.array([[1.0, 0.5, 0.5], [9.0, 0.5, 0.5]])
    s = query_values(model, query, theta, np.random.default_rng(1), 1)
    assert s[0] == 2 and np.isnan(s[1])
    all_failed = query_values(model, query, theta[[1, 1]], np.random.default_rng(1), 1)
    assert all_failed.shape == (2, 1) and np.isnan(all_failed).all()


def test_none_is_a_failure_only_where_failures_are_allowed():
    theta = PRIOR.sample(3, np.random.default_rng(1))
    lost = RowByRow(lambda rate, p, rng: None, PRIOR.names, failures="nan")
    assert lost(theta, np.random.default_rng(1)).shape == (3, 0)
    with pytest.raises(TypeError, match="return"):
        RowByRow(lambda rate, p, rng: None, PRIOR.names)(theta, np.random.default_rng(1))


def test_an_exception_names_the_parameters_and_its_cause():
    model = dpsbi.Model.from_function(sometimes, PRIOR)
    told = r"rate=9\.5, p=\[0\.5, 0\.5\].*no convergence.*"
    remedy = re.escape("Model.from_function(sometimes, prior, failures='nan')")
    with pytest.raises(RuntimeError, match=told + remedy) as caught:
        model.simulate(np.array([[9.5, 0.5, 0.5]]), np.random.default_rng(1))
    assert isinstance(caught.value.__cause__, ArithmeticError)


COUNT = dpsbi.Release([20.0], dpsbi.Query(identity, 1, step=1), dpsbi.DiscreteGaussian(2.0))
LEVEL = dpsbi.Prior(level=stats.norm(3, 20))


def poisson(level, rng):
    return rng.poisson(np.exp(level))  # numpy refuses means of 1e19


def cut(level, rng):
    return rng.poisson(np.exp(level)) if level < 2.9 else None


def seen_by_infer(function, **kw):
    "A posterior, and what was said of failures."
    model = dpsbi.Model.from_function(function, LEVEL, failures="nan", batch=512)
    rng = np.random.default_rng(1)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = dpsbi.infer(COUNT, model, rng=rng, progress=False, **kw)
    return found, "; ".join(str(w.message) for w in said)


def test_calls_that_fail_far_from_the_posterior_leave_it_exact():
    "Mean and evidence within four standard errors of a quadrature: false alarms 1 in 8,000."
    found, said = seen_by_infer(poisson, target_ess=500)
    levels, k = np.linspace(0, 5, 1001), np.arange(200.0)
    eta = np.exp(COUNT.mechanism.log_prob(COUNT.s_dp, k[:, None]))
    p = stats.poisson.pmf(k, np.exp(levels)[:, None]) @ eta * LEVEL.marginals["level"].pdf(levels)
    assert found.exact and found.info["failed"] > 0 and not said
    assert abs(found.mean()[0] - p @ levels / p.sum()) < 4 * found.mcse()[0]
    assert abs(found.log_evidence - np.log(p.sum() / 200)) < 4 * found.log_evidence_error


def test_failures_that_reach_the_posterior_are_told():
    _, said = seen_by_infer(cut, max_simulations=2000)
    assert re.search(r"beside draws of the posterior \d+ of 32 were not finite", said)


def test_an_interrupt_is_no_failed_simulation():
    def interrupted(rate, p, rng):
        raise KeyboardInterrupt

    model = dpsbi.Model.from_function(interrupted, PRIOR, failures="nan")
    with pytest.raises(KeyboardInterrupt):
        model.simulate(PRIOR.sample(1, np.random.default_rng(1)), np.random.default_rng(1))


@pytest.mark.parametrize(
    "function, match",
    [
        (lambda rate, q, rng: 0, "'q'"),
        (lambda raet, p, rng: 0, "is it 'rate', misspelt"),
        (lambda rate, rng: 0, "does not take 'p'"),
        (lambda rate, rng, p=None, extra=1: 0, None),
        (lambda rate, p, size, rng: 0, "'size'"),
        (lambda rate, p: 0, "neither rng nor seed"),
        (lambda rate, p, rng, /: 0, "by position only"),
        (lambda **everything: 0, None),
        ("thinned", "not str"),
    ],
)
def test_the_signature_is_read_beforehand(function, match):
    if match is None:
        dpsbi.Model.from_function(function, PRIOR)
        return
    with pytest.raises(TypeError, match=match):
        dpsbi.Model.from_function(function, PRIOR)


def test_no_randomness_has_to_be_said():
    model = dpsbi.Model.from_function(lambda rate, p: rate, PRIOR, deterministic=True)
    theta = PRIOR.sample(4, np.random.default_rng(1))
    assert np.array_equal(model.simulate(theta, np.random.default_rng(1)), theta[:, 0])
    assert model.deterministic


@pytest.mark.parametrize(
    "function, error, match",
    [
        (lambda rate, p, rng: [0.0] * int(rate), ValueError, "shape"),
        (lambda rate, p, rng: dict(a=1), TypeError, "dict"),
        (lambda rate, p, rng: "ill", TypeError, "str"),
        (lambda rate, p, rng: [[1, 2], [3]], TypeError, "ragged"),
    ],
)
@pytest.mark.parametrize("failures", ["raise", "nan"])
def test_values_that_cannot_be_used(function, error, match, failures):
    model = dpsbi.Model.from_function(function, PRIOR, failures=failures)
    theta = np.array([[1.0, 0.5, 0.5], [2.0, 0.5, 0.5]])
    with pytest.raises(error, match=match):
        model.simulate(theta, np.random.default_rng(1))


@pytest.mark.parametrize(
    "how, error",
    [
        (dict(failures="skip"), ValueError),
        (dict(batch=0), ValueError),
        (dict(batch=2.5), ValueError),
        (dict(independent="no"), TypeError),
        (dict(sorted=True), TypeError),
    ],
)
def test_bad_settings(how, error):
    with pytest.raises(error):
        dpsbi.Model.from_function(thinned, PRIOR, **how)


def test_bad_priors():
    with pytest.raises(TypeError, match="prior"):
        dpsbi.Model.from_function(thinned, dict(rate=1))
    with pytest.raises(ValueError, match="'seed'"):
        dpsbi.Model.from_function(lambda seed, rng: 0, dpsbi.Prior(seed=stats.norm()))


def test_a_module_s_function_travels_by_name():
    sent = pickle.dumps(Portable(thinned))
    assert b"thinned" in sent and len(sent) < 300
    assert pickle.loads(sent).function is thinned


def test_without_cloudpickle_the_error_names_the_mend(monkeypatch):
    for name in ("cloudpickle", "joblib.externals", "joblib.externals.cloudpickle"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(TypeError, match="top of a module.*install cloudpickle"):
        pickle.dumps(Portable(lambda x: x))


@pytest.mark.thorough
def test_a_script_s_own_function_arrives_in_a_spawned_process(tmp_path):
    script = tmp_path / "analysis.py"
    script.write_text(
        "import multiprocessing, numpy as np\n"
        "from concurrent.futures import ProcessPoolExecutor\n"
        "from dpsbi.models.functions import RowByRow\n"
        "if __name__ == '__main__':\n"
        "    def double(a, rng): return 2 * a\n"
        "    context = multiprocessing.get_context('spawn')\n"
        "    with ProcessPoolExecutor(1, mp_context=context) as pool:\n"
        "        work = RowByRow(double, ('a',))\n"
        "        rng = np.random.default_rng(1)\n"
        "        print(pool.submit(work, np.array([[21.0]]), rng).result())\n"
    )
    run = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=os.environ, timeout=600
    )
    assert run.stdout.strip() == "[42.]", run.stderr


def eight(rate, rng):
    "Eight counts, one at a time."
    return [float(rng.poisson(rate)) for _ in range(8)]


def by_bits(rate, rng):
    "A simulator whose randomness no tape of inputs can serve."
    own = np.random.Generator(np.random.PCG64(rng.bit_generator.random_raw()))
    return own.poisson(rate, 8).astype(float)


@pytest.mark.thorough
@pytest.mark.parametrize("failures", ["raise", "nan"])
def test_a_plain_function_is_replayed_row_by_row(failures):
    "What a tape says to its caller is neither an error of the function nor a failed simulation."
    model = Model.from_function(eight, Prior(rate=stats.gamma(3, scale=3)), failures=failures)
    seen = Release(
        [9.0, 7, 12, 8, 9, 10, 6, 11], Query(identity, 1, step=1, dim=8), DiscreteLaplace(2.0)
    )
    how = dict(draws=50, max_simulations=2000, progress=False)
    found = input_smc(seen, model, rng=np.random.default_rng(1), **how)
    assert found.info["failed"] == 0 and found.info["by_row"]


def test_infer_goes_on_where_a_function_cannot_be_replayed():
    model = Model.from_function(by_bits, Prior(rate=stats.gamma(3, scale=3)))
    seen = Release(
        [9.0, 7, 12, 8, 9, 10, 6, 11], Query(identity, 1, step=1, dim=8), DiscreteLaplace(0.2)
    )
    quick = dict(training=Training(steps=10, final_steps=10, members=1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = infer(
            seen,
            model,
            rng=np.random.default_rng(2),
            max_simulations=4000,
            neural=quick,
            progress=False,
        )
    line = next(each for each in found.info["history"] if "moves" in each["engine"])
    assert "bit_generator" in line["error"] and not found.exact


@pytest.mark.thorough
def test_a_closure_of_many_rows_and_a_query_of_one_line_travel_too(tmp_path):
    width = 3
    release = dpsbi.Release([3.0, 4, 5], dpsbi.Query(lambda s: s, 1), dpsbi.Laplace(2.0))
    prior = dpsbi.Prior(rate=stats.gamma(4))
    model = dpsbi.Model(prior, lambda theta, rng: rng.poisson(theta, (len(theta), width)))

    def run(executor=None):
        about = dict(rounds=1, simulations=200, progress=False, executor=executor)
        return dpsbi.importance(release, model, rng=np.random.default_rng(1), **about)

    here = run()
    for start in ("fork", "spawn"):
        with ProcessPoolExecutor(1, mp_context=get_context(start)) as pool:
            there = run(pool)
        assert np.array_equal(here.theta, there.theta)
        assert np.array_equal(here.log_weights, there.log_weights)


def test_what_cannot_travel_is_told_with_the_mend():
    lock = threading.Lock()
    with ProcessPoolExecutor(1) as pool, pytest.raises(TypeError, match="or take threads"):
        list(batches.in_order(pool, lambda k: lock.locked(), iter([(1,)])))


class Counted(ThreadPoolExecutor):
    "Threads that count what they were handed."

    tasks = 0

    def submit(self, *work, **options):
        self.tasks += 1
        return super().submit(*work, **options)


SLOW_RUNS = {
    "exact_abc": lambda model, **how: dpsbi.exact_abc(
        RELEASE, model, draws=5000, max_simulations=1000, **how
    ),
    "smc_abc": lambda model, **how: dpsbi.smc_abc(
        RELEASE, model, draws=100, max_simulations=2000, kernel="distance", **how
    ),
    "sppe": lambda model, **how: simulate_query(
        RELEASE.query,
        model,
        PRIOR.sample(1000, how["rng"]),
        how["rng"],
        Call(how["executor"], False),
    ),
    "predictive": lambda model, **how: dpsbi.predictive_check(
        dpsbi.Posterior(PRIOR.sample(50, how["rng"])), RELEASE, model, **how
    ),
}


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("run", SLOW_RUNS.values(), ids=SLOW_RUNS)
def test_no_worker_gets_more_than_sixteen_calls_at_once(run):
    calls = itertools.count()

    def slow(rate, p, rng):
        next(calls)
        return thinned(rate, p, rng)

    model = dpsbi.Model.from_function(slow, PRIOR)
    with Counted(2) as pool:
        run(model, rng=np.random.default_rng(1), executor=pool)
    assert next(calls) <= 16 * pool.tasks


def test_exact_abc_keeps_to_its_budget():
    calls = itertools.count()

    def slow(rate, p, rng):
        next(calls)
        return thinned(rate, p, rng)

    model = dpsbi.Model.from_function(slow, PRIOR)
    how = dict(draws=10**6, max_simulations=333, rng=np.random.default_rng(1))
    with pytest.warns(UserWarning, match="within 333 simulations"), ThreadPoolExecutor(2) as pool:
        found = dpsbi.exact_abc(RELEASE, model, executor=pool, **how)
    assert found.info["simulations"] == 333 == next(calls)
