"""A collector of OpenTelemetry for tests: OTLP over HTTP on a loopback port, and what it was sent."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import attrs
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Sent
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from amqp_broker.testing.blocking_peer import PATIENCE_S


@attrs.frozen
class Span:
    """One span, with its ids as hexadecimal digits; `error` is the description of its status."""

    name: str
    trace_id: str
    span_id: str
    parent: str
    kind: int
    begun: int
    ended: int
    attributes: dict[str, Any]
    links: tuple[str, ...]
    error: str


class Collector:
    """`spans` are all that came. A request has no answer until `answers` is set, which it is at first."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.resources: list[dict[str, Any]] = []
        self.asked = threading.Event()
        self.answers = threading.Event()
        self.answers.set()
        self.status = 200
        self._came = threading.Condition()
        self.endpoint = ""

    def wait_for(self, reached: Callable[[list[Span]], object]) -> list[Span]:
        """All spans, once this is so."""
        with self._came:
            assert self._came.wait_for(lambda: reached(self.spans), PATIENCE_S), [s.name for s in self.spans]
            return [*self.spans]

    def wait_for_names(self, *names: str) -> dict[str, Span]:
        """Spans by these names, each of which has come, and no other; the last one of each."""
        spans = self.wait_for(lambda spans: len(spans) >= len(names))
        assert sorted(span.name for span in spans) == sorted(names)
        return {span.name: span for span in spans}

    def take(self, body: bytes) -> None:
        """One request."""
        request = ExportTraceServiceRequest.FromString(body)
        with self._came:
            for resource in request.resource_spans:
                self.resources.append(_values(resource.resource.attributes))
                for scope in resource.scope_spans:
                    self.spans += [_span(span) for span in scope.spans]
            self._came.notify_all()


def _span(sent: Sent) -> Span:
    failed = sent.status.code == Status.STATUS_CODE_ERROR
    return Span(
        sent.name, sent.trace_id.hex(), sent.span_id.hex(), sent.parent_span_id.hex(), sent.kind,
        sent.start_time_unix_nano, sent.end_time_unix_nano, _values(sent.attributes),
        tuple(link.span_id.hex() for link in sent.links), sent.status.message if failed else "",
    )  # fmt: skip


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


@contextmanager
def collector() -> Iterator[Collector]:
    """One that listens."""
    found = Collector()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.asked.set()
            found.answers.wait(PATIENCE_S)
            if found.status == 200:
                found.take(body)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(found.status)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    found.endpoint = f"http://127.0.0.1:{server.server_address[1]}/v1/traces"
    try:
        yield found
    finally:
        found.answers.set()
        server.shutdown()
        server.server_close()
        thread.join()
