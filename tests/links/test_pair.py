"""Two engines back to back under random use: what holds whatever is done and however bytes are cut."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.frames import Accepted, Released
from amqp_broker.links import (
    ConnectionClosed,
    DeliveriesReceived,
    DeliveriesSettled,
    Delivery,
    Limits,
    OutcomesReceived,
    OutgoingDelivery,
    ReceiverLink,
    SenderLink,
)
from tests.links.pair import Message, Pair, of_type, taken
from tests.support.examples import examples

NEAR_THE_TURN = 2**32 - 5

actions = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 1), st.integers(1, 12)),
        st.tuples(st.just("large"), st.integers(0, 1), st.integers(500, 3_000)),
        st.tuples(st.just("settle"), st.integers(0, 1), st.integers(1, 12)),
        st.tuples(st.just("process"), st.integers(0, 1), st.integers(1, 12)),
        st.tuples(st.just("credit"), st.integers(0, 1), st.integers(0, 12)),
        st.tuples(st.just("carry"), st.integers(1, 400), st.integers(1, 400)),
        st.tuples(st.just("answer"), st.integers(0, 1), st.just(0)),
    ),
    min_size=5,
    max_size=60,
)


class Run:
    """A client that sends on two links of one session to a server, and a model of what must hold."""

    def __init__(self, second: bool, start: int) -> None:
        limits = Limits(unsettled_per_link=8, unsettled_per_session=12)
        fields: dict[str, Any] = {
            "limits": limits,
            "next_outgoing_id": start,
            "initial_delivery_count": start,
        }
        self.pair = Pair({**fields, "max_frame_size": 512}, {**fields, "max_frame_size": 512})
        self.pair.credit = 6
        self.pair.open()
        session, _ = self.pair.begin()
        links = [self.pair.sending_client(session, name, rcv_settle_mode=int(second)) for name in ("a", "b")]
        self.senders: list[SenderLink] = [sender for sender, _ in links]
        self.receivers: list[ReceiverLink] = [receiver for _, receiver in links]
        self.sent: list[list[bytes]] = [[], []]
        self.received: list[list[Delivery]] = [[], []]
        self.open: list[list[Delivery]] = [[], []]
        self.unprocessed = [0, 0]
        self.outcomes: list[list[OutgoingDelivery]] = [[], []]
        self.answers: list[tuple[SenderLink, list[OutgoingDelivery], object]] = []
        self.up = self.down = b""
        self.number = 0
        self.pair.server_events.clear()
        self.pair.client_events.clear()

    def do(self, action: str, which: int, amount: int) -> None:
        """One action."""
        if action in ("send", "large"):
            size = 5 if action == "send" else amount
            count = amount if action == "send" else 1
            messages = []
            for _ in range(count):
                self.number += 1
                messages.append(Message(self.number.to_bytes(4, "big") * size, b"h"))
            took = self.senders[which].send(messages)
            self.sent[which].extend(b"h" + message.body for message in messages[:took])
        elif action == "settle":
            some = self.open[which][:amount]
            self.open[which] = self.open[which][amount:]
            self.receivers[which].settle(some, Accepted() if amount % 2 else Released())
        elif action == "process":
            count = min(amount, self.unprocessed[which])
            self.unprocessed[which] -= count
            self.receivers[which].processed(count)
        elif action == "credit":
            self.receivers[which].set_credit(amount)
        elif action == "answer":
            for link, deliveries, state in self.answers:
                link.settle(deliveries, state)
            self.answers.clear()
        else:
            self.carry(which, amount)

    def carry(self, up: int, down: int) -> None:
        """Moves some bytes in each direction."""
        self.up += taken(self.pair.client)
        self.pair.give(self.pair.server, self.up[:up])
        self.up = self.up[up:]
        self.down += taken(self.pair.server)
        self.pair.give(self.pair.client, self.down[:down])
        self.down = self.down[down:]
        self.look()

    def look(self) -> None:
        """Takes the events and checks the promises."""
        for event in self.pair.server_events:
            assert not isinstance(event, ConnectionClosed)
            if isinstance(event, DeliveriesReceived):
                which = self.receivers.index(event.link)
                self.received[which].extend(event.deliveries)
                self.open[which].extend(event.deliveries)
                self.unprocessed[which] += len(event.deliveries)
        for event in self.pair.client_events:
            if isinstance(event, OutcomesReceived):
                self.outcomes[self.senders.index(event.link)].extend(event.deliveries)
                if not event.settled:
                    self.answers.append((event.link, event.deliveries, event.state))
        assert not of_type(self.pair.client_events, DeliveriesSettled)
        self.pair.server_events.clear()
        self.pair.client_events.clear()
        self.check()

    def check(self) -> None:
        """Windows, credit and limits."""
        for sender, receiver in zip(self.senders, self.receivers, strict=True):
            assert sender.attached and receiver.attached
            assert sender.credit >= 0 and receiver.flow_state.unprocessed >= 0
            assert 0 <= receiver.flow_state.unsettled <= 8
            assert receiver.credit + receiver.flow_state.unprocessed <= 12
            assert sender.flow_state.delivery_count + sender.credit <= receiver.flow_state.allowed
            assert sender.unsettled_count <= 8
        mine, theirs = self.senders[0].session, self.receivers[0].session
        assert theirs.window.incoming_window >= 0
        assert len(mine.unsettled_out) == sum(sender.unsettled_count for sender in self.senders) <= 12
        assert theirs.unsettled_in.count == sum(receiver.flow_state.unsettled for receiver in self.receivers)
        assert theirs.held == sum(receiver.flow_state.unprocessed for receiver in self.receivers)

    def finish(self) -> None:
        """Everything is carried, settled and answered: what was sent has arrived, in order, once."""
        for _ in range(200):
            self.carry(10**9, 10**9)
            for which in (0, 1):
                self.do("settle", which, 99)
                self.do("process", which, 99)
                self.receivers[which].set_credit(6)
            self.do("answer", 0, 0)
        for which in (0, 1):
            assert [delivery.payload for delivery in self.received[which]] == self.sent[which]
            assert len(self.outcomes[which]) == len(self.sent[which])
            assert not self.senders[which].unsettled_count
        assert self.pair.server.settings.partial_bytes.used_bytes == 0
        assert self.receivers[0].session.unsettled_in.count == 0


@examples(120)
@given(actions, st.booleans(), st.sampled_from([0, NEAR_THE_TURN]))
def test_windows_credit_and_limits_hold(script: list[tuple[str, int, int]], second: bool, start: int) -> None:
    """Two engines never break each other's limits, and everything arrives once and in order."""
    run = Run(second, start)
    for step in script:
        run.do(*step)
        run.check()
    run.finish()


def test_a_settled_stream_across_the_turn() -> None:
    """Ids and counts of pre-settled traffic wrap at 2^32 while the run goes on."""
    fields = {"next_outgoing_id": 2**32 - 700, "initial_delivery_count": 2**32 - 300}
    pair = Pair(fields, fields)
    pair.open()
    session, _ = pair.begin()
    sender, receiver = pair.sending_client(session, snd_settle_mode=1)
    count = 0
    while count < 1_500:
        count += sender.send([Message(b"%d" % (count + index)) for index in range(50)])
        pair.flush()
        receiver.processed(50)
        pair.flush()
    payloads = [
        item.payload for event in of_type(pair.server_events, DeliveriesReceived) for item in event.deliveries
    ]
    assert payloads == [b"%d" % index for index in range(count)]
    assert not session.unsettled_out
