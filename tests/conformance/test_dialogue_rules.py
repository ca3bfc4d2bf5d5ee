"""The table of rules over a dialogue: each rule is broken once, and told with its row."""

from typing import Any, cast

import pytest

from amqp_broker.conformance.dialogue_rules import RULES, Dialogue
from amqp_broker.conformance.dialogue_state import CLIENT, SERVER
from amqp_broker.conformance.requirements import load_requirements
from amqp_broker.frames import (
    AMQP_HEADER,
    SASL_HEADER,
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
    Released,
    Source,
    Target,
    TransactionalState,
    Transfer,
    encode_frame,
    encode_sasl_frame,
)
from amqp_broker.frames.sasl import SaslInit, SaslMechanisms, SaslOutcome, SaslResponse
from tests.conformance.mutants.between import evolve


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
FLOW: dict[str, Any] = {"incoming_window": 10, "next_outgoing_id": 0, "outgoing_window": 1}
NEXT = {"next_incoming_id": 0}
ODD_NODE = Target(address="q", dynamic_node_properties={"x": 1})

BREACHES: list[tuple[str, list[Any]]] = [
    ("2.4.1-01", [BEGIN]),
    ("2.7.1-01", [OPEN, OPEN]),
    ("2.4.3-02", [OPEN, Close(), BEGIN]),
    ("2.4.3-04", [OPEN, (1, Close())]),
    ("2.7.1-07", [OPEN, (4, End())]),
    ("2.7.2-03", [OPEN, BEGIN, _attach(handle=2, initial_delivery_count=0)]),
    ("2.7.3-01", [OPEN, BEGIN, SENDS, SENDS]),
    ("2.7.3-08", [OPEN, BEGIN, _attach()]),
    ("3.5.3-02", [OPEN, BEGIN, _attach(initial_delivery_count=0, source=Source(dynamic=True))]),
    ("3.5.3-06", [OPEN, BEGIN, _attach(role=True, target=ODD_NODE)]),
    ("2.7.4-02", [OPEN, BEGIN, Flow(**FLOW | NEXT, delivery_count=1)]),
    ("2.7.4-06", [OPEN, BEGIN, Flow(**FLOW | NEXT, link_credit=1)]),
    ("2.7.4-07", [OPEN, BEGIN, Flow(**FLOW | NEXT, available=1)]),
    ("2.7.4-03", [OPEN, BEGIN, SENDS, Flow(**FLOW | NEXT, handle=0)]),
    ("2.7.5-handle", [OPEN, BEGIN, FIRST]),
    ("2.7.5-01", [OPEN, BEGIN, SENDS, Transfer(handle=0, delivery_tag=b"0", message_format=0)]),
    ("2.7.5-02", [OPEN, BEGIN, SENDS, Transfer(handle=0, delivery_id=0, message_format=0)]),
    ("2.7.5-03", [OPEN, BEGIN, SENDS, Transfer(handle=0, delivery_id=0, delivery_tag=b"0")]),
    ("4.5.4-length", [OPEN, BEGIN, Disposition(role=True, first=0, state=Declared(txn_id=cast(bytes, "t")))]),
    ("4.4-01", [OPEN, BEGIN, SENDS, _transfer(True, _within(b"u"))]),
    ("2.6.14-01", [OPEN, BEGIN, SENDS, FIRST, Transfer(handle=0, delivery_id=1)]),
]
"""Frames on channel 0, or with their channel."""


def _watch(frames: list[Any]) -> list[str]:
    """The rules that a broker's frames break: its client said channel-max 3, handle-max 1, and attached."""
    dialogue = Dialogue(observer=CLIENT)
    for header in (CLIENT, SERVER):
        dialogue.octets(header, AMQP_HEADER)
    for performative in (
        Open(container_id="client", channel_max=3),
        Begin(next_outgoing_id=0, incoming_window=10, outgoing_window=1, handle_max=1),
        Attach(name="a", handle=0, role=True, source=Source(address="q")),
        Flow(**FLOW, handle=0, link_credit=10),
    ):
        assert dialogue.octets(CLIENT, encode_frame(0, performative)) == []
    broken = []
    for frame in frames:
        channel, performative = frame if isinstance(frame, tuple) else (0, frame)
        broken += [breach.rule for breach in dialogue.item(SERVER, Frame(0, channel, performative, b""))]
    return broken


