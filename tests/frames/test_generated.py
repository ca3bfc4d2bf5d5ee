"""The generated readers and writers against the general codec: the same values, or no answer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.frames import (
    Accepted,
    Attach,
    DecodeError,
    Described,
    Discharge,
    Disposition,
    Error,
    Flow,
    Rejected,
    Released,
    Symbol,
    TransactionalState,
    Transfer,
    Ubyte,
    Uint,
    Ulong,
    decode_composite,
    encode_composite,
    generated,
)
from amqp_broker.frames.hot_frames import encode_disposition, encode_flow, link_fields
from tests.frames.generate import GENERATED, READERS, Reader, text
from tests.frames.samples import CLIENT_TRANSFERS, decoded
from tests.strategies import composites_of, encoded, integers
from tests.support.examples import examples

BY_CODE = {reader.declaration.code: reader for reader in READERS}

uints = st.none() | integers(32).map(Uint)
flags = st.none() | st.booleans()
tags = st.none() | st.binary(max_size=32) | st.just(b"t" * 33)
modes = st.none() | st.sampled_from([Ubyte(0), Ubyte(1), Ubyte(2)])
plain_outcomes = [None, Described(Ulong(0x24), []), Described(Ulong(0x26), [])]
states = st.sampled_from(
    [*plain_outcomes, Described(Ulong(0x34), [b"txn"]), Described(Symbol("amqp:released:list"), [])]
)
# Also null for mandatory fields.
FIELDS: dict[Any, tuple[st.SearchStrategy[Any], ...]] = {
    Flow: (*[uints] * 8, flags, flags, st.none() | st.just({})),
    Transfer: (uints, uints, tags, uints, flags, flags, modes, states, flags, flags, flags),
    Disposition: (flags, uints, uints, flags, states, flags),
    TransactionalState: (tags, states),
    Discharge: (tags, flags),
}


def test_the_file_is_what_the_program_writes() -> None:
    """Whoever changes a declaration or the program runs it: `python -m tests.frames.generate`."""
    assert GENERATED.read_text() == text()


def test_every_reader_is_compared() -> None:
    """The table above has the fields of each composite that has a reader."""
    assert {reader.declaration.make for reader in READERS} == set(FIELDS)
    assert all(len(FIELDS[reader.declaration.make]) == len(reader.declaration.fields) for reader in READERS)


@st.composite
def hot_composites(draw: st.DrawFn) -> bytes:
    """One composite with its fields in any encoding, left out after some of them."""
    reader = draw(st.sampled_from(READERS))
    values = [draw(field) for field in FIELDS[reader.declaration.make]]
    count = draw(st.integers(reader.declaration.required_count, len(values)))
    # The descriptor as the smallulong of real clients, the list in any form.
    return reader.declaration.prefix + draw(encoded(values[:count]))


def general(data: bytes, stop: int) -> tuple[Any, int] | None:
    """What the general decoder says, and where the composite ends; None for an error."""
    try:
        return decode_composite(data[:stop])
    except DecodeError:
        return None


def results_of(reader: Reader, found: Any) -> dict[str, Any]:
    """What a reader says, by name."""
    names = [name for name, _, _ in reader.results(len(reader.declaration.fields))]
    if reader.form == "tuple":
        return dict(zip(names, found, strict=True))
    return {name: getattr(found, name) for name in names}


def compare(data: bytes, stop: int) -> bool:
    """Whether the reader knew the composite; if it did, it said what the general decoder says."""
    reader = BY_CODE[data[2]]
    read = getattr(generated, f"read_{reader.declaration.name.replace('-', '_')}")
    found = read(data[:stop]) if reader.form == "composite" else read(data, 0, stop)
    if found is None:
        return False
    known = general(data, stop)
    said = results_of(reader, found)
    if known is None:
        assert said["state_at"] >= 0  # it stays encoded; what decodes it refuses it
        return True
    composite, end = known
    if reader.form == "composite":
        assert found == composite and end == stop
        return True
    assert end == (found.payload_at if reader.payload else stop)
    for name, _, absent in reader.results(len(reader.declaration.fields)):
        if name.endswith("_at"):
            place = slice(said[name], said[name.replace("_at", "_end")])
            assert (said[name] < 0) is (composite.state is None)
            assert said[name] < 0 or decode_state(data[place]) == composite.state
        elif not name.endswith("_end"):
            unset = composite.first if absent == "first" else {"None": None, "-1": -1}.get(absent)
            value = getattr(composite, name)
            assert said[name] == (unset if value is None else value), name
    return True


def decode_state(data: bytes) -> Any:
    """A delivery-state on its own: `Described` where it is nobody's that the standard knows."""
    whole = b"\x00\x53\x15\xd0" + (len(data) + 4 + 4).to_bytes(4, "big") + b"\x00\x00\x00\x05"
    return decode_composite(whole + b"\x41\x43\x40\x42" + data)[0].state


@examples(600)
@given(hot_composites(), st.sampled_from([b"", b"payload"]))
def test_what_is_read_is_what_the_general_decoder_says(composite: bytes, payload: bytes) -> None:
    """Every encoding of every field, with and without a payload behind."""
    data = composite + payload
    compare(data, len(data))


