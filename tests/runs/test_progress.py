"What is said while a run goes on: one bar for the whole of it, lines in a log, nothing if short."

import io
import pickle
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

import dpsbi
from dpsbi.analyst.engines import OneBar, is_attempt, why_left
from dpsbi.runs import running as running
from dpsbi.runs.running import Call, LogProgress, progress_bar

pytestmark = pytest.mark.filterwarnings("ignore:the result:UserWarning")


class Clock:
    "A clock that goes on by so many seconds whenever it is read."

    def __init__(self, step=0.0):
        self.now, self.step = 0.0, step

    def __call__(self):
        self.now += self.step
        return self.now


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(running, "clock", found)
    return found


class Terminal(io.StringIO):
    def isatty(self):
        return True


def in_a_notebook(monkeypatch):
    "What a notebook that a person has open displays, in a list that fills."
    from IPython import display

    shown, kernel = [], SimpleNamespace(_allow_stdin=True)
    monkeypatch.setattr(running, "_kernel", lambda: kernel)
    monkeypatch.setattr(display, "display", lambda found, **how: shown.append(found.data))
    return shown


def simulate(theta, rng):
    return theta[:, :1] + np.exp(theta[:, 1:]) * rng.normal(size=(len(theta), 4))


MODEL = dpsbi.Model(dpsbi.Prior(mean=stats.norm(0, 3), log_sd=stats.norm(0, 1)), simulate)
SORTED = dpsbi.Query(lambda x: np.sort(x, axis=1), sensitivity=1.0)
EASY, HARD = (
    dpsbi.Release([-1.2, 0.3, 1.1, 4.0], SORTED, dpsbi.Laplace(scale)) for scale in (2.0, 0.02)
)
LITTLE = dict(max_simulations=4000, target_ess=200, neural=False)


def found_by(release, model=MODEL, **how):
    return dpsbi.infer(release, model, rng=np.random.default_rng(1), **LITTLE | how)


def ends(history):
    return [line["engine"] for line in history if is_attempt(line)]


def test_a_quick_run_says_nothing_in_a_log(clock, capsys):
    found_by(EASY)
    said = capsys.readouterr()
    assert said.err == "" and said.out == ""


@pytest.mark.thorough
def test_a_long_run_says_in_a_log_which_engine_begins_and_how_it_ended(monkeypatch, capsys):
    monkeypatch.setattr(running, "DELAY", 0.0)
    history = found_by(HARD).info["history"]
    said = capsys.readouterr().err.splitlines()
    engines = ends(history)
    assert len(engines) >= 2  # weights, and then moves
    turns = [line for line in said[:-1] if " begins, " in line or " ended after " in line]
    wanted = [f"infer: {name} {does}" for name in engines for does in ("begins", "ended after")]
    assert len(turns) == len(wanted)
    assert all(line.startswith(start) for line, start in zip(turns, wanted))
    first = next(line for line in history if line["engine"] == engines[0])
    assert f"{first['simulations']:,} simulations: {why_left(first)}" in turns[1]
    made = sum(line["simulations"] for line in history)
    assert said[-1].startswith(f"infer: ended after {made:,} simulations and ")


def test_a_log_has_a_line_a_minute(clock, capsys):
    with progress_bar(1000, "moves", "simulations") as bar:
        assert isinstance(bar, LogProgress)
        for _ in range(20):
            clock.now += 10
            bar.update(25)
    said = capsys.readouterr().err.splitlines()
    assert said[0] == (
        "moves: 150 of 1,000 simulations (15 %) after 60 s, at most about 6 min more"
    )  # 850 at 2.5 a second are 340 seconds
    assert len(said) == 3
    assert said[2].startswith("moves: 450 of 1,000 simulations (45 %) after 3 min")


def test_the_time_left_follows_the_pace_of_the_last_minute(clock, capsys):
    with progress_bar(10_000, "moves", "simulations") as bar:
        for n in (5000, 10):
            clock.now += 60
            bar.update(n)
    assert "at most about 8 h 19 min more" in capsys.readouterr().err.splitlines()[1]


def test_another_engine_has_a_pace_of_its_own(clock, capsys):
    with progress_bar(10_000, "weights", "simulations") as bar:
        clock.now += 50
        bar.update(5000)
        bar.set_description_str("moves")
        clock.now += 10
        bar.update(10)
    assert "moves: 5,010 of 10,000" in (said := capsys.readouterr().err)
    assert said.endswith("at most about 83 min more\n")  # 4,990 at one a second


