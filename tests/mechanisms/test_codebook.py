"""Codebooks: an agency's words, values and totals, read strictly and written back."""

import gzip
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpsbi
from dpsbi import Codebook, Query, Release
from dpsbi.analyst.true_counts.noisy_counts import noisy_counts
from dpsbi.mechanisms import (
    BinomialResponse,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Independent,
    Laplace,
    Published,
    SmoothLaplace,
    Staircase,
    TruncatedGeometric,
    join,
)
from dpsbi.mechanisms.codebook_noise import mechanism_of, words_of
from dpsbi.privacy import identity

VIEWS = Query(identity, 30, step=1, unit="person and day", neighbours="add-remove")
CELLS = Query(identity, math.sqrt(10), norm="l2", step=1, dim=10)
PAIR = Query(identity, 3, step=1, dim=2)
GOOD = {
    "format": "dpsbi.codebook",
    "source": "an office, table 3",
    "protects": {"unit": "patient", "neighbours": "add-remove", "sensitivity": 1, "norm": "l1"},
    "mechanism": {
        "noise": "two-sided geometric",
        "epsilon": 0.5,
        "post_processing": {"round_to": 5, "suppress_below": 10},
    },
    "names": ["North", "East", "South"],
    "values": [35, None, 10],
}
TABLE = "place,year,n\nNorth,1,35\nEast,1,*\nSouth,1,10\nNorth,2,40\n"
READ = {"csv": "t.csv", "column": "n", "key": "place", "where": {"year": "1"}, "missing": ["*"]}


def written(folder, **entries):
    "A codebook with some entries changed; ... leaves one out."
    state = {word: value for word, value in (GOOD | entries).items() if value is not ...}
    path = folder / "book.json"
    path.write_text(json.dumps(state))
    return path


# ---- words


@pytest.mark.parametrize(
    "entry, query, mechanism",
    [
        ({"noise": "Laplace", "epsilon": 0.5}, VIEWS, Laplace(60.0)),
        ({"noise": "two-sided geometric", "epsilon": 1}, VIEWS, DiscreteLaplace(30.0)),
        ({"noise": "discrete laplace", "scale": 2, "step": 5}, VIEWS, DiscreteLaplace(2.0, 5.0)),
        ({"noise": "Gaussian", "rho": 0.2}, CELLS, Gaussian(5.0)),
        ({"noise": "discrete Gaussian", "rho": 0.05}, CELLS, DiscreteGaussian(10.0)),
        ({"noise": "discrete Gaussian", "variance": 32.26}, CELLS, DiscreteGaussian(32.26**0.5)),
        ({"noise": "Laplace", "variance": 8}, VIEWS, Laplace(2.0)),
        (
            {"noise": "Gaussian", "epsilon": 1, "delta": 1e-5, "calibration": "classical"},
            Query(identity, 1, norm="l2"),
            Gaussian(math.sqrt(2 * math.log(1.25e5))),
        ),
    ],
)
def test_words_and_what_they_mean(entry, query, mechanism):
    found = mechanism_of(entry, query)
    assert type(found) is type(mechanism) and math.isclose(found.scale, mechanism.scale)
    assert getattr(found, "step", None) == getattr(mechanism, "step", None)


@pytest.mark.parametrize(
    "entry, mechanism",
    [
        (
            {"noise": "truncated geometric", "scale": 3, "low": -2, "high": 20},
            TruncatedGeometric(3.0, -2, 20),
        ),
        (
            dict(noise="truncated geometric", epsilon=2, low=0, high=9, calibration="classical"),
            TruncatedGeometric(1.5, 0, 9),
        ),
        (
            {"noise": "Clamped geometric", "epsilon": 1.5, "low": 0, "high": 20},
            Published(DiscreteLaplace(2.0), clamp=(0, 20)),
        ),
        (
            dict(
                noise="clamped geometric",
                scale=2,
                step=5,
                low=0,
                high=20,
                post_processing={"round_to": 10},
            ),
            Published(DiscreteLaplace(2.0, 5.0), clamp=(0, 20), round_to=10),
        ),
        ({"noise": "staircase", "drop": 0.4, "width": 3, "inner": 2}, Staircase(0.4, 3, 2)),
        # three steps over two values cross at most two stairs of three steps
        ({"noise": "staircase", "epsilon": 0.8, "width": 3, "inner": 2}, Staircase(0.4, 3, 2)),
    ],
)
def test_noise_within_a_range_and_stairs(entry, mechanism):
    assert mechanism_of(entry, PAIR) == mechanism


