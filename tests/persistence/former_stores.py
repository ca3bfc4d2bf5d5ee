"""Stores that brokers of former schema versions have left when they were killed: `former/N.tar.xz`.

They were made once, each by the last code of its version, and never change. For the version that ends:

    python -m tests.persistence.former_stores 9 COMMIT

writes `former/9.tar.xz` by the broker of that commit, which has to be in the history.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from amqp_broker.frames import Accepted, Header, Modified, Properties, Target, Ulong, encode_message
from amqp_broker.persistence.body_files import PREFIX
from amqp_broker.persistence.store_file import DATABASE_NAME
from amqp_broker.testing.blocking_peer import BlockingPeer
from amqp_broker.testing.broker_process import BrokerProcess, running
from amqp_broker.testing.peer import PeerSender, PeerSession
from tests.support.broker_clients import message, receive
from tests.support.controllers import Controller
from tests.support.retained import Asker
from tests.support.sequenced import annotated, chain, outcomes
from tests.tidy.sources import ROOT

FORMER: Final = Path(__file__).parent / "former"
TRANSACTIONS_SINCE: Final = 2
HALVES_SINCE: Final = 3  # and streams
KEPT_SINCE: Final = 4  # queues that retain, and cursors
TERMINI_SINCE: Final = 7
BODIES_SINCE: Final = 9
SPREAD_SINCE: Final = 10
MANY: Final = 5  # queues that one commit brings a message to
LARGE: Final = b"large " * 50_000
CONFIGURATION: Final = '[[queue]]\npattern = "kept"\nretention_ms = 3153600000000\n'


def fill(broker: BrokerProcess, version: int) -> None:
    """Have the broker store what one of this version could: see `test_former_stores`."""
    with BlockingPeer.connect("127.0.0.1", broker.port, container_id="worker") as connection:
        session = connection.begin()
        orders = session.attach_sender("orders-in", "orders")
        _accepted(orders, [message(b"order %d" % at, durable=True) for at in range(5)])
        taken = session.attach_receiver("orders-out", "orders", credit=4)
        got = receive(taken, 4)
        taken.settle(got[:2], Accepted())
        taken.settle(got[2:3], Modified(delivery_failed=True))
        taken.settle(got[3:], Modified(delivery_failed=False))
        taken.detach()
        _accepted(orders, [message(b"order 5", durable=True)])  # and so what was settled before it
        if version >= TRANSACTIONS_SINCE:
            control = Controller(session)
            committed, open_one = control.declare(), control.declare()
            session.connection.pump_until(lambda: orders.credit > 2)
            orders.send(message(b"in a transaction", durable=True), txn_id=committed)
            orders.send(message(b"never committed", durable=True), txn_id=open_one)
            control.commit(committed)
        if version >= HALVES_SINCE:
            _fill_halves(session)
        if version >= KEPT_SINCE:
            _fill_kept(session)
        if version >= BODIES_SINCE:
            _accepted(session.attach_sender("large", "large"), [message(LARGE, durable=True)])
        if version >= SPREAD_SINCE:
            _fill_many(session, control)
        if version >= TERMINI_SINCE:
            target = Target(address="orders", durable=2, expiry_policy="never")
            session.attach_sender("lasting", None, target=target)


def _fill_many(session: PeerSession, control: Controller) -> None:
    senders = [session.attach_sender(f"many-{at}", f"many-{at}") for at in range(MANY)]
    txn_id = control.declare()
    session.connection.pump_until(lambda: all(sender.credit > 0 for sender in senders))
    for at, sender in enumerate(senders):
        sender.send(message(b"many %d" % at, durable=True), txn_id=txn_id)
    control.commit(txn_id)


def _fill_halves(session: PeerSession) -> None:
    halves = session.attach_sender("halves", "$half/shop/orders")
    half_id = Properties(message_id="undecided")
    _accepted(halves, [encode_message(header=Header(durable=True), properties=half_id, body=b"half")])
    _accepted(session.attach_sender("stream", "numbered"), [annotated(place) for place in chain(1, 3)])


def _accepted(sender: PeerSender, payloads: list[bytes]) -> None:
    found = outcomes(sender, payloads)
    assert {type(each) for each in found} == {Accepted}, found


def _fill_kept(session: PeerSession) -> None:
    kept = session.attach_sender("kept-in", "kept")
    _accepted(kept, [message(b"kept %d" % at, durable=True) for at in range(3)])
    taken = session.attach_receiver("kept-out", "kept", credit=2)
    taken.settle(receive(taken, 2), Accepted())
    Asker(session).ask("move", cursor="reader", positions={"kept": Ulong(1)})


def make_of(version: int, commit: str) -> None:
    """`make` by the broker of a commit, for good."""
    with tempfile.TemporaryDirectory() as tree:
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as source:
            source.extractall(tree, filter="tar")
        FORMER.mkdir(exist_ok=True)
        make(version, FORMER / f"{version}.tar.xz", Path(tree))


def make(version: int, archive: Path, tree: Path | None = None) -> None:
    """Run a broker, of this source or that of `tree`, kill it, and pack what it left."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        told = ["--data", str(data)]
        if version >= KEPT_SINCE:
            file = Path(folder) / "broker.toml"
            file.write_text(CONFIGURATION)
            told += ["--config", str(file)]
        with running(*told, tree=tree) as broker:
            fill(broker, version)
            broker.process.kill()
        pack(data, archive)


def pack(data: Path, archive: Path) -> None:
    """Pack what makes up a store: the database with its log, and the files of bodies."""
    with tarfile.open(archive, "w:xz", preset=9) as packed:
        for path in sorted(data.iterdir()):
            if path.name in (DATABASE_NAME, f"{DATABASE_NAME}-wal") or path.name.startswith(PREFIX):
                packed.add(path, path.name)


def unpack(archive: Path, directory: Path) -> None:
    """Put a packed store into a data directory."""
    directory.mkdir(exist_ok=True)
    with tarfile.open(archive) as packed:
        packed.extractall(directory, filter="data")


if __name__ == "__main__":
    make_of(int(sys.argv[1]), sys.argv[2])
