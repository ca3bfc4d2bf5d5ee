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
from types import SimpleNamespace
from typing import Any, cast

import pytest

from amqp_broker.broker import Broker
from amqp_broker.configuration import load_configuration
from amqp_broker.connection import Connection, Sink, Source
from amqp_broker.connection_task import ConnectionTask
from amqp_broker.embedding import RunningBroker, changed, running_broker
from amqp_broker.links import Connection as Engine
from amqp_broker.management.command import Asker
from amqp_broker.transactions import Transactions
from tests.soak.acts import ACTS, Act, User, made, reloaded, scraped
from tests.soak.ground import Ground, prepared
from tests.support.broker_clients import at_rest


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


@pytest.fixture
def collector() -> Iterator[None]:
    """It rests."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize("act", [act for act, _ in ACTS if act not in (scraped, reloaded)])
def test_nothing_of_it_waits_for_the_collector(act: Act, tmp_path: Path) -> None:
    """However it has ended, and whatever stood behind its links."""
    with ground_within(tmp_path) as (broker, ground):
        with Asker(ground.url) as asker:
            made(asker)
        for seed in range(3):
            act(User(ground, 0, random.Random(seed)))
        ground.cut_what_is_left()
        assert what_waits_for_the_collector(broker) == []


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