@pytest.mark.parametrize("noise", ["truncated geometric", "staircase"])
def test_what_is_calibrated_exactly_costs_what_was_said(noise):
    within = {"low": 0, "high": 12} if noise.startswith("trunc") else {}
    entry = {"noise": noise, "epsilon": 0.7, "calibration": "exact"} | within
    assert math.isclose(mechanism_of(entry, PAIR).cost(PAIR).epsilon, 0.7, rel_tol=1e-6)


@pytest.mark.parametrize(
    "entry, says",
    [
        ({"noise": "truncated geometric", "scale": 2}, 'lacks "low".*, and "high"'),
        ({"noise": "truncated geometric", "scale": 2, "low": 0}, 'lacks "high"'),
        ({"noise": "truncated geometric", "low": 0, "high": 5}, "state one of"),
        ({"noise": "truncated geometric", "epsilon": 1, "low": 0, "high": 5}, '"classical"'),
        ({"noise": "truncated geometric", "variance": 1, "low": 0, "high": 5}, "to count"),
        ({"noise": "truncated geometric", "rho": 1, "low": 0, "high": 5}, "Gaussian noise"),
        ({"noise": "truncated geometric", "scale": 2, "low": 0.5, "high": 5}, '"low" must be a'),
        ({"noise": "truncated geometric", "scale": 2, "low": 5, "high": 5}, 'below "high"'),
        ({"noise": "clamped geometric", "scale": 2, "low": 5}, 'lacks "high"'),
        ({"noise": "clamped geometric", "low": 0, "high": 5}, "state one of"),
        (
            dict(
                noise="clamped geometric",
                scale=1,
                low=0,
                high=5,
                post_processing=dict(clamp=[1, 2]),
            ),
            "says it again",
        ),
        ({"noise": "Laplace", "scale": 2, "high": 5}, '"high" says nothing of Laplace'),
        ({"noise": "Gaussian", "scale": 2, "drop": 5}, '"drop" says nothing of Gaussian'),
        ({"noise": "staircase", "epsilon": 1}, 'lacks "width".*, and "inner"'),
        ({"noise": "staircase", "width": 2, "inner": 1}, '"drop" or "epsilon"'),
        ({"noise": "staircase", "scale": 2}, "sets no stairs"),
        ({"noise": "staircase", "calibration": "exact"}, 'lacks "epsilon"'),
        ({"noise": "staircase", "drop": 1, "width": 2, "inner": 3}, "within one width"),
        ({"noise": "staircase", "drop": 1, "width": "2", "inner": 1}, '"width" must be a number'),
        ({"noise": "staircase", "epsilon": 1, "width": 1.5, "inner": 1}, "whole number"),
        ({"noise": "staircase", "drop": 1, "epsilon": 1, "width": 3, "inner": 1}, "misread"),
        ({"noise": "staircase", "drop": 1, "width": 3}, 'lacks "inner"'),
        (
            {"noise": "continuous staircase", "drop": 1, "width": 3, "inner": 1},
            'no stairs off a grid; what there is: "Laplace", or "staircase" on a grid',
        ),
        ({"noise": "staircase", "drop": 1, "width": 3, "inner": 1, "low": 0}, '"low" says nothing'),
    ],
)
def test_ranges_and_stairs_that_are_refused(entry, says):
    with pytest.raises(ValueError, match=says) as refused:
        mechanism_of(entry, PAIR)
    assert (
        str(refused.value).startswith("the mechanism") and str(refused.value).count("the mech") == 1
    )


def test_variance_of_geometric_noise():
    for variance, step in ((0.2, 1.0), (50.0, 1.0), (50.0, 5.0)):
        entry = {"noise": "two-sided geometric", "variance": variance, "step": step}
        noise = mechanism_of(entry, VIEWS)
        z = step * np.arange(-3000.0, 3001)
        p = np.exp(noise.log_prob(z[:, None], [0.0]))
        assert math.isclose(p @ z**2, variance, rel_tol=1e-9)


def test_exact_calibration_costs_what_was_said():
    entry = {"noise": "discrete Gaussian", "epsilon": 1, "delta": 1e-6, "calibration": "exact"}
    one = Query(identity, 1, norm="l2", step=1, dim=1)
    assert math.isclose(mechanism_of(entry, one).cost(one, 1e-6).epsilon, 1, rel_tol=1e-6)


