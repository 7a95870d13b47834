"""The list of mutants names code and tests that exist."""

import ast
import json

import pytest
from mutants import MUTANTS, ROOT, files, where


@pytest.mark.parametrize("module", sorted({mutant["module"] for mutant in MUTANTS}))
def test_each_stands_once_in_its_module_and_names_tests(module):
    for mutant in (each for each in MUTANTS if each["module"] == module):
        text = (ROOT / where(mutant)).read_text()
        assert text.count(mutant["old"]) == 1, mutant
        ast.parse(text.replace(mutant["old"], mutant["new"]))
        for name in files(mutant):
            file, _, test = name.partition("::")
            assert (ROOT / file).exists(), mutant
            assert not test or f"def {test}" in (ROOT / file).read_text(), mutant
            if name.startswith("nbs/"):  # its own cells have the fault
                cells = json.loads((ROOT / file).read_text())["cells"]
                assert sum("".join(c["source"]).count(mutant["old"]) for c in cells) == 1, mutant


def later(file):
    "The functions of a file of tests that `make test` leaves out."
    marked = (node for node in ast.parse(file.read_text()).body if hasattr(node, "decorator_list"))
    words = ("pytest.mark.slow", "pytest.mark.thorough")
    return {n.name for n in marked if any(ast.unparse(d) in words for d in n.decorator_list)}


def test_make_test_runs_what_sees_a_mutant():
    named = {name for mutant in MUTANTS for name in files(mutant) if name.startswith("tests/")}
    for file in {name.partition("::")[0] for name in named}:
        assert not named & {f"{file}::{test}" for test in later(ROOT / file)}


def test_none_is_listed_twice():
    names = [(mutant["module"], mutant["why"]) for mutant in MUTANTS]
    assert len(names) == len(set(names))
