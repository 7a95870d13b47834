"""Counts and sums with noise: trees of any shape against enumeration."""

from itertools import product

import numpy as np
import pytest

from dpsbi.analyst.count_ranks import place_among
from dpsbi.analyst.count_trees import fits
from dpsbi.analyst.noisy_trees import Tree, Weights, grown, noisy_tree
from dpsbi.mechanisms import DiscreteLaplace, Release
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
