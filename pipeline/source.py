"""The readers of Spark's data source `amqp`: a batch, and a stream with admission control and AvailableNow.

    driver    initialOffset, latestOffset, partitions, commit    over `$retained`
    worker    read: one link for each range of one address, Arrow record batches out

Objects of this module are pickled: connections are made where they are needed, never in a constructor.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from amqp_broker.pipeline.errors import OptionError
from amqp_broker.pipeline.offsets import Offsets, Range, admit, check_log, ranges_between, read_offsets, split
from amqp_broker.pipeline.options import SUBSCRIPTION, Options, check_batch, check_streaming
from amqp_broker.pipeline.planning import (
    check_loss,
    check_reachable,
    ending,
    log,
    nodes_to_read,
    rows_of_bytes,
    starting,
)
from amqp_broker.pipeline.range_reading import AmqpRange, check_schema, read_range, schema_of
from amqp_broker.pipeline.retained_client import Node, Retained, RetainedClient

__all__ = ["AmqpBatchReader", "AmqpStreamReader", "schema_of"]

POLL_MS: Final = 1_000
"""How long a stream that has nothing new waits at the broker; Spark asks again at once."""
START_SUFFIX: Final = "/start:"
"""Of the cursor that keeps where a subscription began; no subscription can have such a name."""


class AmqpBatchReader(DataSourceReader):
    """Reads what the nodes have when the query is planned."""

    def __init__(self, options: Options, schema: StructType) -> None:
        check_batch(options)
        check_schema(options, schema)
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """The ranges between start and end; none where there are no messages."""
        options = self._options
        client = RetainedClient(options.broker)
        try:
            found = client.describe()
            nodes = nodes_to_read(options, found)
            start = self._start(client, nodes)
            end = ending(options, client, nodes)
        finally:
            client.close()
        for address in nodes:
            if start[address] > end[address]:
                raise OptionError(
                    "option "
                    f"{'endingTimestamp' if options.given('endingTimestamp') else 'endingOffsets'}: expected "
                    f"at least {start[address]} for {address!r}, where the query begins, found {end[address]}"
                )
        parts = [Range(address, start[address], end[address]) for address in sorted(nodes)]
        parts = check_loss(options, [part for part in parts if len(part)], found)
        return [AmqpRange(part, found.log) for part in split(parts, options["minPartitions"])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """See read_range."""
        return read_range(self._options, self._schema, partition)

    def _start(self, client: RetainedClient, nodes: dict[str, Node]) -> dict[str, int]:
        if self._options["startingOffsets"] != SUBSCRIPTION:
            return starting(self._options, client, nodes, "earliest")
        positions = client.cursor(self._options["subscription"])
        if not positions:
            raise OptionError(
                f"option subscription: the broker has no cursor {self._options['subscription']!r}; a "
                "stream makes one"
            )
        return {address: positions.get(address, node.first) for address, node in nodes.items()}


class AmqpStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads micro-batches. The place of the query is in its checkpoint; the named cursor of the option
    subscription keeps where batch 0 began (Spark asks again when that is repeated), keeps other queries out,
    and follows one batch behind.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        check_streaming(options)
        check_schema(options, schema)
        self._options = options
        self._schema = schema
        self._client: RetainedClient | None = None
        self._frozen: dict[str, int] = {}
        """Where the subscription began."""
        self._stands: dict[str, int] = {}
        """Where it stood when we took hold of it."""
        self._target: dict[str, int] | None = None
        self._latest: Offsets | None = None

    # --- the driver's side

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins. Asked again until batch 0 is done, and the answer is the same."""
        client = self._ask()
        found = client.describe()
        nodes = nodes_to_read(self._options, found)
        begin = starting(self._options, client, nodes, "earliest")
        self._hold(begin)
        given = self._options["startingOffsets"]
        fresh = given is not None or self._options.given("startingTimestamp")
        if fresh and given != SUBSCRIPTION and self._stands != self._frozen:
            # The cursor has moved, so batch 0 was done once, or it began elsewhere: this is a new query, and
            # its options say where it begins.
            for cursor in self._cursors():
                client.forget(cursor)
            self._frozen, self._stands = {}, {}
            self._hold(begin)
        # Asked for twice in one run as well: what was told once stays.
        return Offsets(found.log, {address: self._stands[address] for address in nodes}).to_dict()

    def getDefaultReadLimit(self) -> ReadLimit:
        """By maxOffsetsPerTrigger or maxBytesPerTrigger."""
        if self._options.given("maxOffsetsPerTrigger"):
            return ReadMaxRows(self._options["maxOffsetsPerTrigger"])
        if self._options.given("maxBytesPerTrigger"):
            return ReadMaxBytes(self._options["maxBytesPerTrigger"])
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """The query ends where the nodes end now."""
        nodes = nodes_to_read(self._options, self._ask().describe())
        self._target = {address: node.next for address, node in nodes.items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """How far the next batch goes; the start where there is nothing new."""
        begin = read_offsets(start)
        found = self._checked(begin)
        nodes = nodes_to_read(self._options, found)
        self._hold_from(begin, nodes)
        at = {address: begin.positions.get(address, self._frozen[address]) for address in nodes}
        if self._target is None and all(node.next <= at[address] for address, node in nodes.items()):
            self._ask().wait(at, POLL_MS)
            found = self._checked(begin)
            nodes = {address: node for address, node in found.nodes.items() if address in at}
        ends = {address: max(at[address], self._end(node)) for address, node in nodes.items()}
        self._latest = Offsets(found.log, begin.positions | ends)
        return Offsets(found.log, begin.positions | self._admitted(at, ends, nodes, limit)).to_dict()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """How far the nodes went when they were last looked at."""
        return None if self._latest is None else self._latest.to_dict()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a batch. The same start and end give the same messages, or an error."""
        begin, finish = read_offsets(start), read_offsets(end)
        found = self._checked(finish)
        check_log(begin, found.log, self._options.broker)
        self._hold_from(begin, nodes_to_read(self._options, found))
        parts = check_loss(self._options, ranges_between(begin, finish, self._frozen), found)
        return [AmqpRange(part, found.log) for part in split(parts, self._options["minPartitions"])]

    def commit(self, end: dict[str, Any]) -> None:
        """Moves the cursor. Never raises: the place of the query is in the checkpoint."""
        try:
            positions = read_offsets(end).positions
            self._ask().move(self._options["subscription"], positions)
        except Exception as error:
            log.warning("the cursor %s stays behind: %s", self._options["subscription"], error)

    def stop(self) -> None:
        """Lets the cursor go. Spark does not always call this; the end of the process does the same."""
        if self._client is not None:
            self._client.close()

    # --- the worker's side

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """See read_range."""
        return read_range(self._options, self._schema, partition)

    # --- parts

    def _ask(self) -> RetainedClient:
        if self._client is None:
            self._client = RetainedClient(self._options.broker)
        return self._client

    def _cursors(self) -> tuple[str, str]:
        """That of the beginning, and the subscription's. Another starting place is another beginning."""
        options = self._options
        place = options["startingOffsets"] or SUBSCRIPTION
        if options.given("startingTimestamp"):
            place = f"{options['startingTimestamp']}-ms"
        elif isinstance(place, dict):
            text = json.dumps(place, sort_keys=True)
            place = hashlib.sha256(text.encode()).hexdigest()[:16]
        name = options["subscription"]
        return f"{name}{START_SUFFIX}{place}", name

    def _hold_from(self, begin: Offsets, nodes: dict[str, Node]) -> None:
        """As `_hold`, for a query that is at `begin`. An address that is new to it begins with its "
        "first message."""
        start = {address: begin.positions.get(address, node.first) for address, node in nodes.items()}
        self._hold(start, begin.positions)

    def _hold(self, start: dict[str, int], place: Mapping[str, int] = MappingProxyType({})) -> None:
        """Holds both cursors. Where they do not stand yet, the one is put to `start`, the other to the place
        of the query if it has one there, else to the first. Raises CursorInUse.
        """
        unknown = {address: offset for address, offset in start.items() if address not in self._frozen}
        if not unknown:
            return
        client = self._ask()
        began, name = self._cursors()
        frozen = client.hold(began, unknown)
        stands = client.hold(name, {address: place.get(address, frozen[address]) for address in unknown})
        for address in unknown:
            self._frozen[address], self._stands[address] = frozen[address], stands[address]

    def _checked(self, place: Offsets) -> Retained:
        """What the broker has now. Raises OffsetError where the place is not in it."""
        found = self._ask().describe()
        check_log(place, found.log, self._options.broker)
        check_reachable(self._options, place, found)
        return found

    def _end(self, node: Node) -> int:
        if self._target is None:
            return node.next
        return min(node.next, self._target.get(node.address, 0))

    def _admitted(
        self, at: dict[str, int], ends: dict[str, int], nodes: dict[str, Node], limit: ReadLimit
    ) -> dict[str, int]:
        if isinstance(limit, ReadAllAvailable):
            return ends
        rows = sum(ends.values()) - sum(at[address] for address in ends)
        if isinstance(limit, ReadMaxRows):
            rows = min(rows, limit.max_rows)
        octets = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._options["maxBytesPerTrigger"]
        if octets is not None:
            rows = min(rows, rows_of_bytes(nodes, octets))
        return admit(at, ends, rows)
