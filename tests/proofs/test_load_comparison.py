"""Contestants in turns: what the ratios say, and what the machine hides."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import attrs
import pytest

from amqp_broker.bench.run import Client, python_client
from amqp_broker.bench.settings import BenchSettings
from amqp_broker.conformance.load.__main__ import main
from amqp_broker.conformance.load.cases import BACKLOG, FILL_S, Case, ThroughBacklog
from amqp_broker.conformance.load.comparison import Comparison, Interval, Rules, interval_of
from amqp_broker.conformance.load.compiled_tree import CHECKOUT
from amqp_broker.conformance.load.sitting import Report, Sitting

QUICK = Rules(patience_s=0.0)


class Machine:
    """It is faster and slower from one turn to the next, and says in which order it was used."""

    def __init__(self, noise: float = 0.0) -> None:
        self.chance = random.Random(7)
        self.noise = noise
        self.speed = 1.0
        self.used: list[str] = []

    def turn(self, name: str) -> float:
        """The speed of now: it drifts by half from one turn to the next, and by `noise` within one."""
        if len(self.used) % 2 == 0:
            self.speed = self.chance.uniform(0.5, 1.5)
        self.used.append(name)
        return self.speed * self.chance.uniform(1 - self.noise, 1 + self.noise)


@attrs.frozen
class Figured:
    """A contestant without a broker: its port is its speed."""

    name: str
    speed: int
    starts_afresh: bool = True

    @contextmanager
    def sitting(self, client: Client, seconds: float) -> Iterator[Sitting]:
        """Nothing runs."""
        yield Sitting(BenchSettings(host=self.name, port=self.speed), client)


@attrs.frozen
class FiguredCase(Case):
    """Its figures come from the machine."""

    machine: Machine = attrs.field(factory=Machine)

    def sized(self, sitting: Sitting) -> dict[str, Any]:
        """Nothing runs."""
        return {}

    def warm_up(self, sitting: Sitting, changes: dict[str, Any]) -> None:
        """Nothing runs."""

    def once(self, sitting: Sitting, changes: dict[str, Any]) -> Report:
        """The speed of the contestant on the machine as it is now; a round trip takes the longer."""
        speed = sitting.base.port * self.machine.turn(sitting.base.host)
        return {self.rate: speed, self.latency: {"p50": 1e6 / speed}, "broker_us": 1.0, "clean": True}


def compared(machine: Machine, first: int, other: int, **changes: Any) -> Comparison:
    """A comparison of two speeds that has run."""
    case = FiguredCase("figured", changes, machine=machine)
    found = Comparison(case, [Figured("first", first), Figured("other", other)], python_client, QUICK)
    found.run()
    return found


@pytest.mark.parametrize(
    ("other", "verdict"), [(1_000, "no"), (1_500, "no"), (950, "SLOWER"), (980, "no"), (960, "SLOWER")]
)
@pytest.mark.parametrize("changes", [{}, {"rtt": True}], ids=["rate", "time"])
def test_only_the_ratios_of_a_turn_count(other: int, verdict: str, changes: dict[str, Any]) -> None:
    """The machine's speed changes threefold between turns, and nobody is slower for it."""
    found = compared(Machine(), 1_000, other, **changes)
    assert [QUICK.verdict(ratio) for ratio in found.ratios()] == [verdict]
    assert found.row()[3:6] == [f"{other / 1_000:.2f} ({other / 1_000:.2f} to {other / 1_000:.2f})",
                                "1.00 (1.00 to 1.00)", verdict]  # fmt: skip


def test_each_is_the_first_of_a_turn_as_often_as_the_other() -> None:
    """Whoever comes second meets a warmer machine."""
    machine = Machine()
    compared(machine, 1_000, 1_000)
    firsts = machine.used[::2]
    assert len(firsts) == QUICK.rounds * QUICK.turns
    assert firsts.count("first") == firsts.count("other")
    of_one_round = firsts[: QUICK.turns]
    assert all(one != other for one, other in pairwise(of_one_round))


