"""Which of several brokers a row goes to: to one for each row, and always the same for the same key.

column partition            its number, if there is one
column properties           CRC-32 of the octets of group_id, modulo the brokers, if there is one
else                        the number of the task, modulo the brokers: what a task writes stays together
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from zlib import crc32

from amqp_broker.pipeline.errors import SchemaError
from amqp_broker.pipeline.message_sections import Columns, expect

_WHOLE: Final = ("byte", "short", "integer", "long")


class Route:
    """The plan for rows of one schema. `kinds` are its columns, with their types as Spark has them in
    JSON.
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
                        "option "
                        f"amqp.url, 0 to {self._brokers - 1}, found {partition}"
                    )
                chosen[row] = partition
        return chosen
