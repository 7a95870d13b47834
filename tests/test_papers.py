"""The page of the papers, row by row: the cells that a row names hold what the row says."""

import json
import re
from functools import cache
from pathlib import Path

import pytest

NBS = Path(__file__).resolve().parents[1] / "nbs"
PAPERS = {  # the numbers that each paper has: equations, figures, tables, algorithms
    "ABCDP": {"(": 43, "Figure": 5, "Algorithm": 1},
    "Gong": {"(": 16, "Figure": 1, "Algorithm": 1, "Example": 4},
    "SPPE/SPLE": {"(": 17, "Figure": 12, "Table": 3, "Algorithm": 2},
}
STATEMENTS = {  # and its definitions, lemmas, propositions, theorems
    "ABCDP": ("Theorem 4.1", "Theorem 4.3", "Lemma 4.1", "Lemma 4.2", "Proposition 4.2"),
    "Gong": ("Definition 1", "Definition 2", "Theorem 1"),
    "SPPE/SPLE": (
        *("Definition 1", "Definition 2", "Proposition 3", "Proposition 4"),
        *("Lemma 5", "Lemma 6"),
    ),
}
PLACE = re.compile(r"\[[^]]+\]\(([^)#]+\.ipynb)(?:#([^)]*))?\) (`[^`]+`(?:, `[^`]+`)*)")
VERDICT = re.compile(r"agrees|stated|differs|mended|left out, because")
EQUATION = re.compile(r"\((\d+)\)(?:–\((\d+)\))?")


@cache
def cells(page):
    "id -> cell, in the order of the page."
    found = json.loads((NBS / page).read_text(encoding="utf-8"))["cells"]
    return {c["id"]: c | {"source": "".join(c["source"])} for c in found}


def tables():
    "Paper -> the rows of its table, each a list of four fields."
    found = {}
    for text in (c["source"] for c in cells("papers.ipynb").values()):
        lines = [line for line in text.splitlines() if line.startswith("| ")]
        if lines and "| where |" in lines[0]:
            rows = [[field.strip() for field in line.split("|")[1:-1]] for line in lines[1:]]
            found[text.splitlines()[0].strip("# ")] = rows
    return found


def equations(item):
    "The equations that a row is about: (13)–(21) are nine, and 'below (10)' is none."
    parts = filter(None, map(EQUATION.fullmatch, item.split(", ")))
    return {n for m in parts for n in range(int(m[1]), int(m[2] or m[1]) + 1)}


def numbers(item, kind):
    "The numbers of figures, tables, algorithms or examples that a row is about."
    if not re.match(rf"{kind}s? \d", item):
        return set()
    return {int(n) for n in re.findall(r"(?<![\d.(])\d+(?![\d.)])", item)}


def tags(cell):
    return {int(n) for t in re.findall(r"\\tag\{([\d, ]+)\}", cell["source"]) for n in t.split(",")}


def section(page, name):
    "The heading under which a cell stands, as a link names it; empty at the top of the page."
    headings = []
    for key, cell in cells(page).items():
        if cell["cell_type"] == "markdown":
            headings += re.findall(r"^#+ (.*)$", cell["source"], re.M)
        if key == name:
            break
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", headings[-1]).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-") if len(headings) > 1 else ""


def draws(cell):
    "Whether a cell is code that has made a picture."
    return any("image/png" in o.get("data", {}) for o in cell.get("outputs", []))


def steps(cell):
    "Whether a cell has numbered steps."
    return cell["cell_type"] == "markdown" and {"1", "2"} <= set(
        re.findall(r"^(\d)\. ", cell["source"], re.M)
    )


def missing(page, words):
    "What to do about a row whose cell is not there."
    held = [key for key, cell in cells(page).items() if words in cell["source"]]
    there = f"; these words stand in {held}" if held else ""
    return f"{page} has no cell with the id {words!r}{there}"


def places(where):
    "(page, anchor, ids) of each place that a row names; None where it names none."
    found = [PLACE.fullmatch(part) for part in where.split("; ")]
    if not all(found):
        return None
    return [(m[1], m[2] or "", re.findall(r"`([^`]+)`", m[3])) for m in found]


def faults(row):
    "What is wrong with a row, in words."
    if len(row) != 4 or not all(row):
        return ["an empty field"]
    item, _, where, verdict = row
    found = [] if VERDICT.match(verdict) else [f"no verdict: {verdict}"]
    named = places(where)
    if named is None:
        return [*found, "not [page](page.ipynb#part) `cell`, `cell`; and so on"]
    absent = [page for page, _, _ in named if not (NBS / page).exists()]
    if absent:
        return [*found, f"no page {absent}"]
    lost = [missing(page, i) for page, _, ids in named for i in ids if i not in cells(page)]
    if lost:
        return found + lost
    for page, anchor, ids in named:
        if anchor != section(page, ids[0]):
            found.append(f"{ids[0]} stands under #{section(page, ids[0])}, not #{anchor}")
    return found + unheld(item, verdict, named)


