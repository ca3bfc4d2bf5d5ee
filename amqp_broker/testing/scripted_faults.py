"""Scripted faults: what can go wrong between a broker, its disk and its clients, told beforehand.

    faults = ScriptedFaults()
    faults.reset_after_commit(2)                  # the client never learns that its second commit happened
    faults.drop(Disposition)                      # one disposition of the broker gets lost
    faults.message(2, address="orders").reject()  # and so on: `message_faults`
    with running_broker(config, faults=faults) as broker:
        ...

"The n-th" counts from 1 over all connections, and from the moment when the fault is scripted.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import trio

from amqp_broker.frames import (
    RECEIVER,
    Attach,
    Detach,
    Disposition,
    Error,
    Flow,
    Frame,
    Transfer,
    encode_frame,
)
from amqp_broker.persistence import Store, StoreFailed, StoreFull
from amqp_broker.testing.clock import HELD
from amqp_broker.testing.frame_tap import FrameTap, Piece
from amqp_broker.testing.message_faults import (
    AttachFault,
    Countdown,
    MessageFault,
    Watched,
    expect_seconds,
)
from amqp_broker.testing.traces import FrameTrace

if TYPE_CHECKING:
    from amqp_broker.connection_task import ConnectionTask

HOLD_TIMEOUT_S: Final = 60.0  # a commit that a test forgot to let go must not hang the run for ever
RESET_TIMEOUT_S: Final = 10.0
LINGER_ZERO: Final = struct.pack("ii", 1, 0)

LinkKey = tuple[int, int]
"""(channel, handle) as one side numbers them."""


class ScriptedFaults:
    """An implementation of `amqp_broker.faults.Faults`; its methods may be called from any thread, at any
    time.
    """

    def __init__(self, trace: FrameTrace | None = None) -> None:
        self.trace = trace
        self.frame_drops: list[tuple[type, Countdown]] = []
        self.detaches: list[tuple[Countdown, str, str]] = []
        self.arrival_resets: list[tuple[type, Countdown]] = []
        self.credit_withheld = False
        self.slow_by_s = 0.0
        self._message_faults: list[MessageFault] = []
        self._attach_faults: list[AttachFault] = []
        self.commits = 0
        self.frames_lost = 0
        self._commit_errors: list[tuple[Countdown, bool, Exception]] = []
        self._resets: list[tuple[Countdown, bool]] = []
        self._gate = threading.Event()
        self._gate.set()
        self._streams: set[FaultyStream] = set()

    # The script

    def fail_commit(self, nth: int = 1, *, happened: bool = False) -> None:
        """The n-th commit fails as an I/O error does; with `happened` its work is stored nevertheless."""
        error = StoreFailed(f"scripted: commit failed, and it did {'' if happened else 'not '}happen")
        self._commit_errors.append((Countdown(nth), happened, error))

    def refuse_commit(self, nth: int = 1, count: int = 1) -> None:
        """The n-th commit finds the disk full: nothing of it happened."""
        self._commit_errors.append((Countdown(nth, count), False, StoreFull("scripted: the disk is full")))

    @contextmanager
    def held_commits(self) -> Iterator[None]:
        """Inside the block commits wait; they go on when it ends."""
        self.hold_commits()
        try:
            yield
        finally:
            self.let_commits_go_on()

    def hold_commits(self) -> None:
        """From now on commits wait, at most `HOLD_TIMEOUT_S`: until `let_commits_go_on`."""
        self._gate.clear()
        HELD.add(self)

    def let_commits_go_on(self) -> None:
        """Those that wait, and all that come."""
        HELD.discard(self)
        self._gate.set()

    def reset_before_commit(self, nth: int = 1) -> None:
        """All connections are reset right before the n-th commit, which then happens."""
        self._resets.append((Countdown(nth), False))

    def reset_after_commit(self, nth: int = 1) -> None:
        """All connections are reset right after the n-th commit, before anybody is told."""
        self._resets.append((Countdown(nth), True))

    def reset_connections(self) -> None:
        """All connections are reset now; returns when they are."""
        for stream in list(self._streams):
            stream.reset_from_any_thread(RESET_TIMEOUT_S)

    def reset_at(self, performative: type, nth: int = 1) -> None:
        """The connection is reset when the client's n-th frame of this class arrives; the broker never sees
        it.
        """
        self.arrival_resets.append((_expect_class(performative), Countdown(nth)))

    def drop(self, performative: type, nth: int = 1, count: int = 1) -> None:
        """The broker's n-th frame of this class (and `count - 1` after it) gets lost."""
        self.frame_drops.append((_expect_class(performative), Countdown(nth, count)))

    def detach_at(self, nth: int = 1, condition: str = "amqp:internal-error", text: str = "scripted") -> None:
        """The link of the client's n-th transfer is detached with this error; the broker does have the
        transfer.
        """
        self.detaches.append((Countdown(nth), condition, text))

    def grant_no_credit(self) -> None:
        """Every credit that the broker gives from now on reads 0."""
        self.credit_withheld = True

    def message(self, nth: int = 1, *, count: int = 1, address: str | None = None) -> MessageFault:
        """The client's n-th message from now on, and `count - 1` after it; only those to `address`, if it is
        given, which is that of their link. What happens to it is said by a method of what this returns.
        """
        return MessageFault(self._message_faults, Countdown(nth, count), address)

    def attach(self, nth: int = 1, *, count: int = 1, address: str | None = None) -> AttachFault:
        """The client's n-th attach from now on, and `count - 1` after it, in both directions; only those to
        `address`, if it is given.
        """
        return AttachFault(self._attach_faults, Countdown(nth, count), address)

    def slow_down(self, seconds: float) -> None:
        """From now on each read of what a client wrote takes so long, by the broker's clock; 0: no more."""
        self.slow_by_s = expect_seconds(seconds)

    def clear(self) -> None:
        """Nothing is scripted any more. A link that has no credit gets some with its next flow."""
        for script in (
            self.frame_drops, self.detaches, self.arrival_resets, self._message_faults, self._attach_faults,
            self._commit_errors, self._resets,
        ):  # fmt: skip
            script.clear()
        self.credit_withheld = False
        self.slow_by_s = 0.0
        self.let_commits_go_on()

    def waiting(self) -> list[str]:
        """What was said of messages and attaches, and has never happened, in words."""
        return [str(each) for each in (*self._message_faults, *self._attach_faults) if not each.happened]

    # amqp_broker.faults.Faults

    def wrap_store(self, store: Store) -> Store:
        """A store whose commits go through the script."""
        return cast(Store, FaultyStore(store, self))

    def wrap_stream(self, stream: trio.abc.Stream) -> trio.abc.Stream:
        """A stream whose frames go through the script."""
        faulty = FaultyStream(stream, self)
        self._streams.add(faulty)
        return faulty

    def watch(self, task: ConnectionTask, stream: trio.abc.Stream) -> None:
        """Have what happens to messages and attaches go through the script."""
        assert isinstance(stream, FaultyStream), "it was made here"
        Watched(task, stream, self._message_faults, self._attach_faults)

    # What the wrappers ask

    def forget(self, stream: FaultyStream) -> None:
        """A connection is over."""
        self._streams.discard(stream)

    def before_commit(self) -> tuple[bool, Exception | None]:
        """(whether the commit is to happen, what to raise after it).  Waits while commits are held."""
        self._gate.wait(HOLD_TIMEOUT_S)
        self.commits += 1
        self._reset_where_due(after=False)
        for countdown, happened, error in self._commit_errors:
            if countdown.fires():
                return happened, error
        return True, None

    def after_commit(self) -> None:
        """The commit returned; nobody has been told yet."""
        self._reset_where_due(after=True)

    def _reset_where_due(self, *, after: bool) -> None:
        due = [countdown.fires() for countdown, is_after in self._resets if is_after == after]
        if any(due):
            self.reset_connections()


