"""The runners of notebooks and tests, the records they keep, and what the pages say of both."""

import ast
import json
import re
import subprocess
from datetime import date
from functools import partial
from pathlib import Path

import pytest
import run_fast
import run_slow
from forked import ROOT, Item, name_of, notebook_files, pooled
from mutants import MUTANTS, RECORD, files_of
from mutants import name_of as name_of_mutant
from pictures import brought_up, older, parsed, pictures, pictures_of, recorded
from slow_items import (
    RESULTS,
    SLOW,
    cells_of,
    due,
    keep,
    modules_read,
    needed,
    rows,
    slow_tests,
    statements,
)
from slow_items import key as key_of


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


# ---- a pool of processes
def test_a_pool_tells_what_fails_and_what_it_took():
    def broken():
        raise ValueError("nothing works")

    def busy():
        sum(range(3_000_000))
        return ""

    items = [Item("good", busy), Item("bad", lambda: "it is wrong"), Item("broken", broken)]
    found = {item.name: (passed, said) for item, passed, _, said in pooled(items, 2)}
    took = [seconds for _, _, seconds, _ in pooled(items[:1], 1)]
    assert found["good"] == (True, "\n") and not found["bad"][0] and not found["broken"][0]
    assert "it is wrong" in found["bad"][1] and "ValueError: nothing works" in found["broken"][1]
    assert took[0] > 0.01


