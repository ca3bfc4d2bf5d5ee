"""What clients did and were told, and what must be true of it, whatever was killed in between.

Each message has a producer link (one attach of one sender) and a number on it. A *life* is one run of the
broker: all links of a life end with it. An event is recorded when the client knows it: *sent* before the
bytes leave, *accepted* after the settled outcome came, *received* when the delivery is complete,
*accept_sent* before our outcome leaves, and *settled* after the broker confirmed it.

What belongs to a transaction names it. *retired* is an outcome that removes the message with the discharge,
*modified* one that gives it back with a higher delivery-count; both are recorded before they leave. *browsed*
is what was seen without being acquired. A *step* is what happens to a transaction as a whole.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal

Kind = Literal[
    "sent",
    "accepted",
    "received",
    "released",
    "dropped",
    "accept_sent",
    "settled",
    "retired",
    "retired_settled",
    "modified",
    "browsed",
]
Message = tuple[str, int]
"""The producer link and the number on it."""

StepKind = Literal[
    "declared", "commit_sent", "rollback_sent", "left", "accepted", "rejected", "question", "told"
]
"""`left`: its controller ends the control link or the connection. `question`, `told`: asked how it ended, and
the answer. The others are the discharge and its answer.
"""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that a client did or was told; `link` is the link it happened on, `life` the run of the
    broker, `txn` the transaction to which it belongs, `count` the delivery-count of what was received.
    """

    order: int
    kind: Kind
    life: int
    link: str
    message: Message
    txn: str = ""
    count: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a transaction; `word` is what was told."""

    order: int
    kind: StepKind
    life: int
    txn: str
    word: str = ""


class History:
    """All events of all clients in one order; threads may record at the same time."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.steps: list[Step] = []
        self.sent_in: dict[Message, str] = {}
        """The transaction of each message that was sent, empty for none."""
        self._turn = threading.Lock()
        self._numbers = itertools.count()

    def copy(self) -> History:
        """Another history that goes on from here."""
        other = History()
        with self._turn:
            other.events, other.steps = list(self.events), list(self.steps)
            other.sent_in = dict(self.sent_in)
            other._numbers = itertools.count(len(self.events) + len(self.steps))
        return other

    def records(self) -> list[dict[str, object]]:
        """Everything in one order."""
        everything: list[Event | Step] = [*self.events, *self.steps]
        return [
            {"who": each.link if isinstance(each, Event) else each.txn, "what": each.kind, **asdict(each)}
            for each in sorted(everything, key=lambda each: each.order)
        ]

    def record(self, kind: Kind, life: int, link: str, messages: Iterable[Message], txn: str = "") -> None:
        """The same thing happened to all of `messages`."""
        messages = list(messages)
        with self._turn:
            if kind == "sent":
                self.sent_in.update(dict.fromkeys(messages, txn))
            self.events.extend(
                Event(next(self._numbers), kind, life, link, message, txn) for message in messages
            )

    def record_received(
        self, life: int, link: str, received: Iterable[tuple[Message, int]], txn: str = ""
    ) -> None:
        """Messages came, each with its delivery-count."""
        with self._turn:
            self.events.extend(
                Event(next(self._numbers), "received", life, link, message, txn, count)
                for message, count in received
            )

    def record_step(self, kind: StepKind, life: int, txn: str, word: str = "") -> None:
        """A transaction made a step."""
        with self._turn:
            self.steps.append(Step(next(self._numbers), kind, life, txn, word))


class Notes:
    """What other clients did and were told, in one order: a thread records at once, so appending keeps it."""

    def __init__(self) -> None:
        self.records: list[dict[str, object]] = []

    def record(self, who: str, what: str, **fields: object) -> None:
        """One thing that was said or told, now."""
        self.records.append({"who": who, "what": what, "at": time.monotonic(), **fields})


def count_events(events: Iterable[Event]) -> dict[Kind, int]:
    """How many events of each kind there are that belong to no transaction, for the closing line of a run."""
    kinds: tuple[Kind, ...] = ("sent", "accepted", "received", "released", "accept_sent", "settled")
    counts: dict[Kind, int] = dict.fromkeys(kinds, 0)
    for event in events:
        if event.kind in counts and not event.txn:
            counts[event.kind] += 1
    return counts
