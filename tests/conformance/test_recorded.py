"""Recorded dialogues: captures and traces of a real client, judged by the table of rules."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dpkt
import pytest

from amqp_broker.client import connect
from amqp_broker.conformance.command_line import main
from amqp_broker.conformance.recorded import Unreadable, read, told
from amqp_broker.frames import AMQP_HEADER, Begin, Close, Open, Transfer, encode_frame
from amqp_broker.testing import running_broker
from amqp_broker.testing.traces import FrameTrace

CLIENT_END, SERVER_END = (b"\x7f\x00\x00\x01", 40_000), (b"\x7f\x00\x00\x01", 5672)
Written = tuple[str, bytes]
"""Who wrote, and what."""


@contextmanager
def _watched(port: int) -> Iterator[tuple[int, list[Written]]]:
    """A port that leads to another, and what passed there, in order."""
    written: list[Written] = []
    lock = threading.Lock()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def carry(side: str, here: socket.socket, there: socket.socket) -> None:
            while octets := here.recv(65536):
                with lock:
                    written.append((side, octets))
                    there.sendall(octets)
            there.shutdown(socket.SHUT_WR)

        def serve() -> None:
            client, _ = listener.accept()
            with client, socket.create_connection(("127.0.0.1", port)) as broker:
                back = threading.Thread(target=carry, args=("S", broker, client))
                back.start()
                carry("C", client, broker)
                back.join()

        server = threading.Thread(target=serve)
        server.start()
        yield listener.getsockname()[1], written
        server.join()


@pytest.fixture(scope="module")
def dialogue() -> list[Written]:
    """What our client and broker write when a message is sent and received."""
    with running_broker() as broker, _watched(broker.port) as (port, written):
        with connect(f"amqp://127.0.0.1:{port}") as client:
            client.open_sender("orders").send(b"the message" * 10_000)
            receiver = client.open_receiver("orders")
            receiver.accept(receiver.receive(20))
    return written


def _packets(written: list[Written], segment: int = 700) -> list[bytes]:
    """Ethernet packets of TCP segments, from its SYN on, with sequence numbers that wrap around."""
    numbers = {"C": 2**32 - 300, "S": 5}
    packets = [
        _packet("C", numbers["C"], b"", dpkt.tcp.TH_SYN),
        _packet("S", numbers["S"], b"", dpkt.tcp.TH_SYN | dpkt.tcp.TH_ACK, numbers["C"] + 1),
    ]
    numbers = {side: number + 1 for side, number in numbers.items()}
    for side, octets in written:
        read = numbers["S" if side == "C" else "C"] % 2**32
        for at in range(0, len(octets), segment):
            piece = octets[at : at + segment]
            packets.append(_packet(side, numbers[side] % 2**32, piece, dpkt.tcp.TH_ACK, read))
            numbers[side] += len(piece)
    return packets


def _packet(side: str, sequence: int, octets: bytes, flags: int, read: int = 0) -> bytes:
    (source, sport), (target, dport) = (CLIENT_END, SERVER_END)[:: 1 if side == "C" else -1]
    segment = dpkt.tcp.TCP(sport=sport, dport=dport, seq=sequence, ack=read, flags=flags, data=octets)
    packet = dpkt.ip.IP(src=source, dst=target, p=dpkt.ip.IP_PROTO_TCP, data=segment)
    packet.len = len(packet)
    return bytes(dpkt.ethernet.Ethernet(data=packet, type=dpkt.ethernet.ETH_TYPE_IP))


def _capture(path: Path, packets: list[bytes], writer: type = dpkt.pcap.Writer) -> Path:
    with path.open("wb") as file:
        capture = writer(file)
        for at, packet in enumerate(packets):
            capture.writepkt(packet, ts=1_700_000_000 + at / 1000)
    return path


def _bad(written: list[Written]) -> list[Written]:
    """The same dialogue, to whose end the client adds a transfer on a handle of nobody."""
    return [*written, ("C", AMQP_HEADER + encode_frame(0, Open(container_id="late")))]


@pytest.mark.parametrize("writer", [dpkt.pcap.Writer, dpkt.pcapng.Writer], ids=["pcap", "pcapng"])
def test_a_real_dialogue_breaks_no_rule(dialogue: list[Written], tmp_path: Path, writer: type) -> None:
    """Our client and our broker keep the rules, as they are watched from the network."""
    (recording,) = read(_capture(tmp_path / "capture", _packets(dialogue), writer))
    assert recording.dialogue.breaches == [] and recording.complete
    assert recording.dialogue.count > 20


LINK_LAYERS = {
    "vlan": (1, bytes(12) + b"\x81\x00\x00\x07\x08\x00"),
    "two vlans": (1, bytes(12) + b"\x88\xa8\x00\x07\x81\x00\x00\x08\x08\x00"),
    "linux cooked": (113, bytes(14) + b"\x08\x00"),
    "linux cooked 2": (276, b"\x08\x00" + bytes(18)),
    "loopback": (0, b"\x02\x00\x00\x00"),
    "raw": (101, b""),
}
"""Number of the link layer, and what stands before an IP packet."""


@pytest.mark.parametrize("layer", LINK_LAYERS)
def test_what_carries_ip_is_taken_off(dialogue: list[Written], tmp_path: Path, layer: str) -> None:
    """Whatever the capture was taken on, the dialogue is the same."""
    number, before = LINK_LAYERS[layer]
    ethernet = 14
    path = tmp_path / "capture"
    with path.open("wb") as file:
        capture = dpkt.pcap.Writer(file, linktype=number)
        for packet in _packets(dialogue):
            capture.writepkt(before + packet[ethernet:], ts=1)
    (recording,) = read(path)
    assert recording.dialogue.breaches == [] and recording.complete and recording.dialogue.count > 20


def test_packets_that_were_cut_are_octets_that_are_missing(dialogue: list[Written], tmp_path: Path) -> None:
    """`tcpdump -s 96` keeps the beginning of each packet: what follows the first cut is not judged."""
    (recording,) = read(_capture(tmp_path / "capture", [packet[:96] for packet in _packets(dialogue)]))
    assert not recording.complete and recording.dialogue.breaches == []


def test_what_was_read_and_is_not_there_is_missing(dialogue: list[Written], tmp_path: Path) -> None:
    """One packet of the client's was not captured: the server's answers are not judged without it."""
    packets = _packets(dialogue)
    handshake, lost = 2, 3
    for at in range(handshake + lost, len(packets) - 1, 5):
        (recording,) = read(_capture(tmp_path / "capture", packets[:at] + packets[at + 1 :]))
        assert not recording.complete and recording.dialogue.breaches == []


def test_segments_in_any_order_are_the_same_dialogue(dialogue: list[Written], tmp_path: Path) -> None:
    """Some overtake each other, some come twice, and one reaches into the next."""
    packets = _packets(dialogue)
    shuffled, chance = packets[:2], random.Random(5)
    for at in range(2, len(packets) - 1, 2):
        pair = packets[at : at + 2]
        chance.shuffle(pair)
        shuffled += [*pair, chance.choice(pair)]
    shuffled += packets[2 + (len(packets) - 2) // 2 * 2 :]
    (plain,) = read(_capture(tmp_path / "plain", packets))
    (again,) = read(_capture(tmp_path / "again", [*shuffled, *packets[2:]]))
    assert again.complete and again.dialogue.count == plain.dialogue.count


def test_a_breach_is_told_with_rule_frame_and_direction(dialogue: list[Written], tmp_path: Path) -> None:
    """What comes after close is the client's fault, with the sentence that it breaks."""
    (recording,) = read(_capture(tmp_path / "capture", _packets(_bad(dialogue))))
    text = "\n".join(told([recording]))
    assert "of the client: it came after close" in text
    assert "2.4.3-02 MUST (2.4.3 " in text and "last thing ever written" in text


