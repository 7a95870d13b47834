"""The same draws from a Dask cluster over the loopback interface, and from loky, as from nobody."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from dpsbi import DiscreteLaplace, Model, Prior, Query, Release, importance
from dpsbi.privacy import identity

pytestmark = pytest.mark.slow


def cases(growth, start, rng):
    return [float(rng.poisson(start * growth**week)) for week in range(3)]


def run(executor=None):
    query = Query(identity, sensitivity=1, step=1, neighbours="add-remove", unit="person")
    release = Release([14.0, 19, 21], query, DiscreteLaplace(scale=10))
    prior = Prior(growth=stats.lognorm(0.3), start=stats.gamma(10))
    how = dict(rounds=2, simulations=200, progress=False, executor=executor)
    model = Model.from_function(cases, prior)
    return importance(release, model, rng=np.random.default_rng(1), **how)


def same(a, b):
    return np.array_equal(a.theta, b.theta) and np.array_equal(a.log_weights, b.log_weights)


def test_loky():
    loky = pytest.importorskip("loky")
    assert same(run(), run(loky.get_reusable_executor(2)))


def test_dask(tmp_path):
    distributed = pytest.importorskip("distributed")
    cluster = tmp_path / "cluster.json"

    here = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(here)}  # workers import this module

    def started(command, *options):
        line = [sys.executable, "-m", f"distributed.cli.{command}", "--no-dashboard"]
        line += ["--scheduler-file", str(cluster), *options]
        return subprocess.Popen(line, cwd=tmp_path, env=env, stderr=subprocess.DEVNULL)

    processes = [started("dask_scheduler", "--host", "127.0.0.1", "--port", "0")]
    processes += [started("dask_worker", "--nthreads", "1", "--no-nanny") for _ in range(2)]
    try:
        until = time.time() + 60
        while not cluster.exists() and time.time() < until:
            time.sleep(0.1)
        with distributed.Client(scheduler_file=str(cluster)) as client:
            client.wait_for_workers(2, timeout=60)
            assert same(run(), run(client.get_executor()))
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()
