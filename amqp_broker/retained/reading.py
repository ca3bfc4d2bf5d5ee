"""Nodes that are read by offset: where a link begins, and what there is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from amqp_broker.configuration_tables import QUEUE_KIND
from amqp_broker.frames import Accepted, Source, Ulong
from amqp_broker.nodes.node import Node
from amqp_broker.nodes.termini import COPY, no_queue, source_answer
from amqp_broker.persistence import Store
from amqp_broker.queues import NodeRefused
from amqp_broker.retained.cursors import Holder
from amqp_broker.retained.filters import (
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
    from amqp_broker.queue import Queue
    from amqp_broker.retained.service import RetainedService

SETTLED_MODE: Final = 1  # snd-settle-mode settled (2.8.2)


class RetainedReading:
    """Opens links that read by offset; one for each broker."""

    def __init__(self, service: RetainedService) -> None:
        self._service = service

    def node(self, source: Source) -> Node | None:
        """The node that a source wants to be read by offset; None: it does not."""
        if source.address == EVENTS or asks_to_read(source.filter):
            return ReadNode(self._service, source)
        return None

    async def open_log(self, attachment: Attachment, queue: Queue) -> RetainedSource:
        """A link to a log that names no offset: who browses is shown everything that is kept, as in any
        queue; who would take messages is told how to read them. Raises NodeRefused.
        """
        source = attachment.source
        if source.distribution_mode != COPY:
            raise NodeRefused(
                NOT_ALLOWED,
                f"{queue.name!r} is a log: nobody takes messages from it. Attach with distribution-mode "
                f"copy, and with a filter {OFFSET_SPEC} that says where to begin (PIPELINE.md)",
            )
        return await ReadNode(self._service, source).open(attachment, Start(FIRST))


class ReadNode(Node):
    """What is read by offset: the event log, or a queue that retains."""

    is_received_from = True

    def __init__(self, service: RetainedService, source: Source) -> None:
        if not isinstance(source.address, str) or source.dynamic:
            raise NodeRefused(INVALID, "expected the address of a node that is there to be read by offset")
        super().__init__(source.address)
        self._service = service

    async def open_source(self, attachment: Attachment) -> RetainedSource:
        """From where the filters say."""
        return await self.open(attachment, None)

    async def open(self, attachment: Attachment, start_at: Start | None) -> RetainedSource:
        """From `start_at`, or where the filters say. Raises NodeRefused."""
        source, service = attachment.source, self._service
        if source.distribution_mode not in (None, COPY):
            raise NodeRefused(
                NOT_ALLOWED,
                "expected distribution-mode copy or none: what is read by offset stays where it is, "
                f"got {source.distribution_mode!r:.80}",
            )
        request = read_filters(source.filter)
        if start_at is not None:
            request = attrs.evolve(request, start=start_at)
        log = await service.log_for(attachment.principal, self.name)
        attachment.answer = _answer(source, log, request)
        service.admit_reader()
        holder = Holder(attachment.connection.container_id)
        try:
            if request.cursor is not None:
                service.cursors.read_with(request.cursor, log.log_id, holder)
            start, bounds = await service.nodes.writer.ask(lambda store: _begin(service, request, log, store))
        except BaseException:
            service.reader_gone()
            if request.cursor is not None:
                service.cursors.read_no_more(request.cursor, log.log_id, holder)
            raise
        cursor = None
        if request.cursor is not None and attachment.attach.snd_settle_mode != SETTLED_MODE:
            cursor = CursorReading(request.cursor, holder, start)
        reader = RetainedSource(
            attachment.connection, service, log, attachment.link, start, request.until, cursor
        )
        reader.holds = None if request.cursor is None else (request.cursor, holder)
        attachment.properties = {
            "log": service.nodes.store_id,
            "kind": log.kind,
            "first": Ulong(bounds.first),
            "next": Ulong(bounds.next_offset),
            "start": Ulong(start),
        }
        return reader


def _answer(source: Source, log: RetainedLog, request: ReadRequest) -> Source:
    """The source of our attach as it really is."""
    answer = source_answer(source, log.address)
    answer.distribution_mode = COPY
    if log.kind != QUEUE_KIND:
        answer.capabilities = no_queue(answer.capabilities)
    answer.filter = request.effective or None
    if source.default_outcome is None:
        answer.default_outcome = Accepted()
    return answer


def _begin(
    service: RetainedService, request: ReadRequest, log: RetainedLog, store: Store
) -> tuple[int, Bounds]:
    """The first offset of the link, and what there is now."""
    bounds = log.bounds(store)
    start = begin_at(request.start, log, bounds, store)
    if request.cursor is not None:
        start = service.cursors.positions(request.cursor, store).get(log.log_id, start)
    if request.until is None:
        return max(start, bounds.first), bounds
    _check_range(log, start, request.until, bounds)
    return start, bounds


def _check_range(log: RetainedLog, start: int, until: int, bounds: Bounds) -> None:
    """A range has to be there as a whole, from its first message on."""
    if until < start:
        raise NodeRefused(INVALID, f"expected a range, got from {start} until {until}")
    info = {"address": log.address, "first": Ulong(bounds.first), "next": Ulong(bounds.next_offset)}
    there = f"{log.address!r} has the offsets from {bounds.first} to before {bounds.next_offset}"
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
