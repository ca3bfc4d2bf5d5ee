"""Consumers that keep messages too long: their link ends, and the messages return (`consumer_timeout_ms` of
a `[[queue]]`).

Nothing is counted for each message. Every fourth part of the time the oldest delivery of each link is looked
at to which the peer has given no outcome: if that is the same for the whole time, it was kept too long. So a
link never ends early, and at the latest when the time was over for half as long again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio

from amqp_broker.configuration import QueuePolicy
from amqp_broker.frames import Error
from amqp_broker.links import OutgoingDelivery
from amqp_broker.log_setup import logger
from amqp_broker.queue import Consumer, Queue
from amqp_broker.timers import Timers

if TYPE_CHECKING:
    from amqp_broker.links import SenderLink

LOOKS: Final = 4
"""How often the consumers of a queue are looked at in the time that they have."""
TIMED_OUT: Final = "amqp:link:detach-forced"


class ConsumerTimeout:
    """The consumers of one queue, and since when each holds its oldest message."""

    def __init__(self, timers: Timers, queue: Queue, timeout_ms: int) -> None:
        self._timers = timers
        self._queue = queue
        self._timeout_ms = timeout_ms
        self._since: dict[Consumer, tuple[OutgoingDelivery, float]] = {}
        self._log = logger("queues")
        self._again()

    def _again(self) -> None:
        self._timers.set(trio.current_time() + self._timeout_ms / 1_000 / LOOKS, self)

    def wake(self) -> None:
        """Look at all of them."""
        queue = self._queue
        if queue.deleted:
            self._since.clear()
            return
        now = trio.current_time()
        oldest = self._oldest()
        since: dict[Consumer, tuple[OutgoingDelivery, float]] = {}
        for consumer in queue.consumers:
            delivery = oldest.get(consumer.link)
            if delivery is None or consumer.browser or consumer.stuck:
                continue
            before = self._since.get(consumer)
            since[consumer] = before if before is not None and before[0] is delivery else (delivery, now)
        self._since = since
        for consumer, (_, at) in since.items():
            if (now - at) * 1_000 >= self._timeout_ms:
                self._end(consumer)
        self._again()

    def _oldest(self) -> dict[SenderLink, OutgoingDelivery]:
        """By link, the first delivery for which the peer has said nothing."""
        found: dict[Any, OutgoingDelivery] = {}
        for session in {consumer.link.session: None for consumer in self._queue.consumers}:
            for delivery in session.unsettled_out.values():
                if delivery.state is None and not delivery.decided:
                    found.setdefault(delivery.link, delivery)
        return found

    def _end(self, consumer: Consumer) -> None:
        consumer.stuck = True
        name = self._queue.name
        self._log.warning("consumer.timed_out", queue=name, container=consumer.container_id)
        description = (
            f"a message of queue {name!r} was kept without an outcome for more than {self._timeout_ms} ms "
            f"(consumer_timeout_ms, of its [[queue]])"
        )
        consumer.end(Error(condition=TIMED_OUT, description=description))


def fill(timers: Timers, queue: Queue, policy: QueuePolicy) -> None:
    """A queue was made: its consumers have so much time, if its policy says so."""
    if policy.consumer_timeout_ms:
        ConsumerTimeout(timers, queue, policy.consumer_timeout_ms)
