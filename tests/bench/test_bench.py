"""The benchmark measures what it says: exact draws are exact, rows are kept, failures too."""

import json
import re
import subprocess
import sys
from inspect import getsource
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import special, stats

from dpsbi import Posterior
from dpsbi.bench import peers as peers
from dpsbi.bench import runs as coverage
from dpsbi.bench import runs as every_release
from dpsbi.bench import runs as runs
from dpsbi.bench import tasks as bench_tasks
from dpsbi.bench.tasks import RATES, log_likelihood_of_rates, many_rates, named, one_rate, tasks
from dpsbi.checks.testing import agrees

FOLDER = "nbs/references"
SMALL = one_rate(3)
NETWORKS = {"quick": (1, 3), "one_network": (1, 3), "amortise": (3, 3)}  # members, layers


def test_the_likelihood_of_a_rate_is_a_sum_over_counts():
    rates = np.array([2.0, 9.0])
    found = log_likelihood_of_rates(SMALL.release, rates)
    s = np.arange(120.0)
    for j, value in enumerate(SMALL.release.s_dp):
        density = np.exp(SMALL.release.mechanism.log_prob(np.array([value]), s[:, None]))
        by_hand = [density @ stats.poisson(rate).pmf(s) for rate in rates]
        np.testing.assert_allclose(np.exp(found[j]), by_hand, rtol=1e-10)


@pytest.mark.parametrize("made", [lambda: one_rate(30), lambda: many_rates(20)])
def test_exact_draws_have_the_moments_of_the_grid(made):  # false alarm: 1e-6
    task = made()
    draws = task.exact(np.random.default_rng(1))
    log_p = log_likelihood_of_rates(task.release, RATES)
    log_p = log_p.sum(axis=0)[None] if draws.shape[1] == 1 else log_p
    log_p = log_p + stats.gamma(4, scale=2).logpdf(RATES)
    p = np.exp(log_p - log_p.max(axis=1, keepdims=True))
    mean = p @ RATES / p.sum(axis=1)
    agrees(draws.mean(axis=0), mean, draws.std(axis=0) / np.sqrt(len(draws)))


def test_reference_draws_belong_to_their_tasks():
    kept = ("example_4", "sir", "regression", "naive_bayes", "seir", "queue", "hierarchy", "day")
    for name in kept:
        task = tasks(FOLDER)[name]()
        draws = task.exact(np.random.default_rng(1))
        assert draws.shape == (4000, task.model.prior.dim)
        assert np.isfinite(task.model.prior.log_prob(draws)).all()
        assert np.isfinite(task.on_line(draws)).all()


def test_the_line_has_the_density_of_what_it_draws():  # false alarm: 1e-6
    line = peers.UnconstrainedTask(SMALL, np.random.default_rng(1))
    z = line.draw(20_000)[:, 0]
    grid = np.linspace(-4, 5, 4001)
    density = np.exp(line.log_prob(grid[:, None]))
    width = grid[1] - grid[0]
    assert abs(density.sum() * width - 1) < 1e-3
    agrees(z.mean(), density @ grid * width, z.std() / np.sqrt(len(z)))


def test_what_a_peer_sees_has_the_noise_and_what_pyabc_sees_has_not():
    line = peers.UnconstrainedTask(SMALL, np.random.default_rng(1))
    z = np.full((4000, 1), np.log(9.0))
    noisy, clean = line.privatised(z), line.confidential(z)
    noise = stats.dlaplace(1 / 2.0).var()
    assert abs(clean.var() / 9 - 1) < 0.1
    assert abs(noisy.var() / (9 + noise) - 1) < 0.1


def test_a_wrong_posterior_is_told_apart():
    z = np.random.default_rng(1).normal(size=(1000, 1))
    right = runs.judged(z, Posterior(np.random.default_rng(2).normal(size=(1000, 1))))
    wide = runs.judged(z, Posterior(1 + 2 * z[::-1]))
    assert right["mean_off"] < 0.2 and abs(right["sd_ratio"] - 1) < 0.1 and right["c2st"] < 0.58
    assert abs(wide["mean_off"] - 1) < 0.1 and abs(wide["sd_ratio"] - 2) < 1e-6
    assert wide["c2st"] > 0.6
    assert np.isnan(runs.judged(z, Posterior(z[:50]))["c2st"])


