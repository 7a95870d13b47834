"""Which stored picture was drawn by which code, so that one older than its source is seen.

    python tests/pictures.py                      puts pictures that were drawn anew on record
    python tests/pictures.py --drawn nbs/x.ipynb  all of that page, which has just been run
    python tests/pictures.py --list               names those that are older than their source

`tests/records/pictures.jsonl` has a row for each: a hash of the picture, and one of its cell's code
and of whether the page sets the style of the house. The first call leaves a row as it is where the
picture is the same, even if the code is another: then the picture is older than its source. Where
other code draws the same picture, to the bit, only whoever ran the page knows: the second call.
"""

import argparse
import ast
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from forked import ROOT, name_of, notebook_files
from slow_items import plain

PICTURES = ROOT / "tests/records/pictures.jsonl"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def parsed(source: str) -> ast.Module:
    "What runs of a cell, without magics."
    lines = (line for line in source.splitlines() if not line.lstrip().startswith(("%", "!")))
    return ast.parse("\n".join(lines))


def pictures_of(notebook: str) -> Iterator[tuple[str, str, str]]:
    "(cell, hash of its pictures, hash of what draws them) of a notebook's text."
    cells = [c for c in json.loads(notebook)["cells"] if c["cell_type"] == "code"]
    text = {cell["id"]: "".join(cell["source"]) for cell in cells}
    style = ["styled"] * any("figure_style()" in source for source in text.values())
    for cell in cells:
        shown = [o["data"] for o in cell["outputs"] if "image/png" in o.get("data", ())]
        if shown:
            drawn = "".join("".join(data["image/png"]) for data in shown)
            code = plain(parsed(text[cell["id"]]))
            yield cell["id"], _hash(drawn), _hash("\n".join([code, *style]))


def pictures() -> dict[str, dict[str, str]]:
    "The row of each stored picture, as it stands now, by its page and cell."
    return {
        f"{name_of(path)}#{cell}": dict(picture=picture, code=code)
        for path in notebook_files()
        for cell, picture, code in pictures_of(path.read_text(encoding="utf-8"))
    }


def recorded(path: Path = PICTURES) -> dict[str, dict[str, str]]:
    found = map(json.loads, path.read_text().splitlines()) if path.exists() else ()
    return {row.pop("what"): row for row in found}


def brought_up(now: dict, kept: dict, drawn: tuple[str, ...] = ()) -> dict:
    "The rows kept, with those that were drawn anew in the place of the old ones."

    def same(what):
        old = kept.get(what, {}).get("picture") == now[what]["picture"]
        return old and what.partition("#")[0] not in drawn

    return {what: kept[what] if same(what) else row for what, row in now.items()}


def older(now: dict, kept: dict) -> list[str]:
    "The pictures that other code drew than their cells have now."
    known = (w for w in now if kept.get(w, {}).get("picture") == now[w]["picture"])
    return sorted(what for what in known if kept[what]["code"] != now[what]["code"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--drawn", nargs="*", default=[], help="pages that have just been run")
    parser.add_argument("--list", action="store_true", help="name the pictures that are old")
    options, now = parser.parse_args(), pictures()
    kept = brought_up(now, recorded(), tuple(options.drawn))
    lines = [json.dumps(dict(what=what) | kept[what]) for what in sorted(kept)]
    PICTURES.write_text("".join(f"{line}\n" for line in lines))
    old = older(now, kept)
    if options.list:
        print("\n".join(old))
    elif old:
        print(f"{len(old)} pictures are older than their source: python tests/pictures.py --list")


if __name__ == "__main__":
    main()
