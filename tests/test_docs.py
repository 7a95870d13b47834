"""The notebooks as the documentation site reads them: titles, links, contents, and cells without
nbdev's directives.
"""

import importlib.util
import inspect
import json
import re
from pathlib import Path
from statistics import median
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).resolve().parents[1]
NBS = ROOT / "nbs"
NOTEBOOKS = sorted(
    p for p in NBS.rglob("*.ipynb") if not re.search(r"/[._]", p.relative_to(ROOT).as_posix())
)
CODE = re.compile(r"```.*?```|~~~.*?~~~|(`+)(?!`).+?(?<!`)\1(?!`)", re.S)
MATH = re.compile(r"(?<!\\)\$\$.+?\$\$|(?<!\\)\$(?=\S)[^$]+?(?<=\S)\$(?!\d)", re.S)
LINK = re.compile(r"""\]\(\s*<?([^)\s>]+)|<(?:img|a)\b[^>]*?\s(?:src|href)=["']([^"']+)""")

spec = importlib.util.spec_from_file_location("docs_conf", NBS / "conf.py")
conf = importlib.util.module_from_spec(spec)
spec.loader.exec_module(conf)

every_notebook = pytest.mark.parametrize(
    "path", NOTEBOOKS, ids=lambda p: p.relative_to(NBS).as_posix()
)


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def links(markdown):
    "The targets of links and pictures in a Markdown text, code and formulas left out."
    return [unquote(a or b) for a, b in LINK.findall(MATH.sub("", CODE.sub("", markdown)))]


def broken(path, nb):
    "The relative links of a notebook at `path` that lead to no file."
    targets = [
        t
        for cell in nb["cells"]
        if cell["cell_type"] == "markdown"
        for t in links("".join(cell["source"]))
    ]
    files = [
        t.partition("#")[0] for t in targets if not re.match(r"[a-z][a-z0-9+.-]*:|//|#", t, re.I)
    ]
    return [f for f in files if not (path.parent / f).exists()]


def cell(source, kind="code"):
    return {"cell_type": kind, "id": "x", "metadata": {}, "source": source}


@every_notebook
def test_title_and_summary(path):
    nb = read(path)
    lines = "".join(nb["cells"][0]["source"]).splitlines()
    assert nb["cells"][0]["cell_type"] == "markdown" and re.match(r"# \S", lines[0]), (
        "the first cell begins with `# Title`"
    )
    module = any(re.search(r"^#\| *default_exp", "".join(c["source"]), re.M) for c in nb["cells"])
    if module or path.parent.name != "cases":
        assert len(lines) > 1 and re.match(r"> \S", lines[1]), (
            "the second line is `> one sentence that says what this is`"
        )


@every_notebook
def test_relative_links_lead_to_files(path):
    assert not broken(path, read(path))


def test_a_broken_link_is_seen():
    text = (
        "[a](no.ipynb#part) `[b](code.ipynb)` [c](https://example.org) "
        "[d](#here) ![e](no.png) $\\sup[0, 1](x)$"
    )
    assert broken(NBS / "x.ipynb", {"cells": [cell(text, "markdown")]}) == ["no.ipynb", "no.png"]


def test_contents_hold_every_notebook_once():
    listed = [name for names in conf.contents().values() for name in names]
    assert sorted([*listed, "index"]) == sorted(
        {"index", *(p.relative_to(NBS).with_suffix("").as_posix() for p in NOTEBOOKS)}
    )


def test_chapters_stand_in_an_order_in_which_they_can_be_read():
    listed = [name for names in conf.contents().values() for name in names]
    order = ["owner/01_laplace_difference", "owner/05_abcdp", "analyst/03_exact_abc"]
    order += ["analyst/neural/05_sppe", "02_privacy", "accounting/03_ledger"]
    order += ["mechanisms/11_release", "models/01_prior", "posterior/03_posterior"]
    assert [listed.index(name) for name in order] == sorted(map(listed.index, order))
    captions = list(conf.contents())
    assert captions[0] == "Start here" and captions[-1] == "Reading"


