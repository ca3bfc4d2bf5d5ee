"""Large messages of which neither the test nor the broker has more than a piece in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from amqp_broker.frames import Header, Transfer, encode_message
from amqp_broker.testing.blocking_peer import BlockingPeer
from amqp_broker.testing.peer import PeerSender

KIB: Final = 1024
MIB: Final = 1024 * KIB
PIECE_BYTES: Final = 60_000
_DATA_HEAD: Final = b"\x00\x53\x75\xb0"


@contextmanager
def peer_to(host: str, port: int) -> Iterator[BlockingPeer]:
    """A peer that takes frames of 64 KiB."""
    with BlockingPeer.connect(host, port, container_id="large") as peer:
        yield peer


def octets_of(size: int) -> Iterator[bytes]:
    """So many octets, in pieces that are not alike."""
    block = bytes(range(256)) * (MIB // 256)
    for at in range(0, size, MIB):
        piece = at.to_bytes(8, "big") + block[8:]
        yield piece[: min(MIB, size - at)]


def head_of(size: int, *, durable: bool = True, **fields: Any) -> bytes:
    """What a message begins with, up to the content of its data section of `size` octets."""
    sections = encode_message(header=Header(durable=durable), body=b"", **fields)
    at = sections.rindex(b"\x00\x53\x75")
    return sections[:at] + _DATA_HEAD + size.to_bytes(4, "big")


def begin(sender: PeerSender, size: int, **fields: Any) -> tuple[int, int]:
    """The first transfer of a message: its delivery-id, and the checksum so far."""
    head = head_of(size, **fields)
    return sender.send(head, more=True), crc32(head)


def more(sender: PeerSender, piece: bytes, *, last: bool = False) -> None:
    """Its next octets, as the window of the broker allows."""
    connection = sender.session.connection
    for at in range(0, len(piece), PIECE_BYTES):
        connection.pump_until(lambda: sender.session.remote_incoming_window > 0)
        end = at + PIECE_BYTES
        sender.send_more(piece[at:end], more=not (last and end >= len(piece)))
    connection.flush()


def send_large(sender: PeerSender, size: int, **fields: Any) -> tuple[int, int]:
    """A whole one: its delivery-id, and the checksum of all its octets behind the header section."""
    sender.session.connection.pump_until(lambda: sender.may_send)
    number, _ = begin(sender, size, **fields)
    left = size
    for piece in octets_of(size):
        left -= len(piece)
        more(sender, piece, last=not left)
    return number, checksum(size, **fields)


def checksum(size: int, **fields: Any) -> int:
    """Of a message without its header, which changes on its way."""
    found = crc32(behind_header(head_of(size, **fields)))
    for piece in octets_of(size):
        found = crc32(piece, found)
    return found


def behind_header(octets: bytes) -> bytes:
    """Without the header section, in its usual form."""
    assert octets[:4] == b"\x00\x53\x70\xc0"
    return octets[5 + octets[4] :]


class Taken:
    """A delivery of which only the checksum behind the header is kept."""

    def __init__(self, transfer: Transfer) -> None:
        assert transfer.delivery_id is not None, "the first transfer of a delivery has no delivery-id"
        self.delivery_id = transfer.delivery_id
        self.settled = False
        self.frames = 0
        self.begun = False
        self.crc = 0
        self.size = 0

    def add(self, octets: bytes) -> None:
        """More of it; the header is in the first frame."""
        if not self.begun:
            self.begun = True
            octets = behind_header(octets)
        self.size += len(octets)
        self.crc = crc32(octets, self.crc)


def streams(receiver: Any) -> list[Taken]:
    """Have what comes summed up, and not kept; those that were aborted are in the list that is returned."""
    aborted: list[Taken] = []
    under_way: list[Taken] = []

    def on_transfer(transfer: Transfer, payload: bytes) -> None:
        if not under_way:
            under_way.append(Taken(transfer))
            receiver.credit -= 1
            receiver.delivery_count += 1
        delivery = under_way[0]
        delivery.frames += 1
        delivery.settled |= bool(transfer.settled)
        if payload:
            delivery.add(payload)
        receiver.partial = None if transfer.aborted or not transfer.more else delivery
        if receiver.partial is None:
            under_way.clear()
            (aborted if transfer.aborted else receiver.deliveries).append(delivery)
            if not transfer.aborted and not delivery.settled:
                receiver.session.received_unsettled[delivery.delivery_id] = receiver

    receiver.on_transfer = on_transfer
    return aborted


def rss_bytes(pid: int) -> int:
    """What of a process is in memory now."""
    return _of(pid, "VmRSS")


def highest_rss_bytes(pid: int) -> int:
    """The most that was, since the start or `reset_highest`."""
    return _of(pid, "VmHWM")


def reset_highest(pid: int) -> None:
    """Begin to measure the most anew."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _of(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * KIB
    raise AssertionError(f"no {name} of process {pid}")
