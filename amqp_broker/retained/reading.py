"""Nodes that are read by offset: where a link begins, and what there is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from amqp_broker.authorisation import RECEIVE
from amqp_broker.frames import Accepted, Source, Ulong
from amqp_broker.nodes.node import Node
from amqp_broker.nodes.refusals import NodeRefused
from amqp_broker.nodes.termini import COPY, no_queue, source_answer
from amqp_broker.persistence import Store
from amqp_broker.retained.cursors import CursorUser
from amqp_broker.retained.filters import (
    AT_OFFSET,
    BEYOND,
    DROPPED,
    FIRST,
    INVALID,
    NOT_ALLOWED,
    OFFSET_SPEC,
    ReadRequest,
    Start,
    asks_to_read,
    read_filters,
)
from amqp_broker.retained.logs import EVENTS, Bounds, RetainedLog, begin_at
from amqp_broker.retained.source import CursorReading, RetainedSource

if TYPE_CHECKING:
    from amqp_broker.nodes.node import Attachment
    from amqp_broker.retained.retained_nodes import RetainedNodes

SETTLED_MODE: Final = 1  # snd-settle-mode settled (2.8.2)


class RetainedReading:
    """Nodes for links that read by offset, for one broker."""

    def __init__(self, retained: RetainedNodes) -> None:
        self._retained = retained

    def node(self, source: Source) -> Node | None:
        """The node that a source wants to be read by offset, or can be read from in no other way; None: it
        is another one.
        """
        if source.address == EVENTS or asks_to_read(source.filter):
            return ReadNode(self._retained, source)
        if isinstance(source.address, str) and not source.dynamic and self._retained.is_log(source.address):
            return LogNode(self._retained, source)
        return None


class ReadNode(Node):
    """A node that is read by offset: the journal, or a queue that retains. A queue is made on first use."""

    is_received_from = True

    def __init__(self, retained: RetainedNodes, source: Source) -> None:
        if not isinstance(source.address, str) or source.dynamic:
            raise NodeRefused(INVALID, "expected the address of a node that is there to be read by offset")
        super().__init__(source.address)
        self._retained = retained
        self._request = read_filters(source.filter, retained.limits.cursor_name_bytes)
        self._user: CursorUser | None = None

    def check_source(self, attachment: Attachment) -> None:
        """Admits who may browse there, with filters that say from where."""
        source, request = attachment.source, self._request
        if source.distribution_mode not in (None, COPY):
            raise NodeRefused(
                NOT_ALLOWED,
                "expected distribution-mode copy or none: what is read by offset stays where it is, "
                f"got {source.distribution_mode!r:.80}",
            )
        site = self._retained.site(attachment.principal, self.name)
        queue = site is not None and not site.archives
        attachment.answer = _answer(source, self.name, request, queue=queue)
        if site is not None:
            self.sites = (site,)
            if site.queue is None and request.until is not None:
                start = request.start.number if request.start.kind == AT_OFFSET else 0
                check_range(self.name, start, request.until, Bounds(0, 0))

    async def make(self, attachment: Attachment) -> None:
        """Take a place among the readers, and the cursor, and then make a queue that is not there."""
        retained, cursor = self._retained, self._request.cursor
        retained.admit_reader()
        user = CursorUser(attachment.connection.container_id, attachment.principal)
        try:
            if cursor is not None:
                retained.cursors.read_with(cursor, self.name, user)
            self._user = user
            await super().make(attachment)
        except BaseException:
            self._give_back()
            raise

    def _give_back(self) -> None:
        """There will be no link: give back its place among the readers, and the cursor."""
        self._retained.reader_gone()
        if self._request.cursor is not None and self._user is not None:
            self._retained.cursors.read_no_more(self._request.cursor, self.name, self._user)

    async def open_source(self, attachment: Attachment) -> RetainedSource:
        """The source that reads from where the filters say. Raises NodeRefused where that is not there any
        more.
        """
        retained, request, user = self._retained, self._request, self._user
        assert user is not None, "the place among the readers is taken before"
        log: RetainedLog = retained.events
        try:
            if self.sites:
                log = retained.log_of(self.sites[0].made)
            start, bounds = await retained.nodes.writer.ask(
                lambda store: _begin(retained, request, log, store)
            )
        except BaseException:
            self._give_back()
            raise
        cursor = None
        if request.cursor is not None and attachment.attach.snd_settle_mode != SETTLED_MODE:
            cursor = CursorReading(request.cursor, user, start)
        reader = RetainedSource(
            attachment.connection, retained, log, attachment.link, start, request.until, cursor,
            request.passes,
        )  # fmt: skip
        reader.holds = None if request.cursor is None else (request.cursor, user)
        attachment.properties = {
            "store_id": retained.nodes.store_id,
            "kind": log.kind,
            "first": Ulong(bounds.first),
            "next": Ulong(bounds.next_offset),
            "start": Ulong(start),
        }
        return reader


class LogNode(ReadNode):
    """A log that is named without an offset: who browses is shown everything that is kept, as in any queue;
    who would take messages is told how to read them.
    """

    def __init__(self, retained: RetainedNodes, source: Source) -> None:
        super().__init__(retained, source)
        self._request = attrs.evolve(self._request, start=Start(FIRST))

    def check_source(self, attachment: Attachment) -> None:
        """Admits who may browse, and asks for that."""
        if attachment.source.distribution_mode != COPY:
            self._retained.nodes.site(attachment.principal, self.name, RECEIVE)
            raise NodeRefused(
                NOT_ALLOWED,
                f"{self.name!r} is a log: nobody takes messages from it. Attach with distribution-mode "
                f"copy, and with a filter {OFFSET_SPEC} that says where to begin",
            )
        super().check_source(attachment)


def _answer(source: Source, address: str, request: ReadRequest, *, queue: bool) -> Source:
    """The source of our attach as it really is; `queue`: consumers take from the same node."""
    answer = source_answer(source, address)
    answer.distribution_mode = COPY
    if not queue:
        answer.capabilities = no_queue(answer.capabilities)
    answer.filter = request.effective or None
    if source.default_outcome is None:
        answer.default_outcome = Accepted()
    return answer


def _begin(
    retained: RetainedNodes, request: ReadRequest, log: RetainedLog, store: Store
) -> tuple[int, Bounds]:
    """The first offset of the link, and what there is now."""
    bounds = log.bounds(store)
    start = begin_at(request.start, log, bounds, store)
    if request.cursor is not None:
        start = retained.cursors.positions(request.cursor, store).get(log.log_id, start)
    if request.until is None:
        return max(start, bounds.first), bounds
    check_range(log.address, start, request.until, bounds)
    return start, bounds


def check_range(address: str, start: int, until: int, bounds: Bounds) -> None:
    """Refuses a range that is not there as a whole, from its first message on."""
    if until < start:
        raise NodeRefused(INVALID, f"expected a range, got from {start} until {until}")
    info = {"address": address, "first": Ulong(bounds.first), "next": Ulong(bounds.next_offset)}
    there = f"{address!r} has the offsets from {bounds.first} to before {bounds.next_offset}"
    if start < bounds.first and start < until:
        raise NodeRefused(
            DROPPED,
            f"{there}; retention has dropped what was asked for, from {start} on",
            {**info, "asked": Ulong(start)},
        )
    if until > bounds.next_offset:
        raise NodeRefused(
            BEYOND, f"{there}; asked was for those before {until}", {**info, "asked": Ulong(until)}
        )
