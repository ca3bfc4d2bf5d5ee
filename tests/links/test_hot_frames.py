"""The hot way of reading against the general one: the same events, however the bytes come, and never an
exception.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.frames import (
    AMQP_HEADER,
    RECEIVER,
    SENDER,
    Accepted,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Open,
    Received,
    Released,
    TransactionalState,
    encode_frame,
)
from amqp_broker.links import (
    CreditReceived,
    DeliveriesReceived,
    Delivery,
    Event,
    LinkDetached,
    OutcomesReceived,
    RunsReceived,
)
from tests.links.pair import Message, taken
from tests.links.raw_peer import WINDOW, RawPeer, flow, receiver_attach, sender_attach, transfer
from tests.support.examples import examples

OPENING = (
    AMQP_HEADER
    + encode_frame(0, Open(container_id="peer", max_frame_size=512))
    + encode_frame(0, Begin(next_outgoing_id=0, incoming_window=WINDOW, outgoing_window=WINDOW))
    + encode_frame(0, sender_attach(0, "up"))
    + encode_frame(0, receiver_attach(1, "down"))
)
STATES = [
    None, Accepted(), TransactionalState(txn_id=b"t"), TransactionalState(txn_id=b"u"),
    Received(section_number=1, section_offset=2),
]  # fmt: skip


def long_form(frame: bytes) -> bytes:
    """The same frame with a list32 instead of a list8, as other clients write it."""
    if frame[11] != 0xC0:
        return frame
    size, count = frame[12], frame[13]
    body = frame[8:11] + b"\xd0" + (size + 3).to_bytes(4, "big") + count.to_bytes(4, "big") + frame[14:]
    return (8 + len(body)).to_bytes(4, "big") + frame[4:8] + body


transfers = st.tuples(
    st.sampled_from([b"", b"t", b"tag!", b"x" * 32]),
    st.binary(max_size=40),
    st.sampled_from([None, True, False]),
    st.sampled_from([False, False, False, True]),
    st.booleans(),
    st.sampled_from(STATES),
    st.booleans(),
)
others = st.sampled_from(
    [
        encode_frame(0, flow(handle=1, delivery_count=0, link_credit=50)),
        encode_frame(0, flow(next_incoming_id=3, echo=True)),
        encode_frame(
            0, flow(handle=1, delivery_count=0, link_credit=2, drain=True, properties={"txn-id": b"t"})
        ),
        encode_frame(0, Disposition(role=RECEIVER, first=0, last=2, settled=True, state=Accepted())),
        encode_frame(0, Disposition(role=RECEIVER, first=3, settled=False, state=Released())),
        encode_frame(0, Disposition(role=SENDER, first=1, last=3, settled=True)),
        long_form(
            encode_frame(0, Disposition(role=RECEIVER, first=4, last=9, settled=True, state=Accepted()))
        ),
        b"\x00\x00\x00\x08\x02\x00\x00\x00",
        encode_frame(0, Detach(handle=1, closed=True)),
    ]
)


def stream(items: list[Any]) -> bytes:
    """The bytes of a dialogue: transfers with consecutive ids among other frames."""
    data = b""
    number = 0
    partial = False
    for item in items:
        if isinstance(item, bytes):
            data += item
            continue
        tag, body, settled, more, batchable, state, wide = item
        head = transfer(
            number, delivery_tag=tag, settled=settled, more=more, batchable=batchable, state=state
        )
        frame = encode_frame(0, head, body)
        if wide:
            frame = long_form(frame)
        data += frame
        partial = more
        if not partial:
            number += 1
    return data


def told(events: list[Event]) -> list[Any]:
    """Events as plain values; runs are joined, because where a run is cut depends on how the bytes came."""
    found: list[Any] = []
    each = [one for event in events for one in (event.runs if isinstance(event, RunsReceived) else [event])]
    for event in each:
        if isinstance(event, CreditReceived):
            continue
        if isinstance(event, DeliveriesReceived):
            if not (found and found[-1][0] == "deliveries" and found[-1][1] == event.link.name):
                found.append(("deliveries", event.link.name, []))
            found[-1][2].extend(fields(delivery) for delivery in event.deliveries)
        elif isinstance(event, OutcomesReceived):
            key = ("outcomes", event.link.name, event.state, event.settled)
            if not (found and found[-1][:4] == key):
                found.append((*key, []))
            found[-1][4].extend(delivery.delivery_id for delivery in event.deliveries)
        elif isinstance(event, LinkDetached):
            found.append(("detached", event.link.name, event.closed, len(event.unsettled), event.error))
        else:
            found.append((type(event).__name__,))
    return found


def fields(delivery: Delivery) -> tuple[Any, ...]:
    """A delivery as a tuple."""
    return (
        delivery.delivery_id,
        delivery.delivery_tag,
        delivery.message_format,
        delivery.settled,
        delivery.payload,
        delivery.state,
        delivery.rcv_settle_mode,
        delivery.batchable,
    )


def opened() -> RawPeer:
    """An engine with both kinds of links, and nine messages on their way to the peer."""
    peer = RawPeer(credit=40)
    peer.feed(OPENING)
    peer.feed(encode_frame(0, flow(handle=1, delivery_count=0, link_credit=9)))
    link: Any = peer.server.incoming[0].input_links[1]
    assert link.send([Message(b"m")] * 9) == 9
    peer.heard()
    peer.events.clear()
    return peer


def feed(peer: RawPeer, data: bytes, cuts: list[int]) -> list[Any]:
    """Feeds `data` in pieces and tells the events."""
    at = 0
    for cut in [*cuts, len(data)]:
        piece = data[at : at + cut]
        at += len(piece)
        if piece:
            peer.feed(piece)
    return told(peer.events)


@examples(120)
@given(st.lists(st.one_of(transfers, others), max_size=20), st.lists(st.integers(1, 200), max_size=20))
def test_however_the_bytes_come_the_events_are_the_same(items: list[Any], cuts: list[int]) -> None:
    """Whole, in random pieces, and byte by byte."""
    data = stream(items)
    whole = feed(opened(), data, [])
    assert feed(opened(), data, cuts) == whole
    assert feed(opened(), data, [1] * len(data)) == whole


@examples(300)
@given(st.lists(st.one_of(transfers, others), max_size=20))
def test_the_hot_way_says_what_the_general_way_says(items: list[Any]) -> None:
    """The same dialogue with the hot path switched off: same events, same answers, same state."""
    data = stream(items)
    hot = opened()
    hot_events = feed(hot, data, [])
    general = opened()
    general.server.hot_path = False
    general_events = feed(general, data, [])
    assert hot_events == general_events
    assert taken(hot.server) == taken(general.server)
    assert hot.server.state is general.server.state


@examples(300)
@given(
    st.lists(st.one_of(transfers, others), max_size=12),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=6),
    st.integers(0, 2),
)
def test_mutated_bytes_never_raise(items: list[Any], mutations: list[tuple[int, int]], how: int) -> None:
    """Changed, cut out or inserted octets anywhere, also in header, open, begin and attach: events, or the
    end.
    """
    data = bytearray(OPENING + stream(items) + encode_frame(0, End()) + encode_frame(0, Close()))
    for at, value in mutations:
        at %= len(data)
        if how == 0:
            data[at] = value
        elif how == 1:
            del data[at : at + 1 + value % 8]
            data += b"\0"
        else:
            data[at:at] = bytes((value,)) * (1 + value % 5)
    peer = RawPeer(credit=40)
    peer.feed(bytes(data))
    peer.server.handle_timeout(peer.now + 1_000)
    taken(peer.server)
    assert peer.server.settings.partial_bytes.used_bytes >= 0
    peer.server.receive_eof(peer.now)
    assert peer.server.settings.partial_bytes.used_bytes == 0
    assert not peer.server.sessions


@examples(100)
@given(st.binary(max_size=600), st.booleans())
def test_noise_never_raises(noise: bytes, opened_first: bool) -> None:
    """10,000 bytes of it or a few, at the start or in the middle."""
    peer = opened() if opened_first else RawPeer()
    peer.feed(noise)
    peer.feed(noise * 20)
    peer.server.receive_eof(peer.now)
    assert not peer.server.sessions


def test_a_run_across_reads_is_learnt_again() -> None:
    """A frame that is split between two reads does not end the run of its layout."""
    peer = opened()
    data = b"".join(encode_frame(0, transfer(number, settled=False), b"x" * 50) for number in range(1, 31))
    first = encode_frame(0, transfer(0, settled=False), b"x" * 50)
    peer.feed(first + data[:1_000])
    peer.feed(data[1_000:])
    (_, _, deliveries) = told(peer.events)[0]
    assert [item[0] for item in deliveries] == list(range(31))
    link: Any = peer.server.incoming[0].input_links[0]
    assert link.layout is not None


HANDLES = (0, 1, 300)
"""Of links on which the peer sends: as UINT0, as one octet, as four."""


def several(apart: bool = False) -> RawPeer:
    """An engine with three links on which the peer sends."""
    peer = RawPeer(credit=100)
    peer.feed(OPENING[: OPENING.index(encode_frame(0, sender_attach(0, "up")))])
    for handle in HANDLES:
        peer.attach_sender(handle, f"up{handle}").apart = apart
    peer.heard()
    peer.events.clear()
    return peer


def spread(turns: list[tuple[int, bytes, bool]]) -> bytes:
    """A transfer for each: which link's turn it is, its body, and whether it is settled."""
    return b"".join(
        encode_frame(0, transfer(number, handle=HANDLES[which], settled=settled), body)
        for number, (which, body, settled) in enumerate(turns)
    )


