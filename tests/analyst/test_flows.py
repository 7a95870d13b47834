"""Conditional flows: arrays in and out, seeds, and what they refuse."""

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import torch
from scipy import stats

from dpsbi.analyst.neural import flow as curves
from dpsbi.analyst.neural.flow import Additive, Spline, inverse, spline_layers, through
from dpsbi.analyst.neural.training import (
    PRESETS,
    ConditionalFlow,
    Descent,
    Ensemble,
    Shape,
    bent,
    fit,
    fit_scaling,
)
from dpsbi.analyst.neural.training_data import FEATURE_KNOTS, products

SMALL = Shape(layers=2, hidden=8, blocks=1, bins=4)


def pairs(d, r, n=400):
    def draw(rng):
        c = rng.normal(size=(n, r))
        return c[:, :1] + rng.normal(size=(n, d)), c

    return draw


def small(d=2, r=3, seed=0, **options):
    draw = pairs(d, r)
    return fit(
        draw,
        draw(np.random.default_rng(99)),
        rng=np.random.default_rng(seed),
        flow=SMALL,
        descent=Descent(10, every=5),
        progress=False,
        **options,
    )


@pytest.mark.parametrize("d, r", [(1, 1), (1, 3), (2, 1), (4, 2)])
def test_sample_and_density_belong_together(d, r):
    flow, c = small(d, r).flow, np.full(r, 0.3)
    x = flow.sample(2000, c, np.random.default_rng(1))
    assert x.shape == (2000, d) and np.isfinite(flow.log_prob(x, c)).all()
    wide = flow.sample(2000, c, np.random.default_rng(2), inflate=2.0)
    ratio = np.exp(
        flow.log_prob(wide, c) - flow.log_prob(wide, c, inflate=2.0)
    )  # has mean one; bounded by 2^d
    assert abs(ratio.mean() - 1) < 5 * ratio.std() / 2000**0.5


def test_one_context_or_one_for_each_row_give_the_same():
    flow, c = small().flow, np.array([0.1, -0.2, 0.5])
    x = flow.sample(7, c, np.random.default_rng(1))
    assert np.allclose(x, flow.sample(7, np.tile(c, (7, 1)), np.random.default_rng(1)), atol=1e-12)
    assert np.allclose(flow.log_prob(x, c), flow.log_prob(x, np.tile(c, (7, 1))), atol=1e-12)


def test_a_seed_decides_and_global_state_stays():
    before, numbers = torch.random.get_rng_state(), np.random.get_state()[1].copy()
    a, b, c = small(seed=1), small(seed=1), small(seed=2)
    assert np.array_equal(a.held_out, b.held_out) and not np.array_equal(a.held_out, c.held_out)
    assert torch.equal(before, torch.random.get_rng_state()) and np.array_equal(
        numbers, np.random.get_state()[1]
    )


def test_files(tmp_path):
    flow = small().flow
    flow.save(tmp_path / "a.npz")
    x = np.zeros((3, 2))
    assert np.array_equal(
        ConditionalFlow.load(tmp_path / "a.npz").log_prob(x, np.zeros(3)),
        flow.log_prob(x, np.zeros(3)),
    )
    np.savez(tmp_path / "b.npz", about=np.array('{"format": "else", "version": 1}'))
    with pytest.raises(ValueError, match="not the arrays of a flow"):
        ConditionalFlow.load(tmp_path / "b.npz")
    with pytest.raises(FileNotFoundError):
        ConditionalFlow.load(tmp_path / "c.npz")


def test_an_ensemble_is_the_mean_density():
    a, b = small(seed=1).flow, small(seed=2).flow
    x, c = np.random.default_rng(0).normal(size=(20, 2)), np.zeros(3)
    both = Ensemble((a, b))
    assert np.allclose(
        np.exp(both.log_prob(x, c)), (np.exp(a.log_prob(x, c)) + np.exp(b.log_prob(x, c))) / 2
    )
    assert both.sample(1, c, np.random.default_rng(0)).shape == (1, 2)
    with pytest.raises(ValueError, match="no flow"):
        Ensemble.from_arrays({})


