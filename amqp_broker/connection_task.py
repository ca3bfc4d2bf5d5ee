"""One connection: turns that own the engine, beside a task that writes the socket.

    stream --> reader --bytes--> +-------+ --chunks--> writer --> stream
    other connections --mail-->  | turns |
    timer table ------wake---->  +-------+ --events--> sinks, sources --> writer of the store --mail--> turns

Only a turn touches the engine, one at a time. It takes everything that waits (bytes, mail, deadlines) and
ends with one piece of output. The task that reads takes the turn of what it has read, another one those of
mail and deadlines; where nothing else was ready, what has caused the mail (`at_hand`). Reading goes on only
after a turn took what was read: that is the back-pressure of TCP.
The protocol's own is credit and window, which are renewed after the commit.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import trio

from amqp_broker.authorisation import CONNECT
from amqp_broker.connection import Connection
from amqp_broker.frames import Error, Symbol
from amqp_broker.links import (
    LARGEST_FRAME_BYTES,
    AttachReceived,
    BodyLost,
    BodySent,
    ConnectionClosed,
    ConnectionOpened,
    LinkAttached,
    LinkDetached,
    OutcomesReceived,
    SaslInitReceived,
    SaslResponseReceived,
    SessionBegun,
)
from amqp_broker.links import Connection as Engine
from amqp_broker.log_setup import logger
from amqp_broker.nodes.attaching import answer_attach
from amqp_broker.nodes.termini import SOLE_CONNECTION
from amqp_broker.sasl_dialogue import SaslDialogue
from amqp_broker.transactions import Transactions
from amqp_broker.transport import transport_of

if TYPE_CHECKING:
    from amqp_broker.authentication import Authenticator
    from amqp_broker.broker_nodes import BrokerNodes
    from amqp_broker.links import ConnectionSettings, Piece
    from amqp_broker.nodes.registry import Registry
    from amqp_broker.peers import PeerInfo

_NUMBERS: Final = count(1)
WRITTEN_IN_TURN_BYTES: Final = 1_048_576  # then other connections have their turn: about 10 ms of a fast peer
CLOSE_GRACE_S: Final = 2.0  # after our close was written, how long the peer's may take

Connections = Callable[[], Iterable["ConnectionTask"]]
"""The connections that there are, in the order of their numbers."""


class ConnectionTask:
    """Serves one connection until it ends. Made for each accepted socket."""

    _nursery: trio.Nursery  # since `run`

    def __init__(
        self,
        nodes: BrokerNodes,
        registry: Registry,
        authenticator: Authenticator,
        settings: ConnectionSettings,
        stream: trio.abc.Stream,
        peer: PeerInfo,
    ) -> None:
        self._nodes = nodes
        self._registry = registry
        self._at_hand = nodes.at_hand
        self._limits = nodes.config.limits
        self._stream = stream
        self._transport = transport_of(stream)
        self.peer = peer
        self.number = next(_NUMBERS)
        """By which an administrator names it; no other connection of the process ever has it."""
        self.log = logger("connection").bind(peer=peer.address)
        self.engine = Engine(settings, trio.current_time())
        self.connection = connection = Connection(self.engine, nodes.link_names, self.log, self._on_mail)
        self.transactions = Transactions(connection, nodes)
        connection.expiring[self.transactions] = None
        self.opened = False  # before that it may be logging in
        self._inbox: bytes | None = None
        self._eof = self._broken = False
        self._eof_is = "end without close"
        self._end: tuple[str, Error | None] | None = None  # why it ends, and with which error in a close
        self._sole: tuple[str, str] | None = None  # what nobody else may have
        self._handling: list[Any] = []  # events, while they are handled
        self._output: list[Piece] = []
        self._output_bytes = 0  # of them
        self._writing = False
        self._turns_wait = trio.lowlevel.ParkingLot()
        self._signalled = self._in_turn = False
        self._over = False  # there are no more turns
        self._reader_waits = trio.lowlevel.ParkingLot()
        self._output_put = trio.lowlevel.ParkingLot()
        self._writing_since: float | None = None
        self._output_bound = self._limits.output_buffer_bytes
        self._account = settings.account
        self._account.relief = self._on_relief
        self._kept_bytes = 0  # of the account: for the connection itself
        self._relieved = False
        self._reads_again_at: float | None = None  # while what was read waits for memory, or the disk
        self._syncing = 0  # so much of what was read is on its way to the disk
        self._deadline = float("inf")
        self._dispatch: dict[type, Callable[[Any], None]] = {
            **connection.handlers(),
            SessionBegun: self._on_nothing,
            LinkAttached: self._on_nothing,
            ConnectionOpened: self._on_opened,
            ConnectionClosed: self._on_closed,
        }
        sasl = SaslDialogue(connection, authenticator, peer)
        self._answers: dict[type, Callable[[Any], Any]] = {
            AttachReceived: self._on_attach,
            SaslInitReceived: sasl.on_init,
            SaslResponseReceived: sasl.on_response,
        }

    # What others may call

    def stop(
        self, why: str = "broker stopping", description: str = "the broker is stopping",
        condition: str = "amqp:connection:forced",
    ) -> None:  # fmt: skip
        """The broker stops, or an administrator wants its end: close it (2.8.15)."""
        error = Error(condition=condition, description=description)
        self.connection.run_in_turn(self._close, why, error)

    def wrap_handler(self, event: type, wrap: Callable[[Callable[[Any], Any]], Callable[[Any], Any]]) -> None:
        """Have events of this class handled by `wrap(handler)`, before it runs (`faults`)."""
        table = self._dispatch if event in self._dispatch else self._answers
        table[event] = wrap(table[event])

    def _on_relief(self) -> None:
        """There is memory again, said from any task."""
        self._relieved = True
        self.wake()

    def wake(self) -> None:
        """Have the connection take a turn."""
        self._signalled = True
        self._on_mail()

    def _on_mail(self) -> None:
        """There is mail, or a fault: what its turn reads, or raises, is no reason for another one."""
        if self._turns_wait and not self._in_turn and not self._at_hand.takes(self):
            self._turns_wait.unpark()

    def _more_waits(self) -> bool:
        """Whether there is a reason for a turn."""
        connection = self.connection
        return self._signalled or connection.waiting or connection.fault is not None

    def leave_to_task(self) -> None:
        """Have its own task take the turn that it was woken for."""
        if self._turns_wait and not self._in_turn:
            self._turns_wait.unpark()

    def turn_at_hand(self) -> None:
        """A turn in the step of whoever woke it, if it is of mail alone; a fault in it is met by its own
        task.
        """
        if not self._turns_wait or self._in_turn:
            return  # it has its turn
        self._in_turn = True
        try:
            if self._has_only_mail():
                self._take_mail()
        except Exception as error:
            self.connection.fail(error)
        finally:
            self._in_turn = False
        if self._more_waits():
            self._turns_wait.unpark()

    def _has_only_mail(self) -> bool:
        waits = self._signalled or self._over or self._eof or self._broken or self._inbox is not None
        return not waits and self.connection.fault is None and trio.current_time() < self._deadline

    def _take_mail(self) -> None:
        """As `_turn`, up to where there is more to do than to write."""
        connection, engine = self.connection, self.engine
        connection.read_mail()
        if engine.events.waiting() or connection.disk_waits:
            self._signalled = True
            return
        self._commit()
        if self._flush() and (engine.output.room_awaited or engine.output_size()):
            self._signalled = True
        self._keep_bytes(engine.kept_bytes() + self._output_bytes)
        self._set_timer()
        self._signalled |= self._broken or engine.wants_close

    # The three tasks

    async def run(self) -> None:
        """Serve the connection until both sides are done with it or the transport breaks. Who calls it closes
        the transport: compiled code, after it has awaited in a `finally`, raises what its caller handles.
        """
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._owned, self._read)
                nursery.start_soon(self._owned, self._write)
                await self._own()
                nursery.cancel_scope.cancel()
        finally:
            self._do_each(
                self._log_end,
                partial(self._nodes.timers.forget, self),
                self._account.close,
                self._give_everything_back,
                self._end_links,
                self.transactions.connection_gone,
                self.connection.on_ended,
                self.connection.mail.close,
                self._give_up_claim,
                partial(self._keep_bytes, 0),
                self._let_go,
            )

    async def _owned(self, task: Callable[[], Awaitable[None]]) -> None:
        """A fault in it ends this connection, in a turn."""
        try:
            await task()
        except Exception as error:
            self._broken = task == self._write
            self.connection.fail(error)

    async def _read(self) -> None:
        transport = self._transport
        while True:
            awaited = 0 if self._account.pressed else self.engine.awaited_octets()
            try:
                data = await transport.receive(awaited)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                data = b""
                self._eof_is = "reset while reading"
            if not data:
                self._eof = True
                self.wake()
                return
            self._inbox = data
            self._signalled = True
            self._at_hand.begin()
            try:
                if self._over or await self._take_turns():
                    self.wake()
            finally:
                self._at_hand.end()
            if self._unread():
                await self._reader_waits.park()

    def _unread(self) -> bool:
        """Whether what was read waits. A call of its own: compiled code believes that what was set before an
        await is so behind it.
        """
        return self._inbox is not None

    def _begin_syncs(self) -> None:
        """While they last, nothing more is read; what others send to the peer, and time, do not wait."""
        waits = self.connection.disk_waits
        self._syncing += len(waits)
        for until in waits:
            self._nursery.start_soon(self._owned, partial(self._sync, until))
        waits.clear()

    async def _sync(self, until: Callable[[], Awaitable[None]]) -> None:
        try:
            await until()
        finally:
            self._syncing -= 1
            self.wake()

    def _read_on(self) -> None:
        """What was read has been taken."""
        if self._reader_waits:
            self._reader_waits.unpark()

    async def _write(self) -> None:
        try:
            while True:
                while not self._output:
                    await self._output_put.park()
                output, self._output = self._output, []
                self._output_bytes = 0
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
        while not await self._take_turns():
            await self._turns_wait.park()
        await self._finish()

    async def _take_turns(self) -> bool:
        """Turns until nothing waits; True when nothing more is to come. The task that reads takes them with
        what it has read, since a change of tasks costs as much as many a turn; the other takes the others.
        Who comes while a turn waits for something leaves the next one to whoever took that.
        """
        if self._in_turn:
            return self._over
        self._in_turn = True
        try:
            self._over = await self._turn()
            while self._more_waits() and not self._over:
                self._at_hand.give_up()
                await trio.lowlevel.checkpoint()
                self._over = await self._turn()
        except Exception:
            self._over = True
            self.log.exception("connection.internal_error")
            description = "a fault of the broker; see its log"
            self._close("internal error", Error(condition="amqp:internal-error", description=description))
            self._nodes.writer.commit_or_wake()  # what the turn had collected by then is done
            self._give_back(self.engine.take_events())
            self._flush()
        finally:
            self._in_turn = False
        return self._over

    async def _turn(self) -> bool:
        """Take everything that waits; True when nothing more is to come.

        take the input     what was read, unless the output has to be written first
        keep the time      what is due: the engine's deadlines, and those of what stands behind links
        read the mail      what other tasks and the writer left
        commit             what the turn has stored: here and now, or with a group of the writer
        write              as long as the socket takes it, and there is more to say
        set the timer      for the next deadline
        """
        self._signalled = False
        if self.connection.fault is not None:
            raise self.connection.fault
        now = trio.current_time()
        if self._relieved:
            self._relieved = False
            self.engine.relieved()
        if await self._take_input(now):
            return True
        if now >= self._deadline:
            await self._keep_time(now)
        self.connection.read_mail()
        if events := self.engine.take_events():
            await self._handle(events)
        if self.connection.disk_waits:
            self._begin_syncs()
        self._commit()
        await self._write_out()
        self._keep_bytes(self.engine.kept_bytes() + len(self._inbox or b"") + self._output_bytes)
        self._set_timer()
        return self._broken or (self.engine.wants_close and not self.engine.events.waiting())

    async def _take_input(self, now: float) -> bool:
        """True at the end of the input. While the peer is slowed down, what it wrote waits, and so does its
        end.
        """
        if not self.engine.takes_data():
            return False
        if self._inbox is not None and self._may_read() and not self._input_waits(now):
            data, self._inbox = self._inbox, None
            await self._handle(self.engine.receive_data(data, now))
            self._read_on()
        elif self._eof:
            self._ends(self._eof_is)
            await self._handle(self.engine.receive_eof(now))
            return True
        return False

    def _may_read(self) -> bool:
        """Whether the answers to what was read have room in the output: each time that it was written, it is
        filled again to its bound, or a frame beyond, as long as there is more to send.
        """
        return self.engine.output_size() <= self._output_bound + LARGEST_FRAME_BYTES

    def _input_waits(self, now: float) -> bool:
        """Whether what was read waits: its peer sent so much that nothing more would be taken, or the disk is
        behind. Not for long, since what frees memory may stand behind it: then what does not fit is refused.
        """
        no_memory = self._account.pressed and self._account.exhausted
        if not no_memory and not self._syncing:
            self._reads_again_at = None
        elif self._reads_again_at is None:
            # Shorter than the time after which a peer counts as silent.
            if no_memory:
                self._nodes.refusals.met("memory_wait_ms")
            self._reads_again_at = (
                now + min(self._limits.memory_wait_ms, self._limits.idle_time_out_ms) / 1000
            )
        elif now >= self._reads_again_at:
            self._reads_again_at = None
        return self._reads_again_at is not None

    def _keep_bytes(self, octets: int) -> None:
        """The connection itself keeps so much in memory now."""
        self._account.change(octets - self._kept_bytes)
        self._kept_bytes = octets

    async def _keep_time(self, now: float) -> None:
        self._deadline = float("inf")
        self._check_write_stall(now)
        self.connection.expire(now)
        await self._handle(self.engine.handle_timeout(now, unread=self._inbox is not None))

    def _commit(self) -> None:
        self._nodes.writer.commit_or_wake()
        if self.connection.waiting:  # the commit was made at once
            self.connection.read_mail()
            self._signalled = self._signalled or self.engine.events.waiting()

    async def _write_out(self) -> None:
        connection, engine = self.connection, self.engine
        left = WRITTEN_IN_TURN_BYTES
        while not self._broken and (
            ((octets := self._flush()) and engine.output_size()) or engine.output.room_awaited
        ):
            connection.offer_room()
            await self._handle(engine.take_events())
            left -= octets
            if left <= 0:
                self._signalled = True
                break
        if (self._inbox is not None and self._may_read() and self._reads_again_at is None) or self._eof:
            # Reading was held back for the output's sake, or to slow the peer down, which is over.
            self._signalled = self._signalled or engine.takes_data()

    async def _handle(self, events: list[Any]) -> None:
        connection = self.connection
        dispatch = self._dispatch
        while events:
            answered = False
            self._handling = events
            for event in events:
                handler = dispatch.get(type(event))
                if handler is not None:
                    handler(event)
                    while connection.pauses or connection.held_for is not None:
                        self._at_hand.give_up()
                        if connection.pauses:
                            await trio.lowlevel.checkpoint()
                            connection.go_on()
                        else:
                            await connection.released()()
                else:
                    self._at_hand.give_up()
                    await self._answers[type(event)](event)
                    answered = True
            self._handling = []
            events = (
                self.engine.receive_data(b"", trio.current_time()) if answered else self.engine.take_events()
            )

    def _flush(self) -> int:
        """Hand the output over: to the socket what it takes at once, the rest to the writing task. While that
        writes, further output stays with the engine and counts against the bound. How many octets it was.
        """
        if self._writing or self._broken:
            return 0
        octets = self.engine.output_size()
        pieces = self.engine.data_to_send()
        if not pieces:
            return 0
        try:
            rest = self._transport.send_now(pieces, octets)
        except trio.BrokenResourceError:
            self._broken = True
            return 0
        if rest:
            self._writing = True
            self._output = rest
            self._output_bytes = sum(map(len, rest))
            self._output_put.unpark()
        return octets

    def set_timer_anew(self) -> None:
        """What was due is due at another time."""
        self._nodes.timers.forget(self)
        self._deadline = float("inf")
        self._set_timer()

    def _set_timer(self) -> None:
        deadline = None if self._nodes.timers.spares_peers else self.engine.next_deadline()
        due = self.connection.next_deadline()
        if due is not None:
            deadline = due if deadline is None else min(deadline, due)
        if self._writing_since is not None:
            stall = self._writing_since + self._limits.write_stall_timeout_ms / 1000
            deadline = stall if deadline is None else min(deadline, stall)
        if self._reads_again_at is not None:
            deadline = self._reads_again_at if deadline is None else min(deadline, self._reads_again_at)
        if deadline is not None and deadline < self._deadline:
            self._deadline = deadline
            self._nodes.timers.set(deadline, self)

    def _check_write_stall(self, now: float) -> None:
        if self._writing_since is not None:
            limit = self._limits.write_stall_timeout_ms / 1000
            if now - self._writing_since >= limit:
                self.log.warning("connection.write_stalled", seconds=limit)
                self._nodes.refusals.met("write_stall_timeout_ms")
                self._ends("write stalled")
                self._broken = True

    async def _finish(self) -> None:
        """Write what is left, for a bounded time; then wait until the peer has seen our close."""
        with trio.move_on_after(CLOSE_GRACE_S):
            while (self._output or self._writing or self.engine.output_size()) and not self._broken:
                self._flush()
                await self._turns_wait.park()
            if not self._broken and not self._eof and hasattr(self._stream, "send_eof"):
                try:
                    await self._stream.send_eof()
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    return
                while not self._eof:
                    self._inbox = None
                    self._read_on()
                    await self._turns_wait.park()

    def _give_everything_back(self) -> None:
        """The wire broke, or the broker cuts it: every link of this connection ends as the engine says."""
        cut = not (self._broken or self._eof)
        self._give_back(self.engine.receive_eof(trio.current_time(), cut=cut))

    def _end_links(self) -> None:
        """End the links that the engine does not know any more."""
        self._give_back([LinkDetached(link, False, None, []) for link in self.connection.links])

    def _let_go(self) -> None:
        """Nothing is handled any more: what is left of the connection goes with the last who knows it. The
        collector of garbage, for which it would wait else, looks at what is old very seldom.
        """
        self._dispatch.clear()
        self._answers.clear()
        self.connection.let_go()
        self.engine.let_go()

    def _do_each(self, *steps: Callable[[], None]) -> None:
        """Run all steps, also after one that meets a fault of the broker."""
        for step in steps:
            try:
                step()
            except Exception:
                self.log.exception("connection.internal_error")

    def _give_back(self, events: list[Any]) -> None:
        """What was being handled when it failed, and then `events`: links end, and nothing else is heard."""
        handling, self._handling = self._handling, []
        for event in [*handling, *events]:
            if type(event) is LinkDetached:
                self._do_each(partial(self.connection.on_detached, event))
            elif type(event) is OutcomesReceived and event.settled:
                self._do_each(partial(self.connection.unheard, event))
            elif type(event) is BodyLost:  # the engine knows nothing of the message any more
                self._do_each(partial(self.connection.on_body_lost, event))
            elif type(event) is BodySent:
                self._do_each(partial(self.connection.on_body_sent, event))

    # Events that are not a link's

    def _on_nothing(self, event: object) -> None:
        """Sessions need no node, this side neither attaches nor drains."""

    def _on_opened(self, event: ConnectionOpened) -> None:
        self.peer.logged_in()
        self.opened = True
        principal = self.connection.principal
        if not self._nodes.authoriser.authorise(principal, CONNECT):
            description = f"{principal.rule_name!r} may not connect"
            self._close("our close", Error(condition="amqp:unauthorized-access", description=description))
        elif SOLE_CONNECTION in (event.remote_open.desired_capabilities or ()):
            self._claim(event.remote_open.container_id)
        self.log.info(
            "connection.opened", container_id=event.remote_open.container_id, principal=principal.name
        )

    def _claim(self, container_id: str) -> None:
        """The peer asks that nobody else of its user has its container-id who asks for the same."""
        key = (self.connection.principal.rule_name, container_id)
        if self._nodes.sole_containers.setdefault(key, self) is not self:
            description = f"container {container_id!r} is connected, and asked to be the only one"
            info = {"invalid-field": Symbol("container-id")}
            error = Error(condition="amqp:invalid-field", description=description, info=info)
            self._close("our close", error)
        else:
            self._sole = key

    def _give_up_claim(self) -> None:
        if self._sole is not None:
            self._nodes.sole_containers.pop(self._sole, None)
            self._sole = None

    def _on_closed(self, event: ConnectionClosed) -> None:
        self._give_up_claim()
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
        credit = self._limits.link_credit
        await answer_attach(self.connection, self.transactions, self._registry, event, credit)
