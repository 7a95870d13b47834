"""Who may import whom: folders downwards only, no circle, heavy packages in their rooms alone."""

import ast
import importlib.util
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "dpsbi"
spec = importlib.util.spec_from_file_location("docs_conf", PACKAGE.parent / "nbs/conf.py")
conf = importlib.util.module_from_spec(spec)
spec.loader.exec_module(conf)
ORDER, WITHIN_ANALYST = conf.ORDER, conf.WITHIN_ANALYST
NOT_ROOMS = ("_modidx", "demo", "mmd")
STRANGERS = {  # folders that do not know these, though they stand after them
    "analyst": {"simulators", "owner"},
    "owner": {"simulators"},
    "checks": {"simulators", "owner", "analyst"},
    "planning": {"simulators"},
}
HEAVY = {
    "torch": {
        "analyst.neural.flow",
        "analyst.neural.flow",
        "analyst.neural.flow",
        "analyst.neural.training",
        "analyst.neural.training",
        "analyst.neural.training",
        "bench.peers",
        "bench.runs",
        "bench.runs",
        "bench.runs",
        "models.functions",
    },
    "sbi": {"bench.peers"},
    "pyabc": {"bench.peers"},
    "nflows": {"analyst.neural.flow"},
    "opendp": {"mechanisms.sampler", "mechanisms.randomised", "owner.svt"},
}
AT_THE_TOP = {"torch", "nflows"}  # which their rooms cannot do without
COMPILED = {  # and which modules alone import them, so that nobody else waits
    "analyst.neural.flow": HEAVY["torch"] | {"analyst.neural.amortise", "analyst.neural.rnpe"},
    "analyst.true_counts.noisy_table": set(),
}
LAZY = {"torch", "nflows", "opendp", "matplotlib", "arviz", "pandas", "sklearn", "numba"}
LAZY |= {"sbi", "pyabc"}


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def folder_of(room: str) -> str:
    return room.partition(".")[0]


def place(room: str) -> tuple[int, int]:
    "Where a module stands: its folder's place, and within the analyst's its part's."
    folder, _, rest = room.partition(".")
    inner = WITHIN_ANALYST.index(rest.partition(".")[0]) if folder == "analyst" and rest else 0
    return ORDER.index(folder), inner


MODULES = [path for path in sorted(PACKAGE.rglob("*.py")) if name_of(path) not in ("", *NOT_ROOMS)]
ROOMS = {name_of(path) for path in MODULES}


@cache
def nodes(path: Path, lazy: bool) -> list:
    "The statements of a module: at its top, or with those in its functions."
    tree = ast.parse(path.read_text())
    return list(ast.walk(tree)) if lazy else tree.body


def imported(path: Path, lazy: bool):
    "Absolute names of what a module imports."
    package = ["dpsbi", *path.relative_to(PACKAGE).parent.parts]
    for node in nodes(path, lazy):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def rooms_used(path: Path, lazy: bool) -> set:
    "The rooms of this package that a module imports from: at its top, or in its functions too."
    own = {name.removeprefix("dpsbi.") for name in imported(path, lazy)} & ROOMS - {name_of(path)}
    inner = {room for room in own if any(other.startswith(f"{room}.") for other in own)}
    return own - inner  # a folder is imported with its rooms


def downwards(room: str, other: str) -> bool:
    "Whether a module may import another, as far as their folders tell."
    known = folder_of(other) not in STRANGERS.get(folder_of(room), ())
    return known and place(other) <= place(room)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_rooms_import_downwards_only(path):
    upwards = [r for r in rooms_used(path, lazy=True) if not downwards(name_of(path), r)]
    assert not upwards, f"{name_of(path)} may not import {upwards}"


def test_every_folder_has_its_place():
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders and folders <= set(ORDER), f"no place for {folders - set(ORDER)}"


def circle(used: dict[str, set[str]]) -> list[str]:
    "Rooms that import one another in a circle, those imported within functions too."
    try:
        TopologicalSorter(used).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_no_rooms_import_one_another():
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}}) and not circle({"a": {"b"}})
    found = circle({name_of(path): rooms_used(path, lazy=True) for path in MODULES})
    assert not found, " imports ".join(reversed(found))


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_private_name_crosses_a_door(path):
    for node in nodes(path, True):
        if isinstance(node, ast.ImportFrom) and (node.level or "dpsbi" in (node.module or "")):
            private = [alias.name for alias in node.names if alias.name.startswith("_")]
            assert not private, f"{name_of(path)} imports {private} from {node.module}"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_heavy_packages_stay_in_their_rooms(path):
    room = name_of(path)
    everywhere = {name.split(".")[0] for name in imported(path, True)}
    for package in everywhere & set(HEAVY):
        assert room in HEAVY[package], f"{room} may not import {package}"
    for package in {name.split(".")[0] for name in imported(path, False)} & LAZY:
        compiled = package == "numba" and (folder_of(room) == "simulators" or room in COMPILED)
        assert package in AT_THE_TOP or compiled, f"{room} must import {package} lazily"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_what_is_compiled_is_imported_where_it_is_needed_alone(path):
    for compiled in rooms_used(path, False) & set(COMPILED):
        assert name_of(path) in COMPILED[compiled]


def test_the_rules_can_fail():
    assert not downwards("mechanisms.continuous", "owner.svt")
    assert not downwards("analyst.importance.amis", "simulators.counts")
    assert not downwards("planning.plan", "simulators.counts")
    assert not downwards("checks.audit", "owner.svt")
    assert not downwards("analyst.neural.sppe", "owner.abcdp")
    assert not downwards("posterior.posterior", "analyst.infer")
    assert downwards("analyst.infer", "analyst.importance.amis")
    assert downwards("simulators.counts", "models.model")
    assert downwards("bench.tasks", "simulators.sir")
