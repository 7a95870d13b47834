"Last draws that are summed out, at the ends of their support, and counts that are certain."

import importlib
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import special, stats

from dpsbi import DiscreteLaplace, Model, Posterior, Prior, Query, Release
from dpsbi.analyst.engines import InferenceTask
from dpsbi.analyst.marginal import trace as last_draws
from dpsbi.analyst.marginal.rao_blackwell import marginal

NOISE = DiscreteLaplace(0.7)
IDENTITY = Query(lambda s: s, sensitivity=1.0, step=1)
SHARES = np.linspace(0, 1, 301)
PRIOR = Prior(share=stats.uniform(0, 1))


def tops(shares):
    return np.rint(30 * shares).astype(int)


def uniform_counts(theta, rng):
    return rng.integers(0, tops(theta), endpoint=True)


def binomial_counts(theta, rng):
    return rng.binomial(15, np.minimum(2 * theta, 1.0))


LAWS = {
    uniform_counts: lambda share: stats.randint(0, tops(share) + 1),
    binomial_counts: lambda share: stats.binom(15, min(2 * share, 1.0)),
}


@pytest.mark.parametrize("simulate", LAWS)
@pytest.mark.parametrize("value", [-1, 0, 13, 14, 29])
def test_summed_out_as_enumerated(simulate, value):
    "At each of 301 parameters; a count that is lost at an end shows at once under sharp noise."
    release = Release(np.array([float(value)]), IDENTITY, NOISE)
    found, _ = marginal(release, Model(PRIOR, simulate), np.random.default_rng(1))
    columns = found.model.simulate(SHARES[:, None], np.random.default_rng(2))
    by_sums = found.release.mechanism.log_prob(None, columns)

    counts = np.arange(60.0)
    seen = NOISE.log_prob(np.array([float(value)]), counts[:, None])
    with np.errstate(divide="ignore"):
        exact = [special.logsumexp(LAWS[simulate](share).logpmf(counts) + seen) for share in SHARES]
    assert np.allclose(by_sums, exact, rtol=1e-9)


@pytest.mark.parametrize("wrong", ["", "a later draw depends on a count"])
def test_counts_that_turn_out_not_to_be_last_are_not_summed_out(wrong, monkeypatch):
    room = importlib.import_module("dpsbi.analyst.engines")
    found = Posterior(np.zeros((9, 1)))
    monkeypatch.setattr(room, "_found", lambda *_: (found, ""))
    monkeypatch.setattr(room, "concluded", lambda *_: (found, wrong, 9))
    release = Release(np.array([13.0]), IDENTITY, NOISE)
    task = InferenceTask(release, Model(PRIOR, binomial_counts), 100, 5000, None, {}, {}, [])
    summed = room.marginal_engine(task, np.random.default_rng(1))
    assert summed is None if wrong else summed == (found, "")


def test_places_are_tried_in_their_order_and_not_in_that_of_their_hashes(monkeypatch):
    "Else another process, whose strings have other hashes, would make other draws of one seed."
    lasts = {j: SimpleNamespace(place=f"line {j}") for j in range(20)}
    tried, looked = [], SimpleNamespace(run=lambda *about: SimpleNamespace(tape=None))
    monkeypatch.setattr(last_draws, "_as_in", lambda base, place: tried.append(place))
    monkeypatch.setattr(last_draws, "_differs", lambda *about: False)
    last_draws._steering(looked, lasts, [(None, looked.run())])
    assert tried == [last.place for last in lasts.values()]
