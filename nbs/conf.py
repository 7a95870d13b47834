"""The documentation site: Sphinx reads the notebooks as they are, with the outputs they hold; `make
docs` builds it.

Nothing here lists a notebook: the contents follow from the folders, the reference from each
notebook's `default_exp`.
"""

import ast
import json
import re
import sys
from configparser import ConfigParser
from pathlib import Path

NBS = Path(__file__).resolve().parent
ROOT = NBS.parent
sys.path.insert(0, str(ROOT))

settings = ConfigParser(delimiters=["="], interpolation=None)
settings.read(ROOT / "settings.ini", encoding="utf-8")
settings = dict(settings["DEFAULT"])

# ---- what Sphinx reads and how
project = html_title = settings["title"]
author, release, copyright = settings["author"], settings["version"], settings["copyright"]
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.mathjax"]
root_doc = "index"
include_patterns = ["**.ipynb", "_api/**"]
exclude_patterns = ["_build", "_static", "**/.ipynb_checkpoints"]
smartquotes = False
suppress_warnings = [
    "myst.header",
    "ref.python",
]  # a heading that skips a level; a type's name that two modules share

nb_execution_mode = "off"
nb_merge_streams = True
nb_render_markdown_format = "myst"  # formulas in Markdown outputs too
nb_ipywidgets_js = {}  # the default fetches scripts from a CDN
myst_enable_extensions = ["amsmath", "dollarmath", "html_image"]
myst_disable_syntax = [
    "myst_block_break",
    "myst_line_comment",
    "myst_target",
    "myst_role",
]  # as Jupyter shows it
myst_dmath_double_inline = True
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "none"  # types stand in the tables of parameters
add_module_names = False
python_maximum_signature_line_length = 90
toc_object_entries_show_parents = "hide"

# ---- how it looks; MathJax as SVG is a single file and needs no fonts, so that a page opened from
# disk is complete
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["dpsbi.css"]
html_show_sourcelink = html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
mathjax_path = "mathjax/tex-svg-full.js"
mathjax3_config = {"svg": {"fontCache": "global", "scale": 0.92}, "options": {"enableMenu": False}}


# ---- contents: every notebook once, folder by folder, in the order in which they can be read
ORDER = (
    "utils privacy accounting mechanisms runs distances mmd models posterior simulators owner "
    "analyst checks planning bench demo"
).split()  # a module imports from what stands before it
WITHIN_ANALYST = (
    "rqmc prior_data_conflict true_counts importance exact_abc em mcmc smc baselines filtering "
    "marginal guided neural refine predict compare engines infer"
).split()
CHAPTERS = {
    "Start here": ["tutorials/*.ipynb", "what_there_is.ipynb", "private_and_exact.ipynb"],
    "The method, in ten chapters": [
        "owner/*_laplace_difference.ipynb",
        "distances/*_mmd.ipynb",
        "owner/*_svt.ipynb",
        "owner/*_abcdp.ipynb",
        "analyst/*_exact_abc.ipynb",
        "analyst/em/*_mcem.ipynb",
        "analyst/*_rqmc.ipynb",
        "analyst/neural/*_sppe.ipynb",
        "analyst/neural/*_sple.ipynb",
        "cases/24_sir.ipynb",
        "cases/22_covid.ipynb",
    ],
    "Privacy and its cost": ["*_privacy.ipynb", "accounting/*.ipynb"],
    "Mechanisms": ["mechanisms/*.ipynb"],
    "Distances": ["distances/*.ipynb", "*_mmd.ipynb"],
    "Models": ["models/*_prior.ipynb", "models/*_model.ipynb", "models/*.ipynb"],
    "Posteriors": ["posterior/*_posterior.ipynb", "posterior/*.ipynb"],
    "Simulators": ["simulators/*.ipynb"],
    "For the data owner": ["owner/*.ipynb"],
    "For the analyst": ["analyst/*_infer.ipynb", "analyst/*_engines.ipynb"],
    "Weighting by the mechanism's density": [
        "analyst/*_exact_abc.ipynb",
        "analyst/importance/*.ipynb",
    ],
    "Maximum likelihood": ["analyst/em/*.ipynb"],
    "Data augmentation": ["analyst/mcmc/*.ipynb", "analyst/*_baselines.ipynb"],
    "Time series": ["analyst/filtering/*.ipynb"],
    "The simulator's random numbers": ["analyst/smc/*.ipynb", "analyst/marginal/*.ipynb"],
    "Neural posteriors and likelihoods": ["analyst/*_rqmc.ipynb", "analyst/neural/*.ipynb"],
    "Published counts": ["analyst/true_counts/*.ipynb"],
    "What to do with a posterior": ["analyst/**/*.ipynb"],
    "Checks": ["checks/*.ipynb"],
    "Planning": ["planning/*.ipynb"],
    "Benchmarks": ["benchmarks.ipynb", "bench/*.ipynb"],
    "Case studies": ["cases/*.ipynb"],
    "How runs are carried out": ["runs/*.ipynb", "[0-9]*.ipynb"],
    "Reading": [
        "glossary.ipynb",
        "gallery.ipynb",
        "papers.ipynb",
        "errata.ipynb",
        "**/*.ipynb",
    ],  # and whatever no chapter has claimed
}


