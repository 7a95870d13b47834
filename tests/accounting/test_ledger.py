"""Accounting: losses against enumeration, filters against the best adversary, ledgers that
processes share.
"""

import copy
import errno
import json
import math
import os
import pickle
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

import dpsbi
import dpsbi.utils
from dpsbi.accounting import costs as acc
from dpsbi.accounting.costs import (
    ComposedLoss,
    Cost,
    Entry,
    GaussianFilter,
    Planned,
    Proof,
    RenyiFilter,
    Sum,
    ZCDPFilter,
)
from dpsbi.accounting.ledger import Ledger
from dpsbi.accounting.losses import (
    ApproximateLoss,
    DiscreteLaplaceLoss,
    GaussianLoss,
    LaplaceLoss,
    PureLoss,
    RenyiLoss,
    ZCDPLoss,
    gaussian_delta,
    upwards,
)
from dpsbi.runs.checkpoint import Checkpoint

LOSSES = [
    PureLoss(0.4),
    LaplaceLoss(0.7),
    DiscreteLaplaceLoss(2, 5.0),
    GaussianLoss(0.3),
    ZCDPLoss(0.05),
    RenyiLoss(0.02, 0.5),
    ApproximateLoss(0.3, 1e-6),
    ComposedLoss(((PureLoss(0.1), 5), (GaussianLoss(0.1), 3))),
]
BOUNDED = [loss for loss in LOSSES if loss.epsilon(0.0) < math.inf]


def entries(costs):
    return [Entry(cost, "release") for cost in costs]


# ---- losses


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_what_a_loss_says_is_consistent(loss):
    previous = math.inf
    for delta in (1e-9, 1e-6, 1e-3, 0.1):
        epsilon = loss.epsilon(delta)
        assert epsilon <= previous
        previous = epsilon
        if math.isfinite(epsilon) and delta > 1e-6:
            assert loss.delta(epsilon) <= delta * (1 + 1e-6)
    if loss.epsilon(0.0) < math.inf:
        assert (loss.renyi() <= loss.epsilon(0.0) * (1 + 1e-9)).all()
        assert loss.delta(loss.epsilon(0.0)) <= 1e-12
    assert (loss.renyi() <= loss.rho * acc.ORDERS * (1 + 1e-9)).all()


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_a_gaussian_of_its_mu_is_no_harder_to_tell(loss):
    if math.isfinite(loss.mu):
        for epsilon in np.linspace(0, 2, 11):
            assert loss.delta(epsilon) <= gaussian_delta(epsilon, loss.mu) * (1 + 1e-6) + 1e-12


@pytest.mark.parametrize("loss", BOUNDED + [GaussianLoss(0.3)], ids=repr)
def test_two_releases_together_are_no_dearer_than_their_sum(loss):
    twice = ComposedLoss(((loss, 2),))
    assert (
        loss.epsilon(1e-6)
        <= twice.epsilon(1e-6) * (1 + 1e-9)
        <= 2 * loss.epsilon(5e-7) * (1 + 1e-6)
    )


@pytest.mark.parametrize(
    "loss",
    [
        PureLoss(0.4),
        LaplaceLoss(0.7),
        DiscreteLaplaceLoss(2, 5.0),
        GaussianLoss(0.3),
        ZCDPLoss(0.05),
        ApproximateLoss(0.3, 1e-6),
    ],
    ids=repr,
)
def test_a_group_pays_more_than_one_and_no_less_than_it_must(loss):
    one, two = Cost.of(loss, 1e-6), Cost.of(loss, 1e-6).group(2)
    assert two.epsilon >= one.epsilon and two.delta >= one.delta
    for epsilon in (0.2, 0.5, 1.0):  # two steps, each (ε/2, δ'), are (ε, δ'(1 + e^{ε/2}))
        assert two.loss.delta(epsilon) <= loss.delta(epsilon / 2) * (1 + math.exp(epsilon / 2)) * (
            1 + 1e-9
        )


def test_discrete_laplace_by_enumeration():
    z = np.arange(-600, 600)
    for steps, scale in ((1, 1.0), (3, 2.5), (7, 20.0)):
        p, q = (np.exp(-np.abs(z - move) / scale) for move in (0, steps))
        loss = DiscreteLaplaceLoss(steps, scale)
        for epsilon in np.linspace(0, steps / scale, 13)[:-1]:
            assert loss.delta(epsilon) == pytest.approx(
                np.maximum(p - np.exp(epsilon) * q, 0).sum() / p.sum(), rel=1e-6
            )


def test_groups_by_their_own_mechanisms():
    "k records move a sum k times as far: the same noise, k times the sensitivity."
    for k in (2, 3, 10):
        assert GaussianLoss(0.3).group(k) == GaussianLoss(upwards(lambda read: k * read(0.3)))
        assert ZCDPLoss(0.05).group(k).rho == pytest.approx(GaussianLoss(k * math.sqrt(0.1)).rho)
        grown = upwards(lambda read: k * read(0.2))
        assert LaplaceLoss(0.2).group(k) == LaplaceLoss(grown)
        assert PureLoss(0.2).group(k) == PureLoss(grown)
        assert DiscreteLaplaceLoss(1, 4.0).group(k) == DiscreteLaplaceLoss(k, 4.0)
        grown = 1e-6 * math.expm1(0.3 * k) / math.expm1(0.3)  # the sum of δ e^{jε}, j < k
        assert ApproximateLoss(0.3, 1e-6).group(k).delta_0 == pytest.approx(grown, rel=1e-12)


@pytest.mark.parametrize(
    "loss, noise", [(GaussianLoss(0.7), stats.norm()), (LaplaceLoss(0.7), stats.laplace())]
)
def test_divergences_and_delta_by_quadrature(loss, noise):
    for order in (1.5, 2.0, 6.0):
        log_ratio = lambda y: noise.logpdf(y) - noise.logpdf(y - 0.7)
        inside = lambda y: math.exp(noise.logpdf(y) + (order - 1) * log_ratio(y))
        total = integrate.quad(inside, -60, 60, points=[-5, 0, 0.7, 5], limit=500)[0]
        assert float(loss.renyi(order)) == pytest.approx(math.log(total) / (order - 1), rel=1e-6)
    assert loss.rho == pytest.approx(float(loss.renyi(1 + 1e-6)), rel=1e-4)
    for epsilon in (0.0, 0.2, 0.6):
        excess = lambda y: max(noise.pdf(y) - math.exp(epsilon) * noise.pdf(y - 0.7), 0.0)
        total = integrate.quad(excess, -40, 40, points=[-5, 0, 0.35, 0.7, 5], limit=1000)[0]
        assert loss.delta(epsilon) == pytest.approx(total, rel=1e-5)


# ---- filters, against the adversary who sees every answer and chooses the best next cost

