"""The grammar of addresses and patterns."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.addresses import Address, AddressError, parse_address, parse_pattern

SEGMENT = st.text(st.sampled_from("abé-_/ "), min_size=1, max_size=4).map(lambda s: f"x{s}x")
NAME = st.lists(SEGMENT, min_size=1, max_size=5).map(".".join)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, "must be a string, but is NoneType"),
        (b"queue", "must be a string, but is bytes"),
        ("", "empty"),
        ("a\0b", "unprintable character U+0000 at position 1"),
        ("a\n", "unprintable character U+000A at position 1"),
        ("a\u2028b", "U+2028"),
        ("\ud800", "U+D800"),
        ("\u202eevil", "U+202E"),
        ("a" * 256, "more than 255 bytes"),
        ("é" * 128, "256 bytes of UTF-8"),
        ("a" * 100_000, "more than 255 bytes"),
        (" a", "space"),
        ("a ", "space"),
        ("a.*", "'*'"),
        ("$", "names nothing"),
    ],
    ids=range(15),
)
def test_a_bad_address_is_told_what_is_wrong(text: object, complaint: str) -> None:
    """The error says what is wrong, and stays short whatever the peer sent."""
    with pytest.raises(AddressError, match=re.escape(complaint)) as caught:
        parse_address(text)
    message = str(caught.value)
    assert len(message) < 600
    assert message.isprintable()


@pytest.mark.parametrize(
    "text", ["a", "a" * 255, "é" * 127, "orders.new", "a b", "/queue/x", "queue://x", "..", "a;b"]
)
def test_ordinary_names_are_addresses(text: str) -> None:
    """What clients use as names is taken as it is; no name is ever a path or has parts that are removed."""
    assert parse_address(text) == Address(text, reserved=False)


def test_a_dollar_in_front_is_the_brokers() -> None:
    """`$management` is reserved, a dollar elsewhere is a character."""
    assert parse_address("$management") == Address("$management", reserved=True)
    assert not parse_address("price.$").reserved


def test_a_configured_length_is_kept() -> None:
    """`address_bytes` counts bytes, not characters."""
    assert parse_address("é" * 5, max_bytes=10).name == "é" * 5
    with pytest.raises(AddressError, match="more than 10"):
        parse_address("é" * 6, max_bytes=10)


@given(st.text(max_size=300))
def test_parsing_any_text_gives_the_same_text_or_an_address_error(text: str) -> None:
    """Total, and the identity on what it accepts: the same node for the same address everywhere."""
    try:
        address = parse_address(text)
    except AddressError:
        return
    assert address.name == text
    assert len(text.encode()) <= 255
    assert text.isprintable()


@pytest.mark.parametrize(
    "text", ["", "a*", "*.a", "a.*.b", "***", "a.***", "**.a", "a**", "a\0.*", None, "a" * 256]
)
def test_a_bad_pattern_is_refused(text: object) -> None:
    """A wildcard stands alone in the last segment."""
    with pytest.raises(AddressError):
        parse_pattern(text)


@given(NAME)
def test_an_exact_pattern_means_its_own_name_only(name: str) -> None:
    """Every address is a pattern for itself."""
    pattern = parse_pattern(name)
    assert pattern.exact
    assert pattern.matches(name)
    assert not pattern.matches(name + "x")
    assert not pattern.matches(name + ".x")


@given(st.lists(SEGMENT, min_size=1, max_size=4), st.lists(SEGMENT, max_size=4))
def test_wildcards_agree_with_counting_segments(prefix: list[str], name: list[str]) -> None:
    """`prefix.*` is one segment more than the prefix, `prefix.**` at least one."""
    text, joined = ".".join(prefix), ".".join(name) or "x"
    segments = joined.split(".")
    below = segments[: len(prefix)] == prefix and len(segments) > len(prefix)
    assert parse_pattern(f"{text}.**").matches(joined) is below
    assert parse_pattern(f"{text}.*").matches(joined) is (below and len(segments) == len(prefix) + 1)


@given(st.lists(SEGMENT, min_size=1, max_size=4), SEGMENT, SEGMENT)
def test_wildcards_match_below_their_prefix(prefix: list[str], one: str, two: str) -> None:
    """What stands below the prefix is matched, the prefix itself and its namesakes are not."""
    text = ".".join(prefix)
    star, stars = parse_pattern(f"{text}.*"), parse_pattern(f"{text}.**")
    assert star.matches(f"{text}.{one}")
    assert stars.matches(f"{text}.{one}")
    assert not star.matches(f"{text}.{one}.{two}")
    assert stars.matches(f"{text}.{one}.{two}")
    for other in (text, f"{text}.", text + one, f"{text}{one}.{two}"):
        assert not star.matches(other)
        assert not stars.matches(other)


def test_wildcards_alone_leave_the_brokers_nodes_closed() -> None:
    """`**` is every name, but `$management` has to be named."""
    assert parse_pattern("**").matches("a.b")
    assert parse_pattern("*").matches("a")
    assert not parse_pattern("*").matches("a.b")
    assert not parse_pattern("**").matches("$management")
    assert not parse_pattern("*").matches("$management")
    assert parse_pattern("$management").matches("$management")


def test_one_pattern_includes_another_where_it_means_all_that_the_other_does() -> None:
    """Every pair: by the names, some of which no list would have."""
    texts = ["a", "a.b", "a.*", "a.**", "a.b.*", "a.b.**", "ab.*", "*", "**", "$management", "$x.*", "$x.**"]
    names = ["a", "a.b", "a.b.c", "a.b.c.d", "a.c", "a.c.d", "ab", "ab.c", "b", "b.c"]
    names += ["$management", "$x.a", "$x.a.b"]
    for one in map(parse_pattern, texts):
        for other in map(parse_pattern, texts):
            means = all(one.matches(name) for name in names if other.matches(name))
            assert one.includes(other) is means, (one.text, other.text)
