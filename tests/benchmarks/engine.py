"""Prints what the engine costs for each message, in nanoseconds: `python -m tests.benchmarks.engine`.

The frames are those of the C load client (list8, delivery-id as uint, four octets of tag, 100 octets of
data). Budgets (performance.md): receive 1,300, send 800, an incoming range disposition 250, settling a range
outgoing about 50.
"""

from __future__ import annotations

import gc
import struct
import sys
import time

from amqp_broker.frames import (
    AMQP_HEADER,
    RECEIVER,
    SENDER,
    Accepted,
    Attach,
    Begin,
    Open,
    Source,
    Target,
    encode_frame,
)
from amqp_broker.frames.hot_frames import encode_disposition, encode_flow, link_fields
from amqp_broker.links import (
    AttachReceived,
    Connection,
    ConnectionSettings,
    DeliveriesReceived,
    Event,
    OutcomesReceived,
    ReceiverLink,
    SenderLink,
)

BODY_BYTES = 100
RUN = 400  # messages in one read of 64 KiB, about
ROUNDS = 200
ACCEPTED = b"\x00\x53\x24\x45"


class Message:
    """A Sendable."""

    __slots__ = ("body", "header_bytes", "message_format")

    def __init__(self, body: bytes) -> None:
        self.header_bytes = b"\x00\x53\x70\xc0\x02\x01\x41"
        self.body = body
        self.message_format = 0


def transfer(delivery_id: int, settled: bool) -> bytes:
    """One transfer as the C load client writes it."""
    payload = b"\x00\x53\x70\xc0\x02\x01\x41\x00\x53\x75\xa0" + bytes((BODY_BYTES,)) + b"x" * BODY_BYTES
    fields = b"\x43\x70" + struct.pack(">I", delivery_id) + b"\xa0\x04" + struct.pack(">I", delivery_id)
    fields += b"\x43" + (b"\x41" if settled else b"\x42")
    body = b"\x00\x53\x14\xc0" + bytes((len(fields) + 1, 5)) + fields + payload
    return struct.pack(">I", 8 + len(body)) + b"\x02\x00\x00\x00" + body


def opened(role: bool, settled: bool) -> tuple[Connection, ReceiverLink | SenderLink]:
    """A server with one session and one link; `role` is the client's."""
    engine = Connection(ConnectionSettings(container_id="bench"), 0.0)
    frames = [
        AMQP_HEADER,
        encode_frame(0, Open(container_id="c", max_frame_size=65536)),
        encode_frame(0, Begin(next_outgoing_id=0, incoming_window=2**31 - 1, outgoing_window=2**31 - 1)),
        encode_frame(
            0,
            Attach(
                name="l", handle=0, role=role, snd_settle_mode=int(settled), source=Source(address="q"),
                target=Target(address="q"), initial_delivery_count=0,
            ),
        ),
    ]  # fmt: skip
    events: list[Event] = engine.receive_data(b"".join(frames), 0.0)
    attach = events[-1]
    assert isinstance(attach, AttachReceived)
    attach.link.accept(credit=2_000)
    engine.data_to_send()
    return engine, attach.link


def receive(settled: bool) -> tuple[float, float]:
    """(receiving, settling and processed) for each message."""
    engine, link = opened(SENDER, settled)
    assert isinstance(link, ReceiverLink)
    best_receive = best_settle = 1e9
    for turn in range(ROUNDS):
        data = b"".join(transfer(turn * RUN + index, settled) for index in range(RUN))
        start = time.perf_counter_ns()
        events = engine.receive_data(data, 0.0)
        middle = time.perf_counter_ns()
        event = events[0]
        assert isinstance(event, DeliveriesReceived) and len(event.deliveries) == RUN
        link.settle(event.deliveries, Accepted())
        link.processed(RUN)
        stop = time.perf_counter_ns()
        engine.data_to_send()
        best_receive = min(best_receive, (middle - start) / RUN)
        best_settle = min(best_settle, (stop - middle) / RUN)
    return best_receive, best_settle


def send(settled: bool) -> tuple[float, float]:
    """(sending, the receiver's outcome) for each message."""
    engine, link = opened(RECEIVER, settled)
    assert isinstance(link, SenderLink)
    messages = [Message(b"\x00\x53\x75\xa0" + bytes((BODY_BYTES,)) + b"x" * BODY_BYTES) for _ in range(RUN)]
    best_send = best_outcome = 1e9
    for turn in range(ROUNDS):
        count = turn * RUN
        credit = encode_flow(0, count, 2**31 - 1, 0, 2**31 - 1, *link_fields(0, count, RUN))
        engine.receive_data(credit, 0.0)
        start = time.perf_counter_ns()
        taken = link.send(messages)
        engine.data_to_send()
        stop = time.perf_counter_ns()
        assert taken == RUN
        best_send = min(best_send, (stop - start) / RUN)
        if not settled:
            frame = encode_disposition(0, RECEIVER, count, count + RUN - 1, True, ACCEPTED)
            start = time.perf_counter_ns()
            events = engine.receive_data(frame, 0.0)
            stop = time.perf_counter_ns()
            assert isinstance(events[0], OutcomesReceived) and len(events[0].deliveries) == RUN
            best_outcome = min(best_outcome, (stop - start) / RUN)
    return best_send, best_outcome


def main() -> None:
    """Prints the figures."""
    gc.collect()
    gc.freeze()
    print(f"{BODY_BYTES} octets, runs of {RUN}, best of {ROUNDS}; Python {sys.version.split()[0]}")
    for settled in (False, True):
        name = "settled" if settled else "unsettled"
        received, ours = receive(settled)
        sent, theirs = send(settled)
        print(f"{name:10} receive {received:5.0f} ns   settle and renew {ours:4.0f} ns", end="")
        print(f"   send {sent:5.0f} ns" + ("" if settled else f"   outcome received {theirs:4.0f} ns"))


if __name__ == "__main__":
    main()
