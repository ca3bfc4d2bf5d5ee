"""Short text of any value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.frames import shorten
from amqp_broker.frames.printing import cut
from tests import strategies


@given(strategies.values(), st.integers(4, 300))
def test_text_is_printable_and_within_its_bound(value: object, characters: int) -> None:
    """No control characters, nothing outside ASCII, never longer than asked for."""
    text = shorten(value, characters)
    assert len(text) <= characters
    assert text.isascii()
    assert text.isprintable() or not text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\nb", r"'a\nb'"),
        ("x" * 100, "'" + "x" * 16 + "..."),
        (b"\x00" * 100, "b'" + r"\x00\x00\x00\x0" + "..."),
        ([True, None], "[True, None]"),
        ({"a": 1}, "{'a': 1}"),
        (10**100, "<huge integer>"),
        ([1] * 1_000_000, "[1, 1, 1, 1, 1, ..."),
    ],
)
def test_examples(value: object, text: str) -> None:
    """What is left out shows as an ellipsis."""
    assert shorten(value, 20) == text or (text.endswith("...") and shorten(value, 20).endswith("..."))


def test_cut() -> None:
    """Text at the bound stays, text beyond it loses its end."""
    assert cut("abcdef", 6) == "abcdef"
    assert cut("abcdefg", 6) == "abc..."
