"""Which addresses, from where, up to where: decisions without a broker."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from amqp_broker.pipeline.errors import DataLoss, MissingRight, OffsetError, OptionError
from amqp_broker.pipeline.offsets import Offsets, Range
from amqp_broker.pipeline.options import SOURCE, Options, read_options
from amqp_broker.pipeline.planning import (
    check_loss,
    check_reachable,
    ending,
    nodes_to_read,
    overtaken,
    rows_of_bytes,
    starting,
)
from amqp_broker.pipeline.retained_client import Node, Retained, RetainedClient

NODES = {
    "$events": Node("$events", 1, 1, 0),
    "a": Node("a", 5, 20, 1_500),
    "b": Node("b", 0, 10, 500),
    "c.d": Node("c.d", 0, 0, 0),
}
FOUND = Retained("log", NODES)


class Finder:
    """Answers `find`."""

    def find(self, address: str, time_ms: int) -> int:
        return NODES[address].first + time_ms


def options(**given: str) -> Options:
    """Of a source that reads `a` and `b`."""
    chosen = {} if "subscribePattern" in given or "isolation" in given else {"subscribe": "a,b"}
    return read_options({"amqp.url": "amqp://h"} | chosen | given, SOURCE)


def client() -> RetainedClient:
    """Of no broker."""
    finder: Any = Finder()
    return finder  # type: ignore[no-any-return]


def test_addresses_are_named_matched_or_the_log() -> None:
    """A pattern takes whole names, and never the log of events."""
    assert set(nodes_to_read(options(), FOUND)) == {"a", "b"}
    assert set(nodes_to_read(options(subscribePattern=".*"), FOUND)) == {"a", "b", "c.d"}
    assert set(nodes_to_read(options(subscribePattern="c"), Retained("log", NODES | {"c": NODES["a"]}))) == {
        "c"
    }
    assert set(nodes_to_read(options(isolation="events"), FOUND)) == {"$events"}


def test_what_does_not_retain_is_told_with_what_does() -> None:
    """And with the key of the configuration."""
    with pytest.raises(
        OptionError, match="option subscribe: 'z' is not a node that retains.*'a', 'b'.*retention_ms"
    ):
        nodes_to_read(options(subscribe="a,z"), FOUND)
    with pytest.raises(
        OptionError, match="option subscribePattern: no retaining node matches 'x'; there are none"
    ):
        nodes_to_read(options(subscribePattern="x"), Retained("log", {}))


def test_starts_and_ends_by_word_number_and_time() -> None:
    """-1 and -2 stand for the ends; an address that is not named begins with its first message and ends with
    its last.
    """
    nodes = nodes_to_read(options(), FOUND)
    for given, expected in (
        ({}, {"a": 5, "b": 0}),
        ({"startingOffsets": "latest"}, {"a": 20, "b": 10}),
        ({"startingOffsets": '{"a": 7}'}, {"a": 7, "b": 0}),
        ({"startingOffsets": '{"a": -1, "b": -2}'}, {"a": 20, "b": 0}),
        ({"startingTimestamp": "3"}, {"a": 8, "b": 3}),
    ):
        assert starting(options(**given), client(), nodes) == expected
    for given, expected in (
        ({}, {"a": 20, "b": 10}),
        ({"endingOffsets": '{"a": 7, "b": -1}'}, {"a": 7, "b": 10}),
        ({"endingTimestamp": "3"}, {"a": 8, "b": 3}),
    ):
        assert ending(options(**given), client(), nodes) == expected


def test_starts_out_of_reach_are_told() -> None:
    """Behind the end, and before what is retained; the latter may be passed over."""
    nodes = nodes_to_read(options(), FOUND)
    with pytest.raises(OptionError, match="option startingOffsets: expected at most 20 for 'a'.*found 21"):
        starting(options(startingOffsets='{"a": 21}'), client(), nodes)
    early = {"startingOffsets": '{"a": 4}'}
    with pytest.raises(
        DataLoss, match="offset 4 of 'a' is not retained any more, the first is 5.*failOnDataLoss"
    ):
        starting(options(**early), client(), nodes)
    assert starting(options(**early, failOnDataLoss="false"), client(), nodes)["a"] == 4


def test_a_place_beyond_the_end_is_told() -> None:
    """Whatever failOnDataLoss says: that is no loss but another broker."""
    check_reachable(options(), Offsets("log", {"a": 20}), FOUND)
    for given in ({}, {"failOnDataLoss": "false"}):
        with pytest.raises(
            OffsetError, match="at offset 21 of 'a', but the broker's next offset there is 20"
        ):
            check_reachable(options(**given), Offsets("log", {"a": 21}), FOUND)


def test_a_node_that_is_gone_is_a_loss(caplog: pytest.LogCaptureFixture) -> None:
    """Or a line in the log."""
    with pytest.raises(DataLoss, match="'gone', up to offset 3, is no retaining node any more"):
        check_reachable(options(), Offsets("log", {"gone": 3}), FOUND)
    with caplog.at_level(logging.WARNING):
        check_reachable(options(failOnDataLoss="false"), Offsets("log", {"gone": 3}), FOUND)
    assert "data loss: 'gone'" in caplog.text


def test_what_is_dropped_of_a_range_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """And left out where the option allows it: partly, wholly, with a node that is gone."""
    wanted = [Range("a", 2, 8), Range("b", 0, 3), Range("gone", 1, 4)]
    with pytest.raises(
        DataLoss, match="dropped offsets 2 to 4 of 'a'; offsets 1 to 3 of 'gone'.*failOnDataLoss"
    ):
        check_loss(options(), wanted, FOUND)
    with caplog.at_level(logging.WARNING):
        kept = check_loss(options(failOnDataLoss="false"), [*wanted, Range("a", 1, 2)][:3], FOUND)
    assert kept == [Range("a", 5, 8), Range("b", 0, 3)]
    assert "3 messages, offsets 2 to 4 of 'a', are gone" in caplog.text and "of 'gone'" in caplog.text
    assert check_loss(options(), [Range("b", 0, 3)], FOUND) == [Range("b", 0, 3)]


def test_octets_become_rows_by_the_mean_size() -> None:
    """At least one; where nothing is known a message is a small one."""
    nodes = {"a": NODES["a"], "b": NODES["b"]}
    assert rows_of_bytes(nodes.values(), 8_000) == 100
    assert rows_of_bytes(nodes.values(), 1) == 1
    assert rows_of_bytes([NODES["c.d"]], 512) == 2


def test_times_are_of_each_address() -> None:
    """The others begin with their first message, and end with their last one."""
    given = options(startingTimestamp='{"a": 3}', endingTimestamp='{"b": {"0": 4}}')
    nodes = nodes_to_read(given, FOUND)
    assert starting(given, client(), nodes) == {"a": 8, "b": 0}
    assert ending(given, client(), nodes) == {"a": 20, "b": 4}


def test_a_batch_that_retention_overtook_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    """Where its beginning is the first message that is left, behind its end; what really goes back is not."""
    before, end = Offsets("log", {"b": 0}), Offsets("log", {"a": 3, "b": 7})
    for start, frozen in ((Offsets("log", {"a": 5, "b": 0}), {}), (before, {"a": 5})):
        with pytest.raises(DataLoss, match="'a' before offset 3, .* any more: the first is 5"):
            overtaken(options(), start, end, frozen, FOUND)
        kept = overtaken(options(failOnDataLoss="false"), start, end, frozen, FOUND)
        assert kept == Offsets("log", {"b": 7})
    assert "going on without them" in caplog.text
    for offset in (9, 3, 2):  # edited, nothing, or something
        start = Offsets("log", {"a": offset, "b": 0})
        assert overtaken(options(), start, end, {}, FOUND) == end


def test_a_right_that_is_missing_is_told_by_its_name() -> None:
    """Whether the query is new or has been there before."""
    found = Retained("log", {"b": NODES["b"]}, {"a": "'me' may not read 'a' by offset"})
    missing = "the right browse on 'a' is missing .*'me' may not read 'a' by offset"
    with pytest.raises(MissingRight, match=missing):
        nodes_to_read(options(), found)
    with pytest.raises(MissingRight, match=missing):
        check_reachable(options(failOnDataLoss="false"), Offsets("log", {"a": 9}), found)
    events = Retained("log", {}, {"$events": "'me' may not read the journal"})
    with pytest.raises(MissingRight, match=r"the right manage-read on '\$events' is missing"):
        nodes_to_read(options(isolation="events"), events)
