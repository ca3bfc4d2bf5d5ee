"""The values of options, made of their texts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from amqp_broker.client.errors import WrongUse
from amqp_broker.client.settings import parse_url
from amqp_broker.pipeline.errors import OffsetError, OptionError
from amqp_broker.pipeline.offsets import read_positions as read_offsets_by_address

SECTIONS: Final = (
    "header", "delivery-annotations", "message-annotations", "properties", "application-properties", "body",
    "footer", "txn", "seq",
)  # fmt: skip
NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
"""What the broker takes as the name of a producer (and this package as that of a subscription)."""

GROUP_CHARACTERS: Final = 64
"""Of the name of a half group, at the broker."""
STAGE_ROWS_MAX: Final = 2_000
"""The broker takes 2,048 messages without an outcome on a link."""


class WrongValue(Exception):
    """The text says what was expected; the caller adds the option and the value."""


def read_text(text: str) -> str:
    """Anything but nothing, without the spaces around it."""
    if not text.strip():
        raise WrongValue
    return text.strip()


def read_texts(text: str) -> tuple[str, ...]:
    """Parts between commas, each once."""
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if not found or len(set(found)) < len(found):
        raise WrongValue
    return found


def read_brokers(text: str) -> tuple[tuple[str, ...], ...]:
    """The URLs of each broker, between semicolons. Raises OptionError without what may be a password."""
    found = tuple(read_texts(part) for part in text.split(";"))
    for url in (url for urls in found for url in urls):
        try:
            parse_url(url)
        except WrongUse as error:
            raise OptionError(f"option amqp.url: {error}") from None
    if len({url for urls in found for url in urls}) < sum(map(len, found)):
        raise OptionError(
            "option amqp.url: expected each URL once; URLs of one broker with commas, brokers with semicolons"
        )
    return found


def read_name(text: str) -> str:
    """A name of the broker's."""
    if not NAME.fullmatch(text):
        raise WrongValue
    return text


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


def read_flag(text: str) -> bool:
    """A truth value."""
    if text.lower() not in ("true", "false"):
        raise WrongValue
    return text.lower() == "true"


def read_positive(text: str) -> int:
    """A whole number above 0."""
    try:
        value = int(text)
    except ValueError:
        raise WrongValue from None
    if value < 1:
        raise WrongValue
    return value


def read_from_0(text: str) -> int:
    """A whole number from 0 on."""
    if not text.isdecimal():
        raise WrongValue
    return int(text)


def read_stage_rows(text: str) -> int:
    """A number of messages on their way."""
    value = read_positive(text)
    if value > STAGE_ROWS_MAX:
        raise WrongValue
    return value


def read_group(text: str) -> str:
    """The name of a half group."""
    if len(text) > GROUP_CHARACTERS:
        raise WrongValue
    return read_name(text)


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


def read_one_of(*allowed: str) -> Callable[[str], str]:
    """The reader of one of these words, in lower case."""

    def read(text: str) -> str:
        if text.lower() not in allowed:
            raise WrongValue
        return text.lower()

    return read


def read_sections(text: str) -> tuple[str, ...]:
    """Sections of a message."""
    if text == "all":
        return SECTIONS
    if text == "none":
        return ()
    found = read_texts(text)
    if set(found) - set(SECTIONS):
        raise WrongValue
    return found


def read_positions(*words: str) -> Callable[[str], Any]:
    """The reader of offsets by address, or one of these words."""

    def read(text: str) -> Any:
        if text.lower() in words:
            return text.lower()
        if not text.lstrip().startswith("{"):
            raise WrongValue
        try:
            return read_offsets_by_address(json.loads(text))
        except ValueError:
            raise WrongValue from None
        except OffsetError as error:
            raise OptionError(str(error)) from None

    return read
