"""The seeded faults: what is changed where, and the suite that has to fail."""

from __future__ import annotations

from typing import Final

from tests.mutants import (
    choice_faults,
    clock_faults,
    door_faults,
    log_faults,
    memory_faults,
    outcome_faults,
    request_faults,
    retain_faults,
    retained_faults,
    rule_faults,
    sequence_faults,
    set_faults,
    storage_faults,
)
from tests.mutants.mutant import Mutant

POWER_LOSS: Final = ("tests/power_loss/test_power_loss.py::test_no_power_cut_loses_what_was_acknowledged",)
IO_ERRORS: Final = (
    "tests/power_loss/test_power_loss.py::test_an_io_error_or_a_full_disk_at_any_call_loses_nothing",
)
KILLS: Final = ("tests/crash/test_kills.py::test_kills_at_random_moments_lose_and_repeat_nothing",)
STORE: Final = ("tests/model/test_store_model.py", "tests/persistence/test_store_suite.py")
QUARANTINE: Final = ("tests/persistence/test_quarantine.py",)
QUEUE: Final = ("tests/amqp_broker/test_queue.py", "tests/amqp_broker/test_backlog.py")
SOURCE: Final = ("tests/amqp_broker/nodes/test_queue_source.py",)
WRITER: Final = ("tests/amqp_broker/test_writer.py",)
SENDER: Final = ("tests/links/test_sender_link.py",)
RECEIVER: Final = ("tests/links/test_receiver_link.py",)

_DURABILITY: Final = (
    Mutant(
        "NORMAL instead of FULL",
        "persistence/sqlite_store.py",
        "cache_bytes, wal_limit_bytes, synchronous)",
        'cache_bytes, wal_limit_bytes, "NORMAL")',
        POWER_LOSS,
    ),
    Mutant(
        "the name of the data directory is not made durable",
        "persistence/data_directory.py",
        "    sync_directory(directory.absolute().parent)\n",
        "",
        POWER_LOSS,
    ),
    Mutant(
        "the writer acknowledges before COMMIT",
        "amqp_broker/operations/writer.py",
        "                await self._run_in(thread, self._store.commit)\n",
        "                self._finish(group)\n"
        "                await self._run_in(thread, self._store.commit)\n"
        "                return\n",
        WRITER,
    ),
    Mutant(
        "a small group is acknowledged without its COMMIT",
        "amqp_broker/operations/writer.py",
        "                self._store.commit()\n",
        "",
        WRITER,
    ),
    Mutant(
        "a COMMIT that met an I/O error is answered as rolled back",
        "persistence/unit_of_work.py",
        'raise self._fail(f"COMMIT failed, its outcome is unknown: {error}") from error',
        "raise StoreFull(str(error)) from error",
        IO_ERRORS,
    ),
    Mutant(
        "the store goes on after an I/O error",
        "persistence/unit_of_work.py",
        "        if self.failure is not None:\n            raise StoreFailed(",
        "        if self.failure is None and self.failure is not None:\n            raise StoreFailed(",
        IO_ERRORS,
    ),
    Mutant(
        "durable messages are kept in memory only",
        "amqp_broker/records.py",
        "        durable and persistent,\n",
        "        False,\n",
        KILLS,
    ),
    Mutant(
        "an outcome is confirmed before it is stored",
        "amqp_broker/nodes/queue_source.py",
        "        else:\n            self._nodes.writer.collect(settlement)\n",
        "        else:\n"
        "            self.link.settle(deliveries, state) or self._nodes.writer.collect(settlement)\n",
        KILLS,
    ),
)

_STORE: Final = (
    Mutant(
        "retire one too many",
        "persistence/group.py",
        "        last = min(last, self.next_offset - 1)\n",
        "        last = min(last + 1, self.next_offset - 1)\n",
        STORE,
    ),
    Mutant(
        "a run that is gone in part is not written",
        "persistence/group_writer.py",
        "            elif touched.gone != touched.run.gone:\n                updates.append",
        "            elif not touched.run:\n                updates.append",
        STORE,
    ),
    Mutant(
        "no checksum of a body is looked at",
        "persistence/reader.py",
        "        if found == [crcs[position + index] for index in indexes]:",
        "        if found == found or crcs:",
        QUARANTINE,
    ),
    Mutant(
        "no checksum of a row is looked at",
        "persistence/table.py",
        "            return bool(self.checksum_of(row) == row[-1])",
        "            return bool(row)",
        QUARANTINE,
    ),
    Mutant(
        "numbering is forgotten with the last run",
        "persistence/group_writer.py",
        "        if max(node.durable_next, self._top_end(changes)) < changes.next_offset:",
        "        if changes.next_offset < 0:",
        STORE,
    ),
    Mutant(
        "what a returned message says is not kept",
        "persistence/group_writer.py",
        "        if changes.changed:\n            changed = [",
        "        if changes.changed and queue_id < 0:\n            changed = [",
        STORE,
    ),
    Mutant(
        "segments of retired messages stay for ever",
        "persistence/group_writer.py",
        "    deleted = unit.execute_many(_DELETE_SEGMENTS, ranges)\n",
        "    deleted = len(segment_ids)\n",
        STORE,
    ),
    Mutant(
        "a purge leaves what is older",
        "persistence/group.py",
        "        self.purged_to = self.next_offset\n",
        "        self.purged_to = max(self.purged_to, self.next_offset - 1)\n",
        STORE,
    ),
    Mutant(
        "half of a refused unit stays",
        "persistence/node_table.py",
        "                self._roll_back_to(mark)\n                return error",
        "                return error",
        STORE,
    ),
    Mutant(
        "two brokers may share a data directory",
        "persistence/data_directory.py",
        "fcntl.LOCK_EX | fcntl.LOCK_NB",
        "fcntl.LOCK_SH | fcntl.LOCK_NB",
        ("tests/persistence/test_file_lock.py",),
    ),
    Mutant(
        "a full disk refuses nothing",
        "persistence/free_space.py",
        "            self._refusing = free < self._low_water_bytes\n",
        "            self._refusing = free < 0\n",
        ("tests/persistence/test_free_space.py",),
    ),
)

