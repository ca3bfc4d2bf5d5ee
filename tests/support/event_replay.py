"""The journal, replayed: what has to be in the queues if it tells the truth. A pure function of events.

put, publish       the message is there; with the outcome archived it is in a log, and waits for nobody
deliver            it is shown to be there
settle             accepted, rejected or archived: it is gone; released or modified: it stays
expire, dead       it is gone (a rejected one is dead, too)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from amqp_broker.persistence import Event

MESSAGE_KINDS: Final = frozenset(("put", "publish", "deliver", "settle", "dead", "expire", "reject"))
Key = tuple[str, int]
"""Address and offset."""


class Replay:
    """What follows from a log. `live` are the messages that are there, by address and offset; `problems` what
    contradicts itself in it.
    """

    def __init__(self) -> None:
        self.live: dict[Key, dict[str, str | int]] = {}
        self.gone: dict[Key, str] = {}
        self.delivered: Counter[Key] = Counter()
        self.rejected: set[Key] = set()
        self.problems: list[str] = []
        self._seq = 0

    def add(self, event: Event) -> None:
        """The next entry of the log."""
        if self._seq and event.seq != self._seq + 1:
            self.problems.append(f"event {event.seq} comes after event {self._seq}")
        self._seq = event.seq
        if event.kind not in MESSAGE_KINDS or event.kind == "reject" or "offset" not in event.fields:
            return
        address, offset = event.fields["address"], event.fields["offset"]
        assert isinstance(address, str) and isinstance(offset, int), f"not a message: {event}"
        key = (address, offset)
        if event.kind in ("put", "publish"):
            self._put(key, event)
        elif event.kind == "dead" and key in self.rejected:
            self.rejected.discard(key)
        elif key not in self.live:
            was = self.gone.get(key, "never there")
            self.problems.append(f"event {event.seq}: {event.kind} of {key}, which is {was}")
        elif event.kind == "deliver":
            self.delivered[key] += 1
        elif event.kind == "settle" and event.fields["outcome"] in ("released", "modified"):
            return
        else:
            outcome = str(event.fields.get("outcome", event.kind))
            del self.live[key]
            self.gone[key] = outcome
            if outcome == "rejected":
                self.rejected.add(key)

    def _put(self, key: Key, event: Event) -> None:
        if key in self.live or key in self.gone:
            self.problems.append(f"event {event.seq}: {event.kind} of {key}, which was there before")
        if event.fields.get("outcome") == "archived":  # in a log, where nobody takes it
            self.gone[key] = "archived"
        else:
            self.live[key] = event.fields

    def offsets(self, address: str) -> list[int]:
        """Of the live messages of one queue."""
        return sorted(offset for name, offset in self.live if name == address)


def replay(events: Iterable[Event]) -> Replay:
    """What follows from a whole log."""
    replayed = Replay()
    for event in events:
        replayed.add(event)
    return replayed
