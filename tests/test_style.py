"""How the code is laid out: ruff's rules, and what its rules do not know."""

import ast
import subprocess
import sys
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
