"""The recorder and the simulated disk, on small programs whose result is known."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.power_loss.disk import Disk, File, State, read_state, write_state
from tests.power_loss.recording import (
    Fault,
    NoCompiler,
    Outcome,
    build_library,
    read_log,
    run_recorded,
    scratch_directory,
)


@pytest.fixture(scope="module")
def library() -> Iterator[Path]:
    with scratch_directory("recorder-") as directory:
        yield build_library(Path(directory))


def _record(
    library: Path, tmp_path: Path, program: str, fault: Fault | None = None
) -> tuple[Disk, Path, list[bytes], Outcome]:
    root = tmp_path / "root"
    root.mkdir()
    log, markers = tmp_path / "log", tmp_path / "markers"
    outcome = run_recorded(
        library, ["-c", program, str(root), str(markers)], root, log=log, markers=markers, fault=fault
    )
    disk = Disk.of({})
    told = []
    for call in read_log(log):
        if call.letter == "M":
            told.append(call.data)
        disk.replay(call)
    return disk, root, told, outcome


_EVERY_CALL = """
import os, sys
root, markers = sys.argv[1:]
mark = os.open(markers, os.O_WRONLY | os.O_CREAT)
os.mkdir(root + "/inner")
a = os.open(root + "/a", os.O_RDWR | os.O_CREAT)
os.write(a, b"first"); os.write(a, b"second"); os.pwrite(a, b"#", 3)
os.lseek(a, 2, 0); os.writev(a, [b"xy", b"z"])
os.write(mark, b"one")
b = open(root + "/inner/b", "wb"); b.write(b"b" * 5000); b.flush(); os.truncate(root + "/inner/b", 4000)
os.ftruncate(b.fileno(), 6000)
c = os.open(root + "/c", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.write(c, b"12"); os.write(c, b"34"); os.posix_fallocate(c, 0, 100)
os.rename(root + "/c", root + "/d"); os.mkdir(root + "/gone"); os.rmdir(root + "/gone")
open(root + "/e", "w").write("e"); os.unlink(root + "/e")
open(root + "/inner/b", "r+b").write(b"B")
os.write(mark, b"two")
"""


def test_every_recorded_call_replays_to_the_same_directory(library: Path, tmp_path: Path) -> None:
    """Whatever the program did, replaying its log gives the directory that it left, byte for byte."""
    disk, root, told, outcome = _record(library, tmp_path, _EVERY_CALL)
    assert outcome.status == 0, outcome.errors
    assert disk.kept() == read_state(root)
    assert disk.kept()["a"] == b"fixytsecond"
    assert told == [b"one", b"two"]
    assert disk.lost() == {}, "nothing was synced"


def test_only_what_was_synced_survives_for_certain(library: Path, tmp_path: Path) -> None:
    """A file needs a sync for its bytes and one of its directory for its name; a removal needs the latter."""
    disk, _, _, outcome = _record(
        library,
        tmp_path,
        """
import os, sys
root = sys.argv[1]
for name in "abc":
    handle = os.open(f"{root}/{name}", os.O_RDWR | os.O_CREAT)
    os.write(handle, b"old")
    if name != "b": os.fsync(handle)
directory = os.open(root, os.O_RDONLY); os.fsync(directory)
os.unlink(root + "/c")
handle = os.open(root + "/d", os.O_RDWR | os.O_CREAT); os.write(handle, b"new"); os.fdatasync(handle)
os.pwrite(handle, b"NEW", 0)
""",
    )
    assert outcome.status == 0, outcome.errors
    assert disk.lost() == {"a": b"old", "b": b"", "c": b"old"}
    assert disk.kept() == {"a": b"old", "b": b"old", "d": b"NEW"}
    chance = random.Random(1)
    seen = {tuple(sorted(disk.partly(chance).items())) for _ in range(300)}
    assert {dict(state).get("d") for state in seen} >= {None, b"new", b"NEW"}
    assert {dict(state).get("c") for state in seen} == {None, b"old"}
    assert {dict(state)["a"] for state in seen} == {b"old"}


def test_a_failing_call_is_injected_and_told(library: Path, tmp_path: Path) -> None:
    """The second write fails with the errno that was asked for, half of it arrives, and the third one
    succeeds.
    """
    disk, root, _, outcome = _record(
        library,
        tmp_path,
        """
import os, sys
handle = os.open(sys.argv[1] + "/a", os.O_RDWR | os.O_CREAT)
for text in (b"1111", b"2222", b"3333"):
    try: os.write(handle, text)
    except OSError as error: print(error.errno)
""",
        Fault(at=2, kinds="w", errno=28, torn=True),
    )
    assert (outcome.output, outcome.failed_call) == ("28\n", "2 write")
    assert disk.kept() == {"a": b"11113333"} == read_state(root)


def test_after_a_failed_sync_only_what_is_written_again_counts_as_synced() -> None:
    """The system may drop what it could not write, and tells it once: a later sync that succeeds proves
    nothing about it.
    """
    file = File(b"")
    file.write(0, b"lost")
    file.sync(False)
    file.sync(True)
    assert file.durable == b""
    file.write(1, b"os")
    file.sync(True)
    assert file.durable == b"\0os"
    assert {file.partly(random.Random(seed)) for seed in range(99)} >= {b"\0os", b"lost"}
    file.write(0, b"lost")
    file.sync(True)
    assert file.durable == b"lost" and not file.pending


def test_sectors_arrive_apart_from_each_other() -> None:
    """Two sectors of one write may arrive in either order, and a missing one may hold anything."""
    seen = set()
    for seed in range(400):
        file = File(b"")
        file.write(0, b"a" * 512 + b"b" * 512)
        content = file.partly(random.Random(seed))
        seen.add((len(content), content[:512] == b"a" * 512, content[512:] == b"b" * 512))
    assert {(0, False, False), (512, True, False), (1024, True, True), (1024, False, True)} <= seen


def test_a_state_is_written_exactly(tmp_path: Path) -> None:
    """The directory holds the new state and nothing of the one before."""
    first: State = {"a": b"1", "inner": None, "inner/b": b"22"}
    second: State = {"a": b"", "c": b"3"}
    write_state(first, tmp_path)
    assert read_state(tmp_path) == first
    write_state(second, tmp_path)
    assert read_state(tmp_path) == second


def test_without_a_compiler_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Durability that cannot be proved is an error, not a skip."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(NoCompiler, match="install a C compiler"):
        build_library(tmp_path)
