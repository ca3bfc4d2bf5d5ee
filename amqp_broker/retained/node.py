"""The node `$retained`: what can be read by offset, from where, and durable cursors.

request     properties: subject = the operation, reply-to = a queue that the asker reads, correlation-id
            body: amqp-value, a map
reply       properties: subject "ok", correlation-id as asked; body: amqp-value, a map
error       the request is rejected, and says why

describe {address?}                     -> {store_id, nodes: [{address, first, next, bytes, retention_ms,
                                           retention_bytes}]}
find     {address, timestamp}           -> {offset}
wait     {positions, timeout_ms}        -> as describe, of these addresses, when one of them has grown
checksum {address, start, until}        -> {count, checksum}, of the journal only
hold     {cursor, start}                -> {store_id, positions}; the link holds the cursor
cursor   {cursor}                       -> {positions, held_by?}
move     {cursor, positions}            -> {positions}
forget   {cursor}                       -> {}
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio

from amqp_broker.authorisation import Principal
from amqp_broker.connection import Sink
from amqp_broker.event_checksums import MODULUS, OCTETS
from amqp_broker.frames import DecodeError, Error, Message, Properties, Rejected, Ulong
from amqp_broker.nodes import requests
from amqp_broker.nodes.node import Attachment
from amqp_broker.nodes.refusals import NodeRefused, refusal_of
from amqp_broker.nodes.requests import RequestNode, RequestSink
from amqp_broker.operations.posting import Question
from amqp_broker.persistence import RowDamaged, Store, StoreFailed
from amqp_broker.replies import PendingReply, ok_reply
from amqp_broker.retained.cursors import CursorUser, Positions, by_name
from amqp_broker.retained.filters import INVALID, LOCKED, NO_ROOM, NOT_ALLOWED
from amqp_broker.retained.logs import QueueLog, RetainedLog, begin_at
from amqp_broker.retained.reading import check_range
from amqp_broker.retained.requests import Request, read_request

if TYPE_CHECKING:
    from amqp_broker.retained.retained_nodes import RetainedNodes

WAIT_MS_MAX: Final = 10_000
CHECKSUM_EVENTS_MAX: Final = 65_536  # of one request: a second of the broker's time, in pages
MAX_DESCRIBED: Final = 10_000  # nodes in one reply: about a megabyte

Reply = dict[str, Any]


class Asked:
    """One request: how its asker is answered, once."""

    def __init__(
        self, retained: RetainedNodes, post: requests.Request, request: Request, pending: PendingReply
    ) -> None:
        self.retained = retained
        self.nodes = retained.nodes
        self.principal = post.principal
        self.container_id = post.container_id
        self.connection = post.connection
        self.request = request
        self._post = post
        self._pending = pending

    def reply(self, body: Reply) -> None:
        """The request is done: send the reply."""
        self._pending.send(ok_reply(self.request.correlation_id, body))

    def refuse(self, error: Exception) -> None:
        """The request can't be done, and nothing of it was."""
        if isinstance(error, NodeRefused):
            refusal = error.error
        elif isinstance(error, RowDamaged):
            refusal = Error(condition="amqp:internal-error", description=str(error))
        else:
            refusal = Error(condition="amqp:resource-limit-exceeded", description=str(error))
        self._pending.refuse(refusal)

    def failed(self, fault: Exception) -> None:
        """A fault of the broker met the request."""
        self._pending.failed(fault)

    def look(self, question: Callable[[Store], Reply]) -> None:
        """Reply with the answer of `question` between two commits; it may raise NodeRefused."""

        def look() -> Callable[[], None]:
            try:
                return partial(self.reply, self.nodes.writer.lookup(question))
            except (NodeRefused, RowDamaged) as error:
                return partial(self.refuse, error)

        self.nodes.turns.own_operations += 1
        self.nodes.writer.submit(Question(look, self.refuse, self._post.connection))


