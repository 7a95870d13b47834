"""Notebooks as pytest's items: what fails them, and what they then say."""

import json
from importlib import util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
spec = util.spec_from_file_location("pages", ROOT / "nbs/conftest.py")
pages = util.module_from_spec(spec)
spec.loader.exec_module(pages)

DRAWN = "import matplotlib.pyplot as plt\nplt.figure().subplots().set_xlabel({!r})"


def notebook(path: Path, *sources: str) -> Path:
    cells = [
        dict(cell_type="code", id=f"c{i}", source=source, metadata={}, outputs=[])
        | dict(execution_count=None)
        for i, source in enumerate(sources)
    ]
    path.write_text(json.dumps(dict(cells=cells, metadata={}, nbformat=4, nbformat_minor=5)))
    return path


@pytest.fixture(scope="module")
def nursery():
    found = pages.Nursery()
    yield found
    found.close()


@pytest.mark.parametrize(
    "sources, said",
    [
        (["a = 1", "assert a == 1"], ""),
        (["a = 1", "assert a == 2, 'it is 1'"], "it is 1"),
        (["#| slow\nassert False", "1"], ""),
        (["#| eval: false\nassert False", "1"], ""),
        (["import os\nos._exit(3)"], "status"),
        (["1", DRAWN.format("$x^2$"), "2"], ""),
        (["1", DRAWN.format("$x^{2$"), "2"], "ParseSyntaxException"),
    ],
)
def test_a_page_fails_with_its_cells_and_figures(nursery, tmp_path, sources, said):
    trouble = nursery.said_by(notebook(tmp_path / "page.ipynb", *sources), ["slow"])
    assert bool(trouble) == bool(said) and said in trouble


@pytest.mark.thorough
def test_slow_cells_run_where_they_are_asked_for(nursery, tmp_path):
    page = notebook(tmp_path / "page.ipynb", "#| slow\n1 / 0  # late")
    assert "late" in nursery.said_by(page, [])
