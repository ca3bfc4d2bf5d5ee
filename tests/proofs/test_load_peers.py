"""Other brokers beside ours: what their files say, and that what was started ends. Without Java."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import attrs
import pytest

from amqp_broker.bench.run import Client, python_client
from amqp_broker.bench.settings import BenchSettings
from amqp_broker.conformance.load.c_client import client_of
from amqp_broker.conformance.load.cases import Case, Spread
from amqp_broker.conformance.load.comparison import Comparison, Rules, heads
from amqp_broker.conformance.load.contestants import Beside, Contestant
from amqp_broker.conformance.load.gate import Gate, judged
from amqp_broker.conformance.load.judged import again
from amqp_broker.conformance.load.peers import (
    PEERS,
    Peer,
    activemq,
    artemis,
    broker_j,
    rabbitmq,
    running_peer,
)
from amqp_broker.conformance.load.peers.maven import Artifact, project_of
from amqp_broker.conformance.load.peers.peer import Program
from amqp_broker.conformance.load.processes import sync_ns
from amqp_broker.conformance.load.sitting import Report, Sitting

MAVEN = {"m": "http://maven.apache.org/POM/4.0.0"}
CORE = {"c": "urn:activemq:core"}
ACTIVEMQ = {"a": activemq.CORE}
QUICK = Rules(rounds=1, most_rounds=1, patience_s=0.0)


def test_a_project_names_each_artifact_with_its_version() -> None:
    """One that comes alone excludes all that it depends on."""
    text = project_of((Artifact("g", "first", "1.0"), Artifact("g", "second", "2.0", alone=True)))
    found = ElementTree.fromstring(text).findall(".//m:dependency", MAVEN)
    assert [one.findtext("m:version", "", MAVEN) for one in found] == ["1.0", "2.0"]
    assert [len(one.findall(".//m:exclusion", MAVEN)) for one in found] == [0, 1]


def test_activemq_syncs_what_it_accepts(tmp_path: Path) -> None:
    """Its journal is synced, below the folder; one connector, on loopback, and no port of JMX."""
    root = ElementTree.fromstring(activemq.configuration(5_000, tmp_path))
    (store,) = root.findall(".//a:kahaDB", ACTIVEMQ)
    assert store.get("enableJournalDiskSyncs") == "true"
    assert (store.get("directory") or "").startswith(str(tmp_path))
    (broker,) = root.findall("a:broker", ACTIVEMQ)
    assert (broker.get("persistent"), broker.get("useJmx")) == ("true", "false")
    assert broker.get("dataDirectory") == str(tmp_path)
    (connector,) = root.findall(".//a:transportConnector", ACTIVEMQ)
    assert (connector.get("uri") or "").startswith("amqp://127.0.0.1:5000?transport.transformer=native&")


def test_artemis_syncs_what_it_accepts(tmp_path: Path) -> None:
    """Sync of transactional and other sends, below the folder, on loopback only."""
    root = ElementTree.fromstring(artemis.configuration(5_000, tmp_path, 150_000))

    def said(name: str) -> str | None:
        return root.findtext(f".//c:{name}", None, CORE)

    for name in ("persistence-enabled", "journal-datasync", "journal-sync-transactional"):
        assert said(name) == "true"
    assert said("journal-sync-non-transactional") == "true" and said("journal-buffer-timeout") == "150000"
    assert (said("journal-directory") or "").startswith(str(tmp_path))
    assert (said("acceptor") or "").startswith("tcp://127.0.0.1:5000?")


def test_broker_j_has_one_port_and_a_store_on_disk(tmp_path: Path) -> None:
    """Its port is of loopback, its store below the folder; a queue is made for whoever names it."""
    found = broker_j.configuration(5_000, tmp_path)
    (port,) = found["ports"]
    assert (port["port"], port["bindingAddress"]) == (5_000, "127.0.0.1")
    (node,) = found["virtualhostnodes"]
    host = json.loads(node["virtualHostInitialConfiguration"])
    assert (host["type"], host["storePath"]) == ("BDB", str(tmp_path))
    assert [policy["nodeType"] for policy in host["nodeAutoCreationPolicies"]] == ["queue"]


def test_rabbitmq_keeps_to_its_folder_and_to_loopback(tmp_path: Path) -> None:
    """Its data, its log and the ports by which its parts find each other."""
    assert "listeners.tcp.local = 127.0.0.1:5000" in rabbitmq.configuration(5_000)
    found = rabbitmq.environment(tmp_path, (5_001, 5_002))
    assert found["ERL_EPMD_ADDRESS"] == "127.0.0.1" and found["ERL_EPMD_PORT"] == "5001"
    assert found["RABBITMQ_MNESIA_BASE"].startswith(str(tmp_path)) and found["HOME"] == str(tmp_path)


def test_every_peer_is_pinned() -> None:
    """By a version with three parts, and its title says it."""
    for name, peer in PEERS.items():
        assert name == peer.name and peer.version in peer.title and peer.version.count(".") == 2


def test_a_synced_block_takes_time(tmp_path: Path) -> None:
    """And nothing is left of the measurement."""
    assert sync_ns(tmp_path) > 0
    assert not list(tmp_path.iterdir())


def ours(name: str = "ours", *, first: str = "import time; time.sleep(1000)") -> Peer:
    """This broker as if it were another one, with a program before it."""

    def prepare(folder: Path, port: int) -> tuple[Program, ...]:
        options = ("serve", "--memory", "--listen", f"amqp://127.0.0.1:{port}")
        broker = Program((sys.executable, "-m", "amqp_broker", *options))
        return Program((sys.executable, "-c", first)), broker

    return Peer(name=name, version="0", title=name, accepted="", prepare=prepare)


def test_a_peer_runs_as_long_as_the_block() -> None:
    """It listens, it is the last of its programs, and nothing of it is left."""
    with running_peer(ours()) as found:
        words = Path(f"/proc/{found.pid}/cmdline").read_bytes().split(b"\0")
        folder = Path(f"/proc/{found.pid}/cwd").resolve()
        assert b"amqp_broker" in words and folder.is_dir()
    assert not folder.exists() and not Path(f"/proc/{found.pid}").exists()


def test_a_peer_that_ends_says_why() -> None:
    """With the end of its log."""
    broken = Peer(
        name="broken", version="0", title="broken", accepted="",
        prepare=lambda folder, port: (Program((sys.executable, "-c", "raise SystemExit('no such store')")),),
    )  # fmt: skip
    with pytest.raises(RuntimeError, match=r"(?s)ended with 1.*no such store"), running_peer(broken):
        pass


@attrs.frozen
class Kept:
    """A broker that is kept, without any broker."""

    name: str
    starts_afresh: bool = False

    @contextmanager
    def sitting(self, client: Client, seconds: float) -> Iterator[Sitting]:
        """Nothing runs."""
        yield Sitting(BenchSettings(host=self.name, port=1), client, seconds=seconds)


@attrs.frozen
class Figured(Case):
    """Everybody gets 1,000, but who is named in `failing`."""

    failing: str = ""

    def sized(self, sitting: Sitting) -> dict[str, Any]:
        """Nothing runs."""
        return {}

    def warm_up(self, sitting: Sitting, changes: dict[str, Any]) -> None:
        """Nothing runs."""

    def once(self, sitting: Sitting, changes: dict[str, Any]) -> Report:
        """The figure."""
        if sitting.base.host == self.failing:
            raise RuntimeError("it went away")
        return {self.rate: 1_000.0, "broker_us": 1.0, "clean": True}


def test_another_broker_that_fails_hides_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cell says so; the other's ratio stands, and neither is judged."""
    monkeypatch.setattr("amqp_broker.conformance.load.comparison.WARM_S", 0.01)
    contestants = [Kept("first", starts_afresh=True), Kept("second"), Kept("third")]
    found = Comparison(Figured("figured", {}, failing="third"), contestants, python_client, QUICK)
    found.run()
    row = found.row()
    assert len(row) == len(heads(contestants))
    assert row[3] == "1.00 (1.00 to 1.00)" and row[5] == "failed: it went away"
    assert found.ratios() == []


