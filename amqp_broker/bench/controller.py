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

from amqp_broker.bench.control_wire import SERIAL, ControlWire
from amqp_broker.bench.score import Score, Transaction
from amqp_broker.bench.sender import KINDS, OUTCOMES, small_uint
from amqp_broker.bench.settings import BenchSettings
from amqp_broker.bench.supply import Supply
from amqp_broker.bench.transaction_frames import (
    CONTROL_HANDLE,
    POSTING_HANDLE,
    DeclareFrame,
    WorkFrames,
)
from amqp_broker.bench.wire import BenchError, describe, wait_for
from amqp_broker.frames import (
    RECEIVER,
    SENDER,
    Accepted,
    Declared,
    Disposition,
    Flow,
    Rejected,
    TransactionalState,
    encode_composite,
    encode_frame,
)

ACCEPTED: Final = encode_composite(Accepted())
DISPOSITION: Final = 0x15
TRANSFER: Final = 0x14


class Controller:
    """One connection with a control link and the transactions on it."""

    def __init__(self, settings: BenchSettings, pair: int) -> None:
        self.settings = settings
        self.wire = ControlWire(settings, pair)
        self.supply = Supply(settings, self.wire) if settings.retire else None
        self.started = self.done = 0
        self.score = Score(settings)
        self._declare = DeclareFrame()
        self._frames: WorkFrames | None = None
        # By the delivery-id of the control message that is not yet answered.
        self._asked: dict[int, Transaction] = {}
        # Declared ones that still have work or their discharge before them, the oldest first.
        self._working: deque[Transaction] = deque()
        self._by_txn_id: dict[bytes, Transaction] = {}
        self._now_ns = 0
        if self.supply is not None:
            self.supply.renew()

    @property
    def finished(self) -> bool:
        """Every transaction is discharged, and what we answered is written."""
        return self.done >= self.settings.transactions and not self.wire.writing

    @property
    def position(self) -> int:
        """Grows with everything that moves."""
        return self.done + self.started + sum(self.score.outcomes)

    def turn(self) -> None:
        """Read what has come and write what may go."""
        while self.wire.read():
            self._now_ns = time.monotonic_ns()
            self._parse()
        if self.supply is not None:
            self.supply.renew()
        if self.wire.writing:
            return
        parts: list[bytes | bytearray] = []
        while self._working and self._work(self._working[0], parts):
            self._working.popleft()
        live = self.settings.live
        while self.started < self.settings.transactions and self.started - self.done < live:
            if not self.wire.may_send(CONTROL_HANDLE):
                break
            self._ask(parts)
        if parts:
            self.wire.write(b"".join(parts))

    def wait(self, timeout_s: float) -> None:
        """Sleep until the socket has something, or takes something."""
        wait_for(self.wire, timeout_s=timeout_s)

    def _ask(self, parts: list[bytes | bytearray]) -> None:
        """Declare the next transaction."""
        now_ns = time.monotonic_ns()
        self.score.began(now_ns)
        identity = self.wire.count_sent(CONTROL_HANDLE, 1)
        self._asked[identity] = Transaction(self.started, now_ns)
        self.started += 1
        parts.append(self._declare.numbered(identity))

    def _work(self, transaction: Transaction, parts: list[bytes | bytearray]) -> bool:
        """Post, retire and discharge as far as credit and supply allow; True when it is discharged."""
        settings, wire, supply, frames = self.settings, self.wire, self.supply, self._frames
        assert frames is not None
        if supply is not None and not transaction.taken and supply.pool.held < settings.in_each:
            return False
        now_ns = time.monotonic_ns()
        while left := settings.in_each - transaction.posted:
            count = min(left, frames.block, wire.may_send(POSTING_HANDLE))
            if count <= 0:
                return False
            number = transaction.number * settings.in_each + transaction.posted
            identity = wire.count_sent(POSTING_HANDLE, count)
            parts.append(frames.postings(transaction.txn_id, identity, number, count, now_ns))
            transaction.posted += count
        if supply is not None and not transaction.taken:
            transaction.taken = supply.pool.take(settings.in_each)
            parts += self._retirements(transaction, frames)
        if not wire.may_send(CONTROL_HANDLE):
            return False
        transaction.discharged_ns = now_ns
        identity = wire.count_sent(CONTROL_HANDLE, 1)
        self._asked[identity] = transaction
        fail = settings.rolls_back(transaction.number)
        parts.append(frames.discharge(transaction.txn_id, identity, fail))
        return True

    def _retirements(self, transaction: Transaction, frames: WorkFrames) -> list[bytes]:
        """One disposition for each range of ids, or for each delivery when that is asked for."""
        found, txn_id = [], transaction.txn_id
        for run in transaction.taken:
            step = 1 if self.settings.settle_each else run.count
            for first in range(run.delivery_id, run.delivery_id + run.count, step):
                found.append(frames.retirement(txn_id, first % SERIAL, (first + step - 1) % SERIAL))
        return found

    def _parse(self) -> None:
        wire, supply = self.wire, self.supply
        while size := wire.frame_size(wire.start):
            at = wire.start
            code = wire.buffer[at + 10] if size > 10 else 0
            if code == TRANSFER and supply is not None and (read := supply.read(at, size)):
                wire.start += read
                continue
            wire.start += size
            if code != DISPOSITION or not self._disposition_by_shape(at, size):
                self._frame(wire.other_frame(at, size))

    def _disposition_by_shape(self, at: int, size: int) -> bool:
        """A settled disposition in the layout that brokers send; False for every other frame."""
        buffer = self.wire.buffer
        if buffer[at + 8 : at + 12] != b"\x00\x53\x15\xc0" or buffer[at + 4] != 2:
            return False
        first, here = small_uint(buffer, at + 15)
        last, here = (first, here + 1) if buffer[here] == 0x40 else small_uint(buffer, here)
        if first < 0 or last < 0 or buffer[here] != 0x41 or buffer[at + 14] not in (0x41, 0x42):
            return False
        state = bytes(buffer[here + 1 : at + size])
        if buffer[at + 14] == 0x42:
            # Our retirements; their settlement matters, not what state it repeats.
            self.score.settled_retirements += last - first + 1
        elif state == ACCEPTED:
            self._discharged(first, last, "")
        elif state[1:4] == b"\x53\x33\xc0" and state[5:7] == b"\x01\xa0" and len(state) == 8 + state[7]:
            self._declared(first, last, state[8:])
        elif state[1:4] == b"\x53\x34\xc0" and state[5:7] == b"\x02\xa0" and state.endswith(ACCEPTED):
            self._posted(first, last, state[8 : 8 + state[7]], 0)
        else:
            return False
        return True

    def _frame(self, performative: object) -> None:
        if isinstance(performative, Flow):
            self.wire.flow(performative)
        elif isinstance(performative, Disposition):
            last = performative.first if performative.last is None else performative.last
            if performative.role == RECEIVER:
                self._state(performative, performative.first, last)
            elif performative.settled:
                self.score.settled_retirements += last - performative.first + 1

    def _state(self, disposition: Disposition, first: int, last: int) -> None:
        """What the broker says of our transfers, in any layout."""
        state = disposition.state
        if isinstance(state, Declared):
            self._declared(first, last, bytes(state.txn_id))
        elif isinstance(state, TransactionalState):
            outcome = KINDS.get(type(state.outcome), len(OUTCOMES) - 1)
            self._posted(first, last, bytes(state.txn_id), outcome)
        elif isinstance(state, Accepted):
            self._discharged(first, last, "")
        elif isinstance(state, Rejected):
            self._discharged(first, last, describe(state.error))
        elif state is not None:
            raise BenchError(f"expected an outcome of a transaction, the broker sent {state!r:.200}")
        if state is not None and not disposition.settled:
            settling = Disposition(role=SENDER, first=first, last=last, settled=True)
            self.wire.write(encode_frame(0, settling))

    def _declared(self, first: int, last: int, txn_id: bytes) -> None:
        transaction = self._asked.pop(first, None)
        if transaction is None or transaction.txn_id or first != last:
            raise BenchError(f"declared for the deliveries {first} to {last}, which ask for nothing of that")
        if self._frames is None or self._frames.txn_id_size != len(txn_id):
            self._frames = WorkFrames(self.settings, len(txn_id), self.wire.remote_max_frame_size)
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
