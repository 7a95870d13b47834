"""Counts and sums with noise: trees of any shape against enumeration."""

from itertools import product

import numpy as np
import pytest

from dpsbi.analyst.true_counts.noisy_tree import Tree, Weights, grown, noisy_tree
from dpsbi.analyst.true_counts.structure import fits, place_among
from dpsbi.mechanisms import DiscreteLaplace, Independent, Laplace, Release
from dpsbi.privacy import Query, identity

GROUPS = {
    "flat": [],
    "one": [(0, 1, 2, 3)],
    "two": [(0, 1), (2, 3)],
    "nested": [(1, 2), (0, 1, 2), (0, 1, 2, 3)],
    "a cell and all": [(2,), (0, 1, 2, 3)],
    "the same twice": [(0, 1), (0, 1), (0, 1, 2)],
}


def case(name, seed):
    "Random weights on a tree, and all its combinations with their weights."
    rng = np.random.default_rng(seed)
    leaves = [
        Weights(int(rng.integers(0, 3)), rng.random(int(rng.integers(2, 6)))) for _ in range(4)
    ]
    known = [(group, Weights(0, rng.random(40))) for group in GROUPS[name]]
    k = np.array(list(product(*(leaf.values for leaf in leaves))))
    p = np.prod([leaf.at(k[:, j]) for j, leaf in enumerate(leaves)], axis=0)
    for group, weights in known:
        p = p * weights.at(k[:, list(group)].sum(axis=1))
    return Tree(leaves, grown(4, known)), k, p


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("seed", range(5))
def test_sums_joints_and_evidence_are_those_of_the_list(name, seed):
    tree, k, p = case(name, seed)
    assert tree.log_evidence() == pytest.approx(np.log(p.sum()), abs=1e-12)
    for cells in [(0,), (1,), (2,), (3,), (0, 1), (1, 2), (0, 3), (0, 1, 2), (0, 1, 2, 3)]:
        brute = np.bincount(k[:, list(cells)].sum(axis=1), p, 40) / p.sum()
        assert np.allclose(tree.sum(cells).at(np.arange(40)), brute, atol=1e-13)
    x, y, joint = tree.joint([1], [3])
    brute = np.zeros((12, 12))
    np.add.at(brute, (k[:, 1], k[:, 3]), p / p.sum())
    assert np.allclose(joint, brute[np.ix_(x, y)], atol=1e-13)
    for a, b in (([0, 1], [2, 3]), ([2], [0, 3]), ([0, 1, 2], [3])):
        one, other = k[:, a].sum(axis=1), k[:, b].sum(axis=1)
        less = np.bincount(one - other + 40, p, 81) / p.sum()
        assert np.allclose(tree.difference(a, b).at(np.arange(-40, 41)), less, atol=1e-12)
        if not any(len(own) == 1 or fits(tree.root, set(own)) for own in (a, b)):
            with pytest.raises(ValueError, match="both overlap"):
                tree.joint(a, b)
            continue
        x, y, joint = tree.joint(a, b)
        brute = np.zeros((40, 40))
        np.add.at(brute, (one, other), p / p.sum())
        assert np.allclose(joint, brute[np.ix_(x, y)], atol=1e-12)
    for cell in range(4):
        places = np.bincount(1 + (k > k[:, [cell]]).sum(axis=1), p, 5)[1:] / p.sum()
        found = place_among(tree, cell, range(4), "best")
        assert np.allclose(found.at(np.arange(1, 5)), places, atol=1e-12)


def test_sums_that_overlap_are_refused():
    with pytest.raises(ValueError, match="overlap"):
        grown(3, [((0, 1), Weights(0, np.ones(9))), ((1, 2), Weights(0, np.ones(9)))])


def test_what_contradicts_itself_is_refused():
    release = Release([3.0, 4.0, 7.0], Query(identity, 1, step=1, dim=3), DiscreteLaplace(1.0))
    how = dict(names=("a", "b", "all of them"), sums={"all of them": ("a", "b")}, most=10)
    assert noisy_tree(release, **how, totals={"all": 9}).sum(["a", "b"]).values.tolist() == [9]
    with pytest.raises(ValueError, match="contradicts"):
        noisy_tree(release, **how, totals={"all": 9, "all of them": 8})
    with pytest.raises(ValueError, match="no cell 'c'"):
        noisy_tree(release, **how | dict(sums={"all of them": ("a", "c")}))


# ---- what the query states, and counts far out

FOUR = dict(names=("a", "b", "c", "ab"), sums={"ab": ("a", "b")})