def test_what_a_broker_has_not_is_not_asked_for() -> None:
    """Transactions without a coordinator; half messages and starts of any other broker."""
    sitting = Sitting(BenchSettings(host="h", port=1), python_client, transactions=False)
    assert Case("c", {}).fits(sitting)
    assert not Case("c", {}, "transactions_per_second").fits(sitting)
    assert not Case("c", {"half_group": "g"}).fits(sitting)


def test_addresses_of_a_kept_broker_are_never_used_again() -> None:
    """With what it wants before a queue's name."""
    peer = attrs.evolve(ours(), prefix="/queue/")
    found = []
    with ExitStack() as process:
        beside = Beside(peer, process)
        for _ in range(2):
            with beside.sitting(python_client, 1.0) as sitting:
                found += [sitting.settings({}).address for _ in range(2)]
    assert len(set(found)) == 4 and all(address.startswith("/queue/") for address in found)


def test_a_broker_on_which_a_run_has_failed_is_started_again_for_the_next_case(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may be of no use any more; another one is kept."""
    monkeypatch.setattr("amqp_broker.conformance.load.comparison.WARM_S", 0.01)
    with ExitStack() as process:
        beside = Beside(ours(), process)
        pids = []
        for failing in ("", "127.0.0.1", ""):
            with beside.sitting(python_client, 1.0) as sitting:
                pids.append(sitting.pid)
            contestants: list[Contestant] = [Kept("first", starts_afresh=True), beside]
            Comparison(Figured("figured", {}, failing=failing), contestants, python_client, QUICK).run()
    assert pids[0] == pids[1] != pids[2]


@pytest.mark.parametrize(("many", "verdict"), [(30.0, "passed"), (50.0, "FAILED")])
def test_a_gate_compares_processor_time(many: float, verdict: str) -> None:
    """Not rates, which depend on what else a machine does."""

    class Fixed(Figured):
        """So many microseconds a message."""

        def once(self, sitting: Sitting, changes: dict[str, Any]) -> Report:
            """Nothing runs."""
            return {"broker_us": many if self.name == "many" else 1.0}

    sitting = Sitting(BenchSettings(host="h", port=1), python_client)
    gate = Gate("many beside one", Fixed("many", {}), Fixed("one", {}), 40.0)
    assert list(judged(sitting, [gate])) == [["many beside one", f"{many:.2f}", "40", verdict]]


@pytest.mark.parametrize("name", ["rawload"] if shutil.which("cc") and shutil.which("make") else [])
def test_messages_over_many_queues_are_all_there_again(name: str, tmp_path: Path) -> None:
    """A small run from start to end; it wants a C compiler."""
    client = client_of(name, tmp_path)
    with running_peer(ours()) as found:
        sitting = Sitting(found.base, client, found.pid, seconds=0.01)
        for counts in ("sender", "receiver"):
            case = Spread(name="", counts=counts, links=7)
            report = case.once(sitting, case.sized(sitting))
            assert report["clean"] and report["messages_per_second"] > 0


def _words_of(pid: int) -> str:
    """What a process was started with, as soon as it is `sleep`, which Linux shows a moment later."""
    while True:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ").decode()
        if words.startswith("sleep"):
            return words
        time.sleep(0.01)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["rawload"] if shutil.which("cc") and shutil.which("make") else [])
def test_a_talk_that_could_not_end_is_not_begun(name: str, tmp_path: Path) -> None:
    """It waits for the outcome of each message, which settled ones do not have."""
    program = client_of(name, tmp_path)("sender", 0, BenchSettings(host="", port=0))[0]
    words = [program, "talk", "127.0.0.1", "1", "a", "--settled"]
    ended = subprocess.run(words, capture_output=True, timeout=60)
    assert ended.returncode != 0 and "--settled" in json.loads(ended.stdout)["error"]


def test_a_peer_is_started_again_as_it_was(tmp_path: Path) -> None:
    """The former process is gone; the new one has its words, its folder and its environment."""
    first = subprocess.Popen(["sleep", "300"], cwd=tmp_path, env={"MARK": "here", "PATH": os.environ["PATH"]})
    assert _words_of(first.pid) == "sleep 300"
    second = subprocess.Popen(shlex.split(again(first.pid, tmp_path)))
    try:
        assert first.wait(20) == -signal.SIGKILL
        assert _words_of(second.pid) == "sleep 300"
        process = Path(f"/proc/{second.pid}")
        assert process.joinpath("cwd").readlink() == tmp_path
        assert b"MARK=here\0" in process.joinpath("environ").read_bytes()
    finally:
        second.kill()
        second.wait()