@pytest.mark.parametrize(
    ("row", "frames"), BREACHES, ids=[f"{row}-{at}" for at, (row, _) in enumerate(BREACHES)]
)
def test_a_breach_is_told_with_its_row(row: str, frames: list[Any]) -> None:
    """The last frame breaks a rule; those before it do not."""
    assert _watch(frames[:-1]) == []
    assert row in _watch(frames)


def test_a_good_dialogue_passes() -> None:
    """Frames that keep every rule pass, also where handles and deliveries follow each other."""
    second = Transfer(handle=0, delivery_id=1, delivery_tag=b"1", message_format=0, more=True)
    link = [FIRST, Transfer(handle=0, delivery_id=0), second, Transfer(handle=0, aborted=True)]
    now = FLOW | NEXT | {"next_outgoing_id": 4}
    flows = [Flow(**now, handle=0, delivery_count=2), Flow(**now)]
    again = [Detach(handle=0), SENDS, None]
    assert _watch([OPEN, BEGIN, SENDS, *link, *flows, *again, End(), Close()]) == []


def _said(*turns: tuple[str, Any]) -> list[str]:
    """The rules that a dialogue breaks, frame by frame, watched from between."""
    dialogue = Dialogue()
    for side in (CLIENT, SERVER):
        dialogue.octets(side, AMQP_HEADER)
        assert dialogue.item(side, Frame(0, 0, Open(container_id=side), b"")) == []
    found: list[str] = []
    for side, performative in turns:
        found += [breach.rule for breach in dialogue.item(side, Frame(0, 0, performative, b""))]
    return found


BEGUN = [
    (CLIENT, Begin(next_outgoing_id=0, incoming_window=5, outgoing_window=5)),
    (SERVER, Begin(remote_channel=0, next_outgoing_id=7, incoming_window=2, outgoing_window=5)),
]
SENDER = Attach(
    name="s", handle=1, role=False, source=Source(), target=Target(address="q"), initial_delivery_count=4
)
ANSWER = Attach(name="s", handle=3, role=True, source=Source(), target=Target(address="q"))
CREDIT = Flow(next_incoming_id=0, incoming_window=2, next_outgoing_id=7, outgoing_window=5, handle=3,
              delivery_count=4, link_credit=2)  # fmt: skip
ATTACHED = [*BEGUN, (CLIENT, SENDER), (SERVER, ANSWER), (SERVER, CREDIT)]


def _sent(number: int, **fields: Any) -> tuple[str, Transfer]:
    usual: dict[str, Any] = {
        "handle": 1,
        "delivery_id": number,
        "delivery_tag": b"%d" % number,
        "message_format": 0,
    }
    return CLIENT, Transfer(**usual | fields)


@pytest.mark.parametrize(
    ("row", "turns"),
    [
        ("2.5.6-incoming-window", [_sent(0), _sent(1), _sent(2)]),
        ("2.6.7-illegal", [_sent(0), _sent(1), _sent(2)]),
        ("2.6.12-delivery-id", [_sent(0), _sent(0, delivery_tag=b"other")]),
        ("2.6.12-02", [_sent(0), _sent(1, delivery_tag=b"0")]),
        ("2.7.5-same-tag", [_sent(0, more=True), _sent(0, delivery_tag=b"1")]),
        ("2.7.5-same-format", [_sent(0, more=True), _sent(0, message_format=1)]),
        ("2.7.5-mode-first", [_sent(0, rcv_settle_mode=1)]),
        ("2.8.7-tag", [_sent(0, delivery_tag=b"t" * 33)]),
        ("2.7.6-range", [(SERVER, Disposition(role=True, first=0, settled=True, state=Accepted()))]),
        ("2.7.6-range", [_sent(0), (SERVER, Disposition(role=True, first=0, last=1, settled=True))]),
        ("3.4-terminal", [_sent(0), (SERVER, Disposition(role=True, first=0, state=Accepted())),
                          (SERVER, Disposition(role=True, first=0, state=Released()))]),
        ("2.7.4-next-incoming-id", [(SERVER, Flow(next_incoming_id=1, incoming_window=2, next_outgoing_id=7,
                                                  outgoing_window=5))]),
        ("2.5.6-next-outgoing-id", [(SERVER, Flow(next_incoming_id=0, incoming_window=2, next_outgoing_id=8,
                                                  outgoing_window=5))]),
        ("2.7.4-04", [(SERVER, evolve(CREDIT, delivery_count=5))]),
        ("2.7.4-04", [(SERVER, evolve(CREDIT, delivery_count=None))]),
        ("2.7.7-unmaps", [(SERVER, Detach(handle=1))]),
        ("2.8.17-unattached-handle", [(SERVER, evolve(CREDIT, handle=1))]),
        ("2.6.1-01", [(CLIENT, evolve(SENDER, handle=2))]),
        ("2.7.2-02", [BEGUN[1]]),
        ("2.5.5-unmapped", [(SERVER, End()), (SERVER, End())]),
    ],
)  # fmt: skip
def test_rules_of_both_sides(row: str, turns: list[tuple[str, Any]]) -> None:
    """What one side may say follows from what both said before."""
    assert _said(*ATTACHED, *turns[:-1]) == []
    assert row in _said(*ATTACHED, *turns)


