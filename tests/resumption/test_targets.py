"""Links on which a client sends, resumed: each delivery is taken once (2.6.3, 2.6.12, 2.6.13, 3.4.6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from amqp_broker.configuration import BrokerLimits
from amqp_broker.frames import SENDER, Accepted, Attach, Disposition, Error, Rejected, Released, Target
from amqp_broker.testing import memory_config
from amqp_broker.testing.peer import PeerError, PeerSender, PeerSession
from tests.support.broker_clients import counts, message, session_to, settle_down
from tests.support.jumping_broker import JumpingBroker, stopping
from tests.support.resuming import LASTING, SECOND

QUEUE = "orders"
LIMITS = BrokerLimits(
    idle_time_out_ms=2**32 - 1, max_unsettled_per_link=20, link_credit=20, max_lasting_termini=2,
    lasting_terminus_s=100,
)  # fmt: skip
CONFIG = memory_config(limits=LIMITS)


@pytest.fixture(name="broker")
def _broker() -> Iterator[JumpingBroker]:
    with stopping(JumpingBroker(CONFIG)) as broker:
        yield broker


def attach(session: PeerSession, name: str = "s", /, **fields: Any) -> PeerSender:
    """A link in mode second whose target outlives it."""
    lasting = fields.pop("lasting", LASTING)
    values = {"target": Target(address=QUEUE, **lasting), "rcv_settle_mode": SECOND}
    link = session.attach_sender(name, QUEUE, **values | fields)
    session.connection.pump_until(lambda: link.may_send)
    return link


def answer_of(link: PeerSender) -> Attach:
    """The attach of the broker."""
    assert link.remote_attach is not None
    return link.remote_attach


def put(link: PeerSender, tag: bytes, **fields: Any) -> Any:
    """The outcome of one delivery."""
    number = link.send(message(tag), delivery_tag=tag, **fields)
    link.session.connection.pump_until(lambda: number in link.outcomes)
    return link.outcomes[number]


def left(broker: JumpingBroker, *tags: bytes, **fields: Any) -> None:
    """A connection that broke when these had their outcomes, which the client may not have heard."""
    with session_to(broker) as session:
        link = attach(session, **fields)
        for tag in tags:
            put(link, tag)
        session.connection.abort()
    broker.rest()


def resumed(session: PeerSession, *tags: bytes, **fields: Any) -> PeerSender:
    """The link again, with these unsettled."""
    return attach(session, unsettled=dict.fromkeys(tags), **fields)


def test_an_outcome_is_remembered_and_told_again(broker: JumpingBroker) -> None:
    """2.6.13, both unsettled: it is resumed, gets the outcome that it has, and is not posted twice."""
    left(broker, b"a", b"b")
    with session_to(broker) as session:
        link = resumed(session, b"a", b"b", b"never came")
        assert answer_of(link).unsettled == {b"a": Accepted(), b"b": Accepted()}
        assert put(link, b"a", resume=True) == Accepted()
        link.session.put(Disposition(role=SENDER, first=0, settled=True))
        link.send(b"", delivery_tag=b"b", resume=True, settled=True, state=Accepted())
        assert put(link, b"never came") == Accepted()
        settle_down(broker, session)
        assert counts(broker, QUEUE)[0] == 3
        link.detach(closed=False)
        assert answer_of(resumed(session, b"a", b"b")).unsettled == {}


def test_a_tag_that_both_have_is_not_posted_again(broker: JumpingBroker) -> None:
    """A client that sends again what it has unsettled, without the resume flag, is heard as one that has."""
    left(broker, b"a")
    with session_to(broker) as session:
        link = resumed(session, b"a")
        assert put(link, b"a") == Accepted()
        assert counts(broker, QUEUE)[0] == 1


def test_what_the_client_has_settled_is_forgotten(broker: JumpingBroker) -> None:
    """2.6.13, only the target: it "MUST be considered settled by the Receiver"; its tag is free again."""
    left(broker, b"a")
    with session_to(broker) as session:
        link = resumed(session)
        assert answer_of(link).unsettled == {}
        assert put(link, b"a") == Accepted()
        assert counts(broker, QUEUE)[0] == 2


def test_a_resumed_delivery_is_resumed_once(broker: JumpingBroker) -> None:
    """2.6.13, only the source: "it MUST be ignored by the receiver", also what was resumed before."""
    left(broker, b"a")
    with session_to(broker) as session:
        link = resumed(session, b"a")
        for _ in range(2):
            link.send(message(b"a"), delivery_tag=b"a", resume=True, settled=True)
        settle_down(broker, session)
        assert counts(broker, QUEUE)[0] == 1


def test_mode_first_forgets_what_was_told(broker: JumpingBroker) -> None:
    """2.8.3: in mode first the receiver settles at once, and is not asked again."""
    left(broker, b"a", rcv_settle_mode=0)
    with session_to(broker) as session:
        assert answer_of(resumed(session, b"a", rcv_settle_mode=0)).unsettled == {}


def test_a_refusal_is_an_outcome(broker: JumpingBroker) -> None:
    """What was rejected stays rejected when it is resumed."""
    with session_to(broker) as session:
        link = attach(session)
        link.send(b"\x00no message", delivery_tag=b"a")
        session.connection.pump_until(lambda: link.outcomes)
        session.connection.abort()
    with session_to(broker) as session:
        link = resumed(session, b"a")
        states = answer_of(link).unsettled
        assert states is not None
        assert isinstance(states[b"a"], Rejected)
        assert put(link, b"a", resume=True) == states[b"a"]


def test_the_outcome_of_the_sender_stands(broker: JumpingBroker) -> None:
    """3.4.6, tag 13: "the receiver should then echo this and settle"."""
    left(broker, b"a")
    with session_to(broker) as session:
        link = resumed(session, b"a")
        assert put(link, b"a", resume=True, state=Released()) == Released()
        assert list(link.settled) == [0]


def test_what_a_sender_rejects_itself_is_no_refusal(broker: JumpingBroker) -> None:
    """Its state is told again, whatever its error says; the broker has refused nothing."""
    left(broker, b"a")
    with session_to(broker) as session:
        link = resumed(session, b"a")
        error = Error(condition="amqp:resource-limit-exceeded", description="the disk of mine (max_bytes)")
        assert put(link, b"a", resume=True, state=Rejected(error=error)) == Rejected(error=error)
        assert broker.call(lambda inner: dict(inner.nodes.refusals.counts)) == {}


def test_an_aborted_one_is_forgotten(broker: JumpingBroker) -> None:
    """3.4.6, tags 11 and 14: "Discard any state relating to the message delivery"."""
    left(broker, b"a")
    with session_to(broker) as session:
        link = resumed(session, b"a")
        link.send(b"", delivery_tag=b"a", resume=True, aborted=True)
        assert put(link, b"a") == Accepted()
        settle_down(broker, session)
        assert counts(broker, QUEUE)[0] == 2


def test_a_tag_in_use_is_refused(broker: JumpingBroker) -> None:
    """2.6.12: a tag is "unique amongst all deliveries that could be considered unsettled by either end"."""
    with session_to(broker) as session:
        link = attach(session)
        put(link, b"a")
        with pytest.raises(PeerError, match="not-allowed.*delivery-tag 61"):
            put(link, b"a")
        assert counts(broker, QUEUE)[0] == 1


def test_a_link_error_leaves_the_terminus(broker: JumpingBroker) -> None:
    """2.6.5: the peer "MUST resume the link in order to restore communication"."""
    with session_to(broker) as session:
        link = attach(session)
        put(link, b"a")
        session.connection.raises_errors = False
        link.send(message(b"a"), delivery_tag=b"a")
        session.connection.pump_until(lambda: link.detached is not None)
        link.detach()
        assert answer_of(resumed(session, b"a")).unsettled == {b"a": Accepted()}


def test_how_many_are_remembered(broker: JumpingBroker) -> None:
    """max_unsettled_per_link holds for what a target remembers, over all of its links."""
    tags = [b"%d" % number for number in range(20)]
    left(broker, *tags)
    with session_to(broker) as session:
        link = resumed(session, *tags)
        with pytest.raises(PeerError) as caught:
            put(link, b"one more")
        assert caught.value.error is not None
        assert "limits.max_unsettled_per_link" in str(caught.value.error.description)


def test_how_many_termini_there_are(broker: JumpingBroker) -> None:
    """max_lasting_termini: one more is refused, and who has one may have it again."""
    left(broker, b"a")
    with session_to(broker) as session:
        attach(session, "other")
        with pytest.raises(PeerError) as caught:
            attach(session, "third")
        assert caught.value.error is not None
        assert "limits.max_lasting_termini" in str(caught.value.error.description)
        resumed(session, b"a")


@pytest.mark.parametrize("asked", [{}, {"expiry_policy": "session-end"}, {"durable": 2}])
def test_who_asks_for_nothing_gets_nothing(broker: JumpingBroker, asked: dict[str, Any]) -> None:
    """3.5.4: without a timeout, session-end is what a target says that says nothing."""
    left(broker, b"a", lasting=asked)
    with session_to(broker) as session:
        link = resumed(session, b"a", lasting=asked)
        assert answer_of(link).unsettled == {}
        target = link.remote_terminus
        assert (target.durable, target.expiry_policy, target.timeout) == (0, "link-detach", 0)


@pytest.mark.parametrize(
    ("asked", "made"),
    [
        ({"expiry_policy": "never", "durable": 2}, ("connection-close", 100)),
        ({"expiry_policy": "connection-close"}, ("connection-close", 0)),
        ({"expiry_policy": "session-end", "timeout": 1_000}, ("session-end", 100)),
        ({"expiry_policy": "link-detach", "timeout": 7}, ("link-detach", 7)),
    ],
)
def test_what_is_made_is_told(broker: JumpingBroker, asked: dict[str, Any], made: tuple[str, int]) -> None:
    """2.6.3: "the endpoint MUST report the actual properties of the terminus as created"."""
    with session_to(broker) as session:
        target = attach(session, lasting=asked).remote_terminus
        assert (target.durable, target.expiry_policy, target.timeout) == (0, *made)


@pytest.mark.parametrize("how", ["link", "session", "connection"])
@pytest.mark.parametrize("policy", ["link-detach", "session-end", "connection-close"])
def test_when_its_time_runs(broker: JumpingBroker, policy: str, how: str) -> None:
    """3.5.7: from the detach, the end or the close; a link that comes back aborts it."""
    lasting = {"expiry_policy": policy, "timeout": 10}
    with session_to(broker) as session, session_to(broker, "another") as _:
        link = attach(session, lasting=lasting)
        put(link, b"a")
        if how == "link":
            link.detach(closed=False)
        elif how == "session":
            session.end()
        else:
            session.connection.abort()
        broker.rest()
        order = ["link", "session", "connection"]
        runs = order.index(how) >= ["link-detach", "session-end", "connection-close"].index(policy)
        broker.jump(9)
        with session_to(broker, "another") as other:  # another container's link of this name is another link
            assert answer_of(resumed(other, b"a")).unsettled == {}
        broker.jump(2)
        same = session.connection.begin() if how != "connection" else None
        if same is None:
            with session_to(broker) as again:
                assert answer_of(resumed(again, b"a")).unsettled == ({} if runs else {b"a": Accepted()})
        else:
            assert answer_of(resumed(same, b"a")).unsettled == ({} if runs else {b"a": Accepted()})


def test_a_closed_link_has_ended(broker: JumpingBroker) -> None:
    """2.6.6: what is closed is not resumed."""
    with session_to(broker) as session:
        link = attach(session)
        put(link, b"a")
        link.detach(closed=True)
        assert answer_of(resumed(session, b"a")).unsettled == {}


def test_a_link_that_is_attached_elsewhere_is_stolen_first(broker: JumpingBroker) -> None:
    """2.6.1: a client that comes back before its old connection is found dead resumes all of it."""
    with session_to(broker) as old, session_to(broker) as new:
        old.connection.raises_errors = False
        link = attach(old)
        put(link, b"a")
        assert answer_of(resumed(new, b"a")).unsettled == {b"a": Accepted()}
        settle_down(broker, new)
        old.connection.pump_until(lambda: link.detached is not None)
        assert link.detached is not None
        assert link.detached.error is not None
        assert link.detached.error.condition == "amqp:link:stolen"


def test_reattaching_in_the_same_session(broker: JumpingBroker) -> None:
    """2.7.3: "When reattaching (as opposed to resuming), the unsettled map MUST be null"; nothing is lost."""
    with session_to(broker) as session:
        link = attach(session)
        put(link, b"a")
        link.detach(closed=False)
        link = attach(session)
        assert answer_of(link).unsettled is None
        link.detach(closed=False)
        assert answer_of(resumed(session, b"a")).unsettled == {b"a": Accepted()}


def test_a_map_that_no_frame_has_room_for() -> None:
    """2.7.3: it is told in parts; until all of it is, only deliveries that are resumed may come."""
    limits = attrs.evolve(LIMITS, max_unsettled_per_link=200, link_credit=200)
    tags = [b"%020d" % number for number in range(60)]
    with stopping(JumpingBroker(memory_config(limits=limits))) as broker:
        left(broker, *tags)
        small = broker.connect("test-peer", max_frame_size=512)
        small.raises_errors = False
        rest = set(tags)
        rounds = 0
        while rest:
            session = small.begin()
            link = attach(session, unsettled=dict.fromkeys(list(rest)))
            answer = answer_of(link)
            assert answer.unsettled is not None
            for tag in answer.unsettled:
                link.send(b"", delivery_tag=tag, resume=True, settled=True)
            rest -= set(answer.unsettled)
            rounds += 1
            assert answer.incomplete_unsettled == bool(rest)
            if rest:
                link.send(message(b"new"), delivery_tag=b"new")
                while link.detached is None:
                    small.pump(0)
                assert "incomplete" in str(link.detached.error)
            else:
                assert put(link, b"new") == Accepted()
            session.end()
        assert rounds > 2
        assert counts(broker, QUEUE)[0] == len(tags) + 1
        small.abort()
