"""Slow cells and slow tests: which there are, what they need, and what is on record of each.

`tests/records/slow.jsonl` keeps the last row of each: date, commit, processor seconds, result. A
row holds while its key stays: the code of the cell or test, of what its notebook or file binds or
changes and it reads, and of the modules from which a name that is read was imported; all without
comments, docstrings and layout. Other cells, and rooms further below, may change without a new run:
the fast tests watch those, and a row names its commit.
"""

import ast
import hashlib
import json
import symtable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from forked import ROOT, name_of, notebook_files

SLOW = ROOT / "tests/records/slow.jsonl"
RESULTS = ("passed", "failed", "limit", "waits", "error")


def plain(tree: ast.AST) -> str:
    "What runs, as text: without the docstrings of its functions and classes."
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
            node.body = node.body[1:]
    return ast.dump(tree)


@lru_cache(maxsize=None)
def tree_of(source: str) -> ast.Module | None:
    "None where it is not Python: a magic, say."
    try:
        return ast.parse(source)
    except SyntaxError:
        return None


@lru_cache(maxsize=None)
def scopes_of(source: str) -> list[symtable.SymbolTable]:
    "That of the module, and then those of its functions, classes and comprehensions."
    if tree_of(source) is None:
        return []
    found = [symtable.symtable(source, "cell", "exec")]
    for scope in found:  # it grows meanwhile
        found += scope.get_children()
    return found


@lru_cache(maxsize=None)
def globals_in(source: str) -> dict[str, list[symtable.Symbol]]:
    "The symbols of each name that is global where it stands, or imported there."
    found = {}
    for scope in scopes_of(source):
        for symbol in scope.get_symbols():
            if scope.get_type() == "module" or symbol.is_global() or symbol.is_imported():
                found.setdefault(symbol.get_name(), []).append(symbol)
    return found


def fixtures_in(source: str) -> set[str]:
    "Parameters of tests and of fixtures."
    nodes = tree_of(source).body if tree_of(source) else []
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    asking = [f for f in functions if f.name.startswith("test_") or f.decorator_list]
    return {argument.arg for f in asking for argument in f.args.args}


@lru_cache(maxsize=None)
def read_in(source: str) -> frozenset[str]:
    "Global names that are read, and fixtures."
    names = globals_in(source).items()
    read = {name for name, symbols in names if any(s.is_referenced() for s in symbols)}
    return frozenset(read | fixtures_in(source))


def owner(node: ast.AST) -> str:
    "The name in front of members and items."
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def changed_in(source: str) -> set[str]:
    "Names whose members or items are set, or called as a statement."
    found = set()
    for node in ast.walk(tree_of(source) or ast.Module([], [])):
        match node:
            case ast.Attribute(ctx=ast.Store()) | ast.Subscript(ctx=ast.Store()):
                found.add(owner(node))
            case ast.Expr(value=ast.Call(func=ast.Attribute()) as call):
                found.add(owner(call))
    return found


@lru_cache(maxsize=None)
def bound_in(source: str) -> frozenset[str]:
    "Global names that are bound or changed."
    found = changed_in(source)
    for name, symbols in globals_in(source).items():
        if any(symbol.is_assigned() or symbol.is_imported() for symbol in symbols):
            found.add(name)
    return frozenset(found & globals_in(source).keys())


@dataclass(frozen=True)
class Cell:
    "A code cell."

    id: str
    source: str
    slow: bool
    skipped: bool


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


def behind(cells: list[Cell], wanted: Cell) -> list[Cell]:
    "The cell, and those before it that bind or change what it reads, or what these read."
    earlier = [cell for cell in cells[: cells.index(wanted)] if not cell.skipped]
    found = {wanted} | {cell for cell in earlier if tree_of(cell.source) is None}
    while True:
        reads = frozenset().union(*(read_in(cell.source) for cell in found))
        more = {cell for cell in earlier if bound_in(cell.source) & reads} - found
        if not more:
            return [cell for cell in (*earlier, wanted) if cell in found]
        found |= more


def needed(cells: list[Cell], wanted: Cell) -> list[Cell]:
    "The slow cells that it cannot do without."
    return [cell for cell in behind(cells, wanted) if cell.slow and cell != wanted]


@lru_cache(maxsize=None)
def imported_in(source: str) -> frozenset[tuple[str, str, str]]:
    "(module, name, what it is called) of what is imported from the package."
    found = set()
    for node in ast.walk(tree_of(source) or ast.Module([], [])):
        if isinstance(node, ast.ImportFrom):
            found |= {(node.module or "", a.name, a.asname or a.name) for a in node.names}
        elif isinstance(node, ast.Import):
            found |= {(a.name, "", a.asname or a.name.partition(".")[0]) for a in node.names}
    return frozenset(each for each in found if each[0].partition(".")[0] == "dpsbi")


def modules_read(cells: list[Cell]) -> set[str]:
    "The modules of the package from which a name that is read was imported."
    import dpsbi

    homes = getattr(dpsbi, "_HOME_OF")
    reads = frozenset().union(*(read_in(cell.source) for cell in cells))
    found = set()
    for module, name, called in frozenset().union(*(imported_in(cell.source) for cell in cells)):
        if called in reads:
            found |= {module, f"{module}.{name}"}
            if module == "dpsbi" and name in homes:
                found.add(f"dpsbi.{homes[name]}")
    return found


@lru_cache(maxsize=None)
def code_of(module: str) -> str:
    "Without comments, docstrings and layout; nothing where there is no such file."
    path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    return plain(ast.parse(path.read_text())) if path.exists() else ""


@lru_cache(maxsize=None)
def code_run(source: str) -> str:
    "A cell's code without its imports."
    tree = tree_of(source)
    if tree is None:
        return source
    kept = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom)]
    return plain(ast.parse(ast.unparse(ast.Module(kept, []))))


def key(cells: list[Cell], wanted: Cell) -> str:
    "What a row holds for."
    read = behind(cells, wanted)
    digest = hashlib.sha256(
        "\n".join(filter(None, (code_run(cell.source) for cell in read))).encode()
    )
    for module in sorted(modules_read(read)):
        digest.update(code_of(module).encode())
    return digest.hexdigest()[:16]


def statements(source: str) -> list[Cell]:
    "The statements of a file, as cells."
    nodes = enumerate(ast.parse(source).body)
    return [Cell(f"{i}", ast.unparse(node), False, False) for i, node in nodes]


def slow_tests() -> dict[str, str]:
    "The key of each slow test, by its name for pytest."
    found = {}
    for path in sorted((ROOT / "tests").glob("test_*.py")):
        source = path.read_text()
        parts = statements(source) if "mark.slow" in source else []
        for part in parts:
            node = ast.parse(part.source).body[0]
            marks = [ast.unparse(mark) for mark in getattr(node, "decorator_list", [])]
            if any("mark.slow" in mark for mark in marks):
                others = [each for each in parts if each != part]
                found[f"{name_of(path)}::{node.name}"] = key([*others, part], part)
    return found


def slow_cells() -> dict[str, list[Cell]]:
    "The cells of each notebook that has slow ones."
    cells = {name_of(path): cells_of(path) for path in notebook_files()}
    return {name: found for name, found in cells.items() if any(cell.slow for cell in found)}


def keys() -> dict[str, str]:
    "The present key of everything slow; a cell's name is its notebook's and its own."
    found = slow_tests()
    for name, cells in slow_cells().items():
        found |= {f"{name}#{cell.id}": key(cells, cell) for cell in cells if cell.slow}
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
