"""Logging: structlog, for people on a terminal, as JSON lines elsewhere, always on standard error. In a
program that embeds the broker and has handlers for `logging`: records of the logger `amqp_broker`.

    log = logger("connection").bind(peer=peer.address)
    log.info("link.attached", name=attach.name, handle=attach.handle)

Events are named like `link.attached`, and a peer's data is only ever the value of a field: cut to
`limits.log_field_characters`, control characters escaped.  A field whose name speaks of a secret never shows
its value.

Of each kind of event a peer has a number of lines a minute (`limits.log_lines_per_minute`). What is beyond it
is counted, and told with the first event after the minute: `event`, `peer` and `suppressed`.

structlog is loaded with the first event that is written: it takes a fifth of the time until a broker listens.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, Final, TextIO

from amqp_broker.configuration_limits import DEFAULT_LIMITS
from amqp_broker.log_fields import FieldBounds
from amqp_broker.log_rates import WINDOW_S, LineRates, Suppressed

if TYPE_CHECKING:
    from amqp_broker.configuration import BrokerConfig, BrokerLimits

PROGRAM: Final = "amqp_broker"
"""The logger of an embedded broker; each room has one below it."""
LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class _Sink:
    """Where events go, and from which level on.

    Private to this package: an application that embeds the broker keeps its own structlog configuration.
    """

    def __init__(self) -> None:
        self.lowest = LEVELS["error"]
        self.form = "json"
        self.characters = DEFAULT_LIMITS.log_field_characters
        self.stream: TextIO | None = None
        self.bound: Any = None
        self.rates = LineRates()
        self.settled = False
        """Whether somebody said where events go (`configure_logging`); else `logging` knows."""

    def settle(self, level: str, form: str, limits: BrokerLimits, stream: TextIO | None) -> None:
        """Take new settings; what structlog was told before is forgotten."""
        self.settled = True
        self.lowest, self.form, self.stream = LEVELS[level], form, stream
        self.characters = limits.log_field_characters
        self.rates = LineRates(limits.log_lines_per_minute)
        self.bound = None

    def emit(self, level: str, event: str, bound: dict[str, Any], fields: dict[str, Any]) -> None:
        """Write an event of a level that is wanted, unless its peer has caused too many of its kind."""
        if not self.settled:
            program = logging.getLogger(f"{PROGRAM}.{bound.get('room', 'broker')}")
            if program.hasHandlers():
                self.hand_over(program, level, event, {**bound, **fields})
                return
        if LEVELS[level] < self.lowest:
            return
        for suppressed in self.rates.over():
            self.tell(suppressed)
        fields = {**bound, **fields}
        if self.rates.admit(level, event, fields.get("peer")):
            getattr(self.structlog(), level)(event, **fields)

    def hand_over(self, program: logging.Logger, level: str, event: str, fields: dict[str, Any]) -> None:
        """Make it a record of the program, whose `event` and `fields` say the same. Who listens from debug on
        wants all of them; for others a peer has its number of lines.
        """
        if not program.isEnabledFor(LEVELS[level]):
            return
        if not program.isEnabledFor(logging.DEBUG):
            for over in self.rates.over():
                count = {"peer": over.host, "suppressed": over.count, "window_s": WINDOW_S}
                _record(program, over.level, over.event, count)
            if not self.rates.admit(level, event, fields.get("peer")):
                return
        failed = fields.pop("exc_info", False)
        shown = FieldBounds(self.characters)(None, level, fields)
        _record(program, level, event, {**shown}, failed)

    def tell(self, suppressed: Suppressed) -> None:
        """One line for all that were not written."""
        write = getattr(self.structlog(), suppressed.level)
        write(suppressed.event, peer=suppressed.host, suppressed=suppressed.count, window_s=WINDOW_S)

    def write(self, line: str) -> None:
        """One line, at once.  structlog calls the method of the level; all do the same."""
        stream = self.target()
        stream.write(line + "\n")
        stream.flush()

    debug = info = warning = error = critical = write

    def target(self) -> TextIO:
        """The stream; standard error is looked up each time, since tests and daemons replace it."""
        return self.stream if self.stream is not None else sys.stderr

    def structlog(self) -> Any:
        """structlog's bound logger, made when it is first needed."""
        if self.bound is None:
            self.bound = _bound_logger(self)
        return self.bound


