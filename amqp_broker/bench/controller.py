"""A controller: declares transactions, works in them, discharges them (4.1 to 4.4), and keeps the score.

    declare --> declared(txn-id) --> postings, retirements, discharge --> accepted, or rejected with an error
                                     ~~~~~~~~~ one write ~~~~~~~~~~~

With one live transaction at a time each waits for the last one's discharge: the latency of a commit. With
several, the next are declared and work meanwhile; they are discharged in the order of their numbers.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Final

from amqp_broker.bench.driver import Driver, drive
from amqp_broker.bench.receiver import Receiver
from amqp_broker.bench.score import Score, Transaction
from amqp_broker.bench.sender import KINDS, OUTCOMES, Sender
from amqp_broker.bench.settings import BenchSettings
from amqp_broker.bench.stencil import Stencil
from amqp_broker.bench.supply import Supply
from amqp_broker.bench.wire import BenchError, Wire, describe
from amqp_broker.bench.work_frames import WorkFrames, control_transfer
from amqp_broker.frames import (
    SENDER,
    Accepted,
    Coordinator,
    Declare,
    Declared,
    Disposition,
    Rejected,
    Released,
    Source,
    TransactionalState,
)
from amqp_broker.testing.peer import SERIAL

SYMBOLS: Final = ("amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list")
# 0 becomes 1, everything else 0.
FLIP: Final = b"\1" + bytes(255)


class Controller(Driver):
    """One connection with a control link and the transactions on it.

    One session numbers the deliveries of both its sending links (2.6.12).
    """

    def __init__(self, settings: BenchSettings, pair: int) -> None:
        self.settings = settings
        self.pair = pair
        if settings.retire:
            fill(settings.only(settings.input_of(pair), settings.inputs), pair)
        wire = self.wire = Wire.of(settings, f"controller-{pair}")
        wire.on_disposition = self._answered
        wire.state_of = self._state_of  # type: ignore[method-assign]
        self.wires = (wire,)
        source = Source(outcomes=SYMBOLS, default_outcome=Released())
        self.control = wire.sender(None, settled=False, source=source, target=Coordinator())
        self.posting = wire.sender(settings.address_of(pair), settings.settled, source=source)
        address = settings.input_of(pair)
        source = Source(address=address, outcomes=SYMBOLS, default_outcome=Released())
        self.supply = Supply(settings, wire, address, source=source) if settings.retire else None
        self.started = self.done = 0
        self.score = Score(settings)
        assert wire.remote_open is not None
        self._max_frame_size = wire.remote_open.max_frame_size
        self._declare = Stencil.marked(control_transfer(self.control.handle, Declare(), self._max_frame_size))
        self._frames: WorkFrames | None = None
        # By the delivery-id of the control message that is not yet answered.
        self._asked: dict[int, Transaction] = {}
        # Declared ones that still have work or their discharge before them, the oldest first.
        self._working: deque[Transaction] = deque()
        self._by_txn_id: dict[bytes, Transaction] = {}
        self._now_ns = 0
        # What stands before the txn-id in a `declared`, and how long the whole is.
        self._declared_as = (b"", 0)

    @property
    def finished(self) -> bool:
        """Every transaction is discharged, and what we answered is written."""
        return self.done >= self.settings.transactions and not self.wire.writing

    @property
    def position(self) -> int:
        """Grows with everything that moves."""
        return self.done + self.started + sum(self.score.outcomes)

    @property
    def at(self) -> int:
        """What is discharged."""
        return self.done

    def turn(self) -> None:
        """Read what has come and write what may go."""
        while self.wire.read():
            self._now_ns = time.monotonic_ns()
            self.wire.parse(None if self.supply is None else self.supply.read)
        if self.supply is not None:
            self.supply.renew()
        if self.wire.writing:
            return
        parts: list[bytearray] = []
        while self._working and self._work(self._working[0], parts):
            self._working.popleft()
        live = self.settings.live
        while self.started < self.settings.transactions and self.started - self.done < live:
            if self.wire.may_send(self.control) <= 0:
                break
            self._ask(parts)
        self.wire.write(b"".join(parts))

    def _ask(self, parts: list[bytearray]) -> None:
        """Declare the next transaction."""
        now_ns = time.monotonic_ns()
        self.score.began(now_ns)
        identity = self.wire.count_sent(self.control, 1)
        self._asked[identity] = Transaction(self.started, now_ns)
        self.started += 1
        parts.append(self._declare.fill(1, id=identity))

    def _work(self, transaction: Transaction, parts: list[bytearray]) -> bool:
        """Post, retire and discharge as far as credit and supply allow; True when it is discharged."""
        settings, wire, supply, frames = self.settings, self.wire, self.supply, self._frames
        assert frames is not None
        if supply is not None and not transaction.taken and supply.pool.held < settings.in_each:
            return False
        now_ns = time.monotonic_ns()
        while left := settings.in_each - transaction.posted:
            count = min(left, frames.block, wire.may_send(self.posting))
            if count <= 0:
                return False
            number = transaction.number * settings.in_each + transaction.posted
            identity = wire.count_sent(self.posting, count)
            parts.append(frames.postings(transaction.txn_id, identity, number, count, now_ns))
            transaction.posted += count
        if supply is not None and not transaction.taken:
            transaction.taken = supply.pool.take(settings.in_each)
            parts += self._retirements(transaction, frames)
        if wire.may_send(self.control) <= 0:
            return False
        transaction.discharged_ns = now_ns
        identity = wire.count_sent(self.control, 1)
        self._asked[identity] = transaction
        fail = settings.rolls_back(transaction.number)
        parts.append(frames.discharge(transaction.txn_id, identity, fail))
        return True

    def _retirements(self, transaction: Transaction, frames: WorkFrames) -> list[bytearray]:
        """One disposition for each range of ids, or for each delivery when that is asked for."""
        found, txn_id = [], transaction.txn_id
        for run in transaction.taken:
            step = 1 if self.settings.settle_each else run.count
            for first in range(run.delivery_id, run.delivery_id + run.count, step):
                found.append(frames.retirement(txn_id, first % SERIAL, (first + step - 1) % SERIAL))
        return found

    def _state_of(self, octets: bytes) -> object:
        """As the wire's, and one that looks like the last `declared` is another."""
        head, size = self._declared_as
        if len(octets) == size and octets.startswith(head):
            return Declared(txn_id=octets[len(head) :])
        state = Wire.state_of(self.wire, octets)
        if isinstance(state, Declared) and state.txn_id and octets.endswith(state.txn_id):
            self._declared_as = octets[: -len(state.txn_id)], len(octets)
        return state

    def _answered(self, role: bool, first: int, last: int, settled: bool, state: object) -> None:
        """What the broker says of our transfers, and that it has settled our retirements."""
        if role == SENDER:
            # Their settlement matters, not what state it repeats.
            self.score.settled_retirements += (last - first + 1) * settled
            return
        if isinstance(state, TransactionalState):
            outcome = KINDS.get(type(state.outcome), len(OUTCOMES) - 1)
            self._posted(first, last, bytes(state.txn_id), outcome)
        elif isinstance(state, Accepted):
            self._discharged(first, last, "")
        elif isinstance(state, Declared):
            self._declared(first, last, bytes(state.txn_id))
        elif isinstance(state, Rejected):
            self._discharged(first, last, describe(state.error))
        elif state is not None:
            raise BenchError(f"expected an outcome of a transaction, the broker sent {state!r:.200}")
        if state is not None and not settled:
            self.wire.session.put(Disposition(role=SENDER, first=first, last=last, settled=True))

    def _declared(self, first: int, last: int, txn_id: bytes) -> None:
        transaction = self._asked.pop(first, None)
        if transaction is None or transaction.txn_id or first != last:
            raise BenchError(f"declared for the deliveries {first} to {last}, which ask for nothing of that")
        if self._frames is None or self._frames.txn_id_size != len(txn_id):
            handles = self.control.handle, self.posting.handle
            self._frames = WorkFrames(self.settings, *handles, len(txn_id), self._max_frame_size)
        transaction.txn_id = txn_id
        self._by_txn_id[txn_id] = transaction
        self._working.append(transaction)
        self.score.declares.add(self._now_ns - transaction.asked_ns)

    def _posted(self, first: int, last: int, txn_id: bytes, outcome: int) -> None:
        count = last - first + 1
        self.score.outcomes[outcome] += count
        transaction = self._by_txn_id.get(txn_id)
        if transaction is not None:
            transaction.answered += count

    def _discharged(self, first: int, last: int, refusal: str) -> None:
        for identity in range(first, last + 1):
            transaction = self._asked.pop(identity, None)
            if transaction is None:
                raise BenchError(f"an outcome for delivery {identity}, which waits for none")
            if not transaction.txn_id:
                raise BenchError(f"the broker declares no transaction: {refusal or 'accepted'}")
            self._end(transaction, refusal)

    def _end(self, transaction: Transaction, refusal: str) -> None:
        del self._by_txn_id[transaction.txn_id]
        self.done += 1
        committed = self.score.ended(transaction, refusal, self._now_ns)
        if self.supply is not None:
            if committed:
                self.supply.commit(transaction.taken)
            elif not self.settings.retire_settled:
                self.supply.pool.give_back(transaction.taken)

    def result(self) -> dict[str, object]:
        """What this process tells the report."""
        twice = self.supply.retired_twice if self.supply is not None else 0
        return {**self.score.result(), "discharged": self.done, "retired_twice": twice}

    def left(self) -> dict[str, object]:
        """What the queues hold at the end, when the others have measured, too."""
        settings, pair = self.settings, self.pair
        posted = settings.only(settings.address_of(pair), settings.postings)
        found: dict[str, object] = {"posted_there": leftovers(posted, pair, self.score.posted())}
        if self.supply is not None:
            kept = self.supply.retired.translate(FLIP)
            found["input_there"] = leftovers(settings.only(self.supply.address, len(kept)), pair, kept)
        return found


def fill(settings: BenchSettings, pair: int) -> None:
    """Put the messages into a queue that transactions are to retire."""
    sender = Sender(settings, pair)
    drive(sender, settings.timeout, silent=True)
    accepted = sender.outcomes[0]
    if accepted < settings.count:
        raise BenchError(
            f"the broker accepted {accepted} of {settings.count} messages for {settings.address!r}"
        )


def leftovers(settings: BenchSettings, pair: int, wanted: bytearray) -> dict[str, object]:
    """Empty a queue and tell what was in it."""
    return drive(Receiver(settings, pair, wanted), settings.timeout, silent=True)
