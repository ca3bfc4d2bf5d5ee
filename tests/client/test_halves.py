"""The half-message dialogue as values: what is put, what decides, what a check says."""

from __future__ import annotations

import logging
import uuid
from typing import Any

import pytest

from amqp_broker.client.errors import MessageRefused, WrongUse
from amqp_broker.client.half_errors import (
    HalfConflict,
    HalfIdConflict,
    HalfNotSupported,
    HalfRefused,
    HalfUnknown,
    half_refusal,
    number_of,
)
from amqp_broker.client.halves import (
    Half,
    Resolution,
    check_address,
    expect_group,
    expect_half_link,
    expect_resolution,
    half_message,
    half_of,
    log_check_error,
    outcome_of_check,
    put_address,
    resolution_message,
)
from amqp_broker.coordinator import HalfSettings, half_id_of
from amqp_broker.frames import (
    Accepted,
    Error,
    Int,
    Long,
    Message,
    Modified,
    Properties,
    Rejected,
    Ubyte,
    Ulong,
)
from amqp_broker.halves.addresses import HalfAddress, parse_half_address
from amqp_broker.halves.requests import read_put, read_resolution
from tests.client.back_to_back import BackToBack
from tests.links.pair import Message as Sendable

IDS = ["order-1", b"\x00\x01", uuid.UUID(int=7), Ulong(7)]


def test_addresses_are_those_that_the_broker_reads() -> None:
    """Destinations may contain slashes, groups may not."""
    assert parse_half_address(put_address("g", "a/b")) == HalfAddress("$half", "g", destination="a/b")
    assert parse_half_address(check_address("g", False)) == HalfAddress("$half-check", "g")
    assert parse_half_address(check_address("g", True)) == HalfAddress("$half-check", "g", by_outcome=True)
    assert expect_group("a.B-9_") == "a.B-9_"
    for wrong in ("", "a/b", "ö", "a" * 65):
        with pytest.raises(WrongUse, match="expected a group of 1 to 64"):
            expect_group(wrong)


@pytest.mark.parametrize("half_id", IDS)
def test_the_broker_reads_the_id_with_its_type(half_id: Any) -> None:
    """It is the message-id, and the correlation-id of a resolution."""
    put = read_put(half_message("body", half_id).data, HalfSettings())
    decided = read_resolution(resolution_message(half_id, Resolution.COMMIT).data)
    assert put.half_id == decided.half_id == half_id_of(half_id)


def test_a_put_has_everything_that_was_given() -> None:
    """Times, properties, the producer's own; the caller's objects stay as they were."""
    properties, named = Properties(subject="s"), {"OrderId": "17"}
    made = half_message(
        "b",
        "id",
        first_check_ms=7,
        max_age_ms=70,
        properties=properties,
        application_properties=named,
        priority=9,
    )
    put = read_put(made.data, HalfSettings())
    assert (put.first_check_ms, put.max_age_ms, put.priority) == (7, 70, 9)
    found = Message(made.data)
    assert found.properties == Properties(subject="s", message_id="id")
    assert found.application_properties is not None and found.application_properties["OrderId"] == "17"
    assert properties == Properties(subject="s") and named == {"OrderId": "17"}
    assert Message(half_message("b", "id", subject="t").data).properties == Properties(
        subject="t", message_id="id"
    )
    with pytest.raises(WrongUse, match="found both"):
        half_message("b", "id", properties=properties, subject="t")


def test_another_message_id_moves_the_half_id_into_a_property() -> None:
    """As a string, for that is what the property takes."""
    made = half_message("b", "half", message_id="mine")
    assert read_put(made.data, HalfSettings()).half_id == half_id_of("half")
    found = Message(made.data).properties
    assert found is not None and found.message_id == "mine"
    with pytest.raises(
        WrongUse, match="expected a half-id of type str beside another message-id, found bytes"
    ):
        half_message("b", b"half", message_id="mine")


def test_what_is_unknown_is_not_told() -> None:
    """The broker asks; a reason goes along with what is known."""
    decided = read_resolution(resolution_message("id", Resolution.ROLLBACK, "no shoes").data)
    assert (decided.what.value, decided.reason) == ("rollback", "no shoes")
    with pytest.raises(WrongUse, match="expected COMMIT or ROLLBACK"):
        resolution_message("id", Resolution.UNKNOWN)