_sink = _Sink()


def _record(
    program: logging.Logger, level: str, event: str, fields: dict[str, Any], failed: bool = False
) -> None:
    text = " ".join([event, *(f"{name}={value!r}" for name, value in fields.items() if name != "room")])
    extra = {"event": event, "fields": fields}
    program.log(LEVELS[level], "%s", text, exc_info=failed, extra=extra)


class Logger:
    """Writes events with the fields it was bound to; a later `configure_logging` holds for it, too."""

    __slots__ = ("_fields",)

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def bind(self, **fields: Any) -> Logger:
        """A logger with these fields on each of its events."""
        return Logger({**self._fields, **fields})

    def debug(self, event: str, /, **fields: Any) -> None:
        """Write an event that only somebody who searches a fault wants to see."""
        _sink.emit("debug", event, self._fields, fields)

    def info(self, event: str, /, **fields: Any) -> None:
        """Write an event of ordinary life."""
        _sink.emit("info", event, self._fields, fields)

    def warning(self, event: str, /, **fields: Any) -> None:
        """Write an event that somebody should look at some time."""
        _sink.emit("warning", event, self._fields, fields)

    def error(self, event: str, /, **fields: Any) -> None:
        """Write an event that somebody should look at now."""
        _sink.emit("error", event, self._fields, fields)

    def exception(self, event: str, /, **fields: Any) -> None:
        """Log an error with the traceback of the exception that is being handled."""
        self.error(event, **fields, exc_info=True)


def logger(room: str) -> Logger:
    """A logger whose lines say where they come from."""
    return Logger({"room": room})


def configure_logging(config: BrokerConfig, stream: TextIO | None = None) -> None:
    """Send the broker's log events to `stream` (standard error), as `config.logging` says.

    Until this is called, as in an embedded broker, they are records of the logger `amqp_broker`; where the
    program has no handlers, only errors are written.
    """
    form = config.logging.format
    if form == "auto":
        form = "console" if (stream if stream is not None else sys.stderr).isatty() else "json"
    _sink.settle(config.logging.level, form, config.limits, stream)


def reconfigure_logging(config: BrokerConfig) -> None:
    """The configuration was read again: events go to where they went, as it says now. Where they are the
    program's, only their level is.
    """
    if _sink.settled:
        tell_suppressed()
        configure_logging(config, _sink.stream)
    else:
        write_from(config.logging.level)


def write_from(level: str) -> None:
    """Events of this level and above are written from now on."""
    _sink.lowest = LEVELS[level]
    if not _sink.settled:
        logging.getLogger(PROGRAM).setLevel(LEVELS[level])


def tell_suppressed() -> None:
    """Write what was counted and not yet told: the broker stops, and no later event will do it."""
    for suppressed in _sink.rates.over(everything=True):
        _sink.tell(suppressed)


def load_structlog() -> None:
    """Load it now, when nobody waits, and not with the first connection: in a process that is the broker's.
    It is loaded as if Rich were not installed: where that is, structlog loads it for tracebacks that none of
    our lines has, which takes longer than structlog itself.
    """
    if "rich" in sys.modules:
        _sink.structlog()
        return
    sys.modules["rich"] = None  # type: ignore[assignment]  # `import rich` is an ImportError then
    try:
        _sink.structlog()
    finally:
        del sys.modules["rich"]


def _bound_logger(sink: _Sink) -> Any:
    """structlog, with its processors in the order in which an event goes through them."""
    import structlog

    renderer: Any
    if sink.form == "console":
        renderer = structlog.dev.ConsoleRenderer(colors=sink.target().isatty())
    else:
        renderer = structlog.processors.JSONRenderer()
    return structlog.wrap_logger(
        sink,
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            FieldBounds(sink.characters),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS["debug"]),
        context_class=dict,
        cache_logger_on_first_use=True,
    )
