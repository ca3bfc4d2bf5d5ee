"""One connection: the task that owns the engine, beside one that reads the socket and one that writes it.

    stream --> reader --bytes--> +-------+ --chunks--> writer --> stream
    other connections --mail-->  | owner |
    timer table ------wake---->  +-------+ --events--> dispatcher --> nodes --> writer of the store --mail-->
    owner

The engine is touched by the owner alone, in turns. A turn takes everything that waits (bytes, mail,
deadlines) and ends with one piece of output. Reading goes on only after the owner took what was read: that is
the back-pressure of TCP; the protocol's own is credit and window, which are renewed after the commit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from amqp_broker.attaching import answer_attach
from amqp_broker.authorisation import ANONYMOUS, CONNECT, Principal
from amqp_broker.dispatcher import Dispatcher
from amqp_broker.frames import Error
from amqp_broker.links import (
    AttachReceived,
    Connection,
    ConnectionClosed,
    ConnectionOpened,
    CreditDrained,
    CreditReceived,
    DeliveriesReceived,
    DeliveriesSettled,
    Delivery,
    FlowReceived,
    LinkAttached,
    LinkDetached,
    OutcomesReceived,
    ReceiverLink,
    SaslInitReceived,
    SaslResponseReceived,
    SenderLink,
    SessionBegun,
    SessionEnded,
)
from amqp_broker.log_setup import logger
from amqp_broker.mailbox import Mailbox
from amqp_broker.message_events import Origin
from amqp_broker.posts import deleted_error
from amqp_broker.queue import Consumer, Queue
from amqp_broker.sasl_dialogue import SaslDialogue
from amqp_broker.transport import transport_of

if TYPE_CHECKING:
    from amqp_broker.authentication import Authenticator
    from amqp_broker.configuration import BrokerConfig
    from amqp_broker.coordinator import Ended
    from amqp_broker.links import ConnectionSettings
    from amqp_broker.listener import PeerInfo
    from amqp_broker.operations.discharge import Discharge
    from amqp_broker.operations.posting import Posting, Settlement
    from amqp_broker.producers import Producer
    from amqp_broker.services import Services
    from amqp_broker.timers import Timers

CLOSE_GRACE_S: Final = 2.0  # after our close was written, how long the peer's may take


class Host(Protocol):
    """The broker, as its connections know it."""

    config: BrokerConfig
    services: Services
    authenticator: Authenticator
    timers: Timers

    def connection_settings(self, peer: PeerInfo) -> ConnectionSettings:
        """What a new connection announces and enforces."""


class ConnectionTask:
    """Serves one connection until it ends. Made for each accepted socket."""

    def __init__(self, broker: Host, stream: trio.abc.Stream, peer: PeerInfo) -> None:
        self._broker = broker
        self._services = broker.services
        self._stream = stream
        self._transport = transport_of(stream)
        self._peer = peer
        self.log = logger("connection").bind(peer=peer.address)
        self.principal: Principal = ANONYMOUS
        self.engine = Connection(broker.connection_settings(peer), trio.current_time())
        self.dispatcher = Dispatcher(self, self._services)
        self._inbox: bytes | None = None
        self._eof = False
        self._eof_is = "end without close"
        self._end: tuple[str, Error | None] | None = None  # why it ends, and with which error in a close
        self._mail = Mailbox(self.wake)
        self._offers: dict[Any, None] = {}
        self._handling: list[Any] = []  # events, while they are handled
        self._output: bytes | memoryview = b""
        self._writing = False
        self._owner: trio.lowlevel.Task | None = None
        self._signalled = False
        self._reader: trio.lowlevel.Task | None = None
        self._output_put = trio.lowlevel.ParkingLot()
        self._broken = False
        self._fault: Exception | None = None
        self._origin: Origin | None = None  # since something was posted
        self._writing_since: float | None = None
        self._output_bound = broker.config.limits.output_buffer_bytes
        self._deadline = float("inf")
        self._dispatch: dict[type, Callable[[Any], None]] = {
            DeliveriesReceived: self.dispatcher.posts.on_deliveries,
            OutcomesReceived: self.dispatcher.on_outcomes,
            CreditReceived: self.dispatcher.on_credit,
            FlowReceived: self.dispatcher.on_flow,
            DeliveriesSettled: self.dispatcher.on_sender_settled,
            LinkDetached: self.dispatcher.on_detached,
            SessionBegun: self._on_nothing,
            SessionEnded: self._on_nothing,
            LinkAttached: self._on_nothing,
            CreditDrained: self._on_nothing,
            ConnectionOpened: self._on_opened,
            ConnectionClosed: self._on_closed,
        }
        sasl = SaslDialogue(self, broker.authenticator, peer)
        self._answers: dict[type, Callable[[Any], Any]] = {
            AttachReceived: self._on_attach,
            SaslInitReceived: sasl.on_init,
            SaslResponseReceived: sasl.on_response,
        }

    # What others may call: they leave mail, the owner reads it in its next turn

    def deliver(self, consumer: Consumer, records: list[Any]) -> None:
        """A queue assigned `records` to a consumer of this connection."""
        if records:
            consumer.pending.extend(records)
            self._mail.post(self._send_assigned, consumer, None)
        else:
            self._offers[consumer] = None
            self.wake()

    def posted(self, posting: Posting, error: Exception | None) -> None:
        """A posting of this connection was committed, or refused by the store."""
        self._mail.post(self.dispatcher.posts.posted, posting, error)

    def settled(self, settlement: Settlement) -> None:
        """Outcomes that this connection's peer gave were committed."""
        self._mail.post(self._confirm, settlement, None)

    def run_in_turn(self, call: Callable[..., None], *arguments: Any) -> None:
        """Have `call(*arguments)` run in a turn of this connection, where its engine may be touched."""
        self._mail.post(_call, call, arguments)

    def answered(self, link: ReceiverLink, delivery: Delivery, outcome: Any) -> None:
        """One of the broker's own nodes is done with a message of this connection."""
        self._mail.post(partial(self._answer, outcome), link, delivery)

    def tell_discharged(self, discharge: Discharge, ended: Ended) -> None:
        """The discharge of a transaction of this connection is decided."""
        self._mail.post(self.dispatcher.transactions.tell_discharged, discharge, ended)

    def tell_ended(self, ended: Ended) -> None:
        """A transaction of this connection was rolled back from outside."""
        self._mail.post(self._tell_ended, ended, None)

    def partial_txn_ids(self) -> set[bytes]:
        """Of the deliveries that are half here; in a turn of this connection."""
        return self.engine.partial_txn_ids()

    def unblock(self, producer: Producer) -> None:
        """A full queue has room again."""
        self._mail.post(self._unblock, producer, None)

    def node_deleted(self, link: ReceiverLink | SenderLink, queue: Queue) -> None:
        """The node that a link of this connection was attached to is gone."""
        self._mail.post(self._detach_deleted, link, queue)

    def steal(self, link: ReceiverLink | SenderLink) -> None:
        """Another connection of the same container attached a link of this name (2.6.1)."""
        self._mail.post(self._detach_stolen, link, None)

    def link_key(self, link: ReceiverLink | SenderLink) -> tuple[str, str, bool, str]:
        """What a link is known by among all connections (2.6.1), and whose it is: a container-id is only
        claimed.
        """
        return self.principal.rule_name, self.container_id, isinstance(link, SenderLink), link.name

    @property
    def origin(self) -> Origin:
        """Of what its peer posts outside of transactions."""
        if self._origin is None:
            self._origin = Origin(self.container_id, b"")
        return self._origin

    @property
    def container_id(self) -> str:
        """The peer's container-id, from its open."""
        remote_open = self.engine.remote_open
        return "" if remote_open is None else remote_open.container_id or ""

    def fail(self, error: Exception) -> None:
        """A fault of the broker met what this peer asked for: it ends, and nobody else notices."""
        self._fault = error
        self.wake()

    def stop(self) -> None:
        """The broker stops: close the connection with `amqp:connection:forced` (2.8.15)."""
        error = Error(condition="amqp:connection:forced", description="the broker is stopping")
        self._mail.post(self._close_stopping, error, None)

    def wake(self) -> None:
        """Have the owner take a turn."""
        self._signalled = True
        if self._owner is not None:
            owner, self._owner = self._owner, None
            trio.lowlevel.reschedule(owner)

    # The three tasks

    async def run(self) -> None:
        """Serve the connection until both sides are done with it or the transport breaks."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read)
                nursery.start_soon(self._write)
                await self._own()
                nursery.cancel_scope.cancel()
        finally:
            self._log_end()
            self._broker.timers.forget(self)
            self._give_everything_back()
            with trio.move_on_after(CLOSE_GRACE_S, shield=True):
                await trio.aclose_forcefully(self._stream)

    async def _read(self) -> None:
        transport = self._transport
        while True:
            try:
                data = await transport.receive()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                data = b""
                self._eof_is = "reset while reading"
            if not data:
                self._eof = True
                self.wake()
                return
            self._inbox = data
            self.wake()
            if self._inbox is not None:
                self._reader = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._stop_reading)

    def _stop_reading(self, _: object) -> trio.lowlevel.Abort:
        self._reader = None
        return trio.lowlevel.Abort.SUCCEEDED

    def _read_on(self) -> None:
        """What was read has been taken."""
        if self._reader is not None:
            reader, self._reader = self._reader, None
            trio.lowlevel.reschedule(reader)

    async def _write(self) -> None:
        try:
            while True:
                while not self._output:
                    await self._output_put.park()
                output, self._output = self._output, b""
                self._writing_since = trio.current_time()
                await self._transport.send_all(output)
                self._writing_since = None
                self._writing = False
                if self.engine.output_size() or self.engine.wants_close:
                    self.wake()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._broken = True
            self.wake()

    async def _own(self) -> None:
        while True:
            try:
                finished = await self._turn()
            except Exception:
                self.log.exception("connection.internal_error")
                description = "a fault of the broker; see its log"
                self._close("internal error", Error(condition="amqp:internal-error", description=description))
                self._flush()
                await self._finish()
                return
            if finished:
                await self._finish()
                return
            if self._signalled:
                await trio.lowlevel.checkpoint()
            else:
                await self._park()

    async def _park(self) -> None:
        def abort(_: object) -> trio.lowlevel.Abort:
            self._owner = None
            return trio.lowlevel.Abort.SUCCEEDED

        self._owner = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(abort)

    async def _turn(self) -> bool:
        """Take everything that waits; True when nothing more is to come."""
        self._signalled = False
        if self._fault is not None:
            raise self._fault
        engine = self.engine
        now = trio.current_time()
        if self._inbox is not None and engine.output_size() <= self._output_bound:
            data, self._inbox = self._inbox, None
            await self._handle(engine.receive_data(data, now))
            self._read_on()
        elif self._eof:
            self._ends(self._eof_is)
            await self._handle(engine.receive_eof(now))
            return True
        if now >= self._deadline:
            self._deadline = float("inf")
            self._check_write_stall(now)
            self.dispatcher.transactions.expire(now)
            self.dispatcher.posts.sequenced.expire(now)
            await self._handle(engine.handle_timeout(now))
        self._read_mail()
        if events := engine.take_events():
            await self._handle(events)
        self._services.nodes.writer.commit_or_wake()
        if self._mail or self._offers:  # the commit was made at once
            self._read_mail()
            self._signalled = self._inbox is not None or self._eof
        dispatcher = self.dispatcher
        while self._flush() and (dispatcher.stalled or dispatcher.stalled_sources or engine.output_size()):
            dispatcher.offer_stalled()  # there is room in the output again
            await self._handle(engine.take_events())
        if self._inbox is not None and engine.output_size() <= self._output_bound:
            self._signalled = True  # reading was held back for the output's sake, which is over
        self._set_timer()
        return self._broken or engine.wants_close

    def _read_mail(self) -> None:
        self._mail.read()
        if self._offers:
            offers, self._offers = self._offers, {}
            for consumer in offers:
                self.dispatcher.send_assigned(consumer)

    async def _handle(self, events: list[Any]) -> None:
        dispatch = self._dispatch
        while events:
            answered = False
            self._handling = events
            for event in events:
                handler = dispatch.get(type(event))
                if handler is not None:
                    handler(event)
                else:
                    await self._answers[type(event)](event)
                    answered = True
            self._handling = []
            events = (
                self.engine.receive_data(b"", trio.current_time()) if answered else self.engine.take_events()
            )

    def _flush(self) -> bool:
        """Hand the output over: to the socket what it takes at once, the rest to the writing task. While that
        writes, further output stays with the engine and counts against the bound.
        """
        if self._writing or self._broken:
            return False
        chunks = self.engine.data_to_send()
        if not chunks:
            return False
        output = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        try:
            sent = self._transport.send_now(output)
        except trio.BrokenResourceError:
            self._broken = True
            return False
        if sent < len(output):
            self._writing = True
            self._output = memoryview(output)[sent:] if sent else output
            self._output_put.unpark()
        return True

    def _set_timer(self) -> None:
        deadline = self.engine.next_deadline()
        transaction_deadline = self.dispatcher.transactions.next_deadline()
        if transaction_deadline is not None:
            deadline = transaction_deadline if deadline is None else min(deadline, transaction_deadline)
        if self.dispatcher.posts.sequenced.waiting:
            order_deadline = self.dispatcher.posts.sequenced.next_deadline()
            if order_deadline is not None:
                deadline = order_deadline if deadline is None else min(deadline, order_deadline)
        if self._writing_since is not None:
            stall = self._writing_since + self._services.nodes.config.limits.write_stall_timeout_ms / 1000
            deadline = stall if deadline is None else min(deadline, stall)
        if deadline is not None and deadline < self._deadline:
            self._deadline = deadline
            self._broker.timers.set(deadline, self)

    def _check_write_stall(self, now: float) -> None:
        if self._writing_since is not None:
            limit = self._services.nodes.config.limits.write_stall_timeout_ms / 1000
            if now - self._writing_since >= limit:
                self.log.warning("connection.write_stalled", seconds=limit)
                self._ends("write stalled")
                self._broken = True

    async def _finish(self) -> None:
        """Write what is left, for a bounded time; then wait until the peer has seen our close."""
        with trio.move_on_after(CLOSE_GRACE_S):
            while (self._output or self._writing or self.engine.output_size()) and not self._broken:
                self._flush()
                await self._park()
            if not self._broken and not self._eof and hasattr(self._stream, "send_eof"):
                try:
                    await self._stream.send_eof()
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    return
                while not self._eof:
                    self._inbox = None
                    self._read_on()
                    await self._park()

    def _give_everything_back(self) -> None:
        """The wire broke: every link of this connection ends as the engine says."""
        try:
            for event in [*self._handling, *self.engine.receive_eof(trio.current_time())]:
                if type(event) is LinkDetached:
                    self.dispatcher.on_detached(event)
        except Exception:
            self.log.exception("connection.internal_error")
        for consumer in list(self.dispatcher.consumers.values()):
            self.dispatcher.on_detached(LinkDetached(consumer.link, True, None, []))
        for source in list(self.dispatcher.sources):
            self.dispatcher.on_detached(LinkDetached(source, True, None, []))
        for link in [*self.dispatcher.posts.producers, *self.dispatcher.posts.services]:
            self.dispatcher.on_detached(LinkDetached(link, True, None, []))
        self.dispatcher.transactions.connection_gone()
        self._mail.close()

    # Mail

    def _confirm(self, settlement: Settlement, _: None) -> None:
        self.dispatcher.settled(settlement)

    def _send_assigned(self, consumer: Consumer, _: None) -> None:
        self.dispatcher.send_assigned(consumer)

    def _unblock(self, producer: Producer, _: None) -> None:
        self.dispatcher.posts.unblock(producer)

    def _answer(self, outcome: Any, link: ReceiverLink, delivery: Delivery) -> None:
        self.dispatcher.posts.answered(link, delivery, outcome)

    def _tell_ended(self, ended: Ended, _: None) -> None:
        self.dispatcher.transactions.tell(ended)

    def _detach_deleted(self, link: ReceiverLink | SenderLink, queue: Queue) -> None:
        if self.dispatcher.holds(link):
            link.detach(deleted_error(queue))

    def _detach_stolen(self, link: ReceiverLink | SenderLink, _: None) -> None:
        if self.dispatcher.holds(link):
            description = f"container {self.container_id!r} attached {link.name!r} on another connection"
            link.detach(Error(condition="amqp:link:stolen", description=description))

    def _close_stopping(self, error: Error, _: None) -> None:
        self._close("broker stopping", error)

    # Events that are not the dispatcher's

    def _on_nothing(self, event: object) -> None:
        """Sessions need no node, and this side neither attaches nor drains."""

    def _on_opened(self, event: ConnectionOpened) -> None:
        self._peer.logged_in()
        if not self._services.nodes.authoriser.authorise(self.principal, CONNECT):
            description = f"{self.principal.rule_name!r} may not connect"
            self._close("our close", Error(condition="amqp:unauthorized-access", description=description))
        self.log.info(
            "connection.opened", container_id=event.remote_open.container_id, principal=self.principal.name
        )

    def _on_closed(self, event: ConnectionClosed) -> None:
        self._ends("our close" if event.local else "peer's close", event.error)

    def _close(self, why: str, error: Error) -> None:
        self._ends(why, error)
        self.engine.close(error)

    def _ends(self, why: str, error: Error | None = None) -> None:
        """The first reason is the reason: what comes after it follows from it."""
        self._end = self._end or (why, error)

    def _log_end(self) -> None:
        """A connection that ends without a reason of its own is cut off, because the broker stops."""
        why, error = self._end or ("reset while writing" if self._broken else "broker stopping", None)
        condition, description = (None, None) if error is None else (error.condition, error.description)
        self.log.info("connection.closed", why=why, condition=condition, description=description)

    async def _on_attach(self, event: AttachReceived) -> None:
        if not event.link.session.writable:
            self.engine.answered()  # something before it in the same read ended its session: nobody waits
            return
        await answer_attach(self, self._services, event)


def _call(call: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    call(*arguments)
