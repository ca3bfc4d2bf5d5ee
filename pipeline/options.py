"""All options of the data source and the sink as one table: names as they are documented, values as they are
used, and what is said when one is wrong.

Spark hands keys over in lower case; errors name them as they stand here. An option that is not here is an
error with the nearest name, and so is one of the source given to the sink.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final

import attrs

from amqp_broker.client.settings import parse_url
from amqp_broker.pipeline.errors import OptionError
from amqp_broker.pipeline.option_values import (
    COUNT,
    DURATION,
    FLAG,
    GROUP,
    NAME,
    PATH,
    SECTIONS,
    STAGE_ROWS,
    TIMES,
    Kind,
    WrongValue,
    one_of,
    positions_or,
    read_assigned,
    read_brokers,
    read_credentials,
    read_pattern,
    read_sections,
    read_texts,
    text_of,
    whole,
)

SOURCE: Final = "source"
SINK: Final = "sink"
BOTH: Final = (SOURCE, SINK)
EVENTS: Final = "$events"
IGNORED: Final = frozenset(
    {"path", "checkpointlocation", "queryname", "__index__", "owner", "location", "external", "provider"}
)
"""What Spark hands over that is not for us."""
OF_A_TABLE: Final = "provider"
"""What Spark hands over beside the options of a table that is made, each of which comes a second time behind
OPTION_PREFIX."""
OPTION_PREFIX: Final = "option."


@attrs.frozen
class Option:
    """One row."""

    name: str
    sides: tuple[str, ...]
    default: Any
    kind: Kind
    meaning: str
    right: str = ""
    """What the user of the login needs for it at the broker."""


@attrs.frozen
class BrokerAddress:
    """Where the broker is and who we are, as the key of a pool of connections: no password is in it."""

    urls: tuple[str, ...]
    credentials: str | None = None
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    timeout_ms: int = 30_000

    def __str__(self) -> str:
        return ", ".join(str(parse_url(url)) for url in self.urls)


SUBSCRIPTION: Final = "subscription"

OPTIONS: Final[tuple[Option, ...]] = (
    Option("amqp.url", BOTH, None,
           Kind("amqp://HOST:PORT or amqps://HOST:PORT, several with commas or semicolons", read_brokers),
           "where the broker is; after a comma another way to the same broker, tried in order; after a "
           "semicolon another broker, which has a part of each address"),
    Option("amqp.credentials", BOTH, None, Kind("env:NAME or file:PATH", read_credentials),
           "where USER:PASSWORD stands; read where the connection is made, never sent with the plan"),
    Option("amqp.tls.caFile", BOTH, None, PATH, "the authorities to trust, not the system's"),
    Option("amqp.tls.certificateFile", BOTH, None, PATH, "our certificate"),
    Option("amqp.tls.keyFile", BOTH, None, PATH, "the key of our certificate"),
    Option("amqp.timeoutMs", BOTH, 30_000, COUNT, "how long each answer is waited for"),
    Option("amqp.retryMs", (SOURCE,), 30_000, whole(0),
           "how long a task that reads tries again to reach a broker, from its last message on; 0: not at "
           "all"),
    Option("subscribe", (SOURCE,), None, Kind("addresses with commas, each once", read_texts),
           "the addresses to read; they have to retain", "`browse` on each"),
    Option("subscribePattern", (SOURCE,), None, Kind("a regular expression", read_pattern),
           "all retaining addresses that the whole expression matches, new ones too",
           "`browse`; what the user may not browse is not seen"),
    Option("assign", (SOURCE,), None, Kind('{"orders": [0]}', read_assigned),
           "as subscribe, in Kafka's form", "`browse` on each"),
    Option("table", BOTH, None, text_of("an address"),
           "for SQL: what is selected is read there, what is inserted goes there; options of both sides may "
           "stand beside it", "those of subscribe to select, those of address to insert"),
    Option("subscription", (SOURCE,), None, NAME,
           "the durable cursor of this query: its place in each address, one query at a time",
           "`browse`; another user's cursor is refused"),
    Option("startingOffsets", (SOURCE,), None, positions_or("earliest", "latest", SUBSCRIPTION),
           "where a new query begins; a stream by default where its subscription stands, else at the "
           "earliest"),
    Option("startingTimestamp", (SOURCE,), None, TIMES,
           "begin at the first message that came then or later; an address that is not named at its "
           "earliest"),
    Option("endingOffsets", (SOURCE,), None, positions_or("latest"),
           "where a batch ends (exclusive); latest by default"),
    Option("endingTimestamp", (SOURCE,), None, TIMES,
           "end before the first message that came then or later; batch only; an address that is not named "
           "at its latest"),
    Option("maxOffsetsPerTrigger", (SOURCE,), None, COUNT,
           "messages in one micro-batch, shared out over the addresses by what they have"),
    Option("maxBytesPerTrigger", (SOURCE,), None, COUNT,
           "octets in one micro-batch, by the mean size of each address' messages; at least one message"),
    Option("minOffsetsPerTrigger", (SOURCE,), None, COUNT,
           "a micro-batch waits until so many messages are there, or maxTriggerDelay is over; not the first "
           "of a run, and not with the trigger availableNow"),
    Option("maxTriggerDelay", (SOURCE,), 900_000, DURATION,
           "how long minOffsetsPerTrigger may hold a micro-batch back, from the one before on"),
    Option("maxRecordsPerPartition", (SOURCE,), None, COUNT, "messages in one task, at most"),
    Option("minPartitions", (SOURCE,), 1, COUNT,
           "tasks to split the ranges over; at least one for each address at each broker"),
    Option("failOnDataLoss", (SOURCE,), True, FLAG,
           "false goes on where messages are gone, with a log line that says which"),
    Option("lossAddress", (SOURCE,), None, text_of("an address of the broker, not one that is read"),
           "with failOnDataLoss false: where a message goes about each range that is gone, for LossListener "
           "or any consumer", "`send`; LossListener: `receive`"),
    Option("isolation", (SOURCE,), "committed", one_of("committed", "events"),
           "committed reads messages, events the broker's log of events, a row for each",
           "events: `manage-read` on `$events`"),
    Option("includeSections", (SOURCE,), SECTIONS,
           Kind(f"all, none, or a list of {', '.join(SECTIONS)}", read_sections),
           "the sections that become columns"),
    Option("columns", (SOURCE,), None, Kind("names of columns with commas, each once", read_texts),
           "the columns there are, in this order, instead of includeSections and includeRaw; what is not "
           "among them is not decoded"),
    Option("includeRaw", (SOURCE,), False, FLAG,
           "whether there is a column raw with the bare message, octet for octet"),
    Option("valueFormat", (SOURCE,), "variant", one_of("variant", "json"),
           "what values without a type of their own become: VARIANT, or STRING with JSON in it"),
    Option("address", (SINK,), None, text_of("an address"), "where rows without a column address go",
           "`send`, and `create` where there is no such queue; a column address: on each"),
    Option("guarantee", (SINK,), "exactly-once", one_of("exactly-once", "at-least-once"),
           "exactly-once stages half messages and commits an epoch at once",
           "exactly-once: `half-put` and `half-resolve` on the group, `create` and `send` on "
           "`temporary.**`, too"),
    Option("producerGroup", (SINK,), "spark", GROUP, "the half group of the broker that the sink stages in"),
    Option("producerId", (SINK,), None, NAME, "who commits epochs; by default the id of the query"),
    Option("txnAppId", (SINK,), None, NAME, "who writes, for a batch that is to be written once"),
    Option("txnVersion", (SINK,), None, whole(0),
           "the number of this write of txnAppId; one that is committed is skipped"),
    Option("stageRows", (SINK,), 1_000, STAGE_ROWS, "messages on their way without an outcome"),
    Option("commitTimeoutMs", (SINK,), 60_000, COUNT, "how long a commit may take"),
)  # fmt: skip
_BY_KEY: Final = {option.name.lower(): option for option in OPTIONS}


class Options:
    """What was given, checked. `options["minPartitions"]` is the value or the default; immutable, and can be
    pickled.
    """

    def __init__(self, side: str, values: dict[str, Any], of_a_table: bool = False) -> None:
        self.side = side
        self.of_a_table = of_a_table
        """Whether the option table said where to."""
        self._values = values

    def __getitem__(self, name: str) -> Any:
        option = _BY_KEY[name.lower()]
        return self._values.get(option.name, option.default)

    def __repr__(self) -> str:
        return f"Options({self.side!r}, {self._values!r})"

    def given(self, name: str) -> bool:
        """Whether the user said it."""
        return _BY_KEY[name.lower()].name in self._values

    @property
    def broker(self) -> BrokerAddress:
        """The address to connect to; of several brokers the first one's."""
        return self.brokers[0]

    @property
    def brokers(self) -> tuple[BrokerAddress, ...]:
        """The addresses of all brokers, in the order given: the place is the partition."""
        return tuple(
            BrokerAddress(
                urls,
                self["amqp.credentials"],
                self["amqp.tls.caFile"],
                self["amqp.tls.certificateFile"],
                self["amqp.tls.keyFile"],
                self["amqp.timeoutMs"],
            )
            for urls in self["amqp.url"]
        )


