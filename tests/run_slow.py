"""Slow cells and slow tests, one notebook or test at a time; goes on where it stopped.

    python tests/run_slow.py                      all that has not passed as it stands
    python tests/run_slow.py 34_mcem              those with this in their names
    python tests/run_slow.py --limits 20 120      rounds: at most 20 seconds each, then 120
    python tests/run_slow.py --keep               and put what passed cells show into the notebooks
    python tests/run_slow.py --summary            what the record says

Limits rise by rounds, so the short ones come first. All runs in a copy of the tree; notebooks are
changed with `--keep` alone. A cell that appends rows to a file of references appends them in the
copy, and finds the last row missing there, to be made anew. `tests/slow_items.py` says what a row
holds for.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from forked import ROOT, Item, pooled, processor_seconds
from slow_items import RESULTS, SLOW, Cell, due, keep, keys, needed, rows, slow_cells, slow_tests

FAST = 600  # processor seconds that a fast cell, or one that others need, may take


class OutOfTime(BaseException):
    "A cell has used what it may use; no `except Exception` holds it up."


@contextmanager
def limited(seconds: float) -> Iterator[list[bool]]:
    """At most so many processor seconds of this process; by the clock a hundred times as many, and
    ten minutes: a busy machine is no fault of a cell, and one that waits for ever must end. Gives
    a list that is no longer empty when time is over: a test's own runner takes the error for its.
    """
    over: list[bool] = []

    def stop(number, frame):
        over.append(True)
        raise OutOfTime

    signal.signal(signal.SIGPROF, stop)
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 100 * seconds + 600)
    try:
        yield over
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


def out_of_time(trouble: BaseException | None) -> bool:
    "Whether an error is that of the limit, or follows from it: compiled code raises another."
    while trouble is not None and not isinstance(trouble, OutOfTime):
        trouble = trouble.__cause__ or trouble.__context__
    return trouble is not None


def executed(shell, source: str, limit: float) -> tuple[str, str, list]:
    "Result, the reason where it is not passed, and what the cell shows."
    try:
        with limited(limit):
            shown = shell.run(source)
    except OutOfTime:
        return "limit", "", []
    trouble = shell.exc
    if trouble is None:
        return "passed", "", shown
    if out_of_time(trouble):
        return "limit", "", []
    return "failed", f"{type(trouble).__name__}: {trouble}"[:300], []


def put_outputs(path: Path, shown: dict[str, list]) -> None:
    "What cells show, by their ids, into the notebook of that path."
    page = json.loads(path.read_text())
    for cell in page["cells"]:
        if cell.get("id") in shown:
            cell["outputs"] = shown[cell["id"]]
    text = json.dumps(page, indent=1, sort_keys=True, ensure_ascii=False)
    path.write_text(text + "\n")


@dataclass
class Run:
    "A round of slow items: what there is to do, with which limit, and where the rows go."

    limit: float
    record: Path
    commit: str
    known: dict[str, str]
    keep_in: Path | None = None

    def row(self, what: str, result: str, seconds: float, note: str = "") -> None:
        told = dict(
            what=what, result=result, seconds=round(seconds, 1), limit=self.limit, note=note
        )
        told |= dict(date=str(date.today()), commit=self.commit, key=self.known[what])
        keep(told, self.record, self.known)
        print(f"{result:7s} {seconds:8.1f} s  {what}  {note}", flush=True)

    def due(self, what: str) -> bool:
        return due(what, self.known[what], self.limit, self.commit, rows(self.record))

    def notebook(self, tree: Path, name: str, cells: list[Cell]) -> None:
        "Fast cells, the slow ones that are due, and those that they need; a row for each due."
        from execnb.shell import CaptureShell

        wanted = [cell for cell in cells if cell.slow and self.due(f"{name}#{cell.id}")]
        chosen = {helper for each in wanted for helper in needed(cells, each)} | set(wanted)
        os.chdir((tree / name).parent)
        os.environ |= dict(IN_TEST="1", COLUMNS="120")  # the width of tables in plain text
        shell = CaptureShell(tree / name, mpl_format="png")
        bad: set[str] = set()
        shown: dict[str, list] = {}
        end = len(cells) if self.keep_in else cells.index(wanted[-1]) + 1
        for cell in cells[:end]:
            if cell.skipped or (cell.slow and cell not in chosen):
                continue
            start = processor_seconds()
            missing = [each.id for each in needed(cells, cell) if cell.slow and each.id in bad]
            if missing:
                result, note = "waits", f"for {', '.join(missing)}"
            else:
                limit = self.limit if cell in wanted else max(self.limit, FAST)
                result, note, outputs = executed(shell, cell.source, limit)
            if result == "passed":
                shown[cell.id] = outputs
            else:
                bad.add(cell.id)
            if cell in wanted:
                self.row(f"{name}#{cell.id}", result, processor_seconds() - start, note)
            elif result != "passed" and not cell.slow:
                for each in wanted:
                    if cells.index(each) > cells.index(cell):
                        self.row(f"{name}#{each.id}", "error", 0.0, f"before it, {cell.id}: {note}")
                return
        if self.keep_in:
            put_outputs(self.keep_in / name, shown)

    def test(self, tree: Path, what: str) -> None:
        import pytest

        os.chdir(tree)
        start = processor_seconds()
        try:
            with limited(self.limit) as over:
                status = pytest.main(["-p", "no:cacheprovider", "-m", "slow", what])
            result = "passed" if status == 0 else "limit" if over else "failed"
        except OutOfTime:
            result = "limit"
        self.row(what, result, processor_seconds() - start)


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.strip()


def tree_copied(folder: Path) -> None:
    "What git knows of the tree; each file of rows loses its last one."
    for name in git("ls-files", "--cached", "--others", "--exclude-standard").splitlines():
        source, target = ROOT / name, folder / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    for path in (folder / "nbs/references").glob("*.jsonl"):
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(lines[:-1]))


def slow(wanted: str, limits: list[float], record: Path, keep_in: Path | None = None) -> int:
    "Rounds with rising limits over what is due."
    known = keys()
    commit = git("rev-parse", "--short", "HEAD")
    notebooks = slow_cells()
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name)
        tree_copied(tree)
        os.environ["PYTHONPATH"] = name
        sys.path.insert(0, name)
        for module in [each for each in sys.modules if each.partition(".")[0] == "dpsbi"]:
            del sys.modules[module]  # so that the copy's is imported
        for limit in limits:
            run = Run(limit, record, commit, known, keep_in)
            items = []
            for what in slow_tests():
                if run.due(what):
                    items.append(Item(what, lambda what=what, run=run: run.test(tree, what) or ""))
            for what, cells in notebooks.items():
                if any(run.due(f"{what}#{cell.id}") for cell in cells if cell.slow):
                    work = lambda what=what, cells=cells, run=run: run.notebook(tree, what, cells)
                    items.append(Item(what, lambda work=work: work() or ""))
            print(f"---- at most {limit:g} s each: {len(items)} notebooks and tests", flush=True)
            for item, passed, _, said in pooled([i for i in items if wanted in i.name], 1):
                print(said if passed else f"STOPPED {item.name}\n{said[-3000:]}", flush=True)
    return summary(record)


def summary(record: Path) -> int:
    "A line for each notebook or file; 1 if anything failed or is missing."
    known, kept = keys(), rows(record)
    table: dict[str, dict[str, float]] = {}
    for what, key in known.items():
        line = table.setdefault(
            what.partition("#")[0], dict.fromkeys((*RESULTS, "old", "none", "seconds"), 0)
        )
        row = kept.get(what)
        line["none" if row is None else "old" if row["key"] != key else row["result"]] += 1
        line["seconds"] += row["seconds"] if row else 0
    heads = (*RESULTS, "old", "none", "seconds")
    print(f"{'':48s}" + "".join(f"{head:>9s}" for head in heads))
    table["all"] = {head: sum(line[head] for line in table.values()) for head in heads}
    for name, line in table.items():
        print(f"{name:48s}" + "".join(f"{line[head]:9.0f}" for head in heads))
    return 0 if table["all"]["passed"] == len(known) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wanted", nargs="?", default="", help="part of the names")
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--limits", type=float, nargs="*", default=[20, 120, 600, 3600, 20000])
    parser.add_argument("--rows", type=Path, default=SLOW, help="the record")
    parser.add_argument("--keep", action="store_true", help="put what is shown into the notebooks")
    options = parser.parse_args()
    if options.summary:
        return summary(options.rows)
    return slow(options.wanted, options.limits, options.rows, ROOT if options.keep else None)


if __name__ == "__main__":
    sys.exit(main())
