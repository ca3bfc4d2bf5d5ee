"""The events of a broker that was killed: at the end everything was drained, so the log must tell of each
message that it came once and that it went once. Whatever was accepted from a sender has its put, whatever was
confirmed to a receiver has its settle, and nothing else does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from amqp_broker.persistence import Event
from amqp_broker.persistence.questions import EventRange, EventsFrom
from amqp_broker.persistence.sqlite import SqliteStore
from tests.crash.deaths import Death
from tests.crash.evidence import Record
from tests.crash.history import History
from tests.crash.messages import Messages
from tests.crash.traffic import message_id_of
from tests.crash.workload import Workload
from tests.promises.fates import Fate, collect_accounts
from tests.support.event_replay import Replay

CONFIGURATION: Final = '[[queue]]\npattern = "{}"\nevents = true\n'
PAGE: Final = 10_000
MOST_TOLD: Final = 5


def events_of(data: Path) -> Iterator[Event]:
    """The log of a broker that has stopped."""
    store = SqliteStore(data, ballast_bytes=0)
    try:
        at, end = store.ask(EventRange())
        while at < end:
            page = store.ask(EventsFrom(at, PAGE))
            yield from page
            at = page[-1].seq + 1
    finally:
        store.close()


def check_events(events: Iterable[Event], history: History) -> tuple[list[str], Counter[str]]:
    """What the log of a drained broker says wrong of what the clients know, and what it has of each kind."""
    replayed = Replay()
    kinds: Counter[str] = Counter()
    put: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    names: dict[tuple[object, object], str] = {}
    for event in events:
        kinds[event.kind] += 1
        replayed.add(event)
        key = (event.fields.get("address"), event.fields.get("offset"))
        if event.kind == "put":
            name = names[key] = str(event.fields.get("message_id"))
            put[name] += 1
        elif event.kind == "settle" and event.fields["outcome"] in ("accepted", "rejected"):
            ended[names.get(key, f"offset {key}")] += 1
    complaints = [f"the log contradicts itself: {problem}" for problem in replayed.problems[:MOST_TOLD]]
    complaints += _told("is live in the log, but was drained", map(str, replayed.live))
    complaints += _told("has more than one put", [name for name, count in put.items() if count > 1])
    complaints += _told("has more than one settle", [name for name, count in ended.items() if count > 1])
    taken, confirmed, sent, absent = known_by_clients(history)
    complaints += _told("was accepted from its sender, but has no put", taken - put.keys())
    complaints += _told("was confirmed as settled, but has no settle", confirmed - ended.keys())
    complaints += _told("has a put, but was never sent", put.keys() - sent)
    complaints += _told("has a put, but its transaction was not committed", put.keys() & absent)
    return complaints, kinds


def known_by_clients(history: History) -> tuple[set[str], set[str], set[str], set[str]]:
    """The messages of which clients know that they were taken; that they are gone; that they were
    sent; that they were posted in a transaction that was not committed.
    """
    accounts, _ = collect_accounts(history.steps)
    committed = {txn for txn, account in accounts.items() if account.fate is Fate.COMMITTED}
    absent = {txn for txn, account in accounts.items() if account.fate is Fate.ABSENT}
    taken: set[str] = set()
    confirmed: set[str] = set()
    for event in history.events:
        name = message_id_of(event.message)
        if event.kind == "accepted" or (event.kind == "sent" and event.txn in committed):
            taken.add(name)
        elif event.kind == "settled" or (event.kind.startswith("retired") and event.txn in committed):
            confirmed.add(name)
    sent = {message_id_of(name) for name in history.sent_in}
    return taken, confirmed, sent, {message_id_of(n) for n, txn in history.sent_in.items() if txn in absent}


def _told(what: str, names: Iterable[str]) -> list[str]:
    found = sorted(names)
    return [f"{len(found)} times: a message {what}: {found[:MOST_TOLD]}"] if found else []


class Events(Workload):
    """The queues of these messages have events: the log tells that each came once, and went once."""

    name = "events"

    def __init__(self, messages: Messages) -> None:
        super().__init__()
        self.messages = messages
        self.configuration = "".join(CONFIGURATION.format(queue) for queue in messages.load.queues)
        self.kinds: Counter[str] = Counter()

    def check(self, deaths: Sequence[Death], data: Path) -> list[str]:
        """The log of a broker that was drained tells of each message, and of no other one."""
        complaints, self.kinds = check_events(events_of(data), self.messages.history)
        return complaints

    def records(self) -> Iterable[Record]:
        """They are in the store."""
        return ()

    def summary(self) -> str:
        """How many there are of each kind."""
        return ", ".join(f"{count:,} {kind}" for kind, count in self.kinds.items())
