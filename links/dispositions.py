"""Ranges of delivery-ids and delivery-states of dispositions, in and out (2.7.6)."""

from __future__ import annotations

from typing import Any, Final

from amqp_broker.frames import (
    Accepted,
    Declared,
    Released,
    TransactionalState,
    decode_composite,
    encode_composite,
    encode_transactional,
    read_transactional_state,
)
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
# A peer that settles one by one sends the same state again and again. The bounds are such that neither many
# peers nor one with ever new states can fill the memory.
_MAX_RECENT_STATES: Final = 32
_MAX_RECENT_BYTES: Final = 96
_recent_states: Final[dict[bytes, Any]] = {}


def encode_state(state: Any) -> bytes:
    """The bytes of a delivery-state; none for None. Raises EncodeError."""
    kind = type(state)
    if kind is Accepted:
        return _ACCEPTED_BYTES
    if kind is Released:
        return _RELEASED_BYTES
    if kind is TransactionalState or kind is Declared:
        return encode_transactional(state) or encode_composite(state)
    return b"" if state is None else encode_composite(state)


def decode_state(data: bytes) -> Any:
    """The delivery-state that `data` encodes wholly: the identical object for the same bytes when they came
    lately, so that runs join; nobody may change it. Raises DecodeError.
    """
    known = _PLAIN_STATES.get(data)
    if known is None:
        known = _recent_states.get(data)
        if known is None:
            known = read_transactional_state(data) or decode_composite(data)[0]
            if len(data) <= _MAX_RECENT_BYTES:
                if len(_recent_states) >= _MAX_RECENT_STATES:
                    _recent_states.clear()
                _recent_states[data] = known
    return known


def txn_id_of(state: object) -> bytes | None:
    """The txn-id of a transactional-state (4.5.8); None for every other state."""
    return state.txn_id if type(state) is TransactionalState else None


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
