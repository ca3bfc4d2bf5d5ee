"""Links on which a client receives, resumed: each message is worked on once (2.6.3, 2.6.13, 2.7.6, 3.4.6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from amqp_broker.configuration import BrokerLimits, QueuePolicy
from amqp_broker.frames import (
    Accepted,
    Attach,
    Error,
    Modified,
    Received,
    Rejected,
    Released,
    Source,
    TransactionalState,
)
from amqp_broker.testing import memory_config
from amqp_broker.testing.peer import Delivery, PeerReceiver, PeerSession
from tests.support.broker_clients import (
    bodies,
    counts,
    nothing_comes,
    receive,
    send,
    session_to,
    settle_down,
    take_everything,
)
from tests.support.by_hand import Served, at_hand
from tests.support.jumping_broker import JumpingBroker, stopping
from tests.support.resuming import LASTING, SECOND

QUEUE = "orders"
LIMITS = BrokerLimits(idle_time_out_ms=2**32 - 1, lasting_terminus_s=1_000)
CONFIG = memory_config(limits=LIMITS, queue_policies=(QueuePolicy(pattern="**", max_deliveries=3),))


@pytest.fixture(name="broker")
def _broker() -> Iterator[JumpingBroker]:
    with stopping(JumpingBroker(CONFIG)) as broker:
        yield broker


def attach(session: PeerSession, credit: int = 10, /, **fields: Any) -> PeerReceiver:
    """A link in mode second whose source outlives it."""
    credit = fields.pop("credit", credit)
    lasting = fields.pop("lasting", LASTING)
    values = {"source": Source(address=QUEUE, **lasting), "rcv_settle_mode": SECOND}
    return session.attach_receiver("r", QUEUE, credit=credit, **values | fields)


def answer_of(link: PeerReceiver) -> Attach:
    """The attach of the broker."""
    assert link.remote_attach is not None
    return link.remote_attach


def left(broker: JumpingBroker, *messages: bytes, **fields: Any) -> list[bytes]:
    """The delivery-tags of these messages, on a connection that broke before anything was said of them."""
    with session_to(broker) as session:
        send(session.attach_sender("s", QUEUE), *messages)
        tags = [each.delivery_tag for each in receive(attach(session, **fields), len(messages))]
        session.connection.abort()
    broker.rest()
    return tags


def others(broker: JumpingBroker) -> list[bytes]:
    """What there is for everybody."""
    with session_to(broker, "another") as session:
        return bodies(take_everything(session.attach_receiver("other", QUEUE)))


def one(link: PeerReceiver) -> Delivery:
    """The next delivery."""
    (delivery,) = receive(link, 1)
    return delivery


def test_what_both_have_is_resumed(broker: JumpingBroker) -> None:
    """3.4.6, tag 4: the whole message, with its tag and the resume flag; meanwhile nobody else gets it."""
    tag_a, tag_b = left(broker, b"a", b"b")
    assert others(broker) == []
    with session_to(broker) as session:
        link = attach(session, unsettled={tag_a: None, tag_b: None})
        assert answer_of(link).unsettled == {tag_a: None, tag_b: None}
        for tag, body in ((tag_a, b"a"), (tag_b, b"b")):
            delivery = one(link)
            assert (delivery.delivery_tag, bodies([delivery])) == (tag, [body])
            assert delivery.transfer.resume
            assert not delivery.settled
            link.settle([delivery], Accepted(), settled=False)
        session.connection.pump_until(lambda: len(link.confirmed) == 2)
        assert counts(broker, QUEUE)[0] == 0


def test_an_outcome_that_was_not_heard_is_applied(broker: JumpingBroker) -> None:
    """3.4.6, tag 3: it is told, settled, without the message."""
    (tag,) = left(broker, b"a")
    with session_to(broker) as session:
        link = attach(session, unsettled={tag: Accepted()})
        assert answer_of(link).unsettled == {tag: Accepted()}
        delivery = one(link)
        assert (delivery.delivery_tag, delivery.payload, delivery.state) == (tag, b"", Accepted())
        assert delivery.transfer.resume
        assert delivery.settled
        assert counts(broker, QUEUE)[0] == 0


def test_in_mode_unsettled_an_outcome_is_told_before_it_is_settled(broker: JumpingBroker) -> None:
    """2.7.5: in snd-settle-mode unsettled no transfer is settled: a disposition settles."""
    (tag,) = left(broker, b"a", snd_settle_mode=0)
    with session_to(broker) as session:
        link = attach(session, unsettled={tag: Accepted()}, snd_settle_mode=0)
        delivery = one(link)
        assert not delivery.settled
        assert (delivery.payload, delivery.state) == (b"", Accepted())
        session.connection.pump_until(lambda: link.confirmed)


@pytest.mark.parametrize(
    ("outcome", "there"),
    [
        (Released(), 1),
        (Modified(delivery_failed=True), 1),
        (Modified(delivery_failed=True, message_annotations={}), 1),
        (Rejected(error=Error(condition="test:no", description="long " * 100)), 0),
    ],
)
def test_each_outcome_is_applied(broker: JumpingBroker, outcome: Any, there: int) -> None:
    """3.4.6, tag 3, for the others. A state that is too long is left out: settled says enough (tag 12)."""
    (tag,) = left(broker, b"a")
    with session_to(broker) as session:
        link = attach(session, unsettled={tag: outcome})
        delivery = one(link)
        assert (delivery.delivery_tag, delivery.settled) == (tag, True)
        assert delivery.state == (None if there == 0 else outcome)
        assert counts(broker, QUEUE)[0] == there
        if there:
            again = one(link)
            assert not again.transfer.resume
            assert again.delivery_tag != tag


def test_an_outcome_that_the_source_does_not_have_is_not_applied(broker: JumpingBroker) -> None:
    """The receiver gets the message once more; says it the same again, it hears why not."""
    source = Source(address=QUEUE, outcomes=("amqp:accepted:list",), default_outcome=Accepted(), **LASTING)
    (tag,) = left(broker, b"a", source=source)
    with session_to(broker) as session:
        delivery = one(attach(session, unsettled={tag: Released()}, source=source))
        assert (bodies([delivery]), delivery.transfer.resume) == ([b"a"], True)


@pytest.mark.parametrize(
    "state", [Received(section_number=1, section_offset=2), TransactionalState(txn_id=b"t")]
)
def test_what_has_come_in_part_is_resumed_from_its_first_octet(broker: JumpingBroker, state: Any) -> None:
    """3.4.6, tag 2 a): "the receiver MUST ignore all data up to the first position it has not previously
    received". A transaction has ended with its link.
    """
    body = b"x" * 200_000
    (tag,) = left(broker, body)
    with session_to(broker) as session:
        delivery = one(attach(session, unsettled={tag: state}))
        assert (bodies([delivery]), delivery.state, delivery.transfer.resume) == ([body], None, True)
        assert delivery.frames > 2


def test_what_the_receiver_has_not_got_is_sent_anew(broker: JumpingBroker) -> None:
    """3.4.6, tag 1: "transfers MUST NOT have the resume flag set to true"."""
    tags = left(broker, b"a", b"b")
    with session_to(broker) as session:
        link = attach(session, unsettled={tags[1]: Accepted()})
        assert answer_of(link).unsettled == {tags[1]: Accepted()}
        assert one(link).settled
        delivery = one(link)
        assert (bodies([delivery]), delivery.transfer.resume) == ([b"a"], False)
        assert delivery.delivery_tag not in tags


def test_what_the_source_does_not_know_is_ignored(broker: JumpingBroker) -> None:
    """2.6.13, only the target: no transfer, and not in our map."""
    with session_to(broker) as session:
        link = attach(session, unsettled={b"old": Accepted()})
        assert answer_of(link).unsettled == {}
        assert nothing_comes(broker, link)


def test_tags_are_new_on_each_link(broker: JumpingBroker) -> None:
    """2.6.12: unique among what either end could consider unsettled, also of links before."""
    tags = left(broker, b"a", b"b")
    with session_to(broker) as session:
        send(session.attach_sender("s", QUEUE), b"c", b"d")
        link = attach(session, unsettled=dict.fromkeys(tags))
        found = [each.delivery_tag for each in receive(link, 4)]
        assert found[:2] == tags
        assert len(set(found)) == 4


def test_resumed_ones_wait_for_credit_and_go_first(broker: JumpingBroker) -> None:
    """2.6.7: a resumed delivery takes a credit; what is new comes behind."""
    tags = left(broker, b"a", b"b")
    with session_to(broker) as session:
        send(session.attach_sender("s", QUEUE), b"c")
        link = attach(session, 0, unsettled=dict.fromkeys(tags))
        for body in (b"a", b"b", b"c"):
            assert nothing_comes(broker, link)
            link.flow(1)
            assert bodies(receive(link, 1)) == [body]


def test_a_resumed_one_that_is_not_sent_is_resumed_next_time(broker: JumpingBroker) -> None:
    """Nothing is forgotten for want of credit, whatever ends the link: a break, or a detach."""
    tags = left(broker, b"a", b"b")
    for ends in ("break", "detach", "detach"):
        with session_to(broker) as session:
            link = attach(session, 1, unsettled=dict.fromkeys(tags))
            assert one(link).delivery_tag == tags[0]
            if ends == "detach":
                link.detach(closed=False)
                link = attach(session)  # reattached: deliveries are live, what was not sent is resumed now
                assert one(link).delivery_tag == tags[1]
            session.connection.abort()
        broker.rest()
    assert others(broker) == []


def test_a_message_that_the_peer_does_not_take_any_more(broker: JumpingBroker) -> None:
    """3.4.6, tag 7: what can't be sent is aborted; the message is for others."""
    (tag,) = left(broker, b"x" * 2_000)
    with session_to(broker) as session:
        link = attach(session, unsettled={tag: None}, max_message_size=1_000)
        settle_down(broker, session)
        assert not link.deliveries
        assert link.credit == 9
        assert len(others(broker)) == 1