def test_what_crosses_is_no_breach() -> None:
    """Credit that is taken back may not have been read: who watches from between lets it pass, who sits
    beside the sender does not.
    """
    less = evolve(CREDIT, link_credit=0)
    assert _said(*ATTACHED, (SERVER, less), _sent(0)) == []
    dialogue = Dialogue(observer=CLIENT)
    for side in (CLIENT, SERVER):
        dialogue.octets(side, AMQP_HEADER)
        dialogue.item(side, Frame(0, 0, Open(container_id=side), b""))
    for side, performative in [*ATTACHED, (SERVER, less)]:
        dialogue.item(side, Frame(0, 0, performative, b""))
    assert [one.rule for one in dialogue.item(CLIENT, Frame(0, 0, _sent(0)[1], b""))] == ["2.6.7-illegal"]


def test_sessions_and_links_that_end_before_their_answer() -> None:
    """A client that writes begin, attach, detach and end at once is answered later, in the same order."""
    begin = (CLIENT, Begin(next_outgoing_id=0, incoming_window=5, outgoing_window=5))
    mine = [begin, (CLIENT, SENDER), (CLIENT, Detach(handle=1)), (CLIENT, End())]
    answers = [BEGUN[1], (SERVER, ANSWER), (SERVER, Detach(handle=3)), (SERVER, End())]
    assert _said(*mine, *mine, *answers, *answers) == []


def test_octets_that_are_no_frames() -> None:
    """A frame in pieces is judged when it is whole; a size that cannot be is told once, and ends it all."""
    dialogue = Dialogue()
    for octet in AMQP_HEADER + encode_frame(0, Open(container_id="c")):
        assert dialogue.octets(CLIENT, bytes([octet])) == []
    assert dialogue.count == 2
    assert [one.rule for one in dialogue.octets(CLIENT, bytes(8))] == ["2.3.1-small-size"]
    assert dialogue.octets(CLIENT, encode_frame(0, Close())) == []


def test_a_large_frame_before_anything_was_agreed_on() -> None:
    """Before the partner's open a frame has at most 512 octets."""
    dialogue = Dialogue()
    dialogue.octets(CLIENT, AMQP_HEADER)
    large = encode_frame(0, Open(container_id="c" * 600))
    assert [one.rule for one in dialogue.octets(CLIENT, large)] == ["2.7.1-04"]


def test_sasl_frames_come_in_turn() -> None:
    """Mechanisms, init, outcome; then headers again. A response that nobody asked for is out of turn."""
    dialogue = Dialogue()
    offer, init = SaslMechanisms(sasl_server_mechanisms=("PLAIN",)), SaslInit(mechanism="PLAIN")
    for side, octets in (
        (CLIENT, SASL_HEADER), (SERVER, SASL_HEADER), (SERVER, encode_sasl_frame(offer)),
        (CLIENT, encode_sasl_frame(init)),
    ):  # fmt: skip
        assert dialogue.octets(side, octets) == []
    response = encode_sasl_frame(SaslResponse(response=b""))
    assert [one.rule for one in dialogue.octets(CLIENT, response)] == ["5.3.2-03"]
    assert dialogue.octets(SERVER, encode_sasl_frame(SaslOutcome(code=0))) == []
    for octets in (AMQP_HEADER, encode_frame(0, Open(container_id="c"))):
        assert dialogue.octets(CLIENT, octets) == []


def test_every_rule_is_a_row() -> None:
    """A finding can quote the standard."""
    rows = load_requirements()
    assert [one.row for one in RULES if one.row not in rows] == []
    assert Dialogue().octets(CLIENT, encode_frame(0, Close()))[0].requirement.section == "2.2"
