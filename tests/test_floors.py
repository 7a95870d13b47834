"""Who may import whom: floors import downwards only, and heavy packages are imported where they are needed, not before."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "dpsbi"
MODULES = sorted(p for p in PACKAGE.rglob("*.py") if p.name not in ("__init__.py", "_modidx.py"))
FOUNDATIONS = (
    "privacy accounting mechanisms laplace_difference posterior model rqmc mmd".split()
)  # in reading order: each imports only earlier ones
FLOOR = {"simulators": 1, "owner": 2, "analyst": 2, "checks": 3, "demo": 4}
FAMILIES = {
    ("analyst.sppe", "analyst.flows"),
    ("analyst.sple", "analyst.flows"),
    ("analyst.sple", "analyst.sppe"),
    ("analyst.pseudo_marginal", "analyst.importance"),
    ("owner.abcdp", "owner.svt"),
    ("analyst.baselines", "analyst.da_mcmc"),
    ("analyst.refine", "analyst.importance"),
    ("analyst.refine", "analyst.pseudo_marginal"),
    ("analyst.sple", "analyst.importance"),
    ("analyst.rnpe", "analyst.flows"),
    ("analyst.rnpe", "analyst.sppe"),
    ("analyst.rnpe", "analyst.baselines"),
}  # a step that a family shares lives in one place
HEAVY = {
    "torch": {"analyst.flows", "analyst.sppe", "analyst.sple"},
    "nflows": {"analyst.flows", "analyst.sppe", "analyst.sple"},
    "opendp": {"mechanisms", "owner.svt"},
    "numba": None,
    "matplotlib": set(),
    "arviz": set(),
    "pandas": set(),
    "sklearn": set(),
}


def name_of(path):
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


def imports(path, everywhere):
    "Absolute names of what a module imports: at its top, or everywhere in it (lazily, inside functions) as well."
    tree = ast.parse(path.read_text())
    package = ["dpsbi", *path.relative_to(PACKAGE).parent.parts]
    for node in ast.walk(tree) if everywhere else tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module
            yield from (
                f"{module}.{alias.name}"
                for alias in node.names
                if (PACKAGE / module.replace(".", "/").removeprefix("dpsbi").lstrip("/")).is_dir()
            )


def own(path):
    found = {
        m.removeprefix("dpsbi.") for m in imports(path, everywhere=True) if m.startswith("dpsbi.")
    }
    return {m for m in found if (PACKAGE / (m.replace(".", "/") + ".py")).exists()}


def rank(module):
    return FLOOR.get(module.split(".")[0], 0)


def allowed(module, imported):
    if rank(module) == 0:
        return imported in FOUNDATIONS[: FOUNDATIONS.index(module)]
    if module == "analyst.infer":
        return rank(imported) < 2 or imported.startswith("analyst.")
    if module.startswith("analyst.") and rank(imported) == 1:  # methods import no simulator
        return False
    if module.startswith("checks."):  # checks import no method
        return rank(imported) == 0
    return rank(imported) < rank(module) or (module, imported) in FAMILIES


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_floors_import_downwards_only(path):
    upwards = [m for m in own(path) if not allowed(name_of(path), m)]
    assert not upwards, f"{name_of(path)} may not import {upwards}"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_heavy_packages_stay_in_their_rooms(path):
    module = name_of(path)
    for name in {m.split(".")[0] for m in imports(path, everywhere=True)} & {
        "torch",
        "nflows",
        "opendp",
    }:
        assert module in HEAVY[name], f"{module} may not import {name}"
    for name in {m.split(".")[0] for m in imports(path, everywhere=False)} & set(HEAVY):
        allowed_here = (
            rank(module) == 1
            if name == "numba"
            else name in ("torch", "nflows") and module in HEAVY[name]
        )
        assert allowed_here, f"{module} must import {name} lazily"


def test_every_foundation_is_known():
    assert {name_of(p) for p in MODULES if rank(name_of(p)) == 0} <= set(FOUNDATIONS)


def test_the_rules_can_fail():
    assert not allowed("privacy", "mechanisms") and not allowed(
        "analyst.importance", "simulators.counts"
    )
    assert not allowed("analyst.importance", "analyst.exact_abc") and not allowed(
        "checks.audit", "owner.svt"
    )
    assert allowed("analyst.infer", "analyst.importance") and allowed("simulators.counts", "model")
