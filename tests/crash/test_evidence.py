"""A run that complains names a folder with all that it can be judged by; a clean one leaves none."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from tests.crash import kills
from tests.crash.busy import PROGRAM, busy_processes
from tests.crash.deaths import Death
from tests.crash.evidence import (
    COMPLAINTS,
    DATA,
    DATA_BEFORE_DRAIN,
    HISTORY,
    LOG,
    RUN,
    Evidence,
    Record,
    scratch_folder,
)
from tests.crash.halves import Halves
from tests.crash.lives import Lives, run_kills
from tests.crash.messages import Messages
from tests.crash.sequences import Sequences
from tests.crash.sets import SEALED, Sets
from tests.crash.workload import LivingClient, Workload

SEED = 4_711
FACTS = {"seed": SEED}


def complains(*_: object) -> list[str]:
    """What is planted."""
    return ["planted"]


def history_in(folder: Path) -> list[dict[str, object]]:
    """What was recorded."""
    return [json.loads(line) for line in folder.joinpath(HISTORY).read_text().splitlines()]


def test_complaints_are_kept_with_the_history(tmp_path: Path) -> None:
    """The summary names the folder, the seed, and how many there are."""
    with Evidence(tmp_path, FACTS, lambda: [{"what": "sent"}, {"what": "told", "id": b"\x01"}]) as evidence:
        evidence.complaints += ["lost: one", "lost: two"]
    assert evidence.summary() == f"2 complaints, seed {SEED}; everything is in {tmp_path}"
    assert tmp_path.joinpath(COMPLAINTS).read_text() == "lost: one\nlost: two\n"
    assert history_in(tmp_path) == [{"what": "sent"}, {"what": "told", "id": "01"}]
    assert json.loads(tmp_path.joinpath(RUN).read_text()) == FACTS


def test_an_exception_is_a_complaint(tmp_path: Path) -> None:
    """What ends a run is told where the history is."""
    with pytest.raises(ZeroDivisionError) as raised, Evidence(tmp_path, FACTS, lambda: [{"what": "sent"}]):
        raise ZeroDivisionError("planted")
    assert raised.value.__notes__ == [f"the history of this run is in {tmp_path}"]
    assert "ZeroDivisionError: planted" in tmp_path.joinpath(COMPLAINTS).read_text()
    assert history_in(tmp_path) == [{"what": "sent"}]


def test_a_clean_run_leaves_nothing_of_its_own(tmp_path: Path) -> None:
    """Not even the store of before the drain."""
    tmp_path.joinpath(DATA).mkdir()
    with Evidence(tmp_path, FACTS, lambda: [{"what": "sent"}]) as evidence:
        evidence.before_the_drain()
    assert [path.name for path in tmp_path.iterdir()] == [DATA]
    assert evidence.summary() == f"0 complaints, seed {SEED}"


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"event": "connection.internal_error", "level": "error"}', "the broker logged an error: "),
        ("Traceback (most recent call last):", "the broker wrote: "),
    ],
)
def test_what_no_kill_explains_in_a_log_is_a_complaint(tmp_path: Path, line: str, complaint: str) -> None:
    """An error, and what is no log entry; a warning is neither."""
    tmp_path.joinpath(LOG).write_text('{"event": "queue.full", "level": "warning"}\n' + line + "\n")
    with Evidence(tmp_path, FACTS, list) as evidence:
        pass
    assert evidence.complaints == [complaint + line]


@pytest.mark.parametrize(
    ("kind", "end"),
    [
        (Messages, "apply.done:9"),
        (Halves, "hold.after_commit:1"),
        (Sets, SEALED),
        (Sequences, "advance.after_commit:1"),
    ],
)
def test_each_kind_of_clients_keeps_its_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Workload], end: str
) -> None:
    """What its clients did in the lives before, and what the last one took, in one format."""
    monkeypatch.setattr(kind, "check", complains)
    workload = kind(SEED)  # type: ignore[call-arg]
    complaints, line = run_kills(tmp_path, [workload], 1, SEED, points=[end])
    assert complaints == ["planted"] and str(tmp_path) in line
    found = history_in(tmp_path)
    assert len(found) == len([*workload.records()]) > 0
    assert all({"clients", "who", "what"} <= record.keys() for record in found)
    kept = {each.name for each in tmp_path.iterdir()}
    assert {DATA, DATA_BEFORE_DRAIN, LOG, RUN, COMPLAINTS, HISTORY} <= kept


def test_several_kinds_of_clients_keep_one_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each record says of which kind it is."""
    monkeypatch.setattr("tests.crash.messages.check_history", complains)
    workloads = kills.workloads_of(["transactions", "halves"], SEED)
    complaints, line = run_kills(tmp_path, workloads, 1, SEED, points=["hold.after_commit:3"])
    assert complaints == ["planted"] and str(tmp_path) in line
    assert {record["clients"] for record in history_in(tmp_path)} == {each.name for each in workloads}


