"""Prints what a hot composite costs in nanoseconds: `python -m tests.benchmarks.codec`.

The generated and the general way take turns in one process; the figures are medians.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from amqp_broker.frames import (
    Accepted,
    Discharge,
    Disposition,
    Flow,
    TransactionalState,
    Transfer,
    decode_composite,
    encode_composite,
    encode_frame,
    generated,
)
from amqp_broker.frames.composite import Composite
from amqp_broker.frames.hot_frames import encode_disposition, encode_flow

TURNS = 101
CALLS = 250  # in one turn
WINDOW = 2**31 - 1
STATE = TransactionalState(txn_id=b"t" * 16, outcome=Accepted())
ACCEPTED = encode_composite(Accepted())
FLOW = Flow(next_incoming_id=70_000, incoming_window=2_048, next_outgoing_id=70_000, outgoing_window=WINDOW)
LINK = Flow(70_000, 2_048, 70_000, WINDOW, handle=0, delivery_count=70_000, link_credit=500)
RANGE = Disposition(role=True, first=70_000, last=70_099, settled=True, state=Accepted())
TRANSFER = Transfer(handle=0, delivery_id=70_000, delivery_tag=b"tag!", message_format=0, settled=False)
ENLISTED = Transfer(0, 70_000, b"tag!", 0, False, state=TransactionalState(txn_id=b"t" * 16))


def cases() -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """Name, the generated way and the general way."""
    found: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {}
    composite: Composite
    read: Callable[[bytes, int, int], Any]
    read_all: Callable[[bytes], Any]
    for name, composite, read in (
        ("read flow of a session", FLOW, generated.read_flow),
        ("read flow of a link", LINK, generated.read_flow),
        ("read disposition", RANGE, generated.read_disposition),
        ("read transfer", TRANSFER, generated.read_transfer),
        ("read transfer with a state", ENLISTED, generated.read_transfer),
    ):
        data = encode_composite(composite)
        found[name] = (partial(read, data, 0, len(data)), partial(decode_composite, data))
    for name, composite, read_all in (
        ("read transactional-state", STATE, generated.read_transactional_state),
        ("read discharge", Discharge(b"t" * 16, False), generated.read_discharge),
    ):
        data = encode_composite(composite)
        found[name] = (partial(read_all, data), partial(decode_composite, data))
    found["write flow"] = (
        partial(encode_flow, 0, 70_000, 2_048, 70_000, WINDOW),
        partial(encode_frame, 0, FLOW),
    )
    found["write disposition"] = (
        partial(encode_disposition, 0, True, 70_000, 70_099, True, ACCEPTED),
        partial(encode_frame, 0, RANGE),
    )
    return found


def nanoseconds(call: Callable[[], Any]) -> float:
    """What one call costs in one turn."""
    start = time.perf_counter_ns()
    for _ in range(CALLS):
        call()
    return (time.perf_counter_ns() - start) / CALLS


def main() -> None:
    """Prints one line for each case."""
    gc.disable()
    for name, ways in cases().items():
        turns = [tuple(nanoseconds(way) for way in ways) for _ in range(TURNS)]
        fast, general = (statistics.median(way) for way in zip(*turns, strict=True))
        print(f"{name:28}{fast:8.0f} generated{general:8.0f} general")


if __name__ == "__main__":
    main()
