"""Which trace context a message has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.frames import Properties, Symbol, encode_message
from amqp_broker.tracing.context import LOOKED_AT_BYTES, TraceContext, context_of

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TEXT = f"00-{TRACE}-{SPAN}-01"
BINARY = bytes((0, 0)) + bytes.fromhex(TRACE) + b"\x01" + bytes.fromhex(SPAN) + b"\x02\x01"
CONTEXT = TraceContext(int(TRACE, 16), int(SPAN, 16), "")
OTHER = f"00-{TRACE}-00f067aa0ba902b7-01"
KEY = Symbol("traceparent")


def named(traceparent: object, tracestate: object = None) -> bytes:
    """A message with these application-properties."""
    properties = {"traceparent": traceparent, "tracestate": tracestate}
    return encode_message(application_properties=properties, body=b"x")


def test_in_application_properties() -> None:
    """Among others, behind annotations and properties, with the state."""
    body = encode_message(
        message_annotations={Symbol("x-opt-a"): [1, 2]}, properties=Properties(message_id="m"),
        application_properties={"a": 1, "traceparent": TEXT, "b": "c", "tracestate": "v=1,w@x=2"}, body=b"x",
    )  # fmt: skip
    assert context_of(body) == CONTEXT._replace(state="v=1,w@x=2")


def test_message_annotations_are_first() -> None:
    """Middleware that has a span of its own says it there; what is wrong there is not there."""
    properties = {"traceparent": TEXT}
    for value, span in ((OTHER, 0x00F067AA0BA902B7), ("00-no", CONTEXT.span_id), (7, CONTEXT.span_id)):
        body = encode_message(message_annotations={KEY: value}, application_properties=properties, body=b"x")
        found = context_of(body)
        assert found is not None and found.span_id == span


def test_the_binary_form() -> None:
    """As the mapping of W3C to AMQP has it."""
    assert context_of(encode_message(message_annotations={KEY: BINARY}, body=b"x")) == CONTEXT
    assert context_of(encode_message(application_properties={"traceparent": BINARY}, body=b"x")) == CONTEXT


@pytest.mark.parametrize("value", [
    "", "00", TEXT[:-1], TEXT + "0", TEXT + "-more", TEXT.upper(), f"ff{TEXT[2:]}",
    f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01", f"01{TEXT[2:]}-{'x' * 128}", f"{TEXT}\n",
    BINARY[:-1], BINARY + b"\0", b"", b"\1" + BINARY[1:], b"\0" * 29, 17, None, True,
])  # fmt: skip
def test_what_is_no_traceparent(value: object) -> None:
    """It is as if there were none."""
    assert context_of(named(value)) is None


def test_a_later_version_may_have_more() -> None:
    """What is known of it counts."""
    assert context_of(named(f"cc{TEXT[2:]}-what-else")) == CONTEXT


def test_who_does_not_record() -> None:
    """The flag says it, in either form; others of that octet do not matter."""
    for flags, found in (("00", None), ("02", None), ("f4", None), ("03", CONTEXT), ("ff", CONTEXT)):
        assert context_of(named(f"{TEXT[:-2]}{flags}")) == found
        assert context_of(named(BINARY[:-1] + bytes.fromhex(flags))) == found
        assert context_of(named(f"01{TEXT[2:-2]}{flags}-more")) == found


@pytest.mark.parametrize("state", [
    "a", "A=1", "a=", "a=1,", "=1", "a=1;b c=,d", "a=\x01", f"a={'x' * 600}",
    ",".join(f"k{n}=1" for n in range(33)), 7, b"a=1", "ä=1",
])  # fmt: skip
def test_what_is_no_tracestate(state: object) -> None:
    """The context is without it."""
    assert context_of(named(TEXT, state)) == CONTEXT


def test_it_begins_in_the_first_octets() -> None:
    """What stands behind the bound of what is looked at is not found."""
    for octets, found in ((LOOKED_AT_BYTES - 200, CONTEXT), (LOOKED_AT_BYTES, None)):
        properties = {"a": "x" * octets, "traceparent": TEXT}
        assert context_of(encode_message(application_properties=properties, body=b"x")) == found


def test_the_word_in_a_body_is_no_context() -> None:
    """Nor is a value, or a key of another map."""
    for body in (
        encode_message(body=f"traceparent {TEXT}".encode()),
        encode_message(application_properties={"a": "traceparent", "b": TEXT}, body=b"x"),
        encode_message(properties=Properties(subject="traceparent"), body=b"x"),
        encode_message(message_annotations={"x-opt-a": {"traceparent": TEXT}}, body=b"x"),
    ):
        assert context_of(body) is None


@given(st.dictionaries(st.text(max_size=20), st.one_of(st.text(max_size=60), st.integers(0, 9), st.binary())))
def test_any_values(properties: dict[str, object]) -> None:
    """Around the context, and in its place."""
    assert context_of(encode_message(application_properties={**properties, "traceparent": TEXT})) == CONTEXT
    for value in properties.values():
        context_of(encode_message(application_properties={**properties, "traceparent": value}))
