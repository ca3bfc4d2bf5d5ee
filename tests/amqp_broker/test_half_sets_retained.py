"""Sets whose destination retains: what a commit makes available is read by its offset like all else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from amqp_broker.embedding import running_broker
from amqp_broker.frames import Accepted
from amqp_broker.testing.peer import PeerError
from tests.support.broker_clients import bodies, receive, send, session_to, settle_down
from tests.support.half_sets import SetClient, row
from tests.support.retained import offset_of, read, retaining


@pytest.mark.parametrize("disk", [False, True])
def test_committed_sets_are_retained_with_dense_offsets(tmp_path: Path, disk: bool) -> None:
    """Between ordinary messages; also after they were consumed, and after a restart."""
    config = retaining("q")
    if disk:
        config = attrs.evolve(config, memory=False, data_dir=str(tmp_path / "data"))
    rows = [row(b"%d" % number) for number in range(5)]
    with running_broker(config) as broker, session_to(broker) as session:
        client = SetClient(session)
        ordinary = session.attach_sender("o", "q")
        send(ordinary, b"first")
        one, two = client.sealed("one", *rows[:3]), client.sealed("two", *rows[3:])
        client.staged("loser", row(b"loser")).detach()
        tail = read(session, "q", "next")
        assert isinstance(client.commit(two, one), Accepted)
        send(ordinary, b"last")
        expected = [b"first", b"3", b"4", b"0", b"1", b"2", b"last"]
        found = receive(tail, 6)
        assert bodies(found) == expected[1:] and [offset_of(each) for each in found] == [*range(1, 7)]
        consumer = session.attach_receiver("r", "q", credit=10)
        deliveries = receive(consumer, 7)
        consumer.settle(deliveries, Accepted(), settled=False)
        session.connection.pump_until(lambda: len(consumer.confirmed) == 7)
        _reads_all(session, expected)
        settle_down(broker, session)
    if disk:
        with running_broker(config) as broker, session_to(broker) as session:
            _reads_all(session, expected)


def _reads_all(session: Any, expected: list[bytes]) -> None:
    found = receive(read(session, "q", "first", until=len(expected)), len(expected))
    assert bodies(found) == expected and [offset_of(each) for each in found] == [*range(len(expected))]
    with pytest.raises(PeerError, match="retained:beyond"):
        read(session, "q", 0, until=len(expected) + 1)
