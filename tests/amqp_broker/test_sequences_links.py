"""Links of sequenced streams: whose a stream is, ranges of outcomes on the wire; streams in transactions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from amqp_broker.authorisation import Principal
from amqp_broker.broker import Broker
from amqp_broker.configuration import (
    AccessRule,
    BrokerConfig,
    BrokerLimits,
    ListenerConfig,
    QueuePolicy,
    UserConfig,
)
from amqp_broker.frames import RECEIVER, Accepted, Discharge, Disposition, Message, Target, TransactionalState
from amqp_broker.testing import memory_config
from amqp_broker.testing.peer import PeerError, PeerSender, PeerSession
from tests.support.broker_clients import (
    address_of,
    at_rest,
    attach_with,
    error_of,
    message,
    receive,
    session_to,
    settle_down,
)
from tests.support.controllers import Controller
from tests.support.jumping_broker import InEachStore, JumpingBroker, Start
from tests.support.sequenced import (
    Place,
    annotated,
    attached_sender,
    chain,
    info_of,
    left_at,
    outcomes,
    stream_of,
    words,
)


@pytest.fixture
def config(in_each_store: InEachStore) -> BrokerConfig:
    """The queue `small` takes three messages, and `off` knows no sequences."""
    policies = (QueuePolicy(pattern="small", max_messages=3), QueuePolicy(pattern="off", sequence="off"))
    limits = BrokerLimits(transaction_operations=20)
    return in_each_store(memory_config(limits=limits, queue_policies=policies))


def capabilities_of(link: Any) -> set[str]:
    """Of the target that the broker answered with."""
    return set(link.remote_attach.target.capabilities or ())


def properties_of(link: Any) -> dict[str, int] | None:
    """The numbers in the properties of the broker's attach."""
    properties = link.remote_attach.properties
    return None if properties is None else {name: value.value for name, value in properties.items()}


def refusal_of(session: PeerSession, address: str, stream: Any) -> str:
    """The condition with which an attach that names a stream is refused."""
    with pytest.raises(PeerError) as refused:
        attached_sender(session, "refused", address, stream)
    assert refused.value.error is not None
    return refused.value.error.condition


def test_off_passes_the_fields_through(broker: JumpingBroker, session: PeerSession) -> None:
    """Nothing is judged, nothing is offered, and the octets arrive as they were."""
    sender = attached_sender(session, "s", "off", "s")
    assert capabilities_of(sender) == set() and properties_of(sender) is None
    payloads = [annotated((1, 5, 4)), annotated((1, 5, 4)), annotated((0, 0, 9)), message(b"plain")]
    assert words(outcomes(sender, payloads)) == ["accepted"] * 4
    receiver = session.attach_receiver("r", "off", credit=10)
    arrived = [delivery.payload for delivery in receive(receiver, 4)]
    sent = [payload[Message(payload).after_header_offset :] for payload in payloads]
    assert [payload[Message(payload).after_header_offset :] for payload in arrived] == sent
    assert stream_of(broker, "off") is None


def test_a_temporary_queue_keeps_its_streams_in_memory(broker: JumpingBroker, session: PeerSession) -> None:
    """A dynamic target has the capability."""
    sender = attach_with(session, "d", target=Target(dynamic=True))
    assert isinstance(sender, PeerSender) and "tx-sequence" in capabilities_of(sender)
    states = outcomes(sender, [annotated(place) for place in [(1, 1, 0), (1, 1, 0), (1, 3, 2)]])
    assert words(states) == ["accepted", "accepted", "seq:gap"]
    assert stream_of(broker, address_of(sender)).seq_no == 1


