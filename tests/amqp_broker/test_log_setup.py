"""Logging: what a peer can write into our log, and what nobody may."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.configuration import BrokerConfig, BrokerLimits, LoggingConfig
from amqp_broker.log_fields import DEPTH_MAX, REDACTED, FieldBounds
from amqp_broker.log_setup import configure_logging, logger


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


def test_an_unconfigured_broker_is_silent_below_errors(capsys: pytest.CaptureFixture[str]) -> None:
    """An embedded broker writes nothing into somebody's test output, except what went wrong."""
    log = logger("tests")
    log.info("link.attached")
    log.warning("link.detached")
    assert capsys.readouterr() == ("", "")
    log.error("connection.failed")
    out, err = capsys.readouterr()
    assert out == ""
    assert json.loads(err)["event"] == "connection.failed"