def test_contents_in_reading_order(tmp_path):
    names = [
        "index",
        "01_b",
        "02_privacy",
        "benchmarks",
        "errata",
        "extra",
        "bench/h",
        "analyst/em/30_c",
        "owner/20_d",
        "cases/e",
        "_build/f",
        "new/g",
    ]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / f"{name}.ipynb").touch()
    assert list(conf.contents(tmp_path).items()) == [
        ("Privacy and its cost", ["02_privacy"]),
        ("For the data owner", ["owner/20_d"]),
        ("Maximum likelihood", ["analyst/em/30_c"]),
        ("Benchmarks", ["benchmarks", "bench/h"]),
        ("Case studies", ["cases/e"]),
        ("How runs are carried out", ["01_b"]),
        ("Reading", ["errata", "extra", "new/g"]),
    ]


def test_directives_steer_the_page_and_go():
    nb = {
        "metadata": {},
        "cells": [
            cell("# T\n#| stays in Markdown", "markdown"),
            cell("#| default_exp a.b"),
            cell("#| hide\nsecret"),
            cell("#|export\n#| slow\nx = 1  #| in the line\n"),
            cell("#| hide_input\ny"),
            cell("z"),
        ],
    }
    out = conf.tidy(nb, lambda module: f"module {module}")["cells"]
    assert [c["source"] for c in out] == [
        "# T\n#| stays in Markdown",
        "module a.b",
        "x = 1  #| in the line\n",
        "y",
        "z",
    ]
    assert [c["metadata"].get("tags", []) for c in out][2:] == [["export"], ["remove-input"], []]
    assert nb["cells"][3]["metadata"] == {}, "the notebook itself is left as it was"


@pytest.mark.parametrize(
    "text, loads",
    [
        ('<script src="https://x.org/a.js"></script>', True),
        ("<link rel='stylesheet' href='//x.org/a.css'>", True),
        ("@font-face { src: url(http://x.org/a.woff) }", True),
        ('<img alt="a" src="https://x.org/a.png">', True),
        ('<script src="_static/a.js"></script>', False),
        ('<a href="https://x.org">a link is no load</a>', False),
        ('<svg xmlns="http://www.w3.org/2000/svg">', False),
        ("url(\"data:image/svg+xml;utf8,<svg xmlns='http://x.org'>\")", False),
    ],
)
def test_offline_check(text, loads):
    assert bool(conf.LOAD.search(text)) == loads


CASES = sorted(path for path in NOTEBOOKS if path.parent.name == "cases")


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_case_begins_with_its_answer(path):
    texts = ["".join(c["source"]) for c in read(path)["cells"][:2] if c["cell_type"] == "markdown"]
    lines = [line for text in texts for line in text.splitlines() if line and line[0] not in "#>"]
    assert lines[0].startswith("**The answer.** ") and re.search(r"\d", lines[0]), lines[0]


TUTORIALS = sorted(path for path in NOTEBOOKS if path.parent.name == "tutorials")


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_is_a_quarter_of_an_hour(path):
    "At 200 words a minute; cells of about five lines; exercises, their answers folded away."
    cells = read(path)["cells"]
    text = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    sources = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    lines = sorted(sum(map(bool, s.splitlines())) for s in sources)
    assert len(text.split()) <= 15 * 200 and median(lines) <= 5
    assert text.count("<details><summary>Answer</summary>") >= 3 and "**Next" in text


def test_the_front_page_is_short():
    cells = read(NBS / "index.ipynb")["cells"]
    code = ["".join(c["source"]).splitlines() for c in cells if c["cell_type"] == "code"]
    assert max(map(len, code)) <= 16
    questions = next(t for c in cells if "| you say |" in (t := "".join(c["source"])))
    rows = [line.split("|") for line in questions.splitlines() if line.startswith("| I ")]
    assert 6 <= len(rows) <= 10 and "new to all of this" in rows[0][1]
    pages = [[link.partition("#")[0] for link in links(open_)] for _, _, open_, _ in rows]
    assert all(len(one) == 1 and one[0].endswith(".ipynb") for one in pages), "one page each"


def test_the_front_page_leads_three_ways_and_names_ten_chapters():
    texts = ["".join(c["source"]) for c in read(NBS / "index.ipynb")["cells"]]
    ways = re.findall(r"^- \*\*\[I .*\]\(#(.*)\)\*\*", texts[0], re.M)
    assert len(ways) == 3 and set(ways) <= headings(read(NBS / "index.ipynb"))
    chapters = re.findall(r"^(\d+)\. \[.*\]\(.*\.ipynb(?:#.*)?\)", "\n".join(texts), re.M)
    assert chapters == [str(n) for n in range(1, 11)]


