"""The page on warnings names every warning that the library gives, and no other."""

import ast
import json
import re
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "nbs/tutorials/07_warnings.ipynb"
REASONS = (
    "_disagreement",
    "reasons_not_exact",
    "_audited",
    "unconfirmed",
    "neural_engine",
)  # functions in words
SPOKEN = {"doubted", "_message"}  # functions whose words reach a warning as a variable


def words(node):
    "The text of an expression, with … for what changes; empty where it has no text of its own."
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else "…"
    if isinstance(node, ast.JoinedStr):
        return "".join(words(part) for part in node.values)
    if isinstance(node, ast.BinOp):
        return words(node.left) + words(node.right)
    return "…"


SPEAKS = re.compile("|".join(["warn", *(rf"def {name}\b" for name in (*REASONS, *SPOKEN))]))


@lru_cache(None)
def texts():
    "(module, its text), of the whole package."
    paths = sorted((ROOT / "dpsbi").rglob("*.py"))
    return tuple((p.relative_to(ROOT).as_posix(), p.read_text(encoding="utf-8")) for p in paths)


@lru_cache(None)
def sources():
    "(module, syntax tree), of all modules that may warn, or give a reason."
    return tuple((name, ast.parse(text)) for name, text in texts() if SPEAKS.search(text))


def is_warning(node):
    if not isinstance(node, ast.Call):
        return False
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    return name == "warn"


def warnings_of(tree):
    "The texts of the warnings of a module; those of a variable are … alone."
    return [words(node.args[0]) for node in ast.walk(tree) if is_warning(node)]


def sentences(tree, names):
    "Texts of some length that functions of these names hold, their docstrings left out."
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name in names:
            body = node.body[1:] if ast.get_docstring(node) else node.body
            for part in (p for statement in body for p in ast.walk(statement)):
                if isinstance(part, (ast.JoinedStr, ast.Constant)) and len(words(part)) > 30:
                    yield words(part)


def plain(text):
    return re.sub(r"\s+", " ", re.sub("…+", "…", text))


@lru_cache(None)
def cells():
    return ["".join(cell["source"]) for cell in json.loads(PAGE.read_text())["cells"]]


def rows(title):
    "The words in the first column of the tables of a section."
    text = next(cell for cell in cells() if cell.startswith(title))
    return [re.match(r"\| `([^`]+)` \|", line)[1] for line in re.findall(r"^\| `.*$", text, re.M)]


def named(text, fragments):
    return any(fragment in plain(text) for fragment in fragments)


WARNINGS = [(module, text) for module, tree in sources() for text in warnings_of(tree)]
OWN = [(m, t) for m, t in WARNINGS if len(t.replace("…", "")) > 8]


def test_every_warning_has_its_row():
    fragments = rows("## Every warning")
    without = [(module, text) for module, text in OWN if not named(text, fragments)]
    assert not without, "add a row to nbs/tutorials/07_warnings.ipynb"
    assert len(OWN) > 30


def test_warnings_without_words_of_their_own_are_known():
    mute = {module for module, text in WARNINGS if (module, text) not in OWN}
    assert mute == {
        "dpsbi/runs/running.py",
        "dpsbi/analyst/guided.py",
        "dpsbi/analyst/importance/amis.py",
        "dpsbi/analyst/filtering/pseudo_marginal.py",
    }


def test_every_row_is_a_warning():
    spoken = [t for _, tree in sources() for t in sentences(tree, SPOKEN)]
    said = [text for _, text in OWN] + spoken
    stale = [row for row in rows("## Every warning") if not any(row in plain(t) for t in said)]
    assert not stale


@pytest.mark.thorough
def test_every_reason_has_its_row():
    fragments = rows("## Why a result is not exact")
    given = [t for _, tree in sources() for t in sentences(tree, REASONS)]
    assert [t for t in given if not named(t, fragments)] == [] and len(given) > 8
    source = " ".join(w for _, tree in sources() for w in map(words, every_string(tree)))
    assert [row for row in fragments if row not in plain(source)] == []


def every_string(tree):
    return (n for n in ast.walk(tree) if isinstance(n, (ast.JoinedStr, ast.Constant)))


@pytest.mark.parametrize("call", ['warn("x")', 'warnings.warn(f"a {b} c")', 'w.warn("a" + b)'])
def test_a_new_warning_is_seen(call):
    found = warnings_of(ast.parse(call))
    assert len(found) == 1 and not named(found[0], rows("## Every warning"))
