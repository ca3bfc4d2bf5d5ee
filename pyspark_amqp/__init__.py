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

    def schema(self) -> str:
        """The columns that the options ask for."""
        from amqp_broker.pipeline.source import schema_of

        return schema_of(read_options(self.options, SOURCE))

    def reader(self, schema: StructType) -> DataSourceReader:
        from amqp_broker.pipeline.source import AmqpBatchReader

        return AmqpBatchReader(read_options(self.options, SOURCE), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from amqp_broker.pipeline.source import AmqpStreamReader

        return AmqpStreamReader(read_options(self.options, SOURCE), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from amqp_broker.pipeline.sink import BatchWriter

        writer: Any = BatchWriter(read_options(self.options, SINK), schema, overwrite)
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from amqp_broker.pipeline.sink import StreamWriter

        writer: Any = StreamWriter(read_options(self.options, SINK), schema, overwrite)
        return writer
