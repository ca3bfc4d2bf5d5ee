"""Values as people read them on a page."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

_BYTE_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_TIMES: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))
NONE: Final = "–"


def number(value: Any) -> str:
    """With commas between thousands; a fraction with three digits at most."""
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else text(value)


def octets(value: Any) -> str:
    """In the unit that leaves one to four digits."""
    if not isinstance(value, int | float):
        return text(value)
    size = float(value)
    for unit in _BYTE_UNITS:
        if size < 1024 or unit == _BYTE_UNITS[-1]:
            break
        size /= 1024
    return f"{size:,.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"


def duration_ms(value: Any) -> str:
    """In the largest unit that it has one of."""
    if not isinstance(value, int | float):
        return text(value)
    for size, unit in _TIMES:
        if value >= size:
            return f"{value / size:.1f} {unit}" if value < 10 * size else f"{value / size:,.0f} {unit}"
    return f"{value:,.0f} ms"


def duration_s(value: Any) -> str:
    """As `duration_ms`."""
    return duration_ms(value * 1_000) if isinstance(value, int | float) else text(value)


def moment_ms(value: Any) -> str:
    """Milliseconds of the Unix epoch, in UTC; 0 is never."""
    if not isinstance(value, int) or not value:
        return NONE
    try:
        return f"{datetime.fromtimestamp(value / 1_000, UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        return str(value)


def rate(value: Any) -> str:
    """So many a second."""
    return number(round(value, 1)) if isinstance(value, float) else text(value)


def bound(value: Any) -> str:
    """A limit, of which 0 is none."""
    return "none" if value == 0 else number(value)


def text(value: Any) -> str:
    """Any value as one line; it is the template that escapes it."""
    if value is None or value == "":
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(text, value)) or NONE
    if isinstance(value, dict):
        return ", ".join(f"{key}: {text(item)}" for key, item in value.items()) or NONE
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex(" ")
    return str(value)


FORMS: Final[dict[str, Callable[[Any], str]]] = {
    "text": text, "number": number, "bytes": octets, "ms": duration_ms, "s": duration_s, "time": moment_ms,
    "rate": rate, "bound": bound,
}  # fmt: skip
NUMBERS: Final = frozenset(("number", "bytes", "ms", "s", "rate", "bound"))
"""These stand to the right, and are sorted from the largest on first."""

_NAMED: Final = {
    "bytes": "bytes", "age_ms": "ms", "oldest_age_ms": "ms", "age_s": "s", "timeout_in_s": "s",
    "timeout_s": "s", "begun_at_ms": "time", "ended_at_ms": "time", "last_access_ms": "time",
    "max_messages": "bound", "commit_seconds": "s", "expires_at_ms": "time",
}  # fmt: skip


def form_of(name: str, value: Any) -> str:
    """How the attribute of an entity is shown, by its name and value."""
    if name in _NAMED:
        return _NAMED[name]
    if name.endswith("_bytes"):
        return "bound" if value == 0 and name.startswith("max_") else "bytes"
    if name.endswith("_ms"):
        return "ms"
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else "text"


def label(name: str) -> str:
    """The name of an attribute for people: its unit stands with the value."""
    for unit in ("_ms", "_s", "_bytes"):
        name = name.removesuffix(unit)
    return name.replace("_", " ")


def attribute(name: str, value: Any) -> str:
    """An attribute of an entity."""
    return FORMS[form_of(name, value)](value)
