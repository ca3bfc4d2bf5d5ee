"""A client that is a transactional controller: its control link, its live transactions, and how they end.

    declare --> Live --post, retire, acquire--> discharge sent --> answered accepted or rejected
                  |                                  `--> hung up: the answer is lost
                  `--> left: the control link or the connection ends before a discharge

Everything is recorded before it leaves, and each answer is held against what has to come before it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from amqp_broker.frames import Accepted, Declare, Declared, Discharge, Modified, Rejected, TransactionalState
from amqp_broker.testing.blocking_peer import BlockingPeer
from amqp_broker.testing.peer import PeerError, PeerReceiver, PeerSender, PeerSession
from tests.crash.history import History, Kind
from tests.crash.history import Message as Name
from tests.crash.traffic import Client, Unexpected, encode_body, recognise
from tests.support.controllers import Controller

ROLLBACK: Final = "amqp:transaction:rollback"
NOWHERE: Final = "$nowhere"
"""No such queue, and the anonymous terminus makes none."""

SMALL_BYTES: Final = (10, 50, 50, 400, 3_000)
MULTI_FRAME_BYTES: Final = 150_000
FRAMES_OF_A_MESSAGE: Final = 3
SHARE_MULTI_FRAME: Final = 0.01
SHARE_SETTLED: Final = 0.3
SHARE_MODIFIED: Final = 0.1

PART: Final = b"\x00Su\xb0\x00\x0f\xff\xff"
"""The beginning of a data section of which more is announced than ever comes."""

REMOVING: Final = (Accepted(), Accepted(), Accepted(), Rejected())
FAILED: Final = Modified(delivery_failed=True)


@dataclass(slots=True, eq=False)
class Live:
    """A transaction of ours that is not over; deliveries are named by their ids on its receiving link."""

    txn_id: bytes
    posts: dict[tuple[PeerSender, int], Name] = field(default_factory=dict)
    refused: list[tuple[PeerSender, int]] = field(default_factory=list)
    """Unsettled posts that can't be done: their provisional outcome is `rejected`."""
    kept: dict[int, Name] = field(default_factory=dict)
    """Acquired in it, and without an outcome: ours after a commit."""
    given: dict[int, Name] = field(default_factory=dict)
    """An unsettled outcome was given in it: settled by a commit."""
    settled: list[Name] = field(default_factory=list)
    """A settled outcome was given in it."""
    acquired: set[int] = field(default_factory=set)
    """What a rollback releases."""
    doomed: bool = False
    """It can only roll back."""
    ending: str = ""
    """`commit` or `rollback`: the discharge was sent."""

    @property
    def txn(self) -> str:
        """Its name in the history."""
        return self.txn_id.hex()

    def retirements(self) -> dict[int, Name]:
        """What a rollback leaves with us: the outcomes are forgotten, the deliveries stay acquired."""
        return {number: name for number, name in self.given.items() if number not in self.acquired}


