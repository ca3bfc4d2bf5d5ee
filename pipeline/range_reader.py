"""A range of a retaining node: a link with distribution-mode copy, an offset to begin at and one to end
before, pre-settled. It yields exactly its range, or says what of it is not there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from amqp_broker.client import (
    BlockingConnection,
    BlockingReceiver,
    BlockingSession,
    ClientError,
    Gone,
    LinkGone,
    LinkRefused,
    WaitTimeout,
)
from amqp_broker.frames import SETTLE_MODE_SETTLED, DecodeError, Described, Source, Symbol, Ulong
from amqp_broker.pipeline.errors import BrokerRefused, BrokerUnreachable, DataLoss, OffsetError, OptionError
from amqp_broker.pipeline.offsets import NEW_CHECKPOINT, Range
from amqp_broker.pipeline.rows import Messages

OFFSET_SPEC: Final = "rabbitmq:stream-offset-spec"
UNTIL: Final = "amqp-broker:until"
DROPPED: Final = "retained:dropped"
BEYOND: Final = "retained:beyond"
CREDIT_FIRST: Final = 32
"""Messages asked for before their size is known."""
CREDIT_MAX: Final = 2_048
AHEAD_MAX_BYTES: Final = 8 * 1_048_576
"""What may wait in a worker for Spark to take it."""


class RangeReader:
    """Reads exactly one range. `batches()` yields the messages in order, as many at a time as had come.

    Raises DataLoss where a part of the range is gone, OffsetError where the node does not reach so far,
    BrokerUnreachable, BrokerRefused.
    """

    def __init__(
        self, connection: BlockingConnection, wanted: Range, log: str | None, timeout_s: float
    ) -> None:
        self._connection = connection
        self._wanted = wanted
        self._log = log
        self._timeout_s = timeout_s
        self.position = wanted.low
        """The next offset that is waited for."""

    def batches(self) -> Iterator[Messages]:
        """The messages. To be iterated once."""
        if not len(self._wanted):
            return
        session = self._session()
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

    def _session(self) -> BlockingSession:
        try:
            return self._connection.open_session()
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
            receiver = session.open_receiver(
                wanted.address, credit=CREDIT_FIRST, source=source, snd_settle_mode=SETTLE_MODE_SETTLED
            )
        except LinkRefused as error:
            raise self._lost(error) from None
        except (Gone, WaitTimeout) as error:
            raise BrokerUnreachable(f"expected {wanted}, but the broker did not answer: {error}") from None
        echoed = receiver.core.remote_source.filter or {}
        if UNTIL not in echoed and not any(
            isinstance(each, Described) and each.descriptor == Symbol(UNTIL) for each in echoed.values()
        ):
            raise BrokerRefused(
                f"expected a broker that reads ranges, but it does not have the filter {UNTIL} in its "
                "answer for "
                f"{wanted.address!r}: the source reads from an amqp-broker"
            )
        log = receiver.core.remote_properties.get("log")
        if self._log is not None and log != self._log:
            raise OffsetError(
                f"expected {wanted} of the store {self._log}, but the broker's store is {log}: its "
                "data directory "
                f"was wiped or replaced while the query ran; {NEW_CHECKPOINT}"
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
                f"{len(payloads)} is "
                f"malformed: {error.description}; report this as a fault of the broker"
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
                f"{getattr(following, 'value', following)} on: the broker was restored from an older "
                "copy, and what "
                f"it had given out since then is gone. Restore a newer copy, or {NEW_CHECKPOINT}"
            )
        if error.condition == "amqp:not-found":
            return OptionError(
                f"option subscribe: the broker has no node {wanted.address!r} ({error.description}); it was "
                "deleted, or its name is misspelt"
            )
        return BrokerRefused(
            f"expected {wanted}, but the broker refused it ({error.condition}: {error.description})"
        )


class Dropped(DataLoss):
    """Retention or damage took a part of a range; `first` is where the node goes on, as far as it "
    "is known."""

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
            f"expected {wanted}, but the broker has dropped those from offset {position}{until}: "
            "retention was "
            "shorter than the query was behind, or the store is damaged. To go on without them (they "
            "are lost), set "
            "the option failOnDataLoss to false; to have more time the next time, raise retention_ms and "
            "retention_bytes of the queue"
        )

    def __reduce__(self) -> Any:
        return Dropped, (self.wanted, self.position, None, self.first)
