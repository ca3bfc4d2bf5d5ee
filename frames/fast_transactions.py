"""The shortest layouts of what transactions say all the time, byte by byte; everything else is the general
codec's.

    declare              00 53 77 | 00 53 31 45                                  amqp-value section
    discharge            00 53 77 | 00 53 32 c0 LL 02 | a0 NN txn-id | 41 or 42
    declared             00 53 33 c0 LL 01 | a0 NN txn-id
    transactional-state  00 53 34 c0 LL 01 | a0 NN txn-id
                         00 53 34 c0 LL 02 | a0 NN txn-id | 00 53 24 45           accepted

One property test holds both ways against each other (tests/frames).
"""

from __future__ import annotations

from typing import Final

from amqp_broker.frames.outcomes import Accepted, Declared, TransactionalState
from amqp_broker.frames.transactions import Declare, Discharge

_DECLARES: Final = frozenset(
    (
        b"\x00\x53\x77\x00\x53\x31\x45",
        b"\x00\x53\x77\x00\x53\x31\xc0\x01\x00",
        b"\x00\x53\x77\x00\x53\x31\xc0\x02\x01\x40",
    )
)
_DISCHARGE_HEAD: Final = b"\x00\x53\x77\x00\x53\x32\xc0"
_DECLARED_HEAD: Final = b"\x00\x53\x33\xc0"
_STATE_HEAD: Final = b"\x00\x53\x34\xc0"
_ACCEPTED: Final = b"\x00\x53\x24\x45"
_TRUE: Final = 0x41
_FALSE: Final = 0x42
_BINARY: Final = 0xA0
_MAX_TXN_ID_BYTES: Final = 200  # a txn-id has at most 32 (4.5.5); what is longer is not for the fast path


def read_request(payload: bytes) -> Declare | Discharge | None:
    """The declare or discharge that a whole message is, in its usual layouts; None: ask the general codec."""
    if payload in _DECLARES:
        return Declare()
    if payload[:7] != _DISCHARGE_HEAD or len(payload) < 12 or payload[8] != 2 or payload[9] != _BINARY:
        return None
    end = 11 + payload[10]
    if len(payload) != end + 1 or payload[7] != end - 7 or payload[end] not in (_TRUE, _FALSE):
        return None
    return Discharge(txn_id=payload[11:end], fail=payload[end] == _TRUE)


def encode_transactional(state: TransactionalState | Declared) -> bytes:
    """The bytes of `declared`, or of a transactional-state with no outcome or with `accepted`; b"" for
    others.
    """
    txn_id = state.txn_id
    if type(txn_id) is not bytes or len(txn_id) > _MAX_TXN_ID_BYTES:
        return b""
    size = len(txn_id)
    if isinstance(state, Declared):
        return _DECLARED_HEAD + bytes((size + 3, 1, _BINARY, size)) + txn_id
    if state.outcome is None:
        return _STATE_HEAD + bytes((size + 3, 1, _BINARY, size)) + txn_id
    if type(state.outcome) is Accepted:
        return _STATE_HEAD + bytes((size + 7, 2, _BINARY, size)) + txn_id + _ACCEPTED
    return b""


def read_transactional_state(data: bytes) -> TransactionalState | None:
    """The transactional-state that `data` is, in its usual layouts; None: ask the general codec."""
    if data[:4] != _STATE_HEAD or len(data) < 8 or data[6] != _BINARY or data[4] != len(data) - 5:
        return None
    end = 8 + data[7]
    if data[5] == 1 and end == len(data):
        return TransactionalState(txn_id=data[8:])
    if data[5] == 2 and data[end:] == _ACCEPTED:
        return TransactionalState(txn_id=data[8:end], outcome=Accepted())
    return None
