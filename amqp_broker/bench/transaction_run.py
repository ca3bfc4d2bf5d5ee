"""The role of a process that measures transactions: fill the input, run a controller, look what is left."""

from __future__ import annotations

import sys
from typing import Final

from amqp_broker.bench.controller import Controller
from amqp_broker.bench.leftovers import Leftovers
from amqp_broker.bench.progress import PROGRESS_S, Clock, say
from amqp_broker.bench.sender import Sender
from amqp_broker.bench.settings import BenchSettings
from amqp_broker.bench.wire import BenchError

# 0 becomes 1, everything else 0.
FLIP: Final = b"\1" + bytes(255)


def control(settings: BenchSettings, pair: int) -> dict[str, object]:
    """Run a controller; then look what its queues hold."""
    if settings.retire:
        fill(settings.only(settings.input_of(pair), settings.inputs), pair)
    controller = Controller(settings, pair)
    say(ready=True)
    sys.stdin.readline()
    clock = Clock(settings.timeout_s)
    stalled = False
    while not controller.finished and not stalled:
        controller.turn()
        if not controller.finished:
            controller.wait(PROGRESS_S)
        stalled = not clock.tick(controller.position, controller.done)
    result = {**controller.result(), "stalled": stalled, "cpu_s": clock.cpu_s()}
    controller.wire.close()
    say(paused=True)
    sys.stdin.readline()
    posted = leftovers(
        settings.only(settings.address_of(pair), settings.postings), pair, controller.score.posted()
    )
    found = {"posted_there": posted}
    if controller.supply is not None:
        kept = controller.supply.retired.translate(FLIP)
        found["input_there"] = leftovers(settings.only(settings.input_of(pair), len(kept)), pair, kept)
    return {**result, **found}


def fill(settings: BenchSettings, pair: int) -> None:
    """Put the messages into a queue that transactions are to retire."""
    sender, clock = Sender(settings, pair), Clock(settings.timeout_s, silent=True)
    while not sender.finished:
        sender.turn()
        if not sender.finished:
            sender.wait(PROGRESS_S)
        if not clock.tick(sender.sent + sender.settled, sender.sent):
            raise BenchError(f"{settings.address!r} took {sender.settled} of {settings.count} messages")
    accepted = sender.outcomes[0]
    sender.wire.close()
    if accepted < settings.count:
        raise BenchError(
            f"the broker accepted {accepted} of {settings.count} messages for {settings.address!r}"
        )


def leftovers(settings: BenchSettings, pair: int, wanted: bytearray) -> dict[str, object]:
    """Empty a queue and tell what was in it."""
    queue, clock = Leftovers(settings, pair, wanted), Clock(settings.timeout_s, silent=True)
    stalled = False
    while not queue.finished and not stalled:
        queue.turn()
        if not queue.finished:
            queue.wait(PROGRESS_S)
        stalled = not clock.tick(queue.position, queue.tale.received)
    queue.wire.close()
    return queue.tale.result()
