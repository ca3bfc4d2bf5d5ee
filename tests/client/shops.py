"""A broker whose half messages are asked about at once, and what its administrator sees."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from amqp_broker.broker import Broker
from amqp_broker.client.halves import Half, Resolution
from amqp_broker.configuration import HalfGroupConfig
from amqp_broker.embedding import RunningBroker, memory_config, running_broker
from amqp_broker.halves.administration import HalfMessage
from amqp_broker.testing import ScriptedFaults
from amqp_broker.testing.blocking_peer import PATIENCE_S

WAIT_S: Final = PATIENCE_S
GROUP: Final = "shop"
PATIENT: Final = "patient"
QUEUE: Final = "shipments"
GROUPS: Final = (
    HalfGroupConfig(name=GROUP, first_check_ms=1, retry_ms=1, retry_max_ms=1, max_attempts=62),
    HalfGroupConfig(name=PATIENT),
)


@contextmanager
def shop_broker(faults: ScriptedFaults | None = None) -> Iterator[RunningBroker]:
    """In memory. The group `shop` is asked after 1 ms, again and again; `patient` in 6 s."""
    with running_broker(memory_config(half_groups=GROUPS), faults=faults) as broker:
        yield broker


def halves(broker: RunningBroker, group: str = PATIENT) -> dict[Any, HalfMessage]:
    """What an administrator sees, by half-id."""

    async def there(running: Broker) -> list[HalfMessage]:
        return await running.half_messages.messages(group)

    return {found.half_id: found for found in broker.call(there)}


def half_body(broker: RunningBroker, group: str, half_id: Any) -> bytes:
    """What is stored of one."""

    async def there(running: Broker) -> bytes | None:
        return await running.half_messages.body(group, half_id)

    found = broker.call(there)
    assert isinstance(found, bytes)
    return found


class Table:
    """A checker with prepared answers; the last one is given again and again. An exception is raised."""

    def __init__(self, *answers: Resolution | Exception | object) -> None:
        self.answers = list(answers)
        self.asked: queue.Queue[Half] = queue.Queue()
        self.errors: queue.Queue[tuple[Half | None, Exception]] = queue.Queue()

    def check(self, half: Half) -> Resolution:
        """For blocking producers."""
        self.asked.put(half)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[return-value]

    async def check_in_turn(self, half: Half) -> Resolution:
        """For asynchronous ones."""
        return self.check(half)

    def failed(self, half: Half | None, error: Exception) -> None:
        """Hears what went wrong."""
        self.errors.put((half, error))

    def next(self) -> Half:
        """The next half message that is asked about."""
        return self.asked.get(timeout=WAIT_S)


class Gate:
    """A checker that waits until it is told what to answer."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.leave = threading.Event()

    def check(self, half: Half) -> Resolution:
        """Commits, late."""
        self.entered.set()
        assert self.leave.wait(WAIT_S)
        return Resolution.COMMIT