@pytest.mark.parametrize(
    "entry, says",
    [
        ({"epsilon": 1}, 'lacks "noise"'),
        ({"noise": "Laplace"}, "state one of scale, variance, rho, epsilon"),
        ({"noise": "Laplac", "epsilon": 1}, "is not known"),
        ({"noise": "Laplace", "epsilom": 1}, 'did you mean "epsilon"'),
        ({"noise": "Laplace", "epsilon": 0}, "above 0"),
        ({"noise": "Laplace", "epsilon": True}, "must be a number"),
        ({"noise": "Laplace", "epsilon": "1"}, "must be a number"),
        ({"noise": "Laplace", "scale": math.inf}, "finite"),
        ({"noise": "Laplace", "rho": 0.1}, '"rho" sets Gaussian noise'),
        ({"noise": "Gaussian", "epsilon": 1}, 'lacks "delta"'),
        ({"noise": "Gaussian", "epsilon": 1, "delta": 1e-6}, "classical"),
        ({"noise": "Gaussian", "epsilon": 1, "delta": 2, "calibration": "exact"}, "0 and 1"),
        ({"noise": "Laplace", "epsilon": 1, "scale": 31}, "at sensitivity 30"),
        ({"noise": "Laplace", "epsilon": 1, "count": 2}, "list of blocks"),
        ([{"noise": "Laplace", "epsilon": 1, "count": 0}], "a count must be"),
        ([{"noise": "Laplace"}], "block 1 says nothing"),
        ([], "empty list"),
        ("Laplace", "must be an object"),
        (["Laplace"], "block 1 must be an object"),
        ({"noise": "Laplace", "epsilon": 1, "post_processing": {"round": 5}}, "round_to"),
        ({"noise": "Laplace", "epsilon": 1, "post_processing": {"round_to": 0}}, "round_to"),
        ({"noise": "Laplace", "epsilon": 1, "post_processing": 5}, "must be an object"),
        ({"noise": "Laplace", "epsilon": 1, "post_processing": {"clamp": [3, 0]}}, "clamp must"),
        ({"noise": "Laplace", "epsilon": 1, "post_processing": {"suppress_below": "a"}}, "post_"),
    ],
)
def test_words_that_are_refused(entry, says):
    query = Query(identity, 30, dim=4)
    with pytest.raises(ValueError, match=says):
        mechanism_of(entry, query)


def test_amounts_may_be_rounded_by_a_percent_and_no_more():
    for scale, fine in ((30.29, True), (30.31, False), (29.71, True), (29.69, False)):
        entry = {"noise": "Laplace", "scale": scale, "epsilon": 1}
        if fine:
            assert mechanism_of(entry, VIEWS) == Laplace(scale)
            continue
        with pytest.raises(ValueError, match="misread"):
            mechanism_of(entry, VIEWS)


# ---- round trips

noises = st.one_of(
    st.builds(Laplace, st.floats(0.01, 1e4)),
    st.builds(Gaussian, st.floats(0.01, 1e4)),
    st.builds(DiscreteLaplace, st.floats(0.05, 1e3), st.sampled_from([1.0, 0.5, 5.0])),
    st.builds(DiscreteGaussian, st.floats(0.05, 1e3), st.sampled_from([1.0, 0.5, 5.0])),
    st.builds(TruncatedGeometric, st.floats(0.5, 1e3), st.integers(-9, 9), st.integers(50, 90)),
    st.builds(Staircase, st.floats(0.01, 3), st.integers(3, 9), st.integers(1, 3)),
)
processings = st.fixed_dictionaries(
    {},
    optional=dict(
        clamp=st.sampled_from([(0.0, None), (None, 50.0), (-3.0, 80.0)]),
        round_to=st.sampled_from([1.0, 5.0]),
        suppress_below=st.integers(-5, 30).map(float),
    ),
)


@st.composite
def mechanisms(draw):
    noise, done = draw(noises), draw(processings)
    return Published(noise, **done) if done else noise


@pytest.mark.thorough
@settings(max_examples=200, deadline=None)
@given(st.lists(mechanisms(), min_size=1, max_size=3), st.integers(0, 2**32))
def test_a_mechanism_comes_back(parts, seed):
    whole = parts[0] if len(parts) == 1 else Independent(tuple(parts))
    entry = json.loads(json.dumps(words_of(whole)))
    again = mechanism_of(entry, VIEWS)
    assert again == whole
    rng = np.random.default_rng(seed)
    s_dp, s = whole.sample(np.full(len(parts), 20.0), rng), rng.integers(0, 40, (5, len(parts)))
    assert np.array_equal(again.log_prob(s_dp, s + 0.0), whole.log_prob(s_dp, s + 0.0))


