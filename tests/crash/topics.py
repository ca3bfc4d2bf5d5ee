"""Topics and their durable subscriptions, over lives of brokers that end at any moment.

Publishers post to two topics, alone and in transactions of both. Subscribers take what theirs hold, go and
come back; one of them unsubscribes now and then, and subscribes anew. A binding, from which nobody takes
before the end, has what was published: it tells of each request of which nobody heard whether it counts.
Whatever counts is once, whole and in order, in each subscription that was there at its commit.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from amqp_broker.addresses import parse_topic_pattern
from amqp_broker.frames import Accepted, Header, Message, Released, Source, encode_message
from amqp_broker.testing.blocking_peer import BlockingPeer
from amqp_broker.testing.peer import PeerError, PeerReceiver, PeerSession
from tests.crash.deaths import Death, check_deaths, points_of
from tests.crash.posts import PostingClient, Posts, Request, Story, lost_transactions, number_of
from tests.crash.taken import Taken
from tests.crash.traffic import TICK
from tests.crash.workload import LivingClient, drain
from tests.promises.delivered import Promise, check_delivered, shortened
from tests.promises.fates import Fate
from tests.support.broker_clients import body_of
from tests.support.topics import durable, selector, shared_durable

ADDRESSES: Final = ("news.sport", "news.weather")
EVERYTHING: Final = "news.#"
ARCHIVE: Final = "archive"
CONFIGURATION: Final = f"""
[[queue]]
pattern = "news.**"
kind = "topic"