class _Idle(Workload):
    """No clients, and what a test wants to be said."""

    name = "idle"

    def __init__(self, planted: list[str]) -> None:
        super().__init__()
        self.planted = planted

    def check(self, deaths: Sequence[Death], data: Path) -> list[str]:
        """What was planted."""
        return self.planted

    def records(self) -> Iterable[Record]:
        """Nothing happened."""
        return []

    def summary(self) -> str:
        """Nothing."""
        return "nothing"


@pytest.mark.parametrize("complaints", [[], ["planted"]])
def test_a_command_leaves_a_folder_only_with_complaints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], complaints: list[str]
) -> None:
    """And names it."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["kills", "--kills", "0"])
    monkeypatch.setattr(kills, "workloads_of", lambda *_: [_Idle(complaints)])
    status = kills.main()
    left = [*tmp_path.iterdir()]
    assert (status, len(left)) == ((1, 1) if complaints else (0, 0))
    said = capsys.readouterr().out
    assert all(f"everything is in {folder}" in said for folder in left)


def test_a_folder_is_kept_when_something_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception on the way is no reason to lose what led to it."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(ZeroDivisionError), scratch_folder("kills-") as folder:
        with Evidence(folder, FACTS, list):
            raise ZeroDivisionError
    assert folder.joinpath(COMPLAINTS).exists()


def test_busy_processes_end_with_what_they_are_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were started are there meanwhile, and gone afterwards."""
    started: list[subprocess.Popen[bytes]] = []

    class Noted(subprocess.Popen[bytes]):
        def __init__(self, *arguments: object, **options: object) -> None:
            super().__init__(*arguments, **options)  # type: ignore[call-overload]
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Noted)
    with busy_processes(2):
        assert [process.poll() for process in started] == [None, None]
    assert len(started) == 2 and all(process.returncode is not None for process in started)


def test_a_busy_process_ends_when_its_parent_is_another() -> None:
    """Who started it was killed: nobody else ends it."""
    subprocess.run([sys.executable, "-c", PROGRAM, "1"], check=True, timeout=100)


def test_lives_end_at_the_points_of_all_kinds(tmp_path: Path) -> None:
    """At each of them in turn, once."""
    points = Lives(tmp_path, kills.workloads_of([kills.EVERYTHING], SEED)).points
    features = ("discharge", "hold", "epoch", "advance")
    assert {SEALED, *(f"{feature}.after_commit" for feature in features)} <= {*points}
    assert len(points) == len({*points})


def test_a_death_is_told_to_those_whose_it_is(tmp_path: Path) -> None:
    """With streams beside transactions a discharge may be that of either."""
    messages, sets, streams = kills.workloads_of(["transactions", "sets", "sequences"], SEED)
    discharge, epoch = Death(1, "discharge.after_posts"), Death(2, "epoch.before_commit")
    alone, beside = Lives(tmp_path, [messages, sets]), Lives(tmp_path, [messages, sets, streams])
    alone.deaths = beside.deaths = [discharge, epoch]
    assert alone._deaths_of(messages) == [discharge] and alone._deaths_of(sets) == [epoch]
    assert beside._deaths_of(messages) == [] and beside._deaths_of(sets) == [epoch]


def test_a_client_that_ends_while_the_broker_lives_is_a_complaint() -> None:
    """Also without a problem of its own: a kill explains neither."""

    class Gone(LivingClient):
        def connect_and_drive(self) -> None:
            if self.name == "b":
                raise ZeroDivisionError("planted")

    idle = _Idle([])
    idle.run([Gone("a", 0), Gone("b", 0)])
    for client in idle.clients:
        client.join()
    idle.check_alive()
    idle.join()
    assert idle.complaints == [
        "client a lost its connection while the broker lived", "client b: ZeroDivisionError: planted"
    ]  # fmt: skip
