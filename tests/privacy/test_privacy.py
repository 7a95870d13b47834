"""What may leave the owner's side: records as numbers, the rehearsal, and a query's value without a
word.
"""

import warnings
from decimal import Decimal
from fractions import Fraction
from functools import partial

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse, stats

import dpsbi
from dpsbi.owner.svt import as_distances
from dpsbi.privacy import Query, as_records, hushed, identity, numeric

ENTRIES = st.one_of(
    st.floats(),
    st.integers(-(10**400), 10**400),
    st.none(),
    st.text(max_size=3),
    st.booleans(),
    st.complex_numbers(),
    st.dates(),
)


def test_a_text_beside_it_changes_no_truth():
    assert np.array_equal(as_records([True, 2.5]), as_records([True, 2.5, "x"])[:2])


@given(st.lists(ENTRIES, max_size=8), ENTRIES, st.data())
def test_one_record_changes_one_entry(records, other, data):
    "Neighbours stay neighbours, whatever the type of the array that they make."
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = as_records(records)
        assert (
            before.shape == (len(records),) and before.dtype == float and np.isfinite(before).all()
        )
        if records:
            k = data.draw(st.integers(0, len(records) - 1))
            after = as_records([*records[:k], other, *records[k + 1 :]])
            assert np.array_equal(np.delete(before, k), np.delete(after, k))
        assert np.array_equal(as_records([*records, other])[:-1], before)


@pytest.mark.parametrize(
    "dtype", [int, float, np.float32, np.int8, bool, object, "U3", np.uint64, np.longdouble]
)
def test_the_type_of_the_array_is_forgotten(dtype):
    assert np.array_equal(
        as_records(np.array([0, 1, 1], int).astype(dtype))
        if dtype != bool
        else as_records(np.array([False, True, True])),
        [0.0, 1.0, 1.0],
    )


def test_what_is_no_number_is_0_in_arrays_too():
    assert np.array_equal(
        as_records(np.array([[1.0, np.nan], [-np.inf, 4.0]])), [[1.0, 0.0], [0.0, 4.0]]
    )
    total = Query(lambda x: x.sum(axis=1, keepdims=True), 1.0)
    assert np.array_equal(
        total.confidential(np.array([1.0, np.nan, 3.0]), 1), [4.0]
    )  # one record is lost, not all


def test_ragged_records_have_no_shape():
    with pytest.raises(ValueError):
        as_records([[1, 2], [3]])


def fails_on_negative(x):
    if (x < 0).any():
        raise RuntimeError("negative!")
    return x.sum(axis=1, keepdims=True)


def warns_on_negative(x):
    if (x < 0).any():
        warnings.warn("negative!")
    return x.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(
    "fn, value",
    [
        (fails_on_negative, 0.0),
        (warns_on_negative, -1.0),
        (lambda x: np.log(x.min(axis=1))[:, None], 0.0),
        (lambda x: x / (x - x), 0.0),
        (lambda x: x[x >= 0][None], 0.0),
        (lambda x: np.full((len(x), 1), np.inf), 0.0),
        (lambda x: None, 0.0),
        (lambda x: x.astype(str), -1.0),
    ],
)
def test_a_value_comes_without_a_word(fn, value, recwarn):
    s = Query(fn, 1.0).confidential([-1.0], 1)
    assert np.array_equal(s, [value]) and not recwarn.list


def test_the_rehearsal_reads_no_record_and_finds_mistakes():
    seen = []

    def fn(x):
        seen.append(x.copy())
        return x.sum(axis=1, keepdims=True)

    assert Query(lambda x: fn(x.reshape(len(x), -1)), 1.0).rehearse((5, 2)) == 1
    assert {x.shape for x in seen} == {(1, 10)} and not seen[0].any()
    removable = Query(fn, 1.0, neighbours="add-remove")
    sizes = []
    for n in (0, 3, 100):
        seen.clear()
        assert removable.rehearse((n,)) == 1
        sizes.append([x.tolist() for x in seen])
    assert sizes[0] == sizes[1] == sizes[2] and not any(map(np.any, sizes[0][:3]))
    assert [len(x[0]) for x in sizes[0]] == [0, 1, 2, 24, 24, 24, 24, 2, 1, 0, 0]
    seen.clear()
    assert removable.rehearse((3,), again=False) == 1
    assert [x.shape for x in seen] == [(1, 0), (1, 1), (1, 2)]
    for fn_ in (lambda x: x.sum(), lambda x: x.max(axis=1)[:, None], lambda x: x):
        with pytest.raises(ValueError, match="Nothing was spent"):
            Query(fn_, 1.0, neighbours="add-remove").rehearse((3,))
    assert Query(identity, 1.0, neighbours="add-remove").rehearse((3,)) == 3