@pytest.mark.parametrize("how", ["timeout", "close", "null map", "nothing asked", "another wish"])
def test_the_end_of_a_source(broker: JumpingBroker, how: str) -> None:
    """What it held goes back to its place when its time is over, or nobody resumes."""
    left(broker, b"a", b"b", **({"lasting": {}} if how == "nothing asked" else {}))
    if how == "timeout":
        broker.jump(599)
        assert others(broker) == []
        broker.jump(2)
    elif how != "nothing asked":
        with session_to(broker) as session:
            link = attach(session, 0, **({"lasting": {}} if how == "another wish" else {}))
            assert answer_of(link).unsettled is None
            if how == "close":
                link.detach(closed=True)
    assert others(broker) == [b"a", b"b"]


def test_a_link_that_is_closed_takes_its_source_with_it(broker: JumpingBroker) -> None:
    """2.6.6, also for what is still to be resumed."""
    tags = left(broker, b"a", b"b")
    with session_to(broker) as session:
        link = attach(session, 1, unsettled=dict.fromkeys(tags))
        one(link)
        link.detach(closed=True)
        assert others(broker) == [b"a", b"b"]
        assert answer_of(attach(session, unsettled=dict.fromkeys(tags))).unsettled == {}


@pytest.mark.parametrize("settled", [True, False])
def test_an_outcome_after_the_detach_is_applied(broker: JumpingBroker, settled: bool) -> None:
    """2.7.6: "As long as the links have not been closed or detached with an error then the deliveries are
    still "live" and the updated state MUST be applied".
    """
    with session_to(broker) as session:
        send(session.attach_sender("s", QUEUE), b"a", b"b")
        link = attach(session)
        first, second = receive(link, 2)
        link.detach(closed=False)
        link.settle([first], Accepted(), settled=settled)
        settle_down(broker, session)
        assert counts(broker, QUEUE)[0] == 1
        assert list(link.confirmed) == ([] if settled else [first.delivery_id])
        link = attach(session, unsettled={first.delivery_tag: Accepted(), second.delivery_tag: None})
        assert answer_of(link).unsettled == {second.delivery_tag: None}
        assert one(link).delivery_tag == second.delivery_tag
        assert others(broker) == []