def test_chains_are_worth_fewer_draws_than_they_have(monkeypatch):
    "Each place is kept for twenty draws."
    rng = np.random.default_rng(1)
    theta = np.repeat(np.exp(rng.normal(2, 0.3, size=(10, 50))), 20, axis=1).reshape(-1, 1)
    info = dict(chains=10, families=2)
    chains = Posterior(theta, None, ("rate",), info)
    monkeypatch.setitem(runs.OURS, "importance", lambda *about: chains)
    found, _ = runs._found_by("importance", SMALL, 2000, rng)
    assert found.ess == chains.ess < 1000 < len(found) == 10_000


def test_simulations_are_counted_by_the_simulator():
    row = runs.one_run(SMALL, "importance", 2000, 1)
    assert row["simulations"] == 2000 and row["mean_off"] < 0.25


@pytest.mark.thorough
def test_a_run_answers_for_its_own_memory_and_not_for_who_started_it():
    ballast = np.ones(40_000_000)  # 305 MB here
    assert runs.memory() > 300 and ballast[-1] == 1
    said = "\n".join(["import resource", "from pathlib import Path", getsource(runs.memory)])
    command = [sys.executable, "-c", f"{said}\nprint(memory())"]
    found = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert 5 < found < 100


def test_rows_are_kept_failures_too_and_nothing_is_run_twice(tmp_path, monkeypatch):
    asked = []

    def process(run, folder, limit, python, measure):
        asked.append(run)
        return dict(zip(("task", "method", "budget", "seed"), run))

    monkeypatch.setattr(runs, "_in_process", process)
    file = tmp_path / "rows.jsonl"
    wanted = [("example_4", "importance", 1000, seed) for seed in (1, 2)]
    runs.study(file, FOLDER, wanted[:1])
    runs.study(file, FOLDER, wanted)
    assert asked == wanted
    assert [json.loads(line)["seed"] for line in file.read_text().splitlines()] == [1, 2]


@pytest.mark.parametrize("measure", ["run", "coverage", "score"])
def test_a_process_prints_the_row_of_the_measure_that_was_asked_for(measure, monkeypatch, capsys):
    for name in runs.MEASURES:
        monkeypatch.setitem(runs.MEASURES, name, lambda *about, name=name: dict(measured=name))
    monkeypatch.setattr(runs, "_warm_up", lambda task, method: None)
    runs._print_row([measure, str(FOLDER), "counts_30", "importance", "100", "1"])
    row = json.loads(capsys.readouterr().out.strip())
    assert (row["measured"], row["budget"], row["seed"]) == (measure, 100, 1)


def numbers(*of):
    return [dict(number=number) for number in of]


def of_number(number):
    if number < 0:
        raise KeyboardInterrupt
    return dict(square=number**2)


def test_a_killed_study_keeps_what_it_has_made(tmp_path):
    file = tmp_path / "new" / "rows.jsonl"
    with pytest.raises(KeyboardInterrupt):
        runs.kept_rows(file, numbers(1, 2, -1, 3), of_number)
    whole = file.read_text()
    file.write_text(whole + '{"number": 4, "sq')  # killed while it wrote
    assert runs.kept_rows(file, numbers(2, 1)).square.tolist() == [4, 1]
    table = runs.kept_rows(file, numbers(4, 3, 2), of_number)
    assert table.square.tolist() == [16, 9, 4] and file.read_text().startswith(whole)
    assert [json.loads(line)["number"] for line in file.read_text().splitlines()] == [1, 2, 4, 3]
    assert (table.seconds < 1).all() and table.date.notna().all() and table.commit.notna().all()


def test_a_row_is_made_once_and_the_first_of_its_key_counts(tmp_path):
    file, made = tmp_path / "rows.jsonl", []
    file.write_text('{"number": 1, "made": "long ago"}\n{"number": 1, "made": "today"}\n')
    table = runs.kept_rows(file, numbers(1, 2, 2, 1), lambda number: made.append(number) or {})
    assert made == [2] and table.number.tolist() == [1, 2, 2, 1]
    assert table.made[0] == table.made[3] == "long ago" and table.date.isna().tolist()[0]


