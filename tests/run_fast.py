"""Fast cells of every notebook and fast tests of every file, in one pool.

    python tests/run_fast.py             all
    python tests/run_fast.py ledger      those with "ledger" in their names
    python tests/run_fast.py --record    and keep how long each took

What is heavy to import is imported once, and every notebook and file starts as a fork of that.
Those that took longest start first, so that no processor waits at the end. `nbdev_test` and
`pytest` by themselves run the same cells and tests.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

from forked import ROOT, Item, import_heavy, name_of, notebook_files, pooled

SECONDS = ROOT / "tests/records/seconds.json"


def fast_notebook(path: Path) -> str:
    "The cells that nbdev_test runs."
    from nbdev.test import test_nb

    os.chdir(ROOT / "nbs")
    passed, _ = test_nb(path, skip_flags=["slow"], basepath=ROOT)
    return "" if passed else f"{path.name} failed"


def fast_tests(path: Path) -> str:
    import pytest

    os.chdir(ROOT)
    status = pytest.main(["-p", "no:cacheprovider", str(path.relative_to(ROOT))])
    return "" if status == 0 else f"{path.name} failed"


def fast_items() -> list[Item]:
    notebooks = [
        Item(name_of(path), lambda path=path: fast_notebook(path)) for path in notebook_files()
    ]
    files = sorted((ROOT / "tests").glob("test_*.py"))
    return notebooks + [Item(name_of(path), lambda path=path: fast_tests(path)) for path in files]


def fast(wanted: str, workers: int, record: bool) -> int:
    "Runs all, tells what failed and what took longest; 1 if any failed."
    before = json.loads(SECONDS.read_text()) if SECONDS.exists() else {}
    items = [item for item in fast_items() if wanted in item.name]
    items.sort(key=lambda item: -before.get(item.name, 1e3))
    begun = time.monotonic()
    sys.path.insert(0, str(ROOT))
    import_heavy()
    took, failed = {}, []
    for item, passed, seconds, said in pooled(items, workers):
        took[item.name] = round(seconds, 1)
        if not passed:
            failed.append(item.name)
            print(f"FAILED {item.name}\n{said}", flush=True)
    for name in sorted(took, key=took.get, reverse=True)[:15]:
        print(f"{took[name]:7.1f} s  {name}")
    print(f"{sum(took.values()):7.1f} s of processors, {time.monotonic() - begun:.0f} s in all")
    print(f"{len(items) - len(failed)} of {len(items)} passed", *failed, sep="\n  ")
    if record:
        kept = {name: before.get(name) for name in (item.name for item in fast_items())} | took
        SECONDS.write_text(json.dumps(dict(sorted(kept.items())), indent=0) + "\n")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wanted", nargs="?", default="", help="part of the names")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--record", action="store_true", help="keep the processor seconds")
    options = parser.parse_args()
    return fast(options.wanted, options.workers, options.record)


if __name__ == "__main__":
    sys.exit(main())
