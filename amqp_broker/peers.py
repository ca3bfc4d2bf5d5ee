"""Who is at the other end of a socket, and how many of them have not said so yet."""

from __future__ import annotations

from collections import Counter

import attrs

from amqp_broker.configuration_limits import BrokerLimits
from amqp_broker.configuration_tables import ListenerConfig, is_loopback


class Admission:
    """Counts the sockets that have not logged in, in all and for each address."""

    def __init__(self, limits: BrokerLimits) -> None:
        self._most = limits.login_sockets
        self._most_per_address = limits.login_sockets_per_address
        self._by_address: Counter[str] = Counter()
        self._strangers = 0

    @property
    def strangers(self) -> int:
        """Sockets that have not logged in."""
        return self._strangers

    def refusal(self, host: str) -> str | None:
        """Why one more socket from this address is not taken, or None."""
        if self._strangers >= self._most:
            return f"{self._strangers} sockets have not logged in (login_sockets)"
        if self._by_address[host] >= self._most_per_address:
            count = self._by_address[host]
            return f"{count} sockets of this address have not logged in (login_sockets_per_address)"
        return None

    def enter(self, host: str) -> None:
        """Count a socket."""
        self._strangers += 1
        self._by_address[host] += 1

    def leave(self, host: str) -> None:
        """Stop counting a socket that `enter` counted."""
        assert self._by_address[host] > 0, "left more often than entered"
        self._strangers -= 1
        self._by_address[host] -= 1
        if not self._by_address[host]:
            del self._by_address[host]


@attrs.define
class PeerInfo:
    """Who connected, and how.  `address` is `host:port` for logs; `certificate_name` is proved by TLS, or
    None.
    """

    listener: ListenerConfig
    address: str
    host: str
    tls: bool = False
    certificate_name: str | None = None
    _admission: Admission | None = attrs.field(default=None, repr=False)

    def logged_in(self) -> None:
        """The connection has been opened: it no longer counts as a stranger.  Harmless when called again."""
        admission, self._admission = self._admission, None
        if admission is not None:
            admission.leave(self.host)


def peer_of_stream(listener: ListenerConfig, name: str = "memory") -> PeerInfo:
    """A PeerInfo for a stream that no listener accepted (embedding, tests)."""
    return PeerInfo(listener, name, listener.host if is_loopback(listener.host) else "memory")
