"""Transfers, dispositions and flows straight from the reader's buffer, as clients encode them (2.3.1), and
the door to all that the engine reads and writes without composites.

    SIZE | 0x02 | 0x00 | CHANNEL | 0x00 0x53 code | list of fields | payload
    four octets         two       code: 0x13 flow, 0x14 transfer, 0x15 disposition

Everything that is not certain is left to `FrameReader.next`, which starts at the same byte.
"""

from __future__ import annotations

import struct
from typing import Final

from amqp_broker.frames.delivery import Delivery
from amqp_broker.frames.delivery_states import decode_state
from amqp_broker.frames.field_writers import link_fields
from amqp_broker.frames.framing import FrameReader
from amqp_broker.frames.generated import (
    FlowHead,
    TransferHead,
    encode_disposition,
    encode_flow,
    read_disposition,
    read_flow,
    read_transfer,
)
from amqp_broker.frames.layout import Sendable, TransferEncoder, TransferLayout

__all__ = [
    "Delivery", "FlowHead", "HotFrames", "Sendable", "TransferEncoder", "TransferHead", "TransferLayout",
    "encode_disposition", "encode_flow", "link_fields", "read_disposition", "read_transfer",
]  # fmt: skip

_FLOW: Final = 0x13
_TRANSFER: Final = 0x14
_DISPOSITION: Final = 0x15
_DESCRIBED_SMALLULONG: Final = 0x0053
_SHORTEST_FRAME: Final = 12
_BODY_AT: Final = 8
_frame_header: Final = struct.Struct(">IBBHHB").unpack_from


class HotFrames:
    """Whoever takes hot frames. `on_...` tells whether it took the frame; one that it did not take is read
    again, the general way.
    """

    __slots__ = ()

    def read_next(self, reader: FrameReader) -> bool:
        """Takes the next frame; False where it is not whole, not hot, or was not taken. Raises DecodeError
        for a malformed delivery-state.
        """
        data = reader.data
        start = reader.position
        if len(data) - start < _SHORTEST_FRAME:
            return False
        size, doff, frame_type, channel, described, code = _frame_header(data, start)
        stop = start + size
        if (
            described != _DESCRIBED_SMALLULONG
            or doff != 2
            or frame_type != 0
            or stop > len(data)
            or size > reader.max_frame_size
            or size < _SHORTEST_FRAME
        ):
            return False
        state: object = None
        taken = False
        if code == _TRANSFER:
            head = read_transfer(data, start + _BODY_AT, stop)
            if head is not None:
                if head.state_at >= 0:
                    state = decode_state(data[head.state_at : head.state_end])
                reader.position = stop
                taken = self.on_transfer(channel, head, data[head.payload_at : stop], state, start)
        elif code == _DISPOSITION:
            fields = read_disposition(data, start + _BODY_AT, stop)
            if fields is not None:
                role, first, last, settled, state_at, state_end = fields
                if state_at >= 0:
                    state = decode_state(data[state_at:state_end])
                reader.position = stop
                taken = self.on_disposition(channel, role, first, last, settled, state)
        elif code == _FLOW:
            flow = read_flow(data, start + _BODY_AT, stop)
            if flow is not None:
                reader.position = stop
                taken = self.on_flow(channel, flow)
        if not taken:
            reader.position = start
        return taken

    def on_transfer(
        self, channel: int, head: TransferHead, payload: bytes, state: object, start: int
    ) -> bool:
        """A transfer; its frame begins at `start` in the reader's data."""
        raise AssertionError("who takes hot frames takes transfers")

    def on_disposition(
        self, channel: int, role: bool, first: int, last: int, settled: bool, state: object
    ) -> bool:
        """A disposition."""
        raise AssertionError("who takes hot frames takes dispositions")

    def on_flow(self, channel: int, flow: FlowHead) -> bool:
        """A flow without properties."""
        raise AssertionError("who takes hot frames takes flows")
