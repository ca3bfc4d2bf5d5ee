"""What the source asks of a broker: where its retaining nodes stand, cursors, and ranges of messages.

requests   to `$retained` (docs/protocols/retention.md): describe, find, wait, hold, cursor, move, forget
ranges     a link with distribution-mode copy, an offset to begin at and one to end before, pre-settled
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

import attrs

from amqp_broker.client import (
    BlockingRequester,
    BlockingSession,
    ClientError,
    Gone,
    LinkRefused,
    MessageRefused,
    WaitTimeout,
)
from amqp_broker.frames import Timestamp, Ulong
from amqp_broker.pipeline.connections import connection_to
from amqp_broker.pipeline.errors import (
    BrokerRefused,
    BrokerUnreachable,
    CursorInUse,
)
from amqp_broker.pipeline.options import BrokerAddress

RETAINED: Final = "$retained"
LOCKED: Final = "amqp:resource-locked"
RETRY_S: Final = 0.2
"""Between attempts to reach a broker that was there a moment ago."""


@attrs.frozen
class Node:
    """A retaining node: its messages are those from `first` to `next`, which is not there yet."""

    address: str
    first: int
    next: int
    bytes: int


@attrs.frozen
class Retained:
    """What a broker retains; `log` is the uuid of its store."""

    log: str
    nodes: dict[str, Node]


class RetainedClient:
    """Asks `$retained` over the connection of this process. A hold lasts as long as this object's links:
    until `close`, or the end of the process.
    """

    def __init__(self, broker: BrokerAddress) -> None:
        self.broker = broker
        self._session: BlockingSession | None = None
        self._requester: BlockingRequester | None = None
        self._holds: dict[str, dict[str, Any]] = {}
        self._answered = False

    def describe(self) -> Retained:
        """All retaining nodes."""
        return _retained(self._ask("describe", {}))

    def wait(self, positions: Mapping[str, int], timeout_ms: int) -> None:
        """Returns when one of the addresses has messages behind these positions, or the time is over."""
        limit = timeout_ms / 1_000 + self.broker.timeout_ms / 1_000
        self._ask("wait", {"positions": _ulongs(positions), "timeout_ms": timeout_ms}, limit)

    def find(self, address: str, time_ms: int) -> int:
        """The offset of the first message that came then or later; that of the next one where there "
        "is none."""
        offset: int = self._ask("find", {"address": address, "timestamp": Timestamp(time_ms)})["offset"]
        return offset

    def hold(self, cursor: str, start: Mapping[str, int | str]) -> dict[str, int]:
        """Where the cursor stands in these addresses; where it does not stand yet it is put to `start` (an
        offset, "first" or "next") for good. Nobody else may hold it until `close`. Raises CursorInUse.
        """
        spec = {address: Ulong(at) if isinstance(at, int) else at for address, at in start.items()}
        positions: dict[str, int] = self._ask("hold", {"cursor": cursor, "start": spec})["positions"]
        self._holds[cursor] = spec
        return positions

    def cursor(self, cursor: str) -> dict[str, int]:
        """Where the cursor stands; empty where there is none."""
        positions: dict[str, int] = self._ask("cursor", {"cursor": cursor}).get("positions") or {}
        return positions

    def move(self, cursor: str, positions: Mapping[str, int]) -> None:
        """Moves the cursor forward; what would go back stays."""
        self._ask("move", {"cursor": cursor, "positions": _ulongs(positions)})

    def forget(self, cursor: str) -> None:
        """Forgets the cursor, held or not. Harmless when there is none."""
        self._holds.pop(cursor, None)
        self._ask("forget", {"cursor": cursor})

    def close(self) -> None:
        """Gives back what is held."""
        self._holds.clear()
        self._end_session()

    def _end_session(self) -> None:
        session, self._session = self._session, None
        self._requester = None
        if session is not None:
            session.end()

    def _ask(self, operation: str, body: dict[str, Any], timeout_s: float | None = None) -> Any:
        """All operations may be asked twice: a connection that was there and broke is made anew for "
        "a while."""
        deadline = time.monotonic() + self.broker.timeout_ms / 1_000
        while True:
            try:
                reply = self._links().request(operation, body, timeout_s=timeout_s)
                self._answered = True
                return reply
            except MessageRefused as refused:
                raise _refusal(refused, f"{operation} {_shown(body)}") from None
            except LinkRefused as refused:
                raise BrokerRefused(
                    f"the broker at {self.broker} has no {RETAINED} ({refused.condition}: "
                    f"{refused.description}): "
                    "the source reads from an amqp-broker, with a user that may browse the addresses"
                ) from None
            except (Gone, WaitTimeout, BrokerUnreachable) as error:
                if not self._answered or time.monotonic() > deadline:
                    if isinstance(error, BrokerUnreachable):
                        raise
                    raise BrokerUnreachable(
                        f"the broker at {self.broker} did not answer to {operation}: {error}; is it "
                        "still running?"
                    ) from None
            time.sleep(RETRY_S)

    def _links(self) -> BlockingRequester:
        if self._requester is None or self._requester.gone is not None:
            # A session of its own: another one's error must not free what is held here.
            self._end_session()
            self._session = connection_to(self.broker).open_session()
            requester = self._session.open_requester(RETAINED)
            for cursor, spec in self._holds.items():
                requester.request("hold", {"cursor": cursor, "start": spec})
            self._requester = requester
        return self._requester


def _ulongs(positions: Mapping[str, int]) -> dict[str, Ulong]:
    return {address: Ulong(offset) for address, offset in positions.items()}


def _retained(found: Any) -> Retained:
    nodes = [
        Node(each["address"], each["first"], each["next"], each.get("bytes") or 0) for each in found["nodes"]
    ]
    return Retained(str(found["log"]), {node.address: node for node in nodes})


def _shown(body: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value!r:.80}" for name, value in body.items())


def _refusal(refused: ClientError, what: str) -> Exception:
    condition = refused.condition or "without a condition"
    said = f"{condition}: {refused.description or 'without a word'}"
    if condition == LOCKED:
        return CursorInUse(
            f"the subscription is in use by another query ({said}): stop that one, or give this query "
            "a name of its "
            "own with the option subscription"
        )
    return BrokerRefused(f"expected an answer to {what}, but the broker refused it ({said})")
