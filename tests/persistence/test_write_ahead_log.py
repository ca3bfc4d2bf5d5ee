"""The write-ahead log at a start: damage in it is reported, a torn end is none, and the store answers
nothing from it before it is on the disk.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from amqp_broker.persistence import Post, StoreFailed, write_ahead_log
from amqp_broker.persistence.sqlite import SqliteStore, StoreCorrupt, verify_directory
from amqp_broker.persistence.sqlite_library import connect
from amqp_broker.persistence.store_file import DATABASE_NAME
from amqp_broker.persistence.write_ahead_log import LOG_SUFFIX, lost_commits
from amqp_broker.testing.store_suite.helpers import do, do_idle_work, messages, new_queue, offsets
from tests.persistence.stores import small_store
from tests.power_loss.simulation import SumsOfFrames

PAGE = 1024
FRAME = 24 + PAGE
HEADER = 32
LOG = DATABASE_NAME + LOG_SUFFIX
POSTS = 6


class Killed:
    """What a killed process has left: some commits in the log, the last one of two messages."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "killed"
        self.again = directory / "again"
        store = small_store(directory / "data", page_size_bytes=PAGE)
        self.queue_id = new_queue(store)
        for number in range(POSTS):
            do(store, Post(self.queue_id, messages(2 * number, 2, size=1_500)))
        shutil.copytree(directory / "data", self.directory)
        store.close()
        self.log = (self.directory / LOG).read_bytes()

    @property
    def frames(self) -> int:
        """The number of frames."""
        return (len(self.log) - HEADER) // FRAME

    def commits(self) -> list[int]:
        """The frames that end a commit, counted from 1."""
        sizes = [struct.unpack_from(">I", self.log, HEADER + i * FRAME + 4)[0] for i in range(self.frames)]
        return [number + 1 for number, size in enumerate(sizes) if size]

    def copy(self, log: bytes | None = None) -> Path:
        """A copy of the directory with another log."""
        shutil.rmtree(self.again, ignore_errors=True)
        shutil.copytree(self.directory, self.again)
        if log is not None:
            (self.again / LOG).write_bytes(log)
        return self.again

    def _flip(self, at: int, bits: int) -> bytes:
        return self.log[:at] + bytes([self.log[at] ^ bits]) + self.log[at + 1 :]

    def flipped(self, at: int, bits: int = 0xFF) -> Path:
        """A copy of the directory with one byte of the log changed."""
        return self.copy(self._flip(at, bits))

    def lost(self, at: int, bits: int = 0xFF) -> str | None:
        """Why a store with one byte of the log changed would not open; None: it would."""
        if not self.again.exists():
            self.copy()
        (self.again / LOG).write_bytes(self._flip(at, bits))
        return lost_commits(str(self.again / DATABASE_NAME))


@pytest.fixture(autouse=True, scope="module")
def _sums() -> Iterator[None]:
    """Thousands of logs, which are one another's but for some octets: each frame is summed once."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(write_ahead_log._Log, "summed", write_ahead_log._Log.summed)  # what is put back
        SumsOfFrames().install()
        yield


@pytest.fixture(name="killed")
def _killed(tmp_path: Path) -> Killed:
    return Killed(tmp_path)


def bytes_of_frame() -> Iterator[int]:
    """The offsets of all of a frame's header, and of some of its page."""
    yield from range(24)
    yield from range(24, FRAME, 341)
    yield FRAME - 1


def refused(directory: Path) -> str:
    """Why the store does not open. Nothing of its files was changed."""
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    with pytest.raises(StoreCorrupt) as told:
        small_store(directory)
    after = {path.name: path.read_bytes() for path in directory.iterdir()}
    assert {name for name in before | after if before.get(name) != after.get(name)} <= {"store.lock"}
    return str(told.value)


def test_what_was_killed_opens_whole(killed: Killed) -> None:
    """The files that the other tests damage are sound, with several commits of several frames."""
    ends = killed.commits()
    assert len(ends) >= POSTS and ends[-1] == killed.frames and ends[-1] - ends[-2] >= 3
    store = small_store(killed.copy())
    assert offsets(store, killed.queue_id) == list(range(2 * POSTS))


def test_a_flipped_byte_in_a_synced_commit_is_told(killed: Killed) -> None:
    """Any byte of any frame that another commit follows: it was acknowledged, so this is damage."""
    for frame in range(1, killed.commits()[-2] + 1):
        for byte in bytes_of_frame():
            words = killed.lost(HEADER + (frame - 1) * FRAME + byte) or ""
            assert f"frame {frame} of {killed.frames}" in words, (frame, byte)
    words = refused(killed.flipped(HEADER + FRAME))
    assert LOG in words and "--give-up-log" in words and "backup" in words


