"""What a browser calls a server by: a name can be anybody's that leads here (DNS rebinding)."""

from __future__ import annotations

import ipaddress


def is_local_name(host: str) -> bool:
    """Whether it is an address, or `localhost`: nobody else's page has such an origin by its name alone."""
    if host == "localhost":
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
