"""What is known of one broker: logins, each with its own connection, and what all who look share.

    Login       one user's connection; it comes back by itself after a restart of the broker
    BrokerView  tables, pages and samples, read by one login for all of them, with pauses

Who may read one table of `$management` may read all (the right `manage-read`). A Login has proved it, and
proves it again before it gets anything that others have read (`BrokerView.admit`): whose connection was
closed has to be let in again, and who may look no more is told so after PROVED_S at most. What has rights of
its own, messages and the journal, is never shared.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

import attrs

from amqp_broker.client.blocking import BlockingConnection, connect
from amqp_broker.client.blocking_management import NODE_TYPE, ManagementRequests, Refused
from amqp_broker.client.errors import ClientError, ConnectionGone, LinkRefused, LoginRefused, MessageRefused
from amqp_broker.looking.limits import (
    ASK_S,
    ENTITY_HISTORIES_MAX,
    ENTITY_SAMPLES_MAX,
    FAILURE_HELD_S,
    FAILURE_SLOW_S,
    PAGES_AT_ONCE,
    PAGES_OF_LOGIN,
    PLACE_WAIT_S,
    PROVED_S,
    SAMPLE_PAUSE_S,
    SAMPLES_MAX,
    SHARE,
    TABLE_PAUSE_MAX_S,
    TABLE_PAUSE_S,
    WATCHED_S,
)
from amqp_broker.looking.listing import Listing, Wanted, listed
from amqp_broker.looking.places import Busy, Places
from amqp_broker.looking.rates import PER_SECOND, Row, add_rates, grown

THE_BROKER: Final = ("broker", "self")


@attrs.frozen
class Broker:
    """A broker that can be looked at, by its name in addresses of pages."""

    name: str
    url: str = attrs.field(repr=False)


class Login:
    """A user at a broker. Raises ClientError, and Refused where the user may not `manage-read`.

    The password stays here as long as the session, for a connection that has to be made again.
    """

    def __init__(
        self, broker: Broker, user: str | None, password: str | None, program: str = "console"
    ) -> None:
        self.broker = broker
        self.user = user
        self._program = program
        self.places = Places(PAGES_OF_LOGIN)
        self._password = password
        self._closed = False
        self._lock = threading.RLock()
        self._proved_at = 0.0
        self._connect()

    def _connect(self) -> None:
        name = f"{self._program}-{secrets.token_hex(4)}"
        self._connection = connect(
            self.broker.url, timeout_s=ASK_S, container_id=name, user=self.user, password=self._password
        )
        self._asks = ManagementRequests(self._connection, ASK_S)
        try:
            self._asks.ask("READ", "broker", identity="self")
            self._proved_at = time.monotonic()
            self._check_open()  # whoever closed it meanwhile did not wait for this
        except BaseException:
            self._connection.close()
            raise

    def _check_open(self) -> None:
        if self._closed:
            raise ConnectionGone("this session was logged out")

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Alone with the connection. Raises Busy: another page may be waiting for the broker."""
        if not self._lock.acquire(timeout=PLACE_WAIT_S):
            raise Busy("another page of this login is waiting for the broker: try again")
        try:
            yield
        finally:
            self._lock.release()

    @property
    def connection(self) -> BlockingConnection:
        """The connection, made anew where it was gone. Raises Busy."""
        with self._held():
            self._check_open()
            if self._connection.gone is not None:
                self._connect()
            return self._connection

    def prove(self) -> None:
        """See that this user still gets in and may look. Raises ClientError, Refused, Busy."""
        if self.connection and time.monotonic() - self._proved_at > PROVED_S:
            self.ask("READ", "broker", identity="self")
            self._proved_at = time.monotonic()

    def ask(self, operation: str, kind: str, body: Any = None, **told: Any) -> Any:
        """One request to `$management` (ManagementRequests.ask)."""
        return self._asking().ask(operation, kind, body, **told)

    def all(self, kind: str, *names: str) -> list[Row]:
        """A row for each entity of a type."""
        found, rows = self._asking().all(kind, *names)
        return [dict(zip(found, row, strict=True)) for row in rows]

    def _asking(self) -> ManagementRequests:
        with self._held():
            if self.connection and self._asks.gone:  # the links, but not the connection
                self._asks = ManagementRequests(self._connection, ASK_S)
            return self._asks

    def close(self) -> None:
        """Logged out: nothing is asked by it any more."""
        self._closed = True
        # Who is connecting just now sees that it is closed, and closes what it made.
        with suppress(Busy, ClientError), self._held():
            self._password = None
            self._connection.close()


def pause_s(took_s: float, least_s: float | None = None) -> float:
    """How long to wait after a look that took so long, so that looking stays within SHARE: TABLE_PAUSE_S at
    least, or so long.
    """
    return max(TABLE_PAUSE_S if least_s is None else least_s, min(took_s / SHARE, TABLE_PAUSE_MAX_S))


@attrs.frozen
class Table:
    """What was read of one type: its rows, when (monotonic), and how long the broker took."""

    rows: list[Row]
    read_at: float
    took_s: float

    def pause_s(self) -> float:
        """How long it holds at least, so that looking stays within its share."""
        return pause_s(self.took_s)


