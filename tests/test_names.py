"""Public names, with their signatures and members, against those in names.json: what a program may
use stays as it is, and more may come.

    python tests/test_names.py --write      renew the list, after a change that is meant
"""

import inspect
import json
import re
import sys
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path

import pytest

import dpsbi
from dpsbi.runs.running import keywords

LIST = Path(__file__).parent / "names.json"
SIMULATORS = "counts sir seir birth_death cubic_curve uniform_mixture linear_regression naive_bayes"
SIMULATORS += " tuberculosis regression_population"
# what stands elsewhere, and is promised there
BESIDE = {
    "dpsbi.simulators.counts": "Poisson Likelihood GammaPoissonLaplace exact_posterior",
    "dpsbi.simulators.sir": "Epidemic",
    "dpsbi.simulators.linear_regression": "linear_regression l1_sensitivity summary_names "
    "RegressionRecords RegressionMoments",
    "dpsbi.simulators.naive_bayes": "NaiveBayesRecords NaiveBayesMoments",
}
PLACES = ["dpsbi", "dpsbi.mechanisms", "dpsbi.distances", "dpsbi.mmd", "dpsbi.checks.testing"]
PLACES += [f"dpsbi.simulators.{name}" for name in SIMULATORS.split()]
KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: "/, ",
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "",
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.KEYWORD_ONLY: "*, ",
    inspect.Parameter.VAR_KEYWORD: "**",
}


# ---- what there is, in plain words


def parameter(p):
    "A parameter as text: `x`, `x=1`, `*, x=1` by keyword alone, `**more`."
    default = "" if p.default is p.empty else "=" + re.sub(" at 0x[0-9a-f]+", "", repr(p.default))
    return f"{KINDS[p.kind]}{p.name}{default}"


def parameters(call):
    "All of them, those of a run by name."
    try:
        found = [parameter(p) for p in inspect.signature(call).parameters.values()]
    except ValueError:  # an exception's, of the language itself
        return ["*args"]
    if "**running" in found:
        found.remove("**running")
        found += [f"*, {name}=…" for name in keywords(call)]
    return found


def member(kind, name):
    "What stands in a class under a name: parameters, or a word."
    found = inspect.getattr_static(kind, name)
    called = getattr(found, "__func__", found)
    if not inspect.isfunction(called):
        return "value"  # a property, or an attribute: read without brackets
    return parameters(inspect.unwrap(getattr(kind, name)))


def members(kind):
    "Public members of a class and of its bases in the package, and the fields of a dataclass."
    ours = [base for base in kind.__mro__ if base.__module__.partition(".")[0] == "dpsbi"]
    names = {name for base in ours for name in vars(base) if name[0] != "_"}
    found = {name: member(kind, name) for name in sorted(names)}
    held = [field.name for field in fields(kind)] if is_dataclass(kind) else []
    return found | {name: "value" for name in held if name[0] != "_"}


def about(value):
    "A public thing: a function's parameters; of a class, its members too; of the rest, the type."
    if inspect.isclass(value):
        return dict(call=parameters(value), members=members(value))
    return dict(call=parameters(value)) if callable(value) else type(value).__name__


def names_of(place):
    "What a module offers: its list, or all that it has imported; and of `dpsbi` every mechanism."
    module = import_module(place)
    found = {*(module.__all__ or [name for name in vars(module) if name[0] != "_"])}
    found |= {*dpsbi.mechanisms.kinds()} if place == "dpsbi" else set()
    return sorted(found | {*BESIDE.get(place, "").split()})


def told():
    "All places with their names; what another place has told of is named by that."
    first, found = {}, {}
    for place in PLACES:
        found[place] = {}
        for name in names_of(place):
            value = getattr(import_module(place), name)
            where = first.setdefault(id(value), f"{place}.{name}") if callable(value) else None
            known = where not in (None, f"{place}.{name}")
            found[place][name] = where if known else about(value)
    return found


# ---- what is no longer as it was


def split(told):
    "Of parameters as text: how each is given, and its default (None: it has none), by name."
    found = {}
    for text in told:
        how, name, equals, default = re.fullmatch(
            r"(/, |\*, |\*\*|\*)?(\w+)(=?)(.*)", text, re.S
        ).groups()
        found[name] = how or "", default if equals else None
    return found


