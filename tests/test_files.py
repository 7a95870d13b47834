"""Files that earlier versions wrote, in `files/`: each is read, and says what it said then.

`make_files.py` made them, says what each holds, and adds further ones with what they say to
`files/expected.json`. None is ever made again.
"""

import json
import math
import re
import shutil
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import dpsbi
from dpsbi import Codebook, Cost, Laplace, Ledger, Model, Plan, Posterior, Prior, Query, Release
from dpsbi.mechanisms import observed
from dpsbi.privacy import identity

FOLDER = Path(__file__).parent / "files"
EXPECTED = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
GAMMA = Prior(rate=stats.gamma(4, scale=2.5))
sys.path.append(str(FOLDER))
import mylab.noise  # noqa: E402, F401 (files name it: what is not imported is not read)
from mylab.simulators import Watched  # noqa: E402


def held() -> list[str]:
    "The files, by name."
    return sorted(p.name for p in FOLDER.iterdir() if p.is_file() and p.name != "expected.json")


# ---- what a file says, in plain values


def exact(numbers):
    "Numbers to the last digit, as text."
    return [repr(float(number)) for number in np.ravel(numbers)]


def near(numbers):
    "Numbers that are compared to six digits."
    return [float(number) for number in np.ravel(numbers)]


def kind_of(mechanism):
    "The class of a mechanism and of those in it: dpsbi's by the name alone."
    kind = type(mechanism)
    ours = kind.__module__.startswith("dpsbi.")
    inside = getattr(mechanism, "mechanisms", None) or [getattr(mechanism, "mechanism", None)]
    return [
        kind.__name__ if ours else f"{kind.__module__}.{kind.__name__}",
        *(kind_of(each) for each in inside if each is not None),
    ]


def of_query(query):
    names = "sensitivity norm neighbours unit step dim smoothness".split()
    parts = getattr(query.fn, "queries", ())
    return {name: getattr(query, name) for name in names} | dict(parts=[*map(of_query, parts)])


def of_mechanism(mechanism, query, s_dp):
    "Density, bound, quantiles and price."
    filled = np.where(np.isnan(s_dp), 3.0, s_dp)
    s = filled + np.array([[0.0], [1.0], [-1.0], [3.0]])
    if query.smoothness is not None:
        s = np.column_stack([s, [1.0, 1.5, 2.0, 1.0]])
    with np.errstate(divide="ignore"):
        found = dict(log_prob=near(mechanism.log_prob(s_dp, s)))
    if hasattr(mechanism, "log_prob_max"):
        found["log_prob_max"] = near(mechanism.log_prob_max(s_dp))
    try:
        u = np.linspace(0.1, 0.9, s_dp.size)
        found["transform"] = near(mechanism.transform(u, s[0]))
    except AttributeError:  # where it, or one inside, has none
        pass
    if hasattr(mechanism, "cost"):
        try:
            cost = mechanism.cost(query, 1e-6)
            found["cost"] = near([cost.epsilon, cost.delta])
        except AttributeError:
            pass
    return found


def of_release(path, release=None):
    release = release or Release.load(path)
    seen = observed(release)
    return dict(
        s_dp=exact(release.s_dp),
        query=of_query(release.query),
        mechanism=repr(release.mechanism),
        kind=kind_of(release.mechanism),
        seen=exact(seen.s_dp),
        **of_mechanism(seen.mechanism, seen.query, seen.s_dp),
    )


def of_posterior(path):
    found = Posterior.load(path)
    values = found.confidential if found.values is not None else None
    return dict(
        theta=exact(found.theta),
        weights=near(found.weights),
        names=list(found.names),
        info=found.info,
        mean=near(found.mean()),
        std=near(found.std()),
        interval=near(found.interval(0.9)),
        ess=near(found.ess),
        exact=found.exact,
        values=None if values is None else exact(values.theta),
        values_mean=None if values is None else near(values.mean()),
        values_of=[int(row) for row in getattr(found.values, "rows", ())],
    )


def of_plan(path):
    found = Plan.load(path)
    return dict(
        shown=repr(found),
        rows=[dict(row) for row in found.rows],
        info=found.info,
        columns=list(found.table.columns),
        least=near(found.epsilon_for(sd=3.2).epsilon),
        best=list(found.best(1.0).index),
    )


def of_cost(cost):
    return [repr(float(cost.epsilon)), repr(float(cost.delta)), repr(float(cost.rho))]


