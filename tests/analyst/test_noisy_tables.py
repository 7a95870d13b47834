"""Tables whose rows and columns both have totals, against lists of all tables."""

import warnings
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import numpy as np
import pytest
from scipy import stats

from dpsbi import (
    DiscreteLaplace,
    Independent,
    Laplace,
    Published,
    Query,
    Release,
    noisy_counts,
    noisy_table,
    noisy_tree,
)
from dpsbi.analyst.true_counts import noisy_table as noisy_tables
from dpsbi.analyst.true_counts.count_law import CountLaw, Pooled
from dpsbi.analyst.true_counts.noisy_table import (
    KnownSum,
    Turns,
    _two_trees,
    first_flows,
    known_law,
    network,
)
from dpsbi.checks.testing import follows_pmf
from dpsbi.privacy import identity

TOP = 5  # the largest count of a cell in the tables that are listed


def listed(laws, sums):
    "All tables (n, cells) with weights (n,), by trying each."
    every = np.array(list(product(range(TOP + 1), repeat=len(laws))))
    p = np.prod([law.at(every[:, j]) for j, law in enumerate(laws)], axis=0)
    for told in sums:
        total = every[:, sorted(told.cells)].sum(1)
        inside = (total >= told.first) & (total <= told.last)
        if told.log_w is not None:
            at = np.clip(total - told.first, 0, len(told.log_w) - 1)
            p = p * np.exp(told.log_w)[at]
        p = p * inside
    return every[p > 0], p[p > 0] / p.sum()


def chance_sums(rng, cells):
    "Sums of a table of 2 x 3: some rows, columns and parts of them; exact, bounded or noisy."
    grid = np.arange(cells).reshape(2, 3)
    sets = [grid[0], grid[1], grid[:, 0], grid[:, 1], grid[:, 2], grid[0, :2], grid[:, 1:].ravel()]
    chosen = rng.choice(len(sets), rng.integers(2, 6))  # of one set more than one thing is known
    found = []
    for k in chosen:
        members, kind = frozenset(sets[k].tolist()), rng.integers(3)
        middle = int(rng.integers(2, 3 * len(members)))
        if kind == 0:
            found.append(KnownSum(members, middle, middle))
        elif kind == 1:
            found.append(KnownSum(members, 0, middle))
        else:
            law = CountLaw(0, rng.dirichlet(np.ones(TOP * len(members) + 1)))
            found.append(known_law(members, law))
    return found


@pytest.mark.parametrize("seed", range(8))
def test_draws_of_any_network_follow_the_list_of_all_tables(seed):
    "Four sums of each, each to a false-alarm rate of one in a million."
    rng = np.random.default_rng(seed)
    laws = [CountLaw(0, rng.dirichlet(np.ones(TOP + 1))) for _ in range(6)]
    sums = chance_sums(rng, 6)
    tables, p = listed(laws, sums)
    if not len(tables):
        with pytest.raises(ValueError, match="no count is possible"):
            first_flows(network(laws, sums), 1, rng)
        return
    arcs = network(laws, sums)
    turns = Turns(arcs)
    flow = np.repeat(first_flows(arcs, 10, rng), 300, axis=0)
    for k in range(30):
        turns.sweep(flow, rng, k % 2 == 0)
    drawn = flow[:, :6]
    for told in sums:
        total = drawn[:, sorted(told.cells)].sum(1)
        assert (total >= told.first).all() and (total <= told.last).all()
    for factors in ([1, 0, 0, 0, 0, 0], [0, 1, 0, 0, 1, 0], [1, 2, 0, 0, 0, 3], [0, 0, 1, 5, 0, 0]):
        code = tables @ np.array(factors)
        follows_pmf(drawn @ np.array(factors), np.arange(40), np.bincount(code, p, 40))


def two_by_two(values, totals, scale=2.0, **more):
    "Four released cells in two rows, with known totals."
    query = Query(identity, 1, step=1, dim=4)
    release = Release(values, query, DiscreteLaplace(scale))
    return noisy_table(release, names="abcd", totals=totals, rng=np.random.default_rng(1), **more)


