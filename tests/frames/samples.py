"""Frames for the tests of the hot path: transfers as real clients write them, and how one frame is read."""

from __future__ import annotations

from typing import Final

from amqp_broker.frames import Frame, FrameReader


def _transfers() -> list[bytes]:
    fields = b"\x43\x70\x00\x00\x01\x00\xa0\x04tag!\x43\x42"
    short = b"\x00\x53\x14\xc0" + bytes((len(fields) + 1, 5)) + fields
    long = b"\x00\x53\x14\xd0" + (len(fields) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x05" + fields
    texts = [b"\x06\x52\x03\x52\x09\xa0\x01\x31\x43\x41\x42"]
    texts.append(b"\x0b\x43\x52\x09\xa0\x02ab\x43\x42\x42\x40\x40\x42\x42\x41")
    return [short, long, *[b"\x00\x53\x14\xc0" + bytes((len(text),)) + text for text in texts]]


CLIENT_TRANSFERS: Final = _transfers()
"""The layouts of rawload, proton, rhea, qpid-jms, go-amqp and fe2o3."""


def decoded(data: bytes) -> Frame:
    """The one frame in `data`."""
    reader = FrameReader(2**31)
    reader.feed(data)
    frame = reader.next()
    assert isinstance(frame, Frame) and reader.buffered == 0
    return frame
