"""Small wrongs in the code, one at a time: do the fast tests see each?

    python tests/mutants.py                 every mutant; a table of which test caught which
    python tests/mutants.py accounting      those of the modules that begin so
    python tests/mutants.py --jobs 2

Each mutant replaces one piece of text in a copy of the package, and runs the tests named with it.
Add your own: find a line whose error would cost somebody their privacy, or an analyst the truth.
"""
import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Mutant:
    "In `module`, `old` becomes `new`; `tests` must fail."
    module: str
    old: str
    new: str
    why: str
    tests: str = ""

    @property
    def where(self) -> Path:
        return Path("dpsbi", *self.module.split(".")).with_suffix(".py")


TESTS = {
    "accounting": "test_ledger.py",
}

MUTANTS = [
    Mutant("accounting", "np.log1p(-1 / order) - (math.log(delta)", "np.log1p(-1 / order) - (0.9 * math.log(delta)",
           "the Rényi conversion forgets a tenth of log δ"),
    Mutant("accounting", "np.logaddexp(0, e)) / (a - 1)", "np.logaddexp(0, e)) / a",
           "Rényi divergences of pure ε too small"),
    Mutant("accounting", "return self.epsilon_0 * math.tanh(self.epsilon_0 / 2)",
           "return self.epsilon_0 * math.tanh(self.epsilon_0 / 2) / 2", "half of ρ for pure ε"),
    Mutant("accounting", "return -2 * float(special.ndtri", "return -1.6 * float(special.ndtri",
           "μ of pure ε as if it were the variance's ε"),
    Mutant("accounting", "return max(-math.expm1((epsilon - self.ratio) / 2), 0.0)",
           "return max(-math.expm1((epsilon - self.ratio) / 2), 0.0) / 2", "half of δ of Laplace noise"),
    Mutant("accounting", "last = math.floor((self.steps - epsilon * self.scale) / 2)",
           "last = math.floor((self.steps - epsilon * self.scale) / 2) - 1", "an atom of the geometric left out"),
    Mutant("accounting", "        return self.mu**2 / 2", "        return self.mu**2 / 4", "half of ρ of normal noise"),
    Mutant("accounting", "math.fsum(times * loss.mu**2 for", "math.fsum(loss.mu**2 for", "repeats are free in μ"),
    Mutant("accounting", "return sum(times * loss.renyi(order)", "return sum(loss.renyi(order)",
           "repeats are free in Rényi divergences"),
    Mutant("accounting", "float(conversion(self.delta / 2, self.order))", "float(conversion(2 * self.delta, self.order))",
           "the Rényi filter spends δ twice"),
    Mutant("accounting", "mu = math.sqrt(math.fsum(loss.mu**2 for loss in losses))",
           "mu = max([loss.mu for loss in losses], default=0.0)", "only the largest μ is charged"),
    Mutant("accounting", "total = self.total([e.granted.loss for e in entries])\n        if total",
           "total = self.total([e.cost.loss for e in entries])\n        if total", "a filter takes refunds"),
    Mutant("accounting", "                or sum(as_written(e.cost.delta)", "                or 0 * sum(as_written(e.cost.delta)",
           "δ is not added up"),
    Mutant("accounting", "with self._lock, self._file_lock:", "with self._lock:", "no lock on the file"),
    Mutant("accounting", "        if self.path.exists():\n            self.rule", "        if not self.entries and self.path.exists():\n            self.rule",
           "what others spend is not read again"),
    Mutant("accounting", "if not isinstance(proof, Proof):", "if proof is None:", "anybody settles"),
    Mutant("accounting", "if proof.granted != entry.granted or not proof.used <= entry.cost:", "if False:",
           "the proof of another run settles"),
    Mutant("accounting", "return ZCDPLoss(size**2 * self.rho)", "return ZCDPLoss(size * self.rho)", "groups pay ρ once each"),
    Mutant("accounting", "return GaussianLoss(size * self.mu)", "return GaussianLoss(size**0.5 * self.mu)", "groups pay μ² once each"),
    Mutant("accounting", "math.exp(k * self.epsilon_0) for k in range(size)", "1 for k in range(size)", "δ of a group does not grow"),
    Mutant("accounting", "return _sum(c.epsilon if c.delta == 0 else", "return max(c.epsilon if c.delta == 0 else",
           "pure costs: the largest instead of the sum"),
]


def run(mutant: Mutant) -> tuple[Mutant, str]:
    "The first test that fails on a copy with this mutant; '' if none does."
    with tempfile.TemporaryDirectory() as folder:
        for part in ("dpsbi", "tests", "nbs/references", "pyproject.toml"):
            source, target = ROOT / part, Path(folder, part)
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                target.write_bytes(source.read_bytes())
        path = Path(folder) / mutant.where
        text = path.read_text()
        if text.count(mutant.old) != 1:
            return mutant, f"NOT A MUTANT: its text stands {text.count(mutant.old)} times in {mutant.where}"
        path.write_text(text.replace(mutant.old, mutant.new))
        tests = [f"tests/{name}" for name in (mutant.tests or TESTS[mutant.module]).split()]
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode > 1:
        return mutant, f"NOT A MUTANT: the tests did not run\n{done.stdout[-2000:]}{done.stderr[-1000:]}"
    found = re.search(r"^(?:FAILED|ERROR) tests/(\S+)", done.stdout, re.M)
    return mutant, found.group(1) if found else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", help="only modules whose name begins so")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    chosen = [m for m in MUTANTS if not options.modules or m.module.startswith(tuple(options.modules))]
    missed = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for mutant, caught in pool.map(run, chosen):
            bad = not caught or caught.startswith("NOT")
            missed += bad
            print(f"{'MISSED ' if bad else 'caught '} {mutant.module}: {mutant.why}  [{caught}]", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} mutants caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
