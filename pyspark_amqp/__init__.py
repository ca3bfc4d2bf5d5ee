"""Where Spark finds the data source `amqp` by itself: it looks for DefaultSource in modules named
`pyspark_...`.

spark.readStream.format("amqp").option("amqp.url", "amqp://127.0.0.1:5672").option("subscribe", "orders")
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from amqp_broker.pipeline.options import SINK, SOURCE, read_options


class DefaultSource(DataSource):
    """The data source `amqp`: reads retained nodes and the journal, writes by half messages."""

    @classmethod
    def name(cls) -> str:
        return "amqp"

    def schema(self) -> StructType | str:
        """The columns that the options ask for."""
        from amqp_broker.pipeline.source import columns, schema_of
        from amqp_broker.pipeline.tables import is_table, schema_of_table

        options = read_options(self.options, SOURCE)
        return (
            schema_of_table(self.options, columns(options)) if is_table(self.options) else schema_of(options)
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        from amqp_broker.pipeline.source import AmqpBatchReader
        from amqp_broker.pipeline.tables import options_of

        return AmqpBatchReader(options_of(self.options, schema, SOURCE), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from amqp_broker.pipeline.source import AmqpStreamReader
        from amqp_broker.pipeline.tables import options_of

        return AmqpStreamReader(options_of(self.options, schema, SOURCE), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from amqp_broker.pipeline.sink import BatchWriter
        from amqp_broker.pipeline.tables import options_of

        writer: Any = BatchWriter(options_of(self.options, schema, SINK), schema, overwrite)
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from amqp_broker.pipeline.sink import StreamWriter
        from amqp_broker.pipeline.tables import options_of

        writer: Any = StreamWriter(options_of(self.options, schema, SINK), schema, overwrite)
        return writer