def test_a_release_comes_back(tmp_path):
    mechanism = Independent(
        (Published(DiscreteLaplace(3.0), suppress_below=4), Laplace(2.0)), (2, 1)
    )
    query = Query(identity, 2, norm="l1", neighbours="replace", unit="household", step=1, dim=3)
    totals = dict(totals={("a", "b"): 9}, at_most={("c",): 7})
    seen = Release([np.nan, 5, 3.25], query, mechanism)
    book = Codebook(seen, "an office", ("a", "b", "c"), notes="ü", **totals)
    book.save(tmp_path / "b.json")
    again = Codebook.load(tmp_path / "b.json")
    assert again.known == book.known and (again.source, again.notes) == ("an office", "ü")
    release = Release.load(tmp_path / "b.json", fn=query.fn)
    assert release.query == query and release.mechanism == mechanism
    assert np.array_equal(release.s_dp, seen.s_dp, equal_nan=True)
    release.save(tmp_path / "r.json")
    assert Release.load(tmp_path / "r.json").mechanism == mechanism


def test_two_tables_joined_have_the_same_likelihood_in_one_codebook(tmp_path):
    other = {"noise": "truncated geometric", "scale": 3, "low": 0, "high": 99}
    first = Release.load(written(tmp_path))
    both = join(first, Release.load(written(tmp_path, mechanism=other, values=[31, 4, 14])))
    Codebook(both, "two tables").save(tmp_path / "both.json")
    again = Release.load(tmp_path / "both.json")
    assert again.mechanism == both.mechanism and again.query.sensitivity == 2
    s = np.arange(6.0)[None] + np.arange(9.0)[:, None]
    assert np.array_equal(
        again.mechanism.log_prob(again.s_dp, s), both.mechanism.log_prob(both.s_dp, s)
    )
    apart = both.mechanism.cost(both.query).epsilon  # one sensitivity for all is an upper bound
    assert apart <= again.mechanism.cost(again.query).epsilon < 2.01 * apart


def test_a_release_that_was_joined_twice_has_one_codebook_too(tmp_path):
    "Whichever two were joined first, the blocks stand one after another."
    other = {"noise": "discrete Gaussian", "scale": 3}
    parts = [Release.load(written(tmp_path)) for _ in range(2)]
    parts.append(Release.load(written(tmp_path, mechanism=other, values=[31, 4, 14])))
    flat = join(*parts)
    s = np.array([[35.0, 8, 12, 33, 3, 12, 30, 5, 14]])
    for twice in (join(join(*parts[:2]), parts[2]), join(parts[0], join(*parts[1:]))):
        Codebook(twice, "three tables").save(tmp_path / "b.json")
        again = Release.load(tmp_path / "b.json")
        assert again.mechanism == flat.mechanism
        assert again.mechanism.log_prob(again.s_dp, s) == twice.mechanism.log_prob(twice.s_dp, s)


def two_tables(folder, **more):
    "A codebook of a table in place and one in a file, each with values, noise and protection."
    totals = [{"cells": ["a", "b"], "total": 40}]
    written(folder, totals=totals, names=["a", "b", "c"]).rename(folder / "first.json")
    second = {
        "protects": {"unit": "patient", "neighbours": "add-remove", "sensitivity": 3, "norm": "l1"},
        "mechanism": {"noise": "two-sided geometric", "scale": 4},
        "values": [7, 2],
    }
    state = {
        "format": "dpsbi.codebook",
        "source": "an office",
        "tables": {"one": "first.json", "two": second},
    }
    (folder / "tables.json").write_text(json.dumps(state | more))
    return folder / "tables.json"


