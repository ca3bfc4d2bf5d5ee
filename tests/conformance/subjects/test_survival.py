"""Runs against brokers that die, hang, spin, shut their door or are slow: processes, ended by their test."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from amqp_broker.client.settings import Endpoint
from amqp_broker.conformance.broker import Broker, Settings
from amqp_broker.conformance.command_line import main
from amqp_broker.conformance.outcomes import CannotConnect, Interrupted, Late, Unexpected, Verdict
from amqp_broker.conformance.scenario import Scenario, select_scenarios
from amqp_broker.conformance.subject import Program, Subject
from amqp_broker.conformance.survival import Stop, Survivor, run
from amqp_broker.testing import running_broker
from tests.conformance.mortal_broker import command, mortal_broker
from tests.conformance.probed import probed

CULPRIT: Final = "2.5.6/next-id-from-flow"
WORD: Final = "2_5_6-next-id-from-flow"
"""It stands in the container-id of that scenario's connections."""

SELECTED: Final = "2.5*"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our brokers spin at once and for ever, or not at all."""
    monkeypatch.setattr("amqp_broker.conformance.subject.SPUN_FOR_S", 1.5)


def free_port() -> int:
    """Of loopback: a broker that is started again has to have the same one."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _run(port: int, path: Path, *options: str, jobs: int = 4) -> tuple[int, dict[str, Any]]:
    """The command's exit status and its report."""
    url = f"amqp://127.0.0.1:{port}"
    arguments = ["run", url, "--profile", "core", "--only", SELECTED, "--jobs", str(jobs), "--timeout", "3"]
    status = main([*arguments, "--json", str(path), *options])
    return status, json.loads(path.read_text())


def _statuses(report: dict[str, Any]) -> dict[str, str]:
    return {one["id"]: one["status"] for one in report["scenarios"]}


def _message(report: dict[str, Any], scenario: str) -> str:
    return next(str(one["message"]) for one in report["scenarios"] if one["id"] == scenario)


@pytest.mark.parametrize("jobs", [1, 4])
def test_a_broker_that_dies_is_a_finding(tmp_path: Path, jobs: int) -> None:
    """Nobody starts it again: what had passed is kept, the rest is not run, and the finding says so."""
    port = free_port()
    with mortal_broker(port, "dies", WORD):
        status, report = _run(port, tmp_path / "run.json", jobs=jobs)
    assert status == 1
    [incident] = report["incidents"]
    assert incident["trouble"] == "died" and CULPRIT in incident["scenarios"]
    assert "the rest was not run" in incident["after"]
    found = _statuses(report)
    assert found[CULPRIT] in ("failed", "not run") and "the broker died" in _message(report, CULPRIT)
    innocent = {one for one, status in found.items() if status == "failed"} - {CULPRIT}
    assert not innocent, "a scenario is said to fail that only met a dead broker"
    assert list(found.values()).count("not run") > 3


@pytest.mark.parametrize(
    ("fault", "trouble"),
    [("dies", "died"), ("hangs", "hangs"), ("spins", "spins"), ("shuts", "does not let")],
)
def test_a_broker_is_started_again_and_the_culprit_found(tmp_path: Path, fault: str, trouble: str) -> None:
    """With --restart the rest is run; exactly the scenario that did it is named, and fails."""
    port = free_port()
    starts = tmp_path / "starts"
    again = shlex.join(
        [sys.executable, "-m", "tests.conformance.mortal_starter", str(starts), *command(port, fault, WORD)]
    )
    try:
        first = subprocess.run(shlex.split(again), timeout=30, check=True)
        assert first.returncode == 0
        status, report = _run(port, tmp_path / "run.json", "--restart", again)
    finally:
        end_started(starts)
    assert status == 1
    proven = [one for one in report["incidents"] if one["proven"]]
    assert [one["scenarios"] for one in proven] == [[CULPRIT]], report["incidents"]
    assert trouble in proven[0]["trouble"] and proven[0]["after"] == "it was started again"
    found = _statuses(report)
    assert found[CULPRIT] == "failed" and "after it the broker" in _message(report, CULPRIT)
    assert set(found.values()) <= {"failed", "passed", "skipped"}
    assert [one for one, status in found.items() if status == "failed"] == [CULPRIT]


def end_started(starts: Path) -> None:
    """End every broker that was started, by the groups that were noted."""
    for line in starts.read_text().split() if starts.exists() else []:
        try:
            os.killpg(int(line), signal.SIGKILL)
        except ProcessLookupError:
            continue


def test_a_broker_that_spins_and_cannot_be_started_again_is_run_on(tmp_path: Path) -> None:
    """It still serves: the rest is run, and the finding says who may have done it."""
    port = free_port()
    with mortal_broker(port, "spins", WORD):
        status, report = _run(port, tmp_path / "run.json")
    assert status == 1
    [incident] = report["incidents"]
    assert incident["trouble"] == "spins" and CULPRIT in incident["scenarios"]
    assert "the rest was run all the same" in incident["after"]
    assert "not run" not in _statuses(report).values()


