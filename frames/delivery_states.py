"""Delivery-states of dispositions and transfers to bytes and back (2.7.6, 3.4, 4.5.4): usual ones at once.

    0x00 0x53 0x24 0x45                                            accepted
    0x00 0x53 0x34 0xc0 size 0x01 | 0xa0 size txn-id               transactional-state
    0x00 0x53 0x34 0xc0 size 0x02 | 0xa0 size txn-id | outcome
"""

from __future__ import annotations

from typing import Any, Final

from amqp_broker.frames.composite_decoding import decode_composite
from amqp_broker.frames.composite_encoding import encode_composite
from amqp_broker.frames.generated import read_transactional_state
from amqp_broker.frames.outcomes import Accepted, Declared, Released, TransactionalState

_ACCEPTED: Final = b"\x00\x53\x24\x45"
_RELEASED: Final = b"\x00\x53\x26\x45"
_EMPTY_LISTS: Final = (b"\x45", b"\xc0\x01\x00", b"\xd0\x00\x00\x00\x04\x00\x00\x00\x00")
_PLAIN_STATES: Final[dict[bytes, Any]] = {
    encoded[:3] + fields: state
    for encoded, state in ((_ACCEPTED, Accepted()), (_RELEASED, Released()))
    for fields in _EMPTY_LISTS
}
_DECLARED_HEAD: Final = b"\x00\x53\x33\xc0"
TRANSACTIONAL_HEAD: Final = b"\x00\x53\x34\xc0"
_BINARY: Final = 0xA0
_MAX_TXN_ID_BYTES: Final = 32  # as a txn-id may have (4.5.5); what is longer is the general encoder's
_SIZES: Final = range(_MAX_TXN_ID_BYTES + 1)
# What stands before a txn-id of so many octets.
_DECLARED: Final = [_DECLARED_HEAD + bytes((size + 3, 1, _BINARY, size)) for size in _SIZES]
_WITHOUT_OUTCOME: Final = [TRANSACTIONAL_HEAD + bytes((size + 3, 1, _BINARY, size)) for size in _SIZES]
_WITH_ACCEPTED: Final = [TRANSACTIONAL_HEAD + bytes((size + 7, 2, _BINARY, size)) for size in _SIZES]
# A peer that settles one by one sends the same state again and again. The bounds are such that neither many
# peers nor one with ever new states can fill the memory.
_MAX_RECENT_STATES: Final = 32
_MAX_RECENT_BYTES: Final = 96
_recent_states: Final[dict[bytes, Any]] = {}


def encode_state(state: Any) -> bytes:
    """The bytes of a delivery-state; none for None. Raises EncodeError."""
    kind = type(state)
    if kind is Accepted:
        return _ACCEPTED
    if kind is Released:
        return _RELEASED
    if kind is TransactionalState or kind is Declared:
        return _encode_transactional(state) or encode_composite(state)
    return b"" if state is None else encode_composite(state)


def _encode_transactional(state: TransactionalState | Declared) -> bytes:
    """`declared`, or a transactional-state with no outcome or with `accepted`; b"" for others."""
    txn_id = state.txn_id
    if type(txn_id) is not bytes or len(txn_id) > _MAX_TXN_ID_BYTES:
        return b""
    size = len(txn_id)
    if isinstance(state, Declared):
        return _DECLARED[size] + txn_id
    outcome = state.outcome
    if outcome is None:
        return _WITHOUT_OUTCOME[size] + txn_id
    if type(outcome) is Accepted:
        return _WITH_ACCEPTED[size] + txn_id + _ACCEPTED
    return b""


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