def contents(nbs: Path = NBS) -> dict[str, list[str]]:
    """Caption -> document names of its notebooks in reading order; captions without notebooks are
    left out.
    """
    seen, chapters = {root_doc}, {}
    for caption, patterns in CHAPTERS.items():
        for path in (p for pattern in patterns for p in sorted(nbs.glob(pattern))):
            name = path.relative_to(nbs).with_suffix("").as_posix()
            if name not in seen and not re.search(r"(^|/)[._]", name):
                seen.add(name)
                chapters.setdefault(caption, []).append(name)
    return chapters


def toctree(names: list[str], caption: str = "") -> str:
    "A hidden table of contents; `glob` makes Sphinx look again when a notebook comes or goes."
    return "\n".join(
        [
            "```{toctree}",
            ":hidden:",
            ":glob:",
            f":caption: {caption}" if caption else "",
            "",
            *names,
            "```",
            "",
        ]
    )


# ---- notebooks: nbdev's directives steer the page and then go
DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*\|[ \t]*(.*)\n?", re.M)


def directives(source: str) -> tuple[list[str], str]:
    "The directives at the top of a cell, such as `export`, and the cell without them."
    found = []
    while match := DIRECTIVE.match(source := source.lstrip("\n")):
        found.append(match[1].strip())
        source = source[match.end() :]
    return found, source


def markdown(source: str, name: str) -> dict:
    "A cell of our own."
    return {"cell_type": "markdown", "id": name, "metadata": {}, "source": source}


def tidy(nb: dict, replace_default_exp=lambda module: None) -> dict:
    """The notebook as a reader wants it: no directives, no hidden cells; exported cells are tagged
    for the style sheet.
    """
    cells = []
    for cell in nb["cells"]:
        found, source = (
            directives("".join(cell["source"]))
            if cell["cell_type"] == "code"
            else ([], "".join(cell["source"]))
        )
        for module in (d.split()[1] for d in found if d.startswith("default_exp ")):
            if note := replace_default_exp(module):
                cells.append(markdown(note, "reference"))
        if {"hide", "include: false", "include:false"} & set(found) or (
            cell["cell_type"] == "code" and not source.strip()
        ):
            continue
        words = {d.replace(":", " ").split()[0] for d in found if d}
        tags = [
            tag
            for tag, names in {
                "export": {"export", "exports", "exporti"},
                "remove-input": {"hide_input", "echo"},
                "remove-output": {"hide_output", "output"},
            }.items()
            if words & names
        ]
        metadata = cell["metadata"] | {"tags": [*cell["metadata"].get("tags", []), *tags]}
        cells.append(cell | {"source": source, "metadata": metadata})
    return nb | {
        "cells": cells,
        "metadata": nb["metadata"]
        | {"language_info": {"name": "python", "pygments_lexer": "ipython3"}},
    }


def read_notebook(app, docname, text):
    """Sphinx event source-read: tidy the notebook, point to its reference page, and give the front
    page the contents.
    """
    if app.env.doc2path(docname).suffix != ".ipynb":
        return
    up = "../" * docname.count("/")

    def note(module):
        name = f"{settings['lib_name']}.{module}"
        if (NBS / "_api" / f"{name}.md").exists():
            return (
                f"*Source of the module [{name}]({up}_api/{name}.md): the cells with a "
                "coloured edge are its code.*"
            )

    nb = tidy(json.loads(text[0]), note)
    if docname == root_doc:
        trees = "\n".join(toctree(names, caption) for caption, names in contents().items())
        nb["cells"].append(
            markdown(trees + toctree(["_api/public", "_api/index"], "Reference"), "contents")
        )
    text[0] = json.dumps(nb)


