"""What every frame of a broker must keep: each rule is broken once, and told with its row."""

from typing import Any, cast

import pytest

from amqp_broker.conformance.invariants import Invariants
from amqp_broker.conformance.outcomes import Unexpected
from amqp_broker.conformance.requirements import load_requirements
from amqp_broker.frames import (
    Accepted,
    Attach,
    Begin,
    Close,
    Declared,
    Detach,
    Disposition,
    End,
    Flow,
    Frame,
    Open,
    Source,
    Target,
    TransactionalState,
    Transfer,
)


def _within(txn_id: bytes) -> TransactionalState:
    return TransactionalState(txn_id=txn_id, outcome=Accepted())


OPEN = Open(container_id="broker")
BEGIN = Begin(remote_channel=0, next_outgoing_id=0, incoming_window=1, outgoing_window=1)
SENDS = Attach(name="a", handle=0, role=False, source=Source(address="q"), initial_delivery_count=0)


def _transfer(more: bool, state: TransactionalState | None = None) -> Transfer:
    return Transfer(handle=0, delivery_id=0, delivery_tag=b"0", message_format=0, more=more, state=state)


def _attach(**fields: Any) -> Attach:
    return Attach(**{"name": "a", "handle": 0, "role": False, **fields})


FIRST = _transfer(more=True)
DECLARED = Disposition(role=True, first=0, settled=True, state=Declared(txn_id=b"t" * 32))
FLOW: dict[str, Any] = {"incoming_window": 1, "next_outgoing_id": 0, "outgoing_window": 1}
ODD_NODE = Target(address="q", dynamic_node_properties={"x": 1})

BREACHES: list[tuple[str, list[Any]]] = [
    ("2.7.1-01", [BEGIN]),
    ("2.4.3-02", [OPEN, Close(), BEGIN]),
    ("2.4.3-04", [OPEN, (1, Close())]),
    ("2.7.1-07", [OPEN, (4, End())]),
    ("2.5.1-01", [OPEN, Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)]),
    ("2.7.2-03", [OPEN, BEGIN, _attach(handle=2, role=True, target=Target())]),
    ("2.7.3-01", [OPEN, BEGIN, SENDS, SENDS]),
    ("2.7.3-08", [OPEN, BEGIN, _attach()]),
    ("3.5.3-02", [OPEN, BEGIN, _attach(initial_delivery_count=0, source=Source(dynamic=True))]),
    ("3.5.3-06", [OPEN, BEGIN, _attach(role=True, target=ODD_NODE)]),
    ("2.7.4-02", [OPEN, BEGIN, Flow(**FLOW, delivery_count=1)]),
    ("2.7.4-06", [OPEN, BEGIN, Flow(**FLOW, link_credit=1)]),
    ("2.7.4-07", [OPEN, BEGIN, Flow(**FLOW, available=1)]),
    ("2.7.4-03", [OPEN, BEGIN, SENDS, Flow(**FLOW, handle=0)]),
    ("2.7.5-handle", [OPEN, BEGIN, FIRST]),
    ("2.7.5-01", [OPEN, BEGIN, SENDS, Transfer(handle=0, delivery_tag=b"0", message_format=0)]),
    ("2.7.5-02", [OPEN, BEGIN, SENDS, Transfer(handle=0, delivery_id=0, message_format=0)]),
    ("2.7.5-03", [OPEN, BEGIN, SENDS, Transfer(handle=0, delivery_id=0, delivery_tag=b"0")]),
    ("4.5.4-length", [OPEN, BEGIN, Disposition(role=True, first=0, state=Declared(txn_id=cast(bytes, "t")))]),
    ("4.4-01", [OPEN, BEGIN, DECLARED, SENDS, _transfer(True, _within(b"u"))]),
    ("2.6.14-01", [OPEN, BEGIN, SENDS, FIRST, Transfer(handle=0, delivery_id=1)]),
]
"""Frames on channel 0, or with their channel."""


def _watch(frames: list[Any]) -> None:
    """Checks frames of a broker whose client has said channel-max 3 and handle-max 1."""
    invariants = Invariants()
    invariants.sent(Open(container_id="client", channel_max=3), 0)
    invariants.sent(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1, handle_max=1), 0)
    for frame in frames:
        channel, performative = frame if isinstance(frame, tuple) else (0, frame)
        invariants.check(Frame(0, channel, performative, b""))


@pytest.mark.parametrize(("row", "frames"), BREACHES, ids=[row for row, _ in BREACHES])
def test_a_breach_is_told_with_its_row(row: str, frames: list[Any]) -> None:
    """The last frame breaks a rule; those before it do not."""
    _watch(frames[:-1])
    with pytest.raises(Unexpected, match=row):
        _watch(frames)
    assert row in load_requirements()


def test_a_good_dialogue_passes() -> None:
    """Frames that keep every rule pass, also where handles and deliveries follow each other."""
    retired = Disposition(role=True, first=1, settled=True, state=_within(b"t" * 32))
    link = [FIRST, Transfer(handle=0, delivery_id=0), FIRST, Transfer(handle=0, aborted=True)]
    flows = [Flow(**FLOW, handle=0, delivery_count=1), Flow(**FLOW)]
    again = [Detach(handle=0), SENDS, End(), BEGIN, SENDS, None]
    work = [DECLARED, retired, _transfer(False, _within(b"t" * 32))]
    _watch([OPEN, BEGIN, SENDS, *link, *flows, *again, *work, Close()])


def test_sasl_frames_are_not_looked_at() -> None:
    """Frames of the SASL layer come before open."""
    Invariants().check(Frame(1, 0, None, b""))