def test_an_administrator_has_a_stream_begin_anew(broker: JumpingBroker) -> None:
    """It is at (0, 0) then and nobody's, also for a link that is attached; False where there was none."""

    def reset(stream: str, queue: str = "q") -> object:
        async def there(running: Any) -> object:
            return await running.reset_stream(queue, stream)

        return broker.call(there)

    with session_to(broker) as session:
        sender = attached_sender(session, "s", "q", "s")
        outcomes(sender, [annotated(place, None) for place in chain(1, 3)])
        info = stream_of(broker, "q")
        assert (info.queue, info.stream, info.owner, info.seq_no) == ("q", "s", "anonymous", 3)
        assert info.last_access_ms > 0
        assert reset("s") is True
        assert stream_of(broker, "q") is None
        assert [reset("s"), reset("never"), reset("s", "nowhere"), reset("s", "*")] == [False] * 4
        assert words(outcomes(sender, [annotated((1, 4, 3), None)])) == ["seq:gap"]
        assert words(outcomes(sender, [annotated((1, 1, 0), None)])) == ["accepted"]


def test_an_administrator_pages_through_the_streams(broker: JumpingBroker) -> None:
    """In the order of their names; none of a queue that there is not."""

    def page(queue: str, after: str, count: int) -> list[str]:
        async def there(running: Any) -> list[str]:
            return [info.stream for info in await running.streams(queue, after, count)]

        found = broker.call(there)
        assert isinstance(found, list)
        return found

    with session_to(broker) as session:
        sender = session.attach_sender("s", "q")
        outcomes(sender, [annotated((1, 1, 0), name) for name in ("c", "a", "b", "d")])
        assert page("q", "", 3) == ["a", "b", "c"]
        assert page("q", "c", 3) == ["d"]
        assert page("nowhere", "", 3) == []


# Whose a stream is


@pytest.fixture
def guarded(start: Start) -> JumpingBroker:
    """A broker with three users, of whom `boss` may use everybody's streams."""
    everything = ("connect", "create", "send", "receive", "browse")
    rules = (
        AccessRule(users=("*",), actions=everything),
        AccessRule(users=("boss",), actions=("sequence",), nodes=("owned",)),
    )
    users = tuple(UserConfig(name=name) for name in ("ann", "ben", "boss"))
    listener = ListenerConfig(url="amqp://127.0.0.1:0", anonymous=True)
    return start(memory_config(users=users, access_rules=rules, listeners=(listener,)))


@contextmanager
def session_of(broker: JumpingBroker, user: str) -> Iterator[PeerSession]:
    """A session of a user."""

    def log_in(running: Broker) -> None:
        for task in running._connections:
            opened = task.engine.remote_open
            if opened is not None and opened.container_id == user:
                task.connection.principal = Principal(user, "PLAIN")

    with session_to(broker, user) as session:
        broker.call(log_in)
        yield session


def test_a_stream_belongs_to_who_used_it_first(guarded: JumpingBroker) -> None:
    """Others get amqp:unauthorized-access, at the attach and for each message; their own streams are theirs,
    and a reset gives it to the next one.
    """

    async def reset(running: Any) -> object:
        return await running.reset_stream("q", "s")

    with session_of(guarded, "ann") as ann, session_of(guarded, "ben") as ben:
        sender = ann.attach_sender("s", "q")
        assert words(outcomes(sender, [annotated((1, 1, 0))])) == ["accepted"]
        assert stream_of(guarded, "q").owner == "ann"
        foreign = ben.attach_sender("s", "q")
        payloads = [annotated((1, 2, 1)), annotated((1, 1, 0)), annotated((1, 1, 0), "own")]
        assert words(outcomes(foreign, payloads)) == [
            "amqp:unauthorized-access", "amqp:unauthorized-access", "accepted",
        ]  # fmt: skip
        info = stream_of(guarded, "q")
        assert (info.seq_no, info.reject_count) == (1, 0)
        assert refusal_of(ben, "q", "s") == "amqp:unauthorized-access"
        assert properties_of(attached_sender(ann, "t", "q", "s")) == {"seq-id": 1, "seq-no": 1}
        assert guarded.call(reset) is True
        assert words(outcomes(foreign, [annotated((1, 1, 0))])) == ["accepted"]
        assert words(outcomes(sender, [annotated((1, 2, 1))])) == ["amqp:unauthorized-access"]
        assert left_at(ann, "q", 3) == ["1.1", "1.1", "1.1"]


