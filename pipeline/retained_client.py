"""What the source asks of a broker: where its retaining nodes stand, cursors, and ranges of messages.

requests   to `$retained` (docs/protocols/retention.md): describe, find, wait, checksum, hold, cursor, move,
           forget
ranges     a link with distribution-mode copy, an offset to begin at and one to end before, pre-settled: it
           yields exactly its range, or says what of it is not there
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import attrs

from amqp_broker.client import (
    BlockingConnection,
    BlockingReceiver,
    BlockingRequester,
    BlockingSession,
    ClientError,
    Gone,
    LinkGone,
    LinkRefused,
    MessageRefused,
    WaitTimeout,
)
from amqp_broker.frames import (
    SETTLE_MODE_SETTLED,
    DecodeError,
    Described,
    Source,
    Symbol,
    Timestamp,
    Ulong,
)
from amqp_broker.pipeline.connections import connection_to
from amqp_broker.pipeline.errors import (
    BrokerRefused,
    BrokerUnreachable,
    CursorInUse,
    DataLoss,
    MissingRight,
    OffsetError,
    OptionError,
)
from amqp_broker.pipeline.offsets import NEW_CHECKPOINT, Range
from amqp_broker.pipeline.options import EVENTS, BrokerAddress
from amqp_broker.pipeline.rights import UNAUTHORIZED, missing_to_ask
from amqp_broker.pipeline.rows import Messages

RETAINED: Final = "$retained"
LOCKED: Final = "amqp:resource-locked"
RETRY_S: Final = 0.2
"""Between attempts to reach a broker that was there a moment ago."""
OFFSET_SPEC: Final = "rabbitmq:stream-offset-spec"
UNTIL: Final = "amqp-broker:until"
DROPPED: Final = "retained:dropped"
BEYOND: Final = "retained:beyond"
CREDIT_FIRST: Final = 32
"""Messages asked for before their size is known."""
CREDIT_MAX: Final = 2_048
AHEAD_MAX_BYTES: Final = 8 * 1_048_576
"""What may wait in a worker for Spark to take it."""


@attrs.frozen
class Node:
    """A retaining node: its messages are those from `first` to `next`, which is not there yet."""

    address: str
    first: int
    next: int
    bytes: int


@attrs.frozen
class Retained:
    """What a broker retains, whose store has this uuid."""

    store_id: str
    nodes: dict[str, Node]
    denied: dict[str, str] = attrs.field(factory=dict)
    """Addresses that were asked for and may not be read, with the broker's words."""


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

    def describe(self, wanted: Iterable[str] = ()) -> Retained:
        """All retaining nodes that the user may read; of `wanted` it is told which ones the user may not."""
        found = _retained(self._ask("describe", {}))
        for address in wanted:
            if address not in found.nodes:
                try:
                    self._ask("describe", {"address": address})
                except MissingRight as refused:
                    found.denied[address] = str(refused)
                except BrokerRefused:
                    pass  # it is not there, or does not retain
        return found

    def wait(self, positions: Mapping[str, int], timeout_ms: int) -> None:
        """Returns when one of the addresses has messages behind these positions, or the time is over."""
        limit = timeout_ms / 1_000 + self.broker.timeout_ms / 1_000
        self._ask("wait", {"positions": _ulongs(positions), "timeout_ms": timeout_ms}, limit)

    def find(self, address: str, time_ms: int) -> int:
        """The offset of the first message that came then or later; of the next one where there is none."""
        offset: int = self._ask("find", {"address": address, "timestamp": Timestamp(time_ms)})["offset"]
        return offset

    def checksum(self, address: str, start: int, until: int) -> tuple[int, int]:
        """How many events of the journal there are from `start` to before `until`, and their checksum
        (amqp_broker/event_checksums.py). Raises BrokerRefused where they are not all there any more.
        """
        body = {"address": address, "start": Ulong(start), "until": Ulong(until)}
        said = self._ask("checksum", body)
        return int(said["count"]), int.from_bytes(said["checksum"], "big")

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
        """All operations may be asked twice: a connection that was there and broke is made anew."""
        deadline = time.monotonic() + self.broker.timeout_ms / 1_000
        while True:
            try:
                reply = self._links().request(operation, body, timeout_s=timeout_s)
                self._answered = True
                return reply
            except MessageRefused as refused:
                raise _refusal(refused, f"{operation} {_shown(body)}") from None
            except LinkRefused as refused:
                raise missing_to_ask(refused) or BrokerRefused(
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
    return Retained(str(found["store_id"]), {node.address: node for node in nodes})


def _shown(body: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value!r:.80}" for name, value in body.items())


def _refusal(refused: ClientError, what: str) -> Exception:
    condition = refused.condition or "without a condition"
    said = f"{condition}: {refused.description or 'without a word'}"
    if condition == LOCKED:
        return CursorInUse(
            f"the subscription is in use by another query ({said}): stop that one, or give this query a name "
            "of its own with the option subscription"
        )
    if condition == UNAUTHORIZED:
        return missing_to_ask(refused) or MissingRight(f"the user may not {what} ({said})")
    return BrokerRefused(f"expected an answer to {what}, but the broker refused it ({said})")


# --- ranges


class RangeReader:
    """Reads exactly one range. `batches()` yields the messages in order, as many at a time as had come.

    Raises DataLoss where a part of the range is gone, OffsetError where the node does not reach so far,
    BrokerUnreachable, BrokerRefused.
    """

    def __init__(
        self, connection: BlockingConnection, wanted: Range, store_id: str | None, timeout_s: float
    ) -> None:
        self._connection = connection
        self._wanted = wanted
        self._store_id = store_id
        self._timeout_s = timeout_s
        self.position = wanted.low
        """The next offset that is waited for."""

    def batches(self) -> Iterator[Messages]:
        """The messages. To be iterated once."""
        if not len(self._wanted):
            return
        with self._answered():
            session = self._connection.open_session()
        high = self._wanted.high
        try:
            receiver = self._attach(session)
            while self.position < high:
                payloads = [delivery.payload for delivery in receiver.receive_settled(self._timeout_s)]
                messages = self._checked(payloads)
                mean_bytes = max(1, sum(map(len, payloads)) // len(payloads))
                receiver.set_credit(max(1, min(CREDIT_MAX, AHEAD_MAX_BYTES // mean_bytes)))
                yield messages
        except LinkGone as error:
            raise self._lost(error) from None
        except (Gone, WaitTimeout) as error:
            raise BrokerUnreachable(
                f"expected {self._wanted}, but at offset {self.position}: {error}"
            ) from None
        finally:
            session.end()

    @contextmanager
    def _answered(self) -> Iterator[None]:
        try:
            yield
        except (Gone, WaitTimeout) as error:
            raise BrokerUnreachable(
                f"expected {self._wanted}, but the broker did not answer: {error}"
            ) from None

    def _attach(self, session: BlockingSession) -> BlockingReceiver:
        wanted = self._wanted
        filters = {OFFSET_SPEC: Ulong(wanted.low), UNTIL: Ulong(wanted.high)}
        source = Source(
            address=wanted.address,
            distribution_mode="copy",
            filter={name: Described(Symbol(name), value) for name, value in filters.items()},
        )
        try:
            with self._answered():
                receiver = session.open_receiver(
                    wanted.address, credit=CREDIT_FIRST, source=source, snd_settle_mode=SETTLE_MODE_SETTLED
                )
        except LinkRefused as error:
            raise self._lost(error) from None
        echoed = receiver.core.remote_source.filter or {}
        if UNTIL not in echoed and not any(
            isinstance(each, Described) and each.descriptor == Symbol(UNTIL) for each in echoed.values()
        ):
            raise BrokerRefused(
                f"expected a broker that reads ranges, but it does not have the filter {UNTIL} in its answer "
                f"for {wanted.address!r}: the source reads from an amqp-broker"
            )
        store_id = receiver.core.remote_properties.get("store_id")
        if self._store_id is not None and store_id != self._store_id:
            raise OffsetError(
                f"expected {wanted} of the store {self._store_id}, but the broker's store is {store_id}: its "
                f"data directory was wiped or replaced while the query ran; {NEW_CHECKPOINT}"
            )
        return receiver

    def _checked(self, payloads: list[bytes]) -> Messages:
        """Each message has to be the one that is next."""
        wanted = self._wanted
        try:
            messages = Messages(wanted.address, payloads, wanted.partition)
        except DecodeError as error:
            raise DataLoss(
                f"expected messages from offset {self.position} of {wanted.address!r} on, but one of "
                f"{len(payloads)} is malformed: {error.description}; report this as a fault of the broker"
            ) from None
        start, end = self.position, self.position + len(payloads)
        if messages.offsets != list(range(start, end)) or end > wanted.high:
            raise DataLoss(
                f"expected the messages at offsets {start} to {end - 1}, of {wanted}, but the broker "
                "sent others: "
                f"{messages.offsets[:10]}; report this as a fault of the broker, and keep its data directory"
            )
        self.position = end
        return messages

    def _lost(self, error: ClientError) -> Exception:
        wanted = self._wanted
        if error.condition == DROPPED:
            return Dropped(wanted, self.position, error)
        if error.condition == BEYOND:
            following = error.info.get("next")
            return OffsetError(
                f"expected {wanted}, but {wanted.address!r} has nothing from offset "
                f"{getattr(following, 'value', following)} on: the broker was restored from an older copy, "
                f"and what it had given out since then is gone. Restore a newer copy, or {NEW_CHECKPOINT}"
            )
        if error.condition == "amqp:not-found":
            return OptionError(
                f"option subscribe: the broker has no node {wanted.address!r} ({error.description}); it was "
                "deleted, or its name is misspelt"
            )
        if error.condition == UNAUTHORIZED:
            return MissingRight(
                f"expected {wanted}, but the user of the option amqp.credentials lacks the right "
                f"{'manage-read' if wanted.address == EVENTS else 'browse'} on {wanted.address!r} "
                f"({error.description})"
            )
        return BrokerRefused(
            f"expected {wanted}, but the broker refused it ({error.condition}: {error.description})"
        )


class Dropped(DataLoss):
    """Retention or damage took a part of a range; `first` is where the node goes on, if that is known."""

    def __init__(
        self, wanted: Range, position: int, error: ClientError | None, first: int | None = None
    ) -> None:
        if error is not None:
            told = error.info.get("first")
            found = getattr(told, "value", told)
            first = found if isinstance(found, int) and not isinstance(found, bool) else None
        self.wanted = wanted
        self.position = position
        self.first = first
        until = "" if first is None else f" to {min(first, wanted.high) - 1}"
        super().__init__(
            f"expected {wanted}, but the broker has dropped those from offset {position}{until}: retention "
            "was shorter than the query was behind, or the store is damaged. To go on without them (they are "
            "lost), set the option failOnDataLoss to false; to have more time the next time, raise "
            "retention_ms and retention_bytes of the queue"
        )

    def __reduce__(self) -> Any:
        return Dropped, (self.wanted, self.position, None, self.first)
