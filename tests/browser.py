"""JupyterLab on a free port of this machine, in a headless Chromium: for tests of notebooks."""

import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run
    --disable-background-networking --disable-component-update --disable-sync
    --disable-dev-shm-usage --window-size=1200,1000""".split()
PATIENCE = 600  # seconds that a notebook may take on a busy machine


def missing() -> str:
    "What a test in a browser lacks here, in words; empty where nothing is."
    programs = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    packages = [
        name for name in ("selenium", "jupyterlab", "ipywidgets") if find_spec(name) is None
    ]
    lacking = ", ".join(programs + packages)
    return lacking and f"needs {lacking} (Debian: chromium, chromium-driver; pip: .[browser])"


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def _answers(port: int) -> bool:
    with socket.socket() as one:
        one.settimeout(1)
        return one.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def jupyter_lab(folder: Path):
    "A server on a copy of the notebooks, so that none is changed; its address."
    notebooks, port = folder / "nbs", _free_port()
    leave = shutil.ignore_patterns("_build", ".ipynb_checkpoints", "mathjax")
    shutil.copytree(ROOT / "nbs", notebooks, ignore=leave)
    own = {f"JUPYTER_{kind}_DIR": str(folder / kind) for kind in ("CONFIG", "DATA", "RUNTIME")}
    found = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    own |= dict(IPYTHONDIR=str(folder / "ipython"), PYTHONPATH=found, MPLBACKEND="")
    env = {key: value for key, value in (os.environ | own).items() if value}
    options = f"""--no-browser --allow-root --port={port} --ip=127.0.0.1 --IdentityProvider.token=
        --ServerApp.root_dir={notebooks} --LabApp.expose_app_in_browser=True
        --LabApp.news_url= --LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"""
    with open(folder / "server.log", "w") as log:
        command = [sys.executable, "-m", "jupyterlab", *options.split()]
        server = subprocess.Popen(command, env=env, stdout=log, stderr=log, cwd=folder)
    try:
        deadline = time.monotonic() + 120
        while not _answers(port):
            said = (folder / "server.log").read_text()[-2000:]
            assert server.poll() is None and time.monotonic() < deadline, said
            time.sleep(0.5)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(30)


@contextmanager
def chromium(folder: Path):
    "A browser with a profile of its own."
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in (*FLAGS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(flag)
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    driver.set_page_load_timeout(120)
    # JupyterLab knows its current notebook by focus, which a headless window lacks
    driver.execute_cdp_cmd("Emulation.setFocusEmulationEnabled", {"enabled": True})
    try:
        yield driver
    finally:
        driver.quit()


READY = """
const panel = window.jupyterapp && window.jupyterapp.shell.currentWidget;
return Boolean(panel && panel.content && panel.content.widgets && panel.content.widgets.length
    && panel.sessionContext.session && panel.sessionContext.session.kernel
    && panel.sessionContext.session.kernel.status === 'idle');
"""
RUN = """
window.ranAll = false;
window.jupyterapp.commands.execute('notebook:run-all-cells').then(() => { window.ranAll = true; });
"""
RAN = "return window.ranAll;"
CELLS = "return window.jupyterapp.shell.currentWidget.context.model.toJSON().cells;"
SHOW = """
const notebook = window.jupyterapp.shell.currentWidget.content;
notebook.activeCellIndex = arguments[0];
notebook.scrollToItem(arguments[0], 'center');
"""
CONTENTS = """
window.jupyterapp.shell.activateById('table-of-contents');
return [...document.querySelectorAll('#table-of-contents .jp-tocItem-content')]
    .map(one => one.textContent.trim());
"""


def until(true, seconds: float, what: str):
    "The first value of `true()` that is one; AssertionError after so many seconds."
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.3)
    return found


def run_all(driver, address: str, notebook: str) -> list[dict]:
    "Opens a notebook with a fresh kernel and runs all its cells; the cells, with their outputs."
    driver.get(f"{address}/lab/tree/{notebook}?reset")
    until(lambda: driver.execute_script(READY), 180, f"the kernel of {notebook}")
    driver.execute_script(RUN)  # and asked now and then: a request waits two minutes at most
    until(lambda: driver.execute_script(RAN), PATIENCE, f"the cells of {notebook}")
    return driver.execute_script(CELLS)


def contents(driver) -> list[str]:
    "The headings that JupyterLab's table of contents shows for the open notebook."
    return [str(text) for text in until(lambda: driver.execute_script(CONTENTS), 30, "contents")]


def errors(cells: list[dict]) -> list[str]:
    "What went wrong in the cells."
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    return [f"{one['ename']}: {one['evalue']}" for one in outputs if one["output_type"] == "error"]


def picture(driver, index: int) -> str:
    "The first picture among the outputs of a cell, as text; empty where there is none."
    outputs = driver.execute_script(CELLS)[index].get("outputs", ())
    found = [one["data"]["image/png"] for one in outputs if "image/png" in one.get("data", ())]
    return str(found[0]) if found else ""
