"""One process of a run: `python -m amqp_broker.bench.worker ROLE PAIR SETTINGS`, started by the command line.

It writes JSON lines: `{"ready": true}` once its link is attached, `{"at": n}` twice a second, and at the end
`{"result": ...}` or `{"error": "..."}`. It begins when a line comes in on standard input.
"""

from __future__ import annotations

import json
import sys
import time

from amqp_broker.bench.receiver import Receiver
from amqp_broker.bench.round_trip import RoundTrips
from amqp_broker.bench.sender import Sender
from amqp_broker.bench.settings import BenchSettings
from amqp_broker.bench.wire import BenchError

PROGRESS_S = 0.5


def say(**line: object) -> None:
    """One line for the command line."""
    print(json.dumps(line), flush=True)


class Clock:
    """Progress twice a second, and an end when nothing has moved for too long."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.moved_at = self.said_at = time.monotonic()
        self.cpu = time.process_time()
        self.position = -1

    def tick(self, position: int, at: int) -> bool:
        """False when `position` has stood still for the whole time-out."""
        now = time.monotonic()
        if position != self.position:
            self.position, self.moved_at = position, now
        if now - self.said_at > PROGRESS_S:
            self.said_at = now
            say(at=at)
        return now - self.moved_at < self.timeout_s

    def cpu_s(self) -> float:
        """The processor time that this process took since it began, in seconds."""
        return time.process_time() - self.cpu


def send(settings: BenchSettings, pair: int) -> dict[str, object]:
    """Run a sender to its end."""
    sender = Sender(settings, pair)
    say(ready=True)
    sys.stdin.readline()
    clock = Clock(settings.timeout_s)
    stalled = False
    while not sender.finished and not stalled:
        sender.turn()
        if not sender.finished:
            sender.wait(PROGRESS_S)
        stalled = not clock.tick(sender.sent + sender.settled, sender.sent)
    result = {**sender.result(), "stalled": stalled, "cpu_s": clock.cpu_s()}
    sender.wire.close()
    return result


def receive(settings: BenchSettings, pair: int) -> dict[str, object]:
    """Run a receiver to its end; what has not come within the time-out is lost."""
    receiver = Receiver(settings, pair)
    say(ready=True)
    sys.stdin.readline()
    clock = Clock(settings.timeout_s)
    stalled = False
    while not receiver.finished and not stalled:
        receiver.turn()
        if not receiver.finished:
            receiver.wait(PROGRESS_S)
        position = receiver.ledger.received + receiver.ledger.duplicates + receiver.ledger.foreign
        stalled = not clock.tick(position, receiver.ledger.received)
    result = {**receiver.result(), "stalled": stalled, "cpu_s": clock.cpu_s()}
    receiver.wire.close()
    return result


def round_trips(settings: BenchSettings, pair: int) -> dict[str, object]:
    """Run one message at a time."""
    trips = RoundTrips(settings, pair)
    say(ready=True)
    sys.stdin.readline()
    clock = Clock(settings.timeout_s)
    stalled = False
    while not trips.finished and not stalled:
        trips.turn()
        stalled = not clock.tick(trips.done, trips.done)
    result = {**trips.result(), "stalled": stalled, "cpu_s": clock.cpu_s()}
    trips.close()
    return result


ROLES = {"send": send, "receive": receive, "rtt": round_trips}


def main(argv: list[str]) -> int:
    """Run one role; 1 when the broker did not let it end."""
    role, pair, settings = ROLES[argv[0]], int(argv[1]), BenchSettings.from_json(argv[2])
    try:
        say(result=role(settings, pair))
    except (BenchError, OSError) as error:
        say(error=str(error))
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
