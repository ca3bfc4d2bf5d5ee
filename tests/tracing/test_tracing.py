"""The broker's spans in the traces of its clients, as a collector gets them."""

from __future__ import annotations

import secrets
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from amqp_broker.broker import Broker
from amqp_broker.configuration import BrokerConfig, HttpConfig, QueuePolicy, TracingConfig
from amqp_broker.configuration_fields import ConfigurationError
from amqp_broker.embedding import RunningBroker, memory_config, running_broker
from amqp_broker.frames import (
    Accepted,
    Error,
    Header,
    Message,
    Modified,
    Properties,
    Rejected,
    Released,
    Source,
    Symbol,
    Target,
    TransactionalState,
    encode_message,
)
from amqp_broker.testing.blocking_peer import PATIENCE_S
from amqp_broker.testing.peer import Delivery, PeerSession
from amqp_broker.tracing import spans as spans_module
from tests.support.broker_clients import counts, receive, session_to, settle_down
from tests.support.collector import Collector, collector
from tests.support.controllers import Controller
from tests.support.sequenced import annotated

SPAN = "b7ad6b7169203331"
REJECTED = Rejected(error=Error(condition="test:no", description="a secret"))


def parent_of(sampled: bool = True) -> tuple[str, str]:
    """A new trace-id, and the traceparent of a sender in it."""
    trace_id = secrets.token_hex(16)
    return trace_id, f"00-{trace_id}-{SPAN}-0{int(sampled)}"


def traced(traceparent: str, body: bytes = b"hello", **fields: Any) -> bytes:
    """A durable message of this trace."""
    return encode_message(
        header=Header(durable=True), properties=Properties(message_id="m-1"),
        application_properties={"traceparent": traceparent, "tracestate": "vendor=1"}, body=body, **fields,
    )  # fmt: skip


def config_with(found: Collector, **changes: Any) -> BrokerConfig:
    """A broker in memory that sends its spans there at once."""
    tracing = TracingConfig(**{"endpoint": found.endpoint, "interval_ms": 10, **changes})
    return memory_config(tracing=tracing, queue_policies=(QueuePolicy(pattern="t", kind="topic"),))


@contextmanager
def at_collector(**changes: Any) -> Iterator[tuple[RunningBroker, Collector]]:
    """A broker and where its spans go."""
    with collector() as found, running_broker(config_with(found, **changes)) as broker:
        yield broker, found


def post(session: PeerSession, address: str, *payloads: bytes, txn_id: bytes | None = None) -> list[Any]:
    """Send all in one write; the outcomes."""
    sender = session.attach_sender(f"to {address} {secrets.token_hex(4)}", address)
    session.connection.pump_until(lambda: sender.may_send)
    numbers = [sender.send(payload, txn_id=txn_id) for payload in payloads]
    session.connection.pump_until(lambda: all(number in sender.outcomes for number in numbers))
    return [sender.outcomes[number] for number in numbers]


def take(session: PeerSession, address: str, outcome: Any = None) -> Delivery:
    """One message, with its outcome, which is waited for."""
    receiver = session.attach_receiver(f"from {address} {secrets.token_hex(4)}", address, credit=1)
    (found,) = receive(receiver, 1)
    receiver.settle(found, Accepted() if outcome is None else outcome)
    session.connection.flush()
    receiver.detach()
    return found


def bare(payload: bytes) -> bytes:
    """The bare message."""
    return Message(payload).bare


def test_the_way_of_a_message() -> None:
    """Publish, its commit, deliver, settle, and the commit of that: one trace, below the sender's span."""
    trace_id, traceparent = parent_of()
    sent = traced(traceparent)
    before = time.time_ns()
    with at_collector() as (broker, found):
        with session_to(broker) as session:
            post(session, "orders", sent)
            got = take(session, "orders")
            spans = found.wait_for(lambda spans: len(spans) == 5)
    assert bare(got.payload) == bare(sent)
    assert {span.trace_id for span in spans} == {trace_id}
    own = {span.name: span for span in spans if span.name != "commit"}
    publish, deliver, settle = (own[f"{what} orders"] for what in ("publish", "deliver", "settle"))
    assert [span.parent for span in (publish, deliver, settle)] == [SPAN] * 3
    commits = [span for span in spans if span.name == "commit"]
    assert sorted(span.parent for span in commits) == sorted([publish.span_id, settle.span_id])
    assert all(span.links == () and span.error == "" for span in spans)
    assert publish.attributes == {
        "messaging.system": "amqp_broker", "messaging.destination.name": "orders",
        "messaging.operation.name": "publish", "messaging.operation.type": "send",
        "messaging.message.id": "m-1", "messaging.message.body.size": 10,
        "messaging.message.envelope.size": len(sent) - Message(sent).after_header_offset,
    }  # fmt: skip
    assert settle.attributes["amqp_broker.outcome"] == "accepted"
    assert deliver.attributes["amqp_broker.delivery_count"] == 0
    first = min(commits, key=lambda span: span.begun)
    now = time.time_ns()
    assert before <= publish.begun <= first.begun <= first.ended <= publish.ended <= now
    assert publish.begun <= deliver.begun <= deliver.ended <= settle.begun <= settle.ended <= now
    assert found.resources[0]["service.name"] == "amqp-broker"