def test_weights_count_as_copies():
    rng = np.random.default_rng(0)
    x, c = rng.normal(size=(50, 2)), rng.normal(size=(50, 2))
    k = rng.integers(1, 4, size=50)
    a, b = fit_scaling(x, c, k), fit_scaling(np.repeat(x, k, 0), np.repeat(c, k, 0))
    assert np.allclose(a.factor, b.factor) and np.allclose(np.abs(a.whiten), np.abs(b.whiten))


def of_counts(pairs: int, values: int):
    "Log rates (pairs, 1), and so many noisy counts of each."
    rng = np.random.default_rng(1)
    rate = rng.gamma(3, 4, size=(pairs, 1))
    return np.log(rate), rng.poisson(rate, size=(pairs, values)) + 3 * rng.normal(
        size=(pairs, values)
    )


def test_a_start_shows_bent_contexts_straight_too_in_what_they_share():
    x, c = of_counts(3000, 10)
    scaling = fit_scaling(x, c, noise=np.full(10, 3.0), plain=True)
    curved = np.flatnonzero(scaling.bend[:10] > 0)
    assert len(curved) > 5 and scaling.source.tolist() == [*range(10), *curved]
    assert (scaling.bend[10:] == 0).all() and scaling.width == 10
    assert len(scaling.slope) == scaling.whiten.shape[1] == 12  # no products
    views = bent(c[:, scaling.source], scaling.origin, scaling.bend)
    assert np.allclose(scaling.white(c), (views - scaling.centre) @ scaling.whiten)
    near, shared = scaling.white(c)[:, :10], scaling.white(c)[:, 10:]
    assert np.allclose(np.cov(near.T), np.eye(10), atol=1e-2)
    assert np.allclose(np.cov(shared.T), np.eye(2), atol=1e-2)
    ours = np.column_stack([np.ones(3000), shared])
    left = x - ours @ np.linalg.lstsq(ours, x, rcond=None)[0]
    everything = np.column_stack([np.ones(3000), views])
    least = x - everything @ np.linalg.lstsq(everything, x, rcond=None)[0]
    assert left.std() < 1.05 * least.std()  # two numbers for twenty


def test_contexts_that_share_nothing_have_one_view_each():
    rng = np.random.default_rng(1)
    x = rng.normal(2, 1, size=(3000, 6))
    c = rng.poisson(np.exp(x)) + 2 * rng.normal(size=(3000, 6))
    scaling = fit_scaling(x, c, noise=np.full(6, 2.0), plain=True)
    assert (scaling.bend > 0).all() and len(scaling.source) == scaling.whiten.shape[1] == 6


def test_bends_are_those_of_the_contexts_that_count():
    x, c = of_counts(8000, 2)
    c[:5000] = np.random.default_rng(2).normal(12, 5, size=(5000, 2))  # they weigh nothing
    weights = (np.arange(8000) >= 5000).astype(float)
    noise = np.full(2, 3.0)
    weighed = fit_scaling(x, c, weights, noise)
    alone = fit_scaling(x[5000:], c[5000:], None, noise)
    assert (alone.bend > 0).all() and np.allclose(weighed.bend, alone.bend, rtol=0.5)


def test_a_start_stays_straight_where_bends_tell_no_more():
    rng = np.random.default_rng(1)
    c = rng.standard_t(3, size=(3000, 4))
    x = c.sum(axis=1, keepdims=True) + rng.normal(size=(3000, 1))
    noise = np.full(4, 0.1)
    assert (fit_scaling(x, c, noise=noise).bend > 0).all()
    assert (fit_scaling(x, c, noise=noise, plain=True).bend == 0).all()