@pytest.mark.parametrize("bits", [1, 0x80, 0x05])
def test_a_flipped_bit_at_the_end_of_a_commit_is_told(killed: Killed, bits: int) -> None:
    """For the last frame of a commit only its sums show that another commit follows."""
    for frame in killed.commits()[:-1]:
        for byte in range(24):
            assert killed.lost(HEADER + (frame - 1) * FRAME + byte, bits), (frame, byte)


def test_the_size_of_a_commit_that_became_nothing_is_told(killed: Killed) -> None:
    """Without its size a commit looks like the beginning of the next one, which may be the last."""
    *_, end, _ = killed.commits()
    at = HEADER + (end - 1) * FRAME + 7
    refused(killed.flipped(at, killed.log[at]))


def test_a_torn_last_commit_is_no_damage(killed: Killed) -> None:
    """A commit that was not wholly synced was not acknowledged. What was acknowledged before is there."""
    last = killed.commits()[-2]
    for frame in range(last + 1, killed.frames + 1):
        for byte in bytes_of_frame():
            at = HEADER + (frame - 1) * FRAME + byte
            # Nothing torn says of itself that a commit ends in the middle of it.
            says_so = 4 <= byte < 8 and frame < killed.frames
            assert (killed.lost(at) is not None) == says_so, (frame, byte)
        store = small_store(killed.flipped(at))
        assert offsets(store, killed.queue_id) == list(range(2 * POSTS - 2)), frame
        store.close()


def test_a_log_that_was_cut_is_no_damage(killed: Killed) -> None:
    """The log may be cut anywhere in its last commit. Whole commits that are missing leave no trace."""
    for length in range(HEADER + killed.commits()[-2] * FRAME, len(killed.log), 501):
        store = small_store(killed.copy(killed.log[:length]))
        assert offsets(store, killed.queue_id) == list(range(2 * POSTS - 2))
        store.close()