turns_of_links = st.lists(
    st.tuples(st.integers(0, 2), st.binary(max_size=300), st.sampled_from([False, False, False, True])),
    max_size=60,
)


def by_link(events: list[Any]) -> dict[str, list[Any]]:
    """What came on each link, in its order."""
    found: dict[str, list[Any]] = {}
    for _, name, deliveries in events:
        found.setdefault(name, []).extend(deliveries)
    return found


@examples(200)
@given(turns_of_links, st.lists(st.integers(1, 400), max_size=20))
def test_links_that_take_turns_are_read_as_the_general_way_reads_them(
    turns: list[tuple[int, bytes, bool]], cuts: list[int]
) -> None:
    """The same events in the same order; told apart, the same for each link, and at most once in a read."""
    data = spread(turns)
    general = several()
    general.server.hot_path = False
    wanted = feed(general, data, [])
    hot = several()
    assert feed(hot, data, cuts) == wanted
    assert taken(hot.server) == taken(general.server)
    apart = several(apart=True)
    told_apart = feed(apart, data, [])
    assert by_link(told_apart) == by_link(wanted)
    assert len(told_apart) == len(by_link(wanted))


def test_runs_of_links_that_are_apart_are_one_event() -> None:
    """One for all that came with nothing else between it; a single run is told as itself."""
    peer = several(apart=True)
    assert [type(event) for event in peer.feed(spread([(0, b"a", False), (0, b"b", False)]))] == [
        DeliveriesReceived
    ]
    turns = [(at % 3, b"%d" % at, False) for at in range(8)]
    (event,) = peer.feed(spread(turns)[len(spread(turns[:2])) :])
    assert isinstance(event, RunsReceived)
    assert [(run.link.name, len(run.deliveries)) for run in event.runs] == [
        ("up300", 2), ("up0", 2), ("up1", 2),
    ]  # fmt: skip


