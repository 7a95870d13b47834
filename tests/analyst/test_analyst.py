"""What every analyst's method must do: seeds, executors, process pools, checkpoints, bad input. One
list for all of them.
"""

import itertools
import re
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

import dpsbi
from dpsbi import Laplace, Model, Posterior, Query, Release
from dpsbi.analyst.importance.amis import simulate_apart
from dpsbi.analyst.importance.multistart import consensus
from dpsbi.analyst.neural.training import Shape, Training
from dpsbi.analyst.smc.smc_abc import Populations
from dpsbi.models.prior import FreePrior, check_continuous
from dpsbi.privacy import identity
from dpsbi.simulators import counts as counts

MODEL = counts.gamma_poisson(alpha=25, beta=1)
RELEASE = dpsbi.Release([37.4], counts.counting_query(), dpsbi.Laplace(5.0))
METHODS = {
    "exact_abc": lambda release=RELEASE, model=MODEL, **kw: dpsbi.exact_abc(
        release, model, draws=300, **kw
    ),
    "importance": lambda release=RELEASE, model=MODEL, **kw: dpsbi.importance(
        release, model, rounds=3, simulations=300, **kw
    ),
    "smc_abc": lambda release=RELEASE, model=MODEL, **kw: dpsbi.smc_abc(
        release, model, draws=300, populations=Populations(200), **kw
    ),
}
methods = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


def same(a, b):
    weights = (a.log_weights is None and b.log_weights is None) or np.array_equal(
        a.log_weights, b.log_weights
    )
    return np.array_equal(a.theta, b.theta) and weights and a.info == b.info


@methods
def test_one_seed_one_result(method):
    first = method(rng=np.random.default_rng(1))
    assert same(first, method(rng=np.random.default_rng(1))) and not same(
        first, method(rng=np.random.default_rng(2))
    )


@pytest.mark.thorough
@methods
def test_the_executor_changes_nothing(method):
    alone = method(rng=np.random.default_rng(1))
    for pool in (ThreadPoolExecutor(3), ProcessPoolExecutor(2)):
        with pool:
            assert same(alone, method(rng=np.random.default_rng(1), executor=pool))


@methods
def test_the_callers_generator_moves_on_alike_with_any_executor(method):
    after = []
    for pool in (None, ThreadPoolExecutor(3)):
        rng = np.random.default_rng(1)
        method(rng=rng, executor=pool)
        after.append((rng.random(), rng.spawn(1)[0].random()))
    assert after[0] == after[1]


@methods
def test_rng_is_required(method):
    with pytest.raises(TypeError, match="rng"):
        method()


@methods
@pytest.mark.parametrize(
    "simulate",
    [
        lambda theta, rng: theta * np.nan,
        lambda theta, rng: rng.poisson(3.0, (7, 1)),
        lambda theta, rng: rng.poisson(3.0, (len(theta), 4)),
        lambda theta, rng: 5.0,
    ],
    ids=["nan", "rows", "columns", "scalar"],
)
def test_simulators_that_fail_are_reported(method, simulate):
    with pytest.raises(ValueError):
        method(model=dpsbi.Model(MODEL.prior, simulate), rng=np.random.default_rng(1))


@methods
def test_a_simulator_that_raises_is_heard(method):
    def broken(theta, rng):
        raise RuntimeError("no licence for the simulator")

    with pytest.raises(RuntimeError, match="no licence"), ThreadPoolExecutor(2) as pool:
        method(model=dpsbi.Model(MODEL.prior, broken), rng=np.random.default_rng(1), executor=pool)


