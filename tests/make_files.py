"""Makes the files of `files/`: what is there stays, what is lacking is made by the code as it is.

    python tests/make_files.py          add what is lacking, and what it says to expected.json
    python tests/make_files.py --list   what each holds

A file of a former version cannot be made again, and is not: what is added has a name of its own in
`FILES`.
"""

import io
import json
import os
import sys
import tempfile
import warnings
from dataclasses import asdict
from pathlib import Path

import numpy as np
from test_files import EXPECTED, FOLDER, GAMMA, RUNS, method_of, of_run, said_by, simulator_of

import dpsbi
from dpsbi import (
    BinomialResponse,
    Codebook,
    Cost,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Independent,
    Laplace,
    Ledger,
    Model,
    Published,
    Query,
    RandomisedResponse,
    Release,
    SmoothGaussian,
    SmoothLaplace,
    Staircase,
    TruncatedGeometric,
    join,
)
from dpsbi.posterior.weights import Thinned
from dpsbi.privacy import identity

PLAIN = Query(identity, 2.0, dim=3)
NORMAL = Query(identity, 1.5, norm="l2", unit="person", dim=3)
GRID = Query(identity, 2.0, neighbours="add-remove", unit="person", step=1.0, dim=3)
HALVES = Query(identity, 1.0, step=0.5, dim=2)
ANSWERS = Query(identity, 2.0, norm="l0", step=1.0, dim=3)
SMOOTH = Query(identity, 1.0, dim=4, smoothness=0.01)  # the sensitivity is a value too
COUNTS = [4.0, 7.0, 2.0]


def releases() -> dict[str, Release]:
    "Releases by the name of their file."
    from mylab import noise

    clamped = Published(Laplace(2.0), clamp=(0.0, None), round_to=1.0)
    hidden = Published(DiscreteLaplace(3.0), round_to=5.0, suppress_below=10.0)
    ordered = Published(
        Laplace(2.0), (None, 50.0), 0.5, 4.0, ("suppress_below", "clamp", "round_to")
    )
    parts = (
        Release([1.5, -2.0], Query(identity, 1.0, dim=2), Laplace(2.5)),
        Release([3.0], Query(identity, 1.0, norm="l2", step=1.0, dim=1), DiscreteGaussian(2.0)),
        Release([np.nan, 15.0], Query(identity, 1.0, step=1.0, dim=2), hidden),
    )
    own = Release([0.5, 2.0], Query(identity, 1.0, dim=2), noise.Triangular(6.0))
    within = noise.Triangular(8.0, places=(Laplace(1.0), (2, Gaussian(0.5))), beside=Laplace(2.0))
    values = [0.1, -1.75, 3.0]
    return {
        "laplace": Release([0.1, -1.5, 1e17], PLAIN, Laplace(2.0)),
        "gaussian": Release(values, NORMAL, Gaussian(0.3)),
        "discrete_laplace": Release([0.5, 3.0], HALVES, DiscreteLaplace(0.7, step=0.5)),
        "discrete_gaussian": Release(COUNTS, NORMAL, DiscreteGaussian(3.0)),
        "staircase": Release(COUNTS, GRID, Staircase(0.6, 3, 2)),
        "truncated_geometric": Release(COUNTS, GRID, TruncatedGeometric(3.0, 0, 20)),
        "binomial_response": Release(COUNTS, GRID, BinomialResponse(20, 5.0, 30)),
        "randomised_response": Release([1.0, 3.0, 0.0], ANSWERS, RandomisedResponse(0.6, 4)),
        "smooth_laplace": Release(values, SMOOTH, SmoothLaplace(2.0, floor=0.5)),
        "smooth_gaussian": Release(values, SMOOTH, SmoothGaussian(3.0, floor=0.5)),
        "independent": Release(COUNTS, GRID, Independent((Laplace(1.0), Laplace(2.0)), (2, 1))),
        "joined": join(*parts),
        "joined_twice": join(join(*parts), Release([9.0], Query(identity, 1.0, dim=1), Laplace(1))),
        "clamped": Release([0.0, 7.0, 12.0], PLAIN, clamped),
        "suppressed": Release([np.nan, 10.0, 25.0], GRID, hidden),
        "ordered": Release([np.nan, 4.5, 50.0], PLAIN, ordered),
        "missing": Release([1.0, np.nan, 3.0], PLAIN, Laplace(2.0)),
        "own": own,
        "own_fields": Release(values, PLAIN, within),
        "own_laplace": Release(values, PLAIN, noise.Laplace(2.0)),
        "own_joined": join(own, Release([1.0], Query(identity, 1.0, dim=1), Laplace(2.0))),
        "own_published": Release(
            [0.0, 2.5, 6.0], PLAIN, Published(noise.Triangular(6.0), (0.0, 6.0))
        ),
    }


