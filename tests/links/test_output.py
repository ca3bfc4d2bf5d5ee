"""The output queue."""

from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.links.output import Output, Piece


@given(st.lists(st.sampled_from([1, 100, 5_000, 200_000]), max_size=12))
def test_nothing_is_lost(sizes: list[int]) -> None:
    """What is taken is what was written, in order; a large piece is not copied."""
    output = Output(262_144)
    written: list[Piece] = [bytes((index,)) * size for index, size in enumerate(sizes)]
    for chunk in written:
        output.write(chunk)
    assert output.size_bytes == sum(sizes)
    pieces = output.take()
    assert b"".join(pieces) == b"".join(written)
    assert all(piece is chunk for piece, chunk in zip(pieces, written, strict=True))
    assert output.size_bytes == 0 and output.take() == []


def test_nothing_follows_close() -> None:
    """What was written before leaves, nothing after (2.4.3)."""
    output = Output(100)
    output.write(b"close")
    output.close()
    output.write(b"late")
    assert output.take() == [b"close"]
