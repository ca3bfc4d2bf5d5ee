"""Logging: what a peer can write into our log, and what nobody may."""

from __future__ import annotations

import io
import json
import logging
import math
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.client import ClientError, connect
from amqp_broker.configuration import BrokerConfig, BrokerLimits, LoggingConfig
from amqp_broker.configuration_limits import DEFAULT_LIMITS
from amqp_broker.embedding import RunningBroker
from amqp_broker.log_fields import DEPTH_MAX, REDACTED, FieldBounds
from amqp_broker.log_setup import configure_logging, logger, write_from


class Terminal(io.StringIO):
    """A stream that people read."""

    def isatty(self) -> bool:
        return True


def written(stream: io.StringIO, form: str = "json", level: str = "info", **fields: Any) -> str:
    """What one event writes."""
    config = BrokerConfig(logging=LoggingConfig(format=form, level=level))
    configure_logging(config, stream)
    logger("tests").info("link.attached", **fields)
    return stream.getvalue()


def test_a_stream_that_is_no_terminal_gets_json_lines() -> None:
    """One line for each event, with event, level, time and room as keys."""
    line = json.loads(written(io.StringIO(), "auto", name="a", handle=3))
    assert line.pop("timestamp").endswith("Z")
    assert line == {"event": "link.attached", "level": "info", "room": "tests", "name": "a", "handle": 3}


def test_a_terminal_gets_lines_for_people() -> None:
    """The event's name and the fields, not JSON."""
    text = written(Terminal(), "auto", name="a")
    assert "link.attached" in text
    assert not text.startswith("{")


def test_the_form_can_be_chosen() -> None:
    """`format` beats what the stream is."""
    assert written(Terminal(), "json").startswith("{")
    assert not written(io.StringIO(), "console").startswith("{")


def test_events_below_the_level_are_dropped() -> None:
    """`level = "warning"` drops info, for loggers that were made before, too."""
    early = logger("early")
    stream = io.StringIO()
    assert written(stream, level="warning") == ""
    early.info("a.b")
    assert stream.getvalue() == ""
    early.warning("c.d")
    assert json.loads(stream.getvalue())["event"] == "c.d"


def test_an_embedding_application_keeps_its_structlog() -> None:
    """Configuring the broker's logging does not touch structlog's own configuration."""
    before = structlog.get_config()
    written(io.StringIO())
    assert structlog.get_config() == before


@pytest.mark.parametrize(
    "key",
    [
        "password",
        "PASSWORD",
        "user_password",
        "scram_sha_256",
        "scram-sha-512",
        "initial_response",
        "auth_token",
        "verifier",
    ],
)
def test_secrets_are_redacted_at_any_depth(key: str) -> None:
    """A field that names a secret shows none, wherever it stands."""
    fields: dict[str, Any] = {key: "geheim", "user": {key: "geheim", "all": [{key: b"geheim"}]}}
    text = written(io.StringIO(), **fields)
    assert "geheim" not in text
    assert b"geheim".hex() not in text
    assert json.loads(text)[key] == REDACTED


def test_what_is_too_deep_is_counted_and_not_shown() -> None:
    """Below the levels that are looked into a secret could stand."""
    value: object = {"password": "geheim"}
    for _ in range(DEPTH_MAX):
        value = [value]
    assert "geheim" not in (line := written(io.StringIO(), value=value))
    assert '"...(1)"' in line


def test_a_line_is_json_whatever_number_a_peer_sends() -> None:
    """JSON has no word for what is no number, or an infinite one."""

    def fail(word: str) -> None:
        raise AssertionError(word)

    line = written(io.StringIO(), values=[math.nan, math.inf, 1.5])
    assert json.loads(line, parse_constant=fail)["values"] == ["nan", "inf", 1.5]


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_peer_cannot_write_lines_or_move_the_cursor(form: str) -> None:
    """Line ends and escape sequences arrive as text."""
    text = written(io.StringIO(), form, name='x\nlevel=error\r\x1b[2J\x9b31m\u202e"')
    assert text.count("\n") == 1
    assert "\x1b[2J" not in text
    assert "\x9b" not in text
    assert "\u202e" not in text


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(["name", "address", "properties"]), anything))
def test_fields_are_bounded_and_printable_whatever_they_are(fields: dict[str, Any]) -> None:
    """No value of a peer breaks the log or fills it."""
    bounded = FieldBounds(64)(None, "info", {"event": "a.b", **fields})
    for text in _texts({key: value for key, value in bounded.items() if key != "event"}):
        assert len(text) <= 64
        assert text.isprintable()


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def test_a_cut_field_says_how_long_it_was() -> None:
    """256 characters by default, the configured number otherwise."""
    assert FieldBounds()(None, "info", {"name": "n" * 300})["name"] == "n" * 248 + "...(300)"
    assert len(FieldBounds()(None, "info", {"name": "n" * 10_000_000})["name"]) == 256
    stream = io.StringIO()
    configure_logging(BrokerConfig(limits=BrokerLimits(log_field_characters=32)), stream)
    logger("tests").info("a.b", name="n" * 100)
    assert len(json.loads(stream.getvalue())["name"]) == 32


