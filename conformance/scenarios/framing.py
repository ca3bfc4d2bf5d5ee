"""Frames (2.3): their header, malformed ones, and how they may be cut on their way."""

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Peer
from amqp_broker.conformance.octets import BEGIN, NULL, described, frame, list8, string8, uint
from amqp_broker.conformance.scenario import Case, cases, scenario
from amqp_broker.frames import Begin, Close, Open, encode_composite, encode_frame
from amqp_broker.frames.sasl import SaslInit

FRAMING = "amqp:connection:framing-error"

BEGIN_BODY = described(BEGIN, list8(NULL, uint(0), uint(100), uint(100)))


@cases(
    Case("2.3.1/size-zero", "2.3.1-small-size 2.8.16-framing-error 2.4.3-01",
         "A frame that says it has no octets is malformed: close with framing-error.",
         frame(size=0), "frame with size 0", FRAMING, breaks="2.3.1-small-size"),
    Case("2.3.1/size-seven", "2.3.1-small-size 2.8.16-framing-error 2.4.3-01",
         "A frame smaller than its own header is malformed: close with framing-error.",
         frame(size=7), "frame with size 7", FRAMING, breaks="2.3.1-small-size"),
    Case("2.3.1/doff-one", "2.3.1-small-doff 2.8.16-framing-error 2.4.3-01",
         "A data offset inside the frame header is malformed: close with framing-error.",
         frame(BEGIN_BODY, doff=1), "begin with DOFF 1", FRAMING, breaks="2.3.1-small-size"),
    Case("2.3.1/doff-zero", "2.3.1-small-doff 2.8.16-framing-error 2.4.3-01",
         "A data offset of zero is malformed: close with framing-error.",
         frame(BEGIN_BODY, doff=0), "begin with DOFF 0", FRAMING, breaks="2.3.1-small-size"),
    Case("2.3.1/doff-beyond", "2.3.1-01 2.8.16-framing-error 2.4.3-01",
         "A data offset behind the end of the frame is malformed: close with framing-error.",
         frame(BEGIN_BODY, doff=200), "begin with DOFF 200", FRAMING, breaks="2.3.1-small-size"),
    Case("2.3.1/unknown-type", "2.3.1-type 2.4.3-01",
         "A frame of an unknown type is not taken for an AMQP frame: the connection is closed.",
         frame(BEGIN_BODY, frame_type=0x7F), "begin in a frame of type 0x7f", breaks="2.3.1-small-size"),
)
def _malformed(broker: Broker, octets: bytes, what: str, *conditions: str) -> None:
    """Sends octets after open; expects close with one of ``conditions``, and a broker that lives on."""
    peer, _ = broker.opened()
    peer.send_octets(octets, what)
    peer.expect_close(*conditions)
    broker.still_serves()


@cases(
    Case("2.3.2/not-described", "2.4.3-01",
         "A body that is a plain string is no performative: a broker that refuses it says why.",
         frame(string8("begin")), "a string as the body", breaks="2.3.2-01"),
    Case("2.3.2/unknown-performative", "2.4.3-01",
         "A described list that is none of the performatives: a broker that refuses it says why.",
         frame(described(0x1F, list8())), "a described list 0x1f", breaks="2.3.2-01"),
    Case("2.3.2/sasl-performative", "2.4.3-01",
         "A sasl-init in an AMQP frame is none of the performatives: a broker that refuses it says why.",
         frame(encode_composite(SaslInit(mechanism="ANONYMOUS"))), "sasl-init in an AMQP frame",
         breaks="2.3.2-01"),
    Case("2.3.2/cut-performative", "2.4.3-01",
         "A frame that ends within its performative: a broker that refuses it says why.",
         frame(BEGIN_BODY[:-6]), "begin without its last 6 octets", breaks="2.3.2-01"),
)
def _no_performative(broker: Broker, octets: bytes, what: str) -> None:
    """Sends what is no performative; expects an error if anything, and a broker that lives on."""
    peer, _ = broker.opened()
    peer.send_octets(octets, what)
    peer.expect_error_if_any()
    broker.still_serves()


@scenario("2.3.1/sasl-type", "2.3.1-type", "2.4.3-01", breaks="2.2-01 5.3.2-03")
def sasl_type(broker: Broker, peer: Peer) -> None:
    """A SASL frame on an open AMQP connection is an error: the connection is closed."""
    peer.send_sasl(SaslInit(mechanism="ANONYMOUS"))
    peer.expect_close()
    broker.still_serves()


