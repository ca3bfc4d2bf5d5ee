"""The report is one well-formed page whose first word is the verdict."""

from __future__ import annotations

import io
import re
import threading
import xml.etree.ElementTree as ElementTree
from typing import Any

import attrs
import pytest

from amqp_broker.pipeline.audit_result import AuditResult, Finding, Kind, text_of
from amqp_broker.pipeline.progress import Progress
from amqp_broker.pipeline.report import page
from amqp_broker.plots import Plot, bars, lines, short, ticks

LOG = {"first_lsn": 1, "last_lsn": 9, "begin": "morning", "end": "evening", "events": 9, "step_s": 60}


def step(address: str, at: int, **numbers: Any) -> dict[str, Any]:
    """A row of the table of traffic."""
    row = dict.fromkeys(("came", "bytes", "went", "redelivered", "backlog"), 1)
    row |= dict.fromkeys(("p50_ms", "p95_ms", "p99_ms", "max_ms"), 2)
    return {"address": address, "step": at, **row, **numbers}


def result(*kinds: Kind, **fields: Any) -> AuditResult:
    """What an audit came to."""
    return AuditResult("archive", LOG, 4, {"ledger": 1.0}, kinds, **fields)


def kind(severity: str, count: int = 1) -> Kind:
    """Findings of a kind, with a key that a page has to escape."""
    return Kind("ledger", "lost", severity, count, (Finding("<orders> offset 3", "no end", "lsn 5"),))


@pytest.mark.parametrize(
    ("kinds", "verdict"),
    [([], "PASS"), ([kind("warning")], "PASS"), ([kind("fault"), kind("warning")], "FAIL")],
)
def test_the_verdict_stands_first(kinds: list[Kind], verdict: str) -> None:
    """A fault is FAIL, a warning is not; the page and the text begin with it."""
    made = result(*kinds)
    assert text_of(made).startswith(f"{verdict}: ")
    text = re.sub(r"<style>.*?</style>|<script>.*?</script>|<[^>]*>", " ", page(made)).split()
    assert text[0] == f"{verdict}:"  # the title of the window
    assert re.findall(r"<h1>(.*?)</h1>", page(made)) == [verdict]


def test_findings_are_shown_with_their_counter_examples_and_escaped() -> None:
    """How many there are, the first of them, and no markup of theirs."""
    made = page(result(kind("fault", 1200)))
    assert "&lt;orders&gt; offset 3" in made and "<orders>" not in made
    assert "1,200" in made and "and 1,199 more" in made


def test_every_plot_is_well_formed_and_needs_nothing_else() -> None:
    """All SVG of a page with traffic parses, and the page refers to nothing outside."""
    rows = [step("a", 100), step("b & c", 100), step("a", 900, went=0, p95_ms=None)]
    made = page(
        result(
            steps=tuple(rows),
            resolvers=({"resolver": "check", "outcome": "committed", "n": 3, "checks": 4,
                        "p50_ms": 1.0, "p95_ms": 2.0, "p99_ms": 3.0},),
            deaths=({"address": "a", "reason": "<none>", "n": 2, "first": "x", "last": "y"},),
        )
    )  # fmt: skip
    drawings = re.findall(r"<svg.*?</svg>", made, re.DOTALL)
    assert len(drawings) == 9
    for drawing in drawings:
        ElementTree.fromstring(drawing)
    assert "http" not in made and "src=" not in made


def test_a_name_from_outside_keeps_its_direction_to_itself() -> None:
    """Wherever an address or a container stands it is isolated and escaped."""
    client = dict.fromkeys(("sent", "bytes", "delivered", "accepted", "rejected", "given_back"), 3)
    told = {**client, "address": "<طلب>", "container": "<مطبخ>", "first": "2026-11-27", "last": "x"}
    made = page(result(kind("fault"), steps=(step("<طلب>", 3),), clients=(told,)))
    for name in ("&lt;طلب&gt;", "&lt;مطبخ&gt;"):
        assert made.count(f"<bdi>{name}</bdi>") == made.count(name) - made.count(f"title>{name}")
    assert "<طلب>" not in made and "<مطبخ>" not in made
    assert re.search(r"<h3>Producers</h3>.*مطبخ.*<h3>Consumers</h3>.*مطبخ", made, re.DOTALL)


