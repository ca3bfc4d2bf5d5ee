"""What `/metrics` answers: the figures of the table, as text that Prometheus reads (OpenMetrics).

    entities of $management --a slice at a time--> samples --a metric at a time--> text, kept for a second

Other tasks have their turn between two slices and between two metrics, so a scrape holds nobody up for longer
than some milliseconds, however many queues there are.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import trio
from prometheus_client import ProcessCollector
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest

from amqp_broker.addresses import parse_pattern
from amqp_broker.management.entity_types import EntityType
from amqp_broker.monitoring.figures import (
    COMMIT_OPERATIONS,
    COMMIT_SECONDS,
    COUNTED,
    COUNTER,
    FIGURES,
    LATEST,
    MESSAGE_AGE,
    NOT_TOLD,
    OF_EACH,
    OF_KEYS,
    OF_MAP,
    OF_ONE,
    SCRAPE_SECONDS,
    STREAMS,
    Figure,
)
from amqp_broker.monitoring.http import HttpAnswer
from amqp_broker.operations.commit_counts import Buckets
from amqp_broker.persistence.questions import StreamCount

if TYPE_CHECKING:
    from amqp_broker.management.node import Management

SLICE: Final = 64  # entities that are looked at without a pause: a tenth of a millisecond
END: Final = b"# EOF\n"


class _Families:
    """What `generate_latest` asks for families."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """All of them."""
        return self._families


class Metrics:
    """Of one broker. `text` is shared by all who ask within limits.metrics_interval_ms."""

    def __init__(self, management: Management) -> None:
        self._management = management
        self._nodes = management.nodes
        self._types: dict[str, EntityType[Any]] = {each.name: each for each in management.types}
        self._patterns = [parse_pattern(pattern) for pattern in self._nodes.config.http.queues]
        self._process = ProcessCollector(registry=None)
        self._asking = trio.Lock()
        self._text = b""
        self._at = -1e9
        self._worked_s = 0.0
        self._how: dict[str, Callable[[Figure, GaugeMetricFamily | CounterMetricFamily], Awaitable[None]]] = {
            OF_ONE: self._of_one, OF_EACH: self._of_each, COUNTED: self._counted, OF_KEYS: self._of_keys,
            OF_MAP: self._of_map, LATEST: self._latest,
        }  # fmt: skip

    async def answer(self) -> HttpAnswer:
        """All metrics."""
        async with self._asking:
            if trio.current_time() >= self._at + self._nodes.config.limits.metrics_interval_ms / 1_000:
                self._text = await self._made()
                self._at = trio.current_time()
            return HttpAnswer(self._text, content_type=CONTENT_TYPE_LATEST)

    async def _made(self) -> bytes:
        begun, parts = time.thread_time(), []
        self._queues = await self._all("queue")
        self._told = self._told_apart()
        for figure in FIGURES:
            family = _family(figure)
            await self._how[figure.how](figure, family)
            parts.append(_written(family))
            await trio.lowlevel.checkpoint()
        for other in await self._others():
            parts.append(_written(other))
            await trio.lowlevel.checkpoint()
        del self._queues, self._told
        self._worked_s = time.thread_time() - begun
        return b"".join([*parts, END])

    def _told_apart(self) -> list[Any]:
        """The queues with samples of their own: the first that were made, so that they stay the same."""
        matching = (
            queue for queue in self._queues
            if any(pattern is not None and pattern.matches(queue.name) for pattern in self._patterns)
        )  # fmt: skip
        return list(islice(matching, self._nodes.config.limits.metrics_labels))

    async def _entities(self, name: str) -> list[Any]:
        """Those of a type that are looked at, not sorted."""
        return self._told if name == "queue" else await self._all(name)

    async def _all(self, name: str) -> list[Any]:
        found = self._types[name].entities()
        if isinstance(found, Awaitable):
            found = await found
        return list(found)

    async def _values(self, figure: Figure) -> list[tuple[str, Any]]:
        """Identity and attribute of each entity, with pauses."""
        entity_type = self._types[figure.type]
        read, identity = entity_type.attributes[figure.attribute], entity_type.identity
        values: list[tuple[str, Any]] = []
        for at, thing in enumerate(await self._entities(figure.type)):
            values.append((identity(thing), read(thing)))
            if at % SLICE == SLICE - 1:
                await trio.lowlevel.checkpoint()
        return values

    async def _of_one(self, figure: Figure, family: Any) -> None:
        for _, value in await self._values(figure):
            if value is not None:
                family.add_metric((), value * figure.scale)

    async def _of_each(self, figure: Figure, family: Any) -> None:
        for identity, value in await self._values(figure):
            if value is not None:
                family.add_metric((identity,), value * figure.scale)

    async def _counted(self, figure: Figure, family: Any) -> None:
        counts = Counter(str(value) for _, value in await self._values(figure))
        for value, count in sorted(counts.items()):
            family.add_metric((value,), count)

    async def _of_keys(self, figure: Figure, family: Any) -> None:
        found = await self._values(figure)
        pairs = ((identity, key, value) for identity, of in found for key, value in of.items())
        for identity, key, value in islice(pairs, self._nodes.config.limits.metrics_labels):
            family.add_metric((identity, key), value * figure.scale)

    async def _of_map(self, figure: Figure, family: Any) -> None:
        for _, found in await self._values(figure):
            for key, value in sorted(found.items()):
                family.add_metric((key,), value * figure.scale)

    async def _latest(self, figure: Figure, family: Any) -> None:
        read = self._types[figure.type].attributes
        done = [one for one in await self._entities(figure.type) if read["state"](one) == "done"]
        family.add_metric((), max(map(read[figure.attribute], done), default=0) * figure.scale)

    async def _others(self) -> list[Metric]:
        """What no entity has: histograms of commits, the process, and the metrics themselves."""
        counts = self._nodes.writer.counts
        streams = await self._nodes.writer.ask(StreamCount())
        return [
            _gauge(STREAMS, streams),
            _histogram(COMMIT_SECONDS, counts.seconds),
            _histogram(COMMIT_OPERATIONS, counts.operations),
            _histogram(MESSAGE_AGE, self._nodes.ages),
            _gauge(NOT_TOLD, len(self._queues) - len(self._told)),
            _gauge(SCRAPE_SECONDS, self._worked_s),
            *self._process.collect(),
        ]


def _family(figure: Figure) -> GaugeMetricFamily | CounterMetricFamily:
    make = CounterMetricFamily if figure.kind == COUNTER else GaugeMetricFamily
    return make(figure.metric, figure.meaning, labels=figure.labels)


def _gauge(figure: Figure, value: float) -> Metric:
    return GaugeMetricFamily(figure.metric, figure.meaning, value=value)


def _histogram(figure: Figure, buckets: Buckets) -> Metric:
    return HistogramMetricFamily(
        figure.metric, figure.meaning, buckets=[*_cumulated(buckets)], sum_value=buckets.sum
    )


def _cumulated(buckets: Buckets) -> Iterator[tuple[str, float]]:
    below = 0
    for end, count in zip((*buckets.ends, float("inf")), [*buckets.counts], strict=True):
        below += count
        yield "+Inf" if end == float("inf") else str(float(end)), below


def _written(family: Metric) -> bytes:
    text: bytes = generate_latest(_Families([family]))  # type: ignore[no-untyped-call]
    return text.removesuffix(END)
