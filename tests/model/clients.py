"""The clients of the model's broker: connections with their links, and what each has in hand."""

from __future__ import annotations

from amqp_broker.frames import Source
from amqp_broker.testing import RunningBroker
from amqp_broker.testing.blocking_peer import BlockingPeer
from amqp_broker.testing.peer import Delivery, PeerReceiver, PeerSender, PeerSession
from tests.model.reference import ModelMessage


class Sender:
    """A sending link."""

    def __init__(self, link: PeerSender, queue: str) -> None:
        self.link = link
        self.queue = queue


class Receiver:
    """A receiving link, and what it holds, in the order of arrival."""

    def __init__(self, link: PeerReceiver, queue: str, settled: bool, browser: bool) -> None:
        self.link = link
        self.queue = queue
        self.settled = settled
        self.browser = browser
        self.held: list[tuple[Delivery, ModelMessage]] = []
        self.seen: set[bytes] = set()
        self.owed: dict[bytes, ModelMessage] = {}  # what a browser has to be shown if it is there

    def __repr__(self) -> str:
        return f"<receiver {self.link.name} of {self.queue}>"


class Client:
    """One connection with one session."""

    def __init__(self, broker: RunningBroker, number: int) -> None:
        self.connection = BlockingPeer.connect(broker.host, broker.port, container_id=f"client-{number}")
        self.session: PeerSession = self.connection.begin()
        self.senders: list[Sender] = []
        self.receivers: list[Receiver] = []
        self.links_made = 0

    def name(self) -> str:
        """A name that no link had before."""
        self.links_made += 1
        return f"link-{self.links_made}"

    def attach_sender(self, queue: str) -> Sender:
        """Attach and remember."""
        sender = Sender(self.session.attach_sender(self.name(), queue), queue)
        self.senders.append(sender)
        return sender

    def attach_receiver(self, queue: str, *, settled: bool, browser: bool) -> Receiver:
        """Attach and remember."""
        source = Source(address=queue, distribution_mode="copy" if browser else None)
        link = self.session.attach_receiver(
            self.name(), queue, source=source, snd_settle_mode=1 if settled else 2
        )
        receiver = Receiver(link, queue, settled, browser)
        self.receivers.append(receiver)
        return receiver

    def links(self) -> int:
        """How many links are attached."""
        return len(self.senders) + len(self.receivers)
