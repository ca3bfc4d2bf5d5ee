"""The readers of Spark's data source `amqp`: a batch, and a stream with admission control and AvailableNow.

    driver    initialOffset, latestOffset, partitions, commit    over `$retained`, of each broker
    worker    read_range: one link for each range of one address at one broker, Arrow record batches out

A partition is a broker, by its place in the option amqp.url. Objects of this module are pickled: connections
are made where they are needed, never in a constructor.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from amqp_broker.pipeline import push_down
from amqp_broker.pipeline.connections import connection_to
from amqp_broker.pipeline.errors import (
    BrokerRefused,
    BrokerUnreachable,
    OffsetError,
    OptionError,
    SchemaError,
)
from amqp_broker.pipeline.event_schema import EVENT_COLUMNS
from amqp_broker.pipeline.loss_messages import send_loss
from amqp_broker.pipeline.offsets import (
    Offsets,
    Place,
    Range,
    admit,
    check_stores,
    ranges_between,
    read_place,
    split,
)
from amqp_broker.pipeline.option_values import SECTIONS
from amqp_broker.pipeline.options import (
    SUBSCRIPTION,
    Options,
    addresses_at,
    check_batch,
    check_streaming,
)
from amqp_broker.pipeline.planning import (
    check_loss,
    check_reachable,
    ending,
    log,
    missing_in,
    nodes_at_all,
    nodes_to_read,
    overtaken,
    rows_of_bytes,
    starting,
    tell_loss,
    where,
)
from amqp_broker.pipeline.retained_client import (
    RETRY_S,
    Dropped,
    Node,
    RangeReader,
    Retained,
    RetainedClient,
)
from amqp_broker.pipeline.rows import Messages, columns_of, ddl_of
from amqp_broker.pipeline.source_broker import BrokerPlace

POLL_MS: Final = 1_000
"""How long a stream that has nothing new waits at the broker; Spark asks again at once."""
TURN_MS: Final = 100
"""The part of that for each broker, where there are several, in turn."""
BATCH_ROWS: Final = 4_096
BATCH_BYTES: Final = 8 * 1_048_576
"""A record batch is full with so many rows or octets, whichever comes first."""
GC_OBJECTS: Final = 100_000


class AmqpBatchReader(DataSourceReader):
    """Reads what the nodes have when the query is planned."""

    def __init__(self, options: Options, schema: StructType) -> None:
        check_batch(options)
        check_schema(options, schema)
        self._options = options
        self._schema = schema
        meanings = push_down.EVENTS if options["isolation"] == "events" else push_down.MESSAGES
        self._pushed = push_down.Pushed(meanings)
        self.pushFilters = self._pushed

    def partitions(self) -> list[InputPartition]:
        """The ranges between start and end, as far as filters want them; none where there are no messages."""
        options = self._options
        clients = [RetainedClient(broker) for broker in options.brokers]
        parts: list[Range] = []
        lost: list[Range] = []
        try:
            found = [client.describe(addresses_at(options, number)) for number, client in enumerate(clients)]
            check_stores(Place(()), [each.store_id for each in found], options.brokers)
            every = nodes_at_all(options, found)
            for partition, nodes in enumerate(every):
                ranges = self._ranges(clients[partition], nodes, partition)
                parts += check_loss(options, ranges, found[partition])
                lost += missing_in(ranges, found[partition])
        finally:
            for client in clients:
                client.close()
        return _tasks(options, parts, lost, found)

    def _ranges(self, client: RetainedClient, nodes: dict[str, Node], partition: int) -> list[Range]:
        """What one broker has of it."""
        options = self._options
        start = self._start(client, nodes, partition)
        end = ending(options, client, nodes, partition)
        for address in nodes:
            if start[address] > end[address]:
                raise OptionError(
                    f"option {'endingTimestamp' if options.given('endingTimestamp') else 'endingOffsets'}: "
                    f"expected at least {start[address]} for {address!r}{where(options, partition)}, where "
                    f"the query begins, found {end[address]}"
                )
        parts = [
            self._wanted(client, Range(address, start[address], end[address], partition))
            for address in sorted(nodes)
        ]
        return [part for part in parts if part.low < part.high]

    def _wanted(self, client: RetainedClient, part: Range) -> Range:
        """What of it the filters want; an end before its beginning says: nothing."""
        wanted = self._pushed.wanted
        if not wanted.has(part.address, part.partition):
            return attrs.evolve(part, high=part.low)
        low, high = wanted.narrowed(part.low, part.high)
        if low < high and wanted.since_ms is not None:
            low = max(low, client.find(part.address, wanted.since_ms))
        if low < high and wanted.until_ms is not None:
            high = min(high, client.find(part.address, wanted.until_ms))
        return attrs.evolve(part, low=low, high=high)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The record batches of one task. Runs in a worker."""
        return read_range(self._options, self._schema, partition)

    def _start(self, client: RetainedClient, nodes: dict[str, Node], partition: int) -> dict[str, int]:
        if self._options["startingOffsets"] != SUBSCRIPTION:
            return starting(self._options, client, nodes, partition)
        positions = client.cursor(self._options["subscription"])
        if nodes and not positions:
            raise OptionError(
                f"option subscription: the broker{where(self._options, partition)} has no cursor "
                f"{self._options['subscription']!r}; a stream makes one"
            )
        return {address: positions.get(address, node.first) for address, node in nodes.items()}


class AmqpStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads micro-batches. The place of the query is in its checkpoint; the named cursor of the option
    subscription, one at each broker, keeps where batch 0 began (Spark asks again when that is repeated),
    keeps other queries out, and follows one batch behind.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        check_streaming(options)
        check_schema(options, schema)
        self._options = options
        self._schema = schema
        self._brokers = [BrokerPlace(options, partition) for partition in range(len(options.brokers))]
        self._latest: dict[str, Any] | None = None
        self._batch_due_s = 0.0
        """By the monotonic clock: from when on a batch goes, however few messages there are."""

    # --- the driver's side

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins. Asked again until batch 0 is done, and the answer is the same."""
        found = self._checked(Place(()))[1]
        every = nodes_at_all(self._options, found)
        begins = [broker.begin(nodes) for broker, nodes in zip(self._brokers, every, strict=True)]
        given = self._options["startingOffsets"]
        fresh = given is not None or self._options.given("startingTimestamp")
        if fresh and given != SUBSCRIPTION and any(broker.moved for broker in self._brokers):
            # A cursor has moved, so batch 0 was done once, or it began elsewhere: this is a new query, and
            # its options say where it begins.
            for broker, begin in zip(self._brokers, begins, strict=True):
                broker.begin_anew(begin)
        # Asked for twice in one run as well: what was told once stays.
        return Place(
            tuple(
                Offsets(there.store_id, {address: broker.stands[address] for address in nodes})
                for broker, there, nodes in zip(self._brokers, found, every, strict=True)
            )
        ).to_dict()

    def getDefaultReadLimit(self) -> ReadLimit:
        """By maxOffsetsPerTrigger or maxBytesPerTrigger."""
        if self._options.given("maxOffsetsPerTrigger"):
            return ReadMaxRows(self._options["maxOffsetsPerTrigger"])
        if self._options.given("maxBytesPerTrigger"):
            return ReadMaxBytes(self._options["maxBytesPerTrigger"])
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """The query ends where the nodes end now."""
        every = nodes_at_all(self._options, [broker.client.describe() for broker in self._brokers])
        for broker, nodes in zip(self._brokers, every, strict=True):
            broker.target = {address: node.next for address, node in nodes.items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """How far the next batch goes; the start where there is nothing new."""
        begin, found = self._checked(read_place(start))
        every = nodes_at_all(self._options, found)
        for broker, place, nodes in zip(self._brokers, begin.brokers, every, strict=True):
            broker.hold_from(place, nodes)
        at = [
            self._readable(broker.at(place, nodes), nodes)
            for broker, place, nodes in zip(self._brokers, begin.brokers, every, strict=True)
        ]
        if self._waits() and not any(map(_has_more, every, at)):
            self._wait(at)
            begin, found = self._checked(begin)
            every = [
                {address: node for address, node in there.nodes.items() if address in known}
                for there, known in zip(found, at, strict=True)
            ]
        ends = [
            {address: max(known[address], broker.end(node)) for address, node in nodes.items()}
            for broker, known, nodes in zip(self._brokers, at, every, strict=True)
        ]
        held = self._too_few(at, ends)
        admitted = at if held else self._admitted(at, ends, every, limit)
        behind = sum(_together(ends).values()) - sum(_together(admitted).values())
        self._latest = _moved(begin, ends).to_dict() | {"behind": behind}
        if held:
            self._wait(ends)
            return begin.to_dict()
        return _moved(begin, admitted).to_dict()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """How far the nodes went when they were last looked at, and how many messages behind that the batch
        stays: Spark shows it as latestOffset in the progress, and does nothing else with it.
        """
        return self._latest

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a batch. The same start and end give the same messages, or an error."""
        finish, found = self._checked(read_place(end))
        begin = self._of_these(read_place(start), found)
        parts: list[Range] = []
        lost: list[Range] = []
        for partition, (broker, there) in enumerate(zip(self._brokers, found, strict=True)):
            place = begin.brokers[partition]
            broker.hold_from(place, nodes_to_read(self._options, there, partition))
            end_there = overtaken(self._options, place, finish.brokers[partition], broker.frozen, there)
            ranges = ranges_between(place, end_there, broker.frozen, partition)
            parts += check_loss(self._options, ranges, there)
            lost += missing_in(ranges, there)
        return _tasks(self._options, parts, lost, found)

    def commit(self, end: dict[str, Any]) -> None:
        """Moves the cursors. Never raises: the place of the query is in the checkpoint."""
        name = self._options["subscription"]
        try:
            places = read_place(end).brokers
        except Exception as error:
            log.warning("the cursor %s stays behind: %s", name, error)
            return
        for broker, place in zip(self._brokers, places, strict=False):
            try:
                if place.positions:
                    broker.client.move(name, place.positions)
            except Exception as error:
                log.warning("the cursor %s stays behind: %s", name, error)

    def stop(self) -> None:
        """Lets the cursors go. Spark does not always call this; the end of the process does the same."""
        for broker in self._brokers:
            broker.close()

    # --- the worker's side

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The record batches of one task. Runs in a worker."""
        return read_range(self._options, self._schema, partition)

    # --- parts

    def _checked(self, place: Place) -> tuple[Place, list[Retained]]:
        """The place at all brokers, and what they have now. Raises OffsetError where it is not in them."""
        found = [
            broker.client.describe(addresses_at(self._options, number))
            for number, broker in enumerate(self._brokers)
        ]
        known = self._of_these(place, found)
        for partition, (each, there) in enumerate(zip(known.brokers, found, strict=True)):
            check_reachable(self._options, each, there, partition)
        return known, found

    def _of_these(self, place: Place, found: list[Retained]) -> Place:
        return check_stores(place, [each.store_id for each in found], self._options.brokers)

    def _readable(self, at: dict[str, int], nodes: Mapping[str, Node]) -> dict[str, int]:
        """Behind what is lost already, where the query goes on without: the limits count messages, so that a
        gap of any size is one step.
        """
        if self._options["failOnDataLoss"]:
            return at
        return {address: max(offset, nodes[address].first) for address, offset in at.items()}

    def _too_few(self, at: list[dict[str, int]], ends: list[dict[str, int]]) -> bool:
        """Whether the batch is held back by minOffsetsPerTrigger; else the time goes on from here."""
        fewest = self._options["minOffsetsPerTrigger"]
        begin, end = _together(at), _together(ends)
        rows = sum(end[key] - begin[key] for key in end)
        now_s = time.monotonic()
        if fewest is not None and self._waits() and 0 < rows < fewest and now_s < self._batch_due_s:
            return True
        if rows:
            self._batch_due_s = now_s + self._options["maxTriggerDelay"] / 1_000
        return False

    def _waits(self) -> bool:
        return self._brokers[0].target is None

    def _wait(self, at: list[dict[str, int]]) -> None:
        """Until a broker has more, or the time is over: at the one there is, or at each in turn."""
        if len(self._brokers) == 1:
            self._brokers[0].client.wait(at[0], POLL_MS)
            return
        until = time.monotonic() + POLL_MS / 1_000
        while time.monotonic() < until:
            for broker, known in zip(self._brokers, at, strict=True):
                if known and _has_more(broker.wait(known, TURN_MS).nodes, known):
                    return

    def _admitted(
        self, at: list[dict[str, int]], ends: list[dict[str, int]], every: list[dict[str, Node]],
        limit: ReadLimit,
    ) -> list[dict[str, int]]:  # fmt: skip
        if isinstance(limit, ReadAllAvailable):
            return ends
        begin, end = _together(at), _together(ends)
        rows = sum(end[key] - begin[key] for key in end)
        if isinstance(limit, ReadMaxRows):
            rows = min(rows, limit.max_rows)
        octets = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._options["maxBytesPerTrigger"]
        if octets is not None:
            rows = min(rows, rows_of_bytes((node for nodes in every for node in nodes.values()), octets))
        admitted = admit(begin, end, rows)
        return [
            {address: admitted[address, partition] for address in each} for partition, each in enumerate(ends)
        ]


def _tasks(
    options: Options, parts: list[Range], lost: list[Range], found: list[Retained]
) -> list[InputPartition]:
    """By address and broker, and as many as are asked for; and those that tell what is lost, which know in
    which batch they are.
    """
    ordered = sorted(parts, key=lambda part: (part.address, part.partition))
    tasks = split(ordered, options["minPartitions"], options["maxRecordsPerPartition"])
    tellers = lost if options.given("lossAddress") else []
    return [AmqpRange(task, found[task.partition].store_id) for task in tasks] + [
        AmqpRange(part, found[part.partition].store_id, lost=True) for part in tellers
    ]


def _has_more(nodes: Mapping[str, Node], at: Mapping[str, int]) -> bool:
    return any(address in at and node.next > at[address] for address, node in nodes.items())


def _together(every: list[dict[str, int]]) -> dict[tuple[str, int], int]:
    """Offsets of all brokers, by address and partition."""
    return {
        (address, partition): offset
        for partition, each in enumerate(every)
        for address, offset in each.items()
    }


def _moved(begin: Place, ends: list[dict[str, int]]) -> Place:
    """The place with these offsets; what is not read any more stays."""
    places = zip(begin.brokers, ends, strict=True)
    return Place(tuple(Offsets(place.store_id, place.positions | end) for place, end in places))


# --- the schema, and the worker's side


def columns(options: Options) -> tuple[tuple[str, str], ...]:
    """Name and Spark type of each column that these options make."""
    if options["isolation"] == "events":
        if options.given("columns"):
            raise OptionError("option columns: events have all of theirs; say a schema to have fewer")
        return EVENT_COLUMNS
    if options.given("columns"):
        known = dict(columns_of(SECTIONS, True, options["valueFormat"]))
        for name in options["columns"]:
            if name not in known:
                raise OptionError(f"option columns: there is no {name!r}; there are {', '.join(known)}")
        return tuple((name, known[name]) for name in options["columns"])
    return columns_of(options["includeSections"], options["includeRaw"], options["valueFormat"])


def schema_of(options: Options) -> str:
    """The columns that these options make, as a schema."""
    return ddl_of(columns(options))


def check_schema(options: Options, schema: StructType) -> None:
    """Raises SchemaError for a column of the user's schema that there is not, or not of that type."""
    known = {name: kind.replace("`", "") for name, kind in columns(options)}
    for field in schema:
        expected = known.get(field.name)
        if expected is None:
            raise SchemaError(
                f"unknown column {field.name!r} in the schema: there are {', '.join(known)} (by the options "
                "includeSections and includeRaw)"
            )
        if field.dataType.simpleString() != expected:
            raise SchemaError(
                f"column {field.name!r} of the schema: expected {expected}, found "
                f"{field.dataType.simpleString()}"
            )