@examples(1_000)
@given(
    hot_composites(),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3),
    st.integers(0, 12),
    st.binary(max_size=12),
)
def test_mutations_are_refused_or_read_the_same(
    composite: bytes, changes: list[tuple[int, int]], cut: int, behind: bytes
) -> None:
    """Changed or cut octets never raise, never reach behind the frame, never mean something else."""
    data = bytearray(composite)
    for at, value in changes:
        data[3 + at % (len(data) - 3)] = value
    del data[len(data) - min(cut, len(data) - 3) :]
    compare(bytes(data) + behind, len(data))


@examples(300)
@given(st.one_of([composites_of(reader.declaration) for reader in READERS]))
def test_what_our_encoder_writes_is_read(composite: Any) -> None:
    """No composite goes the slow way but those whose values a reader leaves out."""
    data = encode_composite(composite)
    usual = getattr(composite, "outcome", None) is None or isinstance(composite.outcome, Accepted | Released)
    assert compare(data, len(data)) == (usual and getattr(composite, "properties", None) is None)


def test_the_layouts_of_real_clients_are_read() -> None:
    """Those of the C load client, proton, rhea, qpid-jms, go-amqp and fe2o3."""
    disposition = b"\x00\x53\x15\xc0\x0b\x06\x41\x52\x05\x40\x41\x00\x53\x24\x45\x42"
    for body in (*CLIENT_TRANSFERS, disposition):
        assert compare(body, len(body))


def test_other_composites_are_not_read() -> None:
    """The readers know their own descriptor only."""
    data = encode_composite(Attach(name="n", handle=0, role=True))
    assert generated.read_transfer(data, 0, len(data)) is None
    assert generated.read_disposition(data, 0, len(data)) is None
    assert generated.read_flow(data, 0, len(data)) is None
    assert generated.read_transactional_state(data) is None


@pytest.mark.parametrize(
    "composite",
    [
        Transfer(handle=0, delivery_id=9, delivery_tag=b"tag!"),
        Disposition(role=True, first=1, last=2, settled=True),
        Flow(incoming_window=1, next_outgoing_id=1, outgoing_window=1, handle=3),
        TransactionalState(txn_id=b"t", outcome=Accepted()),
    ],
)
def test_fields_beyond_the_count_are_refused(composite: Any) -> None:
    """A list that holds more than it counts, or less, is no list."""
    for wrong in (-1, 1):
        body = bytearray(encode_composite(composite))
        body[5] += wrong
        assert not compare(bytes(body), len(body))


def test_a_boolean_of_nothing_is_no_field() -> None:
    """A described value where a boolean should be is not read as one that is left out."""
    data = b"\x00\x53\x15\xc0\x08\x05\x41\x43\x40\x00\x53\x24\x45"
    assert general(data, len(data)) is None and not compare(data, len(data))


def test_a_settle_mode_that_is_none_is_refused() -> None:
    """2.8.3: 0 and 1 are the modes; the general decoder says so."""
    body = b"\x00\x53\x14\xc0\x0c\x07\x43\x52\x09\xa0\x01t\x43\x42\x42\x50\x02"
    body = body[:4] + bytes((len(body) - 5,)) + body[5:]
    assert not compare(body, len(body))
    assert compare(body[:-1] + b"\x01", len(body))


def test_a_tag_of_33_octets_is_refused() -> None:
    """2.8.7: a delivery-tag has up to 32."""
    for octets in (32, 33):
        list_octets = b"\x43\x43\xa0" + bytes((octets,)) + b"t" * octets
        data = b"\x00\x53\x14\xc0" + bytes((len(list_octets) + 1, 3)) + list_octets
        assert compare(data, len(data)) == (octets == 32)


channels = integers(16)
numbers = integers(32)


@given(channels, st.booleans(), numbers, numbers, st.booleans(), st.sampled_from([0, 1, 200, 400]))
def test_a_disposition_is_what_was_meant(
    channel: int, role: bool, first: int, last: int, settled: bool, text: int
) -> None:
    """With and without a state, also with one that needs a list32."""
    state = Rejected(error=Error(condition="x", description="d" * text)) if text else None
    encoded = b"" if state is None else encode_composite(state)
    frame = decoded(encode_disposition(channel, role, first, last, settled, encoded))
    assert frame.channel == channel
    assert frame.performative == Disposition(role=role, first=first, last=last, settled=settled, state=state)


@given(
    channels, st.just(-1) | numbers, numbers, numbers, numbers,
    st.none() | st.tuples(numbers, st.none() | numbers, numbers, st.none() | numbers, st.booleans(),
    st.booleans(), st.none() | st.integers(0, 400)),
)  # fmt: skip
def test_a_flow_is_what_was_meant(
    channel: int, next_in: int, window: int, next_out: int, out_window: int, link: Any
) -> None:
    """For the session alone, and with the fields of a link behind, also when the list is a long one."""
    flow = Flow(
        next_incoming_id=None if next_in < 0 else next_in, incoming_window=window, next_outgoing_id=next_out,
        outgoing_window=out_window,
    )  # fmt: skip
    fields = (b"", 0)
    if link is not None:
        flow.handle, flow.delivery_count, flow.link_credit, flow.available, flow.drain, flow.echo, size = link
        flow.properties = None if size is None else {"txn-id": b"t" * size}
        count, available = (-1 if each is None else each for each in (flow.delivery_count, flow.available))
        fields = link_fields(
            flow.handle, count, flow.link_credit, available, flow.drain, flow.echo, flow.properties
        )
    frame = decoded(encode_flow(channel, next_in, window, next_out, out_window, *fields))
    assert frame.performative == flow and frame.channel == channel