# ---- links into a page
def slug(heading):
    "A heading as a link names it: lower case, without its signs, with hyphens for spaces."
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def headings(nb):
    "The parts that links may name: the site names a heading with a formula in another way."
    texts = ["".join(c["source"]) for c in nb["cells"] if c["cell_type"] == "markdown"]
    return {slug(h) for text in texts for h in re.findall(r"^#+ ([^$\n]*)$", text, re.M)}


def lost(path, nb):
    "The links of a page into a part of a page that has no such part."
    texts = ["".join(c["source"]) for c in nb["cells"] if c["cell_type"] == "markdown"]
    parted = [t.partition("#") for text in texts for t in links(text) if "#" in t and ":" not in t]
    aims = [(path.parent / page if page else path, part) for page, _, part in parted]
    return [part for page, part in aims if part not in headings(nb if page == path else read(page))]


@every_notebook
def test_links_lead_to_parts_that_exist(path):
    assert not lost(path, read(path))


LONG = 60  # cells, beyond which a page needs a table of contents


@every_notebook
def test_long_pages_say_what_is_on_them(path):
    nb = read(path)
    if len(nb["cells"]) > LONG:
        texts = ["".join(c["source"]) for c in nb["cells"] if c["cell_type"] == "markdown"]
        parts = {slug(h) for text in texts for h in re.findall(r"^## (.*)$", text, re.M)}
        contents = texts[0].partition("**On this page:**")[2]
        missing = parts - {target.removeprefix("#") for target in links(contents)}
        assert not missing, f"contents of {path.name} lack {', '.join(sorted(missing))}"


def test_a_lost_part_is_seen():
    text = "# A part, *here*\n[x](#a-part-here) [y](#no-such-part) `[z](#code)`\n# $x$\n[f](#x)"
    found = lost(NBS / "x.ipynb", {"cells": [cell(text, "markdown")]})
    assert found == ["no-such-part", "x"]


def test_parameters_become_a_table():
    text = """One sentence.

    Parameters
    ----------
    a : int
        The first, in `people`.
    b : array (n, d), optional
        The second.

    Raises
    ------
    ValueError
        For a that is none.
    """
    rst = conf.to_rst(inspect.cleandoc(text))
    assert rst.startswith("One sentence.\n\n**Parameters**\n\n.. list-table::")
    assert "   * - ``a``\n     - int\n     - The first, in \\ ``people``\\ ." in rst
    assert "   * - ``ValueError``\n     - For a that is none." in rst
    assert conf.entries("rng : the source of chance") == [("rng", "", "the source of chance")]
    assert conf.entries("Posterior\n    Draws.\n    More.") == [("Posterior", "", "Draws. More.")]


@pytest.mark.parametrize("signature", ("", "random(size=None,\n       out=None)\n\n"))
def test_of_a_docstring_of_numpy_its_first_sentence_stays(signature):
    text = "Floats in [0, 1).\n\nTo get others::\n\n  (b - a) * random()\n\n>>> 1\n1"
    lines = (signature + text).splitlines()
    conf.read_docstring(None, "method", "random", None, None, lines)
    assert "".join(lines) == "Floats in [0, 1)."


def test_public_names_have_their_page():
    page = conf.public_names()
    assert page.count(".. autofunction::") > 30 and page.count(".. autoclass::") > 20
    assert "### infer\n" in page and "## The owner's side\n" in page


def test_the_gallery_has_its_pictures():
    text = "\n".join("".join(c["source"]) for c in read(NBS / "gallery.ipynb")["cells"])
    wanted = re.findall(r'^picture\("([^"]+)", "([^"]+)"\)', text, re.M)
    assert len(wanted) >= 10
    for page, name in wanted:
        cells = {c["id"]: c for c in read(NBS / f"{page}.ipynb")["cells"]}
        assert name in cells, f"{page} has no cell {name} any more: choose another picture"
        assert any("image/png" in o.get("data", {}) for o in cells[name]["outputs"])


def test_no_page_shows_where_packages_lie_on_a_machine():
    assert not [path.name for path in NOTEBOOKS if "site-packages" in path.read_text()]
