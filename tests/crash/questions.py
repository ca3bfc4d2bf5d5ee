"""Asking how transactions ended, at the address `$transactions`: all whose answer was lost, and some others.

A question that a kill left without a reply is asked again in the next life.
"""

from __future__ import annotations

import random
from typing import Final

from amqp_broker.frames import Accepted, AmqpValue, Message, Properties, Source, encode_message
from amqp_broker.testing.blocking_peer import BlockingPeer
from tests.crash.history import History
from tests.crash.traffic import TICK, Client, Unexpected
from tests.promises.fates import FINAL_WORDS
from tests.support.controllers import ALL_OUTCOMES

ADDRESS: Final = "$transactions"
AT_ONCE: Final = 50
SHARE_LIVE: Final = 0.01
SHARE_KNOWN: Final = 0.03
MOST_AT_THE_END: Final = 3_000


class Questions:
    """Which transactions are to be asked for. It outlives the askers, of which there is one at a time."""

    def __init__(self, history: History, seed: int) -> None:
        self.history = history
        self._chance = random.Random(f"{seed} questions")
        self._read = 0
        self._lives: dict[str, int] = {}  # of all transactions
        self._unanswered: dict[str, int] = {}  # commits, with their life
        self._left: set[str] = set()
        self._curious: dict[str, None] = {}  # others, for which an answer is to be had in any case

    def _update(self) -> None:
        steps = self.history.steps
        end = len(steps)
        for step in steps[self._read : end]:
            if step.kind == "declared":
                self._lives[step.txn] = step.life
                self._be_curious(step.txn, SHARE_LIVE)
            elif step.kind == "commit_sent":
                self._unanswered[step.txn] = step.life
            elif step.kind == "left":
                self._left.add(step.txn)
            elif step.kind in ("accepted", "rejected"):
                self._unanswered.pop(step.txn, None)
                self._be_curious(step.txn, SHARE_KNOWN)
            elif step.kind == "told":
                self._curious.pop(step.txn, None)
                if step.word in FINAL_WORDS:
                    self._unanswered.pop(step.txn, None)
        self._read = end

    def _be_curious(self, txn: str, share: float) -> None:
        if self._chance.random() < share:
            self._curious[txn] = None

    def due(self, life: int) -> list[str]:
        """What can be asked now: of unanswered commits those whose controller is gone."""
        self._update()
        gone = [txn for txn, of in self._unanswered.items() if of < life or txn in self._left]
        return [*gone, *(txn for txn in self._curious if txn not in self._unanswered)]

    def due_at_the_end(self) -> list[str]:
        """Everything that has no answer, and again some of all transactions."""
        self._update()
        some = self._chance.sample(sorted(self._lives), min(MOST_AT_THE_END, len(self._lives)))
        return list(dict.fromkeys([*self._unanswered, *some]))


class AskingClient(Client):
    """Asks, one question for each transaction at a time, until the connection is gone."""

    def __init__(self, name: str, port: int, life: int, history: History, questions: Questions) -> None:
        super().__init__(name, port, life, ADDRESS, history)
        self.questions = questions
        self._waiting: set[str] = set()

    def drive(self, connection: BlockingPeer) -> None:
        """Ask what is due."""
        self.open(connection)
        while True:
            self.ask(self.questions.due(self.life))
            connection.pump(TICK)
            self.take_replies()

    def open(self, connection: BlockingPeer) -> None:
        """A link to the node that knows, and one from a queue that the broker makes for the replies."""
        session = connection.begin()
        self._sender = session.attach_sender(self.name, ADDRESS)
        self._receiver = session.attach_receiver(
            f"{self.name}.replies", None, source=Source(dynamic=True, outcomes=ALL_OUTCOMES)
        )
        self._receiver.flow(2 * AT_ONCE)

    def ask(self, due: list[str]) -> None:
        """Send questions, each recorded before it leaves; the txn-id goes as binary."""
        for txn in due:
            if len(self._waiting) >= AT_ONCE or not self._sender.may_send:
                return
            if txn not in self._waiting:
                self._waiting.add(txn)
                self.history.record_step("question", self.life, txn)
                properties = Properties(correlation_id=bytes.fromhex(txn), reply_to=self._receiver.address)
                self._sender.send(encode_message(properties=properties))

    def take_replies(self) -> list[str]:
        """Record what was told; the transactions that it was told of."""
        while self._sender.settled:
            outcome = self._sender.outcomes.pop(self._sender.settled.popleft())
            if not isinstance(outcome, Accepted):
                raise Unexpected(f"a question was answered {outcome!r}")
        told = []
        receiver = self._receiver
        while receiver.deliveries:
            delivery = receiver.deliveries.popleft()
            message = Message(delivery.payload)
            (section,) = message.body_sections()
            txn_id = None if message.properties is None else message.properties.correlation_id
            if not isinstance(txn_id, bytes) or not isinstance(section, AmqpValue):
                raise Unexpected(f"a reply for {txn_id!r} says {section!r}")
            self.history.record_step("told", self.life, txn_id.hex(), str(section.value))
            self._waiting.discard(txn_id.hex())
            told.append(txn_id.hex())
            receiver.settle([delivery], Accepted())
        if receiver.credit < AT_ONCE:
            receiver.flow(2 * AT_ONCE)
        return told


class LastAskingClient(AskingClient):
    """Asks in the last life, in which nobody works any more."""

    def drive(self, connection: BlockingPeer) -> None:
        """Until each question has its answer."""
        self.open(connection)
        due = self.questions.due_at_the_end()
        while due:
            self.ask(due)
            connection.pump_until(lambda: self._receiver.deliveries)
            told = set(self.take_replies())
            due = [txn for txn in due if txn not in told]