def test_only_what_its_sender_records() -> None:
    """Without a context, with one that is not sampled, or none that is well formed, there are no spans."""
    trace_id, traceparent = parent_of()
    plain = encode_message(header=Header(durable=True), body=b"plain")
    others = [plain, traced(parent_of(sampled=False)[1]), traced("00-no")]
    with at_collector() as (broker, found):
        with session_to(broker) as session:
            assert post(session, "q", *others, traced(traceparent), *others) == [Accepted()] * 7
            receiver = session.attach_receiver("r", "q", credit=7)
            receiver.settle(receive(receiver, 7))
            settle_down(broker, session)
        found.wait_for(lambda spans: len(spans) == 5)
    assert {span.trace_id for span in found.spans} == {trace_id} and len(found.spans) == 5


def test_a_part_of_the_traces() -> None:
    """Whole traces, chosen by their ids: the lower half of these counts."""
    low, high = "0" * 31 + "1", "f" * 32
    with at_collector(ratio=0.5) as (broker, found):
        with session_to(broker) as session:
            post(session, "q", *[traced(f"00-{trace_id}-{SPAN}-01") for trace_id in (high, low, high)])
            found.wait_for_names("publish q", "commit")
    assert {span.trace_id for span in found.spans} == {low}


def test_a_commit_of_several() -> None:
    """One span, below the first, with links to the others, and the size of its group."""
    with at_collector() as (broker, found):
        with session_to(broker) as session:
            post(session, "q", *[traced(parent_of()[1]) for _ in range(3)])
            spans = found.wait_for(lambda spans: len(spans) == 4)
    (commit,) = [span for span in spans if span.name == "commit"]
    first, second, third = sorted((s for s in spans if s.name == "publish q"), key=lambda s: s.begun)
    assert commit.parent == first.span_id and commit.trace_id == first.trace_id
    assert commit.links == (second.span_id, third.span_id)
    assert commit.attributes["messaging.batch.message_count"] == 3
    assert commit.attributes["amqp_broker.commit.operations"] == 1


def test_after_a_restart(tmp_path: Path) -> None:
    """The message has its context still: who takes it then is in the same trace."""
    trace_id, traceparent = parent_of()
    with collector() as found:
        config = attrs.evolve(config_with(found), memory=False, data_dir=str(tmp_path))
        with running_broker(config) as broker, session_to(broker) as session:
            post(session, "q", traced(traceparent))
        found.wait_for_names("publish q", "commit")
        found.spans.clear()
        with running_broker(config) as broker, session_to(broker) as session:
            got = take(session, "q")
            spans = found.wait_for_names("deliver q", "settle q", "commit")
    named = Message(got.payload).application_properties or {}
    assert (named["traceparent"], named["tracestate"]) == (traceparent, "vendor=1")
    assert {span.trace_id for span in spans.values()} == {trace_id}
    assert spans["deliver q"].parent == spans["settle q"].parent == SPAN


def test_a_transaction_that_is_rolled_back() -> None:
    """Publish and settle end with it, and say so; no commit did anything for them."""
    with at_collector() as (broker, found):
        with session_to(broker) as session:
            post(session, "in", traced(parent_of()[1]))
            found.wait_for_names("publish in", "commit")
            found.spans.clear()
            control = Controller(session)
            txn_id = control.declare()
            receiver = session.attach_receiver("r", "in", credit=1)
            (got,) = receive(receiver, 1)
            receiver.settle(got, TransactionalState(txn_id=txn_id, outcome=Accepted()), settled=False)
            post(session, "out", traced(parent_of()[1]), txn_id=txn_id)
            control.roll_back(txn_id)
            spans = found.wait_for_names("deliver in", "settle in", "publish out")
    assert spans["deliver in"].error == ""
    for name in ("settle in", "publish out"):
        assert spans[name].error == spans[name].attributes["error.type"] == "amqp:transaction:rollback"