def test_a_codebook_of_tables_is_their_join(tmp_path):
    totals = [{"cells": ["one: c", "two: 1"], "total": 20}]
    book = Codebook.load(two_tables(tmp_path, totals=totals, notes="both"))
    parts = [table.release for table in book.tables.values()]
    by_hand = join(*parts)
    assert book.release.mechanism == by_hand.mechanism
    assert np.array_equal(book.release.s_dp, by_hand.s_dp, equal_nan=True)
    assert book.names == ("one: a", "one: b", "one: c", "two: 1", "two: 2")
    known = {("one: a", "one: b"): 40, ("one: c", "two: 1"): 20}
    assert book.known["totals"] == known
    prices = [each.mechanism.cost(each.query).epsilon for each in parts]
    cost = book.release.mechanism.cost(book.release.query)
    assert cost.epsilon == pytest.approx(sum(prices), rel=1e-9)
    assert prices[1] == pytest.approx(0.75)  # 3 / 4: its own sensitivity, and not both tables'
    book.save(tmp_path / "again.json")
    again = Codebook.load(tmp_path / "again.json")
    assert again.known == book.known and again.names == book.names
    assert again.release.mechanism == book.release.mechanism and again.notes == "both"
    assert np.array_equal(again.release.s_dp, book.release.s_dp, equal_nan=True)
    assert again.release.mechanism.cost(again.release.query).epsilon == cost.epsilon


def test_a_model_simulates_the_values_of_all_tables(tmp_path):
    path = two_tables(tmp_path)
    x = np.arange(10.0).reshape(2, 5)
    assert np.array_equal(Codebook.load(path).release.query(x), x)
    own = {"one": lambda x: x[:, :3] + 1, "two": lambda x: x[:, 3:] * 2}
    found = Codebook.load(path, fn=own).release.query(x)
    assert np.array_equal(found, np.hstack([x[:, :3] + 1, x[:, 3:] * 2]))
    with pytest.raises(ValueError, match="for each of"):
        Codebook.load(path, fn=lambda x: x)


def test_what_two_places_say_of_one_sum_must_agree(tmp_path):
    "A table's own total, and the same cells beside the tables, in any order."
    same = [{"cells": ["one: b", "one: a"], "total": 40}]
    book = Codebook.load(two_tables(tmp_path, totals=same))
    assert set(book.known["totals"].values()) == {40}
    other = [{"cells": ["one: b", "one: a"], "total": 41}]
    with pytest.raises(ValueError, match="41 beside the tables, and 40 in its own"):
        Codebook.load(two_tables(tmp_path, totals=other))


def test_names_of_all_tables_differ(tmp_path):
    path = two_tables(tmp_path)
    state = json.loads(path.read_text())
    second = state["tables"]["two"]
    tables = {"a: b": second | {"names": ["c", "d"]}, "a": second | {"names": ["b: c", "d"]}}
    path.write_text(json.dumps(state | {"tables": tables}))
    with pytest.raises(ValueError, match="as many different names"):
        Codebook.load(path)
    with pytest.raises(ValueError, match="as many different names"):
        Codebook(Codebook.load(two_tables(tmp_path)).release, "an office", names=("a",))


def test_tables_that_do_not_belong_together(tmp_path):
    path = two_tables(tmp_path)
    state = json.loads(path.read_text())
    cases = {
        "is none": dict(tables={}),
        "of one table": dict(tables={"all": state}),
        "two.*no file": dict(tables=state["tables"] | {"two": "../first.json"}),
        "one.*of one table": dict(tables={"one": "tables.json"}),
        "neighbours": dict(tables=state["tables"] | {"two": replaced(state["tables"]["two"])}),
        "one: a": dict(totals=[{"cells": ["a"], "total": 3}]),
        '"source"': dict(source=" "),
        "two.*values": dict(tables={"two": {"mechanism": {}, "protects": {}}}),
    }
    for says, entries in cases.items():
        path.write_text(json.dumps(state | entries))
        with pytest.raises(ValueError, match=f"tables.json.*{says}"):
            Codebook.load(path)
    book = Codebook.load(two_tables(tmp_path))
    with pytest.raises(ValueError, match="tables of its own"):
        Codebook.of_tables({"all": book}, "an office")


def replaced(table):
    "The table, with neighbours that replace a record."
    return table | {"protects": table["protects"] | {"neighbours": "replace"}}


def test_what_has_no_words_is_refused(tmp_path):
    for mechanism, query in (
        (BinomialResponse(30, 4.0, 30), Query(identity, 1)),
        (SmoothLaplace(2.0), Query(identity, 1, smoothness=0.1, dim=2)),
    ):
        with pytest.raises(ValueError, match="Release.save"):
            Codebook(Release([3.0], query, mechanism), "x").save(tmp_path / "b.json")
    with pytest.raises(ValueError, match="words"):
        words_of(type("Mine", (Laplace,), {})(1.0))


# ---- files