def test_hushed_hushes_and_puts_back():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with hushed():
            warnings.warn("of a record")
            np.log(np.array([-1.0]))
        warnings.warn("afterwards")
    assert [str(w.message) for w in caught] == ["afterwards"]


def test_a_query_prints_what_is_stated_of_it_and_no_address():
    query = Query(identity, 1, neighbours="add-remove", step=1)
    assert repr(query) == "Query(identity, sensitivity=1.0, neighbours='add-remove', step=1.0)"
    assert repr(Query(partial(np.sum, axis=1), 2)) == "Query(partial, sensitivity=2.0)"


# ---- values keep their digits, or the query is refused before payment


def of_type(kind):
    "A count whose values are of this type."
    return lambda x: (x > 0).sum(axis=1, keepdims=True).astype(kind)


def entries(make):
    "A count of entries of a type of Python's."
    return lambda x: np.array([[make(int(n))] for n in (x > 0).sum(axis=1)], object)


@pytest.mark.parametrize(
    "fn",
    [
        *map(of_type, "int8 int16 int32 uint8 uint16 uint32 uint64 float16 float32".split()),
        *map(of_type, ("complex64", "complex128", "datetime64[s]", "timedelta64[s]", "U5", "S3")),
        *map(entries, (str, complex, lambda n: None, lambda n: np.datetime64(n, "D"))),
        lambda x: np.ma.array(of_type(int)(x), mask=True),
        lambda x: np.ma.array(of_type(int)(x), mask=False),
    ],
)
def test_values_of_a_type_that_loses_digits_are_refused(fn):
    with pytest.raises(ValueError, match="Nothing was spent"):
        Query(fn, 1, step=1).rehearse((4,))


@pytest.mark.parametrize(
    "fn",
    [
        *map(of_type, (int, float, "int64", np.longdouble)),
        *map(entries, (int, float, Fraction, Decimal, np.int64, np.float64)),
    ],
)
def test_values_of_a_type_that_keeps_them_are_exact(fn):
    query = Query(fn, 1, step=1)
    assert query.rehearse((4,)) == 1
    assert [query.confidential(np.arange(4) < n, 1)[0] for n in range(5)] == [0, 1, 2, 3, 4]


FAR = [2**53 - 2, 2**53, 2**60, 10**18, -(2**53), -(2**53) + 3, -(10**18)]
WHOLE = [*FAR, 2**64, 10**400, -(10**400)]


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize(
    "start, kind",
    [*((v, float) for v in FAR), *((v, np.int64) for v in FAR), *((v, int) for v in WHOLE)],
    ids=lambda v: v.__name__ if isinstance(v, type) else f"{str(v)[:8]} of {len(str(v))}",
)
def test_a_count_far_out_moves_by_one_at_most(start, kind, norm):
    "The real values move by 1; whatever arithmetic makes of them, those that are released do."

    def fn(x):
        n = [int(v) for v in (x > 0).sum(axis=1)]
        return np.array([[kind(start) + kind(v)] for v in n], object if kind is int else None)

    query = Query(fn, 1, norm=norm, step=1)
    found = [query.confidential(np.arange(5) < n, 1)[0] for n in range(6)]
    assert all(abs(b - a) <= 1 for a, b in zip(found, found[1:])) and np.ptp(found) <= 5
    assert np.abs(found).max() <= query.limit == 2.0**53
    exact = [min(max(start + n, -(2**53)), 2**53) for n in range(6)]
    assert [int(v) for v in found] == exact  # by Python's own whole numbers
    if abs(start) >= 2**53:
        with pytest.raises(ValueError, match="subtract a public constant"):
            query.rehearse((5,))


@pytest.mark.parametrize(
    "step, sensitivity, limit",
    [
        (1, 1, 2.0**53),
        (2, 2, 2.0**54),
        (12, 12, 2.0**55),
        (0.5, 1, 2.0**52),
        (0.75, 1.5, 2.0**51),
        (0.1, 0.1, 0.1 * 2.0**31),
        (1, 2.0**40, 2.0**71),
        (None, 1.0, 2.0**31),
        (None, 1e-6, 1e-6 * 2.0**31),
        (1e3, 1e3, 2.0**56),
    ],
)
def test_within_the_limit_floats_hold_what_moves(step, sensitivity, limit):
    "On a grid every multiple is a float; else two roundings stay within half of the allowance."
    query = Query(identity, sensitivity, step=step)
    assert query.limit == limit
    spacing = np.spacing(np.nextafter(limit, 0))
    exact = step is not None and Fraction(step) % Fraction(float(spacing)) == 0
    assert exact or spacing <= sensitivity * 2.0**-21


