"""Readers and writers of the hot composites: `python -m tests.frames.generate` writes them.

Each reader takes the composite whose descriptor is at `start`, in data that ends with it or at `stop`. What
is not set is -1 or None. The answer None means that the general decoder has to decide, also about errors; any
other answer is what it would have said. A delivery-state stays encoded, from `state_at` to `state_end`; both
are -1 without one.
"""

from __future__ import annotations

import struct
from typing import Final

from amqp_broker.frames.field_readers import (
    OCTETS,
    boolean,
    boolean_or_false,
    boolean_or_none,
    end_of_state,
    enter_list,
    flag,
    octets_or_none,
    ubyte,
    uint,
    uint_or,
)
from amqp_broker.frames.field_writers import list_frame
from amqp_broker.frames.outcomes import Accepted, Released, TransactionalState
from amqp_broker.frames.transactions import Discharge


class FlowHead:
    """The fields of one flow, in their order."""

    __slots__ = (
        "next_incoming_id", "incoming_window", "next_outgoing_id", "outgoing_window", "handle",
        "delivery_count", "link_credit", "available", "drain", "echo",
    )  # fmt: skip

    def __init__(self) -> None:
        self.next_incoming_id: int = -1
        self.incoming_window: int = -1
        self.next_outgoing_id: int = -1
        self.outgoing_window: int = -1
        self.handle: int = -1
        self.delivery_count: int = -1
        self.link_credit: int = -1
        self.available: int = -1
        self.drain: bool = False
        self.echo: bool = False


class TransferHead:
    """The fields of one transfer, in their order."""

    __slots__ = (
        "handle", "delivery_id", "delivery_tag", "message_format", "settled", "more", "rcv_settle_mode",
        "state_at", "state_end", "resume", "aborted", "batchable", "payload_at",
    )  # fmt: skip

    def __init__(self) -> None:
        self.handle: int = -1
        self.delivery_id: int = -1
        self.delivery_tag: bytes | None = None
        self.message_format: int = -1
        self.settled: int = -1
        self.more: bool = False
        self.rcv_settle_mode: int = -1
        self.state_at: int = -1
        self.state_end: int = -1
        self.resume: bool = False
        self.aborted: bool = False
        self.batchable: bool = False
        self.payload_at: int = 0


def read_flow(data: bytes, start: int, stop: int) -> FlowHead | None:
    """The flow at `start`, or None."""
    try:
        if data[start : start + 4] == b"\x00\x53\x13\xc0":
            at, end, count = start + 6, start + 5 + data[start + 4], data[start + 5]
        else:
            at, end, count = enter_list(data, start, b"\x00\x53\x13")
        if end != stop:
            return None
        head = FlowHead()
        head.next_incoming_id = data[at + 1] if (code := data[at]) == 0x52 else uint_or(data, at, code, -1)
        at += OCTETS[code]
        head.incoming_window = data[at + 1] if (code := data[at]) == 0x52 else uint(data, at, code)
        at += OCTETS[code]
        head.next_outgoing_id = data[at + 1] if (code := data[at]) == 0x52 else uint(data, at, code)
        at += OCTETS[code]
        head.outgoing_window = data[at + 1] if (code := data[at]) == 0x52 else uint(data, at, code)
        at += OCTETS[code]
        if at == end:
            return head if count == 4 else None
        head.handle = data[at + 1] if (code := data[at]) == 0x52 else uint_or(data, at, code, -1)
        at += OCTETS[code]
        if at == end:
            return head if count == 5 else None
        head.delivery_count = data[at + 1] if (code := data[at]) == 0x52 else uint_or(data, at, code, -1)
        at += OCTETS[code]
        if at == end:
            return head if count == 6 else None
        head.link_credit = data[at + 1] if (code := data[at]) == 0x52 else uint_or(data, at, code, -1)
        at += OCTETS[code]
        if at == end:
            return head if count == 7 else None
        head.available = data[at + 1] if (code := data[at]) == 0x52 else uint_or(data, at, code, -1)
        at += OCTETS[code]
        if at == end:
            return head if count == 8 else None
        head.drain = (code := data[at]) == 0x41 or (code != 0x42 and boolean_or_false(data, at, code))
        at += OCTETS[code]
        if at == end:
            return head if count == 9 else None
        head.echo = (code := data[at]) == 0x41 or (code != 0x42 and boolean_or_false(data, at, code))
        at += OCTETS[code]
        if at == end:
            return head if count == 10 else None
        if data[at] != 0x40:
            return None
        at += 1
        if at != end or count != 11:
            return None
    except (IndexError, ValueError, struct.error):
        return None
    return head