def test_what_is_missing_is_named_and_a_broken_line_too(tmp_path):
    file = tmp_path / "rows.jsonl"
    with pytest.raises(ValueError, match="rows.jsonl lacks 2 of 2 rows.*'number': 1.*make bench"):
        runs.kept_rows(file, numbers(1, 2))
    assert not file.exists()
    file.write_text('number\n{"number": 1}\n')
    with pytest.raises(ValueError, match="line 1 of .*rows.jsonl is not JSON"):
        runs.kept_rows(file, numbers(1), of_number)


def test_a_row_counts_the_seconds_of_its_children(tmp_path):
    busy = [sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass"]
    made = runs.kept_rows(tmp_path / "a", numbers(1), lambda number: {"d": subprocess.call(busy)})
    own = runs.kept_rows(tmp_path / "b", numbers(1), lambda number: dict(seconds=7, number=8))
    assert made.seconds[0] > 0.25 and own.seconds[0] == 7 and own.number[0] == 1


def test_make_bench_names_every_page_with_such_rows():
    notebooks = [path for path in Path("nbs").rglob("*.ipynb") if "/_" not in str(path)]
    pages = {str(path.relative_to("nbs").with_suffix("")): path for path in notebooks}
    imported = re.compile("from dpsbi.bench.runs import .*kept_rows")
    with_rows = {page for page, path in pages.items() if imported.search(path.read_text("utf-8"))}
    lines = Path("Makefile").read_text("utf-8").split("STUDIES := ")[1]
    named = lines.split("\n\n")[0].replace("\\\n", " ").split()
    assert with_rows <= set(named) <= set(pages)


@pytest.mark.thorough
def test_a_run_that_fails_leaves_its_last_words(tmp_path):
    file = tmp_path / "rows.jsonl"
    runs.study(file, FOLDER, [("no such task", "importance", 1000, 1)], python=sys.executable)
    row = json.loads(file.read_text())
    assert "no such task" in row["failed"]


def test_a_run_that_takes_too_long_is_ended(tmp_path):
    file = tmp_path / "rows.jsonl"
    runs.study(file, FOLDER, [("example_4", "importance", 1000, 1)], limit=0.1)
    assert "0.1 s" in json.loads(file.read_text())["failed"]


@pytest.mark.thorough
@pytest.mark.parametrize("name", NETWORKS)
def test_each_network_is_trained_as_it_is_called(name):
    flows = runs.OURS[name](SMALL, 200, np.random.default_rng(1)).estimator.flows
    assert (len(flows), flows[0].shape.layers) == NETWORKS[name]


def test_only_a_model_with_steps_is_followed():
    with pytest.raises(ValueError, match="steps"):
        runs.one_run(SMALL, "steps", 20_000, 1)


def test_counts_as_real_coordinates_leave_the_posterior_as_it_is():
    line = peers.UnconstrainedTask(one_rate(1), np.random.default_rng(1))
    z, k = np.linspace(0.5, 3.5, 30), np.arange(120.0)
    density = peers.augmented(line)
    summed = [special.logsumexp(density(np.column_stack([0 * k + each, k + 0.7]))) for each in z]
    by_task = log_likelihood_of_rates(line.task.release, np.exp(z))[0] + line.log_prob(z[:, None])
    np.testing.assert_allclose(summed, by_task, atol=1e-9)
    assert density(np.array([[1.0, -0.5]]))[0] == -np.inf
    with pytest.raises(ValueError, match="Poisson"):
        peers.augmented(peers.UnconstrainedTask(tasks(FOLDER)["queue"](), np.random.default_rng(1)))


def test_means_of_counts_are_those_of_the_simulator():  # false alarm: 1e-6
    for name in ("example_4", "rates_20", "hierarchy", "day"):
        task, rng = tasks(FOLDER)[name](), np.random.default_rng(5)
        theta = task.model.prior.sample(1, rng)
        s = task.model.simulate(np.repeat(theta, 20_000, axis=0), rng)
        mean = task.rates(theta)[0]
        agrees(s.mean(axis=0), mean, np.sqrt(mean / len(s)), verbose=False)


def test_intervals_of_a_known_posterior_hold_what_they_say():
    rng = np.random.default_rng(3)
    truth = rng.normal(size=20_000)
    below = stats.norm.cdf(truth, (truth + rng.normal(size=truth.size)) / 2, np.sqrt(0.5))
    for level in (0.8, 0.95):  # five standard errors
        share = coverage.held(below, level).mean()
        assert abs(share - level) < 5 * np.sqrt(level * (1 - level) / len(below))


def test_the_share_below_is_weighted():
    x, log_w = np.array([[0.0], [1.0], [2.0]]), np.log([0.5, 0.3, 0.2])
    below, z = coverage.placed(Posterior(x, log_w), np.array([1.5]))
    assert below[0] == pytest.approx(0.8) and z[0] == pytest.approx((1.5 - 0.7) / np.sqrt(0.61))


@pytest.mark.thorough
def test_releases_do_not_depend_on_the_method():
    rows = [coverage.coverage(SMALL, way, 2000, 7, 3) for way in ("importance", "infer")]
    assert np.allclose(rows[0]["z"], rows[1]["z"], atol=0.5)
    assert rows[0]["z"] != rows[1]["z"] and np.shape(rows[0]["below"]) == (3, 1)
    again = coverage.coverage(SMALL, "importance", 2000, 7, 3)
    assert again["below"] == rows[0]["below"]
    with pytest.raises(ValueError, match="sbi NPE"):
        coverage.coverage(SMALL, "magic", 2000, 7, 3)


def test_the_exact_score_is_that_of_a_normalised_density():
    "On the line, where a rate is exp(z): over z it integrates to one."
    z = np.linspace(-4, 4.5, 41)[:, None]
    s_dp = np.repeat([[7.0, 12.0]], len(z), axis=0)
    for task, width in ((one_rate(2), 2), (many_rates(1), 1)):
        density = np.exp(every_release.exact_density(task)(z, s_dp[:, :width]))
        assert abs(density.sum() * (z[1, 0] - z[0, 0]) - 1) < 1e-3


@pytest.mark.parametrize("name", ["example_4", "hierarchy", "day", "sir"])
def test_no_exact_score_is_made_up_for_a_model_without_a_grid(name):
    with pytest.raises(ValueError, match="no grid"):
        every_release.score(tasks(FOLDER)[name](), "exact", 10, 1, count=5)


@pytest.mark.thorough
def test_a_score_pairs_each_release_with_its_own_parameters(monkeypatch):
    task = one_rate(3)
    known = every_release.exact_density(task)
    monkeypatch.setattr(every_release, "_density_of", lambda *_: known)
    found = every_release.score(task, "exact", 10, 1, count=15)["log_density"]
    z, s_dp = every_release.pairs_of(task, 15)
    by_one = [known(z[i : i + 1], s_dp[i : i + 1])[0] for i in range(15)]
    np.testing.assert_allclose(found, by_one, atol=6e-4)
    assert np.mean(found) > np.mean(known(z, np.roll(s_dp, 1, axis=0))) + 0.5


def test_the_density_of_a_peer_is_asked_for_each_release():
    class Network:
        def log_prob(self, z, condition):
            assert z.shape == (1, 5, 2) and condition.shape == (5, 3)
            return z.sum(-1) + condition.sum(-1)

    class Answer:
        posterior_estimator = Network()

    z, s_dp = np.arange(10.0).reshape(5, 2), np.arange(15.0).reshape(5, 3)
    found = peers.TrainedNPE(Answer()).log_prob(z, s_dp)
    np.testing.assert_allclose(found, z.sum(axis=1) + s_dp.sum(axis=1))


def test_a_fresh_release_has_no_answer_where_infer_does_not_call_it_exact(monkeypatch):
    found = SimpleNamespace(exact=False)
    monkeypatch.setattr(bench_tasks, "infer", lambda *about, **how: found)
    task = named(FOLDER, "queue 3")
    assert task.name == "queue 3" and not np.array_equal(
        task.release.s_dp, named(FOLDER, "queue").release.s_dp
    )
    with pytest.raises(ValueError, match="queue 3"):
        task.exact(np.random.default_rng(1))