def lost_in_call(before, now):
    "What a call that was right could trip over."
    old, new = split(before), split(now)
    placed = lambda found: [name for name, (how, _) in found.items() if how in ("", "/, ")]
    if placed(new)[: len(placed(old))] != placed(old):
        yield f"positions were ({', '.join(placed(old))}) and are ({', '.join(placed(new))})"
    for name, (how, default) in old.items():
        how_now, now_default = new.get(name, (None, None))
        if how_now is None or (how in ("*", "**") and how_now != how):
            if name not in placed(old):
                yield f"{how}{name} is gone"
        elif default is not None and now_default != default:
            yield f"{name} was {default} and is {now_default or 'without default'}"
    for name, (how, default) in new.items():
        if name not in old and how not in ("*", "**") and default is None:
            yield f"{name} is new and has no default"


def lost(before, now, at):
    "What of a name, or of all names of a place, is gone or otherwise."
    if before == now:
        return
    if isinstance(before, list) and isinstance(now, list):
        yield from (f"{at}: {what}" for what in lost_in_call(before, now))
    elif isinstance(before, dict) and isinstance(now, dict):
        for name, what in before.items():
            if name not in now:
                yield f"{at}.{name} is gone"
            else:
                yield from lost(
                    what, now[name], at if name in ("call", "members") else f"{at}.{name}"
                )
    else:
        kinds = [x if isinstance(x, str) else "a function or class" for x in (before, now)]
        yield f"{at} was {kinds[0]} and is {kinds[1]}"


def test_every_public_name_is_there_and_may_be_called_as_before():
    before = json.loads(LIST.read_text(encoding="utf-8"))
    gone = [what for place in before for what in lost(before[place], told()[place], place)]
    assert not gone, "\n".join(["", *gone, "meant? python tests/test_names.py --write"])


def test_what_is_new_is_on_the_list():
    before, now = json.loads(LIST.read_text(encoding="utf-8")), told()
    places = [place for place in now if not place.startswith("dpsbi.simulators.")]  # helpers too
    new = [
        f"{place}.{name}" for place in places for name in now[place] if name not in before[place]
    ]
    assert not new, f"{', '.join(new)}: promised? python tests/test_names.py --write"


class Before:
    def read(self, path, fn=None, *, strict=True):
        "Reads."

    @property
    def size(self):
        "How many."


def changed(read, **more):
    return type("Now", (Before,), dict(read=read, __module__="dpsbi.somewhere") | more)


FINE = {
    "a keyword with a default": lambda self, path, fn=None, *, strict=True, more=1: None,
    "a last position with a default": lambda self, path, fn=None, more=1, *, strict=True: None,
    "a default where there was none": lambda self, path="", fn=None, *, strict=True: None,
    "a keyword that may be placed": lambda self, path, fn=None, strict=True: None,
    "more by any name": lambda self, path, fn=None, *, strict=True, **more: None,
}
WRONG = [
    (
        r"positions were \(self, path, fn\) and are \(self, path\)",
        lambda self, path, *, strict=True: None,
    ),
    (
        r"positions were \(self, path, fn\) and are \(self, fn, path\)",
        lambda self, fn=None, path=None, *, strict=True: None,
    ),
    ("positions were", lambda self, where, fn=None, *, strict=True: None),
    ("strict is gone", lambda self, path, fn=None: None),
    ("strict was True and is False", lambda self, path, fn=None, *, strict=False: None),
    ("fn was None and is without default", lambda self, path, fn, *, strict=True: None),
    ("more is new and has no default", lambda self, path, fn=None, *, more, strict=True: None),
    ("read was a function or class and is value", property(lambda self: None)),
]


@pytest.fixture
def before(monkeypatch):
    monkeypatch.setattr(Before, "__module__", "dpsbi.somewhere")
    return about(Before)


@pytest.mark.parametrize("what", FINE)
def test_what_breaks_no_call_is_let_through(what, before):
    assert not list(lost(before, about(changed(FINE[what])), "Before"))


@pytest.mark.parametrize("said, read", WRONG, ids=[said for said, _ in WRONG])
def test_what_breaks_a_call_is_seen_and_said(said, read, before):
    assert re.search(said, "\n".join(lost(before, about(changed(read)), "Before")))


def test_a_name_and_a_member_that_are_gone_are_seen(before):
    less = dict(before, members={"read": before["members"]["read"]})
    assert list(lost(before, less, "Before")) == ["Before.size is gone"]
    assert list(lost(dict(Before=before), {}, "dpsbi")) == ["dpsbi.Before is gone"]


if __name__ == "__main__" and "--write" in sys.argv:
    LIST.write_text(json.dumps(told(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