def read_transfer(data: bytes, start: int, stop: int) -> TransferHead | None:
    """The transfer at `start`, or None."""
    try:
        if data[start : start + 4] == b"\x00\x53\x14\xc0":
            at, end, count = start + 6, start + 5 + data[start + 4], data[start + 5]
        else:
            at, end, count = enter_list(data, start, b"\x00\x53\x14")
        if end > stop:
            return None
        head = TransferHead()
        head.payload_at = end
        head.handle = data[at + 1] if (code := data[at]) == 0x52 else uint(data, at, code)
        at += OCTETS[code]
        if at == end:
            return head if count == 1 else None
        head.delivery_id = data[at + 1] if (code := data[at]) == 0x52 else uint_or(data, at, code, -1)
        at += OCTETS[code]
        if at == end:
            return head if count == 2 else None
        head.delivery_tag = octets_or_none(data, at, 32)
        at += 1 if head.delivery_tag is None else 2 + data[at + 1]
        if at == end:
            return head if count == 3 else None
        head.message_format = data[at + 1] if (code := data[at]) == 0x52 else uint_or(data, at, code, -1)
        at += OCTETS[code]
        if at == end:
            return head if count == 4 else None
        head.settled = 1 if (code := data[at]) == 0x41 else 0 if code == 0x42 else flag(data, at, code)
        at += OCTETS[code]
        if at == end:
            return head if count == 5 else None
        head.more = (code := data[at]) == 0x41 or (code != 0x42 and boolean_or_false(data, at, code))
        at += OCTETS[code]
        if at == end:
            return head if count == 6 else None
        head.rcv_settle_mode = -1 if (code := data[at]) == 0x40 else ubyte(data, at, code, 1)
        at += OCTETS[code]
        if at == end:
            return head if count == 7 else None
        if data[at] != 0x40:
            head.state_at, head.state_end = at, end_of_state(data, at, end)
        at = max(at + 1, head.state_end)
        if at == end:
            return head if count == 8 else None
        head.resume = (code := data[at]) == 0x41 or (code != 0x42 and boolean_or_false(data, at, code))
        at += OCTETS[code]
        if at == end:
            return head if count == 9 else None
        head.aborted = (code := data[at]) == 0x41 or (code != 0x42 and boolean_or_false(data, at, code))
        at += OCTETS[code]
        if at == end:
            return head if count == 10 else None
        head.batchable = (code := data[at]) == 0x41 or (code != 0x42 and boolean_or_false(data, at, code))
        at += OCTETS[code]
        if at != end or count != 11:
            return None
    except (IndexError, ValueError, struct.error):
        return None
    return head


def read_disposition(data: bytes, start: int, stop: int) -> tuple[bool, int, int, bool, int, int] | None:
    """(role, first, last, settled, state_at, state_end) of the disposition at `start`, or None."""
    try:
        if data[start : start + 4] == b"\x00\x53\x15\xc0":
            at, end, count = start + 6, start + 5 + data[start + 4], data[start + 5]
        else:
            at, end, count = enter_list(data, start, b"\x00\x53\x15")
        if end != stop:
            return None
        role = (code := data[at]) == 0x41 or (code != 0x42 and boolean(data, at, code))
        at += OCTETS[code]
        first = data[at + 1] if (code := data[at]) == 0x52 else uint(data, at, code)
        at += OCTETS[code]
        if at == end:
            return (role, first, first, False, -1, -1) if count == 2 else None
        last = data[at + 1] if (code := data[at]) == 0x52 else uint_or(data, at, code, first)
        at += OCTETS[code]
        if at == end:
            return (role, first, last, False, -1, -1) if count == 3 else None
        settled = (code := data[at]) == 0x41 or (code != 0x42 and boolean_or_false(data, at, code))
        at += OCTETS[code]
        if at == end:
            return (role, first, last, settled, -1, -1) if count == 4 else None
        state_at = state_end = -1
        if data[at] != 0x40:
            state_at, state_end = at, end_of_state(data, at, end)
        at = max(at + 1, state_end)
        if at == end:
            return (role, first, last, settled, state_at, state_end) if count == 5 else None
        if (code := data[at]) != 0x41 and code != 0x42:
            boolean_or_false(data, at, code)
        at += OCTETS[code]
        if at != end or count != 6:
            return None
    except (IndexError, ValueError, struct.error):
        return None
    return (role, first, last, settled, state_at, state_end)


