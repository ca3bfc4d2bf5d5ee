"""Queues as clients see them: a real broker, real sockets, a client that knows only the codec."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from amqp_broker.configuration import STRICT, BrokerConfig, BrokerLimits, QueuePolicy
from amqp_broker.frames import (
    Accepted,
    Error,
    Header,
    Message,
    Modified,
    Properties,
    Rejected,
    Released,
    Source,
    Symbol,
    encode_message,
)
from amqp_broker.testing import RunningBroker, ScriptedFaults, memory_config, running_broker
from amqp_broker.testing.peer import PeerError, PeerReceiver
from tests.support.broker_clients import bodies, browse, receive, send, session_to

SHORT_S = 0.15  # how long something that must not come is waited for


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker() as running:
        yield running


def nothing_comes(receiver: PeerReceiver) -> bool:
    while receiver.session.connection.pump(SHORT_S):
        pass
    return not receiver.deliveries


def test_first_in_first_out_and_accepted(broker: RunningBroker) -> None:
    """Messages are delivered in the order of the producer's link, and the sender is told accepted (2.2.2)."""
    with session_to(broker) as session:
        sender = session.attach_sender("s", "fifo")
        numbers = send(sender, b"1", b"2", b"3", durable=True)
        assert [type(sender.outcomes[number]) for number in numbers] == [Accepted] * 3
        receiver = session.attach_receiver("r", "fifo", credit=10)
        got = receive(receiver, 3)
        assert bodies(got) == [b"1", b"2", b"3"]
        receiver.settle(got, Accepted())
        assert nothing_comes(receiver)


def test_volatile_messages_do_not_overtake_durable_ones(broker: RunningBroker) -> None:
    """A message that needs no disk waits for those before it that do."""
    with session_to(broker) as session:
        sender = session.attach_sender("s", "mixed")
        connection = session.connection
        connection.pump_until(lambda: sender.credit >= 6)
        for index in range(6):
            sender.send(
                encode_message(header=Header(durable=index % 2 == 0), body=b"%d" % index), settled=False
            )
        receiver = session.attach_receiver("r", "mixed", credit=10)
        assert bodies(receive(receiver, 6)) == [b"%d" % index for index in range(6)]


def test_a_durable_message_is_accepted_only_after_its_commit() -> None:
    """Law 4: while the commit is held there is no outcome, and no consumer sees the message."""
    faults = ScriptedFaults()
    with running_broker(faults=faults) as broker, session_to(broker) as session:
        sender = session.attach_sender("s", "held")
        receiver = session.attach_receiver("r", "held", credit=10)
        session.connection.pump_until(lambda: sender.may_send)
        with faults.held_commits():
            number = sender.send(encode_message(header=Header(durable=True), body=b"x"))
            assert nothing_comes(receiver)
            assert number not in sender.outcomes
        session.connection.pump_until(lambda: number in sender.outcomes and receiver.deliveries)


def test_released_comes_back_unchanged_and_not_as_first_acquirer(broker: RunningBroker) -> None:
    """released: the delivery-count stays, first-acquirer is no longer true (3.4.4, 3.2.1)."""
    with session_to(broker) as session:
        send(session.attach_sender("s", "released"), b"x", durable=True)
        receiver = session.attach_receiver("r", "released", credit=5)
        first = receive(receiver, 1)
        assert Message(first[0].payload).header.first_acquirer is True
        receiver.settle(first, Released())
        header = Message(receive(receiver, 1)[0].payload).header
        assert (header.delivery_count or 0, bool(header.first_acquirer), header.durable) == (0, False, True)


def test_modified_counts_and_annotates(broker: RunningBroker) -> None:
    """modified: delivery-failed counts, message-annotations are merged, the bare message stays (3.4.5)."""
    with session_to(broker) as session:
        send(session.attach_sender("s", "modified"), b"x", durable=True)
        receiver = session.attach_receiver("r", "modified", credit=5)
        first = receive(receiver, 1)
        receiver.settle(first, Modified(delivery_failed=True, message_annotations={"x-opt-why": "later"}))
        again = Message(receive(receiver, 1)[0].payload)
        assert again.header.delivery_count == 1
        assert again.message_annotations == {Symbol("x-opt-why"): "later"}
        assert again.bare == Message(first[0].payload).bare


def test_undeliverable_here_goes_to_another_link(broker: RunningBroker) -> None:
    """modified with undeliverable-here: not to this link again, but to others (3.4.5)."""
    with session_to(broker) as session:
        send(session.attach_sender("s", "elsewhere"), b"x")
        first = session.attach_receiver("first", "elsewhere", credit=5)
        first.settle(receive(first, 1), Modified(undeliverable_here=True))
        assert nothing_comes(first)
        second = session.attach_receiver("second", "elsewhere", credit=5)
        assert bodies(receive(second, 1)) == [b"x"]


