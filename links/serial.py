"""RFC 1982 serial numbers of 32 bits (2.8.10), and plain growing integers behind them.

Inside the engine every sequence (transfer-ids, delivery-ids, delivery-counts) is an unbounded integer, so
that ranges and windows are ordinary arithmetic; only the wire sees 32 bits. `extend` finds the integer that a
wire value means.
"""

from typing import Final

SERIAL_MASK: Final = 0xFFFFFFFF
_HALF: Final = 0x80000000


def difference(left: int, right: int) -> int:
    """left - right as serial numbers: from -2^31 to 2^31 - 1."""
    return ((left - right + _HALF) & SERIAL_MASK) - _HALF


def extend(serial: int, near: int) -> int:
    """The integer closest to `near` whose wire value is `serial`; in the middle it is the smaller one."""
    return near + difference(serial, near)
