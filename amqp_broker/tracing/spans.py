"""What becomes spans: the broker's part in the traces of messages whose senders record them.

    span      parent                    from                       to
    publish   the message's context     its transfer was taken     its commit was told to the sender; in a
                                                                   transaction that is its discharge
    commit    the first that it ends    the commit began           it returned; one for each group, with links
                                                                   to all others that it ends
    deliver   the message's context     it was sent                at once: how long it waited is an attribute
    settle    the message's context     its outcome came           the commit of that, or the discharge

So a trace goes as far as the message, also behind a restart: nothing but the message has its context.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
)

from amqp_broker.coordinator import TransactionError
from amqp_broker.frames import Accepted, DecodeError, Error, Message, Rejected
from amqp_broker.frames.message_peek import peek_identity
from amqp_broker.log_setup import logger
from amqp_broker.nodes.termini import OUTCOMES
from amqp_broker.operations.operation import error_of
from amqp_broker.persistence import size_of
from amqp_broker.tracing.context import TraceContext, context_of
from amqp_broker.tracing.exporting import Exporting, otlp_exporter, provider_of
from amqp_broker.version import VERSION
from amqp_broker.watching import Watcher

if TYPE_CHECKING:
    from amqp_broker.clock import BrokerClock
    from amqp_broker.configuration import TracingConfig
    from amqp_broker.persistence import Record
    from amqp_broker.queue import Consumer, Queue

Method = TypeVar("Method", bound=Callable[..., None])

SYSTEM: Final = "amqp_broker"
TEXT_CHARACTERS: Final = 255
"""Of a name or an id in a span: what is longer is cut."""
TRACE_ID_MASK: Final = 2**64 - 1  # the half that is random in every version of the standard
NS: Final = 1_000_000_000


class Kind(NamedTuple):
    """A kind of span; `type` is what OpenTelemetry calls what it does."""

    name: str
    kind: SpanKind
    type: str


POST: Final = Kind("publish", SpanKind.SERVER, "send")
DELIVER: Final = Kind("deliver", SpanKind.PRODUCER, "receive")
SETTLE: Final = Kind("settle", SpanKind.SERVER, "settle")
COMMIT: Final = "commit"


class _Open(NamedTuple):
    """A span that waits for a commit, and its message."""

    record: Record
    span: Span


def _harmless(method: Method) -> Method:
    """A fault of ours is logged, once, and the message goes on."""

    @wraps(method)
    def guarded(self: Tracing, *arguments: Any) -> None:
        try:
            method(self, *arguments)
        except Exception:
            self.fault()

    return cast("Method", guarded)


class Tracing(Watcher):
    """Of one broker, whose time is `now_ms`; `end` has to be called at its end."""

    def __init__(
        self, config: TracingConfig, exporting: Exporting, tracer: trace.Tracer, now_ms: Callable[[], int]
    ) -> None:
        self._config = config
        self._exporting = exporting
        self._tracer = tracer
        self._now_ms = now_ms
        self._bound = TraceIdRatioBased.get_bound_for_rate(config.ratio)
        self._open: dict[int, _Open] = {}  # by the id of the record, the oldest first
        self._commit: tuple[int, int, int] | None = None  # from, to, operations
        self._ended: list[SpanContext] = []  # by that commit
        self._second = 0.0
        self._made = 0  # spans in that second
        self._faults = 0
        self._skipped = 0  # for open_spans, spans_per_s

    def fault(self) -> None:
        """Called in an except clause."""
        self._faults += 1
        if self._faults == 1:
            logger("tracing").exception("tracing.fault")

    def counts(self) -> Mapping[str, int]:
        """What became of spans, since the start."""
        exporting = self._exporting
        return {
            "exported": exporting.exported,
            "dropped": exporting.dropped + self._skipped,
            "lost": exporting.lost,
            "fault": self._faults,
        }

    # What the broker tells

    @_harmless
    def came(self, queue: Queue, records: Sequence[Record]) -> None:
        """Spans of publishing begin."""
        for record in records:
            span = self._span(POST, queue, record)
            if span is not None:
                self._keep(record, span)

    @_harmless
    def sent(self, consumer: Consumer, records: Sequence[Record], count: int) -> None:
        """Each delivery is a span of no length."""
        for at in range(count):
            record = records[at]
            span = self._span(DELIVER, consumer.queue, record)
            if span is not None:
                self._end(record)  # of an outcome that gave it back, in case
                waited = self._now_ms() - record.enqueued_at_ms
                span.set_attribute("amqp_broker.waited_ms", waited)
                span.set_attribute("amqp_broker.delivery_count", record.delivery_count)
                span.end()

    @_harmless
    def outcome(self, consumer: Consumer, deliveries: Sequence[Any], outcome: object, waits: bool) -> None:
        """Spans of settling begin; what returns its messages at once ends them, too."""
        waits = waits or isinstance(outcome, Accepted | Rejected)
        for delivery in deliveries:
            span = self._span(SETTLE, consumer.queue, delivery.message)
            if span is None:
                continue
            span.set_attribute("amqp_broker.outcome", _word(outcome))
            if isinstance(outcome, Rejected):
                _fail(span, outcome.error or "rejected")
            if waits:
                self._keep(delivery.message, span)
            else:
                span.end()

    @_harmless
    def stored(self, records: Sequence[Record]) -> None:
        """What was begun for these ends."""
        if self._open:
            for record in records:
                self._end(record)

    @_harmless
    def refused(self, records: Sequence[Record], why: object) -> None:
        """It ends, and says why nothing came of it."""
        if self._open:
            for record in records:
                self._end(record, why)

    @_harmless
    def committed(self, seconds: float, operations: int) -> None:
        """A commit has returned just now."""
        now = time.time_ns()
        self._commit = now - int(seconds * NS), now, operations

    @_harmless
    def told(self) -> None:
        """The commit is a span where somebody traces what it was for."""
        commit, self._commit = self._commit, None
        ended, self._ended = self._ended, []
        if commit is None or not ended:
            return
        begun, end, operations = commit
        first, *others = ended
        span = self._tracer.start_span(
            COMMIT,
            context=_within(first),
            kind=SpanKind.INTERNAL,
            attributes={
                "messaging.system": SYSTEM,
                "messaging.operation.name": COMMIT,
                "messaging.batch.message_count": len(ended),
                "amqp_broker.commit.operations": operations,
            },
            links=[Link(each) for each in others[: self._config.batch_spans]],
            start_time=begun,
        )
        span.end(end)

    def end(self) -> None:
        """The broker ends: what is open was not decided. Blocks, at most for about one request."""
        for record, _ in [*self._open.values()]:
            self._end(record, "the broker ended before it was decided")
        self._exporting.stop()

    # Spans

    def _span(self, kind: Kind, queue: Queue, record: Record) -> Span | None:
        """A span for a message whose trace is recorded; None for all others."""
        found = context_of(record.body)
        if found is None or found.trace_id & TRACE_ID_MASK >= self._bound:
            return None
        if not self._may_make():
            return None
        name = queue.name[:TEXT_CHARACTERS]
        whole = size_of(record)
        attributes: dict[str, str | int] = {
            "messaging.system": SYSTEM,
            "messaging.destination.name": name,
            "messaging.operation.name": kind.name,
            "messaging.operation.type": kind.type,
            "messaging.message.body.size": _body_size(record.body) + whole - len(record.body),
            "messaging.message.envelope.size": whole,
        }
        message_id = peek_identity(record.body)[0]
        if message_id is not None:
            attributes["messaging.message.id"] = message_id[:TEXT_CHARACTERS]
        parent = _within(_remote(found))
        return self._tracer.start_span(f"{kind.name} {name}", parent, kind.kind, attributes)

    def _may_make(self) -> bool:
        """Whether there may be one more in this second."""
        second = time.monotonic() // 1
        if second != self._second:
            self._second, self._made = second, 0
        self._made += 1
        if self._made > self._config.spans_per_s:
            self._skipped += 1
            return False
        return True

    def _keep(self, record: Record, span: Span) -> None:
        """Open until it is decided; where too many are, the oldest is given up."""
        self._end(record)
        if len(self._open) >= self._config.open_spans:
            del self._open[next(iter(self._open))]
            self._skipped += 1
        self._open[id(record)] = _Open(record, span)

    def _end(self, record: Record, why: object = None) -> None:
        """End what is open for a message, if anything is."""
        found = self._open.pop(id(record), None)
        if found is None:
            return
        if why is not None:
            _fail(found.span, why)
        found.span.end()
        if self._commit is not None:
            self._ended.append(found.span.get_span_context())


def _word(outcome: object) -> str:
    """`accepted`, `rejected`, ..."""
    return str(OUTCOMES[type(outcome)]).split(":")[1] if type(outcome) in OUTCOMES else "none"


def _fail(span: Span, why: object) -> None:
    """Mark a span as that of something which did not happen: the condition, never what a peer wrote."""
    if isinstance(why, TransactionError):
        why = why.error()
    elif isinstance(why, Exception):
        why = error_of(why)
    told = str(why.condition) if isinstance(why, Error) else str(why)
    span.set_attribute("error.type", told[:TEXT_CHARACTERS])
    span.set_status(Status(StatusCode.ERROR, told[:TEXT_CHARACTERS]))


def _remote(found: TraceContext) -> SpanContext:
    state = TraceState.from_header([found.state]) if found.state else None
    return SpanContext(found.trace_id, found.span_id, True, TraceFlags(TraceFlags.SAMPLED), state)


def _within(parent: SpanContext) -> Context:
    return trace.set_span_in_context(NonRecordingSpan(parent), Context())


def _body_size(body: bytes) -> int:
    """Octets of the body, without what stands before and behind it."""
    try:
        return len(Message(body).body)
    except DecodeError:
        return 0


def tracing(config: TracingConfig, clock: BrokerClock) -> Tracing:
    """What looks on, with a thread that sends; `end` has to be called."""
    exporting = Exporting(config, otlp_exporter(config))
    provider = provider_of(config, exporting)
    return Tracing(config, exporting, provider.get_tracer("amqp_broker", VERSION), clock.now_ms)
