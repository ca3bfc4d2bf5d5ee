"""An administrator removes what is damaged, and only that. A damaged log of commits is given up on demand."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from amqp_broker.persistence import Post, Retain, Retire
from amqp_broker.persistence.questions import HalfBodyOf, RetainedPageOf
from amqp_broker.persistence.sqlite import (
    NothingToRemove,
    SqliteStore,
    StoreCorrupt,
    StoreInUse,
    give_up_log,
    node_names,
    remove,
    verify_directory,
)
from amqp_broker.persistence.sqlite_library import connect
from amqp_broker.persistence.store_file import DATABASE_NAME
from amqp_broker.testing.store_suite.halves import GROUP, body, half_id, hold, stored
from amqp_broker.testing.store_suite.helpers import do, do_idle_work, messages, new_queue, offsets
from tests.persistence.stores import edit, small_store
from tests.persistence.test_write_ahead_log import FRAME, HEADER, POSTS, Killed

NAME = "a/b"


def fill(directory: Path) -> int:
    """A queue with a run of ten messages and two runs of one, and half messages 1 to 3."""
    store = small_store(directory)
    queue_id = new_queue(store, NAME)
    do(store, Post(queue_id, messages(0, 10, size=3_000)))
    do(store, Post(queue_id, messages(10, 1, size=3_000)), Post(queue_id, messages(11, 1)))
    do(store, hold(0), hold(1), hold(2))
    store.close()
    return queue_id


def subjects(directory: Path) -> list[str]:
    """What the findings are about, in the words that `remove` takes."""
    subject = re.compile(r"[^:]*?(?=[:,]? (?:the|cannot|segment)|:)")
    return [found[0] for one in verify_directory(directory) if (found := subject.match(one)) is not None]


def whole_without(directory: Path, gone: list[int], halves: list[int]) -> None:
    """The file verifies, the other messages are delivered, and more can be posted."""
    assert verify_directory(directory) == []
    store = small_store(directory)
    (queue_id,) = (node.queue_id for node in store.recover().nodes)
    assert offsets(store, queue_id) == [offset for offset in range(12) if offset not in gone]
    assert [number for number in range(3) if stored(store, number)] == halves
    for number in halves:
        assert store.ask(HalfBodyOf(GROUP, half_id(number))) == body(number)
    do(store, Post(queue_id, messages(12, 1)))
    assert offsets(store, queue_id)[-1] == 12
    store.close()


def test_one_message_with_a_damaged_body_is_removed(tmp_path: Path) -> None:
    """It is removed by queue and offset. Its neighbours stay, and its bytes are kept for inspection."""
    queue_id = fill(tmp_path)
    damaged = "CAST(substr(bodies, 1, 9500) || x'00' || substr(bodies, 9502) AS BLOB)"
    edit(tmp_path, f"UPDATE segment SET bodies={damaged} WHERE id=1")
    assert subjects(tmp_path) == [f"queue {queue_id}, offset 3"]
    answer = remove(tmp_path, f"queue {queue_id} ({NAME}), offset 3")
    assert answer == f"queue {queue_id} ({NAME}): offsets 3 to 3"
    ((offset, kept),) = edit(tmp_path, "SELECT offset, length(bytes) FROM quarantine")
    assert (offset, kept) == (3, 3_000)
    whole_without(tmp_path, [3], [0, 1, 2])


def test_any_message_is_removed_by_the_name_of_its_queue(tmp_path: Path) -> None:
    """A queue's name may have slashes: the offset stands behind the last one."""
    fill(tmp_path)
    remove(tmp_path, f"{NAME}/10")
    remove(tmp_path, f"{NAME}/0")
    whole_without(tmp_path, [0, 10], [0, 1, 2])


def test_a_damaged_row_of_the_index_is_removed(tmp_path: Path) -> None:
    """The messages that it led to go with it. The segment is kept for inspection."""
    queue_id = fill(tmp_path)
    edit(tmp_path, "UPDATE run SET live_count=5 WHERE first_offset=0")
    assert f"queue {queue_id}, run 0" in subjects(tmp_path)
    remove(tmp_path, f"queue {queue_id}, run 0")
    assert all("no run points to it" in one for one in verify_directory(tmp_path))
    edit(tmp_path, "DELETE FROM segment WHERE id NOT IN (SELECT segment_id FROM run)")
    whole_without(tmp_path, list(range(10)), [0, 1, 2])


