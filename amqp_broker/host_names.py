"""Hosts: by which names a browser may call a server, since a name can be anybody's that leads here (DNS
rebinding); and what counts as one address when something is counted for each of them.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Final

PREFIX_BYTES: Final = 8
"""Of an IPv6 address: one host has all the others."""


def is_local_name(host: str) -> bool:
    """Whether it is an address, or `localhost`: nobody else's page has such an origin by its name alone."""
    if host == "localhost":
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def counted_address(host: str) -> str:
    """An IPv4 address as it is, and the first 64 bits of an IPv6 address."""
    if ":" not in host or "." in host:  # "::ffff:192.0.2.1" is IPv4 on an IPv6 socket
        return host
    try:
        return socket.inet_pton(socket.AF_INET6, host.partition("%")[0])[:PREFIX_BYTES].hex()
    except OSError:
        return host
