"""Wheel and source archive from a clean clone, installed where nothing of this tree is seen.

    python tests/package.py python3.11           with everything
    python tests/package.py python3.13 --core    without extras
    python tests/package.py python3.11 --lowest  with everything, at the lower pins of settings.ini

Builds both from a clone of the last commit, looks into them, installs the wheel into a fresh
environment, and from an empty folder imports every module, asks for the neural methods, infers, and
runs the demonstration; then builds a wheel from the source archive and compares it with the first.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

INSIDE = """
import importlib, json, pkgutil, sys
import numpy as np
import dpsbi
from dpsbi import *
from dpsbi.simulators import counts as counts

assert sys.prefix in dpsbi.__file__, dpsbi.__file__
core = sys.argv[1:] == ["core"]
ABSENT = "torch nflows emcee opendp arviz ipywidgets sbi pyabc autodp".split()
loaded, refused = 0, {}
for module in pkgutil.walk_packages(dpsbi.__path__, "dpsbi."):
    try:
        importlib.import_module(module.name)
        loaded += 1
    except ModuleNotFoundError as error:
        stated = "dpsbi[" in str(error) or error.name in ABSENT
        assert core and stated, (module.name, error)
        refused[module.name] = str(error)
for name in ("sppe", "sple", "amortise", "rnpe"):
    try:
        getattr(dpsbi, name)
        assert not core, name
    except ModuleNotFoundError as error:
        assert core and "dpsbi[neural]" in str(error), error
release = dpsbi.Release([37.4], counts.counting_query(), dpsbi.Laplace(5.0))
model = counts.gamma_poisson(25, 1)
found = dpsbi.infer(release, model, rng=np.random.default_rng(1), progress=False)
assert found.exact
if core:
    def asks_for(extra, call):
        try:
            call()
        except ModuleNotFoundError as error:
            assert f"dpsbi[{extra}]" in str(error), error
        else:
            raise AssertionError(extra)
    count = dpsbi.Query(lambda x: x.sum(axis=1, keepdims=True), 1, step=1)
    paid = np.ones(9), count, dpsbi.DiscreteLaplace(1.0), dpsbi.Ledger(2.0)
    asks_for("owner", lambda: dpsbi.release(*paid))
    asks_for("arviz", found.to_arviz)
print(json.dumps(dict(modules=loaded, refused=sorted(refused))))
"""


def ran(*words: str | Path, **more) -> str:
    "What a command prints; its last words in an error if it fails."
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, **more)
    if done.returncode:
        raise RuntimeError(f"{words}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout


def environment(python: str, folder: Path) -> Path:
    "The interpreter of a fresh virtual environment."
    ran(python, "-m", "venv", folder)
    return folder / "bin/python"


def built(interpreter: Path, clone: Path) -> tuple[Path, Path]:
    "Wheel and source archive of a clone."
    ran(interpreter, "-m", "pip", "install", "-q", "build")
    ran(interpreter, "-m", "build", "--outdir", clone / "dist", clone)
    (wheel,) = (clone / "dist").glob("*.whl")
    (archive,) = (clone / "dist").glob("*.tar.gz")
    return wheel, archive


def contents(wheel: Path) -> dict[str, int]:
    "Checksums of the files of a wheel, without those that describe it."
    with zipfile.ZipFile(wheel) as file:
        kept = [info for info in file.infolist() if ".dist-info/" not in info.filename]
    return {info.filename: info.CRC for info in kept}


def complete(wheel: Path, clone: Path) -> int:
    "How many files of the package are in the wheel: all that git knows, without nbdev's index."
    known = ran("git", "-C", clone, "ls-files", "dpsbi").splitlines()
    known.remove("dpsbi/_modidx.py")
    missing = set(known) - set(contents(wheel))
    if missing:
        raise RuntimeError(f"not in the wheel: {sorted(missing)}")
    return len(known)


def from_archive(interpreter: Path, archive: Path, folder: Path) -> dict[str, int]:
    "The contents of a wheel that is built from the source archive."
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    (tree,) = folder.iterdir()
    ran(interpreter, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder / "wheels", tree)
    (wheel,) = (folder / "wheels").glob("*.whl")
    return contents(wheel)


def at_lowest(requirement: str) -> str:
    "The lower pin of a requirement as its version."
    name, _, pins = requirement.partition(">=")
    return f"{name}=={pins.partition(',')[0]}" if pins else requirement


def installed(interpreter: Path, wheel: Path, options: argparse.Namespace) -> None:
    "The wheel alone, or with all extras, as new as there are or at the lower pins."
    pip = [interpreter, "-m", "pip", "install", "-q"]
    if options.core:
        ran(*pip, wheel)
    elif not options.lowest:
        ran(*pip, options.first or "pip")
        ran(*pip, f"{wheel}[all]")
    else:
        ran(*pip, "--no-deps", wheel)
        program = "from importlib.metadata import requires; print(*requires('dpsbi'), sep='\\n')"
        required = ran(interpreter, "-c", program).splitlines()
        wanted = [name for name in required if ";" not in name or "all" in name.partition(";")[2]]
        ran(*pip, *(at_lowest(name.partition(";")[0].strip()) for name in wanted))


def megabytes(folder: Path) -> int:
    return round(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6)


def versions(interpreter: Path) -> dict[str, str]:
    "Of all that is installed beside the package."
    listed = json.loads(ran(interpreter, "-m", "pip", "list", "--format", "json"))
    return {row["name"]: row["version"] for row in listed if row["name"] != "dpsbi"}


def tried(options: argparse.Namespace) -> dict:
    "A row of what was found; an error if anything is not as it should be."
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        clone, empty = folder / "clone", folder / "empty"
        empty.mkdir()
        ran("git", "clone", "-q", ROOT, clone)
        commit = ran("git", "-C", clone, "rev-parse", "--short", "HEAD").strip()
        builder = environment(options.python, folder / "builder")
        wheel, archive = built(builder, clone)
        files = complete(wheel, clone)
        again = from_archive(builder, archive, folder / "archive")
        if again != contents(wheel):
            raise RuntimeError("the source archive builds another wheel")
        user = environment(options.python, folder / "user")
        installed(user, wheel, options)
        plain = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
        plain["MPLBACKEND"] = "agg"
        words = ["core"] if options.core else []
        seen = json.loads(ran(user, "-c", INSIDE, *words, cwd=empty, env=plain).splitlines()[-1])
        row = dict(commit=commit, python=ran(user, "-V").split()[1], files=files, **seen)
        row |= dict(wheel=wheel.stat().st_size, archive=archive.stat().st_size)
        (packages,) = user.parent.parent.glob("lib/python*/site-packages")
        row |= {"MB installed": megabytes(packages)}
        if not options.core:
            said = ran(user, "-m", "dpsbi.demo", cwd=empty, env=plain)
            row["demo"] = said.strip().splitlines()[:3]
        return row | (dict(lowest=versions(user)) if options.lowest else {})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python", nargs="?", default=sys.executable)
    parser.add_argument("--core", action="store_true", help="without extras")
    parser.add_argument("--first", default="", help="to install before the rest, as torch==2.13.0")
    parser.add_argument("--lowest", action="store_true", help="at the lower pins")
    options = parser.parse_args()
    if not shutil.which(options.python):
        parser.error(f"there is no {options.python} here")
    print(json.dumps(tried(options), indent=1, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