def test_a_refused_use_makes_nobody_the_owner(guarded: JumpingBroker) -> None:
    """Only what was accepted counts."""
    with session_of(guarded, "ann") as ann, session_of(guarded, "ben") as ben:
        assert words(outcomes(ann.attach_sender("s", "free"), [annotated((1, 2, 1))])) == ["seq:gap"]
        assert words(outcomes(ben.attach_sender("s", "free"), [annotated((1, 1, 0))])) == ["accepted"]
        assert stream_of(guarded, "free").owner == "ben"


def test_the_access_list_lets_others_use_a_stream(guarded: JumpingBroker) -> None:
    """The right `sequence` at the node; it stays its owner's."""
    with session_of(guarded, "ann") as ann, session_of(guarded, "boss") as boss:
        assert words(outcomes(ann.attach_sender("s", "owned"), [annotated((1, 1, 0))])) == ["accepted"]
        link = attached_sender(boss, "s", "owned", "s")
        assert properties_of(link) == {"seq-id": 1, "seq-no": 1}
        assert words(outcomes(link, [annotated((1, 2, 1))])) == ["accepted"]
        assert stream_of(guarded, "owned").owner == "ann"
        assert words(outcomes(ann.attach_sender("q", "q2"), [annotated((1, 1, 0))])) == ["accepted"]
        assert refusal_of(boss, "q2", "s") == "amqp:unauthorized-access"


# Ranges on the wire


def dispositions(session: PeerSession) -> list[tuple[int, int, str]]:
    """(first, last, outcome) of each disposition from now on, as a list that grows."""
    found: list[tuple[int, int, str]] = []
    on_performative = session.on_performative

    def record(performative: object, payload: bytes) -> None:
        if isinstance(performative, Disposition) and performative.role == RECEIVER:
            last = performative.first if performative.last is None else performative.last
            found.append((performative.first, last, words([performative.state])[0]))
        on_performative(performative, payload)

    session.on_performative = record  # type: ignore[method-assign]
    return found


def test_a_range_is_cut_by_another_link(broker: JumpingBroker, session: PeerSession) -> None:
    """Delivery-ids belong to the session: where another link's stand between, there are two ranges."""
    sender = session.attach_sender("s", "q")
    other = session.attach_sender("o", "other")
    session.connection.pump_until(lambda: sender.may_send and other.may_send)
    told = dispositions(session)
    for link, place in [
        (sender, (1, 1, 0)), (sender, (1, 2, 1)), (other, (1, 1, 0)), (sender, (1, 3, 2)),
    ]:  # fmt: skip
        link.send(annotated(place))
    session.connection.pump_until(lambda: len(sender.outcomes) == 3 and len(other.outcomes) == 1)
    settle_down(broker, session)
    assert sorted(told) == [(0, 1, "accepted"), (2, 2, "accepted"), (3, 3, "accepted")]


def test_in_mode_second_outcomes_are_told_unsettled(session: PeerSession) -> None:
    """The sender settles then (2.6.12)."""
    sender = attach_with(session, "second", target=Target(address="q"), rcv_settle_mode=1)
    assert isinstance(sender, PeerSender)
    states = outcomes(sender, [annotated((1, 1, 0)), annotated((1, 3, 2))])
    assert words(states) == ["accepted", "seq:gap"] and not sender.settled


# In transactions: judged on a tentative state, stored with it at the discharge