class Waiting:
    """A request that is answered when one of some logs has grown, or its time is over."""

    def __init__(self, asked: Asked, logs: list[RetainedLog], known: list[int]) -> None:
        self._asked = asked
        self._logs = logs
        self._known = known
        self._over = False

    def begin(self, timeout_ms: int) -> None:
        """Wait for at most so many milliseconds."""
        self._asked.nodes.timers.set(trio.current_time() + timeout_ms / 1000, self)
        for log, known in zip(self._logs, self._known, strict=True):
            if not self._over:
                self._asked.retained.wait(log, self, known)

    def grown(self) -> None:
        """One of the logs has grown."""
        self.end()
        self._asked.look(partial(_described, self._asked.retained, self._logs))

    def wake(self) -> None:
        """The time is over."""
        if not self._over:
            self.grown()

    def end(self) -> None:
        """Stop waiting."""
        self._over = True
        self._asked.nodes.timers.forget(self)
        for log in self._logs:
            self._asked.retained.wait_no_more(log, self)


class Summing:
    """A request for the checksum of a range of the journal, which is read page by page, in its turn."""

    def __init__(self, asked: Asked, start: int, until: int) -> None:
        self._asked = asked
        self._position = start
        self._until = until
        self._count = self._sum = 0

    def begin(self) -> None:
        """Read the first page."""
        self._asked.retained.turns.ask(self)

    def read_page(self, store: Store) -> None:
        """Sum the next page up; the last one is answered."""
        retained = self._asked.retained
        size = min(self._until - self._position, retained.limits.retained_page_messages)
        try:
            self._check(store)
            count, total = retained.events.checksum(store, self._position, size)
        except StoreFailed:
            raise
        except NodeRefused:
            self._asked.look(self._answer)
            return
        except Exception as fault:  # the owner of a fault is who asked
            self._asked.failed(fault)
            raise
        self._position += size
        self._count += count
        self._sum = (self._sum + total) % MODULUS
        if self._position < self._until:
            retained.turns.ask(self)
        else:
            self._asked.look(self._answer)

    def _check(self, store: Store) -> None:
        """What retention has dropped meanwhile is missing from its beginning on."""
        log = self._asked.retained.events
        check_range(log.address, self._position, self._until, log.bounds(store))

    def _answer(self, store: Store) -> Reply:
        self._check(store)
        return {"count": Ulong(self._count), "checksum": self._sum.to_bytes(OCTETS, "big")}


class RetainedNode(RequestNode):
    """The node `$retained`; rights are asked for with each request."""

    def __init__(self, retained: RetainedNodes, name: str) -> None:
        super().__init__(name)
        self._retained = retained

    def sink(self, attachment: Attachment) -> RetainedRequests:
        """The sink for the requests of one link."""
        return RetainedRequests(self._retained, attachment)

    def relayed(self, relay: Sink, attachment: Attachment) -> Sink:
        """The sink for one request that came through the anonymous terminus, which can hold nothing."""
        return RetainedRequests(self._retained, attachment, relayed=True)