CROSSED = {("a", "b"): 12, ("a", "c"): 9}


def test_a_seed_gives_the_same_draws_with_any_executor():
    one = two_by_two([7, 4, 3, 8], CROSSED, draws=256)
    with ThreadPoolExecutor(2) as pool:
        other = two_by_two([7, 4, 3, 8], CROSSED, draws=256, executor=pool)
    assert np.array_equal(one.theta, other.theta) and one.names == ("a", "b", "c", "d")
    assert np.array_equal(one.confidential.theta, one.theta)
    assert (one["a"] + one["b"] == 12).all() and (one["a"] + one["c"] == 9).all()


def test_few_draws_are_rounded_up_to_those_that_tell_whether_chains_agree():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = two_by_two([7, 4, 3, 8], CROSSED, draws=10)
    assert len(found.theta) == 32 * 64 and found.info["sweeps"] <= 4


def test_a_killed_run_goes_on_to_the_same_draws(tmp_path, monkeypatch):
    whole = two_by_two([7, 4, 3, 8], CROSSED, draws=128)
    walked, calls = noisy_tables._walked, []

    def killed(*given):
        calls.append(1)
        if len(calls) > 5:  # in the second round
            raise KeyboardInterrupt
        return walked(*given)

    monkeypatch.setattr(noisy_tables, "_agree", lambda tables: len(calls) > 7)
    monkeypatch.setattr(noisy_tables, "_walked", killed)
    file = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        two_by_two([7, 4, 3, 8], CROSSED, draws=128, checkpoint=file)
    monkeypatch.undo()
    assert np.array_equal(
        two_by_two([7, 4, 3, 8], CROSSED, draws=128, checkpoint=file).theta, whole.theta
    )
    with pytest.raises(ValueError, match="checkpoint"):
        two_by_two([7, 4, 3, 8], {("a", "b"): 11}, draws=128, checkpoint=file)


def test_a_checkpoint_remembers_the_prior(tmp_path):
    "Two priors of one kind, which differ in their weights alone."
    weights = np.arange(1.0, 31.0)
    one = stats.rv_discrete(values=(np.arange(30), np.full(30, 1 / 30)))
    other = stats.rv_discrete(values=(np.arange(30), weights / weights.sum()))
    run = dict(totals=None, draws=128, checkpoint=tmp_path / "run")
    found = two_by_two([7, 4, 3, 8], prior=one, **run)
    assert np.array_equal(two_by_two([7, 4, 3, 8], prior=one(), **run).theta, found.theta)
    with pytest.raises(ValueError, match="belongs to another run"):
        two_by_two([7, 4, 3, 8], prior=other(), **run)


def test_a_prior_of_ones_own_needs_logpmf_alone():
    class Own:
        def logpmf(self, k):
            return stats.poisson(5).logpmf(k)

    own, frozen = (two_by_two([7, 4, 3, 8], CROSSED, prior=p) for p in (Own(), stats.poisson(5)))
    assert np.array_equal(own.theta, frozen.theta)


def test_a_bound_beyond_all_counts_bounds_nothing():
    far = two_by_two([7, 4, 3, 8], None, at_most={("a", "b"): 10**30}, draws=128)
    assert np.array_equal(
        far.theta, two_by_two([7, 4, 3, 8], None, at_most={("a", "b"): 10**6}, draws=128).theta
    )


def test_a_table_that_totals_determine_and_one_without_any():
    fixed = two_by_two([7, 4, 3, 8], CROSSED | {("a",): 5, ("d",): 6}, draws=128)
    assert (fixed.theta == [5, 7, 4, 6]).all()
    free = two_by_two([700, 400, 300, 800], None, draws=4096)
    law = DiscreteLaplace(2.0)
    k = np.arange(-40, 41)
    pmf = np.exp(law.log_prob(k[:, None].astype(float), np.zeros((len(k), 1))))
    for x, value in zip(free.theta.T, (700, 400, 300, 800)):
        follows_pmf(x - value, k, pmf)


