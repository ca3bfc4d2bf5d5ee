"""Bad input: noise, bombs and floods. The broker answers with an error where it can, and lives on."""

import random

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Peer, Session
from amqp_broker.conformance.messages import data
from amqp_broker.conformance.octets import NULL, OPEN, array32, described, frame, string8, symbol8
from amqp_broker.conformance.outcomes import Unexpected, expect
from amqp_broker.conformance.scenario import Case, cases, scenario
from amqp_broker.conformance.wire import ANY_ERROR
from amqp_broker.frames import Attach, Begin, Close, End, Flow, Open, Source, Target, encode_frame

ID = string8("conformance-hostile")


def _open_with_properties(broker: Broker, properties: bytes, what: str) -> Peer:
    """Sends an open with these octets as its properties."""
    peer = broker.logged_in()
    body = b"".join((ID, NULL * 8, properties))
    octets = described(OPEN, b"\xd0" + (len(body) + 4).to_bytes(4, "big") + (10).to_bytes(4, "big") + body)
    peer.send_octets(frame(octets), what)
    return peer


def _map_with(value: bytes) -> bytes:
    """Returns a map of one entry, with sizes of four octets."""
    return b"\xd1" + (len(value) + 7).to_bytes(4, "big") + b"\x00\x00\x00\x02" + symbol8("x") + value


def _read_what_comes(broker: Broker, peer: Peer) -> None:
    """Reads until the end or silence; what counts is that the broker lives on."""
    try:
        peer.read_until_end(timeout_s=1)
    except Unexpected as silence:
        broker.transcript.event("", str(silence))
    broker.still_serves()


@scenario("2.2/noise", "2.2-10", alone=True)
def noise_first(broker: Broker) -> None:
    """10,000 octets of noise instead of a header: a valid header back, then the end."""
    peer = broker.connect()
    peer.send_octets(random.Random(1).randbytes(10_000), "10,000 octets of noise")
    header = peer.expect_header(None)
    expect(header.octets[:4] == b"AMQP", f"the answer to noise is no protocol header: {header.octets!r}")
    peer.expect_eof()
    broker.still_serves()


@scenario("2.3/noise", "2.8.16-framing-error", "2.4.3-01", alone=True)
def noise_after_open(broker: Broker, peer: Peer) -> None:
    """10,000 octets of noise instead of frames: the connection ends, and the broker lives on."""
    peer.send_octets(b"\xff" * 4 + random.Random(2).randbytes(9_996), "10,000 octets of noise")
    peer.expect_close(ANY_ERROR)
    broker.still_serves()


@scenario("2.3/huge-size", "2.7.1-05", "2.8.16-framing-error", profile="full", alone=True)
def huge_size(broker: Broker) -> None:
    """A frame that announces 4 GiB is refused when its header is seen: close with framing-error."""
    peer, opened = broker.opened()
    if opened.max_frame_size == 0xFFFF_FFFF:
        peer.send_octets(frame(size=0xFFFF_FFFF), "the header of a frame of 4 GiB")
        _read_what_comes(broker, peer)
        return
    peer.send_octets(frame(size=0xFFFF_FFFF), "the header of a frame of 4 GiB")
    peer.expect_close("amqp:connection:framing-error")
    broker.still_serves()