[[binding]]
topic = "{EVERYTHING}"
queue = "{ARCHIVE}"
"""
PUBLISHERS: Final = 2
CREDIT: Final = 50
SHARE_OF_RELEASES: Final = 0.05
SHARE_OF_HELD: Final = 0.1
SHARE_OF_LEAVES: Final = 0.04
SHARE_OF_ENDS: Final = 0.3
SHARE_OF_LOOKS: Final = 0.3
WAY: Final = "discharge"
NOT_FOUND: Final = "amqp:not-found"


@dataclass(slots=True)
class Lasted:
    """One subscription: when it was `asked` for, known to be `made`, about to end (`closing`), `ended`."""

    taken: Taken
    asked: int
    made: int | None = None
    closing: int | None = None
    ended: int | None = None


def encode_row(row: str) -> bytes:
    """A durable message; its property `n` is that of its number."""
    odd = number_of(row) % 2
    return encode_message(header=Header(durable=True), application_properties={"n": odd}, body=row.encode())


class Subscription:
    """One by its name, over all lives: it may end, and begin anew. `links` receive from it at once."""

    def __init__(
        self, name: str, pattern: str, story: Story, *, wanted: int | None = None, links: int = 1,
        ends: bool = False,
    ) -> None:  # fmt: skip
        self.name = name
        self.pattern = parse_topic_pattern(pattern)
        self.story = story
        self.wanted = wanted
        self.links = [name] if links == 1 else [f"{name}|{number}" for number in range(links)]
        self.ends = ends
        self.lasted: list[Lasted] = []
        self.complaints: list[str] = []

    @property
    def now(self) -> Lasted | None:
        """The one that there may be."""
        return self.lasted[-1] if self.lasted and self.lasted[-1].ended is None else None

    def source(self) -> Source:
        """What its links ask for."""
        make = durable if len(self.links) == 1 else shared_durable
        filters = None if self.wanted is None else selector(f"n = {self.wanted}")
        return make(self.pattern.text, filter=filters)

    def asking(self) -> Lasted:
        """It is about to be subscribed to."""
        if self.now is None:
            taken = Taken(f"{self.name} {len(self.lasted)}", self.story.notes)
            self.lasted.append(Lasted(taken, next(self.story.clock)))
        self.story.notes.record(self.name, "asking")
        assert self.now is not None, "it was made"
        return self.now

    def there(self) -> None:
        """The broker has answered that it is there."""
        self.story.notes.record(self.name, "there")
        if self.now is None:
            self.complaints.append(f"{self.name} is there, and had been unsubscribed")
            return
        self.now.closing = None
        if self.now.made is None:
            self.now.made = next(self.story.clock)

    def not_there(self) -> None:
        """The broker has answered that there is none."""
        self.story.notes.record(self.name, "not there")
        if self.now is not None:
            if self.now.made is not None and self.now.closing is None:
                self.complaints.append(f"{self.name} is lost")
            self.now.ended = next(self.story.clock)

    def closing(self) -> None:
        """Its unsubscribing is about to be sent."""
        self.story.notes.record(self.name, "closing")
        assert self.now is not None, "it is there"
        self.now.closing = next(self.story.clock)

    def closed(self) -> None:
        """It was answered."""
        self.story.notes.record(self.name, "closed")
        assert self.now is not None, "it is there"
        self.now.ended = next(self.story.clock)

    def rows_of(self, address: str, rows: Sequence[str]) -> list[str]:
        """Those that are for it."""
        if not self.pattern.matches(address):
            return []
        return [row for row in rows if self.wanted in (None, number_of(row) % 2)]


class Subscriber(LivingClient):
    """Takes from one subscription: it leaves and comes back, and unsubscribes in either of both ways."""

    def __init__(
        self, port: int, life: int, subscription: Subscription, chance: random.Random, last: bool = False
    ) -> None:
        super().__init__(f"of {subscription.name}", port)
        self.life = life
        self.subscription = subscription
        self.chance = chance
        self.last = last
        self.held: list[str] = []
        self.leaving: dict[int, str] = {}

    def drive(self, connection: BlockingPeer) -> None:
        """Until the broker is gone, or, in the last life, nothing is there any more."""
        subscription = self.subscription
        while True:
            now = subscription.now
            if (now is not None and now.closing is not None) or self.chance.random() < SHARE_OF_LOOKS:
                self._look(connection)
            taken = subscription.asking().taken
            session = connection.begin()
            links = [
                session.attach_receiver(name, None, source=subscription.source(), credit=CREDIT)
                for name in subscription.links
            ]
            subscription.there()
            if self.last:
                self._drain(links, taken)
                return
            self._receive(connection, links, taken)
            self._leave(session, links, taken)

    def _look(self, connection: BlockingPeer) -> None:
        """By an attach without a source, as JMS does before it unsubscribes."""
        subscription = self.subscription
        session = connection.begin()
        shared = ("shared",) if len(subscription.links) > 1 else None
        try:
            link = session.attach_receiver(
                subscription.links[0], None, source=None, desired_capabilities=shared
            )
        except PeerError as refused:
            if refused.error is None or refused.error.condition != NOT_FOUND:
                raise
            subscription.not_there()
        else:
            subscription.there()
            if subscription.ends and subscription.now is not None and self.chance.random() < 0.5:
                subscription.closing()
                link.detach(closed=True)
                subscription.closed()
        session.end()

    def _receive(self, connection: BlockingPeer, links: list[PeerReceiver], taken: Taken) -> None:
        """Until it is time to leave, which comes soon where that may be the end."""
        leaves = SHARE_OF_ENDS if self.subscription.ends else SHARE_OF_LEAVES
        while self.chance.random() >= leaves:
            connection.pump(TICK)
            for link in links:
                self._take(link, taken)
                if link.credit < CREDIT // 2:
                    link.flow(CREDIT)

    def _take(self, link: PeerReceiver, taken: Taken, leaves: bool = False) -> None:
        while link.deliveries:
            delivery = link.deliveries.popleft()
            row = body_of(delivery).decode()
            taken.came(row, self.life, Message(delivery.payload).header.delivery_count or 0)
            if leaves:
                taken.returned(row)
            elif not self.last and self.chance.random() < SHARE_OF_RELEASES:
                taken.returned(row)
                link.settle(delivery, Released())
            elif not self.last and self.chance.random() < SHARE_OF_HELD:
                self.held.append(row)
            else:
                taken.leaving(row)
                self.leaving[delivery.delivery_id] = row
                link.settle(delivery, Accepted(), settled=False)
        while link.confirmed:
            taken.confirmed(self.leaving.pop(link.confirmed.popleft()))

    def _leave(self, session: PeerSession, links: list[PeerReceiver], taken: Taken) -> None:
        """What was not accepted goes back; the last link may unsubscribe."""
        for row in self.held:
            taken.returned(row)
        self.held.clear()
        ends = self.subscription.ends and self.chance.random() < 0.5
        for link in links:
            closes = ends and link is links[-1]
            if closes:
                self.subscription.closing()
            link.detach(closed=closes)
            if closes:
                self.subscription.closed()
            self._take(link, taken, leaves=True)
        session.end()

    def _drain(self, links: list[PeerReceiver], taken: Taken) -> None:
        connection = links[0].session.connection
        while True:
            for link in links:
                link.drain_all(CREDIT)
            if not any(link.deliveries for link in links) and not self.leaving:
                return
            for link in links:
                self._take(link, taken)
            connection.pump(TICK)


class Topics(Posts):
    """Publishers and subscribers; in the end each subscription is drained, and so is the binding."""

    name = "topics"
    configuration = CONFIGURATION
    points = points_of(WAY, "commit")

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.subscriptions = [
            Subscription("all", EVERYTHING, self.story),
            Subscription("odd", ADDRESSES[0], self.story, wanted=1),
            Subscription("team", "news.*", self.story, links=2),
            Subscription("fickle", EVERYTHING, self.story, ends=True),
            Subscription("fickle-team", ADDRESSES[1], self.story, wanted=0, links=2, ends=True),
        ]
        self._archive: list[str] = []

    def made_clients(self, port: int, life: int, end: str) -> list[LivingClient]:
        """All of them, in each life."""

        def chance(name: str) -> random.Random:
            return random.Random(f"{self.seed} {name} {life}")

        publishers = [
            PostingClient(
                f"p{number}.{life}", port, life, ADDRESSES, self.story, chance(f"p{number}"), encode_row
            )
            for number in range(PUBLISHERS)
        ]
        return [*publishers, *(Subscriber(port, life, s, chance(s.name)) for s in self.subscriptions)]

    def settle(self, port: int, life: int) -> None:
        """Everything is taken."""
        self.finish([Subscriber(port, life, s, random.Random(0), last=True) for s in self.subscriptions])
        self._archive = drain(port, ARCHIVE)
        for row in self._archive:
            self.story.notes.record(ARCHIVE, "drained", row=row)

    def check(self, deaths: Sequence[Death], data: Path) -> list[str]:
        """The binding has what its publishers were told, and all others have what it has."""
        requests = self.story.requests
        found = check_delivered(ARCHIVE, self._archive, promises_of(requests, lambda each: each.fate))
        fates = resolved(requests, self._archive)
        found += check_deaths(deaths, (WAY,), lost_transactions(requests, fates))
        places = {row: place for place, row in enumerate(self._archive)}
        for subscription in self.subscriptions:
            found += subscription.complaints
            for lasted in subscription.lasted:
                found += check_lasted(subscription, lasted, requests, fates, places)
        return shortened(found)

    def summary(self) -> str:
        """Requests, and subscriptions."""
        requests = self.story.requests
        lasted = [each for subscription in self.subscriptions for each in subscription.lasted]
        counts = {
            "rows": sum(len(rows) for request in requests for rows in request.rows.values()),
            "transactions": sum(request.transaction for request in requests),
            "requests without an answer": sum(request.fate is Fate.UNKNOWN for request in requests),
            "subscriptions": len(lasted),
            "of these unsubscribed": sum(each.ended is not None for each in lasted),
            "rows taken from them": sum(len(each.taken.rows) for each in lasted),
        }
        return ", ".join(f"{count:,} {words}" for words, count in counts.items())


def promises_of(requests: Iterable[Request], fate: Callable[[Request], Fate]) -> list[Promise]:
    """A promise for each topic of each request."""
    return [
        Promise(f"{request.name} at {address}", rows, fate(request), f"{request.line} {address}")
        for request in requests
        for address, rows in request.rows.items()
    ]


def resolved(requests: Iterable[Request], archive: Iterable[str]) -> dict[str, Fate]:
    """How each request ended; of what nobody was told that is what the archive says, as a whole."""
    there = {*archive}
    return {
        request.name: request.fate
        if request.fate is not Fate.UNKNOWN
        else Fate.COMMITTED
        if any(row in there for rows in request.rows.values() for row in rows)
        else Fate.ABSENT
        for request in requests
    }


def check_lasted(
    subscription: Subscription, lasted: Lasted, requests: Sequence[Request], fates: dict[str, Fate],
    places: dict[str, int],
) -> list[str]:  # fmt: skip
    """The complaints about one subscription. What came to one that has ended may be only a part."""
    taken = lasted.taken
    in_part = lasted.ended is not None
    came = taken.all_came()
    if len(subscription.links) > 1:  # its links take turns
        came.sort(key=lambda row: places.get(row, -1))
    if not in_part:
        left = {*taken.left()}
        came = [row for row in came if row in left]
    promises = []
    for request in requests:
        if lasted.made is None:
            continue
        fate = _fate_in(lasted, request, fates[request.name], lasted.made)
        for address, rows in request.rows.items():
            wanted = subscription.rows_of(address, rows)
            parts = [[row] for row in wanted] if in_part else [wanted] if wanted else []
            promises += [Promise(f"{part[0]} ..", part, fate, f"{request.line} {address}") for part in parts]
    return [*taken.complaints, *check_delivered(taken.queue, came, promises)]


def _fate_in(lasted: Lasted, request: Request, fate: Fate, made: int) -> Fate:
    """Whether what counts was copied to it: it was if it was made before, and has not ended since."""
    assert request.told is not None, "its life is over"
    if fate is Fate.ABSENT or request.told < lasted.asked:
        return Fate.ABSENT
    return Fate.UNKNOWN if lasted.ended is not None or request.sent < made else fate