def test_a_file_and_what_it_says(tmp_path):
    path = written(tmp_path, totals=[{"cells": ["North", "East", "South"], "total": 50}])
    release = Release.load(path)
    assert np.array_equal(release.s_dp, [35, np.nan, 10], equal_nan=True)
    assert release.mechanism == Published(DiscreteLaplace(2.0), round_to=5, suppress_below=10)
    query = release.query
    assert (query.unit, query.norm, query.sensitivity) == ("patient", "l1", 1)
    assert (query.neighbours, query.step, query.dim) == ("add-remove", 1.0, 3)
    book = Codebook.load(path)
    assert book.known["totals"] == {("North", "East", "South"): 50}
    assert noisy_counts(book.release, **book.known).sum(book.names).mean() == pytest.approx(50)


@pytest.mark.parametrize(
    "mechanism, step, found",
    [
        ({"noise": "discrete Gaussian", "scale": 2}, ..., 1.0),
        ({"noise": "Laplace", "scale": 2}, ..., None),
        ({"noise": "Laplace", "scale": 2}, 1, 1.0),
        ({"noise": "truncated geometric", "scale": 2, "low": 0, "high": 9}, ..., 1.0),
        ({"noise": "staircase", "drop": 1, "width": 2, "inner": 1, "step": 0.5}, ..., 0.5),
        ({"noise": "discrete Laplace", "scale": 2}, None, None),
        (
            [
                {"noise": "discrete Laplace", "scale": 2},
                {"noise": "Laplace", "scale": 2, "count": 2},
            ],
            ...,
            None,
        ),
    ],
)
def test_the_step_of_the_values(tmp_path, mechanism, step, found):
    path = written(tmp_path, mechanism=mechanism, step=step, values=[1, 2, 3])
    assert Release.load(path).query.step == found


@pytest.mark.parametrize(
    "entries, says",
    [
        (dict(source=...), r'lacks "source" \(who published'),
        (dict(source=""), '"source" must be a text'),
        (dict(values=..., mechanism=...), '"mechanism".*, and "values"'),
        (dict(protects=...), 'lacks "protects"'),
        (dict(format="dpsbi.Codebook"), "not a release that this version"),
        (dict(format=...), 'no "format"'),
        (dict(mechanims={}), 'did you mean "mechanism"'),
        (dict(protects={"unit": "x", "sensitivity": 1, "norm": "l1"}), 'lacks "neighbours"'),
        (dict(protects=GOOD["protects"] | {"norm": "L1"}), "norm must be"),
        (dict(protects=GOOD["protects"] | {"sensitivity": -1}), "sensitivity must be"),
        (dict(protects=GOOD["protects"] | {"sensitivity": [1]}), "book.json"),
        (dict(protects=GOOD["protects"] | {"per": "day"}), "not known"),
        (dict(step=-1), "step must be"),
        (dict(names=["a", "b"]), '3 values need as many different "names"'),
        (dict(names=["a", "b", "b"]), "as many different"),
        (dict(names="North"), '"names" must be a list'),
        (dict(values=[35, None, 12]), r"value 3 \(South\) is 12"),
        (dict(values=[35, None, 5]), r"value 3 \(South\) is 5"),
        (
            dict(
                values=[35, None, 10],
                names=...,
                mechanism={"noise": "discrete Laplace", "scale": 1, "step": 3},
            ),
            "value 1 is 35",
        ),
        (dict(values=[35, "<10", 10]), "null for what is not published"),
        (dict(values=[35, True, 10]), "must be numbers"),
        (dict(values=[], names=...), "at least one"),
        (dict(values=35), "values must be a list"),
        (dict(values=[None] * 3, mechanism={"noise": "Laplace", "scale": 1}), "NaN alone"),
        (dict(totals=[{"cells": ["x"], "total": 1}]), "'x' is not among"),
        (dict(totals=[{"cells": ["North"]}]), 'lacks "total"'),
        (dict(at_most=[{"cell": ["North"], "total": 3}]), 'did you mean "cells"'),
        (dict(at_most={"North": 3}), '"at_most" must be a list'),
        (dict(mechanism=[GOOD["mechanism"]]), "for 1 values, not for 3"),
        (dict(totals=[dict(cells=["North", "North"], total=3)]), "each once"),
        (dict(totals=[dict(cells=c, total=3) for c in (["North"], ["North"])]), "which of the two"),
    ],
)
def test_files_that_are_refused(tmp_path, entries, says):
    with pytest.raises(ValueError, match=says):
        Release.load(written(tmp_path, **entries))