def test_delivery_ids_of_a_link_that_was_resumed_mean_nothing(broker: JumpingBroker) -> None:
    """2.6.13: "the delivery-ids from their original link endpoints are meaningless to the new"."""
    with session_to(broker) as session:
        send(session.attach_sender("s", QUEUE), b"a")
        link = attach(session)
        old = one(link)
        link.detach(closed=False)
        new = attach(session, 0, unsettled={old.delivery_tag: None})
        assert _unsettled(broker) == 0
        new.flow(1)
        link.settle([old], Accepted())
        settle_down(broker, session)
        assert counts(broker, QUEUE)[0] == 1
        new.settle([one(new)], Accepted())
        settle_down(broker, session)
        assert counts(broker, QUEUE)[0] == 0


def _unsettled(broker: JumpingBroker) -> int:
    """How many deliveries the sessions of all connections have unsettled, which their limits count."""

    def there(running: Any) -> int:
        sessions = [each for task in running._connections for each in task.engine.incoming.values()]
        return sum(len(session.unsettled_out) for session in sessions)

    found = broker.call(there)
    assert isinstance(found, int)
    return found


def test_live_deliveries_outlast_a_reattachment(broker: JumpingBroker) -> None:
    """2.6.4: detached and attached again in one session, the delivery-ids stay what they were."""
    with session_to(broker) as session:
        send(session.attach_sender("s", QUEUE), b"a", b"b")
        link = attach(session, 1)
        old = one(link)
        link.detach(closed=False)
        new = attach(session)
        assert bodies(receive(new, 1)) == [b"b"]
        link.settle([old], Accepted(), settled=False)
        settle_down(broker, session)
        assert counts(broker, QUEUE)[0] == 1
        session.connection.abort()
    broker.rest()
    broker.jump(601)
    assert others(broker) == [b"b"]


