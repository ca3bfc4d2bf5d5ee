"""The broker put together: store, writer, nodes, timers, listeners and connections under one nursery.

async with open_broker(BrokerConfig(memory=True)) as broker:
    await broker.serve_tcp("127.0.0.1", 0)
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from amqp_broker.at_hand import TurnsAtHand
from amqp_broker.authentication import Authenticator
from amqp_broker.broker_nodes import BrokerNodes
from amqp_broker.clock import BrokerClock, wall_clock_ms
from amqp_broker.configuration import (
    DEAD_LETTERS,
    RABBITMQ_FORM,
    BrokerConfig,
    ConfigurationError,
    ListenerConfig,
    Problem,
    shown,
)
from amqp_broker.connection_task import CLOSE_GRACE_S, ConnectionTask
from amqp_broker.dead_letters.dead_letters import DeadLetterCounts
from amqp_broker.dead_letters.redrive import EVERYTHING, redrive
from amqp_broker.features import Features
from amqp_broker.frames import MIN_MAX_FRAME_SIZE
from amqp_broker.half_sets.administration import HalfSetInfo
from amqp_broker.half_sets.settings import SET_KIND
from amqp_broker.halves.administration import HalfAdministration
from amqp_broker.halves.destinations import why_elsewhere
from amqp_broker.links import Account, ConnectionSettings, Limits, MemoryBudget, PartialBytes
from amqp_broker.live_transactions import LiveTransaction
from amqp_broker.log_setup import logger
from amqp_broker.machine_memory import memory_bytes
from amqp_broker.managed import Managed
from amqp_broker.nodes.termini import ANONYMOUS_RELAY, DELAYED_DELIVERY, SHARED_SUBS, SOLE_CONNECTION
from amqp_broker.operations.writer import Writer
from amqp_broker.peers import product_properties
from amqp_broker.persistence import MemoryStore, Store, StoreError, StoreFailed, Unit
from amqp_broker.persistence.questions import OpenHalves, StoreId
from amqp_broker.retained.administration import (
    CursorInfo,
    RetainedInfo,
    durable_cursors,
    retained_nodes,
)
from amqp_broker.retained.log_making import make_logs
from amqp_broker.sequences.administration import PAGE, StreamInfo
from amqp_broker.timekeeper import Timekeeper
from amqp_broker.timers import Timers

if TYPE_CHECKING:
    from amqp_broker.faults import Faults
    from amqp_broker.given_sockets import GivenSockets
    from amqp_broker.listener import OpenListener, PeerInfo
    from amqp_broker.reloading.reload import Read, Reloaded

LAST_WORDS_S: Final = 0.1
"""How long the closes may take to get to the sockets when there is no grace: many tasks may be at work."""


class Broker:
    """A running broker; made by `open_broker`."""

    def __init__(
        self,
        config: BrokerConfig,
        store: Store,
        nursery: trio.Nursery,
        faults: Faults | None = None,
        wall_clock: Callable[[], int] = wall_clock_ms,
        read_again: Read | None = None,
    ) -> None:
        self._faults = faults
        self._read_again = read_again
        self._reloading = trio.Lock()
        self.while_reloading: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
        """What each reload is put into."""
        self._nursery = nursery
        self.timers = Timers()
        self.memory = MemoryBudget(memory_bytes(config))
        self.memory.on_pressure = self._tell_memory
        self.clock = BrokerClock(wall_clock)
        self.writer = Writer(store, self.timers, self.clock, self.memory)
        self.timekeeper = Timekeeper(self.clock, self.writer, self.timers)
        self.nodes = BrokerNodes(config, self.writer, self.timers, self.clock, self.memory)
        self._connections: dict[ConnectionTask, None] = {}
        self.features = Features(self.nodes)
        self.managed = Managed(self.features, self.connections, nursery.start_soon, self.reload)
        self.registry = self.features.registry
        self.authenticator = Authenticator(config)
        self._engine_limits = engine_limits(config)
        self._partial_bytes = PartialBytes(config.limits.partial_deliveries_bytes)
        self._stop_asked = trio.Event()
        self._accepting: list[trio.CancelScope] = []
        self.configured_listeners: list[OpenListener] = []
        """Those of the configuration, once they are open."""
        self._grace_s: float | None = None
        self._last_gone = trio.Event()
        self.http_url: str | None = None
        """Where health and metrics are told, once it listens there."""
        self._log = logger("broker")

    # Serving

    async def start_listeners(self, given: GivenSockets | None = None) -> list[str]:
        """Listen where the configuration says, with the sockets that are `given` for that; returns a URL for
        each listener, without that of health and metrics (`http_url`). Raises ListenError, and
        ConfigurationError for an extra that is missing.
        """
        async with self._reloading:  # what a reload changes are all listeners, or none
            if self.config.http.url is not None:
                await self._listen_for_http()
            self.configured_listeners = await self._open_listeners(self.config.listeners, given)
        return _urls(self.configured_listeners)

    async def _listen_for_http(self) -> None:
        try:
            from amqp_broker.monitoring.monitoring import http_server
        except ImportError as error:
            allowed = f"needs the package {error.name}: pip install 'amqp-broker[metrics]'"
            raise ConfigurationError(Problem("http.url", shown(self.config.http.url), allowed)) from None
        server = http_server(self.managed.management, self.why_closed)
        self.http_url = await self._nursery.start(server.serve, self._nursery)
        self._log.info("http.listening", url=self.http_url)

    def why_closed(self) -> str:
        """Why it takes no connections; empty where it does."""
        if self._stop_asked.is_set():
            return "it is stopping"
        return "" if self._accepting else "it does not listen yet"

    async def serve_tcp(self, host: str, port: int) -> str:
        """Listen on one more address, port 0 for any; returns the URL that clients dial. Raises
        ListenError.
        """
        written = f"[{host}]" if ":" in host else host
        config = ListenerConfig(url=f"amqp://{written}:{port}")
        return _urls(await self._open_listeners((config,)))[0]

    @property
    def config(self) -> BrokerConfig:
        """What holds now: management changes some of it while the broker runs."""
        return self.nodes.config

    async def serve_stream(self, stream: trio.abc.Stream, peer: PeerInfo) -> None:
        """Serve one connection over `stream` until it ends, and close it. Raises no fault of the broker: that
        ends the connection.
        """
        if len(self._connections) >= self.config.limits.max_connections or self._stop_asked.is_set():
            self._log.warning("connection.refused", peer=peer.address, reason="max_connections or stopping")
            if not self._stop_asked.is_set():
                self.nodes.refusals.met("max_connections")
            await trio.aclose_forcefully(stream)
            return
        if self._faults is not None:
            stream = self._faults.wrap_stream(stream)
        task = ConnectionTask(
            self.nodes, self.registry, self.authenticator, self.connection_settings(peer), stream, peer
        )
        if self._faults is not None:
            self._faults.watch(task, stream)
        self._connections[task] = None
        try:
            try:
                await task.run()
            finally:
                with trio.move_on_after(CLOSE_GRACE_S, shield=True):
                    await trio.aclose_forcefully(stream)
        except Exception:
            task.log.exception("connection.internal_error")
        finally:
            del self._connections[task]
            if not self._connections:
                self._last_gone.set()

    def connection_settings(self, peer: PeerInfo) -> ConnectionSettings:
        """What a new connection announces and enforces."""
        config = self.config
        limits = config.limits
        node = config.container_id if RABBITMQ_FORM in config.address_forms else None
        return ConnectionSettings(
            server=True,
            container_id=config.container_id,
            max_frame_size=limits.max_frame_size_bytes,
            channel_max=limits.max_sessions - 1,
            handle_max=limits.max_links_per_session - 1,
            idle_time_out_ms=limits.idle_time_out_ms,
            offered_capabilities=(ANONYMOUS_RELAY, DELAYED_DELIVERY, SHARED_SUBS, SOLE_CONNECTION),
            sasl_mechanisms=self.authenticator.mechanisms_for(peer.listener, peer),
            allow_bare_header=config.anonymous_allowed(peer.listener),
            limits=self._engine_limits,
            partial_bytes=self._partial_bytes,
            account=Account(self.memory),
            refusals=self.nodes.refusals,
            peer_rate=peer.operations,
            properties=product_properties(config.product, config.product_version, node),
        )

    async def _open_listeners(
        self, configs: tuple[ListenerConfig, ...], given: GivenSockets | None = None
    ) -> list[OpenListener]:
        from amqp_broker.listener import open_listeners, serve_listeners

        listeners = await open_listeners(configs, self.config.certificates, given)

        async def accept(*, task_status: trio.TaskStatus[None]) -> None:
            with trio.CancelScope() as scope:
                self._accepting.append(scope)
                await serve_listeners(
                    listeners,
                    lambda: self.config.limits,
                    self.serve_stream,
                    refusals=self.nodes.refusals,
                    handler_nursery=self._nursery,
                    task_status=task_status,
                )

        try:
            await self._nursery.start(accept)
        except BaseException:
            for listener in listeners:
                listener.trio_listener.socket.close()
            raise
        return listeners

    async def recover_halves(self) -> None:
        """Take up the half messages that are not decided."""
        halves = await self.writer.ask(OpenHalves())
        find = self.nodes.queues.find
        if any(why_elsewhere(half.destination, find(half.destination)) for half in halves):
            await self.nodes.dead_letter_site.make()
        self.features.halves.recover(halves)

    async def create_queues_at_start(self) -> None:
        """Make the queues that the configuration wants to exist from the start."""
        for name in self.config.queues_at_start():
            await self.nodes.queues.create(name)

    def _tell_memory(self, reached: bool) -> None:
        """Said once when senders have to wait for memory, and once when none has to any more."""
        memory = self.memory
        facts = {"used_bytes": memory.used_bytes, "memory_bytes": memory.limit_bytes}
        if reached:
            self._log.warning("memory.reached", **facts)
        else:
            self._log.info("memory.relieved", **facts)

    async def reload(self, config: BrokerConfig | None = None) -> Reloaded:
        """Have this configuration hold from now on, or what its file says now, as far as it can while the
        broker runs; what is told says what it could not. Raises ReloadRefused; nothing has changed then.
        """
        from amqp_broker.reloading.reload import ReloadRefused, reload

        read = self._read_again if config is None else lambda: config
        if read is None:
            raise ReloadRefused("the broker was started without a configuration file")
        async with self._reloading, self.while_reloading():
            return await reload(self, read)

    def take_up(self, authenticator: Authenticator, memory_bytes: int) -> None:
        """The configuration is another one: what is made of it for connections is made again."""
        self.authenticator = authenticator
        self._engine_limits = engine_limits(self.config)
        self._partial_bytes.limit_bytes = self.config.limits.partial_deliveries_bytes
        if memory_bytes != self.memory.limit_bytes:
            self.memory.resize(memory_bytes)

    def connections(self) -> list[ConnectionTask]:
        """Those that there are, in the order of their numbers."""
        return [*self._connections]

    # Administration

    async def retained(self) -> list[RetainedInfo]:
        """What can be read by offset: the journal (`$events`), and the queues that retain."""
        return await retained_nodes(self.features.retained)

    async def cursors(self) -> list[CursorInfo]:
        """The durable cursors: where they stand, and who uses them."""
        return await durable_cursors(self.features.retained)

    @contextmanager
    def spares_peers(self) -> Iterator[Callable[[float], None]]:
        """While the clock is moved on by hand, by as many seconds at a time as what this gives is told: none
        of the peers is silent for that long, nor are we, so nothing is due for that.
        """

        def spare(seconds: float) -> None:
            for task in self._connections:
                task.engine.timers.spare(seconds)

        self.timers.spares_peers += 1
        self._set_timers_anew()
        try:
            yield spare
        finally:
            self.timers.spares_peers -= 1
            self._set_timers_anew()

    def _set_timers_anew(self) -> None:
        for task in self._connections:
            task.set_timer_anew()

    def transactions(self) -> list[LiveTransaction]:
        """The transactions that are not over, the oldest first: age, container, and the work done in each."""
        return self.nodes.live_transactions.describe()

    def roll_back_transaction(self, txn_id: bytes, reason: str = "an administrator rolled it back") -> bool:
        """Roll back a live transaction by force; its controller is told `reason` when it uses it next.

        False when there is no such transaction, or when its discharge is in the store already.
        """
        return self.nodes.live_transactions.force_rollback(txn_id, reason)

    @property
    def dead_letters(self) -> DeadLetterCounts:
        """How many messages became dead letters, for each reason, and how many of these were dropped since
        there were too many.
        """
        return self.features.dead_letters.counts

    async def redrive(self, address: str = DEAD_LETTERS, count: int = EVERYTHING) -> int:
        """Move the dead letters that are in this queue now, at most `count`, the oldest first, back to where
        they came from, a page in each commit; returns how many. Their tries begin anew. Those that a
        consumer holds stay, and those whose queue is gone or full. Raises NodeRefused where there is no such
        queue, and StoreError.
        """
        return await redrive(self.nodes, address, count)

    @property
    def half_messages(self) -> HalfAdministration:
        """What there is of half messages, and to have them decided or asked again by hand."""
        return self.features.half_administration

    def half_sets(self) -> list[HalfSetInfo]:
        """The sets of half messages that are not decided, the oldest first."""
        return self.features.half_set_administration.describe()

    async def void_half_set(
        self, group: str, producer: str, set_id: str, who: str, reason: str = "", *, force: bool = False
    ) -> None:
        """Void a set by hand. Raises HalfRefusedByHand: there is none, it was committed, or it is prepared.

        `force` voids a prepared one, too. **That may lose messages**: if its coordinator decided the epoch
        with this set, or does so later, the epoch is never whole, and its decision cannot be applied
        here any more. Ask the coordinator first (`status`); what was forced is an error in the log and
        stands in the journal.
        """
        administration = self.features.half_set_administration
        await administration.void(group, producer, set_id, who, reason, force=force)

    async def streams(self, queue: str, after: str = "", count: int = PAGE) -> list[StreamInfo]:
        """Where the sequenced streams of a queue stand: at most `count`, in the order of their names, behind
        the name `after`.
        """
        return await self.features.sequence_administration.streams(queue, after, count)

    async def reset_stream(self, queue: str, stream: str) -> bool:
        """Have a stream begin anew, and belong to nobody; False if there was none. Raises StoreError."""
        return await self.features.sequence_administration.reset(queue, stream)

    # Stopping

    def stop(self, grace_s: float | None = None) -> None:
        """Ask for a clean stop: no new connections, every open one is closed, everything submitted is
        committed. Without `grace_s` that takes `limits.stop_grace_ms` at most.
        """
        if grace_s is not None:
            self._grace_s = grace_s
        self._stop_asked.set()

    async def stopped(self) -> None:
        """Return when a stop was asked for."""
        await self._stop_asked.wait()

    async def shut_down(self) -> None:
        """Stop accepting, close every connection and wait for their ends, within the grace. What a socket
        takes at once is written in any case: every peer is told.
        """
        self._stop_asked.set()
        for scope in self._accepting:
            scope.cancel()
        self._last_gone = trio.Event()
        for task in list(self._connections):
            task.stop()
        grace_s = self.config.limits.stop_grace_ms / 1_000 if self._grace_s is None else self._grace_s
        with trio.move_on_after(grace_s):
            if self._connections:
                await self._last_gone.wait()
        if self._connections:
            from trio.testing import wait_all_tasks_blocked

            with trio.move_on_after(LAST_WORDS_S):
                await wait_all_tasks_blocked()


def engine_limits(config: BrokerConfig) -> Limits:
    """The engine's share of the configured limits."""
    limits = config.limits
    return Limits(
        header_timeout_s=limits.header_timeout_ms / 1000,
        open_timeout_s=limits.login_timeout_ms / 1000,
        sasl_frame_size=limits.token_bytes if config.token_issuers else MIN_MAX_FRAME_SIZE,
        frame_size_before_open=limits.open_frame_size_bytes,
        frames_before_open=limits.login_frames,
        bytes_before_open=limits.login_buffer_bytes,
        links_per_session=limits.max_links_per_session,
        links_per_connection=limits.max_links_per_connection,
        outcome_wait_s=limits.outcome_wait_ms / 1000,
        unsettled_per_link=limits.max_unsettled_per_link,
        unsettled_per_session=limits.max_unsettled_per_session,
        control_operations_per_s=limits.control_operations_per_s,
        control_operations_burst=limits.control_operations_burst,
        output_bytes=limits.output_buffer_bytes,
        partial_idle_s=limits.partial_idle_ms / 1000,
        partial_total_s=limits.partial_total_ms / 1000,
        max_message_bytes=limits.max_message_size_bytes,
        min_idle_time_out_ms=limits.min_peer_idle_time_out_ms,
    )


