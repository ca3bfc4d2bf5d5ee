"""Large bodies in files of their own: where they go, that they are durable first, and when the files go."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from amqp_broker.persistence import (
    Contents,
    Post,
    Record,
    Retain,
    Retire,
    StoreFailed,
    StoreFull,
    Unit,
    body_files,
)
from amqp_broker.persistence.body_files import BLOCK_BYTES, PREFIX, SPARES, BodyFileSizes
from amqp_broker.persistence.fault_points import FAULT_POINTS
from amqp_broker.persistence.questions import PageOf
from amqp_broker.persistence.restoring import restore
from amqp_broker.persistence.sqlite import SqliteStore, compact, remove, verify_directory
from amqp_broker.testing.store_suite.helpers import (
    do,
    do_idle_work,
    fields,
    messages,
    new_queue,
    offsets,
    read_all,
    read_all_retained,
)
from tests.persistence.stores import assert_findings, assert_whole, edit, passed_points, reopened, small_store
from tests.support.examples import examples

KIB = 1024
SIZES = BodyFileSizes(large_body=4 * KIB, commit=16 * KIB, file=256 * KIB)
LARGE = 5_000
GROUP = 10  # of so many large bodies, four commits fill a file


def files_of(directory: Path) -> list[Path]:
    """The files with bodies, in their order."""
    return sorted(directory.glob(f"{PREFIX}*"), key=lambda path: int(path.suffix[1:]))


def opened(directory: Path) -> SqliteStore:
    """A store with small files."""
    return small_store(directory, body_files=SIZES)


def places(store: SqliteStore) -> list[tuple[int, int, int, int]]:
    """File, begin and size of each segment, and the octets in its row."""
    sql = "SELECT file, at, size, length(bodies) FROM segment ORDER BY id"
    return [tuple(row) for row in store._unit.query(sql)]


def filled(store: SqliteStore, groups: int, size: int = LARGE) -> int:
    """A queue with `groups` commits of large bodies."""
    queue_id = new_queue(store)
    for number in range(groups):
        do(store, Post(queue_id, messages(number * GROUP, GROUP, size=size)))
    return queue_id


def test_large_bodies_are_in_a_file(tmp_path: Path) -> None:
    """Preallocated, for this user only; each commit begins with a block. They are read as they came."""
    store = opened(tmp_path)
    queue_id = filled(store, 3)
    before = list(map(fields, read_all(store, queue_id, page=7)))
    size = GROUP * LARGE
    step = -(-size // BLOCK_BYTES) * BLOCK_BYTES
    assert places(store) == [(1, 0, size, 0), (1, step, size, 0), (1, 2 * step, size, 0)]
    (file,) = files_of(tmp_path)
    assert (file.stat().st_size, file.stat().st_mode & 0o777) == (SIZES.file, 0o600)
    store = reopened(store)
    assert list(map(fields, read_all(store, queue_id, page=7))) == before


@pytest.mark.parametrize(
    ("count", "size", "in_file"),
    [(4, 4_096, True), (4, 4_095, False), (3, 4_096, False), (1_000, 100, False), (1, 16_384, True)],
)
def test_what_gains_nothing_stays_in_sqlite(tmp_path: Path, count: int, size: int, in_file: bool) -> None:
    """Small bodies, however many, and commits with few octets of large ones."""
    store = opened(tmp_path)
    queue_id = new_queue(store)
    do(store, Post(queue_id, messages(0, count, size=size)))
    ((number, _, _, in_row),) = places(store)
    assert (number, in_row) == ((1, 0) if in_file else (0, count * size))
    assert len(files_of(tmp_path)) == in_file


def test_no_body_is_large_where_that_is_asked_for(tmp_path: Path) -> None:
    """A size of 0 keeps all of them in SQLite."""
    store = small_store(tmp_path, body_files=BodyFileSizes(large_body=0))
    filled(store, 2)
    assert {row[0] for row in places(store)} == {0}


def test_a_commit_has_large_and_small_ones(tmp_path: Path) -> None:
    """Those of several queues share a file, one behind the other, and a commit larger than a file has one."""
    store = opened(tmp_path)
    queues = [new_queue(store, name) for name in "abc"]
    sizes = (10_000, 100, 300_000)
    do(store, *[Post(each, messages(0, 2, size=size)) for each, size in zip(queues, sizes, strict=True)])
    assert sorted(places(store)) == [(0, 0, 0, 200), (1, 0, 20_000, 0), (1, 20_000, 600_000, 0)]
    assert files_of(tmp_path)[0].stat().st_size == 620_000
    for each, size in zip(queues, sizes, strict=True):
        assert [len(record.body) for record in read_all(store, each)] == [size] * 2
    assert_whole(store)


def test_bodies_are_synced_before_their_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And so is the name of a file that is made for them."""
    store = opened(tmp_path)
    queue_id = new_queue(store)
    with passed_points([point for point in FAULT_POINTS if point.startswith(("body", "commit"))]) as passed:
        monkeypatch.setattr(os, "fdatasync", lambda descriptor: passed.append("synced"))
        do(store, Post(queue_id, messages(0, GROUP, size=LARGE)))
    assert passed == [
        "body_file.made", "body_file.before_write", "body_file.before_sync", "synced", "body_file.after_sync",
        "commit.before", "commit.after",
    ]  # fmt: skip