@attrs.frozen
class Page:
    """One page of a type: what was wanted, what there is of it, when it was read, and until when it holds.
    Its rates are those since `former`.
    """

    wanted: Wanted
    listing: Listing
    read_at: float
    holds_until: float
    former: Page | None = None


@attrs.frozen
class Sample:
    """The attributes of one entity at one time (seconds of the Unix epoch)."""

    time: float
    values: Row


class History:
    """Samples of one entity, the newest ones."""

    def __init__(self, most: int) -> None:
        self.samples: deque[Sample] = deque(maxlen=most)
        self.next_at = 0.0

    def copy(self) -> History:
        """As it is now: another thread may add a sample at any time."""
        made = History(self.samples.maxlen or 0)
        made.samples.extend(tuple(self.samples))
        return made

    def rate(self, name: str) -> list[float | None]:
        """By how much a count grew a second before each sample; None where that is not known: at the first
        one, and where the broker started anew.
        """
        found: list[float | None] = []
        before: Sample | None = None
        for sample in self.samples:
            more = None if before is None else grown(before.values.get(name), sample.values.get(name))
            seconds = 0.0 if before is None else sample.time - before.time
            found.append(None if more is None or seconds <= 0 else more / seconds)
            before = sample
        return found

    def ratio(self, over: str, under: str) -> list[float | None]:
        """How much `over` grew for each one of `under` between two samples."""
        pairs = zip(self.rate(over), self.rate(under), strict=True)
        return [None if a is None or not b else a / b for a, b in pairs]

    def values(self, name: str) -> list[float | None]:
        """What an attribute was."""
        return [sample.values.get(name) for sample in self.samples]

    def times(self) -> list[float]:
        """When."""
        return [sample.time for sample in self.samples]


