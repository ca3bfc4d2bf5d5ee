"""The order of names as people expect it, for the broker's QUERY and for what its clients sort."""

from __future__ import annotations

import re
from typing import Any, Final

_DIGITS: Final = re.compile(r"(\d+)")
_DIGITS_MAX: Final = 18  # more than these are no number that somebody counts by, and slow to read


def natural(name: str) -> list[tuple[int, Any]]:
    """A key by which `queue-9` stands before `queue-10`; small and capital letters are the same."""
    return [
        (0, int(part)) if part.isdecimal() and len(part) <= _DIGITS_MAX else (1, part)
        for part in _DIGITS.split(name.lower())
    ]
