"""What may leave the owner's side: records as numbers, the rehearsal, and a query's value without a
word.
"""

import warnings
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsbi.privacy import Query, as_records, hushed, identity

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
