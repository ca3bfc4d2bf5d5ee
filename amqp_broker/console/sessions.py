"""Who is logged in: a cookie, the token that every form has to bring back, and logins to brokers.

The cookie is a random key and nothing else; it is HttpOnly and SameSite=Strict, so that no script and no
other site has it. What it opens is here, in memory, and gone with the process.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import attrs

from amqp_broker.console.limits import (
    LOGINS_AT_ONCE,
    LOGINS_OF_ADDRESS,
    SESSION_AGE_S,
    SESSION_IDLE_S,
    SESSIONS_MAX,
)
from amqp_broker.host_names import counted_address
from amqp_broker.looking.broker_view import Login
from amqp_broker.looking.places import Busy, Places

COOKIE: Final = "amqp-console"
SECURE_COOKIE: Final = f"__Host-{COOKIE}"
"""Where browsers come by https: they take it from this host by https only, and nobody else can set it."""
KEY_BYTES: Final = 32


class TooMany(Exception):
    """There are as many sessions as there may be."""


@attrs.define(eq=False)
class Session:
    """One browser. `logins` by the names of brokers; `notice` is shown on its next page, once. `secure`: it
    comes by https.
    """

    key: str
    form_token: str
    begun_at: float
    used_at: float
    secure: bool = False
    logins: dict[str, Login] = attrs.field(factory=dict)
    notice: tuple[str, str] | None = None

    @property
    def cookie(self) -> str:
        """The name of its cookie."""
        return SECURE_COOKIE if self.secure else COOKIE

    def take_over(self, former: Session, but: str) -> None:
        """The logins of the session before this one, but that at a broker where a new one was made. They are
        as old as they were, and end this one.
        """
        logins = {name: login for name, login in former.logins.items() if name != but}
        former.logins = {name: login for name, login in former.logins.items() if name == but}
        if logins:
            self.begun_at = former.begun_at
            self.logins.update(logins)

    def has_token(self, told: str) -> bool:
        """Whether a form is one of ours (and not one of another site's page)."""
        return hmac.compare_digest(self.form_token.encode(), told.encode())

    def close(self) -> None:
        """Log out everywhere."""
        logins, self.logins = self.logins, {}
        for login in logins.values():
            login.close()


class Sessions:
    """All sessions. Safe from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}

    def begin(self, *, secure: bool = False) -> Session:
        """A new one, with a key that nobody had before. Raises TooMany."""
        self.sweep()
        now = self._clock()
        key, token = (secrets.token_urlsafe(KEY_BYTES) for _ in range(2))
        session = Session(key, token, now, now, secure)
        with self._lock:
            if len(self._sessions) >= SESSIONS_MAX:
                raise TooMany(f"there are {SESSIONS_MAX} sessions, the most there may be: log out elsewhere")
            self._sessions[session.key] = session
        return session

    def find(self, key: str | None) -> Session | None:
        """The session of a cookie, which is used by that; None where it is over or never was."""
        with self._lock:
            session = self._sessions.get(key or "")
            if session is None or self._over(session):
                return None
            session.used_at = self._clock()
            return session

    def end(self, session: Session) -> None:
        """Log out."""
        with self._lock:
            self._sessions.pop(session.key, None)
        session.close()

    def sweep(self) -> None:
        """End those whose time is over."""
        with self._lock:
            over = [session for session in self._sessions.values() if self._over(session)]
        for session in over:
            self.end(session)

    def close(self) -> None:
        """End all of them."""
        with self._lock:
            sessions = [*self._sessions.values()]
        for session in sessions:
            self.end(session)

    def _over(self, session: Session) -> bool:
        now = self._clock()
        return now - session.begun_at > SESSION_AGE_S or now - session.used_at > SESSION_IDLE_S


class LoginPlaces:
    """LOGINS_AT_ONCE for all, LOGINS_OF_ADDRESS for each address that browsers come from."""

    def __init__(self) -> None:
        self._all = Places(LOGINS_AT_ONCE)
        self._taken: Counter[str] = Counter()

    @asynccontextmanager
    async def one(self, host: str) -> AsyncIterator[None]:
        """A place as long as the block. Raises Busy."""
        whose = counted_address(host)
        if self._taken[whose] >= LOGINS_OF_ADDRESS:
            raise Busy("others are just logging in: try again")
        self._taken[whose] += 1
        try:
            async with self._all.one():
                yield
        finally:
            self._taken[whose] -= 1
            self._taken += Counter()  # those of 0 go