def read_transactional_state(data: bytes, start: int = 0) -> TransactionalState | None:
    """The transactional-state at `start`, or None."""
    try:
        if data[start : start + 4] == b"\x00\x53\x34\xc0":
            at, end, count = start + 6, start + 5 + data[start + 4], data[start + 5]
        else:
            at, end, count = enter_list(data, start, b"\x00\x53\x34")
        if end != len(data):
            return None
        if data[at] != 0xA0:
            return None
        behind = at + 2 + data[at + 1]
        txn_id = data[at + 2 : behind]
        at = behind
        if at == end:
            return TransactionalState(txn_id) if count == 1 else None
        outcome: Accepted | Released | None = None
        if data[at : at + 4] == b"\x00\x53\x24\x45":
            outcome = Accepted()
            at += 4
        elif data[at : at + 4] == b"\x00\x53\x26\x45":
            outcome = Released()
            at += 4
        elif data[at] == 0x40:
            at += 1
        else:
            return None
        if at != end or count != 2:
            return None
    except (IndexError, ValueError, struct.error):
        return None
    return TransactionalState(txn_id, outcome)


def read_discharge(data: bytes, start: int = 0) -> Discharge | None:
    """The discharge at `start`, or None."""
    try:
        if data[start : start + 4] == b"\x00\x53\x32\xc0":
            at, end, count = start + 6, start + 5 + data[start + 4], data[start + 5]
        else:
            at, end, count = enter_list(data, start, b"\x00\x53\x32")
        if end != len(data):
            return None
        if data[at] != 0xA0:
            return None
        behind = at + 2 + data[at + 1]
        txn_id = data[at + 2 : behind]
        at = behind
        if at == end:
            return Discharge(txn_id) if count == 1 else None
        fail = (code := data[at]) == 0x41 or (False if code == 0x42 else boolean_or_none(data, at, code))
        at += OCTETS[code]
        if at != end or count != 2:
            return None
    except (IndexError, ValueError, struct.error):
        return None
    return Discharge(txn_id, fail)


_pack_flow: Final = struct.Struct(">IHHIBBBIBIBIBI").pack


def encode_flow(
    channel: int, next_incoming_id: int, incoming_window: int, next_outgoing_id: int, outgoing_window: int,
    link: bytes = b"", link_fields: int = 0,
) -> bytes:  # fmt: skip
    """A flow frame; what comes behind outgoing-window is encoded in `link`."""
    size = 21 + len(link)
    count = 4 + link_fields
    frame = _pack_flow(
        size + 13, 0x0200, channel, 0x005313C0, size if size < 256 else 0, count, 0x70,
        0 if next_incoming_id < 0 else next_incoming_id, 0x70, incoming_window, 0x70, next_outgoing_id, 0x70,
        outgoing_window,
    )  # fmt: skip
    if next_incoming_id < 0:  # not set
        return list_frame(channel, 0x13, count, b"\x40" + frame[19:] + link)
    if size > 255:
        return list_frame(channel, 0x13, count, frame[14:] + link)
    return frame + link


_pack_disposition: Final = struct.Struct(">IHHIBBBBIBIB").pack


def encode_disposition(
    channel: int, role: bool, first: int, last: int, settled: bool, state: bytes,
) -> bytes:  # fmt: skip
    """A disposition frame; what comes behind settled is encoded in `state`."""
    size = 13 + len(state)
    count = 5 if state else 4
    frame = _pack_disposition(
        size + 13, 0x0200, channel, 0x005315C0, size if size < 256 else 0, count, 0x41 if role else 0x42,
        0x70, first, 0x70, last, 0x41 if settled else 0x42,
    )  # fmt: skip
    if size > 255:
        return list_frame(channel, 0x15, count, frame[14:] + state)
    return frame + state