# ---- reference: a page for each module that a notebook exports
def modules(nbs: Path = NBS) -> dict[str, list[tuple[str, str, Path]]]:
    "Caption -> (module, document name of its notebook, file) for the modules that exist."
    chapters = {}
    for caption, names in contents(nbs).items():
        for name in names:
            for cell in json.loads((nbs / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]:
                for directive in (
                    directives("".join(cell["source"]))[0] if cell["cell_type"] == "code" else ()
                ):
                    if directive.startswith("default_exp "):
                        room = f"{settings['lib_name']}.{directive.split()[1]}"
                        file = nbs.parent / (room.replace(".", "/") + ".py")
                        module = room.removesuffix(".__init__")
                        if file.exists():
                            chapters.setdefault(caption, []).append((module, name, file))
    return chapters


def public_names() -> str:
    """The page of all public names, by the folder that each is at home in; each with its signature,
    and its parameters as a table.
    """
    import dpsbi
    from dpsbi.mechanisms import kinds

    text = [
        "# The public names, with their parameters\n",
        "Everything that `import dpsbi` offers. "
        "[Is it private? Is it exact?](../private_and_exact.ipynb) asks two questions of each.\n",
    ]
    found = {}
    for name in sorted({*dpsbi.__all__, *kinds()}):
        folder = getattr(dpsbi, name).__module__.split(".")[1]
        found.setdefault(folder, []).append(name)
    for folder in [folder for folder in FOLDERS if folder in found] + sorted(
        found - FOLDERS.keys()
    ):
        text += [f"## {FOLDERS.get(folder, folder)}\n", *map(documented, found[folder])]
    return "\n".join(text)


FOLDERS = {
    "privacy": "Queries",
    "accounting": "Cost and ledger",
    "mechanisms": "Mechanisms and releases",
    "models": "Priors, models and state spaces",
    "posterior": "Posteriors",
    "owner": "The owner's side",
    "distances": "Distances",
    "analyst": "The analyst's side",
    "checks": "Checks",
    "planning": "Planning",
}


def documented(name: str) -> str:
    "The directive that documents a public name; its own entry stands on its module's page."
    kind = "class" if name[0].isupper() else "function"
    shown = ":members:", ":inherited-members: object, tuple", ":exclude-members: examples"
    members = "".join(f"\n   {option}" for option in shown) * (kind == "class")
    where = f"{settings['lib_name']}.{name}"
    return f"### {name}\n\n```{{eval-rst}}\n.. auto{kind}:: {where}\n   :no-index:{members}\n```\n"


def write_reference(app):
    """Sphinx event builder-inited: write nbs/_api/*.md (which git ignores), touching only what has
    changed.
    """
    pages, index = (
        {".gitignore": "*\n"},
        ["# Modules\n", "Each module is written and tested in the notebook of its name.\n"],
    )
    for caption, found in modules().items():
        index.append(f"## {caption}\n")
        for module, notebook, file in found:
            summary = (
                ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
            ).partition("\n")[0]
            index.append(f"- [{module}]({module}.md): {summary}")
            pages[f"{module}.md"] = (
                f"# {module}\n\n```{{eval-rst}}\n.. automodule:: {module}\n   :members:\n"
                "   :ignore-module-all:\n```\n\n"
                f"Derived, shown and tested in the notebook [{notebook}](../{notebook}.ipynb).\n"
            )
        index.append("")
    pages["public.md"] = public_names()
    pages["index.md"] = (
        "\n".join(index) + "\n" + toctree([m for found in modules().values() for m, _, _ in found])
    )
    folder = NBS / "_api"
    folder.mkdir(exist_ok=True)
    for stale in {p.name for p in folder.iterdir()} - set(pages):
        (folder / stale).unlink()
    for name, page in pages.items():
        if not (folder / name).exists() or (folder / name).read_text(encoding="utf-8") != page:
            (folder / name).write_text(page, encoding="utf-8")


def inline(match: re.Match) -> str:
    "A piece of code or of mathematics keeps its meaning; any other sign is literal."
    if code := match["code"]:
        return rf"\ ``{code}``\ "
    return rf"\ :math:`{match['math']}`\ " if match["math"] else "\\" + match[0]


SIGNS = re.compile(r"``?(?P<code>[^`]+)``?|\$(?P<math>[^$\n]+)\$|[\\*|_`]")


def paragraph(block: str) -> str:
    "A paragraph of plain text; what is indented, or typed at a prompt, stays as it is."
    lines = block.splitlines()
    if lines[0].startswith(">>>") or all(line[:1] == " " for line in lines):
        return "::\n\n" + "\n".join("    " + line for line in lines)
    text = SIGNS.sub(inline, "\n".join(map(str.strip, lines)))
    return re.sub(r"\n(?!- )", " ", text).replace("\n- ", "\n\n- ")


def prose(text: str) -> str:
    "Paragraphs, parted by empty lines."
    blocks = re.split(r"\n\s*\n", text.strip("\n"))
    return "\n\n".join(paragraph(block) for block in blocks if block.strip())


HEADING = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.M)  # of a section, as numpydoc has it
TABLES = {"Parameters", "Attributes", "Returns", "Yields", "Raises", "Warns"}


