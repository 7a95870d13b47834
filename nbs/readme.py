"""Writes README.md from index.ipynb, with its outputs: python nbs/readme.py [--check]."""

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


if __name__ == "__main__":
    files = build()
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