def test_a_run_whose_page_cannot_be_read_is_removed(tmp_path: Path) -> None:
    """A run with a broken overflow page goes as a whole, and the others are delivered."""
    queue_id = fill(tmp_path)
    ((page_size,),) = edit(tmp_path, "PRAGMA page_size")
    path = tmp_path / DATABASE_NAME
    data = bytearray(path.read_bytes())
    at = data.index(b"2:")  # in the first overflow page, whose first four bytes tell the next one
    page = at // page_size * page_size
    data[page : page + 4] = b"\x7f\xff\xff\xff"
    path.write_bytes(data)
    assert f"queue {queue_id}, run 0" in subjects(tmp_path)
    assert remove(tmp_path, f"queue {queue_id}, run 0").endswith("offsets 0 to 9")
    store = small_store(tmp_path)
    assert offsets(store, queue_id) == [10, 11]
    store.close()
    assert not any(one.startswith("queue") for one in verify_directory(tmp_path))


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE half SET state='prepareD' WHERE id=2",
        "UPDATE half SET group_name='other' WHERE id=2",
        "UPDATE half_body SET body=x'00' WHERE id=2",
        "DELETE FROM half_body WHERE id=2",
        "DELETE FROM half WHERE id=2",
    ],
)
def test_a_half_message_is_removed(sql: str, tmp_path: Path) -> None:
    """A half message is removed whatever of it is damaged or lost."""
    fill(tmp_path)
    edit(tmp_path, sql)
    assert set(subjects(tmp_path)) == {"half message 2"}
    remove(tmp_path, "half message 2")
    whole_without(tmp_path, [], [0, 2])
    assert len(edit(tmp_path, "SELECT * FROM quarantine WHERE reason LIKE 'half message%'")) == 1


def test_a_half_message_whose_row_lies_about_its_name_is_removed(tmp_path: Path) -> None:
    """The index by name still has the old name, as after a flipped byte of the page."""
    fill(tmp_path)
    path = tmp_path / DATABASE_NAME
    ((root,),) = edit(tmp_path, "SELECT rootpage FROM sqlite_schema WHERE name='half'")
    ((page_size,),) = edit(tmp_path, "PRAGMA page_size")
    data = bytearray(path.read_bytes())
    at = data.index(half_id(1), (root - 1) * page_size)
    assert at < root * page_size
    data[at] ^= 0xFF
    path.write_bytes(data)
    assert any("half message 2" in one for one in verify_directory(tmp_path))
    remove(tmp_path, "half message 2")
    whole_without(tmp_path, [], [0, 2])


def test_a_node_is_removed_with_its_messages(tmp_path: Path) -> None:
    """A damaged row is removed, or a sound one that nobody wants. The next start sweeps its messages."""
    queue_id = fill(tmp_path)
    edit(tmp_path, "UPDATE node SET settings='x', kind=5")
    assert subjects(tmp_path)[0].startswith(f"node {queue_id}")
    assert f"node {queue_id}" in remove(tmp_path, f"node {queue_id}")
    assert verify_directory(tmp_path) == []
    store = small_store(tmp_path)
    assert store.recover().nodes == []
    do_idle_work(store, 0.0)
    assert edit_open(store, "SELECT count(*) FROM run") == edit_open(store, "SELECT count(*) FROM node") == 0
    assert new_queue(store, NAME) == queue_id + 1


def edit_open(store: SqliteStore, sql: str) -> object:
    """Ask an open store for a number with a statement."""
    return store._unit.query(sql)[0][0]


@pytest.mark.parametrize(
    "what",
    ["", "queue", "queue 1, offset 12", "queue 9, offset 0", "a/b/12", "c/1", "half message 9", "node 7"],
)
def test_what_is_not_there_is_not_removed(what: str, tmp_path: Path) -> None:
    """The answer says what was not found."""
    fill(tmp_path)
    with pytest.raises(NothingToRemove, match="what a finding begins with|there is no|has nothing at"):
        remove(tmp_path, what)
    whole_without(tmp_path, [], [0, 1, 2])


def test_nothing_is_removed_from_a_store_in_use(tmp_path: Path) -> None:
    """The broker that uses the store would not know."""
    fill(tmp_path)
    store = small_store(tmp_path)
    changes: list[Callable[[], object]] = [
        lambda: remove(tmp_path, f"{NAME}/0"),
        lambda: give_up_log(tmp_path),
    ]
    for change in changes:
        with pytest.raises(StoreInUse):
            change()
    store.close()
    whole_without(tmp_path, [], [0, 1, 2])