@pytest.mark.parametrize("step", [100, 8, 0.5, 0.1, 3])
@pytest.mark.parametrize(
    "more", [{}, dict(totals={"all": 6}), dict(totals={"ab": 4}), dict(totals={("a",): 2})], ids=str
)
def test_a_tree_in_steps_is_one_in_whole_numbers_times_the_step(step, more):
    values, top = np.array([2.4, 1.0, 2.9, 4.2]), 12
    totals = {name: step * total for name, total in more.get("totals", {}).items()}
    query = Query(identity, 1, step=step, dim=4)
    release = Release(values * step, query, Laplace(1.2 * step))
    found = noisy_tree(release, **FOUR, totals=totals, most=top * step)
    k = np.array(list(product(range(top + 1), repeat=3)))
    log_p = -np.abs(k - values[:3]).sum(1) - np.abs(k[:, 0] + k[:, 1] - values[3])
    p = np.exp(log_p / 1.2)
    for name, total in more.get("totals", {}).items():
        own = {"all": [0, 1, 2], "ab": [0, 1], ("a",): [0]}[name]
        p = p * (k[:, own].sum(1) == total)
    p /= p.sum()
    for cells, own in ((["a"], [0]), (["c"], [2]), (["a", "b"], [0, 1]), (["a", "c"], [0, 2])):
        brute = np.bincount(k[:, own].sum(1), p, 40)
        assert np.allclose(found.sum(cells).at(step * np.arange(40)), brute, atol=1e-12)
    less = p[k[:, 0] < k[:, 2]].sum()
    assert found.probability(np.less, "a", "c") == pytest.approx(less, abs=1e-12)
    draws = found.sample(50, np.random.default_rng(1)).theta / step
    assert np.allclose(draws, np.rint(draws), atol=1e-9)


@pytest.mark.thorough
@pytest.mark.parametrize("b", [1e6, 1e9, 1e12])
@pytest.mark.parametrize("totals", [{}, {"s": 3.0}, {("a", "b"): 2.5}, {"a": 1.0}], ids=str)
def test_a_tree_far_out_against_quadrature(b, totals):
    seen = Release(np.array([0.5, 2.0, 4.0]) * b, Query(identity, 1, step=1, dim=3), Laplace(b))
    known = {name: int(total * b) for name, total in totals.items()}
    found = noisy_tree(seen, names=("a", "b", "s"), sums={"s": ("a", "b")}, totals=known)
    x = (np.arange(2500) + 0.5) / 200
    one, other = x[:, None], x[None]
    if "a" in totals:
        one, other = np.array([[1.0]]), x[None]
    elif totals:
        one = (np.arange(4000)[:, None] + 0.5) / 4000 * next(iter(totals.values()))
        other = next(iter(totals.values())) - one
    w = np.exp(-np.abs(one - 0.5) - np.abs(other - 2.0) - np.abs(one + other - 4.0))
    w /= w.sum()
    for cells, v in ((["a"], one), (["b"], other), (["a", "b"], one + other)):
        mean = (w * v).sum()
        law = found.sum(cells)
        assert law.mean() == pytest.approx(b * mean, abs=2e-3 * b)
        sd = np.sqrt((w * (v - mean) ** 2).sum())
        assert law.std() == pytest.approx(b * sd, abs=(2e-3 if sd > 1e-9 else 0.02) * b)
    if b == 1e9:
        draws = found.sample(400, np.random.default_rng(2)).theta
        gap = abs(draws[:, 1].mean() - found["b"].mean())
        assert gap < 5 * found["b"].std() / 20 + 0.01 * b  # one in two million


@pytest.mark.parametrize(
    "ask, says",
    [
        (lambda t: t.difference("a", "b"), "sample"),
        (lambda t: t.probability(np.less, "a", "b"), "sample"),
        (lambda t: t.rank("a"), "sample"),
    ],
)
def test_what_a_tree_far_out_does_not_say(ask, says):
    seen = Release([5e8, 2e9, 4e9], Query(identity, 1, step=1, dim=3), Laplace(1e9))
    how = dict(names=("a", "b", "s"), sums={"s": ("a", "b")})
    with pytest.raises(ValueError, match=says):
        ask(noisy_tree(seen, **how))
    sharp = Independent((Laplace(1e9), Laplace(1e9), Laplace(1e3)))
    with pytest.raises(ValueError, match="value 3 is so much sharper"):
        noisy_tree(Release(seen.s_dp, seen.query, sharp), **how)
    with pytest.raises(ValueError, match="multiple of 100"):
        query = Query(identity, 1, step=100, dim=3)
        noisy_tree(Release(seen.s_dp, query, Laplace(1e9)), **how, totals={"s": 350})
