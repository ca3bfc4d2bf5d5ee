"""What became of the transactions of one controller."""

from __future__ import annotations

import time
from typing import Final

from amqp_broker.bench.histogram import Histogram
from amqp_broker.bench.sender import OUTCOMES
from amqp_broker.bench.settings import BenchSettings
from amqp_broker.bench.wire import Run

_TOLD: Final = ("refused", "first_refusal", "late_outcomes", "settled_retirements", "first_at")


class Transaction:
    """One transaction from its declare to the answer to its discharge."""

    __slots__ = ("answered", "asked_ns", "discharged_ns", "number", "posted", "taken", "txn_id")

    def __init__(self, number: int, asked_ns: int) -> None:
        self.number = number
        self.asked_ns = asked_ns
        self.discharged_ns = 0
        self.txn_id = b""
        self.posted = 0
        # Postings whose provisional outcome has come (4.4.1).
        self.answered = 0
        self.taken: list[Run] = []


class Score:
    """Counts, latencies, and which transactions committed."""

    def __init__(self, settings: BenchSettings) -> None:
        self.settings = settings
        self.ends = 0
        self.committed = bytearray(settings.transactions)
        self.refused = 0
        self.first_refusal = ""
        self.outcomes = [0] * len(OUTCOMES)
        # Outcomes that came after their transaction's discharge was accepted, or never (4.4.1).
        self.late_outcomes = 0
        self.settled_retirements = 0
        self.declares, self.discharges, self.wholes = Histogram(), Histogram(), Histogram()
        self.first_at = self.last_at = 0.0

    def began(self, now_ns: int) -> None:
        """A transaction is asked for."""
        self.first_at = self.first_at or now_ns / 1e9

    def ended(self, transaction: Transaction, refusal: str, now_ns: int) -> bool:
        """Its discharge is answered, with an error unless `refusal` is empty; True when it committed."""
        self.ends += 1
        self.last_at = now_ns / 1e9
        self.discharges.add(now_ns - transaction.discharged_ns)
        self.wholes.add(now_ns - transaction.asked_ns)
        if refusal:
            self.refused += 1
            self.first_refusal = self.first_refusal or refusal
        committed = not refusal and not self.settings.rolls_back(transaction.number)
        if committed and not self.settings.settled:
            self.late_outcomes += transaction.posted - transaction.answered
        self.committed[transaction.number] = committed
        return committed

    def posted(self) -> bytearray:
        """One byte for each message: 1 when its transaction committed, so that it must be there."""
        size = self.settings.in_each
        return bytearray(b"".join((b"\1" if committed else b"\0") * size for committed in self.committed))

    def result(self) -> dict[str, object]:
        """What this process tells the report."""
        committed = sum(self.committed)
        return {
            "declare_us": self.declares.result(),
            "discharge_us": self.discharges.result(),
            "transaction_us": self.wholes.result(),
            "committed": committed,
            "rolled_back": self.ends - committed - self.refused,
            "outcomes": dict(zip(OUTCOMES, self.outcomes, strict=True)),
            **{name: getattr(self, name) for name in _TOLD},
            "last_at": self.last_at or time.monotonic(),
        }
