"""Bodies that come piece by piece to a file of their own: stored, read, shared, damaged and gone."""

from __future__ import annotations

import errno
import os
import random
import threading
from pathlib import Path
from unittest.mock import patch
from zlib import crc32

import pytest

from amqp_broker.persistence import (
    BodyGone,
    BodyTail,
    LargeRecord,
    Move,
    Post,
    PostLarge,
    Purge,
    Record,
    Retain,
    Retire,
    Return,
    Spool,
    StoreFailed,
    StoreFull,
    TailReader,
    Unit,
    body_files,
    open_bodies,
)
from amqp_broker.persistence.body_files import BodyFileSizes
from amqp_broker.persistence.crc_combining import combined
from amqp_broker.persistence.fault_points import FAULT_POINTS
from amqp_broker.persistence.free_space import ASKED_BYTES, LOW_WATER_BYTES
from amqp_broker.persistence.open_bodies import PREFIX, UNREADABLE
from amqp_broker.persistence.questions import FoundDamaged, PageOf, RetainedPageOf
from amqp_broker.persistence.restoring import restore
from amqp_broker.persistence.salvage import salvage
from amqp_broker.persistence.sqlite import SqliteStore, verify_directory
from amqp_broker.persistence.unit_of_work import UnitOfWork
from amqp_broker.testing.store_suite.helpers import do, do_idle_work, messages, new_queue, offsets, read_all
from tests.persistence.stores import (
    assert_whole,
    backed_up,
    passed_points,
    reopened,
    small_store,
)

HEAD = b"the head"
REST = bytes(range(256)) * 1_000
PIECE = 10_000
MIB = 1024 * 1024


def spooled(
    store: SqliteStore, offset: int, head: bytes = HEAD, rest: bytes = REST
) -> tuple[LargeRecord, Spool]:
    """A message whose body came piece by piece, complete and synced, without a row."""
    spool = store.begin_spool()
    assert spool is not None
    spool.write(head)
    for at in range(0, len(rest), PIECE):
        spool.write(rest[at : at + PIECE])
    spool.finish()
    return LargeRecord(Record(offset, head, enqueued_at_ms=7), spool.tail(head)), spool


def posted(store: SqliteStore, queue_id: int, offset: int, rest: bytes = REST) -> LargeRecord:
    """One that is stored."""
    record, spool = spooled(store, offset, rest=rest)
    do(store, PostLarge(queue_id, record))
    store.end_spool(spool, stored=True)
    return record


def page(store: SqliteStore, queue_id: int, whole: bool = False) -> list[Record]:
    """The first messages of a queue; where they need not be whole, they come as they do to a queue."""
    return store.ask(PageOf(queue_id, 0, 100, 1 << 30, whole)).records


def read_tail(tail: BodyTail, why: str = "", *, damaged: bool = False) -> bytes:
    """What is read of a tail in pieces, and why no more."""
    reader = TailReader(tail)
    found = b"".join(iter(lambda: reader.read(PIECE), b""))
    assert why in reader.why and bool(why) == bool(reader.why) and reader.damaged is damaged
    return found


def files_of(store: SqliteStore) -> list[Path]:
    """The files with bodies."""
    return sorted(store.directory.glob(f"{PREFIX}*"))


def test_checksums_of_what_follows_are_combined() -> None:
    """As if all octets had passed one CRC, whatever it began with."""
    rng = random.Random(1)
    for size in (0, 1, 3, 255, 70_000):
        before, octets = rng.getrandbits(32), rng.randbytes(size)
        assert combined(before, crc32(octets), size) == crc32(octets, before)


@pytest.mark.parametrize("head", [HEAD, b""])
def test_a_spooled_body_is_stored_and_read(tmp_path: Path, head: bytes) -> None:
    """Whole for who asks so; else the head, and the rest piece by piece. Also after a start."""
    store = small_store(tmp_path)
    queue_id = new_queue(store)
    record, spool = spooled(store, 0, head)
    record.priority, record.message_format, record.expires_at_ms = 9, 5, 99
    do(store, PostLarge(queue_id, record))
    store.end_spool(spool, stored=True)
    for again in range(2):
        (whole,) = read_all(store, queue_id)
        assert (whole.body, whole.priority, whole.message_format) == (head + REST, 9, 5), again
        (large,) = page(store, queue_id)
        assert isinstance(large, LargeRecord) and (large.body, large.expires_at_ms) == (head, 99)
        assert large.enqueued_at_ms == 7 and read_tail(large.tail) == REST
        del large
        store = reopened(store)
    assert_whole(store)


