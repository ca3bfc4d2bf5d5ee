"""Senders and receivers that resume their links to durable termini, over lives of brokers that end at any
moment, and over connections that they cut themselves. Each message is in the queue once in the end, or was
worked on once (2.6.12, 2.6.13, 3.4.6, 3.5.5).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from amqp_broker.frames import Released
from amqp_broker.persistence.questions import HeldBy, Termini, UnsettledOf
from amqp_broker.persistence.sqlite import SqliteStore
from amqp_broker.testing.blocking_peer import PATIENCE_S, BlockingPeer, ConnectionLost
from amqp_broker.testing.peer import PeerReceiver, PeerSender
from tests.crash.deaths import Death, points_of
from tests.crash.evidence import Record
from tests.crash.history import Notes
from tests.crash.traffic import Unexpected
from tests.crash.workload import LivingClient, Workload, drain
from tests.promises.delivered import Promise, check_delivered, shortened
from tests.promises.fates import Fate
from tests.support.resuming import DURABLE, OUTCOME, Consumer, Producer

QUEUE: Final = "resumed"
WORK: Final = "resumed-work"
SENDERS: Final = 3
RECEIVERS: Final = 2
CREDIT: Final = 20
TICK: Final = 0.002
SHARE_OF_CUTS: Final = 0.004
SHARE_OF_DETACHES: Final = 0.004
"""Of the rounds of a client: it ends its connection, or its link, without a word or with one."""
SHARE_UNTOLD: Final = 0.05
"""Of what a receiver has worked on: its outcome is only in its map."""
SHARE_RELEASED: Final = 0.1


class Sender(Producer):
    """A program that outlives brokers and connections. `sent` are the rows that it has begun to send."""

    def __init__(self, name: str, notes: Notes, queue: str = QUEUE) -> None:
        super().__init__(queue, [], name, lasting=DURABLE)
        self.notes = notes
        self.sent: list[str] = []

    def attach(self, session: object) -> PeerSender:
        """The link, of which the broker has to say that it is durable."""
        link = super().attach(session)  # type: ignore[arg-type]
        if link.remote_terminus.durable != DURABLE["durable"]:
            raise Unexpected(f"the target of {self.name} is answered as {link.remote_terminus!r}")
        return link

    def next(self, link: PeerSender) -> None:
        """Send one more row, if there is credit."""
        if not self.bodies:
            self.bodies.append(f"{self.name} {len(self.sent)}".encode())
        row = self.bodies[0].decode()
        self.send_one(link)
        if not self.bodies:
            self.sent.append(row)
            self.notes.record(self.name, "sent", row=row)

    def heard(self, link: PeerSender) -> None:
        """Settle what has an outcome."""
        before = self.settled
        self.hear(link)
        if self.settled > before:
            self.notes.record(self.name, "settled", rows=self.settled - before)


class Receiver(Consumer):
    """A program that works on each message once, and outlives brokers and connections."""

    def __init__(self, name: str, notes: Notes, chance: random.Random) -> None:
        super().__init__(WORK, name, lasting=DURABLE)
        self.notes = notes
        self.chance = chance

    def attach(self, session: object) -> PeerReceiver:
        """The link, of which the broker has to say that it is durable."""
        link = super().attach(session)  # type: ignore[arg-type]
        if link.remote_terminus.durable != DURABLE["durable"]:
            raise Unexpected(f"the source of {self.name} is answered as {link.remote_terminus!r}")
        return link

    def heard(self, link: PeerReceiver, last: bool) -> None:
        """Work on what came; some goes back, and some outcomes are left for the map."""
        before = len(self.bodies)
        chance = self.chance
        self.hear(
            link, tells=lambda: last or chance.random() >= SHARE_UNTOLD,
            outcome=lambda: OUTCOME if last or chance.random() >= SHARE_RELEASED else Released(),
        )  # fmt: skip
        for body in self.bodies[before:]:
            self.notes.record(self.name, "worked", row=body.decode())


class ComingBack(LivingClient):
    """A program in one life: it comes back after each of its own cuts. The last time it only ends its work.
    """

    def __init__(self, name: str, port: int, chance: random.Random, last: bool) -> None:
        super().__init__(name, port)
        self.chance = chance
        self.last = last
        self.cut = True

    def connect_and_drive(self) -> None:
        """One connection after the other."""
        while self.cut:
            self.cut = False
            super().connect_and_drive()


class ReceivingClient(ComingBack):
    """A receiver in one life."""

    def __init__(self, port: int, receiver: Receiver, chance: random.Random, last: bool) -> None:
        super().__init__(receiver.name, port, chance, last)
        self.receiver = receiver

    def drive(self, connection: BlockingPeer) -> None:
        """Until the broker is gone, or the connection is cut, or nothing is left."""
        session = connection.begin()
        receiver, chance = self.receiver, self.chance
        while True:
            link = receiver.attach(session)
            receiver.notes.record(receiver.name, "attached", unsettled=len(receiver.unsettled))
            receiver.resume(link)
            if self.last:
                self._finish(connection, link)
                return
            while chance.random() >= SHARE_OF_DETACHES:
                if link.credit < CREDIT // 2:
                    link.flow(CREDIT)
                connection.pump(TICK)
                receiver.heard(link, False)
                if chance.random() < SHARE_OF_CUTS:
                    self.cut = True
                    return
            link.detach(closed=False)

    def _finish(self, connection: BlockingPeer, link: PeerReceiver) -> None:
        receiver = self.receiver
        while True:
            link.drain_all(CREDIT)
            came = bool(link.deliveries)
            receiver.heard(link, True)
            if not came and not receiver.unsettled:
                break
            connection.pump(TICK)
        link.detach(closed=True)


class ResumingClient(ComingBack):
    """A sender in one life."""

    def __init__(self, port: int, sender: Sender, chance: random.Random, last: bool) -> None:
        super().__init__(sender.name, port, chance, last)
        self.sender = sender

    def drive(self, connection: BlockingPeer) -> None:
        """Until the broker is gone, or the connection is cut, or all is done."""
        session = connection.begin()
        sender, chance = self.sender, self.chance
        while True:
            link = sender.attach(session)
            sender.notes.record(sender.name, "attached", unsettled=len(sender.unsettled))
            sender.resume(link)
            if self.last:
                sender.bodies.clear()
                self._finish(connection, link)
                return
            while chance.random() >= SHARE_OF_DETACHES:
                for _ in range(chance.choice((0, 1, 1, 4))):
                    sender.next(link)
                connection.pump(TICK if chance.random() < 0.2 else 0)
                sender.heard(link)
                if chance.random() < SHARE_OF_CUTS:
                    self.cut = True
                    return
            link.detach(closed=False)

    def _finish(self, connection: BlockingPeer, link: PeerSender) -> None:
        def is_done() -> bool:
            self.sender.heard(link)
            return self.sender.done

        connection.pump_until(is_done)
        link.detach(closed=True)


class Resumption(Workload):
    """Some senders to one queue, from which nobody takes before the end, and one to another, from which
    receivers take.
    """

    name = "resumption"
    points = points_of("terminus", "commit")

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        self.notes = Notes()
        self.senders = [Sender(f"resuming-{number}", self.notes) for number in range(SENDERS)]
        self.came: list[str] = []
        chance = random.Random(f"{seed} receivers")
        self.supplier = Sender("resuming-supplier", self.notes, WORK)
        self.receivers = [
            Receiver(f"resuming-receiver-{number}", self.notes, random.Random(chance.random()))
            for number in range(RECEIVERS)
        ]

    def made_clients(self, port: int, life: int, end: str) -> Sequence[LivingClient]:
        """Each sender and receiver, in its next life."""
        chance = random.Random(f"{self.seed} {life}")
        return [*self._sending(port, chance, False), *self._receiving(port, chance, False)]

    def _sending(self, port: int, chance: random.Random, last: bool) -> list[ResumingClient]:
        senders = [*self.senders, self.supplier]
        return [ResumingClient(port, sender, random.Random(chance.random()), last) for sender in senders]

    def _receiving(self, port: int, chance: random.Random, last: bool) -> list[ReceivingClient]:
        return [
            ReceivingClient(port, receiver, random.Random(chance.random()), last)
            for receiver in self.receivers
        ]

    def recorded(self) -> int:
        """What was sent and told."""
        return len(self.notes.records)

    def settle(self, port: int, life: int) -> None:
        """The senders end their work, then the receivers theirs, and everything is taken."""
        chance = random.Random(f"{self.seed} {life}")
        for clients in (self._sending(port, chance, True), self._receiving(port, chance, True)):
            self.run(clients)
            for client in self.clients:
                client.join(PATIENCE_S)
            self.join()
        try:
            self.came = drain(port, QUEUE)
        except ConnectionLost as error:
            self.complaints.append(f"the queue could not be drained: {error}")

    def check(self, deaths: Sequence[Death], data: Path) -> list[str]:
        """Each row came once, or was worked on once, and nothing is kept for links that are closed."""
        promises = [Promise(row, [row], Fate.COMMITTED) for sender in self.senders for row in sender.sent]
        found = shortened(check_delivered(QUEUE, self.came, promises))
        promises = [Promise(row, [row], Fate.COMMITTED) for row in self.supplier.sent]
        worked = [body.decode() for receiver in self.receivers for body in receiver.bodies]
        found += shortened(check_delivered(WORK, worked, promises))
        senders = [*self.senders, self.supplier]
        found += [f"{sender.name} is not done" for sender in senders if not sender.done]
        store = SqliteStore(data)
        for terminus in store.ask(Termini()):
            left = len(store.ask(UnsettledOf(terminus.number))) + len(store.ask(HeldBy(terminus.number)))
            found.append(f"{terminus.name} is closed, and the store keeps its terminus and {left} of it")
        store.close()
        return found

    def records(self) -> Iterable[Record]:
        """What each sender did and was told."""
        return self.notes.records

    def summary(self) -> str:
        """Rows, and how many were resumed."""
        rows = sum(len(sender.sent) for sender in [*self.senders, self.supplier])
        attached = sum(record["what"] == "attached" for record in self.notes.records)
        resumed = sum(sender.resumed for sender in [*self.senders, self.supplier])
        worked = sum(len(receiver.bodies) for receiver in self.receivers)
        again = sum(receiver.resumed for receiver in self.receivers)
        return (
            f"{rows:,} rows, {attached:,} attaches, {resumed:,} deliveries whose outcome our map had; "
            f"{worked:,} worked on, {again:,} deliveries resumed by the broker"
        )
