"""What the HTTP listener of a broker answers: is it alive, does it take connections, and its metrics."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from amqp_broker.monitoring.http import HttpAnswer, HttpServer
from amqp_broker.monitoring.metrics import Metrics

if TYPE_CHECKING:
    from amqp_broker.management.node import Management

STUCK_S: Final = 10.0  # a commit that takes longer: the disk does not answer, and nothing can be promised


def http_server(management: Management, why_closed: Callable[[], str]) -> HttpServer:
    """The listener that the configuration asks for. `why_closed`: why the broker takes no connections."""
    metrics, writer = Metrics(management), management.nodes.writer

    def why_dead() -> str:
        return "the store failed: the broker ends" if writer.failure is not None else ""

    async def alive() -> HttpAnswer:
        return _told(why_dead())

    async def ready() -> HttpAnswer:
        return _told(why_dead() or why_closed() or why_stuck(writer.stuck_s))

    paths = {"/livez": alive, "/readyz": ready, "/metrics": metrics.answer}
    nodes = management.nodes
    return HttpServer(nodes.config.http, nodes.config.limits, paths, nodes.refusals)


def why_stuck(commit_s: float) -> str:
    """Why nothing can be promised now; empty where it can. A disk that is nearly full is no reason: receivers
    have to come to make room.
    """
    return f"a commit has taken {commit_s:.0f} s: the disk does not answer" if commit_s > STUCK_S else ""


def _told(reason: str) -> HttpAnswer:
    told = {"status": "failing", "reason": reason} if reason else {"status": "ok"}
    return HttpAnswer(json.dumps(told).encode() + b"\n", 503 if reason else 200, "application/json")