def test_a_spool_that_is_the_first_of_a_start_is_stored(tmp_path: Path) -> None:
    """A store loads what it has with the first that it is asked to do: then files without a row go, and this
    one is none of those that a crash has left.
    """
    store = small_store(tmp_path)
    queue_id = new_queue(store)
    store = reopened(store)
    left_by_a_crash = store.directory / f"{PREFIX}7"
    left_by_a_crash.write_bytes(REST)
    record, spool = spooled(store, 0)
    do(store, PostLarge(queue_id, record))
    store.end_spool(spool, stored=True)
    assert (spool.number, files_of(store)) == (8, [store.directory / f"{PREFIX}8"])
    assert read_all(store, queue_id)[0].body == HEAD + REST
    assert_whole(reopened(store))


def test_a_file_goes_when_no_row_has_its_body(tmp_path: Path) -> None:
    """Also where its message was never stored, and on a steady stream without a pause."""
    store = small_store(tmp_path, body_files=BodyFileSizes(file=MIB))
    queue_id = new_queue(store)
    for number in range(40):
        posted(store, queue_id, number)
        if number:
            do(store, Retire(queue_id, number - 1, number - 1))
        if store.checkpoint_due:
            store.idle(0)
        assert len(files_of(store)) <= body_files.GONE_FILES + 2, number
    do_idle_work(store, 0)
    assert len(files_of(store)) == 1
    do(store, Retire(queue_id, 39, 39))
    do_idle_work(store, 0)
    assert files_of(store) == []
    assert_whole(store)


@pytest.mark.parametrize("beside", [0, 100])
def test_a_steady_stream_leaves_few_files(tmp_path: Path, beside: int) -> None:
    """Each message is consumed at once, there is never a pause, and no second passes: the store has a step
    when it says so, after a commit. A backlog does not stand before what can be freed.
    """
    store = small_store(tmp_path)
    queue_id = new_queue(store)
    short = bytes(1_000)
    kept = [posted(store, queue_id, number, short) for number in range(beside)]
    most = 0
    for number in range(beside, beside + 300):
        record = posted(store, queue_id, number, short)
        do(store, Retire(queue_id, number, number))
        del record
        if store.checkpoint_due:
            store.idle(0)
        most = max(most, len(files_of(store)) - beside)
    assert most <= body_files.GONE_FILES + 1
    del kept


def test_one_step_frees_what_one_commit_brings(tmp_path: Path) -> None:
    """However many large messages share commits, no more files wait than go."""
    store = small_store(tmp_path)
    queue_id = new_queue(store)
    for first in range(0, 3 * body_files.SPOOLS_MAX, body_files.SPOOLS_MAX):
        begun = [spooled(store, first + at, rest=b"short") for at in range(body_files.SPOOLS_MAX)]
        do(store, *[PostLarge(queue_id, record) for record, _ in begun])
        while begun:
            store.end_spool(begun.pop()[1], stored=True)
        do(store, Retire(queue_id, first, first + body_files.SPOOLS_MAX - 1))
        assert store.checkpoint_due
        store.idle(0)
        assert len(files_of(store)) == 0, first


def test_a_step_frees_so_much(tmp_path: Path) -> None:
    """No commit begins meanwhile; the rest goes after the next one."""
    store = small_store(tmp_path)
    queue_id = new_queue(store)
    for number in range(3):
        posted(store, queue_id, number)
    do(store, Retire(queue_id, 0, 2))
    with patch.object(body_files, "FREED_BYTES", 1):
        for left in (2, 1, 0):
            store.idle(0)
            assert len(files_of(store)) == left
            assert store.checkpoint_due == bool(left)


