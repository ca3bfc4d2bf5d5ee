"""proton's blocking connection with what the checks need: a queue, receivers that settle nothing alone."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, get_type_hints
from uuid import uuid4

from proton import Delivery, Link, Message
from proton.handlers import MessagingHandler
from proton.reactor import AtLeastOnce, LinkOption
from proton.utils import BlockingConnection, BlockingSender

TIMEOUT_S = 20


class CheckFailed(Exception):
    """The broker answered other than the standard says."""


def expect(what: str, expected: Any, got: Any) -> None:
    if expected != got:
        raise CheckFailed(f"{what}: expected {expected!r:.300}, got {got!r:.300}")


class Inbox(MessagingHandler):
    """Keeps what arrives on a receiving link and settles nothing by itself, unless told to."""

    def __init__(self, auto_accept: bool = False) -> None:
        super().__init__(prefetch=0, auto_accept=auto_accept, auto_settle=False)
        self.arrived: deque[tuple[Delivery, Message]] = deque()
        self.error: str | None = None

    def on_message(self, event: Any) -> None:
        self.arrived.append((event.delivery, event.message))

    def on_link_error(self, event: Any) -> None:
        self.error = event.link.remote_condition.name


class SettleSecond(LinkOption):
    """receiver-settle-mode second, on either end of a link."""

    def apply(self, link: Link) -> None:
        link.rcv_settle_mode = Link.RCV_SECOND


class Receiver:
    """A receiving link whose outcomes are chosen by the check, or all accepted as proton does by default."""

    def __init__(
        self, client: Client, address: str, credit: int, options: Any = None, auto_accept: bool = False
    ) -> None:
        self._connection = client.connection
        self._inbox = Inbox(auto_accept)
        self._blocking = client.connection.create_receiver(
            address,
            credit=credit,
            handler=self._inbox,
            name=uuid4().hex,
            options=options or [AtLeastOnce()],
        )
        self.link = self._blocking.link

    def receive(self, timeout_s: float = TIMEOUT_S) -> tuple[Delivery, Message]:
        inbox = self._inbox
        self._connection.wait(
            lambda: inbox.arrived or inbox.error, timeout=timeout_s, msg="no message arrived"
        )
        if not inbox.arrived:
            raise CheckFailed(f"expected a message, got a detach with {inbox.error}")
        return inbox.arrived.popleft()

    def accept(self, timeout_s: float = TIMEOUT_S) -> Message:
        """Receives one message and settles it as accepted."""
        delivery, message = self.receive(timeout_s)
        settle(delivery, Delivery.ACCEPTED)
        return message

    def expect_again(self, body: str, delivery_count: int) -> Message:
        """Receives and accepts this message, so often delivered in vain."""
        message = self.accept()
        expect("body, delivery-count", (body, delivery_count), (message.body, message.delivery_count))
        return message

    @property
    def waiting(self) -> int:
        return len(self._inbox.arrived)

    def drained(self) -> int:
        """How many have arrived when the broker says that it has no more; the credit left is gone then."""
        self.link.drain(0)
        self._connection.wait(lambda: not self.link.draining(), timeout=TIMEOUT_S, msg="drain not answered")
        self.link.drain_mode = False
        return self.waiting

    def close(self) -> None:
        self._blocking.close()


class Client:
    """One connection, and the queue of one check."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.queue = f"clients-proton-{uuid4().hex[:12]}"
        self.connection = self._connect()

    def _connect(self) -> BlockingConnection:
        user = os.environ.get("AMQP_USER")
        if user:
            return BlockingConnection(
                self.url,
                timeout=TIMEOUT_S,
                user=user,
                password=os.environ.get("AMQP_PASSWORD", ""),
                allowed_mechs="PLAIN",
                allow_insecure_mechs=True,
            )
        return BlockingConnection(self.url, timeout=TIMEOUT_S, allowed_mechs="ANONYMOUS")

    def another(self) -> Client:
        """A second connection, for the same queue; to be used in a ``with`` statement."""
        other = Client(self.url)
        other.queue = self.queue
        return other

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def receiver(self, credit: int = 10, options: Any = None) -> Receiver:
        return Receiver(self, self.queue, credit, options)

    def receiver_of(self, address: str, credit: int) -> Receiver:
        return Receiver(self, address, credit, None)

    def session(self) -> Any:
        """One more session beside the one that all other links are on."""
        session = self.connection.conn.session()
        session.open()
        return session

    def sender_on(self, session: Any, address: str) -> BlockingSender:
        link = self.connection.container.create_sender(session, address, name=uuid4().hex)
        return BlockingSender(self.connection, link)

    def flush(self) -> None:
        """Returns when the broker has seen what was done so far; proton writes only while it waits."""
        self.receiver(credit=0).close()

    def sender(self, options: Any = None) -> Any:
        return self.connection.create_sender(self.queue, name=uuid4().hex, options=options)

    def expect_queue(self, *bodies: Any) -> None:
        """The queue has these, and no more."""
        receiver = self.receiver()
        for body in bodies:
            expect("body", body, receiver.accept().body)
        expect("more", 0, receiver.drained())

    def send(self, messages: Iterable[Message], options: Any = None) -> None:
        sender = self.sender(options)
        for message in messages:
            sender.send(message)
        sender.close()

    def round_trip(self, message: Message) -> Message:
        """The message as it comes back. Keep it: its binary values are views into its memory, not copies."""
        self.send([message])
        receiver = self.receiver(credit=1)
        received = receiver.accept()
        receiver.close()
        return received

    def reconnect(self) -> None:
        self.connection.close()
        self.connection = self._connect()

    def close(self) -> None:
        self.connection.close()


def settle(delivery: Delivery, outcome: int) -> None:
    delivery.update(outcome)
    delivery.settle()


def text(body: str, **fields: Any) -> Message:
    return Message(body=body, **fields)


Check = Callable[..., None]
CHECKS: list[tuple[str, Callable[[Client], None]]] = []


def check(name: str) -> Callable[[Check], Check]:
    """A check. What it begins with are its parameters: the client, or what their classes make of it."""

    def register(function: Check) -> Check:
        kinds = [kind for name, kind in get_type_hints(function).items() if name != "return"]

        def run(client: Client) -> None:
            function(*[client if kind is Client else kind(client) for kind in kinds])

        CHECKS.append((name, run))
        return function

    return register
