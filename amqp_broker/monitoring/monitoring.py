"""What the HTTP listener of a broker answers: is it alive, does it take connections, and its metrics."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from amqp_broker.monitoring.http import HttpAnswer, HttpServer
from amqp_broker.monitoring.metrics import Metrics

if TYPE_CHECKING:
    from amqp_broker.broker import Broker

STUCK_S: Final = 10.0  # a commit that takes longer: the disk does not answer, and nothing can be promised


def http_server(broker: Broker) -> HttpServer:
    """The listener that the configuration asks for."""
    metrics = Metrics(broker.managed.management)

    async def alive() -> HttpAnswer:
        return _told(_why_dead(broker))

    async def ready() -> HttpAnswer:
        return _told(_why_dead(broker) or why_not_ready(broker))

    paths = {"/livez": alive, "/readyz": ready, "/metrics": metrics.answer}
    return HttpServer(broker.config.http, broker.config.limits, paths)


def _why_dead(broker: Broker) -> str:
    return "the store failed: the broker ends" if broker.nodes.writer.failure is not None else ""


def why_not_ready(broker: Broker) -> str:
    """Why it takes no connections, or could not keep what comes; empty where it does. A disk that is nearly full
    is no reason: receivers have to come to make room.
    """
    if broker.is_stopping:
        return "it is stopping"
    if not broker.is_listening:
        return "it does not listen yet"
    if broker.nodes.writer.stuck_s > STUCK_S:
        return f"a commit has taken {broker.nodes.writer.stuck_s:.0f} s: the disk does not answer"
    return ""


def _told(reason: str) -> HttpAnswer:
    told = {"status": "failing", "reason": reason} if reason else {"status": "ok"}
    return HttpAnswer(json.dumps(told).encode() + b"\n", 503 if reason else 200, "application/json")