def release(name: str, version: int):
    "A maker of a release's file; TypeError where this code writes another version."

    def make(path):
        releases()[name].save(path)
        found = json.loads(path.read_text())["version"]
        if found != version:
            raise TypeError(f"this code writes releases of version {found}, not {version}")

    return make


def first_version(mechanism, query, s_dp):
    "A release as the first version wrote it: the mechanism by its name alone."

    def make(path):
        about = {name: value for name, value in asdict(query).items() if name != "fn"}
        state = dict(format="dpsbi.Release", version=1, s_dp=list(s_dp), query=about)
        state["mechanism"] = dict(name=type(mechanism).__name__, **asdict(mechanism))
        path.write_text(json.dumps(state, indent=1))

    return make


# ---- posteriors, plans, codebooks, networks

INFO = dict(
    method="exact ABC",
    simulations=1200,
    acceptance=np.float64(0.25),
    exact=True,
    log_evidence=-3.25,
    rounds=[dict(simulations=np.int64(600), ess=41.5), dict(simulations=600, ess=None)],
    pair=(1, 2.5),
    grid=np.array([[1.0, 2.0], [3.0, np.inf]]),
    text="ε = 1, °C",
    nothing=None,
)


def weighted(path):
    theta, weights = np.arange(12.0).reshape(6, 2) / 7, np.log([1, 2, 3, 4, 5, 6]) - 400
    dpsbi.Posterior(theta, weights, ("rate", "R0"), INFO).save(path)


def chains(path):
    theta = np.random.default_rng(0).normal(size=(40, 1))
    info = dict(method="data augmentation", chains=4, rhat=[1.002], exact=False, reason="few draws")
    dpsbi.Posterior(theta, names=("mean",), info=info).save(path)


def with_values(path):
    theta, values = np.random.default_rng(1).normal(size=(2, 8, 2))
    info = dict(method="importance", values=["men", "women"])
    dpsbi.Posterior(theta, np.linspace(-2, 0, 8), ("a", "b"), info, values=values).save(path)


def with_some_values(path):
    theta, values = np.random.default_rng(2).normal(size=(2, 8, 2))
    some = Thinned(values[:3], np.array([0, 4, 5]), np.log([0.5, 1.0, 0.25]))
    dpsbi.Posterior(theta, None, ("a", "b"), dict(method="importance"), values=some).save(path)


def derived(path):
    theta = np.random.default_rng(3).gamma(2.0, size=(8, 2))
    found = dpsbi.Posterior(theta, np.linspace(-1, 0, 8), ("a", "b"), dict(method="importance"))
    found.derive(ratio=lambda theta: theta[:, 0] / theta[:, 1]).save(path)


def planned(path):
    how = dict(epsilons=(0.5, 1.0, 4.0), rng=np.random.default_rng(5), delta=1e-6, progress=False)
    effort = dpsbi.Effort(1000, releases=20, nearby=0)
    designs = {"counts": (Query(identity, 1.0, dim=1), Laplace)}
    designs["normal"] = Query(identity, 1.0, norm="l2", dim=1), Gaussian
    questions = dpsbi.Questions(excludes={"rate": 5.0})
    model = Model(GAMMA, lambda theta, rng: rng.poisson(theta).astype(float))
    dpsbi.plan(model, designs, questions=questions, effort=effort, **how).save(path)


def book() -> Codebook:
    query = Query(identity, 1.0, neighbours="add-remove", unit="patient", step=1.0, dim=3)
    noise = Published(DiscreteLaplace(2.0), round_to=5.0, suppress_below=10.0)
    names = "North", "East", "South"
    known = dict(totals={("North", "South"): 45}, at_most={("East",): 9}, notes="of a table")
    return Codebook(Release([35.0, np.nan, 10.0], query, noise), "an office", names, **known)


def tables(path):
    query = Query(identity, 1.0, neighbours="add-remove", unit="patient", norm="l2", dim=2)
    other = Codebook(Release([1.5, 2.5], query, Gaussian(1.0)), "an office")
    Codebook.of_tables({"counts": book(), "means": other}, "an office", notes="both").save(path)


def network(query=None, mechanism=None, seed=0, **more):
    from dpsbi.analyst.neural.flow import Shape
    from dpsbi.analyst.neural.training import Training

    training = Training(final_steps=20, members=1, flow=Shape(layers=1, hidden=4), **more)
    how = dict(simulations=300, training=training, progress=False, rng=np.random.default_rng(seed))
    model = Model(GAMMA, lambda theta, rng: rng.poisson(np.repeat(theta, 2, 1)).astype(float))
    return dpsbi.amortise(
        query or Query(identity, 1.0, dim=2), mechanism or Laplace(2.0), model, **how
    )