class AmqpRange(InputPartition):
    """One task: a range of one address at one broker, whose store has this uuid; one that is lost is only
    told.
    """

    def __init__(self, wanted: Range, store_id: str, *, lost: bool = False) -> None:
        super().__init__(None)
        self.wanted = wanted
        self.store_id = store_id
        self.lost = lost


def read_range(options: Options, schema: StructType, partition: InputPartition) -> Iterator[Any]:
    """The record batches of one task. Runs in a worker."""
    if not isinstance(partition, AmqpRange):
        return  # nothing to read: Spark made one partition up
    if partition.lost:
        send_loss(options, partition.wanted)
        return
    from pyspark.sql.pandas.types import to_arrow_schema

    from amqp_broker.pipeline.arrow_rows import RowBatches
    from amqp_broker.pipeline.event_rows import EventBatches

    # Messages make many small objects and no cycles: looking for some takes a tenth of the time.
    gc.set_threshold(GC_OBJECTS)
    kind = EventBatches if options["isolation"] == "events" else RowBatches
    batches = kind(to_arrow_schema(schema, timezone="UTC"))
    for messages in _gathered(_messages(options, partition)):
        yield batches.batch(messages)


def _gathered(batches: Iterator[Messages]) -> Iterator[Messages]:
    """More of the same messages at a time: a record batch costs something however small it is."""
    gathered = None
    octets = 0
    for messages in batches:
        octets += sum(map(len, messages.payloads))
        if gathered is None:
            gathered = messages
        else:
            gathered.extend(messages)
        if len(gathered) >= BATCH_ROWS or octets >= BATCH_BYTES:
            yield gathered
            gathered, octets = None, 0
    if gathered is not None:
        yield gathered


