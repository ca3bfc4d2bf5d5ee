"""`amqp-broker top` against real brokers: its keys by Textual's pilot, and a pseudo-terminal."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, Static

from amqp_broker.authorisation import ACTIONS
from amqp_broker.client import connect
from amqp_broker.client.blocking_management import Refused
from amqp_broker.command_line import main
from amqp_broker.configuration import AccessRule, BrokerConfig, BrokerLimits, UserConfig
from amqp_broker.embedding import RunningBroker, running_broker
from amqp_broker.looking.broker_view import Broker, BrokerView, Login, pause_s
from amqp_broker.looking.limits import TABLE_PAUSE_MAX_S
from amqp_broker.looking.listing import Wanted
from amqp_broker.looking.output import as_table, cut, width
from amqp_broker.looking.rates import Row, add_rates
from amqp_broker.looking.tables import TABLES
from amqp_broker.testing import memory_config
from amqp_broker.testing.broker_process import running
from amqp_broker.top import command
from amqp_broker.top.looker import Looker, Reading
from amqp_broker.top.screen import HELP, Help, Listed, Series, Top
from amqp_broker.top.snapshot import taken
from amqp_broker.verifiers import make_verifier

PATIENCE_S = 120.0
MARKED = "red[/][bold]"
STEERING = "\x1b[31mred"


def user(name: str) -> UserConfig:
    """Whose password is the name."""
    return UserConfig(name=name, scram_sha_256=str(make_verifier("SCRAM-SHA-256", name, 4096, b"salt" * 4)))


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """A broker with some queues; names of one and of a client would steer a terminal."""
    with running_broker(memory_config()) as running, connect(running.url, container_id=STEERING) as client:
        for at in range(30):
            running.declare(f"shop-{at:02}")
        for name, count in (("many", 5), ("few.q", 2), (MARKED, 1)):
            client.open_sender(name).send_many([b"x" * (100 if name == "few.q" else 1)] * count)
        yield running


def driven(looker: Looker, drive: Callable[[Top, Pilot[None]], object]) -> None:
    """Run the program without a terminal, and `drive` it."""

    async def run() -> None:
        app = Top(looker)
        async with app.run_test(size=(120, 30)) as pilot:
            await pilot.pause()
            done = drive(app, pilot)
            assert asyncio.iscoroutine(done)
            await done

    try:
        asyncio.run(run())
    finally:
        looker.close()


async def until(pilot: Pilot[None], holds: Callable[[], bool]) -> None:
    """Wait for it."""
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, f"it never came: {shown(pilot.app)}"
        await pilot.pause(0.02)


def shown(app: object) -> tuple[str, list[str]]:
    """What there is instead of what was waited for."""
    assert isinstance(app, Top)
    return said(app, "#state"), names(app)


def names(app: object) -> list[str]:
    """The first column of the queues that are shown."""
    assert isinstance(app, Top)
    table = app.screen_stack[0].query_one("#table-queue").query_one(DataTable)
    return [str(table.get_row_at(at)[0]) for at in range(table.row_count)]


def said(app: Top, where: str) -> str:
    """The text of a part of the screen."""
    return str(app.screen_stack[0].query_one(where, Static).content)


def test_the_views_and_their_keys(broker: RunningBroker) -> None:
    """Overview, queues in an order, by pages and by words, connections, what is undecided, help."""

    async def drive(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: len(app.query(Series)) >= 8 and "queues" in said(app, "#told"))
        assert "connected to amqp://127.0.0.1" in said(app, "#state")
        assert "memory" in said(app, "#told") and "8 messages" in said(app, "#told")
        await pilot.press("2")
        await until(pilot, lambda: names(app)[:2] == ["many", "few.q"])
        queues = app.query_one("#table-queue", Listed)
        assert names(app)[2] == MARKED
        await until(pilot, lambda: 20 <= len(names(app)) == queues.wanted.size < 33)
        await pilot.press("right")  # by bytes
        await until(pilot, lambda: names(app)[:2] == ["few.q", "many"])
        await pilot.press("r")
        await until(pilot, lambda: (names(app) or [""])[-1].startswith("shop-"))
        await pilot.press("left", "left", "left", "n")
        await until(pilot, lambda: queues.wanted.page == 2 and 0 < len(names(app)) < queues.wanted.size)
        await pilot.press("slash")
        assert isinstance(app.focused, Input)
        await pilot.press(*"shop", "space", *"07")
        await until(pilot, lambda: names(app) == ["shop-07"])
        await pilot.press("enter", "escape")
        await until(pilot, lambda: len(names(app)) == queues.wanted.size)
        await pilot.press("3")
        connections = app.query_one("#table-connection").query_one(DataTable)
        await until(pilot, lambda: connections.row_count >= 2)
        containers = [str(connections.get_row_at(at)[1]) for at in range(connections.row_count)]
        assert "\N{REPLACEMENT CHARACTER}[31mred" in containers
        await pilot.press("4", "question_mark")
        await until(pilot, lambda: isinstance(app.screen, Help))
        await pilot.press("x", "q")
        await until(pilot, lambda: not app.is_running)

    driven(Looker(broker.url, 0.2), drive)


def test_a_rate_orders_too(broker: RunningBroker) -> None:
    """By a rate everything is read, as the console does; a queue that gets messages comes first."""
    broker.declare("busy")
    looker = Looker(broker.url, 0.2)
    wanted = {"queue": Wanted(sort="-arrived/s", size=5)}
    with connect(broker.url) as client:
        sender, end = client.open_sender("busy"), time.monotonic() + PATIENCE_S
        while looker.look(wanted).pages["queue"].listing.rows[0]["name"] != "busy":
            sender.send("x")
            assert time.monotonic() < end
    looker.close()


def test_it_asks_for_one_page(broker: RunningBroker) -> None:
    """However many there are: so many rows as were wanted, how many there are, and rates at the next look."""
    now = [100.0]
    looker = Looker(broker.url, 0.2, lambda: now[0])
    wanted = {"queue": Wanted(words="shop", sort="name", size=3, page=2)}
    page = looker.look(wanted).pages["queue"]
    assert [row["name"] for row in page.listing.rows] == ["shop-03", "shop-04", "shop-05"]
    assert (page.listing.found, page.listing.pages, page.listing.rows[0]["arrived/s"]) == (30, 10, None)
    assert looker.look(wanted).pages["queue"] is page  # within the pause the broker is not asked
    with connect(broker.url) as client:
        client.open_sender("shop-04").send_many([b"x"] * 4)
    now[0] += 2.0
    page = looker.look(wanted).pages["queue"]
    assert [row["arrived/s"] for row in page.listing.rows] == [0.0, 2.0, 0.0]
    looker.close()
    broker.purge("shop-04")


def test_a_page_past_the_end_is_the_last_one(broker: RunningBroker) -> None:
    """There were more a moment ago."""
    looker = Looker(broker.url, 0.2)
    wanted = Wanted(words="shop", sort="name", size=20, page=4)
    listing = looker.look({"queue": wanted}).pages["queue"].listing
    looker.close()
    assert (listing.page, listing.pages, len(listing.rows)) == (2, 2, 10)


def test_another_order_keeps_the_rates(broker: RunningBroker) -> None:
    """One message in a moment is no rate: it is that since a whole pause."""
    now = [100.0]
    looker = Looker(broker.url, 2.0, lambda: now[0])
    wanted = Wanted(words="shop-05", sort="name", size=3)

    def rate(sort: str, after_s: float) -> object:
        now[0] += after_s
        page = looker.look({"queue": attrs.evolve(wanted, sort=sort)}).pages["queue"]
        return page.listing.rows[0]["arrived/s"]

    assert rate("name", 0.0) is None
    with connect(broker.url) as client:
        sender = client.open_sender("shop-05")
        sender.send(b"x")
        assert rate("-messages", 0.125) is None
        assert rate("name", 2.0) == 0.0
        sender.send_many([b"x"] * 4)
        assert rate("-messages", 2.0) == 2.0
        sender.send(b"x")
        assert rate("name", 0.125) == pytest.approx(5 / 2.125)
    looker.close()
    broker.purge("shop-05")


class Former(Login):
    """At a broker of a version that knows neither `orderBy` nor `contains`: it is not told them."""

    def ask(self, operation: str, kind: str, body: Any = None, **told: Any) -> Any:
        """Without them."""
        known = {name: value for name, value in told.items() if name not in ("orderBy", "contains")}
        return super().ask(operation, kind, body, **known)


def test_a_broker_of_the_version_before(broker: RunningBroker) -> None:
    """It tells all, and they are put in order here."""
    place = Broker("broker", broker.url)
    view, login = BrokerView(place), Former(place, None, None)
    wanted = Wanted(words="shop", sort="-name", size=3, page=2)
    listing = view.page(login, "queue", TABLES["queue"].attributes, wanted).listing
    login.close()
    assert [row["name"] for row in listing.rows] == ["shop-26", "shop-25", "shop-24"]
    assert (listing.found, listing.page, listing.pages) == (30, 2, 10)


def test_a_slow_look_holds_two_minutes_at_most(broker: RunningBroker) -> None:
    """And who wants one look does not wait for it; who wants less, gets less."""
    assert [pause_s(0.0625), pause_s(0.001), pause_s(0.001, 0.2), pause_s(60.0, 3_600.0)] == [
        12.5, 2.0, 0.2, 3_600.0
    ]  # fmt: skip
    now = itertools.count(0.0, 2.5)
    looker = Looker(broker.url, 0.2, lambda: next(now))
    page = looker.look({"queue": Wanted(size=3)}).pages["queue"]
    assert page.holds_until - page.read_at == TABLE_PAUSE_MAX_S
    assert looker.view.history.next_at <= page.read_at + TABLE_PAUSE_MAX_S
    looker.close()
    slept: list[float] = []
    looker = Looker(broker.url, 0.2, lambda: next(now))  # nothing is known to it yet
    found = json.loads(taken(looker, as_json_line=True, sleep=slept.append))
    looker.close()
    assert slept == [0.2] and found["queue"]["rows"][0]["arrived/s"] == 0.0


def test_words_and_focus_of_each_table(broker: RunningBroker) -> None:
    """Escape takes away the words of the table that is looked at; `/` asks for the one that has the keys."""

    async def drive(app: Top, pilot: Pilot[None]) -> None:
        queues, halves = app.query_one("#table-queue", Listed), app.query_one("#table-half", Listed)
        await pilot.press("2", "slash", *"ew.q", "enter")  # no name that is made up has a dot there
        await until(pilot, lambda: names(app) == ["few.q"])
        await pilot.press("3", "escape", "2")
        assert queues.wanted.words == "ew.q"
        await pilot.press("escape")
        await until(pilot, lambda: queues.wanted.words == "" and len(names(app)) > 1)
        await pilot.press("4")
        await until(pilot, lambda: app.query_one("#table-transaction", Listed).has_focus_within)
        halves.query_one(DataTable).focus()
        await until(pilot, lambda: halves.has_focus_within)
        await pilot.press("slash", *"7")
        await until(pilot, lambda: halves.wanted.words == "7")
        assert app.query_one("#table-transaction", Listed).wanted.words == ""
        await pilot.press("escape")
        await until(pilot, lambda: halves.wanted.words == "")

    driven(Looker(broker.url, 0.2), drive)


async def resized(pilot: Pilot[None], queues: Listed, columns: int, height: int) -> None:
    """Give the terminal another height, and wait for the page of that size."""
    former = queues.size.height
    await pilot.resize_terminal(columns, height)
    await until(pilot, lambda: former != queues.size.height == queues.wanted.size + 3)
    await until(pilot, lambda: queues.shown is not None and queues.shown.wanted == queues.wanted)


def test_another_size_of_the_terminal(broker: RunningBroker) -> None:
    """As many rows as there is room for, at once, and what was the first row is still on the page."""

    async def drive(app: Top, pilot: Pilot[None]) -> None:
        queues = app.query_one("#table-queue", Listed)
        table = queues.query_one(DataTable)
        await pilot.press("2", "left", "left")  # by name
        await until(pilot, lambda: queues.wanted.sort == "name" and len(names(app)) == queues.wanted.size)
        await pilot.press("n")
        await until(pilot, lambda: queues.wanted.page == 2 and 0 < len(names(app)) < queues.wanted.size)
        for columns, height in ((120, 15), (60, 40), (120, 20)):
            first = names(app)[0]
            await resized(pilot, queues, columns, height)
            assert first in names(app) and table.max_scroll_y == 0, (columns, height)

    driven(Looker(broker.url, 0.2), drive)


class Refusing(Looker):
    """Whose user may not look any more, after the first time."""

    looks = 0

    def look(self, wanted: Mapping[str, Wanted]) -> Reading:
        """Once."""
        self.looks += 1
        if self.looks > 1:
            raise Refused("'shop' may not manage-read", 403)
        return super().look(wanted)


def test_what_is_shown_has_an_age(broker: RunningBroker) -> None:
    """It grows while nothing comes; a refusal is told as one."""

    async def drive(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: said(app, "#state").startswith("refused: "))
        assert "'shop' may not manage-read" in said(app, "#state")
        old = re.compile(r" · ([2-9]|\d\d+) s old; trying again$")
        await until(pilot, lambda: old.search(said(app, "#state")) is not None)

    driven(Refusing(broker.url, 0.2), drive)
    assert max(map(len, HELP.splitlines())) <= 68


def test_a_broker_that_is_lost_and_comes_back(tmp_path: Path) -> None:
    """The last look stays, a sentence says what is wrong, and it goes on by itself."""
    with running("--memory") as first:
        at = ("--memory", "--listen", first.url)
        looker = Looker(first.url, 0.2)

        async def drive(app: Top, pilot: Pilot[None]) -> None:
            await until(pilot, lambda: "queues" in said(app, "#told"))
            first.process.kill()
            await until(pilot, lambda: said(app, "#state").startswith("lost: "))
            assert "queues" in said(app, "#told")
            await until(pilot, lambda: "expected a listener at" in said(app, "#state"))
            with running(*at):
                await until(pilot, lambda: "connected again at" in said(app, "#state"))

        driven(looker, drive)


def test_another_broker_at_the_same_place(tmp_path: Path) -> None:
    """What it does not have, as a disk, is not shown any more."""
    with running("--data", str(tmp_path / "data")) as first:
        looker = Looker(first.url, 0.2)

        def series(app: Top) -> set[str | None]:
            return {each.name for each in app.query(Series)}

        async def drive(app: Top, pilot: Pilot[None]) -> None:
            await until(pilot, lambda: "free disk" in series(app))
            first.process.kill()
            first.process.wait()
            with running("--memory", "--listen", first.url):
                await until(pilot, lambda: "in memory" in said(app, "#told"))
                await until(pilot, lambda: "free disk" not in series(app) and "depth" in series(app))

        driven(looker, drive)


class Failing(Looker):
    """Which has a fault of its own."""

    def look(self, wanted: Mapping[str, Wanted]) -> Reading:
        """None that a look is known to raise."""
        raise ZeroDivisionError("at the second look")


def test_a_fault_of_its_own_ends_it(broker: RunningBroker) -> None:
    """Rather than a screen that says for ever what was."""

    async def drive(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: not app.is_running)
        assert isinstance(app.failed, ZeroDivisionError)

    driven(Failing(broker.url, 0.2), drive)


def test_the_first_key_is_for_the_view(broker: RunningBroker) -> None:
    """Nothing else has the keys, and what is pressed before the first look counts."""

    async def drive(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("2")
        assert app.query_one("#filter", Input).value == ""
        await until(pilot, lambda: names(app)[:2] == ["many", "few.q"])

    driven(Looker(broker.url, 0.2), drive)


def test_it_is_printed_once(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal as text; as JSON for programs."""
    assert main(["top", "--url", broker.url, "--every", "0.2"]) == 0
    told = capsys.readouterr().out
    assert re.search(r"^many +queue +5 ", told, re.MULTILINE) and "\x1b" not in told
    assert re.search(r"in [\d.]+ /s, out [\d.]+ /s, settled [\d.]+ /s, depth \d+ messages", told), told
    assert main(["top", "--json", "--url", broker.url, "--every", "0.2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["queue"]["rows"][0]["name"] == "many" and found["queue"]["rows"][0]["arrived/s"] == 0.0
    assert found["broker"]["identity"] == "self" and found["figures"]["in"]["value"] is not None
    assert found["transaction"] == {"found": 0, "rows": []} and found["half"]["found"] == 0


def test_a_snapshot_needs_no_extra(broker: RunningBroker) -> None:
    """Textual is not loaded for it, and no part of the broker is."""
    program = (
        "import sys; from amqp_broker.command_line import main\n"
        "assert main(sys.argv[1:]) == 0\n"
        "print([name for name in ('textual', 'rich', 'trio', 'sqlite3') if name in sys.modules])"
    )
    told = subprocess.run(
        [sys.executable, "-c", program, "top", "--once", "--every", "0.2", "--url", broker.url],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert told.stdout.splitlines()[-1] == "[]"


def test_without_input_and_with_few_letters(broker: RunningBroker) -> None:
    """It prints once."""
    told = subprocess.run(
        ["sh", "-c", 'exec "$0" -m amqp_broker top --every 0.2 --url "$1" <&-', sys.executable, broker.url],
        capture_output=True, text=True, check=True, env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert re.search(r"^many +queue +5 ", told.stdout, re.MULTILINE) and told.stdout.isascii()


def test_a_cell_is_as_wide_as_a_terminal_draws_it() -> None:
    """Some letters take two cells, marks on letters none."""
    assert (width("abc"), width("店店"), width("e\u0301")) == (3, 4, 1)
    assert (cut("店店店", 6), cut("店店店", 5), cut("abcdef", 5)) == ("店店店", "店店…", "abcd…")
    lines = as_table(["name", "count"], [["店", 1], ["shop", 2]]).splitlines()
    assert len({width(line) for line in lines}) == 1


def test_what_is_wrong_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    """No broker, a wrong password, no right to look, no interval, no URL: each with its exit status."""
    config: BrokerConfig = memory_config(
        users=(user("boss"), user("shop")), limits=BrokerLimits(login_failure_delay_ms=1),
        access_rules=(
            AccessRule(users=("boss",), actions=ACTIONS, nodes=("**", "$management")),
            AccessRule(users=("shop",), actions=("connect", "create", "send"), nodes=("**", "$management")),
        ),
    )  # fmt: skip
    with running_broker(config) as closed:
        at = closed.url.removeprefix("amqp://")
        for url, status, why in (
            (f"amqp://shop:shop@{at}", 1, "'shop' may not manage-read"),
            (f"amqp://boss:shop@{at}", 1, "wrong user or password"),
            ("amqp://127.0.0.1:1", 69, "expected a listener at amqp://127.0.0.1:1"),
            ("http://127.0.0.1:1", 2, "--url: expected"),
        ):
            assert main(["top", "--once", "--url", url]) == status, why
            error = capsys.readouterr().err
            assert why in error and error.count("\n") == 1, error
    assert main(["top", "--once", "--every", "0"]) == 2
    assert "--every: expected 0.2 to 3600 seconds, got 0" in capsys.readouterr().err


ENDS: dict[str, tuple[Callable[[subprocess.Popen[bytes], int], object], bool]] = {
    "q": (lambda process, terminal: os.write(terminal, b"q"), False),
    "q without colours": (lambda process, terminal: os.write(terminal, b"q"), True),
    "Ctrl-C": (lambda process, terminal: os.write(terminal, b"\x03"), False),
    "SIGTERM": (lambda process, terminal: process.send_signal(signal.SIGTERM), False),
    "SIGHUP": (lambda process, terminal: process.send_signal(signal.SIGHUP), False),
}


@pytest.mark.parametrize("how", ENDS)
def test_in_a_terminal(broker: RunningBroker, how: str) -> None:
    """It draws, in colours unless NO_COLOR says otherwise; however it ends, the terminal is as it was."""
    ends, no_color = ENDS[how]
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    environment |= {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
    process = subprocess.Popen(
        [sys.executable, "-m", "amqp_broker", "top", "--url", broker.url, "--every", "0.2"],
        stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True,
        env=environment | ({"NO_COLOR": "1"} if no_color else {}),
    )  # fmt: skip
    drawn = b""
    try:
        end = time.monotonic() + PATIENCE_S
        while b"settled" not in drawn or b"connected to" not in drawn:
            assert time.monotonic() < end, drawn[-2_000:]
            if select.select([ours], [], [], 1.0)[0]:
                drawn += os.read(ours, 65_536)
        ends(process, ours)
        while select.select([ours], [], [], 0.1)[0] or process.poll() is None:
            assert time.monotonic() < end, drawn[-2_000:]
            if select.select([ours], [], [], 0.1)[0]:
                drawn += os.read(ours, 65_536)
        assert termios.tcgetattr(theirs) == before
    finally:
        process.kill()
        process.wait()
        os.close(theirs)
        os.close(ours)
    assert process.returncode == 0
    for mode in (b"?1049", b"?1003"):  # the alternate screen, the mouse
        assert drawn.rindex(b"\x1b[" + mode + b"l") > drawn.rindex(b"\x1b[" + mode + b"h")
    coloured = re.findall(rb"\x1b\[[\d;]*[34]8;[\d;]*m", drawn)
    assert bool(coloured) is not no_color, coloured[:5]


def test_without_the_extra_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a terminal; what is missing is named."""
    monkeypatch.setattr(command, "_has_screen", lambda: True)
    monkeypatch.setitem(sys.modules, "textual", None)
    monkeypatch.delitem(sys.modules, "amqp_broker.top.screen", raising=False)
    assert main(["top"]) == 2
    assert "pip install 'amqp-broker[top]'" in capsys.readouterr().err


def test_a_rate_is_known_only_where_a_count_grew() -> None:
    """Not of what was not there before, and not over a start of the broker, where counts begin anew."""
    rows: list[Row] = [{"identity": name, "sent": count} for name, count in (("a", 9), ("b", 1), ("c", 5))]
    add_rates(rows, [{"identity": "a", "sent": 5}, {"identity": "b", "sent": 7}], 2.0)
    assert [row["sent/s"] for row in rows] == [2.0, None, None]
