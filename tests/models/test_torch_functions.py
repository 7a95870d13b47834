"""Simulators of PyTorch's tensors: parameters by name, one seed one result, whatever the function
draws from and however many threads there are."""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from scipy import stats

from dpsbi import (
    DiscreteLaplace,
    Gaussian,
    Laplace,
    Model,
    Prior,
    Query,
    Release,
    importance,
    input_smc,
)
from dpsbi.checks.testing import agrees
from dpsbi.privacy import identity
from dpsbi.runs.fingerprint import model_fingerprint
from dpsbi.runs.running import batch_sizes, model_batches
from dpsbi.simulators import counts as counts

PRIOR = Prior(rate=stats.gamma(3), p=stats.dirichlet([1.0, 2.0]))


def thinned(rate, p, generator):
    total = torch.poisson(rate, generator)
    kept = torch.binomial(total, p[:, 0].contiguous(), generator)
    return torch.stack([kept, total - kept], 1)


def of_global_state(rate, p):
    return torch.distributions.Poisson(rate[:, None] * p).sample()


def test_parameters_come_by_their_names():
    theta = PRIOR.sample(9, np.random.default_rng(1))
    seen = lambda generator, p, rate: torch.cat([rate[:, None], p], 1)
    for precision, gap in (("float64", 0), ("float32", 1e-6)):
        model = Model.from_torch(seen, PRIOR, precision=precision)
        back = model.simulate(theta, np.random.default_rng(1))
        assert back.dtype == precision and np.allclose(back, theta, rtol=gap, atol=0)


@pytest.mark.parametrize("function", [thinned, of_global_state])
def test_a_seed_fixes_the_simulations_in_any_thread(function):
    model, theta = Model.from_torch(function, PRIOR), PRIOR.sample(300, np.random.default_rng(1))
    before = torch.get_rng_state()
    run = lambda seed: model.simulate(theta, np.random.default_rng(seed))
    alone = [run(seed) for seed in range(20)]
    with ThreadPoolExecutor(8) as threads:
        together = list(threads.map(run, range(20)))
    assert all(np.array_equal(*both) for both in zip(alone, together))
    assert not np.array_equal(alone[0], alone[1])
    assert torch.equal(torch.get_rng_state(), before)


def slow_draw(rate, p):
    "Draws from torch's own state, with a pause between, in which another thread may draw."
    first = torch.rand(len(rate))
    time.sleep(0.01)
    return torch.stack([first, torch.rand(len(rate))], 1)


def test_threads_do_not_share_torch_s_own_state():
    model, theta = Model.from_torch(slow_draw, PRIOR), PRIOR.sample(3, np.random.default_rng(1))
    run = lambda seed: model.simulate(theta, np.random.default_rng(seed))
    with ThreadPoolExecutor(8) as threads:
        together = list(threads.map(run, range(8)))
    assert all(np.array_equal(run(seed), found) for seed, found in enumerate(together))


@pytest.mark.thorough
def test_its_posterior_is_the_exact_one():
    "Gamma and Poisson with discrete noise: by tensors, and by the arrays' model."
    release = Release([30.0], counts.counting_query(), DiscreteLaplace(2.0))

    def total(rate, generator):
        return torch.poisson(rate, generator)[:, None]

    by_tensors = Model.from_torch(total, Prior(rate=stats.gamma(25)))
    ours, theirs = (
        importance(release, model, rng=rng, simulations=20_000, progress=False)
        for model, rng in zip(
            (by_tensors, counts.gamma_poisson(25, 1)), np.random.default_rng(1).spawn(2)
        )
    )
    error = float(np.hypot(ours.mcse(), theirs.mcse())[0])
    agrees(ours.mean()[0], theirs.mean()[0], error)


def test_batches_are_as_large_as_the_model_says_and_no_larger():
    model = Model.from_torch(thinned, PRIOR)
    assert model.batch is None and model.together == 65_536
    assert model_batches(model, 100_000) == [65_536, 34_464]
    assert model_batches(Model.from_torch(thinned, PRIOR, together=1000), 2500) == [1000, 1000, 500]
    plain = Model.from_function(lambda rate, p, rng: [1.0], PRIOR)
    assert model_batches(plain, 10_000) == batch_sizes(10_000, 16)


def test_a_checkpoint_knows_the_function():
    other = lambda rate, p, generator: 2 * thinned(rate, p, generator)
    one, two = (Model.from_torch(f, PRIOR) for f in (thinned, other))
    assert model_fingerprint(one) == model_fingerprint(Model.from_torch(thinned, PRIOR))
    assert model_fingerprint(one) != model_fingerprint(two)


REFUSED = {
    "a parameter is missing": lambda rate, generator: rate,
    "one is not the prior's": lambda rate, p, dose, generator: rate,
    "no function": 3.0,
}


@pytest.mark.parametrize("what", REFUSED)
def test_functions_that_do_not_fit_the_prior_are_refused(what):
    with pytest.raises(TypeError):
        Model.from_torch(REFUSED[what], PRIOR)


@pytest.mark.parametrize("wrong", [dict(precision="half"), dict(together=0)])
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError):
        Model.from_torch(thinned, PRIOR, **wrong)


def test_what_is_returned_must_be_a_tensor_with_a_row_for_each():
    release = Release([3.0, 1.0], Query(identity, 1, dim=2), Laplace(1.0))
    how = dict(rng=np.random.default_rng(1), simulations=1000, progress=False)
    with pytest.raises(TypeError, match="must return a tensor"):
        importance(release, Model.from_torch(lambda rate, p: rate.tolist(), PRIOR), **how)
    with pytest.raises(ValueError, match="one data set per row"):
        importance(release, Model.from_torch(lambda rate, p: p[:3], PRIOR), **how)


@pytest.mark.thorough
def test_inputs_can_be_moved_on_a_device_as_by_arrays():
    "The same inputs give the same values, and the same draws to rounding."
    prior = Prior(mean=stats.norm(0, 2))
    by_tensors = Model.from_torch(lambda mean, u: mean[:, None] + 0.5 * u, prior, inputs=6)
    by_arrays = Model(prior, lambda theta, u: theta + 0.5 * u, inputs=6)
    release = Release(np.linspace(0, 1, 6), Query(identity, 1, dim=6), Gaussian(0.5))
    how = dict(draws=200, max_simulations=5000, progress=False)
    draws = [
        input_smc(release, model, rng=np.random.default_rng(1), **how).theta
        for model in (by_tensors, by_arrays)
    ]
    assert np.allclose(*draws)
    assert model_batches(by_tensors, 5000) == [5000]


@pytest.mark.parametrize("name, more", [("generator", {}), ("u", dict(inputs=2))])
def test_a_parameter_cannot_have_the_name_of_what_is_random(name, more):
    with pytest.raises(ValueError, match="cannot be called"):
        Model.from_torch(lambda **params: None, Prior(**{name: stats.norm()}), **more)
