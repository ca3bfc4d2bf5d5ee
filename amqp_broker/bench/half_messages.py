"""Half messages of our broker: each is put, committed when it was accepted, and delivered.

    sender --put--> $half/GROUP/ADDRESS      sender --commit--> $half-resolve/GROUP
    receiver <-- ADDRESS                     many of each are in flight at once
"""

from __future__ import annotations

from typing import Final

import attrs

from amqp_broker.bench.driver import Driver
from amqp_broker.bench.receiver import Receiver
from amqp_broker.bench.sender import Sender, message_of
from amqp_broker.bench.settings import BenchSettings
from amqp_broker.bench.stencil import NUMBER
from amqp_broker.bench.wire import BenchError
from amqp_broker.frames import Properties, encode_message

MOST: Final = 500
"""Messages in one turn of a sender."""


class HalfMessages(Driver):
    """Two senders and a receiver. Half-ids are the pair's number, the run's and the message's."""

    def __init__(self, settings: BenchSettings, pair: int) -> None:
        group, address = settings.half_group, settings.address_of(pair)
        half_id = pair.to_bytes(2, "big") + settings.run.to_bytes(8, "big") + NUMBER
        self.receiver = Receiver(settings, pair)
        self.puts = Sender(
            attrs.evolve(settings, address=f"$half/{group}/{address}", pairs=1),
            pair,
            message_of(settings, Properties(message_id=half_id)),
        )
        self.commits = Sender(
            attrs.evolve(settings, address=f"$half-resolve/{group}", pairs=1),
            pair,
            encode_message(properties=Properties(correlation_id=half_id, subject="commit")),
            "committer",
        )
        self.parts = self.puts, self.commits, self.receiver
        self.wires = self.puts.wires + self.commits.wires + self.receiver.wires

    @property
    def at(self) -> int:
        """What was delivered."""
        return self.receiver.at

    def turn(self) -> None:
        """Put, commit what was accepted, and receive."""
        puts, commits = self.puts, self.commits
        puts.turn(MOST)
        commits.turn(min(MOST, puts.settled - commits.sent))  # accepted in order: one link, one broker
        self.receiver.turn()
        if puts.outcomes[0] < puts.settled or commits.outcomes[0] < commits.settled:
            raise BenchError(f"not accepted: puts {puts.outcomes}, commits {commits.outcomes}")

    def result(self) -> dict[str, object]:
        """What this process tells the report."""
        times = {"first_at": self.puts.first_at, "last_at": self.receiver.result()["last_at"]}
        return {**self.puts.result(), **self.receiver.result(), **times}
