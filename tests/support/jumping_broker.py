"""A whole broker in the test's own thread, without a socket and without waiting: its tasks take their steps
when the test calls it or reads from it, until all of them wait. Its clocks stand still until `jump`.

    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        ...

| who               | its client                            | what it hands in                           |
|-------------------|---------------------------------------|--------------------------------------------|
| tests of a broker | `JumpingPeer`: frames; it waits       | a configuration; a script of faults        |
| tests/model       | one that keeps all that it is told    | the same script in all lives               |
| tests/grouping    | one that waits for nothing            | a store whose commits can be held; a watch |

A test that is a task itself, beside a broker in virtual time, has `by_hand`, on the same `Wire`. A client of
our own needs a socket, and has a `running_broker`.
"""

from __future__ import annotations

import queue
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar, cast

import attrs
import outcome
import trio
import trio.testing

from amqp_broker.broker import open_broker
from amqp_broker.configuration import BrokerConfig, BrokerLimits
from amqp_broker.embedding import STOP_TIMEOUT_S, RunningBroker
from amqp_broker.exit_status import leaves
from amqp_broker.frames import Open, ProtocolHeader
from amqp_broker.listener import peer_of_stream
from amqp_broker.operations.writer import CommitThread
from amqp_broker.persistence import Store
from amqp_broker.testing import ScriptedFaults, memory_config
from amqp_broker.testing.blocking_peer import BlockingPeer, ConnectionLost
from amqp_broker.testing.clock import HELD

B = TypeVar("B", bound=RunningBroker)
P = TypeVar("P", bound="JumpingPeer")
EPOCH_MS: Final = 1_800_000_000_000
PATIENT: Final = memory_config(limits=BrokerLimits(idle_time_out_ms=2**32 - 1))
"""In memory, and no connection dies of idleness however far the clock jumps."""

InEachStore = Callable[[BrokerConfig], BrokerConfig]
"""What a test is run with for each kind of store: a configuration becomes one with that store."""


def on_disk(folder: Path, config: BrokerConfig = PATIENT, **changes: Any) -> BrokerConfig:
    """The same with a data directory, and these changes."""
    return attrs.evolve(config, memory=False, data_dir=str(folder / "data"), **changes)


class Wire:
    """A transport in memory, of which the broker has `theirs`. What is written at once is one read of it."""

    def __init__(self) -> None:
        self._up = trio.testing.MemoryReceiveStream()
        self._down = trio.testing.MemorySendStream()
        self.theirs = trio.StapledStream(self._down, self._up)

    def write(self, octets: bytes) -> None:
        """Octets for the broker, if there are any. Raises ConnectionLost."""
        try:
            if octets:
                self._up.put_data(octets)
        except trio.ClosedResourceError as error:
            raise ConnectionLost("the broker has ended the transport") from error

    def end(self) -> None:
        """Nothing more comes behind it."""
        self._up.put_eof()

    def read(self) -> bytes | None:
        """All that the broker has written since, empty at the end; None if that is nothing."""
        try:
            return bytes(self._down.get_data_nowait())
        except trio.WouldBlock:
            return None


class JumpingPeer(BlockingPeer):
    """The other side of one connection. What does not come before the broker rests does not come."""

    def __init__(self, broker: JumpingBroker) -> None:
        super().__init__(cast(socket.socket, None), 0.0)
        self._broker = broker
        self.wire = Wire()
        self.octets_left: int | None = None
        """After so many octets, in either direction, the transport breaks; None: it does not."""
        self.octets_carried = 0

    def _carry(self, data: bytes) -> bytes:
        """Those of them that get through. Raises ConnectionLost where nothing does."""
        if self.octets_left == 0:
            raise ConnectionLost("the transport is broken")
        if self.octets_left is not None:
            data = data[: self.octets_left]
            self.octets_left -= len(data)
        self.octets_carried += len(data)
        return data

    def flush(self) -> None:
        """Write what was put."""
        self.wire.write(self._carry(self.take()))

    def pump_until(self, reached: Callable[[], object], timeout: float | None = None) -> None:
        """Pump until `reached` holds; TimeoutError where the broker rests before."""
        while not reached():
            if not self.pump(0):
                raise TimeoutError("the broker rests, and what is waited for has not come")

    def abort(self) -> None:
        """End the transport without a word."""
        self.wire.end()

    def hear(self) -> None:
        """Count all that the broker has written, without a step of it."""
        while (data := self._came()) is not None:
            self.feed(data)
            while self.received() is not None:
                pass

    def _read(self, timeout: float) -> bytes | None:
        self._broker.rest()
        return self._came()

    def _came(self) -> bytes | None:
        data = self.wire.read()
        if data == b"":
            raise ConnectionLost("the broker has ended the transport")
        return data if data is None else self._carry(data)


class Slept(trio.abc.Instrument):
    """Has a broker believe that the loop had slept when input comes: beside clients in processes of their own
    it does, and here always something is to be done.
    """

    def __init__(self) -> None:
        self.broker: Any = None

    def after_io_wait(self, timeout: float) -> None:
        if self.broker is not None:
            self.broker.nodes.at_hand.before_io_wait(timeout=1)