def test_a_flow_with_two_views_survives_its_file(tmp_path):
    x, c = of_counts(3000, 40)
    scaling = fit_scaling(x, c, noise=np.full(40, 3.0), plain=True)
    assert len(scaling.source) > 40
    how = dict(flow=SMALL, scaling=scaling, descent=Descent(5), progress=False)
    flow = fit(lambda g: (x, c), (x, c), rng=np.random.default_rng(0), **how).flow
    flow.save(tmp_path / "flow.npz")
    again = ConditionalFlow.load(tmp_path / "flow.npz")
    assert np.array_equal(again.log_prob(x[:50], c[:50]), flow.log_prob(x[:50], c[:50]))
    with pytest.raises(ValueError, match="the context must have shape"):
        again.log_prob(x[:50], c[:50, :3])


def test_flows_of_former_versions_are_read_and_go_on():
    x, c = of_counts(500, 3)
    how = dict(descent=Descent(5), progress=False)
    flow = fit(lambda g: (x, c), (x, c), rng=np.random.default_rng(0), **how).flow
    assert not any(name.startswith("additive.") for name in flow.weights)
    g, dims = np.random.default_rng(1), (1, flow.scaling.whiten.shape[1])
    shapes = {k: tuple(v.shape) for k, v in Additive(*dims).state_dict().items()}
    sums = {f"additive.{k}": g.normal(size=s).astype(np.float32) for k, s in shapes.items()}
    former = replace(flow, weights=flow.weights | sums)
    layer = Additive(*dims).double()
    layer.load_state_dict({k: torch.as_tensor(sums[f"additive.{k}"]) for k in shapes})

    def of_version(flow, k):
        kept = flow.arrays()
        about = np.array(str(kept["about"]).replace('"version": 5', f'"version": {k}'))
        return kept | dict(about=about)

    again = ConditionalFlow.from_arrays(of_version(former, 4))
    u = torch.as_tensor(flow.scaling.features(c))
    left = (flow.scaling.units(x) - flow.scaling.expected(u.numpy())) / flow.scaling.factor[0, 0]
    e, log_det = layer(torch.as_tensor(left), u)
    moved = flow.scaling.expected(u.numpy()) + e.detach().numpy() * flow.scaling.factor[0, 0]
    at = flow.scaling.middle + flow.scaling.spread * moved
    by_hand = flow.log_prob(at, c) + log_det.detach().numpy()
    assert np.allclose(again.log_prob(x, c), by_hand)
    assert not np.allclose(again.log_prob(x, c), flow.log_prob(x, c))
    later = ConditionalFlow.from_arrays(again.arrays())  # written anew
    assert np.array_equal(later.log_prob(x, c), again.log_prob(x, c))
    draws = again.sample(500, c[0], np.random.default_rng(2))
    noise = again.net.noise(torch.as_tensor(flow.scaling.units(draws)), u[:1].expand(500, -1))[0]
    assert np.allclose(noise.detach(), np.random.default_rng(2).standard_normal((500, 1)))
    more = fit(lambda g: (x, c), (x, c), rng=np.random.default_rng(0), start=again, **how).flow
    assert more.weights.keys() == former.weights.keys()
    with pytest.raises(ValueError, match="this version can read"):
        ConditionalFlow.from_arrays(of_version(flow, 4))  # these had sums
    three = of_version(flow, 3)
    two = {k: part for k, part in of_version(flow, 2).items() if k != "scaling.source"}
    for before in (three, two):
        assert np.array_equal(
            ConditionalFlow.from_arrays(before).log_prob(x, c), flow.log_prob(x, c)
        )
    with pytest.raises(ValueError, match="this version can read"):
        ConditionalFlow.from_arrays(two | dict(about=of_version(flow, 1)["about"]))


