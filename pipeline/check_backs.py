"""Answers the check-backs about sets of half messages that nobody decided:

    python -m amqp_broker.pipeline.check_backs --url amqp://127.0.0.1:5672 --group spark --checkpoint
    /data/query

A process of its own, because the driver that staged a set may be gone. It reads the checkpoints of the
queries and never answers commit: Spark notes a batch as done after the sink's commit returned, so a set that
is not decided belongs to no batch that is done. A set that is dropped costs nothing but work, for the query
runs its batch again when it is started again.

    the query may live                               unknown: it may name the set in a moment
    nothing changed in the checkpoint for a while    rollback: it is gone
    the batch is done for the query                  unknown: the broker lost its decision (a restored store),
                                                     so people have to look; the query will not run it again
    no checkpoint of this producer                   unknown

What stays unknown is dropped by the broker at the end of its time. With several brokers (--url with
semicolons) each of them asks, and about a set that is prepared at one for another, its coordinator, it asks
for ever:

    the coordinator decided its epoch                applied: what it decided, whoever the query is
    the coordinator does not know the set any more   rollback: it is ruled out there
    else                                             as above; a rollback rules it out there
"""

from __future__ import annotations

import argparse
import queue
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, Final

import attrs

from amqp_broker.client import BlockingConnection, BlockingReceiver, ClientError, ReceivedMessage, connect
from amqp_broker.client.half_errors import number_of
from amqp_broker.client.halves import UNKNOWN_OUTCOME, check_address, expect_group, expect_half_link
from amqp_broker.frames import Accepted
from amqp_broker.pipeline.checkpoints import Checkpoint, read_checkpoint
from amqp_broker.pipeline.epochs import PREPARED, end_prepared
from amqp_broker.pipeline.errors import BrokerUnreachable, EpochError, MissingRight, OptionError
from amqp_broker.pipeline.folders import Folder, folder_of
from amqp_broker.pipeline.option_values import WrongValue, read_brokers
from amqp_broker.pipeline.set_brokers import SetBrokers
from amqp_broker.pipeline.set_client import SetDecided

GONE_AFTER_S: Final = 3_600.0  # above the longest batch: a query is silent while it works on one
PAUSE_S: Final = 1.0
EXIT_UNREACHABLE: Final = 1
SETS_TOLD: Final = 1_000  # by a status, at most


class Answer(Enum):
    """What is told to the broker."""

    UNKNOWN = "unknown"
    ROLLBACK = "rollback"
    APPLIED = "applied"


@attrs.frozen
class Question:
    """A set that the broker asks about. `coordinator` decides about it if it is prepared, `store` has its
    messages if it is enlisted.
    """

    producer: str
    epoch: int
    set_id: str
    attempt: int
    coordinator: str = ""
    store: str = ""


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
    """What a check-back asks; None for one about a half message that belongs to no set."""
    named = received.application_properties
    set_id, producer = named.get("half_set"), named.get("half_producer")
    if not isinstance(set_id, str) or not isinstance(producer, str):
        return None
    prepared = named.get("half_state") == PREPARED
    return Question(
        producer,
        number_of(named.get("half_epoch")),
        set_id,
        number_of(named.get("half_attempt")),
        str(named.get("half_coordinator") or "") if prepared else "",
        str(named.get("half_store") or ""),
    )