def test_who_resumes_has_not_died_of_a_message(broker: JumpingBroker) -> None:
    """What did not come, however often the connection breaks, is no failed delivery."""
    left(broker, b"a")
    for _ in range(4):
        with session_to(broker) as session:
            one(attach(session, unsettled={}))
            session.connection.abort()
        broker.rest()
    with session_to(broker) as session:
        assert bodies([one(attach(session, unsettled={}))]) == [b"a"]


def test_who_dies_of_a_message_does_not_get_it_for_ever(broker: JumpingBroker) -> None:
    """A client that comes back without a map was broken off: the oldest counts as a failed delivery."""
    for _ in range(3):
        with session_to(broker) as session:
            if not counts_of(broker):
                send(session.attach_sender("s", QUEUE), b"poison")
            one(attach(session))
            session.connection.abort()
        broker.rest()
    with session_to(broker) as session:
        assert nothing_comes(broker, attach(session))
        assert counts(broker, QUEUE)[0] == 0


def counts_of(broker: JumpingBroker) -> int:
    """How many messages the queue has, if it is there."""
    try:
        return counts(broker, QUEUE)[0]
    except KeyError:
        return 0


@pytest.mark.parametrize(
    "fields", [{"snd_settle_mode": 1}, {"source": Source(address=QUEUE, distribution_mode="copy", **LASTING)}]
)
def test_links_with_nothing_unsettled_do_not_last(broker: JumpingBroker, fields: dict[str, Any]) -> None:
    """What is sent settled, and copies, are not held: the answer says so."""
    with session_to(broker) as session:
        source = attach(session, **fields).remote_terminus
        assert (source.expiry_policy, source.timeout) == ("link-detach", 0)