class Posting:
    """A controller and a sender on one session."""

    def __init__(self, session: PeerSession, address: str = "q", name: str = "t") -> None:
        self.session = session
        self.controller = Controller(session, f"control-{name}")
        self.sender: PeerSender = session.attach_sender(f"sender-{name}", address)
        self.txn_id = self.controller.declare()

    def post(self, *places: Place) -> list[str]:
        """The provisional outcomes, in words."""
        return words([self.provisional(state) for state in self.states(*places)])

    def states(self, *places: Place) -> list[object]:
        """What the broker answers to messages in the transaction."""
        return outcomes(self.sender, [annotated(place) for place in places], txn_id=self.txn_id)

    def provisional(self, state: object) -> object:
        """The outcome in a transactional-state of this transaction."""
        assert isinstance(state, TransactionalState) and state.txn_id == self.txn_id
        return state.outcome

    def again(self) -> None:
        """The next transaction."""
        self.txn_id = self.controller.declare()


def reached(broker: JumpingBroker, queue: str = "q") -> int:
    """The last accepted number of the stream, 0 if there is none."""
    info = stream_of(broker, queue)
    return 0 if info is None else info.seq_no


def reserved(broker: JumpingBroker, name: str) -> tuple[int, int]:
    """(messages, octets) that open transactions keep in a queue, and what is kept of tentative streams."""

    def there(running: object) -> tuple[int, int]:
        assert isinstance(running, Broker)
        queue = running.nodes.queues._queues[name]
        return queue.reserved_messages, len(running.features.sequences._tentative)

    found = broker.call(there)
    assert isinstance(found, tuple)
    return found


def test_it_is_judged_on_what_the_transaction_would_leave(session: PeerSession) -> None:
    """Duplicates of it are discarded, a gap is told provisionally and the rest commits."""
    posting = Posting(session)
    outcomes(posting.sender, [annotated((1, 1, 0))])
    assert posting.post((1, 1, 0), (1, 2, 1), (1, 2, 1)) == ["accepted"] * 3
    states = posting.states((1, 4, 3), (1, 3, 2))
    assert words([posting.provisional(state) for state in states]) == ["seq:gap", "accepted"]
    assert info_of(posting.provisional(states[0])) == {"seq-id": 1, "seq-no": 2, "expected-prev": 2}
    posting.controller.commit(posting.txn_id)
    assert left_at(session, "q", 3) == ["1.1", "1.2", "1.3"]


def test_rolled_back_and_again(broker: JumpingBroker, session: PeerSession) -> None:
    """The stream is where it was, and the same messages come through in the next transaction."""
    posting = Posting(session)
    assert posting.post(*chain(1, 3)) == ["accepted"] * 3
    posting.controller.roll_back(posting.txn_id)
    assert reached(broker) == 0
    assert reserved(broker, "q") == (0, 0)
    posting.again()
    assert posting.post((1, 2, 1)) == ["seq:gap"]
    assert posting.post(*chain(1, 3)) == ["accepted"] * 3
    posting.controller.commit(posting.txn_id)
    assert left_at(session, "q", 3) == ["1.1", "1.2", "1.3"]


def test_a_settled_gap_can_not_commit(broker: JumpingBroker, session: PeerSession) -> None:
    """Its sender is not told, so the discharge is (4.4.4), in the same write or later."""
    posting = Posting(session)
    connection = session.connection
    connection.pump_until(lambda: posting.sender.may_send)
    for at_once in (True, False):
        posting.sender.send(annotated((1, 1, 0)), txn_id=posting.txn_id, settled=True)
        posting.sender.send(annotated((1, 3, 2)), txn_id=posting.txn_id, settled=True)
        if not at_once:
            connection.flush()
            at_rest(broker)
        error = error_of(posting.controller.discharge(posting.txn_id))
        assert error.condition == "amqp:transaction:rollback" and "seq:gap" in (error.description or "")
        posting.again()
    assert reached(broker) == 0
    assert reserved(broker, "q") == (0, 0)


