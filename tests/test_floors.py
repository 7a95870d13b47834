"""Who may import whom: floors import downwards only, heavy packages stay in their rooms."""

import ast
from functools import cache
from pathlib import Path

import places
import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "dpsbi"
NOT_ROOMS = ("_modidx", "demo", "mmd")
ROOMS = {
    0: """arguments files privacy leaves conversions losses composition cost accounting
        book ledger mechanisms.mechanism mechanisms.sampler mechanisms.continuous
        mechanisms.discrete mechanisms.discrete_gaussian mechanisms.staircase
        mechanisms.stairs mechanisms.truncated mechanisms.processing mechanisms.intervals
        mechanisms.published
        mechanisms.randomised mechanisms.smooth mechanisms.described mechanisms.release
        mechanisms.independent mechanisms.joint mechanisms.cells mechanisms.parts
        mechanisms.agency_entries mechanisms.agency_stairs mechanisms.agency_words
        mechanisms.agency_tables mechanisms.agency_written mechanisms.codebook mechanisms
        laplace_difference
        weights kept chains cloud draws saved trust colours densities intervals
        pictures posterior transforms marginals prior told_apart batches checkpoint received
        running datasets query_values simulation signatures functions torch_functions model behind
        particles stepped inverses reader laws tape replayed watched aimed rqmc distances.kernels
        distances.distance distances.sums distances.features distances.sorted_sums
        distances.bandwidth distances.sensitivity distances.routes distances.rounding
        distances.mmd distances.clipped distances.stated distances.summaries distances""",
    1: """simulators.enumeration simulators.formula_9 simulators.count_likelihood
        simulators.latent_count simulators.counts simulators.uniform_mixture
        simulators.cubic_curve simulators.streams simulators.tuberculosis
        simulators.cluster_law simulators.outbreaks simulators.outbreak_prior
        simulators.birth_death simulators.epidemic simulators.sir
        simulators.regression_query simulators.regression_model
        simulators.regression_records simulators.regression_moments simulators.seir
        simulators.linear_regression simulators.regression_population simulators.shares
        simulators.tables simulators.naive_bayes_latent simulators.naive_bayes""",
    2: """owner.noise owner.comparison owner.price owner.svt owner.svt_loss
        owner.selection owner.pool owner.rehearsal owner.trials owner.abcdp owner.plan
        analyst.exact_abc analyst.mixtures analyst.many_proposals analyst.proposals
        analyst.laws analyst.profiles analyst.count_sums analyst.last_draws
        analyst.remaining analyst.marginal analyst.independence analyst.importance
        analyst.searches
        analyst.fresh_draws analyst.thrift analyst.consensus
        analyst.latent analyst.weighted_draws analyst.ascent analyst.fit
        analyst.information analyst.mcem analyst.kernel_proposal analyst.levels
        analyst.populations analyst.smc_abc analyst.record_steps analyst.da_mcmc
        analyst.ghosts analyst.leaps analyst.unknown_n analyst.normal_coordinates
        analyst.other_coordinates
        analyst.sites analyst.sparse_lines analyst.ridge_lines analyst.bends analyst.lines
        analyst.starts analyst.clouds
        analyst.local_lines analyst.moves analyst.temperatures analyst.full_power
        analyst.input_smc
        analyst.hidden_states analyst.outlook
        analyst.particle_clouds analyst.aims analyst.particle_filter analyst.paths analyst.estimated
        analyst.importance_squared analyst.metropolis analyst.own_inputs
        analyst.guides analyst.surrogates analyst.exploration
        analyst.guided analyst.pseudo_marginal analyst.scale_mixtures analyst.nearest
        analyst.surrogate_search
        analyst.baselines
        analyst.curves analyst.curves_as_tensors analyst.layers
        analyst.gradients analyst.ahead analyst.recorded analyst.scaling analyst.first_sums
        analyst.additive analyst.conditional_flow analyst.descent analyst.flows analyst.pairs
        analyst.focus analyst.training
        analyst.budgets analyst.contexts analyst.local_check analyst.estimator
        analyst.rounds analyst.sppe analyst.tilt
        analyst.triangular analyst.walkers analyst.whole_numbers analyst.likelihood
        analyst.regions analyst.sple analyst.pooling analyst.refine analyst.straight analyst.support
        analyst.denoise analyst.error_models analyst.rnpe analyst.unreached analyst.attempts
        analyst.frugal analyst.summed analyst.chosen analyst.by_weights analyst.by_moves
        analyst.by_network analyst.infer analyst.sorted_laws
        analyst.count_laws analyst.count_trees analyst.count_ranks analyst.count_folds
        analyst.counts_shown analyst.one_count analyst.count_networks analyst.count_cycles
        analyst.noisy_counts analyst.noisy_trees analyst.noisy_tables analyst.compare
        analyst.walking_counts analyst.chosen_values analyst.prediction analyst.predict""",
    3: """checks.testing checks.classifier checks.samples checks.scores checks.band
        checks.calibration checks.coverage checks.predictive checks.scorecard
        checks.limits checks.outputs checks.search checks.audit checks.neighbours
        checks.loss_laws checks.exact_loss""",
    4: """planning.yields planning.curves planning.table planning.candidates
        planning.answers planning.synthetic planning.nearby planning.nearby_rows planning.networks
        planning.inferred planning.which_engine planning.design planning.fresh planning.sizes
        planning.sliders planning.page""",
    5: """bench.blind bench.tasks bench.peers bench.runs bench.coverage
        bench.every_release bench.costs bench.gpu""",
}  # floors, and in each its rooms in reading order
FLOOR = {room: floor for floor, rooms in ROOMS.items() for room in rooms.split()}
ORDER = list(FLOOR)
SHARED = {  # which other simulators may import
    "simulators.enumeration",
    "simulators.formula_9",
    "simulators.count_likelihood",
    "simulators.latent_count",
    "simulators.streams",
    "simulators.tuberculosis",
    "simulators.cluster_law",
    "simulators.outbreaks",
    "simulators.outbreak_prior",
    "simulators.epidemic",
    "simulators.regression_query",
    "simulators.regression_model",
    "simulators.regression_records",
    "simulators.regression_moments",
    "simulators.shares",
    "simulators.tables",
    "simulators.naive_bayes_latent",
}
HEAVY = {
    "torch": {
        "analyst.curves_as_tensors",
        "analyst.layers",
        "analyst.additive",
        "analyst.gradients",
        "analyst.recorded",
        "analyst.conditional_flow",
        "analyst.descent",
        "analyst.flows",
        "analyst.training",
        "bench.peers",
        "bench.costs",
        "bench.gpu",
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


def is_room(path: Path) -> bool:
    return name_of(path) in FLOOR or path.name != "__init__.py" and name_of(path) not in NOT_ROOMS


MODULES = [path for path in sorted(PACKAGE.rglob("*.py")) if is_room(path)]


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
    own = (name.removeprefix("dpsbi.") for name in imported(path, lazy))
    return {name for name in own if name in FLOOR and name != name_of(path)}


def downwards(room: str, other: str) -> bool:
    "Whether a room may import another: of a lower floor, or an earlier one of its own."
    if FLOOR[other] == 1 and 1 < FLOOR[room] < 5:
        return False  # methods, checks and plans know no simulator; benchmarks do
    if FLOOR[other] == 2 and FLOOR[room] == 3:
        return False  # checks know no method
    if FLOOR[other] == FLOOR[room] == 1 and other not in SHARED:
        return False  # simulators know one another only by what they share
    if {room.split(".")[0], other.split(".")[0]} == {"owner", "analyst"}:
        return False
    return ORDER.index(other) < ORDER.index(room)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_rooms_import_downwards_only(path):
    assert name_of(path) in FLOOR, places.place(name_of(path), ORDER, PACKAGE)
    used = rooms_used(path, lazy=True)  # also what a method imports: so there is no circle
    upwards = [other for other in used if not downwards(name_of(path), other)]
    assert not upwards, f"{name_of(path)} may not import {upwards}"


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
        compiled = package == "numba" and (FLOOR[room] == 1 or room in COMPILED)
        assert package in AT_THE_TOP or compiled, f"{room} must import {package} lazily"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_what_is_compiled_is_imported_where_it_is_needed_alone(path):
    for compiled in rooms_used(path, False) & set(COMPILED):
        assert name_of(path) in COMPILED[compiled]


def test_every_room_is_on_a_floor():
    found = {name_of(path) for path in MODULES}
    new = sorted(found - set(FLOOR))
    assert not new, "\n".join(places.place(room, ORDER, PACKAGE) for room in new)
    assert not set(FLOOR) - found, f"ROOMS has rooms that are gone: {sorted(set(FLOOR) - found)}"


def test_a_new_room_is_told_its_place(tmp_path):
    (tmp_path / "mechanisms").mkdir()
    pages = {"discrete": "04_discrete", "codebook": "15_codebook", "logistic": "16_logistic"}
    for room, page in pages.items():
        source = f"# AUTOGENERATED! DO NOT EDIT! File to edit: ../../nbs/mechanisms/{page}.ipynb.\n"
        (tmp_path / f"mechanisms/{room}.py").write_text(source)
    order = ["mechanisms.discrete", "mechanisms.codebook"]
    line = places.place("mechanisms.logistic", order, tmp_path)
    assert line == "tests/test_floors.py, ROOMS: mechanisms.logistic  (after mechanisms.codebook)"


def test_the_rules_can_fail():
    assert not downwards("privacy", "mechanisms.continuous")
    assert not downwards("analyst.importance", "simulators.counts")
    assert not downwards("analyst.importance", "analyst.consensus")
    assert not downwards("checks.audit", "owner.svt")
    assert not downwards("analyst.sppe", "owner.abcdp")
    assert downwards("analyst.infer", "analyst.importance")
    assert not downwards("simulators.sir", "simulators.birth_death")
    assert not downwards("simulators.streams", "simulators.outbreaks")
    assert not downwards("simulators.counts", "simulators.outbreaks")
    assert not downwards("analyst.smc_abc", "simulators.streams")
    assert downwards("simulators.sir", "simulators.streams")
    assert downwards("simulators.birth_death", "simulators.outbreaks")
    assert downwards("simulators.counts", "model")
    assert downwards("bench.tasks", "simulators.sir")
    assert not downwards("pictures", "posterior")
