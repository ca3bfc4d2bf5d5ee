"""What an overview of a broker tells, as series over time: of its page, and of the terminal."""

from __future__ import annotations

from typing import Final

import attrs

from amqp_broker.looking.broker_view import History

MIB: Final = 1 << 20
GIB: Final = 1 << 30
Numbers = list[float | None]


@attrs.frozen
class Figure:
    """Series that are looked at together: a title, their unit, and each by its name."""

    title: str
    unit: str
    series: dict[str, Numbers]


def _scaled(values: Numbers, factor: float) -> Numbers:
    return [None if value is None else value * factor for value in values]


def figures(history: History) -> list[Figure]:
    """Rates, depth, commits, memory and disk; the disk only where there is one."""
    found = [
        Figure("Messages", "a second", {
            "came": history.rate("arrived"), "sent": history.rate("sent"),
            "accepted": history.rate("accepted"),
        }),
        Figure("Depth", "messages in all queues", {"waiting": history.values("messages")}),
        Figure("Latency of a commit", "ms", {
            "commit": _scaled(history.ratio("commit_seconds", "commits"), 1_000),
        }),
        Figure("Commits", "a second", {"commits": history.rate("commits")}),
        Figure("Memory", "MiB", {
            "used": _scaled(history.values("memory_used_bytes"), 1 / MIB),
            "cache": _scaled(history.values("memory_cache_bytes"), 1 / MIB),
        }),
        Figure("Free disk", "GiB", {"free": _scaled(history.values("disk_free_bytes"), 1 / GIB)}),
    ]  # fmt: skip
    if not history.samples or history.samples[-1].values["disk_free_bytes"] is None:
        del found[-1]
    return found
