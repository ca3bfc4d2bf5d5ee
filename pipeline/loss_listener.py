"""Counts what a streaming query went on without.

    losses = LossListener(url, "losses", file="losses.jsonl")     # option lossAddress of the source: losses
    spark.streams.addListener(losses)
    ...
    print(losses.messages, *losses.losses, sep="\\n")

The tasks that find a range gone tell it, each in a message (`loss_messages`); after each batch the listener
takes what has come. So it is right whatever is done with a batch: nothing, parts of it, or several actions
over it in `foreachBatch`, which tell the same ranges again. It says each loss on standard error, and appends
it to `file`, if there is one, for `amqp-broker pipeline report --losses`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from amqp_broker.client import ReceivedMessage
from amqp_broker.pipeline.connections import connection_to
from amqp_broker.pipeline.listener import BatchListener
from amqp_broker.pipeline.loss_messages import read_lost_range
from amqp_broker.pipeline.losses import Loss, union
from amqp_broker.pipeline.offsets import Range

CREDIT: Final = 100


class LossListener(BatchListener):
    """Keeps the `losses`, one for each batch, and writes them down. It takes all messages of `address`, at
    the first broker, whichever query told them: give each listener an address of its own.
    """

    def __init__(
        self,
        url: str,
        address: str,
        *,
        query: str | None = None,
        source: int = 0,
        file: str | Path | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            "amqp losses: after batch {batch} they were not counted", url, query, source, options
        )
        self._address = address
        self._file = file
        self._ranges: dict[tuple[str, int], list[Range]] = {}
        self._names: dict[str, str] = {}

    @property
    def losses(self) -> list[Loss]:
        """By query and batch."""
        return [self._loss(*key) for key in self._ranges]

    @property
    def messages(self) -> int:
        """How many are missing in all."""
        return sum(loss.messages for loss in self.losses)

    def done(self, progress: Any, source: Any) -> None:
        """Takes what the tasks told."""
        self._names[str(progress.id)] = progress.name or str(progress.id)
        receiver = connection_to(self.brokers[0]).open_receiver(self._address, credit=CREDIT)
        try:
            taken: list[ReceivedMessage] = []
            told: dict[tuple[str, int], None] = {}
            while (received := receiver.receive_now()) is not None:
                lost = read_lost_range(received.body)
                key = (lost.query, lost.batch)
                told[key] = None
                self._ranges[key] = union([*self._ranges.get(key, ()), lost.part])
                taken.append(received)
            for key in told:
                self._tell(self._loss(*key))
            for received in taken:
                receiver.accept(received)
        finally:
            receiver.close()

    def _loss(self, query: str, batch: int) -> Loss:
        ranges = self._ranges[query, batch]
        return Loss(self._names.get(query, query), batch, sum(map(len, ranges)), tuple(map(str, ranges)))

    def _tell(self, loss: Loss) -> None:
        print(f"amqp losses: {loss}", file=sys.stderr)
        if self._file is not None:
            with open(self._file, "a", encoding="utf-8") as file:
                file.write(f"{loss.to_json()}\n")