def _expect_class(performative: object) -> type:
    if not isinstance(performative, type):
        raise TypeError(f"expected a class of amqp_broker.frames such as Transfer, got {performative!r:.80}")
    return performative


class FaultyStore:
    """A store whose commits go through the script; everything else is the real store."""

    def __init__(self, store: Store, faults: ScriptedFaults) -> None:
        self._store = store
        self._faults = faults

    def commit(self) -> None:
        """Commit, or not, as the script says."""
        happens, error = self._faults.before_commit()
        if happens:
            self._store.commit()
            self._faults.after_commit()
        else:
            self._store.abandon()
        if error is not None:
            raise error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class FaultyStream(FrameTap):
    """The broker's side of one connection, whose frames go through the script.

    To detach a link, it plays both parts: the broker gets a detach as if its client had asked, the client
    gets the broker's answer with the scripted error in it, and the client's own answer ends here.
    """

    def __init__(self, stream: trio.abc.Stream, faults: ScriptedFaults) -> None:
        super().__init__(stream)
        self._faults = faults
        self._number = 0 if faults.trace is None else faults.trace.connection()
        self._token = trio.lowlevel.current_trio_token()
        self._names_of_client: dict[LinkKey, str] = {}
        self._names_of_broker: dict[LinkKey, str] = {}
        self._broker_receives: set[LinkKey] = set()
        self._detaching: dict[str, Error] = {}
        self._swallowed: set[LinkKey] = set()
        self._unheard: list[tuple[int, int]] = []
        """Channel and delivery-id of those whose outcome is never sent: the connection is reset instead."""

    def reset_at_outcome(self, channel: int, delivery_id: int) -> None:
        """The connection is reset when the outcome of this delivery is about to be sent."""
        self._unheard.append((channel, delivery_id))

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """What came, as slowly as the script says."""
        data = await super().receive_some(max_bytes)
        if data and self._faults.slow_by_s:
            await trio.sleep(self._faults.slow_by_s)
        return data

    def _reset_if_unheard(self, said: Disposition, channel: int) -> None:
        last = said.first if said.last is None else said.last
        if any(at == channel and said.first <= number <= last for at, number in self._unheard):
            self.reset()
            raise trio.BrokenResourceError("scripted reset")

    async def received(self, piece: Piece) -> bytes:
        """The client's frames, on their way to the broker."""
        if self._faults.trace is not None:
            self._faults.trace.record("C", piece, self._number)
        performative = piece.performative
        for kind, countdown in self._faults.arrival_resets:
            if isinstance(performative, kind) and countdown.fires():
                self.reset()
                raise trio.BrokenResourceError("scripted reset")
        if not isinstance(piece.frame, Frame):
            return piece.octets
        channel = piece.frame.channel
        if isinstance(performative, Attach):
            self._names_of_client[channel, performative.handle] = performative.name
        key = (channel, getattr(performative, "handle", None) or 0)
        if isinstance(performative, (Transfer, Flow, Detach)) and key in self._swallowed:
            if isinstance(performative, Detach):
                self._swallowed.discard(key)
            return b""
        if isinstance(performative, Transfer):
            return piece.octets + self._detach_if_due(key)
        return piece.octets

    def _detach_if_due(self, key: LinkKey) -> bytes:
        for countdown, condition, text in self._faults.detaches:
            if countdown.fires() and key in self._names_of_client:
                self._detaching[self._names_of_client[key]] = Error(condition=condition, description=text)
                self._swallowed.add(key)
                return encode_frame(key[0], Detach(handle=key[1], closed=True))
        return b""

    async def sent(self, piece: Piece) -> bytes:
        """The broker's frames, on their way to the client."""
        octets = self._sent(piece)
        if self._faults.trace is not None and octets:
            self._faults.trace.record("S", piece, self._number)
        return octets

    def _sent(self, piece: Piece) -> bytes:
        performative = piece.performative
        for kind, countdown in self._faults.frame_drops:
            if isinstance(performative, kind) and countdown.fires():
                self._faults.frames_lost += 1
                return b""
        if not isinstance(piece.frame, Frame):
            return piece.octets
        channel = piece.frame.channel
        if isinstance(performative, Disposition) and performative.role is RECEIVER and self._unheard:
            self._reset_if_unheard(performative, channel)
        if isinstance(performative, Attach):
            key = (channel, performative.handle)
            self._names_of_broker[key] = performative.name
            if performative.role is RECEIVER:
                self._broker_receives.add(key)
        if isinstance(performative, Flow) and self._faults.credit_withheld:
            key = (channel, performative.handle if performative.handle is not None else -1)
            if key in self._broker_receives:
                performative.link_credit = 0
                return encode_frame(channel, performative)
        if isinstance(performative, Detach):
            error = self._detaching.pop(self._names_of_broker.get((channel, performative.handle), ""), None)
            if error is not None:
                performative.error = error
                return encode_frame(channel, performative)
        return piece.octets

    async def aclose(self) -> None:
        """Close, and leave the script's list of connections."""
        self._faults.forget(self)
        await super().aclose()

    def reset(self) -> None:
        """Cut the connection as a crash of the peer's machine does.  In the broker's thread only."""
        self._faults.forget(self)
        close_now(self.inner)

    def reset_from_any_thread(self, timeout_s: float) -> None:
        """Reset, and return when it has happened."""
        try:
            here = trio.lowlevel.current_trio_token() is self._token
        except RuntimeError:
            here = False
        if here:
            self.reset()
            return
        done = threading.Event()

        def there() -> None:
            self.reset()
            done.set()

        try:
            self._token.run_sync_soon(there)
        except trio.RunFinishedError:
            return
        done.wait(timeout_s)


def close_now(stream: trio.abc.Stream) -> None:
    """Close without a goodbye; TCP sends RST."""
    if isinstance(stream, trio.SSLStream):
        close_now(stream.transport_stream)
    elif isinstance(stream, trio.SocketStream):
        if stream.socket.fileno() < 0:
            return  # it was closed while the reset was on its way from another thread
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_ZERO)
        stream.socket.close()
    elif isinstance(stream, trio.StapledStream):
        for half in (stream.send_stream, stream.receive_stream):
            close = getattr(half, "close", None)
            assert close is not None, f"{type(half).__name__} cannot be closed at once"
            close()
    elif isinstance(stream, FrameTap):
        close_now(stream.inner)
    else:
        raise AssertionError(f"expected a socket, TLS or memory stream, but got {type(stream).__name__}")
