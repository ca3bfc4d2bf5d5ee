"""The table of options: what is taken, and what is said of what is not."""

from __future__ import annotations

import pickle

import pytest

from amqp_broker.pipeline.errors import OptionError
from amqp_broker.pipeline.option_values import SECTIONS
from amqp_broker.pipeline.options import (
    OPTIONS,
    SINK,
    SOURCE,
    BrokerAddress,
    addresses_at,
    check_batch,
    check_streaming,
    read_options,
)

URL = "amqp://127.0.0.1:5672"
READING = {"amqp.url": URL, "subscribe": "orders"}


def wrong(side: str = SOURCE, **options: str) -> str:
    """What is said of these options, besides the usual ones."""
    with pytest.raises(OptionError) as caught:
        read_options((READING if side == SOURCE else {"amqp.url": URL}) | options, side)
    return str(caught.value)


def test_keys_come_in_lower_case_and_values_typed() -> None:
    """As Spark hands them over; defaults stand where nothing was said."""
    options = read_options(
        {
            "amqp.url": f"{URL}, amqp://other",
            "subscribe": "a,b",
            "maxoffsetspertrigger": "5",
            "failondataloss": "FALSE",
            "includesections": "body,header",
            "startingtimestamp": "2026-01-31T08:00:00+00:00",
        },
        SOURCE,
    )
    assert options["maxOffsetsPerTrigger"] == 5
    assert options["failOnDataLoss"] is False
    assert options["includeSections"] == ("body", "header")
    assert options["startingTimestamp"] == 1_769_846_400_000
    assert options["minPartitions"] == 1
    assert options["subscribe"] == ("a", "b")
    assert options.given("failOnDataLoss") and not options.given("isolation")
    assert options.broker == BrokerAddress((URL, "amqp://other"))
    assert pickle.loads(pickle.dumps(options))["maxOffsetsPerTrigger"] == 5


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("suscribe", "x", "unknown option suscribe: did you mean subscribe?"),
        ("maxOffsetPerTrigger", "1", "did you mean maxOffsetsPerTrigger?"),
        ("bootstrap", "x", "unknown option bootstrap: there are"),
        ("guarantee", "at-least-once", "option guarantee is one of the sink, not of the source"),
        ("minPartitions", "0", "option minPartitions: expected a whole number above 0, found '0'"),
        ("minPartitions", "many", "option minPartitions: expected a whole number above 0, found 'many'"),
        ("failOnDataLoss", "no", "option failOnDataLoss: expected true or false, found 'no'"),
        ("isolation", "dirty", "option isolation: expected committed or events, found 'dirty'"),
        ("includeSections", "body,tail", "option includeSections: expected all, none, or a list of header"),
        ("startingOffsets", "first", "option startingOffsets: expected earliest, latest, subscription, or"),
        ("startingOffsets", "{", "option startingOffsets: expected earliest, latest"),
        ("startingOffsets", '{"orders": -3}', "startingOffsets: expected a whole number from 0 on, -2 for"),
        ("startingOffsets", '{"orders": true}', "as offset of address 'orders', found True"),
        ("startingOffsets", '{"orders": {"1": 5}}', "the one partition 0 of address 'orders', found"),
        ("startingOffsets", '{"returns": 5}', "option startingOffsets: it names 'returns'"),
        ("endingOffsets", '{"returns": 5}', "option endingOffsets: it names 'returns'"),
        ("endingOffsets", "earliest", "option endingOffsets: expected latest, or JSON"),
        ("startingTimestamp", "2026-01-31T08:00:00", "startingTimestamp: expected milliseconds since 1970"),
        ("subscription", "a b", "option subscription: expected 1 to 128 of A-Z a-z 0-9 . _ -, found 'a b'"),
        ("amqp.url", "http://x", "option amqp.url: expected a URL amqp://HOST:PORT"),
        ("amqp.url", f"{URL};{URL}", "option amqp.url: expected each URL once"),
        ("amqp.url", f"{URL};", "option amqp.url: expected amqp://HOST:PORT"),
        ("startingOffsets", '{"orders": {"x": 5}}', "startingOffsets: expected partitions 0, 1, ... of"),
        ("amqp.url", " ", "option amqp.url: expected amqp://HOST:PORT"),
        ("amqp.tls.keyFile", "/k", "both of the options amqp.tls.certificateFile and amqp.tls.keyFile"),
        ("assign", '{"orders": [0]}', "subscribe, subscribePattern and assign, found subscribe and"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_by_its_documented_name(name: str, value: str, said: str) -> None:
    """With what was expected and what came."""
    assert said in wrong(**{name: value})


def test_passwords_are_never_shown() -> None:
    """Neither of the credentials nor of the URL."""
    assert "secret" not in wrong(**{"amqp.credentials": "me:secret"})
    assert "secret" not in wrong(**{"amqp.url": "amqp://me:secret@host:port"})
    assert "secret" not in str(BrokerAddress(("amqp://me:secret@host:1",)))


def test_an_address_is_needed_just_once() -> None:
    """None at all is said; a pattern has to be one; Kafka's assign is taken."""
    with pytest.raises(OptionError, match="found none of them"):
        read_options({"amqp.url": URL}, SOURCE)
    with pytest.raises(OptionError, match="option subscribePattern: '\\[' is no regular expression"):
        read_options({"amqp.url": URL, "subscribePattern": "["}, SOURCE)
    assert read_options({"amqp.url": URL, "assign": '{"b": [0], "a": [0]}'}, SOURCE)["assign"] == {
        "a": (0,),
        "b": (0,),
    }
    with pytest.raises(OptionError, match="option assign: expected"):
        read_options({"amqp.url": URL, "assign": '{"b": [1]}'}, SOURCE)


def test_events_are_read_without_an_address() -> None:
    """Another one beside is an error."""
    assert read_options({"amqp.url": URL, "isolation": "events"}, SOURCE)["isolation"] == "events"
    assert "isolation: events reads $events and nothing else" in wrong(isolation="events")


def test_the_url_is_needed() -> None:
    """An example is given."""
    with pytest.raises(OptionError, match="option amqp.url is missing"):
        read_options({}, SINK)


def test_two_starts_or_two_ends_are_one_too_many() -> None:
    """By offset and by time."""
    assert "startingOffsets and startingTimestamp, found both" in wrong(
        startingOffsets="latest", startingTimestamp="5"
    )
    assert "endingOffsets and endingTimestamp, found both" in wrong(
        endingOffsets="latest", endingTimestamp="5"
    )


def test_semicolons_are_between_brokers() -> None:
    """Commas between the ways to one; an offset is of one broker, and the log of events, too."""
    two = {"amqp.url": f"{URL}, amqp://also ; amqp://b"}
    options = read_options(READING | two | {"startingOffsets": '{"orders": {"1": 5}}'}, SOURCE)
    assert options.brokers == (BrokerAddress((URL, "amqp://also")), BrokerAddress(("amqp://b",)))
    assert options.broker == options.brokers[0]
    read_options(READING | two | {"startingOffsets": '{"orders": -1}'}, SOURCE)
    for given, said in (
        ({"startingOffsets": '{"orders": 5}'}, "offset of 'orders' for each of 2 brokers, .*, found one: 5"),
        (
            {"endingOffsets": '{"orders": {"2": 5}}'},
            "expected partitions 0 to 1 of address 'orders', found 2",
        ),
        ({"isolation": "events", "subscribe": "$events"}, "the log of one broker, found several"),
    ):
        with pytest.raises(OptionError, match=said):
            read_options(READING | two | given, SOURCE)
    assigned = two | {"assign": '{"b": [1], "a": [1, 0]}'}
    options = read_options(assigned, SOURCE)
    assert [addresses_at(options, partition) for partition in (0, 1)] == [("a",), ("a", "b")]
    with pytest.raises(
        OptionError, match="option assign: expected partitions 0 to 1 of address 'b', found 2"
    ):
        read_options(two | {"assign": '{"b": [2]}'}, SOURCE)


def test_streams_and_batches_have_options_of_their_own() -> None:
    """A stream needs its subscription, and has no end; a batch has no trigger."""
    check_batch(read_options(READING, SOURCE))
    check_streaming(read_options(READING | {"subscription": "s"}, SOURCE))
    for options, said in (
        ({}, "option subscription is missing"),
        ({"subscription": "s", "endingOffsets": "latest"}, "option endingOffsets is for batches"),
    ):
        with pytest.raises(OptionError, match=said):
            check_streaming(read_options(READING | options, SOURCE))
    for options, said in (
        ({"maxOffsetsPerTrigger": "1"}, "option maxOffsetsPerTrigger is for streams"),
        ({"startingOffsets": "subscription"}, "needs the option subscription"),
    ):
        with pytest.raises(OptionError, match=said):
            check_batch(read_options(READING | options, SOURCE))


def test_what_spark_adds_is_passed_over() -> None:
    """The checkpoint's location is no option of ours."""
    assert not read_options({"amqp.url": URL, "checkpointlocation": "/x", "path": "/y"}, SINK).given(
        "address"
    )


def test_a_table_has_the_options_of_both_sides() -> None:
    """Its address is where each side goes; without it an option of the other side is an error."""
    raw = {"amqp.url": URL, "table": "t", "minPartitions": "3", "producerGroup": "g", "provider": "amqp"}
    raw |= {"option.table": "t", "owner": "me"}
    source = read_options(raw, SOURCE)
    assert source["subscribe"] == ("t",) and source["minPartitions"] == 3
    assert read_options(raw, SINK)["address"] == "t" and read_options(raw, SINK)["producerGroup"] == "g"
    with pytest.raises(OptionError, match="one of the options table and subscribe, found both"):
        read_options(raw | {"subscribe": "u"}, SOURCE)
    with pytest.raises(OptionError, match="unknown option minPartition: did you mean minPartitions"):
        read_options({"amqp.url": URL, "table": "t", "minPartition": "3"}, SINK)


def test_times_and_durations() -> None:
    """A time for all, for each address, for each broker; a duration with its unit."""
    when = "2026-01-31T08:00:00+00:00"
    for text, expected in (
        ("5", 5), (when, 1_769_846_400_000), (f'{{"orders": "{when}"}}', {"orders": 1_769_846_400_000}),
        ('{"orders": {"0": 7}}', {"orders": {0: 7}}),
    ):  # fmt: skip
        assert read_options(READING | {"startingTimestamp": text}, SOURCE)["startingTimestamp"] == expected
    for text in ('{"orders": true}', "{}", '{"orders": "soon"}', "{", '{"orders": {}}'):
        assert "option endingTimestamp: expected milliseconds" in wrong(endingTimestamp=text)
    assert "it names 'returns', which is not among" in wrong(endingTimestamp='{"returns": 5}')
    assert "the one partition 0" in wrong(endingTimestamp='{"orders": {"1": 5}}')
    for text, expected_ms in (("250", 250), ("250ms", 250), ("3s", 3_000), ("15m", 900_000), ("1h", 3.6e6)):
        assert read_options(READING | {"maxTriggerDelay": text}, SOURCE)["maxTriggerDelay"] == expected_ms
    assert "option maxTriggerDelay: expected a number of milliseconds" in wrong(maxTriggerDelay="soon")


def test_options_that_do_not_go_together() -> None:
    """Each says the other one."""
    for given, said in (
        ({"columns": "body", "includeRaw": "true"}, "columns and includeRaw, found both"),
        ({"lossAddress": "x"}, "failOnDataLoss to be false"),
        ({"lossAddress": "orders", "failOnDataLoss": "false"}, "one of the addresses to read"),
    ):
        assert said in wrong(**given)
    few = READING | {"subscription": "s", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}
    with pytest.raises(OptionError, match="at most maxOffsetsPerTrigger, 8, found 9"):
        check_streaming(read_options(few, SOURCE))


def test_the_sink_has_bounds() -> None:
    """Of what the broker takes."""
    assert "option stageRows: expected 1 to 2000, found '2001'" in wrong(SINK, stageRows="2001")
    assert "option producerGroup: expected 1 to 64" in wrong(SINK, producerGroup="g" * 65)
    assert read_options({"amqp.url": URL, "txnVersion": "0"}, SINK)["txnVersion"] == 0


def test_the_table_is_whole() -> None:
    """Names differ in lower case, too, and each row says what it expects and means."""
    assert len({option.name.lower() for option in OPTIONS}) == len(OPTIONS)
    assert all(option.kind.expected and option.meaning and option.sides for option in OPTIONS)
    assert read_options(READING | {"includeSections": "all"}, SOURCE)["includeSections"] == SECTIONS
    assert read_options(READING | {"includeSections": "none"}, SOURCE)["includeSections"] == ()
