"""Seeded faults of retention and cursors: what is kept, what is dropped, and what is told."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

STORE_TESTS: Final = "tests/persistence/test_store_suite.py"
RETENTION_TESTS: Final = "tests/persistence/test_retention.py"
KILL_TESTS: Final = "tests/crash/store/test_retain_fault_points.py"

FAULTS: Final = (
    Mutant(
        "a wholly retired run goes although its node retains",
        "persistence/group_writer.py",
        "            if touched.live_count == 0 and touched.run.first < keep_from:\n                dying",
        "            if touched.live_count == 0:\n                dying",
        (f"{STORE_TESTS}::test_sqlite_store[retained_messages_come_back-cache]",),
    ),
    Mutant(
        "what is posted and retired in one group is not retained",
        "persistence/group_writer.py",
        "            elif pending.live_count or (kept and pending.records):\n",
        "            elif pending.live_count:\n",
        (f"{STORE_TESTS}::test_sqlite_store[posted_and_retired_in_one_group_is_retained-cache]",),
    ),
    Mutant(
        "changed headers go although the message is kept",
        "persistence/group.py",
        "        if first < self.keep_from:\n",
        "        self.retired_ranges.append((first, last))\n        if first < self.keep_from:\n",
        (f"{STORE_TESTS}::test_sqlite_store[retained_messages_come_back-cache]",),
    ),
    Mutant(
        "a run lies on both sides of where retention begins",
        "persistence/group.py",
        "        self.pending.append(PendingRun(self.next_offset))  # no run lies on both sides\n",
        "",
        (f"{STORE_TESTS}::test_sqlite_store[retention_begins_at_the_next_message-cache]",),
    ),
    Mutant(
        "times of publication follow a clock that goes back",
        "persistence/group_writer.py",
        "at_ms = max(at_ms, max([record.enqueued_at_ms for record in pending.records]))\n",
        "at_ms = max([record.enqueued_at_ms for record in pending.records])\n",
        (f"{STORE_TESTS}::test_sqlite_store[offset_at_a_time-cache]",),
    ),
    Mutant(
        "dropping forgets the numbering",
        "persistence/retained_sweep.py",
        "        keep_next_offset(unit, node)\n",
        "        pass\n",
        (f"{RETENTION_TESTS}::test_dropping_takes_bounded_steps",),
    ),
    Mutant(
        "dropping takes live messages away",
        "persistence/retained_sweep.py",
        "    dead = [run for run in dropping.passed if not run.live_count]\n",
        "    dead = dropping.passed\n",
        (f"{STORE_TESTS}::test_sqlite_store[dropping_by_age-cache]",),
    ),
    Mutant(
        "the watermark is not durable",
        "persistence/retained_sweep.py",
        "        unit.execute(RETAINED.replace, dropping.after.row(queue_id))\n",
        "        pass\n",
        (f"{RETENTION_TESTS}::test_a_restart_forgets_no_watermark",),
    ),
    Mutant(
        "an ended retention is not swept after a restart",
        "persistence/retained_table.py",
        "        if self.swept_to < self.first_offset or not self.retains() or self.low_at_ms is None:\n",
        "        if self.low_at_ms is None and self.retains():\n",
        (f"{RETENTION_TESTS}::test_restart_in_the_middle_of_ending",),
    ),
    Mutant(
        "the compactor takes away what is archived",
        "persistence/housekeeping.py",
        "node is not None and run.first < node.keep_from:\n",
        "node is not None:\n",
        (f"{RETENTION_TESTS}::test_compactor_leaves_what_is_kept",),
    ),
    Mutant(
        "holes are not told",
        "persistence/retained_reader.py",
        "        return _without_holes(page, begin)\n",
        "        return ReadResult(page.records, page.at, page.quarantined)\n",
        (f"{RETENTION_TESTS}::test_damage_is_told_as_holes",),
    ),
    Mutant(
        "the queue is given archived messages",
        "persistence/reader.py",
        "        return self._runs.select if node.retention is None else self._runs.select_live\n",
        "        return self._runs.select\n",
        (f"{STORE_TESTS}::test_sqlite_store[posted_and_retired_in_one_group_is_retained-cache]",),
    ),
    Mutant(
        "a damaged policy drops everything",
        "persistence/retained_table.py",
        "        if RETAINED.is_sound(row):\n",
        "        if row:\n",
        (f"{RETENTION_TESTS}::test_damaged_policy_keeps_everything",),
    ),
    Mutant(
        "a deleted node leaves its cursors",
        "persistence/cursor_table.py",
        "                self._unit.execute(_FORGET_QUEUE, (queue_id,))\n",
        "                pass\n",
        (f"{STORE_TESTS}::test_sqlite_store[cursors_stand_where_they_were_moved-cache]",),
    ),
    Mutant(
        "a cursor is moved outside of its unit",
        "persistence/ledger.py",
        "            self.cursors.write(changes)\n",
        "            pass\n",
        (f"{KILL_TESTS}::test_kill[commit.after-20]",),
    ),
    Mutant(
        "what is moved is found by the time of its staging",
        "persistence/group_writer.py",
        "                    at_ms = self._at_ms[changes.node.queue_id] = max(at_ms, pending.at_ms)\n",
        "                    self._at_ms[changes.node.queue_id] = at_ms\n",
        (f"{STORE_TESTS}::test_sqlite_store[moved_messages_are_retained-cache]",),
    ),
)
