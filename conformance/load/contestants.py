"""Where a broker that is measured comes from."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Protocol

import attrs

from amqp_broker.bench.run import Client
from amqp_broker.bench.settings import BenchSettings, parse_url
from amqp_broker.conformance.load.peers import Peer, running_peer
from amqp_broker.conformance.load.sitting import Sitting
from amqp_broker.testing.broker_process import running


class Contestant(Protocol):
    """Something that gives a running broker for some runs, and ends only what it started."""

    @property
    def name(self) -> str:
        """What a table calls it."""
        ...

    @property
    def starts_afresh(self) -> bool:
        """Whether each run gets a process of its own, so that the luck of one process (where its memory lies,
        how its dictionaries are ordered) is no property of its code.
        """
        ...

    def sitting(self, client: Client, seconds: float) -> AbstractContextManager[Sitting]:
        """A broker that runs, for runs of so many seconds. Raises RuntimeError when it doesn't come up."""
        ...


@attrs.frozen
class Tree:
    """A checkout of this project, or a compiled copy of one; the installed one where `path` is None."""

    name: str
    path: Path | None = None
    starts_afresh: bool = True

    @contextmanager
    def sitting(self, client: Client, seconds: float) -> Iterator[Sitting]:
        """With a store of its own on disk."""
        with (
            tempfile.TemporaryDirectory() as folder,
            running("--data", f"{folder}/data", tree=self.path) as broker,
        ):
            base = BenchSettings(host=broker.host, port=broker.port)
            yield Sitting(base, client, broker.pid, seconds=seconds, ours=True, tree=self.path)


class Beside:
    """Another broker, kept for all cases: a Java machine is at its best only after seconds. One on which a
    run has failed is started again for the next case.
    """

    starts_afresh = False

    def __init__(self, peer: Peer, process: ExitStack) -> None:
        """It runs until `process` ends. Raises NotThereError, and RuntimeError when it does not come up."""
        self.peer = peer
        self._process = process
        self._running = process.enter_context(running_peer(peer))
        self._sittings = count()

    @property
    def name(self) -> str:
        """As it is asked for."""
        return self.peer.name

    @contextmanager
    def sitting(self, client: Client, seconds: float) -> Iterator[Sitting]:
        """With addresses that no sitting before has used."""
        peer = self.peer
        prefix = f"{peer.prefix}{next(self._sittings)}-"
        base, pid = self._running.base, self._running.pid
        found = Sitting(base, client, pid, seconds=seconds, prefix=prefix, transactions=peer.transactions)
        yield found
        if found.failed:
            self._process.close()
            self._running = self._process.enter_context(running_peer(peer))


@attrs.frozen
class Running:
    """A broker that somebody else started: its URL, and its process where that is known."""

    url: str
    pid: int = 0
    starts_afresh: bool = False

    @property
    def name(self) -> str:
        """Its URL."""
        return self.url

    @contextmanager
    def sitting(self, client: Client, seconds: float) -> Iterator[Sitting]:
        """Every run uses the address of the URL where it has one."""
        said = parse_url(self.url)
        base = BenchSettings(**said)
        yield Sitting(base, client, self.pid, seconds=seconds, fixed="address" in said)