class JumpingBroker(RunningBroker):
    """One at a time in a thread. Its commits and connections go through a script of faults, unless there is a
    `store` of the test's own. `after` is stopped first; the clock on the wall goes on where that one's stood.
    """

    def __init__(
        self,
        config: BrokerConfig = PATIENT,
        after: JumpingBroker | None = None,
        faults: ScriptedFaults | None = None,
        store: Store | None = None,
        instruments: Sequence[trio.abc.Instrument] = (),
    ) -> None:
        self._began_ms = EPOCH_MS
        if after is not None:
            after.stop()
            self._began_ms = after.now_ms()
        self.config = config
        self._faults = faults or ScriptedFaults()
        self._store = store
        self.scope = trio.CancelScope()
        """All that the broker does."""
        self.mock_clock = trio.testing.MockClock()
        self._ticks: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._broker: Any = None
        self._ended: outcome.Outcome[None] | None = None
        self._all_wait = False
        self._slept = Slept()
        trio.lowlevel.start_guest_run(
            self._serve,
            run_sync_soon_threadsafe=self._ticks.put,
            done_callback=self._on_end,
            host_uses_signal_set_wakeup_fd=True,
            clock=self.mock_clock,
            instruments=[*instruments, self._slept],
        )
        trio.lowlevel.spawn_system_task(self._tell_when_all_wait)
        self._step_until(lambda: self._broker is not None)
        if self._ended is not None:
            self.stop()

    # In steps

    def _step_until(self, reached: Callable[[], object]) -> None:
        """Take steps until `reached` holds, or the broker has ended."""
        while self._ended is None and not reached():
            self._ticks.get(timeout=STOP_TIMEOUT_S)()

    def rest(self) -> None:
        """Take steps until every task waits, for a peer or for time to pass. What is being committed is
        waited for, unless the test holds that.
        """
        while self._ended is None:
            self._all_wait = False
            self._step_until(lambda: self._all_wait)
            if HELD or not CommitThread.at_work:
                return

    def _on_end(self, ended: outcome.Outcome[None]) -> None:
        self._ended = ended

    async def _serve(self) -> None:
        options: dict[str, Any] = {"faults": self.faults} if self._store is None else {"store": self._store}
        with self.scope:
            async with open_broker(self.config, wall_clock=self.now_ms, **options) as broker:
                self._broker = self._slept.broker = broker
                await broker.stopped()

    async def _tell_when_all_wait(self) -> None:
        # It always has something to do, so trio never waits in a thread of its own.
        while True:
            await trio.testing.wait_all_tasks_blocked()
            self._all_wait = True
            if CommitThread.at_work:
                time.sleep(0.000_1)  # that it gets on

    # What any running broker does

    @property
    def alive(self) -> bool:
        """Whether the broker still runs."""
        return self._ended is None

    def call(self, function: Any, *arguments: Any) -> Any:
        """Run `function(broker, *arguments)`, and await it if it is a coroutine function."""
        answers: list[outcome.Outcome[Any]] = []

        async def there() -> Any:
            result = function(self._broker, *arguments)
            return await result if hasattr(result, "__await__") else result

        async def task() -> None:
            answers.append(await outcome.acapture(there))

        trio.lowlevel.spawn_system_task(task)
        self._step_until(lambda: answers)
        return answers[0].unwrap()

    def stop(self, grace_s: float | None = None) -> None:
        """Stop; time passes for peers that do not answer. Raises what ended the broker if that was not us."""
        grace = self.config.limits.stop_grace_ms / 1_000 if grace_s is None else grace_s
        if self._ended is None:
            self._broker.stop(grace)
            self.rest()
        while self._ended is None:
            self.jump(0.1)
        ended, self._ended = self._ended, outcome.Value(None)
        if isinstance(ended, outcome.Error):
            found = list(leaves(ended.error))
            raise found[0] if len(found) == 1 else ended.error

    # Its clocks

    def now_ms(self) -> int:
        """The clock on the wall."""
        return self._began_ms + round(self.mock_clock.current_time() * 1_000)

    def set_wall(self, by_s: float) -> None:
        """Somebody sets the clock on the wall; no time passes."""
        self._began_ms += round(by_s * 1_000)

    def jump(self, seconds: float) -> None:
        """So much time passes, all at once, and what comes of it is done."""
        self.mock_clock.jump(seconds)
        self.rest()

    # Its peers

    def dial(self, kind: type[P]) -> P:
        """A transport, on which nothing was said yet."""
        peer = kind(self)
        seen = peer_of_stream(self.config.listeners[0])
        self._broker._nursery.start_soon(self._broker.serve_stream, peer.wire.theirs, seen)
        return peer

    def connect(self, container_id: str, **fields: Any) -> JumpingPeer:
        """A connection that is open; `fields` are those of its open."""
        return self.connect_as(JumpingPeer, container_id, **fields)

    def connect_as(self, kind: type[P], container_id: str, **fields: Any) -> P:
        """One with a client of this kind."""
        peer = self.dial(kind)
        peer.open(container_id, **fields)
        peer.expect(ProtocolHeader)
        peer.expect(Open)
        return peer


@contextmanager
def stopping(broker: B) -> Iterator[B]:
    """A running broker, stopped at the end."""
    try:
        yield broker
    finally:
        broker.stop()


class Start(Protocol):
    """Starts a broker, after another one or alone; all are stopped at the end."""

    def __call__(
        self, config: BrokerConfig = PATIENT, after: JumpingBroker | None = None
    ) -> JumpingBroker: ...
