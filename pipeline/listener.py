"""Listeners that hear of each batch as soon as it is done; here the one that moves the cursor of a
subscription to where its query really is.

    spark.streams.addListener(CursorListener(url, subscription="enrich"))

Spark tells a source that a batch is done only when it plans the next one, so the broker's cursor stands one
batch behind, and for ever where no next one comes. It is a matter of what people see and of what retention
may drop, not of correctness: a query that starts again goes by its checkpoint.
"""

from __future__ import annotations

import json
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from amqp_broker.pipeline.offsets import Offsets, read_place
from amqp_broker.pipeline.options import SOURCE, read_options
from amqp_broker.pipeline.retained_client import RetainedClient

Move = Callable[[str, dict[str, int]], Any]


class BatchListener(StreamingQueryListener):
    """For the queries of a session. `query` is the name or id of one of them, None for any; `source` its
    place among the sources of that query. `options` are those of the source that say how to connect; `url`
    names all of its brokers. Nothing that goes wrong in a listener reaches the query: it is written to
    standard error, behind `name`, which may have the number of the `{batch}` in it.
    """

    def __init__(
        self, name: str, url: str, query: str | None, source: int, options: Mapping[str, str] | None,
        **given: str,
    ) -> None:  # fmt: skip
        given = {"amqp.url": url, "subscribe": "-"} | given | dict(options or {})
        self.brokers = read_options(given, SOURCE).brokers
        self.name = name
        self._query = query
        self._source = source

    def onQueryStarted(self, event: Any) -> None:
        """Nothing was read yet."""

    def onQueryProgress(self, event: Any) -> None:
        """A batch is done."""
        progress = event.progress
        if self._query is None or self._query in (progress.name, str(progress.id)):
            with self.telling(progress.batchId):
                self.done(progress, progress.sources[self._source])

    def onQueryIdle(self, event: Any) -> None:
        """Nothing new."""

    def onQueryTerminated(self, event: Any) -> None:
        """The last batch was told by its progress."""

    @abstractmethod
    def done(self, progress: Any, source: Any) -> None:
        """What to do about a batch, and what its source tells of it."""

    @contextmanager
    def telling(self, batch: int) -> Iterator[None]:
        """What goes wrong in the block is told."""
        try:
            yield
        except Exception as error:
            print(f"{self.name.format(batch=batch)}: {error}", file=sys.stderr)


class CursorListener(BatchListener):
    """For one subscription."""

    def __init__(
        self,
        url: str,
        subscription: str,
        *,
        query: str | None = None,
        source: int = 0,
        options: Mapping[str, str] | None = None,
        move: Move | None = None,
    ) -> None:
        name = f"amqp listener: cursor {subscription!r} was not moved"
        super().__init__(name, url, query, source, options, subscription=subscription)
        self._subscription = subscription
        self._move = move
        self._last: list[Offsets | None] = [None] * len(self.brokers)

    def done(self, progress: Any, source: Any) -> None:
        """Moves the cursor to the end of the batch."""
        if not source.endOffset or source.endOffset == "null":
            return
        places = read_place(json.loads(source.endOffset)).brokers
        for number, (broker, offsets) in enumerate(zip(self.brokers, places, strict=False)):
            if offsets == self._last[number]:
                continue
            with self.telling(progress.batchId), closing(RetainedClient(broker)) as client:
                if offsets.positions:
                    (self._move or client.move)(self._subscription, offsets.positions)
                self._last[number] = offsets
