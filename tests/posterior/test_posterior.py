"Properties of Posterior that must hold for whatever draws and weights a method may hand it."

import json
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dpsbi.posterior import plots as plots
from dpsbi.posterior import posterior as posteriors_module
from dpsbi.posterior.plots import corner, curve
from dpsbi.posterior.posterior import Posterior, pack, unpack
from dpsbi.posterior.weights import kish, normalise, systematic

settings.register_profile(
    "dpsbi", deadline=None
)  # the first call also imports pandas or matplotlib
settings.load_profile("dpsbi")

finite = st.floats(-1e6, 1e6, allow_subnormal=False)
shapes = st.tuples(st.integers(1, 30), st.integers(1, 4))


@st.composite
def posteriors(draw, weighted=st.booleans()):
    "A posterior with any finite draws; weights equal, or from 1 down to e^-50, some of them zero."
    theta = draw(arrays(float, draw(shapes), elements=finite))
    if not draw(weighted):
        return Posterior(theta)
    log_weights = draw(arrays(float, len(theta), elements=st.floats(-50, 0)))
    log_weights[draw(arrays(bool, len(theta)))] = -np.inf
    log_weights[draw(st.integers(0, len(theta) - 1))] = 0.0
    return Posterior(theta, log_weights)


def scale(p):
    "What rounding errors of the moments are measured by."
    return 1e-9 * (1 + np.abs(p.theta).max())


def same(p, q):
    "Two clouds with the same moments, sizes and worth, up to rounding."
    np.testing.assert_allclose(p.mean(), q.mean(), rtol=0, atol=scale(p))
    np.testing.assert_allclose(
        p.cov(), q.cov(), rtol=0, atol=scale(p) * (1 + np.abs(p.theta).max())
    )
    assert p.ess == pytest.approx(q.ess, rel=1e-9)


@given(posteriors())
def test_shapes_and_ranges(p):
    n, d = p.theta.shape
    assert (len(p), p.dim, len(p.names)) == (n, d, d)
    assert p.weights.shape == (n,) and p.weights.sum() == pytest.approx(1, abs=1e-12)
    assert p.mean().shape == p.std().shape == p.mcse().shape == p.quantile(0.5).shape == (d,)
    assert (
        p.cov().shape == (d, d)
        and p.quantile([0.1, 0.5, 0.9]).shape == (3, d)
        and p.interval().shape == (d, 2)
    )
    assert 1 - 1e-9 <= p.ess <= n * (1 + 1e-9)
    assert list(p.summary().index) == list(p.names) and p.summary().shape == (d, 7)
    np.testing.assert_allclose(p.std() ** 2, np.diag(p.cov()), rtol=1e-9, atol=0)


@given(posteriors())
def test_quantiles_are_draws_that_count_and_rise(p):
    q = np.linspace(0, 1, 9)
    quantiles = p.quantile(q)
    assert (np.diff(quantiles, axis=0) >= 0).all()
    assert all(np.isin(quantiles[:, j], p.theta[p.weights > 0, j]).all() for j in range(p.dim))
    below = ((p.theta[None] <= quantiles[:, None]) * p.weights[None, :, None]).sum(axis=1)
    assert (below >= q[:, None] - 1e-12).all()  # the weight up to the quantile reaches q ...
    strictly = ((p.theta[None] < quantiles[:, None]) * p.weights[None, :, None]).sum(axis=1)
    assert (strictly <= q[:, None] + 1e-12).all()  # ... and the weight before it does not


@given(arrays(float, shapes, elements=finite), arrays(float, 5, elements=st.floats(0, 1)))
def test_equal_weights_agree_with_numpy(theta, q):
    expected = np.quantile(theta, q, axis=0, method="inverted_cdf")
    assert (Posterior(theta).quantile(q) == expected).all()
    assert (Posterior(theta, np.full(len(theta), -7.0)).quantile(q) == expected).all()


@pytest.mark.thorough
@given(posteriors(st.just(True)), st.floats(-1e4, 1e4))
def test_a_constant_added_to_log_weights_changes_nothing(p, constant):
    log_weights = np.log(p.weights, where=p.weights > 0, out=np.full(len(p), -np.inf))
    shifted = Posterior(p.theta, log_weights + constant)
    np.testing.assert_allclose(shifted.weights, p.weights, rtol=1e-9, atol=0)
    same(p, shifted)


@given(posteriors(), st.randoms(use_true_random=False))
def test_order_does_not_matter(p, random):
    order = np.array(random.sample(range(len(p)), len(p)))
    shuffled = Posterior(p.theta[order], None if p.log_weights is None else p.log_weights[order])
    same(p, shuffled)
    assert (p.quantile([0, 1]) == shuffled.quantile([0, 1])).all()


