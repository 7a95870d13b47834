"""Two commits side by side: the benchmark's tasks and the ordinary problems, seed by seed.

    python rows.py OLD NEW --batch moves      makes the rows that are missing, in turns
    python rows.py OLD NEW --batch moves --compare

`moves` are infer, input_smc, importance and pseudo_marginal; `networks` are amortise, sppe and,
on six tasks, sple. The old commit runs seeds 1 to 12, two sets of six, whose difference is the null
scatter; the new one runs the first six. Rows are kept in ../references/rows.jsonl, one as soon as
it is made, and a run that was cut off goes on. Each commit has one process and a working tree of
its own; the tasks' reference draws are those beside this script.

A loss is what a paired test over all tasks finds at 1 % in the batch, or one task's median beyond
the null scatter of that task.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import warnings
from datetime import date
from pathlib import Path
from time import process_time

FOLDER = Path(__file__).resolve().parent.parent / "references"
ROWS = FOLDER / "rows.jsonl"
BENCHMARK = (
    "example_4 sir regression naive_bayes counts_30 counts_100 rates_20 rates_50 seir queue "
    "hierarchy day"
).split()
ORDINARY = ["thirty counts", "thirty declared"] + [f"regression {e}" for e in (3, 10, 100)]
SPLE_TASKS = "example_4 sir regression naive_bayes counts_30 queue".split()
OLD_SEEDS, NEW_SEEDS = range(1, 13), range(1, 7)
KEY = ("task", "method", "simulations", "seed")


def wanted(batch):
    "Task, method and budget of each row of a batch."
    if batch == "moves":
        for task in BENCHMARK:
            yield from ((task, "infer", n) for n in (1000, 10_000, 100_000))
            yield from ((task, "importance", 10_000), (task, "input_smc", 10_000))
        yield from ((task, "infer", 200_000) for task in ORDINARY)
        yield "seir", "pseudo_marginal", 100_000
    else:
        yield from ((task, "amortise", 10_000) for task in BENCHMARK)
        yield from ((task, "sppe", 3000) for task in BENCHMARK)
        yield from ((task, "sple", 3000) for task in SPLE_TASKS)


# ---- in a process of each commit


def ordinary(name):
    "A task of the page of ordinary problems."
    import numpy as np
    from scipy import stats

    from dpsbi import DiscreteLaplace, Laplace, Model, Prior, Query, Release
    from dpsbi.bench.tasks import Task, drawn_from_grid, kept_draws, log_likelihood_of_rates
    from dpsbi.simulators import linear_regression as lr

    if name.startswith("regression"):
        epsilon = int(name.split()[1])
        model, asked = lr.linear_regression(100, 2, records=False)
        release, file = lr.published(records=False), "regression"
        if epsilon != 10:
            file = f"regression_{epsilon}"
            noise = Laplace.calibrate(asked, epsilon)
            s = model.simulate(np.array([lr.TRUTH]), np.random.default_rng(6))[0]
            release = Release(noise.sample(s, np.random.default_rng(7)), asked, noise)
        return Task(name, release, model, kept_draws(FOLDER, file))
    prior, noise, rng = stats.gamma(4, scale=2.5), DiscreteLaplace(2.0), np.random.default_rng(5)
    query = Query(lambda x: x, sensitivity=1, step=1, dim=30, neighbours="add-remove")
    release = Release(noise.sample(rng.poisson(8.9, 30).astype(float), rng), query, noise)
    grid = np.linspace(0.01, 50, 5000)

    def exact(rng):
        log_p = log_likelihood_of_rates(release, grid).sum(axis=0) + prior.logpdf(grid)
        return drawn_from_grid(log_p, grid, 20_000, rng)[:, None]

    def simulate(theta, rng):
        return rng.poisson(theta, (len(theta), 30))

    declared = dict(independent=True) if name == "thirty declared" else {}
    return Task(name, release, Model(Prior(rate=prior), simulate, **declared), exact)


def found_by(task, method, simulations, rng):
    "The posterior of a method, and the simulations that it made."
    from dpsbi import amortise, importance, infer, input_smc, pseudo_marginal, sple, sppe

    asked, quiet = (task.release, task.model), dict(rng=rng, progress=False)
    if method == "infer":
        return infer(*asked, max_simulations=simulations, **quiet)
    if method == "input_smc":
        return input_smc(*asked, draws=2000, max_simulations=simulations, **quiet)
    if method == "pseudo_marginal":
        most = dict(draws=2000, max_simulations=simulations)
        return pseudo_marginal(task.release, task.space, **most, **quiet)
    if method == "amortise":
        query, noise = task.release.query, task.release.mechanism
        fit = amortise(query, noise, task.model, simulations=simulations, **quiet)
        return fit.posterior(task.release, draws=5000, rng=rng)
    rounds = dict(rounds=10, simulations=simulations // 10)
    return dict(importance=importance, sppe=sppe, sple=sple)[method](*asked, **rounds, **quiet)


def row(task, method, simulations, seed):
    "What is kept of one run."
    import numpy as np

    from dpsbi import Posterior
    from dpsbi.bench.runs import judged

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        began = process_time()
        found = found_by(task, method, simulations, np.random.default_rng(seed))
        about = dict(seconds=round(process_time() - began, 3), warned=bool(said))
    theta = task.exact(np.random.default_rng([seed, 1]))
    about |= dict(exact=found.exact, made=found.info.get("simulations", simulations))
    about |= dict(engine=found.info.get("engine", found.info.get("method", "")))
    if method in ("amortise", "sppe", "sple"):
        try:
            about["log_density"] = float(np.mean(found.log_prob(theta[:1000])))
        except (ValueError, AttributeError, TypeError):
            about["log_density"] = None
    chains = {k: v for k, v in found.info.items() if k in ("chains", "families")}
    on_line = Posterior(task.on_line(found.theta), found.log_weights, info=chains)
    return about | judged(task.on_line(theta), on_line)


def serve():
    "Rows for the keys that come in, a line each."
    from dpsbi.bench.tasks import tasks

    known, cache = tasks(FOLDER), {}
    out, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        key = json.loads(line)
        name = key["task"]
        if name not in cache:
            cache[name] = known[name]() if name in known else ordinary(name)
        try:
            made = row(cache[name], key["method"], key["simulations"], key["seed"])
        except Exception as error:  # a refusal is a row, too
            made = dict(error=f"{type(error).__name__}: {error}"[:300])
        print(json.dumps(key | made, default=lambda x: x.tolist()), file=out, flush=True)


# ---- beside them


def short(commit):
    root = Path(__file__).resolve().parents[2]
    asked = ["git", "-C", str(root), "rev-parse", "--short=8", commit]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()


def kept():
    text = ROWS.read_text() if ROWS.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def process(commit, folder):
    "A process with the working tree of a commit."
    root, tree = Path(__file__).resolve().parents[2], Path(folder, commit)
    add = ["git", "-C", str(root), "worktree", "add", "-q", "--detach", str(tree), commit]
    subprocess.run(add, check=True)
    env = os.environ | dict(PYTHONPATH=str(tree), OMP_NUM_THREADS="1", MPLBACKEND="agg")
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return subprocess.Popen([sys.executable, __file__, "--serve"], env=env, cwd=tree, **pipes)


def make(old, new, batch):
    "The rows that are missing, seed by seed and the two commits in turns."
    done = {(r["commit"], *(r[k] for k in KEY)) for r in kept()}
    todo = dict.fromkeys(
        (commit, *of, seed)
        for seed in OLD_SEEDS
        for of in wanted(batch)
        for commit, seeds in ((old, OLD_SEEDS), (new, NEW_SEEDS))
        if seed in seeds and (commit, *of, seed) not in done
    )
    root = Path(__file__).resolve().parents[2]
    with tempfile.TemporaryDirectory() as folder:
        running = {}
        try:
            for k, (commit, *key) in enumerate(todo):
                if commit not in running:
                    running[commit] = process(commit, folder)
                child = running[commit]
                print(json.dumps(dict(zip(KEY, key))), file=child.stdin, flush=True)
                found = json.loads(child.stdout.readline())
                with ROWS.open("a") as file:
                    row = dict(commit=commit, date=str(date.today())) | found
                    file.write(json.dumps(row) + "\n")
                print(f"{k + 1} of {len(todo)}: {commit} {key}", flush=True)
        finally:
            for commit, child in running.items():
                child.kill()
                tree = ["worktree", "remove", "--force", str(Path(folder, commit))]
                subprocess.run(["git", "-C", str(root), *tree], check=False)


def compare(old, new, batch):
    "By task and method: medians of the old code's two sets and of the new; and the paired tests."
    import pandas as pd
    from scipy import stats

    rows = pd.DataFrame(kept())
    rows = rows[
        rows["commit"].isin([old, new]) & rows["method"].isin({m for _, m, _ in wanted(batch)})
    ]
    rows["per draw"] = rows["made"] / rows["ess"]
    shown = []
    for of, run in rows.groupby(["task", "method", "simulations"], sort=False):
        of = dict(zip(KEY, of))
        first = run[(run["commit"] == old) & run["seed"].isin(NEW_SEEDS)].set_index("seed")
        second = run[(run["commit"] == old) & ~run["seed"].isin(NEW_SEEDS)].set_index("seed")
        now = run[run["commit"] == new].set_index("seed")
        for what, sign in (("c2st", 1), ("log_density", -1), ("per draw", 1), ("seconds", 1)):
            if what not in run or run[what].isna().all():
                continue
            loss = (now[what] - first[what]).dropna() * sign
            null = abs(first[what].median() - second[what].median())
            off = sign * (now[what].median() - first[what].median())
            shown.append(
                of
                | dict(
                    what=what,
                    first=first[what].median(),
                    second=second[what].median(),
                    new=now[what].median(),
                    beyond=bool(off > null),
                    up=int((loss > 0).sum()),
                    down=int((loss < 0).sum()),
                    loss=loss.mean(),
                )
            )
    table = pd.DataFrame(shown)
    with pd.option_context("display.width", 200, "display.max_rows", None):
        print(table.round(3).to_string(index=False))
    for what, part in table.groupby("what"):
        loss, p = part["loss"].dropna(), 1.0
        if loss.abs().sum():
            p = stats.wilcoxon(loss, alternative="greater").pvalue
        beyond = int(part["beyond"].sum())
        print(f"{what}: {len(part)} problems, p = {p:.3f} of a loss; beyond null scatter: {beyond}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("commits", nargs="*")
    parser.add_argument("--batch", choices=("moves", "networks"), default="moves")
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        return serve()
    old, new = map(short, asked.commits)
    (compare if asked.compare else make)(old, new, asked.batch)


if __name__ == "__main__":
    main()
