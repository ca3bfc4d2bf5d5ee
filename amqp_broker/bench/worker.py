"""One process of a run: `python -m amqp_broker.bench.worker ROLE PAIR SETTINGS`, started by the command line.

It writes JSON lines: `{"ready": true}` once its link is attached, `{"at": n}` twice a second, and at the end
`{"result": ...}` or `{"error": "..."}`. It begins when a line comes in on standard input; a controller says
`{"paused": true}` when it has measured, and looks into its queues when another line comes.
"""

from __future__ import annotations

import sys

from amqp_broker.bench.progress import PROGRESS_S, Clock, say
from amqp_broker.bench.receiver import Receiver
from amqp_broker.bench.round_trip import RoundTrips
from amqp_broker.bench.sender import Sender
from amqp_broker.bench.settings import BenchSettings
from amqp_broker.bench.transaction_run import control
from amqp_broker.bench.wire import BenchError


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


ROLES = {"send": send, "receive": receive, "rtt": round_trips, "control": control}


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