def test_an_object_that_cannot_print_itself_is_named() -> None:
    """A broken __str__ must not end a connection."""

    class Broken:
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert FieldBounds()(None, "info", {"value": Broken()})["value"] == "<Broken: RuntimeError>"


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_traceback_does_not_show_variables(form: str) -> None:
    """An unexpected error is logged with its traceback, without the values that were at hand."""
    stream = io.StringIO()
    configure_logging(BrokerConfig(logging=LoggingConfig(format=form)), stream)
    password = "geheim"
    try:
        raise ValueError(f"{len(password)} characters, \x1b[2J")
    except ValueError:
        logger("tests").exception("connection.failed", peer="127.0.0.1:1")
    assert "ValueError: 6 characters" in stream.getvalue()
    assert "\x1b[2J" not in stream.getvalue()
    assert "'geheim'" not in stream.getvalue()


@pytest.fixture(name="program")
def program_fixture() -> Iterator[logging.Logger]:
    """The logger of an embedded broker, as it was afterwards."""
    program = logging.getLogger("amqp_broker")
    before = program.level, program.propagate
    yield program
    program.setLevel(before[0])
    program.propagate = before[1]


def test_a_program_without_handlers_sees_nothing_below_errors(
    capsys: pytest.CaptureFixture[str], program: logging.Logger
) -> None:
    """An embedded broker writes nothing into somebody's output, except what went wrong."""
    program.propagate = False  # pytest's handlers are the root's
    log = logger("tests")
    log.info("link.attached")
    log.warning("link.detached")
    assert capsys.readouterr() == ("", "")
    log.error("connection.failed")
    out, err = capsys.readouterr()
    assert out == ""
    assert json.loads(err)["event"] == "connection.failed"


def test_an_embedded_broker_logs_to_its_program(
    caplog: pytest.LogCaptureFixture, program: logging.Logger
) -> None:
    """By level, with the fields as values, and without secrets and what ends lines."""
    program.setLevel(logging.DEBUG)
    logger("tests").debug("link.attached", name="a\nb", password="geheim")
    try:
        raise ValueError("no")
    except ValueError:
        logger("tests").exception("connection.failed", peer="127.0.0.1:1")
    first, second = caplog.records
    assert (first.name, first.levelname) == ("amqp_broker.tests", "DEBUG")
    assert first.getMessage() == f"link.attached name='a\\\\nb' password='{REDACTED}'"
    assert (first.event, first.fields["room"]) == ("link.attached", "tests")  # type: ignore[attr-defined]
    assert second.exc_info is not None and "geheim" not in caplog.text


def test_who_does_not_listen_from_debug_on_has_a_number_of_lines(
    caplog: pytest.LogCaptureFixture, program: logging.Logger
) -> None:
    """A peer can't fill the log of the program; who asks for everything gets it."""
    lines = DEFAULT_LIMITS.log_lines_per_minute
    for level, expected in ((logging.INFO, lines), (logging.DEBUG, lines + 10)):
        program.setLevel(level)
        caplog.clear()
        for _ in range(lines + 10):
            logger("tests").info("link.refused", peer="127.0.0.1:1")
            logger("tests").debug("link.attached", peer="127.0.0.1:1")
        assert [record.message for record in caplog.records if record.levelno == logging.INFO] == [
            "link.refused peer='127.0.0.1:1'"
        ] * expected


def test_an_administrator_changes_the_level_of_an_embedded_broker(program: logging.Logger) -> None:
    """As that of any other."""
    write_from("warning")
    assert program.level == logging.WARNING


def test_a_refused_link_is_in_the_log_of_the_test(
    amqp_broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """With its reason, without a word of configuration."""
    with connect(amqp_broker.url) as connection:
        with pytest.raises(ClientError):
            connection.open_sender("$nothing")
    (record,) = [each for each in caplog.records if each.event == "link.refused"]  # type: ignore[attr-defined]
    assert "no node" in record.getMessage()
    assert record.fields["condition"] == "amqp:not-found"  # type: ignore[attr-defined]
