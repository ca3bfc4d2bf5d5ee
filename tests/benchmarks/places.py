"""What sequences cost a message that is posted, in nanoseconds: `python -m tests.benchmarks.places`.

From a run of deliveries to its job (records, places, posting), without the engine and the store, the best of
many; then the job of a stream's run: judged, numbered, its verbs made and answered. Messages without
annotations and application properties must cost what they cost with `--off`, where no place is looked for.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

import trio

from amqp_broker.broker import open_broker
from amqp_broker.configuration import QueuePolicy
from amqp_broker.frames import SENDER, Attach, Byte, Header, Properties, Symbol, Target, encode_message
from amqp_broker.frames.hot_frames import Delivery
from amqp_broker.nodes.node import Attachment
from amqp_broker.nodes.queue_sink import QueueSink
from amqp_broker.testing import memory_config
from tests.benchmarks.harness import options
from tests.support.by_hand import connection_by_hand
from tests.support.sequenced import annotated, stated

RUN: Final = 64
ROUNDS: Final = 400
BODY: Final = b"x" * 100

KINDS: Final[dict[str, Callable[[int], bytes]]] = {
    "plain": lambda number: encode_message(header=Header(durable=True), body=BODY),
    "properties": lambda number: encode_message(
        header=Header(durable=True), properties=Properties(message_id="m", to="q"), body=BODY
    ),
    "annotated, no place": lambda number: encode_message(
        header=Header(durable=True),
        message_annotations={Symbol("x-opt-jms-msg-type"): Byte(5)},
        properties=Properties(message_id="m", to="q"),
        application_properties={"colour": "red", "weight": 3},
        body=BODY,
    ),
    "placed by annotations": lambda number: annotated((1, number, number - 1), body=BODY),
    "placed by properties": lambda number: stated((1, number, number - 1)),
}


async def measure(sequence: str) -> dict[str, tuple[float, float]]:
    """Nanoseconds for each message of a run, by kind: until its job is made, and of its job."""
    best = dict.fromkeys(KINDS, (1e9, 1e9))
    policy = QueuePolicy(pattern="q", sequence=sequence)
    async with open_broker(memory_config(queue_policies=(policy,))) as broker:
        queue = await broker.nodes.queues.create("q")
        jobs: list[Any] = []
        writer: Any = broker.nodes.writer
        writer.collect = jobs.append
        none: Any = None
        link: Any = SimpleNamespace()
        connection = connection_by_hand()
        attachment = Attachment(connection, none, none, Attach(name="s", handle=0, role=SENDER), 100)
        attachment.answer = Target()
        rule = await broker.features.queues.rules.open(attachment, queue)
        sink = QueueSink(connection, link, queue, broker.nodes, none, rule)
        gc.disable()
        for number in range(ROUNDS):
            for kind, payload_of in KINDS.items():
                first = number * RUN + 1
                payloads = [payload_of(at) for at in range(first, first + RUN)]
                run = [Delivery(at, b"t", 0, False, each, None, 0, False) for at, each in enumerate(payloads)]
                begun = time.perf_counter_ns()
                sink._post_run(run, None)
                made = time.perf_counter_ns()
                job = jobs.pop()
                job.prepare(0)
                asked = time.perf_counter_ns()
                before = best[kind]
                best[kind] = (min(before[0], (made - begun) / RUN), min(before[1], (asked - made) / RUN))
                job.stored()
                connection.mail._mail.clear()
                queue.retire(list(queue.backlog.take(RUN)))
        gc.enable()
    return best


def main() -> None:
    """The command."""
    sequence = "off" if options(__doc__, off=False).off else "optional"
    for kind, (made, judged) in trio.run(measure, sequence).items():
        print(f"{kind:>22}: {made:6.0f} ns to the job, {judged:6.0f} ns in it")


if __name__ == "__main__":
    main()
