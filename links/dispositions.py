"""Ranges of delivery-ids and delivery-states of dispositions, in and out (2.7.6)."""

from __future__ import annotations

from typing import Any, Final

from amqp_broker.frames import Accepted, Released, decode_composite, encode_composite
from amqp_broker.links.serial import SERIAL_MASK

_PLAIN_STATES: Final[dict[bytes, Any]] = {
    b"\x00\x53\x24\x45": Accepted(),
    b"\x00\x53\x24\xc0\x01\x00": Accepted(),
    b"\x00\x53\x24\xd0\x00\x00\x00\x04\x00\x00\x00\x00": Accepted(),
    b"\x00\x53\x26\x45": Released(),
    b"\x00\x53\x26\xc0\x01\x00": Released(),
    b"\x00\x53\x26\xd0\x00\x00\x00\x04\x00\x00\x00\x00": Released(),
}
_ACCEPTED_BYTES: Final = b"\x00\x53\x24\x45"
_RELEASED_BYTES: Final = b"\x00\x53\x26\x45"


def encode_state(state: Any) -> bytes:
    """The bytes of a delivery-state; none for None. Raises EncodeError."""
    kind = type(state)
    if kind is Accepted:
        return _ACCEPTED_BYTES
    if kind is Released:
        return _RELEASED_BYTES
    return b"" if state is None else encode_composite(state)


def decode_state(data: bytes) -> Any:
    """The delivery-state that `data` encodes wholly. Raises DecodeError."""
    known = _PLAIN_STATES.get(data)
    return decode_composite(data)[0] if known is None else known


def runs_of(delivery_ids: list[int], next_number: int) -> list[tuple[int, int]]:
    """The ranges of consecutive ids, in the order of the list, as numbers before `next_number`."""
    first = delivery_ids[0]
    count = len(delivery_ids)
    start = next_number - ((next_number - first) & SERIAL_MASK)
    if delivery_ids[-1] - first == count - 1 and delivery_ids == list(range(first, first + count)):
        return [(start, start + count - 1)]
    runs = []
    last = start
    for delivery_id in delivery_ids[1:]:
        number = next_number - ((next_number - delivery_id) & SERIAL_MASK)
        if number != last + 1:
            runs.append((start, last))
            start = number
        last = number
    runs.append((start, last))
    return runs