def test_messages_and_state_are_there_with_the_commit(broker: JumpingBroker, session: PeerSession) -> None:
    """Neither before: a plain sender of the same stream is at (0, 0) until then."""
    posting = Posting(session)
    assert posting.post(*chain(1, 3)) == ["accepted"] * 3
    assert posting.post(*chain(4, 5)) == ["accepted"] * 2
    assert reached(broker) == 0
    posting.controller.commit(posting.txn_id)
    assert reached(broker) == 5
    assert left_at(session, "q", 5) == ["1.1", "1.2", "1.3", "1.4", "1.5"]
    assert reserved(broker, "q") == (0, 0)


def test_two_transactions_on_one_stream(broker: JumpingBroker, session: PeerSession) -> None:
    """Who commits first has it; the other's discharge is rejected with amqp:transaction:rollback, also when
    both are in the same commit.
    """
    with session_to(broker, "other") as second:
        one, two = Posting(session, name="one"), Posting(second, name="two")
        assert one.post(*chain(1, 3)) == ["accepted"] * 3
        assert two.post(*chain(1, 2)) == ["accepted"] * 2
        one.controller.commit(one.txn_id)
        error = error_of(two.controller.discharge(two.txn_id))
        assert error.condition == "amqp:transaction:rollback"
        assert "was at id 0, number 0" in (error.description or "")
        assert reached(broker) == 3
        two.again()
        assert two.post(*chain(1, 4)) == ["accepted"] * 4
        two.controller.commit(two.txn_id)
        assert left_at(session, "q", 4) == ["1.1", "1.2", "1.3", "1.4"]


def test_a_discharge_in_the_same_write_as_its_posts(broker: JumpingBroker, session: PeerSession) -> None:
    """The provisional outcomes come before the answer of the discharge (4.4.1)."""
    posting = Posting(session)
    posting.session.connection.pump_until(lambda: posting.sender.may_send)
    numbers = [
        posting.sender.send(annotated(place), txn_id=posting.txn_id)
        for place in [*chain(1, 3), (1, 3, 2), (1, 9, 8)]
    ]
    asked = posting.controller.ask(Discharge(txn_id=posting.txn_id, fail=False))
    assert isinstance(posting.controller.answer(asked), Accepted)
    told = [posting.provisional(posting.sender.outcomes[number]) for number in numbers]
    assert words(told) == ["accepted"] * 4 + ["seq:gap"]
    assert reached(broker) == 3
    assert left_at(session, "q", 3) == ["1.1", "1.2", "1.3"]


def test_a_lost_connection_rolls_back(broker: JumpingBroker, session: PeerSession) -> None:
    """With its control link what was tentative is gone; the stream is free at once."""
    with session_to(broker, "lost") as lost:
        assert Posting(lost).post(*chain(1, 3)) == ["accepted"] * 3
    plain = session.attach_sender("plain", "q")
    assert words(outcomes(plain, [annotated((1, 1, 0))])) == ["accepted"]
    at_rest(broker)
    assert reserved(broker, "q") == (0, 0)
    assert left_at(session, "q", 1) == ["1.1"]


def test_two_discharges_in_one_commit(broker: JumpingBroker, session: PeerSession) -> None:
    """Both transactions of one connection are discharged in one write: the second finds the first."""
    one, two = Posting(session, name="one"), Posting(session, name="two")
    assert one.post(*chain(1, 2)) == ["accepted"] * 2
    assert two.post(*chain(1, 3)) == ["accepted"] * 3
    asked = [
        one.controller.ask(Discharge(txn_id=one.txn_id, fail=False)),
        two.controller.ask(Discharge(txn_id=two.txn_id, fail=False)),
    ]
    assert isinstance(one.controller.answer(asked[0]), Accepted)
    error = error_of(two.controller.answer(asked[1]))
    assert error.condition == "amqp:transaction:rollback"
    assert reached(broker) == 2
    assert left_at(session, "q", 2) == ["1.1", "1.2"]