def test_what_stands_still_is_drawn_before_the_busiest() -> None:
    """Messages wait, and none went for a while: however many others are busy."""
    rows = [step(f"busy-{n}", at, came=1_000, went=1_000, backlog=0) for n in range(80) for at in range(8)]
    rows += [step("stuck", at, came=1, went=int(at < 4), backlog=at) for at in range(8)]
    made = page(result(steps=tuple(rows)))
    cards = re.findall(r"<figcaption><bdi>(.*?)</bdi>(.*?)</figcaption>", made)
    assert cards[0][0] == "stuck" and "stands still" in cards[0][1] and len(cards) == 60
    assert not any("stands still" in more for _, more in cards[1:])
    assert "21 more are in the table only" in made


def test_totals_and_rates_stand_before_the_findings() -> None:
    """Of all addresses, over the whole time."""
    made = page(result(kind("fault"), steps=(step("a", 0, came=90), step("b", 2, came=90, bytes=4_096))))
    for tile in ("<b>1</b>faults", "<b>1</b>in, a second", "<b>4 KiB</b>octets in", "<b>2</b>wait at the"):
        assert tile in made
    assert made.index("in, a second") < made.index("Findings") < made.index("Traffic")


def test_numbers_are_sorted_by_what_they_are() -> None:
    """A cell shows 2.50 M, and the script compares 2500000."""
    made = page(result(steps=(step("a", 0, bytes=2_500_000),)))
    assert '<td class="n" data-v="2500000">2.50 M</td>' in made
    assert made.count("<script>") == 1 and "aria-sort" in made


def test_a_long_time_is_drawn_in_coarse_steps() -> None:
    """A month of minutes is not a point for each minute, and nothing is left out of the sums."""
    rows = tuple(step("a", at) for at in range(0, 43_200, 10))
    made = page(result(steps=rows))
    assert made.count("M") < 2000 and "in 180 minutes" in made and ">4,320<" in made


def test_a_line_has_a_hole_where_nothing_was_measured() -> None:
    """None lifts the pen, and does not become a zero."""
    drawn = lines(Plot("p", "ms"), [0, 60, 120, 180], {"a": [1, None, 3, 4]})
    path = re.search(r' d="([^"]*)"', drawn)
    assert path is not None and [step[0] for step in path[1].split() if step[0].isalpha()] == ["M", "M", "L"]
    assert "nothing to show" in lines(Plot("p", "ms"), [], {}) and "nothing to show" in bars(
        Plot("p", ""), {}
    )


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (12.5, "12.5"), (1234, "1,234"), (2_500_000, "2.50 M"), (0.25, "0.25")]
)
def test_numbers_are_shown_as_people_read_them(value: float, text: str) -> None:
    """Thousands have commas, millions an M, small ones three digits."""
    assert short(value) == text


@pytest.mark.parametrize("most", [0, 0.3, 1, 7, 99, 1001, 123456.0])
def test_the_axis_reaches_the_highest_value(most: float) -> None:
    """From zero to at least the highest, in at most seven steps."""
    found = ticks(most)
    assert found[0] == 0 and found[-1] >= most and 2 <= len(found) <= 7


def test_the_result_goes_to_other_programs_as_json() -> None:
    """The verdict and the findings are in it."""
    import json

    said = json.loads(result(kind("fault", 3)).to_json())
    assert (said["verdict"], said["faults"], said["kinds"][0]["count"]) == ("FAIL", 3, 3)


@attrs.define
class Terminal:
    """A stream that says it is a terminal, or not."""

    tty: bool
    text: io.StringIO = attrs.field(factory=io.StringIO)
    told: threading.Event = attrs.field(factory=threading.Event)

    def isatty(self) -> bool:
        """As asked for."""
        return self.tty

    def write(self, text: str) -> int:
        """Kept."""
        written = self.text.write(text)
        self.told.set()
        return written

    def flush(self) -> None:
        """Nothing is held back."""


@pytest.mark.parametrize(
    ("tty", "quiet", "shown"), [(False, False, True), (True, False, True), (True, True, False)]
)
def test_each_step_leaves_one_line(tty: bool, quiet: bool, shown: bool) -> None:
    """A step says how long it took, unless nobody wants to hear it; it is kept either way."""
    terminal = Terminal(tty)
    progress = Progress(terminal, quiet=quiet)  # type: ignore[arg-type]
    with progress.step("count"):
        pass
    assert bool(re.search(r"count: \d+\.\d s\n$", terminal.text.getvalue())) is shown
    assert progress.took_s["count"] >= 0


def test_a_long_step_is_told_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Now and then a line, so that who reads a log sees that something goes on."""
    monkeypatch.setattr("amqp_broker.pipeline.progress.SAY_EVERY_S", 0.01)
    terminal = Terminal(False)
    progress = Progress(terminal)  # type: ignore[arg-type]
    with progress.step("count"):
        assert terminal.told.wait(60)
    assert re.match(r"count: \d+ s so far\n", terminal.text.getvalue())