def _urls(listeners: list[OpenListener]) -> list[str]:
    return [listener.url for listener in listeners]


def open_store(config: BrokerConfig) -> Store:
    """The store that the configuration names. Raises StoreInUse, StoreTooNew, UnsafeSqlite and
    StoreFailed.
    """
    if config.memory:
        return MemoryStore(
            event_keep_ms=config.limits.event_keep_ms,
            event_keep_bytes=config.limits.event_keep_bytes,
            half_keep_bytes=config.limits.half_keep_bytes,
            store_id=str(uuid.uuid4()),
        )
    from amqp_broker.persistence.sqlite import BodyFileSizes, SqliteStore

    return SqliteStore(
        Path(config.data_dir),
        allow_unsafe_sqlite=config.allow_unsafe_sqlite,
        event_keep_ms=config.limits.event_keep_ms,
        event_keep_bytes=config.limits.event_keep_bytes,
        half_keep_bytes=config.limits.half_keep_bytes,
        body_files=BodyFileSizes(large_body=config.limits.large_body_bytes),
    )


@asynccontextmanager
async def open_broker(
    config: BrokerConfig | None = None,
    *,
    store: Store | None = None,
    faults: Faults | None = None,
    wall_clock: Callable[[], int] = wall_clock_ms,
    read_again: Read | None = None,
) -> AsyncIterator[Broker]:
    """Open the store and run a broker as long as the block runs; it stops cleanly at the block's end.

    `read_again` gives the configuration when it is to be reloaded. The block is cancelled and StoreFailed
    raised when a commit failed and nobody knows what the store holds: recovery at the next start decides.
    Raises StoreInUse, StoreTooNew, StoreCorrupt and UnsafeSqlite at the start.
    """
    config = config or BrokerConfig()
    own_store = store is None
    store = open_store(config) if store is None else store
    try:
        used = store if faults is None else faults.wrap_store(store)
        keeps_time = not (own_store and config.memory)  # for a next start, and there is none
        async with _running(config, used, faults, wall_clock, read_again, keeps_time) as broker:
            yield broker
    except BaseException as error:
        if own_store:
            with suppress(StoreError):  # what ended the broker counts more
                store.close()
        if isinstance(error, BaseExceptionGroup):
            raise _cause(error) from None
        raise
    if own_store:
        store.close()


