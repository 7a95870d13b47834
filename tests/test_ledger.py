"""Accounting: losses against enumeration, filters against the best adversary, ledgers that
processes share.
"""

import json
import math
import random
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

import dpsbi
from dpsbi import accounting as acc
from dpsbi.accounting import (
    Cost,
    Entry,
    GaussianFilter,
    Planned,
    Proof,
    RenyiFilter,
    Sum,
    ZCDPFilter,
)
from dpsbi.composition import ComposedLoss
from dpsbi.conversions import upwards
from dpsbi.ledger import Ledger
from dpsbi.losses import (
    ApproximateLoss,
    DiscreteLaplaceLoss,
    GaussianLoss,
    LaplaceLoss,
    PureLoss,
    RenyiLoss,
    ZCDPLoss,
    gaussian_delta,
)

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
