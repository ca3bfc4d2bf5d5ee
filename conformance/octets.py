"""Octets by hand, for what no encoder would write: lying sizes, other encodings of the same value, broken
frames.
"""

import struct

NULL = b"\x40"
TRUE = b"\x41"
FALSE = b"\x42"


def frame(
    body: bytes = b"",
    *,
    size: int | None = None,
    doff: int = 2,
    frame_type: int = 0,
    channel: int = 0,
    extended: bytes = b"",
) -> bytes:
    """Returns a frame (2.3.1); ``size`` and ``doff`` may lie."""
    real = 8 + len(extended) + len(body)
    return struct.pack(">IBBH", real if size is None else size, doff, frame_type, channel) + extended + body


def uint0() -> bytes:
    """Returns the uint 0 in its encoding without data (1.2.5)."""
    return b"\x43"


def smalluint(value: int) -> bytes:
    """Returns a uint in one octet of data."""
    return struct.pack(">BB", 0x52, value)


def uint(value: int) -> bytes:
    """Returns a uint in four octets of data."""
    return struct.pack(">BI", 0x70, value)


def ushort(value: int) -> bytes:
    """Returns a ushort."""
    return struct.pack(">BH", 0x60, value)


def string8(text: str) -> bytes:
    """Returns a string with a size of one octet."""
    return struct.pack(">BB", 0xA1, len(text.encode())) + text.encode()


def string32(text: str) -> bytes:
    """Returns a string with a size of four octets."""
    return struct.pack(">BI", 0xB1, len(text.encode())) + text.encode()


def symbol8(text: str) -> bytes:
    """Returns a symbol with a size of one octet."""
    return struct.pack(">BB", 0xA3, len(text)) + text.encode("ascii")


def symbol32(text: str) -> bytes:
    """Returns a symbol with a size of four octets."""
    return struct.pack(">BI", 0xB3, len(text)) + text.encode("ascii")


def binary8(data: bytes) -> bytes:
    """Returns a binary with a size of one octet."""
    return struct.pack(">BB", 0xA0, len(data)) + data


def list8(*items: bytes) -> bytes:
    """Returns a list with sizes of one octet."""
    body = b"".join(items)
    return struct.pack(">BBB", 0xC0, len(body) + 1, len(items)) + body


def list32(*items: bytes) -> bytes:
    """Returns a list with sizes of four octets."""
    body = b"".join(items)
    return struct.pack(">BII", 0xD0, len(body) + 4, len(items)) + body


def map8(*items: bytes) -> bytes:
    """Returns a map of keys and values in turn, with sizes of one octet."""
    body = b"".join(items)
    return struct.pack(">BBB", 0xC1, len(body) + 1, len(items)) + body


def map32(*items: bytes) -> bytes:
    """Returns a map of keys and values in turn, with sizes of four octets."""
    body = b"".join(items)
    return struct.pack(">BII", 0xD1, len(body) + 4, len(items)) + body


def array8(constructor: int, *elements: bytes) -> bytes:
    """Returns an array whose elements are given without their constructor, with sizes of one octet."""
    body = bytes([constructor]) + b"".join(elements)
    return struct.pack(">BBB", 0xE0, len(body) + 1, len(elements)) + body


def array32(constructor: int, *elements: bytes) -> bytes:
    """Returns an array whose elements are given without their constructor, with sizes of four octets."""
    body = bytes([constructor]) + b"".join(elements)
    return struct.pack(">BII", 0xF0, len(body) + 4, len(elements)) + body


def described(code: int, value: bytes) -> bytes:
    """Returns a described value with a numeric descriptor in its short encoding."""
    return struct.pack(">BBB", 0x00, 0x53, code) + value


def described_ulong(code: int, value: bytes) -> bytes:
    """Returns a described value with a numeric descriptor in eight octets."""
    return struct.pack(">BBQ", 0x00, 0x80, code) + value


def described_symbol(name: str, value: bytes) -> bytes:
    """Returns a described value with a symbolic descriptor, as "amqp:open:list"."""
    return b"\x00" + symbol8(name) + value


OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
"""Numeric descriptors of the performatives (2.7)."""