def test_a_context_that_never_varies_is_no_obstacle():
    def draw(rng):
        return rng.normal(3, 2, size=(400, 1)), np.full((400, 2), 7.0)

    flow = fit(
        draw,
        draw(np.random.default_rng(1)),
        rng=np.random.default_rng(0),
        flow=SMALL,
        descent=Descent(10),
        progress=False,
    ).flow
    x = flow.sample(4000, [7.0, 7.0], np.random.default_rng(2))[:, 0]
    assert stats.kstest(x, stats.norm(3, 2).cdf).statistic < 0.15


def test_refusals():
    draw = pairs(2, 1)
    held_out = draw(np.random.default_rng(0))
    for wrong in (dict(flow="slow"), dict(flow=3)):
        with pytest.raises(ValueError, match="fast, paper"):
            fit(draw, held_out, rng=np.random.default_rng(0), progress=False, **wrong)
    with pytest.raises(ValueError, match="pairs must be"):
        fit(draw, (np.zeros(3), np.zeros(3)), rng=np.random.default_rng(0), progress=False)
    with pytest.raises(FloatingPointError):
        fit(
            draw,
            (np.full((5, 2), np.nan), np.zeros((5, 1))),
            rng=np.random.default_rng(0),
            flow=SMALL,
            descent=Descent(3),
            progress=False,
        )
    assert PRESETS["paper"] == Shape(8, 50, 2, 10, 5.0)


def test_where_the_first_steps_only_harm_training_goes_back_to_the_start_with_smaller_ones():
    g = np.random.default_rng(1)
    few, held_out = (
        (g.normal(size=(40, 2)), g.normal(size=(40, 1))),
        (g.normal(size=(2000, 2)), g.normal(size=(2000, 1))),
    )  # nothing to learn but noise
    scaling = fit_scaling(*held_out)
    once = fit(
        lambda g: few,
        held_out,
        rng=np.random.default_rng(2),
        scaling=scaling,
        descent=Descent(400, learning_rate=0.05, patience=3, every=10),
        progress=False,
    )
    assert once.steps[0] == 0 and once.best <= once.held_out[0]
    first = once.held_out[1:4] - once.held_out[0]  # three checks, all worse: back to the start
    assert (
        once.steps[-1] >= 60
        and (first > 0).all()
        and once.held_out[4] - once.held_out[0] < first[0] / 2
    )


@pytest.mark.parametrize("dim, blocks", [(1, 1), (2, 2), (3, 1)])
def test_gradients_by_hand_are_those_of_automatic_differentiation(dim, blocks):
    g = torch.Generator().manual_seed(dim)
    layers = spline_layers(dim, 3, Shape(layers=3, hidden=8, blocks=blocks, bins=4), dim)
    for p in layers.parameters():
        p.data += 0.3 * torch.randn(p.shape, generator=g)
    x, u = 3 * torch.randn(50, dim, generator=g), torch.randn(50, 3, generator=g)
    by = [torch.randn(50, dim, generator=g), torch.randn(50, generator=g)]
    found = []
    for f in (through, lambda layers, x, u: layers(x, u)):
        layers.zero_grad()
        at = x.clone().requires_grad_()
        e, log_det = f(layers, at, u)
        torch.autograd.backward([e, log_det], by)
        slopes = [p.grad.clone() for p in layers.parameters()]
        found.append([e.detach(), log_det.detach(), at.grad, *slopes])
    assert (x.abs() > 5).any() and (x.abs() < 5).any()  # the tails too
    for mine, theirs in zip(*found):
        assert torch.allclose(mine, theirs, rtol=1e-3, atol=1e-3 * float(theirs.abs().max()))


