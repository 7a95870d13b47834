"""Notebooks as items of pytest: their cells run as `nbdev_test` runs them, each page in a process.

A page is an item `fast`; where cells are marked `#| slow`, an item `slow` runs all of its cells.
A page that no mutant names is `thorough`: `make test` leaves it to `make test-thorough`.
"""

import gc
import json
import os
import re
import sys
import tempfile
import traceback
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import Pipe
from pathlib import Path
from pkgutil import walk_packages

os.environ["OMP_NUM_THREADS"] = "1"  # before NumPy: processes share the processors
os.environ.setdefault("MPLBACKEND", "agg")

import pytest  # noqa: E402

ROOT = Path(__file__).absolute().parent.parent
SLOW = re.compile(r"^#\|\s*slow\b", re.MULTILINE)
SHARED = (  # what is imported once, where many pages follow
    "numpy scipy.stats scipy.optimize scipy.integrate pandas matplotlib.pyplot arviz numba torch"
    " sklearn.mixture nflows.flows emcee opendp.prelude dp_accounting IPython nbdev.test sqlite3"
    " torch._dynamo mpmath contourpy pandas.io.formats.style tqdm.auto"  # or at the first use
)
MANY = 20  # pages
MUTANTS = ROOT / "tests/mutants.toml"


def pytest_collect_file(file_path, parent):
    "Notebooks, where nbdev finds them."
    hidden = any(name.startswith(("_", ".")) for name in file_path.relative_to(ROOT).parts)
    if file_path.suffix == ".ipynb" and not hidden:
        return Notebook.from_parent(parent, path=file_path)


def pytest_addoption(parser):
    parser.addoption("--shard", metavar="K/N", help="the Kth of N parts of what is chosen")


@pytest.hookimpl(trylast=True)  # after -m and -k
def pytest_collection_modifyitems(config, items):
    "Every Nth item, from the Kth on."
    if config.getoption("--shard"):
        k, n = map(int, config.getoption("--shard").split("/"))
        if not 1 <= k <= n:
            raise pytest.UsageError(f"--shard takes K/N with 1 <= K <= N, not {k}/{n}")
        kept = items[k - 1 :: n]
        config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
        items[:] = kept


def pytest_collection_finish(session):
    "Forks of pages begin with what most of them need, and with nothing that a test has left."
    pages = sum(isinstance(item, Page) for item in session.items)
    if pages > MANY:
        for name in [*SHARED.split(), *package()]:
            _imported(name)
        gc.collect()
        gc.freeze()
    if pages:
        session.config.stash[NURSERY] = Nursery()


def _imported(name):
    "A module; ArviZ notes the day in one file, which of two workers at once one finds moved away."
    try:
        import_module(name)
    except FileNotFoundError:
        import_module(name)


def pytest_sessionfinish(session):
    if NURSERY in session.config.stash:
        session.config.stash[NURSERY].close()


def package():
    "The names of all modules of the package."
    found = find_spec("dpsbi").submodule_search_locations
    return [module.name for module in walk_packages(found, "dpsbi.")]


class Nursery:
    "A process that runs no test, from which that of each page is forked."

    def __init__(self):
        self.ours, theirs = Pipe()
        self.pid = os.fork()
        if not self.pid:
            self.ours.close()
            _serve(theirs)
        theirs.close()

    def said_by(self, path, skipped):
        "What a page says where it fails; nothing where it passes. Cells with these flags wait."
        with tempfile.NamedTemporaryFile("r", errors="replace") as said:
            self.ours.send((path, skipped, said.name))
            status = self.ours.recv()
            return (said.read() or f"the process ended with status {status}") if status else ""

    def close(self):
        self.ours.close()
        os.waitpid(self.pid, 0)


NURSERY = pytest.StashKey[Nursery]()


def _serve(connection):
    "Forks for each page that comes, until there is nobody to ask."
    try:
        while True:
            page = connection.recv()
            pid = os.fork()
            if not pid:
                _child(*page)
            connection.send(os.waitpid(pid, 0)[1])
    finally:
        os._exit(0)


class Notebook(pytest.File):
    def collect(self):
        page = Page.from_parent(self, name="fast")
        if self.path.relative_to(ROOT).as_posix() not in MUTANTS.read_text(encoding="utf-8"):
            page.add_marker(pytest.mark.thorough)
        yield page
        cells = json.loads(self.path.read_text(encoding="utf-8"))["cells"]
        if any(SLOW.search("".join(cell["source"])) for cell in cells):
            page = Page.from_parent(self, name="slow")
            page.add_marker(pytest.mark.slow)
            yield page


class Failed(Exception):
    "What a page said."


class Page(pytest.Item):
    def runtest(self):
        skipped = ["slow"] if self.name == "fast" else []
        trouble = self.config.stash[NURSERY].said_by(self.path, skipped)
        if trouble:
            raise Failed(trouble)

    def repr_failure(self, excinfo):
        return str(excinfo.value) if excinfo.errisinstance(Failed) else str(excinfo.getrepr())

    def reportinfo(self):
        return self.path, None, f"{self.path.relative_to(ROOT)}::{self.name}"


def _child(path, skipped, name):
    "Runs a page, and ends the process."
    passed, said = False, open(name, "w")
    try:
        for stream in (1, 2):
            os.dup2(said.fileno(), stream)
        sys.stdout = sys.stderr = said
        from nbdev.test import test_nb

        failures = _unpainted()
        passed, _ = test_nb(path, skip_flags=skipped, basepath=ROOT)
        print(*failures, sep="\n", file=said)
        passed = passed and not failures
    except BaseException:
        traceback.print_exc(file=said)
    finally:
        said.flush()
        os._exit(0 if passed else 1)


def _unpainted():
    "Lays figures out and does not paint them; a list that fills with those that cannot be drawn."
    from IPython.core import pylabtools
    from matplotlib import pyplot

    failures = []

    def laid_out(figure, **how):
        try:
            figure.draw_without_rendering()
        except Exception:
            failures.append(traceback.format_exc())

    pylabtools.retina_figure = laid_out
    pyplot.draw_all = lambda force=False: None
    return failures
