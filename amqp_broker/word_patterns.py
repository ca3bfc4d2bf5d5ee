"""Patterns over texts of words with dots between them: `*` is any one word, `#` any number of them, none
included (`orders.*.new`, `orders.#`). In a time that is bounded whatever the pattern and the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

WILDCARDS: Final = ("*", "#")
WORD_STEPS: Final = 20_000
"""What comparing a text may take, in characters: some 50 microseconds. Words between two `#` are looked for
at each place.
"""


class WordPattern:
    """The words of a pattern. A text that would take more than WORD_STEPS is none that it means.

    The words between the `#` are looked for from left to right, each run as early as it can be: then what is
    left is as long as it can be, and nothing is tried twice. A dot is put before each word:

        a.#.*.b.#.c    a at the beginning | .*.b somewhere behind it | c at the end
    """

    __slots__ = ("_first", "_inner", "_last", "_last_words", "_longest_text")

    def __init__(self, words: Sequence[str]) -> None:
        runs: list[list[str]] = [[]]
        for word in words:
            if word == "#":
                runs.append([])
            else:
                runs[-1].append(word)
        inner = [run for run in runs[1:-1] if run]
        self._first = _expression(runs[0])
        self._inner = [_expression(run) for run in inner]
        self._last = _expression(runs[-1]) if len(runs) > 1 else None
        self._last_words = len(runs[-1])
        self._longest_text = WORD_STEPS // max([len(run) for run in inner], default=1)

    def matches(self, text: str) -> bool:
        """Whether the words of the text are those of the pattern."""
        if len(text) > self._longest_text:
            return False
        text = f".{text}"
        if self._last is None:
            return self._first.fullmatch(text) is not None
        found = self._first.match(text)
        for run in self._inner:
            if found is None:
                return False
            found = run.search(text, found.end())
        if found is None:
            return False
        before = text.rsplit(".", self._last_words)
        place = len(before[0])
        return (
            len(before) > self._last_words
            and place >= found.end()
            and self._last.fullmatch(text, place) is not None
        )


def _expression(run: Sequence[str]) -> re.Pattern[str]:
    words = [r"\.[^.]*" if word == "*" else rf"\.{re.escape(word)}" for word in run]
    return re.compile("".join(words) + r"(?![^.])")  # behind whole words
