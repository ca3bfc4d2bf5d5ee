"""One connection's tasks: deadlines in virtual time, a peer that does not read, a fault that stays in its
connection; and its end, which is logged once.
"""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker import __version__, connection_task
from amqp_broker.authorisation import Authoriser
from amqp_broker.broker import Broker, open_broker
from amqp_broker.configuration import BrokerConfig, BrokerLimits, ListenerConfig
from amqp_broker.connection_task import ConnectionTask
from amqp_broker.frames import (
    AMQP_HEADER,
    EMPTY_FRAME,
    Attach,
    Begin,
    Close,
    End,
    Error,
    Flow,
    Frame,
    Header,
    Open,
    ProtocolHeader,
    Transfer,
    encode_frame,
    encode_message,
)
from amqp_broker.links import Piece
from amqp_broker.listener import peer_of_stream
from amqp_broker.nodes.queue_sink import QueueSink
from amqp_broker.nodes.queue_source import QueueSource
from amqp_broker.operations.posting import Posting
from amqp_broker.testing import memory_config, run_with_virtual_clock
from amqp_broker.testing.peer import PeerSender
from amqp_broker.transport import StreamTransport, Transport
from tests.support.by_hand import in_trio, in_virtual_time
from tests.support.examples import examples
from tests.support.jumping_broker import JumpingBroker, stopping
from tests.support.stream_peer import StreamPeer

Pair = Callable[[], tuple[Any, Any]]
BODY = b"x" * 10_000


class Peer(StreamPeer):
    """A client that writes what a test says, and reads only when a test says."""

    checks_credit = raises_errors = False

    async def say(self, *performatives: Any, payload: bytes = b"") -> None:
        for each in performatives:
            self.put(each, payload)
        await self.write()

    async def hello(self, **fields: Any) -> None:
        """Header, open and begin, without waiting (2.4.5)."""
        self.open(f"peer-{id(self)}", **fields)
        self.begin(incoming_window=10_000)
        await self.write()

    async def next(self) -> Any:
        """The next header or performative; None at the end of the stream."""
        while isinstance(item := await self.read(), Frame):
            if item.performative is not None:
                return item.performative
        return item

    async def until(self, kind: type) -> Any:
        """Skip everything before the next performative of this kind."""
        while not isinstance(item := await self.next(), kind):
            assert item is not None, f"the stream ended before a {kind.__name__}"
        return item

    async def receive_from(self, address: str, credit: int) -> None:
        self.sessions[0].attach_receiver("r", address, handle=0, credit=credit)
        await self.write()

    async def send_to(self, address: str, count: int) -> None:
        """Pre-settled messages of `BODY`, pipelined behind the attach."""
        sender = self.sessions[0].attach_sender("s", address, handle=1)
        await self.write()
        await self.until(Flow)
        payload = encode_message(header=Header(durable=False), body=BODY)
        for _ in range(count):
            sender.send(payload, settled=True)
            await self.write()


@asynccontextmanager
async def serving(
    pair: Pair = trio.testing.memory_stream_pair, config: BrokerConfig | None = None
) -> AsyncIterator[tuple[Broker, Callable[..., Peer]]]:
    """A broker in memory, and a function that connects one more peer over streams of `pair`."""
    async with open_broker(config or memory_config()) as broker, trio.open_nursery() as nursery:

        def connect(own_pair: Pair = pair) -> Peer:
            ours, theirs = own_pair()
            nursery.start_soon(broker.serve_stream, theirs, peer_of_stream(ListenerConfig()))
            return Peer(ours)

        yield broker, connect
        nursery.cancel_scope.cancel()


