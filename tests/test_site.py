"""The built site in a real browser: its search, its width on a phone, its pictures and formulas.

`make docs` first; then `pytest -m slow tests/test_site.py`.
"""

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import browser
import pytest

SITE = Path(__file__).resolve().parents[1] / "nbs" / "_build" / "html"
LACKING = browser.missing() or ("" if (SITE / "index.html").exists() else "needs `make docs`")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(LACKING), reason=LACKING)]
PHONE = dict(width=390, height=844, deviceScaleFactor=2, mobile=True)
PAGES = sorted(p.relative_to(SITE).as_posix() for p in SITE.rglob("*.html"))


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def site():
    "The address of the site, served on this machine alone."
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(SITE)))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    with browser.chromium(tmp_path_factory.mktemp("site")) as one:
        yield one


FOUND = """
return [...document.querySelectorAll('#search-results li a')].map(a => a.textContent);
"""


@pytest.mark.parametrize(
    "words, page", [("sparse vector", "The sparse vector technique"), ("zCDP", "Glossary")]
)
def test_search_finds_a_page(site, driver, words, page):
    driver.get(f"{site}/search.html?q={words.replace(' ', '+')}")
    titles = browser.until(lambda: driver.execute_script(FOUND), 60, "results")
    browser.until(lambda: page in driver.execute_script(FOUND), 30, f"{page} among {titles[:20]}")


def test_search_finds_nothing_where_there_is_nothing(site, driver):
    driver.get(f"{site}/search.html?q=xylophone")
    said = "return document.querySelector('#search-results').textContent;"
    text = browser.until(
        lambda: (t := driver.execute_script(said)) and "did not match" in t and t, 60, "an answer"
    )
    assert not driver.execute_script(FOUND), text


# The elements that stick out of the page, unless one around them in the article scrolls.
WIDE = """
const edge = document.documentElement.clientWidth + 1;
const held = one => {
    for (let p = one.parentElement; p.tagName !== 'ARTICLE'; p = p.parentElement)
        if (getComputedStyle(p).overflowX !== 'visible') return true;
    return false;
};
return [...document.querySelectorAll('article *')]
    .filter(one => one.getBoundingClientRect().right > edge && !held(one))
    .map(one => `${one.tagName}.${one.className} ${one.textContent.slice(0, 60)}`);
"""
READY = "return !window.MathJax || !MathJax.startup || !!MathJax.startup.document;"
BROKEN = """
return [...document.querySelectorAll('article img')]
    .filter(one => one.complete && one.naturalWidth === 0).map(one => one.src);
"""

TOO_WIDE = """
const article = document.querySelector('article');
article.insertAdjacentHTML('beforeend', '<p style="width: 600px">wide</p><img src="none.png">');
"""


def test_what_is_too_wide_is_seen(site, driver):
    "On the phone, where a paragraph of 600 pixels and a picture that is not there are added."
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    driver.get(f"{site}/index.html")
    assert not driver.execute_script(WIDE) + driver.execute_script(BROKEN)
    driver.execute_script(TOO_WIDE)
    assert driver.execute_script(WIDE) == ["P. wide"]
    browser.until(lambda: driver.execute_script(BROKEN), 10, "the missing picture")
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_no_page_is_wider_than_a_phone(site, driver):
    "Neither text, table, picture nor formula; every picture is there."
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    faults = {}
    for page in PAGES:
        driver.get(f"{site}/{page}")
        browser.until(lambda: driver.execute_script(READY), 60, f"formulas of {page}")
        found = driver.execute_script(WIDE) + driver.execute_script(BROKEN)
        if found:
            faults[page] = found[:3]
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert not faults, f"{len(faults)} of {len(PAGES)} pages: {faults}"
