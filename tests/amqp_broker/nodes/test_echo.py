"""A kind of node that nobody has heard of: one class, one line to register it, and a broker serves it.

`$echo/<name>` returns to every link that receives there what any link sends there.
"""

from __future__ import annotations

from collections import deque

from amqp_broker.connection import Sink, Source
from amqp_broker.frames import Accepted, Properties
from amqp_broker.links import Delivery, OutgoingDelivery
from amqp_broker.nodes.node import Attachment, Node
from amqp_broker.persistence import Record
from tests.support.by_hand import Main, Served, at_hand, by_hand, drives, text


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

    def relayed(self, relay: Sink, attachment: Attachment) -> Sink:
        """Also through the anonymous terminus."""
        return EchoSink(attachment, self)

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


def echoing(main: Main) -> None:
    """Run `main` with a connection to a broker that echoes."""

    async def run(at: Served) -> None:
        at.broker.registry.register("$echo", EchoNode, below=True)
        await main(at)

    by_hand(run)


with_echo = drives(echoing)


@with_echo
async def test_what_is_sent_comes_back_on_every_link_that_listens(at: Served) -> None:
    """Two connections that receive, one that sends; another name is another node."""
    far, elsewhere = at.another("far"), at.another("elsewhere")
    await at.receiver("$echo/a", 10)
    listens = await far.receiver("$echo/a")
    listens.flow(1)
    await elsewhere.receiver("$echo/b", 10)
    sender = await at.sender("$echo/a")
    sender.send([text(b"one"), text(b"two")])
    await at.settle()
    assert at.conditions == ["accepted"] * 2
    assert (at.bodies(), far.bodies(), elsewhere.bodies()) == ([b"one", b"two"], [b"one"], [])
    listens.flow(1)
    await at.settle()
    assert far.bodies() == [b"one", b"two"]


@with_echo
async def test_it_takes_messages_through_the_anonymous_terminus(at: Served) -> None:
    """`relayed` is all that this needs."""
    await at.receiver("$echo/a", 10)
    relay = await at.sender(None)
    relay.send([text(b"relayed", properties=Properties(to="$echo/a"))])
    await at.settle()
    assert at.bodies() == [b"relayed"]


@with_echo
async def test_the_terminus_says_what_the_node_declares(at: Served) -> None:
    """Its capability stands in both answers."""
    sender, receiver = await at.sender("$echo/a"), await at.receiver("$echo/a")
    assert sender.target.capabilities == receiver.source.capabilities == ("echo",)


@with_echo
async def test_a_transaction_acquires_nothing_from_it(at: Served) -> None:
    """What a source does not say is answered for it (4.4.3)."""
    receiver = await at.receiver("$echo/a", 1)
    receiver.flow(1, properties={"txn-id": b"any"})
    await at.settle()
    assert at.condition() == "amqp:not-implemented"


@at_hand()
async def test_without_the_line_there_is_no_such_node(at: Served) -> None:
    """The name is refused as any that nobody registered."""
    await at.sender("$echo/a")
    assert at.condition() == "amqp:not-found"