def test_rejected_leaves_the_queue(broker: RunningBroker) -> None:
    """rejected: the message is not delivered again (3.4.3)."""
    with session_to(broker) as session:
        send(session.attach_sender("s", "rejected"), b"x")
        receiver = session.attach_receiver("r", "rejected", credit=5)
        receiver.settle(receive(receiver, 1), Rejected(error=Error(condition="test:no", description="no")))
        receiver.detach()
        assert nothing_comes(session.attach_receiver("again", "rejected", credit=5))


@pytest.mark.parametrize("how", ["link", "session", "connection", "transport"])
def test_what_was_unsettled_returns_to_its_place(broker: RunningBroker, how: str) -> None:
    """When a consumer goes, what it held is delivered again, in the old order, before what stood behind
    it.
    """
    address = f"returned-{how}"
    with session_to(broker) as session:
        send(session.attach_sender("s", address), b"1", b"2", b"3", durable=True)
    with session_to(broker) as session:
        receiver = session.attach_receiver("r", address, credit=2)
        receive(receiver, 2)
        if how == "link":
            receiver.detach()
        elif how == "session":
            session.end()
        elif how == "connection":
            session.connection.close()
    with session_to(broker) as session:
        receiver = session.attach_receiver("r", address, credit=3)
        assert bodies(receive(receiver, 3)) == [b"1", b"2", b"3"]


def test_an_outcome_is_not_lost_when_the_link_goes_at_once(broker: RunningBroker) -> None:
    """A settled accept followed by the end of the transport retires the message: it is not delivered
    again.
    """
    with session_to(broker) as session:
        send(session.attach_sender("s", "accepted-and-gone"), b"1", b"2", durable=True)
        receiver = session.attach_receiver("r", "accepted-and-gone", credit=1)
        receiver.settle(receive(receiver, 1), Accepted())
        session.connection.flush()
    with session_to(broker) as session:
        receiver = session.attach_receiver("r", "accepted-and-gone", credit=5)
        assert bodies(receive(receiver, 1)) == [b"2"]
        assert nothing_comes(receiver)


def test_an_unsettled_accept_is_confirmed_after_the_commit(broker: RunningBroker) -> None:
    """A receiver that leaves settling to the broker is told settled (2.6.12)."""
    with session_to(broker) as session:
        send(session.attach_sender("s", "confirm"), b"1", b"2", durable=True)
        receiver = session.attach_receiver("r", "confirm", credit=5)
        got = receive(receiver, 2)
        receiver.settle(got, Accepted(), settled=False)
        session.connection.pump_until(lambda: len(receiver.confirmed) == 2)


def test_competing_consumers_share(broker: RunningBroker) -> None:
    """Each message goes to one of two consumers, and both get some."""
    with session_to(broker) as session:
        first = session.attach_receiver("first", "shared", credit=50)
        second = session.attach_receiver("second", "shared", credit=50)
        send(session.attach_sender("s", "shared"), *(b"%d" % index for index in range(40)))
        session.connection.pump_until(lambda: len(first.deliveries) + len(second.deliveries) == 40)
        assert first.deliveries and second.deliveries
        everything = bodies(list(first.deliveries)) + bodies(list(second.deliveries))
        assert sorted(everything, key=int) == [b"%d" % index for index in range(40)]


def test_drain_uses_up_the_credit(broker: RunningBroker) -> None:
    """With drain the broker sends what it has and gives the rest of the credit back (2.6.7)."""
    with session_to(broker) as session:
        send(session.attach_sender("s", "drained"), b"1", b"2", b"3")
        receiver = session.attach_receiver("r", "drained")
        receiver.drain_all(10)
        assert len(receiver.deliveries) == 3
        assert receiver.delivery_count == 10


def test_drain_of_an_empty_queue_answers_at_once(broker: RunningBroker) -> None:
    """Nothing to send: the credit comes back."""
    with session_to(broker) as session:
        receiver = session.attach_receiver("r", "drained-empty")
        receiver.drain_all(10)
        assert not receiver.deliveries


def source_of(receiver: PeerReceiver) -> Source:
    """The source as the broker answered it."""
    assert receiver.remote_attach is not None and isinstance(receiver.remote_attach.source, Source)
    return receiver.remote_attach.source