def unheld(item, verdict, named):
    "What a row promises and its cells do not hold."
    shown = [cells(page)[i] for page, _, ids in named for i in ids]
    (page, _, (first, *_)), found = named[0], []
    if verdict.startswith("left out"):
        return found
    untagged = equations(item) - set().union(*map(tags, shown))
    if untagged:
        found.append(f"no \\tag of {sorted(untagged)}")
    if numbers(item, "Algorithm"):
        after = list(cells(page))
        following = (key for key in after[after.index(first) :] if is_code(page, key))
        code = next(following, "")
        ours = "in the package" in item
        if not steps(cells(page)[first]):
            found.append(f"{first} has no numbered steps")
        if not (
            code.startswith("alg-") or ours and cells(page)[code]["source"].startswith("#| ex")
        ):
            found.append(f"the code after {first} is {code}, which is no algorithm's")
        if not any(c["id"] == code for c in shown):
            found.append(f"{code}, the algorithm, is not named")
    if numbers(item, "Figure") and not all(map(draws, shown)):
        found.append("a cell that draws no figure")
    if numbers(item, "Table") and not all(c.get("outputs") for c in shown):
        found.append("a cell that shows no table")
    proved = re.match(r"Theorem|Lemma|Proposition", item) and verdict.startswith("agrees")
    if proved and not any("Proof" in c["source"] for c in shown):
        found.append("no proof")
    return found


def is_code(page, key):
    return cells(page)[key]["cell_type"] == "code"


@pytest.mark.parametrize("paper", PAPERS)
def test_each_number_of_a_paper_has_a_row(paper):
    items = [row[0] for row in tables()[paper]]
    for kind, last in PAPERS[paper].items():
        read = equations if kind == "(" else lambda item: numbers(item, kind)
        absent = set(range(1, last + 1)) - set().union(*map(read, items))
        assert not absent, f"{paper}: {kind} {sorted(absent)} have no row"
    unnamed = [one for one in STATEMENTS[paper] if not any(one in item for item in items)]
    assert not unnamed, f"{paper}: {unnamed} have no row"


@pytest.mark.parametrize("paper", PAPERS)
def test_each_row_is_true(paper):
    wrong = [f"{row[0]}: {fault}" for row in tables()[paper] for fault in faults(row)]
    assert not wrong, "\n".join(wrong)


ABC = "[Exact ABC](analyst/03_exact_abc.ipynb#the-algorithm)"
FIGURE = "[Exact ABC](analyst/03_exact_abc.ipynb#example-4-a-count)"
WRONG = {  # what is said of a row that has been turned wrong
    "no \\tag of [9]": ["(9)", "x", f"{ABC} `2d0694cd`", "agrees"],
    "no \\tag of [3, 4, 5]": ["(2)–(5)", "x", f"{ABC} `2d0694cd`", "mended"],
    "no cell with the id": ["(8)", "x", f"{ABC} `2d0694ce`", "agrees"],
    "these words stand in ['2d0694cd']": ["(8)", "x", f"{ABC} `*Proof.* Let $I = 1$`", "agrees"],
    "stands under #the-algorithm": ["(8)", "x", f"{FIGURE} `2d0694cd`", "agrees"],
    "no page": ["(8)", "x", "[x](analyst/none.ipynb) `2d0694cd`", "agrees"],
    "no verdict": ["(8)", "x", f"{ABC} `2d0694cd`", "holds"],
    "not [page]": ["(8)", "x", f"{ABC}", "agrees"],
    "an empty field": ["(8)", "", f"{ABC} `2d0694cd`", "agrees"],
    "no numbered steps": ["Algorithm 1", "x", f"{ABC} `abc-variations`, `alg-exact-abc`", "agrees"],
    "no algorithm's": [
        *("Algorithm 2", "x"),
        "[SPLE](analyst/neural/08_sple.ipynb#algorithm-2-in-the-package) `b2c037b1`, `ba575143`",
        "agrees",
    ],
    "is not named": ["Algorithm 1", "x", f"{ABC} `2d0694cd`", "agrees"],
    "draws no figure": ["Figure 1", "x", f"{FIGURE} `76c8ffa8`", "agrees"],
    "shows no table": ["Table 1", "x", f"{FIGURE} `76c8ffa8`", "agrees"],
    "no proof": ["Lemma 4.1", "x", f"{FIGURE} `3ed4463a`", "agrees"],
}


@pytest.mark.parametrize("said", WRONG)
def test_a_false_row_is_seen(said):
    assert any(said in fault for fault in faults(WRONG[said]))


def test_what_a_row_is_about():
    assert equations("(2), (3)") == {2, 3} and equations("Theorem 1, (8)") == {8}
    assert equations("(13)–(15), proof of 4.1") == {13, 14, 15} and not equations("below (10)")
    assert numbers("Figures 4, 5, 6", "Figure") == {4, 5, 6}
    assert not numbers("section 4.1", "Figure")