class Answerer:
    """Answers the check-backs of one group that one of the brokers, `number`, sends; `folders` are
    checkpoints.
    """

    def __init__(
        self,
        brokers: SetBrokers,
        number: int,
        folders: Sequence[Folder],
        gone_after_s: float,
        out: Any = None,
    ) -> None:
        self._brokers = brokers
        self._number = number
        self._folders = folders
        self._gone_after_s = gone_after_s
        self._out = out if out is not None else sys.stderr

    def checkpoints(self) -> list[Checkpoint]:
        """What can be read now."""
        return [found for path in self._folders if (found := read_checkpoint(path)) is not None]

    def handle(self, checks: BlockingReceiver, received: ReceivedMessage) -> None:
        """Answers one check-back. What is not about a set is left to others that answer."""
        question = question_of(received)
        if question is None:
            checks.release(received)
            return
        try:
            ask = self._of_coordinator if question.coordinator else self._of_checkpoint
            said, why = ask(question)
            self._do(question, said)
        except (BrokerUnreachable, EpochError) as error:
            said, why = Answer.UNKNOWN, str(error)
        print(
            f"set {question.set_id} of {question.producer}, epoch {question.epoch}, "
            f"attempt {question.attempt}: {said.value}, {why}",
            file=self._out,
            flush=True,
        )
        checks.settle(received, UNKNOWN_OUTCOME if said is Answer.UNKNOWN else Accepted())

    def _of_checkpoint(self, question: Question) -> tuple[Answer, str]:
        return answer(question, self.checkpoints(), time.time(), self._gone_after_s)

    def _of_coordinator(self, question: Question) -> tuple[Answer, str]:
        """What the coordinator says of a prepared set, before the checkpoints are looked at."""
        brokers = self._brokers
        found = brokers.find(question.coordinator, question.producer, question.epoch)
        if found is None:
            return Answer.UNKNOWN, (
                f"its coordinator, the store {question.coordinator}, is none of the brokers of --url"
            )
        brokers.coordinator = found
        status = brokers.status(found, question.producer, question.epoch)
        if status.decided:
            return Answer.APPLIED, f"{brokers.names[found]} decided its epoch"
        known = len(status.sets) >= SETS_TOLD or question.set_id in {one["set"] for one in status.sets}
        if not known:
            return Answer.ROLLBACK, f"{brokers.names[found]} does not know it any more"
        return self._of_checkpoint(question)

    def _do(self, question: Question, said: Answer) -> None:
        """Raises BrokerUnreachable, EpochError."""
        brokers, producer, epoch = self._brokers, question.producer, question.epoch
        if said is Answer.UNKNOWN:
            return
        if question.coordinator:
            end_prepared(brokers, self._number, producer, epoch, [question.set_id])
            return
        try:
            # With `store` where another broker has the messages: it may be prepared there.
            brokers.ask(
                self._number,
                lambda client: client.void(producer, epoch, [question.set_id], store=question.store),
            )
        except SetDecided:
            pass  # decided while we looked: the broker knows better, which is all that a check-back wants


def run(brokers: Sequence[Sequence[str]], number: int, group: str, **settings: Any) -> None:
    """Answers what one broker asks until the connection to it ends. Raises ClientError, BrokerUnreachable,
    MissingRight.
    """
    opened: dict[int, BlockingConnection] = {}

    def connection(which: int) -> BlockingConnection:
        if which not in opened:
            opened[which] = connect_first(brokers[which])
        return opened[which]

    def drop(which: int) -> None:
        if (gone := opened.pop(which, None)) is not None:
            gone.close()

    try:
        checks = connection(number).open_receiver(check_address(group, by_outcome=False), credit=1)
        expect_half_link(checks)
        names = [", ".join(urls) for urls in brokers]
        answerer = Answerer(SetBrokers(names, group, connection, drop), number, **settings)
        for received in checks:
            answerer.handle(checks, received)
    finally:
        for each in opened.values():
            each.close()


def connect_first(urls: Sequence[str]) -> BlockingConnection:
    """To the first of them that answers. Raises ClientError."""
    for url in urls[:-1]:
        try:
            return connect(url)
        except ClientError:
            pass
    return connect(urls[-1])


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs until it is stopped; a broker that goes is waited for. 1 where the first connection fails."""
    parser = _parser()
    parsed = parser.parse_args(arguments)
    try:
        brokers = read_brokers(parsed.url)
    except (OptionError, WrongValue) as error:
        parser.error(f"--url: {error or 'expected amqp://HOST:PORT'}")
    folders = [folder_of(text) for text in parsed.checkpoint]
    for path in folders:
        if read_checkpoint(path) is None:
            print(f"{path}: no checkpoint there yet; its sets stay undecided until there is", file=sys.stderr)
    ended: queue.SimpleQueue[int] = queue.SimpleQueue()

    def serve(number: int) -> None:
        answered_once = False
        while True:
            try:
                run(brokers, number, parsed.group, folders=folders, gone_after_s=parsed.gone_after_s)
            except (ClientError, BrokerUnreachable, MissingRight) as error:
                print(f"{error}", file=sys.stderr, flush=True)
                if not answered_once and not parsed.wait:
                    ended.put(EXIT_UNREACHABLE)
                    return
            answered_once = True
            time.sleep(PAUSE_S)

    for number in range(len(brokers)):
        threading.Thread(target=serve, args=(number,), daemon=True).start()
    try:
        return ended.get()
    except KeyboardInterrupt:
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m amqp_broker.pipeline.check_backs",
        description="Answers the check-backs about sets that a streaming query left undecided.",
    )
    parser.add_argument(
        "--url", default="amqp://127.0.0.1:5672", help="the brokers, as the option amqp.url has them"
    )
    parser.add_argument(
        "--group", type=expect_group, default="spark", help="option producerGroup of the sink"
    )
    parser.add_argument(
        "--checkpoint",
        action="append",
        required=True,
        metavar="DIR",
        help="checkpointLocation of a query, a folder or a URL that Hadoop knows; repeatable",
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
