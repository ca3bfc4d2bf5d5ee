"""What a queue is, in plain Python: the reference that the real broker is held against.

The model follows the broker from one moment of rest to the next. It does not say which consumer gets a
message (competing consumers are served as the broker likes), but that it goes to one consumer only, in its
place, with its header, and at once if somebody has credit.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from tests.promises.messages import Place, Whereabouts

VOLATILE_OVERHEAD_BYTES: Final = 300


class ModelMessage(Whereabouts):
    """One message and all that a consumer can see of it. It is at one place: nothing here is a "maybe"."""

    def __init__(self, body: bytes, durable: bool, size: int) -> None:
        super().__init__(repr(body[:20]))
        self.body = body
        self.durable = durable
        self.plain_size = size
        self.size = size
        self.acquired_before = False
        self.annotations: dict[str, object] = {}
        self.excluded: set[Hashable] = set()

    @property
    def available(self) -> bool:
        """Whether anybody may have it."""
        return self.is_only(Place.AVAILABLE)

    def give_back(self) -> None:
        """It is available again, in its old place."""
        super().give_back()
        self.acquired_before = True


class ModelQueue:
    """The messages of one queue in their order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.messages: dict[bytes, ModelMessage] = {}  # in the order of the queue
        self.restarted = False

    # What happens

    def post(self, message: ModelMessage) -> None:
        """The message is behind all others."""
        assert message.body not in self.messages
        message.post()
        self.messages[message.body] = message

    def deliver(self, body: bytes, holder: Hashable, settled: bool) -> ModelMessage:
        """A consumer got a message: it must have been there, free, and not refused by this consumer."""
        message = self.messages.get(body)
        assert message is not None, f"{self.name}: {body[:20]!r} was never posted, or is gone"
        assert holder not in message.excluded, f"{self.name}: {message!r} is undeliverable at {holder!r}"
        wrong = message.received(holder)
        assert not wrong, f"{self.name}: {wrong}"
        if settled:
            self.remove(message)
        return message

    def remove(self, message: ModelMessage) -> None:
        """It left the queue for good."""
        message.remove()
        self.messages.pop(message.body)

    def restart(self) -> None:
        """The broker starts again: volatile messages are gone, all others may have been acquired (3.2.1)."""
        self.restarted = True
        for message in list(self.messages.values()):
            if not message.durable:
                self.remove(message)
                continue
            message.give_back()
            message.excluded.clear()

    # What must hold

    def free(self) -> list[ModelMessage]:
        """What could be delivered, in order."""
        return [each for each in self.messages.values() if each.available]

    def wanted_by(self, holder: Hashable) -> list[ModelMessage]:
        """What a consumer with credit should have by now."""
        return [each for each in self.free() if holder not in each.excluded]

    def check_counts(self, messages: int, size: int, volatile: int) -> None:
        """The broker's own counters."""
        every = list(self.messages.values())
        assert messages == len(every), f"{self.name}: {messages} messages, not {every!r}"
        plain = self.restarted  # after a restart annotations count once their message was read
        low = sum(each.plain_size if plain else each.size for each in every)
        high = sum(each.size for each in every)
        assert low <= size <= high, f"{self.name}: {size} bytes, expected {low} to {high}"
        expected = sum(each.size + VOLATILE_OVERHEAD_BYTES for each in every if not each.durable)
        assert volatile == expected, f"{self.name}: {volatile} volatile bytes, expected {expected}"
