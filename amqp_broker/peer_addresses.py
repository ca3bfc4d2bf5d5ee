"""What counts as one address when something is counted for each address of peers."""

from __future__ import annotations

import socket
from typing import Final

PREFIX_BYTES: Final = 8
"""Of an IPv6 address: one host has all the others."""


def counted_address(host: str) -> str:
    """An IPv4 address as it is, and the first 64 bits of an IPv6 address."""
    if ":" not in host or "." in host:  # "::ffff:192.0.2.1" is IPv4 on an IPv6 socket
        return host
    try:
        return socket.inet_pton(socket.AF_INET6, host.partition("%")[0])[:PREFIX_BYTES].hex()
    except OSError:
        return host