class BrokerView:
    """Tables and samples of one broker. Safe from any thread; one reads, and the others get what is there."""

    def __init__(
        self, broker: Broker, clock: Callable[[], float] = time.monotonic, pause_s: float = SAMPLE_PAUSE_S
    ) -> None:
        self.broker = broker
        self._clock = clock
        self._pause_s = pause_s
        self._lock = threading.Lock()
        self._tables: dict[str, Table] = {}
        self._pages: dict[str, Page] = {}
        self._reading: dict[str, threading.Lock] = {}
        self._stale: set[str] = set()
        self._histories: OrderedDict[tuple[str, str], History] = OrderedDict()
        self.history = History(SAMPLES_MAX)
        """Of the broker itself."""
        self.places = Places(PAGES_AT_ONCE)
        self._looked: tuple[float, Login] | None = None
        self._failed: tuple[float, str] | None = None

    def log_in(self, user: str | None, password: str | None) -> Login:
        """A user's own connection. Raises as Login does, and at once where the broker just did not answer."""
        with self._asked():
            return Login(self.broker, user, password)

    def admit(self, login: Login) -> None:
        """Before anything is shown to this login: it is still one. Raises ClientError, Refused, Busy."""
        with self._asked():
            login.prove()

    @contextmanager
    def _asked(self) -> Iterator[None]:
        """What is asked of the broker: a failure that took long is remembered for a moment, so that not
        everybody waits for the same.
        """
        begun, failed = self._clock(), self._failed
        if failed is not None and begun < failed[0]:
            raise ClientError(failed[1])
        try:
            yield
        except (LoginRefused, LinkRefused, MessageRefused):
            raise  # it answered
        except ClientError as error:
            now = self._clock()
            if now - begun >= FAILURE_SLOW_S:
                self._failed = now + FAILURE_HELD_S, str(error)
            raise

    def table(self, login: Login, kind: str, names: tuple[str, ...]) -> Table:
        """All entities of a type with these attributes, as they were a moment ago. What counts of COUNTED
        also has its rate (`sent/s`), None where it is not known. Raises ClientError, Refused, Busy.
        """
        self._looked_by(login)
        with self._lock:
            reading = self._reading.setdefault(kind, threading.Lock())
        known = self._tables.get(kind)
        # Whoever finds somebody reading takes what is there, if there is something.
        if not reading.acquire(timeout=PLACE_WAIT_S if known is None else 0):
            if known is None:
                raise Busy(f"somebody is reading the table of each {kind} already: try again")
            return known
        try:
            known = self._tables.get(kind)
            fresh = known is not None and self._clock() - known.read_at < known.pause_s()
            if known is None or kind in self._stale or not fresh:
                known = self._tables[kind] = self._read(login, kind, names, known)
            return known
        finally:
            reading.release()

    def _read(self, login: Login, kind: str, names: tuple[str, ...], before: Table | None) -> Table:
        self._stale.discard(kind)
        begun = self._clock()
        try:
            with self._asked():
                rows = login.all(kind, "identity", *names)
        except BaseException:
            self._stale.add(kind)
            raise
        now = self._clock()
        if before is not None:
            add_rates(rows, before.rows, now - before.read_at)
        return Table(rows, now, now - begun)

    def age_s(self, table: Table | Page) -> float:
        """How long ago it was read."""
        return self._clock() - table.read_at

    def page(self, login: Login, kind: str, names: tuple[str, ...], wanted: Wanted) -> Page:
        """One page, for which the broker puts its entities in order, so that it is asked for no others. For
        the order of a rate, which a broker does not know, all are read (`table`), and so they are where its
        version knows no order. Rows have rates where the
        page before had them, too. Used by one thread. Raises ClientError, Refused, Busy.
        """
        if wanted.sort.endswith(PER_SECOND):
            return self._page_of_table(login, kind, names, wanted)
        known = self._pages.get(kind)
        if known is None or known.wanted != wanted or self._clock() >= known.holds_until:
            found = self._read_page(login, kind, names, wanted, known)
            if found is None:
                return self._page_of_table(login, kind, names, wanted)
            known = self._pages[kind] = found
        return known

    def _page_of_table(self, login: Login, kind: str, names: tuple[str, ...], wanted: Wanted) -> Page:
        table = self.table(login, kind, names)
        return Page(wanted, listed(table.rows, wanted, ()), table.read_at, table.read_at + table.pause_s())

    def _read_page(
        self, login: Login, kind: str, names: tuple[str, ...], wanted: Wanted, before: Page | None
    ) -> Page | None:  # fmt: skip
        """None where the broker is of a version that knows no order."""
        self._looked_by(login)
        begun = self._clock()
        told = self._asked_page(login, kind, names, wanted)
        if "found" not in told:
            return None
        pages = max(1, -(-told["found"] // wanted.size))
        page = min(wanted.page, pages)
        if page < wanted.page:  # there were more a moment ago
            told = self._asked_page(login, kind, names, attrs.evolve(wanted, page=page))
        now = self._clock()
        rows = [dict(zip(told["attributeNames"], row, strict=True)) for row in told["results"]]
        if before is None or now - before.read_at >= self._pause_s:
            former = None if before is None else attrs.evolve(before, former=None)
        else:  # another order a moment later: a rate over so short a time says nothing
            former = before.former
        if former is None:
            add_rates(rows, (), 0.0)
        else:
            add_rates(rows, former.listing.rows, now - former.read_at)
        listing = Listing(rows, told["found"], page, pages)
        return Page(wanted, listing, now, now + pause_s(now - begun, self._pause_s), former)

    def _asked_page(self, login: Login, kind: str, names: tuple[str, ...], wanted: Wanted) -> Any:
        with self._asked():
            return login.ask(
                "QUERY", NODE_TYPE, {"attributeNames": ["identity", *names]}, entityType=kind,
                offset=(wanted.page - 1) * wanted.size, count=wanted.size, orderBy=wanted.sort or "identity",
                contains=wanted.words or None,
            )  # fmt: skip

    def forget(self) -> None:
        """Whatever was read holds no longer; rates are still those since then."""
        self._stale.update(self._tables)
        self._pages = {kind: attrs.evolve(page, holds_until=0.0) for kind, page in self._pages.items()}
        self.history.next_at = 0.0

    def changed(self, *kinds: str) -> None:
        """Somebody did something: these are read anew at the next look."""
        self._stale.update(kinds)

    def entity(self, login: Login, kind: str, identity: str) -> tuple[Row, History]:
        """All attributes of one entity as they are now, and what they were at former looks."""
        self._looked_by(login)
        with self._asked():
            values = login.ask("READ", kind, identity=identity)
        with self._lock:
            history = self._histories.pop((kind, identity), None) or History(ENTITY_SAMPLES_MAX)
            self._histories[kind, identity] = history
            while len(self._histories) > ENTITY_HISTORIES_MAX:
                self._histories.popitem(last=False)
            if self._clock() >= history.next_at:
                history.next_at = self._clock() + SAMPLE_PAUSE_S / 2
                history.samples.append(Sample(time.time(), values))
            return values, history.copy()

    def sample(self) -> None:
        """Take one of the broker, if somebody has looked lately and it is time, by who looked last. Raises as
        Login does.
        """
        looked = self._looked
        now = self._clock()
        if looked is None or now - looked[0] > WATCHED_S or now < self.history.next_at:
            return
        try:
            self._sample_by(looked[1])
        except (ClientError, Refused, Busy):
            self._looked = None  # the next who looks, may
            raise

    def _sample_by(self, login: Login) -> None:
        kind, identity = THE_BROKER
        now = self._clock()
        with self._asked():
            values = login.ask("READ", kind, identity=identity)
        self.history.next_at = now + pause_s(self._clock() - now, self._pause_s)
        self.history.samples.append(Sample(time.time(), values))

    def _looked_by(self, login: Login) -> None:
        self._looked = self._clock(), login

    def newest(self, login: Login) -> Mapping[str, Any]:
        """The broker's attributes, at most one pause old."""
        self._looked_by(login)
        if self._clock() >= self.history.next_at:
            self._sample_by(login)
        return self.history.samples[-1].values