def test_the_name_of_a_file_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its rows are committed, once for each file."""
    store = opened(tmp_path)
    synced: list[bool] = []

    def sync(descriptor: int) -> None:
        synced.append(os.path.samestat(os.fstat(descriptor), os.stat(tmp_path)))

    monkeypatch.setattr(os, "fsync", sync)
    filled(store, 5)
    assert synced == [True, True]


@given(st.lists(st.integers(0, 9_000), min_size=1, max_size=40), st.integers(0, 1_000_000))
@examples(50)
def test_short_writes_go_on(sizes: list[int], seed: int) -> None:
    """The system may write less than it was asked to, and takes so many pieces at once."""
    chance = random.Random(seed)
    pieces = [chance.randbytes(size) for size in sizes]
    written = bytearray()

    def some(descriptor: int, buffers: Sequence[bytes], at: int) -> int:
        assert at == len(written) and len(buffers) <= 7
        data = b"".join(buffers)
        written.extend(data[: chance.choice((1, 100, 5_000, len(data)))])
        return len(written) - at

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "pwritev", some)
        patched.setattr(body_files, "_PIECES", 7)
        body_files._write_all(0, pieces, 0)
    assert bytes(written) == b"".join(pieces)


def test_a_steady_flow_uses_the_same_files_again(tmp_path: Path) -> None:
    """What was delivered makes room: few files, however much goes through, and none when it has stopped."""
    store = opened(tmp_path)
    queue_id = new_queue(store)
    most = 0
    for number in range(100):
        first = number * GROUP
        do(store, Post(queue_id, messages(first, GROUP, size=LARGE)), Retire(queue_id, 0, first - 1))
        most = max(most, len(files_of(tmp_path)))
        if store.checkpoint_due:
            store.idle(0.0)
        assert not store.checkpoint_due
    assert most <= SPARES + 2
    assert offsets(store, queue_id) == [*range(990, 1_000)]
    do(store, Retire(queue_id, 0, 1_000))
    do_idle_work(store, 0.0)
    assert len(files_of(tmp_path)) <= SPARES + 1
    assert_whole(store)
    assert files_of(tmp_path) == []


def test_a_backlog_keeps_its_files(tmp_path: Path) -> None:
    """Nothing that is wanted goes, and a restart goes on in a file of its own."""
    store = opened(tmp_path)
    queue_id = filled(store, 20)
    do_idle_work(store, 0.0)
    assert len(files_of(tmp_path)) == 5
    store = reopened(store, body_files=SIZES)
    do(store, Post(queue_id, messages(200, GROUP, size=LARGE)))
    do_idle_work(store, 0.0)
    assert places(store)[-1][:2] == (6, 0)
    assert offsets(store, queue_id) == [*range(210)]
    do(store, Retire(queue_id, 0, 159))
    do_idle_work(store, 0.0)
    assert offsets(store, queue_id) == [*range(160, 210)]
    assert_whole(store)
    assert [path.name for path in files_of(tmp_path)] == [f"{PREFIX}{number}" for number in (5, 6)]


@pytest.mark.parametrize("whole", [False, True], ids=["parts of segments", "whole segments"])
def test_what_little_is_left_goes_to_sqlite(whole: bool, tmp_path: Path) -> None:
    """One live message does not hold a file. It keeps its place, octets and changes."""
    store = opened(tmp_path)
    queue_id = filled(store, 20)
    kept = [offset for offset in range(200) if (offset < GROUP if whole else offset % 50 == 7)]
    do(store, *[Retire(queue_id, offset, offset) for offset in range(200) if offset not in kept])
    before = list(map(fields, read_all(store, queue_id)))
    do_idle_work(store, 0.0)
    do_idle_work(store, 0.0)
    assert {row[0] for row in places(store)} <= {0, 4}, "the last one is written still"
    assert list(map(fields, read_all(store, queue_id, page=3))) == before
    store = reopened(store)
    assert list(map(fields, read_all(store, queue_id))) == before


def flip(directory: Path, at: int) -> None:
    """Damage the first file."""
    file = files_of(directory)[0]
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


def misplace(change: str) -> Callable[[Path], object]:
    """Damage the place of the first segment."""
    return lambda path: edit(path, f"UPDATE segment SET {change} WHERE id=1")


ALL = [*range(GROUP)]
DAMAGES: dict[str, tuple[Callable[[Path], object], list[int], str]] = {
    "a bit": (lambda path: flip(path, 3 * LARGE + 7), [3], "the body does not match its checksum"),
    "cut": (lambda path: os.truncate(files_of(path)[0], LARGE), ALL, "cannot be read"),
    "missing": (lambda path: files_of(path)[0].unlink(), ALL, "cannot be read"),
    "a place": (misplace("at=at+4096"), ALL, "does not match"),
    "no place": (misplace("at=-1"), ALL, "cannot be read"),
    "a size": (misplace("size=1<<60"), ALL, "cannot be read"),
    "a file": (misplace("file=1<<60"), ALL, "cannot be read"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_goes_into_quarantine(damage: str, tmp_path: Path) -> None:
    """It is found by verification, never delivered, and stops nothing."""
    spoil, lost, finding = DAMAGES[damage]
    store = opened(tmp_path)
    queue_id = filled(store, 1)
    do(store, Post(queue_id, messages(GROUP, 1)))
    store.close()
    spoil(tmp_path)
    found = verify_directory(tmp_path)
    assert found and finding in found[0]
    store = opened(tmp_path)
    page = store.ask(PageOf(queue_id, 0, 99, 1 << 20))
    assert [one.offset for one in page.quarantined] == lost
    assert [record.offset for record in page.records] == [n for n in range(GROUP + 1) if n not in lost]
    do(store, Post(queue_id, messages(GROUP + 1, GROUP, size=LARGE)))
    do_idle_work(store, 0.0)
    assert len(offsets(store, queue_id)) == 2 * GROUP + 1 - len(lost)
    store.close()


def test_an_administrator_removes_one_and_keeps_its_octets(tmp_path: Path) -> None:
    """What was removed is in quarantine."""
    store = opened(tmp_path)
    queue_id = filled(store, 1)
    body = read_all(store, queue_id)[4].body
    store.close()
    remove(tmp_path, f"queue {queue_id}, offset 4")
    assert edit(tmp_path, "SELECT offset, bytes FROM quarantine") == [(4, body)]
    store = opened(tmp_path)
    assert offsets(store, queue_id) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert_whole(store)


def test_what_overlaps_is_found(tmp_path: Path) -> None:
    """Two segments with the same octets are a fault of the store."""
    store = opened(tmp_path)
    filled(store, 2)
    store.close()
    edit(tmp_path, "UPDATE segment SET at=at-4096 WHERE id=2")
    damaged = [f"offset {GROUP + number}: the body does not match" for number in range(GROUP)]
    assert_findings(tmp_path, [*damaged, "is also that of segment 1"])


def test_orphans_are_removed_at_the_start(tmp_path: Path) -> None:
    """Files that a crash has left without rows go; what is not ours stays. Numbers go on."""
    store = opened(tmp_path)
    queue_id = filled(store, 6)
    store.close()
    for name in ("17", "9", "x", "18.old"):
        (tmp_path / f"{PREFIX}{name}").write_bytes(b"bodies")
    store = opened(tmp_path)
    store.recover()
    names = {path.name.removeprefix(PREFIX) for path in tmp_path.glob(f"{PREFIX}*")}
    assert names == {"1", "2", "x", "18.old"}
    do(store, Post(queue_id, messages(60, GROUP, size=LARGE)))
    assert places(store)[-1][0] == 18
    assert_whole(store)


def _fails(error: int) -> Callable[..., int]:
    def call(*arguments: object) -> int:
        raise OSError(error, os.strerror(error))

    return call


@pytest.mark.parametrize("call", ["posix_fallocate", "pwritev"])
def test_a_full_disk_refuses_the_commit_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Nothing of it happened, and nothing is left of it; the next one finds room."""
    store = opened(tmp_path)
    queue_id = new_queue(store)
    with monkeypatch.context() as patched, pytest.raises(StoreFull):
        patched.setattr(os, call, _fails(errno.ENOSPC))
        do(store, Post(queue_id, messages(0, GROUP, size=LARGE)))
    assert call == "pwritev" or files_of(tmp_path) == []
    assert offsets(store, queue_id) == []
    errors = store.apply([[Post(queue_id, messages(0, 1))]])
    store.commit()
    assert [type(error) for error in errors] == [StoreFull], "new messages are refused once"
    do(store, Post(queue_id, messages(0, GROUP, size=LARGE)))
    assert offsets(store, queue_id) == [*range(GROUP)]
    assert_whole(store)


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_want_of_descriptors_refuses_the_commit_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """What others have open is no reason to end: nothing happened, and the next one may find a descriptor."""
    store = opened(tmp_path)
    queue_id = new_queue(store)
    with monkeypatch.context() as patched, pytest.raises(StoreFull, match="no descriptor"):
        patched.setattr(os, "open", _fails(error))
        do(store, Post(queue_id, messages(0, GROUP, size=LARGE)))
    assert offsets(store, queue_id) == [] and files_of(tmp_path) == []
    store.apply([[Post(queue_id, messages(0, 1))]])  # is refused once
    store.commit()
    do(store, Post(queue_id, messages(0, GROUP, size=LARGE)))
    assert offsets(store, queue_id) == [*range(GROUP)]
    assert_whole(store)


