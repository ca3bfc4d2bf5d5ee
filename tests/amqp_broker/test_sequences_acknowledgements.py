"""When the outcomes of a stream's messages are told, on a clock that the test moves (MS-MQQB 3.1.5.8.6)."""

from __future__ import annotations

import pytest

from amqp_broker.configuration import BrokerConfig, BrokerLimits, QueuePolicy
from amqp_broker.frames import Close, Detach, Disposition, End
from amqp_broker.testing import memory_config
from amqp_broker.testing.peer import PeerSender, PeerSession
from tests.support.broker_clients import message, session_to, settle_down
from tests.support.jumping_broker import JumpingBroker, Start
from tests.support.sequenced import Place, annotated, chain

DEBOUNCE_S = 0.05
MAX_DELAY_S = 0.1


def config_of(debounce_s: float, max_delay_s: float, **limits: int) -> BrokerConfig:
    """A broker all of whose queues wait so long."""
    policy = QueuePolicy(
        pattern="q",
        order_debounce_ms=round(debounce_s * 1_000),
        order_max_delay_ms=round(max_delay_s * 1_000),
    )
    return memory_config(queue_policies=(policy,), limits=BrokerLimits(**limits))


@pytest.fixture
def config() -> BrokerConfig:
    """With a debounce of 50 ms, and a maximum of 100 ms."""
    return config_of(DEBOUNCE_S, MAX_DELAY_S)


class Link:
    """A sender of a stream, and the dispositions that its session has received."""

    def __init__(self, broker: JumpingBroker, session: PeerSession, name: str = "s") -> None:
        self.broker = broker
        self.session = session
        self.sender: PeerSender = session.attach_sender(name, "q")
        session.connection.pump_until(lambda: self.sender.may_send)
        self.frames: list[object] = []
        on_performative = session.on_performative

        def record(performative: object, payload: bytes) -> None:
            self.frames.append(performative)
            on_performative(performative, payload)

        session.on_performative = record  # type: ignore[method-assign]

    def send(self, *places: Place, batchable: bool = True) -> list[int]:
        """Send in one write, and wait until all is committed."""
        numbers = [self.sender.send(annotated(place), batchable=batchable) for place in places]
        settle_down(self.broker, self.session)
        return numbers

    def told(self) -> list[tuple[int, int]]:
        """The ranges of dispositions so far, once everything that is under way has come."""
        settle_down(self.broker, self.session)
        return [
            (frame.first, frame.first if frame.last is None else frame.last)
            for frame in self.frames
            if isinstance(frame, Disposition)
        ]


def test_nothing_is_told_before_the_debounce_is_over(broker: JumpingBroker, session: PeerSession) -> None:
    """And then in one range, although there were three commits."""
    link = Link(broker, session)
    for place in chain(1, 3):
        link.send(place)
    broker.jump(DEBOUNCE_S - 0.001)
    assert link.told() == []
    broker.jump(0.002)
    assert link.told() == [(0, 2)]


def test_refusals_and_duplicates_wait_as_well(broker: JumpingBroker, session: PeerSession) -> None:
    """One range for each run of equal outcomes, over several commits."""
    link = Link(broker, session)
    link.send(*chain(1, 2))
    link.send((1, 1, 0), (1, 5, 4))
    link.send((1, 6, 5), (1, 3, 2))
    broker.jump(DEBOUNCE_S)
    assert link.told() == [(0, 2), (3, 4), (5, 5)]


def test_a_message_that_is_not_batchable_is_answered_at_once(
    broker: JumpingBroker, session: PeerSession
) -> None:
    """With everything that waited."""
    link = Link(broker, session)
    link.send(*chain(1, 2))
    assert link.told() == []
    link.send((1, 3, 2), batchable=False)
    assert link.told() == [(0, 2)]