def test_a_minute_long_run_of_infer_says_how_far_it_is(monkeypatch, capsys):
    monkeypatch.setattr(running, "clock", Clock(step=0.5))
    found_by(EASY)
    said = [
        line for line in capsys.readouterr().err.splitlines() if " of 4,000 simulations" in line
    ]
    assert said and all("infer (" in line and "%" in line for line in said)


def paced(clock, seconds, faster=" Do otherwise.", updates=40, total=10_000, made=25):
    "A run whose updates take so many seconds each."
    history = []
    with OneBar(total, history, faster) as whole:
        for engine in ("weights", "moves"):
            with Call(progress=whole.named(engine)).bar(total, "", "simulations") as bar:
                for _ in range(updates):
                    clock.now += seconds
                    bar.update(made)
            line = dict(engine=engine, simulations=updates * made, ess=3.0, reason="it got nowhere")
            history.append(line)
    return history


def test_the_hint_comes_after_the_first_share_and_once(clock, capsys):
    paced(clock, 1.0)
    said = capsys.readouterr().err.splitlines()
    hints = [k for k, line in enumerate(said) if "Do otherwise." in line]
    assert hints == [1]  # after "weights begins": long before it has ended
    assert "at this pace the 9,850 simulations left would take about 7 min; " in said[1]
    assert sum("at this pace" in line for line in said) == 2  # each engine has a pace of its own
    assert "weights ended after 1,000 simulations: it got nowhere" in "\n".join(said)


def test_a_run_that_will_be_short_gets_no_advice(clock, capsys):
    paced(clock, 0.06)  # 10,000 take 24 seconds
    said = capsys.readouterr().err
    assert "begins" in said and "at this pace" not in said and "Do otherwise" not in said


def test_advice_fits_the_model():
    from dpsbi.analyst.infer import _HINT_INDEPENDENT, _HINT_STATE_SPACE, _HINT_VECTORISED, _faster

    def plain(mean, log_sd, rng):
        return rng.normal(mean, np.exp(log_sd), 4)

    by_row = dpsbi.Model.from_function(plain, MODEL.prior)
    apart = dpsbi.Model(MODEL.prior, simulate, independent=True)
    one = dpsbi.Release([1.0], SORTED, dpsbi.Laplace(0.02))
    assert _faster(HARD, MODEL) == _HINT_STATE_SPACE + _HINT_INDEPENDENT
    assert _faster(HARD, by_row) == _HINT_STATE_SPACE + _HINT_INDEPENDENT + _HINT_VECTORISED
    assert _faster(HARD, apart) == "" and _faster(one, MODEL) == ""


def test_what_a_checkpoint_holds_does_not_set_the_pace(clock, capsys):
    with OneBar(10_000, []) as whole:
        bar = Call(progress=whole.named("moves")).bar(10_000, "", "simulations")
        clock.now += 2.5
        bar.update(5000)  # all at once, from the file
        for _ in range(20):
            clock.now += 1
            bar.update(10)
    assert "the 4,900 simulations left would take about 8 min" in capsys.readouterr().err


