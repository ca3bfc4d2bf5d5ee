"""Events of messages as readers of `$events` get them, whatever peers have put into their messages."""

from __future__ import annotations

from typing import Any

from amqp_broker.embedding import running_broker
from amqp_broker.frames import Error, Header, Properties, Rejected, encode_message
from tests.support.broker_clients import receive, round_trip, session_to
from tests.support.event_replay import MESSAGE_KINDS
from tests.support.message_events import config_with_events, log_of
from tests.support.retained import event_of, offset_of, read
from tests.support.sequenced import annotated, outcomes

LARGEST = 2**64 - 1


def test_readers_get_what_the_store_has() -> None:
    """Each entry of a run is a message of its own, with all its fields; texts and numbers at their limits."""
    texts = ["", "\x00", "\U0001f600" * 300, '"\\', "\u2028", "x" * 70_000]
    with running_broker(config_with_events()) as broker, session_to(broker, 'c\u00fc"') as session:
        sender = session.attach_sender("s", "e.q")
        for text in texts:
            properties = Properties(message_id=text, group_id=text, group_sequence=2**32 - 1)
            outcomes(sender, [encode_message(header=Header(durable=True), properties=properties, body=b"b")])
        outcomes(sender, [encode_message(body=bytes([number])) for number in range(100)])
        places = [(LARGEST, 1, 0), (LARGEST, 2**32 - 1, 2**32 - 2), (2**63, 1, 0)]
        outcomes(sender, [annotated(place, stream="\u00fc" * 128) for place in places])
        receiver = session.attach_receiver("r", "e.q", credit=1)
        error = Error(condition="amqp:not-allowed", description="\x00" * 3000)
        receiver.settle(receive(receiver, 1), Rejected(error=error))
        round_trip(session)
        stored = log_of(broker)
        shown = receive(read(session, "$events", "first", credit=1_000), len(stored))
    assert [offset_of(one) for one in shown] == [event.seq for event in stored]
    for one, event in zip(shown, stored, strict=True):
        fields: dict[str, Any] = event_of(one)
        assert event.kind in MESSAGE_KINDS
        own = {name: value for name, value in fields.items() if name not in ("type", "lsn", "time")}
        assert (fields["type"], own) == (event.kind, event.fields)
    kinds = [event.kind for event in stored]
    assert {"put", "reject", "deliver", "settle", "dead"} <= set(kinds)
    numbers = {event.fields.get("seq_id") for event in stored}
    assert numbers == {None, -1, -(2**63)}, "a ulong is told as the long of the same octets"