def test_a_full_disk_gets_the_spares(tmp_path: Path) -> None:
    """They have room that others need."""
    store = opened(tmp_path)
    queue_id = filled(store, 12)
    do(store, Retire(queue_id, 0, 99))
    do_idle_work(store, 0.0)
    assert len(files_of(tmp_path)) == 3
    store._no_room()
    assert [path.name for path in files_of(tmp_path)] == [f"{PREFIX}3"]
    assert_whole(store)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("pwritev", errno.EIO),
        ("fdatasync", errno.EIO),
        ("fdatasync", errno.ENOSPC),
        ("fsync", errno.EIO),
        ("fsync", errno.ENOSPC),
    ],
)
def test_an_error_ends_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: int
) -> None:
    """After a write that failed, or a sync in whatever way, nobody knows what the disk holds."""
    store = opened(tmp_path)
    queue_id = new_queue(store)
    with monkeypatch.context() as patched, pytest.raises(StoreFailed):
        patched.setattr(os, call, _fails(error))
        do(store, Post(queue_id, messages(0, GROUP, size=LARGE)))
    with pytest.raises(StoreFailed, match="failed before"):
        store.recover()
    store.close()
    store = opened(tmp_path)
    assert offsets(store, queue_id) == []
    assert_whole(store)


def test_a_group_that_is_abandoned_is_written_over(tmp_path: Path) -> None:
    """Its place is given to the next one."""
    store = opened(tmp_path)
    queue_id = filled(store, 1)
    store.apply([[Post(queue_id, messages(GROUP, GROUP, size=LARGE))]])
    store.abandon()
    do(store, Post(queue_id, messages(GROUP, GROUP, size=LARGE)))
    assert [row[1] for row in places(store)] == [0, 53_248]
    assert offsets(store, queue_id) == [*range(2 * GROUP)]
    assert_whole(store)