def read_options(raw: Mapping[str, str], side: str) -> Options:
    """The options of one side. Raises OptionError for what is unknown, missing or wrong."""
    values: dict[str, Any] = {}
    of_a_table = any(key.lower() == "table" for key in raw)
    for key, text in raw.items():
        if not is_ours(key):
            continue
        option = _option(key, side, of_a_table)
        value = _value(option, str(text))
        if side in option.sides:
            values[option.name] = value
    if of_a_table:
        _spread_table(values, side)
    if "amqp.url" not in values:
        raise OptionError(
            f"option amqp.url is missing: expected {_BY_KEY['amqp.url'].kind.expected}, "
            'as in .option("amqp.url", "amqp://127.0.0.1:5672"). If it is an option of a table: Spark tells '
            "a source in Python the options of a table only where CREATE TABLE has no list of columns (say "
            "them by the option columns)"
        )
    if ("amqp.tls.certificateFile" in values) != ("amqp.tls.keyFile" in values):
        raise OptionError(
            "expected both of the options amqp.tls.certificateFile and amqp.tls.keyFile, or neither"
        )
    options = Options(side, values, of_a_table)
    if side == SOURCE:
        _check_source(options)
    return options


def is_ours(key: str) -> bool:
    """Whether it is an option of the data source, and not something else that Spark hands over."""
    return key.lower() not in IGNORED and not key.lower().startswith(OPTION_PREFIX)