def test_lost_sectors_of_the_last_commit_are_no_damage(killed: Killed) -> None:
    """A power cut may leave in any sector what stood there before, nothing, or anything."""
    begin = HEADER + killed.commits()[-2] * FRAME
    for fill in (b"\0", b"\xff", b"\x5a\x00\x00\x01"):
        for sector in range(begin // 512 + 1, len(killed.log) // 512):
            lost = (fill * 512)[:512]
            log = killed.log[: sector * 512] + lost + killed.log[sector * 512 + 512 :]
            if log == killed.log:
                continue
            store = small_store(killed.copy(log))
            assert offsets(store, killed.queue_id) == list(range(2 * POSTS - 2))
            store.close()


def test_frames_of_an_older_log_are_no_damage(tmp_path: Path) -> None:
    """After a checkpoint the log begins anew at its front. Behind its end older frames stand."""
    store = small_store(tmp_path / "data", page_size_bytes=PAGE)
    queue_id = new_queue(store)
    do(store, Post(queue_id, messages(0, 30, size=1_000)))
    do(store, Post(queue_id, messages(30, 30, size=1_000)))
    do_idle_work(store, 0.0)
    do(store, Post(queue_id, messages(60, 1)))
    do(store, Post(queue_id, messages(61, 1)))
    shutil.copytree(tmp_path / "data", tmp_path / "killed")
    store.close()
    log = (tmp_path / "killed" / LOG).read_bytes()
    assert len(log) > 20 * FRAME
    store = small_store(tmp_path / "killed")
    assert offsets(store, queue_id) == list(range(62))


def _log_over_an_older_one(directory: Path, pages: int) -> tuple[bytes, bytes, list[int]]:
    """An older log, the same file with a newer one at its front, and where the newer commits stand."""
    database = directory / DATABASE_NAME
    connection = connect(str(database))
    connection.execute(f"PRAGMA page_size = {PAGE}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE filled (number INTEGER PRIMARY KEY, content BLOB)")
    content = "randomblob(900)"  # a row fills a page
    for _ in range(pages):
        connection.execute(f"INSERT INTO filled (content) VALUES ({content})")
    log = Path(str(database) + LOG_SUFFIX)
    found = []
    for frames in (76, 66):
        connection.execute("PRAGMA wal_checkpoint(RESTART)")
        for _ in range(frames // pages):
            connection.execute(f"UPDATE filled SET content = {content}")
        found.append(log.read_bytes())
    connection.close()
    old, new = found
    ends = [HEADER + pages * FRAME * number for number in range(66 // pages + 1)]
    assert len(old) == len(new) and new[ends[-1] :] == old[ends[-1] :] != b""
    return old, new, ends


@pytest.mark.parametrize("pages", [1, 2, 3])
def test_a_commit_that_is_torn_over_an_older_log_is_no_damage(tmp_path: Path, pages: int) -> None:
    """The cut is at each sector, so that each field of a frame ends a sector once. What is behind may show
    the older log's sum, from which that log's next frame goes on.
    """
    old, new, ends = _log_over_an_older_one(tmp_path, pages)
    database = str(tmp_path / DATABASE_NAME)
    log = Path(database + LOG_SUFFIX)
    for begin, end in pairwise(ends):
        for tear in range((begin // 512 + 1) * 512, end, 512):
            for first, second in ((new, old), (old, new)):
                log.write_bytes(new[:begin] + first[begin:tear] + second[tear:end] + old[end:])
                assert lost_commits(database) is None, (begin, tear)


@pytest.mark.parametrize("pages", [2, 3])
def test_a_sector_that_was_not_written_may_show_anything(tmp_path: Path, pages: int) -> None:
    """Where a new block of the disk was meant for it: the size after a commit may seem to stand there."""
    old, new, ends = _log_over_an_older_one(tmp_path, pages)
    noise = b"\x95" * 512
    database = str(tmp_path / DATABASE_NAME)
    log = Path(database + LOG_SUFFIX)
    for begin, end in pairwise(ends):
        for sector in range(begin // 512 * 512, end, 512):
            first, last = max(sector, begin), min(sector + 512, end)
            log.write_bytes(new[:first] + noise[: last - first] + new[last:end] + old[end:])
            assert lost_commits(database) is None, (begin, sector)


def test_a_damaged_header_is_told(killed: Killed) -> None:
    """The header was synced before the first frame. SQLite would take the log for an empty one."""
    for byte in range(HEADER):
        assert "its header" in refused(killed.flipped(byte)), byte


def test_a_header_without_frames_is_no_damage(killed: Killed) -> None:
    """The header is written first, and may be torn."""
    whole = small_store(killed.copy())
    whole.close()
    for log in (killed.log[:HEADER], bytes(HEADER), bytes(5 * FRAME), b"\x37\x7f\x06\x82" + bytes(FRAME)):
        (killed.again / LOG).write_bytes(log)
        store = small_store(killed.again)
        assert offsets(store, killed.queue_id) == list(range(2 * POSTS))
        store.close()


@pytest.mark.parametrize("lose", [Path.unlink, lambda path: os.truncate(path, 0)])
def test_a_log_without_its_database_is_told(killed: Killed, lose: Callable[[Path], None]) -> None:
    """SQLite would throw the log away, and begin with an empty store."""
    lose(killed.copy() / DATABASE_NAME)
    assert "missing or empty" in refused(killed.again)


def test_verification_reports_it_and_leaves_it_there(killed: Killed) -> None:
    """Verification reports the damage, and keeps SQLite from emptying the log when it closes the file."""
    directory = killed.flipped(HEADER + 30)
    for _ in range(2):
        (finding, *_) = verify_directory(directory)
        assert LOG in finding and "frame 1 of" in finding
    refused(directory)


def test_what_a_log_of_another_program_says_is_no_matter(tmp_path: Path) -> None:
    """Sums in the other byte order are taken, too, as SQLite takes them."""
    directory = tmp_path / "data"
    small_store(directory).close()
    (directory / LOG).write_bytes(b"\x37\x7f\x06\x83" + bytes(200))
    small_store(directory).close()


# Before the first answer


def test_what_was_recovered_is_synced_before_anything_is_answered(
    killed: Killed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is written once more, synced, and copied to the database file, by syncs of SQLite's own."""
    synced: list[str] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    store = small_store(killed.copy())
    assert synced[:2] == [LOG, "again"]
    assert set(synced) >= {killed.again.parent.name}
    assert (killed.again / LOG).stat().st_size == 0
    assert offsets(store, killed.queue_id) == list(range(2 * POSTS))


def test_what_cannot_be_synced_is_not_answered_from(killed: Killed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that refuses a sync at the start is reported, and the directory is free again."""

    def fail(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        with pytest.raises(StoreFailed, match="what was recovered cannot be synced"):
            small_store(killed.copy())
    store = small_store(killed.again)
    assert offsets(store, killed.queue_id) == list(range(2 * POSTS))


def test_a_stale_index_of_the_log_is_not_believed(killed: Killed) -> None:
    """A foreign program left a `-shm` of an earlier state there, or one of nonsense."""
    stale = killed.directory / (DATABASE_NAME + "-shm")
    log = killed.directory / LOG
    log.write_bytes(killed.log[: HEADER + killed.commits()[2] * FRAME])
    connection = connect(str(killed.directory / DATABASE_NAME))
    connection.execute("SELECT count(*) FROM run").fetchall()
    index = stale.read_bytes()
    reader = connect(str(killed.directory / DATABASE_NAME))
    reader.execute("SELECT count(*) FROM run").fetchall()
    for content in (index, bytes(len(index)), os.urandom(len(index))):
        killed.copy(killed.log)
        (killed.again / stale.name).write_bytes(content)
        store: SqliteStore = small_store(killed.again)
        assert offsets(store, killed.queue_id) == list(range(2 * POSTS))
        store.close()
    connection.close()
    reader.close()