A, B = PureLoss(0.1), PureLoss(0.4)


def worst_delta(allowed, epsilon=1.0, broken=0.0):
    """The largest δ at ε that any adaptive sequence of randomised responses can reach; the loss is
    a multiple of 0.1.

    A third answer is pure (0.1) except with probability `broken`, when it tells all.
    """
    kinds = [(A, 1), (B, 4), (ApproximateLoss(0.1, broken), 1)][: 3 if broken else 2]
    paid = lru_cache(None)(
        lambda counts: allowed(
            [kind for (kind, _), times in zip(kinds, counts) for _ in range(times)]
        )
    )

    @lru_cache(None)
    def value(units, counts):
        best = max(-math.expm1(epsilon - units / 10), 0.0)
        for k, (kind, each) in enumerate(kinds):
            after = (*counts[:k], counts[k] + 1, *counts[k + 1 :])
            if paid(after):
                assert sum(after) < 200, "it pays for ever"
                up, lost = 1 / (1 + math.exp(-each / 10)), getattr(kind, "delta_0", 0.0)
                told = up * value(units + each, after) + (1 - up) * value(units - each, after)
                best = max(best, lost + (1 - lost) * told)
        return best

    sys.setrecursionlimit(20_000)
    return value(0, (0,) * len(kinds))


def passes(rule):
    costs = lambda losses: [
        Cost(loss.epsilon_0, getattr(loss, "delta_0", 0.0), loss) for loss in losses
    ]
    return lambda losses: rule.refusal(entries(costs(losses))) is None


def converted(rho, delta):
    return float(np.min(rho * acc.ORDERS + acc.conversion(delta)))


@pytest.mark.parametrize("epsilon, delta", [(1.0, 1e-2), (2.0, 1e-3)])
def test_no_adversary_gets_through_a_filter(epsilon, delta):
    suited = [RenyiFilter.suited(epsilon, delta, loss) for loss in (A, B)]
    rho = max(r for r in np.linspace(1e-4, 0.9, 9000) if converted(r, delta) <= epsilon)
    filters = [*suited, GaussianFilter(epsilon, delta), ZCDPFilter(float(rho))]
    worst = {rule: worst_delta(passes(rule), epsilon) for rule in filters}
    assert max(worst.values()) <= delta and worst_delta(passes(Sum(epsilon, delta)), epsilon) == 0
    assert max(worst.values()) > delta / 10, (
        f"little gets through: this test could hardly fail: {worst}"
    )


@pytest.mark.parametrize("broken", [1e-3, 2.5e-3])
def test_no_adversary_gets_through_with_a_delta_of_its_own(broken):
    for rule in (
        RenyiFilter.suited(1.0, 1e-2, A),
        RenyiFilter.suited(1.0, 1e-2, B),
        Sum(1.0, 1e-2),
    ):
        worst = worst_delta(passes(rule), 1.0, broken)
        assert broken <= worst <= 1e-2, rule


def test_the_adversary_finds_a_filter_that_undercharges():
    class Half(GaussianFilter):
        def total(self, losses):
            return super().total(losses) / 2

    assert worst_delta(passes(Half(1.0, 1e-2))) > 1e-2
    assert worst_delta(lambda losses: len(losses) <= 15) > 1e-2


def test_planned_is_what_enumeration_says():
    for a, b in ((30, 0), (0, 6), (12, 3)):
        p, q = np.ones(1), np.ones(1)
        for each, times in ((0.1, a), (0.4, b)):
            for _ in range(times):
                up = 1 / (1 + math.exp(-each))
                p, q = np.outer(p, [up, 1 - up]).ravel(), np.outer(q, [1 - up, up]).ravel()
                order = np.round(np.log(p / q), 9)
                levels, where = np.unique(order, return_inverse=True)
                p, q = np.bincount(where, p), np.bincount(where, q)
        epsilon = Planned(9.0, 1e-3).total([A] * a + [B] * b)
        exact = np.maximum(p - np.exp(epsilon) * q, 0).sum()
        assert exact <= 1e-3 * (1 + 1e-6)
        looser = 0.99 * epsilon
        assert np.maximum(p - np.exp(looser) * q, 0).sum() > 1e-3


@settings(max_examples=15)
@given(
    st.lists(st.sampled_from(range(len(LOSSES))), min_size=1, max_size=8),
    st.sampled_from([None, *acc.COMPOSITIONS]),
)
def test_a_ledger_never_grants_less_than_the_exact_loss(which, composition):
    ledger, granted = Ledger(1.5, 1e-5, composition=composition), []
    for loss in (LOSSES[k] for k in which):
        stated = Cost.of(loss, 0.0 if loss.epsilon(0.0) < math.inf else 1e-6)
        before = ledger.history
        if ledger.affords(stated):
            ledger.spend(stated, "release")
            granted.append(loss)
        else:
            with pytest.raises(dpsbi.BudgetError):
                ledger.spend(stated, "release")
            assert ledger.history == before
    known = [
        loss
        for loss in granted
        if isinstance(loss, (PureLoss, LaplaceLoss, DiscreteLaplaceLoss, GaussianLoss))
    ]
    if known:  # of these the loss is known; planned cannot be above what was granted
        assert acc.composed(known).epsilon(1e-5) <= 1.5 * (1 + 1e-6)


@given(st.lists(st.tuples(st.floats(0, 3), st.floats(0, 1)), max_size=20))
def test_a_sum_is_never_overdrawn(costs):
    ledger = Ledger(2.0, 0.5, composition="sum")
    for epsilon, delta in costs:
        try:
            ledger.spend(Cost(epsilon, delta), "try")
        except dpsbi.BudgetError:
            pass
    assert math.fsum(e.cost.epsilon for e in ledger.history) <= 2.0 * (1 + 1e-15)
    assert math.fsum(e.cost.delta for e in ledger.history) <= 0.5 * (1 + 1e-15)


def test_the_rule_is_chosen_by_the_first_cost_and_kept():
    chosen = {}
    for loss in LOSSES:
        ledger = Ledger(5.0, 1e-5)
        ledger.spend(Cost.of(loss, 0.0 if loss.epsilon(0.0) < math.inf else 1e-6), "first")
        chosen[type(loss).__name__] = ledger.composition
    assert chosen["GaussianLoss"] == "gaussian" and chosen["ApproximateLoss"] == "sum"
    assert {chosen[k] for k in ("PureLoss", "LaplaceLoss", "ZCDPLoss", "RenyiLoss")} == {"renyi"}
    ledger = Ledger(1.0, 1e-6)
    ledger.spend(Cost.of(GaussianLoss(0.05), 1e-6), "normal")
    with pytest.raises(dpsbi.BudgetError, match="composition='renyi'"):
        ledger.spend(Cost(0.1, 1e-8), "smooth")


