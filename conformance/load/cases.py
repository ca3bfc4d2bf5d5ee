"""The tables of docs/explanation/performance.md: every case that a single benchmark hides, since each of them
has once been bad while the usual benchmark looked well.
"""

from __future__ import annotations

import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from amqp_broker.bench.run import started
from amqp_broker.conformance.load.processes import resident_kib
from amqp_broker.conformance.load.sitting import Case, Row, Sitting, row, short
from amqp_broker.testing.blocking_peer import BlockingPeer
from amqp_broker.testing.broker_process import running

DURABLE: Final = {"durable": True}
SETTLED: Final = {"settled": True}
RTT: Final = {"rtt": True, "rate": 200.0}
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
)
BACKLOG: Final = 500_000
SPARE: Final = 10_000  # more than the credit of a receiver
ENDLESS: Final = 10**9


def of_transactions(name: str, **changes: Any) -> Case:
    """A case of durable transactions of ten postings."""
    return Case(name, DURABLE | changes, "transactions_per_second", "discharge_us")


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


def beside(sitting: Sitting) -> Row:
    """Durable traffic beside settled traffic that takes all it can get."""
    with started(sitting.settings(SETTLED | {"count": ENDLESS}), sitting.client) as workers:
        for worker in workers:
            worker.begin()
        time.sleep(0.5)
        return sitting.median(Case("durable, 100 B, beside saturating settled traffic", DURABLE))


def through_backlog(sitting: Sitting) -> Row:
    """Sent and received at once through a queue that holds many messages already.

    The receiver reads the old ones while the sender's stay, so the latency would be the backlog's age. It
    stops a little before the end of the old ones: what it would read of the new ones are doubles.
    """
    case = Case(f"durable, 100 B, through a backlog of {BACKLOG:,}", DURABLE)
    filling = sitting.settings(DURABLE | {"count": BACKLOG})
    sitting.once(filling, roles=("sender",))
    count = min(BACKLOG - SPARE, sitting.sized(DURABLE, case.rate)["count"])
    through = sitting.settings(DURABLE | {"count": count}, filling.address)
    return row(case, [sitting.once(through)], shows_latency=False)


def jobs(
    cases: tuple[Case, ...], sitting: Sitting, tree: Path | None, ours: bool
) -> dict[str, Callable[[], Row]]:
    """How to get each row; some are only for a broker that is `ours`, or that has a queue for each run."""
    found: dict[str, Callable[[], Row]] = {case.name: partial(sitting.median, case) for case in cases}
    if cases is MESSAGES and not sitting.fixed:
        found["durable beside settled"] = partial(beside, sitting)
        found["durable through a backlog"] = partial(through_backlog, sitting)
    if cases is MESSAGES and ours:
        found["idle connections"] = partial(idle_row, 1_000, tree)
        found["start"] = partial(start_row, tree)
    return found


def idle_row(count: int, tree: Path | None) -> Row:
    """KiB that an idle connection with two sessions costs."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with running("--memory", tree=tree) as broker:

        def idle() -> BlockingPeer:
            # It never sends a heartbeat, so it must be measured within the idle time-out.
            peer = BlockingPeer.connect(broker.host, broker.port, login=("ANONYMOUS", b"idle"))
            peer.begin()
            peer.begin()
            return peer

        first = [idle() for _ in range(20)]
        before = resident_kib(broker.pid)
        peers = [idle() for _ in range(count)]
        time.sleep(0.5)
        kib = (resident_kib(broker.pid) - before) / count
        for peer in first + peers:
            peer.abort()
    return short(f"an idle connection with two sessions (of {count:,})", f"{kib:.1f} KiB")


def start_row(tree: Path | None) -> Row:
    """From the command to `listening on`, with a fresh store; the first start warms the file cache."""
    times = []
    for _ in range(6):
        with (
            tempfile.TemporaryDirectory() as folder,
            running("--data", f"{folder}/data", tree=tree) as broker,
        ):
            times.append(broker.started_in_s)
    return short("from the command to listening", f"{statistics.median(times[1:]):.2f} s")
