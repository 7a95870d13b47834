"""SPPE: every mechanism, every support, and the exactness of what it hands on."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats
from threadpoolctl import threadpool_info, threadpool_limits

from dpsbi import mechanisms
from dpsbi.analyst.neural import training as module
from dpsbi.analyst.neural import training_data as pairs_room
from dpsbi.analyst.neural.amortise import Estimator, amortise
from dpsbi.analyst.neural.sple import sple
from dpsbi.analyst.neural.sppe import NeuralRounds, sppe
from dpsbi.analyst.neural.training import _CORRECTIONS, FittedFlow, Learning, Shape, Training
from dpsbi.analyst.neural.training_data import Pairs, temper
from dpsbi.mechanisms import BinomialResponse, DiscreteLaplace, Gaussian, Laplace, Release
from dpsbi.models.model import Model
from dpsbi.models.prior import Prior
from dpsbi.posterior.posterior import Posterior
from dpsbi.posterior.weights import kish
from dpsbi.privacy import Query, identity

TINY = dict(
    rounds=2,
    simulations=150,
    training=Training(steps=5, final_steps=5, members=2, flow=Shape(layers=2, hidden=8)),
    draws=200,
    progress=False,
)


def shares(mechanism, s_dp):
    "A Dirichlet prior of three shares; the query counts 50 people in each."
    model = Model(
        Prior(p=stats.dirichlet([2, 2, 2])), lambda theta, rng: rng.multinomial(50, theta)
    )
    return Release(s_dp, Query(identity, 2, step=1, dim=3), mechanism), model


NOISES = [
    (Laplace(2.0), [9.5, 21, 22]),
    (Gaussian(2.0), [9.5, 21, 22]),
    (DiscreteLaplace(2.0), [9, 21, 22]),
    (BinomialResponse(100, 5, 50), [20, 40, 42]),
]
# every mechanism and every correction; their other pairs are slow
PAIRED = [
    pytest.param(*noise, correction, marks=[pytest.mark.slow] * ((i + j) % 3 > 0))
    for i, noise in enumerate(NOISES)
    for j, correction in enumerate(_CORRECTIONS)
]


@pytest.mark.thorough
@pytest.mark.parametrize("mechanism, s_dp, correction", PAIRED)
def test_draws_stay_in_the_support_for_every_mechanism(mechanism, s_dp, correction):
    release, model = shares(mechanism, s_dp)
    how = TINY | dict(training=replace(TINY["training"], correction=correction))
    posterior = sppe(release, model, rng=np.random.default_rng(1), **how)
    assert (
        posterior.theta.shape == (200, 3)
        and np.allclose(posterior.theta.sum(1), 1)
        and (posterior.theta > 0).all()
    )
    assert np.isfinite(posterior.log_prob(posterior.theta)).all()
    assert posterior.info["simulations"] == len(posterior.simulations) == 300


def test_a_smooth_mechanism_whose_query_is_wider_than_its_release():
    model = Model(
        Prior(a=stats.norm(0, 2)),
        lambda theta, rng: np.column_stack(
            [rng.normal(theta[:, 0], 0.3), np.full(len(theta), 0.5)]
        ),
    )
    release = Release(
        [1.0], Query(identity, 1, smoothness=0.1, dim=2), mechanisms.SmoothLaplace(1.0, floor=0.5)
    )
    posterior = sppe(release, model, rng=np.random.default_rng(1), **TINY)
    assert posterior.dim == 1 and posterior.simulations.s.shape == (300, 2)


def test_the_simulations_carry_exact_weights():
    model = Model(Prior(a=stats.norm(0, 2)), lambda theta, rng: rng.normal(theta, 0.5))
    release = Release([1.0], Query(identity, 1, norm="l2"), Gaussian(1.0))
    sims = sppe(
        release, model, rng=np.random.default_rng(3), **(TINY | dict(rounds=4, simulations=500))
    ).simulations
    exact = Posterior(model.prior.from_unconstrained(sims.z), sims.log_weights)
    precision = 1 / 4 + 1 / 1.25
    assert abs(exact.mean()[0] - (1 / 1.25) / precision) < 5 * exact.mcse()[0]
    evidence = np.exp(sims.log_weights)
    assert (
        abs(evidence.mean() - stats.norm(0, np.sqrt(5.25)).pdf(1.0))
        < 5 * evidence.std() / len(sims) ** 0.5
    )
    assert (
        sims.log_u.max() <= np.log(4 / 1.3) + 1e-9
    )  # the prior's share of all draws: one round and three tenths of one, of four


def test_failed_simulations_are_left_out():
    def simulate(theta, rng):
        s = rng.normal(theta, 0.5)
        s[::10] = np.nan
        return s

    model, release = (
        Model(Prior(a=stats.norm(0, 2)), simulate),
        Release([1.0], Query(identity, 1, norm="l2"), Gaussian(1.0)),
    )
    with pytest.warns(UserWarning, match="not finite"):
        posterior = sppe(release, model, rng=np.random.default_rng(1), **TINY)
    assert (
        posterior.info["failed"] >= 30
        and np.isneginf(posterior.simulations.log_weights).sum() == posterior.info["failed"]
    )


def test_a_release_that_no_simulation_resembles_is_said_to_be_far():
    model, release = (
        Model(Prior(a=stats.norm(0, 1)), lambda theta, rng: theta),
        Release([500.0], Query(identity, 1), Laplace(0.1)),
    )
    with pytest.warns(UserWarning, match="extrapolation"):
        sppe(release, model, rng=np.random.default_rng(1), **(TINY | dict(rounds=1)))


def test_rounds_go_back_to_the_prior_where_no_weight_would_be_left(tmp_path):
    "Thirty parameters, thirty sharp values: near the release, a draw of the prior outweighs all."
    prior = Prior(**{f"z_{j}": stats.norm(0, 1) for j in range(30)})
    model = Model(prior, lambda theta, rng: rng.normal(theta, 0.2))
    release = Release(np.linspace(-1, 1, 30), Query(identity, 1), Gaussian(0.05))
    flow = Shape(layers=1, hidden=8, bins=4)
    training = Training(steps=20, final_steps=20, members=2, flow=flow)
    how = dict(simulations=800, training=training, draws=200, progress=False)
    run = lambda rounds, **where: sppe(  # noqa: E731
        release, model, rng=np.random.default_rng(1), rounds=rounds, **how, **where
    )
    with pytest.warns(UserWarning, match="later rounds drew from the prior"):
        found = run(4)
    assert found.info["inflate_by_round"][-1] == np.inf
    last = found.simulations.take(slice(-720, None))
    assert stats.kstest(last.z.ravel(), "norm").pvalue > 1e-6  # its rate of false alarms
    assert np.allclose(np.exp(last.log_u), 4 / 3.1, rtol=0.01)  # 3.1 of 4 rounds drew from it
    expected, sd = release.s_dp / (1 + 0.2**2 + 0.05**2), (1 - 1 / (1 + 0.2**2 + 0.05**2)) ** 0.5
    assert np.abs(found.mean() - expected).max() < 1.5 * sd
    with pytest.warns(UserWarning, match="later rounds drew from the prior"):
        run(3, checkpoint=tmp_path / "kept.npz")
        resumed = run(4, checkpoint=tmp_path / "kept.npz")
    assert np.array_equal(resumed.theta, found.theta)


@pytest.mark.parametrize("features, free, needed", [(30, 10, 30), (5, 50, 15), (18, 18, 54)])
def test_what_is_near_is_counted_by_features_or_parameters_whichever_are_fewer(
    features, free, needed
):
    scaling = SimpleNamespace(whiten=np.zeros((40, features)))
    at = [SimpleNamespace(worth=needed + more, scaling=scaling) for more in (-0.5, 0.5)]
    assert [module._lost(near, free) for near in at] == [True, False]


@pytest.mark.parametrize("n, partners", [(2000, 1), (20_000, 7), (30_000, 7)])
def test_a_pool_of_contexts_costs_no_more_than_so_much(n, partners):
    "Twenty-four values, of which a context is near one simulation alone."
    rng = np.random.default_rng(1)
    s = rng.normal(0, 5, (n, 24))
    noise, s_dp = Gaussian(0.2), np.zeros(24)
    none, log_eta = np.zeros(n), noise.log_prob(s_dp, s)
    sims = module.Simulations(s[:, :1], s, none, none, log_eta)
    how = SimpleNamespace(draws=4, correction="importance", training=SimpleNamespace(noise="sobol"))
    pairs = module._pairs(noise, s_dp, sims, how, None, 0.0, rng)
    assert pairs.partners == partners
    contexts = module.POOL_PAIRS / partners
    assert (
        partners == 1
        or contexts * min(n, module.MAX_POOL_SIMULATIONS) * 24 < 1.2 * module._MAX_POOL_DENSITIES
    )


def test_with_few_parameters_rounds_never_go_back():
    scaling = SimpleNamespace(whiten=np.zeros((40, 30)))
    nothing = SimpleNamespace(worth=1.0, scaling=scaling)
    assert [module._lost(nothing, free) for free in (2, 9, 10)] == [False, False, True]


def test_temper_finds_the_power():
    rng = np.random.default_rng(0)
    log_eta = -0.5 * rng.normal(0, 30, 1000) ** 2
    power = temper(np.zeros(1000), log_eta, 200)
    assert kish(power * log_eta) == pytest.approx(200, rel=1e-3)
    assert temper(np.zeros(1000), 0.01 * log_eta / np.ptp(log_eta), 200) == 1.0
    assert temper(np.zeros(3), np.full(3, -np.inf), 2) == 0.0


@pytest.mark.parametrize(
    "wanted, least, found", [(600, 600, 600), (1200, 200, 871), (1200, None, 0)]
)
def test_the_power_is_looked_for_beyond_a_dip_of_the_effective_size(wanted, least, found):
    rng = np.random.default_rng(1)
    far = -np.exp(rng.uniform(4, 12, 1500))  # of the prior: few, of much weight
    log_eta = np.r_[far, -rng.chisquare(10, 1000)]
    log_u = np.r_[np.zeros(1500), np.full(1000, -4.5)]

    def size(power):
        return kish(log_u + power * log_eta)

    power = temper(log_u, log_eta, wanted, least)
    if not found:  # the second peak is less than what is wanted
        assert power < 0.001 and size(power) == pytest.approx(wanted, rel=1e-3)
    else:
        assert power > 0.1 and size(power) == pytest.approx(found, rel=0.02)
        assert size(power + 0.1) < size(power)


@pytest.mark.thorough
def test_held_out_pairs_lie_where_training_goes(monkeypatch):
    """A fold is small: by a power of its own, its contexts would come from far outside of what is
    trained.
    """
    rng, pairs = np.random.default_rng(1), {}
    z = np.concatenate([rng.normal(0, 0.6, (4200, 1)), rng.normal(0, 30, (1800, 1))])[
        rng.permutation(6000)
    ]
    log_p, s = stats.norm(0, 30).logpdf(z[:, 0]), rng.normal(z, 1, (6000, 5))
    sims = module.Simulations(
        z,
        s,
        log_p,
        np.log(0.7 * stats.norm(0, 0.6).pdf(z[:, 0]) + 0.3 * np.exp(log_p)),
        Gaussian(0.5).log_prob(np.zeros(5), s),
    )

    def spied(draw, held_out, **_):
        pairs.update(inside=draw(rng), outside=held_out)
        return FittedFlow(None, *np.zeros((3, 1)))

    monkeypatch.setattr(module, "fit", spied)
    module.train(
        Gaussian(0.5),
        np.zeros(5),
        sims,
        Prior(a=stats.norm(0, 30)),
        0,
        rng=rng,
        how=Learning(Training()),
        steps=1,
        progress=False,
    )
    spread = {
        name: c.mean(axis=1).std() for name, (_, c) in pairs.items()
    }  # 0.37 and 0.38; by powers of their own 0.37 and 0.70
    assert spread["outside"] < 1.3 * spread["inside"], spread


def test_a_network_for_every_release_begins_at_bent_contexts_of_all_simulations(monkeypatch):
    "For every release. Around one the regression is that of the focus, or straight."
    rng, begun, starts = np.random.default_rng(1), module._begun, []
    z = rng.normal(3, 1, (3000, 1))
    s = rng.poisson(np.exp(z), (3000, 4)).astype(float)
    log_p = stats.norm(3, 1).logpdf(z[:, 0])
    monkeypatch.setattr(module, "_begun", lambda *of: starts.append(begun(*of)) or starts[-1])
    unfitted = FittedFlow(None, *np.zeros((3, 1)))
    monkeypatch.setattr(module, "fit", lambda *_, **__: unfitted)
    scale_by, bends = module.fit_scaling, []
    spy = lambda *first, **how: bends.append(how) or scale_by(*first, **how)  # noqa: E731
    monkeypatch.setattr(module, "fit_scaling", spy)
    about = dict(rng=rng, how=Learning(Training()), steps=1, progress=False)
    for scale, s_dp in ((2.0, None), (0.5, np.full(4, 20.0)), (40.0, np.full(4, 20.0))):
        noise = Gaussian(scale)
        eta = np.zeros(3000) if s_dp is None else noise.log_prob(s_dp, s)
        sims = module.Simulations(z, s, log_p, log_p, eta)
        module.train(noise, s_dp, sims, Prior(a=stats.norm(3, 1)), 0, **about)
    ((pool, _), for_all), _, (_, wide) = starts
    assert (for_all.bend > 0).any() and len(bends) == 2 and not bends[1]
    assert round(bends[0]["simulations"]) == 2700  # of more pairs
    assert len(np.unique(pool)) == 2700  # of nine folds
    assert (wide.bend == 0).all() and len(wide.source) == 4
    assert len(for_all.slope) == for_all.whiten.shape[1]  # no products


def test_a_start_is_made_of_so_many_simulations_at_most(monkeypatch):
    firsts, rng = [], np.random.default_rng(8)
    z = rng.normal(2, 0.5, size=(3000, 3))
    s = rng.poisson(np.exp(z)).astype(float)
    log_p = stats.norm(2, 0.5).logpdf(z).sum(axis=1)
    sims = module.Simulations(z, s, log_p, log_p, np.zeros(3000))
    prior = Prior(**{name: stats.norm(2, 0.5) for name in "abc"})
    unfitted = FittedFlow(None, *np.zeros((3, 1)))
    monkeypatch.setattr(module, "fit", lambda draw, *_, **__: firsts.append(draw(rng)) or unfitted)
    monkeypatch.setattr(module, "MAX_POOL_SIMULATIONS", 1000)
    about = dict(rng=rng, how=Learning(Training()), steps=1, progress=False)
    module.train(Gaussian(1.0), None, sims, prior, 0, **about)
    assert len(firsts[0][0]) == len(firsts[0][1]) == 1000


@pytest.mark.thorough
def test_pairs_beyond_the_limit_are_thinned_without_bias(monkeypatch):
    monkeypatch.setattr(pairs_room, "MAX_POOL_SIMULATIONS", 2000)
    rng = np.random.default_rng(1)
    z = rng.normal(0, 1, size=(8000, 1))
    log_v = -np.abs(z[:, 0] - 1)
    pairs = Pairs(Gaussian(1.0), z, z, np.zeros(8000), log_v, partners=4)
    residual = np.array(
        [(x[:, 0] - c[:, 0] / 2).mean() for x, c in (pairs(child) for child in rng.spawn(20))]
    )
    assert abs(residual.mean()) < 5 * (residual.std() / 20**0.5 + 0.5**0.5 / 8000**0.5)


def test_an_estimator_answers_many_releases_at_once():
    model = Model(Prior(a=stats.norm(0, 2)), lambda theta, rng: rng.normal(theta, 0.5))
    estimator = amortise(
        Query(identity, 1),
        Laplace(1.0),
        model,
        rng=np.random.default_rng(1),
        simulations=300,
        training=Training(final_steps=5, members=1),
        progress=False,
    )
    s_dp = np.array([[0.0], [1.0], [2.0]])
    theta = estimator.sample(3, s_dp, np.random.default_rng(2))
    assert theta.shape == (3, 1)
    one_by_one = [estimator.log_prob(theta[k : k + 1], s_dp[k])[0] for k in range(3)]
    assert np.allclose(estimator.log_prob(theta, s_dp), one_by_one)
    assert isinstance(estimator, Estimator)


@pytest.mark.thorough
def test_a_seed_fixes_the_result_on_any_number_of_threads():
    release, model = shares(Laplace(2.0), [9.5, 21, 22])
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            found.append(sppe(release, model, rng=np.random.default_rng(1), **TINY).theta)
    assert np.array_equal(*found)


@pytest.mark.thorough
def test_a_seed_fixes_an_estimator_on_any_number_of_threads():
    "Of thirty values, whose products of matrices two threads share unevenly."
    model = Model(
        Prior(mean=stats.norm(0, 1)),
        lambda theta, rng: theta + rng.standard_normal((len(theta), 30)),
    )
    query, found = Query(identity, 1, dim=30), []
    for threads in (1, 2):
        with threadpool_limits(threads):
            how = dict(simulations=3000, training=TINY["training"], progress=False)
            learnt = amortise(query, Laplace(1.0), model, rng=np.random.default_rng(1), **how)
        found.append(learnt.flow.arrays())
    assert all(np.array_equal(array, found[1][name]) for name, array in found[0].items())


def test_a_network_begins_on_one_thread(monkeypatch):
    "Whether two threads add up otherwise depends on the machine; so they are counted."
    release, model = shares(Laplace(2.0), [9.5, 21, 22])
    found, fit_scaling = [], module.fit_scaling

    def counted(*args, **options):
        found.extend(pool["num_threads"] for pool in threadpool_info())
        return fit_scaling(*args, **options)

    monkeypatch.setattr(module, "fit_scaling", counted)
    how = dict(simulations=200, training=TINY["training"], progress=False)
    with threadpool_limits(2):
        assert max(pool["num_threads"] for pool in threadpool_info()) == 2
        amortise(release.query, release.mechanism, model, rng=np.random.default_rng(1), **how)
    assert set(found) == {1}


@pytest.mark.parametrize(
    "wrong", [dict(members=0), dict(members=20), dict(folds=1, members=1), dict(flow="huge")]
)
def test_a_training_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(ValueError, match="folds|flow"):
        Training(**wrong)


@pytest.mark.parametrize("method", [sppe, sple])
@pytest.mark.parametrize("name", ["correction", "defensive", "members"])
def test_a_keyword_of_the_training_is_told_where_it_belongs(method, name):
    release, model = shares(Laplace(2.0), [9.5, 21, 22])
    belongs = rf"'{name}'. It belongs to dpsbi.*Training: pass training=Training\({name}=…\)"
    with pytest.raises(TypeError, match=belongs):
        method(release, model, rng=np.random.default_rng(1), **{name: 0.5})


@pytest.mark.parametrize("wrong", [dict(correction="hope"), dict(defensive=1.0), dict(members=20)])
def test_training_checks_itself(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Training(**wrong)


def test_a_density_is_computed_once_for_each_round():
    class Wide:
        "A proposal that remembers where it was asked."

        def __init__(self, scale):
            self.law, self.asked = stats.norm(0, scale), []

        def sample(self, n, rng):
            return self.law.rvs((n, 1), random_state=rng)

        def log_prob(self, z):
            self.asked.append(z)
            return self.law.logpdf(z[:, 0])

    run, rng = NeuralRounds(Prior(a=stats.norm(0, 1)), 40, 0.25), np.random.default_rng(1)
    for scale in (None, 2.0, 3.0):
        run.proposals.extend([] if scale is None else [Wide(scale)])
        run.z.append(run.propose(rng))
        run.s.append(run.z[-1])
        run.log_eta.append(np.zeros(40))
        sims = run.simulations()
    for proposal in run.proposals:
        assert [id(z) for z in proposal.asked] == [id(z) for z in run.z]
    laws = [stats.norm(0, 1), *(p.law for p in run.proposals)]
    shares = np.array([40 + 10 + 10, 30, 30]) / 120
    mixture = shares @ [law.pdf(sims.z[:, 0]) for law in laws]
    np.testing.assert_allclose(np.exp(sims.log_proposal), mixture, rtol=1e-12)


class DrawsAlone:
    "Normal noise without a density."

    def __init__(self, shape=np.shape):
        self.shape = shape

    def sample(self, s, rng):
        return s + rng.normal(size=self.shape(s))


def rows_alone(s):
    n, r = s.shape
    return n, r


def test_draws_alone_train_a_network_and_no_rounds():
    model = Model(
        Prior(a=stats.norm(0, 3)), lambda theta, rng: theta + rng.normal(size=theta.shape)
    )
    query = Query(identity, 1, dim=1)
    how = dict(rng=np.random.default_rng(0), progress=False, training=TINY["training"])
    network = amortise(query, DrawsAlone(), model, simulations=150, **how)
    seen = Release([1.0], query, DrawsAlone())
    assert network.posterior(seen, draws=50, rng=np.random.default_rng(0)).theta.shape == (50, 1)
    with pytest.raises(ValueError, match="DrawsAlone has no density"):
        sppe(seen, model, rng=np.random.default_rng(0), **TINY)
    for call in (
        lambda: amortise(query, DrawsAlone(rows_alone), model, simulations=150, **how),
        lambda: sppe(Release([1.0], query, DrawsAlone(rows_alone)), model, **TINY, rng=how["rng"]),
    ):
        with pytest.raises(ValueError, match=r"DrawsAlone.sample.*\(3, 5, 1\)"):
            call()