@given(arrays(float, shapes, elements=finite), st.data())
def test_a_draw_given_twice_is_a_draw_of_double_weight(theta, data):
    counts = data.draw(arrays(int, len(theta), elements=st.integers(0, 4)))
    counts[0] += 1
    with np.errstate(divide="ignore"):
        weighted = Posterior(theta, np.log(counts))
    repeated = Posterior(np.repeat(theta, counts, axis=0))
    np.testing.assert_allclose(weighted.mean(), repeated.mean(), rtol=0, atol=scale(weighted))
    np.testing.assert_allclose(
        weighted.cov(), repeated.cov(), rtol=0, atol=scale(weighted) * (1 + np.abs(theta).max())
    )
    total = counts.sum()
    q = np.r_[
        (np.arange(1, total) + 0.5) / total, np.arange(total + 1) / total
    ]  # between the steps, and on them
    assert (
        weighted.quantile(q)
        == np.sort(repeated.theta, axis=0)[
            np.maximum(np.ceil(np.round(q * total, 6)).astype(int) - 1, 0)
        ]
    ).all()


@given(posteriors(), st.integers(1, 50), st.integers(0, 2**32))
def test_resampling_takes_draws_as_often_as_they_weigh(p, n, seed):
    marked = Posterior(np.arange(len(p)), p.log_weights)
    counts = np.bincount(
        marked.resample(n, np.random.default_rng(seed)).theta[:, 0].astype(int), minlength=len(p)
    )
    expected = n * p.weights
    assert counts.sum() == n and not counts[p.weights == 0].any()
    assert (counts >= np.floor(expected - 1e-9)).all() and (
        counts <= np.ceil(expected + 1e-9)
    ).all()


@pytest.mark.parametrize("u", [0.0, np.nextafter(1, 0)])
def test_resampling_at_both_ends_of_the_uniform(u):
    class Ends:
        random = staticmethod(lambda: u)
        permutation = staticmethod(lambda indices: indices)

    assert (systematic(np.array([0.0, 0.25, 0.0, 0.75, 0.0]), 4, Ends()) == [1, 3, 3, 3]).all()


def test_kish_by_hand():
    assert kish(np.log([3.0, 1.0])) == pytest.approx(16 / 10, rel=1e-12)


@given(arrays(float, st.integers(1, 40), elements=st.floats(-1e300, 1e300)))
def test_normalising_twice_changes_nothing(log_weights):
    once = normalise(log_weights)
    assert (normalise(once) == once).all() and np.exp(once).sum() == pytest.approx(1, abs=1e-12)


jsonable = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.thorough
@given(
    posteriors(),
    st.dictionaries(st.text().filter(lambda key: key != "chains"), jsonable, max_size=3),
    st.data(),
)
def test_a_file_gives_back_every_bit(p, info, data):
    names = data.draw(st.lists(st.text(), min_size=p.dim, max_size=p.dim, unique=True))
    kept = Posterior(p.theta, p.log_weights, names, info)
    back = unpack(pack(kept))
    assert (
        back.theta.tobytes() == kept.theta.tobytes()
        and back.names == kept.names
        and back.info == kept.info
    )
    assert (back.log_weights is None) == (kept.log_weights is None)
    assert kept.log_weights is None or back.log_weights.tobytes() == kept.log_weights.tobytes()


@pytest.mark.thorough
@settings(max_examples=300)
@given(posteriors(), st.data())
def test_a_damaged_file_is_refused_or_read_never_worse(p, data):
    content = bytearray(pack(p))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = (
        bytes(content)[: data.draw(st.integers(0, len(content)))]
        if data.draw(st.booleans())
        else bytes(content)
    )
    try:
        assert isinstance(unpack(content, "damaged.npz"), Posterior)
    except ValueError as error:
        assert str(error).startswith("damaged.npz is not a posterior")


@given(st.binary(max_size=200))
def test_any_other_bytes_are_refused(content):
    with pytest.raises(ValueError, match="not a posterior"):
        unpack(content)


