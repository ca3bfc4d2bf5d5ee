"""One process of a run: `python -m amqp_broker.bench.worker ROLE PAIR SETTINGS`, started by `run`.

It writes JSON lines: `{"ready": true}` once its links are attached, `{"at": n}` twice a second, and at the
end `{"result": ...}` or `{"error": "..."}`. It begins when a line comes in on standard input; a controller
says `{"paused": true}` when it has measured, and looks into its queues when another line comes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

from amqp_broker.bench.controller import Controller
from amqp_broker.bench.driver import Driver, drive, say
from amqp_broker.bench.half_messages import HalfMessages
from amqp_broker.bench.receiver import Receiver
from amqp_broker.bench.round_trip import RoundTrips
from amqp_broker.bench.sender import Sender
from amqp_broker.bench.settings import BenchSettings
from amqp_broker.bench.wire import BenchError
from amqp_broker.frames import AmqpError
from amqp_broker.testing.blocking_peer import ConnectionLost
from amqp_broker.testing.peer import PeerError

ROLES: Final[dict[str, Callable[[BenchSettings, int], Driver]]] = {
    "sender": Sender,
    "receiver": Receiver,
    "round-trips": RoundTrips,
    "half-messages": HalfMessages,
    "controller": Controller,
}


def work(role: str, pair: int, settings: BenchSettings) -> dict[str, object]:
    """Play one role to its end."""
    driver = ROLES[role](settings, pair)
    say(ready=True)
    sys.stdin.readline()
    result = drive(driver, settings.timeout)
    if isinstance(driver, Controller):
        say(paused=True)
        sys.stdin.readline()
        result |= driver.left()
    return result


def main(argv: list[str]) -> int:
    """The command; 1 when the broker did not let it end."""
    try:
        say(result=work(argv[0], int(argv[1]), BenchSettings.from_json(argv[2])))
    except (BenchError, PeerError, ConnectionLost, AmqpError, OSError) as error:
        say(error=str(error) or type(error).__name__)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
