"""Filters over the wire: what they are answered, who gets what, drains, browsers, deep backlogs."""

from __future__ import annotations

from typing import Any

import pytest

from amqp_broker.configuration import BrokerConfig, BrokerLimits
from amqp_broker.frames import (
    Described,
    Header,
    Properties,
    Source,
    Symbol,
    Ulong,
    encode_message,
)
from amqp_broker.testing import memory_config
from amqp_broker.testing.peer import PeerError, PeerReceiver, PeerSender, PeerSession
from tests.support.broker_clients import bodies, receive
from tests.support.jumping_broker import InEachStore

SELECTOR = "apache.org:selector-filter:string"
COLOURS = ("red", "green", "blue")


@pytest.fixture
def config(in_each_store: InEachStore) -> BrokerConfig:
    """A window of four messages: everything else is on disk."""
    return in_each_store(memory_config(limits=BrokerLimits(queue_window_messages=4)))


def filtered(
    session: PeerSession, address: str, what: Any, name: str = SELECTOR, *, code: int = 0, copy: bool = False
) -> PeerReceiver:
    """A link that receives what passes one filter."""
    wanted = {"mine": Described(Ulong(code) if code else Symbol(name), what)}
    source = Source(address=address, distribution_mode="copy" if copy else None, filter=wanted)
    return session.attach_receiver(f"{address} {name} {what} {copy}", address, source=source)


def post(sender: PeerSender, count: int, start: int = 0) -> None:
    """Messages of three colours, durable ones and others."""
    for number in range(start, start + count):
        colour = COLOURS[number % 3]
        sender.session.connection.pump_until(lambda: sender.may_send)
        sender.send(
            encode_message(
                header=Header(durable=number % 4 > 0),
                properties=Properties(subject=f"paint.{colour}", correlation_id=f"c{number}"),
                application_properties={"colour": colour, "number": number},
                body=b"%d" % number,
            )
        )
    sender.session.connection.pump_until(lambda: len(sender.outcomes) == start + count)


def of(colour: int, count: int) -> list[bytes]:
    """The bodies of one colour."""
    return [b"%d" % number for number in range(count) if number % 3 == colour]


def test_each_takes_what_it_asked_for(session: PeerSession) -> None:
    """Deep in the backlog, in order, and new ones; what nobody asked for waits for whoever takes all."""
    sender = session.attach_sender("s", "q")
    post(sender, 60)
    red = filtered(session, "q", "colour = 'red'")
    green = filtered(session, "q", "paint.*", "apache.org:legacy-amqp-topic-binding:string")
    red.flow(100)
    assert bodies(receive(red, 20)) == of(0, 60)
    one = filtered(session, "q", {Symbol("correlation-id"): "c58"}, "amqp:properties-filter")
    one.flow(1)
    assert bodies(receive(one, 1)) == [b"58"]
    green.flow(3)
    assert bodies(receive(green, 3)) == [b"1", b"2", b"4"]
    post(sender, 3, start=60)
    assert bodies(receive(red, 1)) == [b"60"]
    rest = session.attach_receiver("rest", "q", credit=100)
    assert len(receive(rest, 60 - 20 - 1 - 3 + 2)) == 38


def test_a_drain_is_answered_when_all_was_looked_at(session: PeerSession) -> None:
    """`receiveNoWait` with a selector: what passes comes, however deep it is, and the credit is gone."""
    post(session.attach_sender("s", "q"), 50)
    last = filtered(session, "q", "number = 49")
    last.drain_all(10)
    assert bodies(receive(last, 1)) == [b"49"]
    none = filtered(session, "q", "number > 1000")
    none.drain_all(10)
    assert none.credit == 0


def test_what_comes_back_is_for_who_asked(session: PeerSession) -> None:
    """A link that goes leaves its messages to the next one with such a filter; a browser takes nothing."""
    post(session.attach_sender("s", "q"), 30)
    browser = filtered(session, "q", "colour IN ('blue')", copy=True)
    browser.flow(100)
    assert bodies(receive(browser, 10)) == of(2, 30)
    browser.drain_all(5)
    first = filtered(session, "q", "colour = 'blue'")
    first.flow(5)
    assert bodies(receive(first, 5)) == of(2, 30)[:5]
    first.detach()
    again = filtered(session, "q", "colour = 'blue' AND number >= 0")
    again.flow(100)
    assert bodies(receive(again, 10)) == of(2, 30)


@pytest.mark.parametrize(
    ("what", "name", "code"),
    [
        ("colour = 'red'", SELECTOR, 0),
        ("colour = 'red'", "", 0x0000_468C_0000_0004),
        ("paint.red", "apache.org:legacy-amqp-direct-binding:string", 0),
        ({"colour": "red"}, "amqp:application-properties-filter", 0),
        ({"colour": "&p:re"}, "", 0x174),
        ({Symbol("subject"): "&s:.red"}, "", 0x173),
    ],
)
def test_a_filter_that_holds_is_echoed(session: PeerSession, what: Any, name: str, code: int) -> None:
    """By symbol or code (3.5.8): the filters in the answer are those that hold."""
    post(session.attach_sender("s", "q"), 9)
    link = filtered(session, "q", what, name, code=code)
    answered = link.remote_terminus.filter
    assert [each.value for each in answered.values()] == [what]
    link.flow(10)
    assert bodies(receive(link, 3)) == of(0, 9)


@pytest.mark.parametrize(
    ("what", "name", "condition", "said"),
    [
        ("colour = ", SELECTOR, "amqp:invalid-field", "behind the end"),
        (7, SELECTOR, "amqp:invalid-field", "a string"),
        ("x", "example:other-filter", "amqp:not-implemented", "example:other-filter"),
        ({}, "amqp:properties-filter", "amqp:invalid-field", "1 to 100 fields"),
        ({Symbol("shape"): 1}, "amqp:properties-filter", "amqp:invalid-field", "'shape'"),
        ({"a": "&x"}, "amqp:application-properties-filter", "amqp:invalid-field", "&p:"),
    ],
)
def test_a_filter_that_is_not_honoured_refuses_the_link(
    session: PeerSession, what: Any, name: str, condition: str, said: str
) -> None:
    """Naming it: the receiver would take other people's messages."""
    with pytest.raises(PeerError, match=condition) as raised:
        filtered(session, "q", what, name)
    description = str(getattr(raised.value.error, "description", None))
    assert said in description and "'mine'" in description
