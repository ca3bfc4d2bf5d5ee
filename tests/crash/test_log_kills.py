"""A broker that dies while messages come into a log: what was accepted is there, once, in order, archived."""

from __future__ import annotations

from pathlib import Path

import pytest

from amqp_broker.frames import Accepted
from amqp_broker.persistence.fault_points import ENVIRONMENT_VARIABLE
from amqp_broker.persistence.sqlite import SqliteStore, verify_directory
from amqp_broker.testing.blocking_peer import BlockingPeer, ConnectionLost
from amqp_broker.testing.peer import PeerSession
from tests.crash.broker_process import BrokerProcess
from tests.promises.delivered import Promise, check_delivered
from tests.promises.fates import Fate
from tests.support.broker_clients import bodies, message, receive, send
from tests.support.controllers import Controller
from tests.support.half_sets import SetClient, row
from tests.support.halves import half, putter, resolution, tell
from tests.support.retained import Asker, event_of, read

CONFIGURATION = '[[queue]]\npattern = "q"\nkind = "log"\nretention_ms = 86_400_000\nevents = true\n'
ROUNDS = 30
PASSES = [("apply.done", 15), ("commit.before", 23), ("move.after_rows", 3)]
PASSES += [("discharge.before_commit", 3), ("decide.before_commit", 2)]


class Sent:
    """What was promised, and what was on its way when the broker died: each of these wholly or not at all."""

    def __init__(self) -> None:
        self.promised: list[bytes] = []
        self.under_way: list[bytes] = []

    def begin(self, *texts: str) -> list[bytes]:
        """These are sent now."""
        self.under_way = [text.encode() for text in texts]
        return self.under_way

    def done(self) -> None:
        """They were accepted, or their transaction was."""
        self.promised += self.under_way
        self.under_way = []


def traffic(session: PeerSession, sent: Sent) -> None:
    """Every way in, in turns, until the broker is gone."""
    sender, controller, sets = session.attach_sender("s", "q"), Controller(session), SetClient(session)
    put = putter(session)
    for number in range(ROUNDS):
        send(sender, *sent.begin(f"plain {number}"))
        sent.done()
        txn_id = controller.declare()
        for body in sent.begin(f"one {number}", f"other {number}"):
            tell(sender, message(body), txn_id)
        controller.commit(txn_id)
        sent.done()
        (body,) = sent.begin(f"half {number}")
        assert tell(put, half(str(number), body)) == Accepted()
        assert tell(sets.resolve, resolution(str(number), "commit")) == Accepted()
        sent.done()
        rows = sent.begin(f"first {number}", f"last {number}")
        assert sets.commit(sets.sealed("w", *map(row, rows), epoch=number), epoch=number) == Accepted()
        sent.done()


@pytest.mark.parametrize(("point", "nth"), PASSES)
def test_what_a_log_accepted_is_there_after_a_kill(point: str, nth: int, tmp_path: Path) -> None:
    """Whatever way it came in; what was under way is there as a whole or not at all."""
    config, data, log = tmp_path / "broker.toml", tmp_path / "data", tmp_path / "broker.log"
    config.write_text(CONFIGURATION, encoding="utf-8")
    broker = BrokerProcess(data, log, config=config, environment={ENVIRONMENT_VARIABLE: f"{point}:{nth}"})
    sent = Sent()
    try:
        broker.wait_until_listening()
        with (
            pytest.raises(ConnectionLost),
            BlockingPeer.connect("127.0.0.1", broker.port, container_id="c") as connection,
        ):
            traffic(connection.begin(), sent)
    finally:
        broker.kill()
    assert sent.promised and verify_directory(data) == []
    broker = BrokerProcess(data, log, config=config)
    try:
        broker.wait_until_listening()
        with BlockingPeer.connect("127.0.0.1", broker.port, container_id="c") as connection:
            check(connection.begin(), sent)
    finally:
        assert broker.stop() == 0
    store = SqliteStore(data, ballast_bytes=0)
    assert [node.message_count for node in store.recover().nodes if node.name == "q"] == [0]
    store.close()


def check(session: PeerSession, sent: Sent) -> None:
    """Read it by offset, and the journal, which has to tell the same."""
    (node,) = Asker(session).ask("describe", address="q")["nodes"]
    count = node["next"]
    found = bodies(receive(read(session, "q", "first", until=count, credit=count), count))
    promises = [
        Promise("what was accepted", [*map(bytes.decode, sent.promised)], Fate.COMMITTED, "q"),
        Promise("what was under way", [*map(bytes.decode, sent.under_way)], Fate.UNKNOWN, "q"),
    ]
    assert check_delivered("q", [*map(bytes.decode, found)], promises) == []
    (events,) = Asker(session).ask("describe", address="$events")["nodes"]
    total = events["next"] - events["first"]
    told = receive(read(session, "$events", "first", until=events["next"], credit=total), total)
    fields = [event_of(each) for each in told]
    put = [(each["offset"], each["outcome"]) for each in fields if each["type"] in ("put", "publish")]
    assert put == [(offset, "archived") for offset in range(count)]