def test_a_layout_holds_across_a_change_of_handle() -> None:
    """The second transfer of each link looks like its first one, whatever came between them."""
    peer = several()
    links: list[Any] = [peer.server.incoming[0].input_links[handle] for handle in HANDLES]
    order = (0, 0, 1, 2, 2, 1, 0, 1, 2, 0)
    data = [spread([(which, b"x" * 50, False) for which in order[:end]]) for end in (4, len(order))]
    peer.feed(data[0])
    layouts = [link.layout for link in links]
    assert None not in layouts
    peer.feed(data[1][len(data[0]) :])
    assert sum(link.flow_state.delivery_count for link in links) == len(order)
    assert all(link.layout is layout for link, layout in zip(links, layouts, strict=True))


def test_what_is_told_in_between_keeps_its_place() -> None:
    """A transfer of a link that is not apart, and any other frame, end what is put together."""
    peer = several(apart=True)
    links: list[Any] = [peer.server.incoming[0].input_links[handle] for handle in HANDLES]
    links[2].apart = False
    order = [0, 1, 0, 2, 0, 1, 0]
    came = feed(peer, spread([(which, b"%d" % at, False) for at, which in enumerate(order)]), [])
    assert [(name, [each[0] for each in items]) for _, name, items in came] == [
        ("up0", [0, 2]), ("up1", [1]), ("up300", [3]), ("up0", [4, 6]), ("up1", [5]),
    ]  # fmt: skip
    detach = encode_frame(0, Detach(handle=1, closed=True))
    rest = [
        encode_frame(0, transfer(at, handle=HANDLES[which], settled=False), b"x")
        for at, which in ((7, 0), (8, 1), (9, 0))
    ]
    peer.events.clear()
    came = feed(peer, rest[0] + rest[1] + detach + rest[2], [])
    assert [item[1] for item in came if item[0] == "deliveries"] == ["up0", "up1", "up0"]
