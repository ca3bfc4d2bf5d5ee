"""Queues with dead letters, redelivery delays and messages for later, over lives of brokers that end at any
moment.

What becomes of a row its number says: a worker accepts it, or rejects it, or says each time that its
delivery failed, or that it is deliverable elsewhere only; or its time to live runs out, unless a worker comes
before. And some rows are sent for later: none of these may come before its time, in whatever life. Whatever
was accepted from a sender is in the end either confirmed to a worker or among the dead letters, once, with
the reason.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from amqp_broker.delivery_times import DELAY_KEY, TIME_KEY
from amqp_broker.endings import EXPIRED, REJECTED, TRIED_TOO_OFTEN, UNDELIVERABLE
from amqp_broker.frames import (
    Accepted,
    Header,
    Message,
    Modified,
    Rejected,
    Symbol,
    Timestamp,
    TransactionalState,
    encode_message,
    plain_value,
)
from amqp_broker.testing.blocking_peer import PATIENCE_S, BlockingPeer
from amqp_broker.testing.peer import Delivery, Outcome, PeerReceiver
from tests.crash.deaths import Death, check_deaths, points_of
from tests.crash.posts import PostingClient, Posts, Request, lost_transactions, number_of
from tests.crash.taken import Taken
from tests.crash.traffic import TICK
from tests.crash.workload import LivingClient
from tests.promises.delivered import Promise, check_delivered, shortened
from tests.promises.fates import Fate
from tests.support.broker_clients import body_of, take_everything
from tests.support.controllers import Controller


@dataclass(frozen=True, slots=True)
class Rules:
    """Of a queue; a failed row waits for `delay_ms`, and each time `FACTOR` times longer."""

    queue: str
    max_deliveries: int
    delay_ms: int
    dead: str
    expired: str

    def configuration(self) -> str:
        """As TOML."""
        return f"""