def test_browsing_takes_nothing(broker: RunningBroker) -> None:
    """distribution-mode copy shows every message, and consumers still get all of them (3.5.3)."""
    with session_to(broker) as session:
        send(session.attach_sender("s", "browsed"), b"1", b"2")
        browser = browse(session, "b", "browsed")
        assert source_of(browser).distribution_mode == "copy"
        browser.flow(10)
        seen = receive(browser, 2)
        browser.settle(seen, Accepted())
        assert nothing_comes(browser)
        receiver = session.attach_receiver("r", "browsed", credit=5)
        assert bodies(receive(receiver, 2)) == bodies(seen) == [b"1", b"2"]


def test_the_anonymous_terminus_routes_by_to(broker: RunningBroker) -> None:
    """A sender without a target address names the node in each message; one that is gone is rejected."""
    with session_to(broker) as session:
        receiver = session.attach_receiver("r", "relayed", credit=5)
        sender = session.attach_sender("s", None)
        session.connection.pump_until(lambda: sender.may_send)
        good = sender.send(encode_message(properties=Properties(to="relayed"), body=b"x"))
        bad = sender.send(encode_message(properties=Properties(to="temporary.gone"), body=b"x"))
        none = sender.send(encode_message(body=b"x"))
        session.connection.pump_until(lambda: {good, bad, none} <= set(sender.outcomes))
        assert isinstance(sender.outcomes[good], Accepted)
        for number, condition in ((bad, "amqp:not-found"), (none, "amqp:invalid-field")):
            outcome = sender.outcomes[number]
            assert (
                isinstance(outcome, Rejected)
                and outcome.error is not None
                and outcome.error.condition == condition
            )
        assert bodies(receive(receiver, 1)) == [b"x"]


def test_a_dynamic_source_is_a_queue_of_its_own(broker: RunningBroker) -> None:
    """The broker names the node, others can send to it, and it goes with its link (3.5.3, 3.5.10)."""
    with session_to(broker) as session:
        receiver = session.attach_receiver("d", None, source=Source(dynamic=True))
        name = source_of(receiver).address
        assert isinstance(name, str)
        receiver.flow(5)
        answering = session.attach_sender("s", name)
        send(answering, b"reply", durable=True)
        answering.detach()
        got = receive(receiver, 1)
        assert bodies(got) == [b"reply"]
        assert not Message(got[0].payload).header.durable
        receiver.detach()
        sender = session.attach_sender("late", None)
        session.connection.pump_until(lambda: sender.may_send)
        number = sender.send(encode_message(properties=Properties(to=name), body=b"x"))
        session.connection.pump_until(lambda: number in sender.outcomes)
        assert isinstance(sender.outcomes[number], Rejected)


def test_ttl_ends_a_message(broker: RunningBroker) -> None:
    """A message is not delivered after its time to live (2.2.5 of the behaviour paper)."""
    with session_to(broker) as session:
        sender = session.attach_sender("s", "ttl")
        send(sender, b"short", ttl=1)
        send(sender, b"long", ttl=60_000)
        session.connection.pump(0.01)
        receiver = session.attach_receiver("r", "ttl", credit=5)
        got = receive(receiver, 1)
        assert bodies(got) == [b"long"]
        assert 0 < (Message(got[0].payload).header.ttl or 0) <= 60_000


def test_a_strict_broker_refuses_unknown_addresses() -> None:
    """A queue whose policy is strict is amqp:not-found, with a null terminus before the detach (2.6.3)."""
    config = attrs.evolve(memory_config(), queue_policies=(QueuePolicy(pattern="**", create=STRICT),))
    with running_broker(config) as broker, session_to(broker) as session:
        with pytest.raises(PeerError) as caught:
            session.attach_receiver("r", "unknown")
        assert caught.value.error is not None and caught.value.error.condition == "amqp:not-found"
        link = next(iter(session.links.values()))
        assert link.remote_attach is not None and link.remote_attach.source is None


def test_a_full_queue_stops_credit_and_takes_it_up_again() -> None:
    """At max_messages the sender's credit is not renewed; when consumers made room it is."""
    limits = BrokerLimits(link_credit=4)
    config = attrs.evolve(
        memory_config(), limits=limits, queue_policies=(QueuePolicy(pattern="**", max_messages=8),)
    )
    with running_broker(config) as broker, session_to(broker) as session:
        sender = session.attach_sender("s", "small")
        session.connection.pump_until(lambda: sender.may_send)
        sent = 0
        while sender.may_send or session.connection.pump(SHORT_S):
            if sender.may_send:
                sender.send(encode_message(body=b"%d" % sent))
                sent += 1
        assert 8 <= sent <= 12
        receiver = session.attach_receiver("r", "small", credit=100)
        receiver.settle(receive(receiver, sent), Accepted())
        session.connection.pump_until(lambda: sender.may_send)