def ranged(path):
    network(mechanism=dpsbi.Budgets(Laplace, 0.1, 10.0, missing=0.3)).save(path)


def with_sums(path):
    raise NotImplementedError("networks have no sums any more: these files were made before")


def older(version, path, save):
    "The file that version 3 or 2 of flows wrote: before with one view."
    save(path)
    with np.load(path) as file:
        arrays = dict(file)
    for name, part in arrays.items():
        if name.endswith("about"):
            told = json.loads(str(part)) | dict(version=version)
            arrays[name] = np.array(json.dumps(told))
    arrays = {k: v for k, v in arrays.items() if version > 2 or not k.endswith("scaling.source")}
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    path.write_bytes(buffer.getvalue())


# ---- ledgers

LINE = dict(epsilon=0.25, delta=0.0, label="count", neighbours="replace", unit="person")


def ledger_1(path):
    state = dict(format="dpsbi.Ledger", version=1, epsilon=1.0, delta=1e-6, history=[LINE, LINE])
    path.write_text(json.dumps(state, indent=1))


def ledger(*spent, settle=False, **budget):
    "A maker of a ledger's file, from a budget and (mechanism or cost, query) that are paid."

    def make(path):
        found = Ledger(**budget, path=path)
        for each, query in spent:
            cost = each if isinstance(each, Cost) else each.cost(query, 1e-7)
            found.spend(cost, f"{query.dim} values", query.neighbours, query.unit)
        if settle:
            distance = dpsbi.summary_distance(Query(identity, 1.0))
            from dpsbi.owner.abcdp import Trials
            from dpsbi.owner.svt import Seeded

            trials = Trials(simulations=160, source=Seeded(np.random.default_rng(0)))
            how = dict(threshold=5.0, count=5, epsilon=1.0, trials=trials, ledger=found)
            how |= dict(rng=np.random.default_rng(0), progress=False)
            model = Model(GAMMA, lambda theta, rng: rng.poisson(theta).astype(float))
            dpsbi.abcdp(np.array([11.0]), model, distance, **how)
        Path(f"{path}.lock").unlink()

    return make


# ---- checkpoints


def calls_of(name: str) -> int:
    "How often a run calls its simulator that has no checkpoint."
    return of_run(name, None)[1]


def checkpoint(path):
    "Of a run that was ended after 7 of 10 calls of its simulator; that of the pool is whole."
    from mylab.simulators import Ended

    import dpsbi.runs.checkpoint
    from dpsbi.analyst.smc import tempering as clouds

    name = method_of(path)
    dpsbi.runs.checkpoint.SECONDS_BETWEEN_SAVES = 0.0
    clouds.PeriodicJournal.__init__.__defaults__ = (0.0,)
    try:
        last = None if name == "simulate_pool" else int(0.7 * calls_of(name))
        RUNS[name](path, simulator_of(name, last))
    except Ended:
        pass


