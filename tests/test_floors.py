"""Who may import whom: floors import downwards only, heavy packages stay in their rooms."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "dpsbi"
NOT_ROOMS = ("_modidx", "demo", "mmd")
ROOMS = {
    0: """arguments files privacy leaves conversions losses composition cost accounting
        book ledger mechanisms.mechanism mechanisms.sampler mechanisms.continuous
        mechanisms.discrete mechanisms.discrete_gaussian mechanisms.staircase
        mechanisms.stairs mechanisms.truncated mechanisms.processing mechanisms.published
        mechanisms.randomised mechanisms.smooth mechanisms.described mechanisms.release
        mechanisms.joint mechanisms.parts mechanisms.agency_words
        mechanisms.agency_tables mechanisms.codebook mechanisms laplace_difference
        weights kept chains cloud draws saved trust posterior colours densities
        intervals pictures transforms marginals prior batches checkpoint received
        running datasets query_values simulation signatures functions model behind
        stepped inverses reader laws tape replayed rqmc distances.kernels
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
        analyst.importance analyst.searches analyst.fresh_draws analyst.thrift analyst.consensus
        analyst.latent analyst.weighted_draws analyst.ascent analyst.fit
        analyst.information analyst.mcem analyst.kernel_proposal analyst.levels
        analyst.populations analyst.smc_abc analyst.record_steps analyst.da_mcmc
        analyst.ghosts analyst.leaps analyst.unknown_n analyst.normal_coordinates
        analyst.sites analyst.sparse_lines analyst.lines analyst.starts analyst.clouds
        analyst.local_lines analyst.moves analyst.temperatures analyst.input_smc
        analyst.independence analyst.hidden_states analyst.outlook
        analyst.particle_clouds analyst.particle_filter analyst.paths analyst.estimated
        analyst.importance_squared analyst.metropolis analyst.guides analyst.guided
        analyst.pseudo_marginal analyst.scale_mixtures analyst.baselines analyst.curves
        analyst.layers analyst.gradients analyst.scaling analyst.conditional_flow
        analyst.descent analyst.flows analyst.pairs analyst.focus analyst.training
        analyst.budgets analyst.estimator analyst.rounds analyst.sppe analyst.tilt
        analyst.triangular analyst.walkers analyst.whole_numbers analyst.likelihood
        analyst.regions analyst.sple analyst.pooling analyst.refine analyst.support
        analyst.denoise analyst.error_models analyst.rnpe analyst.attempts
        analyst.frugal analyst.infer analyst.count_laws analyst.count_trees
        analyst.noisy_counts analyst.noisy_trees analyst.compare analyst.walking_counts
        analyst.chosen_values analyst.prediction analyst.predict""",
    3: """checks.testing checks.classifier checks.samples checks.scores checks.band
        checks.calibration checks.coverage checks.predictive checks.scorecard
        checks.limits checks.outputs checks.search checks.audit checks.neighbours
        checks.loss_laws checks.exact_loss""",
    4: """planning.yields planning.table planning.curves planning.candidates
        planning.answers planning.nearby planning.networks planning.design planning.fresh
        planning.sizes planning.sliders planning.page""",
    5: """bench.tasks bench.peers bench.runs""",
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
        "analyst.layers",
        "analyst.gradients",
        "analyst.conditional_flow",
        "analyst.descent",
        "analyst.flows",
        "analyst.training",
        "bench.peers",
        "bench.runs",
    },
    "sbi": {"bench.peers"},
    "pyabc": {"bench.peers"},
    "nflows": {"analyst.layers"},
    "opendp": {"mechanisms.sampler", "mechanisms.randomised", "owner.noise"},
}
AT_THE_TOP = {"torch", "nflows"}  # which their rooms cannot do without
BESIDE_TORCH = {"analyst.curves"}  # compiled, and imported by rooms of torch alone
LAZY = {"torch", "nflows", "opendp", "matplotlib", "arviz", "pandas", "sklearn", "numba"}
LAZY |= {"sbi", "pyabc"}
