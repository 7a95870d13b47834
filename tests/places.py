"""The row that a new public name wants on the page of what is private, ready to be pasted.

python tests/places.py: `make export` ends with it.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def row(name: str, value) -> str:
    "The row of a public name on the page that says what is private; ? where only you can know."
    from dpsbi.mechanisms import Mechanism

    private, exact = "free: sees only what was published", "?"
    if isinstance(value, type):
        private = "free: holds no records"
    elif "ledger" in value.__code__.co_varnames:
        private = "pays: ?, before it reads"
    if isinstance(value, type) and issubclass(value, Mechanism):
        private, exact = price(value), "exact density and price"
    return f"nbs/private_and_exact.ipynb: | `{name}` | {private} | {exact} |"


def price(kind: type) -> str:
    "What a mechanism costs, in words, by its first example."
    example = next(iter(kind.examples().values()), None)
    if example is None:
        return "?"
    cost = example.mechanism.cost(example.query, example.delta)
    words = "(ε, δ)" if cost.delta else "pure ε"
    return words if hasattr(kind, "_prepare") else f"{words}; cannot be released"


def wanted() -> list[str]:
    "The rows that are missing from that page."
    import test_public_pages

    import dpsbi

    names = sorted(test_public_pages.PUBLIC - set(test_public_pages.SAID))
    return [row(name, getattr(dpsbi, name)) for name in names]


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    missing = wanted()
    if missing:
        print("The page wants a row each:", *missing, sep="\n  ")