def test_rows_that_go_after_their_heads_leave_few_files(tmp_path: Path) -> None:
    """What nobody in memory has wanted for long, as by its time to live: a round looks at many files at once,
    also where there is never a pause.
    """
    store = small_store(tmp_path)
    queue_id = new_queue(store)
    waiting, most = 100, 0
    for number in range(400):
        posted(store, queue_id, number, b"short")
        if number >= waiting:
            do(store, Retire(queue_id, number - waiting, number - waiting))
        if store._files.filled:  # not whenever this small log of commits is full
            store.idle(0)
        most = max(most, len(files_of(store)) - waiting)
    assert most <= 2 * body_files.GONE_FILES


def test_what_comes_after_a_copy_goes_while_it_is_made(tmp_path: Path) -> None:
    """To read all of a backup again takes long; what is in it stays for it, and goes then."""
    store = small_store(tmp_path / "data")
    queue_id = new_queue(store)
    posted(store, queue_id, 0)
    backup = store.begin_backup(tmp_path / "copy")
    while store.backup_step():
        pass
    for number in range(1, 20):
        posted(store, queue_id, number)
    do(store, Retire(queue_id, 0, 19))
    do_idle_work(store, 0)
    assert len(files_of(store)) == 1
    backup.finish(1)
    do_idle_work(store, 0)
    assert files_of(store) == []


def test_what_a_crash_leaves_behind_is_removed_at_the_start(tmp_path: Path) -> None:
    """A spool without a row; what rows have stays."""
    store = small_store(tmp_path)
    queue_id = new_queue(store)
    posted(store, queue_id, 0)
    _, spool = spooled(store, 1)
    assert len(files_of(store)) == 2
    spool.close()
    store = reopened(store)
    page(store, queue_id)
    assert len(files_of(store)) == 1
    assert read_all(store, queue_id)[0].body == HEAD + REST


def test_a_spool_and_a_file_of_a_commit_never_have_one_number(tmp_path: Path) -> None:
    """One may begin between the statements of a commit and its end."""
    store = small_store(tmp_path)
    queue_id = new_queue(store)
    store.apply([[Post(queue_id, messages(0, 20, size=5_000))]])
    record, spool = spooled(store, 20)
    store.commit()
    do(store, PostLarge(queue_id, record))
    store.end_spool(spool, stored=True)
    assert offsets(store, queue_id) == [*range(21)]
    assert_whole(store)


def test_two_queues_share_a_body(tmp_path: Path) -> None:
    """One leaves in the commit in which the other comes, as a dead letter: the body stays, with other
    annotations. The file goes with the last of them.
    """
    store = small_store(tmp_path)
    first, second = new_queue(store), new_queue(store, "second")
    record = posted(store, first, 0)
    changed = Record(0, b"new head", annotations=b"new", delivery_count=3)
    copy = LargeRecord(changed, record.tail)
    do(store, Retire(first, 0, 0), PostLarge(second, copy))
    del record, copy
    for _ in range(2):
        do_idle_work(store, 0)
        assert read_all(store, first) == []
        (found,) = page(store, second)
        assert isinstance(found, LargeRecord)
        assert (found.annotations, found.delivery_count, found.body) == (b"new", 3, HEAD)
        assert read_tail(found.tail) == REST
        assert_whole(store)
        del found
        store = reopened(store)
    do(store, Retire(second, 0, 0))
    do_idle_work(store, 0)
    assert files_of(store) == []
    assert_whole(store)


def test_a_dead_letter_has_nothing_of_the_message_that_it_was_but_its_body(tmp_path: Path) -> None:
    """No time to live, and when it came: with its body in a file as with one in the row, also after a start,
    and while both are there.
    """
    store = small_store(tmp_path)
    first, second = new_queue(store), new_queue(store, "second")
    record, spool = spooled(store, 0)
    record.expires_at_ms, record.priority, record.message_format = 99, 2, 3
    do(store, PostLarge(first, record))
    store.end_spool(spool, stored=True)
    letter = Record(0, HEAD, enqueued_at_ms=1_000, priority=8, message_format=5)
    do(store, PostLarge(second, LargeRecord(letter, record.tail)))
    do(store, Post(second, [Record(1, HEAD, 5, 8, enqueued_at_ms=1_000)]))
    del record
    for _ in range(2):
        (former,) = page(store, first)
        assert (former.expires_at_ms, former.enqueued_at_ms, former.priority) == (99, 7, 2)
        large, control = page(store, second)
        assert isinstance(large, LargeRecord) and read_tail(large.tail) == REST
        for each in (large, control):
            assert (each.expires_at_ms, each.enqueued_at_ms) == (0, 1_000)
            assert (each.priority, each.message_format) == (8, 5)
        assert_whole(store)
        store = reopened(store)


