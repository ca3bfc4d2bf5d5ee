"""What the users of a soak do: each act is whole, and leaves nothing but what the broker ends by itself."""

from __future__ import annotations

import random
import threading
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast

import attrs
from websockets.sync.client import ClientConnection
from websockets.sync.client import connect as connect_websocket
from websockets.typing import Subprotocol

from amqp_broker.client import Half, Resolution, WaitTimeout, connect, message
from amqp_broker.frames import (
    Accepted,
    Described,
    Header,
    Modified,
    Rejected,
    Released,
    Source,
    Symbol,
    Target,
    TransactionalState,
    encode_message,
)
from amqp_broker.management.command import Asker
from amqp_broker.sequences.client import Outbox
from amqp_broker.testing.blocking_peer import BlockingPeer
from amqp_broker.testing.peer import PeerReceiver, PeerSender, PeerSession
from tests.soak.ground import WORKERS, Ground
from tests.support.controllers import Controller
from tests.support.retained import read

QUEUES: Final = 20
TTL_MS: Final = 5_000
WAIT_S: Final = 60.0
SIZES: Final = (10, 100, 1_000, 1_000, 9_000)


@attrs.define
class User:
    """One worker: what it does is decided by its own chance."""

    ground: Ground
    number: int
    chance: random.Random
    outbox: Outbox | None = None

    def work_queue(self) -> str:
        """One of those that all use."""
        return f"work.{self.chance.randrange(QUEUES)}"

    def body(self) -> bytes:
        """A body of one of the sizes, some of them so large that they lie in a file."""
        return b"." * self.chance.choice(SIZES)


Act = Callable[[User], None]


def _payload(body: bytes, **told: Any) -> bytes:
    return encode_message(header=Header(durable=True, ttl=TTL_MS), body=body, **told)


def _send(sender: PeerSender, *bodies: bytes, txn_id: bytes | None = None) -> None:
    """Each is sent, and has an outcome when this returns."""
    connection, numbers = sender.session.connection, []
    for body in bodies:
        connection.pump_until(lambda: sender.may_send)
        numbers.append(sender.send(_payload(body), txn_id=txn_id))
    connection.pump_until(lambda: all(number in sender.outcomes for number in numbers))


def _take(receiver: PeerReceiver, most: int) -> None:
    """Accepts what is there, up to so many."""
    receiver.drain_all(most)
    receiver.settle(list(receiver.deliveries), Accepted())
    receiver.deliveries.clear()


def messages(user: User) -> None:
    """Through a queue of all, with each of the outcomes."""
    queue = user.work_queue()
    with connect(user.ground.url, container_id=user.ground.name("plain")) as client:
        sender = client.open_sender(queue)
        sender.send_many([message(user.body(), ttl_ms=TTL_MS) for _ in range(user.chance.randint(1, 10))])
        receiver = client.open_receiver(queue, credit=20)
        with suppress(WaitTimeout):
            for _ in range(user.chance.randint(1, 20)):
                received = receiver.receive(0.1)
                outcome = user.chance.choice(("accept",) * 6 + ("release", "reject", "modify", "leave"))
                if outcome == "modify":
                    receiver.modify(received, delivery_failed=True)
                elif outcome != "leave":
                    getattr(receiver, outcome)(received)


def over_tls(user: User) -> None:
    """As others do, over TLS."""
    with connect(user.ground.urls["amqps"], ssl_context=user.ground.tls) as client:
        queue = user.work_queue()
        client.open_sender(queue).send(message(user.body(), ttl_ms=TTL_MS))
        receiver = client.open_receiver(queue)
        with suppress(WaitTimeout):
            receiver.accept(receiver.receive(0.1))