def of_ledger(path):
    state = json.loads(path.read_text())
    rho = state.get("rho")
    budget = dict(rho=rho) if rho else dict(epsilon=state["epsilon"], delta=state["delta"])
    found = Ledger(**budget, path=path)
    history = [
        dict(
            cost=of_cost(entry.cost),
            granted=of_cost(entry.granted),
            loss=repr(entry.cost.loss),
            told=[entry.label, entry.neighbours, entry.unit, entry.settled is not None],
        )
        for entry in found.history
    ]
    told = dict(
        budget=of_cost(found.budget),
        composition=found.composition,
        spent=of_cost(found.spent),
        remaining=of_cost(found.remaining),
        history=history,
    )
    protected = next((entry for entry in found.history if entry.neighbours), None)
    protects = (protected.neighbours, protected.unit) if protected else ()
    found.spend(Cost(0.001), "one more", *protects)  # continued, and read again
    assert Ledger(**budget, path=path).history[-1].label == "one more"
    return told


def of_codebook(path):
    found = Codebook.load(path)
    again = of_release(path)
    assert json.dumps(again) == json.dumps(of_release(path, found.release))  # NaN among them
    known = {word: [*getattr(found, word).items()] for word in ("totals", "at_most")}
    about = {word: list(getattr(found, word) or ()) for word in ("names", "tables")}
    return again | about | known | dict(source=found.source, notes=found.notes)


def of_flow(path):
    from dpsbi.analyst.neural.training import ConditionalFlow

    flow = ConditionalFlow.load(path)
    x, at = np.array([[-0.5], [0.0], [0.3], [1.2]]), np.linspace(8.0, 12.0, flow.scaling.width)
    sums = [np.abs(part).sum() for name, part in flow.weights.items() if "additive" in name]
    return dict(
        log_prob=near(flow.log_prob(x, at)),
        draws=near(flow.sample(4, at, np.random.default_rng(0))),
        additive=bool(np.sum(sums) > 0),
    )


def of_estimator(path):
    from dpsbi.analyst.neural.amortise import Estimator

    found = Estimator.load(path, GAMMA)
    width = found.flows[0].scaling.width if found.contexts is None else found.contexts.centre.size
    noise = Laplace(2.0)
    values = np.array([9.0, 12.0, 7.0])[:width]
    release = Release(values, Query(identity, 1.0, dim=width), noise)
    context = found.context(release)
    theta = np.array([[2.0], [7.0], [9.5], [20.0]])
    sums = [
        np.abs(v).sum() for flow in found.flows for k, v in flow.weights.items() if "addit" in k
    ]
    return dict(
        context=near(context),
        log_prob=near(found.log_prob(theta, context)),
        draws=near(found.posterior(release, draws=4, rng=np.random.default_rng(0)).theta),
        additive=bool(np.sum(sums) > 0),
        members=len(found.flows),
    )


# ---- checkpoints: resumed to the same result


def poisson(theta, rng):
    return rng.poisson(theta).astype(float)


COUNT = Release([11.0], Query(identity, 1.0, dim=1), Laplace(2.0))


def run_importance(path, simulate):
    how = dict(rounds=3, simulations=200, rng=np.random.default_rng(1))
    return dpsbi.importance(COUNT, Model(GAMMA, simulate), checkpoint=path, progress=False, **how)


def run_smc_abc(path, simulate):
    from dpsbi.analyst.smc.smc_abc import Populations

    how = dict(draws=50, populations=Populations(100), max_simulations=3000)
    how |= dict(rng=np.random.default_rng(1), checkpoint=path, progress=False)
    return dpsbi.smc_abc(COUNT, Model(GAMMA, simulate), **how)


def run_input_smc(path, simulate):
    how = dict(draws=50, max_simulations=6000, rng=np.random.default_rng(1))
    return dpsbi.input_smc(COUNT, Model(GAMMA, simulate), checkpoint=path, progress=False, **how)


def run_da_mcmc(path, latent):
    release = Release([0.3, 0.1, 0.4, 0.05, 0.1], Query(identity, 1), Laplace(0.05))
    how = dict(draws=128, chains=128, warmup=5, moves=2, rng=np.random.default_rng(1))
    return dpsbi.da_mcmc(release, latent, checkpoint=path, progress=False, **how)


def run_pool(path, simulate):
    how = dict(rng=np.random.default_rng(1), checkpoint=path, progress=False)
    theta, y = dpsbi.simulate_pool(Model(GAMMA, simulate), 200, **how)
    return Posterior(np.column_stack([theta, y]))


RUNS = {
    "importance": run_importance,
    "smc_abc": run_smc_abc,
    "input_smc": run_input_smc,
    "da_mcmc": run_da_mcmc,
    "simulate_pool": run_pool,
}


