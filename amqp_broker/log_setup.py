"""Logging: structlog, for people on a terminal, as JSON lines elsewhere, always on standard error.

    log = logger("connection")
    log.info("link.attached", name=attach.name, handle=attach.handle)

Events are named like `link.attached`, and a peer's data is only ever the value of a field: cut to
`limits.log_field_characters`, control characters escaped.  A field whose name speaks of a secret never shows
its value.
"""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, Final, TextIO

import structlog

from amqp_broker.configuration_limits import LOG_FIELD_CHARACTERS

if TYPE_CHECKING:
    from amqp_broker.configuration import BrokerConfig

LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}
REDACTED: Final = "[redacted]"
SECRET_WORDS: Final = (
    "password",
    "secret",
    "verifier",
    "scram",
    "token",
    "credential",
    "initial_response",
    "stored_key",
    "server_key",
    "private_key",
    "salt",
)
"""A field whose name contains one of these is redacted; `scram` stands in the keys of the configuration."""
ITEMS_MAX: Final = 16
"""Items of a list or map that are shown."""
DEPTH_MAX: Final = 3
"""Levels of nested lists and maps that are shown."""
OWN_KEYS: Final = frozenset(("event", "level", "timestamp", "room", "exception", "exc_info"))
"""Keys that we fill ourselves; the exception has its own length."""
EXCEPTION_CHARACTERS: Final = 16_384

EventDict = MutableMapping[str, Any]


class _Output:
    """Where lines go.  structlog calls the method of the level; all do the same."""

    def __init__(self) -> None:
        self.stream: TextIO | None = None

    def write(self, line: str) -> None:
        """One line, at once."""
        stream = self.stream if self.stream is not None else sys.stderr
        stream.write(line + "\n")
        stream.flush()

    debug = info = warning = error = critical = write


_output = _Output()
_processors: list[Any] = []
# Private to this package: an application that embeds the broker keeps its own structlog configuration.


def logger(room: str) -> Any:
    """A logger whose lines say where they come from; a later `configure_logging` holds for it, too."""
    return structlog.wrap_logger(
        _output,
        processors=_processors,
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS["debug"]),
        context_class=dict,
        cache_logger_on_first_use=False,
        room=room,
    )


def configure_logging(config: BrokerConfig, stream: TextIO | None = None) -> None:
    """Send the broker's log events to `stream` (standard error), as `config.logging` says.

    Until this is called, as in an embedded broker, only errors are written.
    """
    _output.stream = stream
    target = stream if stream is not None else sys.stderr
    form = config.logging.format
    if form == "auto":
        form = "console" if target.isatty() else "json"
    renderers: list[Any]
    if form == "console":
        console = structlog.dev.ConsoleRenderer(colors=target.isatty(), exception_formatter=_plain_exception)
        renderers = [console]
    else:
        renderers = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=repr)]
    _processors[:] = _chain(config.logging.level, config.limits.log_field_characters, renderers)


def _chain(level: str, characters: int, renderers: list[Any]) -> list[Any]:
    """What every event goes through, in order."""
    return [
        structlog.processors.add_log_level,
        LevelFilter(LEVELS[level]),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        redact,
        Bounder(characters),
        *renderers,
    ]


class LevelFilter:
    """A processor: events below a level end here."""

    def __init__(self, lowest: int) -> None:
        self._lowest = lowest

    def __call__(self, _logger: Any, method: str, event: EventDict) -> EventDict:
        if LEVELS.get(method, LEVELS["error"]) < self._lowest:
            raise structlog.DropEvent
        return event


def redact(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """A processor: the values of fields that name a secret are replaced, at any depth."""
    for key, value in event.items():
        if key not in OWN_KEYS:
            event[key] = REDACTED if _is_secret(key) else _redacted_inside(value, DEPTH_MAX)
    return event


def _is_secret(key: object) -> bool:
    name = str(key).lower().replace("-", "_")
    return any(word in name for word in SECRET_WORDS)


def _redacted_inside(value: object, depth: int) -> object:
    if depth and isinstance(value, dict):
        return {k: REDACTED if _is_secret(k) else _redacted_inside(v, depth - 1) for k, v in value.items()}
    if depth and isinstance(value, (list, tuple)):
        return [_redacted_inside(item, depth - 1) for item in value]
    return value


class Bounder:
    """A processor: every field is cut to a number of characters, and its control characters are escaped."""

    def __init__(self, characters: int = LOG_FIELD_CHARACTERS) -> None:
        self._characters = characters

    def __call__(self, _logger: Any, _method: str, event: EventDict) -> EventDict:
        for key in list(event):
            if key not in OWN_KEYS:
                event[key] = self._bounded(event[key], DEPTH_MAX)
        return event

    def _bounded(self, value: object, depth: int) -> object:
        if value is None or isinstance(value, (bool, float)):
            return value
        if isinstance(value, int):
            return value if value.bit_length() <= 64 else self._text(f"{value.bit_length()} bits")
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, (bytes, bytearray, memoryview)):
            return self._text(bytes(value[: self._characters]).hex())
        if depth and isinstance(value, dict):
            items = list(value.items())[:ITEMS_MAX]
            return {self._text(str(k)): self._bounded(v, depth - 1) for k, v in items}
        if depth and isinstance(value, (list, tuple, set, frozenset)):
            return [self._bounded(item, depth - 1) for item in list(value)[:ITEMS_MAX]]
        try:
            return self._text(str(value))
        except Exception as error:  # an object that cannot print itself must not end a connection
            return f"<{type(value).__name__}: {type(error).__name__}>"

    def _text(self, value: str) -> str:
        """Cut and escaped; the end says how much was there."""
        cut = value[: self._characters]
        escaped = cut if cut.isprintable() else "".join(_escaped(character) for character in cut)
        if len(escaped) <= self._characters and len(cut) == len(value):
            return escaped
        mark = f"...({len(value)})"
        return escaped[: self._characters - len(mark)] + mark


def _escaped(character: str) -> str:
    return (
        character
        if character.isprintable()
        else character.encode("unicode_escape", "replace").decode("ascii")
    )


def _plain_exception(stream: TextIO, exc_info: Any) -> None:
    """A traceback without the values of variables: those may hold passwords and messages."""
    import traceback

    stream.write("\n" + "".join(traceback.format_exception(*exc_info))[-EXCEPTION_CHARACTERS:])


_processors[:] = _chain(
    "error",
    LOG_FIELD_CHARACTERS,
    [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=repr)],
)