@methods
def test_a_checkpoint_gives_the_result_again(method, tmp_path, monkeypatch):
    ticks = iter(
        range(0, 10**9, 11)
    )  # exact_abc saves every ten seconds: let each look at the clock find them gone
    monkeypatch.setattr("time.monotonic", lambda: next(ticks))
    first = method(rng=np.random.default_rng(1), checkpoint=tmp_path / "c.npz", progress=False)
    assert (tmp_path / "c.npz").exists()
    assert same(
        first, method(rng=np.random.default_rng(1), checkpoint=tmp_path / "c.npz", progress=False)
    )


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    METHODS["importance"](rng=np.random.default_rng(1), checkpoint=tmp_path / "c.npz")
    with pytest.raises(ValueError, match="another run"):
        METHODS["importance"](rng=np.random.default_rng(2), checkpoint=tmp_path / "c.npz")


def test_a_checkpoint_of_another_proposal_is_refused(tmp_path):
    def run(proposal):
        return METHODS["importance"](
            rng=np.random.default_rng(1), proposal=proposal, checkpoint=tmp_path / "c.npz"
        )

    first, second, third = (
        dpsbi.Prior(rate=law)
        for law in (stats.uniform(35, 0.2), stats.uniform(36, 0.2), stats.uniform(35, 0.4))
    )
    assert same(run(first), run(first))
    for other in (second, third, None):  # alike in density where the prior has draws: none
        with pytest.raises(ValueError, match="differs in proposal"):
            run(other)


@pytest.mark.thorough
@settings(max_examples=25)
@given(
    s_dp=st.floats(-30, 90),
    scale=st.floats(2, 60),
    shape=st.floats(5, 60),
    seed=st.integers(0, 10**6),
)
def test_importance_agrees_with_enumeration(s_dp, scale, shape, seed):
    # 25 cases, |z| <= 5.5 each: false-alarm rate 1e-6 for the set, if the weights' tail is light
    # (Pareto k below 0.5)
    release = dpsbi.Release([s_dp], counts.counting_query(), dpsbi.Laplace(scale))
    found = dpsbi.importance(
        release,
        counts.gamma_poisson(shape, 1),
        rng=np.random.default_rng(seed),
        rounds=5,
        simulations=500,
    )
    exact = counts.exact_posterior(shape, 1, release)
    assume(found.pareto_k < 0.5 and found.ess > 200)
    assert abs(found.mean()[0] - exact.mean) < 5.5 * found.mcse()[0]


@pytest.mark.thorough
def test_parameters_with_borders_and_a_simplex():
    prior = dpsbi.Prior(mix=stats.dirichlet([1.0, 1.0, 1.0]), rate=stats.uniform(0, 50))
    model = dpsbi.Model(
        prior,
        lambda theta, rng: np.stack(
            [rng.poisson(theta[:, 3] * theta[:, j]) for j in range(3)], axis=1
        ),
    )
    release = dpsbi.Release([20.0, 10.0, 5.0], dpsbi.Query(identity, 1, step=1), dpsbi.Laplace(3.0))
    a = dpsbi.importance(release, model, rng=np.random.default_rng(1), rounds=8)
    b = dpsbi.exact_abc(release, model, draws=3000, rng=np.random.default_rng(2))
    z = (a.mean() - b.mean()) / np.sqrt(a.mcse() ** 2 + b.mcse() ** 2)
    assert np.abs(z).max() < stats.norm.isf(1e-6 / 8)
    assert (
        np.allclose(a.theta[:, :3].sum(1), 1) and (a.theta > 0).all() and (a.theta[:, 3] < 50).all()
    )


