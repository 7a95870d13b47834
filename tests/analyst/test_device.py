"""Training on an accelerator that is not there: every tensor must be where it should, and the
result what it is on the processor.

torch's device without memory, "meta", is given one: its tensors are stood in for by tensors that
hold their numbers in the
processor's memory. An operation that mixes the two places fails, as it would on a machine with an
accelerator; anything else is
computed by the processor's own kernels, so that results can be compared bit for bit.
"""

from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from unittest import mock

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from dpsbi.analyst.infer import infer
from dpsbi.analyst.neural.amortise import amortise
from dpsbi.analyst.neural.rnpe import rnpe
from dpsbi.analyst.neural.sple import sple
from dpsbi.analyst.neural.sppe import sppe
from dpsbi.analyst.neural.training import Descent, Shape, Training, fit
from dpsbi.mechanisms import Laplace, Release
from dpsbi.models.model import Model
from dpsbi.simulators import counts as counts

aten = torch.ops.aten
CROSSES = {aten._to_copy.default, aten.copy_.default}  # the two operations that may
INDEXED = {
    aten.index.Tensor,
    aten.index_put_.default,
    aten.index_put.default,
}  # indices may be the processor's


class There(torch.Tensor):
    "A tensor that says that it is on the device; `here` has its numbers."

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, here):
        there = torch.Tensor._make_wrapper_subclass(
            cls, here.size(), strides=here.stride(), dtype=here.dtype, device="meta"
        )
        there.here = here
        return there

    @classmethod
    def __torch_dispatch__(cls, op, types, args=(), kwargs=None):
        return carry_out(op, args, kwargs or {})


def carry_out(op, args, kwargs):
    inputs = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, torch.Tensor)]
    there, device = [x for x in inputs if isinstance(x, There)], kwargs.get("device")
    here = [x for x in inputs if not isinstance(x, There) and x.dim()]
    if there and here and op not in CROSSES and not (op in INDEXED and isinstance(args[0], There)):
        raise RuntimeError(f"{op}: tensors in two places")
    wrapped = {id(x.here): x for x in there}
    if device is not None:
        kwargs = kwargs | dict(device="cpu")
    out = op(
        *tree_map(lambda x: x.here if isinstance(x, There) else x, args),
        **tree_map(lambda x: x.here if isinstance(x, There) else x, kwargs),
    )
    goes = (
        torch.device(device).type == "meta"
        if device is not None
        else isinstance(args[0], There)
        if op is aten.copy_.default
        else bool(there)
    )
    place = lambda x: wrapped.get(id(x), There(x)) if isinstance(x, torch.Tensor) and goes else x
    return tree_map(place, out)


class Accelerator(TorchDispatchMode):
    "Within it, the device has a memory."

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        return carry_out(op, args, kwargs or {})


@contextmanager
def accelerator():
    before = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(
        True
    )  # a parameter cannot change its class
    try:
        with (
            mock.patch(
                "torch.optim.optimizer._get_fused_kernels_supported_devices",
                lambda: ["cpu", "meta"],
            ),
            mock.patch("dpsbi.analyst.neural.flow._MIN_ROWS_ON_DEVICE", 1),
            Accelerator(),
        ):
            yield
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(before)


@pytest.fixture
def device():
    with accelerator():
        yield


def pairs(rng, n=400):
    x = rng.standard_normal((n, 2))
    return x, x + 0.5 * rng.standard_normal((n, 2))


def trained(device, **how):
    usual = dict(
        flow=Shape(layers=2, blocks=1, hidden=8, bins=4),
        descent=Descent(40, batch=64, every=10),
        device=device,
        progress=False,
    )
    return fit(
        pairs, pairs(np.random.default_rng(2)), rng=np.random.default_rng(1), **(usual | how)
    )


@pytest.mark.thorough
def test_the_stand_in_notices_what_a_machine_would(device):
    x, y = torch.ones(3, device="meta"), torch.ones(3)
    assert (
        x.device.type == "meta"
        and (x + 1).device.type == "meta"
        and (x.cpu() + y).device.type == "cpu"
    )
    with pytest.raises(RuntimeError, match="two places"):
        x + y
    with pytest.raises(RuntimeError, match="two places"):
        torch.nn.Linear(3, 2)(x)
    with pytest.raises((TypeError, RuntimeError)):
        x.numpy()