def _messages(options: Options, partition: AmqpRange) -> Iterator[Messages]:
    """All messages of the range, over a new connection where one breaks, and past what is lost where the
    option failOnDataLoss allows it.
    """
    wanted = partition.wanted
    broker = options.brokers[wanted.partition]
    patience_s = broker.timeout_ms / 1_000
    retry_s = options["amqp.retryMs"] / 1_000
    # Whoever planned this task had reached the broker.
    deadline = time.monotonic() + retry_s
    while len(wanted):
        position = wanted.low
        try:
            reader = RangeReader(connection_to(broker), wanted, partition.store_id, patience_s)
            for messages in reader.batches():
                position = reader.position
                deadline = time.monotonic() + retry_s
                yield messages
            return
        except Dropped as lost:
            if options["failOnDataLoss"] or lost.first is None or lost.first <= lost.position:
                raise
            position = min(lost.first, wanted.high)
            gone = Range(wanted.address, lost.position, position, wanted.partition)
            tell_loss(gone)
            send_loss(options, gone)
        except (BrokerUnreachable, BrokerRefused, OffsetError) as error:
            if not isinstance(error, BrokerUnreachable) or time.monotonic() >= deadline:
                if len(options.brokers) > 1:
                    error.args = (f"the broker at {broker}: {error}",)
                raise
            time.sleep(RETRY_S)
        wanted = attrs.evolve(wanted, low=position)