def check_with(named: dict[str, Any], body: Any = b"body") -> Half:
    """What a client reads in a check that came."""
    from amqp_broker.frames import encode_message

    pair = BackToBack().open()
    receiver, remote = pair.receiver()
    properties = Properties(correlation_id="order-1")
    remote.send([Sendable(encode_message(properties=properties, application_properties=named, body=body))])
    pair.flush()
    received = receiver.take()
    assert received is not None
    return half_of(received)


def test_a_check_is_read_whole() -> None:
    """The broker's fields apart from the producer's own."""
    named = {
        "half_id": "order-1",
        "half_group": "shop",
        "half_destination": "q",
        "half_attempt": Int(2),
        "half_age_ms": Long(5),
        "half_deadline": Long(9),
        "half_new": "of a later version",
        "OrderId": "17",
    }
    assert check_with(named) == Half("order-1", "shop", "q", 2, 5, 9, b"body", False, {"OrderId": "17"})
    omitted = check_with({**named, "half_body_omitted": True}, b"")
    assert omitted.body is None and omitted.body_omitted
    with pytest.raises(WrongUse, match="has no application property 'half_group'"):
        check_with({"OrderId": "17"})


@pytest.mark.parametrize(
    ("condition", "kind"),
    [
        ("half:conflict", HalfConflict),
        ("half:id-conflict", HalfIdConflict),
        ("half:unknown-id", HalfUnknown),
        ("amqp:internal-error", MessageRefused),
    ],
)
def test_refusals_have_names(condition: str, kind: type[Exception]) -> None:
    """What has none stays a refused message."""
    info = {"half_state": "rolled-back", "half_resolved_at": Long(5), "half_resolved_by": "deadline"}
    error = Error(condition=condition, description="why", info=info)
    found = half_refusal(MessageRefused("no", error), "the commit", "order-1")
    assert type(found) is kind and found.error is error
    if isinstance(found, HalfRefused):
        assert str(found) == (
            f"expected the commit of half message 'order-1' to be accepted, but {condition}: why"
        )
        assert found.half_id == "order-1"
    if isinstance(found, HalfConflict):
        assert (found.state, found.resolved_by, found.resolved_at_ms) == ("rolled-back", "deadline", 5)


def test_only_a_resolution_is_one() -> None:
    """Forgetting to return something must not commit, nor roll back."""
    assert expect_resolution(Resolution.COMMIT, "x") is Resolution.COMMIT
    for wrong in (None, True, "commit"):
        with pytest.raises(TypeError, match="expected a Resolution from the checker, found"):
            expect_resolution(wrong, "the checker")


def test_outcomes_of_checks() -> None:
    """Where outcomes decide they say what; where not, that we were asked. Unknown is an attempt."""
    for by_outcome in (False, True):
        assert outcome_of_check(Resolution.COMMIT, by_outcome) == Accepted()
    assert outcome_of_check(Resolution.ROLLBACK, False) == Accepted()
    assert outcome_of_check(Resolution.UNKNOWN, False) == Accepted()
    assert isinstance(outcome_of_check(Resolution.ROLLBACK, True), Rejected)
    assert outcome_of_check(Resolution.UNKNOWN, True) == Modified(delivery_failed=True)


@pytest.mark.parametrize(
    ("properties", "found"),
    [
        ({}, "found None"),
        ({"half-version": Ubyte(2)}, r"found Ubyte\(2\)"),
        ({"half-version": "1"}, "found '1'"),
    ],
)
def test_a_node_that_is_none_of_ours_is_not_used(properties: dict[str, Any], found: str) -> None:
    """A broker that makes queues on first use would keep half messages for ever."""

    class Core:
        """A link's."""

        address = "$half/shop/q"
        remote_properties = properties

    class Link:
        """Of either shell."""

        core = Core()
        closed = False

        def close(self) -> None:
            """Detaches."""
            self.closed = True

    link = Link()
    with pytest.raises(HalfNotSupported, match=f"half-version 1 from '\\$half/shop/q', {found}"):
        expect_half_link(link)
    assert link.closed
    for value in (1, Long(1), Ubyte(1)):
        link.core.remote_properties = {"half-version": value}
        expect_half_link(link)
    assert number_of(None) == -1


def test_errors_of_checkers_go_into_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """With what was asked about, and the traceback."""
    half = Half("order-1", "shop", "q", 1, 0, 0, b"", False, {})
    with caplog.at_level(logging.ERROR):
        log_check_error(half, ValueError("the table is away"))
        log_check_error(None, ValueError("what"))
    assert "check of half message 'order-1' of 'shop' failed" in caplog.text
    assert "the table is away" in caplog.text and "a message that is no check" in caplog.text