@contextmanager
def by_tensors():
    "On the processor too, where layers go by hand otherwise."
    with (
        mock.patch("dpsbi.analyst.neural.flow._on_processor", lambda x: False),
        mock.patch("dpsbi.analyst.neural.flow._on_processor", lambda x: False),
    ):
        yield


def test_by_hand_or_on_tensors_training_is_the_same_to_rounding():
    by_hand = trained("cpu")
    with by_tensors():
        on_tensors = trained("cpu")
    assert by_hand.held_out[0] - by_hand.best > 0.01
    assert np.allclose(by_hand.held_out, on_tensors.held_out, atol=1e-4)
    assert not np.array_equal(by_hand.held_out, on_tensors.held_out)


@pytest.mark.thorough
def test_a_flow_trains_there_as_here():
    few = dict(descent=Descent(10, batch=64, every=5))
    with by_tensors():
        here = trained("cpu", **few)
    with accelerator():
        there = trained("meta", **few)
    assert here.flow.arrays().keys() == there.flow.arrays().keys()
    assert all(
        np.array_equal(a, there.flow.arrays()[name]) for name, a in here.flow.arrays().items()
    )


def test_a_loss_that_leaves_a_tensor_behind_is_noticed(device):
    def loss(net, y, u, w):
        return -(torch.ones(len(y)) * net.log_prob(y, u)).mean()

    with pytest.raises(RuntimeError, match="two places"):
        trained("meta", loss=loss)


# a step is slow here, each operation in Python: few of them, in a small flow, meet every operation
SMALL = Shape(layers=1, blocks=1, hidden=8, bins=4)
FEW_STEPS = Training(steps=3, final_steps=5, members=1, batch=32, flow=SMALL)
LITTLE = dict(training=FEW_STEPS, progress=False)
CORRECTED = dict(rounds=2, simulations=200, draws=50, progress=False)
METHODS = {
    f"sppe, {how}": partial(sppe, training=replace(FEW_STEPS, correction=how), **CORRECTED)
    for how in ("weights", "atomic", "truncated")
}
METHODS |= {
    "sple": partial(sple, rounds=1, simulations=200, draws=50, **LITTLE),
    "amortise": lambda release, model, **how: amortise(
        release.query, release.mechanism, model, simulations=300, **LITTLE, **how
    ).posterior(release, draws=50, rng=np.random.default_rng(2)),
    "rnpe": partial(rnpe, simulations=500, draws=20, warmup=5, **LITTLE),
}


@pytest.mark.filterwarnings("ignore")  # fits so short are poor
@pytest.mark.parametrize("method", METHODS)
def test_every_neural_method_there_as_here(method):
    release, model = (
        Release([37.4], counts.counting_query(), Laplace(5.0)),
        counts.gamma_poisson(25, 1),
    )
    run = lambda device: METHODS[method](
        release, model, rng=np.random.default_rng(1), device=device
    )
    with by_tensors():
        here = run("cpu")
    with accelerator():
        there = run("meta")
    assert np.array_equal(here.theta, there.theta)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a graphics card here")
@pytest.mark.parametrize("method", METHODS)
def test_a_device_that_is_not_at_hand_is_refused_before_anything_is_simulated(method):
    def never(theta, rng):
        raise AssertionError("simulated")

    release = Release([37.4], counts.counting_query(), Laplace(5.0))
    model = Model(counts.gamma_poisson(25, 1).prior, never)
    with pytest.raises(ValueError, match="device='cuda' cannot be used here"):
        METHODS[method](release, model, rng=np.random.default_rng(1), device="cuda")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a graphics card here")
def test_infer_and_an_estimator_refuse_it_too():
    release = Release([37.4], counts.counting_query(), Laplace(5.0))
    model = counts.gamma_poisson(25, 1)
    with pytest.raises(ValueError, match="device='cuda' cannot be used here"):
        infer(release, model, rng=np.random.default_rng(1), device="cuda")
    learning = Training(final_steps=3, members=1)
    how = dict(rng=np.random.default_rng(1), simulations=200, training=learning, progress=False)
    found = amortise(release.query, release.mechanism, model, **how)
    with pytest.raises(ValueError, match="device='cuda' cannot be used here"):
        found.on("cuda")