def test_what_is_missing_is_said(dialogue: list[Written], tmp_path: Path) -> None:
    """A packet that the capture has lost: what stands behind it is not judged, and that is said."""
    packets = _packets(_bad(dialogue))
    large = max(range(len(packets)), key=lambda at: len(packets[at]))
    (recording,) = read(_capture(tmp_path / "capture", packets[:large] + packets[large + 1 :]))
    assert not recording.complete and recording.dialogue.breaches == []
    assert "octets are missing" in next(told([recording]))


def test_a_capture_that_begins_in_the_middle_says_so(dialogue: list[Written], tmp_path: Path) -> None:
    """Without the beginning nothing can be judged; it is no finding, and it is not passed over in silence,
    also where it begins between a header and its answer.
    """
    packets = _packets(dialogue)
    judged = []
    for at in range(3, 20):  # past both opens
        for recording in read(_capture(tmp_path / "middle", packets[at:])):
            if recording.begins:  # SASL is over: what begins now is a whole AMQP connection
                judged.append(at)
                assert recording.dialogue.breaches == []
            else:
                assert "began before the capture, not judged" in next(told([recording]))
    assert len(judged) == 1


def test_other_traffic_is_passed_over(tmp_path: Path) -> None:
    """A connection that does not begin with a protocol header is none of ours."""
    assert read(_capture(tmp_path / "capture", _packets([("C", b"GET / HTTP/1.1\r\n\r\n")]))) == []


