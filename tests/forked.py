"""A process for each notebook or file of tests, forked from one that has imported the rest.

To be imported before NumPy: processes share the processors here, and threads of each would wait for
one another, which made one test take 87 processor seconds instead of 13.
"""

import gc
import os
import resource
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

os.environ["OMP_NUM_THREADS"] = "1"
ROOT = Path(__file__).resolve().parent.parent
HEAVY = (
    "numpy scipy.stats scipy.optimize scipy.integrate pandas matplotlib.pyplot arviz"
    " sklearn.mixture numba torch nflows emcee opendp.prelude dp_accounting hypothesis mpmath"
    " torch._dynamo pytest nbdev.test nbformat sqlite3 IPython.core.magics.execution"
    " matplotlib_inline.backend_inline"
)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def notebook_files() -> list[Path]:
    "As nbdev finds them."
    kept = (ROOT / "nbs").rglob("*.ipynb")
    parts = {path: path.relative_to(ROOT).parts for path in kept}
    return sorted(path for path in parts if not any(p.startswith(("_", ".")) for p in parts[path]))


def processor_seconds() -> float:
    "Of this process, and of its children that have ended."
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def import_heavy() -> None:
    """Once for all items.

    What stands then is left out of every later collection of garbage, and pytest loads no plugin
    but its own: half a second and more of each file of tests.
    """
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    for name in HEAVY.split():
        import_module(name)
    gc.collect()
    gc.freeze()


def import_rooms() -> None:
    "Every module of the package."
    import dpsbi

    for module in walk_packages(dpsbi.__path__, "dpsbi."):
        import_module(module.name)


@dataclass(frozen=True)
class Item:
    "Something that passes or not: `work` returns what to say of its failure, or nothing."

    name: str
    work: Callable[[], str]


def started(item: Item, said: Path) -> int:
    "The number of a forked process that does the item, and writes what it says to a file."
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        sys.stdout = sys.stderr = said.open("w")
        os.dup2(sys.stdout.fileno(), 1)
        os.dup2(sys.stdout.fileno(), 2)
        trouble = item.work()
        print(trouble, flush=True)
        status = 1 if trouble else 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def pooled(items: list[Item], workers: int) -> Iterator[tuple[Item, bool, float, str]]:
    "(item, passed?, processor seconds, what it said) of each, as they end."
    waiting, running = list(items), {}
    with tempfile.TemporaryDirectory() as folder:
        while waiting or running:
            while waiting and len(running) < workers:
                item = waiting.pop(0)
                said = Path(folder, str(len(waiting)))
                running[started(item, said)] = item, said
            pid, status, used = os.wait4(-1, 0)
            if pid not in running:
                continue
            item, said = running.pop(pid)
            yield item, status == 0, used.ru_utime + used.ru_stime, said.read_text(errors="replace")