def entries(text: str) -> list[tuple[str, str, str]]:
    """The entries of a section: name, type and meaning. The second is empty for `Returns`, and
    where one line says all.
    """
    found = []
    for part in re.split(r"\n(?=\S)", text.strip("\n")):
        head, _, body = part.partition("\n")
        name, _, kind = head.partition(" : ")
        said = [kind, body] if body else ["", kind]
        found.append((name, *(" ".join(words.split()) for words in said)))
    return found


def table(title: str, text: str) -> str:
    "A section as a table of two or three columns."
    rows = entries(text)
    wide = any(kind for _, kind, _ in rows)
    cells = [(name, kind, said) if wide else (name, said) for name, kind, said in rows]
    lines = [f"**{title}**", "", ".. list-table::", "   :class: parameters"]
    lines += ["   :widths: " + ("20 25 55" if wide else "25 75"), ""]
    for row in cells:
        marks = ["   * - ", *["     - "] * (len(row) - 1)]
        said = [SIGNS.sub(inline, cell) for cell in row]
        said[0] = f"``{row[0]}``"
        lines += [mark + cell for mark, cell in zip(marks, said)]
    return "\n".join(lines)


def to_rst(docstring: str) -> str:
    """A docstring as reStructuredText: `code` and $math$ keep their meaning, all else is literal;
    indented blocks stay, and the sections of numpydoc become tables.
    """
    first, *rest = HEADING.split(docstring.strip("\n"))
    parts = [prose(first)]
    for title, text in zip(rest[::2], rest[1::2]):
        body = table(title, text) if title in TABLES else f"**{title}**\n\n{prose(text)}"
        parts.append(body if text.strip() else "")
    return "\n\n".join(part for part in parts if part)


SIGNATURE = re.compile(r"\w+\(.*\)", re.S)  # with which NumPy's compiled functions begin


def read_docstring(app, what, name, obj, options, lines):
    "Sphinx event autodoc-process-docstring."
    text = "\n".join(lines)
    if what == "method" and getattr(obj, "__module__", "").startswith("dpsbi.mechanisms."):
        from dpsbi.mechanisms.base import member_doc

        text = member_doc(obj)
    if "\n>>> " in text or ".. [1]" in text:  # NumPy's, taken over with its name
        first, _, rest = text.strip("\n").partition("\n\n")
        text = rest.partition("\n\n")[0] if SIGNATURE.fullmatch(first) else first
    lines[:] = [*to_rst(text).splitlines(), ""]


def drop_pages(app, env, added, changed, removed):
    "Sphinx event env-get-outdated: the page of a notebook that is gone goes too."
    for name in removed:
        Path(app.builder.get_outfilename(name)).unlink(missing_ok=True)
    return []


def refresh_side_bars(app, env):
    """Sphinx event env-updated: when a notebook comes, goes or changes its title, every page's side
    bar is out of date.
    """
    titles = {name: title.astext() for name, title in env.titles.items()}
    stale = titles != getattr(env, "dpsbi_titles", None)
    env.dpsbi_titles = titles
    return sorted(env.found_docs) if stale else []


# ---- the promise: a page loads nothing from the network
LOAD = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|embed|object|link)\b[^>]*?"""
    r"""\s(?:src|data|href)\s*=\s*["']?(?:https?:)?//[^>]*>"""
    r"""|@import\s+["'](?:https?:)?//[^"']*|url\(\s*["']?(?:https?:)?//[^)]*\)""",
    re.I,
)


def check_offline(app, exception):
    """Sphinx event build-finished: warn of each page or style sheet that would fetch a script,
    style, font or picture.
    """
    if exception or app.builder.format != "html":
        return
    from sphinx.util import logging

    pages = [Path(app.builder.get_outfilename(name)) for name in sorted(app.env.found_docs)]
    for path in [*pages, *Path(app.outdir, "_static").rglob("*.css")]:
        for match in LOAD.finditer(path.read_text(encoding="utf-8")):
            logging.getLogger(__name__).warning(
                "the site must work offline, but %s fetches %s", path.name, match[0]
            )


def setup(app):
    app.set_html_assets_policy(
        "always"
    )  # a title with a formula shows in the side bar of every page
    for event, handler in {
        "builder-inited": write_reference,
        "source-read": read_notebook,
        "autodoc-process-docstring": read_docstring,
        "env-get-outdated": drop_pages,
        "env-updated": refresh_side_bars,
        "build-finished": check_offline,
    }.items():
        app.connect(event, handler)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
