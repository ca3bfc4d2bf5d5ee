"""Composites to bytes: the shortest list, and errors for what a field cannot hold."""

from __future__ import annotations

from typing import Any

import pytest

from amqp_broker.frames import (
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Detach,
    Disposition,
    EncodeError,
    End,
    Error,
    Header,
    Open,
    Properties,
    Received,
    Rejected,
    Source,
    Symbol,
    Target,
    Transfer,
    encode_composite,
    encode_value,
)
from amqp_broker.frames.sasl import SaslMechanisms, SaslOutcome


@pytest.mark.parametrize(
    ("value", "octets"),
    [
        (Accepted(), "00 53 24 45"),
        (Close(), "00 53 18 45"),
        (Detach(handle=0, closed=True), "00 53 16 c0 03 02 43 41"),
        (Detach(handle=300), "00 53 16 c0 06 01 70 00 00 01 2c"),
        (
            Disposition(role=True, first=0, last=9, settled=True, state=Accepted()),
            "00 53 15 c0 0a 05 41 43 52 09 41 00 53 24 45",
        ),
        (
            Transfer(handle=0, delivery_id=1, delivery_tag=b"t", settled=False),
            "00 53 14 c0 09 05 43 52 01 a0 01 74 40 42",
        ),
        (Open(container_id="c", channel_max=63), "00 53 10 c0 09 04 a1 01 63 40 40 60 00 3f"),
        (Header(durable=True, priority=4), "00 53 70 c0 04 02 41 50 04"),
        (Coordinator(capabilities=("a",)), "00 53 30 c0 07 01 e0 04 01 a3 01 61"),
        (Coordinator(capabilities=()), "00 53 30 45"),
        (
            Properties(absolute_expiry_time=-1),
            "00 53 73 c0 12 09 40 40 40 40 40 40 40 40 83 ff ff ff ff ff ff ff ff",
        ),
        (End(error=Error(condition="c")), "00 53 17 c0 0a 01 00 53 1d c0 04 01 a3 01 63"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_the_shortest_list(value: Any, octets: str) -> None:
    """Absent and default fields are nulls, and none of them at the end."""
    assert encode_composite(value) == bytes.fromhex(octets)


def test_what_is_the_default_is_left_out() -> None:
    """A field set to its default says nothing that its absence does not."""
    assert (
        encode_composite(Source(durable=0, expiry_policy="session-end", timeout=0, dynamic=False))
        == b"\x00\x53\x28\x45"
    )
    assert encode_composite(Open(container_id="c", max_frame_size=4294967295)) == encode_composite(Open("c"))


def test_long_composites_take_the_long_list() -> None:
    """Beyond 254 octets of fields the size has four octets."""
    data = encode_composite(Open(container_id="c" * 300))
    assert data[3] == 0xD0
    assert int.from_bytes(data[4:8], "big") == len(data) - 8


def test_symbols_may_be_str_or_symbol() -> None:
    """In declared fields a plain str is a symbol where the field is one."""
    assert encode_composite(Error(condition="c", info={"k": True})) == encode_composite(
        Error(condition=Symbol("c"), info={Symbol("k"): True})  # type: ignore[arg-type, dict-item]
    )
    assert encode_composite(Coordinator(capabilities=["a"])) == encode_composite(  # type: ignore[arg-type]
        Coordinator(capabilities=(Symbol("a"),))  # type: ignore[arg-type]
    )
    assert encode_composite(Coordinator(capabilities="a")) == encode_composite(  # type: ignore[arg-type]
        Coordinator(capabilities=("a",))
    )


def of(made: Any, **fields: Any) -> Any:
    """A composite with fields of types that its declaration does not allow."""
    return made(**fields)


INVALID: list[tuple[Any, str]] = [
    (Open(), "mandatory field open.container-id"),
    (Begin(next_outgoing_id=0, incoming_window=0), "mandatory field begin.outgoing-window"),
    (SaslMechanisms(sasl_server_mechanisms=()), "mandatory field sasl-mechanisms.sasl-server-mechanisms"),
    (of(Open, container_id=b"c"), "string for open.container-id, but got bytes"),
    (of(Open, container_id="\ud800"), "UTF-8"),
    (of(Open, container_id="c", channel_max=65536), "0 to 65535 for open.channel-max"),
    (of(Open, container_id="c", channel_max=-1), "0 to 65535 for open.channel-max"),
    (of(Open, container_id="c", idle_time_out=2**32), "open.idle-time-out"),
    (of(Open, container_id="c", idle_time_out=1.5), "milliseconds for open.idle-time-out, but got float"),
    (of(Open, container_id="c", properties=[1]), "fields for open.properties"),
    (of(Open, container_id="c", properties={1: 2}), "fields for open.properties, but got int"),
    (of(Open, container_id="c", offered_capabilities=5), "symbol for open.offered-capabilities"),
    (of(Open, container_id="c", offered_capabilities=("\u00e9",)), "ASCII"),
    (of(Open, container_id="c", offered_capabilities=(5,)), "only symbol"),
    (of(Header, durable=1), "boolean for header.durable, but got int"),
    (of(Header, priority=256), "0 to 255 for header.priority"),
    (of(Header, ttl=True), "milliseconds for header.ttl, but got bool"),
    (Received(section_number=0, section_offset=2**64), "received.section-offset"),
    (of(Transfer, handle=0, delivery_tag=b"x" * 33), "0 to 32 for the octets of transfer.delivery-tag"),
    (of(Transfer, handle=0, delivery_tag="x"), "delivery-tag for transfer.delivery-tag, but got str"),
    (of(Transfer, handle=0, state=Source()), "a type that provides delivery-state for transfer.state"),
    (
        of(Attach, name="l", handle=0, role=True, source=Target()),
        "a type that provides source for attach.source",
    ),
    (of(Attach, name="l", handle=0, role=True, snd_settle_mode=3), "expected one of"),
    (of(Attach, name="l", handle=0, role=True, unsettled=[]), "map for attach.unsettled"),
    (SaslOutcome(code=5), "expected one of"),
    (of(Rejected, error=Accepted()), "error for rejected.error"),
    (of(Properties, creation_time=2**63), "properties.creation-time"),
    (of(Properties, content_type=b"x"), "symbol for properties.content-type"),
    ("text", "expected a composite"),
]


@pytest.mark.parametrize(("value", "message"), INVALID, ids=lambda value: repr(value)[:40])
def test_wrong_fields_are_encode_errors(value: Any, message: str) -> None:
    """Missing, out of range or of the wrong type: the error names the field."""
    with pytest.raises(EncodeError, match=message):
        encode_composite(value)


def test_composites_nest_no_deeper_than_decoders_take() -> None:
    """A description in a description ends at the limit."""
    deep: Any = True
    for _ in range(40):
        deep = [deep]
    with pytest.raises(EncodeError, match="deeper than DEPTH_MAX"):
        encode_composite(Error(condition="c", info={"k": deep}))


def test_composites_are_values_too() -> None:
    """A composite in a list is a described list."""
    assert encode_value({"k": Accepted()}) == bytes.fromhex("c1 08 02 a1 01 6b 00 53 24 45")