def test_noise_that_is_wider_than_a_window():
    "One unknown, with totals of both rows and a column; many chains, each for itself."
    scale, values = 200.0, np.array([2000.0, 1500.0, 1800.0, 2300.0])
    k = np.arange(0, 3801)
    laws = [CountLaw(0, np.exp(-np.abs(k - value) / scale)) for value in values]
    sums = [((0, 1), 3800), ((2, 3), 3900), ((0, 2), 3700)]
    arcs = network(laws, [KnownSum(frozenset(c), t, t) for c, t in sums])
    rng, turns = np.random.default_rng(3), Turns(arcs)
    flow = np.repeat(first_flows(arcs, 10, rng), 1000, axis=0)
    for j in range(40):
        turns.sweep(flow, rng, j % 2 == 0)
    p = laws[0].at(k) * laws[1].at(3800 - k) * laws[2].at(3700 - k) * laws[3].at(200 + k)
    follows_pmf(flow[:, 0] // 40, np.arange(96), np.bincount(k // 40, p / p.sum(), 96))


def test_a_prior_and_a_range_count():
    prior = stats.poisson(20)
    drawn = two_by_two([7, 4, 3, 8], None, scale=50.0, prior=prior, within=(15, 60), draws=4096)
    k = np.arange(15, 61)
    log_p = prior.logpmf(k) - np.abs(k - 7) / 50
    p = np.exp(log_p - log_p.max())
    follows_pmf(drawn["a"], k, p / p.sum())


def test_each_value_may_have_a_mechanism_of_its_own():
    query = Query(identity, 1, step=1, dim=6)
    noise = Independent((DiscreteLaplace(2.0), DiscreteLaplace(0.5)), (4, 2))
    release = Release([7, 4, 3, 8, 12, 9], query, noise)
    sums = {"row": ["a", "b"], "column": ["a", "c"]}
    drawn = noisy_table(release, names=[*"abcd", *sums], sums=sums, rng=np.random.default_rng(2))
    k = np.arange(60)
    table = np.array(list(product(range(30), repeat=3)))
    log_p = -np.abs(table - [7, 4, 3]).sum(1) / 2
    log_p -= np.abs(table[:, :2].sum(1) - 12) / 0.5 + np.abs(table[:, [0, 2]].sum(1) - 9) / 0.5
    p = np.exp(log_p - log_p.max())
    thinned = drawn["a"].reshape(drawn.info["chains"], -1)[:, ::8].ravel()
    follows_pmf(thinned, k, np.bincount(table[:, 0], p, 60) / p.sum())


def test_sets_that_cross_are_in_different_trees():
    rows, columns = [frozenset([0, 1]), frozenset([2, 3])], [frozenset([0, 2]), frozenset([1, 3])]
    colours = _two_trees([*rows, frozenset([0]), *columns])
    assert len(set(colours[:2])) == len(set(colours[3:])) == 1 and colours[0] != colours[3]


@pytest.mark.parametrize("cells", [["a", "a"], []])
def test_a_sum_names_each_of_its_cells_once(cells):
    release = Release([7, 4, 3, 8, 11], Query(identity, 1, step=1, dim=5), DiscreteLaplace(2.0))
    names, rng = (*"abcd", "row"), np.random.default_rng(1)
    for given in (dict(rng=rng), {}):
        method = noisy_table if given else noisy_tree
        with pytest.raises(ValueError, match="'row' must be of cells, each named once"):
            method(release, names=names, sums={"row": cells}, **given)
    with pytest.raises(ValueError, match="each named once"):
        noisy_counts(release, names=names, totals={tuple(cells): 11})


def test_a_value_that_was_never_published_is_refused():
    noise = Published(DiscreteLaplace(2.0), round_to=5, suppress_below=10)
    release = Release([15, 12, np.nan, 20], Query(identity, 1, step=1, dim=4), noise)
    for method in (noisy_table, noisy_tree):
        given = dict(rng=np.random.default_rng(1)) if method is noisy_table else dict(sums={})
        with pytest.raises(ValueError, match="value 2 .b. is 12, which could not"):
            method(release, names="abcd", **given)


@pytest.mark.parametrize(
    "entries, says",
    [
        (dict(totals={("a", "b"): 9, ("b", "c"): 9, ("a", "c"): 9}), "layers"),
        (dict(totals={("a", "b"): 900}), "no count is possible"),
        (dict(totals=CROSSED | {("a", "b", "c"): 3}), "no count is possible"),
        (dict(totals={("a", "z"): 9}), "no cell 'z'"),
        (dict(totals={("a", "b"): 1.5}), "whole number"),
        (dict(totals={("a", "a"): 9}), "each named once"),
        (dict(totals={(): 0}), "each named once"),
        (dict(totals=None, at_most={("a", "b"): -3}), "at least 0"),
        (dict(totals=None, prior=Pooled((1.0, 9.0))), "noisy_tree"),
        (dict(totals=None, prior=stats.randint(0, 30).logpmf), "law on whole numbers"),
        (dict(totals=None, within=(9, 3)), "most"),
        (dict(totals=None, draws=0), "draws"),
        (dict(totals=None, sums={"x": "ab"}), "none of the released"),
    ],
)
def test_what_cannot_be_is_refused(entries, says):
    with pytest.raises(ValueError, match=says):
        two_by_two([7, 4, 3, 8], **entries)


@pytest.mark.thorough
@pytest.mark.parametrize("step", [100, 8, 0.5, 0.1, 3])
@pytest.mark.parametrize("totals", [None, {("a", "b"): 12, ("a", "c"): 9}], ids=str)
def test_a_table_in_steps_is_one_in_whole_numbers_times_the_step(step, totals):
    "The same generator turns the same cycles."
    values = np.array([7.3, 4.0, 3.2, 8.4])
    found = []
    for h in (1, step):
        release = Release(values * h, Query(identity, 1, step=h, dim=4), Laplace(2.0 * h))
        known = totals and {cells: h * total for cells, total in totals.items()}
        how = dict(names="abcd", totals=known, within=(0, 40 * h), draws=64)
        found.append(noisy_table(release, **how, rng=np.random.default_rng(1)))
    assert np.allclose(found[1].theta, step * found[0].theta, rtol=1e-12)
    assert np.allclose(found[1].confidential.theta, found[1].theta)


@pytest.mark.parametrize(
    "how, says",
    [
        (dict(totals={("a", "b"): 350}), "multiple of 100"),
        (dict(totals={("a", "b"): -100}), "multiple of 100"),
        (dict(within=(10, 90)), "no multiple of 100"),
        (dict(scale=1e9), "coarser step in the Query"),
        (dict(scale=0.2), "multiples of 100, which the query states"),
    ],
)
def test_what_a_tables_step_makes_impossible_is_refused(how, says):
    scale = how.pop("scale", 40.0)
    query = Query(identity, 1, step=100, dim=4)
    release = Release([250.0, 30.0, 310.0, 100.0], query, Laplace(scale))
    with pytest.raises(ValueError, match=says):
        noisy_table(release, names="abcd", rng=np.random.default_rng(1), **how)


def test_a_table_far_out_is_walked_in_a_coarser_step():
    "To five standard errors, of a thousand independent draws at least: one in two million."
    seen = Release([5e8, 2e9], Query(identity, 1, step=10**6, dim=2), Laplace(1e9))
    how = dict(names="ab", totals={"all": 3 * 10**9}, draws=2048)
    drawn = noisy_table(seen, **how, rng=np.random.default_rng(1))
    x = (np.arange(3000) + 0.5) / 1000
    w = np.exp(-np.abs(x - 0.5) - np.abs(3 - x - 2))
    mean = (w @ x) / w.sum()
    sd = np.sqrt(w @ (x - mean) ** 2 / w.sum())
    assert abs(drawn["a"].mean() / 1e9 - mean) < 5 * sd / np.sqrt(1000)
