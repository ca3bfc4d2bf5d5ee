"""What a client is made of: settings from URLs, messages, errors that travel, lazy names."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import pytest

import amqp_broker
import amqp_broker.client
from amqp_broker import running_broker
from amqp_broker.client import Half, Resolution, connect
from amqp_broker.client.errors import ClientError, MessageRefused, OutcomeUnknown, WaitTimeout, WrongUse
from amqp_broker.client.half_errors import HalfConflict
from amqp_broker.client.messages import OutgoingMessage, as_sent, body_of, message, outgoing
from amqp_broker.client.settings import Endpoint, parse_url
from amqp_broker.client.shells import settings_of, tls_of
from amqp_broker.frames import (
    AmqpSequence,
    Data,
    EncodeError,
    Error,
    Long,
    Message,
    Properties,
    Rejected,
    Uint,
    Ulong,
    encode_message,
)


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("amqp://127.0.0.1", Endpoint("127.0.0.1", 5672, tls=False)),
        ("amqps://broker.example/", Endpoint("broker.example", 5671, tls=True)),
        ("amqp://[::1]:15672", Endpoint("::1", 15672, tls=False)),
        ("amqp://a%40b:p%2Fw@h:1", Endpoint("h", 1, tls=False, user="a@b", password="p/w")),
    ],
)
def test_a_url_says_where_and_who(url: str, endpoint: Endpoint) -> None:
    """Ports have defaults, user and password may be escaped."""
    assert parse_url(url) == endpoint
    assert parse_url(str(endpoint)).port == endpoint.port


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:5672",
        "http://h",
        "amqp://",
        "amqp://h:x",
        "amqp://h:0",
        "amqp://h:99999",
        "amqp://h/queue",
        "amqp://h?queue",
        "amqp://h#queue",
    ],
)
def test_a_url_that_is_none(url: str) -> None:
    """The error says what a URL looks like."""
    with pytest.raises(WrongUse, match="expected a URL amqp://HOST:PORT or amqps://HOST:PORT, found"):
        parse_url(url)


def test_a_password_is_not_shown() -> None:
    """Neither for a good URL nor for a bad one."""
    with pytest.raises(WrongUse) as caught:
        parse_url("amqp://ada:s3cret@h:0")
    settings, endpoint = settings_of("amqp://ada:s3cret@h", {})
    assert "s3cret" not in str(caught.value) + repr(settings) + repr(endpoint) + str(endpoint)
    assert (settings.user, settings.password) == ("ada", "s3cret")


def test_settings_win_over_the_url_and_unknown_ones_are_named() -> None:
    """Each client has a container-id of its own unless it says one."""
    settings, _ = settings_of("amqp://ada:x@h", {"user": "bob", "container_id": "me"})
    assert (settings.user, settings.container_id) == ("bob", "me")
    assert settings_of("amqp://h", {})[0].container_id != settings_of("amqp://h", {})[0].container_id
    with pytest.raises(WrongUse, match="idle_timeout"):
        settings_of("amqp://h", {"idle_timeout": 1})


def test_tls_is_the_url_s_matter() -> None:
    """amqps has it, amqp has not; a context for the latter would only look safe."""
    secure, plain = parse_url("amqps://h"), parse_url("amqp://h")
    context = tls_of(secure, None)
    assert context is not None and context.check_hostname
    assert tls_of(secure, context) is context and tls_of(plain, None) is None
    with pytest.raises(WrongUse, match="expected no ssl_context"):
        tls_of(plain, context)


def test_a_message_has_the_fields_it_was_given() -> None:
    """Durable unless said otherwise; what cannot be encoded is told at once."""
    made = message(
        b"x", durable=False, priority=7, ttl_ms=5, message_id="m", message_annotations={"x-opt-a": 1}
    )
    found = Message(made.data)
    assert (found.header.durable, found.header.priority, found.header.ttl) == (False, 7, 5)
    assert found.properties == Properties(message_id="m") and len(found.message_annotations or {}) == 1
    assert Message(message(b"x").data).header.durable
    assert outgoing(made) is made and len(made) == len(made.data)
    assert body_of(Message(outgoing("text").data)) == "text"
    with pytest.raises(EncodeError):
        message({"a": object()})
    with pytest.raises(WrongUse, match="found both: .'subject'."):
        message(b"x", properties=Properties(), subject="s")


def test_bodies_of_every_kind_are_one_value() -> None:
    """Data sections together, sequences one after the other, nothing for nothing."""
    assert body_of(Message(encode_message(body=[Data(b"a"), Data(b"b")]))) == b"ab"
    sequences = [AmqpSequence(["a"]), AmqpSequence(["b", "c"])]
    assert body_of(Message(encode_message(body=sequences))) == ["a", "b", "c"]
    assert body_of(Message(b"")) is None


def test_what_comes_is_what_was_sent() -> None:
    """An int is an int, a float a float, in maps and lists, too; a type of the wire's own stays one."""
    told = {"count": 3, "price": 2.5, "parts": [1, {"of": 2}], "small": Uint(1), "new": True, "name": "shoes"}
    assert body_of(Message(message(told).data)) == told
    assert body_of(Message(encode_message(body=[AmqpSequence([1]), AmqpSequence([0.5])]))) == [1, 0.5]
    assert as_sent({Long(1): Long(2)}) == {1: 2}
    assert as_sent(Uint(1)) == Uint(1) != 1