def test_what_moves_the_stream_in_between_rolls_back(broker: JumpingBroker, session: PeerSession) -> None:
    """A plain message, or an administrator's reset."""

    async def reset(running: object) -> object:
        return await running.reset_stream("q", "s")  # type: ignore[attr-defined]

    posting = Posting(session)
    plain = session.attach_sender("plain", "q")
    assert posting.post(*chain(1, 2)) == ["accepted"] * 2
    assert words(outcomes(plain, [annotated((1, 1, 0))])) == ["accepted"]
    assert error_of(posting.controller.discharge(posting.txn_id)).condition == "amqp:transaction:rollback"
    posting.again()
    assert posting.post((1, 2, 1)) == ["accepted"]
    assert broker.call(reset) is True
    assert error_of(posting.controller.discharge(posting.txn_id)).condition == "amqp:transaction:rollback"
    assert reserved(broker, "q") == (0, 0)
    assert left_at(session, "q", 1) == ["1.1"]


def test_a_rollback_in_the_same_write_as_its_posts(broker: JumpingBroker, session: PeerSession) -> None:
    """They are told that it was rolled back, and nothing of them is left."""
    posting = Posting(session)
    posting.session.connection.pump_until(lambda: posting.sender.may_send)
    number = posting.sender.send(annotated((1, 1, 0)), txn_id=posting.txn_id)
    asked = posting.controller.ask(Discharge(txn_id=posting.txn_id, fail=True))
    assert isinstance(posting.controller.answer(asked), Accepted)
    session.connection.pump_until(lambda: number in posting.sender.outcomes)
    at_rest(broker)
    assert reserved(broker, "q") == (0, 0)
    assert reached(broker) == 0
    assert words(outcomes(posting.sender, [annotated((1, 1, 0))])) == ["accepted"]


def test_a_full_queue_does_not_move_the_stream(broker: JumpingBroker, session: PeerSession) -> None:
    """There is no credit for the fourth message, which is no gap when there is some."""
    posting = Posting(session, "small")
    assert posting.post(*chain(1, 3)) == ["accepted"] * 3
    session.connection.pump_until(lambda: posting.sender.credit == 0)
    posting.controller.commit(posting.txn_id)
    assert reached(broker, "small") == 3
    assert left_at(session, "small", 3, take=True) == ["1.1", "1.2", "1.3"]
    posting.again()
    broker.jump(1)  # what was settled by its receiver is stored when it suits
    session.connection.pump_until(lambda: posting.sender.may_send)
    assert posting.post((1, 4, 3)) == ["accepted"]
    posting.controller.commit(posting.txn_id)
    assert left_at(session, "small", 1) == ["1.4"]


def test_beyond_the_operations_of_a_transaction(broker: JumpingBroker, session: PeerSession) -> None:
    """The run is refused as others are, and the transaction can only roll back."""
    posting = Posting(session)
    assert posting.post(*chain(1, 15)) == ["accepted"] * 15
    assert set(posting.post(*chain(16, 25))) == {"amqp:resource-limit-exceeded"}
    error = error_of(posting.controller.discharge(posting.txn_id))
    assert error.condition == "amqp:transaction:rollback"
    assert reserved(broker, "q") == (0, 0) and reached(broker) == 0


def test_other_messages_and_streams_in_one_transaction(broker: JumpingBroker, session: PeerSession) -> None:
    """Their order in the queue is that of the posts; each stream has its own state."""
    posting = Posting(session)
    payloads = [
        message(b"a", durable=True), annotated((1, 1, 0)), annotated((5, 1, 0), "t"),
        message(b"b", durable=True), annotated((1, 2, 1)),
    ]  # fmt: skip
    outcomes(posting.sender, payloads, txn_id=posting.txn_id)
    outcomes(posting.sender, [message(b"c", durable=True)], txn_id=posting.txn_id)
    posting.controller.commit(posting.txn_id)
    assert left_at(session, "q", 6) == ["a", "1.1", "5.1", "b", "1.2", "c"]
    assert stream_of(broker, "q", "t").seq_id == 5
