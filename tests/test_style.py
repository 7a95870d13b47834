"""How the code is laid out: ruff's rules, and what its rules do not know."""

import ast
import io
import json
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted(path for path in (ROOT / "dpsbi").rglob("*.py") if path.name != "_modidx.py")


@pytest.mark.parametrize("command", [["check"], ["format", "--check"]], ids=" ".join)
def test_ruff_has_nothing_to_say(command):
    ruff = subprocess.run(
        [sys.executable, "-m", "ruff", *command, "nbs", "tests", "setup.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert ruff.returncode == 0, ruff.stdout


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_public_functions_say_what_they_do(path):
    public = [
        node
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
    ]
    silent = [node.name for node in public if not ast.get_docstring(node)]
    assert not silent, f"{path.name}: no docstring for {', '.join(silent)}"


LONGEST = 98  # lines of code of the longest cell; to be lowered, never raised
LONG, MOST_LONG = 25, 0.032  # a long cell, and the share of the cells that may be long
EMPTY = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def lines_of_code(source):
    "Lines of a cell that hold code: without docstrings, comments and blank lines."
    kept = (line for line in source.splitlines() if not line.lstrip().startswith(("%", "!")))
    source = "\n".join(kept) + "\n"
    said = set()
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
            said |= set(range(body[0].lineno, body[0].end_lineno + 1))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    spans = [range(t.start[0], t.end[0] + 1) for t in tokens if t.type not in EMPTY]
    return len(set().union(*spans) - said)


def cells(notebook):
    "Lines of code of each code cell of a notebook's text, by the cell's id."
    code = [c for c in json.loads(notebook)["cells"] if c["cell_type"] == "code"]
    return {c["id"]: lines_of_code("".join(c["source"])) for c in code}


def test_lines_of_code_are_counted_as_one_would():
    source = 'def f(x):\n    "Says."\n\n    # why\n    return (\n        x\n    )\n\n\n%time f(1)\n'
    assert lines_of_code(source) == 4 and lines_of_code("") == 0
    assert lines_of_code('text = """one\n\ntwo"""\n') == 3


def test_cells_are_short():
    paths = sorted((ROOT / "nbs").rglob("[0-9a-z]*.ipynb"))
    sizes = {f"{p.name} {i}": n for p in paths for i, n in cells(p.read_text()).items()}
    longest = max(sizes, key=sizes.get)
    assert sizes[longest] <= LONGEST, f"{longest} has {sizes[longest]} lines of code"
    long = sum(n > LONG for n in sizes.values())
    assert long <= MOST_LONG * len(sizes), f"{long} of {len(sizes)} cells have more than {LONG}"
