"""What the processes of a run say is heard, however it comes."""

from __future__ import annotations

import sys

from amqp_broker.bench.run import measure
from amqp_broker.bench.settings import BenchSettings

HASTY = """
import sys
sys.stdout.write('{"ready": true}\\n')
sys.stdout.flush()
sys.stdin.readline()
sys.stdout.write('{"at": 1}\\n{"paused": true}\\n{"at"')
sys.stdout.flush()
sys.stdin.readline()
sys.stdout.write(': 2}\\n{"result": {"sent": 2}}\\n')
"""
"""Says two things at once, and the third in two pieces."""


def hasty(role: str, pair: int, settings: BenchSettings) -> list[str]:
    return [sys.executable, "-c", HASTY]


def test_two_lines_that_come_at_once_are_both_heard() -> None:
    """The second one is not left where nobody looks until a third one comes: it waits for an answer."""
    settings = BenchSettings(host="127.0.0.1", port=1)
    marks: list[int] = []
    found = measure(settings, hasty, roles=("sender",), mark=lambda: marks.append(len(marks)))
    assert found == {"sender-0": {"sent": 2}}
    assert marks == [0, 1]
