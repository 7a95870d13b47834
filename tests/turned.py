"""The page of sliders in a browser: what it draws, and how long a move of a slider takes."""

from base64 import b64decode
from io import BytesIO

from browser import READY, until
from matplotlib.image import imread

SLIDERS = ".jp-Notebook .widget-slider .noUi-handle"
DRAWN = """
const panel = window.jupyterapp.shell.currentWidget.content.widgets[arguments[0]].node;
const image = panel.querySelector('.jp-OutputArea img');
return image && image.complete && image.naturalWidth ? image.src : '';
"""
PRESS = """
const [index, which, key, patience, done] = arguments;
const area = window.jupyterapp.shell.currentWidget.content.widgets[index].node;
const source = () => (area.querySelector('.jp-OutputArea img') || {}).src;
const before = source(), start = performance.now();
const handle = document.querySelectorAll(SLIDERS)[which];
handle.focus();
handle.dispatchEvent(new KeyboardEvent('keydown', {key: key, bubbles: true, cancelable: true}));
const look = () => {
    const spent = (performance.now() - start) / 1000;
    if (source() && source() !== before) done(spent);
    else if (spent > patience) done(null);
    else requestAnimationFrame(look);
};
look();
""".replace("SLIDERS", repr(SLIDERS))
STOP = """
const done = arguments[0];
window.jupyterapp.shell.currentWidget.sessionContext.shutdown().then(() => done(true));
"""


def without_running(driver, address: str, notebook: str) -> None:
    "Opens a notebook and waits until it is there; no cell is run."
    driver.get(f"{address}/lab/tree/{notebook}?reset")
    until(lambda: driver.execute_script(READY), 180, f"the kernel of {notebook}")


def handles(driver) -> list:
    "What may be moved of the sliders on the page."
    return list(driver.execute_script(f"return document.querySelectorAll({SLIDERS!r});"))


def drawn(driver, index: int) -> str:
    "The picture that the browser shows below a cell, as an address with its data; or nothing."
    return str(driver.execute_script(DRAWN, index))


def pressed(driver, index: int, which: int, key: str, patience: float = 20) -> float | None:
    "Seconds from a key on a slider to another picture below the cell; None where none comes."
    driver.set_script_timeout(patience + 10)
    found = driver.execute_async_script(PRESS, index, which, key, patience)
    return None if found is None else float(found)


def halves_differ(one: str, other: str) -> list[bool]:
    "Of two pictures, as `drawn` gives them: whether the left, and the right half differ."
    shown = []
    for address in (one, other):
        picture = b64decode(address.split(",", 1)[1])
        shown.append(imread(BytesIO(picture), format="png"))
    middle = shown[0].shape[1] // 2
    top = shown[0].shape[0] // 8  # above it stands the title, which changes at every move
    parts = slice(None, middle), slice(middle, None)
    return [bool((shown[0][top:, part] != shown[1][top:, part]).any()) for part in parts]


def stop_kernel(driver) -> None:
    "Ends the kernel of the open notebook."
    driver.set_script_timeout(60)
    driver.execute_async_script(STOP)