def test_errors_travel() -> None:
    """Spark pickles the errors of its executors: text, peer's error, outcome and half-id arrive."""
    refusal = Error(condition="half:conflict", description="no", info={"half_state": "committed"})
    for error in (
        ClientError("text"),
        WaitTimeout("late"),
        OutcomeUnknown("lost", refusal),
        MessageRefused("no", refusal, Rejected(error=refusal)),
        HalfConflict("no", refusal, "order-1"),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error) and str(again) == str(error) and vars(again) == vars(error)
        assert again.condition == error.condition
    assert isinstance(WaitTimeout("late"), TimeoutError)
    assert again.state == "committed" and again.half_id == "order-1" and again.resolved_by is None
    assert ClientError("text").info == {} and ClientError("text").description is None


def test_every_public_name_is_there() -> None:
    """The lazy names of the package and of the top lead somewhere, and dir() shows them."""
    for name in amqp_broker.client.__all__:
        assert getattr(amqp_broker.client, name).__name__ == name
        assert name in dir(amqp_broker.client)
    for name in ("connect", "open_client", "message", "Resolution", "TransactionProducer"):
        assert getattr(amqp_broker, name) is getattr(amqp_broker.client, name)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = amqp_broker.client.nothing
    assert repr(OutgoingMessage(b"12")) == "<OutgoingMessage 2 octets>"


def test_the_blocking_client_loads_no_event_loop() -> None:
    """An executor that only sends pays neither for an event loop nor for the store."""
    modules = "blocking, blocking_producer, messages"
    unwanted = "'trio', 'anyio', 'asyncio', 'structlog', 'sqlite_utils', 'pysqlite3', 'scramp'"
    code = (
        f"import sys\nfrom amqp_broker.client import {modules}\n"
        f"print(sorted({{{unwanted}}} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_the_core_does_no_io() -> None:
    """The machine and what it is made of know no socket, no clock and no loop."""
    code = (
        "import sys\nbefore = set(sys.modules)\nfrom amqp_broker.client import core, halves, sasl\n"
        "print(sorted({'trio', 'socket', 'ssl', 'select', 'selectors'} & (set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


@pytest.mark.parametrize("name", ["message_id", "correlation_id"])
def test_an_int_as_id_goes_as_ulong(name: str) -> None:
    """By a field or by properties, which stay as they are; what no ulong can hold is refused."""
    fields: dict[str, Any]
    for number in (0, 7, 2**64 - 1):
        fields = {name: number}
        found = Message(message("x", **fields).data).properties
        assert found is not None and getattr(found, name) == Ulong(number)
    fields = {name: 7}
    mine = Properties(**fields)
    fields = {name: Ulong(7)}
    assert Message(message("x", properties=mine).data).properties == Properties(**fields)
    assert getattr(mine, name) == 7
    for number in (-1, 2**64):
        fields = {name: number}
        with pytest.raises(WrongUse, match=f"{name}: expected an int from 0 to .*ulong.*, found {number}"):
            message("x", **fields)


def test_an_int_as_id_comes_back_as_one() -> None:
    """Through a broker: of a message, of a reply, and of a half message and its check-back."""
    with running_broker() as broker, connect(broker.url) as client:
        orders = client.open_receiver("orders")
        client.open_sender("orders").send(message("x", message_id=7, correlation_id=8))
        got = orders.receive(timeout_s=10)
        assert (got.properties.message_id, got.properties.correlation_id) == (7, 8)
        orders.accept(got)
        asked: list[object] = []

        def check(half: Half) -> Resolution:
            asked.append(half.half_id)
            return Resolution.COMMIT

        with client.producer("shop", check) as producer:
            producer.send_in_transaction("orders", "one", lambda _: Resolution.COMMIT, half_id=1)
            producer.send_in_transaction("orders", "two", lambda _: Resolution.UNKNOWN, half_id=2)
            broker.clock.advance(10)
            assert [orders.receive(timeout_s=10).properties.message_id for _ in range(2)] == [1, 2]
        assert asked == [2]
