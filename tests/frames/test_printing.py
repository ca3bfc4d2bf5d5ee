"""Short text of any value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.frames import (
    AmqpSequence,
    AmqpValue,
    Array,
    Attach,
    Data,
    Described,
    Error,
    Open,
    Symbol,
    Transfer,
    Ulong,
    shorten,
)
from amqp_broker.frames.printing import cut
from amqp_broker.frames.values import CompoundKey
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


@given(strategies.values(), strategies.composites())
def test_everything_prints_itself_in_a_line(value: object, composite: object) -> None:
    """At most 256 printable characters, whatever is in it."""
    whole = [] if isinstance(value, (str, bytes, list, dict)) else [value]
    for shown in (
        *whole, composite, Described(Ulong(1), value), Array("list", [value, value]), CompoundKey(value),
        AmqpValue(value), AmqpSequence([value]),
    ):  # fmt: skip
        text = repr(shown)
        assert len(text) <= 256 and text.isascii() and text.isprintable()


@pytest.mark.parametrize(
    "huge",
    [
        Symbol("\n" * 1_000_000),
        Described(Symbol("\n" * 1_000_000), "\n" * 1_000_000),
        CompoundKey("\n" * 1_000_000),
        Data(b"x" * 1_000),
        Attach(name="\x00" * 1_000_000, handle=0, role=True),
        Open(container_id="x" * 300, hostname="y" * 300, properties={"z" * 300: "z" * 300}),
        Error(condition="c", info={str(n): {"deep": [n]} for n in range(100_000)}),
    ],
    ids=lambda huge: type(huge).__name__,
)
def test_a_megabyte_prints_itself_short(huge: object) -> None:
    """It does not become a megabyte in a log."""
    assert len(repr(huge)) <= 256


def test_what_no_peer_can_send_is_printed_all_the_same() -> None:
    """A caller's mistake is seen in the log."""
    assert "handle='seven'" in repr(Transfer(handle="seven"))  # type: ignore[arg-type]
