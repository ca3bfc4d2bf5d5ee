"""The source of a link that reads a retaining node by offset, page by page, and new messages as they come.

    on_credit --ask--> PageTurns --read_page, between two commits--> mail --_arrived, in a turn-->
        link.send ... all of the page sent: the next one; at the end: wait for the next commit
    accepted --Prefix--> Cursors.move --commit--> settled

The queue itself does not know of it: nothing is acquired, and the queue's consumers see nothing of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio

from amqp_broker.connection import Connection, Source
from amqp_broker.filters.fields import MessageFields
from amqp_broker.frames import Accepted, Error, Received, Rejected, TransactionalState, Ulong
from amqp_broker.persistence import RECORD_OVERHEAD_BYTES, NoSuchNode, Record, Store, StoreFailed
from amqp_broker.retained.cursors import CursorUser, Prefix
from amqp_broker.retained.filters import DROPPED
from amqp_broker.retained.logs import Page, RetainedLog

if TYPE_CHECKING:
    from amqp_broker.filters.source_filter import SourceFilter
    from amqp_broker.links import OutgoingDelivery, SenderLink
    from amqp_broker.retained.retained_nodes import RetainedNodes

READ_AHEAD_MESSAGES: Final = 128  # read at least, whatever the credit: a page costs more than its messages
CURSOR_GAP_MESSAGES: Final = 65_536  # accepted beyond one that is not; beyond it nothing more is sent


class CursorReading:
    """The cursor of one link: `prefix` is what it has accepted, `moving` while that is being stored."""

    def __init__(self, name: str, user: CursorUser, offset: int) -> None:
        self.name = name
        self.user = user
        self.prefix = Prefix(offset)
        self.stored = offset
        self.moving = False
        self.answers: list[tuple[list[OutgoingDelivery], Any]] = []


class RetainedSource(Source):
    """One link that reads `log` from `position` on, up to and without `until` if there is one."""

    def __init__(
        self, connection: Connection, retained: RetainedNodes, log: RetainedLog, link: SenderLink,
        position: int, until: int | None, cursor: CursorReading | None, passes: SourceFilter | None,
    ) -> None:  # fmt: skip
        super().__init__(connection, link)
        link.copies = True
        self._retained = retained
        self._log = log
        self._position = position
        self._until = until
        self._cursor = cursor
        self._passes = passes
        self._page: list[Record] = []
        self._page_bytes = 0
        self._sent = 0  # of the page
        self._wanted = 0
        self._reading = False
        self._gap: tuple[int, int] | None = None  # of a range: what is missing, and where it goes on
        self._too_large: tuple[int, int] | None = None  # for this link: its offset, and its octets
        self._detached = False
        self.holds: tuple[str, CursorUser] | None = None
        """The cursor that this link has for itself."""

    # Pages

    def read_page(self, store: Store) -> None:
        """Read the next page, between two commits, in no task of its own."""
        limits = self._retained.limits
        messages = min(limits.retained_page_messages, max(READ_AHEAD_MESSAGES, self._wanted))
        start = self._position
        try:
            page = self._log.page(store, start, messages, limits.retained_page_bytes)
        except NoSuchNode:
            page = Page([], start)
        except StoreFailed:
            raise
        except Exception as fault:  # the owner of a fault is who asked
            self.connection.fail(fault)
            raise
        self.connection.run_in_turn(self._arrived, page)

    def grown(self) -> None:
        """There is more to read; called after a commit."""
        self.connection.run_in_turn(self.on_credit)

    def _arrived(self, page: Page) -> None:
        self._reading = False
        if self._detached:
            return
        records = page.records
        if not records and page.next_offset <= self._position:
            self._end_without_progress()
            return
        until = self._until
        if until is not None:
            records = self._exactly(records, page.next_offset, until)
        elif self._cursor is not None:
            self._skip_missing(self._cursor, records, page.next_offset)
        if self._passes is not None:
            records = self._filtered(self._passes, records)
        largest = self.link.remote_max_message_size
        if largest:
            records = self._not_too_large(records, largest)
        self._keep(records)
        self._position = max(self._position, page.next_offset)
        self._go_on()

    def _keep(self, records: list[Record]) -> None:
        """Take a page to be sent, which counts as memory of the connection."""
        account = self.connection.account
        account.give_back(self._page_bytes)
        self._page = records
        self._sent = 0
        self._page_bytes = sum([len(record.body) + RECORD_OVERHEAD_BYTES for record in records])
        account.hold(self._page_bytes)

    def _end_without_progress(self) -> None:
        """End the link: the store has nothing where there should be something, and to ask again would go on
        for ever.
        """
        self._detached = True
        log = self._log
        description = f"{log.address!r}: nothing at offset {self._position}, although {log.end} is the next"
        self.connection.log.error("retained.nothing", address=log.address, offset=self._position)
        self.detach(Error(condition="amqp:internal-error", description=description))

    def _exactly(self, records: list[Record], next_offset: int, until: int) -> list[Record]:
        """The records of a range up to the first one that is missing."""
        expected = self._position
        for count, record in enumerate(records):
            if record.offset >= until:
                return records[:count]
            if record.offset != expected:
                self._gap = (expected, record.offset)
                return records[:count]
            expected += 1
        if expected < min(next_offset, until):
            self._gap = (expected, next_offset)
        return records

    def _filtered(self, passes: SourceFilter, records: list[Record]) -> list[Record]:
        """The records that pass the filters of the link; the cursor moves over the others."""
        cursor = self._cursor
        passed = []
        for record in records:
            if passes.matches(MessageFields(record)):
                passed.append(record)
            elif cursor is not None:
                cursor.prefix.skip(record.offset, record.offset)
        return passed

    def _not_too_large(self, records: list[Record], largest: int) -> list[Record]:
        """The records up to the first one that must not be sent on this link (2.7.3)."""
        for count, record in enumerate(records):
            size = len(record.header_bytes) + len(record.body)
            if size > largest:
                self._too_large = (record.offset, size)
                return records[:count]
        return records

    def _skip_missing(self, cursor: CursorReading, records: list[Record], next_offset: int) -> None:
        """Move the cursor over what is damaged, or was dropped before it was read."""
        expected = self._position
        for record in records:
            if record.offset > expected:
                cursor.prefix.skip(expected, record.offset - 1)
            expected = record.offset + 1
        if next_offset > expected:
            cursor.prefix.skip(expected, next_offset - 1)

    # In the connection's turn

    def on_credit(self) -> None:
        """Credit or drain changed, or there is room again, or more to read."""
        if not self._detached:
            self._go_on()

    def _go_on(self) -> None:
        link = self.link
        if self._sent < len(self._page) and not self._send():
            return
        if self._too_large is not None:
            self._end_too_large(*self._too_large)
            return
        if self._gap is not None:
            self._end_at(*self._gap)
            return
        if self._complete():
            link.set_available(0)
            link.drained()
            return
        if self._reading or link.credit <= 0:
            return
        if self._cursor is not None and self._cursor.prefix.waiting() >= CURSOR_GAP_MESSAGES:
            return
        end = self._log.end
        link.set_available(max(0, (end if self._until is None else min(end, self._until)) - self._position))
        if self._position < end:
            self._wanted = link.sendable()
            if self._wanted > 0:
                self._reading = True
                self._retained.turns.ask(self)
        else:
            self._retained.wait(self._log, self, end)
            link.drained()

    def _send(self) -> bool:
        """Send of the page what can be sent; returns whether all of it was."""
        link = self.link
        page = self._page
        begun = trio.current_time()
        taken = link.send(page[self._sent :] if self._sent else page)
        self._retained.turns.used(trio.current_time() - begun)
        self._sent += taken
        if self._sent < len(page):
            return False
        self._keep([])
        return True

    def _complete(self) -> bool:
        return self._until is not None and self._position >= self._until

    def _end_at(self, missing: int, goes_on: int) -> None:
        """End the link at a message of its range that is missing: a range yields exactly its messages."""
        log = self._log
        self._detached = True
        self.connection.log.warning("retained.dropped", address=log.address, offset=missing)
        description = (
            f"{log.address!r}: the message at offset {missing} is not there any more (damaged, or retention "
            f"dropped it); it goes on at {goes_on}"
        )
        info = {
            "address": log.address,
            "asked": Ulong(missing),
            "first": Ulong(goes_on),
            "next": Ulong(log.end),
        }
        self.detach(Error(condition=DROPPED, description=description, info=info))

    def _end_too_large(self, offset: int, size: int) -> None:
        """End the link at a message that is too large for it: who reads by offset gets every message."""
        log = self._log
        largest = self.link.remote_max_message_size
        self._detached = True
        self.connection.log.warning("retained.too_large", address=log.address, offset=offset, octets=size)
        description = (
            f"{log.address!r}: the message at offset {offset} has {size} octets, and the link takes at most "
            f"{largest} (max-message-size)"
        )
        info = {"address": log.address, "offset": Ulong(offset), "octets": Ulong(size)}
        error = Error(condition="amqp:link:message-size-exceeded", description=description, info=info)
        self.detach(error)

    # Outcomes

    def on_outcomes(self, deliveries: list[OutgoingDelivery], state: Any, settled: bool) -> None:
        """The receiver gave copies an outcome: only accepted and rejected have an effect, and move a cursor.
        """
        if isinstance(state, TransactionalState):
            description = "messages that are read by offset are copies, which no transaction can retire"
            self.lose(deliveries, state, description)
            self.detach(Error(condition="amqp:not-implemented", description=description))
            return
        cursor = self._cursor
        decided = state is not None and not isinstance(state, Received)
        if cursor is not None and isinstance(state, (Accepted, Rejected)):
            cursor.prefix.accept([delivery.message.offset for delivery in deliveries])
            if not settled:
                cursor.answers.append((deliveries, state))
            self._move(cursor)
        elif decided and not settled:
            self.link.settle(deliveries, state)
        self._go_on()

    def _move(self, cursor: CursorReading) -> None:
        """Have the accepted prefix stored, one move at a time; what was accepted is settled after its commit.
        """
        if cursor.moving:
            return
        answers, cursor.answers = cursor.answers, []
        offset = cursor.prefix.offset
        if offset <= cursor.stored:
            self._answer(answers)
            return
        cursor.moving = True
        log_id = self._log.log_id
        move = self._retained.cursors.move(
            cursor.name,
            cursor.user.principal,
            lambda _store: {log_id: offset},
            lambda error: self.connection.run_in_turn(self._moved, cursor, offset, answers, error),
            by_reader=True,
        )
        move.asker = self.connection

    def _moved(
        self, cursor: CursorReading, offset: int, answers: list[tuple[list[OutgoingDelivery], Any]],
        error: Exception | None,
    ) -> None:  # fmt: skip
        cursor.moving = False
        if error is not None:
            if not self._detached:
                description = f"cursor {cursor.name!r} could not be moved: {error}"
                self.detach(Error(condition="amqp:internal-error", description=description))
            return
        cursor.stored = max(cursor.stored, offset)
        if self._detached:  # what was accepted meanwhile is with the cursors
            return
        self._answer(answers)
        if cursor.answers or cursor.prefix.offset > cursor.stored:
            self._move(cursor)
        self._go_on()

    def _answer(self, answers: list[tuple[list[OutgoingDelivery], Any]]) -> None:
        for deliveries, state in answers:
            self.link.settle(deliveries, state)

    def on_detached(self, unsettled: list[OutgoingDelivery], broken: bool) -> None:
        """The link is gone; it held nothing but the cursor."""
        self._detached = True
        self._keep([])
        self._retained.forget_reader(self)
        self._retained.wait_no_more(self._log, self)
        if self.holds is not None:
            name, user = self.holds
            self._retained.cursors.read_no_more(name, self._log.address, user)
        cursor = self._cursor
        if cursor is not None and cursor.prefix.offset > cursor.stored:
            self._retained.cursors.leave(cursor.name, self._log.log_id, cursor.prefix.offset, cursor.user)