def test_a_file_stays_as_long_as_a_message_in_memory_has_its_body(tmp_path: Path) -> None:
    """Its queue may have gone: a dead letter that waits for its own queue finds the body, and keeps it."""
    store = small_store(tmp_path)
    first, second = new_queue(store), new_queue(store, "second")
    record = posted(store, first, 0)
    do(store, Purge(first))
    do_idle_work(store, 0)
    do(store, PostLarge(second, LargeRecord(Record(0, HEAD), record.tail)))
    del record
    do_idle_work(store, 0)
    store = reopened(store)
    (found,) = page(store, second)
    assert isinstance(found, LargeRecord) and read_tail(found.tail) == REST
    do(store, Purge(second))
    do_idle_work(store, 0)
    assert len(files_of(store)) == 1
    del found
    do_idle_work(store, 0)
    assert files_of(store) == []


def test_no_row_points_to_a_body_that_is_gone(tmp_path: Path) -> None:
    """The store refuses that unit, and does the others."""
    store = small_store(tmp_path)
    queue_id = new_queue(store)
    record = posted(store, queue_id, 0)
    tail = BodyTail(store._files.opened.file(77), HEAD, len(HEAD), len(REST), record.tail.crc)
    lost = LargeRecord(Record(1, HEAD), tail)
    errors = store.apply([[Retire(queue_id, 0, 0), PostLarge(queue_id, lost)], [Return(queue_id, 0, 3)]])
    store.commit()
    assert isinstance(errors[0], BodyGone) and "store.bodies.77" in str(errors[0])
    assert errors[1] is None
    (found,) = page(store, queue_id)
    assert (found.offset, found.delivery_count) == (0, 3)
    assert_whole(store)


def test_one_that_moves_in_the_group_that_brings_it(tmp_path: Path) -> None:
    """As others do."""
    store = small_store(tmp_path)
    first, second = new_queue(store), new_queue(store, "second")
    record, spool = spooled(store, 0)
    assert store.apply([[PostLarge(first, record)], [Move(first, second, 0, 5)]]) == [None, None]
    store.commit()
    store.end_spool(spool, stored=True)
    (found,) = page(reopened(store), second)
    assert isinstance(found, LargeRecord) and read_tail(found.tail) == REST


def test_one_that_is_archived_by_the_unit_that_brings_it(tmp_path: Path) -> None:
    """As a log's: it is read by offset, after a start, too."""
    store = small_store(tmp_path)
    queue_id = new_queue(store)
    do(store, Retain(queue_id, 1_000_000_000_000, 0))
    record, spool = spooled(store, 0)
    do(store, PostLarge(queue_id, record), Retire(queue_id, 0, 0))
    store.end_spool(spool, stored=True)
    del record
    for _ in range(2):
        do_idle_work(store, 0)
        assert read_all(store, queue_id) == []
        (found,) = store.ask(RetainedPageOf(queue_id, 0, 10, 1 << 30)).records
        assert found.body == HEAD + REST
        assert_whole(store)
        store = reopened(store)


def test_a_want_of_descriptors_is_no_damage(tmp_path: Path) -> None:
    """Only what says something of the file is: not to be there, shorter, or unreadable."""
    store = small_store(tmp_path)
    record = posted(store, new_queue(store), 0)
    wanting = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES, errno.EINTR)
    for number in (*wanting, *UNREADABLE):
        store._files.opened.close()
        with patch.object(os, "open", side_effect=OSError(number, "as if")):
            reader = TailReader(record.tail)
            assert reader.read(PIECE) == b"" and reader.why
            assert reader.damaged == (number in UNREADABLE), number
    assert read_tail(record.tail) == REST


