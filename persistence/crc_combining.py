"""The CRC of octets behind others, from the CRCs of both and no octet of either.

    crc32(b, s) == combined(s, crc32(b), len(b))        s: any start value, or the CRC of what stands before b

So a body whose octets passed one by one has its seeded checksum (directory.py) although its segment's number
was not known then. A CRC is a polynomial over GF(2): octets behind it multiply it by a power of x.
"""

from __future__ import annotations

from typing import Final

_POLYNOMIAL: Final = 3_988_292_384  # of zlib's crc32, the highest power of x in the lowest bit
_ONE: Final = 1 << 31
_BITS: Final = 32


def _product(a: int, b: int) -> int:
    """a times b, modulo the polynomial."""
    bit = _ONE
    product = 0
    while True:
        if a & bit:
            product ^= b
            if not a & (bit - 1):
                return product
        bit >>= 1
        b = (b >> 1) ^ _POLYNOMIAL if b & 1 else b >> 1


def _squares() -> tuple[int, ...]:
    """x to the power of 1, 2, 4, 8 and so on; behind the last one they begin again."""
    powers = [1 << 30]
    while len(powers) < _BITS:
        powers.append(_product(powers[-1], powers[-1]))
    return tuple(powers)


_POWERS: Final = _squares()
_OCTET: Final = 3  # x to the power of 8 is the square of the square of the square of x


def combined(before: int, crc: int, size: int) -> int:
    """The CRC of `size` octets, whose own is `crc`, where `before` is the CRC of what stands before them."""
    power = _ONE
    at = _OCTET
    while size:
        if size & 1:
            power = _product(_POWERS[at % _BITS], power)
        size >>= 1
        at += 1
    return _product(power, before) ^ crc