@asynccontextmanager
async def _running(
    config: BrokerConfig, store: Store, faults: Faults | None, wall_clock: Callable[[], int],
    read_again: Read | None, keeps_time: bool,
) -> AsyncIterator[Broker]:  # fmt: skip
    async with trio.open_nursery() as service:
        writer: Writer | None = None  # that was started, and has to end before the store is closed
        stop_tracing: Callable[[], None] | None = None
        at_hand: TurnsAtHand | None = None
        try:
            async with trio.open_nursery() as connections:
                broker = Broker(config, store, connections, faults, wall_clock, read_again)
                at_hand = broker.nodes.at_hand
                at_hand.begin_watching()
                stop_tracing = broker.features.stop_tracing
                retention = _recover(broker, store)
                writer = broker.writer
                service.start_soon(_write, writer)
                service.start_soon(broker.timers.run)
                if retention:
                    await broker.nodes.store_step(retention)
                await make_logs(broker.nodes)
                await broker.features.duplicates.read()
                await broker.features.last_values.read()
                await broker.create_queues_at_start()
                broker.features.bindings.begin()
                await broker.recover_halves()
                if keeps_time:
                    broker.timekeeper.begin()
                try:
                    yield broker
                finally:
                    with trio.CancelScope(shield=True):
                        await broker.shut_down()
                    connections.cancel_scope.cancel()
        finally:
            if at_hand is not None:
                at_hand.end_watching()
            if writer is not None:
                if keeps_time:
                    broker.timekeeper.wake()
                writer.stop()
                with trio.CancelScope(shield=True):
                    await writer.ended.wait()
            if stop_tracing is not None:  # the last commit has been told
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(stop_tracing)
            service.cancel_scope.cancel()


