"""Messages that are missing in the midst of what is kept: damaged, or dropped while somebody reads."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from amqp_broker.broker import Broker
from amqp_broker.embedding import RunningBroker
from amqp_broker.frames import Accepted, Ulong
from amqp_broker.persistence.questions import Quarantined, ReadResult, RetainedPageOf
from amqp_broker.testing.peer import PeerError, PeerSession
from tests.support.broker_clients import receive, send, session_to, settle_down
from tests.support.jumping_broker import JumpingBroker, Start, stopping
from tests.support.retained import Asker, offset_of, read, retaining

DAMAGED = (5, 6)


@pytest.fixture
def broker(start: Start) -> JumpingBroker:
    """A broker whose store finds two messages damaged whenever they are read."""
    running = start(retaining("kept", limits={"retained_page_messages": 4}))
    running.call(damage)
    return running


def damage(running: Broker) -> None:
    """What the store answers from now on, as the one on disk does for rows that fail their checksums."""
    store: Any = running.writer._store._store  # type: ignore[attr-defined]
    whole = store._answers[RetainedPageOf]

    def holed(asked: RetainedPageOf) -> ReadResult:
        page: ReadResult = whole(asked)
        lost = [record for record in page.records if record.offset in DAMAGED]
        return attrs.evolve(
            page,
            records=[record for record in page.records if record not in lost],
            quarantined=[Quarantined(asked.queue_id, record.offset, "scripted") for record in lost],
        )

    store._answers[RetainedPageOf] = holed


def filled(session: PeerSession) -> None:
    """Ten messages."""
    send(session.attach_sender("s", "kept"), *[b"%d" % number for number in range(10)])


@pytest.mark.parametrize("begins", [2, 4, 5, 6])
def test_a_range_yields_what_is_before_the_gap_and_says_what_is_missing(
    session: PeerSession, begins: int
) -> None:
    """The link is detached; the error says the first offset that is missing and where it goes on."""
    filled(session)
    reader = read(session, "kept", begins, until=9, settled=True)
    with pytest.raises(PeerError) as caught:
        session.connection.pump_until(lambda: reader.detached is not None)
    assert [offset_of(each) for each in reader.deliveries] == list(range(begins, 5))
    error = caught.value.error
    assert error is not None and error.condition == "retained:dropped"
    assert error.info is not None
    assert error.info["asked"] == Ulong(max(begins, 5)) and error.info["address"] == "kept"
    goes_on = error.info["first"].value
    assert max(begins, 5) < goes_on <= 8 and error.info["next"] == Ulong(10)


def test_a_range_beside_the_gap_is_whole(session: PeerSession) -> None:
    """What is damaged elsewhere does not matter."""
    filled(session)
    for start, until in ((0, 5), (7, 10)):
        found = receive(read(session, "kept", start, until=until), until - start)
        assert [offset_of(each) for each in found] == list(range(start, until))


def test_without_a_range_the_gap_is_passed_over(broker: RunningBroker, session: PeerSession) -> None:
    """And a cursor goes over it: nobody can accept what is not there."""
    filled(session)
    reader = read(session, "kept", "first", cursor="c")
    found = receive(reader, 8)
    assert [offset_of(each) for each in found] == [0, 1, 2, 3, 4, 7, 8, 9]
    reader.settle(found, Accepted())
    settle_down(broker, session)
    assert Asker(session).positions("c") == {"kept": 10}


def test_a_reader_whose_next_page_is_all_damaged_goes_on(session: PeerSession) -> None:
    """A page without messages is not the end."""
    filled(session)
    found = receive(read(session, "kept", 5, credit=1), 1)
    assert [offset_of(each) for each in found] == [7]


def test_a_store_that_has_nothing_is_not_asked_again_and_again() -> None:
    """Where it should have something the link ends with an error of the broker's own."""
    with stopping(JumpingBroker(retaining("kept"))) as broker, session_to(broker) as session:
        filled(session)

        def nothing_there(running: Broker) -> None:
            store: Any = running.writer._store._store  # type: ignore[attr-defined]
            store._answers[RetainedPageOf] = lambda asked: ReadResult([], asked.from_offset, [])

        broker.call(nothing_there)
        reader = read(session, "kept", 3)
        with pytest.raises(PeerError, match="amqp:internal-error"):
            session.connection.pump_until(lambda: reader.detached is not None)