FULL = GOOD | {
    "totals": [{"cells": ["North", "East", "South"], "total": 50}],
    "step": 1,
    "mechanism": {
        "noise": "two-sided geometric",
        "scale": 2,
        "step": 1,
        "post_processing": {"clamp": [0, 100], "round_to": 5, "suppress_below": 10},
    },
}
WRONG = [
    "5%",
    "1",
    "1,000",
    "",
    " ",
    True,
    [],
    {},
    [[1]],
    {"a": 1},
    -7.5,
    10**400,
    math.nan,
    math.inf,
]
INTERNAL = (
    "iterable|unpack|argument|ufunc|float\\(|attribute|subscriptable|object is not|unhashable"
)


def leaves(entry, path=()):
    "Where something stands in a codebook: every word's path."
    inner = entry.items() if isinstance(entry, dict) else enumerate(entry)
    for word, value in inner:
        yield (*path, word)
        if isinstance(value, dict | list):
            yield from leaves(value, (*path, word))


@pytest.mark.parametrize("path", leaves(FULL), ids=str)
def test_whatever_stands_wrong_in_a_codebook_is_refused_in_words(tmp_path, path):
    "Texts for numbers, shares, thousands, nothing at all: each in the place of each."
    for wrong in WRONG:
        state = json.loads(json.dumps(FULL))
        place = state
        for word in path[:-1]:
            place = place[word]
        was, place[path[-1]] = place[path[-1]], wrong
        known = path[-1] in ("noise", "neighbours", "norm", "format")
        fits = isinstance(was, str) and isinstance(wrong, str) and wrong.strip() and not known
        book = tmp_path / "book.json"
        book.write_text(json.dumps(state))
        try:
            loaded = Codebook.load(book)
        except ValueError as error:
            assert str(error).startswith("book.json: ") and not re.search(INTERNAL, str(error))
        else:
            negative = path == ("mechanism", "post_processing", "clamp", 0) and wrong == -7.5
            nothing = (
                wrong == [] and path == ("totals",) or wrong == {} and path[-1] == "post_processing"
            )
            large = path[-1] == "total" and wrong == 10**400
            assert fits or negative or nothing or large, (path, wrong, loaded)


@pytest.mark.parametrize(
    "cell, value",
    [
        ("35", 35),
        (" 35 ", 35),
        ("3.5e1", 35),
        ("*", math.nan),
        *[
            (text, None)
            for text in ("3,5", "3 5", "3_5", "35%", "<35", "(35)", "nan", "inf", "٣", "")
        ],
    ],
)
def test_what_a_cell_says(tmp_path, cell, value):
    (tmp_path / "t.csv").write_text(f'place,n\nNorth,"{cell}"\nEast,35\nSouth,10\n')
    how = {"csv": "t.csv", "column": "n", "missing": ["*"]}
    path = written(tmp_path, values=how)
    if value is None:
        with pytest.raises(ValueError, match="no number with a decimal point"):
            Release.load(path)
    else:
        assert np.array_equal(Release.load(path).s_dp, [value, 35, 10], equal_nan=True)


@pytest.mark.parametrize("mark", [",", ".", " ", "'", "\u00a0"])
def test_thousands(tmp_path, mark):
    rows = [f'"{text.replace(",", mark)}"' for text in ("3,500", "1,234,500", "10")]
    (tmp_path / "t.csv").write_text("n\n" + "\n".join(rows) + "\n")
    how = {"csv": "t.csv", "column": "n", "thousands": mark}
    assert Release.load(written(tmp_path, values=how)).s_dp.tolist() == [3500, 1234500, 10]
    (tmp_path / "t.csv").write_text(f'n\n"3{mark}5"\n3\n10\n')
    if mark != ".":
        with pytest.raises(ValueError, match="no number"):
            Release.load(written(tmp_path, values=how))


@pytest.mark.parametrize("text", ["a,n\n1\n", "a,n\n1,2,3\n", "n,n\n1,2\n"])
def test_tables_whose_columns_do_not_line_up(tmp_path, text):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ValueError, match="cells as names|two columns"):
        Release.load(written(tmp_path, values={"csv": "t.csv", "column": "n"}, names=...))


def test_an_order_of_its_own_is_read_and_written(tmp_path):
    done = {"round_to": 5, "suppress_below": 8, "order": ["suppress_below", "round_to"]}
    entry = GOOD["mechanism"] | {"post_processing": done}
    book = Codebook.load(written(tmp_path, mechanism=entry))
    assert book.release.mechanism.publish([7.0, 8.0])[1] == 10
    book.save(tmp_path / "again.json")
    assert Codebook.load(tmp_path / "again.json").release.mechanism == book.release.mechanism


