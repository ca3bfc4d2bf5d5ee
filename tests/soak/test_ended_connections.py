"""An ended connection is freed by the last who knows it. The collector of garbage looks at what is old very
seldom (`serving.COLLECTOR_THRESHOLDS`): 10,000 connections that stood in a circle with themselves stayed in
memory.
"""

from __future__ import annotations

import gc
import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast

import pytest

from amqp_broker.broker import Broker
from amqp_broker.configuration import load_configuration
from amqp_broker.connection import Connection, Sink, Source
from amqp_broker.connection_task import ConnectionTask
from amqp_broker.embedding import RunningBroker, changed, running_broker
from amqp_broker.link_names import LinkNames
from amqp_broker.links import Connection as Engine
from amqp_broker.links import LinkDetached
from amqp_broker.log_setup import logger
from amqp_broker.management.command import Asker
from amqp_broker.transactions import Transactions
from tests.links.raw_peer import RawPeer
from tests.soak.acts import ACTS, Act, User, made, reloaded, scraped
from tests.soak.ground import Ground, prepared
from tests.support.broker_clients import at_rest
from tests.support.controllers import Controller
from tests.support.streaming import MIB, begin, more, send_large


@contextmanager
def ground_within(directory: Path) -> Iterator[tuple[RunningBroker, Ground]]:
    """A soak's broker, in a thread of this process."""
    prepared(directory)
    config = changed(load_configuration(directory / "broker.toml"), data_dir=str(directory / "data"))
    with running_broker(config) as broker:
        urls = {url.partition(":")[0]: url for url in broker.urls}
        yield broker, Ground(directory, cast(Any, SimpleNamespace(pid=0)), urls)


def all_gone(running: Broker) -> bool:
    """Whether nobody is connected."""
    return not running._connections


def what_waits_for_the_collector(broker: RunningBroker) -> list[str]:
    """Parts of connections of the broker that nobody knows any more, and that are there."""
    while not broker.call(all_gone):
        at_rest(broker)
    at_rest(broker)
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        found, gc.garbage[:] = [*gc.garbage], []
    finally:
        gc.set_debug(0)
    ours = (ConnectionTask, Connection, Transactions, Sink, Source)
    return [
        type(each).__qualname__
        for each in found
        if issubclass(type(each), ours) or (type(each) is Engine and each.settings.server)
    ]


def acquired(user: User) -> None:
    """A transport that ends while a transaction has acquired what was delivered."""
    peer = user.ground.peer("acquires")
    session = peer.begin()
    txn_id = Controller(session).declare()
    send_large(session.attach_sender("to", "acquired"), 1_000)
    receiver = session.attach_receiver("from", "acquired")
    receiver.flow(10, txn_id=txn_id)
    peer.pump_until(lambda: receiver.deliveries)
    peer.abort()


def large(user: User) -> None:
    """A transport that ends while a large message has come half, and others have gone half: sent settled, in
    a transaction, or neither.
    """
    peer = user.ground.peer("large")
    session = peer.begin()
    txn_id = Controller(session).declare()
    sender = session.attach_sender("to", "large")
    for _ in range(3):
        number, _ = send_large(sender, 2 * MIB)
        peer.pump_until(lambda number=number: number in sender.outcomes)  # type: ignore[misc]
    for name, settled, of in [("plain", 0, None), ("settled", 1, None), ("acquired", 0, txn_id)]:
        receiver = peer.begin(incoming_window=2).attach_receiver(name, "large", snd_settle_mode=settled)
        receiver.flow(1, txn_id=of)
        peer.pump_until(lambda receiver=receiver: receiver.partial is not None)  # type: ignore[misc]
    begin(sender, 2 * MIB)
    more(sender, bytes(3 * MIB // 2))
    peer.abort()


@pytest.fixture
def collector() -> Iterator[None]:
    """It rests."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(scope="module")
def ground() -> Iterator[tuple[RunningBroker, Ground]]:
    """Of one broker, with all that acts need: to make that takes longer than they do."""
    with TemporaryDirectory() as directory, ground_within(Path(directory)) as (broker, ground):
        with Asker(ground.url) as asker:
            made(asker)
        yield broker, ground


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize(
    "act", [*[act for act, _ in ACTS if act not in (scraped, reloaded)], acquired, large]
)
def test_nothing_of_it_waits_for_the_collector(act: Act, ground: tuple[RunningBroker, Ground]) -> None:
    """However it has ended, and whatever stood behind its links."""
    broker, here = ground
    for seed in range(3):
        act(User(here, 0, random.Random(seed)))
    here.cut_what_is_left()
    assert what_waits_for_the_collector(broker) == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_is_offered_to_one_that_ends_is_let_go(when: str) -> None:
    """Also by a commit that ends after it."""
    peer = RawPeer().open()
    peer.begin()
    connection = Connection(peer.server, LinkNames(), logger("connection"), lambda: None)
    link = peer.attach_receiver()
    source = Source(connection, link)
    connection.serve(link, source)
    if when == "before":
        connection.offer(source)
        assert connection.waiting
    connection.on_detached(LinkDetached(link, False, None, []))
    connection.let_go()
    if when == "after":
        connection.offer(source)
    assert not connection.waiting


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize("words", [b"GET / HTTP/1.1\r\n\r\n", b"AMQP\x00\x01\x00\x00", b""])
def test_nothing_of_who_does_not_speak_amqp(words: bytes, tmp_path: Path) -> None:
    """Who is refused, or goes without a word."""
    with ground_within(tmp_path) as (broker, ground):
        with socket.create_connection((ground.host, ground.port)) as dialled:
            dialled.sendall(words)
            dialled.shutdown(socket.SHUT_WR)
            while dialled.recv(1_000):
                pass
        assert what_waits_for_the_collector(broker) == []
