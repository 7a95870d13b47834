"What an executor may not do: send the simulator a thousand times, or hide what went wrong."

import importlib
import multiprocessing
import sys
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest
from scipy import stats

from dpsbi import Laplace, Model, Prior, Release, exact_abc, importance
from dpsbi.models.simulate import simulate
from dpsbi.runs.running import in_flight, in_order
from dpsbi.simulators.counts import counting_query

PRIOR = Prior(mean=stats.gamma(9, scale=3))
RELEASE = Release([31.4], counting_query(), Laplace(2.0))
FORK = multiprocessing.get_context("fork")


def run(simulator, executor=None):
    model = Model(PRIOR, simulator)
    how = dict(rng=np.random.default_rng(1), rounds=2, simulations=200, progress=False)
    return importance(RELEASE, model, executor=executor, **how)


def same(one, other):
    return np.array_equal(one.log_weights, other.log_weights)


# ---- what workers lack


@pytest.fixture
def project(tmp_path, monkeypatch):
    "A module of somebody's own."
    code = "SCALE = 1.0\ndef simulate(theta, rng):\n    return rng.poisson(SCALE * theta[:, :1])\n"
    (tmp_path / "my_project.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("my_project")
    del sys.modules["my_project"]


@pytest.fixture
def forked():
    "A pool of one worker, which is there."
    with ProcessPoolExecutor(1, FORK) as pool:
        yield pool


def edited(theta, rng):
    return rng.poisson(2 * theta[:, :1])


def test_a_worker_that_lacks_the_simulator_says_so(project, forked):
    run(project.simulate, forked)
    edited.__module__, edited.__qualname__ = "my_project", "later"
    project.later = edited
    with pytest.raises(AttributeError, match="later"):
        run(project.later, forked)
    assert same(run(project.simulate), run(project.simulate, forked))  # the pool is whole


# ---- what is sent


class Elsewhere(Executor):
    "Works here, at once, on what it is given; seems to be loky's."

    def __init__(self, workers=1):
        self._max_workers, self.sent = workers, []

    def submit(self, work, *args):
        self.sent.append(args)
        future = Future()
        future.set_result(work(*args))
        return future


Elsewhere.__module__ = "loky.process_executor"


def large(size):
    table = np.zeros(size)
    return lambda theta, rng: rng.poisson(theta[:, :1] + table[0])


def test_what_tasks_have_in_common_is_packed_once():
    simulator, executor = large(100_000), Elsewhere()
    assert same(run(simulator), run(simulator, executor))
    parcels = {id(args[0]) for args in executor.sent}
    assert len(parcels) == 2 and len(executor.sent) == 32  # of two rounds
    assert max(len(args[1]) for args in executor.sent) < 20_000 < len(executor.sent[0][0])


def test_a_single_task_is_no_less_reproducible():
    "A generator that came in the parcel would be used up the second time."
    theta, executor = np.full((1, 1), 20.0), Elsewhere()
    model = Model(PRIOR, edited)

    def once(executor):
        how = dict(rng=np.random.default_rng(3), executor=executor)
        return simulate(RELEASE, model, theta, **how)[0]

    assert once(executor) == once(executor) == once(None)


def locked(lock):
    def simulator(theta, rng):
        with lock:
            return rng.poisson(theta[:, :1])

    return simulator


def test_what_cannot_be_sent_is_told_how_to_mend_it(forked):
    import threading

    for executor in (Elsewhere(), forked):
        with pytest.raises(TypeError, match="open files, locks and connections where they are us"):
            run(locked(threading.Lock()), executor)
    with ThreadPoolExecutor(2) as threads:
        simulator = locked(threading.Lock())
        assert same(run(simulator), run(simulator, threads))


class Refused(Exception):
    "Cannot be made again from what it says."

    def __init__(self, code, text):
        super().__init__(text)


def refusing(theta, rng):
    raise Refused(7, "the licence server said no")


def test_an_error_that_cannot_travel_is_told(forked):
    with pytest.raises(RuntimeError, match="Refused: the licence server said no"):
        run(refusing, forked)
    assert list(in_order(forked, abs, iter([(-1,), (-2,)]))) == [1, 2]


@pytest.mark.parametrize("executor", ["threads", 4, ThreadPoolExecutor])
def test_what_is_no_executor_is_refused(executor):
    with pytest.raises(TypeError, match="executor must be one of concurrent.futures"):
        run(edited, executor)


# ---- randomness from elsewhere


def of_numpy(theta, rng):
    return np.random.poisson(theta[:, :1])


def of_python(theta, rng):
    import random

    return theta[:, :1] + random.random()


def of_torch(theta, rng):
    import torch

    return torch.poisson(torch.as_tensor(theta[:, :1])).numpy()


def seeded(theta, rng):
    np.random.seed(rng.integers(2**32))
    return of_numpy(theta, rng)


@pytest.mark.parametrize("simulator", [of_numpy, of_python, of_torch])
def test_global_generators_are_refused(simulator, forked):
    for executor in (None, forked):
        with pytest.raises(ValueError, match="draws from the global generator"):
            run(simulator, executor)
    with pytest.raises(ValueError, match="draws from the global generator"):
        model = Model(PRIOR, simulator)
        exact_abc(RELEASE, model, draws=10, rng=np.random.default_rng(1), progress=False)


def test_one_that_seeds_them_is_not(forked):
    assert same(run(seeded), run(seeded, forked))


# ---- enough in flight


def test_workers_that_join_get_work():
    "Twenty more of them after a second: of a window that was fixed they would get nothing."
    import dpsbi.runs.running as batches

    clock = iter(np.arange(0, 1000, 0.5))

    class Growing(ThreadPoolExecutor):
        waiting = most = 0

        def submit(self, work, *args):
            self.waiting += 1
            self.most = max(self.most, self.waiting)
            return super().submit(work, *args)

    with pytest.MonkeyPatch.context() as patched, Growing(1) as pool:
        patched.setattr(batches.time, "monotonic", lambda: float(next(clock)))
        for k, _ in enumerate(in_order(pool, abs, ((k,) for k in range(600)))):
            pool.waiting -= 1
            if k == 50:
                pool._max_workers = 21
        assert pool.most == in_flight(pool) == 168