def test_a_terminal_has_one_bar_for_the_whole_run(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(running, "DELAY", 0.0)
    made, before = [], running._bar_class().__init__

    def counted(bar, *args, **how):
        before(bar, *args, **how)
        made.extend([] if bar.disable else [bar])

    monkeypatch.setattr(running._bar_class(), "__init__", counted)
    history = found_by(HARD).info["history"]
    assert len(made) == 1 and made[0].n <= 4000
    said = terminal.getvalue()
    for engine in ends(history):
        assert f"infer ({engine}): " in said and f"infer: {engine} ended after " in said


def test_in_a_notebook_an_engine_is_left_in_grey_and_no_bar_in_red(monkeypatch):
    shown = in_a_notebook(monkeypatch)
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(running, "DELAY", 0.0)
    history = found_by(HARD).info["history"]
    grey = [each for each in shown if 'style="color: grey"' in each]
    left = [line for line in history if is_attempt(line)]
    assert len(grey) == len(left) >= 2
    for line, said in zip(left, grey):
        assert f"{line['engine']} ended after {line['simulations']:,} simulations: " in said


def test_a_bar_that_ends_early_is_complete_and_one_that_breaks_is_not(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress_bar(100, "search") as left:
        left.update(38)
    assert left.total == left.n == 38  # tqdm paints a bar red that is closed before its total
    with pytest.raises(KeyboardInterrupt), progress_bar(100, "search") as broken:
        broken.update(38)
        raise KeyboardInterrupt
    assert broken.total == 100


def test_reasons_are_escaped_in_a_notebook(monkeypatch):
    shown = in_a_notebook(monkeypatch)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress_bar(10, "demo") as bar:
        bar.say("R-hat < 1.01 & <b>", left=True)
    assert "R-hat &lt; 1.01 &amp; &lt;b&gt;" in shown[0]


def test_an_interrupt_says_no_end_and_is_raised(monkeypatch, capsys):
    monkeypatch.setattr(running, "DELAY", 0.0)
    calls = []

    def interrupted(theta, rng):
        calls.append(len(theta))
        if sum(calls) > 500:
            raise KeyboardInterrupt
        return simulate(theta, rng)

    with pytest.raises(KeyboardInterrupt):
        found_by(EASY, dpsbi.Model(MODEL.prior, interrupted))
    assert "infer: ended after" not in capsys.readouterr().err


def test_silence_is_silent(monkeypatch, capsys):
    monkeypatch.setattr(running, "clock", Clock(step=10.0))
    found_by(EASY, progress=False)
    said = capsys.readouterr()
    assert said.err == "" and said.out == ""


@pytest.mark.thorough
@pytest.mark.parametrize("executor", [False, True])
def test_a_run_that_speaks_gives_the_same_bits(monkeypatch, tmp_path, executor):
    from concurrent.futures import ThreadPoolExecutor

    quiet = found_by(EASY, progress=False)
    monkeypatch.setattr(running, "clock", Clock(step=0.5))
    with ThreadPoolExecutor(2) as pool:
        how = dict(executor=pool) if executor else dict(checkpoint=tmp_path / "run")
        for _ in range(2):  # the second time from what the first has saved
            loud = found_by(EASY, **how)
            assert np.array_equal(quiet.theta, loud.theta)
            assert np.array_equal(quiet.log_weights, loud.log_weights)
            kept = ("engine", "simulations", "reason")
            assert [[line.get(k) for k in kept] for line in quiet.info["history"]] == [
                [line.get(k) for k in kept] for line in loud.info["history"]
            ]


def test_steps_within_an_engine_are_shown_before_it_counts_them(clock):
    with OneBar(1000, []) as whole:
        call = Call(progress=whole.named("weights"))
        with call.bar(1000, "importance", "simulations") as bar:
            with Call(**call.silent).bar(200, "simulating", "simulations") as inner:
                inner.update(50)
                assert whole.made() == 50
                inner.update(150)
            assert whole.made() == 200
            bar.update(200)
            assert whole.made() == 200
            with Call(**call.silent).bar(9, "training", "steps") as inner:
                inner.update(9)
            assert whole.made() == 200
        assert whole.made() == 200
        whole.history.append(dict(engine="weights", simulations=210, ess=1.0))
        whole.open("moves", 100, "draws", 0)
        assert whole.made() == 210
    assert Call(progress=True).silent["progress"] is False


def test_simulations_behind_draws_are_counted(clock):
    with OneBar(1000, []) as whole:
        with Call(progress=whole.named("filter")).bar(10, "", "draws") as bar:
            bar.spent(64)
            bar.update(5)
            assert whole.made() == 64 and whole.shown.postfix == "5 of 10 draws"


def test_times_in_words():
    said = [running.human_time(s) for s in (0.4, 59, 119, 3600, 7500)]
    assert said == ["0 s", "59 s", "2 min", "60 min", "2 h 5 min"]


def test_a_model_of_known_structure_counts_its_simulations(monkeypatch, capsys):
    monkeypatch.setattr(running, "clock", Clock(step=20.0))

    def start(mean, rng):
        return mean + rng.normal(size=len(mean))

    def step(state, log_sd, rng):
        return state, state + np.exp(log_sd) * rng.normal(size=len(state))

    space = dpsbi.StateSpace.from_functions(start, step, MODEL.prior, [1, 2], vectorised=True)
    release = dpsbi.Release([0.3, 1.0], dpsbi.Query(lambda x: x, 1.0), dpsbi.Laplace(1.0))
    found_by(release, space, max_simulations=200_000)
    said = capsys.readouterr().err
    assert "infer: pseudo-marginal begins" in said
    told = [line for line in said.splitlines() if " of 200,000 simulations" in line]
    assert told and not any("infer (pseudo-marginal): 0 of" in line for line in told)


def test_help_lists_the_running_keywords_with_their_meaning():
    for function in (dpsbi.infer, dpsbi.importance, dpsbi.sbc):
        text = function.__doc__
        for name in running.keywords(function):
            entry = text.partition(f"\n{name} : ")[2] or text.partition(f"\n    {name} : ")[2]
            assert entry.splitlines()[1].startswith(("    ", "        ")), (function, name)
        assert text.index("\nReturns\n") > text.index("\nexecutor : ")
    assert pickle.loads(pickle.dumps(dpsbi.infer)) is dpsbi.infer
    assert running.explained(dpsbi.infer).__doc__.count("\nprogress : ") == 1
