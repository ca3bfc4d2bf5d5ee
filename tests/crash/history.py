"""What clients did and were told, and what must be true of it, whatever was killed in between.

Each message has a producer link (one attach of one sender) and a number on it. A *life* is one run of the
broker: all links of a life end with it. An event is recorded when the client knows it: *sent* before the
bytes leave, *accepted* after the settled outcome came, *received* when the delivery is complete,
*accept_sent* before our outcome leaves, and *settled* after the broker confirmed it.
"""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["sent", "accepted", "received", "released", "accept_sent", "settled"]
Message = tuple[str, int]
"""The producer link and the number on it."""

MAX_COMPLAINTS: Final = 50


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that a client did or was told; `link` is the link it happened on, `life` the run of the
    broker.
    """

    order: int
    kind: Kind
    life: int
    link: str
    message: Message


class History:
    """All events of all clients in one order; threads may record at the same time."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._turn = threading.Lock()
        self._numbers = itertools.count()

    def record(self, kind: Kind, life: int, link: str, messages: Iterable[Message]) -> None:
        with self._turn:
            self.events.extend(Event(next(self._numbers), kind, life, link, message) for message in messages)


@dataclass(slots=True)
class _Receipt:
    life: int
    link: str
    released: bool = False
    accept_sent: bool = False
    settled: bool = False


def check_history(events: Iterable[Event]) -> list[str]:
    """All complaints about a history that ended with a complete drain; none when the broker kept its
    promises.
    """
    events = sorted(events, key=lambda event: event.order)
    complaints = [*_check_messages(events), *_check_order(events)]
    hidden = len(complaints) - MAX_COMPLAINTS
    return complaints[:MAX_COMPLAINTS] + ([f"and {hidden} more"] if hidden > 0 else [])


def _check_messages(events: list[Event]) -> list[str]:
    sent: set[Message] = set()
    accepted: set[Message] = set()
    receipts: dict[Message, list[_Receipt]] = defaultdict(list)
    complaints = []
    for event in events:
        name = _name(event.message)
        if event.kind == "sent":
            sent.add(event.message)
        elif event.kind == "accepted":
            if event.message in accepted:
                complaints.append(f"{name} was accepted twice")
            accepted.add(event.message)
        elif event.kind == "received":
            complaints += _check_receipt(event, sent, receipts[event.message])
            receipts[event.message].append(_Receipt(event.life, event.link))
        else:
            own = [r for r in receipts[event.message] if (r.life, r.link) == (event.life, event.link)]
            if not own:
                complaints.append(f"{name}: {event.kind} on {event.link}, which had not received it")
            elif event.kind == "released":
                own[-1].released = True
            elif event.kind == "accept_sent":
                own[-1].accept_sent = True
            elif not own[-1].accept_sent:
                complaints.append(f"{name} was confirmed on {event.link}, which had sent no outcome")
            else:
                own[-1].settled = True
    for message in sorted(accepted):
        if not any(receipt.accept_sent for receipt in receipts[message]):
            seen = "received but never given an outcome" if receipts[message] else "never received"
            complaints.append(f"lost: {_name(message)} was accepted by the broker and {seen}")
    for message, those in sorted(receipts.items()):
        if not any(receipt.accept_sent for receipt in those) and message not in accepted:
            complaints.append(f"lost: {_name(message)} was received, given no outcome, and did not come back")
    return complaints


def _check_receipt(event: Event, sent: set[Message], before: list[_Receipt]) -> list[str]:
    name = _name(event.message)
    if event.message not in sent:
        return [f"{name} was received on {event.link} and had never been sent"]
    if any(receipt.settled for receipt in before):
        return [f"came back: {name} was received on {event.link} after its settlement had been confirmed"]
    if any(receipt.life == event.life and not receipt.released for receipt in before):
        return [
            f"twice: {name} was received on {event.link} while an earlier receiver of the same life held it"
        ]
    return []


def _check_order(events: list[Event]) -> list[str]:
    """On one receiving link the messages of one producer link arrive as they were sent, the released ones
    apart.
    """
    released: set[Message] = set()
    last: dict[tuple[int, str, str], int] = {}
    complaints = []
    for event in events:
        if event.kind == "released":
            released.add(event.message)
        elif event.kind == "received" and event.message not in released:
            producer, number = event.message
            key = event.life, event.link, producer
            if number <= last.get(key, -1):
                complaints.append(
                    f"order: {_name(event.message)} was received on {event.link} after number {last[key]}"
                )
            last[key] = number
    return complaints


def _name(message: Message) -> str:
    return f"message {message[1]} of {message[0]}"


def count_events(events: Iterable[Event]) -> dict[Kind, int]:
    """How many events of each kind there are, for the closing line of a run."""
    kinds: tuple[Kind, ...] = ("sent", "accepted", "received", "released", "accept_sent", "settled")
    counts: dict[Kind, int] = dict.fromkeys(kinds, 0)
    for event in events:
        counts[event.kind] += 1
    return counts