@scenario("2.3.1/size-counts-everything", "2.3.1-01")
def size_counts_everything(peer: Peer) -> None:
    """The size is that of header, extended header and body: two frames in one write are two frames."""
    peer.send_octets(
        frame(BEGIN_BODY, channel=0) + frame(BEGIN_BODY, channel=1), "begin on channel 0, begin on channel 1"
    )
    first, second = peer.expect(Begin), peer.expect(Begin)
    assert {first.remote_channel, second.remote_channel} == {0, 1}


@scenario("2.3/extended-header", "2.3-extended", "2.3.1-01")
def extended_header(peer: Peer) -> None:
    """An extended header is passed over: the body begins where DOFF says."""
    peer.send_octets(
        frame(BEGIN_BODY, doff=4, extended=b"\xff" * 8), "begin with 8 octets of extended header"
    )
    peer.expect(Begin, remote_channel=0)


@scenario("2.3/octet-by-octet", "2.3.1-01", "2.1-01")
def octet_by_octet(peer: Peer) -> None:
    """A frame that arrives octet by octet is a frame."""
    for octet in encode_frame(0, Begin(next_outgoing_id=0, incoming_window=9, outgoing_window=9)):
        peer.send_octets(bytes([octet]))
    peer.expect(Begin, remote_channel=0)


@scenario("2.3/cut-anywhere", "2.3.1-01", "2.1-01")
def cut_anywhere(peer: Peer) -> None:
    """Two frames whose boundary lies within one write arrive as two frames."""
    octets = frame(BEGIN_BODY) + encode_frame(0, Close())
    peer.send_octets(octets[: len(octets) - 9], "begin, and a part of close")
    peer.expect(Begin)
    peer.send_octets(octets[len(octets) - 9 :], "the rest of close")
    peer.close_sent = True
    peer.expect_close()


@cases(
    Case("2.3.2/channel", "2.3.2-channel 2.3.2-01",
         "The channel of a frame is octets 6 and 7 of its header.",
         BEGIN_BODY, "begin"),
    Case("2.3.2/empty-frame-on-a-channel", "2.4.5-any-channel",
         "An empty frame on any valid channel is taken, also where no session is.",
         b"", "empty frame"),
)
def _on_a_channel(broker: Broker, body: bytes, what: str) -> None:
    """Sends a frame on a channel that is not 0: begin is answered there, and an empty one does no harm."""
    peer, opened = broker.opened()
    number = min(opened.channel_max if opened.channel_max is not None else 65535, 3)
    peer.send_octets(frame(body, channel=number), f"{what} on channel {number}")
    if not body:
        number = 0
        peer.put(Begin(next_outgoing_id=0, incoming_window=9, outgoing_window=9))
    peer.expect(Begin, remote_channel=number)


@scenario("2.3.2/empty-frame", "2.4.5-empty", "2.4.5-any-channel")
def empty_frame(peer: Peer) -> None:
    """Empty frames have no meaning: nothing is answered, nothing breaks."""
    for _ in range(3):
        peer.send_empty_frame()
    peer.put(Begin(next_outgoing_id=0, incoming_window=9, outgoing_window=9))
    peer.expect(Begin, remote_channel=0)


@scenario("2.3/half-frame-then-end", "2.1-01")
def half_frame_then_end(broker: Broker, peer: Peer) -> None:
    """A stream that ends within a frame ends the connection, and the broker lives on."""
    peer.send_octets(frame(BEGIN_BODY)[:11], "the first 11 octets of begin")
    peer.finish_sending()
    _read_to_the_end(peer)
    broker.still_serves()


@scenario("2.3/half-frame-then-silence", "2.1-01")
def half_frame_then_silence(broker: Broker, peer: Peer) -> None:
    """Who waits within a frame keeps nobody else waiting."""
    peer.send_octets(frame(BEGIN_BODY)[:5], "the first 5 octets of begin")
    broker.still_serves()
    peer.send_octets(frame(BEGIN_BODY)[5:], "the rest")
    peer.expect(Begin, remote_channel=0)


@scenario("2.3/open-in-the-smallest-frame", "2.7.1-06", "2.8.19-02")
def smallest_frame(broker: Broker) -> None:
    """An open of exactly 512 octets is accepted: the size that everyone must accept."""
    peer = broker.logged_in()
    octets = encode_frame(0, Open(container_id="x" * 300, hostname=""))
    padding = 512 - len(octets)
    octets = encode_frame(0, Open(container_id="x" * 300, hostname="h" * padding))
    assert len(octets) == 512, len(octets)
    peer.send_octets(octets, "open of 512 octets")
    peer.expect(Open)


def _read_to_the_end(peer: Peer) -> None:
    """Reads until the broker closes its side; it may say close before."""
    frame_or_end = peer.read_until_end()
    assert all(isinstance(one, Close) for one in frame_or_end), frame_or_end
