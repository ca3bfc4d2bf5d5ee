"""The output queue."""

from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.links.output import JOIN_BYTES, Output


@given(st.lists(st.sampled_from([1, 100, 5_000, JOIN_BYTES - 1, JOIN_BYTES, 200_000]), max_size=12))
def test_nothing_is_lost_by_joining(sizes: list[int]) -> None:
    """What is taken is what was written, in order, in fewer pieces, and no piece is empty."""
    output = Output(262_144)
    written = b""
    for index, size in enumerate(sizes):
        chunk = bytes((index,)) * size
        output.write(chunk)
        written += chunk
    assert output.size_bytes == len(written)
    pieces = output.take()
    assert b"".join(pieces) == written
    assert len(pieces) <= max(1, len(sizes)) and all(pieces)
    assert output.size_bytes == 0 and output.take() == []


def test_a_large_chunk_is_not_copied() -> None:
    """Beyond the bound, what is large is handed on as it is."""
    output = Output(1)
    large = b"x" * JOIN_BYTES
    for chunk in (b"a", b"b", large, b"c"):
        output.write(chunk)
    pieces = output.take()
    assert pieces == [b"ab", large, b"c"] and pieces[1] is large


def test_nothing_follows_close() -> None:
    """What was written before leaves, nothing after (2.4.3)."""
    output = Output(100)
    output.write(b"close")
    output.close()
    output.write(b"late")
    assert output.take() == [b"close"]
