"""The calls of `calls.py` with seed 1 give the values that are kept, to six digits.

Another processor rounds differently: numbers may differ by a part in 100,000. Where rounding grows,
in trained networks and in one sampler, means and sds of the draws may lie a fifth of an sd off.
Without its wider instructions the processor that wrote the file passes with these tolerances.
Values that were to change are written anew by `python tests/calls.py --write`.
"""

import json

import numpy as np
import pytest
from calls import CALLS, LOOSE, VALUES, digest, made

KEPT = json.loads(VALUES.read_text())
NEAR, OFF = 1e-5, 0.2
LONG = """infer_a_state_space infer_an_epidemic infer_by_a_network infer_independent_reals
    infer_independent_values infer_many_rates infer_many_values infer_records input_smc
    input_smc_of_many_laws da_unknown_n pseudo_marginal_of_plain_functions score sple
    sppe_of_many_values two_samples""".split()


def near(found, kept):
    "Whether two digests agree: words and shapes as they are, numbers nearly."
    if not (isinstance(kept, list) and isinstance(found, list)):
        numbers = isinstance(kept, float) and isinstance(found, float)
        return np.isclose(found, kept, NEAR, 1e-12, True) if numbers else found == kept
    (shape, *found), (kept_shape, *kept) = found, kept
    largest = abs(kept[-1])  # a mean of what cancels is no surer than its parts
    return shape == kept_shape and np.allclose(found, kept, NEAR, 1e-9 * largest + 1e-12, True)


def numbers_of(digest):
    "First, second and mean, or the only one."
    return np.array(digest[1:4] if isinstance(digest, list) else digest, float)


def near_by_sds(found, kept):
    "The means and sds of draws that are off by more."
    for key, value in kept.items():
        stem, _, last = key.rpartition(".")
        if last == "engine":
            fine = found[key] == value
        else:
            sd = numbers_of(kept[f"{stem}.std" if stem else "std"])
            fine = (np.abs(numbers_of(found[key]) - numbers_of(value)) < OFF * sd).all()
        if not fine:
            yield f"{key}: {found[key]}, kept is {value}"


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.thorough) if n in LONG else n for n in CALLS]
)
def test_a_call_gives_what_is_kept(name):
    values, kept = made(name, 1), KEPT[name]
    assert kept.keys() <= values.keys()
    found = {key: digest(values[key]) for key in kept}
    if name in LOOSE:
        off = list(near_by_sds(found, kept))
    else:
        off = [
            f"{key}: {found[key]}, kept is {kept[key]}"
            for key in kept
            if not near(found[key], kept[key])
        ]
    assert not off, "\n".join(off)


def test_every_call_is_kept():
    assert list(KEPT) == list(CALLS), "python tests/calls.py --write"