@given(
    st.lists(st.floats(-1e12, 1e12), min_size=2, max_size=2),
    st.sampled_from([1e-6, 1e-2, 1.0, 3.0, 1e9]),
)
def test_a_cut_moves_no_values_apart(pair, sensitivity):
    query = Query(identity, sensitivity, dim=1)
    a, b = (Fraction(query.confidential([v], 1)[0]) for v in pair)
    assert abs(a - b) <= abs(Fraction(pair[0]) - Fraction(pair[1]))


MASKED = np.ma.array([[1.0, 99.0], [1.0, 1.0]], mask=[[0, 1], [0, 0]])


@pytest.mark.parametrize(
    "x",
    [
        MASKED,
        np.ma.array([1.0, 2.0]),
        np.ma.array([1, 2], mask=[1, 0]),
        np.ma.array([True, False], mask=[1, 0]),
        np.ma.masked_all((2, 2)),
        np.ma.array([1, None], object, mask=[1, 0]),
        np.ma.masked,
        np.zeros(3, [("a", float), ("b", int)]),
        sparse.csr_matrix(np.eye(3)),
        sparse.coo_array(np.eye(3)),
        {1.0, 2.0},
        {"a": 1.0},
        (v for v in range(3)),
        iter([1.0]),
    ],
    ids=lambda x: type(x).__name__,
)
def test_records_that_no_array_holds_are_refused_before_payment(x):
    ledger = dpsbi.Ledger(10.0)
    total = Query(lambda x: x.reshape(len(x), -1).sum(axis=1)[:, None], 1.0, step=1)
    with pytest.raises(TypeError, match="Nothing was spent"):
        dpsbi.release(x, total, dpsbi.DiscreteLaplace(1.0), ledger)
    with pytest.raises(TypeError, match="records must be"):
        as_records(x)
    assert ledger.history == ()


@pytest.mark.parametrize(
    "x, expected",
    [
        (pd.Series([1, None, 3], dtype="Int64"), [1, 0, 3]),
        (pd.array([1, None], dtype="Float64"), [1, 0]),
        (pd.array([True, None], dtype="boolean"), [1, 0]),
        (
            pd.DataFrame({"a": pd.array([1, None], dtype="Int64"), "b": [2.0, 3.0]}),
            [[1, 2], [0, 3]],
        ),
        ([1, np.ma.masked, 3], [1, 0, 3]),
        ([np.ma.array([1, 99], mask=[0, 1]), [2, 3]], [[1, 0], [2, 3]]),
        (([np.ma.array([[1, 99]], mask=[[0, 1]])],), [[[[1, 0]]]]),
        (np.array([1, 2 + 0j, 3j]), [1, 2, 0]),
        ([1, 2 + 0j, 3j], [1, 2, 0]),
        (range(3), [0, 1, 2]),
        (memoryview(np.arange(3.0)), [0, 1, 2]),
        (5, 5),
    ],
)
def test_a_missing_entry_is_0_and_its_neighbours_stay(x, expected):
    assert np.array_equal(as_records(x), expected)


def test_an_entry_that_raises_is_0():
    class Rude:
        def __float__(self):
            raise RuntimeError("mine!")

    assert np.array_equal(as_records([1.0, Rude(), 3.0]), [1.0, 0.0, 3.0])


@pytest.mark.parametrize("where", ["simulate", "function", "query", "records", "numeric", "svt"])
def test_a_mask_is_refused_wherever_it_would_be_lost(where):
    prior = dpsbi.Prior(a=stats.norm(0, 1))
    seen = dpsbi.Release([1.0], Query(identity, 1), dpsbi.Laplace(1.0))
    hidden = lambda x: np.ma.array(x, mask=np.ones(np.shape(x), bool))
    models = dict(
        simulate=lambda: dpsbi.Model(prior, lambda theta, rng: hidden(theta)),
        function=lambda: dpsbi.Model.from_function(lambda a, rng: hidden([a]), prior),
    )
    with pytest.raises(TypeError, match="mask"):
        if where in models:
            dpsbi.importance(seen, models[where](), rng=np.random.default_rng(0), progress=False)
        elif where == "query":
            Query(hidden, 1)(np.zeros((3, 1)))
        elif where == "records":
            Query(identity, 1)(MASKED)
        elif where == "numeric":
            numeric(MASKED, "these")
        else:
            as_distances(np.ma.array([1.0], mask=[True]))
