"""The trace context of a client of proton's: it comes out as it went in, and the broker's spans are of it."""

from __future__ import annotations

from proton import Message
from proton.utils import BlockingConnection

from amqp_broker.configuration import TracingConfig
from amqp_broker.embedding import memory_config, running_broker
from tests.support.collector import collector

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CONTEXT = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "vendor=1,other@vendor=2"}


def test_a_traced_message_of_proton() -> None:
    """Sent durable, received, accepted."""
    with collector() as found:
        config = memory_config(tracing=TracingConfig(endpoint=found.endpoint, interval_ms=10))
        with running_broker(config) as broker:
            connection = BlockingConnection(broker.url)
            sender = connection.create_sender("orders")
            sender.send(Message(id="m-1", body="order 17", durable=True, properties=CONTEXT))
            receiver = connection.create_receiver("orders")
            got = receiver.receive()
            receiver.accept()
            assert got.properties == CONTEXT
            connection.close()  # which sends the outcome, too
            spans = found.wait_for(lambda spans: len(spans) == 5)
    assert {span.trace_id for span in spans} == {TRACE}
    parents = {span.name: span.parent for span in spans if span.name != "commit"}
    assert parents == {"publish orders": SPAN, "deliver orders": SPAN, "settle orders": SPAN}
    assert {s.attributes["messaging.message.id"] for s in spans if s.name != "commit"} == {"m-1"}
