"""Moves the cursor of a subscription to where its query really is.

    spark.streams.addListener(CursorListener(url, subscription="enrich"))

Spark tells a source that a batch is done only when it plans the next one, so the broker's cursor stands one
batch behind, and for ever where no next one comes. The listener hears of each batch as soon as it is done. It
is a matter of what people see and of what retention may drop, not of correctness: a query that starts again
goes by its checkpoint. Nothing that goes wrong here reaches the query; it is written to standard error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from amqp_broker.pipeline.offsets import Offsets, read_place
from amqp_broker.pipeline.options import BrokerAddress, read_options

Move = Callable[[str, dict[str, int]], Any]


class CursorListener(StreamingQueryListener):
    """For one subscription. `query` is the name or id of the query that reads it, None for any; `source` its
    place among the sources of that query. `options` are those of the source that say how to connect; `url`
    names all of its brokers.
    """

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
        given = {"amqp.url": url, "subscribe": "-", "subscription": subscription} | dict(options or {})
        brokers = read_options(given, "source").brokers
        self._subscription = subscription
        self._query = query
        self._source = source
        self._moves: list[Move] = [_mover(broker) if move is None else move for broker in brokers]
        self._last: list[Offsets | None] = [None] * len(brokers)

    def onQueryStarted(self, event: Any) -> None:
        """Nothing: the source itself begins at its cursor."""

    def onQueryProgress(self, event: Any) -> None:
        """A batch is done: moves the cursor to its end."""
        progress = event.progress
        if self._query is None or self._query in (progress.name, str(progress.id)):
            self._note([source.endOffset for source in progress.sources])

    def onQueryIdle(self, event: Any) -> None:
        """Nothing new."""

    def onQueryTerminated(self, event: Any) -> None:
        """The last batch was told by its progress."""

    def _note(self, ends: list[str | None]) -> None:
        try:
            end = ends[self._source]
            if not end or end == "null":
                return
            places = read_place(json.loads(end)).brokers
        except Exception as error:
            self._tell(error)
            return
        for number, (move, offsets) in enumerate(zip(self._moves, places, strict=False)):
            try:
                if offsets != self._last[number]:
                    if offsets.positions:
                        move(self._subscription, offsets.positions)
                    self._last[number] = offsets
            except Exception as error:
                self._tell(error)

    def _tell(self, error: Exception) -> None:
        print(f"amqp listener: cursor {self._subscription!r} was not moved: {error}", file=sys.stderr)


def _mover(broker: BrokerAddress) -> Move:
    def move(subscription: str, positions: dict[str, int]) -> None:
        from amqp_broker.pipeline.retained_client import RetainedClient

        client = RetainedClient(broker)
        try:
            client.move(subscription, positions)
        finally:
            client.close()

    return move