def test_memory_is_bounded_by_the_draws_kept():
    import tracemalloc

    rare = dpsbi.Release(
        [90.0], counts.counting_query(), dpsbi.Laplace(5.0)
    )  # accepts about one in 10^5
    tracemalloc.start()
    with pytest.warns(UserWarning, match="only .* accepted"):
        dpsbi.exact_abc(rare, MODEL, draws=5, rng=np.random.default_rng(1), max_simulations=400_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (
        peak < 5e6
    )  # 400,000 simulations in one array would be 3.2 MB a column, and several are needed


@pytest.mark.parametrize("seed", range(10))
def test_rounds_of_one_simulation_adapt_to_nothing_and_do_no_harm(seed):
    model, release = (
        counts.gamma_poisson(25, 1),
        dpsbi.Release([37.4], counts.counting_query(), dpsbi.Laplace(5.0)),
    )
    assert (
        dpsbi.importance(
            release,
            model,
            rng=np.random.default_rng(seed),
            rounds=10,
            simulations=1,
            progress=False,
        ).ess
        >= 1
    )


@pytest.mark.parametrize(
    "how",
    [
        dict(),
        dict(proposal=dpsbi.Prior(theta=stats.gamma(40, scale=0.8))),
        dict(control=0.05),
        dict(proposal=dpsbi.Prior(theta=stats.gamma(40, scale=0.8)), control=0.05),
    ],
    ids=str,
)
def test_weights_of_another_proposal_and_of_rejection_control(how):
    """The count of 37.4 at ε = 0.2: mean 28.57633 and sd 4.73388 by summation; false-alarm rate
    1e-6 each.
    """
    release = dpsbi.Release([37.4], counts.counting_query(), dpsbi.Laplace(5.0))
    posterior = dpsbi.exact_abc(
        release,
        counts.gamma_poisson(25, 1),
        draws=20_000,
        rng=np.random.default_rng(3),
        progress=False,
        **how,
    )
    z = (posterior.theta[:, 0] - 28.5763275949) / 4.7338826534
    error = 1 / np.sqrt(posterior.ess)
    assert abs(posterior.weights @ z) < 4.9 * error
    assert abs(posterior.weights @ z**2 - 1) < 4.9 * np.sqrt(2.5) * error


# ---- a prior of one's own that is zero in places: proposals step beyond it, and nothing is
# simulated there; that is no failure, and no draw that a user sees


@dataclass
class Uniform:
    "Uniform where `inside` of a box, and `off` (-inf, or NaN) elsewhere."

    low: tuple
    high: tuple
    inside: object
    off: float = -np.inf

    @property
    def dim(self):
        return len(self.low)

    @property
    def names(self):
        return tuple("abc"[: self.dim])

    def sample(self, n, rng):
        found = np.empty((0, self.dim))
        while len(found) < n:
            new = rng.uniform(self.low, self.high, (2 * n + 50, self.dim))
            found = np.concatenate([found, new[self.inside(new)]])
        return found[:n]

    def where(self, theta):
        return self.inside(theta) & ((theta > self.low) & (theta < self.high)).all(axis=1)

    def log_prob(self, theta):
        return np.where(self.where(theta), 0.0, self.off)


ZERO, ONE, SQUARE = (0.0, 0.0), (1.0, 1.0), ((-1.0, -1.0), (1.0, 1.0))
SUPPORTS = {
    "a < b": Uniform(ZERO, ONE, lambda t: t[:, 0] < t[:, 1]),
    "a < b, else NaN": Uniform(ZERO, ONE, lambda t: t[:, 0] < t[:, 1], np.nan),
    "a < b < c": Uniform((0.0,) * 3, (1.0,) * 3, lambda t: (np.diff(t) > 0).all(axis=1)),
    "simplex": Uniform(ZERO, ONE, lambda t: t.sum(axis=1) < 1),
    "half-space": Uniform(*SQUARE, lambda t: t.sum(axis=1) > 0.2),
    "ring": Uniform(*SQUARE, lambda t: np.abs(np.hypot(*t.T) - 0.7) < 0.25),
    "disc": Uniform(*SQUARE, lambda t: (t**2).sum(axis=1) < 1),
    "beside the diagonal": Uniform(ZERO, ONE, lambda t: np.abs(t[:, 0] - t[:, 1]) < 0.2),
    "above a number": Uniform((0.0,), (3.0,), lambda t: t[:, 0] > 0.5),
    "two pieces": Uniform((-2.0,), (2.0,), lambda t: np.abs(t[:, 0]) > 0.5),
    "two corners": Uniform(ZERO, ONE, lambda t: (t < 0.6).all(axis=1) | (t > 0.6).all(axis=1)),
}


def summed(theta, rng):
    return theta.sum(axis=1, keepdims=True) + 0.1 * rng.standard_normal((len(theta), 1))


def small(function, **defaults):
    return lambda release, model, **kw: function(release, model, **defaults | kw)


IN_PLACES = {
    "importance": small(dpsbi.importance, rounds=3, simulations=300),
    "smc_abc": small(dpsbi.smc_abc, draws=100, populations=Populations(200), max_simulations=4000),
    "infer": small(dpsbi.infer, max_simulations=4000, target_ess=200, neural=False),
    "consensus": small(consensus, max_simulations=4000, target_ess=200),
    "thrifty": small(consensus, max_simulations=3000, target_ess=200, thrifty=True),
    "hasty": small(dpsbi.importance, rounds=30, simulations=33, patient=False),
    "pseudo_marginal": small(dpsbi.pseudo_marginal, draws=100),
    "refine": lambda release, model, rng, **kw: dpsbi.refine(
        Posterior(model.prior.sample(200, rng), None, model.prior.names),
        release,
        model,
        rng=rng,
        simulations=500,
        **kw,
    ),
}
SUM = Release([1.0], Query(identity, 1.0, dim=1), Laplace(0.3))
OFTEN = [name for name in IN_PLACES if name != "hasty"]  # which is slow
EACH = [*zip(itertools.cycle(OFTEN), [*SUPPORTS] * 3)][: 3 * len(SUPPORTS)]
EACH.append(("hasty", "two pieces"))


@pytest.mark.parametrize("name, support", EACH, ids=map("-".join, EACH))
def test_beyond_a_prior_of_ones_own_nothing_fails_and_no_draw_is_shown(name, support):
    prior = SUPPORTS[support]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        rng = np.random.default_rng(1)
        found = IN_PLACES[name](SUM, Model(prior, summed), rng=rng, progress=False)
    assert not re.search("finite|have been released", "; ".join(str(w.message) for w in said))
    assert found.info["failed"] == 0 < found.info["outside"]
    assert prior.where(found.theta).all()


@pytest.mark.thorough
@pytest.mark.parametrize("support", SUPPORTS)
def test_points_beyond_the_prior_change_no_posterior(support):
    "Against 20,000 draws of the prior, weighed by an integral: six standard errors, 2e-9 each."
    prior, half = SUPPORTS[support], stats.norm(0, 0.1).ppf((np.arange(40) + 0.5) / 40)
    theta = prior.sample(20_000, np.random.default_rng(3))
    w = np.exp(-np.abs(1 - theta.sum(axis=1)[:, None] - half) / 0.3).mean(axis=1)
    exact = w @ theta / w.sum()
    error = np.sqrt(w**2 @ (theta - exact) ** 2) / w.sum()
    found = IN_PLACES["importance"](SUM, Model(prior, summed), rng=np.random.default_rng(1))
    assert (np.abs(found.mean() - exact) < 6 * np.hypot(found.mcse(), error)).all()


def test_failures_within_a_prior_of_ones_own_are_counted_still():
    def broken(theta, rng):
        s = summed(theta, rng)
        s[theta[:, 0] < 0.2] = np.nan
        return s

    prior = SUPPORTS["a < b"]
    for name in ("importance", "consensus", "pseudo_marginal", "smc_abc"):
        with pytest.warns(match="not finite"):
            made = IN_PLACES[name](SUM, Model(prior, broken), rng=np.random.default_rng(1))
        assert made.info["failed"] > 0 < made.info["outside"]


@dataclass
class Atoms:
    "The same probability for each of some values."

    values: np.ndarray
    names = ("a",)
    dim = 1

    def sample(self, n, rng):
        return rng.choice(self.values, n)[:, None]

    def log_prob(self, theta):
        return np.where(np.isin(theta[:, 0], self.values), -np.log(len(self.values)), -np.inf)


ATOMS = dict(few=np.arange(5.0), many=np.arange(1e6), halves=np.arange(9) / 2, odd=np.r_[0.1, 3.7])


@pytest.mark.parametrize("kind", ["few", "odd"])
@pytest.mark.parametrize("name", IN_PLACES)
def test_a_prior_with_atoms_is_refused_by_what_proposes_by_a_density(name, kind):
    with pytest.raises(ValueError, match="a discrete parameter has no density: exact_abc"):
        IN_PLACES[name](SUM, Model(Atoms(ATOMS[kind]), summed), rng=np.random.default_rng(1))


@pytest.mark.parametrize("kind", ATOMS)
def test_atoms_are_known_by_draws_that_are_whole_or_come_again(kind):
    with pytest.raises(ValueError, match="whole numbers only, or the same values again"):
        check_continuous(FreePrior(Atoms(ATOMS[kind])))


@pytest.mark.parametrize("support", SUPPORTS)
def test_a_density_that_is_zero_in_places_has_no_atoms(support):
    check_continuous(FreePrior(SUPPORTS[support]))


@pytest.mark.parametrize("kind", ["few", "halves", "odd"])
def test_draws_of_a_prior_with_atoms_are_weighed_rightly(kind):
    "Against the sum over its values: six standard errors, 2e-9."
    prior, half = Atoms(ATOMS[kind]), stats.norm(0, 0.1).ppf((np.arange(40) + 0.5) / 40)
    release, rng = Release([2.0], SUM.query, Laplace(2.0)), np.random.default_rng(1)
    w = np.exp(-np.abs(2 - prior.values[:, None] - half) / 2).mean(axis=1)
    model = Model(prior, summed)
    for found in (
        dpsbi.exact_abc(release, model, draws=200, rng=rng),
        dpsbi.importance(release, model, rounds=1, simulations=500, rng=rng),
    ):
        assert abs(found.mean()[0] - w @ prior.values / w.sum()) < 6 * found.mcse()[0]


def test_simulations_beside_the_draws_are_within_the_prior():
    "Far from the posterior some fail; beside its draws none does, though steps leave the prior."

    def broken(theta, rng):
        s = summed(theta, rng)
        s[theta.sum(axis=1) < 0.2] = np.nan
        return s

    near = Release([1.0], SUM.query, Laplace(0.02))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        how = dict(rng=np.random.default_rng(1), max_simulations=8000, neural=False)
        found = dpsbi.infer(near, Model(SUPPORTS["a < b"], broken), **how)
    probe = found.info["history"][-1]
    assert found.info["failed"] > 0 and probe["beside"] and probe["failed"] == 0


def test_of_values_apart_nothing_fails_beyond_the_prior():
    def two(theta, rng):
        return theta + 0.1 * rng.standard_normal(theta.shape)

    theta = np.array([[0.2, 0.6], [0.6, 0.2], [0.1, 0.3]])
    model = Model(SUPPORTS["a < b"], two, independent=True)
    release = Release([0.3, 0.5], Query(identity, 1.0, dim=2), Laplace(0.3))
    _, log_f, failed = simulate_apart(release, model, theta, 5, rng=np.random.default_rng(1))
    assert failed == 0 and np.isneginf(log_f).tolist() == [False, True, False]


def test_a_network_draws_within_a_prior_of_ones_own_and_its_density_is_one():
    "A flow of few steps puts many of its draws beyond; they are drawn again."
    prior = SUPPORTS["ring"]
    training = Training(steps=20, final_steps=200, members=1, flow=Shape(layers=2, hidden=16))
    how = dict(rounds=2, simulations=300, draws=500, training=training, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so short a training confirms nothing
        found = dpsbi.sppe(SUM, Model(prior, summed), rng=np.random.default_rng(1), **how)
    assert prior.where(found.theta).all() and found.info["failed"] == 0 < found.info["outside"]
    grid = np.stack(np.meshgrid(*2 * [np.linspace(-1, 1, 141)]), -1).reshape(-1, 2)
    assert abs(np.exp(found.log_prob(grid)).sum() / 70**2 - 1) < 0.15