def test_nothing_in_a_file_is_executed(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (exec, ("raise SystemExit",))

    np.savez(
        tmp_path / "bomb.npz",
        theta=np.array([Bomb()], dtype=object),
        meta=np.array([Bomb()], dtype=object),
    )
    with pytest.raises(ValueError, match="allow_pickle"):
        Posterior.load(tmp_path / "bomb.npz")


@pytest.mark.parametrize(
    "meta",
    [
        [],
        {},
        {"format": "dpsbi.Posterior"},
        {"format": "dpsbi.Posterior", "version": 3, "names": ["a"], "info": {}},
        {"format": "dpsbi.Posterior", "version": 1, "names": [1], "info": {}},
        {"format": "dpsbi.Posterior", "version": 1, "names": ["a", "b"], "info": {}},
        {"format": "dpsbi.Posterior", "version": 1, "names": ["a"], "info": 3},
        {"format": "dpsbi.Posterior", "version": 1, "names": ["a"], "info": {"chains": "two"}},
    ],
)
def test_foreign_metadata_is_refused(meta, tmp_path):
    np.savez(
        tmp_path / "foreign.npz",
        theta=np.zeros((2, 1)),
        meta=np.frombuffer(json.dumps(meta).encode(), np.uint8),
    )
    with pytest.raises(ValueError, match="foreign.npz is not a posterior"):
        Posterior.load(tmp_path / "foreign.npz")


def test_a_file_that_claims_more_than_it_holds_is_refused(tmp_path):
    header = (
        b"\x93NUMPY\x01\x00v\x00"
        + b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 9), }".ljust(117)
        + b"\n"
    )
    with zipfile.ZipFile(tmp_path / "huge.npz", "w") as file:
        file.writestr("theta.npy", header)
    with pytest.raises(ValueError, match="huge.npz is not a posterior"):
        Posterior.load(tmp_path / "huge.npz")


def test_a_compressed_file_is_refused_before_it_swells(tmp_path):
    np.savez_compressed(
        tmp_path / "swells.npz",
        theta=np.zeros((100_000, 1)),
        meta=np.frombuffer(
            json.dumps(
                {"format": "dpsbi.Posterior", "version": 1, "names": ["a"], "info": {}}
            ).encode(),
            np.uint8,
        ),
    )
    with pytest.raises(ValueError, match="compressed"):
        Posterior.load(tmp_path / "swells.npz")


def test_a_missing_file_says_so(tmp_path):
    with pytest.raises(FileNotFoundError):
        Posterior.load(tmp_path / "nothing.npz")


@pytest.mark.parametrize(
    "theta",
    [
        [],
        np.empty((0, 3)),
        np.empty((3, 0)),
        1.0,
        np.zeros((2, 2, 2)),
        [np.nan],
        [np.inf],
        [[0.0], [-np.inf]],
        ["a"],
    ],
)
def test_bad_draws(theta):
    with pytest.raises(ValueError):
        Posterior(theta)


@pytest.mark.parametrize(
    "log_weights",
    [[], [0.0], 0.0, [[0.0], [0.0]], [0.0, np.nan], [0.0, np.inf], [-np.inf, -np.inf]],
)
def test_bad_weights(log_weights):
    with pytest.raises(ValueError):
        Posterior([1.0, 2.0], log_weights)


@pytest.mark.parametrize("names", ["ab", [], ["a"], ["a", "a"], ["a", 1], ["a", "b", "c"]])
def test_bad_names(names):
    with pytest.raises(ValueError):
        Posterior(np.zeros((3, 2)), names=names)


@pytest.mark.parametrize("chains", [0, -1, 3, 2.5, "two"])
def test_bad_chains(chains):
    with pytest.raises(ValueError):
        Posterior(np.arange(4), info=dict(chains=chains))


def test_chains_carry_no_weights():
    with pytest.raises(ValueError, match="equal weights"):
        Posterior([1.0, 2.0], [0.0, 1.0], info=dict(chains=2))


def test_a_chain_that_never_moved_is_worth_one_draw():
    assert Posterior(np.ones(100), info=dict(chains=2)).ess == 2


def test_it_is_a_value():
    theta, log_weights, info = np.zeros((3, 1)), np.array([0.0, 1.0, 2.0]), {"a": 1}
    p = Posterior(theta, log_weights, info=info)
    theta[:], log_weights[:], info["a"] = 9, 9, 9
    assert (p.theta == 0).all() and p.weights[2] > p.weights[0] and p.info == {"a": 1}
    for array in (p.theta, p.log_weights, p.weights):
        with pytest.raises(ValueError):
            array[0] = 1
    with pytest.raises(AttributeError):
        p.theta = theta


OUTLIERS = np.zeros((21, 2))  # two, that weigh little beside what is shown
OUTLIERS[[9, 14], [0, 1]] = -3.7e5, -4.9e5


