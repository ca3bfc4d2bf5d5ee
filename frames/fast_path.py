"""The hot frames, byte by byte: transfer, disposition and flow, for the layouts that real clients send.

           +0       +1       +2       +3
       +-----------------------------------+
     0 |                SIZE               |
       +-----------------------------------+
     4 |  DOFF  | TYPE 0 |     CHANNEL     |
       +-----------------------------------+
     8 |  0x00  |  0x53  |  code  |  list  |   list: 0xc0 size count | 0xd0 size4 count4 | 0x45 (no fields)
       +-----------------------------------+
    12 |  fields ...   | payload (transfer)|
       +-----------------------------------+

Each reader answers None (or the position it was given) for everything that it does not know for certain; the
general decoder then decides, also about errors. What a reader does return is exactly what the general decoder
would have said. `read_run` reads a run of transfers that differ only in size, delivery-id, delivery-tag and
payload (performance.md, "The hot path").
"""

from __future__ import annotations

import struct
from types import FunctionType
from typing import Final

from amqp_broker.frames.fast_sections import peek_header, skip_value
from amqp_broker.frames.fast_values import Delivery, FlowHead, TransferHead, TransferShape

__all__ = [
    "Delivery",
    "FlowHead",
    "TransferHead",
    "TransferShape",
    "learn_shape",
    "peek_header",
    "read_disposition",
    "read_flow",
    "read_run",
    "read_transfer",
    "skip_value",
]

TRANSFER_CODE: Final = 0x14
FLOW_CODE: Final = 0x13
DISPOSITION_CODE: Final = 0x15
SERIAL_MASK: Final = 0xFFFFFFFF
MAX_TAG_BYTES: Final = 32  # 2.8.7: a delivery-tag may be up to 32 octets
# A peer chooses its layouts; a bounded memo cannot be filled without end, it starts again instead.
MAX_MEMO_ENTRIES: Final = 1_024
MAX_MEMO_KEY_BYTES: Final = 64

_NULL: Final = 0x40
_TRUE: Final = 0x41
_FALSE: Final = 0x42
_UINT0: Final = 0x43
_UBYTE: Final = 0x50
_SMALLUINT: Final = 0x52
_SMALLULONG: Final = 0x53
_BOOLEAN: Final = 0x56
_UINT: Final = 0x70
_ULONG: Final = 0x80
_VBIN8: Final = 0xA0
_VBIN32: Final = 0xB0
_LIST8: Final = 0xC0
_LIST32: Final = 0xD0

_unpack_u32: Final = struct.Struct(">I").unpack_from
_unpack_size_count: Final = struct.Struct(">II").unpack_from
_pack_u32: Final = struct.Struct(">I").pack


def _uint_at(data: bytes, at: int) -> tuple[int, int]:
    """The uint at `at` and the position behind it, or (-1, -1). The caller has checked that five bytes are
    there.
    """
    code = data[at]
    if code == _SMALLUINT:
        return data[at + 1], at + 2
    if code == _UINT:
        return int(_unpack_u32(data, at + 1)[0]), at + 5
    if code == _UINT0:
        return 0, at + 1
    return -1, -1


def _boolean_at(data: bytes, at: int) -> tuple[int, int]:
    """The boolean at `at` as 0 or 1 and the position behind it, or (-1, -1)."""
    code = data[at]
    if code == _TRUE:
        return 1, at + 1
    if code == _FALSE:
        return 0, at + 1
    if code == _BOOLEAN and at + 1 < len(data) and data[at + 1] <= 1:
        return data[at + 1], at + 2
    return -1, -1


def _enter_fields(data: bytes, start: int, stop: int, code: int) -> tuple[int, int, int]:
    """(position of the first field, number of fields, end of the list) of the performative `code`, or (-1, 0,
    0).
    """
    if stop - start < 4 or data[start] != 0 or data[start + 1] != _SMALLULONG or data[start + 2] != code:
        return -1, 0, 0
    at = start + 3
    if data[at] == _LIST8:
        if stop - at < 3 or data[at + 1] == 0:
            return -1, 0, 0
        end = at + 2 + data[at + 1]
        count = data[at + 2]
        at += 3
    elif data[at] == _LIST32:
        if stop - at < 9:
            return -1, 0, 0
        size, count = _unpack_size_count(data, at + 1)
        if size < 4:
            return -1, 0, 0
        end = at + 5 + size
        at += 9
    else:
        return -1, 0, 0
    if end > stop or count > end - at:
        return -1, 0, 0
    return at, count, end