def test_a_commit_needs_no_descriptor_for_one_that_was_taken(tmp_path: Path) -> None:
    """Else many connections would end the store."""
    store = small_store(tmp_path)
    queue_id = new_queue(store)
    record, spool = spooled(store, 0)
    with patch.object(os, "open", side_effect=OSError(errno.EMFILE, "too many")):
        assert store.apply([[PostLarge(queue_id, record)]]) == [None]
        store.commit()
    store.end_spool(spool, stored=True)
    assert read_all(reopened(store), queue_id)[0].body == HEAD + REST


def test_half_read_bodies_hold_few_descriptors(tmp_path: Path) -> None:
    """The bound is OPEN_BODIES_MAX, however many are read at once; a file whose room is given back is not
    open any more.
    """
    store = small_store(tmp_path)
    queue_id = new_queue(store)
    with patch.object(open_bodies, "OPEN_BODIES_MAX", 3):
        readers = [TailReader(posted(store, queue_id, number).tail) for number in range(10)]
        found = [b""] * 10
        for _ in range(0, len(REST), PIECE):
            for number, reader in enumerate(readers):
                found[number] += reader.read(PIECE)
            assert len(store._files.opened._open) <= 3
        assert found == [REST] * 10
    del readers, reader
    do(store, Purge(queue_id))
    do_idle_work(store, 0)
    assert files_of(store) == [] and not store._files.opened._open


def test_a_start_looks_at_each_file_a_few_times(tmp_path: Path) -> None:
    """However many there are: there is one for each large message."""
    compared = 0

    class Counted(int):
        __hash__ = int.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return int(self) == other

    store = small_store(tmp_path)
    for number in range(1, 400):
        (tmp_path / f"{PREFIX}{number}").touch()
    with patch.object(UnitOfWork, "query", return_value=[(Counted(n),) for n in range(1, 400)]):
        store._files.recover()
    assert compared < 10 * 400


def test_a_damaged_change_keeps_the_body_as_evidence(tmp_path: Path) -> None:
    """The message goes into quarantine with its segment and its file, and with all its octets."""
    store = small_store(tmp_path)
    queue_id = new_queue(store)
    posted(store, queue_id, 0)
    do(store, Return(queue_id, 0, 2, b"notes"))
    store._unit.begin()
    store._unit.execute("UPDATE changed SET delivery_count=7")
    store._unit.commit()
    found = store.ask(PageOf(queue_id, 0, 10, 1 << 20, False))
    assert found.records == [] and found.lost_bytes == len(HEAD + REST)
    do_idle_work(store, 0)
    (segment,) = store._unit.query("SELECT segment_id FROM quarantine")
    assert store._unit.query("SELECT id FROM segment") == [segment]
    assert len(files_of(store)) == 1


def test_a_full_page_reads_no_body(tmp_path: Path) -> None:
    """What does not fit comes with the next page, as a head."""
    store = small_store(tmp_path)
    queue_id = new_queue(store)
    do(store, Post(queue_id, messages(0, 1, size=1_000)))
    posted(store, queue_id, 1)
    first = store.ask(PageOf(queue_id, 0, 10, 1_003, False))
    assert [record.offset for record in first.records] == [0] and first.next_offset == 1
    assert store._reader._segment_bytes == 0
    second = store.ask(PageOf(queue_id, first.next_offset, 10, 1_003, False))
    assert [type(record) for record in second.records] == [LargeRecord]