def test_shared_bodies_are_there_once(tmp_path: Path) -> None:
    """Until the last queue has let go of them."""
    store = opened(tmp_path)
    queues = [new_queue(store, f"s{number}") for number in range(50)]
    contents = Contents([Record(0, bytes([number]) * 10_000, 0, 4, 0, 7) for number in range(3)])
    units: list[Unit] = [
        [Post(each, [Record(at, one.body, 0, 4, 0, 7) for at, one in enumerate(contents.records)], contents)]
        for each in queues
    ]
    store.apply(units)
    store.commit()
    assert places(store) == [(1, 0, 30_000, 0)]
    do(store, *[Retire(each, 0, 2) for each in queues[1:]])
    store = reopened(store, body_files=SIZES)
    assert [record.body[:1] for record in read_all(store, queues[0])] == [b"\0", b"\1", b"\2"]
    do(store, Retire(queues[0], 0, 2))
    assert_whole(store)
    assert files_of(tmp_path) == []


def test_what_is_retained_is_readable_until_it_goes(tmp_path: Path) -> None:
    """A settled message of a log keeps its file, and what retention drops does not."""
    store = opened(tmp_path)
    queue_id = new_queue(store)
    do(store, Retain(queue_id, 0, 30 * LARGE))
    for number in range(30):
        first = number * GROUP
        do(store, Post(queue_id, messages(first, GROUP, size=LARGE)), Retire(queue_id, first, first + 9))
    do_idle_work(store, 0.0)
    store = reopened(store, body_files=SIZES)
    kept, missing = read_all_retained(store, queue_id)
    assert 30 <= len(kept) <= 50 and missing == []
    assert len(files_of(tmp_path)) <= 2
    assert_whole(store)