class _Messages:
    """A WebSocket, used as a socket by the frame-level peer."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._timeout: float | None = None

    def settimeout(self, timeout: float) -> None:
        """For the next read."""
        self._timeout = timeout

    def sendall(self, data: bytes) -> None:
        """One message."""
        self._socket.send(data)

    def recv(self, _: int) -> bytes:
        """One message."""
        return cast(bytes, self._socket.recv(self._timeout))

    def close(self) -> None:
        """With a closing handshake."""
        self._socket.close()


def over_websocket(user: User) -> None:
    """As others do, in a WebSocket."""
    url, host = user.ground.urls["ws"], user.ground.host
    opened = connect_websocket(url, subprotocols=[Subprotocol("amqp")], compression=None)
    with opened as socket, BlockingPeer(cast(Any, _Messages(socket)), WAIT_S) as peer:
        peer.open(user.ground.name("ws"), hostname=host)
        peer.pump_until(lambda: peer.remote_open is not None)
        session, queue = peer.begin(), user.work_queue()
        _send(session.attach_sender("to", queue), user.body())
        _take(session.attach_receiver("from", queue), 5)
        peer.close()


def cut_off(user: User) -> None:
    """A transport that ends in the middle: of a delivery that comes, of deliveries that went."""
    peer, queue = user.ground.peer("cut"), user.work_queue()
    for _ in range(user.chance.randint(1, 3)):
        session = peer.begin()
        sender = session.attach_sender(user.ground.name("to"), queue)
        receiver = session.attach_receiver(user.ground.name("from"), queue)
        _send(sender, user.body(), user.body())
        receiver.flow(10)
        peer.pump_until(lambda sender=sender: sender.may_send)  # type: ignore[misc]
        sender.send(_payload(user.body())[:8], more=True)
        peer.flush()
    if user.chance.random() < 0.3:
        user.ground.leave(peer)
    else:
        peer.abort()


def temporary_queue(user: User) -> None:
    """A queue for the answers of one dialogue."""
    with connect(user.ground.url, container_id=user.ground.name("asks")) as client:
        receiver = client.open_receiver(None)
        client.open_sender(receiver.address or "").send(user.body())
        receiver.accept(receiver.receive(WAIT_S))


def transaction(user: User) -> None:
    """Posts and takes in a transaction, which is committed, rolled back, or left."""
    peer = user.ground.peer("transacts")
    session = peer.begin()
    controller = Controller(session)
    txn_id, queue = controller.declare(), user.work_queue()
    sender = session.attach_sender("to", queue)
    _send(sender, user.body(), user.body(), txn_id=txn_id)
    receiver = session.attach_receiver("from", queue)
    receiver.drain_all(4)
    for delivery in receiver.deliveries:
        receiver.settle(delivery, TransactionalState(txn_id=txn_id, outcome=Accepted()))
    ending = user.chance.choice(("commit", "commit", "roll back", "detach", "cut", "leave"))
    if ending == "commit":
        controller.commit(txn_id)
    elif ending == "roll back":
        controller.roll_back(txn_id)
    elif ending == "detach":
        controller.link.detach()
    if ending == "leave":
        user.ground.leave(peer)
    else:
        peer.abort()


def half_message(user: User) -> None:
    """One that its producer decides, or a check-back, or nobody."""
    ending = user.chance.choice(("commit", "rollback", "asked", "nobody"))
    destination = user.work_queue()
    with connect(user.ground.url, container_id=user.ground.name("half")) as client:
        if ending == "nobody":
            with client.producer("left") as producer:
                producer.send_half(destination, user.body(), ttl_ms=TTL_MS)
            return
        answered = threading.Event()

        def check(half: Half) -> Resolution:
            answered.set()
            return user.chance.choice((Resolution.COMMIT, Resolution.ROLLBACK))

        with client.producer(f"asked.{user.number}", check, on_check_error=_asked_again) as producer:
            half_id = producer.send_half(destination, user.body(), ttl_ms=TTL_MS)
            if ending == "asked":
                assert answered.wait(WAIT_S), f"nobody asked about {half_id}"
            else:
                getattr(producer, ending)(half_id)


def _asked_again(_half: Half | None, _error: Exception) -> None:
    """A check that came while its producer left: the broker asks the next one."""


def subscription(user: User) -> None:
    """Durable, shared or for a time; the last of those is left, for its time to end."""
    kind = user.chance.choice(("plain", "durable", "shared", "shared durable", "for a time"))
    topic, container = f"news.{user.chance.randrange(5)}", user.ground.name("reads")
    more: dict[str, Any] = {"capabilities": ("topic", "shared") if "shared" in kind else ("topic",)}
    lasting: dict[str, Any] = {"durable": 2, "expiry_policy": "never"} if "durable" in kind else {}
    if kind == "for a time":
        lasting = {"durable": 2, "timeout": 1, "expiry_policy": "link-detach"}
    source = Source(address=topic, filter=_colour(user), **more, **lasting)
    with user.ground.peer("", container) as peer:
        session = peer.begin()
        receiver = session.attach_receiver(container, None, source=source)
        _publish(session, topic, user)
        _take(receiver, 3)
        if kind == "for a time":
            receiver.detach(closed=False)
            return
        if "durable" not in kind:
            receiver.detach()
            return
        receiver.detach(closed=False)
        _publish(session, topic, user)
    with user.ground.peer("", container) as peer:
        receiver = peer.begin().attach_receiver(container, None, source=source)
        _take(receiver, 10)
        receiver.detach()


def _colour(user: User) -> dict[Any, Any] | None:
    if user.chance.random() < 0.5:
        return None
    words = Described(Symbol("apache.org:selector-filter:string"), "colour = 'red' OR colour IS NULL")
    return {Symbol("jms-selector"): words}


def _publish(session: PeerSession, topic: str, user: User) -> None:
    target = Target(address=topic, capabilities=("topic",))
    link = session.attach_sender(user.ground.name("publishes"), None, target=target)
    _send(link, user.body(), user.body())
    link.detach()


def selected(user: User) -> None:
    """Who wants some of a queue's messages only, beside who takes the others."""
    queue = f"picked.{user.number}"
    with user.ground.peer("picks") as peer:
        session = peer.begin()
        sender = session.attach_sender("to", queue)
        for at in range(6):
            peer.pump_until(lambda: sender.may_send)
            sender.send(_payload(user.body(), application_properties={"colour": ("red", "blue")[at % 2]}))
        words = Described(Symbol("apache.org:selector-filter:string"), "colour = 'red'")
        wanted: dict[Any, Any] = {Symbol("jms-selector"): words}
        source = Source(address=queue, filter=wanted)
        _take(session.attach_receiver("red", None, source=source), 10)
        _take(session.attach_receiver("all", queue), 10)
        peer.close()


