"""What is measured: every case that a single benchmark hides, since each of them has once been bad while the
usual benchmark looked well. The tables of docs/explanation/performance.md are made of them.
"""

from __future__ import annotations

import resource
import tempfile
import time
from contextlib import suppress
from functools import partial
from typing import Any, Final

import attrs

from amqp_broker.bench.run import Client, started
from amqp_broker.bench.settings import BenchSettings
from amqp_broker.conformance.load.processes import resident_kib
from amqp_broker.conformance.load.sitting import COUNTS, SMALLEST, Report, Sitting
from amqp_broker.testing.blocking_peer import BlockingPeer
from amqp_broker.testing.broker_process import running

DURABLE: Final = {"durable": True}
SETTLED: Final = {"settled": True}
RTT: Final = {"rtt": True, "rate": 200.0}
BACKLOG: Final = 500_000
FILL_S: Final = 20.0
"""What filling may take: it is done for each run."""
SPARE: Final = 10_000  # more than the credit of a receiver
ENDLESS: Final = 10**9


@attrs.frozen
class Case:
    """One row of a table: its name, what differs from the usual settings, and which figures it shows.

    `rate` is the figure that counts; of a case of round trips it is `latency`'s p50, since their rate is set.
    """

    name: str
    changes: dict[str, Any]
    rate: str = "messages_per_second"
    latency: str = "latency_us"

    def fits(self, sitting: Sitting) -> bool:
        """Whether this sitting's broker can be asked for it."""
        if "half_group" in self.changes:
            return sitting.ours
        return sitting.transactions or self.rate != "transactions_per_second"

    @property
    def less_is_better(self) -> bool:
        """Whether the figure is a time or a size."""
        return bool(self.changes.get("rtt"))

    def figure(self, report: Report) -> float:
        """What counts of a run."""
        return float(report[self.latency]["p50"] if self.changes.get("rtt") else report[self.rate])

    def sized(self, sitting: Sitting) -> dict[str, Any]:
        """The changes with a count that lasts as long as the sitting's runs shall."""
        return sitting.sized(self.changes, self.rate)

    def warm_up(self, sitting: Sitting, changes: dict[str, Any]) -> None:
        """What comes before the first run of a broker that has just started: a tenth of one."""
        smaller = {name: max(SMALLEST, changes[name] // 10) for name in COUNTS if name in changes}
        sitting.once(sitting.settings(changes | smaller))

    def once(self, sitting: Sitting, changes: dict[str, Any]) -> Report:
        """One run."""
        return sitting.once(sitting.settings(changes))


@attrs.frozen(kw_only=True)
class Beside(Case):
    """Traffic beside `other` traffic that takes all it can get, to and from a queue of its own. What one of
    the two gains the other may lose, so each kind has its row.
    """

    other: dict[str, Any]

    def fits(self, sitting: Sitting) -> bool:
        """It wants queues of its own."""
        return not sitting.fixed

    def once(self, sitting: Sitting, changes: dict[str, Any]) -> Report:
        """One run, when the other traffic flows."""
        with started(sitting.settings(self.other | {"count": ENDLESS}), sitting.client) as workers:
            for worker in workers:
                worker.begin()
            time.sleep(0.5)
            return super().once(sitting, changes)


class ThroughBacklog(Case):
    """Sent and received at once through a queue that holds many messages already.

    The receiver reads the old ones while the sender's stay, so the latency would be the backlog's age. It
    stops a little before the end of the old ones: what it would read of the new ones are doubles.
    """

    def fits(self, sitting: Sitting) -> bool:
        """It wants queues of its own."""
        return not sitting.fixed

    def sized(self, sitting: Sitting) -> dict[str, Any]:
        """No more than the backlog. Raises RuntimeError when to fill it would take too long."""
        found = super().sized(sitting)
        fill_s = BACKLOG / found["count"] * sitting.seconds
        if fill_s > FILL_S:
            raise RuntimeError(f"to fill it would take {fill_s:.0f} s")
        return found | {"count": min(BACKLOG - SPARE, found["count"])}

    def once(self, sitting: Sitting, changes: dict[str, Any]) -> Report:
        """Fill, then one run."""
        filling = sitting.settings(DURABLE | {"count": BACKLOG})
        sitting.once(filling, roles=("sender",))
        report = sitting.once(sitting.settings(changes, filling.address))
        return {name: value for name, value in report.items() if name != self.latency}


@attrs.frozen(kw_only=True)
class Spread(Case):
    """Durable messages over many queues, in turns, by one connection: all are sent, then all received, and
    one of the two counts (rawload's).
    """

    name: str
    counts: str
    """The role that counts."""
    links: int
    changes: dict[str, Any] = attrs.field(factory=lambda: dict(DURABLE))

    def fits(self, sitting: Sitting) -> bool:
        """It wants queues of its own."""
        return not sitting.fixed

    def sized(self, sitting: Sitting) -> dict[str, Any]:
        """As the rate shows, and some for each queue."""
        return sitting.sized(self.changes, self.rate, partial(self.once, sitting), 10 * self.links)

    def way(self, sitting: Sitting, changes: dict[str, Any]) -> tuple[BenchSettings, Client]:
        """What one run's processes are started with."""
        settings = sitting.settings(changes | {"credit": 100}, f"{sitting.prefix}spread-{self.links}-")
        return settings, with_options(sitting.client, "--links", str(self.links))

    def once(self, sitting: Sitting, changes: dict[str, Any]) -> Report:
        """Both, and the report of the one."""
        settings, client = self.way(sitting, changes)
        sent = sitting.once(settings, client, roles=("sender",))
        received = sitting.once(settings, client, roles=("receiver",))
        well = sent["outcomes"]["accepted"] == settings.count == received["received"]
        found = sent if self.counts == "sender" else received
        return found | {"clean": well and not received["lost"] + received["duplicates"]}


@attrs.frozen(kw_only=True)
class Consumers(Case):
    """Many consumers of one queue, on one connection (rawload's)."""

    name: str
    links: int
    changes: dict[str, Any]

    def fits(self, sitting: Sitting) -> bool:
        """It wants a queue of its own."""
        return not sitting.fixed

    def sized(self, sitting: Sitting) -> dict[str, Any]:
        """As the rate shows, and some for each consumer."""
        return sitting.sized(self.changes, self.rate, partial(self.once, sitting), 20 * self.links)

    def once(self, sitting: Sitting, changes: dict[str, Any]) -> Report:
        """One run; `share` is what the most served consumer got, as a multiple of an even share."""
        settings = sitting.settings(changes)
        client = with_options(sitting.client, "--links", str(self.links), "--shared", role="receiver")
        found = sitting.once(settings, client)
        return found | {"share": found["most"] * self.links / settings.count}


class Fairness(Consumers):
    """How even consumers of equal credit are served."""

    @property
    def less_is_better(self) -> bool:
        """1 is even."""
        return True

    def sized(self, sitting: Sitting) -> dict[str, Any]:
        """Twenty for each."""
        return self.changes | {"count": 20 * self.links}


@attrs.frozen
class OfOurs(Case):
    """A figure of a broker that is started for it."""

    changes: dict[str, Any] = attrs.field(factory=dict, init=False)

    def fits(self, sitting: Sitting) -> bool:
        """Only a tree can be started once more."""
        return sitting.ours

    @property
    def less_is_better(self) -> bool:
        """A time or a size."""
        return True

    def sized(self, sitting: Sitting) -> dict[str, Any]:
        """Nothing to size."""
        return {}

    def warm_up(self, sitting: Sitting, changes: dict[str, Any]) -> None:
        """Nothing to warm."""


class IdleConnections(OfOurs):
    """KiB that an idle connection with two sessions costs."""

    def once(self, sitting: Sitting, changes: dict[str, Any]) -> Report:
        """A thousand of them, beside twenty that were there before."""
        count = 1_000
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        with running("--memory", tree=sitting.tree) as broker:

            def idle() -> BlockingPeer:
                # It never sends a heartbeat, so it must be measured within the idle time-out.
                peer = BlockingPeer.connect(broker.host, broker.port, login=("ANONYMOUS", b"idle"))
                peer.begin()
                peer.begin()
                return peer

            peers = [idle() for _ in range(20)]
            before = resident_kib(broker.pid)
            peers += [idle() for _ in range(count)]
            time.sleep(0.5)
            kib = (resident_kib(broker.pid) - before) / count
            for peer in peers:
                with suppress(OSError):
                    peer.abort()
        return {self.rate: kib, "clean": True}


class Start(OfOurs):
    """From the command to `listening on`, with a fresh store."""

    def once(self, sitting: Sitting, changes: dict[str, Any]) -> Report:
        """The second start counts: the first one warms the file cache."""
        for _ in range(2):
            with (
                tempfile.TemporaryDirectory() as folder,
                running("--data", f"{folder}/data", tree=sitting.tree) as broker,
            ):
                seconds = broker.started_in_s
        return {self.rate: seconds * 1_000, "clean": True}


def with_options(client: Client, *options: str, role: str = "") -> Client:
    """The client with these options more, of one role or of all."""

    def command(which: str, pair: int, settings: BenchSettings) -> list[str]:
        found = client(which, pair, settings)
        return [*found, *options] if which == role or not role else found

    return command


def of_transactions(name: str, **changes: Any) -> Case:
    """A case of durable transactions of ten postings."""
    return Case(name, DURABLE | changes, "transactions_per_second", "discharge_us")


MESSAGES: Final = (
    Case("settled, 100 B", SETTLED),
    Case("durable, 100 B", DURABLE),
    Case("settled, 10 KiB", SETTLED | {"body": 10_240}),
    Case("durable, 10 KiB", DURABLE | {"body": 10_240}),
    Case("durable, window of 1", DURABLE | {"credit": 1, "in_flight": 1}),
    Case("durable, window of 10", DURABLE | {"credit": 10, "in_flight": 10}),
    Case("durable, window of 100", DURABLE | {"credit": 100, "in_flight": 100}),
    Case("settled, 4 pairs", SETTLED | {"pairs": 4}),
    Case("durable, 4 pairs", DURABLE | {"pairs": 4}),
    Case("durable, a disposition for each message", DURABLE | {"settle_each": True}),
    Case("settled, 100 B: round trip (delivered)", SETTLED | RTT),
    Case("durable, 100 B: round trip (outcome)", DURABLE | RTT, latency="outcome_latency_us"),
    Spread(name="durable, sent over 100 queues", counts="sender", links=100),
    Spread(name="durable, sent over 1,000 queues", counts="sender", links=1_000),
    Spread(name="durable, received from 100 queues", counts="receiver", links=100),
    Spread(name="durable, received from 1,000 queues", counts="receiver", links=1_000),
    Consumers(name="settled, 100 consumers of a queue", links=100, changes=SETTLED | {"credit": 10}),
    Consumers(name="settled, 1,000 consumers of a queue", links=1_000, changes=SETTLED | {"credit": 10}),
    Consumers(name="durable, 100 consumers of a queue", links=100, changes=DURABLE | {"credit": 10}),
    Fairness(
        name="1,000 consumers, 100 in flight: the most served one's part of an even share",
        links=1_000, changes=DURABLE | {"credit": 10, "in_flight": 100}, rate="share",
    ),
    Beside(name="durable, 100 B, beside saturating settled traffic", changes=DURABLE, other=SETTLED),
    Beside(name="settled, 100 B, beside saturating durable traffic", changes=SETTLED, other=DURABLE),
    ThroughBacklog(f"durable, 100 B, through a backlog of {BACKLOG:,}", DURABLE),
    IdleConnections("an idle connection with two sessions (of 1,000), KiB", rate="kib"),
    Start("from the command to listening, ms", rate="milliseconds"),
)
TRANSACTIONS: Final = (
    of_transactions("10 postings, one at a time", live=1),
    of_transactions("10 postings and 10 retirements, one at a time", retire=True, live=1),
    of_transactions("10 postings, 16 live", live=16),
    of_transactions("10 postings and 10 retirements, 16 live", retire=True, live=16),
    of_transactions("the same, settled by the client before", retire=True, retire_settled=True, live=16),
    of_transactions("the same, every fourth rolled back", retire=True, live=16, roll_back_every=4),
    of_transactions("10 and 10, 4 connections, one at a time each", retire=True, live=1, pairs=4),
    of_transactions("10 and 10, 4 connections, 16 live each", retire=True, live=16, pairs=4),
    of_transactions("1 posting and 1 retirement, 16 live", retire=True, live=16, in_each=1),
)
HALVES: Final = (
    Case("half messages, put, committed and delivered", DURABLE | {"half_group": "bench", "timeout": 120.0}),
)
TABLES: Final = {"messages": MESSAGES, "transactions": TRANSACTIONS, "halves": HALVES}
