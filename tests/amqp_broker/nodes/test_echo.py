"""A kind of node that nobody has heard of: one class, one line to register it, and a broker serves it.

`$echo/<name>` returns to every link that receives there what any link sends there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import pytest

from amqp_broker.embedding import RunningBroker
from amqp_broker.frames import Accepted, Properties, encode_message
from amqp_broker.links import Delivery, OutgoingDelivery
from amqp_broker.nodes.ends import Sink, Source
from amqp_broker.nodes.node import Attachment, Node
from amqp_broker.nodes.relay import RelaySink
from amqp_broker.persistence import Record
from amqp_broker.testing import memory_config, running_broker
from amqp_broker.testing.peer import PeerError
from tests.support.broker_clients import bodies, receive, send, session_to


class EchoNode(Node):
    """`sources` are all links that receive from any of them, by address."""

    is_received_from = True
    capabilities = ("echo",)
    sources: dict[str, list[EchoSource]] = {}

    async def open_sink(self, attachment: Attachment) -> Sink:
        """For anybody."""
        return EchoSink(attachment, self)

    async def open_source(self, attachment: Attachment) -> Source:
        """For anybody."""
        return EchoSource(attachment, self)

    def relayed(self, relay: RelaySink) -> Sink:
        """Also through the anonymous terminus."""
        return EchoSink(relay.attachment, self)

    @property
    def listeners(self) -> list[EchoSource]:
        """The links that receive here."""
        return self.sources.setdefault(self.name, [])


class EchoSink(Sink):
    """Hands each message to those who listen, and accepts it."""

    def __init__(self, attachment: Attachment, node: EchoNode) -> None:
        super().__init__(attachment.connection, attachment.link)
        self._node = node

    def on_deliveries(self, deliveries: list[Delivery]) -> None:
        """A run."""
        for source in self._node.listeners:
            source.heard([Record(0, delivery.payload) for delivery in deliveries])
        self.link.settle(deliveries, Accepted())
        self.processed(len(deliveries))


class EchoSource(Source):
    """Keeps what was said until there is credit for it."""

    def __init__(self, attachment: Attachment, node: EchoNode) -> None:
        super().__init__(attachment.connection, attachment.link)
        self._node = node
        self._waiting: deque[Record] = deque()
        node.listeners.append(self)

    def heard(self, records: list[Record]) -> None:
        """From any connection's turn."""
        self._waiting.extend(records)
        self.connection.offer(self)

    def on_offer(self) -> None:
        """In a turn of the own connection."""
        self.on_credit()

    def on_credit(self) -> None:
        """Send what goes."""
        for _ in range(self.link.send(list(self._waiting))):
            self._waiting.popleft()
        if not self._waiting:
            self.link.drained()

    def on_outcomes(self, deliveries: list[OutgoingDelivery], state: object, settled: bool) -> None:
        """Nothing depends on them."""
        if not settled and state is not None:
            self.link.settle(deliveries, state)

    def on_detached(self, unsettled: list[OutgoingDelivery], broken: bool) -> None:
        """It listens no more."""
        self._node.listeners.remove(self)


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    """A broker that echoes."""
    with running_broker(memory_config()) as running:
        running.call(lambda broker: broker.registry.register("$echo", EchoNode, below=True))
        yield running


def test_what_is_sent_comes_back_on_every_link_that_listens(broker: RunningBroker) -> None:
    """Two connections that receive, one that sends; another name is another node."""
    with session_to(broker) as session, session_to(broker, "other") as other:
        own = session.attach_receiver("r", "$echo/a", credit=10)
        far = other.attach_receiver("r", "$echo/a", credit=1)
        elsewhere = other.attach_receiver("e", "$echo/b", credit=10)
        sender = session.attach_sender("s", "$echo/a")
        send(sender, b"one", b"two")
        assert bodies(receive(own, 2)) == [b"one", b"two"]
        assert bodies(receive(far, 1)) == [b"one"]
        far.flow(1)
        assert bodies(receive(far, 1)) == [b"two"]
        assert not elsewhere.deliveries


def test_it_takes_messages_through_the_anonymous_terminus(broker: RunningBroker) -> None:
    """`relayed` is all that this needs."""
    with session_to(broker) as session:
        own = session.attach_receiver("r", "$echo/a", credit=10)
        relay = session.attach_sender("s", None)
        session.connection.pump_until(lambda: relay.may_send)
        relay.send(encode_message(properties=Properties(to="$echo/a"), body=b"relayed"))
        assert bodies(receive(own, 1)) == [b"relayed"]


def test_the_terminus_says_what_the_node_declares(broker: RunningBroker) -> None:
    """Its capability stands in both answers."""
    with session_to(broker) as session:
        sender = session.attach_sender("s", "$echo/a")
        receiver = session.attach_receiver("r", "$echo/a", credit=1)
        for answer, terminus in ((sender.remote_attach, "target"), (receiver.remote_attach, "source")):
            assert getattr(answer, terminus).capabilities == ("echo",)


def test_a_transaction_acquires_nothing_from_it(broker: RunningBroker) -> None:
    """What a source does not say is answered for it (4.4.3)."""
    with session_to(broker) as session:
        receiver = session.attach_receiver("r", "$echo/a", credit=1)
        session.flow(receiver, properties={"txn-id": b"any"})
        with pytest.raises(PeerError) as refused:
            session.connection.pump_until(lambda: receiver.detached)
        assert refused.value.error is not None and refused.value.error.condition == "amqp:not-implemented"


def test_without_the_line_there_is_no_such_node() -> None:
    """The name is refused as any that nobody registered."""
    with running_broker(memory_config()) as running, session_to(running) as session:
        with pytest.raises(PeerError) as refused:
            session.attach_sender("s", "$echo/a")
        assert refused.value.error is not None and refused.value.error.condition == "amqp:not-found"
