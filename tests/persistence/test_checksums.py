"""The checksum of what is stored: whoever computes it, the numbers are zlib's."""

from __future__ import annotations

import zlib

from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.persistence.checksums import crc32


@given(st.binary(max_size=20_000), st.integers(0, 2**32 - 1), st.integers(0, 64))
def test_the_numbers_are_those_of_zlib(data: bytes, start: int, skipped: int) -> None:
    """A store is read on another machine, too, whose library is another one."""
    part = memoryview(data)[skipped:]  # from any place in memory
    assert crc32(part, start) == zlib.crc32(part, start)
    assert crc32(data) == zlib.crc32(data)
