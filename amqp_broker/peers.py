"""Who is at the other end of a socket, how many of them have not said so yet, and what one address asks
for.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Final

import attrs

from amqp_broker.certificates import Certificate
from amqp_broker.configuration import ListenerConfig, is_loopback
from amqp_broker.configuration_limits import BrokerLimits
from amqp_broker.host_names import counted_address
from amqp_broker.links import OperationRate
from amqp_broker.version import VERSION

ADDRESSES_MAX: Final = 4_096
"""Rates of addresses that are kept; one that is idle is as good as a new one."""


class AddressRates:
    """One rate of control operations for each address, which its connections share."""

    def __init__(self, limits: Callable[[], BrokerLimits]) -> None:
        """`limits` are those that hold when it is asked."""
        self._limits = limits
        self._told = (0, 0)  # of which all rates are
        self._rates: dict[str, OperationRate] = {}

    def __len__(self) -> int:
        return len(self._rates)

    def of(self, host: str, now: float) -> OperationRate:
        """That of the address; a new one has all of its burst."""
        limits, address = self._limits(), counted_address(host)
        told = limits.address_operations_per_s, limits.address_operations_burst
        if told != self._told:
            self._told = told
            self._rates.clear()
        rate = self._rates.pop(address, None) or OperationRate(*told, now)
        if len(self._rates) >= ADDRESSES_MAX:
            self._rates = {known: one for known, one in self._rates.items() if not one.idle(now)}
        while len(self._rates) >= ADDRESSES_MAX:
            del self._rates[next(iter(self._rates))]  # the one that was asked for longest ago
        self._rates[address] = rate
        return rate


class Admission:
    """Counts the sockets that have not logged in, in all and for each address."""

    def __init__(self, limits: Callable[[], BrokerLimits]) -> None:
        """`limits` are those that hold when it is asked."""
        self._limits = limits
        self._by_address: Counter[str] = Counter()
        self._strangers = 0

    @property
    def strangers(self) -> int:
        """Sockets that have not logged in."""
        return self._strangers

    def refusal(self, host: str) -> tuple[str, str] | None:
        """By which limit one more socket from this address is not taken, and why; or None."""
        limits = self._limits()
        if self._strangers >= limits.login_sockets:
            return "login_sockets", f"{self._strangers} sockets have not logged in"
        count = self._by_address.get(counted_address(host), 0)
        if count >= limits.login_sockets_per_address:
            return "login_sockets_per_address", f"{count} sockets of this address have not logged in"
        return None

    def enter(self, host: str) -> None:
        """Count a socket."""
        self._strangers += 1
        self._by_address[counted_address(host)] += 1

    def leave(self, host: str) -> None:
        """Stop counting a socket that `enter` counted."""
        address = counted_address(host)
        assert self._by_address[address] > 0, "left more often than entered"
        self._strangers -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]


@attrs.define
class PeerInfo:
    """Who connected, and how. `address` is `host:port` for logs; `certificate` is the client's, which TLS has
    verified, or None; `shown_certificate` is the one that this side has shown, as PEM, and `client_ca` what
    the client's was verified by.
    """

    listener: ListenerConfig
    address: str
    host: str
    tls: bool = False
    certificate: Certificate | None = attrs.field(default=None, repr=False)
    shown_certificate: str | None = attrs.field(default=None, repr=False)
    client_ca: str | None = attrs.field(default=None, repr=False)
    operations: OperationRate | None = None
    """Of all connections from its address; None where there is none."""
    _admission: Admission | None = attrs.field(default=None, repr=False)

    @property
    def is_stranger(self) -> bool:
        """Whether it has not been opened yet, and counts among those who have not."""
        return self._admission is not None

    def logged_in(self) -> None:
        """The connection has been opened: it no longer counts as a stranger.  Harmless when called again."""
        admission, self._admission = self._admission, None
        if admission is not None:
            admission.leave(self.host)


def peer_of_stream(listener: ListenerConfig) -> PeerInfo:
    """A PeerInfo for a stream that no listener accepted (embedding, tests)."""
    return PeerInfo(listener, "memory", listener.host if is_loopback(listener.host) else "memory")


@cache
def product_properties(
    product: str | None = None, product_version: str | None = None, node: str | None = None
) -> dict[str, str]:
    """What the broker's open says of the program (2.7.1), by the names that brokers and clients use for it;
    `product` and `product_version` stand there instead of its own, and `node` is who RabbitMQ's clients are
    told that they talk to.
    """
    return {
        "product": product or "amqp-broker",
        "version": product_version or VERSION,
        "platform": f"Python {sys.version_info.major}.{sys.version_info.minor} on {sys.platform}",
        **({} if node is None else {"node": node}),
    }
