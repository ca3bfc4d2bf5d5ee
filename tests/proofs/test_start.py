"""Whatever fails between the start of the process and "listening on ...", it ends with a status and a
sentence.

A fault is planted at the first call of each function that a start passes, one start after the other. What a
start survives it has to survive wholly: then it listens.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest
import trio
import trustme

from amqp_broker import serving
from amqp_broker.broker import Broker, open_broker
from amqp_broker.command_line import main
from amqp_broker.configuration import BrokerConfig
from amqp_broker.exit_status import INTERNAL_FAULT, INTERRUPTED, STOPPED, STORE_FAILED
from amqp_broker.operations.writer import CommitThread, Writer
from amqp_broker.persistence import (
    Advance,
    Discharged,
    Event,
    Half,
    Hold,
    Journal,
    MoveCursor,
    Post,
    Record,
    Retain,
    Stream,
)
from amqp_broker.persistence.sqlite import SqliteStore, StoreCorrupt
from amqp_broker.persistence.store_file import DATABASE_NAME
from amqp_broker.testing.store_suite.helpers import do, new_queue

WAIT_S: Final = 30
FAR_MS: Final = 4_000_000_000_000
TABLES: Final = ("node", "run", "segment", "half", "event", "discharge_generation", "stream")
STATUSES: Final = (2, INTERNAL_FAULT, STORE_FAILED, 75)
ONE_TRY: Final = {
    "amqp_broker.command_line.main", "amqp_broker.command_line._run", "amqp_broker.broker._write",
    "amqp_broker.exit_status.until_reader_is_gone",
}  # fmt: skip
"""Each is one `try`: what is in it may fail, it itself cannot."""

FAULTS: Final = (OSError(5, "Input/output error"), KeyError("planted"), StoreCorrupt("planted"))
CONFIGURATION: Final = """
data_dir = "{data}"
[[listener]]
url = "amqps://127.0.0.1:0"
certificate_file = "{certificate}"
key_file = "{key}"
[[queue]]
pattern = "log"
kind = "log"
retention_bytes = 100000
create = "at-start"
[[queue]]
pattern = "made"
create = "at-start"
[[half_group]]
name = "orders"
"""


def fill(directory: Path) -> None:
    """Something for each part that recovers."""
    store = SqliteStore(directory, ballast_bytes=0)
    queue_id, log_id = new_queue(store, "queue"), new_queue(store, "log")
    expiring = Record(0, b"\0Su\xa0\1x", expires_at_ms=FAR_MS, enqueued_at_ms=1, durable=True)
    do(store, Post(queue_id, [expiring]), Post(log_id, [Record(0, b"\0Su\xa0\1x", enqueued_at_ms=1)]))
    half = Half("orders", b"\1half", "nowhere", "prepared", bytes(32), 1, FAR_MS, FAR_MS, "container", 5)
    do(store, Hold(half, b"\0Su\xa0\0"))
    do(store, Advance(Stream(queue_id, "stream", "owner", 1, 1)), Discharged(b"transaction", 1))
    do(store, Retain(queue_id, 1_000_000, 0), MoveCursor("cursor", queue_id, 0, 1))
    do(store, Journal(Event("noted", 1, {"at": 1})))
    store.close()


@pytest.fixture(autouse=True)
def _tidy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What serving changes of this process ends with the test."""
    monkeypatch.setattr(serving, "_tune_process", lambda: None)
    yield
    gc.enable()
    gc.unfreeze()


@pytest.fixture(name="config", scope="module")
def _config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A configuration with everything, and a store with something of everything."""
    directory = tmp_path_factory.mktemp("start")
    issued = trustme.CA().issue_cert("127.0.0.1")
    certificate, key, file = directory / "certificate", directory / "key", directory / "broker.toml"
    issued.cert_chain_pems[0].write_to_path(str(certificate))
    issued.private_key_pem.write_to_path(str(key))
    file.write_text(CONFIGURATION.format(data=directory / "data", certificate=certificate, key=key))
    fill(directory / "data")
    return file


class Planted:
    """Runs `amqp-broker serve` until it listens, and raises at the first call of one function on the way."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed: dict[str, None] = {}
        """In the order of their first calls."""
        self.target = ""
        self._last_word = ""
        self.fault: BaseException | None = None
        self.hit = False
        self.listened = False
        monkeypatch.setattr(serving, "_announce", self._announce)

    def _announce(self, url: str) -> None:
        sys.settrace(None)
        self.listened = True
        os.kill(os.getpid(), signal.SIGTERM)

    def _called(self, frame: FrameType, event: str, argument: Any) -> None:
        """By each call of a function in Python, and by nothing else: who returns None is told of no lines."""
        code = frame.f_code
        if self.fault is not None and code.co_name != self._last_word:
            return  # nearly all of them: the cheapest question is the first one
        name = frame.f_globals.get("__name__", "")
        if not name.startswith("amqp_broker") or code.co_name == "<module>":
            return
        called = f"{name}.{code.co_qualname}"
        if self.fault is None:
            self.passed.setdefault(called)
        elif called == self.target and not self.hit:
            self.hit = True
            sys.settrace(None)
            raise self.fault

    def run(self, file: Path, target: str = "", fault: BaseException | None = None) -> int:
        """The exit status."""
        self.target, self.fault, self.hit, self.listened = target, fault, False, False
        self._last_word = target.rpartition(".")[2]
        with warnings.catch_warnings():
            # A fault may hit the very function that was to own a socket: then the collector closes it.
            warnings.simplefilter("ignore", ResourceWarning)
            sys.settrace(self._called)
            try:
                return main(["serve", "--config", str(file)])
            finally:
                sys.settrace(None)
                gc.collect()