def test_a_slow_broker_is_cut_at_the_limit(tmp_path: Path) -> None:
    """Nothing is said to have failed that was cut: it is not run, and the status says that not all was."""
    port = free_port()
    with mortal_broker(port, "slow", "-"):
        begun = time.monotonic()
        status, report = _run(port, tmp_path / "run.json", "--time-limit", "6", "--timeout", "5", jobs=1)
        took_s = time.monotonic() - begun
    assert status == 4 and report["incidents"] == []
    assert took_s < 6 + 4, "scenarios are interrupted, not waited for"
    found = _statuses(report)
    assert "failed" not in found.values()
    cut = [one for one, status in found.items() if status == "not run"]
    assert cut and "the time limit of 6 s was reached" in _message(report, cut[-1])


def test_a_signal_ends_the_run_with_its_report(tmp_path: Path) -> None:
    """SIGTERM in the middle: the report is there, with what had been run, and says why the rest was not."""
    path, port = tmp_path / "run.json", free_port()
    with mortal_broker(port, "slow", "-"):
        arguments = ["run", f"amqp://127.0.0.1:{port}", "--jobs", "1", "--json", str(path)]
        process = subprocess.Popen(
            [sys.executable, "-m", "amqp_broker.conformance.command_line", *arguments],
            stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        assert process.stdout is not None
        try:
            while not process.stdout.readline().startswith("["):
                pass
            process.terminate()
            process.communicate(timeout=20)
        finally:
            process.kill()
            process.wait()
    assert process.returncode in (1, 4)
    report = json.loads(path.read_text())
    assert report["scenarios_counts"]["not run"] > 100
    assert "ended by SIGTERM" in _message(report, report["scenarios"][-1]["id"])


def _hangs(broker: Broker) -> None:
    """A scenario with a fault of its own: it waits for ever, for nobody."""
    threading.Event().wait()


def _waits_a_while(broker: Broker) -> None:
    threading.Event().wait(3)


def _waits_for_the_broker(broker: Broker) -> None:
    broker.session().peer.expect_nothing(within_s=60)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("body", [_hangs, _waits_for_the_broker])
def test_a_scenario_that_does_not_end_is_given_up(body: Any) -> None:
    """Its connections are taken away; if it does not notice, nobody waits for it, and the next one runs."""
    stuck = Scenario("2.2/stuck", ("2.2-01",), "Does not end.", body)
    after = Scenario("2.2/next", ("2.2-01",), "Ends.", lambda broker: None, alone=True)
    with running_broker() as server:
        settings = probed(server.url)
        survivor = Survivor(settings, 1, lambda result: None, Stop(), Subject(settings), scenario_limit_s=0.5)
        survivor.run([stuck, after])
    result = survivor.results["2.2/stuck"]
    assert (result.verdict, result.message) == (Verdict.FAILED, "it had not ended after 0.5 s")
    assert survivor.results["2.2/next"].verdict is Verdict.PASSED


def test_those_that_wait_in_silence_let_others_begin() -> None:
    """Two at a time, of which each waits for two seconds: eight of them take less than eight seconds."""
    waiting = [Scenario(f"2.2/{name}", ("2.2-01",), "Waits.", _waits_a_while) for name in "abcdefgh"]
    with running_broker() as server:
        begun = time.monotonic()
        report = run(waiting, probed(server.url), "core", 2, lambda result: None)
    assert report.count(Verdict.PASSED) == 8 and time.monotonic() - begun < 11


@pytest.mark.parametrize("alone", [True, False])
def test_what_a_clock_decides_is_run_again(alone: bool) -> None:
    """What was late beside others passes when it is in time alone, and says so; what is late again fails, and
    so does what was wrong, at once.
    """
    attempts: Counter[str] = Counter()

    def body(name: str, error: type[Exception], times: int) -> Callable[[Broker], None]:
        def attempt(broker: Broker) -> None:
            attempts[name] += 1
            if attempts[name] <= times:
                raise error("nothing came")

        return attempt

    bodies = {"once": (Late, 1), "always": (Late, 9), "wrong": (Unexpected, 1), "right": (Late, 0)}
    scenarios = [
        Scenario(f"2.2/{name}", ("2.2-01",), "Ends.", body(name, *how), alone=alone)
        for name, how in bodies.items()
    ]
    with running_broker() as server:
        report = run(scenarios, probed(server.url), "core", 4, lambda result: None)
    found = {one.scenario.id[4:]: (one.verdict, one.message) for one in report.results}
    assert found == {
        "once": (Verdict.PASSED, "late at first, with others: nothing came"),
        "always": (Verdict.FAILED, "nothing came"),
        "wrong": (Verdict.FAILED, "nothing came"),
        "right": (Verdict.PASSED, ""),
    }
    assert attempts == {"once": 2, "always": 2, "wrong": 1, "right": 1}


@pytest.mark.parametrize("attempts", [1, 2])
def test_what_was_late_is_told_when_the_time_is_over(attempts: int) -> None:
    """A run that ends before it could run it again, or while it does, says what it saw."""
    stop = Stop()
    left = iter(range(attempts - 1, -1, -1))

    def late(broker: Broker) -> None:
        if next(left) == 0:
            stop.ask("enough")
        raise Interrupted("enough") if stop() and attempts > 1 else Late("nothing came")

    one = Scenario("2.2/late", ("2.2-01",), "Ends.", late)
    with running_broker() as server:
        report = run([one], probed(server.url), "core", 4, lambda result: None, stop=stop)
    assert [(each.verdict, each.message) for each in report.results] == [(Verdict.FAILED, "nothing came")]


def test_addresses_of_scenarios_are_their_own() -> None:
    """What runs at the same time shares no node: each queue's name has the scenario's."""
    settings = Settings(Endpoint("127.0.0.1", 1, False), run_id="t")
    queues = {Broker(settings, one.id).queue(): one.id for one in select_scenarios("full")}
    assert len(queues) == len(select_scenarios("full"))


def test_a_command_that_does_not_start_it_is_ended(tmp_path: Path) -> None:
    """Its time is over: it is ended with what it has started, whether that listens to SIGTERM or not, and the
    reason names the command.
    """
    child = tmp_path / "child"
    deaf = 'trap "" TERM; exec sleep 300'
    command = f"sh -c '({deaf}) & echo $! > {child}; wait'"
    settings = Settings(Endpoint("127.0.0.1", free_port(), False))
    subject = Subject(settings, start=command, ready_s=1.0)
    assert "does not serve within 1 s" in subject.start(lambda: "")
    pid = int(child.read_text())
    assert ends_within(pid, 5.0)


def ends_within(pid: int, seconds: float) -> bool:
    """Whether a process ends; nobody may have asked for its status yet."""
    ended_by = time.monotonic() + seconds
    while time.monotonic() < ended_by:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


def test_a_command_that_fails_says_what_it_said() -> None:
    """Its status and its last words are the reason."""
    subject = Subject(Settings(Endpoint("127.0.0.1", 1, False)), start="sh -c 'echo no licence; exit 3'")
    assert subject.start(lambda: "") == "sh -c 'echo no licence; exit 3': ended with 3: no licence"


def test_a_broker_in_our_own_process_is_not_watched() -> None:
    """It is as busy as the suite itself."""
    with running_broker() as server:
        assert Program("127.0.0.1", int(server.url.rpartition(":")[2])).pid is None


def test_a_broker_whose_parent_has_not_asked_for_its_status_has_ended() -> None:
    """Whoever has started it may be the suite's own process, which waits for it only when all is over."""
    listens = "import socket, sys; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1]); "
    command = [sys.executable, "-c", f"{listens}sys.stdout.flush(); s.accept()"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        program = Program("127.0.0.1", int(process.stdout.readline()))
        assert program.pid == process.pid
        assert not program.has_ended
        process.kill()
        assert ends_within(process.pid, 5.0)
        assert Path(f"/proc/{process.pid}").exists()
        assert program.has_ended


def test_a_broker_that_is_too_slow_to_be_asked_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes before the run has a limit, too: it ends, with the reason."""
    monkeypatch.setattr("amqp_broker.conformance.broker.PROBE_LIMIT_S", 0.2)
    port = free_port()
    with (
        mortal_broker(port, "slow", "-"),
        pytest.raises(CannotConnect, match=r"its first answers took more than 0\.2 s"),
    ):
        probed(f"amqp://127.0.0.1:{port}")


def test_what_is_run_again_has_other_queues() -> None:
    """What the first attempt has left behind is not what the second one finds."""
    queues: list[str] = []
    one = Scenario(
        "2.2/twice", ("2.2-01",), "Notes.", lambda broker: queues.append(broker.queue()), alone=True
    )
    with running_broker() as server:
        settings = probed(server.url)
        survivor = Survivor(settings, 1, lambda result: None, Stop(), Subject(settings))
        survivor.run([one])
        survivor.run([one])
    assert len(queues) == len(set(queues)) == 2


class _Starving(Program):
    """One thread of it waits for a processor, which others have."""

    used_s = 3.0

    def running(self) -> dict[str, float]:
        """It looks as if it ran."""
        return {"1": self.used_s}


def test_who_waits_for_a_processor_does_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that never pauses, and gets no time, is no finding: others keep the machine busy."""
    monkeypatch.setattr("amqp_broker.conformance.subject.SPUN_WITHIN_S", 0.5)
    subject = Subject(Settings(Endpoint("127.0.0.1", 1, False)))
    subject.program = _Starving("127.0.0.1", 1)
    assert subject.spins(lambda: False).trouble is None