def test_a_table_that_cannot_be_read_is_a_finding_among_others(tmp_path: Path) -> None:
    """With one flipped byte of a page all other tables are verified nevertheless."""
    queue_id = fill(tmp_path)
    edit(tmp_path, "UPDATE segment SET bodies=x'00' WHERE id=2")
    ((root,),) = edit(tmp_path, "SELECT rootpage FROM sqlite_schema WHERE name='half'")
    ((page_size,),) = edit(tmp_path, "PRAGMA page_size")
    path = tmp_path / DATABASE_NAME
    data = bytearray(path.read_bytes())
    data[(root - 1) * page_size] = 0xFF
    path.write_bytes(data)
    found = verify_directory(tmp_path)
    assert any(one.startswith("half: the table cannot be read") for one in found)
    assert any(one.startswith(f"queue {queue_id}, offset 10: the body") for one in found)
    assert node_names(tmp_path) == {queue_id: NAME}


# The log


def test_a_damaged_log_is_given_up_deliberately(tmp_path: Path) -> None:
    """What stands before the damage is there, the store opens, and the log is kept beside it."""
    killed = Killed(tmp_path)
    ends = killed.commits()
    directory = killed.flipped(HEADER + ends[-3] * FRAME + 30)
    log = (directory / (DATABASE_NAME + "-wal")).read_bytes()
    answer = give_up_log(directory)
    assert answer is not None and "kept as store.sqlite3-wal.damaged-1" in answer
    assert (directory / "store.sqlite3-wal.damaged-1").read_bytes() == log
    assert verify_directory(directory) == []
    store = small_store(directory)
    assert offsets(store, killed.queue_id) == list(range(2 * POSTS - 4))
    do(store, Post(killed.queue_id, messages(2 * POSTS - 4, 1)))


@pytest.mark.parametrize("byte", [0, 12, 17, 30])
def test_a_log_with_a_damaged_header_is_given_up(tmp_path: Path, byte: int) -> None:
    """Nothing of such a log can be believed. What an earlier checkpoint has copied is there."""
    killed = Killed(tmp_path)
    directory = killed.flipped(byte)
    with pytest.raises(StoreCorrupt):
        small_store(directory)
    assert give_up_log(directory) is not None
    store = small_store(directory)
    assert store.recover().nodes == []


def test_a_sound_log_is_not_given_up(tmp_path: Path) -> None:
    """Nothing happens to a sound log."""
    killed = Killed(tmp_path)
    assert give_up_log(killed.copy()) is None
    store = small_store(killed.again)
    assert offsets(store, killed.queue_id) == list(range(2 * POSTS))
    store.close()
    with pytest.raises(FileNotFoundError):
        give_up_log(tmp_path / "again")


def test_a_log_whose_database_is_gone_is_given_up(tmp_path: Path) -> None:
    """Without its database the store is empty then."""
    killed = Killed(tmp_path)
    (killed.copy() / DATABASE_NAME).unlink()
    assert give_up_log(killed.again) is not None
    store = small_store(killed.again)
    assert store.recover().nodes == []
    store.close()
    connect(str(killed.again / DATABASE_NAME)).close()


@pytest.mark.parametrize("archived", [False, True])
def test_what_was_removed_is_not_read_by_offset_either(tmp_path: Path, archived: bool) -> None:
    """A removed message is missing for readers by offset, also after the next start."""
    store = small_store(tmp_path)
    queue_id = new_queue(store, NAME)
    do(store, Retain(queue_id, 3_600_000, 0), Post(queue_id, messages(0, 5)))
    if archived:
        do(store, Retire(queue_id, 0, 4))
    store.close()
    remove(tmp_path, f"{NAME}/2")
    assert verify_directory(tmp_path) == []
    store = small_store(tmp_path)
    store.recover()
    page = store.ask(RetainedPageOf(queue_id, 0, 9, 1 << 20))
    assert [record.offset for record in page.records] == [0, 1, 3, 4]
    assert [lost.offset for lost in page.quarantined] == [2] and page.next_offset == 5


def test_a_message_that_somebody_knows_to_be_wrong_is_told_and_removed(tmp_path: Path) -> None:
    """The store knows octets only: whoever verifies it may give a function that judges messages."""

    def problem(body: bytes) -> str | None:
        return "it is the fourth" if body.startswith(b"3:") else None

    queue_id = fill(tmp_path)
    assert verify_directory(tmp_path, problem) == [
        f"queue {queue_id}, offset 3: the message is malformed: it is the fourth"
    ]
    remove(tmp_path, f"queue {queue_id}, offset 3")
    assert verify_directory(tmp_path, problem) == []
    whole_without(tmp_path, [3], [0, 1, 2])