def simulator_of(name, last=None):
    "What a run simulates with; it ends at the call `last`."
    from dpsbi.simulators.linear_regression import RegressionRecords

    latent = name == "da_mcmc"
    return Watched(RegressionRecords(5, 1, clamp=4.0) if latent else poisson, name, last)


def method_of(path):
    "The method whose checkpoint a file is: checkpoint_METHOD.npz, or checkpoint_METHOD-2.npz."
    return path.stem.removeprefix("checkpoint_").partition("-")[0]


def of_run(name, path):
    "The result of a run, and how often it called the simulator."
    simulate = simulator_of(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = RUNS[name](path, simulate)
    told = dict(theta=near(found.theta[:: max(len(found.theta) // 8, 1)]), ess=near(found.ess))
    return told | dict(mean=near(found.mean()), std=near(found.std())), simulate.calls


def of_checkpoint(path):
    told, calls = of_run(method_of(path), path)
    return told | dict(calls=calls)


SAYS = {
    "release": of_release,
    "posterior": of_posterior,
    "plan": of_plan,
    "ledger": of_ledger,
    "codebook": of_codebook,
    "flow": of_flow,
    "estimator": of_estimator,
    "checkpoint": of_checkpoint,
}


def said_by(name, folder):
    "What a file says, read from a copy."
    path = Path(shutil.copy(FOLDER / name, folder))
    return json.loads(json.dumps(SAYS[name.partition("_")[0]](path)))


# ---- what they said then

# A file that is refused on purpose, a mechanism's that went, say, or a checkpoint whose run names a
# class that has moved, or whose method has changed: name -> what the refusal says.
ANOTHER = "belongs to another run|not a checkpoint that this version can read"
REFUSED = {
    "checkpoint_importance.npz": ANOTHER,
    "checkpoint_input_smc.npz": ANOTHER,
    "checkpoint_smc_abc.npz": ANOTHER,
    "release_2_continuous_staircase.json": "is ContinuousStaircase, and this version of dpsbi has "
    "none of that name: read it with the",
}
MADE_BY = (3, 11)  # the Python of the checkpoints: another's may draw, or describe, a little else


def differences(said, expected, at=""):
    "Where two sayings differ: numbers by more than a millionth, all else at all."
    if isinstance(expected, dict) and isinstance(said, dict):
        for key in sorted({*said, *expected}):
            yield from differences(
                said.get(key, "nothing"), expected.get(key, "nothing"), f"{at}.{key}"
            )
    elif isinstance(expected, list) and isinstance(said, list) and len(said) == len(expected):
        for k, pair in enumerate(zip(said, expected)):
            yield from differences(*pair, f"{at}[{k}]")
    elif isinstance(expected, float) and isinstance(said, float):
        alike = math.isclose(said, expected, rel_tol=1e-6, abs_tol=1e-9)
        if not alike and not (math.isnan(said) and math.isnan(expected)):
            yield f"{at}: {said!r}, it was {expected!r}"
    elif said != expected or type(said) is not type(expected):
        yield f"{at}: {said!r}, it was {expected!r}"


@pytest.mark.parametrize("name", [name for name in held() if name in EXPECTED])
def test_a_file_says_what_it_said_when_it_was_written(name, tmp_path):
    if name in REFUSED:
        with pytest.raises(ValueError, match=REFUSED[name]):
            said_by(name, tmp_path)
        return
    try:
        said = said_by(name, tmp_path)
    except ValueError as error:
        elsewhere = name.startswith("checkpoint") and sys.version_info[:2] != MADE_BY
        if not (elsewhere and re.search(ANOTHER, str(error))):
            raise
        return
    otherwise = list(differences(said, EXPECTED[name]["says"]))
    assert not otherwise, "\n".join(["", *otherwise])


def test_every_file_has_its_expectation_and_every_expectation_its_file():
    assert held() == sorted(EXPECTED), "run: python tests/make_files.py"
    assert set(REFUSED) <= set(EXPECTED)


def test_what_differs_is_seen():
    said = dict(a=[1.0, math.nan, "x"], b=dict(c=None), d=1)
    assert not list(differences(said, said | dict(a=[1.0 + 1e-9, math.nan, "x"])))
    wrong = [dict(a=[1.0 + 1e-5, math.nan, "x"]), dict(a=[1.0, math.nan]), dict(a=[1.0, 2.0, "x"])]
    wrong += [dict(b=dict(c=0)), dict(b={}), dict(d=True), dict(d=1.0), dict(e=None)]
    for change in wrong:
        assert len(list(differences(said | change, said))) == 1, change


def test_all_files_together_are_small():
    sizes = [(FOLDER / name).stat().st_size for name in held()]
    assert max(sizes) < 30_000 and sum(sizes) < 400_000


@pytest.mark.parametrize("name", RUNS)
def test_a_checkpoint_from_before_a_move_of_a_class_is_refused_with_the_reason(name, tmp_path):
    path = Path(shutil.copy(FOLDER / f"checkpoint_{name}.npz", tmp_path))
    before = path.read_bytes()

    class Moved(Watched):
        __module__, __qualname__ = "mylab.elsewhere", "Watched"

    simulate = simulator_of(name)
    simulate.__class__ = Moved
    if name == "simulate_pool":  # it knows the simulator by its code alone
        RUNS[name](path, simulate)
        return
    with pytest.raises(
        ValueError, match="belongs to another run.*or another version of dpsbi wrote"
    ):
        RUNS[name](path, simulate)
    assert path.read_bytes() == before and not simulate.calls


# ---- a mechanism's name, wherever its class stands

OURS = [name for name in held() if name.startswith("release_2") and "own" not in name]
OURS = [name for name in OURS if name not in REFUSED]


def with_modules(state, module):
    "A release's state with another module wherever it names one of dpsbi's."
    if isinstance(state, dict):
        state = {key: with_modules(value, module) for key, value in state.items()}
        ours = str(state.get("module", "")).startswith("dpsbi.")
        return state | dict(module=module) if ours else state
    return [with_modules(part, module) for part in state] if isinstance(state, list) else state


@pytest.mark.parametrize("name", OURS)
def test_a_release_is_read_wherever_the_class_stands_today(name, tmp_path):
    state = json.loads((FOLDER / name).read_text())
    moved, again = tmp_path / "moved.json", tmp_path / "again.json"
    moved.write_text(json.dumps(with_modules(state, "dpsbi.where.it.stood")))
    found = Release.load(moved)
    assert found.mechanism == Release.load(FOLDER / name).mechanism
    found.save(again)  # as version 3, which holds no path
    text = again.read_text()
    assert '"version": 3' in text and '"module"' not in text
    assert repr(Release.load(again)) == repr(found)


@pytest.mark.parametrize("module", ["dpsbix.noise", "dpsbi", "xdpsbi.mechanisms.continuous", ""])
def test_a_module_that_is_not_ours_is_never_taken_for_ours(module, tmp_path, monkeypatch):
    monkeypatch.delitem(vars(dpsbi), "Laplace", raising=False)  # the name that was asked for there
    path, state = tmp_path / "r.json", json.loads((FOLDER / "release_2_laplace.json").read_text())
    path.write_text(json.dumps(with_modules(state, module)))
    with pytest.raises(ValueError, match=f"Laplace of the module {module}: import the module"):
        Release.load(path)


@pytest.mark.parametrize("name", [name for name in held() if "_own" in name])
def test_one_of_ones_own_is_refused_where_its_module_is_not_imported(name, monkeypatch):
    monkeypatch.delitem(sys.modules, "mylab.noise")
    kind = "Laplace" if "laplace" in name else "Triangular"
    with pytest.raises(ValueError, match=f"is {kind} of the module mylab.noise: import the module"):
        Release.load(FOLDER / name)
    assert "mylab.noise" not in sys.modules  # nothing that a file names is imported


def test_one_of_ones_own_keeps_its_module_in_a_file(tmp_path):
    release = Release.load(FOLDER / "release_2_own_laplace.json")
    assert type(release.mechanism) is mylab.noise.Laplace is not Laplace
    release.save(tmp_path / "r.json")
    assert json.loads((tmp_path / "r.json").read_text())["mechanism"]["module"] == "mylab.noise"
    assert type(Release.load(tmp_path / "r.json").mechanism) is mylab.noise.Laplace


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_class_that_is_called_otherwise_today_keeps_its_former_name(
    version, tmp_path, monkeypatch
):
    path, state = tmp_path / "r.json", json.loads((FOLDER / "release_2_laplace.json").read_text())
    mechanism = dict(name="DoubleExponential", fields=dict(scale=2.0))
    mechanism |= dict(module="dpsbi.mechanisms.continuous") if version == 2 else {}
    mechanism = dict(name="DoubleExponential", scale=2.0) if version == 1 else mechanism
    path.write_text(json.dumps(state | dict(version=version, mechanism=mechanism)))
    with pytest.raises(ValueError, match="DoubleExponential.*none"):
        Release.load(path)
    monkeypatch.setitem(
        sys.modules["dpsbi.mechanisms.release"].RENAMED, "DoubleExponential", "Laplace"
    )
    assert Release.load(path).mechanism == Laplace(2.0)
