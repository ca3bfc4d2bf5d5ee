"""What has to hold whenever nothing moves, and what the state machine knows."""

from __future__ import annotations

import tempfile
from typing import Final

from hypothesis.stateful import RuleBasedStateMachine

from amqp_broker.broker import Broker
from amqp_broker.embedding import RunningBroker
from amqp_broker.frames import Message, Released
from amqp_broker.testing import ScriptedFaults
from tests.model.clients import Client, Receiver, Sender
from tests.model.reference import AVAILABLE, ModelMessage, ModelQueue
from tests.support.broker_clients import settle_down

QUEUES: Final = ("red", "blue")
MAX_MESSAGES: Final = 60


class AtRest(RuleBasedStateMachine):
    """The state, without rules, and all checks of it."""

    def __init__(self) -> None:
        super().__init__()
        self.directory: tempfile.TemporaryDirectory[str] | None = None
        self.faults = ScriptedFaults()
        self.clients: list[Client] = []
        self.clients_made = 0
        self.queues = {name: ModelQueue(name) for name in QUEUES}
        self.bodies_made = 0
        self.calm = 0  # moments of rest since something was torn down
        self.broker: RunningBroker | None = None

    def rare(self, often: int = 1) -> bool:
        """Whether what tears down may happen now: mostly there are messages about, and links to move them.

        Asked inside the rules, not as their precondition: timing may differ, and what is drawn may not.
        """
        return self.calm >= 12 // often

    @property
    def running(self) -> RunningBroker:
        """The broker, which is started."""
        assert self.broker is not None
        return self.broker

    # Helpers

    def _senders(self) -> list[Sender]:
        return [each for client in self.clients for each in client.senders]

    def _receivers(self) -> list[Receiver]:
        return [each for client in self.clients for each in client.receivers]

    def _sender(self, who: int) -> Sender | None:
        senders = self._senders()
        return senders[who % len(senders)] if senders else None

    # At rest

    def _rest(self, *, in_order: bool = True) -> None:
        """Wait until nothing moves, take over what was delivered, and check everything."""
        self.calm += 1
        settle_down(self.running, *[client.session for client in self.clients])
        delivered: dict[str, list[ModelMessage]] = {name: [] for name in QUEUES}
        for receiver in self._receivers():
            if receiver.browser:
                self._look(receiver)
        for receiver in self._receivers():
            if not receiver.browser:
                delivered[receiver.queue] += self._take(receiver)
        for receiver in self._receivers():
            if receiver.browser:
                self._cross_out(receiver)
        for name, queue in self.queues.items():
            if in_order:
                queue.check_order(delivered[name])
            self._check_served(queue)
            self._check_counts(queue)
        links = sum(client.links() for client in self.clients)
        held = self.running.call(lambda broker: len(broker.nodes.link_names._attached))
        assert held == links, f"{held} link names for {links} links"

    def _take(self, receiver: Receiver) -> list[ModelMessage]:
        """What a consumer got."""
        assert receiver.link.credit >= 0, f"{receiver!r} got more than its credit"
        queue = self.queues[receiver.queue]
        order = {body: place for place, body in enumerate(queue.messages)}
        fresh = []
        last = -1
        while receiver.link.deliveries:
            arrived = receiver.link.deliveries.popleft()
            body = _body(arrived.payload)
            message = queue.deliver(body, receiver, receiver.settled)
            in_place = not (message.acquired_before or message.acquired_unknown)
            self._check_header(message, arrived.payload)
            if in_place:
                assert order[body] > last, f"{message!r} came after one that stands behind it"
                last = order[body]
            assert arrived.settled == receiver.settled
            if not receiver.settled:
                receiver.held.append((arrived, message))
            fresh.append(message)
        return fresh

    def _look(self, browser: Receiver) -> None:
        """What a browser saw: there, free, once."""
        assert browser.link.credit >= 0, f"{browser!r} got more than its credit"
        queue = self.queues[browser.queue]
        while browser.link.deliveries:
            arrived = browser.link.deliveries.popleft()
            body = _body(arrived.payload)
            message = queue.messages.get(body)
            assert message is not None and body not in browser.seen, f"a browser saw {body[:20]!r}"
            assert message.state == AVAILABLE, f"a browser saw {message!r}"
            browser.seen.add(body)
            browser.owed.pop(body, None)
            if not arrived.settled:
                browser.link.settle([arrived], Released())

    def _cross_out(self, browser: Receiver) -> None:
        """What a browser need not be shown: held when it went by, or gone. Nothing free was passed over."""
        places = {body: place for place, body in enumerate(self.queues[browser.queue].messages)}
        last = max((places[body] for body in browser.seen if body in places), default=-1)
        for message in list(browser.owed.values()):
            free = message.state == AVAILABLE and not message.maybe
            passed = places.get(message.body, -1) < last
            if free and passed:
                assert message.acquired_before, f"{browser!r} passed over {message!r}"
            if passed or not free:
                del browser.owed[message.body]

    def _check_header(self, message: ModelMessage, payload: bytes) -> None:
        seen = Message(payload)
        header = seen.header
        assert bool(header.durable) == message.durable
        more = (header.delivery_count or 0) - message.delivery_count
        assert 0 <= more <= message.more_tries, f"delivery-count of {message!r}: {more} more than known"
        message.delivery_count += more
        message.more_tries = 0
        first = bool(header.first_acquirer)
        assert message.acquired_unknown or first == (not message.acquired_before), f"first of {message!r}"
        message.acquired_unknown = False
        annotations = {key.value: each for key, each in (seen.message_annotations or {}).items()}
        assert annotations == message.annotations, f"annotations of {message!r}"

    def _check_served(self, queue: ModelQueue) -> None:
        """Nobody waits with credit for what is there, and senders have credit while there is room."""
        for receiver in self._receivers():
            if receiver.queue != queue.name or receiver.link.credit <= 0:
                continue
            if receiver.browser:
                assert not receiver.owed, f"{receiver!r} was not shown {receiver.owed!r}"
            else:
                assert not queue.wanted_by(receiver), f"{receiver!r} waits for {queue.wanted_by(receiver)!r}"
        senders = [each for each in self._senders() if each.queue == queue.name]
        if senders and len(queue.messages) <= MAX_MESSAGES * 0.8:
            assert sum([each.link.credit for each in senders]) > 0, f"nobody has credit for {queue.name}"

    def _check_counts(self, queue: ModelQueue) -> None:
        def there(broker: Broker) -> tuple[int, int, int] | None:
            real = broker.nodes.queues._queues.get(queue.name)
            if real is None:
                return None
            return real.message_count, real.byte_count, real._volatile_bytes

        found = self.running.call(there)
        if found is None:
            assert not queue.messages
        else:
            queue.check_counts(*found)


def _body(payload: bytes) -> bytes:
    return bytes(Message(payload).body_sections()[0].value)