def test_messages_survive_a_restart(tmp_path: Path) -> None:
    """What was accepted is there after a clean stop, in order, and no longer claims its first acquirer."""
    config = attrs.evolve(memory_config(), memory=False, data_dir=str(tmp_path / "data"))
    with running_broker(config) as broker, session_to(broker) as session:
        send(session.attach_sender("s", "kept"), b"1", b"2", b"3", durable=True)
        send(session.attach_sender("v", "kept"), b"volatile")
        receiver = session.attach_receiver("r", "kept", credit=1)
        receiver.settle(receive(receiver, 1), Accepted(), settled=False)
        session.connection.pump_until(lambda: receiver.confirmed)
    with running_broker(config) as broker, session_to(broker) as session:
        receiver = session.attach_receiver("r", "kept", credit=10)
        got = receive(receiver, 2)
        assert bodies(got) == [b"2", b"3"]
        assert not any(Message(each.payload).header.first_acquirer for each in got)
        assert nothing_comes(receiver)


def test_a_backlog_beyond_the_window_keeps_its_order(tmp_path: Path) -> None:
    """Messages that only the disk holds are read page by page, in order, with volatile ones in their
    places.
    """
    limits = BrokerLimits(queue_window_messages=16)
    config = BrokerConfig(data_dir=str(tmp_path / "data"), listeners=memory_config().listeners, limits=limits)
    with running_broker(config) as broker, session_to(broker) as session:
        sender = session.attach_sender("s", "deep")
        for index in range(300):
            session.connection.pump_until(lambda: sender.may_send)
            sender.send(encode_message(header=Header(durable=index % 7 != 0), body=b"%d" % index))
        session.connection.pump_until(lambda: len(sender.outcomes) == 300)
        receiver = session.attach_receiver("r", "deep", credit=300)
        assert bodies(receive(receiver, 300)) == [b"%d" % index for index in range(300)]


def test_a_message_with_broken_sections_is_rejected(broker: RunningBroker) -> None:
    """A message that misrepresents its sections is rejected, and nothing of it is stored; its session goes
    on, whatever 2.2.1 of the paper says: other people's links may be in it.
    """
    with session_to(broker) as session:
        sender = session.attach_sender("s", "broken")
        session.connection.pump_until(lambda: sender.may_send)
        number = sender.send(b"\x00\x53\x75\xa0\xffshort")
        session.connection.pump_until(lambda: number in sender.outcomes)
        outcome = sender.outcomes[number]
        assert isinstance(outcome, Rejected) and outcome.error is not None
        assert outcome.error.condition == "amqp:decode-error"
        assert nothing_comes(session.attach_receiver("r", "broken", credit=5))


def test_stopping_tells_the_clients() -> None:
    """A clean stop closes every connection with amqp:connection:forced (2.8.16)."""
    with running_broker() as broker, session_to(broker) as session:
        broker.call(lambda inner: inner.stop(1.0))
        with pytest.raises(PeerError) as caught:
            session.connection.pump_until(lambda: False)
        assert caught.value.error is not None and caught.value.error.condition == "amqp:connection:forced"


def test_a_link_is_stolen_by_the_same_container(broker: RunningBroker) -> None:
    """A second attach of the same name from the same container wins, and closes the first link (2.6.1)."""
    with session_to(broker) as old, session_to(broker) as new:
        old.attach_receiver("mine", "stolen", credit=5)
        receiver = new.attach_receiver("mine", "stolen", credit=5)
        with pytest.raises(PeerError) as caught:
            old.connection.pump_until(lambda: False)
        assert caught.value.error is not None and caught.value.error.condition == "amqp:link:stolen"
        send(new.attach_sender("s", "stolen"), b"x")
        assert bodies(receive(receiver, 1)) == [b"x"]


def test_sending_goes_on_when_the_session_window_opens(broker: RunningBroker) -> None:
    """A flow of the session alone (no handle) that opens the window lets every link of it go on (2.5.6)."""
    with session_to(broker) as session:
        send(session.attach_sender("s", "window"), b"1", b"2", b"3")
        receiver = session.attach_receiver("r", "window")
        receiver.flow(5, incoming_window=2)
        assert bodies(receive(receiver, 2)) == [b"1", b"2"]
        assert nothing_comes(receiver)
        session.flow()
        assert bodies(receive(receiver, 1)) == [b"3"]
