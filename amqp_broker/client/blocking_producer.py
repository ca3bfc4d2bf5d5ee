"""Half messages for programs without an event loop: put, run the local transaction, resolve, be asked.

def check(half):                       # in a thread of its own
    return Resolution.COMMIT if order_exists(half.half_id) else Resolution.ROLLBACK

with connect(url) as connection, connection.producer("shop", check) as producer:
    producer.send_in_transaction("shipments", b"order 17", place_order, half_id="order-17")
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from amqp_broker.client.blocking_links import BlockingReceiver, BlockingSender, OpensLinks
from amqp_broker.client.errors import ClientError, MessageRefused, WrongUse
from amqp_broker.client.half_errors import HalfRefused, half_refusal
from amqp_broker.client.halves import (
    UNKNOWN_OUTCOME,
    Half,
    Receipt,
    Resolution,
    check_address,
    expect_group,
    expect_half_link,
    expect_resolution,
    half_message,
    half_of,
    log_check_error,
    outcome_of_check,
    put_address,
    resolution_message,
    unresolved,
)
from amqp_broker.client.messages import OutgoingMessage, ReceivedMessage
from amqp_broker.frames import SETTLE_MODE_UNSETTLED
from amqp_broker.halves.addresses import resolve_address

BlockingCheck = Callable[[Half], Resolution]
CheckErrors = Callable[[Half | None, Exception], None]


class BlockingTransactionProducer:
    """A producer of one group. A context manager: made by `connection.producer(group, check)`.

    `check(half)` is called in `check_threads` threads of its own, for every producer of the group that died
    or did not know; what it raises goes to `on_check_error` (by default into the log) and counts as UNKNOWN.
    `by_outcome` answers checks by their outcome instead of by a message, which saves a round trip and is
    not confirmed. Methods may be called from any thread.
    """

    def __init__(
        self,
        connection: OpensLinks,
        group: str,
        check: BlockingCheck | None = None,
        *,
        by_outcome: bool = False,
        check_threads: int = 1,
        on_check_error: CheckErrors = log_check_error,
    ) -> None:
        self.group = expect_group(group)
        self._connection = connection
        self._check = check
        self._by_outcome = by_outcome
        self._threads_wanted = check_threads
        self._on_check_error = on_check_error
        self._lock = threading.Lock()
        self._senders: dict[str, BlockingSender] = {}
        self._checks: BlockingReceiver | None = None
        self._threads: list[threading.Thread] = []
        self._ended = threading.Event()
        self._end: Exception | None = None
        self._closing = False

    def __enter__(self) -> Self:
        self._sender(resolve_address(self.group))
        if self._check is not None:
            address = check_address(self.group, self._by_outcome)
            self._checks = self._connection.open_receiver(address, credit=self._threads_wanted)
            expect_half_link(self._checks)
            for number in range(self._threads_wanted):
                name = f"amqp-client checks {self.group} {number}"
                thread = threading.Thread(target=self._answer_checks, name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        ended = self._end
        self.close()
        if ended is not None and value is None:
            raise ended

    def send_half(self, destination: str, body: Any, *, half_id: Any = None, **options: Any) -> Any:
        """Puts a half message; its id, which is made up where none is given. It is stored when this returns,
        and nobody sees it. `options` as for `half_message`.

        Raises HalfConflict and HalfIdConflict: do not run the local transaction then. After an OutcomeUnknown
        put again with the same id, as often as you like: it is one half message.
        """
        chosen = str(uuid.uuid4()) if half_id is None else half_id
        content = half_message(body, chosen, **options)
        self._tell(put_address(self.group, destination), content, "the put", chosen)
        return chosen

    def commit(self, half_id: Any) -> None:
        """Makes the message visible. Harmless when it was committed before.

        Raises HalfConflict when it was rolled back, HalfUnknown.
        """
        self._resolve(half_id, Resolution.COMMIT)

    def rollback(self, half_id: Any, reason: str | None = None) -> None:
        """Drops the message. Harmless when it was rolled back before. Raises HalfConflict, HalfUnknown."""
        self._resolve(half_id, Resolution.ROLLBACK, reason)

    def send_in_transaction(
        self,
        destination: str,
        body: Any,
        local_transaction: Callable[[Any], Resolution],
        *,
        half_id: Any = None,
        **options: Any,
    ) -> Receipt:
        """Puts a half message, calls `local_transaction(half_id)`, and resolves by what it returns.

        What it raises is raised here, and leaves the half message to the check-back. So does a broker that
        cannot be told: then `receipt.told` is False, for the local transaction stands. Raises what
        `send_half` does before the local transaction, HalfConflict after it when somebody else decided
        otherwise meanwhile.
        """
        chosen = self.send_half(destination, body, half_id=half_id, **options)
        try:
            resolution = expect_resolution(local_transaction(chosen), "the local transaction")
        except Exception as error:
            unresolved(error, chosen, self.group)
            raise
        if resolution is Resolution.UNKNOWN:
            return Receipt(chosen, resolution, False)
        try:
            self._resolve(chosen, resolution)
        except HalfRefused:
            raise
        except ClientError as error:
            return Receipt(chosen, resolution, False, error)
        return Receipt(chosen, resolution, True)

    def wait(self, timeout_s: float | None = None) -> None:
        """Waits while checks are answered, in a program that does nothing else. Raises what ends it."""
        if self._ended.wait(timeout_s) and self._end is not None:
            raise self._end

    def close(self) -> None:
        """Detaches. A check that is being answered is left to another checker. Harmless when called again."""
        self._closing = True
        for link in [self._checks, *self._senders.values()]:
            if link is not None:
                link.close()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(self._connection.timeout_s)

    # --- parts

    def _resolve(self, half_id: Any, resolution: Resolution, reason: str | None = None) -> None:
        content = resolution_message(half_id, resolution, reason)
        self._tell(resolve_address(self.group), content, f"the {resolution.value}", half_id)

    def _tell(self, address: str, content: OutgoingMessage, what: str, half_id: Any) -> None:
        try:
            self._sender(address).send(content)
        except MessageRefused as refused:
            raise half_refusal(refused, what, half_id) from None

    def _sender(self, address: str) -> BlockingSender:
        """The link to an address; a new one where it was detached."""
        with self._lock:
            sender = self._senders.get(address)
            if sender is None or (sender.core.gone is not None and self._connection.gone is None):
                if self._closing:
                    raise WrongUse(f"expected an open producer of group {self.group!r}, but it was closed")
                sender = self._connection.open_sender(address, snd_settle_mode=SETTLE_MODE_UNSETTLED)
                expect_half_link(sender)
                self._senders[address] = sender
            return sender

    def _answer_checks(self) -> None:
        assert self._checks is not None, "the threads start with the link"
        try:
            while True:
                self._answer(self._checks, self._checks.receive())
        except Exception as error:
            if not self._closing:
                self._end = error
        finally:
            self._ended.set()

    def _answer(self, checks: BlockingReceiver, received: ReceivedMessage) -> None:
        half = None
        outcome = UNKNOWN_OUTCOME
        try:
            half = half_of(received)
            assert self._check is not None, "there is a link for checks only with a checker"
            resolution = expect_resolution(self._check(half), "the checker")
            if resolution is not Resolution.UNKNOWN and not self._by_outcome:
                self._resolve(half.half_id, resolution)
            outcome = outcome_of_check(resolution, self._by_outcome)
        except Exception as error:
            self._on_check_error(half, error)
        checks.settle(received, outcome)