def test_a_map_that_no_frame_has_room_for(broker: JumpingBroker) -> None:
    """2.7.3: nothing new is sent before a map was complete; what it leaves out is resumed all the same."""
    tags = left(broker, *[b"%d" % number for number in range(60)], credit=60)
    small = broker.connect("test-peer", max_frame_size=512)
    session = small.begin()
    send(session.attach_sender("s", QUEUE), b"new")
    link = attach(session, 100, unsettled=dict.fromkeys(tags, Accepted()))
    answer = answer_of(link)
    assert answer.incomplete_unsettled
    assert answer.unsettled is not None
    assert 0 < len(answer.unsettled) < 60
    assert {each.delivery_tag for each in receive(link, 60)} == set(tags)
    assert nothing_comes(broker, link)
    link.detach(closed=False)
    assert bodies([one(attach(session, unsettled={}))]) == [b"new"]
    small.abort()


def test_an_incomplete_map_of_the_receiver(broker: JumpingBroker) -> None:
    """2.6.13: "the absence of an entry in the unsettled map is not an indication of settlement"."""
    tag_a, tag_b = left(broker, b"a", b"b")
    with session_to(broker) as session:
        send(session.attach_sender("s", QUEUE), b"c")
        link = attach(session, unsettled={tag_a: None}, incomplete_unsettled=True)
        assert one(link).delivery_tag == tag_a
        assert nothing_comes(broker, link)
        session.connection.abort()
    with session_to(broker) as session:
        link = attach(session, unsettled={tag_a: Accepted(), tag_b: None})
        assert [each.delivery_tag for each in receive(link, 3)[:2]] == [tag_a, tag_b]


def test_a_queue_that_is_gone_takes_what_was_held_with_it(broker: JumpingBroker) -> None:
    """3.5.10: a dynamic node goes with its link; nothing of it is given back when the time is over."""
    with session_to(broker) as maker:
        node = maker.attach_receiver("maker", None, source=Source(dynamic=True))
        with session_to(broker) as session:
            send(session.attach_sender("s", node.address), b"a")
            one(attach(session, source=Source(address=node.address, **LASTING)))
            session.connection.abort()
        broker.rest()
        node.detach()
    assert broker.call(lambda running: len(running.features.lasting)) == 1
    broker.jump(601)
    assert broker.call(lambda running: len(running.features.lasting)) == 0


def test_a_link_that_is_attached_elsewhere_is_stolen_first(broker: JumpingBroker) -> None:
    """2.6.1: a client that comes back before its old connection is found dead resumes all of it."""
    with session_to(broker) as old, session_to(broker) as new:
        old.connection.raises_errors = False
        send(old.attach_sender("s", QUEUE), b"a")
        tag = one(attach(old)).delivery_tag
        link = attach(new, unsettled={tag: Accepted()})
        assert answer_of(link).unsettled == {tag: Accepted()}
        assert one(link).settled
        assert counts(broker, QUEUE)[0] == 0


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("settled", [False, True])
def test_outcomes_right_before_a_detach_are_heard(settled: bool, closed: bool) -> None:
    """Also where one read brings both: what was accepted does not come again, whether the link comes back or
    not.
    """

    async def main(at: Served) -> None:
        await at.post(QUEUE, b"1", b"2", b"3")
        link = await at.receiver(Source(address=QUEUE, **LASTING), 3, rcv_settle_mode=SECOND)
        for delivery in at.take():
            link.dispose([delivery], Accepted(), settled)
        link.detach(closed=closed)
        await at.settle()
        assert at.queue(QUEUE).message_count == 0

    at_hand(CONFIG)(main)()