FILES = {
    "release_1_laplace.json": (
        "a release of version 1: Laplace noise",
        first_version(Laplace(2.0), PLAIN, [0.1, -1.5, 1e17]),
    ),
    "release_1_gaussian.json": (
        "a release of version 1: normal noise",
        first_version(Gaussian(0.3), NORMAL, [0.1, -1.75, 3.0]),
    ),
    "release_1_discrete_laplace.json": (
        "a release of version 1: noise on a grid",
        first_version(DiscreteLaplace(0.7, step=0.5), HALVES, [0.5, 3.0]),
    ),
    "release_1_binomial_response.json": (
        "a release of version 1: infected among a sample",
        first_version(BinomialResponse(20, 5.0, 30), GRID, COUNTS),
    ),
    "release_1_smooth_laplace.json": (
        "a release of version 1: smooth sensitivity",
        first_version(SmoothLaplace(2.0, 0.5), SMOOTH, [0.1, -1.75, 3.0]),
    ),
}
TOLD = dict(
    laplace="Laplace noise, one value of seventeen digits",
    gaussian="normal noise",
    discrete_laplace="noise on a grid of halves",
    discrete_gaussian="normal noise on a grid",
    staircase="staircase noise",
    truncated_geometric="truncated geometric noise",
    binomial_response="infected among a sample",
    randomised_response="randomised answers",
    smooth_laplace="Laplace noise by smooth sensitivity",
    smooth_gaussian="normal noise by smooth sensitivity",
    independent="a mechanism for each block",
    joined="three releases joined, one published with suppression",
    joined_twice="a joined release, joined with another",
    clamped="clamped at one end and rounded",
    suppressed="rounded and suppressed",
    ordered="suppressed, clamped and rounded, in this order",
    missing="a value that was not published",
    own="a mechanism of one's own",
    own_fields="one of one's own, with fields of every kind, mechanisms among them",
    own_laplace="one of one's own that is called Laplace",
    own_joined="one of one's own, joined",
    own_published="one of one's own, clamped",
)
FILES |= {
    f"release_{version}_{name}.json": (
        f"a release of version {version}: {told}",
        release(name, version),
    )
    for version in (2, 3)
    for name, told in TOLD.items()
}
FILES |= {
    "posterior_weighted.npz": ("weighted draws, with info of every kind", weighted),
    "posterior_chains.npz": ("draws of four chains, not exact", chains),
    "posterior_values.npz": ("weighted draws with confidential values", with_values),
    "posterior_some_values.npz": ("draws, some with confidential values", with_some_values),
    "posterior_derived.npz": ("functions of parameters", derived),
    "plan_two_designs.json": ("a plan of two designs at three ε", planned),
    "codebook_one.json": ("a codebook with a total, a bound and a gap", lambda p: book().save(p)),
    "codebook_tables.json": ("a codebook of two tables", tables),
    "flow_4.npz": ("a conditional flow with sums", with_sums),
    "flow_5.npz": ("a conditional flow", lambda path: network().flows[0].save(path)),
    "flow_2.npz": (
        "a conditional flow of version 2, without sums and views",
        lambda path: older(2, path, network(seed=1).flows[0].save),
    ),
    "estimator_sums.npz": ("an estimator with trained sums", with_sums),
    "estimator_plain.npz": (
        "an estimator whose flow is of version 3, without sums",
        lambda path: older(3, path, network(seed=1).save),
    ),
    "estimator_budgets.npz": ("an estimator for a range of ε, and for missing values", ranged),
    "ledger_1.json": ("a ledger of version 1", ledger_1),
    "ledger_2_sum.json": (
        "pure costs, added up",
        ledger((Laplace(20.0), PLAIN), (Cost(0.25), PLAIN), epsilon=1.0),
    ),
    "ledger_2_gaussian.json": (
        "normal noise, composed",
        ledger((Gaussian(20.0), NORMAL), (Gaussian(30.0), NORMAL), epsilon=2.0, delta=1e-6),
    ),
    "ledger_2_renyi.json": (
        "pure losses, composed as Rényi",
        ledger((Laplace(40.0), PLAIN), (Laplace(30.0), PLAIN), epsilon=2.0, delta=1e-6),
    ),
    "ledger_2_planned.json": (
        "planned costs, composed",
        ledger(
            (Gaussian(20.0), PLAIN),
            (Laplace(40.0), PLAIN),
            epsilon=2.0,
            delta=1e-6,
            composition="planned",
        ),
    ),
    "ledger_2_rho.json": (
        "a budget of ρ",
        ledger((Gaussian(20.0), NORMAL), (DiscreteGaussian(20.0), NORMAL), rho=0.5),
    ),
    "ledger_2_settled.json": (
        "a run that has settled",
        ledger(settle=True, epsilon=2.0, delta=1e-5),
    ),
    "ledger_2_empty.json": ("nothing spent, nothing decided", ledger(epsilon=2.0, delta=1e-6)),
}
FILES |= {
    f"checkpoint_{name}.npz": (f"a run of {name}, ended on its way", checkpoint) for name in RUNS
}


def add(name: str, folder: Path) -> None:
    "Make a file, and keep what it says."
    path = FOLDER / name
    if not path.exists():
        made = folder / name
        FILES[name][1](made)
        os.replace(made, path)
    said = said_by(name, folder)
    if name.startswith("checkpoint"):
        whole = calls_of(method_of(path))
        print(f"{name}: {said['calls']} of {whole} calls are left")
        assert said["calls"] < whole, name
    EXPECTED[name] = dict(what=FILES[name][0], says=said)
    text = json.dumps(dict(sorted(EXPECTED.items())), indent=1, ensure_ascii=False)
    (FOLDER / "expected.json").write_text(text + "\n", encoding="utf-8")


def main() -> None:
    if "--list" in sys.argv:
        return print(*(f"{name}: {told}" for name, (told, _) in FILES.items()), sep="\n")
    warnings.simplefilter("ignore")
    lacking = [name for name in FILES if name not in EXPECTED]
    with tempfile.TemporaryDirectory(dir=FOLDER.parent) as folder:
        for name in lacking:
            add(name, Path(folder))
    print(f"{len(lacking)} files were added; {len(FILES)} are held")


if __name__ == "__main__":
    main()
