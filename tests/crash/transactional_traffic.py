"""Controllers under load: they transform what they receive, post to several queues, and acquire by flow; and
who looks on.
"""

from __future__ import annotations

import random
from typing import Final

from amqp_broker.frames import Accepted, Source
from amqp_broker.testing.blocking_peer import BlockingPeer
from amqp_broker.testing.peer import PeerSession
from tests.crash.controllers import SHARE_SETTLED, ControllingClient, Live
from tests.crash.history import History
from tests.crash.history import Message as Name
from tests.crash.traffic import TICK, Client, recognise
from tests.support.controllers import ALL_OUTCOMES

LIVE_AT_ONCE: Final = 4
BROWSED_AT_ONCE: Final = 100
CREDIT: Final = 60

COMMITS, ROLLBACKS, LEAVES = "commit", "rollback", "leave"
HANGS_UP, DETACHES, INCOMPLETE, DOOMED = "hang up", "detach", "incomplete", "doomed"
ENDS: Final = (
    *(COMMITS,) * 68,
    *(ROLLBACKS,) * 18,
    *(DOOMED,) * 5,
    *(HANGS_UP,) * 4,
    *(DETACHES,) * 3,
    *(LEAVES,) * 1,
    *(INCOMPLETE,) * 1,
)
"""How transactions end, by their frequency. *Hang up*: the commit is sent, and the transport ended."""


class PostingController(ControllingClient):
    """Posts to several queues in several transactions at a time, and pipelines the discharge."""

    def __init__(
        self,
        name: str,
        port: int,
        life: int,
        queue: str,
        history: History,
        chance: random.Random,
        targets: tuple[str, ...],
    ) -> None:
        super().__init__(name, port, life, queue, history, chance)
        self.targets = targets

    def prepare(self, connection: BlockingPeer) -> None:
        """The links; the last one is the anonymous terminus."""
        self.open(connection, (*self.targets, None))

    def drive(self, connection: BlockingPeer) -> None:
        """Declare, work, discharge, until it leaves or the connection is gone."""
        self.prepare(connection)
        while True:
            self.declare(LIVE_AT_ONCE)
            connection.pump(TICK)
            self.take_answers()
            self.look()
            for live in self.free():
                if live.txn_id not in self.lives:
                    break  # its control link was detached
                if self.chance.random() < 0.7:
                    self.work(live)
                if self.chance.random() < 0.5 and not self.finish(connection, live):
                    return

    def look(self) -> None:
        """Take what arrived."""

    def work(self, live: Live) -> None:
        """One piece of work in a transaction."""
        for outlet in self.chance.sample(self.outlets[:-1], 2):
            self.post(live, outlet, self.chance.choice((1, 1, 1, 2, 2, 3, 12)))
        if self.chance.random() < 0.2:
            self.post(live, self.outlets[-1], 1, self.chance.choice(self.targets))
        if self.chance.random() < 0.05:
            self.post_nowhere(live, self.outlets[-1], settled=False)

    def finish(self, connection: BlockingPeer, live: Live) -> bool:
        """End a transaction in one of the ways; False if the connection ended with it."""
        way = self.chance.choice(ENDS)
        if way == DOOMED:
            self.post_nowhere(live, self.outlets[-1], settled=True)
        if way in (COMMITS, ROLLBACKS, DOOMED):
            self.discharge(live, fail=way == ROLLBACKS)
            return True
        if way == DETACHES:
            self.wait_for(connection, lambda: not self.under_way)
            self.detach_control()
            return True
        self.quiesce(connection)
        if way == INCOMPLETE:
            self.wait_for(connection, lambda: not self.under_way and self.outlets[-1].may_send)
            self.discharge_incomplete(connection, live, self.outlets[-1])
            return False
        if way == HANGS_UP:
            self.discharge(live, fail=False)
            connection.flush()
        self.leave()
        return False

    def quiesce(self, connection: BlockingPeer) -> None:
        """Have nothing on its way to us: what is given back unseen would be out of order for no known
        reason.
        """


class TransformingController(PostingController):
    """Retires messages of one queue, and posts what it makes of each to the others."""

    def prepare(self, connection: BlockingPeer) -> None:
        """The receiving link has a session of its own: transactions span sessions here."""
        super().prepare(connection)
        session = connection.begin()
        self.receiver = session.attach_receiver(
            self.link_name("source"), self.queue, source=Source(address=self.queue, outcomes=ALL_OUTCOMES)
        )
        self.receiver.flow(CREDIT)
        self._drained = False

    def look(self) -> None:
        """What arrived is ours until an outcome was committed."""
        assert self.receiver is not None
        self.held.update((number, name) for number, name, _ in self.receive())
        if not self._drained and self.receiver.credit < CREDIT // 2 and len(self.held) < 2 * CREDIT:
            self.receiver.flow(CREDIT)
        if len(self.held) > CREDIT:
            self.accept_plainly(self._take(5))

    def work(self, live: Live) -> None:
        """Post two messages for each that is retired."""
        names = self._take(self.chance.choice((1, 1, 3, 10)))
        for outlet in self.outlets[:-1]:
            self.post(live, outlet, len(names))
        self.give(live, names, settled=self.chance.random() < SHARE_SETTLED)

    def quiesce(self, connection: BlockingPeer) -> None:
        """Drain: what the broker has sent is known then."""
        receiver = self.receiver
        assert receiver is not None
        self._drained = True
        receiver.flow(max(1, receiver.credit), drain=True)
        self.wait_for(connection, lambda: receiver.used_up)
        self.look()

    def _take(self, most: int) -> dict[int, Name]:
        numbers = list(self.held)[:most]
        return {number: self.held.pop(number) for number in numbers}