def _recover(broker: Broker, store: Store) -> Unit:
    """Take up what the store holds; nothing else runs yet. What retention has to be changed."""
    recovered = store.recover()
    for damaged in recovered.quarantined:
        logger("broker").error("node.quarantined", queue_id=damaged.queue_id, reason=damaged.reason)
    if recovered.now_ms:
        broker.clock.resume(recovered.now_ms, recovered.notes)
    nodes = recovered.nodes
    broker.nodes.store_id = store.ask(StoreId())
    broker.nodes.queues.recover(nodes)
    broker.features.topics.recover(nodes)
    broker.features.bindings.recover(nodes)
    broker.features.lasting.recover(store)
    for alias in broker.config.aliases:
        if broker.nodes.queues.find(alias.name) is not None:
            broker._log.warning("alias.hides_a_queue", name=alias.name, node=alias.node)
    retention = broker.features.retained.recover(store)
    broker.nodes.expiry.recover(nodes)
    broker.features.delays.recover(nodes)
    broker.features.duplicates.recover(nodes)
    broker.features.half_sets.recover([node for node in nodes if node.kind == SET_KIND])
    return retention


async def _write(writer: Writer) -> None:
    """Whatever happens to the writer, who waits for its end hears of it."""
    try:
        await writer.run()
    finally:
        writer.ended.set()


def _cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What a caller wants to catch: a failed store before everything else, the only exception, or all of
    them.
    """
    failures, others = group.split(StoreFailed)
    if failures is not None:
        return _leaves(failures)[0]
    leaves = _leaves(group)
    return leaves[0] if len(leaves) == 1 else group


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]