def test_a_backup_has_the_files_that_its_rows_point_to(tmp_path: Path) -> None:
    """Also those that empty while it is made, and before they are copied, and what was posted meanwhile."""
    store = opened(tmp_path / "data")
    queue_id = filled(store, 30)
    posted = 30 * GROUP
    backup = store.begin_backup(tmp_path / "copy")
    while store.backup_step():
        do(store, Retire(queue_id, 0, posted - 10 * GROUP))
        do(store, Post(queue_id, messages(posted, GROUP, size=LARGE)))
        store.idle(0.0)
        posted += GROUP
    expected = [record.body for record in read_all(store, queue_id)]
    do(store, Retire(queue_id, 0, posted))
    do(store, Post(queue_id, messages(posted, 30 * GROUP, size=LARGE)))
    do_idle_work(store, 0.0)
    manifest = backup.finish(1)
    assert any(name.startswith(PREFIX) for name in manifest.files)
    restore(tmp_path / "copy", tmp_path / "restored", None)
    assert verify_directory(tmp_path / "restored") == []
    found = opened(tmp_path / "restored")
    assert [record.body for record in read_all(found, queue_id)] == expected
    do(store, Retire(queue_id, 0, posted + 30 * GROUP))
    do_idle_work(store, 0.0)
    assert len(files_of(tmp_path / "data")) <= 3, "they may go again"
    assert_whole(store)


def test_compact_gives_their_room_back(tmp_path: Path) -> None:
    """Of a closed store, of which little is left."""
    store = small_store(tmp_path)
    queue_id = filled(store, 30, size=30_000)
    do(store, Retire(queue_id, 0, 289))
    store.close()
    before, after = compact(tmp_path)
    assert before > 8 * KIB * KIB and after < KIB * KIB
    assert files_of(tmp_path) == []
    store = small_store(tmp_path)
    assert offsets(store, queue_id) == [*range(290, 300)]
    assert_whole(store)


def test_a_copy_of_the_directory_is_a_store(tmp_path: Path) -> None:
    """As a killed process leaves it."""
    store = opened(tmp_path / "data")
    queue_id = filled(store, 7)
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    assert verify_directory(tmp_path / "copy") == []
    assert offsets(opened(tmp_path / "copy"), queue_id) == [*range(70)]