@pytest.fixture
def small_heap(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A collection looks at what was made since then only: there are hundreds of them."""
    gc.collect()
    gc.freeze()
    monkeypatch.setattr(gc, "freeze", lambda: None)  # what a start leaves behind is to be collected
    yield
    gc.unfreeze()


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("small_heap")
def test_a_fault_in_any_function_of_a_start_ends_it_with_a_sentence(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the configuration to the socket: no function that raises leaves a process that says nothing."""
    planted = Planted(monkeypatch)
    for _ in range(2):  # what the first one loads is there for the others
        planted.passed.clear()
        assert planted.run(config) == STOPPED
    capsys.readouterr()
    steps = [name for name in planted.passed if name not in ONE_TRY]
    for part in ("FileLock", "lost_commits", "configure", "make_durable", "mend_nodes", "Outcomes.load",
                 "HalfTable.load", "EventTable.load", "HalfGroups.recover", "HalfSets.recover",
                 "RetainedNodes.recover", "tls_context_of", "_open_listener", "SpaceGuard", "make_logs",
                 ):  # fmt: skip
        assert any(part in step for step in steps), part
    for number, step in enumerate(steps):
        kind = FAULTS[number % len(FAULTS)]
        fault = type(kind)(*kind.args)
        status = planted.run(config, step, fault)
        errors = capsys.readouterr().err
        if not planted.hit:  # a task that may begin a moment after the line was printed
            assert planted.listened and status == STOPPED, step
            continue
        assert (status in STATUSES) != (status == STOPPED and planted.listened), (step, status, errors)
        if status:
            last = errors.rstrip().splitlines()[-1]
            assert last.startswith("amqp-broker: ") and len(last) > 20, (step, errors)
            assert status != INTERNAL_FAULT or "Traceback" in errors, step


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (Writer, "run"), (CommitThread, "__init__"), (Broker, "create_queues_at_start"),
        (Broker, "recover_halves"), (Broker, "_open_listeners"), (SqliteStore, "recover"),
        (SqliteStore, "close"),
    ],
)  # fmt: skip
def test_a_part_that_always_fails_ends_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, fault: Exception
) -> None:
    """Also where others wait for it; the directory is free afterwards."""

    def fail(*_: object, **__: object) -> None:
        raise fault

    async def serve() -> None:
        with trio.fail_after(WAIT_S):
            async with open_broker(BrokerConfig(data_dir=str(tmp_path / "data"))) as broker:
                await broker.serve_tcp("127.0.0.1", 0)

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, fail)
        with pytest.raises(type(fault)):
            trio.run(serve)
    if name != "close":
        trio.run(serve)


def damage_page(path: Path, table: str) -> None:
    """One flipped byte: the first page of a table says that it is something else."""
    from tests.persistence.stores import edit

    ((root,),) = edit(path.parent, "SELECT rootpage FROM sqlite_schema WHERE name=?", table)
    ((size,),) = edit(path.parent, "PRAGMA page_size")
    with path.open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xff")


@pytest.mark.parametrize("table", TABLES)
def test_a_damaged_page_ends_the_start_with_74(
    tmp_path: Path, table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Or the store is served without it, and says so; it never hangs."""
    data = tmp_path / "data"
    fill(data)
    damage_page(data / DATABASE_NAME, table)
    if table not in ("stream", "segment"):  # those are read when somebody asks for one
        assert main(["serve", "--data", str(data), "--listen", "amqp://127.0.0.1:0"]) == STORE_FAILED
        out, errors = capsys.readouterr()
        last = errors.splitlines()[-1]
        assert re.match(rf"amqp-broker: {data}: .* cannot be (loaded|read).*amqp-broker check {data}", last)
        assert out == ""
    assert main(["check", str(data)]) == 1
    assert table in ("stream", "segment") or table.split("_")[0] in capsys.readouterr().out


def test_a_file_that_is_no_directory_ends_the_process(tmp_path: Path) -> None:
    """So does a directory that cannot be locked, because its lock is something else: in a process of its own,
    whose status says so.
    """
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "store.lock").mkdir()
    command = [sys.executable, "-m", "amqp_broker", "serve", "--data", str(tmp_path / "data")]
    command += ["--listen", "amqp://127.0.0.1:0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == STORE_FAILED and "store.lock" in done.stderr.splitlines()[-1]


def test_an_interruption_is_told_as_one(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C before there is somebody who listens for it."""
    planted = Planted(monkeypatch)
    step = "amqp_broker.persistence.data_directory.FileLock.__init__"
    assert planted.run(config, step, KeyboardInterrupt()) == INTERRUPTED
    assert capsys.readouterr().err.splitlines()[-1] == "amqp-broker: interrupted"


def test_standard_error_that_nobody_reads_leaves_the_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence is for people; programs have the status."""

    def broken(text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")

    failing: Callable[[str], int] = broken
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "store.lock").mkdir()
    monkeypatch.setattr(sys.stderr, "write", failing)
    assert main(["serve", "--data", str(tmp_path / "data"), "--listen", "amqp://127.0.0.1:0"]) == STORE_FAILED
