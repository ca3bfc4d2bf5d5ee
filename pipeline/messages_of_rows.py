"""Rows to encoded messages, column by column.

    column                    becomes                                     types
    address                   where to, unless the option says            STRING
    body                      a data section (3.2.6)                      BINARY, STRING (UTF-8)
    body_value                an amqp-value section (3.2.8)               what `amqp_values` has
    body_type                 which of the two it is: data, value, or sequence for an ARRAY in body_value
    raw                       the bare message as it is (3.2), then no other part of it may be a column
    header                    durable, priority, ttl (first_acquirer and delivery_count are the broker's)
    properties                STRUCT with the fields' names of 3.2.4
    application_properties    MAP<STRING, ...> or STRUCT of simple types
    delivery_annotations, message_annotations, footer                     MAP<STRING, ...> or STRUCT

A null leaves its section out; a message is durable unless its header says otherwise. `encode` gives each
message in two parts: header and delivery annotations, which are not part of a set's checksum, and the rest.

Of several brokers each row goes to one, and always the same for the same key:

    column partition            its number, if there is one
    column properties           CRC-32 of the octets of group_id, modulo the brokers, if there is one
    else                        the number of the task, modulo the brokers: what a task writes stays together
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final
from zlib import crc32

import attrs

from amqp_broker.pipeline.errors import SchemaError
from amqp_broker.pipeline.message_sections import (
    DURABLE,
    Columns,
    Make,
    Sections,
    body_of,
    by_row,
    checked_raw,
    expect,
    header_of,
    properties_of,
    section_map,
)

POSITIONS: Final = ("partition", "offset", "enqueued_at", "txn", "seq")
"""Columns of the source that tell where a message was, which the sink cannot choose; the partition only where
there are several brokers."""
_WHOLE: Final = ("byte", "short", "integer", "long")
_MAPS: Final = ("delivery_annotations", "message_annotations", "footer")
_BARE: Final = ("properties", "application_properties", "body", "body_value", "body_type")
COLUMNS: Final = ("address", "raw", "header", *_MAPS, *_BARE)


@attrs.frozen
class Encoded:
    """Messages of one batch of rows, in their order. `addresses` is None where the option says it, `shards`
    (the broker of each) where there is one.
    """

    addresses: list[str] | None
    heads: Sections
    rests: Sections
    shards: list[int] | None = None


class RowEncoder:
    """The plan for rows of one schema. Made where the query is planned, so that what cannot be sent is told
    before a row is read; it holds functions, so a worker makes its own from the same arguments.

    `fields` are pairs of name and type, as Spark has them in JSON; `address` is the option, `brokers` how
    many there are. The rows of a table of SQL have all of its columns: those that tell a place have to be
    null then, and so the address, unless it is that of the table. Raises SchemaError.
    """

    def __init__(
        self,
        fields: Iterable[tuple[str, Any]],
        address: str | None = None,
        brokers: int = 1,
        *,
        of_a_table: bool = False,
    ) -> None:
        self.kinds = dict(fields)
        self._address = address
        self._nulls = _nulls_of_a_table(self.kinds, brokers) if of_a_table else ()
        for name in self._nulls:
            del self.kinds[name]
        _check_columns(self.kinds, address, brokers)
        self._route = Route(self.kinds, brokers) if brokers > 1 else None
        self._heads = self._head_columns()
        self._rests = self._rest_columns()

    def encode(self, columns: Columns, count: int, task: int = 0) -> Encoded:
        """The messages of `count` rows; `task` is the number of who writes them. Raises SchemaError, which
        names column and row.
        """
        for name in self._nulls:
            expect_nulls(name, columns[name], self._address)
        return Encoded(
            self._addresses(columns),
            _joined([make(columns) for make in self._heads], count),
            _joined([make(columns) for make in self._rests], count),
            None if self._route is None else self._route.shards(columns, count, task),
        )

    def _head_columns(self) -> list[Make]:
        kinds = self.kinds
        made: list[Make] = []
        if "header" in kinds:
            made.append(by_row("header", header_of(kinds["header"]), absent=DURABLE))
        else:
            made.append(lambda columns: [DURABLE] * len(next(iter(columns.values()))))
        if "delivery_annotations" in kinds:
            made.append(section_map("delivery_annotations", kinds["delivery_annotations"]))
        return made

    def _rest_columns(self) -> list[Make]:
        kinds = self.kinds
        made: list[Make] = []
        if "message_annotations" in kinds:
            made.append(section_map("message_annotations", kinds["message_annotations"]))
        if "properties" in kinds:
            made.append(by_row("properties", properties_of(kinds["properties"])))
        if "application_properties" in kinds:
            made.append(section_map("application_properties", kinds["application_properties"], simple=True))
        made.append(by_row("raw", checked_raw, wanted=True) if "raw" in kinds else body_of(kinds))
        if "footer" in kinds:
            made.append(section_map("footer", kinds["footer"]))
        return made

    def _addresses(self, columns: Columns) -> list[str] | None:
        if self._address is not None:
            return None
        found = list(columns["address"])
        if not all(found):
            row = next(at for at, address in enumerate(found) if not address)
            raise SchemaError(
                f"column address, row {row}: expected an address, found {found[row]!r}; "
                "fill it, or say one for all rows with the option address"
            )
        return found


def _nulls_of_a_table(kinds: Mapping[str, Any], brokers: int) -> tuple[str, ...]:
    """Columns of a table whose values nobody can choose."""
    chosen = {"partition"} if brokers > 1 else set()
    return tuple(name for name in kinds if name == "address" or (name in POSITIONS and name not in chosen))


def expect_nulls(name: str, values: Iterable[Any], address: str | None) -> None:
    """Raises SchemaError for a value that only the broker can give."""
    for row, value in enumerate(values):
        if value is not None and not (name == "address" and value == address):
            raise SchemaError(
                f"column {name}, row {row} of its batch: expected null, found {value!r:.80}: the broker says "
                "where a message is; name the columns to insert, as in INSERT INTO orders (body) VALUES ..."
            )


def _check_columns(kinds: Mapping[str, Any], address: str | None, brokers: int) -> None:
    chosen = {"partition"} if brokers > 1 else set()
    positions = [name for name in kinds if name in POSITIONS and name not in chosen]
    if positions:
        raise SchemaError(
            f"columns {', '.join(positions)}: they tell where a message was read, and the broker gives them "
            "anew; drop them before writing"
        )
    unknown = [name for name in kinds if name not in COLUMNS and name not in chosen]
    if unknown:
        raise SchemaError(
            f"columns {', '.join(unknown)}: expected only {', '.join(COLUMNS)}; rename them, put them into "
            "application_properties, or drop them"
        )
    bodies = [name for name in ("body", "raw", "body_value") if name in kinds]
    if not bodies:
        raise SchemaError(f"expected a column body, raw or body_value, found {', '.join(kinds) or 'none'}")
    if "raw" in kinds:
        beside = [name for name in _BARE if name in kinds]
        if beside:
            raise SchemaError(
                f"columns {', '.join(beside)}: column raw has all of them already; drop one side"
            )
        expect("raw", kinds["raw"], "binary")
    if "body" in kinds:
        expect("body", kinds["body"], "binary", "string")
    if "body_type" in kinds:
        expect("body_type", kinds["body_type"], "string")
    if "address" in kinds:
        expect("address", kinds["address"], "string")
    elif address is None:
        raise SchemaError("expected a column address, or the option address with one for all rows")


def _joined(parts: list[Sections], count: int) -> Sections:
    if len(parts) == 1:
        return parts[0]
    return [b"".join(sections) for sections in zip(*parts, strict=True)] if parts else [b""] * count


class Route:
    """Which of several brokers each row goes to. `kinds` are its columns, with their types as Spark has them
    in JSON.
    """

    def __init__(self, kinds: Mapping[str, Any], brokers: int) -> None:
        if "partition" in kinds:
            expect("partition", kinds["partition"], *_WHOLE)
        properties = kinds.get("properties")
        fields = properties.get("fields", ()) if isinstance(properties, dict) else ()
        self._by_partition = "partition" in kinds
        self._by_group = any(field["name"] == "group_id" for field in fields)
        self._brokers = brokers

    def shards(self, columns: Columns, count: int, task: int) -> list[int]:
        """The broker of each row. Raises SchemaError for one that there is not."""
        chosen = [task % self._brokers] * count
        if self._by_group:
            for row, properties in enumerate(columns["properties"]):
                group = properties and properties["group_id"]
                if group is not None:
                    chosen[row] = crc32(group.encode()) % self._brokers
        if self._by_partition:
            for row, partition in enumerate(columns["partition"]):
                if partition is None:
                    continue
                if not 0 <= partition < self._brokers:
                    raise SchemaError(
                        f"column partition, row {row} of its batch: expected the place of a broker in the "
                        f"option amqp.url, 0 to {self._brokers - 1}, found {partition}"
                    )
                chosen[row] = partition
        return chosen
