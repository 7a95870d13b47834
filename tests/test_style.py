"""How the code is laid out: ruff's rules, and what its rules do not know."""

import ast
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted(
    path
    for path in (ROOT / "nbs").rglob("*.ipynb")
    if not any(part.startswith(("_", ".")) for part in path.relative_to(ROOT).parts)
)  # none that `make docs` has built
MODULES = sorted(path for path in (ROOT / "dpsbi").rglob("*.py") if path.name != "_modidx.py")


@pytest.mark.parametrize("command", [["check"], ["format", "--check"]], ids=" ".join)
def test_ruff_has_nothing_to_say(command):
    ruff = subprocess.run(
        [sys.executable, "-m", "ruff", *command, "nbs", "tests", "setup.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert ruff.returncode == 0, ruff.stdout


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_public_functions_say_what_they_do(path):
    public = [
        node
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
    ]
    silent = [node.name for node in public if not ast.get_docstring(node)]
    assert not silent, f"{path.name}: no docstring for {', '.join(silent)}"


@cache
def parsed(source):
    "The tree of a cell; several tests ask for each."
    return ast.parse(source)


def without_magics(source):
    "A cell's code, as Python reads it."
    kept = (line for line in source.splitlines() if not line.lstrip().startswith(("%", "!")))
    return "\n".join(kept) + "\n"


def sources(notebook):
    "The code of each code cell of a notebook's text, by its id."
    code = [c for c in json.loads(notebook)["cells"] if c["cell_type"] == "code"]
    return {c["id"]: "".join(c["source"]) for c in code}


@cache
def code_of(path):
    "The same of a notebook's file."
    return sources(path.read_text())


# Figures: which words mean a colour that is picked by hand, and a letter that is too small
PICKED = re.compile(r"(C\d|tab:\w+|#[0-9a-fA-F]{3,8})[-.:o^sx*+|,v]*")
NEUTRAL = re.compile(r"k|w|black|white|none|face|gr[ae]y|[01]?\.\d+|[01]")
COLOURED = (
    "c color colors ec fc facecolor edgecolor mfc mec markerfacecolor markeredgecolor".split()
)
MARKED = "plot loglog semilogx semilogy errorbar step stem".split()
BY_LETTER = re.compile(r"[bgrcmy]([-.:o^sx*+|,v]*)")
SMALL = "fontsize labelsize titlesize".split()
PALETTE = "nbs/posterior/04_plots.ipynb"
WORDS = "|".join([rf"\b{word}=" for word in COLOURED + SMALL] + [rf"\.{call}\(" for call in MARKED])
DRAWN = re.compile(rf"C\d|tab:|#[0-9a-fA-F]{{3}}|f[\"']C|{WORDS}")  # all else need not be parsed


def picked_by_hand(source):
    "What a cell draws with that is not of the palette, or smaller than 8 points."
    if not DRAWN.search(source):
        return
    for node in ast.walk(parsed(source)):
        match node:
            case ast.Constant(value=str(word)) if PICKED.fullmatch(word):
                yield word
            case ast.JoinedStr(values=[ast.Constant(value="C"), *_]):
                yield 'f"C…"'
            case ast.keyword(arg=name, value=ast.Constant(value=str(word))) if name in COLOURED:
                if not (NEUTRAL.fullmatch(word) or PICKED.fullmatch(word)):
                    yield word
            case ast.keyword(arg=name, value=ast.Constant(value=size)) if name in SMALL:
                if isinstance(size, int | float) and size < 8:
                    yield f"{name}={size}"
            case ast.Call(func=ast.Attribute(attr=name), args=args) if name in MARKED:
                words = [a.value for a in args if isinstance(a, ast.Constant)]
                yield from (w for w in words if isinstance(w, str) and BY_LETTER.fullmatch(w))


def glued(source):
    "Colours that a cell glues to a line's style: Matplotlib takes only one letter there."
    if not A_COLOUR.search(source) or not DRAWN.search(source):
        return
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in MARKED:
            sums = [arg for arg in node.args if isinstance(arg, ast.BinOp | ast.JoinedStr)]
            names = {n.id for arg in sums for n in ast.walk(arg) if isinstance(n, ast.Name)}
            yield from (name for name in names if A_COLOUR.fullmatch(name))


A_COLOUR = re.compile(r"colou?r|BLUE|ORANGE|GREEN|MAGENTA|SAND|SKY|INK|GREY|PALE")


def test_no_colour_is_glued_to_a_style():
    assert list(glued('ax.plot(x, y, BLUE + "--")')) == ["BLUE"]
    assert list(glued('ax.loglog(x, f"{color}o-")')) == ["color"]
    assert not list(glued('ax.plot(x + BLUES, marker + "-", color=BLUE)'))
    wrong = [f"{page} {name}" for page, name, source in code_cells() if list(glued(source))]
    assert not wrong, f"color= takes a colour of the palette: {wrong}"


WIDEST = 9  # inches of a figure: wider ones are shrunk on the page, and their letters with them


def too_wide(source):
    "The widths, in inches, of a cell's figures that are wider than a page."
    if "figsize" not in source:
        return
    for node in ast.walk(parsed(source)):
        match node:
            case ast.keyword(arg="figsize", value=ast.Tuple(elts=[ast.Constant(value=width), _])):
                if width > WIDEST:
                    yield width


def test_figures_are_no_wider_than_a_page():
    assert list(too_wide("plt.subplots(1, 2, figsize=(11, 3))")) == [11]
    wrong = [f"{page} {name}" for page, name, source in code_cells() if list(too_wide(source))]
    assert not wrong, f"at most {WIDEST} inches: {wrong}"


@pytest.mark.parametrize(
    "source, seen",
    [
        ('ax.plot(x, "C1o-")', ["C1o-"]),
        ('ax.plot(x, y, "r--", label="b")', ["r--"]),
        ('ax.bar(x, y, color="tab:red", ec="white")', ["tab:red"]),
        ('ax.fill_between(x, y, color="steelblue")', ["steelblue"]),
        ('ax.plot(x, color=f"C{k}")', ['f"C…"']),
        ('dict(a="#d1682a", b=BLUE, c="0.5")', ["#d1682a"]),
        ("ax.legend(fontsize=7)", ["fontsize=7"]),
        ('ax.plot(x, "k:", color=BLUE, fontsize=8)', []),
    ],
)
def test_a_colour_picked_by_hand_is_seen(source, seen):
    assert list(picked_by_hand(source)) == seen


def code_cells():
    "(notebook, cell's id, its code without magics) of all notebooks."
    for path in NOTEBOOKS:
        for name, source in code_of(path).items():
            yield path.relative_to(ROOT).as_posix(), name, without_magics(source)


def test_figures_have_the_colours_and_the_letters_of_the_house():
    drawing, styled, wrong = set(), set(), []
    for page, name, source in code_cells():
        if page != PALETTE:
            wrong += [f"{page} {name}: {word}" for word in picked_by_hand(source)]
        if "plt." in source and "#| export" not in source:
            drawing.add(page)
        if "figure_style()" in source:
            styled.add(page)
    assert not wrong, (
        "colours stand in dpsbi.posterior.plots; letters have 8 points:\n" + "\n".join(wrong)
    )
    plain = drawing - styled
    assert not plain, f"no figure_style() in {', '.join(sorted(plain))}"