def test_a_transaction_that_is_committed() -> None:
    """Its publish lasts until its discharge, whose commit is that of all in it."""
    with at_collector() as (broker, found):
        with session_to(broker) as session:
            control = Controller(session)
            txn_id = control.declare()
            post(session, "a", traced(parent_of()[1]), txn_id=txn_id)
            post(session, "b", traced(parent_of()[1]), txn_id=txn_id)
            assert found.spans == []
            control.commit(txn_id)
            spans = found.wait_for_names("publish a", "publish b", "commit")
    assert spans["commit"].parent == spans["publish a"].span_id
    assert spans["commit"].links == (spans["publish b"].span_id,)
    assert spans["publish a"].error == ""


def test_a_rejected_message_is_a_dead_letter() -> None:
    """Settle says what it came to, without the words of the receiver; its trace goes on where it went."""
    trace_id, traceparent = parent_of()
    with at_collector() as (broker, found):
        with session_to(broker) as session:
            post(session, "q", traced(traceparent))
            take(session, "q", REJECTED)
            settle_down(broker, session)
            dead = take(session, "dead-letters")
            spans = found.wait_for(lambda spans: len(spans) == 8)
    settle = next(span for span in spans if span.name == "settle q")
    assert settle.error == settle.attributes["error.type"] == "test:no"
    assert settle.attributes["amqp_broker.outcome"] == "rejected"
    assert {"deliver dead-letters", "settle dead-letters"} <= {span.name for span in spans}
    assert {span.trace_id for span in spans} == {trace_id}
    assert (Message(dead.payload).application_properties or {})["traceparent"] == traceparent
    assert "secret" not in repr(spans)


def test_what_comes_back_is_delivered_again() -> None:
    """Each delivery and outcome is a span; those that return the message end at once."""
    with at_collector() as (broker, found):
        with session_to(broker) as session:
            post(session, "q", traced(parent_of()[1]))
            for outcome in (Released(), Modified(delivery_failed=True), Accepted()):
                take(session, "q", outcome)
                settle_down(broker, session)
            spans = found.wait_for(lambda spans: len(spans) == 9)
    settled = [span.attributes["amqp_broker.outcome"] for span in spans if span.name == "settle q"]
    assert settled == ["released", "modified", "accepted"]
    delivered = [s.attributes["amqp_broker.delivery_count"] for s in spans if s.name == "deliver q"]
    assert delivered == [0, 0, 1]


def test_what_only_memory_has() -> None:
    """No commit, and the same spans else."""
    payload = encode_message(application_properties={"traceparent": parent_of()[1]}, body=b"x")
    with at_collector() as (broker, found):
        with session_to(broker) as session:
            post(session, "q", payload)
            take(session, "q")
            found.wait_for_names("publish q", "deliver q", "settle q")


def test_topics_the_anonymous_terminus_and_annotations() -> None:
    """What is copied is delivered in the trace of what was published; ids are cut."""
    trace_id, traceparent = parent_of()
    name = "q" * 200
    with at_collector() as (broker, found):
        with session_to(broker) as session:
            receivers = [session.attach_receiver(f"r{n}", "t", credit=1) for n in range(2)]
            post(session, "t", traced(traceparent))
            for receiver in receivers:
                receiver.settle(receive(receiver, 1))
            relay = session.attach_sender("relay", None, target=Target())
            session.connection.pump_until(lambda: relay.may_send)
            annotations = {Symbol("traceparent"): f"00-{trace_id}-{'1' * 16}-01"}
            relay.send(encode_message(
                message_annotations=annotations, properties=Properties(to=name, message_id="m" * 300),
                application_properties={"traceparent": traceparent}, body=b"x",
            ))  # fmt: skip
            session.connection.flush()
            spans = found.wait_for(lambda spans: any(s.name.startswith("publish q") for s in spans))
    assert {span.trace_id for span in spans} == {trace_id}
    assert sum(span.name.startswith("deliver") for span in spans) == 2
    (relayed,) = [span for span in spans if span.name.startswith("publish q")]
    assert relayed.parent == "1" * 16
    assert relayed.attributes["messaging.destination.name"] == name
    assert len(relayed.attributes["messaging.message.id"]) == 255


