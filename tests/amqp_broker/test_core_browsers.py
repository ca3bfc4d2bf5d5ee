"""Browsers and drains over queues whose backlog is on disk: nobody waits for ever, and nobody spins."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from amqp_broker.configuration import BrokerLimits
from amqp_broker.frames import Header, Modified, encode_message
from amqp_broker.testing import RunningBroker, memory_config, running_broker
from amqp_broker.testing.peer import PeerReceiver, PeerSender
from tests.support.broker_clients import (
    bodies,
    browse,
    receive,
    send,
    session_to,
    settle_down,
)


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with running_broker(memory_config(limits=BrokerLimits(queue_window_messages=4))) as running:
        yield running


def drain(receiver: PeerReceiver, credit: int) -> None:
    """Ask for `credit` messages at most, and wait for the answer."""
    receiver.drain_all(credit)


def send_mixed(sender: PeerSender, count: int, durable_every: int) -> list[bytes]:
    """Messages of which each `durable_every`-th is durable, and so may wait on disk."""
    sent = [b"%d" % index for index in range(count)]
    for index, body in enumerate(sent):
        sender.session.connection.pump_until(lambda: sender.may_send)
        sender.send(encode_message(header=Header(durable=index % durable_every == 0), body=body))
    sender.session.connection.pump_until(lambda: len(sender.outcomes) == count)
    return sent


@pytest.mark.timeout(20)
def test_a_browser_past_the_end_of_the_disk_waits(broker: RunningBroker) -> None:
    """A browser with more credit than there are messages gets them all, and the broker serves others."""
    with session_to(broker) as session:
        sender = session.attach_sender("s", "deep")
        sent = [b"%d" % index for index in range(20)]
        send(sender, *sent, durable=True)
        browser = browse(session, "b", "deep", credit=100)
        assert bodies(receive(browser, 20)) == sent
        send(sender, b"late", durable=True)
        assert bodies(receive(browser, 1)) == [b"late"]
        browser.flow(100)
        drain(session.attach_receiver("r", "other"), 1)


@pytest.mark.timeout(20)
def test_a_browser_sees_volatile_messages_between_those_on_disk(broker: RunningBroker) -> None:
    """Messages that only memory holds are shown in their places among those that are read from disk."""
    with session_to(broker) as session:
        sent = send_mixed(session.attach_sender("s", "mixed"), 40, durable_every=3)
        browser = browse(session, "b", "mixed", credit=40)
        assert bodies(receive(browser, 40)) == sent


@pytest.mark.timeout(20)
def test_a_browser_with_little_credit_goes_on_page_by_page(broker: RunningBroker) -> None:
    """Each grant of credit shows the next messages, none twice and none left out."""
    with session_to(broker) as session:
        sent = send_mixed(session.attach_sender("s", "paged"), 40, durable_every=3)
        browser = browse(session, "b", "paged")
        seen = []
        for _ in range(20):
            browser.flow(2)
            seen += receive(browser, 2)
        assert bodies(seen) == sent


@pytest.mark.timeout(20)
def test_a_draining_browser_is_answered_at_the_end_of_the_disk(broker: RunningBroker) -> None:
    """Drain is answered when a browser has seen everything, also where the end is on disk (2.6.7)."""
    with session_to(broker) as session:
        sent = [b"%d" % index for index in range(20)]
        send(session.attach_sender("s", "drained"), *sent, durable=True)
        browser = browse(session, "b", "drained")
        drain(browser, 100)
        assert bodies(browser.deliveries) == sent
        browser.deliveries.clear()
        drain(browser, 100)
        assert not browser.deliveries


@pytest.mark.timeout(20)
def test_a_browser_is_not_shown_what_expired(broker: RunningBroker) -> None:
    """Messages past their time to live are passed over, in memory and on disk, and what follows is shown."""
    with session_to(broker) as session:
        sender = session.attach_sender("s", "stale")
        send(sender, *[b"stale"] * 12, durable=True, ttl=1)
        send(sender, b"fresh", durable=True)
        session.connection.pump(0.01)
        browser = browse(session, "b", "stale", credit=2)
        assert bodies(receive(browser, 1)) == [b"fresh"]


@pytest.mark.timeout(20)
def test_a_drain_is_answered_when_all_on_disk_has_expired(broker: RunningBroker) -> None:
    """The page that a draining consumer waits for may bring nothing that can be delivered."""
    with session_to(broker) as session:
        send(session.attach_sender("s", "expired"), *[b"x"] * 30, durable=True, ttl=1)
        session.connection.pump(0.01)
        receiver = session.attach_receiver("r", "expired")
        drain(receiver, 50)
        assert not receiver.deliveries


@pytest.mark.timeout(20)
def test_a_drain_is_answered_when_another_consumer_takes_the_page(broker: RunningBroker) -> None:
    """Two consumers share what is on disk; the one that drains is answered even if it gets less."""
    with session_to(broker) as session, session_to(broker) as other:
        send(session.attach_sender("s", "shared"), *[b"x"] * 40, durable=True)
        greedy = other.attach_receiver("g", "shared")
        receiver = session.attach_receiver("r", "shared")
        greedy.flow(200)
        other.connection.flush()
        drain(receiver, 50)
        settle_down(broker, session, other)
        assert len(greedy.deliveries) + len(receiver.deliveries) == 40


@pytest.mark.timeout(20)
def test_a_drain_is_answered_when_the_rest_is_not_for_this_consumer(broker: RunningBroker) -> None:
    """undeliverable-here leaves messages that this link never gets: they do not hold up its drain (3.4.5)."""
    with session_to(broker) as session:
        send(session.attach_sender("s", "unfit"), *[b"%d" % index for index in range(12)], durable=True)
        receiver = session.attach_receiver("r", "unfit", credit=12)
        receiver.settle(receive(receiver, 12), Modified(undeliverable_here=True))
        drain(receiver, 20)
        assert not receiver.deliveries
        other = session.attach_receiver("o", "unfit", credit=12)
        assert len(receive(other, 12)) == 12
