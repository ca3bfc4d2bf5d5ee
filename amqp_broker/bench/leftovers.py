"""What a queue holds at the end: exactly the messages that must be there, once and in order, and no other."""

from __future__ import annotations

from amqp_broker.bench.ledger import Ledger
from amqp_broker.bench.receiver import SERIAL, Receiver
from amqp_broker.bench.settings import BenchSettings
from amqp_broker.frames import Flow


class LeftoverLedger(Ledger):
    """Counts messages of which only some may be there; the others belong to no commit."""

    __slots__ = ("forbidden", "_allowed")

    def __init__(self, wanted: bytes | bytearray) -> None:
        """One byte for each number: not 0 when this message must be there."""
        super().__init__(len(wanted))
        self._allowed = wanted
        self.forbidden = 0
        self.count = len(wanted) - wanted.count(0)

    def add(self, number: int, latency_ns: int) -> None:
        """One message."""
        if 0 <= number < len(self._allowed) and not self._allowed[number]:
            self.forbidden += 1
            return
        super().add(number, latency_ns)

    def add_run(self, first: int, count: int) -> bool:
        """Consecutive numbers that are all wanted, all new and all behind the highest."""
        if 0 in self._allowed[first : first + count]:
            return False
        return super().add_run(first, count)

    def result(self) -> dict[str, object]:
        """What this process tells the report."""
        return {**super().result(), "forbidden": self.forbidden}


class Leftovers(Receiver):
    """Takes everything out of a queue: first what must be there, then, with drain, what must not (2.6.7)."""

    _draining = False
    empty = False

    def __init__(self, settings: BenchSettings, pair: int, wanted: bytes | bytearray) -> None:
        """`settings` name the queue as its address."""
        self.tale = LeftoverLedger(wanted)
        super().__init__(settings, pair, self.tale)
        self._renew()

    @property
    def finished(self) -> bool:
        """The broker says that there is nothing more, and what we answered is written."""
        return self.empty and not self.wire.writing

    @property
    def position(self) -> int:
        """Grows with everything that comes."""
        tale = self.tale
        return tale.received + tale.duplicates + tale.foreign + tale.forbidden

    def _renew(self) -> None:
        if self.ledger.lost:
            super()._renew()
        elif not self._draining or (self.credit == 0 and not self.empty):
            self._draining = True
            self.credit = self.credit or self.settings.credit
            self._flow(link=True, drain=True)

    def _frame(self, performative: object) -> None:
        super()._frame(performative)
        if self._draining and self.credit and isinstance(performative, Flow):
            # A delivery-count ahead of what came: credit was given back for lack of messages (2.6.7).
            counted = (self.delivery_count + self.credit) % SERIAL
            self.empty = self.empty or performative.delivery_count == counted
