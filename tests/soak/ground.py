"""The broker of a soak: a process with a store, all its kinds of listeners, and bounds that are met soon.

Whatever a broker keeps for a time is kept for seconds here, so that a run of minutes sees it end.
"""

from __future__ import annotations

import itertools
import re
import ssl
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import trustme

from amqp_broker.testing.blocking_peer import BlockingPeer
from amqp_broker.testing.broker_process import stop

WORKERS: Final = 6
LEFT_OPEN: Final = 8
"""Connections that nobody uses any more, and that are still there."""
COMMAND: Final = (sys.executable, "-m", "amqp_broker", "serve")

_CONFIGURATION: Final = """
data_dir = "data"
[[listener]]
url = "amqp://127.0.0.1:0"
[[listener]]
url = "amqps://127.0.0.1:0"
certificate_file = "server.pem"
key_file = "server.key"
[[listener]]
url = "ws://127.0.0.1:0"
[http]
url = "http://127.0.0.1:0"
[logging]
level = "warning"
[limits]
transaction_timeout_ms = 4_000
lasting_terminus_s = 5
event_keep_ms = 20_000
partial_idle_ms = 5_000
address_operations_per_s = 100_000
[[queue]]
pattern = "work.**"
max_messages = {work}
events = true
[[queue]]
pattern = "dead-letters"
create = "at-start"
max_messages = 200
[[queue]]
pattern = "kept.**"
retention_ms = 20_000
max_messages = 2_000
[[queue]]
pattern = "once.**"
duplicate_window_ms = 10_000
[[queue]]
pattern = "news.**"
kind = "topic"
"""
_GROUP: Final = """
[[half_group]]
name = "{name}"
first_check_ms = 400
retry_ms = 1_000
max_age_ms = {age}
tombstone_ms = 20_000
"""


class Ground:
    """What all who use the broker know: where it is, and names that nobody else has."""

    def __init__(self, directory: Path, process: subprocess.Popen[str], urls: dict[str, str]) -> None:
        self.directory = directory
        self.process = process
        self.urls = urls
        """By scheme; `http` for health and metrics."""
        parts = urlsplit(urls["amqp"])
        self.host, self.port = parts.hostname or "127.0.0.1", parts.port or 0
        self.tls = ssl.create_default_context(cafile=str(directory / "ca.pem"))
        self.reloading = threading.Lock()
        self._numbers = itertools.count(1)
        self._left: deque[BlockingPeer] = deque()

    @property
    def url(self) -> str:
        """The plain listener."""
        return self.urls["amqp"]

    def name(self, what: str) -> str:
        """A name that was never used before."""
        return f"{what}-{next(self._numbers)}"

    def peer(self, what: str, container_id: str | None = None) -> BlockingPeer:
        """A frame-level connection."""
        return BlockingPeer.connect(self.host, self.port, container_id=container_id or self.name(what))

    def leave(self, peer: BlockingPeer) -> None:
        """Nobody says a word on it any more; the oldest of such is cut when there are too many."""
        self._left.append(peer)
        while len(self._left) > LEFT_OPEN:
            self._left.popleft().abort()

    def cut_what_is_left(self) -> None:
        """The last of them."""
        while self._left:
            self._left.popleft().abort()

    def configure(self, work: int) -> None:
        """Write the file that the broker reads; `work` is the bound of its working queues."""
        written = write_configuration(self.directory, work)
        written.replace(self.directory / "broker.toml")


def write_configuration(directory: Path, work: int = 50_000) -> Path:
    """The file, beside the one that is in use."""
    groups = [(f"asked.{number}", 60_000) for number in range(WORKERS)] + [("left", 3_000)]
    text = _CONFIGURATION.format(work=work)
    text += "".join(_GROUP.format(name=name, age=age) for name, age in groups)
    written = directory / "broker.toml.new"
    written.write_text(text)
    return written


def prepared(directory: Path) -> None:
    """Certificates and the configuration."""
    authority = trustme.CA()
    server = authority.issue_cert("127.0.0.1", "localhost")
    server.cert_chain_pems[0].write_to_path(directory / "server.pem")
    server.private_key_pem.write_to_path(directory / "server.key")
    authority.cert_pem.write_to_path(directory / "ca.pem")
    write_configuration(directory).replace(directory / "broker.toml")


@contextmanager
def ground_of(directory: Path, command: tuple[str, ...] = COMMAND) -> Iterator[Ground]:
    """A broker in this directory, which has to be empty. Raises RuntimeError when it does not come up."""
    prepared(directory)
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--config", str(directory / "broker.toml")],
            stdout=subprocess.PIPE, stderr=log, text=True, cwd=directory,
        )  # fmt: skip
    try:
        yield Ground(directory, process, _told(process, directory / "log"))
    finally:
        stop(process)


def _told(process: subprocess.Popen[str], log: Path) -> dict[str, str]:
    """Where it listens: a line for each listener."""
    assert process.stdout is not None
    urls: dict[str, str] = {}
    while len(urls) < 4:
        line = process.stdout.readline()
        found = re.search(r" on ((\w+)://\S+)$", line.strip())
        if found is None:
            raise RuntimeError(f"expected a listener, the broker said {line!r}:\n{log.read_text()[-4_000:]}")
        urls[found[2]] = found[1]
    return urls