@pytest.mark.thorough
@settings(max_examples=12)
@example(Posterior(OUTLIERS, np.where(OUTLIERS.any(1), -10.3, 0.0)))
@given(posteriors())
def test_every_cloud_can_be_drawn(p):
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    p = Posterior(p.theta[:, :2], p.log_weights)
    figure = p.plot(truth=p.mean(), others=[Posterior(p.theta)], size=0.7)
    assert len(figure.axes) == p.dim * (p.dim + 1) // 2
    for ax in figure.axes:  # no view runs far beyond the draws
        low, high = p.theta.min(), p.theta.max()
        reach = 0.2 * max(high - low, abs(low), abs(high), 1)
        assert low - reach <= ax.get_xlim()[0] <= ax.get_xlim()[1] <= high + reach
    plt.close(figure)


def test_what_a_subclass_adds_does_not_carry_over():
    rng = np.random.default_rng(0)

    class Named(Posterior):
        author = "somebody"

    draws = Named(rng.normal(size=(20, 1)))
    assert type(draws.resample(5, rng)) is Posterior
    assert type(draws.derive(double=lambda theta: 2 * theta[:, 0])) is Posterior


def test_parameters_by_name():
    draws = Posterior(np.arange(6.0).reshape(3, 2), np.log([0.2, 0.3, 0.5]), ("a", "b"))
    assert draws["b"].tolist() == [1, 3, 5]
    with pytest.raises(KeyError, match="they are a, b"):
        draws["c"]
    frame = draws.to_frame()
    assert list(frame) == ["a", "b", "weight"] and np.allclose(frame.weight, [0.2, 0.3, 0.5])
    assert list(Posterior(draws.theta).to_frame()) == list(Posterior(draws.theta).names)
    found = draws.derive(ratio=lambda b, a: b - a, whole=lambda theta: theta.sum(axis=1))
    assert found["ratio"].tolist() == [1, 1, 1] and found["whole"].tolist() == [1, 5, 9]
    assert np.array_equal(found.weights, draws.weights)


def test_no_error_is_told_beside_a_result_that_is_not_exact():
    theta = np.random.default_rng(1).normal(size=(400, 1))
    for exact, told in ((True, True), (None, True), (False, False)):
        info = {"chains": 4} | ({} if exact is None else {"exact": exact})
        assert ("mcse" in Posterior(theta, None, ("a",), info).summary()) is told


def test_arviz_gets_groups_as_either_of_its_lines_takes_them(monkeypatch):
    class Old:
        __version__ = "0.23.4"

        @staticmethod
        def from_dict(posterior):
            return {"posterior": posterior}

    class New:
        __version__ = "1.3.0"

        @staticmethod
        def from_dict(data):
            return data

    chains = Posterior(np.arange(24.0).reshape(12, 2), names=("a", "b"), info=dict(chains=3))
    for line in (Old, New):
        monkeypatch.setattr(posteriors_module, "arviz_library", lambda line=line: line)
        data = chains.to_arviz()
        assert list(data) == ["posterior"] and list(data["posterior"]) == ["a", "b"]
        assert (data["posterior"]["b"] == np.arange(1.0, 24, 2).reshape(3, 4)).all()


def test_a_picture_needs_no_more_than_draws_weights_and_names():
    rng = np.random.default_rng(1)
    theta, log_weights = rng.normal(size=(500, 3)), rng.normal(size=500)
    whole = Posterior(theta, log_weights, ("a", "b", "c"))
    plain = SimpleNamespace(theta=theta, weights=whole.weights, names=whole.names)
    for draw in (corner, curve):
        one, other = draw(whole, others=[whole]), draw(plain, others=plain)
        for left, right in zip(one.axes, other.axes):
            for a, b in zip(left.lines, right.lines):
                assert np.allclose(a.get_xydata(), b.get_xydata())
        with pytest.raises(TypeError, match="must be posteriors, not int"):
            draw(plain, others=[1])


# ---- the parts of pictures
def test_a_draw_shares_its_weight_among_the_nearest_points():
    grid = plots._bin(np.array([[0.25]]), np.ones(1), [0.0], [4.0], 5)
    assert np.allclose(grid, [0.75, 0.25, 0, 0, 0])


def test_a_density_does_not_fall_towards_an_edge():
    theta = np.linspace(0, 1, 20_001)[:, None]
    _, density = plots.smooth(theta, np.full(20_001, 1 / 20_001), 20_001, 100)
    assert density[0] > 0.9 * density[50] and density[-1] > 0.9 * density[50]


def test_lines_of_another_posterior_are_its_95_percent_intervals():
    from matplotlib import pyplot as plt

    theta = np.linspace([0, 0], [1, 2], 2001)
    _, ax = plt.subplots()
    plots._lines(ax, np.arange(2), {"other": Posterior(theta, names=("a", "b"))})
    low = ax.lines[1].get_ydata()
    plt.close()
    assert np.allclose(low, [0.025, 0.05], atol=0.002)
