"""The data source `amqp` with places where faults happen: `format("amqp_faulty")` (see `hooks`).

C0  latestOffset gave an offset that is not written      C4  the epoch is decided, nobody was told
C1  one of several record batches is staged              C5  the same, and Spark aborts
C2  all sets are sealed, commit is not sent              C7  the batch is done, the cursor was not moved
C3  the same, and somebody voids a set                   C8, C9  as C2 and C1, but the broker is killed
C10  several brokers: decided by the coordinator, the participants are not told
C11  the same: a set is prepared, and somebody rules it out
raise  commit fails   between  the same, after the coordinator decided
task, exit  a task fails, or its process ends, after it sealed its set
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final
from unittest import mock

import attrs
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.listener import StreamingQueryListener

from amqp_broker.pipeline import epochs
from amqp_broker.pipeline.epochs import Written, end_prepared, void_sets
from amqp_broker.pipeline.loss_messages import BATCH_ID
from amqp_broker.pipeline.options import read_options
from amqp_broker.pipeline.set_client import SealedSet
from amqp_broker.pipeline.sink import BatchWriter, StreamWriter, TaskWritten
from amqp_broker.pipeline.source import AmqpStreamReader, schema_of
from tests.pipeline.spark.hooks import PlantedFault, due, happens, kill, kill_executor

NAME: Final = "amqp_faulty"


class FaultyWriter(StreamWriter):
    """The sink, with faults on its way."""

    def write(self, iterator: Iterator[Any]) -> TaskWritten:
        """One task."""
        batch = _batch()
        note_attempt(batch)
        written = super().write(_staged(iterator, batch))
        kill_executor("executor sealed", batch)
        found = due("slow", batch)
        if found is not None:
            time.sleep(found["seconds"])  # what Spark speculates about: the set is sealed, and nobody knows
        if happens("task", batch):
            raise PlantedFault("the task fails after it sealed its set")
        if happens("exit", batch):
            os._exit(7)
        return written

    def commit(self, messages: list[TaskWritten | None], batchId: int) -> None:
        """The driver's part."""
        kill("C2", batchId)
        kill("C8", batchId)
        if happens("C3", batchId):
            self._void_one(messages)
        if happens("C11", batchId):
            self._end_prepared(messages)
        if happens("raise", batchId):
            raise PlantedFault("the commit fails before it is sent")
        with _before_applying(batchId):
            super().commit(messages, batchId)
        kill("C4", batchId)
        if happens("C5", batchId):
            raise PlantedFault("the reply to the commit is lost")

    def _void_one(self, messages: list[TaskWritten | None]) -> None:
        for written, one in _sets_of(messages):
            if not one.store:
                with closing(self._brokers()) as brokers:
                    assert void_sets(brokers, [attrs.evolve(written, sets=(one,))]) is None
                return

    def _end_prepared(self, messages: list[TaskWritten | None]) -> None:
        for written, one in _sets_of(messages):
            if one.store:
                with closing(self._brokers()) as brokers:
                    number = brokers.find(one.store, written.producer, written.epoch)
                    assert number is not None
                    end_prepared(brokers, number, written.producer, written.epoch, [one.set_id])
                return


def _sets_of(messages: list[TaskWritten | None]) -> Iterator[tuple[Written, SealedSet]]:
    for message in messages:
        if message is not None and message.written is not None:
            yield from ((message.written, one) for one in message.written.sets)


@contextmanager
def _before_applying(batch: int) -> Iterator[None]:
    """The fault between the coordinator's decision and what participants make of it."""
    apply_decision = epochs.apply_decision

    def faulty(*arguments: Any) -> None:
        kill("C10", batch)
        if happens("between", batch):
            raise PlantedFault("the commit fails after the coordinator decided")
        apply_decision(*arguments)

    with mock.patch.object(epochs, "apply_decision", faulty):
        yield


class FaultyBatchWriter(BatchWriter):
    """The sink of a batch, with the faults of a task and of a lost reply."""

    def write(self, iterator: Iterator[Any]) -> TaskWritten:
        """One task."""
        written = super().write(iterator)
        if happens("task", 0):
            raise PlantedFault("the task fails after it sealed its set")
        return written

    def commit(self, messages: list[TaskWritten | None]) -> None:
        """The driver's part."""
        super().commit(messages)
        if happens("C5", 0):
            raise PlantedFault("the reply to the commit is lost")


class FaultyReader(AmqpStreamReader):
    """The source of a query, with faults."""

    def latestOffset(self, start: Any, limit: Any) -> Any:
        """The driver plans a batch."""
        end = super().latestOffset(start, limit)
        kill("C0", planned_batches())
        return end

    def commit(self, end: Any) -> None:
        """Spark tells that a batch is done."""
        kill("C7", planned_batches() - 1)
        super().commit(end)


class FaultySource(DataSource):
    """Both ways, with faults."""

    @classmethod
    def name(cls) -> str:
        """The format."""
        return NAME

    def schema(self) -> str:
        """As the real one."""
        return schema_of(read_options(self.options, "source"))

    def streamReader(self, schema: Any) -> FaultyReader:
        """The source of a query."""
        return FaultyReader(read_options(self.options, "source"), schema)

    def streamWriter(self, schema: Any, overwrite: bool) -> FaultyWriter:
        """The sink of a query."""
        return FaultyWriter(read_options(self.options, "sink"), schema, overwrite)

    def writer(self, schema: Any, overwrite: bool) -> FaultyBatchWriter:
        """The sink of a batch."""
        return FaultyBatchWriter(read_options(self.options, "sink"), schema, overwrite)


class Killer(StreamingQueryListener):
    """Kills at this point, which is that Spark noted a batch as done."""

    def __init__(self, point: str) -> None:
        self._point = point

    def onQueryStarted(self, event: Any) -> None:
        """Nothing."""

    def onQueryProgress(self, event: Any) -> None:
        """A batch is done."""
        kill(self._point, event.progress.batchId)

    def onQueryIdle(self, event: Any) -> None:
        """Nothing."""

    def onQueryTerminated(self, event: Any) -> None:
        """Nothing."""


def note_attempt(batch: int) -> None:
    """Where the environment says so, each attempt of a task leaves a file: batch, partition, attempt."""
    folder, context = os.environ.get("AMQP_TEST_ATTEMPTS"), TaskContext.get()
    if folder and context is not None:
        name = f"{batch}-{context.partitionId()}-{context.taskAttemptId()}"
        (Path(folder) / name).touch()


def planned_batches() -> int:
    """How many batches the checkpoint has planned: the id of the next one."""
    folder = Path(os.environ["AMQP_TEST_CHECKPOINT"]) / "offsets"
    if not folder.is_dir():
        return 0
    return max((int(entry.name) + 1 for entry in folder.iterdir() if entry.name.isdecimal()), default=0)


def _batch() -> int:
    context = TaskContext.get()
    assert context is not None
    return int(context.getLocalProperty(BATCH_ID) or 0)


def _staged(iterator: Iterator[Any], batch: int) -> Iterator[Any]:
    """The record batches, with faults when the first was staged."""
    for number, one in enumerate(iterator):
        if number == 1:
            kill("C1", batch)
            kill("C9", batch)
        yield one
        kill_executor("executor staging", batch)
