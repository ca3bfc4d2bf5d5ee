"""The values of options, made of their texts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import attrs

from amqp_broker.client.errors import WrongUse
from amqp_broker.client.settings import parse_url
from amqp_broker.pipeline.errors import OffsetError, OptionError
from amqp_broker.pipeline.offsets import read_positions

SECTIONS: Final = (
    "header", "delivery-annotations", "message-annotations", "properties", "application-properties", "body",
    "footer", "txn", "seq",
)  # fmt: skip


class WrongValue(Exception):
    """The caller says what was expected, of which option, and what came."""


@attrs.frozen
class Kind:
    """What an option takes. `read` makes the value of a text and raises WrongValue, or OptionError with a
    text of its own; `expected` says which texts there are.
    """

    expected: str
    read: Callable[[str], Any]


def text_of(expected: str) -> Kind:
    """Anything but nothing, without the spaces around it."""

    def read(text: str) -> str:
        if not text.strip():
            raise WrongValue
        return text.strip()

    return Kind(expected, read)


def read_texts(text: str) -> tuple[str, ...]:
    """Parts between commas, each once."""
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if not found or len(set(found)) < len(found):
        raise WrongValue
    return found


def read_brokers(text: str) -> tuple[tuple[str, ...], ...]:
    """The URLs of each broker, between semicolons. Raises OptionError without what may be a password."""
    found = tuple(read_texts(part) for part in text.split(";"))
    urls = [url for each in found for url in each]
    for url in urls:
        try:
            parse_url(url)
        except WrongUse as error:
            raise OptionError(f"option amqp.url: {error}") from None
    if len(set(urls)) < len(urls):
        raise OptionError(
            "option amqp.url: expected each URL once; URLs of one broker with commas, brokers with semicolons"
        )
    return found


def read_credentials(text: str) -> str:
    """Where a login stands, as it is. Raises OptionError that does not show it."""
    kind, colon, rest = text.partition(":")
    if kind not in ("env", "file") or not colon or not rest:
        # The value itself may be a password.
        raise OptionError(
            "option amqp.credentials: expected env:NAME or file:PATH, where USER:PASSWORD stands; "
            "the value itself is not shown here and must not hold the password"
        )
    return text


def read_pattern(text: str) -> str:
    """A regular expression, as it is."""
    try:
        re.compile(text)
    except re.error as error:
        raise OptionError(f"option subscribePattern: {text!r} is no regular expression: {error}") from None
    return text


def read_assigned(text: str) -> dict[str, tuple[int, ...]]:
    """Addresses in Kafka's form, with their partitions: the brokers that are read."""
    try:
        found = json.loads(text)
    except ValueError:
        raise WrongValue from None
    if not isinstance(found, dict) or not found:
        raise WrongValue
    for parts in found.values():
        if not isinstance(parts, list) or not parts:
            raise WrongValue
        if any(type(each) is not int or each < 0 for each in parts):
            raise WrongValue
    return {address: tuple(sorted(set(found[address]))) for address in sorted(found)}


def whole(lowest: int, highest: int | None = None) -> Kind:
    """A whole number."""
    from_on = "a whole number above 0" if lowest == 1 else f"a whole number from {lowest} on"

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise WrongValue from None
        if value < lowest or (highest is not None and value > highest):
            raise WrongValue
        return value

    return Kind(from_on if highest is None else f"{lowest} to {highest}", read)


def name_up_to(characters: int) -> Kind:
    """A name that the broker keeps."""
    pattern = re.compile(rf"[A-Za-z0-9._-]{{1,{characters}}}")

    def read(text: str) -> str:
        if not pattern.fullmatch(text):
            raise WrongValue
        return text

    return Kind(f"1 to {characters} of A-Z a-z 0-9 . _ -", read)


def one_of(*allowed: str) -> Kind:
    """One of these words, in lower case."""

    def read(text: str) -> str:
        if text.lower() not in allowed:
            raise WrongValue
        return text.lower()

    return Kind(" or ".join(allowed), read)


def read_timestamp(text: str) -> int:
    """Milliseconds since the epoch, or a date and time with its zone."""
    if text.isdecimal():
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise WrongValue from None
    if found.tzinfo is None:
        raise WrongValue
    return round(found.timestamp() * 1_000)


def read_times(text: str) -> Any:
    """A time for all addresses, or one for each, or for each of their brokers, from JSON."""
    if not text.lstrip().startswith("{"):
        return read_timestamp(text)
    try:
        found = json.loads(text)
    except ValueError:
        raise WrongValue from None
    times: dict[str, Any] = {}
    for address, at in found.items():
        if isinstance(at, dict):
            if not at or not all(each.isdecimal() for each in at):
                raise WrongValue
            times[address] = {int(each): _one_time(at[each]) for each in at}
        else:
            times[address] = _one_time(at)
    if not times:
        raise WrongValue
    return times


def _one_time(found: Any) -> int:
    if isinstance(found, bool) or not isinstance(found, int | str):
        raise WrongValue
    return read_timestamp(str(found))


_UNITS_MS: Final = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}


def read_duration(text: str) -> int:
    """Milliseconds."""
    found = re.fullmatch(r"([0-9]+) *(ms|s|m|h|)", text.strip())
    if found is None:
        raise WrongValue
    return int(found[1]) * _UNITS_MS[found[2]]


def read_sections(text: str) -> tuple[str, ...]:
    """Sections of a message."""
    if text in ("all", "none"):
        return SECTIONS if text == "all" else ()
    found = read_texts(text)
    if set(found) - set(SECTIONS):
        raise WrongValue
    return found


def positions_or(*words: str) -> Kind:
    """Offsets by address, or one of these words."""

    def read(text: str) -> Any:
        if text.lower() in words:
            return text.lower()
        if not text.lstrip().startswith("{"):
            raise WrongValue
        try:
            return read_positions(json.loads(text))
        except ValueError:
            raise WrongValue from None
        except OffsetError as error:
            raise OptionError(str(error)) from None

    offsets = (
        'JSON such as {"orders": 123} with an offset of each address (-2 earliest, -1 latest), or of each '
        'broker, such as {"orders": {"0": 123, "1": 7}}'
    )
    return Kind(f"{', '.join(words)}, or {offsets}", read)


FLAG: Final = Kind("true or false", lambda text: one_of("true", "false").read(text) == "true")
COUNT: Final = whole(1)
NAME: Final = name_up_to(128)
"""What the broker takes as the name of a producer (and this package as that of a subscription)."""
GROUP: Final = name_up_to(64)
"""What the broker takes as the name of a half group."""
STAGE_ROWS: Final = whole(1, 2_000)
"""The broker takes 2,048 messages without an outcome on a link."""
PATH: Final = text_of("the path of a file on every worker")
TIMES: Final = Kind(
    "milliseconds since 1970, or a date and time with zone such as 2026-01-31T08:00:00+00:00, or JSON with "
    'one of each address, such as {"orders": 1769846400000}, or of each broker',
    read_times,
)
DURATION: Final = Kind("a number of milliseconds, or one with a unit: 500ms, 30s, 15m, 1h", read_duration)
