"""What one look at a broker brings: its attributes, their series, and a page of each table that is shown."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from amqp_broker.client.settings import parse_url
from amqp_broker.looking.broker_view import Broker, BrokerView, Login, Page
from amqp_broker.looking.figures import Figure, figures
from amqp_broker.looking.limits import SAMPLE_PAUSE_S
from amqp_broker.looking.listing import Wanted
from amqp_broker.looking.tables import TABLES

PAUSE_MIN_S: Final = 0.2
PAUSE_MAX_S: Final = 3_600.0


@attrs.frozen
class Reading:
    """One look: the attributes of the broker, series, and a page of each type that was wanted."""

    broker: Mapping[str, Any]
    figures: list[Figure]
    pages: Mapping[str, Page]


class Looker:
    """Looks at one broker. The first look connects; a later one connects again where the connection is gone.
    Raises WrongUse where `url` is none. Used by one thread.
    """

    def __init__(
        self, url: str, pause_s: float = SAMPLE_PAUSE_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.endpoint = parse_url(url)
        self.pause_s = pause_s
        self.view = BrokerView(Broker("broker", url), clock, pause_s)
        self._login: Login | None = None

    def look(self, wanted: Mapping[str, Wanted]) -> Reading:
        """What is known of the broker, at most one pause old. Raises ClientError, Refused, Busy."""
        login = self._login
        if login is None:
            login = self._login = Login(self.view.broker, self.endpoint.user, self.endpoint.password, "top")
        broker = self.view.newest(login)
        pages = {
            kind: self.view.page(login, kind, TABLES[kind].attributes, each) for kind, each in wanted.items()
        }
        return Reading(broker, figures(self.view.history), pages)

    def close(self) -> None:
        """Log out."""
        if self._login is not None:
            self._login.close()
