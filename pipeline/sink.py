"""The sink: what Spark calls when it writes to `format("amqp")`, in batches and in streams.

    write    executor, a process of its own for each task   rows -> messages of one set, sealed
    commit   driver, a process of its own for each call      the epoch is decided: all sets at once
    abort    driver, likewise                                its sets are voided

Exactly once, an epoch is (producer, number): for a stream the id of the query (behind the option producerId,
if there is one) and of its micro-batch, for a batch the options txnAppId and txnVersion; without these a
batch is written whole or not at all, and written again when it is run again. A deleted checkpoint makes a new
query with a new id: it writes everything again. At least once, messages are sent as they come, and `commit`
has nothing to do.

Nothing is kept in a writer between `write` and `commit`: they run in different processes. Connections are
made when they are used and live in the pool of their process.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from amqp_broker.pipeline.connections import connection_to, drop_connection
from amqp_broker.pipeline.epochs import Written, decide_epoch, send_all, void_sets, write_sets
from amqp_broker.pipeline.errors import EpochError, OptionError, PipelineError
from amqp_broker.pipeline.loss_messages import BATCH_ID, QUERY_ID
from amqp_broker.pipeline.messages_of_rows import Encoded, RowEncoder
from amqp_broker.pipeline.options import Options
from amqp_broker.pipeline.set_brokers import SetBrokers

PRODUCER_ID_MAX: Final = 90  # a producer has 128 characters, of which the id of the query takes 37
EXACTLY_ONCE: Final = "exactly-once"


class TaskWritten(WriterCommitMessage):
    """What a task tells the driver; None where it sent at least once."""

    def __init__(self, written: Written | None) -> None:
        self.written = written


class _Sink:
    """What both kinds of writer have: the plan for the rows, and the ways to the broker. It is pickled."""

    def __init__(self, options: Options, schema: Any, overwrite: bool) -> None:
        if overwrite:
            raise OptionError(
                'expected mode "append" (outputMode "append"), found one that replaces what is there: '
                "a queue cannot be overwritten"
            )
        self._options = options
        self._address: str | None = options["address"]
        self._fields = [(field["name"], field["type"]) for field in schema.jsonValue()["fields"]]
        self._encoder()  # what cannot be sent is told here, before a task runs

    @property
    def _exactly_once(self) -> bool:
        return bool(self._options["guarantee"] == EXACTLY_ONCE)

    def _encoder(self) -> RowEncoder:
        return RowEncoder(
            self._fields, self._address, len(self._options.brokers), of_a_table=self._options.of_a_table
        )

    def _brokers(self) -> SetBrokers:
        """Those that an epoch is spread over."""
        brokers = self._options.brokers
        return SetBrokers(
            [str(broker) for broker in brokers],
            self._options["producerGroup"],
            lambda number: connection_to(brokers[number]),
            lambda number: drop_connection(brokers[number]),
        )

    def _write(self, producer: str, epoch: int, batches: Iterable[Any]) -> TaskWritten:
        context = TaskContext.get()
        encoded = encoded_batches(self._encoder(), batches, context.partitionId() if context else 0)
        window = self._options["stageRows"]
        if not self._exactly_once:
            addresses = self._options.brokers
            send_all(lambda number: connection_to(addresses[number]), encoded, self._address, window)
            return TaskWritten(None)
        with closing(self._brokers()) as brokers:
            return TaskWritten(write_sets(brokers, producer, epoch, encoded, self._address, window))

    def _commit(self, messages: Sequence[TaskWritten | None]) -> None:
        if not self._exactly_once:
            return
        written = []
        for message in messages:
            if message is None or message.written is None:
                raise EpochError(
                    "expected a message of each task, but one is missing: the batch is not whole"
                )
            written.append(message.written)
        with closing(self._brokers()) as brokers:
            decide_epoch(brokers, written, self._options["commitTimeoutMs"])

    def _abort(self, messages: Sequence[TaskWritten | None]) -> None:
        """Never raises: Spark would tell that error instead of the one that made it abort."""
        written = [message.written for message in messages if message is not None]
        if not any(one is not None and one.sets for one in written):
            return
        try:
            with closing(self._brokers()) as brokers:
                refused = void_sets(brokers, written)
        except Exception as error:
            refused = f"the sets of an aborted epoch were not voided: {error}"
        if refused is not None:
            print(f"amqp sink: {refused}", file=sys.stderr)


class StreamWriter(_Sink, DataSourceStreamArrowWriter):
    """The sink of a streaming query. Raises OptionError, SchemaError."""

    def __init__(self, options: Options, schema: Any, overwrite: bool) -> None:
        for name in ("txnAppId", "txnVersion"):
            if options.given(name):
                raise OptionError(f"option {name}: it is for batches; a stream has an id of its own")
        if len(options["producerId"] or "") > PRODUCER_ID_MAX:
            raise OptionError(f"option producerId: expected at most {PRODUCER_ID_MAX} characters")
        super().__init__(options, schema, overwrite)

    def write(self, iterator: Iterator[Any]) -> TaskWritten:
        """Writes the rows of one task. Raises EpochError, SchemaError, MissingRight, ClientError."""
        producer, epoch = stream_epoch(TaskContext.get(), self._options["producerId"])
        return self._write(producer, epoch, iterator)

    def commit(self, messages: list[TaskWritten | None], batchId: int) -> None:
        """Decides the epoch of this micro-batch. Raises EpochError; then Spark calls `abort`."""
        self._commit(messages)

    def abort(self, messages: list[TaskWritten | None], batchId: int) -> None:
        """Voids what its tasks sealed."""
        self._abort(messages)


class BatchWriter(_Sink, DataSourceArrowWriter):
    """The sink of `df.write`. Raises OptionError, SchemaError."""

    def __init__(self, options: Options, schema: Any, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite)
        self._producer, self._epoch = batch_epoch(options)

    def write(self, iterator: Iterator[Any]) -> TaskWritten:
        """Writes the rows of one task. Raises EpochError, SchemaError, MissingRight, ClientError."""
        return self._write(self._producer, self._epoch, iterator)

    def commit(self, messages: list[TaskWritten | None]) -> None:
        """Decides the epoch of this batch."""
        self._commit(messages)

    def abort(self, messages: list[TaskWritten | None]) -> None:
        """Voids what its tasks sealed."""
        self._abort(messages)


def stream_epoch(context: Any, producer_id: str | None) -> tuple[str, int]:
    """(producer, epoch) of the micro-batch that a task is of. Raises PipelineError outside of a query."""
    query = context and context.getLocalProperty(QUERY_ID)
    batch = context and context.getLocalProperty(BATCH_ID)
    if not query or not batch:
        raise PipelineError(
            f"expected the properties {QUERY_ID} and {BATCH_ID} of a task of a streaming query, found "
            f"{query!r} and {batch!r}: exactly-once wants a micro-batch query (no continuous mode); in "
            "foreachBatch write a batch with txnAppId and txnVersion"
        )
    # With its own name alone, a query with a new checkpoint would find the epochs of the old one decided, and
    # leave out rows that nobody wrote.
    return f"{producer_id}.{query}" if producer_id else query, int(batch)


def batch_epoch(options: Options) -> tuple[str, int]:
    """(producer, epoch) of a batch: as the options say, or one of its own. Raises OptionError."""
    application, version = options["txnAppId"], options["txnVersion"]
    if options.given("producerId"):
        raise OptionError("option producerId: it is for streams; a batch has txnAppId and txnVersion")
    if (application is None) != (version is None):
        missing = "txnVersion" if version is None else "txnAppId"
        raise OptionError(f"option {missing}: expected txnAppId and txnVersion together, or none of them")
    if application is None:
        return f"batch-{uuid.uuid4()}", 0
    return application, version


def encoded_batches(encoder: RowEncoder, batches: Iterable[Any], task: int = 0) -> Iterator[Encoded]:
    """Arrow record batches as messages; `task` is the number of who writes them. Raises SchemaError."""
    for batch in batches:
        columns = {name: batch.column(at).to_pylist() for at, name in enumerate(batch.schema.names)}
        yield encoder.encode(columns, batch.num_rows, task)
