"""The three largest costs of a main path, of which 06_profile.ipynb tells.

python costs.py FOLDER PATH prints the row of one path, as JSON. The folder holds the reference
draws (../references, from here). Each path runs in a process of its own.
"""

import json
import re
import signal
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from dpsbi.analyst.importance.amis import importance
from dpsbi.bench.runs import OURS, commit
from dpsbi.bench.tasks import tasks
from dpsbi.checks.calibration import sbc

EVERY = 0.002


class Watch:
    "Processor seconds by function of this project, while it is open."

    def __enter__(self) -> "Watch":
        self.spent: Counter = Counter()
        self.began = self.last = process_time()
        signal.signal(signal.SIGPROF, self.look)
        signal.setitimer(signal.ITIMER_PROF, EVERY, EVERY)
        return self

    def look(self, number: int, frame: Any) -> None:
        "Books the seconds since the last look."
        now = process_time()
        while frame and "/dpsbi/" not in frame.f_code.co_filename:
            frame = frame.f_back
        self.spent[name_of(frame.f_code) if frame else "elsewhere"] += now - self.last
        self.last = now

    def __exit__(self, *error: Any) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        self.seconds = process_time() - self.began


def name_of(code: Any) -> str:
    "Module and function of a code object."
    module = code.co_filename.split("/dpsbi/")[-1].removesuffix(".py").replace("/", ".")
    return f"{module}: {code.co_qualname}"


def calibrated(folder: str | Path, rng: np.random.Generator) -> None:
    "A hundred calibration runs of importance sampling on one count."
    task = tasks(folder)["example_4"]()

    def method(release, model, rng):
        return importance(release, model, rng=rng, simulations=1000, progress=False)

    about = (method, task.model, task.release.query, task.release.mechanism)
    sbc(*about, replications=100, draws=50, rng=rng, progress=False)


PATHS = {
    "infer, 30 counts": ("counts_30", "infer"),
    "importance, 30 counts": ("counts_30", "importance"),
    "input_smc, 30 counts": ("counts_30", "input_smc"),
    "sppe, 30 counts": ("counts_30", "sppe"),
    "sppe, SIR": ("sir", "sppe"),
    "sple, 1 count": ("example_4", "sple"),
    "amortise, 30 counts": ("counts_30", "amortise"),
    "sbc": None,
}


def path_of(name: str, folder: str | Path) -> Callable[[], Any]:
    """What a path runs, ready to be called.

    Raises
    ------
    ValueError
        For a path that is not among PATHS.
    """
    if name not in PATHS:
        raise ValueError(f"path must be one of {'; '.join(PATHS)}, not {name!r}")
    rng, what = np.random.default_rng(1), PATHS[name]
    if what is None:
        return lambda: calibrated(folder, rng)
    task = tasks(folder)[what[0]]()
    return lambda: OURS[what[1]](task, 10_000, rng)


def costs(name: str, folder: str | Path) -> dict[str, Any]:
    "The row of one path: seconds in all, and of the three largest functions."
    run = path_of(name, folder)
    with warnings.catch_warnings(), Watch() as watch:
        warnings.simplefilter("ignore")
        run()
    return dict(path=name, seconds=watch.seconds, largest=watch.spent.most_common(3))


def import_costs() -> dict[str, Any]:
    "The row of the import of `infer`: seconds by library, as Python's own clock has them."
    command = [sys.executable, "-X", "importtime", "-c", "from dpsbi import infer"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    spent: Counter = Counter()
    for micro, library in re.findall(r"^import time:\s+(\d+) \|\s+\d+ \|\s+(\w+)", said, re.M):
        spent[library] += int(micro) / 1e6
    return dict(path="import infer", seconds=sum(spent.values()), largest=spent.most_common(3))


def main(arguments: Sequence[str]) -> None:
    "FOLDER and PATH: prints the row, as JSON, last."
    import torch

    torch.set_num_threads(1)
    folder, name = arguments
    row = costs(name, folder) if name in PATHS else import_costs()
    print("\n" + json.dumps(row | dict(date=str(date.today()), commit=commit())))


if __name__ == "__main__":
    main(sys.argv[1:])
