"""Slow cells and slow tests: which there are, what they need, and what is on record of each.

`tests/records/slow.jsonl` keeps the last row of each: date, commit, processor seconds, result. A
row holds while its key stays: the code of the notebook and of the modules that it imports by name,
without comments and layout. Rooms further below may change without a new run: the fast tests watch
those, and a row names its commit.
"""

import ast
import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from forked import ROOT, name_of, notebook_files

SLOW = ROOT / "tests/records/slow.jsonl"
RESULTS = ("passed", "failed", "limit", "waits", "error")


@dataclass(frozen=True)
class Cell:
    "A code cell, with the names that it binds and those that it reads."

    id: str
    source: str
    slow: bool
    skipped: bool

    @property
    def code(self) -> str:
        "Without comments and layout; the text itself where it is not Python."
        try:
            return ast.dump(ast.parse(self.source))
        except SyntaxError:
            return self.source

    def names(self, kind: type) -> set[str]:
        try:
            tree = ast.parse(self.source)
        except SyntaxError:
            return set()
        found = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
        names = {node.id for node in found if isinstance(node.ctx, kind)}
        if kind is ast.Store:
            names |= {node.name for node in tree.body if hasattr(node, "name")}
        return names


def cells_of(path: Path) -> list[Cell]:
    "The code cells of a notebook."
    found = []
    for cell in json.loads(path.read_text())["cells"]:
        if cell["cell_type"] == "code":
            source = "".join(cell["source"])
            directives = {line[2:].strip() for line in source.splitlines() if line.startswith("#|")}
            skipped = bool(directives & {"eval: false", "eval:false"})
            found.append(Cell(cell["id"], source, "slow" in directives, skipped))
    return [cell for cell in found if cell.source.strip()]


def needed(cells: list[Cell], wanted: Cell) -> list[Cell]:
    "The slow cells before this one whose names it reads, and those that they need."
    earlier = [cell for cell in cells[: cells.index(wanted)] if cell.slow]
    reads = wanted.names(ast.Load)
    direct = [cell for cell in earlier if cell.names(ast.Store) & reads]
    further = [cell for each in direct for cell in needed(cells, each)]
    return list(dict.fromkeys([*further, *direct]))


def modules_named(source: str) -> set[str]:
    "The modules of the package that a file imports by name."
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return set()
    import dpsbi

    homes = getattr(dpsbi, "_HOME_OF")
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "dpsbi":
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
            if node.module == "dpsbi":
                found |= {f"dpsbi.{homes[a.name]}" for a in node.names if a.name in homes}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("dpsbi")}
    return found


@lru_cache(maxsize=None)
def code_of(module: str) -> str:
    "Without comments and layout; nothing where there is no such file."
    path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    return ast.dump(ast.parse(path.read_text())) if path.exists() else ""


def key_of(codes: list[str], sources: list[str]) -> str:
    "What a row holds for."
    digest = hashlib.sha256("\n".join(codes).encode())
    for module in sorted(set().union(*map(modules_named, sources))):
        digest.update(code_of(module).encode())
    return digest.hexdigest()[:16]


def slow_tests() -> dict[str, str]:
    "The key of each slow test, by its name for pytest."
    found = {}
    for path in sorted((ROOT / "tests").glob("test_*.py")):
        source = path.read_text()
        for node in ast.parse(source).body:
            marks = [ast.unparse(mark) for mark in getattr(node, "decorator_list", [])]
            if any("mark.slow" in mark for mark in marks):
                found[f"{name_of(path)}::{node.name}"] = key_of([ast.dump(node)], [source])
    return found


def slow_cells() -> dict[str, list[Cell]]:
    "The cells of each notebook that has slow ones."
    cells = {name_of(path): cells_of(path) for path in notebook_files()}
    return {name: found for name, found in cells.items() if any(cell.slow for cell in found)}


def notebook_key(cells: list[Cell]) -> str:
    return key_of([cell.code for cell in cells], [cell.source for cell in cells])


def keys() -> dict[str, str]:
    "The present key of everything slow; a cell's name is its notebook's and its own."
    found = slow_tests()
    for name, cells in slow_cells().items():
        key = notebook_key(cells)
        found |= {f"{name}#{cell.id}": key for cell in cells if cell.slow}
    return found


def rows(path: Path = SLOW) -> dict[str, dict]:
    lines = path.read_text().splitlines() if path.exists() else []
    return {row["what"]: row for row in map(json.loads, lines)}


def keep(row: dict, path: Path, known: dict[str, str]) -> None:
    "Puts the row into the record in place of the former; drops rows of what is no more."
    kept = rows(path) | {row["what"]: row}
    lines = [json.dumps(kept[what], ensure_ascii=False) for what in sorted(kept) if what in known]
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


def due(what: str, key: str, limit: float, commit: str, kept: dict[str, dict]) -> bool:
    "Neither passed as it stands, nor tried with this limit, nor failed at this commit?"
    row = kept.get(what)
    if row is None or row["key"] != key:
        return True
    if row["result"] in ("failed", "error"):
        return row["commit"] != commit
    return row["result"] in ("limit", "waits") and row["limit"] < limit
