"""Small faults put into the package, one at a time: a fast test has to fail for each.

    pytest tests/mutants.py -n 2                all of them
    pytest tests/mutants.py -k owner.svt        those of one module
    pytest tests/mutants.py --lf                those that were missed

`mutants.toml` lists them: in the module, `old` (which stands there once) becomes `new`; `why` says
what would go wrong; `tests` are run, and one of them must fail. Add your own: find a line whose
error would cost somebody their privacy, or an analyst the truth.
"""

import json
import os
import shutil
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MUTANTS = tomllib.loads((ROOT / "tests/mutants.toml").read_text(encoding="utf-8"))["mutant"]
SHARED = "numpy scipy.stats scipy.optimize pandas matplotlib.pyplot numba torch nflows emcee mpmath"
SHARED += " hypothesis opendp.prelude dp_accounting sklearn.mixture"


def where(mutant: dict) -> Path:
    "The module's file, below the root."
    return Path("dpsbi", *mutant["module"].split(".")).with_suffix(".py")


def files(mutant: dict) -> list[str]:
    "The tests that are run, or pages, as pytest names them."
    tests = mutant["tests"].split()
    return [name if name.startswith("nbs/") else _found(name) for name in tests]


def _found(name: str) -> str:
    "A test by the name of its file, in whatever folder of tests/ that is."
    file, mark, test = name.partition("::")
    path = next((ROOT / "tests").rglob(file), ROOT / "tests" / file)
    return f"{path.relative_to(ROOT)}{mark}{test}"


def copied(mutant: dict, folder: Path) -> None:
    "The package with the fault, and its tests; a page among them has the fault in its own cells."
    for part in ("dpsbi", "tests"):
        shutil.copytree(ROOT / part, folder / part)
    shutil.copy2(ROOT / "pyproject.toml", folder)
    path = folder / where(mutant)
    path.write_text(path.read_text().replace(mutant["old"], mutant["new"]))
    pages = [Path(name) for name in files(mutant) if name.startswith("nbs/")]
    linked(ROOT / "nbs", folder / "nbs", {ROOT / page for page in pages})
    for page in pages:
        cells = json.loads((ROOT / page).read_text(encoding="utf-8"))
        for cell in cells["cells"]:
            cell["source"] = "".join(cell["source"]).replace(mutant["old"], mutant["new"])
        (folder / page).write_text(json.dumps(cells), encoding="utf-8")


def linked(source: Path, target: Path, without: set[Path]) -> None:
    "A folder of links to what stands in another, without some files."
    if not any(source in path.parents for path in without):
        return target.symlink_to(source)
    target.mkdir()
    for path in set(source.iterdir()) - without:
        linked(path, target / path.name, without)


def status_of(mutant: dict, folder: Path) -> int:
    "Pytest's exit status on the copy, in a process of its own, up to the first failure."
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    status = 99
    try:
        for stream in (1, 2):
            os.dup2(os.open(folder / "said", os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
        os.chdir(folder)
        os.environ |= dict(PYTHONPATH=str(folder), PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
        os.environ.pop("PYTEST_XDIST_WORKER", None)
        sys.path.insert(0, str(folder))
        status = pytest.main(
            ["-x", "-p", "no:cacheprovider", "-c", "pyproject.toml", *files(mutant)]
        )
    finally:
        os._exit(int(status))


@pytest.fixture(scope="session", autouse=True)
def shared():
    "What nearly all tests import, once; the package is imported from the copies alone."
    for name in SHARED.split():
        import_module(name)
    assert "dpsbi" not in sys.modules


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m['module']}: {m['why']}")
def test_a_test_fails(mutant, tmp_path):
    copied(mutant, tmp_path)
    status = status_of(mutant, tmp_path)
    said = (tmp_path / "said").read_text(errors="replace")
    assert status == pytest.ExitCode.TESTS_FAILED, f"no test failed ({status}):\n{said[-2000:]}"