class AcquiringController(PostingController):
    """Acquires by flow, one transaction after the other, and posts a little in the same ones."""

    def prepare(self, connection: BlockingPeer) -> None:
        """Sometimes the broker settles what it sends: then the commit is the acceptance."""
        super().prepare(connection)
        self.presettled = self.chance.random() < SHARE_SETTLED
        self.receiver = self.session.attach_receiver(
            self.link_name("acquired"),
            self.queue,
            source=Source(address=self.queue, outcomes=ALL_OUTCOMES),
            snd_settle_mode=1 if self.presettled else 2,
        )

    def drive(self, connection: BlockingPeer) -> None:
        """Acquire, work, discharge, until it leaves or the connection is gone."""
        self.prepare(connection)
        while True:
            self.declare(1)
            self.wait_for(connection, self.free)
            (live,) = self.free()
            way_is_open = not self.presettled and self.chance.random() < 0.3
            self._acquire(connection, live, drain=not way_is_open)
            if self.chance.random() < 0.5:
                self.post(live, self.outlets[0], self.chance.choice((1, 3)))
            if way_is_open:
                self.discharge(live, fail=False)  # with credit left over; it stays (4.4.3)
            elif not self.finish(connection, live):
                return
            self.wait_for(connection, lambda: not self.lives)
            self.look_after(connection, live)

    def _acquire(self, connection: BlockingPeer, live: Live, *, drain: bool) -> None:
        """Some messages come in the transaction; some of them get an outcome."""
        receiver = self.receiver
        assert receiver is not None
        # Never less than is left over: what the broker took back would be out of order for no known reason.
        credit = max(receiver.credit, self.chance.choice((1, 5, 30)))
        receiver.flow(credit, drain=drain, txn_id=live.txn_id)
        if drain:
            self.wait_for(connection, lambda: receiver.used_up)
        else:
            connection.pump(TICK)
        self.take(live)
        if not self.presettled:
            numbers = [number for number in live.kept if self.chance.random() < 0.8]
            settled = self.chance.random() < SHARE_SETTLED
            self.give(live, {number: live.kept.pop(number) for number in numbers}, settled=settled)

    def take(self, live: Live) -> None:
        """What arrived, by the transaction that its transfers name."""
        assert self.receiver is not None
        for number, name, txn_id in self.receive():
            if txn_id is None:
                self.held[number] = name
            elif txn_id != live.txn_id:
                raise AssertionError(f"{name} came in transaction {txn_id.hex()}, not {live.txn}")
            elif self.presettled:
                self.history.record("retired_settled", self.life, self.receiver.name, [name], live.txn)
            else:
                live.kept[number] = name
                live.acquired.add(number)

    def look_after(self, connection: BlockingPeer, live: Live) -> None:
        """What came in a transaction while its commit was on its way stays with us; what came by the credit
        that was left over belongs to none.
        """
        receiver = self.receiver
        assert receiver is not None
        self.wait_for(connection, lambda: not receiver.partial)  # it may have begun in this transaction
        self.take(live)
        self.held.update(live.kept)
        if self.held:
            self.accept_plainly(self.held)
            self.held = {}


class BrowsingClient(Client):
    """Looks at a queue again and again, and settles what it sees."""

    def drive(self, connection: BlockingPeer) -> None:
        """A new link each time that the old one has seen all."""
        session = connection.begin()
        number = 0
        while True:
            number += 1
            self.look(session, f"{self.name}.{number}")
            connection.pump(TICK)  # a connection may attach and detach so many times a second

    def look(self, session: PeerSession, name: str) -> None:
        """Once, on a link of this name."""
        source = Source(address=self.queue, outcomes=ALL_OUTCOMES, distribution_mode="copy")
        link = session.attach_receiver(name, self.queue, source=source)
        link.drain_all(BROWSED_AT_ONCE)
        seen = [recognise(self.history, delivery)[0] for delivery in link.deliveries]
        self.history.record("browsed", self.life, link.name, seen)
        link.settle(link.deliveries, Accepted())
        link.detach()
