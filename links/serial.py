"""RFC 1982 serial numbers of 32 bits (2.8.10), and plain growing integers behind them.

Inside the engine every sequence (transfer-ids, delivery-ids, delivery-counts) is an unbounded integer, so
that ranges and windows are ordinary arithmetic; only the wire sees 32 bits. `extend` finds the integer that a
wire value means.
"""

from typing import Final

SERIAL_BITS: Final = 32
SERIAL_MASK: Final = 0xFFFFFFFF
_HALF: Final = 0x80000000
_ALL: Final = 0x100000000


def wire(number: int) -> int:
    """What the wire says for `number`."""
    return number & SERIAL_MASK


def difference(left: int, right: int) -> int:
    """left - right as serial numbers: from -2^31 to 2^31 - 1."""
    return ((left - right + _HALF) & SERIAL_MASK) - _HALF


def extend(serial: int, near: int) -> int:
    """The integer closest to `near` whose wire value is `serial`; in the middle it is the smaller one."""
    return near + difference(serial, near)


def compare(left: int, right: int) -> int:
    """Negative, 0 or positive: whether `left` comes before, is, or comes after `right` (RFC 1982, 3.2)."""
    return difference(left, right)
