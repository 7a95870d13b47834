"""On a graphics card, where there is one: the same results as on the processor, to rounding or in
law; repeated bit for bit; and nothing left behind.

What a stand-in can show without a card is in test_device.py.
"""

import gc
from functools import partial
from pathlib import Path
from runpy import run_path

import numpy as np
import pytest
import torch
from scipy import stats

from dpsbi.analyst.neural.amortise import Estimator, amortise
from dpsbi.analyst.neural.rnpe import rnpe
from dpsbi.analyst.neural.sple import sple
from dpsbi.analyst.neural.sppe import sppe
from dpsbi.analyst.neural.training import Descent, Shape, Training, fit
from dpsbi.mechanisms import Laplace, Release
from dpsbi.simulators import counts as counts

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="torch sees no graphics card here"
)
SCRIPT = run_path(str(Path(__file__).resolve().parents[2] / "nbs/bench/gpu.py"))
PERSONS, WEEKS = SCRIPT["PERSONS"], SCRIPT["WEEKS"]
outbreaks, pairs = SCRIPT["outbreaks"], SCRIPT["pairs"]
SMALL = Shape(layers=2, hidden=16, bins=6)


def trained(device, steps=60, **how):
    given, unseen = pairs(4000, np.random.default_rng(1)), pairs(2000, np.random.default_rng(2))
    usual = dict(flow=SMALL, descent=Descent(steps, batch=128), progress=False)
    return fit(lambda g: given, unseen, rng=np.random.default_rng(3), device=device, **usual, **how)


def same(one, other):
    mine, theirs = one.flow.arrays(), other.flow.arrays()
    return all(np.array_equal(mine[name], theirs[name]) for name in mine)


def test_training_there_is_training_here_to_rounding():
    here, there = trained("cpu"), trained("cuda")
    assert here.held_out[0] - here.best > 0.01
    assert np.allclose(here.held_out, there.held_out, atol=1e-2)


def test_a_seed_gives_the_same_network_bit_for_bit():
    assert same(trained("cuda"), trained("cuda"))


def test_a_batch_that_is_not_finite_costs_a_restart_and_no_more():
    calls = []

    def draw(g):
        calls.append(1)
        x, context = pairs(128, g)
        return (x * np.nan if len(calls) == 4 else x), context

    unseen = pairs(2000, np.random.default_rng(2))
    how = dict(flow=SMALL, descent=Descent(60, batch=128), progress=False, device="cuda")
    found = fit(draw, unseen, rng=np.random.default_rng(3), **how)
    assert found.restarts > 0 and np.isfinite(found.best)


def test_a_flow_there_is_the_flow_here():
    flow = trained("cuda").flow
    x, context = pairs(5000, np.random.default_rng(4))
    here, draw = (
        flow.on("cpu"),
        lambda flow: flow.sample(3000, context[0], np.random.default_rng(5)),
    )
    assert flow.device == "cuda" and here.device == "cpu"
    assert np.allclose(flow.log_prob(x, context), here.log_prob(x, context), atol=1e-8)
    assert np.allclose(draw(flow), draw(here), atol=1e-7)
    few = flow.log_prob(x[:5], context[:5])
    assert np.allclose(few, here.log_prob(x, context)[:5], atol=1e-8)


RELEASE = Release([37.4], counts.counting_query(), Laplace(5.0))
MODEL = counts.gamma_poisson(25, 1)
TRAINING = Training(final_steps=200, members=1)
METHODS = {
    "sppe": partial(sppe, rounds=2, simulations=1000, training=TRAINING),
    "truncated": partial(
        sppe, rounds=2, simulations=1000, training=Training(members=1, correction="truncated")
    ),
    "atomic": partial(
        sppe, rounds=2, simulations=1000, training=Training(members=1, correction="atomic")
    ),
    "sple": partial(sple, rounds=2, simulations=1000, training=TRAINING),
    "rnpe": partial(rnpe, simulations=2000, draws=500, warmup=50, training=TRAINING),
}


@pytest.mark.parametrize("method", METHODS)
def test_each_method_says_there_what_it_says_here(method):
    run = lambda device: METHODS[method](
        RELEASE, MODEL, rng=np.random.default_rng(1), device=device, progress=False
    )
    here, there = run("cpu"), run("cuda")
    gap = np.abs(here.mean() - there.mean()) / here.std()
    assert gap.max() < 0.3 and np.allclose(there.std() / here.std(), 1, atol=0.25)


def test_a_resumed_run_ends_where_it_would_have(tmp_path):
    run = lambda rounds, **where: sppe(
        RELEASE,
        MODEL,
        rng=np.random.default_rng(1),
        rounds=rounds,
        simulations=2500,  # more than are computed on the processor
        training=TRAINING,
        device="cuda",
        progress=False,
        **where,
    )
    run(2, checkpoint=tmp_path / "kept.npz")
    resumed = run(3, checkpoint=tmp_path / "kept.npz")
    assert np.array_equal(resumed.theta, run(3).theta)


def test_an_estimator_moves(tmp_path):
    found = amortise(
        RELEASE.query,
        RELEASE.mechanism,
        MODEL,
        rng=np.random.default_rng(1),
        simulations=1000,
        training=TRAINING,
        device="cuda",
        progress=False,
    )
    found.save(tmp_path / "estimator.npz")
    read = Estimator.load(tmp_path / "estimator.npz", MODEL.prior)
    draws = [
        each.posterior(RELEASE.s_dp, draws=2000, rng=np.random.default_rng(2)).theta
        for each in (found, read, read.on("cuda"))
    ]
    assert np.array_equal(draws[0], draws[2]) and np.allclose(draws[0], draws[1], rtol=1e-6)


def test_a_simulator_there_has_the_law_of_the_one_here():
    rng = np.random.default_rng(1)
    theta = np.tile(outbreaks("numpy", "cpu").prior.sample(1, rng), (4000, 1))
    ours = outbreaks("numpy", "cpu").simulate(theta, rng)
    for precision in ("float64", "float32"):
        model, state = outbreaks(precision, "cuda"), torch.cuda.get_rng_state()
        theirs = model.simulate(theta, np.random.default_rng(2))
        assert theirs.shape == (4000, WEEKS) and theirs.max() <= PERSONS
        p_values = [stats.ks_2samp(ours[:, k], theirs[:, k]).pvalue for k in range(WEEKS)]
        assert min(p_values) > 1e-6 / WEEKS
        assert np.array_equal(theirs, model.simulate(theta, np.random.default_rng(2)))
        assert torch.equal(torch.cuda.get_rng_state(), state)


def test_a_simulator_here_leaves_the_card_s_random_state_alone():
    model, state = outbreaks("float64", "cpu"), torch.cuda.get_rng_state()
    model.simulate(model.prior.sample(10, np.random.default_rng(1)), np.random.default_rng(2))
    assert torch.equal(torch.cuda.get_rng_state(), state)


def test_runs_leave_no_memory_on_the_card():
    def kept():
        trained("cuda")
        gc.collect()  # a run leaves cycles of some hundred kilobytes
        return torch.cuda.memory_allocated()

    before = kept()
    assert max(kept() for _ in range(3)) <= before + 2**20
