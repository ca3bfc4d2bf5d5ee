"""Clients under load, each with its own connection and thread, that record what they did and what they were
told.

A message's body is one data section: the producer link, a number, the transaction that it was posted in and a
checksum, so that a receiver can tell whose it is and that nothing of it changed.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable
from typing import Final

from amqp_broker.frames import Accepted, Header, Message, Properties, Released, encode_message
from amqp_broker.testing.blocking_peer import BlockingPeer
from amqp_broker.testing.peer import Delivery, PeerReceiver, PeerSender
from tests.crash.history import History
from tests.crash.history import Message as Name
from tests.crash.workload import LivingClient

WINDOW: Final = 200
"""Unsettled messages that a sender keeps on their way."""

CREDIT: Final = 100
SHARE_OF_RELEASES: Final = 0.2
FIRST, SECOND = 0, 1  # receiver-settle-modes
TICK: Final = 0.02


PADDINGS: Final = (*(10, 50, 50, 400, 3_000) * 8, 150_000)
"""Octets of messages; the largest comes in several frames, and streams."""
CONFIGURATION: Final = """
[limits]
stream_body_bytes = 16_384
"""


class Unexpected(Exception):
    """A client met what a correct broker never does: a refusal, a strange outcome, changed bytes."""


def encode_body(name: Name, padding: int, txn: str = "", to: str | None = None) -> bytes:
    """A durable message that carries its name and its transaction, the name as message-id, too; `to` is for
    the anonymous terminus.
    """
    text = f"{name[0]} {name[1]} {txn} ".encode() + b"." * padding
    body = text + b" %08x" % zlib.crc32(text)
    properties = Properties(message_id=message_id_of(name), to=to)
    return encode_message(header=Header(durable=True), properties=properties, body=body)


def message_id_of(name: Name) -> str:
    """By which the journal names a message."""
    return f"{name[0]} {name[1]}"


def decode_body(payload: bytes) -> tuple[Name, str, int]:
    """The name of a message, its transaction, and its delivery-count; Unexpected when its bytes changed."""
    message = Message(payload)
    (section,) = message.body_sections()
    value = section.value if hasattr(section, "value") else section
    assert isinstance(value, bytes), f"not a data section: {section!r}"
    text, checksum = value[:-9], value[-9:]
    if checksum != b" %08x" % zlib.crc32(text):
        raise Unexpected(f"the bytes of a message changed: {value[:80]!r}")
    producer, number, txn, _ = text.split(b" ", 3)
    return (producer.decode(), int(number)), txn.decode(), message.header.delivery_count or 0


class Client(LivingClient):
    """It works on a queue, and records in the history of all messages."""

    def __init__(self, name: str, port: int, life: int, queue: str, history: History) -> None:
        super().__init__(name, port)
        self.life = life
        self.queue = queue
        self.history = history


class SendingClient(Client):
    """Sends unsettled durable messages on one link and records which were accepted."""

    def __init__(
        self,
        name: str,
        port: int,
        life: int,
        queue: str,
        history: History,
        chance: random.Random,
        window: int = WINDOW,
    ) -> None:
        super().__init__(name, port, life, queue, history)
        self.chance = chance
        self.window = window

    def drive(self, connection: BlockingPeer) -> None:
        """Keep up to `window` messages on their way until the connection is gone."""
        sender = connection.begin().attach_sender(self.name, self.queue)
        waiting: dict[int, Name] = {}
        number = 0
        while True:
            burst = self.chance.choice((1, 5, 20, 60))
            names = [
                (self.name, number + index) for index in range(burst) if len(waiting) + index < self.window
            ]
            names = names[: min(sender.credit, sender.session.remote_incoming_window)]
            self.history.record("sent", self.life, self.name, names)
            for name in names:
                waiting[sender.send(encode_body(name, self.chance.choice(PADDINGS)))] = name
            number += len(names)
            connection.pump(TICK)
            self._take_outcomes(sender, waiting)

    def _take_outcomes(self, sender: PeerSender, waiting: dict[int, Name]) -> None:
        accepted = []
        while sender.settled:
            delivery_id = sender.settled.popleft()
            outcome = sender.outcomes.pop(delivery_id)
            if not isinstance(outcome, Accepted):
                raise Unexpected(f"message {waiting[delivery_id]} got the outcome {outcome!r}")
            accepted.append(waiting.pop(delivery_id))
        self.history.record("accepted", self.life, self.name, accepted)


class ReceivingClient(Client):
    """Receives, accepts unsettled, and counts a message as settled when the broker confirmed it."""

    def __init__(
        self, name: str, port: int, life: int, queue: str, history: History, chance: random.Random
    ) -> None:
        super().__init__(name, port, life, queue, history)
        self.chance = chance

    def drive(self, connection: BlockingPeer) -> None:
        """Receive until the connection is gone; some messages wait for their outcome."""
        receiver = connection.begin().attach_receiver(
            self.name, self.queue, credit=CREDIT, rcv_settle_mode=self.chance.choice((FIRST, SECOND))
        )
        held: dict[int, Name] = {}
        waiting: dict[int, Name] = {}
        while True:
            connection.pump(TICK)
            take(self, receiver, held)
            self._release_some(receiver, held)
            ready = list(held)[: self.chance.choice((0, 1, 10, len(held)))]
            accept(self, receiver, ready, held, waiting)
            confirm(self, receiver, waiting)
            if receiver.credit < CREDIT // 2:
                receiver.flow(CREDIT)

    def _release_some(self, receiver: PeerReceiver, held: dict[int, Name]) -> None:
        """Now and then a few of the messages go back to their place."""
        if self.chance.random() < SHARE_OF_RELEASES:
            ids = [delivery_id for delivery_id in held if self.chance.random() < SHARE_OF_RELEASES]
            self.history.record(
                "released", self.life, self.name, [held.pop(delivery_id) for delivery_id in ids]
            )
            receiver.settle(ids, Released())


class DrainingClient(Client):
    """Receives everything that a queue holds, with drain, and settles it."""

    def drive(self, connection: BlockingPeer) -> None:
        """Drain until a whole credit was used up by nothing."""
        receiver = connection.begin().attach_receiver(self.name, self.queue)
        held: dict[int, Name] = {}
        waiting: dict[int, Name] = {}
        while True:
            receiver.drain_all(1_000)
            if not receiver.deliveries:
                return
            take(self, receiver, held)
            accept(self, receiver, list(held), held, waiting)
            connection.pump_until(lambda: len(receiver.confirmed) == len(waiting))
            confirm(self, receiver, waiting)


def take(client: Client, receiver: PeerReceiver, held: dict[int, Name]) -> None:
    """Record what arrived, in order."""
    arrived = list(receiver.deliveries)
    receiver.deliveries.clear()
    received = [recognise(client.history, delivery) for delivery in arrived]
    client.history.record_received(client.life, client.name, received)
    held.update((delivery.delivery_id, name) for delivery, (name, _) in zip(arrived, received, strict=True))


def recognise(history: History, delivery: Delivery) -> tuple[Name, int]:
    """The name and the delivery-count of what arrived; Unexpected if it is not what was sent."""
    name, txn, count = decode_body(delivery.payload)
    if history.sent_in.get(name, txn) != txn:
        raise Unexpected(f"message {name} says that it was posted in {txn!r}, not {history.sent_in[name]!r}")
    return name, count


def accept(
    client: Client,
    receiver: PeerReceiver,
    ids: Iterable[int],
    held: dict[int, Name],
    waiting: dict[int, Name],
) -> None:
    """Accept unsettled: recorded before it can leave, because from then on it may be known to the broker."""
    ids = list(ids)
    client.history.record("accept_sent", client.life, client.name, [held[delivery_id] for delivery_id in ids])
    receiver.settle(ids, Accepted(), settled=False)
    waiting.update((delivery_id, held.pop(delivery_id)) for delivery_id in ids)


def confirm(client: Client, receiver: PeerReceiver, waiting: dict[int, Name]) -> None:
    """Record what the broker settled."""
    confirmed = []
    while receiver.confirmed:
        confirmed.append(waiting.pop(receiver.confirmed.popleft()))
    client.history.record("settled", client.life, client.name, confirmed)