class ControllingClient(Client):
    """One connection after the other, each with a control link; a subclass has one receiving link."""

    def __init__(
        self, name: str, port: int, life: int, queue: str, history: History, chance: random.Random
    ) -> None:
        super().__init__(name, port, life, queue, history)
        self.chance = chance
        self.connections = 0
        self.session: PeerSession
        self.control: Controller
        self.receiver: PeerReceiver | None = None
        self.outlets: list[PeerSender] = []
        self.numbers: dict[str, int] = {}
        self.lives: dict[bytes, Live] = {}
        self.held: dict[int, Name] = {}
        self._controls = 0
        self._declaring: set[int] = set()
        self._discharging: dict[int, Live] = {}
        self._confirmed: set[int] = set()
        self._accepted: list[Name] = []  # outside of transactions: nobody says whether it arrived

    def connect_and_drive(self) -> None:
        """Until the broker dies: who hung up comes back."""
        while True:
            self.connections += 1
            self.receiver, self.outlets = None, []
            self.lives, self.held, self._declaring, self._discharging = {}, {}, set(), {}
            self._confirmed, self._accepted = set(), []
            super().connect_and_drive()

    def open(self, connection: BlockingPeer, targets: Iterable[str | None]) -> None:
        """A session, the control link, and a link to each target; None is the anonymous terminus."""
        self.session = connection.begin()
        self.control = Controller(self.session, self.link_name("control"))
        for target in targets:
            name = self.link_name(target or "anonymous")
            self.outlets.append(self.session.attach_sender(name, target))

    def link_name(self, what: str) -> str:
        """A name that no other link of the history has."""
        return f"{self.name}.{self.connections}.{what}"

    # Declare and discharge

    @property
    def under_way(self) -> bool:
        """Whether a declare or a discharge waits for its answer."""
        return bool(self._declaring or self._discharging)

    def declare(self, wanted: int) -> None:
        """Ask for as many transactions as are missing to `wanted` live ones."""
        undischarged = sum(not live.ending for live in self.lives.values())
        for _ in range(wanted - undischarged - len(self._declaring)):
            self._declaring.add(self.control.ask(Declare()))

    def free(self) -> list[Live]:
        """The live transactions in which work can be done."""
        return [live for live in self.lives.values() if not live.ending]

    def discharge(self, live: Live, *, fail: bool) -> None:
        """Send the discharge."""
        live.ending = "rollback" if fail else "commit"
        self.history.record_step("rollback_sent" if fail else "commit_sent", self.life, live.txn)
        self._discharging[self.control.ask(Discharge(txn_id=live.txn_id, fail=fail))] = live

    def wait_for(self, connection: BlockingPeer, reached: Callable[[], object]) -> None:
        """Pump, and take every answer, until `reached` holds."""

        def taken() -> object:
            self.take_answers()
            return reached()

        connection.pump_until(taken)

    def take_answers(self) -> None:
        """What the coordinator answered."""
        control = self.control.link
        if self.receiver is not None:
            self._confirmed.update(self.receiver.confirmed)
            self.receiver.confirmed.clear()
        while control.settled:
            delivery_id = control.settled.popleft()
            outcome = control.outcomes.pop(delivery_id)
            live = self._discharging.pop(delivery_id, None)
            if live is not None:
                self._discharged(live, outcome)
            elif isinstance(outcome, Declared) and delivery_id in self._declaring:
                self._declaring.remove(delivery_id)
                live = self.lives[outcome.txn_id] = Live(outcome.txn_id)
                self.history.record_step("declared", self.life, live.txn)
            else:
                raise Unexpected(f"a declare was answered {outcome!r}")

    def _discharged(self, live: Live, outcome: object) -> None:
        del self.lives[live.txn_id]
        if isinstance(outcome, Rejected):
            condition = outcome.error.condition if outcome.error is not None else None
            self.history.record_step("rejected", self.life, live.txn)
            if not live.doomed or condition != ROLLBACK:
                raise Unexpected(f"the discharge of {live.txn} was answered {outcome!r}")
        elif isinstance(outcome, Accepted):
            self.history.record_step("accepted", self.life, live.txn)
            if live.doomed and live.ending == "commit":
                raise Unexpected(f"the commit of {live.txn} was accepted, and it could only roll back")
        else:
            raise Unexpected(f"the discharge of {live.txn} was answered {outcome!r}")
        self._check_promises(live)
        if live.ending == "commit" and isinstance(outcome, Accepted):
            self.must_be_settled(live, live.given)
            self.held.update(live.kept)
        else:
            self.must_be_settled(live, live.acquired)
            self.held.update(live.retirements())

    def _check_promises(self, live: Live) -> None:
        """Every unsettled post got its provisional outcome before the discharge was answered (4.4.2)."""
        for key, expected in [
            *((key, Accepted) for key in live.posts),
            *((key, Rejected) for key in live.refused),
        ]:
            sender, delivery_id = key
            state = sender.outcomes.pop(delivery_id, None)
            if (
                not isinstance(state, TransactionalState)
                or state.txn_id != live.txn_id
                or not isinstance(state.outcome, expected)
            ):
                raise Unexpected(
                    f"expected {expected.__name__} in transaction {live.txn} for a post, got {state!r:.200}"
                )
        for outlet in self.outlets:
            outlet.settled.clear()

    def must_be_settled(self, live: Live, ids: Iterable[int]) -> None:
        """The broker settles what a discharge ends before it answers."""
        missing = set(ids) - self._confirmed
        if missing:
            raise Unexpected(f"{len(missing)} deliveries of {live.txn} were not settled before its answer")
        self._confirmed.difference_update(ids)

    # Work

    def post(self, live: Live, outlet: PeerSender, count: int, to: str | None = None) -> None:
        """Post up to `count` messages, unless the transaction takes no more."""
        if live.doomed:
            return
        count = min(count, outlet.credit, self.session.remote_incoming_window // FRAMES_OF_A_MESSAGE)
        producer = outlet.name
        first = self.numbers.get(producer, 0)
        self.numbers[producer] = first + count
        names = [(producer, first + index) for index in range(count)]
        self.history.record("sent", self.life, producer, names, live.txn)
        for name in names:
            payload = encode_body(name, self._size(), live.txn, to)
            settled = self.chance.random() < SHARE_SETTLED
            delivery_id = outlet.send(payload, settled=settled, txn_id=live.txn_id)
            if not settled:
                live.posts[outlet, delivery_id] = name

    def _size(self) -> int:
        if self.chance.random() < SHARE_MULTI_FRAME:
            return MULTI_FRAME_BYTES
        return self.chance.choice(SMALL_BYTES)

    def post_nowhere(self, live: Live, outlet: PeerSender, *, settled: bool) -> None:
        """Something that can't be done, through the anonymous terminus: it dooms (4.4.1, 4.4.4)."""
        if not outlet.may_send:
            return
        payload = encode_body(("nobody", 0), 10, live.txn, NOWHERE)
        delivery_id = outlet.send(payload, settled=settled, txn_id=live.txn_id)
        live.doomed = True
        if not settled:
            live.refused.append((outlet, delivery_id))

    def receive(self) -> list[tuple[int, Name, bytes | None]]:
        """What arrived, recorded: delivery id, name, and the txn-id in which it was acquired."""
        receiver = self.receiver
        assert receiver is not None
        taken = []
        while receiver.deliveries:
            delivery = receiver.deliveries.popleft()
            name, count = recognise(self.history, delivery)
            state = delivery.state
            txn_id = state.txn_id if isinstance(state, TransactionalState) else None
            txn = "" if txn_id is None else txn_id.hex()
            self.history.record_received(self.life, receiver.name, [(name, count)], txn)
            taken.append((delivery.delivery_id, name, txn_id))
        return taken

    def give(self, live: Live, names: dict[int, Name], *, settled: bool) -> None:
        """Outcomes in a transaction."""
        receiver = self.receiver
        assert receiver is not None
        if not names:
            return
        outcome: Accepted | Rejected | Modified = self.chance.choice(REMOVING)
        kind: Kind = "retired_settled" if settled else "retired"
        if not settled and self.chance.random() < SHARE_MODIFIED:
            outcome, kind = FAILED, "modified"
        self.history.record(kind, self.life, receiver.name, names.values(), live.txn)
        state = TransactionalState(txn_id=live.txn_id, outcome=outcome)
        receiver.settle(names, state, settled=settled)
        if settled:
            live.acquired.difference_update(names)
            live.settled.extend(names.values())
        else:
            live.given.update(names)

    def accept_plainly(self, names: dict[int, Name]) -> None:
        """Accepted outside of transactions, settled: whether it counted is not learned."""
        receiver = self.receiver
        assert receiver is not None
        self.history.record("accept_sent", self.life, receiver.name, names.values())
        receiver.settle(names, Accepted(), settled=True)
        self._accepted.extend(names.values())

    # Ends without a discharge

    def leave(self) -> None:
        """Record that the connection ends now: what it holds may go to others."""
        for live in self.lives.values():
            self.history.record_step("left", self.life, live.txn)
        if self.receiver is not None:
            names = [*self.held.values(), *self._accepted]
            for live in self.lives.values():
                names += [*live.kept.values(), *live.given.values()]
                names += live.settled  # the outcome may never have arrived
            self.history.record("dropped", self.life, self.receiver.name, names)

    def detach_control(self) -> None:
        """End the control link with what it declared, and attach another one; nothing may be under way."""
        assert not self.under_way
        for live in self.lives.values():
            self.history.record_step("left", self.life, live.txn)
            self.held.update(live.retirements())
        self.lives.clear()
        self.control.link.detach()
        self._controls += 1
        self.control = Controller(self.session, self.link_name(f"control{self._controls}"))

    def discharge_incomplete(self, connection: BlockingPeer, live: Live, outlet: PeerSender) -> None:
        """Discharge while a delivery has frames to come: the control link is terminated (4.4.1). Leaves."""
        outlet.send(PART, txn_id=live.txn_id, more=True)  # of which no more is ever sent
        live.doomed = True
        self.discharge(live, fail=False)
        self.leave()
        try:
            self.wait_for(connection, lambda: live.txn_id not in self.lives)
        except PeerError as error:
            if error.error is None or error.error.condition != ROLLBACK or "control" not in error.scope:
                raise
            self.take_answers()
            self.history.record_step("rejected", self.life, live.txn)
            return
        raise Unexpected(f"{live.txn} was discharged with an incomplete delivery, and nothing ended")
