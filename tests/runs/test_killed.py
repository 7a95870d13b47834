"""Every method that takes a checkpoint is killed (SIGKILL) at random moments, and resumes to the
very result of a run that was not. Nor does it matter how often: each time that it has written its
file, say, so that a life only ever sees one new thing.
"""

import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest
from scipy import stats

import dpsbi.runs.checkpoint
from dpsbi.runs.checkpoint import Checkpoint

KILLS = 5  # of each method
QUIET = dict(progress=False)


def count():
    from dpsbi import Laplace, Release
    from dpsbi.simulators import counts as counts

    return Release([37.4], counts.counting_query(), Laplace(5.0)), counts.gamma_poisson(25, 1)


def slowly(model, seconds=0.01):
    "The same model, simulated a little more slowly, so that there is something to interrupt."
    from dpsbi import Model

    def simulate(theta, rng):
        time.sleep(seconds)
        return model.simulate(theta, rng)

    return Model(model.prior, simulate)


def exact_abc(path, rng):
    from dpsbi import exact_abc

    release, model = count()
    return exact_abc(release, slowly(model), draws=4000, rng=rng, checkpoint=path, **QUIET)


def importance(path, rng):
    from dpsbi import importance

    release, model = count()
    return importance(release, slowly(model), rng=rng, simulations=500, checkpoint=path, **QUIET)


def smc_abc(path, rng):
    from dpsbi import smc_abc

    release, model = count()
    return smc_abc(release, slowly(model, 0.002), draws=300, rng=rng, checkpoint=path, **QUIET)


def da_mcmc(path, rng):
    from dpsbi import da_mcmc
    from dpsbi.simulators import linear_regression as lr

    return da_mcmc(
        lr.published(records=False),
        lr.RegressionRecords(100, 2),
        draws=20_000,
        rng=rng,
        checkpoint=path,
        **QUIET,
    )


def gibbs_ss(path, rng):
    from dpsbi import gibbs_ss
    from dpsbi.simulators import linear_regression as lr

    return gibbs_ss(
        lr.published(records=False),
        lr.RegressionMoments(100, 2),
        draws=20_000,
        rng=rng,
        checkpoint=path,
        **QUIET,
    )


def pseudo_marginal(path, rng):
    from dpsbi import pseudo_marginal
    from dpsbi.simulators import sir as sir

    return pseudo_marginal(
        sir.synthetic_release(),
        sir.sir_state_space(10**6, sir.SYNTHETIC_TIMES),
        draws=300,
        rng=rng,
        checkpoint=path,
        **QUIET,
    )


def sppe(path, rng):
    from dpsbi import sppe
    from dpsbi.analyst.neural.training import Training

    release, model = count()
    return sppe(
        release,
        model,
        rng=rng,
        rounds=4,
        simulations=300,
        training=Training(steps=60, final_steps=50, members=1),
        draws=500,
        checkpoint=path,
        **QUIET,
    )


def sple(path, rng):
    from dpsbi import sple
    from dpsbi.analyst.neural.training import Training

    release, model = count()
    return sple(
        release,
        model,
        rng=rng,
        rounds=4,
        simulations=300,
        training=Training(steps=0, final_steps=30, members=1),
        draws=500,
        checkpoint=path,
        **QUIET,
    )


def refine(path, rng):
    from dpsbi import importance, refine

    release, model = count()
    rough = importance(
        release, model, rng=np.random.default_rng(0), rounds=1, simulations=300, **QUIET
    )
    return refine(
        rough, release, slowly(model), rng=rng, simulations=4000, checkpoint=path, **QUIET
    )


def infer(path, rng):
    "Through every stage: weights degenerate, and a neural posterior follows."
    from dpsbi import Laplace, Release, infer
    from dpsbi.analyst.neural.training import Training
    from dpsbi.simulators import linear_regression as lr

    model, query = lr.linear_regression(100, 2, records=False)
    s = model.simulate(np.array([lr.TRUTH]), np.random.default_rng(6))[0]
    sharp = Release(s, query, Laplace(1e-4))
    brief = dict(training=Training(steps=5, final_steps=20, members=1))
    return infer(
        sharp,
        slowly(model, 0.002),
        rng=rng,
        max_simulations=20_000,
        neural=brief,
        checkpoint=path,
        **QUIET,
    )


def mcem(path, rng):
    from dpsbi import mcem
    from dpsbi.analyst.em.mcem import Stages

    class Slow(counts_model()):
        def maximise(self, s, weights):
            time.sleep(0.02)
            return super().maximise(s, weights)

    release, _ = count()
    how = dict(schedule=Stages([(1e-9, 500)]), max_iterations=60, final_simulations=2000)
    return mcem(release, Slow(), 1.0, rng=rng, checkpoint=path, **how, **QUIET)


def counts_model():
    from dpsbi.simulators import counts as counts

    return counts.Poisson


def rnpe(path, rng):
    from dpsbi import rnpe
    from dpsbi.analyst.neural.training import Training

    release, model = count()
    return rnpe(
        release,
        slowly(model, 0.05),
        rng=rng,
        simulations=2000,
        training=Training(final_steps=60, members=2),
        draws=500,
        warmup=5,
        thin=2,
        checkpoint=path,
        **QUIET,
    )


METHODS = [
    exact_abc,
    importance,
    smc_abc,
    da_mcmc,
    gibbs_ss,
    pseudo_marginal,
    sppe,
    sple,
    refine,
    infer,
    mcem,
    rnpe,
]


