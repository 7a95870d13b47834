"""Fast cells of every notebook and fast tests of every file, in one pool.

    python tests/run_fast.py             all
    python tests/run_fast.py ledger svt  those with "ledger" or "svt" in their names
    python tests/run_fast.py --record    and keep how long each took
    python tests/run_fast.py --detail    and tell which cells and tests took a second

The package and what is heavy to import are imported once, and every notebook and file starts as a
fork of that. Those that took longest start first, so that no processor waits at the end.
`nbdev_test` and `pytest` by themselves run the same cells and tests.
"""

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from forked import (
    ROOT,
    Item,
    import_heavy,
    import_rooms,
    name_of,
    notebook_files,
    pooled,
    processor_seconds,
)

SECONDS = ROOT / "tests/records/seconds.json"


def told(what: str, start: float) -> None:
    "Prints what took long."
    seconds = processor_seconds() - start
    if seconds > 1:
        print(f"DETAIL {seconds:7.1f} s  {what}", flush=True)


class Detail:
    "Tells pytest's slow tests by their processor seconds."

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item):
        start = processor_seconds()
        yield
        told(item.nodeid, start)


def detailed(name: str) -> None:
    "Has nbdev's shell tell its slow cells."
    from execnb import shell

    plain = shell.CaptureShell.run

    def run(self, code, *given, **more):
        start = processor_seconds()
        found = plain(self, code, *given, **more)
        told(f"{name}: {code.strip().splitlines()[-1][:80]}", start)
        return found

    shell.CaptureShell.run = run


def unpainted() -> list[str]:
    """Has figures laid out and not painted, since nobody looks; returns a list of what fails.

    Painting took a fifth of the notebooks' time: the inline backend paints a figure at twice its
    size, twice to see how large it is, and once because it is interactive. And it fails in silence.
    """
    from IPython.core import pylabtools
    from matplotlib import pyplot

    failures = []

    def laid_out(figure, **how) -> None:
        try:
            figure.draw_without_rendering()
        except Exception:
            failures.append(traceback.format_exc())

    pylabtools.retina_figure = laid_out
    pyplot.draw_all = lambda force=False: None
    return failures


def fast_notebook(path: Path, detail: bool) -> str:
    "The cells that nbdev_test runs; a figure that cannot be drawn fails here, and not there."
    from nbdev.test import test_nb

    if detail:
        detailed(path.name)
    failures = unpainted()
    os.chdir(ROOT / "nbs")
    passed, _ = test_nb(path, skip_flags=["slow"], basepath=ROOT)
    return "\n".join(failures + [f"{path.name} failed"] * (not passed))


def warm_up() -> None:
    "Once for all forks, as what is imported: fonts, and what Hypothesis reads in the sources."
    from hypothesis import given, strategies
    from matplotlib import pyplot
    from matplotlib.backends.registry import backend_registry

    given(strategies.integers())(lambda n: None)()
    figure = pyplot.figure(layout="constrained")
    figure.subplots().set(xlabel="$x$", ylabel="y")
    figure.draw_without_rendering()
    pyplot.close(figure)
    backend_registry.resolve_backend("inline")


def fast_tests(path: Path, detail: bool) -> str:
    os.chdir(ROOT)
    given = [name_of(path), "-s" if detail else "-q"]
    for unasked in ("cacheprovider", "logging"):  # no test reads the log
        given += ["-p", f"no:{unasked}"]
    status = pytest.main(given, plugins=[Detail()] if detail else [])
    only_slow = status == pytest.ExitCode.NO_TESTS_COLLECTED
    return "" if status == 0 or only_slow else f"{path.name} failed"


def fast_items(detail: bool = False) -> list[Item]:
    files = sorted((ROOT / "tests").glob("test_*.py"))
    notebooks = [(fast_notebook, path) for path in notebook_files()]
    work = notebooks + [(fast_tests, path) for path in files]
    return [Item(name_of(path), partial(run, path, detail)) for run, path in work]


@contextmanager
def files_in_memory() -> Iterator[None]:
    "Temporary files where no test waits for a disk, if there is such a place with 2 GB to spare."
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK) or shutil.disk_usage(memory).free < 2**31:
        yield
        return
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        yield


@files_in_memory()
def fast(wanted: list[str], workers: int, record: bool, detail: bool) -> int:
    "Runs all, tells what failed and what took longest; 1 if any failed."
    before = json.loads(SECONDS.read_text()) if SECONDS.exists() else {}
    items = fast_items(detail)
    if wanted:
        items = [item for item in items if any(part in item.name for part in wanted)]
    items.sort(key=lambda item: -before.get(item.name, 1e3))
    begun = time.monotonic()
    sys.path.insert(0, str(ROOT))
    import_rooms()
    import_heavy()
    warm_up()
    took, failed = {}, []
    for item, passed, seconds, said in pooled(items, workers):
        took[item.name] = round(seconds, 1)
        details = re.findall(r"DETAIL (.*)", said)
        if detail:
            print(f"{seconds:7.1f} s  {item.name}", *details, sep="\n         ", flush=True)
        if not passed:
            failed.append(item.name)
            print(f"FAILED {item.name}\n{said}", flush=True)
    for name in sorted(took, key=took.get, reverse=True)[:15]:
        print(f"{took[name]:7.1f} s  {name}")
    print(f"{sum(took.values()):7.1f} s of processors, {time.monotonic() - begun:.0f} s in all")
    if failed:
        print("Failed:", *failed, sep="\n  ")
    print(f"{len(items) - len(failed)} passed, {len(failed)} failed")
    if record:
        names = {item.name for item in fast_items()}
        kept = {name: seconds for name, seconds in (before | took).items() if name in names}
        SECONDS.write_text(json.dumps(dict(sorted(kept.items())), indent=0) + "\n")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wanted", nargs="*", help="parts of the names")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--record", action="store_true", help="keep the processor seconds")
    parser.add_argument("--detail", action="store_true", help="tell the slow cells and tests")
    options = parser.parse_args()
    return fast(options.wanted, options.workers, options.record, options.detail)


if __name__ == "__main__":
    sys.exit(main())
