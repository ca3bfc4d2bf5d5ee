"""What one look at a broker brings: its attributes, their series, and a page of each table that is shown."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from amqp_broker.client.settings import parse_url
from amqp_broker.looking.broker_view import Broker, BrokerView, Login, Page
from amqp_broker.looking.figures import Figure, figures
from amqp_broker.looking.listing import Wanted
from amqp_broker.looking.tables import TABLES

PAUSE_S: Final = 2.0
PAUSE_MIN_S: Final = 0.2
PAUSE_MAX_S: Final = 3_600.0


@attrs.frozen
class Reading:
    """One look: `broker` has the attributes of the broker, `pages` a page of each type that was wanted, and
    `took_s` says how long it took.
    """

    broker: Mapping[str, Any]
    figures: list[Figure]
    pages: Mapping[str, Page]
    took_s: float


class Looker:
    """Looks at one broker. The first look connects; a later one connects again where the connection is gone.
    Raises WrongUse where `url` is none. Used by one thread.
    """

    def __init__(
        self, url: str, pause_s: float = PAUSE_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.endpoint = parse_url(url)
        self.pause_s = pause_s
        self.view = BrokerView(Broker("broker", url), clock, pause_s)
        self._clock = clock
        self._login: Login | None = None
        self._due_at = 0.0

    def look(self, wanted: Mapping[str, Wanted]) -> Reading:
        """What is known of the broker, at most one pause old. Raises ClientError, Refused, Busy."""
        begun = self._clock()
        login = self._login
        if login is None:
            login = self._login = Login(self.view.broker, self.endpoint.user, self.endpoint.password, "top")
        broker = self.view.newest(login)
        pages = {
            kind: self.view.page(login, kind, TABLES[kind].attributes, each) for kind, each in wanted.items()
        }
        self._due_at = max([self.view.history.next_at, *(page.holds_until for page in pages.values())])
        return Reading(broker, figures(self.view.history), pages, self._clock() - begun)

    def wait_s(self) -> float:
        """After how long another look finds everything anew."""
        return max(0.0, self._due_at - self._clock())

    def close(self) -> None:
        """Log out."""
        if self._login is not None:
            self._login.close()
