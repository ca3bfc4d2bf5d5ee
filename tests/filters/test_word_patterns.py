"""Patterns of words: what they mean, and that no pattern and no text takes long."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.word_patterns import WORD_STEPS, WordPattern
from tests.support.examples import examples
from tests.support.fastest import fastest

WORDS = st.lists(st.sampled_from(["a", "b", "", "ab", "*", "#"]), min_size=1, max_size=7)


def fits(pattern: Sequence[str], words: Sequence[str]) -> bool:
    """By the definition, trying everything."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(fits(pattern[1:], words[at:]) for at in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and fits(pattern[1:], words[1:])


@examples(600)
@given(WORDS, st.lists(st.sampled_from(["a", "b", "", "ab", "a\n"]), min_size=1, max_size=8))
def test_words_fit_by_definition(pattern: list[str], words: list[str]) -> None:
    """`*` is any one word, `#` any number of them, none included; an empty word is a word."""
    assert WordPattern(pattern).matches(".".join(words)) is fits(pattern, words)


def test_a_text_beyond_its_steps_is_not_meant() -> None:
    """What would take longer than WORD_STEPS."""
    text = "a" * (WORD_STEPS - 2) + ".b"
    for words in (["#"], ["#", "b"], ["#", "b", "#"], ["*", "b"]):
        assert WordPattern(words).matches(text)
        assert not WordPattern(words).matches("a" + text)
    assert not WordPattern(["#", "*", "b", "#"]).matches(text)
    assert WordPattern(["#", "*", "b", "#"]).matches(text[WORD_STEPS // 2 :])


HOSTILE = {
    "many any": (["#"] * 500 + ["b"], "a." * 500_000 + "a"),
    "one word each": (["#", "*"] * 250 + ["b"], "a." * 500_000 + "a"),
    "any words, and one that is not there": (["#", *["*"] * 99, "b", "#"], "a." * 99 + "a"),
    "words that begin alike": (["#", *["a"] * 99, "b", "#"], "a." * 99 + "a"),
    "one word that is not there": (["#", "b", "#"], "a." * 9_999 + "a"),
    "one long word": (["*", "*", "#", "b"], "a" * (WORD_STEPS - 1)),
    "long words": (["#", "*", "*", "*", "b", "#"], ("a" * 99 + ".") * 49),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_pattern_is_bounded(kind: str) -> None:
    """In 100 microseconds; twice as many, where a machine is slow."""
    words, text = HOSTILE[kind]
    pattern = WordPattern(words)
    assert not pattern.matches(text)
    assert fastest(lambda: pattern.matches(text), 50) < 200e-6
