"""What a client says of itself, and whom it calls."""

from __future__ import annotations

import ipaddress
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import attrs

from amqp_broker.client.errors import WrongUse

PORTS: Final = {"amqp": 5672, "amqps": 5671}
MEBIBYTE: Final = 1_048_576
IDLE_TIME_OUT_MS: Final = 30_000  # what the broker announces; both sides enforce twice of it


@attrs.frozen
class Endpoint:
    """The parts of `amqp://USER:PASSWORD@HOST:PORT`."""

    host: str
    port: int
    tls: bool
    user: str | None = None
    password: str | None = attrs.field(default=None, repr=False)
    channel: Any = attrs.field(default=None, repr=False, eq=False)
    """The TLS connection (`ssl.SSLObject`), to which a login is bound where both sides can."""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'amqps' if self.tls else 'amqp'}://{host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether nobody can listen on the way."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_url(url: str) -> Endpoint:
    """The endpoint that a URL names. Raises WrongUse."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = 0
    more = parts.path not in ("", "/") or parts.query or parts.fragment
    if parts.scheme not in PORTS or not parts.hostname or port == 0 or more:
        # The URL itself may hold a password.
        raise WrongUse(f"expected a URL amqp://HOST:PORT or amqps://HOST:PORT, found {_without_user(url)!r}")
    return Endpoint(
        parts.hostname,
        PORTS[parts.scheme] if port is None else port,
        parts.scheme == "amqps",
        None if parts.username is None else unquote(parts.username),
        None if parts.password is None else unquote(parts.password),
    )


def _without_user(url: str) -> str:
    before, at, after = url.rpartition("@")
    return f"{before.split('//')[0]}//...@{after}" if at else after


@attrs.frozen(kw_only=True)
class ClientSettings:
    """Everything of a client that both shells and the core want to know. Times in the units of the names."""

    container_id: str
    """Who we are to the peer (2.7.1): check-backs prefer the container that put a half message."""
    user: str | None = None
    """None logs in as ANONYMOUS."""
    password: str | None = attrs.field(default=None, repr=False)
    token: str | None = attrs.field(default=None, repr=False)
    """Proves the user instead of a password: a bearer token, by OAUTHBEARER or XOAUTH2."""
    sasl: bool = True
    """False speaks the bare AMQP header, without a login."""
    plain_without_tls: bool = False
    """Whether a password or token may be sent in the clear; on loopback it may anyway."""
    hostname: str | None = None
    """The virtual host of the open, and of SASL; None is the host that was called."""
    max_frame_size_bytes: int = 65_536
    max_message_bytes: int = 16 * MEBIBYTE
    idle_time_out_ms: int = IDLE_TIME_OUT_MS
    """Announced; a peer that is silent for twice as long is gone (2.4.5)."""
    open_timeout_s: float = 10.0
    """From the connection to the peer's open."""
    close_timeout_s: float = 5.0
    """How long the peer's close is waited for after ours."""
