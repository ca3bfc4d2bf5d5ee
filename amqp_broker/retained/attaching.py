"""The answer to an attach with an offset filter, or to `$events`: where the link begins, what there is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from amqp_broker.configuration_tables import QUEUE_KIND
from amqp_broker.frames import Accepted, Source, Ulong
from amqp_broker.persistence import Store
from amqp_broker.retained.cursors import Holder
from amqp_broker.retained.filters import (
    BEYOND,
    DROPPED,
    FIRST,
    INVALID,
    NOT_ALLOWED,
    OFFSET_SPEC,
    ReadRequest,
    RetainedRefused,
    Start,
    asks_to_read,
    read_filters,
)
from amqp_broker.retained.logs import EVENTS, Bounds, RetainedLog, begin_at
from amqp_broker.retained.source import CursorReading, RetainedSource
from amqp_broker.termini import COPY, no_queue, source_answer

if TYPE_CHECKING:
    from amqp_broker.link_owner import LinkOwner
    from amqp_broker.links import AttachReceived, SenderLink
    from amqp_broker.queue import Queue
    from amqp_broker.retained.service import RetainedService

SETTLED_MODE: Final = 1  # snd-settle-mode settled (2.8.2)


def reads_by_offset(source: Source) -> bool:
    """Whether a link with this source is one."""
    return source.address == EVENTS or asks_to_read(source.filter)


async def accept_browser(
    task: LinkOwner,
    service: RetainedService,
    link: SenderLink,
    event: AttachReceived,
    source: Source,
    queue: Queue,
) -> None:
    """Accept a link to a log that names no offset: who browses is shown everything that is kept, as in any
    queue; who would take messages is told how to read them. Raises as `accept_reader`.
    """
    if source.distribution_mode != COPY:
        raise RetainedRefused(
            NOT_ALLOWED,
            f"{queue.name!r} is a log: nobody takes messages from it. Attach with distribution-mode copy, "
            f"and with a filter {OFFSET_SPEC} that says where to begin (PIPELINE.md)",
        )
    await accept_reader(task, service, link, event, source, Start(FIRST))


async def accept_reader(
    task: LinkOwner,
    service: RetainedService,
    link: SenderLink,
    event: AttachReceived,
    source: Source,
    start_at: Start | None = None,
) -> None:
    """Accept a link that reads by offset: from `start_at`, or where its filters say. Raises NodeRefused,
    TerminusRefused, RetainedRefused.
    """
    if not isinstance(source.address, str) or source.dynamic:
        raise RetainedRefused(INVALID, "expected the address of a node that is there to be read by offset")
    if source.distribution_mode not in (None, COPY):
        raise RetainedRefused(
            NOT_ALLOWED,
            "expected distribution-mode copy or none: what is read by offset stays where it is, "
            f"got {source.distribution_mode!r:.80}",
        )
    request = read_filters(source.filter)
    if start_at is not None:
        request = attrs.evolve(request, start=start_at)
    log = await service.log_for(task.principal, source.address)
    answer = source_answer(source, log.address)
    answer.distribution_mode = COPY
    if log.kind != QUEUE_KIND:
        answer.capabilities = no_queue(answer.capabilities)
    answer.filter = request.effective or None
    if source.default_outcome is None:
        answer.default_outcome = Accepted()
    service.admit_reader()
    holder = Holder(task.container_id)
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
    if request.cursor is not None and event.attach.snd_settle_mode != SETTLED_MODE:
        cursor = CursorReading(request.cursor, holder, start)
    reader = RetainedSource(task, service, log, link, start, request.until, cursor)
    reader.holds = None if request.cursor is None else (request.cursor, holder)
    task.dispatcher.serve_source(link, reader)
    link.accept(
        source=answer,
        target=event.attach.target,
        properties={
            "log": service.nodes.store_id,
            "kind": log.kind,
            "first": Ulong(bounds.first),
            "next": Ulong(bounds.next_offset),
            "start": Ulong(start),
        },
    )
    task.log.debug("link.attached", name=link.name, role="sender", source=log.address, offset=start)


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
        raise RetainedRefused(INVALID, f"expected a range, got from {start} until {until}")
    info = {"address": log.address, "first": Ulong(bounds.first), "next": Ulong(bounds.next_offset)}
    there = f"{log.address!r} has the offsets from {bounds.first} to before {bounds.next_offset}"
    if start < bounds.first and start < until:
        raise RetainedRefused(
            DROPPED,
            f"{there}; retention has dropped what was asked for, from {start} on",
            {**info, "asked": Ulong(start)},
        )
    if until > bounds.next_offset:
        raise RetainedRefused(
            BEYOND, f"{there}; asked was for those before {until}", {**info, "asked": Ulong(until)}
        )
