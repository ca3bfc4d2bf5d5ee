"""A backlog of millions lives on disk.

Durable messages are sent to a queue that nobody reads, then they are all read. It passes when the broker's
memory grew by less than 128 MiB at every moment and every message came once and in order.
"""

from __future__ import annotations

from typing import Final

from amqp_broker.conformance.load.processes import Memory
from amqp_broker.conformance.load.sitting import Sitting

LIMIT_KIB: Final = 128 * 1_024
WARM_UP: Final = 20_000


def passes(sitting: Sitting, count: int) -> bool:
    """Measure, print, judge."""
    sitting.once(sitting.settings({"durable": True, "count": WARM_UP}))
    settings = sitting.settings({"durable": True, "count": count, "timeout": 60.0})
    with Memory(sitting.pid) as memory:
        sent = sitting.once(settings, roles=("sender",))
        said = f"{sent['sent']:,} messages sent, {sent['sent_per_second']:,.0f}/s"
        print(f"{said}; memory {memory.growth_kib:+,} KiB", flush=True)
        came = sitting.once(settings, roles=("receiver",))
    said = f"{came['received']:,} messages received, {came['messages_per_second']:,.0f}/s"
    print(f"{said}; memory at most {memory.growth_kib:+,} KiB")
    names = ("lost", "duplicates", "out_of_order", "foreign")
    print(", ".join(f"{name.replace('_', ' ')} {came[name]}" for name in names))
    wrong = sum(came[name] for name in names) + len(sent["stalled"]) + len(came["stalled"])
    passed = not wrong and sent["outcomes"]["accepted"] == count and memory.growth_kib < LIMIT_KIB
    print("passed" if passed else f"FAILED: expected everything in order within {LIMIT_KIB:,} KiB")
    return passed
