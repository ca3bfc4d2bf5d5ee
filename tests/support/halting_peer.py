"""A peer that sends one frame for each read of its client, so that a client which stops too early is seen.

    connection = HaltingPeer(["first", "last"])      a WireConnection without a transport
    receiver = connection.begin().attach_receiver("r", "q")
    receiver.drain_all(10)

Each unit of credit gets a message as long as there are some; the last message for a flow comes in two frames,
and between them the peer says that a drain is over (2.6.7).
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

from amqp_broker.frames import (
    RECEIVER,
    SENDER,
    Accepted,
    Attach,
    Begin,
    Detach,
    Disposition,
    Flow,
    Frame,
    FrameReader,
    Open,
    TransactionalState,
    Transfer,
    encode_frame,
)
from tests.support.wire_client import PATIENCE_S, ConnectionLost, WireConnection
from tests.support.wire_links import MAX_FRAME_SIZE

CREDIT: Final = 100
WINDOW: Final = 2_048


class HaltingPeer(WireConnection):
    """A client's connection and its peer at once. When nothing more is to be read, the transport is gone."""

    def __init__(self, messages: Iterable[bytes], *, settled: bool = False, txn_id: bytes = b"") -> None:
        super().__init__(cast(socket.socket, None), PATIENCE_S)
        self.remote_open = Open(container_id="halting", max_frame_size=MAX_FRAME_SIZE)
        self._messages = deque(messages)
        self._settled = settled
        self._state = TransactionalState(txn_id=txn_id) if txn_id else None
        self._written = FrameReader(MAX_FRAME_SIZE)
        self._answers: deque[bytes] = deque()
        self._next_id = 0

    def flush(self) -> None:
        """Answer what was written."""
        self._written.feed(b"".join(self._output))
        self._output.clear()
        while (item := self._written.next()) is not None:
            if isinstance(item, Frame) and item.performative is not None:
                self._answer(item.channel, item.performative)

    def abort(self) -> None:
        """There is no transport."""

    def _read(self, timeout: float) -> bytes | None:
        if not self._answers:
            raise ConnectionLost("the peer has said everything")
        return self._answers.popleft()

    def _answer(self, channel: int, performative: object) -> None:
        def say(answer: object, payload: bytes = b"") -> None:
            self._answers.append(encode_frame(channel, answer, payload))

        if isinstance(performative, Begin):
            windows: dict[str, Any] = {"incoming_window": WINDOW, "outgoing_window": WINDOW}
            say(Begin(remote_channel=channel, next_outgoing_id=0, **windows))
        elif isinstance(performative, Attach):
            ours = SENDER if performative.role == RECEIVER else RECEIVER
            name, handle, source = performative.name, performative.handle, performative.source
            count = 0 if ours == SENDER else None
            terms = {"name": name, "handle": handle, "source": source, "target": performative.target}
            say(Attach(role=ours, initial_delivery_count=count, **cast(dict[str, Any], terms)))
            if ours == RECEIVER:
                say(flow_of(performative.handle, 0, CREDIT))
        elif isinstance(performative, Detach):
            say(Detach(handle=performative.handle, closed=performative.closed))
        elif isinstance(performative, Disposition) and not performative.settled:
            first, last = performative.first, performative.last
            say(Disposition(role=SENDER, first=first, last=last, settled=True, state=Accepted()))
        elif isinstance(performative, Flow) and performative.handle is not None:
            self._send(say, performative)

    def _send(self, say: Callable[..., None], flow: Flow) -> None:
        """What a link is given for its credit; what is left of a drain goes back before the last frame."""
        assert flow.handle is not None
        credit = flow.link_credit or 0
        payloads = [self._messages.popleft() for _ in range(min(credit, len(self._messages)))]
        over = flow_of(flow.handle, (flow.delivery_count or 0) + credit, 0)
        goes_back = bool(flow.drain) and len(payloads) < credit
        if goes_back and not payloads:
            say(over)
        for number, payload in enumerate(payloads):
            last = number + 1 == len(payloads)
            for at, half in enumerate([payload[:9], payload[9:]] if last else [payload]):
                if at and goes_back:
                    say(over)
                transfer = Transfer(
                    handle=flow.handle,
                    delivery_id=self._next_id,
                    delivery_tag=b"%d" % self._next_id,
                    message_format=0,
                    settled=self._settled,
                    more=last and not at,
                    state=self._state,
                )
                say(transfer, half)
            self._next_id += 1


def flow_of(handle: int | None, delivery_count: int, link_credit: int) -> Flow:
    """Of a link."""
    return Flow(
        next_incoming_id=0,
        incoming_window=WINDOW,
        next_outgoing_id=0,
        outgoing_window=WINDOW,
        handle=handle,
        delivery_count=delivery_count,
        link_credit=link_credit,
    )
