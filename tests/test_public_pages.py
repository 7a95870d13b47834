"""The page that says of each public name whether it is private, and whether it is exact."""

import inspect
import json
import re
from pathlib import Path

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


def test_each_name_there_exists():
    assert len(SAID) > 60 and not [name for name in SAID if not hasattr(dpsbi, name)]


def takes_ledger(value):
    if not inspect.isfunction(value):
        return False
    return "ledger" in inspect.signature(value).parameters


def test_what_takes_a_ledger_pays():
    paying = {name for name in dpsbi.__all__ if takes_ledger(getattr(dpsbi, name))}
    assert SAID.keys() >= paying >= {"release", "abcdp"}
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