def test_sequenced_streams() -> None:
    """What a stream does not take is refused, and what was there before was published."""
    named = {"traceparent": parent_of()[1]}

    def placed(number: int) -> bytes:
        whole = Message(annotated((1, number, number - 1)))
        return encode_message(
            header=Header(durable=True), message_annotations=whole.message_annotations,
            application_properties=named, body=b"x",
        )  # fmt: skip

    with at_collector() as (broker, found):
        with session_to(broker) as session:
            post(session, "q", placed(1), placed(1), placed(7))
            spans = found.wait_for(lambda spans: len(spans) == 4)
    errors = [span.error for span in spans if span.name == "publish q"]
    assert sorted(error[:4] for error in errors) == ["", "", "seq:"]


def test_a_link_whose_source_outlives_the_broker(tmp_path: Path) -> None:
    """What it is sent goes another way: who holds it is stored before."""
    source = Source(address="q", durable=2, expiry_policy="never", timeout=600)
    with collector() as found:
        config = attrs.evolve(config_with(found), memory=False, data_dir=str(tmp_path))
        with running_broker(config) as broker, session_to(broker) as session:
            post(session, "q", traced(parent_of()[1]))
            receiver = session.attach_receiver("r", "q", credit=1, source=source)
            assert isinstance(receiver.remote_terminus, Source) and receiver.remote_terminus.durable == 2
            receiver.settle(receive(receiver, 1))
            session.connection.flush()
            found.wait_for(lambda spans: any(span.name == "settle q" for span in spans))
    names = [span.name for span in found.spans]
    assert names.count("deliver q") == names.count("settle q") == 1


# What goes wrong with traces is no message's fault


def fates(broker: RunningBroker) -> dict[str, int]:
    """What became of spans, as the metrics have it."""

    def told(inner: Broker) -> dict[str, int]:
        return dict(inner.writer.watcher.counts())

    found: dict[str, int] = broker.call(told)
    return found


def test_a_collector_that_is_away() -> None:
    """Messages come and go, spans are lost and counted, and the broker ends as it always does."""
    with collector() as gone:
        pass
    with running_broker(config_with(gone, timeout_ms=200)) as broker:
        with session_to(broker) as session:
            for _ in range(20):
                post(session, "q", traced(parent_of()[1]))
            assert counts(broker, "q")[0] == 20
            told = fates(broker)
    assert told["exported"] == told["fault"] == 0


def test_a_collector_that_does_not_answer() -> None:
    """What waits for it is bounded; what is beyond that is dropped, and counted. The end waits for one
    request at most.
    """
    with collector() as slow:
        slow.answers.clear()
        config = config_with(slow, queue_spans=8, batch_spans=2, timeout_ms=300)
        with running_broker(config) as broker:
            with session_to(broker) as session:
                post(session, "q", traced(parent_of()[1]))
                assert slow.asked.wait(20)
                post(session, "q", *[traced(parent_of()[1]) for _ in range(50)])
                assert counts(broker, "q")[0] == 51
                told = fates(broker)
            assert told["dropped"] >= 51 - 8 - 2 and told["fault"] == 0
            begun = time.monotonic()
        assert time.monotonic() - begun < PATIENCE_S / 2  # which the collector has


def test_a_collector_that_refuses(caplog: pytest.LogCaptureFixture) -> None:
    """What it did not take is lost. The log says so once, by the broker's own words."""
    with at_collector(timeout_ms=200) as (broker, found):
        found.status = 400
        with session_to(broker) as session:
            post(session, "q", traced(parent_of()[1]))
            found.asked.wait(20)
            settle_down(broker, session)
            while not fates(broker)["lost"]:
                settle_down(broker, session)
            found.status = 200
            post(session, "q", traced(parent_of()[1]))
            found.wait_for_names("publish q", "commit")
            assert fates(broker)["lost"] == 2
            settle_down(broker, session)
    assert caplog.text.count("collector.away") == 1 and "Failed to export" not in caplog.text


