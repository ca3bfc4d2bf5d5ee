"""What can be done by hand with the messages of a queue: purge, move, copy, browse, and one message by its
offset.

    offset --a group of available messages, those that pass the selector--> one commit --> next_offset

One request does one group: at most GROUP messages are looked at, and what is done with those of them that are
meant is done in one commit, or not at all. The reply says where the next request goes on. So what asks keeps
its place, and nothing waits in the broker. What a consumer, a transaction or a delay holds is left alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from amqp_broker.addresses import AddressError, parse_address
from amqp_broker.authorisation import BROWSE, DELETE, MANAGE_WRITE, PURGE, Principal
from amqp_broker.filters.fields import MessageFields
from amqp_broker.filters.source_filter import FilterRefused, SourceFilter, selector_filter
from amqp_broker.frames import Error
from amqp_broker.log import Log
from amqp_broker.log_setup import logger
from amqp_broker.management.entity_types import Action, Argument
from amqp_broker.management.errors import Unmanageable
from amqp_broker.management.shown_messages import AVAILABLE, HELD, shown_bytes, shown_message
from amqp_broker.nodes.refusals import NodeRefused
from amqp_broker.operations.moving import Moved, fitting, posting
from amqp_broker.operations.operation import answer_to
from amqp_broker.operations.removal import Removal
from amqp_broker.persistence import Record, Store
from amqp_broker.queue import Queue, fresh, why_full
from amqp_broker.selection import LOOKED_AT_ONCE

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes

T = TypeVar("T")

GROUP: Final = 1_000  # messages of one commit
SHOWN: Final = 100  # messages of a page, unless the request says another number
SHOWN_BYTES: Final = 1 << 20  # of one page
BODY_BYTES: Final = 1_024  # of each message in a page, unless the request says another number
BODY_BYTES_MAX: Final = 1 << 20

OFFSET: Final = Argument("offset", int)
COUNT: Final = Argument("count", int)
SELECTOR: Final = Argument("selector")
TO: Final = Argument("to", required=True)
WHICH: Final = Argument("offset", int, required=True)
OCTETS: Final = Argument("body_bytes", int)
FORCE: Final = Argument("force", bool)

Arguments = Mapping[str, Any]


def message_actions(nodes: BrokerNodes, queue_of: Callable[[T], Queue]) -> dict[str, Action[T]]:
    """What can be done with the messages of an entity that has a queue."""

    def action(
        run: Callable[[BrokerNodes, Queue, Arguments, Principal], Awaitable[Any]], right: str, meaning: str,
        *arguments: Argument,
    ) -> Action[T]:  # fmt: skip
        def start(thing: T, told: Arguments, principal: Principal) -> Awaitable[Any]:
            queue = queue_of(thing)
            if isinstance(queue, Log):
                raise Unmanageable(409, f"{queue.name!r} is a log: it keeps what it has; read it by offset")
            return run(nodes, queue, told, principal)

        return Action(start, meaning, arguments, right)

    move, copy = partial(_relocate, leave=True), partial(_relocate, leave=False)
    group = (OFFSET, COUNT, SELECTOR)
    return {
        "PURGE": action(_purge, PURGE, "a group of its messages is gone", *group),
        "MOVE": action(move, MANAGE_WRITE, "a group goes to another queue, behind what is there", TO, *group),
        "COPY": action(copy, MANAGE_WRITE, "another queue gets a group, too", TO, *group),
        "BROWSE": action(_browse, BROWSE, "a page of what nobody holds", *group, OCTETS),
        "READ-MESSAGE": action(_read_message, BROWSE, "one message, also while it is held", WHICH, OCTETS),
        "DELETE-MESSAGE": action(_delete_message, PURGE, "one message that nobody holds is gone", WHICH),
    }


def deletion(nodes: BrokerNodes) -> Action[Queue]:
    """How a queue is deleted by hand."""

    def delete(queue: Queue, told: Arguments, _: Principal) -> Awaitable[None]:
        return _delete(nodes, queue, force=bool(told["force"]))

    meaning = "it is gone; with messages, links or transactions only by `force`, and they are gone with it"
    return Action(delete, meaning, (FORCE,), DELETE)


# A group of messages


class Group:
    """The messages that a request is about, found between two commits; what is to be done with them is begun
    before anybody else has a turn.
    """

    def __init__(self, nodes: BrokerNodes, queue: Queue, told: Arguments, store: Store) -> None:
        wanted = _filter(told["selector"])
        start, count = told["offset"] or 0, told["count"]
        now_ms = nodes.clock.now_ms()
        most = GROUP if wanted is None else LOOKED_AT_ONCE
        looked_at, self._next = nodes.page_at(queue, store, start, most)
        self.end_offset = queue.backlog.available_to
        records = fresh(looked_at, now_ms)
        if wanted is not None:
            records = [record for record in records if wanted.matches(MessageFields(record))]
        self.records = records
        if count is not None:
            self.cut(count)

    def cut(self, count: int) -> None:
        """Only the first `count` of them; the next request goes on behind these."""
        if count < len(self.records):
            self._next = self.records[count].offset
            self.records = self.records[:count]

    def reply(self) -> dict[str, Any]:
        """How many they are, where to go on, and where the queue ends now."""
        return {"messages": len(self.records), "next_offset": self._next, "end_offset": self.end_offset}


def _filter(selector: str | None) -> SourceFilter | None:
    try:
        return selector_filter(selector) if selector else None
    except FilterRefused as refused:
        raise Unmanageable(400, f"selector: {refused}") from None


# Away


async def _purge(nodes: BrokerNodes, queue: Queue, told: Arguments, _: Principal) -> dict[str, Any]:
    def begin(store: Store) -> tuple[Group, Moved]:
        group = Group(nodes, queue, told, store)
        return group, _begun(nodes, Moved(nodes, queue, group.records, [], "an administrator purged it"))

    group, moved = await nodes.writer.ask(begin)
    await moved.done()
    return group.reply()


async def _delete_message(nodes: BrokerNodes, queue: Queue, told: Arguments, _: Principal) -> None:
    def begin(store: Store) -> Moved:
        offset = told["offset"]
        record = _available(nodes, queue, store, offset)
        if record is None:
            raise Unmanageable(404, f"expected the offset of a message that nobody holds, got {offset}")
        return _begun(nodes, Moved(nodes, queue, [record], [], "an administrator deleted it"))

    await (await nodes.writer.ask(begin)).done()


async def _relocate(
    nodes: BrokerNodes, queue: Queue, told: Arguments, principal: Principal, *, leave: bool
) -> dict[str, Any]:
    target = _target(nodes, queue, told["to"], principal)

    def begin(store: Store) -> tuple[Group, Moved]:
        if target.deleted:
            raise Unmanageable(404, f"to: queue {target.name!r} is gone")
        group = Group(nodes, queue, told, store)
        room = len(fitting(target, group.records))
        if group.records and not room:
            raise Unmanageable(409, why_full(target))
        group.cut(room)
        posts = [posting(nodes, target, group.records)]
        leaving = group.records if leave else []
        return group, _begun(nodes, Moved(nodes, queue, leaving, posts, f"moved to {target.name!r}"))

    group, moved = await nodes.writer.ask(begin)
    await moved.done()
    return group.reply()


def _begun(nodes: BrokerNodes, moved: Moved) -> Moved:
    nodes.writer.submit(moved)
    return moved


def _target(nodes: BrokerNodes, queue: Queue, name: str, principal: Principal) -> Queue:
    """The queue where messages go. Raises Unmanageable."""
    try:
        address = parse_address(name)
    except AddressError as error:
        raise Unmanageable(400, f"to: {error}") from None
    if not nodes.authoriser.authorise(principal, MANAGE_WRITE, address):
        raise Unmanageable(403, f"{principal.rule_name!r} may not {MANAGE_WRITE} at {address.name!r}")
    target = None if address.reserved else nodes.queues.find(address.name)
    if target is None:
        raise Unmanageable(404, f"to: expected the address of a queue that is there, got {name!r:.120}")
    if target is queue:
        raise Unmanageable(409, f"to: expected another queue than {name!r:.120}")
    try:
        nodes.queues.site_by_name(target.name).check_replies()
    except NodeRefused as refused:
        raise Unmanageable(409, f"to: {refused}") from None
    return target


# Looking


async def _browse(nodes: BrokerNodes, queue: Queue, told: Arguments, _: Principal) -> dict[str, Any]:
    most = min(BODY_BYTES if told["body_bytes"] is None else told["body_bytes"], BODY_BYTES_MAX)
    count = SHOWN if told["count"] is None else min(told["count"], GROUP)

    def look(store: Store) -> dict[str, Any]:
        group = Group(nodes, queue, {**told, "count": count}, store)
        size = 0
        for at, record in enumerate(group.records):
            size += shown_bytes(record, most)
            if size > SHOWN_BYTES and at:
                group.cut(at)
                break
        shown = [shown_message(record, AVAILABLE, most, _expires(nodes, record)) for record in group.records]
        return {**group.reply(), "messages": shown}

    return await nodes.writer.ask(look)


async def _read_message(nodes: BrokerNodes, queue: Queue, told: Arguments, _: Principal) -> dict[str, Any]:
    offset = told["offset"]
    most = min(BODY_BYTES_MAX if told["body_bytes"] is None else told["body_bytes"], BODY_BYTES_MAX)

    def look(store: Store) -> dict[str, Any]:
        record, state = _available(nodes, queue, store, offset), AVAILABLE
        if record is None:
            record, state = _stored(nodes, queue, store, offset), HELD
        if record is None:
            raise Unmanageable(404, f"expected the offset of a message of {queue.name!r}, got {offset}")
        return shown_message(record, state, most, _expires(nodes, record))

    return await nodes.writer.ask(look)


def _expires(nodes: BrokerNodes, record: Record) -> int:
    """When the message expires, by the clock on the wall; 0 is never."""
    return nodes.clock.shown(record.expires_at_ms) if record.expires_at_ms else 0


def _available(nodes: BrokerNodes, queue: Queue, store: Store, offset: int) -> Record | None:
    found, _ = nodes.page_at(queue, store, offset, 1)
    return found[0] if found and found[0].offset == offset else None


def _stored(nodes: BrokerNodes, queue: Queue, store: Store, offset: int) -> Record | None:
    """The message as the store has it, also while somebody holds it."""
    if not queue.persistent:
        return None
    found = nodes.page_of(queue, store, offset, 1, 1).records
    return found[0] if found and found[0].offset == offset else None


# The end of a queue


async def _delete(nodes: BrokerNodes, queue: Queue, *, force: bool) -> None:
    _check_deletion(nodes, queue, force=force)
    if any(outlives(queue) for outlives in nodes.queues.outliving):
        await nodes.dead_letter_site.make()
        _check_deletion(nodes, queue, force=force)
    if queue.leaving:
        await nodes.letters_stored(queue)  # a crash between two commits would lose what has left it
        _check_deletion(nodes, queue, force=force)
    if queue.message_count:
        logger("management").warning("queue.messages_lost", queue=queue.name, count=queue.message_count)
    verbs = nodes.drop(queue, "its queue was deleted by hand")
    error: Error | None = await answer_to(lambda then: nodes.writer.submit(Removal(verbs, then)))
    if error is not None:
        described = f"queue {queue.name!r} may be there again after a restart: {error.description}"
        raise Unmanageable(500, described)


def _check_deletion(nodes: BrokerNodes, queue: Queue, *, force: bool) -> None:
    """Raises Unmanageable where the queue stays."""
    reason = _why_not_deleted(nodes, queue, force=force)
    if reason:
        raise Unmanageable(409, reason)


def _why_not_deleted(nodes: BrokerNodes, queue: Queue, *, force: bool) -> str:
    """Why the queue stays; empty if it may go."""
    name = queue.name
    if not nodes.queues.holds(queue):
        return f"queue {name!r} is gone already"
    if queue.retains:
        return f"queue {name!r} retains messages for those who read it by offset, and stays"
    for need in nodes.queues.needs:
        why = need(queue)
        if why:
            return f"queue {name!r} stays: {why}"
    count = queue.message_count
    if count and (queue.events or not force):
        hint = "purge or move them first" if queue.events else "purge or move them, or say force"
        return f"expected an empty queue, {name!r} has {count} messages: {hint}"
    if force:
        return ""
    links = len(queue.consumers) + len(queue.producers)
    if links or queue.pending_posts or queue.leaving or queue.reserved_messages:
        return (
            f"expected a queue that nobody uses, {name!r} has {links} links and {queue.reserved_messages} "
            f"messages of transactions and half messages: wait for these, or say force"
        )
    return ""