def dead_letter(user: User) -> None:
    """Rejected, and then looked after by hand."""
    queue = f"fails.{user.number}"
    with user.ground.peer("fails") as peer:
        session = peer.begin()
        _send(session.attach_sender("to", queue), user.body(), user.body())
        receiver = session.attach_receiver("from", queue)
        receiver.drain_all(4)
        for delivery in receiver.deliveries:
            outcomes = (Rejected(), Released(), Modified(delivery_failed=True))
            receiver.settle(delivery, user.chance.choice(outcomes))
        peer.close()
    with Asker(user.ground.url) as asker:
        asker.ask("PURGE", "queue", identity=queue)
        asker.ask("REDRIVE", "queue", identity="dead-letters", count=3)
        asker.ask("PURGE", "queue", identity="dead-letters", count=20)


def delayed(user: User) -> None:
    """A message that comes later, and one that comes twice and is taken once."""
    late, once = f"late.{user.number}", f"once.{user.number}"
    with connect(user.ground.url, container_id=user.ground.name("waits")) as client:
        later = {Symbol("x-opt-delivery-delay"): user.chance.choice((50, 200, 400))}
        client.open_sender(late).send(message(user.body(), message_annotations=later))
        name, sender = user.ground.name("id"), client.open_sender(once)
        sender.send_many([message(user.body(), message_id=name)] * 2)
        for address in (once, late):
            receiver = client.open_receiver(address, credit=1)
            receiver.accept(receiver.receive(WAIT_S))


