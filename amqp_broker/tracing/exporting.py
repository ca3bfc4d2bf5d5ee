"""Spans on their way to the collector, in a thread of their own: whatever becomes of them there, the broker
goes on.

    on_end --queue_spans at most, else dropped--> the thread: batch_spans, or each interval_ms
           --OTLP over HTTP, timeout_ms--> exported | lost

It stands where the SDK's `BatchSpanProcessor` would: that one neither counts what it drops, nor ends within a
time that somebody chose.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import Final

from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, attach, set_value
from opentelemetry.exporter.otlp.proto.http import trace_exporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from amqp_broker.configuration import TracingConfig
from amqp_broker.log_setup import logger
from amqp_broker.version import VERSION

THREAD: Final = "amqp-broker-spans"
STOP_S: Final = 2.0  # for what waits when the broker ends, where no request is under way


class Exporting(SpanProcessor):
    """The ended spans of one broker. Since the start so many were `exported`; `dropped`, since too many
    waited; or `lost`, since the collector did not take them.
    """

    def __init__(self, config: TracingConfig, exporter: SpanExporter) -> None:
        self._config = config
        self._exporter = exporter
        self._waiting: deque[ReadableSpan] = deque()
        self._wake = threading.Event()
        self._stopping = False
        self._fails = self._told_failing = False
        self._log = logger("tracing")
        self.exported = 0
        self.dropped = 0
        self.lost = 0
        self._thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
        self._thread.start()

    # In the thread of the broker

    def on_end(self, span: ReadableSpan) -> None:
        """Have a span sent, soon."""
        if len(self._waiting) >= self._config.queue_spans:
            self.dropped += 1
        else:
            self._waiting.append(span)
        if len(self._waiting) >= self._config.batch_spans:
            self._wake.set()
        if self._fails is not self._told_failing:
            self._tell(self._fails)

    def _tell(self, fails: bool) -> None:
        self._told_failing = fails
        if fails:
            self._log.warning("collector.away", endpoint=self._config.endpoint, lost=self.lost)
        else:
            self._log.info("collector.back", endpoint=self._config.endpoint, lost=self.lost)

    # In its own

    def _run(self) -> None:
        attach(set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))  # who embeds us may trace requests, not these
        while not self._stopping:
            self._wake.wait(self._config.interval_ms / 1_000)
            self._wake.clear()
            self._send()

    def _send(self) -> None:
        """All that waits, batch by batch; where one is lost while the broker ends, so is the rest."""
        while self._waiting:
            count = min(len(self._waiting), self._config.batch_spans)
            batch = [self._waiting.popleft() for _ in range(count)]
            try:
                taken = self._exporter.export(batch) is SpanExportResult.SUCCESS
            except Exception:
                taken = False
            if taken:
                self.exported += count
            else:
                self.lost += count
            self._fails = not taken
            if self._fails and self._stopping:
                self.lost += len(self._waiting)
                self._waiting.clear()

    # From any thread

    def stop(self) -> None:
        """Send what waits, as far as there is time: that of one request, at most."""
        self._stopping = True
        self._wake.set()
        self._thread.join(STOP_S)
        self._exporter.shutdown()  # no request is tried once more
        self._thread.join(self._config.timeout_ms / 1_000)


class _NotOurs(logging.Filter):
    """What the exporter logs of our requests is told by us, once and not for each."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is for others."""
        return record.threadName != THREAD


def otlp_exporter(config: TracingConfig) -> SpanExporter:
    """To the endpoint of the configuration; headers, as tokens are, and certificates come from the variables
    of the environment that OpenTelemetry has for that.
    """
    log = logging.getLogger(trace_exporter.__name__)
    if not any(isinstance(known, _NotOurs) for known in log.filters):
        log.addFilter(_NotOurs())
    return trace_exporter.OTLPSpanExporter(endpoint=config.endpoint, timeout=config.timeout_ms / 1_000)


def provider_of(config: TracingConfig, exporting: Exporting) -> TracerProvider:
    """A provider of the broker's own: that of a program that embeds it is left alone. What is sampled is
    decided before a span is made.
    """
    provider = TracerProvider(
        sampler=ALWAYS_ON,
        resource=Resource.create({"service.name": config.service_name, "service.version": VERSION}),
        shutdown_on_exit=False,
        span_limits=SpanLimits(max_links=config.batch_spans),
    )
    provider.add_span_processor(exporting)
    return provider