def child(name, checkpoint, result):
    return subprocess.Popen(
        [sys.executable, __file__, name, str(checkpoint), str(result)],
        stdout=subprocess.PIPE,
        text=True,
    )


def uninterrupted(name, checkpoint, result):
    "Run to the end: the seconds that it took after its imports."
    process = child(name, checkpoint, result)
    assert process.stdout.readline() == "ready\n"
    start = time.monotonic()
    assert process.wait() == 0
    return time.monotonic() - start


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.__name__)
def test_a_killed_run_resumes_to_the_same_result(method, tmp_path):
    seconds = uninterrupted(method.__name__, tmp_path / "whole", tmp_path / "whole.npz")
    whole, moments, interrupted = (
        np.load(tmp_path / "whole.npz"),
        np.random.default_rng(len(method.__name__)),
        0,
    )
    for k in range(4 * KILLS):
        moment = moments.uniform(0.05, 0.9) * seconds
        checkpoint, result = tmp_path / f"run{k}", tmp_path / f"run{k}.npz"
        process = child(method.__name__, checkpoint, result)
        assert process.stdout.readline() == "ready\n"
        time.sleep(moment)
        process.send_signal(signal.SIGKILL)
        if (
            process.wait() != -signal.SIGKILL
        ):  # it ended before its signal came: the machine is faster now
            seconds = moment
            continue
        uninterrupted(method.__name__, checkpoint, result)
        found = np.load(result)
        for name in whole.files:
            np.testing.assert_array_equal(
                found[name], whole[name], err_msg=f"killed {moment:.2f} s into {seconds:.2f} s"
            )
        interrupted += 1
        if interrupted == KILLS:
            return
    raise AssertionError(
        f"only {interrupted} of {4 * KILLS} runs were still running when they were to be killed"
    )


# ---- many short lives


class Killed(BaseException):
    "No `except Exception` holds it up."


def alive(monkeypatch, method, path, writes=None):
    "A run that ends with so many writings of its file, or by itself: how often it wrote."
    written, save = 0, Checkpoint.save

    def counted(self, **arrays):
        nonlocal written
        save(self, **arrays)
        written += self.path is not None
        if written == writes:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoint, "save", counted)
        patched.setattr(
            dpsbi.runs.checkpoint, "SECONDS_BETWEEN_SAVES", -1.0
        )  # seconds: whenever something is new
        patched.setattr(time, "sleep", lambda seconds: None)
        return method(path, np.random.default_rng(7)), written


def many_lives(monkeypatch, method, folder):
    whole, writes = alive(monkeypatch, method, folder / "whole")
    for each in (1, 3):
        for life in range(writes + 1):  # each must have seen something new
            try:
                found, _ = alive(monkeypatch, method, folder / f"run{each}", each)
                break
            except Killed:
                continue
        else:
            raise AssertionError(f"{writes + 1} lives of {each} writings were not enough")
        for name in ("theta", "weights" if hasattr(whole, "weights") else "information"):
            np.testing.assert_array_equal(getattr(found, name), getattr(whole, name))
    return writes


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", [exact_abc, smc_abc, refine, rnpe])
def test_short_lives_are_enough(method, tmp_path, monkeypatch):
    assert many_lives(monkeypatch, method, tmp_path) > 1


def wide_importance(path, rng):
    "Of three rounds in batches of a hundred: the file is written within rounds."
    from dpsbi import importance

    release, model = count()
    how = dict(rounds=3, simulations=1600, checkpoint=path, **QUIET)
    return importance(release, model, rng=rng, **how)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
def test_short_lives_are_enough_within_a_round(tmp_path, monkeypatch):
    assert many_lives(monkeypatch, wide_importance, tmp_path) == 51  # sixteen batches, and each


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.__name__)
def test_short_lives_are_enough_for_each(method, tmp_path, monkeypatch):
    many_lives(monkeypatch, method, tmp_path)


def test_fewer_rounds_go_on_from_more(tmp_path):
    "And more from fewer; not where values are independent, for there the rounds cut the draws."
    from dpsbi import Laplace, Model, Prior, Query, Release, importance
    from dpsbi.privacy import identity

    release, model = count()

    def run(rounds, path, r=release, m=model, **how):
        how = dict(rng=np.random.default_rng(1), checkpoint=path, **QUIET) | how
        return importance(r, m, rounds=rounds, simulations=500, **how)

    path = tmp_path / "run"
    for rounds in (4, 2, 6):
        assert np.array_equal(run(rounds, path).weights, run(rounds, None).weights)
    for enough in (dict(target_ess=50), {}):
        found = run(6, path, **enough)
        assert len(found) == len(run(6, None, **enough)) and len(found.confidential) == len(found)
    apart = Model(
        Prior(a=stats.gamma(3)),
        lambda theta, rng: rng.poisson(theta, (len(theta), 3)),
        independent=True,
    )
    three = Release([3.0, 2, 4], Query(identity, 1), Laplace(2.0))
    run(2, tmp_path / "apart", three, apart)
    with pytest.raises(ValueError, match="differs in draws"):
        run(4, tmp_path / "apart", three, apart)


if __name__ == "__main__":
    import importlib

    name, checkpoint, result = sys.argv[1:]
    warnings.simplefilter("ignore")
    importlib.import_module("dpsbi.analyst.neural.sple")
    print("ready", flush=True)
    found = globals()[name](checkpoint, np.random.default_rng(7))
    second = found.weights if hasattr(found, "weights") else found.information
    np.savez(result, theta=found.theta, second=second)