def test_rounds_are_added_until_it_is_told() -> None:
    """A restless machine: 6 rounds do not tell, 30 neither, and it says so."""
    calm = compared(Machine(noise=0.01), 1_000, 1_000)
    assert len(calm.rounds[0]) < 12 and QUICK.verdict(calm.ratios()[0]) == "no"
    restless = compared(Machine(noise=0.9), 1_000, 1_000)
    assert len(restless.rounds[0]) == QUICK.most_rounds
    assert QUICK.verdict(restless.ratios()[0]) == ""


@pytest.mark.parametrize("count", [6, 7, 9, 12, 30])
def test_the_interval_holds_the_median_with_95_percent(count: int) -> None:
    """Of 4,000 samples of a skewed distribution whose median is known."""
    chance = random.Random(count)
    samples = ([chance.expovariate(1.0) for _ in range(count)] for _ in range(4_000))
    found = [interval_of(sample) for sample in samples]
    held = sum(one.low <= 0.6931 <= one.high for one in found) / len(found)
    assert 0.94 <= held
    # It is the narrowest of its kind: with one value less on each side it would not hold.
    if count > 7:
        assert held < 0.985


def test_the_interval_of_few_values_is_all_of_them() -> None:
    """Nothing is said that they do not hold."""
    assert interval_of([3.0, 1.0, 2.0]) == Interval(2.0, 1.0, 3.0)


def test_two_trees_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    """A small run from start to end, of this checkout beside itself."""
    options = ["--tables", "transactions", "--only", "10 postings, 16 live", "--seconds", "0.05",
               "--patience", "0", "--rounds", "1", "--turns", "1", "--most-rounds", "1",
               "--tolerance", "99"]  # fmt: skip
    assert main(["compare", f"old={CHECKOUT}", f"new={CHECKOUT}", *options]) == 0
    said, empty, head, _, row = capsys.readouterr().out.splitlines()
    assert "in turns" in said and not empty
    assert "old: a second (median)" in head and "new: times that" in head
    assert row.startswith("| 10 postings, 16 live |") and row.endswith("| no | 1 |")


def test_what_is_no_tree_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the folder that is missing."""
    with pytest.raises(SystemExit):
        main(["compare", str(tmp_path)])
    assert "is no checkout: it has no folder amqp_broker" in capsys.readouterr().err


def test_the_rate_of_a_short_run_is_not_believed() -> None:
    """What was there when the clock began looks endlessly fast: a count grows by tries only."""
    tried: list[int] = []

    def once(changes: dict[str, Any]) -> Report:
        tried.append(changes["count"])
        elapsed = max(1e-9, (changes["count"] - 1_000) / 50_000)  # a thousand are had for nothing
        return {"received_per_s": changes["count"] / elapsed, "elapsed_s": elapsed}

    sitting = Sitting(BenchSettings(host="none", port=1), python_client, seconds=1.0)
    found = sitting.sized({"durable": True}, "received_per_s", once, least=1_000)
    assert tried == [1_000, 20_000] and found["durable"]
    assert 50_000 <= found["count"] <= 55_000


@pytest.mark.parametrize("fill_s", [FILL_S - 1, FILL_S + 1])
def test_a_backlog_that_takes_long_to_fill_is_not_waited_for(fill_s: float) -> None:
    """It is filled for each run, and the others wait meanwhile."""

    class Measured(Sitting):
        def once(self, settings: BenchSettings, *_: Any, **__: Any) -> Report:
            rate = BACKLOG / fill_s
            return {"messages_per_second": rate, "elapsed_s": settings.count / rate}

    sitting = Measured(BenchSettings(host="none", port=1), python_client, seconds=1.0)
    case = ThroughBacklog("through", {})
    if fill_s < FILL_S:
        assert case.sized(sitting)["count"] == pytest.approx(BACKLOG / fill_s, abs=1)
    else:
        with pytest.raises(RuntimeError, match="to fill it would take 21 s"):
            case.sized(sitting)
