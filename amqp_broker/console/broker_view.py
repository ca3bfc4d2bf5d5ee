"""What the console knows of one broker: logins, each with its own connection, and what all who look share.

    Login       one user's connection; it comes back by itself after a restart of the broker
    BrokerView  tables and samples, read by one login for all of them, with pauses

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
from typing import Any, Final, TypeVar

import attrs

from amqp_broker.client.blocking import BlockingConnection, connect
from amqp_broker.client.blocking_management import ManagementRequests, Refused
from amqp_broker.client.errors import ClientError, ConnectionGone, LinkRefused, LoginRefused, MessageRefused
from amqp_broker.console.limits import (
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
from amqp_broker.console.places import Busy, Places

T = TypeVar("T")
Row = dict[str, Any]

PER_SECOND: Final = "/s"
COUNTED: Final = frozenset(("arrived", "sent", "accepted", "received", "posted", "copied", "returned"))
"""Counts since the broker started; of these a table also has how many there were a second."""
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

    def __init__(self, broker: Broker, user: str | None, password: str | None) -> None:
        self.broker = broker
        self.user = user
        self.places = Places(PAGES_OF_LOGIN)
        self._password = password
        self._closed = False
        self._lock = threading.RLock()
        self._proved_at = 0.0
        self._connect()

    def _connect(self) -> None:
        name = f"console-{secrets.token_hex(4)}"
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


@attrs.frozen
class Table:
    """What was read of one type: its rows, when (monotonic), and how long the broker took."""

    rows: list[Row]
    read_at: float
    took_s: float

    def pause_s(self) -> float:
        """How long it holds at least, so that looking stays within its share."""
        return min(max(TABLE_PAUSE_S, self.took_s / SHARE), TABLE_PAUSE_MAX_S)


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
            grown = None if before is None else _grown(before.values.get(name), sample.values.get(name))
            seconds = 0.0 if before is None else sample.time - before.time
            found.append(None if grown is None or seconds <= 0 else grown / seconds)
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


def _grown(before: Any, now: Any) -> float | None:
    if not isinstance(before, int | float) or not isinstance(now, int | float) or now < before:
        return None
    return now - before


class BrokerView:
    """Tables and samples of one broker. Safe from any thread; one reads, and the others get what is there."""

    def __init__(self, broker: Broker, clock: Callable[[], float] = time.monotonic) -> None:
        self.broker = broker
        self._clock = clock
        self._lock = threading.Lock()
        self._tables: dict[str, Table] = {}
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
            _add_rates(rows, before, now)
        return Table(rows, now, now - begun)

    def age_s(self, table: Table) -> float:
        """How long ago it was read."""
        return self._clock() - table.read_at

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
        took_s = self._clock() - now
        self.history.next_at = now + max(SAMPLE_PAUSE_S, took_s / SHARE)
        self.history.samples.append(Sample(time.time(), values))

    def _looked_by(self, login: Login) -> None:
        self._looked = self._clock(), login

    def newest(self, login: Login) -> Mapping[str, Any]:
        """The broker's attributes, at most one pause old."""
        self._looked_by(login)
        if self._clock() >= self.history.next_at:
            self._sample_by(login)
        return self.history.samples[-1].values


def _add_rates(rows: list[Row], before: Table, now: float) -> None:
    former = {row["identity"]: row for row in before.rows}
    seconds = now - before.read_at
    counted = [name for name in COUNTED if rows and name in rows[0]]
    for row in rows:
        old = former.get(row["identity"])
        for name in counted:
            grown = None if old is None else _grown(old[name], row[name])
            row[name + PER_SECOND] = None if grown is None else grown / seconds