[[queue]]
pattern = "{self.queue}"
max_deliveries = {self.max_deliveries}
redelivery_delay_ms = {self.delay_ms}
redelivery_factor = {FACTOR}
undeliverable_wait_ms = {WAIT_MS}
dead_letter_address = "{self.dead}"
expiry_address = "{self.expired}"
"""

    def delay_s(self, failures: int) -> float:
        """How long a row waits after so many failures."""
        return float(self.delay_ms * FACTOR ** (failures - 1) / 1_000)

    def end_of(self, row: str) -> tuple[str, str]:
        """The reason and the queue of a row that is to be a dead letter; "" for one that is not."""
        reason = ENDS[number_of(row) % len(ENDS)]
        return reason, self.expired if reason == EXPIRED else self.dead if reason else ""


FACTOR: Final = 3
WAIT_MS: Final = 60
TTL_MS: Final = 40
RULES: Final = (
    Rules("tasks", 3, 20, "dead.tasks", "dead.expired"),
    Rules("errands", 2, 0, "dead.errands", "dead.errands"),
)
ENDS: Final = ("", REJECTED, TRIED_TOO_OFTEN, "", EXPIRED, TRIED_TOO_OFTEN, REJECTED, "", UNDELIVERABLE)
"""What becomes of rows, by their numbers."""
SENDERS: Final = 2
CREDIT: Final = 30
SHARE_OF_TRANSACTIONS: Final = 0.1
SHARE_OF_ROLLBACKS: Final = 0.3
SHARE_OF_LEAVES: Final = 0.06
LATER_MS: Final = (0, 0, 30, 0, 150, 0, 2_500)
"""How much later rows are to come, by their numbers; the last one is more than a start takes."""
QUIET_S: Final = 3.0
"""Longer than any delay, wait or time to live."""
WAY: Final = "discharge"
DESCRIBED: Final = "x-opt-dead-letter-"


def later_of(row: str) -> int:
    """The milliseconds that it waits before it comes: what expires comes, and expires, when its time to live
    is over.
    """
    later, ttl = LATER_MS[number_of(row) % len(LATER_MS)], _ttl_of(row)
    return later if ttl is None else min(later, ttl)


def _ttl_of(row: str) -> int | None:
    return TTL_MS if ENDS[number_of(row) % len(ENDS)] == EXPIRED else None


def encode_task(row: str) -> bytes:
    """A durable message, which may expire, and may be for later: after a while, or from a moment on."""
    later = LATER_MS[number_of(row) % len(LATER_MS)]
    annotations: dict[Symbol, object] = {}
    if later and number_of(row) % 2:
        annotations = {DELAY_KEY: later}
    elif later:
        annotations = {TIME_KEY: Timestamp(int(time.time() * 1_000) + later)}
    return encode_message(
        header=Header(durable=True, ttl=_ttl_of(row)), message_annotations=annotations, body=row.encode()
    )


class Worker(LivingClient):
    """Takes from one queue, and says of each row what is to be said; in the last life until nothing comes any
    more.
    """

    def __init__(
        self, port: int, life: int, rules: Rules, taken: Taken, chance: random.Random, last: bool = False
    ) -> None:
        super().__init__(f"worker of {rules.queue}", port)
        self.life = life
        self.rules = rules
        self.taken = taken
        self.chance = chance
        self.last = last
        self.waiting: dict[int, Callable[[], None]] = {}

    def drive(self, connection: BlockingPeer) -> None:
        """Until the broker is gone."""
        controller = Controller(connection.begin())
        while True:
            session = connection.begin()
            link = session.attach_receiver(self.name, self.rules.queue, credit=CREDIT)
            if self.last:
                self._finish(connection, link, controller)
                return
            while self.chance.random() >= SHARE_OF_LEAVES:
                connection.pump(TICK)
                self._take(link, controller)
                if link.credit < CREDIT // 2:
                    link.flow(CREDIT)
            link.detach()
            self._confirm(link)
            for delivery in link.deliveries:  # what came meanwhile goes back
                self._came(delivery)
                self.taken.returned(body_of(delivery).decode())
            session.end()
            connection.pump(self.chance.uniform(0, 2 * TTL_MS / 1_000))

    def _finish(self, connection: BlockingPeer, link: PeerReceiver, controller: Controller) -> None:
        quiet_from = time.monotonic()
        while self.waiting or time.monotonic() < quiet_from + QUIET_S:
            connection.pump(TICK)
            if link.deliveries:
                quiet_from = time.monotonic()
            self._take(link, controller)
            link.flow(CREDIT)

    def _take(self, link: PeerReceiver, controller: Controller) -> None:
        while link.deliveries:
            delivery = link.deliveries.popleft()
            row, failures = self._came(delivery)
            reason, _ = self.rules.end_of(row)
            if reason == TRIED_TOO_OFTEN and failures + 1 < self.rules.max_deliveries:
                self.taken.failing(row, self.rules.delay_s(failures + 1))
                self.waiting[delivery.delivery_id] = partial(self.taken.failed, row)
                link.settle(delivery, Modified(delivery_failed=True), settled=False)
            elif reason == TRIED_TOO_OFTEN:
                self.taken.leaving(row)
                self.waiting[delivery.delivery_id] = partial(self.taken.failed, row)
                link.settle(delivery, Modified(delivery_failed=True), settled=False)
            elif reason == UNDELIVERABLE:
                self.taken.returned(row)
                link.settle(delivery, Modified(undeliverable_here=True))
            else:
                outcome = Rejected() if reason == REJECTED else Accepted()
                if self.chance.random() < SHARE_OF_TRANSACTIONS:
                    self._transaction(link, delivery, row, outcome, controller)
                else:
                    self._end(link, delivery, row, outcome)
        self._confirm(link)

    def _came(self, delivery: Delivery) -> tuple[str, int]:
        row = body_of(delivery).decode()
        failures = Message(delivery.payload).header.delivery_count or 0
        self.taken.came(row, self.life, failures)
        return row, failures

    def _end(self, link: PeerReceiver, delivery: Delivery, row: str, outcome: Outcome) -> None:
        self.taken.leaving(row)
        self.waiting[delivery.delivery_id] = partial(self.taken.confirmed, row)
        link.settle(delivery, outcome, settled=False)

    def _confirm(self, link: PeerReceiver) -> None:
        while link.confirmed:
            self.waiting.pop(link.confirmed.popleft())()

    def _transaction(
        self, link: PeerReceiver, delivery: Delivery, row: str, outcome: Accepted | Rejected,
        controller: Controller,
    ) -> None:  # fmt: skip
        """The outcome counts with the discharge; after a rollback the message is there as before."""
        txn_id = controller.declare()
        fails = self.chance.random() < SHARE_OF_ROLLBACKS
        state = TransactionalState(txn_id=txn_id, outcome=outcome)
        if fails:
            self.taken.returned(row)
        else:
            self.taken.leaving(row)
            self.taken.discharging.add((row, self.life))
        link.settle(delivery, state)
        outcome_of = controller.discharge(txn_id, fail=fails)
        assert isinstance(outcome_of, Accepted), f"a discharge was answered {outcome_of!r}"
        if not fails:
            self.taken.discharging.remove((row, self.life))
            self.taken.confirmed(row)


class DeadLetters(Posts):
    """Senders and workers; in the end the workers go on until all is done, and the dead letters are taken."""

    name = "dead letters"
    configuration = "".join(rules.configuration() for rules in RULES)
    points = points_of(WAY, "commit")

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.due: dict[str, float] = {}
        self.taken = {rules.queue: Taken(rules.queue, self.story.notes, due=self.due) for rules in RULES}
        self._dead: dict[str, list[str]] = {}
        self._reasons: Counter[str] = Counter()

    def made_clients(self, port: int, life: int, end: str) -> list[LivingClient]:
        """Senders to both queues, and a worker for each."""
        queues = [rules.queue for rules in RULES]
        clients = self._workers(port, life)
        for number in range(SENDERS):
            name = f"t{number}.{life}"
            chance = random.Random(f"{self.seed} {name}")
            clients.append(PostingClient(name, port, life, queues, self.story, chance, self._encode))
        return clients

    def _encode(self, row: str) -> bytes:
        self.due[row] = time.monotonic() + later_of(row) / 1_000
        return encode_task(row)

    def _workers(self, port: int, life: int, last: bool = False) -> list[LivingClient]:
        return [
            Worker(
                port, life, rules, self.taken[rules.queue],
                random.Random(f"{self.seed} {rules.queue} {life}"), last,
            )
            for rules in RULES
        ]  # fmt: skip

    def settle(self, port: int, life: int) -> None:
        """All rows are handled, and the dead letters taken."""
        self.finish(self._workers(port, life, last=True))
        with BlockingPeer.connect("127.0.0.1", port, container_id="takes dead letters") as connection:
            names = {name for rules in RULES for name in (rules.dead, rules.expired)}
            links = {name: connection.begin().attach_receiver(name, name) for name in sorted(names)}
            self._dead = {name: [] for name in links}
            deadline = time.monotonic() + PATIENCE_S
            while True:
                for name, link in links.items():
                    self._dead[name] += [self._row_of(letter, name) for letter in take_everything(link)]
                if time.monotonic() > deadline or not self._check_dead():
                    return
                connection.pump(TICK)

    def _row_of(self, letter: Delivery, name: str) -> str:
        """The row of a dead letter; what is said of it has to be true."""
        row = body_of(letter).decode()
        noted = plain_value(Message(letter.payload).message_annotations or {})
        told = [noted.get(f"{DESCRIBED}{what}") for what in ("address", "reason", "count")]
        self.story.notes.record(name, "taken", row=row, told=told)
        self._reasons[str(told[1])] += 1
        rules = next((rules for rules in RULES if rules.queue == told[0]), None)
        if rules is not None:
            reason, _ = rules.end_of(row)
            count = rules.max_deliveries if reason == TRIED_TOO_OFTEN else 0
        if rules is None or told[1:] != [reason, count]:
            self.complaints.append(f"{name}: {row} says address, reason and count {told}")
        return row

    def check(self, deaths: Sequence[Death], data: Path) -> list[str]:
        """Each row has one end."""
        requests = self.story.requests
        lost = lost_transactions(requests, self._fates())
        found = []
        for rules in RULES:
            taken = self.taken[rules.queue]
            found += taken.complaints
            expired = {row for row in self._dead[rules.expired] if rules.end_of(row)[0] == EXPIRED}
            for life, fates in taken.lost_discharges(expired).items():
                lost.setdefault(life, []).extend(fates)
        found += check_deaths(deaths, (WAY,), lost)
        return shortened(found + self._check_handled() + self._check_dead())

    def _fates(self) -> dict[str, Fate]:
        """How each request ended: of what nobody was told, as its rows say."""
        seen = {row for taken in self.taken.values() for row in taken.rows}
        seen |= {row for rows in self._dead.values() for row in rows}
        fates = {}
        for request in self.story.requests:
            there = any(row in seen for rows in request.rows.values() for row in rows)
            unknown = request.fate is Fate.UNKNOWN
            fates[request.name] = (Fate.COMMITTED if there else Fate.ABSENT) if unknown else request.fate
        return fates

    def _check_handled(self) -> list[str]:
        """What was sent came to its worker, and nothing else did; none waits for an outcome."""
        found = []
        fates = self._fates()
        for rules in RULES:
            taken = self.taken[rules.queue]
            left = {*taken.left()}
            promises = []
            came = []
            for request, row in self._rows(rules):
                reason, _ = rules.end_of(row)
                if reason not in (EXPIRED, UNDELIVERABLE):
                    promises.append(Promise(row, [row], fates[request.name]))
                    came += [row] if row in left else []
                elif fates[request.name] is Fate.ABSENT:
                    promises.append(Promise(row, [row], Fate.ABSENT))
                    came += [row] if row in taken.rows else []
            found += check_delivered(rules.queue, came, promises)
        return found

    def _check_dead(self) -> list[str]:
        """Among the dead letters is what belongs there, and nothing else."""
        fates = self._fates()
        promises: dict[str, list[Promise]] = {name: [] for name in self._dead}
        for rules in RULES:
            taken = self.taken[rules.queue]
            for request, row in self._rows(rules):
                reason, name = rules.end_of(row)
                fate = fates[request.name]
                if reason == EXPIRED and fate is Fate.COMMITTED:
                    fate = taken.absence_of(row)
                if name:
                    promises[name].append(Promise(row, [row], fate))
        found = []
        for name, rows in self._dead.items():
            found += check_delivered(name, rows, promises[name])
        return found

    def _rows(self, rules: Rules) -> Iterable[tuple[Request, str]]:
        for request in self.story.requests:
            for row in request.rows.get(rules.queue, ()):
                yield request, row

    def summary(self) -> str:
        """Rows, and how they ended."""
        rows = sum(len(rows) for request in self.story.requests for rows in request.rows.values())
        failed = sum(row.failures for taken in self.taken.values() for row in taken.rows.values())
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(self._reasons.items()))
        return f"{rows:,} rows, {failed:,} failed deliveries that were not the last, dead letters: {reasons}"
