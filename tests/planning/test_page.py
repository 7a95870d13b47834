"""The page of sliders: what it shows, that no slider simulates or fits; notebooks in a browser."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import browser
import numpy as np
import pytest
import turned
from scipy import stats

import dpsbi.models.simulate
from dpsbi import DiscreteLaplace, Model, Prior, Query
from dpsbi.analyst.neural import training as flows
from dpsbi.analyst.neural import training as training
from dpsbi.analyst.neural.training import Training
from dpsbi.planning.explore import explore, learn, show
from dpsbi.planning.utility import Questions

ROOT = Path(__file__).resolve().parents[2]
SIZES, ENDS = (50, 400), (0.05, 10.0)
simulated = []


def survey(n):
    "n persons are asked; how often was the simulator called?"

    def simulate(theta, rng):
        simulated.append(n)
        return rng.binomial(n, theta).astype(float)

    return Model(Prior(share=stats.beta(2, 5)), simulate)


def count(n):
    return Query(lambda x: x, 1, step=1, dim=1), DiscreteLaplace


@pytest.fixture(scope="module")
def page():
    return explore(
        survey,
        {"count": count},
        sizes=SIZES,
        epsilons=ENDS,
        at=dict(share=0.3),
        rng=np.random.default_rng(1),
        questions=Questions(quantities={"odds": lambda theta: (theta / (1 - theta))[:, 0]}),
        target=0.1,
        simulations=2000,
        training=Training(final_steps=200, members=1),
        progress=False,
    )


def exact_sds(page, n, epsilon):
    "By enumeration, for each of the releases that might be."
    share, counts = (np.arange(1000) + 0.5) / 1000, np.arange(n + 1.0)
    seen = page.scenes[0].released(n, epsilon)[0]
    mass = stats.binom.pmf(counts, n, share[:, None]) * stats.beta(2, 5).pdf(share)[:, None]
    noise = DiscreteLaplace(1 / epsilon)
    joint = mass @ np.exp(noise.log_prob(seen[None], counts[:, None, None]))
    joint = joint / joint.sum(axis=0)
    return np.sqrt(share**2 @ joint - (share @ joint) ** 2)


@pytest.mark.parametrize("n", SIZES)
def test_the_curve_is_that_of_exact_posteriors(page, n):
    epsilon, sd, _ = page.curves["count", n][:, ::4]
    exact = [exact_sds(page, n, e).mean() for e in epsilon]
    assert np.abs(np.log(sd / exact)).max() < 0.25  # a small network; its seed is fixed
    assert exact[0] > 1.3 * exact[-1]  # so that a flat curve would fail


def test_one_network_sees_how_many_persons_there_are(page):
    few, many = (page.draws("count", n, 5.0).std() for n in SIZES)
    assert few > 1.7 * many  # exactly 2.6: the square root of eight, but for the prior


def test_the_least_epsilon_for_a_target_lies_on_the_curve(page):
    epsilon, sd, _ = page.curves["count", 50]
    found = page.epsilon_for("count", 50, 0.1)
    assert np.interp(np.log(found), np.log(epsilon), sd) == pytest.approx(0.1, rel=0.02)
    assert np.isnan(page.epsilon_for("count", 50, 1e-4))


def test_no_slider_simulates_or_fits(page):
    "Counted: calls of the simulator; and the doors to simulating and fitting are closed."
    before = len(simulated)
    stop = dict(side_effect=AssertionError("a slider has simulated, or fitted"))
    shown = []
    with (
        patch.object(dpsbi.models.simulate, "simulate_query", **stop),
        patch.object(training, "train", **stop),
        patch.object(training, "fit", **stop),
        patch.object(flows, "fit", **stop),
        patch("IPython.display.display", lambda *a, **k: shown.append(Handle()) or shown[-1]),
    ):
        sliders = show(page, "count", 50, 0.1)
        sliders["epsilon"].value = 1.0
        sliders["n"].value = 400
    assert len(simulated) == before
    pictures = [image.data for image in shown[-1].pictures]
    assert len(pictures) == 2 and pictures[0] != pictures[1]


class Handle:
    "Stands for a display: keeps what it is given."

    def __init__(self):
        self.pictures = []

    def update(self, picture):
        self.pictures.append(picture)


def test_a_setting_looks_the_same_each_time(page):
    assert np.array_equal(page.draws("count", 50, 0.3), page.draws("count", 50, 0.3))
    assert page.png("count", 50, 0.3).startswith(b"\x89PNG")


def test_without_ipywidgets_the_remedy_is_named(page):
    with patch.dict(sys.modules, ipywidgets=None):
        with pytest.raises(ModuleNotFoundError, match="explore"):
            page.show()
        assert page.figure("count", 50, 0.3) is not None


@pytest.mark.thorough
def test_the_library_does_not_import_ipywidgets():
    code = (
        "import sys, dpsbi.planning.explore, dpsbi.planning.explore\n"
        "assert 'ipywidgets' not in sys.modules"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], check=True, env=env)


@pytest.mark.parametrize(
    "setting", (("mean", 50, 1.0), ("count", 51, 1.0), ("count", 50, 11.0), ("count", 50, 0.01))
)
def test_what_the_page_does_not_have_is_refused(page, setting):
    with pytest.raises(ValueError, match="this page"):
        page.figure(*setting)


def test_arguments_that_make_no_sense_are_refused():
    given = dict(sizes=(50,), epsilons=ENDS, rng=np.random.default_rng(1))
    with pytest.raises(ValueError, match="share"):
        learn(survey, {"count": count}, at=dict(rate=1.0), **given)
    with pytest.raises(ValueError, match="at least one"):
        learn(survey, {}, at=dict(share=0.3), **given)
    with pytest.raises(ValueError, match="no quantity"):
        explore(survey, {"count": count}, at=dict(share=0.3), quantity="R0", **given)


SLIDER = "application/vnd.jupyter.widget-view+json"


def notebooks():
    found = sorted((ROOT / "nbs").rglob("*.ipynb"))
    return [path for path in found if "checkpoints" not in str(path) and "_build" not in str(path)]


def test_no_notebook_keeps_a_slider_that_died_with_its_kernel():
    "Its picture is kept instead; mended by removing the widget from the cell's output."
    for path in notebooks():
        text = path.read_text(encoding="utf-8")
        if "vnd.jupyter.widget-view" not in text:
            continue
        outputs = [o for cell in json.loads(text)["cells"] for o in cell.get("outputs", ())]
        kept = [o for o in outputs if SLIDER in o.get("data", ())]
        assert not kept, f"{path}: python nbs/readme.py removes it"


# ---- in a browser: pytest -m slow tests/planning/test_page.py -k browser
in_a_browser = pytest.mark.skipif(bool(browser.missing()), reason=browser.missing())


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with browser.jupyter_lab(tmp_path_factory.mktemp("lab")) as address:
        yield address


@pytest.fixture
def driver(tmp_path):
    with browser.chromium(tmp_path) as one:
        yield one


FRACTION = 0.8  # of a second, which the quickest move may take: what others compute only adds


@pytest.mark.slow
@in_a_browser
def test_browser_each_slider_moves_posterior_and_curve_at_once(lab, driver, tmp_path):
    "Query, persons and ε: both halves of the picture change; then they stand without a kernel."
    folder = Path(os.environ.get("SCREENSHOTS", tmp_path))
    turned.without_running(driver, lab, "planning/06_explore.ipynb")
    cells = driver.execute_script(browser.CELLS)
    lines = ["".join(cell["source"]).splitlines() for cell in cells]
    (where,) = [k for k, each in enumerate(lines) if each[-1:] and "page.show(" in each[-1]]
    driver.execute_script(browser.SHOW, where)
    browser.until(lambda: turned.drawn(driver, where), 60, "the picture that the file keeps")
    assert not turned.handles(driver)  # a page that nobody ran has a picture, and no slider
    driver.save_screenshot(str(folder / "not_run.png"))

    cells = browser.run_all(driver, lab, "planning/06_explore.ipynb")
    assert not browser.errors(cells)
    driver.execute_script(browser.SHOW, where)
    browser.until(lambda: len(turned.handles(driver)) == 3, 60, "three sliders")
    driver.save_screenshot(str(folder / "before.png"))
    seconds, last = [], turned.drawn(driver, where)
    for which, key in MOVES:
        seconds.append(turned.pressed(driver, where, which, key))
        now = turned.drawn(driver, where)
        assert all(turned.halves_differ(last, now)), (which, key)
        last = now
    driver.save_screenshot(str(folder / "after.png"))
    assert not browser.errors(driver.execute_script(browser.CELLS))
    print(f"seconds from key to picture: {np.round(seconds, 2)}")
    assert min(seconds) < FRACTION

    turned.stop_kernel(driver)
    assert turned.pressed(driver, where, 2, "ArrowLeft", patience=3) is None
    assert turned.drawn(driver, where) == last  # nobody answers, and the picture stands


MOVES = [(2, "ArrowRight"), (2, "PageUp"), (1, "ArrowRight"), (0, "ArrowRight"), (2, "PageDown")]
MOVES += [(1, "ArrowLeft"), (2, "ArrowLeft"), (0, "ArrowLeft")]  # 0: query, 1: persons, 2: ε


RUN_THROUGH = (
    "index",
    "02_privacy",
    "tutorials/00_first_posterior",
    "tutorials/01_stepping",
    "tutorials/02_your_simulator",
    "tutorials/03_agency",
    "tutorials/04_published_counts",
    "tutorials/05_releasing",
    "tutorials/06_checking",
    "tutorials/07_warnings",
    "tutorials/08_which_epsilon",
    "tutorials/09_cluster",
)
NEEDED = {"tutorials/09_cluster": ("dask", "distributed", "loky")}


@pytest.mark.slow
@in_a_browser
@pytest.mark.parametrize("notebook", RUN_THROUGH)
def test_browser_a_notebook_runs_from_a_fresh_kernel(lab, driver, notebook):
    for package in NEEDED.get(notebook, ()):
        pytest.importorskip(package, reason="pip install .[dask]")
    cells = browser.run_all(driver, lab, f"{notebook}.ipynb")
    assert not browser.errors(cells)
    code = [c for c in cells if c["cell_type"] == "code" and "".join(c["source"]).strip()]
    assert code and all(cell["execution_count"] for cell in code)
    shown = browser.contents(driver)
    texts = ["".join(c["source"]) for c in cells if c["cell_type"] == "markdown"]
    text = re.sub(r"^```.*?^```", "", "\n".join(texts), flags=re.M | re.S)  # comments of commands
    parts = re.findall(r"^#{1,2} ([^`$*\[\n]+)$", text, re.M)
    assert len(parts) > 2 and not set(parts) - set(shown), shown
