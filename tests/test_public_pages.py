"""The page that says of each public name whether it is private, and whether it is exact."""

import inspect
import json
import re
from pathlib import Path

import places
import pytest

import dpsbi

NBS = Path(__file__).resolve().parents[1] / "nbs"
ROW = re.compile(r"^\| `(\w+)` \| (.+?) \| (.+?) \|$", re.M)


def rows(name):
    "Name -> (private, exact), from the tables of a page."
    cells = json.loads((NBS / name).read_text())["cells"]
    found = [row for cell in cells for row in ROW.findall("".join(cell["source"]))]
    assert len(found) == len({row[0] for row in found}), "a name stands twice"
    return {name: (private, exact) for name, private, exact in found}


SAID = rows("private_and_exact.ipynb")
PUBLIC = {*dpsbi.__all__, *(k.__name__ for k in dpsbi.mechanisms.kinds().values())}


def test_no_public_name_is_missing():
    new = sorted(PUBLIC - set(SAID))
    assert not new, "\n".join(places.row(name, getattr(dpsbi, name)) for name in new)
    assert {name for name in SAID if not hasattr(dpsbi, name)} == set()


def test_no_row_is_left_as_it_was_offered():
    assert not [name for name, said in SAID.items() if "?" in "".join(said)]


class Silent(dpsbi.Mechanism):
    "Noise without a vetted sampler, at the price of Laplace noise."

    examples = dpsbi.Laplace.examples


def test_a_new_name_is_offered_its_row():
    start = "nbs/private_and_exact.ipynb: | "
    assert places.row("A", dpsbi.Laplace) == start + "`A` | pure ε | exact density and price |"
    assert "| pure ε; cannot be released |" in places.row("A", Silent)
    assert "| pays: ?, before it reads | ? |" in places.row("f", dpsbi.release)
    assert "| free: sees only what was published | ? |" in places.row("f", dpsbi.ks)


def takes_ledger(value):
    if not inspect.isfunction(value):
        return False
    return "ledger" in inspect.signature(value).parameters


def test_what_takes_a_ledger_pays():
    paying = {name for name in dpsbi.__all__ if takes_ledger(getattr(dpsbi, name))}
    assert paying >= {"release", "abcdp"}
    assert all(SAID[name][0].startswith("pays") for name in paying)
    unpaid = {name for name in dpsbi.__all__ if inspect.isfunction(getattr(dpsbi, name))} - paying
    assert not [name for name in unpaid if SAID[name][0].startswith("pays")]


WORDS = {
    "NOT PRIVATE": (0, "NOT PRIVATE"),
    "APPROXIMATE": (1, "approximate"),
    "WRONG": (1, "wrong"),
}


@pytest.mark.parametrize("word", WORDS)
def test_what_a_docstring_says_is_said(word):
    column, said = WORDS[word]
    docs = {n: (getattr(dpsbi, n).__doc__ or "").partition("\n")[0] for n in dpsbi.__all__}
    named = [name for name, doc in docs.items() if word in doc]
    assert named and all(said in SAID[name][column] for name in named)
