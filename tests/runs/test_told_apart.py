"What tells two models apart: each kind of edit, and what is no edit."

import collections
import datetime
import enum
import fractions
import functools
import itertools
import json
import pickle
import subprocess
import sys
import types
from pathlib import Path

import cloudpickle
import numba
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dpsbi import Model, Prior
from dpsbi.owner.abcdp import simulate_pool
from dpsbi.runs.fingerprint import fingerprint_of, model_fingerprint

PRIOR = Prior(a=stats.norm())


def helper(x, shift):
    return x + shift


def made(scale=2.0, table=(1.0, 2.0), known=frozenset("ab"), options=None, helped=helper):
    "A simulator that reads of each kind."
    weights, options = np.array(table), options or {"rounds": 3}

    def simulate(theta, rng, sharp=False):
        turn = weights.sum() + options["rounds"] + len(known)
        return helped(scale * theta, turn) if not sharp else theta

    return simulate


class Simulator:
    def __init__(self, scale, inner=None):
        self.scale, self.inner, self.calls = scale, inner, 0

    def __call__(self, theta, rng):
        self.calls += 1
        return self.scale * theta


class Steeper(Simulator):
    def __call__(self, theta, rng):
        return self.scale * theta**2


def recursive(n):
    return n if n < 1 else recursive(n - 1)


class Remembering:
    "Keeps what it has computed."

    def __init__(self, scale):
        self.scale, self.known = scale, {}

    def __call__(self, theta, rng):
        self.known[len(theta)] = theta
        return self.scale * theta


def reading(table):
    return lambda theta, rng: theta * table["a"].to_numpy()[0]


class Slotted:
    __slots__ = ("scale",)

    def __init__(self, scale):
        self.scale = scale


class Filling:
    "Fills an array of its own with what a list holds."

    def __init__(self, table):
        self.table = table

    def __call__(self, theta, rng):
        out = np.zeros(len(theta))
        out[:] = self.table[0]
        return out


class Told:
    "Is told its scale after it was made."

    def told(self, scale):
        self.scale = scale
        return self

    def __call__(self, theta, rng):
        return self.scale * theta


class Way(enum.Enum):
    UP, DOWN = 1, 2


def beside(value):
    "A simulator that fills arrays and lists of its own, and reads a value from around it."

    def simulate(theta, rng):
        out, rows = np.zeros(len(theta)), []
        for k, row in enumerate(theta):
            rows.append(row)
            out[k] = len(str(value))
        return out

    return simulate


def beside_a_log(table):
    "A simulator that keeps a log, and reads a list that it does not change."
    log = []

    def simulate(theta, rng):
        log.append(len(theta))
        return theta * table[0]

    return simulate


def project(**values):
    "A simulator that reads values of a module of one's own, which has a folder in it."
    module = types.ModuleType("epidemic")
    module.__file__ = str(Path(__file__).with_name("epidemic.py"))
    module.inner = types.ModuleType("epidemic.inner")
    module.inner.__file__ = module.__file__
    vars(module.inner).update(values)
    scope = {"epidemic": module}
    exec("def simulate(theta, rng):\n    return epidemic.inner.rate(theta)", scope)
    return scope["simulate"]


def constant(value):
    "An object of a class with a constant."
    return type("Own", (Simulator,), {"SCALE": value, "__module__": __name__})(1.0)


def static(function):
    return type("Own", (Simulator,), {"f": staticmethod(function), "__module__": __name__})(1.0)