def test_spools_stop_above_the_low_water_mark(tmp_path: Path) -> None:
    """All of them together; the octets of one that will be none are given back at once, also where a backup
    follows the store's files.
    """
    room = [LOW_WATER_BYTES + 6 * ASKED_BYTES]
    store = small_store(tmp_path, free_bytes=lambda: room[0])
    begun = [store.begin_spool() for _ in range(4)]
    with pytest.raises(OSError) as raised:
        while True:
            for spool in begun:
                assert spool is not None
                spool.write(bytes(ASKED_BYTES // 2))
                room[0] -= ASKED_BYTES // 2
    assert raised.value.errno == errno.ENOSPC
    assert LOW_WATER_BYTES <= room[0] <= LOW_WATER_BYTES + 2 * ASKED_BYTES
    assert store.begin_spool(room[0] - LOW_WATER_BYTES + 1) is None
    store._files.keep_for(store)
    for spool in begun:
        assert spool is not None
        store.end_spool(spool, stored=False)
    assert files_of(store) == []


def test_what_is_promised_to_those_that_began_is_no_room_for_others(tmp_path: Path) -> None:
    """Else all of them would come to the low-water mark, and none to its end."""
    store = small_store(tmp_path, free_bytes=lambda: LOW_WATER_BYTES + 5 * MIB)
    first = store.begin_spool(3 * MIB)
    assert first is not None and store.begin_spool(3 * MIB) is None
    first.write(bytes(MIB))
    second = store.begin_spool(3 * MIB)
    assert second is not None and store.begin_spool(1) is None
    second.finish()
    third = store.begin_spool(3 * MIB)
    assert third is not None
    for spool in (first, second, third):
        store.end_spool(spool, stored=False)


def test_groups_ask_for_room_where_spools_take_it(tmp_path: Path) -> None:
    """Where there is plenty groups do not ask each time: other groups could not take it all."""
    room = [1 << 40]
    store = small_store(tmp_path, free_bytes=lambda: room[0])
    queue_id = new_queue(store)
    spool = store.begin_spool()
    assert spool is not None
    do(store, Post(queue_id, messages(0, 1)))
    room[0] = 0
    with pytest.raises(OSError):
        spool.write(bytes(2 * ASKED_BYTES))
    (error,) = store.apply([[Post(queue_id, messages(1, 1))]])
    assert isinstance(error, StoreFull)
    store.abandon()
    store.end_spool(spool, stored=False)


def test_so_many_are_written_at_once(tmp_path: Path) -> None:
    """Each has a descriptor; more wait in memory."""
    store = small_store(tmp_path)
    with patch.object(body_files, "SPOOLS_MAX", 2):
        first, second = store.begin_spool(), store.begin_spool()
        assert first is not None and second is not None and store.begin_spool() is None
        store.end_spool(first, stored=False)
        third = store.begin_spool()
        assert third is not None
    store.end_spool(second, stored=False)
    store.end_spool(third, stored=False)
    assert files_of(store) == []


@pytest.mark.parametrize(
    ("failing", "number"), [("fdatasync", errno.EIO), ("fsync", errno.EIO), ("fsync", errno.ENOSPC)]
)
def test_what_may_be_lost_ends_the_store(tmp_path: Path, failing: str, number: int) -> None:
    """The system tells an error once, and what a commit has synced since may not be durable: also the name of
    the file, for which there may be no room.
    """
    store = small_store(tmp_path)
    queue_id = new_queue(store)
    record, spool = spooled(store, 0)
    store.apply([[PostLarge(queue_id, record)]])
    with patch.object(os, failing, side_effect=OSError(number, "broken")):
        with pytest.raises(StoreFailed):
            store.commit()
    with pytest.raises(StoreFailed):
        store.apply([[]])
    store.end_spool(spool, stored=False)


def test_a_disk_that_is_full_at_the_sync_refuses_it_each_time(tmp_path: Path) -> None:
    """The second sync of it would say that all is well; others are stored."""
    store = small_store(tmp_path)
    queue_id = new_queue(store)
    record, spool = spooled(store, 0)

    def applied(verb: Post | PostLarge) -> None:
        while store.apply([[verb]]) != [None]:
            store.abandon()  # it refuses once for the end of the disk

    for error in (OSError(errno.ENOSPC, "full"), None):
        applied(PostLarge(queue_id, record))
        with patch.object(os, "fdatasync", side_effect=error), pytest.raises(StoreFull):
            store.commit()
    store.end_spool(spool, stored=False)
    applied(Post(queue_id, messages(0, 1)))
    store.commit()
    assert offsets(store, queue_id) == [0] and files_of(store) == []


def test_a_sync_beside_one_that_fails_fails_too(tmp_path: Path) -> None:
    """The system tells an error of an open file once: to a connection that waits for the disk, say, while the
    commit syncs the same file. Nothing is accepted then.
    """
    store = small_store(tmp_path)
    queue_id = new_queue(store)
    record, spool = spooled(store, 0)
    begun, passed = threading.Event(), threading.Event()
    told: list[int | None] = []

    def told_once(descriptor: int) -> None:
        if begun.is_set():
            passed.set()
            return
        begun.set()
        passed.wait(0.2)  # the other one passes meanwhile, or not before this one is told
        raise OSError(errno.EIO, "broken")

    def sync() -> None:
        try:
            spool.sync()
        except OSError as error:
            told.append(error.errno)

    assert store.apply([[PostLarge(queue_id, record)]]) == [None]
    with patch.object(os, "fdatasync", told_once):
        connection = threading.Thread(target=sync)
        connection.start()
        assert begun.wait(10)
        with pytest.raises(StoreFailed, match="broken"):
            store.commit()
        connection.join()
    assert told == [errno.EIO]


def test_what_a_commit_has_stored_is_not_synced_by_the_next_one(tmp_path: Path) -> None:
    """Its dead letter may come while a connection waits for the disk still: when that is over, the file is
    closed under the commit.
    """
    store = small_store(tmp_path)
    first, second = new_queue(store), new_queue(store, "second")
    record, spool = spooled(store, 0)
    do(store, PostLarge(first, record))
    letter = LargeRecord(Record(0, HEAD, enqueued_at_ms=7), record.tail)
    assert store.apply([[Retire(first, 0, 0), PostLarge(second, letter)]]) == [None]
    store.end_spool(spool, stored=True)
    store.commit()
    (found,) = page(reopened(store), second)
    assert isinstance(found, LargeRecord) and read_tail(found.tail) == REST


def test_a_returned_one_keeps_its_body(tmp_path: Path) -> None:
    """What was changed is beside it."""
    store = small_store(tmp_path)
    queue_id = new_queue(store)
    posted(store, queue_id, 0)
    do(store, Return(queue_id, 0, 2, b"notes"))
    (found,) = page(reopened(store), queue_id)
    assert (found.delivery_count, found.annotations, found.body) == (2, b"notes", HEAD)


@pytest.mark.parametrize("at", [len(HEAD), len(HEAD) + 5, len(HEAD + REST) - 1])
def test_damage_shows_before_the_last_octet_was_read(tmp_path: Path, at: int) -> None:
    """A flipped bit anywhere in the rest. Who found it has it put away, once."""
    store = small_store(tmp_path)
    queue_id = new_queue(store)
    posted(store, queue_id, 0)
    posted(store, queue_id, 1)
    path = files_of(store)[0]
    octets = bytearray(path.read_bytes())
    octets[at] ^= 4
    path.write_bytes(octets)
    large = page(store, queue_id)[0]
    assert isinstance(large, LargeRecord)
    reader = TailReader(large.tail)
    read = 0
    while piece := reader.read(PIECE):
        read += len(piece)
    assert read < len(REST) and "does not match its checksum" in reader.why and reader.damaged
    read_tail(large.tail, "does not match its checksum", damaged=True)
    found = store.ask(FoundDamaged(queue_id, 0, reader.why))
    assert [lost.offset for lost in found.quarantined] == [0] and found.lost_bytes == len(HEAD + REST)
    assert store.ask(FoundDamaged(queue_id, 0, reader.why)).quarantined == []
    assert offsets(store, queue_id) == [1]
    assert path.exists()  # as evidence
    assert_whole(store)


def test_a_body_that_is_read_whole_goes_to_quarantine_as_any_other(tmp_path: Path) -> None:
    """Also where the copy of its head is damaged: that alone harms nobody."""
    store = small_store(tmp_path)
    queue_id = new_queue(store)
    posted(store, queue_id, 0)
    store._unit.begin()
    store._unit.execute("UPDATE segment SET bodies=x'0102030405'")
    store._unit.commit()
    (found,) = page(store, queue_id)
    assert not isinstance(found, LargeRecord) and found.body == HEAD + REST
    files_of(store)[0].unlink()
    assert page(store, queue_id) == []
    assert store._unit.query("SELECT count(*) FROM quarantine") == [(1,)]


def test_a_file_that_went_is_told_by_its_reader(tmp_path: Path) -> None:
    """By somebody who had no business there."""
    store = small_store(tmp_path)
    record = posted(store, new_queue(store), 0)
    files_of(store)[0].unlink()
    read_tail(record.tail, "No such file", damaged=True)


def test_a_file_that_might_be_written_again_is_made_larger(tmp_path: Path) -> None:
    """A spool is never a spare: whoever still reads it would read other bodies."""
    store = small_store(tmp_path)
    queue_id = new_queue(store)
    size = store._files.sizes.file
    record = posted(store, queue_id, 0, rest=bytes(size - len(HEAD)))
    assert files_of(store)[0].stat().st_size > size
    assert record.tail.whole_size == size
    del record
    do(store, Retire(queue_id, 0, 0))
    do_idle_work(store, 0)
    assert files_of(store) == [] and store._files._spares == []


def test_backup_restore_and_salvage_have_it(tmp_path: Path) -> None:
    """A spool under way is no part of what rows want, and disturbs nobody."""
    store = small_store(tmp_path / "store")
    queue_id = new_queue(store)
    posted(store, queue_id, 0)
    _, spool = spooled(store, 1)

    def end() -> None:
        store.end_spool(spool, stored=False)

    backed_up(store, tmp_path / "backup", end)
    assert len([*(tmp_path / "backup").glob(f"{PREFIX}*")]) == 1
    do(store, Retire(queue_id, 0, 0))
    do_idle_work(store, 0)
    restore(tmp_path / "backup", tmp_path / "restored", None)
    again = small_store(tmp_path / "restored")
    assert read_all(again, queue_id)[0].body == HEAD + REST
    assert_whole(again)
    salvage(tmp_path / "restored", tmp_path / "salvaged", "another")
    assert verify_directory(tmp_path / "salvaged") == []
    (found,) = page(small_store(tmp_path / "salvaged"), queue_id)
    assert isinstance(found, LargeRecord) and read_tail(found.tail) == REST


def test_a_full_disk_gives_no_spool(tmp_path: Path) -> None:
    """Its message is taken as others are, and refused as they are."""
    room = [1 << 40]
    store = small_store(tmp_path, free_bytes=lambda: room[0])
    room[0] = 0
    assert store.begin_spool() is None


def test_a_spool_of_a_failed_store_stays(tmp_path: Path) -> None:
    """Nobody knows whether a row has it: the next start does."""
    store = small_store(tmp_path)
    record, spool = spooled(store, 0)
    store._unit.give_up(StoreFailed("as if"))
    store.end_spool(spool, stored=False)
    assert not store._files._full and os.path.exists(files_of(store)[0])


@pytest.mark.interpreted  # it patches a method that is compiled
def test_bodies_are_synced_with_their_names_before_their_rows(tmp_path: Path) -> None:
    """All of each, and the directory once for all of a commit; what was synced before has its name synced."""
    store = small_store(tmp_path)
    queue_id = new_queue(store)
    done: list[str] = []

    def sync(descriptor: int) -> None:
        done.append(f"{os.fstat(descriptor).st_size} octets")

    def sync_names(descriptor: int) -> None:
        assert os.path.samestat(os.fstat(descriptor), os.stat(tmp_path))
        done.append("the names")

    first, one = spooled(store, 0)
    one.sync()
    second, other = spooled(store, 1, b"", b"short")
    units: list[Unit] = [[PostLarge(queue_id, first)], [PostLarge(queue_id, second)]]
    with (
        patch.object(os, "fdatasync", side_effect=sync),
        patch.object(os, "fsync", side_effect=sync_names),
        patch.object(UnitOfWork, "commit", autospec=True, side_effect=lambda unit: done.append("the rows")),
    ):
        assert store.apply(units) == [None, None]
        store.commit()
    assert done == [f"{len(HEAD + REST)} octets", "5 octets", "the names", "the rows"]
    assert not one.unsynced and not other.unsynced


def test_points_of_a_spool_are_passed(tmp_path: Path) -> None:
    """Each of them, by what the crash tests do."""
    wanted = [point for point in FAULT_POINTS if point.startswith("spool.")]
    store = small_store(tmp_path)
    with passed_points(wanted) as passed:
        posted(store, new_queue(store), 0)
    assert sorted(passed) == sorted(wanted)