def _spread_table(values: dict[str, Any], side: str) -> None:
    """An address of a table is the one to read, or the one to write to."""
    address = values.pop("table")
    name = "subscribe" if side == SOURCE else "address"
    if name in values or values.get("isolation") == "events":
        raise OptionError(f"expected one of the options table and {name}, found both")
    values[name] = (address,) if side == SOURCE else address


def _option(key: str, side: str, of_a_table: bool) -> Option:
    option = _BY_KEY.get(key.lower())
    if option is not None and (side in option.sides or of_a_table):
        return option
    if option is not None:
        raise OptionError(f"option {option.name} is one of the {option.sides[0]}, not of the {side}")
    names = {known: row.name for known, row in _BY_KEY.items() if side in row.sides or of_a_table}
    near = get_close_matches(key.lower(), names, 1)
    hint = f"did you mean {names[near[0]]}?" if near else f"there are {', '.join(sorted(names.values()))}"
    raise OptionError(f"unknown option {key}: {hint}")


def _value(option: Option, text: str) -> Any:
    try:
        return option.kind.read(text)
    except WrongValue:
        expected = option.kind.expected
        raise OptionError(f"option {option.name}: expected {expected}, found {text[:200]!r}") from None
    except OptionError as error:
        if str(error).startswith("option "):
            raise
        raise OptionError(f"option {option.name}: {error}") from None


