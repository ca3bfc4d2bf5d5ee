"""The frame-level peer of `peer` over a trio stream: it writes and reads when it is told to."""

from __future__ import annotations

from typing import Final

import trio

from amqp_broker.frames import Frame, ProtocolHeader
from amqp_broker.testing.peer import MAX_FRAME_SIZE, Peer

READ_BYTES: Final = 65_536


class StreamPeer(Peer):
    """A peer over a stream. Nothing waits for an answer but `read`."""

    def __init__(self, stream: trio.abc.Stream, max_frame_size: int = MAX_FRAME_SIZE) -> None:
        super().__init__(max_frame_size)
        self.stream = stream
        self.reader.expect_header()

    async def write(self) -> None:
        """Write what was put, at once."""
        if data := self.take():
            await self.stream.send_all(data)

    async def read(self) -> Frame | ProtocolHeader | None:
        """The next header or frame, also an empty one; None at the end of the stream."""
        while (item := self.received()) is None:
            data = await self.stream.receive_some(READ_BYTES)
            if not data:
                return None
            self.feed(bytes(data))
        return item
