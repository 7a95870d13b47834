"""Small wrongs in the code, one at a time: do the fast tests see each?

    python tests/mutants.py                 every mutant; a table of which test caught which
    python tests/mutants.py accounting      those of the modules that begin so
    python tests/mutants.py --jobs 2
    python tests/mutants.py --again         those too that were caught as they stand now

Each mutant replaces one piece of text in a copy of the package, and runs the tests named with it.
What was caught stands in `tests/records/mutants.jsonl`, a row each, and is not run again until the
module, the tests named, or the mutant change: so a run that was stopped goes on where it was. The
test that caught a mutant before goes first.
Add your own: find a line whose error would cost somebody their privacy, or an analyst the truth.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from dataclasses import astuple, dataclass
from datetime import date
from functools import partial
from pathlib import Path

from forked import ROOT, Item, import_heavy, pooled

RECORD = ROOT / "tests/records/mutants.jsonl"


@dataclass(frozen=True)
class Mutant:
    "In `module`, `old` becomes `new`; `tests` must fail."

    module: str
    old: str
    new: str
    why: str
    tests: str = ""

    @property
    def where(self) -> Path:
        return Path("dpsbi", *self.module.split(".")).with_suffix(".py")


TESTS = {
    "arguments": "test_privacy.py",
    "privacy": "test_privacy.py test_owner_side.py",
    "received": "test_mechanisms.py",
    "conversions": "test_ledger.py test_prices.py",
    "losses": "test_ledger.py test_prices.py",
    "composition": "test_ledger.py test_prices.py",
    "accounting": "test_ledger.py test_prices.py",
    "book": "test_ledger.py",
    "ledger": "test_ledger.py",
    "distances": "test_mmd.py test_owner_side.py",
    "owner.price": "test_prices.py test_svt.py test_abcdp.py test_owner_side.py",
    "owner.svt": "test_svt.py test_abcdp.py test_owner_side.py",
    "owner.abcdp": "test_abcdp.py test_owner_side.py test_robustness.py",
    "owner.rehearsal": "test_abcdp.py test_owner_side.py",
    "owner.trials": "test_abcdp.py",
    "weights": "test_posterior.py",
    "posterior": "test_posterior.py",
    "analyst.exact_abc": "test_analyst.py test_robustness.py",
    "analyst.kernel_proposal": "test_smc_abc.py test_analyst.py",
    "analyst.ghosts": "test_unknown_n.py",
    "analyst.leaps": "test_unknown_n.py",
    "analyst.curves": "test_flows.py",
    "analyst.layers": "test_flows.py",
    "analyst.normal_coordinates": "test_input_smc.py",
    "analyst.gradients": "test_flows.py",
    "analyst.mcem": "test_mcem.py",
    "analyst.rnpe": "test_rnpe.py",
    "running": "test_signatures.py",
    "mechanisms": "test_mechanisms.py",
    "mechanisms.intervals": "test_published.py",
    "mechanisms.stairs": "test_stairs.py",
    "mechanisms.independent": "test_published.py test_mechanisms.py test_matrix.py",
    "mechanisms.joint": "test_published.py test_mechanisms.py test_matrix.py",
    "mechanisms.cells": "test_sple.py test_matrix.py::test_what_comes_again_has_a_cell",
    "analyst.whole_numbers": "test_sple.py test_matrix.py::test_what_comes_again_has_a_cell",
    "analyst.likelihood": "test_sple.py",
    "analyst.triangular": "test_triangular.py",
    "analyst.regions": "test_sple.py",
    "analyst.walkers": "test_sple.py",
    "functions": "test_functions.py",
    "model": "test_functions.py",
    "query_values": "test_functions.py",
    "simulation": "test_functions.py",
    "particles": "test_stepped.py",
    "stepped": "test_stepped.py",
    "analyst.independence": "test_independent.py",
    "analyst.last_draws": "test_marginal.py",
    "analyst.marginal": "test_marginal.py",
    "analyst.count_sums": "test_marginal.py",
    "analyst.laws": "test_remaining.py",
    "analyst.other_coordinates": "test_surrogates.py",
    "analyst.bends": "test_surrogates.py",
    "analyst.surrogates": "test_surrogates.py",
    "analyst.surrogate_search": "test_surrogates.py",
    "analyst.guided": "test_guided.py",
    "owner.pool": "test_told_apart.py",
    "told_apart": "test_told_apart.py",
    "checkpoint": "test_robustness.py",
    "analyst.attempts": "test_functions.py test_exact.py",
    "analyst.local_lines": "test_input_smc.py::test_moves_by_local_lines_are_exact",
    "analyst.full_power": "test_full_power.py",
    "analyst.ridge_lines": "test_full_power.py",
    "analyst.particle_clouds": "test_paths.py",
    "analyst.particle_filter": "test_paths.py",
    "analyst.importance_squared": "test_paths.py",
    "analyst.metropolis": "test_paths.py",
    "analyst.paths": "test_paths.py",
    "simulators.seir": "test_seir.py",
    "bench": "test_bench.py",
}


def tests_of(module: str) -> str:
    "The tests of a module, or of the room that it is in."
    return TESTS.get(module) or TESTS[module.partition(".")[0]]


MUTANTS = [
    Mutant(
        "analyst.walkers",
        "        return new, proposal.log_prob(z) - proposal.log_prob(new)",
        "        return new, 0 * proposal.log_prob(new)",
        "walkers follow their proposal, and not only the posterior",
        "test_sple.py::test_walkers_draw_from_what_is_bent_and_have_mixed",
    ),
    Mutant(
        "analyst.walkers",
        "AFRESH, PARTLY = 0.5, 0.4",
        "AFRESH, PARTLY = 0.0, 0.0",
        "walkers that mix slowly, and are called not to be trusted",
        "test_sple.py::test_walkers_draw_from_what_is_bent_and_have_mixed",
    ),
    Mutant(
        "analyst.walkers",
        "return moved, self.log_p(z) - self.log_p(moved)",
        "return moved, 0 * self.log_p(z)",
        "walkers renewed in part follow a normal law, and not only the posterior",
        "test_sple.py::test_walkers_draw_from_what_is_bent_and_have_mixed",
    ),
    Mutant(
        "analyst.walkers",
        "AFRESH, PARTLY = 0.5, 0.4",
        "AFRESH, PARTLY = 0.9, 0.0",
        "walkers of many parameters that hardly move",
        "test_sple.py::test_walkers_of_many_parameters_move",
    ),
    Mutant(
        "analyst.walkers",
        "    lasts = (first * second).sum(axis=0)",
        "    lasts = (first * first).sum(axis=0)",
        "walkers that have mixed, and are called apart by what their short chains differ by chance",
        "test_sple.py::test_of_short_chains_what_lasts_is_told",
    ),
    Mutant(
        "analyst.sple",
        "within = replace(model, prior=PriorInNormalCoordinates(model.prior))",
        "within = model",
        "rounds on the line, whose regions cut the tail of a parameter that may be zero",
        "test_sple.py::test_rounds_are_in_normal_coordinates_and_told_on_the_line",
    ),
    Mutant(
        "analyst.sple",
        "simulations=_in_space(found.simulations, within.prior, model.prior)",
        "simulations=found.simulations",
        "simulations that are told in coordinates that their reader does not know",
        "test_sple.py::test_rounds_are_in_normal_coordinates_and_told_on_the_line",
    ),
    Mutant(
        "analyst.sple",
        "log_proposal=sims.log_proposal + shift",
        "log_proposal=sims.log_proposal",
        "simulations whose exact weights have a Jacobian too many",
        "test_sple.py::test_rounds_are_in_normal_coordinates_and_told_on_the_line",
    ),
    Mutant(
        "analyst.sple",
        "Training(steps=0, final_steps=1000, members=2, patience=4)",
        "Training(steps=0, final_steps=200, members=2, patience=4)",
        "a last fit that stops halfway where there is much to learn",
        "test_sple.py::test_the_last_fit_goes_on_while_it_gains",
    ),
    Mutant(
        "analyst.sple",
        "Training(steps=0, final_steps=1000, members=2, patience=4)",
        "Training(steps=0, final_steps=1000, members=2, patience=None)",
        "a last fit that goes on where there is nothing left to learn",
        "test_sple.py::test_the_last_fit_goes_on_while_it_gains",
    ),
    Mutant(
        "analyst.sple",
        'few = options["how"].share < 1 and likelihood.kernel.power == 0',
        "few = False",
        "rounds of many parameters that run to where nothing was simulated",
        "test_sple.py::test_the_next_round_is_among_few_simulations",
    ),
    Mutant(
        "analyst.sple",
        "few and rhat(chains)",
        "rhat(chains)",
        "a second mode that is there is taken for a fault of the fit",
        "test_sple.py::test_the_next_round_is_among_few_simulations",
    ),
    Mutant(
        "analyst.pairs",
        "if 0.9 * peak < least:",
        "if True:",
        "a power of η before the first dip of the effective size, where it rises again",
        "test_sppe.py::test_the_power_is_looked_for_beyond_a_dip_of_the_effective_size",
    ),
    Mutant(
        "analyst.pairs",
        "if 0.9 * peak < least:",
        "if peak == 0:",
        "a power of η at which a handful of simulations have all weight",
        "test_sppe.py::test_the_power_is_looked_for_beyond_a_dip_of_the_effective_size",
    ),
    Mutant(
        "analyst.regions",
        "power = temper(log_u, log_f, wanted)",
        "power = temper(log_u, log_f, 2)",
        "a proposal around two simulations of a thousand",
        "test_sple.py::test_among_few_simulations_a_tenth_still_count",
    ),
    Mutant(
        "analyst.triangular",
        "if each >= PLENTY:",
        "if True:",
        "products of parameters that cost more than they tell",
        "test_triangular.py::test_products_of_parameters_are_taken_where_they_tell",
    ),
    Mutant(
        "analyst.triangular",
        "return bool((simulations * squares > most).any())",
        "return False",
        "products of parameters left out that tell",
        "test_triangular.py::test_products_of_parameters_are_taken_where_they_tell",
    ),
    Mutant(
        "analyst.full_power",
        'begun, least = task.tally["made"], task.limit - spare',
        'begun, least = task.tally["made"], task.limit',
        "poor chains use what a network could use better",
        "test_input_smc.py::test_poor_chains_leave_what_is_spare",
    ),
    Mutant(
        "analyst.full_power",
        "return worth.min() < USEFUL or",
        "return True or",
        "good chains end, and simulations are left that nobody uses",
        "test_input_smc.py::test_chains_that_deserve_it_get_what_is_spare",
    ),
    Mutant(
        "analyst.input_smc",
        "replace(task, limit=int(RISING * own)) if spare else task",
        "task",
        "nothing is left for a network where the likelihood is not reached",
        "test_input_smc.py::test_spare_simulations_are_left_where_others_decide",
    ),
    Mutant(
        "analyst.scaling",
        "    some = slice(None, None, math.ceil(len(u) * rows / NUMBERS))  # of the pairs",
        "    some = slice(None)",
        "twenty thousand simulations of a hundred counts fill memory with products",
        "test_flows.py::test_an_array_of_products_is_bounded",
    ),
    Mutant(
        "analyst.scaling",
        "        found = self.intercept + u @ self.slope[:k]\n        if len(self.slope) > k:",
        "        found = self.intercept + u @ self.slope[:k]\n        if False:",
        "products that the regression has are forgotten",
        "test_flows.py::test_products_of_features_need_no_array_of_them",
    ),
    Mutant(
        "analyst.curves",
        "            x[i, j] = 2 * bound * (left + xi * w[b]) - bound",
        "            x[i, j] = 2 * bound * (low + xi * w[b]) - bound",
        "draws of a network are not those of its density",
    ),
    Mutant(
        "analyst.layers",
        "    numbers[..., :sizes] *= shrink",
        "    pass",
        "a network draws by other curves than it was trained with",
    ),
    Mutant(
        "analyst.normal_coordinates",
        "        return inside(theta, *self.frozen.support())",
        "        return theta",
        "a draw far out lies on the border, and its logarithm is infinite",
        "test_input_smc.py::test_far_out_coordinates_stay_inside_the_support",
    ),
    Mutant(
        "told_apart",
        "    return _lasting(_read(function), _set(function, *SETS), changed)",
        "    return _lasting(_read(function), _set(function, *SETS), set())",
        "a simulator that keeps a log cannot be resumed",
    ),
    Mutant(
        "told_apart",
        "    return {each.argval for each in dis.get_instructions(code) if each.opcode in wanted}",
        "    return set()",
        "a simulator that counts its calls cannot be resumed",
    ),
    Mutant(
        "analyst.marginal",
        "    return not np.allclose(again, columns, rtol=1e-9, atol=1e-12)",
        "    return False",
        "draws of the posterior with their own counts are not looked at",
    ),
    Mutant(
        "analyst.guided",
        "one_of_each(each[..., j], rng)",
        "one_of_each(0 * each[..., j], rng)",
        "values behind the noise that know nothing of what was released",
    ),
    Mutant(
        "owner.pool",
        "about = about_public(model) |",
        "from ..told_apart import about_model; about = about_model(model) |",
        "records beside a simulator are written into the file of public simulations",
    ),
    Mutant(
        "told_apart",
        "    around = _around(function)",
        "    around = {}",
        "an edited constant beside a simulator resumes the run of another",
    ),
    Mutant(
        "told_apart",
        "[about_prior(prior), about_proposal(prior)]",
        "about_prior(prior)",
        "two priors of the same names pass for one",
    ),
    Mutant(
        "checkpoint",
        '        of["query"] = told_apart(release.query.fn)',
        "        pass",
        "an edited query resumes the run of another",
    ),
    Mutant(
        "analyst.laws",
        "lambda m, n: (np.rint(2 * m), n)",
        "lambda m, n: (2 * m, n)",
        "uniform counts lose an end of their range where the mean is rounded",
    ),
    Mutant(
        "analyst.laws",
        "np.minimum(_share(m, n), 1.0)",
        "_share(m, n)",
        "a certain binomial count is impossible where the mean is rounded",
    ),
    Mutant(
        "analyst.attempts",
        "theta = _beside(task, found, rng) if fails",
        "theta = found.resample(PROBED, rng).theta if fails",
        "failures beside the posterior are not looked for",
    ),
    Mutant(
        "analyst.attempts",
        "    if task.left >= 2 * PROBED:",
        "    if False:",
        "values that are certain near the release pass for a forgotten generator",
    ),
    Mutant(
        "analyst.last_draws",
        "    return {j: last for j, last in alone.items() if known[last] == [j]}",
        "    return alone",
        "a count that is published twice is summed out twice",
    ),
    Mutant(
        "analyst.count_sums",
        "BEYOND = 36.0",
        "BEYOND = 3.0",
        "terms of a tenth of the largest are left out",
    ),
    Mutant(
        "analyst.leaps",
        "gain = log_eta(s_new) - log_eta(people.s) + log_q",
        "gain = log_eta(s_new) - log_eta(people.s)",
        "leaps without the ratio of proposals",
    ),
    Mutant(
        "analyst.leaps",
        " + z_new[:, -1] - z[:, -1]",
        "",
        "a leap's log number without its Jacobian",
    ),
    Mutant(
        "mechanisms.stairs",
        "return query.dim - 1 + math.ceil(farthest)",
        "return math.ceil(farthest)",
        "values that move by a hair are not paid for",
    ),
    Mutant(
        "mechanisms.stairs",
        "    width = FINENESS + round(FINENESS * ALLOWANCE)",
        "    width = FINENESS",
        "stairs drawn no wider than stated: rounding crosses one more",
    ),
    Mutant(
        "mechanisms.independent",
        "        width = max(sum(self.sizes), 2)",
        "        width = max(query.dim or 2, 2)",
        "rounding paid for two of many values",
    ),
    Mutant(
        "analyst.ghosts",
        "taken[:, i] = (log_u[:, i] < new - now) & (i < n)",
        "taken[:, i] = log_u[:, i] < new - now",
        "ghosts that count",
    ),
    Mutant(
        "conversions",
        ", (math.log(delta) + np.log(order))",
        ", (0.9 * math.log(delta) + np.log(order))",
        "the Rényi conversion forgets a tenth of log δ",
    ),
    Mutant(
        "losses",
        "np.where(a * e < 600, near, far) / (a - 1)",
        "np.where(a * e < 600, near, far) / a",
        "Rényi divergences of pure ε too small",
    ),
    Mutant(
        "losses",
        "above(e * math.tanh(e / 2))",
        "above(e * math.tanh(e / 2) / 2)",
        "half of ρ for pure ε",
    ),
    Mutant(
        "losses",
        "float(above(2 * half, 64))",
        "float(above(1.6 * half, 64))",
        "μ of pure ε as if it were the variance's ε",
    ),
    Mutant(
        "losses",
        "above(-np.expm1(below / 2))",
        "above(-np.expm1(below / 2) / 2)",
        "half of δ of Laplace noise",
    ),
    Mutant(
        "losses", "for by in (-1, 0, 1))", "for by in (-1,))", "an atom of the geometric left out"
    ),
    Mutant(
        "losses", "read(self.mu) ** 2 / 2", "read(self.mu) ** 2 / 4", "half of ρ of normal noise"
    ),
    Mutant(
        "composition",
        "(times * Fraction(mu) ** 2 for mu, times in each)",
        "(Fraction(mu) ** 2 for mu, times in each)",
        "repeats are free in μ",
    ),
    Mutant(
        "composition",
        "each = [times * loss.renyi(order)",
        "each = [loss.renyi(order)",
        "repeats are free in Rényi divergences",
    ),
    Mutant(
        "accounting",
        "float(conversion(self.delta / 2, self.order))",
        "float(conversion(2 * self.delta, self.order))",
        "the Rényi filter spends δ twice",
    ),
    Mutant(
        "accounting",
        "mu = Together(tuple((loss, 1) for loss in losses)).mu if losses else 0.0",
        "mu = max([loss.mu for loss in losses], default=0.0)",
        "only the largest μ is charged",
    ),
    Mutant(
        "accounting",
        "total = self.total([e.granted.loss for e in entries])\n        if total",
        "total = self.total([e.cost.loss for e in entries])\n        if total",
        "a filter takes refunds",
    ),
    Mutant(
        "accounting",
        "if sum(as_written(e.cost.delta) for e in entries)",
        "if 0 * sum(as_written(e.cost.delta) for e in entries)",
        "δ is not added up",
    ),
    Mutant(
        "book",
        'locked(f"{self.path}.lock", left), self._guard(left)',
        'locked(f"{self.path}.{id(self)}.lock", left)',
        "no lock on the file",
    ),
    Mutant(
        "book",
        "        return locked(self.path, left, make=False)",
        "        return nullcontext()",
        "who removes the file of the lock gets in",
    ),
    Mutant(
        "book",
        "self.rule, self.entries, self.id, self._opened = rule, entries, identity, True",
        "self.rule, self.id, self._opened = rule, identity, True\n"
        "        self.entries = self.entries or entries",
        "what others spend is not read again",
    ),
    Mutant("book", "if file[2] > 1:", "if file[2] > 2:", "a file of two names is two ledgers"),
    Mutant(
        "book",
        "            if self._opened:\n",
        "            if self.entries:\n",
        "an unspent ledger whose file is gone begins anew",
    ),
    Mutant(
        "book",
        "            return self._write_file([], self.rule)",
        "            return",
        "the file is written at the first spending only",
    ),
    Mutant(
        "book",
        "return self.path is None and self._process != os.getpid()",
        "return False",
        "parent and child each spend the whole",
    ),
    Mutant(
        "book",
        "            book._process = -1",
        "            pass",
        "a child that bears the number of the first process spends",
    ),
    Mutant(
        "book",
        "        book._free()\n        if",
        "        if",
        "a child waits for a thread that it does not have",
    ),
    Mutant(
        "book",
        "if self.id not in (None, identity):",
        "if False:",
        "another ledger takes the place of the one that was opened",
    ),
    Mutant("book", "if keys[: len(known)] != known:", "if False:", "a backup gives spent ε back"),
    Mutant(
        "book",
        "_SEEN.get(identity, [])):",
        "[]):",
        "what another object of this process has seen is forgotten",
    ),
    Mutant(
        "book",
        "if self._found != self._look():",
        "if False:",
        "it writes although the lock or the file was changed meanwhile",
    ),
    Mutant(
        "book",
        "if self.path.resolve() != self.path:",
        "if False:",
        "a file that has become a link is replaced",
    ),
    Mutant(
        "book",
        "    def __getstate__(self):\n        if self.path is None:",
        "    def __getstate__(self):\n        if False:",
        "a ledger in memory is copied",
    ),
    Mutant(
        "book",
        "self.path = None if path is None else",
        "self.path = None if not path else",
        "an empty path is a ledger in memory",
    ),
    Mutant(
        "files",
        "if waited >= timeout:",
        "if waited >= 10 * timeout + 1:",
        "a lock is waited for longer than was asked",
        "test_ledger.py",
    ),
    Mutant(
        "files",
        "if waited > WORDLESS and not told:",
        "if False:",
        "a lock is waited for without a word",
        "test_ledger.py",
    ),
    Mutant(
        "files",
        "        return os.path.samestat(about, os.lstat(path))",
        "        return True",
        "a lock whose file was removed is held",
        "test_ledger.py",
    ),
    Mutant(
        "files",
        "        file.close()\n    _HELD.clear()",
        "        pass\n    _HELD.clear()",
        "a child keeps the lock of a parent that was killed",
        "test_ledger.py",
    ),
    Mutant(
        "files",
        "path = Path(os.path.realpath(path))\n    check_plain(path, str(path))",
        "path = Path(path)",
        "a pipe is replaced by a file",
        "test_ledger.py",
    ),
    Mutant(
        "ledger", "    if entry.settled is not None:\n", "    if False:\n", "an entry settles twice"
    ),
    Mutant(
        "ledger",
        "    if proof.key in [e.settled for e in entries]:\n",
        "    if False:\n",
        "one proof settles two entries",
    ),
    Mutant(
        "ledger",
        "return paid and mixture(book.entries, new) is None and book.can_write(new)",
        "return paid",
        "a ledger affords what it would refuse",
    ),
    Mutant(
        "book",
        "        if any(mixture(entries, entry) for entry in entries):\n",
        "        if False:\n",
        "a file mixes units",
    ),
    Mutant(
        "mechanisms.independent",
        "    if any(dim not in (None, size) for dim, size in zip(dims, sizes)):\n",
        "    if False:\n",
        "noise of one query on the values of another",
        "test_mechanisms.py",
    ),
    Mutant(
        "mechanisms.release",
        "    mechanism.check_size(size)\n",
        "",
        "noise for another number of values, found after payment",
        "test_owner_side.py",
    ),
    Mutant("ledger", "if not isinstance(proof, Proof):", "if proof is None:", "anybody settles"),
    Mutant(
        "ledger",
        "if proof.granted != entry.granted or not proof.used <= entry.cost:",
        "if False:",
        "the proof of another run settles",
    ),
    Mutant("losses", "size**2 * read(self.rho)", "size * read(self.rho)", "groups pay ρ once each"),
    Mutant(
        "losses",
        "return GaussianLoss(upwards(lambda read: size * read(self.mu)))",
        "return GaussianLoss(size**0.5 * self.mu)",
        "groups pay μ² once each",
    ),
    Mutant(
        "losses",
        "float(np.expm1(size * e) / np.expm1(e))",
        "float(size)",
        "δ of a group does not grow",
    ),
    Mutant(
        "accounting",
        "return exact_sum(c.epsilon if bounded(c)",
        "return max(c.epsilon if bounded(c)",
        "pure costs: the largest instead of the sum",
    ),
    Mutant(
        "composition",
        "np.minimum(self.log_total - tilt * self.x, 700)",
        "np.minimum(self.log_total - 1.01 * tilt * self.x, 700)",
        "the tilt is not taken back in full",
        "test_prices.py",
    ),
    Mutant(
        "composition",
        "np.append(0.0, fall[:-1]) - math.exp(-width) * fall",
        "np.append(0.0, fall[:-1]) - fall",
        "losses on the grid are too rare",
        "test_prices.py",
    ),
    Mutant(
        "composition",
        "    p[0] = max(1 - known",
        "    p[0] = 0.5 * max(1 - known",
        "the loss of 0 is half as probable",
        "test_prices.py",
    ),
    Mutant(
        "conversions",
        "return np.where(t < 10, 1 - near",
        "return np.where(t < 30, 1 - near",
        "far out Mills' ratio cancels",
        "test_prices.py",
    ),
    Mutant(
        "conversions",
        "    if ratio < 0.5:\n",
        "    if ratio < 0.0:\n",
        "δ of normal noise cancels at small shifts",
        "test_prices.py",
    ),
    Mutant(
        "conversions",
        "+ 1e-13 + (1e-15 + rounding)",
        "+ 0 * (1e-15 + rounding)",
        "δ of normal noise is not rounded upwards",
        "test_prices.py",
    ),
    Mutant(
        "losses",
        "np.where(a * e < 600, near, far)",
        "np.where(a * e < 0, near, far)",
        "divergences of a tiny pure ε cancel to nothing",
        "test_prices.py",
    ),
    Mutant(
        "losses",
        "np.where(x == near, np",
        "np.where(x == 0, np",
        "divergences of little Laplace noise cancel",
        "test_prices.py",
    ),
    Mutant(
        "conversions",
        "    while read(value) < exact:",
        "    while False:",
        "quotients are rounded to nearest",
        "test_prices.py",
    ),
    Mutant(
        "conversions",
        "    while Fraction(root) ** 2 < exact:",
        "    while False:",
        "roots are rounded to nearest",
        "test_prices.py",
    ),
    Mutant(
        "mechanisms.truncated",
        "-math.exp(-rate) * inner * outer / whole",
        "-0.5 * math.exp(-rate) * inner * outer / whole",
        "half of what a range adds to the price",
        "test_prices.py",
    ),
    Mutant(
        "mechanisms.discrete_gaussian",
        "below + fall * np.cumsum(shifted)[:-1]",
        "below + 0.999 * fall * np.cumsum(shifted)[:-1]",
        "a thousandth of δ of discrete normal noise",
        "test_prices.py",
    ),
    Mutant(
        "book",
        'if all(other == value or f"{other:.{digits}g}" != text for other in others):',
        "if True:",
        "a refusal in six digits, whatever they hide",
        "test_prices.py",
    ),
]


MUTANTS += [
    Mutant(
        "mechanisms.mechanism",
        "return root_up(query.dim * Fraction(query.sensitivity) ** 2)",
        "return query.sensitivity",
        "l2 read as l1",
    ),
    Mutant(
        "mechanisms.mechanism",
        '(query.norm, norm) == ("l1", "l2"):\n        return query.sensitivity',
        'query.norm == "l0":\n        return query.sensitivity',
        "l0 read as a distance",
    ),
    Mutant(
        "mechanisms.smooth",
        'return math.sqrt(query.dim - 1) if query.norm == "l2" else 1.0',
        "return 1.0",
        "smooth Laplace noise forgets the norm",
    ),
    Mutant(
        "mechanisms.smooth",
        "return math.sqrt(query.dim - 1) if",
        "return math.sqrt(query.dim - 1) / 2 if",
        "half of √p",
    ),
    Mutant(
        "mechanisms.smooth",
        '            raise ValueError(wrong_norm(query, "l2"))\n        return 1.0',
        "            pass\n        return 1.0",
        "smooth normal noise takes l0",
    ),
    Mutant(
        "mechanisms.mechanism",
        "return math.floor(farthest) + query.dim",
        "return math.ceil(sensitivity / as_written(step)) + query.dim - 1",
        "the old charge off the grid",
    ),
    Mutant(
        "mechanisms.mechanism",
        "return math.floor(farthest) + query.dim",
        "return math.floor(farthest) + 1",
        "one boundary for all values",
    ),
    Mutant(
        "mechanisms.mechanism",
        "if grid is not None and grid.denominator == 1:",
        "if grid is not None:",
        "any grid will do",
    ),
    Mutant(
        "mechanisms.mechanism",
        "return max(1, math.floor(farthest / grid)) * grid",
        "return max(1, math.floor(farthest / grid))",
        "steps of the query counted as steps of the noise",
    ),
    Mutant(
        "mechanisms.mechanism",
        "farthest = sensitivity * Fraction(1 + ALLOWANCE / 2)",
        "farthest = sensitivity * Fraction(1)",
        "a sensitivity rounded down loses a step",
    ),
    Mutant(
        "mechanisms.discrete",
        "return below + (k - below >= 0.5)",
        "return np.floor(k + 0.5)",
        "large odd numbers rounded to even ones",
    ),
    Mutant(
        "mechanisms.continuous",
        "return LaplaceLoss(ratio) if query.dim == 1 else",
        "return LaplaceLoss(ratio) if query.dim else",
        "several values as if one",
    ),
    Mutant(
        "mechanisms.continuous",
        "return LaplaceLoss(ratio) if",
        "return LaplaceLoss(ratio / 2) if",
        "half of the loss of Laplace noise",
    ),
    Mutant(
        "mechanisms.discrete",
        "-read(self.scale) / read(self.step)",
        "-read(self.scale)",
        "the step forgotten in the loss",
    ),
    Mutant(
        "mechanisms.continuous",
        'return GaussianLoss(_quotient(sensitivity_in(query, "l2"), self.scale))',
        'return GaussianLoss(_quotient(sensitivity_in(query, "l2"), 2 * self.scale))',
        "half of μ",
    ),
    Mutant(
        "mechanisms.randomised",
        "above(self.n * _moved_counts(query) * math",
        "above(self.n * math",
        "one count for all",
    ),
    Mutant(
        "mechanisms.randomised",
        "* math.log1p(1 / self.m))",
        "* math.log1p(1 / (self.m + 1)))",
        "one too many in m",
    ),
    Mutant(
        "mechanisms.randomised",
        "above(_changed_answers(query) * math",
        "above(1 * math",
        "one answer for all",
    ),
    Mutant(
        "mechanisms.randomised",
        "if query.step is None or as_written(query.step).denominator != 1:",
        "if False:",
        "fractions to a count",
    ),
    Mutant(
        "mechanisms.smooth",
        "above(self._move(query) / self.multiplier)",
        "above(0.9 * self._move(query) / self.multiplier)",
        "a tenth of the slide forgotten",
    ),
    Mutant(
        "mechanisms.smooth",
        "above(stats.gamma(p).isf(delta)",
        "above(stats.gamma(1).isf(delta)",
        "the dilation of one value for all",
    ),
    Mutant(
        "mechanisms.smooth",
        "0.5 * np.expm1(2 * xi) * tail",
        "0.5 * np.expm1(xi) * tail",
        "half of the dilation of normal noise",
    ),
    Mutant(
        "mechanisms.sampler",
        'wider = positive("the scale of the noise", scale * (1 + ALLOWANCE))',
        'wider = positive("the scale of the noise", 0.8 * scale)',
        "continuous noise at 0.8 of its scale",
    ),
    Mutant(
        "mechanisms.sampler",
        'wider = positive("the scale of the noise", scale * (1 + ALLOWANCE))',
        'wider = positive("the scale of the noise", scale)',
        "nothing for the query's own rounding",
    ),
    Mutant(
        "mechanisms.sampler",
        "return np.array(measurement(np.clip(s, -FARTHEST, FARTHEST).tolist()), float)",
        "return s + 0.95 * (np.array(measurement(np.clip(s, -FARTHEST, FARTHEST).tolist())) - s)",
        "noise shrunk after the draw",
    ),
    Mutant(
        "mechanisms.discrete",
        "scale = np.nextafter(mechanism.scale / mechanism.step, np.inf)",
        "scale = 0.8 * mechanism.scale / mechanism.step",
        "discrete noise at 0.8 of its scale",
    ),
    Mutant(
        "mechanisms.discrete",
        "        noisy = np.array(measurement(whole_steps(s, mechanism.step)), float)\n",
        "        k = np.array(whole_steps(s, mechanism.step))\n"
        "        noisy = k + np.rint(0.85 * (np.array(measurement(k.tolist()), float) - k))\n",
        "discrete noise shrunk after the draw",
    ),
    Mutant(
        "mechanisms.smooth",
        "scale = mechanism.multiplier * sensitivity\n        return "
        "vetted_noise(mechanism._kind, scale, move",
        "scale = 0.95 * mechanism.multiplier * sensitivity\n        return "
        "vetted_noise(mechanism._kind, scale, 0.9 * move",
        "smooth noise, and its proof, shrunk together",
    ),
    Mutant(
        "mechanisms.sampler",
        "    if not proved <= max(claimed * (1 + 2.0**-40), 1e-300):",
        "    if False:",
        "the sampler's proof is not asked",
    ),
    Mutant(
        "mechanisms.randomised",
        "self.n * _moved_counts(query) * math.log(chance(1) / chance(0))",
        "self.n * math.log(chance(1) / chance(0))",
        "the proof of the binomial forgets the counts",
    ),
    Mutant(
        "mechanisms.randomised",
        "return (count + m) / (self.population + 2 * m)",
        "return (count + m - 1) / (self.population + 2 * m - 2)",
        "binomial answers with m - 1",
    ),
    Mutant(
        "mechanisms.randomised",
        "vet(_changed_answers(query) * answer.map(1), self.cost(query).epsilon)",
        "vet(0.0, self.cost(query).epsilon)",
        "the proof of randomised response is not asked",
    ),
    Mutant(
        "mechanisms.randomised",
        "np.clip(np.rint(s), 0, self.population)]",
        "np.rint(s)]",
        "counts out of range",
    ),
    Mutant(
        "mechanisms.randomised",
        "for v in np.clip(np.rint(s), 0, codes[-1])",
        "for v in np.rint(s)",
        "codes out of range",
    ),
    Mutant(
        "mechanisms.smooth",
        "max(mechanism.floor, 1 / FARTHEST), 2 * FARTHEST * p",
        "1 / FARTHEST, 2 * FARTHEST * p",
        "no floor in the release",
    ),
    Mutant(
        "mechanisms.smooth",
        "max(mechanism.floor, 1 / FARTHEST), 2 * FARTHEST * p",
        "mechanism.floor, 2 * FARTHEST * p",
        "a scale of 0",
    ),
    Mutant(
        "mechanisms.smooth",
        "self.multiplier * np.maximum(s[..., -1:], self.floor)",
        "self.multiplier * s[..., -1:]",
        "no floor in the density",
    ),
    Mutant(
        "mechanisms.discrete",
        "return [min(max(v, -most), most) for v in k]",
        "return list(k)",
        "steps beyond 64 bits",
    ),
    Mutant(
        "mechanisms.sampler",
        "measurement(np.clip(s, -FARTHEST, FARTHEST).tolist())",
        "measurement(s.tolist())",
        "values that noise carries to infinity",
    ),
    Mutant(
        "mechanisms.discrete",
        "if math.frexp(step)[0] == 0.5 and step >= 1:",
        "if True:",
        "values far out are rounded to steps in floats, and move by more than is charged",
    ),
    Mutant(
        "mechanisms.discrete",
        "    check_countable(mechanism.scale / mechanism.step)\n",
        "",
        "noise that 64 bits do not hold is cut off",
    ),
    Mutant(
        "mechanisms.discrete_gaussian",
        "    check_countable(mechanism._t)\n",
        "",
        "normal noise that 64 bits do not hold is cut off",
    ),
    Mutant(
        "mechanisms.discrete",
        "        if self.scale > COUNTABLE * self.step:",
        "        if False:",
        "simulated noise ends at 2^63",
    ),
    Mutant(
        "mechanisms.sampler",
        "COUNTABLE = 2.0**56",
        "COUNTABLE = 2.0**70",
        "noise may be wider than 64 bits hold",
    ),
    Mutant(
        "mechanisms.mechanism",
        "if not 2.0**-1000 <= value <= 2.0**1000:",
        "if False:",
        "noise that reaches infinity",
    ),
    Mutant(
        "mechanisms.independent",
        "np.clip(s[at], -q.limit, q.limit)",
        "s[at]",
        "one query's values lose digits within the limit of another",
    ),
    Mutant(
        "mechanisms.release",
        "    check_container(x)\n",
        "",
        "masked records are paid for, and count as 0",
    ),
    Mutant(
        "privacy", "np.clip(s, -query.limit, query.limit)", "s", "a count beyond 2^53 moves by 2"
    ),
    Mutant(
        "privacy",
        "2.0**53 * _lowest_bit(self.step)",
        "2.0**54 * _lowest_bit(self.step)",
        "the limit of a grid lies where floats skip whole numbers",
    ),
    Mutant(
        "privacy",
        "    if not _kept(s):",
        "    if False:",
        "values of a type that wraps around or loses digits",
    ),
    Mutant(
        "privacy",
        "    if farthest >= query.limit:",
        "    if False:",
        "values that lie too far out on public stand-ins are paid for",
    ),
    Mutant(
        "privacy",
        "    if isinstance(x, np.ma.MaskedArray):\n        mend",
        "    if False:\n        mend",
        "a masked record counts by its hidden value",
    ),
    Mutant(
        "privacy",
        "return np.finfo(float).max if entry > 0 else np.finfo(float).min",
        "return 0.0",
        "a whole number beyond floats is 0, and its neighbour is not",
    ),
    Mutant(
        "arguments",
        "    if isinstance(values, np.ma.MaskedArray):",
        "    if False:",
        "a mask is lost",
    ),
    Mutant(
        "received",
        "    check_members(shown.mechanism, shown.s_dp, beside)\n",
        "",
        "a log density that adds up over simulations is taken for one of each",
    ),
    Mutant(
        "mechanisms.intervals",
        "return np.minimum(_summed_places(mechanism, first, last, s), 0.0)",
        "return np.minimum(_summed_places(mechanism, first, last - 1, s), 0.0)",
        "the last place of an interval is left out of the sum",
    ),
    Mutant(
        "mechanisms.release",
        "    paid = None if ledger.affords(cost, *protects) else pay()",
        "    paid = pay()",
        "payment before the rehearsal",
    ),
    Mutant(
        "mechanisms.release",
        "    size = query.rehearse(np.shape(x))\n",
        "    size = len(np.ravel(query(np.asarray(x)[None])))\n",
        "no rehearsal, and the records read unpaid",
    ),
    Mutant("mechanisms.release", "    paid or pay()\n", "", "nothing is paid"),
    Mutant(
        "mechanisms.release",
        "    with hushed():\n        return Release",
        "    if True:\n        return Release",
        "warnings about records",
    ),
    Mutant(
        "mechanisms.release",
        "draw(query.confidential(x, size)), query, mechanism)",
        "draw(query(np.asarray(x)[None])[0]), query, mechanism)",
        "errors about records",
    ),
    Mutant(
        "mechanisms.release",
        'if loss is None or ledger.composition == "sum":',
        "if loss is None:",
        "a missing delta takes all of the ledger's",
    ),
    Mutant(
        "mechanisms.release",
        '    if not hasattr(mechanism, "_prepare"):',
        "    if False:",
        "no private draw, and no word",
    ),
    Mutant(
        "mechanisms.described",
        "return found if isinstance(found, type) and issubclass(found, Mechanism) else None",
        "return found",
        "a file calls anything",
    ),
    Mutant(
        "mechanisms.described",
        "    if _class_named(kind.__module__, kind.__qualname__) is not kind:",
        "    if False:",
        "two classes of one name",
    ),
    Mutant(
        "mechanisms.described",
        "    if not _comes_back(state, mechanism):",
        "    if False:",
        "a mechanism comes back as another",
    ),
    Mutant(
        "mechanisms.described",
        "called = [ours[name]] if name in ours else [",
        "called = [",
        "a class of somebody's replaces ours",
    ),
    Mutant(
        "mechanisms.described",
        "    if len(called) != 1:",
        "    if not called:",
        "the first of several of one name",
    ),
    Mutant(
        "accounting",
        "    if _own_delta(c.loss for c in costs) > reserve:",
        "    if False:",
        "a δ of their own is not in the reserve",
    ),
    # ---- what may leave
    Mutant(
        "privacy",
        "        return np.where(np.isfinite(x), x, 0.0)\n\n# %%",
        "        return x\n\n# %%",
        "records keep NaN and infinities",
    ),
    Mutant(
        "privacy",
        "        except Exception:\n            return np.zeros(size)",
        "        except ZeroDivisionError:\n            return np.zeros(size)",
        "a query's error on the records gets out",
    ),
    Mutant(
        "privacy",
        "    return (0,), (1,), (2,)\n",
        "    return (0,), (1,), (2,), shape[:1]\n",
        "the rehearsal looks at the number of records",
    ),
    Mutant(
        "privacy",
        'np.asarray(x) if hasattr(x, "__array__") else np.array(_without_masks(x), dtype=object)',
        "np.asarray(_without_masks(x))",
        "a text beside it turns True into a text",
    ),
    Mutant(
        "privacy",
        "    asked = list(zip(data, first)) if again else []\n",
        "    asked = []\n",
        "no second question in the rehearsal",
    ),
    Mutant(
        "privacy",
        "        if not _alike(one, other, within):\n",
        "        if not _alike(one, one, within):\n",
        "a query that answers otherwise the second time is released",
    ),
    Mutant(
        "privacy",
        "    for given, one in [*reversed(asked), *asked[:1]]:\n",
        "    for given, one in [*reversed(asked)]:\n",
        "a query that changes with every second call is released",
    ),
    Mutant(
        "privacy",
        "    if not all(map(np.array_equal, copies, given)):\n",
        "    if False:\n",
        "a query may write into its data",
    ),
    Mutant(
        "privacy",
        "        return type(one) is type(other)\n",
        "        return True\n",
        "a query that fails the second time is released",
    ),
    Mutant(
        "privacy",
        "rtol=0, atol=within, equal_nan=True)",
        "rtol=0, atol=within)",
        "a query that is NaN is not released",
    ),
    Mutant(
        "privacy",
        "rtol=0, atol=within, equal_nan=True)",
        "atol=within, equal_nan=True)",
        "a little noise of its own is overlooked",
    ),
    # ---- distances
    Mutant(
        "distances.sensitivity",
        '"v": math.sqrt(2 * spread) / n',
        '"v": math.sqrt(spread) / n',
        "sensitivity of the MMD without its √2",
    ),
    Mutant(
        "distances.sensitivity",
        '"v2": (4 * n - 2) * spread / n**2',
        '"v2": (2 * n - 2) * spread / n**2',
        "half the sensitivity of MMD²",
    ),
    Mutant(
        "distances.sensitivity",
        '"u2": 4 * spread / n',
        '"u2": 2 * spread / n',
        "half the sensitivity of the U-statistic",
    ),
    Mutant(
        "distances.sensitivity",
        "        return math.sqrt(peak) / n",
        "        return math.sqrt(peak) / (2 * n)",
        "half the sensitivity to a record that goes",
    ),
    Mutant(
        "distances.clipped",
        "        return self.clip / self.n",
        "        return self.clip / (self.n + 1)",
        "a clipped mean of one record more",
    ),
    Mutant(
        "distances.distance",
        "        return self.sensitivity + 2 * self.error",
        "        return self.sensitivity",
        "no charge for the error of a distance",
    ),
    # ---- the sparse vector technique
    Mutant(
        "owner.price",
        "moves = accepts * (1 if run.monotone else 2)",
        "moves = accepts",
        "half the price of an accept",
    ),
    Mutant(
        "owner.price",
        "return Cost(_price_of(self, 1, self.count))",
        "return Cost(_price_of(self, 1, 1))",
        "one accept is charged, not c",
    ),
    Mutant(
        "owner.price",
        "thresholds, steps = run.count if run.resample else 1,",
        "thresholds, steps = 1,",
        "Gaussian thresholds drawn afresh are free",
    ),
    Mutant(
        "owner.price",
        "run.count * read(accept) ** 2) / 2",
        "run.count * read(accept) ** 2) / 4",
        "half the Rényi slope of Gaussian noise",
    ),
    Mutant(
        "owner.price",
        "thresholds = accepts + bool(pending) if self.resample else 1",
        "thresholds = accepts if self.resample else 1",
        "a refund of the last, open threshold",
    ),
    Mutant(
        "owner.price",
        "if whole.delta > 0 or accepts >= self.count:",
        "if accepts >= self.count:",
        "a refund where δ was charged",
    ),
    Mutant(
        "owner.svt",
        "hits[: 1 if self.resample else self.count - accepts]",
        "hits[: 1 if self.resample else self.count - accepts + 1]",
        "a run goes on after its last accept",
    ),
    Mutant(
        "owner.svt",
        "noise = int(self._draw(source, self.b_threshold, 1)[0]) if fresh",
        "noise = noise if fresh",
        "resample without resampling",
    ),
    Mutant(
        "owner.svt",
        "        plan.check_steps(self.compared + more)\n",
        "        plan.check_steps(more)\n",
        "a stream of batches passes a plan for fewer comparisons",
    ),
    Mutant(
        "owner.svt",
        "        compared = state.compared + gaps.size\n",
        "        compared = state.compared + len(accepted)\n",
        "only accepts are counted as comparisons",
    ),
    Mutant(
        "owner.svt",
        "            return self._noise.pop()\n",
        "            return self._noise[0]\n",
        "a state is used twice",
    ),
    Mutant(
        "owner.svt",
        "        if plan is not self.plan and plan != self.plan:\n",
        "        if False:\n",
        "a state goes on in another plan",
    ),
    Mutant(
        "owner.svt",
        "        if os.getpid() != self._process:\n",
        "        if False:\n",
        "a state goes on in two processes",
    ),
    Mutant(
        "owner.svt",
        "        if state.complete:\n",
        "        if False:\n",
        "a run goes on after its accepts and says nothing",
    ),
    Mutant("owner.svt", "        state.take(self, 0)\n", "", "a run that was settled goes on"),
    Mutant(
        "owner.svt",
        "if len(run.accepted) != state.accepts or",
        "if",
        "a stream proves fewer accepts than it had",
    ),
    Mutant(
        "owner.svt",
        "        if not rising or len(accepted) > self.plan.count:\n",
        "        if not rising:\n",
        "a proof of more accepts than were granted",
    ),
    Mutant(
        "owner.svt",
        "        return source.draw(self.noise, noise_steps(scale, self.sensitivity), size)",
        "        return source.draw(self.noise, 0.9 * noise_steps(scale, self.sensitivity), size)",
        "noise at nine tenths of its scale",
    ),
    # ---- abcdp
    Mutant(
        "owner.abcdp",
        "    entry = None if ledger.affords(cost, *protects) else pay()",
        "    entry = pay()",
        "paid before what is public was checked",
    ),
    Mutant(
        "owner.abcdp",
        "sensitivity = charged_sensitivity(distance)",
        "sensitivity = distance.sensitivity",
        "the error of distances is free",
    ),
    Mutant(
        "owner.abcdp", "        rehearse(distance, shape, y[finite(y)][:2])\n", "", "no rehearsal"
    ),
    Mutant("owner.abcdp", "    ledger.settle(entry, proof)\n", "", "nothing is given back"),
    Mutant(
        "owner.rehearsal",
        'data, "the distance", within)\n',
        'data, "the distance", within, False)\n',
        "a distance is asked for once",
        "test_abcdp.py",
    ),
    Mutant(
        "owner.rehearsal",
        "            return lambda y: distance.between(records.copy(), y)",
        "            return lambda y: distance.between(records, y)",
        "a distance writes into the records between two batches",
        "test_abcdp.py",
    ),
    Mutant(
        "distances.distance",
        '        answers = ask_twice(self._asked, data, "the distance", within)\n',
        '        answers = ask_twice(self._asked, data, "the distance", within, False)\n',
        "a distance of ours is asked for once",
        "test_abcdp.py",
    ),
    Mutant(
        "distances.summaries",
        "[] if s is None else s])",
        "[]])",
        "what both statistics have in common does not show",
        "test_abcdp.py",
    ),
    Mutant(
        "owner.rehearsal",
        "        return n or 0, *record",
        "        return shape[0], *record",
        "a confidential number of records is rehearsed as if it were known",
    ),
    Mutant(
        "owner.rehearsal",
        "        with hushed():\n            d = np.asarray(measure(y), float)",
        "        if True:\n            d = np.asarray(measure(y), float)",
        "warnings of a distance tell of the records",
    ),
    Mutant(
        "owner.trials",
        'return self.mechanism.count if self.trials.selection == "top" else 1',
        "return 1",
        "the nearest are chosen among too few",
    ),
    # ---- weights
    Mutant(
        "analyst.exact_abc",
        "kept = np.log(rng.random(log_ratio.shape)) < log_ratio - math.log(control)",
        "kept = np.log(rng.random(log_ratio.shape)) < 0.9 * log_ratio - math.log(control)",
        "acceptance of another density",
    ),
    Mutant(
        "analyst.exact_abc",
        "log_weights + model.prior.log_prob(theta) - proposal.log_prob(theta)",
        "log_weights - proposal.log_prob(theta)",
        "the prior is missing from the weights",
    ),
    Mutant(
        "analyst.exact_abc",
        "return kept, np.maximum(log_ratio[kept], math.log(control))",
        "return kept, log_ratio[kept]",
        "rejection control without its weights",
    ),
    Mutant(
        "analyst.kernel_proposal",
        "np.logaddexp(guard, np.log1p(-self.defensive) + log_kernels_at)",
        "np.logaddexp(guard, log_kernels_at)",
        "a mixture that adds up to more than 1",
    ),
    Mutant(
        "weights",
        'reached / reached[-1], points, side="right"',
        'reached / reached[-1], 0.9 * points, side="right"',
        "resampling forgets the last draws",
    ),
    Mutant(
        "running",
        "            if name not in known:",
        "            if name not in known and False:",
        "a misspelt keyword is not refused",
    ),
    Mutant(
        "running",
        'return bool(getattr(stream, "isatty", lambda: False)())',
        "return True",
        "bars where nobody watches",
    ),
    Mutant(
        "analyst.mcem",
        '        restore_generator(e_step.rng, str(kept["generator"]))\n',
        "",
        "a resumed run draws the first numbers again",
    ),
    Mutant(
        "analyst.rnpe",
        'name = f"flow{which}.{k}."',
        'name = f"flow{which}."',
        "a resumed run takes one network for another",
    ),
]


MUTANTS += [
    Mutant(
        "functions",
        "random = dict(seed=int(rng.integers(2**31)))",
        "random = dict(seed=0)",
        "each call draws the same numbers",
    ),
    Mutant(
        "batches",
        'return batch_sizes(n, model.batch, getattr(model, "together", None))',
        'return batch_sizes(n, None, getattr(model, "together", None))',
        "workers wait for a long batch of slow calls",
        "test_torch_functions.py",
    ),
    Mutant(
        "query_values",
        'if getattr(model.simulate, "failures", "raise") != "nan":',
        "if True:",
        "a query makes a number of a call that failed",
    ),
    Mutant(
        "particles",
        "found.append(state if shared[id(state)] else copy.deepcopy(state))",
        "found.append(state)",
        "survivors that are one object move each other",
    ),
    Mutant(
        "mechanisms.parts",
        "offset = (1 - 1 / published.sum()) * log_eta[best]",
        "offset = log_eta[best]",
        "parts that do not add up",
        "test_stepped.py",
    ),
    Mutant(
        "mechanisms.parts",
        "if _adds_up(alone, rows):",
        "if True:",
        "one value read by the scales of all",
        "test_stepped.py",
    ),
    Mutant(
        "analyst.full_power",
        "return bool((worth_of(off) >= least).all()) and",
        "return",
        "chains of different widths pass, where evidences disagree",
    ),
    Mutant(
        "analyst.full_power",
        " and disagreeing(off) < 0",
        "",
        "populations of different widths pass, where evidences disagree",
    ),
    Mutant(
        "analyst.full_power",
        "return 0 if evidence_spread(stage) <= SPREAD else",
        "return 0 if True else",
        "chains keep their beginnings, where evidences disagree",
    ),
    Mutant(
        "analyst.ridge_lines",
        "off = y[asked] - a - x[asked] @ J.T",
        "off = y[known] - a - x[known] @ J.T",
        "a line is judged by the points that it goes through",
    ),
    Mutant(
        "analyst.local_lines",
        "gain = after - law_there.log_prob(z_there)",
        "gain = after",
        "the other end's local line is left out of the ratio",
    ),
    Mutant(
        "analyst.local_lines",
        "level = slopes.mean(axis=0) - a.mean(axis=0) @ gain",
        "level = slopes.mean(axis=0)",
        "slopes are learned for another place",
        "test_input_smc.py::test_slopes_are_learned_where_they_change",
    ),
    Mutant(
        "aimed",
        "return low + k, -over - log(1 - share + share * exp(-over))",
        "return low + k, -log(1 - share + share * exp(-over))",
        "likely aimed draws keep a weight of one",
        "test_aimed.py",
    ),
    Mutant(
        "aimed",
        "            self._visits.clear()\n",
        "",
        "the visits of one particle are counted on to the next",
        "test_aimed.py",
    ),
    Mutant(
        "aimed",
        "self._visits.get(where, -1) + 1",
        "0",
        "all draws of one call are aimed alike",
        "test_aimed.py",
    ),
    Mutant(
        "analyst.aims",
        "places = here if places is None else places & here",
        "places = here",
        "a place counts that shows the value at the last time alone",
        "test_aimed.py",
    ),
    Mutant(
        "analyst.independence",
        "np.log(np.maximum(worked, 1))[:, None]",
        "np.log(s.shape[1])",
        "a failed simulation counts once for each value",
    ),
    Mutant(
        "analyst.independence",
        "p_sum = 2 * stats",
        "p_sum = 0.2 * stats",
        "true independence is doubted too often",
    ),
    Mutant(
        "mechanisms.processing",
        "-self._steps(-seen.high) - 1)",
        "-self._steps(-seen.high))",
        "a tie is rounded both ways",
        "test_published.py",
    ),
    Mutant(
        "mechanisms.processing",
        "low = np.where(seen.low <= least + near(least, self.grain), -np.inf, seen.low)",
        "low = np.where(seen.low < least - near(least, self.grain), -np.inf, seen.low)",
        "the clamp's end without what lies below it",
        "test_published.py",
    ),
    Mutant(
        "mechanisms.processing",
        "return behind(steps[:place], below(step.threshold))",
        "return behind((), below(step.threshold))",
        "suppression before rounding",
        "test_published.py",
    ),
    Mutant(
        "mechanisms.discrete_gaussian",
        "return math.floor((farthest + math.sqrt(query.dim)) ** 2)",
        "return math.floor(farthest**2)",
        "rounding to the grid is free",
        "test_published.py",
    ),
    Mutant(
        "mechanisms.discrete_gaussian",
        "if query.dim == 1 or D < 2:",
        "if True:",
        "several values priced as one",
        "test_published.py test_mechanisms.py",
    ),
    Mutant(
        "mechanisms.independent",
        "return min(noises, key=lambda m: m.scale) if alike else None",
        "return max(noises, key=lambda m: m.scale) if alike else None",
        "the most noise is charged",
        "test_published.py",
    ),
    Mutant(
        "mechanisms.cells",
        "return _of_published(mechanism, v)",
        "return v, v",
        "rounded, clamped and suppressed values learnt as if they were a continuum",
    ),
    Mutant(
        "mechanisms.cells",
        "(grid_width(mechanism) or 0.0) / 2",
        "0.0 * (grid_width(mechanism) or 0.0)",
        "whole numbers learnt as if they were a continuum",
    ),
    Mutant(
        "mechanisms.cells",
        "np.where(finite, last, high) + step / 2",
        "high + step / 2",
        "a clamp's end off the grid in the cell of its neighbour",
    ),
    Mutant(
        "mechanisms.cells",
        "if len(np.unique(column)) < len(column):",
        "if False:",
        "a mechanism of lists of values taken for a continuum",
    ),
    Mutant(
        "analyst.triangular",
        "self.spread * np.hypot(1.0, self.bend * (x - self.origin))",
        "self.spread * np.ones_like(x)",
        "the slope of a bend left out of the density",
    ),
    Mutant(
        "analyst.triangular",
        "worth = min(1.0, (simulations or len(x)) / len(x))",
        "worth = 1.0",
        "pairs of one simulation taken for many simulations",
    ),
    Mutant(
        "analyst.triangular",
        "step = np.clip(determined / np.maximum(size, 1e-300), WEAK, STRONG)[number]",
        "step = before[shrunk]",
        "the same weak prior for every coefficient",
    ),
    Mutant(
        "analyst.triangular",
        "free = max(1 - determined / (worth * len(y)), 0.1)",
        "free = 1.0",
        "widths of the simulations that were fitted",
    ),
    Mutant(
        "analyst.triangular",
        "parts.append(BANDS + band[farther])",
        "parts.append(BANDS + band[_])",
        "products shrunk by the nearer of their coordinates",
    ),
    Mutant(
        "analyst.triangular",
        "return _more_than_chance(squares, count, simulations)",
        "return True",
        "products of coordinates tried where they tell nothing",
    ),
    Mutant(
        "analyst.triangular",
        "if not nats > value:",
        "if False:",
        "the highest degree that there is, for values that need none",
    ),
    Mutant(
        "analyst.triangular",
        "layer if layer.log_prob(*unseen).mean() > value else best",
        "best",
        "skewed values taken as they are",
    ),
    Mutant(
        "analyst.likelihood",
        "if share * len(basis) < EACH * basis.shape[1]:",
        "if False:",
        "a tilt undone by a regression with too few simulations",
    ),
    Mutant(
        "analyst.likelihood",
        "math.log(len(parts)) + self.log_cell",
        "math.log(len(parts))",
        "a density instead of a probability",
    ),
    Mutant(
        "analyst.likelihood",
        "self.centre + 1.02 * (z - self.centre)",
        "z",
        "a maximum at the border of what was learnt, and no warning",
    ),
    Mutant(
        "analyst.likelihood",
        "if self.chance is not None:",
        "if False:",
        "a likelihood that does not know how often simulations fail",
    ),
    Mutant(
        "analyst.likelihood",
        "log_u = sims.log_prior - sims.log_proposal",
        "log_u = sims.log_u",
        "exact weights take the chance of failure out of the likelihood again",
    ),
    Mutant(
        "analyst.training",
        "if atomic and sims.failed.any():",
        "if False:",
        "the atomic loss loses the chance that simulations fail",
        "test_sple.py",
    ),
    Mutant(
        "analyst.pairs",
        "return np.isnan(self.s).any(axis=1) & (self.log_prior > -np.inf)",
        "return np.isnan(self.s).any(axis=1)",
        "points beyond the prior taught as simulations that failed",
        "test_sple.py",
    ),
    Mutant(
        "planning.synthetic",
        "log_p + self.chance.log_prob(z)",
        "log_p",
        "the planner's fitted law does not know how often simulations fail",
        "test_planning.py",
    ),
    Mutant(
        "checks.calibration",
        "if np.isfinite(s).all():",
        "if True:",
        "a truth without a release ends a calibration",
        "test_diagnostics.py",
    ),
    Mutant(
        "datasets",
        "failed = int(where_possible(model, theta[lost]).sum())",
        "failed = int(lost.sum())",
        "steps beyond a prior of one's own counted as simulations that failed",
        "test_analyst.py",
    ),
    Mutant(
        "analyst.proposals",
        "    if inside.all():",
        "    if True:",
        "draws beyond a prior of one's own shown to the user",
        "test_analyst.py",
    ),
    Mutant(
        "analyst.attempts",
        "    if not possible.all():",
        "    if False:",
        "steps beyond the prior said to be failures beside the posterior",
        "test_analyst.py",
    ),
    Mutant(
        "analyst.independence",
        "np.isnan(s[where_possible(model, theta)])",
        "np.isnan(s)",
        "points beyond the prior counted as failures of values apart",
        "test_analyst.py",
    ),
    Mutant(
        "analyst.particle_filter",
        "failed = failed * where_possible(self.model, theta)",
        "failed = failed * 1",
        "points beyond the prior counted as failed particles",
        "test_analyst.py",
    ),
    Mutant(
        "prior",
        "discrete = np.flatnonzero(whole.all(axis=0) | again)",
        "discrete = np.flatnonzero(whole.all(axis=0) & again & False)",
        "probabilities of values weighed by densities of proposals",
        "test_analyst.py",
    ),
    Mutant(
        "analyst.estimator",
        "if not beyond.any():",
        "if True:",
        "a network's draws where the prior is zero",
        "test_analyst.py",
    ),
    Mutant(
        "analyst.regions",
        "law.sf(q / INFLATE**2)",
        "law.sf(q)",
        "a likelihood asked in tails where nothing was simulated",
    ),
    Mutant(
        "analyst.whole_numbers",
        "return 2 * (away + y.std(axis=0)) / (count + 1)",
        "return 1e-9 * (away + y.std(axis=0)) / (count + 1)",
        "a suppressed value learnt as a spike",
    ),
    Mutant(
        "mechanisms.joint",
        "missing = np.isnan(release.s_dp) & ~hides(release.mechanism, release.s_dp.size)",
        "missing = np.isnan(release.s_dp)",
        "a suppressed value says nothing",
        "test_missing.py test_published.py",
    ),
    Mutant(
        "analyst.count_laws",
        "cells, total = cells - shared, total - inner.total",
        "cells, total = cells - shared, total",
        "a nested total is counted twice",
        "test_noisy_counts.py",
    ),
    Mutant(
        "analyst.one_count",
        "        s = units.value(np.asarray(k, np.int64) * step)",
        "        s = np.asarray(k, np.int64) * 1.0",
        "the step of the query is not read",
        "test_noisy_counts.py",
    ),
    Mutant(
        "analyst.one_count",
        "many = tuple(int(as_written(step) / as_written(unit)) for step in steps)",
        "many = tuple(1 for step in steps)",
        "joined queries of other steps share the finest one",
        "test_noisy_counts.py",
    ),
    Mutant(
        "analyst.one_count",
        "found = self._many(value)\n",
        "found = value\n",
        "a total is taken for a number of steps",
        "test_noisy_counts.py",
    ),
    Mutant(
        "analyst.noisy_counts",
        "return _mixed(laws, self.weights).scaled(self.unit)",
        "return _mixed(laws, self.weights)",
        "laws are handed out in steps",
        "test_noisy_counts.py",
    ),
    Mutant(
        "analyst.noisy_trees",
        "return TrueCounts(cells, *found, units.unit)",
        "return TrueCounts(cells, *found)",
        "laws of a tree are handed out in steps",
        "test_noisy_trees.py",
    ),
    Mutant(
        "analyst.noisy_tables",
        "theta = CountLaw.of_units(tables, units.unit).astype(float)",
        "theta = tables.astype(float)",
        "tables are handed out in steps",
        "test_noisy_tables.py",
    ),
    Mutant(
        "analyst.one_count",
        "step * low + step * (size - 1) / 2",
        "step * low",
        "cells of a coarse grid stand at their first number",
        "test_noisy_counts.py",
    ),
    Mutant(
        "analyst.count_laws",
        "edge + share * self.step - self.grain / 2",
        "edge",
        "quantiles far out are those of cells",
        "test_noisy_counts.py",
    ),
    Mutant(
        "analyst.noisy_counts",
        "log_weight += case.log_evidence()",
        "log_weight += 0.0",
        "totals do not weigh the cases of a pooled prior",
        "test_noisy_counts.py",
    ),
    Mutant(
        "analyst.count_folds",
        "leaders[pair] for pair, *_ in met)), whole - total)",
        "leaders[pair] for pair, *_ in met)), total)",
        "the total of the second row taken for that of the first",
        "test_noisy_counts.py",
    ),
    Mutant(
        "analyst.count_folds",
        "own[a] = laws[a].times(laws[b].at(total - laws[a].values))",
        "own[a] = laws[a]",
        "of a folded column only one cell is heard",
        "test_noisy_counts.py",
    ),
    Mutant(
        "analyst.count_ranks",
        'value + (ties == "best")',
        "value",
        "equal counts taken for larger ones",
        "test_noisy_counts.py",
    ),
    Mutant(
        "analyst.count_laws",
        "p[k : k + len(y.p)] += own[::-1]",
        "p[k : k + len(y.p)] += own",
        "a difference of tied counts taken for their sum",
        "test_noisy_counts.py",
    ),
    Mutant(
        "analyst.count_trees",
        "steps = factor * own.values",
        "steps = abs(factor) * own.values",
        "a difference in a tree taken for a sum",
        "test_noisy_trees.py",
    ),
    Mutant(
        "analyst.count_cycles",
        "place = int(u[c, chain, 1] * WINDOW)",
        "place = WINDOW // 4",
        "a window that is not as likely from there as from here",
        "test_noisy_tables.py",
    ),
    Mutant(
        "analyst.count_cycles",
        "along = tail[e] == node if forth else head[e] == node",
        "along = tail[e] == node",
        "a cycle that breaks totals",
        "test_noisy_tables.py",
    ),
    Mutant(
        "analyst.count_networks",
        "sum(logs) if logs else None",
        "logs[0] if logs else None",
        "of two things that are known of one sum only the first",
        "test_noisy_tables.py",
    ),
    Mutant(
        "mechanisms.codebook",
        "query = replace(each.release.query, fn=own)",
        "query = replace(each.release.query, fn=own, sensitivity=1.0)",
        "tables of one codebook priced as if each had sensitivity one",
        "test_codebook.py",
    ),
    Mutant(
        "analyst.sorted_laws",
        "best = least & (held >= held[least].max() - 1e-12)",
        "best = least & (held >= held[least].max())",
        "of two mirrored intervals the one that rounding prefers",
        "test_noisy_counts.py",
    ),
    Mutant(
        "mechanisms.agency_words",
        "return math.sqrt(variance / 2)",
        "return math.sqrt(variance)",
        "the variance of Laplace noise taken for its squared scale",
        "test_codebook.py",
    ),
    Mutant(
        "mechanisms.agency_entries",
        "if abs(found[other] / found[first] - 1) > AGREE:",
        "if False:",
        "two amounts that disagree",
        "test_codebook.py",
    ),
    Mutant(
        "mechanisms.agency_stairs",
        'number_of(entry, "epsilon", where) / stairs',
        'number_of(entry, "epsilon", where)',
        "a value that crosses several stairs priced as one",
        "test_codebook.py",
    ),
    Mutant(
        "mechanisms.agency_words",
        '        return sensitivity_in(query, "l1") / epsilon\n    needed(entry, {"delta"',
        '        return 1 / epsilon\n    needed(entry, {"delta"',
        "one view taken for the unit",
        "test_codebook.py",
    ),
    Mutant(
        "mechanisms.agency_tables",
        'if strange and entry.get("others") != "left out":',
        "if False:",
        "a misspelt name passes for a suppressed value",
        "test_codebook.py",
    ),
    Mutant(
        "mechanisms.joint",
        "    if wrong.size:\n        j = int(wrong[0])",
        "    if False:\n        j = int(wrong[0])",
        "a value that the mechanism never publishes",
        "test_codebook.py",
    ),
    Mutant(
        "mechanisms.agency_tables",
        "folder.resolve() not in path.parents or ",
        "",
        "a codebook reads any file",
        "test_codebook.py",
    ),
    Mutant(
        "simulators.seir",
        "changed = 2 if neighbours ==",
        "changed = 1 if neighbours ==",
        "a person who falls ill in another week is counted as one change",
    ),
    Mutant("simulators.seir", "E + infected - ill", "E + infected", "who falls ill stays exposed"),
    Mutant(
        "analyst.particle_clouds",
        "last[rows] = found[np.arange(len(rows)), last[rows]]",
        "last[rows] = last[rows]",
        "a path is not that of the ancestors",
    ),
    Mutant(
        "analyst.particle_clouds",
        "log_w, ahead, t = log_w + seen - ahead, seen, stop",
        "log_w, ahead, t = log_w + seen, seen, stop",
        "the weight of an outlook is not taken back",
    ),
    Mutant(
        "analyst.particle_filter",
        "one_of_each(found.log_w, aside(rng))",
        "one_of_each(0 * found.log_w, aside(rng))",
        "the last particle is drawn without its weight",
    ),
    Mutant(
        "analyst.importance_squared",
        "kept.append(columns[:, 2:])",
        "kept.append(np.random.default_rng(0).permutation(columns[:, 2:]))",
        "paths are shuffled against the parameters",
    ),
    Mutant(
        "analyst.metropolis",
        "Chains(z, log_f, seeds, paths))",
        "Chains(z, log_f, seeds, chains.paths))",
        "a chain that moves keeps the path of where it was",
    ),
    Mutant(
        "analyst.paths",
        "state, first = _states(posterior, model), len(model.times)",
        "state, first = model.start(posterior.theta, 1, rng), len(model.times)",
        "a forecast begins as if nothing had been released",
    ),
    Mutant(
        "analyst.paths",
        "states=self.states[which])",
        "states=self.states[: len(which)])",
        "resampled draws get the states of others",
    ),
]


CONFIDENTIAL = "test_confidential.py"
MUTANTS += [
    Mutant(
        "behind",
        "    s = s[:, places.order] if (np.diff(places.order) != 1).any() else s",
        "    s = s[::-1]",
        "values belong to other draws of the parameters",
        CONFIDENTIAL,
    ),
    Mutant(
        "behind",
        "    s = s[:, places.order] if (np.diff(places.order) != 1).any() else s",
        "    s = s",
        "a lost week stands where another one belongs",
        CONFIDENTIAL,
    ),
    Mutant(
        "kept",
        "return given - self.log_share",
        "return given + 0 * self.log_share",
        "weights of kept values forget that they were chosen",
        CONFIDENTIAL,
    ),
    Mutant(
        "kept",
        "log_share[kept] + np.log(p[kept])",
        "np.log(p[kept])",
        "a second selection forgets the first",
        CONFIDENTIAL,
    ),
    Mutant(
        "draws",
        "values = None if self.values is None else self.values[which]",
        "values = None if self.values is None else self.values[: len(which)]",
        "resampled parameters have the values of others",
        CONFIDENTIAL,
    ),
    Mutant(
        "analyst.da_mcmc",
        "every.add(group.t.sum(axis=1))",
        "every.add(group.t[::-1].sum(axis=1))",
        "each chain has the values of another",
        CONFIDENTIAL,
    ),
    Mutant(
        "analyst.unreached",
        "np.sum(usual <= here)",
        "np.sum(usual >= here)",
        "a release that the model reaches is called out of reach, and the other way round",
        "test_unreached.py",
    ),
    Mutant(
        "analyst.unreached",
        "np.maximum(low - y, y - high)",
        "np.maximum(low - y, 0 * y)",
        "a value far above all that is simulated is within reach",
        "test_unreached.py",
    ),
    Mutant(
        "analyst.chosen_values",
        "key = log_w[cut] + self.rng.gumbel(size=len(cut))",
        "key = 0 * log_w[cut] + self.rng.gumbel(size=len(cut))",
        "values are chosen without regard to the release",
        CONFIDENTIAL,
    ),
    Mutant(
        "analyst.proposals",
        """    if k > BELIEVED:
        error""",
        """    if k > 10 * BELIEVED:
        error""",
        "an error of the evidence that the tail index doubts is stated all the same",
        "test_exact.py",
    ),
    Mutant(
        "analyst.proposals",
        "if k > BELIEVED and heard:",
        "if k > 10 * BELIEVED and heard:",
        "no warning says that the error of the evidence is unknown",
        "test_exact.py",
    ),
    Mutant(
        "analyst.proposals",
        "(power * len(part), log_weight",
        "(1.0 * len(part), log_weight",
        "rounds that still search count in the evidence as much as the last",
        "test_exact.py",
    ),
    Mutant(
        "analyst.proposals",
        "log_mixture(part[:, : len(n)], n)))",
        "log_mixture(part, self.counts)))",
        "the evidence weighs draws by proposals that were fitted to them",
        "test_exact.py",
    ),
    Mutant(
        "analyst.compare",
        "probability_error=math.inf if untold else",
        "probability_error=0.0 if untold else",
        "a probability beside a doubtful evidence looks certain",
        "test_exact.py",
    ),
    Mutant(
        "analyst.compare",
        "    if untold:\n",
        "    if not names:\n",
        "nobody hears that a Bayes factor has no error",
        "test_exact.py",
    ),
    Mutant(
        "analyst.attempts",
        "if np.isinf([se_a[0], se_b[0]]).any():",
        "if np.isinf([se_a[0], se_b[0]]).all():",
        "a run whose evidence has no error confirms another",
        "test_exact.py",
    ),
    Mutant(
        "analyst.pooling",
        "return about_evidence((log_z, error), log_w, heard=False)",
        "return dict(log_evidence=log_z, log_evidence_se=error)",
        "pooled weights that a few draws hold state an error of the evidence",
        "test_exact.py",
    ),
    Mutant(
        "transforms",
        """            theta = inside(theta, self.low, self.high)