def test_a_single_cost_can_take_the_whole_budget():
    for loss in LOSSES:
        delta = 0.0 if loss.epsilon(0.0) < math.inf else 1e-6
        cost = Cost.of(loss, delta)
        ledger = Ledger(cost.epsilon, 1e-6)
        ledger.spend(cost, "all of it")
        assert not ledger.affords(cost)


def test_pure_costs_sum_up_to_the_budget_under_every_rule():
    for composition in (None, *acc.COMPOSITIONS):
        ledger = Ledger(1.0, 1e-6, composition=composition)
        for k in range(10):
            ledger.spend(Cost(0.1), f"release {k}")
        assert 0.999 < ledger.spent.epsilon <= 1.0
        assert composition == "planned" or not ledger.affords(Cost(0.1))


def test_a_cost_with_a_delta_of_its_own_adds_up_beside_pure_ones():
    ledger = Ledger(1.0, 1e-6)
    ledger.spend(Cost(0.3), "pure")
    ledger.spend(Cost(0.6, 1e-7), "smooth")
    assert ledger.composition == "renyi" and ledger.spent == Cost(0.9, 1e-7)
    assert (
        ledger.affords(Cost(0.1))
        and not ledger.affords(Cost(0.2))
        and not ledger.affords(Cost(0.05, 5e-7))
    )


def test_links_to_one_file_are_one_ledger(tmp_path):
    (tmp_path / "link.json").symlink_to(tmp_path / "l.json")
    Ledger(1.0, path=tmp_path / "l.json").spend(Cost(0.4), "count")
    linked = Ledger(1.0, path=tmp_path / "link.json")
    linked.spend(Cost(0.4), "count")
    assert (tmp_path / "link.json").is_symlink() and len(
        Ledger(1.0, path=tmp_path / "l.json").history
    ) == 2


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_losses_that_make_no_sense(bad):
    for make in (
        PureLoss,
        LaplaceLoss,
        GaussianLoss,
        ZCDPLoss,
        lambda v: RenyiLoss(v, 0.0),
        lambda v: ApproximateLoss(0.1, v),
        lambda v: DiscreteLaplaceLoss(1, v),
    ):
        with pytest.raises(ValueError):
            make(bad)
    with pytest.raises(ValueError):
        ComposedLoss(())


# ---- settling


@dataclass(frozen=True)
class Stopped(Proof):
    used_epsilon: float
    granted = Cost(0.8)
    used = property(lambda self: Cost(self.used_epsilon))


def test_settling_takes_a_proof_of_this_entry_once():
    ledger = Ledger(1.0)
    paid = ledger.spend(Stopped.granted, "run")
    for wrong in (Cost(0.1), 0.1, None):
        with pytest.raises(TypeError, match="Proof"):
            ledger.settle(paid, wrong)
    settled = ledger.settle(paid, Stopped(0.2))
    assert ledger.remaining == Cost(0.8) and settled.granted == Cost(0.8)
    for entry, proof in (
        (paid, Stopped(0.1)),
        (settled, Stopped(0.9)),
        (ledger.spend(Cost(0.1), "other"), Stopped(0.05)),
    ):
        with pytest.raises(ValueError):
            ledger.settle(entry, proof)


def test_a_refund_is_for_sums_only():
    "Rényi divergences of what each output used do not make a filter: the grant stays charged."
    for composition in ("renyi", "gaussian", "planned"):
        ledger = Ledger(1.0, 1e-6, composition=composition)
        ledger.settle(ledger.spend(Stopped.granted, "run"), Stopped(0.2))
        assert ledger.spent == Cost(0.2)  # the route by pure sums
        assert ledger._book.rule.total([e.granted.loss for e in ledger.history]) == pytest.approx(
            ledger._book.rule.total([PureLoss(0.8)])
        )

    ledger = Ledger(1.2, 1e-6, composition="gaussian")
    ledger.settle(ledger.spend(Stopped.granted, "run"), Stopped(0.05))
    assert Ledger(1.2, 1e-6).affords(Cost.of(GaussianLoss(0.1), 1e-6))
    assert not ledger.affords(Cost.of(GaussianLoss(0.1), 1e-6))


# ---- on disk


def test_two_objects_on_one_path_see_each_other(tmp_path):
    one, other = Ledger(1.0, path=tmp_path / "l.json"), Ledger(1.0, path=tmp_path / "l.json")
    paid = one.spend(Stopped.granted, "run")
    with pytest.raises(dpsbi.BudgetError):
        other.spend(Cost(0.8), "the same")
    other.settle(paid, Stopped(0.3))
    other.spend(Cost(0.7), "the rest")
    assert one.history == other.history and one.remaining == Cost(0.0) and len(one.history) == 2


@pytest.mark.parametrize("composition", [None, *acc.COMPOSITIONS])
def test_a_ledger_survives_its_file(tmp_path, composition):
    path = tmp_path / "l.json"
    ledger = Ledger(9.0, 1e-3, composition=composition, path=path)
    losses = LOSSES[:3] if composition == "planned" else LOSSES  # whose totals are dear
    for loss in losses:
        cost = Cost.of(loss, 0.0 if loss.epsilon(0.0) < math.inf else 1e-6)
        if ledger.affords(cost):
            ledger.spend(cost, repr(loss), neighbours="replace", unit="person")
    again = Ledger(9.0, 1e-3, path=path)
    assert again.history == ledger.history and again.composition == ledger.composition
    assert [e.granted.loss for e in again.history] == [e.granted.loss for e in ledger.history]
    assert again.spent == ledger.spent and len(again.history) > 2
    rho = Ledger(rho=1.0, path=tmp_path / "rho.json")
    rho.spend(Cost.of(ZCDPLoss(0.4)), "counts")
    assert Ledger(rho=1.0, path=tmp_path / "rho.json").remaining.rho == pytest.approx(0.6)


def test_a_file_of_the_first_version_is_read_as_a_sum(tmp_path):
    path = tmp_path / "l.json"
    history = [dict(epsilon=0.25, delta=0.0, label="count", neighbours="replace", unit="person")]
    path.write_text(
        json.dumps(dict(format="dpsbi.Ledger", version=1, epsilon=1.0, delta=1e-6, history=history))
    )
    ledger = Ledger(1.0, 1e-6, path=path)
    ledger.spend(Cost(0.5, 1e-7), "more")
    assert ledger.spent == Cost(0.75, 1e-7) and ledger.composition == "sum"


def test_a_ledger_whose_file_vanishes_does_not_start_afresh(tmp_path):
    ledger = Ledger(1.0, path=tmp_path / "l.json")
    ledger.spend(Cost(0.5), "count")
    (tmp_path / "l.json").unlink()
    with pytest.raises(ValueError, match="gone"):
        ledger.spend(Cost(0.5), "count")


