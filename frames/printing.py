"""Short, printable text of any value, for logs: bounded in characters and in work, whatever a peer has
sent.
"""

from collections.abc import Iterable

from amqp_broker.frames.limits import REPR_CHARACTERS_MAX

ELLIPSIS = "..."


def cut(text: str, characters: int = REPR_CHARACTERS_MAX) -> str:
    """`text` with at most `characters` characters; what is missing is shown as an ellipsis."""
    if len(text) <= characters:
        return text
    return text[: max(0, characters - len(ELLIPSIS))] + ELLIPSIS


def shorten(value: object, characters: int = 64) -> str:
    """ASCII text of `value`, at most `characters` long, without walking more of it than is printed."""
    if value is None or isinstance(value, (bool, float)):
        return cut(repr(value), characters)
    if isinstance(value, int):
        return cut(repr(value) if value.bit_length() < 256 else "<huge integer>", characters)
    if isinstance(value, str):
        return _quoted(ascii(value[:characters]), len(value) > characters, characters)
    if isinstance(value, (bytes, bytearray)):
        return _quoted(repr(bytes(value[:characters])), len(value) > characters, characters)
    if isinstance(value, (list, tuple)):
        return _joined("[", ((item,) for item in value), "]", characters)
    if isinstance(value, dict):
        return _joined("{", value.items(), "}", characters)
    return cut(repr(value), characters)


def _quoted(text: str, is_part: bool, characters: int) -> str:
    if is_part or len(text) > characters:
        return cut(text[:-1], max(0, characters - len(ELLIPSIS))) + ELLIPSIS
    return text


def _joined(begin: str, entries: "Iterable[tuple[object, ...]]", end: str, characters: int) -> str:
    """Items, or keys with their items, as many as there is room for."""
    parts: list[str] = []
    left = characters - 2
    for entry in entries:
        text = ""
        for place, value in enumerate(entry):
            text += ": " if place else ""
            text += shorten(value, max(left - len(text), 0))
        left -= len(text) + 2
        parts.append(text)
        if left <= 0:
            parts.append(ELLIPSIS)
            break
    return cut(begin + ", ".join(parts) + end, characters)