def read_transfer(data: bytes, start: int, stop: int) -> TransferHead | None:
    """The transfer whose performative starts at `start` in a frame that ends at `stop`; None: use the general
    decoder.
    """
    at, count, end = _enter_fields(data, start, stop, TRANSFER_CODE)
    if at < 0 or count > 11:
        return None
    head = TransferHead()
    for index in range(count):
        if at >= end:
            return None
        code = data[at]
        if code == _NULL:
            at += 1
            continue
        if index <= 1 or index == 3:
            if code == _UINT and at + 5 > end:
                return None
            if index == 1:
                head.number_at = at
            value, at = _uint_at(data, at) if at + 1 < end or code == _UINT0 else (-1, -1)
            if index == 0:
                head.handle = value
            elif index == 1:
                head.delivery_id = value
            else:
                head.message_format = value
        elif index == 2:
            head.tag_at = at
            at = _read_tag(head, data, at, end)
        elif index == 6:
            if code != _UBYTE or at + 2 > end or data[at + 1] > 1:
                return None
            head.rcv_settle_mode = data[at + 1]
            at += 2
        elif index == 7:
            head.state_at = at
            at = skip_value(data, at, end)
            head.state_end = at
        else:
            value, at = _boolean_at(data, at)
            if value < 0:
                return None
            if index == 4:
                head.settled = value
            elif index == 5:
                head.more = value == 1
            elif index == 8:
                head.resume = value == 1
            elif index == 9:
                head.aborted = value == 1
            else:
                head.batchable = value == 1
        if at < 0:
            return None
    if at != end or head.handle < 0:
        return None
    head.payload_at = end
    return head


def _read_tag(head: TransferHead, data: bytes, at: int, end: int) -> int:
    if data[at] == _VBIN8 and at + 2 <= end:
        first = at + 2
        size = data[at + 1]
    elif data[at] == _VBIN32 and at + 5 <= end:
        first = at + 5
        size = int(_unpack_u32(data, at + 1)[0])
    else:
        return -1
    if first + size > end or size > MAX_TAG_BYTES:
        return -1
    head.delivery_tag = data[first : first + size]
    return first + size


_shape_structs: Final[dict[tuple[int, int, int, int], struct.Struct]] = {}


def _shape_struct(prefix_bytes: int, number_code: int, tag_bytes: int, suffix_bytes: int) -> struct.Struct:
    key = (prefix_bytes, number_code, tag_bytes, suffix_bytes)
    known = _shape_structs.get(key)
    if known is None:
        if len(_shape_structs) >= MAX_MEMO_ENTRIES:
            _shape_structs.clear()
        number = "I" if number_code == _UINT else "B"
        known = struct.Struct(f">I{prefix_bytes}s{number}2s{tag_bytes}s{suffix_bytes}s")
        _shape_structs[key] = known
    return known


def learn_shape(
    data: bytes, start: int, head: TransferHead, rcv_settle_mode: int, state: object
) -> TransferShape | None:
    """The shape of the transfer frame that starts at `start`, for `read_run`; None when it is no use as a
    pattern.

    `rcv_settle_mode` is the mode that holds for the delivery. A shape is only made of a whole, first and last
    transfer of a delivery (not more, not aborted, not resumed).
    """
    if head.more or head.aborted or head.resume or head.delivery_id < 0 or head.delivery_tag is None:
        return None
    tag = head.delivery_tag
    number_code = data[head.number_at]
    width = 5 if number_code == _UINT else 2
    if number_code == _UINT0 or head.number_at + width != head.tag_at or data[head.tag_at] != _VBIN8:
        return None
    suffix_at = head.tag_at + 2 + len(tag)
    if len(tag) > MAX_TAG_BYTES or head.payload_at - suffix_at > MAX_MEMO_KEY_BYTES:
        return None
    prefix = data[start + 4 : head.number_at + 1]
    suffix = data[suffix_at : head.payload_at]
    layout = _shape_struct(len(prefix), number_code, len(tag), len(suffix))
    return TransferShape(
        head.handle, width - 1, prefix, data[head.tag_at : head.tag_at + 2], suffix,
        layout.unpack_from, layout.size, max(0, head.message_format), head.settled == 1, state,
        rcv_settle_mode, head.batchable,
    )  # fmt: skip


# A function of a compiled module is not one of Python's.
_COMPILED: Final = not isinstance(learn_shape, FunctionType)


def read_run(
    data: bytes,
    at: int,
    shape: TransferShape,
    delivery_id: int,
    limit: int,
    max_frame_bytes: int,
    deliveries: list[Delivery],
) -> int:
    """Reads up to `limit` transfers of this shape that start at `at`, appends them, and returns where it
    stopped.

    `delivery_id` is the number that the first one has to carry; each next one has to carry the next. Reading
    stops, without an error, at the first frame that is not complete or not of this shape.
    """
    if _COMPILED:
        return run_by_index(data, at, shape, delivery_id, limit, max_frame_bytes, deliveries)
    return run_by_struct(data, at, shape, delivery_id, limit, max_frame_bytes, deliveries)


