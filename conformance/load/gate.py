"""What many cost beside one, in one run: ratios of the broker's processor time for a message, which hardly
depend on the machine or on what else it does. A limit is several times what was found, so that only a cost of
another order fails: one that grows with the queues or consumers that are there, or a group that is none.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from amqp_broker.conformance.load.cases import DURABLE, Case, Consumers, Spread
from amqp_broker.conformance.load.sitting import Sitting
from amqp_broker.conformance.load.tables import Row

HEADS: Final = ("what", "times the processor time", "limit", "")
ROUNDS: Final = 3
FEW: Final = DURABLE | {"credit": 10}


@attrs.frozen
class Gate:
    """A message of `many` takes at most `limit` times the processor time of one of `one`."""

    name: str
    many: Case
    one: Case
    limit: float

    def times(self, sitting: Sitting) -> float:
        """The median of some rounds, in each of which both are measured."""
        sizes = [(case, case.sized(sitting)) for case in (self.many, self.one)]
        found: list[float] = []
        for _ in range(ROUNDS):
            many, one = (case.once(sitting, changes)["broker_us"] for case, changes in sizes)
            found.append(many / one)
        return statistics.median(found)


GATES: Final = (
    Gate(
        "sent over 100 queues, beside one",
        Spread(name="", counts="sender", links=100),
        Spread(name="", counts="sender", links=1),
        15.0,  # found: 4.1
    ),
    Gate(
        "received by 100 consumers of a queue, beside one",
        Consumers(name="", links=100, changes=FEW),
        Consumers(name="", links=1, changes=DURABLE | {"credit": 1_000}),
        12.0,  # found: 2.8
    ),
    Gate(
        "in a window of 1,000, beside a window of 1",
        Case("", DURABLE),
        Case("", DURABLE | {"credit": 1, "in_flight": 1}),
        0.1,  # found: 0.01
    ),
)


def judged(sitting: Sitting, gates: Sequence[Gate] = GATES) -> Iterator[Row]:
    """A row for each."""
    for gate in gates:
        times = gate.times(sitting)
        verdict = "passed" if times <= gate.limit else "FAILED"
        yield [gate.name, f"{times:.2f}", f"{gate.limit:g}", verdict]
