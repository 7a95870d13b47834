"""Who may import whom: folders downwards only, no circle, heavy packages in their rooms alone."""

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "dpsbi"
NOT_ROOMS = ("_modidx", "demo", "mmd")
FLOOR = {"": 0, "mechanisms": 0, "distances": 0, "simulators": 1, "owner": 2, "analyst": 2}
FLOOR |= {"checks": 3, "planning": 4, "bench": 5}
STRANGERS = {  # folders that do not know these, though they stand above them
    "owner": {"simulators", "analyst"},
    "analyst": {"simulators", "owner"},
    "checks": {"simulators", "owner", "analyst"},
    "planning": {"simulators"},
}
HEAVY = {
    "torch": {
        "analyst.layers",
        "analyst.gradients",
        "analyst.conditional_flow",
        "analyst.descent",
        "analyst.flows",
        "analyst.training",
        "bench.peers",
        "bench.coverage",
        "bench.every_release",
        "bench.runs",
        "torch_functions",
    },
    "sbi": {"bench.peers"},
    "pyabc": {"bench.peers"},
    "nflows": {"analyst.layers"},
    "opendp": {"mechanisms.sampler", "mechanisms.randomised", "owner.noise"},
}
AT_THE_TOP = {"torch", "nflows"}  # which their rooms cannot do without
COMPILED = {  # and which rooms alone import them, so that nobody else waits
    "analyst.curves": HEAVY["torch"],
    "analyst.count_cycles": {"analyst.noisy_tables"},
}
LAZY = {"torch", "nflows", "opendp", "matplotlib", "arviz", "pandas", "sklearn", "numba"}
LAZY |= {"sbi", "pyabc"}


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def folder_of(room: str) -> str:
    "That of the floor; rooms beside the folders have none."
    first = room.partition(".")[0]
    return first if first in FLOOR else ""


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
    "Whether a room may import another, as far as their folders tell."
    above, below = folder_of(room), folder_of(other)
    return FLOOR[below] <= FLOOR[above] and below not in STRANGERS.get(above, ())


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_rooms_import_downwards_only(path):
    upwards = [r for r in rooms_used(path, lazy=True) if not downwards(name_of(path), r)]
    assert not upwards, f"{name_of(path)} may not import {upwards}"


def test_every_folder_has_its_floor():
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders and folders <= set(FLOOR), f"no floor for {folders - set(FLOOR)}"


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
    assert not downwards("analyst.importance", "simulators.counts")
    assert not downwards("planning.design", "simulators.counts")
    assert not downwards("checks.audit", "owner.svt")
    assert not downwards("analyst.sppe", "owner.abcdp")
    assert not downwards("posterior", "analyst.infer")
    assert downwards("analyst.infer", "analyst.importance")
    assert downwards("simulators.counts", "model")
    assert downwards("bench.tasks", "simulators.sir")