_QUEUE: Final = (
    Mutant(
        "return to the end of the queue",
        "amqp_broker/backlog.py",
        "        heappush(self._returned, (record.offset, record))",
        "        self._ready.append(record)",
        QUEUE,
    ),
    Mutant(
        "delivery-count is not incremented",
        "amqp_broker/nodes/queue_source.py",
        "record.delivery_count += 1",
        "record.delivery_count += 0",
        SOURCE,
    ),
    Mutant(
        "every delivery says first-acquirer",
        "amqp_broker/queue.py",
        "            record.acquired_before = True\n",
        "            record.acquired_before = False\n",
        QUEUE,
    ),
    Mutant(
        "undeliverable-here is ignored",
        "amqp_broker/nodes/queue_source.py",
        "            if state.undeliverable_here:\n",
        "            if state.undeliverable_here and not record:\n",
        SOURCE,
    ),
    Mutant(
        "a released message is gone",
        "amqp_broker/nodes/queue_source.py",
        "    Released: QueueSource._release,\n",
        "    Released: QueueSource._retire,\n",
        SOURCE,
    ),
    Mutant(
        "what a link held stays with it when it goes",
        "amqp_broker/nodes/queue_source.py",
        "        self.left(held)\n",
        "        if not self.queue:\n            self.left(held)\n",
        SOURCE,
    ),
    Mutant(
        "a message is delivered after its time",
        "amqp_broker/queue.py",
        "                if 0 < record.expires_at_ms <= now_ms:\n                    self.expired",
        "                if 0 < record.expires_at_ms <= 0:\n                    self.expired",
        QUEUE,
    ),
    Mutant(
        "the first consumer takes everything",
        "amqp_broker/queue.py",
        "            share = max(1, self.backlog.loaded() // len(hungry))\n",
        "            share = max(1, self.backlog.loaded())\n",
        QUEUE,
    ),
)

_LINKS: Final = (
    Mutant(
        "sending does not look at credit",
        "links/sender_link.py",
        "        bound = min(len(messages), self.flow_state.credit)\n",
        "        bound = len(messages)\n",
        SENDER,
    ),
    Mutant(
        "sending does not look at the session window",
        "links/sender_link.py",
        "        room = session.window.remote_incoming_window\n        if not settled",
        "        room = 1 << 30\n        if not settled",
        ("tests/links",),
    ),
    Mutant(
        "a settling range covers what was not settled",
        "links/sender_link.py",
        "            if delivery.number != last + 1 or first < 0:\n",
        "            if first < 0:\n",
        SENDER,
    ),
    Mutant(
        "drain gives no credit back",
        "links/windows.py",
        "        self.delivery_count += self.credit\n        self.credit = 0\n",
        "        self.credit = 0\n",
        ("tests/links/test_sender_link.py", "tests/links/test_pair.py"),
    ),
    Mutant(
        "one transfer beyond credit is taken",
        "links/windows.py",
        "        return self.allowed - self.delivery_count\n",
        "        return self.allowed - self.delivery_count + 1\n",
        RECEIVER,
    ),
    Mutant(
        "serial numbers do not wrap",
        "links/serial.py",
        "    return near + difference(serial, near)\n",
        "    return serial\n",
        ("tests/links/test_serial.py",),
    ),
)

_FRAMES: Final = (
    Mutant(
        "a frame may be larger than announced",
        "frames/framing.py",
        "        if size > self.max_frame_size:\n",
        "        if size > self.max_frame_size * 1_000:\n",
        ("tests/frames/test_framing.py",),
    ),
    Mutant(
        "nesting has no bound",
        "frames/limits.py",
        "DEPTH_MAX: Final = 32\n",
        "DEPTH_MAX: Final = 10_000\n",
        ("tests/frames/test_decoding.py",),
    ),
)

_TRANSACTIONS: Final = (
    rule_faults.FAULTS
    + choice_faults.FAULTS
    + storage_faults.FAULTS
    + request_faults.FAULTS
    + outcome_faults.FAULTS
)

MUTANTS: Final[tuple[Mutant, ...]] = (
    _DURABILITY
    + _STORE
    + _QUEUE
    + _LINKS
    + _FRAMES
    + _TRANSACTIONS
    + sequence_faults.FAULTS
    + retain_faults.FAULTS
    + set_faults.FAULTS
    + retained_faults.FAULTS
    + log_faults.FAULTS
    + clock_faults.FAULTS
    + door_faults.FAULTS
    + memory_faults.FAULTS
)
