"""The state machine: random clients against the real broker, checked at every moment of rest."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from amqp_broker.broker import Broker
from amqp_broker.configuration import BrokerConfig, BrokerLimits, QueuePolicy
from amqp_broker.embedding import RunningBroker
from amqp_broker.frames import (
    Accepted,
    Header,
    Modified,
    Rejected,
    Released,
    Symbol,
    encode_message,
    encode_section,
)
from amqp_broker.persistence import StoreFailed
from amqp_broker.testing import memory_config
from amqp_broker.testing.blocking_peer import ConnectionLost
from amqp_broker.testing.peer import PeerError
from tests.model.at_rest import MAX_MESSAGES, QUEUES, AtRest
from tests.model.clients import Client, Receiver, Sender
from tests.model.reference import ModelMessage
from tests.support.broker_clients import at_rest

LINK_CREDIT: Final = 8
CLIENTS: Final = 3
SIZES: Final = (1, 1, 1, 200, 30_000, 90_000)
LIMITS: Final = BrokerLimits(
    queue_window_messages=16, queue_window_bytes=65_536, link_credit=LINK_CREDIT, stop_grace_ms=0
)
index = st.integers(0, 99)


def outcome_of(kind: int) -> Accepted | Rejected | Released | Modified:
    """One of the outcomes, small numbers first."""
    kinds: list[Accepted | Rejected | Released | Modified] = [
        Accepted(),
        Rejected(),
        Released(),
        Modified(delivery_failed=True),
        Modified(undeliverable_here=True),
        Modified(message_annotations={"x-opt-n": str(kind)}),
        Modified(delivery_failed=True, undeliverable_here=True, message_annotations={"x-opt-m": "m" * 20}),
    ]
    return kinds[kind % 7]


class BrokerMachine(AtRest):
    """Clients come and go, send, receive and settle; the broker restarts; the model says what must hold."""

    # The broker

    @initialize(on_disk=st.booleans())
    def start(self, on_disk: bool) -> None:
        """A broker in memory, or on a real store in a directory of its own."""
        if on_disk:
            self.directory = tempfile.TemporaryDirectory(prefix="amqp-broker-model-")
        self._start_broker()
        self._connect()

    def _start_broker(self) -> None:
        policy = QueuePolicy(pattern="**", max_messages=MAX_MESSAGES)
        listeners = memory_config().listeners
        if self.directory is None:
            config = memory_config(limits=LIMITS, queue_policies=(policy,))
        else:
            config = BrokerConfig(
                data_dir=str(Path(self.directory.name) / "data"),
                listeners=listeners,
                limits=LIMITS,
                queue_policies=(policy,),
            )
        self.broker = RunningBroker(config, self.faults)
        self.broker._wait_until_ready()

    def teardown(self) -> None:
        """Drain every queue, hold it against the model, and stop."""
        try:
            if self.broker is not None and self.broker.alive:
                self._drain_all()
        finally:
            for client in self.clients:
                client.connection.abort()
            if self.broker is not None:
                self.broker.stop()
            if self.directory is not None:
                self.directory.cleanup()

    def _drain_all(self) -> None:
        for name in QUEUES:
            client = self._connect()
            receiver = client.attach_receiver(name, settled=False, browser=False)
            while True:
                receiver.link.flow(50)
                self._rest()
                if not receiver.held:
                    break
                receiver.link.settle([arrived for arrived, _ in receiver.held], Accepted())
                for _, message in receiver.held:
                    self.queues[name].remove(message)
                receiver.held.clear()
            self.queues[name].nothing_more()
            self._rest()

    @precondition(lambda self: self.directory is not None)
    @rule()
    def restart(self) -> None:
        """A clean stop and a start on the same data."""
        if not self.rare():
            return
        self.running.stop()
        self._all_cut()
        self._restarted()

    def _restarted(self) -> None:
        for queue in self.queues.values():
            queue.restart()
        self._start_broker()
        self._connect()
        self._rest()

    @precondition(lambda self: self.directory is not None)
    @rule(who=index, count=st.integers(1, 4), happened=st.booleans())
    def crash_while_posting(self, who: int, count: int, happened: bool) -> None:
        """The commit of a posting fails, nobody knows whether it happened, and the broker ends."""
        sender = self._sender(who)
        if not self.rare() or sender is None or not sender.link.may_send:
            return
        self.faults.fail_commit(1, happened=happened)
        messages = self._put(sender, count, [True], 0, settled=False)
        self._lose(messages)
        self._wait_for_the_end(sender)
        self._all_cut()
        self._restarted()

    def _wait_for_the_end(self, sender: Sender) -> None:
        try:
            while True:
                sender.link.session.connection.pump(20)
        except (ConnectionLost, PeerError):
            pass
        try:
            self.running.stop()
        except StoreFailed:
            return
        raise AssertionError("a failed commit did not end the broker")

    # Connections

    @rule()
    def connect(self) -> None:
        """One more client."""
        if len(self.clients) < CLIENTS:
            self._connect()

    def _connect(self) -> Client:
        self.clients_made += 1
        client = Client(self.running, self.clients_made)
        self.clients.append(client)
        for queue in QUEUES:
            client.attach_sender(queue)
        return client

    @rule(who=index, how=st.sampled_from(["close", "cut", "end"]))
    def leave(self, who: int, how: str) -> None:
        """A client closes, ends its session, or its transport breaks."""
        if not self.rare() or not self.clients:
            return
        client = self.clients[who % len(self.clients)]
        if how == "end":
            client.session.end()
            self._links_gone(client)
            client.session = client.connection.begin()
        else:
            if how == "close":
                client.connection.close()
            else:
                client.connection.abort()
            self.clients.remove(client)
            self._links_gone(client, broken=how == "cut")
            self._wait_for_connections()
        self._rest()

    def _links_gone(self, client: Client, *, broken: bool = False) -> None:
        self.calm = 0
        for receiver in client.receivers:
            queue = self.queues[receiver.queue]
            queue.lost_holder(receiver)
            for message in queue.messages.values() if broken else ():
                message.more_tries += 1  # which one it was may depend on what others gave back
        client.receivers.clear()
        client.senders.clear()

    def _all_cut(self, *, broken: bool = False) -> None:
        for client in self.clients:
            client.connection.abort()
            self._links_gone(client, broken=broken)
        self.clients.clear()

    def _wait_for_connections(self) -> None:
        """Until the broker has seen that connections are gone."""
        expected = len(self.clients)

        async def gone(broker: Broker) -> None:
            import trio

            while len(broker._connections) > expected:
                await trio.sleep(0)

        self.running.call(gone)

    @rule(count=st.integers(1, 3), who=index, durable=st.booleans(), after=st.booleans())
    def reset_at_a_commit(self, count: int, who: int, durable: bool, after: bool) -> None:
        """All transports break right before or after a commit: what was under way is there or not."""
        sender = self._sender(who)
        if not self.rare() or sender is None or not sender.link.may_send:
            return
        if after:
            self.faults.reset_after_commit(1)
        else:
            self.faults.reset_before_commit(1)
        messages = self._put(sender, count, [True, durable], 0, settled=False)
        self._lose(messages)
        try:
            while True:
                sender.link.session.connection.pump(20)
        except ConnectionLost:
            pass
        self._all_cut(broken=True)
        self._wait_for_connections()
        self._connect()
        self._rest()

    @rule(who=index, count=st.integers(1, 5), settled=st.booleans())
    def send_and_cut(self, who: int, count: int, settled: bool) -> None:
        """A client whose transport breaks right after it wrote: a first part of its messages is there."""
        sender = self._sender(who)
        if not self.rare() or sender is None or not sender.link.may_send:
            return
        messages = self._put(sender, count, [True, False], 0, settled)
        client = next(each for each in self.clients if sender in each.senders)
        client.connection.flush()
        self._lose(messages)
        client.connection.abort()
        self.clients.remove(client)
        self._links_gone(client, broken=True)
        self._wait_for_connections()
        self._rest()

    def _lose(self, messages: list[ModelMessage]) -> None:
        for message in messages:
            message.maybe = True
            message.acquired_unknown = True  # a consumer whose connection broke, too, may have had it

    # Links

    @rule(who=index, queue=st.sampled_from(QUEUES))
    def attach_sender(self, who: int, queue: str) -> None:
        """A sending link."""
        if self.clients:
            self.clients[who % len(self.clients)].attach_sender(queue)
            self._rest()

    @rule(who=index, queue=st.sampled_from(QUEUES), kind=index, credit=st.sampled_from([0, 1, 7, 30]))
    def attach_receiver(self, who: int, queue: str, kind: int, credit: int) -> None:
        """A consumer, a consumer that is sent settled, or a browser."""
        if not self.clients:
            return
        client = self.clients[who % len(self.clients)]
        receiver = client.attach_receiver(queue, settled=kind % 4 == 1, browser=kind % 4 == 2)
        if receiver.browser:
            receiver.owed = {each.body: each for each in self.queues[queue].free()}
        if credit:
            receiver.link.flow(credit)
        self._rest()

    @rule(who=index, closed=st.booleans(), sending=st.booleans())
    def detach(self, who: int, closed: bool, sending: bool) -> None:
        """A link ends; what it held comes back."""
        links: list[Any] = self._senders() if sending else self._receivers()
        if not self.rare(2) or not links:
            return
        link = links[who % len(links)]
        link.link.detach(closed=closed)
        for client in self.clients:
            if link in client.senders:
                client.senders.remove(link)
            if link in client.receivers:
                client.receivers.remove(link)
                self.queues[link.queue].lost_holder(link)
        self._rest()

    @rule(who=index, credit=st.integers(0, 40), drain=st.booleans())
    def flow(self, who: int, credit: int, drain: bool) -> None:
        """Credit, more or less of it; a drain is answered."""
        receivers = self._receivers()
        if receivers:
            receiver = receivers[who % len(receivers)]
            receiver.link.flow(credit, drain=drain)
            self._rest()
            if drain:
                assert receiver.link.credit == 0, f"the drain of {receiver!r} was not answered"

    # Messages

    @rule(
        who=index,
        count=st.integers(1, 20),
        durable=st.lists(st.booleans(), min_size=1, max_size=5),
        size=st.integers(0, len(SIZES) - 1),
        settled=st.booleans(),
    )
    def send(self, who: int, count: int, durable: list[bool], size: int, settled: bool) -> None:
        """A run of messages, as far as credit goes."""
        sender = self._sender(who)
        if sender is None:
            return
        while count > 0 and sender.link.may_send:
            messages = self._put(sender, min(count, LINK_CREDIT), durable, size, settled)
            self._rest()
            count -= len(messages)
        if not settled:
            assert not sender.link.session.sent_unsettled, "posts without an outcome"
            assert all(type(each) is Accepted for each in sender.link.outcomes.values())
        sender.link.outcomes.clear()

    @rule(who=index, count=st.integers(1, 4))
    def send_to_a_full_disk(self, who: int, count: int) -> None:
        """The disk has no room for a moment: what was not stored is rejected, and nothing else is."""
        sender = self._sender(who)
        if sender is None or not sender.link.may_send:
            return
        self.faults.refuse_commit(1)
        messages = self._put(sender, count, [True], 0, settled=False)
        self._lose(messages)
        self._rest()
        outcomes = list(sender.link.outcomes.values())
        assert len(outcomes) == len(messages)
        for message, outcome in zip(messages, outcomes, strict=True):
            if type(outcome) is Accepted:
                message.maybe = False
            else:
                assert type(outcome) is Rejected, f"{outcome!r} for a post to a full disk"
                assert message.maybe, f"{message!r} was rejected, and delivered"
                self.queues[sender.queue].remove(message)
        sender.link.outcomes.clear()
        self._rest()

    def _put(
        self, sender: Sender, count: int, durable: list[bool], size: int, settled: bool
    ) -> list[ModelMessage]:
        """Write at most `count` messages, as credit allows, and tell the model."""
        messages = []
        for number in range(count):
            if not sender.link.may_send:
                break
            self.bodies_made += 1
            body = b"%d " % self.bodies_made + b"x" * SIZES[size]
            persistent = durable[number % len(durable)]
            sender.link.send(encode_message(header=Header(durable=persistent), body=body), settled=settled)
            message = ModelMessage(body, persistent, len(encode_message(body=body)))
            self.queues[sender.queue].post(message)
            for receiver in self._receivers():
                if receiver.browser and receiver.queue == sender.queue:
                    receiver.owed[body] = message
            messages.append(message)
        return messages

    @rule(
        who=index, first=index, count=st.integers(1, 12), kind=index, settled=st.booleans(),
        backwards=st.booleans(), full=st.booleans(),
    )  # fmt: skip
    def settle(
        self, who: int, first: int, count: int, kind: int, settled: bool, backwards: bool, full: bool
    ) -> None:
        """An outcome for some of what a consumer holds: a range, in order or not, settled or not."""
        self._settle(who, first, count, kind, settled, backwards, full)

    @rule(
        who=index,
        queue=st.sampled_from(QUEUES),
        count=st.integers(1, 12),
        kind=index,
        credit=st.sampled_from([2, 9, 30]),
    )
    def settle_and_go_on(self, who: int, queue: str, count: int, kind: int, credit: int) -> None:
        """What most consumers do: settle the oldest, and give credit again."""
        if not any(each.queue == queue and not (each.browser or each.settled) for each in self._receivers()):
            self.attach_receiver(who, queue, 0, credit)
        self._settle(who, 0, count, kind, True, False, False)
        self.flow(who, credit, False)

    def _settle(
        self, who: int, first: int, count: int, kind: int, settled: bool, backwards: bool, full: bool
    ) -> None:
        receivers = [each for each in self._receivers() if each.held]
        if not receivers:
            return
        receiver = receivers[who % len(receivers)]
        start = first % len(receiver.held)
        chosen = receiver.held[start : start + count]
        del receiver.held[start : start + count]
        if backwards:
            chosen.reverse()
        places = {body: place for place, body in enumerate(self.queues[receiver.queue].messages)}
        given_back = [places[message.body] for _, message in chosen if message.body in places]
        state = outcome_of(kind)
        if full:
            self.faults.refuse_commit(1)
        receiver.link.confirmed.clear()
        receiver.link.settle([arrived for arrived, _ in chosen], state, settled=settled)
        for _, message in chosen:
            self._apply(receiver, message, state)
        if full:  # so that the refusal does not wait for somebody else's commit
            at_rest(self.running)
        # The first disposition of several may already serve somebody else.
        self._rest(in_order=given_back == sorted(given_back))
        self.faults._commit_errors.clear()
        if not settled:
            expected = sorted(arrived.delivery_id for arrived, _ in chosen)
            assert sorted(receiver.link.confirmed) == expected, "outcomes that were not settled"

    def _apply(self, receiver: Receiver, message: ModelMessage, state: object) -> None:
        queue = self.queues[receiver.queue]
        if isinstance(state, (Accepted, Rejected)):
            queue.remove(message)
            return
        if isinstance(state, Modified):
            if state.delivery_failed:
                message.delivery_count += 1
            if state.undeliverable_here:
                message.excluded.add(receiver)
            if state.message_annotations:
                message.annotations |= state.message_annotations
                section = encode_section(
                    "message-annotations", {Symbol(key): each for key, each in message.annotations.items()}
                )
                message.size = message.plain_size + len(section)
        queue.give_back(message)