def test_json_that_is_broken_or_says_a_word_twice(tmp_path):
    path = tmp_path / "book.json"
    path.write_text('{"format": "dpsbi.codebook", "source": "a", "source": "b"}')
    with pytest.raises(ValueError, match="stands twice"):
        Release.load(path)
    path.write_text('{"format": "dpsbi.codebook",')
    with pytest.raises(ValueError, match="line 1"):
        Release.load(path)
    path.write_text('{"format": ["dpsbi.codebook"]}')
    with pytest.raises(ValueError, match="not a release"):
        Release.load(path)
    with pytest.raises(FileNotFoundError):
        Codebook.load(tmp_path / "none.json")


# ---- tables


def test_a_table_beside_it(tmp_path):
    (tmp_path / "t.csv").write_text("\ufeff" + TABLE, encoding="utf-8")
    assert np.array_equal(
        Release.load(written(tmp_path, values=READ)).s_dp, [35, np.nan, 10], equal_nan=True
    )
    more = written(tmp_path, values=READ, names=["West", "South", "North", "East"])
    assert np.array_equal(Release.load(more).s_dp, [np.nan, 10, 35, np.nan], equal_nan=True)
    own = Codebook.load(written(tmp_path, values=READ, names=...))
    assert own.names == ("North", "East", "South")
    few = written(tmp_path, values=READ | {"others": "left out"}, names=["South"])
    assert Release.load(few).s_dp.tolist() == [10]
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(TABLE.encode()))
    keyless = {k: v for k, v in READ.items() if k != "key"} | {"csv": "t.csv.gz"}
    assert Codebook.load(written(tmp_path, values=keyless)).release.s_dp[2] == 10


@pytest.mark.parametrize(
    "entries, says",
    [
        (dict(csv="u.csv"), "no file"),
        (dict(csv="../t.csv"), "no file"),
        (dict(csv="/etc/hostname"), "no file"),
        (dict(csv="bad.csv.gz"), "cannot be read"),
        (dict(csv="latin.csv"), "cannot be read"),
        (dict(csv="empty.csv"), 'no column "n"'),
        (dict(column="m"), "it has place, year, n"),
        (dict(column=None), 'lacks "column"'),
        (dict(where={"year": "3"}), "no row"),
        (dict(where={"jahr": "1"}), 'no column "jahr"'),
        (dict(where="year"), '"where" must be'),
        (dict(where={}), "several rows"),
        (dict(missing=[]), '"missing"'),
        (dict(key="plaec"), 'no column "plaec"'),
        (dict(colunm="n"), 'did you mean "column"'),
    ],
)
def test_tables_that_are_refused(tmp_path, entries, says):
    (tmp_path / "t.csv").write_text(TABLE)
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "bad.csv.gz").write_bytes(b"no gzip")
    (tmp_path / "latin.csv").write_bytes("place,n\nZürich,3\n".encode("latin-1"))
    with pytest.raises(ValueError, match=says):
        Release.load(written(tmp_path, values=READ | entries))


def test_a_row_that_no_name_asks_for(tmp_path):
    (tmp_path / "t.csv").write_text(TABLE)
    with pytest.raises(ValueError, match="'East' is not among"):
        Release.load(written(tmp_path, values=READ, names=["North", "Eats", "South"]))


# ---- what is shipped


def test_the_examples_that_are_shipped():
    data = Path(dpsbi.__file__).parent / "data"
    books = {path.stem: Codebook.load(path) for path in data.glob("codebook_*.json")}
    assert len(books) == 3
    views = books["codebook_wikipedia_views"].release
    assert np.isnan(views.s_dp).sum() == 16 and views.mechanism.mechanism.scale == 30
    orange = books["codebook_census_orange"]
    assert orange.known["totals"] == {("men", "women"): 29277}
    editors = books["codebook_editors_chile"].release
    assert editors.s_dp.size == 12 and np.isnan(editors.s_dp).sum() == 2


def test_tables_go_into_the_package():
    root = Path(dpsbi.__file__).parents[1]
    tables = {path.suffix for path in (root / "dpsbi" / "data").iterdir()}
    assert tables == {".json", ".gz"}
    if not (root / "setup.py").exists():
        pytest.skip("a copy of the package alone")
    assert '"data/*.csv.gz"' in (root / "setup.py").read_text()
    assert "*.csv.gz" in (root / "MANIFEST.in").read_text()
