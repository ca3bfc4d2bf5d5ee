"""Answers the broker's questions about sets of half messages that nobody decided:

    python -m amqp_broker.pipeline.checker --url amqp://127.0.0.1:5672 --group spark --checkpoint /data/query

A process of its own, because the driver that staged a set may be gone. It reads the checkpoints of the
queries and never answers commit: Spark notes a batch as done after the sink's commit returned, so a set that
is not decided belongs to no batch that is done. A set that is dropped costs nothing but work, for the query
runs its batch again when it is started again.

    the query may live                               unknown: it may name the set in a moment
    nothing changed in the checkpoint for a while    rollback: it is gone
    the batch is done for the query                  unknown: the broker lost its decision (a restored store),
                                                     so people have to look; the query will not run it again
    no checkpoint of this producer                   unknown

What stays unknown is dropped by the broker at the end of its time.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Final

import attrs

from amqp_broker.client import BlockingReceiver, ClientError, ReceivedMessage, connect
from amqp_broker.client.half_errors import number_of
from amqp_broker.client.halves import UNKNOWN_OUTCOME, check_address, expect_group, expect_half_link
from amqp_broker.frames import Accepted
from amqp_broker.pipeline.checkpoints import Checkpoint, read_checkpoint
from amqp_broker.pipeline.set_client import SetClient, SetDecided

GONE_AFTER_S: Final = 3_600.0  # above the longest batch: a query is silent while it works on one
PAUSE_S: Final = 1.0
EXIT_UNREACHABLE: Final = 1


class Answer(Enum):
    """What is told to the broker."""

    UNKNOWN = "unknown"
    ROLLBACK = "rollback"


@attrs.frozen
class Question:
    """A set that the broker asks about."""

    producer: str
    epoch: int
    set_id: str
    attempt: int


def answer(
    question: Question, checkpoints: Iterable[Checkpoint], now_s: float, gone_after_s: float
) -> tuple[Answer, str]:
    """The answer, and why. `checkpoints` are those that can be read."""
    for checkpoint in checkpoints:
        # The option producerId of the sink stands before the id of the query.
        if question.producer.split(".")[-1] != checkpoint.query_id:
            continue
        if question.epoch <= checkpoint.done:
            return Answer.UNKNOWN, (
                f"batch {question.epoch} is done for the query (up to {checkpoint.done}), but the broker has "
                "no decision: was its store restored from a copy?"
            )
        silent_s = now_s - checkpoint.changed_at_s
        if silent_s >= gone_after_s:
            return Answer.ROLLBACK, f"nothing changed in the checkpoint for {silent_s:.0f} s"
        return Answer.UNKNOWN, f"the query may live: its checkpoint changed {max(0.0, silent_s):.0f} s ago"
    return Answer.UNKNOWN, "no checkpoint of this producer"


def question_of(received: ReceivedMessage) -> Question | None:
    """What a check asks; None for one about a half message that belongs to no set."""
    named = received.application_properties
    set_id, producer = named.get("half_set"), named.get("half_producer")
    if not isinstance(set_id, str) or not isinstance(producer, str):
        return None
    return Question(
        producer, number_of(named.get("half_epoch")), set_id, number_of(named.get("half_attempt"))
    )


class Checker:
    """Answers checks of one group over one connection; `folders` are checkpoints."""

    def __init__(
        self,
        sets: SetClient,
        folders: Sequence[Path],
        gone_after_s: float,
        out: Any = None,
    ) -> None:
        self._sets = sets
        self._folders = folders
        self._gone_after_s = gone_after_s
        self._out = out if out is not None else sys.stderr

    def checkpoints(self) -> list[Checkpoint]:
        """What can be read now."""
        return [found for path in self._folders if (found := read_checkpoint(path)) is not None]

    def handle(self, checks: BlockingReceiver, received: ReceivedMessage) -> None:
        """One check. What is not about a set is left to other checkers."""
        question = question_of(received)
        if question is None:
            checks.release(received)
            return
        said, why = answer(question, self.checkpoints(), time.time(), self._gone_after_s)
        print(
            f"set {question.set_id} of {question.producer}, epoch {question.epoch}, "
            f"attempt {question.attempt}: {said.value}, {why}",
            file=self._out,
            flush=True,
        )
        if said is Answer.UNKNOWN:
            checks.settle(received, UNKNOWN_OUTCOME)
            return
        try:
            self._sets.void(question.producer, question.epoch, [question.set_id])
        except SetDecided:
            pass  # decided while we looked: the broker knows better, which is all that a check wants
        checks.settle(received, Accepted())


def run(url: str, group: str, checker_of: Any, **settings: Any) -> None:
    """Answers until the connection ends. Raises ClientError."""
    with connect(url, **settings) as connection:
        checks = connection.open_receiver(check_address(group, by_outcome=False), credit=1)
        expect_half_link(checks)
        checker = checker_of(SetClient(connection, group))
        for received in checks:
            checker.handle(checks, received)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs until it is stopped; a broker that goes is waited for. 1 where the first connection fails."""
    parsed = _parser().parse_args(arguments)
    folders = parsed.checkpoint
    for path in folders:
        if read_checkpoint(path) is None:
            print(f"{path}: no checkpoint there yet; its sets stay undecided until there is", file=sys.stderr)

    def checker_of(sets: SetClient) -> Checker:
        return Checker(sets, folders, parsed.gone_after_s)

    answered_once = False
    while True:
        try:
            run(parsed.url, parsed.group, checker_of)
        except KeyboardInterrupt:
            return 0
        except ClientError as error:
            print(f"{error}", file=sys.stderr, flush=True)
            if not answered_once and not parsed.wait:
                return EXIT_UNREACHABLE
        answered_once = True
        time.sleep(PAUSE_S)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m amqp_broker.pipeline.checker",
        description="Answers the broker's questions about sets that a streaming query left undecided.",
    )
    parser.add_argument("--url", default="amqp://127.0.0.1:5672", help="the broker")
    parser.add_argument(
        "--group", type=expect_group, default="spark", help="option producerGroup of the sink"
    )
    parser.add_argument(
        "--checkpoint",
        action="append",
        type=Path,
        required=True,
        metavar="DIR",
        help="checkpointLocation of a query; repeatable",
    )
    parser.add_argument(
        "--gone-after-s",
        type=float,
        default=GONE_AFTER_S,
        help="a query whose checkpoint did not change for so long is gone; more than its longest batch "
        "(default %(default)s)",
    )
    parser.add_argument("--wait", action="store_true", help="wait for a broker that is not there yet")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