def use_transport(made: Callable[[trio.abc.Stream], Transport], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the connections that come from now on read and write by what this makes of their streams."""

    def task(*given: Any) -> ConnectionTask:
        found = ConnectionTask(*given)
        found._transport = made(found._stream)
        return found

    monkeypatch.setattr("amqp_broker.broker.ConnectionTask", task)


@in_virtual_time
async def test_a_silent_peer_is_shown_the_header_and_dropped() -> None:
    """No protocol header within 2 s: the supported one is written and the transport closed (2.2, limits)."""
    async with serving() as (_, connect):
        start = trio.current_time()
        peer = connect()
        assert isinstance(await peer.next(), ProtocolHeader)
        assert await peer.next() is None
        assert 2.0 <= trio.current_time() - start < 5.0


@in_virtual_time
async def test_a_peer_that_never_opens_is_dropped() -> None:
    """From accept to open there are 10 s, whatever comes in between."""
    async with serving() as (_, connect):
        start = trio.current_time()
        peer = connect()
        await peer.stream.send_all(AMQP_HEADER)
        while await peer.next() is not None:
            pass
        assert 10.0 <= trio.current_time() - start < 13.0


@in_virtual_time
async def test_an_idle_peer_is_closed_at_twice_the_announced_time() -> None:
    """30 s are announced, and 60 s of silence end the connection with an error (2.4.5)."""
    async with serving() as (_, connect):
        peer = connect()
        await peer.hello()
        assert (await peer.until(Open)).idle_time_out == 30_000
        start = trio.current_time()
        close = await peer.until(Close)
        assert close.error is not None
        assert 59.0 <= trio.current_time() - start < 63.0


@in_virtual_time
async def test_the_broker_keeps_a_peer_with_an_idle_time_out_awake() -> None:
    """Empty frames are sent in time for the peer's idle-time-out (2.4.5)."""
    async with serving() as (_, connect):
        peer = connect()
        await peer.hello(idle_time_out=4_000)
        await peer.until(Begin)
        start = trio.current_time()
        for beats in range(1, 4):
            frame = await peer.read()
            assert isinstance(frame, Frame) and frame.performative is None
            assert trio.current_time() - start <= 4.0 * beats


@in_virtual_time
async def test_a_peer_that_does_not_read_is_cut_and_its_messages_return() -> None:
    """A write that stalls for 60 s is aborted, and what was assigned to its links is delivered to others."""
    async with serving() as (broker, connect):
        reader = connect()
        await reader.hello()
        stalled = connect(trio.testing.lockstep_stream_pair)
        await stalled.hello()
        await stalled.receive_from("stall", 100)
        await reader.send_to("stall", 20)
        await trio.testing.wait_all_tasks_blocked(0.05)
        (queue,) = broker.nodes.queues.queues()
        assert queue.backlog.available() == 0
        with trio.fail_after(70):
            while queue.backlog.available() < 20:
                await trio.sleep(1)
                await reader.stream.send_all(b"\x00\x00\x00\x08\x02\x00\x00\x00")
        await reader.receive_from("stall", 100)
        for _ in range(20):
            await reader.until(Transfer)


@in_virtual_time
async def test_output_beyond_its_bound_is_not_asked_for() -> None:
    """With 256 KiB of output waiting, a queue's messages stay where other consumers can get them (limits)."""
    async with serving() as (broker, connect):
        stalled = connect(trio.testing.lockstep_stream_pair)
        await stalled.hello()
        await stalled.receive_from("bound", 2_000)
        sender = connect()
        await sender.hello()
        await sender.send_to("bound", 1)
        for number in range(1, 400):
            transfer = Transfer(
                handle=1, delivery_id=number, delivery_tag=b"t", message_format=0, settled=True
            )
            await sender.say(transfer, payload=encode_message(body=BODY))
            await trio.testing.wait_all_tasks_blocked()
        (queue,) = broker.nodes.queues.queues()
        waiting = queue.backlog.available() * len(BODY)
        assert waiting >= 400 * len(BODY) - 3 * broker.config.limits.output_buffer_bytes


def slowly_read() -> tuple[trio.StapledStream[Any, Any], trio.StapledStream[Any, Any]]:
    """What the broker writes is gone when the peer has read it; what the peer writes is gone at once."""
    written, read = trio.testing.lockstep_stream_one_way_pair()
    peer_written, peer_read = trio.testing.memory_stream_one_way_pair()
    return trio.StapledStream(peer_written, read), trio.StapledStream(written, peer_read)


async def filled(connect: Callable[..., Peer], address: str, size: int, octets: int) -> int:
    """Have messages of `size` octets in a queue, `octets` in all; how many."""
    peer = connect()
    await peer.hello()
    sender = peer.sessions[0].attach_sender("s", address, handle=1)
    await peer.write()
    payload = encode_message(header=Header(durable=False), body=bytes(size))
    numbers = []
    for _ in range(octets // size):
        while not sender.may_send:
            await peer.write()
            await peer.next()
        numbers.append(sender.send(payload))
    await peer.write()
    while len(sender.outcomes) < len(numbers):
        await peer.next()
    await peer.say(Close())
    return len(numbers)


async def read_slowly(peer: Peer, reached: Callable[[], object]) -> int:
    """Take 64 KiB a second, with a heartbeat each time; the octets that it took."""
    octets = 0
    while not reached():
        await trio.sleep(1)
        peer.put_octets(EMPTY_FRAME)
        await peer.write()
        data = await peer.stream.receive_some(65_536)
        assert data, "the broker has ended the connection"
        octets += len(data)
        peer.feed(bytes(data))
        while peer.received() is not None:
            pass
    return octets


@pytest.mark.parametrize("size", [1_000, 50_000, 4_000_000])
@in_virtual_time
async def test_who_reads_slowly_is_heard_meanwhile(size: int) -> None:
    """Heartbeats keep its connection, and what it posts is answered long before all is out: of one message,
    or of a backlog.
    """
    limits = BrokerLimits(idle_time_out_ms=1_000)
    async with serving(config=memory_config(limits=limits)) as (_, connect):
        count = await filled(connect, "much", size, 4_000_000 if size > 10_000 else 1_500_000)
        peer = connect(slowly_read)
        await peer.hello()
        up = peer.sessions[0].attach_sender("up", "else", handle=1)
        await peer.write()
        while not up.may_send:
            await peer.next()
        down = peer.sessions[0].attach_receiver("r", "much", handle=0, credit=count, snd_settle_mode=1)
        await peer.write()
        number = up.send(encode_message(header=Header(durable=False), body=b"now"))
        assert 0 < await read_slowly(peer, lambda: number in up.outcomes) < 1_000_000
        await read_slowly(peer, lambda: len(down.deliveries) == count)


@pytest.mark.parametrize("size", [1_000, 50_000, 4_000_000])
@in_virtual_time
async def test_what_goes_out_on_one_link_leaves_room_for_others(size: int) -> None:
    """A few small messages of another link come long before all of a large one, or of a backlog."""
    async with serving() as (_, connect):
        count = await filled(connect, "much", size, 4_000_000)
        await filled(connect, "few", 1_000, 10_000)
        peer = connect(slowly_read)
        await peer.hello()
        session = peer.sessions[0]
        session.attach_receiver("m", "much", handle=0, credit=count, snd_settle_mode=1)
        few = session.attach_receiver("f", "few", handle=1, credit=10, snd_settle_mode=1)
        await peer.write()
        assert await read_slowly(peer, lambda: len(few.deliveries) == 10) < 1_500_000


@pytest.mark.parametrize("size", [1_000, 50_000, 4_000_000])
def test_a_peer_that_keeps_up_leaves_others_their_turn(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much there is to send, and whatever the socket takes: a turn ends."""
    turns: list[int] = []

    class Swallows(StreamTransport):
        def send_now(self, pieces: list[Piece], octets: int) -> list[Piece]:
            turns[-1] += octets
            return pieces if octets < 100_000 else []

    class Turns(trio.abc.Instrument):
        """Between two turns of a connection others have theirs."""

        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            turns.append(0)

    async def main() -> None:
        async with serving() as (_, connect):
            count = await filled(connect, "much", size, 4_000_000)
            await filled(connect, "more", size, 4_000_000)
            use_transport(Swallows, monkeypatch)
            trio.lowlevel.add_instrument(Turns())
            peer = connect()
            await peer.hello()
            session = peer.sessions[0]
            for number, name in enumerate(["much", "more"]):
                session.attach_receiver(name, name, handle=number, credit=count, snd_settle_mode=1)
            await peer.write()
            await trio.testing.wait_all_tasks_blocked(0.01)

    run_with_virtual_clock(main)
    assert sum(turns) > 8_000_000
    assert max(turns) < connection_task.WRITTEN_IN_TURN_BYTES + 600_000


@pytest.mark.parametrize("hangs_up", [True, False])
@in_virtual_time
async def test_who_is_slowed_down_loses_nothing(hangs_up: bool) -> None:
    """300 sessions at 100 operations a second: all are answered, behind them the close, also when the peer
    has hung up; and the broker takes few turns for it.
    """
    steps = Steps()
    trio.lowlevel.add_instrument(steps)
    limits = BrokerLimits(control_operations_per_s=100, control_operations_burst=100)
    async with serving(config=memory_config(limits=limits)) as (_, connect):
        start = trio.current_time()
        peer = connect()
        await peer.hello()
        cycle = [End(), Begin(next_outgoing_id=0, incoming_window=10, outgoing_window=10)]
        for _ in range(3):
            await peer.say(*cycle * 100)
        await peer.say(Close())
        if hangs_up:
            assert isinstance(peer.stream, trio.StapledStream)
            await peer.stream.send_eof()
        heard = []
        while (item := await peer.next()) is not None:
            heard.append(type(item))
        assert heard.count(Begin) == 301
        assert heard.count(End) == 300
        assert heard[-1] is Close
        assert 4.5 < trio.current_time() - start < 6.0
        reading = sum([count for name, count in steps.counts.items() if "_owned" in name])
        assert own_steps(steps) < 150 and reading < 400  # 300 reads, and no more than one step for each


class Steps(trio.abc.Instrument):
    """Counts the steps of tasks by their name, and how often the loop had something to do at once."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.awake = 0

    def before_io_wait(self, timeout: float) -> None:
        self.awake += timeout <= 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.counts[task.name] += 1


@in_virtual_time
async def test_what_is_read_is_done_by_the_task_that_reads() -> None:
    """Fifty requests that come alone: no other task of the connection takes a step for them."""
    async with serving() as (_, connect):
        peer = connect()
        await peer.hello()
        await peer.until(Begin)
        await trio.testing.wait_all_tasks_blocked()
        steps = Steps()
        trio.lowlevel.add_instrument(steps)
        echo = Flow(next_incoming_id=0, incoming_window=10, next_outgoing_id=0, outgoing_window=10, echo=True)
        for _ in range(50):
            await peer.say(echo)
            await peer.until(Flow)
        trio.lowlevel.remove_instrument(steps)
        assert sum([count for name, count in steps.counts.items() if "_owned" in name]) >= 50
        assert own_steps(steps) == 0


def sockets() -> tuple[trio.SocketStream, trio.SocketStream]:
    """Beside them the loop sleeps, as beside any client of its own process."""
    ours, theirs = (trio.SocketStream(trio.socket.from_stdlib_socket(end)) for end in socket.socketpair())
    return ours, theirs


@asynccontextmanager
async def a_pair(
    of: int = 1, config: BrokerConfig | None = None
) -> AsyncIterator[tuple[Broker, list[PeerSender], list[Peer]]]:
    """Connections that send to a queue, and one that receives from it, over sockets."""
    async with serving(sockets, config) as (broker, connect):
        receiver = connect()
        await receiver.hello()
        await receiver.receive_from("q", credit=1_000)
        await receiver.until(Attach)
        senders, peers = [], [receiver]
        for number in range(of):
            peer = connect()
            await peer.hello()
            senders.append(peer.sessions[0].attach_sender(f"s{number}", "q", handle=1))
            await peer.write()
            await peer.until(Flow)
            peers.append(peer)
        await trio.testing.wait_all_tasks_blocked(0.01)
        try:
            yield broker, senders, peers
        finally:
            for peer in peers:
                await trio.aclose_forcefully(peer.stream)


def write_now(peer: Peer) -> None:
    """In this step of its task, which waits next: then the loop sleeps, as far as it knows."""
    assert isinstance(peer.stream, trio.SocketStream)
    os.write(peer.stream.socket.fileno(), peer.take())


def own_steps(steps: Steps) -> int:
    """Of the tasks that take the turns of mail."""
    return sum([count for name, count in steps.counts.items() if name.endswith("serve_stream")])


PAYLOAD = encode_message(header=Header(durable=False), body=b"x")


@in_trio
async def test_what_a_lone_message_leads_to_follows_in_the_same_step() -> None:
    """Messages that come alone: the receiver's own task takes no step to send them. Where time has come for
    something else, too, they don't.
    """
    async with a_pair() as (_, (sender,), (receiver, peer)):
        steps = Steps()
        trio.lowlevel.add_instrument(steps)
        alone = []
        for _ in range(40):
            before = own_steps(steps), steps.awake
            sender.send(PAYLOAD, settled=True)
            write_now(peer)
            await receiver.until(Transfer)
            if steps.awake == before[1]:
                alone.append(own_steps(steps) - before[0])
        trio.lowlevel.remove_instrument(steps)
        assert len(alone) >= 20 and not any(alone)


@in_trio
async def test_more_than_the_output_takes_in_the_same_step_is_all_sent() -> None:
    """A burst that comes alone: the output is filled and written in the sender's step; the rest follows."""
    limits = BrokerLimits(max_frame_size_bytes=4_096, output_buffer_bytes=8_192)
    async with a_pair(config=memory_config(limits=limits)) as (_, (sender,), (receiver, peer)):
        for _ in range(40):
            sender.send(encode_message(header=Header(durable=False), body=b"x" * 1_000), settled=True)
        write_now(peer)
        with trio.fail_after(5):
            for _ in range(40):
                await receiver.until(Transfer)


BURSTS = st.lists(
    st.tuples(st.integers(1, 30), st.integers(1, 2_000), st.booleans(), st.booleans()), min_size=1, max_size=5
)


@examples(40, deadline=None)
@given(bursts=BURSTS, receivers=st.integers(1, 3), room=st.sampled_from((4_096, 9_000, 262_144)))
def test_when_nothing_moves_nobody_with_credit_waits(
    bursts: list[tuple[int, int, bool, bool]], receivers: int, room: int
) -> None:
    """Bursts of any count and size, settled or not, durable or not, for one connection or several, whose
    output takes a little or much: nothing more has to come for the rest of one to be sent.
    """
    limits = BrokerLimits(max_frame_size_bytes=4_096, output_buffer_bytes=room)
    with stopping(JumpingBroker(memory_config(limits=limits))) as broker:
        peers = [broker.connect(f"receiver {number}") for number in range(receivers)]
        links = [peer.begin().attach_receiver("down", "q", credit=1_000) for peer in peers]
        sender = broker.connect("sender")
        up = sender.begin().attach_sender("up", "q")
        for peer in peers:
            peer.flush()
        broker.rest()
        wanted = 0
        for count, size, settled, durable in bursts:
            message = encode_message(header=Header(durable=durable), body=b"x" * size)
            sender.hear()
            for _ in range(count):
                up.send(message, settled=settled)
            sender.flush()
            broker.rest()
            wanted += count
            for peer in peers:
                peer.hear()
            assert sum(len(link.deliveries) for link in links) == wanted


@examples(40, deadline=None)
@given(
    bursts=BURSTS,
    links=st.integers(1, 4),
    window=st.sampled_from((1, 3, 20)),
    room=st.sampled_from((4_096, 9_000)),
)
def test_links_that_share_a_window_all_go_on_when_it_opens(
    bursts: list[tuple[int, int, bool, bool]], links: int, window: int, room: int
) -> None:
    """Whatever else held one of them up before: nobody waits while the window is open."""
    limits = BrokerLimits(max_frame_size_bytes=4_096, output_buffer_bytes=room)
    with stopping(JumpingBroker(memory_config(limits=limits))) as broker:
        peer, sender = broker.connect("receiver"), broker.connect("sender")
        session = peer.begin(incoming_window=window)
        downs = [session.attach_receiver(f"{at}", f"q{at}", credit=1_000) for at in range(links)]
        ups = [sender.begin().attach_sender(f"{at}", f"q{at}") for at in range(links)]
        peer.flush()
        broker.rest()
        wanted = 0
        for at, (count, size, settled, durable) in enumerate(bursts):
            message = encode_message(header=Header(durable=durable), body=b"x" * size)
            sender.hear()
            for _ in range(count):
                ups[at % links].send(message, settled=settled)
            sender.flush()
            broker.rest()
            wanted += count
        came = -1
        while came < (came := sum(len(link.deliveries) for link in downs)):
            peer.hear()
            session.flow()
            peer.flush()
            broker.rest()
            peer.hear()
        assert came == wanted


@in_trio
async def test_what_gathers_for_a_receiver_has_one_turn() -> None:
    """Twenty senders whose messages were read in one round of the loop: it gets one of them at once, and then
    a turn for all others.
    """
    async with a_pair(of=20) as (_, senders, (receiver, *peers)):
        for sender in senders:
            sender.send(PAYLOAD, settled=True)
        steps = Steps()
        trio.lowlevel.add_instrument(steps)
        for peer in peers:
            write_now(peer)
        for _ in senders:
            await receiver.until(Transfer)
        trio.lowlevel.remove_instrument(steps)
        assert own_steps(steps) == 1


@pytest.mark.interpreted
@in_trio
async def test_a_fault_of_a_turn_at_hand_is_of_its_own_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who caused the turn goes on."""
    async with a_pair() as (broker, (sender,), (receiver, peer)):

        def fail(*_: object) -> None:
            raise AssertionError("planted")

        with monkeypatch.context() as patched:
            patched.setattr(QueueSource, "on_offer", fail)
            sender.send(PAYLOAD, settled=True)
            write_now(peer)
            close = await receiver.until(Close)
        assert close.error.condition == "amqp:internal-error"
        await ask_for_an_answer(peer)
        await peer.until(Flow)


@in_virtual_time
async def test_the_end_does_not_wait_for_what_is_still_written() -> None:
    """What the peer still writes after both closes is read and thrown away, and its end is seen at once."""
    async with serving() as (broker, connect):
        peer = connect()
        await peer.hello()
        await peer.until(Begin)
        start = trio.current_time()
        (task,) = broker._connections
        task.stop()
        await peer.until(Close)
        await peer.say(Close())
        for _ in range(3):
            await trio.testing.wait_all_tasks_blocked()
            await peer.say(Flow(next_incoming_id=0, incoming_window=1, next_outgoing_id=0, outgoing_window=1))
        assert isinstance(peer.stream, trio.StapledStream)
        await peer.stream.send_eof()
        while broker._connections:
            await trio.sleep(0.001)
        assert trio.current_time() - start < 0.1


@in_virtual_time
async def test_open_tells_the_product() -> None:
    """Product, version and platform, by the names that others use; keys of open's properties are symbols."""
    async with serving() as (_, connect):
        peer = connect()
        await peer.hello()
        properties = (await peer.until(Open)).properties
        assert properties["product"] == "amqp-broker"
        assert properties["version"] == __version__
        assert properties["platform"].startswith("Python 3.")
        assert set(properties) == {"product", "version", "platform"}
        assert b"\xa3\x07product" in encode_frame(0, Open(container_id="x", properties=properties))


@pytest.mark.interpreted
@in_virtual_time
async def test_a_fault_of_ours_ends_one_connection_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception in one connection closes it with amqp:internal-error; the others and the broker live
    on.
    """
    original = QueueSink.on_deliveries

    def fail(self: QueueSink, deliveries: Any) -> None:
        if self.queue.name == "cursed":
            raise AssertionError("planted")
        original(self, deliveries)

    monkeypatch.setattr(QueueSink, "on_deliveries", fail)
    async with serving() as (broker, connect):
        good, bad = connect(), connect()
        await good.hello()
        await bad.hello()
        await bad.send_to("cursed", 1)
        close = await bad.until(Close)
        assert close.error is not None and close.error.condition == "amqp:internal-error"
        await good.send_to("fine", 1)
        await good.receive_from("fine", 5)
        await good.until(Transfer)


@pytest.mark.interpreted
@pytest.mark.parametrize("where", ["receive", "send_all"])
def test_a_fault_beside_the_turns_ends_one_connection_only(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the task that reads, or in the one that writes."""
    planted: list[Any] = []

    async def main() -> None:
        async with serving() as (broker, connect):
            good, bad = connect(), connect()
            await good.hello()
            await bad.hello()
            await bad.send_to("q", 1)
            await bad.receive_from("q", 1)
            await bad.until(Transfer)

            def fails(*_: Any) -> Any:
                if planted:
                    return original(*_)
                planted.append(where)
                raise AssertionError("planted")

            original: Any = getattr(StreamTransport, where)
            with monkeypatch.context() as patched:
                patched.setattr(StreamTransport, where, fails)
                await bad.stream.send_all(EMPTY_FRAME)
                with suppress(trio.BrokenResourceError):
                    await bad.say(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1))
                told = [await bad.next()]
                while told[-1] is not None:
                    told.append(await bad.next())
            assert planted
            if where == "receive":
                assert told[-2].error.condition == "amqp:internal-error"
            await good.receive_from("q", 1)
            await good.until(Transfer)
            assert broker.writer.failure is None

    run_with_virtual_clock(main)


@in_virtual_time
async def test_dead_connections_leave_nothing_in_the_timers() -> None:
    """A connection that is gone is not kept in memory until a deadline that it once had."""
    async with serving() as (broker, connect):
        for _ in range(5):
            peer = connect()
            await peer.hello()
            await peer.until(Begin)
            assert any(isinstance(entry[2], ConnectionTask) for entry in broker.timers._heap)
            await peer.stream.aclose()
            await trio.testing.wait_all_tasks_blocked()
        assert not broker._connections
        assert not any(isinstance(entry[2], ConnectionTask) for entry in broker.timers._heap)


# Its end is logged once, with the reason, in whatever way it ends


Ends = Callable[[Broker, Peer], Awaitable[None]]
GONE = Error(condition="amqp:connection:forced", description="enough")


class Told:
    """A logger that keeps its events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def bind(self, **_: Any) -> Told:
        """The same, whatever it is bound to."""
        return self

    def info(self, event: str, /, **fields: Any) -> None:
        """Keep an event."""
        self.events.append((event, fields))

    warning = exception = info

    def fields(self, event: str) -> list[dict[str, Any]]:
        """Those of each event of this name."""
        return [fields for name, fields in self.events if name == event]


class Wire(StreamTransport):
    """A transport that a test breaks on one side."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        super().__init__(stream)
        self.reading = trio.CancelScope()
        self.breaks_at_once = self.breaks_later = self.stalls = False
        wires.append(self)

    async def receive(self, awaited_octets: int) -> bytes:
        """What came, until the test cancels `reading`."""
        with self.reading:
            data = await super().receive(awaited_octets)
            self.reading = trio.CancelScope()
            return data
        raise trio.BrokenResourceError("reset while the broker read")

    def send_now(self, pieces: list[Piece], octets: int) -> list[Piece]:
        """Nothing goes at once."""
        if self.breaks_at_once:
            raise trio.BrokenResourceError("reset while the broker wrote")
        return pieces

    async def send_all(self, pieces: list[Piece]) -> None:
        """All of it, some time."""
        if self.breaks_later:
            raise trio.BrokenResourceError("reset while the broker wrote")
        if self.stalls:
            await trio.sleep_forever()
        await super().send_all(pieces)


wires: list[Wire] = []


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """What connections log; their transports are in `wires`."""
    found = Told()
    wires.clear()
    monkeypatch.setattr(connection_task, "logger", lambda _: found)
    use_transport(Wire, monkeypatch)
    return found


def end_of(told: Told, ends: Ends) -> tuple[str, str | None]:
    """How the only connection says that it ended: why, and the condition of the close."""

    async def main() -> None:
        async with serving() as (broker, connect):
            peer = connect()
            await peer.hello()
            await peer.until(Begin)
            await ends(broker, peer)
            while broker._connections:
                await trio.sleep(1)

    run_with_virtual_clock(main)
    assert len(told.fields("connection.opened")) == 1
    (closed,) = told.fields("connection.closed")
    return closed["why"], closed["condition"]


async def ask_for_an_answer(peer: Peer) -> None:
    """The broker has something to write."""
    await peer.say(
        Flow(next_incoming_id=0, incoming_window=9, next_outgoing_id=0, outgoing_window=9, echo=True)
    )


async def peer_closes(_: Broker, peer: Peer) -> None:
    """The other side has had enough, and waits for the answer."""
    await peer.say(Close())
    await peer.until(Close)


async def peer_closes_with_an_error(_: Broker, peer: Peer) -> None:
    """It says why."""
    await peer.say(Close(error=GONE))


async def peer_closes_and_ends(_: Broker, peer: Peer) -> None:
    """It does not wait for the answer."""
    await peer.say(Close())
    await peer.stream.aclose()


async def peer_ends(_: Broker, peer: Peer) -> None:
    """The transport is at its end."""
    await peer.stream.aclose()


async def peer_is_silent(_: Broker, peer: Peer) -> None:
    """For twice the idle-time-out."""
    await peer.until(Close)


async def peer_breaks_a_rule(_: Broker, peer: Peer) -> None:
    """It ends a session twice."""
    await peer.say(End(), End())
    await peer.until(Close)


async def reads_break(_: Broker, peer: Peer) -> None:
    """The transport is reset while the broker waits for something to read."""
    wires[-1].reading.cancel()


async def writes_break_at_once(_: Broker, peer: Peer) -> None:
    """It is reset when the socket is to take something."""
    wires[-1].breaks_at_once = True
    await ask_for_an_answer(peer)


async def writes_break_later(_: Broker, peer: Peer) -> None:
    """It is reset while the rest is written."""
    wires[-1].breaks_later = True
    await ask_for_an_answer(peer)


async def writes_stall(broker: Broker, peer: Peer) -> None:
    """The peer is there, and reads nothing."""
    wires[-1].stalls = True
    await ask_for_an_answer(peer)
    while broker._connections:
        await trio.sleep(10)
        with suppress(trio.BrokenResourceError):
            await peer.stream.send_all(EMPTY_FRAME)


async def broker_stops(broker: Broker, peer: Peer) -> None:
    """And the peer answers its close."""
    for task in broker._connections:
        task.stop()
    await peer.until(Close)
    await peer.say(Close())


async def broker_stops_and_peer_ends(broker: Broker, peer: Peer) -> None:
    """The peer does not answer."""
    for task in broker._connections:
        task.stop()
    await peer.until(Close)
    await peer.stream.aclose()


@pytest.mark.parametrize(
    ("ends", "why", "condition"),
    [
        (peer_closes, "peer's close", None),
        (peer_closes_with_an_error, "peer's close", "amqp:connection:forced"),
        (peer_closes_and_ends, "peer's close", None),
        (peer_ends, "end without close", None),
        (peer_is_silent, "our close", "amqp:resource-limit-exceeded"),
        (peer_breaks_a_rule, "our close", "amqp:not-allowed"),
        (reads_break, "reset while reading", None),
        (writes_break_at_once, "reset while writing", None),
        (writes_break_later, "reset while writing", None),
        (writes_stall, "write stalled", None),
        (broker_stops, "broker stopping", "amqp:connection:forced"),
        (broker_stops_and_peer_ends, "broker stopping", "amqp:connection:forced"),
    ],
)
def test_an_open_connection_logs_its_end_once(
    told: Told, ends: Ends, why: str, condition: str | None
) -> None:
    """With the reason, and with the condition of the close if there was one."""
    assert end_of(told, ends) == (why, condition)


def test_a_fault_of_ours_is_the_reason(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the entry with the trace."""

    def fail(*_: Any) -> None:
        raise AssertionError("planted")

    async def peer_sends(_: Broker, peer: Peer) -> None:
        await peer.send_to("q", 1)
        await peer.until(Close)

    monkeypatch.setattr(QueueSink, "on_deliveries", fail)
    assert end_of(told, peer_sends) == ("internal error", "amqp:internal-error")
    assert len(told.fields("connection.internal_error")) == 1


@pytest.mark.parametrize("answers", [True, False])
@in_virtual_time
async def test_who_may_not_connect_is_closed_by_us(
    told: Told, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    """Whether the peer answers our close or not."""
    monkeypatch.setattr(Authoriser, "authorise", lambda *_: False)
    async with serving() as (broker, connect):
        peer = connect()
        await peer.hello()
        await peer.until(Close)
        if answers:
            await peer.say(Close())
        await peer.stream.aclose()
        while broker._connections:
            await trio.sleep(1)
    (closed,) = told.fields("connection.closed")
    assert (closed["why"], closed["condition"]) == ("our close", "amqp:unauthorized-access")


@pytest.mark.parametrize("hello", [b"", AMQP_HEADER])
@in_virtual_time
async def test_a_connection_that_never_opens_says_so_once(told: Told, hello: bytes) -> None:
    """It is dropped when the time for its header or its open is over."""
    async with serving() as (broker, connect):
        await connect().stream.send_all(hello)
        await trio.testing.wait_all_tasks_blocked()
        while broker._connections:
            await trio.sleep(1)
    (closed,) = told.fields("connection.closed")
    assert closed["why"] == "our close" and not told.fields("connection.opened")


@in_virtual_time
async def test_a_connection_that_is_cut_off_with_its_broker_says_so(told: Told) -> None:
    """The grace is over, and nobody waits for the peer any more."""
    async with serving() as (_, connect):
        peer = connect()
        await peer.hello()
        await peer.until(Begin)
    (closed,) = told.fields("connection.closed")
    assert closed["why"] == "broker stopping"


@pytest.mark.interpreted
@in_virtual_time
async def test_a_fault_of_what_a_commit_at_once_did_is_met_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection ends in the turn behind it, not when some timer wakes it."""
    async with serving() as (broker, connect):
        peer = connect()
        await peer.hello()
        await peer.until(Begin)
        sender = peer.sessions[0].attach_sender("s", "q", handle=1)
        await peer.write()
        await peer.until(Flow)
        broker.writer._pace.commit_s = 0.0001  # small groups are committed in the loop
        await trio.testing.wait_all_tasks_blocked()

        def prepare(*_: object) -> None:
            raise RuntimeError("planted")

        monkeypatch.setattr(Posting, "prepare", prepare)
        began = trio.current_time()
        sender.send(encode_message(header=Header(durable=True), body=b"x"))
        await peer.write()
        await peer.until(Close)
        assert trio.current_time() - began < 0.1


class Unrelated(BaseException):
    """What somebody handles who runs a broker."""


def test_a_connection_that_ends_while_its_host_handles_an_exception_raises_nothing_of_that() -> None:
    """The exception is no fault of the connection, and none of the broker. In its own loop a broker has no
    such host; where the loop of another one runs it, it has.
    """
    with stopping(JumpingBroker()) as broker:
        peer = broker.connect("gone soon")
        try:
            raise Unrelated
        except Unrelated:
            peer.abort()
            broker.rest()
        assert broker.alive
        broker.connect("the next one")
