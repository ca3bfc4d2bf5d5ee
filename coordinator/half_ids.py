"""The id of a half message: an AMQP message-id, compared by type and value.

    value     string        binary    uuid          ulong
    half-id   "s" + UTF-8   "b" + .   "u" + 16 o.   "l" + 8 octets, big-endian

The encoded form is what tables and stores use as a key: a number 1 and a string "1" are two half messages.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from amqp_broker.frames import Ulong

HALF_ID_BYTES_MAX: Final = 256  # of the value; JMS message-ids have about 50
_ULONG_BYTES: Final = 8


def half_id_of(value: object) -> bytes | None:
    """The id that a decoded message-id or correlation-id is; None if it can't be one."""
    if isinstance(value, str):
        encoded = b"s" + value.encode()
    elif isinstance(value, bytes):
        encoded = b"b" + value
    elif isinstance(value, UUID):
        encoded = b"u" + value.bytes
    elif isinstance(value, Ulong):
        encoded = b"l" + value.value.to_bytes(_ULONG_BYTES, "big")
    else:
        return None
    return encoded if 1 < len(encoded) <= 1 + HALF_ID_BYTES_MAX else None


def half_id_value(half_id: bytes) -> Any:
    """The value again, of the type that it had on the wire."""
    kind, data = half_id[:1], half_id[1:]
    if kind == b"s":
        return data.decode()
    if kind == b"u":
        return UUID(bytes=data)
    if kind == b"l":
        return Ulong(int.from_bytes(data, "big"))
    assert kind == b"b", f"not a half-id: {half_id!r:.80}"
    return data


def shown_half_id(half_id: bytes) -> str:
    """For logs and administrators: `string:order-17`, `ulong:17`, `binary:6f72`."""
    kind, data = half_id[:1], half_id[1:]
    if kind == b"s":
        return f"string:{data.decode()}"
    if kind == b"b":
        return f"binary:{data.hex()}"
    value = half_id_value(half_id)
    return f"uuid:{value}" if kind == b"u" else f"ulong:{value.value}"
