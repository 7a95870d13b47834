"""Writes README.md from index.ipynb, with its outputs, and takes dead sliders out of notebooks.

python nbs/readme.py [--check]
"""

import json
import re
import sys
from pathlib import Path

import nbformat
from nbconvert import MarkdownExporter

ROOT = Path(__file__).resolve().parent.parent
FIGURES = "nbs/_static/readme"  # the pictures of the README, named by their order


def build() -> dict[str, bytes]:
    "The files of the README: path -> content."
    notebook = nbformat.read(ROOT / "nbs/index.ipynb", as_version=4)
    notebook.metadata["language_info"] = {"name": "python"}  # so that code is coloured
    text, resources = MarkdownExporter().from_notebook_node(notebook)
    text = re.sub(
        r"<style scoped>.*?</style>\n", "", text, flags=re.DOTALL
    )  # pandas' table style, which GitHub shows as text
    text = re.sub(
        r"\]\((?!https?:|#)([^)]+\.ipynb[^)]*)\)", r"](nbs/\1)", text
    )  # links are relative to nbs/
    files = {}
    for number, (name, content) in enumerate(sorted(resources["outputs"].items()), 1):
        path = f"{FIGURES}/figure-{number}{Path(name).suffix}"
        text, files[path] = text.replace(f"({name})", f"({path})"), content
    note = "<!-- Written from nbs/index.ipynb by `make readme`; edit the notebook. -->\n\n"
    return {"README.md": (note + re.sub(r"\n{3,}", "\n\n", text).strip() + "\n").encode(), **files}


SLIDER = "application/vnd.jupyter.widget-view+json"


def without_sliders(text: str) -> str:
    "A notebook's text, without sliders in its outputs: they died with their kernel."
    if SLIDER not in text:
        return text
    notebook = json.loads(text)
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            output.get("data", {}).pop(SLIDER, None)
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def with_sliders() -> dict[str, bytes]:
    "The notebooks that have such outputs, by path: as they should be."
    found = {}
    for path in sorted((ROOT / "nbs").rglob("*.ipynb")):
        if "_build" in path.parts:
            continue
        text = path.read_text(encoding="utf-8")
        if (clean := without_sliders(text)) != text:
            found[str(path.relative_to(ROOT))] = clean.encode()
    return found


if __name__ == "__main__":
    files = build() | with_sliders()
    if "--check" in sys.argv:
        stale = [
            path
            for path, content in files.items()
            if not (ROOT / path).exists() or (ROOT / path).read_bytes() != content
        ]
        sys.exit(
            f"out of step with nbs/index.ipynb: {', '.join(stale)}; run make readme" if stale else 0
        )
    for path, content in files.items():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_bytes(content)