def test_bounds_of_spans() -> None:
    """So many in a second, and so many that wait for a discharge; the messages are all there."""
    with at_collector(spans_per_s=3) as (broker, found):
        with session_to(broker) as session:
            begun = time.monotonic()
            post(session, "q", *[traced(parent_of()[1]) for _ in range(100)])
            seconds = time.monotonic() - begun + 2  # those that have begun
            assert counts(broker, "q")[0] == 100
            assert 100 - fates(broker)["dropped"] <= 3 * seconds
    with at_collector(open_spans=3) as (broker, found):
        with session_to(broker) as session:
            control = Controller(session)
            txn_id = control.declare()
            post(session, "q", *[traced(parent_of()[1], b"%d" % n) for n in range(5)], txn_id=txn_id)
            control.commit(txn_id)
            found.wait_for_names(*["publish q"] * 3, "commit")
            assert fates(broker)["dropped"] == 2


def test_what_is_open_at_the_end_says_so() -> None:
    """A broker that stops has rolled back what was in transactions, and sends what waits."""
    with at_collector(interval_ms=60_000) as (broker, found):
        with session_to(broker) as session:
            post(session, "q", traced(parent_of()[1]), txn_id=Controller(session).declare())
    (span,) = found.spans
    assert span.name == "publish q" and span.error == "amqp:transaction:rollback"


def test_a_fault_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is counted, and the message goes its way."""

    def fails(body: bytes) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(spans_module, "context_of", fails)
    with at_collector() as (broker, found):
        with session_to(broker) as session:
            assert post(session, "q", traced(parent_of()[1])) == [Accepted()]
            take(session, "q")
            settle_down(broker, session)
            assert counts(broker, "q")[0] == 0
            assert fates(broker)["fault"] == 3
    assert found.spans == []


def test_the_metric() -> None:
    """What became of spans is in the metrics; without traces there is nothing to tell."""

    def told(config: BrokerConfig) -> list[str]:
        config = attrs.evolve(config, http=HttpConfig(url="http://127.0.0.1:0"))
        with running_broker(config) as broker, session_to(broker) as session:
            post(session, "q", traced(parent_of()[1]))
            if config.tracing.endpoint is not None:
                found.wait_for_names("publish q", "commit")
                while fates(broker)["exported"] < 2:  # the answer follows
                    settle_down(broker, session)
            url = broker.call(lambda inner: inner.http_url)
            with urllib.request.urlopen(f"{url}/metrics") as response:
                text = response.read().decode()
        return [line for line in text.splitlines() if line.startswith("amqp_trace_spans_total")]

    with collector() as found:
        assert [line.split("{")[1] for line in told(config_with(found))] == [
            'fate="dropped"} 0.0', 'fate="exported"} 2.0', 'fate="fault"} 0.0', 'fate="lost"} 0.0'
        ]  # fmt: skip
    assert told(memory_config()) == []


# What is configured


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks for spans is told what to install; nobody else needs it."""
    for name in [name for name in sys.modules if name.startswith(("amqp_broker.tracing.", "opentelemetry"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with running_broker(memory_config()):
        pass
    config = memory_config(tracing=TracingConfig(endpoint="http://127.0.0.1:4318/v1/traces"))
    wanted = r"tracing.endpoint = .*pip install 'amqp-broker\[tracing\]'"
    with pytest.raises(ConfigurationError, match=wanted):
        with running_broker(config):
            pass


@pytest.mark.parametrize(("table", "problem"), [
    ('endpoint = "http://collector.example.org:4318/v1/traces"', "unless plain_http = true"),
    ('endpoint = "https://me:pw@collector.example.org/"', "without a login and a query"),
    ('endpoint = "https://collector.example.org/?key=1"', "without a login and a query"),
    ('endpoint = "127.0.0.1:4318"', "must be https"),
    ("ratio = 1.5", "from 0.0 to 1.0"),
    ("ratio = true", "from 0.0 to 1.0"),
    ("queue_spans = 100", "must be at most queue_spans"),
    ('service_name = ""', "1 to 255 bytes"),
])  # fmt: skip
def test_what_is_wrong_in_a_configuration(table: str, problem: str) -> None:
    """Each bound has its words."""
    with pytest.raises(ConfigurationError, match=problem):
        memory_config(f"[tracing]\n{table}\n")


def test_a_collector_elsewhere_where_that_is_wanted() -> None:
    """Where nobody else listens, http is enough."""
    url = "http://collector.example.org:4318/v1/traces"
    config = memory_config(f'[tracing]\nendpoint = "{url}"\nplain_http = true\nratio = 0.1\n')
    assert (config.tracing.endpoint, config.tracing.ratio) == (url, 0.1)
