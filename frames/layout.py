"""Octets of one layout, learned once: constants, and between them holes in which each has its own.

    SIZE | 02 00 CHANNEL 00 53 14 c0 .. .. handle 70 | delivery-id | a0 04 | tag  | 43 42 |  payload
    hole   constant                                    hole          const.  hole   const.

One sender's transfers (2.7.5) differ in size, delivery-id, delivery-tag and payload; one client's messages
begin with sections that differ in the values of their fields. What is read by its layout is exactly what the
general decoder would have said, and what is packed by one is read by any peer like every other frame.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, Protocol

from amqp_broker.frames.delivery import Delivery
from amqp_broker.frames.delivery_states import TRANSACTIONAL_HEAD, decode_state
from amqp_broker.frames.field_readers import COMPILED, OCTETS
from amqp_broker.frames.field_writers import encode_uint, list_frame
from amqp_broker.frames.framing import FrameReader
from amqp_broker.frames.generated import TransferHead
from amqp_broker.frames.primitive_types import LIST8, SMALLUINT, UINT, UINT0

_SERIAL_MASK: Final = 0xFFFFFFFF
# A peer chooses its layouts; a bounded memo cannot be filled without end, it starts again instead.
MAX_MEMO_ENTRIES: Final = 1_024
MAX_SUFFIX_BYTES: Final = 64
# Of an outgoing transfer without a state: frame, list, handle, id, tag, format, settled, more.
MAX_TRANSFER_HEAD_BYTES: Final = 8 + 6 + 5 + 5 + 6 + 5 + 1 + 1

# Of a transfer frame: behind its size, up to the constructor of its list; where a handle in a list8 is.
_TO_LIST_BYTES: Final = 8
_HANDLE_AT: Final = 14

_BINARY8: Final = 0xA0  # the constructor of a delivery-tag

_pack_u32: Final = struct.Struct(">I").pack
_structs: Final[dict[str, struct.Struct]] = {}


class Layout:
    """Its parts in order: a constant as its octets, a hole as a format of `struct`."""

    __slots__ = ("constants", "pack", "size", "unpack", "unpack_all")

    def __init__(self, parts: tuple[bytes | str, ...]) -> None:
        form = ">"
        constants: list[bytes] = []
        for part in parts:
            if isinstance(part, str):
                form += part
            else:
                form += f"{len(part)}s"
                constants.append(part)
        known = _structs.get(form)
        if known is None:
            if len(_structs) >= MAX_MEMO_ENTRIES:
                _structs.clear()
            known = _structs[form] = struct.Struct(form)
        self.constants: tuple[bytes, ...] = tuple(constants)
        self.pack: Any = known.pack
        self.unpack: Any = known.unpack_from
        self.unpack_all: Any = known.iter_unpack
        self.size: int = known.size


class TransferLayout:
    """What a run of transfers has in common: everything but size, delivery-id, delivery-tag and payload.

    Channel and handle are part of `prefix`, the latter from `handle_at` octets of the frame on; the
    delivery-id follows it in `number_bytes` octets; `state` is the decoded delivery-state that `suffix`
    encodes from `state_at` to `state_end`. Where that names a transaction, its txn-id is a hole, too: a
    controller's next transfers name another one, and `follow` goes on with it.
    """

    __slots__ = (
        "number_bytes", "prefix", "start", "handle_at", "middle", "suffix", "head_bytes", "unpack",
        "message_format", "settled", "state", "rcv_settle_mode", "batchable", "state_at", "state_end",
        "txn_id_at", "txn_id_end",
    )  # fmt: skip

    def __init__(
        self, head: TransferHead, prefix: bytes, number_bytes: int, middle: bytes, tag_bytes: int,
        suffix: bytes, rcv_settle_mode: int, state: object,
    ) -> None:  # fmt: skip
        layout = Layout(("I", prefix, "I" if number_bytes == 4 else "B", middle, f"{tag_bytes}s", suffix))
        self.number_bytes = number_bytes
        self.prefix = prefix
        self.start = prefix[:_TO_LIST_BYTES]
        self.handle_at = _HANDLE_AT if prefix[_TO_LIST_BYTES - 1] == LIST8 else _HANDLE_AT + 6
        self.middle = middle
        self.suffix = suffix
        self.head_bytes = layout.size
        self.unpack = layout.unpack
        self.message_format = max(0, head.message_format)
        self.settled = head.settled == 1
        self.state = state
        self.rcv_settle_mode = rcv_settle_mode
        self.batchable = head.batchable
        self.state_at = self.state_end = self.txn_id_at = self.txn_id_end = 0
        if head.state_at >= 0:
            self._find_txn_id(head.state_at - head.payload_at + len(suffix))

    def _find_txn_id(self, at: int) -> None:
        """The state begins there in the suffix: where its txn-id is, if it has the usual form."""
        suffix = self.suffix
        if suffix[at : at + 4] == TRANSACTIONAL_HEAD and suffix[at + 6 : at + 7] == b"\xa0":
            self.state_at = at
            self.state_end = at + 5 + suffix[at + 4]
            self.txn_id_at = at + 8
            self.txn_id_end = at + 8 + suffix[at + 7]

    def follow(self, suffix: bytes) -> bool:
        """Whether another suffix differs in nothing but the txn-id: then the layout goes on with that."""
        at, end = self.txn_id_at, self.txn_id_end
        if at == end or suffix[:at] != self.suffix[:at] or suffix[end:] != self.suffix[end:]:
            return False
        self.suffix = suffix
        self.state = decode_state(suffix[self.state_at : self.state_end])
        return True

    @staticmethod
    def learn(
        data: bytes, start: int, head: TransferHead, rcv_settle_mode: int, state: object
    ) -> TransferLayout | None:
        """The layout of the transfer frame that starts at `start`; None when it is no use as a pattern.

        `rcv_settle_mode` is the mode that holds for the delivery. A layout is only made of a whole, first and
        last transfer of a delivery (not more, not aborted, not resumed).
        """
        if head.more or head.aborted or head.resume or head.delivery_id < 0 or head.delivery_tag is None:
            return None
        tag_bytes = len(head.delivery_tag)
        handle_at = start + (_HANDLE_AT if data[start + 11] == LIST8 else _HANDLE_AT + 6)
        number_at = handle_at + OCTETS[data[handle_at]]
        number_code = data[number_at]
        tag_at = number_at + OCTETS[number_code]
        suffix_at = tag_at + 2 + tag_bytes
        if number_code == UINT0 or head.payload_at - suffix_at > MAX_SUFFIX_BYTES:
            return None
        return TransferLayout(
            head, data[start + 4 : number_at + 1], tag_at - number_at - 1, data[tag_at : tag_at + 2],
            tag_bytes, data[suffix_at : head.payload_at], rcv_settle_mode, state,
        )  # fmt: skip

    def next_handle(self, reader: FrameReader) -> int:
        """The handle of the frame that waits in the reader where that is a transfer on the same channel; -1
        where it is not, or not certain.
        """
        data = reader.data
        at = reader.position
        if data[at + 4 : at + 4 + _TO_LIST_BYTES] != self.start:
            return -1
        at += self.handle_at
        if at + 5 > len(data):
            return -1
        code = data[at]
        if code == SMALLUINT:
            return data[at + 1]
        if code == UINT:
            return (data[at + 1] << 24) | (data[at + 2] << 16) | (data[at + 3] << 8) | data[at + 4]
        return 0 if code == UINT0 else -1

    def may_follow(self, reader: FrameReader) -> bool:
        """Whether so much waits in the reader that one of this layout may be there."""
        return len(reader.data) - reader.position >= self.head_bytes

    def read_run(
        self, reader: FrameReader, delivery_id: int, limit: int, max_payload_bytes: int,
        deliveries: list[Delivery],
    ) -> int:  # fmt: skip
        """Reads up to `limit` transfers of this layout that come next, appends them, and returns how many
        there were. `delivery_id` is the number that the first one has to carry; each next one has to carry
        the next.

        Reading stops, without an error, at the first frame that is not complete or not of this layout, or
        whose payload has more than `max_payload_bytes` (0: as many as a frame may have).
        """
        max_frame_bytes = reader.max_frame_size
        if max_payload_bytes:
            max_frame_bytes = min(max_frame_bytes, self.head_bytes + max_payload_bytes)
        before = len(deliveries)
        read = run_by_index if COMPILED else run_by_struct
        reader.position = read(
            reader.data, reader.position, self, delivery_id, limit, max_frame_bytes, deliveries
        )
        return len(deliveries) - before


def run_by_struct(
    data: bytes, at: int, layout: TransferLayout, delivery_id: int, limit: int, max_frame_bytes: int,
    deliveries: list[Delivery],
) -> int:  # fmt: skip
    """`read_run` for the interpreter, from `at` on, and where it stopped: one call of a prepared struct is
    cheaper than many small steps (580 ns for a message of 100 octets, against 1,030).
    """
    end = len(data)
    unpack = layout.unpack
    prefix = layout.prefix
    middle = layout.middle
    suffix = layout.suffix
    head_bytes = layout.head_bytes
    message_format = layout.message_format
    settled = layout.settled
    state = layout.state
    rcv_settle_mode = layout.rcv_settle_mode
    batchable = layout.batchable
    last_start = end - head_bytes
    append = deliveries.append
    while limit > 0 and at <= last_start:
        size, start, number, tag_size, tag, rest = unpack(data, at)
        stop = at + size
        if (
            number != delivery_id
            or start != prefix
            or tag_size != middle
            or stop > end
            or size < head_bytes
            or size > max_frame_bytes
        ):
            break
        if rest != suffix:
            if not layout.follow(rest):
                break
            suffix, state = rest, layout.state
        payload = data[at + head_bytes : stop]
        append(Delivery(number, tag, message_format, settled, payload, state, rcv_settle_mode, batchable))
        at = stop
        delivery_id = (delivery_id + 1) & _SERIAL_MASK
        limit -= 1
    return at


def run_by_index(
    data: bytes, at: int, layout: TransferLayout, delivery_id: int, limit: int, max_frame_bytes: int,
    deliveries: list[Delivery],
) -> int:  # fmt: skip
    """`read_run` for compiled code, from `at` on, and where it stopped: there an index is one machine
    instruction and a struct makes six objects (130 ns for a message of 100 octets, against 450).
    """
    end = len(data)
    head_bytes = layout.head_bytes
    prefix = layout.prefix
    middle = layout.middle
    suffix = layout.suffix
    prefix_bytes = len(prefix)
    tag_bytes = head_bytes - 4 - prefix_bytes - layout.number_bytes - 2 - len(suffix)
    wide = layout.number_bytes == 4
    last_start = end - head_bytes
    while limit > 0 and at <= last_start:
        size = (data[at] << 24) | (data[at + 1] << 16) | (data[at + 2] << 8) | data[at + 3]
        number_at = at + 4 + prefix_bytes
        tag_at = number_at + 3
        number = data[number_at]
        if wide:
            number = (number << 24) | (data[number_at + 1] << 16) | (data[number_at + 2] << 8)
            number |= data[number_at + 3]
            tag_at += 3
        stop = at + size
        payload_at = at + head_bytes
        if (
            number != delivery_id
            or stop > end
            or size < head_bytes
            or size > max_frame_bytes
            or data[at + 4 : number_at] != prefix
            or data[tag_at - 2 : tag_at] != middle
        ):
            break
        rest = data[tag_at + tag_bytes : payload_at]
        if rest != suffix:
            if not layout.follow(rest):
                break
            suffix = rest
        deliveries.append(
            Delivery(
                number, data[tag_at : tag_at + tag_bytes], layout.message_format, layout.settled,
                data[payload_at:stop], layout.state, layout.rcv_settle_mode, layout.batchable,
            )  # fmt: skip
        )
        at = stop
        delivery_id = (delivery_id + 1) & _SERIAL_MASK
        limit -= 1
    return at


class Sendable(Protocol):
    """A message as it is sent: its bytes are `header_bytes` and then `body`, unchanged."""

    header_bytes: bytes
    body: bytes
    message_format: int


class TransferEncoder:
    """Outgoing transfer frames of one link: everything that does not change is encoded once.

    The delivery-tag is `tag_prefix` and the delivery-id as four bytes, so it is unique among what can be
    unsettled on a link (2.6.12), where the prefix is another one whenever the link is resumed. Every frame
    carries `state`, an encoded delivery-state of at most MAX_STATE_BYTES, or b"" for none;
    `largest_head_bytes` bounds the heads of split deliveries.
    """

    # A txn-id has at most 32 octets (4.5.5), so a transactional-state without outcome has at most 41.
    MAX_STATE_BYTES: Final = 200

    __slots__ = (
        "_channel", "_format_settled", "_handle", "_layout", "_tag_head", "largest_head_bytes",
        "message_format", "settled", "state",
    )  # fmt: skip

    def __init__(
        self, channel: int, handle: int, settled: bool, state: bytes = b"", tag_prefix: bytes = b""
    ) -> None:
        assert len(state) <= self.MAX_STATE_BYTES, "the fields fit into a list8"
        assert len(tag_prefix) <= 28, "a delivery-tag has at most 32 octets (2.8.7)"
        self._tag_head = bytes((_BINARY8, len(tag_prefix) + 4)) + tag_prefix
        self._channel = channel
        self._handle = encode_uint(handle)
        self.settled = settled
        self.state = state
        self.largest_head_bytes = MAX_TRANSFER_HEAD_BYTES + len(tag_prefix) + (len(state) + 2 if state else 0)
        self.set_format(0)

    def set_format(self, message_format: int) -> None:
        """Prepares for messages of this message-format."""
        self.message_format = message_format
        self._format_settled = encode_uint(message_format) + (b"\x41" if self.settled else b"\x42")
        # Behind `settled` come more and rcv-settle-mode, both not set, and then the state.
        suffix = self._format_settled + (b"\x40\x40" + self.state if self.state else b"")
        fields_bytes = len(self._handle) + 5 + len(self._tag_head) + 4 + len(suffix)
        head = b"\x02\x00" + self._channel.to_bytes(2, "big") + b"\x00\x53\x14\xc0"
        head += bytes((fields_bytes + 1, 8 if self.state else 5)) + self._handle + b"\x70"
        self._layout = Layout(("I", head, "I", self._tag_head, "I", suffix))

    def pack_run(
        self, messages: Sequence[Sendable], start: int, limit: int, number: int, room_bytes: int,
        max_frame_bytes: int, chunks: list[bytes | memoryview],
    ) -> tuple[int, int]:  # fmt: skip
        """Appends to `chunks` the frames of at most `limit` messages from `start` on, whose delivery-ids
        begin with `number` (cut to 32 bits here); how many they were, and their octets. It stops where these
        are `room_bytes` or more, and at a message that needs more than one frame.
        """
        append = chunks.append
        message_format = self.message_format
        pack = self._layout.pack
        prefix, middle, suffix = self._layout.constants
        head_bytes = self._layout.size
        written = 0
        following = number
        for message in messages[start : start + limit]:
            if written >= room_bytes:
                break
            if message.message_format != message_format:
                message_format = message.message_format
                self.set_format(message_format)
                pack = self._layout.pack
                prefix, middle, suffix = self._layout.constants
                head_bytes = self._layout.size
            header = message.header_bytes
            body = message.body
            size = head_bytes + len(header) + len(body)
            if size > max_frame_bytes:
                break
            wire = following & _SERIAL_MASK
            append(pack(size, prefix, wire, middle, wire, suffix) + header)
            append(body)
            written += size
            following += 1
        return following - number, written

    def first_of_many(self, delivery_id: int, payload_bytes: int) -> bytes:
        """The head of the first transfer of a delivery that is split; `more` is set."""
        number = _pack_u32(delivery_id)
        fields = self._handle + b"\x70" + number + self._tag_head + number + self._format_settled + b"\x41"
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
