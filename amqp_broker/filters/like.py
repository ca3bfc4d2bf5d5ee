"""LIKE of SQL-92, in a time that is bounded whatever the pattern and the text."""

from __future__ import annotations

import re
from typing import Final

LIKE_STEPS: Final = 30_000
"""What all LIKE of one selector may take together for a message, in characters compared: some 50
microseconds. Each has an equal share; where a text would take more, the answer is unknown.
"""


class LikePattern:
    """A pattern: `_` stands for one character and `%` for any number of them; `escape` takes that meaning
    from the next one. It compares at most `steps` characters of a text. Raises ValueError for an `escape`
    that is not one character, or has another one behind it.

    The texts between the `%` are looked for from left to right, each as early as it can be: then what is
    left is as long as it can be, and nothing is tried twice.
    """

    __slots__ = ("_first", "_inner", "_last", "_last_width", "_longest_text")

    def __init__(self, pattern: str, escape: str | None = None, steps: int = LIKE_STEPS) -> None:
        if escape is not None and len(escape) != 1:
            raise ValueError(f"expected one character behind ESCAPE, got {len(escape)}")
        parts = _split(pattern, escape)
        self._first = _expression(parts[0])
        self._inner = [_expression(part) for part in parts[1:-1] if part]
        self._last = _expression(parts[-1]) if len(parts) > 1 else None
        self._last_width = len(parts[-1])
        at_each = max([len(part) if None in part else 1 for part in parts[1:-1] if part], default=0)
        self._longest_text = steps // at_each if at_each else None

    def fits(self, text: str) -> bool | None:
        """Whether all of the text is as the pattern says; None where that would take too many steps."""
        if self._last is None:
            return self._first.fullmatch(text) is not None
        if self._longest_text is not None and len(text) > self._longest_text:
            return None
        place = 0
        found = self._first.match(text)
        for part in self._inner:
            if found is None:
                return False
            found = part.search(text, found.end())
        if found is None:
            return False
        place = len(text) - self._last_width
        return place >= found.end() and self._last.match(text, place) is not None


def _expression(part: list[str | None]) -> re.Pattern[str]:
    return re.compile("".join("." if each is None else re.escape(each) for each in part), re.DOTALL)


def _split(pattern: str, escape: str | None) -> list[list[str | None]]:
    """The texts between the `%`, as characters; None is any one."""
    parts: list[list[str | None]] = [[]]
    letters = iter(pattern)
    for letter in letters:
        if letter == escape:
            letter = next(letters, "")
            if letter not in ("_", "%", escape):
                raise ValueError(f"expected _, % or {escape} behind {escape} in the pattern {pattern!r:.80}")
            parts[-1].append(letter)
        elif letter == "%":
            parts.append([])
        else:
            parts[-1].append(None if letter == "_" else letter)
    return parts