def run_by_struct(
    data: bytes, at: int, shape: TransferShape, delivery_id: int, limit: int, max_frame_bytes: int,
    deliveries: list[Delivery],
) -> int:  # fmt: skip
    """`read_run` for the interpreter: one call of a prepared struct is cheaper than many small steps (580 ns
    for a message of 100 octets, against 1,030).
    """
    end = len(data)
    unpack = shape.unpack
    prefix = shape.prefix
    middle = shape.middle
    suffix = shape.suffix
    head_bytes = shape.head_bytes
    message_format = shape.message_format
    settled = shape.settled
    state = shape.state
    rcv_settle_mode = shape.rcv_settle_mode
    batchable = shape.batchable
    last_start = end - head_bytes
    append = deliveries.append
    while limit > 0 and at <= last_start:
        size, start, number, tag_size, tag, rest = unpack(data, at)
        stop = at + size
        if (
            number != delivery_id
            or start != prefix
            or rest != suffix
            or tag_size != middle
            or stop > end
            or size < head_bytes
            or size > max_frame_bytes
        ):
            break
        append(
            Delivery(
                number,
                tag,
                message_format,
                settled,
                data[at + head_bytes : stop],
                state,
                rcv_settle_mode,
                batchable,
            )
        )
        at = stop
        delivery_id = (delivery_id + 1) & SERIAL_MASK
        limit -= 1
    return at


def run_by_index(
    data: bytes, at: int, shape: TransferShape, delivery_id: int, limit: int, max_frame_bytes: int,
    deliveries: list[Delivery],
) -> int:  # fmt: skip
    """`read_run` for compiled code, where an index is one machine instruction and a struct makes six objects
    (130 ns for a message of 100 octets, against 450).
    """
    end = len(data)
    head_bytes = shape.head_bytes
    prefix = shape.prefix
    middle = shape.middle
    suffix = shape.suffix
    prefix_bytes = len(prefix)
    tag_bytes = head_bytes - 4 - prefix_bytes - shape.number_bytes - 2 - len(suffix)
    wide = shape.number_bytes == 4
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
            or data[tag_at + tag_bytes : payload_at] != suffix
        ):
            break
        deliveries.append(
            Delivery(
                number,
                data[tag_at : tag_at + tag_bytes],
                shape.message_format,
                shape.settled,
                data[payload_at:stop],
                shape.state,
                shape.rcv_settle_mode,
                shape.batchable,
            )
        )
        at = stop
        delivery_id = (delivery_id + 1) & SERIAL_MASK
        limit -= 1
    return at


def read_disposition(data: bytes, start: int, stop: int) -> tuple[bool, int, int, bool, int, int] | None:
    """(role, first, last, settled, state_at, state_end) of a disposition (2.7.6), or None: use the general
    decoder.

    `state_at` is -1 without a state. The whole frame body has to be the performative.
    """
    at, count, end = _enter_fields(data, start, stop, DISPOSITION_CODE)
    if at < 0 or count < 2 or count > 6 or end != stop:
        return None
    # The fixed part is at most 2 + 5 + 5 bytes; reading it field by field never leaves the frame unnoticed.
    role, at = _boolean_at(data, at)
    if (
        role < 0
        or at + 1 > end
        or (data[at] == _UINT and at + 5 > end)
        or (data[at] == _SMALLUINT and at + 2 > end)
    ):
        return None
    first, at = _uint_at(data, at)
    if first < 0:
        return None
    last = first
    settled = 0
    state_at = state_end = -1
    for index in range(2, count):
        if at >= end:
            return None
        code = data[at]
        if code == _NULL:
            at += 1
        elif index == 2:
            if (code == _UINT and at + 5 > end) or (code == _SMALLUINT and at + 2 > end):
                return None
            last, at = _uint_at(data, at)
        elif index == 3:
            settled, at = _boolean_at(data, at)
        elif index == 4:
            state_at = at
            at = skip_value(data, at, end)
            state_end = at
        else:
            _, at = _boolean_at(data, at)
        if at < 0:
            return None
    if at != end:
        return None
    return role == 1, first, last, settled == 1, state_at, state_end


def read_flow(data: bytes, start: int, stop: int) -> FlowHead | None:
    """The flow whose performative fills the frame body from `start` to `stop`, or None: use the general
    decoder.
    """
    at, count, end = _enter_fields(data, start, stop, FLOW_CODE)
    if at < 0 or count < 4 or count > 11 or end != stop:
        return None
    values = [-1, -1, -1, -1, -1, -1, -1, -1]
    drain = echo = 0
    for index in range(count):
        if at >= end:
            return None
        code = data[at]
        if code == _NULL:
            at += 1
        elif index < 8:
            if (code == _UINT and at + 5 > end) or (code == _SMALLUINT and at + 2 > end):
                return None
            values[index], at = _uint_at(data, at)
        elif index == 8:
            drain, at = _boolean_at(data, at)
        elif index == 9:
            echo, at = _boolean_at(data, at)
        else:
            return None
        if at < 0:
            return None
    if at != end or values[1] < 0 or values[2] < 0 or values[3] < 0:
        return None
    flow = FlowHead()
    (
        flow.next_incoming_id, flow.incoming_window, flow.next_outgoing_id, flow.outgoing_window,
        flow.handle, flow.delivery_count, flow.link_credit, flow.available,
    ) = values  # fmt: skip
    flow.drain = drain == 1
    flow.echo = echo == 1
    return flow