class RetainedRequests(RequestSink):
    """One link to the node `$retained`; `relayed` is one message through the anonymous terminus, which can
    hold nothing.
    """

    def __init__(self, retained: RetainedNodes, attachment: Attachment, *, relayed: bool = False) -> None:
        super().__init__(attachment)
        self._retained = retained
        self._relayed = relayed
        self._holds: dict[str, CursorUser] = {}
        self._gone = False
        self._operations: dict[str, Callable[[Asked], None]] = {
            "describe": self._describe,
            "find": self._find,
            "wait": self._wait,
            "checksum": self._checksum,
            "hold": self._hold,
            "cursor": self._cursor,
            "move": self._move,
            "forget": self._forget,
        }

    def receive(self, post: requests.Request) -> None:
        """Take one request."""
        try:
            properties = Message(post.payload).properties or Properties()
            operation = self._operations.get(str(properties.subject))
            if operation is None:
                names = ", ".join(self._operations)
                raise NodeRefused(
                    INVALID, f"expected the subject to be one of {names}, got {properties.subject!r:.80}"
                )
            request = read_request(post.payload, properties)
            asked = Asked(
                self._retained, post, request, PendingReply(self._retained.nodes, post, properties.reply_to)
            )
            try:
                operation(asked)
            except NodeRefused as refused:
                asked.refuse(refused)
        except (NodeRefused, DecodeError) as refused:
            post.answer(Rejected(error=refusal_of(refused)))

    def on_detached(self) -> None:
        """The cursors that the link held are free."""
        self._gone = True
        for name, user in self._holds.items():
            self._retained.cursors.release(name, user)
        self._holds.clear()

    # Logs

    def _describe(self, asked: Asked) -> None:
        address = asked.request.optional("address")
        if address is None:
            logs = self._retained.logs(asked.principal)
            if len(logs) > MAX_DESCRIBED:
                raise NodeRefused(
                    NO_ROOM, f"there are {len(logs)} nodes, more than {MAX_DESCRIBED}: expected an address"
                )
        else:
            logs = [self._retained.log_at(asked.principal, address)]
        asked.look(partial(_described, self._retained, logs))

    def _find(self, asked: Asked) -> None:
        log = self._retained.log_at(asked.principal, asked.request.optional("address"))
        at_ms = asked.request.milliseconds("timestamp")

        def question(store: Store) -> Reply:
            return {"offset": Ulong(max(log.bounds(store).first, log.offset_at(store, at_ms)))}

        asked.look(question)

    def _wait(self, asked: Asked) -> None:
        known = asked.request.positions("positions")
        timeout_ms = asked.request.milliseconds("timeout_ms")
        if timeout_ms > WAIT_MS_MAX:
            raise NodeRefused(
                INVALID, f"timeout_ms: expected at most {WAIT_MS_MAX} milliseconds, got {timeout_ms}"
            )
        if not known:
            raise NodeRefused(INVALID, "positions: expected at least one address")
        logs = [self._retained.log_at(asked.principal, address) for address in known]
        Waiting(asked, logs, list(known.values())).begin(timeout_ms)

    def _checksum(self, asked: Asked) -> None:
        log = self._retained.log_at(asked.principal, asked.request.optional("address"))
        if log is not self._retained.events:
            raise NodeRefused(NOT_ALLOWED, f"expected {self._retained.events.address!r}, got {log.address!r}")
        start, until = asked.request.offset("start"), asked.request.offset("until")
        if not 0 < until - start <= CHECKSUM_EVENTS_MAX:
            raise NodeRefused(
                INVALID, f"until: expected 1 to {CHECKSUM_EVENTS_MAX} events, got {start} until {until}"
            )
        Summing(asked, start, until).begin()

    # Cursors

    def _hold(self, asked: Asked) -> None:
        if self._relayed:
            raise NodeRefused(NOT_ALLOWED, "hold: expected a link of its own to $retained")
        name = asked.request.cursor(self._retained.limits.cursor_name_bytes)
        start = asked.request.starts("start")
        logs = {address: self._retained.log_at(asked.principal, address) for address in start}
        known = name in self._holds
        user = self._holds.setdefault(name, CursorUser(asked.container_id, asked.principal))
        try:
            self._retained.cursors.hold(name, user)
        except NodeRefused:
            if not known:
                del self._holds[name]
            raise

        def wanted(store: Store) -> Positions:
            there = self._retained.cursors.positions(name, store)
            self._check_readable(asked.principal, there)
            made: Positions = {}
            for address, log in logs.items():
                if log.log_id not in there:
                    bounds = log.bounds(store)
                    at = begin_at(start[address], log, bounds, store)
                    made[log.log_id] = min(max(at, bounds.first), bounds.next_offset)
            return made

        def then(error: Exception | None) -> None:
            if error is None:
                asked.reply({"store_id": self._retained.nodes.store_id, **self._named(move.left)})
                return
            if not known:
                self._holds.pop(name, None)
                self._retained.cursors.release(name, user)
            asked.refuse(error)

        move = self._retained.cursors.move(name, asked.principal, wanted, then)
        move.asker = asked.connection

    def _cursor(self, asked: Asked) -> None:
        name = asked.request.cursor(self._retained.limits.cursor_name_bytes)
        held_by = self._retained.cursors.held_by(name)
        self._tell_positions(asked, name, {} if held_by is None else {"held_by": held_by})

    def _move(self, asked: Asked) -> None:
        name = asked.request.cursor(self._retained.limits.cursor_name_bytes)
        positions = asked.request.positions("positions")
        logs = {address: self._retained.log_at(asked.principal, address) for address in positions}

        def wanted(store: Store) -> Positions:
            self._check_readable(asked.principal, self._retained.cursors.positions(name, store))
            for address, log in logs.items():
                end = log.bounds(store).next_offset
                if positions[address] > end:
                    raise NodeRefused(
                        INVALID,
                        f"positions: {address!r} has the offsets before {end}, got {positions[address]}",
                    )
            return {log.log_id: positions[address] for address, log in logs.items()}

        def then(error: Exception | None) -> None:
            if error is None:
                asked.reply(self._named(move.left))
            else:
                asked.refuse(error)

        move = self._retained.cursors.move(name, asked.principal, wanted, then)
        move.asker = asked.connection

    def _forget(self, asked: Asked) -> None:
        name = asked.request.cursor(self._retained.limits.cursor_name_bytes)
        held_by = self._retained.cursors.held_by(name)
        if held_by is not None and name not in self._holds:
            raise NodeRefused(LOCKED, f"cursor {name!r} is in use by a link of container {held_by!r}")

        def may(positions: Positions) -> None:
            self._check_readable(asked.principal, positions)

        def then(error: Exception | None) -> None:
            if error is None:
                asked.reply({})
            else:
                asked.refuse(error)

        self._retained.cursors.forget(name, asked.principal, may, then).asker = asked.connection

    def _named(self, positions: Positions) -> Reply:
        named = by_name(positions, self._retained.addresses())
        return {"positions": {address: Ulong(offset) for address, offset in named.items()}}

    def _tell_positions(self, asked: Asked, name: str, more: Reply) -> None:
        def question(store: Store) -> Reply:
            positions = self._retained.cursors.positions(name, store)
            self._check_readable(asked.principal, positions)
            return {**more, **self._named(positions)}

        asked.look(question)

    def _check_readable(self, principal: Principal, positions: Positions) -> None:
        """Who may not read somewhere learns nothing of cursors there."""
        for address in by_name(positions, self._retained.addresses()):
            if not self._retained.may_read(principal, address):
                raise NodeRefused(
                    "amqp:unauthorized-access",
                    f"the cursor stands at nodes that {principal.rule_name!r} may not read by offset",
                )


def _described(retained: RetainedNodes, logs: list[RetainedLog], store: Store) -> Reply:
    config = retained.nodes.config
    described: list[dict[str, Any]] = []
    for log in logs:
        bounds = log.bounds(store)
        keep_ms, keep_bytes = config.limits.event_keep_ms, config.limits.event_keep_bytes
        if isinstance(log, QueueLog):
            policy = retained.nodes.queues.site_by_name(log.address).policy
            keep_ms, keep_bytes = policy.retention_ms, policy.retention_bytes
        described.append(
            {
                "address": log.address,
                "kind": log.kind,
                "first": Ulong(bounds.first),
                "next": Ulong(bounds.next_offset),
                "bytes": Ulong(bounds.byte_count),
                "retention_ms": Ulong(keep_ms),
                "retention_bytes": Ulong(keep_bytes),
            }
        )
    return {"store_id": retained.nodes.store_id, "nodes": described}
