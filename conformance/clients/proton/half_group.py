"""The half-message dialogue: put, resolve, be asked, answer by message or by outcome.

Each check has its own group, named as its queue: $half/<group>/<queue>, $half-resolve/<group>,
$half-check/<group>.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from client import TIMEOUT_S, Check, Client, Receiver, check, expect
from proton import Delivery, Message, ulong

SOON = {"half_first_check_ms": 100}
"""The broker asks about what was put with this after so many milliseconds."""

AT_ONCE = {"half_first_check_ms": 0}
FOUR_HOURS_MS = 4 * 3_600_000
BY_OUTCOME = "/by-outcome"

UNKNOWN_ID, CONFLICT, ID_CONFLICT = "half:unknown-id", "half:conflict", "half:id-conflict"
ID_REQUIRED, INVALID, NOT_ALLOWED = "half:id-required", "amqp:invalid-field", "amqp:not-allowed"
ACCEPTED = "accepted"


def half(message_id: Any, body: Any = "body", **named: Any) -> Message:
    return Message(id=message_id, body=body, properties=named or None)


def resolution(half_id: Any, subject: str | None) -> Message:
    return Message(correlation_id=half_id, subject=subject)


class Halves:
    """The links of one group; the queue is the client's own."""

    def __init__(self, client: Client, group: str = "") -> None:
        self.client = client
        self.group = group or client.queue
        self.put_to = f"$half/{self.group}/{client.queue}"
        self.resolve_at = f"$half-resolve/{self.group}"
        self.check_at = f"$half-check/{self.group}"
        self._senders: dict[str | None, Any] = {}

    def sender(self, address: str | None) -> Any:
        if address not in self._senders:
            self._senders[address] = self.client.connection.create_sender(address)
        return self._senders[address]

    def answer(self, address: str | None, message: Message) -> tuple[str, Any]:
        """accepted, or the condition with which the message was rejected; and that error."""
        delivery = self.sender(address).link.send(message)
        self.client.connection.wait(lambda: delivery.settled, timeout=TIMEOUT_S, msg="no outcome")
        state, error = delivery.remote_state, delivery.remote.condition
        delivery.settle()
        if state == Delivery.REJECTED:
            return str(error.name), error
        return (ACCEPTED if state == Delivery.ACCEPTED else str(state)), None

    def tell(self, address: str | None, message: Message) -> str:
        return self.answer(address, message)[0]

    def put(self, message: Message) -> str:
        return self.tell(self.put_to, message)

    def prepared(self, message_id: Any, body: Any = "body", **named: Any) -> None:
        expect("put", ACCEPTED, self.put(half(message_id, body, **named)))

    def resolve(self, half_id: Any, subject: str | None) -> str:
        return self.tell(self.resolve_at, resolution(half_id, subject))

    def commit(self, half_id: Any) -> str:
        return self.resolve(half_id, "commit")

    def roll_back(self, half_id: Any) -> str:
        return self.resolve(half_id, "rollback")

    def checker(self, credit: int = 10, way: str = "", options: Any = None) -> Receiver:
        """A link on which the broker asks."""
        return Receiver(self.client, self.check_at + way, credit, options)

    def queued(self) -> list[Any]:
        """What the queue has now."""
        receiver = self.client.receiver(credit=200)
        bodies = [receiver.accept().body for _ in range(receiver.drained())]
        receiver.close()
        return bodies


def halves(name: str) -> Callable[[Check], Check]:
    return check(f"half messages: {name}")


def asked(receiver: Receiver, half_id: Any) -> tuple[Delivery, Message]:
    """The next check, which must be about this one."""
    delivery, message = receiver.receive()
    expect("correlation-id", half_id, message.correlation_id)
    expect("subject", "check", message.subject)
    return delivery, message


def asked_about(receiver: Receiver, *half_ids: Any) -> list[tuple[Delivery, Message]]:
    """The next checks, one for each of these; what is due in the same millisecond has no order."""
    found = {}
    for _ in half_ids:
        delivery, message = receiver.receive()
        found[typed(message.correlation_id)] = delivery, message
    expect("correlation-ids", sorted(map(typed, half_ids)), sorted(found))
    return [found[typed(half_id)] for half_id in half_ids]


def typed(value: Any) -> str:
    """7 and "7" are ids of two half messages. proton hands out int for ulong, and binary as a view."""
    if isinstance(value, memoryview):
        return repr(bytes(value))
    return repr(int(value) if isinstance(value, ulong) else value)
