"""The options of a table in Spark's catalog.

    CREATE TABLE orders USING amqp OPTIONS ('amqp.url' 'amqp://127.0.0.1:5672', table 'orders')

Spark tells a source in Python the options of a table once, when it asks for the columns of a table that is
made, and never again: whoever reads or writes the table is told its columns only. So the columns bring the
options along, in the metadata of the first one, which the catalog keeps. No password is in them: the option
amqp.credentials says where one stands.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pyspark.sql.types import StructType

from amqp_broker.pipeline.errors import SchemaError
from amqp_broker.pipeline.options import OF_A_TABLE, Options, is_ours, read_options

METADATA: Final = "amqp.options"
_NAMES: Final = {"bigint": "long", "int": "integer", "smallint": "short"}


def is_table(raw: Mapping[str, str]) -> bool:
    """Whether Spark asks on behalf of a table that is made."""
    return any(key.lower() == OF_A_TABLE for key in raw)


def schema_of_table(raw: Mapping[str, str], columns: Iterable[tuple[str, str]]) -> StructType:
    """The columns of a table, with its options."""
    given = {key: str(text) for key, text in raw.items() if is_ours(key)}
    fields = [_field(name, kind) for name, kind in columns]
    fields[0]["metadata"] = {METADATA: json.dumps(given, sort_keys=True)}
    return StructType.fromJson({"type": "struct", "fields": fields})


def options_of(raw: Mapping[str, str], schema: StructType, side: str) -> Options:
    """The options that were given, and behind them those of the table that has these columns."""
    kept = options_in(schema)
    given = {key.lower() for key in raw}
    return read_options({key: kept[key] for key in kept if key.lower() not in given} | dict(raw), side)


def options_in(schema: StructType) -> dict[str, str]:
    """Those that a table's columns brought along; none where it is no table."""
    for field in schema:
        if METADATA in (field.metadata or {}):
            found: dict[str, str] = json.loads(field.metadata[METADATA])
            return found
    return {}


def _field(name: str, kind: str) -> dict[str, Any]:
    return {"name": name, "type": _json_of(kind), "nullable": True, "metadata": {}}


def _json_of(kind: str) -> Any:
    """A type in Spark's words as the JSON of its schemas."""
    head, bracket, rest = kind.partition("<")
    if not bracket:
        return _NAMES.get(kind, kind)
    parts = _parts(rest[:-1])
    if head == "map":
        key, value = map(_json_of, parts)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if head != "struct":
        raise SchemaError(f"expected a map or a struct, found {kind}")
    pairs = [part.partition(":") for part in parts]
    return {"type": "struct", "fields": [_field(name.strip("`"), inner) for name, _, inner in pairs]}


def _parts(text: str) -> list[str]:
    """What stands between the commas that are not inside of brackets."""
    found, depth = [""], 0
    for character in text:
        depth += (character in "<(") - (character in ">)")
        if character == "," and not depth:
            found.append("")
        else:
            found[-1] += character
    return [part.strip() for part in found]