""",
        "",
        "a draw that rounds to the border has infinite coordinates, and the next fit is NaN",
        "test_robustness.py",
    ),
    Mutant(
        "analyst.pooling",
        "return part.values.s, start + part.values.rows, share",
        "return part.values.s, part.values.rows, share",
        "values of one pooled part go to the draws of another",
        CONFIDENTIAL,
    ),
    Mutant(
        "analyst.walking_counts",
        "c, log_eta = c[c <= most], log_eta[c <= most]",
        "pass",
        "a known total bounds no count",
        "test_walking_counts.py",
    ),
    Mutant(
        "analyst.walking_counts",
        "laws[t] *= steps @ (laws[t + 1] / ahead)",
        "pass",
        "a day learns nothing from those after it",
        "test_walking_counts.py",
    ),
    Mutant(
        "analyst.walking_counts",
        "total += top + np.log(size)",
        "total += np.log(size)",
        "an evidence without its scale",
        "test_walking_counts.py",
    ),
    Mutant(
        "bench.runs",
        'if k in ("chains", "families")',
        "if False",
        "chains judged by as many draws as they have, not by what they are worth",
        "test_bench.py::test_chains_are_worth_fewer_draws_than_they_have",
    ),
    Mutant(
        "bench.peers",
        "prior.log_prob(prior.from_unconstrained(z)) + prior.log_abs_det(z)",
        "prior.log_prob(prior.from_unconstrained(z))",
        "peers are given a prior that is not the task's",
    ),
    Mutant(
        "bench.peers",
        "return self.task.release.mechanism.sample(self.confidential(z), self.rng)",
        "return self.confidential(z)",
        "peers are trained on values without noise",
    ),
    Mutant(
        "bench.every_release",
        "for pair in each]) + prior.log_abs_det(z)",
        "for pair in each])",
        "an exact score on another scale than the networks'",
        "test_bench.py",
    ),
    Mutant(
        "bench.every_release",
        "np.logaddexp.reduce(log_p, axis=1, keepdims=True) + np.log(step)",
        "np.logaddexp.reduce(log_p, axis=1, keepdims=True)",
        "an exact score of masses, not densities",
        "test_bench.py",
    ),
    Mutant(
        "bench.runs",
        "(found.mean() - exact.mean(axis=0)) / exact.std(axis=0)",
        "(found.mean() - exact.mean(axis=0)) / found.std()",
        "a posterior too wide looks right",
    ),
    Mutant(
        "bench.runs", "self.made += len(theta)", "self.made += 1", "simulations are not counted"
    ),
    Mutant(
        "planning.yields",
        "log_w[np.arange(len(s_dp)), own] = -np.inf",
        "pass",
        "a simulated release is weighed by the simulation that made it",
        "test_planning.py",
    ),
    Mutant(
        "planning.yields",
        "return np.sqrt(np.maximum(second - first**2, 0.0) / seen)",
        "return np.sqrt(np.maximum(second - first**2, 0.0))",
        "few draws understate a spread",
        "test_planning.py",
    ),
    Mutant(
        "planning.answers",
        "return normal_log_density(w, z, z[own]) - log_p[own]",
        "return normal_log_density(w, z, z[own])",
        "information without the prior",
        "test_planning.py",
    ),
    Mutant(
        "planning.table",
        "missed = np.flatnonzero(y < t)",
        "missed = np.flatnonzero(y > t)",
        "the least ε on the wrong side of its target",
        "test_planning.py",
    ),
    Mutant(
        "analyst.curves",
        "by_steep = by_p * xi * xi + by_d * (1 - 2 * both)",
        "by_steep = by_p * xi * xi + by_d * (1 - both)",
        "a wrong derivative of the splines",
    ),
    Mutant(
        "analyst.gradients",
        "by = by + (by_first @ first[0]) * (a > 0)",
        "by = (by_first @ first[0]) * (a > 0)",
        "the way back forgets the residual network's short cut",
    ),
    Mutant(
        "planning.networks",
        "return np.stack([mean + off[there].mean(axis=0), ",
        "return np.stack([mean, ",
        "a network is believed although exact answers differ",
        "test_planning.py",
    ),
    Mutant(
        "planning.networks",
        "np.hypot(error, np.hypot(beside, slack))",
        "error",
        "an error without what the network is off by",
        "test_planning.py",
    ),
    Mutant(
        "planning.nearby",
        "self.run = Rounds(prior, prior, defensive=0.1)",
        "self.run = getattr(self, 'run', None) or Rounds(prior, prior, defensive=0.1)",
        "draws that explored are weighed as if they had not",
        "test_planning.py",
    ),
    Mutant(
        "planning.nearby_rows",
        "np.hypot(scatter, share * off)",
        "scatter",
        "an error without what the fitted laws are off by",
        "test_planning.py",
    ),
    Mutant(
        "planning.table",
        "curve[:, np.isfinite(curve[2])]",
        "curve",
        "a number that nobody answers for decides which ε is enough",
        "test_planning.py",
    ),
    Mutant(
        "planning.candidates",
        "        if len(told) > 1:",
        "        if False:",
        "days and persons on one axis of ε",
        "test_planning.py",
    ),
    Mutant(
        "planning.yields",
        "(0.0 if before is None else before)",
        "0.0",
        "a second release is planned as if there had been no first",
        "test_planning.py",
    ),
    Mutant(
        "planning.fresh",
        "gap / np.hypot(error, error_2)",
        "gap / np.hypot(error, error_2) / 100",
        "a prediction that is off looks right",
        "test_planning.py",
    ),
    Mutant(
        "analyst.contexts",
        "np.hypot(self.spread, noise)",
        "self.spread",
        "a network sees the widest noise on another scale",
        "test_planning.py",
    ),
    Mutant(
        "analyst.contexts",
        "self.show(release.s_dp, self.noise(release.mechanism), np.log(epsilon))",
        "self.show(release.s_dp, self.noise(release.mechanism), np.log(self.high))",
        "a network is asked at another ε than the release's",
        "test_any_epsilon.py",
    ),
    Mutant(
        "analyst.starts",
        "return log_eta + rho - over, over",
        "return log_eta, over",
        "the start stays in the target",
        "test_input_smc.py::test_a_start_good_or_bad_leads_to_the_same_posterior",
    ),
    Mutant(
        "analyst.straight",
        "return self.prior.log_abs_det(z) - stretched",
        "return self.prior.log_abs_det(z)",
        "straight coordinates without their Jacobian",
        "test_marginal.py",
    ),
    Mutant(
        "analyst.other_coordinates",
        "return self.log_density(v) - self.prior.log_prob(self.from_unconstrained(v))",
        "return self.log_density(v)",
        "normal coordinates without the density of the parameters",
        "test_surrogates.py",
    ),
    Mutant(
        "analyst.surrogates",
        "around = at[..., None] + sd[:, None, None] * NODES",
        "around = at[..., None] + 0 * sd[:, None, None] * NODES",
        "a surrogate that trusts its lines",
        "test_surrogates.py",
    ),
    Mutant(
        "analyst.surrogates",
        "return self.level + v @ self.slope.T + self.bend(v)",
        "return self.level + v @ self.slope.T",
        "a surrogate that knows lines only",
        "test_surrogates.py",
    ),
    Mutant(
        "analyst.surrogates",
        "return np.clip((before + after) / 2, -most, most)",
        "return (before + after) / 2",
        "a table that overshoots beside a cliff",
        "test_surrogates.py",
    ),
    Mutant(
        "analyst.surrogates",
        "sides = np.concatenate([v <= low, v >= high], axis=1).T",
        "sides = np.concatenate([v <= low, v <= low], axis=1).T",
        "a mixture with tails on one side",
        "test_surrogates.py",
    ),
    Mutant(
        "analyst.bends",
        "missed = missed[-judged:] / (1 - vectors[-judged:] ** 2 @ share)[:, None]",
        "missed = missed[-judged:]",
        "a bend judged by the points that it was fitted to",
        "test_surrogates.py",
    ),
    Mutant(
        "analyst.bends",
        "weights[:, straight] = 0.0",
        "weights[:, straight] += 0.0",
        "noise is taken for a bend",
        "test_surrogates.py",
    ),
    Mutant(
        "analyst.surrogates",
        "- np.log(np.diag(self.root)).sum()",
        "+ 0 * np.log(np.diag(self.root)).sum()",
        "a proposal whose density forgets its size",
        "test_surrogates.py",
    ),
    Mutant(
        "analyst.summed",
        'return part.exact, part.info["agreed"], part.ess',
        'return part.info["agreed"], part.ess',
        "many draws go before exact ones",
        "test_surrogates.py",
    ),
    Mutant(
        "analyst.scaling",
        "for which in (first, ~first)]",
        "for which in (first,)]",
        "what bent contexts share is not seen straight",
        "test_flows.py",
    ),
    Mutant(
        "analyst.scaling",
        "other = np.where(np.arange(len(twice)) < len(bend), bend[twice], 0.0)",
        "other = bend[twice]",
        "second views are bent, too",
        "test_flows.py",
    ),
    Mutant(
        "analyst.scaling",
        "left[0] -= CLEARLY",
        "left[0] = np.inf",
        "contexts are bent though that tells no more",
        "test_flows.py",
    ),
    Mutant(
        "analyst.scaling",
        "c = c[np.searchsorted(reached, places * reached[-1])]",
        "c = c[:ROWS]",
        "bends of contexts that weigh nothing",
        "test_flows.py",
    ),
    Mutant(
        "analyst.training",
        "scaling = fit_scaling(*first, noise=noise, plain=True, simulations=simulations)",
        "scaling = fit_scaling(*first)",
        "a network that begins at straight contexts",
        "test_sppe.py",
    ),
    Mutant(
        "analyst.training",
        "noise=noise, plain=True, simulations=simulations)",
        "noise=noise, plain=True)",
        "a start that counts pairs of few simulations",
        "test_sppe.py",
    ),
    Mutant(
        "analyst.scaling",
        "max(w @ w, 1 / simulations)",
        "w @ w",
        "numbers paid for by pairs that share a simulation",
        "test_flows.py",
    ),
    Mutant(
        "analyst.training",
        "first = replace(pairs, draws=1)(rng, min(max(len(pairs.z), 8192), INNER))",
        "first = pairs(rng)",
        "a start by a quarter of the simulations",
        "test_sppe.py",
    ),
    Mutant(
        "analyst.gradients",
        "if net not in _places:",
        "if not _places:",
        "the weights of another network",
        "test_flows.py",
    ),
    Mutant(
        "planning.sizes",
        "np.full(len(s_dp), np.log(self.sizes[k]))",
        "np.full(len(s_dp), 0.0)",
        "a network is not told how many persons there are",
        "test_page.py",
    ),
    Mutant(
        "planning.sliders",
        'one.observe(lambda change: handle.update(picture()), names="value")',
        'one.observe(lambda change: picture(), names="value")',
        "a slider moves, and the figure does not",
        "test_page.py",
    ),
    Mutant(
        "analyst.training",
        "@on_one_thread\ndef _begun",
        "def _begun",
        "an estimator that depends on the number of cores",
        "test_sppe.py",
    ),
    Mutant(
        "analyst.ahead",
        "restore_generator(rng, position)",
        "pass",
        "a generator that stands where it began",
        "test_flows.py",
    ),
    Mutant(
        "analyst.ahead",
        "ours, setting = copy.deepcopy(rng)",
        "ours, setting = rng",
        "pairs made in vain move the generator",
        "test_flows.py",
    ),
    Mutant(
        "analyst.recorded",
        "    if name not in streams:",
        "    if True:",
        "every run has a stream of its own, and leaves memory on the card",
        "test_device.py",
    ),
    Mutant(
        "analyst.scaling",
        "columns[first] = vectors / root @ _turned(root[:, None] * vectors.T)",
        "columns[first] = vectors / root",
        "features are mixtures of contexts",
        "test_flows.py",
    ),
    Mutant(
        "analyst.scaling",
        "first | whiten.any(axis=1)",
        "np.ones(len(first), bool)",
        "views that no feature uses are carried along",
        "test_flows.py",
    ),
    Mutant(
        "analyst.scaling",
        "return min(found, key=lambda scaling: _left_to_sums(scaling, pairs, each))",
        "return found[0]",
        "features of a curve are near its points",
        "test_flows.py",
    ),
    Mutant(
        "analyst.scaling",
        "return min(found, key=lambda scaling: _left_to_sums(scaling, pairs, each))",
        "return found[1]",
        "features of a table are its components",
        "test_flows.py",
    ),
    Mutant(
        "analyst.first_sums",
        "by_noise = STRICT * shared",
        "by_noise = 0 * shared",
        "sums begin at chance",
        "test_first_sums.py",
    ),
    Mutant(
        "analyst.first_sums",
        "by_noise = STRICT * shared",
        "by_noise = STRICT",
        "functions of single features count pairs of one simulation",
        "test_first_sums.py",
    ),
    Mutant(
        "analyst.first_sums",
        "spent = self.shared * ",
        "spent = ",
        "a ridge counts pairs of one simulation",
        "test_first_sums.py",
    ),
    Mutant(
        "analyst.first_sums",
        "fit(log_sd + score / 2",
        "fit(score / 2",
        "each step of a stretch forgets the one before",
        "test_first_sums.py",
    ),
    Mutant(
        "analyst.first_sums",
        "return few + many, middle",
        "return few, middle",
        "what many features tell a little is left out",
        "test_first_sums.py",
    ),
    Mutant(
        "analyst.first_sums",
        "return first if left < FORESEEN else None",
        "return first",
        "sums begin where features work together",
        "test_first_sums.py",
    ),
    Mutant(
        "analyst.first_sums",
        "if predicted.shape[1] > 1",
        "if False",
        "sums begin where parameters are told together",
        "test_first_sums.py",
    ),
    Mutant(
        "analyst.first_sums",
        "if simulations < FEWEST",
        "if False",
        "sums begin by a few hundred simulations",
        "test_first_sums.py",
    ),
    Mutant(
        "analyst.additive",
        "np.split(first.weights / PACE",
        "np.split(first.weights",
        "a layer begins elsewhere",
        "test_first_sums.py",
    ),
    Mutant(
        "analyst.training",
        "min(max(len(pairs.z), 8192), INNER)",
        "max(len(pairs.z), 8192)",
        "a start whose memory grows with the simulations",
        "test_first_sums.py",
    ),
    Mutant(
        "analyst.training",
        "sums=sums",
        "sums=None",
        "training begins without sums",
        "test_first_sums.py",
    ),
    Mutant(
        "analyst.additive",
        "-stretch.sum(-1)",
        "stretch.sum(-1)",
        "a stretch counts the wrong way round",
        "test_flows.py",
    ),
    Mutant(
        "analyst.additive",
        "return shift + torch.exp(stretch) * e",
        "return shift + e",
        "draws are not stretched",
        "test_flows.py",
    ),
    Mutant(
        "analyst.additive",
        "(u - knot).relu_()",
        "u.relu()",
        "all pieces bend at the same place",
        "test_flows.py",
    ),
    Mutant(
        "analyst.conditional_flow",
        'earlier = {} if about["version"] == VERSION else untrained',
        "earlier = {}",
        "flows that were kept before there were sums are refused",
        "test_flows.py",
    ),
    Mutant(
        "analyst.focus",
        "worth = kish(log_v + sims.log_u)",
        "worth = kish(log_v)",
        "what cannot be weighed counts as near",
        "test_sppe.py",
    ),
    Mutant(
        "analyst.training",
        "return free >= MANY and near.worth < wanted",
        "return near.worth < wanted",
        "rounds of two parameters that go back to the prior, where its draws miss the posterior",
        "test_sppe.py::test_with_few_parameters_rounds_never_go_back",
    ),
    Mutant(
        "analyst.training",
        "LOST * min(near.scaling.whiten.shape[1], free)",
        "LOST * near.scaling.whiten.shape[1]",
        "four parameters behind thirty values are given up",
        "test_sppe.py",
    ),
    Mutant(
        "analyst.sppe",
        "    if fitted.everywhere:",
        "    if False:",
        "rounds go on where nothing can be weighed",
        "test_sppe.py",
    ),
    Mutant(
        "analyst.rounds",
        "            return log_prior(self.prior, z)",
        "            return self.flow.log_prob(z, self.s_dp)",
        "draws of the prior have the density of a flow",
        "test_sppe.py",
    ),
    Mutant(
        "analyst.recorded",
        "if self.replay is None or [x.shape for x in inputs] != self.shapes:",
        "if self.replay is None:",
        "a batch of another size is taken for the recorded one",
        "test_device.py",
    ),
    Mutant(
        "analyst.recorded",
        "mine.copy_(x)",
        "pass",
        "every step is that of the first batch",
        "test_device.py",
    ),
    Mutant(
        "analyst.curves_as_tensors",
        "return torch.where(inside, y, x), torch.where(inside, log_slope, 0.0)",
        "return torch.where(inside, y, x), log_slope",
        "tails with the slope of the middle",
        "test_flows.py",
    ),
    Mutant(
        "analyst.curves_as_tensors",
        "return torch.where(inside, x, y), torch.where(inside, -log_slope, 0.0)",
        "return torch.where(inside, y, y), torch.where(inside, -log_slope, 0.0)",
        "draws that nothing has bent",
        "test_flows.py",
    ),
    Mutant(
        "analyst.conditional_flow",
        'few = self.device == "cpu" or rows < FEWEST',
        "few = True",
        "a flow that is never evaluated on its device",
        "test_device.py",
    ),
    Mutant(
        "analyst.layers",
        "torch.empty(0, device=device)",
        "pass",
        "a card that is missing is noticed after hours of simulation",
        "test_device.py",
    ),
    Mutant(
        "torch_functions",
        "with _alone, torch.random.fork_rng(devices=cards):",
        "with torch.random.fork_rng(devices=cards):",
        "two threads draw from one state",
        "test_torch_functions.py",
    ),
    Mutant(
        "torch_functions",
        "torch.default_generator.manual_seed(seed)\n",
        "pass\n",
        "torch.distributions draw from whatever state there is",
        "test_torch_functions.py",
    ),
    Mutant(
        "batches",
        "size, pieces = together, 1",
        "size, pieces = MAX_BATCH, PIECES",
        "a card is given crumbs",
        "test_torch_functions.py",
    ),
    Mutant(
        "told_apart",
        'if name.partition(".")[0] in changed and isinstance(value, CONTAINERS):',
        "if changed and isinstance(value, CONTAINERS):",
        "a list of constants does not count beside one that grows",
    ),
    Mutant(
        "told_apart",
        "                if not _is_own(value):",
        "                if True:",
        "an edit in a module of one's own resumes the run of another",
    ),
    Mutant(
        "told_apart",
        '    if "__call__" not in methods:',
        "    if True:",
        "what was set after an object was made does not count",
    ),
    Mutant(
        "told_apart",
        "held = _attributes(thing) if has_names else _made_of(thing)",
        "held = _attributes(thing) if has_names else []",
        "one date is as good as another",
    ),
    Mutant(
        "batches",
        "    if told_apart((work, *common)) != told:",
        "    if False:",
        "workers compute with an earlier version of the simulator",
        "test_executors.py",
    ),
    Mutant(
        "batches",
        "        if _travels(error):\n",
        "        if True:\n",
        "an error that cannot be sent back breaks the pool",
        "test_executors.py",
    ),
    Mutant(
        "batches",
        "alone = (None,) * len(begun[0])",
        "alone = begun[0]",
        "a generator that came with a parcel is used twice",
        "test_executors.py",
    ),
    Mutant(
        "batches",
        "time.monotonic() - self.asked > LOOK",
        "False",
        "workers that join get nothing to do",
        "test_executors.py",
    ),
    Mutant(
        "batches",
        "home in ELSEWHERE",
        "False",
        "what loky cannot send is not told how to mend it",
        "test_executors.py",
    ),
    Mutant(
        "running",
        '_check_executor(running.get("executor"))',
        "pass",
        "a word passes for an executor",
        "test_executors.py",
    ),
    Mutant(
        "datasets",
        "    if moved and not _same(",
        "    if False and not _same(",
        "a simulator on global random numbers repeats them on each worker",
        "test_executors.py",
    ),
    Mutant(
        "datasets",
        "    if possible.all():",
        "    if True:",
        "a simulator is called where a prior of one's own is zero",
        "test_foundations.py",
    ),
    Mutant(
        "model",
        "    if 0 < len(missing) < len(maps):",
        "    if False:",
        "half a map to unconstrained space is found late",
        "test_foundations.py",
    ),
    Mutant(
        "checkpoint",
        "            _check_mine(self, _fingerprint(self.path))",
        "            pass",
        "two runs begun on one path overwrite each other",
        "test_foundations.py",
    ),
    Mutant(
        "checkpoint",
        'if names == ["seed"] and _moved_on',
        "if False and _moved_on",
        "a cell that is run again is told to throw its work away",
        "test_foundations.py",
    ),
    Mutant(
        "checkpoint",
        '    writable_place(self.path, "the checkpoint")',
        "    pass",
        "a folder that cannot be written is found after the first round",
        "test_foundations.py",
    ),
    Mutant(
        "analyst.importance",
        "            if search.read(r) is None:",
        "            if True:",
        "a second kill while rounds are read loses them",
        "test_killed.py",
    ),
    Mutant(
        "analyst.importance",
        "        draws=size.draws,\n",
        "",
        "rounds of another size are read as they stand",
        "test_killed.py",
    ),
    Mutant(
        "analyst.importance",
        "search.keeper.result(len(run.z))",
        "search.keeper.result()",
        "values of more draws than there are",
        "test_killed.py",
    ),
    Mutant(
        "analyst.importance",
        "self.begun_at(r), told",
        "(), told",
        "draws of part of a round are kept twice",
        "test_killed.py",
    ),
    Mutant(
        "analyst.frugal",
        'if r >= len(recorded["log_eta"]):',
        "if True:",
        "a second kill while rounds are read loses them",
        "test_killed.py",
    ),
    Mutant(
        "analyst.count_sums",
        "np.minimum(log_sum, seen.levels.highest[u[fine]])",
        "log_sum",
        "at the top of a clamp huge means are the likeliest",
    ),
    Mutant(
        "mechanisms.release",
        "    if parts and not isinstance(asked, Several):",
        "    if False:",
        "a release of several queries costs more once it was saved",
        "test_published.py",
    ),
    Mutant(
        "privacy",
        "if x.ndim == 1 and s.shape == x.shape:",
        "if False:",
        "a function may not return a number",
        "test_functions.py",
    ),
    Mutant(
        "analyst.smc_abc",
        "exact=exact and not few",
        "exact=exact",
        "four draws are called exact",
        "test_smc_abc.py",
    ),
    Mutant(
        "told_apart",
        "value = (inner | around).get(",
        "value = around.get(",
        "a name made within a function is taken for that of its module",
    ),
    Mutant(
        "analyst.training",
        "max(pairs.sharing(rng) / 4, least)",
        "pairs.sharing(rng) / 4",
        "thousands of contexts are weighed against all simulations",
        "test_sppe.py",
    ),
    Mutant(
        "mechanisms.release",
        "query.fn.queries if isinstance(query.fn, Several) else ()",
        'getattr(query.fn, "queries", ())',
        "a function pays what it says that it costs",
        "test_published.py",
    ),
]


def files_of(mutant: Mutant) -> list[str]:
    "The files of tests that must see the mutant."
    return [f"tests/{name}" for name in (mutant.tests or tests_of(mutant.module)).split()]


def key_of(mutant: Mutant) -> str:
    "What a row in the record holds for: the mutant, its module, and its tests."
    digest = hashlib.sha256(repr(astuple(mutant)).encode())
    for path in [str(mutant.where), *files_of(mutant)]:
        digest.update((ROOT / path.partition("::")[0]).read_bytes())
    return digest.hexdigest()[:16]


def name_of(mutant: Mutant) -> str:
    return f"{mutant.module}: {mutant.why}"


def copied(folder: Path) -> None:
    "What the tests need, with what is compiled of it, copied to `folder`; pages are only read."
    for part in ("dpsbi", "tests"):
        shutil.copytree(ROOT / part, folder / part)
    (folder / "nbs").symlink_to(ROOT / "nbs")
    shutil.copy2(ROOT / "pyproject.toml", folder)


def tested(tests: list[str]) -> int:
    "Pytest's exit status: in the present folder, up to the first failure."
    import pytest

    return pytest.main(["-x", "-p", "no:cacheprovider", *tests])


def run(mutant: Mutant, before: str) -> str:
    "What is to be said, in a process of its own, if a test fails on a copy; `before` goes first."
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copied(folder)
        path = folder / mutant.where
        text = path.read_text()
        if text.count(mutant.old) != 1:
            times = text.count(mutant.old)
            raise LookupError(f"its text stands {times} times in {mutant.where}")
        path.write_text(text.replace(mutant.old, mutant.new))
        os.chdir(folder)
        os.environ["PYTHONPATH"] = name
        sys.path.insert(0, name)
        files = files_of(mutant)
        first = [f"tests/{before.partition('[')[0]}"] if before else []
        status = tested([*first, *files])
        if status == 4:  # that test is no more
            status = tested(files)
        if status > 1:
            raise LookupError(f"the tests did not run: pytest ended with {status}")
    return "a test failed" if status else ""


def verdict(passed: bool, said: str) -> str:
    "The test that failed; '' if none did; or why it was no mutant."
    wrong = re.search(r"^LookupError: (.*)", said, re.M)
    if wrong:
        return f"NOT A MUTANT: {wrong.group(1)}"
    found = re.findall(r"^(?:FAILED|ERROR) tests/(\S+)", said, re.M)
    if passed or found:
        return "" if passed else found[0]
    return f"NOT A MUTANT: {said[-2000:]}"


def recorded() -> dict[str, dict]:
    "The last row of each mutant."
    lines = RECORD.read_text().splitlines() if RECORD.exists() else []
    return {row["mutant"]: row for row in map(json.loads, lines)}


def record(rows: dict[str, dict]) -> None:
    "All rows, in the order of the mutants; those of mutants that are no more are left out."
    kept = [rows[name] for name in map(name_of, MUTANTS) if name in rows]
    RECORD.parent.mkdir(exist_ok=True)
    RECORD.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in kept))


def caught_before(mutant: Mutant, rows: dict[str, dict]) -> bool:
    "As all stands now?"
    row = rows.get(name_of(mutant), {})
    return bool(row.get("caught")) and row["key"] == key_of(mutant)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", help="only modules whose name begins so")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="those too that were caught")
    options = parser.parse_args()
    asked = tuple(options.modules) or ("",)
    chosen = [mutant for mutant in MUTANTS if mutant.module.startswith(asked)]
    rows = recorded()
    due = [m for m in chosen if options.again or not caught_before(m, rows)]
    missed = 0
    if due:
        import_heavy()
    of_name = {name_of(mutant): mutant for mutant in due}
    items = []
    for mutant in due:
        before = rows.get(name_of(mutant), {}).get("caught", "")
        items.append(Item(name_of(mutant), partial(run, mutant, before)))
    for item, passed, seconds, said in pooled(items, options.jobs):
        found = verdict(passed, said)
        bad = not found or found.startswith("NOT")
        missed += bad
        row = {"mutant": item.name, "caught": "" if bad else found, "seconds": round(seconds, 1)}
        rows[item.name] = row | {"date": str(date.today()), "key": key_of(of_name[item.name])}
        record(rows)
        print(f"{'MISSED ' if bad else 'caught '} {item.name}  [{found}]", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} mutants caught", end="")
    print(
        f" ({len(chosen) - len(due)} of them before, as they stand)"
        if len(due) < len(chosen)
        else ""
    )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
