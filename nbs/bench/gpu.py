"""Times of a graphics card beside the processor of its machine, of which 07_gpu.ipynb tells.

python gpu.py FOLDER FILE [KIND ...] appends the rows, as JSON, to the file. The folder holds the
reference draws (../references, from here). Kinds: training, draws, simulator, method.
"""

import json
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from functools import partial
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from dpsbi.analyst.neural.amortise import amortise
from dpsbi.analyst.neural.flow import check_device
from dpsbi.analyst.neural.rnpe import rnpe
from dpsbi.analyst.neural.sple import sple
from dpsbi.analyst.neural.sppe import sppe
from dpsbi.analyst.neural.training import PRESETS, Descent, Shape, Training, fit
from dpsbi.bench.runs import commit, versions
from dpsbi.bench.tasks import tasks
from dpsbi.models.functions import _PRECISIONS
from dpsbi.models.model import Model
from dpsbi.simulators.seir import seir


def seconds(work: Callable[[], Any], device: str) -> float:
    "Seconds of a call, what it leaves running on the card included."
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    wait()
    start = perf_counter()
    work()
    wait()
    return perf_counter() - start


SHAPES = {**PRESETS, "wide": Shape(layers=8, hidden=256, blocks=2, bins=10)}


def pairs(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    "Parameters (n, 4), and values (n, 30) that bend with them."
    x, slopes = rng.standard_normal((n, 4)), np.random.default_rng(0).standard_normal((2, 4, 30))
    return x, x @ slopes[0] + 0.3 * x**2 @ slopes[1] + 0.3 * rng.standard_normal((n, 30))


def trained(shape: str, batch: int, device: str, steps: int) -> Any:
    "A fit of so many steps."
    rng = np.random.default_rng(1)
    drawn, descent = pairs(10 * batch, rng), Descent(steps, batch=batch)
    how = dict(flow=SHAPES[shape], descent=descent, device=device, progress=False)
    return fit(lambda g: drawn, pairs(4096, rng), rng=rng, **how)


def training_row(shape: str, batch: int, device: str) -> dict[str, Any]:
    "Milliseconds of a step, and seconds before the first: the least of three tries."
    once = partial(trained, shape, batch, device)
    few, many = (25, 225) if device == "cuda" else (5, 45 if batch <= 256 else 25)
    once(few)
    tries = [[seconds(partial(once, steps), device) for steps in (few, many)] for _ in range(3)]
    short, long = np.min(tries, axis=0)
    step = (long - short) / (many - few)
    about = dict(what="training", shape=shape, batch=batch, device=device, how="call by call")
    return about | dict(ms=1e3 * step, before=short - few * step)


def draws_row(shape: str, device: str) -> dict[str, Any]:
    "Draws and densities a second."
    flow = trained(shape, 256, "cpu", 5).flow.on(device)
    n, context = (500_000 if device == "cuda" else 20_000), pairs(1, np.random.default_rng(2))[1][0]
    rng = np.random.default_rng(3)
    x = flow.sample(n, context, rng)
    drawn = seconds(lambda: flow.sample(n, context, rng), device)
    evaluated = seconds(lambda: flow.log_prob(x, context), device)
    about = dict(what="draws", shape=shape, device=device)
    return about | dict(draws=n / drawn, densities=n / evaluated)


PERSONS, WEEKS = 100_000, 30


def outbreak(r0: Any, latent: Any, infectious: Any, initial: Any, generator: Any) -> Any:
    "New cases (B, 30)."
    I = torch.poisson(initial, generator).clamp(max=PERSONS)
    S, E, weeks = PERSONS - I, torch.zeros_like(I), []
    for _ in range(WEEKS):
        infected = torch.binomial(S, -torch.expm1(-r0 * I / infectious / PERSONS), generator)
        ill = torch.binomial(E, -torch.expm1(-1 / latent), generator)
        recovered = torch.binomial(I, -torch.expm1(-1 / infectious), generator)
        S, E, I = S - infected, E + infected - ill, I + ill - recovered
        weeks.append(ill)
    return torch.stack(weeks, 1)


def outbreaks(how: str, device: str) -> Model:
    "The model: by NumPy, or by tensors of this precision."
    by_numpy = seir(PERSONS, WEEKS)
    if how == "numpy":
        return by_numpy
    return Model.from_torch(outbreak, by_numpy.prior, device=device, precision=how, together=10**6)


def simulator_row(how: str, device: str) -> dict[str, Any]:
    "Epidemics a second."
    model, n = outbreaks(how, device), 1_000_000 if device == "cuda" else 100_000
    theta = model.prior.sample(n, np.random.default_rng(1))
    simulate = lambda: model.simulate(theta, np.random.default_rng(2))
    simulate()
    rate = n / seconds(simulate, device)
    return dict(what="simulator", how=how, device=device, simulations=rate)


def _estimated(task: Any, rng: Any, **how: Any) -> Any:
    "By `amortise`, and its posterior."
    given = task.release.query, task.release.mechanism, task.model
    return amortise(*given, rng=rng, **how).posterior(task.release, rng=rng)


def _given(method: Callable, task: Any, rng: Any, **how: Any) -> Any:
    return method(task.release, task.model, rng=rng, **how)


METHODS = {
    "amortise": ("counts_30", _estimated),
    "sppe": ("counts_30", partial(_given, sppe, rounds=10, simulations=1000)),
    "rnpe": ("counts_30", partial(_given, rnpe)),
    "sple": ("example_4", partial(_given, sple, rounds=5, simulations=2000)),
}
LARGE = Training(final_steps=2000, members=1, batch=4096, flow=SHAPES["wide"])


def method_row(name: str, device: str, folder: str | Path, **more: Any) -> dict[str, Any]:
    "Seconds, and errors of mean and standard deviation in those of the exact posterior."
    which, method = METHODS[name]
    task, found = tasks(folder)[which](), []
    exact = task.exact(np.random.default_rng(1))
    how = dict(device=device, progress=False) | more
    run = lambda: found.append(method(task, np.random.default_rng(1), **how))
    spent = seconds(run, device)
    sd = exact.std(axis=0)
    errors = np.abs(found[0].mean() - exact.mean(axis=0)) / sd, np.abs(found[0].std() / sd - 1)
    row = dict(what="method", method=name, device=device, size="large" if more else "usual")
    return row | dict(seconds=spent, mean=float(errors[0].max()), sd=float(errors[1].max()))


def plan(folder: str | Path) -> dict[str, list[Callable[[], dict[str, Any]]]]:
    "What makes each row, by kind."
    both, large = ("cuda", "cpu"), dict(simulations=500_000, training=LARGE)
    sizes = product(both, product(SHAPES, (256, 4096)))
    training = [partial(training_row, shape, batch, device) for device, (shape, batch) in sizes]
    draws = [partial(draws_row, shape, device) for device, shape in product(both, SHAPES)]
    forms = [*product(_PRECISIONS, both), ("numpy", "cpu")]
    methods = [partial(method_row, *each, folder) for each in product(METHODS, both)]
    return dict(
        training=training,
        draws=draws,
        simulator=[partial(simulator_row, *form) for form in forms],
        method=[partial(method_row, "amortise", "cuda", folder, **large), *methods],
    )


def rows(folder: str | Path, wanted: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Every row of the kinds wanted (default: all), one after the other; about seven minutes.

    Raises
    ------
    ValueError
        Where there is no graphics card.
    """
    check_device("cuda")
    planned = plan(folder)
    for kind in wanted or planned:
        for make in planned[kind]:
            yield make()


def main(arguments: Sequence[str]) -> None:
    """FOLDER and FILE: appends every row, as JSON, to the file.

    More words are the kinds of rows that are wanted: training, draws, simulator, method.
    """
    folder, file, *wanted = arguments
    warnings.simplefilter("ignore")
    card, today = torch.cuda.get_device_name(), str(date.today())
    about = dict(card=card, date=today, versions=versions(("torch", "numpy")), commit=commit())
    with open(file, "a") as kept:
        for row in rows(folder, wanted):
            print(row, flush=True)
            kept.write(json.dumps(row | about) + "\n")
            kept.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