def numbered(user: User) -> None:
    """The next messages of a stream, some of them twice, in order to the end."""
    if user.outbox is None:
        user.outbox = Outbox(f"stream-{user.number}", 0)
    queue = f"lines.{user.number}"
    with user.ground.peer("numbers") as peer:
        session = peer.begin()
        properties = {"seq-stream": user.outbox.stream}
        sender = session.attach_sender("to", queue, properties=properties)
        assert sender.remote_attach is not None and sender.remote_attach.properties is not None
        reply = sender.remote_attach.properties
        user.outbox.lost()
        user.outbox.attached(reply["seq-id"].value, reply["seq-no"].value)
        for _ in range(4):
            user.outbox.put(user.body())
        for sending in user.outbox.next(4):
            peer.pump_until(lambda: sender.may_send)
            annotations: dict[Any, Any] = dict(sending.annotations())
            number = sender.send(_payload(sending.message, message_annotations=annotations))
            peer.pump_until(lambda number=number: number in sender.outcomes)  # type: ignore[misc]
            assert isinstance(sender.outcomes[number], Accepted), sender.outcomes[number]
            user.outbox.accepted(sending)
        _take(session.attach_receiver("from", queue), 50)
        peer.close()


def managed(user: User) -> None:
    """A queue that is made, used and deleted, and lists of what there is."""
    name = user.ground.name("made")
    with Asker(user.ground.url) as asker:
        asker.ask("CREATE", "queue", name=name)
        asker.connection.open_sender(name).send_many([user.body() for _ in range(5)])
        asker.ask("BROWSE", "queue", identity=name, count=3)
        asker.ask("DELETE", "queue", identity=name, force=True)
        asker.ask("PURGE", "queue", identity="work.0")
        asker.all(user.chance.choice(("queue", "link", "connection", "subscription", "half")))


def reloaded(user: User) -> None:
    """The file is changed, and read again."""
    with user.ground.reloading, Asker(user.ground.url) as asker:
        user.ground.configure(user.chance.choice((50_000, 60_000)))
        asker.ask("RELOAD", "broker", identity="self")


def scraped(user: User) -> None:
    """Health and metrics."""
    for path in ("/metrics", "/readyz"):
        with urllib.request.urlopen(user.ground.urls["http"] + path, timeout=WAIT_S) as answer:
            assert answer.status == 200
            answer.read()


def read_by_offset(user: User) -> None:
    """What is settled is read again, by a cursor."""
    queue = f"kept.{user.number}"
    with user.ground.peer("reads") as peer:
        session = peer.begin()
        _send(session.attach_sender("to", queue), *(user.body() for _ in range(5)))
        _take(session.attach_receiver("from", queue), 10)
        reader = read(session, queue, "first", cursor=f"cursor-{user.number}", credit=3)
        peer.pump_until(lambda: reader.deliveries)
        reader.settle(reader.deliveries.popleft(), Accepted())
        peer.flush()
        if user.chance.random() < 0.5:
            peer.close()


def resumed(user: User) -> None:
    """A terminus that outlives its link, and is taken up again, or left."""
    container, queue = user.ground.name("resumes"), user.work_queue()
    source = Source(address=queue, expiry_policy="connection-close", timeout=2)
    for _ in range(user.chance.randint(1, 2)):
        with user.ground.peer("", container) as peer:
            session = peer.begin()
            _send(session.attach_sender("to", queue), user.body())
            receiver = session.attach_receiver("lasts", None, source=source)
            receiver.drain_all(2)


OWN: Final = ("picked", "fails", "late", "once", "lines", "kept")
"""Queues of which each user has one."""


def made(asker: Asker) -> None:
    """All queues that stay, so that their number says nothing of the first minutes."""
    names = [f"work.{number}" for number in range(QUEUES)]
    for name in (*names, *(f"{own}.{number}" for own in OWN for number in range(WORKERS)), "probe"):
        asker.ask("CREATE", "queue", name=name)


ACTS: Final[tuple[tuple[Act, int], ...]] = (
    (messages, 20), (cut_off, 10), (transaction, 14), (half_message, 12), (subscription, 12), (selected, 5),
    (dead_letter, 4), (delayed, 5), (numbered, 6), (managed, 5), (temporary_queue, 6), (over_tls, 5),
    (over_websocket, 5), (read_by_offset, 5), (resumed, 5), (scraped, 2), (reloaded, 1),
)  # fmt: skip
"""Each act, and how often of all."""
