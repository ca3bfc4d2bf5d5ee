"""Serial numbers of 32 bits (RFC 1982) and the integers behind them."""

from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.links.serial import difference, extend

serials = st.integers(0, 2**32 - 1)
steps = st.integers(-(2**31) + 1, 2**31 - 1)


@given(serials, steps)
def test_difference_undoes_addition(serial: int, step: int) -> None:
    """What is added to a serial number is the difference, also across 2^32."""
    assert difference((serial + step) % 2**32, serial) == step


@given(serials)
def test_the_farthest_point_counts_as_before(serial: int) -> None:
    """Half of the circle away is undefined in RFC 1982; here it is behind."""
    assert difference((serial + 2**31) % 2**32, serial) == -(2**31)


@given(st.integers(0, 2**70), steps)
def test_extend_finds_the_integer_that_was_meant(near: int, step: int) -> None:
    """A number and its wire value belong together as long as they are within 2^31 of what is known."""
    assert extend((near + step) % 2**32, near) == near + step