def test_messages_of_no_stream_are_answered_at_once(broker: JumpingBroker, session: PeerSession) -> None:
    """In the same run too; the others go on waiting."""
    link = Link(broker, session)
    link.sender.send(annotated((1, 1, 0)), batchable=True)
    link.sender.send(message(b"plain"), batchable=True)
    settle_down(broker, session)
    assert link.told() == [(1, 1)]
    link.sender.send(message(b"plain"), batchable=True)
    assert link.told() == [(1, 1), (2, 2)]
    broker.jump(DEBOUNCE_S)
    assert link.told() == [(1, 1), (2, 2), (0, 0)]


@pytest.mark.parametrize("field", ["drain", "echo"])
def test_a_flow_that_drains_or_asks_is_answered_with_what_waited(
    broker: JumpingBroker, session: PeerSession, field: str
) -> None:
    """A sender that wants to know says so."""
    link = Link(broker, session)
    link.send(*chain(1, 2))
    assert link.told() == []
    session.flow(link.sender, **{field: True})
    assert link.told() == [(0, 1)]


@pytest.mark.parametrize("end", [Detach, End, Close])
def test_what_waits_is_told_before_the_end(broker: JumpingBroker, session: PeerSession, end: type) -> None:
    """The dispositions stand before the broker's detach, end or close."""
    link = Link(broker, session)
    link.send(*chain(1, 3))
    assert link.told() == []
    if end is Detach:
        link.sender.detach()
    elif end is End:
        session.end()
    else:
        session.connection.close()
    assert [frame for frame in link.frames if isinstance(frame, Disposition)]
    assert set(link.sender.settled) == {0, 1, 2}


def test_what_waits_is_told_before_our_own_detach(broker: JumpingBroker, session: PeerSession) -> None:
    """A settled gap ends the link; what was accepted before is known to its sender."""
    link = Link(broker, session)
    link.send(*chain(1, 2))
    link.sender.send(annotated((1, 9, 8)), settled=True)
    try:
        settle_down(broker, session)
    except Exception as error:  # the detach carries the refusal
        assert "seq:gap" in str(error)
    assert set(link.sender.settled) == {0, 1}


def test_credit_below_a_quarter_is_a_reason(start: Start) -> None:
    """Of 8 credits 7 are used up in one write: nobody is kept waiting for room."""
    broker = start(config_of(10, 10, link_credit=8))
    for first, last, told in ((1, 6, []), (7, 13, [(0, 6)])):
        with session_to(broker) as session:
            link = Link(broker, session)
            link.send(*chain(first, last))
            assert link.told() == told


def test_a_window_below_a_quarter_is_a_reason(start: Start) -> None:
    """Two links of one session, each with credit enough: 31 of the 40 that its window allows are not settled,
    so that what waits on both is told.
    """
    limits = {"max_unsettled_per_session": 40, "max_unsettled_per_link": 40, "link_credit": 40}
    broker = start(config_of(10, 10, **limits))
    with session_to(broker) as session:
        one, two = Link(broker, session, "one"), Link(broker, session, "two")
        one.send(*chain(1, 15))
        two.send(*chain(16, 29))
        assert one.told() == []
        two.send(*chain(30, 31))
        assert one.sender.credit > 10 and two.sender.credit > 10
        assert one.told() == [(0, 14), (15, 30)]


def test_ten_credits_and_ten_seconds_are_no_deadlock(start: Start) -> None:
    """A sender that waits for its outcomes goes on after ten seconds at the latest; one that does not is
    never without credit.
    """
    broker = start(config_of(10, 10, link_credit=10))
    with session_to(broker) as session:
        link = Link(broker, session)
        numbers = link.send(*chain(1, 2))
        assert not link.sender.outcomes
        broker.jump(10)
        settle_down(broker, session)
        assert set(numbers) == set(link.sender.outcomes)
        for place in chain(3, 102):
            session.connection.pump_until(lambda: link.sender.may_send)
            link.sender.send(annotated(place), batchable=True)
        settle_down(broker, session)
        broker.jump(10)
        settle_down(broker, session)
        assert len(link.sender.outcomes) == 102