@pytest.mark.parametrize("kind, most", [("d", 1e-9), ("f", 2e-3)])
@pytest.mark.parametrize("k", [2, 5, 8])
def test_the_package_s_curves_are_the_compiled_ones(k, kind, most):
    "Values, slopes and derivatives, within the bounds and beyond; and the inverse undoes them."
    rng, bound = np.random.default_rng(k), 3.0
    x, raw = 3 * rng.normal(size=(200, 2)), 0.7 * rng.normal(size=(200, 2, 3 * k - 1))
    x, raw, by = x.astype(kind), raw.astype(kind), rng.normal(size=(2, 200, 2)).astype(kind)
    assert 0.1 < (abs(x) > bound).mean() < 0.9
    *compiled, sizes, bins, local = curves.spline_forward(x, raw, bound)
    compiled += curves.spline_backward(*by, bound, sizes, bins, local)
    layer = Spline([1, 1], lambda i, o: torch.nn.Identity(), k, "linear", bound)
    layer.transform_net.hidden_features = 1  # numbers as they are
    given = [torch.as_tensor(a).requires_grad_() for a in (x, raw)]
    with mock.patch("dpsbi.analyst.neural.flow._on_processor", lambda x: False):
        found = layer._piecewise_cdf(*given)
        torch.autograd.backward(found, [torch.as_tensor(a) for a in by])
        tensors = [each.detach().numpy() for each in (*found, given[0].grad, given[1].grad)]
        for ours, theirs in zip(tensors, compiled, strict=True):
            assert ours.dtype == kind and np.abs(ours - theirs).max() < most
        y, slope = (each.detach() for each in found)
        with torch.no_grad():
            again, back_slope = layer._piecewise_cdf(y, given[1].detach(), inverse=True)
    assert np.abs(again.numpy() - x).max() < most and (slope + back_slope).abs().max() < most
    compiled = curves.spline_inverse(y.numpy(), raw, bound)
    for ours, theirs in zip(compiled, (again, back_slope), strict=True):
        assert ours.dtype == kind and np.abs(ours - theirs.numpy()).max() < most


def test_numbers_that_are_not_finite_come_out_as_nan_and_have_a_way_back():
    layers = spline_layers(2, 1, SMALL, 1)
    for p in layers.parameters():
        p.data *= torch.nan
    e, log_det = layers(torch.zeros(3, 2), torch.zeros(3, 1))
    (e.sum() + log_det.sum()).backward()
    assert e.isnan().any() and log_det.isnan().all()


def test_layers_without_gradients_are_those_with_them():
    "The compiled curves against nflows' own, there and back, within the bounds and beyond."
    for dim in (1, 3):
        layers, rng = spline_layers(dim, 2, PRESETS["fast"], dim).double(), np.random.default_rng(1)
        for p in layers.parameters():
            p.data += 0.1 * torch.as_tensor(rng.normal(size=p.shape))
        x, u = (torch.as_tensor(3 * rng.normal(size=(200, k))) for k in (dim, 2))
        assert (x.abs() > 5).any()
        with torch.no_grad():
            compiled = layers(x, u)
        e, log_det = (each.detach() for each in layers(x, u))
        for ours, theirs in zip(compiled, (e, log_det), strict=True):
            assert torch.allclose(ours, theirs, rtol=0, atol=1e-9)
        assert torch.allclose(inverse(layers, e, u), x, rtol=0, atol=1e-7)


def of_products(n, k, seed=1):
    "Parameters (n, 2) that are products of contexts (n, k), and the contexts."
    rng = np.random.default_rng(seed)
    c = rng.normal(size=(n, k))
    x = np.stack([c[:, 0] * c[:, 1], c[:, 1] ** 2], axis=1)
    return x + 0.1 * rng.normal(size=x.shape), c


def test_products_of_features_need_no_array_of_them():
    x, c = of_products(3000, 4)
    scaling = fit_scaling(x, c, noise=np.full(4, 0.1))
    assert scaling.slope.shape == (14, 2)
    u = scaling.features(c)
    lifted = np.concatenate([u, products(u)], axis=1)
    np.testing.assert_allclose(scaling.expected(u), scaling.intercept + lifted @ scaling.slope)