def test_all_notebooks_and_all_tests_are_run():
    names = {item.name for item in run_fast.fast_items()}
    done = subprocess.run(
        ["git", "ls-files", "nbs", "tests"], cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip("no clone of the repository")
    known = done.stdout.splitlines()
    notebooks = {name for name in known if name.endswith(".ipynb") and "/_" not in name}
    tests = {name for name in known if re.fullmatch(r"tests/test_\w+\.py", name)}
    assert notebooks and tests and names >= notebooks | tests


# ---- slow cells
def notebook(path: Path, *sources: str) -> Path:
    cells = [
        dict(cell_type="code", id=f"c{i}", source=source, metadata={}, outputs=[])
        | dict(execution_count=None)
        for i, source in enumerate(sources)
    ]
    page = dict(cells=cells, metadata={}, nbformat=4, nbformat_minor=5)
    path.write_text(json.dumps(page))
    return path


DRAWN = "import matplotlib.pyplot as plt\nplt.figure().subplots().set_xlabel({!r})"


@pytest.mark.parametrize("label, drawn", [("$x^2$", True), ("$x^{2$", False)])
def test_a_figure_that_cannot_be_drawn_fails_its_notebook(tmp_path, label, drawn):
    path = notebook(tmp_path / "page.ipynb", "1", DRAWN.format(label), "2")
    item = Item("page", partial(run_fast.fast_notebook, path, False))
    [(_, passed, _, said)] = pooled([item], 1)
    assert passed == drawn and ("ParseSyntaxException" in said) != drawn


SOURCES = (
    "import time\na = 1",
    "#| slow\nb = a + 1",
    "#| slow\nassert b == 3, b",
    "#| slow\nwhile True:\n    try:\n        c = time.time()\n    except Exception:\n        pass",
    "#| slow\nprint(c)",
    "#| slow\nassert b == 2",
)


def test_an_error_that_follows_from_the_limit_is_no_failure():
    try:
        try:
            raise run_slow.OutOfTime
        except run_slow.OutOfTime as late:
            raise SystemError("compiled code returned with an exception set") from late
    except SystemError as error:
        assert run_slow.out_of_time(error)
    assert run_slow.out_of_time(run_slow.OutOfTime())
    assert not run_slow.out_of_time(SystemError("its own")) and not run_slow.out_of_time(None)


def test_a_test_whose_time_is_over_has_not_failed(tmp_path, monkeypatch):
    def runner(words):
        "Takes every error of a test for its failure, as pytest does."
        try:
            if words[-1] == "long":
                sum(k for k in range(10**9))
            raise AssertionError
        except BaseException:
            return 1

    monkeypatch.setattr(pytest, "main", runner)
    monkeypatch.chdir(tmp_path)
    record = tmp_path / "slow.jsonl"
    run = run_slow.Run(0.2, record, "abc", dict.fromkeys(("long", "wrong"), "k"))
    run.test(tmp_path, "long")
    run.test(tmp_path, "wrong")
    assert [row["result"] for row in lines(record)] == ["limit", "failed"]


def test_a_row_for_each_slow_cell(tmp_path):
    path = notebook(tmp_path / "page.ipynb", *SOURCES)
    before = path.read_bytes()
    cells, record = cells_of(path), tmp_path / "rows.jsonl"
    known = {f"page.ipynb#{cell.id}": "k" for cell in cells if cell.slow}
    run = run_slow.Run(0.3, record, "abc", known)
    item = Item("page", lambda: run.notebook(tmp_path, "page.ipynb", cells) or "")
    ((_, passed, _, said),) = pooled([item], 1)
    assert passed, said
    found = [row["result"] for row in rows(record).values()]
    assert found == ["passed", "failed", "limit", "waits", "passed"]
    kept = rows(record)
    assert kept["page.ipynb#c2"]["note"] == "AssertionError: 2"
    assert kept["page.ipynb#c3"]["seconds"] > 0 and kept["page.ipynb#c4"]["note"] == "for c3"
    assert path.read_bytes() == before


def test_what_passed_is_shown_in_the_notebooks_that_are_to_keep_it(tmp_path):
    sources = ("a = 1\nprint(a)", "#| slow\na + 1", "#| slow\na / 0", "print('end')")
    for folder in ("copy", "kept"):
        (tmp_path / folder).mkdir()
        path = notebook(tmp_path / folder / "page.ipynb", *sources)
    known, record = {"page.ipynb#c1": "k", "page.ipynb#c2": "k"}, tmp_path / "rows.jsonl"
    run = run_slow.Run(5, record, "abc", known, path.parent)
    work = partial(run.notebook, tmp_path / "copy", "page.ipynb", cells_of(path))
    list(pooled([Item("page", lambda: work() or "")], 1))
    shown = [cell["outputs"] for cell in json.loads(path.read_text())["cells"]]
    assert [each[0]["text"] for each in (shown[0], shown[3])] == [["1\n"], ["end\n"]]
    assert shown[1][0]["data"] == {"text/plain": ["2"]} and not shown[2]


def test_a_wrong_fast_cell_is_told_of_all_slow_ones_after_it(tmp_path):
    path = notebook(tmp_path / "page.ipynb", "#| slow\n1", "1 / 0", "#| slow\n2")
    cells, record = cells_of(path), tmp_path / "rows.jsonl"
    run = run_slow.Run(5, record, "abc", {"page.ipynb#c0": "k", "page.ipynb#c2": "k"})
    list(pooled([Item("page", partial(run.notebook, tmp_path, "page.ipynb", cells))], 1))
    assert [row["result"] for row in rows(record).values()] == ["passed", "error"]
    assert "ZeroDivisionError" in rows(record)["page.ipynb#c2"]["note"]


def test_which_slow_cells_a_slow_cell_needs(tmp_path):
    sources = (
        "#| slow\na = 1",
        "#| slow\ndef f():\n    return a",
        "#| slow\nb = 2",
        "#| slow\nf()",
    )
    cells = cells_of(notebook(tmp_path / "page.ipynb", *sources))
    assert [cell.id for cell in needed(cells, cells[3])] == ["c0", "c1"]


def test_what_a_row_holds_for(tmp_path):
    def key(*sources):
        cells = cells_of(notebook(tmp_path / "page.ipynb", *sources))
        return key_of(cells, cells[-1])

    last = "#| slow\nf(a)"
    assert key("a = 1  # one", last) == key("a  =  1", last) != key("a = 2", last)
    said = key('def f():\n    "Says."\n    return 1', last)
    assert said == key("def f():\n    return 1", last) != key("def f():\n    return 2", last)
    ess = "from dpsbi.weights import ess as f"
    assert key(ess, last) != key("from dpsbi.posterior import Posterior as f", last)
    assert key(ess, last) == key(ess + "\nfrom dpsbi import infer", last)  # which is not read
    assert key(ess, last) == key(ess, "b = 1\nprint(b)", last)
    changed = ("a = [0]", "a.append(1)", last)  # or read by what is read, whatever comes first
    assert key(*changed) != key("a = [0]", last) != key("a = [0]", "a[0] = 1", last)
    late = "def f(a):\n    return g(a)"
    assert key(late, "g = len", last) != key(late, "g = abs", last)
    own = "def h(f):\n    a = [f for f in [1]]\n    a[0] = 1\n    return a"
    assert key(changed[0], last) == key(changed[0], own, last)  # names of a function's own
    told = "def h():\n    global a\n    a = 1"
    assert key(changed[0], last) != key(changed[0], told, last)


def test_a_function_s_own_imports_are_read():
    (part,) = statements("def f():\n    from dpsbi.weights import ess\n    return ess")
    assert "dpsbi.weights" in modules_read([part])


def test_a_slow_test_rests_on_its_fixtures_and_helpers():
    test = "@pytest.mark.slow\ndef test_one(fixed):\n    assert helper(fixed)"
    source = "def helper(x):\n    return x > {}\n\ndef fixed():\n    return {}\n\n" + test

    def key(*numbers):
        parts = statements(source.format(*numbers))
        return key_of(parts, parts[-1])

    assert key(1, 2) == key(1, 2) and len({key(1, 2), key(1, 3), key(0, 2)}) == 3
    assert len(slow_tests()) > 10


def test_what_is_due():
    row = dict(key="k", result="passed", limit=20, commit="c")
    asked = partial(due, "x", kept={"x": row})
    assert not asked("k", 120, "d") and asked("other", 20, "c") and due("y", "k", 20, "c", {})
    row["result"] = "failed"
    assert asked("k", 20, "d") and not asked("k", 20, "c")
    row["result"] = "limit"
    assert asked("k", 120, "c") and not asked("k", 20, "d")


def test_a_record_keeps_the_last_row_and_drops_what_is_no_more(tmp_path):
    path = tmp_path / "rows.jsonl"
    for what, result in (("b", "failed"), ("a", "passed"), ("b", "passed"), ("c", "passed")):
        keep(dict(what=what, result=result), path, dict(a="", b="", c=""))
    assert [row["result"] for row in lines(path)] == ["passed"] * 3
    keep(dict(what="a", result="limit"), path, dict(a="", b=""))
    assert [(row["what"], row["result"]) for row in lines(path)] == [
        ("a", "limit"),
        ("b", "passed"),
    ]


# ---- what is kept
def test_the_record_of_slow_runs():
    kept = lines(SLOW)
    assert [row["what"] for row in kept] == sorted({row["what"] for row in kept})
    for row in kept:
        assert set(row) == {*"what result seconds limit note date commit key".split()}
        assert row["result"] in RESULTS and row["seconds"] >= 0 and row["limit"] > 0
        assert date.fromisoformat(row["date"]) and re.fullmatch(r"[0-9a-f]{16}", row["key"])
        assert re.fullmatch(r"(nbs/.*\.ipynb#\S+|tests/test_\w+\.py::\w+)", row["what"])
        assert bool(row["note"]) or row["result"] in ("passed", "limit") or "::" in row["what"]


def test_every_mutant_stands_once_in_its_module_and_names_tests_that_exist():
    for mutant in MUTANTS:
        text = (ROOT / mutant.where).read_text()
        assert text.count(mutant.old) == 1, mutant
        ast.parse(text.replace(mutant.old, mutant.new))
        files = [file.partition("::")[0] for file in files_of(mutant)]
        assert files and all((ROOT / file).exists() for file in files), mutant


def test_the_record_of_mutants_holds_no_miss():
    names = [name_of_mutant(mutant) for mutant in MUTANTS]
    assert len(names) == len(set(names))
    kept = lines(RECORD)
    assert not [row["mutant"] for row in kept if not row["caught"]]
    assert {row["mutant"] for row in kept} <= set(names)


# ---- what the pages say
def figures(path: str, pattern: str) -> list[tuple[int, ...]]:
    text = " ".join((ROOT / path).read_text().split())
    return [tuple(map(int, found.groups())) for found in re.finditer(pattern, text)]


def test_no_page_shows_where_packages_lie_on_a_machine():
    for path in notebook_files():
        assert "site-packages" not in (ROOT / path).read_text(), path


def test_contributing_tells_what_the_records_hold():
    slow = lines(SLOW)
    passed = sum(row["result"] == "passed" for row in slow)
    mutants = len(lines(RECORD))
    said = figures("CONTRIBUTING.md", r"(\d+) of (\d+) slow cells and tests on record passed")
    assert said == ([(passed, len(slow))] if slow else [])
    said = figures("CONTRIBUTING.md", r"on record are (\d+) mutants, all caught")
    assert said == ([(mutants,)] if mutants else [])


@pytest.mark.parametrize(
    "target, runs",
    [("test", "run_fast.py"), ("test-slow", "run_slow.py"), ("mutants", "mutants.py")],
)
def test_make_runs_what_the_pages_say(target, runs):
    recipe = (ROOT / "Makefile").read_text().split(f"\n{target}:")[1].split("\n\n")[0]
    assert f"tests/{runs}" in recipe
    assert f"make {target}" in (ROOT / "CONTRIBUTING.md").read_text()
    assert "make test " in (ROOT / "README.md").read_text()


def test_notebooks_are_found_as_nbdev_finds_them():
    from nbdev.doclinks import nbglob

    found = {name_of(Path(path)) for path in nbglob(ROOT / "nbs", as_path=True)}
    assert found == set(map(name_of, notebook_files()))


# ---- pictures
MOST_OLDER = 0  # stored pictures that are older than their source; to be lowered, never raised


def page(source, drawn="cGljdHVyZQ=="):
    "A notebook that sets the style of its pictures, and has one."
    shown = [dict(output_type="display_data", metadata={}, data={"image/png": drawn})]
    sources = ("figure_style()", []), (source, shown)
    cells = [
        dict(id=f"c{k}", cell_type="code", source=source, outputs=outputs)
        for k, (source, outputs) in enumerate(sources)
    ]
    return json.dumps(dict(cells=cells))


def row_of(notebook):
    (cell, picture, code) = next(pictures_of(notebook))
    return {f"x.ipynb#{cell}": dict(picture=picture, code=code)}


def test_a_picture_older_than_its_source_is_seen():
    first, other = row_of(page("ax.plot(x)")), row_of(page("ax.plot(y)"))
    assert not older(first, first) and row_of(page("ax.plot( x )  # a line")) == first
    assert older(other, first) == ["x.ipynb#c1"] == older(other, brought_up(other, first))
    assert not older(other, brought_up(other, first, ("x.ipynb",)))
    anew = row_of(page("ax.plot(y)", "YW5ldw=="))
    assert not older(anew, first) and brought_up(anew, first) == anew
    plain = row_of(page("ax.plot(x)").replace("figure_style()", "pass"))
    assert older(first, plain)


def _draws(source: str) -> bool:
    "Whether a cell itself makes a figure, and no function or class in it does."
    made = (ast.FunctionDef, ast.ClassDef)
    run = [part for part in parsed(source).body if not isinstance(part, made)]
    return any("plt.subplots(" in ast.unparse(part) for part in run)


def test_a_cell_that_draws_has_its_picture():
    "One that was run where nothing is shown would be stored without."
    assert _draws("fig, ax = plt.subplots()") and not _draws("def f():\n    plt.subplots()")
    lost = []
    for path in notebook_files():
        for cell in json.loads(path.read_text())["cells"]:
            if cell["cell_type"] == "code" and _draws("".join(cell["source"])):
                shown = [output.get("data", {}) for output in cell["outputs"]]
                if not any("image/png" in data for data in shown):
                    lost.append(f"{path.name}#{cell['id']}")
    assert not lost, "run them where pictures are shown:\n" + "\n".join(lost)


def test_pictures_are_as_new_as_their_sources():
    now, kept = pictures(), recorded()
    late = older(now, kept)
    assert len(late) <= MOST_OLDER, "run them, then tests/pictures.py:\n" + "\n".join(late)
    unknown = [what for what, row in now.items() if kept.get(what, row) != row and what not in late]
    unknown += [what for what in now if what not in kept]
    assert len(unknown) < 0.15 * len(now), "not on record: run tests/pictures.py"
