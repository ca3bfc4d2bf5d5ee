"""Senders of sequenced streams that live as long as their stream, over many lives of the broker.

`reads`: the attach reply tells what is there. `resends`: the reply is not read, as JMS can't, and everything
unacknowledged is sent again. `transacts`: as `reads`, each batch in a transaction; `retransacts`: as
`resends`, so that a batch whose discharge was not answered comes once more in the next one.
"""

from __future__ import annotations

import random
import threading
from typing import Final

from amqp_broker.frames import (
    Accepted,
    Header,
    Rejected,
    Symbol,
    TransactionalState,
    encode_message,
)
from amqp_broker.sequences.client import Outbox, Sending
from amqp_broker.testing.blocking_peer import BlockingPeer
from amqp_broker.testing.peer import PeerSender, PeerSession
from tests.crash.history import Notes
from tests.crash.workload import LivingClient
from tests.support.controllers import Controller
from tests.support.sequenced import attached_sender

KINDS: Final = ("reads", "resends", "transacts", "retransacts")
WINDOW: Final = 60
BATCH: Final = 8
TICK: Final = 0.02


class SequencedSender:
    """One stream. Its messages are numbered from 1, in their bodies too."""

    def __init__(
        self, name: str, kind: str, queue: str, chance: random.Random, history: Notes
    ) -> None:
        self.name = name
        self.history = history
        self.kind = kind
        self.queue = queue
        self.chance = chance
        self.reads = kind in ("reads", "transacts")
        self.outbox = Outbox(name, 0 if self.reads else 1)
        self.put = 0
        self.unheard = 0  # lives that ended with messages of which nobody knew

    def ended(self) -> None:
        """A life is over: what is not acknowledged is lost, or was stored and not heard of."""
        self._record("life over", unheard=len(self.outbox))
        self.unheard += len(self.outbox) > 0
        self.outbox.lost()

    def live(self, session: PeerSession, last: threading.Event) -> None:
        """Until, once `last` is set, everything is acknowledged."""
        stream = self.name if self.reads else None
        sender = attached_sender(session, self.name, self.queue, stream)
        if self.reads:
            assert sender.remote_attach is not None and sender.remote_attach.properties is not None
            reply = sender.remote_attach.properties
            self.outbox.attached(reply["seq-id"].value, reply["seq-no"].value)
            self._record("attached", seq_id=reply["seq-id"].value, seq_no=reply["seq-no"].value)
        if self.kind in ("reads", "resends"):
            self._pipeline(sender, last)
        else:
            self._transact(sender, last)

    def _record(self, what: str, sending: Sending | None = None, **fields: object) -> None:
        if sending is not None:
            fields |= {"seq_id": sending.seq_id, "seq_no": sending.seq_no, "body": sending.message.decode()}
        self.history.record(self.name, what, **fields)

    def _fill(self, last: threading.Event, most: int) -> None:
        while len(self.outbox) < most and not last.is_set():
            self.put += 1
            self.outbox.put(b"%s %d" % (self.name.encode(), self.put))

    def _pipeline(self, sender: PeerSender, last: threading.Event) -> None:
        connection = sender.session.connection
        under_way: dict[int, Sending] = {}
        while True:
            self._fill(last, self.chance.randint(1, WINDOW))
            if last.is_set() and not len(self.outbox):
                return
            room = min(sender.credit, sender.session.remote_incoming_window)
            for sending in self.outbox.next(room):
                self._record("sent", sending)
                under_way[sender.send(payload_of(sending))] = sending
            connection.pump(TICK)
            for delivery_id in [each for each in under_way if each in sender.outcomes]:
                self._heard(under_way.pop(delivery_id), sender.outcomes.pop(delivery_id))

    def _heard(self, sending: Sending, state: object) -> None:
        self._record("heard", sending, state=repr(state))
        if isinstance(state, Accepted):
            self.outbox.accepted(sending)
        else:
            assert isinstance(state, Rejected) and state.error is not None, f"{sending!r} is told {state!r}"
            assert state.error.condition == "seq:gap", f"{sending!r} is told {state!r}"
            self.outbox.refused(sending, state.error.condition)

    def _transact(self, sender: PeerSender, last: threading.Event) -> None:
        controller = Controller(sender.session)
        connection = sender.session.connection
        while True:
            self._fill(last, self.chance.randint(1, BATCH))
            if last.is_set() and not len(self.outbox):
                return
            txn_id = controller.declare()
            connection.pump_until(lambda: sender.may_send)
            batch = self.outbox.next(BATCH)
            for sending in batch:
                self._record("posted", sending, txn=txn_id.hex())
            sent = [sender.send(payload_of(sending), txn_id=txn_id) for sending in batch]
            if self.chance.random() < 0.5:
                connection.pump_until(lambda sent=sent: _all_there(sender, sent))  # type: ignore[misc]
            if self.chance.random() < 0.2:
                self._record("rollback sent", txn=txn_id.hex())
                controller.roll_back(txn_id)
                self._record("rolled back", txn=txn_id.hex())
                self.outbox.lost()
                continue
            self._record("commit sent", txn=txn_id.hex())
            controller.commit(txn_id)
            self._record("committed", txn=txn_id.hex())
            for delivery_id, sending in zip(sent, batch, strict=True):
                state = sender.outcomes.pop(delivery_id)
                assert isinstance(state, TransactionalState) and isinstance(state.outcome, Accepted), state
                self.outbox.accepted(sending)


class SequencedClient(LivingClient):
    """A life of a sender."""

    def __init__(self, sender: SequencedSender, port: int, last: threading.Event) -> None:
        super().__init__(sender.name, port)
        self._sender = sender
        self._last = last

    def run(self) -> None:
        """The sender goes on as its kind does."""
        super().run()
        self._sender.ended()

    def drive(self, connection: BlockingPeer) -> None:
        """On a session of its own."""
        self._sender.live(connection.begin(), self._last)


def _all_there(sender: PeerSender, sent: list[int]) -> bool:
    return all(number in sender.outcomes for number in sent)


def payload_of(sending: Sending) -> bytes:
    """The message as it is sent: its place in annotations or in properties, by its number."""
    if sending.seq_no % 2:
        return encode_message(
            header=Header(durable=True),
            message_annotations={Symbol(key.value): value for key, value in sending.annotations().items()},
            body=sending.message,
        )
    return encode_message(
        header=Header(durable=True),
        application_properties=sending.application_properties(),
        body=sending.message,
    )