PAIRS = {
    "a set": ({1, 2}, {1, 3}),
    "a frozen set": (frozenset([(1, 2)]), frozenset([(1, 3)])),
    "a range": (range(3), range(4)),
    "a date": (datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)),
    "a fraction": (fractions.Fraction(1, 2), fractions.Fraction(1, 3)),
    "a unit": ("km/h", "m/s"),
    "a relative path": (Path("a/b"), Path("a/c")),
    "a queue": (collections.deque([1]), collections.deque([2])),
    "a member": (Way.UP, Way.DOWN),
    "slots": (Slotted(1.0), Slotted(2.0)),
    "a list": ([1.0], [2.0]),
    "keys": ({Way.UP: 1}, {Way.DOWN: 1}),
    "a polynomial": (np.polynomial.Polynomial([1, 2]), np.polynomial.Polynomial([1, 3])),
}
compiled = [numba.njit(lambda x: x + 1), numba.njit(lambda x: x + 2)]
BOTH = (Simulator, Steeper)
EDITS = {
    "a number": (made(), made(scale=3.0)),
    "an array": (made(), made(table=(1.0, 3.0))),
    "a dictionary": (made(), made(options={"rounds": 4})),
    "a helper": (made(), made(helped=lambda x, shift: x - shift)),
    "an argument of a partial": (functools.partial(made(), 1), functools.partial(made(), 2)),
    "an attribute": (Simulator(1.0), Simulator(2.0)),
    "an attribute's attribute": (Simulator(1.0, Simulator(1.0)), Simulator(1.0, Simulator(2.0))),
    "an attribute beside a memory": (Remembering(1.0), Remembering(2.0)),
    "a table": tuple(reading(pd.DataFrame({"a": [value, 1.0]})) for value in (1.0, 2.0)),
    "a table of words": tuple(
        reading(pd.DataFrame({"a": [1.0, 1.0], "b": [word, "y"]})) for word in "xz"
    ),
    "a class": (made(helped=Simulator), made(helped=Steeper)),
    "a class of the same name": tuple(made(helped=type("Own", (kind,), {})) for kind in BOTH),
    "a method": (Simulator(1.0), Steeper(1.0)),
    "a bound method's object": (Simulator(1.0).__call__, Simulator(2.0).__call__),
    "compiled code": tuple(compiled),
    "a distribution's keyword": (stats.norm(loc=2), stats.norm(scale=2)),
    "a list beside an array that is filled": (Filling([1.0]), Filling([2.0])),
    "what a setter set": (Told().told(1.0), Told().told(2.0)),
    "a list beside a log": (beside_a_log([1.0]), beside_a_log([2.0])),
    "a constant of a class": (constant(1.0), constant(2.0)),
    "a static method": (static(lambda x: x), static(lambda x: x + 1)),
    "a module's function": (project(rate=lambda x: x), project(rate=lambda x: x + 1)),
    "a module's value": (project(rate=np.ones(2)), project(rate=np.zeros(2))),
}
EDITS |= {f"{what}, read": tuple(map(beside, pair)) for what, pair in PAIRS.items()}


@pytest.mark.parametrize("what", EDITS)
def test_an_edit_is_noticed(what):
    before, after = EDITS[what]
    assert fingerprint_of(before) != fingerprint_of(after)


@pytest.mark.parametrize("what", EDITS)
def test_what_was_not_edited_is_the_same(what):
    before, _ = EDITS[what]
    first = fingerprint_of(before)
    if isinstance(before, Simulator | Remembering) or what.startswith("a table"):
        before(np.zeros((2, 1)), None)  # counts its calls, remembers, fills a cache
    assert fingerprint_of(before) == first


def counting(scale):
    "By a number of the function around it."
    made = 0

    def simulate(theta, rng):
        nonlocal made
        made += len(theta)
        return scale * theta

    return simulate


def logging(scale):
    "In a list."
    seen = []
    return lambda theta, rng: seen.append(len(theta)) or scale * theta


def storing(scale):
    "In a dictionary, from a function within."
    known = {}

    def simulate(theta, rng):
        def store():
            known[len(theta)] = scale

        store()
        return scale * theta

    return simulate


def told(scale):
    "In a name of the module."

    def simulate(theta, rng):
        global LAST
        LAST = len(theta)
        return scale * theta + 0 * LAST

    return simulate


def aliased(scale):
    "In a dictionary, by another name."
    known = {}

    def simulate(theta, rng):
        cache = known
        cache[len(theta)] = scale
        return scale * theta

    return simulate


def scratch(scale):
    "In an array that each call fills."
    buffer = np.zeros(3)

    def simulate(theta, rng):
        buffer[:] = theta[:, 0] + 1
        return scale * theta

    return simulate


def recent(scale):
    "In a queue of a list of queues."
    queues = [collections.deque(maxlen=5)]

    def simulate(theta, rng):
        queues[0].appendleft(len(theta))
        return scale * theta

    return simulate


