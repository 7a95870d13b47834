"""Sets up .venv, a step at a time: says what it does and, where a step fails, what to do.

    python3 tests/install.py torch library   in this order, as `make` does

It reads settings.ini for the oldest Python that will do, and itself runs on any Python 3, so that
one that is too old hears of it. What a step said that failed goes to .venv/install.log.
"""

import os
import shutil
import subprocess
import sys
import threading
import time
from configparser import ConfigParser
from importlib.util import find_spec
from pathlib import Path

VENV, LOG = Path(".venv"), Path(".venv/install.log")
AGAIN = "Then the same command again: it goes on from here."
CPU = "https://download.pytorch.org/whl/cpu"
STEPS = {  # what to say, and what pip installs
    "torch": ("PyTorch: 200 MB to download, 1 or 2 minutes", [os.environ.get("TORCH", "torch")]),
    "library": (
        "the library, its tests and notebooks: some 300 MB to download, 1 to 3 minutes",
        ["-e", ".[all,dev]"],
    ),
    "docs": ("what the site needs: some 30 MB, half a minute", ["-e", ".[docs]"]),
    "dask": ("Dask and loky: some 10 MB, half a minute", ["-e", ".[dask]"]),
    "bench": ("sbi, pyABC and autodp: some 200 MB, 1 or 2 minutes", ["-e", ".[bench]"]),
}
REMEDIES = {  # what to do, by what was said
    ("No space left on device", "Disk quota exceeded"): (
        "The disk is full. All of it takes 2.3 GB here, and as much again for a while in the\n"
        "temporary folder, which TMPDIR=... moves. Make room. {again}"
    ),
    ("Connection", "name resolution", "ProxyError", "SSLError", "timed out", "Could not fetch"): (
        "pip did not reach a package index. Is there a network? Behind a proxy:\n"
        "    export HTTPS_PROXY=http://...\n"
        "With an index of your own:\n"
        "    export PIP_INDEX_URL=https://.../simple\n{again}"
    ),
    ("No matching distribution", "requires a different Python"): (
        "The package index has nothing for this computer and this Python. Try another Python:\n"
        "    make clean\n"
        "    make demo PYTHON=python3.12"
    ),
    ("Permission denied", "PermissionError"): (
        "This folder cannot be written. Copy it to where you may, and begin there."
    ),
    ("",): "All that was said stands in .venv/install.log. {again}",
}


class Failed(Exception):
    "What went wrong, and what to do."


def check_python():
    "Failed for a Python that cannot make the environment."
    settings = ConfigParser(delimiters=["="], interpolation=None)
    settings.read("settings.ini", encoding="utf-8")
    oldest = settings["DEFAULT"]["min_python"]
    here = "%d.%d" % sys.version_info[:2]
    if tuple(sys.version_info[:2]) < tuple(map(int, oldest.split("."))):
        raise Failed(
            f"Python {oldest} or later is needed; {sys.executable} is Python {here}.\n"
            "If another one is installed, name it:\n    make demo PYTHON=python3.12\n"
            "Else install one: apt-get install python3.12 python3.12-venv, brew install "
            "python@3.12, or https://www.python.org/downloads"
        )
    if find_spec("venv") is None or find_spec("ensurepip") is None:
        raise Failed(
            f"{sys.executable} lacks the module venv or ensurepip, which make virtual "
            f"environments.\nOn Debian and Ubuntu:  sudo apt-get install python{here}-venv\n{AGAIN}"
        )


def advice(said: str) -> str:
    "What to do about a step that failed, by what it said."
    known = (text for signs, text in REMEDIES.items() if any(sign in said for sign in signs))
    return next(known).format(again=AGAIN)


def run(command: list, label: str) -> None:
    "Runs a step; on a terminal its seconds go by. Failed, with what to do, if it fails."
    start, watched, lines = time.time(), sys.stdout.isatty(), []
    label = label[: shutil.get_terminal_size().columns - 16] if watched else label
    print(f"{label} ...", end="" if watched else "\n", flush=True)
    how = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    with subprocess.Popen(list(map(str, command)), **how) as process:
        listener = threading.Thread(target=lambda: lines.extend(process.stdout), daemon=True)
        listener.start()
        while listener.is_alive():
            listener.join(1)
            if watched:
                print(f"\r\033[K{label} ... {time.time() - start:.0f} s", end="", flush=True)
    seconds, said = f"{time.time() - start:.0f} s", "".join(lines)
    if process.returncode == 0:
        print(f"\r\033[K{label}: {seconds}" if watched else f"    done in {seconds}", flush=True)
        return
    LOG.write_text(said)
    last = "".join(f"    {line}" for line in lines[-6:])
    raise Failed(f"That failed after {seconds}. It said:\n\n{last}\n{advice(said)}")


def environment(label: str) -> Path:
    "The interpreter of .venv, which is made where there is none that works."
    python, quiet = VENV / "bin/python", subprocess.DEVNULL
    asked = [str(python), "-m", "pip", "--version"]
    if not python.exists() or subprocess.call(asked, stdout=quiet, stderr=quiet):
        check_python()
        VENV.mkdir(exist_ok=True)
        run([sys.executable, "-m", "venv", "--clear", VENV], label)
    return python


def set_up(parts: list) -> None:
    "All steps."
    whole = "library" in parts
    if whole:
        print("Setting up .venv, once: 2 to 5 minutes, and 2.3 GB of disk.", flush=True)
    total = len(parts) + whole
    python = environment(f"1/{total} a virtual environment: 10 seconds")
    for k, part in enumerate(parts, 1 + whole):
        what, wanted = STEPS[part]
        if part == "torch" and sys.platform == "linux" and not shutil.which("nvidia-smi"):
            if not any("INDEX_URL" in name for name in os.environ):
                print(
                    "    (There is no graphics card here. Where pip would fetch gigabytes of "
                    f"CUDA, stop it, and first:\n    export PIP_EXTRA_INDEX_URL={CPU})"
                )
        pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
        run([*pip, *wanted], f"{k}/{total} {what}")
    if whole:
        print("Set up. `make clean` removes it again.\n", flush=True)


if __name__ == "__main__":
    try:
        set_up(sys.argv[1:])
    except Failed as trouble:
        sys.exit(f"\n{trouble}")
    except KeyboardInterrupt:
        sys.exit(f"\nStopped. {AGAIN}")