@scenario(
    "1.2/deep-nesting", "2.4.3-01", "1.2.3-compound", alone=True,
    breaks="2.3.2-01 2.4.1-01 2.7.1-04",
)  # fmt: skip
def deep_nesting(broker: Broker) -> None:
    """Lists within lists, 1,500 deep, are valid: taken, or refused with an error; the broker lives on."""
    value = b"\x45"
    for _ in range(1_500):
        body = value
        value = b"\xd0" + (len(body) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x01" + body
    peer = _open_with_properties(broker, _map_with(value), "open with lists 1,500 deep")
    answer = peer.expect_frame(Open, Close, timeout_s=10).performative
    if isinstance(answer, Open):
        answer = peer.expect_frame(Close, object, timeout_s=1).performative if peer.has_more() else None
    if isinstance(answer, Close) and answer.error is None:
        raise Unexpected("the broker refused without an error")
    broker.still_serves()


@cases(
    Case("1.2/deep-descriptors", "2.4.3-01",
         "Descriptors of descriptors, 5,000 deep: a broker that refuses them says why, and lives on.",
         _map_with(b"\x00" * 5_000 + NULL), "open with descriptors 5,000 deep", alone=True,
         breaks="2.3.2-01 2.4.1-01"),
    Case("1.2/count-bomb-list", "2.4.3-01",
         "A list that says it has four thousand million items: a broker that refuses it says why.",
         _map_with(b"\xd0\x00\x00\x00\x08\xff\xff\xff\xff" + NULL * 4),
         "open with a list of 4,294,967,295 items",
         alone=True, breaks="2.3.2-01 2.4.1-01"),
    Case("1.2/count-bomb-map", "2.4.3-01",
         "A map that says it has four thousand million items: a broker that refuses it says why.",
         b"\xd1\x00\x00\x00\x06\xff\xff\xff\xfe" + NULL * 2, "open with a map of 4,294,967,294 items",
         alone=True, breaks="2.3.2-01 2.4.1-01"),
    Case("1.2/count-bomb-array", "2.4.3-01",
         "An array of four thousand million values of no octets: a broker that refuses it says why.",
         _map_with(b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x40"),
         "open with an array of 4,294,967,295 nulls",
         profile="full", alone=True, breaks="2.3.2-01 2.4.1-01"),
    Case("1.2/array-size-lies", "2.4.3-01",
         "An array that ends behind its frame: a broker that refuses it says why, and lives on.",
         _map_with(b"\xf0" + (5000).to_bytes(4, "big") + array32(0x50, b"\x01")[5:]),
         "open with an array of 5,000 octets that are not there",
         alone=True, breaks="2.3.2-01 2.4.1-01"),
)
def _bad_open(broker: Broker, properties: bytes, what: str) -> None:
    """Sends an open whose properties are bad; expects an error if anything, and a broker that lives on."""
    _open_with_properties(broker, properties, what).expect_error_if_any()
    broker.still_serves()


@scenario("2.5/many-begins", "2.5.1-allocates", "2.5.2-end", profile="full", alone=True)
def many_begins(peer: Peer) -> None:
    """A hundred sessions begun and ended in one write: each is answered."""
    begin = Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)
    one = encode_frame(0, begin) + encode_frame(0, End())
    peer.send_octets(100 * one, "a hundred times begin and end")
    for _ in range(100):
        peer.expect(Begin, timeout_s=10)
        peer.expect(End, timeout_s=10)


@scenario("2.7.4/echo-storm", "2.6.10-echo", "2.5-many", alone=True)
def echo_storm(broker: Broker, session: Session) -> None:
    """A thousand flows that ask for an echo in one write: the broker goes on working."""
    sender = session.sender(broker.queue())
    sender.await_credit()
    with session.peer.one_write():
        for _ in range(1_000):
            session.flow(handle=0, delivery_count=0, echo=True)
    sender.put([data(b"still working")])


@scenario("2.7.4/wild-credit", "2.7.4-link-credit", "2.6.7-serial", alone=True, breaks="2.7.4-04")
def wild_credit(broker: Broker, session: Session) -> None:
    """Credit from a delivery-count far away is credit by serial arithmetic; the broker lives on."""
    session.sender(broker.queue()).put([data(b"x")])
    session.receiver(broker.queue())
    session.flow(handle=1, delivery_count=0x7FFF_FFFF, link_credit=0xFFFF_FFFF)
    session.peer.expect_nothing(Close, within_s=0.2)
    broker.still_serves()


@scenario("2.4/dropped-anywhere", "2.5.2-automatic", "2.1-01", alone=True)
def dropped_anywhere(broker: Broker) -> None:
    """Connections dropped after each step of a dialogue cost nobody else anything."""
    for steps in range(1, 6):
        peer = broker.logged_in()
        dialogue = [
            broker.own_open(),
            Begin(next_outgoing_id=0, incoming_window=10, outgoing_window=10),
            Attach(name="in", handle=0, role=True, source=Source(address=broker.queue()), target=Target()),
            Flow(incoming_window=10, next_outgoing_id=0, outgoing_window=10, handle=0, link_credit=10),
            Close(),
        ]
        for performative in dialogue[:steps]:
            peer.put(performative)
        peer.drop()
    broker.still_serves()


@scenario("2.4/many-connections", "2.4.1-capabilities", alone=True)
def many_connections(broker: Broker) -> None:
    """Twenty connections are open at the same time, and one that says nothing does not hinder them."""
    broker.connect()
    peers = [broker.opened(container=f"{number}")[0] for number in range(20)]
    for peer in peers:
        peer.close()