def numbered(scale):
    "By an iterator, and a generator of random numbers of its own."
    numbers, own = itertools.count(), np.random.default_rng(1)

    def simulate(theta, rng):
        return scale * theta + 0 * next(numbers) + 0 * own.random()

    return simulate


def in_a_set(scale):
    seen = set()
    return lambda theta, rng: seen.add(len(theta)) or scale * theta


KEEPING = [counting, logging, storing, told, aliased, scratch, recent, numbered, in_a_set]


@pytest.mark.parametrize("make", KEEPING)
def test_what_a_function_keeps_itself_does_not_count(make):
    simulate = make(2.0)
    first = fingerprint_of(simulate)
    simulate(np.zeros((3, 1)), None)
    assert fingerprint_of(simulate) == first != fingerprint_of(make(3.0))


def copies_told(path):
    "What each that was packed there is told by, once it is opened."
    packed = pickle.loads(Path(path).read_bytes())
    return {what: fingerprint_of(pickle.loads(each)) for what, each in packed.items()}


@pytest.mark.thorough
def test_another_process_tells_the_same(tmp_path):
    "Whose sets are in another order; of what it has made itself, and of what it was sent."
    alone = {what: fingerprint_of(before) for what, (before, _) in EDITS.items()}
    packed = {what: cloudpickle.dumps(before) for what, (before, _) in EDITS.items()}
    file = tmp_path / "packed"
    file.write_bytes(pickle.dumps(packed))
    asked = (
        "import json, sys; import test_told_apart as t; "
        "alone = {what: t.fingerprint_of(before) for what, (before, _) in t.EDITS.items()}; "
        "print(json.dumps([alone, t.copies_told(sys.argv[1])]))"
    )
    line, here = [sys.executable, "-c", asked, str(file)], str(Path(__file__).parent)
    run = subprocess.run(line, cwd=here, capture_output=True, text=True)
    assert json.loads(run.stdout) == [alone, copies_told(file)], run.stderr


within = 1.0


def holding(within, rng):
    "Has an argument that a function within it reads; its module has that name, too."

    def shifted():
        return within + 2

    return shifted()


def test_a_name_made_within_is_not_that_of_the_module(monkeypatch):
    first = fingerprint_of(holding)
    monkeypatch.setitem(globals(), "within", 2.0)
    assert fingerprint_of(holding) == first


def test_made_twice_it_is_the_same():
    assert fingerprint_of(made()) == fingerprint_of(made())
    assert fingerprint_of(recursive) == fingerprint_of(recursive)


@pytest.mark.parametrize(
    "other", [stats.norm(loc=1), stats.norm(scale=2), stats.t(3), stats.norm(0, 2)]
)
def test_priors_of_the_same_names_are_told_apart(other):
    simulate = made()
    one, two = Model(PRIOR, simulate), Model(Prior(a=other), simulate)
    assert model_fingerprint(one) == model_fingerprint(Model(Prior(a=stats.norm()), simulate))
    assert model_fingerprint(one)["prior"] != model_fingerprint(two)["prior"]


class Own:
    "A prior of one's own; its names tell nothing of its width."

    names, dim = ("a",), 1

    def __init__(self, width):
        self.width = width

    def sample(self, n, rng):
        return rng.normal(scale=self.width, size=(n, 1))

    def log_prob(self, theta):
        return stats.norm.logpdf(theta[:, 0], scale=self.width)


def test_priors_of_ones_own_are_told_apart():
    one, two = (model_fingerprint(Model(Own(width), made())) for width in (1.0, 2.0))
    assert one["prior"] != two["prior"]


def test_a_pool_of_the_owner_keeps_no_trace_of_records(tmp_path):
    "Two lots of records beside a simulator leave the same file."

    def file_beside(records, name):
        model = Model(PRIOR, lambda theta, rng: rng.normal(theta, 1, (len(theta), records.size)))
        rng, path = np.random.default_rng(1), tmp_path / name
        simulate_pool(model, 50, rng=rng, checkpoint=path, progress=False)
        return path.read_bytes()

    one = file_beside(np.array([1.0, 2.0]), "one.npz")
    assert one == file_beside(np.array([1.0, 3.0]), "other.npz")
