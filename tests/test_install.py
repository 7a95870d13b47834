"""The set-up of .venv, with a stand-in for its Python: what it says, and no stamp if it fails."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import install
import pytest

ROOT = Path(__file__).resolve().parent.parent
STUB = """#!/bin/sh
case "$*" in
*"pip install"*) echo "$*" >> calls; echo "$SAID"; exit $STATUS;;
esac
"""


@pytest.fixture
def copy(tmp_path, monkeypatch):
    "A folder with all that the set-up reads, and a .venv whose pip says what it is told to."
    for name in ("Makefile", "settings.ini", "setup.py", "pyproject.toml", "tests/install.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    stub = tmp_path / ".venv/bin/python"
    stub.parent.mkdir(parents=True)
    stub.write_text(STUB)
    stub.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make(said: str = "", status: int = 0, python: str = sys.executable):
    "`make .venv/.installed` in this folder."
    if shutil.which("make") is None:
        pytest.skip("needs make")
    plain = {k: v for k, v in os.environ.items() if "INDEX_URL" not in k and "MAKE" not in k}
    env = plain | dict(SAID=said, STATUS=str(status))
    command = ["make", ".venv/.installed", f"PYTHON={python}"]
    return subprocess.run(command, env=env, capture_output=True, text=True)


def test_each_step_says_what_it_does_and_how_long(copy):
    done = make()
    assert done.returncode == 0 and not done.stderr and (copy / ".venv/.installed").exists()
    assert "2 to 5 minutes, and 2.3 GB" in done.stdout and done.stdout.count("done in") == 2
    assert "2/3 PyTorch: 200 MB" in done.stdout and "3/3 the library" in done.stdout
    first, second = (copy / "calls").read_text().splitlines()
    assert first.endswith("torch==2.13.0") and second.endswith("-e .[all,dev]")
    assert "2/3" not in make().stdout  # once


@pytest.mark.parametrize(
    "said, remedy",
    [
        ("NewConnectionError: Temporary failure in name resolution", "Is there a network?"),
        ("OSError: [Errno 28] No space left on device", "The disk is full"),
        ("ERROR: No matching distribution found for torch==2.13.0", "make demo PYTHON="),
        ("ERROR: Package 'dpsbi' requires a different Python: 3.9.2", "make demo PYTHON="),
        ("[Errno 13] Permission denied: '.venv/lib'", "cannot be written"),
        ("error: a compiler went astray", "stands in .venv/install.log"),
    ],
)
def test_a_step_that_fails_says_what_to_do(copy, said, remedy):
    done = make(said, 1)
    assert done.returncode and said in done.stderr and remedy in done.stderr
    assert not (copy / ".venv/.installed").exists()
    assert said in (copy / ".venv/install.log").read_text()


def test_no_python_at_all(copy):
    done = make(python="python-that-is-not-there")
    assert done.returncode and "There is no python-that-is-not-there here" in done.stderr
    assert not (copy / "calls").exists()


def test_a_python_that_is_too_old(copy, monkeypatch):
    install.check_python()
    monkeypatch.setattr(sys, "version_info", (3, 9, 2, "final", 0))
    with pytest.raises(install.Failed, match="3.11 or later is needed; .* is Python 3.9"):
        install.check_python()


def test_a_python_without_virtual_environments(copy, monkeypatch):
    monkeypatch.setattr(install, "find_spec", lambda name: None if name == "ensurepip" else 1)
    with pytest.raises(install.Failed, match="apt-get install python.*-venv"):
        install.check_python()


def test_an_environment_without_pip_is_made_again(copy, monkeypatch):
    (copy / ".venv/bin/python").write_text("#!/bin/sh\nexit 1\n")
    made = []
    monkeypatch.setattr(install, "run", lambda command, label: made.append(command))
    install.environment("1/3")
    assert made == [[sys.executable, "-m", "venv", "--clear", install.VENV]]