@pytest.mark.parametrize("k, kept", [(4, 14), (30, 30)])
def test_an_array_of_products_is_bounded(k, kept):
    "By some of the pairs where these are enough, and else by no products."
    x, c = of_products(8000, k)
    made = []

    def counted(u):
        made.append(products(u))
        return made[-1]

    with mock.patch.multiple(
        "dpsbi.analyst.neural.training_data", _MAX_PRODUCTS=30_000, products=counted
    ):
        scaling = fit_scaling(x, c, noise=np.full(k, 0.1))
    assert len(scaling.slope) == kept
    assert all(each.size <= 30_000 for each in made) and len(made) == (kept > k)
    every = fit_scaling(x, c, noise=np.full(k, 0.1))
    if kept > k:
        left = np.abs(scaling.expected(scaling.features(c)) - every.expected(every.features(c)))
        assert left.max() < 0.2


def test_sums_shift_and_stretch_and_are_undone():
    layer, rng = Additive(3, 4).double(), np.random.default_rng(1)
    for p in layer.parameters():
        p.data += torch.as_tensor(rng.normal(size=p.shape))
    x, u = (torch.as_tensor(rng.normal(size=(50, k))) for k in (3, 4))
    e, log_det = layer(x, u)
    assert torch.allclose(layer.inverse(e, u), x)
    jacobian = torch.autograd.functional.jacobian(lambda row: layer(row[None], u[:1])[0][0], x[0])
    assert torch.isclose(torch.linalg.slogdet(jacobian)[1], log_det[0])
    last = Additive(1, 1)
    last.bends.data[-1] = 1.0
    moved = last.sums(torch.tensor([[-5.0], [FEATURE_KNOTS[-1]], [5.0]]))[0][:, 0]
    assert not moved[:2].any() and moved[2] > 0  # a piece begins at its own place


def test_features_are_near_contexts_of_their_own():
    rng = np.random.default_rng(1)
    c = rng.normal(size=(2000, 6))
    c[:, 1] += 0.5 * c[:, 0]
    x = np.abs(c)  # which sums of functions of single contexts tell
    u = start(x, c).features(c)
    near = np.corrcoef(u.T, c.T)[:6, 6:]
    assert np.diag(near).min() > 0.95
    doubled = np.column_stack([c, c[:, 0]])
    u = start(x, doubled).features(doubled)
    near = np.corrcoef(u.T, doubled.T)[:6, 6:]
    assert u.shape == (2000, 6) and near.max(axis=1).min() > 0.95


def test_features_are_components_where_these_say_more():
    rng = np.random.default_rng(1)
    axes = stats.ortho_group(6).rvs(random_state=1)
    score = rng.normal(size=(2000, 6)) * np.sqrt([2.0, 1.6, 1.2, 0.8, 0.3, 0.1])
    c = score @ axes.T
    u = start(np.abs(score), c).features(c)
    near = np.abs(np.corrcoef(u.T, score.T)[:6, 6:])
    assert u.shape == (2000, 6) and (near.max(axis=1) > 0.9).sum() >= 3


def test_a_start_counts_simulations_and_not_pairs():
    rng = np.random.default_rng(1)
    few, weights = rng.normal(size=(60, 12)), rng.normal(size=(12, 2))
    x = np.repeat(few @ weights + np.abs(few) @ weights, 50, axis=0)
    c = np.repeat(np.sinh(2 * few), 50, axis=0) + 0.1 * rng.normal(size=(3000, 12))
    by_pairs, by_simulations = start(x, c), start(x, c, simulations=60)
    assert by_simulations.whiten.shape[1] < by_pairs.whiten.shape[1]
    assert np.array_equal(start(x, c, simulations=3000).whiten, by_pairs.whiten)


def start(x, c, **more):
    "That of a network for every release."
    return fit_scaling(x, c, noise=np.full(c.shape[1], 0.1), plain=True, **more)