def _check_source(options: Options) -> None:
    chosen = [name for name in ("subscribe", "subscribePattern", "assign") if options.given(name)]
    if options["isolation"] == "events":
        if chosen and options["subscribe"] != (EVENTS,):
            raise OptionError(
                f"option isolation: events reads {EVENTS} and nothing else; leave out the option "
                f"{chosen[0]}, and filter the rows by their column address"
            )
    elif len(chosen) != 1:
        found = f"found {' and '.join(chosen)}" if chosen else "found none of them"
        raise OptionError(f"expected one of the options subscribe, subscribePattern and assign, {found}")
    for one, other in (
        ("startingOffsets", "startingTimestamp"), ("endingOffsets", "endingTimestamp"),
        ("columns", "includeSections"), ("columns", "includeRaw"),
    ):  # fmt: skip
        if options.given(one) and options.given(other):
            raise OptionError(f"expected one of the options {one} and {other}, found both")
    if options.given("lossAddress"):
        if options["failOnDataLoss"]:
            raise OptionError(
                "option lossAddress: expected the option failOnDataLoss to be false with it; else a query "
                "ends where messages are gone"
            )
        if options["lossAddress"] in addresses_of(options):
            raise OptionError("option lossAddress: it is one of the addresses to read")
    if options["isolation"] == "events" and len(options.brokers) > 1:
        raise OptionError(
            "option isolation: events reads the log of one broker, found several in the option amqp.url; "
            "read each by a query of its own"
        )
    for name in ("startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp"):
        if isinstance(options[name], dict):
            _check_addresses(options, name)
            for address, at in options[name].items():
                if isinstance(at, dict) or name.endswith("Offsets"):
                    _check_partitions(options, name, address, at)
    for address, partitions in (options["assign"] or {}).items():
        _check_partitions(options, "assign", address, dict.fromkeys(partitions, 0))


def _check_partitions(options: Options, name: str, address: str, found: int | dict[int, int]) -> None:
    """The partitions of an address are the brokers; an offset is of one partition."""
    count = len(options.brokers)
    if isinstance(found, dict):
        stray = [partition for partition in found if partition >= count]
        if stray:
            wanted = "the one partition 0" if count == 1 else f"partitions 0 to {count - 1}"
            raise OptionError(
                f"option {name}: expected {wanted} of address {address!r}, found {stray[0]}: there is one "
                "for each broker of the option amqp.url"
            )
    elif count > 1 and found >= 0:
        raise OptionError(
            f"option {name}: expected an offset of {address!r} for each of {count} brokers, as in "
            f'{{"{address}": {{"0": {found}, "1": ...}}}}, found one: {found}'
        )


def _check_addresses(options: Options, name: str) -> None:
    """Offsets and times are for addresses that are read."""
    if options.given("subscribePattern"):
        return
    stray = set(options[name]) - set(addresses_of(options))
    if stray:
        raise OptionError(
            f"option {name}: it names {sorted(stray)[0]!r}, which is not among the addresses to "
            f"read: {', '.join(addresses_of(options))}"
        )


def addresses_of(options: Options) -> tuple[str, ...]:
    """The addresses that are named; empty for a pattern."""
    if options["isolation"] == "events":
        return (EVENTS,)
    found: tuple[str, ...] = options["subscribe"] or tuple(options["assign"] or ())
    return found


def addresses_at(options: Options, partition: int) -> tuple[str, ...]:
    """Those of them that are read at this broker: all, unless `assign` says otherwise."""
    assigned = options["assign"]
    if assigned is None:
        return addresses_of(options)
    return tuple(address for address, partitions in assigned.items() if partition in partitions)


def check_streaming(options: Options) -> None:
    """What holds for streams only. Raises OptionError."""
    for name in ("endingOffsets", "endingTimestamp"):
        if options.given(name):
            raise OptionError(
                f"option {name} is for batches; a stream has no end: use the trigger availableNow"
            )
    fewest, most = options["minOffsetsPerTrigger"], options["maxOffsetsPerTrigger"]
    if fewest is not None and most is not None and fewest > most:
        raise OptionError(
            f"option minOffsetsPerTrigger: expected at most maxOffsetsPerTrigger, {most}, found {fewest}"
        )
    if not options.given("subscription"):
        raise OptionError(
            "option subscription is missing: a stream needs a name of its own, which keeps its place at the "
            f"broker; expected {NAME.expected}, one name for each checkpoint"
        )


def check_batch(options: Options) -> None:
    """What holds for batches only. Raises OptionError."""
    for name in ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"):
        if options.given(name):
            raise OptionError(f"option {name} is for streams; a batch ends where endingOffsets says")
    if options["startingOffsets"] == SUBSCRIPTION and not options.given("subscription"):
        raise OptionError(
            "option startingOffsets: subscription needs the option subscription, which is missing"
        )
