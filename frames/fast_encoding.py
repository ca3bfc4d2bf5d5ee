"""Prepared encoders of the hot frames: transfer, disposition and flow (2.7.4 to 2.7.6).

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

FRAME_HEADER_BYTES: Final = 8

_TRUE: Final = 0x41
_FALSE: Final = 0x42
_SMALLUINT: Final = 0x52
_UINT: Final = 0x70

_pack_u32: Final = struct.Struct(">I").pack


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
        self._channel = channel.to_bytes(2, "big")
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
            + self._channel
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
        body = b"\x00\x53\x14\xc0" + bytes((len(fields) + 1, count)) + fields
        size = FRAME_HEADER_BYTES + len(body) + payload_bytes
        return _pack_u32(size) + b"\x02\x00" + self._channel + body


# The largest head that the methods of TransferEncoder make (handle 5, id 5, tag 6, format 5, settled, more).
MAX_TRANSFER_HEAD_BYTES: Final = FRAME_HEADER_BYTES + 6 + 5 + 5 + 6 + 5 + 1 + 1
# A txn-id has at most 32 octets (4.5.5), so a transactional-state without outcome has at most 41.
MAX_TRANSFER_STATE_BYTES: Final = 200

_pack_disposition: Final = struct.Struct(">IHHIBBBBIBIB").pack
_DISPOSITION_BYTES: Final = 26


def encode_disposition(channel: int, role: bool, first: int, last: int, settled: bool, state: bytes) -> bytes:
    """One disposition frame for the range `first` to `last`; `state` is the encoded delivery-state or b""."""
    count = 5 if state else 4
    fields_bytes = 13 + len(state)  # count, role, first, last and settled are 13 bytes
    if fields_bytes > 255:
        return _encode_long_disposition(channel, role, first, last, settled, state)
    return (
        _pack_disposition(
            _DISPOSITION_BYTES + len(state), 0x0200, channel, 0x005315C0, fields_bytes, count,
            _TRUE if role else _FALSE, _UINT, first, _UINT, last, _TRUE if settled else _FALSE,
        )
        + state
    )  # fmt: skip


def _encode_long_disposition(
    channel: int, role: bool, first: int, last: int, settled: bool, state: bytes
) -> bytes:
    fields = (
        (b"\x41" if role else b"\x42") + b"\x70" + _pack_u32(first) + b"\x70" + _pack_u32(last)
        + (b"\x41" if settled else b"\x42") + state
    )  # fmt: skip
    body = b"\x00\x53\x15\xd0" + _pack_u32(len(fields) + 4) + _pack_u32(5) + fields
    return _pack_u32(FRAME_HEADER_BYTES + len(body)) + b"\x02\x00" + channel.to_bytes(2, "big") + body


def encode_uint(value: int) -> bytes:
    """The shortest encoding of a uint (1.6.5)."""
    if value == 0:
        return b"\x43"
    if value < 256:
        return bytes((_SMALLUINT, value))
    return b"\x70" + _pack_u32(value)


def encode_flow(
    channel: int, next_incoming_id: int, incoming_window: int, next_outgoing_id: int, outgoing_window: int,
    link: bytes = b"", link_fields: int = 0,
) -> bytes:  # fmt: skip
    """A flow frame; `link` holds the `link_fields` encoded fields from handle on. `next_incoming_id` -1 means
    not set.
    """
    fields = (
        (b"\x40" if next_incoming_id < 0 else encode_uint(next_incoming_id)) + encode_uint(incoming_window)
        + encode_uint(next_outgoing_id) + encode_uint(outgoing_window) + link
    )  # fmt: skip
    if len(fields) < 255:
        body = b"\x00\x53\x13\xc0" + bytes((len(fields) + 1, 4 + link_fields)) + fields
    else:  # only with properties
        body = b"\x00\x53\x13\xd0" + _pack_u32(len(fields) + 4) + _pack_u32(4 + link_fields) + fields
    return _pack_u32(FRAME_HEADER_BYTES + len(body)) + b"\x02\x00" + channel.to_bytes(2, "big") + body
