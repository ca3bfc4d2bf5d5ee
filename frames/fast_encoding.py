"""Prepared heads of outgoing transfers (2.7.5), and frames from fields that are encoded.

           +0       +1       +2       +3
       +-----------------------------------+
     0 |                SIZE               |
       +-----------------------------------+
     4 |  0x02  |  0x00  |     CHANNEL     |
       +-----------------------------------+
     8 |  0x00  |  0x53  |  code  |  0xc0  |   a list8: one octet size, one octet count
       +-----------------------------------+
    12 |  size  | count  | fields ...      |
       +-----------------------------------+

Peers decode them like any other frame; a test holds them against the general decoder.
"""

import struct
from typing import Any, Final

from amqp_broker.frames.outcomes import Accepted, Declared, TransactionalState

FRAME_HEADER_BYTES: Final = 8

_SMALLUINT: Final = 0x52
_BINARY: Final = 0xA0
_DECLARED_HEAD: Final = b"\x00\x53\x33\xc0"
_STATE_HEAD: Final = b"\x00\x53\x34\xc0"
_ACCEPTED: Final = b"\x00\x53\x24\x45"
_MAX_TXN_ID_BYTES: Final = 200  # a txn-id has at most 32 (4.5.5); what is longer is the general encoder's

_pack_u32: Final = struct.Struct(">I").pack
_pack_list8: Final = struct.Struct(">IHHIBB").pack
_pack_list32: Final = struct.Struct(">IHHIII").pack


class TransferEncoder:
    """Outgoing transfer frames of one link: everything that does not change is encoded once.

    `head_bytes` is the size of a first frame without payload. The delivery-tag is the delivery-id as four
    bytes, so it is unique among what can be unsettled on a link (2.6.12). Every frame carries `state`, an
    encoded delivery-state of at most MAX_TRANSFER_STATE_BYTES, or b"" for none; `largest_head_bytes` bounds
    the heads of split deliveries.
    """

    __slots__ = (
        "pack", "prefix", "head_bytes", "largest_head_bytes", "suffix", "message_format", "settled", "state",
        "_channel", "_handle", "_format_settled",
    )  # fmt: skip

    def __init__(self, channel: int, handle: int, settled: bool, state: bytes = b"") -> None:
        assert len(state) <= MAX_TRANSFER_STATE_BYTES, "the fields fit into a list8"
        self._channel = channel
        self._handle = encode_uint(handle)
        self.message_format = 0
        self.settled = settled
        self.state = state
        self.largest_head_bytes = MAX_TRANSFER_HEAD_BYTES + (len(state) + 2 if state else 0)
        self._format_settled = b""
        self.prefix = b""
        self.suffix = b""
        self.head_bytes = 0
        self.pack: Any = None
        self.set_format(0)

    def set_format(self, message_format: int) -> None:
        """Prepares for messages of this message-format."""
        self.message_format = message_format
        self._format_settled = encode_uint(message_format) + (b"\x41" if self.settled else b"\x42")
        # Behind `settled` come more and rcv-settle-mode, both not set, and then the state.
        self.suffix = self._format_settled + (b"\x40\x40" + self.state if self.state else b"")
        fields_bytes = len(self._handle) + 5 + 6 + len(self.suffix)
        self.prefix = (
            b"\x02\x00"
            + self._channel.to_bytes(2, "big")
            + b"\x00\x53\x14\xc0"
            + bytes((fields_bytes + 1, 8 if self.state else 5))
            + self._handle
            + b"\x70"
        )
        layout = struct.Struct(f">I{len(self.prefix)}sIHI{len(self.suffix)}s")
        self.pack = layout.pack
        self.head_bytes = layout.size

    def first_of_many(self, delivery_id: int, payload_bytes: int) -> bytes:
        """The head of the first transfer of a delivery that is split; `more` is set."""
        fields = (
            self._handle
            + b"\x70"
            + _pack_u32(delivery_id)
            + b"\xa0\x04"
            + _pack_u32(delivery_id)
            + self._format_settled
            + b"\x41"
        )
        return self._with_state(fields, 6, payload_bytes)

    def continuation(self, more: bool, payload_bytes: int) -> bytes:
        """The head of a later transfer; delivery-id, tag, format and settled hold on from the first (2.7.5),
        a state is told again: all frames have to name their transaction explicitly (4.4.1).
        """
        if more or self.state:
            last = b"\x41" if more else b"\x42"
            return self._with_state(self._handle + b"\x40\x40\x40\x40" + last, 6, payload_bytes)
        return self._frame(self._handle, 1, payload_bytes)

    def abort(self) -> bytes:
        """The frame that aborts the delivery that is being sent."""
        state = self.state or b"\x40"
        return self._frame(self._handle + b"\x40\x40\x40\x40\x42\x40" + state + b"\x40\x41", 10, 0)

    def _with_state(self, fields: bytes, count: int, payload_bytes: int) -> bytes:
        """A frame whose fields end with `more`, and the state behind them."""
        if self.state:
            return self._frame(fields + b"\x40" + self.state, 8, payload_bytes)
        return self._frame(fields, count, payload_bytes)

    def _frame(self, fields: bytes, count: int, payload_bytes: int) -> bytes:
        return list_frame(self._channel, 0x14, count, fields, payload_bytes)


# The largest head that the methods of TransferEncoder make (handle 5, id 5, tag 6, format 5, settled, more).
MAX_TRANSFER_HEAD_BYTES: Final = FRAME_HEADER_BYTES + 6 + 5 + 5 + 6 + 5 + 1 + 1
# A txn-id has at most 32 octets (4.5.5), so a transactional-state without outcome has at most 41.
MAX_TRANSFER_STATE_BYTES: Final = 200

def encode_uint(value: int) -> bytes:
    """The shortest encoding of a uint (1.6.5)."""
    if value == 0:
        return b"\x43"
    if value < 256:
        return bytes((_SMALLUINT, value))
    return b"\x70" + _pack_u32(value)


def list_frame(channel: int, code: int, count: int, fields: bytes, payload_bytes: int = 0) -> bytes:
    """A frame whose performative is the list of these `count` encoded fields; a payload of so many octets is
    to follow it.
    """
    size = len(fields)
    if size < 255:
        list8 = 0x005300C0 | code << 8
        return _pack_list8(size + 14 + payload_bytes, 0x0200, channel, list8, size + 1, count) + fields
    list32 = 0x005300D0 | code << 8
    return _pack_list32(size + 20 + payload_bytes, 0x0200, channel, list32, size + 4, count) + fields


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
