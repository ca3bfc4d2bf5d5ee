"""Tracing put together, from what the configuration says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amqp_broker.tracing.exporting import Exporting, otlp_exporter, provider_of
from amqp_broker.tracing.spans import Tracing
from amqp_broker.version import VERSION

if TYPE_CHECKING:
    from amqp_broker.clock import BrokerClock
    from amqp_broker.configuration import TracingConfig


def tracing(config: TracingConfig, clock: BrokerClock) -> Tracing:
    """What looks on, with a thread that sends; `end` has to be called."""
    exporting = Exporting(config, otlp_exporter(config))
    provider = provider_of(config, exporting)
    return Tracing(config, exporting, provider.get_tracer("amqp_broker", VERSION), clock.now_ms)
