"""Messages go from their queue to one of dead letters: they leave there and come here in one commit.

    outcome, expiry --Letter--> prepare: annotated copies, numbered --COMMIT--> stored: available here
                      |
                      +--the queue is not there yet: made by a commit before
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from amqp_broker.endings import Departed, Letter
from amqp_broker.frames import DecodeError, EncodeError, Error, Timestamp, Uint, annotated
from amqp_broker.large_messages import brought
from amqp_broker.operations.operation import NotYet, Refused
from amqp_broker.operations.posting import Posting
from amqp_broker.origin import OF_THE_BROKER
from amqp_broker.persistence import Record, Unit
from amqp_broker.queue import Queue

if TYPE_CHECKING:
    from amqp_broker.dead_letters.dead_letters import DeadLetters

REASON: Final = "x-opt-dead-letter-reason"
DESCRIPTION: Final = "x-opt-dead-letter-description"
ADDRESS: Final = "x-opt-dead-letter-address"
COUNT: Final = "x-opt-dead-letter-count"
TIME: Final = "x-opt-dead-letter-time"


class DeadLetter(Letter):
    """A run of messages that leave `queue` for one reason, on their way to the queue called `name`."""

    def __init__(
        self, letters: DeadLetters, queue: Queue, name: str, reason: str, text: str,
        departed: Sequence[Departed],
    ) -> None:  # fmt: skip
        self._letters = letters
        self._queue = queue
        self._name = name
        self._reason = reason
        self._text = text
        self._departed = departed
        self._posting: Posting | None = None

    def when_ready(self, then: Callable[[], None]) -> None:
        """Call `then` as soon as the queue of dead letters is there."""
        self._letters.when_there(self._name, then)

    def prepare(self, now_ms: int) -> Unit:
        """The verbs that post the messages there."""
        nodes = self._letters.nodes
        target = nodes.queues.find(self._name)
        if target is None:  # it is made just before, or could not be
            description = f"queue {self._name!r} for dead letters could not be made"
            raise NotYet(Refused(Error(condition="amqp:resource-limit-exceeded", description=description)))
        shown_ms = nodes.clock.shown(now_ms)
        records = [self._record(target, each, now_ms, shown_ms) for each in self._departed]
        self._posting = Posting(nodes, target, records, OF_THE_BROKER)
        return self._posting.prepare(now_ms)

    def _record(self, target: Queue, departed: Departed, now_ms: int, shown_ms: int) -> Record:
        """The message as it stands among the dead letters: without a time to live, and always stored."""
        added: dict[str, object] = {
            REASON: self._reason,
            ADDRESS: self._queue.name,
            COUNT: Uint(departed.delivery_count),
            TIME: Timestamp(shown_ms),
        }
        if self._text:
            added[DESCRIPTION] = self._text
        try:
            body = annotated(departed.body, added)
        except (DecodeError, EncodeError):  # an older version took what nobody can read
            body = departed.body
        former = departed.record
        letter = Record(
            0, body, former.message_format, former.priority, 0, now_ms, target.persistent,
            departed.delivery_count, True, queue_id=target.queue_id,
        )  # fmt: skip
        return brought(target, former, letter)

    def undo(self) -> None:
        """Take back the numbers of the messages."""
        posting, self._posting = self._posting, None
        if posting is not None:
            posting.undo()
            posting.end()

    def stored(self) -> None:
        """The messages are there."""
        posting, self._posting = self._posting, None
        assert posting is not None, "what is stored was prepared"
        posting.stored()
        self._letters.arrived(self._queue, posting.queue, self._reason, len(posting.records))