@pytest.mark.parametrize(
    "change",
    [
        dict(version=3),
        dict(history=[{}]),
        dict(epsilon="much"),
        dict(composition="mine"),
        dict(format="else"),
        dict(epsilon=0.1),
    ],
)
def test_a_broken_file_is_refused_and_left(tmp_path, change):
    path = tmp_path / "l.json"
    Ledger(1.0, path=path).spend(Cost(0.5), "count")
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    text = path.read_text()
    with pytest.raises(ValueError, match="not a ledger|budget"):
        Ledger(1.0, path=path)
    assert path.read_text() == text


def test_threads_share_a_budget(tmp_path):
    for path in (None, tmp_path / "l.json"):
        ledger, granted = Ledger(1.0, path=path), []

        def spend():
            for _ in range(10):
                try:
                    granted.append(ledger.spend(Cost(0.05), "thread"))
                except dpsbi.BudgetError:
                    pass

        threads = [threading.Thread(target=spend) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(granted) == 20 == len(ledger.history) and ledger.remaining == Cost(0.0)


def spend_all(path, label, log, begin, most):
    """Spends what is there, a little at a time; the log tells what was granted.

    One that has spent `most` times waits to be killed.
    """
    with log.open("w", buffering=1) as told:
        ledger = Ledger(1.0, path=path)
        begin.wait(120)
        with suppress(dpsbi.BudgetError):
            for _ in range(most):
                told.write(ledger.spend(Cost(0.01), label).key + "\n")
                time.sleep(0.02 * random.random())  # the other one has its turn
            signal.pause()


def keys_told(log):
    return {line for line in log.read_text().split("\n") if len(line) == 32}


def run_spenders(path, folder, seconds):
    """Two processes spend from one ledger, killed so many seconds after each had its first grant
    (None: when nothing is left); the keys they were granted.
    """
    logs = [folder / f"{k}.log" for k in range(2)]
    fork = get_context("fork")
    begin, most = fork.Barrier(2), 1000 if seconds is None else 20  # so that something is left
    about = [(path, f"process {k}", logs[k], begin, most) for k in range(2)]
    both = [fork.Process(target=spend_all, args=each) for each in about]
    for process, log in zip(both, logs):
        log.write_text("")
        process.start()
    if seconds is not None:
        deadline = time.monotonic() + 120
        while not all(map(keys_told, logs)):
            assert time.monotonic() < deadline, "the processes did not start"
            time.sleep(0.01)
        time.sleep(seconds)  # amid locks and writes
        for process in both:
            process.kill()
    for process in both:
        process.join(timeout=120)
        assert process.exitcode == (0 if seconds is None else -signal.SIGKILL)
    return keys_told(logs[0]) | keys_told(logs[1])


def test_processes_killed_at_random_overspend_nothing_and_forget_nothing(tmp_path):
    path, granted = tmp_path / "l.json", set()
    for seconds in (0.1, 0.25, None):
        granted |= run_spenders(path, tmp_path, seconds)
    ledger = Ledger(1.0, path=path)
    held = {e.key for e in ledger.history}
    assert len(held) == 100 and ledger.remaining == Cost(0.0)
    assert (
        granted <= held and len(granted) >= 96
    )  # at most one a killed process was written but never told
    assert {e.label for e in ledger.history} == {"process 0", "process 1"}


# ---- one ledger is not two: files that change under it, copies, forks

ALL, HALF = Cost(1.0), Cost(0.5)


def spends(ledger, cost=HALF):
    return ledger.spend(cost, "count")


def hard_link(ledger, folder):
    os.link(ledger.path, folder / "second name.json")


def named_twice_and_moved(ledger, folder):
    os.link(ledger.path, folder / "kept.json")
    ledger.path.unlink()
    os.link(folder / "kept.json", ledger.path)


def removed(ledger, _):
    ledger.path.unlink()


def folder_removed(ledger, _):
    shutil.rmtree(ledger.path.parent)


def removed_and_begun_anew(ledger, _):
    ledger.path.unlink()
    Ledger(1.0, path=ledger.path)


def another_in_its_place(ledger, folder):
    other = Ledger(1.0, path=folder / "other.json")
    os.replace(other.path, ledger.path)


def without_its_id(ledger, _):
    state = json.loads(ledger.path.read_text())
    del state["id"]
    ledger.path.write_text(json.dumps(state | dict(history=[])))


def backup(ledger, folder):
    shutil.copy(ledger.path, folder / "backup.json")
    spends(ledger, Cost(0.25))
    shutil.copy(folder / "backup.json", ledger.path)


def history_cut(ledger, _):
    spends(Ledger(1.0, path=ledger.path), Cost(0.25))  # seen by this process, not by `ledger`
    state = json.loads(ledger.path.read_text())
    ledger.path.write_text(json.dumps(state | dict(history=state["history"][1:])))


def copied_and_the_copy_spent(ledger, folder):
    shutil.copy(ledger.path, folder / "copy.json")
    spends(Ledger(1.0, path=folder / "copy.json"), Cost(0.25))


def emptied(ledger, _):
    ledger.path.write_bytes(b"")


def garbled(ledger, _):
    ledger.path.write_bytes(b"{")


def become_a_link(ledger, folder):
    os.replace(ledger.path, folder / "elsewhere.json")
    ledger.path.symlink_to(folder / "elsewhere.json")


def folder_become_a_link(ledger, folder):
    os.replace(ledger.path.parent, folder / "elsewhere")
    ledger.path.parent.symlink_to(folder / "elsewhere")


def become_a_folder(ledger, _):
    ledger.path.unlink()
    ledger.path.mkdir()


def become_a_pipe(ledger, _):
    ledger.path.unlink()
    os.mkfifo(ledger.path)


CHANGES = {
    hard_link: "2 names",
    named_twice_and_moved: "2 names",
    removed: "is gone",
    folder_removed: "gone|No such file",
    removed_and_begun_anew: "another ledger",
    another_in_its_place: "another ledger",
    without_its_id: "another ledger",
    backup: "lost entries",
    history_cut: "lost entries",
    copied_and_the_copy_spent: "lost entries",
    emptied: "empty",
    garbled: "not a ledger",
    become_a_link: "become a link",
    folder_become_a_link: "become a link",
    become_a_folder: "is a folder",
    become_a_pipe: "a pipe",
}


@pytest.mark.parametrize("spent", [False, True], ids=["unspent", "half spent"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_file_that_is_no_longer_the_ledger_is_refused(tmp_path, change, spent):
    (tmp_path / "own").mkdir()
    ledger = Ledger(1.0, path=tmp_path / "own/l.json")
    paid = spends(ledger, Stopped.granted) if spent else None
    if change in (backup, history_cut, copied_and_the_copy_spent) and spent:
        ledger.settle(paid, Stopped(0.25))
    change(ledger, tmp_path)
    before = ledger.path.read_bytes() if ledger.path.is_file() else None
    calls = [
        lambda: spends(ledger, Cost(0.125)),
        lambda: ledger.settle(paid, Stopped(0.125)),
        lambda: ledger.affords(Cost(0.125)),
        *(lambda name=name: getattr(ledger, name) for name in READ),
    ]
    for call in calls:
        with pytest.raises((ValueError, OSError), match=CHANGES[change]):
            call()
    assert "cannot be read" in repr(ledger)
    assert before == (ledger.path.read_bytes() if ledger.path.is_file() else None)


READ = ("spent", "remaining", "history", "composition")


@pytest.mark.parametrize("change", [hard_link, named_twice_and_moved, emptied, garbled])
def test_such_a_file_is_not_opened_either(tmp_path, change):
    ledger = Ledger(1.0, path=tmp_path / "l.json")
    change(ledger, tmp_path)
    with pytest.raises(ValueError, match=CHANGES[change]):
        Ledger(1.0, path=ledger.path)


def test_a_file_that_is_put_back_is_spent_from_again(tmp_path):
    ledger = Ledger(1.0, path=tmp_path / "l.json")
    for change in (hard_link, removed, emptied, become_a_link):
        spends(ledger, Cost(0.125))
        shutil.copy(ledger.path, tmp_path / "safe.json")
        change(ledger, tmp_path)
        with pytest.raises(ValueError):
            spends(ledger)
        os.replace(tmp_path / "safe.json", ledger.path)
        spends(ledger, Cost(0.125))
    assert ledger.remaining == Cost(0.0)


def test_an_opened_ledger_has_a_file_whose_absence_is_seen(tmp_path):
    for k, budget in enumerate((dict(epsilon=1.0), dict(epsilon=1.0, delta=1e-6), dict(rho=1.0))):
        ledger = Ledger(**budget, path=tmp_path / f"{k}.json")
        again = Ledger(**budget, path=ledger.path)
        assert again.composition == ledger.composition and again.history == ()
        ledger.path.unlink()
        for one in (ledger, again):
            with pytest.raises(ValueError, match="gone"):
                spends(one, Cost.of(ZCDPLoss(0.1)) if "rho" in budget else Cost(0.1))


def test_the_rule_of_an_unspent_file_is_decided_by_the_first_cost(tmp_path):
    path = tmp_path / "l.json"
    one, other = Ledger(2.0, 1e-6, path=path), Ledger(2.0, 1e-6, composition="planned", path=path)
    assert one.composition is None and json.loads(path.read_text())["composition"] is None
    one.spend(Cost.of(GaussianLoss(0.1), 1e-8), "normal")
    assert one.composition == "gaussian" == Ledger(2.0, 1e-6, path=path).composition
    with pytest.raises(ValueError, match="composes by 'gaussian', not 'planned'"):
        spends(other, Cost(0.1))


OLD = dict(format="dpsbi.Ledger", epsilon=1.0, delta=0.0)
LINE = dict(epsilon=0.25, delta=0.0, label="count", neighbours=None, unit=None)
SECOND = dict(
    cost=dict(epsilon=0.25, delta=0.0, loss=dict(kind="PureLoss", epsilon_0=0.25)),
    granted=dict(epsilon=0.5, delta=0.0, loss=dict(kind="PureLoss", epsilon_0=0.5)),
    label="count",
    neighbours="replace",
    unit="person",
    key="0123456789abcdef0123456789abcdef",
)  # as it was written before files had an id
NUMBERED = dict(rho=None, composition="sum", order=None)


@pytest.mark.parametrize("lines", [0, 1, 2])
@pytest.mark.parametrize("version", [1, 2])
def test_files_of_earlier_versions_are_read_and_get_an_id(tmp_path, version, lines):
    path = tmp_path / "l.json"
    own = [LINE] * lines if version == 1 else [SECOND, SECOND | dict(key="f" * 32)][:lines]
    more = {} if version == 1 else NUMBERED
    path.write_text(json.dumps(OLD | dict(version=version, history=own) | more))
    text, ledger, other = path.read_text(), Ledger(1.0, path=path), Ledger(1.0, path=path)
    assert ledger.spent == Cost(0.25 * lines) and path.read_text() == text
    assert len({e.key for e in ledger.history}) == lines and ledger.history == other.history
    spends(ledger, Cost(0.25))
    assert json.loads(path.read_text())["id"] and json.loads(path.read_text())["version"] == 2
    spends(other, Cost(0.25))
    assert ledger.history[:lines] == other.history[:lines] and len(ledger.history) == lines + 2
    path.write_text(text)
    for one in (ledger, other):
        with pytest.raises(ValueError, match="another ledger"):
            spends(one, Cost(0.25))


def remove_lock(ledger, _):
    Path(f"{ledger.path}.lock").unlink()


def replace_lock(ledger, _):
    remove_lock(ledger, _)
    Path(f"{ledger.path}.lock").touch()


def lock_away(ledger, folder):
    os.replace(f"{ledger.path}.lock", folder / "lock")


def write_in_between(ledger, _):
    ledger.path.write_text(ledger.path.read_text() + "\n")


MEANWHILE = [remove_lock, replace_lock, lock_away, write_in_between]
MEANWHILE += [hard_link, removed, emptied, garbled, another_in_its_place, become_a_link]


@pytest.mark.parametrize("change", MEANWHILE, ids=lambda change: change.__name__)
def test_nothing_is_granted_when_files_change_in_the_middle_of_a_spending(tmp_path, change):
    ledger = Ledger(1.0, path=tmp_path / "l.json")
    with ledger._book.held() as book:
        change(ledger, tmp_path)
        with pytest.raises(ValueError, match="nothing was granted"):
            book.write([*book.entries, Entry(HALF, "count")], book.rule)
    assert book.entries == []


@pytest.mark.parametrize("change", [remove_lock, replace_lock, lock_away])
def test_who_removes_the_lock_does_not_get_in(tmp_path, change):
    ledger = Ledger(1.0, path=tmp_path / "l.json", timeout=0.05)
    other = Ledger(1.0, path=tmp_path / "l.json", timeout=0.05)
    with ledger._book.held():
        change(ledger, tmp_path)
        with pytest.raises(TimeoutError, match=str(ledger.path)):
            spends(other)
    spends(other)


def test_a_file_that_may_only_be_read_is_a_ledger_of_who_may_replace_it(tmp_path):
    ledger = Ledger(1.0, path=tmp_path / "l.json")
    ledger.path.chmod(0o444)
    spends(ledger)
    assert ledger.remaining == HALF


def forked(call):
    "What `call` does in a forked process, in words."
    theirs, ours = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            said = f"granted {call()}"
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(ours, said.encode())
        os._exit(0)
    os.close(ours)
    with os.fdopen(theirs) as told:
        said = told.read()
    os.waitpid(child, 0)
    return said


def settled_once(ledger):
    paid = spends(ledger, Stopped.granted)
    return lambda: ledger.settle(paid, Stopped(0.125))


@pytest.mark.parametrize("at", ["birth", "after one spending"])
@pytest.mark.parametrize("name", ["spend", "settle", "affords", "read", "twice forked"])
def test_a_ledger_in_memory_is_spent_by_its_own_process_alone(name, at):
    ledger = Ledger(1.0)
    paid = spends(ledger, Stopped.granted) if at != "birth" or name == "settle" else None
    calls = {
        "spend": lambda: spends(ledger, Cost(0.125)),
        "settle": lambda: ledger.settle(paid, Stopped(0.125)),
        "affords": lambda: ledger.affords(Cost(0.125)),
        "read": lambda: (len(ledger.history), ledger.spent.epsilon, repr(ledger)),
        "twice forked": lambda: forked(lambda: spends(ledger, Cost(0.125))),
    }
    said = forked(calls[name])
    if name == "affords":
        assert said == "granted False" and ledger.affords(Cost(0.125))
    elif name == "read":
        assert said == f"granted {calls[name]()}"
    else:
        assert "give it a path" in said and "granted Entry" not in said
    spends(ledger, Cost(0.125))


def test_a_process_that_bears_the_number_of_the_first_does_not_own_its_ledger(monkeypatch):
    "Numbers of processes are used again, and begin anew in a container."
    number, ledger = os.getpid(), Ledger(1.0)

    def spend_under_the_number():
        os.getpid = lambda: number
        return spends(ledger)

    assert "give it a path" in forked(spend_under_the_number)


def test_a_ledger_in_a_file_is_shared_with_forked_processes(tmp_path):
    ledger = Ledger(1.0, path=tmp_path / "l.json")
    assert "granted Entry" in forked(lambda: spends(ledger))
    spends(ledger)
    assert "BudgetError" in forked(lambda: spends(ledger)) and len(ledger.history) == 2


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_a_lock_that_another_thread_holds_is_not_inherited(tmp_path, kind):
    path = tmp_path / "l.json" if kind == "file" else None
    ledger, inside, leave = Ledger(1.0, path=path, timeout=5), threading.Event(), threading.Event()

    def hold():
        with ledger._book.held():
            inside.set()
            leave.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait(20)
    if path is None:
        assert "give it a path" in forked(lambda: spends(ledger))
        leave.set()
    else:
        ledger._book.timeout = 0.1
        said = forked(lambda: spends(ledger))
        assert "TimeoutError: another process or thread holds the lock" in said  # in the parent
        ready, begun = os.pipe()
        child = os.fork()
        if child == 0:  # lives on, and holds nothing
            os.write(begun, b"x")
            time.sleep(20)
            os._exit(0)
        os.read(ready, 1)
        leave.set()
    thread.join(20)
    spends(ledger)
    if path is not None:
        assert "granted Entry" in forked(lambda: spends(ledger))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_killed_process_leaves_no_lock_to_those_that_it_forked(tmp_path):
    ledger, (ready, begun) = Ledger(1.0, path=tmp_path / "l.json", timeout=5), os.pipe()
    parent = os.fork()
    if parent == 0:
        try:
            inside = threading.Event()

            def hold():
                with ledger._book.held():
                    inside.set()
                    time.sleep(20)

            threading.Thread(target=hold, daemon=True).start()
            inside.wait(20)
            if child := os.fork():
                os.write(begun, f"{child}\n".encode())
            time.sleep(20)
        finally:
            os._exit(0)
    child = int(os.read(ready, 99))
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    try:
        spends(ledger)
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_lock_whose_file_is_removed_as_it_is_taken_is_not_taken(tmp_path, monkeypatch):
    path, take = tmp_path / "l.lock", dpsbi.utils._try_lock

    def removed_first(handle):
        monkeypatch.setattr(dpsbi.utils, "_try_lock", take)
        path.unlink()
        take(handle)

    monkeypatch.setattr(dpsbi.utils, "_try_lock", removed_first)
    with dpsbi.utils.locked(path, 1.0), pytest.raises(TimeoutError):
        with dpsbi.utils.locked(path, 0.05):
            pass


COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "in a list": lambda ledger: copy.deepcopy([ledger])[0],
    "book": lambda ledger: copy.copy(ledger._book),
    **{
        f"pickle {k}": lambda ledger, k=k: pickle.loads(pickle.dumps(ledger, k))
        for k in range(2, pickle.HIGHEST_PROTOCOL + 1)
    },
}


@pytest.mark.parametrize("make", COPIES.values(), ids=COPIES)
def test_a_copy_is_refused_in_memory_and_reopens_a_file(tmp_path, make):
    with pytest.raises(TypeError, match="give it a path"):
        make(Ledger(1.0))
    ledger = Ledger(1.0, path=tmp_path / "l.json")
    spends(ledger)
    again = make(ledger)
    if isinstance(again, Ledger):
        spends(again)
        assert ledger.remaining == Cost(0.0) and ledger.history == again.history
        ledger.path.unlink()
        for one in (again, make(ledger)):  # it does not begin a new one
            with pytest.raises(ValueError, match="gone"):
                spends(one)


def test_a_spawned_process_spends_from_the_same_file(tmp_path):
    ledger = Ledger(1.0, path=tmp_path / "l.json")
    code = "import pickle, sys; book, cost = pickle.load(sys.stdin.buffer); book.spend(cost, 'x')"
    sent = pickle.dumps((ledger, HALF))
    subprocess.run([sys.executable, "-c", code], input=sent, check=True, timeout=100)
    assert ledger.remaining == HALF


def test_a_path_is_the_same_from_every_folder(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    monkeypatch.chdir(tmp_path / "a")
    ledger = Ledger(1.0, path="l.json")
    monkeypatch.chdir(tmp_path)
    spends(ledger)
    for path in ("a/l.json", "./a/../a/l.json", "link/l.json", tmp_path / "link" / "l.json"):
        with pytest.raises(dpsbi.BudgetError):
            spends(Ledger(1.0, path=path), ALL)
    assert not (tmp_path / "l.json").exists() and len(ledger.history) == 1


# ---- a ledger that cannot be had says so, and soon


def device(kind):
    def make(folder):
        if kind == "fifo":
            os.mkfifo(folder / "x")
            return folder / "x"
        return Path(f"/dev/{kind}")

    return make


def socket_at(folder):
    socket.socket(socket.AF_UNIX).bind(str(folder / "x"))
    return folder / "x"


def touched(folder, *names):
    for name in names:
        (folder / name).write_text("x" if name == "x" else "")
    return folder / names[-1]


def lock_is(make):
    def path(folder):
        make(folder / "l.json.lock")
        return folder / "l.json"

    return path


def looped(folder):
    (folder / "loop").symlink_to(folder / "loop")
    return folder / "loop"


PLACES = {
    "a folder": (lambda folder: folder, "is a folder"),
    "the root": (lambda _: "/", "is a folder"),
    "here": (lambda _: ".", "is a folder"),
    "null": (device("null"), "device"),
    "full": (device("full"), "device"),
    "zero": (device("zero"), "device"),
    "a pipe": (device("fifo"), "pipe"),
    "a socket": (socket_at, "socket"),
    "below a file": (lambda folder: touched(folder, "x") / "l.json", "below a file"),
    "below that": (lambda folder: touched(folder, "x") / "y" / "l.json", "below a file"),
    "no folder": (lambda folder: folder / "no" / "l.json", "does not exist: make it"),
    "proc": (lambda _: "/proc/l.json", "cannot be written"),
    "proc's own": (lambda _: "/proc/self/l.json", "cannot be written"),
    "sys": (lambda _: "/sys/l.json", "cannot be written"),
    "a null byte": (lambda folder: f"{folder}/a\0b", "no path"),
    "no unicode": (lambda folder: f"{folder}/\ud8ff", "no path"),
    "long": (lambda folder: folder / ("n" * 300), "too long"),
    "long with its lock": (lambda folder: folder / ("n" * 252), "too long"),
    "long path": (lambda folder: str(folder) + "/n" * 3000, "too long"),
    "a loop": (looped, "no path|symbolic links"),
    "nothing": (lambda _: "", "empty"),
    "a number": (lambda _: 3, "str or a pathlib.Path"),
    "bytes": (lambda folder: os.fsencode(folder / "l.json"), "str or a pathlib.Path"),
    "an open file": (lambda folder: sys.stdin, "str or a pathlib.Path"),
    "an empty file": (lambda folder: touched(folder, "l.json"), "empty"),
    "text": (lambda folder: touched(folder, "x"), "not a ledger"),
    "a lock that is a folder": (lock_is(Path.mkdir), "lock .*cannot be made"),
    "a lock that is a link": (lock_is(lambda p: p.symlink_to("x")), "lock .*cannot be made"),
    "a lock that is a pipe": (lock_is(os.mkfifo), "is no lock"),
    "a lock that is text": (lock_is(lambda p: p.write_text("x")), "is no lock"),
}


@pytest.mark.parametrize("name", PLACES)
def test_what_is_wrong_with_a_path_is_said_at_once(tmp_path, name):
    make, words = PLACES[name]
    path, begun = make(tmp_path), time.monotonic()
    with pytest.raises((ValueError, TypeError, OSError), match=words) as caught:
        if str(path).startswith("/dev/") and tmp_path not in Path(path).parents:  # no fault writes
            dpsbi.utils.writable_place(path, "the ledger")
        else:
            Ledger(1.0, path=path)
    assert time.monotonic() - begun < 1.5 and not isinstance(caught.value, TimeoutError)
    said = str(caught.value).replace("\\", "")
    assert "[Errno" not in said and (not isinstance(path, Path) or str(path) in said)


FAILS = [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL, errno.EIO]


@pytest.mark.parametrize("number", FAILS, ids=errno.errorcode.get)
def test_a_file_system_without_locks_is_refused_at_once(tmp_path, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(dpsbi.utils, "_try_lock", refuse)
    with pytest.raises(OSError, match="cannot be locked.*a file system that holds locks") as caught:
        Ledger(1.0, path=tmp_path / "l.json")
    assert caught.value.errno == number


@pytest.mark.parametrize(
    "number", [errno.EACCES, errno.EROFS, errno.ENOSPC], ids=errno.errorcode.get
)
def test_a_folder_that_cannot_be_written_is_refused_at_once(tmp_path, monkeypatch, number):
    "Tests may run as root, whom no permission stops."

    def refuse(*_, **__):
        raise OSError(number, os.strerror(number))

    ledger = Ledger(1.0, path=tmp_path / "l.json")
    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(OSError, match="cannot be written"):
        Ledger(1.0, path=tmp_path / "l.json")
    monkeypatch.setattr("dpsbi.utils.os.open", refuse)
    with pytest.raises(OSError, match="the lock .* cannot be made"):
        spends(ledger)
    monkeypatch.undo()
    monkeypatch.setattr("tempfile.mkstemp", refuse)
    with pytest.raises(OSError, match="cannot be written, and so nothing was granted") as caught:
        spends(ledger)
    monkeypatch.undo()
    assert caught.value.errno == number
    assert ledger.spent == Cost(0.0)


@pytest.fixture
def held_elsewhere(tmp_path):
    "A ledger whose file another process holds until the test ends."
    ledger, (ready, begun) = Ledger(1.0, path=tmp_path / "l.json", timeout=0.05), os.pipe()
    child = os.fork()
    if child == 0:
        with ledger._book.held():
            os.write(begun, b"x")
            time.sleep(60)
        os._exit(0)
    os.read(ready, 1)
    yield ledger
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_a_ledger_that_another_process_holds_gives_up(held_elsewhere):
    ledger, path = held_elsewhere, held_elsewhere.path
    with pytest.raises(TimeoutError, match=rf"{path}.lock.*nothing was spent.*timeout="):
        Ledger(1.0, path=path, timeout=0)
    calls = [lambda: spends(ledger), lambda: ledger.affords(HALF)]
    for call in [*calls, *(lambda name=name: getattr(ledger, name) for name in READ)]:
        begun = time.monotonic()
        with pytest.raises(TimeoutError, match="another process"):
            call()
        assert 0.05 <= time.monotonic() - begun < 1
    ledger._book.timeout = 60.0
    begun = time.monotonic()
    assert "another process" in repr(ledger) and time.monotonic() - begun < 2
    assert not json.loads(path.read_text())["history"]


def test_it_says_what_it_waits_for(held_elsewhere, monkeypatch):
    path = held_elsewhere.path
    assert dpsbi.utils._SILENT_SECONDS == 2.0
    monkeypatch.setattr("dpsbi.utils._SILENT_SECONDS", 0.05)
    with pytest.warns(UserWarning, match=f"waiting for the lock {path}.lock") as said:
        with pytest.raises(TimeoutError):
            Ledger(1.0, path=path, timeout=0.2)
    assert len(said) == 1


def test_a_lock_that_comes_free_is_taken(tmp_path):
    path, leave = tmp_path / "l.json", threading.Event()
    ledger, inside = Ledger(1.0, path=path, timeout=20), threading.Event()

    def hold():
        with Ledger(1.0, path=path)._book.held():
            inside.set()
            leave.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait(20)
    threading.Timer(0.1, leave.set).start()
    spends(ledger)
    thread.join(20)
    assert ledger.remaining == HALF


def test_threads_of_one_ledger_wait_for_each_other_no_longer_than_they_may(tmp_path):
    for path in (None, tmp_path / "l.json"):
        ledger, said = Ledger(1.0, path=path, timeout=0.05), []

        def spend():
            try:
                spends(ledger)
            except TimeoutError as error:
                said.append(str(error))

        with ledger._book.held():
            thread = threading.Thread(target=spend)
            thread.start()
            thread.join(20)
        assert "another thread" in said[0] and ledger.spent == Cost(0.0)


@pytest.mark.parametrize("timeout", [-1, math.nan, math.inf, "60", None, True])
def test_a_timeout_is_a_number_of_seconds(timeout):
    with pytest.raises(ValueError, match="timeout"):
        Ledger(1.0, timeout=timeout)


@pytest.mark.parametrize("kind", ["fifo", "folder", "socket"])
def test_files_are_not_written_over_what_is_no_file(tmp_path, kind):
    path = dict(folder=lambda f: f, socket=socket_at, fifo=device("fifo"))[kind](tmp_path)
    before = path.stat().st_mode
    for write in (
        lambda: dpsbi.utils.write_atomically(path, b"x"),
        lambda: Checkpoint(path, {}).load(),
    ):
        with pytest.raises(OSError, match="give the path of a"):
            write()
    assert path.stat().st_mode == before


# ---- a payment, a proof and a budget are used once, by every door


def half_settled(how):
    "A ledger, two entries of one price, and two proofs; one entry is settled."
    ledger = Ledger(2.0, path=how)
    one, two = (ledger.spend(Stopped.granted, name) for name in ("one", "two"))
    proof, other = Stopped(0.8), Stopped(0.1)  # the first used all: its entry looks as before
    return ledger, one, two, proof, other, ledger.settle(one, proof)


AGAIN = {
    "as spend returned it": lambda l, one, two, proof, other, done: l.settle(one, other),
    "as settle returned it": lambda l, one, two, proof, other, done: l.settle(done, other),
    "with the same proof": lambda l, one, two, proof, other, done: l.settle(done, proof),
    "one proof for two": lambda l, one, two, proof, other, done: l.settle(two, proof),
    "a copy of the proof": lambda l, one, two, proof, other, done: l.settle(
        two, copy.deepcopy(proof)
    ),
    "a pickled proof": lambda l, one, two, proof, other, done: l.settle(
        two, pickle.loads(pickle.dumps(proof))
    ),
    "as the history has it": lambda l, one, two, proof, other, done: l.settle(l.history[0], other),
    "made unsettled by hand": lambda l, one, two, proof, other, done: l.settle(
        replace(done, settled=None), other
    ),
}


@pytest.mark.parametrize("kept", [False, True], ids=["memory", "file"])
@pytest.mark.parametrize("how", AGAIN)
def test_an_entry_and_a_proof_settle_once(how, kept, tmp_path):
    found = half_settled(tmp_path / "l.json" if kept else None)
    ledger = found[0]
    if kept:  # another object on the same file knows it too
        found = (Ledger(2.0, path=tmp_path / "l.json"), *found[1:])
    with pytest.raises(ValueError, match="settle"):
        AGAIN[how](*found)
    assert ledger.spent == Cost(1.6)
    found[0].settle(found[2], found[4])
    assert ledger.spent == Cost(0.9)


def test_an_older_file_shows_which_entries_were_settled(tmp_path):
    path = tmp_path / "l.json"
    ledger = Ledger(2.0, path=path)
    ledger.settle(ledger.spend(Stopped.granted, "run"), Stopped(0.2))
    state = json.loads(path.read_text())
    del state["history"][0]["settled"]
    path.write_text(json.dumps(state))
    again = Ledger(2.0, path=path)
    with pytest.raises(ValueError, match="settled already"):
        again.settle(again.history[0], Stopped(0.1))


@dataclass(frozen=True)
class Unwritten(PureLoss):
    "A loss that no file holds."


MIXED = {
    "other neighbours": (Cost(0.1), "add-remove", "person"),
    "another unit": (Cost(0.1), "replace", "day"),
    "both": (Cost(0.1), "add-remove", "day"),
    "too much": (Cost(1.9), "replace", "person"),
    "a δ": (Cost(0.1, 1e-9), "replace", "person"),
    "no ε": (Cost.of(ZCDPLoss(0.1)), "replace", "person"),
    "a loss that is not written": (Cost(0.1, loss=Unwritten(0.1)), "replace", "person"),
    "what fits": (Cost(0.1), "replace", "person"),
    "what says nothing": (Cost(0.1), None, None),
    "all that is left": (Cost(1.5), "replace", None),
}


@pytest.mark.parametrize("kept", [False, True], ids=["memory", "file"])
@pytest.mark.parametrize("what", MIXED)
def test_a_ledger_affords_what_it_would_be_spent_on(what, kept, tmp_path):
    ledger = Ledger(2.0, path=tmp_path / "l.json" if kept else None)
    ledger.spend(Cost(0.5), "first", "replace", "person")
    cost, *protects = MIXED[what]
    affords = ledger.affords(cost, *protects)
    try:
        ledger.spend(cost, what, *protects)
        assert affords and len(ledger.history) == 2
    except (ValueError, TypeError):
        assert not affords and len(ledger.history) == 1


@pytest.mark.parametrize("neighbours", ["nonsense", "Replace", "", 1, "addremove"])
def test_neighbours_are_checked_by_every_door(neighbours, tmp_path):
    for call in (Ledger(1.0).affords, lambda c, n: Ledger(1.0).spend(c, "x", n)):
        with pytest.raises(ValueError, match="neighbours must be"):
            call(Cost(0.1), neighbours)
    path = tmp_path / "l.json"
    Ledger(1.0, path=path).spend(Cost(0.1), "x", "replace", "person")
    text = path.read_text()
    path.write_text(text.replace('"replace"', json.dumps(neighbours)))
    with pytest.raises(ValueError, match="not a ledger"):
        Ledger(1.0, path=path)
    state = json.loads(text)
    state["history"].append(state["history"][0] | dict(unit="day", key="another"))
    path.write_text(json.dumps(state))
    with pytest.raises(ValueError, match="different neighbours or units"):
        Ledger(1.0, path=path)


@pytest.mark.parametrize("cost", [0.1, "0.1", None, PureLoss(0.1), (0.1, 0.0)], ids=repr)
def test_only_a_cost_is_paid(cost):
    ledger = Ledger(1.0)
    for call in (ledger.affords, lambda c: ledger.spend(c, "x")):
        with pytest.raises(TypeError, match="must be a dpsbi.Cost"):
            call(cost)
    assert ledger.history == ()