def test_a_trace_is_read_as_it_was_saved(tmp_path: Path) -> None:
    """What `FrameTrace.save` writes is judged alike, connection by connection."""
    trace, path = FrameTrace(), tmp_path / "trace"
    begin = Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)
    path.write_text(
        "# two connections\n"
        + f"C: {AMQP_HEADER.hex(' ')}\nS: {AMQP_HEADER.hex()}\n"
        + f"C2: {AMQP_HEADER.hex()}\n"
        + f"C: {encode_frame(0, Open(container_id='c')).hex()}\n"
        + f"C2: {encode_frame(0, begin).hex()}\n"
    )
    first, second = read(path)
    assert first.dialogue.breaches == [] and first.name == "connection 1"
    assert [one.rule for one in second.dialogue.breaches] == ["2.4.1-01"]
    trace.save(path)
    assert read(path) == []


def test_the_command(dialogue: list[Written], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """0: no rule is broken; 1: some are; 2: the file cannot be read, and why."""
    good = _capture(tmp_path / "good", _packets(dialogue))
    bad = _capture(tmp_path / "bad", _packets(_bad(dialogue)))
    nonsense = tmp_path / "nonsense"
    nonsense.write_text("neither")
    assert [main(["read", str(path)]) for path in (good, bad, nonsense, tmp_path / "none")] == [0, 1, 2, 2]
    captured = capsys.readouterr()
    assert "127.0.0.1:40000 -> 127.0.0.1:5672" in captured.out
    assert "line 1 is not 'C: octets'" in captured.err


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """Octets that are no text, a capture that is cut, a link layer that is not known: said as such."""
    for name, octets in (
        ("binary", b"\xff\xfe\x00"),
        ("cut", b"\xd4\xc3\xb2\xa1"),
        ("odd", b"\xd4\xc3\xb2\xa1\x02\x00\x04\x00" + bytes(8) + b"\xff\xff\x00\x00\x93\x00\x00\x00"),
        ("half", b"C: 41 4d5\n"),
    ):
        (tmp_path / name).write_bytes(octets)
        with pytest.raises(Unreadable):
            read(tmp_path / name)


def test_a_transfer_of_nobody_is_found_in_a_trace(tmp_path: Path) -> None:
    """The rules need the whole dialogue: a transfer before any session is three faults at once."""
    path = tmp_path / "trace"
    octets = (
        encode_frame(0, Open(container_id="c"))
        + encode_frame(0, Transfer(handle=0))
        + encode_frame(0, Close())
    )
    path.write_text(f"C: {AMQP_HEADER.hex()}\nC: {octets.hex()}\n")
    (recording,) = read(path)
    assert "2.5.5-unmapped" in [one.rule for one in recording.dialogue.breaches]
